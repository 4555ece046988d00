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
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"

#include "../ring/ring.h"
#include "executors.h"
#include "shared.h"

DwExecutor *dw_this_executor = NULL;
DwExecutor *dw_executors = NULL;

/*
 * The executor whose task this process works for, or NULL: a parallel worker
 * helps its leader, who goes on with nothing else meanwhile.
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

/* The executor of this database whose transaction it is, or NULL. */
static DwExecutor *
executor_of(TransactionId xid)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].database == MyDatabaseId &&
			TransactionIdEquals(pg_atomic_read_u32(&dw_executors[i].xid), xid))
		{
			/* what it runs is noted before the xid */
			pg_read_barrier();
			return &dw_executors[i];
		}
	return NULL;
}

/* Is it the transaction in which an executor of this database runs a task? */
bool
dw_xid_is_executor(TransactionId xid)
{
	return executor_of(xid) != NULL;
}

/* Is it one in which an executor runs several tasks, which ends soon? */
bool
dw_xid_is_batch(TransactionId xid)
{
	DwExecutor *e = executor_of(xid);

	return e != NULL && e->in_batch;
}

/*
 * Is it the transaction in which an executor runs this very task, alone, for
 * as long as that takes?
 */
bool
dw_executor_claims(int64 id, TransactionId xid)
{
	DwExecutor *e = executor_of(xid);

	return e != NULL && !e->in_batch && e->current.id == id;
}

/*
 * Does an executor of this database run the task, and its row stays meanwhile?
 */
bool
dw_executor_keeps(int64 id)
{
	/* what is there while none runs */
	if (id == 0)
		return false;
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].database == MyDatabaseId &&
			pg_atomic_read_u64(&dw_executors[i].keeps) == (uint64) id)
			return true;
	return false;
}

/* Does one run it, and its row is gone?  If so, *owner is whose task it is. */
bool
dw_executor_runs_autonomous(int64 id, Oid *owner)
{
	/* what is there while none runs */
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
 * Does one run such a task of the queue?
 *
 * Without a lock: what has changed while we look has ended, see dw_autonomous_ended().
 */
bool
dw_executor_runs_autonomous_in(int16 queue)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e->database != MyDatabaseId || pg_atomic_read_u64(&e->autonomous) == 0)
			continue;
		/* what it runs is noted before */
		pg_read_barrier();
		if (dw_lanes[e->current.lane].queue == queue)
			return true;
	}
	return false;
}

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

bool
dw_executor_was_refused(int64 id)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].database == MyDatabaseId &&
			pg_atomic_read_u64(&dw_executors[i].refused) == (uint64) id)
			return true;
	return false;
}

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
