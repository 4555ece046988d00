/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  Reads the clocks, and turns intervals into microseconds.
 *
 * Run by all processes.  No other file reads a clock.  Due times are compared
 * with dw_now(), the time of day, which an administrator may set forward or back
 * at any time.  Durations are measured with dw_uptime(), which nobody can set.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "common/int.h"
#include "datatype/timestamp.h"
#include "utils/timestamp.h"

#include "clock.h"

/*
 * Returns the interval in microseconds, with days of 24 hours and months of 30
 * days.  A result out of range becomes PG_INT64_MAX or PG_INT64_MIN, not an error.
 */
int64
dw_interval_us(const Interval *interval)
{
	int64		days = (int64) interval->month * DAYS_PER_MONTH + interval->day;
	int64		us;

	if (pg_mul_s64_overflow(days, USECS_PER_DAY, &us))
		return days < 0 ? PG_INT64_MIN : PG_INT64_MAX;
	if (pg_add_s64_overflow(us, interval->time, &us))
		return interval->time < 0 ? PG_INT64_MIN : PG_INT64_MAX;
	return us;
}

/* Returns the time of day, which may be earlier than in the previous call. */
TimestampTz
dw_now(void)
{
	return GetCurrentTimestamp();
}

/*
 * Returns the microseconds since some fixed moment, for measuring durations.
 * This clock cannot be set, and runs at the speed of the time of day.
 */
int64
dw_uptime(void)
{
	struct timespec now;

	/* instr_time may use a clock without NTP's corrections, which drifts from dw_now() */
	(void) clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000;
}
