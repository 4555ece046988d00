/*-------------------------------------------------------------------------
 *
 * sweep.c
 *	  Removes the rows of cancelled tasks, and then their marks.
 *
 * Run by the sweeper.  delay_cancel_all() does not delete rows: it commits a mark, a row of
 * delay_wheel_data.cancellation that describes the cancelled tasks.  Tasks and marks draw their
 * numbers from one sequence.  A mark hits a task that matches it and has a lower number.
 *
 * The sweeper scans the index of lanes (all lanes, of any origin) in passes, which consist of
 * slices.  It waits for no lock, except PostgreSQL's lock for notifications.  A pass that begins
 * after the waits that README.md lists, and can remove all rows that the mark hits, is the mark's
 * last pass.  The last pass cannot miss a row, since these rows do not move any more.
 *
 * If the history records cancelled tasks, a slice writes the records in the transaction that
 * removes the rows.  If the history's table is locked, the rows are left for another pass.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pgstat.h"
#include "utils/rel.h"

#include "../base/compat.h"
#include "../base/inject.h"
#include "../base/wing.h"
#include "../base/worker.h"
#include "../ending/ending.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "sweeper.h"

/* Microseconds after which a slice ends, and number of steps between two looks at the clock. */
#define SLICE_US		5000
#define SLICE_STEP		16
/* Interval, in microseconds, at which numbers of removed rows are written to the marks. */
#define PROGRESS_US		USECS_PER_SEC
/*
 * Minimum and maximum pause while the sweeper waits for transactions, executors or locked rows, in
 * microseconds.  The pause doubles each time.
 */
#define WAIT_MIN_US		(10 * 1000)
#define WAIT_MAX_US		USECS_PER_MINUTE
/* Microseconds before the next try if a table is locked. */
#define RETRY_US		(100 * 1000)
/*
 * If a pass has removed this number of a lane's tasks, and at least a quarter of its number in
 * memory, the timer loads the lane again.
 */
#define MANY_TASKS		1000

/* The sweeper's state of a mark. */
typedef struct Sweep
{
	int64		id;				/* number of the mark; must be the first member */
	const DwMark *mark;			/* valid during a slice */
	VirtualTransactionId *holders;	/* transactions that may write more tasks that the mark hits */
	int			nholders;
	bool		swept;			/* at least one pass has been made for the mark */
	bool		in_pass;		/* the present pass removes rows that the mark hits */
	bool		last_pass;		/* the present pass is the mark's last pass, if no row is left */
	bool		left;			/* the mark's latest pass could not remove a locked row */
	int64		removed;		/* removed rows that are not yet counted in the mark's row */
} Sweep;

static DwDatabase *db = NULL;
static MemoryContext sweep_context = NULL;

/* The marks of this database, in order of their numbers. */
static Sweep *sweeps = NULL;
static int	nsweeps = 0;

/* Number of rows that this slice has removed, for pg_stat_activity. */
static int64 slice_removed = 0;

/* True during a pass.  The next slice begins at the key "cursor". */
static bool passing = false;
static DwTaskKey cursor;
/* When the number of removed rows must be written to the marks again. */
static TimestampTz progress_at = PG_INT64_MIN;
/* The next pause while the sweeper waits, in microseconds. */
static int64 wait_us = WAIT_MIN_US;

/* The lane that the pass has reached, and the marks that may hit tasks of this lane. */
static DwTaskKey lane;
static bool in_lane = false;
/* True if this lane has messages, which may be leased. */
static bool lane_is_external = false;
static Sweep **lane_sweeps = NULL;
static int	nlane_sweeps = 0;
/* Number of this lane's rows that the pass has removed, and their lowest due time. */
static int64 lane_removed = 0;
static TimestampTz lane_lowest = DW_NEVER;

/* Initializes this file.  The sweeper calls it once, before dw_sweep_some(). */
void
dw_sweep_begin(DwDatabase *database)
{
	db = database;
	sweep_context = AllocSetContextCreate(TopMemoryContext, "delay_wheel sweep",
										  ALLOCSET_DEFAULT_SIZES);
	/* commits need no flush: after a crash, the rows are removed again */
	SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE);
}

/*---- Marks, and transactions that may write more tasks ----*/

/* Compares the numbers of two sweeps, which are their first members. */
static int
compare_numbers(const void *a, const void *b)
{
	int64		left = *(const int64 *) a;
	int64		right = *(const int64 *) b;

	return left < right ? -1 : left > right;
}

/* Returns true if the transaction may write tasks of an owner whose tasks the mark hits. */
static bool
may_bring_more(VirtualTransactionId holder, const DwMark *mark)
{
	Oid			owner;

	return dw_is_writer(holder, &owner) &&
		(!OidIsValid(owner) || dw_mark_hits_owner(mark, owner));
}

/* Stores the holders of a lock for writing on the task table that may write tasks the mark hits. */
static void
note_holders(Sweep *sweep, const DwMark *mark)
{
	LOCKTAG		tag;
	VirtualTransactionId *found;
	int			nfound;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, dw_catalog()->task);
	found = GetLockConflicts(&tag, ShareLock, &nfound);
	sweep->holders = MemoryContextAlloc(sweep_context, Max(nfound, 1) * sizeof(VirtualTransactionId));
	for (int i = 0; i < nfound; i++)
		if (may_bring_more(found[i], mark))
			sweep->holders[sweep->nholders++] = found[i];
	pfree(found);
}

/* Updates "sweeps" with the committed marks.  For a new mark, stores the holders of locks. */
static void
follow_marks(void)
{
	int			nmarks;
	const DwMark *marks = dw_marks(&nmarks);
	Sweep	   *present = MemoryContextAllocZero(sweep_context, Max(nmarks, 1) * sizeof(Sweep));
	int			n = 0;

	for (int i = 0; i < nmarks; i++)
	{
		Sweep	   *known = NULL;

		if (!marks[i].ours)
			continue;
		if (nsweeps > 0)
			known = bsearch(&marks[i].id, sweeps, nsweeps, sizeof(Sweep), compare_numbers);
		if (known != NULL)
		{
			present[n] = *known;
			known->holders = NULL;
		}
		else
		{
			present[n].id = marks[i].id;
			note_holders(&present[n], &marks[i]);
			wait_us = WAIT_MIN_US;
		}
		present[n++].mark = &marks[i];
	}
	qsort(present, n, sizeof(Sweep), compare_numbers);

	for (int i = 0; i < nsweeps; i++)
		if (sweeps[i].holders != NULL)
			pfree(sweeps[i].holders);
	if (sweeps != NULL)
	{
		pfree(sweeps);
		pfree(lane_sweeps);
	}
	sweeps = present;
	nsweeps = n;
	lane_sweeps = MemoryContextAlloc(sweep_context, Max(n, 1) * sizeof(Sweep *));
}

/* Removes transactions that have ended from the mark's holders. */
static void
forget_ended_holders(Sweep *sweep)
{
	int			n = 0;

	for (int i = 0; i < sweep->nholders; i++)
		if (!VirtualXactLock(sweep->holders[i], false))
			sweep->holders[n++] = sweep->holders[i];
	if (n < sweep->nholders)
		wait_us = WAIT_MIN_US;
	sweep->nholders = n;
}

/*
 * Returns true if the executor runs a task without a row that the mark would hit if the task was
 * put back.  The executor clears "autonomous" only when the new row is visible.
 */
static bool
may_put_back(DwExecutor *e, const DwMark *mark)
{
	int64		id = (int64) pg_atomic_read_u64(&e->autonomous);

	if (id == 0 || id >= mark->id || e->database != MyDatabaseId)
		return false;
	/* the executor sets "current" before "autonomous" */
	pg_read_barrier();
	return dw_mark_hits_lane(mark, dw_origin_stamp(), e->owner, dw_lanes[e->current.lane].queue);
}

/* Returns true if may_put_back() is true for any executor. */
static bool
any_may_put_back(const DwMark *mark)
{
	dw_each_executor(e)
		if (may_put_back(e, mark))
			return true;
	return false;
}

/* Returns the pid of the transaction, or 0 if the transaction was prepared or has ended. */
static int
holder_pid(VirtualTransactionId holder)
{
	PGPROC	   *proc = VirtualTransactionIdIsRecoveredPreparedXact(holder) ? NULL : dw_vxid_proc(holder);

	return proc && dw_proc_lxid(proc) == holder.localTransactionId ? proc->pid : 0;
}

/* Adds the pid to the array, if the array is not full and does not contain it. */
static void
add_pid(int *pids, int *n, int pid)
{
	for (int i = 0; i < *n; i++)
		if (pids[i] == pid)
			return;
	if (*n < DW_SWEEP_WAITS)
		pids[(*n)++] = pid;
}

/* Publishes for the view whether the sweeper waits, and for which processes. */
static void
publish_waits(bool waits)
{
	int			pids[DW_SWEEP_WAITS] = {0};
	int			n = 0;

	for (int i = 0; i < nsweeps && waits; i++)
	{
		for (int j = 0; j < sweeps[i].nholders; j++)
			add_pid(pids, &n, holder_pid(sweeps[i].holders[j]));
		dw_each_executor(e)
			if (may_put_back(e, sweeps[i].mark))
				add_pid(pids, &n, e->pid);
	}

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	dw_sweeper_waits(&db->sweeper_news, waits, pids, n);
	LWLockRelease(dw_shared->table_lock);
}

/*---- The marks' own rows ----*/

/* Adds the number of removed rows to the mark's row, if this row is not locked or gone. */
static void
write_progress(Sweep *sweep)
{
	HeapTuple	tuple = dw_mark_take(sweep->id);
	Relation	rel;
	Datum	   *values;
	bool	   *nulls;

	if (tuple == NULL)
		return;
	rel = table_open(dw_catalog()->cancellation, RowExclusiveLock);
	dw_deform(rel, tuple, &values, &nulls);
	table_close(rel, NoLock);
	values[Anum_cancellation_removed - 1] =
		Int64GetDatum(DatumGetInt64(values[Anum_cancellation_removed - 1]) + sweep->removed);
	dw_table_insert(dw_catalog()->cancellation, values, nulls, Natts_cancellation);
	sweep->removed = 0;
}

/* Calls write_progress() for all marks, if PROGRESS_US have passed or the pass has ended. */
static void
write_all_progress(bool ended)
{
	TimestampTz now = dw_now();

	if (now < progress_at && !ended)
		return;
	progress_at = now + PROGRESS_US;
	for (int i = 0; i < nsweeps; i++)
		if (sweeps[i].removed > 0)
			write_progress(&sweeps[i]);
}

/*---- Passes ----*/

/*
 * Begins a pass if a mark needs a pass and the pass can be made now.  Otherwise returns false.
 * "waited" is true if the sweeper has made a pause since the last pass.
 */
static bool
begin_sweep_pass(bool waited)
{
	bool		needed = false;

	for (int i = 0; i < nsweeps; i++)
	{
		Sweep	   *sweep = &sweeps[i];

		forget_ended_holders(sweep);
		/* holders are checked first, since a holder may be about to run its task without a row */
		sweep->last_pass = sweep->nholders == 0 && !any_may_put_back(sweep->mark);
		/* if the last pass has left locked rows, the next pass comes only after a pause */
		sweep->in_pass = !sweep->swept || (sweep->last_pass && (waited || !sweep->left));
		needed |= sweep->in_pass;
	}
	if (!needed)
		return false;
	for (int i = 0; i < nsweeps; i++)
		if (sweeps[i].in_pass)
			sweeps[i].left = false;
	MemSet(&cursor, 0, sizeof(cursor));
	cursor.origin = cursor.due = cursor.id = PG_INT64_MIN;
	cursor.queue = cursor.priority = PG_INT16_MIN;
	in_lane = false;
	passing = true;
	return true;
}

/* Ends the pass, and deletes marks, in the transaction that has removed the last rows. */
static void
end_sweep_pass(void)
{
	passing = false;
	for (int i = 0; i < nsweeps; i++)
	{
		Sweep	   *sweep = &sweeps[i];

		if (!sweep->in_pass)
			continue;
		sweep->swept = true;
		if (sweep->last_pass && !sweep->left)
			sweep->left = dw_mark_take(sweep->id) == NULL;
	}
	/* the next slice reads the marks again */
	dw_marks_changed();
}

static bool
is_same_lane(const DwTaskKey *a, const DwTaskKey *b)
{
	return a->owner == b->owner && a->origin == b->origin && a->queue == b->queue &&
		a->priority == b->priority;
}

/*
 * Handles the end of a lane.  If the pass has removed many tasks that are probably in memory, the
 * timer must load the lane again.  Otherwise executors would get all these tasks at their due
 * times, and find no rows.  If the lane has messages, one removed message is enough: a message may
 * be ready for a long time before a session takes it, and would be counted during this time.
 */
static void
leave_lane(void)
{
	DwLaneRef	ref;

	if (lane_removed >= (lane_is_external ? 1 : MANY_TASKS) && lane.origin == dw_origin_stamp() &&
		dw_my_database() == db && dw_lane_enter(db, lane.owner, lane.queue, lane.priority, &ref))
	{
		DwLane	   *l = &dw_lanes[ref.index];

		if (lane_lowest <= dw_atomic_read(&l->horizon) &&
			(lane_is_external || lane_removed >= (l->waiting + dw_ready_count(l)) / 4))
			dw_touch_lane(ref, lane_lowest);
	}
	lane_removed = 0;
	lane_lowest = DW_NEVER;
}

/*
 * Sets lane_sweeps to the marks of the pass that may hit tasks of this key's lane.  If the key is
 * the first key of a new lane, first handles the end of the former lane.
 */
static void
look_up_marks_of_lane(const DwTaskKey *key)
{
	if (!in_lane || !is_same_lane(key, &lane))
	{
		if (in_lane)
			leave_lane();
		lane = *key;
		in_lane = true;
		lane_is_external = dw_queue_is_external(db, key->queue);
	}
	nlane_sweeps = 0;
	for (int i = 0; i < nsweeps; i++)
		if (sweeps[i].in_pass &&
			dw_mark_hits_lane(sweeps[i].mark, key->origin, key->owner, key->queue))
			lane_sweeps[nlane_sweeps++] = &sweeps[i];
}

/*
 * Returns true if a mark may hit a task of this due time.  Otherwise sets *key to the key at which
 * the pass continues, in this or the next lane.  A leased message was due before the time in its
 * row.
 */
static bool
is_of_interest(DwTaskKey *key)
{
	TimestampTz due = DW_NEVER;

	for (int i = 0; i < nlane_sweeps; i++)
	{
		const DwMark *mark = lane_sweeps[i]->mark;

		if (key->due < mark->due_from)
			due = Min(due, mark->due_from);
		else if (key->due < mark->due_until || lane_is_external)
			return true;
	}
	if (due == DW_NEVER)
	{
		key->priority++;
		due = PG_INT64_MIN;
	}
	key->due = due;
	key->id = PG_INT64_MIN;
	return false;
}

/* Removes the row if a mark of the pass hits it. */
static void
sweep_row(Relation rel, HeapTuple tuple, const DwTaskKey *key)
{
	DwMarkable	task;
	TM_Result	result = TM_Invisible;

	dw_markable(rel, tuple, &task);
	for (int i = 0; i < nlane_sweeps; i++)
	{
		Sweep	   *sweep = lane_sweeps[i];

		if (!dw_mark_hits(sweep->mark, &task))
			continue;
		/* the first mark that hits the row counts it; if the row stays, all marks note this */
		if (result == TM_Invisible)
		{
			bool		recorded = dw_wings_want_end(key->queue, DW_CANCELLED);
			bool		may_remove = true;

			DW_INJECT("sweep-before-delete");
			dw_each_wing(wing, may_remove)
				may_remove = may_remove && wing->may_remove(rel, tuple);
			result = may_remove ? dw_row_remove(rel, key) : TM_BeingModified;
			if (result == TM_Ok)
			{
				sweep->removed++;
				slice_removed++;
				lane_removed++;
				lane_lowest = Min(lane_lowest, key->due);
				/* the mark has told sessions in delay_wait() that the task was cancelled */
				if (recorded || !heap_attisnull(tuple, Anum_task_more, RelationGetDescr(rel)))
					dw_conclude_row(rel, tuple, key, DW_CANCELLED, NULL);
			}
		}
		if (result != TM_Ok)
			sweep->left = true;
	}
}

/* Does a slice of the pass.  Returns true if the slice has reached the end of the index. */
static bool
sweep_slice(Relation rel)
{
	DwRowScan *scan = dw_lanes_scan_begin(rel, &cursor, GetActiveSnapshot());
	int64		began = dw_uptime();
	bool		ended = false;
	bool		entered = false;

	for (int n = 1; n % SLICE_STEP != 0 || dw_uptime() - began < SLICE_US; n++)
	{
		DwTaskKey	key;
		bool		visible;

		CHECK_FOR_INTERRUPTS();
		ended = !dw_lane_scan_step(scan, &key, &visible);
		if (ended)
			break;
		if (!entered || !is_same_lane(&key, &lane))
			look_up_marks_of_lane(&key);
		entered = true;
		cursor = key;
		if (!is_of_interest(&cursor))
		{
			dw_lanes_scan_seek(scan, &cursor);
			continue;
		}
		cursor.id = key.id + 1;
		if (visible)
		{
			HeapTuple	tuple = dw_lane_scan_tuple(scan);

			sweep_row(rel, tuple, &key);
			heap_freetuple(tuple);
		}
	}
	dw_row_scan_end(scan);
	if (ended && in_lane)
		leave_lane();
	return ended;
}

/* Begins a transaction, and locks its tables without waiting.  NULL: a table is locked. */
static Relation
begin_sweeping(void)
{
	Relation	rel = dw_read_begin();

	if (rel != NULL &&
		ConditionalLockRelationOid(RelationGetRelid(rel), RowExclusiveLock) &&
		ConditionalLockRelationOid(dw_catalog()->recurring, RowExclusiveLock) &&
		ConditionalLockRelationOid(dw_catalog()->unique_key, RowExclusiveLock) &&
		ConditionalLockRelationOid(dw_catalog()->task_id_seq, RowExclusiveLock) &&
		ConditionalLockRelationOid(dw_catalog()->cancellation, RowExclusiveLock))
		return rel;
	dw_read_end(rel);
	return NULL;
}

/* Does a slice, in its own transaction.  Returns when to call it again; DW_NEVER: without marks. */
TimestampTz
dw_sweep_some(void)
{
	static bool waited = false;
	Relation	rel = begin_sweeping();
	TimestampTz next = PG_INT64_MIN;

	if (rel == NULL)
		return dw_extension_gone ? DW_NEVER : dw_now() + RETRY_US;

	slice_removed = 0;
	follow_marks();
	if (nsweeps == 0)
	{
		passing = false;
		next = DW_NEVER;
	}
	else if (passing)
	{
		bool		ended;

		dw_worker_activity(STATE_RUNNING, "delay_wheel: removing rows of cancelled tasks");
		dw_each_wing(wing, batch_begins)
			wing->batch_begins();
		ended = sweep_slice(rel);
		dw_each_wing(wing, batch_ends)
			wing->batch_ends();
		write_all_progress(ended);
		if (ended)
			end_sweep_pass();
	}
	else if (begin_sweep_pass(waited))
	{
		/* slices run in later transactions, with snapshots after this check of the holders */
		publish_waits(false);
		waited = false;
	}
	else
	{
		publish_waits(true);
		dw_worker_activity(STATE_RUNNING, "delay_wheel: waiting for transactions that may bring cancelled tasks");
		next = dw_now() + wait_us;
		wait_us = Min(wait_us * 2, WAIT_MAX_US);
		waited = true;
	}
	DW_INJECT("sweep-before-commit");
	dw_read_end(rel);
	dw_worker_progress(slice_removed);
	pgstat_report_stat(!passing);
	return next;
}
