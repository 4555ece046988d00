/*-------------------------------------------------------------------------
 *
 * signature.c
 *	  Checks that an SQL function returns the columns that its C code makes, and that
 *	  a trigger function is called by a trigger of ours.
 *
 * Run by sessions, in calls of the extension's functions.
 *
 * A set with other columns than the C code makes would be read beyond its end: the
 * query may name the columns.  The arguments of a function are those of the install
 * script; only a superuser can declare them otherwise, as with any C function.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupdesc.h"
#include "catalog/namespace.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/regproc.h"
#include "utils/rel.h"

#include "signature.h"

/* Raises the error for a wrong declaration. */
static void
raise_mismatch(FunctionCallInfo fcinfo)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
			 errmsg("function %s is not declared as the library of \"%s\" needs it",
					format_procedure(fcinfo->flinfo->fn_oid), "delay_wheel"),
			 errhint("Use ALTER EXTENSION delay_wheel UPDATE if the library was exchanged.")));
}

/* Raises an error unless the rows of the function have n columns of these types. */
void
dw_require_columns(FunctionCallInfo fcinfo, TupleDesc desc, int n, const Oid *types)
{
	if (desc->natts != n)
		raise_mismatch(fcinfo);
	for (int i = 0; i < n; i++)
		if (TupleDescAttr(desc, i)->atttypid != types[i])
			raise_mismatch(fcinfo);
}

/*
 * Begins the result of a set-returning function, a tuplestore of rows with n
 * columns of these types.  Raises an error if the function is declared otherwise.
 */
ReturnSetInfo *
dw_begin_rows(FunctionCallInfo fcinfo, int n, const Oid *types)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	dw_require_columns(fcinfo, result->setDesc, n, types);
	return result;
}

/* True if the schema is one of those that the extension brings. */
bool
dw_is_our_schema(Oid schema)
{
	return OidIsValid(schema) &&
		(schema == get_namespace_oid("delay_wheel", true) ||
		 schema == get_namespace_oid("delay_wheel_internal", true));
}

/*
 * Returns the data of the trigger that calls this function.  Raises an error
 * unless the caller is a trigger on a table of the extension, and with for_row
 * one that fires for each row.
 */
TriggerData *
dw_require_trigger(FunctionCallInfo fcinfo, const char *function, bool for_row)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) ||
		!dw_is_our_schema(RelationGetNamespace(trigger->tg_relation)))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by a trigger of extension \"%s\"",
						function, "delay_wheel")));
	if (for_row && !TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired for each row", function)));
	return trigger;
}
