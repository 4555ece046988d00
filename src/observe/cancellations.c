/*-------------------------------------------------------------------------
 *
 * cancellations.c
 *	  The view "cancellations".
 *
 * Run by sessions.  The view shows marks, which are rows that cancel many tasks at once
 * (task/marks.c).  The sweeper removes a mark after its tasks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/snapmgr.h"

#include "../base/compat.h"
#include "../base/signature.h"
#include "../task/task.h"
#include "views.h"

PG_FUNCTION_INFO_V1(dw_get_cancellations);

/* The state of this database's sweeper. */
typedef struct SweepState
{
	bool		runs;
	bool		waits;			/* waits for transactions that may commit cancelled tasks */
	Datum		pids;			/* array of some of their pids; 0: a prepared transaction */
} SweepState;

/*
 * Returns the tasks that executors of this database are running, for dw_mark_hits().  Sets *n to
 * the number of tasks.
 *
 * An executor that runs a task has either deleted the row, which other processes see until the
 * commit, or notes that it keeps the row.  An executor that only examines a row does not do this.
 */
static DwMarkable *
running_tasks(int *n)
{
	DwMarkable *tasks = palloc(dw_shared->nexecutors * sizeof(DwMarkable));
	Relation	rel = table_open(dw_catalog()->task, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

	*n = 0;
	dw_each_executor(place)
	{
		DwExecutor	e;
		TransactionId xid;
		bool		keeps;
		HeapTuple	tuple;

		LWLockAcquire(dw_shared->table_lock, LW_SHARED);
		memcpy(&e, place, sizeof(DwExecutor));
		LWLockRelease(dw_shared->table_lock);
		xid = pg_atomic_read_u32(&e.xid);
		keeps = pg_atomic_read_u64(&e.keeps) != 0;
		if (e.state != DW_EXECUTOR_BUSY || e.database != MyDatabaseId ||
			(!keeps && !TransactionIdIsValid(xid)))
			continue;
		tuple = dw_task_find(rel, e.current.id, snapshot);
		if (tuple != NULL &&
			(keeps ||
			 (!(tuple->t_data->t_infomask & HEAP_XMAX_INVALID) &&
			  TransactionIdEquals(HeapTupleHeaderGetUpdateXid(tuple->t_data), xid))))
			dw_markable(rel, tuple, &tasks[(*n)++]);
	}
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return tasks;
}

static SweepState
sweep_state(void)
{
	SweepState	state = {0};
	Datum		pids[DW_SWEEP_WAITS];
	int			npids = 0;
	DwDatabase *db;

	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	db = dw_database_find(MyDatabaseId);
	if (db != NULL && db->sweeper.state == DW_PROCESS_RUNNING)
	{
		state.runs = true;
		state.waits = db->sweeper_news.waits;
		for (; npids < db->sweeper_news.npids; npids++)
			pids[npids] = Int32GetDatum(db->sweeper_news.pids[npids]);
	}
	LWLockRelease(dw_shared->table_lock);
	state.pids = PointerGetDatum(construct_array(pids, npids, INT4OID, sizeof(int32), true,
												 TYPALIGN_INT));
	return state;
}

/*
 * Adds a mark to the result of the view, if the current user may see the mark.  running: the number
 * of running tasks that the mark hits.
 */
static void
put_cancellation(FunctionCallInfo fcinfo, Relation rel, HeapTuple tuple, const SweepState *sweep,
				 int running)
{
	Datum	   *row;
	bool	   *nulls;
	bool		ours;
	const char *state;

	dw_deform(rel, tuple, &row, &nulls);
	if (!dw_may_watch(DatumGetObjectId(row[Anum_cancellation_made_by - 1])))
		return;
	/* a tag is a text of a user, so only readers of the user's tasks may see it */
	nulls[Anum_cancellation_tag - 1] |= !dw_may_read(DatumGetObjectId(row[Anum_cancellation_made_by - 1]));
	ours = DatumGetInt64(row[Anum_cancellation_origin - 1]) == dw_origin_stamp();
	state = !ours ? "unarmed" : !sweep->runs ? "queued" : sweep->waits ? "waiting" : "sweeping";
	/* number of a column of the table that is shown unchanged */
#define SAME(type, name) \
	{type, row[Anum_cancellation_##name - 1], nulls[Anum_cancellation_##name - 1]}
	dw_put_row(fcinfo, SAME(INT8OID, id), SAME(TIMESTAMPTZOID, made_at), SAME(REGROLEOID, made_by),
			   SAME(REGROLEARRAYOID, owners), SAME(INT2OID, queue), SAME(TEXTOID, tag),
			   SAME(TIMESTAMPTZOID, due_from), SAME(TIMESTAMPTZOID, due_until),
			   SAME(INT8OID, removed), DW_INT4(running), dw_text_or_null(state),
			   {INT4ARRAYOID, sweep->pids, !ours || !sweep->waits});
#undef SAME
}

/* Returns the number of these tasks that a mark hits. */
static int
count_hits(int64 mark, const DwMarkable *tasks, int ntasks)
{
	int			n;
	const DwMark *marks = dw_marks(&n);
	int			hits = 0;

	for (int i = 0; i < n; i++)
		for (int j = 0; marks[i].id == mark && j < ntasks; j++)
			if (dw_mark_hits(&marks[i], &tasks[j]))
				hits++;
	return hits;
}

/* The view "cancellations": the marks of this database. */
Datum
dw_get_cancellations(PG_FUNCTION_ARGS)
{
	SweepState	sweep;
	DwMarkable *tasks;
	int			ntasks;
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;

	InitMaterializedSRF(fcinfo, 0);
	dw_require_shared();
	sweep = sweep_state();
	tasks = running_tasks(&ntasks);
	rel = table_open(dw_catalog()->cancellation, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		int64		id = DatumGetInt64(dw_row_column(rel, tuple, Anum_cancellation_id));

		put_cancellation(fcinfo, rel, tuple, &sweep, count_hits(id, tasks, ntasks));
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return (Datum) 0;
}
