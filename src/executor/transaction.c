/*-------------------------------------------------------------------------
 *
 * transaction.c
 *	  The transaction in which an executor claims, runs and settles tasks.
 *
 * Run by executors, for one task (run_task.c) and for several tasks that share a transaction
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

/* The runs that the transaction settles, if it commits */
static struct
{
	DwDatabase *db;
	const DwRun *runs;
	uint32		n;
}			settling;

/*
 * Counts the outcomes of the settled runs at the commit.  A session that waits for a task returns
 * only after that, so it sees the task in the counts.
 */
static void
settling_xact_callback(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT)
		for (uint32 i = 0; i < settling.n; i++)
			dw_settled(settling.db, &settling.runs[i]);
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT)
		settling.n = 0;
}

/* Installs the count of settled runs.  To be called once by each executor. */
void
dw_settled_watch_commits(void)
{
	RegisterXactCallback(settling_xact_callback, NULL);
}

/* Returns true if transactions keep their first snapshot, by the role's default isolation level. */
bool
dw_task_snapshot_stays(void)
{
	return DefaultXactIsoLevel >= XACT_REPEATABLE_READ;
}

/*
 * Begins a transaction to claim and run tasks, or, if settle is true, to settle a task that has run
 * in another transaction.  Locks the table of tasks and pushes an active snapshot, which sees all
 * commits before the start of the transaction.  If the transaction keeps its first snapshot,
 * dw_claim() takes that snapshot later.  After an error, AbortCurrentTransaction() is enough to end
 * the transaction.
 *
 * The lock is taken before the snapshot: after a command that rewrites the table (REPACK
 * CONCURRENTLY, some forms of ALTER TABLE), an older snapshot sees no row in the table, as if the
 * task were gone.
 *
 * The transaction is an implicit transaction block.  Outside of a block, other extensions treat
 * each statement as a whole transaction, and commit its changes on other nodes at once.
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
 * Commits the transaction of a claim, which settles n runs.  Settings that the task has changed stay
 * in force until the end of the commit.  So deferred triggers and the commit obey them (for example
 * synchronous_commit).  dw_session_clean() undoes them later.
 */
void
dw_claim_commit_transaction(DwDatabase *db, const DwRun *runs, uint32 n)
{
	settling.db = db;
	settling.runs = runs;
	settling.n = n;
	dw_other_nodes_prepare();
	if (ActiveSnapshotSet())
		PopActiveSnapshot();
	DW_INJECT("run-before-commit");
	EndImplicitTransactionBlock();
	dw_session_commit_transaction();
	DW_INJECT("run-after-commit");
}
