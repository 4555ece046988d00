/*-------------------------------------------------------------------------
 *
 * lack.h
 *	  That somebody lacks a background worker, see starts.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LACK_H
#define DW_LACK_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "port/atomics.h"

#include "../base/clock.h"

/*
 * A lack that lasts this long, in us, is reported.  A worker that has just ended occupies its place
 * until the postmaster notices its end; and at a shutdown timers end, and cannot be started, before
 * the launcher ends.
 */
#define DW_LACK_LASTS_US	(USECS_PER_SEC / 10)

/* Times are by dw_uptime(); atomics, read without a lock. */
typedef struct DwLack
{
	pg_atomic_uint64 since;		/* when a start was refused; 0: nothing is lacking */
	pg_atomic_uint64 seen;		/* when who waits last looked whether it is its turn */
} DwLack;

/* What a background worker is needed for. */
typedef enum DwStart
{
	DW_START_TIMER = 0,
	DW_START_OTHER,				/* an executor, a sweeper, a look into a database without a place */
	DW_STARTS
} DwStart;

/* What the one does whose turn it is.  Times are by dw_uptime(). */
typedef struct DwStartPause
{
	pg_atomic_uint64 retry_at;	/* when it tries again */
	pg_atomic_uint64 us;		/* the last pause; 0: a worker was free since, or has ended */
	pg_atomic_uint64 turn_ended_at; /* when it last ended the turn of another one */
} DwStartPause;

static inline void
dw_lack_init(DwLack *lack)
{
	pg_atomic_init_u64(&lack->since, 0);
	pg_atomic_init_u64(&lack->seen, 0);
}

/* When the start was refused first, by dw_uptime(); 0 if nothing is lacking. */
static inline int64
dw_lack_since(const DwLack *lack)
{
	return (int64) pg_atomic_read_u64((pg_atomic_uint64 *) &lack->since);
}

/* True if the lack is to be reported. */
static inline bool
dw_lack_lasts(const DwLack *lack)
{
	int64		since = dw_lack_since(lack);

	return since != 0 && dw_uptime() - since >= DW_LACK_LASTS_US;
}

#endif							/* DW_LACK_H */
