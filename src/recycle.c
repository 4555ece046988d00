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
 * Owners that wait for a right are tried again when the commit has told what it
 * changed in catalogs: the timer lasts, and goes by what it remembers of them.
 * The callbacks cannot fail, wait or allocate.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "compat.h"
#include "lanes.h"
#include "recycle.h"
#include "settings.h"
#include "shared.h"
#include "storage/latch.h"
#include "utils/acl.h"
#include "utils/resowner.h"

/* Beyond that, everybody is concerned. */
#define MAX_CONCERNS	16

typedef struct Concern
{
	Oid			database;		/* InvalidOid: all */
	Oid			role;			/* InvalidOid: all */
	bool		settings;
} Concern;

/* Of this transaction. */
static Concern concerns[MAX_CONCERNS];
static int	nconcerns = 0;
static bool databases_changed = false;
/* it has committed, and has locks yet */
static bool retries = false;

static void
remember(const Concern *concern)
{
	for (int i = 0; i < nconcerns; i++)
		if (concerns[i].database == concern->database && concerns[i].role == concern->role &&
			concerns[i].settings == concern->settings)
			return;
	if (nconcerns == MAX_CONCERNS)
	{
		concerns[0] = (Concern) {.settings = true};
		nconcerns = 1;
		return;
	}
	concerns[nconcerns++] = *concern;
}

void
dw_recycle(const List *found)
{
	ListCell   *lc;

	foreach(lc, found)
		remember(lfirst(lc));
}

List *
dw_concern(List *found, Oid database, Oid role, bool settings)
{
	Concern    *concern = palloc(sizeof(Concern));

	*concern = (Concern) {database, role, settings};
	return lappend(found, concern);
}

/* Only those are looked for that have an executor, or wait for one. */
List *
dw_concern_members(List *found, Oid role)
{
	found = dw_concern(found, InvalidOid, role, false);
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].state != DW_EXECUTOR_FREE &&
			is_member_of_role_nosuper(dw_executors[i].owner, role))
			found = dw_concern(found, InvalidOid, dw_executors[i].owner, false);
	for (int i = 0; i < dw_owner_places(); i++)
		if (OidIsValid(dw_owners[i].database) && dw_owners[i].block != DW_BLOCK_NONE &&
			is_member_of_role_nosuper(dw_owners[i].role, role))
			found = dw_concern(found, InvalidOid, dw_owners[i].role, false);
	return found;
}

void
dw_recycle_databases(void)
{
	databases_changed = true;
}

static bool
concerned(Oid database, Oid role)
{
	for (int i = 0; i < nconcerns; i++)
		if ((concerns[i].database == InvalidOid || concerns[i].database == database) &&
			(concerns[i].role == InvalidOid || concerns[i].role == role))
			return true;
	return false;
}

/* A timer is a session of the bootstrap superuser. */
static bool
concerns_timer(Oid database)
{
	for (int i = 0; i < nconcerns; i++)
		if (concerns[i].settings &&
			(concerns[i].database == InvalidOid || concerns[i].database == database) &&
			(concerns[i].role == InvalidOid || concerns[i].role == BOOTSTRAP_SUPERUSERID))
			return true;
	return false;
}

static void
recycle_executors(void)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e->state == DW_EXECUTOR_FREE || !concerned(e->database, e->owner))
			continue;
		pg_atomic_write_u32(&e->stale, 1);
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

		if (db->oid == InvalidOid || !concerns_timer(db->oid))
			continue;
		pg_atomic_write_u32(&db->restart, 1);
		dw_call_timer(db);
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
			!concerned(database, owner->role))
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
xact_callback(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT && nconcerns > 0)
	{
		recycle_executors();
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
		if (!retries)
			nconcerns = 0;
		databases_changed = false;
	}
}

/* Called for each resource owner of the transaction. */
static void
release_callback(ResourceReleasePhase phase, bool committed, bool top_level, void *arg)
{
	if (!retries || phase != RESOURCE_RELEASE_AFTER_LOCKS || !top_level)
		return;
	retry_blocked();
	nconcerns = 0;
	retries = false;
}

/* Called once by the postmaster. */
void
dw_recycle_install(void)
{
	RegisterXactCallback(xact_callback, NULL);
	RegisterResourceReleaseCallback(release_callback, NULL);
}
