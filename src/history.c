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

#include "access/table.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "compat.h"
#include "executor/spi.h"
#include "history.h"
#include "history_tables.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "more.h"
#include "my_session.h"
#include "queues.h"
#include "replication/logicalworker.h"
#include "settings.h"
#include "signature.h"
#include "storage/bufmgr.h"
#include "storage/proc.h"
#include "task_rows.h"
#include "touched.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(dw_history_guard);

/* What is kept of texts, in bytes.  Keys and tags are not longer anyway. */
#define MAX_SQL		200
#define MAX_MESSAGE	1000
#define MAX_KEY		1000

/* Where the end of a task that is gone is looked for: 0.5 MB, some thousand rows. */
#define NEWEST_PAGES	64

const char *const dw_history_levels[] = {"off", "errors", "all"};

/* The rows of the batch that goes on, if one does. */
static bool collecting = false;
static List *collected = NIL;
static MemoryContext collected_context = NULL;

DwHistoryLevel
dw_history_level(const char *text)
{
	for (int i = DW_HISTORY_OFF; i <= DW_HISTORY_ALL; i++)
		if (strcmp(text, dw_history_levels[i]) == 0)
			return i;
	return DW_HISTORY_UNSET;
}

/*---- What is recorded ----*/

static bool
is_wanted(const DwEnded *ended)
{
	DwHistoryLevel level = dw_history;
	int16		queue = ended->key->queue;

	if (ended->end == DW_END_CANCELLED)
		return false;
	if (queue != 0)
	{
		DwHistoryLevel said = dw_queue_history(dw_my_database(), queue);

		if (said != DW_HISTORY_UNSET)
			level = said;
	}
	return level >= (ended->end == DW_END_DONE ? DW_HISTORY_ALL : DW_HISTORY_ERRORS);
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
set(DwHistoryRow *row, AttrNumber column, Datum value)
{
	row->values[column - 1] = value;
	row->nulls[column - 1] = false;
}

static void
set_text(DwHistoryRow *row, AttrNumber column, const char *text, int max)
{
	if (text != NULL)
		set(row, column, dw_clipped_text(text, strlen(text), max));
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
	set(row, column, dw_clipped_text(VARDATA_ANY(text), VARSIZE_ANY_EXHDR(text), max));
}

static void
set_run(DwHistoryRow *row, const DwEnded *ended)
{
	if (ended->started != 0)
	{
		set(row, Anum_history_started, TimestampTzGetDatum(ended->started));
		set(row, Anum_history_attempt, Int16GetDatum(Min(ended->key->attempts + 1, PG_INT16_MAX)));
	}
	if (ended->end == DW_END_DONE)
	{
		set(row, Anum_history_rows, Int64GetDatum((int64) ended->result.rows));
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
	set(row, Anum_history_task, Int64GetDatum(ended->key->id));
	set(row, Anum_history_due, TimestampTzGetDatum(ended->key->due));
	set(row, Anum_history_ended, TimestampTzGetDatum(dw_now()));
	set(row, Anum_history_owner, ObjectIdGetDatum(ended->key->owner));
	set(row, Anum_history_queue, Int16GetDatum(ended->key->queue));
	set_text(row, Anum_history_outcome, dw_end_names[ended->end], NAMEDATALEN);
	set_run(row, ended);
	copy_text(row, Anum_history_sql, ended, Anum_task_sql, MAX_SQL);
	copy_text(row, Anum_history_key, ended, Anum_task_key, MAX_KEY);
	copy_text(row, Anum_history_tag, ended, Anum_task_tag, MAX_KEY);
	if (dw_more_number(ended->values, ended->nulls, Anum_task_more, DW_MORE_RECURRING, &recurring))
		set(row, Anum_history_recurring, Int64GetDatum(recurring));
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

void
dw_history_record(const DwEnded *ended)
{
	MemoryContext context;

	if (!is_wanted(ended))
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
	for (int end = DW_END_DONE; end <= DW_END_CANCELLED; end++)
		if (end != DW_END_RETRIED && strcmp(outcome, dw_end_names[end]) == 0)
			return dw_end_names[end];
	return NULL;
}

/*
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
				 errmsg("permission denied to write to table \"%s.%s\"", "delay_wheel",
						RelationGetRelationName(trigger->tg_relation)),
				 errhint("Rows go by the settings \"%s\" and \"%s\".",
						 "delay_wheel.history_max_age", "delay_wheel.history_max_size")));
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ?
						   trigger->tg_newtuple : trigger->tg_trigtuple);
}
