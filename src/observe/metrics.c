/*-------------------------------------------------------------------------
 *
 * metrics.c
 *	  The views "waiting", "lateness" and "silent": due tasks that wait, lateness of tasks, and
 *	  processes that do not answer.
 *
 * Run by sessions.  The views are for monitoring programs that read them every few seconds.  They
 * only read shared memory, and have few rows for each database, for any number of tasks, owners and
 * queues.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/extension.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "utils/float.h"
#include "utils/tuplestore.h"

#include "../base/compat.h"
#include "../base/settings.h"
#include "../base/signature.h"
#include "../shmem/groups.h"
#include "views.h"

PG_FUNCTION_INFO_V1(dw_get_waiting);
PG_FUNCTION_INFO_V1(dw_get_lateness);
PG_FUNCTION_INFO_V1(dw_get_silent);

/* The view "lateness" has powers of two as bounds: from 2^6 us (64 us) to 2^37 us (38 hours). */
#define LOWEST_BIT	6
#define HIGHEST_BIT	37

/* Returns the name of a database; NULL if the database has no place, or the user may not see it. */
static char *
visible_name(const DwDatabase *db)
{
	Oid			oid = db->oid;

	return OidIsValid(oid) && dw_may_see_database(db) ? get_database_name(oid) : NULL;
}

/*---- The view "waiting" ----*/

/*
 * The rows of a database: one for each state of a lane, see dw_lane_state(), and one for tasks that
 * are suspected of having crashed the server.  Suspected tasks do not count in their lanes here.
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

/* Fills in the sums for all states, in the order of "states". */
static void
collect_waiting(DwDatabase *db, Waiting *all)
{
	int64		suspects[DW_MAX_NOTES];

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
	dw_each_database(db)
	{
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
	dw_each_database(db)
	{
		char	   *name = visible_name(db);
		uint64		below = 0;

		if (name == NULL)
			continue;
		/* counts grow meanwhile, but the numbers must not decrease from bound to bound */
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

/*
 * Adds a row for each process of a database that does not answer; if db is NULL, for the launcher.
 */
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
	dw_each_database(db)
	{
		char	   *name = visible_name(db);

		if (name != NULL)
			put_silent(fcinfo, db, name);
	}
	return (Datum) 0;
}

/*---- The figures of all nodes of Citus, for the view delay_wheel.nodes ----*/

PG_FUNCTION_INFO_V1(dw_get_nodes);

/* Asks a node for its figures, which the node returns as json for the view. */
#define FIGURES \
	"SELECT pg_catalog.row_to_json(n)::text FROM (" \
	"SELECT s.*, c.pending, f.count AS failed" \
	" FROM (SELECT state, ready, running, done, lateness_p50, lateness_p95, lateness_max, last_problem" \
	" FROM delay_wheel_internal.get_status() WHERE database OPERATOR(pg_catalog.=) pg_catalog.current_database()) s," \
	" (SELECT pg_catalog.sum(tasks) AS pending FROM delay_wheel_internal.count_due(ARRAY[]::timestamptz[])) c," \
	" (SELECT pg_catalog.count(*) FROM delay_wheel.failed) f) n"

/*
 * SQL function delay_wheel_internal.get_nodes(): returns a row for each node, with its address,
 * and its figures as json or its error.  Queries each node as the session's user.  Without Citus
 * returns one row without an address.
 */
Datum
dw_get_nodes(PG_FUNCTION_ARGS)
{
	static const char *const ask_all =
		"SELECT COALESCE(n.nodename || ':' || n.nodeport, r.nodeid::text),"
		" CASE WHEN r.success THEN r.result END, CASE WHEN NOT r.success THEN r.result END"
		" FROM pg_catalog.run_command_on_all_nodes('" FIGURES "') r"
		"	LEFT JOIN pg_catalog.pg_dist_node n ON n.nodeid = r.nodeid";
	static const char *const ask_this = "SELECT NULL::text, (" FIGURES "), NULL::text";
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	int			nest_level;

	InitMaterializedSRF(fcinfo, 0);
	nest_level = dw_own_sql_begin();
	if (SPI_execute(OidIsValid(get_extension_oid("citus", true)) ? ask_all : ask_this, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not ask the nodes");
	for (uint64 i = 0; i < SPI_processed; i++)
		tuplestore_puttuple(result->setResult, SPI_tuptable->vals[i]);
	dw_own_sql_end(nest_level);
	return (Datum) 0;
}

/*---- A JSON document made readable for its client ----*/

PG_FUNCTION_INFO_V1(dw_readable);

/*
 * SQL function: replaces each byte that is not valid in the client's encoding by a question mark.
 * The structure of the document is ASCII, so it does not change.  README.md explains why the
 * document may have such bytes; a function that shortens a text may also cut a character in two.
 * Works even if the library is not in shared_preload_libraries.
 */
Datum
dw_readable(PG_FUNCTION_ARGS)
{
	int			encoding = pg_get_client_encoding();
	struct varlena *document;
	char	   *c;
	int			left;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	/*
	 * in databases with another encoding all texts are valid; a client with SQL_ASCII accepts all
	 * bytes
	 */
	if (GetDatabaseEncoding() != PG_SQL_ASCII || encoding == PG_SQL_ASCII)
		PG_RETURN_DATUM(PG_GETARG_DATUM(0));

	document = PG_DETOAST_DATUM_COPY(PG_GETARG_DATUM(0));
	c = VARDATA(document);
	left = VARSIZE(document) - VARHDRSZ;
	while (left > 0)
	{
		int			length = 1;

		if (IS_HIGHBIT_SET(*c))
		{
			/*
			 * In encodings that only clients can have, the second byte of a character may be ASCII,
			 * such as the backslash before a quote.  For these encodings, replace each byte that is
			 * not ASCII.
			 */
			length = PG_VALID_BE_ENCODING(encoding) ?
				pg_encoding_verifymbchar(encoding, c, left) : -1;
			if (length < 0)
			{
				*c = '?';
				length = 1;
			}
		}
		c += length;
		left -= length;
	}
	PG_RETURN_POINTER(document);
}
