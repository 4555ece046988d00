/*-------------------------------------------------------------------------
 *
 * new_task.c
 *	  One new task: its due time, its checks, and its row.
 *
 * Run by sessions that schedule, and by executors whose task causes another one: a
 * follow-up (options on_success and on_failure), or the next run of a recurring task.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "datatype/timestamp.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/inject.h"
#include "../base/settings.h"
#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../shmem/committing.h"
#include "../statement/statement.h"
#include "task.h"
#include "touched.h"

/*
 * Raises an error if due + expires is out of the range of timestamps.  expires is an
 * interval.
 */
void
dw_check_expires(TimestampTz due, Datum expires)
{
	(void) DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(due), expires);
}

/*
 * Returns the time that delays count from: now(), the start of the transaction, or the
 * due time that delay_run_due() has reached, if that is later (see backend/run_now.c).
 */
TimestampTz
dw_schedule_now(void)
{
	return Max(GetCurrentTransactionStartTimestamp(), dw_run_now_clock);
}

/* Returns the due time after a delay; an error if it is not finite. */
TimestampTz
dw_due_after(const Interval *delay)
{
	TimestampTz due;

	due = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
												  TimestampTzGetDatum(dw_schedule_now()),
												  IntervalPGetDatum(delay)));
	if (TIMESTAMP_NOT_FINITE(due))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("delay must not be infinite")));
	return due;
}

/*
 * Returns the interval that a text means, read as a literal would be.  It is kept: an
 * application schedules with the same few delays again and again.
 */
static Interval *
interval_of_text(const text *delay)
{
	static char kept_text[32];
	static bool is_kept = false;
	static int	kept_length;
	static int	kept_style;
	static Interval kept;
	int			length = VARSIZE_ANY_EXHDR(delay);
	Interval   *result;

	if (is_kept && length == kept_length && kept_style == IntervalStyle &&
		memcmp(VARDATA_ANY(delay), kept_text, length) == 0)
		return &kept;
	result = DatumGetIntervalP(DirectFunctionCall3(interval_in, CStringGetDatum(text_to_cstring(delay)),
												   ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
	if (length <= sizeof(kept_text))
	{
		memcpy(kept_text, VARDATA_ANY(delay), length);
		kept_length = length;
		kept_style = IntervalStyle;
		kept = *result;
		is_kept = true;
	}
	return result;
}

/* Returns the due time after a delay that is given as text, as dw_due_after() does. */
TimestampTz
dw_due_after_text(const text *delay)
{
	return dw_due_after(interval_of_text(delay));
}

/* Returns the due time as it is; an error if it is not finite. */
TimestampTz
dw_finite_due(TimestampTz due)
{
	if (TIMESTAMP_NOT_FINITE(due))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("due time must not be infinite")));
	return due;
}

/*
 * Fills *task: a task of the current user, in the default queue, due at once after the
 * commit.  sql is NULL for a message.
 */
void
dw_new_task_init(DwNewTask *task, text *sql)
{
	memset(task, 0, sizeof(DwNewTask));
	memset(task->nulls, true, sizeof(task->nulls));
	task->owner = GetUserId();
	task->due = dw_schedule_now();
	task->check = dw_check_sql_text;
	task->values[Anum_task_sql - 1] = PointerGetDatum(sql);
	task->nulls[Anum_task_sql - 1] = sql == NULL;
}

/* Sets a column of the task's row. */
void
dw_new_task_set(DwNewTask *task, AttrNumber column, Datum value, bool isnull)
{
	task->values[column - 1] = value;
	task->nulls[column - 1] = isnull;
}

/* Returns the value that the task keeps of a setting, NULL if it keeps none. */
static const char *
kept_value(const Jsonb *settings, DwLoginSetting setting)
{
	const char *name = dw_login_settings[setting];
	JsonbValue	value;

	if (settings == NULL ||
		getKeyJsonValueFromContainer(unconstify(JsonbContainer *, &settings->root), name, strlen(name), &value) == NULL ||
		value.type != jbvString)
		return NULL;
	return pnstrdup(value.val.string.val, value.val.string.len);
}

/* Returns the settings that the task keeps, NULL if there are none. */
static Jsonb *
kept_settings(const DwNewTask *task)
{
	return dw_more_object(task->values, task->nulls, Anum_task_more, DW_MORE_SETTINGS);
}

/*
 * Keeps with the task what this session has and a new one of its owner would not have: its
 * search_path, and other settings that decide how its text is read (login.c), or that of
 * its follow-ups.  Also keeps the settings that are named, by the task, its queue or
 * delay_wheel.keep_settings.  Replaces values that the task has kept before.
 */
void
dw_new_task_keep(DwNewTask *task)
{
	const DwLogin *login = dw_login(task->owner);
	bool		has_sql = !task->nulls[Anum_task_sql - 1];
	const char *reading[DW_LOGIN_SETTINGS] = {0};
	int			n = 0;
	Jsonb	   *before;
	Jsonb	   *settings;

	if (dw_login_differs(login, DW_SEARCH_PATH))
		dw_new_task_set(task, Anum_task_search_path, CStringGetTextDatum(namespace_search_path),
						false);
	if (!has_sql &&
		!dw_more_has(task->values, task->nulls, Anum_task_more, DW_MORE_ON_SUCCESS) &&
		!dw_more_has(task->values, task->nulls, Anum_task_more, DW_MORE_ON_FAILURE))
		return;
	before = kept_settings(task);
	for (int i = DW_SEARCH_PATH + 1; i < DW_LOGIN_SETTINGS; i++)
		if (dw_login_differs(login, i) || kept_value(before, i) != NULL)
			reading[n++] = dw_login_settings[i];
	settings = dw_kept_settings_take(!has_sql ? NULL : task->keep_settings ? task->keep_settings :
									 dw_kept_settings_default(), reading, n);
	if (settings == NULL)
		return;
	if (before != NULL)
		settings = DatumGetJsonbP(DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(before), JsonbPGetDatum(settings)));
	dw_more_set_object(task->values, task->nulls, Anum_task_more, DW_MORE_SETTINGS, settings);
}

/*
 * Returns the name of a setting, other than search_path, by which the task's text is read
 * otherwise than this session reads; NULL if there is none.
 */
const char *
dw_new_task_reads_otherwise(const DwNewTask *task)
{
	const DwLogin *login = dw_login(task->owner);
	const Jsonb *settings = kept_settings(task);

	for (int i = DW_SEARCH_PATH + 1; i < DW_LOGIN_SETTINGS; i++)
	{
		const char *name = dw_login_settings[i];
		const char *kept = kept_value(settings, i);

		if (kept == NULL ? dw_login_differs(login, i) : strcmp(kept, GetConfigOptionByName(name, NULL, false)) != 0)
			return name;
	}
	return NULL;
}

/*
 * Raises an error if the task cannot be scheduled: its SQL, which has nargs arguments, or
 * its latest due time.  How the SQL is checked says task->check; it is not parsed if nargs
 * is DW_SQL_CHECKED, as for a message.  To be planned it must be that of the current user.
 */
void
dw_new_task_check(DwNewTask *task, int nargs)
{
	TimestampTz latest = task->due;

	if (task->check != DW_CHECK_OFF && nargs != DW_SQL_CHECKED)
	{
		const text *sql = DatumGetTextPP(task->values[Anum_task_sql - 1]);

		if (dw_mode(task->values, task->nulls) != DW_IN_TRANSACTION)
			dw_check_sql_autonomous(sql, nargs);
		else
			dw_check_sql(sql, nargs);
	}
	if (task->check == DW_CHECK_PLAN && !task->nulls[Anum_task_sql - 1])
		dw_check_plan(DatumGetTextPP(task->values[Anum_task_sql - 1]),
					  task->values[Anum_task_args - 1], task->nulls[Anum_task_args - 1],
					  task->values[Anum_task_arg_types - 1], task->nulls[Anum_task_arg_types - 1]);
	if (task->spread > 0)
		latest = dw_finite_due(dw_time_add(latest, task->spread));
	if (!task->nulls[Anum_task_expires - 1])
		dw_check_expires(latest, task->values[Anum_task_expires - 1]);
}

/*
 * Returns when the task is due if it has this id.  The queue's spread goes by a hash of the id:
 * a task that is put back is moved as far again.
 */
TimestampTz
dw_new_task_due(const DwNewTask *task, int64 id)
{
	if (task->spread == 0)
		return task->due;
	return task->due + hash_bytes_extended((unsigned char *) &id, sizeof(id), 0) % task->spread;
}

/*
 * Draws an id and writes the row; after the commit, the timer hears of the task.
 * Returns the id.  rel is delay_wheel_data.task, locked for writing; lane is the task's lane,
 * or dw_no_lane.
 */
int64
dw_new_task_insert(Relation rel, DwNewTask *task, DwLaneRef lane)
{
	Datum	   *values = task->values;
	bool	   *nulls = task->nulls;
	DwHint		hint = {.lane = lane};

	dw_writes_for(task->owner);
	hint.id = nextval_internal(dw_catalog()->task_id_seq, false);
	task->due = hint.due = dw_new_task_due(task, hint.id);

	values[Anum_task_id - 1] = Int64GetDatum(hint.id);
	values[Anum_task_due - 1] = TimestampTzGetDatum(hint.due);
	values[Anum_task_origin - 1] = Int64GetDatum(dw_origin_stamp());
	values[Anum_task_owner - 1] = ObjectIdGetDatum(task->owner);
	values[Anum_task_queue - 1] = Int16GetDatum(task->queue);
	values[Anum_task_priority - 1] = Int16GetDatum(task->priority);
	for (int i = Anum_task_id; i <= Anum_task_priority; i++)
		nulls[i - 1] = false;

	DW_INJECT("schedule-before-insert");
	hint.tid = dw_task_insert(rel, values, nulls);
	dw_touch_row(&hint, DW_TOUCH_WRITTEN);
	DW_INJECT("schedule-after-insert");
	return hint.id;
}

/*
 * Schedules a task that follows one that ends, and returns its id.  Its SQL
 * was checked when the first task was scheduled.  No limit applies: neither of pending
 * tasks nor of lanes.
 */
int64
dw_schedule_successor(DwNewTask *task)
{
	DwLaneRef	lane = dw_lane_if_any(task->owner, task->queue, task->priority);
	Relation	rel = dw_tasks_open();
	int64		id = dw_new_task_insert(rel, task, lane);

	table_close(rel, NoLock);
	return id;
}
