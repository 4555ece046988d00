/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  Waiting for the outcome of a task.
 *
 * delay_wait() is run by backends, and by executors whose tasks call it.  Each
 * process has a slot of its own in shared memory, where it says which task it
 * waits for.  Whoever ends a task, an executor or a cancelling backend, looks
 * for it there when its transaction has committed (touched.c), and leaves the
 * outcome; what concerns many tasks (a mark, a prepared transaction that
 * ended, the end of the extension) makes all who wait look at their rows.
 * There is no polling.  Only a row that plain SQL has deleted has nobody to
 * tell of it: whence a look each minute.
 *
 * Nothing is lost in between: the slot is filled in before the row is looked
 * for, and who ends a task looks at the slots when that is visible.
 *
 * A slot has a spinlock: commit callbacks can neither fail nor wait.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/spin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/settings.h"
#include "../base/signature.h"
#include "../ending/history.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/committing.h"
#include "../shmem/executors.h"
#include "../shmem/outcome.h"
#include "../shmem/shared.h"
#include "../shmem/waiters.h"
#include "../task/key_lock.h"
#include "../task/marks.h"
#include "../task/my_session.h"
#include "../task/rights.h"
#include "../task/row_lock.h"

/* What is known of a task from its row. */
typedef enum State
{
	PENDING,					/* or running */
	GONE,
	HAS_FAILED
} State;

static uint32 wait_event = 0;

PG_FUNCTION_INFO_V1(dw_wait);

/*---- Waiting ----*/

/* Who was told of an end stays until he is let go; nobody else holds him. */
static bool
may_go(void)
{
	DwWaiter	   *slot = dw_my_waiter();
	bool		may;

	SpinLockAcquire(&slot->lock);
	may = slot->outcome == DW_NOT_ENDED || slot->let_go;
	SpinLockRelease(&slot->lock);
	return may;
}

/* Has this transaction written or locked the row?  Nobody else takes it then. */
static bool
is_held_by_us(Relation rel, HeapTuple tuple, const DwTaskKey *key)
{
	return TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data)) ||
		dw_row_is_locked_here(rel, key);
}

static void
refuse_own(Relation rel, HeapTuple tuple, const DwTaskKey *key)
{
	if (!is_held_by_us(rel, tuple, key))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot wait for task %lld", (long long) key->id),
			 errdetail("It was written or locked by this transaction, and does not run before that ends."),
			 errhint("Commit first, then wait.")));
}

/* Is the task among the failed ones, and the user allowed to know? */
static bool
stands_in_failed(int64 id, Snapshot snapshot)
{
	Relation	rel = table_open(dw_catalog()->failed, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	ScanKeyInit(&key, Anum_failed_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	scan = systable_beginscan(rel, dw_catalog()->failed_pkey, true, snapshot, 1, &key);
	while (!found && (tuple = systable_getnext(scan)) != NULL)
	{
		bool		isnull;
		Datum		owner = heap_getattr(tuple, Anum_failed_owner, RelationGetDescr(rel), &isnull);

		found = has_privs_of_role(GetUserId(), DatumGetObjectId(owner));
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/*
 * Looks at the row, with a new snapshot.  What a mark has hit, or a newer task
 * of its key has replaced, is not pending any more, unless it runs already.
 * The table is not kept locked: a waiter is in nobody's way.
 */
static State
look_once(int64 id, bool first)
{
	Oid			owner;
	Oid			table = dw_catalog()->task;
	Relation	rel;
	Snapshot	snapshot;
	HeapTuple	tuple;
	State		state = PENDING;

	/* who drops the extension wakes us before it is gone */
	LockRelationOid(table, AccessShareLock);
	rel = table_open(dw_catalog()->task, AccessShareLock);
	UnlockRelationOid(table, AccessShareLock);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	tuple = dw_task_find(rel, id, snapshot);
	if (tuple == NULL && dw_executor_runs_autonomous(id, &owner))
	{
		if (first)
			dw_require_task_owner(id, owner);
	}
	else if (tuple == NULL)
		state = stands_in_failed(id, snapshot) ? HAS_FAILED : GONE;
	else
	{
		DwTaskKey	key;

		dw_task_key(rel, tuple, &key);
		if (first)
			dw_require_task_owner(id, key.owner);
		if (!dw_row_is_claimed(rel, &key))
		{
			/* who waits already is told when a superseded one has failed */
			if (dw_task_is_cancelled(rel, tuple) ||
				(first && dw_task_is_superseded(rel, tuple)))
				state = GONE;
			else if (first)
				refuse_own(rel, tuple, &key);
		}
		heap_freetuple(tuple);
	}
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return state;
}

/* What has ended in between may have been put back, or not have failed. */
static State
look_at_task(int64 id, bool first)
{
	for (;;)
	{
		uint32		ended = dw_autonomous_ended();
		State		state = look_once(id, first);

		if (state == PENDING || ended == dw_autonomous_ended())
			return state;
	}
}

/*
 * The row is gone.  Who deleted it lets go of the lock on his xid after he has
 * told us, if he does that at all; who did so in a subtransaction, which has
 * no such lock any more, is published.  Versions of the row that were there when
 * we began to wait cannot be vacuumed away before our snapshot is.
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
	dw_ending_wait();
}

/* Nobody claims a task while somebody waits for a lock that we have. */
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
 * Something has changed: what has become of the task?  It has ended, and
 * nobody said how, if it was cancelled by a mark, a transaction that was
 * prepared, or plain SQL.
 */
static DwOutcome
look_again(int64 id)
{
	DwOutcome	outcome;
	bool		again;

	if (look_at_task(id, false) == PENDING)
	{
		refuse_deadlock(id);
		return DW_NOT_ENDED;
	}
	wait_for_deleter(id);
	outcome = dw_wait_read(&again);
	if (outcome != DW_NOT_ENDED)
		return outcome;
	switch (look_at_task(id, false))
	{
		case HAS_FAILED:
			return DW_FAILED;
		case GONE:
			return DW_CANCELLED;
		default:
			return DW_NOT_ENDED;
	}
}

static void
sleep_until(int64 until)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 TimestampDifferenceMilliseconds(dw_uptime(), until),
					 dw_wait_event(wait_event, "DelayWheelWait"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

static const char *
wait_for_task(int64 id, int64 deadline)
{
	int64		look_at = dw_uptime() + DW_WAIT_LOOK_US;
	State		state = look_at_task(id, true);

	if (state != PENDING)
	{
		const char *ended;

		/*
		 * It may have ended just now: the caller is to find all that came with it.
		 * He may not be the owner, so what our slot was told is not for him.
		 */
		wait_for_deleter(id);
		ended = state == HAS_FAILED ? dw_outcome_names[DW_FAILED] : dw_history_newest_end(id);
		return ended != NULL ? ended : "gone";
	}

	for (;;)
	{
		bool		must_look;
		DwOutcome	outcome = dw_wait_read(&must_look);
		int64		now = dw_uptime();

		if (outcome == DW_NOT_ENDED && (must_look || now >= look_at))
		{
			outcome = look_again(id);
			look_at = now + DW_WAIT_LOOK_US;
		}
		if (outcome != DW_NOT_ENDED && (may_go() || now >= deadline))
			return dw_outcome_names[outcome];
		if (now >= deadline)
			return "timeout";
		sleep_until(Min(deadline, look_at));
	}
}

Datum
dw_wait(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {INT8OID, INTERVALOID};
	DwDatabase *db;
	int64		id;
	int64		deadline = DW_NEVER;	/* by dw_uptime() */
	const char *result;

	dw_require_signature(fcinfo, TEXTOID, lengthof(types), types);
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("task id must not be null")));
	dw_require_shared();
	PreventCommandDuringRecovery("delay_wait()");
	PreventCommandIfParallelMode("delay_wait()");
	id = PG_GETARG_INT64(0);
	if (!PG_ARGISNULL(1))
		deadline = dw_time_add(dw_uptime(), dw_interval_us(PG_GETARG_INTERVAL_P(1)));
	if (dw_executor_runs_here(id))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("task %lld cannot wait for itself", (long long) id)));
	db = dw_my_database();
	if (db == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("delay_wheel has no place for another database: the limit of %d is reached",
						dw_max_databases),
				 errhint("Increase \"%s\" and restart the server.", "delay_wheel.max_databases")));

	dw_wait_begin(db, id);
	PG_ENSURE_ERROR_CLEANUP(dw_wait_end, PointerGetDatum(db));
	{
		result = wait_for_task(id, deadline);
	}
	PG_END_ENSURE_ERROR_CLEANUP(dw_wait_end, PointerGetDatum(db));
	dw_wait_end(0, PointerGetDatum(db));
	PG_RETURN_TEXT_P(cstring_to_text(result));
}
