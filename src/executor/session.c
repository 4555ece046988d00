/*-------------------------------------------------------------------------
 *
 * session.c
 *	  The session of an executor: its role, its settings, its transactions, cleaning between tasks.
 *
 * Run by executors, as if the role that owns the tasks had logged in: a task cannot return to the
 * rights of another role, since the session never had such rights.
 *
 * A role without LOGIN also gets executors, since it often owns functions with SECURITY DEFINER
 * that schedule tasks.  From PostgreSQL 17 on background workers may connect as such a role.
 * Before 17, the process connects as the bootstrap superuser, and is switched to the role from the
 * start of each transaction until after its commit.  SECURITY_LOCAL_USERID_CHANGE prevents a return
 * to the superuser.  The session user is also set to the role, for code that asks for its caller.
 * In such an executor, SET ROLE fails, even to a granted role.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_db_role_setting.h"
#include "commands/prepare.h"
#include "commands/sequence.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

#include "../base/worker.h"
#include "executor.h"

/*---- Switching to a role that cannot log in ----*/

#if !DW_ANY_ROLE_CONNECTS

/* The role to switch to in each transaction; InvalidOid if the process is connected as the role. */
static Oid	switch_to = InvalidOid;

/* User and security context outside of the switched transactions. */
static Oid	session_user_id;
static int	session_context;

/* The value of a setting that this process has inherited from the postmaster. */
typedef struct SettingValue
{
	const char *name;
	char	   *value;
} SettingValue;

/* Returns the values of all settings.  To be called before the process connects. */
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

/* Undoes one setting of the role as which the process connected. */
static void
undo_setting(const char *name, const SettingValue *inherited, int n)
{
	struct config_generic *setting = dw_find_setting(name);

	for (int i = 0; setting != NULL && i < n; i++)
	{
		if (strcmp(inherited[i].name, setting->name) != 0 || inherited[i].value == NULL)
			continue;
		/* the lowest rank that works, so that values of ALTER DATABASE can replace this value */
		setting->source = setting->reset_source = PGC_S_DYNAMIC_DEFAULT;
		(void) set_config_option(name, inherited[i].value, PGC_POSTMASTER,
								 PGC_S_ENV_VAR, GUC_ACTION_SET, true, WARNING, false);
	}
}

/* Undoes all settings of one row of pg_db_role_setting. */
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

/* Replaces the settings of the role that connected by the settings of the owner. */
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

/* Connects as the bootstrap superuser, checks the owner as a login does, and prepares switching. */
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
	/* the rank of a login, so that no setting can replace the session user */
	SetConfigOption("session_authorization", GetUserNameFromId(owner, false),
					PGC_SUSET, PGC_S_OVERRIDE);
	/* the role may just have been renamed, and another role may have its old name */
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

/*---- Connecting ----*/

/*
 * The setting max_parallel_workers, and the largest value that PostgreSQL allows for it.  Executors
 * and parallel queries share the server's background workers.  Any session can raise
 * max_parallel_workers for itself.  A task must not do this, since it would prevent executors of
 * other roles from starting.
 */
static struct config_generic *parallel_workers = NULL;
static int	no_limit = 0;

/* Makes the server's value of max_parallel_workers the limit for tasks. */
static void
limit_parallel_workers(void)
{
	parallel_workers = dw_find_setting("max_parallel_workers");
	if (parallel_workers == NULL)
		return;
	no_limit = dw_int_setting(parallel_workers)->max;
	dw_int_setting(parallel_workers)->max = max_parallel_workers;
}

/* Returns false if tasks of superusers are switched off, and this is a superuser's session. */
static bool
may_go_on(void)
{
	return dw_superuser_tasks || strcmp(GetConfigOption("is_superuser", false, false), "on") != 0;
}

/*
 * Handles signals and reads changed settings, as dw_worker_interrupts() does.  Returns false if the
 * session may now differ from a new session.  Then the executor must end without running another
 * task.
 */
bool
dw_session_interrupts(void)
{
	struct config_int *setting;
	int			limit;

	if (parallel_workers == NULL)
	{
		(void) dw_worker_interrupts();
		return may_go_on();
	}
	/* a reload of the configuration may allow more */
	setting = dw_int_setting(parallel_workers);
	limit = setting->max;
	setting->max = no_limit;
	if (dw_worker_interrupts())
	{
		/* a value of the role or the database hides the server's new value */
		if (parallel_workers->reset_source > PGC_S_ARGV)
			return false;
		limit = setting->reset_val;
	}
	setting->max = limit;
	return may_go_on();
}

/* Connects as the role, or raises FATAL.  can_log_in, the role's LOGIN, matters before 17. */
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

	/* tasks must not inherit values of ALTER ROLE or of the server */
	SetConfigOption("role", "none", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("application_name", "delay_wheel", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("idle_in_transaction_session_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("idle_session_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
}

/* Returns true if the process switches to the role, whose SQL then must not end a transaction. */
bool
dw_session_is_switched(void)
{
#if DW_ANY_ROLE_CONNECTS
	return false;
#else
	return OidIsValid(switch_to);
#endif
}

/*---- Transactions ----*/

/* Starts a transaction of the role.  PostgreSQL's own functions are enough to abort it. */
void
dw_session_start_transaction(void)
{
	StartTransactionCommand();
#if !DW_ANY_ROLE_CONNECTS
	/* an abort restores user and context */
	if (OidIsValid(switch_to))
	{
		GetUserIdAndSecContext(&session_user_id, &session_context);
		SetUserIdAndSecContext(switch_to, session_context | SECURITY_LOCAL_USERID_CHANGE);
	}
#endif
}

/* Commits a transaction of the role.  Deferred triggers run during this call, still as the role. */
void
dw_session_commit_transaction(void)
{
	CommitTransactionCommand();
#if !DW_ANY_ROLE_CONNECTS
	if (OidIsValid(switch_to))
		SetUserIdAndSecContext(session_user_id, session_context);
#endif
}

/*
 * Begins a transaction to claim and run tasks, or, if settle is true, to settle a task that has run
 * in another transaction.  It sees all commits before its start.  If it keeps its first snapshot,
 * dw_claim() takes that snapshot later.  AbortCurrentTransaction() is enough to end it.
 *
 * The lock is taken before the snapshot: after a command that rewrites the table (REPACK
 * CONCURRENTLY, some forms of ALTER TABLE), an older snapshot sees no row in the table, as if the
 * task were gone.
 *
 * It is an implicit block: outside of a block Citus would commit each statement on other nodes.
 */
void
dw_claim_begin_transaction(bool settle)
{
	SetCurrentStatementStartTimestamp();
	dw_session_start_transaction();
	BeginImplicitTransactionBlock();
	XactIsoLevel = settle ? XACT_READ_COMMITTED : DefaultXactIsoLevel;
	XactReadOnly = false;
	LockRelationOid(dw_catalog()->task, RowExclusiveLock);
	PushActiveSnapshot(IsolationUsesXactSnapshot() ? GetCatalogSnapshot(InvalidOid) : GetTransactionSnapshot());
}

/* The runs that the transaction settles, if it commits */
static struct
{
	DwDatabase *db;
	const DwRun *runs;
	uint32		n;
}			settling;

/* Counts the settled runs at the commit: a session that waits for a task sees it in the counts. */
static void
settling_xact_callback(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT)
		for (uint32 i = 0; i < settling.n; i++)
			dw_settled(settling.db, &settling.runs[i]);
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT)
		settling.n = 0;
}

/* Installs the count of settled runs.  To be called once by each executor. */
void
dw_settled_watch_commits(void)
{
	RegisterXactCallback(settling_xact_callback, NULL);
}

/*
 * Commits the transaction of a claim, which settles n runs.  Deferred triggers and the commit obey
 * settings that the task has changed (for example synchronous_commit).
 */
void
dw_claim_commit_transaction(DwDatabase *db, const DwRun *runs, uint32 n)
{
	settling.db = db;
	settling.runs = runs;
	settling.n = n;
	dw_other_nodes_prepare();
	if (ActiveSnapshotSet())
		PopActiveSnapshot();
	DW_INJECT("run-before-commit");
	EndImplicitTransactionBlock();
	dw_session_commit_transaction();
	DW_INJECT("run-after-commit");
}

/*
 * Runs all of a task's own code that the commit would run: deferred triggers, and the queries of
 * cursors WITH HOLD.  Triggers may open such cursors, and their queries may fire triggers.
 */
void
dw_session_finish_work(void)
{
	do
		AfterTriggerFireDeferred();
	while (PreCommit_Portals(false));
}

/* Sets search_path.  NULL: the value of the role, or of the server. */
void
dw_session_set_path(const char *path, GucAction action)
{
	(void) set_config_option("search_path", path, PGC_USERSET, PGC_S_SESSION, action, true, 0,
							 false);
}

/*---- Cleaning between tasks ----*/

/* Resets a setting that ResetAllOptions() does not reset, if it was set. */
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
 * Removes what the next task of the same transaction must not find.  Session locks stay until the
 * end: before the commit, other sessions could not see the changes made under the locks.
 */
void
dw_session_clean_within(void)
{
	PortalHashTableDeleteAll();
	DropAllPreparedStatements();
	ResetSequenceCaches();
}

/*
 * Removes what tasks may have left in the session, except the state of procedural languages.
 * Called outside of a transaction. used_temp: tasks may have left temporary objects.
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
		/* PostgreSQL needs a snapshot to delete catalog rows with TOASTed columns */
		PushActiveSnapshot(GetTransactionSnapshot());
		ResetTempTableNamespace();
		PopActiveSnapshot();
		dw_session_commit_transaction();
	}
}
