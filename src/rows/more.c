/*-------------------------------------------------------------------------
 *
 * more.c
 *	  The column "more" of a task's row: options that few tasks have.
 *
 * Run by sessions that schedule and declare queues, by executors and by readers of queues.
 *
 * The column is a jsonb object with the keys of rows.h.  The column of an ordinary task is null.
 *
 * The functions take the columns of a row of delay_wheel_data.task or failed_task (values and
 * nulls) and the number of the column "more" in the row.  Plain SQL may have written any value into
 * the column.  So a value of the wrong type counts as missing, and raises no error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"

#include "../base/compat.h"
#include "../base/errors.h"
#include "rows.h"

/* Bytes of the object that are reserved for keys, numbers and overhead */
#define SMALL_KEYS	4096

/* Limit for the elements of retry_on and of give_up_on. */
#define MAX_ERRORS		100

/*
 * Returns false if the column has no such key.  Most options are missing: a look for the key's first
 * two bytes is faster than a copy of the object.
 */
static bool
may_have_key(struct varlena *more, const char *key)
{
	const char *at = VARDATA_ANY(more);
	const char *last = at + VARSIZE_ANY_EXHDR(more) - 1;

	if (VARATT_IS_COMPRESSED(more) || VARATT_IS_EXTERNAL(more))
		return true;
	for (; at < last && (at = memchr(at, key[0], last - at)) != NULL; at++)
		if (at[1] == key[1])
			return true;
	return false;
}

/* Looks up a key; *value points into the column.  Returns false if key or column is missing. */
static bool
find_key(const Datum *values, const bool *nulls, int column, const char *key, JsonbValue *value)
{
	Jsonb	   *more;

	if (nulls[column - 1] || !may_have_key((struct varlena *) DatumGetPointer(values[column - 1]), key))
		return false;
	more = DatumGetJsonbP(values[column - 1]);
	return JB_ROOT_IS_OBJECT(more) &&
		getKeyJsonValueFromContainer(&more->root, key, strlen(key), value) != NULL;
}

/* Returns true if the row has the key, with a value of any type. */
bool
dw_more_has(const Datum *values, const bool *nulls, int column, const char *key)
{
	JsonbValue	value;

	return find_key(values, nulls, column, key, &value);
}

/* Returns a copy of a key's text in the current memory context; NULL if the key has no text. */
char *
dw_more_text(const Datum *values, const bool *nulls, int column, const char *key)
{
	JsonbValue	value;

	if (!find_key(values, nulls, column, key, &value) || value.type != jbvString)
		return NULL;
	return pnstrdup(value.val.string.val, value.val.string.len);
}

/* Sets *number to a key's integer.  Returns false if the key has no integer in the range. */
bool
dw_more_number(const Datum *values, const bool *nulls, int column, const char *key, int64 *number)
{
	JsonbValue	value;
	char	   *text;
	char	   *end;

	if (!find_key(values, nulls, column, key, &value) || value.type != jbvNumeric)
		return false;
	text = numeric_normalize(value.val.numeric);
	errno = 0;
	*number = strtoi64(text, &end, 10);
	return errno == 0 && *end == '\0';
}

/* Returns a copy of a key's object in the current memory context; NULL if the key has no object. */
Jsonb *
dw_more_object(const Datum *values, const bool *nulls, int column, const char *key)
{
	JsonbValue	value;
	Jsonb	   *object;

	if (!find_key(values, nulls, column, key, &value) || value.type != jbvBinary)
		return NULL;
	object = JsonbValueToJsonb(&value);
	return JB_ROOT_IS_OBJECT(object) ? object : NULL;
}

/* Sets a key of the row's column, in the current memory context. */
static void
set_option(Datum *values, bool *nulls, int column, const char *key, JsonbValue *value)
{
	JsonbInState state = {0};
	JsonbValue	name = {.type = jbvString};
	Datum		added;

	name.val.string.val = (char *) key;
	name.val.string.len = strlen(key);
	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	pushJsonbValue(&state, WJB_KEY, &name);
	pushJsonbValue(&state, WJB_VALUE, value);
	pushJsonbValue(&state, WJB_END_OBJECT, NULL);
	added = JsonbPGetDatum(JsonbValueToJsonb(state.result));
	if (!nulls[column - 1] && JB_ROOT_IS_OBJECT(DatumGetJsonbP(values[column - 1])))
		added = DirectFunctionCall2(jsonb_concat, values[column - 1], added);
	values[column - 1] = added;
	nulls[column - 1] = false;
}

/* Returns true if a text of this size can be added: jsonb limits the size of an object. */
bool
dw_more_has_room(const Datum *values, const bool *nulls, int column, Size bytes)
{
	return nulls[column - 1] ||
		toast_raw_datum_size(values[column - 1]) + bytes + SMALL_KEYS < JENTRY_OFFLENMASK;
}

/* Sets a key to a text.  The new column is allocated in the current memory context. */
void
dw_more_set_text(Datum *values, bool *nulls, int column, const char *key, const char *text)
{
	JsonbValue	value = {.type = jbvString};

	value.val.string.val = (char *) text;
	value.val.string.len = strlen(text);
	set_option(values, nulls, column, key, &value);
}

/* Sets a key to a number.  The new column is allocated in the current memory context. */
void
dw_more_set_number(Datum *values, bool *nulls, int column, const char *key, int64 number)
{
	JsonbValue	value = {.type = jbvNumeric};

	value.val.numeric = int64_to_numeric(number);
	set_option(values, nulls, column, key, &value);
}

/* Sets a key to an object.  The new column is allocated in the current memory context. */
void
dw_more_set_object(Datum *values, bool *nulls, int column, const char *key, Jsonb *object)
{
	JsonbValue	value;

	JsonbToJsonbValue(object, &value);
	set_option(values, nulls, column, key, &value);
}

/* Removes a key, if the column has the key.  The column becomes null if no key is left. */
void
dw_more_remove(Datum *values, bool *nulls, int column, const char *key)
{
	Jsonb	   *left;

	if (!dw_more_has(values, nulls, column, key))
		return;
	left = DatumGetJsonbP(DirectFunctionCall2(jsonb_delete, values[column - 1],
											  CStringGetTextDatum(key)));
	values[column - 1] = JsonbPGetDatum(left);
	nulls[column - 1] = JB_ROOT_COUNT(left) == 0;
}

/* Returns the mode with this name; DW_IN_TRANSACTION if no mode has this name. */
static DwMode
find_mode(const char *name)
{
	return strcmp(name, "at_most_once") == 0 ? DW_AT_MOST_ONCE :
		strcmp(name, "at_least_once") == 0 ? DW_AT_LEAST_ONCE : DW_IN_TRANSACTION;
}

/* Returns the mode of a task, by the columns of its row of delay_wheel_data.task. */
DwMode
dw_mode(const Datum *values, const bool *nulls)
{
	char	   *name = dw_more_text(values, nulls, Anum_task_more, DW_MORE_MODE);

	return name == NULL ? DW_IN_TRANSACTION : find_mode(name);
}

/* Returns the mode with the name that a user gave.  Raises an error if no mode has this name. */
DwMode
dw_mode_named(const char *name)
{
	DwMode		mode = find_mode(name);

	if (mode == DW_IN_TRANSACTION)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for mode: \"%s\"", name),
				 errhint("Use 'at_most_once' or 'at_least_once' for a statement that cannot run inside a transaction, and null for all other statements.")));
	return mode;
}

/*---- Options of further attempts, of tasks and queues ----*/

static const char *const backoff_names[] = {
	[DW_EXPONENTIAL] = "exponential",
	[DW_LINEAR] = "linear",
	[DW_FIXED] = "fixed"
};

/*
 * Returns the backoff of this name; the default if the name is NULL.  For an unknown name, raises
 * an error if "strict" is true, else returns the default.
 */
DwBackoff
dw_backoff_named(const char *name, bool strict)
{
	for (size_t i = 0; name != NULL && i < lengthof(backoff_names); i++)
		if (strcmp(backoff_names[i], name) == 0)
			return i;
	if (strict)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for retry_backoff: \"%s\"", name),
				 errhint("Use 'exponential', 'linear' or 'fixed'.")));
	return DW_EXPONENTIAL;
}

/* Returns true if the text is an SQLSTATE or the class of an SQLSTATE. */
static bool
is_error(const char *text)
{
	size_t		length = strspn(text, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ");

	return text[length] == '\0' && (length == DW_STATE_LENGTH || length == DW_CLASS_LENGTH);
}

/* Raises an error if the array is not a list of SQLSTATEs and classes. */
void
dw_errors_check(ArrayType *errors, const char *option)
{
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	deconstruct_array(errors, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	if (n > MAX_ERRORS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not have more than %d elements", option, MAX_ERRORS),
				 errhint("The first two characters, such as 08, stand for a whole class.")));
	for (int i = 0; i < n; i++)
	{
		char	   *error;

		dw_refuse_null(nulls[i], psprintf("SQLSTATE in %s", option));
		error = TextDatumGetCString(elements[i]);
		if (!is_error(error))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid SQLSTATE in %s: \"%s\"", option, error),
					 errhint("An SQLSTATE consists of five digits and upper-case letters, such as 40001. The first two characters, such as 40, are its class.")));
	}
}

/* Returns the elements of an array of texts, with commas between. */
char *
dw_errors_joined(ArrayType *errors)
{
	StringInfoData joined;
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	initStringInfo(&joined);
	deconstruct_array(errors, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	for (int i = 0; i < n; i++)
		if (!nulls[i])
			appendStringInfo(&joined, "%s%s", joined.len > 0 ? "," : "",
							 TextDatumGetCString(elements[i]));
	return joined.data;
}
