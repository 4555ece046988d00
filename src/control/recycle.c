/*-------------------------------------------------------------------------
 *
 * recycle.c
 *	  Restarts workers when the rights or settings of their login change.
 *
 * Run by the backend of a command that changes such rights or settings.  README.md lists the
 * commands and their effects.
 *
 * A concern is a database, a role or both whose rights or settings a command changes.  ddl.c finds
 * the concerns before the command, and stores them after the command has succeeded.
 *
 * At the commit, the backend reads the executors' places in shared memory without a lock.  If it
 * mistakes an executor for an executor of another role, this executor ends without need, which is
 * harmless.  An executor that gets its place later connects after the commit.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "utils/acl.h"
#include "utils/resowner.h"

#include "control.h"

/* A database and a role: the role's login to the database would find changed rights or settings. */
typedef struct Concern
{
	Oid			database;		/* InvalidOid: all databases */
	Oid			role;			/* InvalidOid: all roles */
	bool		settings;		/* settings have changed, not only rights */
	DwStale		how;			/* executors end, or check their role */
} Concern;

/* The concerns of this transaction, in its memory. */
static List *concerns = NIL;

/* true if the launcher must list the databases again */
static bool databases_changed = false;

/* true after the commit, until recycle_release_callback() has done the rest */
static bool retries = false;

/* Adds a concern, unless the same database and role already have a concern. */
static void
remember_concern(const Concern *concern)
{
	MemoryContext context;
	ListCell   *lc;
	Concern    *known;

	foreach(lc, concerns)
	{
		known = lfirst(lc);
		if (known->database == concern->database && known->role == concern->role)
		{
			known->how = Max(known->how, concern->how);
			known->settings |= concern->settings;
			return;
		}
	}
	context = MemoryContextSwitchTo(TopTransactionContext);
	known = palloc(sizeof(Concern));
	*known = *concern;
	concerns = lappend(concerns, known);
	MemoryContextSwitchTo(context);
}

/*
 * Remembers the concerns of a command that has succeeded, and whether it may have changed the list
 * of databases.  They take effect if this transaction commits.
 */
void
dw_recycle(const List *found, bool databases)
{
	ListCell   *lc;

	databases_changed |= databases;
	foreach(lc, found)
	{
		Concern    *concern = lfirst(lc);

		remember_concern(concern);
		if (concern->settings)
			dw_login_changing();
	}
}

/*
 * Adds a concern to a list: executors of this role in this database end, or check if their role may
 * still log in ("how").  InvalidOid stands for all roles or databases.  settings: timers with these
 * settings are restarted, too.
 */
List *
dw_concern(List *found, Oid database, Oid role, bool settings, DwStale how)
{
	Concern    *concern = palloc(sizeof(Concern));

	*concern = (Concern) {database, role, settings, how};
	return lappend(found, concern);
}

/*
 * Adds to a list the concerns that executors of the role, and of its members, check their role.
 * Adds only members with an executor, or with tasks that no executor can run for now.
 */
List *
dw_concern_members(List *found, Oid role)
{
	found = dw_concern(found, InvalidOid, role, false, DW_STALE_LOOK);
	dw_each_executor(e)
		if (e->state != DW_EXECUTOR_FREE && is_member_of_role_nosuper(e->owner, role))
			found = dw_concern(found, InvalidOid, e->owner, false, DW_STALE_LOOK);
	for (int i = 0; i < dw_owner_places(); i++)
		if (OidIsValid(dw_owners[i].database) && dw_owners[i].block != DW_BLOCK_NONE &&
			is_member_of_role_nosuper(dw_owners[i].role, role))
			found = dw_concern(found, InvalidOid, dw_owners[i].role, false, DW_STALE_LOOK);
	return found;
}

/*
 * Returns the duty of executors of a role in a database; DW_FRESH if no concern includes them.
 * settings: only concerns of settings count.
 */
static DwStale
concerned(Oid database, Oid role, bool settings)
{
	DwStale		how = DW_FRESH;
	ListCell   *lc;

	foreach(lc, concerns)
	{
		const Concern *concern = lfirst(lc);

		if ((concern->database == InvalidOid || concern->database == database) &&
			(concern->role == InvalidOid || concern->role == role) &&
			(concern->settings || !settings))
			how = Max(how, concern->how);
	}
	return how;
}

/* Informs executors of concerns of one kind (DW_STALE_END or DW_STALE_LOOK). */
static void
recycle_executors(DwStale wanted)
{
	dw_each_executor(e)
	{
		uint32		fresh = DW_FRESH;
		DwStale		how;

		if (e->state == DW_EXECUTOR_FREE)
			continue;
		how = concerned(e->database, e->owner, false);
		if (how != wanted)
			continue;
		if (how == DW_STALE_END)
			pg_atomic_write_u32(&e->stale, DW_STALE_END);
		else
			(void) pg_atomic_compare_exchange_u32(&e->stale, &fresh, DW_STALE_LOOK);
		pg_memory_barrier();
		if (e->proc != 0)
			SetLatch(dw_proc_latch(e->proc));
	}
}

/* Restarts the timers whose settings, those of the bootstrap superuser, have changed. */
static void
recycle_timers(void)
{
	dw_each_database(db)
		if (db->oid != InvalidOid && concerned(db->oid, BOOTSTRAP_SUPERUSERID, true))
			dw_call_timer(db, DW_RESTART_SOON);
}

/*
 * Makes timers retry the blocked owners of the concerns, since such an owner may have got the
 * missing right.
 */
static void
retry_blocked(void)
{
	for (int i = 0; i < dw_owner_places(); i++)
	{
		DwOwner    *owner = &dw_owners[i];
		Oid			database = owner->database;
		DwDatabase *db;

		if (database == InvalidOid || owner->block == DW_BLOCK_NONE ||
			!concerned(database, owner->role, false))
			continue;
		db = dw_database_find_pin(database);
		if (db == NULL)
			continue;
		dw_news_tell(&db->timer_news, DW_NEWS_RIGHTS);
		dw_ask_dispatch(db, DW_AWAKE);
		dw_database_unpin(db);
	}
}

/* Informs executors and timers at the commit.  The rest follows when the locks are released. */
static void
recycle_xact_callback(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT && concerns != NIL)
	{
		recycle_executors(DW_STALE_END);
		recycle_timers();
		retries = true;
	}
	if (event == XACT_EVENT_COMMIT && databases_changed)
	{
		pg_atomic_write_u32(&dw_shared->databases_changed, 1);
		pg_memory_barrier();
		dw_wake_launcher();
	}
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
	{
		dw_login_changed();
		if (!retries)
			concerns = NIL;
		databases_changed = false;
	}
}

/*
 * When the transaction has released its locks, and so has sent its invalidation messages, informs
 * executors that must check their role, and retries blocked owners: earlier, they would see old
 * copies of the catalogs.  Called for each resource owner and phase.
 */
static void
recycle_release_callback(ResourceReleasePhase phase, bool committed, bool top_level, void *arg)
{
	if (!retries || phase != RESOURCE_RELEASE_AFTER_LOCKS || !top_level)
		return;
	recycle_executors(DW_STALE_LOOK);
	retry_blocked();
	concerns = NIL;
	retries = false;
}

/* Called once by the postmaster. */
void
dw_recycle_install(void)
{
	RegisterXactCallback(recycle_xact_callback, NULL);
	RegisterResourceReleaseCallback(recycle_release_callback, NULL);
}
