/*-------------------------------------------------------------------------
 *
 * stats.c
 *	  Counts starts and outcomes of tasks, for database, lane and queue.
 *
 * Run by executors, and by timers, which move tasks of dropped roles to the failed tasks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/clock.h"
#include "../base/settings.h"
#include "executors.h"
#include "queue_limits.h"

/* Counts the start of the executor's task, "us" microseconds after its due time. */
void
dw_count_begin(DwDatabase *db, DwExecutor *me, int64 us)
{
	uint64		value = Max(us, 0);

	me->begun = true;
	dw_count_lateness(&db->lateness, value);
	dw_count_lane_lateness(&dw_lanes[me->current.lane].lateness, value);
}

/* Counts the outcome of a claimed task for database, lane and queue. */
void
dw_count_end(DwDatabase *db, DwLane *lane, DwOutcome outcome)
{
	DwQueue    *queue = dw_lane_queue(lane);

	if (outcome == DW_NOT_ENDED)
		return;
	if (outcome == DW_FAILED)
		dw_failed_recorded(db, 1);
	else
		(void) dw_count(&db->counters, outcome, 1);
	(void) dw_count(&lane->counters, outcome, 1);
	if (queue)
		(void) dw_count(&queue->counters, outcome, 1);
}

/* Returns delay_wheel.failed_max_age in microseconds; negative if there is no such limit. */
int64
dw_failed_max_age_us(void)
{
	return (int64) dw_failed_max_age * USECS_PER_MINUTE;
}

/* Counts n committed failed tasks, and asks the sweeper to delete old rows if that is due. */
void
dw_failed_recorded(DwDatabase *db, uint64 n)
{
	uint64		failed = dw_count(&db->counters, DW_FAILED, n);

	if (dw_failed_max_count >= 0 && failed >= dw_failed_limit(&db->sweeper_news))
		dw_ask_sweeper(db, DW_JOB_FAILED, dw_job_soonest(&db->sweeper_news, DW_JOB_FAILED));
	else if (dw_failed_max_age >= 0 && dw_job_at(&db->sweeper_news, DW_JOB_FAILED) == DW_NEVER)
		dw_ask_sweeper(db, DW_JOB_FAILED, dw_now() + dw_failed_max_age_us());
}
