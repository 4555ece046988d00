/*-------------------------------------------------------------------------
 *
 * outcome.h
 *	  Outcomes of tasks and attempts, and their counters.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_OUTCOME_H
#define DW_OUTCOME_H

#include "postgres.h"

#include "port/atomics.h"

/* Outcome of a task or an attempt. */
typedef enum DwOutcome
{
	DW_NOT_ENDED = 0,			/* the task is pending, or runs */
	DW_DONE,					/* its SQL has run, and was committed */
	DW_FAILED,					/* the last attempt failed: a row of failed_task was written */
	DW_RETRIED,					/* an attempt failed, and the task was put back */
	DW_SKIPPED,					/* not run: it was too late */
	DW_CANCELLED				/* cancelled, and not run */
} DwOutcome;

#define DW_OUTCOMES		(DW_CANCELLED + 1)

/* Numbers of tasks or attempts, by DwOutcome.  Processes count without a lock. */
typedef struct DwCounters
{
	pg_atomic_uint64 n[DW_OUTCOMES];
} DwCounters;

extern void dw_counters_init(DwCounters *counters);
extern uint64 dw_counted(DwCounters *counters, DwOutcome outcome);
extern uint64 dw_count(DwCounters *counters, DwOutcome outcome, uint64 n);

/* Names of outcomes for users; NULL for DW_NOT_ENDED. */
extern const char *const dw_outcome_names[];

/*---- Histograms that show how late tasks start ----*/

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

#endif							/* DW_OUTCOME_H */
