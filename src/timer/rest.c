/*-------------------------------------------------------------------------
 *
 * rest.c
 *	  When a timer has so little to do that it can end for a while.
 *
 * Run by the timer.  There may be a thousand databases, of which few are busy.  A timer that
 * had nothing to do for delay_wheel.timer_idle_timeout, and will have nothing for some time,
 * goes to rest: it publishes until when (DwTimerNews.rest_until), and ends.  The launcher
 * starts a timer again ahead of that time, or when a session lowers it.  timer.c has the
 * handshake, so that nothing is lost that sessions tell meanwhile.
 *
 * What is in memory is given up, since the next timer reads the table anew.  So a timer with
 * much in memory does not rest.
 *
 * Background workers may be fewer than databases.  If few are left (dw_workers_are_few()), a
 * timer that could rest does so at once, and a process that starts another one asks a timer that
 * sleeps to rest (dw_timers_make_way()).  So at the start of the server, when a timer is started in
 * each database, one after the other, those of which nothing is near end as soon as they know that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "../base/clock.h"
#include "../base/settings.h"
#include "../ring/lane_heap.h"
#include "../shmem/executors.h"
#include "../shmem/places.h"
#include "../shmem/receivers.h"
#include "../shmem/shared.h"
#include "load.h"
#include "near.h"
#include "rest.h"

/* A timer that has more tasks in memory does not rest: it costs too much to read them again. */
#define MANY_TASKS		1000
/* Shortest interval of the looks while messages wait, or sessions wait for some, in us. */
#define MESSAGES_US		(10 * USECS_PER_SEC)

/* Since when this timer has had nothing to do, by dw_uptime(). */
static int64 idle_since = 0;

/* When the lanes with messages were last read again, by dw_uptime(). */
static int64 reread_at = 0;

/* This timer has something to do, or had until now. */
void
dw_rest_begin(void)
{
	idle_since = dw_uptime();
	if (reread_at == 0)
		reread_at = idle_since;
}

/* True if the database has an executor, also one that is still starting. */
static bool
has_executor(DwDatabase *db)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].database == db->oid && dw_executors[i].state != DW_EXECUTOR_FREE)
			return true;
	return false;
}

/*
 * True if no process of the database needs the timer.  Each of them, when it comes or goes,
 * tells the timer; but sessions that wait for messages, when they go.
 */
bool
dw_rest_is_undisturbed(DwDatabase *db)
{
	return !has_executor(db) && db->sweeper.state == DW_PROCESS_NONE && db->awaiting == 0 &&
		pg_atomic_read_u64(&db->ready) == 0 && dw_receivers_oldest(db) == DW_NEVER &&
		dw_restart_asked(&db->timer_news) == DW_RESTART_NONE && !dw_database_is_held(db);
}

/*
 * Returns until when the timer can rest, DW_NEVER if until it is called; or DW_NO_REST.  next
 * is when it has something to do, apart from loads.
 */
TimestampTz
dw_rest_possible(DwDatabase *db, TimestampTz next)
{
	TimestampTz until;

	if (dw_timer_idle_timeout < 0 || pg_atomic_read_u64(&db->near) > MANY_TASKS ||
		!dw_rest_is_undisturbed(db))
		return DW_NO_REST;
	until = Min(next, dw_load_first_due());
	/* otherwise the launcher would start the next timer at once */
	return until > dw_time_add(dw_now(), 2 * dw_rest_margin()) ? until : DW_NO_REST;
}

/*
 * Has lanes with messages read again that nobody has received for long: an entry may be left of
 * one that is gone, and with it the timer could never rest.
 */
static void
reread_messages(DwDatabase *db)
{
	for (int32 i = db->lanes; i != DW_NO_LANE; i = dw_lanes[i].next)
		if (dw_lanes[i].external)
			dw_near_cut(&dw_lanes[i], PG_INT64_MIN, PG_INT64_MIN);
	dw_near_apply_cuts();
}

/*
 * Messages wait, or sessions for some, which is why the timer cannot rest: looks at that from
 * time to time.  Lowers *look_at to the time of the next look.
 */
static void
look_at_messages(DwDatabase *db, TimestampTz *look_at)
{
	int64		interval = Max((int64) dw_timer_idle_timeout * 1000, MESSAGES_US);
	int64		left = reread_at + interval - dw_uptime();

	if (left <= 0)
	{
		reread_at = dw_uptime();
		left = interval;
		if (db->awaiting == 0)
			reread_messages(db);
	}
	*look_at = Min(*look_at, dw_now() + left);
}

/*
 * True if it is time to rest, which is possible until this time, or not possible.  Else lowers
 * *look_at to the time of the next look.
 */
bool
dw_rest_is_due(DwDatabase *db, TimestampTz until, TimestampTz *look_at)
{
	int64		timeout = (int64) dw_timer_idle_timeout * 1000;
	bool		asked = dw_news_take(&db->timer_news, DW_NEWS_REST);
	int64		left;

	if (until == DW_NO_REST)
	{
		dw_rest_begin();
		if (timeout >= 0 && (db->awaiting > 0 || pg_atomic_read_u64(&db->ready) > 0))
			look_at_messages(db, look_at);
		return false;
	}
	left = asked || dw_workers_are_few() ? 0 : idle_since + timeout - dw_uptime();
	if (left <= 0)
		return true;
	*look_at = Min(*look_at, dw_now() + left);
	return false;
}
