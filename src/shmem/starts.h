/*-------------------------------------------------------------------------
 *
 * starts.h
 *	  Who may start the next background worker, if not enough of them are free.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_STARTS_H
#define DW_STARTS_H

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

/* What a background worker is needed for. */
typedef enum DwStart
{
	DW_START_TIMER = 0,
	DW_START_OTHER,				/* an executor, a sweeper, a look into a database without a place */
	DW_STARTS
} DwStart;

/* That somebody lacks a background worker.  Times are by dw_uptime(); atomics, read without a lock. */
typedef struct DwLack
{
	pg_atomic_uint64 since;		/* when a start was refused; 0: nothing is lacking */
	pg_atomic_uint64 seen;		/* when who waits last looked whether it is its turn */
} DwLack;

/* When the one whose turn it is tries again, by dw_uptime(). */
typedef struct DwStartPause
{
	pg_atomic_uint64 retry_at;
	pg_atomic_uint64 us;		/* the last pause; 0: a worker was free since, or has ended */
} DwStartPause;

extern void dw_lack_init(DwLack *lack);
extern bool dw_lack_lasts(const DwLack *lack);
extern void dw_lack_note(DwLack *lack, int64 since);
extern void dw_lack_ends(DwLack *lack);
extern bool dw_start_may_be_tried(DwLack *lack, DwStart start);
extern void dw_start_refused(DwLack *lack, DwStart start, Oid database);
extern int64 dw_start_wait(const DwLack *lack, DwStart start);
extern void dw_worker_leaves(void);
extern void dw_timers_make_way(bool lacking);

/* When the start was refused first, by dw_uptime(); 0 if nothing is lacking. */
static inline int64
dw_lack_since(const DwLack *lack)
{
	return (int64) pg_atomic_read_u64((pg_atomic_uint64 *) &lack->since);
}

#endif							/* DW_STARTS_H */
