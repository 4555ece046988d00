/*-------------------------------------------------------------------------
 *
 * kept_settings.c
 *	  Settings of the session that schedules a task, kept for the run of its SQL.
 *
 * Run by sessions that schedule tasks, and by processes that run their SQL.
 *
 * The settings are stored as a jsonb object of names and values.  A value is a text, or null for a
 * custom setting that was not set.  A setting is kept only if the current user may set it.  For the
 * run of the task, the task's owner must also have the right to set it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/varlena.h"

#include "../base/compat.h"
#include "../base/settings.h"
#include "../base/signature.h"
#include "statement.h"

/* Limits for the settings of a task: their number, and the bytes of names and values */
#define MAX_SETTINGS	100
#define MAX_BYTES		65536

/* Settings that are not kept, with the reason.  A name that ends with * is a prefix of names. */
static const struct
{
	const char *name;
	const char *hint;
}			refused[] =
{
	{"role", "A task runs as the role that has scheduled it."},
	{"session_authorization", "A task runs as the role that has scheduled it."},
	{"search_path", "The search_path of the caller is always kept with a task."},
	{"statement_timeout", "Use the option timeout."},
	{"transaction_*", "The transaction of a task has begun before its settings are set."},
	{"default_transaction_isolation", "A task has the isolation level of its owner: use ALTER ROLE or ALTER DATABASE."},
	{"default_transaction_*", "The transaction of a task has begun before its settings are set."},
	{"delay_wheel.*", "Use options of the task or of its queue."},
};

/*---- Names ----*/

/* Raises an error if the setting must not be kept. */
static void
refuse_setting(const char *name)
{
	if (pg_strcasecmp(name, DW_TRACEPARENT) == 0)
		return;
	for (size_t i = 0; i < lengthof(refused); i++)
	{
		const char *listed = refused[i].name;
		size_t		length = strcspn(listed, "*");

		if (listed[length] == '*' ? pg_strncasecmp(listed, name, length) == 0 :
			pg_strcasecmp(listed, name) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("setting \"%s\" cannot be kept with a task", name),
					 errhint("%s", refused[i].hint)));
	}
}

/* Returns true if the setting belongs to an application, and no part of the server defines it. */
static bool
is_custom(const struct config_generic *setting)
{
	return setting == NULL || (setting->flags & GUC_CUSTOM_PLACEHOLDER) != 0;
}

/* Sets a setting.  If "really" is false, only raises the error that setting it would raise. */
static void
set(const char *name, const char *value, GucAction action, bool really)
{
	(void) set_config_option(name, value, superuser() ? PGC_SUSET : PGC_USERSET, PGC_S_SESSION,
							 action, really, 0, false);
}

/* Returns the elements of an array of names.  Raises an error for a null, and for too many. */
static Datum *
read_names(ArrayType *names, int *n)
{
	Datum	   *elements = dw_elements_not_null(names, "name in keep_settings", n);

	if (*n > MAX_SETTINGS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not have more than %d elements", "keep_settings", MAX_SETTINGS)));
	return elements;
}

/*
 * Returns the present value of a setting, NULL if it is a custom setting that does not exist.  Sets
 * *name to the server's spelling of the setting's name.  Raises an error if the current user may
 * not set the setting to this value, or if the setting must not be kept.
 */
static const char *
value_of(const char **name)
{
	const char *known = NULL;
	const char *value;

	refuse_setting(*name);
	value = GetConfigOptionByName(*name, &known, true);
	if (value == NULL && strchr(*name, '.') == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("unrecognized configuration parameter \"%s\"", *name)));
	if (value != NULL)
	{
		*name = known;
		set(known, value, GUC_ACTION_LOCAL, false);
	}
	return value;
}

/* Returns the names of delay_wheel.keep_settings, NULL if there are none. */
ArrayType *
dw_kept_settings_default(void)
{
	List	   *names;
	ListCell   *lc;
	Datum	   *elements;
	int			n = 0;

	if (dw_keep_settings[0] == '\0')
		return NULL;
	/* the check hook has accepted only a list */
	(void) SplitGUCList(pstrdup(dw_keep_settings), ',', &names);
	elements = palloc(list_length(names) * sizeof(Datum));
	foreach(lc, names)
		elements[n++] = CStringGetTextDatum(lfirst(lc));
	return construct_array(elements, n, TEXTOID, -1, false, TYPALIGN_INT);
}

/* Raises an error if the current user could not keep the settings of these names. */
void
dw_kept_settings_check(ArrayType *names)
{
	int			n;
	Datum	   *elements = read_names(names, &n);

	for (int i = 0; i < n; i++)
	{
		const char *name = TextDatumGetCString(elements[i]);

		(void) value_of(&name);
	}
}

/*---- Keeping and setting ----*/

/* Adds a name, or a value that may be NULL, to an object.  Returns its size in bytes. */
static Size
push(JsonbInState *state, JsonbIteratorToken token, const char *text)
{
	JsonbValue	value = {.type = text == NULL ? jbvNull : jbvString};

	if (text != NULL)
	{
		value.val.string.val = pstrdup(text);
		value.val.string.len = strlen(text);
	}
	pushJsonbValue(state, token, &value);
	return text == NULL ? 0 : value.val.string.len;
}

/* Returns the values of the settings named in an array and a list; NULL without names. */
Jsonb *
dw_kept_settings_take(ArrayType *names, const char *const *others, int nothers)
{
	JsonbInState state = {0};
	Size		bytes = 0;
	int			n = 0;
	Datum	   *elements = names == NULL ? NULL : read_names(names, &n);

	if (n + nothers == 0)
		return NULL;
	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < n + nothers; i++)
	{
		const char *name = i < n ? TextDatumGetCString(elements[i]) : others[i - n];
		const char *value = value_of(&name);

		bytes += push(&state, WJB_KEY, name);
		bytes += push(&state, WJB_VALUE, value);
	}
	if (bytes > MAX_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("settings to be kept are too long"),
				 errdetail("The settings have %zu bytes, the maximum is %d.", bytes, MAX_BYTES),
				 errhint("Put the data into a table, or pass it as an argument.")));
	pushJsonbValue(&state, WJB_END_OBJECT, NULL);
	return JsonbValueToJsonb(state.result);
}

/*
 * Sets an application's setting, which did not exist when the task was scheduled, to ''.  So it is
 * empty in each executor, also in an executor that has not met the setting before.
 */
static void
empty(const char *name, GucAction action)
{
	const struct config_generic *setting = dw_find_setting(name);
	const char *value = "";

	if (setting != NULL && !is_custom(setting))
		return;
	if (setting != NULL)
		value = *dw_string_setting(setting)->variable;
	if (setting == NULL || (value != NULL && value[0] != '\0'))
		set(name, "", action, true);
}

/*
 * Returns true if tasks with different values of the setting can be run by kept plans: no plan
 * depends on an application's own settings, and for a few settings of the server a plan is kept for
 * each value (plans.c).
 */
static bool
leaves_plans(const char *name)
{
	static const char *const of_key[] = {"DateStyle", "IntervalStyle", "TimeZone"};

	for (size_t i = 0; i < lengthof(of_key); i++)
		if (pg_strcasecmp(name, of_key[i]) == 0)
			return true;
	return is_custom(dw_find_setting(name));
}

/*
 * Sets the settings, as the current user, to the kept values.  Raises an error if this user may not
 * set the settings, or if a value is not valid any more.  Returns true if a kept plan can still run
 * the task.
 */
bool
dw_kept_settings_set(Jsonb *settings, GucAction action)
{
	JsonbIterator *iterator = JsonbIteratorInit(&settings->root);
	JsonbIteratorToken token;
	JsonbValue	item;
	char	   *name = NULL;
	bool		may_keep = true;

	while ((token = JsonbIteratorNext(&iterator, &item, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
		{
			name = pnstrdup(item.val.string.val, item.val.string.len);
			refuse_setting(name);
		}
		else if (token == WJB_VALUE && item.type == jbvString)
			set(name, pnstrdup(item.val.string.val, item.val.string.len), action, true);
		else if (token == WJB_VALUE)
			empty(name, action);
		if (token == WJB_VALUE)
			may_keep &= leaves_plans(name);
	}
	return may_keep;
}
