/*-------------------------------------------------------------------------
 *
 * outcome.c
 *	  Outcomes of tasks and attempts, and their counters.
 *
 * Run by executors, and by timers, which move tasks of dropped roles to the failed tasks.  Counters
 * change by atomic additions.  Views read without a lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "outcome.h"

const char *const dw_outcome_names[] = {
	[DW_DONE] = "done",
	[DW_FAILED] = "failed",
	[DW_RETRIED] = "retried",
	[DW_SKIPPED] = "skipped",
	[DW_CANCELLED] = "cancelled"
};

void
dw_counters_init(DwCounters *counters)
{
	for (int i = 0; i < DW_OUTCOMES; i++)
		pg_atomic_init_u64(&counters->n[i], 0);
}

uint64
dw_counted(DwCounters *counters, DwOutcome outcome)
{
	return pg_atomic_read_u64(&counters->n[outcome]);
}

/* Adds n to the number of this outcome, and returns the new number. */
uint64
dw_count(DwCounters *counters, DwOutcome outcome, uint64 n)
{
	return pg_atomic_add_fetch_u64(&counters->n[outcome], n);
}
