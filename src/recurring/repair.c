/*-------------------------------------------------------------------------
 *
 * repair.c
 *	  Repair of recurring tasks: lost runs, runs that are too far away because the clock was set
 *	  back, definitions of dropped roles.
 *
 * Run by the sweeper, which does not wait for locks here: it skips locked rows and tables, and
 * tries again later.  README.md describes how runs are lost, and which runs are too far away.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/inject.h"
#include "../base/worker.h"
#include "../ending/ending.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "../sweeper/sweeper.h"
#include "recurring.h"

/* Maximum number of definitions that the sweeper checks in one transaction. */
#define REPAIR_SLICE	500
/* Pause before the sweeper tries again, in us, if a definition or a table was locked. */
#define REPAIR_RETRY_US	(10 * USECS_PER_SEC)

/* The results of a pass. */
typedef struct Pass
{
	bool		any_locked;		/* a definition or run was locked, and is tried again */
	int			brought_forward;	/* number of definitions whose runs were too far away */
} Pass;

/* Returns true if the run that the definition names is neither pending nor running. */
static bool
is_lost(const DwDefinition *def)
{
	int64		id = dw_definition_number(def, Anum_recurring_task);

	return id == 0 || (!dw_recurring_has_run(def) && !dw_runs_without_row(id));
}

/*
 * Returns true if a lost run may have begun: in mode at_most_once, the row of a run is deleted
 * before its SQL is run (executor/autonomous.c).  Its record in delay_wheel.failed shows what is
 * known.
 */
static bool
may_have_begun(const DwDefinition *def)
{
	char	   *mode = dw_more_text(def->values, def->nulls, Anum_recurring_more, DW_MORE_MODE);

	return mode != NULL && strcmp(mode, "at_most_once") == 0;
}

/* Returns the latest known time of the clock. */
static TimestampTz
clock_shown(const DwDefinition *def)
{
	TimestampTz known = dw_definition_clock_shown(def);
	TimestampTz was = dw_atomic_read(&dw_shared->clock_was);

	return Max(known, was);
}

/*
 * Gives a definition a new run in place of a lost run.  The caller has locked the definition.  If
 * the lost run may have begun, it counts as failed, and the new run has the next ideal time.
 * Otherwise the new run has the ideal time of the lost run.
 */
static void
repair_run(Relation rel, DwDefinition *def)
{
	int64		lost = dw_definition_number(def, Anum_recurring_task);
	TimestampTz shown = clock_shown(def);

	ereport(LOG,
			(errmsg("delay_wheel recurring task \"%s\" has lost its run, task %lld; there is a new one",
					TextDatumGetCString(def->values[Anum_recurring_name - 1]), (long long) lost)));
	if (may_have_begun(def))
	{
		ErrorData	error = {.message = "the task was begun, and its end is not known"};
		DwEnded		ended = {.outcome = DW_FAILED, .error = &error};

		dw_definition_note_end(def, &ended);
		dw_definition_advance(def);
	}
	if (dw_crashes_of(MyDatabaseId, lost) >= DW_MAX_CRASHES)
		dw_definition_pause_for_crashes(def);
	(void) dw_definition_follow_clock(def, shown, true);
	dw_definition_insert_run(def);
	dw_definition_write(rel, def);
	dw_crashes_end(MyDatabaseId, lost, dw_definition_number(def, Anum_recurring_task));
}

/*
 * Moves the run of a definition forward by this time in microseconds, and writes the definition,
 * whose next_due was moved in memory.  Does nothing if the run is running: the process that ends it
 * moves the next run forward.  The caller has locked the definition.  Returns false if the run is
 * locked.
 */
static bool
bring_forward(Relation rel, DwDefinition *def, int64 by, Pass *pass)
{
	Relation	tasks = table_open(dw_catalog()->task, NoLock);
	HeapTuple	tuple = dw_task_find(tasks, dw_definition_number(def, Anum_recurring_task), NULL);
	bool		possible = true;
	DwTaskKey	key;
	Datum	   *values;
	bool	   *nulls;
	int64		not_before;

	if (tuple != NULL && !dw_task_is_cancelled(tasks, tuple))
	{
		dw_task_key(tasks, tuple, &key);
		dw_deform(tasks, tuple, &values, &nulls);
		dw_writes_for(key.owner);
		if (dw_row_remove(tasks, &key) == TM_Ok)
		{
			CommandCounterIncrement();
			values[Anum_task_due - 1] = TimestampTzGetDatum(dw_time_add(key.due, -by));
			if (dw_more_number(values, nulls, Anum_task_more, DW_MORE_NOT_BEFORE, &not_before))
				dw_more_set_number(values, nulls, Anum_task_more, DW_MORE_NOT_BEFORE, not_before - by);
			dw_pending_rewrite(tasks, values, nulls,
							   dw_lane_if_any(key.owner, key.queue, key.priority));
			dw_definition_write(rel, def);
			pass->brought_forward++;
		}
		else
			possible = dw_row_is_claimed(tasks, &key);
	}
	table_close(tasks, NoLock);
	return possible;
}

/*
 * Checks one definition.  Deletes it if its owner was dropped, and repairs it if its run is lost,
 * or too far away.  Returns false if a needed change is not possible, since the definition is
 * locked, or has just changed.
 */
static bool
repair(Relation rel, DwDefinition *def, Pass *pass)
{
	bool		orphan = !dw_role_exists(dw_definition_owner(def));
	int64		due = dw_definition_number(def, Anum_recurring_next_due);
	bool		lost;
	bool		far = false;

	if (!orphan)
	{
		if (dw_definition_is_paused(def) || !dw_definition_is_armed(def) ||
			def->nulls[Anum_recurring_next_due - 1])
			return true;
		lost = is_lost(def);
		far = !lost && dw_definition_follow_clock(def, clock_shown(def), true);
		if (!lost && !far)
			return true;
	}
	if (dw_definition_lock(rel, def, LockWaitSkip) != TM_Ok)
		return false;
	/* check again under the lock: a process that ends or replaces the run needs the lock, too */
	if (orphan)
		dw_definition_delete(rel, def);
	else if (far)
		return bring_forward(rel, def, due - dw_definition_number(def, Anum_recurring_next_due), pass);
	else if (is_lost(def))
		repair_run(rel, def);
	return true;
}

/*
 * Checks up to REPAIR_SLICE definitions whose id is greater than `after`.  Returns the id of the
 * last definition; PG_INT64_MAX if there are no more.
 */
static int64
repair_some(Relation rel, int64 after, Pass *pass, int *looked_at)
{
	Relation	index = index_open(dw_catalog()->recurring_pkey, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			n = 0;

	ScanKeyInit(&key, Anum_recurring_id, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(after));
	scan = systable_beginscan_ordered(rel, index, GetActiveSnapshot(), 1, &key);
	for (;;)
	{
		DwDefinition def;

		CHECK_FOR_INTERRUPTS();
		tuple = systable_getnext_ordered(scan, ForwardScanDirection);
		if (tuple == NULL)
			after = PG_INT64_MAX;
		if (tuple == NULL || n++ == REPAIR_SLICE)
			break;
		dw_definition_read(rel, heap_copytuple(tuple), &def);
		after = dw_definition_number(&def, Anum_recurring_id);
		pass->any_locked |= !repair(rel, &def, pass);
		(*looked_at)++;
	}
	systable_endscan_ordered(scan);
	index_close(index, NoLock);
	return after;
}

/*
 * Begins a transaction that locks all tables that a repair writes.  Returns the table of tasks.  If
 * one of the locks is not free, returns NULL without an open transaction.
 */
static Relation
begin_repair(void)
{
	Relation	rel = dw_read_begin();

	if (rel != NULL &&
		ConditionalLockRelationOid(AuthIdRelationId, AccessShareLock) &&
		ConditionalLockRelationOid(RelationGetRelid(rel), RowExclusiveLock) &&
		ConditionalLockRelationOid(dw_catalog()->task_id_seq, RowExclusiveLock) &&
		ConditionalLockRelationOid(dw_catalog()->recurring, RowExclusiveLock))
		return rel;
	dw_read_end(rel);
	return NULL;
}

/* Ends a pass.  Returns the time of the next pass; DW_NEVER: only on request. */
static TimestampTz
end_look(DwDatabase *db, const Pass *pass)
{
	if (pass->brought_forward > 0)
		ereport(LOG,
				(errmsg_plural("%d recurring task of database \"%s\" was rescheduled, since the clock was set back",
							   "%d recurring tasks of database \"%s\" were rescheduled, since the clock was set back",
							   pass->brought_forward, pass->brought_forward, db->name)));
	return pass->any_locked ? dw_now() + REPAIR_RETRY_US : DW_NEVER;
}

/*
 * After a request, or if a retry is due, checks all definitions.  Each call checks one slice, in a
 * separate transaction.  Returns the time of the next call; DW_NEVER: only on request.
 */
TimestampTz
dw_recurring_repair(DwDatabase *db)
{
	static int64 after = PG_INT64_MAX;
	static Pass pass = {0};
	static TimestampTz look_at = DW_NEVER;
	Relation	rel;
	int			n = 0;

	if (after == PG_INT64_MAX)
	{
		if (!dw_sweeper_take(&db->sweeper_news, DW_LOOK_AT_RECURRING) && look_at > dw_now())
			return look_at;
		after = PG_INT64_MIN;
		memset(&pass, 0, sizeof(pass));
	}
	dw_worker_activity(STATE_RUNNING, "delay_wheel: looking whether recurring tasks have their runs");
	rel = begin_repair();
	if (rel != NULL)
	{
		Relation	recurring = table_open(dw_catalog()->recurring, NoLock);

		after = repair_some(recurring, after, &pass, &n);
		table_close(recurring, NoLock);
		DW_INJECT("repair-before-commit");
		dw_read_end(rel);
	}
	else
	{
		after = PG_INT64_MAX;
		pass.any_locked = !dw_extension_gone;
	}
	dw_worker_progress(n);
	look_at = after == PG_INT64_MAX ? end_look(db, &pass) : PG_INT64_MIN;
	return look_at;
}
