/*-------------------------------------------------------------------------
 *
 * near.c
 *	  The tasks of the near future in memory: ring, heap, and ready lists.
 *
 * Run by the timer.  The timer acquires the ring lock to change the ring, and the ready lock to
 * change ready lists and spares, but never both locks at once.
 *
 * An entry is a task in memory.  It waits in a slot of the ring, and then, when the slot is open,
 * in a heap, until the timer hands it over to its lane's ready list.  A lane without other entries
 * can store one in its own record (its spare).  README.md describes memory, and the fast clock that
 * the functions here use (DW_HEAD_START_US).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "timer.h"

/* Maximum number of entries in the heap. */
#define HEAP_SIZE		16384
/* Number of entries that the timer handles before it checks for other work. */
#define SLICE			1008
/* A slot is opened this many microseconds before its first due time. */
#define LEAD_US			50000
/* Maximum number of lanes with tasks due soon that dw_near_hand_over() lists. */
#define MAX_EXPECTED	8
/* If a ready list has more entries, it is filtered without the ready lock. */
#define FILTER_LOCKED	4096
/* Maximum number of keys in a sample. */
#define SAMPLE			1024

/* A position in a lane, whose tasks are ordered by due time and id. */
typedef struct Key
{
	TimestampTz due;
	int64		id;
} Key;

/* A key before all tasks. */
static const Key first_key = {PG_INT64_MIN, PG_INT64_MIN};

static DwDatabase *db = NULL;
static DwRing *ring = NULL;

/* Entries of open slots that are not due yet, the earliest first. */
static DwEntry *heap = NULL;
static uint32 heap_count = 0;

/* State of the slot that is being opened; chunks_left is 0 if there is none. */
static DwTake take;
/* The entries of one slice, just taken out of this slot. */
static DwEntry *taken = NULL;

/* After the heap was full, the timer does not look at the ring before this time. */
static TimestampTz ring_pause = PG_INT64_MIN;

/*
 * For each lane number, the key from which dw_near_apply_cuts() will drop the lane's entries.
 * "due" is DW_NEVER if the lane has no cut.
 */
static Key *cuts = NULL;
/* The numbers of the lanes that have a cut. */
static int32 *cut_lanes = NULL;
static uint32 ncuts = 0;

/* Lanes whose spare contains an entry that is not due yet, by due time. */
static DwLaneHeap spares;

/* Returns the time by the fast clock. */
static TimestampTz
ahead_now(void)
{
	return dw_now() + DW_HEAD_START_US;
}

static int
compare_entry_keys(const void *a, const void *b)
{
	const Key  *x = a;
	const Key  *y = b;

	if (x->due != y->due)
		return x->due < y->due ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

/*---- The heap of open slots, by due time and id ----*/

static bool
entry_before(const DwEntry *a, const DwEntry *b)
{
	return dw_entry_is_before(a, b->due, b->id);
}

/* Adds an entry.  The heap must have room. */
static void
heap_push(const DwEntry *entry)
{
	uint32		i = heap_count++;

	while (i > 0 && entry_before(entry, &heap[(i - 1) / 2]))
	{
		heap[i] = heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	heap[i] = *entry;
}

/* Puts the entry at position i, or farther down if an entry below is earlier. */
static void
heap_sift_down(uint32 i, const DwEntry *entry)
{
	for (;;)
	{
		uint32		child = 2 * i + 1;

		if (child >= heap_count)
			break;
		if (child + 1 < heap_count && entry_before(&heap[child + 1], &heap[child]))
			child++;
		if (!entry_before(&heap[child], entry))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = *entry;
}

/* Takes the earliest entry out.  The heap must not be empty. */
static DwEntry
heap_pop(void)
{
	DwEntry		top = heap[0];
	DwEntry		last = heap[--heap_count];

	if (heap_count > 0)
		heap_sift_down(0, &last);
	return top;
}

/* Drops the entries for which keep() returns false. */
static void
heap_filter(DwKeep keep, void *arg)
{
	uint32		n = 0;

	for (uint32 i = 0; i < heap_count; i++)
		if (keep(&heap[i], arg))
			heap[n++] = heap[i];
	heap_count = n;
	for (uint32 i = heap_count / 2; i-- > 0;)
	{
		DwEntry		entry = heap[i];

		heap_sift_down(i, &entry);
	}
}

/*---- Lanes in the order of a time ----*/

/* The time of a lane in a heap. */
typedef struct DwLaneTime
{
	pairingheap_node node;
	TimestampTz at;
} DwLaneTime;

/* Returns the lane of this node. */
static const DwLaneTime *
lane_of_node(const pairingheap_node *node)
{
	/* cppcheck-suppress nullPointer ; the macro asks NULL for a type */
	return pairingheap_const_container(DwLaneTime, node, node);
}

/* Compares two lanes of a heap.  The first element of a pairing heap is the greatest. */
static int
compare_times(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	TimestampTz x = lane_of_node(a)->at;
	TimestampTz y = lane_of_node(b)->at;

	return x < y ? 1 : x > y ? -1 : 0;
}

/*
 * Makes the heap empty.  The first call allocates the heap's memory, which is never freed.  The
 * memory of lanes that the database does not have stays untouched.
 */
void
dw_lane_heap_reset(DwLaneHeap *lanes)
{
	if (lanes->times == NULL)
	{
		lanes->times = MemoryContextAlloc(TopMemoryContext, dw_max_lanes * sizeof(DwLaneTime));
		lanes->contains = MemoryContextAlloc(TopMemoryContext, dw_max_lanes * sizeof(bool));
	}
	memset(lanes->contains, false, dw_max_lanes * sizeof(bool));
	lanes->heap.ph_compare = compare_times;
	pairingheap_reset(&lanes->heap);
}

/* Puts a lane into the heap, or changes its time if the lane is in the heap. */
void
dw_lane_heap_set(DwLaneHeap *lanes, int32 lane, TimestampTz at)
{
	dw_lane_heap_remove(lanes, lane);
	lanes->contains[lane] = true;
	lanes->times[lane].at = at;
	pairingheap_add(&lanes->heap, &lanes->times[lane].node);
}

/* Removes a lane from the heap, if the lane is in the heap. */
void
dw_lane_heap_remove(DwLaneHeap *lanes, int32 lane)
{
	if (lanes->contains[lane])
		pairingheap_remove(&lanes->heap, &lanes->times[lane].node);
	lanes->contains[lane] = false;
}

/* Returns true if the lane is in the heap. */
bool
dw_lane_heap_has(const DwLaneHeap *lanes, int32 lane)
{
	return lanes->contains[lane];
}

/* Returns the number of the lane with the earliest time, or DW_NO_LANE. */
int32
dw_lane_heap_first(DwLaneHeap *lanes)
{
	return pairingheap_is_empty(&lanes->heap) ? DW_NO_LANE :
		lane_of_node(pairingheap_first(&lanes->heap)) - lanes->times;
}

/* Returns the earliest time, or DW_NEVER. */
TimestampTz
dw_lane_heap_first_time(DwLaneHeap *lanes)
{
	int32		first = dw_lane_heap_first(lanes);

	return first == DW_NO_LANE ? DW_NEVER : lanes->times[first].at;
}

/*---- Counting ----*/

/* Adds "by" to the number of entries that are not ready yet (in ring, heap and waiting spares). */
static void
add_to_waiting(DwLane *lane, int by)
{
	lane->waiting += by;
	pg_atomic_fetch_add_u64(&db->near, by);
}

/*
 * Returns a lane's share of the database's memory, in entries.  It may have more while memory is
 * free.
 */
uint32
dw_near_limit(void)
{
	uint32		entries = db->account.quota * DW_CHUNK_ENTRIES;

	return Max(entries / Max(db->nlanes, 1), 1);
}

/*---- Dropping ----*/

/* Sets the lane's cursor to (due, id), and publishes the due time as the lane's horizon. */
void
dw_near_set_cursor(DwLane *lane, TimestampTz due, int64 id)
{
	lane->cursor_due = due;
	lane->cursor_id = id;
	pg_atomic_write_u64(&lane->horizon, (uint64) due);
	pg_memory_barrier();
}

/* Returns true if this key is before the lane's cursor, so that its task must be in memory. */
bool
dw_near_is_before_cursor(const DwLane *lane, TimestampTz due, int64 id)
{
	return due < lane->cursor_due || (due == lane->cursor_due && id < lane->cursor_id);
}

/* Makes dw_near_apply_cuts() drop the lane's entries from this key on. */
static void
drop_from(DwLane *lane, TimestampTz due, int64 id)
{
	Key		   *cut = &cuts[lane - dw_lanes];

	if (cut->due == DW_NEVER)
		cut_lanes[ncuts++] = lane - dw_lanes;
	else if (cut->due < due || (cut->due == due && cut->id <= id))
		return;
	*cut = (Key) {due, id};
}

/*
 * Makes the timer load the lane again from (due, id) on, because its entries from this key on are
 * out of date, or their memory is needed.  If this moves the lane's cursor back, the caller must
 * call dw_near_apply_cuts(), which drops these entries for all lanes in one pass.
 */
void
dw_near_cut(DwLane *lane, TimestampTz due, int64 id)
{
	bool		cursor_moves = dw_near_is_before_cursor(lane, due, id);

	if (cursor_moves)
	{
		dw_near_set_cursor(lane, due, id);
		drop_from(lane, due, id);
	}

	/* tasks whose entries are dropped, or were never in memory, must be loaded */
	dw_atomic_lower(&lane->next_far, due);
	dw_lane_dirty(db, lane);
}

/* Filter that drops the entries from the cut of their lane on. */
static bool
survives_cut(const DwEntry *entry, void *arg)
{
	const Key  *cut = &cuts[entry->lane];

	return cut->due == DW_NEVER || dw_entry_is_before(entry, cut->due, cut->id);
}

/* Like survives_cut(), for an entry of ring or heap: counts the dropped entry. */
static bool
waiting_survives_cut(const DwEntry *entry, void *arg)
{
	if (survives_cut(entry, arg))
		return true;
	add_to_waiting(&dw_lanes[entry->lane], -1);
	return false;
}

/* Drops entries of ring and heap for which keep() returns false.  Begins an open slot again. */
static void
filter_waiting(DwKeep keep, void *arg)
{
	LWLockAcquire(dw_ring_lock(db), LW_EXCLUSIVE);
	dw_ring_filter(ring, dw_pool, &db->account, keep, arg);
	LWLockRelease(dw_ring_lock(db));
	take.chunks_left = 0;
	heap_filter(keep, arg);
}

/*
 * Drops entries of the lane's ready list and groups if keep() returns false.  Returns their number.
 * The caller must not hold the ready lock: a long list is removed from the lane and filtered
 * without the lock, so that executors do not wait, and take tasks of other lanes.
 */
static uint32
filter_ready(DwLane *lane, DwKeep keep, void *arg)
{
	DwList		list;
	uint32		count;
	bool		is_long;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	list = dw_ready_take_away(db, lane);
	count = list.count;
	is_long = count > FILTER_LOCKED;
	if (is_long)
		LWLockRelease(dw_ready_lock(db));
	dw_list_filter(dw_pool, &db->account, &list, keep, arg);
	if (is_long)
		LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	count -= list.count;
	/* entries that executors have put back during the filter come first */
	dw_list_append(dw_pool, &lane->ready, &list);
	count += dw_groups_filter(db, lane, keep, arg);
	if (dw_ready_count(lane) > 0)
		dw_ready_list(db, lane, true);
	LWLockRelease(dw_ready_lock(db));
	return count;
}

/* Drops the lane's spare if it is not before the lane's cut.  The caller holds the ready lock. */
static void
cut_spare(DwLane *lane)
{
	if (lane->spare_state == DW_SPARE_FREE || survives_cut(&lane->spare, NULL))
		return;
	if (lane->spare_state == DW_SPARE_READY)
		pg_atomic_fetch_sub_u64(&db->ready, 1);
	else
	{
		add_to_waiting(lane, -1);
		dw_lane_heap_remove(&spares, lane - dw_lanes);
	}
	lane->spare_state = DW_SPARE_FREE;
}

/* Returns false if no lane with a cut waits in ring, heap or spare: no scan is needed. */
static bool
any_cut_waits(void)
{
	for (uint32 i = 0; i < ncuts; i++)
		if (dw_lanes[cut_lanes[i]].waiting > 0)
			return true;
	return false;
}

/* Drops the entries from the noted cuts on, for all lanes.  Takes the ring and the ready lock. */
void
dw_near_apply_cuts(void)
{
	if (ncuts == 0)
		return;

	/* L2 of the model, and M1, D4 */
	if (any_cut_waits())
		filter_waiting(waiting_survives_cut, NULL);

	for (uint32 i = 0; i < ncuts; i++)
	{
		DwLane	   *lane = &dw_lanes[cut_lanes[i]];

		/* the lock is released after each lane, so that executors do not wait long */
		pg_atomic_fetch_sub_u64(&db->ready, filter_ready(lane, survives_cut, NULL));
		LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
		cut_spare(lane);
		dw_groups_cut(lane, cuts[cut_lanes[i]].due, cuts[cut_lanes[i]].id);
		LWLockRelease(dw_ready_lock(db));
		cuts[cut_lanes[i]].due = DW_NEVER;
	}
	ncuts = 0;
}

/* A random sample of the keys in memory, to estimate the key after a fraction of all entries. */
static struct
{
	int			lane;			/* number of the lane to sample; DW_NO_LANE: all lanes */
	Key			from;			/* entries before this key are ignored */
	uint64		seen;			/* number of entries so far, without ignored entries */
	int			n;				/* number of keys in the sample */
	Key			keys[SAMPLE];
} sample;

/* Filter that adds the entry to the sample.  Returns true, so that the entry is not dropped. */
static bool
add_to_sample(const DwEntry *entry, void *arg)
{
	uint64		i;

	if ((sample.lane != DW_NO_LANE && entry->lane != sample.lane) ||
		dw_entry_is_before(entry, sample.from.due, sample.from.id))
		return true;
	/* reservoir sampling; simple random numbers are sufficient */
	i = sample.seen++;
	if (sample.n < SAMPLE)
		i = sample.n++;
	else
		i = (i * UINT64CONST(0x9E3779B97F4A7C15) >> 16) % sample.seen;
	if (i < SAMPLE)
		sample.keys[i] = (Key) {entry->due, entry->id};
	return true;
}

/*
 * Samples the entries from this key on, and sorts the sample.  If "lane" is NULL, samples entries
 * of all lanes in ring and heap.  Otherwise samples this lane with its ready list.
 */
static void
take_sample(DwLane *lane, Key from)
{
	sample.lane = lane ? lane - dw_lanes : DW_NO_LANE;
	sample.from = from;
	sample.seen = 0;
	sample.n = 0;
	filter_waiting(add_to_sample, NULL);
	if (lane)
		(void) filter_ready(lane, add_to_sample, NULL);
	qsort(sample.keys, sample.n, sizeof(Key), compare_entry_keys);
}

/* Returns the lane with most entries, or NULL if no lane has more entries than its share. */
static DwLane *
greediest_lane(void)
{
	DwLane	   *found = NULL;
	uint32		most = dw_near_limit();

	if (pg_atomic_read_u64(&db->near) + pg_atomic_read_u64(&db->ready) <= most)
		return NULL;
	dw_each_lane(lane, db)
		if (dw_lane_held(lane) > most)
		{
			found = lane;
			most = dw_lane_held(found);
		}
	return found;
}

/*
 * Filter that cuts the entry's lane at the key *arg, if the entry is not before this key and the
 * lane has no cut yet.  Always returns true, so that the entry is not dropped.
 */
static bool
cut_lanes_beyond(const DwEntry *entry, void *arg)
{
	const Key  *key = arg;

	if (!dw_entry_is_before(entry, key->due, key->id) && cuts[entry->lane].due == DW_NEVER)
	{
		dw_near_cut(&dw_lanes[entry->lane], key->due, key->id);
		drop_from(&dw_lanes[entry->lane], key->due, key->id);
		dw_lanes[entry->lane].refill_at = 0;	/* make_room() sets refill_at after the cut */
	}
	return true;
}

/*
 * Makes the lane wait, since memory has no room for more of its entries: the lane is loaded again
 * when executors have taken half of its entries.  Otherwise lanes would push each other out of
 * memory for ever.  A lane without entries can always use its spare.
 */
static void
wait_for_room(DwLane *lane)
{
	lane->refill_at = dw_lane_held_in_turn(lane) / 2;
}

/*
 * Makes room in the pool for an entry with the key "wanted": cuts the lane with most entries to
 * half of its share, if it has more than its share.  Otherwise drops half of all entries in ring
 * and heap from this key on.  Returns false if no entry could be dropped.
 */
static bool
make_room(Key wanted)
{
	DwLane	   *lane = greediest_lane();
	uint32		n;
	Key			key;

	take_sample(lane, lane ? first_key : wanted);
	if (sample.n == 0)
		return false;
	if (lane)
	{
		uint64		keep = (uint64) sample.n * dw_near_limit() / dw_lane_held(lane);

		key = sample.keys[Min(keep / 2, (uint64) sample.n - 1)];
		dw_near_cut(lane, key.due, key.id);
		/* newcomers are in memory although they are beyond the cursor */
		drop_from(lane, key.due, key.id);
	}
	else
	{
		key = sample.keys[sample.n / 2];
		filter_waiting(cut_lanes_beyond, &key);
	}
	n = ncuts;
	dw_near_apply_cuts();
	for (uint32 i = 0; i < n; i++)
		if (dw_lanes[cut_lanes[i]].refill_at == 0)
			wait_for_room(&dw_lanes[cut_lanes[i]]);
	return true;
}

/* Gives back memory beyond the database's quota, since this memory is part of other quotas. */
void
dw_near_obey_quota(void)
{
	while (db->account.used > db->account.quota && make_room(first_key))
		CHECK_FOR_INTERRUPTS();
}

/*---- Placing ----*/

/*
 * Adds n due entries to the ready lists of their lanes.  "tids": the TIDs of grouped tasks, or NULL.
 * "waited": the entries count as waiting.  Returns how many were added before memory was full.
 */
static uint32
push_due(const DwEntry *entries, const ItemPointerData *tids, uint32 n, bool waited)
{
	uint32		left = 0;
	uint32		i;

	for (i = 0; i < n; i++)
		if (dw_entry_has_group(&entries[i]))
			dw_group_expect(&dw_lanes[entries[i].lane], entries[i].block);
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	for (i = 0; i < n; i++)
	{
		DwLane	   *lane = &dw_lanes[entries[i].lane];

		if (!dw_ready_push(db, lane, &entries[i], tids ? &tids[i] : NULL, &left))
			break;
		lane->waiting -= waited;
	}
	if (waited)
		pg_atomic_fetch_sub_u64(&db->near, i);
	pg_atomic_fetch_add_u64(&db->ready, i - left);
	LWLockRelease(dw_ready_lock(db));
	return i;
}

/* Adds n due entries like dw_near_add_hard(), at most DW_PUSH_MAX, but drops no entries. */
uint32
dw_near_add_due(const DwEntry *entries, const ItemPointerData *tids, uint32 n)
{
	return push_due(entries, tids, n, false);
}

/*
 * Puts an entry, by its due time, into the lane's ready list, the heap, or the ring.  "tid" is the
 * TID of a grouped task, whose entry has no TID, or NULL.  It is not stored if the task is not due
 * yet.  Returns false, and changes nothing, if memory has no room.
 */
static bool
add_near(DwLane *lane, const DwEntry *entry, const ItemPointerData *tid)
{
	TimestampTz now = ahead_now();
	bool		inserted;

	if (entry->due <= now)
		return push_due(entry, tid, 1, false) == 1;

	/* put the entry into the heap if the tick of its slot has begun */
	if (heap_count < HEAP_SIZE && dw_ring_tick(ring, entry->due) <= dw_ring_tick(ring, now))
	{
		add_to_waiting(lane, 1);
		heap_push(entry);
		return true;
	}

	LWLockAcquire(dw_ring_lock(db), LW_EXCLUSIVE);
	/* if the clock was set back, the ring must go back before an earlier entry is inserted */
	dw_ring_advance(ring, dw_ring_tick(ring, now));
	inserted = dw_ring_insert(ring, dw_pool, &db->account, entry);
	LWLockRelease(dw_ring_lock(db));
	if (inserted)
		add_to_waiting(lane, 1);
	return inserted;
}

/*
 * Returns true if the lane's next task to load is already due, but the lane has entries that were
 * not handed over yet.  Such entries are due earlier, and must be handed over before the task is
 * loaded, since executors take a lane's tasks in order.
 */
bool
dw_near_is_behind(const DwLane *lane, TimestampTz due)
{
	return lane->waiting > 0 && due <= ahead_now();
}

/* Puts the entry into the lane's spare.  Returns false if the lane has other entries. */
static bool
put_into_spare(DwLane *lane, const DwEntry *entry)
{
	bool		added = false;
	bool		is_due = entry->due <= ahead_now();

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	if (lane->spare_state == DW_SPARE_FREE && dw_lane_held(lane) == 0)
	{
		added = true;
		lane->spare = *entry;
		lane->spare_state = is_due ? DW_SPARE_READY : DW_SPARE_WAITING;
		if (is_due)
		{
			dw_ready_list(db, lane, true);
			pg_atomic_fetch_add_u64(&db->ready, 1);
		}
	}
	LWLockRelease(dw_ready_lock(db));
	if (added && !is_due)
	{
		add_to_waiting(lane, 1);
		dw_lane_heap_set(&spares, lane - dw_lanes, entry->due);
	}
	return added;
}

/*
 * Adds an entry like add_near().  If memory is full, drops other entries, or uses the lane's spare.
 * If the result is false, the caller must ensure that the lane's cursor is not after the entry.
 * The entry's own lane may have been cut to make room.
 */
bool
dw_near_add_hard(DwLane *lane, const DwEntry *entry, const ItemPointerData *tid)
{
	TimestampTz cursor_due = lane->cursor_due;
	int64		cursor_id = lane->cursor_id;
	const Key	wanted = {entry->due, entry->id};

	if (add_near(lane, entry, tid))
		return true;
	DW_INJECT("add-no-room");
	/* first cut the lane that has most entries, then all lanes */
	for (int i = 0; i < 2 && make_room(wanted); i++)
	{
		/* if this lane was cut before the entry, the entry stays in the table */
		if ((lane->cursor_due != cursor_due || lane->cursor_id != cursor_id) &&
			!dw_near_is_before_cursor(lane, entry->due, entry->id))
			return false;
		if (add_near(lane, entry, tid))
			return true;
	}
	if (put_into_spare(lane, entry))
		return true;
	wait_for_room(lane);
	return false;
}

/*
 * Steps D2 to D4: puts a hinted task into memory.  If the task is beyond the cursor (D3), memory is
 * full (D4), or the entry lacks its group (not "whole"), a later load reads the task instead.
 * "tid": see add_near().
 */
void
dw_near_take(const DwEntry *entry, const ItemPointerData *tid, bool whole)
{
	DwLane	   *lane = &dw_lanes[entry->lane];

	if (whole && dw_near_is_before_cursor(lane, entry->due, entry->id) &&
		dw_near_add_hard(lane, entry, tid))
		return;
	dw_near_cut(lane, entry->due, entry->id);
	dw_near_apply_cuts();
}

/*---- Handing over ----*/

/* Puts an entry that has left heap, ring or spare into memory again. */
static void
move_on(const DwEntry *entry)
{
	DwLane	   *lane = &dw_lanes[entry->lane];

	add_to_waiting(lane, -1);
	if (add_near(lane, entry, NULL) || put_into_spare(lane, entry))
		return;
	/* memory has no room: the entry is dropped, and loaded again later */
	dw_near_cut(lane, entry->due, entry->id);
	dw_near_apply_cuts();
}

/*
 * Moves n due entries, which have left heap or ring, to the ready lists of their lanes.  Holds the
 * ready lock for at most DW_PUSH_MAX entries, so that executors do not wait long for it.
 */
static void
hand_over(const DwEntry *entries, uint32 n)
{
	for (uint32 i = 0; i < n;)
	{
		uint32		stop = Min(n, i + DW_PUSH_MAX);

		i += push_due(&entries[i], NULL, stop - i, true);
		/* memory has no room for this entry */
		if (i < stop)
			move_on(&entries[i++]);
	}
}

/* Hands over at most about SLICE due entries of the heap.  Returns their number. */
static uint32
hand_over_heap(TimestampTz now)
{
	DwEntry		due[DW_PUSH_MAX];
	uint32		handed_over = 0;
	uint32		n;

	do
	{
		for (n = 0; heap_count > 0 && heap[0].due <= now && n < DW_PUSH_MAX; n++)
			due[n] = heap_pop();
		if (n > 0)
			hand_over(due, n);
		handed_over += n;
	} while (n == DW_PUSH_MAX && handed_over < SLICE);
	return handed_over;
}

/* Hands over at most SLICE due spares.  Returns their number. */
static uint32
hand_over_spares(TimestampTz now)
{
	uint32		n = 0;

	for (; dw_lane_heap_first_time(&spares) <= now && n < SLICE; n++)
	{
		DwLane	   *lane = &dw_lanes[dw_lane_heap_first(&spares)];
		DwEntry		entry = lane->spare;

		dw_lane_heap_remove(&spares, lane - dw_lanes);
		lane->spare_state = DW_SPARE_FREE;
		move_on(&entry);
	}
	return n;
}

/* Returns how many more entries fit into the heap, minus the number of entries of one slice. */
static uint32
heap_room(void)
{
	return HEAP_SIZE > heap_count + SLICE ? HEAP_SIZE - heap_count - SLICE : 0;
}

/* Returns the slot of the ring for this due time. */
static DwSlot *
slot_of(TimestampTz due)
{
	return dw_ring_slot(ring, dw_ring_index(ring, dw_ring_tick(ring, due)));
}

/*
 * Returns the due time up to which entries are taken out of the slot of "due".  If the heap has no
 * room for all entries, evenly distributed entries would fill half of the room.  So even a slot
 * with a million entries is scanned at most a few hundred times.
 */
static TimestampTz
take_until(TimestampTz due, TimestampTz now)
{
	int64		tick = dw_ring_tick(ring, due);
	uint32		count = slot_of(due)->list.count;

	if (count <= heap_room())
		return dw_ring_last_due(ring, tick);
	return Min(dw_time_add(now, dw_tick_us() * (heap_room() / 2) / count),
			   dw_ring_last_due(ring, tick));
}

/*
 * Returns when to look at the ring next, by the fast clock.  The timer opens a slot early, so that
 * an executor is started in time, unless the heap has no room for all entries.
 */
static TimestampTz
ring_next(void)
{
	TimestampTz due = dw_ring_next_due(ring);

	if (due == DW_NEVER)
		return DW_NEVER;
	if (slot_of(due)->list.count <= heap_room())
		due -= LEAD_US;
	return Max(due, ring_pause);
}

/* Moves at most SLICE entries from the ring's next slot to "taken".  Returns their number. */
static uint32
take_slice(TimestampTz now)
{
	uint32		n = 0;

	LWLockAcquire(dw_ring_lock(db), LW_EXCLUSIVE);
	if (take.chunks_left == 0 && ring_next() <= now)
	{
		TimestampTz due = dw_ring_next_due(ring);

		dw_ring_take_begin(ring, dw_ring_tick(ring, due), take_until(due, now), &take);
	}
	if (take.chunks_left > 0)
	{
		/* if the heap is full, entries that are not due yet remain in the slot */
		if (take.until_due > now && heap_room() == 0)
		{
			take.until_due = now;
			ring_pause = now + 1000;
		}
		n = dw_ring_take(ring, dw_pool, &db->account, &take, taken, SLICE);
	}
	LWLockRelease(dw_ring_lock(db));
	return n;
}

/*
 * Opens a slice of the ring's next slot: hands over due entries, and pushes the other entries onto
 * the heap.  Adds their lanes to *expected.  Returns the number of entries taken out of the slot.
 */
static uint32
open_slot(TimestampTz now, List **expected)
{
	uint32		n = take_slice(now);
	uint32		ndue = 0;

	/* the slot is open, so use the heap even if the slot's tick has not begun */
	for (uint32 i = 0; i < n; i++)
	{
		if (taken[i].due <= now)
			taken[ndue++] = taken[i];
		else
		{
			heap_push(&taken[i]);
			if (list_length(*expected) < MAX_EXPECTED)
				*expected = list_append_unique_ptr(*expected, &dw_lanes[taken[i].lane]);
		}
	}
	hand_over(taken, ndue);
	return n;
}

/*
 * Hands over a slice of the due entries, and opens a slice of the slot whose time has come.  Sets
 * *expected to lanes with tasks due soon, for which the timer may start executors before the due
 * time.  Returns true if the timer must call this again at once.
 */
bool
dw_near_hand_over(List **expected)
{
	TimestampTz now = ahead_now();
	uint32		n;

	n = hand_over_heap(now);
	n += hand_over_spares(now);
	*expected = NIL;
	n += open_slot(now, expected);

	LWLockAcquire(dw_ring_lock(db), LW_EXCLUSIVE);
	dw_ring_advance(ring, dw_ring_tick(ring, now));
	LWLockRelease(dw_ring_lock(db));
	return n > 0 || take.chunks_left > 0;
}

/* Returns when dw_near_hand_over() must be called next, by the true clock, or DW_NEVER. */
TimestampTz
dw_near_next(void)
{
	TimestampTz next = ring_next();

	if (heap_count > 0)
		next = Min(next, heap[0].due);
	next = Min(next, dw_lane_heap_first_time(&spares));
	return dw_time_add(next, -DW_HEAD_START_US);
}

/* Resets the lane to have no entries in memory.  The caller holds the ready lock. */
static void
reset_lane(DwLane *lane)
{
	dw_list_init(&lane->ready);
	dw_groups_reset(lane);
	lane->spare_state = DW_SPARE_FREE;
	lane->waiting = 0;
	lane->load_below = 0;
	lane->load_after = 0;
	lane->recheck_at = lane->recheck_from = DW_NEVER;
	lane->orphan = false;
	lane->refill_at = PG_UINT32_MAX;
	dw_near_set_cursor(lane, PG_INT64_MIN, PG_INT64_MIN);
}

/* Filter that drops all entries. */
static bool
keep_none(const DwEntry *entry, void *arg)
{
	return false;
}

/* Removes all entries that are not due yet. */
static void
forget_waiting(void)
{
	filter_waiting(keep_none, NULL);
	dw_lane_heap_reset(&spares);
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_each_lane(lane, db)
	{
		lane->waiting = 0;
		if (lane->spare_state == DW_SPARE_WAITING)
			lane->spare_state = DW_SPARE_FREE;
	}
	LWLockRelease(dw_ready_lock(db));
	pg_atomic_write_u64(&db->near, 0);
}

/* Cuts a lane after about "keep" ready tasks.  Below load_below tasks, sessions wake a timer. */
static void
leave_first(DwLane *lane, uint32 keep)
{
	take_sample(lane, first_key);
	if (sample.n > 1 && sample.seen > keep)
	{
		/* at least one task stays, so that a session takes this task and wakes the timer */
		Key			key = sample.keys[Max(sample.n * keep / sample.seen, 1)];

		/* before the cut, since sessions may take the remaining tasks at any time after the cut */
		LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
		lane->load_below = keep / 2 + 1;
		LWLockRelease(dw_ready_lock(db));
		dw_near_cut(lane, key.due, key.id);
		dw_near_apply_cuts();
	}
}

/*
 * Drops all entries, except about "keep" ready tasks of each lane for sessions that receive
 * messages.  Called before the timer ends.  The next timer reads all lanes again.
 */
void
dw_near_leave_ready(uint32 keep)
{
	forget_waiting();
	dw_each_lane(lane, db)
	{
		if (dw_ready_count(lane) > 2 * keep)
			leave_first(lane, keep);
		dw_near_set_cursor(lane, PG_INT64_MIN, PG_INT64_MIN);
	}
}

/* Removes all entries that a former timer has left in memory.  Called before other functions. */
void
dw_near_reset(DwDatabase *database)
{
	db = database;
	ring = db->ring;
	if (heap == NULL)
	{
		heap = MemoryContextAlloc(TopMemoryContext, HEAP_SIZE * sizeof(DwEntry));
		taken = MemoryContextAlloc(TopMemoryContext, SLICE * sizeof(DwEntry));
		cuts = MemoryContextAlloc(TopMemoryContext, dw_max_lanes * sizeof(Key));
		cut_lanes = MemoryContextAlloc(TopMemoryContext, dw_max_lanes * sizeof(int32));
	}
	dw_lane_heap_reset(&spares);
	for (int i = 0; i < dw_max_lanes; i++)
		cuts[i].due = DW_NEVER;
	ncuts = heap_count = 0;
	take.chunks_left = 0;

	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_each_lane(lane, db)
		reset_lane(lane);
	dw_ready_reset(db);
	pg_atomic_write_u64(&db->near, 0);
	pg_atomic_write_u64(&db->ready, 0);
	dw_pool_reclaim(dw_pool, &db->account);
	LWLockRelease(dw_ready_lock(db));
	LWLockRelease(dw_shared->table_lock);

	LWLockAcquire(dw_ring_lock(db), LW_EXCLUSIVE);
	dw_ring_init(ring, dw_slots, dw_tick_us());
	dw_ring_advance(ring, dw_ring_tick(ring, ahead_now()));
	LWLockRelease(dw_ring_lock(db));
}
