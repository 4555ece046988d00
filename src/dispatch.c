/*-------------------------------------------------------------------------
 *
 * dispatch.c
 *	  Which executors are woken, started and ended: decided by the timer.
 *
 * A lane with ready tasks first gets the idle executors of its owner, then a
 * new one, one at a time: those on their way count.  If all places are taken,
 * an idle executor of another owner must go, and busy ones give way after
 * their turn (db->starving).
 *
 * Executors are dynamic background workers that the postmaster never
 * restarts; one that does not come up (no worker slot, a role that cannot
 * connect) makes the lanes of its owner wait, longer each time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "dispatch.h"
#include "executor.h"
#include "inject.h"
#include "lanes.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "settings.h"
#include "utils/memutils.h"

/* An executor of a former timer that has not come up by then never will. */
#define START_LIMIT_US	USECS_PER_MINUTE

/* This timer's workers, by place. */
static BackgroundWorkerHandle **handles = NULL;


/* Frees a place whose worker is gone without ever having taken it. */
static void
free_if_dead(DwDatabase *db, uint32 place)
{
	DwExecutor *e = &dw_executors[place];
	bool		dead;
	pid_t		pid;

	if (e->state != DW_EXECUTOR_STARTING || e->database != db->oid)
		return;
	if (handles[place] != NULL)
		dead = GetBackgroundWorkerPid(handles[place], &pid) == BGWH_STOPPED;
	else
		dead = dw_now() - e->since > START_LIMIT_US;
	if (!dead)
		return;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	if (e->state == DW_EXECUTOR_STARTING && e->database == db->oid)
	{
		dw_owner_blocked(db, e->owner, DW_RETRY_CONNECT_MAX);
		e->generation++;
		e->state = DW_EXECUTOR_FREE;
		e->database = InvalidOid;
	}
	LWLockRelease(dw_ready_lock(db));
	LWLockRelease(dw_shared->table_lock);
}

/* Reserves a place; -1 if there is none. */
static int
reserve_place(DwDatabase *db, Oid owner)
{
	int			place = -1;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	for (uint32 i = 0; i < dw_shared->nexecutors && place < 0; i++)
		if (dw_executors[i].state == DW_EXECUTOR_FREE)
			place = i;
	if (place >= 0)
	{
		DwExecutor *e = &dw_executors[place];

		e->database = db->oid;
		e->owner = owner;
		e->generation++;
		e->must_exit = false;
		e->put_back = false;
		e->pid = 0;
		e->proc = 0;
		e->current.id = 0;
		e->since = dw_now();
		pg_atomic_write_u32(&e->xid, InvalidTransactionId);
		pg_atomic_write_u32(&e->stale, 0);
		e->state = DW_EXECUTOR_STARTING;
	}
	LWLockRelease(dw_shared->table_lock);
	return place;
}

/* False if there is no background worker to be had. */
static bool
start_executor(DwDatabase *db, Oid owner)
{
	/* said once, until one could be started again */
	static bool out_of_workers = false;
	int			place = reserve_place(db, owner);
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
	};
	DwExecutorStart start;
	MemoryContext context;
	bool		registered = false;

	if (place >= 0)
	{
		start.generation = dw_executors[place].generation;
		snprintf(worker.bgw_name, BGW_MAXLEN, "delay_wheel executor");
		snprintf(worker.bgw_type, BGW_MAXLEN, "delay_wheel executor");
		strlcpy(worker.bgw_library_name, "delay_wheel", sizeof(worker.bgw_library_name));
		strlcpy(worker.bgw_function_name, "dw_executor_main", BGW_MAXLEN);
		worker.bgw_main_arg = Int32GetDatum(place);
		memcpy(worker.bgw_extra, &start, sizeof(start));
		worker.bgw_notify_pid = MyProcPid;
		if (handles[place])
			pfree(handles[place]);
		handles[place] = NULL;
		/* the handle is kept */
		context = MemoryContextSwitchTo(TopMemoryContext);
		registered = RegisterDynamicBackgroundWorker(&worker, &handles[place]);
		MemoryContextSwitchTo(context);
	}
	if (registered)
	{
		out_of_workers = false;
		return true;
	}

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	if (place >= 0)
	{
		dw_executors[place].state = DW_EXECUTOR_FREE;
		dw_executors[place].database = InvalidOid;
	}
	dw_owner_blocked(db, owner, DW_RETRY_WORKER_MAX);
	LWLockRelease(dw_ready_lock(db));
	LWLockRelease(dw_shared->table_lock);
	if (!out_of_workers)
		ereport(LOG,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("could not start delay_wheel executor"),
				 errhint("You may need to increase \"%s\".", "max_worker_processes")));
	out_of_workers = true;
	dw_problem(db, "no free background worker for an executor");
	return false;
}

/*
 * Wakes idle executors for a lane; returns how many more it could use.  Under
 * the ready lock.
 */
static int
wake_executors(DwDatabase *db, DwLane *lane)
{
	int			want = Min(dw_ready_count(lane), dw_lane_executors() - lane->running);

	for (uint32 i = 0; i < dw_shared->nexecutors && want > 0; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e->database != db->oid || e->owner != lane->owner || e->must_exit)
			continue;
		if (e->state == DW_EXECUTOR_IDLE)
		{
			e->state = DW_EXECUTOR_WOKEN;
			SetLatch(dw_proc_latch(e->proc));
			want--;
		}
		else if (e->state != DW_EXECUTOR_BUSY && e->state != DW_EXECUTOR_FREE)
			want--;
	}
	return want;
}

static void
count_executors(DwDatabase *db, Oid owner, uint32 *total, uint32 *of_owner)
{
	*total = *of_owner = 0;
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e->state == DW_EXECUTOR_FREE || e->database != db->oid)
			continue;
		(*total)++;
		if (e->owner == owner)
			(*of_owner)++;
	}
}

/* An idle executor of somebody else ends, to make room. */
static void
end_idle_executor(DwDatabase *db, Oid not_of)
{
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e->database == db->oid && e->owner != not_of &&
			e->state == DW_EXECUTOR_IDLE && !e->must_exit)
		{
			e->must_exit = true;
			SetLatch(dw_proc_latch(e->proc));
			break;
		}
	}
	LWLockRelease(dw_ready_lock(db));
}

void
dw_dispatch_end_all(DwDatabase *db)
{
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e->database != db->oid || e->state == DW_EXECUTOR_FREE)
			continue;
		e->must_exit = true;
		if (e->proc != 0)
			SetLatch(dw_proc_latch(e->proc));
	}
	LWLockRelease(dw_ready_lock(db));
}

/*
 * Gives an owner another executor if it may have one.  Returns whether it is
 * starving: has none and gets none.
 */
static bool
provide_executor(DwDatabase *db, Oid owner)
{
	uint32		total;
	uint32		of_owner;

	count_executors(db, owner, &total, &of_owner);
	if (of_owner >= dw_owner_executors() ||
		(total < (uint32) dw_max_executors && start_executor(db, owner)))
		return false;
	end_idle_executor(db, owner);
	return of_owner == 0;
}

void
dw_dispatch_expect(DwDatabase *db, DwLane *lane)
{
	uint32		total;
	uint32		of_owner;

	count_executors(db, lane->owner, &total, &of_owner);
	if (of_owner == 0 && total < (uint32) dw_max_executors && lane->retry_at <= dw_now())
		(void) start_executor(db, lane->owner);
}

/* When the first of the lanes that wait for an executor is to be tried again. */
static TimestampTz
earliest_retry(DwDatabase *db, TimestampTz now)
{
	TimestampTz earliest = DW_NEVER;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	for (int32 i = db->ready_head; i != DW_NO_LANE; i = dw_lanes[i].ready_next)
		if (dw_lanes[i].retry_at > now)
			earliest = Min(earliest, dw_lanes[i].retry_at);
	LWLockRelease(dw_ready_lock(db));
	return earliest;
}

TimestampTz
dw_dispatch(DwDatabase *db)
{
	TimestampTz now = dw_now();
	TimestampTz look_again = DW_NEVER;
	List	   *missing = NIL;
	ListCell   *lc;
	bool		starving = false;
	int32		next;

	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		free_if_dead(db, i);

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	for (int32 i = db->ready_head; i != DW_NO_LANE; i = next)
	{
		DwLane	   *lane = &dw_lanes[i];

		next = lane->ready_next;
		if (dw_ready_count(lane) == 0)
			dw_ready_unlist(db, lane);
		else if (lane->running >= dw_lane_executors() || wake_executors(db, lane) <= 0)
			continue;
		else if (lane->retry_at > now)
			look_again = Min(look_again, lane->retry_at);
		else
			missing = list_append_unique_oid(missing, lane->owner);
	}
	LWLockRelease(dw_ready_lock(db));

	foreach(lc, missing)
	{
		if (provide_executor(db, lfirst_oid(lc)))
			starving = true;
	}
	if (missing != NIL)
		look_again = Min(look_again, earliest_retry(db, now));
	list_free(missing);
	pg_atomic_write_u32(&db->starving, starving);
	return look_again;
}

void
dw_dispatch_begin(void)
{
	handles = MemoryContextAllocZero(TopMemoryContext,
									 dw_shared->nexecutors * sizeof(*handles));
}
