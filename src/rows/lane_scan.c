/*-------------------------------------------------------------------------
 *
 * lane_scan.c
 *	  Scans of pending tasks by the index of lanes, and of failed tasks by time.
 *
 * Run by the timer (loading, and looking for lanes), by the sweeper, and by sessions
 * that read views, arm or redrive tasks.  A scan begins after a place in the order of
 * the index and goes on from there in slices, each with a snapshot of its own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup.h"
#include "access/htup_details.h"
#include "access/sdir.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "access/tableam.h"
#include "access/visibilitymap.h"
#include "executor/tuptable.h"
#include "storage/block.h"
#include "storage/bufmgr.h"
#include "utils/fmgroids.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "../base/compat.h"
#include "../shmem/shared.h"
#include "catalog.h"
#include "lane_scan.h"
#include "task_rows.h"

struct DwLaneScan
{
	Relation	rel;
	Relation	index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
	bool		keys_only;
	Buffer		map;			/* page of the visibility map, pinned */
	ScanKeyData keys[5];
	ScanKeyData members[6];
};
struct DwFailedScan
{
	Relation	index;
	IndexScanDesc scan;
	ScanDirection direction;
	TupleTableSlot *slot;
	ScanKeyData key;
	ScanKeyData members[2];
};

DwTaskKey
dw_lane_begin(const DwLane *lane)
{
	DwTaskKey	key = {
		.owner = lane->owner,
		.origin = dw_origin_stamp(),
		.queue = lane->queue,
		.priority = lane->priority,
		.due = PG_INT64_MIN,
		.id = PG_INT64_MIN,
	};

	return key;
}

/* One column of a row comparison. */
static void
init_row_member(ScanKey key, int flags, AttrNumber column, StrategyNumber strategy,
				RegProcedure compare, Datum value)
{
	ScanKeyEntryInitialize(key, SK_ROW_MEMBER | flags, column, strategy,
						   InvalidOid, InvalidOid, compare, value);
}

static void
init_row_header(ScanKey key, StrategyNumber strategy, ScanKey members)
{
	MemSet(key, 0, sizeof(ScanKeyData));
	key->sk_flags = SK_ROW_HEADER;
	key->sk_attno = members->sk_attno;
	key->sk_strategy = strategy;
	key->sk_argument = PointerGetDatum(members);
}

static DwLaneScan *
begin_index_scan(Relation rel, Snapshot snapshot, int nkeys)
{
	DwLaneScan *scan = palloc(sizeof(DwLaneScan));

	scan->rel = rel;
	scan->index = index_open(dw_catalog()->task_lane_index, AccessShareLock);
	scan->slot = table_slot_create(rel, NULL);
	scan->keys_only = false;
	scan->map = InvalidBuffer;
	scan->scan = dw_index_beginscan(rel, scan->index, snapshot, nkeys);
	/* so that we know where we are among dead entries, too */
	scan->scan->xs_want_itup = true;
	return scan;
}

/*
 * Begins to read the rows of one lane and one origin, from (due, id) on; a
 * row comparison, since a million tasks may have one due time.  The scan must
 * be ended in the transaction.
 */
DwLaneScan *
dw_lane_scan_begin(Relation rel, const DwTaskKey *from, Snapshot snapshot)
{
	DwLaneScan *scan = begin_index_scan(rel, snapshot, 5);

	ScanKeyInit(&scan->keys[0], 1, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(from->owner));
	ScanKeyInit(&scan->keys[1], 2, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(from->origin));
	ScanKeyInit(&scan->keys[2], 3, BTEqualStrategyNumber, F_INT2EQ,
				Int16GetDatum(from->queue));
	ScanKeyInit(&scan->keys[3], 4, BTEqualStrategyNumber, F_INT2EQ,
				Int16GetDatum(from->priority));
	init_row_member(&scan->members[0], 0, 5, BTGreaterEqualStrategyNumber,
					F_TIMESTAMPTZ_CMP, TimestampTzGetDatum(from->due));
	init_row_member(&scan->members[1], SK_ROW_END, 6, BTGreaterEqualStrategyNumber,
					F_BTINT8CMP, Int64GetDatum(from->id));
	init_row_header(&scan->keys[4], BTGreaterEqualStrategyNumber, scan->members);
	index_rescan(scan->scan, scan->keys, 5, NULL, 0);
	return scan;
}

/* The same for all lanes of all origins, from a key on. */
DwLaneScan *
dw_lanes_scan_begin(Relation rel, const DwTaskKey *from, Snapshot snapshot)
{
	DwLaneScan *scan = begin_index_scan(rel, snapshot, 1);

	dw_lanes_scan_seek(scan, from);
	return scan;
}

/* Goes on from another key. */
void
dw_lanes_scan_seek(DwLaneScan *scan, const DwTaskKey *from)
{
	const StrategyNumber strategy = BTGreaterEqualStrategyNumber;

	init_row_member(&scan->members[0], 0, 1, strategy, F_BTOIDCMP, ObjectIdGetDatum(from->owner));
	init_row_member(&scan->members[1], 0, 2, strategy, F_BTINT8CMP, Int64GetDatum(from->origin));
	init_row_member(&scan->members[2], 0, 3, strategy, F_BTINT2CMP, Int16GetDatum(from->queue));
	init_row_member(&scan->members[3], 0, 4, strategy, F_BTINT2CMP, Int16GetDatum(from->priority));
	init_row_member(&scan->members[4], 0, 5, strategy, F_TIMESTAMPTZ_CMP,
					TimestampTzGetDatum(from->due));
	init_row_member(&scan->members[5], SK_ROW_END, 6, strategy, F_BTINT8CMP,
					Int64GetDatum(from->id));
	init_row_header(&scan->keys[0], strategy, scan->members);
	index_rescan(scan->scan, scan->keys, 1, NULL, 0);
}

static Datum
entry_column(IndexScanDesc scan, int attnum)
{
	bool		isnull;

	return index_getattr(scan->xs_itup, attnum, scan->xs_itupdesc, &isnull);
}

/* What the index says of the row; attempts is not in it. */
static void
key_of_entry(IndexScanDesc scan, DwTaskKey *key)
{
	key->owner = DatumGetObjectId(entry_column(scan, 1));
	key->origin = DatumGetInt64(entry_column(scan, 2));
	key->queue = DatumGetInt16(entry_column(scan, 3));
	key->priority = DatumGetInt16(entry_column(scan, 4));
	key->due = DatumGetTimestampTz(entry_column(scan, 5));
	key->id = DatumGetInt64(entry_column(scan, 6));
	key->attempts = 0;
	key->has_more = false;
	key->tid = scan->xs_heaptid;
}

/*
 * The caller does not want the rows themselves: those that the visibility map
 * knows to be visible to everybody are not read.  Tasks lie in the table in
 * the order in which they were scheduled, so each would be another page.
 */
void
dw_lane_scan_keys_only(DwLaneScan *scan)
{
	scan->keys_only = true;
}

/*
 * The next entry of the index, whether the snapshot sees its row or not: there
 * can be a million dead ones in a row, among which the caller may want to
 * pause.  False at the end.
 */
bool
dw_lane_scan_step(DwLaneScan *scan, DwTaskKey *key, bool *visible)
{
	IndexScanDesc s = scan->scan;
	HeapTuple	tuple;
	bool		should_free;
	ItemPointer tid = index_getnext_tid(s, ForwardScanDirection);

	if (tid == NULL)
		return false;
	*visible = (scan->keys_only &&
				VM_ALL_VISIBLE(scan->rel, ItemPointerGetBlockNumber(tid), &scan->map)) ||
		index_fetch_heap(s, scan->slot);
	if (!*visible || scan->keys_only)
	{
		key_of_entry(s, key);
		return true;
	}
	tuple = ExecFetchSlotHeapTuple(scan->slot, false, &should_free);
	dw_task_key(scan->rel, tuple, key);
	key->tid = scan->slot->tts_tid;
	if (should_free)
		heap_freetuple(tuple);
	return true;
}

bool
dw_lane_scan_next(DwLaneScan *scan, DwTaskKey *key)
{
	bool		visible;

	while (dw_lane_scan_step(scan, key, &visible))
		if (visible)
			return true;
	return false;
}

/* A copy of the row that was just read. */
HeapTuple
dw_lane_scan_tuple(DwLaneScan *scan)
{
	return ExecCopySlotHeapTuple(scan->slot);
}

void
dw_lane_scan_end(DwLaneScan *scan)
{
	index_endscan(scan->scan);
	if (BufferIsValid(scan->map))
		ReleaseBuffer(scan->map);
	ExecDropSingleTupleTableSlot(scan->slot);
	index_close(scan->index, NoLock);
	pfree(scan);
}

/*
 * Begins to read failed tasks after, or if backwards before, a place; from
 * one of the ends if that is an infinite time.
 */
DwFailedScan *
dw_failed_scan_begin(Relation rel, ScanDirection direction, TimestampTz failed_at, int64 id,
					 Snapshot snapshot)
{
	DwFailedScan *scan = palloc(sizeof(DwFailedScan));
	StrategyNumber strategy = ScanDirectionIsForward(direction) ?
		BTGreaterStrategyNumber : BTLessStrategyNumber;

	scan->index = index_open(dw_catalog()->failed_at_index, AccessShareLock);
	scan->slot = table_slot_create(rel, NULL);
	scan->direction = direction;
	init_row_member(&scan->members[0], 0, 1, strategy, F_TIMESTAMPTZ_CMP,
					TimestampTzGetDatum(failed_at));
	init_row_member(&scan->members[1], SK_ROW_END, 2, strategy, F_BTINT8CMP, Int64GetDatum(id));
	init_row_header(&scan->key, strategy, scan->members);
	scan->scan = dw_index_beginscan(rel, scan->index, snapshot, 1);
	index_rescan(scan->scan, &scan->key, 1, NULL, 0);
	return scan;
}

/* The next row, valid until the one after it is read, or NULL. */
HeapTuple
dw_failed_scan_next(DwFailedScan *scan, TimestampTz *failed_at, int64 *id)
{
	HeapTuple	tuple;
	bool		isnull;

	if (!index_getnext_slot(scan->scan, scan->direction, scan->slot))
		return NULL;
	tuple = ExecFetchSlotHeapTuple(scan->slot, false, NULL);
	*failed_at = DatumGetTimestampTz(dw_row_column(scan->scan->heapRelation, tuple,
											Anum_failed_failed_at, &isnull));
	*id = DatumGetInt64(dw_row_column(scan->scan->heapRelation, tuple, Anum_failed_id, &isnull));
	return tuple;
}

void
dw_failed_scan_end(DwFailedScan *scan)
{
	index_endscan(scan->scan);
	ExecDropSingleTupleTableSlot(scan->slot);
	index_close(scan->index, NoLock);
	pfree(scan);
}

/*
 * Steps through the distinct lanes and origins of the table by a skip scan:
 * the first, or the one after *key, which becomes the key of its first row.
 * False at the end.
 */
bool
dw_next_lane(Relation rel, Snapshot snapshot, DwTaskKey *key, bool first)
{
	Relation	index = index_open(dw_catalog()->task_lane_index, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	IndexScanDesc scan;
	ScanKeyData header;
	ScanKeyData members[4];
	bool		found;

	init_row_member(&members[0], 0, 1, BTGreaterStrategyNumber,
					F_BTOIDCMP, ObjectIdGetDatum(key->owner));
	init_row_member(&members[1], 0, 2, BTGreaterStrategyNumber,
					F_BTINT8CMP, Int64GetDatum(key->origin));
	init_row_member(&members[2], 0, 3, BTGreaterStrategyNumber,
					F_BTINT2CMP, Int16GetDatum(key->queue));
	init_row_member(&members[3], SK_ROW_END, 4, BTGreaterStrategyNumber,
					F_BTINT2CMP, Int16GetDatum(key->priority));
	init_row_header(&header, BTGreaterStrategyNumber, members);

	scan = dw_index_beginscan(rel, index, snapshot, first ? 0 : 1);
	index_rescan(scan, &header, first ? 0 : 1, NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, slot);
	if (found)
	{
		bool		should_free;
		HeapTuple	tuple = ExecFetchSlotHeapTuple(slot, false, &should_free);

		dw_task_key(rel, tuple, key);
		if (should_free)
			heap_freetuple(tuple);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, NoLock);
	return found;
}
