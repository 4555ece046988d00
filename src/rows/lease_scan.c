/*-------------------------------------------------------------------------
 *
 * lease_scan.c
 *	  Reading leased messages.
 *
 * Run by sessions that receive, by the timer and by the sweeper.  A partial index contains the end
 * of the lease and the queue of each row of delay_wheel_data.task that has a token.  Another index
 * contains the leases of groups.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "utils/fmgroids.h"
#include "utils/timestamp.h"

#include "../base/clock.h"
#include "catalog.h"
#include "lease_scan.h"
#include "task_rows.h"

struct DwLeaseScan
{
	Relation	index;
	SysScanDesc rows;
};

/*
 * Begins a scan of messages whose lease ends, or has ended, at this time or later.  rel is
 * delay_wheel_data.task, locked.
 */
DwLeaseScan *
dw_lease_scan_begin(Relation rel, TimestampTz from, Snapshot snapshot)
{
	DwLeaseScan *scan = palloc(sizeof(DwLeaseScan));
	ScanKeyData key;

	ScanKeyInit(&key, Anum_task_due, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE,
				TimestampTzGetDatum(from));
	scan->index = index_open(dw_catalog()->task_lease_index, AccessShareLock);
	scan->rows = systable_beginscan_ordered(rel, scan->index, snapshot, 1, &key);
	return scan;
}

/* Returns the next row, which is valid until the next call; NULL after the last row. */
HeapTuple
dw_lease_scan_next(DwLeaseScan *scan)
{
	return systable_getnext_ordered(scan->rows, ForwardScanDirection);
}

/* Ends the scan. */
void
dw_lease_scan_end(DwLeaseScan *scan)
{
	systable_endscan_ordered(scan->rows);
	index_close(scan->index, AccessShareLock);
	pfree(scan);
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
		DwTaskKey	key;

		dw_task_key(rel, tuple, &key);
		*next_end = Min(*next_end, key.due);
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
		bool		isnull;

		dw_task_key(rel, tuple, &lease.key);
		if (!counts(rel, tuple, &lease.key))
			continue;
		lease.first_due = DatumGetTimestampTz(dw_row_column(rel, tuple, Anum_task_first_due, &isnull));
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
