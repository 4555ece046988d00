/*-------------------------------------------------------------------------
 *
 * keys.c
 *	  Keys: at most one pending task for each owner, queue and key.
 *
 * Run by backends that schedule and cancel by key, and by executors.
 *
 * No index could be unique: a task that runs is not pending, but its row is
 * there until its transaction ends, and who schedules its key must not wait
 * for that.  So those who look for a pending task and insert one take a lock
 * on the key, for as long as that takes, and look with a dirty snapshot, which
 * shows what open transactions do.  Nobody waits while he holds this lock, and
 * a transaction holds one of them at a time, however many keys it schedules.
 * Who moves a task inserts its row under the lock, too: else a scan could be
 * past the new one when the old one goes.
 *
 * Rows of a key, in the order of their ids:
 *
 * - Being deleted by the executor that runs it: it runs, and does not count.
 * - Hit by a mark of delay_cancel_all(): it does not count either.
 * - Being inserted or deleted by another open transaction: that one's end
 *	 decides, so it is waited for, as UPDATE would.
 * - Else the one with the highest id is the pending task.  Others may be left:
 *	 an executor was terminated while its task had a successor, a dump was
 *	 restored.  They are superseded, and go when a newer one is claimed, or
 *	 when they are claimed themselves.
 * - Of another origin: it is not run until it is armed, so it does not keep
 *	 this database's own tasks from being scheduled, nor supersede them.  A
 *	 newer one of these supersedes it, as it would have where it came from.
 *
 * A task that is kept has its row locked until the end of the transaction, so
 * that its run sees what that transaction did.  There may always be somebody
 * who keeps it, and it would never run; so if an executor was refused, who
 * would keep it next lets the executor go first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup.h"
#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/inject.h"
#include "../ring/ring.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "../task/key_lock.h"
#include "../task/row_lock.h"
#include "conclude.h"
#include "keys.h"
#include "pending.h"

/* How long an executor that was refused is let go first, at most. */
#define COURTESY_MS		50

static bool
is_own_insertion(const DwKeyRow *row)
{
	return TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(row->tuple->t_data));
}

static void
raise_exists(const DwKey *key, const DwKeyRow *row)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNIQUE_VIOLATION),
			 errmsg("a task with key \"%s\" is already pending", text_to_cstring(key->key)),
			 errdetail("It is task %lld.", (long long) row->task.id),
			 errhint("With if_exists => 'keep' or 'replace' this is no error.")));
}

/*
 * Lets an executor claim the task, unless all are busy.  Not longer than that:
 * two transactions might have kept tasks that the other one wants to keep.
 */
static void
let_executor_go_first(int64 id)
{
	static uint32 wait_event = 0;

	for (int i = 0; i < COURTESY_MS && dw_executor_was_refused(id); i++)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1,
						 dw_wait_event(wait_event, "DelayWheelKey"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	dw_executor_forget_refused(id);
}

/* What came of one attempt to settle a key with a pending task. */
typedef enum Settled
{
	SETTLED,
	SETTLE_AGAIN,				/* the row is locked, or has changed */
	SETTLE_LATER				/* an executor is to go first */
} Settled;

static Settled
settle_key(Relation rel, const DwKey *key, const DwKeyRow *row, DwIfExists if_exists)
{
	const DwTaskKey *task = &row->task;
	DwHint		hint;

	if (if_exists == DW_RAISE)
		raise_exists(key, row);
	if (if_exists == DW_REPLACE)
	{
		if (dw_row_delete(rel, task, &hint) != TM_Ok)
			return SETTLE_AGAIN;
		dw_conclude_row(rel, row->tuple, task, DW_CANCELLED, NULL);
		return SETTLED;
	}

	/* nobody else can claim it */
	if (is_own_insertion(row) || dw_row_is_locked_here(rel, task))
		return SETTLED;
	if (task->due <= dw_now() && dw_executor_was_refused(task->id))
		return SETTLE_LATER;
	return dw_row_keep(rel, task) == TM_Ok ? SETTLED : SETTLE_AGAIN;
}

/*
 * Makes room for a new task of the key.  True: the caller is to insert its row
 * and then to call dw_key_leave(), until when others of this key wait.  False:
 * *kept is pending, and will not begin before the end of this transaction.
 * The table is open, locked for writing.
 */
bool
dw_key_enter(Relation rel, const DwKey *key, DwIfExists if_exists, int64 *kept)
{
	for (;;)
	{
		List	   *rows;
		DwKeyRow	   *row;
		TransactionId open;
		Settled		settled;

		CHECK_FOR_INTERRUPTS();
		dw_key_lock(key);
		rows = dw_key_rows(rel, key);
		row = dw_key_newest(rows, false);
		if (row == NULL || dw_key_row_is_claimed(row, rows))
			return true;

		open = TransactionIdIsValid(row->inserter) ? row->inserter : row->deleter;
		if (TransactionIdIsValid(open))
		{
			dw_key_leave();
			XactLockTableWait(open, rel, &row->task.tid, XLTW_Lock);
			continue;
		}

		DW_INJECT("key-before-settle");
		settled = settle_key(rel, key, row, if_exists);
		if (settled == SETTLED && if_exists == DW_REPLACE)
			return true;
		dw_key_leave();
		if (settled == SETTLED)
		{
			*kept = row->task.id;
			return false;
		}
		if (settled == SETTLE_LATER)
			let_executor_go_first(row->task.id);
		else
			(void) dw_row_wait(rel, &row->task);
	}
}

/*
 * The same for a task that has failed and is to be put back.  False: there is
 * another one that is pending, or a newer one that runs.
 */
bool
dw_key_enter_again(Relation rel, const DwKey *key, int64 id)
{
	for (;;)
	{
		List	   *rows;
		DwKeyRow	   *row;
		TransactionId open;
		bool		claimed;

		CHECK_FOR_INTERRUPTS();
		dw_key_lock(key);
		rows = dw_key_rows(rel, key);
		row = dw_key_newest(rows, false);
		claimed = row != NULL && dw_key_row_is_claimed(row, rows);
		/* one that runs would be retried itself, if it is not the older one */
		if (row == NULL || (claimed && row->task.id < id))
			return true;

		open = TransactionIdIsValid(row->inserter) ? row->inserter : row->deleter;
		dw_key_leave();
		if (claimed || !TransactionIdIsValid(open))
			return false;
		XactLockTableWait(open, rel, &row->task.tid, XLTW_Lock);
	}
}

/* Does this very process run a task of the key?  Its row is gone for us. */
static bool
runs_here(Relation rel, const DwKey *key)
{
	HeapTuple	tuple;
	DwKey		own;

	if (dw_this_executor == NULL || dw_this_executor->state != DW_EXECUTOR_BUSY)
		return false;
	tuple = dw_task_find(rel, dw_this_executor->current.id, SnapshotAny);
	return tuple != NULL && dw_key_of(rel, tuple, &own) &&
		own.owner == key->owner && own.queue == key->queue &&
		DatumGetBool(DirectFunctionCall2Coll(texteq, DEFAULT_COLLATION_OID,
											 PointerGetDatum(own.key),
											 PointerGetDatum(key->key)));
}

/*
 * Leaves out what others have not committed.  False if one of them has done so
 * meanwhile: the scan may have been past the row that it moved.
 */
static bool
leave_out_uncommitted(List **rows)
{
	bool		certain = true;
	ListCell   *lc;

	foreach(lc, *rows)
	{
		TransactionId inserter = ((DwKeyRow *) lfirst(lc))->inserter;

		if (!TransactionIdIsValid(inserter))
			continue;
		if (!TransactionIdIsInProgress(inserter))
			certain = false;
		*rows = foreach_delete_current(*rows, lc);
	}
	return certain;
}

/*
 * Cancels the pending task of a key.
 *
 * Deletes all rows of the key that are not running, those that are superseded
 * and of other origins, too.  Returns what became of the newest one.
 */
DwTaken
dw_key_cancel(Relation rel, const DwKey *key)
{
	bool		taken = false;

	for (;;)
	{
		List	   *rows;
		ListCell   *lc;
		DwKeyRow	   *last;
		DwKeyRow	   *busy = NULL;
		uint32		ended = dw_autonomous_ended();

		CHECK_FOR_INTERRUPTS();
		dw_key_lock(key);
		rows = dw_key_rows(rel, key);
		if (!leave_out_uncommitted(&rows))
		{
			dw_key_leave();
			continue;
		}
		last = dw_key_newest(rows, true);
		foreach(lc, rows)
		{
			DwKeyRow	   *row = (DwKeyRow *) lfirst(lc);
			DwHint		hint;

			if (dw_key_row_is_claimed(row, rows))
				continue;
			if (dw_row_delete(rel, &row->task, &hint) != TM_Ok)
			{
				busy = row;
				continue;
			}
			dw_conclude_row(rel, row->tuple, &row->task, DW_CANCELLED, NULL);
			/* not the same row, maybe: it has two while it is being moved */
			if (row->task.id == last->task.id)
				taken = true;
		}
		dw_key_leave();
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
		/* one without a row may have been put back since */
		if (ended == dw_autonomous_ended())
			return DW_GONE;
	}
}

/*
 * For executors whose task has failed: may its row, with the same id, be
 * inserted again?  If not, *newer is the task that is pending or running
 * instead.  The key stays locked until the end of this transaction, which
 * must be near: nothing but the insertion and the commit.
 */
bool
dw_key_retry_allowed(Relation rel, HeapTuple tuple, int64 *newer)
{
	DwKey		key;
	DwTaskKey	task;
	DwKeyRow	   *row;

	if (!dw_key_of(rel, tuple, &key))
		return true;
	dw_task_key(rel, tuple, &task);
	/* left to the end of the transaction */
	dw_key_lock(&key);
	row = dw_key_superseder(dw_key_rows(rel, &key), &task);
	if (row != NULL)
		*newer = row->task.id;
	return row == NULL;
}
