/*-------------------------------------------------------------------------
 *
 * recurrence.c
 *	  The ideal times of a recurring task.
 *
 * Run by sessions, executors and the sweeper.  The functions here use neither the clock
 * nor a catalog, and raise no error.  The n-th time of an interval is computed from the first time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "common/int.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "recurring.h"

/* Average length of a month in the Gregorian calendar, in microseconds. */
#define US_PER_MONTH	(30.436875 * USECS_PER_DAY)

/* Longest pause of a cron schedule that dw_recurrence_pause() finds, in microseconds. */
#define MAX_CRON_PAUSE	(64 * 366 * USECS_PER_DAY)

/*
 * Adds months, and then days, to a date.  After adding the months, a day after the end of the month
 * becomes its last day.  Returns false if the date is out of range.
 */
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

/* Adds n intervals to a time; n may be negative.  Returns false if the result is out of range. */
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

/*
 * Returns an estimate of the number of intervals between two times; 0 if "until" is the earlier
 * time.
 */
static int64
estimate(const DwRecurrence *r, TimestampTz from, TimestampTz until)
{
	double		every = r->every.month * US_PER_MONTH + r->every.day * (double) USECS_PER_DAY +
		(double) r->every.time;
	double		n = floor(((double) until - (double) from) / every);

	return n < 1 ? 0 : n > (double) (PG_INT64_MAX / 2) ? PG_INT64_MAX / 2 : (int64) n;
}

/*
 * Finds the first time of an interval after `after`.  Returns false if it is out of range.  Begins
 * with the estimate, whose error is a few intervals at most.
 */
static bool
next_interval(const DwRecurrence *r, TimestampTz after, TimestampTz *next)
{
	int64		n = estimate(r, r->starts, after);
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

/* Finds the first ideal time after the given time.  Returns false if there is no such time. */
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

/* Returns true if the schedule has a time after "after" and before "due". */
static bool
comes_between(const DwRecurrence *r, TimestampTz after, TimestampTz due)
{
	TimestampTz next;

	return dw_cron_next(&r->cron, r->zone, after, &next) && next < due;
}

/*
 * Returns the time from the last ideal time of a cron schedule to this ideal time, to the second,
 * by bisection; PG_INT64_MAX if it is longer than MAX_CRON_PAUSE.
 */
static int64
cron_pause(const DwRecurrence *r, TimestampTz due)
{
	int64		longer = USECS_PER_SEC; /* a time lies between due - longer and due */
	int64		shorter = 0;	/* no time lies between due - shorter and due */

	while (!comes_between(r, due - longer, due))
	{
		shorter = longer;
		longer *= 2;
		if (longer > MAX_CRON_PAUSE || !IS_VALID_TIMESTAMP(due - longer))
			return PG_INT64_MAX;
	}
	while (longer - shorter > USECS_PER_SEC)
	{
		int64		between = shorter + (longer - shorter) / 2;

		if (comes_between(r, due - between, due))
			longer = between;
		else
			shorter = between;
	}
	return longer;
}

/*
 * Returns the time from the last ideal time to this ideal time; PG_INT64_MAX if it is not known.
 * For a cron schedule with fixed hours, returns at least a day, since each local time occurs once a
 * day.
 */
int64
dw_recurrence_pause(const DwRecurrence *r, TimestampTz due)
{
	TimestampTz next;
	int64		pause;

	if (!r->is_cron)
		return dw_intervals_after(due, 1, &r->every, r->zone, &next) ? next - due : PG_INT64_MAX;
	pause = cron_pause(r, due);
	return r->cron.any_hour ? pause : Max(pause, USECS_PER_DAY);
}

/*
 * Moves the start of a recurrence back to "at", or to some intervals before "at", without changing
 * the ideal times after the old start.  Does nothing if the start is not later than "at", or if no
 * such time exists.
 */
void
dw_recurrence_begin_by(DwRecurrence *r, TimestampTz at)
{
	int64		n;

	if (r->starts <= at)
		return;
	if (r->is_cron)
	{
		r->starts = at;
		return;
	}

	/*
	 * Try more intervals: the estimate may be too low.  A month without a 31st, or a skipped local
	 * time, would change later times.  29 February comes again after at most 8 years.
	 */
	n = estimate(r, at, r->starts) + 1;
	for (int i = 0; i < 10; i++, n++)
	{
		TimestampTz starts;
		TimestampTz again;

		if (!dw_intervals_after(r->starts, -n, &r->every, r->zone, &starts))
			return;
		if (starts <= at && dw_intervals_after(starts, n, &r->every, r->zone, &again) &&
			again == r->starts)
		{
			r->starts = starts;
			return;
		}
	}
}
