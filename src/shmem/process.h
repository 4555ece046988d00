/*-------------------------------------------------------------------------
 *
 * process.h
 *	  Timer and sweeper of a database, as other processes know them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_PROCESS_H
#define DW_PROCESS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "port/atomics.h"

#include "../base/clock.h"
#include "lack.h"

/*
 * A process that has not answered for this long, in us, is silent: views and the log name it.  It
 * may be stopped (SIGSTOP, a debugger, a frozen cgroup), or wait for something that does not come.
 */
#define DW_SILENT_US	(5 * USECS_PER_SEC)

typedef enum DwProcessState
{
	DW_PROCESS_NONE = 0,
	DW_PROCESS_STARTING,		/* registered, and not connected yet */
	DW_PROCESS_RUNNING
} DwProcessState;

/* How the last process ended. */
typedef enum DwProcessEnd
{
	DW_PROCESS_FAILED = 0,		/* by an error, or without a word */
	DW_PROCESS_FINISHED,		/* by itself, or since another process had asked it to */
	DW_PROCESS_MADE_WAY,		/* to free its background worker */
	DW_PROCESS_RESTS,			/* nothing is to be done for long: it is started again in time */
	DW_PROCESS_NOTED			/* its end was dealt with */
} DwProcessEnd;

/* The table lock protects it. */
typedef struct DwProcess
{
	DwProcessState state;
	DwProcessEnd end;			/* of the last one; set while none runs */
	DwLack		lack;			/* one is needed, and no background worker was free for it; of the
								 * launcher: for a timer that looks into a database */
	pid_t		pid;
	int64		started;		/* when it was registered, by dw_uptime() */
	pg_atomic_uint32 proc;		/* dw_my_proc() once it can be woken; 0: none.  Read without
								 * the lock */
	pg_atomic_uint32 calls;		/* how often it was woken; read without the lock */

	/*
	 * whether it answers: atomics, read without the lock.  "began" and "sleep_until" are written
	 * by the process itself
	 */
	pg_atomic_uint64 sleep_until;	/* DW_AWAKE while it does not sleep; of the timer's handshake, too:
									 * it publishes this, then looks again at what others store */
	pg_atomic_uint64 began;		/* when it woke, or last looked for work; by dw_uptime() */
	pg_atomic_uint64 called;	/* the first call since then, by dw_uptime(); 0: none */
	pg_atomic_uint64 told;		/* when the log was last told that it is silent, by dw_uptime(); 0:
								 * never */
} DwProcess;

extern void dw_process_init(DwProcess *process);
extern void dw_process_starts(DwProcess *process);
extern void dw_process_registered(DwProcess *process, bool registered);
extern void dw_process_takes_over(DwProcess *process);
extern void dw_process_runs(DwProcess *process);
extern void dw_process_publish(DwProcess *process);
extern void dw_process_withdraw(DwProcess *process);
extern void dw_process_is_lost(DwProcess *process);
extern void dw_process_ends(DwProcess *process, DwProcessEnd end);
extern DwProcessEnd dw_process_take_end(DwProcess *process);
extern bool dw_process_wake(DwProcess *process);
extern void dw_process_sleeps(DwProcess *process, TimestampTz until);
extern uint32 dw_process_looks(DwProcess *process);
extern int64 dw_process_silent_for(DwProcess *process);

/* True if the process can be woken. */
static inline bool
dw_process_is_there(DwProcess *process)
{
	return pg_atomic_read_u32(&process->proc) != 0;
}

/* True if there is no process since the last one went to rest.  Reads without the lock. */
static inline bool
dw_process_rests(const DwProcess *process)
{
	return process->state == DW_PROCESS_NONE && process->end == DW_PROCESS_RESTS;
}

/* True if the process, which runs, is the first one since the last one went to rest. */
static inline bool
dw_process_follows_rest(const DwProcess *process)
{
	return process->end == DW_PROCESS_RESTS;
}

/* True if the process sleeps, and for longer than that.  No barrier. */
static inline bool
dw_process_sleeps_beyond(DwProcess *process, TimestampTz needed)
{
	return dw_atomic_read(&process->sleep_until) > needed;
}

/*
 * How often the process was woken.  The latch alone is not enough: PostgreSQL resets it when
 * the process waits for a lock or a buffer in the middle of its work.  So a process reads
 * this number before it looks for work, and sleeps only if the number is the same afterwards.
 */
static inline uint32
dw_process_calls(DwProcess *process)
{
	return pg_atomic_read_u32(&process->calls);
}

#endif							/* DW_PROCESS_H */
