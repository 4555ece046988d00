/*-------------------------------------------------------------------------
 *
 * audit.c
 *	  The audit: records of actions of roles on tasks and queues.
 *
 * Run by sessions, and by executors whose tasks call functions of the extension.  The sweeper
 * removes old rows.
 *
 * A row is written in the transaction of the action, so an action that is rolled back leaves no
 * row.  The row is written without SQL, so the caller needs no rights on the table.  Only the owner
 * of the table can write rows by SQL (dw_history_guard()).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/sequence.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"

#include "../base/compat.h"
#include "../sweeper/sweeper.h"
#include "history.h"

/* Limit of texts in a row, in bytes */
#define MAX_TEXT	1000

/* A new row. */
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

/* Sets a column to the first bytes of a text.  Leaves it null if the text is NULL. */
static void
put_text(Row *row, AttrNumber column, const char *text)
{
	if (text != NULL)
		put(row, column, dw_clipped_text(text, strlen(text), MAX_TEXT));
}

/*
 * Returns the role that has logged in, even after SET ROLE and SET SESSION AUTHORIZATION.  An
 * executor may be connected as a role that is not the owner of its tasks.
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

/* Writes a row. */
void
dw_audit_record(const DwAction *action)
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
	dw_table_insert(dw_catalog()->audit, row.values, row.nulls, Natts_audit);
	if (db != NULL && dw_audit_max_age >= 0)
		dw_ask_sweeper(db, DW_JOB_AUDIT,
					   Max(dw_time_add(dw_now(), dw_audit_max_age * USECS_PER_MINUTE),
						   dw_job_soonest(&db->sweeper_news, DW_JOB_AUDIT)));
}

/*---- Old rows ----*/

/* Removes old rows of the audit.  The result is as for dw_aged_remove(). */
TimestampTz
dw_audit_trim(DwDatabase *db)
{
	static DwAged audit = {
		DW_JOB_AUDIT, offsetof(DwCatalog, audit), offsetof(DwCatalog, audit_pkey),
		Anum_audit_at, DT_NOBEGIN
	};

	if (dw_audit_max_age < 0)
		return DW_NEVER;
	return dw_aged_remove(db, &audit, dw_audit_max_age * USECS_PER_MINUTE);
}
