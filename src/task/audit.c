/*-------------------------------------------------------------------------
 *
 * audit.c
 *	  The audit: who has done what to tasks and queues.
 *
 * Run by sessions, and by executors whose tasks call functions of the extension.
 *
 * Each SQL function that changes something writes a row of delay_wheel_data.audit, if the
 * setting delay_wheel.audit says so, in the transaction of its caller.  So the rows are those of
 * what has taken effect: what is rolled back leaves none.  What executors do by themselves is no
 * action: runs, repetitions, the next run of a recurring task, what follows a task.
 *
 * A row is written with the functions of the heap, whatever rights the caller has, and no role
 * but the owner of the table can write one by SQL (dw_history_guard()).  Statements of plain SQL
 * that write to the extension's tables, this one included, leave a row by a trigger.
 *
 * The sweeper removes rows that are old (sweeper/aged_rows.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup.h"
#include "access/xact.h"
#include "commands/sequence.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/rel.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/signature.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "task.h"

PG_FUNCTION_INFO_V1(dw_plain_sql);

/* Limit of texts in a row, in bytes */
#define MAX_TEXT	1000

/* The rows of one table that plain SQL has written in this subtransaction, so far */
static struct
{
	TransactionId xid;
	Oid			table;
	int64		rows;
}			counted;

/*---- Rows ----*/

/* A row that is being made. */
typedef struct Row
{
	Datum		values[Natts_audit];
	bool		nulls[Natts_audit];
} Row;

static void
put(Row *row, AttrNumber column, Datum value)
{
	row->values[column - 1] = value;
	row->nulls[column - 1] = false;
}

/* Sets a column to the first bytes of a text; leaves it null if the text is NULL. */
static void
put_text(Row *row, AttrNumber column, const char *text)
{
	if (text != NULL)
		put(row, column, dw_clipped_text(text, strlen(text), MAX_TEXT));
}

/*
 * The role that this session has connected as, whatever SET ROLE and SET SESSION AUTHORIZATION
 * say.  An executor may be connected as another role than that of its tasks.
 */
static Oid
login_role(void)
{
	return dw_this_executor != NULL ? dw_this_executor->owner : GetAuthenticatedUserId();
}

/* Sets the columns about the session. */
static void
set_session(Row *row)
{
	LOCAL_FCINFO(call, 0);
	Datum		address;

	put_text(row, Anum_audit_login_role, GetUserNameFromId(login_role(), true));
	put_text(row, Anum_audit_role, GetUserNameFromId(GetUserId(), true));
	put(row, Anum_audit_pid, Int32GetDatum(MyProcPid));
	if (application_name != NULL && application_name[0] != '\0')
		put_text(row, Anum_audit_application_name, application_name);
	/* null for a connection by a Unix socket, and in a background worker */
	InitFunctionCallInfoData(*call, NULL, 0, InvalidOid, NULL, NULL);
	address = inet_client_addr(call);
	if (!call->isnull)
		put(row, Anum_audit_client_addr, DirectFunctionCall1(network_host, address));
}

/*
 * Writes a row.  Not to be called under the lock of a key: it may wait for a lock on the table.
 * The caller has seen that actions of this kind are recorded.
 */
void
dw_audit_write(const DwAction *action)
{
	DwDatabase *db = dw_my_database();
	Row			row;

	memset(row.nulls, true, sizeof(row.nulls));
	put(&row, Anum_audit_id, Int64GetDatum(nextval_internal(dw_catalog()->audit_id_seq, false)));
	put(&row, Anum_audit_at, TimestampTzGetDatum(dw_now()));
	put(&row, Anum_audit_owner,
		ObjectIdGetDatum(OidIsValid(action->owner) ? action->owner : GetUserId()));
	put_text(&row, Anum_audit_action, action->what);
	if (action->task != 0)
		put(&row, Anum_audit_task, Int64GetDatum(action->task));
	if (action->with_queue)
		put(&row, Anum_audit_queue, Int16GetDatum(action->queue));
	if (action->due != 0)
		put(&row, Anum_audit_due, TimestampTzGetDatum(action->due));
	if (action->rows != 0)
		put(&row, Anum_audit_rows, Int64GetDatum(action->rows));
	if (action->key != NULL)
		put(&row, Anum_audit_key, PointerGetDatum(action->key));
	if (action->tag != NULL)
		put(&row, Anum_audit_tag, PointerGetDatum(action->tag));
	put_text(&row, Anum_audit_name, action->name);
	put_text(&row, Anum_audit_detail, action->detail);
	set_session(&row);
	dw_audit_insert(row.values, row.nulls);
	if (db != NULL && dw_audit_max_age >= 0)
		dw_ask_sweeper(db, DW_JOB_AUDIT,
					   Max(dw_time_add(dw_now(), dw_audit_max_age * USECS_PER_MINUTE),
						   dw_job_soonest(&db->sweeper_news, DW_JOB_AUDIT)));
}

/* Returns a column of a task's row as a text; NULL if it is null. */
static const text *
text_of(const Datum *values, const bool *nulls, AttrNumber column)
{
	return nulls[column - 1] ? NULL : DatumGetTextPP(values[column - 1]);
}

/* Writes a row about a task, whose columns are given; due may be 0, and the detail NULL. */
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

/* As dw_audit_task(), for a task whose row (of rel) is given. */
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
 * Counts a row that plain SQL is going to write, for dw_plain_sql().  A statement that fails
 * leaves a count behind; the next one belongs to another (sub)transaction then.
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
 * Statement trigger on the tables of the extension: plain SQL has written to one.  The number
 * of rows is known where a row trigger counts them.
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
