/*-------------------------------------------------------------------------
 *
 * visible.c
 *	  Foreign tables that show the rows of our tables that the reader may read.
 *
 * Run by sessions, and by executors whose tasks read views; also if the library is not
 * in shared_preload_libraries.
 *
 * The views show each role (the reader) its own rows.  A condition in the view would not
 * keep the rows of others secret.  PostgreSQL calls the reader's own conditions first
 * where they are leakproof and cheap.  PostgreSQL also estimates them by statistics of
 * all rows, and counts in EXPLAIN ANALYZE the rows that they have removed.  So times and
 * numbers would tell about rows that are not shown.
 *
 * Therefore the views read foreign tables, visible_task and others.  Their scans return
 * a row only if the reader may read it.  To PostgreSQL there are no other rows: its
 * conditions, statistics and counts begin above the scan.  Of the reader's conditions a
 * scan is given only an id, an owner, or a whole key, to find rows by an index.
 *
 * If the reader may read all rows, or if there is no better way, a scan reads the whole
 * table.  Of the pending tasks it reads those parts of the index of lanes (which begins
 * with the owner) that belong to roles of which the reader is a member.  By an id, a scan
 * looks a row up first and then returns it or not.  So the time tells that the row of
 * another role has this id, but nothing about the row.
 *
 * PostgreSQL's planner and executor call the functions of this file by the table at its
 * end (see fdwapi.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "foreign/fdwapi.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planmain.h"
#include "optimizer/restrictinfo.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

#include "../base/compat.h"
#include "../rows/catalog.h"

PG_FUNCTION_INFO_V1(dw_visible_handler);

/* The way in which a scan finds rows, of which it returns those that may be read. */
typedef enum Access
{
	ACCESS_ALL,					/* all rows, in any order */
	ACCESS_ID,					/* rows with an id, or with one of an array of ids */
	ACCESS_OWNER,				/* rows of one owner */
	ACCESS_KEY,					/* rows of one owner, queue and key */
	ACCESS_FORWARD,				/* all rows, in the order of an index */
	ACCESS_BACKWARD				/* all rows, in the reverse order of an index */
} Access;

/* A table of ours that a foreign table can show. */
typedef struct Source
{
	const char *table;			/* name in the foreign table's option "table" */
	int			natts;
	AttrNumber	owner;			/* column of the owner */
	AttrNumber	id;				/* first column of the primary key; 0: no ACCESS_ID */
	AttrNumber	order[2];		/* columns of the index for ACCESS_FORWARD; 0: none */
} Source;

static const Source sources[] = {
	{"task", Natts_task, Anum_task_owner, Anum_task_id, {Anum_task_id, 0}},
	{"failed_task", Natts_failed, Anum_failed_owner, Anum_failed_id,
	{Anum_failed_failed_at, Anum_failed_id}},
	{"recurring_task", Natts_recurring, Anum_recurring_owner, Anum_recurring_id, {0, 0}},
	{"history", Natts_history, Anum_history_owner, 0, {0, 0}},
	{"queue", Natts_queue, Anum_queue_owner, 0, {0, 0}}
};

#define SOURCE_TASK		(&sources[0])
#define SOURCE_FAILED	(&sources[1])
#define SOURCE_RECURRING (&sources[2])
#define SOURCE_HISTORY	(&sources[3])
#define SOURCE_QUEUE	(&sources[4])

/*
 * An argument of an access: the rows that are wanted have a given value in this column.
 * The arguments of an access are the first columns of its index.
 */
typedef struct Argument
{
	AttrNumber	column;
	Oid			type;
	Oid			family;			/* operator family of the "=" that is recognized */
} Argument;

#define MAX_ARGUMENTS	3

/* The state of a foreign scan. */
typedef struct RowScan
{
	const Source *source;
	Access		access;
	Argument	arguments[MAX_ARGUMENTS];
	int			narguments;
	ExprState  *expressions[MAX_ARGUMENTS]; /* values of the arguments */
	bool		is_array;		/* the only argument is an array: rows with any of its elements */
	MemoryContext context;		/* lasts as long as the scan */
	MemoryContext run;			/* lasts until a rescan */
	bool		begun;			/* rows have been read since the last rescan */

	/* the rights of the reader */
	Oid			reader;
	bool		reads_all;		/* may read the rows of all owners */
	Oid			last_owner;		/* owner of the last row that was looked at */
	bool		last_may;		/* whether the reader may read rows of last_owner */
	Oid		   *owners;			/* unless reads_all: roles whose rows the reader may read */
	int			nowners;		/* -1: not looked up yet */

	/* the position of the scan; for parts see begin_part() */
	int			part;
	int			nparts;
	Relation	rel;
	Relation	index;
	ScanKeyData keys[MAX_ARGUMENTS];
	TableScanDesc table_scan;
	IndexScanDesc index_scan;
	TupleTableSlot *slot;		/* the row that was read last, of our table */
} RowScan;

/*---- Tables and their columns ----*/

/* Returns the source of a foreign table, by its option "table"; an error if there is none. */
static const Source *
table_behind(Oid foreign_table)
{
	ForeignTable *table = GetForeignTable(foreign_table);
	ListCell   *lc;

	foreach(lc, table->options)
	{
		DefElem    *option = lfirst_node(DefElem, lc);

		if (strcmp(option->defname, "table") != 0)
			continue;
		for (int i = 0; i < lengthof(sources); i++)
			if (strcmp(sources[i].table, defGetString(option)) == 0)
				return &sources[i];
	}
	ereport(ERROR,
			(errcode(ERRCODE_FDW_TABLE_NOT_FOUND),
			 errmsg("foreign table \"%s\" does not belong to extension \"%s\"",
					get_rel_name(foreign_table), "delay_wheel"),
			 errdetail("Its option \"%s\" does not name a table that can be shown.", "table")));
}

/* Sets tables to the OIDs of the source's tables, and returns their number (history: several). */
static int
tables_of(const Source *source, Oid *tables)
{
	const DwCatalog *cat = dw_catalog();

	if (source == SOURCE_HISTORY)
	{
		memcpy(tables, cat->history, sizeof(cat->history));
		return DW_HISTORY_TABLES;
	}
	tables[0] = source == SOURCE_TASK ? cat->task :
		source == SOURCE_FAILED ? cat->failed :
		source == SOURCE_RECURRING ? cat->recurring : cat->queue;
	return 1;
}

/* Returns the index that the scan uses; InvalidOid: none, it reads the table. */
static Oid
index_of(const RowScan *scan)
{
	const DwCatalog *cat = dw_catalog();

	if (scan->access == ACCESS_ID)
		return scan->source == SOURCE_TASK ? cat->task_pkey :
			scan->source == SOURCE_FAILED ? cat->failed_pkey : cat->recurring_pkey;
	if (scan->access == ACCESS_KEY)
		return cat->task_key_index;
	if (scan->access == ACCESS_FORWARD || scan->access == ACCESS_BACKWARD)
		return scan->source == SOURCE_TASK ? cat->task_pkey : cat->failed_at_index;
	/* pending tasks are read owner by owner */
	if (scan->source == SOURCE_TASK && (scan->access == ACCESS_OWNER || !scan->reads_all))
		return cat->task_lane_index;
	return InvalidOid;
}

/*
 * Raises an error unless the foreign table has the same columns as our table: values are
 * copied from one to the other.
 */
static void
require_columns(Relation foreign_table, Relation rel, const Source *source)
{
	TupleDesc	shown = RelationGetDescr(foreign_table);
	TupleDesc	desc = RelationGetDescr(rel);
	bool		same = shown->natts == source->natts && desc->natts >= source->natts;

	for (int i = 0; same && i < source->natts; i++)
		same = TupleDescAttr(shown, i)->atttypid == TupleDescAttr(desc, i)->atttypid &&
			!TupleDescAttr(shown, i)->attisdropped && !TupleDescAttr(desc, i)->attisdropped;
	if (!same)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_COLUMN_NUMBER),
				 errmsg("foreign table \"%s\" does not have the columns of table \"%s.%s\"",
						RelationGetRelationName(foreign_table),
						get_namespace_name(RelationGetNamespace(rel)), RelationGetRelationName(rel)),
				 errhint("One of them was altered.")));
}

/*---- Planning ----*/

/* Sets arguments to those of the access, and returns their number; 0 if it has none here. */
static int
arguments_of(const Source *source, Access access, Argument *arguments)
{
	const Argument id = {source->id, INT8OID, INTEGER_BTREE_FAM_OID};
	const Argument owner = {Anum_task_owner, OIDOID, OID_BTREE_FAM_OID};
	const Argument queue = {Anum_task_queue, INT2OID, INTEGER_BTREE_FAM_OID};
	const Argument key = {Anum_task_key, TEXTOID, TEXT_BTREE_FAM_OID};

	if (access == ACCESS_ID && source->id != 0)
	{
		arguments[0] = id;
		return 1;
	}
	if (access == ACCESS_OWNER && source == SOURCE_TASK)
	{
		arguments[0] = owner;
		return 1;
	}
	if (access == ACCESS_KEY && source == SOURCE_TASK)
	{
		arguments[0] = owner;
		arguments[1] = queue;
		arguments[2] = key;
		return 3;
	}
	return 0;
}

/* True if the expression is this column of the scan, perhaps relabeled as another type. */
static bool
is_column(Node *node, RelOptInfo *rel, AttrNumber column)
{
	while (node != NULL && IsA(node, RelabelType))
		node = (Node *) ((RelabelType *) node)->arg;
	return node != NULL && IsA(node, Var) && ((Var *) node)->varno == rel->relid &&
		((Var *) node)->varattno == column && ((Var *) node)->varlevelsup == 0;
}

/*
 * If the clause says that the argument's column is equal to an expression that needs no
 * row of this table, returns the expression; else NULL.  With *is_array, the expression is
 * an array, and the column is equal to one of its elements.
 */
static Expr *
equal_to(PlannerInfo *root, RelOptInfo *rel, Expr *clause, const Argument *argument,
		 bool *is_array)
{
	List	   *args;
	Oid			operator;
	Oid			collation;
	Oid			left;
	Oid			right;

	*is_array = IsA(clause, ScalarArrayOpExpr) && ((ScalarArrayOpExpr *) clause)->useOr;
	if (*is_array)
	{
		args = ((ScalarArrayOpExpr *) clause)->args;
		operator = ((ScalarArrayOpExpr *) clause)->opno;
		collation = ((ScalarArrayOpExpr *) clause)->inputcollid;
	}
	else if (is_opclause(clause) && list_length(((OpExpr *) clause)->args) == 2)
	{
		args = ((OpExpr *) clause)->args;
		operator = ((OpExpr *) clause)->opno;
		collation = ((OpExpr *) clause)->inputcollid;
	}
	else
		return NULL;
	/* the index has the collation of the database */
	if (OidIsValid(collation) && collation != DEFAULT_COLLATION_OID)
		return NULL;
	if (get_op_opfamily_strategy(operator, argument->family) != BTEqualStrategyNumber)
		return NULL;
	/* the family also has operators for text and name, but a name cannot be used as a text */
	op_input_types(operator, &left, &right);
	if (left != right && argument->family != INTEGER_BTREE_FAM_OID)
		return NULL;

	for (int i = 0; i < (*is_array ? 1 : 2); i++)
	{
		Node	   *other = list_nth(args, 1 - i);

		if (is_column(list_nth(args, i), rel, argument->column) &&
			!bms_is_member(rel->relid, pull_varnos(root, other)) &&
			!contain_volatile_functions(other))
			return (Expr *) other;
	}
	return NULL;
}

/*
 * Returns expressions for all arguments of an access, found in the clauses; NIL if one is
 * missing.  Only an id can be given as an array.  *relids is set to the relations in the
 * clauses that were used.
 */
static List *
find_arguments(PlannerInfo *root, RelOptInfo *rel, const Source *source, Access access,
			   List *clauses, bool *is_array, Relids *relids)
{
	Argument	arguments[MAX_ARGUMENTS];
	int			n = arguments_of(source, access, arguments);
	List	   *found = NIL;

	*is_array = false;
	*relids = NULL;
	for (int i = 0; i < n; i++)
	{
		ListCell   *lc;

		foreach(lc, clauses)
		{
			RestrictInfo *info = lfirst_node(RestrictInfo, lc);
			bool		of_array;
			Expr	   *expr = equal_to(root, rel, info->clause, &arguments[i], &of_array);

			if (expr == NULL || (of_array && access != ACCESS_ID))
				continue;
			found = lappend(found, expr);
			*is_array = of_array;
			*relids = bms_add_members(*relids, info->clause_relids);
			break;
		}
	}
	return list_length(found) == n ? found : NIL;
}

/* True if the conditions on this table alone give all arguments of the access. */
static bool
has_arguments(PlannerInfo *root, RelOptInfo *rel, const Source *source, Access access)
{
	bool		is_array;
	Relids		relids;

	return find_arguments(root, rel, source, access, rel->baserestrictinfo, &is_array,
						  &relids) != NIL;
}

/*
 * GetForeignRelSize: estimates by the sizes of our tables, which any user can look up.
 * Conditions are estimated without statistics, which would tell about hidden rows.
 */
static void
get_size(PlannerInfo *root, RelOptInfo *rel, Oid foreign_table)
{
	const Source *source = table_behind(foreign_table);
	Oid			tables[DW_HISTORY_TABLES];
	int			ntables = tables_of(source, tables);

	rel->pages = 0;
	rel->tuples = 0;
	for (int i = 0; i < ntables; i++)
	{
		Relation	table = table_open(tables[i], AccessShareLock);
		BlockNumber pages;
		double		tuples;
		double		all_visible;

		table_relation_estimate_size(table, NULL, &pages, &tuples, &all_visible);
		table_close(table, NoLock);
		rel->pages += pages;
		rel->tuples += tuples;
	}
	set_baserel_size_estimates(root, rel);
	if (has_arguments(root, rel, source, ACCESS_ID))
		rel->rows = 1;
	rel->fdw_private = (void *) source;
}

/* Adds a path for an access; outer are the other tables that its arguments come from. */
static void
add_access(PlannerInfo *root, RelOptInfo *rel, Access access, double rows, Cost cost,
		   List *pathkeys, Relids outer)
{
	add_path(rel, (Path *) dw_create_foreignscan_path(root, rel, rows, 0, cost, pathkeys, outer,
													  list_make1_int(access)));
}

/* Returns the pathkeys of the order that the source's index gives, or its reverse. */
static List *
order_of(PlannerInfo *root, RelOptInfo *rel, const Source *source, const Oid *types, bool backward)
{
	List	   *pathkeys = NIL;

	for (int i = 0; i < lengthof(source->order) && source->order[i] != 0; i++)
	{
		TypeCacheEntry *type = lookup_type_cache(types[i], TYPECACHE_LT_OPR | TYPECACHE_GT_OPR);
		Var		   *var = makeVar(rel->relid, source->order[i], types[i], -1, InvalidOid, 0);
		List	   *pathkey = dw_build_expression_pathkey(root, (Expr *) var,
														  backward ? type->gt_opr : type->lt_opr,
														  rel->relids);

		/* the query has no use for this order */
		if (pathkey == NIL)
			break;
		pathkeys = list_concat(pathkeys, pathkey);
	}
	return pathkeys;
}

/* Adds paths for the accesses in order, both ways, if the query has use for the order. */
static void
add_ordered(PlannerInfo *root, RelOptInfo *rel, const Source *source, Cost cost)
{
	static const Oid types_of_task[] = {INT8OID};
	static const Oid types_of_failed[] = {TIMESTAMPTZOID, INT8OID};
	const Oid  *types = source == SOURCE_TASK ? types_of_task : types_of_failed;

	if (source->order[0] == 0)
		return;
	for (int backward = 0; backward <= 1; backward++)
	{
		List	   *pathkeys = order_of(root, rel, source, types, backward);

		if (pathkeys != NIL)
			add_access(root, rel, backward ? ACCESS_BACKWARD : ACCESS_FORWARD, rel->rows, cost,
					   pathkeys, rel->lateral_relids);
	}
}

/* The arguments of an access, for is_column_of_scan(). */
typedef struct Wanted
{
	Argument	arguments[MAX_ARGUMENTS];
	int			n;
} Wanted;

/*
 * Callback of the planner: true if a member of an equivalence class is a column of this
 * table that can be an argument.
 */
static bool
is_column_of_scan(PlannerInfo *root, RelOptInfo *rel, EquivalenceClass *ec,
				  EquivalenceMember *member, void *arg)
{
	const Wanted *wanted = (const Wanted *) arg;

	for (int i = 0; i < wanted->n; i++)
		if (is_column((Node *) member->em_expr, rel, wanted->arguments[i].column))
			return true;
	return false;
}

/*
 * Adds paths for joins: for each row of other tables, its id or key is looked up here.
 *
 * For an id, each join clause is tried alone.  For a key, all clauses are tried together,
 * with those on this table: so the view "tasks" looks for newer tasks of the same key.
 */
static void
add_joins(PlannerInfo *root, RelOptInfo *rel, const Source *source, Access access, Cost cost)
{
	Wanted		wanted;
	List	   *clauses = NIL;
	List	   *sets = NIL;
	List	   *done = NIL;
	ListCell   *lc;

	wanted.n = arguments_of(source, access, wanted.arguments);
	if (wanted.n == 0)
		return;
	foreach(lc, rel->joininfo)
		if (join_clause_is_movable_to(lfirst_node(RestrictInfo, lc), rel))
			clauses = lappend(clauses, lfirst(lc));
	if (rel->has_eclass_joins)
		clauses = list_concat(clauses,
							  generate_implied_equalities_for_column(root, rel,
																	 is_column_of_scan, &wanted,
																	 rel->lateral_referencers));
	if (access == ACCESS_ID)
		foreach(lc, clauses)
			sets = lappend(sets, list_make1(lfirst(lc)));
	else
		sets = list_make1(list_concat_copy(rel->baserestrictinfo, clauses));

	foreach(lc, sets)
	{
		Relids		outer;
		bool		is_array;
		bool		again = false;
		ListCell   *other;

		if (find_arguments(root, rel, source, access, (List *) lfirst(lc), &is_array,
						   &outer) == NIL)
			continue;
		outer = bms_del_member(bms_union(outer, rel->lateral_relids), rel->relid);
		foreach(other, done)
			again |= bms_equal(outer, (Relids) lfirst(other));
		if (again || bms_is_empty(outer))
			continue;
		done = lappend(done, outer);
		(void) get_baserel_parampathinfo(root, rel, outer);
		add_access(root, rel, access, 1, cost, NIL, outer);
	}
}

/* GetForeignPaths: adds a path for each access that fits the query. */
static void
get_paths(PlannerInfo *root, RelOptInfo *rel, Oid foreign_table)
{
	const Source *source = (const Source *) rel->fdw_private;
	Cost		cost_of_rows = rel->tuples * (cpu_tuple_cost + rel->baserestrictcost.per_tuple);
	Cost		cost_of_one = 2 * random_page_cost + cpu_tuple_cost;

	if (has_arguments(root, rel, source, ACCESS_ID))
	{
		add_access(root, rel, ACCESS_ID, rel->rows, cost_of_one, NIL, rel->lateral_relids);
		return;
	}
	if (has_arguments(root, rel, source, ACCESS_OWNER))
		add_access(root, rel, ACCESS_OWNER, rel->rows,
				   0.1 * (rel->pages * random_page_cost + cost_of_rows), NIL, rel->lateral_relids);
	add_access(root, rel, ACCESS_ALL, rel->rows, rel->pages * seq_page_cost + cost_of_rows, NIL,
			   rel->lateral_relids);
	add_ordered(root, rel, source,
				rel->pages * random_page_cost + cost_of_rows + rel->tuples * cpu_index_tuple_cost);
	add_joins(root, rel, source, ACCESS_ID, cost_of_one);
	add_joins(root, rel, source, ACCESS_KEY, cost_of_one);
}

/*
 * GetForeignPlan.  PostgreSQL checks all clauses above the scan, also those that gave
 * arguments.
 */
static ForeignScan *
get_plan(PlannerInfo *root, RelOptInfo *rel, Oid foreign_table, ForeignPath *path, List *tlist,
		 List *clauses, Plan *outer_plan)
{
	const Source *source = (const Source *) rel->fdw_private;
	Access		access = (Access) linitial_int(path->fdw_private);
	bool		is_array;
	Relids		relids;
	List	   *expressions = find_arguments(root, rel, source, access, clauses, &is_array,
											 &relids);

	return make_foreignscan(tlist, extract_actual_clauses(clauses, false), rel->relid,
							expressions,
							lappend_int(list_make1_int(access), is_array),
							NIL, NIL, outer_plan);
}

/*---- Rights ----*/

/* Sets scan->owners to the roles whose rows the reader may read, if these are not all. */
static void
look_up_owners(RowScan *scan)
{
	MemoryContext before = MemoryContextSwitchTo(scan->context);
	Relation	rel = table_open(AuthIdRelationId, AccessShareLock);
	SysScanDesc roles = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;
	int			size = 8;

	scan->owners = palloc(size * sizeof(Oid));
	scan->nowners = 0;
	while ((tuple = systable_getnext(roles)) != NULL)
	{
		Oid			role = ((Form_pg_authid) GETSTRUCT(tuple))->oid;

		CHECK_FOR_INTERRUPTS();
		if (!has_privs_of_role(scan->reader, role))
			continue;
		if (scan->nowners == size)
			scan->owners = repalloc(scan->owners, (size *= 2) * sizeof(Oid));
		scan->owners[scan->nowners++] = role;
	}
	systable_endscan(roles);
	table_close(rel, AccessShareLock);
	MemoryContextSwitchTo(before);
}

/*
 * True if the reader is a member of a role that the queue was declared for.  nulls and
 * values are the columns of delay_wheel.queue.
 */
static bool
may_use_queue(RowScan *scan, bool *nulls, Datum *values)
{
	ArrayType  *array;
	Oid		   *users;
	int			n;

	if (nulls[Anum_queue_users - 1])
		return false;
	array = DatumGetArrayTypeP(values[Anum_queue_users - 1]);
	if (ARR_HASNULL(array))
		return false;
	n = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	users = (Oid *) ARR_DATA_PTR(array);
	for (int i = 0; i < n; i++)
		if (users[i] == InvalidOid || has_privs_of_role(scan->reader, users[i]))
			return true;
	return false;
}

/* True if the reader may read the row in scan->slot. */
static bool
may_read(RowScan *scan)
{
	bool		isnull;
	Oid			owner;

	if (scan->reads_all)
		return true;
	owner = DatumGetObjectId(slot_getattr(scan->slot, scan->source->owner, &isnull));
	if (owner != scan->last_owner)
	{
		scan->last_may = has_privs_of_role(scan->reader, owner);
		scan->last_owner = owner;
	}
	if (scan->last_may || scan->source != SOURCE_QUEUE)
		return scan->last_may;
	slot_getallattrs(scan->slot);
	return may_use_queue(scan, scan->slot->tts_isnull, scan->slot->tts_values);
}

/*
 * True if rows of the owner that the reader has named may be looked for.  If not, the scan
 * must not even take the time of a look, which would tell whether there are such rows.
 * By an id a scan always looks.
 */
static bool
may_ask(const RowScan *scan)
{
	return scan->access == ACCESS_ID || scan->reads_all ||
		has_privs_of_role(scan->reader, DatumGetObjectId(scan->keys[0].sk_argument));
}

/* Sets the reader, the current user, and whether it may read all rows. */
static void
look_up_rights(RowScan *scan)
{
	scan->reader = GetUserId();
	scan->reads_all = has_privs_of_role(scan->reader, ROLE_PG_READ_ALL_DATA) ||
		(scan->source == SOURCE_QUEUE && has_privs_of_role(scan->reader, ROLE_PG_READ_ALL_STATS));
}

/*---- Scanning ----*/

/*
 * Begins the part scan->part of a scan.  The parts are the tables of the history, or the
 * owners whose pending tasks are read one after the other; other scans have one part.
 */
static void
begin_part(RowScan *scan, Snapshot snapshot)
{
	Oid			tables[DW_HISTORY_TABLES];
	Oid			index = index_of(scan);
	int			nkeys = scan->narguments;

	(void) tables_of(scan->source, tables);
	if (scan->rel == NULL)
	{
		scan->rel = table_open(tables[scan->source == SOURCE_HISTORY ? scan->part : 0],
							   AccessShareLock);
		scan->slot = table_slot_create(scan->rel, NULL);
	}
	if (!OidIsValid(index))
	{
		scan->table_scan = table_beginscan(scan->rel, snapshot, 0, NULL);
		return;
	}
	if (scan->index == NULL)
		scan->index = index_open(index, AccessShareLock);

	if (scan->access == ACCESS_ALL && index == dw_catalog()->task_lane_index)
	{
		ScanKeyInit(&scan->keys[0], 1, BTEqualStrategyNumber, F_OIDEQ,
					ObjectIdGetDatum(scan->owners[scan->part]));
		nkeys = 1;
	}
	if (scan->index_scan == NULL)
		scan->index_scan = dw_index_beginscan(scan->rel, scan->index, snapshot, nkeys);
	index_rescan(scan->index_scan, scan->keys, nkeys, NULL, 0);
}

/* Ends a part.  Closes the table only if the next part is another one. */
static void
end_part(RowScan *scan)
{
	ExecClearTuple(scan->slot);
	if (scan->table_scan != NULL)
	{
		table_endscan(scan->table_scan);
		scan->table_scan = NULL;
	}
	if (scan->source != SOURCE_HISTORY)
		return;
	ExecDropSingleTupleTableSlot(scan->slot);
	table_close(scan->rel, NoLock);
	scan->slot = NULL;
	scan->rel = NULL;
}

/* Fills the scan keys from the arguments; false if a value is null, so that no row matches. */
static bool
evaluate_arguments(RowScan *scan, ExprContext *econtext)
{
	for (int i = 0; i < scan->narguments; i++)
	{
		const Argument *argument = &scan->arguments[i];
		Oid			type = exprType((Node *) scan->expressions[i]->expr);
		bool		isnull;
		Datum		value = ExecEvalExprSwitchContext(scan->expressions[i], econtext, &isnull);
		int16		length;
		bool		by_value;

		if (isnull)
			return false;
		/* the scan lasts longer than the context that expressions are evaluated in */
		get_typlenbyval(type, &length, &by_value);
		value = datumCopy(value, by_value, length);
		if (scan->is_array)
			type = get_element_type(type);
		else if (argument->family != INTEGER_BTREE_FAM_OID)
			type = argument->type;	/* the type may be relabeled, as varchar for text */
		ScanKeyEntryInitialize(&scan->keys[i], scan->is_array ? SK_SEARCHARRAY : 0, i + 1,
							   BTEqualStrategyNumber, type,
							   type == TEXTOID ? DEFAULT_COLLATION_OID : InvalidOid,
							   get_opcode(get_opfamily_member(argument->family, argument->type,
															  type, BTEqualStrategyNumber)),
							   value);
	}
	return true;
}

/* Begins the scan at its first row, when the first row is asked for after a rescan. */
static void
begin_row_scan(RowScan *scan, ForeignScanState *node)
{
	scan->begun = true;
	scan->part = 0;
	scan->nparts = scan->source == SOURCE_HISTORY ? DW_HISTORY_TABLES : 1;
	if (scan->narguments > 0)
	{
		if (!evaluate_arguments(scan, node->ss.ps.ps_ExprContext) || !may_ask(scan))
			scan->nparts = 0;
	}
	else if (scan->source == SOURCE_TASK && scan->access == ACCESS_ALL && !scan->reads_all)
	{
		if (scan->nowners < 0)
			look_up_owners(scan);
		scan->nparts = scan->nowners;
	}
	if (scan->nparts > 0)
		begin_part(scan, node->ss.ps.state->es_snapshot);
}

/* Ends the scan, and prepares it for another begin_row_scan(). */
static void
end_scan(RowScan *scan)
{
	if (scan->index_scan != NULL)
		index_endscan(scan->index_scan);
	if (scan->table_scan != NULL)
		table_endscan(scan->table_scan);
	if (scan->slot != NULL)
		ExecDropSingleTupleTableSlot(scan->slot);
	if (scan->index != NULL)
		index_close(scan->index, NoLock);
	if (scan->rel != NULL)
		table_close(scan->rel, NoLock);
	scan->index_scan = NULL;
	scan->table_scan = NULL;
	scan->slot = NULL;
	scan->index = NULL;
	scan->rel = NULL;
	scan->begun = false;
	MemoryContextReset(scan->run);
}

/* Reads the next row of the part, readable or not, into scan->slot; false at the end. */
static bool
next_of_part(RowScan *scan)
{
	if (scan->table_scan != NULL)
		return table_scan_getnextslot(scan->table_scan, ForwardScanDirection, scan->slot);
	return index_getnext_slot(scan->index_scan, scan->access == ACCESS_BACKWARD ?
							  BackwardScanDirection : ForwardScanDirection, scan->slot);
}

/* Reads the next row that the reader may read into scan->slot; false at the end. */
static bool
next_row(RowScan *scan, Snapshot snapshot)
{
	while (scan->part < scan->nparts)
	{
		while (next_of_part(scan))
		{
			CHECK_FOR_INTERRUPTS();
			if (may_read(scan))
				return true;
		}
		end_part(scan);
		if (++scan->part < scan->nparts)
			begin_part(scan, snapshot);
	}
	return false;
}

/* BeginForeignScan; rows are looked for when the first one is asked for. */
static void
begin_foreign_scan(ForeignScanState *node, int flags)
{
	ForeignScan *plan = (ForeignScan *) node->ss.ps.plan;
	RowScan    *scan = palloc0(sizeof(RowScan));
	Oid			tables[DW_HISTORY_TABLES];
	Relation	rel;

	node->fdw_state = scan;
	scan->source = table_behind(RelationGetRelid(node->ss.ss_currentRelation));
	scan->access = (Access) linitial_int(plan->fdw_private);
	scan->is_array = lsecond_int(plan->fdw_private);
	scan->nowners = -1;
	/*
	 * The rights count at this moment, as PostgreSQL's own for tables do: a cursor may be
	 * read later by a function of another user.
	 */
	look_up_rights(scan);
	scan->context = CurrentMemoryContext;
	scan->run = AllocSetContextCreate(CurrentMemoryContext, "delay_wheel scan",
									  ALLOCSET_DEFAULT_SIZES);
	if (plan->fdw_exprs != NIL)
		scan->narguments = arguments_of(scan->source, scan->access, scan->arguments);
	for (int i = 0; i < scan->narguments; i++)
		scan->expressions[i] = ExecInitExpr((Expr *) list_nth(plan->fdw_exprs, i),
											(PlanState *) node);
	(void) tables_of(scan->source, tables);
	rel = table_open(tables[0], AccessShareLock);
	require_columns(node->ss.ss_currentRelation, rel, scan->source);
	table_close(rel, NoLock);
}

/* IterateForeignScan: returns the next row, an empty slot at the end. */
static TupleTableSlot *
iterate_foreign_scan(ForeignScanState *node)
{
	RowScan    *scan = (RowScan *) node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	MemoryContext before = MemoryContextSwitchTo(scan->run);
	bool		found;

	ExecClearTuple(slot);
	if (!scan->begun)
		begin_row_scan(scan, node);
	found = next_row(scan, node->ss.ps.state->es_snapshot);
	MemoryContextSwitchTo(before);
	if (!found)
		return slot;
	slot_getsomeattrs(scan->slot, scan->source->natts);
	memcpy(slot->tts_values, scan->slot->tts_values, scan->source->natts * sizeof(Datum));
	memcpy(slot->tts_isnull, scan->slot->tts_isnull, scan->source->natts * sizeof(bool));
	return ExecStoreVirtualTuple(slot);
}

/* ReScanForeignScan: the arguments may have changed. */
static void
rescan_foreign_scan(ForeignScanState *node)
{
	end_scan((RowScan *) node->fdw_state);
}

/* EndForeignScan. */
static void
end_foreign_scan(ForeignScanState *node)
{
	if (node->fdw_state != NULL)
		end_scan((RowScan *) node->fdw_state);
}

/*
 * ExplainForeignScan: shows the access of the plan, which depends only on the query and
 * the size of the table.  Counts of the scan are not shown, since they depend on hidden
 * rows.
 */
static void
explain_foreign_scan(ForeignScanState *node, struct ExplainState *es)
{
	static const char *const names[] = {
		[ACCESS_ALL] = "all",
		[ACCESS_ID] = "by id",
		[ACCESS_OWNER] = "by owner",
		[ACCESS_KEY] = "by key",
		[ACCESS_FORWARD] = "in order",
		[ACCESS_BACKWARD] = "backward"
	};
	ForeignScan *plan = (ForeignScan *) node->ss.ps.plan;

	ExplainPropertyText("Access", names[linitial_int(plan->fdw_private)], es);
}

/*
 * The handler of the foreign-data wrapper.  PostgreSQL refuses everything that has no
 * function here, such as writing.
 */
Datum
dw_visible_handler(PG_FUNCTION_ARGS)
{
	FdwRoutine *routine = makeNode(FdwRoutine);

	routine->GetForeignRelSize = get_size;
	routine->GetForeignPaths = get_paths;
	routine->GetForeignPlan = get_plan;
	routine->BeginForeignScan = begin_foreign_scan;
	routine->IterateForeignScan = iterate_foreign_scan;
	routine->ReScanForeignScan = rescan_foreign_scan;
	routine->EndForeignScan = end_foreign_scan;
	routine->ExplainForeignScan = explain_foreign_scan;
	PG_RETURN_POINTER(routine);
}
