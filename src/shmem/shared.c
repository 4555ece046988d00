/*-------------------------------------------------------------------------
 *
 * shared.c
 *	  Shared memory of a database: its layout, and wake-ups.
 *
 * Run by all processes.  Everything is in the main segment, of a size that the
 * settings fix at the start of the server; nothing here grows.  After a crash
 * the postmaster sets up a new segment, and the timers fill it from the tables
 * (control/shmem.c does the request and the set-up).
 *
 * dw_lane_dirty(), dw_wake_timer() and dw_wake_launcher() are
 * called in commit callbacks: they never fail, wait or allocate.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "common/hashfn.h"
#include "datatype/timestamp.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "utils/acl.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/settings.h"
#include "../ring/ring.h"
#include "shared.h"

DwShared   *dw_shared = NULL;
DwPool	   *dw_pool = NULL;
DwLane	   *dw_lanes = NULL;
DwOwner    *dw_owners = NULL;
char *dw_databases = NULL;

/* Minimum time that a timer runs before new settings end it. */
#define RESTART_PAUSE_US	USECS_PER_SEC

/*---- Layout and access ----*/

/* Number of chunks of the pool, from delay_wheel.ring_memory. */
uint32
dw_pool_chunks(void)
{
	return Max(((Size) dw_ring_memory * 1024) / sizeof(DwChunk), 2);
}

/*
 * A database is a DwDatabase, its inbox, its ring, and its bitmap of dirty lanes, in
 * this order.
 */
static Size
inbox_offset(void)
{
	return MAXALIGN(sizeof(DwDatabase));
}

static Size
ring_offset(void)
{
	return add_size(inbox_offset(), dw_inbox_bytes());
}

static Size
dirty_offset(void)
{
	return MAXALIGN(add_size(ring_offset(), dw_ring_size(dw_slots)));
}

/* Bytes of one database, with inbox, ring and bitmap.  Needs no shared memory. */
Size
dw_database_size(void)
{
	return CACHELINEALIGN(add_size(dirty_offset(),
								   mul_size(DW_LANE_WORDS, sizeof(pg_atomic_uint64))));
}

/* Number of places of executors: no more workers can run at once. */
uint32
dw_executor_places(void)
{
	return max_worker_processes;
}

/* Raises an error unless the library was preloaded. */
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

/* The place with this number, from 0 to dw_max_databases - 1, in use or free. */
DwDatabase *
dw_database(int number)
{
	return (DwDatabase *) (dw_databases + number * dw_database_size());
}

/* The number of a place, for dw_database(). */
int
dw_database_number(DwDatabase *db)
{
	return ((char *) db - dw_databases) / dw_shared->database_size;
}

/* The inbox of the database. */
DwInbox *
dw_inbox(DwDatabase *db)
{
	return (DwInbox *) ((char *) db + inbox_offset());
}

/* The ring of the database; its ring lock protects it. */
DwRing *
dw_ring(DwDatabase *db)
{
	return (DwRing *) ((char *) db + ring_offset());
}

/*
 * Bitmap of the lanes that the timer must look at, in DW_LANE_WORDS words.  A bit's
 * number is the lane's index in dw_lanes.
 */
pg_atomic_uint64 *
dw_dirty_lanes(DwDatabase *db)
{
	return (pg_atomic_uint64 *) ((char *) db + dirty_offset());
}

/*
 * Protects the ring and its account.  Locks of databases are in pairs: ring lock, ready
 * lock.
 */
LWLock *
dw_ring_lock(DwDatabase *db)
{
	return &((LWLockPadded *) dw_shared->database_locks)[2 * dw_database_number(db)].lock;
}

/* Protects the ready lists of the database, and what its executors run. */
LWLock *
dw_ready_lock(DwDatabase *db)
{
	return &((LWLockPadded *) dw_shared->database_locks)[2 * dw_database_number(db) + 1].lock;
}

/*---- Limits and rights ----*/

/*
 * Maximum number of executors that run tasks of one lane.
 *
 * A task may take for ever, so one lane must not occupy all executors of a database.
 * One place is left for another owner (dispatch.c), and one for another lane.
 */
uint32
dw_lane_executors(void)
{
	return Max(dw_max_executors - 2, 1);
}

/*
 * True if the current user may see this database in views: it is the session's own
 * database, or the user has the rights of pg_read_all_stats.
 */
bool
dw_may_see_database(const DwDatabase *db)
{
	return db->oid == MyDatabaseId ||
		(OidIsValid(db->oid) && has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS));
}

/*---- Wake-ups ----*/

/*
 * Tells the timer to look at the lane when it is awake (step C2d of the protocol).
 *
 * The caller stores what the timer must see there before the call.  Does not wake the
 * timer.
 */
void
dw_lane_dirty(DwDatabase *db, const DwLane *lane)
{
	uint32		number = lane - dw_lanes;

	/* full barrier; the flag is set last, since the timer clears the flag first */
	pg_atomic_fetch_or_u64(&dw_dirty_lanes(db)[number / 64], UINT64CONST(1) << (number % 64));
	dw_news_tell(&db->timer_news, DW_NEWS_LANES);
}

/*
 * Wakes the timer if it sleeps beyond the time "needed"; DW_AWAKE wakes it from any
 * sleep (step C3 of the protocol).  If the timer rests until a later time, the launcher
 * is told to have one there by then (C4).  If the database has no timer for another
 * reason, the launcher is told to start one.
 *
 * The caller stores what the timer must see before the call.
 */
void
dw_wake_timer(DwDatabase *db, TimestampTz needed)
{
	bool		earlier = false;

	pg_memory_barrier();
	if (dw_process_is_there(&db->timer))
	{
		if (dw_process_sleeps_beyond(&db->timer, needed))
			(void) dw_process_wake(&db->timer);
		return;
	}
	/* the timer has published until when it rests before it was withdrawn */
	pg_read_barrier();
	if (!dw_rest_end_ask(&db->timer_news, needed, &earlier))
		dw_news_tell(&db->timer_news, DW_NEWS_START);
	else if (!earlier)
		return;
	dw_wake_launcher();
}

/*
 * How much ahead of the time at which a resting timer must be there the launcher starts it,
 * in microseconds.  Timers are started one after the other, and many may have to be there at
 * the same time.
 */
int64
dw_rest_margin(void)
{
	return 2 * USECS_PER_SEC + (int64) dw_max_databases * 50 * 1000;
}

/* Asks the sweeper to do the job at this time, unless it will do so before. */
void
dw_ask_sweeper(DwDatabase *db, DwJob job, TimestampTz at)
{
	if (!dw_job_ask(&db->sweeper_news, job, at))
		return;
	/* the timer looks at the times of jobs when control has changed */
	dw_control_raise(&db->timer_news);
	dw_wake_timer(db, DW_AWAKE);
}

/*
 * A hash that nobody can compute from a guess, since it changes with each start of the server:
 * pg_locks and some views show it to all.
 */
uint64
dw_secret_hash(const void *data, int length, uint64 seed)
{
	return hash_bytes_extended(data, length, seed ^ (dw_shared != NULL ? dw_shared->salt : 0));
}

/*
 * Wakes timer and sweeper from any sleep, to check whether the database is held, or a
 * restart was asked for; asks for that before.
 */
void
dw_call_timer(DwDatabase *db, DwRestart restart)
{
	bool		earlier;

	dw_restart_ask(&db->timer_news, restart);
	pg_memory_barrier();
	(void) dw_process_wake(&db->timer);
	(void) dw_process_wake(&db->sweeper);
	/* a timer that rests has settings to read, or a clock, as well */
	if (restart != DW_RESTART_NONE && !dw_process_is_there(&db->timer) &&
		dw_rest_end_ask(&db->timer_news, DW_AWAKE, &earlier))
		dw_wake_launcher();
}

/*
 * The time at which timer and sweeper must end for a restart; DW_NEVER if none is asked
 * for.
 *
 * A timer that has just started keeps running for a moment.  Otherwise frequent changes
 * of settings would keep it from its work.
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

/* As dw_wake_timer(), from any sleep or rest; but no timer is started if there was none. */
void
dw_wake_timer_if_any(DwDatabase *db)
{
	pg_memory_barrier();
	if (dw_process_is_there(&db->timer) || dw_rest_until(&db->timer_news) != DW_AWAKE)
		dw_wake_timer(db, DW_AWAKE);
}

/*
 * Tells the timers of all databases to look for lanes of dropped roles.  Called at the
 * commit of a DROP ROLE.
 */
void
dw_roles_dropped(void)
{
	for (int i = 0; i < dw_max_databases; i++)
	{
		DwDatabase *db = dw_database(i);

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
