/*-------------------------------------------------------------------------
 *
 * timer_news.c
 *	  News from other processes for the timer of a database.
 *
 * Run by all processes.  A process stores its news here, and then calls dw_wake_timer().  All
 * fields are atomics, so no function here fails, waits or allocates memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/clock.h"
#include "timer_news.h"

/*
 * Flags in DwTimerNews.unarmed.  An unarmed task was scheduled on another server or database, so it
 * does not run before delay_wheel.arm().  MET: such tasks are in the table.  LOOKING: the timer is
 * reading the table to find out.  A session that commits a newer answer clears this flag.
 */
#define UNARMED_MET		0x01
#define UNARMED_LOOKING	0x02

/* Initializes the state without news. */
void
dw_timer_news_init(DwTimerNews *news)
{
	pg_atomic_init_u64(&news->rest_until, (uint64) DW_AWAKE);
	pg_atomic_init_u32(&news->can_rest, 0);
	pg_atomic_init_u64(&news->reload_from, (uint64) DW_NEVER);
	pg_atomic_init_u64(&news->lease_end, (uint64) DW_NEVER);
	for (int i = 0; i < DW_NEWS_FLAGS; i++)
		pg_atomic_init_u32(&news->flags[i], 0);
	/* a value that differs from the one for the place's last database */
	pg_atomic_init_u32(&news->control, (uint32) dw_now());
	pg_atomic_init_u32(&news->restart, DW_RESTART_NONE);
	pg_atomic_init_u32(&news->starving, 0);
	/* a transaction may have been prepared before this place was made */
	pg_atomic_init_u32(&news->nameless, 1);
	pg_atomic_init_u32(&news->unarmed, 0);
	pg_atomic_init_u32(&news->loads, 0);
}

/*
 * If the timer rests, requests a timer by this time, and sets *earlier to true if this is earlier
 * than before.  Returns false if no timer rests, or a timer must be started at once.
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

/* Requests a restart.  A more urgent request stays. */
void
dw_restart_ask(DwTimerNews *news, DwRestart restart)
{
	uint32		known = pg_atomic_read_u32(&news->restart);

	/* never lower the value: a restart that is due at once stays due at once */
	while (known < restart && !pg_atomic_compare_exchange_u32(&news->restart, &known, restart))
		;
}

/*
 * Returns true if an owner can get an executor only if another executor ends.  Counts the owner as
 * served.
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

/* Stores whether a session has found unarmed tasks in the table. */
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

/* Stores whether the timer has found unarmed tasks, unless a session has stored a newer answer. */
void
dw_unarmed_looked(DwTimerNews *news, bool met)
{
	uint32		looking = pg_atomic_read_u32(&news->unarmed);

	if (looking & UNARMED_LOOKING)
		(void) pg_atomic_compare_exchange_u32(&news->unarmed, &looking, met ? UNARMED_MET : 0);
}

/* Returns true if, as far as is known, unarmed tasks are in the table. */
bool
dw_unarmed_met(DwTimerNews *news)
{
	return (pg_atomic_read_u32(&news->unarmed) & UNARMED_MET) != 0;
}
