/*-------------------------------------------------------------------------
 *
 * schedule.h
 *	  Schedules new tasks, and cancels by key.
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

/* For dw_take_named(), in place of the argument with a queue: argument 0 is a task's id. */
#define DW_BY_ID	0

extern int64 dw_schedule_new(DwNewTask *task, int nargs);
extern Datum dw_schedule_and_tell(FunctionCallInfo fcinfo, DwNewTask *task, int nargs);
extern bool dw_take_named(FunctionCallInfo fcinfo, int queue, Relation rel, HeapTuple *tuple,
						  DwTaskKey *key);
extern int64 dw_schedule_row(DwNewTask *task, bool limited);
extern DwTakeResult dw_schedule_cancel(const DwKey *key);

#endif							/* DW_SCHEDULE_H */
