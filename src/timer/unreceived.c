/*-------------------------------------------------------------------------
 *
 * unreceived.c
 *	  Drops entries of messages that are gone, if nobody receives from their queue.
 *
 * Run by the timer.  If a due message is cancelled or moved, its entry stays in memory until a
 * receiver takes it.  Without receivers the views would go on counting the message as due, and the
 * timer could never rest.  So the timer loads such lanes again.  A paused queue causes no wake-up.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "timer.h"

/* The interval between two looks; also how long nobody has received from a queue, in microseconds. */
#define INTERVAL_US		(10 * USECS_PER_SEC)
/* Maximum number of lanes in one look. */
#define LANES_MOST		100

/* The first due messages of some lanes. */
typedef struct Firsts
{
	int			n;
	DwEntry		entries[LANES_MOST];
	bool		gone[LANES_MOST];
} Firsts;

/* The time of the next look; DW_NEVER if there is nothing to look at. */
static TimestampTz next_look = DW_NEVER;
/* The number of the lane at which the last look has ended; DW_NO_LANE: at the last lane. */
static int32 last_lane = DW_NO_LANE;

/* Returns true if this row is still the row of the entry. */
static bool
is_row_of(Relation rel, HeapTuple tuple, const DwEntry *entry)
{
	const DwLane *lane = &dw_lanes[entry->lane];
	DwTaskKey	key;

	dw_task_key(rel, tuple, &key);
	return key.due == entry->due && key.owner == lane->owner && key.queue == lane->queue &&
		key.priority == lane->priority;
}

/* Returns true if the database has an external queue with due messages that is not paused. */
static bool
any_waits(DwDatabase *db)
{
	for (int i = 0; i < db->queue_places; i++)
		if (dw_queues[i].database == db->oid && dw_queues[i].external && dw_queues[i].turns.n > 0)
			return true;
	return false;
}

/*
 * Returns true if nobody has looked for the lane's due messages lately, and no open transaction has
 * received any of the queue: a load would read their rows again.  Needs the ready lock.
 */
static bool
is_unreceived(const DwLane *lane, TimestampTz now)
{
	const DwQueue *queue = dw_lane_queue(lane);

	return queue != NULL && lane->external && lane->paused == DW_NOT_PAUSED &&
		dw_ready_count(lane) > 0 && queue->waiting == 0 && now - queue->looked_at >= INTERVAL_US &&
		pg_atomic_read_u32((pg_atomic_uint32 *) &queue->received) == 0;
}

/* Collects the first messages of lanes that nobody receives from, beginning after last_lane. */
static void
collect_firsts(DwDatabase *db, Firsts *firsts)
{
	TimestampTz now = dw_now();

	firsts->n = 0;
	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	do
	{
		const DwEntry *first;

		last_lane = dw_lane_after(db, last_lane);
		if (last_lane == DW_NO_LANE || !is_unreceived(&dw_lanes[last_lane], now))
			continue;
		first = dw_ready_first(&dw_lanes[last_lane]);
		if (first != NULL)
			firsts->entries[firsts->n++] = *first;
	} while (last_lane != DW_NO_LANE && firsts->n < LANES_MOST);
	LWLockRelease(dw_ready_lock(db));
}

/*
 * For dw_read(): finds out which of the messages are gone.  A snapshot that is newer than an entry
 * sees the entry's row, until a transaction that has deleted or moved the message is committed.
 */
static bool
find_gone(Relation rel, void *arg)
{
	Firsts	   *firsts = arg;

	for (int i = 0; i < firsts->n; i++)
	{
		const DwEntry *entry = &firsts->entries[i];
		HeapTuple	tuple = dw_task_find(rel, entry->id, GetActiveSnapshot());

		firsts->gone[i] = tuple == NULL || !is_row_of(rel, tuple, entry);
	}
	return true;
}

/* Returns true if the lane of a first message may have entries that are gone, or twice there. */
static bool
must_be_read(const Firsts *firsts, int i)
{
	/* before the load, so that the load sees what a session reports later */
	bool		in_doubt = pg_atomic_exchange_u32(&dw_lanes[firsts->entries[i].lane].in_doubt, 0) != 0;

	return in_doubt || firsts->gone[i];
}

/*
 * From time to time looks at lanes that nobody receives from.  If the first message of a lane is
 * gone, or a session has locked any of its due messages to cancel or move it, drops all entries of
 * the lane, and has the lane loaded again.
 */
TimestampTz
dw_unreceived_look(DwDatabase *db)
{
	TimestampTz now = dw_now();
	Firsts	   *firsts;

	if (pg_atomic_read_u64(&db->ready) == 0 || !any_waits(db))
		return next_look = DW_NEVER;
	if (next_look == DW_NEVER)
		next_look = now + INTERVAL_US;
	if (next_look > now)
		return next_look;
	next_look = now + INTERVAL_US;
	firsts = palloc(sizeof(Firsts));
	collect_firsts(db, firsts);
	if (firsts->n > 0 &&
		dw_read(db, "look for messages that are gone", find_gone, firsts) == DW_READ_DONE)
	{
		for (int i = 0; i < firsts->n; i++)
			if (must_be_read(firsts, i))
				dw_near_cut(&dw_lanes[firsts->entries[i].lane], PG_INT64_MIN, PG_INT64_MIN);
		dw_near_apply_cuts();
	}
	pfree(firsts);
	return next_look;
}
