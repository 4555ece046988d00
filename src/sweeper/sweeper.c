/*-------------------------------------------------------------------------
 *
 * sweeper.c
 *	  The sweeper: the process that removes old rows, and does other slow work of a database.
 *
 * Run by the sweeper, which README.md describes.  The sweeper pins the place of its database, since
 * it may outlive the timer.  Like the timer, the sweeper ends when a command needs the database
 * without sessions (hold.c), or when settings have changed.  At its end the sweeper increments
 * "control", so that the timer checks whether another sweeper is needed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/compat.h"
#include "../base/wing.h"
#include "../base/worker.h"
#include "../ending/ending.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "sweeper.h"

/* Rest after a slice, as a multiple of the time that the slice took. */
#define REST			2
/* Minimum rest after a slice, in microseconds. */
#define MIN_REST_US		1000

/* If more work is due within this time, in us, it stays even if an owner lacks a worker. */
#define LINGER_US		USECS_PER_SEC

static DwDatabase *my_db = NULL;
/* How the sweeper ends, unless it gets a SIGTERM. */
static DwProcessEnd end_of_sweeper = DW_PROCESS_FAILED;
static uint32 wait_event = 0;

/* Wakes the timer, if there is one, since the sweeper has ended. */
static void
tell_timer_of_end(DwDatabase *db)
{
	dw_control_raise(&db->timer_news);
	dw_wake_timer_if_any(db);
}

/* Exit callback: records how the sweeper ends, and unpins the database's place. */
static void
end_serving(int code, Datum arg)
{
	bool		regular = end_of_sweeper != DW_PROCESS_FAILED;

	/* after an error this process may still hold LWLocks */
	LWLockReleaseAll();
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	dw_process_ends(&my_db->sweeper, !regular && dw_worker_terminated() ? DW_PROCESS_FINISHED :
					end_of_sweeper);
	(void) dw_sweeper_take(&my_db->sweeper_news, DW_SWEEPER_RESTS);
	dw_sweeper_waits(&my_db->sweeper_news, false, NULL, 0);
	LWLockRelease(dw_shared->table_lock);
	/* repeat all requests, since the sweeper may have taken requests without doing the work */
	if (!regular)
		for (int i = 0; i < DW_JOBS; i++)
			(void) dw_job_ask(&my_db->sweeper_news, i, PG_INT64_MIN);
	if (!regular && !dw_worker_terminated())
		dw_problem(&my_db->problem, "the sweeper ended by an error, see the server's log");
	tell_timer_of_end(my_db);
	dw_database_unpin(my_db);
	dw_worker_leaves();
	/* the launcher may wait for this unpin to give the database's place back */
	dw_wake_launcher();
}

/* Takes over the database.  Exits if no sweeper is needed, or a command holds the database. */
static void
begin_serving(Datum number)
{
	DwDatabase *db = dw_database(DatumGetInt32(number));
	Oid			oid;

	memcpy(&oid, MyBgworkerEntry->bgw_extra, sizeof(oid));
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	if (db->oid != oid || db->sweeper.state != DW_PROCESS_STARTING || !dw_database_pin(db, oid))
	{
		LWLockRelease(dw_shared->table_lock);
		proc_exit(0);
	}
	if (dw_database_is_held(db))
	{
		dw_process_ends(&db->sweeper, DW_PROCESS_FINISHED);
		LWLockRelease(dw_shared->table_lock);
		tell_timer_of_end(db);
		dw_database_unpin(db);
		proc_exit(0);
	}
	dw_process_takes_over(&db->sweeper);
	dw_process_set_state(&db->sweeper, DW_PROCESS_RUNNING);
	LWLockRelease(dw_shared->table_lock);
	my_db = db;
	before_shmem_exit(end_serving, (Datum) 0);
	BackgroundWorkerInitializeConnectionByOid(oid, InvalidOid, 0);
	dw_process_publish(&db->sweeper);
}

/* Returns true if the sweeper must end: a command needs the database, or settings have changed. */
static bool
sweeper_asked_to_end(void)
{
	return dw_database_is_held(my_db) || dw_restart_at(my_db) != DW_NEVER;
}

/* Does a slice of each of these jobs whose time has come. */
static void
do_jobs_of(const DwWingJob *jobs, int njobs)
{
	DwSweeperNews *news = &my_db->sweeper_news;

	for (int i = 0; i < njobs; i++)
	{
		TimestampTz next;

		if (dw_job_at(news, jobs[i].job) > dw_now())
			continue;
		/* S1: called before the work, so that a request during the work is not lost */
		dw_job_begin(news, jobs[i].job);
		next = jobs[i].work(my_db);
		/* S5 */
		(void) dw_job_ask(news, jobs[i].job, next);
	}
}

/* Calls do_jobs_of() for all jobs.  Returns when more work is due. */
static TimestampTz
do_jobs(void)
{
	static const DwWingJob jobs[] = {
		{DW_JOB_NOTIFY, dw_queues_notify},
		{DW_JOB_ROLLBACKS, dw_rollbacks_end},
		{DW_JOB_LEASES, dw_leases_end},
		{DW_JOB_PERIODS, dw_periods_end}
	};

	do_jobs_of(jobs, lengthof(jobs));
	dw_each_wing(wing, jobs)
		do_jobs_of(wing->jobs, wing->njobs);
	return dw_jobs_next(&my_db->sweeper_news);
}

/* Rests until this time, by the clock of "now".  Returns true if a process woke the sweeper. */
static bool
rest_until(int64 now, int64 until)
{
	long		timeout = TimestampDifferenceMilliseconds(now, until);
	int			events;

	if (until <= now)
		return false;
	dw_process_sleeps(&my_db->sweeper, dw_time_add(dw_now(), timeout * 1000));
	events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout,
					   dw_wait_event(wait_event, "DelayWheelSweeper"));
	dw_process_sleeps(&my_db->sweeper, DW_AWAKE);
	ResetLatch(MyLatch);
	dw_worker_end_if_told();
	CHECK_FOR_INTERRUPTS();
	return (events & WL_LATCH_SET) != 0;
}

/* Rests until this time, or a call.  If an owner lacks a worker, returns false without a rest. */
static bool
rest_long(TimestampTz more_at)
{
	bool		stays;

	/* either the sweeper sees the owner's lack, or the timer sees that the sweeper rests */
	dw_sweeper_tell(&my_db->sweeper_news, DW_SWEEPER_RESTS);
	stays = !dw_starts_are_awaited();
	if (stays)
		(void) rest_until(dw_now(), more_at);
	(void) dw_sweeper_take(&my_db->sweeper_news, DW_SWEEPER_RESTS);
	return stays;
}

/*
 * Rests after a slice that began at "began" (by dw_uptime()).  A wake-up ends this rest only if the
 * sweeper must end.  Afterwards rests until more work is due.  "calls" is the number of wake-ups
 * before the slice.  Returns false if the sweeper must end to free its background worker.
 */
static bool
rest(int64 began, uint32 calls, TimestampTz more_at)
{
	int64		rested = dw_uptime() + Max(REST * (dw_uptime() - began), MIN_REST_US);

	dw_worker_activity(STATE_IDLE, "delay_wheel: resting between two pieces of work");
	while (rest_until(dw_uptime(), rested))
		if (sweeper_asked_to_end())
			return true;
	if (dw_process_calls(&my_db->sweeper) != calls || dw_worker_is_signalled())
		return true;
	if (dw_turn_is_over(my_db->sweeper.started))
		return false;
	if (more_at > dw_now() + LINGER_US)
		return rest_long(more_at);
	(void) rest_until(dw_now(), more_at);
	return true;
}

/* Main function of the background worker.  The argument is the number of its database. */
void
dw_sweeper_main(Datum number)
{
	MemoryContext round_context;

	/* pg_cancel_backend() has no effect, since the sweeper runs no query */
	pqsignal(SIGINT, PG_SIG_IGN);
	dw_crashes_watch_signals();
	dw_worker_begin();
	begin_serving(number);
	dw_sweep_begin(my_db);
	dw_retention_obey_settings(my_db);
	round_context = AllocSetContextCreate(TopMemoryContext, "delay_wheel sweeper",
										  ALLOCSET_DEFAULT_SIZES);

	for (;;)
	{
		int64		began = dw_uptime();
		uint32		calls = dw_process_looks(&my_db->sweeper);
		TimestampTz sweep_at;
		TimestampTz job_at;

		MemoryContextReset(round_context);
		MemoryContextSwitchTo(round_context);
		if (dw_worker_interrupts())
			dw_retention_obey_settings(my_db);
		/* the flag is cleared before the marks are read, so that no request is lost */
		(void) dw_sweeper_take(&my_db->sweeper_news, DW_LOOK_FOR_MARKS);
		sweep_at = dw_sweep_some();
		job_at = do_jobs();
		if (dw_worker_clock_set_back() > 0)
		{
			/* times in shared memory may be too late by the new clock, so set them again */
			dw_retention_begin(my_db);
			continue;
		}
		if (sweeper_asked_to_end() || dw_extension_gone)
			break;
		if (sweep_at == DW_NEVER && job_at > dw_now() + LINGER_US)
		{
			if (!dw_sweeper_is_told(&my_db->sweeper_news, DW_LOOK_FOR_MARKS))
				break;
			continue;
		}
		if (!rest(began, calls, Min(sweep_at, job_at)))
		{
			end_of_sweeper = DW_PROCESS_MADE_WAY;
			proc_exit(0);
		}
	}
	end_of_sweeper = DW_PROCESS_FINISHED;
	proc_exit(0);
}
