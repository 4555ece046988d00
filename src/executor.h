/*-------------------------------------------------------------------------
 *
 * executor.h
 *	  The processes that run tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_EXECUTOR_H
#define DW_EXECUTOR_H

#include "shared.h"

/* The executor that this process is, or NULL. */
extern DwExecutor *dw_this_executor;

/*
 * The executor whose task this process works for, or NULL: a parallel worker
 * helps its leader, who goes on with nothing else meanwhile.
 */
extern DwExecutor *dw_executor_served(void);

extern void dw_executor_install(void);
extern PGDLLEXPORT void dw_executor_main(Datum place);

/* Is it the transaction in which an executor of this database runs a task? */
extern bool dw_xid_is_executor(TransactionId xid);

/*
 * Is it the transaction in which an executor runs this very task, alone, for
 * as long as that takes?
 */
extern bool dw_executor_claims(int64 id, TransactionId xid);

/* Is it one in which an executor runs several tasks, which ends soon? */
extern bool dw_xid_is_batch(TransactionId xid);

/* Does an executor of this database run the task, and its row stays meanwhile? */
extern bool dw_executor_keeps(int64 id);

/* Does one run it, and its row is gone?  If so, *owner is whose task it is. */
extern bool dw_executor_runs_autonomous(int64 id, Oid *owner);

/* Does one run such a task of the queue? */
extern bool dw_executor_runs_autonomous_in(int16 queue);

/*
 * For the executor: takes another task of the lane of its current one, due
 * until then, which becomes its current one, if it is to go on with its batch.
 */
extern bool dw_executor_next(DwExecutor *me, TimestampTz until, DwEntry *entry);

/* For the executor: it has not run anything before its current task. */
extern bool dw_executor_is_fresh(void);

/* For the executor, between two tries of its task: ends if it is told to. */
extern void dw_executor_obey_exit(DwDatabase *db, DwExecutor *me);

#endif							/* DW_EXECUTOR_H */
