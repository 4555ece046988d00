/*-------------------------------------------------------------------------
 *
 * ddl.c
 *	  SQL commands of users that delay_wheel must act on.
 *
 * Run by all backends.  A ProcessUtility hook handles these commands:
 *
 * - CREATE EXTENSION delay_wheel: the launcher starts a timer after the commit.
 * - DROP DATABASE, CREATE DATABASE, ALTER DATABASE RENAME and SET TABLESPACE: these need a database
 *   without sessions, so our workers must end first (hold.c).
 * - Commands that change rights or settings for logins: executors and timers are restarted after
 *   the commit (recycle.c).
 * - DROP ROLE: the timers of all databases look for tasks of the role.
 * - SET CONSTRAINTS, TRUNCATE, COPY, ANALYZE, IMPORT FOREIGN SCHEMA: a task that runs such a
 *   command is the last task of its batch.  SET CONSTRAINTS is refused in code of another role's
 *   type (statement/args.c).
 * - PREPARE TRANSACTION: the hook notes the name.  The transaction records its changes under this
 *   name (task/touched.c).
 * - COMMIT PREPARED and ROLLBACK PREPARED: the backend informs the timer of the prepared
 *   transaction's changes, or the launcher if the transaction created the extension.
 * - CREATE TABLE for a shard of one of our tables: refused.
 * - GRANT of the role delay_wheel_user: the role gets the right to use delay_wheel (task/allow.c).
 * - Any command: the hook notes a task's last command for the history (statement/plans.c).
 *
 * The extension can be dropped in many ways (DROP OWNED, DROP SCHEMA CASCADE).  An object access
 * hook notices a drop, and the timer looks at the tables again.
 *
 * Before a command, the hook finds the databases and roles that the command concerns, since
 * afterwards their names may not exist.  The hook notes them after the command has succeeded.  A
 * hold must begin before the command, so the hook checks the user's rights itself.  If the command
 * then fails, the ended workers are started again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/twophase.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "nodes/parsenodes.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "../backend/backend.h"
#include "../base/signature.h"
#include "../shmem/shared.h"
#include "../statement/statement.h"
#include "control.h"

static ProcessUtility_hook_type prev_process_utility = NULL;
static object_access_hook_type prev_object_access = NULL;

/*---- Two-phase commit ----*/

/*
 * Makes all processes read queues, pauses and marks again (task/queues.c, task/marks.c).
 *
 * Called before COMMIT PREPARED and ROLLBACK PREPARED.  These commands release the transaction's
 * locks before this backend can report the changes, and other processes must invalidate their
 * copies earlier.
 */
static void
raise_control(void)
{
	DwDatabase *db = dw_my_database();

	if (db != NULL)
		dw_control_raise(&db->timer_news);
}

/*
 * Returns the owner of the prepared transaction with this xid; InvalidOid if it belongs to another
 * database, or if the current user may not end it.  Then the command fails, and must not make other
 * processes read tables again.
 *
 * The view pg_prepared_xacts is not used, since it reads all prepared transactions.
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

/* Notes the change in a row of delay_wheel_data.prepared. whose: the owner of the transaction. */
static void
touch_prepared_row(Relation rel, HeapTuple tuple, Oid whose)
{
	Oid			owner = DatumGetObjectId(dw_row_column(rel, tuple, Anum_prepared_owner));
	int16		queue = DatumGetInt16(dw_row_column(rel, tuple, Anum_prepared_queue));
	int16		priority = DatumGetInt16(dw_row_column(rel, tuple, Anum_prepared_priority));
	TimestampTz due = DatumGetTimestampTz(dw_row_column(rel, tuple, Anum_prepared_due));

	/*
	 * check the owner, since plain SQL can write such rows: a role must not fill the places for
	 * lanes with other roles' lanes
	 */
	if (OidIsValid(owner) && has_privs_of_role(whose, owner))
		dw_touch_lane(dw_lane_if_any(owner, queue, priority), due);
	else
		dw_touch(DW_ALL_TOUCHED);
	dw_touch(DW_PREPARED_ENDED);
}

/*
 * Called before COMMIT PREPARED and ROLLBACK PREPARED.  Notes all changes of the prepared
 * transaction as changes of this backend's own transaction, whose end informs the timer.  Returns
 * false if the database has no extension (yet).
 *
 * The prepared transaction has not ended yet, so its rows are read with a dirty snapshot.  A commit
 * or rollback releases its row locks, so the timer must look at its lanes.  During the command, its
 * xid is published, as for a commit (shmem/published.c).
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
		dw_touch(DW_ALL_TOUCHED);
		dw_touch(DW_CONTROL_CHANGED);
		raise_control();
		return true;
	}

	InitDirtySnapshot(dirty);
	ScanKeyEntryInitialize(&key, 0, Anum_prepared_gid, BTEqualStrategyNumber, InvalidOid,
						   C_COLLATION_OID, F_TEXTEQ, CStringGetTextDatum(gid));
	scan = systable_beginscan(rel, cat.prepared_gid_index, true, &dirty, 1, &key);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		/* a row of an ended transaction, which has informed the timer */
		if (!TransactionIdIsValid(dirty.xmin))
			continue;
		if (dirty.xmin != asked)
			whose = who_prepared(dirty.xmin);
		asked = dirty.xmin;
		if (!OidIsValid(whose))
			continue;
		xid = asked;
		touch_prepared_row(rel, tuple, whose);
	}
	systable_endscan(scan);
	UnlockRelationOid(cat.prepared_gid_index, AccessShareLock);
	table_close(rel, AccessShareLock);
	if (TransactionIdIsValid(xid))
	{
		raise_control();
		dw_xid_publish(DW_COMMITTING, xid);
	}
	return true;
}

/* Returns true for COMMIT PREPARED and ROLLBACK PREPARED. */
static bool
is_end_of_prepared(const TransactionStmt *stmt)
{
	return stmt->kind == TRANS_STMT_COMMIT_PREPARED || stmt->kind == TRANS_STMT_ROLLBACK_PREPARED;
}

/*
 * Handles PREPARE TRANSACTION, COMMIT PREPARED and ROLLBACK PREPARED before they are executed.
 * Returns true if the command may create the extension: COMMIT PREPARED in a database without the
 * extension.
 */
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

/* Returns the command's option with this name, or NULL. */
static DefElem *
option_named(List *options, const char *name)
{
	ListCell   *lc;

	foreach(lc, options)
		if (strcmp(lfirst_node(DefElem, lc)->defname, name) == 0)
			return lfirst_node(DefElem, lc);
	return NULL;
}

/* Returns true if the current user may create databases. */
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

/* Returns true if the database is marked as a template. */
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

/*
 * Holds the database for a command that only its owner may execute.  Does nothing if the user does
 * not own the database: then the command fails, and our workers must not end.
 */
static void
hold_own_database(const char *name)
{
	Oid			database = get_database_oid(name, true);

	if (OidIsValid(database) && dw_owns_database(database, GetUserId()))
		dw_hold_database(database);
}

/* Holds the database that CREATE DATABASE copies, if the user may copy it. */
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

/* Holds the database if the command needs a database without sessions. */
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

	/* in a transaction block, PostgreSQL refuses the other commands */
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

/*---- Shards ----*/

/*
 * Raises an error if Citus is about to create a shard of one of our tables (the name of the table,
 * then _ and a number).  Each node schedules and runs only the tasks of its local table, so a
 * distributed table would be wrong.
 */
static void
refuse_shard(const RangeVar *name)
{
	const char *number = strrchr(name->relname, '_');
	Oid			schema;
	Oid			table;

	if (creating_extension || name->schemaname == NULL)
		return;
	schema = get_namespace_oid(name->schemaname, true);
	if (!dw_is_our_schema(schema))
		return;
	/* before this, Citus may create a table with the name of our table on the other nodes */
	table = get_relname_relid(name->relname, schema);
	if (!OidIsValid(table) && number != NULL && number[1] != '\0' &&
		number[1 + strspn(number + 1, "0123456789")] == '\0')
		table = get_relname_relid(pnstrdup(name->relname, number - name->relname), schema);
	if (OidIsValid(table) &&
		getExtensionOfObject(RelationRelationId, table) == get_extension_oid("delay_wheel", true))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" of delay_wheel cannot be distributed", get_rel_name(table)),
				 errhint("Each node has its own tasks and its own tables of delay_wheel.")));
}

/*---- Commands that change rights and settings of logins ----*/

/*
 * Returns the concerns of a command on a database; NIL if the user may not execute the command.
 *
 * The rights are checked here, since PostgreSQL raises no error in two cases: GRANT by a user
 * without grant options only warns, if the user has any right on the database.  Every user may
 * execute ALTER DATABASE OWNER TO the present owner.
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
	return dw_concern(NIL, database, InvalidOid, settings, DW_STALE_END);
}

/* Adds the concerns of a command on roles, and, if members is true, on their members. */
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
			dw_concern(concerns, InvalidOid, role, false, DW_STALE_END);
	}
	return concerns;
}

/* Returns the concerns of ALTER ROLE, or ALTER GROUP. */
static List *
concern_role(AlterRoleStmt *stmt)
{
	DefElem    *members = option_named(stmt->options, "rolemembers");
	List	   *concerns;

	/* since PostgreSQL 16, every user may execute ALTER ROLE without options */
	if (stmt->options == NIL)
		return NIL;
	concerns = concern_roles(NIL, list_make1(stmt->role), false);
	return members ? concern_roles(concerns, (List *) members->arg, true) : concerns;
}

/* Returns the concerns of ALTER ROLE ... SET. */
static List *
concern_settings(AlterRoleSetStmt *stmt)
{
	Oid			role = stmt->role ? get_rolespec_oid(stmt->role, true) : InvalidOid;
	Oid			database = stmt->database ? get_database_oid(stmt->database, true) : InvalidOid;

	if ((stmt->role && !OidIsValid(role)) || (stmt->database && !OidIsValid(database)))
		return NIL;
	return dw_concern(NIL, database, role, true, DW_STALE_END);
}

/* Returns the concerns of GRANT and REVOKE on databases. */
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

/*
 * Returns the concerns of a command: a list, for dw_recycle(), of databases and roles whose logins
 * change if the command succeeds.
 */
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
			/* also revokes the roles' rights on the database */
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

/*---- Other commands ----*/

/*
 * Returns true if a task that executes this command must be the last task of its batch.  SET
 * CONSTRAINTS cannot be undone before the next task of the batch.  The other commands may use
 * foreign tables, as queries do (task/other_nodes.c).
 */
static bool
closes_batch(Node *statement)
{
	return IsA(statement, ConstraintsSetStmt) || IsA(statement, TruncateStmt) ||
		IsA(statement, CopyStmt) || IsA(statement, VacuumStmt) ||
		IsA(statement, ImportForeignSchemaStmt);
}

/*---- Roles that are dropped ----*/

/*
 * Returns true if the role has tasks in this database, with any origin.  Does not wait: returns
 * false if the table is locked.
 */
static bool
has_tasks_here(Oid role)
{
	DwCatalog	cat;
	Relation	rel = dw_catalog_lookup(&cat) ? dw_open_if_free(cat.task) : NULL;
	ScanKeyData key;
	SysScanDesc scan;
	bool		result;

	if (rel == NULL)
		return false;
	ScanKeyInit(&key, Anum_task_owner, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(role));
	scan = systable_beginscan(rel, cat.task_lane_index, true, NULL, 1, &key);
	result = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return result;
}

/*
 * Finds those of the roles that have tasks in this database, or may have tasks in other databases.
 * Called before DROP ROLE.
 */
static void
look_for_tasks(List *roles, List **here, List **elsewhere)
{
	ListCell   *lc;

	foreach(lc, roles)
	{
		Oid			role = get_rolespec_oid(lfirst_node(RoleSpec, lc), true);

		if (!OidIsValid(role))
			continue;
		if (has_tasks_here(role))
			*here = lappend(*here, GetUserNameFromId(role, false));
		else if (dw_owner_has_tasks_elsewhere(role))
			*elsewhere = lappend(*elsewhere, GetUserNameFromId(role, false));
	}
}

/* Warns the user, after DROP ROLE, that dropped roles had tasks. */
static void
tell_of_tasks(List *here, List *elsewhere)
{
	ListCell   *lc;

	foreach(lc, here)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("role \"%s\" has pending delay_wheel tasks", (char *) lfirst(lc)),
				 errdetail("The tasks will be moved to delay_wheel.failed.")));
	foreach(lc, elsewhere)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("role \"%s\" may have pending delay_wheel tasks in other databases",
						(char *) lfirst(lc)),
				 errdetail("In these databases, the tasks will be moved to delay_wheel.failed.")));
}

/*
 * Raises an error while code of another role's type runs to read a value: SET CONSTRAINTS could
 * fire triggers for all changes of the transaction.
 */
static void
refuse_set_constraints(void)
{
	if (dw_reading_as > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot execute %s within security-restricted operation", "SET CONSTRAINTS")));
}

/* Returns true if the command makes roles members of the group. */
static bool
grants_group(Node *statement)
{
	ListCell   *lc;

	if (!IsA(statement, GrantRoleStmt) || !((GrantRoleStmt *) statement)->is_grant)
		return false;
	foreach(lc, ((GrantRoleStmt *) statement)->granted_roles)
	{
		const char *name = lfirst_node(AccessPriv, lc)->priv_name;

		if (name != NULL && strcmp(name, DW_GROUP) == 0)
			return true;
	}
	return false;
}

/*---- The hooks ----*/

/*
 * Returns true if CREATE EXTENSION names delay_wheel, or may create it by CASCADE for another
 * extension.
 */
static bool
may_create_extension(Node *statement)
{
	CreateExtensionStmt *stmt = (CreateExtensionStmt *) statement;

	return IsA(statement, CreateExtensionStmt) &&
		(strcmp(stmt->extname, "delay_wheel") == 0 || option_named(stmt->options, "cascade"));
}

/* The ProcessUtility hook. */
static void
process_utility(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *query_env, DestReceiver *dest, QueryCompletion *qc)
{
	Node	   *statement = pstmt->utilityStmt;
	/* read the parse tree before the command: some commands, such as COMMIT, may free it */
	bool		may_create = may_create_extension(statement);
	CommandTag	tag = CreateCommandTag(statement);
	bool		changes_databases = IsA(statement, AlterDatabaseStmt) ||
		IsA(statement, CreatedbStmt) || IsA(statement, DropdbStmt);
	bool		drops = IsA(statement, DropRoleStmt);
	bool		allows = grants_group(statement);
	bool		was_prepared = false;
	bool		ends_prepared = false;
	List	   *here = NIL;		/* dropped roles, by where they have tasks */
	List	   *elsewhere = NIL;
	List	   *concerns = NIL;
	DwCatalog	cat;
	DwReceiveWithin within;

	dw_open_queries_give_way();
	if (IsA(statement, TransactionStmt))
	{
		was_prepared = before_transaction_statement((TransactionStmt *) statement,
													context == PROCESS_UTILITY_TOPLEVEL);
		ends_prepared = is_end_of_prepared((TransactionStmt *) statement);
	}
	else
	{
		/*
		 * A user who cannot drop roles must not cause a search for tasks, since statistics of the
		 * table's index would show the result.
		 */
		if (drops && has_createrole_privilege(GetUserId()))
			look_for_tasks(((DropRoleStmt *) statement)->roles, &here, &elsewhere);
		if (IsA(statement, ConstraintsSetStmt))
			refuse_set_constraints();
		if (closes_batch(statement))
			dw_batch_is_closed = true;
		if (IsA(statement, CreateStmt) || IsA(statement, CreateForeignTableStmt))
			refuse_shard(((CreateStmt *) statement)->relation);
		concerns = concerned_by(statement);
		hold_for(statement, context == PROCESS_UTILITY_TOPLEVEL);
	}

	dw_first_row_forget(dest);
	within = dw_receive_enter(statement);
	PG_TRY();
	{
		if (prev_process_utility)
			prev_process_utility(pstmt, query_string, read_only_tree, context, params,
								 query_env, dest, qc);
		else
			standard_ProcessUtility(pstmt, query_string, read_only_tree, context, params,
									query_env, dest, qc);
	}
	PG_FINALLY();
	{
		dw_receive_within = within;
	}
	PG_END_TRY();
	dw_spi_note_utility(tag, qc);
	if (ends_prepared)
		dw_xid_withdraw(DW_COMMITTING);

	/* read catalog changes of the prepared transaction */
	if (was_prepared)
		AcceptInvalidationMessages();
	if ((may_create || was_prepared) && dw_catalog_lookup(&cat))
		dw_touch(DW_EXTENSION_CREATED);
	dw_recycle(concerns, changes_databases);
	if (drops)
		dw_touch(DW_ROLES_DROPPED);
	if (allows)
		dw_group_allow();
	tell_of_tasks(here, elsewhere);
}

/* The object access hook: notices that the extension is dropped. */
static void
object_access(ObjectAccessType access, Oid class, Oid object, int sub, void *arg)
{
	if (prev_object_access)
		prev_object_access(access, class, object, sub, arg);
	if (access == OAT_DROP && class == ExtensionRelationId &&
		object == get_extension_oid("delay_wheel", true))
	{
		dw_touch(DW_ALL_TOUCHED);
		/* queues and pauses no longer exist, even if the extension is created again at once */
		dw_touch(DW_CONTROL_CHANGED);
	}
}

/* Installs the hooks.  Called once by the postmaster. */
void
dw_ddl_install(void)
{
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
	prev_object_access = object_access_hook;
	object_access_hook = object_access;
}
