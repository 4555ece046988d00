/*-------------------------------------------------------------------------
 *
 * settle.c
 *	  Settling a run: recording its outcome, or putting its task back.
 *
 * Run by executors.  A run leads to an outcome (struct DwRun).  The executor settles
 * the run with dw_settle() in the transaction that has deleted the task's row (the
 * claim): the task is concluded (conclude.c), recorded as failed, or put back for
 * another attempt.  After the commit, dw_settled() counts the outcome.  Tasks that run
 * alone, in a batch or with a mode are all settled here.
 *
 * A task that is put back is a new row with the same id and a later due time.  Other
 * processes see a task that was rescheduled (C0 to C3 of the model, at the end of this
 * transaction).  An executor that still has an entry with the old due time forgets the
 * entry when it sees the new row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "../base/clock.h"
#include "../base/errors.h"
#include "../base/inject.h"
#include "../ending/conclude.h"
#include "../ending/keys.h"
#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../shmem/lanes.h"
#include "../shmem/stats.h"
#include "../shmem/stop.h"
#include "../shmem/suspects.h"
#include "../shmem/waiters.h"
#include "../task/attempts.h"
#include "../task/ended.h"
#include "../task/my_session.h"
#include "../task/touched.h"
#include "settle.h"

/* The error of a task whose verdict is DW_REFUSE, in the current memory context. */
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

/*
 * True if the verdict of the claim lets the task run.  Else fills in the outcome in
 * *run, and for a refusal the error, in the current memory context.
 */
bool
dw_is_to_be_run(DwRun *run, const DwClaim *claim)
{
	run->was_run = false;
	run->error = NULL;
	run->attempts = claim->key.attempts;
	switch (claim->verdict)
	{
		case DW_RUN:
			return true;
		case DW_DROP:
			run->outcome = DW_CANCELLED;
			break;
		case DW_PUT_BACK:
			run->outcome = DW_NOT_ENDED;
			break;
		case DW_REFUSE:
			run->outcome = DW_FAILED;
			run->error = refusal(claim);
			break;
		case DW_SKIP:
			run->outcome = DW_SKIPPED;
			break;
	}
	return false;
}

/* Concludes a claimed task.  error goes to its history and follow-up; it may be NULL. */
static void
conclude(const DwRun *run, const DwClaim *claim, const ErrorData *error)
{
	const DwEnded ended = {
		.key = &claim->key,
		.values = claim->values,
		.nulls = claim->nulls,
		.outcome = run->outcome,
		.started = run->was_run ? run->started : 0,
		.result = run->result,
		.error = error
	};

	dw_conclude(&ended);
}

/*---- Failures ----*/

/* The error's context, with the SQL and the position in it, as psql would show them. */
static char *
whole_context(const ErrorData *error)
{
	if (error->internalquery == NULL || error->internalpos <= 0)
		return error->context;
	return psprintf("at character %d of: %s%s%s", error->internalpos, error->internalquery,
					error->context ? "\n" : "", error->context ? error->context : "");
}

/*
 * The error's hint.  If the task has failed because its procedure commits, the hint
 * tells of modes, in which a procedure can commit.
 */
static char *
hint_of(const DwClaim *claim, const ErrorData *error)
{
	if (error->hint == NULL && error->sqlerrcode == ERRCODE_INVALID_TRANSACTION_TERMINATION &&
		dw_mode(claim->values, claim->nulls) == DW_IN_TRANSACTION)
		return pstrdup("A procedure that commits can be a task with mode => 'at_most_once' or 'at_least_once', see delay_schedule_task().");
	return error->hint;
}

/* Ends a task as failed: writes its row of failed_task, with the error, and concludes it. */
static void
record_failure(const DwRun *run, const DwClaim *claim, const ErrorData *error)
{
	ErrorData	recorded = *error;

	DW_INJECT("record-before-insert");
	recorded.hint = hint_of(claim, error);
	recorded.context = whole_context(error);
	dw_failed_write(claim->values, claim->nulls, run->attempts + (run->was_run ? 1 : 0), dw_now(),
					&recorded);
	conclude(run, claim, error);

	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("delay_wheel task %lld failed: %s", (long long) claim->key.id,
					dw_error_message(error))));
}

/* Writes the task's row again, with the due time of its next attempt. */
static void
put_claimed_back(const DwRun *run, DwClaim *claim)
{
	const ErrorData *error = run->error;
	int			failed = run->attempts + 1;
	DwHint		hint = {.id = claim->key.id, .lane = dw_lane_ref(&dw_lanes[run->entry.lane])};
	Relation	rel;
	Datum	   *values = claim->values;
	bool	   *nulls = claim->nulls;

	conclude(run, claim, error);
	hint.due = dw_next_attempt(&claim->terms, failed);
	values[Anum_task_due - 1] = TimestampTzGetDatum(hint.due);
	/* fits: failed is less than max_attempts, which is a smallint */
	values[Anum_task_attempts - 1] = Int16GetDatum(failed);
	nulls[Anum_task_attempts - 1] = false;
	dw_keep_error(values, nulls, error);

	DW_INJECT("retry-before-insert");
	/* enters the database in shared memory; the end of the transaction hints there */
	(void) dw_my_database();
	rel = dw_tasks_open();
	hint.tid = dw_task_insert(rel, values, nulls);
	table_close(rel, NoLock);
	dw_touch_row(&hint, DW_TOUCH_WRITTEN);

	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("delay_wheel task %lld failed and will be tried again: %s",
					(long long) claim->key.id, dw_error_message(error)),
			 errdetail("This was attempt %d of %d; the next one is due at %s.",
					   failed, claim->terms.max_attempts, timestamptz_to_str(hint.due))));
}

/*
 * True if the failed task may be tried again.  A role that cancels a running task
 * wants no other attempt, so only a cancel by the task's timeout allows one.
 */
static bool
has_attempts_left(const DwRun *run, const DwClaim *claim)
{
	return run->attempts + 1 < claim->terms.max_attempts &&
		(run->error->sqlerrcode != ERRCODE_QUERY_CANCELED || run->timed_out);
}

/*
 * Makes *error say which role has stopped the task.  If the task had failed already
 * before it was stopped, the detail keeps this first error.
 */
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
 * Puts a failed task back for another attempt, or records its failure.  If it is put
 * back, no session can stop the task from this decision to the end of the transaction.
 */
static void
settle_failed_run(DwDatabase *db, DwExecutor *me, DwRun *run, DwClaim *claim)
{
	ErrorData	said = *run->error;
	bool		again = has_attempts_left(run, claim);
	int64		newer = 0;

	if (again)
	{
		Relation	rel = table_open(dw_catalog()->task, RowExclusiveLock);

		again = dw_key_retry_allowed(rel, claim->tuple, &newer);
		table_close(rel, NoLock);
	}
	if (again && dw_stop_forbid(db, me))
	{
		run->outcome = DW_RETRIED;
		put_claimed_back(run, claim);
		return;
	}
	run->outcome = DW_FAILED;
	if (dw_stop_requested(me))
		explain_stop(db, me, &said);
	else if (newer != 0)
		said.detail = psprintf("%s%sThe task was not tried again, since task %lld of the same key is newer.",
							   said.detail ? said.detail : "", said.detail ? "\n" : "",
							   (long long) newer);
	record_failure(run, claim, &said);
}

/*---- All outcomes ----*/

/*
 * Records the outcome of a run, with all that follows from it, in the transaction
 * that has deleted the task's row.  run->outcome DW_FAILED becomes DW_RETRIED if the
 * task is put back.  An error undoes the transaction; the caller may then claim the
 * task and settle the run again in another transaction.
 */
void
dw_settle(DwDatabase *db, DwExecutor *me, DwRun *run, DwClaim *claim)
{
	switch (run->outcome)
	{
		case DW_DONE:
		case DW_SKIPPED:
		case DW_CANCELLED:
			conclude(run, claim, NULL);
			break;
		case DW_FAILED:
		case DW_RETRIED:
			if (run->was_run)
				settle_failed_run(db, me, run, claim);
			else
				record_failure(run, claim, run->error);
			break;
		case DW_NOT_ENDED:
			Assert(false);
			break;
	}
}

/*
 * To be called after the commit of the transaction that has settled the run.  Counts
 * the outcome, and clears the task of the suspicion that it crashed the server.
 */
void
dw_settled(DwDatabase *db, const DwRun *run)
{
	dw_count_end(db, &dw_lanes[run->entry.lane], run->outcome);
	dw_crashes_end(db->oid, run->entry.id, 0);
}

/*
 * To be called when a claim has found that a mark (delay_cancel_all) has hit the task.
 * The claim's transaction changes nothing; the sweeper removes the row.  Counts the
 * cancellation, and tells sessions that wait for the task.
 */
void
dw_task_was_cancelled(DwDatabase *db, const DwEntry *entry)
{
	dw_count_end(db, &dw_lanes[entry->lane], DW_CANCELLED);
	dw_tell_waiters(db, entry->id, DW_CANCELLED);
	dw_let_waiters_go(db, entry->id);
	dw_crashes_end(db->oid, entry->id, 0);
}
