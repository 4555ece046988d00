/*-------------------------------------------------------------------------
 *
 * lease_watch.c
 *	  Looks for leases that have ended.
 *
 * Run by the timer.  The row of a leased message is due when the lease ends.  Usually the receiver
 * has ended the message by then, and the row is gone.  So a session that leases a message sends no
 * hint, since an entry in memory would be useless.  Instead the session lowers one time for the
 * whole database, at which the first lease ends.  At this time the timer reads the leases that have
 * ended since its last look, by an index of leases.  The timer adds their messages to memory like
 * hinted tasks.
 *
 * A load skips leased rows, since their entries would be useless, or duplicates.
 *
 * The model in test/model calls these steps V2 to V5.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../rows/catalog.h"
#include "../rows/lease_scan.h"
#include "../rows/task_rows.h"
#include "../shmem/groups.h"
#include "../shmem/queue_limits.h"
#include "../shmem/shared.h"
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
 * Called by a load that reads a leased row.  Returns false if leases with this end were read
 * already.  Otherwise the watch reads the row when its lease ends, even if plain SQL has changed
 * the end.
 */
bool
dw_lease_watch_reads(DwDatabase *db, TimestampTz end)
{
	if (end <= looked_until)
		return false;
	(void) dw_lease_end_ask(&db->timer_news, end);
	return true;
}

/* Reads up to SLICE leases that ended between "from" and "now".  Returns when to look again. */
static TimestampTz
read_ended(DwDatabase *db, Relation rel, TimestampTz from, TimestampTz now, DwTakeHint take)
{
	DwLeaseScan *scan = dw_lease_scan_begin(rel, from, GetActiveSnapshot());
	TimestampTz next = DW_NEVER;
	HeapTuple	tuple;
	int			n = 0;

	while ((tuple = dw_lease_scan_next(scan)) != NULL)
	{
		DwTaskKey	key;
		DwHint		hint;

		dw_task_key(rel, tuple, &key);
		if (key.due > now || ++n > SLICE)
		{
			next = key.due;
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
		take(&hint);
	}
	dw_lease_scan_end(scan);
	/* V4 */
	looked_until = Min(next, now);
	return next;
}

/*
 * If the time has come, adds messages whose leases have ended to memory.  Returns when the timer
 * must call this again.  If a session leases a message for a shorter time, the timer calls this
 * earlier.
 */
TimestampTz
dw_lease_watch(DwDatabase *db, DwTakeHint take)
{
	TimestampTz now = dw_now();
	TimestampTz from;
	volatile TimestampTz next = now + RETRY_US;

	if (dw_atomic_read(&db->timer_news.lease_end) > now)
		return dw_atomic_read(&db->timer_news.lease_end);
	/* V2: before the snapshot is taken, so that no lease that is committed later is missed */
	from = dw_lease_end_take(&db->timer_news);
	/* a lease may have ended before its commit, so the timer could not see it */
	from = Min(from, looked_until);
	PG_TRY();
	{
		Relation	rel = dw_read_begin();

		if (dw_extension_gone)
			next = DW_NEVER;
		else if (rel != NULL &&
				 ConditionalLockRelationOid(dw_catalog()->task_lease_index, AccessShareLock))
		{
			/* V3 */
			next = read_ended(db, rel, from, now, take);
			from = now;
		}
		dw_read_end(rel);
	}
	PG_CATCH();
	{
		dw_read_failed(db, "read leases");
	}
	PG_END_TRY();
	/* V5: if nothing was read, the next look begins at the same time as this look */
	looked_until = Min(looked_until, from);
	if (next != DW_NEVER)
		(void) dw_lease_end_ask(&db->timer_news, next);
	return dw_atomic_read(&db->timer_news.lease_end);
}

/*---- Waking sessions that wait for a message ----*/

/*
 * Run by the timer, whenever something may have become ready, and when a limit of a queue has
 * ended.  The timer wakes one session for each external queue with a message that can be taken (see
 * shmem/receivers.c).  The sweeper notifies the queue's channel, since a timer commits nothing.
 */

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
 * Sets *ask to true if a message that can be taken has become ready: then the sweeper must notify
 * the queue's channel.  Returns the time at which a limit ends and the timer must look again.
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
 * notification of its channel.  Returns when the timer must call this again.  If a message becomes
 * ready, the timer calls this earlier.
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
