/*-------------------------------------------------------------------------
 *
 * run_task.c
 *	  Running one task in a transaction of its own.
 *
 * Run by executors, as the role that owns the task.
 *
 * The task is claimed (claim.c), and its SQL runs in a subtransaction; if it
 * fails, the parent, which still holds the claim, settles it: the task is put
 * back with a later due time, if it has attempts left, or recorded as failed.
 * Only an error at the commit itself (a deferred constraint, say) undoes the
 * claim too, and is settled by a second transaction that claims again.
 *
 * A task that is put back is a new row with the same id: to all others it is
 * as if it had been rescheduled (C0 to C3 at the end of this transaction), and
 * an entry with the old due time that is still about is forgotten.
 *
 * After a serialization failure or a deadlock the claim is given up, too, and
 * the whole done again at once by the same executor, which keeps the entry.
 *
 * A task that has a mode runs outside of the claim's transaction; it is claimed
 * again to be settled (autonomous.c).
 *
 * Steps X5 to X7 of the model in test/model.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "common/pg_prng.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/s_lock.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/inject.h"
#include "../base/settings.h"
#include "../ending/conclude.h"
#include "../ending/keys.h"
#include "../ring/ring.h"
#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/lanes.h"
#include "../shmem/quits.h"
#include "../shmem/shared.h"
#include "../shmem/stats.h"
#include "../shmem/stop.h"
#include "../shmem/suspects.h"
#include "../shmem/waiters.h"
#include "../statement/args.h"
#include "../statement/spi_run.h"
#include "../task/attempts.h"
#include "../task/ended.h"
#include "../task/my_session.h"
#include "../task/queues.h"
#include "../task/touched.h"
#include "autonomous.h"
#include "claim.h"
#include "run_task.h"
#include "session.h"
#include "take.h"
#include "task_log.h"
#include "task_timeout.h"
#include "trial.h"
#include "verdict.h"

#define RETRY_MIN_MS	100
/* not longer: what stops all, as want of memory for locks, may be over soon */
#define RETRY_MAX_MS	5000
/* what the log has of a task's SQL, in bytes */
#define MAX_LOGGED_SQL	1024
/* How often a task is done again at once, and the longest pause before. */
#define MAX_REPEATS		10
#define REPEAT_MAX_US	(100 * 1000)

/* What one try of a task leads to. */
typedef struct Try
{
	bool		claimed;		/* an error from here on is the task's */
	bool		was_run;
	bool		again;			/* given up, to be done again at once */
	bool		timed_out;		/* the error is that of the timeout */
	bool		put_back;		/* it will be run again */
	bool		skipped;		/* it came too late */
	bool		used_temp;
	DwAutonomous autonomous;	/* if it has a mode, and was begun */
	int			attempts;		/* before this one */
	int			repeats;		/* of this one, at once */
	TimestampTz started;
	DwSpiResult result;			/* if there is no error */
	ErrorData  *error;			/* the first one of the task */
	ErrorData  *quit;			/* it has ended its executor before */
} Try;

/* Holds what belongs to one task, beyond its transactions. */
static MemoryContext task_context = NULL;

static void
disarm_timeout(void)
{
	dw_timeout_disarm();
	dw_cancel_forget();
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

/* The task's own work is done. */
static void
end_work(const DwExecutor *me)
{
	disarm_timeout();
	dw_task_log_end();
	dw_task_log_check();
	obey_stop(me);
}

/* Its error, in the current context. */
static ErrorData *
take_error(void)
{
	ErrorData  *error = dw_take_error();

	dw_task_log_end();
	dw_task_log_explain(error);
	return error;
}

/* Runs the SQL of a claimed task, which is this text, in this transaction. */
DwSpiResult
dw_run_sql(const DwClaim *claimed, const char *sql)
{
	return dw_spi_run(sql, dw_args_params(sql,
										  claimed->values[Anum_task_args - 1],
										  claimed->nulls[Anum_task_args - 1],
										  claimed->values[Anum_task_arg_types - 1],
										  claimed->nulls[Anum_task_arg_types - 1]));
}

/*
 * Runs the SQL of a claimed task in a subtransaction.  Returns NULL, or the
 * error, with everything undone that the SQL did.
 */
static ErrorData *
run_task_sql(DwExecutor *me, const DwClaim *claimed, DwSpiResult *result, bool *timed_out)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	char	   *sql;
	char	   *search_path = dw_claim_text(claimed, Anum_task_search_path);
	ErrorData  *error = NULL;

	/* the log may quote it when the transaction is over */
	MemoryContextSwitchTo(task_context);
	sql = dw_claim_text(claimed, Anum_task_sql);
	debug_query_string = dw_logged_sql(sql);
	MemoryContextSwitchTo(context);
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
		dw_timeout_arm(claimed->terms.timeout);
		dw_task_log_begin();
		DW_INJECT("run-before-sql");
		*result = dw_run_sql(claimed, sql);
		end_work(me);
		HOLD_CANCEL_INTERRUPTS();
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		/* an error lets them in */
		HOLD_CANCEL_INTERRUPTS();
		*timed_out = dw_timeout_struck();
		disarm_timeout();
		MemoryContextSwitchTo(task_context);
		error = take_error();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;

	DW_INJECT("run-after-sql");
	return error;
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

/* What is not possible in a transaction may be so with a mode. */
static char *
hint_of(const DwClaim *claimed, const ErrorData *error)
{
	if (error->hint == NULL && error->sqlerrcode == ERRCODE_INVALID_TRANSACTION_TERMINATION &&
		dw_mode(claimed->values, claimed->nulls) == DW_IN_TRANSACTION)
		return pstrdup("A procedure that commits can be a task with mode => 'at_most_once' or 'at_least_once', see delay_schedule_task().");
	return error->hint;
}

/*
 * Records a claimed task as failed, in the transaction of the claim.  It was
 * started then, or not at all (0).
 */
static void
record_failure(const DwClaim *claimed, int attempts, TimestampTz started, const ErrorData *error)
{
	ErrorData	recorded = *error;

	DW_INJECT("record-before-insert");
	recorded.hint = hint_of(claimed, error);
	recorded.context = whole_context(error);
	dw_failed_write(claimed->values, claimed->nulls, attempts, dw_now(), &recorded);
	dw_conclude_claim(claimed, DW_END_FAILED, started, NULL, error);

	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("delay_wheel task %lld failed: %s", (long long) claimed->key.id,
					dw_error_message(error))));
}

/* What is recorded of a task that is given up without having been run. */
static ErrorData *
refusal(const DwClaim *claimed)
{
	MemoryContext context = MemoryContextSwitchTo(task_context);
	ErrorData  *error = palloc0(sizeof(ErrorData));

	error->sqlerrcode = claimed->sqlstate;
	error->message = pstrdup(claimed->reason);
	if (error->sqlerrcode == DW_ERRCODE_CRASHED)
		error->hint = "The server's log says how. When the cause is mended, put the task back by delay_retry().";
	MemoryContextSwitchTo(context);
	return error;
}

/* Is there no newer task of the same key?  Else *newer is its id. */
static bool
is_newest_of_key(const DwClaim *claimed, int64 *newer)
{
	Relation	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	bool		allowed = dw_key_retry_allowed(rel, claimed->tuple, newer);

	table_close(rel, NoLock);
	return allowed;
}

/* Puts a claimed task back, to be run again later, in the transaction of the claim. */
static void
put_claimed_back(const DwEntry *entry, DwClaim *claimed, int failed, TimestampTz started,
		 const ErrorData *error)
{
	DwHint		hint = {.id = entry->id, .lane = dw_lane_ref(&dw_lanes[entry->lane])};
	Datum	   *values = claimed->values;
	bool	   *nulls = claimed->nulls;

	dw_conclude_claim(claimed, DW_END_RETRIED, started, NULL, error);
	hint.due = dw_next_attempt(&claimed->terms, failed);
	values[Anum_task_due - 1] = TimestampTzGetDatum(hint.due);
	/* it is less than max_attempts, which is a smallint */
	values[Anum_task_attempts - 1] = Int16GetDatum(failed);
	nulls[Anum_task_attempts - 1] = false;
	dw_keep_error(values, nulls, error);

	DW_INJECT("retry-before-insert");
	/* the hint is brought at the end of the transaction, if there is a place */
	(void) dw_my_database();
	hint.tid = dw_task_insert(values, nulls);
	dw_touch_written(&hint);

	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("delay_wheel task %lld failed and will be tried again: %s",
					(long long) entry->id, dw_error_message(error)),
			 errdetail("This was attempt %d of %d; the next one is due at %s.",
					   failed, claimed->terms.max_attempts, timestamptz_to_str(hint.due))));
}

/* Who cancels a task wants an end of it; a timeout does not. */
static bool
has_attempts_left(const DwClaim *claimed, const Try *try)
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
settle_failure(DwDatabase *db, DwExecutor *me, const DwEntry *entry, DwClaim *claimed, Try *try)
{
	int			failed = try->attempts + 1;
	ErrorData	said = *try->error;
	int64		newer = 0;

	try->put_back = has_attempts_left(claimed, try) &&
		is_newest_of_key(claimed, &newer) &&
		dw_stop_forbid(db, me);
	if (try->put_back)
	{
		put_claimed_back(entry, claimed, failed, try->started, &said);
		return;
	}
	if (dw_stop_requested(me))
		explain_stop(db, me, &said);
	else if (newer != 0)
		explain_newer(newer, &said);
	record_failure(claimed, failed, try->started, &said);
}

static void
count_outcome(DwDatabase *db, const DwEntry *entry, const Try *try)
{
	dw_count_end(db, &dw_lanes[entry->lane],
					 try->put_back ? DW_COUNTED_RETRIED :
					 try->skipped ? DW_COUNTED_SKIPPED :
					 try->error ? DW_COUNTED_FAILED : DW_COUNTED_DONE);
	/* it has come to an end, whatever it is */
	dw_crashes_forget(db->oid, entry->id);
}

static DwClaimResult
claim(DwDatabase *db, DwExecutor *me, const DwEntry *entry, DwClaim *claimed)
{
	Relation	rel = dw_claim_open();
	DwClaimResult result = dw_claim(db, me, rel, entry, NULL, NULL, claimed);

	table_close(rel, NoLock);
	return result;
}

/* What was run outside of the claim's transaction is settled in a further one. */
static void
settle_autonomous(DwDatabase *db, DwExecutor *me, const DwEntry *entry, Try *try)
{
	DwClaim		claimed;

	dw_claim_begin_transaction();
	DW_INJECT("autonomous-before-settle");
	if (!dw_autonomous_reclaim(db, me, &try->autonomous, &claimed))
	{
		AbortCurrentTransaction();
		ereport(LOG,
				(errcode(ERRCODE_NO_DATA_FOUND),
				 errmsg("the row of delay_wheel task %lld was deleted while it ran",
						(long long) entry->id)));
		return;
	}
	if (try->error == NULL)
		dw_conclude_claim(&claimed, DW_END_DONE, try->started, &try->result, NULL);
	else
		settle_failure(db, me, entry, &claimed, try);
	dw_claim_commit_transaction();
	dw_autonomous_end(db, me);
	count_outcome(db, entry, try);
}

/* The task failed and its transaction was undone: settle it once more. */
static void
record_again(DwDatabase *db, DwExecutor *me, const DwEntry *entry, Try *try)
{
	DwClaim		claimed;

	if (try->autonomous.mode != DW_IN_TRANSACTION)
	{
		settle_autonomous(db, me, entry, try);
		return;
	}
	dw_claim_begin_transaction();
	if (claim(db, me, entry, &claimed) != DW_CLAIMED ||
		claimed.key.attempts != try->attempts)
	{
		AbortCurrentTransaction();
		return;
	}
	/* whatever the verdict, if it was run before */
	if (try->was_run)
		settle_failure(db, me, entry, &claimed, try);
	else
		record_failure(&claimed, try->attempts, 0, try->error);
	dw_claim_commit_transaction();
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
run_claimed(DwDatabase *db, DwExecutor *me, const DwEntry *entry, DwClaim *claimed, Try *try)
{
	try->was_run = true;
	if (try->repeats == 0)
		dw_count_begin(db, me, try->started - claimed->key.due);
	try->error = run_task_sql(me, claimed, &try->result, &try->timed_out);
	if (try->error == NULL)
	{
		dw_conclude_claim(claimed, DW_END_DONE, try->started, &try->result, NULL);
		return;
	}
	try->again = may_repeat(db, me, try);
	if (!try->again)
		settle_failure(db, me, entry, claimed, try);
}

/*
 * The commit of what a task has done: its deferred triggers can take long, too.
 * The timeout is not for the commit itself: it would cut the wait for a
 * synchronous standby short.
 */
static void
commit_run(const DwExecutor *me, const DwClaim *claimed)
{
	RESUME_CANCEL_INTERRUPTS();
	dw_timeout_arm(claimed->terms.timeout);
	dw_task_log_resume();
	dw_session_finish_work();
	end_work(me);
	dw_claim_commit_transaction();
	HOLD_CANCEL_INTERRUPTS();
}

/* The statement of a task with a mode, and the end of its last transaction. */
static void
run_statement(const DwExecutor *me, const DwClaim *claimed, const char *sql, Try *try)
{
	RESUME_CANCEL_INTERRUPTS();
	dw_timeout_arm(claimed->terms.timeout);
	dw_task_log_begin();
	DW_INJECT("run-before-sql");
	try->result = dw_autonomous_run(claimed, sql);
	dw_session_finish_work();
	end_work(me);
	dw_session_commit_transaction();
	HOLD_CANCEL_INTERRUPTS();
}

/* After an error in it: keeps that, and undoes the transaction that it was in. */
static void
undo_statement(Try *try)
{
	HOLD_INTERRUPTS();
	HOLD_CANCEL_INTERRUPTS();
	try->timed_out = dw_timeout_struck();
	disable_all_timeouts(false);
	disarm_timeout();
	MemoryContextSwitchTo(task_context);
	try->error = take_error();
	AbortOutOfAnyTransaction();
	/* cursors that a loop was held by */
	PortalErrorCleanup();
	RESUME_INTERRUPTS();
}

/*
 * Runs a claimed task with a mode, having ended the transaction of its claim.
 * What came of it is settled in another one.
 */
static void
run_autonomous(DwDatabase *db, DwExecutor *me, DwClaim *claimed, DwMode mode, Try *try)
{
	char	   *sql;

	MemoryContextSwitchTo(task_context);
	dw_autonomous_begin(me, claimed, mode, &try->autonomous);
	MemoryContextSwitchTo(task_context);
	try->was_run = try->used_temp = true;
	dw_count_begin(db, me, try->started - claimed->key.due);
	sql = dw_claim_text(claimed, Anum_task_sql);
	debug_query_string = dw_logged_sql(sql);
	pgstat_report_activity(STATE_RUNNING, sql);

	PG_TRY();
	{
		run_statement(me, claimed, sql, try);
	}
	PG_CATCH();
	{
		undo_statement(try);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(task_context);
	/* what it has set is not for us */
	dw_session_clean(false);
	DW_INJECT("run-after-sql");
}

/* May it run so?  What a role is switched to for a transaction ends with that. */
static DwMode
mode_of(DwClaim *claimed)
{
	DwMode		mode = dw_mode(claimed->values, claimed->nulls);

	if (claimed->verdict != DW_RUN || mode == DW_IN_TRANSACTION)
		return DW_IN_TRANSACTION;
	if (!dw_session_is_switched())
		return mode;
	claimed->verdict = DW_REFUSE;
	claimed->sqlstate = ERRCODE_FEATURE_NOT_SUPPORTED;
	claimed->reason = "tasks of a role without LOGIN cannot run outside of a transaction before PostgreSQL 17";
	return DW_IN_TRANSACTION;
}

static void
hint_again(DwDatabase *db, const DwEntry *entry)
{
	DwHint		hint = dw_entry_hint(entry);

	dw_deliver(db, &hint);
}

/* The attempt before has ended its executor. */
static void
fail_quit(DwDatabase *db, DwExecutor *me, const DwEntry *entry, DwClaim *claimed, Try *try)
{
	try->claimed = try->was_run = true;
	try->error = try->quit;
	settle_failure(db, me, entry, claimed, try);
	dw_claim_commit_transaction();
	count_outcome(db, entry, try);
}

/* Claims and runs, in one transaction. */
static void
claim_and_run(DwDatabase *db, DwExecutor *me, const DwEntry *entry, Try *try)
{
	DwClaim		claimed;
	DwClaimResult result;
	DwMode		mode;

	try->claimed = false;
	try->error = NULL;
	dw_stop_allow(db, me);
	dw_autonomous_end(db, me);
	dw_claim_begin_transaction();
	if (entry->due > GetCurrentTransactionStartTimestamp())
	{
		/* the clock was set back since it was handed over */
		AbortCurrentTransaction();
		hint_again(db, entry);
		return;
	}
	result = claim(db, me, entry, &claimed);
	if (result == DW_CLAIMED && claimed.verdict == DW_DROP)
		result = DW_CLAIM_CANCELLED;
	if (result != DW_CLAIMED)
	{
		/* not worth a commit: the sweeper removes what is cancelled */
		AbortCurrentTransaction();
		if (result == DW_CLAIM_CANCELLED)
			dw_task_was_cancelled(db, entry);
		return;
	}
	if (claimed.verdict == DW_PUT_BACK)
	{
		AbortCurrentTransaction();
		dw_queue_put_back(db, entry);
		return;
	}
	try->attempts = claimed.key.attempts;
	if (try->repeats == 0)
		try->started = dw_now();
	if (claimed.verdict == DW_RUN && try->quit != NULL)
	{
		fail_quit(db, me, entry, &claimed, try);
		return;
	}
	mode = mode_of(&claimed);
	if (mode != DW_IN_TRANSACTION)
	{
		run_autonomous(db, me, &claimed, mode, try);
		return;
	}
	try->claimed = true;

	if (claimed.verdict == DW_RUN)
		run_claimed(db, me, entry, &claimed, try);
	else if (claimed.verdict == DW_SKIP)
	{
		try->skipped = true;
		dw_skip_task(&claimed);
	}
	else
	{
		try->error = refusal(&claimed);
		record_failure(&claimed, try->attempts, 0, try->error);
	}
	if (try->again)
	{
		AbortCurrentTransaction();
		return;
	}
	if (claimed.verdict == DW_RUN && try->error == NULL)
		commit_run(me, &claimed);
	else
		dw_claim_commit_transaction();
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
			try->timed_out = dw_timeout_struck();
		disable_all_timeouts(false);
		disarm_timeout();
		MemoryContextSwitchTo(task_context);
		error = take_error();
		dw_autonomous_undone(db, me, &try->autonomous);
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
rest_before_retry(int *wait_ms)
{
	static uint32 wait_event = 0;

	CHECK_FOR_INTERRUPTS();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 *wait_ms, dw_wait_event(wait_event, "DelayWheelClaim"));
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
	static uint32 wait_event = 0;
	int64		longest = Min(INT64CONST(1000) << try->repeats, REPEAT_MAX_US);

	try->again = false;
	try->repeats++;
	dw_session_clean(false);
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 1 + pg_prng_uint64_range(&pg_global_prng_state, 0, longest) / 1000,
					 dw_wait_event(wait_event, "DelayWheelRepeat"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	dw_executor_obey_exit(db, me);
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
	dw_problem_quoting(db, text, error->message);
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

/*
 * A mark has hit the task, of which the claim is undone: counts and tells that.
 */
void
dw_task_was_cancelled(DwDatabase *db, const DwEntry *entry)
{
	dw_count_end(db, &dw_lanes[entry->lane], DW_COUNTED_CANCELLED);
	dw_tell_waiters(db, entry->id, DW_CANCELLED);
	dw_let_waiters_go(db, entry->id);
	dw_crashes_gone(db->oid, entry->id);
}

/*
 * After the end of a transaction: removes what its tasks left in the session.
 */
void
dw_task_clean(bool used_temp)
{
	pgstat_report_activity(STATE_IDLE, NULL);
	debug_query_string = NULL;
	dw_session_clean(used_temp);
	pgstat_report_stat(false);
}

static void
enter_task_context(void)
{
	if (task_context == NULL)
		task_context = AllocSetContextCreate(TopMemoryContext, "delay_wheel task",
											 ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(task_context);
	MemoryContextSwitchTo(task_context);
}

/* Until its outcome is committed, or there is nothing to do for it. */
static void
finish_task(DwDatabase *db, DwExecutor *me, const DwEntry *entry, Try *try, bool record)
{
	int			wait_ms = RETRY_MIN_MS;

	for (;;)
	{
		ErrorData  *error;

		error = try_task(db, me, entry, try, record);
		if (try->autonomous.mode != DW_IN_TRANSACTION && !record)
		{
			/* it was begun: whatever came of it, it is to be settled */
			if (try->error == NULL)
				try->error = error;
			record = true;
			continue;
		}
		if (error != NULL && try->claimed && !record)
		{
			/* an error at commit is the task's own, unless it had one before */
			if (try->error == NULL)
			{
				try->error = error;
				try->again = may_repeat(db, me, try);
			}
			record = !try->again;
			if (record)
				continue;
		}
		if (try->again)
		{
			pause_before_repeat(db, me, try);
			continue;
		}
		if (error == NULL)
			break;
		/* not the task's fault: try again, for as long as it takes */
		report_problem(db, entry, record, wait_ms == RETRY_MIN_MS, error);
		rest_before_retry(&wait_ms);
		/* told to end, as after DROP EXTENSION; a task that is left is hinted */
		if (me->must_exit)
			proc_exit(0);
	}

	if (debug_query_string != NULL)
		log_long_task(entry, try);
	dw_task_clean(try->used_temp);
	MemoryContextReset(task_context);
}

/*
 * Tasks are handed over a moment ahead of their due time, too short to sleep.
 * False if it is more than that: the clock was set back meanwhile.
 */
static bool
await_due(TimestampTz due)
{
	for (;;)
	{
		int64		ahead = due - dw_now();

		if (ahead <= 0)
			return true;
		if (ahead > DW_HEAD_START_US)
			return false;
		SPIN_DELAY();
	}
}

/* Its row stays, until somebody removes it by plain SQL. */
static void
leave_alone(DwDatabase *db, const DwEntry *entry)
{
	char	   *text = psprintf("task %lld is left alone, since the server crashed even when it was to be set aside",
								(long long) entry->id);

	ereport(LOG,
			(errcode(DW_ERRCODE_CRASHED), errmsg_internal("%s", text),
			 errhint("Its row may be damaged. Look at it, and delete it from delay_wheel.task.")));
	dw_problem(db, text);
}

/*
 * What others have left in this process is not to crash a suspect: this
 * executor ends, and one that takes its place tries it.
 */
static bool
leave_to_fresh(DwDatabase *db, DwExecutor *me, const DwEntry *entry)
{
	if (dw_executor_is_fresh() || !dw_crashes_put_off(db->oid, entry->id) ||
		!dw_stop_forbid(db, me))
		return false;
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_put_back(db, entry, true);
	me->must_exit = true;
	LWLockRelease(dw_ready_lock(db));
	return true;
}

/*
 * Claims the task of an entry and runs it, if it is still there; returns when
 * its outcome is committed, or there is nothing to do for it.
 */
void
dw_run_task(DwDatabase *db, DwExecutor *me, const DwEntry *entry)
{
	Try			try = {0};
	int			crashes;

	enter_task_context();
	if (!await_due(entry->due))
	{
		hint_again(db, entry);
		return;
	}
	crashes = dw_crashes_of(db->oid, entry->id);
	if (crashes >= DW_CRASHES_LEFT_ALONE)
	{
		leave_alone(db, entry);
		return;
	}
	if (crashes > 0)
	{
		if (leave_to_fresh(db, me, entry))
			return;
		dw_trial_begin(db, me);
	}
	try.quit = dw_quit_take(entry->id);
	finish_task(db, me, entry, &try, false);
	dw_trial_end(me);
}

/* The task's run was cancelled, and undone: it has failed with this error. */
void
dw_fail_task(DwDatabase *db, DwExecutor *me, const DwEntry *entry, ErrorData *error)
{
	Try			try = {.claimed = true, .was_run = true, .started = me->since, .error = error};

	enter_task_context();
	dw_count_begin(db, me, me->since - entry->due);
	finish_task(db, me, entry, &try, true);
}

/* Records a claimed task that is not run as failed, in this transaction. */
void
dw_record_refusal(const DwClaim *claimed)
{
	MemoryContext context = CurrentMemoryContext;

	enter_task_context();
	record_failure(claimed, claimed->key.attempts, 0, refusal(claimed));
	MemoryContextSwitchTo(context);
}

/* A claimed task came too late to be run: that is all, in this transaction. */
void
dw_skip_task(const DwClaim *claimed)
{
	dw_conclude_claim(claimed, DW_END_SKIPPED, 0, NULL, NULL);
}

/* The same of a claimed task; result and error may be NULL. */
void
dw_conclude_claim(const DwClaim *claim, DwEnd end, TimestampTz started,
				  const DwSpiResult *result, const ErrorData *error)
{
	DwEnded		ended = {
		.key = &claim->key,
		.values = claim->values,
		.nulls = claim->nulls,
		.end = end,
		.started = started,
		.error = error
	};

	if (result != NULL)
		ended.result = *result;
	dw_conclude(&ended);
}
