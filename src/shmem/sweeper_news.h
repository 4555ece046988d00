/*-------------------------------------------------------------------------
 *
 * sweeper_news.h
 *	  Requests to the sweeper of a database, and its published state.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SWEEPER_NEWS_H
#define DW_SWEEPER_NEWS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "port/atomics.h"

#include "../base/clock.h"

/* Flags of the sweeper. */
typedef enum DwSweeperFlag
{
	DW_LOOK_FOR_MARKS = 0,		/* the sweeper must look again for marks */
	DW_LOOK_AT_RECURRING,		/* the sweeper must check the next runs of recurring tasks */
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
	DW_JOB_LOCAL				/* check tasks due at a local time, see local_times.c */
} DwJob;

#define DW_JOBS		(DW_JOB_LOCAL + 1)

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

/* Returns the number of failed tasks at which the sweeper must count the rows of failed tasks. */
static inline uint64
dw_failed_limit(DwSweeperNews *news)
{
	return pg_atomic_read_u64(&news->failed_limit);
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

/* Returns true if nothing is recorded until a table has been emptied. */
static inline bool
dw_history_is_full(DwSweeperNews *news)
{
	return pg_atomic_read_u32(&news->history_is_full) != 0;
}

/* Notes that no lock prevents the sweeper from emptying the oldest table any more. */
static inline void
dw_history_unlocked(DwSweeperNews *news)
{
	(void) dw_atomic_take(&news->history_locked_since);
}

#endif							/* DW_SWEEPER_NEWS_H */
