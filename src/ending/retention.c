/*-------------------------------------------------------------------------
 *
 * retention.c
 *	  Asking the sweeper to look for old rows.
 *
 * Run by timers and the sweeper.  Settings limit the age and the number of failed tasks, and of
 * rows of wings.  When a timer starts, shared memory does not show if such rows exist.  A changed
 * setting may make rows too old or too many.  In both cases the sweeper is asked to look.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/wing.h"
#include "ending.h"

/*
 * Asks the sweeper to look at unique keys, leases and rows of wings, if such rows may exist.
 * Called outside of a transaction by a starting timer, and by the sweeper when the clock was set.
 */
void
dw_retention_begin(DwDatabase *db)
{
	dw_job_put_off(&db->sweeper_news, DW_JOB_PERIODS, PG_INT64_MIN);
	if (dw_any_may_have_rows(offsetof(DwCatalog, unique_key), 1))
		dw_ask_sweeper(db, DW_JOB_PERIODS, dw_now());
	if (dw_any_may_have_rows(offsetof(DwCatalog, task_lease_index), 1))
		dw_ask_sweeper(db, DW_JOB_LEASES, dw_now());
	dw_each_wing(wing, jobs_in_doubt)
		wing->jobs_in_doubt(db, false);
}

/*
 * Makes the sweeper look at rows of wings, if settings have changed since the last call in this
 * process.
 */
void
dw_retention_obey_settings(DwDatabase *db)
{
	if (dw_retention_changed())
		dw_each_wing(wing, jobs_in_doubt)
			wing->jobs_in_doubt(db, true);
}
