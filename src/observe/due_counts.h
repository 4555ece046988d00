/*-------------------------------------------------------------------------
 *
 * due_counts.h
 *	  How many tasks are due in given periods, from the index of lanes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_DUE_COUNTS_H
#define DW_DUE_COUNTS_H

#include "postgres.h"

#include "datatype/timestamp.h"

/* Tasks due from one bound, inclusive, up to the next one, exclusive. */
typedef struct DwDueCount
{
	int64		tasks;
	bool		exact;
} DwDueCount;
extern DwDueCount *dw_due_counts(const TimestampTz *bounds, int n);

#endif							/* DW_DUE_COUNTS_H */
