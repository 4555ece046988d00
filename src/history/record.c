/*-------------------------------------------------------------------------
 *
 * record.c
 *	  The record of the ends of tasks, delay_wheel.history.
 *
 * Run by the process that ends a task, usually an executor, in the transaction of the end.  For a
 * cancelled task this is the session that cancels it, or the sweeper that removes its row.
 * README.md describes the tables, and why writing must not fail.
 *
 * The rows of a batch, or of a slice of the sweeper, are collected, and written together just
 * before the commit.  A task of a batch may run other tasks by delay_run() in a subtransaction that
 * is undone alone.  So rows of subtransactions are not collected.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "common/pg_prng.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../base/compat.h"
#include "../base/signature.h"
#include "history.h"

PG_FUNCTION_INFO_V1(dw_history_guard);

/* Limits of texts in a row, in bytes.  Keys and tags cannot be longer than MAX_KEY. */
#define MAX_SQL		200
#define MAX_MESSAGE	1000
#define MAX_KEY		1000

/* Number of a table's last pages that are searched for a task's end (some thousand rows). */
#define NEWEST_PAGES	64

/* The collected rows of this executor's batch, or of the sweeper's slice. */
static bool collecting = false;
static List *collected = NIL;
static MemoryContext collected_context = NULL;

/*---- Limits, and the current table ----*/

/*
 * Returns the size, in pages, at which the next table replaces the current table.  room: the number
 * of pages that the other tables leave to the current table.  Usually the size is a quarter of the
 * whole history.  It is less if another table has grown larger because a lock prevented a
 * truncation.
 */
BlockNumber
dw_history_turn_pages(BlockNumber room)
{
	return Max(Min(dw_history_max_pages() / 4, room / 2), 1);
}

/* Reads the number of the current table from the sequence. */
int
dw_history_read_current(Oid sequence)
{
	Relation	rel = table_open(sequence, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple = systable_getnext(scan);
	int64		value = 0;

	/* last_value is its first column */
	if (tuple != NULL)
		value = DatumGetInt64(dw_row_column(rel, tuple, 1));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return (int) (value % DW_HISTORY_TABLES);
}

/* Returns the number of the current table.  db may be NULL. */
static int
current_table(DwDatabase *db)
{
	int			known = db ? dw_history_known_table(&db->sweeper_news) : -1;

	return known >= 0 ? known : dw_history_read_current(dw_catalog()->history_seq);
}

/*
 * Returns the number of pages that the other tables leave to the current table.  Before the sweeper
 * has looked for the first time, assumes half of the history.
 */
static BlockNumber
room(DwDatabase *db)
{
	BlockNumber known = db ? pg_atomic_read_u32(&db->sweeper_news.history_room) : 0;

	return known > 0 ? known : dw_history_max_pages() / 2;
}

/*
 * Notes if the history is full, and reports a problem when it becomes full.  Called by the sweeper,
 * and by writers.
 */
void
dw_history_set_full(DwDatabase *db, bool full)
{
	if (dw_history_becomes_full(&db->sweeper_news, full))
		dw_problem(&db->problem, "delay_wheel.history is full: nothing more is recorded until the oldest of its tables can be emptied");
}

/*
 * To be called after rows were written to rel, the last row to this page.  After the first row,
 * asks the sweeper to replace the table when it is old.  If the table is large enough, asks the
 * sweeper to replace it now.  First notes if the history is full, since the sweeper resets this
 * note.
 */
static void
note_written(DwDatabase *db, Relation rel, BlockNumber page)
{
	/* another table may be current now */
	if (db == NULL || RelationGetRelid(rel) != dw_catalog()->history[current_table(db)])
		return;
	if (page == 0)
		dw_ask_sweeper(db, DW_JOB_HISTORY, dw_now() + dw_history_turn_us());
	if (page + 1 >= room(db))
		dw_history_set_full(db, true);
	if (page + 1 >= dw_history_turn_pages(room(db)))
		dw_ask_sweeper(db, DW_JOB_HISTORY, dw_job_soonest(&db->sweeper_news, DW_JOB_HISTORY));
}

/* The choice of ends to record */

/* Returns the level of the queue; if the queue has no level, the level of the setting. */
static DwHistoryLevel
level_of(int16 queue)
{
	const DwDeclaredQueue *declared = queue != 0 ? dw_queue_now(dw_my_database(), queue) : NULL;

	return declared == NULL || declared->history == DW_HISTORY_UNSET ?
		dw_history : declared->history;
}

/* Returns true for a wanted end, which the level "errors" does not record. */
static bool
is_planned(DwOutcome outcome)
{
	return outcome == DW_DONE || outcome == DW_CANCELLED;
}

/* Returns true if the level of the queue or setting records all or a share of such ends. */
bool
dw_history_wants(int16 queue, int outcome)
{
	return level_of(queue) >= (is_planned(outcome) ? DW_HISTORY_SAMPLE : DW_HISTORY_ERRORS);
}

/*
 * Returns the maximum size in bytes of a task's result in the history, for a task of the queue; 0
 * if no result, or no such end, is recorded.
 */
int
dw_history_max_result(int16 queue)
{
	return dw_history_result > 0 && dw_history_wants(queue, DW_DONE) ? dw_history_result : 0;
}

/*
 * Returns true if this end is recorded.  Sets *sample to the recorded share of such ends (1: all).
 * Each call draws a new random number, so there must be one call for each end.
 */
static bool
is_recorded(int16 queue, DwOutcome outcome, double *sample)
{
	*sample = 1;
	if (!dw_history_wants(queue, outcome))
		return false;
	if (is_planned(outcome) && level_of(queue) == DW_HISTORY_SAMPLE)
		*sample = dw_history_sample;
	return *sample >= 1 || pg_prng_double(&pg_global_prng_state) < *sample;
}

/*---- Rows ----*/

static void
set_history_column(DwHistoryRow *row, AttrNumber column, Datum value)
{
	row->values[column - 1] = value;
	row->nulls[column - 1] = false;
}

/* Sets a column to the first max bytes of a text.  Leaves it null if the text is NULL. */
static void
set_text(DwHistoryRow *row, AttrNumber column, const char *text, int max)
{
	if (text != NULL)
		set_history_column(row, column, dw_clipped_text(text, strlen(text), max));
}

/*
 * Copies the first max bytes of a text column of the task's row, if it is not null.  Detoasts only
 * this part of a long text.
 */
static void
copy_text(DwHistoryRow *row, AttrNumber column, const DwEnded *ended, AttrNumber from, int max)
{
	struct varlena *text;

	if (ended->nulls[from - 1])
		return;
	text = (struct varlena *) DatumGetPointer(ended->values[from - 1]);
	if (VARATT_IS_EXTERNAL(text) || VARATT_IS_COMPRESSED(text))
		text = PG_DETOAST_DATUM_SLICE(PointerGetDatum(text), 0, max + MAX_MULTIBYTE_CHAR_LEN);
	set_history_column(row, column,
					   dw_clipped_text(VARDATA_ANY(text), VARSIZE_ANY_EXHDR(text), max));
}

/* Sets the result: the receiver's result of a message, or the first row of a task. */
static void
set_result(DwHistoryRow *row, const DwEnded *ended)
{
	Jsonb	   *result = ended->result.first_row;

	if (ended->reply != NULL && dw_history_result > 0)
		result = dw_jsonb_within(text_to_cstring(ended->reply), dw_history_result);
	else if (result != NULL)
		result = DatumGetJsonbPCopy(JsonbPGetDatum(result));
	if (result != NULL)
		set_history_column(row, Anum_history_result, JsonbPGetDatum(result));
}

/* Sets the columns about the run: start, attempt, result, error. */
static void
set_run(DwHistoryRow *row, const DwEnded *ended)
{
	if (ended->started != 0)
	{
		set_history_column(row, Anum_history_started, TimestampTzGetDatum(ended->started));
		set_history_column(row, Anum_history_attempt,
						   Int16GetDatum(Min(ended->key->attempts + 1, PG_INT16_MAX)));
	}
	if (ended->outcome == DW_DONE && !ended->nulls[Anum_task_sql - 1])
	{
		set_history_column(row, Anum_history_rows, Int64GetDatum((int64) ended->result.rows));
		if (ended->result.tag != CMDTAG_UNKNOWN)
			set_text(row, Anum_history_command_tag, GetCommandTagName(ended->result.tag), NAMEDATALEN);
	}
	if (ended->outcome == DW_DONE)
		set_result(row, ended);
	if (ended->error != NULL)
	{
		set_text(row, Anum_history_sqlstate,
				 unpack_sql_state(ended->error->sqlerrcode), NAMEDATALEN);
		set_text(row, Anum_history_message, dw_error_message(ended->error), MAX_MESSAGE);
	}
}

/* Makes the row of an end.  sample: the recorded share of such ends. */
static DwHistoryRow *
make_row(const DwEnded *ended, double sample)
{
	DwHistoryRow *row = palloc(sizeof(DwHistoryRow));
	int64		recurring;

	memset(row->nulls, true, sizeof(row->nulls));
	set_history_column(row, Anum_history_task, Int64GetDatum(ended->key->id));
	/* for a leased message, key->due is the end of the lease */
	set_history_column(row, Anum_history_due, ended->nulls[Anum_task_first_due - 1] ?
					   TimestampTzGetDatum(ended->key->due) : ended->values[Anum_task_first_due - 1]);
	set_history_column(row, Anum_history_ended, TimestampTzGetDatum(dw_now()));
	set_history_column(row, Anum_history_owner, ObjectIdGetDatum(ended->key->owner));
	set_history_column(row, Anum_history_queue, Int16GetDatum(ended->key->queue));
	set_text(row, Anum_history_outcome, dw_outcome_names[ended->outcome], NAMEDATALEN);
	set_run(row, ended);
	copy_text(row, Anum_history_sql, ended, Anum_task_sql, MAX_SQL);
	copy_text(row, Anum_history_key, ended, Anum_task_key, MAX_KEY);
	copy_text(row, Anum_history_tag, ended, Anum_task_tag, MAX_KEY);
	copy_text(row, Anum_history_group_key, ended, Anum_task_group_key, MAX_KEY);
	if (dw_more_number(ended->values, ended->nulls, Anum_task_more, DW_MORE_RECURRING, &recurring))
		set_history_column(row, Anum_history_recurring, Int64GetDatum(recurring));
	if (sample < 1)
		set_history_column(row, Anum_history_sample, Float8GetDatum(sample));
	return row;
}

/*---- Writing ----*/

/*
 * Opens the current table, locked for writing.  Turns lock_timeout off, except in a batch.  If the
 * sweeper makes another table current during the wait for the lock, tries again with the new
 * current table, since the first table may be emptied next.
 */
static Relation
open_for_writing(DwDatabase *db)
{
	int			lock_timeout = LockTimeout;
	Relation	rel = NULL;

	if (!collecting)
		LockTimeout = 0;
	PG_TRY();
	{
		while (rel == NULL)
		{
			int			number = current_table(db);
			Oid			table = dw_catalog()->history[number];

			LockRelationOid(table, RowExclusiveLock);
			if (current_table(db) == number)
				rel = table_open(table, NoLock);
			else
				UnlockRelationOid(table, RowExclusiveLock);
		}
	}
	PG_FINALLY();
	{
		LockTimeout = lock_timeout;
	}
	PG_END_TRY();
	return rel;
}

/*
 * Returns true if the sweeper can record the end of a cancelled task without waiting for a lock.
 * If the end is recorded, locks the current table for writing.
 */
bool
dw_history_may_record(Relation rel, HeapTuple row)
{
	DwTaskKey	key;

	dw_task_key(rel, row, &key);
	return !dw_history_wants(key.queue, DW_CANCELLED) ||
		ConditionalLockRelationOid(dw_catalog()->history[current_table(dw_my_database())],
								   RowExclusiveLock);
}

/*
 * Makes this process write to a page near the end of the table.
 *
 * Otherwise the process would fill the page to which it wrote last, even if other processes have
 * added thousands of pages meanwhile.  But dw_history_newest_end() searches only the last
 * NEWEST_PAGES pages.
 */
static void
leave_old_page(Relation rel)
{
	BlockNumber page = RelationGetTargetBlock(rel);

	if (BlockNumberIsValid(page) && page + NEWEST_PAGES / 2 < RelationGetNumberOfBlocks(rel))
		RelationSetTargetBlock(rel, InvalidBlockNumber);
}

/* Writes rows to the current table, unless the history is full. */
static void
write_rows(List *rows)
{
	DwDatabase *db = dw_my_database();
	Relation	rel;

	/* the task itself may have dropped the extension */
	if (!dw_catalog_is_there())
		return;
	rel = open_for_writing(db);
	if (db != NULL ? pg_atomic_read_u32(&db->sweeper_news.history_is_full) == 0 :
		RelationGetNumberOfBlocks(rel) < room(db))
	{
		leave_old_page(rel);
		note_written(db, rel, dw_history_insert(rel, rows));
	}
	table_close(rel, NoLock);
}

/*
 * Records the end of a task or an attempt, depending on the level of the history.  To be called in
 * the transaction of the end, by dw_conclude().  In a batch, dw_history_write_collected() writes
 * the row.
 */
void
dw_history_record(const DwEnded *ended)
{
	MemoryContext context;
	double		sample;

	if (!is_recorded(ended->key->queue, ended->outcome, &sample))
		return;
	if (!collecting || GetCurrentTransactionNestLevel() > 1)
	{
		write_rows(list_make1(make_row(ended, sample)));
		return;
	}
	context = MemoryContextSwitchTo(collected_context);
	collected = lappend(collected, make_row(ended, sample));
	MemoryContextSwitchTo(context);
}

/* Drops the collected rows, and ends collecting.  For batches that were undone. */
void
dw_history_forget(void)
{
	collecting = false;
	collected = NIL;
	if (collected_context != NULL)
		MemoryContextReset(collected_context);
}

/*
 * Begins to collect rows, for batches and slices.  Ended by dw_history_write_collected() or
 * dw_history_forget().
 */
void
dw_history_collect(void)
{
	if (collected_context == NULL)
		collected_context = AllocSetContextCreate(TopMemoryContext, "delay_wheel history",
												  ALLOCSET_DEFAULT_SIZES);
	dw_history_forget();
	collecting = true;
}

/* Writes the collected rows in the current transaction, and ends collecting. */
void
dw_history_write_collected(void)
{
	MemoryContext context;

	if (collected != NIL)
	{
		context = MemoryContextSwitchTo(collected_context);
		write_rows(collected);
		MemoryContextSwitchTo(context);
	}
	dw_history_forget();
}

/*---- Reading ----*/

/*
 * Adds a row of the history to *end, if it belongs to the task and the current user may read it.
 *
 * A row about a failed attempt, or a failure, adds only the latest error, not the end of the task.
 * After a failure, the task may have been put back, and its later end may not be recorded.  The
 * table failed_task shows if the task has failed.
 */
static void
add_row(Relation rel, HeapTuple tuple, int64 id, DwHistoryEnd *end)
{
	DwOutcome	outcome = DW_DONE;
	bool		is_end;
	char	   *name;
	TimestampTz ended;

	if (DatumGetInt64(dw_row_column(rel, tuple, Anum_history_task)) != id ||
		!dw_may_read(DatumGetObjectId(dw_row_column(rel, tuple, Anum_history_owner))))
		return;
	name = dw_row_text(rel, tuple, Anum_history_outcome);
	while (outcome <= DW_CANCELLED && strcmp(name, dw_outcome_names[outcome]) != 0)
		outcome++;
	is_end = outcome != DW_RETRIED && outcome != DW_FAILED;
	if (outcome > DW_CANCELLED || (!is_end && end->outcome != DW_NOT_ENDED))
		return;
	ended = DatumGetTimestampTz(dw_row_column(rel, tuple, Anum_history_ended));
	if (is_end == (end->outcome != DW_NOT_ENDED) && ended < end->ended)
		return;
	end->outcome = is_end ? outcome : DW_NOT_ENDED;
	end->ended = ended;
	end->attempt = DatumGetInt16(dw_row_column(rel, tuple, Anum_history_attempt));
	end->sqlstate = dw_row_text(rel, tuple, Anum_history_sqlstate);
	end->message = dw_row_text(rel, tuple, Anum_history_message);
}

/*
 * Adds the newest rows of the task, in the last pages of the current table, to *end.  Rows are
 * removed only with the whole table, so old pages get no new rows.  Adds nothing if the table is
 * locked.
 */
static void
read_newest(int64 id, Snapshot snapshot, DwHistoryEnd *end)
{
	Oid			table = dw_catalog()->history[current_table(dw_my_database())];
	Relation	rel = dw_open_if_free(table);
	TableScanDesc scan;
	HeapTuple	tuple;
	BlockNumber pages;

	if (rel == NULL)
		return;
	pages = RelationGetNumberOfBlocks(rel);
	scan = table_beginscan_strat(rel, snapshot, 0, NULL, true, false);
	if (pages > NEWEST_PAGES)
		heap_setscanlimits(scan, pages - NEWEST_PAGES, NEWEST_PAGES);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		add_row(rel, tuple, id, end);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
}

/* Returns the index by task that an administrator may have added; else InvalidOid. */
static Oid
index_by_task(Relation rel)
{
	List	   *indexes = RelationGetIndexList(rel);
	Oid			found = InvalidOid;
	ListCell   *lc;

	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		if (index->rd_rel->relam == BTREE_AM_OID && index->rd_index->indisvalid &&
			index->rd_index->indkey.values[0] == Anum_history_task &&
			RelationGetIndexPredicate(index) == NIL)
			found = lfirst_oid(lc);
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
	return found;
}

/* Adds all rows of the task in one table of the history to *end. */
static void
read_table(Oid table, int64 id, Snapshot snapshot, DwHistoryEnd *end)
{
	Relation	rel = table_open(table, AccessShareLock);
	Oid			index = index_by_task(rel);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_history_task, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	scan = systable_beginscan(rel, index, OidIsValid(index), snapshot, 1, &key);
	while ((tuple = systable_getnext(scan)) != NULL)
		add_row(rel, tuple, id, end);
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
}

/*
 * Returns the name of the outcome (see dw_outcome_names) of a task that is neither pending nor
 * failed.  Returns NULL if the newest rows of the history do not have the outcome, or if the
 * current user may not read it.
 */
const char *
dw_history_newest_end(int64 id)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	DwHistoryEnd end = {0};

	read_newest(id, snapshot, &end);
	UnregisterSnapshot(snapshot);
	return dw_outcome_names[end.outcome];
}

/*
 * Fills in *end from the history of such a task.  If the newest rows do not have its end, reads all
 * rows, which is slow unless an administrator has added indexes.  Ignores rows that the current
 * user may not read.
 */
void
dw_history_find(int64 id, Snapshot snapshot, DwHistoryEnd *end)
{
	memset(end, 0, sizeof(DwHistoryEnd));
	read_newest(id, snapshot, end);
	for (int i = 0; end->outcome == DW_NOT_ENDED && i < DW_HISTORY_TABLES; i++)
		read_table(dw_catalog()->history[i], id, snapshot, end);
}

/*---- Plain SQL ----*/

/*
 * Trigger on the tables of the history and of the audit: only their owner may write to them.
 * Ignores changes that a worker of logical replication applies.
 */
Datum
dw_history_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = dw_require_trigger(fcinfo, "history_guard", true);

	if (IsLogicalWorker())
		return PointerGetDatum(NULL);
	if (!has_privs_of_role(GetUserId(), trigger->tg_relation->rd_rel->relowner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to write to table \"%s.%s\"", "delay_wheel_data",
						RelationGetRelationName(trigger->tg_relation)),
				 errhint("Rows are removed when they are older than the settings allow.")));
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ?
						   trigger->tg_newtuple : trigger->tg_trigtuple);
}
