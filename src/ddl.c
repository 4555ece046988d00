/*-------------------------------------------------------------------------
 *
 * ddl.c
 *	  Commands of others that delay_wheel must know of.
 *
 * A ProcessUtility hook, run by all backends, for
 *
 * CREATE EXTENSION delay_wheel: a timer is started when it has committed;
 * DROP EXTENSION: the timer looks at what is left;
 * PREPARE TRANSACTION: the name is noted, for what the transaction touched
 * is written down under it (touched.c);
 * COMMIT PREPARED and ROLLBACK PREPARED: what the prepared transaction touched
 * is told to the timer when it has ended, by this one's own end.
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
 * row locks of its cancels are gone in both cases.
 */
static void
touch_what_was_prepared(const char *gid)
{
	DwCatalog	cat;
	Relation	rel;
	SysScanDesc scan;
	ScanKeyData key;
	SnapshotData dirty;
	HeapTuple	tuple;

	if (!dw_catalog_lookup(&cat))
		return;

	InitDirtySnapshot(dirty);
	rel = table_open(cat.prepared, AccessShareLock);
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
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
}

static void
before_utility(Node *statement)
{
	if (IsA(statement, TransactionStmt))
	{
		TransactionStmt *stmt = (TransactionStmt *) statement;

		if (stmt->kind == TRANS_STMT_PREPARE)
			dw_touched_prepare_as(stmt->gid);
		else if (stmt->kind == TRANS_STMT_COMMIT_PREPARED ||
				 stmt->kind == TRANS_STMT_ROLLBACK_PREPARED)
			touch_what_was_prepared(stmt->gid);
	}
}

static void
after_utility(Node *statement)
{
	if (IsA(statement, DropStmt) && ((DropStmt *) statement)->removeType == OBJECT_EXTENSION)
		dw_touch_all();

	else if (IsA(statement, CreateExtensionStmt) &&
			 strcmp(((CreateExtensionStmt *) statement)->extname, "delay_wheel") == 0)
		dw_touch_extension();
}

static void
process_utility(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *query_env, DestReceiver *dest, QueryCompletion *qc)
{
	Node	   *statement = pstmt->utilityStmt;
	/* the tree may be gone after the command: COMMIT frees much */
	bool		look_after = IsA(statement, CreateExtensionStmt) || IsA(statement, DropStmt);

	before_utility(statement);
	if (prev_process_utility)
		prev_process_utility(pstmt, query_string, read_only_tree, context, params,
							 query_env, dest, qc);
	else
		standard_ProcessUtility(pstmt, query_string, read_only_tree, context, params,
								query_env, dest, qc);
	if (look_after)
		after_utility(statement);
}

void
dw_ddl_install(void)
{
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}
