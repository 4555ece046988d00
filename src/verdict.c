/*-------------------------------------------------------------------------
 *
 * verdict.c
 *	  Whether a task that was claimed is run.
 *
 * Run by executors.  The row is deleted, but the transaction not yet
 * committed: from here on nobody else can change the task.  What was decided
 * before, by a mark, a pause or a newer task of the same key, is looked at
 * only now, so that none of it can come in between.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "attempts.h"
#include "keys.h"
#include "marks.h"
#include "more.h"
#include "queues.h"
#include "utils/timestamp.h"
#include "verdict.h"

static bool
has_expired(const DwTaskKey *key, const Datum *values, const bool *nulls)
{
	int64		after;

	if (nulls[Anum_task_expires - 1])
		return false;
	after = dw_interval_us(DatumGetIntervalP(values[Anum_task_expires - 1]));
	return dw_time_add(key->due, after) < dw_now();
}

/* The option skip_after. */
static bool
is_too_late(const DwTaskKey *key, const Datum *values, const bool *nulls)
{
	int64		after;

	return dw_more_number(values, nulls, Anum_task_more, DW_MORE_SKIP_AFTER, &after) &&
		dw_time_add(key->due, Max(after, 0)) < dw_now();
}

DwVerdict
dw_judge(DwDatabase *db, Relation rel, HeapTuple tuple, const DwTaskKey *key,
		 const Datum *values, const bool *nulls, int *sqlstate, const char **reason)
{
	if (dw_task_is_cancelled(rel, tuple))
		return DW_DROP;
	if (dw_is_paused(db, key->owner, key->queue))
		return DW_PUT_BACK;
	if (!nulls[Anum_task_key - 1] && !dw_key_claimed(rel, tuple))
	{
		*sqlstate = DW_ERRCODE_SUPERSEDED;
		*reason = DW_SUPERSEDED_MESSAGE;
		return DW_REFUSE;
	}
	if (has_expired(key, values, nulls))
	{
		*sqlstate = DW_ERRCODE_EXPIRED;
		*reason = "the task has expired";
		return DW_REFUSE;
	}
	if (is_too_late(key, values, nulls))
		return DW_SKIP;
	return DW_RUN;
}
