/*-------------------------------------------------------------------------
 *
 * give_way.c
 *	  Long tasks give way to sessions that wait for a lock on delay_wheel's tables.
 *
 * Run by the timer, every DW_GIVE_WAY_US while tasks run.
 *
 * An executor claims a task by deleting its row, so a running task holds a lock on
 * delay_wheel_data.task until its end.  A task may hold more locks, such as on the sequence if it
 * schedules tasks itself.  A session that needs the table alone (VACUUM FULL, ALTER TABLE,
 * DROP EXTENSION) waits for the end of all running tasks, and sessions that want to schedule
 * tasks queue up behind that session.  They would wait as long as the longest task runs.  So
 * the timer then terminates tasks that have run for DW_GIVE_WAY_US.  Such a task is put back, and
 * runs again later.
 *
 * The timer first tries to take each lock that a task may hold, without waiting.  Only if one
 * of them is not free does it ask the lock manager which process waits for which.
 *
 * A session in delay_wait() may hold a lock on the tables, too, if its transaction has read
 * or written tasks.  There may be a deadlock then that PostgreSQL cannot see: a command waits
 * for the session's lock, an executor that claims a task queues up behind the command, and
 * the session waits for the task.  So if a claim takes DW_GIVE_WAY_US, the timer makes sessions in
 * delay_wait() check whether they are the cause.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "storage/lock.h"
#include "utils/lsyscache.h"

#include "../base/clock.h"
#include "../base/wing.h"
#include "../ring/ring.h"
#include "../rows/catalog.h"
#include "../shmem/executors.h"
#include "../shmem/receivers.h"
#include "../shmem/shared.h"
#include "../task/task.h"
#include "timer.h"

/* True if the executor, of this database, has claimed its task DW_GIVE_WAY_US ago or earlier. */
static bool
runs_long(const DwDatabase *db, DwExecutor *e, TimestampTz now)
{
	return e->database == db->oid && e->state == DW_EXECUTOR_BUSY &&
		now - e->since >= DW_GIVE_WAY_US &&
		pg_atomic_read_u32(&e->xid) != InvalidTransactionId;
}

/*
 * True if the executor serves this database, has had a task for DW_GIVE_WAY_US, and could not
 * claim it.  Tasks that run outside of a transaction, or whose row stays until their end,
 * are claimed already.
 */
static bool
is_stuck(const DwDatabase *db, DwExecutor *e, TimestampTz now)
{
	return e->database == db->oid && e->state == DW_EXECUTOR_BUSY &&
		now - e->since >= DW_GIVE_WAY_US &&
		pg_atomic_read_u64(&e->autonomous) == 0 && pg_atomic_read_u64(&e->keeps) == 0 &&
		pg_atomic_read_u32(&e->xid) == InvalidTransactionId;
}

/* True if test() is true for any executor. */
static bool
any_executor(bool (*test) (const DwDatabase *db, DwExecutor *e, TimestampTz now),
			 const DwDatabase *db, TimestampTz now)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (test(db, &dw_executors[i], now))
			return true;
	return false;
}

/*
 * Returns when to look next: when the first of the tasks that run, or are about to, will
 * have run for DW_GIVE_WAY_US, but no earlier than DW_GIVE_WAY_US after the last look ("looked").
 * The same for transactions that have received messages.  DW_NEVER if there is none of
 * both.
 */
static TimestampTz
next_look(DwDatabase *db, TimestampTz looked, TimestampTz now)
{
	TimestampTz next = dw_receivers_oldest(db);

	if (next != DW_NEVER)
		next = Max(next, looked) + DW_GIVE_WAY_US;

	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		const DwExecutor *e = &dw_executors[i];

		if (e->database != db->oid)
			continue;
		/* one that is late tells the timer when it answers */
		if (e->state == DW_EXECUTOR_WOKEN && !dw_executor_is_late(e, now))
			next = Min(next, now + DW_GIVE_WAY_US);
		else if (e->state == DW_EXECUTOR_BUSY)
			next = Min(next, Max(e->since, looked) + DW_GIVE_WAY_US);
	}
	return next;
}

/*
 * Terminates the executor with this pid if its task has run for DW_GIVE_WAY_US, so that the task is
 * put back.  The process "waiter" waits for a lock on this relation; the log names both.
 */
static void
make_give_way(DwDatabase *db, pid_t pid, pid_t waiter, Oid relation)
{
	TimestampTz now = dw_now();
	int64		task = 0;
	char	   *text;

	/* an executor cannot leave its place, and so cannot end, without this lock */
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
					task, waiter, "delay_wheel_data", get_rel_name(relation));
	dw_problem(&db->problem, text);
	ereport(LOG,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg_internal("delay_wheel %s", text)));
}

/*
 * Terminates the session with this pid if it has received messages DW_GIVE_WAY_US ago or earlier
 * in its transaction, so that they are due again.
 */
static void
make_receiver_give_way(DwDatabase *db, pid_t pid, pid_t waiter, Oid relation)
{
	char	   *text;

	if (!dw_receiver_terminate(db, pid, dw_now() - DW_GIVE_WAY_US))
		return;
	text = psprintf("process %d, which has received messages in its transaction, is terminated, because process %d waits for a lock on %s.%s",
					pid, waiter, "delay_wheel_data", get_rel_name(relation));
	dw_problem(&db->problem, text);
	ereport(LOG,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg_internal("delay_wheel: %s", text)));
}

/*
 * Puts back long tasks that hold a lock on one of these relations for which others wait, and
 * messages of long transactions.
 */
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
			{
				make_give_way(db, holder->leaderPid, waiter->pid, waiter->locktag.locktag_field2);
				make_receiver_give_way(db, holder->leaderPid, waiter->pid,
									   waiter->locktag.locktag_field2);
			}
		}
	}
}

/* Puts back long tasks if another process waits for a lock on one of delay_wheel's tables. */
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
 * If it is time to look: puts back long tasks for whose locks other processes wait, and makes
 * sessions in delay_wait() check for deadlocks.  Returns when to call it again; DW_NEVER if
 * no task runs, and no transaction has received messages.
 */
TimestampTz
dw_give_way(DwDatabase *db)
{
	static TimestampTz looked = 0;
	TimestampTz now = dw_now();

	if (next_look(db, looked, now) <= now)
	{
		looked = now;
		if (any_executor(runs_long, db, now) || dw_receivers_oldest(db) <= now - DW_GIVE_WAY_US)
			look_who_waits(db);
		if (any_executor(is_stuck, db, now))
			dw_wings_doubt_ends(db);
	}
	return next_look(db, looked, now);
}
