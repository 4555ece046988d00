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

#include "catalog/pg_authid.h"
#include "datatype/timestamp.h"
#include "mb/pg_wchar.h"
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

/* A timer that starts anew for settings has done its work for so long. */
#define RESTART_PAUSE_US	USECS_PER_SEC

char *dw_databases = NULL;

uint32
dw_pool_chunks(void)
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

Size
dw_database_size(void)
{
	return CACHELINEALIGN(add_size(dirty_offset(),
								   mul_size(DW_LANE_WORDS, sizeof(pg_atomic_uint64))));
}

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

DwDatabase *
dw_database(int number)
{
	return (DwDatabase *) (dw_databases + number * dw_database_size());
}

int
dw_database_number(DwDatabase *db)
{
	return ((char *) db - dw_databases) / dw_shared->database_size;
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

/*
 * One lane must not hold all executors of a database, since a task may take
 * for ever: the last place is for another owner (see dispatch.c), and the one
 * before for another lane.
 */
uint32
dw_lane_executors(void)
{
	return Max(dw_max_executors - 2, 1);
}

/* Others' databases are shown to who may see statistics. */
bool
dw_may_see_database(const DwDatabase *db)
{
	return db->oid == MyDatabaseId ||
		(OidIsValid(db->oid) && has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS));
}
