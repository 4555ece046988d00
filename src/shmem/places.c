/*-------------------------------------------------------------------------
 *
 * places.c
 *	  Places of databases in shared memory.
 *
 * Run by all processes.  A database gets a place when its first task is scheduled, or from the
 * launcher.  A process finds the place by the database's OID, under the table lock.  A transaction
 * that uses a place pins it.  A pinned place is never given to another database.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/settings.h"
#include "shared.h"

/*
 * Initializes a place as free, except for its pins, since each process that has pinned the place
 * will unpin it.  Needs the table lock exclusively, except at the set-up.
 */
void
dw_database_init(DwDatabase *db)
{
	char	   *pins = (char *) &db->pins;
	char	   *behind = pins + sizeof(db->pins);

	memset(db, 0, pins - (char *) db);
	memset(behind, 0, (char *) db + sizeof(DwDatabase) - behind);
	db->oid = InvalidOid;
	db->absent = true;
	db->lanes = DW_NO_LANE;
	dlist_init(&db->ready_owners);
	db->newest_owner = NULL;
	dlist_init(&db->blocked_owners);
	db->blocked_until = DW_NEVER;
	db->group_opened = DW_NO_LANE;
	db->group_wakes_at = DW_NEVER;
	/* a process that holds a database has pinned its place, so nobody holds this database */
	pg_atomic_init_u32(&db->holds, 0);
	dw_process_init(&db->timer);
	dw_timer_news_init(&db->timer_news);
	dw_process_init(&db->sweeper);
	dw_sweeper_news_init(&db->sweeper_news);
	dw_lack_init(&db->executors_lack);
	pg_atomic_init_u32(&db->disabled, 0);
	pg_atomic_init_u32(&db->waiters, 0);
	dw_inbox_init(dw_inbox(db));
	dw_problem_init(&db->problem);
	pg_atomic_init_u64(&db->executors_told, 0);

	pg_atomic_init_u64(&db->near, 0);
	pg_atomic_init_u64(&db->ready, 0);
	dw_counters_init(&db->counters);
	dw_lateness_init(&db->lateness);
	for (int i = 0; i < DW_LANE_WORDS; i++)
		pg_atomic_init_u64(&dw_dirty_lanes(db)[i], 0);
	dw_rollbacks_init(&db->rollbacks);
}

/*
 * Returns the place of a database, or NULL.
 *
 * Needs the table lock.  A caller that has pinned the place, or is a worker of the database, needs
 * no lock, since the database cannot lose its place.
 */
DwDatabase *
dw_database_find(Oid database)
{
	dw_each_database(db)
		if (db->oid == database)
			return db;
	return NULL;
}

/*
 * Returns a place for a new database, or NULL.  Skips pinned places: a process may have pinned such
 * a place for the database that had it before.
 */
static DwDatabase *
unused_place(void)
{
	dw_each_database(db)
		if (db->oid == InvalidOid && pg_atomic_read_u32(&db->pins) == 0)
			return db;
	return NULL;
}

/* Returns true if a place is free for a new database. */
bool
dw_database_place_free(void)
{
	return unused_place() != NULL;
}

/*
 * Finds or makes the place of a database, and pins it if "pin" is true.  Returns NULL if all places
 * are taken.  Takes the table lock.
 */
DwDatabase *
dw_database_enter(Oid database, bool pin)
{
	DwDatabase *db;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	db = dw_database_find(database);
	if (db == NULL)
	{
		db = unused_place();
		if (db != NULL)
		{
			dw_database_init(db);
			dw_ring_init(dw_ring(db), dw_slots, dw_tick_us());
			db->account.owner = database;
			db->oid = database;
		}
	}
	if (db != NULL && pin)
		pg_atomic_fetch_add_u32(&db->pins, 1);
	LWLockRelease(dw_shared->table_lock);
	return db;
}

/*
 * Pins a place that the caller has found before.  Returns false if the place no longer belongs to
 * the database.  Takes no lock.
 */
bool
dw_database_pin(DwDatabase *db, Oid database)
{
	/* full barrier: either this process sees the invalid OID, or the launcher sees the pin */
	pg_atomic_fetch_add_u32(&db->pins, 1);
	if (db->oid == database)
		return true;
	dw_database_unpin(db);
	return false;
}

/*
 * Finds and pins the place of a database.  Takes no lock, so callbacks can call it.  Returns NULL
 * if the database has no place.
 */
DwDatabase *
dw_database_find_pin(Oid database)
{
	dw_each_database(db)
		if (db->oid == database && dw_database_pin(db, database))
			return db;
	return NULL;
}

/* Removes one pin. */
void
dw_database_unpin(DwDatabase *db)
{
	/* the launcher checks again whether to give the place back */
	if (pg_atomic_sub_fetch_u32(&db->pins, 1) == 0 && db->absent)
		dw_wake_launcher();
}

/* Frees the place.  Returns false if a process has pinned it.  Needs the table lock exclusively. */
bool
dw_database_give_back(DwDatabase *db)
{
	Oid			database = db->oid;

	db->oid = InvalidOid;
	/* either a process that pins the place sees the invalid OID, or this process sees the pin */
	pg_memory_barrier();
	if (pg_atomic_read_u32(&db->pins) == 0)
		return true;
	db->oid = database;
	return false;
}

/* Stores the name of the timer's database.  A command that changes the name ends the timer. */
void
dw_database_set_name(DwDatabase *db, const char *name)
{
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	strlcpy(db->name, name, sizeof(db->name));
	LWLockRelease(dw_shared->table_lock);
}

/*
 * Divides the pool evenly among the databases that have a timer.  If a database uses more than its
 * share, wakes its timer to give memory back.  Takes the table lock.
 */
void
dw_quota_update(void)
{
	uint32		n = 0;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	dw_each_database(db)
		if (db->timer.state == DW_PROCESS_RUNNING)
			n++;
	pg_atomic_write_u32(&dw_shared->timers, n);
	for (int i = 0; i < dw_max_databases && n > 0; i++)
	{
		DwDatabase *db = dw_database(i);

		SpinLockAcquire(&dw_pool->lock);
		db->account.quota = Max(dw_pool->nchunks / n, 1);
		SpinLockRelease(&dw_pool->lock);
		if (db->account.used > db->account.quota)
			dw_wake_timer(db, DW_AWAKE);
	}
	LWLockRelease(dw_shared->table_lock);
}
