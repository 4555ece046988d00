/*-------------------------------------------------------------------------
 *
 * keys.c
 *	  Keys: at most one pending task for each owner, queue and key.
 *
 * Run by sessions that schedule and cancel by key, and by executors.  README.md has the rules: what
 * a row of the key means, kept tasks, superseded tasks.
 *
 * A session that moves a task inserts the new row under the lock of the key (task/key_lock.c), too.
 * Otherwise a scan could miss both rows: it could pass the place of the new row before the
 * insertion, and then find the old row deleted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "ending.h"

/* Longest time that a session waits for an executor that could not claim the row. */
#define COURTESY_US		(50 * 1000)

/*
 * Waits until an executor has claimed the task, but at most COURTESY_US: all executors may be busy,
 * or two transactions may each have kept a task that the other transaction wants to keep.
 */
static void
let_executor_go_first(int64 id)
{
	static uint32 wait_event = 0;
	int64		until = dw_uptime() + COURTESY_US;

	/* other events set the latch, too */
	while (dw_uptime() < until && dw_executor_was_refused(id))
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1,
						 dw_wait_event(wait_event, "DelayWheelKey"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	dw_executor_forget_refused(id);
}

/* The result of one attempt to settle a key with a pending task. */
typedef enum Settled
{
	SETTLED,					/* the task is kept, or its row is deleted */
	SETTLE_AGAIN,				/* another transaction has the row: wait, and look again */
	SETTLE_LATER				/* an executor must go first */
} Settled;

/* Returns when the task begins: when due, or later if it has failed and kept its group's place. */
static TimestampTz
begins_at(Relation rel, const DwKeyRow *row)
{
	return Max(row->task.due, dw_task_not_before(rel, row->tuple, &row->task));
}

/* Returns the outcome of scheduling a task whose key is pending, by if_exists. */
static DwScheduled
outcome_of(Relation rel, const DwNewTask *new, const DwKeyRow *row)
{
	TimestampTz due = dw_new_task_due(new, row->task.id);

	if (dw_replaces(new->if_exists))
		return DW_REPLACED;
	if ((new->if_exists == DW_EARLIER && due < begins_at(rel, row)) ||
		(new->if_exists == DW_LATER && due > begins_at(rel, row)))
		return DW_MOVED;
	return DW_KEPT;
}

/* Keeps the pending task of a key, or deletes its row, by if_exists.  Needs the key's lock. */
static Settled
settle_key(Relation rel, const DwKey *key, const DwKeyRow *row, DwNewTask *new)
{
	const DwTaskKey *task = &row->task;

	if (new->if_exists == DW_RAISE)
		ereport(ERROR,
				(errcode(ERRCODE_UNIQUE_VIOLATION),
				 errmsg("a task with key \"%s\" is already pending", text_to_cstring(key->key)),
				 errdetail("It is task %lld.", (long long) task->id),
				 errhint("With if_exists => 'keep' or 'replace' this is no error.")));
	new->outcome = outcome_of(rel, new, row);
	if (new->outcome != DW_KEPT)
	{
		if (dw_row_delete(rel, task) != TM_Ok)
			return SETTLE_AGAIN;
		if (new->outcome == DW_MOVED)
			new->due = dw_new_task_due(new, task->id);
		else
			dw_conclude_row(rel, row->tuple, task, DW_CANCELLED, NULL);
		if (new->if_exists == DW_REPLACE_KEEP_DUE)
		{
			new->due = task->due;
			new->spread = 0;
			if (!new->nulls[Anum_task_expires - 1])
				dw_check_expires(new->due, new->values[Anum_task_expires - 1]);
			dw_more_remove(new->values, new->nulls, Anum_task_more, DW_MORE_LOCAL);
		}
		return SETTLED;
	}

	/* no executor can claim the task before the end of this transaction anyway */
	if (TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(row->tuple->t_data)) ||
		dw_row_is_locked_here(rel, task))
		return SETTLED;
	if (task->due <= dw_now() && dw_executor_was_refused(task->id))
		return SETTLE_LATER;
	return dw_row_keep(rel, task) == TM_Ok ? SETTLED : SETTLE_AGAIN;
}

/*
 * Takes the lock of a key and reads the rows of the key.  Returns the newest row of this database's
 * own tasks, or NULL.  Sets *open to the transaction that is inserting or deleting this row.
 */
static DwKeyRow *
lock_and_look(Relation rel, const DwKey *key, List **rows, TransactionId *open)
{
	DwKeyRow   *row;

	CHECK_FOR_INTERRUPTS();
	dw_key_lock(key);
	*rows = dw_key_rows(rel, key);
	row = dw_key_newest(*rows, false);
	if (row != NULL)
		*open = TransactionIdIsValid(row->inserter) ? row->inserter : row->deleter;
	return row;
}

/*
 * Called for a task with unique_for.  The caller has the key's lock.  pending: id of the key's
 * pending task, or 0.  Returns false if no period of another task of the key lasts.  Otherwise
 * releases the lock and returns true.  If an open transaction begins or ends the period, waits for
 * the transaction, and sets *row to NULL.  Otherwise sets the outcome to DW_REFUSED, and *row to a
 * row with the other task's id, or raises an error if if_exists is DW_RAISE.
 */
static bool
period_lasts(const DwKey *key, int64 pending, DwNewTask *new, DwKeyRow **row)
{
	DwPeriod	period;

	if (!dw_period_find(key, pending, &period))
		return false;
	dw_key_leave();
	*row = NULL;
	if (TransactionIdIsValid(period.open))
	{
		dw_period_wait(&period);
		return true;
	}
	if (new->if_exists == DW_RAISE)
		ereport(ERROR,
				(errcode(ERRCODE_UNIQUE_VIOLATION),
				 errmsg("a task with key \"%s\" was scheduled within the period for which it is unique",
						text_to_cstring(key->key)),
				 errdetail("It is task %lld. The period ends at %s.", (long long) period.id,
						   timestamptz_to_str(period.until)),
				 errhint("With if_exists => 'keep' this is no error.")));
	new->outcome = DW_REFUSED;
	*row = palloc0(sizeof(DwKeyRow));
	(*row)->task.id = period.id;
	return true;
}

/*
 * Prepares the insertion of a new task with a key.  Sets the task's outcome, and its due time if
 * the pending task decides it.  rel is open and locked in RowExclusiveLock.  Returns the row of the
 * pending task of the key; NULL if no task is pending.
 *
 * If the outcome is DW_KEPT, no executor begins the pending task before the end of this
 * transaction.  If the outcome is DW_REFUSED, the result contains only the id of the ended task
 * whose period of unique_for lasts.  Otherwise the pending task's row is deleted, and the caller
 * holds the key's lock.  The caller inserts the new row (for DW_MOVED: the pending task's row
 * again), and then calls dw_key_leave().  Other processes that use the key wait until then.  Raises
 * an error if a task is pending, or a period lasts, and if_exists is DW_RAISE.
 */
DwKeyRow *
dw_key_enter(Relation rel, DwNewTask *new)
{
	DwKey		key = {
		.owner = new->owner,
		.queue = new->queue,
		.key = DatumGetTextPP(new->values[Anum_task_key - 1])
	};

	for (;;)
	{
		List	   *rows;
		TransactionId open;
		DwKeyRow   *row = lock_and_look(rel, &key, &rows, &open);
		bool		is_pending = row != NULL && !dw_key_row_is_claimed(row, rows);
		Settled		settled;

		if (new->unique_for != 0 &&
			period_lasts(&key, is_pending ? row->task.id : 0, new, &row))
		{
			if (row != NULL)
				return row;
			continue;
		}
		if (!is_pending)
		{
			new->outcome = DW_NEW;
			return NULL;
		}

		if (TransactionIdIsValid(open))
		{
			dw_key_leave();
			XactLockTableWait(open, rel, &row->task.tid, XLTW_Lock);
			continue;
		}

		DW_INJECT("key-before-settle");
		settled = settle_key(rel, &key, row, new);
		if (settled == SETTLED && new->outcome != DW_KEPT)
			return row;
		dw_key_leave();
		if (settled == SETTLED)
			return row;
		if (settled == SETTLE_LATER)
			let_executor_go_first(row->task.id);
		else
			(void) dw_row_wait(rel, &row->task);
	}
}

/*
 * Prepares to insert the row of a failed task again (delay_retry()), with its old id.  Returns true
 * if the caller may insert the row under the lock, as in dw_key_enter().  Returns false, without
 * the lock, if another task of the key is pending, or a newer task is running.  If wait is false,
 * also returns false if another transaction is changing the key.
 */
bool
dw_key_enter_again(Relation rel, const DwKey *key, int64 id, bool wait)
{
	for (;;)
	{
		List	   *rows;
		TransactionId open;
		DwKeyRow   *row = lock_and_look(rel, key, &rows, &open);
		bool		claimed = row != NULL && dw_key_row_is_claimed(row, rows);

		/* an older running task is no obstacle; a newer running task may still be put back */
		if (row == NULL || (claimed && row->task.id < id))
			return true;

		dw_key_leave();
		if (claimed || !wait || !TransactionIdIsValid(open))
			return false;
		XactLockTableWait(open, rel, &row->task.tid, XLTW_Lock);
	}
}

/*
 * Returns true if this process is an executor and runs a task of the key.  The snapshots of this
 * process do not show the task's row, which the executor has deleted.
 */
static bool
runs_here(Relation rel, const DwKey *key)
{
	HeapTuple	tuple;
	DwKey		own;
	DwTaskKey	task;

	if (dw_this_executor == NULL || dw_this_executor->state != DW_EXECUTOR_BUSY)
		return false;
	tuple = dw_task_find(rel, dw_this_executor->current.id, SnapshotAny);
	return tuple != NULL && dw_key_of(rel, tuple, &own, &task) &&
		own.owner == key->owner && own.queue == key->queue &&
		DatumGetBool(DirectFunctionCall2Coll(texteq, DEFAULT_COLLATION_OID,
											 PointerGetDatum(own.key),
											 PointerGetDatum(key->key)));
}

/*
 * Takes the lock of a key.  Returns the rows of the key except rows that other transactions were
 * inserting during the scan.  If one of these transactions has ended meanwhile, scans again: it may
 * have moved a task, and the scan may have missed the new row.
 */
static List *
lock_committed(Relation rel, const DwKey *key)
{
	for (;;)
	{
		bool		certain = true;
		List	   *rows;
		ListCell   *lc;

		CHECK_FOR_INTERRUPTS();
		dw_key_lock(key);
		rows = dw_key_rows(rel, key);
		foreach(lc, rows)
		{
			TransactionId inserter = ((DwKeyRow *) lfirst(lc))->inserter;

			if (!TransactionIdIsValid(inserter))
				continue;
			certain &= TransactionIdIsInProgress(inserter);
			rows = foreach_delete_current(rows, lc);
		}
		if (certain)
			return rows;
		dw_key_leave();
	}
}

/* Takes the pending task of a key, by committed rows, as dw_take_pending() does by the id. */
DwTakeResult
dw_key_take(Relation rel, const DwKey *key, HeapTuple *tuple, DwTaskKey *task)
{
	for (;;)
	{
		List	   *rows = lock_committed(rel, key);
		DwKeyRow   *row = dw_key_newest(rows, false);
		DwTakeResult state;
		bool		again;

		dw_key_leave();
		if (row == NULL)
			row = dw_key_newest(rows, true);
		if (row == NULL)
			return DW_GONE;
		*tuple = row->tuple;
		*task = row->task;
		/* if the row was not free, look by key again: another task may have replaced this task */
		state = dw_take_found(rel, *tuple, task, &again);
		if (!again)
			return state;
	}
}

/*
 * Cancels the pending task of a key.  Deletes and concludes all rows of the key that are not
 * running, including superseded rows and rows of other origins.  Returns the result for the newest
 * row.  Waits for other transactions that have locked a row.
 */
DwTakeResult
dw_key_cancel(Relation rel, const DwKey *key)
{
	bool		taken = false;

	for (;;)
	{
		uint32		ended = dw_autonomous_ended();
		List	   *rows = lock_committed(rel, key);
		DwKeyRow   *last = dw_key_newest(rows, true);
		DwKeyRow   *busy = NULL;
		DwKeyRow   *cancelled = NULL;
		ListCell   *lc;

		foreach(lc, rows)
		{
			DwKeyRow   *row = (DwKeyRow *) lfirst(lc);

			if (dw_key_row_is_claimed(row, rows))
				continue;
			if (dw_row_delete(rel, &row->task) != TM_Ok)
			{
				busy = row;
				continue;
			}
			dw_conclude_row(rel, row->tuple, &row->task, DW_CANCELLED, NULL);
			/* compare ids, since a task that is being moved has two rows */
			if (row->task.id == last->task.id)
				cancelled = row;
		}
		dw_key_leave();
		taken |= cancelled != NULL;
		if (cancelled != NULL && dw_audits(DW_AUDIT_CONTROL))
			dw_audit_row("cancel", rel, cancelled->tuple, 0, NULL);
		if (busy != NULL)
		{
			(void) dw_row_wait(rel, &busy->task);
			continue;
		}
		if (taken)
			return DW_TAKEN;
		DW_INJECT("key-cancel-rows");
		if (last != NULL || runs_here(rel, key) || dw_autonomous_has_key(key))
			return DW_RUNNING;
		/* a task that ran outside of a transaction may have been put back since */
		if (ended == dw_autonomous_ended())
			return DW_GONE;
	}
}
