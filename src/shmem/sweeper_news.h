/*-------------------------------------------------------------------------
 *
 * sweeper_news.h
 *	  What the sweeper of a database is asked to do, and what it publishes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SWEEPER_NEWS_H
#define DW_SWEEPER_NEWS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "port/atomics.h"


/* Flags. */
typedef enum DwSweeperFlag
{
	DW_LOOK_FOR_MARKS = 0,		/* the sweeper must look again for marks */
	DW_LOOK_AT_RECURRING,		/* the sweeper must check that each recurring task has its
								 * next run */
	DW_SWEEPER_RESTS			/* the sweeper has a long pause, and can end to free its
								 * background worker */
} DwSweeperFlag;

#define DW_SWEEPER_FLAGS	(DW_SWEEPER_RESTS + 1)

/* What the sweeper does when its time has come. */
typedef enum DwJob
{
	DW_JOB_FAILED = 0,			/* delete old rows of failed tasks, see failed.c */
	DW_JOB_HISTORY,				/* look at the tables of the history, see history/history_tables.c */
	DW_JOB_LEASES,				/* end messages whose last lease has ended, see leases.c */
	DW_JOB_ROLLBACKS,			/* count attempts that were rolled back, see leases.c */
	DW_JOB_NOTIFY,				/* notify channels of queues, see leases.c */
	DW_JOB_PERIODS,				/* delete rows of keys that were unique, see aged_rows.c */
	DW_JOB_AUDIT,				/* delete old rows of the audit, see aged_rows.c */
	DW_JOB_LOCAL				/* look at tasks that are due at a local time, see recurring/local_times.c */
} DwJob;

#define DW_JOBS		(DW_JOB_LOCAL + 1)

/*
 * Maximum number of pids that the view shows of transactions that the sweeper waits
 * for.
 */
#define DW_SWEEP_WAITS	16

typedef struct DwSweeperNews
{
	pg_atomic_uint32 flags[DW_SWEEPER_FLAGS];	/* by DwSweeperFlag */
	pg_atomic_uint64 job_at[DW_JOBS];	/* when the job must be done; DW_NEVER: not asked */
	pg_atomic_uint64 job_after[DW_JOBS];	/* not before then, since it has just been done */

	pg_atomic_uint64 failed_limit;	/* ask for DW_JOB_FAILED when the counter of failed tasks
									 * reaches this value */
	pg_atomic_uint64 history_locked_since;	/* since when a lock keeps the sweeper from
											 * emptying the oldest table; DW_NEVER: none does */
	pg_atomic_uint32 history_current;	/* number of the table that is written, from 1; 0:
										 * not known yet */
	pg_atomic_uint32 history_room;	/* pages that this table may have; 0: not known yet */
	pg_atomic_uint32 history_is_full;	/* nothing is recorded until a table was emptied */

	/* table lock */
	bool		waits;			/* the sweeper waits for open transactions; the first of
								 * these are: */
	int			npids;
	int			pids[DW_SWEEP_WAITS];	/* 0 stands for a prepared transaction */
} DwSweeperNews;

extern void dw_sweeper_news_init(DwSweeperNews *news);

extern void dw_sweeper_waits(DwSweeperNews *news, bool waits, const int *pids, int n);

extern bool dw_job_ask(DwSweeperNews *news, DwJob job, TimestampTz at);
extern TimestampTz dw_jobs_next(DwSweeperNews *news);
extern TimestampTz dw_job_at(DwSweeperNews *news, DwJob job);
extern void dw_job_begin(DwSweeperNews *news, DwJob job);
extern void dw_job_put_off(DwSweeperNews *news, DwJob job, TimestampTz after);
extern TimestampTz dw_job_soonest(DwSweeperNews *news, DwJob job);

extern uint64 dw_failed_limit(DwSweeperNews *news);
extern void dw_failed_limit_set(DwSweeperNews *news, uint64 limit);

extern void dw_history_publish(DwSweeperNews *news, int table, BlockNumber room);
extern int	dw_history_known_table(DwSweeperNews *news);
extern BlockNumber dw_history_known_room(DwSweeperNews *news);
extern bool dw_history_becomes_full(DwSweeperNews *news, bool full);
extern bool dw_history_is_full(DwSweeperNews *news);
extern int64 dw_history_locked_for(DwSweeperNews *news, TimestampTz now);
extern void dw_history_unlocked(DwSweeperNews *news);

/* Sets a flag.  Full barrier. */
static inline void
dw_sweeper_tell(DwSweeperNews *news, DwSweeperFlag flag)
{
	(void) pg_atomic_exchange_u32(&news->flags[flag], 1);
}

/* True if the flag is set. */
static inline bool
dw_sweeper_is_told(DwSweeperNews *news, DwSweeperFlag flag)
{
	return pg_atomic_read_u32(&news->flags[flag]) != 0;
}

/* True if the flag was set; clears it.  Full barrier. */
static inline bool
dw_sweeper_take(DwSweeperNews *news, DwSweeperFlag flag)
{
	return pg_atomic_exchange_u32(&news->flags[flag], 0) != 0;
}

#endif							/* DW_SWEEPER_NEWS_H */
