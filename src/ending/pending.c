/*-------------------------------------------------------------------------
 *
 * pending.c
 *	  Taking the row of a pending task, and burying older tasks of its key.
 *
 * Run by sessions that cancel, reschedule or run a task, and by executors that claim a task with a
 * key.  To take a task means to delete its row in the session's transaction; the caller concludes
 * the task if it has ended.  To bury a superseded task means to delete its row and to record it as
 * failed.  To move or change a task means to take it and insert its row again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "ending.h"

/*
 * Buries one superseded task.  If another transaction has locked the row, does nothing: a later
 * claim of the task will find that the task is superseded.
 */
static void
bury(Relation rel, const DwKeyRow *row, int64 newer)
{
	Datum	   *values;
	bool	   *nulls;
	ErrorData	error = {
		.sqlerrcode = DW_ERRCODE_SUPERSEDED,
		.message = DW_SUPERSEDED_MESSAGE,
		.detail = psprintf("It is task %lld.", (long long) newer)
	};

	if (dw_row_delete(rel, &row->task) != TM_Ok)
		return;
	dw_deform(rel, row->tuple, &values, &nulls);
	dw_failed_write(values, nulls, row->task.attempts, dw_now(), &error);
	dw_conclude_row(rel, row->tuple, &row->task, DW_FAILED, &error);
}

/*
 * Buries the rows of a key that have lower ids than this id, except leased messages and rows that
 * other open transactions insert or delete.
 */
static void
bury_older(Relation rel, List *rows, int64 id)
{
	ListCell   *lc;

	foreach(lc, rows)
	{
		DwKeyRow	   *row = (DwKeyRow *) lfirst(lc);

		if (row->task.id < id && !TransactionIdIsValid(row->inserter) &&
			!TransactionIdIsValid(row->deleter) && !dw_task_lease_lasts(&row->task))
			bury(rel, row, id);
	}
}

/*
 * Called by an executor after the deletion of a row with a key.  Returns false if a newer task
 * supersedes the task.  Otherwise buries the older tasks of its key.
 *
 * The caller has had the key's lock since before the deletion: later, sessions that schedule the key
 * see the task as running.  Meanwhile no older task of the key can be put back for a retry, which
 * needs the lock, too.
 */
bool
dw_key_claimed(Relation rel, HeapTuple tuple)
{
	DwKey		key;
	DwTaskKey	task;
	List	   *rows;

	if (!dw_key_of(rel, tuple, &key, &task))
		return true;
	dw_executor_forget_refused(task.id);
	rows = dw_key_rows(rel, &key);
	if (dw_key_superseder(rows, &task) != NULL)
		return false;
	bury_older(rel, rows, task.id);
	return true;
}

/*
 * Tries once to take the pending task whose row was just found; arguments and result are as in
 * dw_take_pending().  If another transaction had locked the row, waits for the end of that
 * transaction and sets *again to true: the caller must find the row again.
 */
DwTakeResult
dw_take_found(Relation rel, HeapTuple tuple, const DwTaskKey *key, bool *again)
{
	TM_Result	result;
	bool		cancelled;
	DwKey		own_key;
	DwTaskKey	task;

	*again = false;
	dw_require_task_owner(key->id, key->owner);
	dw_writes_for(key->owner);
	/* the task is not pending, but an executor may have claimed it before the mark */
	cancelled = dw_task_is_cancelled(rel, tuple);
	if (!cancelled && dw_task_lease_lasts(key))
		return DW_RUNNING;
	if (cancelled || dw_task_is_superseded(rel, tuple))
		return dw_row_is_claimed(rel, key) ? DW_RUNNING : DW_GONE;

	result = dw_row_delete(rel, key);
	if (result == TM_Ok)
	{
		/* otherwise an older task would become the newest task of the key */
		if (dw_key_of(rel, tuple, &own_key, &task))
			bury_older(rel, dw_key_rows(rel, &own_key), task.id);
		return DW_TAKEN;
	}
	/* plain SQL in the current command has deleted the row */
	if (result == TM_SelfModified)
		return DW_GONE;
	if (result == TM_BeingModified && !dw_row_wait(rel, key))
		return DW_RUNNING;
	*again = true;
	return DW_GONE;
}

/*
 * Deletes the row of a pending task.  First waits for other transactions that change the row.  rel
 * is open and locked in RowExclusiveLock.
 *
 * If the result is DW_TAKEN, sets *tuple to a copy of the row, and *key to its main columns.
 * Raises an error if the current user does not have the rights of the task's owner.
 */
DwTakeResult
dw_take_pending(Relation rel, int64 id, HeapTuple *tuple, DwTaskKey *key)
{
	if (OidIsValid(dw_owner_of_task_here(id)))
		return DW_RUNNING;

	for (;;)
	{
		DwTakeResult state;
		bool		again;
		uint32		ended = dw_autonomous_ended();
		Oid			owner;

		CHECK_FOR_INTERRUPTS();
		*tuple = dw_task_find(rel, id, NULL);
		if (*tuple == NULL)
		{
			if (dw_executor_runs_autonomous(id, &owner))
			{
				dw_require_task_owner(id, owner);
				return DW_RUNNING;
			}
			/* look again: a task outside of a transaction has ended, maybe this task */
			if (ended != dw_autonomous_ended())
				continue;
			return DW_GONE;
		}
		dw_task_key(rel, *tuple, key);
		state = dw_take_found(rel, *tuple, key, &again);
		if (!again)
			return state;
		heap_freetuple(*tuple);
	}
}

/*
 * Inserts the row of a pending task again, with the same id and other columns.  This transaction
 * has deleted the old row.  lane: the lane of the new row.  Raises an error if the task could never
 * expire.  The caller may have the lock of the task's key.
 */
void
dw_pending_rewrite(Relation rel, Datum *values, bool *nulls, DwLaneRef lane)
{
	DwHint		hint = {
		.id = DatumGetInt64(values[Anum_task_id - 1]),
		.due = DatumGetTimestampTz(values[Anum_task_due - 1]),
		.lane = lane
	};

	if (!nulls[Anum_task_expires - 1])
		dw_check_expires(hint.due, values[Anum_task_expires - 1]);
	/* if a lease has ended, a late call of its receiver must not count any more */
	dw_row_end_lease(nulls);
	/* a mark that did not hit the task before the change must not hit it now */
	dw_marks_spare(values, nulls);
	hint.tid = dw_task_insert_again(rel, values, nulls);
	dw_touch_row(&hint, DW_TOUCH_WRITTEN);
}

/*
 * Gives a pending task another due time, after this transaction has deleted the task's row (old).
 * Removes the task's local due time, if any.
 */
void
dw_pending_move(Relation rel, HeapTuple old, const DwTaskKey *key, TimestampTz due)
{
	Datum	   *values;
	bool	   *nulls;

	dw_deform(rel, old, &values, &nulls);
	values[Anum_task_due - 1] = TimestampTzGetDatum(due);
	dw_more_remove(values, nulls, Anum_task_more, DW_MORE_NOT_BEFORE);
	dw_more_remove(values, nulls, Anum_task_more, DW_MORE_LOCAL);
	dw_pending_rewrite(rel, values, nulls, dw_lane_if_any(key->owner, key->queue, key->priority));
}
