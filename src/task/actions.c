/*-------------------------------------------------------------------------
 *
 * actions.c
 *	  Reports actions of sessions on tasks and queues to wings.
 *
 * Run by sessions, and by executors whose tasks call functions of the extension.
 *
 * Each SQL function that changes something reports the change here, if the setting
 * delay_wheel.audit includes it.  A trigger reports statements of plain SQL that write to the
 * extension's tables.  Runs, retries, next runs of recurring tasks and follow-ups are not actions
 * of sessions, and are not reported.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/rel.h"

#include "../base/signature.h"
#include "../base/wing.h"
#include "task.h"

PG_FUNCTION_INFO_V1(dw_plain_sql);

/* Number of rows of one table that plain SQL has written in this subtransaction so far */
static struct
{
	TransactionId xid;
	Oid			table;
	int64		rows;
}			counted;

/*---- Telling wings ----*/

/*
 * Reports an action to wings.  The caller has no lock of a key, since wings may wait for a lock on
 * a table.  The caller has checked that actions of this kind are recorded.
 */
void
dw_audit_write(const DwAction *action)
{
	dw_each_wing(wing, done)
		wing->done(action);
}

/* Returns a column of a task's row as a text; NULL if it is null. */
static const text *
text_of(const Datum *values, const bool *nulls, AttrNumber column)
{
	return nulls[column - 1] ? NULL : DatumGetTextPP(values[column - 1]);
}

/* Reports an action on the task with these columns.  due may be 0, and detail NULL. */
void
dw_audit_task(const char *what, const Datum *values, const bool *nulls, TimestampTz due,
			  const char *detail)
{
	DwAction	action = {
		.what = what,
		.task = DatumGetInt64(values[Anum_task_id - 1]),
		.owner = DatumGetObjectId(values[Anum_task_owner - 1]),
		.queue = DatumGetInt16(values[Anum_task_queue - 1]),
		.with_queue = true,
		.due = due,
		.key = text_of(values, nulls, Anum_task_key),
		.tag = text_of(values, nulls, Anum_task_tag),
		.detail = detail
	};

	dw_audit_write(&action);
}

/* Reports an action on the task of this row of rel, by dw_audit_task(). */
void
dw_audit_row(const char *what, Relation rel, HeapTuple tuple, TimestampTz due, const char *detail)
{
	Datum	   *values;
	bool	   *nulls;

	dw_deform(rel, tuple, &values, &nulls);
	dw_audit_task(what, values, nulls, due, detail);
}

/*---- Plain SQL ----*/

/*
 * Counts a row that plain SQL is going to write, for dw_plain_sql().  A failed statement leaves a
 * wrong count, but the next statement has another (sub)transaction, and a new count.
 */
void
dw_audit_count(Relation rel)
{
	TransactionId xid = GetCurrentTransactionId();

	if (counted.xid != xid || counted.table != RelationGetRelid(rel))
	{
		counted.xid = xid;
		counted.table = RelationGetRelid(rel);
		counted.rows = 0;
	}
	counted.rows++;
}

/*
 * Statement trigger on the tables of the extension: reports that plain SQL has written to the
 * table.  Also reports the number of rows if the table has a row trigger that counts rows.
 */
Datum
dw_plain_sql(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = dw_require_trigger(fcinfo, "plain_sql", false);
	Relation	rel = trigger->tg_relation;
	DwAction	action = {
		.what = "plain_sql",
		.name = RelationGetRelationName(rel),
		.detail = TRIGGER_FIRED_BY_INSERT(trigger->tg_event) ? "INSERT" :
		TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? "UPDATE" :
		TRIGGER_FIRED_BY_DELETE(trigger->tg_event) ? "DELETE" : "TRUNCATE"
	};

	if (!dw_audits(DW_AUDIT_CONTROL))
		PG_RETURN_POINTER(NULL);
	if (counted.table == RelationGetRelid(rel) && TransactionIdIsValid(counted.xid) &&
		counted.xid == GetCurrentTransactionIdIfAny())
		action.rows = counted.rows;
	counted.xid = InvalidTransactionId;
	dw_audit_write(&action);
	PG_RETURN_POINTER(NULL);
}
