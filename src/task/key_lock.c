/*-------------------------------------------------------------------------
 *
 * key_lock.c
 *	  The lock of a key, and the rows with the key.
 *
 * Run by sessions that schedule and cancel by key, and by executors.  A process takes the lock
 * before it looks for the pending task of the key, and releases it after it has inserted or deleted
 * a task of the key.  The rules are in the README.md of the folder ending.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "task.h"

/*
 * Class (field 4) of the advisory locks of keys.  The SQL functions for advisory locks use the
 * classes 1 and 2. See row_lock.c and recurring/commands.c for our other classes.
 */
#define KEY_LOCK_CLASS	0xDE1A

/* The lock that this process has taken last, for dw_key_leave(). */
static LOCKTAG key_lock;

/*
 * Fills *key with owner, queue and key of a row of delay_wheel_data.task, and *task with the row's
 * short columns.  Returns false if the task has no key.  The key's text points into the tuple
 * unless it had to be detoasted.
 */
bool
dw_key_of(Relation rel, HeapTuple tuple, DwKey *key, DwTaskKey *task)
{
	bool		isnull;
	Datum		value = heap_getattr(tuple, Anum_task_key, RelationGetDescr(rel), &isnull);

	if (isnull)
		return false;
	dw_task_key(rel, tuple, task);
	key->owner = task->owner;
	key->queue = task->queue;
	key->key = DatumGetTextPP(value);
	return true;
}

/* Returns the key of a task with these columns, which has a key. */
DwKey
dw_key_of_values(const Datum *values)
{
	return (DwKey) {
		.owner = DatumGetObjectId(values[Anum_task_owner - 1]),
		.queue = DatumGetInt16(values[Anum_task_queue - 1]),
		.key = DatumGetTextPP(values[Anum_task_key - 1])
	};
}

/*
 * Takes the lock of a key, and waits for other processes if need be.  A process has at most one
 * lock of a key, and releases it by dw_key_leave() before it waits for anything else.  Two keys
 * with the same hash share a lock, which costs only a short wait.
 */
void
dw_key_lock(const DwKey *key)
{
	uint64		hash = dw_secret_hash(VARDATA_ANY(key->key), VARSIZE_ANY_EXHDR(key->key),
									  ((uint64) key->owner << 16) | (uint16) key->queue);

	SET_LOCKTAG_ADVISORY(key_lock, MyDatabaseId, (uint32) (hash >> 32), (uint32) hash,
						 KEY_LOCK_CLASS);
	(void) LockAcquire(&key_lock, ExclusiveLock, false, false);
}

/* Releases the lock that dw_key_lock() has taken last. */
void
dw_key_leave(void)
{
	LockRelease(&key_lock, ExclusiveLock, false);
}

/*
 * Inserts a task's row again that this transaction has deleted.  If the task has a key, first takes
 * the key's lock, unless the caller has it.  Returns the TID of the new row.
 */
ItemPointerData
dw_task_insert_again(Relation rel, Datum *values, bool *nulls)
{
	bool		has_key = !nulls[Anum_task_key - 1];
	ItemPointerData tid;

	if (has_key)
	{
		DwKey		key = dw_key_of_values(values);

		dw_key_lock(&key);
	}
	tid = dw_task_insert(rel, values, nulls);
	if (has_key)
		dw_key_leave();
	return tid;
}

/*
 * Returns a list of DwKeyRow: all rows of the key, in any order, except rows that a mark of
 * delay_cancel_all() has cancelled.  The dirty snapshot includes rows that open transactions insert
 * or delete.  rel is delay_wheel_data.task.
 */
List *
dw_key_rows(Relation rel, const DwKey *key)
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
		DwKeyRow   *row = palloc(sizeof(DwKeyRow));

		row->tuple = heap_copytuple(tuple);
		row->inserter = dirty.xmin;
		row->deleter = dirty.xmax;
		dw_task_key(rel, row->tuple, &row->task);
		rows = lappend(rows, row);
	}
	systable_endscan(scan);

	/* check marks after the end of the scan: the check may scan the table of marks */
	foreach(lc, rows)
		if (dw_task_is_cancelled(rel, ((DwKeyRow *) lfirst(lc))->tuple))
			rows = foreach_delete_current(rows, lc);
	return rows;
}

/*
 * Returns true if an executor is running the task of this row, or has deleted this row because the
 * executor is running a newer task of the key.  Also returns true if a session has received or
 * leased this message.  rows: all rows of the key.
 */
bool
dw_key_row_is_claimed(const DwKeyRow *row, List *rows)
{
	ListCell   *lc;

	/* the row of a task with mode at_least_once stays while the task runs */
	if (row->task.has_more && dw_executor_keeps(row->task.id))
		return true;
	if (dw_task_lease_lasts(&row->task))
		return true;
	if (!TransactionIdIsValid(row->deleter))
		return false;
	foreach(lc, rows)
	{
		DwKeyRow   *other = (DwKeyRow *) lfirst(lc);

		if (other->deleter == row->deleter &&
			(other->task.is_message ? dw_xid_receives(other->deleter) :
			 dw_executor_claims(other->task.id, other->deleter)))
			return true;
	}
	return false;
}

/*
 * Returns the row with the highest id, or NULL.  If a task is being moved, it has two rows; then
 * returns the new row.  If any_origin is false, ignores rows that came with a copy of another
 * database.
 */
DwKeyRow *
dw_key_newest(List *rows, bool any_origin)
{
	DwKeyRow   *found = NULL;
	ListCell   *lc;

	foreach(lc, rows)
	{
		DwKeyRow   *row = (DwKeyRow *) lfirst(lc);

		if (!any_origin && row->task.origin != dw_origin_stamp())
			continue;
		if (found == NULL || row->task.id > found->task.id ||
			(row->task.id == found->task.id && TransactionIdIsValid(row->inserter)))
			found = row;
	}
	return found;
}

/*
 * Returns a row that supersedes the task, or NULL.  The row is committed, or written by this
 * transaction.  Only a newer task of the same origin, or of this database, supersedes a task.
 */
DwKeyRow *
dw_key_superseder(List *rows, const DwTaskKey *task)
{
	ListCell   *lc;

	foreach(lc, rows)
	{
		DwKeyRow   *row = (DwKeyRow *) lfirst(lc);

		if (row->task.id > task->id && !TransactionIdIsValid(row->inserter) &&
			(row->task.origin == task->origin || row->task.origin == dw_origin_stamp()))
			return row;
	}
	return NULL;
}

/* Returns true if the row is superseded: a newer task of the key is pending or running. */
bool
dw_task_is_superseded(Relation rel, HeapTuple tuple)
{
	DwKey		key;
	DwTaskKey	task;

	if (!dw_key_of(rel, tuple, &key, &task))
		return false;
	return dw_key_superseder(dw_key_rows(rel, &key), &task) != NULL;
}

/*
 * Called by an executor whose task has failed.  Returns true if the row may be inserted again with
 * the same id.  Otherwise sets *newer to the id of a newer task of the key.
 *
 * If the task has a key, the process has the key's lock until the end of the transaction, which
 * must be near: only the insertion and the commit may follow.
 */
bool
dw_key_retry_allowed(Relation rel, HeapTuple tuple, int64 *newer)
{
	DwKey		key;
	DwTaskKey	task;
	DwKeyRow	   *row;

	if (!dw_key_of(rel, tuple, &key, &task))
		return true;
	/* the end of the transaction releases the lock */
	dw_key_lock(&key);
	row = dw_key_superseder(dw_key_rows(rel, &key), &task);
	if (row != NULL)
		*newer = row->task.id;
	return row == NULL;
}
