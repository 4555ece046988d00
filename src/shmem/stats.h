/*-------------------------------------------------------------------------
 *
 * stats.h
 *	  Counts starts and outcomes of tasks, for database, lane and queue.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_STATS_H
#define DW_STATS_H

#include "postgres.h"

#include "executors.h"
#include "outcome.h"
#include "shared.h"

extern void dw_count_begin(DwDatabase *db, DwExecutor *me, int64 us);
extern void dw_count_end(DwDatabase *db, DwLane *lane, DwOutcome outcome);

extern int64 dw_failed_max_age_us(void);
extern void dw_failed_recorded(DwDatabase *db, uint64 n);

#endif							/* DW_STATS_H */
