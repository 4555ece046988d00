/*-------------------------------------------------------------------------
 *
 * new_task.h
 *	  One new task: its time, its checks, and its row.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_NEW_TASK_H
#define DW_NEW_TASK_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/shared.h"

#define DW_NO_PRIORITY	(-2)

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

/* An error if the time at which a task expires is none. */
extern void dw_check_expires(TimestampTz due, Datum expires);
extern int64 dw_new_task_insert(DwNewTask *task, DwLaneRef lane);
extern void dw_keep_search_path(DwNewTask *task);
extern void dw_new_task_check_sql(const DwNewTask *task, int nargs);
extern void dw_new_task_init(DwNewTask *task, text *sql);
extern void dw_new_task_check(DwNewTask *task, int nargs);
extern int64 dw_schedule_successor(DwNewTask *task);

/* Due times count from now(), the start of the transaction (but see run_now.h); errors if they are not finite. */
extern TimestampTz dw_schedule_now(void);
extern TimestampTz dw_due_after(const Interval *delay);
extern TimestampTz dw_finite_due(TimestampTz due);

#endif							/* DW_NEW_TASK_H */
