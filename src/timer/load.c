/*-------------------------------------------------------------------------
 *
 * load.c
 *	  Loading tasks of the near future from the table into memory.
 *
 * Each lane has a cursor: the first key (due, id) of it that is not in
 * memory.  Its due time is published as the lane's horizon: who commits a
 * task up to there brings a hint, who commits one beyond only lowers the
 * lane's next_far.  A load reads the table from the cursor on, up to the end
 * of the window, to the share of memory that the lane has, or for about a
 * millisecond, whichever comes first; so a long load is a row of short ones,
 * with inbox and due tasks looked after in between.
 *
 * The timer has thousands of lanes to see to, and looks only at those that
 * somebody has something to say of (dw_lane_dirty), and at those whose time has
 * come: the agenda.
 *
 * To read again from some time on (reload_from: an inbox was full, plain SQL
 * wrote rows, an error) is to cut the lane there, and to load it.
 *
 * The order of the steps, L1 to L7 of the model in test/model, is what makes
 * sure that no task is overlooked: each row is either visible to the
 * snapshot, or its committer sees the horizon that was published before it.
 *
 * Rows of another origin, which came with a copy of another database, lie
 * beside the lanes in the index, and are passed over.
 *
 * Run by timers only.  Takes no lock that can make it wait: it has due tasks
 * to hand over.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/inject.h"
#include "../base/settings.h"
#include "../recurring/definition.h"
#include "../ring/lane_heap.h"
#include "../ring/ring.h"
#include "../rows/catalog.h"
#include "../rows/lane_scan.h"
#include "../rows/task_rows.h"
#include "../shmem/lanes.h"
#include "../shmem/progress.h"
#include "../shmem/ready.h"
#include "../shmem/shared.h"
#include "load.h"
#include "near.h"
#include "orphans.h"
#include "queue_watch.h"

/* Rows and time after which a load pauses. */
#define SLICE_ROWS		1000
#define SLICE_US		1000
/* the clock is read after so many steps of a look for lanes */
#define SLICE_STEP		16
/* after an error, or when the table is locked */
#define RETRY_US		USECS_PER_SEC
#define LOCKED_RETRY_US (100 * 1000)
/* when what is in memory has yet to be handed over */
#define BEHIND_US		1000
/* one part in so many of the time goes into forgetting prepared transactions */
#define FORGETTING_SHARE	100

static DwDatabase *db = NULL;

/* When lanes are to be looked at. */
static DwLaneHeap agenda;
/* Lanes to be loaded now, in turn. */
static DwLaneHeap to_load;
/* Lanes that may be given back: a bitmap. */
static uint64 *idle_lanes = NULL;
static bool any_idle = false;
/* Those that are being looked at. */
static int32 *looked_at = NULL;

/* A look for lanes, as far as it has come. */
static struct
{
	bool		under_way;
	TimestampTz from;			/* of the reload that it belongs to */
	DwTaskKey	reached;
	bool		unarmed;		/* it has met tasks of another origin */
	bool		lanes_missing;	/* or lanes for which there was no place */
} discovery;

/* The table holds lanes for which there was no place. */
static bool lanes_missing = false;
/* Tasks read into memory by this slice. */
static int64 placed = 0;
/* A look for lanes failed: not before then. */
static TimestampTz discover_after = PG_INT64_MIN;
/* Prepared transactions have ended, but were forgotten just now. */
static TimestampTz forget_prepared_after = PG_INT64_MIN;
/* The log has it that there are unarmed tasks. */
static bool unarmed_announced = false;

void
dw_load_reset(DwDatabase *database)
{
	db = database;
	dw_lane_heap_reset(&agenda);
	dw_lane_heap_reset(&to_load);
	idle_lanes = MemoryContextAllocZero(TopMemoryContext, DW_LANE_WORDS * sizeof(uint64));
	looked_at = MemoryContextAlloc(TopMemoryContext, dw_max_lanes * sizeof(int32));
	dw_load_settings_changed();
	dw_orphans_reset(database);
	/* a crash may undo what the timer commits, which it must not wait for */
	SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE);
	/* R1 */
	dw_atomic_lower(&db->reload_from, PG_INT64_MIN);
}

/*---- Lanes that nobody has entered ----*/

/* A look has ended; the log has it once in the life of a timer. */
static void
report_unarmed(bool met)
{
	uint32		looking = pg_atomic_read_u32(&db->unarmed);

	if (looking & DW_UNARMED_LOOKING)
		(void) pg_atomic_compare_exchange_u32(&db->unarmed, &looking, met ? DW_UNARMED_MET : 0);
	if (!met || unarmed_announced)
		return;
	unarmed_announced = true;
	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("database \"%s\" holds tasks that came with a copy; they are not run",
					get_database_name(MyDatabaseId)),
			 errhint("Look at them with \"SELECT * FROM delay_wheel.tasks WHERE NOT armed\", and at delay_wheel.recurring, and call delay_arm(), or cancel them.")));
}

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
 * Enters the lanes that the table holds, by a skip scan, for about a slice's
 * time.  Also finds out whether there are tasks of another origin.  Returns
 * whether the table's end was reached.
 */
static bool
enter_lanes_of_table(Relation rel)
{
	int64		origin = dw_origin_stamp();
	DwLaneScan *scan = dw_lanes_scan_begin(rel, &discovery.reached, GetActiveSnapshot());
	int64		began = dw_uptime();
	DwTaskKey	key;
	bool		visible;
	bool		ended = true;

	dw_lane_scan_keys_only(scan);
	/* step by step also among dead entries, so that many in a row take no longer */
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
			/* nothing else of this lane */
			discovery.reached.due = discovery.reached.id = PG_INT64_MAX;
			dw_lanes_scan_seek(scan, &discovery.reached);
		}
		if (n % SLICE_STEP == 0 && dw_uptime() - began > SLICE_US)
		{
			ended = false;
			break;
		}
	}
	dw_lane_scan_end(scan);
	return ended;
}

/*
 * Removes what ended prepared transactions left: who ended them looked at it
 * before, or we read everything anyway.
 */
static void
empty_prepared(void)
{
	Oid			oid = dw_catalog()->prepared;
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!ConditionalLockRelationOid(oid, RowExclusiveLock))
		return;
	rel = table_open(oid, NoLock);
	scan = systable_beginscan(rel, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		TM_FailureData failure;

		(void) heap_delete(rel, &tuple->t_self, GetCurrentCommandId(true),
						   InvalidSnapshot, false, &failure, false);
	}
	systable_endscan(scan);
	table_close(rel, NoLock);
}

/* The database's reload_from: cuts all lanes, and looks for unknown ones. */
static void
begin_discovery(void)
{
	dw_progress_begin(db, DW_WORK_LOAD, DW_PHASE_LOOKING);
	discovery.from = dw_atomic_take(&db->reload_from);
	discovery.under_way = true;
	discovery.unarmed = discovery.lanes_missing = false;
	memset(&discovery.reached, 0, sizeof(discovery.reached));
	discovery.reached.origin = discovery.reached.due = discovery.reached.id = PG_INT64_MIN;
	discovery.reached.queue = discovery.reached.priority = PG_INT16_MIN;

	DW_INJECT("reload-after-take");
	pg_atomic_fetch_or_u32(&db->unarmed, DW_UNARMED_LOOKING);
	dw_orphans_check_all();
	for (int32 i = db->lanes; i != DW_NO_LANE; i = dw_lanes[i].next)
		dw_near_cut(&dw_lanes[i], discovery.from, PG_INT64_MIN);
	dw_near_apply_cuts();
}

/*
 * A slice of the look, with a snapshot of its own: whoever commits a row where
 * it has been already has entered the lane, or lowers reload_from once more.
 */
static void
go_on_discovering(void)
{
	bool		ok = false;

	PG_TRY();
	{
		Relation	rel = dw_read_begin();

		if (rel != NULL)
		{
			bool		ended = enter_lanes_of_table(rel);

			DW_INJECT("reload-after-scan");
			if (ended)
			{
				lanes_missing = discovery.lanes_missing;
				report_unarmed(discovery.unarmed || dw_recurring_unarmed());
				empty_prepared();
				dw_progress_phase(db, DW_WORK_LOAD, DW_PHASE_LOADING);
			}
			discovery.under_way = !ended;
			ok = true;
		}
		dw_read_end(rel);
	}
	PG_CATCH();
	{
		ok = false;
		dw_read_failed(db, "look for lanes");
	}
	PG_END_TRY();

	if (!ok)
	{
		discovery.under_way = false;
		dw_atomic_lower(&db->reload_from, discovery.from);
		discover_after = dw_now() + LOCKED_RETRY_US;
		dw_progress_phase(db, DW_WORK_LOAD, DW_PHASE_WAITING);
	}
}

/*
 * Prepared transactions have ended; the next time if it cannot be done now.
 * While an old snapshot is held the table only grows, and takes longer each
 * time.
 */
static void
forget_prepared(void)
{
	int64		began = dw_uptime();
	bool		ok = false;

	/* before the snapshot: who sets it has committed */
	(void) pg_atomic_exchange_u32(&db->prepared_ended, 0);

	PG_TRY();
	{
		Relation	rel = dw_read_begin();

		if (rel != NULL)
		{
			empty_prepared();
			ok = true;
		}
		dw_read_end(rel);
	}
	PG_CATCH();
	{
		ok = false;
		dw_read_failed(db, "forget prepared transactions");
	}
	PG_END_TRY();

	forget_prepared_after = dw_now() + FORGETTING_SHARE * (dw_uptime() - began);
	if (!ok)
	{
		pg_atomic_write_u32(&db->prepared_ended, 1);
		forget_prepared_after += LOCKED_RETRY_US;
	}
}

/*---- Loading one lane ----*/

/*
 * Reads rows into memory until some limit, moving the lane's cursor along:
 * it is always the first key that is not in memory, also when making room
 * for a row cuts this very lane.  Returns the due time of the first row that
 * is left in the table.
 */
static TimestampTz
scan_lane(Relation rel, DwLane *lane, TimestampTz to)
{
	DwTaskKey	key = dw_lane_begin(lane);
	DwLaneScan *scan;
	int64		began = dw_uptime();
	TimestampTz first_left = DW_NEVER;
	bool		visible;

	key.due = lane->cursor_due;
	key.id = lane->cursor_id;
	scan = dw_lane_scan_begin(rel, &key, GetActiveSnapshot());
	dw_lane_scan_keys_only(scan);
	for (int n = 0; dw_lane_scan_step(scan, &key, &visible); n++)
	{
		DwEntry		entry;
		bool		pause = n >= SLICE_ROWS ||
			(n % 64 == 63 && dw_uptime() - began > SLICE_US);

		/* also among dead ones, so that many in a row take no longer */
		if (!visible && !pause)
			continue;
		DW_INJECT("load-row");
		first_left = key.due;
		if (key.due >= to)
			break;

		lane->cursor_due = key.due;
		lane->cursor_id = key.id;
		entry.due = key.due;
		entry.id = key.id;
		entry.block = ItemPointerGetBlockNumber(&key.tid);
		entry.offset = ItemPointerGetOffsetNumber(&key.tid);
		entry.lane = lane - dw_lanes;
		if (pause || dw_near_is_behind(lane, entry.due) ||
			dw_lane_held(lane) >= Max(dw_near_limit() / 4 * 3, 1) ||
			!dw_near_place_hard(lane, &entry))
		{
			dw_lane_scan_end(scan);
			return lane->cursor_due;
		}
		lane->cursor_id = key.id + 1;
		first_left = DW_NEVER;
		placed++;
	}
	dw_lane_scan_end(scan);

	/* all up to the end of the window is in memory */
	if (lane->cursor_due < to)
	{
		lane->cursor_due = to;
		lane->cursor_id = PG_INT64_MIN;
	}
	return first_left;
}

/*
 * One load: steps L1 to L7.  What was cut from the lane is dropped already
 * (L2).
 */
static void
load_lane(DwLane *lane)
{
	TimestampTz from_due = lane->cursor_due;
	int64		from_id = lane->cursor_id;
	TimestampTz to = Max(dw_time_add(dw_now(), dw_window_us()), from_due);
	TimestampTz first_left = DW_NEVER;
	bool		ok = false;
	int64		retry = LOCKED_RETRY_US;

	lane->refill_at = PG_UINT32_MAX;
	/* L1 */
	DW_INJECT("load-before-take");
	(void) dw_atomic_take(&lane->next_far);
	/* L3, B3: published before the snapshot is taken */
	pg_atomic_write_u64(&lane->horizon, (uint64) to);
	pg_memory_barrier();
	DW_INJECT("load-after-publish");

	PG_TRY();
	{
		Relation	rel = dw_read_begin();

		if (rel != NULL)
		{
			DW_INJECT("load-after-snapshot");
			first_left = scan_lane(rel, lane, to);
			DW_INJECT("load-after-scan");
			ok = true;
		}
		dw_read_end(rel);
	}
	PG_CATCH();
	{
		ok = false;
		retry = RETRY_US;
		dw_read_failed(db, "load tasks");
	}
	PG_END_TRY();

	if (!ok)
	{
		/* L7: as if nothing had been read */
		dw_near_cut(lane, from_due, from_id);
		dw_near_apply_cuts();
		lane->load_after = dw_now() + retry;
		return;
	}

	/* L6; who called us looks at the lane again */
	dw_near_set_cursor(lane, lane->cursor_due, lane->cursor_id);
	dw_atomic_lower(&lane->next_far, first_left);
	DW_INJECT("load-after-cursor");
}

/* A row was locked by a stranger: it is time to look again. */
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
 * When a lane must be loaded.  A lane that has enough in memory waits until
 * it runs low; executors tell when they have taken so many.  Other entries leave
 * by cuts, after which each lane is looked at.
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
	/* half a window ahead, so that a load is worth its while */
	at = Max(dw_time_add(far, -dw_window_us() / 2), lane->load_after);
	if (dw_near_is_behind(lane, lane->cursor_due))
		at = Max(at, now + BEHIND_US);

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	enough = at <= now && dw_lane_held(lane) > low;
	lane->load_below = enough ? low + 1 : 0;
	LWLockRelease(dw_ready_lock(db));
	return enough ? DW_NEVER : at;
}

/*---- Which lanes to look at ----*/

/*
 * Decides when the lane is to be loaded.  Those to be loaded now take turns, as
 * they have come: by no due time, since an owner may have thousands of lanes cut
 * again and again, by pausing and resuming his tasks.
 */
static void
schedule_load(DwLane *lane, TimestampTz now)
{
	int32		number = lane - dw_lanes;
	TimestampTz at = load_time(lane, now);

	if (at <= now)
	{
		dw_lane_heap_remove(&agenda, number);
		if (!dw_lane_heap_has(&to_load, number))
			dw_lane_heap_set(&to_load, number, now);
		return;
	}
	dw_lane_heap_remove(&to_load, number);
	dw_lane_heap_set(&agenda, number, Min(at, lane->recheck_at));

	if (dw_atomic_read(&lane->next_far) != DW_NEVER)
		dw_orphans_wanted(lane);
	else if (dw_lane_held(lane) == 0 && lane->running == 0)
	{
		idle_lanes[number / 64] |= UINT64CONST(1) << (number % 64);
		any_idle = true;
	}
}

/* Somebody wants the timer to look at some lanes. */
static void
note_dirty_lanes(void)
{
	pg_atomic_uint64 *dirty = dw_dirty_lanes(db);

	for (int w = 0; w < DW_LANE_WORDS; w++)
	{
		if (pg_atomic_read_u64(&dirty[w]) == 0)
			continue;
		for (uint64 word = pg_atomic_exchange_u64(&dirty[w], 0); word != 0; word &= word - 1)
		{
			int32		number = w * 64 + pg_rightmost_one_pos64(word);

			/* it may have been given back, and be another database's */
			if (dw_lanes[number].database == db->oid)
				dw_lane_heap_set(&agenda, number, PG_INT64_MIN);
		}
	}
	DW_INJECT("dirty-after-take");
}

/* Looks at the lanes whose time has come; cuts those that are to be read again. */
static void
look_at_lanes(TimestampTz now)
{
	int			n = 0;

	while (dw_lane_heap_first_key(&agenda) <= now)
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
	/* L2, for all of them in one pass */
	dw_near_apply_cuts();
	for (int i = 0; i < n; i++)
		schedule_load(&dw_lanes[looked_at[i]], now);
}

/*
 * The view "progress" has what follows from a look at all lanes, until each has in
 * memory what it can have.  Loads in between, of a lane that runs low, are not
 * worth it.
 */
static void
note_load_progress(void)
{
	dw_progress_add(db, DW_WORK_LOAD, placed);
	placed = 0;
	if (!dw_progress_is_active(db, DW_WORK_LOAD))
		return;
	dw_progress_steps(db, DW_WORK_LOAD, Max((int32) db->nlanes - to_load.n, 0), db->nlanes);
	if (discovery.under_way || dw_atomic_read(&db->reload_from) != DW_NEVER)
		return;
	if (to_load.n > 0 || dw_lane_heap_first_key(&agenda) <= dw_now() + BEHIND_US)
		dw_progress_phase(db, DW_WORK_LOAD, DW_PHASE_LOADING);
	else
		dw_progress_end(db, DW_WORK_LOAD);
}

/*
 * Loads what is to be loaded, lane after lane, for about a slice's time.
 * Returns whether there was any: some of it may be due.
 */
static bool
load_lanes(TimestampTz now)
{
	int64		began = dw_uptime();
	bool		loaded = false;

	while (to_load.n > 0 && !dw_extension_gone && dw_uptime() - began <= SLICE_US)
	{
		DwLane	   *lane = &dw_lanes[dw_lane_heap_first(&to_load)];

		dw_progress_show(DW_WORK_LOAD);
		dw_lane_heap_remove(&to_load, lane - dw_lanes);
		if (load_time(lane, now) <= now)
			load_lane(lane);
		schedule_load(lane, dw_now());
		note_load_progress();
		loaded = true;
	}
	return loaded;
}

/* All lanes are to be looked at: settings may have changed. */
void
dw_load_settings_changed(void)
{
	for (int32 i = db->lanes; i != DW_NO_LANE; i = dw_lanes[i].next)
		dw_lane_dirty(db, &dw_lanes[i]);
}

/*
 * Does a slice of what is to be loaded; true if there is more to do at once.
 */
bool
dw_load_some(void)
{
	TimestampTz now = dw_now();
	bool		more;

	if (!discovery.under_way && dw_atomic_read(&db->reload_from) != DW_NEVER &&
		discover_after <= now)
		begin_discovery();
	if (discovery.under_way)
		go_on_discovering();
	if (pg_atomic_read_u32(&db->prepared_ended) != 0 && forget_prepared_after <= now)
		forget_prepared();
	if (dw_extension_gone)
		return false;

	/* F1, F2: the flag is cleared before what it stands for is read */
	if (pg_atomic_exchange_u32(&db->any_lane_dirty, 0) != 0)
		note_dirty_lanes();
	look_at_lanes(now);
	more = dw_orphans_some();
	more |= load_lanes(now);
	note_load_progress();
	return more || discovery.under_way;
}

/* When a lane must be loaded next, if nobody lowers anything. */
TimestampTz
dw_load_next(void)
{
	TimestampTz next = Min(dw_lane_heap_first_key(&agenda), dw_orphans_next());

	if (to_load.n > 0 || discovery.under_way)
		return PG_INT64_MIN;
	if (pg_atomic_read_u32(&db->prepared_ended) != 0)
		next = Min(next, forget_prepared_after);
	if (dw_atomic_read(&db->reload_from) != DW_NEVER)
		return Min(next, discover_after);
	return next;
}

/*
 * A lane that has nothing in memory, nothing running and, as its last load or
 * the last look for lanes found, nothing in the table is not needed.
 */
static bool
leave_if_idle(DwLane *lane)
{
	bool		idle;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	idle = dw_lane_held(lane) == 0 && lane->running == 0 &&
		lane->recheck_at == DW_NEVER && !dw_orphans_holds(lane) &&
		dw_atomic_read(&lane->next_far) == DW_NEVER &&
		dw_atomic_read(&lane->reload_from) == DW_NEVER;
	if (idle)
		dw_ready_unlist(db, lane);
	LWLockRelease(dw_ready_lock(db));
	if (!idle)
		return false;
	dw_lane_heap_remove(&agenda, lane - dw_lanes);
	dw_lane_heap_remove(&to_load, lane - dw_lanes);
	dw_lane_leave(db, lane);
	return true;
}

/*
 * Gives empty lanes back when places are short.
 *
 * Lanes are kept while more than half of all places are free: their owners are
 * likely to come back.  One that turns out not to be idle is noted again when
 * it is looked at the next time.
 */
void
dw_load_tidy(void)
{
	bool		any_left = false;

	if (!any_idle || dw_shared->nlanes <= (uint32) dw_max_lanes / 2)
		return;
	/* what the table has is not known now */
	if (dw_atomic_read(&db->reload_from) != DW_NEVER || discovery.under_way)
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
		dw_atomic_lower(&db->reload_from, PG_INT64_MIN);
}
