/*-------------------------------------------------------------------------
 *
 * timer.c
 *	  The timer: the process that hands over tasks of one database when they are due.
 *
 * Run by the timer: in each database with the extension, a session of the bootstrap superuser that
 * runs no SQL and no task.
 *
 * The timer does not poll: the handshake in sleep_until_needed(), steps H1 to H3 of the model in
 * test/model, ensures that no event is missed.  If the timer ends for any reason, the launcher
 * starts another timer, which begins without entries and reads the table.  The timer itself ends
 * when a command needs the database without sessions (hold.c), when settings of the database have
 * changed, and when the clock was set back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../ending/ending.h"
#include "../ring/ring.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/groups.h"
#include "../shmem/shared.h"
#include "timer.h"

/* Maximum number of hints that the timer takes from the inbox in one step. */
#define INBOX_SLICE		256

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

static uint32 wait_event = 0;

/*
 * Removes suspects (tasks that may have crashed the server) whose rows are gone, for example
 * cancelled tasks.  Keeps the suspects of the last hour: a lost run of a recurring task is replaced
 * by the next run, which then becomes the suspect.
 */
static void
tidy_crashes(DwDatabase *db)
{
	int64		ids[DW_MAX_SUSPECTS];
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
		dw_quits_forget_database(db->oid);
	LWLockRelease(dw_shared->table_lock);
	dw_quota_update();
	if (dw_extension_gone)
		dw_crashes_forget_database(db->oid);
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
	dw_load_reset(db);
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

/*---- Inbox ----*/

/* Hints of tasks in lanes with groups, whose rows must be read. */
static DwHint to_read[INBOX_SLICE];
static int	nto_read = 0;

/* Steps D2 to D4: puts a task before the cursor into memory.  "tid": see add_near(). */
static void
add_hinted(const DwEntry *entry, const ItemPointerData *tid)
{
	DwLane	   *lane = &dw_lanes[entry->lane];

	/* D3: the task is beyond the cursor, so a later load will read it */
	if (!dw_near_is_before_cursor(lane, entry->due, entry->id))
	{
		dw_atomic_lower(&lane->next_far, entry->due);
		dw_lane_dirty(db, lane);
	}
	/* D2, or D4 */
	else if (!dw_near_add_hard(lane, entry, tid))
	{
		dw_near_cut(lane, entry->due, entry->id);
		dw_near_apply_cuts();
	}
}

/* Requests a reload of the hint's lane, from the task of the hint on. */
static void
read_again(const DwHint *hint)
{
	dw_near_cut(&dw_lanes[hint->lane.index], hint->due, hint->id);
	dw_near_apply_cuts();
}

/* Reads the groups of the tasks in to_read, and puts these tasks into memory. */
static void
add_grouped(void)
{
	DwEntry		entries[INBOX_SLICE];
	ItemPointerData tids[INBOX_SLICE];
	bool		ok;

	if (nto_read == 0)
		return;
	ok = dw_load_hinted(to_read, nto_read, entries, tids);
	for (int i = 0; i < nto_read; i++)
		if (!ok)
			read_again(&to_read[i]);
		else if (entries[i].id != 0)
			add_hinted(&entries[i], &tids[i]);
	nto_read = 0;
}

/* Steps D1 to D4: handles a hint of a committed task, or leaves it to add_grouped(). */
static void
take_hint(const DwHint *hint)
{
	DwLane	   *lane = &dw_lanes[hint->lane.index];
	DwEntry		entry = {.due = hint->due, .id = hint->id, .lane = hint->lane.index};
	bool		before_cursor;

	if (pg_atomic_read_u32(&lane->generation) != hint->lane.generation ||
		lane->database != db->oid)
	{
		/* the lane was given back after the hint was made */
		dw_reload_ask(&db->timer_news, hint->due);
		return;
	}
	before_cursor = dw_near_is_before_cursor(lane, hint->due, hint->id);
	if (before_cursor && dw_loaded_has(hint))
		return;
	entry.block = ItemPointerGetBlockNumberNoCheck(&hint->tid);
	entry.offset = ItemPointerGetOffsetNumberNoCheck(&hint->tid);
	if (!lane->grouped || !before_cursor)
		add_hinted(&entry, NULL);
	else if (nto_read < INBOX_SLICE)
		to_read[nto_read++] = *hint;
	else
		read_again(hint);
}

/* Handles hints of the inbox, INBOX_SLICE at most.  Returns true if there were hints. */
static bool
drain_inbox(void)
{
	DwHint		hints[INBOX_SLICE];
	uint32		n = dw_inbox_drain(dw_inbox(db), hints, INBOX_SLICE);

	if (n > 0)
		DW_INJECT("drain-after-take");
	for (uint32 i = 0; i < n; i++)
		take_hint(&hints[i]);
	add_grouped();
	return n > 0;
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
	return !dw_inbox_is_empty(dw_inbox(db)) ||
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
 * Sleeps until this time, or until another process wakes this timer.  The timer publishes until
 * when it sleeps, and then checks again for work.  A committing session stores its work, and then
 * reads until when the timer sleeps.  So the timer sees the work, or the session sees that the
 * timer sleeps.
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

/*
 * Goes to rest until this time.  Returns false if another process has just stored work.
 *
 * The handshake is the same as for sleeping, except that the timer withdraws itself: a session that
 * finds no timer lowers the end of the rest (step C4), and calls the launcher.  Either the session
 * sees that the timer is withdrawn, or the timer sees the session's work.
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
	if (anything_new() || !dw_rest_is_undisturbed(db, how))
	{
		/* the timer first: until then a session that finds no timer lowers the end of the rest */
		dw_process_publish(&db->timer);
		dw_rest_publish(&db->timer_news, DW_AWAKE);
		return false;
	}
	DW_INJECT("rest-before-end");
	dw_rest_give_up(db, how, until);
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
	dw_rest_begin();

	for (;;)
	{
		bool		more;
		bool		handed_over;
		TimestampTz look_at;
		TimestampTz next;
		TimestampTz rest_until = DW_NEVER;
		DwCanRest	can_rest;
		DwLane	   *expected;

		MemoryContextReset(round_context);
		MemoryContextSwitchTo(round_context);
		calls_seen = dw_process_looks(&db->timer);
		if (dw_worker_interrupts())
			obey_settings();
		obey_clock();
		if (dw_control_read(&db->timer_news) != control_seen || control_at <= dw_now() ||
			dw_lack_since(&db->sweeper.lack) != 0)
			control_at = look_at_control(false);
		more = drain_inbox();
		lease_at = dw_lease_watch(db, take_hint);
		add_grouped();
		quota_seen = db->account.quota;
		if (db->account.used > quota_seen)
			dw_near_obey_quota();
		handed_over = dw_near_hand_over();
		while ((expected = dw_near_expected()) != NULL)
			dw_dispatch_expect(db, expected);

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
			dw_rest_begin();
			continue;
		}

		dw_load_tidy();
		look_at = Min(Min(dispatch_at, control_at), Min(dw_give_way(db), dw_restart_at(db)));
		next = Min(Min(dw_near_next(), lease_at), look_at);
		can_rest = dw_rest_possible(db, next, &rest_until);
		next = Min(next, dw_load_next());
		if (dw_rest_is_due(db, can_rest, &next))
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
