/*-------------------------------------------------------------------------
 *
 * recurrence.c
 *	  The ideal times of a recurring task.
 *
 * Run by backends, executors and the sweeper.  Pure: no clock, no catalog.
 *
 * The n-th time is computed from the first one, not from the one before it: 31
 * January and n months is the 31st again wherever there is one, and a day that
 * is put off by a change to summer time does not put off the next ones.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "common/int.h"
#include "datatype/timestamp.h"
#include "pgtime.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "cron.h"
#include "recurrence.h"

/* of the Gregorian calendar, on average */
#define US_PER_MONTH	(30.436875 * USECS_PER_DAY)

/* The date that is some months and days later; clipped to the end of the month. */
static bool
add_to_date(struct pg_tm *tm, int64 months, int64 days)
{
	int64		month = (int64) tm->tm_year * MONTHS_PER_YEAR + (tm->tm_mon - 1) + months;
	int64		day;

	if (month / MONTHS_PER_YEAR > JULIAN_MAXYEAR)
		return false;
	tm->tm_year = month / MONTHS_PER_YEAR;
	tm->tm_mon = month % MONTHS_PER_YEAR;
	if (tm->tm_mon < 0)
	{
		tm->tm_year--;
		tm->tm_mon += MONTHS_PER_YEAR;
	}
	tm->tm_mon++;
	tm->tm_mday = Min(tm->tm_mday, day_tab[isleap(tm->tm_year)][tm->tm_mon - 1]);

	day = (int64) date2j(tm->tm_year, tm->tm_mon, tm->tm_mday) + days;
	if (day > PG_INT32_MAX)
		return false;
	j2date((int) day, &tm->tm_year, &tm->tm_mon, &tm->tm_mday);
	return true;
}

/* The time that is n intervals after another one; false if there is none. */
bool
dw_intervals_after(TimestampTz from, int64 n, const Interval *every, pg_tz *zone,
				   TimestampTz *result)
{
	int64		months;
	int64		days;
	int64		us;

	if (pg_mul_s64_overflow(n, every->month, &months) || months > PG_INT32_MAX ||
		pg_mul_s64_overflow(n, every->day, &days) || days > PG_INT32_MAX ||
		pg_mul_s64_overflow(n, every->time, &us))
		return false;
	if (months != 0 || days != 0)
	{
		struct pg_tm tm;
		fsec_t		fsec;
		int			tz;

		if (timestamp2tm(from, &tz, &tm, &fsec, NULL, zone) != 0 ||
			!add_to_date(&tm, months, days))
			return false;
		tz = DetermineTimeZoneOffset(&tm, zone);
		if (tm2timestamp(&tm, fsec, &tz, &from) != 0)
			return false;
	}
	return !pg_add_s64_overflow(from, us, result) && IS_VALID_TIMESTAMP(*result);
}

/* How many intervals there are up to a time, more or less. */
static int64
estimate(const DwRecurrence *r, TimestampTz until)
{
	double		every = r->every.month * US_PER_MONTH + r->every.day * (double) USECS_PER_DAY +
		(double) r->every.time;
	double		n = floor(((double) until - (double) r->starts) / every);

	return n < 1 ? 0 : n > (double) (PG_INT64_MAX / 2) ? PG_INT64_MAX / 2 : (int64) n;
}

/* The estimate is wrong by no more than a few. */
static bool
next_interval(const DwRecurrence *r, TimestampTz after, TimestampTz *next)
{
	int64		n = estimate(r, after);
	TimestampTz t;

	while (n > 0 && (!dw_intervals_after(r->starts, n, &r->every, r->zone, &t) || t > after))
		n--;
	do
	{
		if (!dw_intervals_after(r->starts, n++, &r->every, r->zone, next))
			return false;
	} while (*next <= after);
	return true;
}

/*
 * The first ideal time after the given one; false if there is none.  Never an
 * error.
 */
bool
dw_recurrence_next(const DwRecurrence *r, TimestampTz after, TimestampTz *next)
{
	if (!r->is_cron)
	{
		if (after >= r->starts)
			return next_interval(r, after, next);
		*next = r->starts;
		return true;
	}
	return dw_cron_next(&r->cron, r->zone, Max(after, r->starts - 1), next);
}
