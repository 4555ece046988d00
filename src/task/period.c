/*-------------------------------------------------------------------------
 *
 * period.c
 *	  The periods in which keys are unique (option unique_for).
 *
 * Run by sessions that schedule and cancel, by executors, and by the sweeper.
 *
 * A task that was scheduled with unique_for has a row in delay_wheel.unique_key, written in
 * the same transaction.  The row stays when the task has ended: it is what later calls with
 * unique_for find.  A task that is cancelled, skipped or given up takes its row with it, since
 * it has not done what the next one would repeat.  So a key has at most one row whose period
 * lasts; older ones may be there until the sweeper removes them (sweeper/aged_rows.c).
 *
 * A session looks for the row, and writes it, under the lock of the key (key_lock.c), and with
 * a dirty snapshot.  What an open transaction writes or deletes is waited for, without the
 * lock, as for rows of tasks.  A process that ends a task does not wait: its row is locked by
 * nobody, unless plain SQL does.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/pg_collation.h"
#include "storage/lmgr.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../shmem/shared.h"
#include "marks.h"
#include "my_session.h"
#include "new_task.h"
#include "period.h"

/* Time after the end of a period at which the sweeper is to remove the row, in us. */
#define SWEEP_AFTER		USECS_PER_MINUTE

/*
 * Locks the table to write to it, before a session takes the lock of the key: under that,
 * nothing is waited for.
 */
void
dw_period_prepare(void)
{
	LockRelationOid(dw_catalog()->unique_key, RowExclusiveLock);
}

/* True if delay_cancel_all() has cancelled the task, whose row is not removed yet. */
static bool
is_cancelled(int64 id)
{
	Relation	rel = table_open(dw_catalog()->task, AccessShareLock);
	HeapTuple	tuple = dw_task_find(rel, id, NULL);
	bool		cancelled = tuple != NULL && dw_task_is_cancelled(rel, tuple);

	table_close(rel, NoLock);
	return cancelled;
}

/*
 * Looks for the task of a key whose period lasts: false if there is none.  The caller holds
 * the key's lock, and has called dw_period_prepare().
 */
bool
dw_period_find(const DwKey *key, DwPeriod *period)
{
	Relation	rel = table_open(dw_catalog()->unique_key, NoLock);
	TimestampTz now = dw_time_reached();
	ScanKeyData keys[3];
	SnapshotData dirty;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	InitDirtySnapshot(dirty);
	ScanKeyInit(&keys[0], Anum_unique_owner, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(key->owner));
	ScanKeyInit(&keys[1], Anum_unique_queue, BTEqualStrategyNumber, F_INT2EQ,
				Int16GetDatum(key->queue));
	ScanKeyEntryInitialize(&keys[2], 0, Anum_unique_key, BTEqualStrategyNumber, InvalidOid,
						   DEFAULT_COLLATION_OID, F_TEXTEQ, PointerGetDatum(key->key));
	scan = systable_beginscan(rel, dw_catalog()->unique_key_index, true, &dirty, 3, keys);
	while (!found && (tuple = systable_getnext(scan)) != NULL)
	{
		bool		isnull;

		period->id = DatumGetInt64(dw_row_column(rel, tuple, Anum_unique_id, &isnull));
		period->until = DatumGetTimestampTz(dw_row_column(rel, tuple, Anum_unique_until, &isnull));
		period->tid = tuple->t_self;
		period->open = TransactionIdIsValid(dirty.xmin) ? dirty.xmin : dirty.xmax;
		found = period->until > now;
	}
	systable_endscan(scan);
	table_close(rel, NoLock);
	return found && (TransactionIdIsValid(period->open) || !is_cancelled(period->id));
}

/* Waits for the open transaction that writes or deletes the row; not under the key's lock. */
void
dw_period_wait(DwPeriod *period)
{
	Relation	rel = table_open(dw_catalog()->unique_key, NoLock);

	XactLockTableWait(period->open, rel, &period->tid, XLTW_Lock);
	table_close(rel, NoLock);
}

/* Writes the row of a new task that has unique_for, and asks the sweeper to remove it later. */
void
dw_period_begin(const DwNewTask *task, int64 id)
{
	DwDatabase *db = dw_my_database();
	TimestampTz until = dw_time_add(dw_schedule_now(), task->unique_for);
	Datum		values[Natts_unique];
	bool		nulls[Natts_unique] = {0};

	values[Anum_unique_id - 1] = Int64GetDatum(id);
	values[Anum_unique_until - 1] = TimestampTzGetDatum(until);
	values[Anum_unique_owner - 1] = ObjectIdGetDatum(task->owner);
	values[Anum_unique_queue - 1] = Int16GetDatum(task->queue);
	values[Anum_unique_key - 1] = task->values[Anum_task_key - 1];
	dw_table_insert(dw_catalog()->unique_key, values, nulls, Natts_unique);
	if (db != NULL)
		dw_ask_sweeper(db, DW_JOB_PERIODS, Max(dw_time_add(until, SWEEP_AFTER),
											   dw_job_soonest(&db->sweeper_news, DW_JOB_PERIODS)));
}

/* Deletes the row of a task that has not been done; values and nulls are the task's columns. */
void
dw_period_end(const Datum *values, const bool *nulls)
{
	Relation	rel;
	ScanKeyData key;
	HeapTuple	tuple;

	if (!dw_more_has(values, nulls, Anum_task_more, DW_MORE_UNIQUE_FOR))
		return;
	rel = table_open(dw_catalog()->unique_key, RowExclusiveLock);
	ScanKeyInit(&key, Anum_unique_id, BTEqualStrategyNumber, F_INT8EQ, values[Anum_task_id - 1]);
	tuple = dw_row_find(rel, dw_catalog()->unique_key_pkey, &key, NULL);
	/* one that the sweeper, or plain SQL, just deletes */
	if (tuple != NULL)
		(void) dw_heap_delete(rel, &tuple->t_self, false);
	table_close(rel, NoLock);
}
