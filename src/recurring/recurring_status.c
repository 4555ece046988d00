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
#include "access/htup_details.h"
#include "access/table.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/signature.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../observe/views.h"

PG_FUNCTION_INFO_V1(dw_get_recurring);

/* A run is overdue if it was due longer ago than this time, in us. */
#define OVERDUE_US		(60 * USECS_PER_SEC)

/* A recurring task in the result of the function. */
typedef struct Status
{
	Oid			owner;
	int64		task;			/* id of the current run; 0: no run */
	bool		failed;			/* the last run failed, or an error has ended the runs */
	bool		skipped;		/* the last run was skipped, since it was too late */
	bool		paused;
	TimestampTz ended;			/* end of the last run; DW_NEVER: no run */
	TimestampTz due;			/* due time of the current run; DW_NEVER: no run */
} Status;

/* Returns a time of a row; DW_NEVER if it is null. */
static TimestampTz
time_of(const Datum *values, const bool *nulls, AttrNumber column)
{
	return nulls[column - 1] ? DW_NEVER : DatumGetTimestampTz(values[column - 1]);
}

/*
 * Fills in *status from a definition.  Returns false if the current user may not watch tasks of the
 * owner, or if the definition came with a copy, and so has no runs here.
 */
static bool
read_status(Relation rel, HeapTuple tuple, Status *status)
{
	Datum		values[Natts_recurring];
	bool		nulls[Natts_recurring];
	char	   *outcome = NULL;
	bool		ends;

	status->owner = DatumGetObjectId(dw_row_column(rel, tuple, Anum_recurring_owner));
	if (!dw_may_watch(status->owner))
		return false;
	heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
	if (DatumGetInt64(values[Anum_recurring_origin - 1]) != dw_origin_stamp())
		return false;
	if (!nulls[Anum_recurring_last_outcome - 1])
		outcome = TextDatumGetCString(values[Anum_recurring_last_outcome - 1]);
	ends = nulls[Anum_recurring_next_due - 1];
	status->failed = (outcome != NULL && strcmp(outcome, "failed") == 0) ||
		(ends && !nulls[Anum_recurring_last_error - 1]);
	status->skipped = outcome != NULL && strcmp(outcome, "skipped") == 0;
	status->paused = !ends && DatumGetBool(values[Anum_recurring_paused - 1]);
	status->ended = time_of(values, nulls, Anum_recurring_last_ended);
	status->task = nulls[Anum_recurring_task - 1] ? 0 :
		DatumGetInt64(values[Anum_recurring_task - 1]);
	status->due = status->task == 0 ? DW_NEVER : time_of(values, nulls, Anum_recurring_next_due);
	return true;
}

/*
 * Corrects the due time of a run, which is not the ideal time if the run was moved or is tried
 * again.  Does nothing if the table of tasks is locked: a reader of the view must not wait for a
 * command that rewrites the table.
 */
static void
correct_due(Status *status)
{
	Oid			index = dw_catalog()->task_pkey;
	Relation	rel;
	HeapTuple	tuple;
	DwTaskKey	key;

	if (!ConditionalLockRelationOid(dw_catalog()->task, AccessShareLock))
		return;
	rel = table_open(dw_catalog()->task, NoLock);
	if (ConditionalLockRelationOid(index, AccessShareLock))
	{
		tuple = dw_task_find(rel, status->task, GetActiveSnapshot());
		if (tuple != NULL)
		{
			dw_task_key(rel, tuple, &key);
			status->due = key.due;
			heap_freetuple(tuple);
		}
		UnlockRelationOid(index, AccessShareLock);
	}
	table_close(rel, AccessShareLock);
}

/*
 * The function behind the view "recurring_status": returns a row for each recurring task of this
 * database that the user may watch.  The last column is the due time of an overdue run, which may
 * be running.
 */
Datum
dw_get_recurring(PG_FUNCTION_ARGS)
{
	TimestampTz latest = dw_now() - OVERDUE_US;
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;

	InitMaterializedSRF(fcinfo, 0);
	dw_require_shared();
	rel = table_open(dw_catalog()->recurring, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		Status		status;

		CHECK_FOR_INTERRUPTS();
		if (!read_status(rel, tuple, &status))
			continue;
		if (status.due < latest)
			correct_due(&status);
		dw_put_row(fcinfo, DW_ROLE(status.owner), dw_null_if(status.task == 0, DW_INT8(status.task)),
				   DW_BOOL(status.failed), DW_BOOL(status.skipped), DW_BOOL(status.paused),
				   dw_null_if(status.ended == DW_NEVER, DW_TIME(status.ended)),
				   dw_null_if(status.due >= latest, DW_TIME(status.due)));
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return (Datum) 0;
}
