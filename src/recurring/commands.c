/*-------------------------------------------------------------------------
 *
 * commands.c
 *	  SQL functions that declare, change, remove, pause and resume recurring tasks.
 *
 * Run by sessions, and by executors whose tasks call these functions.  README.md describes
 * definitions, their runs, and the order of locks.
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
#include "commands/sequence.h"
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

#include "../backend/backend.h"
#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/settings.h"
#include "../ending/ending.h"
#include "../task/options.h"
#include "recurring.h"

PG_FUNCTION_INFO_V1(dw_every);
PG_FUNCTION_INFO_V1(dw_cron);
PG_FUNCTION_INFO_V1(dw_unschedule);
PG_FUNCTION_INFO_V1(dw_pause_recurring);
PG_FUNCTION_INFO_V1(dw_resume_recurring);

/* Class of the advisory locks on names; task/key_lock.c and task/row_lock.c have other classes */
#define NAME_LOCK_CLASS	0xDE1C

/*---- Finding a definition by its name ----*/

/* The lock on a name that this process holds, if any */
static LOCKTAG name_lock;

/* Releases the last lock of find_name(). */
static void
unlock_name(void)
{
	LockRelease(&name_lock, ExclusiveLock, false);
}

/*
 * Looks for the definition with this owner and name.  If an open transaction is inserting or
 * deleting it, sets *open to this transaction, otherwise fills in *def.  Returns false if there is
 * no such definition.
 */
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
 * Finds the current user's definition with this name, after waiting for other transactions that
 * change it.  Returns false if there is no such definition.  keep_lock: a name that was not found
 * stays locked: the caller inserts a definition, and unlocks the name.
 */
static bool
find_name(Relation rel, text *name, bool keep_lock, DwDefinition *def)
{
	uint64		hash = dw_secret_hash(VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name), GetUserId());

	SET_LOCKTAG_ADVISORY(name_lock, MyDatabaseId, (uint32) (hash >> 32), (uint32) hash,
						 NAME_LOCK_CLASS);
	for (;;)
	{
		TransactionId open;
		bool		found;

		CHECK_FOR_INTERRUPTS();
		(void) LockAcquire(&name_lock, ExclusiveLock, false, false);
		found = look_for_name(rel, GetUserId(), name, def, &open);
		if (found || !keep_lock)
			unlock_name();
		if (!TransactionIdIsValid(open))
			return found;
		XactLockTableWait(open, rel, NULL, XLTW_None);
	}
}

/*---- Taking a definition, and its run ----*/

/*
 * Takes the run that the definition names, if the run is pending: deletes its row.  Fills in *run,
 * which must be all zeros before, or the result of an earlier call.
 */
static void
take_run(const DwDefinition *def, DwRecurringRun *run)
{
	int64		id = dw_definition_number(def, Anum_recurring_task);
	Relation	rel;
	HeapTuple	found;

	/* an earlier call took the run, but then the definition had changed */
	if (run->taken != NULL && run->id == id)
		return;
	memset(run, 0, sizeof(DwRecurringRun));
	run->id = id;
	if (id == 0)
		return;
	rel = dw_tasks_open();
	if (dw_definition_find_run(rel, def) != DW_RUN_OF_OTHERS)
		switch (dw_take_pending(rel, id, &found, &run->key))
		{
			case DW_TAKEN:
				run->taken = found;
				CommandCounterIncrement();
				break;
			case DW_RUNNING:
				run->running = true;
				break;
			case DW_GONE:
				/* the run is cancelled, but an earlier delay_run() may still be executing it */
				if (found != NULL)
					run->running = !dw_row_wait(rel, &run->key);
				break;
		}
	table_close(rel, NoLock);
}

/*
 * Takes the run of a definition, locks the definition's row, and reads *def again under this lock.
 * Returns false if the definition has changed since it was read.  Then the caller looks again, with
 * the same *run.
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
	/* check under the lock, since the end of such a run needs the lock, too */
	if (run->id != 0 && run->taken == NULL && !run->running)
		run->running = dw_runs_without_row(run->id);
	return true;
}

/* Ends the run that was taken, if any, as cancelled. */
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

/*---- The audit ----*/

/* Returns the name of the action that declares this definition. */
static const char *
declaring(const DwDefinition *def)
{
	return def->nulls[Anum_recurring_every - 1] ? "cron" : "every";
}

/* Records an action on a definition, if the audit includes such actions. */
static void
audit_definition(const char *what, const DwDefinition *def)
{
	DwAction	action = {
		.what = what,
		.owner = dw_definition_owner(def),
		.task = dw_definition_number(def, Anum_recurring_task),
		.queue = DatumGetInt16(def->values[Anum_recurring_queue - 1]),
		.with_queue = true
	};

	if (!dw_audits(DW_AUDIT_CONTROL))
		return;
	action.name = TextDatumGetCString(def->values[Anum_recurring_name - 1]);
	if (!def->nulls[Anum_recurring_tag - 1])
		action.tag = DatumGetTextPP(def->values[Anum_recurring_tag - 1]);
	dw_audit_write(&action);
}

/*---- The options of delay_every() and delay_cron() ----*/

/* The parameters of both functions */
static const DwOption parameters[] = {
	DW_OPT_NAME, DW_OPT_WHEN, DW_OPT_SQL, DW_OPT_ARGS, DW_OPT_NAMED, DW_OPT_STARTS, DW_OPT_UNTIL, DW_OPT_TIME_ZONE,
	DW_OPT_QUEUE, DW_OPT_TAG, DW_OPT_PRIORITY, DW_OPT_MAX_ATTEMPTS, DW_OPT_JSON
};

/* Returns the name.  Raises an error if it is null, empty or too long. */
static text *
read_name(const DwOptions *options)
{
	text	   *name;

	dw_refuse_null(!dw_given(options, NAME), "name");
	name = DatumGetTextPP(dw_option(options, NAME));
	if (VARSIZE_ANY_EXHDR(name) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("name must not be empty")));
	dw_option_refuse_long(name, "name");
	return name;
}

/* Raises an error if the interval is not valid for a recurring task. */
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

/* Reads the interval or the cron schedule, and the time zone, into the definition. */
static void
read_times(const DwOptions *options, bool is_cron, DwDefinition *def)
{
	pg_tz	   *zone = session_timezone;

	dw_refuse_null(!dw_given(options, WHEN), is_cron ? "schedule" : "every");
	if (is_cron)
	{
		DwCron		cron;

		dw_cron_read(dw_option_cstring(options, WHEN), &cron);
		dw_definition_set(def, Anum_recurring_schedule, dw_option(options, WHEN));
	}
	else
	{
		check_every(DatumGetIntervalP(dw_option(options, WHEN)));
		dw_definition_set(def, Anum_recurring_every, dw_option(options, WHEN));
	}
	if (dw_given(options, TIME_ZONE))
		zone = dw_time_zone(dw_option_cstring(options, TIME_ZONE));
	dw_definition_set(def, Anum_recurring_time_zone, CStringGetTextDatum(pg_get_timezone_name(zone)));
}

/* Reads the options starts, until, max_runs and catch_up into the definition. */
static void
read_limits(const DwOptions *options, DwDefinition *def)
{
	const char *catch_up = dw_given(options, CATCH_UP) ? dw_option_cstring(options, CATCH_UP) : "skip";

	if (dw_given(options, STARTS))
	{
		TimestampTz starts = DatumGetTimestampTz(dw_option(options, STARTS));

		if (TIMESTAMP_NOT_FINITE(starts))
			ereport(ERROR,
					(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
					 errmsg("%s must not be infinite", "starts")));
		dw_definition_set(def, Anum_recurring_starts, TimestampTzGetDatum(starts));
	}
	if (dw_given(options, UNTIL))
		dw_definition_set(def, Anum_recurring_until, dw_option(options, UNTIL));
	if (dw_given(options, MAX_RUNS))
		dw_definition_set(def, Anum_recurring_max_runs, dw_option(options, MAX_RUNS));
	if (strcmp(catch_up, "skip") != 0 && strcmp(catch_up, "all") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for %s: \"%s\"", "catch_up", catch_up),
				 errhint("Use 'skip' or 'all'.")));
	dw_definition_set(def, Anum_recurring_catch_up, CStringGetTextDatum(catch_up));
}

/* Reads the options that describe a run into the definition. */
static void
read_task(const DwOptions *options, DwDefinition *def)
{
	DwNewTask	task;

	dw_new_task_check(&task, dw_options_task(options, &task));
	dw_new_task_keep(&task);

	dw_definition_set(def, Anum_recurring_queue, Int16GetDatum(task.queue));
	dw_definition_set(def, Anum_recurring_priority, Int16GetDatum(task.priority));
	for (int i = 0; i < DW_DEFINITION_AND_TASK; i++)
	{
		def->values[dw_definition_and_task[i][0] - 1] = task.values[dw_definition_and_task[i][1] - 1];
		def->nulls[dw_definition_and_task[i][0] - 1] = task.nulls[dw_definition_and_task[i][1] - 1];
	}
}

/*---- Declaring and changing ----*/

/* Returns true if both definitions have equal values in all columns of a list that ends with 0. */
static bool
is_same(Relation rel, const DwDefinition *a, const DwDefinition *b, const AttrNumber *columns)
{
	for (; *columns != 0; columns++)
	{
		int			i = *columns - 1;
		Form_pg_attribute attr = TupleDescAttr(RelationGetDescr(rel), i);

		if (a->nulls[i] != b->nulls[i] ||
			(!a->nulls[i] && !datum_image_eq(a->values[i], b->values[i], attr->attbyval, attr->attlen)))
			return false;
	}
	return true;
}

/* The columns that, with the start, determine the ideal times of the runs */
static const AttrNumber interval_columns[] = {
	Anum_recurring_every, Anum_recurring_schedule, Anum_recurring_time_zone, 0
};

/* The columns that delay_every() and delay_cron() set */
static const AttrNumber declared_columns[] = {
	Anum_recurring_every, Anum_recurring_schedule, Anum_recurring_time_zone,
	Anum_recurring_starts, Anum_recurring_until, Anum_recurring_max_runs,
	Anum_recurring_catch_up, Anum_recurring_queue, Anum_recurring_priority,
	Anum_recurring_timeout, Anum_recurring_max_attempts, Anum_recurring_retry_delay,
	Anum_recurring_sql, Anum_recurring_args, Anum_recurring_arg_types,
	Anum_recurring_search_path, Anum_recurring_tag, Anum_recurring_more,
	Anum_recurring_group_key, 0
};

/* Returns the default start: one interval from now, or now for a cron schedule. */
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

/*
 * Inserts a new definition and its first run.  Returns the id of the run.  Raises an error if there
 * would be no run.  The caller has locked the name.
 */
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
	dw_definition_set_first(def, false);
	if (def->nulls[Anum_recurring_next_due - 1])
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("recurring task \"%s\" would never be run",
						TextDatumGetCString(def->values[Anum_recurring_name - 1])),
				 errdetail("Its schedule has no time from now on, or none up to %s.", "until")));
	dw_definition_insert_run(def);
	dw_table_insert(dw_catalog()->recurring, def->values, def->nulls, Natts_recurring);
	audit_definition(declaring(def), def);
	return dw_definition_number(def, Anum_recurring_task);
}

/*
 * Changes a definition that was taken together with its run.  Returns the id of the current run; 0:
 * no run.  Replaces a pending run.  The end of a running run obeys the change.  A definition that
 * came with a copy of another database is armed, so its runs will run here.
 */
static int64
change(Relation rel, DwDefinition *def, const DwDefinition *wanted, DwRecurringRun *run)
{
	static const AttrNumber limit_columns[] = {
		Anum_recurring_starts, Anum_recurring_until, Anum_recurring_max_runs, 0
	};
	bool		same_times = !def->nulls[Anum_recurring_next_due - 1] &&
		is_same(rel, def, wanted, interval_columns) && is_same(rel, def, wanted, limit_columns);

	for (int i = 0; declared_columns[i] != 0; i++)
	{
		def->values[declared_columns[i] - 1] = wanted->values[declared_columns[i] - 1];
		def->nulls[declared_columns[i] - 1] = wanted->nulls[declared_columns[i] - 1];
	}
	dw_definition_set(def, Anum_recurring_origin, Int64GetDatum(dw_origin_stamp()));
	/* the end of a running run sets the next time by the changed definition */
	if (!run->running)
	{
		if (!same_times)
			dw_definition_set_first(def, false);
		dw_definition_insert_run(def);
	}
	dw_definition_write(rel, def);
	drop_run(run);
	audit_definition(declaring(def), def);
	return dw_definition_number(def, Anum_recurring_task);
}

/*
 * Inserts a definition, or changes the definition with this name.  Returns the id of its current
 * run; 0: no run.  Does not change a definition of this database that is declared again without any
 * change.
 */
static int64
declare(DwDefinition *wanted)
{
	Relation	rel = table_open(dw_catalog()->recurring, RowExclusiveLock);
	bool		starts_given = !wanted->nulls[Anum_recurring_starts - 1];
	text	   *name = DatumGetTextPP(wanted->values[Anum_recurring_name - 1]);
	DwRecurringRun run = {0};
	DwDefinition def;
	int64		result;

	/* before the name is locked, take everything that may require a wait */
	table_close(dw_tasks_open(), NoLock);
	(void) dw_require_lane(GetUserId(), DatumGetInt16(wanted->values[Anum_recurring_queue - 1]),
						   DatumGetInt16(wanted->values[Anum_recurring_priority - 1]));
	for (;;)
	{
		if (!find_name(rel, name, true, &def))
		{
			if (!starts_given)
				dw_definition_set(wanted, Anum_recurring_starts,
								  TimestampTzGetDatum(default_starts(wanted)));
			if (dw_max_pending >= 0)
				dw_require_room(GetUserId());
			result = create(wanted);
			unlock_name();
			break;
		}
		if (!starts_given && is_same(rel, &def, wanted, interval_columns))
			dw_definition_set(wanted, Anum_recurring_starts, def.values[Anum_recurring_starts - 1]);
		else if (!starts_given)
			dw_definition_set(wanted, Anum_recurring_starts,
							  TimestampTzGetDatum(default_starts(wanted)));
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

/* Does the work of delay_every() and delay_cron(). */
static Datum
declare_from_args(FunctionCallInfo fcinfo, bool is_cron)
{
	Datum		values[Natts_recurring] = {0};
	bool		nulls[Natts_recurring];
	DwDefinition wanted = {.values = values, .nulls = nulls};
	DwOptions	options;
	int64		task;

	dw_require_right_to_write(is_cron ? "delay_cron()" : "delay_every()");
	dw_options_take(fcinfo, parameters, lengthof(parameters), DW_FOR_RECURRING, &options);
	memset(nulls, true, sizeof(nulls));
	dw_definition_set(&wanted, Anum_recurring_name, PointerGetDatum(read_name(&options)));
	read_times(&options, is_cron, &wanted);
	read_limits(&options, &wanted);
	read_task(&options, &wanted);
	task = declare(&wanted);
	if (task == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(task);
}

/* SQL function delay_every(). */
Datum
dw_every(PG_FUNCTION_ARGS)
{
	return declare_from_args(fcinfo, false);
}

/* SQL function delay_cron(). */
Datum
dw_cron(PG_FUNCTION_ARGS)
{
	return declare_from_args(fcinfo, true);
}

/*---- Removing, pausing, resuming ----*/

/*
 * Checks the call of an SQL function whose only argument is a name, and takes the current user's
 * definition with this name as take_definition() does.  only_paused: a definition that is not
 * paused is only read, without locking it or taking its run.  Returns the open table of
 * definitions, or NULL if there is no such definition.
 */
static Relation
take_named(FunctionCallInfo fcinfo, const char *function, bool only_paused, DwDefinition *def,
		   DwRecurringRun *run)
{
	Relation	rel;

	dw_require_right_to_write(function);
	dw_refuse_null(PG_ARGISNULL(0), "name");
	rel = table_open(dw_catalog()->recurring, RowExclusiveLock);
	memset(run, 0, sizeof(DwRecurringRun));
	do
	{
		if (!find_name(rel, PG_GETARG_TEXT_PP(0), false, def))
		{
			table_close(rel, NoLock);
			return NULL;
		}
		if (only_paused && !dw_definition_is_paused(def))
			break;
	} while (!take_definition(rel, def, run));
	return rel;
}

/*
 * SQL function delay_unschedule(): removes a recurring task.  Returns false if there is no such
 * task.
 */
Datum
dw_unschedule(PG_FUNCTION_ARGS)
{
	DwDefinition def;
	DwRecurringRun run;
	Relation	rel = take_named(fcinfo, "delay_unschedule()", false, &def, &run);

	if (rel == NULL)
		PG_RETURN_BOOL(false);
	dw_definition_delete(rel, &def);
	drop_run(&run);
	audit_definition("unschedule", &def);
	table_close(rel, NoLock);
	PG_RETURN_BOOL(true);
}

/* SQL function delay_pause_recurring().  Returns false if there is no such recurring task. */
Datum
dw_pause_recurring(PG_FUNCTION_ARGS)
{
	DwDefinition def;
	DwRecurringRun run;
	Relation	rel = take_named(fcinfo, "delay_pause_recurring()", false, &def, &run);

	if (rel == NULL)
		PG_RETURN_BOOL(false);
	dw_definition_set(&def, Anum_recurring_paused, BoolGetDatum(true));
	if (!run.running)
		def.nulls[Anum_recurring_task - 1] = true;
	dw_definition_write(rel, &def);
	drop_run(&run);
	audit_definition("pause_recurring", &def);
	table_close(rel, NoLock);
	PG_RETURN_BOOL(true);
}

/* SQL function delay_resume_recurring().  Returns false if there is no such recurring task. */
Datum
dw_resume_recurring(PG_FUNCTION_ARGS)
{
	DwDefinition def;
	DwRecurringRun run;
	Relation	rel = take_named(fcinfo, "delay_resume_recurring()", true, &def, &run);

	if (rel == NULL)
		PG_RETURN_BOOL(false);
	if (dw_definition_is_paused(&def))
	{
		dw_definition_set(&def, Anum_recurring_paused, BoolGetDatum(false));
		if (!run.running)
		{
			if (!def.nulls[Anum_recurring_next_due - 1])
				dw_definition_set_first(&def, true);
			if (dw_max_pending >= 0)
				dw_require_room(GetUserId());
			dw_definition_insert_run(&def);
		}
		dw_definition_write(rel, &def);
		drop_run(&run);
		audit_definition("resume_recurring", &def);
	}
	table_close(rel, NoLock);
	PG_RETURN_BOOL(true);
}
