/*-------------------------------------------------------------------------
 *
 * history.c
 *	  The record of how tasks ended, delay_wheel.history.
 *
 * Run by whoever ends a task: mostly by executors, in the transaction that has
 * run it or records its failure.  So there is a row exactly if that was
 * committed.  Rows go into one of three tables, see history_tables.c, by the
 * heap's functions.
 *
 * The rows of a batch are collected, and written together just before its
 * commit: one record in the WAL for each page, instead of one for each row.
 * What a task of a batch runs itself within a subtransaction, by delay_run(),
 * is not collected, since that may be undone alone.
 *
 * Nothing here may fail for a reason of its own, since the task would fail
 * with it.  A lock is waited for, whatever lock_timeout says, but in a batch,
 * whose tasks can be run alone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "storage/block.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/settings.h"
#include "../base/signature.h"
#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../shmem/outcome.h"
#include "../shmem/shared.h"
#include "../statement/spi_run.h"
#include "../task/ended.h"
#include "../task/my_session.h"
#include "../task/queues.h"
#include "history.h"

PG_FUNCTION_INFO_V1(dw_history_guard);

/* What is kept of texts, in bytes.  Keys and tags are not longer anyway. */
#define MAX_SQL		200
#define MAX_MESSAGE	1000
#define MAX_KEY		1000

/* Where the end of a task that is gone is looked for: 0.5 MB, some thousand rows. */
#define NEWEST_PAGES	64

/* The rows of the batch that goes on, if one does. */
static bool collecting = false;
static List *collected = NIL;
static MemoryContext collected_context = NULL;

/*---- What is recorded ----*/

int64
dw_history_max_age_us(void)
{
	return (int64) dw_history_max_age * USECS_PER_MINUTE;
}

BlockNumber
dw_history_max_pages(void)
{
	return (BlockNumber) (dw_history_max_size / (BLCKSZ / 1024));
}

/*
 * How large it becomes, if it has room for so many pages: with others that have
 * grown while they were locked, not as large, so that it has some room left.
 */
BlockNumber
dw_history_turn_pages(BlockNumber room)
{
	return Max(Min(dw_history_max_pages() / 4, room / 2), 1);
}

/* The number of the current table, from the sequence. */
int
dw_history_read_current(Oid sequence)
{
	Relation	rel = table_open(sequence, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	HeapTuple	tuple = systable_getnext(scan);
	int64		value = 0;
	bool		isnull;

	/* last_value is its first column */
	if (tuple != NULL)
		value = DatumGetInt64(heap_getattr(tuple, 1, RelationGetDescr(rel), &isnull));
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return (int) (value % DW_HISTORY_TABLES);
}

static int
current_table(DwDatabase *db)
{
	uint32		known = db ? pg_atomic_read_u32(&db->history_current) : 0;

	return known > 0 ? (int) known - 1 : dw_history_read_current(dw_catalog()->history_seq);
}

static Relation
dw_history_open_current(DwDatabase *db)
{
	for (;;)
	{
		int			number = current_table(db);
		Oid			table = dw_catalog()->history[number];

		LockRelationOid(table, RowExclusiveLock);
		if (current_table(db) == number)
			return table_open(table, NoLock);
		UnlockRelationOid(table, RowExclusiveLock);
	}
}

static Relation
dw_history_try_current(DwDatabase *db)
{
	Oid			table = dw_catalog()->history[current_table(db)];

	return ConditionalLockRelationOid(table, AccessShareLock) ? table_open(table, NoLock) : NULL;
}

/* Nothing is known before the first look: then the other tables have half of it. */
static BlockNumber
room(DwDatabase *db)
{
	uint32		known = db ? pg_atomic_read_u32(&db->history_room) : 0;

	return known > 0 ? known : dw_history_max_pages() / 2;
}

static bool
dw_history_has_room(DwDatabase *db, Relation rel)
{
	if (db != NULL)
		return pg_atomic_read_u32(&db->history_is_full) == 0;
	return RelationGetNumberOfBlocks(rel) < room(db);
}

void
dw_history_ask(DwDatabase *db, TimestampTz at)
{
	if (!dw_atomic_lower(&db->history_turn_at, at))
		return;
	/* the timer looks at it when this has changed */
	pg_atomic_fetch_add_u32(&db->control, 1);
	dw_wake_timer(db, DW_AWAKE);
}

/* A writer may be the first to see it, or the sweeper. */
void
dw_history_set_full(DwDatabase *db, bool full)
{
	if (pg_atomic_exchange_u32(&db->history_is_full, full ? 1 : 0) == 0 && full)
		dw_problem(db, "delay_wheel.history is full: nothing more is recorded until the oldest of its tables can be emptied");
}

/* It is full before the sweeper is asked, or its look would not end that. */
static void
dw_history_wrote(DwDatabase *db, Relation rel, BlockNumber page)
{
	/* another one may be the current table by now */
	if (db == NULL || RelationGetRelid(rel) != dw_catalog()->history[current_table(db)])
		return;
	if (page == 0)
		dw_history_ask(db, dw_now() + dw_history_turn_us());
	if (page + 1 >= room(db))
		dw_history_set_full(db, true);
	if (page + 1 >= dw_history_turn_pages(room(db)))
		dw_history_ask(db, Max(dw_now(), dw_atomic_read(&db->history_turn_after)));
}

static bool
wants_history(const DwEnded *ended)
{
	DwHistoryLevel level = dw_history;
	int16		queue = ended->key->queue;

	if (ended->outcome == DW_CANCELLED)
		return false;
	if (queue != 0)
	{
		DwHistoryLevel said = dw_queue_history(dw_my_database(), queue);

		if (said != DW_HISTORY_UNSET)
			level = said;
	}
	return level >= (ended->outcome == DW_DONE ? DW_HISTORY_ALL : DW_HISTORY_ERRORS);
}

/* NULL if a rule has replaced the statement by one of another kind. */
static const char *
command_tag_of(const DwSpiResult *result)
{
	switch (result->code)
	{
		case SPI_OK_SELECT:
			return "SELECT";
		case SPI_OK_SELINTO:
			return "SELECT INTO";
		case SPI_OK_INSERT:
		case SPI_OK_INSERT_RETURNING:
			return "INSERT";
		case SPI_OK_UPDATE:
		case SPI_OK_UPDATE_RETURNING:
			return "UPDATE";
		case SPI_OK_DELETE:
		case SPI_OK_DELETE_RETURNING:
			return "DELETE";
		case SPI_OK_MERGE:
		case SPI_OK_MERGE_RETURNING:
			return "MERGE";
		case SPI_OK_UTILITY:
			return GetCommandTagName(result->utility);
		default:
			return NULL;
	}
}

/*---- Rows ----*/

static void
set_history_column(DwHistoryRow *row, AttrNumber column, Datum value)
{
	row->values[column - 1] = value;
	row->nulls[column - 1] = false;
}

static void
set_text(DwHistoryRow *row, AttrNumber column, const char *text, int max)
{
	if (text != NULL)
		set_history_column(row, column, dw_clipped_text(text, strlen(text), max));
}

/* The beginning of a text of the task's row, which may be long. */
static void
copy_text(DwHistoryRow *row, AttrNumber column, const DwEnded *ended, AttrNumber from, int max)
{
	struct varlena *text;

	if (ended->nulls[from - 1])
		return;
	text = (struct varlena *) DatumGetPointer(ended->values[from - 1]);
	if (VARATT_IS_EXTERNAL(text) || VARATT_IS_COMPRESSED(text))
		text = PG_DETOAST_DATUM_SLICE(PointerGetDatum(text), 0, max + MAX_MULTIBYTE_CHAR_LEN);
	set_history_column(row, column, dw_clipped_text(VARDATA_ANY(text), VARSIZE_ANY_EXHDR(text), max));
}

static void
set_run(DwHistoryRow *row, const DwEnded *ended)
{
	if (ended->started != 0)
	{
		set_history_column(row, Anum_history_started, TimestampTzGetDatum(ended->started));
		set_history_column(row, Anum_history_attempt, Int16GetDatum(Min(ended->key->attempts + 1, PG_INT16_MAX)));
	}
	if (ended->outcome == DW_DONE)
	{
		set_history_column(row, Anum_history_rows, Int64GetDatum((int64) ended->result.rows));
		set_text(row, Anum_history_command_tag, command_tag_of(&ended->result), NAMEDATALEN);
	}
	if (ended->error != NULL)
	{
		set_text(row, Anum_history_sqlstate, unpack_sql_state(ended->error->sqlerrcode), NAMEDATALEN);
		set_text(row, Anum_history_message,
				 dw_error_message(ended->error), MAX_MESSAGE);
	}
}

static DwHistoryRow *
make_row(const DwEnded *ended)
{
	DwHistoryRow *row = palloc(sizeof(DwHistoryRow));
	int64		recurring;

	memset(row->nulls, true, sizeof(row->nulls));
	set_history_column(row, Anum_history_task, Int64GetDatum(ended->key->id));
	set_history_column(row, Anum_history_due, TimestampTzGetDatum(ended->key->due));
	set_history_column(row, Anum_history_ended, TimestampTzGetDatum(dw_now()));
	set_history_column(row, Anum_history_owner, ObjectIdGetDatum(ended->key->owner));
	set_history_column(row, Anum_history_queue, Int16GetDatum(ended->key->queue));
	set_text(row, Anum_history_outcome, dw_outcome_names[ended->outcome], NAMEDATALEN);
	set_run(row, ended);
	copy_text(row, Anum_history_sql, ended, Anum_task_sql, MAX_SQL);
	copy_text(row, Anum_history_key, ended, Anum_task_key, MAX_KEY);
	copy_text(row, Anum_history_tag, ended, Anum_task_tag, MAX_KEY);
	if (dw_more_number(ended->values, ended->nulls, Anum_task_more, DW_MORE_RECURRING, &recurring))
		set_history_column(row, Anum_history_recurring, Int64GetDatum(recurring));
	return row;
}

/*---- Writing ----*/

/*
 * Opens the table that is written.  It may have become another one while we
 * waited for the lock; then the one we have may be the next to be emptied.
 */
static Relation
open_current(DwDatabase *db)
{
	int			lock_timeout = LockTimeout;
	Relation	rel = NULL;

	if (!collecting)
		LockTimeout = 0;
	PG_TRY();
	{
		rel = dw_history_open_current(db);
	}
	PG_FINALLY();
	{
		LockTimeout = lock_timeout;
	}
	PG_END_TRY();
	return rel;
}

/*
 * dw_history_newest_end() looks in the last pages, but who has written goes on in
 * the same page until that is full, be there thousands of others meanwhile.
 */
static void
leave_old_page(Relation rel)
{
	BlockNumber page = RelationGetTargetBlock(rel);

	if (BlockNumberIsValid(page) && page + NEWEST_PAGES / 2 < RelationGetNumberOfBlocks(rel))
		RelationSetTargetBlock(rel, InvalidBlockNumber);
}

static void
write_rows(List *rows)
{
	DwDatabase *db = dw_my_database();
	Relation	rel;

	/* the task may just have dropped the extension */
	if (!dw_catalog_is_there())
		return;
	rel = open_current(db);
	if (dw_history_has_room(db, rel))
	{
		leave_old_page(rel);
		dw_history_wrote(db, rel, dw_history_insert(rel, rows));
	}
	table_close(rel, NoLock);
}

/*
 * Records the end of a task, if it is to be recorded, in the transaction of
 * that end.
 */
void
dw_history_record(const DwEnded *ended)
{
	MemoryContext context;

	if (!wants_history(ended))
		return;
	if (!collecting || GetCurrentTransactionNestLevel() > 1)
	{
		write_rows(list_make1(make_row(ended)));
		return;
	}
	context = MemoryContextSwitchTo(collected_context);
	collected = lappend(collected, make_row(ended));
	MemoryContextSwitchTo(context);
}

void
dw_history_collect(void)
{
	if (collected_context == NULL)
		collected_context = AllocSetContextCreate(TopMemoryContext, "delay_wheel history",
												  ALLOCSET_DEFAULT_SIZES);
	dw_history_forget();
	collecting = true;
}

void
dw_history_forget(void)
{
	collecting = false;
	collected = NIL;
	if (collected_context != NULL)
		MemoryContextReset(collected_context);
}

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

/* The end that a row tells, if it is one of this task; that of an attempt is none. */
static const char *
end_of(Relation rel, HeapTuple tuple, int64 id)
{
	TupleDesc	desc = RelationGetDescr(rel);
	bool		isnull;
	char	   *outcome;

	if (DatumGetInt64(heap_getattr(tuple, Anum_history_task, desc, &isnull)) != id ||
		!has_privs_of_role(GetUserId(), DatumGetObjectId(heap_getattr(tuple, Anum_history_owner, desc, &isnull))))
		return NULL;
	outcome = TextDatumGetCString(heap_getattr(tuple, Anum_history_outcome, desc, &isnull));
	for (int end = DW_DONE; end <= DW_CANCELLED; end++)
		if (end != DW_RETRIED && strcmp(outcome, dw_outcome_names[end]) == 0)
			return dw_outcome_names[end];
	return NULL;
}

/*
 * How a task ended that is gone, as dw_outcome_names has it, if the user may know that
 * and it is among the newest rows; else NULL.
 *
 * There is no index; but rows go all at once, and none comes into an old page, so
 * the newest are in the last ones.
 */
const char *
dw_history_newest_end(int64 id)
{
	Relation	rel = dw_history_try_current(dw_my_database());
	const char *found = NULL;
	Snapshot	snapshot;
	TableScanDesc scan;
	HeapTuple	tuple;
	BlockNumber pages;

	if (rel == NULL)
		return NULL;
	pages = RelationGetNumberOfBlocks(rel);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = table_beginscan_strat(rel, snapshot, 0, NULL, true, false);
	if (pages > NEWEST_PAGES)
		heap_setscanlimits(scan, pages - NEWEST_PAGES, NEWEST_PAGES);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		const char *end = end_of(rel, tuple, id);

		CHECK_FOR_INTERRUPTS();
		if (end != NULL)
			found = end;
	}
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return found;
}

/*---- Plain SQL ----*/

/* Trigger on the tables: only who owns them writes, and nothing is replicated. */
Datum
dw_history_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = dw_require_trigger(fcinfo, "history_guard", true);

	if (IsLogicalWorker())
		return PointerGetDatum(NULL);
	if (!has_privs_of_role(GetUserId(), trigger->tg_relation->rd_rel->relowner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to write to table \"%s.%s\"", "delay_wheel_internal",
						RelationGetRelationName(trigger->tg_relation)),
				 errhint("Rows go by the settings \"%s\" and \"%s\".",
						 "delay_wheel.history_max_age", "delay_wheel.history_max_size")));
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ?
						   trigger->tg_newtuple : trigger->tg_trigtuple);
}
