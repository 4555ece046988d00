/*-------------------------------------------------------------------------
 *
 * retry.c
 *	  SQL functions that put failed tasks back, or discard them.
 *
 * Run by sessions, and by executors whose tasks call these functions.
 *
 * A task may have several rows in delay_wheel_data.failed_task, since it may have failed, been put
 * back, and failed again.  A session first locks the newest of these rows, so only one session puts
 * the task back or discards it.  Under this lock, with new snapshots at any isolation level, it
 * checks that the task can be put back, as for pending tasks (ending/pending.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "../base/errors.h"
#include "../base/wing.h"
#include "../ending/ending.h"

PG_FUNCTION_INFO_V1(dw_retry);
PG_FUNCTION_INFO_V1(dw_retry_all);
PG_FUNCTION_INFO_V1(dw_discard);
PG_FUNCTION_INFO_V1(dw_discard_all);

/* Result for a task that the call wants to put back, or to discard */
typedef enum Outcome
{
	DEALT_WITH,					/* the task was put back, or discarded */
	NOT_THERE,					/* the task is not, or no longer, a failed task */
	IS_PENDING,					/* the task is already pending */
	IS_RUNNING,					/* the task is running */
	IS_LOCKED,					/* an open transaction changes the failed row */
	KEY_IS_PENDING,				/* another task with its key is pending or running */
	WRONG_KIND,					/* the queue is now for messages only, or for SQL tasks only */
	NO_QUEUE,					/* the task's queue no longer exists */
	NO_OWNER					/* the task's owner no longer exists */
} Outcome;

/* State of a call of one of the functions */
typedef struct Retrying
{
	bool		discards;		/* true: discard tasks; false: put them back */
	Relation	failed;			/* delay_wheel_data.failed_task */
	Relation	task;			/* delay_wheel_data.task */
} Retrying;

/* A row of delay_wheel_data.failed_task */
typedef struct FailedRow
{
	HeapTuple	tuple;
	Datum		values[Natts_task]; /* columns of the task that is put back */
	bool		nulls[Natts_task];
	int64		id;
	Oid			owner;
	int16		queue;
	int16		priority;
} FailedRow;

/* Criteria of delay_retry_all() and delay_discard_all() */
typedef struct Filter
{
	int			queue;			/* -1: any */
	text	   *tag;			/* NULL: any */
	text	   *sqlstate;		/* NULL: any */
	TimestampTz from;			/* lower limit of the time of failure, inclusive */
	TimestampTz until;			/* upper limit of the time of failure, exclusive */
} Filter;

/* Opens the tables.  Their locks stay until the end of the transaction. */
static void
begin_retrying(Retrying *retrying, bool discards)
{
	retrying->discards = discards;
	retrying->failed = table_open(dw_catalog()->failed, RowExclusiveLock);
	/*
	 * Lock the task table before marks of delay_cancel_all() are read: the sweeper keeps a mark
	 * while a transaction with this lock may still commit tasks (sweeper/sweep.c).
	 */
	retrying->task = table_open(dw_catalog()->task, RowExclusiveLock);
}

/* Closes the tables. */
static void
end_retrying(Retrying *retrying)
{
	table_close(retrying->task, NoLock);
	table_close(retrying->failed, NoLock);
}

/*
 * Returns DEALT_WITH if owner, queue and id allow the task to be put back, otherwise the reason.
 * Locks the queue against a drop.
 */
static Outcome
judge(const Retrying *retrying, const FailedRow *row)
{
	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(row->owner)))
		return NO_OWNER;
	if (!dw_queue_keep(row->queue))
		return NO_QUEUE;
	if (dw_queue_is_external(dw_my_database(), row->queue) != row->nulls[Anum_task_sql - 1])
		return WRONG_KIND;
	return dw_task_find(retrying->task, row->id, NULL) != NULL ? IS_PENDING : DEALT_WITH;
}

/*---- Putting back and discarding ----*/

/* Reads a row of failed_task, which must live as long as *row. */
static void
read_failed_row(Relation rel, HeapTuple tuple, FailedRow *row)
{
	Datum	   *values;
	bool	   *nulls;

	row->tuple = tuple;
	dw_deform(rel, tuple, &values, &nulls);
	dw_task_from_failed(values, nulls, row->values, row->nulls);
	row->id = DatumGetInt64(row->values[Anum_task_id - 1]);
	row->owner = DatumGetObjectId(row->values[Anum_task_owner - 1]);
	row->queue = DatumGetInt16(row->values[Anum_task_queue - 1]);
	row->priority = DatumGetInt16(row->values[Anum_task_priority - 1]);
}

/*
 * Deletes the failed rows of a task.  Rows of other owners with the same id, which only plain SQL
 * can have written, stay.
 */
static void
delete_failed_rows(const Retrying *retrying, const FailedRow *row, List *rows)
{
	ListCell   *lc;

	foreach(lc, rows)
	{
		HeapTuple	tuple = lfirst(lc);
		Oid			owner = DatumGetObjectId(dw_row_column(retrying->failed, tuple, Anum_failed_owner));

		if (owner == row->owner)
			(void) dw_heap_delete(retrying->failed, &tuple->t_self, true);
	}
	CommandCounterIncrement();
}

/*
 * Puts a task back, and deletes its failed rows.  The task starts again: it is due at once, without
 * attempts and crashes.
 *
 * Returns KEY_IS_PENDING if another task has its key, or, unless wait is true, if another
 * transaction is changing the key.  A task with a key is inserted under the lock of the key.  Under
 * this lock the process must not wait, so it finds the lane first.
 */
static Outcome
put_rows_back(Retrying *retrying, FailedRow *row, List *rows, bool wait)
{
	DwHint		hint = {
		.id = row->id,
		.due = GetCurrentTransactionStartTimestamp(),
		.lane = dw_require_lane(row->owner, row->queue, row->priority)
	};
	bool		has_key = !row->nulls[Anum_task_key - 1];

	if (has_key)
	{
		DwKey		key = dw_key_of_values(row->values);

		if (!dw_key_enter_again(retrying->task, &key, row->id, wait))
			return KEY_IS_PENDING;
	}
	if (dw_max_pending >= 0)
		dw_require_room(row->owner);
	row->values[Anum_task_due - 1] = TimestampTzGetDatum(hint.due);
	row->values[Anum_task_origin - 1] = Int64GetDatum(dw_origin_stamp());
	dw_writes_for(row->owner);
	dw_marks_spare(row->values, row->nulls);
	/* if the server was stopped just when the task failed, its crashes may still be counted */
	dw_crashes_end(MyDatabaseId, row->id, 0);
	hint.tid = dw_task_insert(retrying->task, row->values, row->nulls);
	dw_touch_row(&hint, DW_TOUCH_WRITTEN);
	if (has_key)
		dw_key_leave();
	if (!row->nulls[Anum_task_more - 1])
		dw_each_wing(wing, task_put_back)
			wing->task_put_back(row->values, row->nulls);
	delete_failed_rows(retrying, row, rows);
	return DEALT_WITH;
}

/*
 * Puts a task back by its newest failed row, or discards the task.  Deletes all failed rows with
 * this id and owner.  Sets *row to the newest failed row, unless it returns NOT_THERE.  Raises an
 * error if the current user lacks the owner's rights.
 *
 * tid: given by a call for many tasks.  Then returns NOT_THERE unless tid is the newest failed row,
 * and does not wait for locks, since one locked row must not delay all other tasks.  So calls for
 * many tasks cannot deadlock.
 */
static Outcome
deal_with(Retrying *retrying, int64 id, ItemPointer tid, FailedRow *row)
{
	for (;;)
	{
		List	   *rows = dw_failed_rows(retrying->failed, id, NULL);
		TM_Result	result;
		Outcome		outcome;
		Oid			owner;

		CHECK_FOR_INTERRUPTS();
		if (rows == NIL)
			return NOT_THERE;
		read_failed_row(retrying->failed, llast(rows), row);
		if (tid != NULL && !ItemPointerEquals(tid, &row->tuple->t_self))
			return NOT_THERE;
		if (!has_privs_of_role(GetUserId(), row->owner))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied for task %lld", (long long) id),
					 retrying->discards ?
					 errdetail("Only members of the role that scheduled the task, and superusers, may discard it.") :
					 errdetail("Only members of the role that scheduled the task, and superusers, may put it back.")));

		/*
		 * While a task in mode at_most_once runs, it has a failed row, which is for a crash of the
		 * server.  The executor deletes this row later, so do not lock it.
		 */
		if (dw_executor_runs_autonomous(id, &owner))
			return IS_RUNNING;
		result = dw_row_lock(retrying->failed, row->tuple->t_self, LockTupleExclusive,
							 tid == NULL ? LockWaitBlock : LockWaitSkip);
		if (result == TM_WouldBlock)
			return IS_LOCKED;
		/* plain SQL in the command that calls this function has deleted the row */
		if (result == TM_SelfModified)
			return NOT_THERE;
		/* another transaction has changed the row: look again */
		if (result != TM_Ok)
			continue;
		if (retrying->discards)
		{
			delete_failed_rows(retrying, row, rows);
			return DEALT_WITH;
		}
		outcome = judge(retrying, row);
		if (outcome == DEALT_WITH)
			outcome = put_rows_back(retrying, row, rows, tid == NULL);
		return outcome;
	}
}

/* Raises the error for a task that cannot be put back or discarded. */
static void
refuse(Outcome why, const FailedRow *row)
{
	if (why == NO_OWNER)
		dw_require_role(row->owner);
	if (why == NO_QUEUE)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the queue of task %lld does not exist any more", (long long) row->id),
				 errhint("Schedule the task anew, in another queue.")));
	if (why == WRONG_KIND)
		dw_queue_require_kind(dw_queue_name_of(row->queue), !row->nulls[Anum_task_sql - 1],
							  row->nulls[Anum_task_sql - 1]);
	if (why == KEY_IS_PENDING)
		ereport(ERROR,
				(errcode(ERRCODE_UNIQUE_VIOLATION),
				 errmsg("another task of key \"%s\" is pending or running",
						TextDatumGetCString(row->values[Anum_task_key - 1])),
				 errhint("Wait until the other task has run, or cancel it.")));
	if (why == IS_RUNNING)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("task %lld is running", (long long) row->id)));
	ereport(ERROR,
			(errcode(ERRCODE_UNIQUE_VIOLATION),
			 errmsg("task %lld is pending", (long long) row->id)));
}

/* Does the work of delay_retry() and delay_discard(). */
static Datum
deal_with_one(FunctionCallInfo fcinfo, const char *function, bool discards)
{
	Retrying	retrying;
	FailedRow	row;
	Outcome		outcome;

	dw_require_right_to_write(function);
	dw_refuse_null(PG_ARGISNULL(0), "task id");
	begin_retrying(&retrying, discards);
	outcome = deal_with(&retrying, PG_GETARG_INT64(0), NULL, &row);
	if (outcome != DEALT_WITH && outcome != NOT_THERE)
		refuse(outcome, &row);
	if (outcome == DEALT_WITH && dw_audits(DW_AUDIT_CONTROL))
		dw_audit_task(discards ? "discard" : "retry", row.values, row.nulls, 0, NULL);
	end_retrying(&retrying);
	PG_RETURN_TEXT_P(cstring_to_text(outcome == NOT_THERE ? "gone" : discards ? "discarded" : "retried"));
}

/* SQL function delay_retry(): puts a failed task back.  Returns "gone" if there is no such task. */
Datum
dw_retry(PG_FUNCTION_ARGS)
{
	return deal_with_one(fcinfo, "delay_retry()", false);
}

/*
 * SQL function delay_discard(): discards a failed task.  Returns "gone" if there is no such task.
 */
Datum
dw_discard(PG_FUNCTION_ARGS)
{
	return deal_with_one(fcinfo, "delay_discard()", true);
}

/*---- Many tasks at once ----*/

/* Reads the criteria from the first five arguments. */
static void
read_filter(FunctionCallInfo fcinfo, Filter *filter)
{
	filter->queue = -1;
	if (!PG_ARGISNULL(0))
		filter->queue = dw_queue_named(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	filter->tag = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	filter->sqlstate = PG_ARGISNULL(2) ? NULL : PG_GETARG_TEXT_PP(2);
	if (filter->sqlstate != NULL)
	{
		char	   *sqlstate = text_to_cstring(filter->sqlstate);

		if (strlen(sqlstate) != 5 ||
			strspn(sqlstate, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != 5)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid SQLSTATE: \"%s\"", sqlstate),
					 errhint("An SQLSTATE consists of five digits and upper-case letters.")));
	}
	filter->from = PG_ARGISNULL(3) ? DT_NOBEGIN : PG_GETARG_TIMESTAMPTZ(3);
	filter->until = PG_ARGISNULL(4) ? DT_NOEND : PG_GETARG_TIMESTAMPTZ(4);
}

/* Returns true if a column has the wanted text, or if wanted is NULL. */
static bool
same_text(Relation rel, HeapTuple tuple, AttrNumber column, const text *wanted)
{
	bool		isnull;
	Datum		value;

	if (wanted == NULL)
		return true;
	value = heap_getattr(tuple, column, RelationGetDescr(rel), &isnull);
	return !isnull &&
		DatumGetBool(DirectFunctionCall2Coll(texteq, DEFAULT_COLLATION_OID, value,
											 PointerGetDatum(wanted)));
}

/*
 * Returns true if the current user has the rights of the failed row's owner, and the row matches
 * the filter.  The scan checks the times.
 */
static bool
matches_filter(Relation rel, HeapTuple tuple, const Filter *filter)
{
	Oid			owner = DatumGetObjectId(dw_row_column(rel, tuple, Anum_failed_owner));
	int			queue = DatumGetInt16(dw_row_column(rel, tuple, Anum_failed_queue));

	/* check rights first, since the time of comparisons would reveal rows of other roles */
	return has_privs_of_role(GetUserId(), owner) &&
		(filter->queue < 0 || filter->queue == queue) &&
		same_text(rel, tuple, Anum_failed_tag, filter->tag) &&
		same_text(rel, tuple, Anum_failed_sqlstate, filter->sqlstate);
}

/* Records that many failed tasks were put back, or discarded. */
static void
audit_many(const Filter *filter, int64 n, bool discards)
{
	StringInfoData detail;
	DwAction	action = {
		.what = discards ? "discard_all" : "retry_all",
		.rows = n,
		.queue = filter->queue,
		.with_queue = filter->queue >= 0,
		.tag = filter->tag
	};

	initStringInfo(&detail);
	if (filter->sqlstate != NULL)
		appendStringInfo(&detail, "sqlstate %s ", text_to_cstring(filter->sqlstate));
	if (filter->from != DT_NOBEGIN)
		appendStringInfo(&detail, "failed_from %s ", timestamptz_to_str(filter->from));
	if (filter->until != DT_NOEND)
		appendStringInfo(&detail, "failed_until %s ", timestamptz_to_str(filter->until));
	if (detail.len > 0)
	{
		detail.data[detail.len - 1] = '\0';
		action.detail = detail.data;
	}
	dw_audit_write(&action);
}

/*
 * Does the work of delay_retry_all() and delay_discard_all(): puts back or discards failed tasks
 * that match the filter, beginning with the earliest failure.  Returns the number of these tasks.
 * Sets *left to the number of matching tasks that could not be put back or discarded.
 */
static int64
deal_with_many(FunctionCallInfo fcinfo, const char *function, bool discards, int64 *left)
{
	MemoryContext outer = CurrentMemoryContext;
	MemoryContext row_context;
	Filter		filter;
	int64		max = PG_ARGISNULL(5) ? PG_INT64_MAX : PG_GETARG_INT32(5);
	Retrying	retrying;
	Snapshot	snapshot;
	DwRowScan *scan;
	HeapTuple	tuple;
	TimestampTz failed_at;
	int64		id;
	int64		done = 0;

	dw_require_right_to_write(function);
	read_filter(fcinfo, &filter);
	if (max < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of tasks must not be negative")));

	*left = 0;
	row_context = AllocSetContextCreate(outer, "delay_wheel failed", ALLOCSET_DEFAULT_SIZES);
	begin_retrying(&retrying, discards);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = dw_failed_scan_begin(retrying.failed, ForwardScanDirection, filter.from,
								PG_INT64_MIN, snapshot);
	while (done < max && (tuple = dw_failed_scan_next(scan, &failed_at, &id)) != NULL)
	{
		FailedRow	row;

		CHECK_FOR_INTERRUPTS();
		if (failed_at >= filter.until && filter.until != DT_NOEND)
			break;
		MemoryContextSwitchTo(row_context);
		if (matches_filter(retrying.failed, tuple, &filter))
		{
			Outcome		outcome = deal_with(&retrying, id, &tuple->t_self, &row);

			if (outcome == DEALT_WITH)
				done++;
			else if (outcome != NOT_THERE)
				(*left)++;
		}
		MemoryContextSwitchTo(outer);
		MemoryContextReset(row_context);
	}
	dw_row_scan_end(scan);
	UnregisterSnapshot(snapshot);
	if (done > 0 && dw_audits(DW_AUDIT_CONTROL))
		audit_many(&filter, done, discards);
	end_retrying(&retrying);
	MemoryContextDelete(row_context);
	return done;
}

/* SQL function delay_retry_all(): puts many failed tasks back.  Returns the number of tasks. */
Datum
dw_retry_all(PG_FUNCTION_ARGS)
{
	int64		left;
	int64		done = deal_with_many(fcinfo, "delay_retry_all()", false, &left);

	if (left > 0)
		ereport(NOTICE,
				(errmsg_plural("%lld failed task that matches cannot be put back",
							   "%lld failed tasks that match cannot be put back",
							   left, (long long) left),
				 errhint("Call %s for one of them: it raises the error, or waits for the transaction that changes the task.",
						 "delay_retry()")));
	PG_RETURN_INT64(done);
}

/*
 * SQL function delay_discard_all().  Returns the number of discarded tasks.  Silently skips tasks
 * that are running, or whose failed rows another transaction changes.
 */
Datum
dw_discard_all(PG_FUNCTION_ARGS)
{
	int64		left;

	PG_RETURN_INT64(deal_with_many(fcinfo, "delay_discard_all()", true, &left));
}
