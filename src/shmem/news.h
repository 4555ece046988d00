/*-------------------------------------------------------------------------
 *
 * news.h
 *	  Messages from other processes to timer and sweeper of a database.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_NEWS_H
#define DW_NEWS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/block.h"

#include "../base/clock.h"

/*---- To the timer ----*/

/* Flags.  Any process sets them.  The process that acts on a flag clears the flag. */
typedef enum DwNews
{
	DW_NEWS_START = 0,			/* the launcher must start a timer */
	DW_NEWS_CREATED,			/* like DW_NEWS_START, after CREATE EXTENSION: a timer that has not
								 * found the extension may be about to end */
	DW_NEWS_LANES,				/* the bitmap dw_dirty_lanes() is not empty */
	DW_NEWS_EXECUTORS,			/* the timer must check whether executors are needed */
	DW_NEWS_RIGHTS,				/* blocked owners may try again at once */
	DW_NEWS_PREPARED,			/* a prepared transaction ended: delete finished rows of
								 * delay_wheel_data.prepared */
	DW_NEWS_ROLES,				/* a role was dropped: the timer must look for its lanes */
	DW_NEWS_GROUPS,				/* the reason for the hold of some group may be gone */
	DW_NEWS_REST				/* few workers are free: the timer must rest if it can */
} DwNews;

#define DW_NEWS_FLAGS	(DW_NEWS_REST + 1)

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
	DW_RESTART_SOON,			/* settings have changed; done at most once a second */
	DW_RESTART_NOW				/* the database has become a template, or the clock was set */
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
	pg_atomic_uint32 restart;	/* a DwRestart */
	pg_atomic_uint32 starving;	/* owners that get an executor only if another executor ends */
	pg_atomic_uint32 newcomer;	/* 1: one of them is a newcomer, for which a short turn ends, too */
	pg_atomic_uint32 nameless;	/* maximum of prepared transactions with unknown names */
	pg_atomic_uint32 unarmed;	/* flags, see news.c */
	pg_atomic_uint32 loads;		/* number of the last load; incremented by the timer only */
} DwTimerNews;

extern void dw_timer_news_init(DwTimerNews *news);
extern bool dw_rest_end_ask(DwTimerNews *news, TimestampTz needed, bool *earlier);
extern void dw_restart_ask(DwTimerNews *news, DwRestart restart);
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

/* Returns the most urgent restart that was requested. */
static inline DwRestart
dw_restart_asked(DwTimerNews *news)
{
	return (DwRestart) pg_atomic_read_u32(&news->restart);
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

/*---- To the sweeper, and its published state ----*/

/* Flags of the sweeper. */
typedef enum DwSweeperFlag
{
	DW_LOOK_FOR_MARKS = 0,		/* the sweeper must look again for marks */
	DW_SWEEPER_RESTS			/* the sweeper has a long pause, and can end */
} DwSweeperFlag;

#define DW_SWEEPER_FLAGS	(DW_SWEEPER_RESTS + 1)

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
	DW_JOB_RECURRING			/* check the next runs of recurring tasks, see repair.c */
} DwJob;

#define DW_JOBS		(DW_JOB_RECURRING + 1)

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

#endif							/* DW_NEWS_H */
