/*-------------------------------------------------------------------------
 *
 * lanes.c
 *	  The table of lanes, and the table of their owners.
 *
 * Run by all processes.  A lane is one combination of owner, queue and priority in one
 * database.  A session enters a lane (gives it a place in dw_lanes) when it schedules
 * the first task of this combination; so does the timer when it finds such rows.  The
 * timer gives an empty lane back when places are short.  Its generation is raised then,
 * so that references to the former lane are noticed as stale.
 *
 * The arrays dw_lanes and dw_owners, and the hash tables that find a place in them, are
 * under the table lock.  Lists, pauses and blocks, which executors and the timer change
 * often, are under the ready lock of the database.
 *
 * Lanes with ready tasks are listed in the order of their turns, for each owner by
 * itself, since an executor runs the tasks of one owner only.  Lanes of the same owner
 * and queue, which differ in priority, are peers: they share one turn, and one task is
 * taken from them (ready.c).  Paused lanes are not listed.
 *
 * The timer looks at owners with listed lanes, so these are listed in turn as well.
 * Owners that get no executor for now are blocked, and in a list of their own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"

#include "../base/clock.h"
#include "../base/settings.h"
#include "../ring/lane_heap.h"
#include "../ring/ring.h"
#include "executors.h"
#include "lanes.h"
#include "places.h"
#include "queue_limits.h"
#include "shared.h"
#include "stats.h"

/* The pause after the first vain attempt to get an executor; it doubles each time. */
#define RETRY_MIN	(1 * USECS_PER_SEC)

/* So many terminations of an executor, in a row, do not make the pause longer. */
#define TERMINATED_PATIENCE	5

/* Minimum interval between log messages about one owner's lack of workers. */
#define LOG_INTERVAL_US		USECS_PER_MINUTE

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

typedef struct OwnerKey
{
	Oid			database;
	Oid			role;
} OwnerKey;

typedef struct OwnerIndexEntry
{
	OwnerKey	key;
	int32		owner;
} OwnerIndexEntry;

/* Find a place in dw_lanes, or dw_owners.  In shared memory, under the table lock. */
static HTAB *lane_index = NULL;
static HTAB *owner_index = NULL;

/*---- Set-up ----*/

/*
 * Number of places of owners: enough for owners of all lanes, and for executors whose
 * owner has no lane any more.
 */
int
dw_owner_places(void)
{
	return dw_max_lanes + max_worker_processes;
}

/* Bytes of shared memory for both hash tables. */
Size
dw_lane_index_size(void)
{
	return add_size(hash_estimate_size(dw_max_lanes, sizeof(LaneIndexEntry)),
					hash_estimate_size(dw_owner_places(), sizeof(OwnerIndexEntry)));
}

/* Creates both hash tables, or attaches to them. */
void
dw_lane_index_attach(void)
{
	HASHCTL		info;

	info.keysize = sizeof(LaneKey);
	info.entrysize = sizeof(LaneIndexEntry);
	lane_index = ShmemInitHash("delay_wheel lane index", dw_max_lanes, dw_max_lanes,
							   &info, HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
	info.keysize = sizeof(OwnerKey);
	info.entrysize = sizeof(OwnerIndexEntry);
	owner_index = ShmemInitHash("delay_wheel owner index", dw_owner_places(), dw_owner_places(),
								&info, HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
}

/* Makes all places of lanes and owners free.  Called once for each shared memory. */
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
		dw_counters_init(&lane->counters);
		dw_lane_lateness_init(&lane->lateness);
		lane->next = i + 1 < dw_max_lanes ? i + 1 : DW_NO_LANE;
	}
	dw_shared->free_lane = 0;
	dw_shared->nlanes = 0;

	for (int i = 0; i < dw_owner_places(); i++)
	{
		memset(&dw_owners[i], 0, sizeof(DwOwner));
		dw_owners[i].next_free = i + 1 < dw_owner_places() ? i + 1 : DW_NO_OWNER;
	}
	dw_shared->free_owner = 0;
}

/*---- Owners ----*/

/* True if the owner has an executor.  Needs the table lock. */
static bool
has_executors(const DwOwner *owner)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].database == owner->database && dw_executors[i].owner == owner->role)
			return true;
	return false;
}

/*
 * Gives the place of an owner back, unless the owner still has lanes or executors.
 * Needs the table lock, exclusively.
 */
static void
leave_owner(DwOwner *owner)
{
	OwnerKey	key = {owner->database, owner->role};

	if (owner->nlanes > 0 || has_executors(owner))
		return;
	Assert(owner->list == DW_OWNER_UNLISTED);
	hash_search(owner_index, &key, HASH_REMOVE, NULL);
	owner->database = InvalidOid;
	owner->next_free = dw_shared->free_owner;
	dw_shared->free_owner = owner - dw_owners;
}

/*
 * Takes a place off the list of free ones.
 *
 * If the list is empty, the places of owners whose last executor has ended meanwhile
 * are given back first.  There are more places than owners that need one, so this
 * cannot fail.
 */
static DwOwner *
take_free_owner(void)
{
	DwOwner    *owner;

	for (int i = 0; i < dw_owner_places() && dw_shared->free_owner == DW_NO_OWNER; i++)
		leave_owner(&dw_owners[i]);
	owner = &dw_owners[dw_shared->free_owner];
	dw_shared->free_owner = owner->next_free;
	return owner;
}

/*
 * Finds or makes the place of a role in this database; returns its index in dw_owners.
 *
 * The place stays as long as the role has lanes or executors.  Needs the table lock,
 * exclusively.
 */
int32
dw_owner_enter(DwDatabase *db, Oid role)
{
	OwnerKey	key = {db->oid, role};
	bool		found;
	OwnerIndexEntry *entry = hash_search(owner_index, &key, HASH_FIND, NULL);
	DwOwner    *owner;

	if (entry != NULL)
		return entry->owner;
	owner = take_free_owner();
	memset(owner, 0, sizeof(DwOwner));
	owner->database = db->oid;
	owner->role = role;
	owner->ready_head = owner->ready_tail = DW_NO_LANE;
	entry = hash_search(owner_index, &key, HASH_ENTER, &found);
	entry->owner = owner - dw_owners;
	return entry->owner;
}

/*
 * The owner with this role, or NULL if the role has neither lanes nor executors.  Needs
 * the table lock.
 */
static DwOwner *
find_owner(DwDatabase *db, Oid role)
{
	OwnerKey	key = {db->oid, role};
	OwnerIndexEntry *entry = hash_search(owner_index, &key, HASH_FIND, NULL);

	return entry ? &dw_owners[entry->owner] : NULL;
}

/* The list of blocked owners, or of ready ones. */
static DwOwners *
list_of(DwDatabase *db, DwOwnerList list)
{
	return list == DW_OWNER_BLOCKED ? &db->blocked_owners : &db->ready_owners;
}

/* Takes an owner off its list, if it is in one.  Needs the ready lock, exclusively. */
void
dw_owner_unlist(DwDatabase *db, DwOwner *owner)
{
	DwOwners   *list = list_of(db, owner->list);

	if (owner->list == DW_OWNER_UNLISTED)
		return;
	owner->list = DW_OWNER_UNLISTED;
	if (owner->prev != DW_NO_OWNER)
		dw_owners[owner->prev].next = owner->next;
	else
		list->head = owner->next;
	if (owner->next != DW_NO_OWNER)
		dw_owners[owner->next].prev = owner->prev;
	else
		list->tail = owner->prev;
}

/* Appends an owner, which is in no list, to one of the lists. */
static void
link_owner_last(DwDatabase *db, DwOwner *owner, DwOwnerList which)
{
	DwOwners   *list = list_of(db, which);

	owner->list = which;
	owner->next = DW_NO_OWNER;
	owner->prev = list->tail;
	if (list->tail != DW_NO_OWNER)
		dw_owners[list->tail].next = owner - dw_owners;
	else
		list->head = owner - dw_owners;
	list->tail = owner - dw_owners;
}

/* Puts an owner, which is in no list, at the head of one of the lists. */
static void
link_owner_first(DwDatabase *db, DwOwner *owner, DwOwnerList which)
{
	DwOwners   *list = list_of(db, which);

	owner->list = which;
	owner->prev = DW_NO_OWNER;
	owner->next = list->head;
	if (list->head != DW_NO_OWNER)
		dw_owners[list->head].prev = owner - dw_owners;
	else
		list->tail = owner - dw_owners;
	list->head = owner - dw_owners;
}

/*
 * Puts an owner into the list where it belongs now: ready or blocked owners, or none if
 * it has no ready task.  An owner that is in the right list already moves to its end.
 *
 * Blocked owners who lack a background worker are put first, where
 * dw_owners_lack_worker() looks for them.  Needs the ready lock, exclusively.
 */
void
dw_owner_list(DwDatabase *db, DwOwner *owner)
{
	dw_owner_unlist(db, owner);
	if (owner->nready == 0)
		return;
	if (owner->retry_at == 0)
		link_owner_last(db, owner, DW_OWNER_READY);
	else
	{
		db->blocked_until = Min(db->blocked_until, owner->retry_at);
		if (owner->block == DW_BLOCK_NO_WORKER)
			link_owner_first(db, owner, DW_OWNER_BLOCKED);
		else
			link_owner_last(db, owner, DW_OWNER_BLOCKED);
	}
}

/*---- Lanes ----*/

/* A reference to the lane, as it is now. */
DwLaneRef
dw_lane_ref(DwLane *lane)
{
	DwLaneRef	ref;

	ref.index = lane - dw_lanes;
	ref.generation = pg_atomic_read_u32(&lane->generation);
	return ref;
}

/* Makes a hint of an entry, to bring its task back to the timer. */
DwHint
dw_entry_hint(const DwEntry *entry)
{
	DwHint		hint = {.due = entry->due, .id = entry->id};

	ItemPointerSet(&hint.tid, entry->block, dw_entry_offset(entry));
	hint.lane = dw_lane_ref(&dw_lanes[entry->lane]);
	return hint;
}

/*
 * Adds a lane to the circle of lanes of the same owner and queue, and sets lane->peer.
 * Needs the table lock, exclusively; takes the ready lock.
 */
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

/* Removes a lane from that circle.  Needs and takes the same locks. */
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

/*
 * Takes a place off the list of free lanes, and initializes it; nothing of the lane is
 * in memory yet.  NULL if no place is free.  Needs the table lock, exclusively.
 */
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
	lane->owner_place = dw_owner_enter(db, key->owner);
	dw_lane_owner(lane)->nlanes++;
	pg_atomic_write_u64(&lane->horizon, (uint64) PG_INT64_MIN);
	pg_atomic_write_u64(&lane->next_far, (uint64) DW_NEVER);
	pg_atomic_write_u64(&lane->reload_from, (uint64) DW_NEVER);
	lane->cursor_due = PG_INT64_MIN;
	lane->cursor_id = PG_INT64_MIN;
	lane->waiting = 0;
	lane->load_after = 0;
	lane->orphan = false;
	lane->refill_at = PG_UINT32_MAX;
	dw_queue_attach_lane(db, lane);
	lane->passed_over = 0;
	lane->waits_since = 0;
	dw_counters_init(&lane->counters);
	dw_lane_lateness_init(&lane->lateness);
	join_peers(db, lane);
	dw_list_init(&lane->ready);
	lane->spare_state = DW_SPARE_FREE;
	lane->is_listed = false;
	lane->running = 0;
	lane->load_below = 0;
	lane->batch_size = DW_BATCH_MAX;
	lane->alone = 0;
	lane->recheck_at = lane->recheck_from = DW_NEVER;
	lane->recheck_interval = lane->recheck_id = 0;

	lane->next = db->lanes;
	/* the timer walks the list without a lock; only the timer removes from it */
	pg_write_barrier();
	db->lanes = lane - dw_lanes;
	db->nlanes++;
	/* if the transaction is rolled back, the timer gives the lane back */
	dw_lane_dirty(db, lane);
	return lane;
}

/*
 * Finds or makes the place of a lane, and sets *ref to it; false if no place is free.
 * Takes the table lock.
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
			/* the hash table has room for all lanes: this cannot fail */
			entry = hash_search(lane_index, &key, HASH_ENTER, NULL);
			entry->lane = lane - dw_lanes;
		}
	}
	if (lane)
		*ref = dw_lane_ref(lane);
	LWLockRelease(dw_shared->table_lock);
	return lane != NULL;
}

/*
 * True if this role might own pending tasks in databases other than the session's.
 *
 * Reads without a lock, so the answer may be out of date.
 */
bool
dw_owner_has_tasks_elsewhere(Oid owner)
{
	bool		found = false;

	/* any user can call this again and again: do not take locks that others need */
	for (int i = 0; i < dw_max_lanes && !found; i++)
	{
		DwLane	   *lane = &dw_lanes[i];

		found = lane->database != InvalidOid && lane->database != MyDatabaseId &&
			lane->owner == owner &&
			(lane->waiting > 0 || dw_ready_count(lane) > 0 || lane->running > 0 ||
			 dw_atomic_read(&lane->next_far) != DW_NEVER);
	}
	return found;
}

/*
 * Gives a lane back; what is known of tasks that are not in memory passes to the
 * database.  Needs the table lock, exclusively; takes the ready lock.
 */
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
	 * The increment is a full barrier.  A session that commits a task of this lane
	 * meanwhile either sees the new generation, and lowers the database's reload_from
	 * instead; or the values that it has lowered are seen here.
	 */
	dw_reload_ask(&db->timer_news, dw_atomic_take(&lane->next_far));
	dw_reload_ask(&db->timer_news, dw_atomic_take(&lane->reload_from));

	dw_lane_owner(lane)->nlanes--;
	leave_owner(dw_lane_owner(lane));
	lane->database = InvalidOid;
	lane->next = dw_shared->free_lane;
	dw_shared->free_lane = lane - dw_lanes;
	dw_shared->nlanes--;
}

/*
 * Gives an empty lane back.  Only the database's timer calls this.  Takes the table
 * lock.
 */
void
dw_lane_leave(DwDatabase *db, DwLane *lane)
{
	Assert(lane->waiting == 0 && dw_ready_count(lane) == 0 && lane->running == 0);
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	leave_locked(db, lane);
	LWLockRelease(dw_shared->table_lock);
}

/*
 * Gives back all lanes of a database that loses its place.  Needs the table lock,
 * exclusively.
 */
void
dw_lanes_leave(DwDatabase *db)
{
	while (db->lanes != DW_NO_LANE)
		leave_locked(db, &dw_lanes[db->lanes]);
}

/*---- Owners without an executor ----*/

/* The longest pause between two attempts, in microseconds. */
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

/*
 * True if the log must report that no background worker is free for an owner; then the
 * caller reports it.
 *
 * That is so the first time, and each time that the owner is blocked anew, but not more
 * often than once in LOG_INTERVAL_US.
 */
static bool
no_worker_log_is_due(DwOwner *owner)
{
	int64		told = owner->no_worker_told;

	if (told != 0 &&
		(told >= owner->no_worker_since || dw_uptime() - told < LOG_INTERVAL_US))
		return false;
	owner->no_worker_told = dw_uptime();
	return true;
}

/*
 * Blocks an owner, since it got no executor: its lanes wait until retry_at.  The pause
 * doubles each time, up to a limit that depends on the reason.
 *
 * Returns true if the caller must report it to the log: the owner was not blocked for
 * this reason before, or, if no background worker is free, no_worker_log_is_due().
 * Does nothing for an owner that waits already, or has no place.  Needs the table lock,
 * and the ready lock exclusively.
 */
bool
dw_owner_blocked(DwDatabase *db, Oid role, DwBlock reason)
{
	DwOwner    *owner = find_owner(db, role);
	TimestampTz now = dw_now();
	uint32		failures;
	int64		wait;
	bool		news = false;

	if (owner == NULL || owner->retry_at > now)
		return false;
	if (owner->block != reason)
	{
		owner->block = reason;
		owner->start_failures = 0;
		owner->no_worker_since = dw_uptime();
		news = true;
	}
	if (reason == DW_BLOCK_NO_WORKER)
		news = no_worker_log_is_due(owner);
	/* after a termination try again soon, unless it happens over and over */
	failures = owner->start_failures++;
	if (reason == DW_BLOCK_TERMINATED)
		failures -= Min(failures, TERMINATED_PATIENCE);
	wait = RETRY_MIN << Min(failures, 16);
	owner->retry_at = now + Min(wait, longest_wait(reason));
	dw_owner_list(db, owner);
	return news;
}

/*
 * Ends the block of an owner, since an executor of the owner works.  Needs the ready
 * lock, exclusively.
 */
void
dw_owner_unblocked(DwDatabase *db, DwOwner *owner)
{
	if (owner->block == DW_BLOCK_NONE && owner->retry_at == 0)
		return;
	owner->block = DW_BLOCK_NONE;
	owner->retry_at = 0;
	owner->start_failures = 0;
	dw_owner_list(db, owner);
}

/* Lets a blocked owner try again; its number of vain attempts stays. */
static void
try_again(DwDatabase *db, DwOwner *owner)
{
	owner->retry_at = 0;
	dw_owner_list(db, owner);
}

/*
 * Lets those blocked owners try again whose pause is over, and sets db->blocked_until.
 * Needs the ready lock, exclusively.
 */
void
dw_owners_retry(DwDatabase *db)
{
	TimestampTz now = dw_now();
	TimestampTz next = DW_NEVER;
	int32		after;

	if (db->blocked_until > now)
		return;
	for (int32 i = db->blocked_owners.head; i != DW_NO_OWNER; i = after)
	{
		DwOwner    *owner = &dw_owners[i];

		after = owner->next;
		if (owner->retry_at <= now)
			try_again(db, owner);
		else
			next = Min(next, owner->retry_at);
	}
	db->blocked_until = next;
}

/*
 * True if owners of the database wait for a background worker and could use it.
 *
 * Reads without a lock, so the answer may be out of date.  These owners are in front of
 * the list of blocked ones, so the first one tells.
 */
bool
dw_owners_lack_worker(DwDatabase *db)
{
	int32		head = db->blocked_owners.head;

	return head != DW_NO_OWNER && dw_owners[head].block == DW_BLOCK_NO_WORKER &&
		!dw_database_is_disabled(db);
}

/*
 * Lets one owner try again before all others: of those who lack a background worker,
 * the one who has waited longest.  Needs the ready lock, exclusively.
 */
void
dw_owners_retry_first(DwDatabase *db)
{
	DwOwner    *first = NULL;

	for (int32 i = db->blocked_owners.head;
		 i != DW_NO_OWNER && dw_owners[i].block == DW_BLOCK_NO_WORKER;
		 i = dw_owners[i].next)
		if (first == NULL || dw_owners[i].no_worker_since < first->no_worker_since)
			first = &dw_owners[i];
	if (first == NULL)
		return;
	first->retry_at = 0;
	dw_owner_unlist(db, first);
	link_owner_first(db, first, DW_OWNER_READY);
}

/*
 * Lets all blocked owners of the database try again now, as if for the first time.
 * Needs the ready lock, exclusively.
 */
void
dw_owners_retry_all(DwDatabase *db)
{
	for (int i = 0; i < dw_owner_places(); i++)
	{
		DwOwner    *owner = &dw_owners[i];

		if (owner->database != db->oid || owner->block == DW_BLOCK_NONE)
			continue;
		owner->start_failures = 0;
		try_again(db, owner);
	}
	db->blocked_until = DW_NEVER;
}

/* The reason as text, for views and the log. */
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
