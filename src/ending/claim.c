/*-------------------------------------------------------------------------
 *
 * claim.c
 *	  Claiming tasks: the deletion of their rows.
 *
 * Run by executors, as the role that owns the tasks, for one task and for several that
 * share a transaction; and by sessions that receive messages, in a transaction of theirs.
 *
 * An entry names a task in memory: its id, its due time and where its row is.
 * The claim is the deletion of the task's row, in the same transaction as the task's
 * SQL, or as all that the receiver of a message does.  Whatever dies, and whenever, either
 * both take effect or neither does.  Two processes may hold the same entry for a moment, and an entry may be
 * stale; only one claim of a row can succeed.  Steps X1 to X4 of the model in
 * test/model.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup.h"
#include "access/htup_details.h"
#include "access/multixact.h"
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
#include "utils/timestamp.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/inject.h"
#include "../ring/ring.h"
#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_finder.h"
#include "../rows/task_rows.h"
#include "../shmem/committing.h"
#include "../shmem/executors.h"
#include "../shmem/groups.h"
#include "../shmem/queue_limits.h"
#include "../shmem/receivers.h"
#include "../shmem/shared.h"
#include "../shmem/suspects.h"
#include "../shmem/timer_news.h"
#include "../task/marks.h"
#include "../task/queues.h"
#include "../task/task.h"
#include "ending.h"

static DwVerdict judge_claim(DwDatabase *db, Relation rel, HeapTuple tuple, const DwTaskKey *key,
						  const Datum *values, const bool *nulls,
						  int *sqlstate, const char **reason);

/* Shortest and longest time, in us, until the timer reads a row that was locked again. */
#define RECHECK_MIN		(5 * USECS_PER_MINUTE)
#define RECHECK_MAX		USECS_PER_HOUR

/*
 * True if the transaction of an executor has one snapshot from now on, as tasks of its role
 * have by default_transaction_isolation.
 */
static bool
snapshot_stays(const DwExecutor *me)
{
	return me != NULL && IsolationUsesXactSnapshot();
}

/*
 * Takes the snapshot of such a transaction.  At SERIALIZABLE, all that is read from then on
 * counts as read by the task.  So the row was looked for before, and so is what the verdict
 * goes by.  The xid is assigned later: PostgreSQL knows a serializable transaction by one that
 * came after its snapshot.
 */
static void
take_staying_snapshot(DwDatabase *db)
{
	(void) dw_queue_tables_now(db);
	PopActiveSnapshot();
	PushActiveSnapshot(GetTransactionSnapshot());
	DW_INJECT("claim-after-snapshot");
}

/* Opens the table of tasks.  The lock lasts until the end of the transaction. */
Relation
dw_claim_open(void)
{
	return table_open(dw_catalog()->task, RowExclusiveLock);
}

/* Returns a text column of the claimed row as a string, or NULL if it is null. */
char *
dw_claim_text(const DwClaim *claim, AttrNumber column)
{
	if (claim->nulls[column - 1])
		return NULL;
	return TextDatumGetCString(claim->values[column - 1]);
}

/* When the task was due; a message that was leased, before that. */
TimestampTz
dw_claim_first_due(const DwClaim *claim)
{
	return claim->nulls[Anum_task_first_due - 1] ? claim->key.due :
		DatumGetTimestampTz(claim->values[Anum_task_first_due - 1]);
}

/* When the lease of a message began; 0 if it was not leased. */
TimestampTz
dw_claim_leased_at(const DwClaim *claim)
{
	return claim->nulls[Anum_task_leased_at - 1] ? 0 :
		DatumGetTimestampTz(claim->values[Anum_task_leased_at - 1]);
}

/*
 * Asks the timer to read the entry's row again later, because another transaction, which
 * is not that of a claim, has the row locked.  A cancel or a reschedule hints the task again
 * when it ends.  A lock taken by plain SQL ends without a hint, so the timer has to
 * look, after RECHECK_MIN.  The interval doubles as long as the same row is locked.
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

/*
 * True if the entry is of a group with an order, whose other tasks wait for this one.  The queue
 * may change at any time, which ends all holds.
 */
static bool
is_ordered(const DwEntry *entry)
{
	const DwQueue *queue = dw_lane_queue(&dw_lanes[entry->lane]);

	return dw_entry_has_group(entry) && entry->block != DW_NO_GROUP && queue != NULL &&
		queue->group_order;
}

/* Deforms the claim's tuple into values, nulls and key, for all later users. */
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
	key->is_message = claim->nulls[Anum_task_sql - 1];
	key->is_leased = !claim->nulls[Anum_task_token - 1];
	key->group = claim->nulls[Anum_task_group_hash - 1] ? DW_NO_GROUP :
		DatumGetUInt32(values[Anum_task_group_hash - 1]);
	key->tid = claim->tuple->t_self;
}

/*
 * Fills in *claim for a row that the caller has claimed before.  tuple is a copy of
 * the row, which *claim keeps.  The verdict is not filled in.
 */
void
dw_claim_read(DwDatabase *db, Relation rel, HeapTuple tuple, DwClaim *claim)
{
	claim->tuple = tuple;
	read_claimed_row(rel, claim);
	dw_terms(db, &claim->key, claim->values, claim->nulls, &claim->terms);
}

/* True if the row is still the task that the entry names, and is armed. */
static bool
matches_entry(const DwTaskKey *key, const DwEntry *entry)
{
	const DwLane *lane = &dw_lanes[entry->lane];

	return key->id == entry->id && key->due == entry->due &&
		key->owner == lane->owner && key->queue == lane->queue &&
		key->priority == lane->priority && key->origin == dw_origin_stamp();
}

/*
 * True if the table has this block; reading a block beyond the end would raise an
 * error.  The size that the storage manager has cached saves a system call.  The
 * cached size is never too large: a process that truncates the table locks it
 * exclusively and invalidates the cache.
 */
static bool
has_block(Relation rel, BlockNumber block)
{
	BlockNumber known = RelationGetSmgr(rel)->smgr_cached_nblocks[MAIN_FORKNUM];

	return (known != InvalidBlockNumber && block < known) ||
		block < RelationGetNumberOfBlocks(rel);
}

/*
 * Returns a copy of the row of the entry's task, if it is where it was seen; NULL if it is not
 * there, or not known where.
 */
static HeapTuple
fetch_by_tid(Relation rel, const DwExecutor *me, const DwEntry *entry)
{
	HeapTupleData tuple;
	HeapTuple	copy;
	Buffer		buffer;
	bool		isnull;

	if (!dw_entry_has_group(entry))
		ItemPointerSet(&tuple.t_self, entry->block, dw_entry_offset(entry));
	else if (me == NULL)
		return NULL;
	else if (me->current.id == entry->id && ItemPointerIsValid(&me->tid))
		tuple.t_self = me->tid;
	else if (!dw_task_finder_has_seen(entry->id, &tuple.t_self))
		return NULL;
	if (!ItemPointerIsValid(&tuple.t_self) ||
		!has_block(rel, ItemPointerGetBlockNumber(&tuple.t_self)))
		return NULL;
	if (!heap_fetch(rel, GetActiveSnapshot(), &tuple, &buffer, false))
		return NULL;
	/* vacuum may have freed the tid for another row */
	if (DatumGetInt64(heap_getattr(&tuple, Anum_task_id,
								   RelationGetDescr(rel), &isnull)) == entry->id)
		copy = heap_copytuple(&tuple);
	else
		copy = NULL;
	ReleaseBuffer(buffer);
	return copy;
}

/*
 * True if this transaction has deleted the row, which a snapshot of before may see
 * nevertheless: a receiver has buried it, for a newer message of its key.
 */
static bool
is_deleted_here(HeapTuple tuple)
{
	HeapTupleHeader header = tuple->t_data;

	return (header->t_infomask & HEAP_XMAX_INVALID) == 0 &&
		!HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask) &&
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetUpdateXid(header));
}

/* X1: before the deletion, so that a cancel can tell that an executor has the row. */
static void
publish_xid(DwExecutor *me)
{
	if (me == NULL)
	{
		dw_receiver_publish(GetTopTransactionId());
		return;
	}
	if (pg_atomic_read_u32(&me->xid) != InvalidTransactionId)
		return;
	pg_atomic_write_u32(&me->xid, GetCurrentTransactionId());
	pg_memory_barrier();
}

/*
 * True if the row is being deleted by an executor or a receiver, whose xid is xmax.  That
 * process then hints the task again if it is to run.  It may also have only locked the
 * row; then the result is false.
 */
static bool
is_claimed_by_other(Relation rel, const ItemPointerData *tid, TransactionId xmax)
{
	HeapTupleData tuple = {.t_self = *tid};
	Buffer		buffer;
	uint16		infomask;

	if (!(dw_xid_is_executor(xmax) || dw_xid_receives(xmax)) || !heap_fetch(rel, SnapshotAny, &tuple, &buffer, false))
		return false;
	infomask = tuple.t_data->t_infomask;
	ReleaseBuffer(buffer);
	return (infomask & HEAP_XMAX_INVALID) == 0 && !HEAP_XMAX_IS_LOCKED_ONLY(infomask);
}

/*
 * True if a transaction that the active snapshot does not see has locked the row: it may keep
 * the task.  Whether it is over does not matter.
 */
static bool
is_kept_unseen(Relation rel, const ItemPointerData *tid)
{
	HeapTupleData tuple = {.t_self = *tid};
	Snapshot	snapshot = GetActiveSnapshot();
	MultiXactMember *members;
	bool		unseen = false;
	Buffer		buffer;
	TransactionId xmax;
	uint16		infomask;
	int			n;

	if (!heap_fetch(rel, SnapshotAny, &tuple, &buffer, false))
		return false;
	infomask = tuple.t_data->t_infomask;
	/* also if a flag says that nobody has it any more */
	xmax = HeapTupleHeaderGetRawXmax(tuple.t_data);
	ReleaseBuffer(buffer);
	if ((infomask & HEAP_XMAX_IS_MULTI) == 0)
		return TransactionIdIsNormal(xmax) && XidInMVCCSnapshot(xmax, snapshot);
	/* not as one of locks only: PostgreSQL would not say who has had them */
	n = GetMultiXactIdMembers(xmax, &members, false, false);
	for (int i = 0; i < n; i++)
		unseen |= XidInMVCCSnapshot(members[i].xid, snapshot);
	return unseen;
}

/*
 * X2: tries to delete the row, and judges the task under the lock of its key.  False
 * if the row has changed since the snapshot, so that the caller has to look again.
 * *result becomes DW_CLAIMED on success, DW_CLAIM_LOCKED as said there, and is left alone
 * otherwise.  It becomes DW_CLAIM_UNSEEN, and the deletion is to be undone, if the snapshot stays and lacks
 * what the task must see: what was done by who kept it, or by who changed queues, pauses
 * or marks since db->control was read, before the snapshot.
 */
static bool
delete_claimed_row(DwDatabase *db, DwExecutor *me, Relation rel, const DwEntry *entry,
				   uint32 control, DwClaim *claim, DwClaimResult *result)
{
	bool		has_key = !claim->nulls[Anum_task_key - 1] && dw_key_lock_of(rel, claim->tuple);
	bool		stays = me != NULL && dw_mode(claim->values, claim->nulls) == DW_AT_LEAST_ONCE;
	bool		unseen;
	TM_FailureData failure;
	TM_Result	deleted;

	if (stays && !dw_autonomous_enter(claim->key.id, true))
	{
		/* another executor runs the task, and hints it again if necessary */
		if (has_key)
			dw_key_leave();
		return true;
	}
	DW_INJECT("claim-before-delete");
	/* under the lock of the key nobody else keeps the task */
	unseen = has_key && snapshot_stays(me) && is_kept_unseen(rel, &claim->key.tid);
	deleted = dw_try_heap_delete(rel, &claim->key.tid, false, &failure);
	if (deleted == TM_Ok)
	{
		*result = DW_CLAIMED;
		DW_INJECT("claim-after-delete");
		claim->verdict = judge_claim(db, rel, claim->tuple, &claim->key, claim->values,
								  claim->nulls, &claim->sqlstate, &claim->reason);
		if (snapshot_stays(me) && (unseen || control != dw_control_read(&db->timer_news)))
			*result = DW_CLAIM_UNSEEN;
	}
	/* released now: the next try takes the key's lock first, as always */
	if (stays && *result != DW_CLAIMED)
		dw_autonomous_leave(claim->key.id);
	if (has_key)
		dw_key_leave();
	if (deleted == TM_BeingModified &&
		!is_claimed_by_other(rel, &claim->key.tid, failure.xmax) &&
		!dw_task_is_cancelled(rel, claim->tuple))
	{
		/* a cancelled task needs no recheck: the sweeper removes its row */
		if (me != NULL)
			dw_key_claim_refused(me, rel, claim->tuple);
		/* the group must not wait for minutes */
		if (is_ordered(entry))
			*result = DW_CLAIM_LOCKED;
		else
			ask_for_recheck(db, entry);
	}
	return deleted == TM_Ok || deleted == TM_BeingModified;
}

/*
 * For a receiver whose snapshot does not see the row of the entry, or sees it as it was
 * before it was moved: DW_CLAIM_UNSEEN if the message is there, by a new snapshot.
 */
static DwClaimResult
look_beyond_snapshot(Relation rel, const DwEntry *entry, DwClaim *claim)
{
	claim->tuple = dw_task_find(rel, entry->id, NULL);
	if (claim->tuple == NULL)
		return DW_CLAIM_NOTHING;
	read_claimed_row(rel, claim);
	return matches_entry(&claim->key, entry) ? DW_CLAIM_UNSEEN : DW_CLAIM_NOTHING;
}

/*
 * Claims the task of an entry: deletes its row, and judges the task.  Fills in *claim
 * if the result is DW_CLAIMED.  Does not wait for other transactions that have the row
 * locked; waits only for locks that are held briefly: of the key, of the id, at commit.
 *
 * me is the executor that runs the task, NULL for a session that receives a message.  An
 * executor has taken the entry from its ready list before the active snapshot, which is
 * replaced by a new one if the row has changed since.  The snapshot of a session is not:
 * only what it sees is claimed, and the entry of another version of the row is kept
 * (DW_CLAIM_UNSEEN).  Nor is that of an executor in a transaction that has only one, which is
 * taken here: then DW_CLAIM_UNSEEN asks the caller to abort, and to claim in a new
 * transaction.  rel was opened by dw_claim_open().  finder serves for all claims of a
 * transaction, or is NULL.  is_wanted may be NULL; if it returns false for the row, the row is left
 * alone.
 */
DwClaimResult
dw_claim(DwDatabase *db, DwExecutor *me, Relation rel, DwTaskFinder *finder,
		 const DwEntry *entry, DwIsWanted is_wanted, void *arg, DwClaim *claim)
{
	DwClaimResult result = DW_CLAIM_NOTHING;
	/* raised by who is visible already; so read before the snapshot that stays */
	uint32		control = dw_control_read(&db->timer_news);

	pg_memory_barrier();
	DW_INJECT("claim-before-fetch");
	for (;;)
	{
		claim->tuple = fetch_by_tid(rel, me, entry);
		/* X3: the tid is stale, or not known, so search by id */
		if (claim->tuple == NULL)
			claim->tuple = finder != NULL ?
				dw_task_find_next(finder, rel, entry->id, GetActiveSnapshot()) :
				dw_task_find(rel, entry->id, GetActiveSnapshot());
		if (claim->tuple == NULL)
		{
			Oid			owner;

			if (me == NULL)
				return look_beyond_snapshot(rel, entry, claim);
			/* a task that runs without a row, in another executor, is suspected no less */
			if (dw_crashes_of(db->oid, entry->id) > 0 &&
				!dw_executor_runs_autonomous(entry->id, &owner))
				dw_crashes_end(db->oid, entry->id, 0);
			return DW_CLAIM_NOTHING;
		}
		read_claimed_row(rel, claim);
		if (!matches_entry(&claim->key, entry))
			/* the snapshot may show the row as it was before it was moved */
			return me == NULL ? look_beyond_snapshot(rel, entry, claim) : DW_CLAIM_NOTHING;
		/* whatever deleted it hints it again if that is undone */
		if (me == NULL && is_deleted_here(claim->tuple))
			return DW_CLAIM_NOTHING;
		if (dw_task_is_cancelled(rel, claim->tuple))
			return DW_CLAIM_CANCELLED;
		dw_terms(db, &claim->key, claim->values, claim->nulls, &claim->terms);
		if (is_wanted != NULL && !is_wanted(claim, arg))
			return DW_CLAIM_REJECTED;

		if (snapshot_stays(me))
			take_staying_snapshot(db);
		publish_xid(me);
		dw_writes_for(claim->key.owner);
		if (delete_claimed_row(db, me, rel, entry, control, claim, &result))
			break;
		/* the row has changed since the snapshot: look again */
		if (me == NULL)
			return look_beyond_snapshot(rel, entry, claim);
		if (snapshot_stays(me))
			return DW_CLAIM_UNSEEN;
		CHECK_FOR_INTERRUPTS();
		dw_renew_snapshot();
	}
	if (result == DW_CLAIMED)
	{
		/*
		 * N3: transactions that have written the row, kept the task or ended a pause
		 * are visible, but may not have told their catalog changes yet.  Waits for
		 * them, after the verdict, which has seen the end of the pause.  A batch
		 * learns of catalog changes only here: to take a lock that it holds already
		 * brings no invalidations.
		 */
		dw_committing_wait();
		if (me == NULL)
			return result;		/* its snapshot is the statement's */
		CommandCounterIncrement();
		UpdateActiveSnapshotCommandId();
	}
	return result;
}

/*---- Whether a task that was claimed is run ----*/

/*
 * Run by executors, and by sessions that receive messages; by its lateness alone a task is
 * judged in sessions that run it as an executor would.  The process has claimed the
 * task: its transaction has deleted the row, but is not committed yet, so no other
 * process can change the task.  Only
 * now the executor looks for a mark (a row of delay_wheel_data.cancellation), for a pause,
 * and for a newer task of the same key.  Before the deletion, any of them could still
 * come in between.
 */

/*
 * The verdict by the task's lateness.  A task may have two limits of it, in us after the due
 * time: the options "expires" and "skip_after".  The one that was reached first decides.
 * *sqlstate and *reason are those of DW_REFUSE.
 */
DwVerdict
dw_judge_lateness(const DwTaskKey *key, const Datum *values, const bool *nulls, int *sqlstate,
				  const char **reason)
{
	int64		expires = PG_INT64_MAX;
	int64		skip;
	int64		limit;
	TimestampTz due = key->due;
	int64		not_before;

	*sqlstate = DW_ERRCODE_EXPIRED;
	*reason = "the task has expired";
	if (!nulls[Anum_task_expires - 1])
		expires = dw_interval_us(DatumGetIntervalP(values[Anum_task_expires - 1]));
	if (!dw_more_number(values, nulls, Anum_task_more, DW_MORE_SKIP_AFTER, &skip))
		skip = PG_INT64_MAX;
	skip = Max(skip, 0);
	limit = Min(expires, skip);
	/* of a message that was leased before, the first due time counts */
	if (!nulls[Anum_task_first_due - 1])
		due = DatumGetTimestampTz(values[Anum_task_first_due - 1]);
	/* of one that has failed, and has kept its place in its group, that of this attempt */
	if (dw_more_number(values, nulls, Anum_task_more, DW_MORE_NOT_BEFORE, &not_before))
		due = Max(due, not_before);
	if (limit == PG_INT64_MAX || dw_time_add(due, limit) >= dw_time_reached())
		return DW_RUN;
	return skip < expires ? DW_SKIP : DW_REFUSE;
}

/*
 * Decides whether a claimed task is run.  To be called in the transaction that has
 * deleted the row; if the task has a key, dw_key_lock() is held.  values and nulls are
 * those of the row.  For DW_REFUSE, *sqlstate and *reason tell why.  May remove
 * older rows of the key (superseded tasks), see dw_key_claimed().
 */
static DwVerdict
judge_claim(DwDatabase *db, Relation rel, HeapTuple tuple, const DwTaskKey *key,
		 const Datum *values, const bool *nulls, int *sqlstate, const char **reason)
{
	if (dw_task_is_cancelled(rel, tuple))
		return DW_DROP;
	if (dw_is_paused(db, key->owner, key->queue))
		return DW_PUT_BACK;
	if (!nulls[Anum_task_key - 1] && !dw_key_claimed(rel, tuple))
	{
		*sqlstate = DW_ERRCODE_SUPERSEDED;
		*reason = DW_SUPERSEDED_MESSAGE;
		return DW_REFUSE;
	}
	if (dw_crashes_of(db->oid, key->id) >= DW_MAX_CRASHES)
	{
		*sqlstate = DW_ERRCODE_CRASHED;
		*reason = "the server crashed three times while the task ran";
		return DW_REFUSE;
	}
	return dw_judge_lateness(key, values, nulls, sqlstate, reason);
}
