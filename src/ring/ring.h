/*-------------------------------------------------------------------------
 *
 * ring.h
 *	  The ring of slots: a pure data structure, which README.md describes.
 *
 * All data is position-independent, for use in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RING_H
#define DW_RING_H

#ifdef DW_STANDALONE
#include "ring_standalone.h"
#else
#include "postgres.h"
#include "storage/spin.h"
#endif

/* Has the processor load this address, which is needed soon. */
#ifdef __GNUC__
#define dw_prefetch(address)	__builtin_prefetch(address)
#else
#define dw_prefetch(address)	((void) (address))
#endif

/* Entries in a chunk */
#define DW_CHUNK_ENTRIES	42

/* Stands for no chunk; chunks are numbers below the pool's nchunks. */
#define DW_NO_CHUNK			UINT32_MAX

/* Stands for no lane; lanes are numbers below delay_wheel.max_lanes. */
#define DW_NO_LANE		(-1)

/* One task in memory.  Times are in microseconds. */
typedef struct DwEntry
{
	int64		due;
	int64		id;
	uint32		block;			/* block and offset: last known TID, or another value of the
								 * caller */
	uint16		offset;
	uint16		lane;			/* index into the table of lanes */
} DwEntry;

/* True if the entry's key is before (due, id). */
static inline bool
dw_entry_is_before(const DwEntry *entry, int64 due, int64 id)
{
	return entry->due < due || (entry->due == due && entry->id < id);
}

/* The entries of a chunk are entries[first .. first + count - 1]. */
typedef struct DwChunk
{
	uint32		next;			/* next chunk of its list, or of the free list */
	uint32		owner;			/* number of the account that uses the chunk; 0: free */
	uint16		first;
	uint16		count;
	uint32		serial;			/* incremented when the chunk is freed, see DwPosition */
	DwEntry		entries[DW_CHUNK_ENTRIES];
} DwChunk;

typedef struct DwPool
{
	slock_t		lock;			/* protects these members and all accounts */
	uint32		nchunks;
	uint32		free_head;		/* first chunk of the free list */
	DwChunk		chunks[FLEXIBLE_ARRAY_MEMBER];
} DwPool;

/* Number of chunks of one database, and its limit. */
typedef struct DwAccount
{
	uint32		owner;			/* number of the account; not 0 */
	uint32		used;			/* number of chunks that the database uses */
	uint32		quota;			/* limit for "used" */
} DwAccount;

/*
 * A queue of entries, in chunks.  Entries are pushed at the tail and popped at the head.  Entries
 * can also be put back at the head, and popped at any chunk.
 */
typedef struct DwList
{
	uint32		head;			/* first chunk, or DW_NO_CHUNK */
	uint32		tail;			/* last chunk, or DW_NO_CHUNK */
	uint32		count;			/* entries in all chunks */
	uint32		nchunks;
} DwList;

/* Identifies a chunk of a list.  A position becomes invalid when its chunk leaves the list. */
typedef struct DwPosition
{
	uint32		chunk;
	uint32		serial;
} DwPosition;

typedef struct DwSlot
{
	DwList		list;
	int64		min_due;		/* lower bound of its due times; INT64_MAX when empty */
	int64		max_due;		/* upper bound of its due times; INT64_MIN when empty */
} DwSlot;

typedef struct DwRing
{
	uint32		nslots;
	int64		tick_us;		/* length of a tick */
	int64		current_tick;	/* the tick that the clock has reached */

	/*
	 * Strays: entries that a walk over the slots from current_tick on would reach too late, because
	 * the clock has moved past them, or back.  Strays are due at stray_due or later, and have a
	 * tick before stray_end.
	 */
	int64		stray_due;		/* INT64_MAX when there are none */
	int64		stray_end;

	/*
	 * The latest pass (see DwTake), and the bounds of the due times of entries that the pass has
	 * left in its slot, or that were inserted during the pass.
	 */
	uint32		pass_serial;
	uint32		pass_slot;		/* UINT32_MAX when the pass is over */
	int64		pass_min;
	int64		pass_max;

	uint32		slots_offset;	/* offset of the slots from the start of the struct */
	uint64		occupied[FLEXIBLE_ARRAY_MEMBER];	/* bitmap of used slots; the slots come after
													 * it */
} DwRing;

/* A pass: takes the due entries out of one slot, in slices. */
typedef struct DwTake
{
	uint32		slot;
	uint32		chunks_left;	/* number of chunks not read yet; 0: the pass is over */
	uint32		serial;			/* number of the pass */
	int64		until_due;		/* takes entries that are due by this time; may be lowered */
} DwTake;

/* Predicate for filters: false means that the entry is removed. */
typedef bool (*DwKeep) (const DwEntry *entry, void *arg);

/* The pool */
extern size_t dw_pool_size(uint32 nchunks);
extern void dw_pool_init(DwPool *pool, uint32 nchunks);
extern void dw_pool_reclaim(DwPool *pool, DwAccount *acct);

/* Lists of entries */
extern void dw_list_init(DwList *list);
extern bool dw_list_push(DwPool *pool, DwAccount *acct, DwList *list, const DwEntry *entry);
extern bool dw_list_put_back(DwPool *pool, DwAccount *acct, DwList *list, const DwEntry *entry);
extern DwPosition dw_list_head(DwPool *pool, const DwList *list);
extern DwPosition dw_list_ahead(DwPool *pool, const DwPosition *position, uint32 n);
extern const DwEntry *dw_list_first(DwPool *pool, const DwPosition *position);
extern void dw_list_expect(DwPool *pool, const DwList *list, bool entry);
extern bool dw_list_pop(DwPool *pool, DwAccount *acct, DwList *list, DwPosition *position,
						DwEntry *entry);
extern void dw_list_append(DwPool *pool, DwList *list, DwList *more);
extern void dw_list_filter(DwPool *pool, DwAccount *acct, DwList *list, DwKeep keep, void *arg);

/* The ring */
extern size_t dw_ring_size(uint32 nslots);
extern void dw_ring_init(DwRing *ring, uint32 nslots, int64 tick_us);
extern DwSlot *dw_ring_slot(DwRing *ring, uint32 slot);
extern int64 dw_ring_tick(const DwRing *ring, int64 due);
extern int64 dw_ring_last_due(const DwRing *ring, int64 tick);
extern uint32 dw_ring_index(const DwRing *ring, int64 tick);
extern int64 dw_ring_cycle(const DwRing *ring, int64 due);
extern void dw_ring_advance(DwRing *ring, int64 tick);
extern bool dw_ring_insert(DwRing *ring, DwPool *pool, DwAccount *acct, const DwEntry *entry);
extern int64 dw_ring_next_due(DwRing *ring);
extern void dw_ring_take_begin(DwRing *ring, int64 slot_tick, int64 until_due, DwTake *take);
extern uint32 dw_ring_take(DwRing *ring, DwPool *pool, DwAccount *acct, DwTake *take,
						   DwEntry *out, uint32 max);
extern void dw_ring_filter(DwRing *ring, DwPool *pool, DwAccount *acct, DwKeep keep, void *arg);

#endif							/* DW_RING_H */
