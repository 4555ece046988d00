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

extern int64 dw_schedule_new(DwNewTask *task, int nargs);
extern Datum dw_schedule_and_tell(FunctionCallInfo fcinfo, DwNewTask *task, int nargs);
extern DwKey dw_key_argument(FunctionCallInfo fcinfo, int queue);
extern int64 dw_schedule_row(DwNewTask *task, bool limited);
extern DwTakeResult dw_schedule_cancel(const DwKey *key);

#endif							/* DW_SCHEDULE_H */
