/*-------------------------------------------------------------------------
 *
 * recurring_wing.c
 *	  The wing of recurring tasks, and of tasks at a local time: what the engine calls.
 *
 * Run by sessions, executors, timers and the sweeper.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "../base/errors.h"
#include "recurring.h"

/* Maximum number of rows that the timer reads to find a row of another origin. */
#define UNARMED_LOOK	1000

/*---- The end of a run ----*/

/* Returns the id of the definition that a task's row names, or 0. */
static int64
definition_of(const Datum *values, const bool *nulls)
{
	int64		id;

	return dw_more_number(values, nulls, Anum_task_more, DW_MORE_RECURRING, &id) ? id : 0;
}

/*
 * Finds the newest version of a definition and locks its row, if the task is its current run.
 * Returns TM_Ok if the row is locked; with LockWaitSkip, returns TM_WouldBlock if another
 * transaction has locked the row.
 */
static TM_Result
lock_of_run(Relation rel, int64 id, const DwTaskKey *task, LockWaitPolicy wait, DwDefinition *def)
{
	for (;;)
	{
		TM_Result	result;

		CHECK_FOR_INTERRUPTS();
		/* compare owners, since plain SQL can write any definition's id into a task */
		if (!dw_definition_find(rel, id, def) ||
			dw_definition_number(def, Anum_recurring_task) != task->id ||
			dw_definition_owner(def) != task->owner)
			return TM_Deleted;
		result = dw_definition_lock(rel, def, wait);
		/* other results: plain SQL in the current command has deleted the row */
		if (result != TM_Updated && result != TM_Deleted)
			return result;
	}
}

/*
 * Locks the definition as lock_of_run() does, but waits for a transaction that changes it.  Returns
 * false if the task is not its current run.
 *
 * If the run has succeeded in this transaction, a cancel interrupts the wait and undoes the run.
 * If the run has failed, or has committed its work (a run with a mode), a cancel does not interrupt
 * the wait, since the end of the run must be recorded.
 */
static bool
wait_for_definition(Relation rel, int64 id, const DwEnded *ended, DwDefinition *def)
{
	bool		cancellable = QueryCancelHoldoffCount > 0 && ended->outcome == DW_DONE &&
		!dw_more_has(ended->values, ended->nulls, Anum_task_more, DW_MORE_MODE);
	TM_Result	result;

	if (cancellable)
		RESUME_CANCEL_INTERRUPTS();
	result = lock_of_run(rel, id, ended->key, LockWaitBlock, def);
	if (cancellable)
		HOLD_CANCEL_INTERRUPTS();
	return result == TM_Ok;
}

/*
 * Notes the end of a run in its definition and inserts the next run, if the task is the
 * definition's current run.
 */
static void
end_run(int64 id, const DwEnded *ended)
{
	Relation	rel = table_open(dw_catalog()->recurring, RowExclusiveLock);
	DwDefinition def;

	if (wait_for_definition(rel, id, ended, &def))
	{
		TimestampTz shown = Max(ended->started, dw_definition_clock_shown(&def));
		int64		next;

		dw_definition_note_end(&def, ended);
		if (ended->error != NULL && ended->error->sqlerrcode == DW_ERRCODE_CRASHED)
			dw_definition_pause_for_crashes(&def);
		dw_definition_advance(&def);
		(void) dw_definition_follow_clock(&def, shown, true);
		dw_definition_insert_run(&def);
		dw_definition_write(rel, &def);
		next = dw_definition_number(&def, Anum_recurring_task);
		/* after a skipped run, the next run is the suspect: otherwise runs could crash forever */
		if (ended->started == 0 && ended->outcome != DW_CANCELLED && next != 0)
			dw_crashes_end(MyDatabaseId, ended->key->id, next);
	}
	table_close(rel, NoLock);
}

/*
 * Called for each task that ends, by dw_conclude(): if the task is the current run of a recurring
 * task, inserts the next run.  Waits for transactions that change the definition.
 *
 * If an executor ends its own task, lock_timeout does not limit this wait, since the task's SQL has
 * ended.
 */
static void
run_ended(const DwEnded *ended)
{
	int64		id = ended->outcome == DW_RETRIED ? 0 :
		definition_of(ended->values, ended->nulls);
	int			lock_timeout = LockTimeout;

	if (id == 0)
		return;
	if (dw_this_executor != NULL && QueryCancelHoldoffCount > 0)
		LockTimeout = 0;
	PG_TRY();
	{
		end_run(id, ended);
	}
	PG_FINALLY();
	{
		LockTimeout = lock_timeout;
	}
	PG_END_TRY();
}

/*
 * Returns true if the sweeper can delete the row of a task, and conclude the task, without waiting
 * for the lock of a definition.  If the task is a current run, locks its definition.  Returns false
 * if another transaction has this lock.  The caller has locked the table of recurring tasks
 * (RowExclusiveLock).
 */
static bool
may_end_run(Relation rel, HeapTuple tuple)
{
	Datum	   *values;
	bool	   *nulls;
	int64		id;
	Relation	recurring;
	DwTaskKey	key;
	DwDefinition def;
	TM_Result	result;

	if (heap_attisnull(tuple, Anum_task_more, RelationGetDescr(rel)))
		return true;
	dw_deform(rel, tuple, &values, &nulls);
	id = definition_of(values, nulls);
	if (id == 0)
		return true;
	dw_task_key(rel, tuple, &key);
	recurring = table_open(dw_catalog()->recurring, NoLock);
	result = lock_of_run(recurring, id, &key, LockWaitSkip, &def);
	table_close(recurring, NoLock);
	return result != TM_WouldBlock;
}

/*---- All definitions ----*/

/*
 * Returns true if a definition that came with a copy has a next time, but gets no run before
 * delay_wheel.arm().  Reads only the first rows of the table, where a copy puts such definitions.
 *
 * Run by the timer, which does not wait: returns false if the table is locked.
 */
static bool
has_unarmed_definition(void)
{
	int64		origin = dw_origin_stamp();
	Relation	rel = dw_open_if_free(dw_catalog()->recurring);
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	if (rel == NULL)
		return false;
	scan = systable_beginscan(rel, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	for (int n = 0; !found && n < UNARMED_LOOK && (tuple = systable_getnext(scan)) != NULL; n++)
		found = DatumGetInt64(dw_row_column(rel, tuple, Anum_recurring_origin)) != origin &&
			!heap_attisnull(tuple, Anum_recurring_next_due, RelationGetDescr(rel));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/* Raises an error if the definition of a recurring task names this queue. */
static void
require_unused_by_runs(int16 queue, const char *name)
{
	Relation	rel = table_open(dw_catalog()->recurring, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;
	bool		found = false;

	while (!found && (tuple = systable_getnext(scan)) != NULL)
		found = queue == DatumGetInt16(dw_row_column(rel, tuple, Anum_recurring_queue));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	if (found)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("queue \"%s\" has recurring tasks", name),
				 errhint("Give them another queue with %s, or remove them with %s.",
						 "delay_every()", "delay_unschedule()")));
}

/* Asks the sweeper to look for lost runs and for definitions of dropped roles. */
static void
ask_for_repair(DwDatabase *db)
{
	dw_ask_sweeper(db, DW_JOB_RECURRING, dw_now());
}

/*
 * Calls ask_for_repair() if there may be recurring tasks.  Run by the timer, outside of a
 * transaction, after a scan of all tasks (at its start, and after plain SQL), and after a role was
 * dropped.
 */
static void
doubt_runs(DwDatabase *db)
{
	if (dw_any_may_have_rows(offsetof(DwCatalog, recurring), 1))
		ask_for_repair(db);
}

/*---- delay_wheel.arm() ----*/

/*
 * Arms the definitions of all recurring tasks.  Sets *left to true if a definition stays unarmed,
 * since the current user lacks the owner's rights, or the owner does not exist.
 */
static void
arm_definitions(bool *left)
{
	Relation	rel = table_open(dw_catalog()->recurring, RowExclusiveLock);
	bool		changed;

	do
	{
		Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
		SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
		HeapTuple	tuple;

		changed = false;
		while ((tuple = systable_getnext(scan)) != NULL)
		{
			DwDefinition def;

			CHECK_FOR_INTERRUPTS();
			dw_definition_read(rel, heap_copytuple(tuple), &def);
			if (dw_definition_is_armed(&def))
				continue;
			if (!has_privs_of_role(GetUserId(), dw_definition_owner(&def)) ||
				!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(dw_definition_owner(&def))))
			{
				*left = true;
				continue;
			}
			/* another transaction has changed the definition since it was read */
			if (dw_definition_lock(rel, &def, LockWaitBlock) != TM_Ok)
			{
				changed = true;
				continue;
			}
			dw_definition_set(&def, Anum_recurring_origin, Int64GetDatum(dw_origin_stamp()));
			if (!dw_recurring_has_run(&def))
				dw_definition_insert_run(&def);
			dw_definition_write(rel, &def);
		}
		systable_endscan(scan);
		UnregisterSnapshot(snapshot);
	} while (changed);
	table_close(rel, NoLock);
}

/*---- The wing ----*/

/*
 * If there are tasks at local times, asks the sweeper to check them, since time zones may have new
 * rules.
 */
static void
doubt_local_times(DwDatabase *db, bool settings)
{
	if (!settings && dw_any_may_have_rows(offsetof(DwCatalog, task_local_index), 1))
		dw_ask_sweeper(db, DW_JOB_LOCAL, dw_now());
}

static const DwWingJob jobs[] = {
	{DW_JOB_LOCAL, dw_local_times_follow},
	{DW_JOB_RECURRING, dw_recurring_repair}
};

const DwWing dw_recurring_wing = {
	.task_ended = run_ended,
	.may_remove = may_end_run,
	.task_lost = ask_for_repair,
	.rows_in_doubt = doubt_runs,
	.has_unarmed = has_unarmed_definition,
	.arm = arm_definitions,
	.require_unused = require_unused_by_runs,
	.jobs_in_doubt = doubt_local_times,
	.jobs = jobs,
	.njobs = lengthof(jobs)
};
