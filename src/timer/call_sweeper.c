/*-------------------------------------------------------------------------
 *
 * call_sweeper.c
 *	  Starts the sweeper when there are rows to remove.
 *
 * Run by the timer.  The sweeper has work if there are marks (rows in which delay_cancel_all()
 * notes which tasks it cancels), or if the time of a job has come.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/clock.h"
#include "../base/worker.h"
#include "../shmem/shared.h"
#include "access/table.h"
#include "timer.h"

/* Pause after a sweeper has ended to free its background worker, in microseconds. */
#define STAY_AWAY_US	(10 * USECS_PER_SEC)

/* Microseconds before the next look if the table of marks is locked. */
#define RETRY_US		(100 * 1000)

/* Minimum and maximum pause after a sweeper's error.  It doubles with each error in a row. */
#define BACKOFF_MIN_US	USECS_PER_SEC
#define BACKOFF_MAX_US	(5 * USECS_PER_MINUTE)

/* If a sweeper has an error after this time, the pause is the minimum again. */
#define HEALTHY_US		USECS_PER_MINUTE

/* A sweeper that an earlier timer has registered must start within this time. */
#define START_LIMIT_US	USECS_PER_MINUTE
/* Interval at which the timer checks whether its sweeper has started. */
#define START_LOOK_US	USECS_PER_SEC

/* The last sweeper that this timer has started; NULL after its end was noticed. */
static BackgroundWorkerHandle *handle = NULL;
/* True if marks may have been made or removed since the timer last read the marks. */
static bool look_needed = false;
/* True if the last read has found marks. */
static bool sweeper_needed = false;
/* The timer starts no sweeper before this time. */
static TimestampTz not_before = PG_INT64_MIN;
/* The last pause, in microseconds; 0 if the last sweeper had no problem. */
static int64 backoff = 0;
/* True if the present lack of a background worker has been logged. */
static bool told_no_worker = false;

/* For dw_read(): sets sweeper_needed to true if marks exist. */
static bool
look_for_marks(Relation tasks, void *arg)
{
	Relation	marks;

	if (!dw_read_also(dw_catalog()->cancellation))
		return false;
	marks = table_open(dw_catalog()->cancellation, NoLock);
	sweeper_needed = dw_sweep_needed(marks);
	table_close(marks, NoLock);
	return true;
}

/* Delays the next sweeper if the last one has failed, did not start, or made way. */
static void
notice_end(DwDatabase *db)
{
	int64		now = dw_uptime();
	DwProcessEnd end;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	if (db->sweeper.state == DW_PROCESS_STARTING &&
		(handle ? dw_worker_has_ended(handle) :
		 now - db->sweeper.started > START_LIMIT_US))
		dw_process_is_lost(&db->sweeper);
	end = dw_process_take_end(&db->sweeper);
	if (end == DW_PROCESS_FAILED)
	{
		if (now - db->sweeper.started > HEALTHY_US)
			backoff = 0;
		backoff = backoff == 0 ? BACKOFF_MIN_US : Min(backoff * 2, BACKOFF_MAX_US);
		not_before = dw_now() + backoff;
	}
	else if (end == DW_PROCESS_MADE_WAY)
		not_before = dw_now() + STAY_AWAY_US;
	LWLockRelease(dw_shared->table_lock);
}

/* Makes the sweeper look again for work.  Returns false if no sweeper runs or is starting. */
static bool
call_sweeper(DwDatabase *db)
{
	bool		there;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	there = db->sweeper.state != DW_PROCESS_NONE;
	if (there)
	{
		dw_sweeper_tell(&db->sweeper_news, DW_LOOK_FOR_MARKS);
		(void) dw_process_wake(&db->sweeper);
	}
	LWLockRelease(dw_shared->table_lock);
	return there;
}

/*
 * Reports that no background worker is free for a sweeper.  Does not replace the last problem if
 * tasks of a role cannot run, since such a problem is more important to users.
 */
static void
no_worker(DwDatabase *db)
{
	if (!dw_owners_are_blocked(db))
		dw_problem(&db->problem, "could not start the sweeper: no background worker is free");
	if (dw_lack_lasts(&db->sweeper.lack) && !told_no_worker)
	{
		told_no_worker = true;
		ereport(LOG,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("could not start delay_wheel sweeper of database \"%s\"", db->name),
				 errdetail("Old rows stay for some time. Cancelled tasks are not run."),
				 errhint("You may need to increase \"%s\".", "max_worker_processes")));
	}
}

/* Starts a sweeper.  Returns false if no worker is free, or other processes wait for one. */
static bool
start_sweeper(DwDatabase *db)
{
	bool		registered = dw_start_may_be_tried(&db->sweeper.lack, DW_START_OTHER);

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	dw_process_set_state(&db->sweeper, DW_PROCESS_STARTING);
	LWLockRelease(dw_shared->table_lock);

	registered = registered &&
		dw_worker_start("sweeper", dw_database_number(db), &db->oid, sizeof(Oid), &handle);
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	if (!registered)
		dw_process_set_state(&db->sweeper, DW_PROCESS_NONE);
	LWLockRelease(dw_shared->table_lock);
	if (registered)
	{
		dw_lack_ends(&db->sweeper.lack);
		told_no_worker = false;
		return true;
	}

	/* InvalidOid: executors of this database may end, too, so that old rows are removed */
	dw_start_refused(&db->sweeper.lack, DW_START_OTHER, InvalidOid);
	no_worker(db);
	return false;
}

/* Starts or wakes the sweeper for work.  "changed": marks may have changed since the last call. */
TimestampTz
dw_sweeper_look(DwDatabase *db, bool changed)
{
	TimestampTz now = dw_now();
	TimestampTz job_at = dw_jobs_next(&db->sweeper_news);

	look_needed |= changed;
	notice_end(db);
	if (look_needed &&
		dw_read(db, "look for cancellations", look_for_marks, NULL) != DW_READ_DONE &&
		!dw_extension_gone)
		return now + RETRY_US;
	look_needed = false;
	/* during a restart a sweeper would end at once; the next timer starts a sweeper */
	if (dw_restart_at(db) != DW_NEVER)
		return DW_NEVER;
	if (dw_extension_gone || (!sweeper_needed && job_at > now))
	{
		dw_lack_ends(&db->sweeper.lack);
		return job_at;
	}

	/* a sweeper increments "control" when it ends, so the timer calls this again */
	if (call_sweeper(db))
		return db->sweeper.state == DW_PROCESS_STARTING ? now + START_LOOK_US : DW_NEVER;
	if (not_before > now)
		return not_before;
	return start_sweeper(db) ? now + START_LOOK_US :
		dw_time_add(now, dw_start_wait(&db->sweeper.lack, DW_START_OTHER));
}

/* Returns true if a sweeper's background worker has ended since the last call. */
bool
dw_sweeper_worker_ended(DwDatabase *db)
{
	/* notice_end() handles a sweeper that is starting */
	if (handle == NULL || db->sweeper.state == DW_PROCESS_STARTING ||
		!dw_worker_has_ended(handle))
		return false;
	pfree(handle);
	handle = NULL;
	return true;
}
