/*-------------------------------------------------------------------------
 *
 * schedule.h
 *	  Making tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SCHEDULE_H
#define DW_SCHEDULE_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "fmgr.h"
#include "keys.h"
#include "task_rows.h"

/* A task to be: what is null in its row, and has no other place here, stays so. */
typedef struct DwNewTask
{
	Oid			owner;
	TimestampTz due;
	int16		queue;
	int16		priority;
	int64		spread;			/* due is up to so many us later */
	DwIfExists	if_exists;
	Datum		values[Natts_task];
	bool		nulls[Natts_task];
} DwNewTask;

/* A task of the current user, in the default queue, due at once after the commit. */
extern void dw_new_task_init(DwNewTask *task, text *sql);

/*
 * Puts it into a queue, as delay_schedule_task does: NULL is the default one,
 * DW_NO_PRIORITY the queue's.  An error if the current user may not.
 */
extern void dw_new_task_queue(DwNewTask *task, const char *queue, int16 priority);

/* Reads the arguments args and arg_types of delay_schedule_task; how many there are. */
extern int	dw_option_args(FunctionCallInfo fcinfo, DwNewTask *task);

/*
 * What dw_schedule_new does first: checks its SQL, which has so many arguments,
 * and keeps the search path.
 */
extern void dw_new_task_check(DwNewTask *task, int nargs);

/*
 * Writes its row, in the current transaction, and remembers it for the end of
 * that.  Its SQL, which has so many arguments, is checked before, and limits
 * are kept to.  Returns its id, or that of the one that is pending already.
 * The caller has called dw_require_writable().
 */
extern int64 dw_schedule_new(DwNewTask *task, int nargs);

/* The same for who has had the SQL checked before. */
extern int64 dw_schedule_checked(DwNewTask *task);

/* Cancels the pending task of a key. */
extern DwTaken dw_schedule_cancel(const DwKey *key);

/*
 * A task whose SQL was checked when it was given, and that takes the place of
 * one that ends: no limit is in its way, and it is no error.
 */
extern int64 dw_schedule_successor(DwNewTask *task);

/* Due times count from now(), the start of the transaction (but see run_now.h); errors if they are not finite. */
extern TimestampTz dw_schedule_now(void);
extern TimestampTz dw_due_after(const Interval *delay);
extern TimestampTz dw_finite_due(TimestampTz due);

#endif							/* DW_SCHEDULE_H */
