/*-------------------------------------------------------------------------
 *
 * settle.c
 *	  Settling a run: recording its outcome, or putting its task back.
 *
 * Run by executors, for all kinds of tasks: alone, in a batch, or with a mode.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor.h"

/* Returns the error of a task whose verdict is DW_REFUSE, in the current memory context. */
static ErrorData *
refusal(const DwClaim *claim)
{
	ErrorData  *error = palloc0(sizeof(ErrorData));

	error->sqlerrcode = claim->sqlstate;
	error->message = pstrdup(claim->reason);
	if (error->sqlerrcode == DW_ERRCODE_CRASHED)
		error->hint = "The server's log says how. When the cause is mended, put the task back by delay_retry().";
	return error;
}

/* Returns true if the verdict allows the run.  Otherwise fills in the outcome, and the error. */
bool
dw_is_to_be_run(DwRun *run, const DwClaim *claim)
{
	static const DwOutcome outcomes[] = {
		[DW_DROP] = DW_CANCELLED,
		[DW_PUT_BACK] = DW_NOT_ENDED,
		[DW_REFUSE] = DW_FAILED,
		[DW_SKIP] = DW_SKIPPED
	};

	run->was_run = false;
	run->error = claim->verdict == DW_REFUSE ? refusal(claim) : NULL;
	run->attempts = claim->key.attempts;
	if (claim->verdict == DW_RUN)
		return true;
	run->outcome = outcomes[claim->verdict];
	return false;
}

/* Returns the start of the run; 0 if it did not begin. */
static TimestampTz
started_of(const DwRun *run)
{
	return run->was_run ? run->started : 0;
}

/* Concludes a claimed task that has not failed. */
static void
conclude(const DwRun *run, const DwClaim *claim)
{
	dw_conclude_claim(claim, run->outcome, started_of(run), run->result, NULL);
}

/*---- Failures ----*/

/* Makes *error name the role that stopped the task.  An earlier error becomes the detail. */
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

/*
 * Returns the time of the next run of a task that has lost its connection to another node (for the
 * *lost-th time), or DW_NEVER.  Such a run is no attempt: give_up_on applies, but not retry_on.
 */
static TimestampTz
next_connection(const DwRun *run, const DwClaim *claim, const DwRetry *retry, int64 *lost)
{
	int64		before;

	if (!run->undone || !dw_is_lost_connection(run->error->sqlerrcode) ||
		dw_retry_gives_up(retry, run->error->sqlerrcode))
		return DW_NEVER;
	if (!dw_more_number(claim->values, claim->nulls, Anum_task_more, DW_MORE_LOST, &before))
		before = 0;
	*lost = before + 1;
	return dw_next_connection(*lost, run->error->sqlerrcode);
}

/*
 * Puts a failed task back for another run, or records its failure.  If the task is put back, no
 * session can stop it from this decision until the end of the transaction.
 */
static void
settle_failed_run(DwDatabase *db, DwExecutor *me, DwRun *run, DwClaim *claim)
{
	ErrorData	said = *run->error;
	Relation	rel = dw_claim_open();
	int64		newer = 0;
	int64		lost = 0;
	TimestampTz reconnect;
	bool		again;
	bool		allowed;
	char	   *refusal = NULL;
	DwRetry		retry;

	dw_retry_read(claim->key.queue, claim->values, claim->nulls, &retry);
	reconnect = next_connection(run, claim, &retry, &lost);
	again = reconnect != DW_NEVER;
	/* after a cancel by a role there is no other attempt, unlike after the task's timeout */
	if (!again && run->attempts + 1 < claim->terms.max_attempts &&
		(run->error->sqlerrcode != ERRCODE_QUERY_CANCELED || run->timed_out))
	{
		refusal = dw_retry_refusal(&retry, run->error->sqlerrcode);
		again = refusal == NULL;
	}
	allowed = again && dw_key_retry_allowed(rel, claim->tuple, &newer);
	table_close(rel, NoLock);
	if (allowed && dw_stop_forbid(db, me))
	{
		run->outcome = DW_RETRIED;
		if (reconnect != DW_NEVER)
			dw_attempt_lost(claim, reconnect, lost, started_of(run), run->error);
		else
			dw_attempt_retry(claim, dw_next_attempt(&claim->terms, &retry, run->attempts + 1),
							 run->attempts + 1, started_of(run), run->error);
		return;
	}
	run->outcome = DW_FAILED;
	if (dw_stop_requested(me))
		explain_stop(db, me, &said);
	else if (newer != 0)
		dw_error_add_detail(&said, psprintf("The task was not tried again, since task %lld of the same key is newer.",
								   (long long) newer));
	else if (again && me->is_last)
		dw_error_add_detail(&said, "The task was not tried again, as delay_cancel() had asked for.");
	else if (refusal != NULL)
		dw_error_add_detail(&said, refusal);
	dw_attempt_fail(claim, run->attempts + (run->was_run ? 1 : 0), started_of(run), &said);
}

/*
 * Puts a task that has called delay_snooze() back.  It counts as cancelled if a newer task of its
 * key takes its place, or if a session wants to stop it.  No session can stop a task of a batch.
 */
static void
settle_snoozed_run(DwDatabase *db, DwExecutor *me, DwRun *run, DwClaim *claim)
{
	Relation	rel = dw_claim_open();

	if ((me->in_batch || dw_stop_forbid(db, me)) &&
		dw_attempt_snooze(rel, claim, run->result.again_at))
		run->outcome = DW_NOT_ENDED;
	else
		run->outcome = DW_CANCELLED;
	table_close(rel, NoLock);
	if (run->outcome == DW_CANCELLED)
		conclude(run, claim);
}

/*---- All outcomes ----*/

/*
 * Records the outcome of a run, in the transaction that has deleted the task's row.  If the task is
 * put back, sets run->outcome to DW_RETRIED after a failure, or to DW_NOT_ENDED after
 * delay_snooze().
 */
void
dw_settle(DwDatabase *db, DwExecutor *me, DwRun *run, DwClaim *claim)
{
	Assert(run->outcome != DW_NOT_ENDED);
	if (run->outcome == DW_DONE && run->result.again_at != 0)
		settle_snoozed_run(db, me, run, claim);
	else if (run->outcome != DW_FAILED && run->outcome != DW_RETRIED)
		conclude(run, claim);
	else if (run->was_run)
		settle_failed_run(db, me, run, claim);
	else
		dw_attempt_fail(claim, run->attempts, 0, run->error);
}

/*
 * To be called at the commit of the transaction that has settled the run.  Counts the outcome, and
 * ends the suspicion that the task crashed the server.  Cannot fail.
 */
void
dw_settled(DwDatabase *db, const DwRun *run)
{
	dw_count_end(db, &dw_lanes[run->entry.lane], run->outcome);
	dw_crashes_end(db->oid, run->entry.id, 0);
}
