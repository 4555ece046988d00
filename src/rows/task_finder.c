/*-------------------------------------------------------------------------
 *
 * task_finder.c
 *	  Finding rows of tasks by their ids with few searches of the index.
 *
 * Entries in memory contain the TID of a task's row.  But the entries of most tasks with a group
 * have no room for a TID.  A search for an id in the index costs a tenth of a short task.  Tasks
 * that are due one after the other were mostly scheduled one after the other.  So a search of an
 * executor also reads the entries of the next ids, which are on the same page of the index, and
 * remembers their TIDs.
 *
 * A receiver that finishes a message has mostly leased it itself.  So a session that leases a
 * message, or extends a lease, remembers the TID of the row that it inserts.
 *
 * A remembered TID is a hint, and stays remembered after the transaction.  If another row is there,
 * or none, the row is searched in the index.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/itup.h"
#include "access/relscan.h"
#include "access/xact.h"
#include "common/int.h"
#include "storage/bufmgr.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "../base/compat.h"
#include "rows.h"

/*
 * Number of places for remembered TIDs (64 kB in all).  Each id has one place, and consecutive ids
 * have different places.  So there are places for the tasks of several groups that take turns.
 */
#define SEEN_PLACES	4096

/* Lowest and highest number of ids in a search; adapt_window() chooses the number */
#define MIN_WINDOW	2
#define MAX_WINDOW	256

/*
 * Number of conditions of a search: the first and the last id.  PostgreSQL requires the same number
 * of conditions at each rescan.
 */
#define NKEYS		2

typedef struct Seen
{
	int64		id;				/* 0 if there is none */
	ItemPointerData tid;
} Seen;

static Seen seen[SEEN_PLACES];
static int	window = MIN_WINDOW;
static int	hits;				/* number of ids found in "seen" since the last search */

/* Returns the place of an id. */
static Seen *
seen_place(int64 id)
{
	return &seen[(uint64) id % SEEN_PLACES];
}

/* Sets *tid to the TID that is remembered for the id.  Returns false if there is none. */
bool
dw_task_finder_has_seen(int64 id, ItemPointer tid)
{
	const Seen *place = seen_place(id);

	if (place->id != id)
		return false;
	hits++;
	*tid = place->tid;
	return true;
}

/* Widens the next search if many ids of the last search were used, else narrows it. */
static void
adapt_window(void)
{
	if (hits >= window / 2)
		window = Min(window * 2, MAX_WINDOW);
	else
		window = Max(window / 2, MIN_WINDOW);
	hits = 0;
}

/*
 * Returns true if the table has this block; reading a block after the last block would raise an
 * error.  To save a system call, first checks the size that the storage manager has cached.  The
 * cached size is never too large: a process that truncates the table locks it exclusively and
 * invalidates the cache.
 */
static bool
has_block(Relation rel, BlockNumber block)
{
	BlockNumber known = RelationGetSmgr(rel)->smgr_cached_nblocks[MAIN_FORKNUM];

	return (known != InvalidBlockNumber && block < known) ||
		block < RelationGetNumberOfBlocks(rel);
}

/*
 * Returns a copy of the task's row if it is at this TID and the snapshot sees it, else NULL.  The
 * TID may be stale or invalid.
 */
HeapTuple
dw_task_fetch(Relation rel, int64 id, const ItemPointerData *tid, Snapshot snapshot)
{
	HeapTupleData tuple = {.t_self = *tid};
	HeapTuple	copy = NULL;
	Buffer		buffer;
	bool		isnull;

	if (!ItemPointerIsValid(tid) || !has_block(rel, ItemPointerGetBlockNumber(tid)) ||
		!heap_fetch(rel, snapshot, &tuple, &buffer, false))
		return NULL;
	/* the TID may belong to another row, for example after a vacuum */
	if (DatumGetInt64(heap_getattr(&tuple, Anum_task_id, RelationGetDescr(rel), &isnull)) == id)
		copy = heap_copytuple(&tuple);
	ReleaseBuffer(buffer);
	return copy;
}

/* Remembers the TID of a row that this process will probably look for. */
void
dw_task_finder_note(int64 id, const ItemPointerData *tid)
{
	*seen_place(id) = (Seen) {.id = id, .tid = *tid};
}

/*
 * Returns a copy of the task's current row, or NULL.  Searches the index if the row is not at the
 * TID that is remembered.
 */
HeapTuple
dw_task_find_noted(Relation rel, int64 id)
{
	const Seen *place = seen_place(id);
	HeapTuple	tuple = NULL;

	/* in a serializable transaction, a row of another task would count as read */
	if (place->id == id && !IsolationIsSerializable())
	{
		/* this is a new snapshot, since the table is no catalog */
		Snapshot	snapshot = RegisterSnapshot(GetCatalogSnapshot(RelationGetRelid(rel)));

		tuple = dw_task_fetch(rel, id, &place->tid, snapshot);
		UnregisterSnapshot(snapshot);
	}
	return tuple != NULL ? tuple : dw_task_find(rel, id, NULL);
}

static void
begin_scan(DwTaskFinder *finder, Relation rel, Snapshot snapshot)
{
	if (finder->scan == NULL)
	{
		finder->index = index_open(dw_catalog()->task_pkey, AccessShareLock);
		finder->slot = table_slot_create(rel, NULL);
		finder->scan = dw_index_beginscan(rel, finder->index, snapshot, NKEYS);
		finder->scan->xs_want_itup = true;
	}
	finder->scan->xs_snapshot = snapshot;
}

/*
 * Returns a copy of the row like dw_task_find(), but begins the scan of the index only once: to
 * begin and end a scan is a large part of the cost of a search.  Pins no page between two searches.
 * The copy is in the current memory context.
 */
HeapTuple
dw_task_find_next(DwTaskFinder *finder, Relation rel, int64 id, Snapshot snapshot)
{
	MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);
	HeapTuple	tuple = NULL;
	ScanKeyData keys[NKEYS];
	ItemPointer tid;
	int64		last;

	begin_scan(finder, rel, snapshot);
	adapt_window();
	if (pg_add_s64_overflow(id, window - 1, &last))
		last = PG_INT64_MAX;
	ScanKeyInit(&keys[0], Anum_task_id, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(id));
	ScanKeyInit(&keys[1], Anum_task_id, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum(last));
	index_rescan(finder->scan, keys, NKEYS, NULL, 0);
	while ((tid = index_getnext_tid(finder->scan, ForwardScanDirection)) != NULL)
	{
		bool		isnull;
		int64		entry_id = DatumGetInt64(index_getattr(finder->scan->xs_itup, 1,
														   finder->scan->xs_itupdesc, &isnull));

		if (entry_id != id)
			dw_task_finder_note(entry_id, tid);
		else if (tuple == NULL && index_fetch_heap(finder->scan, finder->slot))
		{
			MemoryContextSwitchTo(caller);
			tuple = ExecCopySlotHeapTuple(finder->slot);
			MemoryContextSwitchTo(TopTransactionContext);
		}
	}
	ExecClearTuple(finder->slot);
	/* unpins the pages */
	index_rescan(finder->scan, keys, NKEYS, NULL, 0);
	MemoryContextSwitchTo(caller);
	return tuple;
}

/* Ends the searches, if any.  The index stays locked until the end of the transaction. */
void
dw_task_find_end(DwTaskFinder *finder)
{
	if (finder->scan == NULL)
		return;
	index_endscan(finder->scan);
	ExecDropSingleTupleTableSlot(finder->slot);
	index_close(finder->index, NoLock);
	finder->scan = NULL;
}
