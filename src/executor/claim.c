/*-------------------------------------------------------------------------
 *
 * claim.c
 *	  Claiming tasks: the deletion of their rows.
 *
 * Run by executors, as the role that owns the tasks, for one task
 * (run_task.c) and for several that share a transaction (batch.c).
 *
 * The claim is the deletion of the task's row, before its SQL and in the same
 * transaction: whatever dies, whenever, either both took effect or neither.
 * Two executors may hold the same entry for a moment, and an entry may be
 * stale: the claim decides.  Steps X1 to X4 of the model in test/model.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/smgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/inject.h"
#include "../ring/ring.h"
#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../shmem/committing.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "../shmem/suspects.h"
#include "../shmem/writers.h"
#include "../task/attempts.h"
#include "../task/key_lock.h"
#include "../task/marks.h"
#include "../task/other_nodes.h"
#include "../task/row_lock.h"
#include "claim.h"
#include "session.h"
#include "verdict.h"

#define RECHECK_MIN		(5 * USECS_PER_MINUTE)
#define RECHECK_MAX		USECS_PER_HOUR

/*
 * It is a transaction block, as all that have several statements: other
 * extensions take what runs outside of one for a transaction of its own, and
 * commit its effects on other nodes at once.
 */
void
dw_claim_begin_transaction(void)
{
	SetCurrentStatementStartTimestamp();
	dw_session_start_transaction();
	BeginImplicitTransactionBlock();
	XactIsoLevel = XACT_READ_COMMITTED;
	XactReadOnly = false;
	PushActiveSnapshot(GetTransactionSnapshot());
}

void
dw_claim_snapshot(void)
{
	PopActiveSnapshot();
	PushActiveSnapshot(GetTransactionSnapshot());
}

/*
 * What a task has set is in force at its commit, too: for its deferred
 * triggers, and for settings of the commit itself.  dw_session_clean undoes it.
 */
void
dw_claim_commit_transaction(void)
{
	dw_other_nodes_prepare();
	if (ActiveSnapshotSet())
		PopActiveSnapshot();
	DW_INJECT("run-before-commit");
	EndImplicitTransactionBlock();
	dw_session_commit_transaction();
	DW_INJECT("run-after-commit");
}

/* The table of tasks, open until the end of the transaction at the latest. */
Relation
dw_claim_open(void)
{
	return table_open(dw_catalog()->task, RowExclusiveLock);
}

/* A column of text, as a string; NULL if it is null. */
char *
dw_claim_text(const DwClaim *claim, AttrNumber column)
{
	if (claim->nulls[column - 1])
		return NULL;
	return TextDatumGetCString(claim->values[column - 1]);
}

/*
 * The row is locked, and not by a claim.  If it is a cancel or a reschedule of
 * ours, its end hints the task again.  A lock by plain SQL ends without a word:
 * the timer looks again in some minutes, and later each time as long as it is
 * the same row.
 */
static void
ask_for_recheck(DwDatabase *db, const DwEntry *entry)
{
	DwLane	   *lane = &dw_lanes[entry->lane];

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	lane->recheck_from = Min(lane->recheck_from, entry->due);
	if (lane->recheck_at == DW_NEVER || lane->recheck_id != entry->id)
	{
		lane->recheck_interval = lane->recheck_id != entry->id ? RECHECK_MIN :
			Min(Max(lane->recheck_interval * 2, RECHECK_MIN), RECHECK_MAX);
		lane->recheck_id = entry->id;
		lane->recheck_at = Min(lane->recheck_at, dw_now() + lane->recheck_interval);
	}
	LWLockRelease(dw_ready_lock(db));
	dw_lane_dirty(db, lane);
	dw_wake_timer(db, DW_AWAKE);
}

/* Takes the row apart, once for all who look at it. */
static void
read_claimed_row(Relation rel, DwClaim *claim)
{
	DwTaskKey  *key = &claim->key;
	const Datum *values;

	dw_deform(rel, claim->tuple, &claim->values, &claim->nulls);
	values = claim->values;
	key->id = DatumGetInt64(values[Anum_task_id - 1]);
	key->due = DatumGetTimestampTz(values[Anum_task_due - 1]);
	key->origin = DatumGetInt64(values[Anum_task_origin - 1]);
	key->owner = DatumGetObjectId(values[Anum_task_owner - 1]);
	key->queue = DatumGetInt16(values[Anum_task_queue - 1]);
	key->priority = DatumGetInt16(values[Anum_task_priority - 1]);
	key->attempts = claim->nulls[Anum_task_attempts - 1] ? 0 :
		DatumGetInt16(values[Anum_task_attempts - 1]);
	key->has_more = !claim->nulls[Anum_task_more - 1];
	key->tid = claim->tuple->t_self;
}

/* What there is to say of a row that the caller has deleted. */
void
dw_claim_read(DwDatabase *db, Relation rel, HeapTuple tuple, DwClaim *claim)
{
	claim->tuple = tuple;
	read_claimed_row(rel, claim);
	dw_terms(db, &claim->key, claim->values, claim->nulls, &claim->terms);
}

/* Is it the task that the entry speaks of, unchanged and ours to run? */
static bool
matches_entry(const DwTaskKey *key, const DwEntry *entry)
{
	const DwLane *lane = &dw_lanes[entry->lane];

	return key->id == entry->id && key->due == entry->due &&
		key->owner == lane->owner && key->queue == lane->queue &&
		key->priority == lane->priority && key->origin == dw_origin_stamp();
}

/*
 * A block beyond the end would be an error, not a miss.  What storage manager
 * remembers of the table's size spares us asking the kernel: who makes it
 * smaller has locked the table for himself, and made us forget it.
 */
static bool
has_block(Relation rel, BlockNumber block)
{
	BlockNumber known = RelationGetSmgr(rel)->smgr_cached_nblocks[MAIN_FORKNUM];

	return (known != InvalidBlockNumber && block < known) ||
		block < RelationGetNumberOfBlocks(rel);
}

/* A copy of the row at the entry's tid, or NULL; a stale tid is a miss. */
static HeapTuple
fetch_by_tid(Relation rel, const DwEntry *entry)
{
	HeapTupleData tuple;
	HeapTuple	copy;
	Buffer		buffer;
	bool		isnull;

	if (dw_entry_offset(entry) == InvalidOffsetNumber || !has_block(rel, entry->block))
		return NULL;
	ItemPointerSet(&tuple.t_self, entry->block, dw_entry_offset(entry));
	if (!heap_fetch(rel, GetActiveSnapshot(), &tuple, &buffer, false))
		return NULL;
	/* the place may have been given to another row */
	if (DatumGetInt64(heap_getattr(&tuple, Anum_task_id, RelationGetDescr(rel), &isnull)) == entry->id)
		copy = heap_copytuple(&tuple);
	else
		copy = NULL;
	ReleaseBuffer(buffer);
	return copy;
}

/* X1: before a deletion, so that a cancel knows who holds the row. */
static void
publish_xid(DwExecutor *me)
{
	if (pg_atomic_read_u32(&me->xid) != InvalidTransactionId)
		return;
	pg_atomic_write_u32(&me->xid, GetCurrentTransactionId());
	pg_memory_barrier();
}

/*
 * A claim met the transaction of an executor: has that deleted the row?  Then
 * its end will be heard of.  The SQL of a task may have locked it just so.
 */
static bool
is_deleted_by_executor(Relation rel, const ItemPointerData *tid, TransactionId xmax)
{
	HeapTupleData tuple = {.t_self = *tid};
	Buffer		buffer;
	uint16		infomask;

	if (!dw_xid_is_executor(xmax) || !heap_fetch(rel, SnapshotAny, &tuple, &buffer, false))
		return false;
	infomask = tuple.t_data->t_infomask;
	ReleaseBuffer(buffer);
	return (infomask & HEAP_XMAX_INVALID) == 0 && !HEAP_XMAX_IS_LOCKED_ONLY(infomask);
}

/* X2: tries to delete the row; true if there is nothing more to try. */
static bool
delete_claimed_row(DwDatabase *db, DwExecutor *me, Relation rel, const DwEntry *entry, DwClaim *claim,
		   DwClaimResult *result)
{
	bool		has_key = !claim->nulls[Anum_task_key - 1] && dw_key_lock_of(rel, claim->tuple);
	bool		stays = dw_mode(claim->values, claim->nulls) == DW_AT_LEAST_ONCE;
	TM_FailureData failure;
	TM_Result	deleted;

	if (stays && !dw_autonomous_enter(claim->key.id, true))
	{
		/* another executor runs it, and will hint it again if need be */
		if (has_key)
			dw_key_leave();
		return true;
	}
	DW_INJECT("claim-before-delete");
	deleted = heap_delete(rel, &claim->key.tid, GetCurrentCommandId(true),
						  InvalidSnapshot, false, &failure, false);
	if (deleted == TM_Ok)
	{
		*result = DW_CLAIMED;
		DW_INJECT("claim-after-delete");
		claim->verdict = dw_judge(db, rel, claim->tuple, &claim->key, claim->values,
								  claim->nulls, &claim->sqlstate, &claim->reason);
	}
	/* the key's lock comes before this one, also in another look */
	if (stays && deleted != TM_Ok)
		dw_autonomous_leave(claim->key.id);
	if (has_key)
		dw_key_leave();
	if (deleted == TM_BeingModified &&
		!is_deleted_by_executor(rel, &claim->key.tid, failure.xmax) &&
		!dw_task_is_cancelled(rel, claim->tuple))
	{
		/* what is cancelled is the sweeper's */
		dw_key_claim_refused(me, rel, claim->tuple);
		ask_for_recheck(db, entry);
	}
	return deleted == TM_Ok || deleted == TM_BeingModified;
}

/*
 * Claims the task of an entry that was taken before the active snapshot.  A
 * row that is_wanted, if given, does not want is left alone.
 */
DwClaimResult
dw_claim(DwDatabase *db, DwExecutor *me, Relation rel, const DwEntry *entry,
		 DwIsWanted is_wanted, void *arg, DwClaim *claim)
{
	DwClaimResult result = DW_CLAIM_NOTHING;

	DW_INJECT("claim-before-fetch");
	for (;;)
	{
		claim->tuple = fetch_by_tid(rel, entry);
		/* X3 */
		if (claim->tuple == NULL)
			claim->tuple = dw_task_find(rel, entry->id, GetActiveSnapshot());
		if (claim->tuple == NULL)
		{
			dw_crashes_gone(db->oid, entry->id);
			return DW_CLAIM_NOTHING;
		}
		read_claimed_row(rel, claim);
		if (!matches_entry(&claim->key, entry))
			return DW_CLAIM_NOTHING;
		if (dw_task_is_cancelled(rel, claim->tuple))
			return DW_CLAIM_CANCELLED;
		dw_terms(db, &claim->key, claim->values, claim->nulls, &claim->terms);
		if (is_wanted != NULL && !is_wanted(claim, arg))
			return DW_CLAIM_REJECTED;

		publish_xid(me);
		dw_writes_for(claim->key.owner);
		if (delete_claimed_row(db, me, rel, entry, claim, &result))
			break;
		/* changed since the snapshot: look again */
		CHECK_FOR_INTERRUPTS();
		dw_claim_snapshot();
	}
	if (result == DW_CLAIMED)
	{
		/*
		 * N3: whoever wrote the row, kept it or ended a pause.  After the
		 * verdict, which has seen that the pause is over.  A batch hears of all
		 * changes in catalogs here: locks that it has bring no news.
		 */
		dw_ending_wait();
		CommandCounterIncrement();
		UpdateActiveSnapshotCommandId();
	}
	return result;
}
