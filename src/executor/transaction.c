/*-------------------------------------------------------------------------
 *
 * transaction.c
 *	  The transaction in which an executor claims, runs and settles tasks.
 *
 * Run by executors, for one task (run_task.c) and for several that share a transaction
 * (batch.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"

#include "../base/inject.h"
#include "executor.h"

/*
 * True if tasks run in transactions with one snapshot each: as a new session of the role would
 * begin its transactions.
 */
bool
dw_task_snapshot_stays(void)
{
	return DefaultXactIsoLevel >= XACT_REPEATABLE_READ;
}

/*
 * Begins a transaction in which tasks are claimed and run, or, if settle is true, one is
 * settled that has run in another transaction.  It has the table of tasks locked, and an active
 * snapshot, which sees what was committed when the transaction began.  If the snapshot of
 * the task stays, the active one is not that of the transaction, which dw_claim() takes.  After
 * an error, AbortCurrentTransaction() is enough to end it.
 *
 * The lock comes first: after a command that rewrites the table (REPACK CONCURRENTLY,
 * some forms of ALTER TABLE) a snapshot from before sees no row in it.  The task would
 * seem to be gone.
 *
 * The transaction is an implicit transaction block.  Outside of a block, other
 * extensions take each statement for a whole transaction, and commit its effects on
 * other nodes at once.
 */
void
dw_claim_begin_transaction(bool settle)
{
	SetCurrentStatementStartTimestamp();
	dw_session_start_transaction();
	BeginImplicitTransactionBlock();
	XactIsoLevel = settle ? XACT_READ_COMMITTED : DefaultXactIsoLevel;
	XactReadOnly = false;
	LockRelationOid(dw_catalog()->task, RowExclusiveLock);
	PushActiveSnapshot(IsolationUsesXactSnapshot() ? GetCatalogSnapshot(InvalidOid) : GetTransactionSnapshot());
}

/*
 * Commits the transaction of a claim.  Settings that the task has changed stay in
 * force until the commit is over: deferred triggers and the commit itself (for
 * example synchronous_commit) obey them.  dw_session_clean() undoes them later.
 */
void
dw_claim_commit_transaction(void)
{
	dw_other_nodes_prepare();
	if (ActiveSnapshotSet())
		PopActiveSnapshot();
	DW_INJECT("run-before-commit");
	EndImplicitTransactionBlock();
	dw_session_commit_transaction();
	DW_INJECT("run-after-commit");
}
