/*-------------------------------------------------------------------------
 *
 * autonomous.c
 *	  Tasks whose statement cannot run in a transaction block.
 *
 * Run by executors.
 *
 * The executor runs such a statement at top level, like a client's.  Then a second transaction
 * settles the run.  README.md describes the two modes, and how other processes find a task that has
 * no row, or whose row must stay (dw_executor_runs_autonomous(), dw_executor_keeps()).
 *
 * If the server or the executor ends before the run is settled, an at_most_once task stays recorded
 * as failed, and a person decides.  The row of an at_least_once task stays, so the task runs again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heaptoast.h"
#include "tcop/pquery.h"
#include "tcop/utility.h"
#include "utils/snapmgr.h"

#include "executor.h"

/*
 * True if this executor has committed the claim of its at_most_once task.  Other processes cannot
 * see this, since me->autonomous is set before the commit.
 */
static bool row_is_gone = false;

/*---- Before the statement ----*/

/* Records an at_most_once task as failed, until the settling transaction deletes the record. */
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
		dw_claim_commit_transaction(NULL, NULL, 0);
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

/* Returns the result.  If rules have rewritten the statement, qc is of its replacement. */
static DwSpiResult
result_of(const List *plans, const QueryCompletion *qc)
{
	if (list_length(plans) == 1 && linitial_node(PlannedStmt, plans)->utilityStmt != NULL)
		return dw_last_utility;
	return (DwSpiResult) {.tag = qc->commandTag, .rows = qc->nprocessed};
}

/* Analyzes and plans the statement.  Only this needs a snapshot, not its execution. */
static List *
plan_statement(const DwClaim *claim, const char *sql, RawStmt *raw, ParamListInfo *params)
{
	List	   *plans;

	PushActiveSnapshot(GetTransactionSnapshot());
	*params = dw_claim_params(claim, sql);
	plans = pg_plan_queries(dw_args_analyze(raw, sql, *params), sql, CURSOR_OPT_PARALLEL_OK,
							*params);
	PopActiveSnapshot();
	return plans;
}

/* Sets the task's kept settings, in a separate transaction, which looks up the role's rights. */
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
 * Runs the statement of a task with a mode, which may end and begin transactions, like
 * exec_simple_query().  Begins the first transaction; the caller commits the last one.  Parse tree
 * and plans are in the current memory context, which must outlive all transactions.
 *
 * Checks the text once more, since plain SQL may have written it: BEGIN would leave a block open.
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
	/* set outside of a transaction, so that no transaction of the statement undoes it */
	if (search_path != NULL)
		dw_session_set_path(search_path, GUC_ACTION_SET);
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
	dw_running_in(claim->values, claim->nulls);
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

/* Deletes the row of an at_least_once task.  Waits for locks.  Returns false if the row is gone. */
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
 * Claims the task again, to settle its run, and fills in *claim.  Returns false if plain SQL has
 * deleted the row, or the extension was dropped.
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
 * Called after an error in the claim's or the settling transaction, before its abort.  Publishes
 * the state after the abort: the row of an at_least_once task stays, and a task without a committed
 * claim is not running.
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

/* Returns true if the row is deleted, and the run is not settled: an exit would lose the task. */
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
