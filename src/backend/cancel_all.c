/*-------------------------------------------------------------------------
 *
 * cancel_all.c
 *	  delay_cancel_all(): writes a mark, which cancels many tasks at once.
 *
 * Run by sessions, by executors whose tasks call it, and by apply workers of logical replication.
 *
 * A mark is a row of delay_wheel_data.cancellation with the criteria of the cancelled tasks, whose
 * rows do not change.  task/README.md shows how processes obey marks, until the sweeper has removed
 * the rows of the tasks, and then the mark.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "commands/sequence.h"
#include "storage/lmgr.h"

#include "backend.h"

PG_FUNCTION_INFO_V1(dw_cancel_all);
PG_FUNCTION_INFO_V1(dw_cancellation_guard);

/*
 * Limit for the marks that one role may have.  Each process has all marks in memory, and reads all
 * marks again when a mark was added.
 */
#define MAX_MARKS		10000
/* Time after which a session counts its role's marks again, in microseconds */
#define ALLOWANCE_US	(2 * USECS_PER_SEC)

/*---- Writing a mark ----*/

/* Counts the marks of the current user, including marks of open transactions. */
static int
count_own_marks(void)
{
	Relation	rel = table_open(dw_catalog()->cancellation, AccessShareLock);
	SnapshotData dirty;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			n = 0;

	InitDirtySnapshot(dirty);
	scan = systable_beginscan(rel, InvalidOid, false, &dirty, 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		bool		isnull;
		Datum		made_by = heap_getattr(tuple, Anum_cancellation_made_by, RelationGetDescr(rel), &isnull);

		CHECK_FOR_INTERRUPTS();
		if (!isnull && DatumGetObjectId(made_by) == GetUserId())
			n++;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return n;
}

/*
 * Raises an error if the current user has MAX_MARKS marks already.
 *
 * The session does not count the marks before each new mark.  After a count, it may write a tenth
 * of the remaining marks.  So sessions that count at the same time may exceed the limit, each
 * session by a tenth of the remaining marks.
 */
static void
require_room_for_mark(void)
{
	static struct
	{
		Oid			role;
		int			left;		/* marks that the session may still write */
		int64		until;		/* when to count again, by dw_uptime() */
	}			allowance;
	int64		now = dw_uptime();

	/* superusers have no limit */
	if (superuser())
		return;
	if (allowance.role != GetUserId() || allowance.left == 0 || now >= allowance.until)
	{
		int			left = MAX_MARKS - count_own_marks();

		allowance.left = 0;
		if (left <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("role \"%s\" has reached its limit of cancellations: %d",
							GetUserNameFromId(GetUserId(), false), MAX_MARKS),
					 errdetail("A cancellation counts until the rows of its tasks are removed. Open transactions can delay this."),
					 errhint("The view delay_wheel.cancellations shows these transactions. Cancel more tasks with each call. A whole queue, or all tasks, can always be cancelled.")));
		allowance.role = GetUserId();
		allowance.left = Max(left / 10, 1);
		allowance.until = now + ALLOWANCE_US;
	}
	allowance.left--;
}

/*
 * Sets *roles to an array of the roles whose tasks the current user may cancel now.  Returns false
 * for a superuser, who may cancel the tasks of all roles.  Then the column is null.
 */
static bool
roles_of_user(Datum *roles)
{
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	ArrayBuildState *found = initArrayResult(REGROLEOID, CurrentMemoryContext, false);

	if (superuser())
		return false;
	rel = table_open(AuthIdRelationId, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		Oid			role = ((Form_pg_authid) GETSTRUCT(tuple))->oid;

		CHECK_FOR_INTERRUPTS();
		if (has_privs_of_role(GetUserId(), role))
			(void) accumArrayResult(found, ObjectIdGetDatum(role), false, REGROLEOID,
									CurrentMemoryContext);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	*roles = makeArrayResult(found, CurrentMemoryContext);
	return true;
}

/*
 * Writes a mark and returns its number.  The caller has filled in criteria and owners.  The task
 * table stays locked until the end of the transaction.
 */
static int64
write_mark(Datum *values, bool *nulls)
{
	const DwCatalog *cat = dw_catalog();
	int64		id;

	/*
	 * Lock the table before the number is drawn, as scheduling does.  Then a transaction with a
	 * lower number for a task has this lock until its end.  So the sweeper can find the
	 * transactions that may still insert tasks that the mark cancels.
	 */
	LockRelationOid(cat->task, RowExclusiveLock);
	id = nextval_internal(cat->task_id_seq, false);

	values[Anum_cancellation_id - 1] = Int64GetDatum(id);
	values[Anum_cancellation_origin - 1] = Int64GetDatum(dw_origin_stamp());
	values[Anum_cancellation_made_at - 1] = TimestampTzGetDatum(dw_now());
	values[Anum_cancellation_made_by - 1] = ObjectIdGetDatum(GetUserId());
	values[Anum_cancellation_removed - 1] = Int64GetDatum(0);
	nulls[Anum_cancellation_id - 1] = nulls[Anum_cancellation_origin - 1] =
		nulls[Anum_cancellation_made_at - 1] = nulls[Anum_cancellation_made_by - 1] =
		nulls[Anum_cancellation_removed - 1] = false;
	/* note the change first: an error after the insertion must not leave the row unnoticed */
	dw_touch(DW_CONTROL_CHANGED);
	dw_table_insert(cat->cancellation, values, nulls, Natts_cancellation);
	return id;
}

/* Records a mark in the audit. */
static void
audit_mark(int64 id, const Datum *values, const bool *nulls)
{
	static const AttrNumber times[] = {Anum_cancellation_due_from, Anum_cancellation_due_until};
	static const char *const names[] = {"due_from", "due_until"};
	StringInfoData detail;
	DwAction	action = {
		.what = "cancel_all",
		.task = id,
		.with_queue = !nulls[Anum_cancellation_queue - 1],
		.queue = DatumGetInt16(values[Anum_cancellation_queue - 1])
	};

	if (!nulls[Anum_cancellation_tag - 1])
		action.tag = DatumGetTextPP(values[Anum_cancellation_tag - 1]);
	initStringInfo(&detail);
	for (size_t i = 0; i < lengthof(times); i++)
		if (!nulls[times[i] - 1])
		{
			appendStringInfo(&detail, "%s%s %s", detail.len > 0 ? " " : "", names[i],
							 timestamptz_to_str(DatumGetTimestampTz(values[times[i] - 1])));
			action.detail = detail.data;
		}
	dw_audit_write(&action);
}

/* SQL function delay_cancel_all(); returns the number of the mark. */
Datum
dw_cancel_all(PG_FUNCTION_ARGS)
{
	/* columns of the arguments after the queue */
	static const AttrNumber columns[] = {
		Anum_cancellation_tag, Anum_cancellation_due_from, Anum_cancellation_due_until
	};
	Datum		values[Natts_cancellation] = {0};
	bool		nulls[Natts_cancellation];
	bool		is_stop;
	int64		id;

	dw_require_right();
	if (PG_ARGISNULL(0) && PG_ARGISNULL(1) && PG_ARGISNULL(2) && PG_ARGISNULL(3))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("at least one of queue, tag, due_from and due_until must not be null"),
				 errhint("To cancel all tasks, use due_from => '-infinity'.")));
	if (!PG_ARGISNULL(2) && !PG_ARGISNULL(3) &&
		PG_GETARG_TIMESTAMPTZ(2) >= PG_GETARG_TIMESTAMPTZ(3))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("due_from must be before due_until")));
	/* the tag must be short, since all processes have it in memory */
	if (!PG_ARGISNULL(1))
		dw_option_refuse_long(PG_GETARG_TEXT_PP(1), "tag");
	dw_require_writable("delay_cancel_all()");
	/*
	 * A mark on a whole queue or on all tasks is an emergency stop, which must always work.  Few
	 * such marks can exist, since each mark replaces the committed marks that it covers.
	 */
	is_stop = PG_ARGISNULL(1) &&
		(PG_ARGISNULL(2) || PG_GETARG_TIMESTAMPTZ(2) == DT_NOBEGIN) &&
		(PG_ARGISNULL(3) || PG_GETARG_TIMESTAMPTZ(3) == DT_NOEND);
	if (!is_stop)
		require_room_for_mark();

	memset(nulls, true, sizeof(nulls));
	nulls[Anum_cancellation_owners - 1] = !roles_of_user(&values[Anum_cancellation_owners - 1]);
	if (!PG_ARGISNULL(0))
	{
		values[Anum_cancellation_queue - 1] = Int16GetDatum(dw_queue_named(text_to_cstring(PG_GETARG_TEXT_PP(0))));
		nulls[Anum_cancellation_queue - 1] = false;
	}
	for (size_t i = 0; i < lengthof(columns); i++)
	{
		values[columns[i] - 1] = PG_GETARG_DATUM(i + 1);
		nulls[columns[i] - 1] = PG_ARGISNULL(i + 1);
	}
	id = write_mark(values, nulls);
	if (is_stop)
		dw_marks_supersede(id);
	if (dw_audits(DW_AUDIT_CONTROL))
		audit_mark(id, values, nulls);
	PG_RETURN_INT64(id);
}

/*---- Marks that plain SQL writes ----*/

/* Returns true if the current user may cancel the tasks of all owners in this row of a mark. */
static bool
may_write(TriggerData *trigger, HeapTuple row)
{
	TupleDesc	desc = RelationGetDescr(trigger->tg_relation);
	int			column = SPI_fnumber(desc, "owners");
	bool		isnull;
	Datum		array;
	Datum	   *owners;
	bool	   *nulls;
	int			n;

	if (SPI_gettypeid(desc, column) != REGROLEARRAYOID)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("table \"%s\" has no owners of tasks",
						RelationGetRelationName(trigger->tg_relation))));
	if (superuser())
		return true;
	array = SPI_getbinval(row, desc, column, &isnull);
	if (isnull)
		return false;
	owners = dw_elements(DatumGetArrayTypeP(array), &nulls, &n);
	for (int i = 0; i < n; i++)
		if (nulls[i] || !has_privs_of_role(GetUserId(), DatumGetObjectId(owners[i])))
			return false;
	return true;
}

/*
 * Row trigger on delay_wheel_data.cancellation, fired when plain SQL, a restore, or an apply worker
 * of logical replication writes or deletes a mark.  Raises an error if the current user may not
 * cancel these tasks; otherwise the commit informs all processes.
 */
Datum
dw_cancellation_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = dw_require_trigger(fcinfo, "cancellation_guard", true);
	HeapTuple	row;

	row = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple : trigger->tg_trigtuple;
	if (!may_write(trigger, row) || !may_write(trigger, trigger->tg_trigtuple))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to write a cancellation of tasks of other roles"),
				 errhint("Use delay_cancel_all().")));
	if (!TRIGGER_FIRED_BY_DELETE(trigger->tg_event) && !dw_accept_replicated(trigger, row))
		return PointerGetDatum(NULL);

	/* a restore must succeed even if the server has not preloaded the library */
	if (dw_shared != NULL)
	{
		dw_touch(DW_CONTROL_CHANGED);
		/* the timer may have forgotten tasks that the changed mark no longer cancels */
		if (!TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
			dw_touch(DW_ALL_TOUCHED);
	}
	return PointerGetDatum(row);
}
