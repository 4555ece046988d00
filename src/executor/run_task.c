/*-------------------------------------------------------------------------
 *
 * run_task.c
 *	  Running one task in a transaction of its own.
 *
 * Run by executors, as the role that owns the task.
 *
 * An executor takes step after step until the task is over (enum Step):
 *
 *	CLAIM_AND_RUN --> OVER		committed, or there is nothing to do
 *		|  |  |
 *		|  |  +-----> REPEAT	a serialization failure or a deadlock: all is
 *		|  |					undone, and done again at once
 *		|  +--------> SETTLE	the commit failed, or the task has a mode
 *		+-----------> REST		an error that is not the task's
 *
 *	SETTLE --> OVER, or REST and SETTLE again, for as long as it takes
 *	REPEAT --> CLAIM_AND_RUN
 *
 * CLAIM_AND_RUN: the task is claimed (claim.c), and its SQL runs in a
 * subtransaction; if that fails, the parent, which still holds the claim, settles
 * the run (settle.c).  Only an error at the commit itself (a deferred constraint,
 * say) undoes the claim, too: then SETTLE claims the task again, and records that.
 *
 * A task that has a mode runs outside of the claim's transaction; SETTLE claims it
 * again (autonomous.c).
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
#include "../ring/ring.h"
#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/lanes.h"
#include "../shmem/outcome.h"
#include "../shmem/quits.h"
#include "../shmem/shared.h"
#include "../shmem/stats.h"
#include "../shmem/stop.h"
#include "../shmem/suspects.h"
#include "../statement/args.h"
#include "../statement/spi_run.h"
#include "../task/attempts.h"
#include "../task/queues.h"
#include "../task/touched.h"
#include "autonomous.h"
#include "claim.h"
#include "run_task.h"
#include "session.h"
#include "settle.h"
#include "take.h"
#include "task_log.h"
#include "task_timeout.h"
#include "trial.h"
#include "verdict.h"

/* Rests after errors that are not the task's.  What stops all may be over soon. */
#define REST_MIN_MS		100
#define REST_MAX_MS		5000
/* Size of a task's SQL in the log, in bytes. */
#define MAX_LOGGED_SQL	1024
/* How often a task is done again at once, and the longest pause before. */
#define MAX_REPEATS		10
#define REPEAT_MAX_US	(100 * 1000)

/* What an executor does next for a task that it has taken. */
typedef enum Step
{
	STEP_CLAIM_AND_RUN,
	STEP_SETTLE,
	STEP_REPEAT,
	STEP_REST,
	STEP_OVER
} Step;

/* The task that this executor works at. */
static struct
{
	DwDatabase *db;
	DwExecutor *me;
	DwRun		run;
	bool		claimed;		/* an error from here on is the task's */
	DwAutonomous autonomous;	/* if it has a mode, and was begun */
	int			repeats;		/* of the run, at once */
	int			rest_ms;		/* the last rest; 0: there was none yet */
	ErrorData  *quit;			/* the task has ended its executor before */
	bool		used_temp;		/* temporary objects: they are to be removed */
}			work;

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

static DwClaimResult
claim_once(DwClaim *claimed)
{
	Relation	rel = dw_claim_open();
	DwClaimResult result = dw_claim(work.db, work.me, rel, &work.run.entry, NULL, NULL, claimed);

	table_close(rel, NoLock);
	return result;
}

/*---- Settling a run whose transaction is over ----*/

static bool
is_begun_outside(void)
{
	return work.autonomous.mode != DW_IN_TRANSACTION;
}

/* What was run outside of the claim's transaction. */
static Step
settle_autonomous(void)
{
	DwClaim		claimed;

	dw_claim_begin_transaction();
	DW_INJECT("autonomous-before-settle");
	if (!dw_autonomous_reclaim(work.db, work.me, &work.autonomous, &claimed))
	{
		AbortCurrentTransaction();
		ereport(LOG,
				(errcode(ERRCODE_NO_DATA_FOUND),
				 errmsg("the row of delay_wheel task %lld was deleted while it ran",
						(long long) work.run.entry.id)));
		return STEP_OVER;
	}
	/* its claim was made to run it: that is an attempt, however far it came */
	work.run.was_run = true;
	work.run.outcome = work.run.error == NULL ? DW_DONE : DW_FAILED;
	dw_settle(work.db, work.me, &work.run, &claimed);
	dw_claim_commit_transaction();
	dw_autonomous_end(work.db, work.me);
	dw_settled(work.db, &work.run);
	return STEP_OVER;
}

/*
 * The task failed and its transaction was undone: records that, if the task can be
 * claimed again, whatever the verdict is now.
 */
static Step
settle_undone(void)
{
	DwClaim		claimed;

	dw_claim_begin_transaction();
	if (claim_once(&claimed) != DW_CLAIMED || claimed.key.attempts != work.run.attempts)
	{
		AbortCurrentTransaction();
		return STEP_OVER;
	}
	work.run.outcome = DW_FAILED;
	dw_settle(work.db, work.me, &work.run, &claimed);
	dw_claim_commit_transaction();
	dw_settled(work.db, &work.run);
	return STEP_OVER;
}

/*---- Running ----*/

/* True if the whole is to be done again at once. */
static bool
may_repeat(void)
{
	return dw_is_transient(work.run.error->sqlerrcode) && work.repeats < MAX_REPEATS &&
		dw_stop_forbid(work.db, work.me);
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
run_statement(const DwClaim *claimed, const char *sql)
{
	RESUME_CANCEL_INTERRUPTS();
	dw_timeout_arm(claimed->terms.timeout);
	dw_task_log_begin();
	DW_INJECT("run-before-sql");
	work.run.result = dw_autonomous_run(claimed, sql);
	dw_session_finish_work();
	end_work(work.me);
	dw_session_commit_transaction();
	HOLD_CANCEL_INTERRUPTS();
}

/*
 * For PG_CATCH: nothing interrupts what follows, until RESUME_INTERRUPTS(), and no
 * timeout is active.  Returns the error, in the task's memory context.
 */
static ErrorData *
catch_error(DwRun *run)
{
	HOLD_INTERRUPTS();
	HOLD_CANCEL_INTERRUPTS();
	/* a second error does not tell why the first one came */
	if (run->error == NULL)
		run->timed_out = dw_timeout_struck();
	disable_all_timeouts(false);
	disarm_timeout();
	MemoryContextSwitchTo(task_context);
	return take_error();
}

/*
 * Runs a claimed task with a mode, having ended the transaction of its claim.  What
 * came of it is settled in another one.
 */
static Step
run_autonomous(DwClaim *claimed)
{
	DwRun	   *run = &work.run;
	char	   *sql;

	MemoryContextSwitchTo(task_context);
	dw_autonomous_begin(work.me, claimed, dw_mode(claimed->values, claimed->nulls),
						&work.autonomous);
	MemoryContextSwitchTo(task_context);
	work.used_temp = true;
	dw_count_begin(work.db, work.me, run->started - claimed->key.due);
	sql = dw_claim_text(claimed, Anum_task_sql);
	debug_query_string = dw_logged_sql(sql);
	pgstat_report_activity(STATE_RUNNING, sql);

	PG_TRY();
	{
		run_statement(claimed, sql);
	}
	PG_CATCH();
	{
		run->error = catch_error(run);
		AbortOutOfAnyTransaction();
		/* cursors that a loop was held by */
		PortalErrorCleanup();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(task_context);
	/* what it has set is not for us */
	dw_session_clean(false);
	DW_INJECT("run-after-sql");
	return STEP_SETTLE;
}

/*
 * A task with a mode is refused where the executor was switched to the role, which
 * ends with each transaction.
 */
static void
refuse_mode(DwClaim *claimed)
{
	if (claimed->verdict != DW_RUN || !dw_session_is_switched() ||
		dw_mode(claimed->values, claimed->nulls) == DW_IN_TRANSACTION)
		return;
	claimed->verdict = DW_REFUSE;
	claimed->sqlstate = ERRCODE_FEATURE_NOT_SUPPORTED;
	claimed->reason = "tasks of a role without LOGIN cannot run outside of a transaction before PostgreSQL 17";
}

/* The timer is to hand the task over once more. */
static void
hint_again(void)
{
	DwHint		hint = dw_entry_hint(&work.run.entry);

	dw_deliver(work.db, &hint);
}

/*
 * Begins the transaction and claims the task in it.  False if there is nothing to
 * do for the task: the transaction is undone, which is cheaper than a commit, and
 * those concerned are told.
 */
static bool
claim_task(DwClaim *claimed)
{
	const DwEntry *entry = &work.run.entry;
	DwClaimResult result;

	dw_claim_begin_transaction();
	if (entry->due > GetCurrentTransactionStartTimestamp())
	{
		/* the clock was set back since it was handed over */
		AbortCurrentTransaction();
		hint_again();
		return false;
	}
	result = claim_once(claimed);
	if (result == DW_CLAIMED && claimed->verdict != DW_DROP && claimed->verdict != DW_PUT_BACK)
		return true;
	AbortCurrentTransaction();
	if (result == DW_CLAIMED && claimed->verdict == DW_PUT_BACK)
		dw_queue_put_back(work.db, entry);
	else if (result == DW_CLAIMED || result == DW_CLAIM_CANCELLED)
		/* the sweeper removes the row */
		dw_task_was_cancelled(work.db, entry);
	return false;
}

/* True if the claimed task is to be run; else work.run says what becomes of it. */
static bool
is_to_be_run(DwClaim *claimed)
{
	MemoryContext context = MemoryContextSwitchTo(task_context);
	bool		wanted;

	/* one that has ended its executor has failed, whatever its mode */
	if (work.quit == NULL)
		refuse_mode(claimed);
	wanted = dw_is_to_be_run(&work.run, claimed);
	MemoryContextSwitchTo(context);
	return wanted;
}

/* Runs a claimed task in the claim's transaction: done, or failed. */
static void
run_claimed(DwClaim *claimed)
{
	DwRun	   *run = &work.run;

	run->was_run = true;
	if (work.quit != NULL)
		run->error = work.quit;
	else
	{
		if (work.repeats == 0)
			dw_count_begin(work.db, work.me, run->started - claimed->key.due);
		run->error = run_task_sql(work.me, claimed, &run->result, &run->timed_out);
	}
	run->outcome = run->error == NULL ? DW_DONE : DW_FAILED;
}

/* Claims the task and runs it, in one transaction. */
static Step
claim_and_run(void)
{
	DwRun	   *run = &work.run;
	DwClaim		claimed;

	work.claimed = false;
	run->error = NULL;
	dw_stop_allow(work.db, work.me);
	dw_autonomous_end(work.db, work.me);
	if (!claim_task(&claimed))
		return STEP_OVER;

	if (work.repeats == 0)
		run->started = dw_now();
	if (is_to_be_run(&claimed))
	{
		if (work.quit == NULL && dw_mode(claimed.values, claimed.nulls) != DW_IN_TRANSACTION)
			return run_autonomous(&claimed);
		work.claimed = true;
		run_claimed(&claimed);
		if (work.quit == NULL && run->outcome == DW_FAILED && may_repeat())
		{
			AbortCurrentTransaction();
			return STEP_REPEAT;
		}
	}
	work.claimed = true;
	dw_settle(work.db, work.me, run, &claimed);
	if (run->outcome == DW_DONE)
		commit_run(work.me, &claimed);
	else
		dw_claim_commit_transaction();
	/* after the commit: its triggers may have created something, too */
	work.used_temp = (MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) != 0;
	dw_settled(work.db, run);
	return STEP_OVER;
}

/*---- Step by step ----*/

/* The log has it once for each task, the view status always. */
static void
report_problem(Step step, const ErrorData *error)
{
	char	   *text = psprintf("could not %s task %lld: %s",
								step == STEP_SETTLE ? "record the outcome of" : "claim",
								(long long) work.run.entry.id, error->message);

	if (work.rest_ms == 0)
		ereport(LOG,
				(errcode(error->sqlerrcode), errmsg_internal("%s", text)));
	dw_problem_quoting(work.db, text, error->message);
}

/* The step has met an error, and is undone: which one comes next? */
static Step
step_after_error(Step step, ErrorData *error)
{
	DwRun	   *run = &work.run;

	if (step == STEP_CLAIM_AND_RUN && (work.claimed || is_begun_outside()))
	{
		/* an error at the commit is the task's own, unless it had one before */
		if (run->error == NULL)
		{
			run->error = error;
			if (work.claimed && may_repeat())
				return STEP_REPEAT;
		}
		return STEP_SETTLE;
	}
	/* not the task's fault: the same again, for as long as it takes */
	report_problem(step, error);
	return STEP_REST;
}

/* One transaction's worth of work, with errors caught; returns the next step. */
static Step
take_step(Step step)
{
	volatile Step next = STEP_OVER;
	ErrorData  *volatile error = NULL;

	PG_TRY();
	{
		if (step == STEP_CLAIM_AND_RUN)
			next = claim_and_run();
		else
			next = is_begun_outside() ? settle_autonomous() : settle_undone();
	}
	PG_CATCH();
	{
		error = catch_error(&work.run);
		dw_autonomous_undone(work.db, work.me, &work.autonomous);
		AbortCurrentTransaction();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	pg_atomic_write_u32(&work.me->xid, InvalidTransactionId);
	MemoryContextSwitchTo(task_context);
	return error == NULL ? next : step_after_error(step, error);
}

/* Before a step that met an error which is not the task's is tried again. */
static void
rest_before_retry(void)
{
	static uint32 wait_event = 0;

	work.rest_ms = work.rest_ms == 0 ? REST_MIN_MS : Min(work.rest_ms * 2, REST_MAX_MS);
	CHECK_FOR_INTERRUPTS();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 work.rest_ms, dw_wait_event(wait_event, "DelayWheelClaim"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	/* told to end, as after DROP EXTENSION; a task that is left is hinted */
	if (work.me->must_exit)
		proc_exit(0);
}

/*
 * Before the same is done again at once: transactions that met are not to meet
 * again.  A cancel that comes now hits the next run.
 */
static void
pause_before_repeat(void)
{
	static uint32 wait_event = 0;
	int64		longest = Min(INT64CONST(1000) << work.repeats, REPEAT_MAX_US);

	work.repeats++;
	dw_session_clean(false);
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 1 + pg_prng_uint64_range(&pg_global_prng_state, 0, longest) / 1000,
					 dw_wait_event(wait_event, "DelayWheelRepeat"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	dw_executor_obey_exit(work.db, work.me);
}

/* delay_wheel.log_min_duration: from the claim until the outcome is committed. */
static void
log_long_task(const DwRun *run)
{
	const char *sql = debug_query_string;
	int64		took = dw_now() - run->started;
	int			len;

	if (dw_log_min_duration < 0 || took < (int64) dw_log_min_duration * 1000)
		return;
	len = pg_mbcliplen(sql, strlen(sql), MAX_LOGGED_SQL);
	ereport(LOG,
			(errmsg("delay_wheel task %lld took %.3f ms, begun %.3f ms after it was due",
					(long long) run->entry.id, took / 1000.0,
					(run->started - run->entry.due) / 1000.0),
			 errdetail_log("SQL: %.*s%s", len, sql, sql[len] != '\0' ? "..." : ""),
			 errhidestmt(true)));
}

/* After the end of a transaction: removes what its tasks left in the session. */
void
dw_task_clean(bool used_temp)
{
	pgstat_report_activity(STATE_IDLE, NULL);
	debug_query_string = NULL;
	dw_session_clean(used_temp);
	pgstat_report_stat(false);
}

static void
begin_work(DwDatabase *db, DwExecutor *me, const DwEntry *entry)
{
	memset(&work, 0, sizeof(work));
	work.db = db;
	work.me = me;
	work.run.entry = *entry;
	if (task_context == NULL)
		task_context = AllocSetContextCreate(TopMemoryContext, "delay_wheel task",
											 ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(task_context);
	MemoryContextSwitchTo(task_context);
}

/* Until its outcome is committed, or there is nothing to do for it. */
static void
finish_task(Step step)
{
	Step		tried = step;

	while (step != STEP_OVER)
		switch (step)
		{
			case STEP_CLAIM_AND_RUN:
			case STEP_SETTLE:
				tried = step;
				step = take_step(step);
				break;
			case STEP_REPEAT:
				pause_before_repeat();
				step = STEP_CLAIM_AND_RUN;
				break;
			case STEP_REST:
				rest_before_retry();
				step = tried;
				break;
			case STEP_OVER:
				break;
		}

	if (debug_query_string != NULL)
		log_long_task(&work.run);
	dw_task_clean(work.used_temp);
	MemoryContextReset(task_context);
}

/*---- A task that was taken ----*/

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

/* The row stays, until somebody removes it by plain SQL. */
static void
leave_alone(void)
{
	char	   *text = psprintf("task %lld is left alone, since the server crashed even when it was to be set aside",
								(long long) work.run.entry.id);

	ereport(LOG,
			(errcode(DW_ERRCODE_CRASHED), errmsg_internal("%s", text),
			 errhint("Its row may be damaged. Look at it, and delete it from delay_wheel.task.")));
	dw_problem(work.db, text);
}

/*
 * What others have left in this process is not to crash a suspect: this
 * executor ends, and one that takes its place tries the task.
 */
static bool
leave_to_fresh(void)
{
	if (dw_executor_is_fresh() || !dw_crashes_put_off(work.db->oid, work.run.entry.id) ||
		!dw_stop_forbid(work.db, work.me))
		return false;
	LWLockAcquire(dw_ready_lock(work.db), LW_EXCLUSIVE);
	dw_put_back(work.db, &work.run.entry, true);
	work.me->must_exit = true;
	LWLockRelease(dw_ready_lock(work.db));
	return true;
}

/*
 * A task whose process has crashed is run alone, by a fresh executor.  False if this
 * executor is not to run it.
 */
static bool
begin_suspect(void)
{
	int			crashes = dw_crashes_of(work.db->oid, work.run.entry.id);

	if (crashes >= DW_CRASHES_LEFT_ALONE)
	{
		leave_alone();
		return false;
	}
	if (crashes > 0)
	{
		if (leave_to_fresh())
			return false;
		dw_trial_begin(work.db, work.me);
	}
	return true;
}

/*
 * Claims the task of an entry and runs it, if it is still there; returns when
 * its outcome is committed, or there is nothing to do for it.
 */
void
dw_run_task(DwDatabase *db, DwExecutor *me, const DwEntry *entry)
{
	begin_work(db, me, entry);
	if (!await_due(entry->due))
	{
		hint_again();
		return;
	}
	if (!begin_suspect())
		return;
	work.quit = dw_quit_take(entry->id);
	finish_task(STEP_CLAIM_AND_RUN);
	dw_trial_end(me);
}

/*
 * The run of a task in a batch was cancelled, and the batch undone: the task has
 * failed with this error.
 */
void
dw_fail_task(DwDatabase *db, DwExecutor *me, const DwEntry *entry, ErrorData *error)
{
	begin_work(db, me, entry);
	work.run.was_run = true;
	work.run.started = me->since;
	work.run.error = error;
	dw_count_begin(db, me, me->since - entry->due);
	finish_task(STEP_SETTLE);
}
