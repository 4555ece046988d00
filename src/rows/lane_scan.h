/*-------------------------------------------------------------------------
 *
 * lane_scan.h
 *	  Scans of pending tasks by the index of lanes, and of failed tasks by time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LANE_SCAN_H
#define DW_LANE_SCAN_H

#include "postgres.h"

#include "access/htup.h"
#include "access/sdir.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "../shmem/shared.h"
#include "task_rows.h"

/* A scan of one lane in (due, id) order, or of all lanes, one after the other. */
typedef struct DwLaneScan DwLaneScan;

/* A scan of failed tasks in (failed_at, id) order, or backwards. */
typedef struct DwFailedScan DwFailedScan;

/* A scan of the pending tasks of one group of a queue, in the order of (due, id). */
typedef struct DwGroupScan DwGroupScan;

extern DwTaskKey dw_lane_begin(const DwLane *lane);
extern DwLaneScan *dw_lane_scan_begin(Relation rel, const DwTaskKey *from, Snapshot snapshot);
extern DwLaneScan *dw_lanes_scan_begin(Relation rel, const DwTaskKey *from, Snapshot snapshot);
extern void dw_lane_scan_keys_only(DwLaneScan *scan, bool with_group);
extern void dw_lanes_scan_seek(DwLaneScan *scan, const DwTaskKey *from);
extern bool dw_lane_scan_step(DwLaneScan *scan, DwTaskKey *key, bool *visible);
extern uint32 dw_lane_scan_group(DwLaneScan *scan);
extern bool dw_lane_scan_is_leased(DwLaneScan *scan);
extern bool dw_lane_scan_next(DwLaneScan *scan, DwTaskKey *key);
extern HeapTuple dw_lane_scan_tuple(DwLaneScan *scan);
extern void dw_lane_scan_end(DwLaneScan *scan);
extern DwGroupScan *dw_group_scan_begin(Relation rel, int16 queue, uint32 hash, TimestampTz due,
										int64 id, Snapshot snapshot);
extern HeapTuple dw_group_scan_next(DwGroupScan *scan);
extern void dw_group_scan_end(DwGroupScan *scan);
extern DwFailedScan *dw_failed_scan_begin(Relation rel, ScanDirection direction,
										  TimestampTz failed_at, int64 id, Snapshot snapshot);
extern HeapTuple dw_failed_scan_next(DwFailedScan *scan, TimestampTz *failed_at, int64 *id);
extern void dw_failed_scan_end(DwFailedScan *scan);
extern bool dw_next_lane(Relation rel, Snapshot snapshot, DwTaskKey *key, bool first);

#endif							/* DW_LANE_SCAN_H */
