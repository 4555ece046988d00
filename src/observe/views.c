/*-------------------------------------------------------------------------
 *
 * views.c
 *	  Functions behind the views "running", "ring", "lanes", "queues" and "status".
 *
 * Run by sessions.  They copy what they show under the lock that protects it, and make
 * rows of the copy afterwards.
 *
 * Due tasks wait in the ready list of their lane (a combination of owner, queue and
 * priority) until an executor takes them.  Tasks that are in memory but not due yet are
 * counted as "near"; the others are only in the table.  The horizon of a lane is the due
 * time before which all its tasks are in memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "../base/clock.h"
#include "../base/settings.h"
#include "../base/signature.h"
#include "../ring/lane_heap.h"
#include "../ring/ring.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/lanes.h"
#include "../shmem/owners.h"
#include "../shmem/places.h"
#include "../shmem/queue_limits.h"
#include "../shmem/recovery.h"
#include "../shmem/shared.h"
#include "../shmem/stats.h"
#include "../shmem/suspects.h"
#include "../task/queues.h"
#include "views.h"

PG_FUNCTION_INFO_V1(dw_place);
PG_FUNCTION_INFO_V1(dw_crashes);
PG_FUNCTION_INFO_V1(dw_get_running);
PG_FUNCTION_INFO_V1(dw_get_ring);
PG_FUNCTION_INFO_V1(dw_get_lanes);
PG_FUNCTION_INFO_V1(dw_get_queues);
PG_FUNCTION_INFO_V1(dw_get_status);

PG_FUNCTION_INFO_V1(dw_is_running);

/*
 * True if the current user may see how many tasks a role has, when they are due, and
 * which are running.  The tasks themselves, with SQL, are shown to members of the role
 * and of pg_read_all_data only.
 */
bool
dw_may_watch(Oid owner)
{
	return has_privs_of_role(GetUserId(), owner) ||
		has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_DATA);
}

/*
 * Returns a ring without slots, for computing with ticks: each database has one of this
 * shape, if any.
 */
static DwRing
ring_shape(void)
{
	DwRing		shape = {.nslots = dw_slots, .tick_us = dw_tick_us()};

	shape.current_tick = dw_ring_tick(&shape, dw_now());
	return shape;
}

/* SQL function: the slot and the cycle number (whole turns of the ring) of a due time. */
Datum
dw_place(PG_FUNCTION_ARGS)
{
	static const Oid columns[] = {INT4OID, INT8OID};
	DwRing		shape = ring_shape();
	TimestampTz due;
	TupleDesc	desc;
	Datum		values[2];
	bool		nulls[2] = {0};

	due = PG_GETARG_TIMESTAMPTZ(0);
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	dw_require_columns(fcinfo, desc, lengthof(columns), columns);
	values[0] = Int32GetDatum(dw_ring_index(&shape, dw_ring_tick(&shape, due)));
	values[1] = Int64GetDatum(dw_ring_cycle(&shape, due));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

/* True if the current user may see the task in the view "tasks". */
static bool
may_see_task(int64 id)
{
	Relation	rel = table_open(dw_catalog()->task, AccessShareLock);
	HeapTuple	tuple = dw_task_find(rel, id, GetActiveSnapshot());
	bool		result = false;

	if (tuple != NULL)
	{
		bool		isnull;
		Oid			owner = DatumGetObjectId(heap_getattr(tuple, Anum_task_owner,
														  RelationGetDescr(rel), &isnull));

		result = has_privs_of_role(GetUserId(), owner) ||
			has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_DATA);
		heap_freetuple(tuple);
	}
	table_close(rel, AccessShareLock);
	return result;
}

/*
 * SQL function: how often the process that was running the task has crashed.  0 if the
 * current user may not see the task.
 */
Datum
dw_crashes(PG_FUNCTION_ARGS)
{
	int			count = 0;

	/* the view "tasks" can be read without the library */
	if (dw_shared != NULL)
		count = dw_crashes_of(MyDatabaseId, PG_GETARG_INT64(0));
	PG_RETURN_INT16(count > 0 && may_see_task(PG_GETARG_INT64(0)) ? count : 0);
}

/* The view "running": the executors of this database, and their tasks. */
Datum
dw_get_running(PG_FUNCTION_ARGS)
{
	static const Oid columns[] = {
		INT4OID, REGROLEOID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID
	};
	ReturnSetInfo *result = dw_begin_rows(fcinfo, lengthof(columns), columns);

	dw_require_shared();
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		static const char *const states[] = {
			"free", "starting", "connecting", "idle", "idle", "running"
		};
		DwExecutor	e;
		Datum		values[6];
		bool		nulls[6] = {0};

		LWLockAcquire(dw_shared->table_lock, LW_SHARED);
		memcpy(&e, &dw_executors[i], sizeof(DwExecutor));
		LWLockRelease(dw_shared->table_lock);
		if (e.state == DW_EXECUTOR_FREE || e.database != MyDatabaseId)
			continue;
		if (!dw_may_watch(e.owner))
			continue;
		values[0] = Int32GetDatum(e.pid);
		nulls[0] = e.pid == 0;
		values[1] = ObjectIdGetDatum(e.owner);
		values[2] = Int64GetDatum(e.current.id);
		values[3] = TimestampTzGetDatum(e.current.due);
		nulls[2] = nulls[3] = e.state != DW_EXECUTOR_BUSY;
		values[4] = TimestampTzGetDatum(e.since);
		values[5] = CStringGetTextDatum(states[e.state]);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* Returns this database's place in shared memory; NULL if it has none. */
static DwDatabase *
find_my_database(void)
{
	DwDatabase *db;

	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	db = dw_database_find(MyDatabaseId);
	LWLockRelease(dw_shared->table_lock);
	return db;
}

/* The view "ring": the slots of this database. */
Datum
dw_get_ring(PG_FUNCTION_ARGS)
{
	static const Oid columns[] = {INT4OID, INT8OID, INT8OID, INT8OID, BOOLOID};
	ReturnSetInfo *result = dw_begin_rows(fcinfo, lengthof(columns), columns);
	DwDatabase *db;
	DwSlot	   *slots;
	DwRing	   *ring;
	DwRing		shape = ring_shape();
	int32		current = dw_ring_index(&shape, shape.current_tick);

	dw_require_shared();
	db = find_my_database();
	if (db == NULL)
		return (Datum) 0;
	ring = dw_ring(db);
	slots = palloc_extended(sizeof(DwSlot) * dw_slots, MCXT_ALLOC_HUGE);
	LWLockAcquire(dw_ring_lock(db), LW_SHARED);
	memcpy(slots, dw_ring_slot(ring, 0), sizeof(DwSlot) * dw_slots);
	LWLockRelease(dw_ring_lock(db));

	for (int i = 0; i < dw_slots; i++)
	{
		bool		empty = slots[i].list.count == 0;
		Datum		values[5];
		bool		nulls[5] = {0};

		values[0] = Int32GetDatum(i);
		values[1] = Int64GetDatum(slots[i].list.count);
		nulls[2] = nulls[3] = empty;
		if (!empty)
		{
			values[2] = Int64GetDatum(dw_ring_cycle(&shape, slots[i].min_due));
			values[3] = Int64GetDatum(dw_ring_cycle(&shape, slots[i].max_due));
		}
		values[4] = BoolGetDatum(i == current);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* Sets a column to a lateness in ms; null if there is none (us is negative). */
static void
set_lateness(Datum *value, bool *isnull, double us)
{
	*isnull = us < 0;
	*value = Float8GetDatum(us / 1000.0);
}

/*
 * Returns the state of a lane for users.  *reason says why; NULL if the state says all.
 * lane and owner may be copies; limit is what dw_lane_limit() has said of the lane.
 */
const char *
dw_lane_state(const DwLane *lane, const DwOwner *owner, DwLimit limit, TimestampTz now,
			  const char **reason)
{
	*reason = NULL;
	if (limit == DW_LIMIT_PAUSED)
	{
		*reason = dw_pause_text(lane->paused);
		return "paused";
	}
	if (owner->block != DW_BLOCK_NONE)
		*reason = dw_block_text(owner->block);
	if (dw_ready_count(lane) == 0)
		return lane->running > 0 ? "running" : "idle";
	if (owner->retry_at > now && lane->running == 0)
		return "blocked";
	if (limit != DW_LIMIT_NONE)
	{
		*reason = dw_limit_text(limit);
		return "limited";
	}
	return lane->running > 0 ? "running" : "ready";
}

/*
 * Returns the due time before which all tasks of the lane are in memory.
 *
 * DW_NEVER if all tasks are in memory, or none ever will be since the role was dropped.
 * PG_INT64_MIN if the time is not known, while the timer loads all tasks again.
 *
 * The published horizon may have passed, or be before all times if nothing was loaded
 * yet.  Then next_far is returned: there is no task before it.
 */
static TimestampTz
horizon_of(DwLane *lane)
{
	TimestampTz horizon = dw_atomic_read(&lane->horizon);
	TimestampTz next_far = dw_atomic_read(&lane->next_far);

	if (next_far == DW_NEVER || lane->orphan)
		return DW_NEVER;
	return horizon < dw_now() ? next_far : horizon;
}

/* Sets a column to a horizon; null if there is none, or it is not known. */
static void
set_horizon(Datum *value, bool *isnull, TimestampTz horizon)
{
	*isnull = horizon == DW_NEVER || horizon == PG_INT64_MIN;
	*value = TimestampTzGetDatum(horizon);
}

/* The columns of the view "lanes". */
static const Oid lane_columns[] = {
	REGROLEOID, INT2OID, INT2OID, TEXTOID, TEXTOID,
	TIMESTAMPTZOID, INT8OID, INT8OID, INT4OID,
	TIMESTAMPTZOID, TIMESTAMPTZOID,
	INT8OID, INT8OID, INT8OID, INT8OID,
	FLOAT8OID, FLOAT8OID, FLOAT8OID, INT8OID
};

/* Adds a row of the view "lanes" to the result, if the current user may see the lane. */
static void
put_lane(DwDatabase *db, int32 number, ReturnSetInfo *result)
{
	DwLane		lane;
	DwOwner		owner;
	DwLimit		limit;
	uint32		room;
	TimestampTz until;
	const char *reason;
	Datum		values[lengthof(lane_columns)] = {0};
	bool		nulls[lengthof(lane_columns)] = {0};
	TimestampTz now = dw_now();

	/* no lock for lanes that the user may not see; checked again, as the lane may change */
	if (!dw_may_watch(dw_lanes[number].owner))
		return;
	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	memcpy(&lane, &dw_lanes[number], sizeof(DwLane));
	owner = *dw_lane_owner(&lane);
	limit = dw_lane_limit(&lane, now, &room, &until);
	LWLockRelease(dw_ready_lock(db));
	if (!dw_may_watch(lane.owner))
		return;

	values[0] = ObjectIdGetDatum(lane.owner);
	values[1] = Int16GetDatum(lane.queue);
	values[2] = Int16GetDatum(lane.priority);
	values[3] = CStringGetTextDatum(dw_lane_state(&lane, &owner, limit, now, &reason));
	nulls[4] = reason == NULL;
	if (!nulls[4])
		values[4] = CStringGetTextDatum(reason);
	nulls[5] = owner.retry_at <= now;
	values[5] = TimestampTzGetDatum(owner.retry_at);
	values[6] = Int64GetDatum(lane.waiting);
	values[7] = Int64GetDatum(dw_ready_count(&lane));
	values[8] = Int32GetDatum(lane.running);
	set_horizon(&values[9], &nulls[9], horizon_of(&lane));
	nulls[10] = lane.recheck_at == DW_NEVER;
	values[10] = TimestampTzGetDatum(lane.recheck_at);
	values[11] = Int64GetDatum(dw_counted(&lane.counters, DW_DONE));
	values[12] = Int64GetDatum(dw_counted(&lane.counters, DW_FAILED));
	values[13] = Int64GetDatum(dw_counted(&lane.counters, DW_RETRIED));
	values[14] = Int64GetDatum(dw_counted(&lane.counters, DW_CANCELLED));
	set_lateness(&values[15], &nulls[15], dw_lane_lateness_percentile(&lane.lateness, 0.5));
	set_lateness(&values[16], &nulls[16], dw_lane_lateness_percentile(&lane.lateness, 0.95));
	set_lateness(&values[17], &nulls[17], dw_lane_lateness_percentile(&lane.lateness, 1));
	values[18] = Int64GetDatum(dw_counted(&lane.counters, DW_SKIPPED));
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * Returns the next lane of the database after a number; DW_NO_LANE if there is none.
 *
 * Takes no lock.  Processes that want a lock in shared mode overtake one that waits for
 * it in exclusive mode.  So sessions that walk along thousands of lanes again and again
 * would keep the timer and the executors waiting.  A lane that is entered or given back
 * just now may be missed, or be seen as it was.
 */
static int32
next_lane(const DwDatabase *db, int32 place)
{
	for (place++; place < dw_max_lanes; place++)
		if (dw_lanes[place].database == db->oid)
			return place;
	return DW_NO_LANE;
}

/* Returns the numbers of a database's lanes, without a lock; *n is their number. */
int32 *
dw_list_lanes(DwDatabase *db, int *n)
{
	int32	   *numbers = palloc(sizeof(int32) * dw_max_lanes);

	*n = 0;
	for (int32 i = next_lane(db, -1); i != DW_NO_LANE; i = next_lane(db, i))
		numbers[(*n)++] = i;
	return numbers;
}

/* The view "lanes": the lanes of this database. */
Datum
dw_get_lanes(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = dw_begin_rows(fcinfo, lengthof(lane_columns), lane_columns);
	DwDatabase *db;
	int32	   *numbers;
	int			n;

	dw_require_shared();
	db = find_my_database();
	if (db == NULL)
		return (Datum) 0;
	numbers = dw_list_lanes(db, &n);
	for (int i = 0; i < n; i++)
		if (dw_lanes[numbers[i]].database == MyDatabaseId)
			put_lane(db, numbers[i], result);
	return (Datum) 0;
}

/* A queue, and the sums over its lanes. */
typedef struct QueueSum
{
	DwQueue		queue;			/* a copy */
	int32		lanes;
	int64		near;			/* tasks in memory that are not due yet */
	int64		ready;			/* due tasks */
	DwLimit		limit;			/* of the queue, if it holds a lane with ready tasks back */
} QueueSum;

static int
compare_sums(const void *a, const void *b)
{
	return (int) ((const QueueSum *) a)->queue.id - (int) ((const QueueSum *) b)->queue.id;
}

/*
 * Fills sums with the queues of a database, by id, without their lanes, and returns their
 * number.  Takes the lock anew for each queue, to keep no process waiting.
 */
static int
collect_queues(DwDatabase *db, QueueSum *sums)
{
	int			n = 0;

	for (int i = 0; i < dw_max_queues; i++)
	{
		DwQueue    *queue = &dw_queues[i];
		QueueSum   *sum = &sums[n];

		if (queue->database != db->oid)
			continue;
		LWLockAcquire(dw_ready_lock(db), LW_SHARED);
		sum->queue = *queue;
		LWLockRelease(dw_ready_lock(db));
		if (sum->queue.database == db->oid)
			n++;
	}
	qsort(sums, n, sizeof(QueueSum), compare_sums);
	return n;
}

/* Adds a lane to the sums of its queue.  Reads numbers without a lock, the limit under one. */
static void
add_lane_to_queue(DwDatabase *db, const DwLane *lane, TimestampTz now, QueueSum *sum)
{
	int64		ready = dw_ready_count(lane);
	DwLimit		limit;
	uint32		room;
	TimestampTz until;

	sum->lanes++;
	sum->near += lane->waiting;
	sum->ready += ready;
	if (ready == 0 || sum->limit != DW_LIMIT_NONE)
		return;
	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	limit = dw_lane_limit(lane, now, &room, &until);
	LWLockRelease(dw_ready_lock(db));
	if (limit == DW_LIMIT_RUNNING || limit == DW_LIMIT_RATE)
		sum->limit = limit;
}

/* Returns the queues of a database with their sums, by id; *n is their number. */
static QueueSum *
sum_queues(DwDatabase *db, int *n)
{
	QueueSum   *sums = palloc0(sizeof(QueueSum) * dw_max_queues);
	TimestampTz now = dw_now();

	*n = collect_queues(db, sums);
	for (int32 lane = next_lane(db, -1); lane != DW_NO_LANE && *n > 0; lane = next_lane(db, lane))
	{
		QueueSum	key = {.queue.id = dw_lanes[lane].queue};
		QueueSum   *sum = bsearch(&key, sums, *n, sizeof(QueueSum), compare_sums);

		if (sum != NULL)
			add_lane_to_queue(db, &dw_lanes[lane], now, sum);
	}
	return sums;
}

/* The columns of the function behind the view "queues". */
static const Oid queue_columns[] = {
	INT2OID, TEXTOID, TEXTOID, INT4OID, INT8OID, INT8OID, INT4OID,
	INT8OID, INT8OID, INT8OID, INT8OID, INT8OID
};

/* Adds a row of the view "queues" to the result. */
static void
put_queue(QueueSum *sum, ReturnSetInfo *result)
{
	const DwQueue *queue = &sum->queue;
	Datum		values[lengthof(queue_columns)] = {0};
	bool		nulls[lengthof(queue_columns)] = {0};
	const char *state = sum->ready > 0 ? "ready" : "idle";

	if (queue->pause != DW_NOT_PAUSED)
		state = "paused";
	else if (sum->limit != DW_LIMIT_NONE)
		state = "limited";
	else if (queue->running > 0)
		state = "running";
	values[0] = Int16GetDatum(queue->id);
	values[1] = CStringGetTextDatum(state);
	nulls[2] = queue->pause != DW_NOT_PAUSED || sum->limit == DW_LIMIT_NONE;
	if (!nulls[2])
		values[2] = CStringGetTextDatum(dw_limit_text(sum->limit));
	values[3] = Int32GetDatum(queue->running);
	values[4] = Int64GetDatum(sum->near);
	values[5] = Int64GetDatum(sum->ready);
	values[6] = Int32GetDatum(sum->lanes);
	values[7] = Int64GetDatum(dw_counted(&sum->queue.counters, DW_DONE));
	values[8] = Int64GetDatum(dw_counted(&sum->queue.counters, DW_FAILED));
	values[9] = Int64GetDatum(dw_counted(&sum->queue.counters, DW_RETRIED));
	values[10] = Int64GetDatum(dw_counted(&sum->queue.counters, DW_CANCELLED));
	values[11] = Int64GetDatum(dw_counted(&sum->queue.counters, DW_SKIPPED));
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* Returns the sums of a queue; NULL if there are none, or the user may not see the queue. */
static QueueSum *
visible_sum(Relation rel, HeapTuple tuple, QueueSum *sums, int n)
{
	QueueSum	key = {0};
	bool		isnull;

	if (!has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) &&
		!has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_DATA) &&
		!dw_queue_is_usable(rel, tuple))
		return NULL;
	key.queue.id = DatumGetInt16(heap_getattr(tuple, Anum_queue_id, RelationGetDescr(rel),
											  &isnull));
	return n > 0 ? bsearch(&key, sums, n, sizeof(QueueSum), compare_sums) : NULL;
}

/* The view "queues": the declared queues of this database, as far as shared memory knows them. */
Datum
dw_get_queues(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = dw_begin_rows(fcinfo, lengthof(queue_columns), queue_columns);
	DwDatabase *db;
	QueueSum   *sums;
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			n;

	dw_require_shared();
	db = find_my_database();
	if (db == NULL)
		return (Datum) 0;
	sums = sum_queues(db, &n);
	rel = table_open(dw_catalog()->queue, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		QueueSum   *sum = visible_sum(rel, tuple, sums, n);

		if (sum != NULL)
			put_queue(sum, result);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return (Datum) 0;
}

/*
 * Returns the due time before which the tasks of all lanes are in memory: DW_NEVER if all
 * tasks are, PG_INT64_MIN if the time is not known.
 */
static TimestampTz
lowest_horizon(DwDatabase *db)
{
	TimestampTz lowest = DW_NEVER;

	for (int32 i = next_lane(db, -1); i != DW_NO_LANE; i = next_lane(db, i))
		lowest = Min(lowest, horizon_of(&dw_lanes[i]));
	return lowest;
}

/* Counts the executors of a database, and those that run a task; without a lock. */
static void
count_executors(DwDatabase *db, int32 *executors, int32 *running)
{
	*executors = *running = 0;
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e->state == DW_EXECUTOR_FREE || e->database != db->oid)
			continue;
		(*executors)++;
		if (e->state == DW_EXECUTOR_BUSY)
			(*running)++;
	}
}

/* Counts the lanes with due tasks whose owners can have no executor for now. */
static int32
count_parked(DwDatabase *db)
{
	TimestampTz now = dw_now();
	int32		n = 0;
	dlist_iter	iter;

	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	dlist_foreach(iter, &db->blocked_owners)
	{
		DwOwner    *owner = dw_linked_owner(iter.cur);

		if (owner->retry_at > now)
			n += owner->nready;
	}
	LWLockRelease(dw_ready_lock(db));
	return n;
}

/* Returns the state of a database for users; db is NULL if it has no place. */
static const char *
service_state(DwDatabase *db)
{
	static const char *const states[] = {"stopped", "starting", "running"};

	if (RecoveryInProgress())
		return "standby";
	if (dw_recovery_is_held())
		return "held";
	if (db == NULL)
		return dw_database_place_free() ? "stopped" : "no place";
	if (db->timer.state == DW_PROCESS_RUNNING && dw_database_is_disabled(db))
		return "disabled";
	if (db->timer.state == DW_PROCESS_RUNNING && db->paused)
		return "paused";
	return states[db->timer.state];
}

/*
 * Returns the problem that keeps a stopped database from having a timer, which could note
 * problems; NULL if there is none.
 */
static const char *
problem_of_service(const char *state)
{
	if (strcmp(state, "stopped") != 0)
		return NULL;
	if (!dw_process_is_there(&dw_shared->launcher))
		return "the launcher is not running: \"max_worker_processes\" may be too low";
	if (pg_atomic_read_u32(&dw_shared->timer_refused) != 0)
		return DW_TIMER_REFUSED;
	return NULL;
}

/* The columns of the view "status". */
static const Oid status_columns[] = {
	NAMEOID, TEXTOID, INT4OID, TIMESTAMPTZOID,
	INT4OID, INT8OID, INT8OID, INT4OID, INT4OID,
	INT4OID, INT8OID, INT8OID,
	FLOAT8OID, FLOAT8OID, FLOAT8OID, FLOAT8OID,
	INT8OID, INT8OID, TEXTOID, TIMESTAMPTZOID, BOOLOID, INT8OID, INT8OID
};

/* Adds the row of the view "status" for this database, which has no place, to the result. */
static void
put_status_without_place(ReturnSetInfo *result)
{
	Datum		values[lengthof(status_columns)] = {0};
	bool		nulls[lengthof(status_columns)];
	NameData	database;
	const char *state = service_state(NULL);
	const char *problem = problem_of_service(state);

	memset(nulls, true, sizeof(nulls));
	namestrcpy(&database, get_database_name(MyDatabaseId));
	values[0] = NameGetDatum(&database);
	values[1] = CStringGetTextDatum(state);
	nulls[0] = nulls[1] = false;
	if (problem != NULL)
	{
		values[18] = CStringGetTextDatum(problem);
		nulls[18] = false;
	}
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* Adds the row of the view "status" for a database that has a place to the result. */
static void
put_status(DwDatabase *db, ReturnSetInfo *result)
{
	char		problem[sizeof(db->problem.text)];
	TimestampTz problem_at;
	char	   *name = get_database_name(db->oid);
	int32		executors;
	int32		running;
	Datum		values[lengthof(status_columns)] = {0};
	bool		nulls[lengthof(status_columns)] = {0};
	NameData	database;
	DwRing		shape = ring_shape();
	const char *state = service_state(db);
	const char *service_problem = problem_of_service(state);

	if (name == NULL)
		return;
	/* text that it quotes from errors is shown to readers of all tasks only */
	problem_at = dw_problem_read(&db->problem, problem, sizeof(problem),
								 has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_DATA));
	count_executors(db, &executors, &running);

	namestrcpy(&database, name);
	values[0] = NameGetDatum(&database);
	values[1] = CStringGetTextDatum(state);
	values[2] = Int32GetDatum(dw_ring_index(&shape, shape.current_tick));
	set_horizon(&values[3], &nulls[3], lowest_horizon(db));
	values[4] = Int32GetDatum(db->nlanes);
	values[5] = Int64GetDatum(pg_atomic_read_u64(&db->near));
	values[6] = Int64GetDatum(pg_atomic_read_u64(&db->ready));
	values[7] = Int32GetDatum(running);
	values[8] = Int32GetDatum(executors);
	values[9] = Int32GetDatum(count_parked(db));
	values[10] = Int64GetDatum(dw_counted(&db->counters, DW_DONE));
	values[11] = Int64GetDatum(dw_counted(&db->counters, DW_FAILED));
	set_lateness(&values[12], &nulls[12], dw_lateness_percentile(&db->lateness, 0.5));
	set_lateness(&values[13], &nulls[13], dw_lateness_percentile(&db->lateness, 0.95));
	set_lateness(&values[14], &nulls[14], dw_lateness_percentile(&db->lateness, 0.99));
	set_lateness(&values[15], &nulls[15], dw_lateness_percentile(&db->lateness, 1));
	values[16] = Int64GetDatum((int64) db->account.used * sizeof(DwChunk));
	values[17] = Int64GetDatum((int64) db->account.quota * sizeof(DwChunk));
	/* a problem names tasks and roles */
	nulls[18] = nulls[19] = problem[0] == '\0' ||
		!has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	if (!nulls[18])
	{
		values[18] = CStringGetTextDatum(problem);
		values[19] = TimestampTzGetDatum(problem_at);
	}
	else if (service_problem != NULL)
	{
		values[18] = CStringGetTextDatum(service_problem);
		nulls[18] = false;
	}
	values[20] = BoolGetDatum(dw_unarmed_met(&db->timer_news));
	values[21] = Int64GetDatum(dw_counted(&db->counters, DW_RETRIED));
	values[22] = Int64GetDatum(dw_counted(&db->counters, DW_SKIPPED));
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* The view "status": the databases that the current user may see. */
Datum
dw_get_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = dw_begin_rows(fcinfo, lengthof(status_columns), status_columns);

	dw_require_shared();
	for (int i = 0; i < dw_max_databases; i++)
		if (dw_may_see_database(dw_database(i)))
			put_status(dw_database(i), result);
	if (find_my_database() == NULL)
		put_status_without_place(result);
	return (Datum) 0;
}

/*
 * SQL function: true if an executor is running the task outside of a transaction, so that
 * its row is in failed_task meanwhile.  False if the current user may not see the task.
 */
Datum
dw_is_running(PG_FUNCTION_ARGS)
{
	Oid			owner;

	dw_require_shared();
	PG_RETURN_BOOL(dw_executor_runs_autonomous(PG_GETARG_INT64(0), &owner) &&
				   (has_privs_of_role(GetUserId(), owner) ||
					has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_DATA)));
}
