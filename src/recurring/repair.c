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
#include "utils/snapmgr.h"

#include "../base/inject.h"
#include "../base/worker.h"
#include "../ending/ending.h"
#include "../sweeper/sweeper.h"
#include "recurring.h"

/* Maximum number of definitions that the sweeper checks in one transaction. */
#define REPAIR_SLICE	500
/* Pause before the sweeper tries again, in us, if a definition or a table was locked. */
#define REPAIR_RETRY_US	(10 * USECS_PER_SEC)

/* A pass over all definitions. */
typedef struct Pass
{
	int64		reached;		/* id of the last definition that was checked */
	bool		more;			/* definitions are left */
	bool		any_locked;		/* a definition or run was locked, and is tried again */
	int			looked_at;		/* number of definitions that were checked */
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
 * Checks up to REPAIR_SLICE definitions, in the transaction of dw_slice_do().  First locks all
 * tables that a repair writes.
 */
static bool
repair_slice(DwDatabase *db, const DwCatalog *cat, void *state)
{
	Pass	   *pass = state;
	Relation	rel;
	Relation	index;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!ConditionalLockRelationOid(AuthIdRelationId, AccessShareLock) ||
		!ConditionalLockRelationOid(cat->task, RowExclusiveLock) ||
		!ConditionalLockRelationOid(cat->task_id_seq, RowExclusiveLock) ||
		!dw_slice_open_both(cat->recurring, cat->recurring_pkey, &rel, &index))
		return false;
	ScanKeyInit(&key, Anum_recurring_id, BTGreaterStrategyNumber, F_INT8GT,
				Int64GetDatum(pass->reached));
	scan = systable_beginscan_ordered(rel, index, GetActiveSnapshot(), 1, &key);
	for (int n = 0; (tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL; n++)
	{
		DwDefinition def;

		CHECK_FOR_INTERRUPTS();
		pass->more = n == REPAIR_SLICE;
		if (pass->more)
			break;
		dw_definition_read(rel, heap_copytuple(tuple), &def);
		pass->reached = dw_definition_number(&def, Anum_recurring_id);
		pass->any_locked |= !repair(rel, &def, pass);
		pass->looked_at++;
	}
	systable_endscan_ordered(scan);
	dw_slice_close_both(rel, index);
	DW_INJECT("repair-before-commit");
	return true;
}

/* The job: a slice of a pass over all definitions.  See DwWingJob. */
TimestampTz
dw_recurring_repair(DwDatabase *db)
{
	static Pass pass = {.reached = PG_INT64_MIN};
	Pass		slice = pass;
	TimestampTz next;

	slice.more = false;
	dw_worker_activity(STATE_RUNNING, "delay_wheel: looking whether recurring tasks have their runs");
	if (!dw_slice_do(db, repair_slice, &slice))
	{
		slice = pass;
		slice.more = false;
		slice.any_locked = true;
	}
	dw_worker_progress(slice.looked_at - pass.looked_at);
	pass = slice;
	if (pass.more)
		return PG_INT64_MIN;
	if (pass.brought_forward > 0)
		ereport(LOG,
				(errmsg_plural("%d recurring task of database \"%s\" was rescheduled, since the clock was set back",
							   "%d recurring tasks of database \"%s\" were rescheduled, since the clock was set back",
							   pass.brought_forward, pass.brought_forward, db->name)));
	next = pass.any_locked ? dw_now() + REPAIR_RETRY_US : DW_NEVER;
	pass = (Pass) {.reached = PG_INT64_MIN};
	return next;
}
