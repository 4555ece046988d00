/*-------------------------------------------------------------------------
 *
 * allow.c
 *	  delay_wheel.allow() and disallow(): the rights of applications.
 *
 * Run by sessions.
 *
 * There is one right: INSERT on the view delay_wheel.tasks (rights.c).  allow() grants this right,
 * and also grants USAGE on the schema of the functions to roles without it.  disallow() revokes the
 * right.  Both functions run with the rights of their caller.  Default privileges (ALTER DEFAULT
 * PRIVILEGES) could grant more rights to other roles; the install script revokes these rights.
 *
 * On Citus a role that schedules needs the right on all nodes, since triggers on shards fire there.
 * Citus copies roles and memberships to all nodes, even to later nodes, but copies no rights on
 * objects of an extension.  So on Citus allow() makes the role a member of a group,
 * delay_wheel_user.  On each node, the library grants the right to the group when the GRANT arrives
 * at the node (control/ddl.c), or when CREATE EXTENSION finds the group.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/signature.h"
#include "task.h"

PG_FUNCTION_INFO_V1(dw_allow);
PG_FUNCTION_INFO_V1(dw_disallow);
PG_FUNCTION_INFO_V1(dw_revoke_defaults);

/* Returns the role names of an array.  Raises an error if there is none, or one is null. */
static List *
role_names(ArrayType *array)
{
	List	   *names = NIL;
	int			n;
	Datum	   *values = dw_elements_not_null(array, "role name", &n);

	if (n == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("no role is given")));
	for (int i = 0; i < n; i++)
		names = lappend(names, NameStr(*DatumGetName(values[i])));
	return names;
}

/*
 * Returns the role names as a list for GRANT.  As in GRANT, the name public, even if quoted, stands
 * for PUBLIC.
 */
static char *
list_roles(List *names)
{
	StringInfoData list;
	ListCell   *lc;

	initStringInfo(&list);
	foreach(lc, names)
		appendStringInfo(&list, "%s%s", list.len > 0 ? ", " : "", quote_identifier(lfirst(lc)));
	return list.data;
}

/* Returns the OID of the role, or ACL_ID_PUBLIC for the name public, as GRANT does. */
static Oid
role_named(const char *name)
{
	return strcmp(name, "public") == 0 ? ACL_ID_PUBLIC : get_role_oid(name, false);
}

/* Executes a GRANT, REVOKE or CREATE ROLE.  The caller has connected to SPI. */
static void
change_rights(const char *command)
{
	if (SPI_execute(command, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not change the rights");
}

/* Returns the schema given to CREATE EXTENSION.  The caller has connected to SPI. */
static Oid
extension_schema(void)
{
	Datum		schema;
	bool		isnull;

	if (SPI_execute("SELECT extnamespace FROM pg_catalog.pg_extension WHERE extname = 'delay_wheel'",
					true, 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not find the schema of the extension");
	schema = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	return DatumGetObjectId(schema);
}

/* Grants USAGE on the schema of the functions to a role that lacks it.  The caller uses SPI. */
static void
grant_schema(Oid schema, const char *role)
{
	if (dw_schema_aclcheck(schema, role_named(role), ACL_USAGE) != ACLCHECK_OK)
		change_rights(psprintf("GRANT USAGE ON SCHEMA %s TO %s",
							   quote_identifier(get_namespace_name(schema)), quote_identifier(role)));
}

/*---- All nodes of Citus ----*/

/*
 * If the database has Citus and the group exists, grants to the group all that delay_wheel.allow()
 * grants to a role on one server.  If the current user may not grant, does nothing and raises no
 * error, since the user has not called this function.
 */
void
dw_group_allow(void)
{
	int			nest_level;

	if (!OidIsValid(get_role_oid(DW_GROUP, true)) ||
		!OidIsValid(get_extension_oid("delay_wheel", true)) ||
		!OidIsValid(get_extension_oid("citus", true)) ||
		!dw_owns_relation(dw_right_view(), GetUserId()))
		return;
	nest_level = dw_own_sql_begin();
	/* each node executes its own GRANT */
	(void) set_config_option("citus.enable_ddl_propagation", "off", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	change_rights("GRANT INSERT ON " DW_RIGHT_VIEW " TO " DW_GROUP);
	grant_schema(extension_schema(), DW_GROUP);
	dw_own_sql_end(nest_level);
}

/* Returns true if commands on roles go to all nodes, since the database has Citus. */
static bool
has_other_nodes(void)
{
	const char *passes_on = GetConfigOption("citus.enable_ddl_propagation", true, false);

	return passes_on != NULL && strcmp(passes_on, "on") == 0 &&
		OidIsValid(get_extension_oid("citus", true));
}

/*
 * Makes the roles members of the group.  Citus executes both commands on all nodes, in this
 * transaction.  Raises an error for a role that does not inherit the group's rights.  The caller
 * has connected to SPI.
 */
static void
join_group(List *names, const char *list)
{
	ListCell   *lc;

	foreach(lc, names)
		if (strcmp(lfirst(lc), "public") == 0)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot allow all roles on all nodes of Citus"),
					 errhint("Allow single roles, or a group role.")));
	if (!OidIsValid(get_role_oid(DW_GROUP, true)))
		change_rights("CREATE ROLE " DW_GROUP);
	change_rights(psprintf("GRANT " DW_GROUP " TO %s", list));
	foreach(lc, names)
		if (!has_privs_of_role(get_role_oid(lfirst(lc), false), get_role_oid(DW_GROUP, false)))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("role \"%s\" does not inherit the rights of role \"%s\"",
							(char *) lfirst(lc), DW_GROUP),
					 errhint("On Citus, roles are allowed as members of a group. Use ALTER ROLE ... INHERIT first.")));
}

/*---- allow() and disallow() ----*/

/* Error context callback of grant_right(): adds a hint if pg_class has no room for the grants. */
static void
grant_callback(void *arg)
{
	if (geterrcode() == ERRCODE_PROGRAM_LIMIT_EXCEEDED)
		errhint("Allow a group of roles, and make roles its members.");
}

/* Grants the roles the right on this node.  The caller has connected to SPI. */
static void
grant_right(List *names, const char *list)
{
	Oid			schema = extension_schema();
	ErrorContextCallback callback = {
		.previous = error_context_stack,
		.callback = grant_callback
	};
	ListCell   *lc;

	error_context_stack = &callback;
	change_rights(psprintf("GRANT INSERT ON " DW_RIGHT_VIEW " TO %s", list));
	error_context_stack = callback.previous;
	foreach(lc, names)
		grant_schema(schema, lfirst(lc));
}

/* Warns of each role that still has the right after the REVOKE. */
static void
warn_of_allowed(List *names)
{
	ListCell   *lc;

	foreach(lc, names)
	{
		const char *name = lfirst(lc);
		Oid			role = role_named(name);

		if (role != ACL_ID_PUBLIC && !superuser_arg(role) &&
			pg_class_aclcheck(dw_right_view(), role, ACL_INSERT) == ACLCHECK_OK)
			ereport(WARNING,
					(errcode(ERRCODE_WARNING_PRIVILEGE_NOT_REVOKED),
					 errmsg("role \"%s\" may still use delay_wheel", name),
					 errdetail("It is a member of a role with this right, PUBLIC has the right, or another role has granted the right.")));
	}
}

/* Does the work of delay_wheel.allow() and disallow(). */
static Datum
change_allowed(FunctionCallInfo fcinfo, bool allows)
{
	List	   *names;
	char	   *list;

	dw_refuse_null(PG_ARGISNULL(0), "role name");
	/* GRANT itself would only warn */
	if (!dw_owns_relation(dw_right_view(), GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of view \"%s\"", DW_RIGHT_VIEW)));
	/* other calls wait: PostgreSQL fails if two transactions change the rights of one object */
	LockRelationOid(dw_right_view(), ShareUpdateExclusiveLock);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
	names = role_names(PG_GETARG_ARRAYTYPE_P(0));
	list = list_roles(names);
	if (!allows)
	{
		change_rights(psprintf("REVOKE INSERT ON " DW_RIGHT_VIEW " FROM %s CASCADE", list));
		if (has_other_nodes() && OidIsValid(get_role_oid(DW_GROUP, true)))
			change_rights(psprintf("REVOKE " DW_GROUP " FROM %s", list));
		warn_of_allowed(names);
	}
	else if (has_other_nodes())
		join_group(names, list);
	else
		grant_right(names, list);
	if (dw_audits(DW_AUDIT_CONTROL))
		dw_audit_write(&(DwAction) {.what = allows ? "allow" : "disallow",.detail = list});
	SPI_finish();
	PG_RETURN_BOOL(true);
}

/* SQL function delay_wheel.allow(). */
Datum
dw_allow(PG_FUNCTION_ARGS)
{
	return change_allowed(fcinfo, true);
}

/* SQL function delay_wheel.disallow(). */
Datum
dw_disallow(PG_FUNCTION_ARGS)
{
	return change_allowed(fcinfo, false);
}

/* Objects that scripts of the extension have created */

/*
 * SQL function that each script of the extension calls at its end, for the objects that the script
 * has created.
 *
 * Revokes all privileges on these objects, except the privileges of PUBLIC to read views, call
 * functions and use the schema.  All other privileges came from default privileges, which were
 * meant for an application's own tables.  Finally grants the right to the group.
 *
 * A script of the extension first creates this function, and finally calls it.  Objects that are
 * older than this function stay unchanged, since an administrator may have granted privileges on
 * them.
 */
Datum
dw_revoke_defaults(PG_FUNCTION_ARGS)
{
	static const char *const query =
		"SELECT pg_catalog.format('REVOKE %%s ON %%s %%s FROM %%s',"
		" pg_catalog.string_agg(DISTINCT a.privilege_type, ', '), o.kind, o.name,"
		" CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(r.rolname) END)"
		" FROM pg_catalog.pg_extension e"
		" JOIN pg_catalog.pg_depend d ON d.refobjid = e.oid AND d.deptype = 'e'"
		" AND d.refclassid = 'pg_catalog.pg_extension'::regclass"
		" JOIN (SELECT 'pg_catalog.pg_class'::regclass, oid, relowner, relacl, oid::regclass::text,"
		" CASE relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END FROM pg_catalog.pg_class"
		" UNION ALL SELECT 'pg_catalog.pg_proc'::regclass, oid, proowner, proacl, oid::regprocedure::text,"
		" 'ROUTINE' FROM pg_catalog.pg_proc"
		" UNION ALL SELECT 'pg_catalog.pg_namespace'::regclass, oid, nspowner, nspacl, oid::regnamespace::text,"
		" 'SCHEMA' FROM pg_catalog.pg_namespace) o(class, oid, owner, acl, name, kind)"
		" ON o.class = d.classid AND o.oid = d.objid,"
		" LATERAL pg_catalog.aclexplode(o.acl) a"
		" LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee"
		" WHERE e.extname = 'delay_wheel' AND a.grantee <> o.owner"
		" AND NOT (a.grantee = 0 AND a.privilege_type IN ('SELECT', 'EXECUTE', 'USAGE'))"
		" AND EXISTS (SELECT FROM pg_catalog.pg_depend f"
		" WHERE f.classid = 'pg_catalog.pg_proc'::regclass AND f.objid = %u AND f.deptype = 'e'"
		" AND d.xmin = f.xmin AND d.cmin::text::bigint > f.cmin::text::bigint)"
		" GROUP BY o.kind, o.name, a.grantee, r.rolname";
	SPITupleTable *revokes;
	uint64		n;

	if (!creating_extension)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("default privileges can be revoked by CREATE EXTENSION only")));
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
	if (SPI_execute(psprintf(query, fcinfo->flinfo->fn_oid), true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not list the privileges of the extension");
	revokes = SPI_tuptable;
	n = SPI_processed;
	for (uint64 i = 0; i < n; i++)
		change_rights(SPI_getvalue(revokes->vals[i], revokes->tupdesc, 1));
	SPI_finish();
	dw_group_allow();
	PG_RETURN_VOID();
}

