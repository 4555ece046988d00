/*-------------------------------------------------------------------------
 *
 * batch_end.c
 *	  Ends batches whose members have all ended, and schedules their callbacks.
 *
 * The end is found by the sweeper.  After a transaction has touched a batch, the process notes the
 * batch in shared memory and asks for the sweeper's job, so the sweeper looks after the end of the
 * last member is visible.  In one transaction it locks the rows of up to SLICE batches, takes a new
 * snapshot, and, for those without a member that has not ended, notes the end and schedules the
 * callbacks.  So the callbacks are scheduled exactly once, and not before.
 *
 * If the row is locked, the sweeper goes on: the transaction with the lock has it look again.  Plain
 * SQL does not, so the sweeper also looks again a second later.  A batch that cannot end because of
 * an error is tried alone every 10 seconds.  Notes are lost in a crash, and if there are too many.
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

/* Batches that are looked at in one transaction. */
#define SLICE			256

/* So many members that were seen are remembered. */
#define WITNESSES		64

/*
 * Batches whose callbacks are longer than this, in bytes, are ended alone, so that the memory of a
 * slice is limited by the longest callbacks of one batch.
 */
#define LONG_CALLBACKS	8000

/* Pause between two looks at the noted batches, while members end all the time. */
#define LOOK_PAUSE_US	(10 * 1000)

/*
 * After a look at noted batches, the sweeper stays for so long.  A sweeper that is started for each
 * look takes a quarter of the machine from the executors.
 */
#define STAY_US			(USECS_PER_SEC / 2)

/* Pause of a batch whose row is locked, and after a slice that failed since a table is locked. */
#define RETRY_US		USECS_PER_SEC

/* Pause of a batch that could not be ended, because of an error. */
#define ERROR_US		(10 * USECS_PER_SEC)

/*
 * A pass over all batches that has ended none is followed by a pause of this multiple of its time, at
 * most PASS_MAX_US.
 */
#define PASS_FACTOR		3
#define PASS_MAX_US		USECS_PER_MINUTE

static DwAged ended_batches = {
	DW_JOB_ENDED_BATCHES, offsetof(DwCatalog, batch), offsetof(DwCatalog, batch_ended_at_index),
	Anum_batch_ended_at, DT_NOBEGIN
};

/* The sweeper's slice. */
typedef struct Slice
{
	DwDatabase *db;
	int64		began;			/* uptime */
	int			n;
	int64		ids[SLICE];
	bool		all;			/* looks at all batches with ids above "after" */
	int64		after;
	bool		ended;			/* a batch has ended */
} Slice;

/* A row of the table of batches. */
typedef struct Row
{
	Datum		values[Natts_batch];
	bool		nulls[Natts_batch];
} Row;

/* Batches to end. */
typedef struct Ends
{
	int			n;
	const int64 *ids;
} Ends;

/*---- Members ----*/

/* Returns these ids as an SQL array. */
static Datum
id_array(const int64 *ids, int n)
{
	Datum	   *elements = palloc(n * sizeof(Datum));

	for (int i = 0; i < n; i++)
		elements[i] = Int64GetDatum(ids[i]);
	return PointerGetDatum(construct_array(elements, n, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* Returns the bigint in this column of a row that SPI has found; 0 if it is null. */
static int64
found_number(uint64 row, int column)
{
	bool		isnull;
	Datum		value = SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

/* Removes from the n ids those that SPI has found, in its first column.  Returns how many are left. */
static int
remove_found(int64 *ids, int n)
{
	int			nfound = SPI_processed;
	int64	   *found = palloc((nfound + 1) * sizeof(int64));
	int			left = 0;

	for (int i = 0; i < nfound; i++)
		found[i] = found_number(i, 1);
	for (int i = 0; i < n; i++)
	{
		int			j = 0;

		while (j < nfound && found[j] != ids[i])
			j++;
		if (j == nfound)
			ids[left++] = ids[i];
	}
	return left;
}

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

/* Returns true if the scan's snapshot sees a task or message of the batch. */
static bool
has_task(IndexScanDesc scan, int64 id, TupleTableSlot *slot)
{
	Relation	rel = scan->heapRelation;
	int			w = (uint64) id % WITNESSES;
	ScanKeyData key;

	if (witnesses[w].batch == id && ItemPointerIsValid(&witnesses[w].tid) &&
		is_member_there(rel, &witnesses[w].tid, id, scan->xs_snapshot, slot))
		return true;
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	index_rescan(scan, &key, 1, NULL, 0);
	/* backwards: the members that were written last are most often the last to end */
	if (!index_getnext_slot(scan, BackwardScanDirection, slot))
		return false;
	witnesses[w].batch = id;
	witnesses[w].tid = slot->tts_tid;
	return true;
}

/*
 * Removes from the n ids those of batches of which a new snapshot sees a pending or running member.
 * Returns how many are left.
 */
static int
remove_with_members(int64 *ids, int n)
{
	static const Oid types[] = {INT8ARRAYOID};
	Relation	rel = table_open(dw_catalog()->task, AccessShareLock);
	Relation	index = index_open(dw_catalog()->task_batch_index, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	IndexScanDesc scan = dw_index_beginscan(rel, index, snapshot, 1);
	int			left = 0;

	for (int i = 0; i < n; i++)
		if (!has_task(scan, ids[i], slot))
			ids[left++] = ids[i];
	index_endscan(scan);
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
	table_close(rel, AccessShareLock);
	if (left == 0)
		return 0;
	(void) dw_batches_sql("SELECT DISTINCT batch_id FROM delay_wheel_data.batch WHERE batch_id = ANY ($1) AND ended_at IS NULL",
						  1, types, (Datum[]) {id_array(ids, left)});
	return remove_found(ids, left);
}

/*---- The end of a batch ----*/

/* Returns the number in a column that is not null. */
static int64
number(const Row *batch, AttrNumber column)
{
	return DatumGetInt64(batch->values[column - 1]);
}

/* Returns how many members did not end as done. */
static int64
not_done(const Row *batch)
{
	return number(batch, Anum_batch_failed) + number(batch, Anum_batch_cancelled) + number(batch, Anum_batch_skipped);
}

/* Sets the arguments of a callback in its new row, in the form that args.c reads. */
static void
set_callback_args(DwNewTask *task, const Row *batch)
{
	static const Oid type_of[DW_BATCH_ARGS] = {INT8OID, TEXTOID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID};
	int64		total = number(batch, Anum_batch_total);
	const int64 numbers[DW_BATCH_ARGS] = {
		number(batch, Anum_batch_id), 0, total, Max(total - not_done(batch), 0), number(batch, Anum_batch_failed),
		number(batch, Anum_batch_cancelled), number(batch, Anum_batch_skipped)
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
schedule_callback(const Row *batch, int64 outer, AttrNumber column)
{
	DwNewTask	task;

	if (batch->nulls[column - 1])
		return;
	dw_new_task_init(&task, DatumGetTextPP(batch->values[column - 1]));
	task.owner = DatumGetObjectId(batch->values[Anum_batch_owner - 1]);
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
	if (outer != 0)
		dw_more_set_number(task.values, task.nulls, Anum_task_more, DW_MORE_BATCH_ID, outer);
	set_callback_args(&task, batch);
	(void) dw_schedule_successor(&task);
}

/* Schedules the callbacks of a batch that has ended, and counts it in its outer batch. */
static void
follow_end(const Row *batch)
{
	bool		done = not_done(batch) == 0;
	int64		outer = batch->nulls[Anum_batch_batch_id - 1] ? 0 : number(batch, Anum_batch_batch_id);

	schedule_callback(batch, outer, done ? Anum_batch_on_done : Anum_batch_on_failed);
	schedule_callback(batch, outer, Anum_batch_on_end);
	if (outer != 0)
		dw_batch_member_ended(outer, DatumGetObjectId(batch->values[Anum_batch_owner - 1]), done ? DW_DONE : DW_FAILED, 1);
	dw_touch_ended(number(batch, Anum_batch_id), done ? DW_DONE : DW_FAILED);
}

/*
 * For dw_try(): ends batches whose rows are locked.  The numbers of single transactions are added
 * to those of the batches.
 */
static void
end_batches(void *arg)
{
	static const Oid types[] = {INT8ARRAYOID, TIMESTAMPTZOID};
	const Ends *ends = arg;
	const Datum values[] = {id_array(ends->ids, ends->n), TimestampTzGetDatum(dw_now())};
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "delay_wheel callbacks", ALLOCSET_DEFAULT_SIZES);
	MemoryContext outer;
	SPITupleTable *found;
	uint64		n;

	/* the sweeper does not wait if plain SQL has locked one of the rows */
	(void) dw_batches_sql("SELECT FROM delay_wheel_data.batch_count WHERE batch_id = ANY ($1) FOR UPDATE NOWAIT", 1, types, values);
	n = dw_batches_sql("WITH d AS (DELETE FROM delay_wheel_data.batch_count WHERE batch_id = ANY ($1))"
					   " UPDATE delay_wheel_data.batch b SET ended_at = $2, total = b.total + c.total,"
					   " failed = b.failed + c.failed, cancelled = b.cancelled + c.cancelled, skipped = b.skipped + c.skipped"
					   " FROM unnest($1) u(id), LATERAL (SELECT coalesce(sum(total), 0)::bigint AS total,"
					   " coalesce(sum(failed), 0)::bigint AS failed, coalesce(sum(cancelled), 0)::bigint AS cancelled,"
					   " coalesce(sum(skipped), 0)::bigint AS skipped FROM delay_wheel_data.batch_count WHERE batch_id = u.id) c"
					   " WHERE b.id = u.id RETURNING b.*", 2, types, values);
	found = SPI_tuptable;
	outer = MemoryContextSwitchTo(context);
	for (uint64 i = 0; i < n; i++)
	{
		Row			batch;

		heap_deform_tuple(found->vals[i], found->tupdesc, batch.values, batch.nulls);
		follow_end(&batch);
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(outer);
	MemoryContextDelete(context);
	SPI_freetuptable(found);
	DW_INJECT("batch-before-commit");
}

/* Ends a batch whose row is locked: after an error when it was ended with others, or with long callbacks. */
static void
end_alone(int64 id, Slice *slice)
{
	Ends		ends = {.n = 1, .ids = &id};
	ErrorData  *error = dw_try(end_batches, &ends);

	if (error == NULL)
	{
		slice->ended = true;
		return;
	}
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
	{
		dw_batch_put_off(slice->db, id, false, RETRY_US);
		return;
	}
	dw_batch_put_off(slice->db, id, true, ERROR_US);
	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("delay_wheel could not end batch %lld: %s", (long long) id, dw_error_message(error)),
			 errdetail("It will be tried again.")));
}

/* Removes the numbers of those of these batches that are not there, except rows that plain SQL has locked. */
static void
remove_numbers(const int64 *ids, int n)
{
	static const Oid types[] = {INT8ARRAYOID};
	const Datum values[] = {id_array(ids, n)};

	(void) dw_batches_sql("DELETE FROM delay_wheel_data.batch_count WHERE ctid = ANY (ARRAY("
						  "SELECT ctid FROM delay_wheel_data.batch_count WHERE batch_id = ANY ($1)"
						  " AND batch_id <> ALL (ARRAY(SELECT id FROM delay_wheel_data.batch WHERE id = ANY ($1)))"
						  " FOR UPDATE SKIP LOCKED))", 1, types, values);
}

/* Removes a batch without an owner: its members were not counted, and nobody can run its callbacks. */
static void
remove_batch(int64 id)
{
	static const Oid types[] = {INT8OID};
	const Datum values[] = {Int64GetDatum(id)};

	(void) dw_batches_sql("DELETE FROM delay_wheel_data.batch WHERE id = $1", 1, types, values);
	remove_numbers(&id, 1);
}

/*
 * Called for batches that were not found, or are locked.  A batch that is not there may be committed
 * just now: so only numbers are removed, by a statement that looks for the batch again.
 */
static void
look_why(const int64 *ids, int n, Slice *slice)
{
	static const Oid types[] = {INT8ARRAYOID, INT8OID};
	const Datum values[] = {id_array(ids, n), Int64GetDatum(dw_origin_stamp())};
	int			locked;

	/* plain SQL does not tell when its lock is gone */
	locked = dw_batches_sql("SELECT id FROM delay_wheel_data.batch WHERE id = ANY ($1) AND origin = $2 AND closed AND ended_at IS NULL",
							2, types, values);
	for (int i = 0; i < locked; i++)
		dw_batch_put_off(slice->db, found_number(i, 1), false, RETRY_US);
	/* a failed member may be put back after its batch was removed */
	remove_numbers(ids, n);
}

/*
 * Locks the rows of those of the n batches that may end, and sets *ids to their ids, those with long
 * callbacks last.  Returns how many; *nlong is the number of the latter.  Other transactions have
 * locked the rows of others: these are passed over.
 */
static int
lock_rows(int64 *ids, int n, int *nlong, Slice *slice)
{
	static const Oid types[] = {INT8ARRAYOID, INT8OID, INT4OID};
	const Datum values[] = {id_array(ids, n), Int64GetDatum(dw_origin_stamp()), Int32GetDatum(LONG_CALLBACKS)};
	int			locked = dw_batches_sql("SELECT id, owner,"
										" coalesce(octet_length(on_done), 0) + coalesce(octet_length(on_failed), 0)"
										" + coalesce(octet_length(on_end), 0) > $3 AS long"
										" FROM delay_wheel_data.batch b WHERE id = ANY ($1) AND origin = $2 AND ended_at IS NULL"
										" AND (closed OR NOT EXISTS (SELECT FROM pg_roles WHERE oid = b.owner))"
										" ORDER BY long FOR UPDATE SKIP LOCKED", 3, types, values);
	SPITupleTable *found = SPI_tuptable;
	int			missing = remove_found(ids, n);

	if (missing > 0)
		look_why(ids, missing, slice);
	n = *nlong = 0;
	for (int i = 0; i < locked; i++)
	{
		bool		isnull;
		int64		id = DatumGetInt64(SPI_getbinval(found->vals[i], found->tupdesc, 1, &isnull));

		if (!SearchSysCacheExists1(AUTHOID, SPI_getbinval(found->vals[i], found->tupdesc, 2, &isnull)))
		{
			remove_batch(id);
			continue;
		}
		ids[n++] = id;
		*nlong += DatumGetBool(SPI_getbinval(found->vals[i], found->tupdesc, 3, &isnull));
	}
	return n;
}

/*
 * Ends those batches of the slice that are closed and whose members have all ended.  Removes batches
 * without an owner.
 */
static void
look_at(Slice *slice)
{
	int64	   *ids = slice->ids;
	Ends		ends = {.ids = ids};
	int64	   *long_ids;
	int			nlong;

	/* most often the batches have members: then their rows need not be locked */
	ends.n = remove_with_members(ids, slice->n);
	if (ends.n == 0)
		return;
	DW_INJECT("batch-looked");
	ends.n = lock_rows(ids, ends.n, &nlong, slice) - nlong;
	long_ids = &ids[ends.n];
	ends.n = remove_with_members(ids, ends.n);
	if (nlong > 0)
		nlong = remove_with_members(long_ids, nlong);
	/* the callbacks must see what the members wrote on other nodes */
	if (ends.n + nlong > 0)
		dw_elsewhere_wait();
	/* an error must not keep other batches from ending */
	if (ends.n > 0 && dw_try(end_batches, &ends) != NULL)
		for (int i = 0; i < ends.n; i++)
			end_alone(ids[i], slice);
	else
		slice->ended |= ends.n > 0;
	for (int i = 0; i < nlong; i++)
		end_alone(long_ids[i], slice);
}

/* Sets the slice to the batches with ids above slice->after.  Sets slice->all to false at the last one. */
static void
take_next(Slice *slice)
{
	static const Oid types[] = {INT8OID, INT4OID};
	const Datum values[] = {Int64GetDatum(slice->after), Int32GetDatum(SLICE)};

	slice->n = dw_batches_sql("SELECT id FROM delay_wheel_data.batch b WHERE ended_at IS NULL AND id > $1"
							  " AND (closed OR NOT EXISTS (SELECT FROM pg_roles WHERE oid = b.owner)) ORDER BY id LIMIT $2",
							  2, types, values);
	slice->all = slice->n == SLICE;
	for (int i = 0; i < slice->n; i++)
		slice->ids[i] = slice->after = found_number(i, 1);
}

/* Removes batches that are put off from a slice. */
static void
remove_put_off(Slice *slice)
{
	int			n = 0;

	for (int i = 0; i < slice->n; i++)
		if (!dw_batch_is_put_off(slice->db, slice->ids[i], !slice->all, slice->began))
			slice->ids[n++] = slice->ids[i];
	slice->n = n;
}

/* Does a slice in the transaction of do_look_slice(). */
static bool
look_slice(DwDatabase *db, const DwCatalog *cat, void *state)
{
	Slice	   *slice = state;
	int			nest_level;
	Oid			user;
	int			context;

	if (!ConditionalLockRelationOid(cat->task, RowExclusiveLock) ||
		!ConditionalLockRelationOid(cat->batch, RowExclusiveLock) ||
		!ConditionalLockRelationOid(cat->batch_count, RowExclusiveLock))
		return false;
	PushActiveSnapshot(GetTransactionSnapshot());
	/* the setting "role" of the database may name another role */
	nest_level = dw_batches_sql_begin(&user, &context);
	if (slice->all)
		take_next(slice);
	remove_put_off(slice);
	look_at(slice);
	dw_batches_sql_end(nest_level, user, context);
	PopActiveSnapshot();
	return true;
}

/* Does a slice.  Returns false if it could not be done. */
static bool
do_look_slice(DwDatabase *db, Slice *slice)
{
	if (!dw_slice_do(db, look_slice, slice))
		return false;
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
	Slice		slice = {.db = db, .began = dw_uptime(), .all = true};

	if (!passing)
	{
		if (!dw_batch_pass_begin(db))
			return true;
		passing = true;
		after = 0;
		began = slice.began;
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
		dw_batch_pass_delay(db, Min(PASS_FACTOR * (dw_uptime() - began), PASS_MAX_US));
	return true;
}

/*
 * The sweeper's job: looks at noted batches, at those whose pause is over, and at all batches if
 * necessary.  Result: see DwWingJob.
 */
TimestampTz
dw_batches_end(DwDatabase *db)
{
	Slice		slice = {.db = db, .began = dw_uptime()};
	int			again = dw_batch_put_off_take(db, slice.ids, slice.began);
	bool		more = dw_batch_notes_take(db, &slice.ids[again], SLICE - again, &slice.n);
	TimestampTz next = DW_NEVER;
	int64		next_look;

	slice.n += again;
	if (slice.n > 0)
	{
		if (!do_look_slice(db, &slice))
			return dw_now() + RETRY_US;
		dw_batch_notes_remove(db);
		dw_batch_put_off_remove(db, slice.began);
	}
	if (!look_at_all(db, &more))
		return dw_now() + RETRY_US;
	if (more)
		return PG_INT64_MIN;
	dw_job_put_off(&db->sweeper_news, DW_JOB_BATCHES, dw_now() + LOOK_PAUSE_US);
	next_look = dw_batch_next_look(db);
	if (next_look != PG_INT64_MAX)
		next = dw_now() + Max(next_look - dw_uptime(), 0);
	return slice.n > 0 ? Min(next, dw_now() + STAY_US) : next;
}

/* The sweeper's job: removes batches that have ended, when failed tasks of that age are removed. */
TimestampTz
dw_batches_forget(DwDatabase *db)
{
	return dw_failed_max_age < 0 ? DW_NEVER :
		dw_aged_remove(db, &ended_batches, dw_failed_max_age * USECS_PER_MINUTE);
}
