/*-------------------------------------------------------------------------
 *
 * lanes.c
 *	  The table of lanes, and their ready lists.
 *
 * A lane is entered by whoever schedules the first task of its owner, queue
 * and priority, or by the timer that finds such rows; the timer gives it back
 * when it is empty and places are short.  Its generation is raised then, so
 * that what names the old one is noticed.
 *
 * The table is under the table lock.  A ready list is filled by the timer and
 * emptied by executors, under the ready lock of its database.
 *
 * Lanes with ready tasks are listed in turn.  Those of one owner and queue,
 * which differ in priority, take their turn together, and one task: from the
 * highest of them, unless a lower one has been passed over 15 times in a row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lanes.h"
#include "miscadmin.h"
#include "queue_limits.h"
#include "queues.h"
#include "settings.h"
#include "stats.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"

#define RETRY_MIN	(1 * USECS_PER_SEC)
#define TERMINATED_PATIENCE	5

/* A lane of lower priority is next after it was passed over so often. */
#define PASSED_OVER_MAX	15

/* Timers are not woken more often than that by a rate. */
#define COALESCE_US		1000

typedef struct LaneKey
{
	Oid			database;
	Oid			owner;
	int16		queue;
	int16		priority;
} LaneKey;

typedef struct LaneIndexEntry
{
	LaneKey		key;
	int32		lane;
} LaneIndexEntry;

static HTAB *lane_index = NULL;

Size
dw_lane_index_size(void)
{
	return hash_estimate_size(dw_max_lanes, sizeof(LaneIndexEntry));
}

void
dw_lane_index_attach(void)
{
	HASHCTL		info;

	info.keysize = sizeof(LaneKey);
	info.entrysize = sizeof(LaneIndexEntry);
	lane_index = ShmemInitHash("delay_wheel lane index", dw_max_lanes, dw_max_lanes,
							   &info, HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
}

void
dw_lanes_init(void)
{
	for (int i = 0; i < dw_max_lanes; i++)
	{
		DwLane	   *lane = &dw_lanes[i];

		memset(lane, 0, sizeof(DwLane));
		pg_atomic_init_u32(&lane->generation, 1);
		pg_atomic_init_u64(&lane->horizon, (uint64) PG_INT64_MIN);
		pg_atomic_init_u64(&lane->next_far, (uint64) DW_NEVER);
		pg_atomic_init_u64(&lane->reload_from, (uint64) DW_NEVER);
		dw_lane_stats_init(lane);
		lane->next = i + 1 < dw_max_lanes ? i + 1 : DW_NO_LANE;
	}
	dw_shared->free_lane = 0;
	dw_shared->nlanes = 0;
}

DwLaneRef
dw_lane_ref(DwLane *lane)
{
	DwLaneRef	ref;

	ref.index = lane - dw_lanes;
	ref.generation = pg_atomic_read_u32(&lane->generation);
	return ref;
}

DwHint
dw_entry_hint(const DwEntry *entry)
{
	DwHint		hint = {.due = entry->due, .id = entry->id};

	ItemPointerSet(&hint.tid, entry->block, dw_entry_offset(entry));
	hint.lane = dw_lane_ref(&dw_lanes[entry->lane]);
	return hint;
}

/* Joins the circle of the lanes of the same owner and queue. */
static void
join_peers(DwDatabase *db, DwLane *lane)
{
	int32		self = lane - dw_lanes;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	lane->peer = self;
	for (int16 priority = -1; priority <= 1; priority++)
	{
		LaneKey		key = {lane->database, lane->owner, lane->queue, priority};
		LaneIndexEntry *entry = hash_search(lane_index, &key, HASH_FIND, NULL);

		if (entry == NULL || entry->lane == self)
			continue;
		lane->peer = dw_lanes[entry->lane].peer;
		dw_lanes[entry->lane].peer = self;
		break;
	}
	LWLockRelease(dw_ready_lock(db));
}

static void
leave_peers(DwDatabase *db, DwLane *lane)
{
	DwLane	   *before = lane;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	while (before->peer != lane - dw_lanes)
		before = &dw_lanes[before->peer];
	before->peer = lane->peer;
	LWLockRelease(dw_ready_lock(db));
}

/* Puts a free lane into service; nothing of it is in memory yet. */
static DwLane *
take_free_lane(DwDatabase *db, const LaneKey *key)
{
	DwLane	   *lane;

	if (dw_shared->free_lane == DW_NO_LANE)
		return NULL;
	lane = &dw_lanes[dw_shared->free_lane];
	dw_shared->free_lane = lane->next;
	dw_shared->nlanes++;

	lane->database = key->database;
	lane->owner = key->owner;
	lane->queue = key->queue;
	lane->priority = key->priority;
	pg_atomic_write_u64(&lane->horizon, (uint64) PG_INT64_MIN);
	pg_atomic_write_u64(&lane->next_far, (uint64) DW_NEVER);
	pg_atomic_write_u64(&lane->reload_from, (uint64) DW_NEVER);
	lane->cursor_due = PG_INT64_MIN;
	lane->cursor_id = PG_INT64_MIN;
	lane->waiting = 0;
	lane->load_after = 0;
	lane->orphan = false;
	lane->refill_at = PG_UINT32_MAX;
	lane->look_below = 0;
	dw_queue_attach_lane(db, lane);
	lane->passed_over = 0;
	lane->waits_since = 0;
	dw_lane_stats_init(lane);
	join_peers(db, lane);
	dw_list_init(&lane->ready);
	lane->spare_state = DW_SPARE_FREE;
	lane->is_listed = false;
	lane->running = 0;
	lane->load_below = 0;
	lane->batch_size = DW_BATCH_MAX;
	lane->alone = 0;
	lane->block = DW_BLOCK_NONE;
	lane->retry_at = 0;
	lane->start_failures = 0;
	lane->recheck_at = lane->recheck_from = DW_NEVER;
	lane->recheck_interval = 0;

	lane->next = db->lanes;
	/* the timer walks the list without a lock: it alone removes from it */
	pg_write_barrier();
	db->lanes = lane - dw_lanes;
	db->nlanes++;
	/* should nothing come of it, it is given back */
	dw_lane_dirty(db, lane);
	return lane;
}

/*
 * Finds or enters the lane; false if there is no free place.  Takes the table
 * lock.
 */
bool
dw_lane_enter(DwDatabase *db, Oid owner, int16 queue, int16 priority, DwLaneRef *ref)
{
	LaneKey		key = {db->oid, owner, queue, priority};
	LaneIndexEntry *entry;
	DwLane	   *lane = NULL;

	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	entry = hash_search(lane_index, &key, HASH_FIND, NULL);
	if (entry)
		*ref = dw_lane_ref(&dw_lanes[entry->lane]);
	LWLockRelease(dw_shared->table_lock);
	if (entry)
		return true;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	entry = hash_search(lane_index, &key, HASH_FIND, NULL);
	if (entry)
		lane = &dw_lanes[entry->lane];
	else
	{
		lane = take_free_lane(db, &key);
		if (lane)
		{
			/* as many places as lanes: this cannot fail */
			entry = hash_search(lane_index, &key, HASH_ENTER, NULL);
			entry->lane = lane - dw_lanes;
		}
	}
	if (lane)
		*ref = dw_lane_ref(lane);
	LWLockRelease(dw_shared->table_lock);
	return lane != NULL;
}

bool
dw_owner_has_tasks_elsewhere(Oid owner)
{
	bool		found = false;

	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	for (int i = 0; i < dw_max_lanes && !found; i++)
	{
		DwLane	   *lane = &dw_lanes[i];

		found = lane->database != InvalidOid && lane->database != MyDatabaseId &&
			lane->owner == owner &&
			(lane->waiting > 0 || dw_ready_count(lane) > 0 || lane->running > 0 ||
			 dw_atomic_read(&lane->next_far) != DW_NEVER);
	}
	LWLockRelease(dw_shared->table_lock);
	return found;
}

/* Gives a lane back; caller holds the table lock exclusively. */
static void
leave_locked(DwDatabase *db, DwLane *lane)
{
	LaneKey		key = {lane->database, lane->owner, lane->queue, lane->priority};
	int32	   *link = &db->lanes;

	while (*link != lane - dw_lanes)
		link = &dw_lanes[*link].next;
	*link = lane->next;
	db->nlanes--;
	leave_peers(db, lane);
	hash_search(lane_index, &key, HASH_REMOVE, NULL);

	pg_atomic_fetch_add_u32(&lane->generation, 1);

	/*
	 * Full barrier in the above: either a committer that still names this
	 * lane sees the new generation, and turns to the database's reload_from,
	 * or what it lowered is seen here.
	 */
	dw_atomic_lower(&db->reload_from, dw_atomic_take(&lane->next_far));
	dw_atomic_lower(&db->reload_from, dw_atomic_take(&lane->reload_from));

	lane->database = InvalidOid;
	lane->next = dw_shared->free_lane;
	dw_shared->free_lane = lane - dw_lanes;
	dw_shared->nlanes--;
}

/* Gives an empty lane back.  Only the database's timer does so. */
void
dw_lane_leave(DwDatabase *db, DwLane *lane)
{
	Assert(lane->waiting == 0 && dw_ready_count(lane) == 0 && lane->running == 0);
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	leave_locked(db, lane);
	LWLockRelease(dw_shared->table_lock);
}

/* Gives back all lanes of a database that is left; under the table lock. */
void
dw_lanes_leave(DwDatabase *db)
{
	while (db->lanes != DW_NO_LANE)
		leave_locked(db, &dw_lanes[db->lanes]);
}

/*
 * One lane must not hold all executors of a database, since a task may take
 * for ever: the last place is for another owner (see dispatch.c), and the one
 * before for another lane.
 */
uint32
dw_lane_executors(void)
{
	return Max(dw_max_executors - 2, 1);
}

uint32
dw_ready_count(const DwLane *lane)
{
	return lane->ready.count + (lane->spare_state == DW_SPARE_READY ? 1 : 0);
}

static void
link_last(DwDatabase *db, DwLane *lane)
{
	lane->is_listed = true;
	lane->ready_next = DW_NO_LANE;
	lane->ready_prev = db->ready_tail;
	if (db->ready_tail != DW_NO_LANE)
		dw_lanes[db->ready_tail].ready_next = lane - dw_lanes;
	else
		db->ready_head = lane - dw_lanes;
	db->ready_tail = lane - dw_lanes;
}

void
dw_ready_list(DwDatabase *db, DwLane *lane)
{
	if (lane->is_listed)
		return;
	lane->passed_over = 0;
	lane->waits_since = dw_now();
	link_last(db, lane);
}

void
dw_ready_unlist(DwDatabase *db, DwLane *lane)
{
	if (!lane->is_listed)
		return;
	lane->is_listed = false;
	if (lane->ready_prev != DW_NO_LANE)
		dw_lanes[lane->ready_prev].ready_next = lane->ready_next;
	else
		db->ready_head = lane->ready_next;
	if (lane->ready_next != DW_NO_LANE)
		dw_lanes[lane->ready_next].ready_prev = lane->ready_prev;
	else
		db->ready_tail = lane->ready_prev;
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

bool
dw_ready_put_back(DwDatabase *db, DwLane *lane, const DwEntry *entry)
{
	if (!dw_list_put_back(dw_pool, &db->account, &lane->ready, entry))
		return false;
	dw_ready_list(db, lane);
	return true;
}

static const DwEntry *
first_ready(const DwLane *lane)
{
	const DwEntry *first = dw_list_first(dw_pool, &lane->ready);

	if (first == NULL && lane->spare_state == DW_SPARE_READY)
		first = &lane->spare;
	return first;
}

static void
take_first_ready(DwDatabase *db, DwLane *lane, DwEntry *entry)
{
	if (!dw_list_pop(dw_pool, &db->account, &lane->ready, entry))
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
		dw_ready_unlist(db, lane);
		if (dw_ready_count(lane) > 0)
			link_last(db, lane);
		lane = &dw_lanes[lane->peer];
	} while (lane != taken);
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
		*look_again = Min(*look_again, Max(until, now + COALESCE_US));
	return limit == DW_LIMIT_NONE;
}

/* Takes the next task of the lanes whose first one is due until then. */
static bool
pop_until(DwDatabase *db, Oid owner, TimestampTz until_due, TimestampTz now, DwEntry *entry,
		  TimestampTz *look_again)
{
	int32		next;

	for (int32 i = db->ready_head; i != DW_NO_LANE; i = next)
	{
		DwLane	   *lane = &dw_lanes[i];
		TimestampTz until;
		uint32		room;

		next = lane->ready_next;
		if (lane->owner != owner || lane->running >= dw_lane_executors())
			continue;
		if (dw_ready_count(lane) == 0)
		{
			dw_ready_unlist(db, lane);
			continue;
		}
		if (first_ready(lane)->due > until_due || !may_take(db, lane, now, look_again))
			continue;

		lane = choose_peer(lane);
		take_first_ready(db, lane, entry);
		dw_limits_take(lane, now);
		pass_over_peers(lane);
		end_turn(db, lane, now);
		/* the rate is used up: somebody must look when it allows another one */
		if (dw_lane_limit(lane, now, &room, &until) == DW_LIMIT_RATE)
			*look_again = Min(*look_again, Max(until, now + COALESCE_US));
		return true;
	}
	return false;
}

bool
dw_ready_pop(DwDatabase *db, Oid owner, DwEntry *entry, TimestampTz *look_again)
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

bool
dw_ready_may_batch(const DwLane *lane, const DwEntry *entry)
{
	return lane->alone == 0 && !(entry->offset & DW_ENTRY_ALONE) &&
		dw_ready_count(lane) > 0 && queue_allows_batch(lane);
}

bool
dw_ready_pop_next(DwDatabase *db, DwLane *lane, TimestampTz until, DwEntry *entry)
{
	const DwEntry *first = first_ready(lane);

	if (first == NULL || first->due > until || (first->offset & DW_ENTRY_ALONE) ||
		lane->paused || !queue_allows_batch(lane) || choose_peer(lane) != lane ||
		pg_atomic_read_u32(&db->disabled) != 0)
		return false;
	take_first_ready(db, lane, entry);
	pass_over_peers(lane);
	return true;
}

static int64
longest_wait(DwBlock reason)
{
	switch (reason)
	{
		case DW_BLOCK_NO_WORKER:
			return 5 * USECS_PER_SEC;
		case DW_BLOCK_ENDED:
		case DW_BLOCK_TERMINATED:
			return 30 * USECS_PER_SEC;
		default:
			return 5 * USECS_PER_MINUTE;
	}
}

bool
dw_owner_blocked(DwDatabase *db, Oid owner, DwBlock reason)
{
	TimestampTz now = dw_now();
	bool		news = false;

	for (int32 i = db->lanes; i != DW_NO_LANE; i = dw_lanes[i].next)
	{
		DwLane	   *lane = &dw_lanes[i];
		uint32		failures;
		int64		wait;

		if (lane->owner != owner || lane->retry_at > now)
			continue;
		if (lane->block != reason)
		{
			lane->block = reason;
			lane->start_failures = 0;
			news = true;
		}
		/* who was terminated comes back soon, if not over and over */
		failures = lane->start_failures++;
		if (reason == DW_BLOCK_TERMINATED)
			failures -= Min(failures, TERMINATED_PATIENCE);
		wait = RETRY_MIN << Min(failures, 16);
		lane->retry_at = now + Min(wait, longest_wait(reason));
	}
	return news;
}

void
dw_owner_unblocked(DwDatabase *db, Oid owner)
{
	for (int32 i = db->lanes; i != DW_NO_LANE; i = dw_lanes[i].next)
		if (dw_lanes[i].owner == owner)
		{
			dw_lanes[i].block = DW_BLOCK_NONE;
			dw_lanes[i].retry_at = 0;
			dw_lanes[i].start_failures = 0;
		}
}

const char *
dw_block_text(DwBlock reason)
{
	switch (reason)
	{
		case DW_BLOCK_NONE:
			break;
		case DW_BLOCK_NO_WORKER:
			return "no background worker is free";
		case DW_BLOCK_NO_ROLE:
			return "the role does not exist";
		case DW_BLOCK_NO_CONNECT:
			return "the role does not have CONNECT privilege on the database";
		case DW_BLOCK_CLOSED:
			return "the database does not accept connections";
		case DW_BLOCK_NOT_CONNECTED:
			return "an executor could not connect, see the server log";
		case DW_BLOCK_TERMINATED:
			return "an executor was terminated while it ran its first task";
		case DW_BLOCK_ENDED:
			return "an executor ended while it ran a task, see the server log";
	}
	return "";
}
