/*-------------------------------------------------------------------------
 *
 * ring.h
 *	  The ring of slots: a pure data structure.
 *
 * A task due at time t belongs into slot (tick(t) mod nslots), where tick(t)
 * is t in whole ticks; its cycle number, the whole turns of the ring until it
 * is due, is derived from the absolute due time and never counted down, so a
 * step of the clock cannot make it wrong.
 *
 * Entries live in chunks of 1 KB from one bounded pool that all databases
 * share; each chunk carries its database, so that what a dead timer held can
 * be taken back.  Chunk lists serve both the slots and the ready lists of the
 * lanes.
 *
 * This code knows no catalog, no clock and does no I/O; everything is
 * position-independent, for use in shared memory.  It is compiled into the
 * extension, and alone, with DW_STANDALONE, into its property test.
 *
 * Locking: the pool's free list has its own spinlock.  A list or a ring has
 * no lock of its own: the caller serializes access to it.
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

#define DW_CHUNK_ENTRIES	42
#define DW_NO_CHUNK			UINT32_MAX

/* One task, as far as memory knows it.  Times are microseconds. */
typedef struct DwEntry
{
	int64		due;
	int64		id;
	uint32		block;			/* where the row was seen last */
	uint16		offset;
	uint16		lane;			/* index into the table of lanes */
} DwEntry;

/* The entries of a chunk are entries[first .. first + count - 1]. */
typedef struct DwChunk
{
	uint32		next;			/* in its list or the free list */
	uint32		owner;			/* account that holds it, 0 = free */
	uint16		first;
	uint16		count;
	uint32		serial;			/* raised when it leaves a list */
	DwEntry		entries[DW_CHUNK_ENTRIES];
} DwChunk;

typedef struct DwPool
{
	slock_t		lock;			/* protects all of the header and accounts */
	uint32		nchunks;
	uint32		nfree;
	uint32		free_head;
	DwChunk		chunks[FLEXIBLE_ARRAY_MEMBER];
} DwPool;

/* What one database holds of the pool, and how much it may hold. */
typedef struct DwAccount
{
	uint32		owner;			/* not 0 */
	uint32		used;
	uint32		quota;
} DwAccount;

/*
 * A queue of entries: pushed at the tail, popped at the head, or put back there.
 * It can be popped at any other chunk, too.
 */
typedef struct DwList
{
	uint32		head;
	uint32		tail;
	uint32		count;			/* entries in all chunks */
	uint32		nchunks;
} DwList;

/* Names a chunk for as long as it is in its list. */
typedef struct DwPlace
{
	uint32		chunk;
	uint32		serial;
} DwPlace;

typedef struct DwSlot
{
	DwList		list;
	int64		min_due;		/* lower bound; INT64_MAX when empty */
	int64		max_due;		/* upper bound; INT64_MIN when empty */
} DwSlot;

typedef struct DwRing
{
	uint32		nslots;
	int64		tick_us;		/* width of a slot */
	int64		current_tick;
	uint64		nentries;

	/*
	 * Strays: entries that a walk from current_tick onwards would not meet in
	 * the order of their dues, because the clock moved past them or back.  If
	 * there are any, then they are due at stray_due or later and have a tick
	 * before stray_end.
	 */
	int64		stray_due;		/* INT64_MAX when there are none */
	int64		stray_end;

	/* The latest pass: bounds of what it kept and of what came in meanwhile */
	uint32		pass_serial;
	uint32		pass_slot;		/* UINT32_MAX when it is over */
	int64		pass_min;
	int64		pass_max;

	uint32		slots_offset;	/* from the start of the struct */
	uint64		occupied[FLEXIBLE_ARRAY_MEMBER];	/* bitmap, then the slots */
} DwRing;

/* Progress of taking entries out of one slot, in slices. */
typedef struct DwTake
{
	uint32		slot;
	uint32		chunks_left;	/* still to look at; 0 = the pass is over */
	uint32		serial;			/* tells the latest pass from older ones */
	int64		until_due;		/* entries due by then are taken; may be
								 * lowered while the pass goes on */
} DwTake;

/* false: remove the entry */
typedef bool (*DwKeep) (const DwEntry *entry, void *arg);

/* The pool. */
extern size_t dw_pool_size(uint32 nchunks);
extern void dw_pool_init(DwPool *pool, uint32 nchunks);
extern void dw_pool_reclaim(DwPool *pool, DwAccount *acct);

/* Lists of entries. */
extern void dw_list_init(DwList *list);
extern bool dw_list_push(DwPool *pool, DwAccount *acct, DwList *list, const DwEntry *entry);
extern bool dw_list_put_back(DwPool *pool, DwAccount *acct, DwList *list, const DwEntry *entry);
extern DwPlace dw_list_head(DwPool *pool, const DwList *list);
extern DwPlace dw_list_ahead(DwPool *pool, const DwPlace *place, uint32 n);
extern const DwEntry *dw_list_first(DwPool *pool, const DwPlace *place);
extern bool dw_list_pop(DwPool *pool, DwAccount *acct, DwList *list, DwPlace *place,
						DwEntry *entry);
extern void dw_list_append(DwPool *pool, DwList *list, DwList *more);
extern void dw_list_filter(DwPool *pool, DwAccount *acct, DwList *list, DwKeep keep, void *arg);

/* The ring. */
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
