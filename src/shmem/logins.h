/*-------------------------------------------------------------------------
 *
 * logins.h
 *	  Server settings that affect how a task's text is read, and a count of their changes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LOGINS_H
#define DW_LOGINS_H

#include "postgres.h"

#include "port/atomics.h"
#include "storage/spin.h"

/* The settings; see task/login.c. */
typedef enum DwLoginSetting
{
	DW_SEARCH_PATH,
	DW_DATE_STYLE,
	DW_INTERVAL_STYLE,
	DW_TIME_ZONE,
	DW_ABBREVIATIONS,
	DW_MONETARY,
	DW_XML_OPTION,
	DW_ARRAY_NULLS,
	DW_STRINGS,
	DW_NULL_EQUALS,
	DW_LOGIN_SETTINGS			/* number of settings */
} DwLoginSetting;

extern const char *const dw_login_settings[DW_LOGIN_SETTINGS];

/* Size of the buffer for a value.  Longer values are not stored. */
#define DW_LOGIN_VALUE	256

typedef struct DwLogins
{
	slock_t		lock;
	char		values[DW_LOGIN_SETTINGS][DW_LOGIN_VALUE];	/* values of the server; the launcher
															 * writes them under the lock */
	bool		known[DW_LOGIN_SETTINGS];	/* true if values[i] is valid; under the lock, too */
	pg_atomic_uint64 changes;	/* incremented after a change of server, role or database
								 * settings */
} DwLogins;

extern void dw_logins_init(DwLogins *logins);
extern void dw_logins_publish(DwLogins *logins);
extern bool dw_logins_server_value(DwLogins *logins, DwLoginSetting setting, char *value);

#endif							/* DW_LOGINS_H */
