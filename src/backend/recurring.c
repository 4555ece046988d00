/*-------------------------------------------------------------------------
 *
 * recurring.c
 *	  Recurring tasks.
 *
 * What is to be done, and when, stands in a row of delay_wheel.recurring_task,
 * its definition.  A run is an ordinary task, whose row names the definition
 * ("recurring" in its column more); the definition names the one task that is
 * its current run, pending or going on.  Whoever ends that one inserts the
 * next and names it, in the very transaction in which the run's row is
 * deleted: so there is one at any time, no two overlap, and whatever dies,
 * none is lost or doubled.
 *
 * A task that is not named by its definition is none of its runs (any more):
 * a failed one that was put back, or one that was cut off by a change.
 *
 * Locks, in this order: the row of the run (pending.c), then that of the
 * definition.  So who changes a definition takes the run first; or, if an
 * executor has it, leaves it alone: that one waits for the change at its end,
 * and goes by it.  In between the definition may have got another run; so
 * which one it is counts only under the lock of the definition.
 *
 * A name is looked for as a key is (keys.c): with a dirty snapshot, under a
 * lock of its own that is held for just that long, and for the insertion.
 *
 * Run by backends, executors, and the sweeper, which waits for nobody.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/settings.h"
#include "../base/signature.h"
#include "../ending/conclude.h"
#include "../ending/pending.h"
#include "../recurring/cron.h"
#include "../recurring/cron_times.h"
#include "../recurring/definition.h"
#include "../recurring/recurrence.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/shared.h"
#include "../task/new_task.h"
#include "../task/rights.h"
#include "../task/row_lock.h"
#include "../task/touched.h"
#include "options.h"
#include "schedule.h"

PG_FUNCTION_INFO_V1(dw_every);
PG_FUNCTION_INFO_V1(dw_cron);
PG_FUNCTION_INFO_V1(dw_unschedule);
PG_FUNCTION_INFO_V1(dw_pause_recurring);
PG_FUNCTION_INFO_V1(dw_resume_recurring);

/* See keys.c and autonomous.c for others. */
#define NAME_LOCK_CLASS	0xDE1C

/*---- Finding a definition by its name ----*/

static LOCKTAG name_lock;

static void
lock_name(Oid owner, const text *name)
{
	uint64		hash = hash_bytes_extended((unsigned char *) VARDATA_ANY(name),
										   VARSIZE_ANY_EXHDR(name), owner);

	SET_LOCKTAG_ADVISORY(name_lock, MyDatabaseId, (uint32) (hash >> 32), (uint32) hash,
						 NAME_LOCK_CLASS);
	(void) LockAcquire(&name_lock, ExclusiveLock, false, false);
}

static void
unlock_name(void)
{
	LockRelease(&name_lock, ExclusiveLock, false);
}

/* Also sets *open to a transaction that is about to change that, if there is one. */
static bool
look_for_name(Relation rel, Oid owner, text *name, DwDefinition *def, TransactionId *open)
{
	ScanKeyData keys[2];
	SnapshotData dirty;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	*open = InvalidTransactionId;
	InitDirtySnapshot(dirty);
	ScanKeyInit(&keys[0], Anum_recurring_owner, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(owner));
	ScanKeyEntryInitialize(&keys[1], 0, Anum_recurring_name, BTEqualStrategyNumber, InvalidOid,
						   C_COLLATION_OID, F_TEXTEQ, PointerGetDatum(name));
	scan = systable_beginscan(rel, dw_catalog()->recurring_name_key, true, &dirty, 2, keys);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		if (TransactionIdIsValid(dirty.xmin))
			*open = dirty.xmin;
		else if (TransactionIdIsValid(dirty.xmax))
			*open = dirty.xmax;
		else
			dw_definition_read(rel, heap_copytuple(tuple), def);
		found = true;
	}
	systable_endscan(scan);
	return found;
}

/*
 * Finds the current user's definition of this name, having waited for who
 * else changes it.  If there is none the name is locked if that is wanted: the
 * caller inserts one and unlocks it.
 */
static bool
find_name(Relation rel, text *name, bool keep_lock, DwDefinition *def)
{
	for (;;)
	{
		TransactionId open;
		bool		found;

		CHECK_FOR_INTERRUPTS();
		lock_name(GetUserId(), name);
		found = look_for_name(rel, GetUserId(), name, def, &open);
		if (found || !keep_lock)
			unlock_name();
		if (!TransactionIdIsValid(open))
			return found;
		XactLockTableWait(open, rel, NULL, XLTW_None);
	}
}

/*---- Taking a definition, and its run ----*/

/* Takes the run that the definition names, if it is pending. */
static void
take_run(const DwDefinition *def, DwRecurringRun *run)
{
	int64		id = dw_definition_number(def, Anum_recurring_task);
	Relation	rel;
	HeapTuple	found;
	DwHint		hint;

	/* taken already, before the definition was found to have changed */
	if (run->taken != NULL && run->id == id)
		return;
	memset(run, 0, sizeof(DwRecurringRun));
	run->id = id;
	if (id == 0)
		return;
	rel = dw_tasks_open();
	if (dw_definition_find_run(rel, def) != DW_RUN_OF_OTHERS)
		switch (dw_take_pending(rel, id, &found, &run->key, &hint))
		{
			case DW_TAKEN:
				run->taken = found;
				CommandCounterIncrement();
				break;
			case DW_RUNNING:
				run->running = true;
				break;
			case DW_GONE:
				/* cancelled, but delay_run() may have begun it before */
				if (found != NULL)
					run->running = !dw_row_wait(rel, &run->key);
				break;
		}
	table_close(rel, NoLock);
}

/*
 * Locks a definition together with its run.  False if it has changed since it
 * was read: the caller is to look again.
 */
static bool
take_definition(Relation rel, DwDefinition *def, DwRecurringRun *run)
{
	DwDefinition locked;

	take_run(def, run);
	if (dw_definition_lock(rel, def, LockWaitBlock) != TM_Ok)
		return false;
	if (!dw_definition_find(rel, dw_definition_number(def, Anum_recurring_id), &locked) ||
		dw_definition_number(&locked, Anum_recurring_task) != run->id)
		return false;
	*def = locked;
	/* only now: its end would have to lock the definition */
	if (run->id != 0 && run->taken == NULL && !run->running)
		run->running = dw_runs_without_row(run->id);
	return true;
}

/* The run that was taken has no place any more. */
static void
drop_run(DwRecurringRun *run)
{
	Relation	rel;

	if (run->taken == NULL)
		return;
	rel = dw_tasks_open();
	dw_conclude_row(rel, run->taken, &run->key, DW_CANCELLED, NULL);
	table_close(rel, NoLock);
}

/*
 * The same by name; false if there is none.  If that is wanted, one that is not
 * paused is only looked at.
 */
static bool
take_by_name(Relation rel, text *name, bool only_paused, DwDefinition *def, DwRecurringRun *run)
{
	memset(run, 0, sizeof(DwRecurringRun));
	do
	{
		if (!find_name(rel, name, false, def))
			return false;
		if (only_paused && !dw_definition_is_paused(def))
			return true;
	} while (!take_definition(rel, def, run));
	return true;
}

/*---- What delay_every and delay_cron are told ----*/

enum
{
	ARG_NAME,
	ARG_TIMES,
	ARG_SQL,
	ARG_ARGS,
	ARG_ARG_TYPES,
	ARG_STARTS,
	ARG_TIME_ZONE,
	ARG_UNTIL,
	ARG_MAX_RUNS,
	ARG_CATCH_UP,
	ARG_QUEUE,
	ARG_TAG,
	ARG_PRIORITY,
	ARG_MAX_ATTEMPTS,
	ARG_RETRY_DELAY,
	ARG_TIMEOUT,
	ARG_SKIP_AFTER,
	ARG_NOTIFY,
	ARG_ON_SUCCESS,
	ARG_ON_FAILURE,
	ARG_MODE,
	NARGS
};

/* Which options of delay_schedule_task these are. */
static const int option_of[NARGS] = {
	[ARG_SQL] = DW_ARG_SQL,
	[ARG_ARGS] = DW_ARG_ARGS,
	[ARG_ARG_TYPES] = DW_ARG_ARG_TYPES,
	[ARG_QUEUE] = DW_ARG_QUEUE,
	[ARG_TAG] = DW_ARG_TAG,
	[ARG_PRIORITY] = DW_ARG_PRIORITY,
	[ARG_MAX_ATTEMPTS] = DW_ARG_MAX_ATTEMPTS,
	[ARG_RETRY_DELAY] = DW_ARG_RETRY_DELAY,
	[ARG_TIMEOUT] = DW_ARG_TIMEOUT,
	[ARG_SKIP_AFTER] = DW_ARG_SKIP_AFTER,
	[ARG_NOTIFY] = DW_ARG_NOTIFY,
	[ARG_ON_SUCCESS] = DW_ARG_ON_SUCCESS,
	[ARG_ON_FAILURE] = DW_ARG_ON_FAILURE,
	[ARG_MODE] = DW_ARG_MODE
};

static text *
read_name(FunctionCallInfo fcinfo)
{
	dw_refuse_null(PG_ARGISNULL(ARG_NAME), "name");
	if (VARSIZE_ANY_EXHDR(PG_GETARG_TEXT_PP(ARG_NAME)) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("name must not be empty")));
	return dw_option_text(fcinfo, ARG_NAME, "name");
}

static void
check_every(const Interval *every)
{
	if (!dw_interval_is_finite(every))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("%s must not be infinite", "every")));
	if (every->month < 0 || every->day < 0 || every->time < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not have negative parts", "every")));
	if (every->month == 0 && every->day == 0 && every->time < DW_MIN_EVERY_US)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be at least %s", "every", "100 ms")));
}

/* The interval or the schedule, and the time zone. */
static void
read_times(FunctionCallInfo fcinfo, bool is_cron, DwDefinition *def)
{
	pg_tz	   *zone = session_timezone;

	dw_refuse_null(PG_ARGISNULL(ARG_TIMES), is_cron ? "schedule" : "every");
	if (is_cron)
	{
		DwCron		cron;

		dw_cron_read(text_to_cstring(PG_GETARG_TEXT_PP(ARG_TIMES)), &cron);
		dw_definition_set(def, Anum_recurring_schedule, PG_GETARG_DATUM(ARG_TIMES));
	}
	else
	{
		check_every(PG_GETARG_INTERVAL_P(ARG_TIMES));
		dw_definition_set(def, Anum_recurring_every, PG_GETARG_DATUM(ARG_TIMES));
	}
	if (!PG_ARGISNULL(ARG_TIME_ZONE))
		zone = dw_time_zone(text_to_cstring(PG_GETARG_TEXT_PP(ARG_TIME_ZONE)));
	dw_definition_set(def, Anum_recurring_time_zone, CStringGetTextDatum(pg_get_timezone_name(zone)));
}

static void
read_limits(FunctionCallInfo fcinfo, DwDefinition *def)
{
	char	   *catch_up = PG_ARGISNULL(ARG_CATCH_UP) ? "skip" :
		text_to_cstring(PG_GETARG_TEXT_PP(ARG_CATCH_UP));

	if (!PG_ARGISNULL(ARG_STARTS))
	{
		TimestampTz starts = PG_GETARG_TIMESTAMPTZ(ARG_STARTS);

		if (TIMESTAMP_NOT_FINITE(starts))
			ereport(ERROR,
					(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
					 errmsg("%s must not be infinite", "starts")));
		dw_definition_set_time(def, Anum_recurring_starts, starts);
	}
	if (!PG_ARGISNULL(ARG_UNTIL))
		dw_definition_set(def, Anum_recurring_until, PG_GETARG_DATUM(ARG_UNTIL));
	if (!PG_ARGISNULL(ARG_MAX_RUNS))
	{
		if (PG_GETARG_INT64(ARG_MAX_RUNS) <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("%s must be greater than zero", "max_runs")));
		dw_definition_set(def, Anum_recurring_max_runs, PG_GETARG_DATUM(ARG_MAX_RUNS));
	}
	if (strcmp(catch_up, "skip") != 0 && strcmp(catch_up, "all") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for %s: \"%s\"", "catch_up", catch_up),
				 errhint("Use 'skip' or 'all'.")));
	dw_definition_set(def, Anum_recurring_catch_up, CStringGetTextDatum(catch_up));
}

/* What its runs are like: as delay_schedule_task reads it. */
static void
read_task(FunctionCallInfo fcinfo, DwDefinition *def)
{
	LOCAL_FCINFO(options, DW_NARGS);
	DwNewTask	task;
	int			nargs;

	InitFunctionCallInfoData(*options, fcinfo->flinfo, DW_NARGS, fcinfo->fncollation, NULL, NULL);
	for (int i = 0; i < DW_NARGS; i++)
		options->args[i].isnull = true;
	for (int i = 0; i < NARGS; i++)
		if (i == ARG_SQL || option_of[i] != 0)
			options->args[option_of[i]] = fcinfo->args[i];

	dw_refuse_null(options->args[DW_ARG_SQL].isnull, "SQL text");
	dw_new_task_init(&task, DatumGetTextPP(options->args[DW_ARG_SQL].value));
	nargs = dw_option_args(options, &task);
	dw_options_read(options, task.values, task.nulls);
	dw_new_task_queue(&task, options->args[DW_ARG_QUEUE].isnull ? NULL :
					  text_to_cstring(DatumGetTextPP(options->args[DW_ARG_QUEUE].value)),
					  dw_option_priority(options));
	dw_new_task_check(&task, nargs);

	dw_definition_set(def, Anum_recurring_queue, Int16GetDatum(task.queue));
	dw_definition_set(def, Anum_recurring_priority, Int16GetDatum(task.priority));
	for (int i = 0; i < DW_DEFINITION_AND_TASK; i++)
	{
		def->values[dw_definition_and_task[i][0] - 1] = task.values[dw_definition_and_task[i][1] - 1];
		def->nulls[dw_definition_and_task[i][0] - 1] = task.nulls[dw_definition_and_task[i][1] - 1];
	}
}

/*---- Declaring and changing ----*/

/* Do both have the same in a column? */
static bool
is_same_column(Relation rel, const DwDefinition *a, const DwDefinition *b, AttrNumber column)
{
	Form_pg_attribute attr = TupleDescAttr(RelationGetDescr(rel), column - 1);

	if (a->nulls[column - 1] || b->nulls[column - 1])
		return a->nulls[column - 1] && b->nulls[column - 1];
	return datum_image_eq(a->values[column - 1], b->values[column - 1],
						  attr->attbyval, attr->attlen);
}

static bool
is_same(Relation rel, const DwDefinition *a, const DwDefinition *b, const AttrNumber *columns)
{
	for (int i = 0; columns[i] != 0; i++)
		if (!is_same_column(rel, a, b, columns[i]))
			return false;
	return true;
}

/* The ideal times, if they are counted from the same one. */
static const AttrNumber interval_columns[] = {
	Anum_recurring_every, Anum_recurring_schedule, Anum_recurring_time_zone, 0
};

static const AttrNumber declared_columns[] = {
	Anum_recurring_every, Anum_recurring_schedule, Anum_recurring_time_zone,
	Anum_recurring_starts, Anum_recurring_until, Anum_recurring_max_runs,
	Anum_recurring_catch_up, Anum_recurring_queue, Anum_recurring_priority,
	Anum_recurring_timeout, Anum_recurring_max_attempts, Anum_recurring_retry_delay,
	Anum_recurring_sql, Anum_recurring_args, Anum_recurring_arg_types,
	Anum_recurring_search_path, Anum_recurring_tag, Anum_recurring_more, 0
};

/* If starts is not given: the first time is one interval from now. */
static TimestampTz
default_starts(const DwDefinition *wanted)
{
	TimestampTz now = dw_schedule_now();
	TimestampTz starts;

	if (wanted->nulls[Anum_recurring_every - 1])
		return now;
	if (!dw_intervals_after(now, 1, DatumGetIntervalP(wanted->values[Anum_recurring_every - 1]),
							pg_tzset(TextDatumGetCString(wanted->values[Anum_recurring_time_zone - 1])),
							&starts))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("timestamp out of range")));
	return starts;
}

/* Under the lock of its name. */
static int64
create(DwDefinition *def)
{
	dw_definition_set(def, Anum_recurring_id,
					  Int64GetDatum(nextval_internal(dw_catalog()->task_id_seq, false)));
	dw_definition_set(def, Anum_recurring_origin, Int64GetDatum(dw_origin_stamp()));
	dw_definition_set(def, Anum_recurring_owner, ObjectIdGetDatum(GetUserId()));
	dw_definition_set(def, Anum_recurring_paused, BoolGetDatum(false));
	dw_definition_set(def, Anum_recurring_runs, Int64GetDatum(0));
	dw_definition_set(def, Anum_recurring_failures, Int64GetDatum(0));
	dw_definition_set(def, Anum_recurring_skipped, Int64GetDatum(0));
	dw_definition_set_first(def);
	if (def->nulls[Anum_recurring_next_due - 1])
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("recurring task \"%s\" would never be run",
						TextDatumGetCString(def->values[Anum_recurring_name - 1])),
				 errdetail("It has no ideal time from now on, or none up to %s.", "until")));
	dw_definition_insert_run(def);
	dw_recurring_insert(def->values, def->nulls);
	return dw_definition_number(def, Anum_recurring_task);
}

/* Whoever changes one that came with a copy means it to have runs here. */
static int64
change(Relation rel, DwDefinition *def, const DwDefinition *wanted, DwRecurringRun *run)
{
	bool		same_times = !def->nulls[Anum_recurring_next_due - 1] &&
		is_same(rel, def, wanted, interval_columns) &&
		is_same_column(rel, def, wanted, Anum_recurring_starts) &&
		is_same_column(rel, def, wanted, Anum_recurring_until) &&
		is_same_column(rel, def, wanted, Anum_recurring_max_runs);

	for (int i = 0; declared_columns[i] != 0; i++)
	{
		def->values[declared_columns[i] - 1] = wanted->values[declared_columns[i] - 1];
		def->nulls[declared_columns[i] - 1] = wanted->nulls[declared_columns[i] - 1];
	}
	dw_definition_set(def, Anum_recurring_origin, Int64GetDatum(dw_origin_stamp()));
	/* the end of a run that is going on goes by this */
	if (!run->running)
	{
		if (!same_times)
			dw_definition_set_first(def);
		dw_definition_insert_run(def);
	}
	dw_definition_write(rel, def);
	drop_run(run);
	return dw_definition_number(def, Anum_recurring_task);
}

static int64
declare(DwDefinition *wanted)
{
	Relation	rel = table_open(dw_catalog()->recurring, RowExclusiveLock);
	bool		starts_given = !wanted->nulls[Anum_recurring_starts - 1];
	text	   *name = DatumGetTextPP(wanted->values[Anum_recurring_name - 1]);
	DwRecurringRun			run = {0};
	DwDefinition def;
	int64		result;

	/* nothing is to be waited for under the lock of the name */
	dw_tasks_lock();
	(void) dw_require_lane(GetUserId(), DatumGetInt16(wanted->values[Anum_recurring_queue - 1]),
						   DatumGetInt16(wanted->values[Anum_recurring_priority - 1]));
	for (;;)
	{
		if (!find_name(rel, name, true, &def))
		{
			if (!starts_given)
				dw_definition_set_time(wanted, Anum_recurring_starts, default_starts(wanted));
			if (dw_max_pending >= 0)
				dw_require_room(GetUserId());
			result = create(wanted);
			unlock_name();
			break;
		}
		if (!starts_given && is_same(rel, &def, wanted, interval_columns))
			dw_definition_set(wanted, Anum_recurring_starts, def.values[Anum_recurring_starts - 1]);
		else if (!starts_given)
			dw_definition_set_time(wanted, Anum_recurring_starts, default_starts(wanted));
		if (dw_definition_is_armed(&def) && is_same(rel, &def, wanted, declared_columns))
		{
			result = dw_definition_number(&def, Anum_recurring_task);
			break;
		}
		if (take_definition(rel, &def, &run))
		{
			result = change(rel, &def, wanted, &run);
			break;
		}
	}
	table_close(rel, NoLock);
	return result;
}

static Datum
declare_from_args(FunctionCallInfo fcinfo, bool is_cron)
{
	Oid			types[NARGS] = {
		TEXTOID, is_cron ? TEXTOID : INTERVALOID, TEXTOID, TEXTARRAYOID, REGTYPEARRAYOID,
		TIMESTAMPTZOID, TEXTOID, TIMESTAMPTZOID, INT8OID, TEXTOID,
		TEXTOID, TEXTOID, INT4OID, INT4OID, INTERVALOID, INTERVALOID, INTERVALOID,
		TEXTOID, TEXTOID, TEXTOID, TEXTOID
	};
	Datum		values[Natts_recurring] = {0};
	bool		nulls[Natts_recurring];
	DwDefinition wanted = {.values = values, .nulls = nulls};
	int64		task;

	dw_require_signature(fcinfo, INT8OID, NARGS, types);
	dw_require_writable(is_cron ? "delay_cron()" : "delay_every()");
	memset(nulls, true, sizeof(nulls));
	dw_definition_set(&wanted, Anum_recurring_name, PointerGetDatum(read_name(fcinfo)));
	read_times(fcinfo, is_cron, &wanted);
	read_limits(fcinfo, &wanted);
	read_task(fcinfo, &wanted);
	task = declare(&wanted);
	if (task == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(task);
}

Datum
dw_every(PG_FUNCTION_ARGS)
{
	return declare_from_args(fcinfo, false);
}

Datum
dw_cron(PG_FUNCTION_ARGS)
{
	return declare_from_args(fcinfo, true);
}

/*---- Removing, pausing, resuming ----*/

/* Opens the table and takes the definition that the function names; NULL: there is none. */
static Relation
take_named(FunctionCallInfo fcinfo, const char *function, bool only_paused, DwDefinition *def,
		   DwRecurringRun *run)
{
	static const Oid types[] = {TEXTOID};
	Relation	rel;

	dw_require_signature(fcinfo, BOOLOID, lengthof(types), types);
	dw_require_writable(function);
	dw_refuse_null(PG_ARGISNULL(0), "name");
	rel = table_open(dw_catalog()->recurring, RowExclusiveLock);
	if (take_by_name(rel, PG_GETARG_TEXT_PP(0), only_paused, def, run))
		return rel;
	table_close(rel, NoLock);
	return NULL;
}

Datum
dw_unschedule(PG_FUNCTION_ARGS)
{
	DwDefinition def;
	DwRecurringRun			run;
	Relation	rel = take_named(fcinfo, "delay_unschedule()", false, &def, &run);

	if (rel == NULL)
		PG_RETURN_BOOL(false);
	dw_definition_delete(rel, &def);
	drop_run(&run);
	table_close(rel, NoLock);
	PG_RETURN_BOOL(true);
}

Datum
dw_pause_recurring(PG_FUNCTION_ARGS)
{
	DwDefinition def;
	DwRecurringRun			run;
	Relation	rel = take_named(fcinfo, "delay_pause_recurring()", false, &def, &run);

	if (rel == NULL)
		PG_RETURN_BOOL(false);
	dw_definition_set(&def, Anum_recurring_paused, BoolGetDatum(true));
	if (!run.running)
		dw_definition_set_null(&def, Anum_recurring_task);
	dw_definition_write(rel, &def);
	drop_run(&run);
	table_close(rel, NoLock);
	PG_RETURN_BOOL(true);
}

/* From the first ideal time from now on. */
static void
resume(DwDefinition *def)
{
	TimestampTz after = dw_schedule_now() - 1;

	dw_definition_set(def, Anum_recurring_paused, BoolGetDatum(false));
	if (def->nulls[Anum_recurring_next_due - 1])
		return;
	if (!def->nulls[Anum_recurring_last_due - 1])
		after = Max(after, DatumGetTimestampTz(def->values[Anum_recurring_last_due - 1]));
	dw_definition_set_next(def, after);
}

Datum
dw_resume_recurring(PG_FUNCTION_ARGS)
{
	DwDefinition def;
	DwRecurringRun			run;
	Relation	rel = take_named(fcinfo, "delay_resume_recurring()", true, &def, &run);

	if (rel == NULL)
		PG_RETURN_BOOL(false);
	if (dw_definition_is_paused(&def))
	{
		if (run.running)
			dw_definition_set(&def, Anum_recurring_paused, BoolGetDatum(false));
		else
		{
			resume(&def);
			dw_definition_insert_run(&def);
		}
		dw_definition_write(rel, &def);
		drop_run(&run);
	}
	table_close(rel, NoLock);
	PG_RETURN_BOOL(true);
}
