/*-------------------------------------------------------------------------
 *
 * timer.c
 *	  The timer: the process that hands over tasks of one database when they are due.
 *
 * Run by the timer: in each database with the extension, a session of the bootstrap superuser.  If
 * the timer ends for any reason, the launcher starts another timer, which begins without entries
 * and reads the table.  The timer itself ends when a command needs the database without sessions
 * (hold.c), when settings of the database have changed, and when the clock was set back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/extension.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../ending/ending.h"
#include "../ring/ring.h"
#include "../shmem/executors.h"
#include "../shmem/groups.h"
#include "../shmem/shared.h"
#include "timer.h"

/* A timer with more tasks in memory does not rest, since reading them again would cost too much. */
#define MANY_TASKS		1000

static DwDatabase *db = NULL;

/* How this timer ends, unless it gets a SIGTERM. */
static DwProcessEnd ends_as = DW_PROCESS_FAILED;

/* Value of "control" before the timer last looked at queues, pauses and marks. */
static uint32 control_seen = 0;

/* When this timer must look for ended leases, as computed at its last look. */
static TimestampTz lease_at = DW_NEVER;

/* Number of calls (wake-ups) of this timer before it last looked for work. */
static uint32 calls_seen = 0;

/* Value of db->account.quota before the timer last gave back memory beyond its quota. */
static uint32 quota_seen = 0;

/* Since when this timer has had no work, by dw_uptime(). */
static int64 idle_since = 0;

static uint32 wait_event = 0;

/*
 * Removes suspects (tasks that may have crashed the server) whose rows are gone, for example
 * cancelled tasks.  Keeps the suspects of the last hour: a lost run of a recurring task is replaced
 * by the next run, which then becomes the suspect.
 */
static void
tidy_crashes(DwDatabase *db)
{
	int64		ids[DW_MAX_NOTES];
	int			n = dw_crashes_list(db->oid, dw_now() - USECS_PER_HOUR, ids);
	Relation	rel;

	if (n == 0)
		return;
	rel = dw_read_begin();
	for (int i = 0; rel != NULL && i < n; i++)
		if (dw_task_find(rel, ids[i], GetActiveSnapshot()) == NULL)
			dw_crashes_end(db->oid, ids[i], 0);
	dw_read_end(rel);
}

/* Exit callback: records how this timer ends, and wakes the launcher to start another timer. */
static void
give_database_back(int code, Datum arg)
{
	/* after an error this process may still hold LWLocks */
	LWLockReleaseAll();

	/* without the extension, executors have no tasks */
	if (dw_extension_gone)
		dw_executors_end(db, InvalidOid);

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	dw_process_ends(&db->timer, ends_as == DW_PROCESS_FAILED && dw_worker_terminated() ?
					DW_PROCESS_FINISHED : ends_as);
	db->absent = dw_extension_gone;
	if (dw_extension_gone)
		dw_notes_forget_database(db->oid);
	LWLockRelease(dw_shared->table_lock);
	dw_quota_update();
	/* the next timer notes its own lacks */
	dw_lack_ends(&db->executors_lack);
	dw_lack_ends(&db->sweeper.lack);
	dw_worker_leaves();
	dw_wake_launcher();
}

/*
 * Takes over the database that the launcher has chosen, and connects to this database.  Exits if
 * the place belongs to another database now, or a command needs the database without sessions.
 */
static void
take_database(Datum number)
{
	Oid			oid;

	db = dw_database(DatumGetInt32(number));
	memcpy(&oid, MyBgworkerEntry->bgw_extra, sizeof(oid));

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	if (db->oid != oid || db->timer.state != DW_PROCESS_STARTING)
	{
		LWLockRelease(dw_shared->table_lock);
		proc_exit(0);
	}
	if (dw_database_is_held(db))
	{
		/* from now on, a command that holds the database finds the pid */
		dw_process_ends(&db->timer, DW_PROCESS_FINISHED);
		LWLockRelease(dw_shared->table_lock);
		dw_wake_launcher();
		proc_exit(0);
	}
	dw_process_takes_over(&db->timer);
	LWLockRelease(dw_shared->table_lock);
	before_shmem_exit(give_database_back, (Datum) 0);
	BackgroundWorkerInitializeConnectionByOid(oid, InvalidOid, 0);
}

/*
 * Returns true if this timer must end: a command needs the database without sessions, or a restart
 * was requested.  A request is stored before the timer's latch is set, see dw_call_timer().
 */
static bool
timer_asked_to_end(void)
{
	if (!dw_database_is_held(db) && dw_restart_at(db) > dw_now())
		return false;
	ends_as = DW_PROCESS_FINISHED;
	return true;
}

/* If the clock was set back, makes this timer end, since the next timer has no outdated times. */
static void
obey_clock(void)
{
	int64		back = dw_worker_clock_set_back();

	if (back == 0)
		return;
	ereport(LOG,
			(errmsg("the clock was set back by %.3f s", back / 1000000.0),
			 errdetail("The delay_wheel timer of database \"%s\" starts anew. Tasks wait until they are due by the new time.",
					   db->name)));
	dw_call_timer(db, DW_RESTART_NOW);
}

/* Applies settings.  Called whenever settings may have changed. */
static void
obey_settings(void)
{
	pg_atomic_write_u32(&db->disabled, dw_enabled ? 0 : 1);
	dw_dispatch_end_surplus(db);
	dw_retention_obey_settings(db);
	/* more executors, or tasks of superusers, may be allowed now, or the window be longer */
	dw_news_tell(&db->timer_news, DW_NEWS_EXECUTORS);
	dw_news_tell(&db->timer_news, DW_NEWS_RIGHTS);
	dw_load_settings_changed();
}

/*
 * Exits if the database does not have the extension, before the state is DW_PROCESS_RUNNING.  The
 * launcher also starts timers for this check, and continues with the next database.
 */
static void
require_extension(void)
{
	StartTransactionCommand();
	dw_extension_gone = !OidIsValid(get_extension_oid("delay_wheel", true));
	dw_database_set_name(db, get_database_name(MyDatabaseId));
	CommitTransactionCommand();
	if (dw_extension_gone)
		proc_exit(0);
}

/* Publishes this timer, so that committing sessions wake it, and prepares its parts. */
static void
begin_service(void)
{
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	dw_process_set_state(&db->timer, DW_PROCESS_RUNNING);
	LWLockRelease(dw_shared->table_lock);
	dw_quota_update();
	dw_process_publish(&db->timer);
	/* from now on the timer reads changes of sessions that have found no timer */
	(void) dw_news_take(&db->timer_news, DW_NEWS_START);
	/* the launcher starts one timer at a time, and has waited for this timer */
	dw_wake_launcher();

	DW_INJECT("begin-before-reset");
	dw_near_reset(db);
	DW_INJECT("begin-after-reset");
	dw_dispatch_begin(db);
	dw_load_begin(db);
	dw_lease_watch_begin(db);
	tidy_crashes(db);
	dw_retention_begin(db);
	obey_settings();
	/* after a rest nothing is logged, since a thousand databases would flood the log */
	if (!dw_process_follows_rest(&db->timer))
		ereport(LOG,
				(errmsg("delay_wheel serves database \"%s\"", db->name)));
}

/*
 * Reads queues, pauses and marks of delay_cancel_all(), if they were changed, or at the first call.
 */
static TimestampTz
look_at_control(bool first)
{
	uint32		control = dw_control_read(&db->timer_news);
	bool		changed = first || control != control_seen;
	TimestampTz queues_at;
	TimestampTz sweeper_at;

	/* the counter is read before the tables, so that a later change is noticed */
	control_seen = control;
	pg_memory_barrier();
	queues_at = dw_queues_look(db, changed);
	sweeper_at = dw_sweeper_look(db, changed);
	return Min(queues_at, sweeper_at);
}

/* If another process has noted that the reason for a hold may be gone, ends the holds of groups. */
static void
let_groups_go(void)
{
	if (!dw_news_take(&db->timer_news, DW_NEWS_GROUPS))
		return;
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_each_lane(lane, db)
		dw_groups_obey_limits(lane);
	LWLockRelease(dw_ready_lock(db));
	dw_news_tell(&db->timer_news, DW_NEWS_EXECUTORS);
}

/*---- Sleeping ----*/

/*
 * Step H2, and H2v of leases: returns true if another process has stored work for this timer,
 * perhaps before that process could see that the timer sleeps.
 */
static bool
anything_new(void)
{
	return !dw_inbox_is_empty(db->inbox) ||
		dw_control_read(&db->timer_news) != control_seen ||
		db->account.quota != quota_seen ||
		dw_process_calls(&db->timer) != calls_seen ||
		dw_atomic_read(&db->timer_news.lease_end) < lease_at ||
		dw_worker_is_signalled() ||
		(dw_reload_asked(&db->timer_news) != DW_NEVER && dw_load_next() <= dw_now()) ||
		dw_news_is_told(&db->timer_news, DW_NEWS_LANES) ||
		dw_news_is_told(&db->timer_news, DW_NEWS_EXECUTORS) ||
		dw_news_is_told(&db->timer_news, DW_NEWS_GROUPS) ||
		dw_news_is_told(&db->timer_news, DW_NEWS_REST);
}

/*
 * Sleeps until this time, or until another process wakes this timer.  The handshake, steps H1 to H3
 * of the model in test/model, is in README.md.
 */
static void
sleep_until_needed(TimestampTz until)
{
	DW_INJECT("sleep-before-publish");
	/* H1 */
	dw_process_sleeps(&db->timer, until);
	/* B4 */
	pg_memory_barrier();
	DW_INJECT("sleep-after-publish");
	if (!anything_new())
	{
		DW_INJECT("sleep-before-wait");
		/* H3 */
		dw_worker_activity(STATE_IDLE, "delay_wheel: sleeping until a task is due, or is scheduled");
		dw_alarm_wait(until, DW_NEVER, dw_wait_event(wait_event, "DelayWheelTimer"));
	}
	/* W0 */
	dw_process_sleeps(&db->timer, DW_AWAKE);
	ResetLatch(MyLatch);
}

/*---- Resting ----*/

/*
 * A server may have a thousand databases, of which few are busy.  If a timer had no work for
 * delay_wheel.timer_idle_timeout, and will have none for some time, it goes to rest, as
 * control/README.md describes.  A timer that rests drops all entries, and the next timer reads the
 * table again.  So a timer with many entries does not rest.  If few workers are free
 * (dw_workers_are_few()), a timer that can rest rests at once.
 */

/* Notes that this timer has work, or had work until now. */
static void
note_work(void)
{
	idle_since = dw_uptime();
}

/*
 * Returns true if no process of the database prevents a rest of this kind.  Processes wake the
 * timer when they start and end, except sessions that wait for messages.
 *
 * A timer can give way even if sessions wait, or if ready tasks or messages cannot be taken now.
 * When this may have changed, another process wakes the timer, or the rest ends.
 */
static bool
is_undisturbed(DwCanRest how)
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
static DwCanRest
how_to_rest(TimestampTz next, TimestampTz *until)
{
	if (dw_timer_idle_timeout < 0 || !is_undisturbed(DW_CAN_GIVE_WAY))
		return DW_CANNOT_REST;
	*until = dw_load_first_due();
	*until = Min(*until, next);
	/* otherwise the launcher would start the next timer at once */
	if (*until <= dw_time_add(dw_now(), 2 * dw_rest_margin()))
		return DW_CANNOT_REST;
	return pg_atomic_read_u64(&db->near) <= MANY_TASKS && is_undisturbed(DW_CAN_REST) ?
		DW_CAN_REST : DW_CAN_GIVE_WAY;
}

/* Returns true if the timer must rest now.  Otherwise lowers *look_at to the next check. */
static bool
rest_is_due(DwCanRest how, TimestampTz *look_at)
{
	int64		timeout = (int64) dw_timer_idle_timeout * 1000;
	bool		asked = dw_news_take(&db->timer_news, DW_NEWS_REST);
	TimestampTz unreceived_at;
	int64		left;

	if (how == DW_CAN_GIVE_WAY && asked)
		return true;
	if (how != DW_CAN_REST)
	{
		note_work();
		/* entries without rows must not prevent a rest for ever */
		unreceived_at = dw_unreceived_look(db);
		*look_at = Min(*look_at, unreceived_at);
		return false;
	}
	left = asked || dw_workers_are_few() ? 0 : idle_since + timeout - dw_uptime();
	if (left <= 0)
		return true;
	*look_at = Min(*look_at, dw_now() + left);
	return false;
}

/* Step Z4: drops all entries before a rest until this time, since others need the memory. */
static void
give_up_entries(DwCanRest how, TimestampTz until)
{
	TimestampTz look_at;

	/* the next timer must load the tasks of entries that are dropped now */
	dw_each_lane(lane, db)
		if (lane->waiting > 0)
			dw_atomic_lower(&lane->next_far, until);
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

/*
 * Goes to rest until this time.  Returns false if another process has just stored work.  The
 * handshake is in control/README.md.
 */
static bool
go_to_rest(DwCanRest how, TimestampTz until)
{
	DW_INJECT("rest-before-publish");
	/* Z1: published before Z2, so a process that sees Z2 also sees that the timer rests */
	dw_rest_publish(&db->timer_news, until);
	/* Z2, with a full barrier */
	dw_process_withdraw(&db->timer);
	DW_INJECT("rest-after-withdraw");
	/* Z3 */
	if (anything_new() || !is_undisturbed(how))
	{
		/* the timer first: until then a session that finds no timer lowers the end of the rest */
		dw_process_publish(&db->timer);
		dw_rest_publish(&db->timer_news, DW_AWAKE);
		return false;
	}
	DW_INJECT("rest-before-end");
	give_up_entries(how, until);
	ends_as = DW_PROCESS_RESTS;
	return true;
}

/* Main function of the background worker.  The argument is the number of its database. */
void
dw_timer_main(Datum number)
{
	TimestampTz dispatch_at = PG_INT64_MIN;
	TimestampTz control_at;
	MemoryContext round_context;

	/* pg_cancel_backend() has no effect, since the timer runs no query */
	pqsignal(SIGINT, PG_SIG_IGN);
	dw_crashes_watch_signals();
	dw_worker_begin();
	take_database(number);
	require_extension();
	dw_alarm_create();
	begin_service();
	round_context = AllocSetContextCreate(TopMemoryContext, "delay_wheel timer",
										  ALLOCSET_DEFAULT_SIZES);
	control_at = look_at_control(true);
	note_work();

	for (;;)
	{
		bool		more;
		bool		handed_over;
		TimestampTz look_at;
		TimestampTz next;
		TimestampTz rest_until = DW_NEVER;
		DwCanRest	can_rest;
		List	   *expected;
		ListCell   *lc;

		MemoryContextReset(round_context);
		MemoryContextSwitchTo(round_context);
		calls_seen = dw_process_looks(&db->timer);
		if (dw_worker_interrupts())
			obey_settings();
		obey_clock();
		if (dw_control_read(&db->timer_news) != control_seen || control_at <= dw_now() ||
			dw_lack_since(&db->sweeper.lack) != 0)
			control_at = look_at_control(false);
		more = dw_hints_drain_inbox();
		lease_at = dw_lease_watch(db);
		quota_seen = db->account.quota;
		if (db->account.used > quota_seen)
			dw_near_obey_quota();
		handed_over = dw_near_hand_over(&expected);
		foreach(lc, expected)
			dw_dispatch_expect(db, lfirst(lc));

		let_groups_go();
		if (dw_news_take(&db->timer_news, DW_NEWS_EXECUTORS) || handed_over ||
			pg_atomic_read_u64(&db->ready) > 0 || dw_now() >= dispatch_at)
			dispatch_at = dw_dispatch(db);

		if (dw_load_some())
			more = true;
		if (dw_extension_gone || timer_asked_to_end())
			break;
		if (more || handed_over)
		{
			note_work();
			continue;
		}

		dw_load_tidy();
		/* Min() would call its argument twice */
		look_at = dw_give_way(db);
		look_at = Min(Min(dispatch_at, control_at), Min(look_at, dw_restart_at(db)));
		next = dw_near_next();
		next = Min(Min(next, lease_at), look_at);
		can_rest = how_to_rest(next, &rest_until);
		next = Min(next, dw_load_next());
		if (rest_is_due(can_rest, &next))
		{
			if (go_to_rest(can_rest, rest_until))
				break;
			continue;
		}
		dw_can_rest(&db->timer_news, can_rest);
		sleep_until_needed(next);
		dw_can_rest(&db->timer_news, DW_CANNOT_REST);
	}
	proc_exit(0);
}
