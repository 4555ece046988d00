/*-------------------------------------------------------------------------
 *
 * ddl.c
 *	  Commands of others that delay_wheel must know of.
 *
 * A ProcessUtility hook, run by all backends, for
 *
 * CREATE EXTENSION delay_wheel: a timer is started when it has committed;
 * DROP EXTENSION: the timer looks at what is left;
 * DROP ROLE: the timers of all databases look for tasks of it;
 * PREPARE TRANSACTION: the name is noted, for what the transaction touched
 * is written down under it (touched.c);
 * COMMIT PREPARED and ROLLBACK PREPARED: what the prepared transaction touched
 * is told to the timer when it has ended, by this one's own end; so is an
 * extension that it created.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "ddl.h"
#include "lanes.h"
#include "nodes/parsenodes.h"
#include "shared.h"
#include "storage/lmgr.h"
#include "task_rows.h"
#include "tcop/utility.h"
#include "touched.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

static ProcessUtility_hook_type prev_process_utility = NULL;

/*
 * The rows that a transaction wrote when it was prepared are seen dirty, since
 * it has not ended.  Whatever its end is, the lanes are looked at then: the
 * row locks of its cancels are gone in both cases.  False if there is no
 * extension (yet).
 */
static bool
touch_what_was_prepared(const char *gid)
{
	DwCatalog	cat;
	Relation	rel;
	SysScanDesc scan;
	ScanKeyData key;
	SnapshotData dirty;
	HeapTuple	tuple;

	if (!dw_catalog_lookup(&cat))
		return false;

	/* the prepared transaction itself may have locked or dropped the table */
	rel = ConditionalLockRelationOid(cat.prepared, AccessShareLock) ?
		try_table_open(cat.prepared, NoLock) : NULL;
	if (rel == NULL)
	{
		dw_touch_all();
		return true;
	}

	InitDirtySnapshot(dirty);
	ScanKeyInit(&key, Anum_prepared_gid, BTEqualStrategyNumber, F_TEXTEQ,
				CStringGetTextDatum(gid));
	scan = systable_beginscan(rel, InvalidOid, false, &dirty, 1, &key);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		TupleDesc	desc = RelationGetDescr(rel);
		bool		isnull;
		Oid			owner = DatumGetObjectId(heap_getattr(tuple, Anum_prepared_owner, desc, &isnull));
		int16		queue = DatumGetInt16(heap_getattr(tuple, Anum_prepared_queue, desc, &isnull));
		int16		priority = DatumGetInt16(heap_getattr(tuple, Anum_prepared_priority, desc, &isnull));
		TimestampTz due = DatumGetTimestampTz(heap_getattr(tuple, Anum_prepared_due, desc, &isnull));
		DwDatabase *db = dw_my_database();
		DwLaneRef	lane;

		if (db != NULL && OidIsValid(owner) && dw_lane_enter(db, owner, queue, priority, &lane))
			dw_touch_lane(lane, due);
		else
			dw_touch_all();
		dw_touch_prepared();
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return true;
}

/* Returns whether the extension may come to be by this, unnamed. */
static bool
before_utility(Node *statement)
{
	if (IsA(statement, TransactionStmt))
	{
		TransactionStmt *stmt = (TransactionStmt *) statement;

		if (stmt->kind == TRANS_STMT_PREPARE)
			dw_touched_prepare_as(stmt->gid);
		else if (stmt->kind == TRANS_STMT_COMMIT_PREPARED)
			return !touch_what_was_prepared(stmt->gid);
		else if (stmt->kind == TRANS_STMT_ROLLBACK_PREPARED)
			touch_what_was_prepared(stmt->gid);
	}
	return false;
}

static bool
drops_extension(DropStmt *statement)
{
	ListCell   *lc;

	if (statement->removeType != OBJECT_EXTENSION)
		return false;
	foreach(lc, statement->objects)
		if (strcmp(strVal(lfirst(lc)), "delay_wheel") == 0)
			return true;
	return false;
}

static void
after_utility(Node *statement)
{
	if (IsA(statement, DropStmt) && drops_extension((DropStmt *) statement))
		dw_touch_all();
	else if (IsA(statement, CreateExtensionStmt) &&
			 strcmp(((CreateExtensionStmt *) statement)->extname, "delay_wheel") == 0)
		dw_touch_extension();
	else if (IsA(statement, DropRoleStmt))
		dw_touch_roles();
}

static void
process_utility(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *query_env, DestReceiver *dest, QueryCompletion *qc)
{
	Node	   *statement = pstmt->utilityStmt;
	/* the tree may be gone after the command: COMMIT frees much */
	bool		look_after = IsA(statement, CreateExtensionStmt) || IsA(statement, DropStmt) ||
		IsA(statement, DropRoleStmt);
	bool		may_create = before_utility(statement);
	DwCatalog	cat;

	if (prev_process_utility)
		prev_process_utility(pstmt, query_string, read_only_tree, context, params,
							 query_env, dest, qc);
	else
		standard_ProcessUtility(pstmt, query_string, read_only_tree, context, params,
								query_env, dest, qc);
	if (look_after)
		after_utility(statement);
	else if (may_create && dw_catalog_lookup(&cat))
		dw_touch_extension();
}

void
dw_ddl_install(void)
{
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}
