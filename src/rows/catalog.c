/*-------------------------------------------------------------------------
 *
 * catalog.c
 *	  The extension's tables: their OIDs, and transactions that only read them.
 *
 * Run by all processes that are connected to a database.  The OIDs are looked up once and forgotten
 * when PostgreSQL invalidates them.  Timer and sweeper read tables in transactions that wait for no
 * lock: dw_read_begin() returns NULL if the table is locked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "common/hashfn.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../base/compat.h"
#include "../base/inject.h"
#include "rows.h"

/* Minimum interval between log messages about the same error of a read transaction, in us. */
#define EPISODE_US		(10 * USECS_PER_SEC)

bool		dw_extension_gone = false;
bool		dw_tables_being_written = false;

/* The OIDs that dw_catalog() has found last.  Valid only while catalog_valid is true. */
static DwCatalog known_catalog;
static bool catalog_valid = false;
static bool callback_registered = false;

/*---- Transactions that only read ----*/

/*
 * Begins a transaction of the timer or the sweeper, with an active snapshot (step L4 of loading).
 * Returns the open table of tasks.  Waits for no lock: if another process has locked the table,
 * returns NULL without a snapshot.  If the extension is gone, also sets dw_extension_gone.  The
 * caller always ends the transaction by dw_read_end().
 */
Relation
dw_read_begin(void)
{
	DwCatalog	cat;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	/* default_transaction_isolation may be a level at which reading waits or fails */
	XactIsoLevel = XACT_READ_COMMITTED;
	if (!dw_catalog_lookup(&cat))
	{
		dw_extension_gone = true;
		return NULL;
	}
	if (!ConditionalLockRelationOid(cat.task, AccessShareLock))
		return NULL;
	/* the snapshot must be newer than the lock, and than invalidations that came with the lock */
	DW_INJECT("load-before-snapshot");
	PushActiveSnapshot(GetTransactionSnapshot());
	return table_open(dw_catalog()->task, NoLock);
}

/* Replaces the active snapshot by a new snapshot, in a transaction at READ COMMITTED. */
void
dw_renew_snapshot(void)
{
	PopActiveSnapshot();
	PushActiveSnapshot(GetTransactionSnapshot());
}

/*
 * Locks another table for reading, in a transaction of dw_read_begin(), and renews the snapshot.
 * Waits for no lock: returns false if another process has locked the table.
 */
bool
dw_read_also(Oid table)
{
	if (!ConditionalLockRelationOid(table, AccessShareLock))
		return false;
	dw_renew_snapshot();
	return true;
}

/* Commits the transaction of dw_read_begin().  rel is the result of dw_read_begin() or NULL. */
void
dw_read_end(Relation rel)
{
	if (rel != NULL)
	{
		table_close(rel, NoLock);
		PopActiveSnapshot();
	}
	CommitTransactionCommand();
}

/*
 * For PG_CATCH: reports the caught error, aborts the transaction, and switches to this memory
 * context of the caller.
 */
void
dw_end_failed_transaction(MemoryContext context)
{
	HOLD_INTERRUPTS();
	EmitErrorReport();
	FlushErrorState();
	AbortCurrentTransaction();
	MemoryContextSwitchTo(context);
	RESUME_INTERRUPTS();
}

/*
 * For PG_CATCH: aborts the transaction and reports the error, but the same error at most once in
 * EPISODE_US.
 */
static void
read_failed(DwDatabase *database, const char *what)
{
	static int	last_sqlstate = 0;
	static TimestampTz last_at = 0;
	MemoryContext context = MemoryContextSwitchTo(TopMemoryContext);
	ErrorData  *error = CopyErrorData();

	HOLD_INTERRUPTS();
	if (error->sqlerrcode != last_sqlstate || dw_now() - last_at > EPISODE_US)
		EmitErrorReport();
	last_sqlstate = error->sqlerrcode;
	last_at = dw_now();
	FlushErrorState();
	AbortCurrentTransaction();
	RESUME_INTERRUPTS();
	dw_problem_quoting(&database->problem, psprintf("could not %s: %s", what, error->message),
					   error->message);
	FreeErrorData(error);
	MemoryContextSwitchTo(context);
}

/*
 * Calls work() in a transaction of dw_read_begin().  what: the work, which the view "status" shows
 * after "could not" if an error is raised.
 */
DwRead
dw_read(DwDatabase *database, const char *what, DwReadWork work, void *arg)
{
	volatile DwRead result = DW_READ_LOCKED;

	PG_TRY();
	{
		Relation	tasks = dw_read_begin();

		if (tasks != NULL && work(tasks, arg))
			result = DW_READ_DONE;
		dw_read_end(tasks);
	}
	PG_CATCH();
	{
		result = DW_READ_FAILED;
		read_failed(database, what);
	}
	PG_END_TRY();
	return result;
}

/* Returns true if the active snapshot sees the role.  The caller has locked pg_authid. */
bool
dw_role_exists(Oid role)
{
	Relation	rel = table_open(AuthIdRelationId, NoLock);
	ScanKeyData key;
	SysScanDesc scan;
	bool		exists;

	ScanKeyInit(&key, Anum_pg_authid_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(role));
	scan = systable_beginscan(rel, AuthIdOidIndexId, true, GetActiveSnapshot(), 1, &key);
	exists = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(rel, NoLock);
	return exists;
}

/*
 * Raises an error if this process cannot write: on a standby, in a read-only transaction, in a
 * parallel worker, or in a security-restricted operation.  Also raises an error if the library is
 * not in shared_preload_libraries.  function: the function's name for messages.
 */
void
dw_require_writable(const char *function)
{
	dw_require_shared();
	PreventCommandDuringRecovery(function);
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	if (InSecurityRestrictedOperation())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot execute %s within security-restricted operation", function)));
}

/*---- OIDs of tables ----*/

#define TABLE_NAME(table, name, columns) name,
#define INDEX_NAME(index, name) name,

/* The names of the relations in the schema delay_wheel_data, in the order of DwCatalog. */
static const char *const names[] = {
	DW_TABLES(TABLE_NAME) "history_0", "history_1", "history_2", DW_INDEXES(INDEX_NAME)
};

StaticAssertDecl(sizeof(DwCatalog) == lengthof(names) * sizeof(Oid), "a relation has no name");

/* Relcache callback: forgets the OIDs after a change of one of the tables, or of all relations. */
static void
forget_catalog(Datum arg, Oid relid)
{
	bool		ours = relid == InvalidOid;

	/* the tables come first */
	for (size_t i = 0; i < offsetof(DwCatalog, task_pkey) / sizeof(Oid) && !ours; i++)
		ours = relid == ((const Oid *) &known_catalog)[i];
	if (ours)
		catalog_valid = dw_tables_being_written = false;
}

/*
 * Looks up the extension's relations by name.  Returns false if the extension, or a relation, is
 * missing.  If the extension exists, the schema delay_wheel_data belongs to the extension.
 */
bool
dw_catalog_lookup(DwCatalog *result)
{
	Oid			schema;

	if (!OidIsValid(get_extension_oid("delay_wheel", true)))
		return false;
	schema = get_namespace_oid("delay_wheel_data", true);
	if (!OidIsValid(schema))
		return false;

	for (int i = 0; i < lengthof(names); i++)
	{
		Oid			oid = get_relname_relid(names[i], schema);

		if (!OidIsValid(oid))
			return false;
		((Oid *) result)[i] = oid;
	}
	return true;
}

/*
 * Opens a table or an index for reading.  Waits for no lock: returns NULL if another process has
 * locked the relation, or has just dropped it.
 */
Relation
dw_open_if_free(Oid oid)
{
	return ConditionalLockRelationOid(oid, AccessShareLock) ? try_relation_open(oid, NoLock) : NULL;
}

/*
 * Returns true if the size of one of n tables or indexes shows that it may have rows, or if it is
 * locked (this function does not wait).  The OIDs begin at this offset in DwCatalog.  To be called
 * outside of a transaction.
 */
bool
dw_any_may_have_rows(size_t offset, int n)
{
	DwCatalog	cat;
	const Oid  *relids = (Oid *) ((char *) &cat + offset);
	bool		any = false;

	StartTransactionCommand();
	if (dw_catalog_lookup(&cat))
		for (int i = 0; i < n && !any; i++)
		{
			Relation	rel = dw_open_if_free(relids[i]);

			/* the first page of a B-tree has no entries */
			any = rel == NULL ||
				RelationGetNumberOfBlocks(rel) > (rel->rd_rel->relkind == RELKIND_INDEX ? 1 : 0);
			if (rel != NULL)
				relation_close(rel, NoLock);
		}
	CommitTransactionCommand();
	return any;
}

/*
 * Raises an error if a table does not have the columns of the install script.  Does not wait, since
 * the timer must not wait.  If the table is locked by a process that is altering it, an
 * invalidation will cause another check.  types: the types of the columns, InvalidOid at the end.
 */
static void
check_columns(Oid table, const Oid *types)
{
	Relation	rel = dw_open_if_free(table);
	TupleDesc	desc;

	if (rel == NULL)
		return;
	desc = RelationGetDescr(rel);
	for (int i = 0; OidIsValid(types[i]); i++)
		if (i >= desc->natts || TupleDescAttr(desc, i)->attisdropped ||
			TupleDescAttr(desc, i)->atttypid != types[i])
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("table \"%s.%s\" has been altered",
							get_namespace_name(RelationGetNamespace(rel)), RelationGetRelationName(rel)),
					 errdetail("Column %d is not as extension \"%s\" created it.",
							   i + 1, "delay_wheel")));
	/* release the lock at once, since DROP EXTENSION locks the tables in another order */
	table_close(rel, AccessShareLock);
}

#define COLUMN_TYPE(table, column, type) type,
#define CHECK_COLUMNS(table, name, columns) \
	check_columns(cat->table, (const Oid[]) {columns(COLUMN_TYPE) InvalidOid});

/* Checks the columns of all tables. */
static void
check_tables(const DwCatalog *cat)
{
	DW_TABLES(CHECK_COLUMNS)
	for (int i = 0; i < DW_HISTORY_TABLES; i++)
		CHECK_COLUMNS(history[i], "", DW_HISTORY_COLUMNS)
}

/*
 * Returns the OIDs of the extension's relations.  If the OIDs are unknown, looks them up and checks
 * the columns.  Raises an error if the extension is not there, or a table was altered.
 */
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
		if (!dw_catalog_lookup(&known_catalog))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("extension \"%s\" is not complete in this database", "delay_wheel"),
					 OidIsValid(get_extension_oid("delay_wheel", true)) ?
					 errhint("One of its tables or indexes was dropped, renamed or moved to another schema.") :
					 errhint("Use CREATE EXTENSION delay_wheel.")));
		/* set before the check: invalidations that come with the locks of the check may reset it */
		catalog_valid = true;
		PG_TRY();
		{
			check_tables(&known_catalog);
		}
		PG_CATCH();
		{
			catalog_valid = false;
			PG_RE_THROW();
		}
		PG_END_TRY();
	}
	return &known_catalog;
}

/*
 * Returns true if dw_catalog() would find the extension.  Costs nothing if dw_catalog() has found
 * the extension before.
 */
bool
dw_catalog_is_there(void)
{
	DwCatalog	found;

	return catalog_valid || dw_catalog_lookup(&found);
}

/*---- The table of tasks, to write to it ----*/

/*
 * Opens the table of tasks.  Locks the table, and the indexes that have an entry for each task, for
 * writing until the end of the (sub)transaction.  The caller closes the table with NoLock.  Locking
 * a second time in a transaction costs nothing.
 */
Relation
dw_tasks_open(void)
{
	if (!dw_tables_being_written)
	{
		LockRelationOid(dw_catalog()->task, RowExclusiveLock);
		/* look up the OIDs again: from now on our lock prevents the replacement of indexes */
		(void) dw_catalog();
		dw_tables_being_written = catalog_valid;
		/* an invalidation that comes with these locks resets dw_tables_being_written */
		LockRelationOid(known_catalog.task_pkey, RowExclusiveLock);
		LockRelationOid(known_catalog.task_lane_index, RowExclusiveLock);
	}
	return table_open(dw_catalog()->task, dw_tables_being_written ? NoLock : RowExclusiveLock);
}

/*---- Rows of any table ----*/

/*
 * Returns the stamp of this database in this cluster (a hash).  Each row contains the stamp of the
 * database where the row was written.  So delay_wheel notices rows that were copied.
 */
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
 * Deletes a row.  If another transaction has locked the row, waits for the end of that transaction,
 * or returns TM_BeingModified if wait is false.
 */
TM_Result
dw_heap_delete(Relation rel, ItemPointer tid, bool wait)
{
	TM_FailureData failure;

	return dw_try_heap_delete(rel, tid, wait, &failure);
}

/*
 * Splits a row into all of its columns, including columns that an administrator has added.  The
 * arrays are allocated in the current memory context.
 */
void
dw_deform(Relation rel, HeapTuple tuple, Datum **values, bool **nulls)
{
	TupleDesc	desc = RelationGetDescr(rel);

	*values = palloc(desc->natts * sizeof(Datum));
	*nulls = palloc(desc->natts * sizeof(bool));
	heap_deform_tuple(tuple, desc, *values, *nulls);
}
