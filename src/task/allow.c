/*-------------------------------------------------------------------------
 *
 * allow.c
 *	  delay_wheel.allow() and disallow(): the rights of applications.
 *
 * Run by sessions.
 *
 * allow() and disallow() save the user the list of functions to GRANT, and run with the
 * rights of their caller.  Default privileges (ALTER DEFAULT PRIVILEGES) would grant more
 * to others; the install script revokes that again.
 *
 * On Citus a role that schedules needs the rights on all nodes, and on nodes that are
 * added later: a trigger on a shard would fail there, and so would the move of a shard.
 * Citus passes roles on, and their members, but no rights on functions of an extension.
 * So on Citus allow() makes the role a member of a group, delay_wheel_user.  On each node
 * the group gets its rights from that node's own delay_wheel: when the GRANT arrives
 * there (control/ddl.c), or when CREATE EXTENSION finds the group.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "../base/errors.h"
#include "../base/own_sql.h"
#include "task.h"

PG_FUNCTION_INFO_V1(dw_allow);
PG_FUNCTION_INFO_V1(dw_disallow);
PG_FUNCTION_INFO_V1(dw_revoke_defaults);

/*
 * Returns the role names as a list for GRANT.  The name public stands for PUBLIC, as
 * in GRANT, where it is a keyword even in quotes.
 */
static char *
list_roles(ArrayType *array)
{
	StringInfoData list;
	Datum	   *names;
	bool	   *nulls;
	int			n;

	deconstruct_array(array, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR, &names, &nulls, &n);
	if (n == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("no role is given")));
	initStringInfo(&list);
	for (int i = 0; i < n; i++)
	{
		dw_refuse_null(nulls[i], "role name");
		appendStringInfo(&list, "%s%s", i > 0 ? ", " : "",
						 quote_identifier(NameStr(*DatumGetName(names[i]))));
	}
	return list.data;
}

/*
 * Returns the extension's functions for applications as a list for GRANT: those in
 * the schema given to CREATE EXTENSION.  NULL if the database does not have the extension.
 * *owned: the current user owns them.  The caller has connected to SPI.
 */
static char *
list_functions(bool *owned)
{
	static const char *const query =
		"SELECT pg_catalog.string_agg(p.oid::regprocedure::text, ', '),"
		" pg_catalog.bool_and(pg_catalog.pg_has_role(p.proowner, 'USAGE'))"
		" FROM pg_catalog.pg_extension e"
		" JOIN pg_catalog.pg_depend d ON d.refobjid = e.oid"
		" JOIN pg_catalog.pg_proc p ON p.oid = d.objid AND p.pronamespace = e.extnamespace"
		" WHERE e.extname = 'delay_wheel' AND d.deptype = 'e'"
		/* these concern the tasks of all roles, so an application is not given them */
		" AND p.proname <> ALL ('{delay_arm,delay_queue,delay_queue_drop,"
		"delay_pause_database,delay_resume_database,delay_follow_shards}')"
		" AND d.refclassid = 'pg_catalog.pg_extension'::regclass"
		" AND d.classid = 'pg_catalog.pg_proc'::regclass";
	HeapTuple	row;
	bool		isnull;

	if (SPI_execute(query, true, 0) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not list the functions of the extension");
	row = SPI_tuptable->vals[0];
	*owned = DatumGetBool(SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull)) && !isnull;
	return SPI_getvalue(row, SPI_tuptable->tupdesc, 1);
}

/* As list_functions(); raises an error if there are none, or the current user does not own them. */
static char *
list_own_functions(void)
{
	bool		owned;
	char	   *list = list_functions(&owned);

	if (list == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"%s\" has no functions", "delay_wheel")));
	/* GRANT itself would only warn */
	if (!owned)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of the functions of extension \"%s\"", "delay_wheel")));
	return list;
}

/* Executes a GRANT, REVOKE or CREATE ROLE.  The caller has connected to SPI. */
static void
change_rights(const char *command)
{
	if (SPI_execute(command, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not change the rights");
}

/*---- All nodes of Citus ----*/

/*
 * Grants the group, if it exists and the database is one of Citus, what delay_wheel.allow() grants a role of one server.
 * Does nothing if the current user may not do so: the command in hand is another one.
 */
void
dw_group_allow(void)
{
	bool		owned;
	const char *functions;
	int			nest_level;

	if (!OidIsValid(get_role_oid(DW_GROUP, true)) ||
		!OidIsValid(get_extension_oid("delay_wheel", true)) ||
		!OidIsValid(get_extension_oid("citus", true)))
		return;
	nest_level = dw_own_sql_begin();
	functions = list_functions(&owned);
	if (functions != NULL && owned)
		change_rights(psprintf("GRANT EXECUTE ON ROUTINE %s TO " DW_GROUP, functions));
	dw_own_sql_end(nest_level);
}

/* True if commands on roles go to all nodes: the database is one of Citus. */
static bool
has_other_nodes(void)
{
	const char *passes_on = GetConfigOption("citus.enable_ddl_propagation", true, false);

	return passes_on != NULL && strcmp(passes_on, "on") == 0 &&
		OidIsValid(get_extension_oid("citus", true));
}

/*
 * Makes the roles members of the group.  Citus executes both commands on all nodes, in
 * this transaction.  Raises an error for a role that would not have the group's rights
 * nevertheless.  The caller has connected to SPI.
 */
static void
join_group(ArrayType *roles)
{
	const char *list = list_roles(roles);
	Datum	   *names;
	int			n;

	deconstruct_array(roles, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR, &names, NULL, &n);
	for (int i = 0; i < n; i++)
		if (strcmp(NameStr(*DatumGetName(names[i])), "public") == 0)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot allow all roles on all nodes of Citus"),
					 errhint("Allow roles by name, or a group of theirs.")));
	if (!OidIsValid(get_role_oid(DW_GROUP, true)))
		change_rights("CREATE ROLE " DW_GROUP);
	change_rights(psprintf("GRANT " DW_GROUP " TO %s", list));
	for (int i = 0; i < n; i++)
	{
		const char *name = NameStr(*DatumGetName(names[i]));

		if (!has_privs_of_role(get_role_oid(name, false), get_role_oid(DW_GROUP, false)))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("role \"%s\" does not inherit the rights of role \"%s\"", name, DW_GROUP),
					 errhint("On Citus roles are allowed as members of a group. Use ALTER ROLE ... INHERIT first.")));
	}
}

/*---- allow() and disallow() ----*/

/* SQL function delay_wheel.allow(). */
Datum
dw_allow(PG_FUNCTION_ARGS)
{
	ArrayType  *roles;
	const char *functions;

	dw_refuse_null(PG_ARGISNULL(0), "role name");
	roles = PG_GETARG_ARRAYTYPE_P(0);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
	functions = list_own_functions();
	if (has_other_nodes())
		join_group(roles);
	else
		change_rights(psprintf("GRANT EXECUTE ON ROUTINE %s TO %s", functions, list_roles(roles)));
	if (dw_audits(DW_AUDIT_CONTROL))
		dw_audit_write(&(DwAction) {.what = "allow",.detail = list_roles(roles)});
	SPI_finish();
	PG_RETURN_BOOL(true);
}

/* SQL function delay_wheel.disallow(). */
Datum
dw_disallow(PG_FUNCTION_ARGS)
{
	ArrayType  *roles;

	dw_refuse_null(PG_ARGISNULL(0), "role name");
	roles = PG_GETARG_ARRAYTYPE_P(0);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
	change_rights(psprintf("REVOKE EXECUTE ON ROUTINE %s FROM %s", list_own_functions(), list_roles(roles)));
	if (has_other_nodes() && OidIsValid(get_role_oid(DW_GROUP, true)))
		change_rights(psprintf("REVOKE " DW_GROUP " FROM %s", list_roles(roles)));
	if (dw_audits(DW_AUDIT_CONTROL))
		dw_audit_write(&(DwAction) {.what = "disallow",.detail = list_roles(roles)});
	SPI_finish();
	PG_RETURN_BOOL(true);
}

/*---- What scripts of the extension have created ----*/

/*
 * SQL function, called at the end of each script of the extension: rights on what the
 * script has created.
 *
 * Revokes all privileges on the extension's objects, except those that PUBLIC has by
 * design: to read views, call functions and use the schema.  All others came from
 * default privileges, which were meant for an application's own tables.
 *
 * A script of the extension creates this function first and calls it last.  Only
 * objects that were created in between count: an administrator may have granted
 * privileges on older ones.  Then allows the group all functions.
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
		if (SPI_execute(SPI_getvalue(revokes->vals[i], revokes->tupdesc, 1), false, 0) !=
			SPI_OK_UTILITY)
			elog(ERROR, "could not change the rights");
	SPI_finish();
	dw_group_allow();
	PG_RETURN_VOID();
}

