/*-------------------------------------------------------------------------
 *
 * scans.c
 *	  Scans of pending tasks by lane or group, of leases, and of failed tasks by time.
 *
 * Run by the timer (to load tasks and look for lanes), by executors, by the sweeper, and by
 * sessions that receive, read views, arm or retry tasks.  README.md lists the indexes.
 *
 * A long scan is divided into slices, each with a new snapshot: the caller remembers the last key
 * of a slice, and begins the next scan there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/visibilitymap.h"
#include "storage/bufmgr.h"
#include "utils/fmgroids.h"

#include "../base/compat.h"
#include "../shmem/groups.h"
#include "rows.h"

struct DwRowScan
{
	Relation	rel;			/* the table */
	Relation	index;
	IndexScanDesc scan;
	ScanDirection direction;
	TupleTableSlot *slot;		/* the row of the last read */
	ScanKeyData keys[5];
	ScanKeyData members[6];		/* members of the row comparison in "keys" */
	/* only for lanes */
	bool		keys_only;		/* see dw_lane_scan_keys_only() */
	bool		with_group;
	bool		fetched;		/* slot has the row of the last entry read */
	Buffer		map;			/* pinned page of the visibility map */
};

/*---- Scan keys ----*/

/* Returns the key before all tasks of a lane with this database's origin. */
DwTaskKey
dw_lane_begin(const DwLane *lane)
{
	return (DwTaskKey) {
		.owner = lane->owner,
		.origin = dw_origin_stamp(),
		.queue = lane->queue,
		.priority = lane->priority,
		.due = PG_INT64_MIN,
		.id = PG_INT64_MIN
	};
}

/* Fills the scan key of one column of a row comparison such as (due, id) >= ($1, $2). */
static void
init_row_member(ScanKey key, int flags, AttrNumber column, StrategyNumber strategy,
				RegProcedure compare, Datum value)
{
	ScanKeyEntryInitialize(key, SK_ROW_MEMBER | flags, column, strategy,
						   InvalidOid, InvalidOid, compare, value);
}

/* Fills the scan key of a row comparison.  members: the scan keys of its columns. */
static void
init_row_header(ScanKey key, StrategyNumber strategy, ScanKey members)
{
	MemSet(key, 0, sizeof(ScanKeyData));
	key->sk_flags = SK_ROW_HEADER;
	key->sk_attno = members->sk_attno;
	key->sk_strategy = strategy;
	key->sk_argument = PointerGetDatum(members);
}

/*---- All scans ----*/

static DwRowScan *
open_scan(Relation rel, Oid index, Snapshot snapshot, int nkeys)
{
	DwRowScan  *scan = palloc0(sizeof(DwRowScan));

	scan->rel = rel;
	scan->index = index_open(index, AccessShareLock);
	scan->scan = dw_index_beginscan(rel, scan->index, snapshot, nkeys);
	scan->direction = ForwardScanDirection;
	scan->slot = table_slot_create(rel, NULL);
	return scan;
}

/*
 * Positions a scan of an index whose last two columns are a time and an id.  The columns before
 * have the values of the first n keys.  The strategy compares (time, id) with these values, and
 * implies the direction.
 */
static DwRowScan *
seek_time(DwRowScan *scan, int n, StrategyNumber strategy, TimestampTz time, int64 id)
{
	if (strategy == BTLessStrategyNumber)
		scan->direction = BackwardScanDirection;
	init_row_member(&scan->members[0], 0, n + 1, strategy, F_TIMESTAMPTZ_CMP,
					TimestampTzGetDatum(time));
	init_row_member(&scan->members[1], SK_ROW_END, n + 2, strategy, F_BTINT8CMP, Int64GetDatum(id));
	init_row_header(&scan->keys[n], strategy, scan->members);
	index_rescan(scan->scan, scan->keys, n + 1, NULL, 0);
	return scan;
}

/* Ends and frees the scan.  The index stays locked until the end of the transaction. */
void
dw_row_scan_end(DwRowScan *scan)
{
	index_endscan(scan->scan);
	if (BufferIsValid(scan->map))
		ReleaseBuffer(scan->map);
	ExecDropSingleTupleTableSlot(scan->slot);
	index_close(scan->index, NoLock);
	pfree(scan);
}

/*---- Pending tasks, by lane ----*/

static DwRowScan *
begin_lanes(Relation rel, Snapshot snapshot, int nkeys)
{
	DwRowScan  *scan = open_scan(rel, dw_catalog()->task_lane_index, snapshot, nkeys);

	/* request index tuples, which show the key even of a dead entry */
	scan->scan->xs_want_itup = true;
	return scan;
}

/*
 * Begins a scan of the tasks of one lane and one origin, from (due, id) of *from on.  The
 * comparison includes the id, since a million tasks may have the same due time.  rel is the table
 * of tasks.  The caller must end the scan before the transaction ends.
 */
DwRowScan *
dw_lane_scan_begin(Relation rel, const DwTaskKey *from, Snapshot snapshot)
{
	DwRowScan  *scan = begin_lanes(rel, snapshot, 5);

	ScanKeyInit(&scan->keys[0], 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(from->owner));
	ScanKeyInit(&scan->keys[1], 2, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(from->origin));
	ScanKeyInit(&scan->keys[2], 3, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(from->queue));
	ScanKeyInit(&scan->keys[3], 4, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(from->priority));
	return seek_time(scan, 4, BTGreaterEqualStrategyNumber, from->due, from->id);
}

/* Begins a scan of all lanes of all origins, one after the other, from a key on. */
DwRowScan *
dw_lanes_scan_begin(Relation rel, const DwTaskKey *from, Snapshot snapshot)
{
	DwRowScan  *scan = begin_lanes(rel, snapshot, 1);

	dw_lanes_scan_seek(scan, from);
	return scan;
}

/* Moves a scan of dw_lanes_scan_begin() to another key. */
void
dw_lanes_scan_seek(DwRowScan *scan, const DwTaskKey *from)
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

/* Fills *key from the index entry; members that the index lacks are 0 or false. */
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
	key->has_more = key->is_message = key->is_leased = false;
	key->group = DW_NO_GROUP;
	key->tid = scan->xs_heaptid;
}

/*
 * Makes the scan return keys only: the scan does not read rows on pages that are all-visible.  For
 * each such row the scan would mostly read another page, since the table has its rows in the order
 * in which tasks were scheduled.  For a row that is not read, key->attempts is 0 and key->has_more
 * false.
 *
 * with_group: the scan reads all visible rows, for dw_lane_scan_group(), since the index lacks the
 * group.
 */
void
dw_lane_scan_keys_only(DwRowScan *scan, bool with_group)
{
	scan->keys_only = true;
	scan->with_group = with_group;
}

/*
 * Reads the next entry of the index; returns false at the end.  Sets *visible to true if the
 * snapshot sees the entry's row.  Also returns entries of invisible rows: there can be a million
 * such entries, and the caller may want to end its slice among them.
 */
bool
dw_lane_scan_step(DwRowScan *scan, DwTaskKey *key, bool *visible)
{
	IndexScanDesc s = scan->scan;
	HeapTuple	tuple;
	bool		should_free;
	ItemPointer tid = index_getnext_tid(s, ForwardScanDirection);

	if (tid == NULL)
		return false;
	scan->fetched = false;
	if (scan->keys_only && !scan->with_group &&
		VM_ALL_VISIBLE(scan->rel, ItemPointerGetBlockNumber(tid), &scan->map))
		*visible = true;
	else
		*visible = scan->fetched = index_fetch_heap(s, scan->slot);
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

/* Reads the next row that the snapshot sees; returns false at the end. */
bool
dw_lane_scan_next(DwRowScan *scan, DwTaskKey *key)
{
	bool		visible;

	while (dw_lane_scan_step(scan, key, &visible))
		if (visible)
			return true;
	return false;
}

/* Returns a copy of the row that was read last, in a scan without keys_only. */
HeapTuple
dw_lane_scan_tuple(DwRowScan *scan)
{
	return ExecCopySlotHeapTuple(scan->slot);
}

/* Returns the hash of the group of the last visible row; DW_NO_GROUP if the row has no group. */
uint32
dw_lane_scan_group(DwRowScan *scan)
{
	bool		isnull;
	Datum		hash = slot_getattr(scan->slot, Anum_task_group_hash, &isnull);

	return isnull ? DW_NO_GROUP : DatumGetUInt32(hash);
}

/*
 * Returns true if the visible row that was read last is a leased message.  The lease may have
 * ended.
 */
bool
dw_lane_scan_is_leased(DwRowScan *scan)
{
	bool		isnull;

	if (!scan->fetched)
		scan->fetched = index_fetch_heap(scan->scan, scan->slot);
	if (!scan->fetched)
		return false;
	(void) slot_getattr(scan->slot, Anum_task_token, &isnull);
	return !isnull;
}

/*---- Pending tasks by group, and failed tasks by time ----*/

/*
 * Begins a scan of the tasks of one group of a queue, from the key (due, id) on.  Returns tasks of
 * all owners and priorities, but only of this database's origin.  Groups with the same hash count
 * as one group.  rel is the table of tasks.
 */
DwRowScan *
dw_group_scan_begin(Relation rel, int16 queue, uint32 hash, TimestampTz due, int64 id,
					Snapshot snapshot)
{
	DwRowScan  *scan = open_scan(rel, dw_catalog()->task_group_index, snapshot, 4);

	ScanKeyInit(&scan->keys[0], 1, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(dw_origin_stamp()));
	ScanKeyInit(&scan->keys[1], 2, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(queue));
	ScanKeyInit(&scan->keys[2], 3, BTEqualStrategyNumber, F_INT4EQ, UInt32GetDatum(hash));
	return seek_time(scan, 3, BTGreaterEqualStrategyNumber, due, id);
}

/*
 * Begins a scan of failed tasks after (failed_at, id), or before this key if the direction is
 * backward.  With an infinite time the scan begins at one end of the table.  rel is
 * delay_wheel_data.failed_task.
 */
DwRowScan *
dw_failed_scan_begin(Relation rel, ScanDirection direction, TimestampTz failed_at, int64 id,
					 Snapshot snapshot)
{
	return seek_time(open_scan(rel, dw_catalog()->failed_at_index, snapshot, 1), 0,
					 ScanDirectionIsForward(direction) ? BTGreaterStrategyNumber :
					 BTLessStrategyNumber, failed_at, id);
}

/* Returns the next row, which is valid until the next call; NULL after the last row. */
HeapTuple
dw_row_scan_next(DwRowScan *scan)
{
	if (!index_getnext_slot(scan->scan, scan->direction, scan->slot))
		return NULL;
	return ExecFetchSlotHeapTuple(scan->slot, false, NULL);
}

/* Does the same for failed tasks, and sets *failed_at and *id to the key of the row. */
HeapTuple
dw_failed_scan_next(DwRowScan *scan, TimestampTz *failed_at, int64 *id)
{
	HeapTuple	tuple = dw_row_scan_next(scan);

	if (tuple == NULL)
		return NULL;
	*failed_at = DatumGetTimestampTz(dw_row_column(scan->rel, tuple, Anum_failed_failed_at));
	*id = DatumGetInt64(dw_row_column(scan->rel, tuple, Anum_failed_id));
	return tuple;
}

/*---- The lanes that have tasks ----*/

/*
 * Finds a lane with tasks, of any origin, by a skip scan: the first lane if first is true, else the
 * lane after *key.  Sets *key to the key of the lane's first task.  Returns false at the end.
 */
bool
dw_next_lane(Relation rel, Snapshot snapshot, DwTaskKey *key, bool first)
{
	DwRowScan *scan;
	bool		found;

	if (first)
		*key = (DwTaskKey) {
			.origin = PG_INT64_MIN,.queue = PG_INT16_MIN,.priority = PG_INT16_MIN,
			.due = PG_INT64_MIN,.id = PG_INT64_MIN
		};
	else
		key->due = key->id = PG_INT64_MAX;
	scan = dw_lanes_scan_begin(rel, key, snapshot);
	found = dw_lane_scan_next(scan, key);
	dw_row_scan_end(scan);
	return found;
}

/*---- Leased messages ----*/

/*
 * Begins a scan of messages whose lease ends, or has ended, at this time or later, in the order of
 * these times.  rel is delay_wheel_data.task, locked.
 */
SysScanDesc
dw_lease_scan_begin(Relation rel, TimestampTz from, Snapshot snapshot)
{
	Relation	index = index_open(dw_catalog()->task_lease_index, AccessShareLock);
	ScanKeyData key;

	ScanKeyInit(&key, Anum_task_due, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE,
				TimestampTzGetDatum(from));
	return systable_beginscan_ordered(rel, index, snapshot, 1, &key);
}

/* Ends the scan. */
void
dw_lease_scan_end(SysScanDesc scan)
{
	Relation	index = scan->irel;

	systable_endscan_ordered(scan);
	index_close(index, AccessShareLock);
}

/*
 * Counts the messages of the queue whose lease lasts beyond this time, by a new snapshot.  Sets
 * *next_end to the first end of these leases; DW_NEVER if there is no lease.
 */
uint32
dw_leases_count(Relation rel, int16 queue, TimestampTz now, TimestampTz *next_end)
{
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	uint32		n = 0;

	*next_end = DW_NEVER;
	ScanKeyInit(&keys[0], Anum_task_due, BTGreaterStrategyNumber, F_TIMESTAMPTZ_GT,
				TimestampTzGetDatum(now));
	ScanKeyInit(&keys[1], Anum_task_queue, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(queue));
	scan = systable_beginscan(rel, dw_catalog()->task_lease_index, true, NULL, 2, keys);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		*next_end = Min(*next_end, DatumGetTimestampTz(dw_row_column(rel, tuple, Anum_task_due)));
		n++;
	}
	systable_endscan(scan);
	return n;
}

/*
 * Counts the leases of one group of a queue, for all owners and priorities, but only with this
 * database's origin.  Leaves out leases for which counts() returns false.
 */
void
dw_leases_of_group(Relation rel, int16 queue, uint32 hash, Snapshot snapshot, DwLeaseCounts counts,
				   DwGroupLeases *leases)
{
	ScanKeyData keys[3];
	SysScanDesc scan;
	HeapTuple	tuple;

	leases->n = 0;
	leases->next_end = DW_NEVER;
	leases->any_lapsed = false;
	ScanKeyInit(&keys[0], Anum_task_origin, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(dw_origin_stamp()));
	ScanKeyInit(&keys[1], Anum_task_queue, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(queue));
	ScanKeyInit(&keys[2], Anum_task_group_hash, BTEqualStrategyNumber, F_INT4EQ, UInt32GetDatum(hash));
	scan = systable_beginscan(rel, dw_catalog()->task_group_lease_index, true, snapshot, 3, keys);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		DwLapsed	lease;

		dw_task_key(rel, tuple, &lease.key);
		if (!counts(rel, tuple, &lease.key))
			continue;
		lease.first_due = DatumGetTimestampTz(dw_row_column(rel, tuple, Anum_task_first_due));
		if (dw_task_lease_lasts(&lease.key))
		{
			leases->next_end = Min(leases->next_end, lease.key.due);
			leases->n++;
		}
		else if (!leases->any_lapsed || lease.first_due < leases->lapsed.first_due ||
				 (lease.first_due == leases->lapsed.first_due && lease.key.id < leases->lapsed.key.id))
		{
			leases->lapsed = lease;
			leases->any_lapsed = true;
		}
	}
	systable_endscan(scan);
}
