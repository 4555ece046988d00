/*-------------------------------------------------------------------------
 *
 * claim.c
 *	  Claiming tasks: the deletion of their rows.
 *
 * Run by executors, as the role that owns the tasks, for one task or for several tasks that share a
 * transaction.  Also run by sessions that receive messages, in their own transaction.
 *
 * An entry names a task in memory: its id, its due time and the TID of its row.  Two processes may
 * have the same entry for a moment, and an entry may be stale, but only one claim of a row can
 * succeed.  This file has steps X1 to X4 of the model in test/model.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/multixact.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "../shmem/groups.h"
#include "ending.h"

/* Shortest and longest time, in us, until the timer reads a locked row again. */
#define RECHECK_MIN		(5 * USECS_PER_MINUTE)
#define RECHECK_MAX		USECS_PER_HOUR

/*
 * Returns true if the executor's transaction keeps one snapshot, because of
 * default_transaction_isolation of its role.
 */
static bool
snapshot_stays(const DwExecutor *me)
{
	return me != NULL && IsolationUsesXactSnapshot();
}

/*
 * Takes the snapshot of a transaction that keeps one snapshot, after reading the tables of queues,
 * which the verdict needs: see "One snapshot" in README.md.
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

/* Returns the arguments of the task's SQL. */
ParamListInfo
dw_claim_params(const DwClaim *claim, const char *sql)
{
	return dw_args_params(sql, claim->values[Anum_task_args - 1], claim->nulls[Anum_task_args - 1],
						  claim->values[Anum_task_arg_types - 1],
						  claim->nulls[Anum_task_arg_types - 1]);
}

/* Returns when the lease of a message began; 0 if it was not leased. */
TimestampTz
dw_claim_leased_at(const DwClaim *claim)
{
	return claim->nulls[Anum_task_leased_at - 1] ? 0 :
		DatumGetTimestampTz(claim->values[Anum_task_leased_at - 1]);
}

/*---- The verdict on a claimed task ----*/

/*
 * Returns the verdict by the task's lateness, and sets sqlstate and reason of *claim for DW_REFUSE.
 * Of the limits "expires" and "skip_after", in us, the limit that was reached first decides.
 */
DwVerdict
dw_judge_lateness(DwClaim *claim)
{
	const Datum *values = claim->values;
	const bool *nulls = claim->nulls;
	int64		expires = PG_INT64_MAX;
	int64		skip;
	int64		limit;
	/* for a message that was leased before, the first due time counts */
	TimestampTz due = dw_claim_first_due(claim);
	int64		not_before;

	claim->sqlstate = DW_ERRCODE_EXPIRED;
	claim->reason = "the task has expired";
	if (!nulls[Anum_task_expires - 1])
		expires = dw_interval_us(DatumGetIntervalP(values[Anum_task_expires - 1]));
	if (!dw_more_number(values, nulls, Anum_task_more, DW_MORE_SKIP_AFTER, &skip))
		skip = PG_INT64_MAX;
	skip = Max(skip, 0);
	limit = Min(expires, skip);
	/* for a failed task that has kept its place in its group, the time of this attempt counts */
	if (dw_more_number(values, nulls, Anum_task_more, DW_MORE_NOT_BEFORE, &not_before))
		due = Max(due, not_before);
	if (limit == PG_INT64_MAX || dw_time_add(due, limit) >= dw_time_reached())
		return DW_RUN;
	return skip < expires ? DW_SKIP : DW_REFUSE;
}

/*
 * Returns the verdict on a task whose row this transaction has deleted; no other process can change
 * the task any more.  Only now looks for a mark, for a pause, and for a newer task of the same key:
 * an earlier check could miss them.  The caller holds the lock of the task's key, if it has a key.
 * For DW_REFUSE, sets sqlstate and reason.  May remove older rows of the key, see dw_key_claimed().
 */
static DwVerdict
judge_claim(DwDatabase *db, Relation rel, DwClaim *claim)
{
	const DwTaskKey *key = &claim->key;

	if (dw_task_is_cancelled(rel, claim->tuple))
		return DW_DROP;
	if (dw_is_paused(db, key->owner, key->queue))
		return DW_PUT_BACK;
	if (!claim->nulls[Anum_task_key - 1] && !dw_key_claimed(rel, claim->tuple))
	{
		claim->sqlstate = DW_ERRCODE_SUPERSEDED;
		claim->reason = DW_SUPERSEDED_MESSAGE;
		return DW_REFUSE;
	}
	if (dw_crashes_of(db->oid, key->id) >= DW_MAX_CRASHES)
	{
		claim->sqlstate = DW_ERRCODE_CRASHED;
		claim->reason = "the server crashed three times while the task ran";
		return DW_REFUSE;
	}
	return dw_judge_lateness(claim);
}

/*---- Claiming ----*/

/*
 * Asks the timer to read the entry's row again later, because a transaction that is no claim has
 * locked the row.  A cancel or reschedule gives a hint of the task at its end.  A lock of plain SQL
 * ends without a hint, so the timer has to look, first after RECHECK_MIN.  The interval doubles
 * while the same row is locked.
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
 * Returns true if the entry belongs to an ordered group, whose other tasks wait for this task.  A
 * change of the queue, which may come at any time, ends all holds.
 */
bool
dw_entry_is_ordered(const DwEntry *entry)
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
	/* unpacked once, since each look for a key would unpack it */
	if (key->has_more)
		claim->values[Anum_task_more - 1] = JsonbPGetDatum(DatumGetJsonbP(values[Anum_task_more - 1]));
	key->is_message = claim->nulls[Anum_task_sql - 1];
	key->is_leased = !claim->nulls[Anum_task_token - 1];
	key->group = claim->nulls[Anum_task_group_hash - 1] ? DW_NO_GROUP :
		DatumGetUInt32(values[Anum_task_group_hash - 1]);
	key->tid = claim->tuple->t_self;
}

/*
 * Fills in *claim, except the verdict, for a row that the caller has claimed before.  tuple: a copy
 * of the row, which becomes a part of *claim.
 */
void
dw_claim_read(DwDatabase *db, Relation rel, HeapTuple tuple, DwClaim *claim)
{
	claim->tuple = tuple;
	read_claimed_row(rel, claim);
	dw_terms(db, &claim->key, claim->values, claim->nulls, &claim->terms);
}

/* Returns true if the row is still the task of the entry, and is armed. */
static bool
matches_entry(const DwTaskKey *key, const DwEntry *entry)
{
	const DwLane *lane = &dw_lanes[entry->lane];

	return key->id == entry->id && key->due == entry->due &&
		key->owner == lane->owner && key->queue == lane->queue &&
		key->priority == lane->priority && key->origin == dw_origin_stamp();
}

/*
 * Reads the row of the entry's task by its TID.  Returns a copy of the row; NULL if the row is not
 * there, or the TID is unknown.
 */
static HeapTuple
fetch_by_tid(Relation rel, const DwExecutor *me, const DwEntry *entry)
{
	ItemPointerData tid;

	if (!dw_entry_has_group(entry))
		ItemPointerSet(&tid, entry->block, dw_entry_offset(entry));
	else if (me == NULL)
		return NULL;
	else if (me->current.id == entry->id && ItemPointerIsValid(&me->tid))
		tid = me->tid;
	else if (!dw_task_finder_has_seen(entry->id, &tid))
		return NULL;
	return dw_task_fetch(rel, entry->id, &tid, GetActiveSnapshot());
}

/*
 * Returns true if this transaction has deleted the row, which its older snapshot may still see.  A
 * receiver deletes older messages of a key when it receives a newer message.
 */
static bool
is_deleted_here(HeapTuple tuple)
{
	HeapTupleHeader header = tuple->t_data;

	return (header->t_infomask & HEAP_XMAX_INVALID) == 0 &&
		!HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask) &&
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetUpdateXid(header));
}

/* X1: publishes the xid before the deletion, to show a cancel that an executor has the row. */
static void
publish_xid(DwExecutor *me)
{
	if (me == NULL)
	{
		dw_xid_publish(DW_RECEIVING, GetTopTransactionId());
		return;
	}
	if (pg_atomic_read_u32(&me->xid) != InvalidTransactionId)
		return;
	pg_atomic_write_u32(&me->xid, GetCurrentTransactionId());
	pg_memory_barrier();
}

/* Returns true if xmax, an executor or a receiver, is deleting the row: it will give a hint. */
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

/* Returns true if a transaction that the active snapshot does not see has locked the row. */
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
	/* read xmax even if a flag shows that no transaction has the row any more */
	xmax = HeapTupleHeaderGetRawXmax(tuple.t_data);
	ReleaseBuffer(buffer);
	if ((infomask & HEAP_XMAX_IS_MULTI) == 0)
		return TransactionIdIsNormal(xmax) && XidInMVCCSnapshot(xmax, snapshot);
	/* ask for updates, too: for locks only, PostgreSQL would not return former holders */
	n = GetMultiXactIdMembers(xmax, &members, false, false);
	for (int i = 0; i < n; i++)
		unseen |= XidInMVCCSnapshot(members[i].xid, snapshot);
	return unseen;
}

/*
 * X2: tries to delete the row, and reaches the verdict under the lock of the task's key.  Returns
 * false if the row has changed since the snapshot, so that the caller must look again.  Sets
 * *result to DW_CLAIMED, DW_CLAIM_LOCKED or DW_CLAIM_UNSEEN, or leaves *result unchanged.
 *
 * DW_CLAIM_UNSEEN means that the snapshot stays, but lacks changes that the task must see, see "One
 * snapshot" in README.md ("control" was read before the snapshot).
 */
static bool
delete_claimed_row(DwDatabase *db, DwExecutor *me, Relation rel, const DwEntry *entry,
				   uint32 control, DwClaim *claim, DwClaimResult *result)
{
	bool		has_key = !claim->nulls[Anum_task_key - 1];
	bool		stays = me != NULL && dw_mode(claim->values, claim->nulls) == DW_AT_LEAST_ONCE;
	bool		unseen;
	TM_FailureData failure;
	TM_Result	deleted;

	if (has_key)
	{
		DwKey		key = dw_key_of_values(claim->values);

		dw_key_lock(&key);
	}
	if (stays && !dw_autonomous_enter(claim->key.id, true))
	{
		/* another executor runs the task, and gives a hint if the task must run again */
		if (has_key)
			dw_key_leave();
		return true;
	}
	DW_INJECT("claim-before-delete");
	/* while this process has the lock of the key, no session can keep the task */
	unseen = has_key && snapshot_stays(me) && is_kept_unseen(rel, &claim->key.tid);
	deleted = dw_try_heap_delete(rel, &claim->key.tid, false, &failure);
	if (deleted == TM_Ok)
	{
		*result = DW_CLAIMED;
		DW_INJECT("claim-after-delete");
		claim->verdict = judge_claim(db, rel, claim);
		if (snapshot_stays(me) && (unseen || control != dw_control_read(&db->timer_news)))
			*result = DW_CLAIM_UNSEEN;
	}
	/* release the lock now, since the next try must begin with the lock of the key */
	if (stays && *result != DW_CLAIMED)
		dw_autonomous_leave(claim->key.id);
	if (has_key)
		dw_key_leave();
	if (deleted == TM_BeingModified &&
		!is_claimed_by_other(rel, &claim->key.tid, failure.xmax) &&
		!dw_task_is_cancelled(rel, claim->tuple))
	{
		/* a cancelled task needs no recheck: the sweeper removes its row */
		if (me != NULL && has_key)
			/* the next session that would keep the task lets this executor go first */
			pg_atomic_write_u64(&me->refused, (uint64) claim->key.id);
		/* the group must not wait for minutes */
		if (dw_entry_is_ordered(entry))
			*result = DW_CLAIM_LOCKED;
		else
			ask_for_recheck(db, entry);
	}
	return deleted == TM_Ok || deleted == TM_BeingModified;
}

/* Returns DW_CLAIM_UNSEEN if a new snapshot shows the message that a receiver's does not show. */
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
 * Claims the task of an entry: deletes the row, and reaches the verdict.  Fills in *claim if the
 * result is DW_CLAIMED.  Does not wait for other transactions that have locked the row.  Waits only
 * for locks that are released soon: of the key, of the id, and of a commit.
 *
 * me: the executor that runs the task; NULL for a session that receives a message.  An executor
 * took the entry from its ready list before the active snapshot.  If the row has changed meanwhile,
 * a new snapshot replaces the active snapshot.  For a session, the snapshot stays: the session
 * claims only rows that it sees, and keeps the entry of another version of the row
 * (DW_CLAIM_UNSEEN).  If the transaction of an executor keeps one snapshot, this function takes
 * this snapshot: after DW_CLAIM_UNSEEN the executor aborts, and claims in a new transaction.  rel:
 * the result of dw_claim_open().  finder: serves all claims of a transaction, or is NULL.
 * is_wanted: may be NULL; if it returns false, the row is not deleted.
 */
DwClaimResult
dw_claim(DwDatabase *db, DwExecutor *me, Relation rel, DwTaskFinder *finder,
		 const DwEntry *entry, DwIsWanted is_wanted, void *arg, DwClaim *claim)
{
	DwClaimResult result = DW_CLAIM_NOTHING;
	/* read control before the snapshot that stays: visible transactions have raised control */
	uint32		control = dw_control_read(&db->timer_news);

	pg_memory_barrier();
	DW_INJECT("claim-before-fetch");
	for (;;)
	{
		claim->tuple = fetch_by_tid(rel, me, entry);
		/* X3: the TID is stale, or not known, so search by id */
		if (claim->tuple == NULL)
			claim->tuple = finder != NULL ?
				dw_task_find_next(finder, rel, entry->id, GetActiveSnapshot()) :
				dw_task_find(rel, entry->id, GetActiveSnapshot());
		if (claim->tuple == NULL)
		{
			Oid			owner;

			if (me == NULL)
				return look_beyond_snapshot(rel, entry, claim);
			/* a task that another executor runs without a row stays a suspect */
			if (dw_crashes_of(db->oid, entry->id) > 0 &&
				!dw_executor_runs_autonomous(entry->id, &owner))
				dw_crashes_end(db->oid, entry->id, 0);
			return DW_CLAIM_NOTHING;
		}
		read_claimed_row(rel, claim);
		if (!matches_entry(&claim->key, entry))
			/* the snapshot may show the row as it was before a move */
			return me == NULL ? look_beyond_snapshot(rel, entry, claim) : DW_CLAIM_NOTHING;
		/* if the deletion is undone, the timer gets a hint of the task */
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
		 * N3: transactions that have written the row, kept the task or ended a pause are visible,
		 * but may not have sent their catalog changes yet.  Waits for these transactions, after the
		 * verdict, which has seen the end of the pause.  A batch gets catalog changes only here: no
		 * invalidations come with a lock that the transaction already has.
		 */
		dw_committing_wait(HeapTupleHeaderGetXmin(claim->tuple->t_data));
		if (me == NULL)
			return result;		/* keep the statement's snapshot */
		CommandCounterIncrement();
		UpdateActiveSnapshotCommandId();
	}
	return result;
}
