/*-------------------------------------------------------------------------
 *
 * recurring_wing.c
 *	  The wing of recurring tasks, and of tasks at a local time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/clock.h"
#include "../rows/catalog.h"
#include "../shmem/shared.h"
#include "recurring.h"

/*
 * If there are tasks at local times, asks the sweeper to check them, since time zones may have new
 * rules.
 */
static void
doubt_local_times(DwDatabase *db, bool settings)
{
	if (!settings && dw_index_may_have_rows(offsetof(DwCatalog, task_local_index)))
		dw_ask_sweeper(db, DW_JOB_LOCAL, dw_now());
}

static const DwWingJob jobs[] = {{DW_JOB_LOCAL, dw_local_times_follow}};

const DwWing dw_recurring_wing = {
	.task_ended = dw_recurring_ended,
	.may_remove = dw_recurring_may_end,
	.task_lost = dw_recurring_ask,
	.rows_in_doubt = dw_recurring_begin,
	.has_unarmed = dw_recurring_unarmed,
	.arm = dw_recurring_arm,
	.require_unused = dw_recurring_require_unused,
	.jobs_in_doubt = doubt_local_times,
	.sweep = dw_recurring_repair,
	.jobs = jobs,
	.njobs = lengthof(jobs)
};
