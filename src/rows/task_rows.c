/*-------------------------------------------------------------------------
 *
 * task_rows.c
 *	  Writing and finding rows of delay_wheel's tables.
 *
 * Run by sessions that schedule, by executors, the timer and the sweeper.  The tables are created
 * USING heap, so this code calls functions of heap directly, without SQL (see README.md).  It
 * ignores CHECK constraints and triggers, so callers check values themselves.
 *
 * The column "more" has options that few tasks have: a jsonb object with the keys of rows.h.  The
 * column of an ordinary task is null.  Its functions take the columns of a row of
 * delay_wheel_data.task or failed_task (values and nulls) and the number of the column in the row.
 * Plain SQL may have written any value into the column.  So a value of the wrong type counts as
 * missing, and raises no error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/executor.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "nodes/execnodes.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../base/compat.h"
#include "../base/errors.h"
#include "../shmem/groups.h"
#include "rows.h"

/* Bytes of the object in the column "more" that are reserved for keys, numbers and overhead */
#define SMALL_KEYS	4096

/* Limit for the elements of retry_on and of give_up_on. */
#define MAX_ERRORS		100

/*---- Inserting rows with their index entries ----*/

/*
 * Makes a tuple from the n columns of the extension.  Columns that an administrator has added to
 * the table are null.
 */
static HeapTuple
form_tuple(Relation rel, const Datum *values, const bool *nulls, int n)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Datum	   *all_values;
	bool	   *all_nulls;

	if (desc->natts == n)
		return heap_form_tuple(desc, (Datum *) values, (bool *) nulls);

	all_values = palloc0(desc->natts * sizeof(Datum));
	all_nulls = palloc(desc->natts * sizeof(bool));
	memset(all_nulls, true, desc->natts * sizeof(bool));
	memcpy(all_values, values, n * sizeof(Datum));
	memcpy(all_nulls, nulls, n * sizeof(bool));
	return heap_form_tuple(desc, all_values, all_nulls);
}

/* Adds an entry to an index of DwCatalog: a B-tree on plain columns of the table. */
static void
insert_into_known_index(Relation heap, Relation index, const Datum *values, const bool *nulls,
						Datum expression, ItemPointer tid)
{
	/* a B-tree does not read the members of this struct */
	static IndexInfo info = {.type = T_IndexInfo};
	const int16 *columns = index->rd_index->indkey.values;
	Datum		ivalues[INDEX_MAX_KEYS];
	bool		inulls[INDEX_MAX_KEYS];

	for (int i = 0; i < index->rd_index->indnatts; i++)
	{
		ivalues[i] = columns[i] == 0 ? expression : values[columns[i] - 1];
		inulls[i] = columns[i] != 0 && nulls[columns[i] - 1];
	}
	index_insert(index, ivalues, inulls, tid, heap,
				 index->rd_index->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO,
				 false, &info);
}

/*
 * Adds an entry to an index that an administrator has created.  The index may have expressions.
 * The expressions run with the rights of the table's owner, and their changes of settings are
 * undone, as in maintenance commands, since the current user may be a superuser.
 */
static void
insert_into_any_index(Relation heap, Relation index, HeapTuple tuple)
{
	Oid			userid;
	int			context;
	int			nest_level = NewGUCNestLevel();
	IndexInfo  *info;
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(heap), &TTSOpsHeapTuple);
	EState	   *estate = CreateExecutorState();
	Datum		values[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];

	GetUserIdAndSecContext(&userid, &context);
	SetUserIdAndSecContext(heap->rd_rel->relowner, context | SECURITY_RESTRICTED_OPERATION);
	info = BuildIndexInfo(index);
	ExecStoreHeapTuple(tuple, slot, false);
	GetPerTupleExprContext(estate)->ecxt_scantuple = slot;
	if (ExecQual(ExecPrepareQual(info->ii_Predicate, estate), GetPerTupleExprContext(estate)))
	{
		FormIndexDatum(info, slot, estate, values, nulls);
		index_insert(index, values, nulls, &tuple->t_self, heap,
					 info->ii_Unique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, false, info);
	}
	FreeExecutorState(estate);
	ExecDropSingleTupleTableSlot(slot);
	AtEOXact_GUC(false, nest_level);
	SetUserIdAndSecContext(userid, context);
}

/* The indexes of the table of tasks; the code need not read the conditions of partial indexes. */
#define TASK_INDEXES	8

typedef struct TaskIndex
{
	Oid			oid;
	LOCKMODE	lockmode;		/* lock mode for opening the index */
	bool		has_entries;	/* any of the new rows has an entry */
} TaskIndex;

/* A row that is inserted */
typedef struct NewRow
{
	Datum	   *values;
	bool	   *nulls;
	bool		has_entry[TASK_INDEXES];	/* has an entry in this index of the table of tasks */
	Datum		expression;		/* the value of an index's expression, if the index has one */
	HeapTuple	tuple;
} NewRow;

/* Returns true if the OID is in DwCatalog, whose indexes on other tables are not partial. */
static bool
is_in_catalog(const DwCatalog *cat, Oid oid)
{
	for (size_t i = offsetof(DwCatalog, task_pkey) / sizeof(Oid); i < sizeof(DwCatalog) / sizeof(Oid); i++)
		if (((const Oid *) cat)[i] == oid)
			return true;
	return false;
}

/*
 * Adds entries for n new rows to all indexes of a table, one index after the other: our indexes,
 * their transient copies while REINDEX CONCURRENTLY runs, and indexes of administrators.
 * ours: the TASK_INDEXES indexes of the table of tasks; NULL for another table.
 *
 * summarizing_only: adds entries only to summarizing indexes (BRIN), after an update that needs no
 * other new entries.
 */
static void
insert_into_indexes(Relation heap, const NewRow *rows, int n, const TaskIndex *ours,
					bool summarizing_only)
{
	const DwCatalog *cat = dw_catalog();
	List	   *indexes = RelationGetIndexList(heap);
	ListCell   *lc;

	foreach(lc, indexes)
	{
		const TaskIndex *task = NULL;
		bool		is_known;
		Relation	index;

		for (int i = 0; ours != NULL && i < TASK_INDEXES; i++)
			if (ours[i].oid == lfirst_oid(lc))
				task = &ours[i];
		if (task != NULL && !task->has_entries)
			continue;
		/* an index of ours that REINDEX CONCURRENTLY has swapped meanwhile is not known */
		is_known = ours != NULL ? task != NULL : is_in_catalog(cat, lfirst_oid(lc));
		index = index_open(lfirst_oid(lc), task != NULL ? task->lockmode : RowExclusiveLock);
		for (int i = 0; i < n; i++)
		{
			if (!index->rd_index->indisready ||
				(summarizing_only && !dw_index_is_summarizing(index)))
				break;
			if (task != NULL && !rows[i].has_entry[task - ours])
				continue;
			if (is_known)
				insert_into_known_index(heap, index, rows[i].values, rows[i].nulls,
										rows[i].expression, &rows[i].tuple->t_self);
			else
				insert_into_any_index(heap, index, rows[i].tuple);
		}
		index_close(index, NoLock);
	}
	list_free(indexes);
}

/*
 * Inserts n rows into a table, without index entries, and with one record of WAL for each page.
 * Sets the TIDs of the rows.
 */
static void
insert_tuples(Relation rel, NewRow *rows, int n, int options)
{
	TupleTableSlot **slots = palloc(n * sizeof(TupleTableSlot *));
	/* slots need not count how often they use the copy */
	TupleDesc	desc = CreateTupleDescCopy(RelationGetDescr(rel));

	for (int i = 0; i < n; i++)
	{
		slots[i] = MakeSingleTupleTableSlot(desc, &TTSOpsHeapTuple);
		/* the slot would copy a tuple that it must not free; slots are freed with the context */
		ExecStoreHeapTuple(rows[i].tuple, slots[i], true);
	}
	heap_multi_insert(rel, slots, n, GetCurrentCommandId(true), options, NULL);
	for (int i = 0; i < n; i++)
		rows[i].tuple->t_self = slots[i]->tts_tid;
}

/*
 * Inserts n rows with this number of columns, and their index entries, into an open table.  Sets
 * the tuples of the rows.  Only later commands of this transaction see the rows.  Allocates in the
 * current memory context.
 */
static void
insert_rows(Relation rel, NewRow *rows, int n, int columns, int options, const TaskIndex *ours)
{
	for (int i = 0; i < n; i++)
		rows[i].tuple = form_tuple(rel, rows[i].values, rows[i].nulls, columns);
	if (n == 1)
		heap_insert(rel, rows[0].tuple, GetCurrentCommandId(true), options, NULL);
	else
		insert_tuples(rel, rows, n, options);
	if (rel->rd_rel->relhasindex)
		insert_into_indexes(rel, rows, n, ours, false);
}

/*
 * Returns the hash of a group's key, never DW_NO_GROUP.  When plain SQL writes a row, PostgreSQL
 * generates the same value for the column group_hash.
 */
static uint32
group_hash(const text *group)
{
	uint32		hash = hash_bytes((const unsigned char *) VARDATA_ANY(group), VARSIZE_ANY_EXHDR(group));

	return hash == DW_NO_GROUP ? 1 : hash;
}

/*
 * Sets the hash of the row's group, and which indexes of the table of tasks have an entry for the
 * row, in the order of insert_tasks().
 */
static void
judge_row(NewRow *row)
{
	Datum	   *values = row->values;
	bool	   *nulls = row->nulls;
	bool		has_lease = !nulls[Anum_task_token - 1];
	bool		has_group = !nulls[Anum_task_group_key - 1];
	bool		has_more = !nulls[Anum_task_more - 1];
	int64		batch = 0;
	const bool	has_entry[TASK_INDEXES] = {
		true,
		true,
		!nulls[Anum_task_key - 1],
		has_lease,
		has_group,
		has_lease && has_group,
		has_more && dw_more_has(values, nulls, Anum_task_more, DW_MORE_LOCAL),
		has_more && dw_more_number(values, nulls, Anum_task_more, DW_MORE_BATCH_ID, &batch)
	};

	memcpy(row->has_entry, has_entry, sizeof(has_entry));
	row->expression = Int64GetDatum(batch);
	nulls[Anum_task_group_hash - 1] = !has_group;
	if (has_group)
		values[Anum_task_group_hash - 1] = UInt32GetDatum(group_hash(DatumGetTextPP(values[Anum_task_group_key - 1])));
}

/* Inserts n judged rows into delay_wheel_data.task (rel). */
static void
insert_tasks(Relation rel, NewRow *rows, int n)
{
	const DwCatalog *cat = dw_catalog();
	LOCKMODE	lockmode = dw_tables_being_written ? NoLock : RowExclusiveLock;
	TaskIndex	indexes[TASK_INDEXES] = {
		{cat->task_pkey, lockmode, false},
		{cat->task_lane_index, lockmode, false},
		{cat->task_key_index, RowExclusiveLock, false},
		{cat->task_lease_index, RowExclusiveLock, false},
		{cat->task_group_index, RowExclusiveLock, false},
		{cat->task_group_lease_index, RowExclusiveLock, false},
		{cat->task_local_index, RowExclusiveLock, false},
		{cat->task_batch_index, RowExclusiveLock, false}
	};

	for (int i = 0; i < n; i++)
		for (int k = 0; k < TASK_INDEXES; k++)
			indexes[k].has_entries |= rows[i].has_entry[k];
	insert_rows(rel, rows, n, Natts_task, 0, indexes);
	CommandCounterIncrement();
}

/*
 * Inserts a row into delay_wheel_data.task (rel).  Later commands of this transaction see the row.
 * Returns the row's TID.
 */
ItemPointerData
dw_task_insert(Relation rel, Datum *values, bool *nulls)
{
	NewRow		row = {.values = values, .nulls = nulls};
	ItemPointerData tid;

	judge_row(&row);
	insert_tasks(rel, &row, 1);
	tid = row.tuple->t_self;
	heap_freetuple(row.tuple);
	return tid;
}

/*
 * Inserts n rows into delay_wheel_data.task (rel), and sets their TIDs.  Later commands of this
 * transaction see the rows.  Allocates in the current memory context.
 */
void
dw_tasks_insert(Relation rel, DwTaskRow *tasks, int n)
{
	NewRow	   *rows = palloc0(n * sizeof(NewRow));

	for (int i = 0; i < n; i++)
	{
		rows[i].values = tasks[i].values;
		rows[i].nulls = tasks[i].nulls;
		judge_row(&rows[i]);
	}
	insert_tasks(rel, rows, n);
	for (int i = 0; i < n; i++)
		tasks[i].tid = rows[i].tuple->t_self;
}

/*
 * Inserts a list of at least one DwHistoryRow into a table of the history.  Returns the page of the
 * last row.  In this transaction only later commands see the rows.  Ignores free space in earlier
 * pages, since the newest rows must be in the last pages.
 */
BlockNumber
dw_history_insert(Relation rel, List *list)
{
	int			n = list_length(list);
	NewRow	   *rows = palloc0(n * sizeof(NewRow));

	for (int i = 0; i < n; i++)
	{
		DwHistoryRow *row = list_nth(list, i);

		rows[i].values = row->values;
		rows[i].nulls = row->nulls;
	}
	insert_rows(rel, rows, n, Natts_history, HEAP_INSERT_SKIP_FSM, NULL);
	return ItemPointerGetBlockNumber(&rows[n - 1].tuple->t_self);
}

/*---- Failed tasks ----*/

/* Deletes a row of failed_task, if the row exists.  Waits for a transaction that has locked it. */
void
dw_failed_delete(int64 id, TimestampTz failed_at)
{
	Relation	rel = table_open(dw_catalog()->failed, RowExclusiveLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], Anum_failed_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	ScanKeyInit(&keys[1], Anum_failed_failed_at, BTEqualStrategyNumber, F_TIMESTAMPTZ_EQ,
				TimestampTzGetDatum(failed_at));
	scan = systable_beginscan(rel, dw_catalog()->failed_pkey, true, NULL, 2, keys);
	tuple = systable_getnext(scan);
	if (tuple != NULL)
		(void) dw_heap_delete(rel, &tuple->t_self, true);
	systable_endscan(scan);
	table_close(rel, NoLock);
}

/* The columns that failed_task and delay_wheel_data.task have in common. */
static const AttrNumber failed_and_task[][2] = {
	{Anum_failed_id, Anum_task_id},
	{Anum_failed_due, Anum_task_due},
	{Anum_failed_origin, Anum_task_origin},
	{Anum_failed_owner, Anum_task_owner},
	{Anum_failed_queue, Anum_task_queue},
	{Anum_failed_priority, Anum_task_priority},
	{Anum_failed_max_attempts, Anum_task_max_attempts},
	{Anum_failed_timeout, Anum_task_timeout},
	{Anum_failed_retry_delay, Anum_task_retry_delay},
	{Anum_failed_expires, Anum_task_expires},
	{Anum_failed_sql, Anum_task_sql},
	{Anum_failed_args, Anum_task_args},
	{Anum_failed_arg_types, Anum_task_arg_types},
	{Anum_failed_search_path, Anum_task_search_path},
	{Anum_failed_key, Anum_task_key},
	{Anum_failed_tag, Anum_task_tag},
	{Anum_failed_more, Anum_task_more},
	{Anum_failed_payload, Anum_task_payload},
	{Anum_failed_group_key, Anum_task_group_key},
};

/* Returns the text as a Datum of type text, cut between two characters to at most max bytes. */
Datum
dw_clipped_text(const char *text, int length, int max)
{
	if (length > max)
		length = pg_mbcliplen(text, length, max);
	return PointerGetDatum(cstring_to_text_with_len(text, length));
}

/* Returns the message of an error, or a substitute if the error has no message. */
const char *
dw_error_message(const ErrorData *error)
{
	return error->message ? error->message : "missing error text";
}

static void
set_failed(Datum *values, bool *nulls, AttrNumber column, Datum value)
{
	values[column - 1] = value;
	nulls[column - 1] = false;
}

static void
set_failed_text(Datum *values, bool *nulls, AttrNumber column, const char *text)
{
	if (text != NULL)
		set_failed(values, nulls, column, dw_clipped_text(text, strlen(text), DW_MAX_ERROR_TEXT));
}

/*
 * Inserts a row into failed_task for a task that has failed for good after this number of attempts.
 * task and task_nulls are the columns of the task's row.  The number of crashes is in shared
 * memory.
 */
void
dw_failed_write(const Datum *task, const bool *task_nulls, int attempts,
				TimestampTz failed_at, const ErrorData *error)
{
	Datum		values[Natts_failed] = {0};
	bool		nulls[Natts_failed];
	int			crashed = dw_crashes_of(MyDatabaseId, DatumGetInt64(task[Anum_task_id - 1]));

	memset(nulls, true, sizeof(nulls));
	for (size_t i = 0; i < lengthof(failed_and_task); i++)
	{
		values[failed_and_task[i][0] - 1] = task[failed_and_task[i][1] - 1];
		nulls[failed_and_task[i][0] - 1] = task_nulls[failed_and_task[i][1] - 1];
	}
	/* for a leased message, the due time before the lease */
	if (!task_nulls[Anum_task_first_due - 1])
		values[Anum_failed_due - 1] = task[Anum_task_first_due - 1];
	set_failed(values, nulls, Anum_failed_failed_at, TimestampTzGetDatum(failed_at));
	set_failed(values, nulls, Anum_failed_attempts, Int16GetDatum(Min(attempts, PG_INT16_MAX)));
	if (crashed > 0)
		set_failed(values, nulls, Anum_failed_crashes, Int16GetDatum(crashed));
	set_failed_text(values, nulls, Anum_failed_sqlstate, unpack_sql_state(error->sqlerrcode));
	set_failed_text(values, nulls, Anum_failed_message, dw_error_message(error));
	set_failed_text(values, nulls, Anum_failed_detail, error->detail);
	set_failed_text(values, nulls, Anum_failed_hint, error->hint);
	set_failed_text(values, nulls, Anum_failed_context, error->context);
	dw_table_insert(dw_catalog()->failed, values, nulls, Natts_failed);
}

/*
 * Fills the columns of a row of delay_wheel_data.task from a row of failed_task; all other columns
 * become null.  The new task is not a run of a recurring task, has lost no connection, and has no
 * local due time.
 */
void
dw_task_from_failed(const Datum *failed, const bool *failed_nulls, Datum *values, bool *nulls)
{
	memset(values, 0, Natts_task * sizeof(Datum));
	memset(nulls, true, Natts_task * sizeof(bool));
	for (size_t i = 0; i < lengthof(failed_and_task); i++)
	{
		values[failed_and_task[i][1] - 1] = failed[failed_and_task[i][0] - 1];
		nulls[failed_and_task[i][1] - 1] = failed_nulls[failed_and_task[i][0] - 1];
	}
	dw_more_remove(values, nulls, Anum_task_more, DW_MORE_RECURRING);
	dw_more_remove(values, nulls, Anum_task_more, DW_MORE_LOCAL);
	dw_more_remove(values, nulls, Anum_task_more, DW_MORE_LOST);
	dw_more_remove(values, nulls, Anum_task_more, DW_MORE_NOT_BEFORE);
}

/*---- Tables that are seldom written ----*/

/* Opens a table, not the table of tasks, and inserts a row. */
void
dw_table_insert(Oid table, Datum *values, bool *nulls, int n)
{
	Relation	rel = table_open(table, RowExclusiveLock);
	NewRow		row = {.values = values, .nulls = nulls};

	insert_rows(rel, &row, 1, n, 0, NULL);
	heap_freetuple(row.tuple);
	CommandCounterIncrement();
	table_close(rel, NoLock);
}

/*
 * Returns true if an open transaction has written rows with this name into
 * delay_wheel_data.prepared.  Also returns true if the table, or its index, is locked, since the
 * lock may belong to a prepared transaction.  Does not wait.
 */
bool
dw_prepared_is_open(const char *gid)
{
	Relation	rel;
	SysScanDesc scan;
	ScanKeyData key;
	SnapshotData dirty;
	bool		open = false;

	if (!ConditionalLockRelationOid(dw_catalog()->prepared, AccessShareLock))
		return true;
	rel = table_open(dw_catalog()->prepared, NoLock);
	if (!ConditionalLockRelationOid(dw_catalog()->prepared_gid_index, AccessShareLock))
	{
		table_close(rel, AccessShareLock);
		return true;
	}
	InitDirtySnapshot(dirty);
	ScanKeyEntryInitialize(&key, 0, Anum_prepared_gid, BTEqualStrategyNumber, InvalidOid,
						   C_COLLATION_OID, F_TEXTEQ, CStringGetTextDatum(gid));
	scan = systable_beginscan(rel, dw_catalog()->prepared_gid_index, true, &dirty, 1, &key);
	while (!open && systable_getnext(scan) != NULL)
		open = TransactionIdIsValid(dirty.xmin);
	systable_endscan(scan);
	UnlockRelationOid(dw_catalog()->prepared_gid_index, AccessShareLock);
	table_close(rel, AccessShareLock);
	return open;
}

/*
 * Updates a row of delay_wheel_data.recurring_task, which this transaction has locked.  values and
 * nulls are all columns of the table, including columns that an administrator added.
 */
void
dw_recurring_update(Relation rel, ItemPointer tid, Datum *values, bool *nulls)
{
	NewRow		row = {.values = values, .nulls = nulls};
	TU_UpdateIndexes indexes;

	row.tuple = heap_form_tuple(RelationGetDescr(rel), values, nulls);
	if (dw_heap_update(rel, tid, row.tuple, &indexes) != TM_Ok)
		elog(ERROR, "could not update a recurring task that is locked");
	if (indexes != TU_None)
		insert_into_indexes(rel, &row, 1, NULL, indexes == TU_Summarizing);
	heap_freetuple(row.tuple);
	CommandCounterIncrement();
}

/* Returns true if a receiver has this message under a lease that has not ended. */
bool
dw_task_lease_lasts(const DwTaskKey *task)
{
	return task->is_leased && task->due > dw_now();
}

/* Sets to null the columns that only a leased message has. */
void
dw_row_end_lease(bool *nulls)
{
	nulls[Anum_task_token - 1] = nulls[Anum_task_first_due - 1] = nulls[Anum_task_leased_at - 1] = true;
}

/*---- Reading and finding rows ----*/

/* Returns one column of a row; 0 if it is null. */
Datum
dw_row_column(Relation rel, HeapTuple tuple, AttrNumber attnum)
{
	bool		isnull;

	return heap_getattr(tuple, attnum, RelationGetDescr(rel), &isnull);
}

/* Fills *key from a row of delay_wheel_data.task (rel). */
void
dw_task_key(Relation rel, HeapTuple tuple, DwTaskKey *key)
{
	key->id = DatumGetInt64(dw_row_column(rel, tuple, Anum_task_id));
	key->due = DatumGetTimestampTz(dw_row_column(rel, tuple, Anum_task_due));
	key->origin = DatumGetInt64(dw_row_column(rel, tuple, Anum_task_origin));
	key->owner = DatumGetObjectId(dw_row_column(rel, tuple, Anum_task_owner));
	key->queue = DatumGetInt16(dw_row_column(rel, tuple, Anum_task_queue));
	key->priority = DatumGetInt16(dw_row_column(rel, tuple, Anum_task_priority));
	key->attempts = DatumGetInt16(dw_row_column(rel, tuple, Anum_task_attempts));
	key->has_more = !heap_attisnull(tuple, Anum_task_more, RelationGetDescr(rel));
	key->is_message = heap_attisnull(tuple, Anum_task_sql, RelationGetDescr(rel));
	key->is_leased = !heap_attisnull(tuple, Anum_task_token, RelationGetDescr(rel));
	key->group = heap_attisnull(tuple, Anum_task_group_hash, RelationGetDescr(rel)) ? DW_NO_GROUP :
		DatumGetUInt32(dw_row_column(rel, tuple, Anum_task_group_hash));
	key->tid = tuple->t_self;
}

/*
 * Returns the earliest time of the next attempt, if the task of this row has failed; otherwise 0.
 * *key was read from the row.
 */
TimestampTz
dw_task_not_before(Relation rel, HeapTuple tuple, const DwTaskKey *key)
{
	int64		not_before = 0;

	if (key->has_more)
	{
		Datum	   *values;
		bool	   *nulls;

		dw_deform(rel, tuple, &values, &nulls);
		(void) dw_more_number(values, nulls, Anum_task_more, DW_MORE_NOT_BEFORE, &not_before);
	}
	return not_before;
}

/*
 * Returns a copy of the row with this key of a unique index, or NULL.  The caller has locked the
 * table.  If snapshot is NULL, returns the current row: systable_beginscan() takes a new snapshot,
 * since the table is no catalog.
 */
HeapTuple
dw_row_find(Relation rel, Oid index, ScanKey key, Snapshot snapshot)
{
	SysScanDesc scan = systable_beginscan(rel, index, true, snapshot, 1, key);
	HeapTuple	tuple = systable_getnext(scan);

	if (tuple != NULL)
		tuple = heap_copytuple(tuple);
	systable_endscan(scan);
	return tuple;
}

/* Calls dw_row_find() for a row of delay_wheel_data.task (rel). */
HeapTuple
dw_task_find(Relation rel, int64 id, Snapshot snapshot)
{
	ScanKeyData key;

	ScanKeyInit(&key, Anum_task_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	return dw_row_find(rel, dw_catalog()->task_pkey, &key, snapshot);
}

/*
 * Returns copies of a task's rows of failed_task (rel), in the order of their failures.  If
 * snapshot is NULL, returns the current rows.
 */
List *
dw_failed_rows(Relation rel, int64 id, Snapshot snapshot)
{
	Relation	index = index_open(dw_catalog()->failed_pkey, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	List	   *rows = NIL;

	ScanKeyInit(&key, Anum_failed_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	scan = systable_beginscan_ordered(rel, index, snapshot, 1, &key);
	while ((tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL)
		rows = lappend(rows, heap_copytuple(tuple));
	systable_endscan_ordered(scan);
	/* a session in delay_wait() must not keep locks on our tables */
	index_close(index, AccessShareLock);
	return rows;
}

/* Returns a text column of a row as a C string; NULL if it is null. */
char *
dw_row_text(Relation rel, HeapTuple tuple, AttrNumber column)
{
	bool		isnull;
	Datum		value = heap_getattr(tuple, column, RelationGetDescr(rel), &isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}

/*---- The column "more" ----*/

/*
 * Returns false if the column has no such key.  Most options are missing: a look for the key's first
 * two bytes is faster than a copy of the object.
 */
static bool
may_have_key(struct varlena *more, const char *key)
{
	const char *at = VARDATA_ANY(more);
	const char *last = at + VARSIZE_ANY_EXHDR(more) - 1;

	if (VARATT_IS_COMPRESSED(more) || VARATT_IS_EXTERNAL(more))
		return true;
	for (; at < last && (at = memchr(at, key[0], last - at)) != NULL; at++)
		if (at[1] == key[1])
			return true;
	return false;
}

/* Looks up a key; *value points into the column.  Returns false if key or column is missing. */
static bool
find_key(const Datum *values, const bool *nulls, int column, const char *key, JsonbValue *value)
{
	Jsonb	   *more;

	if (nulls[column - 1] || !may_have_key((struct varlena *) DatumGetPointer(values[column - 1]), key))
		return false;
	more = DatumGetJsonbP(values[column - 1]);
	return JB_ROOT_IS_OBJECT(more) &&
		getKeyJsonValueFromContainer(&more->root, key, strlen(key), value) != NULL;
}

/* Returns true if the row has the key, with a value of any type. */
bool
dw_more_has(const Datum *values, const bool *nulls, int column, const char *key)
{
	JsonbValue	value;

	return find_key(values, nulls, column, key, &value);
}

/* Returns a copy of a key's text in the current memory context; NULL if the key has no text. */
char *
dw_more_text(const Datum *values, const bool *nulls, int column, const char *key)
{
	JsonbValue	value;

	if (!find_key(values, nulls, column, key, &value) || value.type != jbvString)
		return NULL;
	return pnstrdup(value.val.string.val, value.val.string.len);
}

/* Sets *number to a key's integer.  Returns false if the key has no integer in the range. */
bool
dw_more_number(const Datum *values, const bool *nulls, int column, const char *key, int64 *number)
{
	JsonbValue	value;
	char	   *text;
	char	   *end;

	if (!find_key(values, nulls, column, key, &value) || value.type != jbvNumeric)
		return false;
	text = numeric_normalize(value.val.numeric);
	errno = 0;
	*number = strtoi64(text, &end, 10);
	return errno == 0 && *end == '\0';
}

/* Returns a copy of a key's object in the current memory context; NULL if the key has no object. */
Jsonb *
dw_more_object(const Datum *values, const bool *nulls, int column, const char *key)
{
	JsonbValue	value;
	Jsonb	   *object;

	if (!find_key(values, nulls, column, key, &value) || value.type != jbvBinary)
		return NULL;
	object = JsonbValueToJsonb(&value);
	return JB_ROOT_IS_OBJECT(object) ? object : NULL;
}

/* Sets a key of the row's column, in the current memory context. */
static void
set_option(Datum *values, bool *nulls, int column, const char *key, JsonbValue *value)
{
	JsonbInState state = {0};
	JsonbValue	name = {.type = jbvString};
	Datum		added;

	name.val.string.val = (char *) key;
	name.val.string.len = strlen(key);
	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	pushJsonbValue(&state, WJB_KEY, &name);
	pushJsonbValue(&state, WJB_VALUE, value);
	pushJsonbValue(&state, WJB_END_OBJECT, NULL);
	added = JsonbPGetDatum(JsonbValueToJsonb(state.result));
	if (!nulls[column - 1] && JB_ROOT_IS_OBJECT(DatumGetJsonbP(values[column - 1])))
		added = DirectFunctionCall2(jsonb_concat, values[column - 1], added);
	values[column - 1] = added;
	nulls[column - 1] = false;
}

/* Returns true if a text of this size can be added: jsonb limits the size of an object. */
bool
dw_more_has_room(const Datum *values, const bool *nulls, int column, Size bytes)
{
	return nulls[column - 1] ||
		toast_raw_datum_size(values[column - 1]) + bytes + SMALL_KEYS < JENTRY_OFFLENMASK;
}

/* Sets a key to a text.  The new column is allocated in the current memory context. */
void
dw_more_set_text(Datum *values, bool *nulls, int column, const char *key, const char *text)
{
	JsonbValue	value = {.type = jbvString};

	value.val.string.val = (char *) text;
	value.val.string.len = strlen(text);
	set_option(values, nulls, column, key, &value);
}

/* Sets a key to a number.  The new column is allocated in the current memory context. */
void
dw_more_set_number(Datum *values, bool *nulls, int column, const char *key, int64 number)
{
	JsonbValue	value = {.type = jbvNumeric};

	value.val.numeric = int64_to_numeric(number);
	set_option(values, nulls, column, key, &value);
}

/* Sets a key to an object.  The new column is allocated in the current memory context. */
void
dw_more_set_object(Datum *values, bool *nulls, int column, const char *key, Jsonb *object)
{
	JsonbValue	value;

	JsonbToJsonbValue(object, &value);
	set_option(values, nulls, column, key, &value);
}

/* Removes a key, if the column has the key.  The column becomes null if no key is left. */
void
dw_more_remove(Datum *values, bool *nulls, int column, const char *key)
{
	Jsonb	   *left;

	if (!dw_more_has(values, nulls, column, key))
		return;
	left = DatumGetJsonbP(DirectFunctionCall2(jsonb_delete, values[column - 1],
											  CStringGetTextDatum(key)));
	values[column - 1] = JsonbPGetDatum(left);
	nulls[column - 1] = JB_ROOT_COUNT(left) == 0;
}

/* Returns the mode with this name; DW_IN_TRANSACTION if no mode has this name. */
static DwMode
find_mode(const char *name)
{
	return strcmp(name, "at_most_once") == 0 ? DW_AT_MOST_ONCE :
		strcmp(name, "at_least_once") == 0 ? DW_AT_LEAST_ONCE : DW_IN_TRANSACTION;
}

/* Returns the mode of a task, by the columns of its row of delay_wheel_data.task. */
DwMode
dw_mode(const Datum *values, const bool *nulls)
{
	char	   *name = dw_more_text(values, nulls, Anum_task_more, DW_MORE_MODE);

	return name == NULL ? DW_IN_TRANSACTION : find_mode(name);
}

/* Returns the mode with the name that a user gave.  Raises an error if no mode has this name. */
DwMode
dw_mode_named(const char *name)
{
	DwMode		mode = find_mode(name);

	if (mode == DW_IN_TRANSACTION)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for mode: \"%s\"", name),
				 errhint("Use 'at_most_once' or 'at_least_once' for a statement that cannot run inside a transaction, and null for all other statements.")));
	return mode;
}

/*---- Options of further attempts, of tasks and queues ----*/

static const char *const backoff_names[] = {
	[DW_EXPONENTIAL] = "exponential",
	[DW_LINEAR] = "linear",
	[DW_FIXED] = "fixed"
};

/*
 * Returns the backoff of this name; the default if the name is NULL.  For an unknown name, raises
 * an error if "strict" is true, else returns the default.
 */
DwBackoff
dw_backoff_named(const char *name, bool strict)
{
	for (size_t i = 0; name != NULL && i < lengthof(backoff_names); i++)
		if (strcmp(backoff_names[i], name) == 0)
			return i;
	if (strict)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for retry_backoff: \"%s\"", name),
				 errhint("Use 'exponential', 'linear' or 'fixed'.")));
	return DW_EXPONENTIAL;
}

/* Returns true if the text is an SQLSTATE or the class of an SQLSTATE. */
static bool
is_error(const char *text)
{
	size_t		length = strspn(text, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ");

	return text[length] == '\0' && (length == DW_STATE_LENGTH || length == DW_CLASS_LENGTH);
}

/* Raises an error if the array is not a list of SQLSTATEs and classes. */
void
dw_errors_check(ArrayType *errors, const char *option)
{
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	deconstruct_array(errors, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	if (n > MAX_ERRORS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not have more than %d elements", option, MAX_ERRORS),
				 errhint("The first two characters, such as 08, stand for a whole class.")));
	for (int i = 0; i < n; i++)
	{
		char	   *error;

		dw_refuse_null(nulls[i], psprintf("SQLSTATE in %s", option));
		error = TextDatumGetCString(elements[i]);
		if (!is_error(error))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid SQLSTATE in %s: \"%s\"", option, error),
					 errhint("An SQLSTATE consists of five digits and upper-case letters, such as 40001. The first two characters, such as 40, are its class.")));
	}
}

/* Returns the elements of an array of texts, with commas between. */
char *
dw_errors_joined(ArrayType *errors)
{
	StringInfoData joined;
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	initStringInfo(&joined);
	deconstruct_array(errors, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	for (int i = 0; i < n; i++)
		if (!nulls[i])
			appendStringInfo(&joined, "%s%s", joined.len > 0 ? "," : "",
							 TextDatumGetCString(elements[i]));
	return joined.data;
}
