/*-------------------------------------------------------------------------
 *
 * batch_end.c
 *	  Ends batches whose members have all ended, and schedules their callbacks.
 *
 * The end is found by the sweeper.  After a transaction has touched a batch, the process notes the
 * batch in shared memory and asks for the sweeper's job, so the sweeper looks after the end of the
 * last member is visible.  In one transaction it locks the row of the batch, takes a new snapshot,
 * and, if it sees no member that has not ended, notes the end and schedules the callbacks.  So the
 * callbacks are scheduled exactly once, and not before.
 *
 * If the row is locked, the sweeper goes on: the transaction with the lock has it look again, or, if
 * that is plain SQL, a pass a second later.  Notes are lost in a crash, and if there are too many.
 * Then, and after events that concern many tasks, the sweeper looks at all batches that may end.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "executor/tuptable.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/inject.h"
#include "../base/settings.h"
#include "../base/signature.h"
#include "../shmem/shared.h"
#include "../sweeper/sweeper.h"
#include "batches.h"

/* Batches that are looked at in one transaction, and in a pass over all of them. */
#define SLICE			64
#define ALL_SLICE		1000

/* So many members that were seen are remembered. */
#define WITNESSES		64

/* Pause between two looks at the noted batches, while members end all the time. */
#define LOOK_PAUSE_US	(10 * 1000)

/* Pause after a slice that could not be done, since a table is locked. */
#define RETRY_US		USECS_PER_SEC

/* Pause after a batch that could not be ended, because of an error. */
#define ERROR_US		(10 * USECS_PER_SEC)

/*
 * A pass over all batches that has ended none is followed by a pause of this multiple of its time, at
 * most PASS_MAX_US.
 */
#define PASS_FACTOR		100
#define PASS_MAX_US		USECS_PER_MINUTE

static DwAged ended_batches = {
	DW_JOB_ENDED_BATCHES, offsetof(DwCatalog, batch), offsetof(DwCatalog, batch_ended_at_index),
	Anum_batch_ended_at, DT_NOBEGIN
};

/* The sweeper's slice. */
typedef struct Slice
{
	int			n;
	int64		ids[SLICE];		/* if "all" is false */
	bool		all;			/* looks at all batches with ids above "after" */
	int64		after;
	bool		ended;			/* a batch has ended */
	bool		locked;			/* the row of a batch that may end was locked */
	bool		failed;			/* a batch could not be ended, because of an error */
} Slice;

/* Before this uptime, no pass over all batches begins. */
static int64 next_pass = 0;

/* A batch that may end; in the memory of SPI. */
typedef struct Batch
{
	int64		id;
	Oid			owner;
	int64		outer;			/* 0: none */
	int64		total;
	int64		failed;
	int64		cancelled;
	int64		skipped;
	Datum		values[Natts_batch];
	bool		nulls[Natts_batch];
} Batch;

/*---- The end of a batch ----*/

/*
 * The members that were seen last, by their batches' ids.  While such a member is there, the index,
 * which may have many entries of members that have ended, is not searched.
 */
static struct
{
	int64		batch;
	ItemPointerData tid;
}			witnesses[WITNESSES];

/* Returns true if the snapshot sees this row, and it is a member of the batch. */
static bool
is_member_there(Relation rel, ItemPointer tid, int64 batch, Snapshot snapshot, TupleTableSlot *slot)
{
	Datum		more;
	bool		isnull;
	int64		id;

	/* the table may have been emptied, or rewritten */
	if (ItemPointerGetBlockNumber(tid) >= RelationGetNumberOfBlocks(rel) ||
		!table_tuple_fetch_row_version(rel, tid, snapshot, slot))
		return false;
	more = slot_getattr(slot, Anum_task_more, &isnull);
	return dw_more_number(&more, &isnull, 1, DW_MORE_BATCH_ID, &id) && id == batch;
}

/* Returns true if a new snapshot sees a pending or running member of the batch. */
static bool
has_member(int64 id)
{
	static const Oid types[] = {INT8OID};
	const Datum values[] = {Int64GetDatum(id)};
	Relation	rel = table_open(dw_catalog()->task, AccessShareLock);
	Relation	index = index_open(dw_catalog()->task_batch_index, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	int			w = id % WITNESSES;
	bool		found = witnesses[w].batch == id && is_member_there(rel, &witnesses[w].tid, id, snapshot, slot);

	if (!found)
	{
		IndexScanDesc scan = dw_index_beginscan(rel, index, snapshot, 1);
		ScanKeyData key;

		ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT8EQ, values[0]);
		index_rescan(scan, &key, 1, NULL, 0);
		/* backwards: the members that were written last are most often the last to end */
		found = index_getnext_slot(scan, BackwardScanDirection, slot);
		if (found)
		{
			witnesses[w].batch = id;
			witnesses[w].tid = slot->tts_tid;
		}
		index_endscan(scan);
	}
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
	table_close(rel, AccessShareLock);
	return found ||
		dw_batches_sql("SELECT FROM delay_wheel_data.batch WHERE batch_id = $1 AND ended_at IS NULL LIMIT 1",
					   1, types, values) > 0;
}

/* Reads a row of the table of batches that SPI has found. */
static void
read_row(Batch *batch)
{
	HeapTuple	row = SPI_tuptable->vals[0];

	heap_deform_tuple(row, SPI_tuptable->tupdesc, batch->values, batch->nulls);
	batch->owner = DatumGetObjectId(batch->values[Anum_batch_owner - 1]);
	batch->outer = batch->nulls[Anum_batch_batch_id - 1] ? 0 :
		DatumGetInt64(batch->values[Anum_batch_batch_id - 1]);
}

/* Adds the numbers of single transactions to those of the batch, and notes its end. */
static void
note_end(Batch *batch)
{
	static const Oid types[] = {INT8OID, TIMESTAMPTZOID};
	const Datum values[] = {Int64GetDatum(batch->id), TimestampTzGetDatum(dw_now())};
	HeapTuple	row;
	TupleDesc	desc;
	bool		isnull;

	(void) dw_batches_sql("WITH n AS (DELETE FROM delay_wheel_data.batch_count WHERE batch_id = $1 RETURNING total, failed, cancelled, skipped),"
						  " s AS (SELECT coalesce(sum(total), 0)::bigint AS total, coalesce(sum(failed), 0)::bigint AS failed,"
						  " coalesce(sum(cancelled), 0)::bigint AS cancelled, coalesce(sum(skipped), 0)::bigint AS skipped FROM n)"
						  " UPDATE delay_wheel_data.batch b SET ended_at = $2, total = b.total + s.total, failed = b.failed + s.failed,"
						  " cancelled = b.cancelled + s.cancelled, skipped = b.skipped + s.skipped"
						  " FROM s WHERE b.id = $1 RETURNING b.total, b.failed, b.cancelled, b.skipped",
						  2, types, values);
	row = SPI_tuptable->vals[0];
	desc = SPI_tuptable->tupdesc;
	batch->total = DatumGetInt64(SPI_getbinval(row, desc, 1, &isnull));
	batch->failed = DatumGetInt64(SPI_getbinval(row, desc, 2, &isnull));
	batch->cancelled = DatumGetInt64(SPI_getbinval(row, desc, 3, &isnull));
	batch->skipped = DatumGetInt64(SPI_getbinval(row, desc, 4, &isnull));
}

/* Sets the arguments of a callback in its new row, in the form that args.c reads. */
static void
set_callback_args(DwNewTask *task, const Batch *batch)
{
	static const Oid type_of[DW_BATCH_ARGS] = {INT8OID, TEXTOID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID};
	int64		done = batch->total - batch->failed - batch->cancelled - batch->skipped;
	const int64 numbers[DW_BATCH_ARGS] = {
		batch->id, 0, batch->total, Max(done, 0), batch->failed, batch->cancelled, batch->skipped
	};
	Datum		args[DW_BATCH_ARGS];
	bool		nulls[DW_BATCH_ARGS] = {false};
	Datum		types[DW_BATCH_ARGS];
	int			n = DW_BATCH_ARGS;

	for (int i = 0; i < n; i++)
	{
		args[i] = CStringGetTextDatum(psprintf("%lld", (long long) numbers[i]));
		types[i] = ObjectIdGetDatum(type_of[i]);
	}
	args[1] = batch->values[Anum_batch_name - 1];
	nulls[1] = batch->nulls[Anum_batch_name - 1];
	dw_new_task_args(task, args, nulls, types, n);
}

/* Schedules the callback in this column, if there is one. */
static void
schedule_callback(const Batch *batch, AttrNumber column)
{
	DwNewTask	task;

	if (batch->nulls[column - 1])
		return;
	dw_new_task_init(&task, DatumGetTextPP(batch->values[column - 1]));
	task.owner = batch->owner;
	task.due = dw_now();
	task.queue = DatumGetInt16(batch->values[Anum_batch_queue - 1]);
	/* a batch that ends once more may have lost its queue: the default queue is always there */
	if (task.queue != 0 && dw_queue_name_of(task.queue) == NULL)
		task.queue = 0;
	dw_new_task_set(&task, Anum_task_search_path, batch->values[Anum_batch_search_path - 1],
					batch->nulls[Anum_batch_search_path - 1]);
	if (!batch->nulls[Anum_batch_settings - 1])
		dw_more_set_object(task.values, task.nulls, Anum_task_more, DW_MORE_SETTINGS,
						   DatumGetJsonbP(batch->values[Anum_batch_settings - 1]));
	if (batch->outer != 0)
		dw_more_set_number(task.values, task.nulls, Anum_task_more, DW_MORE_BATCH_ID, batch->outer);
	set_callback_args(&task, batch);
	(void) dw_schedule_successor(&task);
}

/* For dw_try(): ends a batch whose row is locked. */
static void
end_batch(void *arg)
{
	Batch	   *batch = arg;
	bool		done;

	note_end(batch);
	done = batch->failed + batch->cancelled + batch->skipped == 0;
	schedule_callback(batch, done ? Anum_batch_on_done : Anum_batch_on_failed);
	schedule_callback(batch, Anum_batch_on_end);
	if (batch->outer != 0)
		dw_batch_member_ended(batch->outer, batch->owner, done ? DW_DONE : DW_FAILED, 1);
	dw_touch_ended(batch->id, done ? DW_DONE : DW_FAILED);
	DW_INJECT("batch-before-commit");
}

/* Removes a batch without an owner: its members were not counted, and nobody can run its callbacks. */
static void
remove_batch(int64 id)
{
	static const Oid types[] = {INT8OID};
	const Datum values[] = {Int64GetDatum(id)};

	(void) dw_batches_sql("DELETE FROM delay_wheel_data.batch WHERE id = $1", 1, types, values);
	(void) dw_batches_sql("DELETE FROM delay_wheel_data.batch_count WHERE batch_id = $1", 1, types, values);
}

/*
 * Called if the batch was not found, or is locked.  A batch that is not there may be committed just
 * now: so only numbers are removed, by a statement that looks for the batch again.
 */
static void
look_why(int64 id, Slice *slice)
{
	static const Oid types[] = {INT8OID};
	const Datum values[] = {Int64GetDatum(id)};
	bool		isnull;

	/* a failed member may be put back after its batch was removed */
	if (dw_batches_sql("SELECT closed AND ended_at IS NULL AND origin = delay_wheel_internal.origin() FROM delay_wheel_data.batch WHERE id = $1",
					   1, types, values) == 0)
		(void) dw_batches_sql("DELETE FROM delay_wheel_data.batch_count WHERE batch_id = $1"
							  " AND NOT EXISTS (SELECT FROM delay_wheel_data.batch WHERE id = $1)", 1, types, values);
	/* plain SQL does not tell when its lock is gone */
	else
		slice->locked |= DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
}

/* Ends the batch if it is closed and all members have ended. */
static void
look_at(int64 id, Slice *slice)
{
	static const Oid types[] = {INT8OID, INT8OID};
	const Datum values[] = {Int64GetDatum(id), Int64GetDatum(dw_origin_stamp())};
	Batch		batch = {.id = id};
	ErrorData  *error;

	/*
	 * An inner batch has ended in this transaction, and its outcome is not in batch_count yet; the
	 * end of the transaction has the outer one looked at again.
	 */
	if (dw_batch_is_touched(id))
		return;
	/* most often the batch has members: then its row need not be locked */
	if (has_member(id))
		return;
	DW_INJECT("batch-looked");
	if (dw_batches_sql("SELECT * FROM delay_wheel_data.batch WHERE id = $1 AND origin = $2 AND closed AND ended_at IS NULL FOR UPDATE SKIP LOCKED",
					   2, types, values) == 0)
	{
		look_why(id, slice);
		return;
	}
	read_row(&batch);
	if (has_member(id))
		return;
	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(batch.owner)))
	{
		remove_batch(id);
		return;
	}
	/* an error must not keep other batches from ending */
	error = dw_try(end_batch, &batch);
	if (error == NULL)
	{
		slice->ended = true;
		return;
	}
	slice->failed = true;
	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("delay_wheel could not end batch %lld: %s", (long long) id, dw_error_message(error)),
			 errdetail("It will be tried again.")));
}

/* Looks at the batches with ids above slice->after.  Sets slice->all to false after the last one. */
static void
look_at_next(Slice *slice)
{
	static const Oid types[] = {INT8OID, INT4OID};
	const Datum values[] = {Int64GetDatum(slice->after), Int32GetDatum(ALL_SLICE)};
	int			n = dw_batches_sql("SELECT id FROM delay_wheel_data.batch WHERE closed AND ended_at IS NULL AND id > $1 ORDER BY id LIMIT $2",
								   2, types, values);
	SPITupleTable *found = SPI_tuptable;

	slice->all = n == ALL_SLICE;
	for (int i = 0; i < n; i++)
	{
		bool		isnull;

		slice->after = DatumGetInt64(SPI_getbinval(found->vals[i], found->tupdesc, 1, &isnull));
		look_at(slice->after, slice);
	}
}

/* Does a slice in the transaction of do_look_slice(). */
static bool
look_slice(DwDatabase *db, const DwCatalog *cat, void *state)
{
	Slice	   *slice = state;
	int			nest_level;

	if (!ConditionalLockRelationOid(cat->task, RowExclusiveLock) ||
		!ConditionalLockRelationOid(cat->batch, RowExclusiveLock) ||
		!ConditionalLockRelationOid(cat->batch_count, RowExclusiveLock))
		return false;
	PushActiveSnapshot(GetTransactionSnapshot());
	nest_level = dw_own_sql_begin();
	for (int i = 0; i < slice->n; i++)
		look_at(slice->ids[i], slice);
	if (slice->all)
		look_at_next(slice);
	dw_own_sql_end(nest_level);
	PopActiveSnapshot();
	return true;
}

/* Does a slice.  Returns false if it could not be done. */
static bool
do_look_slice(DwDatabase *db, Slice *slice)
{
	if (!dw_slice_do(db, look_slice, slice))
		return false;
	if (slice->locked || slice->failed)
	{
		dw_batch_pass_ask(db);
		next_pass = Max(next_pass, dw_uptime() + (slice->failed ? ERROR_US : RETRY_US));
	}
	if (slice->ended && dw_failed_max_age >= 0)
		dw_ask_sweeper(db, DW_JOB_ENDED_BATCHES,
					   dw_time_add(dw_job_soonest(&db->sweeper_news, DW_JOB_ENDED_BATCHES),
								   dw_failed_max_age * USECS_PER_MINUTE));
	return true;
}

/*
 * Does a slice of a pass over all batches, if one was asked for.  Returns false if the slice could
 * not be done.  Sets *more if the pass goes on.
 */
static bool
look_at_all(DwDatabase *db, bool *more)
{
	static bool passing = false;
	static int64 after = 0;
	static int64 began = 0;
	static bool ended = false;
	Slice		slice = {.all = true};

	if (!passing)
	{
		if (dw_uptime() < next_pass || !dw_batch_pass_begin(db))
			return true;
		passing = true;
		after = 0;
		began = dw_uptime();
		ended = false;
	}
	slice.after = after;
	if (!do_look_slice(db, &slice))
		return false;
	after = slice.after;
	passing = slice.all;
	ended |= slice.ended;
	*more |= passing;
	if (!passing)
		dw_batch_pass_end(db);
	if (!passing && !ended)
		next_pass = Max(next_pass, dw_uptime() + Min(PASS_FACTOR * (dw_uptime() - began), PASS_MAX_US));
	return true;
}

/*
 * The sweeper's job: looks at noted batches, and at all batches if necessary.  Result: see DwWingJob.
 */
TimestampTz
dw_batches_end(DwDatabase *db)
{
	Slice		slice = {0};
	bool		more = dw_batch_notes_take(db, slice.ids, SLICE, &slice.n);
	int64		pause;

	if (slice.n > 0)
	{
		if (!do_look_slice(db, &slice))
			return dw_now() + RETRY_US;
		dw_batch_notes_remove(db);
	}
	if (!look_at_all(db, &more))
		return dw_now() + RETRY_US;
	if (more)
		return PG_INT64_MIN;
	dw_job_put_off(&db->sweeper_news, DW_JOB_BATCHES, dw_now() + LOOK_PAUSE_US);
	if (!dw_batch_pass_is_asked(db))
		return DW_NEVER;
	pause = next_pass - dw_uptime();
	return pause > 0 ? dw_now() + pause : PG_INT64_MIN;
}

/* The sweeper's job: removes batches that have ended, when failed tasks of that age are removed. */
TimestampTz
dw_batches_forget(DwDatabase *db)
{
	return dw_failed_max_age < 0 ? DW_NEVER :
		dw_aged_remove(db, &ended_batches, dw_failed_max_age * USECS_PER_MINUTE);
}
