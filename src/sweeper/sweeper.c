/*-------------------------------------------------------------------------
 *
 * sweeper.c
 *	  The process that removes rows of cancelled tasks, old failed ones, and
 *	  the oldest history, and sees to it that recurring tasks have their runs.
 *
 * At most one for each database, a session of the bootstrap superuser that
 * runs no SQL.  The timer starts it when there is something to remove, and it
 * ends when there is not; in between it works in slices of some milliseconds
 * (sweep.c, failed.c, history_tables.c) and rests twice as long after each, so that tasks find
 * processors and disks as they did before.  While it waits for transactions
 * to end it looks at them again after pauses of up to a minute; if an owner has
 * no executor for want of a background worker, it rather ends, and another one
 * looks again some time later.
 *
 * It pins the place of its database, since it may outlive the timer.  It
 * ends like the timer when somebody needs the database without sessions
 * (hold.c), or settings have changed.  When it ends, for whatever reason, it
 * raises db->control, so that the timer looks whether another one is needed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/memutils.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/worker.h"
#include "../ending/retention.h"
#include "../recurring/repair.h"
#include "../rows/catalog.h"
#include "../shmem/crash_watch.h"
#include "../shmem/lanes.h"
#include "../shmem/places.h"
#include "../shmem/progress.h"
#include "../shmem/shared.h"
#include "failed.h"
#include "history_tables.h"
#include "sweep.h"
#include "sweeper.h"

/* Rest after a slice, as a multiple of the time that it took. */
#define REST			2
#define MIN_REST_US		1000

/* it does not end if there is something to do so soon, whoever waits for it to end */
#define LINGER_US		USECS_PER_SEC

/*---- The sweeper's part ----*/

static DwDatabase *my_db = NULL;
static bool finished = false;
static bool made_way = false;
static uint32 wait_event = 0;

/* Tells the timer, if there is one, that there is no sweeper (any more). */
static void
tell_timer_of_end(DwDatabase *db)
{
	pg_atomic_fetch_add_u32(&db->control, 1);
	if (pg_atomic_read_u32(&db->timer_proc) != 0)
		dw_wake_timer(db, DW_AWAKE);
}

static void
end_serving(int code, Datum arg)
{
	bool		failed = !finished && !dw_worker_terminated();

	/* an error may have struck while one was held */
	LWLockReleaseAll();
	dw_progress_leave(my_db, DW_FIRST_OF_SWEEPER, DW_WORKS - 1);
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	pg_atomic_write_u32(&my_db->sweeper_proc, 0);
	pg_atomic_write_u32(&my_db->sweeper_rests, 0);
	my_db->sweeper_state = DW_SWEEPER_NONE;
	my_db->sweeper_pid = 0;
	my_db->sweeper_failed = failed;
	my_db->sweeper_made_way = made_way;
	my_db->sweep_waits = false;
	my_db->sweep_npids = 0;
	LWLockRelease(dw_shared->table_lock);
	if (!finished)
	{
		/* what it had taken to do it */
		pg_atomic_write_u32(&my_db->recurring_look, 1);
		dw_atomic_lower(&my_db->failed_trim_at, PG_INT64_MIN);
		dw_atomic_lower(&my_db->history_turn_at, PG_INT64_MIN);
	}
	if (failed)
		dw_problem(my_db, "the sweeper ended by an error, see the server's log");
	tell_timer_of_end(my_db);
	dw_database_unpin(my_db);
	/* it may wait to give the place back */
	dw_wake_launcher();
}

/* Takes the database that the timer gave us; see hold.c. */
static void
begin_serving(Datum number)
{
	DwDatabase *db = dw_database(DatumGetInt32(number));
	Oid			oid;
	bool		held;

	memcpy(&oid, MyBgworkerEntry->bgw_extra, sizeof(oid));
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	if (db->oid != oid || db->sweeper_state != DW_SWEEPER_STARTING || !dw_database_pin(db, oid))
	{
		LWLockRelease(dw_shared->table_lock);
		proc_exit(0);
	}
	held = pg_atomic_read_u32(&db->holds) > 0;
	db->sweeper_state = held ? DW_SWEEPER_NONE : DW_SWEEPER_RUNNING;
	db->sweeper_pid = held ? 0 : MyProcPid;
	LWLockRelease(dw_shared->table_lock);
	if (held)
	{
		tell_timer_of_end(db);
		dw_database_unpin(db);
		proc_exit(0);
	}
	my_db = db;
	before_shmem_exit(end_serving, (Datum) 0);
	BackgroundWorkerInitializeConnectionByOid(oid, InvalidOid, 0);
	pg_atomic_write_u32(&db->sweeper_proc, dw_my_proc());
	pg_memory_barrier();
}

/* Does somebody need the database without us, or have settings changed? */
static bool
sweeper_asked_to_end(void)
{
	return pg_atomic_read_u32(&my_db->holds) > 0 || dw_restart_at(my_db) != DW_NEVER;
}

/* Does some of a work whose time is in shared memory, if it has come; when it is again. */
static TimestampTz
do_in_time(pg_atomic_uint64 *time, TimestampTz (*work) (bool *more))
{
	bool		more = false;
	TimestampTz at = dw_atomic_read(time);

	if (at > dw_now())
		return at;
	/* what is asked for from here on counts */
	(void) dw_atomic_take(time);
	at = work(&more);
	dw_atomic_lower(time, more ? PG_INT64_MIN : at);
	return dw_atomic_read(time);
}

/* Trims failed tasks and the history. */
static TimestampTz
trim(void)
{
	TimestampTz failed_at = do_in_time(&my_db->failed_trim_at, dw_failed_trim);
	TimestampTz history_at = do_in_time(&my_db->history_turn_at, dw_history_turn);

	return Min(failed_at, history_at);
}

/* By either clock; true if it was woken before. */
static bool
rest_until(int64 now, int64 until)
{
	long		timeout = TimestampDifferenceMilliseconds(now, until);
	int			events;

	if (until <= now)
		return false;
	events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout,
					   dw_wait_event(wait_event, "DelayWheelSweeper"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	return (events & WL_LATCH_SET) != 0;
}

/*
 * Rests until there is more to do, unless an owner needs the background worker
 * meanwhile: then it returns false.
 */
static bool
rest_long(TimestampTz more_at)
{
	bool		stays;

	pg_atomic_write_u32(&my_db->sweeper_rests, 1);
	/* either we see that one does, or the timer that we rest */
	pg_memory_barrier();
	stays = !dw_owners_lack_worker(my_db);
	if (stays)
		(void) rest_until(dw_now(), more_at);
	pg_atomic_write_u32(&my_db->sweeper_rests, 0);
	return stays;
}

/*
 * Rests after a piece of work, whoever calls; then until there is more.  False
 * if it is to make way.
 */
static bool
rest(int64 began, TimestampTz more_at)
{
	int64		rested = dw_uptime() + Max(REST * (dw_uptime() - began), MIN_REST_US);

	dw_worker_activity(STATE_IDLE, "delay_wheel: resting between two pieces of work");
	while (rest_until(dw_uptime(), rested))
		if (sweeper_asked_to_end())
			return true;
	if (pg_atomic_read_u32(&my_db->sweep_wanted) != 0)
		return true;
	if (more_at > dw_now() + LINGER_US)
		return rest_long(more_at);
	(void) rest_until(dw_now(), more_at);
	return true;
}

void
dw_sweeper_main(Datum number)
{
	MemoryContext round_context;

	/* a cancel has nothing to cancel */
	pqsignal(SIGINT, SIG_IGN);
	dw_crashes_watch_signals();
	dw_worker_begin();
	begin_serving(number);
	dw_sweep_begin(my_db);
	(void) dw_failed_obey_settings(my_db);
	round_context = AllocSetContextCreate(TopMemoryContext, "delay_wheel sweeper",
										  ALLOCSET_DEFAULT_SIZES);

	for (;;)
	{
		int64		began = dw_uptime();
		TimestampTz sweep_at;
		TimestampTz trim_at;
		TimestampTz repair_at;

		MemoryContextReset(round_context);
		MemoryContextSwitchTo(round_context);
		if (dw_worker_interrupts() && dw_failed_obey_settings(my_db))
			dw_failed_restart();
		/* before what it stands for is read */
		pg_atomic_write_u32(&my_db->sweep_wanted, 0);
		pg_memory_barrier();
		sweep_at = dw_sweep_some();
		trim_at = trim();
		repair_at = dw_recurring_repair(my_db);
		if (dw_worker_clock_set_back() > 0)
		{
			/* some time just noted may be too late */
			dw_failed_restart();
			dw_failed_begin(my_db);
			dw_history_begin(my_db);
			continue;
		}
		if (sweeper_asked_to_end() || dw_extension_gone)
			break;
		if (sweep_at == DW_NEVER && trim_at > dw_now() + LINGER_US && repair_at == DW_NEVER)
		{
			if (pg_atomic_read_u32(&my_db->sweep_wanted) == 0)
				break;
			continue;
		}
		made_way = !rest(began, Min(Min(sweep_at, trim_at), repair_at));
		if (made_way)
		{
			/* the others' times are in shared memory, or found by the marks */
			if (repair_at != DW_NEVER)
				pg_atomic_write_u32(&my_db->recurring_look, 1);
			break;
		}
	}
	finished = true;
	proc_exit(0);
}
