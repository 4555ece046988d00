/*-------------------------------------------------------------------------
 *
 * forecast.c
 *	  When tasks will be due: how many in which period, and the next one.
 *
 * Run by backends.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "../base/clock.h"
#include "../base/signature.h"
#include "../rows/catalog.h"
#include "../rows/lane_scan.h"
#include "../rows/task_rows.h"
#include "../shmem/shared.h"
#include "../task/marks.h"
#include "due_counts.h"
#include "views.h"

#define MAX_BOUNDS	500
/* rows that nobody runs, before the one that is looked for */
#define MAX_HIDDEN	100000

PG_FUNCTION_INFO_V1(dw_count_due);
PG_FUNCTION_INFO_V1(dw_next_due);

/* The bounds of the array, which are ascending. */
static TimestampTz *
read_bounds(ArrayType *array, int *n)
{
	Datum	   *values;
	bool	   *nulls;
	TimestampTz *bounds;

	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("bounds must be a one-dimensional array")));
	deconstruct_array(array, TIMESTAMPTZOID, sizeof(TimestampTz), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE,
					  &values, &nulls, n);
	if (*n > MAX_BOUNDS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("there can be %d bounds at most", MAX_BOUNDS)));
	bounds = palloc(sizeof(TimestampTz) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("bounds must not be null")));
		bounds[i] = DatumGetTimestampTz(values[i]);
		if (i > 0 && bounds[i] <= bounds[i - 1])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("bounds must be in ascending order")));
	}
	return bounds;
}

Datum
dw_count_due(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {TIMESTAMPTZARRAYOID};
	static const Oid columns[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, BOOLOID};
	ReturnSetInfo *result;
	TimestampTz *bounds;
	DwDueCount *counts;
	int			n;

	dw_require_signature(fcinfo, RECORDOID, lengthof(types), types);
	dw_require_shared();
	result = dw_begin_rows(fcinfo, lengthof(columns), columns);
	bounds = read_bounds(PG_GETARG_ARRAYTYPE_P(0), &n);
	counts = dw_due_counts(bounds, n);
	for (int i = 0; i <= n; i++)
	{
		Datum		values[4] = {0};
		bool		nulls[4] = {i == 0, i == n};

		if (i > 0)
			values[0] = TimestampTzGetDatum(bounds[i - 1]);
		if (i < n)
			values[1] = TimestampTzGetDatum(bounds[i]);
		values[2] = Int64GetDatum(counts[i].tasks);
		values[3] = BoolGetDatum(counts[i].exact);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* Is the row that was just read one of a cancelled task? */
static bool
is_cancelled(Relation rel, DwLaneScan *scan)
{
	HeapTuple	tuple = dw_lane_scan_tuple(scan);
	bool		cancelled = dw_marks_hit(rel, tuple);

	heap_freetuple(tuple);
	return cancelled;
}

/*
 * The first due time from then on of the tasks that the user may know of;
 * DW_NEVER if there is none.  A skip scan: one place for each lane.  Rows that
 * are not seen, or cancelled, have to be stepped over one by one.  Those who
 * look do so every few seconds, so after very many of them we leave it at that.
 */
static TimestampTz
first_due(Relation rel, TimestampTz from)
{
	DwTaskKey	reached = {
		.origin = PG_INT64_MIN, .queue = PG_INT16_MIN, .priority = PG_INT16_MIN,
		.due = PG_INT64_MIN, .id = PG_INT64_MIN,
	};
	DwLaneScan *scan = dw_lanes_scan_begin(rel, &reached, GetActiveSnapshot());
	TimestampTz first = DW_NEVER;
	DwTaskKey	key;
	bool		visible;
	int			nmarks;
	int			hidden = 0;

	(void) dw_marks_anew(&nmarks);
	if (nmarks == 0)
		dw_lane_scan_keys_only(scan);
	while (dw_lane_scan_step(scan, &key, &visible))
	{
		bool		wanted = key.origin == dw_origin_stamp() && key.due < first &&
			dw_may_watch(key.owner);

		CHECK_FOR_INTERRUPTS();
		if (wanted && key.due >= from && hidden < MAX_HIDDEN &&
			(!visible || (nmarks > 0 && is_cancelled(rel, scan))))
		{
			hidden++;
			continue;
		}
		reached = key;
		if (wanted && key.due < from)
		{
			reached.due = from;
			reached.id = PG_INT64_MIN;
		}
		else
		{
			if (wanted)
				first = key.due;
			reached.due = reached.id = PG_INT64_MAX;
		}
		dw_lanes_scan_seek(scan, &reached);
	}
	dw_lane_scan_end(scan);
	return first;
}

Datum
dw_next_due(PG_FUNCTION_ARGS)
{
	Relation	rel;
	TimestampTz first;

	dw_require_signature(fcinfo, TIMESTAMPTZOID, 0, NULL);
	dw_require_shared();
	rel = table_open(dw_catalog()->task, AccessShareLock);
	first = first_due(rel, dw_now());
	table_close(rel, AccessShareLock);
	if (first == DW_NEVER)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(first);
}
