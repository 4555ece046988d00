/*-------------------------------------------------------------------------
 *
 * pending.c
 *	  Taking the rows of pending tasks, and the lanes that new ones enter.
 *
 * Run by backends that schedule, cancel, reschedule or run tasks, and by
 * executors whose tasks do so.
 *
 * A task is found by its id with a snapshot taken just then, whatever the
 * isolation level: it may have been moved by a transaction that was open
 * when ours began.  Its row's lock decides between this transaction, other
 * ones, and an executor's claim (steps T1 to T3 of the model).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/xact.h"
#include "executor.h"
#include "inject.h"
#include "keys.h"
#include "lanes.h"
#include "marks.h"
#include "miscadmin.h"
#include "pending.h"
#include "settings.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "touched.h"
#include "utils/acl.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

/* What SQL would check for a statement that writes. */
void
dw_require_writable(const char *function)
{
	dw_require_shared();
	PreventCommandDuringRecovery(function);
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	if (InSecurityRestrictedOperation())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot execute %s within security-restricted operation", function)));
}

/*
 * The lane of a task, entered if need be.  The last one is remembered: most
 * sessions schedule into one lane only.
 */
static bool
enter_lane(Oid owner, int16 queue, int16 priority, DwLaneRef *lane)
{
	static DwLaneRef last;
	static Oid	last_owner = InvalidOid;
	static int16 last_queue;
	static int16 last_priority;
	DwDatabase *db = dw_my_database();

	if (last_owner != owner || last_queue != queue || last_priority != priority ||
		pg_atomic_read_u32(&dw_lanes[last.index].generation) != last.generation)
	{
		last_owner = InvalidOid;
		if (db == NULL || !dw_lane_enter(db, owner, queue, priority, &last))
			return false;
		last_owner = owner;
		last_queue = queue;
		last_priority = priority;
	}
	*lane = last;
	return true;
}

/* Stands for none: it never was, so the timer looks for all there are. */
static const DwLaneRef no_lane = {0, 0};

/*
 * The lane of a new task.  If all places are taken, the timer is given a
 * second to find one that is not needed any more.
 */
DwLaneRef
dw_require_lane(Oid owner, int16 queue, int16 priority)
{
	DwLaneRef	lane;
	DwDatabase *db = dw_my_database();

	if (db == NULL)
	{
		dw_warn_no_place();
		return no_lane;
	}

	for (int i = 0; i < 100; i++)
	{
		if (enter_lane(owner, queue, priority, &lane))
			return lane;
		dw_wake_timer(db, DW_AWAKE);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many combinations of owner, queue and priority have pending tasks: the limit of %d is reached",
					dw_max_lanes),
			 errhint("Increase \"%s\" and restart the server.", "delay_wheel.max_lanes")));
}

static void
require_owner(const DwTaskKey *key)
{
	if (!has_privs_of_role(GetUserId(), key->owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for task %lld", (long long) key->id),
				 errdetail("Only members of the role that scheduled the task, and superusers, may change it.")));
}

/*
 * Waits for the transaction that holds the row, without becoming the next
 * holder: an executor that comes in between is to be told, not waited for.
 */
static TM_Result
wait_for_holder(Relation rel, HeapTuple tuple, TransactionId holder, TM_FailureData *failure)
{
	/*
	 * Several holders, who locked the row by plain SQL: queue up as usual. Or
	 * our own transaction has locked it so: then there is nobody to wait for.
	 */
	if ((tuple->t_data->t_infomask & HEAP_XMAX_IS_MULTI) ||
		TransactionIdIsCurrentTransactionId(holder))
		return heap_delete(rel, &tuple->t_self, GetCurrentCommandId(true),
						   InvalidSnapshot, true, failure, false);

	XactLockTableWait(holder, rel, &tuple->t_self, XLTW_Delete);
	return TM_BeingModified;
}

/* Remembers the row as it is, for the case that this is rolled back. */
static void
touch_locked(const DwTaskKey *key, DwHint *hint)
{
	hint->id = key->id;
	hint->due = key->due;
	hint->tid = key->tid;
	if (enter_lane(key->owner, key->queue, key->priority, &hint->lane))
		dw_touch_locked(hint);
	else
	{
		/* more lanes, or databases, than places: the timer must look for it */
		hint->lane = no_lane;
		dw_touch_all();
	}
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
		TM_FailureData failure;
		TM_Result	result;

		CHECK_FOR_INTERRUPTS();
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		*tuple = dw_task_find(rel, id, snapshot);
		UnregisterSnapshot(snapshot);
		if (*tuple == NULL)
			return DW_GONE;
		dw_task_key(rel, *tuple, key);
		require_owner(key);
		if (dw_executor_has_claimed(id, *tuple))
			return DW_RUNNING;
		if (dw_task_is_cancelled(rel, *tuple) || dw_task_is_superseded(rel, *tuple))
			return DW_GONE;

		/* before the deletion: from then on a claim may forget the task */
		touch_locked(key, hint);
		DW_INJECT("take-before-delete");
		result = heap_delete(rel, &key->tid, GetCurrentCommandId(true),
							 InvalidSnapshot, false, &failure, false);
		if (result == TM_BeingModified)
		{
			if (dw_executor_claims(id, failure.xmax))
				return DW_RUNNING;
			result = wait_for_holder(rel, *tuple, failure.xmax, &failure);
		}
		if (result == TM_Ok)
			return DW_TAKEN;
		/* deleted by plain SQL in this very command */
		if (result == TM_SelfModified)
			return DW_GONE;

		/* changed or moved meanwhile: look again */
		heap_freetuple(*tuple);
	}
}
