/*-------------------------------------------------------------------------
 *
 * history_tables.c
 *	  The tables of delay_wheel.history: choosing the current table, and removing old rows.  At the
 *	  end, the functions of the wing that the engine calls.
 *
 * Run by the sweeper.  README.md describes the three tables and the steps.
 *
 * When the current table has reached a quarter of delay_wheel.history_max_size, or is a third of
 * delay_wheel.history_max_age old, the oldest table is emptied and becomes current.  So a full
 * history has between a half and three quarters of the maximum size.  Rows are removed at an age
 * between two thirds of the maximum age and the full maximum age; with only two tables, at half the
 * maximum age.  Tables are also emptied if they have expired without new rows being written, or if
 * a limit was lowered.
 *
 * The sweeper does not poll: a step is due at the time of DW_JOB_HISTORY (news.c), and
 * sessions that write lower this time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "commands/tablecmds.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/predicate.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../base/compat.h"
#include "../base/inject.h"
#include "../base/worker.h"
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
typedef struct Step
{
	bool		done;			/* a step was done; the next step may be due */
	TimestampTz next;			/* if no step was done: when the next step is due */
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

	if (tuple != NULL)
		first = DatumGetTimestampTz(dw_row_column(rel, tuple, Anum_history_ended));
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
		Relation	rel = dw_open_if_free(cat->history[i]);

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

	dw_worker_activity(STATE_RUNNING, "delay_wheel: emptying the oldest table of the history");
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
 * Does a step, if a step is due, and publishes the state of the tables.  Returns false if a table
 * is locked.
 */
static bool
look_at_tables(DwDatabase *db, const DwCatalog *cat, Step *step)
{
	TimestampTz now = dw_now();
	Tables		tables;
	int			oldest;
	int			older;
	bool		turns;

	if (!read_tables(cat, now, &tables))
		return false;
	publish(db, &tables);

	oldest = (tables.current + 1) % DW_HISTORY_TABLES;
	older = (oldest + 1) % DW_HISTORY_TABLES;
	turns = tables.table[tables.current].pages >= dw_history_turn_pages(room_of_current(&tables)) ||
		dw_time_add(tables.table[tables.current].first, dw_history_turn_us()) <= now;
	step->done = true;
	if (has_expired(&tables, oldest, now) || (turns && tables.table[oldest].pages > 0))
		return empty_table(cat->history[oldest]);
	if (has_expired(&tables, older, now))
		return empty_table(cat->history[older]);
	if (turns)
	{
		(void) DirectFunctionCall2(setval_oid, ObjectIdGetDatum(cat->history_seq), Int64GetDatum(oldest));
		tables.current = oldest;
		publish(db, &tables);
		return true;
	}
	step->done = false;
	step->next = next_time(&tables);
	return true;
}

/* Does a step in the transaction of dw_slice_do(). */
static bool
do_step(DwDatabase *db, const DwCatalog *cat, void *state)
{
	bool		unlocked;

	PushActiveSnapshot(GetTransactionSnapshot());
	unlocked = look_at_tables(db, cat, state);
	PopActiveSnapshot();
	DW_INJECT("history-before-commit");
	return unlocked;
}

/*
 * Called if a step could not be done.  Returns the time of the next try, and reports a problem if
 * the obstacle has lasted for a long time.
 */
static TimestampTz
put_turn_off(DwDatabase *db)
{
	TimestampTz now = dw_now();
	int64		lasts = dw_history_locked_for(&db->sweeper_news, now);
	TimestampTz again = now + Min(Max(lasts, RETRY_MIN_US), RETRY_MAX_US);

	dw_job_put_off(&db->sweeper_news, DW_JOB_HISTORY, again);
	if (lasts > PROBLEM_US)
		dw_problem(&db->problem, "cannot empty the oldest table of delay_wheel.history: other sessions have locked it");
	return again;
}

/* The job: if a step is due, empties a table or turns to the next table.  See DwWingJob. */
static TimestampTz
turn_history(DwDatabase *db)
{
	Step		step = {.next = DW_NEVER};

	if (!dw_slice_do(db, do_step, &step))
		return put_turn_off(db);
	DW_INJECT("history-after-commit");
	dw_history_unlocked(&db->sweeper_news);
	pgstat_report_stat(true);
	return step.done ? PG_INT64_MIN : step.next;
}

/*---- The wing ----*/

/*
 * Asks the sweeper to check the tables of the history and of the audit if they may have rows.  Also
 * asks for the history if shared memory still names a current table.
 */
static void
doubt_history(DwDatabase *db, bool settings)
{
	dw_job_put_off(&db->sweeper_news, DW_JOB_AUDIT, PG_INT64_MIN);
	if (settings || dw_any_may_have_rows(offsetof(DwCatalog, audit), 1))
		dw_ask_sweeper(db, DW_JOB_AUDIT, dw_now());
	if (settings || dw_any_may_have_rows(offsetof(DwCatalog, history), DW_HISTORY_TABLES) ||
		dw_history_known_table(&db->sweeper_news) >= 0)
	{
		dw_job_put_off(&db->sweeper_news, DW_JOB_HISTORY, PG_INT64_MIN);
		dw_ask_sweeper(db, DW_JOB_HISTORY, dw_now());
	}
}

static const DwWingJob jobs[] = {
	{DW_JOB_HISTORY, turn_history},
	{DW_JOB_AUDIT, dw_audit_trim}
};

const DwWing dw_history_wing = {
	.task_ended = dw_history_record,
	.wants_end = dw_history_wants,
	.max_result = dw_history_max_result,
	.batch_begins = dw_history_collect,
	.batch_ends = dw_history_write_collected,
	.batch_undone = dw_history_forget,
	.may_remove = dw_history_may_record,
	.done = dw_audit_record,
	.jobs_in_doubt = doubt_history,
	.jobs = jobs,
	.njobs = lengthof(jobs)
};
