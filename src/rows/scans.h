/*-------------------------------------------------------------------------
 *
 * scans.h
 *	  Scans of pending tasks by lane or group, of leases, and of failed tasks by time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SCANS_H
#define DW_SCANS_H

#include "postgres.h"

#include "access/genam.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "../shmem/shared.h"
#include "task_rows.h"

/*
 * A scan of the pending tasks of one lane, of all lanes one after the other, or of one group of a
 * queue, in the order of (due, id); or of failed tasks in the order of (failed_at, id), or backwards.
 */
typedef struct DwRowScan DwRowScan;

/* Decides whether a leased message counts. */
typedef bool (*DwLeaseCounts) (Relation rel, HeapTuple tuple, const DwTaskKey *key);

/* A message whose last lease has ended. */
typedef struct DwLapsed
{
	DwTaskKey	key;
	TimestampTz first_due;		/* its due time before the lease */
} DwLapsed;

/* The leases of a group. */
typedef struct DwGroupLeases
{
	uint32		n;				/* number of leases that last */
	TimestampTz next_end;		/* first end of these leases; DW_NEVER: no lease lasts */
	bool		any_lapsed;
	DwLapsed	lapsed;			/* the first lease that has ended, by first_due and id */
} DwGroupLeases;

extern DwTaskKey dw_lane_begin(const DwLane *lane);
extern DwRowScan *dw_lane_scan_begin(Relation rel, const DwTaskKey *from, Snapshot snapshot);
extern DwRowScan *dw_lanes_scan_begin(Relation rel, const DwTaskKey *from, Snapshot snapshot);
extern void dw_lane_scan_keys_only(DwRowScan *scan, bool with_group);
extern void dw_lanes_scan_seek(DwRowScan *scan, const DwTaskKey *from);
extern bool dw_lane_scan_step(DwRowScan *scan, DwTaskKey *key, bool *visible);
extern uint32 dw_lane_scan_group(DwRowScan *scan);
extern bool dw_lane_scan_is_leased(DwRowScan *scan);
extern bool dw_lane_scan_next(DwRowScan *scan, DwTaskKey *key);
extern HeapTuple dw_lane_scan_tuple(DwRowScan *scan);
extern DwRowScan *dw_group_scan_begin(Relation rel, int16 queue, uint32 hash, TimestampTz due,
									  int64 id, Snapshot snapshot);
extern DwRowScan *dw_failed_scan_begin(Relation rel, ScanDirection direction,
									   TimestampTz failed_at, int64 id, Snapshot snapshot);
extern HeapTuple dw_row_scan_next(DwRowScan *scan);
extern HeapTuple dw_failed_scan_next(DwRowScan *scan, TimestampTz *failed_at, int64 *id);
extern void dw_row_scan_end(DwRowScan *scan);
extern bool dw_next_lane(Relation rel, Snapshot snapshot, DwTaskKey *key, bool first);
extern SysScanDesc dw_lease_scan_begin(Relation rel, TimestampTz from, Snapshot snapshot);
extern void dw_lease_scan_end(SysScanDesc scan);
extern void dw_leases_of_group(Relation rel, int16 queue, uint32 hash, Snapshot snapshot,
							   DwLeaseCounts counts, DwGroupLeases *leases);
extern uint32 dw_leases_count(Relation rel, int16 queue, TimestampTz now, TimestampTz *next_end);

#endif							/* DW_SCANS_H */
