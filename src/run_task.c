/*-------------------------------------------------------------------------
 *
 * run_task.c
 *	  Claiming and running one task.
 *
 * Run by executors, as the role that owns the task.
 *
 * The claim is the deletion of the task's row, before its SQL and in the same
 * transaction: whatever dies, whenever, either both took effect or neither.
 * The SQL runs in a subtransaction; if it fails, the parent, which still
 * holds the claim, records the failure.  Only an error at the commit itself
 * (a deferred constraint, say) undoes the claim too, and is recorded by a
 * second transaction that claims again.
 *
 * Two executors may hold the same entry for a moment, and an entry may be
 * stale: the claim decides.  Steps X1 to X7 of the model in test/model.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "args.h"
#include "compat.h"
#include "executor.h"
#include "failed.h"
#include "inject.h"
#include "keys.h"
#include "lanes.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "queues.h"
#include "run_task.h"
#include "session.h"
#include "settings.h"
#include "spi_run.h"
#include "stats.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "task_rows.h"
#include "tcop/tcopprot.h"
#include "touched.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "verdict.h"

#define RECHECK_MIN		(5 * USECS_PER_MINUTE)
#define RECHECK_MAX		USECS_PER_HOUR
#define RETRY_MIN_MS	100
#define RETRY_MAX_MS	60000
/* what of an error is kept, in bytes */
#define MAX_ERROR_TEXT	16384
/* what the log has of a task's SQL, in bytes */
#define MAX_LOGGED_SQL	1024

/* A claimed row. */
typedef struct Claim
{
	HeapTuple	tuple;
	DwTaskKey	key;
	Datum	   *values;
	bool	   *nulls;
} Claim;

/* Holds what belongs to one task, beyond its transactions. */
static MemoryContext task_context = NULL;

/*
 * The row is locked by a session that is not one of our executors.  If it is
 * a cancel or a reschedule of ours, its end hints the task again.  A lock by
 * plain SQL ends without a word: the timer looks again in some minutes.
 */
static void
ask_for_recheck(DwDatabase *db, const DwEntry *entry)
{
	DwLane	   *lane = &dw_lanes[entry->lane];

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	lane->recheck_from = Min(lane->recheck_from, entry->due);
	if (lane->recheck_at == DW_NEVER)
	{
		lane->recheck_interval = Min(Max(lane->recheck_interval * 2, RECHECK_MIN), RECHECK_MAX);
		lane->recheck_at = dw_now() + lane->recheck_interval;
	}
	LWLockRelease(dw_ready_lock(db));
	pg_atomic_write_u32(&db->lanes_dirty, 1);
	dw_wake_timer(db, DW_AWAKE);
}

/* Is it the task that the entry speaks of, unchanged and ours to run? */
static bool
matches(const DwTaskKey *key, const DwEntry *entry)
{
	const DwLane *lane = &dw_lanes[entry->lane];

	return key->id == entry->id && key->due == entry->due &&
		key->owner == lane->owner && key->queue == lane->queue &&
		key->priority == lane->priority && key->origin == dw_origin_stamp();
}

/* The row at the entry's tid, or NULL; a stale tid is a miss, not an error. */
static HeapTuple
fetch_by_tid(Relation rel, const DwEntry *entry, Snapshot snapshot)
{
	TupleTableSlot *slot;
	HeapTuple	tuple = NULL;
	ItemPointerData tid;

	if (entry->offset == InvalidOffsetNumber ||
		entry->block >= RelationGetNumberOfBlocks(rel))
		return NULL;
	ItemPointerSet(&tid, entry->block, entry->offset);
	slot = table_slot_create(rel, NULL);
	if (table_tuple_fetch_row_version(rel, &tid, snapshot, slot))
		tuple = ExecCopySlotHeapTuple(slot);
	ExecDropSingleTupleTableSlot(slot);
	if (tuple != NULL)
	{
		DwTaskKey	key;

		/* the place may have been given to another row */
		dw_task_key(rel, tuple, &key);
		if (key.id == entry->id)
			return tuple;
		heap_freetuple(tuple);
	}
	return NULL;
}

/*
 * A row is visible a moment before the end of the transaction that wrote it
 * is complete, and before others hear of what that one changed in catalogs:
 * the task might run the old version of a function.  Its lock on its own xid
 * goes last.
 */
static void
wait_for_writer(Relation rel, HeapTuple tuple)
{
	static TransactionId ended = InvalidTransactionId;
	TransactionId writer = HeapTupleHeaderGetXmin(tuple->t_data);

	if (!TransactionIdIsNormal(writer) || TransactionIdEquals(writer, ended))
		return;
	XactLockTableWait(writer, rel, &tuple->t_self, XLTW_None);
	AcceptInvalidationMessages();
	ended = writer;
}

/*
 * Claims the task: deletes its row.  False if there is nothing to do: it is
 * gone, was moved, or somebody else has it, whose end will be heard of.
 */
static bool
claim(DwDatabase *db, DwExecutor *me, const DwEntry *entry, Claim *claimed, DwVerdict *verdict,
	  int *sqlstate, const char **reason)
{
	Relation	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	bool		success = false;

	/* X1: before the deletion, so that a cancel knows who holds the row */
	pg_atomic_write_u32(&me->xid, GetCurrentTransactionId());
	pg_memory_barrier();
	DW_INJECT("claim-before-fetch");

	for (;;)
	{
		TM_FailureData failure;
		TM_Result	result;
		Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

		claimed->tuple = fetch_by_tid(rel, entry, snapshot);
		/* X3 */
		if (claimed->tuple == NULL)
			claimed->tuple = dw_task_find(rel, entry->id, snapshot);
		UnregisterSnapshot(snapshot);
		if (claimed->tuple == NULL)
			break;
		dw_task_key(rel, claimed->tuple, &claimed->key);
		if (!matches(&claimed->key, entry))
			break;
		wait_for_writer(rel, claimed->tuple);

		/* X2 */
		DW_INJECT("claim-before-delete");
		result = heap_delete(rel, &claimed->key.tid, GetCurrentCommandId(true),
							 InvalidSnapshot, false, &failure, false);
		if (result == TM_Ok)
		{
			success = true;
			break;
		}
		if (result == TM_BeingModified)
		{
			if (!dw_xid_is_executor(failure.xmax))
			{
				dw_key_claim_refused(me, rel, claimed->tuple);
				ask_for_recheck(db, entry);
			}
			break;
		}
		/* changed since the snapshot: look again */
		CHECK_FOR_INTERRUPTS();
	}

	if (success)
	{
		DW_INJECT("claim-after-delete");
		dw_deform(rel, claimed->tuple, &claimed->values, &claimed->nulls);
		*verdict = dw_judge(db, rel, claimed->tuple, &claimed->key, claimed->values,
							claimed->nulls, sqlstate, reason);
		CommandCounterIncrement();
	}
	table_close(rel, NoLock);
	return success;
}

static char *
task_text(const Claim *claimed, AttrNumber column)
{
	if (claimed->nulls[column - 1])
		return NULL;
	return TextDatumGetCString(claimed->values[column - 1]);
}

/*
 * Nobody arms the statement timeout for a background worker.  A task without
 * a timeout of its own has the shorter one of those that are set.
 */
static void
arm_timeout(const Claim *claimed)
{
	int			ms = StatementTimeout;

	if (!claimed->nulls[Anum_task_timeout - 1])
		ms = DatumGetInt32(claimed->values[Anum_task_timeout - 1]);
	else if (dw_default_timeout > 0)
		ms = ms > 0 ? Min(ms, dw_default_timeout) : dw_default_timeout;
	if (ms > 0)
		enable_timeout_after(STATEMENT_TIMEOUT, ms);
}

static void
disarm_timeout(void)
{
	disable_timeout(STATEMENT_TIMEOUT, false);
	QueryCancelPending = false;
}

/*
 * Runs the SQL of a claimed task in a subtransaction.  Returns NULL, or the
 * error, with everything undone that the SQL did.
 */
static ErrorData *
run_sql(const Claim *claimed)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	char	   *sql;
	char	   *search_path = task_text(claimed, Anum_task_search_path);
	ErrorData  *error = NULL;

	/* the log may quote it when the transaction is over */
	MemoryContextSwitchTo(task_context);
	sql = task_text(claimed, Anum_task_sql);
	MemoryContextSwitchTo(context);
	debug_query_string = sql;
	pgstat_report_activity(STATE_RUNNING, sql);

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		MemoryContextSwitchTo(context);
		/* until the end of the transaction: deferred triggers belong to it */
		if (search_path)
			(void) set_config_option("search_path", search_path, PGC_USERSET,
									 PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
		arm_timeout(claimed);
		PushActiveSnapshot(GetTransactionSnapshot());
		DW_INJECT("run-before-sql");
		dw_spi_run(sql, dw_args_params(sql,
									   claimed->values[Anum_task_args - 1],
									   claimed->nulls[Anum_task_args - 1],
									   claimed->values[Anum_task_arg_types - 1],
									   claimed->nulls[Anum_task_arg_types - 1]));
		PopActiveSnapshot();
		disarm_timeout();
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		disarm_timeout();
		MemoryContextSwitchTo(task_context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;

	DW_INJECT("run-after-sql");
	return error;
}

static void
set_text(Datum *values, bool *nulls, AttrNumber column, const char *text)
{
	if (text == NULL)
		return;
	values[column - 1] =
		PointerGetDatum(cstring_to_text_with_len(text, pg_mbcliplen(text, strlen(text), MAX_ERROR_TEXT)));
	nulls[column - 1] = false;
}

/* The context, and where in which SQL the error is, which psql would show. */
static char *
whole_context(const ErrorData *error)
{
	if (error->internalquery == NULL || error->internalpos <= 0)
		return error->context;
	return psprintf("at character %d of: %s%s%s", error->internalpos, error->internalquery,
					error->context ? "\n" : "", error->context ? error->context : "");
}

/* Records a claimed task as failed, in the transaction of the claim. */
static void
record_failure(const Claim *claimed, int attempts, ErrorData *error)
{
	Datum		values[Natts_failed];
	bool		nulls[Natts_failed];

	DW_INJECT("record-before-insert");
	dw_failed_from_task(claimed->values, claimed->nulls, values, nulls);
	values[Anum_failed_failed_at - 1] = TimestampTzGetDatum(dw_now());
	nulls[Anum_failed_failed_at - 1] = false;
	values[Anum_failed_attempts - 1] = Int16GetDatum(Min(attempts, PG_INT16_MAX));
	nulls[Anum_failed_attempts - 1] = false;
	set_text(values, nulls, Anum_failed_sqlstate, unpack_sql_state(error->sqlerrcode));
	set_text(values, nulls, Anum_failed_message, error->message ? error->message : "missing error text");
	set_text(values, nulls, Anum_failed_detail, error->detail);
	set_text(values, nulls, Anum_failed_hint, error->hint);
	set_text(values, nulls, Anum_failed_context, whole_context(error));
	dw_failed_insert(values, nulls);

	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("delay_wheel task %lld failed: %s", (long long) claimed->key.id,
					error->message ? error->message : "missing error text")));
}

/* Begins a transaction in which a claim sees what is committed. */
static void
begin_transaction(void)
{
	SetCurrentStatementStartTimestamp();
	dw_session_start_transaction();
	XactIsoLevel = XACT_READ_COMMITTED;
	XactReadOnly = false;
	PushActiveSnapshot(GetTransactionSnapshot());
}

/*
 * What the task has set is in force at its commit, too: for its deferred
 * triggers, and for settings of the commit itself.  dw_session_clean undoes it.
 */
static void
commit_transaction(void)
{
	if (ActiveSnapshotSet())
		PopActiveSnapshot();
	DW_INJECT("run-before-commit");
	dw_session_commit_transaction();
	DW_INJECT("run-after-commit");
}

/* The task failed and its transaction was undone: record that. */
static void
record_again(DwDatabase *db, DwExecutor *me, const DwEntry *entry, int attempts, bool was_run,
			 ErrorData *error)
{
	Claim		claimed;
	DwVerdict	verdict;
	int			sqlstate;
	const char *reason;

	begin_transaction();
	if (!claim(db, me, entry, &claimed, &verdict, &sqlstate, &reason) ||
		claimed.key.attempts != attempts)
	{
		AbortCurrentTransaction();
		return;
	}
	/* whatever the verdict: it was run before */
	record_failure(&claimed, attempts + (was_run ? 1 : 0), error);
	commit_transaction();
	dw_failed_recorded(db, 1);
}

/* What one try of a task leads to. */
typedef struct Try
{
	bool		claimed;		/* an error from here on is the task's */
	bool		was_run;
	int			attempts;		/* before this one */
	TimestampTz started;
	ErrorData  *error;			/* the first one of the task */
	bool		used_temp;
} Try;

/* What is recorded of a task that is given up without having been run. */
static ErrorData *
refusal(int sqlstate, const char *reason)
{
	MemoryContext context = MemoryContextSwitchTo(task_context);
	ErrorData  *error = palloc0(sizeof(ErrorData));

	error->sqlerrcode = sqlstate;
	error->message = pstrdup(reason);
	MemoryContextSwitchTo(context);
	return error;
}

/* Runs a task that was claimed, and records it if that fails. */
static void
run_claimed(DwDatabase *db, const Claim *claimed, Try *try)
{
	try->was_run = true;
	dw_count_lateness(db, try->started - claimed->key.due);
	try->error = run_sql(claimed);
	if (try->error)
		record_failure(claimed, try->attempts + 1, try->error);
	else
		arm_timeout(claimed);	/* deferred triggers can take long, too */
}

/* Claims and runs, in one transaction. */
static void
claim_and_run(DwDatabase *db, DwExecutor *me, const DwEntry *entry, Try *try)
{
	Claim		claimed;
	DwVerdict	verdict;
	int			sqlstate;
	const char *reason;

	begin_transaction();
	if (!claim(db, me, entry, &claimed, &verdict, &sqlstate, &reason))
	{
		AbortCurrentTransaction();
		return;
	}
	if (verdict == DW_PUT_BACK)
	{
		AbortCurrentTransaction();
		dw_queue_put_back(db, entry);
		return;
	}
	try->attempts = claimed.key.attempts;
	try->claimed = true;
	try->started = dw_now();

	if (verdict == DW_RUN)
		run_claimed(db, &claimed, try);
	else if (verdict == DW_REFUSE)
	{
		try->error = refusal(sqlstate, reason);
		record_failure(&claimed, try->attempts, try->error);
	}
	commit_transaction();
	disarm_timeout();
	/* after the commit: its triggers may have created something, too */
	try->used_temp = (MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) != 0;
	if (try->error)
		dw_failed_recorded(db, 1);
	else if (verdict != DW_DROP)
		pg_atomic_fetch_add_u64(&db->done, 1);
}

/*
 * One transaction's worth of work, with errors caught: runs the task, or
 * records the error that undid it.  Returns the error after the abort is
 * finished, or NULL.
 */
static ErrorData *
try_task(DwDatabase *db, DwExecutor *me, const DwEntry *entry, Try *try, bool record)
{
	ErrorData  *error = NULL;

	PG_TRY();
	{
		if (record)
			record_again(db, me, entry, try->attempts, try->was_run, try->error);
		else
			claim_and_run(db, me, entry, try);
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		disable_all_timeouts(false);
		QueryCancelPending = false;
		MemoryContextSwitchTo(task_context);
		error = CopyErrorData();
		FlushErrorState();
		AbortCurrentTransaction();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	pg_atomic_write_u32(&me->xid, InvalidTransactionId);
	MemoryContextSwitchTo(task_context);
	return error;
}

/* Waits before another try; the slot keeps the task. */
static void
back_off(int *wait_ms)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 *wait_ms, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	*wait_ms = Min(*wait_ms * 2, RETRY_MAX_MS);
}

/* The log has it once for each task, the view status always. */
static void
report_problem(DwDatabase *db, const DwEntry *entry, bool record, bool first, ErrorData *error)
{
	char	   *text = psprintf("could not %s task %lld: %s",
								record ? "record the outcome of" : "claim",
								(long long) entry->id, error->message);

	if (first)
		ereport(LOG,
				(errcode(error->sqlerrcode), errmsg_internal("%s", text)));
	dw_problem(db, text);
}

/* delay_wheel.log_min_duration: from the claim until the outcome is committed. */
static void
log_long_task(const DwEntry *entry, const Try *try)
{
	const char *sql = debug_query_string;
	int64		took = dw_now() - try->started;
	int			len;

	if (dw_log_min_duration < 0 || took < (int64) dw_log_min_duration * 1000)
		return;
	len = pg_mbcliplen(sql, strlen(sql), MAX_LOGGED_SQL);
	ereport(LOG,
			(errmsg("delay_wheel task %lld took %.3f ms, begun %.3f ms after it was due",
					(long long) entry->id, took / 1000.0,
					(try->started - entry->due) / 1000.0),
			 errdetail_log("SQL: %.*s%s", len, sql, sql[len] != '\0' ? "..." : ""),
			 errhidestmt(true)));
}

void
dw_run_task(DwDatabase *db, DwExecutor *me, const DwEntry *entry)
{
	Try			try = {0};
	bool		record = false;
	int			wait_ms = RETRY_MIN_MS;

	if (task_context == NULL)
		task_context = AllocSetContextCreate(TopMemoryContext, "delay_wheel task",
											 ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(task_context);
	MemoryContextSwitchTo(task_context);

	/* the clock was set back meanwhile: not due any more */
	if (dw_now() < entry->due)
	{
		DwHint		hint = dw_entry_hint(entry);

		dw_deliver(db, &hint);
		return;
	}

	for (;;)
	{
		ErrorData  *error;

		RESUME_CANCEL_INTERRUPTS();
		error = try_task(db, me, entry, &try, record);
		HOLD_CANCEL_INTERRUPTS();
		if (error == NULL)
			break;
		if (try.claimed && !record)
		{
			/* an error at commit is the task's own, unless it had one before */
			record = true;
			if (try.error == NULL)
				try.error = error;
			continue;
		}
		/* not the task's fault: try again, for as long as it takes */
		report_problem(db, entry, record, wait_ms == RETRY_MIN_MS, error);
		back_off(&wait_ms);
		/* told to end, as after DROP EXTENSION; a task that is left is hinted */
		if (me->must_exit)
			proc_exit(0);
	}

	if (debug_query_string != NULL)
		log_long_task(entry, &try);
	pgstat_report_activity(STATE_IDLE, NULL);
	debug_query_string = NULL;
	dw_session_clean(try.used_temp);
	pgstat_report_stat(false);
	MemoryContextReset(task_context);
}
