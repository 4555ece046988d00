/*-------------------------------------------------------------------------
 *
 * pending.c
 *	  A pending task is taken by a session, and older ones of its key are given up.
 *
 * Run by sessions that cancel, reschedule or run a task, and by executors that claim
 * a task with a key.  A task that is taken is gone from the table when the
 * transaction commits; what its end causes is up to the caller.  Tasks with the same
 * key that are older than a claimed one are superseded: they go to the failed tasks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/errors.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/outcome.h"
#include "../shmem/shared.h"
#include "../shmem/writers.h"
#include "../task/key_lock.h"
#include "../task/marks.h"
#include "../task/my_session.h"
#include "../task/rights.h"
#include "../task/row_lock.h"
#include "conclude.h"
#include "pending.h"

/*
 * Moves a superseded task to the failed ones.  Not if somebody has locked it:
 * then it is left to its own claim.
 */
static void
bury(Relation rel, const DwKeyRow *row, int64 newer)
{
	Datum	   *values;
	bool	   *nulls;
	DwHint		hint;
	ErrorData	error = {
		.sqlerrcode = DW_ERRCODE_SUPERSEDED,
		.message = DW_SUPERSEDED_MESSAGE,
		.detail = psprintf("It is task %lld.", (long long) newer)
	};

	if (dw_row_delete(rel, &row->task, &hint) != TM_Ok)
		return;
	dw_deform(rel, row->tuple, &values, &nulls);
	dw_failed_write(values, nulls, row->task.attempts, dw_now(), &error);
	dw_conclude_row(rel, row->tuple, &row->task, DW_FAILED, &error);
}

/* Not those that others are just changing. */
static void
bury_older(Relation rel, List *rows, int64 id)
{
	ListCell   *lc;

	foreach(lc, rows)
	{
		DwKeyRow	   *row = (DwKeyRow *) lfirst(lc);

		if (row->task.id < id && !TransactionIdIsValid(row->inserter) &&
			!TransactionIdIsValid(row->deleter))
			bury(rel, row, id);
	}
}

static void
dw_key_bury_older(Relation rel, HeapTuple tuple)
{
	DwKey		key;
	DwTaskKey	task;

	if (!dw_key_of(rel, tuple, &key))
		return;
	dw_task_key(rel, tuple, &task);
	bury_older(rel, dw_key_rows(rel, &key), task.id);
}

/*
 * The key has been locked since before the deletion: who looks at it later
 * takes the task for running, so that must be settled by then.  No retry of an
 * older one is on its way either, see dw_key_retry_allowed().
 */
bool
dw_key_claimed(Relation rel, HeapTuple tuple)
{
	DwKey		key;
	DwTaskKey	task;
	List	   *rows;

	if (!dw_key_of(rel, tuple, &key))
		return true;
	dw_task_key(rel, tuple, &task);
	dw_executor_forget_refused(task.id);
	rows = dw_key_rows(rel, &key);
	if (dw_key_superseder(rows, &task) != NULL)
		return false;
	bury_older(rel, rows, task.id);
	return true;
}

/*
 * One attempt at that, with a row that was just found.  If *again, it may have
 * been changed meanwhile: somebody was at it, who was waited for.
 */
DwTaken
dw_take_found(Relation rel, HeapTuple tuple, const DwTaskKey *key, DwHint *hint, bool *again)
{
	TM_Result	result;

	*again = false;
	dw_require_task_owner(key->id, key->owner);
	dw_writes_for(key->owner);
	/* not pending any more; but it may have begun before */
	if (dw_task_is_cancelled(rel, tuple) || dw_task_is_superseded(rel, tuple))
		return dw_row_is_claimed(rel, key) ? DW_RUNNING : DW_GONE;

	result = dw_row_delete(rel, key, hint);
	if (result == TM_Ok)
	{
		/* or one of them would be the newest now */
		dw_key_bury_older(rel, tuple);
		return DW_TAKEN;
	}
	/* deleted by plain SQL in this very command */
	if (result == TM_SelfModified)
		return DW_GONE;
	if (result == TM_BeingModified && !dw_row_wait(rel, key))
		return DW_RUNNING;
	*again = true;
	return DW_GONE;
}

/*
 * Deletes the row of a pending task, having waited for whoever else changes
 * it.  The table is open, locked for writing.  On success *tuple is a copy of
 * the row, *key says what is in it, and *hint is what to tell of it.  An error
 * if the current user has not the rights of the owner.
 */
DwTaken
dw_take_pending(Relation rel, int64 id, HeapTuple *tuple, DwTaskKey *key, DwHint *hint)
{
	if (dw_executor_runs_here(id))
		return DW_RUNNING;

	for (;;)
	{
		Snapshot	snapshot;
		DwTaken		state;
		bool		again;
		uint32		ended = dw_autonomous_ended();
		Oid			owner;

		CHECK_FOR_INTERRUPTS();
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		*tuple = dw_task_find(rel, id, snapshot);
		UnregisterSnapshot(snapshot);
		if (*tuple == NULL)
		{
			if (dw_executor_runs_autonomous(id, &owner))
			{
				dw_require_task_owner(id, owner);
				return DW_RUNNING;
			}
			/* it may have been running at that time, and be put back */
			if (ended != dw_autonomous_ended())
				continue;
			return DW_GONE;
		}
		dw_task_key(rel, *tuple, key);
		state = dw_take_found(rel, *tuple, key, hint, &again);
		if (!again)
			return state;
		heap_freetuple(*tuple);
	}
}
