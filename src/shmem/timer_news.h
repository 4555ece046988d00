/*-------------------------------------------------------------------------
 *
 * timer_news.h
 *	  Messages from other processes to the timer of a database.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_TIMER_NEWS_H
#define DW_TIMER_NEWS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "port/atomics.h"

#include "../base/clock.h"

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
	pg_atomic_uint32 nameless;	/* maximum of prepared transactions with unknown names */
	pg_atomic_uint32 unarmed;	/* flags, see timer_news.c */
	pg_atomic_uint32 loads;		/* number of the last load; incremented by the timer only */
} DwTimerNews;

extern void dw_timer_news_init(DwTimerNews *news);
extern bool dw_rest_end_ask(DwTimerNews *news, TimestampTz needed, bool *earlier);
extern void dw_restart_ask(DwTimerNews *news, DwRestart restart);
extern bool dw_starving_take(DwTimerNews *news);
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

/* Returns the end of the first lease that the timer has not read, or DW_NEVER. */
static inline TimestampTz
dw_lease_end_asked(DwTimerNews *news)
{
	return dw_atomic_read(&news->lease_end);
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

#endif							/* DW_TIMER_NEWS_H */
