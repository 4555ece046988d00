/*-------------------------------------------------------------------------
 *
 * recycle.c
 *	  Commands that change what a login would find: workers start anew.
 *
 * An executor is a session like one that logs in; but it lasts.  So that a
 * task finds the settings of ALTER ROLE and ALTER DATABASE as they are, and
 * that nobody has a session who must not log in any more, executors end when
 * these have changed, after the task that they run.
 *
 * Run by the backend of such a command, which finds whom it concerns before (a
 * role may be gone afterwards), and remembers them when it has succeeded: who
 * lacks the right to it disturbs nobody.  When the transaction commits the places of executors are looked
 * through without a lock: one that is taken for the wrong role ends
 * needlessly, and one that is entered afterwards connects after the commit.
 * Memberships, which hold at once in all sessions, make executors look whether
 * they could still log in: a role that may grant some role can change those of
 * any other as often as it likes.  They look when the commit has told what it
 * changed in catalogs.
 * Owners that wait for a right are tried again when the commit has told what it
 * changed in catalogs: the timer lasts, and goes by what it remembers of them.
 * The callbacks cannot fail, wait or allocate.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "nodes/pg_list.h"
#include "storage/latch.h"
#include "utils/acl.h"
#include "utils/resowner.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/settings.h"
#include "../shmem/executors.h"
#include "../shmem/lanes.h"
#include "../shmem/places.h"
#include "../shmem/shared.h"
#include "recycle.h"

/* Beyond that, those are concerned whom all of them have in common. */
#define MAX_CONCERNS	256

/* Who logs in there, as that one, would find it changed. */
typedef struct Concern
{
	Oid			database;		/* InvalidOid: all */
	Oid			role;			/* InvalidOid: all */
	bool		settings;
	DwStale		how;			/* what becomes of executors */
} Concern;

/* Whom this transaction concerns. */
typedef struct Concerns
{
	Concern		list[MAX_CONCERNS];
	int			n;
} Concerns;

static Concerns executors;
/* kept apart: what any role may change for itself is never a timer's business */
static Concerns timers;
static bool databases_changed = false;
/* it has committed, and has locks yet */
static bool retries = false;

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
 * The command has succeeded.  If this transaction commits, executors that are
 * concerned run no other task, owners whose tasks wait for a right are tried
 * again, and such timers start anew.
 */
void
dw_recycle(const List *found)
{
	ListCell   *lc;

	foreach(lc, found)
	{
		Concern    *concern = lfirst(lc);

		remember_concern(&executors, concern);
		/* a timer is a session of the bootstrap superuser */
		if (concern->settings &&
			(concern->role == InvalidOid || concern->role == BOOTSTRAP_SUPERUSERID))
			remember_concern(&timers, concern);
	}
}

static List *
add_concern(List *found, Oid database, Oid role, bool settings, DwStale how)
{
	Concern    *concern = palloc(sizeof(Concern));

	*concern = (Concern) {database, role, settings, how};
	return lappend(found, concern);
}

/*
 * Whom a command concerns, as a list: executors of this database and role
 * (either may be InvalidOid, for all), and timers if settings are changed that
 * are theirs, too.
 */
List *
dw_concern(List *found, Oid database, Oid role, bool settings)
{
	return add_concern(found, database, role, settings, DW_STALE_END);
}

/*
 * The same for the role and its members; executors end only if they may not log in any more.
 *
 * Only those are looked for that have an executor, or wait for one.
 */
List *
dw_concern_members(List *found, Oid role)
{
	found = add_concern(found, InvalidOid, role, false, DW_STALE_LOOK);
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].state != DW_EXECUTOR_FREE &&
			is_member_of_role_nosuper(dw_executors[i].owner, role))
			found = add_concern(found, InvalidOid, dw_executors[i].owner, false, DW_STALE_LOOK);
	for (int i = 0; i < dw_owner_places(); i++)
		if (OidIsValid(dw_owners[i].database) && dw_owners[i].block != DW_BLOCK_NONE &&
			is_member_of_role_nosuper(dw_owners[i].role, role))
			found = add_concern(found, InvalidOid, dw_owners[i].role, false, DW_STALE_LOOK);
	return found;
}

/* If this transaction commits, the launcher looks which databases there are. */
void
dw_recycle_databases(void)
{
	databases_changed = true;
}

/* DW_FRESH: not at all. */
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

/* Those that concerns of this kind are about. */
static void
recycle_executors(DwStale wanted)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];
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

static void
recycle_timers(void)
{
	for (int i = 0; i < dw_max_databases; i++)
	{
		DwDatabase *db = dw_database(i);

		if (db->oid != InvalidOid && concerned(&timers, db->oid, BOOTSTRAP_SUPERUSERID))
			dw_call_timer(db, DW_RESTART_SOON);
	}
}

/* Owners that no executor could be had for may have got the right. */
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
		pg_atomic_write_u32(&db->rights_changed, 1);
		pg_atomic_write_u32(&db->executors_dirty, 1);
		dw_wake_timer(db, DW_AWAKE);
		dw_database_unpin(db);
	}
}

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
		timers.n = 0;
		if (!retries)
			executors.n = 0;
		databases_changed = false;
	}
}

/* Called for each resource owner of the transaction. */
static void
recycle_release_callback(ResourceReleasePhase phase, bool committed, bool top_level, void *arg)
{
	if (!retries || phase != RESOURCE_RELEASE_AFTER_LOCKS || !top_level)
		return;
	/* who looks finds what was told */
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
