/*-------------------------------------------------------------------------
 *
 * lateness.h
 *	  Histograms in shared memory that show how late tasks start.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LATENESS_H
#define DW_LATENESS_H

#include "postgres.h"

#include "port/atomics.h"

#define DW_LATENESS_BUCKETS	512
#define DW_LANE_BUCKETS		64

/* Histogram of the lateness of a database's tasks, in microseconds. */
typedef struct DwLateness
{
	pg_atomic_uint64 max;
	pg_atomic_uint64 buckets[DW_LATENESS_BUCKETS];
} DwLateness;

/* Histogram of the lateness of a lane's tasks, in microseconds. */
typedef struct DwLaneLateness
{
	pg_atomic_uint64 max;
	pg_atomic_uint32 buckets[DW_LANE_BUCKETS];
} DwLaneLateness;

extern void dw_lateness_init(DwLateness *lateness);
extern void dw_count_lateness(DwLateness *lateness, uint64 us);
extern uint64 dw_lateness_below(DwLateness *lateness, uint64 us);
extern double dw_lateness_percentile(DwLateness *lateness, double fraction);

extern void dw_lane_lateness_init(DwLaneLateness *lateness);
extern void dw_count_lane_lateness(DwLaneLateness *lateness, uint64 us);
extern void dw_lane_lateness_add(DwLaneLateness *sum, DwLaneLateness *lateness);
extern double dw_lane_lateness_percentile(DwLaneLateness *lateness, double fraction);

#endif							/* DW_LATENESS_H */
