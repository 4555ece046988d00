/*-------------------------------------------------------------------------
 *
 * views.c
 *	  Functions behind the views "running", "ring", "lanes", "queues" and "status".
 *
 * Run by sessions.  The functions copy data under its lock, and make rows from the copy afterwards.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/supportnodes.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/snapmgr.h"

#include "../base/compat.h"
#include "../base/signature.h"
#include "../base/wing.h"
#include "../shmem/groups.h"
#include "../task/task.h"
#include "views.h"

/* A receiver that has looked for messages within this time, in us, counts as present. */
#define LATELY_US		(10 * USECS_PER_SEC)

PG_FUNCTION_INFO_V1(dw_slot);
PG_FUNCTION_INFO_V1(dw_cycle_num);
PG_FUNCTION_INFO_V1(dw_crashes);
PG_FUNCTION_INFO_V1(dw_get_running);
PG_FUNCTION_INFO_V1(dw_get_ring);
PG_FUNCTION_INFO_V1(dw_get_lanes);
PG_FUNCTION_INFO_V1(dw_get_queues);
PG_FUNCTION_INFO_V1(dw_get_status);

PG_FUNCTION_INFO_V1(dw_is_running);
PG_FUNCTION_INFO_V1(dw_costs_nothing);
PG_FUNCTION_INFO_V1(dw_is_readable);
PG_FUNCTION_INFO_V1(dw_readable_owners);

/*
 * Returns true if the current user may see the number, the due times and the running tasks of a
 * role.  Reading the rows of tasks, with their SQL, needs more rights.
 */
bool
dw_may_watch(Oid owner)
{
	return dw_may_read(owner) || has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
}

/*
 * SQL function for row level security: returns an array of the roles whose rows the current user
 * may read.  A scan of all rows calls the function for each row, so the result lives as long as
 * the expression that calls the function.  A cursor has the rights of its first reader.
 */
Datum
dw_readable_owners(PG_FUNCTION_ARGS)
{
	MemoryContext context = fcinfo->flinfo->fn_mcxt;
	ArrayBuildState *state;
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (fcinfo->flinfo->fn_extra != NULL)
		PG_RETURN_ARRAYTYPE_P(fcinfo->flinfo->fn_extra);
	state = initArrayResult(REGROLEOID, context, false);
	rel = table_open(AuthIdRelationId, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		Oid			role = ((Form_pg_authid) GETSTRUCT(tuple))->oid;

		CHECK_FOR_INTERRUPTS();
		if (has_privs_of_role(GetUserId(), role))
			state = accumArrayResult(state, ObjectIdGetDatum(role), false, REGROLEOID, context);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	fcinfo->flinfo->fn_extra = DatumGetArrayTypeP(makeArrayResult(state, context));
	PG_RETURN_ARRAYTYPE_P(fcinfo->flinfo->fn_extra);
}

/*
 * Support function of is_readable(): the planner then puts is_readable() before all conditions of
 * the reader, even conditions without cost, such as IS NULL.  If costs are equal, PostgreSQL
 * evaluates conditions of row level security first.
 */
Datum
dw_costs_nothing(PG_FUNCTION_ARGS)
{
	SupportRequestCost *request = (SupportRequestCost *) PG_GETARG_POINTER(0);

	if (!IsA(request, SupportRequestCost))
		PG_RETURN_POINTER(NULL);
	request->startup = 0;
	request->per_tuple = 0;
	PG_RETURN_POINTER(request);
}

/*
 * SQL function for row level security: returns true if the current user has the rights of the role,
 * or of a role in one of the further arguments, which are arrays of roles.
 */
Datum
dw_is_readable(PG_FUNCTION_ARGS)
{
	struct
	{
		Oid			user;
		Oid			owner;
		bool		result;
	}		   *last = fcinfo->flinfo->fn_extra;
	bool		result;

	/* cache the last result: a scan often reads many rows of one owner, and a check can be slow */
	if (last == NULL)
		last = fcinfo->flinfo->fn_extra = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(*last));
	if (last->user != GetUserId() || last->owner != PG_GETARG_OID(0))
	{
		last->result = has_privs_of_role(GetUserId(), PG_GETARG_OID(0));
		last->user = GetUserId();
		last->owner = PG_GETARG_OID(0);
	}
	result = last->result;
	for (int i = 1; !result && i < PG_NARGS(); i++)
	{
		ArrayType  *roles = PG_GETARG_ARRAYTYPE_P(i);

		result = dw_has_any_role((Oid *) ARR_DATA_PTR(roles), ArrayGetNItems(ARR_NDIM(roles), ARR_DIMS(roles)));
	}
	PG_RETURN_BOOL(result);
}

/*
 * Returns a ring without slots, for computations with ticks.  The rings of all databases have this
 * shape.
 */
static DwRing
ring_shape(void)
{
	DwRing		shape = {.nslots = dw_slots, .tick_us = dw_tick_us()};

	shape.current_tick = dw_ring_tick(&shape, dw_now());
	return shape;
}

/* SQL function: returns the slot of the ring for a due time. */
Datum
dw_slot(PG_FUNCTION_ARGS)
{
	DwRing		shape = ring_shape();

	PG_RETURN_INT32(dw_ring_index(&shape, dw_ring_tick(&shape, PG_GETARG_TIMESTAMPTZ(0))));
}

/*
 * SQL function: returns the cycle number, the number of whole turns of the ring until a due time.
 */
Datum
dw_cycle_num(PG_FUNCTION_ARGS)
{
	DwRing		shape = ring_shape();

	PG_RETURN_INT64(dw_ring_cycle(&shape, PG_GETARG_TIMESTAMPTZ(0)));
}

/*
 * SQL function: returns how often the process that was running the task has crashed; 0 if the
 * current user may not see the task in the view "tasks".
 */
Datum
dw_crashes(PG_FUNCTION_ARGS)
{
	int			count = 0;
	Relation	rel;
	HeapTuple	tuple;

	/* the view "tasks" can be read even if the server has not preloaded the library */
	if (dw_shared != NULL)
		count = dw_crashes_of(MyDatabaseId, PG_GETARG_INT64(0));
	if (count == 0)
		PG_RETURN_INT16(0);
	rel = table_open(dw_catalog()->task, AccessShareLock);
	tuple = dw_task_find(rel, PG_GETARG_INT64(0), GetActiveSnapshot());
	if (tuple == NULL || !dw_may_read(DatumGetObjectId(dw_row_column(rel, tuple, Anum_task_owner))))
		count = 0;
	table_close(rel, AccessShareLock);
	PG_RETURN_INT16(count);
}

/* The view "running": the executors of this database, and their tasks. */
Datum
dw_get_running(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
	dw_require_shared();
	dw_each_executor(place)
	{
		static const char *const states[] = {
			"free", "starting", "connecting", "idle", "idle", "running"
		};
		DwExecutor	e;
		bool		idle;

		LWLockAcquire(dw_shared->table_lock, LW_SHARED);
		memcpy(&e, place, sizeof(DwExecutor));
		LWLockRelease(dw_shared->table_lock);
		if (e.state == DW_EXECUTOR_FREE || e.database != MyDatabaseId || !dw_may_watch(e.owner))
			continue;
		idle = e.state != DW_EXECUTOR_BUSY;
		dw_put_row(fcinfo, dw_null_if(e.pid == 0, DW_INT4(e.pid)), DW_ROLE(e.owner),
				   dw_null_if(idle, DW_INT8(e.current.id)), dw_null_if(idle, DW_TIME(e.current.due)),
				   DW_TIME(e.since), dw_text_or_null(states[e.state]));
	}
	return (Datum) 0;
}

/* Begins a view.  Returns this database's place in shared memory; NULL: no place. */
DwDatabase *
dw_view_begin(FunctionCallInfo fcinfo)
{
	DwDatabase *db;

	InitMaterializedSRF(fcinfo, 0);
	dw_require_shared();
	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	db = dw_database_find(MyDatabaseId);
	LWLockRelease(dw_shared->table_lock);
	return db;
}

/* The view "ring": the slots of this database. */
Datum
dw_get_ring(PG_FUNCTION_ARGS)
{
	DwDatabase *db = dw_view_begin(fcinfo);
	DwSlot	   *slots;
	DwRing		shape = ring_shape();
	int32		current = dw_ring_index(&shape, shape.current_tick);

	if (db == NULL)
		return (Datum) 0;
	slots = palloc_extended(sizeof(DwSlot) * dw_slots, MCXT_ALLOC_HUGE);
	LWLockAcquire(dw_ring_lock(db), LW_SHARED);
	memcpy(slots, dw_ring_slot(db->ring, 0), sizeof(DwSlot) * dw_slots);
	LWLockRelease(dw_ring_lock(db));

	for (int i = 0; i < dw_slots; i++)
	{
		const DwSlot *slot = &slots[i];
		bool		empty = slot->list.count == 0;

		dw_put_row(fcinfo, DW_INT4(i), DW_INT8(slot->list.count),
				   dw_null_if(empty, DW_INT8(empty ? 0 : dw_ring_cycle(&shape, slot->min_due))),
				   dw_null_if(empty, DW_INT8(empty ? 0 : dw_ring_cycle(&shape, slot->max_due))),
				   DW_BOOL(i == current));
	}
	return (Datum) 0;
}

/* Returns a column with a lateness in ms; null if us is negative (no lateness). */
static DwColumn
lateness_column(double us)
{
	return dw_null_if(us < 0, DW_FLOAT8(us / 1000.0));
}

/* Returns true if the database has no timer, but gets a timer as soon as this is necessary. */
static bool
timer_rests(const DwDatabase *db)
{
	return dw_process_rests(&db->timer) && dw_lack_since(&db->timer.lack) == 0;
}

/*
 * Returns the state of a lane for users.  Sets *reason to the cause of the state, or to NULL.  lane
 * and owner may be copies.  limit: the result of dw_lane_limit().
 */
const char *
dw_lane_state(const DwDatabase *db, const DwLane *lane, const DwOwner *owner, DwLimit limit,
			  TimestampTz now, const char **reason)
{
	*reason = NULL;
	/* without a timer nothing else is certain, since only the timer reads the tables */
	if (db->timer.state == DW_PROCESS_NONE && !timer_rests(db) && lane->running == 0)
	{
		*reason = "the database is not served";
		return "blocked";
	}
	/* a transaction that declared a queue and was rolled back leaves a lane without tasks */
	if (limit == DW_LIMIT_PAUSED && lane->paused == DW_PAUSED_NO_QUEUE &&
		lane->waiting == 0 && lane->running == 0 && dw_ready_count(lane) == 0)
		return "idle";
	if (limit == DW_LIMIT_PAUSED)
	{
		*reason = dw_pause_texts[lane->paused];
		return "paused";
	}
	/* messages need no executor */
	if (owner->block != DW_BLOCK_NONE && !lane->external)
		*reason = dw_block_texts[owner->block];
	if (dw_ready_count(lane) == 0)
		return lane->running > 0 ? "running" : "idle";
	if (owner->retry_at > now && lane->running == 0 && !lane->external)
		return "blocked";
	if (limit != DW_LIMIT_NONE)
	{
		*reason = dw_limit_texts[limit];
		return "limited";
	}
	if (lane->external)
		return "unreceived";
	return lane->running > 0 ? "running" : "ready";
}

/*
 * Returns the reason why due messages of an external queue are not received; NULL if a receiver
 * waits, or has looked recently.  queue may be a copy, or NULL.
 */
static const char *
receiver_reason(const DwQueue *queue, TimestampTz now)
{
	if (queue == NULL || !queue->external || queue->waiting > 0 ||
		now - queue->looked_at < LATELY_US)
		return NULL;
	return queue->looked_at == 0 ? "no receiver has come" :
		psprintf("no receiver has come since %s", timestamptz_to_str(queue->looked_at));
}

/*
 * Returns the due time before which all tasks of the lane are in memory.
 *
 * Returns DW_NEVER if all tasks are in memory, or if tasks are never loaded because the role was
 * dropped.  Returns PG_INT64_MIN if the time is not known, while the timer loads all tasks again.
 *
 * If the published horizon has passed, or nothing was loaded yet, returns next_far: no task is due
 * before this time.
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

/* Returns a column with a horizon; null if there is no horizon, or it is not known. */
static DwColumn
horizon_column(TimestampTz horizon)
{
	return dw_null_if(horizon == DW_NEVER || horizon == PG_INT64_MIN, DW_TIME(horizon));
}

/* Adds a row of the view "lanes" to the result, if the current user may see the lane. */
static void
put_lane(FunctionCallInfo fcinfo, DwDatabase *db, int32 number)
{
	DwLane		lane;
	DwOwner		owner;
	DwLimit		limit;
	uint32		room;
	TimestampTz until;
	const char *state;
	const char *reason;
	const char *not_received;
	TimestampTz now = dw_now();

	/* take no lock for lanes that the user may not see; check again later: the lane may change */
	if (!dw_may_watch(dw_lanes[number].owner))
		return;
	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	memcpy(&lane, &dw_lanes[number], sizeof(DwLane));
	owner = *dw_lane_owner(&lane);
	limit = dw_lane_limit(&lane, now, &room, &until);
	not_received = receiver_reason(dw_lane_queue(&lane), now);
	LWLockRelease(dw_ready_lock(db));
	if (!dw_may_watch(lane.owner))
		return;

	state = dw_lane_state(db, &lane, &owner, limit, now, &reason);
	if (reason == NULL && dw_ready_count(&lane) > 0)
		reason = not_received;
	dw_put_row(fcinfo, DW_ROLE(lane.owner), DW_INT2(lane.queue), DW_INT2(lane.priority),
			   dw_text_or_null(state), dw_text_or_null(reason),
			   dw_null_if(owner.retry_at <= now || owner.retry_at == DW_NEVER, DW_TIME(owner.retry_at)),
			   DW_INT8(lane.waiting), DW_INT8(dw_ready_count(&lane)), DW_INT4(lane.running),
			   horizon_column(horizon_of(&lane)),
			   dw_null_if(lane.recheck_at == DW_NEVER, DW_TIME(lane.recheck_at)),
			   DW_INT8(dw_counted(&lane.counters, DW_DONE)),
			   DW_INT8(dw_counted(&lane.counters, DW_FAILED)),
			   DW_INT8(dw_counted(&lane.counters, DW_RETRIED)),
			   DW_INT8(dw_counted(&lane.counters, DW_CANCELLED)),
			   lateness_column(dw_lane_lateness_percentile(&lane.lateness, 0.5)),
			   lateness_column(dw_lane_lateness_percentile(&lane.lateness, 0.95)),
			   lateness_column(dw_lane_lateness_percentile(&lane.lateness, 1)),
			   DW_INT8(dw_counted(&lane.counters, DW_SKIPPED)),
			   lateness_column(dw_lane_lateness_percentile(&lane.lateness, 0.99)));
}

/* The view "lanes": the lanes of this database. */
Datum
dw_get_lanes(PG_FUNCTION_ARGS)
{
	DwDatabase *db = dw_view_begin(fcinfo);

	if (db == NULL)
		return (Datum) 0;
	for (int32 i = dw_lane_after(db, -1); i != DW_NO_LANE; i = dw_lane_after(db, i))
		put_lane(fcinfo, db, i);
	return (Datum) 0;
}

/* Returns the due time of the lane's first due task, or DW_NEVER.  Under the ready lock. */
TimestampTz
dw_lane_first_due(const DwLane *lane)
{
	const DwEntry *first = dw_ready_first(lane);

	return first != NULL ? first->due : DW_NEVER;
}

/* A queue, the sums over its lanes, and its leases. */
typedef struct QueueSum
{
	DwQueue		queue;			/* a copy */
	int32		lanes;
	int64		near;			/* tasks in memory that are not due yet */
	int64		ready;			/* due tasks */
	TimestampTz first_due;		/* due time of the first due task; DW_NEVER if there is none */
	int32		leased;			/* messages under a lease; -1 if not known */
	DwLimit		limit;			/* the queue's limit, if it blocks a lane with ready tasks */
	DwLaneLateness lateness;	/* lateness in its lanes */
} QueueSum;

static int
compare_sums(const void *a, const void *b)
{
	return (int) ((const QueueSum *) a)->queue.id - (int) ((const QueueSum *) b)->queue.id;
}

/* Returns the sums of a queue; NULL if the queue has none. */
static QueueSum *
find_sum(QueueSum *sums, int n, int16 queue)
{
	QueueSum	key = {.queue.id = queue};

	return bsearch(&key, sums, n, sizeof(QueueSum), compare_sums);
}

/*
 * Fills sums with the queues of a database, by id, without their lanes.  Returns the number of
 * queues.  Takes the lock separately for each queue, so that other processes do not wait.
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
		sum->first_due = DW_NEVER;
		sum->leased = -1;
		dw_lane_lateness_init(&sum->lateness);
		if (sum->queue.database == db->oid)
			n++;
	}
	qsort(sums, n, sizeof(QueueSum), compare_sums);
	return n;
}

/* Adds a lane to the sums of its queue.  Takes the ready lock if it has due tasks. */
static void
add_lane_to_queue(DwDatabase *db, DwLane *lane, TimestampTz now, QueueSum *sum)
{
	int64		ready = dw_ready_count(lane);
	DwLimit		limit;
	uint32		room;
	TimestampTz until;

	sum->lanes++;
	sum->near += lane->waiting;
	sum->ready += ready;
	dw_lane_lateness_add(&sum->lateness, &lane->lateness);
	if (ready == 0)
		return;
	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	limit = dw_lane_limit(lane, now, &room, &until);
	/* check again: tasks may have been taken meanwhile, or the lane released */
	if (lane->database == db->oid && dw_ready_count(lane) > 0)
		sum->first_due = Min(sum->first_due, dw_lane_first_due(lane));
	LWLockRelease(dw_ready_lock(db));
	if (sum->limit == DW_LIMIT_NONE &&
		(limit == DW_LIMIT_RUNNING || limit == DW_LIMIT_RATE || limit == DW_LIMIT_GROUP))
		sum->limit = limit;
}

/* Returns the queues of a database with their sums, by id.  Sets *n to their number. */
static QueueSum *
sum_queues(DwDatabase *db, int *n)
{
	QueueSum   *sums = palloc0(sizeof(QueueSum) * dw_max_queues);
	TimestampTz now = dw_now();

	*n = collect_queues(db, sums);
	for (int32 lane = dw_lane_after(db, -1); lane != DW_NO_LANE && *n > 0;
		 lane = dw_lane_after(db, lane))
	{
		QueueSum   *sum = find_sum(sums, *n, dw_lanes[lane].queue);

		if (sum != NULL)
			add_lane_to_queue(db, &dw_lanes[lane], now, sum);
	}
	return sums;
}

/*
 * Counts the leases of external queues.  If the table is locked, the number stays unknown: a reader
 * of the view must not wait for a command that rewrites the table.
 */
static void
count_leased(QueueSum *sums, int n)
{
	Oid			index = dw_catalog()->task_lease_index;
	SysScanDesc scan;
	Relation	rel;
	HeapTuple	tuple;
	bool		any = false;

	for (int i = 0; i < n; i++)
		any |= sums[i].queue.external;
	if (!any || !ConditionalLockRelationOid(dw_catalog()->task, AccessShareLock))
		return;
	rel = table_open(dw_catalog()->task, NoLock);
	if (ConditionalLockRelationOid(index, AccessShareLock))
	{
		for (int i = 0; i < n; i++)
			sums[i].leased = 0;
		scan = dw_lease_scan_begin(rel, dw_now() + 1, NULL);
		while ((tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL)
		{
			DwTaskKey	key;
			QueueSum   *sum;

			CHECK_FOR_INTERRUPTS();
			dw_task_key(rel, tuple, &key);
			sum = find_sum(sums, n, key.queue);
			if (sum != NULL && key.origin == dw_origin_stamp())
				sum->leased++;
		}
		dw_lease_scan_end(scan);
		UnlockRelationOid(index, AccessShareLock);
	}
	table_close(rel, AccessShareLock);
}

/* Adds a row of the view "queues" to the result. */
static void
put_queue(FunctionCallInfo fcinfo, QueueSum *sum)
{
	DwQueue    *queue = &sum->queue;
	uint32		running = queue->running + pg_atomic_read_u32(&queue->received);
	const char *reason = NULL;
	const char *state = sum->ready == 0 ? "idle" : queue->external ? "unreceived" : "ready";

	if (queue->pause != DW_NOT_PAUSED)
		state = "paused";
	else if (sum->limit != DW_LIMIT_NONE)
	{
		state = "limited";
		reason = dw_limit_texts[sum->limit];
	}
	else if (running > 0)
		state = "running";
	else if (sum->ready > 0)
		reason = receiver_reason(queue, dw_now());
	dw_put_row(fcinfo, DW_INT2(queue->id), dw_text_or_null(state), dw_text_or_null(reason),
			   DW_INT4(running), DW_INT8(sum->near), DW_INT8(sum->ready),
			   DW_INT4(sum->lanes), DW_INT8(dw_counted(&queue->counters, DW_DONE)),
			   DW_INT8(dw_counted(&queue->counters, DW_FAILED)),
			   DW_INT8(dw_counted(&queue->counters, DW_RETRIED)),
			   DW_INT8(dw_counted(&queue->counters, DW_CANCELLED)),
			   DW_INT8(dw_counted(&queue->counters, DW_SKIPPED)),
			   dw_null_if(sum->first_due == DW_NEVER, DW_TIME(sum->first_due)),
			   dw_null_if(!queue->external || sum->leased < 0, DW_INT4(sum->leased)),
			   dw_null_if(!queue->external, DW_INT8(pg_atomic_read_u64(&queue->lapsed))),
			   dw_null_if(!queue->external, DW_INT4(queue->waiting)),
			   lateness_column(dw_lane_lateness_percentile(&sum->lateness, 0.5)),
			   lateness_column(dw_lane_lateness_percentile(&sum->lateness, 0.95)),
			   lateness_column(dw_lane_lateness_percentile(&sum->lateness, 0.99)),
			   lateness_column(dw_lane_lateness_percentile(&sum->lateness, 1)));
}

/* Returns the sums of the queue of this row; NULL if it has no sums, or the user may not see it. */
static QueueSum *
visible_sum(Relation rel, HeapTuple tuple, QueueSum *sums, int n)
{
	if (!has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) &&
		!has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_DATA) &&
		!dw_queue_is_usable(rel, tuple))
		return NULL;
	return find_sum(sums, n, DatumGetInt16(dw_row_column(rel, tuple, Anum_queue_id)));
}

/* The view "queues": the declared queues of this database that have a place in shared memory. */
Datum
dw_get_queues(PG_FUNCTION_ARGS)
{
	DwDatabase *db = dw_view_begin(fcinfo);
	QueueSum   *sums;
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			n;

	if (db == NULL)
		return (Datum) 0;
	sums = sum_queues(db, &n);
	count_leased(sums, n);
	rel = table_open(dw_catalog()->queue, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		QueueSum   *sum = visible_sum(rel, tuple, sums, n);

		if (sum != NULL)
			put_queue(fcinfo, sum);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return (Datum) 0;
}

/*
 * Returns the due time before which the tasks of all lanes are in memory; DW_NEVER if all tasks are
 * in memory, PG_INT64_MIN if the time is not known.
 */
static TimestampTz
lowest_horizon(DwDatabase *db)
{
	TimestampTz lowest = DW_NEVER;

	for (int32 i = dw_lane_after(db, -1); i != DW_NO_LANE; i = dw_lane_after(db, i))
		lowest = Min(lowest, horizon_of(&dw_lanes[i]));
	return lowest;
}

/* Counts all executors of a database, and the busy executors.  Takes no lock. */
static void
count_executors(DwDatabase *db, int32 *executors, int32 *running)
{
	*executors = *running = 0;
	dw_each_executor(e)
	{
		if (e->state == DW_EXECUTOR_FREE || e->database != db->oid)
			continue;
		(*executors)++;
		if (e->state == DW_EXECUTOR_BUSY)
			(*running)++;
	}
}

/* Counts the lanes with due tasks whose owners can have no executor now. */
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
			n += owner->turns.n;
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
	if (dw_wings_hold(false))
		return "held";
	if (db == NULL)
		return dw_database_unused() != NULL ? "stopped" : "no place";
	/* if the timer rests, the launcher must start a timer */
	if (dw_process_silent_for(timer_rests(db) ? &dw_shared->launcher : &db->timer) > 0)
		return "silent";
	if (db->timer.state == DW_PROCESS_RUNNING || timer_rests(db))
	{
		/* a timer ends its rest after a change of one of these settings */
		if (dw_database_is_disabled(db))
			return "disabled";
		if (db->paused)
			return "paused";
	}
	if (timer_rests(db))
		return dw_rest_until(&db->timer_news) == DW_AWAKE ? "starting" : "resting";
	return states[db->timer.state];
}

/*
 * Returns the problem that prevents a stopped database from having a timer; NULL: no problem.
 * Without a timer, no process notes problems.
 */
static const char *
problem_of_service(const char *state)
{
	if (strcmp(state, "stopped") != 0)
		return NULL;
	if (!dw_process_is_there(&dw_shared->launcher))
		return "the launcher is not running: \"max_worker_processes\" may be too low";
	if (dw_process_silent_for(&dw_shared->launcher) > 0)
		return "the launcher does not answer";
	if (pg_atomic_read_u32(&dw_shared->timer_refused) != 0)
		return DW_TIMER_REFUSED;
	return NULL;
}

/*
 * Returns a column with kind and pid of silent processes: the launcher and, if db is not NULL, the
 * processes of the database.  The column is null if all processes answer.
 */
static DwColumn
silent_column(DwDatabase *db)
{
	StringInfoData text;

	initStringInfo(&text);
	for (DwDatabase *of = db;; of = NULL)
	{
		uint32		position = 0;
		DwSilent	silent;

		while (dw_silent_next(of, &position, &silent))
			appendStringInfo(&text, "%s%s %d", text.len > 0 ? ", " : "", silent.kind, (int) silent.pid);
		if (of == NULL)
			break;
	}
	return dw_text_or_null(text.len > 0 ? text.data : NULL);
}

/*
 * Adds a database without a place to the result of the view "status".  problem: the reason why the
 * database is not served, or NULL.  at: the time since which the reason is known, or 0.
 */
static void
put_status_without_place(FunctionCallInfo fcinfo, Oid database, const char *state,
						 const char *problem, TimestampTz at)
{
	dw_put_row(fcinfo, dw_name_or_null(get_database_name(database)), dw_text_or_null(state),
			   DW_NULL(INT4OID), DW_NULL(TIMESTAMPTZOID), DW_NULL(INT4OID), DW_NULL(INT8OID),
			   DW_NULL(INT8OID), DW_NULL(INT4OID), DW_NULL(INT4OID), DW_NULL(INT4OID),
			   DW_NULL(INT8OID), DW_NULL(INT8OID), DW_NULL(FLOAT8OID), DW_NULL(FLOAT8OID),
			   DW_NULL(FLOAT8OID), DW_NULL(FLOAT8OID), DW_NULL(INT8OID), DW_NULL(INT8OID),
			   dw_text_or_null(problem), dw_null_if(at == 0, DW_TIME(at)),
			   DW_NULL(BOOLOID), DW_NULL(INT8OID), DW_NULL(INT8OID), DW_NULL(TIMESTAMPTZOID),
			   silent_column(NULL));
}

/*
 * Adds the database, if any, that the launcher cannot look into: it may have the extension, and
 * tasks.
 */
static void
put_status_unlooked(FunctionCallInfo fcinfo)
{
	Oid			oid = pg_atomic_read_u32(&dw_shared->unlooked);
	bool		has_place;

	if (!OidIsValid(oid) || oid == MyDatabaseId ||
		!has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) || get_database_name(oid) == NULL)
		return;
	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	has_place = dw_database_find(oid) != NULL;
	LWLockRelease(dw_shared->table_lock);
	if (!has_place)
		put_status_without_place(fcinfo, oid, "stopped", DW_LOOK_REFUSED,
								 (TimestampTz) pg_atomic_read_u64(&dw_shared->unlooked_at));
}

/* Adds a database with a place to the result of the view "status". */
static void
put_status(FunctionCallInfo fcinfo, DwDatabase *db)
{
	char		problem[sizeof(db->problem.text)];
	TimestampTz problem_at;
	char	   *name = get_database_name(db->oid);
	int32		executors;
	int32		running;
	DwRing		shape = ring_shape();
	TimestampTz until = dw_rest_until(&db->timer_news);
	const char *state = service_state(db);
	bool		rests = timer_rests(db) && until != DW_AWAKE;
	bool		unshown;

	if (name == NULL)
		return;
	/* only readers of all tasks see the texts of errors in a problem */
	problem_at = dw_problem_read(&db->problem, problem, sizeof(problem),
								 has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_DATA));
	/* a problem names tasks and roles */
	unshown = problem[0] == '\0' || !has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	count_executors(db, &executors, &running);

	dw_put_row(fcinfo, dw_name_or_null(name), dw_text_or_null(state),
			   DW_INT4(dw_ring_index(&shape, shape.current_tick)),
			   horizon_column(lowest_horizon(db)), DW_INT4(db->nlanes),
			   DW_INT8(pg_atomic_read_u64(&db->near)), DW_INT8(pg_atomic_read_u64(&db->ready)),
			   DW_INT4(running), DW_INT4(executors), DW_INT4(count_parked(db)),
			   DW_INT8(dw_counted(&db->counters, DW_DONE)),
			   DW_INT8(dw_counted(&db->counters, DW_FAILED)),
			   lateness_column(dw_lateness_percentile(&db->lateness, 0.5)),
			   lateness_column(dw_lateness_percentile(&db->lateness, 0.95)),
			   lateness_column(dw_lateness_percentile(&db->lateness, 0.99)),
			   lateness_column(dw_lateness_percentile(&db->lateness, 1)),
			   DW_INT8((int64) db->account.used * sizeof(DwChunk)),
			   DW_INT8((int64) db->account.quota * sizeof(DwChunk)),
			   dw_text_or_null(unshown ? problem_of_service(state) : problem),
			   dw_null_if(unshown, DW_TIME(problem_at)),
			   DW_BOOL(dw_unarmed_met(&db->timer_news)),
			   DW_INT8(dw_counted(&db->counters, DW_RETRIED)),
			   DW_INT8(dw_counted(&db->counters, DW_SKIPPED)),
			   dw_null_if(!rests || until == DW_NEVER, DW_TIME(until)), silent_column(db));
}

/* The view "status": the databases that the current user may see. */
Datum
dw_get_status(PG_FUNCTION_ARGS)
{
	bool		has_place = dw_view_begin(fcinfo) != NULL;

	dw_each_database(db)
		if (dw_may_see_database(db))
			put_status(fcinfo, db);
	if (!has_place)
	{
		const char *state = service_state(NULL);

		put_status_without_place(fcinfo, MyDatabaseId, state, problem_of_service(state), 0);
	}
	put_status_unlooked(fcinfo);
	return (Datum) 0;
}

/*
 * SQL function: returns true if an executor is running the task outside of a transaction.  Then its
 * row is in failed_task.  Returns false if the current user may not see the task.
 */
Datum
dw_is_running(PG_FUNCTION_ARGS)
{
	Oid			owner;

	dw_require_shared();
	PG_RETURN_BOOL(dw_executor_runs_autonomous(PG_GETARG_INT64(0), &owner) &&
				   dw_may_read(owner));
}
