/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  The clock, and times that cannot overflow.
 *
 * Run by all processes.  The clock is read here only: it may be set at any time,
 * also back.  How long something takes goes by dw_uptime(), which is never set.
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
 * In microseconds, of days of 24 hours and months of 30 days; never an error.
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

/*
 * The clock: the only place that reads it.  It may be set at any time, also back.
 */
TimestampTz
dw_now(void)
{
	return GetCurrentTimestamp();
}

/*
 * Microseconds since some moment, for how long something takes: never set, and as
 * fast as the clock.
 */
int64
dw_uptime(void)
{
	struct timespec now;

	/* instr_time may be one that is not slewed, and drift away from the other clock */
	(void) clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000;
}
