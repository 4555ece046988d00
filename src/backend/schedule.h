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

extern void dw_new_task_queue(DwNewTask *task, const char *queue, int16 priority);
extern int	dw_option_args(FunctionCallInfo fcinfo, DwNewTask *task);
extern int64 dw_schedule_new(DwNewTask *task, int nargs);
extern int64 dw_schedule_checked(DwNewTask *task);
extern DwTaken dw_schedule_cancel(const DwKey *key);

#endif							/* DW_SCHEDULE_H */
