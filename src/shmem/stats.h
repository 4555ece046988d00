/*-------------------------------------------------------------------------
 *
 * stats.h
 *	  Lateness of tasks: a histogram of fixed size in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_STATS_H
#define DW_STATS_H

#include "postgres.h"

#include "executors.h"
#include "outcome.h"
#include "shared.h"

extern void dw_lane_stats_init(DwLane *lane);

/* The executor begins the SQL of its task, so late. */
extern void dw_count_begin(DwDatabase *db, DwExecutor *me, int64 us);
extern void dw_count_end(DwDatabase *db, DwLane *lane, DwOutcome outcome);
extern uint64 dw_lateness_below(DwDatabase *db, uint64 us);

/* In microseconds; less than 0 if nothing was counted. */
extern double dw_lateness_percentile(DwDatabase *db, double fraction);
extern double dw_lane_lateness_percentile(DwLane *lane, double fraction);
extern int64 dw_failed_max_age_us(void);
extern void dw_failed_recorded(DwDatabase *db, uint64 n);
extern void dw_failed_ask(DwDatabase *db, TimestampTz at);

#endif							/* DW_STATS_H */
