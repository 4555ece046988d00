/*-------------------------------------------------------------------------
 *
 * retention.c
 *	  Asking the sweeper to look for old rows.
 *
 * Run by timers and the sweeper.  Settings limit the age and the number of failed tasks,
 * the age and the size of the history, and the age of the audit.  When a timer starts, shared
 * memory does not tell which rows exist, and a changed setting may make rows too old or too
 * many.  In both cases the sweeper is asked to look, see failed.c, history_tables.c and
 * aged_rows.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/clock.h"
#include "../base/settings.h"
#include "../rows/catalog.h"
#include "../shmem/shared.h"
#include "ending.h"

/* Asks the sweeper to look at all failed tasks, now. */
static void
look_at_failed(DwDatabase *db)
{
	dw_failed_limit_set(&db->sweeper_news, 0);
	dw_ask_sweeper(db, DW_JOB_FAILED, dw_now());
}

/* Asks the sweeper to look at the history's tables, now. */
static void
look_at_history(DwDatabase *db)
{
	dw_job_put_off(&db->sweeper_news, DW_JOB_HISTORY, PG_INT64_MIN);
	dw_ask_sweeper(db, DW_JOB_HISTORY, dw_now());
}

/*
 * Asks the sweeper to look at failed tasks, unique keys, the audit, the history, leases and local
 * times, where there may be rows; at the history also if shared memory still names a current
 * table.  To be called outside of a transaction by a timer when it starts, and by the sweeper
 * when the clock was set.
 */
void
dw_retention_begin(DwDatabase *db)
{
	dw_job_put_off(&db->sweeper_news, DW_JOB_FAILED, PG_INT64_MIN);
	dw_job_put_off(&db->sweeper_news, DW_JOB_PERIODS, PG_INT64_MIN);
	dw_job_put_off(&db->sweeper_news, DW_JOB_AUDIT, PG_INT64_MIN);
	if (dw_any_may_have_rows(offsetof(DwCatalog, unique_key), 1))
		dw_ask_sweeper(db, DW_JOB_PERIODS, dw_now());
	if (dw_any_may_have_rows(offsetof(DwCatalog, audit), 1))
		dw_ask_sweeper(db, DW_JOB_AUDIT, dw_now());
	if (dw_any_may_have_rows(offsetof(DwCatalog, failed), 1))
		look_at_failed(db);
	if (dw_any_may_have_rows(offsetof(DwCatalog, history), DW_HISTORY_TABLES) ||
		dw_history_known_table(&db->sweeper_news) >= 0)
		look_at_history(db);
	if (dw_index_may_have_rows(offsetof(DwCatalog, task_lease_index)))
		dw_ask_sweeper(db, DW_JOB_LEASES, dw_now());
	if (dw_index_may_have_rows(offsetof(DwCatalog, task_local_index)))
		dw_ask_sweeper(db, DW_JOB_LOCAL, dw_now());
}

/*
 * Asks the sweeper to look at failed tasks, the history and the audit, if their settings have changed
 * since this process called the function last.  True if they have: the sweeper then begins
 * anew with failed tasks, see dw_failed_restart().  The first call only remembers the settings.
 */
bool
dw_retention_obey_settings(DwDatabase *db)
{
	static int	known[DW_RETENTION_SETTINGS] = {INT_MIN};
	int			set[DW_RETENTION_SETTINGS];
	bool		changed;

	dw_retention_settings(set);
	changed = known[0] != INT_MIN && memcmp(known, set, sizeof(set)) != 0;
	memcpy(known, set, sizeof(set));
	if (changed)
	{
		look_at_failed(db);
		look_at_history(db);
		dw_job_put_off(&db->sweeper_news, DW_JOB_AUDIT, PG_INT64_MIN);
		dw_ask_sweeper(db, DW_JOB_AUDIT, dw_now());
	}
	return changed;
}

/*
 * As dw_retention_obey_settings(), for a timer: tells the sweeper its settings before it asks
 * for something.
 */
void
dw_retention_tell_settings(DwDatabase *db)
{
	int			set[DW_RETENTION_SETTINGS];

	dw_retention_settings(set);
	dw_retention_publish(&db->sweeper_news, set);
	(void) dw_retention_obey_settings(db);
}

/*
 * True if this process, the sweeper, has other settings than the timer that asks it for
 * something.  The server ignores SIGHUP for a worker that is just starting, so a reload may
 * not have reached the sweeper.
 */
bool
dw_retention_missed_reload(DwDatabase *db)
{
	int			set[DW_RETENTION_SETTINGS];

	dw_retention_settings(set);
	return dw_retention_differs(&db->sweeper_news, set);
}
