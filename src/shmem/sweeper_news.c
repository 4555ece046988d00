/*-------------------------------------------------------------------------
 *
 * sweeper_news.c
 *	  Requests to the sweeper of a database, and its published state.
 *
 * Run by all processes.  All fields are atomics, except the pids for which the sweeper waits.  So
 * no function here fails, waits or allocates memory.  The timer starts a sweeper if there are
 * requests (call_sweeper.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/block.h"

#include "../base/clock.h"
#include "sweeper_news.h"

/* Initializes the state without requests. */
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
 * Publishes whether the sweeper waits for open transactions, and at most DW_SWEEP_WAITS of their
 * pids.  Needs the table lock exclusively.
 */
void
dw_sweeper_waits(DwSweeperNews *news, bool waits, const int *pids, int n)
{
	news->waits = waits;
	news->npids = n;
	if (n > 0)
		memcpy(news->pids, pids, n * sizeof(int));
}

/*---- Jobs that are requested for a time ----*/

/* Returns when the next job of any kind must be done. */
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

/*---- Limits of failed tasks and of the history ----*/

/* Publishes the number, from 0, of the current history table, and its maximum number of pages. */
void
dw_history_publish(DwSweeperNews *news, int table, BlockNumber room)
{
	pg_atomic_write_u32(&news->history_current, table + 1);
	pg_atomic_write_u32(&news->history_room, room);
}

/*
 * Notes that a lock prevents the sweeper from emptying a table.  Returns for how long the lock has
 * prevented it, in us.
 */
int64
dw_history_locked_for(DwSweeperNews *news, TimestampTz now)
{
	(void) dw_atomic_lower(&news->history_locked_since, now);
	return now - dw_atomic_read(&news->history_locked_since);
}
