/*-------------------------------------------------------------------------
 *
 * executors.c
 *	  Places of executors in shared memory, which other processes read; counts of their tasks.
 *
 * Run by each executor for its own place, and by all processes that check which task an executor
 * runs.  An executor enters and leaves its place under the table lock.  The fields for its current
 * task change under the ready lock of the database.  Atomic fields are read without a lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"

#include "../base/compat.h"
#include "../base/settings.h"
#include "executors.h"
#include "queue_limits.h"

/*
 * An executor may end after it has been idle for this time, in us, if another database lacks a
 * background worker.  The owners of one database take turns of the same length.  The start of an
 * executor takes about a tenth of this time.
 */
#define IDLE_US		(100 * 1000)

DwExecutor *dw_this_executor = NULL;
DwExecutor *dw_executors = NULL;

/*
 * Returns the executor whose task this process works for, or NULL if it works for no task.
 *
 * A parallel worker works for its leader's task.  While the worker runs, the leader runs no other
 * task.
 */
DwExecutor *
dw_executor_served(void)
{
	PGPROC	   *leader = IsParallelWorker() ? MyProc->lockGroupLeader : NULL;

	if (leader == NULL)
		return dw_this_executor;
	dw_each_executor(e)
		if (e->database == MyDatabaseId && e->pid == leader->pid)
			return e;
	return NULL;
}

/* Returns the executor of this database that runs its task in this transaction, or NULL. */
static DwExecutor *
executor_of(TransactionId xid)
{
	dw_each_executor(e)
		if (e->database == MyDatabaseId && TransactionIdEquals(pg_atomic_read_u32(&e->xid), xid))
		{
			/* the executor stores "current" before "xid" */
			pg_read_barrier();
			return e;
		}
	return NULL;
}

/* Returns true if an executor of this database runs a task in this transaction. */
bool
dw_xid_is_executor(TransactionId xid)
{
	return executor_of(xid) != NULL;
}

/*
 * Returns true if an executor of this database runs a batch in this transaction.  A batch runs
 * several tasks in one transaction, and ends soon.
 */
bool
dw_xid_is_batch(TransactionId xid)
{
	DwExecutor *e = executor_of(xid);

	return e != NULL && e->in_batch;
}

/*
 * Returns true if an executor runs only this task in this transaction.  The transaction ends with
 * the task.
 */
bool
dw_executor_claims(int64 id, TransactionId xid)
{
	DwExecutor *e = executor_of(xid);

	return e != NULL && !e->in_batch && e->current.id == id;
}

/*
 * Returns true if an executor of this database runs the task outside of a transaction, and the
 * task's row is still in the table.
 */
bool
dw_executor_keeps(int64 id)
{
	/* id 0 means "no task" */
	if (id == 0)
		return false;
	dw_each_executor(e)
		if (e->database == MyDatabaseId && pg_atomic_read_u64(&e->keeps) == (uint64) id)
			return true;
	return false;
}

/*
 * Returns true if an executor of this database runs the task outside of a transaction, after it
 * deleted the task's row.  If the result is true, sets *owner to the task's owner.
 */
bool
dw_executor_runs_autonomous(int64 id, Oid *owner)
{
	/* id 0 means "no task" */
	if (id == 0)
		return false;
	dw_each_executor(e)
		if (e->database == MyDatabaseId && pg_atomic_read_u64(&e->autonomous) == (uint64) id)
		{
			*owner = e->owner;
			return true;
		}
	return false;
}

/*
 * Returns when an executor of the database began this task, or 0 if no executor runs it outside of
 * a batch.
 */
TimestampTz
dw_executor_since(DwDatabase *db, int64 id)
{
	TimestampTz since = 0;

	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	dw_each_executor(e)
		if (since == 0 && e->database == MyDatabaseId && e->state == DW_EXECUTOR_BUSY &&
			!e->in_batch && e->current.id == id)
			since = e->since;
	LWLockRelease(dw_ready_lock(db));
	return since;
}

/*
 * Returns true if an executor of this database runs a task of the queue for which
 * dw_executor_runs_autonomous() is true.
 *
 * Reads without a lock.  During the call, a task of this kind can end, but none can begin.
 * dw_autonomous_ended() announces the end.
 */
bool
dw_executor_runs_autonomous_in(int16 queue)
{
	dw_each_executor(e)
	{
		if (e->database != MyDatabaseId || pg_atomic_read_u64(&e->autonomous) == 0)
			continue;
		/* the executor stores "current" before "autonomous" */
		pg_read_barrier();
		if (dw_lanes[e->current.lane].queue == queue)
			return true;
	}
	return false;
}

/*
 * Returns since when other processes have waited for the executor to start, to look for work, or to
 * end.  Returns 0 if no process waits.  No process waits for a busy executor: a task may take any
 * time.
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

/* Returns true if the executor is not busy, and has not answered for DW_LATE_US. */
bool
dw_executor_is_late(const DwExecutor *e, TimestampTz now)
{
	TimestampTz since = dw_executor_unanswered_since(e);

	return since != 0 && now - since >= DW_LATE_US;
}

/* Makes an executor end; a busy executor ends after its task.  The caller holds the ready lock. */
void
dw_executor_end(DwExecutor *e)
{
	e->must_exit = true;
	if (e->called == 0)
		e->called = dw_now();
	if (e->proc != 0)
		SetLatch(dw_proc_latch(e->proc));
}

/* Returns true if the database has an executor, running or starting.  Takes no lock. */
bool
dw_executors_exist(Oid database)
{
	dw_each_executor(e)
		if (e->database == database && e->state != DW_EXECUTOR_FREE)
			return true;
	return false;
}

/*
 * Makes executors of the database end: executors of this owner if the owner is valid, otherwise
 * all.  Takes the ready lock.
 */
void
dw_executors_end(DwDatabase *db, Oid owner)
{
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_each_executor(e)
		if (e->database == db->oid && e->state != DW_EXECUTOR_FREE &&
			(!OidIsValid(owner) || e->owner == owner))
			dw_executor_end(e);
	LWLockRelease(dw_ready_lock(db));
}

/* Returns how many executors a database may have beyond max_executors, for owners with few tasks. */
uint32
dw_executors_beyond(void)
{
	return dw_max_executors == 1 ? 0 : Max(dw_max_executors / 4, 1);
}

/*
 * Returns true if an idle executor is kept for its owner, although other owners have no executor.
 * Its last turn was short, and soon its owner may have a task, which should not wait for a new
 * process.  The executors that were used last are kept, dw_executors_beyond(), for a second.
 * None is kept if all other executors run long tasks, since then no turn may end soon.  Without
 * the ready lock, the result may be out of date.
 */
bool
dw_executor_is_kept(const DwExecutor *e, TimestampTz now)
{
	uint32		kept = 0;
	uint32		others = 0;
	uint32		long_turns = 0;

	if (e->kept_until <= now)
		return false;
	dw_each_executor(other)
	{
		if (other == e || other->database != e->database || other->state == DW_EXECUTOR_FREE)
			continue;
		if (other->state == DW_EXECUTOR_IDLE && other->kept_until > e->kept_until)
			kept++;
		others++;
		/* at the end of a turn all others may be about to start */
		long_turns += other->state == DW_EXECUTOR_BUSY && now - other->since >= DW_QUICK_US;
	}
	return (others == 0 || long_turns < others) && kept < dw_executors_beyond();
}

/*
 * Returns the executor that has been idle longest, or NULL if no executor has been idle for
 * "idle_for" microseconds.  Looks at this database if "here" is true, otherwise at all other
 * databases.  Skips executors of the role "not_of", and executors of this database that are kept.
 */
DwExecutor *
dw_executor_idle_longest(Oid database, bool here, Oid not_of, int64 idle_for)
{
	DwExecutor *idle = NULL;
	TimestampTz since = dw_now() - idle_for;

	dw_each_executor(e)
		if ((e->database == database) == here && e->owner != not_of &&
			e->state == DW_EXECUTOR_IDLE && !e->must_exit && e->since <= since &&
			!(here && dw_executor_is_kept(e, dw_now())))
		{
			idle = e;
			since = e->since;
		}
	return idle;
}

/*
 * Ends an executor of another database, if the executor still works for it.  Takes table and ready
 * lock.
 */
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
 * Ends the executor of another database that has been idle longest.  Returns false if no executor
 * has been idle for IDLE_US.  Takes the table lock, and a ready lock.
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
 * Ends an executor of another database, preferably an idle executor.  If none is idle, chooses the
 * executor that began its task last, since its tasks are probably short; the executor ends after
 * this task.  Returns false if all executors were told to end before.  Takes the table lock, and a
 * ready lock.
 */
bool
dw_executor_end_turn_elsewhere(Oid database)
{
	DwExecutor *last = dw_executor_idle_longest(database, false, InvalidOid, 0);

	if (last == NULL)
		dw_each_executor(e)
			if (e->database != database && e->state == DW_EXECUTOR_BUSY && !e->must_exit &&
				(last == NULL || e->since > last->since))
				last = e;
	if (last == NULL)
		return false;
	end_elsewhere(last);
	return true;
}

/*
 * If this executor was told to end, puts its task back and ends the process.  Called between two
 * attempts to run a task.  The task is not blamed.  Takes the ready lock.
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
 * Returns true if an executor of this database could not claim the task because another transaction
 * had locked its row.
 */
bool
dw_executor_was_refused(int64 id)
{
	dw_each_executor(e)
		if (e->database == MyDatabaseId && pg_atomic_read_u64(&e->refused) == (uint64) id)
			return true;
	return false;
}

/* Makes all executors of this database forget that they could not claim the task. */
void
dw_executor_forget_refused(int64 id)
{
	dw_each_executor(e)
	{
		uint64		expected = (uint64) id;

		if (e->database == MyDatabaseId)
			pg_atomic_compare_exchange_u64(&e->refused, &expected, 0);
	}
}

/*
 * Returns true if few background workers are free: more than half are timers, or more than three
 * quarters are known to be in use.  Reads without locks.
 */
bool
dw_workers_are_few(void)
{
	int			timers = pg_atomic_read_u32(&dw_shared->timers);
	int			used = 1 + dw_shared->other_workers + timers;

	dw_each_executor(e)
		if (e->state != DW_EXECUTOR_FREE)
			used++;
	return timers > Max((max_worker_processes - 1 - dw_shared->other_workers) / 2, 1) ||
		used > max_worker_processes * 3 / 4;
}

/*---- Counts of starts and outcomes of tasks, for database, lane and queue ----*/

/* Counts the start of the executor's task, "us" microseconds after its due time. */
void
dw_count_begin(DwDatabase *db, DwExecutor *me, int64 us)
{
	uint64		value = Max(us, 0);

	me->begun = true;
	dw_count_lateness(&db->lateness, value);
	dw_count_lane_lateness(&dw_lanes[me->current.lane].lateness, value);
}

/* Counts the outcome of a claimed task for database, lane and queue. */
void
dw_count_end(DwDatabase *db, DwLane *lane, DwOutcome outcome)
{
	DwQueue    *queue = dw_lane_queue(lane);

	if (outcome == DW_NOT_ENDED)
		return;
	if (outcome == DW_FAILED)
		dw_failed_recorded(db, 1);
	else
		(void) dw_count(&db->counters, outcome, 1);
	(void) dw_count(&lane->counters, outcome, 1);
	if (queue)
		(void) dw_count(&queue->counters, outcome, 1);
}

/* Returns delay_wheel.failed_max_age in microseconds; negative if there is no such limit. */
int64
dw_failed_max_age_us(void)
{
	return (int64) dw_failed_max_age * USECS_PER_MINUTE;
}

/* Counts n committed failed tasks, and asks the sweeper to delete old rows if that is due. */
void
dw_failed_recorded(DwDatabase *db, uint64 n)
{
	uint64		failed = dw_count(&db->counters, DW_FAILED, n);

	if (dw_failed_max_count >= 0 && failed >= pg_atomic_read_u64(&db->sweeper_news.failed_limit))
		dw_ask_sweeper(db, DW_JOB_FAILED, dw_job_soonest(&db->sweeper_news, DW_JOB_FAILED));
	else if (dw_failed_max_age >= 0 && dw_job_at(&db->sweeper_news, DW_JOB_FAILED) == DW_NEVER)
		dw_ask_sweeper(db, DW_JOB_FAILED, dw_now() + dw_failed_max_age_us());
}
