/*-------------------------------------------------------------------------
 *
 * news.c
 *	  Messages from other processes to timer and sweeper of a database.
 *
 * Run by all processes.  A process stores its message for the timer here, and then calls
 * dw_wake_timer().  The timer starts a sweeper if there are requests (call_sweeper.c).  All fields
 * are atomics, except the pids for which the sweeper waits, so no function here fails, waits or
 * allocates memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "parts.h"

/*---- To the timer ----*/

/*
 * Flags in DwTimerNews.unarmed.  An unarmed task was scheduled on another server or database, so it
 * does not run before delay_wheel.arm().  MET: the table contains unarmed tasks.  LOOKING: the
 * timer is reading the table to set MET.  A session with a newer result overwrites both flags.
 */
#define UNARMED_MET		0x01
#define UNARMED_LOOKING	0x02

/* Initializes the state without messages. */
void
dw_timer_news_init(DwTimerNews *news)
{
	pg_atomic_init_u64(&news->rest_until, (uint64) DW_AWAKE);
	pg_atomic_init_u32(&news->can_rest, 0);
	pg_atomic_init_u64(&news->reload_from, (uint64) DW_NEVER);
	pg_atomic_init_u64(&news->lease_end, (uint64) DW_NEVER);
	for (int i = 0; i < DW_NEWS_FLAGS; i++)
		pg_atomic_init_u32(&news->flags[i], 0);
	/* the value must differ from the value for the last database of this place */
	pg_atomic_init_u32(&news->control, (uint32) dw_now());
	pg_atomic_init_u32(&news->restart, DW_RESTART_NONE);
	pg_atomic_init_u32(&news->starving, 0);
	pg_atomic_init_u32(&news->newcomer, 0);
	/* transactions may have been prepared before this database got the place */
	pg_atomic_init_u32(&news->nameless, 1);
	pg_atomic_init_u32(&news->unarmed, 0);
	pg_atomic_init_u32(&news->loads, 0);
}

/*
 * If the timer rests, requests a timer by this time.  If no earlier request exists, sets *earlier
 * to true.  Returns false if no timer rests, or a timer must be started at once.
 */
bool
dw_rest_end_ask(DwTimerNews *news, TimestampTz needed, bool *earlier)
{
	uint64		until = pg_atomic_read_u64(&news->rest_until);

	*earlier = false;
	while ((TimestampTz) until != DW_AWAKE)
	{
		if (needed >= (TimestampTz) until)
			return true;
		if (pg_atomic_compare_exchange_u64(&news->rest_until, &until, (uint64) needed))
		{
			*earlier = true;
			return true;
		}
	}
	return false;
}

/*
 * Returns true if an owner can get an executor only if another executor ends.  Subtracts this owner
 * from the number of such owners.  for_newcomer: only if a short turn has to end for this.
 */
bool
dw_starving_take(DwTimerNews *news, bool for_newcomer)
{
	uint32		waiting = pg_atomic_read_u32(&news->starving);

	if (for_newcomer && (waiting == 0 || pg_atomic_read_u32(&news->newcomer) == 0 ||
						 pg_atomic_exchange_u32(&news->newcomer, 0) == 0))
		return false;
	while (waiting > 0)
		if (pg_atomic_compare_exchange_u32(&news->starving, &waiting, waiting - 1))
			return true;
	return false;
}

/* Stores the result of a session: whether the table contains unarmed tasks. */
void
dw_unarmed_set(DwTimerNews *news, bool met)
{
	pg_atomic_write_u32(&news->unarmed, met ? UNARMED_MET : 0);
}

/* Notes that the timer begins to look for unarmed tasks in the table. */
void
dw_unarmed_look(DwTimerNews *news)
{
	pg_atomic_fetch_or_u32(&news->unarmed, UNARMED_LOOKING);
}

/* Stores whether the timer has found unarmed tasks, if no session has stored a newer result. */
void
dw_unarmed_looked(DwTimerNews *news, bool met)
{
	uint32		looking = pg_atomic_read_u32(&news->unarmed);

	if (looking & UNARMED_LOOKING)
		(void) pg_atomic_compare_exchange_u32(&news->unarmed, &looking, met ? UNARMED_MET : 0);
}

/* Returns true if unarmed tasks were found in the table. */
bool
dw_unarmed_met(DwTimerNews *news)
{
	return (pg_atomic_read_u32(&news->unarmed) & UNARMED_MET) != 0;
}

/*---- To the sweeper, and its published state ----*/

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
