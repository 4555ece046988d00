/*-------------------------------------------------------------------------
 *
 * ready.c
 *	  Ready lists: tasks that are due, lane by lane, until an executor takes them.
 *
 * Run by the timer, which adds tasks, and by executors, which take them, under the
 * ready lock of the database.  Lanes of one owner take turns; lanes of one queue go by
 * their priority, but one of lower priority is not passed over for ever.  Executors of
 * one lane that take many tasks in one transaction keep apart, so that they do not wait
 * for each other's rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/clock.h"
#include "../base/inject.h"
#include "../ring/lane_heap.h"
#include "../ring/ring.h"
#include "executors.h"
#include "lanes.h"
#include "queue_limits.h"
#include "ready.h"
#include "shared.h"

/*
 * Executors in batches of a lane stay so far apart: 672 tasks, more than an
 * index page has entries.  Not where a task takes longer than that.
 */
#define APART_CHUNKS	16
#define QUICK_US	100

/* A lane of lower priority is next after it was passed over so often. */
#define PASSED_OVER_MAX	15

static void
link_last(DwDatabase *db, DwLane *lane)
{
	DwOwner    *owner = dw_lane_owner(lane);

	lane->is_listed = true;
	lane->ready_next = DW_NO_LANE;
	lane->ready_prev = owner->ready_tail;
	if (owner->ready_tail != DW_NO_LANE)
		dw_lanes[owner->ready_tail].ready_next = lane - dw_lanes;
	else
		owner->ready_head = lane - dw_lanes;
	owner->ready_tail = lane - dw_lanes;
	if (owner->nready++ == 0)
		dw_owner_list(db, owner);
}

void
dw_ready_list(DwDatabase *db, DwLane *lane)
{
	if (lane->is_listed || lane->paused != DW_NOT_PAUSED)
		return;
	lane->passed_over = 0;
	lane->waits_since = dw_now();
	link_last(db, lane);
}

static void
unlink_lane(DwLane *lane)
{
	DwOwner    *owner = dw_lane_owner(lane);

	lane->is_listed = false;
	if (lane->ready_prev != DW_NO_LANE)
		dw_lanes[lane->ready_prev].ready_next = lane->ready_next;
	else
		owner->ready_head = lane->ready_next;
	if (lane->ready_next != DW_NO_LANE)
		dw_lanes[lane->ready_next].ready_prev = lane->ready_prev;
	else
		owner->ready_tail = lane->ready_prev;
	owner->nready--;
}

void
dw_ready_unlist(DwDatabase *db, DwLane *lane)
{
	if (!lane->is_listed)
		return;
	unlink_lane(lane);
	if (dw_lane_owner(lane)->nready == 0)
		dw_owner_unlist(db, dw_lane_owner(lane));
}

/* The lane was paused, or is not paused any more. */
void
dw_ready_obey_pause(DwDatabase *db, DwLane *lane)
{
	if (lane->paused != DW_NOT_PAUSED)
		dw_ready_unlist(db, lane);
	else if (dw_ready_count(lane) > 0)
		dw_ready_list(db, lane);
}

/* Nothing is ready.  Under the table lock and the ready lock. */
void
dw_ready_reset(DwDatabase *db)
{
	for (int32 i = db->lanes; i != DW_NO_LANE; i = dw_lanes[i].next)
	{
		DwOwner    *owner = dw_lane_owner(&dw_lanes[i]);

		dw_lanes[i].is_listed = false;
		owner->ready_head = owner->ready_tail = DW_NO_LANE;
		owner->nready = 0;
		owner->list = DW_OWNER_UNLISTED;
		owner->round = 0;
	}
	db->ready_owners.head = db->ready_owners.tail = DW_NO_OWNER;
	db->blocked_owners = db->ready_owners;
	db->blocked_until = DW_NEVER;
}

/* Appends a due task; false if the pool has no place for it. */
bool
dw_ready_push(DwDatabase *db, DwLane *lane, const DwEntry *entry)
{
	if (!dw_list_push(dw_pool, &db->account, &lane->ready, entry))
		return false;
	dw_ready_list(db, lane);
	return true;
}

/*
 * Puts a task back before all others of the lane; false if the pool has no
 * place for it.
 */
bool
dw_ready_put_back(DwDatabase *db, DwLane *lane, const DwEntry *entry)
{
	if (!dw_list_put_back(dw_pool, &db->account, &lane->ready, entry))
		return false;
	dw_ready_list(db, lane);
	return true;
}

/* The first entry at a place, or the spare. */
static const DwEntry *
first_ready(const DwLane *lane, const DwPlace *place)
{
	const DwEntry *first = dw_list_first(dw_pool, place);

	if (first == NULL && lane->spare_state == DW_SPARE_READY)
		first = &lane->spare;
	return first;
}

static void
take_ready(DwDatabase *db, DwLane *lane, DwPlace *place, DwEntry *entry)
{
	if (!dw_list_pop(dw_pool, &db->account, &lane->ready, place, entry))
	{
		Assert(lane->spare_state == DW_SPARE_READY);
		*entry = lane->spare;
		lane->spare_state = DW_SPARE_FREE;
	}
}

static bool
goes_before(const DwLane *a, const DwLane *b)
{
	bool		a_waited = a->passed_over >= PASSED_OVER_MAX;
	bool		b_waited = b->passed_over >= PASSED_OVER_MAX;

	if (a_waited != b_waited)
		return a_waited;
	return a->priority > b->priority;
}

static bool
can_give(const DwLane *lane)
{
	return dw_ready_count(lane) > 0 && lane->running < dw_lane_executors();
}

/* Of a lane and its peers, the one whose task is next. */
static DwLane *
choose_peer(DwLane *lane)
{
	DwLane	   *best = lane;

	for (DwLane *peer = &dw_lanes[lane->peer]; peer != lane; peer = &dw_lanes[peer->peer])
		if (can_give(peer) && goes_before(peer, best))
			best = peer;
	return best;
}

/* A task of this lane was taken. */
static void
pass_over_peers(DwLane *taken)
{
	for (DwLane *peer = &dw_lanes[taken->peer]; peer != taken; peer = &dw_lanes[peer->peer])
		if (peer->priority < taken->priority && can_give(peer))
			peer->passed_over++;
	taken->passed_over = 0;
}

/* The next turn is another queue's. */
static void
end_turn(DwDatabase *db, DwLane *taken, TimestampTz now)
{
	DwLane	   *lane = taken;

	do
	{
		lane->waits_since = now;
		if (lane->is_listed)
			unlink_lane(lane);
		if (dw_ready_count(lane) > 0 && lane->paused == DW_NOT_PAUSED)
			link_last(db, lane);
		lane = &dw_lanes[lane->peer];
	} while (lane != taken);
	dw_owner_list(db, dw_lane_owner(taken));
}

/* May a task of the lane be taken now?  If not, *look_again is lowered. */
static bool
may_take(DwDatabase *db, DwLane *lane, TimestampTz now, TimestampTz *look_again)
{
	uint32		room;
	TimestampTz until;
	DwLimit		limit = dw_lane_limit(lane, now, &room, &until);

	if (limit == DW_LIMIT_NONE && dw_limits_keep_for_other(db, lane, now))
	{
		/* that one is to be woken */
		*look_again = now;
		limit = dw_lane_limit(lane, now, &room, &until);
	}
	if (limit != DW_LIMIT_NONE && until != DW_NEVER)
		*look_again = Min(*look_again, Max(until, now + DW_COALESCE_US));
	return limit == DW_LIMIT_NONE;
}

/* Takes the next task of the lanes whose first one is due until then. */
static bool
pop_until(DwDatabase *db, DwOwner *owner, TimestampTz until_due, TimestampTz now, DwEntry *entry,
		  TimestampTz *look_again)
{
	int32		next;

	for (int32 i = owner->ready_head; i != DW_NO_LANE; i = next)
	{
		DwLane	   *lane = &dw_lanes[i];
		DwPlace		head = dw_list_head(dw_pool, &lane->ready);
		TimestampTz until;
		uint32		room;

		next = lane->ready_next;
		DW_COUNT("lanes-popped");
		if (lane->running >= dw_lane_executors())
			continue;
		if (dw_ready_count(lane) == 0)
		{
			dw_ready_unlist(db, lane);
			continue;
		}
		if (first_ready(lane, &head)->due > until_due || !may_take(db, lane, now, look_again))
			continue;

		lane = choose_peer(lane);
		head = dw_list_head(dw_pool, &lane->ready);
		take_ready(db, lane, &head, entry);
		dw_limits_take(lane, now);
		pass_over_peers(lane);
		end_turn(db, lane, now);
		/* the rate is used up: somebody must look when it allows another one */
		if (dw_lane_limit(lane, now, &room, &until) == DW_LIMIT_RATE)
			*look_again = Min(*look_again, Max(until, now + DW_COALESCE_US));
		return true;
	}
	return false;
}

/*
 * Takes the next task of an owner, from its queues in turn; false if there is
 * none that may run now.  The counts of running tasks are raised.  The timer
 * is to look again at *look_again, if that is not DW_NEVER.
 */
bool
dw_ready_pop(DwDatabase *db, DwOwner *owner, DwEntry *entry, TimestampTz *look_again)
{
	TimestampTz now = dw_now();

	*look_again = DW_NEVER;
	if (pg_atomic_read_u32(&db->disabled) != 0)
		return false;
	/* what was handed over ahead of its due time lets others go first */
	return pop_until(db, owner, now, now, entry, look_again) ||
		pop_until(db, owner, DW_NEVER, now, entry, look_again);
}

/* Limits count tasks as they begin: their queues run one by one. */
static bool
queue_allows_batch(const DwLane *lane)
{
	const DwQueue *queue = dw_lane_queue(lane);

	return queue == NULL || (queue->batch && queue->max_running == 0 && queue->rate == 0);
}

/*
 * May the task that was just taken from the lane begin a batch with the next one?
 */
bool
dw_ready_may_batch(const DwLane *lane, const DwEntry *entry)
{
	return lane->alone == 0 && !(entry->offset & DW_ENTRY_ALONE) &&
		dw_ready_count(lane) > 0 && queue_allows_batch(lane);
}

/* Does another executor take tasks there, one quickly after the other? */
static bool
is_busy_at(const DwExecutor *me, const DwPlace *place, TimestampTz now)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		const DwExecutor *e = &dw_executors[i];

		if (e != me && e->database == me->database && e->in_batch &&
			e->place.chunk == place->chunk && e->place.serial == place->serial &&
			now - e->since < QUICK_US)
			return true;
	}
	return false;
}

/*
 * Tasks that are next to each other in the list mostly are so in tables and
 * indexes, too, where executors that took them in turn would wait for each
 * other's page.  So a batch takes them where no other one is at work, some
 * pages further on.  They stay in the list: nothing is kept from anybody, and
 * what others leave behind is the head for who chooses next.
 */
static DwPlace
choose_place(const DwExecutor *me, const DwLane *lane)
{
	TimestampTz now = dw_now();
	DwPlace		head = dw_list_head(dw_pool, &lane->ready);
	DwPlace		place = head;

	while (place.chunk != DW_NO_CHUNK && is_busy_at(me, &place, now))
		place = dw_list_ahead(dw_pool, &place, APART_CHUNKS);
	if (place.chunk == DW_NO_CHUNK)
		return head;
	if (place.chunk != head.chunk)
		DW_COUNT("places-apart");
	return place;
}

/*
 * Takes another task of the lane of the executor's current one, at a place of
 * the list that it keeps to, if it is due until then, may share a transaction
 * with the one before, and no other lane of the same owner and queue has its
 * turn.
 */
bool
dw_ready_pop_next(DwDatabase *db, DwExecutor *me, TimestampTz until, DwEntry *entry)
{
	DwLane	   *lane = &dw_lanes[me->current.lane];
	const DwEntry *first = dw_list_first(dw_pool, &me->place);

	if (first == NULL)
	{
		me->place = choose_place(me, lane);
		first = first_ready(lane, &me->place);
	}
	if (first == NULL || first->due > until || (first->offset & DW_ENTRY_ALONE) ||
		lane->paused || !queue_allows_batch(lane) || choose_peer(lane) != lane ||
		pg_atomic_read_u32(&db->disabled) != 0)
		return false;
	take_ready(db, lane, &me->place, entry);
	pass_over_peers(lane);
	return true;
}

/*
 * Takes the whole ready list away, so that it can be worked on without the lock;
 * no executor has its place there any more.
 */
DwList
dw_ready_take_away(DwDatabase *db, DwLane *lane)
{
	DwList		list = lane->ready;

	dw_list_init(&lane->ready);
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e->database == db->oid && e->in_batch && e->current.lane == lane - dw_lanes)
			e->place.chunk = DW_NO_CHUNK;
	}
	return list;
}
