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
 * holds the claim, settles it: the task is put back with a later due time, if
 * it has attempts left, or recorded as failed.  Only an error at the commit
 * itself (a deferred constraint, say) undoes the claim too, and is settled by
 * a second transaction that claims again.
 *
 * A task that is put back is a new row with the same id: to all others it is
 * as if it had been rescheduled (C0 to C3 at the end of this transaction), and
 * an entry with the old due time that is still about is forgotten.
 *
 * After a serialization failure or a deadlock the claim is given up, too, and
 * the whole done again at once by the same executor, which keeps the entry.
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
#include "attempts.h"
#include "common/pg_prng.h"
#include "compat.h"
#include "executor.h"
#include "inject.h"
#include "keys.h"
#include "lanes.h"
#include "marks.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "queues.h"
#include "run_task.h"
#include "session.h"
#include "settings.h"
#include "spi_run.h"
#include "stats.h"
#include "stop.h"
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
#include "wait.h"

#define RECHECK_MIN		(5 * USECS_PER_MINUTE)
#define RECHECK_MAX		USECS_PER_HOUR
#define RETRY_MIN_MS	100
#define RETRY_MAX_MS	60000
/* what of an error is kept, in bytes */
#define MAX_ERROR_TEXT	16384
/* what the log has of a task's SQL, in bytes */
#define MAX_LOGGED_SQL	1024
/* How often a task is done again at once, and the longest pause before. */
#define MAX_REPEATS		10
#define REPEAT_MAX_US	(100 * 1000)

/* A claimed row. */
typedef struct Claim
{
	HeapTuple	tuple;
	DwTaskKey	key;
	Datum	   *values;
	bool	   *nulls;
	DwTerms		terms;
} Claim;

/* What one try of a task leads to. */
typedef struct Try
{
	bool		claimed;		/* an error from here on is the task's */
	bool		was_run;
	bool		again;			/* given up, to be done again at once */
	bool		timed_out;		/* the error is that of the timeout */
	bool		put_back;		/* it will be run again */
	bool		used_temp;
	int			attempts;		/* before this one */
	int			repeats;		/* of this one, at once */
	TimestampTz started;
	ErrorData  *error;			/* the first one of the task */
} Try;

/* Holds what belongs to one task, beyond its transactions. */
static MemoryContext task_context = NULL;

static bool timeout_armed = false;

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
	dw_lane_dirty(db, lane);
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
	bool		has_key = false;
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
		has_key = dw_key_lock_of(rel, claimed->tuple);
		DW_INJECT("claim-before-delete");
		result = heap_delete(rel, &claimed->key.tid, GetCurrentCommandId(true),
							 InvalidSnapshot, false, &failure, false);
		if (result == TM_Ok)
		{
			success = true;
			break;
		}
		if (has_key)
			dw_key_leave();
		if (result == TM_BeingModified)
		{
			/* the sweeper removes what is cancelled */
			if (!dw_xid_is_executor(failure.xmax) &&
				!dw_task_is_cancelled(rel, claimed->tuple))
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
		if (has_key)
			dw_key_leave();
		dw_terms(db, &claimed->key, claimed->values, claimed->nulls, &claimed->terms);
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

/* Nobody arms the statement timeout for a background worker. */
static void
arm_timeout(const Claim *claimed)
{
	timeout_armed = claimed->terms.timeout > 0;
	if (timeout_armed)
		enable_timeout_after(STATEMENT_TIMEOUT, claimed->terms.timeout);
}

/* Has it struck, so that a cancel is its own? */
static bool
timeout_struck(void)
{
	return timeout_armed && !get_timeout_active(STATEMENT_TIMEOUT);
}

static void
disarm_timeout(void)
{
	disable_timeout(STATEMENT_TIMEOUT, false);
	timeout_armed = false;
	QueryCancelPending = false;
}

/* The cancel may have come when nobody listened, or been caught by the task. */
static void
obey_stop(const DwExecutor *me)
{
	if (dw_stop_requested(me))
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("task was stopped")));
}

/*
 * Runs the SQL of a claimed task in a subtransaction.  Returns NULL, or the
 * error, with everything undone that the SQL did.
 */
static ErrorData *
run_sql(DwExecutor *me, const Claim *claimed, bool *timed_out)
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
		/* a cancel is for the task's own work */
		RESUME_CANCEL_INTERRUPTS();
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
		obey_stop(me);
		HOLD_CANCEL_INTERRUPTS();
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		/* an error lets them in */
		HOLD_CANCEL_INTERRUPTS();
		*timed_out = timeout_struck();
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
record_failure(const Claim *claimed, int attempts, const ErrorData *error)
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
	dw_touch_ended(claimed->key.id, DW_FAILED);

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

/* Is there no newer task of the same key?  Else *newer is its id. */
static bool
is_newest_of_key(const Claim *claimed, int64 *newer)
{
	Relation	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	bool		allowed = dw_key_retry_allowed(rel, claimed->tuple, newer);

	table_close(rel, NoLock);
	return allowed;
}

/* Puts a claimed task back, to be run again later, in the transaction of the claim. */
static void
put_back(const DwEntry *entry, Claim *claimed, int failed, const ErrorData *error)
{
	DwHint		hint = {.id = entry->id, .lane = dw_lane_ref(&dw_lanes[entry->lane])};
	Datum	   *values = claimed->values;
	bool	   *nulls = claimed->nulls;

	hint.due = dw_next_attempt(&claimed->terms, failed);
	values[Anum_task_due - 1] = TimestampTzGetDatum(hint.due);
	/* it is less than max_attempts, which is a smallint */
	values[Anum_task_attempts - 1] = Int16GetDatum(failed);
	values[Anum_task_more - 1] = dw_more_with_error(values[Anum_task_more - 1],
													nulls[Anum_task_more - 1], error);
	nulls[Anum_task_attempts - 1] = nulls[Anum_task_more - 1] = false;

	DW_INJECT("retry-before-insert");
	/* the hint is brought at the end of the transaction, if there is a place */
	(void) dw_my_database();
	hint.tid = dw_task_insert(values, nulls);
	dw_touch_written(&hint);

	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("delay_wheel task %lld failed and will be tried again: %s",
					(long long) entry->id, error->message ? error->message : "missing error text"),
			 errdetail("This was attempt %d of %d; the next one is due at %s.",
					   failed, claimed->terms.max_attempts, timestamptz_to_str(hint.due))));
}

/* Who cancels a task wants an end of it; a timeout does not. */
static bool
has_attempts_left(const Claim *claimed, const Try *try)
{
	return try->attempts + 1 < claimed->terms.max_attempts &&
		(try->error->sqlerrcode != ERRCODE_QUERY_CANCELED || try->timed_out);
}

/* Says who stopped the task; what it had failed with already is not lost. */
static void
explain_stop(DwDatabase *db, DwExecutor *me, ErrorData *error)
{
	Oid			role = dw_stop_by(db, me);
	char	   *name = GetUserNameFromId(role, true);

	if (error->sqlerrcode != ERRCODE_QUERY_CANCELED)
		error->detail = psprintf("Before, it had failed with SQLSTATE %s: %s",
								 unpack_sql_state(error->sqlerrcode), error->message);
	error->sqlerrcode = ERRCODE_QUERY_CANCELED;
	error->message = psprintf("task was stopped by role \"%s\" with delay_cancel()",
							  name ? name : psprintf("%u", role));
	error->hint = NULL;
}

static void
explain_newer(int64 newer, ErrorData *error)
{
	error->detail = psprintf("%s%sThe task was not tried again, since task %lld of the same key is newer.",
							 error->detail ? error->detail : "", error->detail ? "\n" : "",
							 (long long) newer);
}

/*
 * Decides what becomes of a claimed task whose run has failed, in the
 * transaction of the claim: it is put back, or recorded as failed.
 */
static void
settle_failure(DwDatabase *db, DwExecutor *me, const DwEntry *entry, Claim *claimed, Try *try)
{
	int			failed = Max(try->attempts, 0) + 1;
	ErrorData	said = *try->error;
	int64		newer = 0;

	try->put_back = has_attempts_left(claimed, try) &&
		is_newest_of_key(claimed, &newer) &&
		dw_stop_forbid(db, me);
	if (try->put_back)
	{
		put_back(entry, claimed, failed, &said);
		return;
	}
	if (dw_stop_requested(me))
		explain_stop(db, me, &said);
	else if (newer != 0)
		explain_newer(newer, &said);
	record_failure(claimed, failed, &said);
}

static void
count_outcome(DwDatabase *db, const DwEntry *entry, const Try *try)
{
	dw_count_end(db, &dw_lanes[entry->lane],
					 try->put_back ? DW_COUNTED_RETRIED :
					 try->error ? DW_COUNTED_FAILED : DW_COUNTED_DONE);
}

/* The task failed and its transaction was undone: settle it once more. */
static void
record_again(DwDatabase *db, DwExecutor *me, const DwEntry *entry, Try *try)
{
	Claim		claimed;
	DwVerdict	verdict;
	int			sqlstate;
	const char *reason;

	begin_transaction();
	if (!claim(db, me, entry, &claimed, &verdict, &sqlstate, &reason) ||
		claimed.key.attempts != try->attempts)
	{
		AbortCurrentTransaction();
		return;
	}
	/* whatever the verdict, if it was run before */
	if (try->was_run)
		settle_failure(db, me, entry, &claimed, try);
	else
		record_failure(&claimed, try->attempts, try->error);
	commit_transaction();
	count_outcome(db, entry, try);
}

/* Is the whole to be done again at once? */
static bool
may_repeat(DwDatabase *db, DwExecutor *me, const Try *try)
{
	return dw_is_transient(try->error->sqlerrcode) && try->repeats < MAX_REPEATS &&
		dw_stop_forbid(db, me);
}

/* Runs a task that was claimed, and settles it if that fails. */
static void
run_claimed(DwDatabase *db, DwExecutor *me, const DwEntry *entry, Claim *claimed, Try *try)
{
	try->was_run = true;
	if (try->repeats == 0)
		dw_count_begin(db, dw_this_executor, try->started - claimed->key.due);
	try->error = run_sql(me, claimed, &try->timed_out);
	if (try->error == NULL)
	{
		dw_touch_ended(claimed->key.id, DW_DONE);
		return;
	}
	try->again = may_repeat(db, me, try);
	if (!try->again)
		settle_failure(db, me, entry, claimed, try);
}

/* The commit of what a task has done: its deferred triggers can take long, too. */
static void
commit_run(const Claim *claimed)
{
	RESUME_CANCEL_INTERRUPTS();
	arm_timeout(claimed);
	commit_transaction();
	disarm_timeout();
	HOLD_CANCEL_INTERRUPTS();
}

/* Claims and runs, in one transaction. */
static void
claim_and_run(DwDatabase *db, DwExecutor *me, const DwEntry *entry, Try *try)
{
	Claim		claimed;
	DwVerdict	verdict;
	int			sqlstate;
	const char *reason;

	try->claimed = false;
	try->error = NULL;
	dw_stop_allow(db, me);
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
	if (verdict == DW_DROP)
	{
		/* not worth a commit: the sweeper removes the row */
		AbortCurrentTransaction();
		dw_count_end(db, &dw_lanes[entry->lane], DW_COUNTED_CANCELLED);
		dw_tell_waiters(db, entry->id, DW_CANCELLED);
		return;
	}
	try->attempts = claimed.key.attempts;
	try->claimed = true;
	if (try->repeats == 0)
		try->started = dw_now();

	if (verdict == DW_RUN)
		run_claimed(db, me, entry, &claimed, try);
	else if (verdict == DW_REFUSE)
	{
		try->error = refusal(sqlstate, reason);
		record_failure(&claimed, try->attempts, try->error);
	}
	if (try->again)
	{
		AbortCurrentTransaction();
		return;
	}
	if (verdict == DW_RUN && try->error == NULL)
		commit_run(&claimed);
	else
		commit_transaction();
	/* after the commit: its triggers may have created something, too */
	try->used_temp = (MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) != 0;
	count_outcome(db, entry, try);
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
			record_again(db, me, entry, try);
		else
			claim_and_run(db, me, entry, try);
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		HOLD_CANCEL_INTERRUPTS();
		if (try->error == NULL)
			try->timed_out = timeout_struck();
		disable_all_timeouts(false);
		disarm_timeout();
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

/*
 * Before the same is done again at once: those who met are not to meet again.
 * A cancel that comes now hits the next run.
 */
static void
pause_before_repeat(DwDatabase *db, DwExecutor *me, Try *try)
{
	int64		longest = Min(INT64CONST(1000) << try->repeats, REPEAT_MAX_US);

	try->again = false;
	try->repeats++;
	dw_session_clean(false);
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 1 + pg_prng_uint64_range(&pg_global_prng_state, 0, longest) / 1000,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	if (me->must_exit)
	{
		LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
		me->put_back = true;
		LWLockRelease(dw_ready_lock(db));
		proc_exit(0);
	}
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

		error = try_task(db, me, entry, &try, record);
		if (error != NULL && try.claimed && !record)
		{
			/* an error at commit is the task's own, unless it had one before */
			if (try.error == NULL)
			{
				try.error = error;
				try.again = may_repeat(db, me, &try);
			}
			record = !try.again;
			if (record)
				continue;
		}
		if (try.again)
		{
			pause_before_repeat(db, me, &try);
			continue;
		}
		if (error == NULL)
			break;
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
