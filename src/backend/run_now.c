/*-------------------------------------------------------------------------
 *
 * run_now.c
 *	  delay_run() and delay_run_due(): run pending tasks at once, in the caller's transaction.
 *
 * Run by sessions, and by executors whose tasks call these functions.
 *
 * README.md explains why the session must belong to the task's owner, and how delay_run_due(),
 * which is meant for tests of applications, comes to an end.  With as_executor, dw_time_reached
 * replaces the clock, but not now(): PostgreSQL allows only parallel workers to set the start time
 * of a transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/sequence.h"
#include "backend.h"

PG_FUNCTION_INFO_V1(dw_run);
PG_FUNCTION_INFO_V1(dw_run_due);
PG_FUNCTION_INFO_V1(dw_delay_now);
PG_FUNCTION_INFO_V1(dw_delay_snooze);

/*
 * Limit for the rounds of one due time.  Tasks of the previous round have scheduled the tasks of a
 * round, for the same due time.
 */
#define MAX_ROUNDS	1000

/* A task that was taken: this transaction has deleted its row */
typedef struct Taken
{
	const char *function;		/* the SQL function that runs the task, for messages */
	DwClaim		claim;			/* the row */
	DwSpiResult result;			/* the result of its SQL */
} Taken;

/*---- The session's role ----*/

/*
 * Raises an error if this is not a session of the tasks' owner, which has only the owner's rights.
 * The process of an executor may be connected as another role (executor/session.c).
 */
static void
require_own_session(Oid owner)
{
	bool		own = dw_this_executor != NULL ? dw_this_executor->owner == owner :
		GetSessionUserId() == owner && GetAuthenticatedUserId() == owner;

	dw_require_role(owner);
	dw_refuse_superuser(owner);
	if (!own || GetUserId() != owner)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("tasks of role \"%s\" cannot run in this session", GetUserNameFromId(owner, false)),
				 errdetail("These tasks can run only in a session that has logged in as the role and has not changed its role."),
				 errhint("To run a task at once in a session of its owner, use %s and %s.",
						 "delay_reschedule(id, '0')", "delay_wait(id)")));
}

/*---- How a task's text is read ----*/

/*
 * Sets the settings by which the task's text is read (task/login.c): the task's search_path, and
 * values of a new session of its owner.  They are valid until the end of the current nest level of
 * settings.  The other kept settings are set when the SQL is run.
 */
static void
set_reading(const DwClaim *claim)
{
	const DwLogin *login = dw_login(claim->key.owner);

	for (int i = 0; i < DW_LOGIN_SETTINGS; i++)
	{
		const char *value = dw_login_value(login, i);

		if (i == DW_SEARCH_PATH)
		{
			if (!claim->nulls[Anum_task_search_path - 1])
				value = TextDatumGetCString(claim->values[Anum_task_search_path - 1]);
			/* if the value is not known, use PostgreSQL's default */
			else if (value == NULL)
				value = "\"$user\", public";
		}
		else if (value == NULL || !dw_login_differs(login, i))
			continue;
		(void) set_config_option(dw_login_settings[i], value, PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
	}
}

/*---- Running ----*/

/* Runs a task's SQL as the current user, with the settings that are kept for the task. */
static DwSpiResult
run_sql_now(const DwClaim *claim)
{
	DwSpiResult result;
	char	   *sql = dw_claim_text(claim, Anum_task_sql);
	Jsonb	   *settings = dw_more_object(claim->values, claim->nulls, Anum_task_more,
										  DW_MORE_SETTINGS);

	if (settings != NULL)
		(void) dw_kept_settings_set(settings, GUC_ACTION_SAVE);
	/* clears the snooze of an outer task that has called delay_run(); run_task() restores it */
	(void) dw_snooze_take();
	dw_running_in(claim->values, claim->nulls);
	PushActiveSnapshot(GetTransactionSnapshot());
	result = dw_spi_run(sql, dw_args_params(sql,
											claim->values[Anum_task_args - 1],
											claim->nulls[Anum_task_args - 1],
											claim->values[Anum_task_arg_types - 1],
											claim->nulls[Anum_task_arg_types - 1]),
						dw_wings_max_result(claim->key.queue), false);
	PopActiveSnapshot();
	result.again_at = dw_snooze_take();
	return result;
}

/* Error context callback; arg is a Taken. */
static void
run_context(void *arg)
{
	const Taken *task = arg;

	errcontext("task %lld, run by %s", (long long) task->claim.key.id, task->function);
}

/* Runs a task's SQL, with the task's search path, and sets task->result.  arg is a Taken. */
static void
run_task(void *arg)
{
	Taken	   *task = arg;
	int64		outer_id = dw_run_now_id;
	int64		outer_batch_id = dw_running_batch_id;
	Oid			outer_owner = dw_run_now_owner;
	int			nest_level = NewGUCNestLevel();
	ErrorContextCallback callback;

	dw_push_context(&callback, run_context, task);
	set_reading(&task->claim);
	dw_run_now_id = task->claim.key.id;
	dw_run_now_owner = task->claim.key.owner;
	PG_TRY();
	{
		task->result = run_sql_now(&task->claim);
	}
	PG_FINALLY();
	{
		dw_run_now_id = outer_id;
		dw_running_batch_id = outer_batch_id;
		dw_run_now_owner = outer_owner;
	}
	PG_END_TRY();
	AtEOXact_GUC(false, nest_level);
	error_context_stack = callback.previous;
}

/*
 * Reads a task whose row this transaction has just deleted.  If a mark of delay_cancel_all() has
 * cancelled the task, concludes it as cancelled and returns false.
 */
static bool
have_taken(Relation rel, HeapTuple tuple, Taken *task)
{
	task->result = (DwSpiResult) {0};
	dw_claim_read(dw_my_database(), rel, tuple, &task->claim);
	CommandCounterIncrement();
	dw_committing_wait(HeapTupleHeaderGetXmin(tuple->t_data));
	/* if the mark committed before the deletion, the task is not run; its row stays deleted */
	if (!dw_task_is_cancelled(rel, tuple))
		return true;
	dw_conclude_row(rel, tuple, &task->claim.key, DW_CANCELLED, NULL);
	return false;
}

/* Concludes a task (history, notification, follow-up, next run). */
static void
conclude_now(const Taken *task, DwOutcome outcome, TimestampTz started)
{
	dw_conclude(&(DwEnded) {
		.key = &task->claim.key,
		.values = task->claim.values,
		.nulls = task->claim.nulls,
		.outcome = outcome,
		.started = started,
		.result = task->result
	});
}

/*
 * Ends a task that ran without an error, as executors do (executor/settle.c): concludes the task,
 * or puts it back if it has called delay_snooze().  Returns the result of delay_run().
 */
static const char *
end_now(Relation rel, Taken *task, TimestampTz started)
{
	bool		snoozes = task->result.again_at != 0;

	if (snoozes && dw_attempt_snooze(rel, &task->claim, task->result.again_at))
		return "moved";
	conclude_now(task, snoozes ? DW_CANCELLED : DW_DONE, started);
	return snoozes ? "cancelled" : "done";
}

/* Runs a task that was taken, and ends it.  Raises an error if the task cannot run here. */
static const char *
run_and_end(Relation rel, Taken *task)
{
	const DwClaim *claim = &task->claim;
	TimestampTz started = dw_now();

	require_own_session(claim->key.owner);
	if (claim->nulls[Anum_task_sql - 1])
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("task %lld is a message", (long long) claim->key.id),
				 errdetail("A message has no SQL."),
				 errhint("Receive it with %s.", "delay_receive()")));
	if (claim->key.origin != dw_origin_stamp())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("task %lld is not armed", (long long) claim->key.id),
				 errdetail("The task came with a copy of another database."),
				 errhint("See delay_wheel.arm().")));
	if (dw_mode(claim->values, claim->nulls) != DW_IN_TRANSACTION)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("task %lld cannot run inside a transaction", (long long) claim->key.id),
				 errdetail("The task has a mode, and runs outside of a transaction."),
				 errhint("To run it at once, use delay_reschedule(id, '0').")));
	run_task(task);
	return end_now(rel, task, started);
}

/* SQL function delay_run().  Returns "running" or "gone" if the task is not pending. */
Datum
dw_run(PG_FUNCTION_ARGS)
{
	Taken		task = {.function = "delay_run()"};
	Relation	rel;
	HeapTuple	tuple;
	DwTaskKey	key;
	DwTakeResult result;
	const char *answer = NULL;

	dw_require_right_to_write("delay_run()");
	dw_refuse_null(PG_ARGISNULL(0), "task id");
	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	result = dw_take_pending(rel, PG_GETARG_INT64(0), &tuple, &key);
	if (result == DW_TAKEN && !have_taken(rel, tuple, &task))
		result = DW_GONE;
	if (result == DW_TAKEN)
	{
		if (dw_audits(DW_AUDIT_CONTROL))
			dw_audit_task("run", task.claim.values, task.claim.nulls, 0, NULL);
		answer = run_and_end(rel, &task);
	}
	table_close(rel, NoLock);
	PG_RETURN_TEXT_P(cstring_to_text(dw_take_answer(result, answer)));
}

/*---- Running all tasks that are due ----*/

/* State of a call of delay_run_due() */
typedef struct Progress
{
	bool		as_executor;	/* true: treats attempts, lateness and failures as an executor does */
	TimestampTz until;			/* run tasks that are due by this time */
	DwTaskKey	at;				/* owner and origin to run; due and id of the last task */
	TimestampTz reached;		/* the highest due time so far */
	int			rounds;			/* rounds at this due time, see MAX_ROUNDS */
	int64		round_end;		/* tasks with higher ids belong to the next round */
	int64		taken;			/* number of deleted rows */
	int64		done;			/* number of attempts */
	int64		left;			/* tasks of this pass that have a mode, and were not run */
} Progress;

/* Returns true if a comes before b in the order of (due, id). */
static bool
is_before(const DwTaskKey *a, const DwTaskKey *b)
{
	return a->due < b->due || (a->due == b->due && a->id < b->id);
}

/*
 * Returns the owner's next task after the last task, in the order of (due, id); NULL if no other
 * task is due by progress->until.  The scan visits all lanes of the owner, and in each lane starts
 * at the last task's position.
 */
static HeapTuple
find_next(Relation rel, const Progress *progress, DwTaskKey *next)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	HeapTuple	found = NULL;
	DwTaskKey	from = progress->at;
	DwRowScan *scan;
	DwTaskKey	key;
	bool		visible;

	from.queue = from.priority = PG_INT16_MIN;
	from.id++;
	scan = dw_lanes_scan_begin(rel, &from, snapshot);
	while (dw_lane_scan_step(scan, &key, &visible) &&
		   key.owner == from.owner && key.origin == from.origin)
	{
		bool		enter = is_before(&key, &from);
		bool		leave = key.due > progress->until || (found != NULL && is_before(next, &key));

		CHECK_FOR_INTERRUPTS();
		if (!enter && !leave && visible)
		{
			found = dw_lane_scan_tuple(scan);
			*next = key;
			leave = true;
		}
		if (!enter && !leave)
			continue;
		from.queue = key.queue;
		from.priority = key.priority + (leave ? 1 : 0);
		dw_lanes_scan_seek(scan, &from);
	}
	dw_row_scan_end(scan);
	UnregisterSnapshot(snapshot);
	return found;
}

/*
 * Counts rounds.  Raises an error after MAX_ROUNDS, since such tasks may schedule other tasks for
 * the same due time without end.
 */
static void
count_round(Progress *progress, const DwTaskKey *key)
{
	if (key->due > progress->reached)
	{
		progress->reached = key->due;
		progress->rounds = 0;
	}
	if (key->id <= progress->round_end)
		return;
	if (++progress->rounds > MAX_ROUNDS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("tasks schedule other tasks without end"),
				 errdetail("Task %lld, due at %s, is the last of %d tasks with this due time, each scheduled by the previous task.",
						   (long long) key->id, timestamptz_to_str(key->due), MAX_ROUNDS),
				 errhint("A task that schedules itself again must use a delay.")));
	progress->round_end = nextval_internal(dw_catalog()->task_id_seq, false);
}

/*
 * Takes the next task; returns false if there is none.  Sets *ready to true if the task can be run,
 * and to false if the caller must continue with the next task.
 */
static bool
take_next_due(Relation rel, Progress *progress, Taken *task, bool *ready)
{
	DwTaskKey	key;
	HeapTuple	tuple = find_next(rel, progress, &key);
	bool		again = false;
	Datum	   *values;
	bool	   *nulls;

	*ready = false;
	if (tuple == NULL)
		return false;
	dw_deform(rel, tuple, &values, &nulls);
	if (nulls[Anum_task_sql - 1])
		again = false;			/* a message waits for its receiver */
	else if (dw_mode(values, nulls) != DW_IN_TRANSACTION)
		progress->left++;
	else if (dw_take_found(rel, tuple, &key, &again) == DW_TAKEN)
		*ready = have_taken(rel, tuple, task);
	if (!again)
	{
		progress->at.due = key.due;
		progress->at.id = key.id;
	}
	return true;
}

/*
 * Runs a task that was taken, and settles the run, as executors do (executor/settle.c).  Then the
 * task is done, put back, failed or skipped.  Returns true if the task was run.
 */
static bool
run_and_settle(Relation rel, Taken *task)
{
	DwClaim    *claim = &task->claim;
	TimestampTz started = dw_now();
	ErrorData  *error;

	claim->verdict = dw_judge_lateness(claim);
	if (claim->verdict == DW_RUN)
	{
		error = dw_try(run_task, task);
		for (int i = 0; error != NULL && dw_is_transient(error->sqlerrcode) && i < DW_MAX_REPEATS; i++)
			error = dw_try(run_task, task);
		if (error == NULL)
			(void) end_now(rel, task, started);
		else
			(void) dw_attempt_end(rel, claim, DW_NEVER, false, started, error);
	}
	else if (claim->verdict == DW_SKIP)
		conclude_now(task, DW_SKIPPED, 0);
	else
		dw_attempt_fail(claim, claim->key.attempts, 0, &(ErrorData) {
			.sqlerrcode = claim->sqlstate,
			.message = pstrdup(claim->reason)
		});
	CommandCounterIncrement();
	return claim->verdict == DW_RUN;
}

/* Runs the due tasks in one pass, in the order of (due, id). */
static void
run_pass(Progress *progress)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "delay_run_due",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext outer = MemoryContextSwitchTo(context);
	Taken		task = {.function = "delay_run_due()"};
	Relation	rel = dw_tasks_open();
	bool		ready;

	progress->at.due = progress->at.id = PG_INT64_MIN;
	progress->left = 0;
	while (take_next_due(rel, progress, &task, &ready))
	{
		if (ready)
		{
			count_round(progress, &task.claim.key);
			progress->taken++;
			dw_run_now_clock = progress->as_executor ? progress->reached : task.claim.key.due;
			if (!progress->as_executor)
				(void) run_and_end(rel, &task);
			if (!progress->as_executor || run_and_settle(rel, &task))
				progress->done++;
		}
		MemoryContextReset(context);
	}
	table_close(rel, NoLock);
	MemoryContextSwitchTo(outer);
	MemoryContextDelete(context);
}

/*
 * Counts the due tasks of other roles whose rights the current user has.  Tasks of roles whose
 * rights the user lacks are not counted.
 */
static int64
count_others(const Progress *progress)
{
	Relation	rel = table_open(dw_catalog()->task, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	DwTaskKey	key;
	int64		n = 0;

	for (bool first = true; dw_next_lane(rel, snapshot, &key, first); first = false)
	{
		DwRowScan *scan;

		CHECK_FOR_INTERRUPTS();
		if (key.owner == progress->at.owner || key.origin != progress->at.origin ||
			!has_privs_of_role(progress->at.owner, key.owner))
			continue;
		scan = dw_lane_scan_begin(rel, &key, snapshot);
		while (dw_lane_scan_next(scan, &key) && key.due <= progress->until)
		{
			HeapTuple	tuple = dw_lane_scan_tuple(scan);

			CHECK_FOR_INTERRUPTS();
			if (!heap_attisnull(tuple, Anum_task_sql, RelationGetDescr(rel)) &&
				!dw_task_is_cancelled(rel, tuple))
				n++;
		}
		dw_row_scan_end(scan);
	}
	UnregisterSnapshot(snapshot);
	table_close(rel, NoLock);
	return n;
}

/* Reports due tasks that were not run. */
static void
report_left(const Progress *progress)
{
	int64		others = progress->as_executor ? count_others(progress) : 0;

	if (progress->left > 0)
		ereport(NOTICE,
				(errmsg_plural("%lld task was not run, since it does not run in a transaction",
							   "%lld tasks were not run, since they do not run in a transaction",
							   progress->left, (long long) progress->left)));
	if (others > 0)
		ereport(NOTICE,
				(errmsg_plural("%lld task of another role was not run",
							   "%lld tasks of other roles were not run",
							   others, (long long) others),
				 errhint("Call %s in a session of each of these roles, too.", "delay_run_due()")));
}

/* SQL function delay_run_due().  Returns the number of tasks, or attempts, that were run. */
Datum
dw_run_due(PG_FUNCTION_ARGS)
{
	TimestampTz outer_clock = dw_run_now_clock;
	Progress	progress = {
		.reached = DT_NOBEGIN,
		.round_end = PG_INT64_MIN
	};

	dw_require_right_to_write("delay_run_due()");
	progress.as_executor = !PG_ARGISNULL(1) && PG_GETARG_BOOL(1);
	progress.until = PG_ARGISNULL(0) ? GetCurrentTransactionStartTimestamp() : PG_GETARG_TIMESTAMPTZ(0);
	progress.at.owner = GetUserId();
	require_own_session(progress.at.owner);
	progress.at.origin = dw_origin_stamp();
	PG_TRY();
	{
		int64		before;

		/* a task may schedule other tasks for a due time that the pass has already visited */
		do
		{
			before = progress.taken;
			run_pass(&progress);
		} while (progress.taken > before);
	}
	PG_FINALLY();
	{
		dw_run_now_clock = outer_clock;
	}
	PG_END_TRY();
	if (progress.taken > 0 && dw_audits(DW_AUDIT_CONTROL))
		dw_audit_write(&(DwAction) {.what = "run_due",.due = progress.until,.rows = progress.done});
	report_left(&progress);
	PG_RETURN_INT64(progress.done);
}

/* SQL function delay_now().  Returns now(), or the due time that delay_run_due() has reached. */
Datum
dw_delay_now(PG_FUNCTION_ARGS)
{
	dw_require_right();
	PG_RETURN_TIMESTAMPTZ(dw_schedule_now());
}

/*
 * SQL function delay_snooze(): the calling task is run again after the delay, if this run ends
 * without an error.  Deferred triggers of the task run too late to call it.
 */
Datum
dw_delay_snooze(PG_FUNCTION_ARGS)
{
	int64		delay;

	/* no dw_require_right(): pending tasks of a role that lost the right still run */
	dw_refuse_null(PG_ARGISNULL(0), "delay");
	delay = dw_span_argument(fcinfo, 0, "delay", 1000);
	if (dw_run_now_id == 0 && (dw_this_executor == NULL || !dw_may_snooze))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("delay_snooze() was not called by the SQL of a task"),
				 errdetail("Deferred triggers of a task run after its SQL has ended."),
				 errhint("To move a pending task, use %s.", "delay_reschedule()")));
	dw_snooze(dw_time_add(dw_time_reached(), delay));
	PG_RETURN_VOID();
}
