/*-------------------------------------------------------------------------
 *
 * session.c
 *	  The session of an executor: whose it is, and what is left between tasks.
 *
 * Run by executors; dw_session_access also by the timer.
 *
 * An executor is a session of the role that owns the tasks, as if that had
 * logged in: its session user and current user are the role, its settings
 * are those of ALTER ROLE and ALTER DATABASE.  So there is nothing to escape
 * to.
 *
 * A role without LOGIN gets one, too, since it often is the owner of
 * functions with SECURITY DEFINER that schedule tasks.  From PostgreSQL 17 on
 * background workers may connect as such a role.  Before, the process
 * connects as the bootstrap superuser and is switched to the role from the
 * start of each transaction until after its commit, with
 * SECURITY_LOCAL_USERID_CHANGE, which refuses any way back.  Its session user
 * is the role, too: code that asks who has called it can ask nothing else.  The
 * difference that a task can see there: SET ROLE fails even for a role that was
 * granted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_db_role_setting.h"
#include "commands/prepare.h"
#include "commands/sequence.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/lock.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../base/compat.h"
#include "../base/worker.h"
#include "session.h"

#if !DW_ANY_ROLE_CONNECTS
#include "access/genam.h"
#include "access/table.h"
#include "catalog/pg_db_role_setting.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

#endif

#if !DW_ANY_ROLE_CONNECTS

/* The role to switch to in each transaction; InvalidOid: no need to. */
static Oid	switch_to = InvalidOid;
static Oid	session_user_id;
static int	session_context;

/* The value of each setting, as the postmaster handed it down. */
typedef struct SettingValue
{
	const char *name;
	char	   *value;
} SettingValue;

static SettingValue *
inherited_settings(int *n)
{
	struct config_generic **all = dw_all_settings(n);
	SettingValue *settings = palloc(*n * sizeof(SettingValue));

	for (int i = 0; i < *n; i++)
	{
		const char *value = GetConfigOption(all[i]->name, true, false);

		settings[i].name = all[i]->name;
		settings[i].value = value ? pstrdup(value) : NULL;
	}
	return settings;
}

/* Undoes one setting of the role that the process connected as. */
static void
undo_setting(const char *name, const SettingValue *inherited, int n)
{
	struct config_generic *setting = dw_find_setting(name);

	for (int i = 0; setting != NULL && i < n; i++)
	{
		if (strcmp(inherited[i].name, setting->name) != 0 || inherited[i].value == NULL)
			continue;
		/* it is to rank below what ALTER DATABASE says */
		setting->source = setting->reset_source = PGC_S_DYNAMIC_DEFAULT;
		(void) set_config_option(name, inherited[i].value, PGC_POSTMASTER,
								 PGC_S_ENV_VAR, GUC_ACTION_SET, true, WARNING, false);
	}
}

static void
undo_settings(ArrayType *settings, const SettingValue *inherited, int n)
{
	Datum	   *items;
	int			nitems;

	deconstruct_array(settings, TEXTOID, -1, false, TYPALIGN_INT, &items, NULL, &nitems);
	for (int i = 0; i < nitems; i++)
	{
		char	   *name = TextDatumGetCString(items[i]);
		char	   *equals = strchr(name, '=');

		if (equals == NULL)
			continue;
		*equals = '\0';
		undo_setting(name, inherited, n);
	}
}

/* Settings of ALTER ROLE: those of the owner instead of the session user's. */
static void
exchange_settings(Oid owner, const SettingValue *inherited, int n)
{
	Relation	rel = table_open(DbRoleSettingRelationId, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetCatalogSnapshot(DbRoleSettingRelationId));
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_db_role_setting_setrole, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(GetSessionUserId()));
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, 1, &key);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		bool		isnull;
		Datum		settings = heap_getattr(tuple, Anum_pg_db_role_setting_setconfig,
											RelationGetDescr(rel), &isnull);

		if (!isnull)
			undo_settings(DatumGetArrayTypeP(settings), inherited, n);
	}
	systable_endscan(scan);

	ApplySetting(snapshot, MyDatabaseId, owner, rel, PGC_S_DATABASE_USER);
	ApplySetting(snapshot, InvalidOid, owner, rel, PGC_S_USER);
	ApplySetting(snapshot, MyDatabaseId, InvalidOid, rel, PGC_S_DATABASE);
	ApplySetting(snapshot, InvalidOid, InvalidOid, rel, PGC_S_GLOBAL);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
}

/* A session that is switched to the role; what a login checks is checked. */
static void
begin_switched(Oid database, Oid owner)
{
	int			n;
	SettingValue *inherited = inherited_settings(&n);
	DwAccess	access;

	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	StartTransactionCommand();
	access = dw_session_access(owner);
	if (access != DW_ACCESS_LOGIN && access != DW_ACCESS_NO_LOGIN)
		ereport(FATAL,
				(errcode(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION),
				 errmsg("role with OID %u may not connect to this database", owner)));
	exchange_settings(owner, inherited, n);
	/* a login ranks who it is above settings of that name; so must we */
	SetConfigOption("session_authorization", GetUserNameFromId(owner, false),
					PGC_SUSET, PGC_S_OVERRIDE);
	/* another role may have got that name in this moment */
	if (GetSessionUserId() != owner)
		elog(FATAL, "role with OID %u was renamed", owner);
	CommitTransactionCommand();
	MemoryContextSwitchTo(TopMemoryContext);
	for (int i = 0; i < n; i++)
		if (inherited[i].value)
			pfree(inherited[i].value);
	pfree(inherited);
	switch_to = owner;
}

#endif							/* !DW_ANY_ROLE_CONNECTS */

/*
 * Background workers of the server are shared with parallel queries.  What
 * those may take at most is the server's to say; any session could raise it,
 * and keep others' executors from starting.
 */
static struct config_int *parallel_workers = NULL;
static int	no_limit = 0;

static void
limit_parallel_workers(void)
{
	parallel_workers = (struct config_int *) dw_find_setting("max_parallel_workers");
	if (parallel_workers == NULL)
		return;
	no_limit = parallel_workers->max;
	parallel_workers->max = max_parallel_workers;
}

/*
 * dw_worker_interrupts() for executors.  Returns false if the session may not be
 * like a new one any more, and must end without running another task.
 */
bool
dw_session_interrupts(void)
{
	int			limit;

	if (parallel_workers == NULL)
	{
		(void) dw_worker_interrupts();
		return true;
	}
	/* the server may say more now */
	limit = parallel_workers->max;
	parallel_workers->max = no_limit;
	if (dw_worker_interrupts())
	{
		/* what it says is not kept where the role or the database has its own */
		if (parallel_workers->gen.reset_source > PGC_S_ARGV)
			return false;
		limit = parallel_workers->reset_val;
	}
	parallel_workers->max = limit;
	return true;
}

/*
 * Connects this process as the role.  can_log_in is of interest to
 * PostgreSQL 15 and 16 only.  FATAL if it cannot connect.
 */
void
dw_session_begin(Oid database, Oid owner, bool can_log_in)
{
	limit_parallel_workers();
#if !DW_ANY_ROLE_CONNECTS
	if (!can_log_in)
		begin_switched(database, owner);
	else
#endif
		BackgroundWorkerInitializeConnectionByOid(database, owner, DW_CONNECT_FLAGS);

	/* what tasks must not inherit from ALTER ROLE or the server */
	SetConfigOption("role", "none", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("application_name", "delay_wheel", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("idle_in_transaction_session_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("idle_session_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
}

/*
 * Is the process connected as somebody else, and the role by its transactions
 * only?  Then none of these may be ended by the role's SQL.
 */
bool
dw_session_is_switched(void)
{
#if DW_ANY_ROLE_CONNECTS
	return false;
#else
	return OidIsValid(switch_to);
#endif
}

void
dw_session_start_transaction(void)
{
	StartTransactionCommand();
#if !DW_ANY_ROLE_CONNECTS
	/* an abort switches back by itself */
	if (OidIsValid(switch_to))
	{
		GetUserIdAndSecContext(&session_user_id, &session_context);
		SetUserIdAndSecContext(switch_to, session_context | SECURITY_LOCAL_USERID_CHANGE);
	}
#endif
}

/* Deferred triggers and the like run in here, still as the role. */
void
dw_session_commit_transaction(void)
{
	CommitTransactionCommand();
#if !DW_ANY_ROLE_CONNECTS
	if (OidIsValid(switch_to))
		SetUserIdAndSecContext(session_user_id, session_context);
#endif
}

/* RESET of one that ResetAllOptions() leaves alone, if it was set. */
static void
reset_setting(const char *name, struct config_generic **setting)
{
	if (*setting == NULL)
		*setting = dw_find_setting(name);
	if ((*setting)->source > PGC_S_OVERRIDE)
		(void) set_config_option(name, NULL, PGC_USERSET,
								 PGC_S_SESSION, GUC_ACTION_SET, true, 0, false);
}

/*
 * What is left of a task's own work when its SQL is done: all that a commit
 * would run of it.
 *
 * Deferred triggers, and queries of cursors WITH HOLD; each may bring the other.
 */
void
dw_session_finish_work(void)
{
	do
		AfterTriggerFireDeferred();
	while (PreCommit_Portals(false));
}

/*
 * Between tasks of one transaction: ends what cannot stay until its end.
 *
 * Session locks stay: others must not have them before they can see what was
 * done under them.
 */
void
dw_session_clean_within(void)
{
	PortalHashTableDeleteAll();
	DropAllPreparedStatements();
	ResetSequenceCaches();
}

/*
 * Ends what a task may have left in the session.  What a procedural language
 * keeps, stays.
 */
void
dw_session_clean(bool used_temp)
{
	static struct config_generic *authorization = NULL;
	static struct config_generic *role = NULL;

	PortalHashTableDeleteAll();
	reset_setting("session_authorization", &authorization);
	reset_setting("role", &role);
	ResetAllOptions();
	DropAllPreparedStatements();
	LockReleaseAll(USER_LOCKMETHOD, true);
	ResetSequenceCaches();
	if (used_temp)
	{
		dw_session_start_transaction();
		/* catalog rows with wide columns are not deleted without a snapshot */
		PushActiveSnapshot(GetTransactionSnapshot());
		ResetTempTableNamespace();
		PopActiveSnapshot();
		dw_session_commit_transaction();
	}
}
