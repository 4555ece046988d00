/*-------------------------------------------------------------------------
 *
 * call_sweeper.c
 *	  The timer starts the sweeper when there is something to remove.
 *
 * Run by the timer.  It looks whether there are marks of delay_cancel_all(), waits for
 * the times at which old rows are to go, and starts a sweeper, or wakes the one that
 * there is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../rows/catalog.h"
#include "../shmem/shared.h"
#include "../task/marks.h"
#include "call_sweeper.h"

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

/* What this timer knows. */
static BackgroundWorkerHandle *handle = NULL;
static bool look_needed = false;	/* there may be marks */
static bool sweeper_needed = false;
static TimestampTz not_before = PG_INT64_MIN;
static int64 backoff = 0;
static bool told_no_worker = false;

static void
put_call_off(int64 max)
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
		put_call_off(BACKOFF_MAX_US);
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
	put_call_off(NO_WORKER_MAX_US);
	no_worker(db);
	return false;
}

/*
 * For timers: starts the sweeper if there is something to remove.  Returns
 * when it wants to be called again.
 */
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

/*
 * For timers: an owner needs a background worker.  One that waits ends, for some time.
 */
void
dw_sweeper_ask_to_make_way(DwDatabase *db)
{
	uint32		proc = pg_atomic_read_u32(&db->sweeper_proc);

	if (proc != 0 && pg_atomic_read_u32(&db->sweeper_rests) != 0)
		SetLatch(dw_proc_latch(proc));
}

/*
 * For timers: has the sweeper's background worker ended since it was asked last?
 */
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
