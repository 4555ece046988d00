/*-------------------------------------------------------------------------
 *
 * rest.c
 *	  Ends a timer for a while if it has little work.
 *
 * Run by the timer.  There may be a thousand databases, and few of them may be busy.  A timer goes
 * to rest if it had no work for delay_wheel.timer_idle_timeout, and will have none for some time:
 * it publishes the end of its rest (DwTimerNews.rest_until), and ends.  The launcher starts a timer
 * again ahead of this time, or when a session lowers it.  The handshake in timer.c makes sure that
 * no change that sessions store meanwhile is lost.
 *
 * A rest gives up all entries, since the next timer reads the table again.  So a timer with many
 * entries does not rest.
 *
 * A timer with due messages does not rest, either, since sessions receive them from memory.  But if
 * another database lacks a background worker, a timer that has no work itself gives way
 * (DW_CAN_GIVE_WAY): it rests, and leaves the ready messages in memory.  Sessions receive them, as
 * after a crash of a timer.  They have a timer started when few messages are left, when a message
 * must come back, and when they have received some.  So no message waits for ever.  But while the
 * next timer reads the table, a session may find no message.
 *
 * There may be fewer background workers than databases.  If few are free (dw_workers_are_few()), a
 * timer that can rest does so at once, and a process that starts a worker asks a sleeping timer to
 * rest (dw_timers_make_way()).  When the server starts, the databases get timers one after the
 * other.  A timer without near tasks ends as soon as it has read the table.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "../base/clock.h"
#include "../base/settings.h"
#include "../shmem/executors.h"
#include "../shmem/places.h"
#include "../shmem/receivers.h"
#include "../shmem/shared.h"
#include "timer.h"

/* A timer with more tasks in memory does not rest: to read them again costs too much. */
#define MANY_TASKS		1000
/* Shortest interval of looks while messages wait, or sessions wait for messages, in us. */
#define MESSAGES_US		(10 * USECS_PER_SEC)

/* Since when this timer has had no work, by dw_uptime(). */
static int64 idle_since = 0;

/* When the lanes with messages were last read again, by dw_uptime(). */
static int64 reread_at = 0;

/* Notes that this timer has work, or had work until now. */
void
dw_rest_begin(void)
{
	idle_since = dw_uptime();
	if (reread_at == 0)
		reread_at = idle_since;
}

/*
 * Returns true if no process of the database prevents a rest of this kind.  Processes tell the
 * timer when they start and end, but sessions that wait for messages end silently.
 *
 * A timer can give way even if sessions wait, or if ready tasks or messages cannot be taken now.
 * When that may have changed, the timer is told, or its rest ends.
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
 * Returns how the timer can rest, and sets *until to the end of the rest, or to DW_NEVER if only a
 * call ends it.  "next" is when the timer has work, apart from loads.
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
 * Reads lanes with messages again, since nobody has received the messages for a long time.  An
 * entry of a message without a row may be left, and the timer could never rest.
 */
static void
reread_messages(DwDatabase *db)
{
	dw_each_lane(lane, db)
		if (lane->external)
			dw_near_cut(lane, PG_INT64_MIN, PG_INT64_MIN);
	dw_near_apply_cuts();
}

/*
 * From time to time checks messages that wait, or sessions that wait for messages, since they keep
 * the timer from a rest.  Lowers *look_at to the time of the next check.
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

/* Returns true if the timer must rest now.  If not, lowers *look_at to the next look. */
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
 * Step Z4: gives up all entries before a rest until this time.  The next timer does not need the
 * entries, and other databases need the memory.
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
	 * A session may have found no message while a long list was taken away, and now waits although
	 * there are messages: wake one session.  If it does not look, a timer must wake another
	 * session.
	 */
	look_at = dw_wake_receivers(db);
	if (look_at != DW_NEVER)
		dw_wake_timer(db, look_at);
}
