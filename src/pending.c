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
#include "access/multixact.h"
#include "access/xact.h"
#include "autonomous.h"
#include "compat.h"
#include "executor.h"
#include "inject.h"
#include "keys.h"
#include "lanes.h"
#include "marks.h"
#include "miscadmin.h"
#include "my_session.h"
#include "pending.h"
#include "settings.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "touched.h"
#include "utils/acl.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "writers.h"

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
 * second to find one that is not needed any more.  It knows of lanes that are
 * idle; of one whose tasks were cancelled or deleted it thinks that they are yet
 * to come, until it reads all lanes again.
 */
DwLaneRef
dw_require_lane(Oid owner, int16 queue, int16 priority)
{
	static uint32 wait_event = 0;
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
		if (i == 10)
			dw_atomic_lower(&db->reload_from, PG_INT64_MIN);
		dw_wake_timer(db, DW_AWAKE);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10,
						 dw_wait_event(wait_event, "DelayWheelLane"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many combinations of owner, queue and priority have pending tasks: the limit of %d is reached",
					dw_max_lanes),
			 errhint("Increase \"%s\" and restart the server.", "delay_wheel.max_lanes")));
}

/*
 * The same for a task that must not fail: without a place for its lane, the
 * timer is told to look for all there are.
 */
DwLaneRef
dw_lane_if_any(Oid owner, int16 queue, int16 priority)
{
	DwLaneRef	lane;

	if (enter_lane(owner, queue, priority, &lane))
		return lane;
	dw_touch_all();
	return no_lane;
}

static void
require_owner(int64 id, Oid owner)
{
	if (!has_privs_of_role(GetUserId(), owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for task %lld", (long long) id),
				 errdetail("Only members of the role that scheduled the task, and superusers, may change it.")));
}

/*
 * Who has deleted or locked a row and is still at it: *ours says whether that
 * is this transaction, the result is how many others it is.
 */
static int
row_holders(Relation rel, ItemPointer tid, TransactionId **others, bool *ours)
{
	Buffer		buffer = ReadBuffer(rel, ItemPointerGetBlockNumber(tid));
	Page		page = BufferGetPage(buffer);
	HeapTupleHeader header;
	uint16		infomask;
	MultiXactMember *holders = palloc(sizeof(MultiXactMember));
	int			nholders = 1;
	int			n = 0;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	header = (HeapTupleHeader) PageGetItem(page, PageGetItemId(page, ItemPointerGetOffsetNumber(tid)));
	infomask = header->t_infomask;
	holders[0].xid = HeapTupleHeaderGetRawXmax(header);
	UnlockReleaseBuffer(buffer);

	*ours = false;
	*others = NULL;
	if (infomask & HEAP_XMAX_INVALID)
		return 0;
	if (infomask & HEAP_XMAX_IS_MULTI)
		nholders = GetMultiXactIdMembers(holders[0].xid, &holders, false,
										 HEAP_XMAX_IS_LOCKED_ONLY(infomask));
	*others = palloc(sizeof(TransactionId) * Max(nholders, 1));
	for (int i = 0; i < nholders; i++)
		if (TransactionIdIsCurrentTransactionId(holders[i].xid))
			*ours = true;
		else if (TransactionIdIsInProgress(holders[i].xid))
			(*others)[n++] = holders[i].xid;
	return n;
}

/* Has this transaction locked the row? */
bool
dw_row_is_locked_here(Relation rel, const DwTaskKey *key)
{
	ItemPointerData tid = key->tid;
	TransactionId *others;
	bool		ours;

	(void) row_holders(rel, &tid, &others, &ours);
	return ours;
}

/* Is one of these the executor that runs the task? */
static bool
one_claims(int64 id, const TransactionId *xids, int n)
{
	for (int i = 0; i < n; i++)
		if (dw_executor_claims(id, xids[i]))
			return true;
	return false;
}

/* Does an executor run the task just now?  If it is in a batch, that is waited for. */
bool
dw_row_is_claimed(Relation rel, const DwTaskKey *key)
{
	ItemPointerData tid = key->tid;
	TransactionId *others;
	bool		ours;
	int			n = row_holders(rel, &tid, &others, &ours);

	/* after the holders: who keeps the row has said so before it let go of it */
	if (dw_executor_keeps(key->id))
		return true;

	for (int i = 0; i < n; i++)
		if (dw_xid_is_batch(others[i]))
		{
			XactLockTableWait(others[i], rel, &tid, XLTW_Delete);
			n = row_holders(rel, &tid, &others, &ours);
			i = -1;
		}
	return one_claims(key->id, others, n);
}

/*
 * Waits for the transactions that hold the row of a task, without becoming the
 * next holder: an executor that comes in between is to be told, not waited
 * for.  False, at once, if it is an executor that runs the task.
 */
bool
dw_row_wait(Relation rel, const DwTaskKey *key)
{
	ItemPointerData tid = key->tid;
	TransactionId *others;
	bool		ours;
	int			n = row_holders(rel, &tid, &others, &ours);

	if (one_claims(key->id, others, n) || dw_executor_keeps(key->id))
		return false;
	for (int i = 0; i < n; i++)
		XactLockTableWait(others[i], rel, &tid, XLTW_Delete);
	return true;
}

/* What there is to say of a row; false if the timer must look for it. */
static bool
make_hint(const DwTaskKey *key, DwHint *hint)
{
	hint->id = key->id;
	hint->due = key->due;
	hint->tid = key->tid;
	if (enter_lane(key->owner, key->queue, key->priority, &hint->lane))
		return true;
	/* more lanes, or databases, than places */
	hint->lane = no_lane;
	dw_touch_all();
	return false;
}

/*
 * Deletes the row of a task, without waiting for others.  *hint is what to
 * tell of it as it was, which is done if this is rolled back.
 */
TM_Result
dw_row_delete(Relation rel, const DwTaskKey *key, DwHint *hint)
{
	ItemPointerData tid = key->tid;
	TM_FailureData failure;
	TM_Result	result;

	/* before the deletion: from then on a claim may forget the task */
	if (make_hint(key, hint))
		dw_touch_locked(hint);
	if (key->has_more && !dw_autonomous_enter(key->id, true))
		return TM_BeingModified;
	DW_INJECT("take-before-delete");
	result = heap_delete(rel, &tid, GetCurrentCommandId(true),
						 InvalidSnapshot, false, &failure, false);
	if (result == TM_BeingModified)
	{
		TransactionId *others;
		bool		ours;

		/* our own lock alone is no hindrance, but only if it may wait */
		if (row_holders(rel, &tid, &others, &ours) == 0 && ours)
			result = heap_delete(rel, &tid, GetCurrentCommandId(true),
								 InvalidSnapshot, true, &failure, false);
	}
	if (key->has_more)
		dw_autonomous_leave(key->id);
	return result;
}

/*
 * Locks the row of a task until the end of the transaction, so that it is
 * neither claimed nor changed before, without waiting for others.
 */
TM_Result
dw_row_keep(Relation rel, const DwTaskKey *key)
{
	HeapTupleData tuple = {.t_self = key->tid};
	TM_FailureData failure;
	Buffer		buffer;
	DwHint		hint;
	TM_Result	result;

	if (make_hint(key, &hint))
		dw_touch_kept(&hint);
	result = heap_lock_tuple(rel, &tuple, GetCurrentCommandId(true), LockTupleKeyShare,
							 LockWaitSkip, false, &buffer, &failure);
	ReleaseBuffer(buffer);
	return result;
}

DwTaken
dw_take_found(Relation rel, HeapTuple tuple, const DwTaskKey *key, DwHint *hint, bool *again)
{
	TM_Result	result;

	*again = false;
	require_owner(key->id, key->owner);
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
				require_owner(id, owner);
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
