/*-------------------------------------------------------------------------
 *
 * conclude.c
 *	  What is to be done when a task, or an attempt of it, has ended.
 *
 * Run by whoever ends it, in the transaction that has deleted its row: mostly
 * by executors; by backends that run a task at once or cancel one.  So what is
 * done here is committed with the task's own work, or with the record of its
 * failure, or not at all.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../recurring/definition.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/outcome.h"
#include "../task/ended.h"
#include "../task/touched.h"
#include "conclude.h"
#include "follow_up.h"
#include "history.h"
#include "notify.h"

/*
 * To be called once for each end of a task or of an attempt, in the very
 * transaction that has deleted its row, as one of the last things in it.  An
 * error undoes that transaction.
 */
void
dw_conclude(const DwEnded *ended)
{
	if (ended->outcome != DW_RETRIED)
		dw_touch_ended(ended->key->id, ended->outcome);
	dw_history_record(ended);
	if (ended->nulls[Anum_task_more - 1])
		return;
	dw_notify_end(ended);
	dw_follow_up(ended);
	dw_recurring_ended(ended);
}

/* The same of a row that was just deleted, and not run; error may be NULL. */
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
