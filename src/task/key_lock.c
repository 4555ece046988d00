/*-------------------------------------------------------------------------
 *
 * key_lock.c
 *	  The lock of a key, and the rows that have it.
 *
 * Run by sessions that schedule and cancel by key, and by executors.  See keys.c for
 * the rules of keys, which rest on this: the lock is held while somebody looks for the
 * pending task of a key and inserts or deletes one, never while waiting for anything.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "catalog/pg_collation.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "key_lock.h"
#include "marks.h"

/* Those of SQL's advisory locks are 1 and 2. */
#define KEY_LOCK_CLASS	0xDE1A
static LOCKTAG key_lock;

/* The key of a task; false if it has none. */
bool
dw_key_of(Relation rel, HeapTuple tuple, DwKey *key)
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

void
dw_key_lock(const DwKey *key)
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
		DwKeyRow	   *row = palloc(sizeof(DwKeyRow));

		row->tuple = heap_copytuple(tuple);
		row->inserter = dirty.xmin;
		row->deleter = dirty.xmax;
		dw_task_key(rel, row->tuple, &row->task);
		rows = lappend(rows, row);
	}
	systable_endscan(scan);

	/* not before: this may read a table, too */
	foreach(lc, rows)
		if (dw_task_is_cancelled(rel, ((DwKeyRow *) lfirst(lc))->tuple))
			rows = foreach_delete_current(rows, lc);
	return rows;
}

/*
 * Is the row being deleted by the executor that runs this task, or that runs
 * a newer one of the key and has removed this one?
 */
bool
dw_key_row_is_claimed(const DwKeyRow *row, List *rows)
{
	ListCell   *lc;

	/* its row stays while it runs */
	if (row->task.has_more && dw_executor_keeps(row->task.id))
		return true;
	if (!TransactionIdIsValid(row->deleter))
		return false;
	foreach(lc, rows)
	{
		DwKeyRow	   *other = (DwKeyRow *) lfirst(lc);

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
DwKeyRow *
dw_key_newest(List *rows, bool any_origin)
{
	DwKeyRow	   *found = NULL;
	ListCell   *lc;

	foreach(lc, rows)
	{
		DwKeyRow	   *row = (DwKeyRow *) lfirst(lc);

		if (!any_origin && row->task.origin != dw_origin_stamp())
			continue;
		if (found == NULL || row->task.id > found->task.id ||
			(row->task.id == found->task.id && TransactionIdIsValid(row->inserter)))
			found = row;
	}
	return found;
}

/* A row that makes another one superseded, or NULL. */
DwKeyRow *
dw_key_superseder(List *rows, const DwTaskKey *task)
{
	ListCell   *lc;

	foreach(lc, rows)
	{
		DwKeyRow	   *row = (DwKeyRow *) lfirst(lc);

		if (row->task.id > task->id && !TransactionIdIsValid(row->inserter) &&
			(row->task.origin == task->origin || row->task.origin == dw_origin_stamp()))
			return row;
	}
	return NULL;
}

/* An executor could not claim the task: somebody has locked its row. */
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
 * Is there a newer task of the same key, pending or running?  Then this row
 * is not a pending task any more, whatever it says.
 */
bool
dw_task_is_superseded(Relation rel, HeapTuple tuple)
{
	DwKey		key;
	DwTaskKey	task;

	if (!dw_key_of(rel, tuple, &key))
		return false;
	dw_task_key(rel, tuple, &task);
	return dw_key_superseder(dw_key_rows(rel, &key), &task) != NULL;
}

/*
 * For who inserts the row of a task again, and for executors, from before they
 * delete it until it is decided whether it is run.  True if it has a key: then
 * they are to call dw_key_leave().
 */
bool
dw_key_lock_of(Relation rel, HeapTuple tuple)
{
	DwKey		key;

	if (!dw_key_of(rel, tuple, &key))
		return false;
	dw_key_lock(&key);
	return true;
}
