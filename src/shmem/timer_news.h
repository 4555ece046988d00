/*-------------------------------------------------------------------------
 *
 * timer_news.h
 *	  News from other processes for the timer of a database.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_TIMER_NEWS_H
#define DW_TIMER_NEWS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "port/atomics.h"

#include "../base/clock.h"

/* Flags that any process sets, and the one takes that acts on it. */
typedef enum DwNews
{
	DW_NEWS_START = 0,			/* the launcher must start a timer */
	DW_NEWS_CREATED,			/* the same, since the extension was created: a timer that found
								 * none may be about to end */
	DW_NEWS_LANES,				/* the bitmap dw_dirty_lanes() is not empty */
	DW_NEWS_EXECUTORS,			/* the timer must check whether executors are needed */
	DW_NEWS_RIGHTS,				/* blocked owners may try again at once */
	DW_NEWS_PREPARED,			/* a prepared transaction ended: delete what is done of
								 * delay_wheel_data.prepared */
	DW_NEWS_ROLES,				/* a role was dropped: the timer must look for its lanes */
	DW_NEWS_GROUPS,				/* what holds groups may be over, of whatever groups */
	DW_NEWS_REST				/* background workers are short: the timer goes to rest at once
								 * if it can */
} DwNews;

#define DW_NEWS_FLAGS	(DW_NEWS_REST + 1)

/* Whether a timer can end for a while. */
typedef enum DwCanRest
{
	DW_CANNOT_REST = 0,
	DW_CAN_GIVE_WAY,			/* if another database lacks the background worker: it has nothing
								 * to do itself, but sessions may, with what it has in memory */
	DW_CAN_REST
} DwCanRest;

/*
 * Whether timer and sweeper of a database must end, so that new ones can start with new
 * settings or a new clock, if any are still wanted.
 */
typedef enum DwRestart
{
	DW_RESTART_NONE = 0,
	DW_RESTART_SOON,			/* settings have changed; not more often than once a second */
	DW_RESTART_NOW				/* the database has become a template, or the clock was set */
} DwRestart;

/* Atomics only: sessions write it in commit callbacks. */
typedef struct DwTimerNews
{
	/*
	 * while the timer rests: when a timer must be there again.  Sessions lower it, the
	 * launcher starts a timer ahead of it.  DW_AWAKE: none rests, or one must be started
	 * at once
	 */
	pg_atomic_uint64 rest_until;
	pg_atomic_uint32 can_rest;	/* a DwCanRest: the timer sleeps, and could rest instead; a
								 * hint */
	pg_atomic_uint64 reload_from;	/* as a lane's, for all lanes, and for tasks whose lane
									 * is not known */
	pg_atomic_uint64 lease_end;	/* when the first lease ends that the timer has not looked at;
								 * lowered by sessions that lease */
	pg_atomic_uint32 flags[DW_NEWS_FLAGS];	/* by DwNews */
	pg_atomic_uint32 control;	/* raised when a change of a queue, a pause or a mark of
								 * delay_cancel_all() was committed */
	pg_atomic_uint32 restart;	/* a DwRestart */
	pg_atomic_uint32 starving;	/* owners that need an executor to give up its place for
								 * theirs */
	pg_atomic_uint32 nameless;	/* upper bound of prepared transactions whose name we do not
								 * know; 0: none is open */
	pg_atomic_uint32 unarmed;	/* flags, see timer_news.c */
	pg_atomic_uint32 loads;		/* number of the last load; raised by the timer only */
} DwTimerNews;

extern void dw_timer_news_init(DwTimerNews *news);
extern bool dw_rest_end_ask(DwTimerNews *news, TimestampTz needed, bool *earlier);
extern void dw_restart_ask(DwTimerNews *news, DwRestart restart);
extern DwRestart dw_restart_asked(DwTimerNews *news);
extern void dw_restart_forget(DwTimerNews *news);
extern TimestampTz dw_reload_take(DwTimerNews *news);
extern void dw_starving_set(DwTimerNews *news, uint32 owners);
extern bool dw_starving_take(DwTimerNews *news);
extern void dw_nameless_note(DwTimerNews *news);
extern uint32 dw_nameless_read(DwTimerNews *news);
extern void dw_nameless_forget(DwTimerNews *news, uint32 nameless);
extern void dw_unarmed_set(DwTimerNews *news, bool met);
extern void dw_unarmed_look(DwTimerNews *news);
extern void dw_unarmed_looked(DwTimerNews *news, bool met);
extern bool dw_unarmed_met(DwTimerNews *news);

/* Step Z1 of going to rest, and its withdrawal by DW_AWAKE.  No barrier. */
static inline void
dw_rest_publish(DwTimerNews *news, TimestampTz until)
{
	pg_atomic_write_u64(&news->rest_until, (uint64) until);
}

/* When a timer that rests must be there again; DW_AWAKE: at once, or none rests. */
static inline TimestampTz
dw_rest_until(DwTimerNews *news)
{
	return dw_atomic_read(&news->rest_until);
}

/* Tells others whether the timer, which sleeps, could rest instead. */
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

/* True if the flag is set. */
static inline bool
dw_news_is_told(DwTimerNews *news, DwNews flag)
{
	return pg_atomic_read_u32(&news->flags[flag]) != 0;
}

/* True if the flag was set; clears it.  Full barrier. */
static inline bool
dw_news_take(DwTimerNews *news, DwNews flag)
{
	return pg_atomic_exchange_u32(&news->flags[flag], 0) != 0;
}

/* Queues, pauses or marks have changed: all processes read them again.  Full barrier. */
static inline void
dw_control_raise(DwTimerNews *news)
{
	pg_atomic_fetch_add_u32(&news->control, 1);
}

/* Another value than before tells that queues, pauses or marks have changed. */
static inline uint32
dw_control_read(DwTimerNews *news)
{
	return pg_atomic_read_u32(&news->control);
}

/* What is in memory from this due time on is out of date, in all lanes. */
static inline void
dw_reload_ask(DwTimerNews *news, TimestampTz from)
{
	(void) dw_atomic_lower(&news->reload_from, from);
}

/* A lease ends then; true if the timer has to look earlier than it knew. */
static inline bool
dw_lease_end_ask(DwTimerNews *news, TimestampTz at)
{
	return dw_atomic_lower(&news->lease_end, at);
}

/* When the first lease ends that the timer has not looked at; DW_NEVER if there is none. */
static inline TimestampTz
dw_lease_end_asked(DwTimerNews *news)
{
	return dw_atomic_read(&news->lease_end);
}

/* Takes this time; what is asked from now on is another one. */
static inline TimestampTz
dw_lease_end_take(DwTimerNews *news)
{
	return dw_atomic_take(&news->lease_end);
}

/* The number of the last load that has its snapshot.  No barrier. */
static inline uint32
dw_loads_read(DwTimerNews *news)
{
	return pg_atomic_read_u32(&news->loads);
}

/* A load has its snapshot, and reads.  Full barrier. */
static inline void
dw_loads_raise(DwTimerNews *news)
{
	pg_atomic_fetch_add_u32(&news->loads, 1);
}

/* From which due time on all lanes are out of date; DW_NEVER if none is. */
static inline TimestampTz
dw_reload_asked(DwTimerNews *news)
{
	return dw_atomic_read(&news->reload_from);
}

#endif							/* DW_TIMER_NEWS_H */
