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

#include "access/table.h"
#include "access/xact.h"
#include "compat.h"
#include "crashes.h"
#include "failed.h"
#include "history_tables.h"
#include "inject.h"
#include "lanes.h"
#include "libpq/pqsignal.h"
#include "load.h"
#include "miscadmin.h"
#include "progress.h"
#include "postmaster/bgworker.h"
#include "recurring.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "sweep.h"
#include "sweeper.h"
#include "task_rows.h"
#include "utils/memutils.h"
#include "worker.h"

/* Rest after a slice, as a multiple of the time that it took. */
#define REST			2
#define MIN_REST_US		1000

/* it does not end if there is something to do so soon, whoever waits for it to end */
#define LINGER_US		USECS_PER_SEC
/* who has made way comes back so much later */
#define STAY_AWAY_US	(10 * USECS_PER_SEC)

/* when the table of marks is locked */
#define RETRY_US		(100 * 1000)
/* after an error */
#define BACKOFF_MIN_US	USECS_PER_SEC
#define BACKOFF_MAX_US	(5 * USECS_PER_MINUTE)
/* for want of a background worker: others come and go */
#define NO_WORKER_MAX_US	(5 * USECS_PER_SEC)
/* one that lived as long was all right */
#define HEALTHY_US		USECS_PER_MINUTE
/* one of a former timer that has not come up by then never will */
#define START_LIMIT_US	USECS_PER_MINUTE
#define START_LOOK_US	USECS_PER_SEC

/*---- The timer's part ----*/

/* What this timer knows. */
static BackgroundWorkerHandle *handle = NULL;
static bool look_needed = false;	/* there may be marks */
static bool sweeper_needed = false;
static TimestampTz not_before = PG_INT64_MIN;
static int64 backoff = 0;
static bool told_no_worker = false;

static void
back_off(int64 max)
{
	backoff = backoff == 0 ? BACKOFF_MIN_US : Min(backoff * 2, max);
	not_before = dw_now() + backoff;
}

/* Are there marks to be swept?  False in *known if that cannot be told now. */
static bool
any_marks(DwDatabase *db, bool *known)
{
	bool		found = false;

	*known = false;
	PG_TRY();
	{
		Relation	rel = dw_read_begin();

		if (dw_extension_gone)
			*known = true;
		else if (rel != NULL &&
				 ConditionalLockRelationOid(dw_catalog()->cancellation, AccessShareLock))
		{
			Relation	marks = table_open(dw_catalog()->cancellation, NoLock);

			found = dw_sweep_needed(marks);
			table_close(marks, NoLock);
			*known = true;
		}
		dw_read_end(rel);
	}
	PG_CATCH();
	{
		found = *known = false;
		dw_read_failed(db, "look for cancellations");
	}
	PG_END_TRY();
	return found;
}

/* Takes notice of one that ended, or never came up. */
static void
notice_end(DwDatabase *db)
{
	int64		now = dw_uptime();
	pid_t		pid;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	if (db->sweeper_state == DW_SWEEPER_STARTING &&
		(handle ? GetBackgroundWorkerPid(handle, &pid) == BGWH_STOPPED :
		 now - db->sweeper_started > START_LIMIT_US))
	{
		db->sweeper_state = DW_SWEEPER_NONE;
		db->sweeper_failed = true;
	}
	if (db->sweeper_state == DW_SWEEPER_NONE && db->sweeper_failed)
	{
		db->sweeper_failed = false;
		if (now - db->sweeper_started > HEALTHY_US)
			backoff = 0;
		back_off(BACKOFF_MAX_US);
	}
	if (db->sweeper_state == DW_SWEEPER_NONE && db->sweeper_made_way)
	{
		db->sweeper_made_way = false;
		not_before = dw_now() + STAY_AWAY_US;
	}
	LWLockRelease(dw_shared->table_lock);
}

/* The one that there is, or is on its way, looks again; false if none is. */
static bool
call_sweeper(DwDatabase *db)
{
	bool		there;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	there = db->sweeper_state != DW_SWEEPER_NONE;
	if (there)
	{
		pg_atomic_write_u32(&db->sweep_wanted, 1);
		pg_memory_barrier();
		if (pg_atomic_read_u32(&db->sweeper_proc) != 0)
			SetLatch(dw_proc_latch(pg_atomic_read_u32(&db->sweeper_proc)));
	}
	LWLockRelease(dw_shared->table_lock);
	return there;
}

static void
no_worker(DwDatabase *db)
{
	const char *text = "cannot remove cancelled tasks: no background worker is free";

	dw_problem(db, text);
	/* one that has just ended keeps its place for a moment: the second try counts */
	if (backoff > BACKOFF_MIN_US && !told_no_worker)
	{
		told_no_worker = true;
		ereport(LOG,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg_internal("delay_wheel %s", text),
				 errdetail("They are not run nevertheless."),
				 errhint("You may need to increase \"%s\".", "max_worker_processes")));
	}
}

static bool
start_sweeper(DwDatabase *db)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
	};
	BackgroundWorkerHandle *started;
	MemoryContext context;
	bool		registered;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	db->sweeper_state = DW_SWEEPER_STARTING;
	db->sweeper_started = dw_uptime();
	LWLockRelease(dw_shared->table_lock);

	snprintf(worker.bgw_name, BGW_MAXLEN, "delay_wheel sweeper");
	snprintf(worker.bgw_type, BGW_MAXLEN, "delay_wheel sweeper");
	strlcpy(worker.bgw_library_name, "delay_wheel", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "dw_sweeper_main", BGW_MAXLEN);
	worker.bgw_main_arg = Int32GetDatum(dw_database_number(db));
	memcpy(worker.bgw_extra, &db->oid, sizeof(Oid));
	worker.bgw_notify_pid = MyProcPid;
	/* the handle is kept */
	context = MemoryContextSwitchTo(TopMemoryContext);
	registered = RegisterDynamicBackgroundWorker(&worker, &started);
	MemoryContextSwitchTo(context);
	if (registered)
	{
		if (handle != NULL)
			pfree(handle);
		handle = started;
		told_no_worker = false;
		db->sweeper_refused = false;
		return true;
	}

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	db->sweeper_state = DW_SWEEPER_NONE;
	db->sweeper_refused = true;
	LWLockRelease(dw_shared->table_lock);
	back_off(NO_WORKER_MAX_US);
	no_worker(db);
	return false;
}

TimestampTz
dw_sweeper_look(DwDatabase *db, bool changed)
{
	TimestampTz now = dw_now();
	TimestampTz trim_at = Min(dw_atomic_read(&db->failed_trim_at),
							  dw_atomic_read(&db->history_turn_at));

	look_needed |= changed;
	notice_end(db);
	if (look_needed)
	{
		bool		known;

		sweeper_needed = any_marks(db, &known);
		if (!known)
			return now + RETRY_US;
		look_needed = false;
	}
	/* it would end at once; another timer looks again */
	if (dw_restart_at(db) != DW_NEVER)
		return DW_NEVER;
	if (dw_extension_gone ||
		(!sweeper_needed && trim_at > now && pg_atomic_read_u32(&db->recurring_look) == 0))
	{
		db->sweeper_refused = false;
		return trim_at;
	}

	/* it tells when it ends, and what is left to do then */
	if (call_sweeper(db))
		return db->sweeper_state == DW_SWEEPER_STARTING ? now + START_LOOK_US : DW_NEVER;
	if (not_before > now)
		return not_before;
	return start_sweeper(db) ? now + START_LOOK_US : not_before;
}

void
dw_sweeper_ask_to_make_way(DwDatabase *db)
{
	uint32		proc = pg_atomic_read_u32(&db->sweeper_proc);

	if (proc != 0 && pg_atomic_read_u32(&db->sweeper_rests) != 0)
		SetLatch(dw_proc_latch(proc));
}

bool
dw_sweeper_worker_ended(DwDatabase *db)
{
	pid_t		pid;

	/* of one on its way see notice_end */
	if (handle == NULL || db->sweeper_state == DW_SWEEPER_STARTING ||
		GetBackgroundWorkerPid(handle, &pid) != BGWH_STOPPED)
		return false;
	pfree(handle);
	handle = NULL;
	return true;
}

/*---- The sweeper's part ----*/

static DwDatabase *my_db = NULL;
static bool finished = false;
static bool made_way = false;
static uint32 wait_event = 0;

/* Tells the timer, if there is one, that there is no sweeper (any more). */
static void
tell_timer(DwDatabase *db)
{
	pg_atomic_fetch_add_u32(&db->control, 1);
	if (pg_atomic_read_u32(&db->timer_proc) != 0)
		dw_wake_timer(db, DW_AWAKE);
}

static void
leave_database(int code, Datum arg)
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
	tell_timer(my_db);
	dw_database_unpin(my_db);
	/* it may wait to give the place back */
	dw_wake_launcher();
}

/* Takes the database that the timer gave us; see hold.c. */
static void
enter_database(Datum number)
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
		tell_timer(db);
		dw_database_unpin(db);
		proc_exit(0);
	}
	my_db = db;
	before_shmem_exit(leave_database, (Datum) 0);
	BackgroundWorkerInitializeConnectionByOid(oid, InvalidOid, 0);
	pg_atomic_write_u32(&db->sweeper_proc, dw_my_proc());
	pg_memory_barrier();
}

/* Does somebody need the database without us, or have settings changed? */
static bool
asked_to_end(void)
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
		if (asked_to_end())
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
	enter_database(number);
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
		if (asked_to_end() || dw_extension_gone)
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
