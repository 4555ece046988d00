/*-------------------------------------------------------------------------
 *
 * row_lock.c
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

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/procarray.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "../base/inject.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "my_session.h"
#include "row_lock.h"
#include "touched.h"

/* See keys.c for others. */
#define TASK_LOCK_CLASS	0xDE1B

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
	if (dw_lane_find_or_enter(key->owner, key->queue, key->priority, &hint->lane))
		return true;
	/* more lanes, or databases, than places */
	hint->lane = dw_no_lane;
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

static LOCKTAG
lock_of(int64 id)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) ((uint64) id >> 32), (uint32) id,
						 TASK_LOCK_CLASS);
	return tag;
}

bool
dw_autonomous_enter(int64 id, bool wait)
{
	LOCKTAG		tag = lock_of(id);

	if (LockAcquire(&tag, ExclusiveLock, false, !wait) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	if (!dw_executor_keeps(id))
		return true;
	LockRelease(&tag, ExclusiveLock, false);
	return false;
}

void
dw_autonomous_leave(int64 id)
{
	LOCKTAG		tag = lock_of(id);

	LockRelease(&tag, ExclusiveLock, false);
}

/* Of the row that stands in failed_task instead. */
static bool
is_of_key(Relation rel, int64 id, Snapshot snapshot, const DwKey *wanted)
{
	TupleDesc	desc = RelationGetDescr(rel);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	ScanKeyInit(&key, Anum_failed_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	scan = systable_beginscan(rel, dw_catalog()->failed_pkey, true, snapshot, 1, &key);
	while (!found && (tuple = systable_getnext(scan)) != NULL)
	{
		bool		isnull;
		Oid			owner = DatumGetObjectId(heap_getattr(tuple, Anum_failed_owner, desc, &isnull));
		int16		queue = DatumGetInt16(heap_getattr(tuple, Anum_failed_queue, desc, &isnull));
		Datum		text = heap_getattr(tuple, Anum_failed_key, desc, &isnull);

		found = !isnull && owner == wanted->owner && queue == wanted->queue &&
			DatumGetBool(DirectFunctionCall2Coll(texteq, DEFAULT_COLLATION_OID, text,
												 PointerGetDatum(wanted->key)));
	}
	systable_endscan(scan);
	return found;
}

/* Does an executor run a task of this key whose row is gone? */
bool
dw_autonomous_has_key(const DwKey *key)
{
	Relation	rel = NULL;
	Snapshot	snapshot = NULL;
	bool		found = false;

	for (uint32 i = 0; i < dw_shared->nexecutors && !found; i++)
	{
		uint64		id = pg_atomic_read_u64(&dw_executors[i].autonomous);

		if (id == 0 || dw_executors[i].database != MyDatabaseId)
			continue;
		if (rel == NULL)
		{
			rel = table_open(dw_catalog()->failed, AccessShareLock);
			snapshot = RegisterSnapshot(GetLatestSnapshot());
		}
		found = is_of_key(rel, (int64) id, snapshot, key);
	}
	if (rel != NULL)
	{
		UnregisterSnapshot(snapshot);
		table_close(rel, AccessShareLock);
	}
	return found;
}

uint32
dw_autonomous_ended(void)
{
	DwDatabase *db = dw_my_database();

	return db == NULL ? 0 : pg_atomic_read_u32(&db->autonomous_ended);
}

/* Is a lock that a task may have wanted by somebody?  Ours, too. */
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

bool
dw_locks_conflict(LOCKMASK held, LOCKMODE wanted)
{
	for (LOCKMODE mode = 1; mode <= MaxLockMode; mode++)
		if ((held & LOCKBIT_ON(mode)) && DoLockModesConflict(mode, wanted))
			return true;
	return false;
}

/*
 * Who waits for a lock of this transaction that keeps tasks from running; 0 if nobody does.
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
