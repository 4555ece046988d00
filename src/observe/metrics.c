/*-------------------------------------------------------------------------
 *
 * metrics.c
 *	  The views "waiting" and "lateness": due tasks that wait, and how late tasks began.
 *
 * Run by sessions.
 *
 * The views are for monitoring programs that look every few seconds.  They read shared
 * memory only, and have few rows for each database, however many tasks, owners and
 * queues there are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/float.h"

#include "../base/clock.h"
#include "../base/settings.h"
#include "../base/signature.h"
#include "../ring/ring.h"
#include "../shmem/queue_limits.h"
#include "../shmem/shared.h"
#include "../shmem/stats.h"
#include "../shmem/suspects.h"
#include "views.h"

PG_FUNCTION_INFO_V1(dw_get_waiting);
PG_FUNCTION_INFO_V1(dw_get_lateness);

/* The view "lateness" has powers of two as bounds: from 2^6 us (64 us) to 2^37 us (38 hours). */
#define LOWEST_BIT	6
#define HIGHEST_BIT	37

/* Returns the name of a database; NULL if it has no place, or the user may not see it. */
static char *
visible_name(const DwDatabase *db)
{
	Oid			oid = db->oid;

	return OidIsValid(oid) && dw_may_see_database(db) ? get_database_name(oid) : NULL;
}

static Datum
name_datum(const char *text)
{
	Name		name = palloc(NAMEDATALEN);

	namestrcpy(name, text);
	return NameGetDatum(name);
}

/*---- The view "waiting" ----*/

/*
 * The rows of a database: the states of lanes that dw_lane_state() knows, and one for
 * tasks that are suspected of having crashed the server, which belong to no lane here.
 */
static const char *const states[] = {
	"ready", "running", "limited", "blocked", "paused", "suspected"
};

#define SUSPECTED	(lengthof(states) - 1)

/* The sums over all lanes of a state. */
typedef struct Waiting
{
	int64		lanes;
	int64		tasks;
	TimestampTz first_due;
} Waiting;

/* Returns the due time of the lane's first due task.  Under the ready lock. */
static TimestampTz
first_in_line(const DwLane *lane)
{
	DwPosition	head = dw_list_head(dw_pool, &lane->ready);
	const DwEntry *first = dw_list_first(dw_pool, &head);

	return first != NULL ? first->due : lane->spare.due;
}

/* Adds a lane with due tasks to the sums of its state, if it still belongs to the database. */
static void
count_waiting(DwDatabase *db, const DwLane *lane, Waiting *all)
{
	TimestampTz now = dw_now();
	TimestampTz until;
	uint32		room;
	const char *reason;
	const char *state;

	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	if (lane->database == db->oid && dw_ready_count(lane) > 0)
	{
		state = dw_lane_state(lane, dw_lane_owner(lane), dw_lane_limit(lane, now, &room, &until),
							  now, &reason);
		for (int i = 0; i < SUSPECTED; i++)
			if (strcmp(states[i], state) == 0)
			{
				all[i].lanes++;
				all[i].tasks += dw_ready_count(lane);
				all[i].first_due = Min(all[i].first_due, first_in_line(lane));
			}
	}
	LWLockRelease(dw_ready_lock(db));
}

/* Fills the sums for all states; the index is that of states. */
static void
collect_waiting(DwDatabase *db, Waiting *all)
{
	int64		suspects[DW_MAX_SUSPECTS];
	int			n;
	int32	   *numbers = dw_list_lanes(db, &n);

	for (int i = 0; i < (int) lengthof(states); i++)
	{
		all[i].lanes = all[i].tasks = 0;
		all[i].first_due = DW_NEVER;
	}
	for (int i = 0; i < n; i++)
		count_waiting(db, &dw_lanes[numbers[i]], all);
	pfree(numbers);
	all[SUSPECTED].tasks = dw_crashes_list(db->oid, DT_NOEND, suspects);
}

/* The view "waiting": due tasks of each database, by the state of their lane. */
Datum
dw_get_waiting(PG_FUNCTION_ARGS)
{
	static const Oid columns[] = {NAMEOID, TEXTOID, INT8OID, INT8OID, TIMESTAMPTZOID};
	ReturnSetInfo *result = dw_begin_rows(fcinfo, lengthof(columns), columns);

	dw_require_shared();
	for (int i = 0; i < dw_max_databases; i++)
	{
		DwDatabase *db = dw_database(i);
		char	   *name = visible_name(db);
		Waiting		all[lengthof(states)];

		if (name == NULL)
			continue;
		collect_waiting(db, all);
		for (int j = 0; j < (int) lengthof(states); j++)
		{
			Datum		values[lengthof(columns)];
			bool		nulls[lengthof(columns)] = {0};

			values[0] = name_datum(name);
			values[1] = CStringGetTextDatum(states[j]);
			values[2] = Int64GetDatum(all[j].lanes);
			nulls[2] = j == SUSPECTED;
			values[3] = Int64GetDatum(all[j].tasks);
			values[4] = TimestampTzGetDatum(all[j].first_due);
			nulls[4] = all[j].first_due == DW_NEVER;
			tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
		}
	}
	return (Datum) 0;
}

/*---- The view "lateness" ----*/

/* Adds a row to the result: tasks that began less than "below" seconds after their due time. */
static void
put_lateness(ReturnSetInfo *result, const char *name, double below, uint64 tasks)
{
	Datum		values[3];
	bool		nulls[3] = {0};

	values[0] = name_datum(name);
	values[1] = Float8GetDatum(below);
	values[2] = Int64GetDatum((int64) tasks);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* The view "lateness": a cumulative histogram for each database. */
Datum
dw_get_lateness(PG_FUNCTION_ARGS)
{
	static const Oid columns[] = {NAMEOID, FLOAT8OID, INT8OID};
	ReturnSetInfo *result = dw_begin_rows(fcinfo, lengthof(columns), columns);

	dw_require_shared();
	for (int i = 0; i < dw_max_databases; i++)
	{
		DwDatabase *db = dw_database(i);
		char	   *name = visible_name(db);
		uint64		below = 0;

		if (name == NULL)
			continue;
		/* tasks are counted meanwhile; the numbers must not fall from one bound to the next */
		for (int bit = LOWEST_BIT; bit <= HIGHEST_BIT; bit++)
		{
			below = Max(below, dw_lateness_below(&db->lateness, UINT64CONST(1) << bit));
			put_lateness(result, name, (double) (UINT64CONST(1) << bit) / USECS_PER_SEC, below);
		}
		put_lateness(result, name, get_float8_infinity(),
					 Max(below, dw_lateness_below(&db->lateness, PG_UINT64_MAX)));
	}
	return (Datum) 0;
}
