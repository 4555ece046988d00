/*-------------------------------------------------------------------------
 *
 * lease_watch.c
 *	  The timer looks for leases that have ended.
 *
 * Run by the timer.  A message that is leased is a row that is due when its lease ends.
 * Mostly it is gone by then, since its receiver was done with it.  So a lease sends no
 * hint, which would put an entry into memory and into a ready list for nothing.  Instead
 * sessions lower one time for the whole database, that of the first end.  Then the timer
 * reads the leases that have ended since its last look, by an index that has only leases,
 * and takes these messages into memory as if it were told of them.
 *
 * A load of a lane leaves leased rows out, whose entries would be for nothing as well, or else
 * be there twice.
 *
 * Steps V2 to V5 of the model in test/model.
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
#include "../shmem/lanes.h"
#include "../shmem/queue_limits.h"
#include "../shmem/ready.h"
#include "../shmem/receivers.h"
#include "../shmem/shared.h"
#include "timer.h"

/* Time before the next look if the table is locked, or after an error, in us. */
#define RETRY_US		(100 * 1000)
/* Messages that are read in one look. */
#define SLICE			1000

/* Leases that ended before this time have been looked at. */
static TimestampTz looked_until = 0;

/*
 * Must be called before dw_lease_watch().  Leases that have ended by now are read with
 * the lanes.
 */
void
dw_lease_watch_begin(DwDatabase *db)
{
	looked_until = dw_now();
	(void) dw_lease_end_ask(&db->timer_news, looked_until);
}

/*
 * For a load that meets a leased row: false if leases that end then have been looked at; else
 * the row will be looked at when its lease ends, also if plain SQL has changed that.
 */
bool
dw_lease_watch_reads(DwDatabase *db, TimestampTz end)
{
	if (end <= looked_until)
		return false;
	(void) dw_lease_end_ask(&db->timer_news, end);
	return true;
}

/*
 * Reads up to SLICE leases that end from this time on and have ended by now; returns when
 * to look again.
 */
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
			/* it is found again with the lanes that wait for a place */
			dw_reload_ask(&db->timer_news, key.due);
			continue;
		}
		hint.id = key.id;
		hint.due = key.due;
		hint.tid = key.tid;
		/* an entry that a load has made of it may have been taken before the lease ended */
		hint.loads = (uint16) dw_loads_read(&db->timer_news);
		take(&hint);
	}
	dw_lease_scan_end(scan);
	/* V4 */
	looked_until = Min(next, now);
	return next;
}

/*
 * Takes messages whose lease has ended into memory, if it is time to look for them.
 * Returns when the timer must call it again, unless a session leases a message for a
 * shorter time.
 */
TimestampTz
dw_lease_watch(DwDatabase *db, DwTakeHint take)
{
	TimestampTz now = dw_now();
	TimestampTz from;
	volatile TimestampTz next = now + RETRY_US;

	if (dw_lease_end_asked(&db->timer_news) > now)
		return dw_lease_end_asked(&db->timer_news);
	/* V2: taken before the snapshot, so that a lease that is committed later is not missed */
	from = dw_lease_end_take(&db->timer_news);
	/* a lease may have ended, and been passed by, before it was committed */
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
	/* V5, nothing was read: the next look begins where this one would have */
	looked_until = Min(looked_until, from);
	if (next != DW_NEVER)
		(void) dw_lease_end_ask(&db->timer_news, next);
	return dw_lease_end_asked(&db->timer_news);
}

/*---- The timer wakes sessions that wait for a message ----*/

/*
 * Run by the timer, whenever something may have become ready, and when a limit of a queue
 * has ended.  One session is woken for each external queue with a message that can be
 * taken.  That session wakes the next one, when it takes a message and others are left.
 * If it has not looked within DW_WAKE_AGAIN_US, the timer wakes another.  Sessions that
 * listen to a queue's channel are notified by the sweeper, since a timer commits nothing.
 */

/* Step Q4 of the model: wakes a session for one queue, see dw_wake_receivers(). */
static TimestampTz
wake_for_queue(DwDatabase *db, DwQueue *queue)
{
	TimestampTz now = dw_now();
	TimestampTz look_again = DW_NEVER;

	/* a time in the future is of a clock that was set back since */
	if (queue->woken_at <= now && now - queue->woken_at < DW_WAKE_AGAIN_US)
		return queue->woken_at + DW_WAKE_AGAIN_US;
	if (dw_ready_has_message(db, queue, &look_again) && dw_await_wake_one(queue))
		look_again = now + DW_WAKE_AGAIN_US;
	return look_again;
}

/*
 * Asks the sweeper to notify the channel of a queue, if something has become ready since it
 * was asked last and can be taken.  Returns when to look again, since a limit ends.
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
 * Wakes a session for each external queue with a message that can be taken, and has those
 * notified that have a channel.  Returns when the timer must call it again, unless
 * something becomes ready before.
 */
TimestampTz
dw_wake_receivers(DwDatabase *db)
{
	TimestampTz look_again = DW_NEVER;
	bool		ask = false;

	/* a session that registers after this has looked at what is ready now */
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
