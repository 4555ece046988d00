/*-------------------------------------------------------------------------
 *
 * lanes.c
 *	  The tables of lanes, and of their owners.
 *
 * Run by all processes.  A session enters a lane (gives it a place in dw_lanes) when it schedules
 * the first task of this combination of owner, queue and priority.  The timer enters a lane when it
 * finds rows of it.  If places are short, the timer gives an empty lane back: it increments the
 * lane's generation, which makes references to the former lane stale.
 *
 * The table lock protects the arrays dw_lanes and dw_owners, and their hash table.  The ready lock
 * of the database protects lists and pauses, which executors and the timer change often.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/compat.h"
#include "../base/settings.h"
#include "groups.h"

/* Marks the end of the list of free owners. */
#define NO_OWNER	(-1)

/* Key of a lane, or of an owner: then "queue" is DW_NO_QUEUE, and "priority" is 0. */
typedef struct Key
{
	Oid			database;
	Oid			owner;
	int16		queue;
	int16		priority;
} Key;

typedef struct IndexEntry
{
	Key			key;
	int32		place;			/* in dw_lanes or dw_owners */
} IndexEntry;

/* Hash table of lanes and owners, in shared memory, protected by the table lock. */
static HTAB *place_index = NULL;

/*---- Set-up ----*/

/*
 * Returns the number of places for owners: one for each lane, and one for each executor, since an
 * executor's owner may have no lane any more.
 */
int
dw_owner_places(void)
{
	return dw_max_lanes + max_worker_processes;
}

void
dw_lanes_request(void)
{
	ShmemRequestStruct(.name = "delay_wheel lanes",
					   .size = mul_size(dw_max_lanes, sizeof(DwLane)),
					   .ptr = (void **) &dw_lanes);
	ShmemRequestStruct(.name = "delay_wheel owners",
					   .size = mul_size(dw_owner_places(), sizeof(DwOwner)),
					   .ptr = (void **) &dw_owners);
	ShmemRequestHash(.name = "delay_wheel lane and owner index",
					 .nelems = dw_max_lanes + dw_owner_places(),
					 .hash_info.keysize = sizeof(Key),
					 .hash_info.entrysize = sizeof(IndexEntry),
					 .hash_flags = HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE,
					 .ptr = &place_index);
}

/* Initializes a lane without tasks in memory, except for its identity and generation. */
static void
init_lane(DwLane *lane)
{
	char	   *behind = (char *) &lane->generation + sizeof(lane->generation);

	memset(behind, 0, (char *) lane + sizeof(DwLane) - behind);
	pg_atomic_init_u64(&lane->horizon, (uint64) PG_INT64_MIN);
	pg_atomic_init_u64(&lane->next_far, (uint64) DW_NEVER);
	pg_atomic_init_u64(&lane->late_from, (uint64) DW_NEVER);
	pg_atomic_init_u64(&lane->reload_from, (uint64) DW_NEVER);
	pg_atomic_init_u32(&lane->in_doubt, 0);
	lane->cursor_due = lane->cursor_id = PG_INT64_MIN;
	lane->refill_at = PG_UINT32_MAX;
	dw_list_init(&lane->ready);
	dw_lane_groups_init(&lane->groups);
	lane->batch_size = DW_BATCH_MAX;
	lane->recheck_at = lane->recheck_from = DW_NEVER;
	dw_counters_init(&lane->counters);
	dw_lane_lateness_init(&lane->lateness);
}

void
dw_lanes_init(void)
{
	for (int i = 0; i < dw_max_lanes; i++)
	{
		DwLane	   *lane = &dw_lanes[i];

		init_lane(lane);
		lane->database = InvalidOid;
		pg_atomic_init_u32(&lane->generation, 1);
		lane->next = i + 1 < dw_max_lanes ? i + 1 : DW_NO_LANE;
	}
	memset(dw_owners, 0, dw_owner_places() * sizeof(DwOwner));
	for (int i = 0; i < dw_owner_places(); i++)
		dw_owners[i].next_free = i + 1 < dw_owner_places() ? i + 1 : NO_OWNER;
	dw_shared->free_lane = dw_shared->free_owner = 0;
	dw_shared->nlanes = 0;
}

/* Stores the place of a key.  This cannot fail, since the hash table has room for all places. */
static void
index_place(const Key *key, int32 place)
{
	IndexEntry *entry = hash_search(place_index, key, HASH_ENTER, NULL);

	entry->place = place;
}

/*---- Owners ----*/

/* Returns true if the owner has an executor.  Needs the table lock. */
static bool
has_executors(const DwOwner *owner)
{
	dw_each_executor(e)
		if (e->database == owner->database && e->owner == owner->role)
			return true;
	return false;
}

/* Frees the place of an owner without lanes and executors.  Needs the table lock exclusively. */
void
dw_owner_leave(DwOwner *owner)
{
	Key			key = {owner->database, owner->role, DW_NO_QUEUE, 0};

	if (owner->nlanes > 0 || has_executors(owner))
		return;
	Assert(!owner->is_listed);
	hash_search(place_index, &key, HASH_REMOVE, NULL);
	owner->database = InvalidOid;
	owner->next_free = dw_shared->free_owner;
	dw_shared->free_owner = owner - dw_owners;
}

/*
 * Removes a place from the list of free places.
 *
 * If the list is empty, first gives back places of owners whose last executor has ended.  A free
 * place always exists, since more places exist than owners can use.
 */
static DwOwner *
take_free_owner(void)
{
	DwOwner    *owner;

	for (int i = 0; i < dw_owner_places() && dw_shared->free_owner == NO_OWNER; i++)
		dw_owner_leave(&dw_owners[i]);
	owner = &dw_owners[dw_shared->free_owner];
	dw_shared->free_owner = owner->next_free;
	return owner;
}

/* Returns the owner with this role, or NULL if the role has no place.  Needs the table lock. */
DwOwner *
dw_owner_find(DwDatabase *db, Oid role)
{
	Key			key = {db->oid, role, DW_NO_QUEUE, 0};
	IndexEntry *entry = hash_search(place_index, &key, HASH_FIND, NULL);

	return entry == NULL ? NULL : &dw_owners[entry->place];
}

/*
 * Finds or makes the place of a role in this database, and returns its index in dw_owners.  Needs
 * the table lock exclusively.
 */
int32
dw_owner_enter(DwDatabase *db, Oid role)
{
	Key			key = {db->oid, role, DW_NO_QUEUE, 0};
	DwOwner    *owner = dw_owner_find(db, role);

	if (owner != NULL)
		return owner - dw_owners;
	owner = take_free_owner();
	memset(owner, 0, sizeof(DwOwner));
	owner->database = db->oid;
	owner->role = role;
	dw_turns_init(&owner->turns);
	index_place(&key, owner - dw_owners);
	return owner - dw_owners;
}

/*---- Lanes ----*/

/* Returns a reference to the lane with its present generation. */
DwLaneRef
dw_lane_ref(DwLane *lane)
{
	return (DwLaneRef) {
		.index = lane - dw_lanes, .generation = pg_atomic_read_u32(&lane->generation)
	};
}

/* Makes a hint from the entry, which returns the task to the timer. */
DwHint
dw_entry_hint(const DwEntry *entry)
{
	DwHint		hint = {
		.due = entry->due, .id = entry->id, .lane = dw_lane_ref(&dw_lanes[entry->lane])
	};

	ItemPointerSet(&hint.tid, entry->block, dw_entry_offset(entry));
	return hint;
}

/* Returns the lane with this key, or NULL.  Needs the table lock. */
static DwLane *
find_lane(const Key *key)
{
	IndexEntry *entry = hash_search(place_index, key, HASH_FIND, NULL);

	return entry == NULL ? NULL : &dw_lanes[entry->place];
}

/*
 * Adds a lane to the circle of lanes of the same owner and queue, and sets lane->peer.  Needs the
 * table lock exclusively.  Takes the ready lock.
 */
static void
join_peers(DwDatabase *db, DwLane *lane)
{
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	lane->peer = lane - dw_lanes;
	for (int16 priority = DW_MIN_PRIORITY; priority <= DW_MAX_PRIORITY; priority++)
	{
		Key			key = {lane->database, lane->owner, lane->queue, priority};
		DwLane	   *other = find_lane(&key);

		if (other == NULL)
			continue;
		lane->peer = other->peer;
		other->peer = lane - dw_lanes;
		break;
	}
	LWLockRelease(dw_ready_lock(db));
}

/*
 * Removes a place from the list of free lanes, and initializes it for a lane without tasks in
 * memory.  Returns NULL if no place is free.  Needs the table lock exclusively.
 */
static DwLane *
take_free_lane(DwDatabase *db, const Key *key)
{
	DwLane	   *lane;

	if (dw_shared->free_lane == DW_NO_LANE)
		return NULL;
	lane = &dw_lanes[dw_shared->free_lane];
	dw_shared->free_lane = lane->next;
	dw_shared->nlanes++;
	init_lane(lane);
	lane->database = key->database;
	lane->owner = key->owner;
	lane->queue = key->queue;
	lane->priority = key->priority;
	lane->owner_place = dw_owner_enter(db, key->owner);
	dw_lane_owner(lane)->nlanes++;
	dw_queue_attach_lane(db, lane);
	join_peers(db, lane);

	lane->next = db->lanes;
	/* the timer reads the list without a lock; only the timer removes lanes */
	pg_write_barrier();
	db->lanes = lane - dw_lanes;
	db->nlanes++;
	index_place(key, lane - dw_lanes);
	/* if the transaction is rolled back, the timer gives the lane back */
	dw_lane_dirty(db, lane);
	return lane;
}

/*
 * Finds or makes the place of a lane, and sets *ref to the lane.  Returns false if no place is
 * free.  Takes the table lock.
 */
bool
dw_lane_enter(DwDatabase *db, Oid owner, int16 queue, int16 priority, DwLaneRef *ref)
{
	Key			key = {db->oid, owner, queue, priority};
	DwLane	   *lane;

	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	lane = find_lane(&key);
	if (lane != NULL)
		*ref = dw_lane_ref(lane);
	LWLockRelease(dw_shared->table_lock);
	if (lane != NULL)
		return true;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	lane = find_lane(&key);
	if (lane == NULL)
		lane = take_free_lane(db, &key);
	if (lane != NULL)
		*ref = dw_lane_ref(lane);
	LWLockRelease(dw_shared->table_lock);
	return lane != NULL;
}

/*
 * Returns true if this role may own pending tasks in other databases than the current database.
 *
 * Reads without a lock, so the answer may be out of date.
 */
bool
dw_owner_has_tasks_elsewhere(Oid owner)
{
	bool		found = false;

	/* any user can call this function often, so it takes no lock that other processes need */
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
 * Gives a lane back, and passes its next_far and reload_from to the database.  The caller has
 * incremented the lane's generation.  Needs the table lock exclusively.  Takes the ready lock.
 */
static void
leave_locked(DwDatabase *db, DwLane *lane)
{
	Key			key = {lane->database, lane->owner, lane->queue, lane->priority};
	int32	   *link = &db->lanes;
	DwLane	   *before = lane;

	while (*link != lane - dw_lanes)
		link = &dw_lanes[*link].next;
	*link = lane->next;
	db->nlanes--;
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	while (before->peer != lane - dw_lanes)
		before = &dw_lanes[before->peer];
	before->peer = lane->peer;
	dw_groups_leave(lane);
	LWLockRelease(dw_ready_lock(db));
	hash_search(place_index, &key, HASH_REMOVE, NULL);

	/*
	 * The caller has incremented the generation, with a full barrier.  Meanwhile a session may
	 * commit a task of this lane.  Either the session sees the new generation, and lowers the
	 * database's reload_from instead, or this function sees the values that the session has
	 * lowered.
	 */
	dw_reload_ask(&db->timer_news, dw_atomic_take(&lane->next_far));
	dw_reload_ask(&db->timer_news, dw_atomic_take(&lane->reload_from));

	dw_lane_owner(lane)->nlanes--;
	dw_owner_leave(dw_lane_owner(lane));
	lane->database = InvalidOid;
	lane->next = dw_shared->free_lane;
	dw_shared->free_lane = lane - dw_lanes;
	dw_shared->nlanes--;
}

/*
 * Gives an empty lane back.  Returns false if a task has just been put back into the lane.  Called
 * only by the database's timer.  Takes the table lock.
 */
bool
dw_lane_leave(DwDatabase *db, DwLane *lane)
{
	bool		is_empty;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	/* other processes compare the generation and put entries back under the ready lock */
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	is_empty = lane->waiting == 0 && dw_ready_count(lane) == 0 && lane->running == 0;
	if (is_empty)
		pg_atomic_fetch_add_u32(&lane->generation, 1);
	LWLockRelease(dw_ready_lock(db));
	if (is_empty)
		leave_locked(db, lane);
	LWLockRelease(dw_shared->table_lock);
	return is_empty;
}

/*
 * Returns the next lane of the database after a number; DW_NO_LANE if there is none.  Takes no
 * lock: a lane that is entered or released at this moment may be missed, or seen in its old state.
 */
int32
dw_lane_after(const DwDatabase *db, int32 place)
{
	for (place++; place < dw_max_lanes; place++)
		if (dw_lanes[place].database == db->oid)
			return place;
	return DW_NO_LANE;
}

/* Gives back all lanes of a database that loses its place.  Needs the table lock exclusively. */
void
dw_lanes_leave(DwDatabase *db)
{
	while (db->lanes != DW_NO_LANE)
	{
		pg_atomic_fetch_add_u32(&dw_lanes[db->lanes].generation, 1);
		leave_locked(db, &dw_lanes[db->lanes]);
	}
}

