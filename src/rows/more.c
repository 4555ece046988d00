/*-------------------------------------------------------------------------
 *
 * more.c
 *	  What few tasks have: the column "more" of a task's row.
 *
 * Run by backends that schedule, and by executors.  Ordinary tasks have null
 * there, and cost nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

#include "catalog.h"
#include "more.h"

/* what a key and its entry take at most, in bytes, and all that is no text */
#define SMALL_KEYS	4096

static const struct
{
	const char *name;
	DwMode		mode;
}			modes[] = {{"at_most_once", DW_AT_MOST_ONCE}, {"at_least_once", DW_AT_LEAST_ONCE}};

static bool
find_option(const Datum *values, const bool *nulls, int column, const char *key, JsonbValue *value)
{
	Jsonb	   *more;

	if (nulls[column - 1])
		return false;
	more = DatumGetJsonbP(values[column - 1]);
	return JB_ROOT_IS_OBJECT(more) &&
		getKeyJsonValueFromContainer(&more->root, key, strlen(key), value) != NULL;
}

bool
dw_more_has(const Datum *values, const bool *nulls, int column, const char *key)
{
	JsonbValue	value;

	return find_option(values, nulls, column, key, &value);
}

/* A copy in the current memory context, or NULL. */
char *
dw_more_text(const Datum *values, const bool *nulls, int column, const char *key)
{
	JsonbValue	value;

	if (!find_option(values, nulls, column, key, &value) || value.type != jbvString)
		return NULL;
	return pnstrdup(value.val.string.val, value.val.string.len);
}

bool
dw_more_number(const Datum *values, const bool *nulls, int column, const char *key, int64 *number)
{
	JsonbValue	value;
	char	   *text;
	char	   *end;

	if (!find_option(values, nulls, column, key, &value) || value.type != jbvNumeric)
		return false;
	text = numeric_normalize(value.val.numeric);
	errno = 0;
	*number = strtoi64(text, &end, 10);
	return errno == 0 && *end == '\0';
}

/* An object with one key. */
static Datum
object(const char *key, JsonbValue *value)
{
	JsonbParseState *state = NULL;
	JsonbValue	name = {.type = jbvString};

	name.val.string.val = (char *) key;
	name.val.string.len = strlen(key);
	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	pushJsonbValue(&state, WJB_KEY, &name);
	pushJsonbValue(&state, WJB_VALUE, value);
	return JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)));
}

static void
set_option(Datum *values, bool *nulls, int column, const char *key, JsonbValue *value)
{
	Datum		added = object(key, value);

	if (nulls[column - 1] || !JB_ROOT_IS_OBJECT(DatumGetJsonbP(values[column - 1])))
		values[column - 1] = added;
	else
		values[column - 1] = DirectFunctionCall2(jsonb_concat, values[column - 1], added);
	nulls[column - 1] = false;
}

bool
dw_more_has_room(const Datum *values, const bool *nulls, int column, Size bytes)
{
	return nulls[column - 1] ||
		toast_raw_datum_size(values[column - 1]) + bytes + SMALL_KEYS < JENTRY_OFFLENMASK;
}

void
dw_more_set_text(Datum *values, bool *nulls, int column, const char *key, const char *text)
{
	JsonbValue	value = {.type = jbvString};

	value.val.string.val = (char *) text;
	value.val.string.len = strlen(text);
	set_option(values, nulls, column, key, &value);
}

void
dw_more_set_number(Datum *values, bool *nulls, int column, const char *key, int64 number)
{
	JsonbValue	value = {.type = jbvNumeric};

	value.val.numeric = int64_to_numeric(number);
	set_option(values, nulls, column, key, &value);
}

/* What is left without any key is null again. */
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

static DwMode
find_mode(const char *name)
{
	for (size_t i = 0; i < lengthof(modes); i++)
		if (strcmp(modes[i].name, name) == 0)
			return modes[i].mode;
	return DW_IN_TRANSACTION;
}

/* By the columns of a row of delay_wheel.task. */
DwMode
dw_mode(const Datum *values, const bool *nulls)
{
	char	   *name;

	if (nulls[Anum_task_more - 1])
		return DW_IN_TRANSACTION;
	name = dw_more_text(values, nulls, Anum_task_more, DW_MORE_MODE);
	return name == NULL ? DW_IN_TRANSACTION : find_mode(name);
}

/* By its name; an error if there is none of that name. */
DwMode
dw_mode_named(const char *name)
{
	DwMode		mode = find_mode(name);

	if (mode == DW_IN_TRANSACTION)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for mode: \"%s\"", name),
				 errhint("Use 'at_most_once' or 'at_least_once', for a statement that cannot run inside a transaction, or null for all others.")));
	return mode;
}
