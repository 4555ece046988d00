/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  delay_wait(): waits for the outcome of a task.
 *
 * Run by sessions, and by executors whose tasks call delay_wait().  The process that waits is
 * called the waiter.  The part "Slots" is also run by all processes that end tasks: in commit
 * callbacks, which take only spinlocks, allocate nothing, and cannot fail.
 *
 * README.md has the protocol.  Waiters do not poll, except that they look for the row once a
 * minute, since no process informs them when logical replication has deleted it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

#include "../base/compat.h"
#include "../base/errors.h"
#include "../ending/ending.h"
#include "../history/history.h"
#include "ends.h"

/* A waiter looks for the row at least once in this time. */
#define LOOK_US			USECS_PER_MINUTE

/* The slot of one process: the task that it waits for, and the task's outcome. */
typedef struct Waiter
{
	slock_t		lock;
	Oid			database;		/* InvalidOid: the process does not wait */
	int64		id;				/* id of the task */
	DwOutcome	outcome;		/* DW_NOT_ENDED until the task has ended */
	bool		let_go;			/* the transaction that ended the task has released its locks, so
								 * delay_wait() may return */
	bool		look;			/* the waiter must look at the task's row */
} Waiter;

/* One slot for each process; its index is dw_my_proc() - 1. */
static Waiter *slots = NULL;

/* See dw_wait_event() */
static uint32 wait_event = 0;

PG_FUNCTION_INFO_V1(dw_wait);

/*---- Slots ----*/

/* Requests shared memory for the slots. */
static void
request_slots(void)
{
	ShmemRequestStruct(.name = "delay_wheel waiters",
					   .size = mul_size(MaxBackends, sizeof(Waiter)),
					   .ptr = (void **) &slots);
}

/* Initializes the slots.  Called once for each shared memory. */
static void
init_slots(void)
{
	memset(slots, 0, mul_size(MaxBackends, sizeof(Waiter)));
	for (int i = 0; i < MaxBackends; i++)
		SpinLockInit(&slots[i].lock);
}

/* Returns true if the slot's process waits for this task of the database (0: for any task). */
static bool
waits_for(const Waiter *slot, Oid database, int64 id)
{
	return slot->database == database && (id == 0 || slot->id == id);
}

/*
 * Informs the waiters of a task (0: of any task of the database).
 *
 * outcome: the end of the task is visible; its waiters must wait until the locks are released.
 * DW_NOT_ENDED: the locks are released, or, for id 0, any tasks may have ended: wakes the waiters.
 *
 * A waiter raises db->waiters before it reads the row, so this function sees each waiter that found
 * the task pending.
 */
static void
inform_waiters(DwDatabase *db, int64 id, int outcome)
{
	pg_memory_barrier();
	if (pg_atomic_read_u32(&db->waiters) == 0)
		return;
	for (int i = 0; i < MaxBackends; i++)
	{
		Waiter	   *slot = &slots[i];
		bool		wakes = false;

		if (!waits_for(slot, db->oid, id))
			continue;
		SpinLockAcquire(&slot->lock);
		/* check again under the lock */
		if (waits_for(slot, db->oid, id))
		{
			if (outcome != DW_NOT_ENDED)
				slot->outcome = outcome;
			else if (id == 0)
				slot->look = wakes = true;
			else if (slot->outcome != DW_NOT_ENDED)
				slot->let_go = wakes = true;
		}
		SpinLockRelease(&slot->lock);
		if (wakes)
			SetLatch(dw_proc_latch(i + 1));
	}
}

/* These two are functions of the wing, see base/wing.h. */
static void
let_waiters_go(DwDatabase *db, int64 id)
{
	inform_waiters(db, id, DW_NOT_ENDED);
}

static void
make_waiters_look(DwDatabase *db)
{
	inform_waiters(db, 0, DW_NOT_ENDED);
}

/* Fills in the slot of this process; database InvalidOid: the process does not wait. */
static void
fill_slot(Oid database, int64 id)
{
	Waiter	   *slot = &slots[dw_my_proc() - 1];

	SpinLockAcquire(&slot->lock);
	slot->database = database;
	slot->id = id;
	slot->outcome = DW_NOT_ENDED;
	slot->let_go = slot->look = false;
	SpinLockRelease(&slot->lock);
}

/* Clears the slot.  Called directly, and as an exit callback.  db: a pointer to the DwDatabase. */
static void
end_wait(int code, Datum db)
{
	fill_slot(InvalidOid, 0);
	pg_atomic_fetch_sub_u32(&((DwDatabase *) DatumGetPointer(db))->waiters, 1);
}

/* Returns a copy of this process's slot, and clears the request to look at the row. */
static Waiter
read_slot(void)
{
	Waiter	   *slot = &slots[dw_my_proc() - 1];
	Waiter		result;

	SpinLockAcquire(&slot->lock);
	result = *slot;
	slot->look = false;
	SpinLockRelease(&slot->lock);
	return result;
}

/*---- Reading the rows ----*/

/* Raises an error if this transaction itself prevents the task from running. */
static void
refuse_own(Relation rel, HeapTuple tuple, const DwTaskKey *key)
{
	if (TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data)) ||
		dw_row_is_locked_here(rel, key))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot wait for task %lld", (long long) key->id),
				 errdetail("This transaction has written or locked the task, so the task does not run before the transaction ends."),
				 errhint("Commit first, then wait.")));
}

/* Returns true if the task is a failed task, and the current user has its owner's rights. */
static bool
stands_in_failed(Relation rel, int64 id, Snapshot snapshot)
{
	ListCell   *lc;

	foreach(lc, dw_failed_rows(rel, id, snapshot))
	{
		Datum		owner = dw_row_column(rel, lfirst(lc), Anum_failed_owner);

		if (has_privs_of_role(GetUserId(), DatumGetObjectId(owner)))
			return true;
	}
	return false;
}

/*
 * Returns true if the id is of a thing of a wing, such as a batch, that has not ended.  For first,
 * see look_once().
 */
static bool
wings_know_pending(int64 id, bool first)
{
	dw_each_wing(wing, is_pending)
		if (wing->is_pending(id, first))
			return true;
	return false;
}

/* Returns how a thing of a wing has ended; DW_NOT_ENDED if no wing knows its end. */
static DwOutcome
outcome_of_wings(int64 id)
{
	dw_each_wing(wing, is_pending)
	{
		const char *name = wing->outcome_of(id);

		for (int i = DW_DONE; name != NULL && i < DW_OUTCOMES; i++)
			if (strcmp(name, dw_outcome_names[i]) == 0)
				return i;
	}
	return DW_NOT_ENDED;
}

/*
 * Returns the outcome of a task by its rows, with a new snapshot: DW_NOT_ENDED if it is pending or
 * running, DW_FAILED if it is a failed task, DW_CANCELLED if it has ended in another way, or the
 * user may not see it.  A task that is cancelled by a mark, or superseded by a newer task with its
 * key, is pending only if it is already running.
 *
 * first: true in the first call of a delay_wait().  Then raises an error if the current user lacks
 * the owner's rights, or if this transaction prevents the task from running.
 *
 * Releases the table's lock at once, so that a waiter does not block other sessions.
 */
static DwOutcome
look_once(int64 id, bool first)
{
	Oid			owner;
	Oid			table = dw_catalog()->task;
	Relation	rel;
	Relation	failed;
	Snapshot	snapshot;
	HeapTuple	tuple;
	DwOutcome	outcome = DW_NOT_ENDED;

	/*
	 * DROP EXTENSION wakes all waiters before the table is gone.  Wait here for the end of the
	 * command.  Then look up the table again, which raises an error.
	 */
	LockRelationOid(table, AccessShareLock);
	rel = table_open(dw_catalog()->task, AccessShareLock);
	UnlockRelationOid(table, AccessShareLock);
	/* opened before the snapshot is taken: an older snapshot sees no row in a rewritten table */
	failed = table_open(dw_catalog()->failed, AccessShareLock);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	tuple = dw_task_find(rel, id, snapshot);
	if (tuple == NULL && dw_executor_runs_autonomous(id, &owner))
	{
		if (first)
			dw_require_task_owner(id, owner);
	}
	else if (tuple == NULL && wings_know_pending(id, first))
		outcome = DW_NOT_ENDED;
	else if (tuple == NULL)
		outcome = stands_in_failed(failed, id, snapshot) ? DW_FAILED : DW_CANCELLED;
	else
	{
		DwTaskKey	key;

		dw_task_key(rel, tuple, &key);
		if (first)
			dw_require_task_owner(id, key.owner);
		if (!dw_row_is_claimed(rel, &key))
		{
			/*
			 * in later calls, the process that moves a superseded task to the failed tasks informs
			 * us
			 */
			if (dw_task_is_cancelled(rel, tuple) ||
				(first && dw_task_is_superseded(rel, tuple)))
				outcome = DW_CANCELLED;
			else if (first)
				refuse_own(rel, tuple, &key);
		}
		heap_freetuple(tuple);
	}
	UnregisterSnapshot(snapshot);
	table_close(failed, AccessShareLock);
	table_close(rel, AccessShareLock);
	return outcome;
}

/*
 * Returns the outcome, like look_once().  If a task with a mode has ended meanwhile, reads the rows
 * again, since the task may have been put back, or may not have failed.
 */
static DwOutcome
look_at_task(int64 id, bool first)
{
	for (;;)
	{
		uint32		ended = dw_autonomous_ended();
		DwOutcome	outcome = look_once(id, first);

		if (outcome == DW_NOT_ENDED || ended == dw_autonomous_ended())
			return outcome;
	}
}

/*
 * Waits until the transactions that have deleted the row of a task have released their locks.  By
 * then, the outcome is in the slots, if a transaction reports it, since it informs the waiters
 * before it releases the lock on its transaction id.  To be called when the row is gone.
 *
 * A committed subtransaction no longer has a lock.  So dw_committing_wait() waits for all
 * transactions that are visible, but have not yet published all changes (shmem/published.c).
 * While the caller's snapshot lives, vacuum cannot remove versions of the row that existed when the
 * waiting began.
 */
static void
wait_for_deleter(int64 id)
{
	Relation	rel = table_open(dw_catalog()->task, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	List	   *deleters = NIL;
	ListCell   *lc;

	ScanKeyInit(&key, Anum_task_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	scan = systable_beginscan(rel, dw_catalog()->task_pkey, true, SnapshotAny, 1, &key);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		TransactionId deleter;

		if (tuple->t_data->t_infomask & HEAP_XMAX_INVALID)
			continue;
		deleter = HeapTupleHeaderGetUpdateXid(tuple->t_data);
		if (TransactionIdIsNormal(deleter) && !TransactionIdIsCurrentTransactionId(deleter) &&
			TransactionIdDidCommit(deleter))
			deleters = lappend_oid(deleters, deleter);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	foreach(lc, deleters)
		XactLockTableWait(lfirst_oid(lc), NULL, NULL, XLTW_None);
	list_free(deleters);
	dw_committing_wait(InvalidTransactionId);
}

/*
 * Raises an error if another process waits for a lock of this transaction, and so prevents the task
 * from running.  The task would wait for this session, and this session for the task.
 */
static void
refuse_deadlock(int64 id)
{
	pid_t		pid = dw_who_waits_for_us();

	if (pid != 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
				 errmsg("deadlock detected"),
				 errdetail("This transaction waits for task %lld, which waits for process %d, which waits for a lock of this transaction on the tables of delay_wheel.",
						   (long long) id, (int) pid),
				 errhint("Call delay_wait() in a transaction of its own.")));
}

/*
 * Returns the outcome of a task after an event that may concern it; DW_NOT_ENDED if the waiter must
 * continue to wait.  A task that is gone without an outcome in the slot was cancelled by a mark, by
 * a prepared transaction, or by plain SQL.
 */
static DwOutcome
look_again(int64 id)
{
	DwOutcome	outcome;

	if (look_at_task(id, false) == DW_NOT_ENDED)
	{
		refuse_deadlock(id);
		return DW_NOT_ENDED;
	}
	wait_for_deleter(id);
	outcome = read_slot().outcome;
	if (outcome == DW_NOT_ENDED)
		outcome = look_at_task(id, false);
	if (outcome == DW_CANCELLED)
	{
		/* a thing of a wing has no row among the tasks */
		DwOutcome	of_wings = outcome_of_wings(id);

		if (of_wings != DW_NOT_ENDED)
			return of_wings;
	}
	return outcome;
}

/*
 * Waits for a task until the deadline, by dw_uptime().  Returns the result of delay_wait().  The
 * caller has filled in the slot.
 */
static const char *
wait_for_task(int64 id, int64 deadline)
{
	int64		look_at = dw_uptime() + LOOK_US;
	DwOutcome	by_rows = look_at_task(id, true);

	if (by_rows != DW_NOT_ENDED)
	{
		const char *ended;

		/*
		 * The task may have ended just now.  Wait until all changes of that transaction are visible
		 * to the caller.  The slot's outcome is not returned, since the caller's rights cannot be
		 * checked without a row.
		 */
		wait_for_deleter(id);
		ended = by_rows == DW_FAILED ? dw_outcome_names[DW_FAILED] : dw_history_newest_end(id);
		if (ended == NULL)
			ended = dw_outcome_names[outcome_of_wings(id)];
		return ended != NULL ? ended : "gone";
	}

	for (;;)
	{
		Waiter		slot = read_slot();
		DwOutcome	outcome = slot.outcome;
		int64		now = dw_uptime();

		if (outcome == DW_NOT_ENDED && (slot.look || now >= look_at))
		{
			outcome = look_again(id);
			look_at = now + LOOK_US;
			/* reading the row takes locks, which may have reset the latch */
			CHECK_FOR_INTERRUPTS();
			if (outcome == DW_NOT_ENDED && now < deadline)
				continue;
		}
		if (outcome != DW_NOT_ENDED)
		{
			/* either no process wrote the outcome into the slot, or it must release its locks */
			slot = read_slot();
			if (slot.outcome == DW_NOT_ENDED || slot.let_go || now >= deadline)
				return dw_outcome_names[outcome];
		}
		if (now >= deadline)
			return "timeout";
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 TimestampDifferenceMilliseconds(dw_uptime(), Min(deadline, look_at)),
						 dw_wait_event(wait_event, "DelayWheelWait"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/* SQL function delay_wait(). */
Datum
dw_wait(PG_FUNCTION_ARGS)
{
	DwDatabase *db;
	int64		id;
	int64		deadline = DW_NEVER;	/* by dw_uptime() */
	const char *result;

	dw_require_right();
	dw_refuse_null(PG_ARGISNULL(0), "task id");
	dw_require_shared();
	PreventCommandDuringRecovery("delay_wait()");
	PreventCommandIfParallelMode("delay_wait()");
	id = PG_GETARG_INT64(0);
	if (!PG_ARGISNULL(1))
		deadline = dw_time_add(dw_uptime(), dw_interval_us(PG_GETARG_INTERVAL_P(1)));
	if (OidIsValid(dw_owner_of_task_here(id)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("task %lld cannot wait for itself", (long long) id)));
	db = dw_require_my_database();
	fill_slot(db->oid, id);
	/* a full barrier, so that the slot is written before the row is read */
	pg_atomic_fetch_add_u32(&db->waiters, 1);
	PG_ENSURE_ERROR_CLEANUP(end_wait, PointerGetDatum(db));
	{
		result = wait_for_task(id, deadline);
	}
	PG_END_ENSURE_ERROR_CLEANUP(end_wait, PointerGetDatum(db));
	end_wait(0, PointerGetDatum(db));
	PG_RETURN_TEXT_P(cstring_to_text(result));
}

const DwWing dw_ends_wing = {
	.request_memory = request_slots,
	.memory_is_ready = init_slots,
	.task_ended = dw_ends_follow,
	.end_committed = inform_waiters,
	.end_visible = let_waiters_go,
	.ends_in_doubt = make_waiters_look,
	.outcome_of = dw_outcome_if_ended
};
