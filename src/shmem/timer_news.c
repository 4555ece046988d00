/*-------------------------------------------------------------------------
 *
 * timer_news.c
 *	  News from other processes for the timer of a database.
 *
 * Run by all processes.  A process stores its news here, and then calls dw_wake_timer().
 * All of it is atomics, so nothing here fails, waits or allocates.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/clock.h"
#include "timer_news.h"

/*
 * Flags in DwTimerNews.unarmed.  An unarmed task has another origin than this server, so
 * it does not run before delay_wheel.arm().  MET: such tasks are in the table.  LOOKING: the
 * timer is reading the table to find out; a session that commits a newer answer clears
 * this flag.
 */
#define UNARMED_MET		0x01
#define UNARMED_LOOKING	0x02

/* There is no news yet. */
void
dw_timer_news_init(DwTimerNews *news)
{
	pg_atomic_init_u64(&news->rest_until, (uint64) DW_AWAKE);
	pg_atomic_init_u32(&news->can_rest, 0);
	pg_atomic_init_u64(&news->reload_from, (uint64) DW_NEVER);
	pg_atomic_init_u64(&news->lease_end, (uint64) DW_NEVER);
	for (int i = 0; i < DW_NEWS_FLAGS; i++)
		pg_atomic_init_u32(&news->flags[i], 0);
	/* another value than this place had for its last database */
	pg_atomic_init_u32(&news->control, (uint32) dw_now());
	pg_atomic_init_u32(&news->restart, DW_RESTART_NONE);
	pg_atomic_init_u32(&news->starving, 0);
	/* a transaction may have been prepared before this place was made */
	pg_atomic_init_u32(&news->nameless, 1);
	pg_atomic_init_u32(&news->unarmed, 0);
	pg_atomic_init_u32(&news->loads, 0);
}

/*
 * If the timer rests, asks that one is there by this time, unless one will be before; then
 * *earlier is set.  False if none rests, or one must be started at once anyway.
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

/* Asks for a restart; a more urgent request stays. */
void
dw_restart_ask(DwTimerNews *news, DwRestart restart)
{
	uint32		known = pg_atomic_read_u32(&news->restart);

	/* never lower it: a restart that is due at once stays so */
	while (known < restart && !pg_atomic_compare_exchange_u32(&news->restart, &known, restart))
		;
}

/* The most urgent restart that was asked for. */
DwRestart
dw_restart_asked(DwTimerNews *news)
{
	return (DwRestart) pg_atomic_read_u32(&news->restart);
}

/* A new timer begins: it reads all settings anew. */
void
dw_restart_forget(DwTimerNews *news)
{
	pg_atomic_write_u32(&news->restart, DW_RESTART_NONE);
}

/* From which due time on all lanes are out of date: the timer deals with that now. */
TimestampTz
dw_reload_take(DwTimerNews *news)
{
	return dw_atomic_take(&news->reload_from);
}

/* So many owners need an executor to give up its place for theirs. */
void
dw_starving_set(DwTimerNews *news, uint32 owners)
{
	pg_atomic_write_u32(&news->starving, owners);
}

/* True if an owner needs an executor to give up its place; counts the owner as served. */
bool
dw_starving_take(DwTimerNews *news)
{
	uint32		waiting = pg_atomic_read_u32(&news->starving);

	while (waiting > 0)
		if (pg_atomic_compare_exchange_u32(&news->starving, &waiting, waiting - 1))
			return true;
	return false;
}

/* A transaction was prepared whose name we do not know. */
void
dw_nameless_note(DwTimerNews *news)
{
	pg_atomic_fetch_add_u32(&news->nameless, 1);
}

/* An upper bound of the number of such transactions; 0: none is open. */
uint32
dw_nameless_read(DwTimerNews *news)
{
	return pg_atomic_read_u32(&news->nameless);
}

/* None is open, unless one was noted since the caller read this number. */
void
dw_nameless_forget(DwTimerNews *news, uint32 nameless)
{
	(void) pg_atomic_compare_exchange_u32(&news->nameless, &nameless, 0);
}

/* A session knows whether unarmed tasks are in the table. */
void
dw_unarmed_set(DwTimerNews *news, bool met)
{
	pg_atomic_write_u32(&news->unarmed, met ? UNARMED_MET : 0);
}

/* The timer begins to read the table for unarmed tasks. */
void
dw_unarmed_look(DwTimerNews *news)
{
	pg_atomic_fetch_or_u32(&news->unarmed, UNARMED_LOOKING);
}

/* The timer has read the table: a session's newer answer stays. */
void
dw_unarmed_looked(DwTimerNews *news, bool met)
{
	uint32		looking = pg_atomic_read_u32(&news->unarmed);

	if (looking & UNARMED_LOOKING)
		(void) pg_atomic_compare_exchange_u32(&news->unarmed, &looking, met ? UNARMED_MET : 0);
}

/* True if unarmed tasks are in the table, as far as is known. */
bool
dw_unarmed_met(DwTimerNews *news)
{
	return (pg_atomic_read_u32(&news->unarmed) & UNARMED_MET) != 0;
}
