/*-------------------------------------------------------------------------
 *
 * ddl.c
 *	  Commands of others that delay_wheel must know of.
 *
 * A ProcessUtility hook, run by all backends, for
 *
 * CREATE EXTENSION delay_wheel: a timer is started when it has committed;
 * DROP DATABASE, CREATE DATABASE, ALTER DATABASE RENAME and SET TABLESPACE:
 * they need a database without sessions, so ours end before (hold.c);
 * commands for databases and roles: what they change is taken in when they
 * have committed (recycle.c);
 * DROP ROLE: the timers of all databases look for tasks of it;
 * SET CONSTRAINTS, TRUNCATE, COPY, ANALYZE, IMPORT FOREIGN SCHEMA: the task that
 * does so is the last one of its batch; SET CONSTRAINTS is refused in a session
 * that is not the task's own (restricted.c);
 * PREPARE TRANSACTION: the name is noted, for what the transaction touched
 * is written down under it (touched.c);
 * COMMIT PREPARED and ROLLBACK PREPARED: what the prepared transaction touched
 * is told to the timer when it has ended, by this one's own end; so is an
 * extension that it created;
 * CREATE RULE, CREATE TRIGGER, foreign keys, partitions, DEPENDS ON EXTENSION,
 * COMMENT and others: they wait for a lock before they look at rights, so who
 * lacks these is refused here;
 * CREATE TABLE for a shard of one of our tables: refused;
 * any: the history of tasks has the last one (history.c).
 *
 * The extension can be dropped in many ways (DROP OWNED, DROP SCHEMA CASCADE),
 * so that is noticed by an object access hook: the timer looks at what is left.
 *
 * Who is concerned by a command is found before it, since names may be gone
 * afterwards, and told when it has succeeded.  What must happen before, as holds,
 * looks at rights itself; what it disturbs, if the command then fails, goes on
 * by itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/twophase.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/parsenodes.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "../base/compat.h"
#include "../base/signature.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/committing.h"
#include "../shmem/lanes.h"
#include "../shmem/shared.h"
#include "../statement/restricted.h"
#include "../statement/spi_run.h"
#include "../task/my_session.h"
#include "../task/touched.h"
#include "ddl.h"
#include "hold.h"
#include "recycle.h"

static ProcessUtility_hook_type prev_process_utility = NULL;
static object_access_hook_type prev_object_access = NULL;

/*---- Two-phase commit ----*/

/*
 * The end of a prepared transaction gives its locks back before it can be told
 * of (see queues.c): what others have in memory is to hold no longer already.
 */
static void
raise_control(void)
{
	DwDatabase *db = dw_my_database();

	if (db != NULL)
		pg_atomic_fetch_add_u32(&db->control, 1);
}

/*
 * Whose is the prepared transaction with that xid, if it is one of this database
 * and the current user may end it?  Else InvalidOid.  Who names one that he may
 * not end fails, and is to make nobody read anything anew before that.  This is
 * what the view pg_prepared_xacts tells, without the many others.
 */
static Oid
who_prepared(TransactionId xid)
{
	Oid			owner = InvalidOid;

	LWLockAcquire(ProcArrayLock, LW_SHARED);
	for (int i = 0; i < max_prepared_xacts; i++)
		if (PreparedXactProcs[i].xid == xid && PreparedXactProcs[i].databaseId == MyDatabaseId)
			owner = PreparedXactProcs[i].roleId;
	LWLockRelease(ProcArrayLock);
	return superuser() || owner == GetUserId() ? owner : InvalidOid;
}

/*
 * The rows that a transaction wrote when it was prepared are seen dirty, since
 * it has not ended.  Whatever its end is, the lanes are looked at then: the
 * row locks of its cancels are gone in both cases.  Its xid is published, as a
 * commit would do, until the command is over.  False if there is no extension
 * (yet).
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
	TransactionId asked = InvalidTransactionId;
	TransactionId xid = InvalidTransactionId;
	Oid			whose = InvalidOid;

	if (!dw_catalog_lookup(&cat))
		return false;

	/* the prepared transaction itself may have locked or dropped the table */
	rel = ConditionalLockRelationOid(cat.prepared, AccessShareLock) &&
		ConditionalLockRelationOid(cat.prepared_gid_index, AccessShareLock) ?
		try_table_open(cat.prepared, NoLock) : NULL;
	if (rel == NULL)
	{
		dw_touch_all();
		dw_touch_control();
		raise_control();
		return true;
	}

	InitDirtySnapshot(dirty);
	ScanKeyEntryInitialize(&key, 0, Anum_prepared_gid, BTEqualStrategyNumber, InvalidOid,
						   C_COLLATION_OID, F_TEXTEQ, CStringGetTextDatum(gid));
	scan = systable_beginscan(rel, cat.prepared_gid_index, true, &dirty, 1, &key);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		TupleDesc	desc = RelationGetDescr(rel);
		bool		isnull;
		Oid			owner = DatumGetObjectId(heap_getattr(tuple, Anum_prepared_owner, desc, &isnull));
		int16		queue = DatumGetInt16(heap_getattr(tuple, Anum_prepared_queue, desc, &isnull));
		int16		priority = DatumGetInt16(heap_getattr(tuple, Anum_prepared_priority, desc, &isnull));
		TimestampTz due = DatumGetTimestampTz(heap_getattr(tuple, Anum_prepared_due, desc, &isnull));
		DwDatabase *db;
		DwLaneRef	lane;

		/* else it is of one that has ended, which has told */
		if (!TransactionIdIsValid(dirty.xmin))
			continue;
		if (dirty.xmin != asked)
			whose = who_prepared(dirty.xmin);
		asked = dirty.xmin;
		if (!OidIsValid(whose))
			continue;
		xid = asked;
		db = dw_my_database();
		/* plain SQL may have written it: nobody fills the lanes with those of others */
		if (db != NULL && OidIsValid(owner) && has_privs_of_role(whose, owner) &&
			dw_lane_enter(db, owner, queue, priority, &lane))
			dw_touch_lane(lane, due);
		else
			dw_touch_all();
		dw_touch_prepared();
	}
	systable_endscan(scan);
	UnlockRelationOid(cat.prepared_gid_index, AccessShareLock);
	table_close(rel, AccessShareLock);
	if (TransactionIdIsValid(xid))
	{
		raise_control();
		dw_ending_publish(xid);
	}
	return true;
}

static bool
is_end_of_prepared(const TransactionStmt *stmt)
{
	return stmt->kind == TRANS_STMT_COMMIT_PREPARED || stmt->kind == TRANS_STMT_ROLLBACK_PREPARED;
}

/* Returns whether the extension may come to be by this, unnamed. */
static bool
before_transaction_statement(TransactionStmt *stmt, bool top_level)
{
	if (stmt->kind == TRANS_STMT_PREPARE)
		dw_touched_prepare_as(stmt->gid);
	else if (is_end_of_prepared(stmt) && !IsInTransactionBlock(top_level))
		return !touch_what_was_prepared(stmt->gid) && stmt->kind == TRANS_STMT_COMMIT_PREPARED;
	return false;
}

/*---- Commands that need a database without sessions ----*/

static DefElem *
option_named(List *options, const char *name)
{
	ListCell   *lc;

	foreach(lc, options)
		if (strcmp(lfirst_node(DefElem, lc)->defname, name) == 0)
			return lfirst_node(DefElem, lc);
	return NULL;
}

static bool
may_create_databases(void)
{
	HeapTuple	role;
	bool		result;

	if (superuser())
		return true;
	role = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	result = HeapTupleIsValid(role) && ((Form_pg_authid) GETSTRUCT(role))->rolcreatedb;
	if (HeapTupleIsValid(role))
		ReleaseSysCache(role);
	return result;
}

static bool
is_template(Oid database)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	bool		result;

	result = HeapTupleIsValid(tuple) && ((Form_pg_database) GETSTRUCT(tuple))->datistemplate;
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return result;
}

/* Nobody makes us end who has not the right to the command. */
static void
hold_own_database(const char *name)
{
	Oid			database = get_database_oid(name, true);

	if (OidIsValid(database) && dw_owns_database(database, GetUserId()))
		dw_hold_database(database);
}

static void
hold_template(CreatedbStmt *stmt)
{
	DefElem    *option = option_named(stmt->options, "template");
	Oid			database;

	database = get_database_oid(option && option->arg ? defGetString(option) : "template1", true);
	if (OidIsValid(database) && may_create_databases() &&
		(is_template(database) || dw_owns_database(database, GetUserId())))
		dw_hold_database(database);
}

static void
hold_for(Node *statement, bool top_level)
{
	if (IsA(statement, RenameStmt))
	{
		RenameStmt *stmt = (RenameStmt *) statement;

		if (stmt->renameType == OBJECT_DATABASE)
			hold_own_database(stmt->subname);
		return;
	}

	/* the others are refused in a transaction block */
	if (IsInTransactionBlock(top_level))
		return;
	if (IsA(statement, DropdbStmt))
		hold_own_database(((DropdbStmt *) statement)->dbname);
	else if (IsA(statement, CreatedbStmt))
		hold_template((CreatedbStmt *) statement);
	else if (IsA(statement, AlterDatabaseStmt) &&
			 option_named(((AlterDatabaseStmt *) statement)->options, "tablespace"))
		hold_own_database(((AlterDatabaseStmt *) statement)->dbname);
}

/*---- Commands that wait for a lock before they look at rights ----*/

/*
 * Tables for large values have names, too; whose they are does not matter here,
 * since PostgreSQL itself refuses the same in the end.
 */
static bool
may_be_ours(Oid relation)
{
	Oid			schema = get_rel_namespace(relation);

	return schema == PG_TOAST_NAMESPACE || dw_is_our_schema(schema);
}

/*
 * A role that may not even read the table would get into the queue for its
 * lock that way.  Everybody who schedules or runs tasks would have to wait
 * behind it, for instance for the end of another session of that same role,
 * and long tasks would be put back for its sake (give_way.c).  PostgreSQL has
 * that with any table; ours belong to all who schedule.
 */
static void
refuse_lock(RangeVar *name, AclMode right)
{
	Oid			relation = name ? RangeVarGetRelid(name, NoLock, true) : InvalidOid;
	Oid			user = GetUserId();

	if (!OidIsValid(relation) || !may_be_ours(relation) || dw_owns_relation(relation, user))
		return;
	if (right == ACL_NO_RIGHTS)
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(get_rel_relkind(relation)),
					   get_rel_name(relation));
	/* rights to columns only are the command's business */
	if (pg_class_aclcheck(relation, user, right) != ACLCHECK_OK &&
		pg_attribute_aclcheck_all(relation, user, right, ACLMASK_ANY) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(get_rel_relkind(relation)),
					   get_rel_name(relation));
}

/* What the foreign keys among these constraints refer to. */
static void
refuse_references(List *constraints)
{
	ListCell   *lc;

	foreach(lc, constraints)
	{
		Constraint *constraint = lfirst(lc);

		if (IsA(constraint, Constraint) && constraint->contype == CONSTR_FOREIGN)
			refuse_lock(constraint->pktable, ACL_REFERENCES);
	}
}

static void
refuse_locks_of_alter(AlterTableStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_AddConstraint)
			refuse_references(list_make1(cmd->def));
		else if (cmd->subtype == AT_AddColumn)
			refuse_references(castNode(ColumnDef, cmd->def)->constraints);
		else if (cmd->subtype == AT_AddInherit)
			refuse_lock(castNode(RangeVar, cmd->def), ACL_NO_RIGHTS);
		else if (cmd->def && IsA(cmd->def, PartitionCmd))
			refuse_lock(((PartitionCmd *) cmd->def)->name, ACL_NO_RIGHTS);
	}
}

/* What a command names by the kind of object and a list of names. */
static void
refuse_lock_on(ObjectType type, Node *object)
{
	List	   *names;

	switch (type)
	{
		case OBJECT_TABLE:
		case OBJECT_FOREIGN_TABLE:
		case OBJECT_INDEX:
		case OBJECT_MATVIEW:
		case OBJECT_SEQUENCE:
		case OBJECT_VIEW:
			names = castNode(List, object);
			break;
		case OBJECT_COLUMN:
			names = list_copy(castNode(List, object));
			names = list_truncate(names, list_length(names) - 1);
			break;
		default:
			return;
	}
	if (names != NIL)
		refuse_lock(makeRangeVarFromNameList(names), ACL_NO_RIGHTS);
}

static void
refuse_publication(List *objects)
{
	ListCell   *lc;

	foreach(lc, objects)
	{
		PublicationObjSpec *object = lfirst_node(PublicationObjSpec, lc);

		if (object->pubtable)
			refuse_lock(object->pubtable->relation, ACL_NO_RIGHTS);
	}
}

static void
refuse_relations(List *relations)
{
	ListCell   *lc;

	foreach(lc, relations)
		if (IsA(lfirst(lc), RangeVar))
			refuse_lock(lfirst(lc), ACL_NO_RIGHTS);
}

/*
 * Citus, told to distribute a table of ours, makes its shards.  What scheduling
 * and running tasks go by is the table itself, so all would look distributed,
 * and be wrong.  A shard has the name of its table, and a number.
 */
static void
refuse_shard(const RangeVar *name)
{
	const char *number = strrchr(name->relname, '_');
	Oid			table;

	if (creating_extension || name->schemaname == NULL ||
		!dw_is_our_schema(get_namespace_oid(name->schemaname, true)) || number == NULL ||
		number[1] == '\0' || number[1 + strspn(number + 1, "0123456789")] != '\0')
		return;
	table = get_relname_relid(pnstrdup(name->relname, number - name->relname),
							  get_namespace_oid(name->schemaname, true));
	if (OidIsValid(table) &&
		getExtensionOfObject(RelationRelationId, table) == get_extension_oid("delay_wheel", true))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" of delay_wheel cannot be distributed", get_rel_name(table)),
				 errhint("Tables of delay_wheel are local to each node, as its tasks are.")));
}

static void
refuse_locks(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_RuleStmt:
			refuse_lock(((RuleStmt *) statement)->relation, ACL_NO_RIGHTS);
			break;
		case T_CreateTrigStmt:
			refuse_lock(((CreateTrigStmt *) statement)->relation, ACL_TRIGGER);
			break;
		case T_AlterTableStmt:
			refuse_locks_of_alter((AlterTableStmt *) statement);
			break;
		case T_CreateStmt:
		case T_CreateForeignTableStmt:
			refuse_shard(((CreateStmt *) statement)->relation);
			/* its foreign keys come as ALTER TABLE */
			refuse_relations(((CreateStmt *) statement)->inhRelations);
			break;
		case T_AlterObjectDependsStmt:
			/* of a trigger, too */
			refuse_lock(((AlterObjectDependsStmt *) statement)->relation, ACL_NO_RIGHTS);
			break;
			/* from here on locks that stop autovacuum only */
		case T_CommentStmt:
			refuse_lock_on(((CommentStmt *) statement)->objtype, ((CommentStmt *) statement)->object);
			break;
		case T_SecLabelStmt:
			refuse_lock_on(((SecLabelStmt *) statement)->objtype, ((SecLabelStmt *) statement)->object);
			break;
		case T_AlterExtensionContentsStmt:
			refuse_lock_on(((AlterExtensionContentsStmt *) statement)->objtype,
						   ((AlterExtensionContentsStmt *) statement)->object);
			break;
		case T_CreateStatsStmt:
			refuse_relations(((CreateStatsStmt *) statement)->relations);
			break;
		case T_CreatePublicationStmt:
			refuse_publication(((CreatePublicationStmt *) statement)->pubobjects);
			break;
		case T_AlterPublicationStmt:
			refuse_publication(((AlterPublicationStmt *) statement)->pubobjects);
			break;
		default:
			break;
	}
}

/*---- Commands that change what a login would find ----*/

/*
 * GRANT by somebody without grant options is a warning only, if the database
 * grants him anything; ALTER DATABASE OWNER TO its owner is nobody's error.
 */
static List *
concern_database(const char *name, bool allowed_by_grant, bool settings)
{
	Oid			database = get_database_oid(name, true);
	Oid			user = GetUserId();

	if (!OidIsValid(database) ||
		!(dw_owns_database(database, user) ||
		  (allowed_by_grant &&
		   dw_database_aclcheck(database, user, ACL_GRANT_OPTION_FOR(ACL_ALL_RIGHTS_DATABASE)) == ACLCHECK_OK)))
		return NIL;
	return dw_concern(NIL, database, InvalidOid, settings);
}

static List *
concern_roles(List *concerns, List *roles, bool members)
{
	ListCell   *lc;

	foreach(lc, roles)
	{
		Oid			role = get_rolespec_oid(lfirst_node(RoleSpec, lc), true);

		if (!OidIsValid(role))
			continue;
		concerns = members ? dw_concern_members(concerns, role) :
			dw_concern(concerns, InvalidOid, role, false);
	}
	return concerns;
}

static List *
concern_role(AlterRoleStmt *stmt)
{
	DefElem    *members = option_named(stmt->options, "rolemembers");
	List	   *concerns;

	/* from 16 on, everybody may change nothing */
	if (stmt->options == NIL)
		return NIL;
	concerns = concern_roles(NIL, list_make1(stmt->role), false);
	return members ? concern_roles(concerns, (List *) members->arg, true) : concerns;
}

static List *
concern_settings(AlterRoleSetStmt *stmt)
{
	Oid			role = stmt->role ? get_rolespec_oid(stmt->role, true) : InvalidOid;
	Oid			database = stmt->database ? get_database_oid(stmt->database, true) : InvalidOid;

	if ((stmt->role && !OidIsValid(role)) || (stmt->database && !OidIsValid(database)))
		return NIL;
	return dw_concern(NIL, database, role, true);
}

static List *
concern_grant(GrantStmt *stmt)
{
	List	   *concerns = NIL;
	ListCell   *lc;

	if (stmt->objtype == OBJECT_DATABASE)
		foreach(lc, stmt->objects)
			concerns = list_concat(concerns, concern_database(strVal(lfirst(lc)), true, false));
	return concerns;
}

/* Whom the command concerns, if it succeeds. */
static List *
concerned_by(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_AlterRoleStmt:
			return concern_role((AlterRoleStmt *) statement);
		case T_AlterRoleSetStmt:
			return concern_settings((AlterRoleSetStmt *) statement);
		case T_DropRoleStmt:
			return concern_roles(NIL, ((DropRoleStmt *) statement)->roles, false);
		case T_GrantRoleStmt:
			return concern_roles(NIL, ((GrantRoleStmt *) statement)->grantee_roles, true);
		case T_GrantStmt:
			return concern_grant((GrantStmt *) statement);
		case T_DropOwnedStmt:
			/* what was granted to them on the database, too */
			return concern_roles(NIL, ((DropOwnedStmt *) statement)->roles, true);
		case T_AlterOwnerStmt:
			if (((AlterOwnerStmt *) statement)->objectType != OBJECT_DATABASE)
				return NIL;
			return concern_database(strVal(((AlterOwnerStmt *) statement)->object), false, false);
		case T_AlterDatabaseSetStmt:
			return concern_database(((AlterDatabaseSetStmt *) statement)->dbname, false, true);
		case T_AlterDatabaseStmt:
			return concern_database(((AlterDatabaseStmt *) statement)->dbname, false, false);
		default:
			return NIL;
	}
}

/*
 * SET CONSTRAINTS cannot be undone before the next task of a batch.  The others
 * may work on foreign tables, as queries do (other_nodes.c).
 */
static bool
closes_batch(Node *statement)
{
	return IsA(statement, ConstraintsSetStmt) || IsA(statement, TruncateStmt) ||
		IsA(statement, CopyStmt) || IsA(statement, VacuumStmt) ||
		IsA(statement, ImportForeignSchemaStmt);
}

static bool
changes_databases(Node *statement)
{
	return IsA(statement, AlterDatabaseStmt) || IsA(statement, CreatedbStmt) ||
		IsA(statement, DropdbStmt);
}

/*---- Roles that are dropped ----*/

typedef struct Dropped
{
	char	   *role;
	bool		here;			/* has tasks in this database */
	bool		elsewhere;		/* may have some in others */
} Dropped;

static bool
has_tasks_here(Oid role)
{
	DwCatalog	cat;
	Relation	rel;
	bool		result;

	if (!dw_catalog_lookup(&cat) || !ConditionalLockRelationOid(cat.task, AccessShareLock))
		return false;
	rel = table_open(cat.task, NoLock);
	result = dw_task_of_owner(rel, cat.task_lane_index, role);
	table_close(rel, AccessShareLock);
	return result;
}

/* What to say when the roles are gone. */
static List *
look_for_tasks(List *roles)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, roles)
	{
		Oid			role = get_rolespec_oid(lfirst_node(RoleSpec, lc), true);
		Dropped    *dropped;

		if (!OidIsValid(role))
			continue;
		dropped = palloc(sizeof(Dropped));
		dropped->role = GetUserNameFromId(role, false);
		dropped->here = has_tasks_here(role);
		dropped->elsewhere = dw_owner_has_tasks_elsewhere(role);
		result = lappend(result, dropped);
	}
	return result;
}

static void
tell_of_tasks(List *roles)
{
	ListCell   *lc;

	foreach(lc, roles)
	{
		Dropped    *dropped = lfirst(lc);

		if (dropped->here)
			ereport(NOTICE,
					(errcode(ERRCODE_WARNING),
					 errmsg("role \"%s\" has pending delay_wheel tasks", dropped->role),
					 errdetail("They will be moved to delay_wheel.failed.")));
		else if (dropped->elsewhere)
			ereport(NOTICE,
					(errcode(ERRCODE_WARNING),
					 errmsg("role \"%s\" may have pending delay_wheel tasks in other databases", dropped->role),
					 errdetail("They will be moved to delay_wheel.failed there.")));
	}
}

/*---- SET CONSTRAINTS ----*/

/*
 * The command concerns what the whole transaction has done, and fires triggers
 * for that.  A session that runs another role's task has not left it to that
 * task when triggers of its own fire.
 */
static void
refuse_set_constraints(void)
{
	if (dw_is_restricted())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot execute %s within security-restricted operation", "SET CONSTRAINTS")));
}

/*---- The hooks ----*/

/* By its name, or as one that another extension needs. */
static bool
may_create_extension(Node *statement)
{
	CreateExtensionStmt *stmt = (CreateExtensionStmt *) statement;

	return IsA(statement, CreateExtensionStmt) &&
		(strcmp(stmt->extname, "delay_wheel") == 0 || option_named(stmt->options, "cascade"));
}

static void
process_utility(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *query_env, DestReceiver *dest, QueryCompletion *qc)
{
	Node	   *statement = pstmt->utilityStmt;
	/* the tree may be gone after the command: COMMIT frees much */
	bool		may_create = may_create_extension(statement);
	CommandTag	tag = CreateCommandTag(statement);
	bool		changes = changes_databases(statement);
	bool		drops = IsA(statement, DropRoleStmt);
	bool		was_prepared = false;
	bool		ends_prepared = false;
	List	   *dropped_roles = NIL;
	List	   *concerns = NIL;
	DwCatalog	cat;

	if (IsA(statement, TransactionStmt))
	{
		was_prepared = before_transaction_statement((TransactionStmt *) statement,
													context == PROCESS_UTILITY_TOPLEVEL);
		ends_prepared = is_end_of_prepared((TransactionStmt *) statement);
	}
	else
	{
		/* who cannot drop them is not to learn from statistics what was found */
		if (drops && has_createrole_privilege(GetUserId()))
			dropped_roles = look_for_tasks(((DropRoleStmt *) statement)->roles);
		if (IsA(statement, ConstraintsSetStmt))
			refuse_set_constraints();
		if (closes_batch(statement))
			dw_batch_close();
		refuse_locks(statement);
		concerns = concerned_by(statement);
		hold_for(statement, context == PROCESS_UTILITY_TOPLEVEL);
	}

	if (prev_process_utility)
		prev_process_utility(pstmt, query_string, read_only_tree, context, params,
							 query_env, dest, qc);
	else
		standard_ProcessUtility(pstmt, query_string, read_only_tree, context, params,
								query_env, dest, qc);
	dw_spi_note_utility(tag, qc);
	if (ends_prepared)
		dw_ending_withdraw();

	/* hear of what the prepared transaction has brought along */
	if (was_prepared)
		AcceptInvalidationMessages();
	if ((may_create || was_prepared) && dw_catalog_lookup(&cat))
		dw_touch_extension();
	dw_recycle(concerns);
	if (changes)
		dw_recycle_databases();
	if (drops)
		dw_touch_roles();
	tell_of_tasks(dropped_roles);
}

static void
object_access(ObjectAccessType access, Oid class, Oid object, int sub, void *arg)
{
	if (prev_object_access)
		prev_object_access(access, class, object, sub, arg);
	if (access == OAT_DROP && class == ExtensionRelationId &&
		object == get_extension_oid("delay_wheel", true))
	{
		dw_touch_all();
		/* the queues and pauses of another one, created at once, are others */
		dw_touch_control();
	}
}

void
dw_ddl_install(void)
{
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
	prev_object_access = object_access_hook;
	object_access_hook = object_access;
}
