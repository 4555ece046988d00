/*-------------------------------------------------------------------------
 *
 * commands.c
 *	  SQL functions that declare, change, remove, pause, resume and show recurring tasks, and
 *	  delay_wheel.cron_times().
 *
 * Run by sessions, and by executors whose tasks call these functions.  README.md describes
 * definitions, their runs, and the order of locks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "commands/sequence.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../backend/backend.h"
#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/signature.h"
#include "../observe/views.h"
#include "../task/options.h"
#include "recurring.h"

PG_FUNCTION_INFO_V1(dw_cron_times);
PG_FUNCTION_INFO_V1(dw_every);
PG_FUNCTION_INFO_V1(dw_cron);
PG_FUNCTION_INFO_V1(dw_unschedule);
PG_FUNCTION_INFO_V1(dw_pause_recurring);
PG_FUNCTION_INFO_V1(dw_resume_recurring);
PG_FUNCTION_INFO_V1(dw_get_recurring);

/* Class of the advisory locks on names; task/key_lock.c and task/row_lock.c have other classes */
#define NAME_LOCK_CLASS	0xDE1C

/* Maximum number of times in the result of cron_times(). */
#define MAX_TIMES	10000

/* A run is overdue if it was due longer ago than this time, in us. */
#define OVERDUE_US		(60 * USECS_PER_SEC)

/*---- Cron schedules and time zones ----*/

/* Reads a schedule that a user wrote.  Raises an error if the text is not a schedule. */
static void
read_cron(const char *text, DwCron *cron)
{
	const char *problem;
	const char *hint;

	if (!dw_cron_parse(text, cron, &problem, &hint))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid cron schedule: \"%.*s\"",
						pg_mbcliplen(text, strlen(text), DW_MAX_CRON), text),
				 errdetail("%s", problem),
				 errhint("%s", hint)));
}

/*
 * Returns the time zone with a name that a user wrote.  Raises an error if there is no such zone,
 * or if PostgreSQL refuses it (a zone with leap seconds).
 */
pg_tz *
dw_time_zone(const char *name)
{
	pg_tz	   *zone = pg_tzset(name);

	if (zone == NULL || !pg_tz_acceptable(zone))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%.*s\" not recognized",
						pg_mbcliplen(name, strlen(name), TZ_STRLEN_MAX), name),
				 errhint("Names are in the view %s.", "pg_timezone_names")));
	return zone;
}

/*
 * delay_wheel.cron_times(schedule, timezone, after, n): returns the next n times of a schedule
 * after a time.  A null time zone means the session's zone.
 */
Datum
dw_cron_times(PG_FUNCTION_ARGS)
{
	DwCron		cron;
	pg_tz	   *zone;
	TimestampTz t;
	int			n;

	dw_refuse_null(PG_ARGISNULL(0), "schedule");
	dw_refuse_null(PG_ARGISNULL(2), "after");
	dw_refuse_null(PG_ARGISNULL(3), "n");
	read_cron(text_to_cstring(PG_GETARG_TEXT_PP(0)), &cron);
	zone = PG_ARGISNULL(1) ? session_timezone : dw_time_zone(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	t = PG_GETARG_TIMESTAMPTZ(2);
	if (TIMESTAMP_NOT_FINITE(t))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("after must be finite"),
				 errhint("The function returns the times after this time.")));
	n = PG_GETARG_INT32(3);
	if (n < 1 || n > MAX_TIMES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("n must be between %d and %d", 1, MAX_TIMES),
				 errhint("For later times, pass a later value of after.")));

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int i = 0; i < n && dw_cron_next(&cron, zone, t, &t); i++)
	{
		CHECK_FOR_INTERRUPTS();
		dw_put_row(fcinfo, DW_TIME(t));
	}
	return (Datum) 0;
}

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
 * The current run of a definition that this session wants to change.  The session has deleted the
 * row of the run, unless an executor has the run.
 */
typedef struct Run
{
	int64		id;				/* task id of the run; 0: the definition has no run */
	bool		running;		/* an executor has the run, so the session does not touch it */
	HeapTuple	taken;			/* row of the run, if this session has deleted it, else NULL */
	DwTaskKey	key;			/* key of this row */
} Run;

/*
 * Takes the run that the definition names, if the run is pending: deletes its row.  Fills in *run,
 * which must be all zeros before, or the result of an earlier call.
 */
static void
take_run(const DwDefinition *def, Run *run)
{
	int64		id = dw_definition_number(def, Anum_recurring_task);
	Relation	rel;
	HeapTuple	found;

	/* an earlier call took the run, but then the definition had changed */
	if (run->taken != NULL && run->id == id)
		return;
	memset(run, 0, sizeof(Run));
	run->id = id;
	if (id == 0)
		return;
	rel = dw_tasks_open();
	found = dw_task_find(rel, id, NULL);
	if (found == NULL || dw_definition_has_task(def, rel, found))
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
 * Takes the run of a definition, and locks the definition's row.  Returns false if the definition
 * has changed since it was read.  Then the caller looks again, with the same *run.
 */
static bool
take_definition(Relation rel, const DwDefinition *def, Run *run)
{
	take_run(def, run);
	if (dw_definition_lock(rel, def, LockWaitBlock) != TM_Ok)
		return false;
	/* check under the lock, since the end of such a run needs the lock, too */
	if (run->id != 0 && run->taken == NULL && !run->running)
		run->running = dw_runs_without_row(run->id);
	return true;
}

/* Ends the run that was taken, if any, as cancelled. */
static void
drop_run(Run *run)
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

		read_cron(dw_option_cstring(options, WHEN), &cron);
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

/*
 * The columns that delay_every() and delay_cron() set.  The first ones, with the start, determine
 * the ideal times of the runs.
 */
static const AttrNumber declared_columns[] = {
	Anum_recurring_every, Anum_recurring_schedule, Anum_recurring_time_zone,
	Anum_recurring_starts, Anum_recurring_until, Anum_recurring_max_runs,
	Anum_recurring_catch_up, Anum_recurring_queue, Anum_recurring_priority,
	Anum_recurring_timeout, Anum_recurring_max_attempts, Anum_recurring_retry_delay,
	Anum_recurring_sql, Anum_recurring_args, Anum_recurring_arg_types,
	Anum_recurring_search_path, Anum_recurring_tag, Anum_recurring_more,
	Anum_recurring_group_key
};

#define INTERVAL_COLUMNS	3	/* up to time_zone */
#define TIMES_COLUMNS		6	/* up to max_runs */

/* Returns true if both definitions have equal values in the first n of these columns. */
static bool
is_same(Relation rel, const DwDefinition *a, const DwDefinition *b, int n)
{
	for (int column = 0; column < n; column++)
	{
		int			i = declared_columns[column] - 1;
		Form_pg_attribute attr = TupleDescAttr(RelationGetDescr(rel), i);

		if (a->nulls[i] != b->nulls[i] ||
			(!a->nulls[i] && !datum_image_eq(a->values[i], b->values[i], attr->attbyval, attr->attlen)))
			return false;
	}
	return true;
}

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
change(Relation rel, DwDefinition *def, const DwDefinition *wanted, Run *run)
{
	bool		same_times = !def->nulls[Anum_recurring_next_due - 1] &&
		is_same(rel, def, wanted, TIMES_COLUMNS);

	for (int i = 0; i < lengthof(declared_columns); i++)
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
	Run run = {0};
	DwDefinition def;
	int64		result;

	/* before the name is locked, take everything that may require a wait */
	table_close(dw_tasks_open(), NoLock);
	(void) dw_require_lane(GetUserId(), DatumGetInt16(wanted->values[Anum_recurring_queue - 1]),
						   DatumGetInt16(wanted->values[Anum_recurring_priority - 1]));
	for (;;)
	{
		bool		found = find_name(rel, name, true, &def);

		if (!starts_given)
			dw_definition_set(wanted, Anum_recurring_starts,
							  found && is_same(rel, &def, wanted, INTERVAL_COLUMNS) ?
							  def.values[Anum_recurring_starts - 1] :
							  TimestampTzGetDatum(default_starts(wanted)));
		if (!found)
		{
			if (dw_max_pending >= 0)
				dw_require_room(GetUserId());
			result = create(wanted);
			unlock_name();
			break;
		}
		if (dw_definition_is_armed(&def) &&
			is_same(rel, &def, wanted, lengthof(declared_columns)))
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
		   Run *run)
{
	Relation	rel;

	dw_require_right_to_write(function);
	dw_refuse_null(PG_ARGISNULL(0), "name");
	rel = table_open(dw_catalog()->recurring, RowExclusiveLock);
	memset(run, 0, sizeof(Run));
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

/* Ends a change of a definition that take_named() has taken.  Returns true. */
static Datum
end_change(Relation rel, const DwDefinition *def, Run *run, const char *what)
{
	drop_run(run);
	audit_definition(what, def);
	table_close(rel, NoLock);
	PG_RETURN_BOOL(true);
}

/*
 * SQL function delay_unschedule(): removes a recurring task.  Returns false if there is no such
 * task.
 */
Datum
dw_unschedule(PG_FUNCTION_ARGS)
{
	DwDefinition def;
	Run			run;
	Relation	rel = take_named(fcinfo, "delay_unschedule()", false, &def, &run);

	if (rel == NULL)
		PG_RETURN_BOOL(false);
	dw_definition_delete(rel, &def);
	return end_change(rel, &def, &run, "unschedule");
}

/* SQL function delay_pause_recurring().  Returns false if there is no such recurring task. */
Datum
dw_pause_recurring(PG_FUNCTION_ARGS)
{
	DwDefinition def;
	Run			run;
	Relation	rel = take_named(fcinfo, "delay_pause_recurring()", false, &def, &run);

	if (rel == NULL)
		PG_RETURN_BOOL(false);
	dw_definition_set(&def, Anum_recurring_paused, BoolGetDatum(true));
	if (!run.running)
		def.nulls[Anum_recurring_task - 1] = true;
	dw_definition_write(rel, &def);
	return end_change(rel, &def, &run, "pause_recurring");
}

/* SQL function delay_resume_recurring().  Returns false if there is no such recurring task. */
Datum
dw_resume_recurring(PG_FUNCTION_ARGS)
{
	DwDefinition def;
	Run			run;
	Relation	rel = take_named(fcinfo, "delay_resume_recurring()", true, &def, &run);

	if (rel == NULL)
		PG_RETURN_BOOL(false);
	if (!dw_definition_is_paused(&def))
	{
		table_close(rel, NoLock);
		PG_RETURN_BOOL(true);
	}
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
	return end_change(rel, &def, &run, "resume_recurring");
}

/*---- The view "recurring_status": recurring tasks with problems ----*/

/*
 * Returns the due time of a run, which is not the ideal time if the run was moved or is tried
 * again.  Returns the ideal time if the table of tasks is locked: a reader of the view must not
 * wait for a command that rewrites the table.
 */
static TimestampTz
due_of_run(int64 task, TimestampTz ideal)
{
	Oid			index = dw_catalog()->task_pkey;
	Relation	rel = dw_open_if_free(dw_catalog()->task);
	TimestampTz due = ideal;
	HeapTuple	tuple;

	if (rel == NULL)
		return ideal;
	if (ConditionalLockRelationOid(index, AccessShareLock))
	{
		tuple = dw_task_find(rel, task, GetActiveSnapshot());
		if (tuple != NULL)
			due = DatumGetTimestampTz(dw_row_column(rel, tuple, Anum_task_due));
		UnlockRelationOid(index, AccessShareLock);
	}
	table_close(rel, AccessShareLock);
	return due;
}

/*
 * Adds a definition to the result.  The last column is the due time of an overdue run, which may be
 * running.
 */
static void
put_definition(FunctionCallInfo fcinfo, const DwDefinition *def)
{
	TimestampTz latest = dw_now() - OVERDUE_US;
	int64		task = dw_definition_number(def, Anum_recurring_task);
	bool		ends = def->nulls[Anum_recurring_next_due - 1];
	TimestampTz ended = dw_definition_time(def, Anum_recurring_last_ended);
	TimestampTz due = task == 0 || ends ? DW_NEVER :
		dw_definition_time(def, Anum_recurring_next_due);
	const char *outcome = "";

	if (!def->nulls[Anum_recurring_last_outcome - 1])
		outcome = TextDatumGetCString(def->values[Anum_recurring_last_outcome - 1]);
	if (due < latest)
		due = due_of_run(task, due);
	dw_put_row(fcinfo, DW_ROLE(dw_definition_owner(def)), dw_null_if(task == 0, DW_INT8(task)),
			   /* the last run failed, or an error has ended the runs */
			   DW_BOOL(strcmp(outcome, "failed") == 0 ||
					   (ends && !def->nulls[Anum_recurring_last_error - 1])),
			   DW_BOOL(strcmp(outcome, "skipped") == 0),
			   DW_BOOL(!ends && dw_definition_is_paused(def)),
			   dw_null_if(ended == DT_NOBEGIN, DW_TIME(ended)),
			   dw_null_if(due >= latest, DW_TIME(due)));
}

/*
 * The function behind the view "recurring_status": returns a row for each recurring task of this
 * database that the user may watch, except definitions that came with a copy, and so have no runs
 * here.  The view is for monitoring programs, whose role may see no texts of other roles, so it has
 * no names, SQL or errors.
 */
Datum
dw_get_recurring(PG_FUNCTION_ARGS)
{
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;

	InitMaterializedSRF(fcinfo, 0);
	dw_require_shared();
	rel = table_open(dw_catalog()->recurring, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		DwDefinition def;

		CHECK_FOR_INTERRUPTS();
		if (!dw_may_watch(DatumGetObjectId(dw_row_column(rel, tuple, Anum_recurring_owner))))
			continue;
		dw_definition_read(rel, tuple, &def);
		if (dw_definition_is_armed(&def))
			put_definition(fcinfo, &def);
		pfree(def.values);
		pfree(def.nulls);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return (Datum) 0;
}
