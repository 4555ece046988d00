/*-------------------------------------------------------------------------
 *
 * stats.h
 *	  Lateness of tasks: a histogram of fixed size in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_STATS_H
#define DW_STATS_H

#include "shared.h"

extern void dw_count_lateness(DwDatabase *db, int64 us);
extern double dw_lateness_percentile(DwDatabase *db, double fraction);

#endif							/* DW_STATS_H */
