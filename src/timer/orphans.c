/*-------------------------------------------------------------------------
 *
 * orphans.c
 *	  Tasks of roles that do not exist any more.
 *
 * Run by the timer.  The timer never waits for a lock, and skips locked rows until later.
 *
 * When a role was dropped, the timer marks the role's lanes as orphans.  An orphan has no tasks in
 * memory, is not loaded, and gets no executor.  The timer moves its rows to
 * delay_wheel_data.failed_task, in slices.
 *
 * The timer detects a dropped role in three ways: the session that drops the role wakes the timer,
 * the timer reads the table for lanes, or the timer is about to start an executor.  It looks into
 * pg_authid, since its caches may be older than the commit of DROP ROLE.  Connected sessions of the
 * role may still schedule tasks.  An orphan's horizon is before all times, so a new task lowers the
 * lane's next_far, and the timer moves this task, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "pgstat.h"
#include "utils/rel.h"

#include "../base/wing.h"
#include "../base/worker.h"
#include "../ring/ring.h"
#include "../shmem/executors.h"
#include "../shmem/groups.h"
#include "../shmem/shared.h"
#include "timer.h"

/* Microseconds after which a slice ends, and number of steps between two looks at the clock. */
#define SLICE_US		1000
#define SLICE_STEP		16
/* Microseconds before the next try after an error, or if a table is locked. */
#define RETRY_US		(100 * 1000)
/*
 * Microseconds before locked rows are tried again.  If plain SQL has locked a row, the timer gets
 * no message when the lock ends.
 */
#define LOCKED_ROW_US	(5 * USECS_PER_MINUTE)

static DwDatabase *db = NULL;
/* True if an orphan may have tasks that were not moved yet. */
static bool any_wanted = false;

/* Number of the next lane whose owner must be checked. */
static int	check_at = 0;
/* After a locked table or an error, nothing is done before this time. */
static TimestampTz check_after = PG_INT64_MIN;

/* The orphan whose rows are being moved.  The next slice begins at "reached". */
static int32 emptying = DW_NO_LANE;
static DwTaskKey reached;
/* True if locked rows of this orphan were skipped. */
static bool rows_locked = false;
/* Number of rows of this orphan that committed slices have moved. */
static int64 moved = 0;

/* A slice.  Its result is used only after the slice has committed. */
typedef struct Slice
{
	DwLane	   *lane;			/* the orphan whose tasks are moved, or NULL */
	int64		moved;			/* number of rows */
	bool		ended;			/* the lane's last row was reached */
} Slice;

/* Initializes this file.  All owners will be checked. */
void
dw_orphans_begin(DwDatabase *database)
{
	db = database;
}

/* Requests a check of the owners of all lanes by dw_orphans_some(). */
void
dw_orphans_check_all(void)
{
	check_at = 0;
}

/*
 * Marks the lanes of a dropped owner as orphans, so that dw_orphans_some() moves their tasks, and
 * makes the owner's executors end.  The caller must hold no LWLock.
 */
void
dw_owner_dropped(Oid owner)
{
	dw_each_lane(lane, db)
		if (lane->owner == owner && !lane->orphan)
		{
			lane->orphan = any_wanted = true;
			dw_near_cut(lane, PG_INT64_MIN, PG_INT64_MIN);
		}
	dw_near_apply_cuts();

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_each_lane(lane, db)
		if (lane->orphan)
			dw_ready_unlist(db, lane);
	LWLockRelease(dw_ready_lock(db));
	/* executors may still be connected as the dropped role */
	dw_executors_end(db, owner);
}

/*---- Checking owners ----*/

/* Checks whether owners of lanes exist, for about SLICE_US. */
static void
check_owners(void)
{
	int64		began = dw_uptime();
	Oid			known = InvalidOid;

	for (int n = 0; check_at < dw_max_lanes; check_at++)
	{
		DwLane	   *lane = &dw_lanes[check_at];

		if (lane->database != db->oid || lane->orphan || lane->owner == known)
			continue;
		if (n++ % SLICE_STEP == SLICE_STEP - 1 && dw_uptime() - began > SLICE_US)
			break;
		if (dw_role_exists(lane->owner))
			known = lane->owner;
		else
			dw_owner_dropped(lane->owner);
	}
}

/*---- Moving the tasks of orphans ----*/

/* Writes the row of a failed task for this deleted row of an orphan. */
static void
record_orphan(Relation rel, HeapTuple tuple, const DwTaskKey *key)
{
	Datum	   *values;
	bool	   *nulls;
	ErrorData	error = {
		.sqlerrcode = ERRCODE_UNDEFINED_OBJECT,
		.message = psprintf("role with OID %u does not exist", key->owner),
		.detail = "The role that scheduled the task was dropped before the task was run."
	};

	dw_deform(rel, tuple, &values, &nulls);
	dw_failed_write(values, nulls, key->attempts, dw_now(), &error);
}

/* Moves rows of the lane, from "reached" on, for about SLICE_US.  Only deletes cancelled tasks. */
static void
move_to_failed(Relation rel, Slice *slice)
{
	DwRowScan *scan = dw_lane_scan_begin(rel, &reached, GetActiveSnapshot());
	int64		began = dw_uptime();
	DwTaskKey	key;

	for (int n = 0;; n++)
	{
		TM_Result	result;

		if (n % SLICE_STEP == SLICE_STEP - 1 && dw_uptime() - began > SLICE_US)
			break;
		CHECK_FOR_INTERRUPTS();
		if (!dw_lane_scan_next(scan, &key))
		{
			slice->ended = true;
			break;
		}
		reached.due = key.due;
		reached.id = key.id + 1;
		result = dw_row_remove(rel, &key);
		if (result == TM_Ok)
		{
			HeapTuple	tuple = dw_lane_scan_tuple(scan);

			if (dw_task_is_cancelled(rel, tuple))
				continue;
			record_orphan(rel, tuple, &key);
			slice->moved++;
		}
		else if (result == TM_BeingModified)
			rows_locked = true;
	}
	dw_row_scan_end(scan);
}

/* Begins to move the tasks of an orphan. */
static void
begin_lane(DwLane *lane)
{
	dw_worker_activity(STATE_RUNNING, "delay_wheel: moving tasks of dropped roles to the failed ones");
	emptying = lane - dw_lanes;
	reached = dw_lane_begin(lane);
	rows_locked = false;
	moved = 0;
	/* a session that commits a task after this lowers next_far again */
	(void) dw_atomic_take(&lane->next_far);
	pg_memory_barrier();
}

/* Ends the move of an orphan's rows.  Locked rows are tried again later. */
static void
end_lane(DwLane *lane)
{
	if (moved > 0)
		ereport(LOG,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg_plural("%lld pending task of the dropped role with OID %u has failed",
							   "%lld pending tasks of the dropped role with OID %u have failed",
							   moved, (long long) moved, lane->owner),
				 errhint("See delay_wheel.failed.")));
	if (rows_locked)
	{
		LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
		lane->recheck_from = PG_INT64_MIN;
		lane->recheck_at = Min(lane->recheck_at, dw_now() + LOCKED_ROW_US);
		LWLockRelease(dw_ready_lock(db));
	}
	emptying = DW_NO_LANE;
	dw_lane_dirty(db, lane);
	pgstat_report_stat(true);
}

/* Returns the orphan whose tasks must be moved next, or NULL. */
static DwLane *
next_orphan(void)
{
	if (emptying != DW_NO_LANE)
		return &dw_lanes[emptying];
	for (int32 i = db->lanes; i != DW_NO_LANE && any_wanted; i = dw_lanes[i].next)
		if (dw_lanes[i].orphan &&
			dw_atomic_read(&dw_lanes[i].next_far) != DW_NEVER)
			return &dw_lanes[i];
	any_wanted = false;
	return NULL;
}

/* Called for a lane with tasks in the table.  Requests their move if it is an orphan. */
void
dw_orphans_wanted(const DwLane *lane)
{
	any_wanted |= lane->orphan;
}

/* Moves a slice of the orphan's tasks.  Does nothing if its role exists again. */
static void
empty_lane(Relation rel, Slice *slice)
{
	DwLane	   *lane = slice->lane;

	if (emptying == DW_NO_LANE)
		begin_lane(lane);
	if (dw_role_exists(lane->owner))
	{
		/* a new role has got the OID of the dropped role */
		lane->orphan = false;
		dw_atomic_lower(&lane->next_far, PG_INT64_MIN);
		dw_lane_dirty(db, lane);
		emptying = DW_NO_LANE;
		return;
	}
	DW_INJECT("orphans-before-move");
	move_to_failed(rel, slice);
}

/* For dw_read(): locks the tables without waiting, checks owners, and moves tasks. */
static bool
do_slice(Relation rel, void *arg)
{
	Slice	   *slice = arg;

	if (!ConditionalLockRelationOid(AuthIdRelationId, AccessShareLock) ||
		!ConditionalLockRelationOid(RelationGetRelid(rel), RowExclusiveLock) ||
		!ConditionalLockRelationOid(dw_catalog()->failed, RowExclusiveLock) ||
		!ConditionalLockRelationOid(dw_catalog()->cancellation, AccessShareLock))
		return false;
	check_owners();
	if (slice->lane != NULL)
		empty_lane(rel, slice);
	return true;
}

/* Does a slice.  Returns true if the timer must call this again at once. */
bool
dw_orphans_some(void)
{
	TimestampTz now = dw_now();
	Slice		slice = {0};

	if (dw_news_take(&db->timer_news, DW_NEWS_ROLES))
	{
		dw_orphans_check_all();
		dw_each_wing(wing, rows_in_doubt)
			wing->rows_in_doubt(db);
	}
	if (dw_orphans_next() > now)
		return false;
	slice.lane = next_orphan();
	if (dw_read(db, "move tasks of a dropped role", do_slice, &slice) != DW_READ_DONE)
	{
		/* the slice was rolled back: begin again with the first row of the lane */
		if (emptying != DW_NO_LANE)
		{
			dw_atomic_lower(&dw_lanes[emptying].next_far, PG_INT64_MIN);
			any_wanted = true;
		}
		emptying = DW_NO_LANE;
		check_after = now + RETRY_US;
		return false;
	}
	moved += slice.moved;
	dw_worker_progress(slice.moved);
	if (slice.moved > 0)
	{
		dw_wings_doubt_ends(db);
		dw_failed_recorded(db, slice.moved);
	}
	if (slice.ended)
		end_lane(slice.lane);
	return dw_orphans_next() <= now;
}

/* Returns when dw_orphans_some() must be called next, if no other process reports a change. */
TimestampTz
dw_orphans_next(void)
{
	return check_at < dw_max_lanes || next_orphan() != NULL ? check_after : DW_NEVER;
}

/* Returns true if tasks of the lane are being moved, so that it must not be given back. */
bool
dw_orphans_holds(const DwLane *lane)
{
	return emptying == lane - dw_lanes;
}
