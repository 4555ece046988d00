/*-------------------------------------------------------------------------
 *
 * queue_limits.c
 *	  Pauses and limits of queues, which decide whether a lane may begin a task.
 *
 * Run by timers, executors and sessions that receive messages, under the ready lock of the
 * database, except for functions with another comment.  See "Limits and turns" in README.md.
 *
 * In an external queue, max_running limits the messages that open transactions have received
 * (DwQueue.received) and the leased messages (DwQueue.leased).  The end of a transaction changes
 * both numbers in a callback, without a lock.
 *
 * Leases are rows.  A session that is about to receive counts the leases after a restart, when the
 * first lease has ended, and when the number is in doubt.  Between two counts, transactions that
 * begin or end leases change the number, after their commit has become visible.  A count may
 * already include this change.  Therefore the transaction reads lease_counts before its commit.  If
 * leases were counted since, the transaction puts the number in doubt.  The transaction also
 * increments lease_changes after each change, so the result of a count that began earlier is not
 * used.  Rare changes of leases (a shorter lease, a cancelled message) only put the number in
 * doubt.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/settings.h"
#include "queue_limits.h"

DwQueue    *dw_queues = NULL;

const char *const dw_limit_texts[] = {
	[DW_LIMIT_NONE] = "",
	[DW_LIMIT_PAUSED] = "paused",
	[DW_LIMIT_RUNNING] = "max_running",
	[DW_LIMIT_RATE] = "rate",
	[DW_LIMIT_TURN] = "another owner's turn",
	[DW_LIMIT_GROUP] = "limits of groups"
};

const char *const dw_pause_texts[] = {
	[DW_NOT_PAUSED] = "",
	[DW_PAUSED_DATABASE] = "all tasks of the database are paused",
	[DW_PAUSED_OWNER] = "all tasks of the role are paused",
	[DW_PAUSED_QUEUE] = "the queue is paused",
	[DW_PAUSED_NO_QUEUE] = "the queue is not declared",
	[DW_PAUSED_NO_PLACE] = "too many queues are declared, see delay_wheel.max_queues"
};

/*---- Rates, which limit how many tasks start in a period ----*/

/* Minimum tolerance of a rate without a burst, in us. */
#define TOLERANCE_US	(100 * 1000)

/* Returns the time between two tasks by the rate, in microseconds, rounded down. */
static int64
start_interval(const DwRate *rate)
{
	return rate->per / rate->starts;
}

/*
 * Returns how far next_start may be behind the clock, in microseconds: the time of the starts that
 * may be made up for.  So tasks that begin late do not lower the average, and bursts are limited.
 */
static int64
tolerance(const DwRate *rate)
{
	int64		interval = start_interval(rate);

	return rate->burst > 0 ? (rate->burst - 1) * interval : Max(interval, TOLERANCE_US);
}

/*
 * Returns when the rate allows the next task: at most one interval from now, even if the rate was
 * raised or the clock was set back.
 */
TimestampTz
dw_rate_next(const DwRate *rate, const DwRateUse *use, TimestampTz now)
{
	return Min(Max(use->next_start, now - tolerance(rate)), now + start_interval(rate));
}

/* Returns how many tasks the rate allows now.  At *until the rate allows one more task. */
static uint32
rate_room(const DwRate *rate, const DwRateUse *use, TimestampTz now, TimestampTz *until)
{
	TimestampTz next = dw_rate_next(rate, use, now);
	int64		interval = Max(start_interval(rate), 1);
	int64		starts = next > now ? 0 : (now - next) / interval + 1;

	*until = next + starts * interval;
	return Min(starts, PG_INT32_MAX);
}

/* Returns when the rate will be fully available again, as if no task had started. */
TimestampTz
dw_rate_unused_at(const DwRate *rate, const DwRateUse *use)
{
	return use->next_start + tolerance(rate);
}

/* Counts a task that is taken. */
void
dw_rate_start(const DwRate *rate, DwRateUse *use, TimestampTz now)
{
	use->next_start = dw_rate_next(rate, use, now) + start_interval(rate);
	/* add the fraction that start_interval() rounds off */
	use->start_fraction += rate->per % rate->starts;
	use->next_start += use->start_fraction / rate->starts;
	use->start_fraction %= rate->starts;
}

/* Removes a task that has not begun from the count. */
void
dw_rate_not_begun(const DwRate *rate, DwRateUse *use)
{
	use->next_start -= start_interval(rate);
}

/*---- Places ----*/

/*
 * Returns the queue at this index of dw_queues, or NULL if the place does not belong to this queue
 * (any more), or the index is DW_NO_QUEUE.
 */
static DwQueue *
queue_at(int32 place, Oid database, int16 id)
{
	DwQueue    *queue = place == DW_NO_QUEUE ? NULL : &dw_queues[place];

	return queue != NULL && queue->database == database && queue->id == id ? queue : NULL;
}

/* Returns the declared queue of a lane, or NULL (default queue, or not declared). */
DwQueue *
dw_lane_queue(const DwLane *lane)
{
	return queue_at(lane->queue_place, lane->database, lane->queue);
}

/* Returns the queue with this id, or NULL if it has no place.  Needs the table or ready lock. */
DwQueue *
dw_queue_place_of(DwDatabase *db, int16 id)
{
	static int32 last = 0;

	if (queue_at(last, db->oid, id) != NULL)
		return &dw_queues[last];
	for (int32 i = 0; i < dw_max_queues; i++)
		if (queue_at(i, db->oid, id) != NULL)
			return &dw_queues[last = i];
	return NULL;
}

/* Makes a list of lanes empty. */
void
dw_turns_init(DwTurns *turns)
{
	turns->first = turns->last = turns->newest = DW_NO_LANE;
	turns->n = turns->jumps = 0;
}

/* Returns true if DwQueue.leased is valid. */
static bool
leases_are_known(const DwQueue *queue)
{
	return pg_atomic_read_u32((pg_atomic_uint32 *) &queue->lease_doubt) == 0 &&
		queue->leases_until > dw_now();
}

/*
 * Returns how many tasks of the queue run, or are received or leased.  Does not include leases if
 * their number is unknown, since a receiver counts them first.
 */
static uint32
in_work(const DwQueue *queue)
{
	uint32		n = queue->running + pg_atomic_read_u32((pg_atomic_uint32 *) &queue->received);

	return leases_are_known(queue) ? n + pg_atomic_read_u32((pg_atomic_uint32 *) &queue->leased) : n;
}

/* Returns true if the queue is declared with a limit. */
static bool
is_limited(const DwQueue *queue)
{
	return queue != NULL && (queue->max_running > 0 || queue->rate.starts > 0);
}

/*---- Limits of a lane ----*/

/*
 * Returns the reason why the lane must not begin a task now.  Ignores the limits of groups, which
 * dw_lane_limit() includes.
 *
 * With DW_LIMIT_NONE, the lane may begin *room tasks now (PG_UINT32_MAX: any number), and the rate
 * allows more tasks at *until.  With DW_LIMIT_RATE or DW_LIMIT_TURN, the limit ends at *until.
 * *until is DW_NEVER if the limit does not end by time: then another process wakes the timer.
 */
DwLimit
dw_queue_limit(const DwLane *lane, TimestampTz now, uint32 *room, TimestampTz *until)
{
	const DwQueue *queue = dw_lane_queue(lane);

	*room = PG_UINT32_MAX;
	*until = DW_NEVER;
	if (lane->paused)
		return DW_LIMIT_PAUSED;
	if (queue == NULL)
		return DW_LIMIT_NONE;
	if (dw_limits_full(lane))
	{
		if (leases_are_known(queue))
			*until = queue->leases_until;
		return DW_LIMIT_RUNNING;
	}
	if (queue->max_running > 0)
		*room = queue->max_running - in_work(queue);
	if (queue->rate.starts > 0)
	{
		*room = Min(*room, rate_room(&queue->rate, &queue->rate_use, now, until));
		if (*room == 0)
			return DW_LIMIT_RATE;
	}
	/* the queue's turn is reserved for another owner */
	if (queue->kept_for != lane->owner && dw_is_ahead(queue->kept_until, now, DW_TURN_US) &&
		--*room == 0)
	{
		*until = queue->kept_until;
		return DW_LIMIT_TURN;
	}
	return DW_LIMIT_NONE;
}

/* Counts a task of the lane that an executor takes, or a message that a session takes. */
void
dw_limits_take(DwLane *lane, TimestampTz now)
{
	DwQueue    *queue = dw_lane_queue(lane);

	if (!lane->external)
		lane->running++;
	if (queue == NULL)
		return;
	if (lane->external)
		pg_atomic_fetch_add_u32(&queue->received, 1);
	else
		queue->running++;
	if (queue->rate.starts > 0)
		dw_rate_start(&queue->rate, &queue->rate_use, now);
	if (queue->kept_for == lane->owner && queue->kept_until != 0)
	{
		queue->kept_until = 0;
		queue->next_turn = now + DW_TURN_US;
	}
}

/* Returns true if max_running tasks of the lane's queue run. */
bool
dw_limits_full(const DwLane *lane)
{
	const DwQueue *queue = dw_lane_queue(lane);

	return queue != NULL && queue->max_running > 0 &&
		in_work(queue) >= (uint32) queue->max_running;
}

/* Subtracts a message that was not received from the rate.  Needs the ready lock. */
void
dw_limits_not_begun(DwDatabase *db, int16 queue)
{
	DwQueue    *place = dw_queue_place_of(db, queue);

	if (place != NULL && place->rate.starts > 0)
		dw_rate_not_begun(&place->rate, &place->rate_use);
}

/*
 * Returns true if the leases of the queue need not be counted: their number is known, or
 * max_running is not set.  Otherwise the caller counts them with a snapshot that it takes after
 * this call, and passes *changes to dw_limits_leases_counted().  Takes the ready lock.
 */
bool
dw_limits_leases_known(DwDatabase *db, int16 queue, uint32 *changes)
{
	DwQueue    *place;
	bool		known;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	place = dw_queue_place_of(db, queue);
	known = place == NULL || place->max_running == 0 || leases_are_known(place);
	if (!known)
	{
		/* the number is unknown for all sessions until the count is stored */
		place->leases_until = 0;
		/* full barrier: a change that the snapshot may miss sets lease_doubt after this */
		(void) pg_atomic_exchange_u32(&place->lease_doubt, 0);
		*changes = pg_atomic_read_u32(&place->lease_changes);
	}
	LWLockRelease(dw_ready_lock(db));
	return known;
}

/*
 * Stores the number n of the queue's leases.  The first lease ends at next_end.  Returns false if
 * leases have changed during the count, and must be counted again.  Takes the ready lock.
 */
bool
dw_limits_leases_counted(DwDatabase *db, int16 queue, uint32 changes, uint32 n,
						 TimestampTz next_end)
{
	DwQueue    *place;
	bool		holds;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	place = dw_queue_place_of(db, queue);
	holds = place == NULL || pg_atomic_read_u32(&place->lease_changes) == changes;
	if (place != NULL && holds)
	{
		pg_atomic_write_u32(&place->leased, n);
		place->leases_until = next_end;
		/* full barrier: the next change reads the new value */
		pg_atomic_fetch_add_u32(&place->lease_counts, 1);
	}
	LWLockRelease(dw_ready_lock(db));
	return holds;
}

/* Puts the number of leases in doubt, so that leases are counted again. */
static void
doubt_leases(DwQueue *queue)
{
	pg_atomic_write_u32(&queue->lease_doubt, 1);
	/* full barrier, see dw_limits_leases_known() */
	pg_atomic_fetch_add_u32(&queue->lease_changes, 1);
}

/* The functions below, for commit callbacks, take no lock.  "place" may be DW_NO_QUEUE. */

/*
 * Returns how often the leases of the queue at this place were counted.  A transaction that begins
 * or ends leases calls this before its commit.
 */
uint32
dw_limits_lease_counts(int32 place)
{
	return place == DW_NO_QUEUE ? 0 : pg_atomic_read_u32(&dw_queues[place].lease_counts);
}

/*
 * Called after each change of "leased".  If leases were counted after the caller read "counts",
 * "leased" may be wrong.
 */
static void
lease_changed(DwQueue *queue, uint32 counts)
{
	/* full barrier: a count that misses this change is noticed below */
	pg_atomic_fetch_add_u32(&queue->lease_changes, 1);
	if (pg_atomic_read_u32(&queue->lease_counts) != counts)
		doubt_leases(queue);
}

/* Counts a new lease.  "counts": see dw_limits_lease_counts(). */
void
dw_limits_lease_begins(Oid database, int32 place, int16 queue, uint32 counts)
{
	DwQueue    *q = queue_at(place, database, queue);

	if (q == NULL)
		return;
	pg_atomic_fetch_add_u32(&q->leased, 1);
	lease_changed(q, counts);
}

/*
 * Counts the end of a lease that would have lasted until this time.  Returns true if max_running is
 * set: then the caller wakes the timer.
 */
bool
dw_limits_lease_over(Oid database, int32 place, int16 queue, uint32 counts, TimestampTz until)
{
	DwQueue    *q = queue_at(place, database, queue);
	uint32		leased;

	if (q == NULL)
		return false;
	/* the time of the lease is over, so a count may not include the lease */
	if (until <= dw_now())
		doubt_leases(q);
	else
	{
		leased = pg_atomic_read_u32(&q->leased);
		while (leased > 0 && !pg_atomic_compare_exchange_u32(&q->leased, &leased, leased - 1))
			;
		lease_changed(q, counts);
		/* the lease began in this transaction */
		if (leased == 0)
			doubt_leases(q);
	}
	return q->max_running > 0;
}

/*
 * Puts the numbers of leases of all queues in doubt, since leases may have changed in an unusual
 * way.  If a queue of the database has a limit for messages, returns true: then the caller wakes
 * the timer.
 */
bool
dw_limits_doubt_leases(DwDatabase *db)
{
	bool		wake = false;

	for (int i = 0; i < dw_max_queues; i++)
		if (dw_queues[i].database == db->oid)
		{
			doubt_leases(&dw_queues[i]);
			wake |= dw_queues[i].max_running > 0;
		}
	return wake;
}

/*
 * Counts a lapsed lease: the receiver did not end the lease, and the message was received again, or
 * ended.
 */
void
dw_limits_lease_lapsed(Oid database, int32 place, int16 queue)
{
	DwQueue    *q = queue_at(place, database, queue);

	if (q != NULL)
		pg_atomic_fetch_add_u64(&q->lapsed, 1);
}

/*
 * Counts the end of a message of a queue that a transaction had received.  "place" is the queue's
 * index in dw_queues at that time.  Returns true if the queue was full before: then the caller
 * wakes the timer.
 */
bool
dw_limits_received(Oid database, int32 place, int16 queue)
{
	DwQueue    *q = queue_at(place, database, queue);

	/* the place may belong to another queue, if plain SQL has deleted the row of this queue */
	if (q == NULL)
		return false;
	pg_atomic_fetch_sub_u32(&q->received, 1);
	return q->max_running > 0 && in_work(q) + 1 >= (uint32) q->max_running;
}

/*
 * Counts the end of a task of the lane.  "begun" is true if its SQL had begun.
 *
 * If the queue was full before, returns true: then the caller must wake the timer, or take another
 * task of the queue at once.
 */
bool
dw_limits_end(DwLane *lane, bool begun)
{
	DwQueue    *queue = dw_lane_queue(lane);
	bool		was_full = dw_limits_full(lane);

	Assert(lane->running > 0);
	lane->running--;
	if (queue == NULL)
		return false;
	Assert(queue->running > 0);
	queue->running--;
	if (queue->rate.starts > 0 && !begun)
		dw_rate_not_begun(&queue->rate, &queue->rate_use);
	return was_full;
}

/*---- Turns ----*/

/* Returns true if the lane's owner has waited long enough for a turn, and could begin a task. */
static bool
waits_for_turn(const DwLane *lane, TimestampTz now)
{
	return (dw_ready_ungrouped(lane) > 0 || lane->groups.nopen > 0) &&
		!lane->paused && dw_lane_owner(lane)->retry_at <= now &&
		lane->running < dw_lane_executors() && now - lane->waits_since >= DW_TURN_US;
}

/*
 * If another owner has waited too long, and longer than the lane's owner, reserves the turn of the
 * lane's queue for this owner, and returns true.  Called when an executor is about to take a task of
 * the lane.
 */
bool
dw_limits_keep_for_other(DwDatabase *db, const DwLane *lane, TimestampTz now)
{
	DwQueue    *queue = dw_lane_queue(lane);
	DwLane	   *longest = NULL;
	dlist_iter	iter;

	if (!is_limited(queue) || dw_is_ahead(queue->next_turn, now, DW_UNUSED_TURN_US))
		return false;
	queue->next_turn = now + DW_TURN_US;
	dlist_foreach(iter, &db->ready_owners)
	{
		DwOwner    *owner = dw_linked_owner(iter.cur);

		if (owner->role == lane->owner)
			continue;
		for (int32 i = owner->turns.first; i != DW_NO_LANE; i = dw_lanes[i].ready_next)
		{
			DwLane	   *other = &dw_lanes[i];

			if (other->queue == lane->queue && waits_for_turn(other, now) &&
				other->waits_since < (longest == NULL ? lane : longest)->waits_since)
				longest = other;
		}
	}
	if (longest == NULL)
		return false;
	/* if this owner does not use its turn, another owner is next */
	longest->waits_since = now;
	queue->next_turn = now + DW_UNUSED_TURN_US;
	queue->kept_for = longest->owner;
	queue->kept_until = now + DW_TURN_US;
	return true;
}

/*
 * Called for an owner without an executor.  Returns true if the owner has the turn, and so may get
 * the place of another owner's executor.  If the queue is limited, reserves the turn for the owner.
 * If the result is false, *until is the time for the next try.
 */
bool
dw_limits_is_turn(const DwLane *lane, TimestampTz now, TimestampTz *until)
{
	DwQueue    *queue = dw_lane_queue(lane);

	*until = DW_NEVER;
	if (!is_limited(queue))
		return true;
	if (queue->kept_for == lane->owner && queue->kept_until > now)
		return true;
	if (dw_is_ahead(queue->next_turn, now, DW_UNUSED_TURN_US))
	{
		*until = queue->next_turn;
		return false;
	}
	queue->next_turn = now + DW_TURN_US;
	queue->kept_for = lane->owner;
	queue->kept_until = now + DW_TURN_US;
	return true;
}

/* Corrects the times of all queues of the database after the clock was set back. */
void
dw_limits_forget_times(DwDatabase *db)
{
	TimestampTz now = dw_now();

	for (int i = 0; i < dw_max_queues; i++)
	{
		DwQueue    *queue = &dw_queues[i];

		if (queue->database != db->oid)
			continue;
		if (queue->rate.starts > 0)
			queue->rate_use.next_start = dw_rate_next(&queue->rate, &queue->rate_use, now);
		queue->next_turn = queue->kept_until = 0;
	}
}

/*---- Places of queues ----*/

/*
 * Makes timers look again if their databases have queues without a place.  Called after places in
 * dw_queues were given back.
 */
void
dw_tell_queues_without_place(void)
{
	dw_each_database(db)
	{
		if (!OidIsValid(db->oid) || !db->queues_missing)
			continue;
		dw_control_raise(&db->timer_news);
		dw_wake_timer(db, DW_AWAKE);
	}
}

/* Fills a free place for this queue.  Needs the table lock and the ready lock exclusively. */
void
dw_queue_enter(DwDatabase *db, DwQueue *place, int16 id)
{
	memset(place, 0, sizeof(DwQueue));
	place->database = db->oid;
	place->id = id;
	dw_turns_init(&place->turns);
	pg_atomic_init_u32(&place->received, 0);
	pg_atomic_init_u32(&place->leased, 0);
	pg_atomic_init_u32(&place->lease_changes, 0);
	pg_atomic_init_u32(&place->lease_counts, 0);
	pg_atomic_init_u32(&place->lease_doubt, 1);
	pg_atomic_init_u64(&place->lapsed, 0);
	dw_counters_init(&place->counters);
}

/*
 * Returns the options of the queue.  The default queue, and a queue without a place in dw_queues,
 * have the built-in options.  "db" may be NULL.  Takes the ready lock.
 */
DwQueueDefaults
dw_queue_defaults(DwDatabase *db, int16 id)
{
	DwQueueDefaults defaults = {
		.timeout = -1,
		.max_attempts = 1,
		.retry_delay = DW_DEFAULT_RETRY_DELAY,
		.lease = DW_DEFAULT_LEASE
	};
	const DwQueue *queue;

	if (db == NULL || id == 0)
		return defaults;
	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	queue = dw_queue_place_of(db, id);
	if (queue != NULL)
		defaults = queue->defaults;
	LWLockRelease(dw_ready_lock(db));
	return defaults;
}

/* Gives back the queues of a database that loses its place.  Needs the table lock exclusively. */
void
dw_queues_leave(Oid database)
{
	bool		left = false;

	for (int i = 0; i < dw_max_queues; i++)
		if (dw_queues[i].database == database)
		{
			dw_queues[i].database = InvalidOid;
			left = true;
		}
	if (left)
		dw_tell_queues_without_place();
}

/*
 * Sets the fields of a new lane that come from its queue.  Needs the table lock.
 *
 * Any process may enter a lane, but only the timer can check whether the owner is paused.  Before
 * the timer has checked the lane, an executor notices a pause only after it has claimed a task.
 */
void
dw_queue_attach_lane(DwDatabase *db, DwLane *lane)
{
	const DwQueue *queue = lane->queue == 0 ? NULL : dw_queue_place_of(db, lane->queue);

	lane->queue_place = queue == NULL ? DW_NO_QUEUE : queue - dw_queues;
	lane->external = queue != NULL && queue->external;
	lane->grouped = queue != NULL && queue->groups;
	if (db->paused)
		lane->paused = DW_PAUSED_DATABASE;
	else if (lane->queue == 0)
		lane->paused = DW_NOT_PAUSED;
	else if (queue == NULL)
		lane->paused = db->queues_missing ? DW_PAUSED_NO_PLACE : DW_PAUSED_NO_QUEUE;
	else
		lane->paused = queue->pause;
}
