/*-------------------------------------------------------------------------
 *
 * rate.h
 *	  Rates: how many tasks may be started in a time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RATE_H
#define DW_RATE_H

#include "postgres.h"

#include "datatype/timestamp.h"

/* A rate, as declared. */
typedef struct DwRate
{
	int32		starts;			/* tasks in the time per; 0: no limit, and the rest is unused */
	int32		burst;			/* unused starts that are made up for at once; 0: by TOLERANCE_US */
	int64		per;			/* us, a second at least */
} DwRate;

/* How far a rate is used up.  All zero: nothing was started. */
typedef struct DwRateUse
{
	TimestampTz next_start;		/* when the rate allows the next task */
	int64		start_fraction; /* fraction of a microsecond that belongs to next_start, in
								 * units of 1 / starts */
} DwRateUse;

extern TimestampTz dw_rate_next(const DwRate *rate, const DwRateUse *use, TimestampTz now);
extern uint32 dw_rate_room(const DwRate *rate, const DwRateUse *use, TimestampTz now,
						   TimestampTz *until);
extern TimestampTz dw_rate_unused_at(const DwRate *rate, const DwRateUse *use);
extern void dw_rate_start(const DwRate *rate, DwRateUse *use, TimestampTz now);
extern void dw_rate_not_begun(const DwRate *rate, DwRateUse *use);

#endif							/* DW_RATE_H */
