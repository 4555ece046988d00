/*-------------------------------------------------------------------------
 *
 * options.c
 *	  Makes a task of the arguments of delay_schedule_task().
 *
 * Run by sessions that schedule tasks, and by executors whose tasks do so.  The
 * functions that declare queues and recurring tasks have some of the same options.  A null
 * always means that the option is not given.  Values that an executor could not use
 * later are refused here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/settings.h"
#include "../base/signature.h"
#include "../ending/ending.h"
#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../statement/statement.h"
#include "../task/queues.h"
#include "../task/task.h"
#include "backend.h"

/* Limit for the payload of a message, or its result, in bytes */
#define MAX_JSON		(1024 * 1024)
/* Limit for a key, a tag or a name, in bytes: an index entry must have room for a key */
#define MAX_TEXT		DW_MAX_KEY
/* Limit for on_success and on_failure together, in bytes */
#define MAX_FOLLOW_UPS	(128 * 1024 * 1024)

/* Raises an error if the text is too long; name is the option's name for the message. */
void
dw_option_refuse_long(const text *value, const char *name)
{
	if (VARSIZE_ANY_EXHDR(value) > MAX_TEXT)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is too long", name),
				 errdetail("It has %zu bytes, the maximum is %d.", (size_t) VARSIZE_ANY_EXHDR(value), MAX_TEXT),
				 errhint("Use a hash of it, for instance %s.", "md5()")));
}

/* Raises an error if the text is empty or too long. */
void
dw_option_check_text(const text *value, const char *name)
{
	if (VARSIZE_ANY_EXHDR(value) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be empty", name),
				 errhint("Null stands for none.")));
	dw_option_refuse_long(value, name);
}

/*
 * Returns the text argument with that number, or NULL if it is null.  An empty or too
 * long text raises an error.
 */
text *
dw_option_text(FunctionCallInfo fcinfo, int number, const char *name)
{
	text	   *value;

	if (PG_ARGISNULL(number))
		return NULL;
	value = PG_GETARG_TEXT_PP(number);
	dw_option_check_text(value, name);
	return value;
}

/* Returns an integer argument, 0 if it is null; an error if it is out of range. */
int32
dw_option_number(FunctionCallInfo fcinfo, int number, const char *name, int32 low, int32 high)
{
	int32		value;

	if (PG_ARGISNULL(number))
		return 0;
	value = PG_GETARG_INT32(number);
	if (value < low || value > high)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be between %d and %d", name, low, high)));
	return value;
}

/* Returns an interval in microseconds, 0 if it is null; an error if it is infinite. */
static int64
read_finite(FunctionCallInfo fcinfo, int number, const char *name)
{
	Interval   *interval;

	if (PG_ARGISNULL(number))
		return 0;
	interval = PG_GETARG_INTERVAL_P(number);
	if (!dw_interval_is_finite(interval))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("%s must not be infinite", name)));
	return dw_interval_us(interval);
}

/* Returns a time span as read_finite() does; an error unless it is greater than zero. */
static int64
read_span(FunctionCallInfo fcinfo, int number, const char *name)
{
	int64		us = read_finite(fcinfo, number, name);

	if (!PG_ARGISNULL(number) && us <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be greater than zero", name)));
	return us;
}

/*
 * Returns a time span as read_finite() does; an error unless it is between 0 and max
 * microseconds.  max_text is max for the message.
 */
static int64
read_up_to(FunctionCallInfo fcinfo, int number, const char *name, int64 max, const char *max_text)
{
	int64		us = read_finite(fcinfo, number, name);

	if (us < 0 || us > max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be between 0 and %s", name, max_text)));
	return us;
}

/* Returns an interval in microseconds, 0 if it is null; an error if it is negative or too long. */
int64
dw_option_pause(FunctionCallInfo fcinfo, int number, const char *name)
{
	return read_up_to(fcinfo, number, name, 366 * USECS_PER_DAY, "366 days");
}

/* Returns the length of a lease in microseconds, 0 if it is null; an error if it is out of range. */
int64
dw_option_lease(FunctionCallInfo fcinfo, int number, const char *name)
{
	int64		us = read_up_to(fcinfo, number, name, 366 * USECS_PER_DAY, "366 days");

	if (!PG_ARGISNULL(number) && us < 1000)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be at least %d ms", name, 1)));
	return us;
}

/* Returns a timeout in ms, 0 if it is null.  It is rounded up: 0 means no timeout. */
int32
dw_option_timeout(FunctionCallInfo fcinfo, int number, const char *name)
{
	return (read_up_to(fcinfo, number, name, PG_INT32_MAX * INT64CONST(1000),
					   "2147483647 ms") + 999) / 1000;
}

/* Reads the option notify, the name of a channel, into the column more. */
static void
read_channel(FunctionCallInfo fcinfo, DwNewTask *task)
{
	char	   *channel;

	if (PG_ARGISNULL(DW_ARG_NOTIFY))
		return;
	channel = text_to_cstring(PG_GETARG_TEXT_PP(DW_ARG_NOTIFY));
	if (!dw_is_channel(channel))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid channel name for notify: \"%s\"", channel),
				 errdetail("It must have between 1 and %d bytes.", NAMEDATALEN - 1)));
	dw_more_set_text(task->values, task->nulls, Anum_task_more, DW_MORE_NOTIFY, channel);
}

/*
 * Raises an error if on_success and on_failure are too long.  A row has room for twice
 * as much, but must also have room for the task's last error: a task whose row is full
 * could not be tried again.
 */
static void
refuse_long_follow_ups(FunctionCallInfo fcinfo)
{
	Size		bytes = 0;

	if (!PG_ARGISNULL(DW_ARG_ON_SUCCESS))
		bytes += toast_raw_datum_size(PG_GETARG_DATUM(DW_ARG_ON_SUCCESS));
	if (!PG_ARGISNULL(DW_ARG_ON_FAILURE))
		bytes += toast_raw_datum_size(PG_GETARG_DATUM(DW_ARG_ON_FAILURE));
	if (bytes > MAX_FOLLOW_UPS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("on_success and on_failure are too long"),
				 errdetail("Together they may have %d MB.", MAX_FOLLOW_UPS / (1024 * 1024)),
				 errhint("Put what they do into a function, and its data into a table.")));
}

/*
 * Reads the SQL of a follow-up, which runs when the task has ended and gets nargs
 * arguments, into the column more.
 */
static void
read_follow_up(FunctionCallInfo fcinfo, int number, const char *name, int nargs, DwNewTask *task)
{
	text	   *sql;

	if (PG_ARGISNULL(number))
		return;
	sql = PG_GETARG_TEXT_PP(number);
	if (task->check != DW_CHECK_OFF)
		dw_check_follow_up(sql, name, nargs);
	dw_more_set_text(task->values, task->nulls, Anum_task_more, name, text_to_cstring(sql));
}

/* Reads the option mode into the column more; an error if there is no such mode. */
static void
read_mode(FunctionCallInfo fcinfo, DwNewTask *task)
{
	char	   *mode;

	if (PG_ARGISNULL(DW_ARG_MODE))
		return;
	mode = text_to_cstring(PG_GETARG_TEXT_PP(DW_ARG_MODE));
	(void) dw_mode_named(mode);
	dw_more_set_text(task->values, task->nulls, Anum_task_more, DW_MORE_MODE, mode);
}

/* Reads the option retry_on or give_up_on, whose name is also its key, into the column more. */
static void
read_errors(FunctionCallInfo fcinfo, int number, const char *name, DwNewTask *task)
{
	ArrayType  *errors;

	if (PG_ARGISNULL(number))
		return;
	errors = PG_GETARG_ARRAYTYPE_P(number);
	dw_errors_check(errors, name);
	dw_more_set_text(task->values, task->nulls, Anum_task_more, name, dw_errors_joined(errors));
}

/* Reads the options of retries into the column more. */
static void
read_retry_options(FunctionCallInfo fcinfo, DwNewTask *task)
{
	int64		max_delay = dw_option_pause(fcinfo, DW_ARG_RETRY_MAX_DELAY, "retry_max_delay");

	if (!PG_ARGISNULL(DW_ARG_RETRY_BACKOFF))
	{
		char	   *backoff = text_to_cstring(PG_GETARG_TEXT_PP(DW_ARG_RETRY_BACKOFF));

		dw_backoff_check(backoff);
		dw_more_set_text(task->values, task->nulls, Anum_task_more, DW_MORE_RETRY_BACKOFF, backoff);
	}
	if (!PG_ARGISNULL(DW_ARG_RETRY_MAX_DELAY))
		dw_more_set_number(task->values, task->nulls, Anum_task_more, DW_MORE_RETRY_MAX_DELAY, max_delay);
	read_errors(fcinfo, DW_ARG_RETRY_ON, DW_MORE_RETRY_ON, task);
	read_errors(fcinfo, DW_ARG_GIVE_UP_ON, DW_MORE_GIVE_UP_ON, task);
}

/* Reads the option unique_for, which is also stored: the end of the task may end the period. */
static void
read_unique_for(FunctionCallInfo fcinfo, DwNewTask *task)
{
	if (PG_ARGISNULL(DW_ARG_UNIQUE_FOR))
		return;
	(void) read_up_to(fcinfo, DW_ARG_UNIQUE_FOR, "unique_for", 366 * USECS_PER_DAY, "366 days");
	task->unique_for = read_span(fcinfo, DW_ARG_UNIQUE_FOR, "unique_for");
	if (PG_ARGISNULL(DW_ARG_KEY))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("unique_for needs a key"),
				 errhint("Only tasks with a key can be the same.")));
	dw_more_set_number(task->values, task->nulls, Anum_task_more, DW_MORE_UNIQUE_FOR, task->unique_for);
}

/* Reads the option check_sql: how the SQL is checked. */
static void
read_check(FunctionCallInfo fcinfo, DwNewTask *task)
{
	char	   *name;

	if (PG_ARGISNULL(DW_ARG_CHECK_SQL))
		return;
	name = text_to_cstring(PG_GETARG_TEXT_PP(DW_ARG_CHECK_SQL));
	if (!dw_check_named(name, &task->check))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for %s: \"%s\"", "check_sql", name),
				 errhint("Use 'off', 'on' or 'plan'.")));
}

/* Reads the options that are stored in the column more. */
static void
read_rare_options(FunctionCallInfo fcinfo, DwNewTask *task)
{
	int64		skip_after = read_span(fcinfo, DW_ARG_SKIP_AFTER, "skip_after");

	if (skip_after > 0)
		dw_more_set_number(task->values, task->nulls, Anum_task_more, DW_MORE_SKIP_AFTER, skip_after);
	read_channel(fcinfo, task);
	refuse_long_follow_ups(fcinfo);
	read_follow_up(fcinfo, DW_ARG_ON_SUCCESS, DW_MORE_ON_SUCCESS, DW_ON_SUCCESS_ARGS, task);
	read_follow_up(fcinfo, DW_ARG_ON_FAILURE, DW_MORE_ON_FAILURE, DW_ON_FAILURE_ARGS, task);
	read_mode(fcinfo, task);
	read_retry_options(fcinfo, task);
	read_unique_for(fcinfo, task);
}

/* Reads the due time: after a delay, or at a time.  Without any of them it stays now. */
static void
read_due(FunctionCallInfo fcinfo, DwNewTask *task)
{
	if (!PG_ARGISNULL(DW_ARG_DELAY) && !PG_ARGISNULL(DW_ARG_DUE))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("delay and due cannot both be given"),
				 errhint("Without any of them the task runs at once after the commit.")));
	if (!PG_ARGISNULL(DW_ARG_DELAY))
		task->due = dw_due_after(PG_GETARG_INTERVAL_P(DW_ARG_DELAY));
	else if (!PG_ARGISNULL(DW_ARG_DUE))
		task->due = dw_finite_due(PG_GETARG_TIMESTAMPTZ(DW_ARG_DUE));
}

/*
 * Returns the value of if_exists with that name: what to do if a task with the same
 * key is pending.  An unknown name raises an error.
 */
DwIfExists
dw_if_exists_named(const char *name)
{
	static const struct
	{
		const char *name;
		DwIfExists	value;
	}			options[] = {
		{"keep", DW_KEEP}, {"replace", DW_REPLACE}, {"replace_keep_due", DW_REPLACE_KEEP_DUE},
		{"earlier", DW_EARLIER}, {"later", DW_LATER}, {"error", DW_RAISE}
	};

	for (size_t i = 0; i < lengthof(options); i++)
		if (strcmp(options[i].name, name) == 0)
			return options[i].value;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for if_exists: \"%s\"", name),
			 errhint("Use 'keep', 'replace', 'replace_keep_due', 'earlier', 'later' or 'error'.")));
}

/* Reads the option if_exists, DW_KEEP if it is not given. */
static void
read_if_exists(FunctionCallInfo fcinfo, DwNewTask *task)
{
	char	   *name;

	if (PG_ARGISNULL(DW_ARG_IF_EXISTS))
		return;
	name = text_to_cstring(PG_GETARG_TEXT_PP(DW_ARG_IF_EXISTS));
	task->if_exists = dw_if_exists_named(name);
	/* most likely the user's expression for the key gave null by mistake */
	if (task->if_exists != DW_KEEP && PG_ARGISNULL(DW_ARG_KEY))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("if_exists => '%s' needs a key", name),
				 errhint("Only a task with a key can exist already.")));
}

/*
 * Sets the queue of a new task, its priority and its spread, and which settings it keeps,
 * unless it says that itself.  A NULL name is the default
 * queue; DW_NO_PRIORITY is the priority of the queue.  Raises an error if the queue does
 * not exist, is not for tasks like this one, or the current user may not schedule into it.
 */
void
dw_new_task_queue(DwNewTask *task, const char *name, int16 priority)
{
	DwQueueForTask queue;

	dw_queue_find(name, &queue);
	dw_queue_require_kind(name ? name : "default", queue.external,
						  task->nulls[Anum_task_sql - 1]);
	if (!task->nulls[Anum_task_group_key - 1] && !queue.groups)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("queue \"%s\" has no groups", name ? name : "default"),
				 errdetail("So a task of it cannot have a group_key."),
				 errhint("Declare a queue with %s.", "delay_queue(..., groups => true)")));
	task->queue = queue.id;
	task->spread = queue.spread;
	if (task->keep_settings == NULL)
		task->keep_settings = queue.keep_settings;
	task->priority = priority == DW_NO_PRIORITY ? queue.priority : priority;
}

/* Reads all options but the SQL and its arguments.  An invalid one raises an error. */
static void
read_options(FunctionCallInfo fcinfo, DwNewTask *task)
{
	text	   *key = dw_option_text(fcinfo, DW_ARG_KEY, "key");
	text	   *tag = dw_option_text(fcinfo, DW_ARG_TAG, "tag");
	text	   *group_key = dw_option_text(fcinfo, DW_ARG_GROUP_KEY, "group_key");
	int32		attempts = dw_option_number(fcinfo, DW_ARG_MAX_ATTEMPTS, "max_attempts", 1, PG_INT16_MAX);
	int32		timeout = dw_option_timeout(fcinfo, DW_ARG_TIMEOUT, "timeout");
	int16		priority = DW_NO_PRIORITY;

	read_check(fcinfo, task);
	read_due(fcinfo, task);
	dw_new_task_set(task, Anum_task_key, PointerGetDatum(key), key == NULL);
	dw_new_task_set(task, Anum_task_tag, PointerGetDatum(tag), tag == NULL);
	dw_new_task_set(task, Anum_task_group_key, PointerGetDatum(group_key), group_key == NULL);
	dw_new_task_set(task, Anum_task_max_attempts, Int16GetDatum(attempts), attempts == 0);
	dw_new_task_set(task, Anum_task_timeout, Int32GetDatum(timeout), PG_ARGISNULL(DW_ARG_TIMEOUT));
	(void) dw_option_pause(fcinfo, DW_ARG_RETRY_DELAY, "retry_delay");
	dw_new_task_set(task, Anum_task_retry_delay, PG_GETARG_DATUM(DW_ARG_RETRY_DELAY),
					PG_ARGISNULL(DW_ARG_RETRY_DELAY));
	(void) read_span(fcinfo, DW_ARG_EXPIRES, "expires");
	dw_new_task_set(task, Anum_task_expires, PG_GETARG_DATUM(DW_ARG_EXPIRES),
					PG_ARGISNULL(DW_ARG_EXPIRES));
	read_rare_options(fcinfo, task);
	if (!PG_ARGISNULL(DW_ARG_KEEP_SETTINGS))
		task->keep_settings = PG_GETARG_ARRAYTYPE_P(DW_ARG_KEEP_SETTINGS);
	read_if_exists(fcinfo, task);
	if (!PG_ARGISNULL(DW_ARG_PRIORITY))
		priority = dw_option_number(fcinfo, DW_ARG_PRIORITY, "priority", DW_MIN_PRIORITY, DW_MAX_PRIORITY);
	dw_new_task_queue(task, PG_ARGISNULL(DW_ARG_QUEUE) ? NULL :
					  text_to_cstring(PG_GETARG_TEXT_PP(DW_ARG_QUEUE)), priority);
}

/* Raises an error if the options named and args (or arg_types) are both given. */
void
dw_option_refuse_both(bool named, bool args)
{
	if (named && args)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("named and args cannot both be given"),
				 errhint("named is for :name in the SQL text, args for $1, $2 ...")));
}

/*
 * Reads the option named: returns the SQL text with numbers in place of names, and in *args
 * the values.
 */
static text *
read_named(FunctionCallInfo fcinfo, const text *sql, ArrayType **args)
{
	dw_option_refuse_both(true, !PG_ARGISNULL(DW_ARG_ARGS) || !PG_ARGISNULL(DW_ARG_ARG_TYPES));
	return dw_named_numbered(sql, PG_GETARG_JSONB_P(DW_ARG_NAMED), args);
}

/*
 * Makes a task of the arguments of delay_schedule_task(); returns the number of the
 * arguments of its SQL.  An invalid option raises an error.  dw_new_task_check() judges
 * the SQL, and options that depend on each other.
 */
int
dw_options_read(FunctionCallInfo fcinfo, DwNewTask *task)
{
	text	   *sql;
	ArrayType  *args = NULL;
	int			nargs;

	dw_refuse_null(PG_ARGISNULL(DW_ARG_SQL), "SQL text");
	sql = PG_GETARG_TEXT_PP(DW_ARG_SQL);
	if (!PG_ARGISNULL(DW_ARG_NAMED))
		sql = read_named(fcinfo, sql, &args);
	else if (!PG_ARGISNULL(DW_ARG_ARGS))
		args = PG_GETARG_ARRAYTYPE_P(DW_ARG_ARGS);
	dw_new_task_init(task, sql);
	nargs = dw_args_parse(args,
						  PG_ARGISNULL(DW_ARG_ARG_TYPES) ? NULL : PG_GETARG_ARRAYTYPE_P(DW_ARG_ARG_TYPES),
						  &task->values[Anum_task_args - 1],
						  &task->values[Anum_task_arg_types - 1],
						  &task->nulls[Anum_task_args - 1]);
	task->nulls[Anum_task_arg_types - 1] = task->nulls[Anum_task_args - 1];
	read_options(fcinfo, task);
	return nargs;
}

/*
 * Raises an error if a jsonb, the payload of a message or its result, is too long.  what
 * is the word for it in the message.
 */
void
dw_option_refuse_long_json(Datum json, const char *what)
{
	Size		bytes = toast_raw_datum_size(json) - VARHDRSZ;

	if (bytes > MAX_JSON)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%s of a message is too long", what),
				 errdetail("It has %zu bytes, the maximum is %d.", bytes, MAX_JSON),
				 errhint("Put the data into a table, and send its key.")));
}

/* Sets the payload of a new message; an error if it is too long. */
void
dw_new_task_payload(DwNewTask *task, Datum payload)
{
	dw_option_refuse_long_json(payload, "payload");
	dw_new_task_set(task, Anum_task_payload, payload, false);
}

/*
 * Makes a message of this payload, with options as delay_schedule_task() has them in
 * fcinfo.  An invalid option raises an error.
 */
void
dw_options_read_message(FunctionCallInfo fcinfo, Datum payload, DwNewTask *task)
{
	dw_new_task_init(task, NULL);
	dw_new_task_payload(task, payload);
	read_options(fcinfo, task);
}
