/*-------------------------------------------------------------------------
 *
 * timer_news.c
 *	  Messages from other processes to the timer of a database.
 *
 * Run by all processes.  A process stores its message here, and then calls dw_wake_timer().  All
 * fields are atomics, so no function here fails, waits or allocates memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/clock.h"
#include "timer_news.h"

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

/* Requests a restart.  Does not replace a more urgent request. */
void
dw_restart_ask(DwTimerNews *news, DwRestart restart)
{
	uint32		known = pg_atomic_read_u32(&news->restart);

	/* never lower the value, so that a restart that is due at once is not delayed */
	while (known < restart && !pg_atomic_compare_exchange_u32(&news->restart, &known, restart))
		;
}

/*
 * Returns true if an owner can get an executor only if another executor ends.  Subtracts this owner
 * from the number of such owners.
 */
bool
dw_starving_take(DwTimerNews *news)
{
	uint32		waiting = pg_atomic_read_u32(&news->starving);

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
