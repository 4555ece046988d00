/*-------------------------------------------------------------------------
 *
 * recurrence.h
 *	  The ideal times of a recurring task.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RECURRENCE_H
#define DW_RECURRENCE_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "pgtime.h"

#include "cron.h"

/* An interval that is counted from a first time, or a cron schedule. */
typedef struct DwRecurrence
{
	pg_tz	   *zone;
	TimestampTz starts;			/* no time is before that; with an interval, it is
								 * the first one */
	bool		is_cron;
	Interval	every;			/* positive */
	DwCron		cron;
} DwRecurrence;
extern bool dw_recurrence_next(const DwRecurrence *recurrence, TimestampTz after,
							   TimestampTz *next);
extern bool dw_intervals_after(TimestampTz from, int64 n, const Interval *every, pg_tz *zone,
							   TimestampTz *result);

#endif							/* DW_RECURRENCE_H */
