/*-------------------------------------------------------------------------
 *
 * parts.h
 *	  The parts of a database in shared memory, each with the functions that may change it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_PARTS_H
#define DW_PARTS_H

#include "postgres.h"

#include "storage/block.h"
#include "storage/itemptr.h"
#include "storage/spin.h"

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

/*---- process.c: the published state of timers, sweepers and the launcher ----*/

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

/*---- news.c: messages to the timer of a database ----*/

/* Flags.  Any process sets them.  The process that acts on a flag clears the flag. */
typedef enum DwNews
{
	DW_NEWS_START = 0,			/* the launcher must start a timer */
	DW_NEWS_CREATED,			/* like DW_NEWS_START, after CREATE EXTENSION: a timer that has not
								 * found the extension may be about to end */
	DW_NEWS_LANES,				/* the bitmap dirty_lanes is not empty */
	DW_NEWS_EXECUTORS,			/* the timer must check whether executors are needed */
	DW_NEWS_RIGHTS,				/* blocked owners may try again at once */
	DW_NEWS_PREPARED,			/* a prepared transaction ended: delete finished rows of
								 * delay_wheel_data.prepared */
	DW_NEWS_ROLES,				/* a role was dropped: the timer must look for its lanes */
	DW_NEWS_GROUPS,				/* the reason for the hold of some group may be gone */
	DW_NEWS_REST,				/* few workers are free: the timer must rest if it can */
	DW_NEWS_FLAGS				/* number of flags */
} DwNews;

/* Shows whether a timer can end for a while. */
typedef enum DwCanRest
{
	DW_CANNOT_REST = 0,
	DW_CAN_GIVE_WAY,			/* only if another database needs the background worker: the timer
								 * has no work, but sessions may need its tasks in memory */
	DW_CAN_REST
} DwCanRest;

/*
 * Requests that timer and sweeper of a database end.  If new processes are needed, they start with
 * the new settings or the new clock.
 */
typedef enum DwRestart
{
	DW_RESTART_NONE = 0,
	DW_RESTART_SOON = 1,		/* settings have changed; done at most once a second */
	DW_RESTART_NOW = 2			/* the database has become a template, or the clock was set */
} DwRestart;

/* All fields are atomics: sessions write them in commit callbacks. */
typedef struct DwTimerNews
{
	/*
	 * While the timer rests: when a timer must run again.  Sessions lower this time.  The launcher
	 * starts a timer before this time.  DW_AWAKE: no timer rests, or a timer must be started at
	 * once.
	 */
	pg_atomic_uint64 rest_until;
	pg_atomic_uint32 can_rest;	/* a DwCanRest of the sleeping timer; may be out of date */
	pg_atomic_uint64 reload_from;	/* like DwLane.reload_from, but for all lanes, even unknown
									 * lanes */
	pg_atomic_uint64 lease_end;	/* end of the first lease that the timer has not read; lowered by
								 * sessions that lease messages */
	pg_atomic_uint32 flags[DW_NEWS_FLAGS];	/* by DwNews */
	pg_atomic_uint32 control;	/* incremented when a change of a queue, a pause or a mark of
								 * delay_cancel_all() was committed */
	pg_atomic_uint32 restart;	/* bits of DwRestart */
	pg_atomic_uint32 starving;	/* owners that get an executor only if another executor ends */
	pg_atomic_uint32 newcomer;	/* 1: one of them is a newcomer, for which a short turn ends, too */
	pg_atomic_uint32 nameless;	/* maximum of prepared transactions with unknown names */
	pg_atomic_uint32 unarmed;	/* flags, see news.c */
	pg_atomic_uint32 loads;		/* number of the last load; incremented by the timer only */
} DwTimerNews;

extern void dw_timer_news_init(DwTimerNews *news);
extern bool dw_rest_end_ask(DwTimerNews *news, TimestampTz needed, bool *earlier);
extern bool dw_starving_take(DwTimerNews *news, bool for_newcomer);
extern void dw_unarmed_set(DwTimerNews *news, bool met);
extern void dw_unarmed_look(DwTimerNews *news);
extern void dw_unarmed_looked(DwTimerNews *news, bool met);
extern bool dw_unarmed_met(DwTimerNews *news);

/* Publishes until when the timer rests (step Z1); DW_AWAKE ends the rest.  No barrier. */
static inline void
dw_rest_publish(DwTimerNews *news, TimestampTz until)
{
	pg_atomic_write_u64(&news->rest_until, (uint64) until);
}

/* Returns when a timer must run again after a rest; DW_AWAKE: at once, or no timer rests. */
static inline TimestampTz
dw_rest_until(DwTimerNews *news)
{
	return dw_atomic_read(&news->rest_until);
}

/* Publishes whether the sleeping timer could rest. */
static inline void
dw_can_rest(DwTimerNews *news, DwCanRest how)
{
	pg_atomic_write_u32(&news->can_rest, how);
}

/* Sets a flag.  No barrier: see dw_wake_timer(). */
static inline void
dw_news_tell(DwTimerNews *news, DwNews flag)
{
	pg_atomic_write_u32(&news->flags[flag], 1);
}

/* Returns true if the flag is set. */
static inline bool
dw_news_is_told(DwTimerNews *news, DwNews flag)
{
	return pg_atomic_read_u32(&news->flags[flag]) != 0;
}

/* Returns true if the flag was set.  Clears it.  Full barrier. */
static inline bool
dw_news_take(DwTimerNews *news, DwNews flag)
{
	return pg_atomic_exchange_u32(&news->flags[flag], 0) != 0;
}

/* Makes all processes read changed queues, pauses and marks again.  Full barrier. */
static inline void
dw_control_raise(DwTimerNews *news)
{
	pg_atomic_fetch_add_u32(&news->control, 1);
}

/* Returns a number that changes when queues, pauses or marks have changed. */
static inline uint32
dw_control_read(DwTimerNews *news)
{
	return pg_atomic_read_u32(&news->control);
}

/* Asks for a reload: from this due time on, memory is out of date in all lanes. */
static inline void
dw_reload_ask(DwTimerNews *news, TimestampTz from)
{
	(void) dw_atomic_lower(&news->reload_from, from);
}

/*
 * Lowers the stored end of the first lease.  Returns true if the timer must look earlier than
 * planned.
 */
static inline bool
dw_lease_end_ask(DwTimerNews *news, TimestampTz at)
{
	return dw_atomic_lower(&news->lease_end, at);
}

/* Returns the end of the first lease, and resets the stored time to DW_NEVER. */
static inline TimestampTz
dw_lease_end_take(DwTimerNews *news)
{
	return dw_atomic_take(&news->lease_end);
}

/* Returns the number of the last load that has taken its snapshot.  No barrier. */
static inline uint32
dw_loads_read(DwTimerNews *news)
{
	return pg_atomic_read_u32(&news->loads);
}

/* Counts a load that has taken its snapshot.  Full barrier. */
static inline void
dw_loads_raise(DwTimerNews *news)
{
	pg_atomic_fetch_add_u32(&news->loads, 1);
}

/* Returns the due time from which all lanes are out of date, or DW_NEVER. */
static inline TimestampTz
dw_reload_asked(DwTimerNews *news)
{
	return dw_atomic_read(&news->reload_from);
}

/* Requests a restart.  An earlier request stays. */
static inline void
dw_restart_ask(DwTimerNews *news, DwRestart restart)
{
	pg_atomic_fetch_or_u32(&news->restart, restart);
}

/* Returns the most urgent restart that was requested. */
static inline DwRestart
dw_restart_asked(DwTimerNews *news)
{
	uint32		asked = pg_atomic_read_u32(&news->restart);

	return (asked & DW_RESTART_NOW) != 0 ? DW_RESTART_NOW : (DwRestart) asked;
}

/* Clears the request.  Called by a new timer, which reads all settings. */
static inline void
dw_restart_forget(DwTimerNews *news)
{
	pg_atomic_write_u32(&news->restart, DW_RESTART_NONE);
}

/* Returns and resets the due time from which all lanes are out of date. */
static inline TimestampTz
dw_reload_take(DwTimerNews *news)
{
	return dw_atomic_take(&news->reload_from);
}

/* Publishes how many owners can get an executor only if another executor ends. */
static inline void
dw_starving_set(DwTimerNews *news, uint32 owners)
{
	pg_atomic_write_u32(&news->starving, owners);
}

/* Publishes whether an executor must end a short turn for a newcomer. */
static inline void
dw_newcomer_set(DwTimerNews *news, bool waits)
{
	pg_atomic_write_u32(&news->newcomer, waits ? 1 : 0);
}

/* Counts a transaction that was prepared under an unknown name. */
static inline void
dw_nameless_note(DwTimerNews *news)
{
	pg_atomic_fetch_add_u32(&news->nameless, 1);
}

/*
 * Sets the number of prepared transactions with unknown names to 0, if it is still the number that
 * the caller has read.
 */
static inline void
dw_nameless_forget(DwTimerNews *news, uint32 nameless)
{
	(void) pg_atomic_compare_exchange_u32(&news->nameless, &nameless, 0);
}

/*---- news.c: messages to the sweeper, and its published state ----*/

/* Flags of the sweeper. */
typedef enum DwSweeperFlag
{
	DW_LOOK_FOR_MARKS = 0,		/* the sweeper must look again for marks */
	DW_SWEEPER_RESTS,			/* the sweeper has a long pause, and can end */
	DW_SWEEPER_FLAGS			/* number of flags */
} DwSweeperFlag;

/* Jobs of the sweeper that are requested for a time. */
typedef enum DwJob
{
	DW_JOB_FAILED = 0,			/* delete old rows of failed tasks, see failed.c */
	DW_JOB_HISTORY,				/* check the history tables, see history_tables.c */
	DW_JOB_LEASES,				/* end messages whose last lease has ended, see leases.c */
	DW_JOB_ROLLBACKS,			/* count attempts that were rolled back, see leases.c */
	DW_JOB_NOTIFY,				/* notify channels of queues, see leases.c */
	DW_JOB_PERIODS,				/* delete keys whose time of uniqueness is over, see aged_rows.c */
	DW_JOB_AUDIT,				/* delete old rows of the audit, see aged_rows.c */
	DW_JOB_LOCAL,				/* check tasks due at a local time, see local_times.c */
	DW_JOB_BATCHES,				/* end batches whose members have ended, see batch_end.c */
	DW_JOB_ENDED_BATCHES,		/* delete old rows of ended batches, see batch_end.c */
	DW_JOB_RECURRING,			/* check the next runs of recurring tasks, see repair.c */
	DW_JOBS						/* number of jobs */
} DwJob;

/* Maximum number of pids in the view, of transactions for which the sweeper waits. */
#define DW_SWEEP_WAITS	16

typedef struct DwSweeperNews
{
	pg_atomic_uint32 flags[DW_SWEEPER_FLAGS];	/* by DwSweeperFlag */
	pg_atomic_uint64 job_at[DW_JOBS];	/* when the job must be done; DW_NEVER: not requested */
	pg_atomic_uint64 job_after[DW_JOBS];	/* the job is not done again before this time */

	pg_atomic_uint64 failed_limit;	/* number of failed tasks at which DW_JOB_FAILED is requested */
	pg_atomic_uint64 history_locked_since;	/* since when a lock prevents the sweeper from emptying
											 * the oldest table; DW_NEVER: no lock does */
	pg_atomic_uint32 history_current;	/* number of the current table, from 1; 0: not known yet */
	pg_atomic_uint32 history_room;	/* its maximum number of pages; 0: not known yet */
	pg_atomic_uint32 history_is_full;	/* nothing is recorded until a table has been emptied */

	/* table lock */
	bool		waits;			/* the sweeper waits for transactions; "pids" are some of them */
	int			npids;
	int			pids[DW_SWEEP_WAITS];	/* 0: a prepared transaction */
} DwSweeperNews;

extern void dw_sweeper_news_init(DwSweeperNews *news);

extern void dw_sweeper_waits(DwSweeperNews *news, bool waits, const int *pids, int n);

extern TimestampTz dw_jobs_next(DwSweeperNews *news);

extern void dw_history_publish(DwSweeperNews *news, int table, BlockNumber room);
extern int64 dw_history_locked_for(DwSweeperNews *news, TimestampTz now);

/* Sets a flag.  Full barrier. */
static inline void
dw_sweeper_tell(DwSweeperNews *news, DwSweeperFlag flag)
{
	(void) pg_atomic_exchange_u32(&news->flags[flag], 1);
}

/* Returns true if the flag is set. */
static inline bool
dw_sweeper_is_told(DwSweeperNews *news, DwSweeperFlag flag)
{
	return pg_atomic_read_u32(&news->flags[flag]) != 0;
}

/* Returns true if the flag was set.  Clears it.  Full barrier. */
static inline bool
dw_sweeper_take(DwSweeperNews *news, DwSweeperFlag flag)
{
	return pg_atomic_exchange_u32(&news->flags[flag], 0) != 0;
}

/*
 * Requests the job for this time.  Returns false if the job is already requested for an earlier
 * time.
 */
static inline bool
dw_job_ask(DwSweeperNews *news, DwJob job, TimestampTz at)
{
	return dw_atomic_lower(&news->job_at[job], at);
}

/* Returns when the job must be done, or DW_NEVER if it is not requested. */
static inline TimestampTz
dw_job_at(DwSweeperNews *news, DwJob job)
{
	return dw_atomic_read(&news->job_at[job]);
}

/*
 * Clears the request, since the sweeper begins the job.  A later request causes another run of the
 * job.
 */
static inline void
dw_job_begin(DwSweeperNews *news, DwJob job)
{
	(void) dw_atomic_take(&news->job_at[job]);
}

/* Notes that the job may not be requested for a time before this. */
static inline void
dw_job_put_off(DwSweeperNews *news, DwJob job, TimestampTz after)
{
	pg_atomic_write_u64(&news->job_after[job], (uint64) after);
}

/* Returns the soonest time for which the job may be requested. */
static inline TimestampTz
dw_job_soonest(DwSweeperNews *news, DwJob job)
{
	return Max(dw_now(), dw_atomic_read(&news->job_after[job]));
}

static inline void
dw_failed_limit_set(DwSweeperNews *news, uint64 limit)
{
	pg_atomic_write_u64(&news->failed_limit, limit);
}

/* Returns the number, from 0, of the current history table, or -1 if not known yet. */
static inline int
dw_history_known_table(DwSweeperNews *news)
{
	return (int) pg_atomic_read_u32(&news->history_current) - 1;
}

/* Notes whether the history is full.  Returns true if the history has just become full. */
static inline bool
dw_history_becomes_full(DwSweeperNews *news, bool full)
{
	return pg_atomic_exchange_u32(&news->history_is_full, full ? 1 : 0) == 0 && full;
}

/* Notes that no lock prevents the sweeper from emptying the oldest table any more. */
static inline void
dw_history_unlocked(DwSweeperNews *news)
{
	(void) dw_atomic_take(&news->history_locked_since);
}

/*---- inbox.c: hints of sessions to the timer about tasks ----*/

/* A reference to a lane.  The reference is stale if the lane's generation has changed. */
typedef struct DwLaneRef
{
	uint16		index;
	uint32		generation;
} DwLaneRef;

/*
 * A hint: a session that committed a task gives the timer the task's key and TID.  A hint may come
 * twice or be wrong.  This is harmless, since the executor that takes the task reads the row.  If a
 * hint is lost, the session must request a reload of the lane instead.
 */
typedef struct DwHint
{
	TimestampTz due;
	int64		id;
	ItemPointerData tid;
	uint16		loads;			/* low bits of the number of the last load whose snapshot may miss
								 * the row, see timer/hints.c */
	DwLaneRef	lane;
} DwHint;

/* A ring buffer of dw_inbox_size hints. */
typedef struct DwInbox
{
	slock_t		lock;
	uint32		head;			/* index of the oldest hint */
	uint32		count;
	DwHint		hints[FLEXIBLE_ARRAY_MEMBER];
} DwInbox;

extern Size dw_inbox_bytes(void);
extern void dw_inbox_init(DwInbox *inbox);
extern bool dw_inbox_push(DwInbox *inbox, const DwHint *hint, bool *crowded);
extern uint32 dw_inbox_drain(DwInbox *inbox, DwHint *hints, uint32 max);
extern bool dw_inbox_is_empty(DwInbox *inbox);

/*---- inbox.c: the last problem of a database, for the view status ----*/

typedef struct DwProblem
{
	slock_t		lock;
	TimestampTz at;
	char		text[256];		/* empty if no problem has occurred */
	int			plain;			/* length of the part that quotes no error message */
} DwProblem;

extern void dw_problem_init(DwProblem *problem);
extern void dw_problem(DwProblem *problem, const char *text);
extern void dw_problem_quoting(DwProblem *problem, const char *text, const char *quoted);
extern TimestampTz dw_problem_read(DwProblem *problem, char *text, Size size, bool all);

/*---- outcome.c: outcomes of tasks and attempts, and their counters ----*/

/* Outcome of a task or an attempt. */
typedef enum DwOutcome
{
	DW_NOT_ENDED = 0,			/* the task is pending, or runs */
	DW_DONE,					/* its SQL has run, and was committed */
	DW_FAILED,					/* the last attempt failed: a row of failed_task was written */
	DW_RETRIED,					/* an attempt failed, and the task was put back */
	DW_SKIPPED,					/* not run: it was too late */
	DW_CANCELLED				/* cancelled, and not run */
} DwOutcome;

#define DW_OUTCOMES		(DW_CANCELLED + 1)

/* Numbers of tasks or attempts, by DwOutcome.  Processes count without a lock. */
typedef struct DwCounters
{
	pg_atomic_uint64 n[DW_OUTCOMES];
} DwCounters;

extern void dw_counters_init(DwCounters *counters);
extern uint64 dw_counted(DwCounters *counters, DwOutcome outcome);
extern uint64 dw_count(DwCounters *counters, DwOutcome outcome, uint64 n);

/* Names of outcomes for users; NULL for DW_NOT_ENDED. */
extern const char *const dw_outcome_names[];

/*---- outcome.c: histograms that show how late tasks start ----*/

#define DW_LATENESS_BUCKETS	512
#define DW_LANE_BUCKETS		64

/* Histogram of the lateness of a database's tasks, in microseconds. */
typedef struct DwLateness
{
	pg_atomic_uint64 max;
	pg_atomic_uint64 buckets[DW_LATENESS_BUCKETS];
} DwLateness;

/* Histogram of the lateness of a lane's tasks, in microseconds. */
typedef struct DwLaneLateness
{
	pg_atomic_uint64 max;
	pg_atomic_uint32 buckets[DW_LANE_BUCKETS];
} DwLaneLateness;

extern void dw_lateness_init(DwLateness *lateness);
extern void dw_count_lateness(DwLateness *lateness, uint64 us);
extern uint64 dw_lateness_below(DwLateness *lateness, uint64 us);
extern double dw_lateness_percentile(DwLateness *lateness, double fraction);

extern void dw_lane_lateness_init(DwLaneLateness *lateness);
extern void dw_count_lane_lateness(DwLaneLateness *lateness, uint64 us);
extern void dw_lane_lateness_add(DwLaneLateness *sum, DwLaneLateness *lateness);
extern double dw_lane_lateness_percentile(DwLaneLateness *lateness, double fraction);

/*---- rollbacks.c: messages whose receivers were rolled back ----*/

/*
 * This number of rollbacks in a row has no consequence for a message.  Often the message is not the
 * cause of a rollback, for example in a deployment.
 */
#define DW_ROLLBACKS_FREE	2

/* Maximum number of messages whose rollbacks are counted. */
#define DW_ROLLBACKS	1024
/* Maximum number of messages that are left to the sweeper. */
#define DW_TO_SETTLE	256

/* All fields are atomics: sessions write them in callbacks at the end of a transaction. */
typedef struct DwRollbacks
{
	struct
	{
		pg_atomic_uint64 id;	/* id of a message; 0: free */
		pg_atomic_uint32 n;		/* number of rollbacks of its receivers in a row */
	}			seen[DW_ROLLBACKS];	/* index: (uint64) id % DW_ROLLBACKS */
	pg_atomic_uint64 to_settle[DW_TO_SETTLE];	/* ids; 0: free */
} DwRollbacks;

extern void dw_rollbacks_init(DwRollbacks *rollbacks);
extern uint32 dw_rollback_note(DwRollbacks *rollbacks, int64 id);
extern uint32 dw_rollbacks_of(DwRollbacks *rollbacks, int64 id);
extern void dw_rollback_forget(DwRollbacks *rollbacks, int64 id);
extern bool dw_rollback_hand_over(DwRollbacks *rollbacks, int64 id);
extern int64 dw_rollback_to_settle(DwRollbacks *rollbacks);
extern void dw_rollback_settled(DwRollbacks *rollbacks, int64 id);

/*---- logins.c: server settings that affect how a task's text is read ----*/

/* The settings; see task/login.c. */
typedef enum DwLoginSetting
{
	DW_SEARCH_PATH,
	DW_DATE_STYLE,
	DW_INTERVAL_STYLE,
	DW_TIME_ZONE,
	DW_ABBREVIATIONS,
	DW_MONETARY,
	DW_XML_OPTION,
	DW_ARRAY_NULLS,
	DW_STRINGS,
	DW_NULL_EQUALS,
	DW_LOGIN_SETTINGS			/* number of settings */
} DwLoginSetting;

extern const char *const dw_login_settings[DW_LOGIN_SETTINGS];

/* Size of the buffer for a value.  Longer values are not stored. */
#define DW_LOGIN_VALUE	256

typedef struct DwLogins
{
	slock_t		lock;
	char		values[DW_LOGIN_SETTINGS][DW_LOGIN_VALUE];	/* values of the server; the launcher
															 * writes them under the lock */
	bool		known[DW_LOGIN_SETTINGS];	/* true if values[i] is valid; under the lock, too */
	pg_atomic_uint64 changes;	/* incremented after a change of server, role or database
								 * settings */
} DwLogins;

extern void dw_logins_init(DwLogins *logins);
extern void dw_logins_publish(DwLogins *logins);
extern bool dw_logins_server_value(DwLogins *logins, DwLoginSetting setting, char *value);

#endif							/* DW_PARTS_H */
