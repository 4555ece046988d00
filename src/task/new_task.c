/*-------------------------------------------------------------------------
 *
 * new_task.c
 *	  A new task: its due time, its checks, and its row.
 *
 * Run by sessions that schedule, and by executors whose task causes another task: a follow-up
 * (options on_success and on_failure), or the next run of a recurring task.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "utils/builtins.h"

#include "../base/compat.h"
#include "../base/inject.h"
#include "../base/wing.h"
#include "task.h"

/* Raises an error if due + expires, an interval, is out of the range of timestamps. */
void
dw_check_expires(TimestampTz due, Datum expires)
{
	(void) DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(due), expires);
}

/*
 * Returns the time from which delays count: now() (the start of the transaction), or the due time
 * that delay_run_due() has reached, if that is later (see backend/run_now.c).
 */
TimestampTz
dw_schedule_now(void)
{
	return Max(GetCurrentTransactionStartTimestamp(), dw_run_now_clock);
}

/* Returns the due time after a delay.  Raises an error if the due time is not finite. */
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

/* The characters that interval_in() skips before and after a number. */
#define BLANKS " \t\n\r\f\v"

/*
 * Raises an error if the text of an interval ends in a number without a unit (except zero).  The
 * number would mean seconds, but a program may have passed milliseconds.
 */
static void
refuse_number(const char *text, const char *what)
{
	const char *first = text + strspn(text, BLANKS);
	const char *end = text + strlen(text);
	const char *number;
	int			dots = 0;

	/* interval_in() ignores other characters */
	while (end > text && !isalnum((unsigned char) end[-1]))
		end--;
	number = end;
	while (number > text && (isdigit((unsigned char) number[-1]) || number[-1] == '.'))
		dots += *--number == '.';
	if (dots > 1 || strspn(number, "0.") >= end - number)
		return;
	/* PT5, 12:30, 1-2 (a year and two months), and 28.03.2027, which is an error of interval_in() */
	if (number > text && (isalpha((unsigned char) number[-1]) || number[-1] == ':' ||
						  (number[-1] == '-' && number - 1 > text && isdigit((unsigned char) number[-2]))))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_DATETIME_FORMAT),
			 errmsg("%s has no unit: \"%s\"", what, text),
			 errhint("Write '%.*s seconds', or use another unit.", (int) (end - first), first)));
}

/*
 * Reads a text like a literal of type interval, but raises an error for a number without a unit.
 * what: the name of the interval for the message.
 */
Interval *
dw_interval_of_text(const char *text, const char *what)
{
	refuse_number(text, what);
	return DatumGetIntervalP(DirectFunctionCall3(interval_in, CStringGetDatum(text),
												 ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
}

/* Error context callback of read_when(): adds a hint. */
static void
when_callback(void *arg)
{
	if (geterrcode() == ERRCODE_INVALID_DATETIME_FORMAT)
		errhint("A text is a delay, such as '48 hours', or a point in time if it begins with its date, such as '2027-03-01 09:00'.");
}

/* Calls the input function of interval or timestamptz. */
static Datum
read_when(PGFunction input, const char *text)
{
	ErrorContextCallback callback = {
		.previous = error_context_stack,
		.callback = when_callback
	};
	Datum		result;

	error_context_stack = &callback;
	result = DirectFunctionCall3(input, CStringGetDatum(text), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
	error_context_stack = callback.previous;
	return result;
}

/* Returns the delay of a text, and remembers it: applications use the same few delays often. */
static Interval *
delay_of_text(const text *delay)
{
	static char kept_text[32];
	static bool is_kept = false;
	static int	kept_length;
	static int	kept_style;
	static Interval kept;
	int			length = VARSIZE_ANY_EXHDR(delay);
	const char *string;
	Interval   *result;

	if (is_kept && length == kept_length && kept_style == IntervalStyle &&
		memcmp(VARDATA_ANY(delay), kept_text, length) == 0)
		return &kept;
	string = text_to_cstring(delay);
	refuse_number(string, "delay");
	result = DatumGetIntervalP(read_when(interval_in, string));
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

/*
 * Returns true if the text begins like a date: 2027-03-28, 2027/3/28 or 20270328.  Read as
 * intervals, 2027/3/28, 20270328 and 2027-03 (without a day) would mean thousands of years.
 */
static bool
begins_with_date(const char *when)
{
	const char *year = when + strspn(when, BLANKS);
	size_t		length = strspn(year, "0123456789");

	if (length >= 4 && (year[length] == '-' || year[length] == '/'))
		return true;
	return length == 8 && (year[8] == 'T' || (year[8] != '\0' && strchr(BLANKS, year[8]) != NULL)) &&
		isdigit((unsigned char) year[8 + 1 + strspn(year + 8 + 1, BLANKS)]);
}

/*
 * Returns the due time of a text: a point in time if the text begins with a date, else a delay.
 * The text is read like a literal.
 */
TimestampTz
dw_due_of_text(const text *when)
{
	const char *string = text_to_cstring(when);

	return begins_with_date(string) ? dw_finite_due(DatumGetTimestampTz(read_when(timestamptz_in, string))) :
		dw_due_after(delay_of_text(when));
}

/* Returns the due time unchanged.  Raises an error if the due time is not finite. */
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
 * Fills in *task: a task of the current user, in the default queue, which is due right after the
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

/* Sets the arguments of the task's SQL: n texts, and the OIDs of their types. */
void
dw_new_task_args(DwNewTask *task, Datum *args, bool *nulls, Datum *types, int n)
{
	int			lower = 1;

	dw_new_task_set(task, Anum_task_args,
					PointerGetDatum(construct_md_array(args, nulls, 1, &n, &lower, TEXTOID, -1, false,
													   TYPALIGN_INT)), false);
	dw_new_task_set(task, Anum_task_arg_types,
					PointerGetDatum(construct_array(types, n, REGTYPEOID, sizeof(Oid), true,
													TYPALIGN_INT)), false);
}

/* Returns the text of a key; NULL if the object is NULL, or the key has no text. */
static char *
string_of_key(const Jsonb *object, const char *key)
{
	Datum		value = PointerGetDatum(object);
	bool		isnull = object == NULL;

	return dw_more_text(&value, &isnull, 1, key);
}

/* Returns the text "traceparent" of the task's headers; NULL if there is none. */
static char *
trace_of(const DwNewTask *task)
{
	return string_of_key(dw_more_object(task->values, task->nulls, Anum_task_more, DW_MORE_HEADERS),
						 "traceparent");
}

/*
 * Stores these settings, which may be NULL, with the task.  The traceparent of an SQL task's
 * headers replaces a kept value.
 */
void
dw_new_task_set_settings(DwNewTask *task, Jsonb *settings)
{
	char	   *trace = task->nulls[Anum_task_sql - 1] ? NULL : trace_of(task);
	Datum		kept = JsonbPGetDatum(settings);
	bool		none = settings == NULL;

	if (trace != NULL)
		dw_more_set_text(&kept, &none, 1, DW_TRACEPARENT, trace);
	if (!none)
		dw_more_set_object(task->values, task->nulls, Anum_task_more, DW_MORE_SETTINGS, DatumGetJsonbP(kept));
}

/* Removes the setting that came from the task's headers. */
void
dw_new_task_forget_trace(DwNewTask *task)
{
	Jsonb	   *settings = dw_more_object(task->values, task->nulls, Anum_task_more, DW_MORE_SETTINGS);
	Datum		kept = JsonbPGetDatum(settings);
	bool		none = false;

	if (settings == NULL || trace_of(task) == NULL)
		return;
	dw_more_remove(&kept, &none, 1, DW_TRACEPARENT);
	if (none)
		dw_more_remove(task->values, task->nulls, Anum_task_more, DW_MORE_SETTINGS);
	else
		dw_more_set_object(task->values, task->nulls, Anum_task_more, DW_MORE_SETTINGS, DatumGetJsonbP(kept));
}

/*
 * Stores settings of this session with the task if a new session of the owner would have other
 * values: search_path, and other settings by which the texts of the task and its follow-ups are
 * read (login.c).  Also stores the settings that the task, its queue or delay_wheel.keep_settings
 * names.  Replaces values that were stored before.
 */
void
dw_new_task_keep(DwNewTask *task)
{
	bool		has_sql = !task->nulls[Anum_task_sql - 1];
	bool		has_text = has_sql ||
		dw_more_has(task->values, task->nulls, Anum_task_more, DW_MORE_ON_SUCCESS) ||
		dw_more_has(task->values, task->nulls, Anum_task_more, DW_MORE_ON_FAILURE);
	const DwLogin *login;
	const char *reading[DW_LOGIN_SETTINGS] = {0};
	int			n = 0;
	Jsonb	   *before;
	Jsonb	   *settings;

	before = dw_more_object(task->values, task->nulls, Anum_task_more, DW_MORE_SETTINGS);
	login = dw_login(task->owner);
	if (dw_login_differs(login, DW_SEARCH_PATH))
		dw_new_task_set(task, Anum_task_search_path, CStringGetTextDatum(namespace_search_path),
						false);
	if (!has_text)
		return;
	for (int i = DW_SEARCH_PATH + 1; i < DW_LOGIN_SETTINGS; i++)
		if (dw_login_differs(login, i) ||
			(before != NULL && string_of_key(before, dw_login_settings[i]) != NULL))
			reading[n++] = dw_login_settings[i];
	settings = dw_kept_settings_take(!has_sql ? NULL : task->keep_settings ? task->keep_settings :
									 dw_kept_settings_default(), reading, n);
	if (settings == NULL)
		return;
	if (before != NULL)
		settings = DatumGetJsonbP(DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(before), JsonbPGetDatum(settings)));
	dw_new_task_set_settings(task, settings);
}

/*
 * Returns the name of a setting (not search_path) that changes the meaning of the task's text
 * compared with this session; NULL if no setting does.
 */
const char *
dw_new_task_reads_otherwise(const DwNewTask *task)
{
	const DwLogin *login = dw_login(task->owner);
	const Jsonb *settings = dw_more_object(task->values, task->nulls, Anum_task_more, DW_MORE_SETTINGS);

	for (int i = DW_SEARCH_PATH + 1; i < DW_LOGIN_SETTINGS; i++)
	{
		const char *name = dw_login_settings[i];
		const char *kept = string_of_key(settings, name);

		if (kept == NULL ? dw_login_differs(login, i) : strcmp(kept, GetConfigOptionByName(name, NULL, false)) != 0)
			return name;
	}
	return NULL;
}

/* Raises an error if the task's owner is a superuser and tasks of superusers are switched off. */
void
dw_refuse_superuser(Oid owner)
{
	if (!dw_superuser_tasks && superuser_arg(owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("tasks of superusers are switched off"),
				 errdetail("\"%s\" is off.", "delay_wheel.superuser_tasks"),
				 errhint("Use SET ROLE, and schedule the task as a role that is no superuser.")));
}

/*
 * Raises an error if the task cannot be scheduled because of its SQL (with nargs arguments) or its
 * latest due time.  task->check decides how the SQL is checked; if nargs is DW_SQL_CHECKED, as for
 * a message, the SQL is not parsed.  Only SQL of the current user can be planned.
 */
void
dw_new_task_check(DwNewTask *task, int nargs)
{
	TimestampTz latest;

	dw_refuse_superuser(task->owner);
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
	latest = dw_finite_due(dw_time_add(task->due, task->spread));
	if (!task->nulls[Anum_task_expires - 1])
		dw_check_expires(latest, task->values[Anum_task_expires - 1]);
}

/*
 * Returns when a task with this id is due.  The spread of a task is a hash of its id, so a task
 * that is put back gets the same spread again.
 */
TimestampTz
dw_new_task_due(const DwNewTask *task, int64 id)
{
	if (task->spread == 0)
		return task->due;
	return task->due + hash_bytes_extended((unsigned char *) &id, sizeof(id), 0) % task->spread;
}

/*
 * Draws the id of a task, and fills in the columns that every row has.  Returns the timer's hint,
 * still without the TID.
 */
static DwHint
number_task(DwNewTask *task)
{
	Datum	   *values = task->values;
	DwHint		hint = {.lane = task->lane};

	hint.id = nextval_internal(dw_catalog()->task_id_seq, false);
	task->due = hint.due = dw_new_task_due(task, hint.id);

	values[Anum_task_id - 1] = Int64GetDatum(hint.id);
	values[Anum_task_due - 1] = TimestampTzGetDatum(hint.due);
	values[Anum_task_origin - 1] = Int64GetDatum(dw_origin_stamp());
	values[Anum_task_owner - 1] = ObjectIdGetDatum(task->owner);
	values[Anum_task_queue - 1] = Int16GetDatum(task->queue);
	values[Anum_task_priority - 1] = Int16GetDatum(task->priority);
	for (int i = Anum_task_id; i <= Anum_task_priority; i++)
		task->nulls[i - 1] = false;
	return hint;
}

/* Notes a row that was written, and tells the wings about the task. */
static void
tell_written(DwNewTask *task, const DwHint *hint)
{
	dw_touch_row(hint, DW_TOUCH_WRITTEN);
	if (!task->nulls[Anum_task_more - 1])
		dw_each_wing(wing, task_scheduled)
			wing->task_scheduled(task->owner, task->values, task->nulls, task->by_engine);
}

/*
 * Draws an id, writes the row, and returns the id.  After the commit, the timer gets a hint.  rel
 * is delay_wheel_data.task, locked for writing; task->lane is the task's lane, or no lane.  The
 * caller has called dw_writes_for().
 */
int64
dw_new_task_insert(Relation rel, DwNewTask *task)
{
	DwHint		hint = number_task(task);

	DW_INJECT("schedule-before-insert");
	hint.tid = dw_task_insert(rel, task->values, task->nulls);
	tell_written(task, &hint);
	DW_INJECT("schedule-after-insert");
	return hint.id;
}

/* Does the same for n tasks, whose rows are written together.  Returns the id of the last task. */
int64
dw_new_tasks_insert(Relation rel, DwNewTask *tasks, int n)
{
	DwHint	   *hints = palloc(n * sizeof(DwHint));
	DwTaskRow  *rows = palloc(n * sizeof(DwTaskRow));

	for (int i = 0; i < n; i++)
	{
		hints[i] = number_task(&tasks[i]);
		rows[i].values = tasks[i].values;
		rows[i].nulls = tasks[i].nulls;
	}
	DW_INJECT("schedule-before-insert");
	dw_tasks_insert(rel, rows, n);
	for (int i = 0; i < n; i++)
	{
		hints[i].tid = rows[i].tid;
		tell_written(&tasks[i], &hints[i]);
	}
	DW_INJECT("schedule-after-insert");
	return hints[n - 1].id;
}

/*
 * Schedules the successor of a task that ends, and returns the successor's id.  The successor's SQL
 * was checked when the first task was scheduled.  The limits of pending tasks and lanes do not
 * apply.
 */
int64
dw_schedule_successor(DwNewTask *task)
{
	Relation	rel = dw_tasks_open();
	int64		id;

	task->lane = dw_lane_if_any(task->owner, task->queue, task->priority);
	task->by_engine = true;
	dw_writes_for(task->owner);
	id = dw_new_task_insert(rel, task);
	table_close(rel, NoLock);
	return id;
}
