/*-------------------------------------------------------------------------
 *
 * shared.c
 *	  Shared memory of a database: its layout, its place, and wake-ups.
 *
 * Run by all processes.  The memory of delay_wheel is part of PostgreSQL's main segment.  Settings
 * fix the size when the server starts.  The size never changes.  After a crash the postmaster
 * creates a new segment, and timers fill it from the tables.  control/delay_wheel.c requests and
 * initializes this memory.
 *
 * A database gets a place when its first task is scheduled, or from the launcher.  A process finds
 * the place by the database's OID, under the table lock.  A transaction that uses a place pins it.
 * A pinned place is never given to another database.
 *
 * Commit callbacks call dw_lane_dirty(), dw_wake_timer() and dw_wake_launcher(), so these never
 * fail, wait or allocate memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "common/hashfn.h"
#include "utils/acl.h"

#include "../base/compat.h"
#include "../base/settings.h"
#include "shared.h"

DwShared   *dw_shared = NULL;
DwPool	   *dw_pool = NULL;
DwLane	   *dw_lanes = NULL;
DwOwner    *dw_owners = NULL;
char *dw_databases = NULL;

/* Minimum time that a timer runs before new settings end it. */
#define RESTART_PAUSE_US	USECS_PER_SEC

/*---- Layout and access ----*/

/* Returns the number of chunks of the pool, from delay_wheel.ring_memory. */
uint32
dw_pool_chunks(void)
{
	return Max(((Size) dw_ring_memory * 1024) / sizeof(DwChunk), 2);
}

/*
 * Returns the bytes of one database: its DwDatabase, inbox, ring and bitmap of dirty lanes, in this
 * order.  Needs no shared memory.
 */
Size
dw_database_size(void)
{
	Size		size = add_size(MAXALIGN(sizeof(DwDatabase)), dw_inbox_bytes());

	size = add_size(size, MAXALIGN(dw_ring_size(dw_slots)));
	return CACHELINEALIGN(add_size(size, mul_size(DW_LANE_WORDS, sizeof(pg_atomic_uint64))));
}

void
dw_require_shared(void)
{
	if (dw_shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("delay_wheel must be loaded via \"%s\"", "shared_preload_libraries"),
				 errhint("Add delay_wheel to \"%s\" in postgresql.conf and restart the server.",
						 "shared_preload_libraries")));
}

/* Returns the place with this number, from 0 to dw_max_databases - 1.  It may be free. */
DwDatabase *
dw_database(int number)
{
	return (DwDatabase *) (dw_databases + number * dw_database_size());
}

/* Returns the number of a place, for dw_database(). */
int
dw_database_number(DwDatabase *db)
{
	return ((char *) db - dw_databases) / dw_shared->database_size;
}

/* Returns the ring lock, which protects ring and account.  Each database has one. */
LWLock *
dw_ring_lock(DwDatabase *db)
{
	return &((LWLockPadded *) dw_shared->database_locks)[2 * dw_database_number(db)].lock;
}

/* Returns the lock of the database's ready lists, and of its executors' current tasks. */
LWLock *
dw_ready_lock(DwDatabase *db)
{
	return &((LWLockPadded *) dw_shared->database_locks)[2 * dw_database_number(db) + 1].lock;
}

/*---- Places of databases ----*/

/*
 * Initializes a place as free, except for its pins, since each process that has pinned the place
 * will unpin it.  Needs the table lock exclusively, except at the set-up.
 */
void
dw_database_init(DwDatabase *db)
{
	char	   *pins = (char *) &db->pins;
	char	   *behind = (char *) (&db->dirty_lanes + 1);
	char	   *memory = (char *) db + MAXALIGN(sizeof(DwDatabase));

	memset(db, 0, pins - (char *) db);
	memset(behind, 0, (char *) db + sizeof(DwDatabase) - behind);
	db->inbox = (DwInbox *) memory;
	memory += dw_inbox_bytes();
	db->ring = (DwRing *) memory;
	memory += MAXALIGN(dw_ring_size(dw_slots));
	db->dirty_lanes = (pg_atomic_uint64 *) memory;
	db->oid = InvalidOid;
	db->absent = true;
	db->lanes = DW_NO_LANE;
	dlist_init(&db->ready_owners);
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
	dw_inbox_init(db->inbox);
	dw_problem_init(&db->problem);
	pg_atomic_init_u64(&db->executors_told, 0);

	pg_atomic_init_u64(&db->near, 0);
	pg_atomic_init_u64(&db->ready, 0);
	dw_counters_init(&db->counters);
	dw_lateness_init(&db->lateness);
	for (int i = 0; i < DW_LANE_WORDS; i++)
		pg_atomic_init_u64(&db->dirty_lanes[i], 0);
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
DwDatabase *
dw_database_unused(void)
{
	dw_each_database(db)
		if (db->oid == InvalidOid && pg_atomic_read_u32(&db->pins) == 0)
			return db;
	return NULL;
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
		db = dw_database_unused();
		if (db != NULL)
		{
			dw_database_init(db);
			dw_ring_init(db->ring, dw_slots, dw_tick_us());
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

/*---- Limits and rights ----*/

/*
 * Returns how many executors may run tasks of one lane at once.
 *
 * Since a task may run for ever, one lane must not occupy all executors of a database.  One
 * executor is left for another owner (dispatch.c), and one for another lane.
 */
uint32
dw_lane_executors(void)
{
	return Max(dw_max_executors - 2, 1);
}

/*
 * Returns true if views show this database to the current user: it is the current database, or the
 * user has the rights of pg_read_all_stats.
 */
bool
dw_may_see_database(const DwDatabase *db)
{
	return db->oid == MyDatabaseId ||
		(OidIsValid(db->oid) && has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS));
}

/*---- Wake-ups ----*/

/*
 * Marks the lane as dirty, so that the timer looks at it (step C2d of the protocol).
 *
 * Before the call, the caller stores the changes that the timer must see.  Does not wake the timer.
 */
void
dw_lane_dirty(DwDatabase *db, const DwLane *lane)
{
	uint32		number = lane - dw_lanes;

	/*
	 * full barrier; the flag is set after the bit, since the timer clears the flag before it reads
	 * bits
	 */
	pg_atomic_fetch_or_u64(&db->dirty_lanes[number / 64], UINT64CONST(1) << (number % 64));
	dw_news_tell(&db->timer_news, DW_NEWS_LANES);
}

/*
 * Wakes the timer if it sleeps beyond the time "needed"; DW_AWAKE ends any sleep (step C3 of the
 * protocol).  If the timer rests until a later time, asks the launcher to start a timer by "needed"
 * (C4).  If the database has no timer for another reason, asks the launcher to start a timer.
 *
 * Before the call, the caller stores the changes that the timer must see.
 */
void
dw_wake_timer(DwDatabase *db, TimestampTz needed)
{
	bool		earlier = false;

	pg_memory_barrier();
	if (dw_process_is_there(&db->timer))
	{
		if (dw_atomic_read(&db->timer.sleep_until) > needed)
			(void) dw_process_wake(&db->timer);
		return;
	}
	/* a resting timer published the end of its rest before it was withdrawn */
	pg_read_barrier();
	if (!dw_rest_end_ask(&db->timer_news, needed, &earlier))
		dw_news_tell(&db->timer_news, DW_NEWS_START);
	else if (!earlier)
		return;
	dw_wake_launcher();
}

/*
 * Returns how long before the end of a timer's rest the launcher starts the next timer, in us.
 * Timers are started one after the other, and many may be needed at the same time.
 */
int64
dw_rest_margin(void)
{
	return 2 * USECS_PER_SEC + (int64) dw_max_databases * 50 * 1000;
}

/* Makes the timer look for executors and receivers at this time.  Does nothing for DW_NEVER. */
void
dw_ask_dispatch(DwDatabase *db, TimestampTz at)
{
	if (at == DW_NEVER)
		return;
	dw_news_tell(&db->timer_news, DW_NEWS_EXECUTORS);
	dw_wake_timer(db, at);
}

/* Asks the sweeper to do the job at this time, or earlier if it has an earlier request. */
void
dw_ask_sweeper(DwDatabase *db, DwJob job, TimestampTz at)
{
	if (!dw_job_ask(&db->sweeper_news, job, at))
		return;
	/* the timer reads the times of jobs when "control" has changed */
	dw_control_raise(&db->timer_news);
	dw_wake_timer(db, DW_AWAKE);
}

/*
 * Returns a hash with a secret salt, which changes with each start of the server.  So nobody can
 * compute the hash of a guessed value.  pg_locks and some views show such hashes to all users.
 */
uint64
dw_secret_hash(const void *data, int length, uint64 seed)
{
	return hash_bytes_extended(data, length, seed ^ (dw_shared != NULL ? dw_shared->salt : 0));
}

/*
 * Requests this restart of timer and sweeper, if any.  Wakes timer and sweeper, so that they check
 * whether they must restart, or a command needs the database.
 */
void
dw_call_timer(DwDatabase *db, DwRestart restart)
{
	bool		earlier;

	dw_restart_ask(&db->timer_news, restart);
	pg_memory_barrier();
	(void) dw_process_wake(&db->timer);
	(void) dw_process_wake(&db->sweeper);
	/* if the timer rests, a new timer must read settings and clock, too */
	if (restart != DW_RESTART_NONE && !dw_process_is_there(&db->timer) &&
		dw_rest_end_ask(&db->timer_news, DW_AWAKE, &earlier))
		dw_wake_launcher();
}

/*
 * Returns the time at which timer and sweeper must end for a restart, or DW_NEVER.
 *
 * If the timer has just started, a restart for new settings waits a moment.  Otherwise frequent
 * changes of settings would prevent the timer's work.
 */
TimestampTz
dw_restart_at(DwDatabase *db)
{
	switch (dw_restart_asked(&db->timer_news))
	{
		case DW_RESTART_NONE:
			return DW_NEVER;
		case DW_RESTART_SOON:
			return dw_now() + Max(db->timer.started + RESTART_PAUSE_US - dw_uptime(), 0);
		default:
			return PG_INT64_MIN;
	}
}

/* Sets the latch of the launcher, if one runs. */
void
dw_wake_launcher(void)
{
	(void) dw_process_wake(&dw_shared->launcher);
}

/* If the database has a timer, sleeping or resting, wakes it by dw_wake_timer(). */
void
dw_wake_timer_if_any(DwDatabase *db)
{
	pg_memory_barrier();
	if (dw_process_is_there(&db->timer) || dw_rest_until(&db->timer_news) != DW_AWAKE)
		dw_wake_timer(db, DW_AWAKE);
}

/* Makes all timers look for lanes of dropped roles.  Called when a DROP ROLE commits. */
void
dw_roles_dropped(void)
{
	dw_each_database(db)
	{
		if (db->oid == InvalidOid)
			continue;
		dw_news_tell(&db->timer_news, DW_NEWS_ROLES);
		/* the role may have owned queues */
		dw_control_raise(&db->timer_news);
		pg_memory_barrier();
		dw_news_tell(&db->timer_news, DW_NEWS_LANES);
		dw_wake_timer_if_any(db);
	}
}
