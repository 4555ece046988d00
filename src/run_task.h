/*-------------------------------------------------------------------------
 *
 * run_task.h
 *	  Claiming and running one task.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RUN_TASK_H
#define DW_RUN_TASK_H

#include "shared.h"

/*
 * Claims the task of an entry and runs it, if it is still there; returns when
 * its outcome is committed, or there is nothing to do for it.
 */
extern void dw_run_task(DwDatabase *db, DwExecutor *me, const DwEntry *entry);

#endif							/* DW_RUN_TASK_H */
