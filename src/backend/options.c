/*-------------------------------------------------------------------------
 *
 * options.c
 *	  What delay_schedule_task can be told of a task.
 *
 * Run by backends that schedule.  Null always means that an option is not
 * given.  What could not be used later, by an executor, is refused here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/settings.h"
#include "../ending/follow_up.h"
#include "../ending/notify.h"
#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../statement/sqlcheck.h"
#include "../task/new_task.h"
#include "options.h"

/* The index of keys must have room for one; tags are kept as short. */
#define MAX_TEXT		DW_MAX_KEY
#define MAX_FOLLOW_UPS	(128 * 1024 * 1024)
/* as of queues (declare.c) */
#define MAX_RETRY_DELAY	(366 * USECS_PER_DAY)

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

/* A whole number within a range; 0 if it is null. */
static int32
read_whole_number(FunctionCallInfo fcinfo, int number, const char *name, int32 low, int32 high)
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

/* An interval that must be finite; 0 if it is null. */
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

/* One in which the task must have time to begin. */
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

/* One that a queue has, too: zero is none. */
static int64
read_pause(FunctionCallInfo fcinfo, int number, const char *name, int64 max, const char *max_text)
{
	int64		us = read_finite(fcinfo, number, name);

	if (us < 0 || us > max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be between 0 and %s", name, max_text)));
	return us;
}

static void
put_option(Datum *values, bool *nulls, AttrNumber column, Datum value, bool isnull)
{
	values[column - 1] = value;
	nulls[column - 1] = isnull;
}

/* The channel of the option notify. */
static void
read_channel(FunctionCallInfo fcinfo, int number, Datum *values, bool *nulls)
{
	char	   *channel;

	if (PG_ARGISNULL(number))
		return;
	channel = text_to_cstring(PG_GETARG_TEXT_PP(number));
	if (!dw_is_channel(channel))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid channel name for notify: \"%s\"", channel),
				 errdetail("It must have between 1 and %d bytes.", NAMEDATALEN - 1)));
	dw_more_set_text(values, nulls, Anum_task_more, DW_MORE_NOTIFY, channel);
}

/*
 * A row has room for twice as much, the last error included.  What has none
 * could not be tried again.
 */
static void
refuse_long_follow_ups(FunctionCallInfo fcinfo, int success, int failure)
{
	Size		bytes = 0;

	if (!PG_ARGISNULL(success))
		bytes += toast_raw_datum_size(PG_GETARG_DATUM(success));
	if (!PG_ARGISNULL(failure))
		bytes += toast_raw_datum_size(PG_GETARG_DATUM(failure));
	if (bytes > MAX_FOLLOW_UPS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("on_success and on_failure are too long"),
				 errdetail("Together they may have %d MB.", MAX_FOLLOW_UPS / (1024 * 1024)),
				 errhint("Put what they do into a function, and its data into a table.")));
}

/* SQL that is to be run when the task has ended. */
static void
read_follow_up(FunctionCallInfo fcinfo, int number, const char *name, int nargs,
			   Datum *values, bool *nulls)
{
	text	   *sql;

	if (PG_ARGISNULL(number))
		return;
	sql = PG_GETARG_TEXT_PP(number);
	if (dw_check_sql_text)
		dw_check_follow_up(sql, name, nargs);
	dw_more_set_text(values, nulls, Anum_task_more, name, text_to_cstring(sql));
}

static void
read_mode(FunctionCallInfo fcinfo, int number, Datum *values, bool *nulls)
{
	char	   *mode;

	if (PG_ARGISNULL(number))
		return;
	mode = text_to_cstring(PG_GETARG_TEXT_PP(number));
	(void) dw_mode_named(mode);
	dw_more_set_text(values, nulls, Anum_task_more, DW_MORE_MODE, mode);
}

/*
 * Those that stand in "more": four arguments in a row from the given one on,
 * skip_after, notify, on_success and on_failure.  dw_options_read does so, too.
 */
void
dw_options_read_more(FunctionCallInfo fcinfo, int first, Datum *values, bool *nulls)
{
	int64		skip_after = read_span(fcinfo, first, "skip_after");

	if (skip_after > 0)
		dw_more_set_number(values, nulls, Anum_task_more, DW_MORE_SKIP_AFTER, skip_after);
	read_channel(fcinfo, first + 1, values, nulls);
	refuse_long_follow_ups(fcinfo, first + 2, first + 3);
	read_follow_up(fcinfo, first + 2, DW_MORE_ON_SUCCESS, DW_ON_SUCCESS_ARGS, values, nulls);
	read_follow_up(fcinfo, first + 3, DW_MORE_ON_FAILURE, DW_ON_FAILURE_ARGS, values, nulls);
	read_mode(fcinfo, first + 4, values, nulls);
}

/*
 * Reads those of the row that need nothing but a check: key, tag, attempts,
 * pauses and times.  An error if one is not valid.
 */
void
dw_options_read(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	text	   *key = dw_option_text(fcinfo, DW_ARG_KEY, "key");
	text	   *tag = dw_option_text(fcinfo, DW_ARG_TAG, "tag");
	int32		attempts = read_whole_number(fcinfo, DW_ARG_MAX_ATTEMPTS, "max_attempts", 1, PG_INT16_MAX);
	int64		timeout = read_pause(fcinfo, DW_ARG_TIMEOUT, "timeout",
									 PG_INT32_MAX * INT64CONST(1000), "2147483647 ms");

	put_option(values, nulls, Anum_task_key, PointerGetDatum(key), key == NULL);
	put_option(values, nulls, Anum_task_tag, PointerGetDatum(tag), tag == NULL);
	put_option(values, nulls, Anum_task_max_attempts, Int16GetDatum(attempts), attempts == 0);
	/* rounded up: less than a millisecond is not none */
	put_option(values, nulls, Anum_task_timeout, Int32GetDatum((timeout + 999) / 1000), PG_ARGISNULL(DW_ARG_TIMEOUT));
	(void) read_pause(fcinfo, DW_ARG_RETRY_DELAY, "retry_delay", MAX_RETRY_DELAY, "366 days");
	put_option(values, nulls, Anum_task_retry_delay, PG_GETARG_DATUM(DW_ARG_RETRY_DELAY),
		PG_ARGISNULL(DW_ARG_RETRY_DELAY));
	(void) read_span(fcinfo, DW_ARG_EXPIRES, "expires");
	put_option(values, nulls, Anum_task_expires, PG_GETARG_DATUM(DW_ARG_EXPIRES),
		PG_ARGISNULL(DW_ARG_EXPIRES));
	dw_options_read_more(fcinfo, DW_ARG_SKIP_AFTER, values, nulls);
}

/* Its priority; -2 if none is given. */
int16
dw_option_priority(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(DW_ARG_PRIORITY))
		return DW_NO_PRIORITY;
	return read_whole_number(fcinfo, DW_ARG_PRIORITY, "priority", -1, 1);
}

DwIfExists
dw_if_exists_named(const char *name)
{
	static const struct
	{
		const char *name;
		DwIfExists	value;
	}			options[] = {{"keep", DW_KEEP}, {"replace", DW_REPLACE}, {"error", DW_RAISE}};

	for (size_t i = 0; i < lengthof(options); i++)
		if (strcmp(options[i].name, name) == 0)
			return options[i].value;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for if_exists: \"%s\"", name),
			 errhint("Use 'keep', 'replace' or 'error'.")));
}

DwIfExists
dw_option_if_exists(FunctionCallInfo fcinfo)
{
	char	   *name;
	DwIfExists	value;

	if (PG_ARGISNULL(DW_ARG_IF_EXISTS))
		return DW_KEEP;
	name = text_to_cstring(PG_GETARG_TEXT_PP(DW_ARG_IF_EXISTS));
	value = dw_if_exists_named(name);
	/* rather a key that came out as null */
	if (value != DW_KEEP && PG_ARGISNULL(DW_ARG_KEY))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("if_exists => '%s' needs a key", name),
				 errhint("Only a task with a key can exist already.")));
	return value;
}
