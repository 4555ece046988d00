/*-------------------------------------------------------------------------
 *
 * load.c
 *	  Loads tasks of the near future from the table into memory.
 *
 * Run by the timer.  The timer never waits for a lock, since it must hand over due tasks in time.
 * README.md describes cursors, loads and cuts.
 *
 * A database may have thousands of lanes.  The timer looks only at lanes that another process has
 * marked as dirty (dw_lane_dirty), and at lanes whose time in the agenda has come.
 *
 * The order of the steps, L1 to L7 of the model in test/model, guarantees that no task is missed.
 *
 * Rows of another origin came with a copy of another database.  Such rows are in the same index,
 * but in no lane.  Loads skip them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/pg_bitutils.h"

#include "../base/compat.h"
#include "../base/wing.h"
#include "../base/worker.h"
#include "../ring/ring.h"
#include "../shmem/groups.h"
#include "../shmem/shared.h"
#include "timer.h"

/* Index entries, and microseconds, after which a load pauses. */
#define SLICE_ROWS		1000
#define SLICE_US		1000
/* Steps of discovery between two looks at the clock. */
#define SLICE_STEP		16
/* Microseconds before the next try after an error. */
#define RETRY_US		USECS_PER_SEC
/* Microseconds before the next try if a table is locked, or discovery has failed. */
#define LOCKED_RETRY_US (100 * 1000)
/* Microseconds before the next load of a lane with due entries that were not handed over yet. */
#define BEHIND_US		1000
/* If a row has been due for longer than this, it has no lease, so a load need not read the row. */
#define LEASE_SLACK_US	(10 * USECS_PER_SEC)
/* Deleting rows of prepared transactions takes at most 1 / FORGETTING_SHARE of the time. */
#define FORGETTING_SHARE	100
/*
 * Microseconds between two looks for newcomers of a lane, and before tasks of its groups are loaded
 * again after memory had no room.  The time doubles while no task of the lane begins.  Looks take at
 * most 1 / NEWCOMERS_SHARE of the time, and read at most NEWCOMERS_ROWS rows.
 */
#define PAUSE_LEAST_US	(5 * 1000)
#define PAUSE_MOST_US	USECS_PER_SEC
#define NEWCOMERS_SHARE	20
#define NEWCOMERS_ROWS	500
/*
 * A look finds at most so many newcomers, so that groups that have waited longer have their turns.
 * The next look goes on, but leaves out those that were due so many microseconds earlier.
 */
#define NEWCOMERS_MOST	16
#define NEWCOMERS_LAG_US	USECS_PER_SEC

static DwDatabase *db = NULL;

/* All lanes, by the time at which the timer must look at them. */
static DwLaneHeap agenda;
/* The lanes that must be loaded now, by the time since when they wait. */
static DwLaneHeap to_load;
/* A bitmap of lanes that may be empty, and so may be given back. */
static uint64 *idle_lanes = NULL;
static bool any_idle = false;
/* Numbers of the lanes that look_at_lanes() handles now. */
static int32 *looked_at = NULL;

/* Looks for newcomers of a lane */
typedef struct Newcomers
{
	TimestampTz at;				/* the next look is not before this time */
	TimestampTz from;			/* it reads tasks that are due from this time on */
	TimestampTz feed_at;		/* tasks of groups are not loaded before this time */
	int64		pause;			/* the last pause, in us */
	uint32		held;			/* number of the lane's entries at that time */
} Newcomers;

/* By the number of the lane. */
static Newcomers *newcomers = NULL;

/* Discovery: a scan of the whole table, in slices, for lanes that are not in shared memory. */
static struct
{
	bool		under_way;
	TimestampTz from;			/* value of the database's reload_from that has caused this
								 * discovery */
	DwTaskKey	reached;		/* the next slice begins here */
	bool		unarmed;		/* discovery has found tasks of another origin */
	bool		lanes_missing;	/* discovery has found lanes for which shared memory has no place */
} discovery;

/* The value of discovery.lanes_missing when discovery last reached the table's end. */
static bool lanes_missing = false;
/* Number of loaded tasks that pg_stat_activity does not show yet. */
static int64 added = 0;
/* After a failure, discovery is not tried again before this time. */
static TimestampTz discover_after = PG_INT64_MIN;
/* Rows of prepared transactions are not deleted again before this time. */
static TimestampTz forget_prepared_after = PG_INT64_MIN;
/* True if this timer has logged that there are tasks of another origin. */
static bool unarmed_announced = false;

/* Initializes this file, and requests discovery.  Called after dw_near_reset(). */
void
dw_load_begin(DwDatabase *database)
{
	db = database;
	/* a timer that has gone to rest has written this log line */
	unarmed_announced = dw_process_follows_rest(&db->timer) && dw_unarmed_met(&db->timer_news);
	dw_lane_heap_reset(&agenda);
	dw_lane_heap_reset(&to_load);
	idle_lanes = MemoryContextAllocZero(TopMemoryContext, DW_LANE_WORDS * sizeof(uint64));
	looked_at = MemoryContextAlloc(TopMemoryContext, dw_max_lanes * sizeof(int32));
	newcomers = MemoryContextAllocZero(TopMemoryContext, dw_max_lanes * sizeof(Newcomers));
	dw_load_settings_changed();
	dw_hints_begin(database);
	dw_orphans_begin(database);
	/* the timer must not wait for the flush of a commit; after a crash its work is done again */
	SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE);
	/* R1 */
	dw_reload_ask(&db->timer_news, PG_INT64_MIN);
}

/*---- Discovery: lanes of the table that are not in shared memory ----*/

/* Publishes whether discovery has found tasks of another origin.  Each timer logs this once. */
static void
report_unarmed(bool met)
{
	dw_unarmed_looked(&db->timer_news, met);
	if (!met || unarmed_announced)
		return;
	unarmed_announced = true;
	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("database \"%s\" holds tasks that came with a copy; they are not run",
					get_database_name(MyDatabaseId)),
			 errhint("Look at the tasks with \"SELECT * FROM delay_wheel.tasks WHERE NOT armed\", and at delay_wheel.recurring. Then call delay_wheel.arm(), or cancel the tasks.")));
}

/*
 * Enters the lane of this key into shared memory, if it is not there, and requests its load.  Logs
 * a lack of places, but not again before a discovery has found a place for each lane.
 */
static void
enter_found_lane(const DwTaskKey *first)
{
	DwLaneRef	ref;

	if (dw_lane_enter(db, first->owner, first->queue, first->priority, &ref))
	{
		dw_atomic_lower(&dw_lanes[ref.index].next_far, first->due);
		dw_queues_attach_new_lane(db, &dw_lanes[ref.index]);
		dw_lane_dirty(db, &dw_lanes[ref.index]);
		return;
	}
	if (!discovery.lanes_missing && !lanes_missing)
		ereport(LOG,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many combinations of owner, queue and priority have pending tasks: the limit of %d is reached",
						dw_max_lanes),
				 errhint("Increase \"%s\" and restart the server.", "delay_wheel.max_lanes")));
	discovery.lanes_missing = true;
}

/*
 * Enters lanes of the table into shared memory, for about SLICE_US.  A skip scan of the index reads
 * the first key of each lane.  Also checks for tasks of another origin.  Returns true at the
 * table's end.
 */
static bool
enter_lanes_of_table(Relation rel)
{
	int64		origin = dw_origin_stamp();
	DwRowScan *scan = dw_lanes_scan_begin(rel, &discovery.reached, GetActiveSnapshot());
	int64		began = dw_uptime();
	DwTaskKey	key;
	bool		visible;
	bool		ended = true;

	dw_lane_scan_keys_only(scan, false);
	/* dead entries count as steps, too, so that many dead entries end a slice */
	for (int n = 1; dw_lane_scan_step(scan, &key, &visible); n++)
	{
		CHECK_FOR_INTERRUPTS();
		discovery.reached = key;
		if (visible)
		{
			if (key.origin == origin)
				enter_found_lane(&key);
			else
				discovery.unarmed = true;
			/* skip the rest of this lane */
			discovery.reached.due = discovery.reached.id = PG_INT64_MAX;
			dw_lanes_scan_seek(scan, &discovery.reached);
		}
		if (n % SLICE_STEP == 0 && dw_uptime() - began > SLICE_US)
		{
			ended = false;
			break;
		}
	}
	dw_row_scan_end(scan);
	return ended;
}

/*
 * For dw_read(): deletes the rows of delay_wheel_data.prepared.  For each lane that a transaction
 * has touched, PREPARE TRANSACTION writes a row with the due time from which the lane must be read
 * again.  A visible row belongs to a committed transaction, and is not needed any more: the session
 * that committed has read it, or the timer reads all tasks.  Does nothing if the table is locked.
 */
static bool
empty_prepared(Relation tasks, void *arg)
{
	Oid			oid = dw_catalog()->prepared;
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!ConditionalLockRelationOid(oid, RowExclusiveLock))
		return true;
	rel = table_open(oid, NoLock);
	scan = systable_beginscan(rel, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
		(void) dw_heap_delete(rel, &tuple->t_self, false);
	systable_endscan(scan);
	table_close(rel, NoLock);
	return true;
}

/* Cuts all lanes at the database's reload_from, and starts discovery. */
static void
begin_discovery(void)
{
	dw_worker_activity(STATE_RUNNING, "delay_wheel: looking for tasks of the near future");
	discovery.from = dw_reload_take(&db->timer_news);
	discovery.under_way = true;
	discovery.unarmed = discovery.lanes_missing = false;
	memset(&discovery.reached, 0, sizeof(discovery.reached));
	discovery.reached.origin = discovery.reached.due = discovery.reached.id = PG_INT64_MIN;
	discovery.reached.queue = discovery.reached.priority = PG_INT16_MIN;

	DW_INJECT("reload-after-take");
	dw_unarmed_look(&db->timer_news);
	dw_orphans_check_all();
	dw_each_lane(lane, db)
		dw_near_cut(lane, discovery.from, PG_INT64_MIN);
	dw_near_apply_cuts();
}

/* For dw_read(): does a slice of discovery. */
static bool
discover(Relation rel, void *arg)
{
	bool		ended = enter_lanes_of_table(rel);

	DW_INJECT("reload-after-scan");
	if (ended)
	{
		lanes_missing = discovery.lanes_missing;
		dw_each_wing(wing, has_unarmed)
			discovery.unarmed |= wing->has_unarmed();
		report_unarmed(discovery.unarmed);
		(void) empty_prepared(rel, NULL);
	}
	discovery.under_way = !ended;
	return true;
}

/*
 * Does a slice of discovery, with its own snapshot.  If a session commits a row that discovery has
 * passed, the session has entered the row's lane, or lowers reload_from again.
 */
static void
go_on_discovering(void)
{
	if (dw_read(db, "look for lanes", discover, NULL) != DW_READ_DONE)
	{
		discovery.under_way = false;
		dw_reload_ask(&db->timer_news, discovery.from);
		discover_after = dw_now() + LOCKED_RETRY_US;
	}
	/* any row may have changed: plain SQL may have deleted rows */
	else if (!discovery.under_way && discovery.from == PG_INT64_MIN)
		dw_each_wing(wing, rows_in_doubt)
			wing->rows_in_doubt(db);
}

/*
 * Deletes the rows of ended transactions.  If a session has an old snapshot, dead rows stay, and
 * each scan of the table takes longer.  So the pause before the next scan grows with the duration
 * of the scan.
 */
static void
forget_prepared(void)
{
	int64		began = dw_uptime();
	bool		ok;

	/* clear the flag before the snapshot, since processes set the flag after their commits */
	(void) dw_news_take(&db->timer_news, DW_NEWS_PREPARED);
	ok = dw_read(db, "forget prepared transactions", empty_prepared, NULL) == DW_READ_DONE;
	forget_prepared_after = dw_now() + FORGETTING_SHARE * (dw_uptime() - began);
	if (!ok)
	{
		dw_news_tell(&db->timer_news, DW_NEWS_PREPARED);
		forget_prepared_after += LOCKED_RETRY_US;
	}
}

/*---- Loading one lane ----*/

/* Returns true if the row read last is a leased message, which lease_watch.c will add. */
static bool
is_left_to_lease_watch(const DwLane *lane, DwRowScan *scan, TimestampTz due)
{
	/* a row that has been due for some time has no lease, and need not be read */
	return lane->external && due > dw_now() - LEASE_SLACK_US && dw_lane_scan_is_leased(scan) &&
		dw_lease_watch_reads(db, due);
}

/* A load of a lane. */
typedef struct Load
{
	DwLane	   *lane;
	TimestampTz to;				/* end of the window */
	TimestampTz first_left;		/* lower bound of the due times of the remaining rows; DW_NEVER:
								 * no row remains */
	/* overdue tasks that were read, in the order of their keys, and become ready together */
	uint32		n;
	DwTaskKey	keys[DW_PUSH_MAX];
	DwEntry		entries[DW_PUSH_MAX];
	ItemPointerData tids[DW_PUSH_MAX];
} Load;

/* Notes a task that was put into memory. */
static void
note_added(const DwTaskKey *key)
{
	dw_loaded_note(key);
	added++;
}

/* Puts a task at the lane's cursor into memory.  Returns false if memory is full. */
static bool
add_at_cursor(DwLane *lane, const DwTaskKey *key, const DwEntry *entry, const ItemPointerData *tid)
{
	if (!dw_near_add_hard(lane, entry, tid))
		return false;
	note_added(key);
	return true;
}

/*
 * Puts the overdue tasks that were read into memory.  Returns false if memory is full: then the
 * lane's cursor is at the first one that is not in memory, or before.
 */
static bool
add_overdue(Load *load)
{
	DwLane	   *lane = load->lane;
	TimestampTz due = lane->cursor_due;
	int64		id = lane->cursor_id;
	uint32		n = load->n;
	uint32		i;

	if (n == 0)
		return true;
	load->n = 0;
	i = dw_near_add_due(load->entries, lane->grouped ? load->tids : NULL, n);
	for (uint32 j = 0; j < i; j++)
		note_added(&load->keys[j]);
	for (; i < n; i++)
	{
		lane->cursor_due = load->keys[i].due;
		lane->cursor_id = load->keys[i].id;
		if (!add_at_cursor(lane, &load->keys[i], &load->entries[i], lane->grouped ? &load->tids[i] : NULL))
			return false;
	}
	lane->cursor_due = due;
	lane->cursor_id = id;
	return true;
}

/*
 * For dw_read(), steps L4n and L5: loads rows that are due before "to", up to a limit, and moves the
 * lane's cursor.  The cursor is always the first key that is not in memory, even if this lane is
 * cut to make room for a row.
 */
static bool
load_rows(Relation rel, void *arg)
{
	Load	   *load = arg;
	DwLane	   *lane = load->lane;
	DwTaskKey	key = dw_lane_begin(lane);
	DwRowScan *scan;
	int64		began = dw_uptime();
	TimestampTz now = dw_now();
	bool		stopped = false;
	bool		visible;

	DW_INJECT("load-after-snapshot");
	/* L4n: after the snapshot, see test/model/README.md */
	dw_loads_raise(&db->timer_news);
	load->first_left = DW_NEVER;
	key.due = lane->cursor_due;
	key.id = lane->cursor_id;
	scan = dw_lane_scan_begin(rel, &key, GetActiveSnapshot());
	dw_lane_scan_keys_only(scan, lane->grouped);
	for (int n = 0; !stopped && dw_lane_scan_step(scan, &key, &visible); n++)
	{
		DwEntry		entry = {.due = key.due, .id = key.id, .lane = lane - dw_lanes};
		const ItemPointerData *tid = NULL;
		bool		pause = n >= SLICE_ROWS ||
			(n % 64 == 63 && dw_uptime() - began > SLICE_US);

		/* a slice can end at a dead entry, too, since there may be many dead entries */
		if (!visible && !pause)
			continue;
		DW_INJECT("load-row");
		load->first_left = key.due;
		if (key.due >= load->to)
			break;

		lane->cursor_due = key.due;
		lane->cursor_id = key.id;
		entry.block = ItemPointerGetBlockNumber(&key.tid);
		entry.offset = ItemPointerGetOffsetNumber(&key.tid);
		if (lane->grouped && visible)
		{
			tid = &key.tid;
			dw_entry_set_group(&entry, dw_lane_scan_group(scan));
		}
		stopped = pause || dw_near_is_behind(lane, entry.due) ||
			dw_lane_held_in_turn(lane) + load->n >= Max(dw_near_limit() / 4 * 3, 1);
		if (!stopped && !is_left_to_lease_watch(lane, scan, key.due))
		{
			if (key.due > now)
				stopped = !add_overdue(load) || !add_at_cursor(lane, &key, &entry, tid);
			else
			{
				load->keys[load->n] = key;
				load->entries[load->n] = entry;
				load->tids[load->n++] = key.tid;
				stopped = load->n == DW_PUSH_MAX && !add_overdue(load);
			}
		}
		if (stopped)
			load->first_left = lane->cursor_due;
		else
		{
			lane->cursor_id = key.id + 1;
			load->first_left = DW_NEVER;
		}
	}
	dw_row_scan_end(scan);
	if (!add_overdue(load))
	{
		stopped = true;
		load->first_left = lane->cursor_due;
	}

	/* all tasks up to the end of the window are in memory */
	if (!stopped && lane->cursor_due < load->to)
	{
		lane->cursor_due = load->to;
		lane->cursor_id = PG_INT64_MIN;
	}
	DW_INJECT("load-after-scan");
	return true;
}

/*
 * Loads a slice of the lane: steps L1 and L3 to L7 of the model.  The caller has applied the lane's
 * cuts before (L2), and checks the lane again afterwards.
 */
static void
load_lane(DwLane *lane)
{
	TimestampTz from_due = lane->cursor_due;
	int64		from_id = lane->cursor_id;
	Load		load = {
		.lane = lane, .to = Max(dw_time_add(dw_now(), dw_window_us()), from_due)
	};
	DwRead		result;

	lane->refill_at = PG_UINT32_MAX;
	/* L1 */
	DW_INJECT("load-before-take");
	(void) dw_atomic_take(&lane->next_far);
	/* L3, B3: published before the snapshot is taken */
	pg_atomic_write_u64(&lane->horizon, (uint64) load.to);
	pg_memory_barrier();
	DW_INJECT("load-after-publish");
	result = dw_read(db, "load tasks", load_rows, &load);
	if (result != DW_READ_DONE)
	{
		/* L7: undo the load */
		dw_near_cut(lane, from_due, from_id);
		dw_near_apply_cuts();
		lane->load_after = dw_now() + (result == DW_READ_LOCKED ? LOCKED_RETRY_US : RETRY_US);
		return;
	}

	/* newcomers fill the memory: executors do not wake the timer for room */
	if (lane->refill_at == 0 && dw_lane_held_in_turn(lane) == 0)
		lane->load_after = dw_now() + LOCKED_RETRY_US;
	/* L6 */
	dw_near_set_cursor(lane, lane->cursor_due, lane->cursor_id);
	dw_atomic_lower(&lane->next_far, load.first_left);
	DW_INJECT("load-after-cursor");
}

/*
 * If plain SQL had locked the row of a task, and it is time for the next try, reloads the lane from
 * this task on.  An executor has left the task to the timer.
 */
static void
recheck_locked(DwLane *lane, TimestampTz now)
{
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	if (lane->recheck_at <= now)
	{
		dw_atomic_lower(&lane->reload_from, lane->recheck_from);
		lane->recheck_at = lane->recheck_from = DW_NEVER;
	}
	LWLockRelease(dw_ready_lock(db));
}

/*
 * Returns when the lane must be loaded.  DW_NEVER means: after a report of another process.  If the
 * lane has enough entries, executors wake the timer when fewer than load_below are left.
 */
static TimestampTz
load_time(DwLane *lane, TimestampTz now)
{
	TimestampTz far = dw_atomic_read(&lane->next_far);
	TimestampTz at;
	uint32		low = Min(dw_near_limit() / 4, lane->refill_at);
	bool		enough;

	if (far == DW_NEVER || lane->orphan)
		return DW_NEVER;
	/* half a window before, so that a load finds many tasks */
	at = Max(dw_time_add(far, -dw_window_us() / 2), lane->load_after);
	if (dw_near_is_behind(lane, lane->cursor_due))
		at = Max(at, now + BEHIND_US);

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	enough = at <= now && dw_lane_held_in_turn(lane) > low;
	lane->load_below = enough ? low + 1 : 0;
	LWLockRelease(dw_ready_lock(db));
	return enough ? DW_NEVER : at;
}

/*---- Tasks of groups that were left in the table ----*/

/* Tasks of a group that were left in the table, and how many of them may be loaded. */
typedef struct Hungry
{
	DwLane	   *lane;
	DwGroupLeft left;
	uint32		room;
	bool		full;			/* set if memory has no room */
} Hungry;

/* Notes the first task of a group that remains in the table. */
static void
leave_rest_out(DwLane *lane, const DwGroupLeft *left)
{
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_group_leave_out(db, lane, left);
	LWLockRelease(dw_ready_lock(db));
}

/*
 * For dw_read(): loads tasks of a group that were left in the table, and notes the first remaining
 * task.  Tasks that were left were ready, but may be due a little later than now: tasks are handed
 * over a little early, and the clock may have been set back a little.
 */
static bool
load_group(Relation rel, void *arg)
{
	Hungry	   *hungry = arg;
	DwLane	   *lane = hungry->lane;
	DwGroupLeft left = hungry->left;
	uint32		room = hungry->room;
	DwRowScan *scan;
	int64		began = dw_uptime();
	HeapTuple	tuple;

	if (!ConditionalLockRelationOid(dw_catalog()->task_group_index, AccessShareLock))
		return false;
	dw_loads_raise(&db->timer_news);
	scan = dw_group_scan_begin(rel, lane->queue, left.hash, left.due, left.id,
							   GetActiveSnapshot());
	for (int n = 0; (tuple = dw_row_scan_next(scan)) != NULL; n++)
	{
		DwEntry		entry = {.lane = lane - dw_lanes};
		DwTaskKey	key;
		bool		ours;

		dw_task_key(rel, tuple, &key);
		if (key.due > left.until)
			break;
		ours = key.owner == lane->owner && key.priority == lane->priority;
		entry.due = key.due;
		entry.id = key.id;
		dw_entry_set_group(&entry, left.hash);
		/* a slice can end at a task of another lane, too, since there may be many such tasks */
		if ((n > 0 && dw_uptime() - began > SLICE_US) || (ours && room == 0) ||
			(ours && (hungry->full = !dw_near_add_hard(lane, &entry, &key.tid))))
		{
			left.due = key.due;
			left.id = key.id;
			leave_rest_out(lane, &left);
			break;
		}
		if (!ours)
			continue;
		dw_loaded_note(&key);
		room--;
		added++;
	}
	dw_row_scan_end(scan);
	return true;
}

/* Returns the end of a pause that doubles while the lane has as many entries as before. */
static TimestampTz
pause_end(DwLane *lane)
{
	Newcomers  *look = &newcomers[lane - dw_lanes];
	uint32		held = dw_lane_held(lane);

	look->pause = held == look->held ? Min(Max(look->pause * 2, PAUSE_LEAST_US), PAUSE_MOST_US) : PAUSE_LEAST_US;
	look->held = held;
	return dw_now() + look->pause;
}

/* Returns the time before which no tasks of the lane's groups are loaded. */
static TimestampTz
feed_time(DwLane *lane)
{
	return Max(lane->load_after, newcomers[lane - dw_lanes].feed_at);
}

/* Loads tasks of the lane's hungry groups (few tasks in memory), for about SLICE_US. */
static void
feed_groups(DwLane *lane)
{
	int64		began = dw_uptime();
	bool		more = true;

	while (more && dw_uptime() - began <= SLICE_US && feed_time(lane) <= dw_now() &&
		   !dw_extension_gone)
	{
		Hungry		hungry = {.lane = lane};

		LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
		more = dw_groups_feed(db, lane, &hungry.left, &hungry.room);
		LWLockRelease(dw_ready_lock(db));
		if (more && dw_read(db, "load tasks", load_group, &hungry) != DW_READ_DONE)
		{
			leave_rest_out(lane, &hungry.left);
			lane->load_after = dw_now() + LOCKED_RETRY_US;
		}
		if (hungry.full)
			newcomers[lane - dw_lanes].feed_at = pause_end(lane);
	}
}

/*---- Newcomers: groups whose tasks became due behind many other tasks ----*/

/*
 * Returns when to look for newcomers of the lane: while due tasks are in the table only, and are not
 * loaded now since the lane has enough entries.
 */
static TimestampTz
newcomers_time(DwLane *lane)
{
	if (!lane->grouped || lane->load_below == 0 || lane->paused != DW_NOT_PAUSED || lane->orphan)
		return DW_NEVER;
	return Max(dw_atomic_read(&lane->next_far), newcomers[lane - dw_lanes].at);
}

/*
 * For dw_read(): reads tasks beyond the lane's cursor that have become due since the last look.  If
 * no task of the group is in memory, makes the group hungry.
 */
static bool
find_newcomers(Relation rel, void *arg)
{
	DwLane	   *lane = arg;
	Newcomers  *look = &newcomers[lane - dw_lanes];
	DwTaskKey	key = dw_lane_begin(lane);
	TimestampTz now = dw_now();
	DwRowScan *scan;
	int			rows = 0;
	int			found = 0;
	bool		visible;

	key.due = look->from;
	key.id = PG_INT64_MIN;
	scan = dw_lane_scan_begin(rel, &key, GetActiveSnapshot());
	dw_lane_scan_keys_only(scan, true);
	while (rows < NEWCOMERS_ROWS && found < NEWCOMERS_MOST && !dw_group_places_are_short() &&
		   dw_lane_scan_step(scan, &key, &visible) && key.due <= now)
	{
		DwGroupLeft left = {.due = lane->cursor_due, .id = lane->cursor_id, .until = now};

		rows++;
		if (!visible || is_left_to_lease_watch(lane, scan, key.due))
			continue;
		left.hash = dw_lane_scan_group(scan);
		LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
		if (dw_group_is_newcomer(lane, left.hash))
		{
			dw_group_leave_out(db, lane, &left);
			found++;
		}
		LWLockRelease(dw_ready_lock(db));
	}
	dw_row_scan_end(scan);
	/* if there were more rows than a look may read, their groups wait until the lane is loaded */
	look->from = found < NEWCOMERS_MOST ? now : Max(key.due, now - NEWCOMERS_LAG_US);
	return true;
}

/*
 * Looks for newcomers of the lane.  A lane is loaded in the order of due times, so a group whose
 * first task is due now would wait for all tasks of other groups that are due earlier.
 *
 * Loads fill three quarters of the lane's share of memory, newcomers about the last quarter.  If
 * newcomers could use more, those that wait for their limits would stop the loads.
 */
static void
look_for_newcomers(DwLane *lane)
{
	Newcomers  *look = &newcomers[lane - dw_lanes];
	int64		began = dw_uptime();
	TimestampTz at = pause_end(lane);
	/* taken before the snapshot, which then sees these tasks */
	TimestampTz late_from = dw_atomic_take(&lane->late_from);

	look->from = Min(look->from, late_from);
	/* tasks that are due with those at the cursor come soon, if they are few */
	look->from = Max(look->from, lane->cursor_due + 1);
	if (lane->groups.early >= dw_near_limit() / 4 || dw_group_places_are_short() ||
		dw_read(db, "load tasks", find_newcomers, lane) != DW_READ_DONE)
		at += LOCKED_RETRY_US;
	look->at = Max(at, dw_now() + (dw_uptime() - began) * NEWCOMERS_SHARE);
}

/* Returns true if a group of the lane has few tasks left in memory, and more in the table. */
static bool
is_hungry(DwLane *lane)
{
	bool		hungry;

	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	hungry = dw_groups_are_hungry(lane);
	LWLockRelease(dw_ready_lock(db));
	return hungry;
}

/*---- The agenda: times at which the timer looks at lanes ----*/

/*
 * Puts the lane into the agenda or into to_load.  Lanes in to_load are loaded in the order in which
 * they were added.  Otherwise an owner that pauses and resumes thousands of lanes again and again
 * could prevent loads of other lanes.
 */
static void
schedule_load(DwLane *lane, TimestampTz now)
{
	int32		number = lane - dw_lanes;
	TimestampTz at = load_time(lane, now);
	TimestampTz newcomers_at;

	if (at <= now)
	{
		dw_lane_heap_remove(&agenda, number);
		if (!dw_lane_heap_has(&to_load, number))
			dw_lane_heap_set(&to_load, number, now);
		return;
	}
	dw_lane_heap_remove(&to_load, number);
	if (lane->grouped && is_hungry(lane))
		at = Min(at, feed_time(lane));
	newcomers_at = newcomers_time(lane);
	if (newcomers_at <= now)
	{
		look_for_newcomers(lane);
		feed_groups(lane);
		newcomers_at = newcomers_time(lane);
	}
	dw_lane_heap_set(&agenda, number, Min(Min(at, newcomers_at), lane->recheck_at));

	if (dw_atomic_read(&lane->next_far) != DW_NEVER)
		dw_orphans_wanted(lane);
	else if (dw_lane_held(lane) == 0 && lane->running == 0)
	{
		idle_lanes[number / 64] |= UINT64CONST(1) << (number % 64);
		any_idle = true;
	}
}

/* Puts the lanes that other processes have marked as dirty at the top of the agenda. */
static void
note_dirty_lanes(void)
{
	pg_atomic_uint64 *dirty = db->dirty_lanes;

	for (int w = 0; w < DW_LANE_WORDS; w++)
	{
		if (pg_atomic_read_u64(&dirty[w]) == 0)
			continue;
		for (uint64 word = pg_atomic_exchange_u64(&dirty[w], 0); word != 0; word &= word - 1)
		{
			int32		number = w * 64 + pg_rightmost_one_pos64(word);

			/* the lane's place may belong to another database now */
			if (dw_lanes[number].database == db->oid)
				dw_lane_heap_set(&agenda, number, PG_INT64_MIN);
		}
	}
	DW_INJECT("dirty-after-take");
}

/* Cuts the lanes that must be read again, and schedules loads, for the agenda's lanes. */
static void
look_at_lanes(TimestampTz now)
{
	int			n = 0;

	while (dw_lane_heap_first_time(&agenda) <= now)
	{
		DwLane	   *lane = &dw_lanes[dw_lane_heap_first(&agenda)];

		DW_COUNT("lanes-looked-at");
		looked_at[n++] = lane - dw_lanes;
		dw_lane_heap_remove(&agenda, lane - dw_lanes);
		if (lane->recheck_at <= now)
			recheck_locked(lane, now);
		if (dw_atomic_read(&lane->reload_from) != DW_NEVER)
			/* L1 */
			dw_near_cut(lane, dw_atomic_take(&lane->reload_from), PG_INT64_MIN);
	}
	/* L2, for all these lanes in one pass */
	dw_near_apply_cuts();
	for (int i = 0; i < n; i++)
	{
		DwLane	   *lane = &dw_lanes[looked_at[i]];

		if (lane->grouped)
			feed_groups(lane);
		schedule_load(lane, now);
	}
}

/* Loads the lanes in to_load, one by one, for about SLICE_US.  Returns true if one was loaded. */
static bool
load_lanes(TimestampTz now)
{
	int64		began = dw_uptime();
	bool		loaded = false;

	while (!pairingheap_is_empty(&to_load.heap) && !dw_extension_gone && dw_uptime() - began <= SLICE_US)
	{
		DwLane	   *lane = &dw_lanes[dw_lane_heap_first(&to_load)];

		dw_worker_activity(STATE_RUNNING, "delay_wheel: loading tasks of the near future");
		dw_lane_heap_remove(&to_load, lane - dw_lanes);
		if (load_time(lane, now) <= now)
			load_lane(lane);
		schedule_load(lane, dw_now());
		dw_worker_progress(added);
		added = 0;
		loaded = true;
	}
	return loaded;
}

/* Makes the timer look at all lanes, since settings may have changed. */
void
dw_load_settings_changed(void)
{
	dw_each_lane(lane, db)
		dw_lane_dirty(db, lane);
}

/*
 * Does a slice of the work that is due: discovery, deletes of rows of prepared transactions, loads,
 * and moves of tasks of dropped roles.  Returns true if the timer must call this again at once.
 */
bool
dw_load_some(void)
{
	TimestampTz now = dw_now();
	bool		more;

	if (!discovery.under_way && dw_reload_asked(&db->timer_news) != DW_NEVER &&
		discover_after <= now)
		begin_discovery();
	if (discovery.under_way)
		go_on_discovering();
	if (dw_news_is_told(&db->timer_news, DW_NEWS_PREPARED) && forget_prepared_after <= now)
		forget_prepared();
	if (dw_extension_gone)
		return false;

	/* F1, F2: the flag is cleared before the bitmap of dirty lanes is read */
	if (dw_news_take(&db->timer_news, DW_NEWS_LANES))
		note_dirty_lanes();
	look_at_lanes(now);
	more = dw_orphans_some();
	more |= load_lanes(now);
	return more || discovery.under_way;
}

/* Returns when dw_load_some() must be called next, if no other process reports a change. */
TimestampTz
dw_load_next(void)
{
	TimestampTz next = Min(dw_lane_heap_first_time(&agenda), dw_orphans_next());

	if (!pairingheap_is_empty(&to_load.heap) || discovery.under_way)
		return PG_INT64_MIN;
	if (dw_news_is_told(&db->timer_news, DW_NEWS_PREPARED))
		next = Min(next, forget_prepared_after);
	if (dw_reload_asked(&db->timer_news) != DW_NEVER)
		return Min(next, discover_after);
	return next;
}

/*
 * Returns the first due time of a task that is not in memory, or an earlier time at which this file
 * has work.  Returns PG_INT64_MIN if work is in progress, so that the timer cannot rest.
 * dw_load_next() returns a time half a window earlier.
 */
TimestampTz
dw_load_first_due(void)
{
	TimestampTz first = dw_orphans_next();

	if (!pairingheap_is_empty(&to_load.heap) || discovery.under_way || lanes_missing ||
		dw_reload_asked(&db->timer_news) != DW_NEVER)
		return PG_INT64_MIN;
	if (dw_news_is_told(&db->timer_news, DW_NEWS_PREPARED))
		first = Min(first, forget_prepared_after);
	dw_each_lane(lane, db)
	{
		TimestampTz far = dw_atomic_read(&lane->next_far);

		if (dw_atomic_read(&lane->reload_from) != DW_NEVER || (lane->grouped && is_hungry(lane)))
			return PG_INT64_MIN;
		/* skip a lane with enough entries, since processes that take its tasks wake the timer */
		if (lane->load_below == 0)
			first = Min(first, far);
		first = Min(first, lane->recheck_at);
	}
	return first;
}

/*
 * Step Y1: gives the lane back if it has no task in memory, no running task, and its last load, or
 * discovery, has found no task in the table.  Returns true if the lane was given back.
 */
static bool
leave_if_idle(DwLane *lane)
{
	bool		idle;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	idle = dw_lane_held(lane) == 0 && lane->running == 0 &&
		lane->recheck_at == DW_NEVER && !dw_orphans_holds(lane) && !dw_groups_have_places(lane) &&
		dw_atomic_read(&lane->next_far) == DW_NEVER &&
		dw_atomic_read(&lane->reload_from) == DW_NEVER;
	if (idle)
		dw_ready_unlist(db, lane);
	LWLockRelease(dw_ready_lock(db));
	if (!idle || !dw_lane_leave(db, lane))
		return false;
	dw_lane_heap_remove(&agenda, lane - dw_lanes);
	dw_lane_heap_remove(&to_load, lane - dw_lanes);
	return true;
}

/*
 * Gives empty lanes back if less than half of all places for lanes are free.  Otherwise keeps them,
 * since their owners will probably schedule more tasks.
 */
void
dw_load_tidy(void)
{
	bool		any_left = false;

	if (!any_idle || dw_shared->nlanes <= (uint32) dw_max_lanes / 2)
		return;
	/* before discovery has ended, an empty lane may have tasks in the table */
	if (dw_reload_asked(&db->timer_news) != DW_NEVER || discovery.under_way)
		return;
	for (int w = 0; w < DW_LANE_WORDS; w++)
	{
		for (uint64 word = idle_lanes[w]; word != 0; word &= word - 1)
		{
			DwLane	   *lane = &dw_lanes[w * 64 + pg_rightmost_one_pos64(word)];

			if (lane->database == db->oid && leave_if_idle(lane))
				any_left = true;
		}
		idle_lanes[w] = 0;
	}
	any_idle = false;
	if (any_left && lanes_missing)
		dw_reload_ask(&db->timer_news, PG_INT64_MIN);
}
