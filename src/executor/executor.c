/*-------------------------------------------------------------------------
 *
 * executor.c
 *	  The main loop, start and exit of executors, the processes that run tasks.
 *
 * Run by executors.  An executor is a session of one database and one role (session.c).  It takes
 * due tasks of its role from the ready lists by itself.  The timer starts executors, wakes them and
 * makes them end.  An executor also ends when it is stale: a new login would find other rights or
 * settings (recycle.c).
 *
 * A stale executor that has run no task takes one task before it ends, if the task was due at the
 * login of the executor, and the role may still log in.  Otherwise permanent changes of settings
 * would prevent all tasks of the database from running.
 *
 * An executor's place is its struct DwExecutor in shared memory.  The place names the running task
 * until the outcome is committed.  If the executor is terminated before this, its exit callback
 * gives a hint of this task, after the abort (A1, A2 of the model), or puts the tasks of its batch
 * back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pgstat.h"

#include "../base/worker.h"
#include "executor.h"

/*
 * Longest life of an executor, in us.  Its end frees memory that the session has cached for tasks.
 */
#define MAX_AGE_US	USECS_PER_HOUR

/* After this time without a pause, in us, an executor ends if another owner waits for one. */
#define TURN_US		(100 * 1000)

/* The same if this owner is a newcomer (see DW_JUMPS_MAX), in us. */
#define NEWCOMER_TURN_US	(3 * 1000)

/* After a quick turn an executor is kept for this time, in us. */
#define KEPT_US			USECS_PER_SEC

/* The database of this executor. */
static DwDatabase *executor_db = NULL;

/* True if this executor has survived the end of a task, or of a batch. */
static bool executor_proved = false;

/* Start of this executor, by dw_uptime(). */
static int64 executor_born = 0;

/* Start of this executor's login.  It read its settings later. */
static TimestampTz login_at = 0;

static uint32 wait_event = 0;

/* Returns the value of delay_wheel.task_id: the task that this session runs, or ''. */
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

/* Defines delay_wheel.task_id.  Called once by the postmaster. */
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

/*
 * Ends the current task in this executor's place, under the ready lock.  Returns the lane if its
 * queue ran max_running tasks, so that another task may begin now, else NULL.  Sets *stopped to
 * true if a session wanted to stop the task, so that a cancel may still be pending.
 */
static DwLane *
finish_current(DwExecutor *me, bool *stopped)
{
	DwLane	   *lane = &dw_lanes[me->current.lane];
	bool		was_full;

	if (me->in_batch)
		dw_batch_end(executor_db, me);
	dw_autonomous_end(executor_db, me);
	me->current.id = 0;
	*stopped = dw_stop_over(me);
	was_full = dw_limits_end(lane, me->begun);
	dw_group_end(executor_db, &me->current, me->begun, me->settled);
	/* the lane is empty, so the timer may free its place */
	if (lane->running == 0 && lane->waiting == 0 && dw_ready_count(lane) == 0)
		dw_lane_dirty(executor_db, lane);
	return was_full ? lane : NULL;
}

/* Reports an unexpected end of this executor. task: the id of the running task, or 0. */
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
	dw_problem(&executor_db->problem, text);
}

/* Counts and logs the failure of an at_most_once task.  Its record was written when it began. */
static void
report_lost(const DwHint *hint)
{
	dw_count_end(executor_db, &dw_lanes[hint->lane.index], DW_FAILED);
	dw_wings_doubt_ends(executor_db);
	ereport(LOG,
			(errcode(DW_ERRCODE_END_UNKNOWN),
			 errmsg("delay_wheel task %lld failed: it was begun, and its end is not known",
					(long long) hint->id)));
	dw_each_wing(wing, task_lost)
		wing->task_lost(executor_db);
}

/*
 * Exit callback: ends the current task, and frees the place.  Registered before the session is set
 * up, so that it runs after the abort of the transaction.
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
	bool		put_back;
	bool		gone;
	DwHint		hint = {0};

	if (me == NULL)
		return;

	/* a FATAL error may have struck while this process held locks */
	LWLockReleaseAll();
	/* code < 0: foreign code has called exit(), which counts as a crash */
	if (code < 0 && me->state == DW_EXECUTOR_BUSY && me->current.id != 0)
		dw_suspects_blame(me);
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	LWLockAcquire(dw_ready_lock(executor_db), LW_EXCLUSIVE);
	connecting = me->state == DW_EXECUTOR_CONNECTING;
	if (me->state == DW_EXECUTOR_BUSY && me->current.id != 0)
	{
		unfinished = true;
		put_back_here = me->in_batch;
		lost = dw_autonomous_is_lost(me);
		hint = dw_entry_hint(&me->current);
		(void) finish_current(me, &stopped);
	}
	put_back = me->put_back;

	/*
	 * A task that a session wanted to stop, or that has ended this executor itself, must not simply
	 * run again: note the task, so that the next claim counts a failed attempt.  exit() (code < 0)
	 * is not noted here, since it counts as a crash.
	 */
	if (unfinished && !put_back_here && !lost &&
		(stopped || (!put_back && !terminated && code > 0 && dw_task_sql_runs())))
		dw_quit_note(executor_db->oid, hint.id, stopped);
	/* the task may have ended the executor, so the owner waits a while; if we did, it does not */
	if (!put_back && (connecting || (unfinished && !executor_proved)))
		(void) dw_owner_blocked(executor_db, me->owner,
								terminated ? DW_BLOCK_TERMINATED :
								connecting ? DW_BLOCK_NOT_CONNECTED : DW_BLOCK_ENDED);
	gone = executor_db->absent;
	pg_atomic_write_u32(&me->xid, InvalidTransactionId);
	me->state = DW_EXECUTOR_FREE;
	me->database = InvalidOid;
	LWLockRelease(dw_ready_lock(executor_db));
	LWLockRelease(dw_shared->table_lock);
	dw_this_executor = NULL;
	dw_worker_leaves();
	if (gone)
	{
		/* the extension was dropped: the launcher frees the database's place after this executor */
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
		dw_deliver(executor_db, &hint);
	if (lost)
		report_lost(&hint);
	if (!put_back)
		report_end(me, connecting && !terminated, unfinished ? hint.id : 0);
	dw_ask_dispatch(executor_db, DW_AWAKE);
}

/* Takes the prepared place.  Returns false if another executor has it, or none must run here. */
static bool
take_place(int place, const DwExecutorStart *start)
{
	DwExecutor *me = &dw_executors[place];
	bool		ours;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	ours = me->state == DW_EXECUTOR_STARTING && me->generation == start->generation;
	if (ours)
		executor_db = dw_database_find(me->database);
	if (ours && (executor_db == NULL || dw_database_is_held(executor_db)))
	{
		me->state = DW_EXECUTOR_FREE;
		me->database = InvalidOid;
	}
	else if (ours)
	{
		me->state = DW_EXECUTOR_CONNECTING;
		me->since = dw_now();
		me->pid = MyProcPid;
		me->proc = dw_my_proc();
		me->owner_place = dw_owner_enter(executor_db, me->owner);
		dw_this_executor = me;
	}
	LWLockRelease(dw_shared->table_lock);
	return dw_this_executor != NULL;
}

/*
 * Returns true if this process uses more memory than executor_memory allows.  Returns true only
 * after the first task has ended.  Otherwise, if each process needed more memory from its start, no
 * task would run.  Under load, checks only once a turn, since a check takes some microseconds.
 */
static bool
uses_too_much_memory(bool is_idle)
{
	static int64 looked = 0;

	if (!executor_proved || (!is_idle && dw_uptime() - looked < TURN_US))
		return false;
	looked = dw_uptime();
	return dw_executor_memory >= 0 && dw_private_memory() > dw_executor_memory;
}

/* Returns true if the owner could connect now, by a login or by a switch of roles. */
static bool
may_connect(DwExecutor *me)
{
	DwAccess	access;

	StartTransactionCommand();
	access = dw_session_access(me->owner);
	CommitTransactionCommand();
	return access == DW_ACCESS_LOGIN || access == DW_ACCESS_NO_LOGIN;
}

/*
 * After a change of role memberships, checks that the owner may still log in.  If not, makes this
 * executor end.  Otherwise the executor continues, since memberships take effect at once in all
 * sessions.  If executors ended after each change, a role that may grant one membership could end
 * the executors of all roles again and again.
 */
static void
check_access(DwExecutor *me)
{
	uint32		look = DW_STALE_LOOK;

	/* reset before the check, so that a later change makes this executor check again */
	if (pg_atomic_read_u32(&me->stale) != DW_STALE_LOOK ||
		!pg_atomic_compare_exchange_u32(&me->stale, &look, DW_FRESH))
		return;
	if (!may_connect(me))
		pg_atomic_write_u32(&me->stale, DW_STALE_END);
}

/* Returns the latest due time of a task to take; DW_NEVER if the executor is not stale. */
static TimestampTz
latest_due(DwExecutor *me)
{
	check_access(me);
	if (pg_atomic_read_u32(&me->stale) == DW_FRESH)
		return DW_NEVER;
	return executor_proved || !may_connect(me) ? PG_INT64_MIN : login_at;
}

/*
 * Ends the current task, if any, and takes the next task.  Begins a batch, unless the task is not
 * due yet, or runs alone after a failed batch.  Returns false, as an idle executor, without a task.
 */
static bool
next_task(DwExecutor *me, int64 turn_began)
{
	DwLane	   *was_full = NULL;
	DwPopped	popped = {.look_again = DW_NEVER};
	TimestampTz group_at;
	TimestampTz until;
	TimestampTz now;
	bool		found = false;
	bool		stopped = false;
	bool		too_much;
	int64		turn = dw_uptime() - turn_began;

	if (!executor_proved && me->state == DW_EXECUTOR_BUSY)
	{
		executor_proved = true;
		LWLockAcquire(dw_ready_lock(executor_db), LW_EXCLUSIVE);
		dw_owner_unblocked(executor_db, &dw_owners[me->owner_place]);
		LWLockRelease(dw_ready_lock(executor_db));
	}
	until = latest_due(me);
	too_much = uses_too_much_memory(false);
	if (me->in_batch)
		dw_batch_expect_end();
	LWLockAcquire(dw_ready_lock(executor_db), LW_EXCLUSIVE);
	if (me->state == DW_EXECUTOR_BUSY)
		was_full = finish_current(me, &stopped);
	/* the executor has become stale meanwhile */
	if (until == DW_NEVER && pg_atomic_read_u32(&me->stale) != DW_FRESH)
		until = PG_INT64_MIN;
	me->must_exit = me->must_exit || too_much || until == PG_INT64_MIN ||
		dw_uptime() - executor_born > MAX_AGE_US ||
		(turn > NEWCOMER_TURN_US &&
		 dw_starving_take(&executor_db->timer_news, turn <= TURN_US));
	if (!me->must_exit && dw_ready_pop(executor_db, me, until, &popped))
	{
		DwLane	   *lane = &dw_lanes[me->current.lane];

		found = true;
		if (popped.may_batch && me->current.due <= dw_now() && dw_batches_allowed())
			dw_batch_begin(executor_db, me);
		else if (lane->alone > 0)
			lane->alone--;
	}
	/* there is no task that a stale executor may take before it ends */
	if (!found && until != DW_NEVER)
		me->must_exit = true;
	now = dw_now();
	/* even if this executor was late or stuck, the timer uses it again */
	if (!me->must_exit)
		dw_owner_lacks_none(executor_db, &dw_owners[me->owner_place]);
	if (dw_executor_is_late(me, now))
		popped.look_again = DW_AWAKE;
	me->state = found ? DW_EXECUTOR_BUSY : DW_EXECUTOR_IDLE;
	me->since = now;
	me->kept_until = !found && turn < DW_QUICK_US ? now + KEPT_US : 0;
	/* this answers a call, except a request to end */
	me->called = me->must_exit && !found ? now : 0;
	/* another executor may run a task that the queue's max_running has blocked */
	if (was_full != NULL && !dw_limits_full(was_full) &&
		pg_atomic_read_u64(&executor_db->ready) > 0)
		popped.look_again = DW_AWAKE;
	/* or a task of a group that was at its limit, perhaps a task of another role */
	group_at = dw_groups_take_news(executor_db);
	popped.look_again = Min(popped.look_again, group_at);
	LWLockRelease(dw_ready_lock(executor_db));

	if (stopped)
		dw_stop_absorb();
	if (popped.few_left)
		dw_ready_ask_for_load(executor_db, me);
	dw_ask_dispatch(executor_db, popped.look_again);
	return found;
}

/* Unless this executor has just been woken for work, makes it end and returns true. */
static bool
end_if_idle(DwExecutor *me)
{
	bool		idle;

	LWLockAcquire(dw_ready_lock(executor_db), LW_EXCLUSIVE);
	idle = me->state == DW_EXECUTOR_IDLE;
	if (idle)
		dw_executor_end(me);	/* other processes must no longer wake this executor */
	LWLockRelease(dw_ready_lock(executor_db));
	return idle;
}

/* Handles signals and changed settings, which may make the executor end. */
static void
obey_interrupts(DwExecutor *me)
{
	if (!dw_session_interrupts())
		pg_atomic_write_u32(&me->stale, DW_STALE_END);
}

/* Returns true if another process has called this executor.  The latch may have been reset. */
static bool
is_called(DwExecutor *me)
{
	return me->state != DW_EXECUTOR_IDLE || me->must_exit ||
		pg_atomic_read_u32(&me->stale) != DW_FRESH;
}

/* Returns true if this idle executor must end for an owner without an executor. */
static bool
makes_way(DwExecutor *me)
{
	DwTimerNews *news = &executor_db->timer_news;
	bool		kept;

	/* usually no owner lacks an executor: then no lock is taken */
	if (pg_atomic_read_u32(&news->starving) == 0)
		return false;
	LWLockAcquire(dw_ready_lock(executor_db), LW_SHARED);
	kept = dw_executor_is_kept(me, dw_now());
	LWLockRelease(dw_ready_lock(executor_db));
	return !kept && dw_starving_take(news, false);
}

/* Waits for work.  Returns false if the executor must end. */
static bool
wait_for_work(DwExecutor *me)
{
	int			events;

	if (me->must_exit || makes_way(me))
		return false;
	if (uses_too_much_memory(true))
		return !end_if_idle(me);

	/* a wait for a synchronous standby may have reset the latch without handling the signal */
	obey_interrupts(me);
	DW_INJECT("executor-before-wait");
	if (is_called(me))
		return true;
	events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					   dw_executor_idle_timeout, dw_wait_event(wait_event, "DelayWheelExecutor"));
	ResetLatch(MyLatch);

	obey_interrupts(me);
	return (events & WL_TIMEOUT) == 0 || !end_if_idle(me);
}

/* Main function of executors.  place is the index of the prepared place. */
void
dw_executor_main(Datum place)
{
	DwExecutorStart start;
	DwExecutor *me;

	/* a cancel is meant for a task, and takes effect only while a task's own code runs */
	HOLD_CANCEL_INTERRUPTS();
	dw_crashes_watch_signals();
	dw_worker_begin();

	memcpy(&start, MyBgworkerEntry->bgw_extra, sizeof(start));
	if (!take_place(DatumGetInt32(place), &start))
		proc_exit(0);
	me = dw_this_executor;
	before_shmem_exit(leave_place, (Datum) 0);
	dw_crashes_watch_panics();
	dw_settled_watch_commits();
	login_at = me->since;
	DW_INJECT("executor-before-connect");
	dw_session_begin(me->database, me->owner, start.can_log_in);
	DW_INJECT("executor-after-connect");
	/* later, pg_stat_activity shows the SQL of the last task, as for any session */
	pgstat_report_activity(STATE_IDLE, "delay_wheel: waiting for the first task");
	executor_born = dw_uptime();

	LWLockAcquire(dw_ready_lock(executor_db), LW_EXCLUSIVE);
	dw_owner_has_executor(executor_db, &dw_owners[me->owner_place]);
	me->state = DW_EXECUTOR_IDLE;
	me->kept_until = 0;
	/* idle time begins now, after connecting */
	me->since = dw_now();
	LWLockRelease(dw_ready_lock(executor_db));
	dw_ask_dispatch(executor_db, DW_AWAKE);

	for (;;)
	{
		int64		turn_began = dw_uptime();

		while (next_task(me, turn_began))
		{
			obey_interrupts(me);
			if (!me->in_batch || !dw_run_batch(executor_db, me))
				dw_run_task(executor_db, me);
		}
		pgstat_report_stat(true);
		if (!wait_for_work(me))
			break;
	}
	proc_exit(0);
}
