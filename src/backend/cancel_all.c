/*-------------------------------------------------------------------------
 *
 * cancel_all.c
 *	  delay_cancel_all(): its marks are written, and shown.
 *
 * Run by backends, by executors whose tasks call it, and by apply workers of
 * logical replication.  What a mark does is in marks.c; how its tasks are
 * removed in sweep.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "../base/clock.h"
#include "../base/signature.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/shared.h"
#include "../task/marks.h"
#include "../task/queues.h"
#include "../task/touched.h"
#include "options.h"

PG_FUNCTION_INFO_V1(dw_cancel_all);
PG_FUNCTION_INFO_V1(dw_cancellation_guard);

/*
 * So many may one role have whose rows are not removed yet.  Each process keeps
 * them in memory, and reads them again when one has come.
 */
#define MAX_MARKS		10000
/* They are counted again after this long. */
#define ALLOWANCE_US	(2 * USECS_PER_SEC)

/*---- Writing ----*/

/* Those that the current user has made, also in transactions that are open. */
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
 * Sessions that count at once may together exceed the limit by a tenth of what
 * was left, for each of them.
 */
static void
require_room_for_mark(void)
{
	static struct
	{
		Oid			role;
		int			left;
		int64		until;		/* by dw_uptime() */
	}			allowance;
	int64		now = dw_uptime();

	/* nobody bounds those who may do anything */
	if (superuser())
		return;
	if (allowance.role != GetUserId() || allowance.left == 0 || now >= allowance.until)
	{
		int			left = MAX_MARKS - count_own_marks();

		allowance.left = 0;
		if (left <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("role \"%s\" has as many cancellations as it may have: %d",
							GetUserNameFromId(GetUserId(), false), MAX_MARKS),
					 errdetail("They count until the rows of their tasks are removed, which may have to wait for the end of transactions."),
					 errhint("View delay_wheel.cancellations shows for which. Cancel more tasks by one call; that of a whole queue, or of all tasks, is always possible.")));
		allowance.role = GetUserId();
		allowance.left = Max(left / 10, 1);
		allowance.until = now + ALLOWANCE_US;
	}
	allowance.left--;
}

/*
 * The roles whose tasks the current user may cancel, as of now.  A superuser
 * may cancel all: null.
 */
static bool
roles_of_user(Datum *roles)
{
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	Datum	   *found;
	int			n = 0;
	int			size = 16;

	if (superuser())
		return false;
	found = palloc(size * sizeof(Datum));
	rel = table_open(AuthIdRelationId, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		Oid			role = ((Form_pg_authid) GETSTRUCT(tuple))->oid;

		CHECK_FOR_INTERRUPTS();
		if (!has_privs_of_role(GetUserId(), role))
			continue;
		if (n == size)
			found = repalloc(found, (size *= 2) * sizeof(Datum));
		found[n++] = ObjectIdGetDatum(role);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	*roles = PointerGetDatum(construct_array(found, n, REGROLEOID, sizeof(Oid), true, TYPALIGN_INT));
	return true;
}

/* Writes the mark; its number is drawn when the task table is locked. */
static int64
write_mark(Datum *values, bool *nulls)
{
	const DwCatalog *cat = dw_catalog();
	int64		id;

	/*
	 * In the order in which schedule() takes them.  Who has drawn a lower
	 * number holds this lock, too, until the end of its transaction: that is
	 * how the sweeper finds out whose tasks are still to come.
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
	/* before the row is there: an error in between must not leave it unseen */
	dw_marks_touched();
	dw_cancellation_insert(values, nulls);
	return id;
}

Datum
dw_cancel_all(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {TEXTOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID};
	Datum		values[Natts_cancellation] = {0};
	bool		nulls[Natts_cancellation];
	bool		is_stop;
	int64		id;

	dw_require_signature(fcinfo, INT8OID, lengthof(types), types);
	if (PG_ARGISNULL(0) && PG_ARGISNULL(1) && PG_ARGISNULL(2) && PG_ARGISNULL(3))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("one of queue, tag, due_from and due_until must not be null"),
				 errhint("To cancel all tasks, use due_from => '-infinity'.")));
	if (!PG_ARGISNULL(2) && !PG_ARGISNULL(3) &&
		PG_GETARG_TIMESTAMPTZ(2) >= PG_GETARG_TIMESTAMPTZ(3))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("due_from must be before due_until")));
	/* all processes keep it in memory */
	if (!PG_ARGISNULL(1))
		dw_option_refuse_long(PG_GETARG_TEXT_PP(1), "tag");
	dw_require_writable("delay_cancel_all()");
	/*
	 * An emergency stop always works.  These cannot become many, since each takes
	 * the place of those that it covers, but of what is not committed yet.
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
	values[Anum_cancellation_tag - 1] = PG_GETARG_DATUM(1);
	nulls[Anum_cancellation_tag - 1] = PG_ARGISNULL(1);
	values[Anum_cancellation_due_from - 1] = PG_GETARG_DATUM(2);
	nulls[Anum_cancellation_due_from - 1] = PG_ARGISNULL(2);
	values[Anum_cancellation_due_until - 1] = PG_GETARG_DATUM(3);
	nulls[Anum_cancellation_due_until - 1] = PG_ARGISNULL(3);
	id = write_mark(values, nulls);
	if (is_stop)
		dw_marks_supersede(id);
	PG_RETURN_INT64(id);
}

/*---- Marks of others ----*/

/* May the current user cancel all tasks that a mark of these owners hits? */
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
	deconstruct_array(DatumGetArrayTypeP(array), REGROLEOID, sizeof(Oid), true, TYPALIGN_INT,
					  &owners, &nulls, &n);
	for (int i = 0; i < n; i++)
		if (nulls[i] || !has_privs_of_role(GetUserId(), DatumGetObjectId(owners[i])))
			return false;
	return true;
}

/*
 * Trigger on delay_wheel.cancellation: plain SQL, a restore, or an apply
 * worker of logical replication writes marks.
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

	/* a restore into a server without the library must go on */
	if (dw_shared != NULL)
	{
		dw_marks_touched();
		/* tasks that are not cancelled any more may have been forgotten */
		if (!TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
			dw_touch_all();
	}
	return PointerGetDatum(row);
}
