/*-------------------------------------------------------------------------
 *
 * history_wing.c
 *	  The wing of history and audit.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/clock.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/shared.h"
#include "history.h"

/* Returns true if the sweeper can record the end of a cancelled task without waiting for a lock. */
static bool
may_record(Relation rel, HeapTuple row)
{
	DwTaskKey	key;

	dw_task_key(rel, row, &key);
	return !dw_history_wants(key.queue, DW_CANCELLED) || dw_history_lock_if_free();
}

/*
 * Asks the sweeper to check the tables of the history and of the audit if they may have rows.  Also
 * asks for the history if shared memory still names a current table.
 */
static void
doubt_history(DwDatabase *db, bool settings)
{
	dw_job_put_off(&db->sweeper_news, DW_JOB_AUDIT, PG_INT64_MIN);
	if (settings || dw_any_may_have_rows(offsetof(DwCatalog, audit), 1))
		dw_ask_sweeper(db, DW_JOB_AUDIT, dw_now());
	if (settings || dw_any_may_have_rows(offsetof(DwCatalog, history), DW_HISTORY_TABLES) ||
		dw_history_known_table(&db->sweeper_news) >= 0)
	{
		dw_job_put_off(&db->sweeper_news, DW_JOB_HISTORY, PG_INT64_MIN);
		dw_ask_sweeper(db, DW_JOB_HISTORY, dw_now());
	}
}

static const DwWingJob jobs[] = {
	{DW_JOB_HISTORY, dw_history_turn},
	{DW_JOB_AUDIT, dw_audit_trim}
};

const DwWing dw_history_wing = {
	.task_ended = dw_history_record,
	.wants_end = dw_history_wants,
	.max_result = dw_history_max_result,
	.batch_begins = dw_history_collect,
	.batch_ends = dw_history_write_collected,
	.batch_undone = dw_history_forget,
	.may_remove = may_record,
	.done = dw_audit_record,
	.jobs_in_doubt = doubt_history,
	.jobs = jobs,
	.njobs = lengthof(jobs)
};
