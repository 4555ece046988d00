/*-------------------------------------------------------------------------
 *
 * rest.c
 *	  Ends a timer for a while if it has little work.
 *
 * Run by the timer.  A server may have a thousand databases, of which few are busy.  If a timer had
 * no work for delay_wheel.timer_idle_timeout, and will have none for some time, it goes to rest, as
 * control/README.md describes.  The handshake in timer.c ensures that no change that sessions store
 * at this moment is lost.
 *
 * A timer that rests drops all entries, and the next timer reads the table again.  So a timer with
 * many entries does not rest.  If few workers are free (dw_workers_are_few()), a timer that can
 * rest rests at once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "timer.h"

/* A timer with more tasks in memory does not rest, since reading them again would cost too much. */
#define MANY_TASKS		1000
/* Shortest interval between two checks while messages or receivers wait, in us. */
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
 * Returns true if no process of the database prevents a rest of this kind.  Processes wake the
 * timer when they start and end, except sessions that wait for messages.
 *
 * A timer can give way even if sessions wait, or if ready tasks or messages cannot be taken now.
 * When this may have changed, another process wakes the timer, or the rest ends.
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
 * Returns how the timer can rest.  Sets *until to the end of the rest, or to DW_NEVER if only a
 * call ends the rest.  "next" is the time at which the timer has work other than loads.
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
 * Reads lanes with messages again, since nobody has received the messages for a long time.  If
 * entries without rows were left, the timer could never rest.
 */
static void
reread_messages(DwDatabase *db)
{
	dw_each_lane(lane, db)
		if (lane->external)
			dw_near_cut(lane, PG_INT64_MIN, PG_INT64_MIN);
	dw_near_apply_cuts();
}

/* From time to time reads waiting messages again, since they prevent a rest.  Lowers *look_at. */
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

/* Returns true if the timer must rest now.  Otherwise lowers *look_at to the next check. */
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

/* Step Z4: drops all entries before a rest until this time, since others need the memory. */
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
	 * While a long list was removed, a session may have found no message, and now waits although
	 * there are messages.  So wake one session.  If this session does not look, a timer must wake
	 * another session.
	 */
	look_at = dw_wake_receivers(db);
	if (look_at != DW_NEVER)
		dw_wake_timer(db, look_at);
}
