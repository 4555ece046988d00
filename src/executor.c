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

#include "access/parallel.h"
#include "access/xact.h"
#include "autonomous.h"
#include "batch.h"
#include "compat.h"
#include "crashes.h"
#include "dispatch.h"
#include "executor.h"
#include "inject.h"
#include "lanes.h"
#include "miscadmin.h"
#include "my_session.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "queue_limits.h"
#include "quits.h"
#include "recurring.h"
#include "run_now.h"
#include "run_task.h"
#include "session.h"
#include "settings.h"
#include "stats.h"
#include "stop.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "task_log.h"
#include "task_timeout.h"
#include "tcop/tcopprot.h"
#include "touched.h"
#include "trial.h"
#include "utils/guc.h"
#include "verdict.h"
#include "wait.h"
#include "worker.h"

/* After this long without a pause, give way to an owner who waits. */
#define TURN_US		(100 * 1000)

/* What tasks make a session keep goes with it, at the latest after this. */
#define MAX_AGE_US	USECS_PER_HOUR

DwExecutor *dw_this_executor = NULL;

static DwDatabase *my_db = NULL;
static uint32 wait_event = 0;

/* This executor has seen a task to its end. */
static bool proved = false;

/* It has run several, perhaps, before it has seen one to its end. */
static bool in_a_row = false;

/* It has just looked for no task, since another one is on trial. */
static bool held_back = false;
static int64 born = 0;

DwExecutor *
dw_executor_served(void)
{
	PGPROC	   *leader = IsParallelWorker() ? MyProc->lockGroupLeader : NULL;

	if (leader == NULL)
		return dw_this_executor;
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].database == MyDatabaseId && dw_executors[i].pid == leader->pid)
			return &dw_executors[i];
	return NULL;
}

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

/* The executor of this database whose transaction it is, or NULL. */
static DwExecutor *
executor_of(TransactionId xid)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].database == MyDatabaseId &&
			TransactionIdEquals(pg_atomic_read_u32(&dw_executors[i].xid), xid))
		{
			/* what it runs is noted before the xid */
			pg_read_barrier();
			return &dw_executors[i];
		}
	return NULL;
}

bool
dw_xid_is_executor(TransactionId xid)
{
	return executor_of(xid) != NULL;
}

bool
dw_xid_is_batch(TransactionId xid)
{
	DwExecutor *e = executor_of(xid);

	return e != NULL && e->in_batch;
}

bool
dw_executor_claims(int64 id, TransactionId xid)
{
	DwExecutor *e = executor_of(xid);

	return e != NULL && !e->in_batch && e->current.id == id;
}

bool
dw_executor_keeps(int64 id)
{
	/* what is there while none runs */
	if (id == 0)
		return false;
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].database == MyDatabaseId &&
			pg_atomic_read_u64(&dw_executors[i].keeps) == (uint64) id)
			return true;
	return false;
}

bool
dw_executor_runs_autonomous(int64 id, Oid *owner)
{
	/* what is there while none runs */
	if (id == 0)
		return false;
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].database == MyDatabaseId &&
			pg_atomic_read_u64(&dw_executors[i].autonomous) == (uint64) id)
		{
			*owner = dw_executors[i].owner;
			return true;
		}
	return false;
}

/* Without a lock: what has changed while we look has ended, see dw_autonomous_ended(). */
bool
dw_executor_runs_autonomous_in(int16 queue)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e->database != MyDatabaseId || pg_atomic_read_u64(&e->autonomous) == 0)
			continue;
		/* what it runs is noted before */
		pg_read_barrier();
		if (dw_lanes[e->current.lane].queue == queue)
			return true;
	}
	return false;
}

/* Tells the timer that an executor came or went. */
static void
tell_timer(void)
{
	pg_atomic_write_u32(&my_db->executors_dirty, 1);
	dw_wake_timer(my_db, DW_AWAKE);
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
		dw_batch_end(my_db, me);
	dw_autonomous_end(my_db, me);
	me->current.id = 0;
	*stopped = dw_stop_over(me);
	*was_full = dw_limits_end(lane, me->begun);
	/* the timer may want to give it back */
	if (lane->running == 0 && lane->waiting == 0 && dw_ready_count(lane) == 0)
		dw_lane_dirty(my_db, lane);
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
	dw_problem(my_db, text);
}

/*
 * What is left of the task stands in failed_task since it was begun.  If it was
 * a run of a recurring one, nobody has scheduled the next.
 */
static void
report_lost(const DwHint *hint)
{
	dw_count_end(my_db, &dw_lanes[hint->lane.index], DW_COUNTED_FAILED);
	dw_make_waiters_look(my_db);
	ereport(LOG,
			(errcode(DW_ERRCODE_END_UNKNOWN),
			 errmsg("delay_wheel task %lld failed: it was begun, and its end is not known",
					(long long) hint->id)));
	/* it may have been a run, which nobody settles any more */
	dw_recurring_ask(my_db);
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
	LWLockAcquire(dw_ready_lock(my_db), LW_EXCLUSIVE);
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
		dw_quit_note(my_db->oid, hint.id, stopped);
	if (put_back)
		;						/* nobody is to blame */
	else if (terminated && (connecting || (unfinished && !proved)))
		/* by a person; but if over and over, rather by the task itself */
		(void) dw_owner_blocked(my_db, me->owner, DW_BLOCK_TERMINATED);
	else if (connecting)
		(void) dw_owner_blocked(my_db, me->owner, DW_BLOCK_NOT_CONNECTED);
	else if (unfinished && !proved)
		/* it may well be the task that ended us: not at once again */
		(void) dw_owner_blocked(my_db, me->owner, DW_BLOCK_ENDED);
	gone = my_db->absent;
	pg_atomic_write_u32(&me->xid, InvalidTransactionId);
	me->state = DW_EXECUTOR_FREE;
	me->database = InvalidOid;
	dw_trial_end(me);
	LWLockRelease(dw_ready_lock(my_db));
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
		dw_deliver(my_db, &hint);
	if (lost)
		report_lost(&hint);
	if (!put_back)
		report_end(me, connecting && !terminated, unfinished ? hint.id : 0);
	tell_timer();
}

bool
dw_executor_is_fresh(void)
{
	return !proved && !in_a_row;
}

void
dw_executor_obey_exit(DwDatabase *db, DwExecutor *me)
{
	if (!me->must_exit)
		return;
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	me->put_back = true;
	LWLockRelease(dw_ready_lock(db));
	proc_exit(0);
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
		my_db = dw_database_find(me->database);
		if (my_db == NULL || pg_atomic_read_u32(&my_db->holds) > 0)
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
		me->owner_place = dw_owner_enter(my_db, me->owner);
		dw_this_executor = me;
	}
	LWLockRelease(dw_shared->table_lock);
	return ours;
}

/* An executor of this owner works: its lanes wait no longer. */
static void
unblock_owner(DwExecutor *me)
{
	LWLockAcquire(dw_ready_lock(my_db), LW_EXCLUSIVE);
	dw_owner_unblocked(my_db, &dw_owners[me->owner_place]);
	LWLockRelease(dw_ready_lock(my_db));
}

/* Is this executor to give its place to an owner that has none? */
static bool
give_way(void)
{
	uint32		waiting = pg_atomic_read_u32(&my_db->starving);

	while (waiting > 0)
		if (pg_atomic_compare_exchange_u32(&my_db->starving, &waiting, waiting - 1))
			return true;
	return false;
}

/*
 * Notes what was taken from a ready list; true if the lane is to be loaded
 * again.
 */
static bool
note_taken(DwExecutor *me, const DwEntry *entry)
{
	DwLane	   *lane = &dw_lanes[entry->lane];

	me->current = *entry;
	me->begun = false;
	/* one that has called exit() did not take itself off; they are all gone by now */
	pg_atomic_write_u32(&me->helpers, 0);
	pg_atomic_fetch_sub_u64(&my_db->ready, 1);
	if (lane->load_below == 0 || dw_lane_held(lane) >= lane->load_below)
		return false;
	lane->load_below = 0;
	return true;
}

static void
ask_for_load(const DwLane *lane)
{
	dw_lane_dirty(my_db, lane);
	dw_wake_timer(my_db, DW_AWAKE);
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

	if (!proved || (!is_idle && dw_uptime() - looked < TURN_US))
		return false;
	looked = dw_uptime();
	return dw_executor_memory >= 0 && dw_private_memory() > dw_executor_memory;
}

/* Does it take no other task, and end? */
static bool
must_end(DwExecutor *me)
{
	return me->must_exit || dw_uptime() - born > MAX_AGE_US || pg_atomic_read_u32(&me->stale) != DW_FRESH;
}

bool
dw_executor_next(DwExecutor *me, TimestampTz until, DwEntry *entry)
{
	bool		low = false;
	bool		found;

	LWLockAcquire(dw_ready_lock(my_db), LW_EXCLUSIVE);
	/* who starves waits for the end of a turn, not of a batch: that is short */
	found = !must_end(me) && dw_trial_wait(me) == 0 &&
		dw_ready_pop_next(my_db, me, until, entry);
	if (found)
	{
		low = note_taken(me, entry);
		me->since = dw_now();
		in_a_row = true;
	}
	LWLockRelease(dw_ready_lock(my_db));
	if (low)
		ask_for_load(&dw_lanes[entry->lane]);
	return found;
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
		dw_batch_begin(my_db, me);
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

	if (!proved && me->state == DW_EXECUTOR_BUSY)
	{
		proved = true;
		unblock_owner(me);
	}
	look_at_access(me);
	too_much = keeps_too_much(false);
	LWLockAcquire(dw_ready_lock(my_db), LW_EXCLUSIVE);
	if (me->state == DW_EXECUTOR_BUSY)
	{
		bool		full;

		finish_current(me, &stopped, &full);
		if (full)
			was_full = &dw_lanes[me->current.lane];
	}
	if (must_end(me) || too_much || (dw_uptime() - turn_began > TURN_US && give_way()))
		me->must_exit = true;
	held_back = dw_trial_wait(me) > 0;
	if (!me->must_exit && !held_back &&
		dw_ready_pop(my_db, &dw_owners[me->owner_place], entry, &look_again))
	{
		found = true;
		low = note_taken(me, entry);
		choose_way(me, entry);
	}
	me->state = found ? DW_EXECUTOR_BUSY : DW_EXECUTOR_IDLE;
	me->since = dw_now();
	/* somebody else may wait for the place */
	if (was_full != NULL && !dw_limits_full(was_full) &&
		pg_atomic_read_u64(&my_db->ready) > 0)
		look_again = DW_AWAKE;
	LWLockRelease(dw_ready_lock(my_db));

	if (stopped)
		dw_stop_absorb();
	if (low)
		ask_for_load(&dw_lanes[entry->lane]);
	if (look_again != DW_NEVER)
	{
		pg_atomic_write_u32(&my_db->executors_dirty, 1);
		dw_wake_timer(my_db, look_again);
	}
	return found;
}

/* Ends, unless it has just been called for work. */
static bool
end_if_idle(DwExecutor *me)
{
	bool		idle;

	LWLockAcquire(dw_ready_lock(my_db), LW_EXCLUSIVE);
	idle = me->state == DW_EXECUTOR_IDLE;
	if (idle)
		me->must_exit = true;	/* do not call us any more */
	LWLockRelease(dw_ready_lock(my_db));
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
	born = dw_uptime();

	LWLockAcquire(dw_ready_lock(my_db), LW_EXCLUSIVE);
	me->state = DW_EXECUTOR_IDLE;
	LWLockRelease(dw_ready_lock(my_db));
	tell_timer();

	for (;;)
	{
		int64		turn_began = dw_uptime();

		while (next_task(me, turn_began, &entry))
		{
			obey_interrupts(me);
			if (!me->in_batch || !dw_run_batch(my_db, me, &entry))
				dw_run_task(my_db, me, &entry);
		}
		pgstat_report_stat(true);
		if (!wait_for_work(me))
			break;
	}
	proc_exit(0);
}
