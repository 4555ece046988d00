/*-------------------------------------------------------------------------
 *
 * restricted.c
 *	  Code of a role in a session that is not its own.
 *
 * Run by backends whose delay_run() runs a task of another role, and by whoever
 * reads an argument of a type that another role has defined (args.c).
 *
 * A security-restricted operation refuses any way back to the session's rights,
 * deferred triggers, temporary tables, prepared statements and cursors WITH
 * HOLD.  It lets some things through, which are dealt with here:
 *
 * - settings are undone;
 * - custom settings, in which applications keep the name of their user, or a
 *	 key, are empty meanwhile;
 * - SET CONSTRAINTS is refused (ddl.c asks): it would fire triggers for rows that
 *	 the session has written before, as the role and with its search_path;
 * - objects in the session's temporary schema, where they might later be taken
 *	 for others, are refused;
 * - random() of the session gets a new seed afterwards, since the code may have
 *	 set the old one.
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
#include "restricted.h"

/* One such code may run another one's. */
static int	depth = 0;

/* Custom settings that no extension has declared are plain texts, which anybody may set. */
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
		value = *((struct config_string *) settings[i])->variable;
		if (value != NULL && value[0] != '\0')
			(void) set_config_option(settings[i]->name, "", PGC_SUSET, PGC_S_SESSION,
									 GUC_ACTION_SAVE, true, 0, false);
	}
}

/*
 * An error if anything in the session's temporary schema is newer than the
 * command: a type there, say, comes before that of the same name in
 * pg_catalog.  Whatever is in a schema depends on it.
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

/* The code may have called setseed(), whose state nobody else can reach. */
static void
seed_anew(void)
{
	double		seed = pg_prng_double(&pg_global_prng_state) * 2 - 1;

	(void) DirectFunctionCall1(setseed, Float8GetDatum(seed));
}

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

void
dw_restricted_end(const DwRestricted *state)
{
	CommandCounterIncrement();
	refuse_temporary(state->began);
	SetUserIdAndSecContext(state->userid, state->context);
	AtEOXact_GUC(false, state->nest_level);
}

void
dw_restricted_leave(void)
{
	depth--;
	seed_anew();
}

/* Is such code at work? */
bool
dw_is_restricted(void)
{
	return depth > 0;
}
