/*-------------------------------------------------------------------------
 *
 * autonomous.c
 *	  Tasks whose statement cannot run in a transaction block.
 *
 * Run by executors.
 *
 * VACUUM, CREATE INDEX CONCURRENTLY, procedures that commit, and similar statements begin and end
 * transactions themselves.  So the executor runs such a statement at top level, like a client's
 * statement.  The claim (the deletion of the task's row) cannot belong to the statement's
 * transactions, and cannot commit together with its effects.  After the statement, a second
 * transaction settles the run.  The task's mode decides what happens if the server or the executor
 * ends before this:
 *
 * at_most_once The claim is committed before the statement.  The same transaction records the task
 *					as failed, because its end is not known.  The settling transaction deletes this
 *					record.  After a crash the record stays, and a person decides.
 * at_least_once The claim is undone after the verdict, and the settling transaction deletes the
 *					row.  After a crash the row still exists, so the task runs again.
 *
 * While an at_most_once task runs, the table has no row of the task; a copy is in the executor's
 * memory.  A process that finds no row calls dw_executor_runs_autonomous() to check if an executor
 * runs the task.
 *
 * While an at_least_once task runs, its row exists, and is not locked.  So a process that wants to
 * delete such a row first takes an advisory lock on the task's id (dw_autonomous_enter() in
 * row_lock.c).  Then it calls dw_executor_keeps() to check if an executor runs the task, deletes
 * the row, and releases the lock.  The executor takes the same lock before its claim, and releases
 * it when its place in shared memory shows the running task.  Plain SQL that deletes or locks the
 * row does not wait.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "tcop/dest.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/inject.h"
#include "../base/wing.h"
#include "../ending/ending.h"
#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "../statement/statement.h"
#include "executor.h"

/*
 * True if this executor has committed the claim of its at_most_once task.  Other processes cannot
 * see this, since me->autonomous is set before the commit.
 */
static bool row_is_gone = false;

/*---- Before the statement ----*/

/*
 * Records an at_most_once task as failed before it runs.  The settling transaction deletes the
 * record.
 */
static void
record_begun(const DwClaim *claim, TimestampTz begun_at)
{
	const ErrorData error = {
		.sqlerrcode = DW_ERRCODE_END_UNKNOWN,
		.message = "the task was begun, and its end is not known",
		.detail = "The server, or the executor, ended while the task ran. Mode 'at_most_once' does not let it run again by itself.",
		.hint = "Look what it has done. If it is to run again, use delay_retry()."
	};

	dw_failed_write(claim->values, claim->nulls, claim->key.attempts + 1, begun_at, &error);
}

/*
 * Ends the transaction of a claim, by commit (at_most_once) or abort (at_least_once).  Then the
 * executor's place shows other processes that the task runs, and task->mode is set.  *claim and
 * *task get copies of the row in the current memory context.
 */
void
dw_autonomous_begin(DwExecutor *me, DwClaim *claim, DwMode mode, DwAutonomous *task)
{
	Relation	rel = dw_claim_open();

	task->table = RelationGetRelid(rel);
	task->row = toast_flatten_tuple(claim->tuple, RelationGetDescr(rel));
	task->begun_at = dw_now();
	claim->tuple = task->row;
	dw_deform(rel, claim->tuple, &claim->values, &claim->nulls);
	table_close(rel, NoLock);

	/* published before other processes can see that the row is deleted, or exists again */
	if (mode == DW_AT_MOST_ONCE)
	{
		record_begun(claim, task->begun_at);
		pg_atomic_write_u64(&me->autonomous, (uint64) claim->key.id);
		pg_memory_barrier();
		/* a crash must not undo the claim, even if synchronous_commit is off */
		ForceSyncCommit();
		dw_claim_commit_transaction();
		row_is_gone = true;
	}
	else
	{
		pg_atomic_write_u64(&me->keeps, (uint64) claim->key.id);
		pg_memory_barrier();
		AbortCurrentTransaction();
	}
	pg_atomic_write_u32(&me->xid, InvalidTransactionId);
	task->mode = mode;
	DW_INJECT("autonomous-after-claim");
}

/*---- The statement ----*/

static int
result_code(const QueryCompletion *qc)
{
	switch (qc->commandTag)
	{
		case CMDTAG_SELECT:
			return SPI_OK_SELECT;
		case CMDTAG_INSERT:
			return SPI_OK_INSERT;
		case CMDTAG_UPDATE:
			return SPI_OK_UPDATE;
		case CMDTAG_DELETE:
			return SPI_OK_DELETE;
		case CMDTAG_MERGE:
			return SPI_OK_MERGE;
		default:
			return 0;
	}
}

/*
 * Returns the result to report for a statement.  If rules have rewritten it to several statements,
 * qc belongs to the replacement of the original statement.
 */
static DwSpiResult
result_of(const List *plans, const QueryCompletion *qc)
{
	DwSpiResult result = {.code = result_code(qc), .rows = qc->nprocessed};

	if (list_length(plans) == 1 && linitial_node(PlannedStmt, plans)->utilityStmt != NULL)
		return dw_last_utility;
	return result;
}

/*
 * Analyzes and plans the statement, which needs a snapshot.  No snapshot may be active when the
 * statement is executed.
 */
static List *
plan_statement(const DwClaim *claim, const char *sql, RawStmt *raw, ParamListInfo *params)
{
	List	   *plans;

	PushActiveSnapshot(GetTransactionSnapshot());
	*params = dw_args_params(sql,
							 claim->values[Anum_task_args - 1], claim->nulls[Anum_task_args - 1],
							 claim->values[Anum_task_arg_types - 1],
							 claim->nulls[Anum_task_arg_types - 1]);
	plans = pg_plan_queries(dw_args_analyze(raw, sql, *params), sql, CURSOR_OPT_PARALLEL_OK,
							*params);
	PopActiveSnapshot();
	return plans;
}

/*
 * Sets the settings that are kept for the task, for all transactions of its statement.  Needs a
 * separate transaction, since it looks up the rights of the role.
 */
static void
set_settings_of(const DwClaim *claim)
{
	MemoryContext context = CurrentMemoryContext;
	Jsonb	   *settings = dw_more_object(claim->values, claim->nulls, Anum_task_more,
										  DW_MORE_SETTINGS);

	if (settings == NULL)
		return;
	SetCurrentStatementStartTimestamp();
	dw_session_start_transaction();
	(void) dw_kept_settings_set(settings, GUC_ACTION_SET);
	dw_session_commit_transaction();
	MemoryContextSwitchTo(context);
}

/*
 * Runs the statement of a task with a mode, which may end and begin transactions.
 * Begins the first transaction; the caller commits the last transaction.
 *
 * Works like exec_simple_query().  The statement's parse tree and plans are in the current memory
 * context, which must outlive all transactions.  The state of execution is in the portal's context,
 * which also outlives the transactions.
 *
 * Checks the text once more, since plain SQL may have written it.  For example, BEGIN would leave a
 * transaction block open.
 */
DwSpiResult
dw_autonomous_run(const DwClaim *claim, const char *sql)
{
	MemoryContext context = CurrentMemoryContext;
	DwSpiResult result;
	ParamListInfo params;
	RawStmt    *raw;
	List	   *plans;
	Portal		portal;
	QueryCompletion qc;
	DwFirstRow	row;
	char	   *search_path = dw_claim_text(claim, Anum_task_search_path);

	if (claim->key.has_more)
		set_settings_of(claim);
	/*
	 * set outside of a transaction, so that it outlives all transactions of the statement, even if
	 * rolled back
	 */
	if (search_path != NULL)
		(void) set_config_option("search_path", search_path, PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SET, true, 0, false);
	SetCurrentStatementStartTimestamp();
	dw_session_start_transaction();
	MemoryContextSwitchTo(context);
	dw_check_sql_autonomous(DatumGetTextPP(claim->values[Anum_task_sql - 1]), -1);
	raw = linitial_node(RawStmt, pg_parse_query(sql));

	portal = CreatePortal("", true, true);
	portal->visible = false;
	plans = plan_statement(claim, sql, raw, &params);
	PortalDefineQuery(portal, NULL, sql, CreateCommandTag(raw->stmt), plans, NULL);
	CHECK_FOR_INTERRUPTS();
	PortalStart(portal, params, 0, InvalidSnapshot);
	dw_first_row_init(&row, dw_wings_max_result(claim->key.queue));
	(void) dw_snooze_take();
	dw_may_snooze = true;
	(void) dw_portal_run(portal, &row.pub, &qc);
	result = result_of(plans, &qc);
	result.again_at = dw_snooze_take();
	dw_may_snooze = false;
	/* the statement may have ended transactions, so the memory context may have changed */
	MemoryContextSwitchTo(context);
	result.first_row = dw_first_row_take(&row);
	PortalDrop(portal, false);
	if (IsTransactionBlock())
		elog(ERROR, "task left a transaction block");
	return result;
}

/* ---- After the statement ---- */

/*
 * Deletes the row of an at_least_once task after its run.  Waits for transactions that have locked
 * the row by plain SQL.  Returns false if the row is gone.
 */
static bool
delete_kept(Relation rel, int64 id)
{
	for (;;)
	{
		Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
		HeapTuple	tuple = dw_task_find(rel, id, snapshot);

		UnregisterSnapshot(snapshot);
		if (tuple == NULL)
			return false;
		if (dw_heap_delete(rel, &tuple->t_self, true) == TM_Ok)
			return true;
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Claims the task again, in the transaction that settles its run, and fills in *claim.  Returns
 * false if nothing can be settled, since plain SQL has deleted the row, or the extension was
 * dropped.
 */
bool
dw_autonomous_reclaim(DwDatabase *db, DwExecutor *me, const DwAutonomous *task, DwClaim *claim)
{
	Relation	rel = dw_claim_open();
	/* if the extension was created again meanwhile, its new tasks may have the same ids */
	bool		there = RelationGetRelid(rel) == task->table;

	if (!there)
	{
		table_close(rel, NoLock);
		return false;
	}
	/* as for any claim, the xid shows other processes that an executor has the row */
	pg_atomic_write_u32(&me->xid, GetCurrentTransactionId());
	pg_memory_barrier();
	dw_claim_read(db, rel, heap_copytuple(task->row), claim);
	if (task->mode == DW_AT_LEAST_ONCE)
	{
		there = delete_kept(rel, claim->key.id);
		pg_atomic_write_u64(&me->keeps, 0);
	}
	else
		dw_failed_delete(claim->key.id, task->begun_at);
	table_close(rel, NoLock);
	CommandCounterIncrement();
	UpdateActiveSnapshotCommandId();
	return there;
}

/*
 * To be called after an error in the claim's transaction or the settling transaction, before the
 * abort.  Publishes the state after the abort: the row of an at_least_once task stays.  A task
 * whose claim was not committed is not running.
 */
void
dw_autonomous_undone(DwDatabase *db, DwExecutor *me, const DwAutonomous *task)
{
	if (task->mode == DW_AT_LEAST_ONCE)
		pg_atomic_write_u64(&me->keeps, (uint64) me->current.id);
	else if (task->mode == DW_IN_TRANSACTION)
		/* the claim could not be committed, so the row still exists */
		dw_autonomous_end(db, me);
}

/*
 * Returns true if an exit of this executor would lose its task: the row is deleted, and the run is
 * not settled.  Only the record of an unknown end would remain.
 */
bool
dw_autonomous_is_lost(DwExecutor *me)
{
	return row_is_gone && pg_atomic_read_u64(&me->autonomous) != 0;
}

/*
 * Publishes that this executor no longer runs a task outside of a transaction, and increments
 * db->autonomous_ended.  A session may have looked for the row before the end, and for the executor
 * after the end, without success.  The new value makes the session look again.
 */
void
dw_autonomous_end(DwDatabase *db, DwExecutor *me)
{
	if (pg_atomic_read_u64(&me->autonomous) != 0)
		pg_atomic_fetch_add_u32(&db->autonomous_ended, 1);
	row_is_gone = false;
	pg_atomic_write_u64(&me->autonomous, 0);
	pg_atomic_write_u64(&me->keeps, 0);
}
