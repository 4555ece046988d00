/*-------------------------------------------------------------------------
 *
 * progress_view.c
 *	  The views "progress" and "cancellations".
 *
 * Run by sessions.
 *
 * "progress" shows the work of timers and sweepers, as they publish it in shared memory.
 * "cancellations" shows the marks: rows that cancel many tasks at once (task/marks.c),
 * until the sweeper has removed these tasks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "datatype/timestamp.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/spin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "../base/clock.h"
#include "../base/settings.h"
#include "../base/signature.h"
#include "../ring/ring.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/places.h"
#include "../shmem/progress.h"
#include "../shmem/shared.h"
#include "../task/marks.h"

PG_FUNCTION_INFO_V1(dw_get_cancellations);
PG_FUNCTION_INFO_V1(dw_get_progress);

/* Columns of the view "progress" */
#define PROGRESS_COLUMNS	14

/* The state of this database's sweeper. */
typedef struct SweepState
{
	bool		runs;
	bool		waits;			/* for transactions that may yet bring cancelled tasks */
	int			npids;
	Datum		pids[DW_SWEEP_WAITS];	/* of some of these transactions; 0: a prepared one */
} SweepState;

/*---- The view "cancellations" ----*/

/*
 * Returns the tasks that executors of this database are running, for dw_mark_hits(); *n
 * is their number.
 *
 * An executor that runs a task has deleted its row, which others see until the commit, or
 * says that it keeps the row.  An executor that is only looking at a row does neither.
 */
static DwMarkable *
running_tasks(int *n)
{
	DwMarkable *tasks = palloc(dw_shared->nexecutors * sizeof(DwMarkable));
	Relation	rel = table_open(dw_catalog()->task, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

	*n = 0;
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor	e;
		TransactionId xid;
		bool		keeps;
		HeapTuple	tuple;

		LWLockAcquire(dw_shared->table_lock, LW_SHARED);
		memcpy(&e, &dw_executors[i], sizeof(DwExecutor));
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

/* Returns the state of this database's sweeper. */
static SweepState
sweep_state(void)
{
	SweepState	state = {0};
	DwDatabase *db;

	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	db = dw_database_find(MyDatabaseId);
	if (db != NULL && db->sweeper.state == DW_PROCESS_RUNNING)
	{
		state.runs = true;
		state.waits = db->sweeper_news.waits;
		for (int i = 0; i < db->sweeper_news.npids; i++)
			state.pids[state.npids++] = Int32GetDatum(db->sweeper_news.pids[i]);
	}
	LWLockRelease(dw_shared->table_lock);
	return state;
}

/* The columns of the view "cancellations". */
static const Oid mark_columns[] = {
	INT8OID, TIMESTAMPTZOID, REGROLEOID, REGROLEARRAYOID, INT2OID, TEXTOID,
	TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, INT4OID, TEXTOID, INT4ARRAYOID
};

/*
 * Adds a row of the view for a mark to the result, if the current user may see the mark;
 * running is the number of running tasks that it hits.
 */
static void
put_cancellation(ReturnSetInfo *result, Relation rel, HeapTuple tuple, const SweepState *sweep,
				 int running)
{
	/* columns of the table that are shown as they are */
	static const AttrNumber same[] = {
		Anum_cancellation_id, Anum_cancellation_made_at, Anum_cancellation_made_by,
		Anum_cancellation_owners, Anum_cancellation_queue, Anum_cancellation_tag,
		Anum_cancellation_due_from, Anum_cancellation_due_until, Anum_cancellation_removed
	};
	Datum	   *row;
	bool	   *row_nulls;
	Datum		values[lengthof(mark_columns)] = {0};
	bool		nulls[lengthof(mark_columns)] = {0};
	bool		ours;
	int			n = 0;

	dw_deform(rel, tuple, &row, &row_nulls);
	if (!has_privs_of_role(GetUserId(), DatumGetObjectId(row[Anum_cancellation_made_by - 1])) &&
		!has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_DATA))
		return;
	for (; n < lengthof(same); n++)
	{
		values[n] = row[same[n] - 1];
		nulls[n] = row_nulls[same[n] - 1];
	}
	ours = DatumGetInt64(row[Anum_cancellation_origin - 1]) == dw_origin_stamp();
	values[n++] = Int32GetDatum(running);
	values[n++] = CStringGetTextDatum(!ours ? "unarmed" : !sweep->runs ? "queued" :
									  sweep->waits ? "waiting" : "sweeping");
	nulls[n] = !ours || !sweep->waits;
	if (!nulls[n])
		values[n] = PointerGetDatum(construct_array((Datum *) sweep->pids, sweep->npids, INT4OID,
													sizeof(int32), true, TYPALIGN_INT));
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* Returns how many of the tasks a mark hits. */
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
	ReturnSetInfo *result = dw_begin_rows(fcinfo, lengthof(mark_columns), mark_columns);
	SweepState	sweep;
	DwMarkable *tasks;
	int			ntasks;
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;

	dw_require_shared();
	sweep = sweep_state();
	tasks = running_tasks(&ntasks);
	rel = table_open(dw_catalog()->cancellation, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		bool		isnull;
		Datum		id = heap_getattr(tuple, Anum_cancellation_id, RelationGetDescr(rel), &isnull);

		put_cancellation(result, rel, tuple, &sweep, count_hits(DatumGetInt64(id), tasks, ntasks));
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return (Datum) 0;
}

/*---- The view "progress" ----*/

/*
 * Copies the progress of all kinds of work in a database, and the pids of the processes
 * that do them.  False if the current user may not see the database.
 */
static bool
copy_progress(int number, Oid *database, DwProgress *copy, pid_t *pids)
{
	DwDatabase *db = dw_database(number);

	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	*database = db->oid;
	for (int i = 0; i < DW_WORKS && OidIsValid(db->oid); i++)
	{
		dw_progress_copy(db->progress, i, &copy[i]);
		pids[i] = i < DW_FIRST_OF_SWEEPER ? db->timer.pid : db->sweeper.pid;
	}
	LWLockRelease(dw_shared->table_lock);
	return dw_may_see_database(db);
}

/* Sets a column to a number; null if it is not known. */
static void
put_count(Datum *value, bool *isnull, int64 count)
{
	*isnull = count == DW_TOTAL_UNKNOWN;
	*value = Int64GetDatum(count);
}

/* Adds a row of the view to the result: a kind of work in a database of this name. */
static void
put_progress(ReturnSetInfo *result, const char *name, DwWork work, const DwProgress *progress,
			 pid_t pid)
{
	bool		active = dw_progress_runs(progress);
	int64		took = Max((active ? dw_uptime() : progress->ended) - progress->began, 0);
	Interval   *duration = palloc0(sizeof(Interval));
	Datum		values[PROGRESS_COLUMNS] = {0};
	bool		nulls[PROGRESS_COLUMNS] = {0};
	NameData	database;

	namestrcpy(&database, name);
	duration->time = took;
	values[0] = NameGetDatum(&database);
	values[1] = CStringGetTextDatum(dw_works[work].name);
	values[2] = CStringGetTextDatum(dw_phases[progress->phase]);
	values[3] = BoolGetDatum(active);
	nulls[4] = !active || pid == 0;
	values[4] = Int32GetDatum((int32) pid);
	values[5] = TimestampTzGetDatum(progress->started);
	values[6] = IntervalPGetDatum(duration);
	values[7] = CStringGetTextDatum(dw_works[work].unit);
	values[8] = Int64GetDatum(progress->done);
	put_count(&values[9], &nulls[9], progress->total);
	nulls[10] = took == 0;
	values[10] = Float8GetDatum(took == 0 ? 0 : progress->done * 1e6 / took);
	put_count(&values[11], &nulls[11], progress->steps);
	put_count(&values[12], &nulls[12], progress->steps_total);
	values[13] = Int64GetDatum(progress->times);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* The view "progress": each kind of work that was done at least once, by database. */
Datum
dw_get_progress(PG_FUNCTION_ARGS)
{
	static const Oid columns[PROGRESS_COLUMNS] = {
		NAMEOID, TEXTOID, TEXTOID, BOOLOID, INT4OID, TIMESTAMPTZOID, INTERVALOID,
		TEXTOID, INT8OID, INT8OID, FLOAT8OID, INT8OID, INT8OID, INT8OID
	};
	ReturnSetInfo *result = dw_begin_rows(fcinfo, lengthof(columns), columns);

	dw_require_shared();
	for (int i = 0; i < dw_max_databases; i++)
	{
		DwProgress	progress[DW_WORKS];
		pid_t		pids[DW_WORKS];
		Oid			database;
		char	   *name;

		if (!copy_progress(i, &database, progress, pids))
			continue;
		name = get_database_name(database);
		for (int work = 0; work < DW_WORKS && name != NULL; work++)
			if (progress[work].phase != DW_PHASE_NONE)
				put_progress(result, name, work, &progress[work], pids[work]);
	}
	return (Datum) 0;
}
