/*-------------------------------------------------------------------------
 *
 * keys.c
 *	  Keys: at most one pending task for each owner, queue and key.
 *
 * Run by backends that schedule and cancel by key, and by executors.
 *
 * No index could be unique: a task that runs is not pending, but its row is
 * there until its transaction ends, and who schedules its key must not wait
 * for that.  So those who look for a pending task and insert one take a lock
 * on the key, for as long as that takes, and look with a dirty snapshot, which
 * shows what open transactions do.  Nobody waits while he holds this lock, and
 * a transaction holds one of them at a time, however many keys it schedules.
 * Who moves a task inserts its row under the lock, too: else a scan could be
 * past the new one when the old one goes.
 *
 * Rows of a key, in the order of their ids:
 *
 * - Being deleted by the executor that runs it: it runs, and does not count.
 * - Hit by a mark of delay_cancel_all(): it does not count either.
 * - Being inserted or deleted by another open transaction: that one's end
 *	 decides, so it is waited for, as UPDATE would.
 * - Else the one with the highest id is the pending task.  Others may be left:
 *	 an executor was terminated while its task had a successor, a dump was
 *	 restored.  They are superseded, and go when a newer one is claimed, or
 *	 when they are claimed themselves.
 * - Of another origin: it is not run until it is armed, so it does not keep
 *	 this database's own tasks from being scheduled, nor supersede them.  A
 *	 newer one of these supersedes it, as it would have where it came from.
 *
 * A task that is kept has its row locked until the end of the transaction, so
 * that its run sees what that transaction did.  There may always be somebody
 * who keeps it, and it would never run; so if an executor was refused, who
 * would keep it next lets the executor go first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/xact.h"
#include "autonomous.h"
#include "catalog/pg_collation.h"
#include "common/hashfn.h"
#include "compat.h"
#include "conclude.h"
#include "executor.h"
#include "inject.h"
#include "keys.h"
#include "marks.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/procarray.h"
#include "touched.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "verdict.h"

/* Those of SQL's advisory locks are 1 and 2. */
#define KEY_LOCK_CLASS	0xDE1A

/* How long an executor that was refused is let go first, at most. */
#define COURTESY_MS		50

/* A row of a key, and whose open transactions change it. */
typedef struct KeyRow
{
	HeapTuple	tuple;
	DwTaskKey	task;
	TransactionId inserter;		/* invalid: committed, or our own */
	TransactionId deleter;		/* invalid: nobody's */
} KeyRow;

static LOCKTAG key_lock;

/* The key of a task; false if it has none. */
static bool
key_of(Relation rel, HeapTuple tuple, DwKey *key)
{
	bool		isnull;
	Datum		value = heap_getattr(tuple, Anum_task_key, RelationGetDescr(rel), &isnull);
	DwTaskKey	task;

	if (isnull)
		return false;
	dw_task_key(rel, tuple, &task);
	key->owner = task.owner;
	key->queue = task.queue;
	key->key = DatumGetTextPP(value);
	return true;
}

static void
lock_key(const DwKey *key)
{
	uint64		hash = hash_bytes_extended((unsigned char *) VARDATA_ANY(key->key),
										   VARSIZE_ANY_EXHDR(key->key),
										   ((uint64) key->owner << 16) | (uint16) key->queue);

	SET_LOCKTAG_ADVISORY(key_lock, MyDatabaseId, (uint32) (hash >> 32), (uint32) hash,
						 KEY_LOCK_CLASS);
	(void) LockAcquire(&key_lock, ExclusiveLock, false, false);
}

void
dw_key_leave(void)
{
	LockRelease(&key_lock, ExclusiveLock, false);
}

/* All rows of a key but those that marks have hit. */
static List *
rows_of_key(Relation rel, const DwKey *key)
{
	ScanKeyData keys[3];
	SnapshotData dirty;
	SysScanDesc scan;
	HeapTuple	tuple;
	List	   *rows = NIL;
	ListCell   *lc;

	InitDirtySnapshot(dirty);
	ScanKeyInit(&keys[0], Anum_task_owner, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(key->owner));
	ScanKeyInit(&keys[1], Anum_task_queue, BTEqualStrategyNumber, F_INT2EQ,
				Int16GetDatum(key->queue));
	/* the index has the collation of the database */
	ScanKeyEntryInitialize(&keys[2], 0, Anum_task_key, BTEqualStrategyNumber, InvalidOid,
						   DEFAULT_COLLATION_OID, F_TEXTEQ, PointerGetDatum(key->key));
	scan = systable_beginscan(rel, dw_catalog()->task_key_index, true, &dirty, 3, keys);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		KeyRow	   *row = palloc(sizeof(KeyRow));

		row->tuple = heap_copytuple(tuple);
		row->inserter = dirty.xmin;
		row->deleter = dirty.xmax;
		dw_task_key(rel, row->tuple, &row->task);
		rows = lappend(rows, row);
	}
	systable_endscan(scan);

	/* not before: this may read a table, too */
	foreach(lc, rows)
		if (dw_task_is_cancelled(rel, ((KeyRow *) lfirst(lc))->tuple))
			rows = foreach_delete_current(rows, lc);
	return rows;
}

/*
 * Is the row being deleted by the executor that runs this task, or that runs
 * a newer one of the key and has removed this one?
 */
static bool
is_claimed(const KeyRow *row, List *rows)
{
	ListCell   *lc;

	/* its row stays while it runs */
	if (row->task.has_more && dw_executor_keeps(row->task.id))
		return true;
	if (!TransactionIdIsValid(row->deleter))
		return false;
	foreach(lc, rows)
	{
		KeyRow	   *other = (KeyRow *) lfirst(lc);

		if (other->deleter == row->deleter &&
			dw_executor_claims(other->task.id, other->deleter))
			return true;
	}
	return false;
}

/*
 * The row with the highest id, or NULL.  If it is being moved, there are two
 * of them; the one that is to stay is it.
 */
static KeyRow *
newest(List *rows, bool any_origin)
{
	KeyRow	   *found = NULL;
	ListCell   *lc;

	foreach(lc, rows)
	{
		KeyRow	   *row = (KeyRow *) lfirst(lc);

		if (!any_origin && row->task.origin != dw_origin_stamp())
			continue;
		if (found == NULL || row->task.id > found->task.id ||
			(row->task.id == found->task.id && TransactionIdIsValid(row->inserter)))
			found = row;
	}
	return found;
}

/* A row that makes another one superseded, or NULL. */
static KeyRow *
superseder(List *rows, const DwTaskKey *task)
{
	ListCell   *lc;

	foreach(lc, rows)
	{
		KeyRow	   *row = (KeyRow *) lfirst(lc);

		if (row->task.id > task->id && !TransactionIdIsValid(row->inserter) &&
			(row->task.origin == task->origin || row->task.origin == dw_origin_stamp()))
			return row;
	}
	return NULL;
}

static bool
is_own_insertion(const KeyRow *row)
{
	return TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(row->tuple->t_data));
}

static void
raise_exists(const DwKey *key, const KeyRow *row)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNIQUE_VIOLATION),
			 errmsg("a task with key \"%s\" is already pending", text_to_cstring(key->key)),
			 errdetail("It is task %lld.", (long long) row->task.id),
			 errhint("With if_exists => 'keep' or 'replace' this is no error.")));
}

static bool
was_refused(int64 id)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].database == MyDatabaseId &&
			pg_atomic_read_u64(&dw_executors[i].refused) == (uint64) id)
			return true;
	return false;
}

static void
forget_refused(int64 id)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		uint64		expected = (uint64) id;

		if (dw_executors[i].database == MyDatabaseId)
			pg_atomic_compare_exchange_u64(&dw_executors[i].refused, &expected, 0);
	}
}

void
dw_key_claim_refused(DwExecutor *me, Relation rel, HeapTuple tuple)
{
	DwTaskKey	task;

	if (heap_attisnull(tuple, Anum_task_key, RelationGetDescr(rel)))
		return;
	dw_task_key(rel, tuple, &task);
	pg_atomic_write_u64(&me->refused, (uint64) task.id);
}

/*
 * Lets an executor claim the task, unless all are busy.  Not longer than that:
 * two transactions might have kept tasks that the other one wants to keep.
 */
static void
let_executor_go_first(int64 id)
{
	static uint32 wait_event = 0;

	for (int i = 0; i < COURTESY_MS && was_refused(id); i++)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1,
						 dw_wait_event(wait_event, "DelayWheelKey"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	forget_refused(id);
}

/* What came of one attempt to settle a key with a pending task. */
typedef enum Settled
{
	SETTLED,
	SETTLE_AGAIN,				/* the row is locked, or has changed */
	SETTLE_LATER				/* an executor is to go first */
} Settled;

static Settled
settle(Relation rel, const DwKey *key, const KeyRow *row, DwIfExists if_exists)
{
	const DwTaskKey *task = &row->task;
	DwHint		hint;

	if (if_exists == DW_RAISE)
		raise_exists(key, row);
	if (if_exists == DW_REPLACE)
	{
		if (dw_row_delete(rel, task, &hint) != TM_Ok)
			return SETTLE_AGAIN;
		dw_conclude_row(rel, row->tuple, task, DW_END_CANCELLED, NULL);
		return SETTLED;
	}

	/* nobody else can claim it */
	if (is_own_insertion(row) || dw_row_is_locked_here(rel, task))
		return SETTLED;
	if (task->due <= dw_now() && was_refused(task->id))
		return SETTLE_LATER;
	return dw_row_keep(rel, task) == TM_Ok ? SETTLED : SETTLE_AGAIN;
}

bool
dw_key_enter(Relation rel, const DwKey *key, DwIfExists if_exists, int64 *kept)
{
	for (;;)
	{
		List	   *rows;
		KeyRow	   *row;
		TransactionId open;
		Settled		settled;

		CHECK_FOR_INTERRUPTS();
		lock_key(key);
		rows = rows_of_key(rel, key);
		row = newest(rows, false);
		if (row == NULL || is_claimed(row, rows))
			return true;

		open = TransactionIdIsValid(row->inserter) ? row->inserter : row->deleter;
		if (TransactionIdIsValid(open))
		{
			dw_key_leave();
			XactLockTableWait(open, rel, &row->task.tid, XLTW_Lock);
			continue;
		}

		DW_INJECT("key-before-settle");
		settled = settle(rel, key, row, if_exists);
		if (settled == SETTLED && if_exists == DW_REPLACE)
			return true;
		dw_key_leave();
		if (settled == SETTLED)
		{
			*kept = row->task.id;
			return false;
		}
		if (settled == SETTLE_LATER)
			let_executor_go_first(row->task.id);
		else
			(void) dw_row_wait(rel, &row->task);
	}
}

bool
dw_key_enter_again(Relation rel, const DwKey *key, int64 id)
{
	for (;;)
	{
		List	   *rows;
		KeyRow	   *row;
		TransactionId open;
		bool		claimed;

		CHECK_FOR_INTERRUPTS();
		lock_key(key);
		rows = rows_of_key(rel, key);
		row = newest(rows, false);
		claimed = row != NULL && is_claimed(row, rows);
		/* one that runs would be retried itself, if it is not the older one */
		if (row == NULL || (claimed && row->task.id < id))
			return true;

		open = TransactionIdIsValid(row->inserter) ? row->inserter : row->deleter;
		dw_key_leave();
		if (claimed || !TransactionIdIsValid(open))
			return false;
		XactLockTableWait(open, rel, &row->task.tid, XLTW_Lock);
	}
}

/* Does this very process run a task of the key?  Its row is gone for us. */
static bool
runs_here(Relation rel, const DwKey *key)
{
	HeapTuple	tuple;
	DwKey		own;

	if (dw_this_executor == NULL || dw_this_executor->state != DW_EXECUTOR_BUSY)
		return false;
	tuple = dw_task_find(rel, dw_this_executor->current.id, SnapshotAny);
	return tuple != NULL && key_of(rel, tuple, &own) &&
		own.owner == key->owner && own.queue == key->queue &&
		DatumGetBool(DirectFunctionCall2Coll(texteq, DEFAULT_COLLATION_OID,
											 PointerGetDatum(own.key),
											 PointerGetDatum(key->key)));
}

/*
 * Leaves out what others have not committed.  False if one of them has done so
 * meanwhile: the scan may have been past the row that it moved.
 */
static bool
leave_out_uncommitted(List **rows)
{
	bool		certain = true;
	ListCell   *lc;

	foreach(lc, *rows)
	{
		TransactionId inserter = ((KeyRow *) lfirst(lc))->inserter;

		if (!TransactionIdIsValid(inserter))
			continue;
		if (!TransactionIdIsInProgress(inserter))
			certain = false;
		*rows = foreach_delete_current(*rows, lc);
	}
	return certain;
}

/*
 * Deletes all rows of the key that are not running, those that are superseded
 * and of other origins, too.  Returns what became of the newest one.
 */
DwTaken
dw_key_cancel(Relation rel, const DwKey *key)
{
	bool		taken = false;

	for (;;)
	{
		List	   *rows;
		ListCell   *lc;
		KeyRow	   *last;
		KeyRow	   *busy = NULL;
		uint32		ended = dw_autonomous_ended();

		CHECK_FOR_INTERRUPTS();
		lock_key(key);
		rows = rows_of_key(rel, key);
		if (!leave_out_uncommitted(&rows))
		{
			dw_key_leave();
			continue;
		}
		last = newest(rows, true);
		foreach(lc, rows)
		{
			KeyRow	   *row = (KeyRow *) lfirst(lc);
			DwHint		hint;

			if (is_claimed(row, rows))
				continue;
			if (dw_row_delete(rel, &row->task, &hint) != TM_Ok)
			{
				busy = row;
				continue;
			}
			dw_conclude_row(rel, row->tuple, &row->task, DW_END_CANCELLED, NULL);
			/* not the same row, maybe: it has two while it is being moved */
			if (row->task.id == last->task.id)
				taken = true;
		}
		dw_key_leave();
		if (busy != NULL)
		{
			(void) dw_row_wait(rel, &busy->task);
			continue;
		}
		if (taken)
			return DW_TAKEN;
		DW_INJECT("key-cancel-rows");
		if (last != NULL || runs_here(rel, key) || dw_autonomous_has_key(key))
			return DW_RUNNING;
		/* one without a row may have been put back since */
		if (ended == dw_autonomous_ended())
			return DW_GONE;
	}
}

bool
dw_task_is_superseded(Relation rel, HeapTuple tuple)
{
	DwKey		key;
	DwTaskKey	task;

	if (!key_of(rel, tuple, &key))
		return false;
	dw_task_key(rel, tuple, &task);
	return superseder(rows_of_key(rel, &key), &task) != NULL;
}

/*
 * Moves a superseded task to the failed ones.  Not if somebody has locked it:
 * then it is left to its own claim.
 */
static void
bury(Relation rel, const KeyRow *row, int64 newer)
{
	Datum	   *values;
	bool	   *nulls;
	DwHint		hint;
	ErrorData	error = {
		.sqlerrcode = DW_ERRCODE_SUPERSEDED,
		.message = DW_SUPERSEDED_MESSAGE,
		.detail = psprintf("It is task %lld.", (long long) newer)
	};

	if (dw_row_delete(rel, &row->task, &hint) != TM_Ok)
		return;
	dw_deform(rel, row->tuple, &values, &nulls);
	dw_failed_write(values, nulls, row->task.attempts, dw_now(), &error);
	dw_conclude_row(rel, row->tuple, &row->task, DW_END_FAILED, &error);
}

/* Not those that others are just changing. */
static void
bury_older(Relation rel, List *rows, int64 id)
{
	ListCell   *lc;

	foreach(lc, rows)
	{
		KeyRow	   *row = (KeyRow *) lfirst(lc);

		if (row->task.id < id && !TransactionIdIsValid(row->inserter) &&
			!TransactionIdIsValid(row->deleter))
			bury(rel, row, id);
	}
}

void
dw_key_bury_older(Relation rel, HeapTuple tuple)
{
	DwKey		key;
	DwTaskKey	task;

	if (!key_of(rel, tuple, &key))
		return;
	dw_task_key(rel, tuple, &task);
	bury_older(rel, rows_of_key(rel, &key), task.id);
}

bool
dw_key_lock_of(Relation rel, HeapTuple tuple)
{
	DwKey		key;

	if (!key_of(rel, tuple, &key))
		return false;
	lock_key(&key);
	return true;
}

/*
 * The key has been locked since before the deletion: who looks at it later
 * takes the task for running, so that must be settled by then.  No retry of an
 * older one is on its way either, see dw_key_retry_allowed().
 */
bool
dw_key_claimed(Relation rel, HeapTuple tuple)
{
	DwKey		key;
	DwTaskKey	task;
	List	   *rows;

	if (!key_of(rel, tuple, &key))
		return true;
	dw_task_key(rel, tuple, &task);
	forget_refused(task.id);
	rows = rows_of_key(rel, &key);
	if (superseder(rows, &task) != NULL)
		return false;
	bury_older(rel, rows, task.id);
	return true;
}

bool
dw_key_retry_allowed(Relation rel, HeapTuple tuple, int64 *newer)
{
	DwKey		key;
	DwTaskKey	task;
	KeyRow	   *row;

	if (!key_of(rel, tuple, &key))
		return true;
	dw_task_key(rel, tuple, &task);
	/* left to the end of the transaction */
	lock_key(&key);
	row = superseder(rows_of_key(rel, &key), &task);
	if (row != NULL)
		*newer = row->task.id;
	return row == NULL;
}
