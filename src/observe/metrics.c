/*-------------------------------------------------------------------------
 *
 * metrics.c
 *	  The views "waiting", "lateness" and "silent": due tasks that wait, how late tasks began, and
 *	  processes that do not answer.
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

#include "fmgr.h"
#include "funcapi.h"
#include "utils/float.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/settings.h"
#include "../base/signature.h"
#include "../ring/lane_heap.h"
#include "../ring/ring.h"
#include "../shmem/groups.h"
#include "../shmem/queue_limits.h"
#include "../shmem/shared.h"
#include "../shmem/silence.h"
#include "../shmem/stats.h"
#include "../shmem/suspects.h"
#include "views.h"

PG_FUNCTION_INFO_V1(dw_get_waiting);
PG_FUNCTION_INFO_V1(dw_get_lateness);
PG_FUNCTION_INFO_V1(dw_get_silent);

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

/*---- The view "waiting" ----*/

/*
 * The rows of a database: the states of lanes that dw_lane_state() knows, and one for
 * tasks that are suspected of having crashed the server, which belong to no lane here.
 */
static const char *const states[] = {
	"ready", "running", "limited", "blocked", "paused", "unreceived", "suspected"
};

#define SUSPECTED	(lengthof(states) - 1)

/* The sums over all lanes of a state. */
typedef struct Waiting
{
	int64		lanes;
	int64		tasks;
	TimestampTz first_due;
} Waiting;

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
		state = dw_lane_state(db, lane, dw_lane_owner(lane),
							  dw_lane_limit(lane, now, &room, &until), now, &reason);
		for (int i = 0; i < SUSPECTED; i++)
			if (strcmp(states[i], state) == 0)
			{
				all[i].lanes++;
				all[i].tasks += dw_ready_count(lane);
				all[i].first_due = Min(all[i].first_due, dw_lane_first_due(lane));
			}
	}
	LWLockRelease(dw_ready_lock(db));
}

/* Fills the sums for all states; the index is that of states. */
static void
collect_waiting(DwDatabase *db, Waiting *all)
{
	int64		suspects[DW_MAX_SUSPECTS];

	for (int i = 0; i < (int) lengthof(states); i++)
	{
		all[i].lanes = all[i].tasks = 0;
		all[i].first_due = DW_NEVER;
	}
	for (int32 i = dw_lane_after(db, -1); i != DW_NO_LANE; i = dw_lane_after(db, i))
		count_waiting(db, &dw_lanes[i], all);
	all[SUSPECTED].tasks = dw_crashes_list(db->oid, DT_NOEND, suspects);
}

/* The view "waiting": due tasks of each database, by the state of their lane. */
Datum
dw_get_waiting(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
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
			dw_put_row(fcinfo, dw_name_or_null(name), dw_text_or_null(states[j]),
					   dw_null_if(j == SUSPECTED, DW_INT8(all[j].lanes)), DW_INT8(all[j].tasks),
					   dw_null_if(all[j].first_due == DW_NEVER, DW_TIME(all[j].first_due)));
	}
	return (Datum) 0;
}

/*---- The view "lateness" ----*/

/* The view "lateness": a cumulative histogram for each database. */
Datum
dw_get_lateness(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
	dw_require_shared();
	for (int i = 0; i < dw_max_databases; i++)
	{
		DwDatabase *db = dw_database(i);
		char	   *name = visible_name(db);
		uint64		below = 0;

		if (name == NULL)
			continue;
		/* tasks are counted meanwhile; the numbers must not fall from one bound to the next */
		for (int bit = LOWEST_BIT; bit <= HIGHEST_BIT + 1; bit++)
		{
			bool		all = bit > HIGHEST_BIT;
			uint64		bound = all ? PG_UINT64_MAX : UINT64CONST(1) << bit;

			below = Max(below, dw_lateness_below(&db->lateness, bound));
			dw_put_row(fcinfo, dw_name_or_null(name),
					   DW_FLOAT8(all ? get_float8_infinity() : (double) bound / USECS_PER_SEC),
					   DW_INT8(below));
		}
	}
	return (Datum) 0;
}

/*---- The view "silent" ----*/

/* Adds a row for each process of a database, or with NULL for the launcher, that does not answer. */
static void
put_silent(FunctionCallInfo fcinfo, DwDatabase *db, const char *name)
{
	uint32		position = 0;
	DwSilent	silent;

	while (dw_silent_next(db, &position, &silent))
		dw_put_row(fcinfo, dw_name_or_null(name), dw_text_or_null(silent.kind),
				   dw_null_if(silent.pid == 0, DW_INT4(silent.pid)), DW_TIME(dw_now() - silent.silent_for));
}

/* The view "silent": processes that do not answer. */
Datum
dw_get_silent(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
	dw_require_shared();
	put_silent(fcinfo, NULL, NULL);
	for (int i = 0; i < dw_max_databases; i++)
	{
		char	   *name = visible_name(dw_database(i));

		if (name != NULL)
			put_silent(fcinfo, dw_database(i), name);
	}
	return (Datum) 0;
}
