/*-------------------------------------------------------------------------
 *
 * row_lock.c
 *	  Locking and deleting the rows of pending tasks.
 *
 * Run by sessions that schedule, cancel, reschedule or run tasks, and by executors whose tasks do
 * so.
 *
 * The lock of a row decides which transaction gets the task: a claim, a cancel or a move (steps T1
 * to T3 of the model in test/model).  At every isolation level, callers find the row with a new
 * snapshot: another transaction may have moved the task since this transaction began.  A claim that
 * meets a locked row forgets the task.  So a transaction that locks a row first notes a hint, which
 * the timer gets when the lock is gone (touched.c).
 *
 * Tasks with a mode run outside of a transaction (executor/autonomous.c).  While such a task runs,
 * its row is in failed_task (at_most_once), or in delay_wheel_data.task without a lock
 * (at_least_once).  An advisory lock of the task's id, and notes of the executor in shared memory,
 * protect the row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"

#include "../base/inject.h"
#include "task.h"

/* Class (field 4) of the advisory locks of task ids; see key_lock.c for other classes. */
#define TASK_LOCK_CLASS	0xDE1B

/*---- Rows, and the transactions that hold them ----*/

/* The open transactions that have deleted or locked a row. */
typedef struct Holders
{
	bool		ours;			/* this transaction has deleted or locked the row */
	int			n;				/* number of other transactions */
	TransactionId *others;
	TransactionId deleter;		/* the transaction that has deleted the row, or invalid */
} Holders;

/* Finds the open transactions that have deleted or locked a row. */
static Holders
row_holders(Relation rel, const ItemPointerData *tid)
{
	Holders		result = {0};
	Buffer		buffer = ReadBuffer(rel, ItemPointerGetBlockNumber(tid));
	Page		page = BufferGetPage(buffer);
	HeapTupleHeader header;
	uint16		infomask;
	MultiXactMember *holders = palloc(sizeof(MultiXactMember));
	int			nholders = 1;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	header = (HeapTupleHeader) PageGetItem(page, PageGetItemId(page,
															   ItemPointerGetOffsetNumber(tid)));
	infomask = header->t_infomask;
	holders[0].xid = HeapTupleHeaderGetRawXmax(header);
	UnlockReleaseBuffer(buffer);

	if (infomask & HEAP_XMAX_INVALID)
		return result;
	holders[0].status = HEAP_XMAX_IS_LOCKED_ONLY(infomask) ? MultiXactStatusForUpdate :
		MultiXactStatusUpdate;
	if (infomask & HEAP_XMAX_IS_MULTI)
		nholders = GetMultiXactIdMembers(holders[0].xid, &holders, false,
										 HEAP_XMAX_IS_LOCKED_ONLY(infomask));
	result.others = palloc(sizeof(TransactionId) * Max(nholders, 1));
	for (int i = 0; i < nholders; i++)
		if (TransactionIdIsCurrentTransactionId(holders[i].xid))
			result.ours = true;
		else if (TransactionIdIsInProgress(holders[i].xid))
		{
			result.others[result.n++] = holders[i].xid;
			if (ISUPDATE_from_mxstatus(holders[i].status))
				result.deleter = holders[i].xid;
		}
	return result;
}

/* Returns true if this transaction has locked or deleted the row. */
bool
dw_row_is_locked_here(Relation rel, const DwTaskKey *key)
{
	return row_holders(rel, &key->tid).ours;
}

/*
 * Returns true if, in one of the transactions, an executor runs this task alone, or a session has
 * received this message.
 */
static bool
one_claims(const DwTaskKey *key, const Holders *holders)
{
	if (key->is_message)
		return TransactionIdIsValid(holders->deleter) && dw_xid_receives(holders->deleter);
	for (int i = 0; i < holders->n; i++)
		if (dw_executor_claims(key->id, holders->others[i]))
			return true;
	return false;
}

/*
 * Returns true if an executor is running the task.  If the executor runs a batch (several tasks in
 * one transaction), first waits for the end of the batch, which takes a short time.
 */
bool
dw_row_is_claimed(Relation rel, const DwTaskKey *key)
{
	ItemPointerData tid = key->tid;
	Holders		holders = row_holders(rel, &tid);

	/*
	 * check this after reading the holders: an executor that keeps a row notes this before it
	 * unlocks the row
	 */
	if (dw_executor_keeps(key->id))
		return true;

	for (int i = 0; i < holders.n; i++)
		if (dw_xid_is_batch(holders.others[i]))
		{
			XactLockTableWait(holders.others[i], rel, &tid, XLTW_Delete);
			holders = row_holders(rel, &tid);
			i = -1;
		}
	return one_claims(key, &holders);
}

/*
 * Waits for the transactions that have locked or deleted the row of a task.  Does not lock the row:
 * the caller must notice if an executor claims the task afterwards, and must not wait for the
 * executor.  Returns false, without waiting, if an executor is running the task, or a session has
 * received the message.
 */
bool
dw_row_wait(Relation rel, const DwTaskKey *key)
{
	ItemPointerData tid = key->tid;
	Holders		holders = row_holders(rel, &tid);

	if (one_claims(key, &holders) || dw_executor_keeps(key->id))
		return false;
	for (int i = 0; i < holders.n; i++)
		XactLockTableWait(holders.others[i], rel, &tid, XLTW_Delete);
	return true;
}

/* Notes a row that is about to be locked, so that the timer gets a hint. */
static void
touch_row(const DwTaskKey *key, DwTouchKind kind)
{
	DwHint		hint = {
		.id = key->id,
		.due = key->due,
		.tid = key->tid,
		.lane = dw_lane_if_any(key->owner, key->queue, key->priority)
	};

	dw_touch_row(&hint, kind);
	dw_touch_group(key->queue, key->group);
}

/*
 * Deletes the row of a task.  Does not wait for other transactions, except shortly for the advisory
 * lock of a task that may have a mode.  rel is delay_wheel_data.task, opened and locked for
 * writing.  *key: the row that was just found.
 *
 * Returns TM_Ok, or the reason why the row was not deleted: TM_BeingModified if another transaction
 * has locked it or an executor is running the task.  If this transaction is rolled back, the timer
 * gets a hint of the old row.
 */
TM_Result
dw_row_delete(Relation rel, const DwTaskKey *key)
{
	ItemPointerData tid = key->tid;
	TM_Result	result;

	/* note this first: during the deletion, an executor may fail to claim the task and forget it */
	touch_row(key, dw_task_lease_lasts(key) ? DW_TOUCH_LEASE_LOCKED : DW_TOUCH_LOCKED);
	if (key->has_more && !dw_autonomous_enter(key->id, true))
		return TM_BeingModified;
	DW_INJECT("take-before-delete");
	result = dw_heap_delete(rel, &tid, false);
	if (result == TM_BeingModified)
	{
		Holders		holders = row_holders(rel, &tid);

		/* heap_delete() ignores our own lock only if it may wait */
		if (holders.n == 0 && holders.ours)
			result = dw_heap_delete(rel, &tid, true);
	}
	if (key->has_more)
		dw_autonomous_leave(key->id);
	return result;
}

/*
 * Locks this version of a row of any table.  With LockWaitSkip, returns TM_WouldBlock if another
 * transaction has locked the row.  See heap_lock_tuple() for other results.
 */
TM_Result
dw_row_lock(Relation rel, ItemPointerData tid, LockTupleMode mode, LockWaitPolicy wait)
{
	HeapTupleData tuple = {.t_self = tid};
	TM_FailureData failure;
	Buffer		buffer;
	TM_Result	result;

	result = heap_lock_tuple(rel, &tuple, GetCurrentCommandId(true), mode, wait, false, &buffer,
							 &failure);
	ReleaseBuffer(buffer);
	return result;
}

/*
 * Locks the row of a task until the end of the transaction.  Until then no executor claims the
 * task, and no other transaction changes the row.  Does not wait for other transactions.  rel and
 * *key: see dw_row_delete().  Returns TM_Ok, or the reason why the row was not locked.
 */
TM_Result
dw_row_keep(Relation rel, const DwTaskKey *key)
{
	touch_row(key, DW_TOUCH_KEPT);
	return dw_row_lock(rel, key->tid, LockTupleKeyShare, LockWaitSkip);
}

/*---- Tasks with a mode ----*/

static LOCKTAG
task_lock_tag(int64 id)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) ((uint64) id >> 32), (uint32) id,
						 TASK_LOCK_CLASS);
	return tag;
}

/*
 * Takes the advisory lock of a task that may have a mode.  Each process takes this lock before it
 * deletes the row of such a task, and then calls dw_autonomous_leave().  The executor that runs the
 * task needs no lock.
 *
 * Returns false, without the lock, if an executor is running the task: then the caller must not
 * change the row.  If wait is false, also returns false if another process has the lock.
 */
bool
dw_autonomous_enter(int64 id, bool wait)
{
	LOCKTAG		tag = task_lock_tag(id);

	if (LockAcquire(&tag, ExclusiveLock, false, !wait) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	if (!dw_executor_keeps(id))
		return true;
	LockRelease(&tag, ExclusiveLock, false);
	return false;
}

/* Releases the lock that dw_autonomous_enter() has taken. */
void
dw_autonomous_leave(int64 id)
{
	LOCKTAG		tag = task_lock_tag(id);

	LockRelease(&tag, ExclusiveLock, false);
}

/*
 * Does the same as dw_row_delete(), for timer and sweeper, but never waits.  Notes no hint of the
 * row: if timer or sweeper cannot delete a row, they will find the row again.
 */
TM_Result
dw_row_remove(Relation rel, const DwTaskKey *key)
{
	ItemPointerData tid = key->tid;
	TM_Result	result;

	if (key->has_more && !dw_autonomous_enter(key->id, false))
		return TM_BeingModified;
	result = dw_heap_delete(rel, &tid, false);
	if (key->has_more)
		dw_autonomous_leave(key->id);
	if (result == TM_Ok)
		dw_touch_group(key->queue, key->group);
	if (dw_task_lease_lasts(key))
		dw_touch_leases();
	return result;
}

/* Returns true if failed_task (rel) has a row of this task with the wanted key. */
static bool
failed_task_has_key(Relation rel, int64 id, const DwKey *wanted)
{
	TupleDesc	desc = RelationGetDescr(rel);
	ListCell   *lc;

	foreach(lc, dw_failed_rows(rel, id, NULL))
	{
		HeapTuple	tuple = (HeapTuple) lfirst(lc);
		bool		isnull;
		Oid			owner = DatumGetObjectId(heap_getattr(tuple, Anum_failed_owner, desc, &isnull));
		int16		queue = DatumGetInt16(heap_getattr(tuple, Anum_failed_queue, desc, &isnull));
		Datum		text = heap_getattr(tuple, Anum_failed_key, desc, &isnull);

		if (!isnull && owner == wanted->owner && queue == wanted->queue &&
			DatumGetBool(DirectFunctionCall2Coll(texteq, DEFAULT_COLLATION_OID, text,
												 PointerGetDatum(wanted->key))))
			return true;
	}
	return false;
}

/*
 * Returns true if an executor is running a task of this key with mode at_most_once, whose row is
 * meanwhile not in delay_wheel_data.task.
 */
bool
dw_autonomous_has_key(const DwKey *key)
{
	Relation	rel = NULL;
	bool		found = false;

	for (uint32 i = 0; i < dw_shared->nexecutors && !found; i++)
	{
		uint64		id = pg_atomic_read_u64(&dw_executors[i].autonomous);

		if (id == 0 || dw_executors[i].database != MyDatabaseId)
			continue;
		if (rel == NULL)
			rel = table_open(dw_catalog()->failed, AccessShareLock);
		found = failed_task_has_key(rel, (int64) id, key);
	}
	if (rel != NULL)
		table_close(rel, AccessShareLock);
	return found;
}

/*
 * Returns a counter that changes when a task with mode at_most_once has ended or was put back.  If
 * a process finds neither the row of a task nor an executor that runs the task, and the counter has
 * changed meanwhile, the process must look again.
 */
uint32
dw_autonomous_ended(void)
{
	DwDatabase *db = dw_my_database();

	return db == NULL ? 0 : pg_atomic_read_u32(&db->autonomous_ended);
}

/*---- Locks of whole tables ----*/

/*
 * Returns true if one of the relations cannot be locked for writing at once, since another
 * transaction has a conflicting lock, or waits for such a lock.
 */
bool
dw_lock_is_wanted(const Oid *relations, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (!ConditionalLockRelationOid(relations[i], RowExclusiveLock))
			return true;
		UnlockRelationOid(relations[i], RowExclusiveLock);
	}
	return false;
}

/* Returns true if the lock is on one of these relations of this database. */
bool
dw_is_one_of(const LOCKTAG *tag, const Oid *relations, int n)
{
	if (tag->locktag_type != LOCKTAG_RELATION || tag->locktag_field1 != MyDatabaseId)
		return false;
	for (int i = 0; i < n; i++)
		if (tag->locktag_field2 == relations[i])
			return true;
	return false;
}

/* Returns true if a lock held in the modes of this mask conflicts with the wanted mode. */
bool
dw_locks_conflict(LOCKMASK held, LOCKMODE wanted)
{
	for (LOCKMODE mode = 1; mode <= MaxLockMode; mode++)
		if ((held & LOCKBIT_ON(mode)) && DoLockModesConflict(mode, wanted))
			return true;
	return false;
}

/*
 * Returns the pid of a process that waits for this transaction's lock on a table of tasks, or 0.
 * While such a process waits, no task runs, since executors queue behind it.
 */
pid_t
dw_who_waits_for_us(void)
{
	const DwCatalog *cat = dw_catalog();
	const Oid	relations[] = {cat->task, cat->task_id_seq, cat->failed};
	LockData   *data = GetLockStatusData();

	for (int h = 0; h < data->nelements; h++)
	{
		LockInstanceData *ours = &data->locks[h];

		if (ours->pid != MyProcPid || !dw_is_one_of(&ours->locktag, relations, lengthof(relations)))
			continue;
		for (int w = 0; w < data->nelements; w++)
		{
			LockInstanceData *waiter = &data->locks[w];

			if (waiter->waitLockMode != NoLock && waiter->pid != MyProcPid &&
				memcmp(&ours->locktag, &waiter->locktag, sizeof(LOCKTAG)) == 0 &&
				dw_locks_conflict(ours->holdMask, waiter->waitLockMode))
				return waiter->pid;
		}
	}
	return 0;
}
