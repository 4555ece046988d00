/*-------------------------------------------------------------------------
 *
 * near.c
 *	  The near future in memory: the timer's side of ring and lanes.
 *
 * An entry waits in the ring until its slot opens, then in a heap of the
 * timer's own that orders the open slot by microsecond, and becomes ready at
 * its due time.  The heap is of fixed size: what it cannot take stays in its
 * slot and is looked at again each millisecond.
 *
 * All of this goes by a clock that is DW_HEAD_START_US fast: that long it takes
 * to wake the timer, and then an executor.  An executor that is faster waits
 * for the due time itself.
 *
 * All of this is a cache of the table.  When memory is short, the far end of
 * a lane is dropped and the lane's cursor pulled back to the lowest key
 * dropped (a cut); that is always allowed.  A lane that has nothing in memory
 * keeps one entry in its own record, so each can always make progress.
 *
 * Run by timers only.  Takes the ring lock to change the ring and the ready
 * lock to change ready lists and spares, one at a time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "../base/clock.h"
#include "../base/inject.h"
#include "../base/settings.h"
#include "../ring/lane_heap.h"
#include "../ring/ring.h"
#include "../shmem/ready.h"
#include "../shmem/shared.h"
#include "near.h"

#define HEAP_SIZE		16384
/* entries handled before the timer looks at other things */
#define SLICE			1008
/* how long before its first due time a slot is opened */
#define LEAD_US			50000
#define MAX_EXPECTED	8
/* entries handed over under one lock */
#define HAND_OVER_BATCH	32
/* a ready list of no more entries is gone through under the lock */
#define FILTER_LOCKED	4096
#define SAMPLE			1024

/* A place in the order of a lane. */
typedef struct Key
{
	TimestampTz due;
	int64		id;
} Key;

static DwDatabase *db = NULL;
static DwRing *ring = NULL;

static DwEntry *heap = NULL;
static uint32 heap_count = 0;

/* A slot that is being opened, if take.chunks_left > 0. */
static DwTake take;
static DwEntry *taken = NULL;

/* The heap was full: the ring is looked at again then. */
static TimestampTz ring_pause = PG_INT64_MIN;

/* What of each lane is to be dropped; DW_NEVER is nothing. */
static Key *cuts = NULL;
static int32 *cut_lanes = NULL;
static uint32 ncuts = 0;

/* Lanes with a task in their spare place that is not due yet. */
static DwLaneHeap spares;

/* Lanes with tasks due soon, for which an executor may be started ahead. */
static DwLane *expected[MAX_EXPECTED];
static int	nexpected = 0;

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
	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	return 0;
}

static bool
key_before(const DwEntry *entry, TimestampTz due, int64 id)
{
	return entry->due < due || (entry->due == due && entry->id < id);
}

/*---- The heap of the open slot, by due and id ----*/

static bool
entry_before(const DwEntry *a, const DwEntry *b)
{
	return key_before(a, b->due, b->id);
}

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

static DwEntry
heap_pop(void)
{
	DwEntry		top = heap[0];
	DwEntry		last = heap[--heap_count];

	if (heap_count > 0)
		heap_sift_down(0, &last);
	return top;
}

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

/*---- Counting ----*/

static void
add_to_waiting(DwLane *lane, int by)
{
	lane->waiting += by;
	pg_atomic_fetch_add_u64(&db->near, by);
}

/*
 * How many entries a lane should hold at most.
 *
 * A lane's share of the database's part of the pool.  What others leave
 * unused is lent: only when the pool is empty must a lane give back what it
 * holds beyond its share.
 */
uint32
dw_near_limit(void)
{
	uint32		entries = db->account.quota * DW_CHUNK_ENTRIES;

	return Max(entries / Max(db->nlanes, 1), 1);
}

/*---- Dropping ----*/

/* Sets the lane's cursor and publishes its horizon. */
void
dw_near_set_cursor(DwLane *lane, TimestampTz due, int64 id)
{
	lane->cursor_due = due;
	lane->cursor_id = id;
	pg_atomic_write_u64(&lane->horizon, (uint64) due);
	pg_memory_barrier();
}

void
dw_near_cut(DwLane *lane, TimestampTz due, int64 id)
{
	Key		   *cut = &cuts[lane - dw_lanes];
	bool		cursor_moves = due < lane->cursor_due ||
		(due == lane->cursor_due && id < lane->cursor_id);

	if (cursor_moves)
		dw_near_set_cursor(lane, due, id);

	/* what is dropped, or was never in memory, must be loaded */
	dw_atomic_lower(&lane->next_far, due);
	dw_lane_dirty(db, lane);

	/* nothing from the cursor on is in memory */
	if (!cursor_moves)
		return;
	if (cut->due == DW_NEVER)
		cut_lanes[ncuts++] = lane - dw_lanes;
	cut->due = lane->cursor_due;
	cut->id = lane->cursor_id;
}

static bool
survives_cut(const DwEntry *entry, void *arg)
{
	const Key  *cut = &cuts[entry->lane];

	if (cut->due == DW_NEVER || key_before(entry, cut->due, cut->id))
		return true;
	add_to_waiting(&dw_lanes[entry->lane], -1);
	return false;
}

static bool
ready_survives_cut(const DwEntry *entry, void *arg)
{
	const Key  *cut = &cuts[entry->lane];

	return key_before(entry, cut->due, cut->id);
}

/*
 * Drops from a lane's ready list what is not to be kept, or just looks at it;
 * returns how many were dropped.  A long list is taken away meanwhile:
 * executors go on with other lanes rather than wait for the lock.
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
	/* what was put back meanwhile is first */
	dw_list_append(dw_pool, &lane->ready, &list);
	if (dw_ready_count(lane) > 0)
		dw_ready_list(db, lane);
	LWLockRelease(dw_ready_lock(db));
	return count;
}

/* Drops from a lane's spare; under the ready lock. */
static void
cut_spare(DwLane *lane)
{
	const Key  *cut = &cuts[lane - dw_lanes];

	if (lane->spare_state == DW_SPARE_FREE || key_before(&lane->spare, cut->due, cut->id))
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

/* Else there is nothing to be dropped from the ring, which may be large. */
static bool
any_cut_waits(void)
{
	for (uint32 i = 0; i < ncuts; i++)
		if (dw_lanes[cut_lanes[i]].waiting > 0)
			return true;
	return false;
}

void
dw_near_apply_cuts(void)
{
	if (ncuts == 0)
		return;

	/* L2 of the model, and M1, D4 */
	if (any_cut_waits())
	{
		LWLockAcquire(dw_ring_lock(db), LW_EXCLUSIVE);
		dw_ring_filter(ring, dw_pool, &db->account, survives_cut, NULL);
		LWLockRelease(dw_ring_lock(db));
		take.chunks_left = 0;
		heap_filter(survives_cut, NULL);
	}

	for (uint32 i = 0; i < ncuts; i++)
	{
		DwLane	   *lane = &dw_lanes[cut_lanes[i]];

		/* one lane at a time, not to keep executors waiting */
		pg_atomic_fetch_sub_u64(&db->ready, filter_ready(lane, ready_survives_cut, NULL));
		LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
		cut_spare(lane);
		LWLockRelease(dw_ready_lock(db));
		cuts[cut_lanes[i]].due = DW_NEVER;
	}
	ncuts = 0;
}

/* A sample of keys, to find one with a given part of all entries before it. */
typedef struct Sample
{
	int			lane;			/* DW_NO_LANE: of any */
	Key			from;			/* of what is there or after it */
	uint64		seen;
	int			n;
	Key			keys[SAMPLE];
} Sample;

static bool
add_to_sample(const DwEntry *entry, void *arg)
{
	Sample	   *sample = arg;
	uint64		i;

	if ((sample->lane != DW_NO_LANE && entry->lane != sample->lane) ||
		key_before(entry, sample->from.due, sample->from.id))
		return true;
	/* reservoir sampling; the spread need not be of good quality */
	i = sample->seen++;
	if (sample->n < SAMPLE)
		i = sample->n++;
	else
		i = (i * UINT64CONST(0x9E3779B97F4A7C15) >> 16) % sample->seen;
	if (i < SAMPLE)
	{
		sample->keys[i].due = entry->due;
		sample->keys[i].id = entry->id;
	}
	return true;
}

static void
take_sample(Sample *sample, DwLane *lane, Key from)
{
	sample->lane = lane ? lane - dw_lanes : DW_NO_LANE;
	sample->from = from;
	sample->seen = 0;
	sample->n = 0;
	LWLockAcquire(dw_ring_lock(db), LW_EXCLUSIVE);
	dw_ring_filter(ring, dw_pool, &db->account, add_to_sample, sample);
	LWLockRelease(dw_ring_lock(db));
	take.chunks_left = 0;
	for (uint32 i = 0; i < heap_count; i++)
		(void) add_to_sample(&heap[i], sample);
	if (lane)
		(void) filter_ready(lane, add_to_sample, sample);
	qsort(sample->keys, sample->n, sizeof(Key), compare_entry_keys);
}

/* The lane that holds most, if that is more than its share. */
static DwLane *
greediest_lane(void)
{
	DwLane	   *found = NULL;
	uint32		most = dw_near_limit();

	if (pg_atomic_read_u64(&db->near) + pg_atomic_read_u64(&db->ready) <= most)
		return NULL;
	for (int32 i = db->lanes; i != DW_NO_LANE; i = dw_lanes[i].next)
		if (dw_lane_held(&dw_lanes[i]) > most)
		{
			found = &dw_lanes[i];
			most = dw_lane_held(found);
		}
	return found;
}

static bool
cut_lanes_beyond(const DwEntry *entry, void *arg)
{
	const Key  *key = arg;

	if (!key_before(entry, key->due, key->id) && cuts[entry->lane].due == DW_NEVER)
	{
		dw_near_cut(&dw_lanes[entry->lane], key->due, key->id);
		dw_lanes[entry->lane].refill_at = 0;	/* see wait_for_room */
	}
	return true;
}

/*
 * A lane that memory has no room for is not loaded again before it has used
 * up half of what it holds, its next tasks: else lanes would push each other
 * out for ever.  A lane that holds nothing finds a place: the spare.
 */
static void
wait_for_room(DwLane *lane)
{
	lane->refill_at = dw_lane_held(lane) / 2;
}

/*
 * Makes room in the pool for an entry: the greediest lane gives back what it
 * holds beyond its share, and half of that; if there is none, half of all
 * goes that waits for a later time than the entry.  False if nothing could be
 * dropped.
 */
static bool
make_room(Key wanted)
{
	const Key	first = {PG_INT64_MIN, PG_INT64_MIN};
	Sample	   *sample = palloc(sizeof(Sample));
	DwLane	   *lane = greediest_lane();
	uint32		n;
	Key			key;

	take_sample(sample, lane, lane ? first : wanted);
	if (sample->n == 0)
	{
		pfree(sample);
		return false;
	}
	if (lane)
	{
		uint64		keep = (uint64) sample->n * dw_near_limit() / dw_lane_held(lane);

		key = sample->keys[Min(keep / 2, (uint64) sample->n - 1)];
		dw_near_cut(lane, key.due, key.id);
	}
	else
	{
		key = sample->keys[sample->n / 2];
		LWLockAcquire(dw_ring_lock(db), LW_EXCLUSIVE);
		dw_ring_filter(ring, dw_pool, &db->account, cut_lanes_beyond, &key);
		LWLockRelease(dw_ring_lock(db));
		for (uint32 i = 0; i < heap_count; i++)
			(void) cut_lanes_beyond(&heap[i], &key);
	}
	pfree(sample);
	n = ncuts;
	dw_near_apply_cuts();
	for (uint32 i = 0; i < n; i++)
		if (dw_lanes[cut_lanes[i]].refill_at == 0)
			wait_for_room(&dw_lanes[cut_lanes[i]]);
	return true;
}

/* Gives memory back that another database is entitled to. */
void
dw_near_obey_quota(void)
{
	const Key	first = {PG_INT64_MIN, PG_INT64_MIN};

	while (db->account.used > db->account.quota && make_room(first))
		CHECK_FOR_INTERRUPTS();
}

/*---- Placing ----*/

static bool
push_ready(DwLane *lane, const DwEntry *entry)
{
	bool		pushed;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	pushed = dw_ready_push(db, lane, entry);
	if (pushed)
		pg_atomic_fetch_add_u64(&db->ready, 1);
	LWLockRelease(dw_ready_lock(db));
	return pushed;
}

/* The slot of this entry is open: its tick has begun, or is about to. */
static bool
slot_is_open(const DwEntry *entry, TimestampTz now)
{
	return dw_ring_tick(ring, entry->due) <= dw_ring_tick(ring, now);
}

/*
 * Puts an entry where it belongs: ready list, heap of the open slot, or ring.
 * False if memory has no place for it; then nothing was changed.
 */
bool
dw_near_place(DwLane *lane, const DwEntry *entry)
{
	TimestampTz now = ahead_now();
	bool		inserted;

	if (entry->due <= now)
		return push_ready(lane, entry);

	if (heap_count < HEAP_SIZE && slot_is_open(entry, now))
	{
		heap_push(entry);
		add_to_waiting(lane, 1);
		return true;
	}

	LWLockAcquire(dw_ring_lock(db), LW_EXCLUSIVE);
	/* the clock may have been set back: no slot before the current one */
	dw_ring_advance(ring, dw_ring_tick(ring, now));
	inserted = dw_ring_insert(ring, dw_pool, &db->account, entry);
	LWLockRelease(dw_ring_lock(db));
	if (inserted)
		add_to_waiting(lane, 1);
	return inserted;
}

/*
 * Is this beyond what waits of the lane, but due?  Then what waits is due, too,
 * and is to be handed over first.
 */
bool
dw_near_is_behind(const DwLane *lane, TimestampTz due)
{
	return lane->waiting > 0 && due <= ahead_now();
}

/* The place in the lane's own record, for a lane that has nothing else. */
static bool
place_in_spare(DwLane *lane, const DwEntry *entry)
{
	bool		placed = false;
	bool		is_due = entry->due <= ahead_now();

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	if (lane->spare_state == DW_SPARE_FREE && dw_lane_held(lane) == 0)
	{
		placed = true;
		lane->spare = *entry;
		lane->spare_state = is_due ? DW_SPARE_READY : DW_SPARE_WAITING;
		if (is_due)
		{
			dw_ready_list(db, lane);
			pg_atomic_fetch_add_u64(&db->ready, 1);
		}
	}
	LWLockRelease(dw_ready_lock(db));
	if (placed && !is_due)
	{
		add_to_waiting(lane, 1);
		dw_lane_heap_set(&spares, lane - dw_lanes, entry->due);
	}
	return placed;
}

/*
 * Like dw_near_place, but takes room from others if need be.  That may cut
 * the lane itself; then the entry is not placed.
 */
bool
dw_near_place_hard(DwLane *lane, const DwEntry *entry)
{
	TimestampTz cursor_due = lane->cursor_due;
	int64		cursor_id = lane->cursor_id;
	const Key	wanted = {entry->due, entry->id};

	if (dw_near_place(lane, entry))
		return true;
	DW_INJECT("place-no-room");
	/* once for the greedy, once for all: then it is really full */
	for (int i = 0; i < 2 && make_room(wanted); i++)
	{
		/* this very lane was cut: what comes after its cursor must wait */
		if ((lane->cursor_due != cursor_due || lane->cursor_id != cursor_id) &&
			!key_before(entry, lane->cursor_due, lane->cursor_id))
			return false;
		if (dw_near_place(lane, entry))
			return true;
	}
	if (place_in_spare(lane, entry))
		return true;
	wait_for_room(lane);
	return false;
}

/*---- Handing over ----*/

/* An entry left heap, ring or spare: finds its next place. */
static void
move_on(const DwEntry *entry)
{
	DwLane	   *lane = &dw_lanes[entry->lane];

	add_to_waiting(lane, -1);
	if (dw_near_place(lane, entry) || place_in_spare(lane, entry))
		return;
	/* the table keeps it until there is room */
	dw_near_cut(lane, entry->due, entry->id);
	dw_near_apply_cuts();
}

/*
 * Puts due entries, which have left heap or ring, into the ready lists of
 * their lanes: some under one lock, but not so many that executors would wait
 * for it.
 */
static void
hand_over(const DwEntry *entries, uint32 n)
{
	for (uint32 i = 0; i < n;)
	{
		uint32		first = i;
		uint32		stop = Min(n, i + HAND_OVER_BATCH);

		LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
		for (; i < stop; i++)
		{
			DwLane	   *lane = &dw_lanes[entries[i].lane];

			if (!dw_ready_push(db, lane, &entries[i]))
				break;
			lane->waiting--;
		}
		pg_atomic_fetch_sub_u64(&db->near, i - first);
		pg_atomic_fetch_add_u64(&db->ready, i - first);
		LWLockRelease(dw_ready_lock(db));
		/* there is no room for this one */
		if (i < stop)
			move_on(&entries[i++]);
	}
}

static uint32
hand_over_heap(TimestampTz now)
{
	DwEntry		due[HAND_OVER_BATCH];
	uint32		handed_over = 0;
	uint32		n;

	do
	{
		for (n = 0; heap_count > 0 && heap[0].due <= now && n < HAND_OVER_BATCH; n++)
			due[n] = heap_pop();
		if (n > 0)
			hand_over(due, n);
		handed_over += n;
	} while (n == HAND_OVER_BATCH && handed_over < SLICE);
	return handed_over;
}

static uint32
hand_over_spares(TimestampTz now)
{
	uint32		n = 0;

	for (; dw_lane_heap_first_key(&spares) <= now && n < SLICE; n++)
	{
		DwLane	   *lane = &dw_lanes[dw_lane_heap_first(&spares)];
		DwEntry		entry = lane->spare;

		dw_lane_heap_remove(&spares, lane - dw_lanes);
		lane->spare_state = DW_SPARE_FREE;
		move_on(&entry);
	}
	return n;
}

/* Free places in the heap; those that one step of a pass may need are kept. */
static uint32
heap_room(void)
{
	return HEAP_SIZE > heap_count + SLICE ? HEAP_SIZE - heap_count - SLICE : 0;
}

static DwSlot *
slot_of(TimestampTz due)
{
	return dw_ring_slot(ring, dw_ring_index(ring, dw_ring_tick(ring, due)));
}

/*
 * How long before its first due time a slot is opened, so that its order and
 * an executor are there in time.  What the heap cannot hold is not.
 */
static int64
lead_of(TimestampTz due)
{
	return slot_of(due)->list.count <= heap_room() ? LEAD_US : 0;
}

/*
 * Up to when entries are taken out of the slot of the first due time.  If the
 * heap cannot hold all of them, just as many as should fit into half of what
 * is free, were they spread evenly: so a slot with a million entries is gone
 * through some hundred times at most.
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

static void
expect(DwLane *lane)
{
	for (int i = 0; i < nexpected; i++)
		if (expected[i] == lane)
			return;
	if (nexpected < MAX_EXPECTED)
		expected[nexpected++] = lane;
}

/*
 * A lane that has a task due soon, of those that were found while handing
 * over; NULL if there is no more.
 */
DwLane *
dw_near_expected(void)
{
	return nexpected > 0 ? expected[--nexpected] : NULL;
}

/* When the ring must be looked at next. */
static TimestampTz
ring_next(void)
{
	TimestampTz due = dw_ring_next_due(ring);

	if (due == DW_NEVER)
		return DW_NEVER;
	return Max(due - lead_of(due), ring_pause);
}

/* Takes a slice out of the slot that is next; returns how many came out. */
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
		/* what is not due yet stays where it is, if the heap is full */
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

/* Opens a slot, a slice of it; returns how many came out. */
static uint32
open_slot(TimestampTz now)
{
	uint32		n = take_slice(now);
	uint32		ndue = 0;

	/* out of the ring, into the heap even if the tick has not begun yet */
	for (uint32 i = 0; i < n; i++)
	{
		if (taken[i].due <= now)
			taken[ndue++] = taken[i];
		else
		{
			heap_push(&taken[i]);
			expect(&dw_lanes[taken[i].lane]);
		}
	}
	hand_over(taken, ndue);
	return n;
}

/* Hands over what is due; true if there is more to do at once. */
bool
dw_near_hand_over(void)
{
	TimestampTz now = ahead_now();
	uint32		n;

	n = hand_over_heap(now);
	n += hand_over_spares(now);
	n += open_slot(now);

	LWLockAcquire(dw_ring_lock(db), LW_EXCLUSIVE);
	dw_ring_advance(ring, dw_ring_tick(ring, now));
	LWLockRelease(dw_ring_lock(db));
	return n > 0 || take.chunks_left > 0;
}

/* When something in memory is due next. */
TimestampTz
dw_near_next(void)
{
	TimestampTz next = ring_next();

	if (heap_count > 0)
		next = Min(next, heap[0].due);
	next = Min(next, dw_lane_heap_first_key(&spares));
	return dw_time_add(next, -DW_HEAD_START_US);
}

static void
reset_lane(DwLane *lane)
{
	dw_list_init(&lane->ready);
	lane->spare_state = DW_SPARE_FREE;
	lane->waiting = 0;
	lane->load_below = 0;
	lane->load_after = 0;
	lane->recheck_at = lane->recheck_from = DW_NEVER;
	lane->orphan = false;
	lane->refill_at = PG_UINT32_MAX;
	dw_near_set_cursor(lane, PG_INT64_MIN, PG_INT64_MIN);
}

/* Begins with nothing in memory, whatever a former timer left. */
void
dw_near_reset(DwDatabase *database)
{
	db = database;
	ring = dw_ring(db);
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
	ncuts = heap_count = nexpected = 0;
	take.chunks_left = 0;

	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	for (int32 i = db->lanes; i != DW_NO_LANE; i = dw_lanes[i].next)
		reset_lane(&dw_lanes[i]);
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
