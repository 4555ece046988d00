/*-------------------------------------------------------------------------
 *
 * executor.c
 *	  The processes that run tasks.
 *
 * An executor is a session of one database and one role (session.c).  It
 * takes due tasks of its role from the ready lists by itself; the timer
 * starts it, wakes it and makes it end.  It ends when it was idle for
 * delay_wheel.executor_idle_timeout, is an hour old, or stale: a login would
 * find other rights or settings now (recycle.c).
 *
 * Its place in shared memory names the task that it runs until the outcome
 * is committed.  If it is terminated before, its exit callback, which runs
 * when the abort is finished, hints that task again (A1, A2 of the model); the
 * tasks of a batch are put back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/inject.h"
#include "../base/settings.h"
#include "../base/worker.h"
#include "../recurring/definition.h"
#include "../ring/ring.h"
#include "../shmem/crash_watch.h"
#include "../shmem/executors.h"
#include "../shmem/lanes.h"
#include "../shmem/outcome.h"
#include "../shmem/places.h"
#include "../shmem/queue_limits.h"
#include "../shmem/quits.h"
#include "../shmem/ready.h"
#include "../shmem/shared.h"
#include "../shmem/stats.h"
#include "../shmem/stop.h"
#include "../shmem/waiters.h"
#include "../task/my_session.h"
#include "../task/touched.h"
#include "autonomous.h"
#include "batch.h"
#include "executor.h"
#include "run_task.h"
#include "session.h"
#include "take.h"
#include "task_log.h"
#include "task_timeout.h"
#include "trial.h"

static uint32 wait_event = 0;

/* It has just looked for no task, since another one is on trial. */
static bool held_back = false;

/* current_setting('delay_wheel.task_id') */
static const char *
show_task_id(void)
{
	static char text[24];
	DwExecutor *e = dw_executor_served();

	text[0] = '\0';
	if (dw_run_now_id != 0)
		snprintf(text, sizeof(text), INT64_FORMAT, dw_run_now_id);
	else if (e != NULL && e->state == DW_EXECUTOR_BUSY)
		snprintf(text, sizeof(text), INT64_FORMAT, e->current.id);
	return text;
}

/* Called once by the postmaster. */
void
dw_executor_install(void)
{
	static char *unused = NULL;

	DefineCustomStringVariable("delay_wheel.task_id",
							   "Id of the task that this session runs; empty outside of a task.",
							   NULL, &unused, "", PGC_INTERNAL,
							   GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   NULL, NULL, show_task_id);
}

/* Tells the timer that an executor came or went. */
static void
tell_timer_of_place(void)
{
	pg_atomic_write_u32(&dw_executor_db->executors_dirty, 1);
	dw_wake_timer(dw_executor_db, DW_AWAKE);
}

/*
 * Ends the current task, under the ready lock.  *was_full: its queue was.
 * *stopped: it was to be stopped, so a cancel may be on its way.
 */
static void
finish_current(DwExecutor *me, bool *stopped, bool *was_full)
{
	DwLane	   *lane = &dw_lanes[me->current.lane];

	if (me->in_batch)
		dw_batch_end(dw_executor_db, me);
	dw_autonomous_end(dw_executor_db, me);
	me->current.id = 0;
	*stopped = dw_stop_over(me);
	*was_full = dw_limits_end(lane, me->begun);
	/* the timer may want to give it back */
	if (lane->running == 0 && lane->waiting == 0 && dw_ready_count(lane) == 0)
		dw_lane_dirty(dw_executor_db, lane);
}

/* Notes why an executor ended, if it should not have. */
static void
report_end(DwExecutor *me, bool connecting, int64 task)
{
	char		text[128];

	if (connecting)
		snprintf(text, sizeof(text), "an executor for the role with OID %u could not connect, see the server's log",
				 me->owner);
	else if (task != 0)
		snprintf(text, sizeof(text), "an executor ended while it ran task " INT64_FORMAT, task);
	else
		return;
	dw_problem(dw_executor_db, text);
}

/*
 * What is left of the task stands in failed_task since it was begun.  If it was
 * a run of a recurring one, nobody has scheduled the next.
 */
static void
report_lost(const DwHint *hint)
{
	dw_count_end(dw_executor_db, &dw_lanes[hint->lane.index], DW_FAILED);
	dw_make_waiters_look(dw_executor_db);
	ereport(LOG,
			(errcode(DW_ERRCODE_END_UNKNOWN),
			 errmsg("delay_wheel task %lld failed: it was begun, and its end is not known",
					(long long) hint->id)));
	/* it may have been a run, which nobody settles any more */
	dw_recurring_ask(dw_executor_db);
}

/*
 * Gives the place back.  Registered before the session is set up, so that it
 * runs after the abort of the transaction.
 */
static void
leave_place(int code, Datum arg)
{
	DwExecutor *me = dw_this_executor;
	bool		terminated = dw_worker_terminated();
	bool		connecting;
	bool		unfinished = false;
	bool		put_back_here = false;
	bool		lost = false;
	bool		stopped = false;
	bool		was_full;
	bool		put_back;
	bool		gone;
	DwHint		hint = {0};

	if (me == NULL)
		return;

	/* an error may have struck while one was held */
	LWLockReleaseAll();
	/* somebody but PostgreSQL has called exit(), which may well be a crash */
	if (code < 0 && me->state == DW_EXECUTOR_BUSY && me->current.id != 0)
		dw_crashes_exited(me);
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	LWLockAcquire(dw_ready_lock(dw_executor_db), LW_EXCLUSIVE);
	connecting = me->state == DW_EXECUTOR_CONNECTING;
	if (me->state == DW_EXECUTOR_BUSY && me->current.id != 0)
	{
		unfinished = true;
		put_back_here = me->in_batch;
		lost = dw_autonomous_is_lost(me);
		hint = dw_entry_hint(&me->current);
		finish_current(me, &stopped, &was_full);
	}
	put_back = me->put_back;
	/* not to run again just so: what is to be stopped, or ends us; exit() is a crash */
	if (unfinished && !put_back_here && !lost &&
		(stopped || (!put_back && !terminated && code > 0 && dw_task_sql_runs())))
		dw_quit_note(dw_executor_db->oid, hint.id, stopped);
	if (put_back)
		;						/* nobody is to blame */
	else if (terminated && (connecting || (unfinished && !dw_executor_proved)))
		/* by a person; but if over and over, rather by the task itself */
		(void) dw_owner_blocked(dw_executor_db, me->owner, DW_BLOCK_TERMINATED);
	else if (connecting)
		(void) dw_owner_blocked(dw_executor_db, me->owner, DW_BLOCK_NOT_CONNECTED);
	else if (unfinished && !dw_executor_proved)
		/* it may well be the task that ended us: not at once again */
		(void) dw_owner_blocked(dw_executor_db, me->owner, DW_BLOCK_ENDED);
	gone = dw_executor_db->absent;
	pg_atomic_write_u32(&me->xid, InvalidTransactionId);
	me->state = DW_EXECUTOR_FREE;
	me->database = InvalidOid;
	dw_trial_end(me);
	LWLockRelease(dw_ready_lock(dw_executor_db));
	LWLockRelease(dw_shared->table_lock);
	dw_this_executor = NULL;
	if (gone)
	{
		/* no extension, no tasks; the place waits for us to be given back */
		dw_wake_launcher();
		return;
	}

	if (dw_timeout_ends_process())
		ereport(LOG,
				(errmsg("an executor ends, since delay_wheel task %lld went on after its timeout",
						(long long) hint.id)));
	/* A2 */
	DW_INJECT("executor-before-rehint");
	if (unfinished && !put_back_here)
		dw_deliver(dw_executor_db, &hint);
	if (lost)
		report_lost(&hint);
	if (!put_back)
		report_end(me, connecting && !terminated, unfinished ? hint.id : 0);
	tell_timer_of_place();
}

/* Takes the place that the timer prepared; false if it is ours no more. */
static bool
take_place(int place, const DwExecutorStart *start)
{
	DwExecutor *me = &dw_executors[place];
	bool		ours;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	ours = me->state == DW_EXECUTOR_STARTING && me->generation == start->generation;
	if (ours)
	{
		dw_executor_db = dw_database_find(me->database);
		if (dw_executor_db == NULL || pg_atomic_read_u32(&dw_executor_db->holds) > 0)
		{
			me->state = DW_EXECUTOR_FREE;
			me->database = InvalidOid;
			ours = false;
		}
	}
	if (ours)
	{
		me->state = DW_EXECUTOR_CONNECTING;
		me->since = dw_now();
		me->pid = MyProcPid;
		me->proc = dw_my_proc();
		me->owner_place = dw_owner_enter(dw_executor_db, me->owner);
		dw_this_executor = me;
	}
	LWLockRelease(dw_shared->table_lock);
	return ours;
}

/* An executor of this owner works: its lanes wait no longer. */
static void
unblock_owner(DwExecutor *me)
{
	LWLockAcquire(dw_ready_lock(dw_executor_db), LW_EXCLUSIVE);
	dw_owner_unblocked(dw_executor_db, &dw_owners[me->owner_place]);
	LWLockRelease(dw_ready_lock(dw_executor_db));
}

/* Is this executor to give its place to an owner that has none? */
static bool
give_way(void)
{
	uint32		waiting = pg_atomic_read_u32(&dw_executor_db->starving);

	while (waiting > 0)
		if (pg_atomic_compare_exchange_u32(&dw_executor_db->starving, &waiting, waiting - 1))
			return true;
	return false;
}

/*
 * Does this process keep too much memory, after a task at least: none would run
 * where each process has more from the start.  Looked at seldom while there is
 * work: it takes some microseconds.
 */
static bool
keeps_too_much(bool is_idle)
{
	static int64 looked = 0;

	if (!dw_executor_proved || (!is_idle && dw_uptime() - looked < DW_TURN_US))
		return false;
	looked = dw_uptime();
	return dw_executor_memory >= 0 && dw_private_memory() > dw_executor_memory;
}

/*
 * Memberships have changed.  They hold at once in all sessions, and whoever has
 * been granted the right to grant one role can change those of all others as
 * often as he likes: we end only if we could not log in any more.
 */
static void
look_at_access(DwExecutor *me)
{
	uint32		look = DW_STALE_LOOK;
	DwAccess	access;

	/* news from now on make us look again */
	if (pg_atomic_read_u32(&me->stale) != DW_STALE_LOOK ||
		!pg_atomic_compare_exchange_u32(&me->stale, &look, DW_FRESH))
		return;
	StartTransactionCommand();
	access = dw_session_access(me->owner);
	CommitTransactionCommand();
	if (access != DW_ACCESS_LOGIN && access != DW_ACCESS_NO_LOGIN)
		pg_atomic_write_u32(&me->stale, DW_STALE_END);
}

/*
 * The task runs alone, as one that is not due yet does, or begins a batch.
 * Where batches did not go well, some are run alone in between.
 */
static void
choose_way(DwExecutor *me, const DwEntry *entry)
{
	DwLane	   *lane = &dw_lanes[entry->lane];

	if (entry->due <= dw_now() && dw_batches_allowed() && dw_ready_may_batch(lane, entry))
		dw_batch_begin(dw_executor_db, me);
	else if (lane->alone > 0)
		lane->alone--;
}

/*
 * Ends the current task, if any, and takes the next one; false if there is
 * none: then this executor counts as idle.
 */
static bool
next_task(DwExecutor *me, int64 turn_began, DwEntry *entry)
{
	DwLane	   *was_full = NULL;
	TimestampTz look_again = DW_NEVER;
	bool		found = false;
	bool		low = false;
	bool		stopped = false;
	bool		too_much;

	if (!dw_executor_proved && me->state == DW_EXECUTOR_BUSY)
	{
		dw_executor_proved = true;
		unblock_owner(me);
	}
	look_at_access(me);
	too_much = keeps_too_much(false);
	LWLockAcquire(dw_ready_lock(dw_executor_db), LW_EXCLUSIVE);
	if (me->state == DW_EXECUTOR_BUSY)
	{
		bool		full;

		finish_current(me, &stopped, &full);
		if (full)
			was_full = &dw_lanes[me->current.lane];
	}
	if (dw_executor_must_end(me) || too_much || (dw_uptime() - turn_began > DW_TURN_US && give_way()))
		me->must_exit = true;
	held_back = dw_trial_wait(me) > 0;
	if (!me->must_exit && !held_back &&
		dw_ready_pop(dw_executor_db, &dw_owners[me->owner_place], entry, &look_again))
	{
		found = true;
		low = dw_note_taken(me, entry);
		choose_way(me, entry);
	}
	me->state = found ? DW_EXECUTOR_BUSY : DW_EXECUTOR_IDLE;
	me->since = dw_now();
	/* somebody else may wait for the place */
	if (was_full != NULL && !dw_limits_full(was_full) &&
		pg_atomic_read_u64(&dw_executor_db->ready) > 0)
		look_again = DW_AWAKE;
	LWLockRelease(dw_ready_lock(dw_executor_db));

	if (stopped)
		dw_stop_absorb();
	if (low)
		dw_ask_for_load(&dw_lanes[entry->lane]);
	if (look_again != DW_NEVER)
	{
		pg_atomic_write_u32(&dw_executor_db->executors_dirty, 1);
		dw_wake_timer(dw_executor_db, look_again);
	}
	return found;
}

/* Ends, unless it has just been called for work. */
static bool
end_if_idle(DwExecutor *me)
{
	bool		idle;

	LWLockAcquire(dw_ready_lock(dw_executor_db), LW_EXCLUSIVE);
	idle = me->state == DW_EXECUTOR_IDLE;
	if (idle)
		me->must_exit = true;	/* do not call us any more */
	LWLockRelease(dw_ready_lock(dw_executor_db));
	return idle;
}

/* Signals, and new settings. */
static void
obey_interrupts(DwExecutor *me)
{
	if (!dw_session_interrupts())
		pg_atomic_write_u32(&me->stale, DW_STALE_END);
}

/* Waits for work; false when it is time to end. */
static bool
wait_for_work(DwExecutor *me)
{
	long		trial = dw_trial_wait(me);
	int			events;

	if (me->must_exit || give_way())
		return false;
	if (keeps_too_much(true))
		return !end_if_idle(me);
	/* it ended before we could be seen to be idle: nobody wakes us */
	if (held_back && trial == 0)
		return true;

	/* a wait for a synchronous standby takes the latch's word and leaves the rest to us */
	obey_interrupts(me);
	events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					   trial > 0 ? trial : dw_executor_idle_timeout,
					   dw_wait_event(wait_event, "DelayWheelExecutor"));
	ResetLatch(MyLatch);

	obey_interrupts(me);
	return trial > 0 || (events & WL_TIMEOUT) == 0 || !end_if_idle(me);
}

void
dw_executor_main(Datum place)
{
	DwExecutorStart start;
	DwExecutor *me;
	DwEntry		entry;

	/* a cancel is for a task: dw_run_task lets it in */
	HOLD_CANCEL_INTERRUPTS();
	dw_crashes_watch_signals();
	dw_worker_begin();

	memcpy(&start, MyBgworkerEntry->bgw_extra, sizeof(start));
	if (!take_place(DatumGetInt32(place), &start))
		proc_exit(0);
	me = dw_this_executor;
	before_shmem_exit(leave_place, (Datum) 0);
	dw_crashes_watch_panics();
	DW_INJECT("executor-before-connect");
	dw_session_begin(me->database, me->owner, start.can_log_in);
	/* from then on it is the SQL of the last task, as that of any session */
	pgstat_report_activity(STATE_IDLE, "delay_wheel: waiting for the first task");
	dw_executor_born = dw_uptime();

	LWLockAcquire(dw_ready_lock(dw_executor_db), LW_EXCLUSIVE);
	me->state = DW_EXECUTOR_IDLE;
	LWLockRelease(dw_ready_lock(dw_executor_db));
	tell_timer_of_place();

	for (;;)
	{
		int64		turn_began = dw_uptime();

		while (next_task(me, turn_began, &entry))
		{
			obey_interrupts(me);
			if (!me->in_batch || !dw_run_batch(dw_executor_db, me, &entry))
				dw_run_task(dw_executor_db, me, &entry);
		}
		pgstat_report_stat(true);
		if (!wait_for_work(me))
			break;
	}
	proc_exit(0);
}
