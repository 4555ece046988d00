/*-------------------------------------------------------------------------
 *
 * task_finder.c
 *	  Finding rows of many tasks by their ids.  Runs in executors.
 *
 * Memory knows where the row of a task is, but for most tasks with a group: their entries
 * have no room for it.  To look for an id in the index costs a tenth of what a short task
 * costs.  Tasks that are due one after the other were mostly scheduled one after the other,
 * so a look reads the entries of the ids that follow, too, which stand on the same page of
 * the index, and remembers where they point to.
 *
 * What is remembered is a hint, and outlives the transaction: the reader of the row looks
 * whether it is that of the id.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/itup.h"
#include "access/relscan.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "access/tableam.h"
#include "common/int.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"

#include "../base/compat.h"
#include "catalog.h"
#include "task_finder.h"

/*
 * Places for what is remembered, 64 kB.  An id has one place, so ids that follow each other
 * take different ones.  Several groups that were scheduled one after the other, and take
 * turns, find room.
 */
#define SEEN_PLACES	4096

/* How many ids a look covers: between these, by how many of the last ones were asked for */
#define MIN_WINDOW	2
#define MAX_WINDOW	256

typedef struct Seen
{
	int64		id;				/* 0 if there is none */
	ItemPointerData tid;
} Seen;

static Seen seen[SEEN_PLACES];
static int	window = MIN_WINDOW;
static int	hits;				/* ids found here since the last look */

/* The place of an id. */
static Seen *
seen_place(int64 id)
{
	return &seen[(uint64) id % SEEN_PLACES];
}

/* True if an earlier look came by the entry of the id in the index; *tid is where it points to. */
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

/* The next look covers more ids if those of the last one were of use, else fewer. */
static void
adapt_window(void)
{
	if (hits >= window / 2)
		window = Min(window * 2, MAX_WINDOW);
	else
		window = Max(window / 2, MIN_WINDOW);
	hits = 0;
}

static void
begin_scan(DwTaskFinder *finder, Relation rel, Snapshot snapshot)
{
	if (finder->scan == NULL)
	{
		finder->index = index_open(dw_catalog()->task_pkey, AccessShareLock);
		finder->slot = table_slot_create(rel, NULL);
		finder->scan = dw_index_beginscan(rel, finder->index, snapshot, 2);
		finder->scan->xs_want_itup = true;
	}
	finder->scan->xs_snapshot = snapshot;
}

/*
 * As dw_task_find(), but the scan of the index is begun once only: that and its end are a
 * good part of what a look costs.  Between two looks no page is kept pinned.  The copy is in
 * the current memory context.
 */
HeapTuple
dw_task_find_next(DwTaskFinder *finder, Relation rel, int64 id, Snapshot snapshot)
{
	MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);
	HeapTuple	tuple = NULL;
	ScanKeyData keys[2];
	ItemPointer tid;
	int64		last;

	begin_scan(finder, rel, snapshot);
	adapt_window();
	if (pg_add_s64_overflow(id, window - 1, &last))
		last = PG_INT64_MAX;
	ScanKeyInit(&keys[0], Anum_task_id, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(id));
	ScanKeyInit(&keys[1], Anum_task_id, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum(last));
	index_rescan(finder->scan, keys, 2, NULL, 0);
	while ((tid = index_getnext_tid(finder->scan, ForwardScanDirection)) != NULL)
	{
		bool		isnull;
		int64		entry_id = DatumGetInt64(index_getattr(finder->scan->xs_itup, 1,
														   finder->scan->xs_itupdesc, &isnull));

		if (entry_id != id)
			*seen_place(entry_id) = (Seen) {.id = entry_id, .tid = *tid};
		else if (tuple == NULL && index_fetch_heap(finder->scan, finder->slot))
		{
			MemoryContextSwitchTo(caller);
			tuple = ExecCopySlotHeapTuple(finder->slot);
			MemoryContextSwitchTo(TopTransactionContext);
		}
	}
	ExecClearTuple(finder->slot);
	/* lets go of the pages */
	index_rescan(finder->scan, NULL, 2, NULL, 0);
	MemoryContextSwitchTo(caller);
	return tuple;
}

/* Ends the looks, if there were any; the index stays locked until the end of the transaction. */
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
