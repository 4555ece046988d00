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

/* The rule for ideal times: an interval counted from a first time, or a cron schedule. */
typedef struct DwRecurrence
{
	pg_tz	   *zone;			/* time zone of the schedule, and of months and days in
								 * the interval */
	TimestampTz starts;			/* no ideal time is earlier; with an interval, this is
								 * the first ideal time */
	bool		is_cron;		/* cron is set; else every */
	Interval	every;			/* the interval; positive */
	DwCron		cron;
} DwRecurrence;

extern bool dw_recurrence_next(const DwRecurrence *recurrence, TimestampTz after,
							   TimestampTz *next);
extern int64 dw_recurrence_pause(const DwRecurrence *recurrence, TimestampTz due);
extern void dw_recurrence_begin_by(DwRecurrence *recurrence, TimestampTz at);
extern bool dw_intervals_after(TimestampTz from, int64 n, const Interval *every, pg_tz *zone,
							   TimestampTz *result);

#endif							/* DW_RECURRENCE_H */
