/*-------------------------------------------------------------------------
 *
 * recycle.c
 *	  Restarts workers when the rights or settings of their login change.
 *
 * Run by the backend of a command that changes such rights or settings.  README.md lists the
 * commands and their effects.
 *
 * A concern is a database, a role or both whose rights or settings a command changes.  The backend
 * finds the concerns before the command, since the role may not exist afterwards (ddl.c).  This
 * file stores them after the command has succeeded.  So a command that fails, for example for lack
 * of rights, recycles no worker.
 *
 * At the commit, the backend reads the executors' places in shared memory without a lock.  If it
 * mistakes an executor for an executor of another role, this executor ends without need, which is
 * harmless.  An executor that gets its place later connects after the commit.
 *
 * Timers retry owners whose tasks wait for a right.  This retry, and the check of executors, begin
 * after the commit has sent its invalidation messages.  Otherwise timer and executors would see old
 * copies of the catalogs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "utils/acl.h"
#include "utils/resowner.h"

#include "control.h"

/*
 * Maximum number of concerns of a transaction.  More concerns are merged into one concern, for the
 * common database and the common role.  Without a common database or role, it is for all databases
 * or roles.
 */
#define MAX_CONCERNS	256

/* A database and a role: the role's login to the database would find changed rights or settings. */
typedef struct Concern
{
	Oid			database;		/* InvalidOid: all databases */
	Oid			role;			/* InvalidOid: all roles */
	bool		settings;		/* settings have changed, not only rights; dw_recycle() reads this
								 * before concerns are merged */
	DwStale		how;			/* executors end, or check their role */
} Concern;

/* The concerns of this transaction. */
typedef struct Concerns
{
	Concern		list[MAX_CONCERNS];
	int			n;
} Concerns;

static Concerns executors;

/*
 * Concerns of timers.  They are separate, so that they are never merged with concerns of settings
 * that a role may change for itself.  Such settings must not restart a timer.
 */
static Concerns timers;

/* true if the launcher must list the databases again */
static bool databases_changed = false;

/* true after the commit, until recycle_release_callback() has done the rest */
static bool retries = false;

/* Merges all concerns into one that covers them. */
static void
merge(Concerns *all)
{
	Concern    *common = &all->list[0];

	for (int i = 1; i < all->n; i++)
	{
		if (all->list[i].database != common->database)
			common->database = InvalidOid;
		if (all->list[i].role != common->role)
			common->role = InvalidOid;
		common->how = Max(common->how, all->list[i].how);
	}
	all->n = 1;
}

/* Adds a concern, unless the same database and role already have a concern. */
static void
remember_concern(Concerns *all, const Concern *concern)
{
	for (int i = 0; i < all->n; i++)
		if (all->list[i].database == concern->database && all->list[i].role == concern->role)
		{
			all->list[i].how = Max(all->list[i].how, concern->how);
			return;
		}
	if (all->n == MAX_CONCERNS)
		merge(all);
	all->list[all->n++] = *concern;
}

/*
 * Remembers the concerns of a command that has succeeded, and whether it may have changed the list
 * of databases.  If this transaction commits, executors of these concerns run no other task, or
 * check their role (DW_STALE_LOOK).  Timers whose settings have changed are restarted, timers retry
 * owners whose tasks wait for a right, and the launcher lists the databases again.
 */
void
dw_recycle(const List *found, bool databases)
{
	ListCell   *lc;

	databases_changed |= databases;
	foreach(lc, found)
	{
		Concern    *concern = lfirst(lc);

		remember_concern(&executors, concern);
		if (concern->settings)
			dw_login_changing();
		/* a timer's session has the settings of the bootstrap superuser */
		if (concern->settings &&
			(concern->role == InvalidOid || concern->role == BOOTSTRAP_SUPERUSERID))
			remember_concern(&timers, concern);
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

/* Returns the duty of executors of a role in a database; DW_FRESH if no concern includes them. */
static DwStale
concerned(const Concerns *all, Oid database, Oid role)
{
	DwStale		how = DW_FRESH;

	for (int i = 0; i < all->n; i++)
		if ((all->list[i].database == InvalidOid || all->list[i].database == database) &&
			(all->list[i].role == InvalidOid || all->list[i].role == role))
			how = Max(how, all->list[i].how);
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
		how = concerned(&executors, e->database, e->owner);
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

/* Restarts the timers whose settings have changed. */
static void
recycle_timers(void)
{
	dw_each_database(db)
		if (db->oid != InvalidOid && concerned(&timers, db->oid, BOOTSTRAP_SUPERUSERID))
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
			!concerned(&executors, database, owner->role))
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
	if (event == XACT_EVENT_COMMIT && executors.n > 0)
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
		timers.n = 0;
		if (!retries)
			executors.n = 0;
		databases_changed = false;
	}
}

/*
 * When the transaction has released its locks, and so has sent its invalidation messages, informs
 * executors that must check their role, and retries blocked owners.  Called for each resource owner
 * and phase.
 */
static void
recycle_release_callback(ResourceReleasePhase phase, bool committed, bool top_level, void *arg)
{
	if (!retries || phase != RESOURCE_RELEASE_AFTER_LOCKS || !top_level)
		return;
	recycle_executors(DW_STALE_LOOK);
	retry_blocked();
	executors.n = 0;
	retries = false;
}

/* Called once by the postmaster. */
void
dw_recycle_install(void)
{
	RegisterXactCallback(recycle_xact_callback, NULL);
	RegisterResourceReleaseCallback(recycle_release_callback, NULL);
}
