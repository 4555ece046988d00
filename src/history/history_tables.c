/*-------------------------------------------------------------------------
 *
 * history_tables.c
 *	  The tables of delay_wheel.history: choosing the current table, and removing old rows.
 *
 * Run by the sweeper.  There are three tables, which are written in turn.  So old rows are removed
 * by truncation, without a scan, dead rows, or work for vacuum.  The sequence history_seq has the
 * number of the current table, which is written now.  Shared memory also has this number after a
 * sweeper has read it.  A session that has read the old number may still write to the previous
 * table.  This is harmless, since the previous table is the last table to be emptied.
 *
 * When the current table has reached a quarter of delay_wheel.history_max_size, or is a third of
 * delay_wheel.history_max_age old, the next table becomes current.  The next table is the oldest
 * table, and is emptied first.  So a full history has between a half and three quarters of the
 * maximum size.  Rows are removed at an age between two thirds of the maximum age and the full
 * maximum age.  Tables are also emptied if they have expired without new rows being written, or if
 * a limit was lowered.
 *
 * The sweeper does one step at a time, a truncation or a turn to the next table, each in a separate
 * transaction.  The tables show which step is due, so nothing must be cleaned up after a crash
 * between two steps.  The sweeper does not poll: a step is due at the time of DW_JOB_HISTORY
 * (news.c), and sessions that write lower this time.
 *
 * On servers that run many tasks, deleting single rows would cost as much as writing them, and
 * would leave a bloated table.  With only two tables, rows would be removed at half the maximum
 * age.
 *
 * If another session has locked a table, even for reading, the sweeper does not wait but tries
 * again later.  Meanwhile the current table grows, until the three tables have reached the maximum
 * size.  Then no more history is recorded, which the view "status" shows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "commands/tablecmds.h"
#include "pgstat.h"
#include "storage/block.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/predicate.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/inject.h"
#include "../base/worker.h"
#include "../rows/catalog.h"
#include "../shmem/shared.h"
#include "../sweeper/sweeper.h"
#include "history.h"

/*
 * Minimum and maximum pause before the next try, in microseconds, if a table is locked or after an
 * error.  Within these limits, the pause is as long as the obstacle has lasted.
 */
#define RETRY_MIN_US	(20 * 1000)
#define RETRY_MAX_US	(10 * USECS_PER_SEC)
/* Time in microseconds after which an obstacle is reported as a problem. */
#define PROBLEM_US		(5 * USECS_PER_MINUTE)

/* Returns the number of the table that is written after this table. */
static int
next_table(int number)
{
	return (number + 1) % DW_HISTORY_TABLES;
}

/* The state of the tables, read by one transaction. */
typedef struct Tables
{
	int			current;		/* number of the table that is written, from 0 */
	struct
	{
		BlockNumber pages;
		TimestampTz first;		/* "ended" of its first row; now if no row is visible; DW_NEVER if
								 * the table has no pages */
	}			table[DW_HISTORY_TABLES];
	uint64		pages;			/* total of the three tables */
} Tables;

/* The result of a step. */
typedef enum Turn
{
	TURN_NOT_YET,				/* no step is due */
	TURN_DONE,					/* a step was done; the next step may be due */
	TURN_LOCKED,				/* a table is locked */
	TURN_GONE					/* the extension does not exist */
} Turn;

typedef struct Step
{
	Turn		turn;
	TimestampTz next;			/* for TURN_NOT_YET: when the next step is due */
} Step;

/*
 * Returns "ended" of the table's first row, or "now" if no row is visible.  The first row is the
 * oldest row, since only truncation removes rows.
 */
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

/* Reads the state of the tables; returns false if a table is locked or was just dropped. */
static bool
read_tables(const DwCatalog *cat, TimestampTz now, Tables *tables)
{
	tables->pages = 0;
	for (int i = 0; i < DW_HISTORY_TABLES; i++)
	{
		Relation	rel;

		if (!ConditionalLockRelationOid(cat->history[i], AccessShareLock))
			return false;
		/* the table may have been dropped before we had the lock */
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

/* Returns the maximum number of pages of the current table, by the maximum size of all tables. */
static BlockNumber
room_of_current(const Tables *tables)
{
	uint64		others = tables->pages - tables->table[tables->current].pages;

	return others < dw_history_max_pages() ? dw_history_max_pages() - (BlockNumber) others : 1;
}

/* Publishes the current table, and its maximum size, for sessions that write. */
static void
publish(DwDatabase *db, const Tables *tables)
{
	BlockNumber left = room_of_current(tables);

	dw_history_publish(&db->sweeper_news, tables->current, left);
	dw_history_set_full(db, tables->table[tables->current].pages >= left);
}

/*
 * Empties the table as TRUNCATE does, but fires no triggers, which would run as the bootstrap
 * superuser, and writes no record for logical replication.  Returns false if the table is locked.
 */
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

/* Empties the table with this number.  Returns TURN_DONE or TURN_LOCKED. */
static Turn
empty_oldest(const DwCatalog *cat, int number)
{
	dw_worker_activity(STATE_RUNNING, "delay_wheel: emptying the oldest table of the history");
	if (!empty_table(cat->history[number]))
		return TURN_LOCKED;
	return TURN_DONE;
}

/*
 * Returns true if the table, which is not the current table, must be emptied: it is too old, or the
 * three tables are too large.
 */
static bool
has_expired(const Tables *tables, int number, TimestampTz now)
{
	return tables->table[number].pages > 0 &&
		(tables->pages > dw_history_max_pages() ||
		 dw_time_add(tables->table[number].first, dw_history_max_age_us()) <= now);
}

/* Returns the time at which the next step is due by age, if nothing more is written. */
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

/*
 * Does a step, if a step is due, and publishes the state of the tables.  For TURN_NOT_YET, sets
 * *next to the time of the next step.
 */
static Turn
look_at_tables(DwDatabase *db, const DwCatalog *cat, TimestampTz *next)
{
	TimestampTz now = dw_now();
	Tables		tables;
	int			oldest;
	int			older;
	bool		turns;

	if (!read_tables(cat, now, &tables))
		return TURN_LOCKED;
	publish(db, &tables);

	oldest = next_table(tables.current);
	older = next_table(oldest);
	turns = tables.table[tables.current].pages >= dw_history_turn_pages(room_of_current(&tables)) ||
		dw_time_add(tables.table[tables.current].first, dw_history_turn_us()) <= now;
	if (has_expired(&tables, oldest, now) || (turns && tables.table[oldest].pages > 0))
		return empty_oldest(cat, oldest);
	if (has_expired(&tables, older, now))
		return empty_oldest(cat, older);
	if (turns)
	{
		(void) DirectFunctionCall2(setval_oid, ObjectIdGetDatum(cat->history_seq), Int64GetDatum(oldest));
		tables.current = oldest;
		publish(db, &tables);
		return TURN_DONE;
	}
	*next = next_time(&tables);
	return TURN_NOT_YET;
}

/* Does a step in the transaction of dw_slice_do(). */
static bool
do_step(DwDatabase *db, const DwCatalog *cat, void *state)
{
	Step	   *step = state;

	PushActiveSnapshot(GetTransactionSnapshot());
	step->turn = look_at_tables(db, cat, &step->next);
	PopActiveSnapshot();
	DW_INJECT("history-before-commit");
	return step->turn != TURN_LOCKED;
}

/*
 * Called if a step could not be done.  Returns the time of the next try, and reports a problem if
 * the obstacle has lasted for a long time.
 */
static TimestampTz
put_turn_off(DwDatabase *db)
{
	TimestampTz now = dw_now();
	TimestampTz again;
	int64		lasts;

	lasts = dw_history_locked_for(&db->sweeper_news, now);
	again = now + Min(Max(lasts, RETRY_MIN_US), RETRY_MAX_US);
	dw_job_put_off(&db->sweeper_news, DW_JOB_HISTORY, again);
	if (lasts > PROBLEM_US)
		dw_problem(&db->problem, "cannot empty the oldest table of delay_wheel.history: other sessions have locked it");
	return again;
}

/*
 * If a step is due, empties a table or turns to the next table, in a separate transaction.  Sets
 * *more to true if the caller must call again at once.  Otherwise returns the probable time of the
 * next call; DW_NEVER if nothing must be removed.
 */
TimestampTz
dw_history_turn(DwDatabase *db, bool *more)
{
	Step		step = {.turn = TURN_GONE, .next = DW_NEVER};

	*more = false;
	if (!dw_slice_do(db, do_step, &step))
		return put_turn_off(db);
	DW_INJECT("history-after-commit");
	if (step.turn != TURN_GONE)
		dw_history_unlocked(&db->sweeper_news);
	pgstat_report_stat(true);
	*more = step.turn == TURN_DONE;
	return step.next;
}
