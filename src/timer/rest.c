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
 * Nor does one of a database with messages that are due, since sessions receive them from
 * memory.  But if another database lacks a background worker, a timer that has nothing to do
 * itself gives way (DW_CAN_GIVE_WAY): it rests, and leaves what is ready.  Sessions receive it as
 * after a timer has died, and have one started when few messages are left, when one is to come
 * back, and when they have received some.  So no message waits for ever; in the moment in which the next
 * timer reads the table anew, a session may find none.
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
#include "timer.h"

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

/*
 * True if no process of the database needs the timer, for a rest of this kind.  Each of them, when
 * it comes or goes, tells the timer; but sessions that wait for messages, when they go.
 *
 * To give way, sessions may wait, and tasks or messages be ready which nobody can take now: when
 * that may have changed the timer is told, or has said until when it rests.
 */
bool
dw_rest_is_undisturbed(DwDatabase *db, DwCanRest how)
{
	if (how == DW_CAN_REST && (db->awaiting > 0 || pg_atomic_read_u64(&db->ready) > 0))
		return false;
	return !dw_executors_exist(db->oid) && db->sweeper.state == DW_PROCESS_NONE &&
		dw_receivers_oldest(db) == DW_NEVER &&
		dw_restart_asked(&db->timer_news) == DW_RESTART_NONE && !dw_database_is_held(db);
}

/*
 * Tells how the timer can rest, and sets *until to until when, DW_NEVER if until it is called.
 * next is when it has something to do, apart from loads.
 */
DwCanRest
dw_rest_possible(DwDatabase *db, TimestampTz next, TimestampTz *until)
{
	if (dw_timer_idle_timeout < 0 || !dw_rest_is_undisturbed(db, DW_CAN_GIVE_WAY))
		return DW_CANNOT_REST;
	*until = Min(next, dw_load_first_due());
	/* otherwise the launcher would start the next timer at once */
	if (*until <= dw_time_add(dw_now(), 2 * dw_rest_margin()))
		return DW_CANNOT_REST;
	return pg_atomic_read_u64(&db->near) <= MANY_TASKS && dw_rest_is_undisturbed(db, DW_CAN_REST) ?
		DW_CAN_REST : DW_CAN_GIVE_WAY;
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

/* True if it is time to rest, if it can.  Else lowers *look_at to the time of the next look. */
bool
dw_rest_is_due(DwDatabase *db, DwCanRest how, TimestampTz *look_at)
{
	int64		timeout = (int64) dw_timer_idle_timeout * 1000;
	bool		asked = dw_news_take(&db->timer_news, DW_NEWS_REST);
	int64		left;

	if (how == DW_CAN_GIVE_WAY && asked)
		return true;
	if (how != DW_CAN_REST)
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

/*
 * Step Z4: the timer rests until this time: gives up what is in memory, which is of no use to the next
 * timer, since others need the memory.
 */
void
dw_rest_give_up(DwDatabase *db, DwCanRest how, TimestampTz until)
{
	TimestampTz look_at;

	dw_load_rest(until);
	if (how == DW_CAN_REST)
	{
		dw_near_reset(db);
		return;
	}
	dw_near_leave_ready(Max(MANY_TASKS / Max(db->nlanes, 1), 1));

	/*
	 * a session may have come while a long list was taken away from it, and wait for what is there
	 * again; if it does not look a timer must wake another one
	 */
	look_at = dw_wake_receivers(db);
	if (look_at != DW_NEVER)
		dw_wake_timer(db, look_at);
}
