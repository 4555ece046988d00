/*-------------------------------------------------------------------------
 *
 * rights.c
 *	  Rights: to schedule tasks, how many, and to change a task of another role.
 *
 * Run by sessions, and by executors whose tasks schedule others.
 *
 * GRANT decides which roles may schedule.  allow() and disallow() only save the user
 * the list of functions, and run with the rights of their caller.  Default privileges
 * (ALTER DEFAULT PRIVILEGES) would grant more to others; the install script revokes
 * that again.
 *
 * No process keeps the number of a role's pending tasks: a counter would have to
 * follow every transaction, its subtransactions and its end.  If there is a limit
 * (delay_wheel.max_pending), the session counts the role's rows.  The session may then
 * schedule a tenth of what is left before it counts again.  Several sessions that count at the
 * same time get a tenth each, so together they can exceed the limit by that much.
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
#include "utils/syscache.h"

#include "../base/errors.h"
#include "../base/settings.h"
#include "../rows/task_rows.h"
#include "key_lock.h"
#include "marks.h"
#include "rights.h"

/* Time after which a session counts the rows again, even if it may still schedule some. */
#define ALLOWANCE_US	(2 * USECS_PER_SEC)

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
 * the schema given to CREATE EXTENSION.  Raises an error if the current user does not
 * own them.  The caller has connected to SPI.
 */
static char *
list_functions(void)
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
		"delay_pause_database,delay_resume_database}')"
		" AND d.refclassid = 'pg_catalog.pg_extension'::regclass"
		" AND d.classid = 'pg_catalog.pg_proc'::regclass";
	HeapTuple	row;
	char	   *list;
	bool		isnull;

	if (SPI_execute(query, true, 0) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not list the functions of the extension");
	row = SPI_tuptable->vals[0];
	list = SPI_getvalue(row, SPI_tuptable->tupdesc, 1);
	if (list == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"%s\" has no functions", "delay_wheel")));
	/* GRANT itself would only warn */
	if (!DatumGetBool(SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull)))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of the functions of extension \"%s\"", "delay_wheel")));
	return list;
}

/* Runs GRANT or REVOKE (a format of functions and roles) for allow() and disallow(). */
static Datum
change_rights(FunctionCallInfo fcinfo, const char *command)
{
	const char *roles;
	const char *functions;

	dw_refuse_null(PG_ARGISNULL(0), "role name");
	roles = list_roles(PG_GETARG_ARRAYTYPE_P(0));

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
	functions = list_functions();
	if (SPI_execute(psprintf(command, functions, roles), false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not change the rights");
	SPI_finish();
	PG_RETURN_VOID();
}

/* SQL function delay_wheel.allow(). */
Datum
dw_allow(PG_FUNCTION_ARGS)
{
	return change_rights(fcinfo, "GRANT EXECUTE ON ROUTINE %s TO %s");
}

/* SQL function delay_wheel.disallow(). */
Datum
dw_disallow(PG_FUNCTION_ARGS)
{
	return change_rights(fcinfo, "REVOKE EXECUTE ON ROUTINE %s FROM %s");
}

/*
 * SQL function, called at the end of each script of the extension.
 *
 * Revokes all privileges on the extension's objects, except those that PUBLIC has by
 * design: to read views, call functions and use the schema.  All others came from
 * default privileges, which were meant for an application's own tables.
 *
 * A script of the extension creates this function first and calls it last.  Only
 * objects that were created in between count: an administrator may have granted
 * privileges on older ones.
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
	PG_RETURN_VOID();
}

/* Raises an error unless the current user has the privileges of the task's owner. */
void
dw_require_task_owner(int64 id, Oid owner)
{
	if (!has_privs_of_role(GetUserId(), owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for task %lld", (long long) id),
				 errdetail("Only members of the role that scheduled the task, and superusers, may change it or wait for it.")));
}

/* Raises an error if the task's owner does not exist any more. */
void
dw_require_role(Oid owner)
{
	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(owner)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role with OID %u does not exist", owner),
				 errdetail("The role that scheduled the task was dropped.")));
}

/* True if the row is that of a pending task: neither cancelled by a mark nor superseded. */
static bool
is_pending_row(Relation rel, HeapTuple tuple)
{
	return !dw_task_is_cancelled(rel, tuple) && !dw_task_is_superseded(rel, tuple);
}

/*
 * Raises an error if the role has as many pending tasks as delay_wheel.max_pending
 * allows.  Counts rows at most once every ALLOWANCE_US, or when the part that was
 * allowed is used up.  The caller has checked that there is a limit.
 */
void
dw_require_room(Oid owner)
{
	static struct
	{
		Oid			owner;
		int			limit;
		int			left;
		TimestampTz until;
	}			allowance;
	TimestampTz now = GetCurrentStatementStartTimestamp();

	if (allowance.owner != owner || allowance.limit != dw_max_pending ||
		allowance.left == 0 || now >= allowance.until ||
		now < allowance.until - ALLOWANCE_US)
	{
		int			left = dw_max_pending - dw_task_count(owner, dw_max_pending, NULL);

		allowance.left = 0;
		/* leave cancelled and superseded rows out only if that matters: it takes longer */
		if (left == 0)
			left = dw_max_pending - dw_task_count(owner, dw_max_pending, is_pending_row);
		if (left == 0)
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("role \"%s\" has as many pending tasks as it may have: %d",
							GetUserNameFromId(owner, false), dw_max_pending),
					 errhint("Wait until some have run, cancel some with %s, or have a superuser increase \"%s\" for the role.",
							 "delay_cancel()", "delay_wheel.max_pending")));
		allowance.owner = owner;
		allowance.limit = dw_max_pending;
		allowance.left = Max(left / 10, 1);
		allowance.until = now + ALLOWANCE_US;
	}
	allowance.left--;
}
