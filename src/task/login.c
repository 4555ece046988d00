/*-------------------------------------------------------------------------
 *
 * login.c
 *	  How a new session of a role would read a task's text.
 *
 * Run by sessions that schedule tasks, or run them at once.
 *
 * The meaning of a text depends on settings: the schemas in which a name is looked up, the month in
 * 03/02/2026, the zone of 10:00.  A task runs in a new session of its owner, but its text must mean
 * the same as in the session that scheduled it.  So a session stores a setting with the task if the
 * new session would read the text differently without it (new_task.c).  Most tasks have no stored
 * settings.
 *
 * Settings for the output of values (the style of DateStyle, extra_float_digits, bytea_output) are
 * ignored: drivers set them for each session, and they do not change the meaning of a text.  Two
 * names of a zone without summer time, such as UTC and Etc/UTC, count as equal.
 *
 * The settings of a new session are looked up once, and again after a reload of the configuration,
 * and after a commit of ALTER ROLE ... SET or ALTER DATABASE ... SET.  Shared memory contains a
 * counter of such commits (shmem/logins.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_db_role_setting.h"
#include "catalog/pg_type.h"
#include "pgtime.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "../base/compat.h"
#include "task.h"

struct DwLogin
{
	Oid			role;			/* hash key, must be first */
	char	   *values[DW_LOGIN_SETTINGS];	/* NULL: not known */
	bool		unchanged[DW_LOGIN_SETTINGS];	/* this session began with this value */
	int			date_order;
	bool		sql_intervals;
	const pg_tz *zone;
};

/* The settings of roles that were looked up */
static HTAB *logins = NULL;
static MemoryContext logins_context = NULL;

/* The counter of changes, and PgReloadTime, when the settings were looked up */
static uint64 changes_seen = 0;
static TimestampTz settings_read = 0;

/* True if this open transaction has changed settings of a role or database. */
static bool changing = false;

/* PostgreSQL's records of the settings */
static struct config_generic *records[DW_LOGIN_SETTINGS];

/* Adds a setting, given as "name=value", if it is one of DW_LOGIN_SETTINGS and has no value yet. */
static void
add_setting(char *item, char **values)
{
	for (int i = 0; i < DW_LOGIN_SETTINGS; i++)
	{
		size_t		length = strlen(dw_login_settings[i]);

		if (values[i] == NULL && pg_strncasecmp(item, dw_login_settings[i], length) == 0 && item[length] == '=')
			values[i] = item + length + 1;
	}
}

/* Adds the settings of a database and a role (InvalidOid: all) that lack a value in values. */
static void
add_settings(Relation rel, Oid database, Oid role, char **values)
{
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], Anum_pg_db_role_setting_setdatabase, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(database));
	ScanKeyInit(&keys[1], Anum_pg_db_role_setting_setrole, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(role));
	scan = systable_beginscan(rel, DbRoleSettingDatidRolidIndexId, true, NULL, 2, keys);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		bool		isnull;
		Datum		settings = heap_getattr(tuple, Anum_pg_db_role_setting_setconfig,
											RelationGetDescr(rel), &isnull);
		Datum	   *items;
		int			n = 0;

		if (!isnull)
			deconstruct_array(DatumGetArrayTypeP(settings), TEXTOID, -1, false, TYPALIGN_INT,
							  &items, NULL, &n);
		for (int i = 0; i < n; i++)
			add_setting(TextDatumGetCString(items[i]), values);
	}
	systable_endscan(scan);
}

/* Returns the server's value of a setting; NULL if it is not known. */
static const char *
server_value(DwLoginSetting i)
{
	char	   *value;

	if (records[i]->reset_source <= PGC_S_ARGV)
		return pstrdup(GetConfigOptionResetString(dw_login_settings[i]));
	value = palloc(DW_LOGIN_VALUE);
	return dw_logins_server_value(&dw_shared->logins, i, value) ? value : NULL;
}

/* Sets a setting for a moment, so that PostgreSQL interprets the value. */
static void
try_value(const char *name, const char *value)
{
	if (value != NULL && strcmp(value, GetConfigOption(name, false, false)) != 0)
		(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, DEBUG1, false);
}

/*
 * Fills in the settings of a new session of the role.  The first value that is found for role and
 * database overrides the server's value.  If a DateStyle found there is incomplete, the server's
 * DateStyle completes it.
 */
static void
look_up(DwLogin *login, MemoryContext context)
{
	Relation	rel = table_open(DbRoleSettingRelationId, AccessShareLock);
	const Oid	pairs[][2] = {
		{MyDatabaseId, login->role}, {InvalidOid, login->role},
		{MyDatabaseId, InvalidOid}, {InvalidOid, InvalidOid}
	};
	char	   *own[DW_LOGIN_SETTINGS] = {NULL};
	int			nest_level;

	for (size_t i = 0; i < lengthof(pairs); i++)
		add_settings(rel, pairs[i][0], pairs[i][1], own);
	table_close(rel, AccessShareLock);

	nest_level = NewGUCNestLevel();
	for (int i = 0; i < DW_LOGIN_SETTINGS; i++)
	{
		const char *name = dw_login_settings[i];
		const char *value = server_value(i);

		if (i != DW_SEARCH_PATH)
		{
			try_value(name, value);
			try_value(name, own[i]);
		}
		if (own[i] != NULL || value != NULL)
			value = i == DW_SEARCH_PATH ? (own[i] ? own[i] : value) : GetConfigOption(name, false, false);
		login->values[i] = value == NULL ? NULL : MemoryContextStrdup(context, value);
		login->unchanged[i] = value != NULL && strcmp(value, GetConfigOptionResetString(name)) == 0;
	}
	login->date_order = DateOrder;
	login->sql_intervals = IntervalStyle == INTSTYLE_SQL_STANDARD;
	login->zone = session_timezone;
	AtEOXact_GUC(true, nest_level);
}

/* Forgets all settings that were looked up if some may have changed. */
static void
forget_old_logins(void)
{
	uint64		changes = pg_atomic_read_u64(&dw_shared->logins.changes);
	HASHCTL		info = {.keysize = sizeof(Oid), .entrysize = sizeof(DwLogin)};

	if (logins != NULL && changes == changes_seen && settings_read == PgReloadTime && !changing)
		return;
	if (logins_context != NULL)
		MemoryContextDelete(logins_context);
	logins = NULL;
	for (int i = 0; i < DW_LOGIN_SETTINGS; i++)
		records[i] = dw_find_setting(dw_login_settings[i]);
	logins_context = AllocSetContextCreate(TopMemoryContext, "delay_wheel logins", ALLOCSET_SMALL_SIZES);
	info.hcxt = logins_context;
	logins = hash_create("delay_wheel logins", 8, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	changes_seen = changes;
	settings_read = PgReloadTime;
}

/* Returns the settings of a new session of the role in this database, valid until the next call. */
const DwLogin *
dw_login(Oid role)
{
	DwLogin    *known;
	DwLogin		login = {.role = role};

	forget_old_logins();
	known = hash_search(logins, &role, HASH_FIND, NULL);
	if (known != NULL)
		return known;
	look_up(&login, logins_context);
	known = hash_search(logins, &role, HASH_ENTER, NULL);
	*known = login;
	return known;
}

/* Returns the value of a setting in the new session, NULL if it is not known. */
const char *
dw_login_value(const DwLogin *login, DwLoginSetting setting)
{
	return login->values[setting];
}

/* Returns true if both zones are the same, or always have the same offset. */
static bool
is_same_zone(const pg_tz *a, const pg_tz *b)
{
	long		offset;
	long		other;

	return a == b || (pg_get_timezone_offset(a, &offset) && pg_get_timezone_offset(b, &other) && offset == other);
}

/* Returns true if this setting may change the meaning of a text in a new session of the role. */
bool
dw_login_differs(const DwLogin *login, DwLoginSetting setting)
{
	if (login->values[setting] == NULL)
		return true;
	switch (setting)
	{
		case DW_SEARCH_PATH:
			return strcmp(namespace_search_path, login->values[setting]) != 0;
		case DW_DATE_STYLE:
			return DateOrder != login->date_order;
		case DW_INTERVAL_STYLE:
			return (IntervalStyle == INTSTYLE_SQL_STANDARD) != login->sql_intervals;
		case DW_TIME_ZONE:
			return !is_same_zone(session_timezone, login->zone);
		default:
			if (login->unchanged[setting] && records[setting]->source == records[setting]->reset_source)
				return false;
			return strcmp(GetConfigOption(dw_login_settings[setting], false, false), login->values[setting]) != 0;
	}
}

/* Notes that this transaction has changed settings of a role or a database. */
void
dw_login_changing(void)
{
	changing = true;
}

/* Makes all sessions look up settings again, at the end of such a transaction.  Cannot fail. */
void
dw_login_changed(void)
{
	if (!changing)
		return;
	changing = false;
	/* this session may have looked up settings that were rolled back */
	pg_atomic_fetch_add_u64(&dw_shared->logins.changes, 1);
}
