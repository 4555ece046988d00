/*-------------------------------------------------------------------------
 *
 * leases.c
 *	  Ends messages whose last lease has ended.
 *
 * Run by the sweeper.  If a lease ends before its receiver has reported a result, the message is
 * due again, and the next receiver gets it.  After the last attempt the message has failed.  The
 * sweeper does all work at the end of such a message, since a receiver may roll back or lack the
 * rights.
 *
 * The session that begins a last lease requests this job for the end of the lease.  A session that
 * finds a message after its last lease in a ready list requests the job, too.  After a restart the
 * timer requests the job.
 *
 * The model in test/model calls these steps S2 to S4.  S1 and S5 are in sweeper.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/async.h"

#include "../base/errors.h"
#include "../base/inject.h"
#include "../ending/ending.h"
#include "../shmem/executors.h"
#include "../shmem/groups.h"
#include "../shmem/queue_limits.h"
#include "../shmem/shared.h"
#include "sweeper.h"

/* Maximum number of messages that are ended in one transaction. */
#define SLICE		100
/* Time before the next look if the table, or a row, is locked, in us. */
#define RETRY_US	(10 * USECS_PER_SEC)

/* The result of a slice. */
typedef struct Slice
{
	int			n;				/* number of messages that were ended */
	TimestampTz next;			/* end of the next last lease, or DW_NEVER */
	DwLaneRef	lanes[SLICE];	/* lanes of these messages, or no lanes */
} Slice;

/* Ends a message whose last lease has ended.  The caller has read its row. */
static bool
end_message(DwDatabase *db, Relation rel, HeapTuple tuple, const DwTaskKey *key, DwLaneRef *lane)
{
	ErrorData	error = {
		.sqlerrcode = DW_ERRCODE_LEASE_ENDED,
		.message = "the last lease has ended, and the receiver has reported nothing"
	};
	DwClaim		claim;

	dw_writes_for(key->owner);
	/* if the message is cancelled by a mark, sweep.c removes its row */
	if (dw_task_is_cancelled(rel, tuple) || dw_row_remove(rel, key) != TM_Ok)
		return false;
	CommandCounterIncrement();
	dw_claim_read(db, rel, heap_copytuple(tuple), &claim);
	/* the lease has counted this attempt already */
	claim.key.attempts--;
	dw_attempt_fail(&claim, key->attempts, dw_claim_leased_at(&claim), &error);
	return dw_lane_enter(db, key->owner, key->queue, key->priority, lane);
}

/* Ends up to SLICE messages, in the transaction of dw_slice_do(). */
static bool
end_slice(DwDatabase *db, const DwCatalog *cat, void *state)
{
	Slice	   *slice = state;
	Relation	rel = dw_slice_open(cat->task);
	SysScanDesc scan;
	MemoryContext context;
	MemoryContext outer = CurrentMemoryContext;
	TimestampTz now = dw_now();
	HeapTuple	tuple;

	if (rel == NULL)
		return false;
	context = AllocSetContextCreate(outer, "delay_wheel leases", ALLOCSET_DEFAULT_SIZES);
	scan = dw_lease_scan_begin(rel, DT_NOBEGIN, GetActiveSnapshot());
	while (slice->n < SLICE && (tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL)
	{
		DwClaim		claim;
		DwTaskKey	key;
		DwLaneRef	lane;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(context);
		MemoryContextSwitchTo(context);
		dw_task_key(rel, tuple, &key);
		dw_claim_read(db, rel, tuple, &claim);
		MemoryContextSwitchTo(outer);
		if (key.origin != dw_origin_stamp())
			continue;
		if (key.attempts < claim.terms.max_attempts)
		{
			/* max_attempts was raised, so this was not the last lease; the lane is read again */
			if (key.due <= now && dw_lane_enter(db, key.owner, key.queue, key.priority, &lane))
				dw_touch_lane(lane, key.due);
			continue;
		}
		if (key.due > now)
			slice->next = Min(slice->next, key.due);
		/* S3 */
		else if (end_message(db, rel, tuple, &key, &slice->lanes[slice->n]))
			slice->n++;
		else
			slice->next = Min(slice->next, now + RETRY_US);
	}
	MemoryContextDelete(context);
	dw_lease_scan_end(scan);
	dw_slice_close(rel);
	DW_INJECT("leases-before-commit");
	return true;
}

/* Ends a slice of the messages whose last lease has ended.  Result: see dw_aged_remove(). */
TimestampTz
dw_leases_end(DwDatabase *db)
{
	Slice	   *slice = palloc(sizeof(Slice));

	slice->n = 0;
	slice->next = DW_NEVER;
	if (!dw_slice_do(db, end_slice, slice))
		return dw_now() + RETRY_US;
	for (int i = 0; i < slice->n; i++)
	{
		DwLane	   *lane = &dw_lanes[slice->lanes[i].index];

		dw_count_end(db, lane, DW_FAILED);
		dw_limits_lease_lapsed(db->oid, lane->queue_place, lane->queue);
	}
	return slice->n == SLICE ? PG_INT64_MIN : slice->next;
}

/*---- Notifying channels of queues ----*/

/*
 * An external queue may have a channel, for receivers that use LISTEN in place
 * of delay_await().  When a message can be taken, the timer flags the queue and requests this job,
 * since a notification needs a commit.  A queue gets at most one notification in PAUSE_US.
 */

/* Time between two notifications, in us. */
#define PAUSE_US	(100 * 1000)
/* Time before the next try if the table is locked, or after an error, in us. */
#define TRY_AGAIN_US	USECS_PER_SEC

/* Returns true if the timer has flagged the queue.  Clears the flag. */
static bool
take_flag(DwDatabase *db, int16 queue)
{
	DwQueue    *place;
	bool		asked = false;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	place = dw_queue_place_of(db, queue);
	if (place != NULL)
	{
		asked = place->notify_asked;
		place->notify_asked = false;
	}
	LWLockRelease(dw_ready_lock(db));
	return asked;
}

/* Notifies the channels of all flagged queues, in the transaction of dw_slice_do(). */
static bool
notify_flagged(DwDatabase *db, const DwCatalog *cat, void *state)
{
	const DwQueueTables *tables;

	PushActiveSnapshot(GetTransactionSnapshot());
	tables = dw_queue_tables_now(db);
	for (int i = 0; i < tables->nqueues; i++)
	{
		const DwDeclaredQueue *queue = &tables->queues[i];

		if (take_flag(db, queue->id) && queue->notify_channel != NULL)
			Async_Notify(queue->notify_channel, queue->name);
	}
	PopActiveSnapshot();
	return true;
}

/* Notifies channels of queues.  Returns when to try again after an error, else DW_NEVER. */
TimestampTz
dw_queues_notify(DwDatabase *db)
{
	if (!dw_slice_do(db, notify_flagged, NULL))
		return dw_now() + TRY_AGAIN_US;
	dw_job_put_off(&db->sweeper_news, DW_JOB_NOTIFY, dw_now() + PAUSE_US);
	return DW_NEVER;
}

/*---- Counting attempts whose transactions were rolled back ----*/

/*
 * After three rollbacks of its receivers in a row, a message is only in the list of
 * shmem/rollbacks.c, and in no ready list.  The sweeper ends the attempt: the message is due again
 * after its retry delay, or has failed.
 */

/* Result for one message. */
typedef struct Settled
{
	int64		id;				/* 0: no message was left */
	DwOutcome	outcome;		/* DW_NOT_ENDED: another process has or had the message */
	bool		has_lapsed;		/* it was received after a lease that had ended without an answer */
	DwLaneRef	lane;
	bool		again;			/* another transaction has locked the row: the timer gets "hint" */
	DwHint		hint;
} Settled;

/* Ends the attempt of the message, if no other process has taken the message. */
static void
settle_message(DwDatabase *db, Relation rel, Settled *settled)
{
	ErrorData	error = {
		.sqlerrcode = DW_ERRCODE_ROLLED_BACK,
		.message = "the transaction that received the message was rolled back"
	};
	HeapTuple	tuple = dw_task_find(rel, settled->id, NULL);
	DwTaskKey	key;
	DwClaim		claim;

	if (tuple == NULL)
		return;
	dw_task_key(rel, tuple, &key);
	dw_writes_for(key.owner);
	/* it was leased, moved, or cancelled by a mark since; sweep.c removes cancelled messages */
	if (!key.is_message || key.due > dw_now() || dw_task_is_cancelled(rel, tuple))
		return;
	if (dw_row_remove(rel, &key) != TM_Ok)
	{
		/* plain SQL that has locked the row sends no hint, so the next claim requests a recheck */
		settled->hint = (DwHint) {.id = key.id, .due = key.due, .tid = key.tid};
		settled->again = dw_lane_enter(db, key.owner, key.queue, key.priority, &settled->hint.lane);
		return;
	}
	settled->has_lapsed = key.is_leased;
	CommandCounterIncrement();
	dw_claim_read(db, rel, tuple, &claim);
	if (dw_lane_enter(db, key.owner, key.queue, key.priority, &settled->lane))
		settled->outcome = DW_RETRIED;
	if (dw_attempt_end(rel, &claim, DW_NEVER, false, dw_now(), &error) == DW_FAILED &&
		settled->outcome != DW_NOT_ENDED)
		settled->outcome = DW_FAILED;
}

/* Settles one message in the transaction of dw_slice_do(). */
static bool
settle_one(DwDatabase *db, const DwCatalog *cat, void *state)
{
	Settled    *settled = state;
	Relation	rel;

	settled->id = dw_rollback_to_settle(&db->rollbacks);
	if (settled->id == 0)
		return true;
	rel = dw_slice_open(cat->task);
	if (rel == NULL)
		return false;
	settle_message(db, rel, settled);
	dw_slice_close(rel);
	DW_INJECT("rollbacks-before-commit");
	return true;
}

/* Ends an attempt that was rolled back, if any.  Result: see dw_aged_remove(). */
TimestampTz
dw_rollbacks_end(DwDatabase *db)
{
	Settled		settled = {.outcome = DW_NOT_ENDED};

	if (!dw_slice_do(db, settle_one, &settled))
		return dw_now() + TRY_AGAIN_US;
	if (settled.id == 0)
		return DW_NEVER;
	/* after the commit, so that a rollback does not lose the message */
	dw_rollback_settled(&db->rollbacks, settled.id);
	if (settled.again)
		dw_deliver(db, &settled.hint);
	if (settled.outcome != DW_NOT_ENDED)
	{
		DwLane	   *lane = &dw_lanes[settled.lane.index];

		dw_count_end(db, lane, settled.outcome);
		if (settled.has_lapsed)
			dw_limits_lease_lapsed(db->oid, lane->queue_place, lane->queue);
	}
	return PG_INT64_MIN;
}
