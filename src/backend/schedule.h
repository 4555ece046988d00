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

#include "fmgr.h"

#include "../ending/pending.h"
#include "../rows/task_rows.h"
#include "../task/new_task.h"

/*
 * Puts it into a queue, as delay_schedule_task does: NULL is the default one,
 * DW_NO_PRIORITY the queue's.  An error if the current user may not.
 */
extern void dw_new_task_queue(DwNewTask *task, const char *queue, int16 priority);

/* Reads the arguments args and arg_types of delay_schedule_task; how many there are. */
extern int	dw_option_args(FunctionCallInfo fcinfo, DwNewTask *task);

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

#endif							/* DW_SCHEDULE_H */
