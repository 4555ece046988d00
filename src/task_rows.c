/*-------------------------------------------------------------------------
 *
 * task_rows.c
 *	  Rows of delay_wheel's tables, by the table access method.
 *
 * Run by backends that schedule, by the timer and by executors.  No SQL is
 * involved: scheduling is a hot path, and an executor, which has no rights
 * but its role's, must run nothing with more.  The tables are created USING
 * heap, so the heap's functions are called directly.
 *
 * OIDs of the tables are looked up by name and kept until the relation cache
 * reports a change.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/visibilitymap.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_control.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "common/hashfn.h"
#include "compat.h"
#include "crashes.h"
#include "errors.h"
#include "access/xlog.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "more.h"
#include "nodes/execnodes.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "task_rows.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

struct DwLaneScan
{
	Relation	rel;
	Relation	index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
	bool		keys_only;
	Buffer		map;			/* page of the visibility map, pinned */
	ScanKeyData keys[5];
	ScanKeyData members[6];
};

static DwCatalog catalog;
static bool catalog_valid = false;
static bool callback_registered = false;

/*
 * This transaction has locked the table of tasks, and the indexes that each
 * task is in, to write to them.  The lock manager knows, too, but a question
 * to it costs something for each row.
 */
static bool writing = false;

static bool
is_history(Oid relid)
{
	for (int i = 0; i < DW_HISTORY_TABLES; i++)
		if (relid == catalog.history[i])
			return true;
	return false;
}

static void
forget_catalog(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == catalog.task || relid == catalog.failed ||
		relid == catalog.prepared || relid == catalog.queue || relid == catalog.pause ||
		relid == catalog.cancellation || relid == catalog.recurring || is_history(relid))
		catalog_valid = writing = false;
}

static Oid
relation_named(Oid schema, const char *name)
{
	return get_relname_relid(name, schema);
}

/*
 * Looks the extension's relations up; false if the extension is not there.
 * Whoever may create a schema of our name cannot mislead us: the schema
 * belongs to the extension if the extension exists.
 */
bool
dw_catalog_lookup(DwCatalog *result)
{
	Oid			schema;

	if (!OidIsValid(get_extension_oid("delay_wheel", true)))
		return false;
	schema = get_namespace_oid("delay_wheel", true);
	if (!OidIsValid(schema))
		return false;

	result->task = relation_named(schema, "task");
	result->task_pkey = relation_named(schema, "task_pkey");
	result->task_lane_index = relation_named(schema, "task_lane_due_idx");
	result->task_key_index = relation_named(schema, "task_key_idx");
	result->task_id_seq = relation_named(schema, "task_id_seq");
	result->failed = relation_named(schema, "failed_task");
	result->failed_pkey = relation_named(schema, "failed_task_pkey");
	result->failed_at_index = relation_named(schema, "failed_task_failed_at_idx");
	result->prepared = relation_named(schema, "prepared");
	result->prepared_gid_index = relation_named(schema, "prepared_gid_idx");
	result->queue = relation_named(schema, "queue");
	result->queue_name_key = relation_named(schema, "queue_name_key");
	result->queue_id_seq = relation_named(schema, "queue_id_seq");
	result->pause = relation_named(schema, "pause");
	result->pause_pkey = relation_named(schema, "pause_pkey");
	result->cancellation = relation_named(schema, "cancellation");
	result->cancellation_pkey = relation_named(schema, "cancellation_pkey");
	result->history[0] = relation_named(schema, "history_0");
	result->history[1] = relation_named(schema, "history_1");
	result->history[2] = relation_named(schema, "history_2");
	result->history_seq = relation_named(schema, "history_seq");
	result->recurring = relation_named(schema, "recurring_task");
	result->recurring_pkey = relation_named(schema, "recurring_task_pkey");
	result->recurring_name_key = relation_named(schema, "recurring_task_name_key");
	return OidIsValid(result->task) && OidIsValid(result->task_pkey) &&
		OidIsValid(result->task_lane_index) && OidIsValid(result->task_key_index) &&
		OidIsValid(result->task_id_seq) && OidIsValid(result->failed) &&
		OidIsValid(result->failed_pkey) && OidIsValid(result->failed_at_index) &&
		OidIsValid(result->prepared) && OidIsValid(result->prepared_gid_index) &&
		OidIsValid(result->queue) && OidIsValid(result->queue_name_key) &&
		OidIsValid(result->queue_id_seq) && OidIsValid(result->pause) &&
		OidIsValid(result->pause_pkey) && OidIsValid(result->cancellation) &&
		OidIsValid(result->cancellation_pkey) && OidIsValid(result->history[0]) &&
		OidIsValid(result->history[1]) && OidIsValid(result->history[2]) &&
		OidIsValid(result->history_seq) && OidIsValid(result->recurring) &&
		OidIsValid(result->recurring_pkey) && OidIsValid(result->recurring_name_key);
}

bool
dw_may_have_rows(Oid table)
{
	Relation	rel;
	bool		may;

	if (!ConditionalLockRelationOid(table, AccessShareLock))
		return true;
	/* it may have been dropped just before */
	rel = try_table_open(table, NoLock);
	may = rel != NULL && RelationGetNumberOfBlocks(rel) > 0;
	if (rel != NULL)
		table_close(rel, NoLock);
	return may;
}

/*
 * Raises an error if a table has not the columns that we know it to have.  If
 * it is locked, it is being altered, of which we shall hear: the timer must
 * not wait.
 */
static void
check_columns(Oid table, const Oid *types, int n)
{
	Relation	rel;
	TupleDesc	desc;

	if (!ConditionalLockRelationOid(table, AccessShareLock))
		return;
	rel = table_open(table, NoLock);
	desc = RelationGetDescr(rel);
	for (int i = 0; i < n; i++)
		if (i >= desc->natts || TupleDescAttr(desc, i)->attisdropped ||
			TupleDescAttr(desc, i)->atttypid != types[i])
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("table \"%s.%s\" has been altered", "delay_wheel",
							RelationGetRelationName(rel)),
					 errdetail("Column %d is not as extension \"%s\" created it.", i + 1, "delay_wheel")));
	/* not kept: who drops the extension takes the tables in another order */
	table_close(rel, AccessShareLock);
}

static void
check_tables(const DwCatalog *cat)
{
	static const Oid task_types[Natts_task] = {
		INT8OID, TIMESTAMPTZOID, INT8OID, REGROLEOID, INT2OID, INT2OID,
		INT2OID, INT2OID, INT4OID, INT8OID, INTERVALOID, INTERVALOID,
		TEXTOID, TEXTARRAYOID, REGTYPEARRAYOID, TEXTOID, TEXTOID, TEXTOID, JSONBOID
	};
	static const Oid failed_types[Natts_failed] = {
		INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, REGROLEOID, INT2OID, INT2OID,
		INT2OID, INT2OID, INT2OID, INT4OID, INTERVALOID, INTERVALOID,
		TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID,
		TEXTOID, TEXTARRAYOID, REGTYPEARRAYOID, TEXTOID, TEXTOID, TEXTOID, JSONBOID
	};
	static const Oid prepared_types[Natts_prepared] = {
		TEXTOID, REGROLEOID, INT2OID, INT2OID, TIMESTAMPTZOID
	};
	static const Oid queue_types[Natts_queue] = {
		INT2OID, INT2OID, INT2OID, BOOLOID, BOOLOID, REGROLEOID, INT4OID, INT4OID, INT4OID,
		TEXTOID, REGROLEARRAYOID, INTERVALOID, INTERVALOID, TEXTOID, JSONBOID
	};
	static const Oid pause_types[Natts_pause] = {REGROLEOID, TIMESTAMPTZOID};
	static const Oid cancellation_types[Natts_cancellation] = {
		INT8OID, INT8OID, TIMESTAMPTZOID, REGROLEOID, REGROLEARRAYOID, INT2OID, TEXTOID,
		TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID
	};
	static const Oid history_types[Natts_history] = {
		INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, INT8OID, REGROLEOID,
		INT2OID, INT2OID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID
	};
	static const Oid recurring_types[Natts_recurring] = {
		INT8OID, INT8OID, TIMESTAMPTZOID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID,
		TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, INT8OID, INT8OID, INT8OID,
		REGROLEOID, INT4OID, INT2OID, INT2OID, INT2OID, BOOLOID, INTERVALOID, INTERVALOID,
		TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID,
		TEXTOID, TEXTARRAYOID, REGTYPEARRAYOID, TEXTOID, TEXTOID, JSONBOID
	};

	check_columns(cat->task, task_types, Natts_task);
	check_columns(cat->failed, failed_types, Natts_failed);
	check_columns(cat->prepared, prepared_types, Natts_prepared);
	check_columns(cat->queue, queue_types, Natts_queue);
	check_columns(cat->pause, pause_types, Natts_pause);
	check_columns(cat->cancellation, cancellation_types, Natts_cancellation);
	for (int i = 0; i < DW_HISTORY_TABLES; i++)
		check_columns(cat->history[i], history_types, Natts_history);
	check_columns(cat->recurring, recurring_types, Natts_recurring);
}

/* The OIDs of our relations; an error if the extension is not there. */
const DwCatalog *
dw_catalog(void)
{
	if (!callback_registered)
	{
		CacheRegisterRelcacheCallback(forget_catalog, (Datum) 0);
		callback_registered = true;
	}
	if (!catalog_valid)
	{
		if (!dw_catalog_lookup(&catalog))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("extension \"%s\" is not complete in this database", "delay_wheel"),
					 errhint("Use CREATE EXTENSION delay_wheel.")));
		/* before the check, whose locks may bring the news of another change */
		catalog_valid = true;
		PG_TRY();
		{
			check_tables(&catalog);
		}
		PG_CATCH();
		{
			catalog_valid = false;
			PG_RE_THROW();
		}
		PG_END_TRY();
	}
	return &catalog;
}

bool
dw_catalog_is_there(void)
{
	DwCatalog	found;

	return catalog_valid || dw_catalog_lookup(&found);
}

/* Identity of this database in this cluster; copies of rows are told by it. */
int64
dw_origin_stamp(void)
{
	static int64 stamp = 0;

	if (stamp == 0)
		stamp = (int64) hash_combine64(GetSystemIdentifier(),
									   hash_bytes_uint32_extended(MyDatabaseId, 0));
	return stamp;
}

/*
 * A tuple of the table's own width, from the columns that we know: somebody
 * may have added others, which stay null.
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

void
dw_deform(Relation rel, HeapTuple tuple, Datum **values, bool **nulls)
{
	TupleDesc	desc = RelationGetDescr(rel);

	*values = palloc(desc->natts * sizeof(Datum));
	*nulls = palloc(desc->natts * sizeof(bool));
	heap_deform_tuple(tuple, desc, *values, *nulls);
}

/* Adds one entry to an index of ours, whose columns are plain. */
static void
insert_into_known_index(Relation heap, Relation index, const AttrNumber *columns,
						const Datum *values, const bool *nulls, ItemPointer tid)
{
	/* a B-tree looks at nothing in there */
	static IndexInfo info = {.type = T_IndexInfo};
	Datum		ivalues[INDEX_MAX_KEYS];
	bool		inulls[INDEX_MAX_KEYS];

	for (int i = 0; columns[i] != 0; i++)
	{
		ivalues[i] = values[columns[i] - 1];
		inulls[i] = nulls[columns[i] - 1];
	}
	index_insert(index, ivalues, inulls, tid, heap,
				 index->rd_index->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO,
				 false, &info);
}

/*
 * The same for an index of somebody else, which may have expressions.  As in
 * maintenance, these have the rights of the table's owner, and set nothing for
 * who writes the row: workers are superusers.
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

/* An index that we know how to fill without looking at its definition. */
typedef struct KnownIndex
{
	Oid			oid;
	const AttrNumber *columns;	/* ends with 0; NULL: this row is not in it */
	LOCKMODE	lockmode;		/* to open it with */
} KnownIndex;

/*
 * Adds entries for a new row to all indexes of a table: ours, a second one of
 * each while REINDEX CONCURRENTLY runs, and what others have added.  For some
 * updates only those that do not point to single rows (BRIN).
 */
static void
insert_into_indexes(Relation heap, HeapTuple tuple, const Datum *values, const bool *nulls,
					const KnownIndex *known, int nknown, bool summarizing_only)
{
	List	   *indexes = RelationGetIndexList(heap);
	ListCell   *lc;

	foreach(lc, indexes)
	{
		const KnownIndex *k = NULL;
		Relation	index;

		for (int i = 0; i < nknown; i++)
			if (known[i].oid == lfirst_oid(lc))
				k = &known[i];
		if (k != NULL && k->columns == NULL)
			continue;
		index = index_open(lfirst_oid(lc), k != NULL ? k->lockmode : RowExclusiveLock);
		if (!index->rd_index->indisready ||
			(summarizing_only && !dw_index_is_summarizing(index)))
			;
		else if (k != NULL)
			insert_into_known_index(heap, index, k->columns, values, nulls, &tuple->t_self);
		else
			insert_into_any_index(heap, index, tuple);
		index_close(index, NoLock);
	}
	list_free(indexes);
}

void
dw_tasks_lock(void)
{
	if (writing)
		return;
	LockRelationOid(dw_catalog()->task, RowExclusiveLock);
	/* again, now that this lock keeps indexes from being exchanged */
	(void) dw_catalog();
	writing = catalog_valid;
	/* the news that come with these locks take it back */
	LockRelationOid(catalog.task_pkey, RowExclusiveLock);
	LockRelationOid(catalog.task_lane_index, RowExclusiveLock);
}

/* Opens the table of tasks to write to it; the lock is not to be released. */
Relation
dw_tasks_open(void)
{
	dw_tasks_lock();
	return table_open(dw_catalog()->task, writing ? NoLock : RowExclusiveLock);
}

void
dw_tasks_unlocked(void)
{
	writing = false;
}

/*
 * Inserts a task's row with all its index entries and makes it visible to
 * what follows in this transaction.  Returns where it is.
 */
ItemPointerData
dw_task_insert(Datum *values, bool *nulls)
{
	static const AttrNumber pkey_columns[] = {Anum_task_id, 0};
	static const AttrNumber lane_columns[] = {
		Anum_task_owner, Anum_task_origin, Anum_task_queue, Anum_task_priority,
		Anum_task_due, Anum_task_id, 0
	};
	static const AttrNumber key_columns[] = {
		Anum_task_owner, Anum_task_queue, Anum_task_key, 0
	};
	Relation	rel = dw_tasks_open();
	const DwCatalog *cat = dw_catalog();
	const KnownIndex known[] = {
		{cat->task_pkey, pkey_columns, writing ? NoLock : RowExclusiveLock},
		{cat->task_lane_index, lane_columns, writing ? NoLock : RowExclusiveLock},
		{cat->task_key_index, nulls[Anum_task_key - 1] ? NULL : key_columns, RowExclusiveLock},
	};
	HeapTuple	tuple = form_tuple(rel, values, nulls, Natts_task);
	ItemPointerData tid;

	heap_insert(rel, tuple, GetCurrentCommandId(true), 0, NULL);
	insert_into_indexes(rel, tuple, values, nulls, known, lengthof(known), false);
	tid = tuple->t_self;
	heap_freetuple(tuple);
	table_close(rel, NoLock);
	CommandCounterIncrement();
	return tid;
}

static void
insert_row(Relation rel, Datum *values, bool *nulls, int n, const KnownIndex *known, int nknown)
{
	HeapTuple	tuple = form_tuple(rel, values, nulls, n);

	heap_insert(rel, tuple, GetCurrentCommandId(true), 0, NULL);
	insert_into_indexes(rel, tuple, values, nulls, known, nknown, false);
	heap_freetuple(tuple);
	CommandCounterIncrement();
}

static void
insert_failed(Datum *values, bool *nulls)
{
	static const AttrNumber pkey_columns[] = {Anum_failed_id, Anum_failed_failed_at, 0};
	static const AttrNumber failed_at_columns[] = {Anum_failed_failed_at, Anum_failed_id, 0};
	Relation	rel = table_open(dw_catalog()->failed, RowExclusiveLock);
	const DwCatalog *cat = dw_catalog();
	const KnownIndex known[] = {
		{cat->failed_pkey, pkey_columns, RowExclusiveLock},
		{cat->failed_at_index, failed_at_columns, RowExclusiveLock},
	};

	insert_row(rel, values, nulls, Natts_failed, known, lengthof(known));
	table_close(rel, NoLock);
}

/*
 * All at once; nothing that follows in this command sees them.  Without a look for
 * free space: the newest rows are to be in the last pages.
 */
BlockNumber
dw_history_insert(Relation rel, List *rows)
{
	int			n = list_length(rows);
	TupleTableSlot **slots = palloc(n * sizeof(TupleTableSlot *));
	BlockNumber page;

	for (int i = 0; i < n; i++)
	{
		DwHistoryRow *row = list_nth(rows, i);

		slots[i] = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);
		ExecStoreHeapTuple(form_tuple(rel, row->values, row->nulls, Natts_history), slots[i], true);
	}
	heap_multi_insert(rel, slots, n, GetCurrentCommandId(true), HEAP_INSERT_SKIP_FSM, NULL);
	page = ItemPointerGetBlockNumber(&slots[n - 1]->tts_tid);
	for (int i = 0; i < n; i++)
	{
		DwHistoryRow *row = list_nth(rows, i);

		if (rel->rd_rel->relhasindex)
		{
			HeapTuple	tuple = ExecFetchSlotHeapTuple(slots[i], false, NULL);

			tuple->t_self = slots[i]->tts_tid;
			insert_into_indexes(rel, tuple, row->values, row->nulls, NULL, 0, false);
		}
		ExecDropSingleTupleTableSlot(slots[i]);
	}
	return page;
}

/* Deletes a row, if it is there, having waited for who has locked it. */
void
dw_failed_delete(int64 id, TimestampTz failed_at)
{
	Relation	rel = table_open(dw_catalog()->failed, RowExclusiveLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	TM_FailureData failure;

	ScanKeyInit(&keys[0], Anum_failed_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	ScanKeyInit(&keys[1], Anum_failed_failed_at, BTEqualStrategyNumber, F_TIMESTAMPTZ_EQ,
				TimestampTzGetDatum(failed_at));
	scan = systable_beginscan(rel, dw_catalog()->failed_pkey, true, snapshot, 2, keys);
	tuple = systable_getnext(scan);
	if (tuple != NULL)
		(void) heap_delete(rel, &tuple->t_self, GetCurrentCommandId(true),
						   InvalidSnapshot, true, &failure, false);
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, NoLock);
}

/* What a row of failed_task has in common with that of the task. */
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
};

Datum
dw_clipped_text(const char *text, int length, int max)
{
	if (length > max)
		length = pg_mbcliplen(text, length, max);
	return PointerGetDatum(cstring_to_text_with_len(text, length));
}

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
	set_failed(values, nulls, Anum_failed_failed_at, TimestampTzGetDatum(failed_at));
	set_failed(values, nulls, Anum_failed_attempts, Int16GetDatum(Min(attempts, PG_INT16_MAX)));
	if (crashed > 0)
		set_failed(values, nulls, Anum_failed_crashes, Int16GetDatum(crashed));
	set_failed_text(values, nulls, Anum_failed_sqlstate, unpack_sql_state(error->sqlerrcode));
	set_failed_text(values, nulls, Anum_failed_message, dw_error_message(error));
	set_failed_text(values, nulls, Anum_failed_detail, error->detail);
	set_failed_text(values, nulls, Anum_failed_hint, error->hint);
	set_failed_text(values, nulls, Anum_failed_context, error->context);
	insert_failed(values, nulls);
}

/* The way back; the rest is null.  A run of a recurring task is one no more. */
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
}

/* For tables that are not written often. */
static void
insert_into(Oid table, Datum *values, bool *nulls, int n)
{
	Relation	rel = table_open(table, RowExclusiveLock);

	insert_row(rel, values, nulls, n, NULL, 0);
	table_close(rel, NoLock);
}

void
dw_prepared_insert(Datum *values, bool *nulls)
{
	insert_into(dw_catalog()->prepared, values, nulls, Natts_prepared);
}

/*
 * Has anything been written under the name that has not ended?  So it may be if
 * that cannot be read: a prepared transaction may have locked the table, too.
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

void
dw_queue_insert(Datum *values, bool *nulls)
{
	insert_into(dw_catalog()->queue, values, nulls, Natts_queue);
}

void
dw_pause_insert(Datum *values, bool *nulls)
{
	insert_into(dw_catalog()->pause, values, nulls, Natts_pause);
}

void
dw_cancellation_insert(Datum *values, bool *nulls)
{
	insert_into(dw_catalog()->cancellation, values, nulls, Natts_cancellation);
}

void
dw_recurring_insert(Datum *values, bool *nulls)
{
	insert_into(dw_catalog()->recurring, values, nulls, Natts_recurring);
}

void
dw_recurring_update(Relation rel, ItemPointer tid, Datum *values, bool *nulls)
{
	HeapTuple	tuple = heap_form_tuple(RelationGetDescr(rel), values, nulls);
	DwIndexesToUpdate indexes;

	if (dw_heap_update(rel, tid, tuple, &indexes) != TM_Ok)
		elog(ERROR, "could not update a recurring task that is locked");
	if (indexes != DW_INDEXES_NONE)
		insert_into_indexes(rel, tuple, values, nulls, NULL, 0,
							indexes == DW_INDEXES_SUMMARIZING);
	heap_freetuple(tuple);
	CommandCounterIncrement();
}

static Datum
column(Relation rel, HeapTuple tuple, AttrNumber attnum, bool *isnull)
{
	return heap_getattr(tuple, attnum, RelationGetDescr(rel), isnull);
}

void
dw_task_key(Relation rel, HeapTuple tuple, DwTaskKey *key)
{
	bool		isnull;
	Datum		attempts;

	key->id = DatumGetInt64(column(rel, tuple, Anum_task_id, &isnull));
	key->due = DatumGetTimestampTz(column(rel, tuple, Anum_task_due, &isnull));
	key->origin = DatumGetInt64(column(rel, tuple, Anum_task_origin, &isnull));
	key->owner = DatumGetObjectId(column(rel, tuple, Anum_task_owner, &isnull));
	key->queue = DatumGetInt16(column(rel, tuple, Anum_task_queue, &isnull));
	key->priority = DatumGetInt16(column(rel, tuple, Anum_task_priority, &isnull));
	attempts = column(rel, tuple, Anum_task_attempts, &isnull);
	key->attempts = isnull ? 0 : DatumGetInt16(attempts);
	key->has_more = !heap_attisnull(tuple, Anum_task_more, RelationGetDescr(rel));
	key->tid = tuple->t_self;
}

/* A copy of the row that the unique index has for the key, as the snapshot sees it, or NULL. */
static HeapTuple
find_row(Relation rel, Oid index, ScanKey key, Snapshot snapshot)
{
	SysScanDesc scan = systable_beginscan(rel, index, true, snapshot, 1, key);
	HeapTuple	tuple = systable_getnext(scan);

	if (tuple != NULL)
		tuple = heap_copytuple(tuple);
	systable_endscan(scan);
	return tuple;
}

HeapTuple
dw_find_now(Relation rel, Oid index, ScanKey key)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	HeapTuple	tuple = find_row(rel, index, key, snapshot);

	UnregisterSnapshot(snapshot);
	return tuple;
}

/* A copy of the row with this id, as the snapshot sees it, or NULL. */
HeapTuple
dw_task_find(Relation rel, int64 id, Snapshot snapshot)
{
	ScanKeyData key;

	ScanKeyInit(&key, Anum_task_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	return find_row(rel, dw_catalog()->task_pkey, &key, snapshot);
}

/*
 * How many tasks a role has, those of open transactions and those that run
 * included, unarmed ones not, nor those that the function, if any, says no to;
 * counted up to a limit.
 */
int
dw_task_count(Oid owner, int limit, bool (*counts) (Relation, HeapTuple))
{
	Relation	rel = table_open(dw_catalog()->task, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	SnapshotData dirty;
	HeapTuple	tuple;
	int			n = 0;

	InitDirtySnapshot(dirty);
	ScanKeyInit(&keys[0], Anum_task_owner, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(owner));
	ScanKeyInit(&keys[1], Anum_task_origin, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(dw_origin_stamp()));
	scan = systable_beginscan(rel, dw_catalog()->task_lane_index, true, &dirty, 2, keys);
	while (n < limit && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		CHECK_FOR_INTERRUPTS();
		if (counts == NULL || counts(rel, tuple))
			n++;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return n;
}

/* Has the owner any tasks here?  Asks the index of lanes. */
bool
dw_task_of_owner(Relation rel, Oid index, Oid owner)
{
	ScanKeyData key;
	SysScanDesc scan;
	bool		found;

	ScanKeyInit(&key, Anum_task_owner, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(owner));
	scan = systable_beginscan(rel, index, true, NULL, 1, &key);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	return found;
}

/* One column of a row comparison. */
static void
init_row_member(ScanKey key, int flags, AttrNumber column, StrategyNumber strategy,
				RegProcedure compare, Datum value)
{
	ScanKeyEntryInitialize(key, SK_ROW_MEMBER | flags, column, strategy,
						   InvalidOid, InvalidOid, compare, value);
}

static void
init_row_header(ScanKey key, StrategyNumber strategy, ScanKey members)
{
	MemSet(key, 0, sizeof(ScanKeyData));
	key->sk_flags = SK_ROW_HEADER;
	key->sk_attno = members->sk_attno;
	key->sk_strategy = strategy;
	key->sk_argument = PointerGetDatum(members);
}

static DwLaneScan *
begin_scan(Relation rel, Snapshot snapshot, int nkeys)
{
	DwLaneScan *scan = palloc(sizeof(DwLaneScan));

	scan->rel = rel;
	scan->index = index_open(dw_catalog()->task_lane_index, AccessShareLock);
	scan->slot = table_slot_create(rel, NULL);
	scan->keys_only = false;
	scan->map = InvalidBuffer;
	scan->scan = dw_index_beginscan(rel, scan->index, snapshot, nkeys);
	/* so that we know where we are among dead entries, too */
	scan->scan->xs_want_itup = true;
	return scan;
}

/*
 * Begins to read the rows of one lane and one origin, from (due, id) on; a
 * row comparison, since a million tasks may have one due time.  The scan must
 * be ended in the transaction.
 */
DwLaneScan *
dw_lane_scan_begin(Relation rel, const DwTaskKey *from, Snapshot snapshot)
{
	DwLaneScan *scan = begin_scan(rel, snapshot, 5);

	ScanKeyInit(&scan->keys[0], 1, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(from->owner));
	ScanKeyInit(&scan->keys[1], 2, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(from->origin));
	ScanKeyInit(&scan->keys[2], 3, BTEqualStrategyNumber, F_INT2EQ,
				Int16GetDatum(from->queue));
	ScanKeyInit(&scan->keys[3], 4, BTEqualStrategyNumber, F_INT2EQ,
				Int16GetDatum(from->priority));
	init_row_member(&scan->members[0], 0, 5, BTGreaterEqualStrategyNumber,
					F_TIMESTAMPTZ_CMP, TimestampTzGetDatum(from->due));
	init_row_member(&scan->members[1], SK_ROW_END, 6, BTGreaterEqualStrategyNumber,
					F_BTINT8CMP, Int64GetDatum(from->id));
	init_row_header(&scan->keys[4], BTGreaterEqualStrategyNumber, scan->members);
	index_rescan(scan->scan, scan->keys, 5, NULL, 0);
	return scan;
}

/* The same for all lanes of all origins, from a key on. */
DwLaneScan *
dw_lanes_scan_begin(Relation rel, const DwTaskKey *from, Snapshot snapshot)
{
	DwLaneScan *scan = begin_scan(rel, snapshot, 1);

	dw_lanes_scan_seek(scan, from);
	return scan;
}

/* Goes on from another key. */
void
dw_lanes_scan_seek(DwLaneScan *scan, const DwTaskKey *from)
{
	const StrategyNumber strategy = BTGreaterEqualStrategyNumber;

	init_row_member(&scan->members[0], 0, 1, strategy, F_BTOIDCMP, ObjectIdGetDatum(from->owner));
	init_row_member(&scan->members[1], 0, 2, strategy, F_BTINT8CMP, Int64GetDatum(from->origin));
	init_row_member(&scan->members[2], 0, 3, strategy, F_BTINT2CMP, Int16GetDatum(from->queue));
	init_row_member(&scan->members[3], 0, 4, strategy, F_BTINT2CMP, Int16GetDatum(from->priority));
	init_row_member(&scan->members[4], 0, 5, strategy, F_TIMESTAMPTZ_CMP,
					TimestampTzGetDatum(from->due));
	init_row_member(&scan->members[5], SK_ROW_END, 6, strategy, F_BTINT8CMP,
					Int64GetDatum(from->id));
	init_row_header(&scan->keys[0], strategy, scan->members);
	index_rescan(scan->scan, scan->keys, 1, NULL, 0);
}

static Datum
entry_column(IndexScanDesc scan, int attnum)
{
	bool		isnull;

	return index_getattr(scan->xs_itup, attnum, scan->xs_itupdesc, &isnull);
}

/* What the index says of the row; attempts is not in it. */
static void
key_of_entry(IndexScanDesc scan, DwTaskKey *key)
{
	key->owner = DatumGetObjectId(entry_column(scan, 1));
	key->origin = DatumGetInt64(entry_column(scan, 2));
	key->queue = DatumGetInt16(entry_column(scan, 3));
	key->priority = DatumGetInt16(entry_column(scan, 4));
	key->due = DatumGetTimestampTz(entry_column(scan, 5));
	key->id = DatumGetInt64(entry_column(scan, 6));
	key->attempts = 0;
	key->has_more = false;
	key->tid = scan->xs_heaptid;
}

/*
 * The caller does not want the rows themselves: those that the visibility map
 * knows to be visible to everybody are not read.  Tasks lie in the table in
 * the order in which they were scheduled, so each would be another page.
 */
void
dw_lane_scan_keys_only(DwLaneScan *scan)
{
	scan->keys_only = true;
}

/*
 * The next entry of the index, whether the snapshot sees its row or not: there
 * can be a million dead ones in a row, among which the caller may want to
 * pause.  False at the end.
 */
bool
dw_lane_scan_step(DwLaneScan *scan, DwTaskKey *key, bool *visible)
{
	IndexScanDesc s = scan->scan;
	HeapTuple	tuple;
	bool		should_free;
	ItemPointer tid = index_getnext_tid(s, ForwardScanDirection);

	if (tid == NULL)
		return false;
	*visible = (scan->keys_only &&
				VM_ALL_VISIBLE(scan->rel, ItemPointerGetBlockNumber(tid), &scan->map)) ||
		index_fetch_heap(s, scan->slot);
	if (!*visible || scan->keys_only)
	{
		key_of_entry(s, key);
		return true;
	}
	tuple = ExecFetchSlotHeapTuple(scan->slot, false, &should_free);
	dw_task_key(scan->rel, tuple, key);
	key->tid = scan->slot->tts_tid;
	if (should_free)
		heap_freetuple(tuple);
	return true;
}

bool
dw_lane_scan_next(DwLaneScan *scan, DwTaskKey *key)
{
	bool		visible;

	while (dw_lane_scan_step(scan, key, &visible))
		if (visible)
			return true;
	return false;
}

/* A copy of the row that was just read. */
HeapTuple
dw_lane_scan_tuple(DwLaneScan *scan)
{
	return ExecCopySlotHeapTuple(scan->slot);
}

void
dw_lane_scan_end(DwLaneScan *scan)
{
	index_endscan(scan->scan);
	if (BufferIsValid(scan->map))
		ReleaseBuffer(scan->map);
	ExecDropSingleTupleTableSlot(scan->slot);
	index_close(scan->index, NoLock);
	pfree(scan);
}

struct DwFailedScan
{
	Relation	index;
	IndexScanDesc scan;
	ScanDirection direction;
	TupleTableSlot *slot;
	ScanKeyData key;
	ScanKeyData members[2];
};

/*
 * Begins to read failed tasks after, or if backwards before, a place; from
 * one of the ends if that is an infinite time.
 */
DwFailedScan *
dw_failed_scan_begin(Relation rel, ScanDirection direction, TimestampTz failed_at, int64 id,
					 Snapshot snapshot)
{
	DwFailedScan *scan = palloc(sizeof(DwFailedScan));
	StrategyNumber strategy = ScanDirectionIsForward(direction) ?
		BTGreaterStrategyNumber : BTLessStrategyNumber;

	scan->index = index_open(dw_catalog()->failed_at_index, AccessShareLock);
	scan->slot = table_slot_create(rel, NULL);
	scan->direction = direction;
	init_row_member(&scan->members[0], 0, 1, strategy, F_TIMESTAMPTZ_CMP,
					TimestampTzGetDatum(failed_at));
	init_row_member(&scan->members[1], SK_ROW_END, 2, strategy, F_BTINT8CMP, Int64GetDatum(id));
	init_row_header(&scan->key, strategy, scan->members);
	scan->scan = dw_index_beginscan(rel, scan->index, snapshot, 1);
	index_rescan(scan->scan, &scan->key, 1, NULL, 0);
	return scan;
}

/* The next row, valid until the one after it is read, or NULL. */
HeapTuple
dw_failed_scan_next(DwFailedScan *scan, TimestampTz *failed_at, int64 *id)
{
	HeapTuple	tuple;
	bool		isnull;

	if (!index_getnext_slot(scan->scan, scan->direction, scan->slot))
		return NULL;
	tuple = ExecFetchSlotHeapTuple(scan->slot, false, NULL);
	*failed_at = DatumGetTimestampTz(column(scan->scan->heapRelation, tuple,
											Anum_failed_failed_at, &isnull));
	*id = DatumGetInt64(column(scan->scan->heapRelation, tuple, Anum_failed_id, &isnull));
	return tuple;
}

void
dw_failed_scan_end(DwFailedScan *scan)
{
	index_endscan(scan->scan);
	ExecDropSingleTupleTableSlot(scan->slot);
	index_close(scan->index, NoLock);
	pfree(scan);
}

/*
 * Steps through the distinct lanes and origins of the table by a skip scan:
 * the first, or the one after *key, which becomes the key of its first row.
 * False at the end.
 */
bool
dw_next_lane(Relation rel, Snapshot snapshot, DwTaskKey *key, bool first)
{
	Relation	index = index_open(dw_catalog()->task_lane_index, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	IndexScanDesc scan;
	ScanKeyData header;
	ScanKeyData members[4];
	bool		found;

	init_row_member(&members[0], 0, 1, BTGreaterStrategyNumber,
					F_BTOIDCMP, ObjectIdGetDatum(key->owner));
	init_row_member(&members[1], 0, 2, BTGreaterStrategyNumber,
					F_BTINT8CMP, Int64GetDatum(key->origin));
	init_row_member(&members[2], 0, 3, BTGreaterStrategyNumber,
					F_BTINT2CMP, Int16GetDatum(key->queue));
	init_row_member(&members[3], SK_ROW_END, 4, BTGreaterStrategyNumber,
					F_BTINT2CMP, Int16GetDatum(key->priority));
	init_row_header(&header, BTGreaterStrategyNumber, members);

	scan = dw_index_beginscan(rel, index, snapshot, first ? 0 : 1);
	index_rescan(scan, &header, first ? 0 : 1, NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, slot);
	if (found)
	{
		bool		should_free;
		HeapTuple	tuple = ExecFetchSlotHeapTuple(slot, false, &should_free);

		dw_task_key(rel, tuple, key);
		if (should_free)
			heap_freetuple(tuple);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, NoLock);
	return found;
}
