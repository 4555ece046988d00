/*-------------------------------------------------------------------------
 *
 * options.c
 *	  Reads the options of tasks, messages, recurring tasks and queues.
 *
 * Run by sessions, and by executors whose tasks call functions with options.  A null value always
 * means that the option is not given.  Values that an executor could not use raise an error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/varlena.h"

#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/signature.h"
#include "options.h"

/* Limit for the payload of a message, or its result, in bytes */
#define MAX_JSON		(1024 * 1024)
/* Limit for the headers of a message or a task, in bytes */
#define MAX_HEADERS		(64 * 1024)
/* Limit for on_success and on_failure together, in bytes */
#define MAX_FOLLOW_UPS	(128 * 1024 * 1024)
/* Limit for an unknown name that gets a hint at a similar option, in bytes */
#define MAX_NAME		63

/* A line of the table of options. */
typedef struct Description
{
	const char *name;
	DwOptionType type;
	int64		low;
	int64		high;
	int			places;
} Description;

#define DESCRIBE(id, name, type, low, high, places) {name, DW_TYPE_##type, low, high, places},
static const Description descriptions[DW_NOPTIONS] = {
	DW_OPTIONS(DESCRIBE)
};

/* Names of the places in messages, in the order of their bits. */
static const char *const place_names[] = {
	"tasks", "messages", "triggers", "recurring tasks", "changes of pending tasks", "queues"
};

PG_FUNCTION_INFO_V1(dw_get_options);

/* Returns the name of an option. */
const char *
dw_option_name(DwOption option)
{
	return descriptions[option].name;
}

/*---- Checks of values ----*/

/* Raises an error if the text is too long; name is the option's name for the message. */
void
dw_option_refuse_long(const text *value, const char *name)
{
	if (VARSIZE_ANY_EXHDR(value) > DW_MAX_KEY)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is too long", name),
				 errdetail("It has %zu bytes, the maximum is %d.", (size_t) VARSIZE_ANY_EXHDR(value), DW_MAX_KEY),
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
				 errhint("Pass null, or leave the argument out.")));
	dw_option_refuse_long(value, name);
}

/* Returns a time in microseconds as a text for a message. */
static const char *
span_text(int64 us)
{
	if (us == 0)
		return "0";
	if (us % USECS_PER_DAY == 0)
		return psprintf(INT64_FORMAT " days", us / USECS_PER_DAY);
	if (us % USECS_PER_SEC == 0)
		return psprintf(INT64_FORMAT " s", us / USECS_PER_SEC);
	return psprintf(INT64_FORMAT " ms", us / 1000);
}

/*
 * Returns an interval in microseconds.  Raises an error if the interval is infinite, or not between
 * low and high.  In messages, low 1 means "greater than zero".
 */
static int64
span_of(const Interval *interval, const char *name, int64 low, int64 high)
{
	int64		us;

	if (!dw_interval_is_finite(interval))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("%s must not be infinite", name)));
	us = dw_interval_us(interval);
	if (us <= 0 && low == 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be greater than zero", name)));
	if (us < low || us > high)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be between %s and %s", name, span_text(low == 1 ? 0 : low), span_text(high))));
	return us;
}

/*
 * Returns an interval argument in microseconds, 0 if it is null.  Raises an error if the interval
 * is not between low and 366 days.
 */
int64
dw_span_argument(FunctionCallInfo fcinfo, int number, const char *name, int64 low)
{
	return PG_ARGISNULL(number) ? 0 : span_of(PG_GETARG_INTERVAL_P(number), name, low, DW_DAYS_366);
}

/* Returns an interval option in microseconds, 0 if it is not given. */
int64
dw_option_us(const DwOptions *options, DwOption option)
{
	return options->values[option].isnull ? 0 : dw_interval_us(DatumGetIntervalP(options->values[option].value));
}

/* Returns an interval option in milliseconds, rounded up; 0 means no timeout. */
int32
dw_option_ms(const DwOptions *options, DwOption option)
{
	return (dw_option_us(options, option) + 999) / 1000;
}

/* Raises the error for a value of the wrong type.  wanted: the right type. */
static void
refuse_type(DwOption option, const char *wanted)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("option \"%s\" must be %s", descriptions[option].name, wanted)));
}

/* Raises an error if a jsonb is no object, or too long. */
static void
check_object(DwOption option, Datum value)
{
	Size		bytes = toast_raw_datum_size(value) - VARHDRSZ;

	if (!JB_ROOT_IS_OBJECT(DatumGetJsonbP(value)))
		refuse_type(option, "a JSON object");
	if (bytes > MAX_HEADERS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("option \"%s\" is too long", descriptions[option].name),
				 errdetail("It has %zu bytes, the maximum is %d.", bytes, MAX_HEADERS)));
}

/* Raises an error if the value of an option is out of its range. */
static void
check_value(DwOption option, Datum value, int place)
{
	const Description *is = &descriptions[option];
	int64		number;

	switch (is->type)
	{
		case DW_TYPE_LABEL:
			/* an empty text removes the option from a pending task */
			if (place != DW_FOR_UPDATE || VARSIZE_ANY_EXHDR(DatumGetTextPP(value)) > 0)
				dw_option_check_text(DatumGetTextPP(value), is->name);
			break;
		case DW_TYPE_OBJECT:
			check_object(option, value);
			break;
		case DW_TYPE_SPAN:
			/* 0 removes the option, too */
			(void) span_of(DatumGetIntervalP(value), is->name,
						   place == DW_FOR_UPDATE && is->low == 1 ? 0 : is->low, is->high);
			break;
		case DW_TYPE_INTEGER:
		case DW_TYPE_BIGINT:
			number = is->type == DW_TYPE_BIGINT ? DatumGetInt64(value) : DatumGetInt32(value);
			if (number >= is->low && number <= is->high)
				break;
			if (is->high == PG_INT64_MAX)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("%s must be greater than zero", is->name)));
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("%s must be between %lld and %lld", is->name, (long long) is->low,
							(long long) is->high)));
		default:
			break;
	}
}

/*---- Options by name ----*/

/* Returns the places as a list for a message. */
static char *
list_places(int places)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < lengthof(place_names); i++)
		if (places & (1 << i))
			appendStringInfo(&list, "%s%s", list.len > 0 ? ", " : "", place_names[i]);
	return list.data;
}

/*
 * Raises the error for a name that is no option, with a hint at the most similar option that may be
 * given in this place.
 */
static void
refuse_unknown(const char *name, int length, int place)
{
	const char *nearest = NULL;
	int			distance = Max(length / 2, 2);

	for (int i = 0; i < DW_NOPTIONS && length <= MAX_NAME; i++)
	{
		const char *other = descriptions[i].name;
		int			d;

		if ((descriptions[i].places & place) == 0)
			continue;
		d = varstr_levenshtein_less_equal(name, length, other, strlen(other), 1, 1, 1, distance, true);
		if (d <= distance)
		{
			nearest = other;
			distance = d - 1;
		}
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized option \"%.*s%s\"", pg_mbcliplen(name, length, MAX_NAME), name,
					length > MAX_NAME ? "..." : ""),
			 nearest ? errhint("Perhaps you mean \"%s\".", nearest) :
			 errhint("All options are in the view %s.", "delay_wheel.options")));
}

/*
 * Returns the option of this name.  Raises an error if the name is unknown, or the option is not
 * allowed in this place.
 */
DwOption
dw_option_named(const char *name, int length, int place)
{
	for (int i = 0; i < DW_NOPTIONS; i++)
	{
		int			places = descriptions[i].places;

		if (strlen(descriptions[i].name) != length || memcmp(descriptions[i].name, name, length) != 0)
			continue;
		if (places == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("option \"%s\" must be given as a parameter", descriptions[i].name)));
		if ((places & place) == place)
			return i;
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"%s\" is not for %s", descriptions[i].name, list_places(place & ~places)),
				 errhint("It is for %s.", list_places(places))));
	}
	refuse_unknown(name, length, place);
	return DW_NOPTIONS;			/* not reached */
}

/* Error context callback while a value is read.  arg is the option's name. */
static void
option_callback(void *arg)
{
	/* the error of a wrong type already names the option */
	if (geterrcode() != ERRCODE_DATATYPE_MISMATCH)
		errcontext("option \"%s\"", (const char *) arg);
}

/* Converts a text to a value of the option's type. */
static Datum
value_of_text(DwOption option, const void *text)
{
	const char *value = text;

	switch (descriptions[option].type)
	{
		case DW_TYPE_SPAN:
			return IntervalPGetDatum(dw_interval_of_text(value, descriptions[option].name));
		case DW_TYPE_TIME:
			return DirectFunctionCall3(timestamptz_in, CStringGetDatum(value),
									   ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
		case DW_TYPE_INTEGER:
			return DirectFunctionCall1(int4in, CStringGetDatum(value));
		case DW_TYPE_TEXTS:
			return OidInputFunctionCall(F_ARRAY_IN, unconstify(char *, value), TEXTOID, -1);
		default:
			return CStringGetTextDatum(value);
	}
}

/*
 * Sets an option that was found by its name.  The function "read" reads the value.  Errors of a
 * type's input function get the option's name.  Raises an error if the option is given already.
 */
static void
read_named(DwOptions *options, DwOption option, Datum (*read) (DwOption option, const void *value),
		   const void *value)
{
	ErrorContextCallback callback = {
		.previous = error_context_stack,
		.callback = option_callback,
		.arg = unconstify(char *, descriptions[option].name)
	};
	Datum		result;

	error_context_stack = &callback;
	result = read(option, value);
	error_context_stack = callback.previous;
	if (!options->values[option].isnull)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"%s\" is given twice", descriptions[option].name)));
	check_value(option, result, options->place);
	options->values[option] = (NullableDatum) {.value = result};
}

/* Sets an option from a text. */
void
dw_option_set_text(DwOptions *options, DwOption option, const char *value)
{
	read_named(options, option, value_of_text, value);
}

/* Returns the places as a text[]. */
static DwColumn
places_column(int places)
{
	Datum		names[lengthof(place_names)];
	int			n = 0;

	for (int i = 0; i < lengthof(place_names); i++)
		if (places & (1 << i))
			names[n++] = CStringGetTextDatum(place_names[i]);
	return (DwColumn) {TEXTARRAYOID, PointerGetDatum(construct_array(names, n, TEXTOID, -1, false, TYPALIGN_INT)), false};
}

/* Returns a limit of an option's values, NULL if the values have no limit. */
static const char *
limit_text(const Description *is, bool high)
{
	int64		limit = high ? is->high : is->low;

	switch (is->type)
	{
		case DW_TYPE_LABEL:
			return psprintf("%d bytes", high ? DW_MAX_KEY : 1);
		case DW_TYPE_INTEGER:
		case DW_TYPE_BIGINT:
			return limit == PG_INT64_MAX ? NULL : psprintf(INT64_FORMAT, limit);
		case DW_TYPE_SPAN:
			return limit == PG_INT64_MAX ? NULL : limit == 1 ? "1 us" : span_text(limit);
		default:
			return NULL;
	}
}

/* SQL function delay_wheel_internal.get_options(): all options that have a name. */
Datum
dw_get_options(PG_FUNCTION_ARGS)
{
	static const char *const types[] = {
		[DW_TYPE_TEXT] = "text", [DW_TYPE_LABEL] = "text", [DW_TYPE_INTEGER] = "integer",
		[DW_TYPE_BIGINT] = "bigint", [DW_TYPE_SPAN] = "interval", [DW_TYPE_TIME] = "timestamptz",
		[DW_TYPE_BOOLEAN] = "boolean", [DW_TYPE_TEXTS] = "text[]", [DW_TYPE_ROLES] = "name[]",
		[DW_TYPE_TYPES] = "regtype[]", [DW_TYPE_OBJECT] = "jsonb"
	};

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < DW_NOPTIONS; i++)
		if (descriptions[i].places != 0)
			dw_put_row(fcinfo, dw_text_or_null(descriptions[i].name), dw_text_or_null(types[descriptions[i].type]),
					   dw_text_or_null(limit_text(&descriptions[i], false)),
					   dw_text_or_null(limit_text(&descriptions[i], true)), places_column(descriptions[i].places));
	return (Datum) 0;
}

/*---- Options in a JSON object ----*/

/* Returns a JSON string as a C string. */
static char *
string_of(const JsonbValue *value)
{
	return pnstrdup(value->val.string.val, value->val.string.len);
}

/*
 * Returns a JSON number as an integer.  Raises an error if the number is no integer in the range.
 */
static Datum
json_number(DwOption option, const JsonbValue *value)
{
	bool		is_big = descriptions[option].type == DW_TYPE_BIGINT;
	Datum		number;
	Datum		whole;

	if (value->type != jbvNumeric)
		refuse_type(option, "a number");
	number = NumericGetDatum(value->val.numeric);
	whole = DirectFunctionCall1(is_big ? numeric_int8 : numeric_int4, number);
	if (!DatumGetBool(DirectFunctionCall2(numeric_eq, number,
										  DirectFunctionCall1(is_big ? int8_numeric : int4_numeric, whole))))
		refuse_type(option, "a whole number");
	return whole;
}

/*
 * Returns the elements of a JSON array of strings as an array of the option's type.  A JSON null
 * becomes a null element.
 */
static Datum
array_of(DwOption option, const JsonbValue *value)
{
	DwOptionType type = descriptions[option].type;
	Oid			element = type == DW_TYPE_TEXTS ? TEXTOID : type == DW_TYPE_ROLES ? NAMEOID : REGTYPEOID;
	ArrayBuildState *array = initArrayResult(element, CurrentMemoryContext, true);
	JsonbIterator *iterator;
	JsonbIteratorToken token;
	JsonbValue	item;

	if (value->type != jbvBinary || !JsonContainerIsArray(value->val.binary.data) ||
		JsonContainerIsScalar(value->val.binary.data))
		refuse_type(option, "an array of texts");
	iterator = JsonbIteratorInit(value->val.binary.data);
	while ((token = JsonbIteratorNext(&iterator, &item, true)) != WJB_DONE)
	{
		Datum		datum = (Datum) 0;

		if (token != WJB_ELEM)
			continue;
		if (item.type == jbvString)
			datum = element == TEXTOID ? CStringGetTextDatum(string_of(&item)) :
				DirectFunctionCall1(element == NAMEOID ? namein : regtypein,
									CStringGetDatum(string_of(&item)));
		else if (item.type != jbvNull)
			refuse_type(option, "an array of texts");
		accumArrayResult(array, datum, item.type == jbvNull, element, CurrentMemoryContext);
	}
	return makeArrayResult(array, CurrentMemoryContext);
}

/* Converts a JSON value to a value of the option's type. */
static Datum
value_of_json(DwOption option, const void *json)
{
	const JsonbValue *value = json;

	switch (descriptions[option].type)
	{
		case DW_TYPE_INTEGER:
		case DW_TYPE_BIGINT:
			return json_number(option, value);
		case DW_TYPE_BOOLEAN:
			if (value->type != jbvBool)
				refuse_type(option, "true or false");
			return BoolGetDatum(value->val.boolean);
		case DW_TYPE_TEXTS:
		case DW_TYPE_ROLES:
		case DW_TYPE_TYPES:
			return array_of(option, value);
		case DW_TYPE_OBJECT:
			if (value->type != jbvBinary)
				refuse_type(option, "a JSON object");
			return JsonbPGetDatum(JsonbValueToJsonb(unconstify(JsonbValue *, value)));
		case DW_TYPE_SPAN:
			if (value->type != jbvString)
				refuse_type(option, "an interval, as \"5 minutes\"");
			break;
		default:
			if (value->type != jbvString)
				refuse_type(option, descriptions[option].type == DW_TYPE_TIME ? "a point in time, as a text" : "a text");
	}
	return value_of_text(option, string_of(value));
}

/* Adds the members of a JSON object to the options. */
static void
take_json(Jsonb *json, DwOptions *options)
{
	JsonbIterator *iterator = JsonbIteratorInit(&json->root);
	JsonbIteratorToken token;
	JsonbValue	value;
	DwOption	option = DW_NOPTIONS;

	if (!JB_ROOT_IS_OBJECT(json))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("options must be a JSON object"),
				 errhint("For example, use {\"timeout\": \"5 minutes\"}.")));
	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
		if (token == WJB_KEY)
			option = dw_option_named(value.val.string.val, value.val.string.len, options->place);
		else if (token == WJB_VALUE && value.type != jbvNull)
			read_named(options, option, value_of_json, &value);
}

/*---- The options of a call ----*/

/* Sets all options to not given. */
void
dw_options_none(DwOptions *options, int place)
{
	options->place = place;
	for (int i = 0; i < DW_NOPTIONS; i++)
		options->values[i] = (NullableDatum) {.isnull = true};
}

/*
 * Reads the options of a call of an SQL function.  parameters: the options that are the function's
 * first n parameters.  Options in the parameter DW_OPT_JSON must be allowed for this place.
 */
void
dw_options_take(FunctionCallInfo fcinfo, const DwOption *parameters, int n, int place,
				DwOptions *options)
{
	int			json = -1;

	Assert(n <= PG_NARGS());
	dw_options_none(options, place);
	for (int i = 0; i < n; i++)
	{
		if (PG_ARGISNULL(i))
			continue;
		if (parameters[i] == DW_OPT_JSON)
		{
			json = i;
			continue;
		}
		check_value(parameters[i], PG_GETARG_DATUM(i), place);
		options->values[parameters[i]] = fcinfo->args[i];
	}
	if (json >= 0)
		take_json(PG_GETARG_JSONB_P(json), options);
}

/*---- From options to a task ----*/

/*
 * Returns true if the value (0, if the option must be greater, or an empty text) removes the option
 * from a pending task.  An empty retry_backoff is an error.
 */
static bool
takes_away(const DwOptions *options, DwOption option)
{
	const Description *is = &descriptions[option];

	if (options->place != DW_FOR_UPDATE || options->values[option].isnull)
		return false;
	if (is->type == DW_TYPE_SPAN)
		return is->low == 1 && dw_option_us(options, option) == 0;
	return is->type == DW_TYPE_TEXT && option != DW_OPT_RETRY_BACKOFF &&
		VARSIZE_ANY_EXHDR(DatumGetTextPP(options->values[option].value)) == 0;
}

/*
 * Raises an error if on_success and on_failure are too long.  A row has room for twice this limit,
 * but must also have room for the task's last error: a task whose row is full could not be tried
 * again.
 */
static void
refuse_long_follow_ups(const DwOptions *options)
{
	Size		bytes = 0;

	if (dw_given(options, ON_SUCCESS))
		bytes += toast_raw_datum_size(dw_option(options, ON_SUCCESS));
	if (dw_given(options, ON_FAILURE))
		bytes += toast_raw_datum_size(dw_option(options, ON_FAILURE));
	if (bytes > MAX_FOLLOW_UPS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("on_success and on_failure are too long"),
				 errdetail("Together they may have %d MB.", MAX_FOLLOW_UPS / (1024 * 1024)),
				 errhint("Put the SQL into a function, and its data into a table.")));
}

/* Raises an error if the value of an option that set_more() stores is invalid. */
static void
check_more(DwOption option, Datum value, DwNewTask *task)
{
	const char *name = descriptions[option].name;

	switch (option)
	{
		case DW_OPT_NOTIFY:
			if (!dw_is_channel(TextDatumGetCString(value)))
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("invalid channel name for notify: \"%s\"",
								TextDatumGetCString(value)),
						 errdetail("The name must have between 1 and %d bytes.", NAMEDATALEN - 1)));
			break;
		case DW_OPT_ON_SUCCESS:
		case DW_OPT_ON_FAILURE:
			if (task->check != DW_CHECK_OFF)
				dw_check_follow_up(DatumGetTextPP(value), name, option == DW_OPT_ON_SUCCESS ?
								   DW_ON_SUCCESS_ARGS : DW_ON_FAILURE_ARGS);
			break;
		case DW_OPT_MODE:
			(void) dw_mode_named(TextDatumGetCString(value));
			break;
		case DW_OPT_RETRY_BACKOFF:
			(void) dw_backoff_named(TextDatumGetCString(value), true);
			break;
		case DW_OPT_RETRY_ON:
		case DW_OPT_GIVE_UP_ON:
			dw_errors_check(DatumGetArrayTypeP(value), name);
			break;
		default:
			break;
	}
}

/* Sets an option, if it is given, in the column "more".  The option's name is also the key. */
static void
set_more(const DwOptions *options, DwOption option, DwNewTask *task)
{
	const char *name = descriptions[option].name;
	Datum		value = options->values[option].value;
	Datum	   *values = task->values;
	bool	   *nulls = task->nulls;

	if (options->values[option].isnull)
		return;
	if (takes_away(options, option))
	{
		dw_more_remove(values, nulls, Anum_task_more, name);
		return;
	}
	check_more(option, value, task);
	switch (descriptions[option].type)
	{
		case DW_TYPE_SPAN:
			dw_more_set_number(values, nulls, Anum_task_more, name, dw_option_us(options, option));
			break;
		case DW_TYPE_BIGINT:
			dw_more_set_number(values, nulls, Anum_task_more, name, DatumGetInt64(value));
			break;
		case DW_TYPE_TEXTS:
			dw_more_set_text(values, nulls, Anum_task_more, name,
							 dw_errors_joined(DatumGetArrayTypeP(value)));
			break;
		case DW_TYPE_OBJECT:
			dw_more_remove(values, nulls, Anum_task_more, name);
			if (JB_ROOT_COUNT(DatumGetJsonbP(value)) > 0)
				dw_more_set_object(values, nulls, Anum_task_more, name, DatumGetJsonbP(value));
			break;
		default:
			dw_more_set_text(values, nulls, Anum_task_more, name, TextDatumGetCString(value));
	}
}

/*
 * Sets how long the key of a task is unique, in us.  Also stores this period in the row, since the
 * end of the task may end the period.
 */
void
dw_new_task_unique_for(DwNewTask *task, int64 us)
{
	task->unique_for = us;
	dw_more_set_number(task->values, task->nulls, Anum_task_more, DW_MORE_UNIQUE_FOR, us);
}

/* Sets the due time, if a delay or a due time was given. */
void
dw_options_set_due(const DwOptions *options, DwNewTask *task)
{
	if (dw_given(options, DELAY) && dw_given(options, DUE))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("delay and due cannot both be given"),
				 errhint("Both set the due time: leave one of them out.")));
	if (dw_given(options, DELAY))
		task->due = dw_due_after(DatumGetIntervalP(dw_option(options, DELAY)));
	else if (dw_given(options, DUE))
		task->due = dw_finite_due(DatumGetTimestampTz(dw_option(options, DUE)));
}

/*
 * Returns the value of if_exists with this name: what to do if a task with the same key is pending.
 * Raises an error if the name is unknown.
 */
DwIfExists
dw_if_exists_named(const char *name)
{
	static const char *const names[] = {
		[DW_KEEP] = "keep", [DW_REPLACE] = "replace", [DW_REPLACE_KEEP_DUE] = "replace_keep_due",
		[DW_EARLIER] = "earlier", [DW_LATER] = "later", [DW_RAISE] = "error"
	};

	for (size_t i = 0; i < lengthof(names); i++)
		if (strcmp(names[i], name) == 0)
			return i;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for if_exists: \"%s\"", name),
			 errhint("Use 'keep', 'replace', 'replace_keep_due', 'earlier', 'later' or 'error'.")));
}

/* Sets the option if_exists.  If the option is not given, leaves the task's value unchanged. */
static void
set_if_exists(const DwOptions *options, DwNewTask *task)
{
	char	   *name;

	if (!dw_given(options, IF_EXISTS))
		return;
	name = dw_option_cstring(options, IF_EXISTS);
	task->if_exists = dw_if_exists_named(name);
	/* most likely the user's expression for the key has returned null by mistake */
	if (task->if_exists != DW_KEEP && !dw_given(options, KEY))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("if_exists => '%s' needs a key", name),
				 errhint("Only a task with a key can exist already.")));
}

/*
 * Sets queue, priority and spread of a new task.  If the task has no list of kept settings, sets
 * the list of the queue.  A NULL name is the default queue; DW_NO_PRIORITY is the queue's priority.
 * Raises an error if the queue does not exist, does not accept this kind of task, or does not allow
 * the current user to schedule.
 */
void
dw_new_task_queue(DwNewTask *task, const char *name, int16 priority)
{
	DwQueueForTask queue;

	dw_queue_find(name, &queue);
	dw_queue_require_kind(name ? name : "default", queue.external, task->nulls[Anum_task_sql - 1]);
	if (!task->nulls[Anum_task_group_key - 1])
		dw_queue_require_groups(name, &queue);
	task->queue = queue.id;
	task->spread = queue.spread;
	if (task->keep_settings == NULL)
		task->keep_settings = queue.keep_settings;
	task->priority = priority == DW_NO_PRIORITY ? queue.priority : priority;
}

/*
 * Sets a column of the task's row, if the option is given.  An empty text sets the column to null.
 */
static void
set_label(const DwOptions *options, DwOption option, AttrNumber column, DwNewTask *task)
{
	text	   *label;

	if (options->values[option].isnull)
		return;
	label = DatumGetTextPP(options->values[option].value);
	dw_new_task_set(task, column, PointerGetDatum(label), VARSIZE_ANY_EXHDR(label) == 0);
}

/*
 * Sets the given options that both new and pending tasks may have: all except the SQL with its
 * arguments, the payload, due time, key and queue.
 */
void
dw_options_set(const DwOptions *options, DwNewTask *task)
{
	static const DwOption in_more[] = {
		DW_OPT_SKIP_AFTER, DW_OPT_BATCH_ID, DW_OPT_HEADERS, DW_OPT_NOTIFY, DW_OPT_ON_SUCCESS, DW_OPT_ON_FAILURE,
		DW_OPT_MODE, DW_OPT_RETRY_BACKOFF, DW_OPT_RETRY_MAX_DELAY, DW_OPT_RETRY_ON,
		DW_OPT_GIVE_UP_ON
	};

	if (dw_given(options, CHECK_SQL) &&
		!dw_check_named(dw_option_cstring(options, CHECK_SQL), &task->check))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for %s: \"%s\"", "check_sql", dw_option_cstring(options, CHECK_SQL)),
				 errhint("Use 'off', 'on' or 'plan'.")));
	set_label(options, DW_OPT_TAG, Anum_task_tag, task);
	set_label(options, DW_OPT_GROUP_KEY, Anum_task_group_key, task);
	if (dw_given(options, MAX_ATTEMPTS))
		dw_new_task_set(task, Anum_task_max_attempts,
						Int16GetDatum(DatumGetInt32(dw_option(options, MAX_ATTEMPTS))), false);
	if (dw_given(options, TIMEOUT))
		dw_new_task_set(task, Anum_task_timeout, Int32GetDatum(dw_option_ms(options, DW_OPT_TIMEOUT)), false);
	if (dw_given(options, RETRY_DELAY))
		dw_new_task_set(task, Anum_task_retry_delay, dw_option(options, RETRY_DELAY), false);
	if (dw_given(options, EXPIRES))
		dw_new_task_set(task, Anum_task_expires, dw_option(options, EXPIRES), takes_away(options, DW_OPT_EXPIRES));
	refuse_long_follow_ups(options);
	if (dw_given(options, HEADERS))
		dw_new_task_forget_trace(task);
	for (size_t i = 0; i < lengthof(in_more); i++)
		set_more(options, in_more[i], task);
	if (dw_given(options, HEADERS))
		dw_new_task_set_settings(task, dw_more_object(task->values, task->nulls, Anum_task_more, DW_MORE_SETTINGS));
	if (dw_given(options, KEEP_SETTINGS))
		task->keep_settings = DatumGetArrayTypeP(dw_option(options, KEEP_SETTINGS));
}

/* Sets all options of a new task except the SQL with its arguments, and the payload. */
static void
set_all(const DwOptions *options, DwNewTask *task)
{
	int16		priority = DW_NO_PRIORITY;

	dw_options_set_due(options, task);
	set_label(options, DW_OPT_KEY, Anum_task_key, task);
	dw_options_set(options, task);
	if (dw_given(options, UNIQUE_FOR))
	{
		if (!dw_given(options, KEY))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("unique_for needs a key"),
					 errhint("Only a task with a key can be unique.")));
		dw_new_task_unique_for(task, dw_option_us(options, DW_OPT_UNIQUE_FOR));
	}
	set_if_exists(options, task);
	if (dw_given(options, PRIORITY))
		priority = DatumGetInt32(dw_option(options, PRIORITY));
	dw_new_task_queue(task, dw_given(options, QUEUE) ? dw_option_cstring(options, QUEUE) : NULL, priority);
}

/*
 * Returns the SQL text, or NULL if no text is given.  Sets *args to the values of the arguments.
 * If the option "named" is given, replaces the names in the text by numbers.
 */
text *
dw_options_sql(const DwOptions *options, ArrayType **args)
{
	text	   *sql = dw_given(options, SQL) ? DatumGetTextPP(dw_option(options, SQL)) : NULL;

	*args = NULL;
	if (!dw_given(options, NAMED))
	{
		if (dw_given(options, ARGS))
			*args = DatumGetArrayTypeP(dw_option(options, ARGS));
		return sql;
	}
	if (dw_given(options, ARGS) || dw_given(options, ARG_TYPES))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("named and args cannot both be given"),
				 errhint("named is for :name in the SQL text, args for $1, $2 ...")));
	if (sql == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("named needs an SQL text"),
				 errhint("The stored SQL text has numbers instead of names. Use args, or pass sql_text, too.")));
	return dw_named_numbered(sql, DatumGetJsonbP(dw_option(options, NAMED)), args);
}

/*
 * Makes a task from options, and returns the number of arguments of its SQL.  Raises an error if an
 * option is invalid.  Does not check the SQL, nor options that depend on each other; see
 * dw_new_task_check().
 */
int
dw_options_task(const DwOptions *options, DwNewTask *task)
{
	ArrayType  *args;
	int			nargs;

	dw_refuse_null(!dw_given(options, SQL), "SQL text");
	dw_new_task_init(task, dw_options_sql(options, &args));
	nargs = dw_args_parse(args,
						  dw_given(options, ARG_TYPES) ? DatumGetArrayTypeP(dw_option(options, ARG_TYPES)) : NULL, false,
						  &task->values[Anum_task_args - 1],
						  &task->values[Anum_task_arg_types - 1]);
	task->nulls[Anum_task_args - 1] = task->nulls[Anum_task_arg_types - 1] = nargs == 0;
	set_all(options, task);
	return nargs;
}

/*
 * Raises an error if a jsonb (payload or result of a message) is too long.  what: the name of the
 * jsonb for the message.
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

/* Sets the payload of a message.  Raises an error if the payload is too long. */
void
dw_new_task_payload(DwNewTask *task, Datum payload)
{
	dw_option_refuse_long_json(payload, "payload");
	dw_new_task_set(task, Anum_task_payload, payload, false);
}

/* Makes a message from options.  Raises an error if an option is invalid. */
void
dw_options_message(const DwOptions *options, DwNewTask *task)
{
	dw_refuse_null(!dw_given(options, QUEUE), "queue name");
	dw_refuse_null(!dw_given(options, PAYLOAD), "payload");
	dw_new_task_init(task, NULL);
	dw_new_task_payload(task, dw_option(options, PAYLOAD));
	set_all(options, task);
}
