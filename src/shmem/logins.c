/*-------------------------------------------------------------------------
 *
 * logins.c
 *	  Server settings that affect how a task's text is read, and a count of their changes.
 *
 * The postmaster writes the values when the server starts.  Later the launcher writes them, since
 * it has no settings of a role, a database or a client.  Sessions read them: if a client sets
 * TimeZone when it connects, its session has no other source for the server's value (task/login.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/guc.h"

#include "parts.h"

const char *const dw_login_settings[DW_LOGIN_SETTINGS] = {
	[DW_SEARCH_PATH] = "search_path",
	[DW_DATE_STYLE] = "DateStyle",
	[DW_INTERVAL_STYLE] = "IntervalStyle",
	[DW_TIME_ZONE] = "TimeZone",
	[DW_ABBREVIATIONS] = "timezone_abbreviations",
	[DW_MONETARY] = "lc_monetary",
	[DW_XML_OPTION] = "xmloption",
	[DW_ARRAY_NULLS] = "array_nulls",
	[DW_STRINGS] = "standard_conforming_strings",
	[DW_NULL_EQUALS] = "transform_null_equals"
};

/* Publishes the postmaster's settings, which are the server's settings. */
void
dw_logins_init(DwLogins *logins)
{
	memset(logins, 0, sizeof(DwLogins));
	SpinLockInit(&logins->lock);
	pg_atomic_init_u64(&logins->changes, 0);
	dw_logins_publish(logins);
}

/* Publishes the settings of this process, which must be the server's settings.  Counts a change. */
void
dw_logins_publish(DwLogins *logins)
{
	bool		changed = false;

	for (int i = 0; i < DW_LOGIN_SETTINGS; i++)
	{
		const char *value = GetConfigOption(dw_login_settings[i], true, false);
		bool		known = value != NULL && strlen(value) < DW_LOGIN_VALUE;

		/* no other process writes */
		if (known == logins->known[i] && (!known || strcmp(value, logins->values[i]) == 0))
			continue;
		SpinLockAcquire(&logins->lock);
		logins->known[i] = known;
		if (known)
			strlcpy(logins->values[i], value, DW_LOGIN_VALUE);
		SpinLockRelease(&logins->lock);
		changed = true;
	}
	if (changed)
		pg_atomic_fetch_add_u64(&logins->changes, 1);
}

/*
 * Copies the server's value of a setting to a buffer of DW_LOGIN_VALUE bytes.  Returns false if
 * none.
 */
bool
dw_logins_server_value(DwLogins *logins, DwLoginSetting setting, char *value)
{
	bool		known;

	SpinLockAcquire(&logins->lock);
	known = logins->known[setting];
	if (known)
		memcpy(value, logins->values[setting], DW_LOGIN_VALUE);
	SpinLockRelease(&logins->lock);
	return known;
}
