/*-------------------------------------------------------------------------
 *
 * conclude.c
 *	  Concluding a task: all consequences of its end, or of the end of an attempt.
 *
 * Run by the process that ends the task, in the transaction that has deleted the task's row (the
 * claim): mostly an executor, otherwise a session that cancels, runs or puts back a task, or the
 * sweeper.
 *
 * After an attempt without success, the task fails or is put back, as a new row with the same id
 * and a later due time.  After this transaction, other processes see a task that was rescheduled (C0 to
 * C3 of the model).  A process that still has an entry with the old due time forgets the entry when
 * it sees the new row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/wing.h"
#include "ending.h"

/* Shortest time between two log messages about lost connections, in us. */
#define LOST_LOG_US		USECS_PER_SEC

/*
 * Performs all effects of the end of a task or of an attempt.  To be called once for each end, in
 * the transaction that has deleted the row, as one of its last actions.
 */
void
dw_conclude(const DwEnded *ended)
{
	if (ended->outcome != DW_RETRIED)
		dw_touch_ended(ended->key->id, ended->outcome);
	if (!ended->nulls[Anum_task_more - 1] && ended->outcome != DW_DONE && ended->outcome != DW_RETRIED)
		dw_period_end(ended->values, ended->nulls);
	dw_each_wing(wing, task_ended)
		wing->task_ended(ended);
}

/* Concludes a claimed task, or an attempt; the arguments are members of DwEnded. */
void
dw_conclude_claim(const DwClaim *claim, DwOutcome outcome, TimestampTz started, DwSpiResult result,
				  const ErrorData *error)
{
	dw_conclude(&(DwEnded) {
		.key = &claim->key,
		.values = claim->values,
		.nulls = claim->nulls,
		.outcome = outcome,
		.started = started,
		.result = result,
		.error = error
	});
}

/*
 * Concludes a task that was not run.  The caller has just deleted the task's row.  error is NULL
 * unless the task counts as failed.
 */
void
dw_conclude_row(Relation rel, HeapTuple tuple, const DwTaskKey *key, DwOutcome outcome,
				const ErrorData *error)
{
	DwEnded		ended = {.key = key, .outcome = outcome, .error = error};
	Datum	   *values;
	bool	   *nulls;

	dw_deform(rel, tuple, &values, &nulls);
	ended.values = values;
	ended.nulls = nulls;
	dw_conclude(&ended);
}

/*
 * Counts the cancellation of a task, and informs sessions that wait for the task.  To be called
 * when a claim has found that a mark (delay_cancel_all) has hit the task.  The claim's transaction
 * changes nothing: the sweeper removes the row.
 */
void
dw_task_was_cancelled(DwDatabase *db, const DwEntry *entry)
{
	dw_count_end(db, &dw_lanes[entry->lane], DW_CANCELLED);
	dw_each_wing(wing, end_committed)
		wing->end_committed(db, entry->id, DW_CANCELLED);
	dw_each_wing(wing, end_visible)
		wing->end_visible(db, entry->id);
	dw_crashes_end(db->oid, entry->id, 0);
}

/*---- The end of an attempt without success ----*/

/* Returns the error's context after the SQL and the position in the SQL, as psql shows them. */
static char *
whole_context(const ErrorData *error)
{
	if (error->internalquery == NULL || error->internalpos <= 0)
		return error->context;
	return psprintf("at character %d of: %s%s%s", error->internalpos, error->internalquery,
					error->context ? "\n" : "", error->context ? error->context : "");
}

/*
 * Returns the error's hint.  If the task has failed because its procedure commits, the hint names
 * the modes in which a procedure can commit.
 */
static char *
hint_of(const DwClaim *claim, const ErrorData *error)
{
	if (error->hint == NULL && error->sqlerrcode == ERRCODE_INVALID_TRANSACTION_TERMINATION &&
		dw_mode(claim->values, claim->nulls) == DW_IN_TRANSACTION)
		return pstrdup("A procedure that commits can be a task with mode => 'at_most_once' or 'at_least_once', see delay_schedule_task().");
	return error->hint;
}

/*
 * Ends a claimed task as failed: writes a row of failed_task with the error, and concludes the
 * task.  attempts: number of attempts, including this attempt.  started: when this attempt began; 0
 * if the task was not run.
 */
void
dw_attempt_fail(const DwClaim *claim, int attempts, TimestampTz started, const ErrorData *error)
{
	ErrorData	recorded = *error;

	DW_INJECT("record-before-insert");
	recorded.hint = hint_of(claim, error);
	recorded.context = whole_context(error);
	dw_failed_write(claim->values, claim->nulls, attempts, dw_now(), &recorded);
	dw_conclude_claim(claim, DW_FAILED, started, (DwSpiResult) {0}, error);

	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("delay_wheel task %lld failed: %s", (long long) claim->key.id,
					dw_error_message(error))));
}

/* Returns true if the task holds back later tasks of its group; delay_run_due() ignores this. */
static bool
holds_group_back(const DwClaim *claim)
{
	if ((dw_this_executor == NULL && !claim->key.is_message) || claim->nulls[Anum_task_group_key - 1])
		return false;
	return dw_queue_holds_groups(claim->key.queue);
}

/* Inserts the row of a claimed task again.  A task that holds its group back keeps its place. */
static void
put_back(DwClaim *claim, TimestampTz again_at)
{
	DwHint		hint = {.id = claim->key.id};
	Relation	rel;

	if (holds_group_back(claim))
	{
		dw_more_set_number(claim->values, claim->nulls, Anum_task_more, DW_MORE_NOT_BEFORE, again_at);
		/* a leased message gets back its place from before the lease */
		claim->values[Anum_task_due - 1] = TimestampTzGetDatum(dw_claim_first_due(claim));
	}
	else
		claim->values[Anum_task_due - 1] = TimestampTzGetDatum(again_at);
	hint.due = DatumGetTimestampTz(claim->values[Anum_task_due - 1]);
	dw_row_end_lease(claim->nulls);
	/* the task's local due time was for the attempt that has ended */
	dw_more_remove(claim->values, claim->nulls, Anum_task_more, DW_MORE_LOCAL);

	DW_INJECT("retry-before-insert");
	/* the hint at the end of the transaction needs the database's place in shared memory */
	hint.lane = dw_lane_if_any(claim->key.owner, claim->key.queue, claim->key.priority);
	rel = dw_tasks_open();
	hint.tid = dw_task_insert(rel, claim->values, claim->nulls);
	table_close(rel, NoLock);
	dw_touch_row(&hint, DW_TOUCH_WRITTEN);
}

/* Puts back a claimed task after a run that began at "started" and failed with this error. */
static void
put_back_failed(DwClaim *claim, TimestampTz again_at, TimestampTz started, const ErrorData *error)
{
	dw_conclude_claim(claim, DW_RETRIED, started, (DwSpiResult) {0}, error);
	dw_keep_error(claim->values, claim->nulls, error);
	put_back(claim, again_at);
}

/*
 * Puts back a claimed task that has called delay_snooze() and has run without an error.  The task
 * is due at "due", its number of attempts stays the same, and the history gets no row.  If a newer
 * task of the key takes the task's place, does nothing and returns false.
 */
bool
dw_attempt_snooze(Relation rel, DwClaim *claim, TimestampTz due)
{
	int64		newer;
	int64		before;
	bool		allowed = dw_key_retry_allowed(rel, claim->tuple, &newer);

	if (allowed)
	{
		if (!dw_more_number(claim->values, claim->nulls, Anum_task_more, DW_MORE_SNOOZES, &before))
			before = 0;
		dw_more_set_number(claim->values, claim->nulls, Anum_task_more, DW_MORE_SNOOZES, before + 1);
		put_back(claim, due);
	}
	/* other tasks of its group may come first now, or must not begin */
	if (allowed && !claim->nulls[Anum_task_group_key - 1])
		dw_batch_is_closed = true;
	/* release the lock now, since the transaction may be long */
	if (!claim->nulls[Anum_task_key - 1])
		dw_key_leave();
	return allowed;
}

/*
 * Puts back a claimed task for another attempt at "due".  failed: the number of failed attempts,
 * including this attempt (less than max_attempts).  started: when this attempt began.
 */
void
dw_attempt_retry(DwClaim *claim, TimestampTz due, int failed, TimestampTz started,
				 const ErrorData *error)
{
	/* the number fits, since max_attempts is a smallint */
	claim->values[Anum_task_attempts - 1] = Int16GetDatum(failed);
	claim->nulls[Anum_task_attempts - 1] = false;
	put_back_failed(claim, due, started, error);
	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("delay_wheel task %lld failed and will be tried again: %s",
					(long long) claim->key.id, dw_error_message(error)),
			 errdetail("This was attempt %d of %d; the next one is due at %s.",
					   failed, claim->terms.max_attempts, timestamptz_to_str(due))));
}

/*
 * Puts back a claimed task that has lost a connection to another node for the lost-th time.  Many
 * tasks may lose connections at once, so each process logs at most one such error in LOST_LOG_US.
 */
void
dw_attempt_lost(DwClaim *claim, TimestampTz due, int64 lost, TimestampTz started,
				const ErrorData *error)
{
	static TimestampTz logged = 0;
	TimestampTz now = dw_now();

	dw_more_set_number(claim->values, claim->nulls, Anum_task_more, DW_MORE_LOST, lost);
	put_back_failed(claim, due, started, error);
	if (now >= logged && now < logged + LOST_LOG_US)
		return;
	logged = now;
	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("delay_wheel task %lld has lost a connection to another node and will be run again: %s",
					(long long) claim->key.id, dw_error_message(error)),
			 errdetail("The next run is due at %s.", timestamptz_to_str(due))));
}

/* Adds a sentence to the detail of an error. */
void
dw_error_add_detail(ErrorData *error, const char *sentence)
{
	error->detail = psprintf("%s%s%s", error->detail ? error->detail : "",
							 error->detail ? "\n" : "", sentence);
}

/*
 * Ends a failed attempt.  Puts the task back, due at "due", or after the task's pause if due is
 * DW_NEVER.  But gives the task up if give_up is true, if no attempt is left, or if a newer task of
 * its key exists.  Also gives up an SQL task whose options allow no other attempt after this error.
 * Returns DW_RETRIED or DW_FAILED.  claim->key.attempts does not count this attempt.  May change
 * *error.
 */
DwOutcome
dw_attempt_end(Relation rel, DwClaim *claim, TimestampTz due, bool give_up, TimestampTz started,
			   ErrorData *error)
{
	int			failed = claim->key.attempts + 1;
	int64		newer = 0;
	bool		again = !give_up && failed < claim->terms.max_attempts;
	char	   *refusal = NULL;
	DwRetry		retry;

	if (again)
	{
		dw_retry_read(claim->key.queue, claim->values, claim->nulls, &retry);
		if (!claim->key.is_message)
			refusal = dw_retry_refusal(&retry, error->sqlerrcode);
	}
	if (refusal != NULL)
	{
		dw_error_add_detail(error, refusal);
		again = false;
	}
	if (again)
	{
		again = dw_key_retry_allowed(rel, claim->tuple, &newer);
		if (again && due == DW_NEVER)
			due = dw_next_attempt(&claim->terms, &retry, failed);
		if (again)
			dw_attempt_retry(claim, due, failed, started, error);
		else
			dw_error_add_detail(error,
								psprintf("The task was not tried again, since task %lld of the same key is newer.",
										 (long long) newer));
		/* release the lock now, since the transaction may be long */
		if (!claim->nulls[Anum_task_key - 1])
			dw_key_leave();
	}
	if (!again)
		dw_attempt_fail(claim, failed, started, error);
	return again ? DW_RETRIED : DW_FAILED;
}
