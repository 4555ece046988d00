/*-------------------------------------------------------------------------
 *
 * sweeper_news.c
 *	  What the sweeper of a database is asked to do, and what it publishes.
 *
 * Run by all processes.  All of it is atomics, but for the pids that the sweeper waits
 * for; so nothing else here fails, waits or allocates.  The timer starts a sweeper for
 * what is asked (call_sweeper.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/block.h"

#include "../base/clock.h"
#include "sweeper_news.h"

/* Nothing is asked, and nothing is known. */
void
dw_sweeper_news_init(DwSweeperNews *news)
{
	for (int i = 0; i < DW_SWEEPER_FLAGS; i++)
		pg_atomic_init_u32(&news->flags[i], 0);
	for (int i = 0; i < DW_JOBS; i++)
	{
		pg_atomic_init_u64(&news->job_at[i], (uint64) DW_NEVER);
		pg_atomic_init_u64(&news->job_after[i], (uint64) PG_INT64_MIN);
	}
	pg_atomic_init_u64(&news->failed_limit, 0);
	pg_atomic_init_u64(&news->history_locked_since, (uint64) DW_NEVER);
	pg_atomic_init_u32(&news->history_current, 0);
	pg_atomic_init_u32(&news->history_room, 0);
	pg_atomic_init_u32(&news->history_is_full, 0);
	news->waits = false;
	news->npids = 0;
}

/*
 * Publishes whether the sweeper waits for open transactions, and n pids of theirs, at
 * most DW_SWEEP_WAITS.  Needs the table lock, exclusively.
 */
void
dw_sweeper_waits(DwSweeperNews *news, bool waits, const int *pids, int n)
{
	news->waits = waits;
	news->npids = n;
	if (n > 0)
		memcpy(news->pids, pids, n * sizeof(int));
}

/*---- Jobs that have a time ----*/

/* Asks for the job at this time; false if it is to be done before anyway. */
bool
dw_job_ask(DwSweeperNews *news, DwJob job, TimestampTz at)
{
	return dw_atomic_lower(&news->job_at[job], at);
}

/* When the job must be done; DW_NEVER if it is not asked for. */
TimestampTz
dw_job_at(DwSweeperNews *news, DwJob job)
{
	return dw_atomic_read(&news->job_at[job]);
}

/* When the next job of any kind must be done. */
TimestampTz
dw_jobs_next(DwSweeperNews *news)
{
	TimestampTz next = DW_NEVER;

	for (int i = 0; i < DW_JOBS; i++)
	{
		TimestampTz at = dw_job_at(news, i);

		next = Min(next, at);
	}
	return next;
}

/* The sweeper begins the job: what is asked from now on is another one. */
void
dw_job_begin(DwSweeperNews *news, DwJob job)
{
	(void) dw_atomic_take(&news->job_at[job]);
}

/* The job is not to be asked for before this time. */
void
dw_job_put_off(DwSweeperNews *news, DwJob job, TimestampTz after)
{
	pg_atomic_write_u64(&news->job_after[job], (uint64) after);
}

/* The soonest time for which the job may be asked. */
TimestampTz
dw_job_soonest(DwSweeperNews *news, DwJob job)
{
	return Max(dw_now(), dw_atomic_read(&news->job_after[job]));
}

/*---- How much there may be ----*/

/* The value of the counter of failed tasks at which the sweeper must count them. */
uint64
dw_failed_limit(DwSweeperNews *news)
{
	return pg_atomic_read_u64(&news->failed_limit);
}

void
dw_failed_limit_set(DwSweeperNews *news, uint64 limit)
{
	pg_atomic_write_u64(&news->failed_limit, limit);
}

/* Tells sessions which table of the history they write, from 0, and its maximum of pages. */
void
dw_history_publish(DwSweeperNews *news, int table, BlockNumber room)
{
	pg_atomic_write_u32(&news->history_current, table + 1);
	pg_atomic_write_u32(&news->history_room, room);
}

/* The table of the history that is written, from 0; -1 if it is not known yet. */
int
dw_history_known_table(DwSweeperNews *news)
{
	return (int) pg_atomic_read_u32(&news->history_current) - 1;
}

/* The pages that this table may have; 0 if that is not known yet. */
BlockNumber
dw_history_known_room(DwSweeperNews *news)
{
	return pg_atomic_read_u32(&news->history_room);
}

/* Notes whether the history is full; true if it was not full before. */
bool
dw_history_becomes_full(DwSweeperNews *news, bool full)
{
	return pg_atomic_exchange_u32(&news->history_is_full, full ? 1 : 0) == 0 && full;
}

/* True if nothing is recorded until a table was emptied. */
bool
dw_history_is_full(DwSweeperNews *news)
{
	return pg_atomic_read_u32(&news->history_is_full) != 0;
}

/* A lock keeps the sweeper from emptying the oldest table; for how long already, in us. */
int64
dw_history_locked_for(DwSweeperNews *news, TimestampTz now)
{
	(void) dw_atomic_lower(&news->history_locked_since, now);
	return now - dw_atomic_read(&news->history_locked_since);
}

/* No lock keeps the sweeper from it any more. */
void
dw_history_unlocked(DwSweeperNews *news)
{
	(void) dw_atomic_take(&news->history_locked_since);
}
