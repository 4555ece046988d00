/*-------------------------------------------------------------------------
 *
 * give_way.c
 *	  Long tasks give way to who waits for a lock on delay_wheel's tables.
 *
 * A running task has a lock on delay_wheel.task until its end, since its
 * claim is the deletion of its row; it may have others, on the sequence if it
 * schedules tasks itself.  Somebody who wants the table for himself (VACUUM
 * FULL, ALTER TABLE, DROP EXTENSION) waits for the end of all tasks that run,
 * and whoever wants to schedule a task queues up behind him: for as long as
 * the longest task runs.  So one that has run for a while is terminated then,
 * which puts it back; it runs again afterwards.
 *
 * Run by the timer: every LONG_US as long as tasks run, and at no other time.
 * The first look takes each lock that a task may have, if it is to be had at
 * once.  Only if one is not, the lock manager is asked who waits for whom.
 *
 * A session in delay_wait() may have a lock on the tables, too, if its
 * transaction has read or written tasks.  Then the one who waits for it, the
 * task that queues up behind that one, and the session that waits for the task
 * are a deadlock, which PostgreSQL cannot see.  So when a claim does not get
 * on, those who wait for tasks are made to look whether it is their doing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "storage/lock.h"
#include "utils/lsyscache.h"

#include "../base/clock.h"
#include "../ring/ring.h"
#include "../rows/catalog.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "../shmem/waiters.h"
#include "../task/row_lock.h"
#include "give_way.h"

/* A task that has run for so long gives way. */
#define LONG_US		(500 * 1000)

/* Has it claimed its task, and run it for long? */
static bool
runs_long(const DwDatabase *db, DwExecutor *e, TimestampTz now)
{
	return e->database == db->oid && e->state == DW_EXECUTOR_BUSY &&
		now - e->since >= LONG_US &&
		pg_atomic_read_u32(&e->xid) != InvalidTransactionId;
}

/* Has it a task, but not begun to claim it?  One that runs outside of it has. */
static bool
is_stuck(const DwDatabase *db, DwExecutor *e, TimestampTz now)
{
	return e->database == db->oid && e->state == DW_EXECUTOR_BUSY &&
		now - e->since >= LONG_US &&
		pg_atomic_read_u64(&e->autonomous) == 0 && pg_atomic_read_u64(&e->keeps) == 0 &&
		pg_atomic_read_u32(&e->xid) == InvalidTransactionId;
}

static bool
any_is_stuck(const DwDatabase *db, TimestampTz now)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (is_stuck(db, &dw_executors[i], now))
			return true;
	return false;
}

static bool
any_runs_long(const DwDatabase *db, TimestampTz now)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (runs_long(db, &dw_executors[i], now))
			return true;
	return false;
}

/*
 * When the first of the tasks that run, or are about to, has run for long, or
 * the next look is due.
 */
static TimestampTz
next_look(const DwDatabase *db, TimestampTz looked, TimestampTz now)
{
	TimestampTz next = DW_NEVER;

	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		const DwExecutor *e = &dw_executors[i];

		if (e->database != db->oid)
			continue;
		if (e->state == DW_EXECUTOR_WOKEN)
			next = Min(next, now + LONG_US);
		else if (e->state == DW_EXECUTOR_BUSY)
			next = Min(next, Max(e->since, looked) + LONG_US);
	}
	return next;
}

/* Terminates the executor with this pid, if its task has run for long. */
static void
make_give_way(DwDatabase *db, pid_t pid, pid_t waiter, Oid relation)
{
	TimestampTz now = dw_now();
	int64		task = 0;
	char	   *text;

	/* it cannot leave its place, and so not end, without this lock */
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e->pid != pid || !runs_long(db, e, now) || e->put_back)
			continue;
		task = e->current.id;
		e->put_back = true;
		(void) kill(pid, SIGTERM);
	}
	LWLockRelease(dw_ready_lock(db));
	if (task == 0)
		return;

	text = psprintf("task " INT64_FORMAT " is put back, because process %d waits for a lock on %s.%s",
					task, waiter, "delay_wheel", get_rel_name(relation));
	dw_problem(db, text);
	ereport(LOG,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg_internal("delay_wheel %s", text)));
}

/* Puts back the long tasks that hold a lock for which somebody else waits. */
static void
put_back_blockers(DwDatabase *db, const Oid *relations, int n)
{
	LockData   *data = GetLockStatusData();

	for (int w = 0; w < data->nelements; w++)
	{
		LockInstanceData *waiter = &data->locks[w];

		if (waiter->waitLockMode == NoLock || !dw_is_one_of(&waiter->locktag, relations, n))
			continue;
		for (int h = 0; h < data->nelements; h++)
		{
			LockInstanceData *holder = &data->locks[h];

			if (holder->leaderPid != waiter->leaderPid &&
				memcmp(&holder->locktag, &waiter->locktag, sizeof(LOCKTAG)) == 0 &&
				dw_locks_conflict(holder->holdMask, waiter->waitLockMode))
				make_give_way(db, holder->leaderPid, waiter->pid, waiter->locktag.locktag_field2);
		}
	}
}

static void
look_who_waits(DwDatabase *db)
{
	DwCatalog	cat;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	if (dw_catalog_lookup(&cat))
	{
		const Oid	relations[] = {
			cat.task, cat.task_id_seq, cat.failed, cat.prepared, cat.queue, cat.cancellation
		};

		if (dw_lock_is_wanted(relations, lengthof(relations)))
			put_back_blockers(db, relations, lengthof(relations));
	}
	CommitTransactionCommand();
}

/*
 * Looks, if it is time, whether somebody waits behind a long task, and puts
 * it back.  Returns when to look again; DW_NEVER if nothing runs.
 */
TimestampTz
dw_give_way(DwDatabase *db)
{
	static TimestampTz looked = 0;
	TimestampTz now = dw_now();

	if (next_look(db, looked, now) <= now)
	{
		looked = now;
		if (any_runs_long(db, now))
			look_who_waits(db);
		if (any_is_stuck(db, now))
			dw_make_waiters_look(db);
	}
	return next_look(db, looked, now);
}
