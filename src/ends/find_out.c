/*-------------------------------------------------------------------------
 *
 * find_out.c
 *	  delay_status(): returns the state of a task.
 *
 * Run by sessions, and by executors whose tasks call it.
 *
 * At any isolation level, all tables are read with one new snapshot, since the end of a transaction
 * moves a task from one table (pending, failed, history) to another.
 *
 * A task that the current user may not read is treated like a task that never existed: all tables
 * are searched, without waiting for the task.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../base/errors.h"
#include "../base/signature.h"
#include "../ending/ending.h"
#include "../history/history.h"
#include "ends.h"

PG_FUNCTION_INFO_V1(dw_status_of);

/* The state of a task that the current user may see. */
typedef struct Found
{
	const char *state;			/* NULL: unknown */
	DwOutcome	end;			/* the task's outcome, if it has ended */
	TimestampTz at;				/* time of the end; 0: not known */
	int			attempts;		/* number of runs; -1: not known */
	char	   *sqlstate;		/* the last error, or NULL */
	char	   *message;
} Found;

/* Sets the state of a task that has ended. */
static void
set_end(Found *found, DwOutcome end, TimestampTz at)
{
	found->end = end;
	found->state = dw_outcome_names[end];
	found->at = at;
}

/* Sets the state of a task that runs. */
static void
set_running(Found *found, int64 id)
{
	DwDatabase *db = dw_my_database();

	found->state = "running";
	found->at = db != NULL ? dw_executor_since(db, id) : 0;
}

/* Sets the error of the last attempt from the row, where SQLSTATE and message are one text. */
static void
set_last_error(Found *found, const Datum *values, const bool *nulls)
{
	char	   *error = nulls[Anum_task_more - 1] ? NULL :
		dw_more_text(values, nulls, Anum_task_more, DW_MORE_LAST_ERROR);
	char	   *colon = error != NULL ? strstr(error, ": ") : NULL;

	if (colon == NULL)
		return;
	*colon = '\0';
	found->sqlstate = error;
	found->message = colon + 2;
}

/* Returns true if a new snapshot still sees this version of the task's row. */
static bool
is_there(Relation rel, const DwTaskKey *key)
{
	HeapTuple	tuple = dw_task_find(rel, key->id, NULL);
	ItemPointerData tid = key->tid;

	return tuple != NULL && ItemPointerEquals(&tuple->t_self, &tid);
}

/*
 * Fills in the state from the row of the task.  Returns false if the row has changed meanwhile,
 * which may happen while this session waits for the end of an executor's batch.
 */
static bool
find_in_row(Relation rel, HeapTuple tuple, const DwTaskKey *key, Found *found)
{
	Datum	   *values;
	bool	   *nulls;
	bool		claimed = dw_row_is_claimed(rel, key);

	if (!claimed && !is_there(rel, key))
		return false;
	dw_deform(rel, tuple, &values, &nulls);
	found->attempts = key->attempts + (claimed ? 1 : 0);
	set_last_error(found, values, nulls);
	if (claimed)
		set_running(found, key->id);
	else if (dw_task_is_cancelled(rel, tuple))
	{
		/* the same as the history will show later */
		*found = (Found) {.attempts = -1};
		set_end(found, DW_CANCELLED, 0);
	}
	else if (dw_task_lease_lasts(key))
	{
		found->state = "leased";
		found->at = key->due;
	}
	else if (dw_task_is_superseded(rel, tuple))
	{
		/* it is not a failed task yet, but will never run */
		set_end(found, DW_FAILED, 0);
		found->sqlstate = pstrdup(unpack_sql_state(DW_ERRCODE_SUPERSEDED));
		found->message = DW_SUPERSEDED_MESSAGE;
	}
	else
	{
		found->state = "pending";
		found->at = nulls[Anum_task_first_due - 1] ? key->due :
			DatumGetTimestampTz(values[Anum_task_first_due - 1]);
	}
	return true;
}

/* Fills in the state from the failed tasks; returns false if the task is not a failed task. */
static bool
find_in_failed(Relation rel, int64 id, Snapshot snapshot, Found *found)
{
	ListCell   *lc;

	/* the last row is the last failure */
	foreach(lc, dw_failed_rows(rel, id, snapshot))
	{
		HeapTuple	tuple = (HeapTuple) lfirst(lc);
		bool		isnull;
		Datum		attempts;

		if (!dw_may_read(DatumGetObjectId(dw_row_column(rel, tuple, Anum_failed_owner))))
			continue;
		set_end(found, DW_FAILED,
				DatumGetTimestampTz(dw_row_column(rel, tuple, Anum_failed_failed_at)));
		attempts = heap_getattr(tuple, Anum_failed_attempts, RelationGetDescr(rel), &isnull);
		found->attempts = isnull ? -1 : DatumGetInt16(attempts);
		found->sqlstate = dw_row_text(rel, tuple, Anum_failed_sqlstate);
		found->message = dw_row_text(rel, tuple, Anum_failed_message);
	}
	return found->state != NULL;
}

/* Fills in the state from the history. */
static void
find_in_history(int64 id, Snapshot snapshot, Found *found)
{
	DwHistoryEnd end;

	dw_history_find(id, snapshot, &end);
	if (end.outcome != DW_NOT_ENDED)
		set_end(found, end.outcome, end.ended);
	if (end.attempt > 0)
		found->attempts = end.attempt;
	found->sqlstate = end.sqlstate;
	found->message = end.message;
}

/* Searches all tables once; returns false if they must be searched again. */
static bool
find_once(int64 id, Found *found)
{
	uint32		ended = dw_autonomous_ended();
	/* opened before the snapshot is taken: an older snapshot sees no row in a rewritten table */
	Relation	rel = table_open(dw_catalog()->task, AccessShareLock);
	Relation	failed = table_open(dw_catalog()->failed, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	HeapTuple	tuple = dw_task_find(rel, id, snapshot);
	DwTaskKey	key;
	Oid			owner;
	bool		certain = true;

	*found = (Found) {.attempts = -1};
	if (tuple != NULL)
		dw_task_key(rel, tuple, &key);
	if (tuple != NULL && dw_may_read(key.owner))
		certain = find_in_row(rel, tuple, &key, found);
	else if ((dw_executor_runs_autonomous(id, &owner) && dw_may_read(owner)) ||
			 (OidIsValid(owner = dw_owner_of_task_here(id)) && dw_may_read(owner)))
		/* the row is gone, or this transaction runs the task and has deleted the row */
		set_running(found, id);
	else
	{
		/* a task that runs outside of a transaction has a row of failed_task until its end */
		if (!find_in_failed(failed, id, snapshot, found))
			find_in_history(id, snapshot, found);
		certain = ended == dw_autonomous_ended();
	}
	UnregisterSnapshot(snapshot);
	table_close(failed, AccessShareLock);
	table_close(rel, AccessShareLock);
	return certain;
}

/* Finds the state of a task. */
static void
find_out(int64 id, Found *found)
{
	dw_require_shared();
	while (!find_once(id, found))
		CHECK_FOR_INTERRUPTS();
}

/*
 * Returns the name of the outcome (see dw_outcome_names) of a task that has ended; NULL if it has
 * not ended, or if the end is not known.
 */
const char *
dw_outcome_if_ended(int64 id)
{
	Found		found;

	find_out(id, &found);
	return dw_outcome_names[found.end];
}

/* SQL function delay_status(): returns a row. */
Datum
dw_status_of(PG_FUNCTION_ARGS)
{
	Found		found;

	dw_require_right();
	dw_refuse_null(PG_ARGISNULL(0), "task id");
	find_out(PG_GETARG_INT64(0), &found);

	const DwColumn row[] = {
		dw_text_or_null(found.state != NULL ? found.state : "unknown"),
		dw_null_if(found.at == 0, DW_TIME(found.at)),
		dw_null_if(found.attempts < 0, DW_INT4(found.attempts)),
		dw_text_or_null(found.sqlstate), dw_text_or_null(found.message)
	};

	return dw_make_row(fcinfo, row, lengthof(row));
}
