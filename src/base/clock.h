/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  The clocks, sleeping, arithmetic with times, and times in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_CLOCK_H
#define DW_CLOCK_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "port/atomics.h"

/* A time that is not set, or that never comes */
#define DW_NEVER		PG_INT64_MAX

/* Minimum interval, in us, between log messages about one lasting problem */
#define DW_LOG_INTERVAL_US	USECS_PER_MINUTE

/* The end of the sleep of a process that does not sleep */
#define DW_AWAKE		PG_INT64_MIN

extern int64 dw_interval_us(const Interval *interval);
extern TimestampTz dw_now(void);
extern int64 dw_uptime(void);
extern void dw_alarm_create(void);
extern void dw_alarm_wait(TimestampTz until, int64 uptime, uint32 wait_event);

/* Reads a shared time. */
static inline int64
dw_atomic_read(pg_atomic_uint64 *value)
{
	return (int64) pg_atomic_read_u64(value);
}

/* Sets a shared time to "to" if "to" is earlier.  Returns true if the time was changed. */
static inline bool
dw_atomic_lower(pg_atomic_uint64 *value, int64 to)
{
	uint64		old = pg_atomic_read_u64(value);

	while (to < (int64) old)
		if (pg_atomic_compare_exchange_u64(value, &old, (uint64) to))
			return true;
	return false;
}

/* Returns a shared time, and sets it to DW_NEVER. */
static inline int64
dw_atomic_take(pg_atomic_uint64 *value)
{
	return (int64) pg_atomic_exchange_u64(value, (uint64) DW_NEVER);
}

/*
 * Adds "b" microseconds to a time.  DW_NEVER stays DW_NEVER.  On overflow, returns DW_NEVER or the
 * lowest time (PG_INT64_MIN + 1).
 */
static inline TimestampTz
dw_time_add(TimestampTz a, int64 b)
{
	if (a == DW_NEVER)
		return a;
	if (b > 0 && a > DW_NEVER - b)
		return DW_NEVER;
	if (b < 0 && a < PG_INT64_MIN + 1 - b)
		return PG_INT64_MIN + 1;
	return a + b;
}

#endif							/* DW_CLOCK_H */
