/*-------------------------------------------------------------------------
 *
 * history_tables.c
 *	  The tables of delay_wheel.history: which one is written, and how they
 *	  are kept within bounds.
 *
 * There are three, written in turn, so that what is old goes by truncation:
 * without a scan, dead rows, or work for vacuum.  The sequence history_seq has
 * the number of the current one; shared memory has it, too, once the timer
 * has looked.  A writer who is late may write to the one before, which harms
 * nothing: it is the last to be emptied.
 *
 * The next table becomes the current one when that has a quarter of
 * delay_wheel.history_max_size, or is a third of delay_wheel.history_max_age
 * old; it is the oldest one, and emptied before.  So there are always between a
 * half and three quarters of the size, once it was reached; and rows go when
 * they are between two thirds of the age and the whole of it old.  Tables are
 * emptied also if nothing is written any more (expired), or the limit was
 * lowered.
 *
 * The sweeper does this (dw_history_turn), a truncation or a step to the next
 * table at a time, each in a transaction of its own.  It keeps nothing in
 * mind: what is to be done is read from the tables, so a crash in between
 * leaves nothing to be cleaned up.  Nobody looks before there is something to
 * do: db->history_turn_at is when; who writes lowers it.
 *
 * A table that somebody has locked, if only to read, is not waited for, but
 * tried again.  Meanwhile the current one grows, until all have reached the
 * limit; then nothing more is recorded, which the view status tells.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/block.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/predicate.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/inject.h"
#include "../ending/history.h"
#include "../rows/catalog.h"
#include "../shmem/progress.h"
#include "../shmem/shared.h"
#include "../task/my_session.h"
#include "history_tables.h"

/*
 * A table is locked, or an error struck: it is tried again after a pause that is
 * as long as this has lasted, within these limits
 */
#define RETRY_MIN_US	(20 * 1000)
#define RETRY_MAX_US	(10 * USECS_PER_SEC)
/* and from when on that is a problem */
#define PROBLEM_US		(5 * USECS_PER_MINUTE)

static int
next_table(int number)
{
	return (number + 1) % DW_HISTORY_TABLES;
}

/*---- The sweeper ----*/

/* What there is, as of one look. */
typedef struct Tables
{
	int			current;
	struct
	{
		BlockNumber pages;
		TimestampTz first;		/* its oldest row; now if none is visible */
	}			table[DW_HISTORY_TABLES];
	uint64		pages;			/* of all */
} Tables;

typedef enum Turn
{
	TURN_NOT_YET,
	TURN_DONE,					/* there may be more to do */
	TURN_LOCKED,
	TURN_GONE					/* there is no extension */
} Turn;

/* When the first row was written; nobody deletes rows in front of it. */
static TimestampTz
first_ended(Relation rel, TimestampTz now)
{
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	HeapTuple	tuple = systable_getnext(scan);
	TimestampTz first = now;
	bool		isnull;

	if (tuple != NULL)
		first = DatumGetTimestampTz(heap_getattr(tuple, Anum_history_ended,
												 RelationGetDescr(rel), &isnull));
	systable_endscan(scan);
	return first;
}

/* False if one of them is locked. */
static bool
read_tables(const DwCatalog *cat, TimestampTz now, Tables *tables)
{
	tables->pages = 0;
	for (int i = 0; i < DW_HISTORY_TABLES; i++)
	{
		Relation	rel;

		if (!ConditionalLockRelationOid(cat->history[i], AccessShareLock))
			return false;
		/* it may have been dropped just before */
		rel = try_table_open(cat->history[i], NoLock);
		if (rel == NULL)
			return false;
		tables->table[i].pages = RelationGetNumberOfBlocks(rel);
		tables->table[i].first = tables->table[i].pages > 0 ? first_ended(rel, now) : DW_NEVER;
		tables->pages += tables->table[i].pages;
		table_close(rel, NoLock);
	}
	tables->current = dw_history_read_current(cat->history_seq);
	return true;
}

/* How many pages the current table may have. */
static BlockNumber
room_of_current(const Tables *tables)
{
	uint64		others = tables->pages - tables->table[tables->current].pages;

	return others < dw_history_max_pages() ? dw_history_max_pages() - (BlockNumber) others : 1;
}

/* Those who write are to know. */
static void
publish(DwDatabase *db, const Tables *tables)
{
	BlockNumber left = room_of_current(tables);

	pg_atomic_write_u32(&db->history_current, tables->current + 1);
	pg_atomic_write_u32(&db->history_room, left);
	dw_history_set_full(db, tables->table[tables->current].pages >= left);
}

/* As TRUNCATE does, but for triggers, which would run as us, and publications. */
static bool
empty_table(Oid table)
{
	Relation	rel;
	Oid			toast;

	if (!ConditionalLockRelationOid(table, AccessExclusiveLock))
		return false;
	rel = table_open(table, NoLock);
	CheckTableNotInUse(rel, "TRUNCATE");
	CheckTableForSerializableConflictIn(rel);
	dw_new_storage(rel);
	toast = rel->rd_rel->reltoastrelid;
	if (OidIsValid(toast))
	{
		Relation	toast_rel = table_open(toast, AccessExclusiveLock);

		dw_new_storage(toast_rel);
		table_close(toast_rel, NoLock);
	}
	dw_reindex_table(table);
	pgstat_count_truncate(rel);
	table_close(rel, NoLock);
	return true;
}

/* What the transaction has emptied. */
static BlockNumber emptied = 0;

static Turn
empty_oldest(DwDatabase *db, const DwCatalog *cat, const Tables *tables, int number)
{
	dw_progress_begin(db, DW_WORK_HISTORY, DW_PHASE_EMPTYING);
	if (!empty_table(cat->history[number]))
		return TURN_LOCKED;
	emptied = tables->table[number].pages;
	return TURN_DONE;
}

/* Is the table, which is not the current one, to be emptied? */
static bool
has_expired(const Tables *tables, int number, TimestampTz now)
{
	return tables->table[number].pages > 0 &&
		(tables->pages > dw_history_max_pages() ||
		 dw_time_add(tables->table[number].first, dw_history_max_age_us()) <= now);
}

/* When something is to be done, if nothing more is written. */
static TimestampTz
next_time(const Tables *tables)
{
	TimestampTz next = DW_NEVER;

	for (int i = 0; i < DW_HISTORY_TABLES; i++)
	{
		int64		age = i == tables->current ? dw_history_turn_us() : dw_history_max_age_us();

		next = Min(next, dw_time_add(tables->table[i].first, age));
	}
	return next;
}

static Turn
look_at_tables(DwDatabase *db, TimestampTz *next)
{
	TimestampTz now = dw_now();
	Tables		tables;
	DwCatalog	cat;
	int			oldest;
	int			older;
	bool		turns;

	if (!dw_catalog_lookup(&cat))
		return TURN_GONE;
	if (!read_tables(&cat, now, &tables))
		return TURN_LOCKED;
	publish(db, &tables);

	oldest = next_table(tables.current);
	older = next_table(oldest);
	turns = tables.table[tables.current].pages >= dw_history_turn_pages(room_of_current(&tables)) ||
		dw_time_add(tables.table[tables.current].first, dw_history_turn_us()) <= now;
	if (has_expired(&tables, oldest, now) || (turns && tables.table[oldest].pages > 0))
		return empty_oldest(db, &cat, &tables, oldest);
	if (has_expired(&tables, older, now))
		return empty_oldest(db, &cat, &tables, older);
	if (turns)
	{
		(void) DirectFunctionCall2(setval_oid, ObjectIdGetDatum(cat.history_seq), Int64GetDatum(oldest));
		tables.current = oldest;
		publish(db, &tables);
		return TURN_DONE;
	}
	*next = next_time(&tables);
	return TURN_NOT_YET;
}

/* It could not be done; when to try again. */
static TimestampTz
put_turn_off(DwDatabase *db)
{
	TimestampTz now = dw_now();
	TimestampTz again;
	int64		lasts;

	if (db == NULL)
		return now + RETRY_MAX_US;
	dw_progress_begin(db, DW_WORK_HISTORY, DW_PHASE_WAITING);
	(void) dw_atomic_lower(&db->history_locked_since, now);
	lasts = now - dw_atomic_read(&db->history_locked_since);
	again = now + Min(Max(lasts, RETRY_MIN_US), RETRY_MAX_US);
	pg_atomic_write_u64(&db->history_turn_after, (uint64) again);
	if (lasts > PROBLEM_US)
		dw_problem(db, "cannot empty the oldest table of delay_wheel.history: other sessions have locked it");
	return again;
}

/*
 * Empties a table whose time has come, or goes on to the next one, in a
 * transaction of its own.  Sets *more if there is more to do at once; if not,
 * returns when there will be, as far as is known by now.
 */
TimestampTz
dw_history_turn(bool *more)
{
	MemoryContext context = CurrentMemoryContext;
	DwDatabase *volatile db = NULL;
	volatile Turn result = TURN_LOCKED;
	volatile TimestampTz next = DW_NEVER;

	*more = false;
	emptied = 0;
	PG_TRY();
	{
		TimestampTz at = DW_NEVER;
		Turn		turn = TURN_LOCKED;

		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		/* the server's default may be one that waits or fails */
		XactIsoLevel = XACT_READ_COMMITTED;
		PushActiveSnapshot(GetTransactionSnapshot());
		db = dw_my_database();
		if (db != NULL)
			turn = look_at_tables(db, &at);
		PopActiveSnapshot();
		DW_INJECT("history-before-commit");
		CommitTransactionCommand();
		DW_INJECT("history-after-commit");
		next = at;
		result = turn;
	}
	PG_CATCH();
	{
		result = TURN_LOCKED;
		dw_end_failed_transaction(context);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);

	if (result == TURN_LOCKED)
		return put_turn_off(db);
	if (result != TURN_GONE)
	{
		(void) dw_atomic_take(&db->history_locked_since);
		dw_progress_add(db, DW_WORK_HISTORY, emptied);
	}
	if (result == TURN_NOT_YET)
		dw_progress_end(db, DW_WORK_HISTORY);
	pgstat_report_stat(true);
	*more = result == TURN_DONE;
	return next;
}
