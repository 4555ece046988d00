/*-------------------------------------------------------------------------
 *
 * autonomous.c
 *	  Tasks whose statement cannot run in a transaction block.
 *
 * Run by executors; what concerns rows of such tasks also by whoever deletes
 * rows.
 *
 * VACUUM, CREATE INDEX CONCURRENTLY and the like, and procedures that commit,
 * begin and end transactions themselves.  So the statement is run as that of
 * a client is, at top level, and nothing of ours can be in its transactions:
 * the claim cannot be one with its effects.  Of the two things that can be had
 * instead the task's mode says which:
 *
 * at_most_once		The claim is committed first.  In the same transaction the
 *					task is recorded as failed, with a message that says that
 *					its end is not known; the transaction that settles it takes
 *					that back.  So after a crash it stands there, to be judged
 *					by a person.
 * at_least_once	The row stays until the statement has ended; its deletion is
 *					undone when the claim has been judged.  After a crash it is
 *					found again.
 *
 * What is kept of the first ones' claim is in the executor's memory, and while
 * they run there is no row that others could find; so these look whether an
 * executor says that it runs the task (dw_executor_runs_autonomous).
 *
 * The rows of the second ones are there, and nobody has locked them.  So who
 * would delete one takes a lock of its id first, for just that long, and
 * looks whether an executor keeps it (dw_executor_keeps); the executor holds
 * that lock while it claims and says so.  It is an advisory lock of a class of
 * its own.  What is deleted by plain SQL, or locked, is not protected.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
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
#include "utils/builtins.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/inject.h"
#include "../ring/ring.h"
#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "../statement/args.h"
#include "../statement/spi_run.h"
#include "../statement/sqlcheck.h"
#include "autonomous.h"
#include "claim.h"
#include "session.h"

/* Of this executor's task; others have been told before that is certain. */
static bool row_is_gone = false;

/*---- Before the statement ----*/

/* What stands there until the task is settled, and afterwards if it never is. */
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
 * Outside of transactions a setting is the session's, so that it outlasts all
 * those of the statement, and a rollback in it.
 */
static void
set_mode_search_path(const DwClaim *claim)
{
	char	   *path = dw_claim_text(claim, Anum_task_search_path);

	if (path != NULL)
		(void) set_config_option("search_path", path, PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SET, true, 0, false);
}

/*
 * In the transaction of a claim, which it ends: from here on the task runs, and
 * task->mode is set.  The claim comes to be in the current memory context.
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

	/* before anybody can see that the row is gone, or is there again */
	if (mode == DW_AT_MOST_ONCE)
	{
		record_begun(claim, task->begun_at);
		pg_atomic_write_u64(&me->autonomous, (uint64) claim->key.id);
		pg_memory_barrier();
		/* whatever synchronous_commit says: a crash must not undo the claim */
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

/* Of a rule's statements, the one that stands for the original. */
static DwSpiResult
result_of(const List *plans, const QueryCompletion *qc)
{
	DwSpiResult result = {.code = result_code(qc), .rows = qc->nprocessed};

	if (list_length(plans) == 1 && linitial_node(PlannedStmt, plans)->utilityStmt != NULL)
		return dw_spi_noted_utility();
	return result;
}

/* What is done before a statement is executed needs a snapshot, which must not stay. */
static List *
plan_statement(const DwClaim *claim, const char *sql, RawStmt *raw, ParamListInfo *params)
{
	List	   *queries;
	List	   *plans;

	PushActiveSnapshot(GetTransactionSnapshot());
	*params = dw_args_params(sql,
							 claim->values[Anum_task_args - 1], claim->nulls[Anum_task_args - 1],
							 claim->values[Anum_task_arg_types - 1], claim->nulls[Anum_task_arg_types - 1]);
	if (*params != NULL)
		queries = pg_analyze_and_rewrite_withcb(raw, sql, (*params)->parserSetup,
												(*params)->parserSetupArg, NULL);
	else
		queries = pg_analyze_and_rewrite_fixedparams(raw, sql, NULL, 0, NULL);
	plans = pg_plan_queries(queries, sql, CURSOR_OPT_PARALLEL_OK, *params);
	PopActiveSnapshot();
	return plans;
}

/*
 * Runs its statement, from the beginning of a transaction; the last one is
 * left to the caller to end.  The current memory context is to last.
 *
 * As exec_simple_query() does it.  What belongs to the statement is in a memory
 * context of the caller's, and what it needs to be run in that of the portal,
 * so both outlast the transactions in between.
 *
 * The text is checked once more: it may have come by plain SQL, and BEGIN, say,
 * would not end.
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

	set_mode_search_path(claim);
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
	(void) dw_portal_run(portal, None_Receiver, &qc);
	result = result_of(plans, &qc);
	PortalDrop(portal, false);
	if (IsTransactionBlock())
		elog(ERROR, "task left a transaction block");
	return result;
}

/*---- After it ----*/

/*
 * Deletes the row of a task that stayed while it ran; false if it is gone.  Who
 * has locked it by plain SQL is waited for.
 */
static bool
delete_kept(Relation rel, int64 id)
{
	for (;;)
	{
		Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
		HeapTuple	tuple = dw_task_find(rel, id, snapshot);
		TM_FailureData failure;

		UnregisterSnapshot(snapshot);
		if (tuple == NULL)
			return false;
		if (heap_delete(rel, &tuple->t_self, GetCurrentCommandId(true),
						InvalidSnapshot, true, &failure, false) == TM_Ok)
			return true;
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * In the transaction that settles it: the task is claimed again.  False if its
 * row was deleted meanwhile, or the whole extension.
 */
bool
dw_autonomous_reclaim(DwDatabase *db, DwExecutor *me, const DwAutonomous *task, DwClaim *claim)
{
	Relation	rel = dw_claim_open();
	/* those of another extension, created since, have the same numbers */
	bool		there = RelationGetRelid(rel) == task->table;

	if (!there)
	{
		table_close(rel, NoLock);
		return false;
	}
	/* from here on others go by that, as for any claim */
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

void
dw_autonomous_undone(DwDatabase *db, DwExecutor *me, const DwAutonomous *task)
{
	if (task->mode == DW_AT_LEAST_ONCE)
		pg_atomic_write_u64(&me->keeps, (uint64) me->current.id);
	else if (task->mode == DW_IN_TRANSACTION)
		/* its claim could not be committed: the row is there */
		dw_autonomous_end(db, me);
}

/*
 * If the executor ended now, would its task be gone, and nobody know how it ended?
 */
bool
dw_autonomous_is_lost(DwExecutor *me)
{
	return row_is_gone && pg_atomic_read_u64(&me->autonomous) != 0;
}

/* Who found neither row nor executor may have looked before and after the end. */
void
dw_autonomous_end(DwDatabase *db, DwExecutor *me)
{
	if (pg_atomic_read_u64(&me->autonomous) != 0)
		pg_atomic_fetch_add_u32(&db->autonomous_ended, 1);
	row_is_gone = false;
	pg_atomic_write_u64(&me->autonomous, 0);
	pg_atomic_write_u64(&me->keeps, 0);
}
