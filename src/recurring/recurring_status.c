/*-------------------------------------------------------------------------
 *
 * recurring_status.c
 *	  The function behind the view "recurring_status", which shows recurring tasks with problems.
 *
 * Run by sessions.
 *
 * The view is for monitoring programs that read it every few seconds.  Their role may see the
 * number and due times of other roles' tasks, but no texts.  So the function returns no names, SQL
 * or errors.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/signature.h"
#include "../observe/views.h"
#include "recurring.h"

PG_FUNCTION_INFO_V1(dw_get_recurring);

/* A run is overdue if it was due longer ago than this time, in us. */
#define OVERDUE_US		(60 * USECS_PER_SEC)

/* Returns a time of a definition; DW_NEVER if it is null. */
static TimestampTz
time_of(const DwDefinition *def, AttrNumber column)
{
	return def->nulls[column - 1] ? DW_NEVER : DatumGetTimestampTz(def->values[column - 1]);
}

/*
 * Returns the due time of a run, which is not the ideal time if the run was moved or is tried
 * again.  Returns the ideal time if the table of tasks is locked: a reader of the view must not
 * wait for a command that rewrites the table.
 */
static TimestampTz
due_of_run(int64 task, TimestampTz ideal)
{
	Oid			index = dw_catalog()->task_pkey;
	Relation	rel = dw_open_if_free(dw_catalog()->task);
	TimestampTz due = ideal;
	HeapTuple	tuple;

	if (rel == NULL)
		return ideal;
	if (ConditionalLockRelationOid(index, AccessShareLock))
	{
		tuple = dw_task_find(rel, task, GetActiveSnapshot());
		if (tuple != NULL)
			due = DatumGetTimestampTz(dw_row_column(rel, tuple, Anum_task_due));
		UnlockRelationOid(index, AccessShareLock);
	}
	table_close(rel, AccessShareLock);
	return due;
}

/*
 * Adds a definition to the result.  The last column is the due time of an overdue run, which may be
 * running.
 */
static void
put_definition(FunctionCallInfo fcinfo, const DwDefinition *def)
{
	TimestampTz latest = dw_now() - OVERDUE_US;
	int64		task = dw_definition_number(def, Anum_recurring_task);
	bool		ends = def->nulls[Anum_recurring_next_due - 1];
	TimestampTz ended = time_of(def, Anum_recurring_last_ended);
	TimestampTz due = task == 0 ? DW_NEVER : time_of(def, Anum_recurring_next_due);
	const char *outcome = "";

	if (!def->nulls[Anum_recurring_last_outcome - 1])
		outcome = TextDatumGetCString(def->values[Anum_recurring_last_outcome - 1]);
	if (due < latest)
		due = due_of_run(task, due);
	dw_put_row(fcinfo, DW_ROLE(dw_definition_owner(def)), dw_null_if(task == 0, DW_INT8(task)),
			   /* the last run failed, or an error has ended the runs */
			   DW_BOOL(strcmp(outcome, "failed") == 0 ||
					   (ends && !def->nulls[Anum_recurring_last_error - 1])),
			   DW_BOOL(strcmp(outcome, "skipped") == 0),
			   DW_BOOL(!ends && dw_definition_is_paused(def)),
			   dw_null_if(ended == DW_NEVER, DW_TIME(ended)),
			   dw_null_if(due >= latest, DW_TIME(due)));
}

/*
 * The function behind the view "recurring_status": returns a row for each recurring task of this
 * database that the user may watch, except definitions that came with a copy, and so have no runs
 * here.
 */
Datum
dw_get_recurring(PG_FUNCTION_ARGS)
{
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;

	InitMaterializedSRF(fcinfo, 0);
	dw_require_shared();
	rel = table_open(dw_catalog()->recurring, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		DwDefinition def;

		CHECK_FOR_INTERRUPTS();
		if (!dw_may_watch(DatumGetObjectId(dw_row_column(rel, tuple, Anum_recurring_owner))))
			continue;
		dw_definition_read(rel, tuple, &def);
		if (dw_definition_is_armed(&def))
			put_definition(fcinfo, &def);
		pfree(def.values);
		pfree(def.nulls);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return (Datum) 0;
}
