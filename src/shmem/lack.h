/*-------------------------------------------------------------------------
 *
 * lack.h
 *	  Lacks of background workers: which process could not start a worker, and since when; see
 *	  starts.c.
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
 * has just ended occupies its place until the postmaster notices its end.  At a shutdown, timers
 * end before the launcher and cannot be started again.
 */
#define DW_LACK_LASTS_US	(USECS_PER_SEC / 10)

/* Times are by dw_uptime().  All fields are atomics that are read without a lock. */
typedef struct DwLack
{
	pg_atomic_uint64 since;		/* when a start was first refused; 0: there is no lack */
	pg_atomic_uint64 seen;		/* when the waiting process last checked whether it has the turn */
} DwLack;

/* What a background worker is needed for. */
typedef enum DwStart
{
	DW_START_TIMER = 0,
	DW_START_OTHER,				/* an executor, a sweeper, or a timer that looks into a database
								 * without a place */
	DW_STARTS
} DwStart;

/* Pauses of the process that has the turn.  Times are by dw_uptime(). */
typedef struct DwStartPause
{
	pg_atomic_uint64 retry_at;	/* when it tries again */
	pg_atomic_uint64 us;		/* the last pause; 0: a worker was free, or has ended, since then */
	pg_atomic_uint64 turn_ended_at; /* when the process last ended another process's turn */
} DwStartPause;

static inline void
dw_lack_init(DwLack *lack)
{
	pg_atomic_init_u64(&lack->since, 0);
	pg_atomic_init_u64(&lack->seen, 0);
}

/* Returns when the start was first refused, by dw_uptime(), or 0 if there is no lack. */
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
