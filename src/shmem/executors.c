/*-------------------------------------------------------------------------
 *
 * executors.c
 *	  Places of executors in shared memory, as other processes read them.
 *
 * Run by executors, for their own place, and by all processes that ask which task an
 * executor runs.  A place is entered and left under the table lock; what its executor
 * runs changes under the ready lock of the database.  Some fields are atomics, which
 * are read without a lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../ring/ring.h"
#include "executors.h"
#include "places.h"
#include "shared.h"

/*
 * An executor that has been idle this long may end if another database lacks its worker.  As long as
 * a turn of the owners of one database: to start another one takes a tenth of it.
 */
#define IDLE_US		(100 * 1000)

DwExecutor *dw_this_executor = NULL;
DwExecutor *dw_executors = NULL;

/*
 * The executor whose task this process works for; NULL if it works for none.
 *
 * A parallel worker works for its leader's task.  The leader runs no other task
 * meanwhile.
 */
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

/* The executor of this database that runs its task in this transaction, or NULL. */
static DwExecutor *
executor_of(TransactionId xid)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].database == MyDatabaseId &&
			TransactionIdEquals(pg_atomic_read_u32(&dw_executors[i].xid), xid))
		{
			/* the executor stores current before xid */
			pg_read_barrier();
			return &dw_executors[i];
		}
	return NULL;
}

/* True if an executor of this database runs a task in this transaction. */
bool
dw_xid_is_executor(TransactionId xid)
{
	return executor_of(xid) != NULL;
}

/*
 * True if an executor of this database runs a batch in this transaction: several tasks,
 * and the transaction ends soon.
 */
bool
dw_xid_is_batch(TransactionId xid)
{
	DwExecutor *e = executor_of(xid);

	return e != NULL && e->in_batch;
}

/*
 * True if an executor runs exactly this task in this transaction.  The transaction then
 * lasts as long as the task.
 */
bool
dw_executor_claims(int64 id, TransactionId xid)
{
	DwExecutor *e = executor_of(xid);

	return e != NULL && !e->in_batch && e->current.id == id;
}

/*
 * True if an executor of this database runs the task outside of a transaction, and its
 * row stays meanwhile.
 */
bool
dw_executor_keeps(int64 id)
{
	/* 0 stands for no task */
	if (id == 0)
		return false;
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].database == MyDatabaseId &&
			pg_atomic_read_u64(&dw_executors[i].keeps) == (uint64) id)
			return true;
	return false;
}

/*
 * True if an executor of this database runs the task outside of a transaction, and its
 * row was deleted before.  Then *owner is set to the owner of the task.
 */
bool
dw_executor_runs_autonomous(int64 id, Oid *owner)
{
	/* 0 stands for no task */
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

/*
 * Returns when an executor of the database began the task that it runs alone; 0 if none
 * runs it.
 */
TimestampTz
dw_executor_since(DwDatabase *db, int64 id)
{
	TimestampTz since = 0;

	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	for (uint32 i = 0; i < dw_shared->nexecutors && since == 0; i++)
	{
		const DwExecutor *e = &dw_executors[i];

		if (e->database == MyDatabaseId && e->state == DW_EXECUTOR_BUSY && !e->in_batch &&
			e->current.id == id)
			since = e->since;
	}
	LWLockRelease(dw_ready_lock(db));
	return since;
}

/*
 * True if an executor of this database runs a task of the queue for which
 * dw_executor_runs_autonomous() is true.
 *
 * Reads without a lock.  A change while this process looks is the end of such a task,
 * which dw_autonomous_ended() tells.
 */
bool
dw_executor_runs_autonomous_in(int16 queue)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e->database != MyDatabaseId || pg_atomic_read_u64(&e->autonomous) == 0)
			continue;
		/* the executor stores current before autonomous */
		pg_read_barrier();
		if (dw_lanes[e->current.lane].queue == queue)
			return true;
	}
	return false;
}

/*
 * Since when others wait for an answer of the executor: that it has come up, looks for work, or
 * ends.  0 if nobody does; a busy one may take as long as its task likes.
 */
TimestampTz
dw_executor_unanswered_since(const DwExecutor *e)
{
	switch (e->state)
	{
		case DW_EXECUTOR_STARTING:
		case DW_EXECUTOR_CONNECTING:
			return e->since;
		case DW_EXECUTOR_IDLE:
		case DW_EXECUTOR_WOKEN:
			return e->called;
		default:
			return 0;
	}
}

/* True if the executor, which is not busy, has not answered for DW_LATE_US. */
bool
dw_executor_is_late(const DwExecutor *e, TimestampTz now)
{
	TimestampTz since = dw_executor_unanswered_since(e);

	return since != 0 && now - since >= DW_LATE_US;
}

/* Makes an executor end, a busy one after its task.  The caller holds the ready lock. */
void
dw_executor_end(DwExecutor *e)
{
	e->must_exit = true;
	if (e->called == 0)
		e->called = dw_now();
	if (e->proc != 0)
		SetLatch(dw_proc_latch(e->proc));
}

/* True if the database has an executor, also one that is still starting.  Takes no lock. */
bool
dw_executors_exist(Oid database)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].database == database && dw_executors[i].state != DW_EXECUTOR_FREE)
			return true;
	return false;
}

/*
 * Makes all executors of the database end, or with an owner only those of the owner.  Takes
 * the ready lock.
 */
void
dw_executors_end(DwDatabase *db, Oid owner)
{
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e->database == db->oid && e->state != DW_EXECUTOR_FREE &&
			(!OidIsValid(owner) || e->owner == owner))
			dw_executor_end(e);
	}
	LWLockRelease(dw_ready_lock(db));
}

/*
 * Returns the executor that has been idle longest, for "idle_for" microseconds at least, of
 * this database ("here") or of all others, and not of this role; NULL if there is none.
 */
DwExecutor *
dw_executor_idle_longest(Oid database, bool here, Oid not_of, int64 idle_for)
{
	DwExecutor *idle = NULL;
	TimestampTz since = dw_now() - idle_for;

	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if ((e->database == database) == here && e->owner != not_of &&
			e->state == DW_EXECUTOR_IDLE && !e->must_exit && e->since <= since)
		{
			idle = e;
			since = e->since;
		}
	}
	return idle;
}

/* Ends an executor of another database, if it is still at work there; takes locks. */
static void
end_elsewhere(DwExecutor *e)
{
	Oid			database = e->database;
	DwDatabase *other;

	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	other = OidIsValid(database) ? dw_database_find(database) : NULL;
	if (other != NULL)
	{
		LWLockAcquire(dw_ready_lock(other), LW_EXCLUSIVE);
		if (e->database == database && e->state >= DW_EXECUTOR_IDLE)
			dw_executor_end(e);
		LWLockRelease(dw_ready_lock(other));
	}
	LWLockRelease(dw_shared->table_lock);
}

/*
 * Ends the executor of another database than this one that has been idle longest, for
 * IDLE_US at least; false if there is none.  Takes the table lock, and a ready lock.
 */
bool
dw_executor_end_idle_elsewhere(Oid database)
{
	DwExecutor *idle = dw_executor_idle_longest(database, false, InvalidOid, IDLE_US);

	if (idle == NULL)
		return false;
	end_elsewhere(idle);
	return true;
}

/*
 * Ends an executor of another database than this one: one that is idle just now, else one after its
 * task, the one that began it last, since it is likely to have short ones.  False if there is none,
 * but such as were told before.  Takes the table lock, and a ready lock.
 */
bool
dw_executor_end_turn_elsewhere(Oid database)
{
	DwExecutor *last = dw_executor_idle_longest(database, false, InvalidOid, 0);

	for (uint32 i = 0; i < dw_shared->nexecutors && (last == NULL || last->state != DW_EXECUTOR_IDLE); i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e->database != database && e->state == DW_EXECUTOR_BUSY && !e->must_exit &&
			(last == NULL || e->since > last->since))
			last = e;
	}
	if (last == NULL)
		return false;
	end_elsewhere(last);
	return true;
}

/*
 * Ends the process if it was told to, between two attempts to run its task, which is
 * put back and not to blame.  Called by executors.  Takes the ready lock.
 */
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

/*
 * True if an executor of this database could not claim the task, since another
 * transaction had locked its row.
 */
bool
dw_executor_was_refused(int64 id)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].database == MyDatabaseId &&
			pg_atomic_read_u64(&dw_executors[i].refused) == (uint64) id)
			return true;
	return false;
}

/* Takes this note back, for all executors of this database. */
void
dw_executor_forget_refused(int64 id)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		uint64		expected = (uint64) id;

		if (dw_executors[i].database == MyDatabaseId)
			pg_atomic_compare_exchange_u64(&dw_executors[i].refused, &expected, 0);
	}
}

/*
 * True if few background workers are left: more than half are timers, or more than three
 * quarters are in use as far as we know.  Reads without locks.
 */
bool
dw_workers_are_few(void)
{
	int			timers = pg_atomic_read_u32(&dw_shared->timers);
	int			used = 1 + dw_shared->other_workers + timers;

	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].state != DW_EXECUTOR_FREE)
			used++;
	return timers > Max((max_worker_processes - 1 - dw_shared->other_workers) / 2, 1) ||
		used > max_worker_processes * 3 / 4;
}
