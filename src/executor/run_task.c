/*-------------------------------------------------------------------------
 *
 * run_task.c
 *	  Running one task in a separate transaction.
 *
 * Run by executors, as the role that owns the task.
 *
 * A run is settled when its outcome is recorded, in the transaction that deletes the row.
 *
 * An executor executes these steps until the task is over (enum Step):
 *
 *	CLAIM_AND_RUN --> OVER		committed, or there is nothing to do
 *		|  |  |
 *		|  |  +-----> REPEAT	a serialization failure or a deadlock: all is
 *		|  |					undone, and done again at once
 *		|  +--------> SETTLE	the commit failed, or the task has a mode
 *		+-----------> REST		an error that is not the task's
 *
 *	SETTLE --> OVER, or REST	for as long as it takes
 *	REPEAT --> CLAIM_AND_RUN
 *	REST   --> the step that met the error, once more
 *
 * Steps X5 to X7 of the model in test/model.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "mb/pg_wchar.h"
#include "pgstat.h"
#include "executor.h"

/* Shortest and longest pause, in ms, after errors that are not the task's; doubles each time. */
#define REST_MIN_MS		100
#define REST_MAX_MS		5000
/* Limit of a task's SQL in a message of the log, in bytes. */
#define MAX_LOGGED_SQL	1024
/* Limit of the pause before each immediate repeat of one run, in us. */
#define REPEAT_MAX_US	(100 * 1000)
/* Limit of the repeats after stray cancels; a cancel is stray only this soon after a run's start. */
#define MAX_STRAYS		3
#define STRAY_US		USECS_PER_SEC

/* The next step of the executor for its task, see the diagram above. */
typedef enum Step
{
	STEP_CLAIM_AND_RUN,			/* a transaction that claims, runs and settles */
	STEP_SETTLE,				/* a transaction that only settles */
	STEP_REPEAT,				/* a short pause before the run is repeated */
	STEP_REST,					/* a pause before the last step is tried again */
	STEP_OVER					/* nothing is left to do */
} Step;

/* The task that this executor runs, across all steps; reset by begin_work(). */
static struct
{
	DwDatabase *db;
	DwExecutor *me;
	DwRun		run;
	bool		claimed;		/* true: an error is now the task's own failure */
	DwAutonomous autonomous;	/* set once a task with a mode has been claimed */
	int			repeats;		/* number of immediate repeats so far */
	int			strays;			/* number of repeats after a stray cancel */
	TimestampTz begun;			/* when this repeat began; run.started: when the first run began */
	int			rest_ms;		/* length of the last rest; 0 before the first rest */
	ErrorData  *quit;			/* the failure noted when an earlier run ended its executor, or
								 * NULL */
	bool		used_temp;		/* the task's temporary objects must be removed */
}			work;

/* True if this process has run a task, or a batch, before its current task. */
static bool has_run = false;

/* Memory that lasts until the task is over, longer than its transactions. */
static MemoryContext task_context = NULL;

/* Disarms the timeout, and forgets a pending cancel, which was meant for the task's own work. */
static void
disarm_timeout(void)
{
	dw_timeout_disarm();
	dw_cancel_forget();
}

/* Reads the task's SQL into task_context.  The log, even later, and pg_stat_activity show it. */
static char *
show_sql(const DwClaim *claimed)
{
	MemoryContext context = MemoryContextSwitchTo(task_context);
	char	   *sql = dw_claim_text(claimed, Anum_task_sql);

	debug_query_string = dw_logged_sql(sql);
	MemoryContextSwitchTo(context);
	pgstat_report_activity(STATE_RUNNING, sql);
	return sql;
}

/* Begins the part of a transaction in which the task's own code runs, and may be cancelled. */
static void
begin_own_code(const DwClaim *claimed)
{
	dw_cancel_for_task(work.me);
	RESUME_CANCEL_INTERRUPTS();
	dw_timeout_arm(claimed->terms.timeout);
	dw_task_log_begin();
	DW_INJECT("run-before-sql");
}

/*
 * Ends this part.  Raises an error if the task has written too much to the log, or if a session
 * wants to stop it.  That cancel may have arrived while cancels were held off, or the task may have
 * caught it.
 */
static void
end_own_code(void)
{
	disarm_timeout();
	dw_task_log_end();
	if (dw_stop_requested(work.me))
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("task was stopped")));
}

/* Sets the task's kept settings for the transaction.  True if a cached plan can run the SQL. */
static bool
set_kept_settings(const DwClaim *claimed)
{
	Jsonb	   *settings = dw_more_object(claimed->values, claimed->nulls, Anum_task_more,
										  DW_MORE_SETTINGS);

	return settings == NULL || dw_kept_settings_set(settings, GUC_ACTION_LOCAL);
}

/* Runs the SQL, which the caller has read, in this transaction, with the task's kept settings. */
DwSpiResult
dw_run_sql(const DwClaim *claimed, const char *sql)
{
	bool		may_keep = !claimed->key.has_more || set_kept_settings(claimed);
	ParamListInfo params = dw_claim_params(claimed, sql);
	int			max_row = dw_wings_max_result(claimed->key.queue);
	DwSpiResult result;

	/* clears the snooze of an earlier task that failed after it had committed */
	(void) dw_snooze_take();
	dw_running_in(claimed->values, claimed->nulls);
	dw_may_snooze = true;
	result = dw_spi_run(sql, params, max_row, may_keep);
	result.again_at = dw_snooze_take();
	dw_may_snooze = false;
	return result;
}

/*
 * Runs the SQL of a claimed task in a subtransaction.  Returns NULL, or the error in task_context.
 * Sets *timed_out to true if the task's timeout has struck.
 */
static ErrorData *
run_task_sql(const DwClaim *claimed, DwSpiResult *result, bool *timed_out)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	char	   *sql = show_sql(claimed);
	char	   *search_path = dw_claim_text(claimed, Anum_task_search_path);
	ErrorData  *error = NULL;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		MemoryContextSwitchTo(context);
		/* set for the whole transaction: the task's deferred triggers need it, too */
		if (search_path)
			dw_session_set_path(search_path, GUC_ACTION_LOCAL);
		begin_own_code(claimed);
		*result = dw_run_sql(claimed, sql);
		end_own_code();
		HOLD_CANCEL_INTERRUPTS();
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		/* ereport() has allowed cancels again */
		HOLD_CANCEL_INTERRUPTS();
		*timed_out = dw_timeout_struck();
		disarm_timeout();
		MemoryContextSwitchTo(task_context);
		error = dw_task_error();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;

	DW_INJECT("run-after-sql");
	return error;
}

/* Claims the task in the current transaction.  The table stays locked. */
static DwClaimResult
claim_once(DwClaim *claimed)
{
	Relation	rel = dw_claim_open();
	DwClaimResult result = dw_claim(work.db, work.me, rel, NULL, &work.run.entry, NULL, NULL, claimed);

	table_close(rel, NoLock);
	return result;
}

/*---- Settling a run whose transaction is over ----*/

/* Commits the transaction that settles the run. */
static void
commit_settled(void)
{
	dw_claim_commit_transaction(work.db, &work.run, 1);
}

/*
 * STEP_SETTLE: claims the task again and settles its run, whose claim was undone, or whose
 * transaction is over.  Records nothing if the task was changed meanwhile.
 */
static Step
settle_again(void)
{
	bool		outside = work.autonomous.mode != DW_IN_TRANSACTION;
	bool		found;
	DwClaim		claimed;

	dw_claim_begin_transaction(true);
	if (outside)
	{
		DW_INJECT("autonomous-before-settle");
		found = dw_autonomous_reclaim(work.db, work.me, &work.autonomous, &claimed);
	}
	else
		found = claim_once(&claimed) == DW_CLAIMED && claimed.key.attempts == work.run.attempts;
	if (!found)
	{
		AbortCurrentTransaction();
		if (outside)
			ereport(LOG,
					(errcode(ERRCODE_NO_DATA_FOUND),
					 errmsg("the row of delay_wheel task %lld was deleted while it ran",
							(long long) work.run.entry.id)));
		return STEP_OVER;
	}
	/* the executor claimed such a task to run it, which counts as an attempt in any case */
	if (outside)
		work.run.was_run = true;
	work.run.outcome = work.run.error == NULL ? DW_DONE : DW_FAILED;
	dw_settle(work.db, work.me, &work.run, &claimed);
	commit_settled();
	dw_autonomous_end(work.db, work.me);
	work.me->settled = true;
	return STEP_OVER;
}

/*---- Running ----*/

/*
 * Returns true if the run was ended by a stray cancel: when Citus cancels the process of a
 * transaction, to end a deadlock among nodes, a new run may just have begun.
 */
static bool
is_stray_cancel(void)
{
	return work.run.error->sqlerrcode == ERRCODE_QUERY_CANCELED && !work.run.timed_out &&
		dw_other_nodes_exist() && dw_now() - work.begun < STRAY_US;
}

/* Returns true if the failed run is undone and repeated.  Then no session can stop the task. */
static bool
may_repeat(void)
{
	bool		stray = is_stray_cancel();
	bool		again = stray ? work.strays < MAX_STRAYS :
		dw_is_transient(work.run.error->sqlerrcode) && work.repeats - work.strays < DW_MAX_REPEATS;

	if (!again || !dw_stop_forbid(work.db, work.me))
		return false;
	if (stray)
		work.strays++;
	return true;
}

/*
 * Fires the task's deferred triggers, which can take long, and commits.  The timeout is not active
 * during the commit itself, since it would end the wait for a synchronous standby.
 */
static void
commit_run(const DwClaim *claimed)
{
	RESUME_CANCEL_INTERRUPTS();
	dw_timeout_arm(claimed->terms.timeout);
	dw_task_log_resume();
	dw_session_finish_work();
	end_own_code();
	commit_settled();
	HOLD_CANCEL_INTERRUPTS();
}

/*
 * For PG_CATCH: returns the error, in task_context.  Holds off interrupts; the caller ends the
 * transaction, then calls RESUME_INTERRUPTS().
 */
static ErrorData *
catch_error(void)
{
	DwRun	   *run = &work.run;
	ErrorData  *error;

	HOLD_INTERRUPTS();
	HOLD_CANCEL_INTERRUPTS();
	/* an error in STEP_SETTLE must not change the data of the run's own error */
	if (run->error == NULL)
		run->timed_out = dw_timeout_struck();
	disable_all_timeouts(false);
	disarm_timeout();
	MemoryContextSwitchTo(task_context);
	error = dw_task_error();
	/* a transaction that fails at its commit may have committed on some nodes */
	if (run->error == NULL)
		run->undone = dw_other_nodes_phases() == DW_TWO_PHASES;
	return error;
}

/* Runs a task with a mode after the claim's transaction.  STEP_SETTLE settles the run. */
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
	sql = show_sql(claimed);
	PG_TRY();
	{
		begin_own_code(claimed);
		run->result = dw_autonomous_run(claimed, sql);
		dw_session_finish_work();
		end_own_code();
		dw_session_commit_transaction();
		HOLD_CANCEL_INTERRUPTS();
	}
	PG_CATCH();
	{
		run->error = catch_error();
		/* the statement may have committed changes before its error */
		run->undone = false;
		AbortOutOfAnyTransaction();
		/* a loop over a cursor pins its portal */
		PortalErrorCleanup();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(task_context);
	/* the task's settings must not affect STEP_SETTLE */
	dw_session_clean(false);
	DW_INJECT("run-after-sql");
	return STEP_SETTLE;
}

/* Gives the timer a hint of the task, so that the task is not forgotten. */
static void
hint_again(void)
{
	DwHint		hint = dw_entry_hint(&work.run.entry);

	dw_deliver(work.db, &hint);
}

/*
 * Begins a transaction and claims the task.  If there is nothing to do, aborts, which is cheaper
 * than a commit, gives timer or sweeper a hint of a pending or cancelled task, and returns false.
 */
static bool
claim_task(DwClaim *claimed)
{
	const DwEntry *entry = &work.run.entry;
	DwClaimResult result;

	for (;;)
	{
		dw_claim_begin_transaction(false);
		if (entry->due > GetCurrentTransactionStartTimestamp())
		{
			/* the clock was set back since the timer handed the task over */
			AbortCurrentTransaction();
			hint_again();
			return false;
		}
		result = claim_once(claimed);
		if (result != DW_CLAIM_UNSEEN)
			break;
		/* the task or a table has changed between the snapshot and the claim */
		AbortCurrentTransaction();
		pg_atomic_write_u32(&work.me->xid, InvalidTransactionId);
		MemoryContextSwitchTo(task_context);
		CHECK_FOR_INTERRUPTS();
	}
	if (result == DW_CLAIMED && claimed->verdict != DW_DROP && claimed->verdict != DW_PUT_BACK)
		return true;
	AbortCurrentTransaction();
	if (result == DW_CLAIMED && claimed->verdict == DW_PUT_BACK)
		dw_queue_put_back(work.db, entry);
	else if (result == DW_CLAIM_LOCKED)
		dw_group_order_waits(work.db, work.me);
	else if (result == DW_CLAIMED || result == DW_CLAIM_CANCELLED)
		/* the sweeper removes the row */
		dw_task_was_cancelled(work.db, entry);
	return false;
}

/*
 * Returns true if the claimed task must be run.  Otherwise fills in its outcome in work.run.
 *
 * A task with a mode is refused if this executor is only switched to the task's role.  The switch
 * ends with each transaction, so the task's later transactions would not run as the role.
 */
static bool
is_to_be_run(DwClaim *claimed)
{
	MemoryContext context = MemoryContextSwitchTo(task_context);
	bool		wanted;

	if (claimed->nulls[Anum_task_sql - 1] && claimed->verdict == DW_RUN)
	{
		/* plain SQL has put the message into the queue */
		claimed->verdict = DW_REFUSE;
		claimed->sqlstate = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		claimed->reason = "a message is in a queue that is not external";
	}
	/* a task that has ended its executor counts as failed, with any mode */
	if (work.quit == NULL && claimed->verdict == DW_RUN && dw_session_is_switched() &&
		dw_mode(claimed->values, claimed->nulls) != DW_IN_TRANSACTION)
	{
		claimed->verdict = DW_REFUSE;
		claimed->sqlstate = ERRCODE_FEATURE_NOT_SUPPORTED;
		claimed->reason = "tasks of a role without LOGIN cannot run outside of a transaction before PostgreSQL 17";
	}
	wanted = dw_is_to_be_run(&work.run, claimed);
	MemoryContextSwitchTo(context);
	return wanted;
}

/*
 * STEP_CLAIM_AND_RUN: claims the task, runs it and settles the run, in one transaction, unless the
 * task has a mode.  A task that has ended an earlier executor is not run, and counts as failed.
 */
static Step
claim_and_run(void)
{
	DwRun	   *run = &work.run;
	DwClaim		claimed;
	bool		again;

	work.claimed = false;
	run->error = NULL;
	dw_stop_allow(work.db, work.me);
	dw_autonomous_end(work.db, work.me);
	if (!claim_task(&claimed))
		return STEP_OVER;

	work.begun = dw_now();
	again = run->was_run;
	if (!again)
		run->started = work.begun;
	if (is_to_be_run(&claimed))
	{
		if (work.quit == NULL && dw_mode(claimed.values, claimed.nulls) != DW_IN_TRANSACTION)
			return run_autonomous(&claimed);
		work.claimed = true;
		run->was_run = true;
		run->error = work.quit;
		if (work.quit == NULL)
		{
			if (!again)
				dw_count_begin(work.db, work.me, run->started - claimed.key.due);
			run->error = run_task_sql(&claimed, &run->result, &run->timed_out);
			run->undone = run->error != NULL && dw_other_nodes_phases() != DW_NO_PART;
		}
		run->outcome = run->error == NULL ? DW_DONE : DW_FAILED;
		if (work.quit == NULL && run->outcome == DW_FAILED && may_repeat())
		{
			AbortCurrentTransaction();
			return STEP_REPEAT;
		}
	}
	/* if a task did not run, an error in settling is not its own, so settling is tried again */
	dw_settle(work.db, work.me, run, &claimed);
	if (run->was_run && run->error == NULL)
		commit_run(&claimed);
	else
		commit_settled();
	/* read after the commit, since deferred triggers may have created objects, too */
	work.used_temp = (MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) != 0;
	work.me->settled = true;
	return STEP_OVER;
}

/*---- Step by step ----*/

/* Reports an error that is not the task's: in the log once for each task, in the view each time. */
static void
report_problem(Step step, const ErrorData *error)
{
	char	   *text = psprintf("could not %s task %lld: %s",
								step == STEP_SETTLE ? "record the outcome of" : "claim",
								(long long) work.run.entry.id, error->message);

	if (work.rest_ms == 0)
		ereport(LOG,
				(errcode(error->sqlerrcode), errmsg_internal("%s", text)));
	dw_problem_quoting(&work.db->problem, text, error->message);
}

/* Returns the next step after an error has undone a step. */
static Step
step_after_error(Step step, ErrorData *error)
{
	DwRun	   *run = &work.run;

	if (step == STEP_CLAIM_AND_RUN && (work.claimed || work.autonomous.mode != DW_IN_TRANSACTION))
	{
		/* the run's error counts, not an error in settling */
		if (run->error == NULL)
		{
			run->error = error;
			if (work.claimed && may_repeat())
				return STEP_REPEAT;
		}
		return STEP_SETTLE;
	}
	/* at SERIALIZABLE, a claim can fail like its task */
	if (step == STEP_CLAIM_AND_RUN && dw_is_transient(error->sqlerrcode) && work.rest_ms == 0 &&
		work.repeats - work.strays < DW_MAX_REPEATS && dw_stop_forbid(work.db, work.me))
		return STEP_REPEAT;
	/* the error is not the task's, so try the step again until it succeeds */
	report_problem(step, error);
	return STEP_REST;
}

/* Executes STEP_CLAIM_AND_RUN or STEP_SETTLE, catches errors, and returns the next step. */
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
			next = settle_again();
	}
	PG_CATCH();
	{
		error = catch_error();
		dw_autonomous_undone(work.db, work.me, &work.autonomous);
		AbortCurrentTransaction();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	pg_atomic_write_u32(&work.me->xid, InvalidTransactionId);
	MemoryContextSwitchTo(task_context);
	return error == NULL ? next : step_after_error(step, error);
}

/* Sleeps for this time, in ms, or until the latch is set.  Handles interrupts. */
static void
sleep_ms(long ms, uint32 wait_event)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms, wait_event);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* STEP_REST: sleeps before a step is tried again after an error that is not the task's. */
static void
rest_before_retry(void)
{
	static uint32 wait_event = 0;

	work.rest_ms = work.rest_ms == 0 ? REST_MIN_MS : Min(work.rest_ms * 2, REST_MAX_MS);
	CHECK_FOR_INTERRUPTS();
	sleep_ms(work.rest_ms, dw_wait_event(wait_event, "DelayWheelClaim"));
	/* unless the extension was dropped, the exit callback gives a hint of the task */
	if (work.me->must_exit)
		proc_exit(0);
}

/*
 * STEP_REPEAT: sleeps for a random time, so that conflicting transactions do not conflict again.  A
 * cancel that arrives now takes effect in the next run.  With other nodes it is forgotten: Citus
 * may cancel the victim of a deadlock twice, and no session can stop the task now.
 */
static void
pause_before_repeat(void)
{
	static uint32 wait_event = 0;
	int64		longest = Min(INT64CONST(1000) << work.repeats, REPEAT_MAX_US);

	work.repeats++;
	dw_session_clean(false);
	sleep_ms(1 + pg_prng_uint64_range(&pg_global_prng_state, 0, longest) / 1000,
			 dw_wait_event(wait_event, "DelayWheelRepeat"));
	if (dw_other_nodes_exist())
		dw_stop_absorb();
	dw_executor_obey_exit(work.db, work.me);
}

/* Logs a task that took log_min_duration or longer, from its claim until its last commit. */
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
			(errmsg("delay_wheel task %lld took %.3f ms, and started %.3f ms after it was due",
					(long long) run->entry.id, took / 1000.0,
					(run->started - run->entry.due) / 1000.0),
			 errdetail_log("SQL: %.*s%s", len, sql, sql[len] != '\0' ? "..." : ""),
			 errhidestmt(true)));
}

/* Removes what tasks, perhaps with temporary objects, have left in the session. */
void
dw_task_clean(bool used_temp)
{
	pgstat_report_activity(STATE_IDLE, NULL);
	debug_query_string = NULL;
	has_run = true;
	dw_session_clean(used_temp);
	pgstat_report_stat(false);
}

/* Prepares "work" for the executor's current task, and makes task_context current and empty. */
static void
begin_work(DwDatabase *db, DwExecutor *me)
{
	memset(&work, 0, sizeof(work));
	work.db = db;
	work.me = me;
	work.run.entry = me->current;
	if (task_context == NULL)
		task_context = AllocSetContextCreate(TopMemoryContext, "delay_wheel task",
											 ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(task_context);
	MemoryContextSwitchTo(task_context);
}

/* Executes the steps until the task's outcome is committed or there is nothing left to do. */
static void
finish_task(Step step)
{
	Step		next;

	while ((next = take_step(step)) != STEP_OVER)
	{
		if (next == STEP_REST)
			rest_before_retry();
		else if (next == STEP_REPEAT)
		{
			pause_before_repeat();
			step = STEP_CLAIM_AND_RUN;
		}
		else
			step = next;
	}
	if (debug_query_string != NULL)
		log_long_task(&work.run);
	dw_task_clean(work.used_temp);
	MemoryContextReset(task_context);
}

/*---- A task that was taken ----*/

/* Spins until the due time, at most DW_HEAD_START_US.  Returns false if the clock was set back. */
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

/* Reports a task whose claim alone crashes the server.  A person has to delete its row. */
static void
leave_alone(void)
{
	char	   *text = psprintf("task %lld stays in delay_wheel_data.task and is not run any more, since recording its failure crashed the server",
								(long long) work.run.entry.id);

	ereport(LOG,
			(errcode(DW_ERRCODE_CRASHED), errmsg_internal("%s", text),
			 errhint("The row of the task may be damaged. Look at the row, and delete it from delay_wheel_data.task.")));
	dw_problem(&work.db->problem, text);
}

/*
 * Returns false if the task is a suspect that this executor must not run.  Then the task is not
 * touched, or it is put back for another executor and this executor ends: soon after a crash, only
 * a process that has run nothing before takes a suspect, since no other task can have damaged its
 * memory.  Later any executor takes it, since other lanes might always come first.
 */
static bool
may_run(void)
{
	int			crashes = dw_crashes_of(work.db->oid, work.run.entry.id);

	if (crashes >= DW_CRASHES_LEFT_ALONE)
	{
		leave_alone();
		return false;
	}
	if (crashes == 0 || !has_run || !dw_crashes_are_recent() || !dw_stop_forbid(work.db, work.me))
		return true;
	LWLockAcquire(dw_ready_lock(work.db), LW_EXCLUSIVE);
	(void) dw_ready_put_back(work.db, &work.run.entry, true);
	work.me->must_exit = true;
	LWLockRelease(dw_ready_lock(work.db));
	return false;
}

/*
 * Claims the executor's current task and runs it alone, until its outcome is committed.  Called
 * without lock and transaction.  Catches errors.  The process may end.
 */
void
dw_run_task(DwDatabase *db, DwExecutor *me)
{
	if (!dw_group_order_keeps(db, me))
		return;
	begin_work(db, me);
	if (!await_due(me->current.due))
	{
		hint_again();
		return;
	}
	if (!may_run())
		return;
	work.quit = dw_quit_take(me->current.id);
	finish_task(STEP_CLAIM_AND_RUN);
}

/* Records the failure of a task that was cancelled in a batch, which has been undone. */
void
dw_fail_task(DwDatabase *db, DwExecutor *me, ErrorData *error)
{
	begin_work(db, me);
	work.run.was_run = true;
	work.run.started = me->since;
	work.run.error = error;
	dw_count_begin(db, me, me->since - me->current.due);
	finish_task(STEP_SETTLE);
}
