/*-------------------------------------------------------------------------
 *
 * process.h
 *	  The published state of timers, sweepers and the launcher.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_PROCESS_H
#define DW_PROCESS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "port/atomics.h"

#include "../base/clock.h"

/*---- Lacks: since when a process could not start a background worker, see starts.c ----*/

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

/*---- Processes ----*/

/*
 * A process that has not answered for this time, in us, is silent, and named in views and the log.
 * A silent process may be stopped (SIGSTOP, a debugger, a frozen cgroup), or wait for an event that
 * never comes.
 */
#define DW_SILENT_US	(5 * USECS_PER_SEC)

typedef enum DwProcessState
{
	DW_PROCESS_NONE = 0,
	DW_PROCESS_STARTING,		/* registered, but not connected yet */
	DW_PROCESS_RUNNING
} DwProcessState;

/* How the last process ended. */
typedef enum DwProcessEnd
{
	DW_PROCESS_FAILED = 0,		/* by an error, or without a known reason */
	DW_PROCESS_FINISHED,		/* by itself, or at the request of another process */
	DW_PROCESS_MADE_WAY,		/* to free its background worker */
	DW_PROCESS_RESTS,			/* it rests: it had no work, and a new process is started for the
								 * next work */
	DW_PROCESS_NOTED			/* its end was handled */
} DwProcessEnd;

/* The table lock protects all fields that are not atomics. */
typedef struct DwProcess
{
	DwProcessState state;
	DwProcessEnd end;			/* how the last process ended; set while no process runs */
	DwLack		lack;			/* the process is needed, but no background worker was free; for the
								 * launcher: a timer that looks into a database is needed */
	pid_t		pid;
	int64		started;		/* when it was registered, by dw_uptime() */
	pg_atomic_uint32 proc;		/* dw_my_proc() if the process can be woken, or 0 */
	pg_atomic_uint32 calls;		/* number of calls (wake-ups) */

	/*
	 * These atomics show whether the process answers.  Other processes read them without the lock.
	 * The process itself writes "began" and "sleep_until".
	 */
	pg_atomic_uint64 sleep_until;	/* DW_AWAKE while the process does not sleep; the timer
									 * publishes this, and then looks for work again */
	pg_atomic_uint64 began;		/* when the process woke, or last looked for work, by dw_uptime() */
	pg_atomic_uint64 called;	/* first call since "began", by dw_uptime(); 0: none */
	pg_atomic_uint64 told;		/* when the silence was last logged, by dw_uptime(); 0: never */
} DwProcess;

extern void dw_process_init(DwProcess *process);
extern void dw_process_starts(DwProcess *process);
extern void dw_process_set_state(DwProcess *process, DwProcessState state);
extern void dw_process_takes_over(DwProcess *process);
extern void dw_process_publish(DwProcess *process);
extern void dw_process_withdraw(DwProcess *process);
extern void dw_process_is_lost(DwProcess *process);
extern void dw_process_ends(DwProcess *process, DwProcessEnd end);
extern DwProcessEnd dw_process_take_end(DwProcess *process);
extern bool dw_process_wake(DwProcess *process);
extern void dw_process_sleeps(DwProcess *process, TimestampTz until);
extern uint32 dw_process_looks(DwProcess *process);
extern int64 dw_process_silent_for(DwProcess *process);

/* Returns true if the process can be woken. */
static inline bool
dw_process_is_there(DwProcess *process)
{
	return pg_atomic_read_u32(&process->proc) != 0;
}

/* Returns true if the last process went to rest, and none has started since.  Takes no lock. */
static inline bool
dw_process_rests(const DwProcess *process)
{
	return process->state == DW_PROCESS_NONE && process->end == DW_PROCESS_RESTS;
}

/* Returns true if the former process went to rest.  Called while a process runs. */
static inline bool
dw_process_follows_rest(const DwProcess *process)
{
	return process->end == DW_PROCESS_RESTS;
}

/*
 * Returns how often the process was woken.  The latch alone is not enough, since PostgreSQL resets
 * it when the process waits for a lock or a buffer.  So a process reads this number before it looks
 * for work, and sleeps only if the number is the same afterwards.
 */
static inline uint32
dw_process_calls(DwProcess *process)
{
	return pg_atomic_read_u32(&process->calls);
}

#endif							/* DW_PROCESS_H */
