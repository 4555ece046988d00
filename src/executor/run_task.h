/*-------------------------------------------------------------------------
 *
 * run_task.h
 *	  Claiming and running one task.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RUN_TASK_H
#define DW_RUN_TASK_H

#include "postgres.h"

#include "../ring/ring.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "../statement/spi_run.h"
#include "../task/ended.h"
#include "claim.h"

/*
 * Claims the task of an entry and runs it, if it is still there; returns when
 * its outcome is committed, or there is nothing to do for it.
 */
extern void dw_run_task(DwDatabase *db, DwExecutor *me, const DwEntry *entry);

/* The task's run was cancelled, and undone: it has failed with this error. */
extern void dw_fail_task(DwDatabase *db, DwExecutor *me, const DwEntry *entry, ErrorData *error);

/* Runs the SQL of a claimed task, which is this text, in this transaction. */
extern DwSpiResult dw_run_sql(const DwClaim *claim, const char *sql);

/* Records a claimed task that is not run as failed, in this transaction. */
extern void dw_record_refusal(const DwClaim *claim);

/* A claimed task came too late to be run: that is all, in this transaction. */
extern void dw_skip_task(const DwClaim *claim);

/* A mark has hit the task, of which the claim is undone: counts and tells that. */
extern void dw_task_was_cancelled(DwDatabase *db, const DwEntry *entry);

/* After the end of a transaction: removes what its tasks left in the session. */
extern void dw_task_clean(bool used_temp);

/* The same of a claimed task; result and error may be NULL. */
extern void dw_conclude_claim(const DwClaim *claim, DwEnd end, TimestampTz started,
							  const DwSpiResult *result, const ErrorData *error);

#endif							/* DW_RUN_TASK_H */
