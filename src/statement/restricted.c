/*-------------------------------------------------------------------------
 *
 * restricted.c
 *	  Runs code with the rights of another role, safely for the session.
 *
 * Run by sessions whose delay_run() runs a task of another role, and by any
 * process that reads an argument of a type that another role has defined (args.c).
 *
 * The code runs in a security-restricted operation.  In such an operation PostgreSQL
 * refuses all ways back to the rights of the session, deferred triggers, temporary
 * tables, prepared statements and cursors WITH HOLD.  It does not protect the
 * session from some other things, which are handled here:
 *
 * - Changes of settings are undone afterwards.
 * - Custom settings, in which applications keep the name of their user, or a key,
 *	 are empty while the code runs.
 * - SET CONSTRAINTS is refused (control/ddl.c asks dw_is_restricted()): it would
 *	 fire triggers for rows that the session has written before, with the role's
 *	 rights and search_path.
 * - Objects that the code creates in the session's temporary schema are refused: the
 *	 session might later take them for others of the same name.
 * - random() of the session gets a new seed afterwards, since the code may have
 *	 called setseed().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_namespace.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/rel.h"

#include "../base/compat.h"
#include "statement.h"

/* Number of nested calls; restricted code may itself run restricted code */
static int	depth = 0;

/*
 * Empties the custom settings until the nest level ends.  Only settings that no
 * extension has declared are emptied, those in which applications keep their texts.
 */
static void
hide_custom_settings(void)
{
	int			n;
	struct config_generic **settings = dw_all_settings(&n);

	for (int i = 0; i < n; i++)
	{
		const char *value;

		if ((settings[i]->flags & GUC_CUSTOM_PLACEHOLDER) == 0)
			continue;
		value = *dw_string_setting(settings[i])->variable;
		if (value != NULL && value[0] != '\0')
			(void) set_config_option(settings[i]->name, "", PGC_SUSET, PGC_S_SESSION,
									 GUC_ACTION_SAVE, true, 0, false);
	}
}

/*
 * Raises an error if an object in the session's temporary schema was created by
 * this command or a later one.  Such an object is dangerous: a type there, for
 * example, comes before that of the same name in pg_catalog.  The objects are found
 * by pg_depend, since each object in a schema depends on the schema.
 */
static void
refuse_temporary(CommandId since)
{
	Oid			temp;
	Oid			toast;
	Relation	rel;
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	GetTempNamespaceState(&temp, &toast);
	if (!OidIsValid(temp))
		return;
	rel = table_open(DependRelationId, AccessShareLock);
	ScanKeyInit(&keys[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(NamespaceRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(temp));
	scan = systable_beginscan(rel, DependReferenceIndexId, true, NULL, 2, keys);
	while ((tuple = systable_getnext(scan)) != NULL)
		if (TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data)) &&
			HeapTupleHeaderGetCmin(tuple->t_data) >= since)
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("cannot create temporary objects within security-restricted operation")));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
}

/*
 * Gives random() a new seed, since the code may have called setseed().  Its state
 * cannot be saved and restored: no function of PostgreSQL gives access to it.
 */
static void
seed_anew(void)
{
	double		seed = pg_prng_double(&pg_global_prng_state) * 2 - 1;

	(void) DirectFunctionCall1(setseed, Float8GetDatum(seed));
}

/*
 * Begins to run code as the role, in a security-restricted operation, until
 * dw_restricted_end().  *state keeps what is to be restored.  To be called inside
 * PG_TRY, with dw_restricted_leave() in PG_FINALLY.
 */
void
dw_restricted_begin(DwRestricted *state, Oid role)
{
	depth++;
	state->nest_level = NewGUCNestLevel();
	state->began = GetCurrentCommandId(false);
	GetUserIdAndSecContext(&state->userid, &state->context);
	hide_custom_settings();
	SetUserIdAndSecContext(role, state->context |
						   SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
}

/*
 * Restores the session's role and settings after code that has run without an
 * error.  Raises an error if the code has created objects in the temporary schema.
 * After an error, the abort of the (sub)transaction restores role and settings.
 */
void
dw_restricted_end(const DwRestricted *state)
{
	CommandCounterIncrement();
	refuse_temporary(state->began);
	SetUserIdAndSecContext(state->userid, state->context);
	AtEOXact_GUC(false, state->nest_level);
}

/* To be called after dw_restricted_begin() in any case, also after an error. */
void
dw_restricted_leave(void)
{
	depth--;
	seed_anew();
}

/* True if restricted code is running in this process. */
bool
dw_is_restricted(void)
{
	return depth > 0;
}
