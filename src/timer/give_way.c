/*-------------------------------------------------------------------------
 *
 * give_way.c
 *	  Puts long tasks back if other sessions wait for a lock on delay_wheel's tables.
 *
 * Run by the timer, every DW_GIVE_WAY_US while tasks run, as README.md describes.  A task holds
 * locks on delay_wheel_data.task, and perhaps on more relations, for example on the sequence if it
 * schedules tasks.
 *
 * If the transaction of a session in delay_wait() has read or written tasks, it holds a lock on the
 * tables, too.  This lock may cause a deadlock that PostgreSQL cannot detect: a command waits for
 * the session's lock, an executor that claims a task queues up behind the command, and the session
 * waits for the task.  So if a claim takes DW_GIVE_WAY_US, the timer makes sessions in delay_wait()
 * check whether their locks are the cause.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "utils/lsyscache.h"

#include "timer.h"

/* Returns true if this database's executor took its task at least DW_GIVE_WAY_US ago. */
static bool
is_busy_long(const DwDatabase *db, const DwExecutor *e, TimestampTz now)
{
	return e->database == db->oid && e->state == DW_EXECUTOR_BUSY &&
		now - e->since >= DW_GIVE_WAY_US;
}

/* Returns true if is_busy_long(), and the executor has claimed its task. */
static bool
runs_long(const DwDatabase *db, DwExecutor *e, TimestampTz now)
{
	return is_busy_long(db, e, now) && pg_atomic_read_u32(&e->xid) != InvalidTransactionId;
}

/*
 * Returns true if an executor of this database has waited for DW_GIVE_WAY_US to claim its task.  A
 * task outside of a transaction, or a task whose row stays until its end, is already claimed.
 */
static bool
is_stuck(const DwDatabase *db, DwExecutor *e, TimestampTz now)
{
	return is_busy_long(db, e, now) &&
		pg_atomic_read_u64(&e->autonomous) == 0 && pg_atomic_read_u64(&e->keeps) == 0 &&
		pg_atomic_read_u32(&e->xid) == InvalidTransactionId;
}

/*
 * Returns when the first present task will have run for DW_GIVE_WAY_US, but at least DW_GIVE_WAY_US
 * after the last look ("looked").  Includes tasks that are about to run, and transactions that have
 * received messages.  Returns DW_NEVER without such a task or transaction.
 */
static TimestampTz
next_look(DwDatabase *db, TimestampTz looked, TimestampTz now)
{
	TimestampTz next = dw_receivers_oldest(db);

	if (next != DW_NEVER)
		next = Max(next, looked) + DW_GIVE_WAY_US;

	dw_each_executor(e)
	{
		if (e->database != db->oid)
			continue;
		/* a late executor wakes the timer when it answers */
		if (e->state == DW_EXECUTOR_WOKEN && !dw_executor_is_late(e, now))
			next = Min(next, now + DW_GIVE_WAY_US);
		else if (e->state == DW_EXECUTOR_BUSY)
			next = Min(next, Max(e->since, looked) + DW_GIVE_WAY_US);
	}
	return next;
}

/*
 * Terminates the executor with this pid if its task has run long, so that the task is put back for
 * the process "waiter", which waits for a lock on this relation.
 */
static void
make_give_way(DwDatabase *db, pid_t pid, pid_t waiter, Oid relation)
{
	TimestampTz now = dw_now();
	int64		task = 0;
	char	   *text;

	/* an executor needs this lock to leave its place, so it cannot end now */
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_each_executor(e)
	{
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

/* Terminates the session with this pid if it received messages DW_GIVE_WAY_US ago. */
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

/* Calls make_give_way() for the holders of locks on these relations that others wait for. */
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

/* Puts long tasks back if another process waits for a lock on one of delay_wheel's tables. */
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
 * If the time has come, puts long tasks back for whose locks other processes wait, and makes
 * sessions in delay_wait() check for deadlocks.
 */
TimestampTz
dw_give_way(DwDatabase *db)
{
	static TimestampTz looked = 0;
	TimestampTz now = dw_now();

	if (next_look(db, looked, now) <= now)
	{
		bool		any_long = dw_receivers_oldest(db) <= now - DW_GIVE_WAY_US;
		bool		any_stuck = false;

		looked = now;
		dw_each_executor(e)
		{
			any_long |= runs_long(db, e, now);
			any_stuck |= is_stuck(db, e, now);
		}
		if (any_long)
			look_who_waits(db);
		if (any_stuck)
			dw_wings_doubt_ends(db);
	}
	return next_look(db, looked, now);
}
