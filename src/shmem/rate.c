/*-------------------------------------------------------------------------
 *
 * rate.c
 *	  Rates: how many tasks may be started in a time.
 *
 * Run by timers, executors and sessions that receive messages, under the ready lock of
 * the database that the rate belongs to.
 *
 * next_start is when the next task may begin.  It moves on by per/starts with each
 * task, and is never more than the tolerance behind the clock: the time of the starts that
 * burst allows to make up for, or 100 ms, or per/starts if that is more.  So tasks that begin
 * late do not lower the average, and a burst is limited by the tolerance.  A task that was
 * taken but not begun (it was cancelled, say) is not counted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "rate.h"

/* How far a rate may fall behind the clock, unless its burst says how many starts that are. */
#define TOLERANCE_US	(100 * 1000)

/* Microseconds between two tasks by the rate, rounded down. */
static int64
start_interval(const DwRate *rate)
{
	return rate->per / rate->starts;
}

/*
 * How far next_start may fall behind the clock, in microseconds.  As many tasks as the rate
 * starts in this time, and one more, are begun at once after a pause.
 */
static int64
tolerance(const DwRate *rate)
{
	int64		interval = start_interval(rate);

	return rate->burst > 0 ? (rate->burst - 1) * interval : Max(interval, TOLERANCE_US);
}

/*
 * When the rate allows the next task.  That is at most one interval from now, even if
 * the rate was raised or the clock was set back.
 */
TimestampTz
dw_rate_next(const DwRate *rate, const DwRateUse *use, TimestampTz now)
{
	return Min(Max(use->next_start, now - tolerance(rate)), now + start_interval(rate));
}

/*
 * How many tasks the rate allows now.  *until is when it allows more: the first one, if it
 * allows none.
 */
uint32
dw_rate_room(const DwRate *rate, const DwRateUse *use, TimestampTz now, TimestampTz *until)
{
	TimestampTz next = dw_rate_next(rate, use, now);
	int64		interval = Max(start_interval(rate), 1);
	int64		starts = next > now ? 0 : (now - next) / interval + 1;

	*until = next + starts * interval;
	return Min(starts, PG_INT32_MAX);
}

/* From when on nothing is known of the rate's use any more: it is as if nothing was started. */
TimestampTz
dw_rate_unused_at(const DwRate *rate, const DwRateUse *use)
{
	return use->next_start + tolerance(rate);
}

/* Counts a task that is taken. */
void
dw_rate_start(const DwRate *rate, DwRateUse *use, TimestampTz now)
{
	use->next_start = dw_rate_next(rate, use, now) + start_interval(rate);
	/* what start_interval() rounded off */
	use->start_fraction += rate->per % rate->starts;
	use->next_start += use->start_fraction / rate->starts;
	use->start_fraction %= rate->starts;
}

/* A task that was counted has not begun. */
void
dw_rate_not_begun(const DwRate *rate, DwRateUse *use)
{
	use->next_start -= start_interval(rate);
}
