/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  Reads the clocks, turns intervals into microseconds, and sleeps until a time of the clock.
 *
 * Run by all processes; launcher and timers sleep.  No other file reads a clock.  README.md tells
 * which clock is for what.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/timerfd.h>
#endif

#include "common/int.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"

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

/*---- Sleeping ----*/

/*
 * PostgreSQL's own functions sleep for a length of time, so they end too late if the clock is set
 * forward.  On Linux a kernel timer can expire at a time of the clock.
 */

/* The events that end a sleep: latch, postmaster death, the kernel's timer. */
static WaitEventSet *events = NULL;
#ifdef __linux__
static int	timer_fd = -1;
#endif

/* Creates the set of events that end a sleep.  A process calls this once. */
void
dw_alarm_create(void)
{
	events = dw_create_wait_event_set(3);
	AddWaitEventToSet(events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(events, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
#ifdef __linux__
	timer_fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
	if (timer_fd < 0)
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not create timer: %m")));
	AddWaitEventToSet(events, WL_SOCKET_READABLE, timer_fd, NULL, NULL);
#endif
}

#ifdef __linux__
/*
 * Sets the kernel's timer to an absolute time.  When the clock is set, the kernel cancels
 * its timer, and this process wakes up and looks at the new time.
 *
 * Returns false if the clock was set since the last call: then "until" may be out of date.
 */
static bool
arm_timer(TimestampTz until)
{
	struct itimerspec spec = {0};
	int64		unix_us;

	if (until != DW_NEVER)
	{
		unix_us = dw_time_add(until, (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY);
		/* zero would disarm the timer; the latest possible time is 292 years after 1970 */
		unix_us = Min(Max(unix_us, 1), PG_INT64_MAX / 1000 - 1);
		spec.it_value.tv_sec = unix_us / USECS_PER_SEC;
		spec.it_value.tv_nsec = unix_us % USECS_PER_SEC * 1000;
	}
	if (timerfd_settime(timer_fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &spec, NULL) == 0)
		return true;
	if (errno != ECANCELED)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not set timer: %m")));
	return false;
}
#endif

/* Returns the length of a sleep until this moment, in ms, rounded up; -1: without end. */
static long
length_of_sleep(int64 now, int64 until)
{
	return until == DW_NEVER ? -1 : Min(TimestampDifferenceMilliseconds(now, until), INT_MAX);
}

/*
 * Sleeps until this time of the clock, until this moment of dw_uptime(), or until the latch is set.
 * DW_NEVER stands for no such time.  The sleep may end earlier.
 */
void
dw_alarm_wait(TimestampTz until, int64 uptime, uint32 wait_event)
{
	WaitEvent	occurred[3];
	long		timeout = length_of_sleep(dw_uptime(), uptime);
	int			n;

#ifdef __linux__
	uint64		expirations;

	if (!arm_timer(until))
		return;
#else
	if (until != DW_NEVER)
	{
		long		left = length_of_sleep(dw_now(), until);

		timeout = timeout < 0 ? left : Min(timeout, left);
	}
#endif
	n = WaitEventSetWait(events, timeout, occurred, lengthof(occurred), wait_event);
#ifdef __linux__
	/* resets the descriptor of the timer, which has expired or was cancelled */
	for (int i = 0; i < n; i++)
		while ((occurred[i].events & WL_SOCKET_READABLE) != 0 &&
			   read(timer_fd, &expirations, sizeof(expirations)) > 0)
			;
#else
	(void) n;
#endif
}
