/*-------------------------------------------------------------------------
 *
 * retention.c
 *	  Asking the sweeper to look for old rows.
 *
 * Run by timers and the sweeper.  Settings limit the age and the number of failed tasks,
 * and the age and the size of the history.  When a timer starts, shared memory does not
 * tell which rows exist, and a changed setting may make rows too old or too many.  In
 * both cases the sweeper is asked to look, see failed.c and history_tables.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"

#include "../base/clock.h"
#include "../base/settings.h"
#include "../rows/catalog.h"
#include "../shmem/shared.h"
#include "../shmem/stats.h"
#include "history.h"
#include "retention.h"

/*
 * True if two settings have changed since the last call; known keeps them, and begins
 * with INT_MIN.  The first call only remembers the settings.
 */
static bool
have_changed(int *known, int a, int b)
{
	bool		changed = known[0] != INT_MIN && (known[0] != a || known[1] != b);

	known[0] = a;
	known[1] = b;
	return changed;
}

/* Asks the sweeper to look at all failed tasks, now. */
static void
look_at_failed(DwDatabase *db)
{
	dw_failed_limit_set(&db->sweeper_news, 0);
	dw_ask_sweeper(db, DW_JOB_FAILED, dw_now());
}

/*
 * Asks the sweeper to look at failed tasks, if the table may have rows.  To be called
 * outside of a transaction by a timer when it starts, and by the sweeper when the
 * clock was set.
 */
void
dw_failed_begin(DwDatabase *db)
{
	DwCatalog	cat;
	bool		any;

	StartTransactionCommand();
	any = dw_catalog_lookup(&cat) && dw_may_have_rows(cat.failed);
	CommitTransactionCommand();
	dw_job_put_off(&db->sweeper_news, DW_JOB_FAILED, PG_INT64_MIN);
	if (any)
		look_at_failed(db);
}

/*
 * Asks the sweeper to look at failed tasks, if their settings have changed since this
 * process called the function last.  True if they have: the sweeper then begins anew,
 * see dw_failed_restart().
 */
bool
dw_failed_obey_settings(DwDatabase *db)
{
	static int	known[2] = {INT_MIN};

	if (!have_changed(known, dw_failed_max_age, dw_failed_max_count))
		return false;
	look_at_failed(db);
	return true;
}

/* Asks the sweeper to look at the history's tables, now. */
static void
look_at_history(DwDatabase *db)
{
	dw_job_put_off(&db->sweeper_news, DW_JOB_HISTORY, PG_INT64_MIN);
	dw_ask_sweeper(db, DW_JOB_HISTORY, dw_now());
}

/*
 * Asks the sweeper to look at the history, if any of its tables may have rows, or if
 * shared memory still names a current table.  To be called like dw_failed_begin().
 */
void
dw_history_begin(DwDatabase *db)
{
	DwCatalog	cat;
	bool		any = false;

	StartTransactionCommand();
	if (dw_catalog_lookup(&cat))
		for (int i = 0; i < DW_HISTORY_TABLES && !any; i++)
			any = dw_may_have_rows(cat.history[i]);
	CommitTransactionCommand();
	if (any || dw_history_known_table(&db->sweeper_news) >= 0)
		look_at_history(db);
}

/*
 * Asks the sweeper to look at the history, if its settings have changed since this
 * process called the function last.
 */
void
dw_history_obey_settings(DwDatabase *db)
{
	static int	known[2] = {INT_MIN};

	if (have_changed(known, dw_history_max_age, dw_history_max_size))
		look_at_history(db);
}
