/*-------------------------------------------------------------------------
 *
 * conclude.c
 *	  Concluding a task: all consequences of its end, or of the end of an attempt.
 *
 * Run by the process that ends the task, in the transaction that has deleted the task's row: mostly
 * an executor, otherwise a session that cancels or runs a task, or the sweeper.  So this work is
 * committed together with the task's own work, or with the record of its failure, or not at all.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/wing.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/outcome.h"
#include "../shmem/shared.h"
#include "../task/task.h"
#include "../task/touched.h"
#include "ending.h"

/*
 * Performs all effects of the end of a task or of an attempt: ends the period in which the key is
 * unique, and calls wings (history, notification, follow-up, next run).
 *
 * To be called once for each end, in the transaction that has deleted the row, as one
 * of its last actions.  An error undoes this transaction.
 */
void
dw_conclude(const DwEnded *ended)
{
	if (ended->outcome != DW_RETRIED)
		dw_touch_ended(ended->key->id, ended->outcome);
	if (!ended->nulls[Anum_task_more - 1] && ended->outcome != DW_DONE && ended->outcome != DW_RETRIED)
		dw_period_end(ended->values, ended->nulls);
	dw_each_wing(wing, task_ended)
		wing->task_ended(ended);
}

/*
 * Concludes a task that was not run.  The caller has just deleted the task's row.  error is NULL
 * unless the task counts as failed.
 */
void
dw_conclude_row(Relation rel, HeapTuple tuple, const DwTaskKey *key, DwOutcome outcome,
				const ErrorData *error)
{
	DwEnded		ended = {.key = key, .outcome = outcome, .error = error};
	Datum	   *values;
	bool	   *nulls;

	dw_deform(rel, tuple, &values, &nulls);
	ended.values = values;
	ended.nulls = nulls;
	dw_conclude(&ended);
}

/*
 * Counts the cancellation of a task, and informs sessions that wait for the task.  To be called
 * when a claim has found that a mark (delay_cancel_all) has hit the task.  The claim's transaction
 * changes nothing: the sweeper removes the row.
 */
void
dw_task_was_cancelled(DwDatabase *db, const DwEntry *entry)
{
	dw_count_end(db, &dw_lanes[entry->lane], DW_CANCELLED);
	dw_each_wing(wing, end_committed)
		wing->end_committed(db, entry->id, DW_CANCELLED);
	dw_each_wing(wing, end_visible)
		wing->end_visible(db, entry->id);
	dw_crashes_end(db->oid, entry->id, 0);
}
