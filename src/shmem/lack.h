/*-------------------------------------------------------------------------
 *
 * lack.h
 *	  Lacks: since when a process could not start a background worker, see starts.c.
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
 * Only a lack that lasts this long, in us, is reported.  Shorter lacks are normal: a worker that
 * has just ended occupies its place until the postmaster notices the end.  During a shutdown,
 * timers end before the launcher and cannot be started again.
 */
#define DW_LACK_LASTS_US	(USECS_PER_SEC / 10)

/* All times are by dw_uptime().  All fields are atomics, which processes read without a lock. */
typedef struct DwLack
{
	pg_atomic_uint64 since;		/* when a start was first refused; 0 if no worker is lacking */
	pg_atomic_uint64 seen;		/* when the waiting process last checked whether it has the turn */
} DwLack;

/* Reasons to start a background worker. */
typedef enum DwStart
{
	DW_START_TIMER = 0,
	DW_START_OTHER,				/* executor, sweeper, or timer that looks into a new database */
	DW_STARTS
} DwStart;

/* Pauses of the process that has the turn.  Times are by dw_uptime(). */
typedef struct DwStartPause
{
	pg_atomic_uint64 retry_at;	/* when the process tries again */
	pg_atomic_uint64 us;		/* last pause; 0: since then a worker was free, or has ended */
	pg_atomic_uint64 turn_ended_at; /* when this process last ended the turn of another process */
} DwStartPause;

static inline void
dw_lack_init(DwLack *lack)
{
	pg_atomic_init_u64(&lack->since, 0);
	pg_atomic_init_u64(&lack->seen, 0);
}

/* Returns when the start was first refused, by dw_uptime(), or 0 if no worker is lacking. */
static inline int64
dw_lack_since(const DwLack *lack)
{
	return (int64) pg_atomic_read_u64((pg_atomic_uint64 *) &lack->since);
}

/* Returns true if the lack must be reported. */
static inline bool
dw_lack_lasts(const DwLack *lack)
{
	int64		since = dw_lack_since(lack);

	return since != 0 && dw_uptime() - since >= DW_LACK_LASTS_US;
}

#endif							/* DW_LACK_H */
