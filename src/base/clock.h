/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  The clock, and times and atomics in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_CLOCK_H
#define DW_CLOCK_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "port/atomics.h"

#define DW_NEVER		PG_INT64_MAX	/* as a time: no such time */

#define DW_AWAKE		PG_INT64_MIN	/* as sleep_until: not asleep */

extern int64 dw_interval_us(const Interval *interval);
extern TimestampTz dw_now(void);
extern int64 dw_uptime(void);

static inline int64
dw_atomic_read(pg_atomic_uint64 *value)
{
	return (int64) pg_atomic_read_u64(value);
}

/* Lowers a shared time; returns whether that changed it. */
static inline bool
dw_atomic_lower(pg_atomic_uint64 *value, int64 to)
{
	uint64		old = pg_atomic_read_u64(value);

	while (to < (int64) old)
		if (pg_atomic_compare_exchange_u64(value, &old, (uint64) to))
			return true;
	return false;
}

static inline int64
dw_atomic_take(pg_atomic_uint64 *value)
{
	return (int64) pg_atomic_exchange_u64(value, (uint64) DW_NEVER);
}

/* a + b, at most DW_NEVER and at least the lowest time */
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
