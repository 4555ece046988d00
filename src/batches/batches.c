/*-------------------------------------------------------------------------
 *
 * batches.c
 *	  SQL functions that make, close and cancel batches, and the wing's functions.
 *
 * Run by sessions, and by executors whose tasks call these functions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "../backend/backend.h"
#include "../base/errors.h"
#include "../base/settings.h"
#include "../base/signature.h"
#include "../statement/statement.h"
#include "../task/options.h"
#include "batches.h"

PG_FUNCTION_INFO_V1(dw_batch_make);
PG_FUNCTION_INFO_V1(dw_batch_close);
PG_FUNCTION_INFO_V1(dw_batch_cancel);
PG_FUNCTION_INFO_V1(dw_batch_of);
PG_FUNCTION_INFO_V1(dw_batch_member_deleted);

/*---- SQL functions ----*/

/* Sets a callback's column, if the argument is given.  Raises an error if its SQL is invalid. */
static void
set_callback(FunctionCallInfo fcinfo, int number, AttrNumber column, const char *name,
			 Datum *values, bool *nulls)
{
	nulls[column - 1] = PG_ARGISNULL(number);
	if (PG_ARGISNULL(number))
		return;
	values[column - 1] = PG_GETARG_DATUM(number);
	if (dw_check_sql_text != DW_CHECK_OFF)
		dw_check_follow_up(PG_GETARG_TEXT_PP(number), name, DW_BATCH_ARGS);
}

/* Records an action on a batch of this owner. */
static void
audit(const char *what, int64 id, Oid owner, int64 rows)
{
	dw_audit_write(&(DwAction) {.what = what,.task = id,.owner = owner,.rows = rows});
}

/* SQL function delay_batch(). */
Datum
dw_batch_make(PG_FUNCTION_ARGS)
{
	Datum		values[Natts_batch] = {0};
	bool		nulls[Natts_batch] = {false};
	DwNewTask	callback;
	int64		id;
	bool		open = !PG_ARGISNULL(4) && PG_GETARG_BOOL(4);

	dw_require_right_to_write("delay_batch()");
	if (!PG_ARGISNULL(0))
		dw_option_check_text(PG_GETARG_TEXT_PP(0), "name");
	/* the callbacks keep the settings of this session, as a task would */
	dw_new_task_init(&callback, cstring_to_text(""));
	dw_new_task_queue(&callback, PG_ARGISNULL(5) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(5)), DW_NO_PRIORITY);
	dw_new_task_keep(&callback);
	dw_refuse_superuser(callback.owner);
	set_callback(fcinfo, 1, Anum_batch_on_done, "on_done", values, nulls);
	set_callback(fcinfo, 2, Anum_batch_on_failed, "on_failed", values, nulls);
	set_callback(fcinfo, 3, Anum_batch_on_end, "on_end", values, nulls);

	id = nextval_internal(dw_catalog()->task_id_seq, false);
	values[Anum_batch_id - 1] = Int64GetDatum(id);
	values[Anum_batch_origin - 1] = Int64GetDatum(dw_origin_stamp());
	values[Anum_batch_owner - 1] = ObjectIdGetDatum(callback.owner);
	values[Anum_batch_batch_id - 1] = PG_GETARG_DATUM(6);
	nulls[Anum_batch_batch_id - 1] = PG_ARGISNULL(6);
	values[Anum_batch_closed - 1] = BoolGetDatum(!open);
	values[Anum_batch_made_at - 1] = TimestampTzGetDatum(GetCurrentTransactionStartTimestamp());
	nulls[Anum_batch_ended_at - 1] = true;
	values[Anum_batch_queue - 1] = Int16GetDatum(callback.queue);
	values[Anum_batch_name - 1] = PG_GETARG_DATUM(0);
	nulls[Anum_batch_name - 1] = PG_ARGISNULL(0);
	values[Anum_batch_search_path - 1] = callback.values[Anum_task_search_path - 1];
	nulls[Anum_batch_search_path - 1] = callback.nulls[Anum_task_search_path - 1];
	values[Anum_batch_settings - 1] =
		PointerGetDatum(dw_more_object(callback.values, callback.nulls, Anum_task_more, DW_MORE_SETTINGS));
	nulls[Anum_batch_settings - 1] = DatumGetPointer(values[Anum_batch_settings - 1]) == NULL;
	if (!PG_ARGISNULL(6))
		dw_batch_join(PG_GETARG_INT64(6), callback.owner, false);
	dw_table_insert(dw_catalog()->batch, values, nulls, Natts_batch);
	dw_batch_touch(id, callback.owner, true);
	if (dw_audits(DW_AUDIT_ALL))
		audit("batch", id, callback.owner, 0);
	PG_RETURN_INT64(id);
}

/*
 * Closes a batch whose owner's rights the current user has.  Returns the owner; InvalidOid if there
 * is no such batch that has not ended.
 */
static Oid
close_batch(int64 id)
{
	static const Oid types[] = {INT8OID, OIDOID};
	const Datum values[] = {Int64GetDatum(id), ObjectIdGetDatum(GetUserId())};
	Oid			user;
	int			context;
	int			nest_level = dw_batches_sql_begin(&user, &context);
	Oid			owner = InvalidOid;
	bool		isnull;

	dw_batch_touch(id, InvalidOid, false);
	if (dw_batches_sql("UPDATE delay_wheel_data.batch SET closed = true WHERE id = $1 AND ended_at IS NULL"
					   " AND pg_has_role($2, owner, 'USAGE') RETURNING owner", 2, types, values) > 0)
		owner = DatumGetObjectId(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	dw_batches_sql_end(nest_level, user, context);
	return owner;
}

/* SQL function delay_close_batch(). */
Datum
dw_batch_close(PG_FUNCTION_ARGS)
{
	Oid			owner;

	dw_require_right_to_write("delay_close_batch()");
	dw_refuse_null(PG_ARGISNULL(0), "batch id");
	owner = close_batch(PG_GETARG_INT64(0));
	if (OidIsValid(owner) && dw_audits(DW_AUDIT_CONTROL))
		audit("close_batch", PG_GETARG_INT64(0), owner, 0);
	PG_RETURN_TEXT_P(cstring_to_text(OidIsValid(owner) ? "closed" : "gone"));
}

/* Executes a query about a batch by SPI with a new snapshot: that of the transaction may be too old. */
static void
read_now(const char *sql, int64 batch)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(batch)};
	SPIPlanPtr	plan = SPI_prepare(sql, 1, types);

	CommandCounterIncrement();
	if (plan == NULL ||
		SPI_execute_snapshot(plan, values, NULL, GetLatestSnapshot(), InvalidSnapshot, true, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read a batch");
}

/*
 * Returns the ids that a query about a batch finds now.  Members may have joined while this
 * transaction waited to close the batch.
 */
static List *
ids_of(const char *sql, int64 batch)
{
	MemoryContext context = CurrentMemoryContext;
	int			nest_level = dw_own_sql_begin();
	List	   *ids = NIL;
	MemoryContext spi;

	read_now(sql, batch);
	spi = MemoryContextSwitchTo(context);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;
		int64	   *id = palloc(sizeof(int64));

		*id = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull));
		ids = lappend(ids, id);
	}
	MemoryContextSwitchTo(spi);
	dw_own_sql_end(nest_level);
	return ids;
}

/*
 * Closes a batch and its inner batches, and cancels their pending members, whose number is added to
 * *cancelled.  The ids are read with the caller's rights, as by delay_cancel().  Returns the owner,
 * as close_batch() does.
 */
static Oid
cancel_batch(int64 batch, int64 *cancelled)
{
	Oid			owner;
	ListCell   *lc;

	check_stack_depth();
	owner = close_batch(batch);
	if (!OidIsValid(owner))
		return InvalidOid;
	foreach(lc, ids_of("SELECT id FROM delay_wheel.batches WHERE batch_id = $1 AND ended_at IS NULL ORDER BY id", batch))
		(void) cancel_batch(*(int64 *) lfirst(lc), cancelled);
	foreach(lc, ids_of("SELECT id FROM delay_wheel.tasks WHERE batch_id = $1 ORDER BY id", batch))
	{
		CHECK_FOR_INTERRUPTS();
		*cancelled += strcmp(dw_cancel_by_id(*(int64 *) lfirst(lc), false, false, false), "cancelled") == 0;
	}
	return owner;
}

/* SQL function delay_cancel_batch(). */
Datum
dw_batch_cancel(PG_FUNCTION_ARGS)
{
	int64		cancelled = 0;
	Oid			owner;

	dw_require_right_to_write("delay_cancel_batch()");
	dw_refuse_null(PG_ARGISNULL(0), "batch id");
	owner = cancel_batch(PG_GETARG_INT64(0), &cancelled);
	if (OidIsValid(owner) && dw_audits(DW_AUDIT_CONTROL))
		audit("cancel_batch", PG_GETARG_INT64(0), owner, cancelled);
	PG_RETURN_INT64(cancelled);
}

/* The function of the index on members, and of views.  Leakproof: raises no error for any value. */
Datum
dw_batch_of(PG_FUNCTION_ARGS)
{
	Datum		more = PG_GETARG_DATUM(0);
	bool		null = false;
	int64		id;

	if (!dw_more_number(&more, &null, 1, DW_MORE_BATCH_ID, &id))
		PG_RETURN_NULL();
	PG_RETURN_INT64(id);
}

/* Counts all members of batches as cancelled, before TRUNCATE. */
static void
count_truncated(void)
{
	Oid			user;
	int			context;
	int			nest_level = dw_batches_sql_begin(&user, &context);
	uint64		n = dw_batches_sql("SELECT delay_wheel_internal.batch_of(more), owner, count(*) FROM delay_wheel_data.task"
								   " WHERE delay_wheel_internal.batch_of(more) IS NOT NULL GROUP BY 1, 2", 0, NULL, NULL);

	for (uint64 i = 0; i < n; i++)
	{
		Datum		values[3];

		for (int j = 0; j < lengthof(values); j++)
		{
			bool		isnull;

			values[j] = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, j + 1, &isnull);
		}
		dw_batch_member_ended(DatumGetInt64(values[0]), DatumGetObjectId(values[1]), DW_CANCELLED, DatumGetInt64(values[2]));
	}
	dw_batches_sql_end(nest_level, user, context);
}

/* Trigger on delay_wheel_data.task: plain SQL has deleted a member of a batch, or truncates the table. */
Datum
dw_batch_member_deleted(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = dw_require_trigger(fcinfo, "member_deleted", false);
	Datum	   *values;
	bool	   *nulls;
	int64		id;

	if (TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event))
	{
		if (dw_shared != NULL)
			count_truncated();
		PG_RETURN_POINTER(NULL);
	}
	(void) dw_require_trigger(fcinfo, "member_deleted", true);
	dw_deform(trigger->tg_relation, trigger->tg_trigtuple, &values, &nulls);
	if (dw_shared != NULL && dw_more_number(values, nulls, Anum_task_more, DW_MORE_BATCH_ID, &id))
		dw_batch_member_ended(id, DatumGetObjectId(values[Anum_task_owner - 1]), DW_CANCELLED, 1);
	PG_RETURN_POINTER(NULL);
}

/*---- The wing ----*/

/* A new task joins its batch. */
static void
join_batch(Oid owner, const Datum *values, const bool *nulls, bool by_engine)
{
	int64		id;

	if (!dw_more_number(values, nulls, Anum_task_more, DW_MORE_BATCH_ID, &id))
		return;
	if (dw_mode(values, nulls) == DW_AT_MOST_ONCE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a task with mode at_most_once cannot be in a batch"),
				 errdetail("Its row is gone while it runs, so the batch could end too early."),
				 errhint("Use mode at_least_once.")));
	dw_batch_join(id, owner, by_engine);
}

/* Counts a member that has ended. */
static void
member_ended(const DwEnded *ended)
{
	int64		id;

	if (ended->nulls[Anum_task_more - 1] || ended->outcome == DW_RETRIED ||
		!dw_more_number(ended->values, ended->nulls, Anum_task_more, DW_MORE_BATCH_ID, &id))
		return;
	dw_batch_member_ended(id, ended->key->owner, ended->outcome, 1);
}

/* A failed member is pending again. */
static void
member_put_back(const Datum *values, const bool *nulls)
{
	int64		id;

	if (dw_more_number(values, nulls, Anum_task_more, DW_MORE_BATCH_ID, &id))
		dw_batch_member_put_back(id, DatumGetObjectId(values[Anum_task_owner - 1]));
}

/*
 * Reads a batch for delay_wait() and delay_status(), as it is now.  Returns false if there is none
 * with this id, else sets *owner, and *outcome to NULL or to the outcome of the batch.
 */
static bool
find_batch(int64 id, Oid *owner, const char **outcome)
{
	Oid			user;
	int			context;
	int			nest_level = dw_batches_sql_begin(&user, &context);
	bool		found;

	*outcome = NULL;
	read_now("SELECT owner, ended_at IS NOT NULL, failed <> 0 OR cancelled <> 0 OR skipped <> 0 FROM delay_wheel_data.batch WHERE id = $1", id);
	found = SPI_processed > 0;
	if (found)
	{
		HeapTuple	row = SPI_tuptable->vals[0];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		bool		isnull;

		*owner = DatumGetObjectId(SPI_getbinval(row, desc, 1, &isnull));
		if (DatumGetBool(SPI_getbinval(row, desc, 2, &isnull)))
			*outcome = dw_outcome_names[DatumGetBool(SPI_getbinval(row, desc, 3, &isnull)) ? DW_FAILED : DW_DONE];
	}
	dw_batches_sql_end(nest_level, user, context);
	return found;
}

/*
 * Returns true if the batch has not ended.  Raises an error if the caller prevents the end, or, at
 * first, lacks the rights of its owner.
 */
static bool
has_not_ended(int64 id, bool first)
{
	const char *outcome;
	Oid			owner;

	if (dw_batch_is_touched(id) || dw_batch_runs_here(id))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot wait for batch %lld", (long long) id),
				 errdetail("This transaction has changed the batch, or runs one of its tasks, so the batch does not end before the transaction ends."),
				 errhint("Commit first, then wait.")));
	if (!find_batch(id, &owner, &outcome) || outcome != NULL)
		return false;
	if (first && !has_privs_of_role(GetUserId(), owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for batch %lld", (long long) id),
				 errdetail("Only members of the role that made the batch, and superusers, may wait for it.")));
	return true;
}

static const char *
end_of(int64 id)
{
	const char *outcome;
	Oid			owner;

	return find_batch(id, &owner, &outcome) && has_privs_of_role(GetUserId(), owner) ? outcome : NULL;
}

/* Takes over batches from a copy whose owner's rights the current user has. */
static void
arm_batches(bool *left)
{
	static const Oid types[] = {INT8OID, OIDOID};
	const Datum values[] = {Int64GetDatum(dw_origin_stamp()), ObjectIdGetDatum(GetUserId())};
	Oid			user;
	int			context;
	int			nest_level = dw_batches_sql_begin(&user, &context);
	uint64		n = dw_batches_sql("UPDATE delay_wheel_data.batch SET origin = $1 WHERE origin <> $1 AND owner IN (SELECT oid FROM pg_roles)"
								   " AND pg_has_role($2, owner, 'USAGE') RETURNING id, owner", 2, types, values);
	SPITupleTable *armed = SPI_tuptable;

	for (uint64 i = 0; i < n; i++)
	{
		bool		isnull;

		dw_batch_touch(DatumGetInt64(SPI_getbinval(armed->vals[i], armed->tupdesc, 1, &isnull)),
					   DatumGetObjectId(SPI_getbinval(armed->vals[i], armed->tupdesc, 2, &isnull)), false);
	}
	*left |= dw_batches_sql("SELECT FROM delay_wheel_data.batch WHERE origin <> $1 LIMIT 1", 1, types, values) > 0;
	dw_batches_sql_end(nest_level, user, context);
}

/* Raises an error if the callbacks of a batch need this queue. */
static void
require_unused_by_batches(int16 queue, const char *name)
{
	static const Oid types[] = {INT2OID};
	const Datum values[] = {Int16GetDatum(queue)};
	Oid			user;
	int			context;
	int			nest_level = dw_batches_sql_begin(&user, &context);
	bool		needed = dw_batches_sql("SELECT FROM delay_wheel_data.batch WHERE queue = $1 AND ended_at IS NULL LIMIT 1",
										1, types, values) > 0;

	dw_batches_sql_end(nest_level, user, context);
	if (needed)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("queue \"%s\" has callbacks of batches", name),
				 errhint("Wait until these batches have ended, see delay_wheel.batches.")));
}

/* Asks for the sweeper's jobs. */
static void
begin_jobs(DwDatabase *db, bool settings)
{
	if (!dw_any_may_have_rows(offsetof(DwCatalog, batch), 1))
		return;
	dw_ask_sweeper(db, DW_JOB_ENDED_BATCHES, dw_now());
	if (!settings)
		dw_batches_look_at_all(db);
}

static const DwWingJob jobs[] = {
	{DW_JOB_BATCHES, dw_batches_end},
	{DW_JOB_ENDED_BATCHES, dw_batches_forget}
};

const DwWing dw_batches_wing = {
	.install = dw_batches_install,
	.request_memory = dw_batches_request_memory,
	.memory_is_ready = dw_batches_init,
	.task_scheduled = join_batch,
	.task_put_back = member_put_back,
	.task_ended = member_ended,
	.is_pending = has_not_ended,
	.outcome_of = end_of,
	.arm = arm_batches,
	.require_unused = require_unused_by_batches,
	.ends_in_doubt = dw_batches_look_at_all,
	.jobs_in_doubt = begin_jobs,
	.jobs = jobs,
	.njobs = lengthof(jobs)
};
