/*-------------------------------------------------------------------------
 *
 * verdict.c
 *	  Whether a task that was claimed is run.
 *
 * Run by executors, and by sessions that receive messages; by its lateness alone a task is
 * judged in sessions that run it as an executor would.  The process has claimed the
 * task: its transaction has deleted the row, but is not committed yet, so no other
 * process can change the task.  Only
 * now the executor looks for a mark (a row of delay_wheel_data.cancellation), for a pause,
 * and for a newer task of the same key.  Before the deletion, any of them could still
 * come in between.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "../base/clock.h"
#include "../base/errors.h"
#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../shmem/shared.h"
#include "../shmem/suspects.h"
#include "../task/marks.h"
#include "../task/my_session.h"
#include "../task/queues.h"
#include "pending.h"
#include "verdict.h"

/*
 * The verdict by the task's lateness.  A task may have two limits of it, in us after the due
 * time: the options "expires" and "skip_after".  The one that was reached first decides.
 * *sqlstate and *reason are those of DW_REFUSE.
 */
DwVerdict
dw_judge_lateness(const DwTaskKey *key, const Datum *values, const bool *nulls, int *sqlstate,
				  const char **reason)
{
	int64		expires = PG_INT64_MAX;
	int64		skip;
	int64		limit;
	TimestampTz due = key->due;
	int64		not_before;

	*sqlstate = DW_ERRCODE_EXPIRED;
	*reason = "the task has expired";
	if (!nulls[Anum_task_expires - 1])
		expires = dw_interval_us(DatumGetIntervalP(values[Anum_task_expires - 1]));
	if (!dw_more_number(values, nulls, Anum_task_more, DW_MORE_SKIP_AFTER, &skip))
		skip = PG_INT64_MAX;
	skip = Max(skip, 0);
	limit = Min(expires, skip);
	/* of a message that was leased before, the first due time counts */
	if (!nulls[Anum_task_first_due - 1])
		due = DatumGetTimestampTz(values[Anum_task_first_due - 1]);
	/* of one that has failed, and has kept its place in its group, that of this attempt */
	if (dw_more_number(values, nulls, Anum_task_more, DW_MORE_NOT_BEFORE, &not_before))
		due = Max(due, not_before);
	if (limit == PG_INT64_MAX || dw_time_add(due, limit) >= dw_time_reached())
		return DW_RUN;
	return skip < expires ? DW_SKIP : DW_REFUSE;
}

/*
 * Decides whether a claimed task is run.  To be called in the transaction that has
 * deleted the row; if the task has a key, dw_key_lock() is held.  values and nulls are
 * those of the row.  For DW_REFUSE, *sqlstate and *reason tell why.  May remove
 * older rows of the key (superseded tasks), see dw_key_claimed().
 */
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
	if (dw_crashes_of(db->oid, key->id) >= DW_MAX_CRASHES)
	{
		*sqlstate = DW_ERRCODE_CRASHED;
		*reason = "the server crashed three times while the task ran";
		return DW_REFUSE;
	}
	return dw_judge_lateness(key, values, nulls, sqlstate, reason);
}
