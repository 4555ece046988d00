/*-------------------------------------------------------------------------
 *
 * shared.c
 *	  Shared memory: its request, its set-up, and the parts that have no file
 *	  of their own: databases, inbox, wake-ups, the clock.
 *
 * All processes run this.  Everything is in the main segment, of a size that
 * the settings fix at the start of the server; nothing here grows.  After a
 * crash the segment is made anew and the timers fill it from the tables.
 *
 * dw_inbox_push, dw_wake_timer and dw_wake_launcher are called in commit
 * callbacks: they never fail, wait or allocate.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "compat.h"
#include "crashes.h"
#include "ending.h"
#include "inject.h"
#include "lanes.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "queues.h"
#include "recovery.h"
#include "settings.h"
#include "shared.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "wait.h"
#include "writers.h"

DwShared   *dw_shared = NULL;
DwPool	   *dw_pool = NULL;
DwLane	   *dw_lanes = NULL;
DwOwner    *dw_owners = NULL;
DwExecutor *dw_executors = NULL;
DwQueue    *dw_queues = NULL;

/* A timer that starts anew for settings has done its work for so long. */
#define RESTART_PAUSE_US	USECS_PER_SEC

static char *databases = NULL;

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

static uint32
pool_chunks(void)
{
	return Max(((Size) dw_ring_memory * 1024) / sizeof(DwChunk), 2);
}

static Size
inbox_offset(void)
{
	return MAXALIGN(sizeof(DwDatabase));
}

static Size
ring_offset(void)
{
	return add_size(inbox_offset(),
					MAXALIGN(mul_size(dw_inbox_size, sizeof(DwHint))));
}

static Size
dirty_offset(void)
{
	return MAXALIGN(add_size(ring_offset(), dw_ring_size(dw_slots)));
}

static Size
database_size(void)
{
	return CACHELINEALIGN(add_size(dirty_offset(),
								   mul_size(DW_LANE_WORDS, sizeof(pg_atomic_uint64))));
}

static uint32
executor_places(void)
{
	return max_worker_processes;
}

static void
request_memory(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();

	RequestAddinShmemSpace(MAXALIGN(sizeof(DwShared)));
	RequestAddinShmemSpace(dw_pool_size(pool_chunks()));
	RequestAddinShmemSpace(mul_size(dw_max_lanes, sizeof(DwLane)));
	RequestAddinShmemSpace(mul_size(dw_owner_places(), sizeof(DwOwner)));
	RequestAddinShmemSpace(mul_size(executor_places(), sizeof(DwExecutor)));
	RequestAddinShmemSpace(mul_size(dw_max_databases, database_size()));
	RequestAddinShmemSpace(mul_size(dw_max_queues, sizeof(DwQueue)));
	RequestAddinShmemSpace(dw_lane_index_size());
	RequestAddinShmemSpace(dw_wait_size());
	RequestAddinShmemSpace(dw_ending_size());
	RequestAddinShmemSpace(dw_writers_size());
	RequestAddinShmemSpace(dw_crashes_size());
#ifdef DW_INJECTION
	RequestAddinShmemSpace(dw_inject_size());
#endif
	RequestNamedLWLockTranche("delay_wheel", 1 + 2 * dw_max_databases);
}

/*
 * Begins anew, but for the pins: whoever pins the place, also just now, is going
 * to unpin it.
 */
static void
init_database(DwDatabase *db)
{
	char	   *pins = (char *) &db->pins;
	char	   *behind = pins + sizeof(db->pins);

	memset(db, 0, pins - (char *) db);
	memset(behind, 0, (char *) db + sizeof(DwDatabase) - behind);
	db->oid = InvalidOid;
	db->absent = true;
	db->lanes = DW_NO_LANE;
	db->ready_owners.head = db->ready_owners.tail = DW_NO_OWNER;
	db->blocked_owners = db->ready_owners;
	db->blocked_until = DW_NEVER;
	/* only who pins the place holds it */
	pg_atomic_init_u32(&db->holds, 0);
	pg_atomic_init_u32(&db->restart, 0);
	pg_atomic_init_u32(&db->wanted, 0);
	pg_atomic_init_u32(&db->timer_proc, 0);
	pg_atomic_init_u64(&db->sleep_until, (uint64) DW_AWAKE);
	pg_atomic_init_u64(&db->reload_from, (uint64) DW_NEVER);
	pg_atomic_init_u32(&db->any_lane_dirty, 0);
	pg_atomic_init_u32(&db->executors_dirty, 0);
	pg_atomic_init_u32(&db->starving, 0);
	pg_atomic_init_u32(&db->rights_changed, 0);
	pg_atomic_init_u32(&db->prepared_ended, 0);
	/* it may have been before we were here */
	pg_atomic_init_u32(&db->nameless, 1);
	pg_atomic_init_u32(&db->disabled, 0);
	pg_atomic_init_u32(&db->roles_dropped, 0);
	pg_atomic_init_u32(&db->recurring_look, 0);
	pg_atomic_init_u32(&db->waiters, 0);
	pg_atomic_init_u32(&db->unarmed, 0);
	/* another number than it was when the place was given back */
	pg_atomic_init_u32(&db->control, (uint32) dw_now());
	pg_atomic_init_u32(&db->sweeper_proc, 0);
	pg_atomic_init_u32(&db->sweep_wanted, 0);
	pg_atomic_init_u32(&db->sweeper_rests, 0);
	SpinLockInit(&db->inbox_lock);
	pg_atomic_init_u64(&db->failed_trim_at, (uint64) DW_NEVER);
	pg_atomic_init_u64(&db->failed_trim_after, (uint64) PG_INT64_MIN);
	pg_atomic_init_u64(&db->failed_limit, 0);
	pg_atomic_init_u64(&db->history_turn_at, (uint64) DW_NEVER);
	pg_atomic_init_u64(&db->history_turn_after, (uint64) PG_INT64_MIN);
	pg_atomic_init_u64(&db->history_locked_since, (uint64) DW_NEVER);
	pg_atomic_init_u32(&db->history_current, 0);
	pg_atomic_init_u32(&db->history_room, 0);
	pg_atomic_init_u32(&db->history_is_full, 0);

	pg_atomic_init_u64(&db->near, 0);
	pg_atomic_init_u64(&db->ready, 0);
	pg_atomic_init_u64(&db->done, 0);
	pg_atomic_init_u64(&db->failed, 0);
	pg_atomic_init_u64(&db->retried, 0);
	pg_atomic_init_u64(&db->skipped, 0);
	pg_atomic_init_u64(&db->lateness_max, 0);
	for (int i = 0; i < DW_LATENESS_BUCKETS; i++)
		pg_atomic_init_u64(&db->lateness[i], 0);
	for (int i = 0; i < DW_LANE_WORDS; i++)
		pg_atomic_init_u64(&dw_dirty_lanes(db)[i], 0);
	dw_progress_init(db->progress);
}

static void
init_shared(void)
{
	LWLockPadded *locks = GetNamedLWLockTranche("delay_wheel");

	memset(dw_shared, 0, sizeof(DwShared));
	dw_shared->table_lock = &locks[0].lock;
	dw_shared->database_locks = &locks[1].lock;
	pg_atomic_init_u32(&dw_shared->launcher_proc, 0);
	pg_atomic_init_u32(&dw_shared->databases_changed, 0);
	pg_atomic_init_u32(&dw_shared->turned_away, 0);
	pg_atomic_init_u32(&dw_shared->looks_into, InvalidOid);
	pg_atomic_init_u32(&dw_shared->looked, 0);
	pg_atomic_init_u32(&dw_shared->timer_refused, 0);
	pg_atomic_init_u32(&dw_shared->nquits, 0);
	pg_atomic_init_u32(&dw_shared->trial, 0);
	pg_atomic_init_u64(&dw_shared->trial_until, (uint64) PG_INT64_MIN);
	dw_shared->nexecutors = executor_places();
	dw_shared->database_size = database_size();

	dw_pool_init(dw_pool, pool_chunks());

	memset(dw_executors, 0, sizeof(DwExecutor) * executor_places());
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		pg_atomic_init_u32(&dw_executors[i].xid, InvalidTransactionId);
		pg_atomic_init_u32(&dw_executors[i].stop, 0);
		pg_atomic_init_u32(&dw_executors[i].stale, DW_FRESH);
		pg_atomic_init_u32(&dw_executors[i].helpers, 0);
		pg_atomic_init_u64(&dw_executors[i].refused, 0);
		pg_atomic_init_u64(&dw_executors[i].autonomous, 0);
		pg_atomic_init_u64(&dw_executors[i].keeps, 0);
	}

	dw_queues_init();

	for (int i = 0; i < dw_max_databases; i++)
	{
		pg_atomic_init_u32(&dw_database(i)->pins, 0);
		init_database(dw_database(i));
	}

	dw_lanes_init();
	dw_recovery_note();
	dw_crashes_init();
}

static void
startup_memory(void)
{
	bool		found;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	/* reset in case this is a restart within the postmaster */
	dw_shared = NULL;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	dw_pool = ShmemInitStruct("delay_wheel pool", dw_pool_size(pool_chunks()), &found);
	dw_lanes = ShmemInitStruct("delay_wheel lanes",
							   mul_size(dw_max_lanes, sizeof(DwLane)), &found);
	dw_owners = ShmemInitStruct("delay_wheel owners",
								mul_size(dw_owner_places(), sizeof(DwOwner)), &found);
	dw_executors = ShmemInitStruct("delay_wheel executors",
								   mul_size(executor_places(), sizeof(DwExecutor)), &found);
	dw_queues = ShmemInitStruct("delay_wheel queues",
								mul_size(dw_max_queues, sizeof(DwQueue)), &found);
	databases = ShmemInitStruct("delay_wheel databases",
								mul_size(dw_max_databases, database_size()), &found);
	dw_lane_index_attach();
	dw_wait_attach();
	dw_ending_attach();
	dw_writers_attach();
	dw_crashes_attach();
	dw_shared = ShmemInitStruct("delay_wheel", sizeof(DwShared), &found);
	if (!found)
		init_shared();
#ifdef DW_INJECTION
	dw_inject_init(found);
#endif
	LWLockRelease(AddinShmemInitLock);
}

/* Called once by the postmaster, when the library is preloaded. */
void
dw_shared_install(void)
{
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = request_memory;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_memory;
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

DwDatabase *
dw_database(int number)
{
	return (DwDatabase *) (databases + number * database_size());
}

int
dw_database_number(DwDatabase *db)
{
	return ((char *) db - databases) / dw_shared->database_size;
}

DwHint *
dw_inbox(DwDatabase *db)
{
	return (DwHint *) ((char *) db + inbox_offset());
}

DwRing *
dw_ring(DwDatabase *db)
{
	return (DwRing *) ((char *) db + ring_offset());
}

/* A bitmap of the lanes that the timer is to look at. */
pg_atomic_uint64 *
dw_dirty_lanes(DwDatabase *db)
{
	return (pg_atomic_uint64 *) ((char *) db + dirty_offset());
}

LWLock *
dw_ring_lock(DwDatabase *db)
{
	return &((LWLockPadded *) dw_shared->database_locks)[2 * dw_database_number(db)].lock;
}

LWLock *
dw_ready_lock(DwDatabase *db)
{
	return &((LWLockPadded *) dw_shared->database_locks)[2 * dw_database_number(db) + 1].lock;
}

/*
 * The place of a database, or NULL.  Caller holds the table lock, or is a
 * process that keeps the database from being left: then a place once found
 * stays.
 */
DwDatabase *
dw_database_find(Oid database)
{
	for (int i = 0; i < dw_max_databases; i++)
	{
		DwDatabase *db = dw_database(i);

		if (db->oid == database)
			return db;
	}
	return NULL;
}

/*
 * Finds or makes the place of a database, and pins it if asked to; NULL if
 * all places are taken.
 */
DwDatabase *
dw_database_enter(Oid database, bool pin)
{
	DwDatabase *db;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	db = dw_database_find(database);
	if (db == NULL)
	{
		/* not one that somebody is about to find out not to be his */
		for (int i = 0; i < dw_max_databases && db == NULL; i++)
			if (dw_database(i)->oid == InvalidOid &&
				pg_atomic_read_u32(&dw_database(i)->pins) == 0)
				db = dw_database(i);
		if (db != NULL)
		{
			init_database(db);
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

/* Pins a place known from before, if it is still that of the database. */
bool
dw_database_pin(DwDatabase *db, Oid database)
{
	/* full barrier: either we see that it is given back, or our pin is seen */
	pg_atomic_fetch_add_u32(&db->pins, 1);
	if (db->oid == database)
		return true;
	dw_database_unpin(db);
	return false;
}

/* Finds and pins a place without any lock; for callbacks.  NULL if none. */
DwDatabase *
dw_database_find_pin(Oid database)
{
	for (int i = 0; i < dw_max_databases; i++)
		if (dw_database(i)->oid == database && dw_database_pin(dw_database(i), database))
			return dw_database(i);
	return NULL;
}

void
dw_database_unpin(DwDatabase *db)
{
	/* who found it pinned when it was to be given back looks again */
	if (pg_atomic_sub_fetch_u32(&db->pins, 1) == 0 && db->absent)
		dw_wake_launcher();
}

/* Could dw_database_enter make a place? */
bool
dw_database_place_free(void)
{
	for (int i = 0; i < dw_max_databases; i++)
		if (dw_database(i)->oid == InvalidOid &&
			pg_atomic_read_u32(&dw_database(i)->pins) == 0)
			return true;
	return false;
}

/*
 * Gives the place of a database back, unless it is pinned.  Only the launcher
 * does so, when the database has neither timer nor extension; caller holds
 * the table lock exclusively.
 */
void
dw_database_leave(DwDatabase *db)
{
	Oid			database = db->oid;

	/* its executors are on their way out, but use it until they are gone */
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].database == database)
			return;

	db->oid = InvalidOid;
	pg_memory_barrier();
	if (pg_atomic_read_u32(&db->pins) != 0)
	{
		db->oid = database;
		return;
	}
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_ready_reset(db);
	LWLockRelease(dw_ready_lock(db));
	dw_lanes_leave(db);
	dw_queues_leave(database);
	dw_pool_reclaim(dw_pool, &db->account);
}

/*
 * Divides the pool evenly among the databases that have a timer.  Who holds
 * more than its new part is woken to give some back.
 */
void
dw_quota_update(void)
{
	uint32		n = 0;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	for (int i = 0; i < dw_max_databases; i++)
		if (dw_database(i)->timer_state == DW_TIMER_RUNNING)
			n++;
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

/*
 * Keeps the text of the last problem for the view status.  It ends with what it
 * quotes, of an error, which can contain SQL and values of a task: that is only
 * shown to who may read these.
 */
void
dw_problem_quoting(DwDatabase *db, const char *text, const char *quoted)
{
	int			length = pg_mbcliplen(text, strlen(text), sizeof(db->last_problem) - 1);

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	memcpy(db->last_problem, text, length);
	db->last_problem[length] = '\0';
	db->last_problem_plain = strlen(text) - strlen(quoted);
	db->last_problem_at = dw_now();
	LWLockRelease(dw_ready_lock(db));
}

/* The same for one that quotes nothing. */
void
dw_problem(DwDatabase *db, const char *text)
{
	dw_problem_quoting(db, text, "");
}

/*
 * Puts a hint into the inbox; false if it is full.  *crowded is set if it is
 * half full: then the timer should look, whatever the due.
 */
bool
dw_inbox_push(DwDatabase *db, const DwHint *hint, bool *crowded)
{
	DwHint	   *inbox = dw_inbox(db);
	bool		pushed = false;

	SpinLockAcquire(&db->inbox_lock);
	if (db->inbox_count < (uint32) dw_inbox_size)
	{
		inbox[(db->inbox_head + db->inbox_count) % dw_inbox_size] = *hint;
		db->inbox_count++;
		pushed = true;
	}
	if (db->inbox_count >= (uint32) dw_inbox_size / 2)
		*crowded = true;
	SpinLockRelease(&db->inbox_lock);
	return pushed;
}

/* Takes up to max hints out of the inbox, a few under each lock. */
uint32
dw_inbox_drain(DwDatabase *db, DwHint *hints, uint32 max)
{
	DwHint	   *inbox = dw_inbox(db);
	uint32		n = 0;
	bool		empty = false;

	while (n < max && !empty)
	{
		uint32		stop = Min(max, n + 8);

		SpinLockAcquire(&db->inbox_lock);
		while (n < stop && db->inbox_count > 0)
		{
			hints[n++] = inbox[db->inbox_head];
			db->inbox_head = (db->inbox_head + 1) % dw_inbox_size;
			db->inbox_count--;
		}
		empty = db->inbox_count == 0;
		SpinLockRelease(&db->inbox_lock);
	}
	return n;
}

/*
 * Step C2d of the protocol, and its like: the timer is to look at the lane,
 * when it is awake.  What it is to see there must be stored before the call.
 */
void
dw_lane_dirty(DwDatabase *db, const DwLane *lane)
{
	uint32		number = lane - dw_lanes;

	/* full barrier; the flag comes last, as the timer clears it first */
	pg_atomic_fetch_or_u64(&dw_dirty_lanes(db)[number / 64], UINT64CONST(1) << (number % 64));
	pg_atomic_write_u32(&db->any_lane_dirty, 1);
}

/*
 * Step C3 of the protocol: wakes the timer if it sleeps past the time at
 * which it is needed; DW_AWAKE means at once.  Whatever the timer is to see
 * must be stored before the call.
 */
void
dw_wake_timer(DwDatabase *db, TimestampTz needed)
{
	uint32		proc;

	pg_memory_barrier();
	proc = pg_atomic_read_u32(&db->timer_proc);
	if (proc == 0)
	{
		pg_atomic_write_u32(&db->wanted, 1);
		dw_wake_launcher();
	}
	else if (dw_atomic_read(&db->sleep_until) > needed)
		SetLatch(dw_proc_latch(proc));
}

/*
 * Wakes the timer, and the sweeper, whatever they sleep for: they are to look
 * at holds or restart.
 */
void
dw_call_timer(DwDatabase *db, DwRestart restart)
{
	uint32		proc;
	uint32		known = pg_atomic_read_u32(&db->restart);

	/* one that is to be at once stays so */
	while (known < restart && !pg_atomic_compare_exchange_u32(&db->restart, &known, restart))
		;
	pg_memory_barrier();
	proc = pg_atomic_read_u32(&db->timer_proc);
	if (proc != 0)
		SetLatch(dw_proc_latch(proc));
	proc = pg_atomic_read_u32(&db->sweeper_proc);
	if (proc != 0)
		SetLatch(dw_proc_latch(proc));
}

/*
 * When the timer and the sweeper are to end, DW_NEVER if they need not.  A
 * timer that has only just begun goes on for a moment: who changes settings all
 * the time must not keep it from its work.
 */
TimestampTz
dw_restart_at(DwDatabase *db)
{
	switch (pg_atomic_read_u32(&db->restart))
	{
		case DW_RESTART_NONE:
			return DW_NEVER;
		case DW_RESTART_SOON:
			return dw_now() + Max(db->timer_started + RESTART_PAUSE_US - dw_uptime(), 0);
		default:
			return PG_INT64_MIN;
	}
}

void
dw_wake_launcher(void)
{
	uint32		proc = pg_atomic_read_u32(&dw_shared->launcher_proc);

	if (proc != 0)
		SetLatch(dw_proc_latch(proc));
}

/* Tells the timers of all databases; at the commit of a DROP ROLE. */
void
dw_roles_dropped(void)
{
	for (int i = 0; i < dw_max_databases; i++)
	{
		DwDatabase *db = dw_database(i);

		/* one without a timer looks for itself when it begins */
		if (db->oid == InvalidOid || pg_atomic_read_u32(&db->timer_proc) == 0)
			continue;
		pg_atomic_write_u32(&db->roles_dropped, 1);
		/* it may have owned queues */
		pg_atomic_fetch_add_u32(&db->control, 1);
		pg_memory_barrier();
		pg_atomic_write_u32(&db->any_lane_dirty, 1);
		dw_wake_timer(db, DW_AWAKE);
	}
}

TimestampTz
dw_now(void)
{
	return GetCurrentTimestamp();
}

int64
dw_uptime(void)
{
	struct timespec now;

	/* instr_time may be one that is not slewed, and drift away from the other clock */
	(void) clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000;
}
