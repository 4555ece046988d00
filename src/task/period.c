/*-------------------------------------------------------------------------
 *
 * period.c
 *	  The periods in which keys are unique (option unique_for).
 *
 * Run by sessions that schedule and cancel, by executors, and by the sweeper.
 *
 * A task that was scheduled with unique_for has a row in delay_wheel_data.unique_key, written in
 * the same transaction.  The row stays after the end of the task, so that later calls with
 * unique_for find the row.  When a task is cancelled, skipped or given up, or plain SQL deletes the
 * task, this row is also deleted, since the task's work was not done.  A key has at most one row
 * whose period lasts.  Older rows may exist until the sweeper removes them (sweeper/aged_rows.c).
 * When a task gets another owner, queue or key, its row gets the same values: by triggers on
 * delay_wheel_data.task for plain SQL (dw_period_follows()), otherwise by delay_update().
 *
 * A session looks for the row, and writes it, under the lock of the key (key_lock.c), and with a
 * dirty snapshot.  If an open transaction writes or deletes the row, the session releases the lock
 * and waits for the transaction, as it does for rows of tasks.  A process that ends a task does not
 * wait, since only plain SQL locks the row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_collation.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../base/signature.h"
#include "task.h"

/* Time in us from the end of a period to the removal of its row by the sweeper. */
#define SWEEP_AFTER		USECS_PER_MINUTE

PG_FUNCTION_INFO_V1(dw_period_follows);

/*
 * Locks the table for writing, before a session takes the lock of the key: a session must not wait
 * under the lock of a key.
 */
void
dw_period_prepare(void)
{
	LockRelationOid(dw_catalog()->unique_key, RowExclusiveLock);
}

/* Returns true if delay_cancel_all() has cancelled the task, whose row is not removed yet. */
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
 * Looks for a task of the key whose period lasts, except the task with the id "except" (0: none).
 * Returns false if no period lasts.  The caller holds the key's lock, and has called
 * dw_period_prepare().
 */
bool
dw_period_find(const DwKey *key, int64 except, DwPeriod *period)
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
		period->id = DatumGetInt64(dw_row_column(rel, tuple, Anum_unique_id));
		period->until = DatumGetTimestampTz(dw_row_column(rel, tuple, Anum_unique_until));
		period->tid = tuple->t_self;
		period->open = TransactionIdIsValid(dirty.xmin) ? dirty.xmin : dirty.xmax;
		found = period->until > now && period->id != except;
	}
	systable_endscan(scan);
	table_close(rel, NoLock);
	return found && (TransactionIdIsValid(period->open) || !is_cancelled(period->id));
}

/*
 * Waits for the open transaction that writes or deletes the row.  Not called under the key's lock.
 */
void
dw_period_wait(DwPeriod *period)
{
	Relation	rel = table_open(dw_catalog()->unique_key, NoLock);

	XactLockTableWait(period->open, rel, &period->tid, XLTW_Lock);
	table_close(rel, NoLock);
}

/* Writes the row of a new task with unique_for, and asks the sweeper to remove the row later. */
void
dw_period_begin(const DwNewTask *task, int64 id)
{
	DwDatabase *db = dw_my_database();
	TimestampTz until = dw_time_add(dw_schedule_now(), task->unique_for);
	Datum		values[Natts_unique_key];
	bool		nulls[Natts_unique_key] = {0};

	values[Anum_unique_id - 1] = Int64GetDatum(id);
	values[Anum_unique_until - 1] = TimestampTzGetDatum(until);
	values[Anum_unique_owner - 1] = ObjectIdGetDatum(task->owner);
	values[Anum_unique_queue - 1] = Int16GetDatum(task->queue);
	values[Anum_unique_key - 1] = task->values[Anum_task_key - 1];
	dw_table_insert(dw_catalog()->unique_key, values, nulls, Natts_unique_key);
	if (db != NULL)
		dw_ask_sweeper(db, DW_JOB_PERIODS, Max(dw_time_add(until, SWEEP_AFTER),
											   dw_job_soonest(&db->sweeper_news, DW_JOB_PERIODS)));
}

/* Returns a copy of the row of a task, or NULL; rel is delay_wheel_data.unique_key. */
static HeapTuple
find_row(Relation rel, Datum id)
{
	ScanKeyData key;

	ScanKeyInit(&key, Anum_unique_id, BTEqualStrategyNumber, F_INT8EQ, id);
	return dw_row_find(rel, dw_catalog()->unique_key_pkey, &key, NULL);
}

/* Deletes the row of a task that was not done; values and nulls are the task's columns. */
void
dw_period_end(const Datum *values, const bool *nulls)
{
	Relation	rel;
	HeapTuple	tuple;

	if (!dw_more_has(values, nulls, Anum_task_more, DW_MORE_UNIQUE_FOR))
		return;
	rel = table_open(dw_catalog()->unique_key, RowExclusiveLock);
	tuple = find_row(rel, values[Anum_task_id - 1]);
	/* the sweeper, or plain SQL, may just be deleting the row */
	if (tuple != NULL)
		(void) dw_heap_delete(rel, &tuple->t_self, false);
	table_close(rel, NoLock);
}

/*---- Tasks that are changed, and plain SQL ----*/

/* Returns true if both rows of a task have a key, and the same id, owner, queue and key. */
static bool
is_same_key(const Datum *a, const bool *a_nulls, const Datum *b, const bool *b_nulls)
{
	return DatumGetInt64(a[Anum_task_id - 1]) == DatumGetInt64(b[Anum_task_id - 1]) &&
		DatumGetObjectId(a[Anum_task_owner - 1]) == DatumGetObjectId(b[Anum_task_owner - 1]) &&
		DatumGetInt16(a[Anum_task_queue - 1]) == DatumGetInt16(b[Anum_task_queue - 1]) &&
		!a_nulls[Anum_task_key - 1] && !b_nulls[Anum_task_key - 1] &&
		DatumGetBool(DirectFunctionCall2Coll(texteq, DEFAULT_COLLATION_OID,
											 a[Anum_task_key - 1], b[Anum_task_key - 1]));
}

/*
 * Called when the columns of a pending task change from old to new.  Moves the task's period, if
 * any, to the new owner, queue and key.  Ends the period if plain SQL has removed the task's key or
 * unique_for.
 */
void
dw_period_move(const Datum *old, const bool *old_nulls, const Datum *new, const bool *new_nulls)
{
	bool		goes_on = !new_nulls[Anum_task_key - 1] &&
		dw_more_has(new, new_nulls, Anum_task_more, DW_MORE_UNIQUE_FOR);
	Relation	rel;
	HeapTuple	tuple;
	Datum	   *values;
	bool	   *nulls;

	if (!dw_more_has(old, old_nulls, Anum_task_more, DW_MORE_UNIQUE_FOR) ||
		(goes_on && is_same_key(old, old_nulls, new, new_nulls)))
		return;
	rel = table_open(dw_catalog()->unique_key, RowExclusiveLock);
	tuple = find_row(rel, old[Anum_task_id - 1]);
	if (tuple != NULL && dw_heap_delete(rel, &tuple->t_self, false) == TM_Ok && goes_on)
	{
		dw_deform(rel, tuple, &values, &nulls);
		values[Anum_unique_id - 1] = new[Anum_task_id - 1];
		values[Anum_unique_owner - 1] = new[Anum_task_owner - 1];
		values[Anum_unique_queue - 1] = new[Anum_task_queue - 1];
		values[Anum_unique_key - 1] = new[Anum_task_key - 1];
		dw_table_insert(RelationGetRelid(rel), values, nulls, Natts_unique_key);
	}
	table_close(rel, NoLock);
}

/* Ends the periods of all tasks in delay_wheel_data.task (tasks), which plain SQL truncates. */
static void
end_periods(Relation tasks)
{
	Relation	rel = table_open(dw_catalog()->unique_key, RowExclusiveLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	while ((tuple = systable_getnext(scan)) != NULL)
	{
		HeapTuple	task;

		CHECK_FOR_INTERRUPTS();
		task = dw_task_find(tasks, DatumGetInt64(dw_row_column(rel, tuple, Anum_unique_id)),
							NULL);
		if (task == NULL)
			continue;
		(void) dw_heap_delete(rel, &tuple->t_self, false);
		heap_freetuple(task);
	}
	systable_endscan(scan);
	table_close(rel, NoLock);
}

/*
 * Trigger on delay_wheel_data.task, fired for each task with unique_for that plain SQL deletes or
 * changes, and before TRUNCATE.
 */
Datum
dw_period_follows(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = dw_require_trigger(fcinfo, "period_follows", false);
	Relation	rel = trigger->tg_relation;
	Datum	   *old;
	bool	   *old_nulls;
	Datum	   *new;
	bool	   *new_nulls;

	if (TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event))
	{
		end_periods(rel);
		PG_RETURN_POINTER(NULL);
	}
	(void) dw_require_trigger(fcinfo, "period_follows", true);
	dw_deform(rel, trigger->tg_trigtuple, &old, &old_nulls);
	if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
	{
		dw_deform(rel, trigger->tg_newtuple, &new, &new_nulls);
		dw_period_move(old, old_nulls, new, new_nulls);
	}
	else
		dw_period_end(old, old_nulls);
	PG_RETURN_POINTER(NULL);
}
