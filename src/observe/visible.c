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
 * scan is given only an id, an owner (by its name, too, as the views show it), or a whole
 * key, to find rows by an index.
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
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
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

/* What a foreign table can show: a table of ours, or several, one after the other. */
typedef struct Source
{
	const char *name;			/* in the foreign table's option "table" */
	int			natts;
	AttrNumber	owner;			/* column of the owner */
	int			ntables;
	size_t		tables;			/* where their OIDs stand in DwCatalog */
	size_t		pkey;			/* the same of the primary key; 0: no ACCESS_ID */
	size_t		order_index;	/* the same of the index for ACCESS_FORWARD; 0: none */
	AttrNumber	order[2];		/* columns of that index, and their types */
	Oid			types[2];
} Source;

#define PLACE(member)	offsetof(DwCatalog, member)

static const Source sources[] = {
	{"task", Natts_task, Anum_task_owner, 1, PLACE(task), PLACE(task_pkey), PLACE(task_pkey),
	{Anum_task_id}, {INT8OID}},
	{"failed_task", Natts_failed, Anum_failed_owner, 1, PLACE(failed), PLACE(failed_pkey),
	PLACE(failed_at_index), {Anum_failed_failed_at, Anum_failed_id}, {TIMESTAMPTZOID, INT8OID}},
	{"recurring_task", Natts_recurring, Anum_recurring_owner, 1, PLACE(recurring),
	PLACE(recurring_pkey), 0, {0}, {0}},
	{"history", Natts_history, Anum_history_owner, DW_HISTORY_TABLES, PLACE(history), 0, 0, {0},
	{0}},
	{"queue", Natts_queue, Anum_queue_owner, 1, PLACE(queue), 0, 0, {0}, {0}},
	{"unique_key", Natts_unique, Anum_unique_owner, 1, PLACE(unique_key), PLACE(unique_key_pkey), 0,
	{0}, {0}},
	{"audit", Natts_audit, Anum_audit_owner, 1, PLACE(audit), 0, PLACE(audit_pkey),
	{Anum_audit_at, Anum_audit_id}, {TIMESTAMPTZOID, INT8OID}}
};

#define SOURCE_TASK		(&sources[0])
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

/* Each table that has an id has it in its first column. */
static const Argument id_argument = {Anum_task_id, INT8OID, INTEGER_BTREE_FAM_OID};

static const Argument key_arguments[MAX_ARGUMENTS] = {
	{Anum_task_owner, OIDOID, OID_BTREE_FAM_OID},
	{Anum_task_queue, INT2OID, INTEGER_BTREE_FAM_OID},
	{Anum_task_key, TEXTOID, TEXT_BTREE_FAM_OID}
};

StaticAssertDecl((int) Anum_failed_id == (int) Anum_task_id &&
				 (int) Anum_recurring_id == (int) Anum_task_id &&
				 (int) Anum_unique_id == (int) Anum_task_id, "one argument for all ids");

/* The state of a foreign scan. */
typedef struct RowScan
{
	const Source *source;
	Access		access;
	const Argument *arguments;
	int			narguments;
	ExprState  *expressions[MAX_ARGUMENTS]; /* values of the arguments */
	MemoryContext context;		/* lasts as long as the scan */
	MemoryContext run;			/* lasts until a rescan */
	bool		begun;			/* rows have been read since the last rescan */

	/* the rights of the reader */
	Oid			reader;
	bool		reads_all;		/* may read the rows of all owners */
	Oid			last_owner;		/* owner of the last row that was looked at */
	bool		last_may;		/* whether the reader may read rows of last_owner */
	List	   *owners;			/* unless reads_all: roles whose rows the reader may read; NIL:
								 * not looked up yet */

	/* the position of the scan; for parts see begin_part() */
	int			part;
	int			nparts;
	Relation	rel;
	Relation	index;
	ScanKeyData keys[MAX_ARGUMENTS];
	SysScanDesc rows;
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
			if (strcmp(sources[i].name, defGetString(option)) == 0)
				return &sources[i];
	}
	ereport(ERROR,
			(errcode(ERRCODE_FDW_TABLE_NOT_FOUND),
			 errmsg("foreign table \"%s\" does not belong to extension \"%s\"",
					get_rel_name(foreign_table), "delay_wheel"),
			 errdetail("Its option \"%s\" does not name a table that can be shown.", "table")));
}

/* Returns the OID of a table or an index, or those of several tables, at a place in DwCatalog. */
static const Oid *
oids_at(size_t place)
{
	return (const Oid *) ((const char *) dw_catalog() + place);
}

/* Returns the index that the scan uses; InvalidOid: none, it reads the table. */
static Oid
index_of(const RowScan *scan)
{
	if (scan->access == ACCESS_ID)
		return *oids_at(scan->source->pkey);
	if (scan->access == ACCESS_KEY)
		return dw_catalog()->task_key_index;
	if (scan->access == ACCESS_FORWARD || scan->access == ACCESS_BACKWARD)
		return *oids_at(scan->source->order_index);
	/* pending tasks are read owner by owner */
	if (scan->source == SOURCE_TASK && (scan->access == ACCESS_OWNER || !scan->reads_all))
		return dw_catalog()->task_lane_index;
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

/* Returns the number of arguments of the access, and sets *arguments; 0 if it has none here. */
static int
arguments_of(const Source *source, Access access, const Argument **arguments)
{
	*arguments = access == ACCESS_ID ? &id_argument : key_arguments;
	if (access == ACCESS_ID)
		return source->pkey != 0 ? 1 : 0;
	if (source != SOURCE_TASK)
		return 0;
	return access == ACCESS_OWNER ? 1 : access == ACCESS_KEY ? MAX_ARGUMENTS : 0;
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

/* Returns the argument of a call of this function, and NULL of any other expression. */
static Node *
argument_of(Node *node, Oid function)
{
	if (node == NULL || !IsA(node, FuncExpr) || ((FuncExpr *) node)->funcid != function)
		return NULL;
	return linitial(((FuncExpr *) node)->args);
}

/* True if the expression is the name of the role in this column, as the views show it. */
static bool
is_name_of_role(Node *node, RelOptInfo *rel, AttrNumber column)
{
	return is_column(argument_of(argument_of(node, F_TEXT_NAME), F_PG_GET_USERBYID), rel, column);
}

/* If the clause says that the column has the role of a given name, returns the name; else NULL. */
static Expr *
equal_to_name(PlannerInfo *root, RelOptInfo *rel, Expr *clause, AttrNumber column)
{
	OpExpr	   *op = (OpExpr *) clause;

	if (!is_opclause(clause) || list_length(op->args) != 2 ||
		(op->inputcollid != DEFAULT_COLLATION_OID && op->inputcollid != C_COLLATION_OID) ||
		get_op_opfamily_strategy(op->opno, TEXT_BTREE_FAM_OID) != BTEqualStrategyNumber)
		return NULL;
	for (int i = 0; i < 2; i++)
	{
		Node	   *other = list_nth(op->args, 1 - i);

		if (is_name_of_role(list_nth(op->args, i), rel, column) &&
			!bms_is_member(rel->relid, pull_varnos(root, other)) &&
			!contain_volatile_functions(other))
			return (Expr *) other;
	}
	return NULL;
}

/*
 * If the clause says that the argument's column is equal to an expression that needs no
 * row of this table, returns the expression; else NULL.  With arrays, it may be an array
 * of which the column is equal to one element.
 */
static Expr *
equal_to(PlannerInfo *root, RelOptInfo *rel, Expr *clause, const Argument *argument,
		 bool arrays)
{
	bool		is_array = IsA(clause, ScalarArrayOpExpr) && ((ScalarArrayOpExpr *) clause)->useOr;
	List	   *args;
	Oid			operator;
	Oid			collation;
	Oid			left;
	Oid			right;

	if (is_array && arrays)
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

	for (int i = 0; i < (is_array ? 1 : 2); i++)
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
 * missing.  Only an id can be given as an array.  The relations in the clauses that were
 * used are added to *relids.
 */
static List *
find_arguments(PlannerInfo *root, RelOptInfo *rel, const Source *source, Access access,
			   List *clauses, Relids *relids)
{
	const Argument *arguments;
	int			n = arguments_of(source, access, &arguments);
	List	   *found = NIL;

	for (int i = 0; i < n; i++)
	{
		ListCell   *lc;

		foreach(lc, clauses)
		{
			RestrictInfo *info = lfirst_node(RestrictInfo, lc);
			Expr	   *expr = equal_to(root, rel, info->clause, &arguments[i],
										access == ACCESS_ID);

			if (expr == NULL && arguments[i].type == OIDOID)
				expr = equal_to_name(root, rel, info->clause, arguments[i].column);
			if (expr == NULL)
				continue;
			found = lappend(found, expr);
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
	Relids		relids = NULL;

	return find_arguments(root, rel, source, access, rel->baserestrictinfo, &relids) != NIL;
}

/*
 * GetForeignRelSize: estimates by the sizes of our tables, which any user can look up.
 * Conditions are estimated without statistics, which would tell about hidden rows.
 */
static void
get_size(PlannerInfo *root, RelOptInfo *rel, Oid foreign_table)
{
	const Source *source = table_behind(foreign_table);

	rel->pages = 0;
	rel->tuples = 0;
	for (int i = 0; i < source->ntables; i++)
	{
		Relation	table = table_open(oids_at(source->tables)[i], AccessShareLock);
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

/* Adds a path for the access in the order of the source's index, if the query has use for it. */
static void
add_ordered(PlannerInfo *root, RelOptInfo *rel, const Source *source, Access access, Cost cost)
{
	List	   *pathkeys = NIL;

	for (int i = 0; i < lengthof(source->order) && source->order[i] != 0; i++)
	{
		TypeCacheEntry *type = lookup_type_cache(source->types[i],
												 TYPECACHE_LT_OPR | TYPECACHE_GT_OPR);
		Var		   *var = makeVar(rel->relid, source->order[i], source->types[i], -1, InvalidOid, 0);
		List	   *pathkey = dw_build_expression_pathkey(root, (Expr *) var,
														  access == ACCESS_BACKWARD ?
														  type->gt_opr : type->lt_opr,
														  rel->relids);

		/* the query has no use for this column's order */
		if (pathkey == NIL)
			break;
		pathkeys = list_concat(pathkeys, pathkey);
	}
	if (pathkeys != NIL)
		add_access(root, rel, access, rel->rows, cost, pathkeys, rel->lateral_relids);
}

/* The arguments of an access, for is_column_of_scan(). */
typedef struct Wanted
{
	const Argument *arguments;
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

	wanted.n = arguments_of(source, access, &wanted.arguments);
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
		Relids		outer = NULL;
		bool		again = false;
		ListCell   *other;

		if (find_arguments(root, rel, source, access, (List *) lfirst(lc), &outer) == NIL)
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
	Cost		cost_in_order = rel->pages * random_page_cost + cost_of_rows +
		rel->tuples * cpu_index_tuple_cost;

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
	add_ordered(root, rel, source, ACCESS_FORWARD, cost_in_order);
	add_ordered(root, rel, source, ACCESS_BACKWARD, cost_in_order);
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
	Relids		relids = NULL;

	return make_foreignscan(tlist, extract_actual_clauses(clauses, false), rel->relid,
							find_arguments(root, rel, source, access, clauses, &relids),
							path->fdw_private, NIL, NIL, outer_plan);
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

	while ((tuple = systable_getnext(roles)) != NULL)
	{
		Oid			role = ((Form_pg_authid) GETSTRUCT(tuple))->oid;

		CHECK_FOR_INTERRUPTS();
		if (has_privs_of_role(scan->reader, role))
			scan->owners = lappend_oid(scan->owners, role);
	}
	systable_endscan(roles);
	table_close(rel, AccessShareLock);
	MemoryContextSwitchTo(before);
}

/* True if the reader is a member of a role in this array of the queue in scan->slot. */
static bool
is_named_for(const RowScan *scan, AttrNumber column)
{
	bool		isnull;
	Datum		roles = slot_getattr(scan->slot, column, &isnull);
	ArrayType  *array = isnull ? NULL : DatumGetArrayTypeP(roles);

	if (isnull || ARR_HASNULL(array))
		return false;
	for (int i = 0; i < ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)); i++)
	{
		Oid			role = ((Oid *) ARR_DATA_PTR(array))[i];

		if (role == InvalidOid || has_privs_of_role(scan->reader, role))
			return true;
	}
	return false;
}

/* True if the reader may schedule into the queue in scan->slot, or receive from it. */
static bool
may_use_queue(const RowScan *scan)
{
	return is_named_for(scan, Anum_queue_users) || is_named_for(scan, Anum_queue_receivers);
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
	return scan->last_may || (scan->source == SOURCE_QUEUE && may_use_queue(scan));
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
	Oid			index = index_of(scan);
	int			nkeys = scan->narguments;

	scan->rel = table_open(oids_at(scan->source->tables)[scan->source->ntables > 1 ? scan->part : 0],
						   AccessShareLock);
	scan->slot = MakeSingleTupleTableSlot(RelationGetDescr(scan->rel), &TTSOpsHeapTuple);
	if (!OidIsValid(index))
	{
		scan->rows = systable_beginscan(scan->rel, InvalidOid, false, snapshot, 0, NULL);
		return;
	}
	if (scan->access == ACCESS_ALL)
	{
		ScanKeyInit(&scan->keys[0], Anum_task_owner, BTEqualStrategyNumber, F_OIDEQ,
					ObjectIdGetDatum(list_nth_oid(scan->owners, scan->part)));
		nkeys = 1;
	}
	scan->index = index_open(index, AccessShareLock);
	scan->rows = systable_beginscan_ordered(scan->rel, scan->index, snapshot, nkeys, scan->keys);
}

/* Ends a part, if one has begun. */
static void
end_part(RowScan *scan)
{
	if (scan->rel == NULL)
		return;
	ExecDropSingleTupleTableSlot(scan->slot);
	if (scan->index == NULL)
		systable_endscan(scan->rows);
	else
	{
		systable_endscan_ordered(scan->rows);
		index_close(scan->index, NoLock);
	}
	table_close(scan->rel, NoLock);
	scan->index = NULL;
	scan->rel = NULL;
}

/*
 * Returns the role that pg_get_userbyid() gives this name, which is a name or a text; a role
 * that was dropped has one, too.  InvalidOid if there is none.
 */
static Oid
role_named(Datum value, Oid type)
{
	char	   *name = type == NAMEOID ? NameStr(*DatumGetName(value)) : TextDatumGetCString(value);
	Oid			role = get_role_oid(name, true);

	if (!OidIsValid(role))
		(void) sscanf(name, "unknown (OID=%u)", &role);
	return role;
}

/*
 * Fills the scan keys from the arguments; false if a value is null, or names no role, so that
 * no row matches.
 */
static bool
evaluate_arguments(RowScan *scan, ExprContext *econtext)
{
	for (int i = 0; i < scan->narguments; i++)
	{
		const Argument *argument = &scan->arguments[i];
		Oid			type = exprType((Node *) scan->expressions[i]->expr);
		bool		isnull;
		Datum		value = ExecEvalExprSwitchContext(scan->expressions[i], econtext, &isnull);
		bool		is_array = OidIsValid(get_element_type(type));
		int16		length;
		bool		by_value;

		if (isnull)
			return false;
		if (argument->type == OIDOID && (type == NAMEOID || type == TEXTOID))
		{
			value = ObjectIdGetDatum(role_named(value, type));
			type = OIDOID;
			if (!OidIsValid(DatumGetObjectId(value)))
				return false;
		}
		/* the scan lasts longer than the context that expressions are evaluated in */
		get_typlenbyval(type, &length, &by_value);
		value = datumCopy(value, by_value, length);
		if (is_array)
			type = get_element_type(type);
		else if (argument->family != INTEGER_BTREE_FAM_OID)
			type = argument->type;	/* the type may be relabeled, as varchar for text */
		ScanKeyEntryInitialize(&scan->keys[i], is_array ? SK_SEARCHARRAY : 0, argument->column,
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
	scan->nparts = scan->source->ntables;
	if (scan->narguments > 0)
	{
		if (!evaluate_arguments(scan, node->ss.ps.ps_ExprContext) || !may_ask(scan))
			scan->nparts = 0;
	}
	else if (scan->source == SOURCE_TASK && scan->access == ACCESS_ALL && !scan->reads_all)
	{
		if (scan->owners == NIL)
			look_up_owners(scan);
		scan->nparts = list_length(scan->owners);
	}
	if (scan->nparts > 0)
		begin_part(scan, node->ss.ps.state->es_snapshot);
}

/* Ends the scan, and prepares it for another begin_row_scan(). */
static void
end_scan(RowScan *scan)
{
	end_part(scan);
	scan->begun = false;
	MemoryContextReset(scan->run);
}

/* Reads the next row of the part, readable or not, into scan->slot; false at the end. */
static bool
next_of_part(RowScan *scan)
{
	HeapTuple	tuple = scan->index == NULL ? systable_getnext(scan->rows) :
		systable_getnext_ordered(scan->rows, scan->access == ACCESS_BACKWARD ?
								 BackwardScanDirection : ForwardScanDirection);

	if (tuple != NULL)
		ExecStoreHeapTuple(tuple, scan->slot, false);
	return tuple != NULL;
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
	Relation	rel;

	node->fdw_state = scan;
	scan->source = table_behind(RelationGetRelid(node->ss.ss_currentRelation));
	scan->access = (Access) linitial_int(plan->fdw_private);
	/*
	 * The rights count at this moment, as PostgreSQL's own for tables do: a cursor may be
	 * read later by a function of another user.
	 */
	look_up_rights(scan);
	scan->context = CurrentMemoryContext;
	scan->run = AllocSetContextCreate(CurrentMemoryContext, "delay_wheel scan",
									  ALLOCSET_DEFAULT_SIZES);
	if (plan->fdw_exprs != NIL)
		scan->narguments = arguments_of(scan->source, scan->access, &scan->arguments);
	for (int i = 0; i < scan->narguments; i++)
		scan->expressions[i] = ExecInitExpr((Expr *) list_nth(plan->fdw_exprs, i),
											(PlanState *) node);
	rel = table_open(*oids_at(scan->source->tables), AccessShareLock);
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
