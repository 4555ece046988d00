/*-------------------------------------------------------------------------
 *
 * lease_watch.c
 *	  Looks for leases that have ended.
 *
 * Run by the timer.  The model in test/model calls these steps V2 to V5.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/clock.h"
#include "../shmem/groups.h"
#include "../shmem/queue_limits.h"
#include "../shmem/shared.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"
#include "timer.h"

/* Time before the next look if the table is locked, or after an error, in us. */
#define RETRY_US		(100 * 1000)
/* Maximum number of messages that are read in one look. */
#define SLICE			1000

/* Leases that ended before this time have been read. */
static TimestampTz looked_until = 0;

/* Initializes the watch.  Leases that have ended by now are read with the lanes. */
void
dw_lease_watch_begin(DwDatabase *db)
{
	looked_until = dw_now();
	(void) dw_lease_end_ask(&db->timer_news, looked_until);
}

/*
 * For a load that reads a leased row.  Returns false if leases with this end were read already.
 * Otherwise reads the row at its end, which plain SQL may have changed.
 */
bool
dw_lease_watch_reads(DwDatabase *db, TimestampTz end)
{
	if (end <= looked_until)
		return false;
	(void) dw_lease_end_ask(&db->timer_news, end);
	return true;
}

/* A look of the watch. */
typedef struct Look
{
	DwDatabase *db;
	TimestampTz from;			/* reads the leases that ended between "from" and "now" */
	TimestampTz now;
	TimestampTz next;			/* when to look again */
} Look;

/* For dw_read(), step V3: reads up to SLICE leases. */
static bool
read_ended(Relation rel, void *arg)
{
	Look	   *look = arg;
	DwDatabase *db = look->db;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			n = 0;

	if (!ConditionalLockRelationOid(dw_catalog()->task_lease_index, AccessShareLock))
		return false;
	look->next = DW_NEVER;
	scan = dw_lease_scan_begin(rel, look->from, GetActiveSnapshot());
	while ((tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL)
	{
		DwTaskKey	key;
		DwHint		hint;

		dw_task_key(rel, tuple, &key);
		if (key.due > look->now || ++n > SLICE)
		{
			look->next = key.due;
			break;
		}
		if (key.origin != dw_origin_stamp())
			continue;
		if (!dw_lane_enter(db, key.owner, key.queue, key.priority, &hint.lane))
		{
			/* discovery will find the message, when its lane gets a place */
			dw_reload_ask(&db->timer_news, key.due);
			continue;
		}
		hint.id = key.id;
		hint.due = key.due;
		hint.tid = key.tid;
		/* with this number the hint is not dropped: the entry of an earlier load may be gone */
		hint.loads = (uint16) dw_loads_read(&db->timer_news);
		dw_hint_take(&hint);
	}
	dw_lease_scan_end(scan);
	/* V4 */
	looked_until = Min(look->next, look->now);
	return true;
}

/* If the time has come, adds messages whose leases have ended to memory. */
TimestampTz
dw_lease_watch(DwDatabase *db)
{
	Look		look = {.db = db, .now = dw_now()};

	if (dw_atomic_read(&db->timer_news.lease_end) > look.now)
		return dw_atomic_read(&db->timer_news.lease_end);
	/* V2: before the snapshot is taken, so that no lease that is committed later is missed */
	look.from = dw_lease_end_take(&db->timer_news);
	/* a lease may have ended before its commit, so the timer could not see it */
	look.from = Min(look.from, looked_until);
	if (dw_read(db, "read leases", read_ended, &look) != DW_READ_DONE)
	{
		/* V5: the next look begins at the same time as this look */
		looked_until = look.from;
		look.next = dw_extension_gone ? DW_NEVER : look.now + RETRY_US;
	}
	dw_hints_read_rest();
	(void) dw_lease_end_ask(&db->timer_news, look.next);
	return dw_atomic_read(&db->timer_news.lease_end);
}

/*---- Waking sessions that wait for a message (shmem/published.c) ----*/

/* Step Q4 of the model: wakes a session for one queue, see dw_wake_receivers(). */
static TimestampTz
wake_for_queue(DwDatabase *db, DwQueue *queue)
{
	TimestampTz now = dw_now();
	TimestampTz look_again = DW_NEVER;

	/* ignore a time in the future, which was stored before the clock was set back */
	if (queue->woken_at <= now && now - queue->woken_at < DW_WAKE_AGAIN_US)
		return queue->woken_at + DW_WAKE_AGAIN_US;
	if (dw_ready_has_message(db, queue, &look_again) && dw_await_wake_one(queue))
		look_again = now + DW_WAKE_AGAIN_US;
	return look_again;
}

/*
 * Sets *ask to true if the sweeper must notify the queue's channel of a message that has become
 * ready, since a timer commits nothing.  Returns when a limit ends and the timer must look again.
 */
static TimestampTz
notify_for_queue(DwDatabase *db, DwQueue *queue, bool *ask)
{
	TimestampTz look_again = DW_NEVER;

	if (!queue->has_news || !dw_ready_has_message(db, queue, &look_again))
		return look_again;
	queue->has_news = false;
	queue->notify_asked = true;
	*ask = true;
	return DW_NEVER;
}

/*
 * Wakes a session for each external queue with a message that can be taken, and requests the
 * notification of its channel.
 */
TimestampTz
dw_wake_receivers(DwDatabase *db)
{
	TimestampTz look_again = DW_NEVER;
	bool		ask = false;

	/* a session that registers after this check has checked the ready lists itself */
	if (db->awaiting == 0 && db->notifying == 0)
		return DW_NEVER;
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	for (int i = 0; i < db->queue_places; i++)
	{
		DwQueue    *queue = &dw_queues[i];
		TimestampTz wake_at = DW_NEVER;
		TimestampTz notify_at = DW_NEVER;

		if (queue->database != db->oid)
			continue;
		if (queue->waiting > 0)
			wake_at = wake_for_queue(db, queue);
		if (queue->notifies)
			notify_at = notify_for_queue(db, queue, &ask);
		look_again = Min(look_again, Min(wake_at, notify_at));
	}
	LWLockRelease(dw_ready_lock(db));
	if (ask)
		dw_ask_sweeper(db, DW_JOB_NOTIFY, dw_job_soonest(&db->sweeper_news, DW_JOB_NOTIFY));
	return look_again;
}
