/*-------------------------------------------------------------------------
 *
 * views.c
 *	  Functions behind the views: what is in memory, what runs, how late.
 *
 * Run by backends.  They copy what they show under the lock that protects it
 * and make rows of it afterwards.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lanes.h"
#include "miscadmin.h"
#include "settings.h"
#include "shared.h"
#include "stats.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(dw_place);
PG_FUNCTION_INFO_V1(dw_get_running);
PG_FUNCTION_INFO_V1(dw_get_ring);
PG_FUNCTION_INFO_V1(dw_get_status);

/* What a ring is like just now, whether this database has one or not. */
static DwRing
ring_shape(void)
{
	DwRing		shape = {.nslots = dw_slots, .tick_us = dw_tick_us()};

	shape.current_tick = dw_ring_tick(&shape, dw_now());
	return shape;
}

Datum
dw_place(PG_FUNCTION_ARGS)
{
	TimestampTz due = PG_GETARG_TIMESTAMPTZ(0);
	DwRing		shape = ring_shape();
	TupleDesc	desc;
	Datum		values[2];
	bool		nulls[2] = {0};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	values[0] = Int32GetDatum(dw_ring_index(&shape, dw_ring_tick(&shape, due)));
	values[1] = Int64GetDatum(dw_ring_cycle(&shape, due));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

Datum
dw_get_running(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	dw_require_shared();
	InitMaterializedSRF(fcinfo, 0);
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
		if (!has_privs_of_role(GetUserId(), e.owner) &&
			!has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
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

/* This database's place, or NULL if it is not served. */
static DwDatabase *
find_my_database(void)
{
	DwDatabase *db;

	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	db = dw_database_find(MyDatabaseId);
	LWLockRelease(dw_shared->table_lock);
	return db;
}

Datum
dw_get_ring(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	DwDatabase *db;
	DwSlot	   *slots;
	DwRing	   *ring;
	DwRing		shape = ring_shape();
	int32		current = dw_ring_index(&shape, shape.current_tick);

	dw_require_shared();
	InitMaterializedSRF(fcinfo, 0);
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

static void
set_lateness(Datum *value, bool *isnull, double us)
{
	*isnull = us < 0;
	*value = Float8GetDatum(us / 1000.0);
}

/* The lowest horizon of a database's lanes: DW_NEVER if there are none. */
static TimestampTz
lowest_horizon(DwDatabase *db)
{
	TimestampTz lowest = DW_NEVER;

	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	for (int32 i = db->lanes; i != DW_NO_LANE; i = dw_lanes[i].next)
		if (dw_atomic_read(&dw_lanes[i].next_far) != DW_NEVER)
			lowest = Min(lowest, dw_atomic_read(&dw_lanes[i].horizon));
	LWLockRelease(dw_shared->table_lock);
	return lowest;
}

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

static int32
count_parked(DwDatabase *db)
{
	TimestampTz now = dw_now();
	int32		n = 0;

	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	for (int32 i = db->ready_head; i != DW_NO_LANE; i = dw_lanes[i].ready_next)
		if (dw_lanes[i].retry_at > now)
			n++;
	LWLockRelease(dw_ready_lock(db));
	return n;
}

static void
put_status(DwDatabase *db, ReturnSetInfo *result)
{
	static const char *const states[] = {"stopped", "starting", "running"};
	char		problem[sizeof(db->last_problem)];
	TimestampTz problem_at;
	TimestampTz horizon = lowest_horizon(db);
	char	   *name = get_database_name(db->oid);
	int32		executors;
	int32		running;
	Datum		values[21] = {0};
	bool		nulls[21] = {0};
	NameData	database;
	DwRing		shape = ring_shape();

	if (name == NULL)
		return;
	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	strlcpy(problem, db->last_problem, sizeof(problem));
	problem_at = db->last_problem_at;
	LWLockRelease(dw_ready_lock(db));
	count_executors(db, &executors, &running);

	namestrcpy(&database, name);
	values[0] = NameGetDatum(&database);
	values[1] = CStringGetTextDatum(states[db->timer_state]);
	values[2] = Int32GetDatum(dw_ring_index(&shape, shape.current_tick));
	values[3] = TimestampTzGetDatum(Max(horizon, MIN_TIMESTAMP));
	nulls[3] = horizon == DW_NEVER;
	values[4] = Int32GetDatum(db->nlanes);
	values[5] = Int64GetDatum(pg_atomic_read_u64(&db->near));
	values[6] = Int64GetDatum(pg_atomic_read_u64(&db->ready));
	values[7] = Int32GetDatum(running);
	values[8] = Int32GetDatum(executors);
	values[9] = Int32GetDatum(count_parked(db));
	values[10] = Int64GetDatum(pg_atomic_read_u64(&db->done));
	values[11] = Int64GetDatum(pg_atomic_read_u64(&db->failed));
	set_lateness(&values[12], &nulls[12], dw_lateness_percentile(db, 0.5));
	set_lateness(&values[13], &nulls[13], dw_lateness_percentile(db, 0.95));
	set_lateness(&values[14], &nulls[14], dw_lateness_percentile(db, 0.99));
	set_lateness(&values[15], &nulls[15], dw_lateness_percentile(db, 1));
	values[16] = Int64GetDatum((int64) db->account.used * sizeof(DwChunk));
	values[17] = Int64GetDatum((int64) db->account.quota * sizeof(DwChunk));
	/* it may quote a task */
	nulls[18] = nulls[19] = problem[0] == '\0' ||
		!has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	if (!nulls[18])
	{
		values[18] = CStringGetTextDatum(problem);
		values[19] = TimestampTzGetDatum(problem_at);
	}
	values[20] = BoolGetDatum((pg_atomic_read_u32(&db->unarmed) & DW_UNARMED_MET) != 0);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

Datum
dw_get_status(PG_FUNCTION_ARGS)
{
	dw_require_shared();
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < dw_max_databases; i++)
		if (dw_database(i)->oid != InvalidOid)
			put_status(dw_database(i), (ReturnSetInfo *) fcinfo->resultinfo);
	return (Datum) 0;
}
