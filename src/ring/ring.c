/*-------------------------------------------------------------------------
 *
 * ring.c
 *	  The ring of slots, the lists of chunks, and the pool of chunks.
 *
 * Run by timers and executors.  README.md explains the terms, which locks callers need, and what
 * functions do if the pool is exhausted.
 *
 *-------------------------------------------------------------------------
 */
#include "ring.h"

/* Chunks that dw_pool_reclaim() looks at before it unlocks the pool for a moment */
#define RECLAIM_BATCH		64

/* Slots that scan_slots() looks at before it checks whether it can stop */
#define SCAN_BATCH			16

#define NO_SLOT				UINT32_MAX
#define BITS_PER_WORD		64

/* Arguments of keep_bounds(): the caller's predicate, and bounds of due times of kept entries */
typedef struct KeepBounds
{
	DwKeep		keep;
	void	   *arg;
	int64		min_due;
	int64		max_due;
} KeepBounds;

StaticAssertDecl(sizeof(DwEntry) == 24, "an entry must have 24 bytes");
StaticAssertDecl(sizeof(DwChunk) == 1024, "a chunk must have 1024 bytes");

/*---- The pool ----*/

static inline DwChunk *
get_chunk(DwPool *pool, uint32 chunkno)
{
	Assert(chunkno < pool->nchunks);
	return &pool->chunks[chunkno];
}

/* Returns the size of a pool in bytes. */
size_t
dw_pool_size(uint32 nchunks)
{
	return offsetof(DwPool, chunks) + (Size) nchunks * sizeof(DwChunk);
}

/* Puts a chunk into the free list.  Needs the pool's lock, except while the pool is initialized. */
static void
put_free(DwPool *pool, uint32 chunkno)
{
	DwChunk    *chunk = get_chunk(pool, chunkno);

	chunk->owner = 0;
	chunk->serial++;
	chunk->next = pool->free_head;
	pool->free_head = chunkno;
}

/* Initializes a pool with all chunks free. */
void
dw_pool_init(DwPool *pool, uint32 nchunks)
{
	SpinLockInit(&pool->lock);
	pool->nchunks = nchunks;
	pool->free_head = DW_NO_CHUNK;

	/* Backwards, so that chunks are handed out in the order of memory */
	for (uint32 i = nchunks; i > 0; i--)
	{
		pool->chunks[i - 1].serial = 0;
		put_free(pool, i - 1);
	}
}

/* Takes a chunk from the pool.  Returns DW_NO_CHUNK if the pool or the quota is exhausted. */
static uint32
alloc_chunk(DwPool *pool, DwAccount *acct)
{
	uint32		chunkno = DW_NO_CHUNK;
	DwChunk    *chunk;

	SpinLockAcquire(&pool->lock);
	if (acct->used < acct->quota && pool->free_head != DW_NO_CHUNK)
	{
		chunkno = pool->free_head;
		chunk = &pool->chunks[chunkno];
		pool->free_head = chunk->next;
		chunk->owner = acct->owner;
		acct->used++;
	}
	SpinLockRelease(&pool->lock);

	if (chunkno != DW_NO_CHUNK)
	{
		chunk = get_chunk(pool, chunkno);
		chunk->next = DW_NO_CHUNK;
		chunk->first = 0;
		chunk->count = 0;
	}
	return chunkno;
}

/* Gives a chunk back to the pool. */
static void
free_chunk(DwPool *pool, DwAccount *acct, uint32 chunkno)
{
	Assert(get_chunk(pool, chunkno)->owner == acct->owner);

	SpinLockAcquire(&pool->lock);
	put_free(pool, chunkno);
	acct->used--;
	SpinLockRelease(&pool->lock);
}

/*
 * Puts all chunks of an account whose timer has died back into the pool.
 *
 * The caller ensures that no process uses lists of the account any more.  These lists become
 * invalid, and must be initialized again.
 */
void
dw_pool_reclaim(DwPool *pool, DwAccount *acct)
{
	uint32		chunkno = 0;

	while (chunkno < pool->nchunks)
	{
		uint32		end = chunkno + Min(RECLAIM_BATCH, pool->nchunks - chunkno);

		SpinLockAcquire(&pool->lock);
		for (; chunkno < end; chunkno++)
			if (pool->chunks[chunkno].owner == acct->owner)
				put_free(pool, chunkno);
		SpinLockRelease(&pool->lock);
	}

	SpinLockAcquire(&pool->lock);
	acct->used = 0;
	SpinLockRelease(&pool->lock);
}

/*---- Lists of entries: no chunk in a list is empty, but each may be partly filled ----*/

/* Initializes an empty list. */
void
dw_list_init(DwList *list)
{
	list->head = DW_NO_CHUNK;
	list->tail = DW_NO_CHUNK;
	list->count = 0;
	list->nchunks = 0;
}

/* Appends a chunk with its entries. */
static void
link_tail(DwPool *pool, DwList *list, uint32 chunkno)
{
	DwChunk    *chunk = get_chunk(pool, chunkno);

	chunk->next = DW_NO_CHUNK;
	if (list->tail == DW_NO_CHUNK)
		list->head = chunkno;
	else
		get_chunk(pool, list->tail)->next = chunkno;
	list->tail = chunkno;
	list->nchunks++;
	list->count += chunk->count;
}

/* Removes the first chunk with its entries, and returns the chunk. */
static uint32
unlink_head(DwPool *pool, DwList *list)
{
	uint32		chunkno = list->head;
	DwChunk    *chunk = get_chunk(pool, chunkno);

	list->head = chunk->next;
	if (list->head == DW_NO_CHUNK)
		list->tail = DW_NO_CHUNK;
	list->nchunks--;
	list->count -= chunk->count;
	return chunkno;
}

/* Removes an empty chunk from any position. */
static void
unlink_empty(DwPool *pool, DwList *list, uint32 chunkno)
{
	uint32		before = list->head;

	if (chunkno == list->head)
	{
		(void) unlink_head(pool, list);
		return;
	}
	while (get_chunk(pool, before)->next != chunkno)
		before = get_chunk(pool, before)->next;
	get_chunk(pool, before)->next = get_chunk(pool, chunkno)->next;
	if (list->tail == chunkno)
		list->tail = before;
	list->nchunks--;
}

/* Returns the number of entries that still fit into the last chunk of the list. */
static uint32
tail_room(DwPool *pool, const DwList *list)
{
	DwChunk    *tail;

	if (list->tail == DW_NO_CHUNK)
		return 0;
	tail = get_chunk(pool, list->tail);
	return DW_CHUNK_ENTRIES - (uint32) tail->first - tail->count;
}

/* Appends an entry to a list.  Returns false, and changes nothing, if no chunk is free. */
bool
dw_list_push(DwPool *pool, DwAccount *acct, DwList *list, const DwEntry *entry)
{
	DwChunk    *tail;

	if (tail_room(pool, list) == 0)
	{
		uint32		chunkno = alloc_chunk(pool, acct);

		if (chunkno == DW_NO_CHUNK)
			return false;
		link_tail(pool, list, chunkno);
	}

	tail = get_chunk(pool, list->tail);
	tail->entries[tail->first + tail->count] = *entry;
	tail->count++;
	list->count++;
	return true;
}

/* Inserts an entry before all other entries.  Returns false like dw_list_push(). */
bool
dw_list_put_back(DwPool *pool, DwAccount *acct, DwList *list, const DwEntry *entry)
{
	DwChunk    *head = list->head == DW_NO_CHUNK ? NULL : get_chunk(pool, list->head);

	if (head == NULL || head->first == 0)
	{
		uint32		chunkno = alloc_chunk(pool, acct);

		if (chunkno == DW_NO_CHUNK)
			return false;
		head = get_chunk(pool, chunkno);
		head->first = DW_CHUNK_ENTRIES;
		head->next = list->head;
		list->head = chunkno;
		if (list->tail == DW_NO_CHUNK)
			list->tail = chunkno;
		list->nchunks++;
	}

	head->entries[--head->first] = *entry;
	head->count++;
	list->count++;
	return true;
}

/* Returns the position of a chunk in a list.  "chunkno" may be DW_NO_CHUNK. */
static DwPosition
position_of(DwPool *pool, uint32 chunkno)
{
	DwPosition	position = {.chunk = chunkno};

	if (chunkno != DW_NO_CHUNK)
		position.serial = get_chunk(pool, chunkno)->serial;
	return position;
}

/* Returns the position of the first chunk of a list, or DW_NO_CHUNK if the list is empty. */
DwPosition
dw_list_head(DwPool *pool, const DwList *list)
{
	return position_of(pool, list->head);
}

/* Returns the position n chunks after a valid position, or DW_NO_CHUNK beyond the end. */
DwPosition
dw_list_ahead(DwPool *pool, const DwPosition *position, uint32 n)
{
	uint32		chunkno = position->chunk;

	for (; chunkno != DW_NO_CHUNK && n > 0; n--)
		chunkno = get_chunk(pool, chunkno)->next;
	return position_of(pool, chunkno);
}

/* Returns the entry that dw_list_pop() would pop, or NULL if the position has become invalid. */
const DwEntry *
dw_list_first(DwPool *pool, const DwPosition *position)
{
	DwChunk    *chunk;

	if (position->chunk == DW_NO_CHUNK)
		return NULL;
	chunk = get_chunk(pool, position->chunk);
	return chunk->serial == position->serial ? &chunk->entries[chunk->first] : NULL;
}

/*
 * Has the processor load the list's first chunk, which is needed soon: its header, or its first
 * entry, whose position is in the header.
 */
void
dw_list_expect(DwPool *pool, const DwList *list, bool entry)
{
	DwChunk    *head = list->head == DW_NO_CHUNK ? NULL : get_chunk(pool, list->head);

	if (head != NULL)
		dw_prefetch(entry ? (void *) &head->entries[head->first] : (void *) head);
}

/*
 * Pops the first entry of the chunk at a position in this list.  Returns false if the position has
 * become invalid.  If the chunk becomes empty, frees it, and sets *position to the next chunk.
 */
bool
dw_list_pop(DwPool *pool, DwAccount *acct, DwList *list, DwPosition *position, DwEntry *entry)
{
	const DwEntry *first = dw_list_first(pool, position);
	DwChunk    *chunk;

	if (first == NULL)
		return false;

	*entry = *first;
	chunk = get_chunk(pool, position->chunk);
	chunk->first++;
	chunk->count--;
	list->count--;
	if (chunk->count == 0)
	{
		uint32		emptied = position->chunk;

		*position = position_of(pool, chunk->next);
		unlink_empty(pool, list, emptied);
		free_chunk(pool, acct, emptied);
	}
	return true;
}

/*
 * Ends a filtered list after its chunk "last", into which "count" entries were written.  Frees the
 * other chunks.
 */
static void
cut_list(DwPool *pool, DwAccount *acct, DwList *list, uint32 last, uint32 count)
{
	uint32		rest = last;

	if (count == 0)
	{
		/* Only the first chunk can stay without entries */
		Assert(last == list->head);
		list->head = DW_NO_CHUNK;
		list->tail = DW_NO_CHUNK;
	}
	else
	{
		DwChunk    *chunk = get_chunk(pool, last);

		rest = chunk->next;
		chunk->first = 0;
		chunk->count = count;
		chunk->next = DW_NO_CHUNK;
		list->tail = last;
	}
	while (rest != DW_NO_CHUNK)
	{
		uint32		next = get_chunk(pool, rest)->next;

		free_chunk(pool, acct, rest);
		list->nchunks--;
		rest = next;
	}
}

/*
 * Removes the entries for which keep() returns false.  The remaining entries move up in the same
 * order, so that all chunks except the last are full.
 *
 * Entries move within the chunks of the list.  An entry is never written over an unread entry,
 * since each chunk is filled completely before the next.
 */
void
dw_list_filter(DwPool *pool, DwAccount *acct, DwList *list, DwKeep keep, void *arg)
{
	uint32		dst = list->head;
	uint32		dst_count = 0;
	uint32		kept = 0;
	uint32		src;

	if (list->head == DW_NO_CHUNK)
		return;

	for (src = list->head; src != DW_NO_CHUNK; src = get_chunk(pool, src)->next)
	{
		DwChunk    *chunk = get_chunk(pool, src);
		uint32		end = (uint32) chunk->first + chunk->count;

		for (uint32 i = chunk->first; i < end; i++)
		{
			if (!keep(&chunk->entries[i], arg))
				continue;
			if (dst_count == DW_CHUNK_ENTRIES)
			{
				DwChunk    *full = get_chunk(pool, dst);

				full->first = 0;
				full->count = DW_CHUNK_ENTRIES;
				dst = full->next;
				dst_count = 0;
			}
			get_chunk(pool, dst)->entries[dst_count++] = chunk->entries[i];
			kept++;
		}
	}

	list->count = kept;
	cut_list(pool, acct, list, dst, dst_count);
}

/* Moves all entries of the list "more" to the end of the list "list". */
void
dw_list_append(DwPool *pool, DwList *list, DwList *more)
{
	if (more->head == DW_NO_CHUNK)
		return;
	if (list->tail == DW_NO_CHUNK)
		list->head = more->head;
	else
		get_chunk(pool, list->tail)->next = more->head;
	list->tail = more->tail;
	list->count += more->count;
	list->nchunks += more->nchunks;
	dw_list_init(more);
}

/*---- The ring ----*/

static inline uint32
bitmap_words(uint32 nslots)
{
	return nslots / BITS_PER_WORD + (nslots % BITS_PER_WORD != 0);
}

static inline Size
slots_offset(uint32 nslots)
{
	return MAXALIGN(offsetof(DwRing, occupied) + (Size) bitmap_words(nslots) * sizeof(uint64));
}

/* Returns the size of a ring in bytes. */
size_t
dw_ring_size(uint32 nslots)
{
	return MAXALIGN(slots_offset(nslots) + (Size) nslots * sizeof(DwSlot));
}

/* Returns the slot with this number. */
DwSlot *
dw_ring_slot(DwRing *ring, uint32 slot)
{
	Assert(slot < ring->nslots);
	return (DwSlot *) ((char *) ring + ring->slots_offset) + slot;
}

/* Called when a slot has become empty */
static void
clear_slot(DwRing *ring, uint32 slotno)
{
	DwSlot	   *slot = dw_ring_slot(ring, slotno);

	slot->min_due = PG_INT64_MAX;
	slot->max_due = PG_INT64_MIN;
	ring->occupied[slotno / BITS_PER_WORD] &= ~(UINT64CONST(1) << (slotno % BITS_PER_WORD));
}

static void
forget_strays(DwRing *ring)
{
	ring->stray_due = PG_INT64_MAX;
	ring->stray_end = PG_INT64_MIN;
}

/* Initializes an empty ring.  One turn, nslots * tick_us, must fit into int64. */
void
dw_ring_init(DwRing *ring, uint32 nslots, int64 tick_us)
{
	/* dw_ring_next_due() requires that one turn is a valid time span */
	Assert(nslots > 0 && tick_us > 0 && tick_us <= PG_INT64_MAX / nslots);

	ring->nslots = nslots;
	ring->tick_us = tick_us;
	ring->current_tick = 0;
	forget_strays(ring);
	ring->pass_serial = 0;
	ring->pass_slot = NO_SLOT;
	ring->pass_min = PG_INT64_MAX;
	ring->pass_max = PG_INT64_MIN;
	ring->slots_offset = slots_offset(nslots);

	for (uint32 i = 0; i < bitmap_words(nslots); i++)
		ring->occupied[i] = 0;
	for (uint32 i = 0; i < nslots; i++)
	{
		dw_list_init(&dw_ring_slot(ring, i)->list);
		clear_slot(ring, i);
	}
}

/* Returns the tick of a due time.  Rounds down, also before the epoch. */
int64
dw_ring_tick(const DwRing *ring, int64 due)
{
	int64		tick = due / ring->tick_us;

	return due % ring->tick_us < 0 ? tick - 1 : tick;
}

/*
 * Returns the last due time of a tick, limited to the range of int64.  The last tick ends with
 * PG_INT64_MAX.  An entry that is due at PG_INT64_MIN is always due.
 */
int64
dw_ring_last_due(const DwRing *ring, int64 tick)
{
	if (tick >= dw_ring_tick(ring, PG_INT64_MAX))
		return PG_INT64_MAX;
	if (tick < dw_ring_tick(ring, PG_INT64_MIN))
		return PG_INT64_MIN;
	return (tick + 1) * ring->tick_us - 1;
}

/* Returns the number of the slot of a tick. */
uint32
dw_ring_index(const DwRing *ring, int64 tick)
{
	int64		slotno = tick % (int64) ring->nslots;

	return slotno < 0 ? slotno + ring->nslots : slotno;
}

/*
 * Returns the cycle number of a due time: the number of whole turns of the ring until this time.
 * The difference is unsigned, since an infinite due time may be more than INT64_MAX away.
 */
int64
dw_ring_cycle(const DwRing *ring, int64 due)
{
	int64		tick = dw_ring_tick(ring, due);

	if (tick <= ring->current_tick)
		return 0;
	return ((uint64) tick - (uint64) ring->current_tick) / ring->nslots;
}

/*
 * Sets the current tick, which may also go back.
 *
 * Strays are entries that a walk over the slots from the new current tick on would reach too late.
 * A stray is in a slot that the hand has passed, or it came too late for its own slot and is in the
 * slot that was current until now.  The tick of a stray is before the old or the new current tick,
 * whichever is greater.
 */
void
dw_ring_advance(DwRing *ring, int64 tick)
{
	int64		end = Max(tick, ring->current_tick);
	uint32		slotno = dw_ring_index(ring, ring->current_tick);
	uint64		nslots = 1;
	int64		limit;

	if (tick == ring->current_tick)
		return;
	if (tick > ring->current_tick)
		nslots = Min((uint64) tick - (uint64) ring->current_tick, ring->nslots);

	limit = dw_ring_last_due(ring, end - 1);
	for (; nslots > 0; nslots--)
	{
		DwSlot	   *slot = dw_ring_slot(ring, slotno);

		if (slot->list.count > 0 && slot->min_due <= limit)
		{
			ring->stray_due = Min(ring->stray_due, slot->min_due);
			ring->stray_end = Max(ring->stray_end, end);
		}
		if (++slotno == ring->nslots)
			slotno = 0;
	}
	ring->current_tick = tick;
}

/*
 * Puts an entry into the slot of its due time.  If the tick of the due time has passed, uses the
 * current slot, since the entry's own slot would not be read for a whole turn.
 *
 * Returns false, and changes nothing, if no chunk is free.
 */
bool
dw_ring_insert(DwRing *ring, DwPool *pool, DwAccount *acct, const DwEntry *entry)
{
	int64		tick = dw_ring_tick(ring, entry->due);
	uint32		slotno = dw_ring_index(ring, Max(tick, ring->current_tick));
	DwSlot	   *slot = dw_ring_slot(ring, slotno);

	if (!dw_list_push(pool, acct, &slot->list, entry))
		return false;

	ring->occupied[slotno / BITS_PER_WORD] |= UINT64CONST(1) << (slotno % BITS_PER_WORD);
	slot->min_due = Min(slot->min_due, entry->due);
	slot->max_due = Max(slot->max_due, entry->due);
	if (slotno == ring->pass_slot)
	{
		ring->pass_min = Min(ring->pass_min, entry->due);
		ring->pass_max = Max(ring->pass_max, entry->due);
	}
	return true;
}

/* Returns the first slot with entries in [from, end), or end if all these slots are empty. */
static uint32
next_occupied(const DwRing *ring, uint32 from, uint32 end)
{
	uint32		word = from / BITS_PER_WORD;
	uint64		bits;
	uint32		slotno;

	if (from >= end)
		return end;

	bits = ring->occupied[word] & (~UINT64CONST(0) << (from % BITS_PER_WORD));
	while (bits == 0)
	{
		if (++word * BITS_PER_WORD >= end)
			return end;
		bits = ring->occupied[word];
	}
	slotno = word * BITS_PER_WORD + __builtin_ctzll(bits);
	return Min(slotno, end);
}

/*
 * Lowers *best to the least min_due of the slots with entries in [from, end).  The hand is the
 * position of the current tick.  "reach" is the last due time of the tick in which the hand comes
 * to slot "from".  Returns true if slots farther away cannot lower *best any more.
 *
 * The scan can stop if *best is due before the hand leaves the slot: entries in their own slots
 * farther away are due later, and strays are due at stray_due or later.
 */
static bool
scan_slots(DwRing *ring, uint32 from, uint32 end, int64 reach, int64 *best)
{
	const DwSlot *slots = dw_ring_slot(ring, 0);
	const int64 tick_us = ring->tick_us;
	const int64 stray_due = ring->stray_due;
	int64		least = *best;
	uint32		slotno = next_occupied(ring, from, end);

	while (slotno < end)
	{
		uint32		stop = Min(end - slotno, SCAN_BATCH) + slotno;

		/* Empty slots do no harm, and skipping them would take longer */
		for (; slotno < stop; slotno++)
			least = Min(least, slots[slotno].min_due);
		if (least <= stray_due && least <= reach + (slotno - 1 - from) * tick_us)
		{
			*best = least;
			return true;
		}
		slotno = next_occupied(ring, slotno, end);
	}
	*best = least;
	return false;
}

/*
 * Returns a lower bound of the earliest due time in the ring: the least min_due of all slots.
 * Returns PG_INT64_MAX if the ring is empty.
 */
int64
dw_ring_next_due(DwRing *ring)
{
	uint32		start = dw_ring_index(ring, ring->current_tick);
	int64		turn_us = ring->tick_us * ring->nslots;
	int64		best = PG_INT64_MAX;
	int64		reach = dw_ring_last_due(ring, ring->current_tick);

	/* A lower "reach" is always correct, and prevents an overflow below */
	reach = Min(reach, PG_INT64_MAX - turn_us);

	if (scan_slots(ring, start, ring->nslots, reach, &best))
		return best;
	reach += (ring->nslots - start) * ring->tick_us;
	if (scan_slots(ring, 0, start, reach, &best))
		return best;

	/* All slots were read, so the bounds of the strays can be narrowed */
	if (dw_ring_tick(ring, best) >= ring->stray_end)
		forget_strays(ring);
	else
		ring->stray_due = Max(ring->stray_due, best);
	return best;
}

/* Begins a pass over the slot of slot_tick, to take out the entries that are due by until_due. */
void
dw_ring_take_begin(DwRing *ring, int64 slot_tick, int64 until_due, DwTake *take)
{
	take->slot = dw_ring_index(ring, slot_tick);
	take->until_due = until_due;
	take->chunks_left = dw_ring_slot(ring, take->slot)->list.nchunks;
	take->serial = ++ring->pass_serial;

	ring->pass_slot = take->slot;
	ring->pass_min = PG_INT64_MAX;
	ring->pass_max = PG_INT64_MIN;
}

/* Moves as many entries of a chunk as fit into the tail chunk of the list. */
static void
pour_into_tail(DwPool *pool, DwList *list, DwChunk *chunk)
{
	uint32		n = Min(tail_room(pool, list), chunk->count);
	DwChunk    *tail;

	if (n == 0)
		return;

	/* Take the last entries, so that no other entry must move up */
	tail = get_chunk(pool, list->tail);
	chunk->count -= n;
	memcpy(&tail->entries[tail->first + tail->count],
		   &chunk->entries[chunk->first + chunk->count], n * sizeof(DwEntry));
	tail->count += n;
	list->count += n;
}

/* Moves the entries that are due by "limit" from a chunk to "out".  Returns their number. */
static uint32
split_chunk(DwRing *ring, uint32 slotno, DwChunk *chunk, int64 limit, DwEntry *out)
{
	uint32		end = (uint32) chunk->first + chunk->count;
	uint32		taken = 0;
	uint32		kept = 0;
	int64		min_due = PG_INT64_MAX;
	int64		max_due = PG_INT64_MIN;

	for (uint32 i = chunk->first; i < end; i++)
	{
		const DwEntry *entry = &chunk->entries[i];

		if (entry->due <= limit)
			out[taken++] = *entry;
		else
		{
			min_due = Min(min_due, entry->due);
			max_due = Max(max_due, entry->due);
			chunk->entries[kept++] = *entry;
		}
	}
	chunk->first = 0;
	chunk->count = kept;

	/* Even if this pass is not the latest: the latest pass misses chunks that this pass moves */
	if (slotno == ring->pass_slot)
	{
		ring->pass_min = Min(ring->pass_min, min_due);
		ring->pass_max = Max(ring->pass_max, max_due);
	}
	return taken;
}

/*
 * Takes the due entries out of the first chunk of a slot.  Moves the other entries behind the
 * chunks that the pass has not read yet, into the last chunk or with their own chunk.
 */
static uint32
take_chunk(DwRing *ring, DwPool *pool, DwAccount *acct, uint32 slotno, int64 limit, DwEntry *out)
{
	DwList	   *list = &dw_ring_slot(ring, slotno)->list;
	uint32		chunkno = unlink_head(pool, list);
	DwChunk    *chunk = get_chunk(pool, chunkno);
	uint32		taken = split_chunk(ring, slotno, chunk, limit, out);

	pour_into_tail(pool, list, chunk);
	if (chunk->count > 0)
		link_tail(pool, list, chunkno);
	else
		free_chunk(pool, acct, chunkno);
	return taken;
}

/*
 * Called when a pass is over.  If no other pass or filter has interfered, the pass's bounds cover
 * all entries of the slot: entries that it has left, and entries inserted during the pass.
 */
static void
end_slot_pass(DwRing *ring, const DwTake *take)
{
	DwSlot	   *slot = dw_ring_slot(ring, take->slot);

	if (take->serial != ring->pass_serial || take->slot != ring->pass_slot)
		return;
	slot->min_due = ring->pass_min;
	slot->max_due = ring->pass_max;
	ring->pass_slot = NO_SLOT;
}

/*
 * Continues a pass: reads as many chunks as certainly fit into "out", which has room for "max"
 * entries.  Returns the number of entries taken.
 *
 * The pass is over when take->chunks_left is 0.  A result of 0 does not mean that the pass is over.
 */
uint32
dw_ring_take(DwRing *ring, DwPool *pool, DwAccount *acct, DwTake *take, DwEntry *out, uint32 max)
{
	DwList	   *list = &dw_ring_slot(ring, take->slot)->list;
	uint32		nchunks = max / DW_CHUNK_ENTRIES;
	uint32		taken = 0;

	Assert(max >= DW_CHUNK_ENTRIES);

	for (; nchunks > 0; nchunks--)
	{
		/* Another pass or a filter may have removed chunks since this pass began */
		take->chunks_left = Min(take->chunks_left, list->nchunks);
		if (take->chunks_left == 0)
			break;
		taken += take_chunk(ring, pool, acct, take->slot, take->until_due, out + taken);
		take->chunks_left--;
	}

	if (take->chunks_left == 0)
		end_slot_pass(ring, take);
	if (list->count == 0)
		clear_slot(ring, take->slot);
	return taken;
}

/* Predicate of dw_ring_filter(): calls the caller's predicate, and updates the bounds. */
static bool
keep_bounds(const DwEntry *entry, void *arg)
{
	KeepBounds *bounds = (KeepBounds *) arg;

	if (!bounds->keep(entry, bounds->arg))
		return false;
	bounds->min_due = Min(bounds->min_due, entry->due);
	bounds->max_due = Max(bounds->max_due, entry->due);
	return true;
}

/* Removes entries from all slots if keep() returns false for them. */
void
dw_ring_filter(DwRing *ring, DwPool *pool, DwAccount *acct, DwKeep keep, void *arg)
{
	uint32		slotno;

	/* The bounds of a pass become invalid, since they would cover removed entries */
	ring->pass_slot = NO_SLOT;

	for (slotno = next_occupied(ring, 0, ring->nslots); slotno < ring->nslots;
		 slotno = next_occupied(ring, slotno + 1, ring->nslots))
	{
		DwSlot	   *slot = dw_ring_slot(ring, slotno);
		KeepBounds	bounds = {keep, arg, PG_INT64_MAX, PG_INT64_MIN};

		dw_list_filter(pool, acct, &slot->list, keep_bounds, &bounds);
		slot->min_due = bounds.min_due;
		slot->max_due = bounds.max_due;
		if (slot->list.count == 0)
			clear_slot(ring, slotno);
	}
}
