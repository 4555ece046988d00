/*-------------------------------------------------------------------------
 *
 * sweep.c
 *	  Removing the rows of cancelled tasks, and then the marks.
 *
 * Run by the sweeper.  It goes through the index of lanes, all of them and of
 * any origin, in passes; a pass is made of slices of some milliseconds, each
 * a transaction with a snapshot of its own, which removes the rows that the
 * marks of this pass hit.  Where no mark can hit anything (other owners,
 * queues, due times) the index is stepped over.  No lock is waited for, but the
 * one of those who send notifications: a row that somebody has locked is left
 * for another pass.
 *
 * When can a mark go?  When no row is left that it hits, nor can come to be.
 * Rows can come from transactions that had drawn a lower number than the mark
 * before it was committed, or had begun to move a task, or to run one that is
 * tried again, without knowing of the mark.  They all held a lock on the task
 * table then, until their end, prepared ones, too, and had said before whose tasks
 * they bring (writers.c).  So when a mark is first seen here, which is after its
 * commit, the lock manager is asked who holds such a lock, and who does not bring
 * tasks of these owners is left out.  A task of mode at_most_once that was claimed by one of these has
 * neither row nor lock while it runs, and may be put back then; so executors
 * that run such a task are waited for next.  A pass that began when all of
 * these had ended, and could remove all it met, is the last one of the mark:
 * what it hits does not move any more, so nothing can slip past the pass.
 *
 * If this process ends in the middle, the next one begins anew.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/inject.h"
#include "../ending/conclude.h"
#include "../recurring/definition.h"
#include "../ring/ring.h"
#include "../rows/catalog.h"
#include "../rows/lane_scan.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/lanes.h"
#include "../shmem/progress.h"
#include "../shmem/shared.h"
#include "../shmem/writers.h"
#include "../task/marks.h"
#include "../task/my_session.h"
#include "../task/row_lock.h"
#include "../task/touched.h"
#include "sweep.h"

/* Time after which a slice ends; the clock is read after so many steps. */
#define SLICE_US		5000
#define SLICE_STEP		16
/* how often the progress is written into the marks */
#define PROGRESS_US		USECS_PER_SEC
/* while transactions are waited for, or locked rows */
#define WAIT_MIN_US		(10 * 1000)
#define WAIT_MAX_US		USECS_PER_MINUTE
/* when a table is locked */
#define RETRY_US		(100 * 1000)
/* memory is read again if so many of a lane's tasks, and a quarter of it, went */
#define MANY_TASKS		1000

/* What is known of a mark. */
typedef struct Sweep
{
	int64		id;
	const DwMark *mark;			/* valid during a slice */
	VirtualTransactionId *holders;	/* may bring more that it hits */
	int			nholders;
	bool		swept;			/* by a pass at least */
	bool		in_pass;
	bool		last_pass;		/* if nothing is left */
	bool		left;			/* some row was locked */
	int64		removed;		/* rows, not yet added up in the table */
} Sweep;

static DwDatabase *db = NULL;
static MemoryContext sweep_context = NULL;

/* In order of their numbers. */
static Sweep *sweeps = NULL;
static int	nsweeps = 0;

/* For the view "progress": marks met since there was none, rows of this slice. */
static int	nmet = 0;
static int64 slice_removed = 0;

static bool passing = false;
static DwTaskKey cursor;
static TimestampTz progress_at = PG_INT64_MIN;
static int64 wait_us = WAIT_MIN_US;

/* The lane that the pass is in, and the marks that may hit tasks of it. */
static DwTaskKey lane;
static bool in_lane = false;
static Sweep **lane_sweeps = NULL;
static int	nlane_sweeps = 0;
static int64 lane_removed = 0;
static TimestampTz lane_lowest = DW_NEVER;

void
dw_sweep_begin(DwDatabase *database)
{
	db = database;
	sweep_context = AllocSetContextCreate(TopMemoryContext, "delay_wheel sweep",
										  ALLOCSET_DEFAULT_SIZES);
	/* a crash may undo what is committed here: it is done again then */
	SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE);
}

/*---- Marks, and who may bring more tasks ----*/

static int
compare_marks(const void *a, const void *b)
{
	int64		left = (*(const DwMark *const *) a)->id;
	int64		right = (*(const DwMark *const *) b)->id;

	return left < right ? -1 : left > right;
}

/* Marks of this database, in order of their numbers. */
static const DwMark **
list_marks(int *n)
{
	int			nall;
	const DwMark *all = dw_marks(&nall);
	const DwMark **list = palloc(Max(nall, 1) * sizeof(DwMark *));

	*n = 0;
	for (int i = 0; i < nall; i++)
		if (all[i].ours)
			list[(*n)++] = &all[i];
	qsort(list, *n, sizeof(DwMark *), compare_marks);
	return list;
}

static bool
may_bring_more(VirtualTransactionId holder, const DwMark *mark)
{
	Oid			owner;

	return dw_is_writer(holder, &owner) &&
		(!OidIsValid(owner) || dw_mark_hits_owner(mark, owner));
}

/*
 * Who holds a lock on the task table that all take who write to it, and brings
 * tasks of these owners.
 */
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

/* Takes in which marks there are now: new ones are seen first here. */
static void
follow_marks(void)
{
	int			n;
	const DwMark **list = list_marks(&n);
	Sweep	   *old = sweeps;
	int			nold = nsweeps;
	int			j = 0;

	sweeps = MemoryContextAllocZero(sweep_context, Max(n, 1) * sizeof(Sweep));
	for (nsweeps = 0; nsweeps < n; nsweeps++)
	{
		Sweep	   *sweep = &sweeps[nsweeps];
		const DwMark *mark = list[nsweeps];

		for (; j < nold && old[j].id < mark->id; j++)
			pfree(old[j].holders);
		if (j < nold && old[j].id == mark->id)
			*sweep = old[j++];
		else
		{
			sweep->id = mark->id;
			nmet++;
			note_holders(sweep, mark);
			wait_us = WAIT_MIN_US;
		}
		sweep->mark = mark;
	}
	for (; j < nold; j++)
		pfree(old[j].holders);
	if (old != NULL)
		pfree(old);
	if (lane_sweeps != NULL)
		pfree(lane_sweeps);
	lane_sweeps = MemoryContextAlloc(sweep_context, Max(n, 1) * sizeof(Sweep *));
	pfree(list);
}

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
 * Does the executor run a task without a row that the mark may hit when it is
 * put back?  The flag goes when that is visible.
 */
static bool
may_put_back(DwExecutor *e, const DwMark *mark)
{
	int64		id = (int64) pg_atomic_read_u64(&e->autonomous);

	if (id == 0 || id >= mark->id || e->database != MyDatabaseId)
		return false;
	/* what it runs is noted before */
	pg_read_barrier();
	return dw_mark_hits_lane(mark, dw_origin_stamp(), e->owner, dw_lanes[e->current.lane].queue);
}

static bool
any_may_put_back(const DwMark *mark)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (may_put_back(&dw_executors[i], mark))
			return true;
	return false;
}

static int
holder_pid(VirtualTransactionId holder)
{
	PGPROC	   *proc = VirtualTransactionIdIsRecoveredPreparedXact(holder) ? NULL : dw_vxid_proc(holder);

	return proc && dw_proc_lxid(proc) == holder.localTransactionId ? proc->pid : 0;
}

static void
add_pid(int *pids, int *n, int pid)
{
	for (int i = 0; i < *n; i++)
		if (pids[i] == pid)
			return;
	if (*n < DW_SWEEP_WAITS)
		pids[(*n)++] = pid;
}

/* For the view: that we wait, and for whom. */
static void
publish_waits(bool waits)
{
	int			pids[DW_SWEEP_WAITS] = {0};
	int			n = 0;

	for (int i = 0; i < nsweeps && waits; i++)
	{
		for (int j = 0; j < sweeps[i].nholders; j++)
			add_pid(pids, &n, holder_pid(sweeps[i].holders[j]));
		for (uint32 j = 0; j < dw_shared->nexecutors; j++)
			if (may_put_back(&dw_executors[j], sweeps[i].mark))
				add_pid(pids, &n, dw_executors[j].pid);
	}

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	db->sweep_waits = waits;
	db->sweep_npids = n;
	memcpy(db->sweep_pids, pids, n * sizeof(int));
	LWLockRelease(dw_shared->table_lock);
}

/*---- The marks' own rows ----*/

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
	dw_cancellation_insert(values, nulls);
	sweep->removed = 0;
}

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

/* Begins a pass if one is needed. */
static bool
begin_sweep_pass(bool waited)
{
	bool		needed = false;

	for (int i = 0; i < nsweeps; i++)
	{
		Sweep	   *sweep = &sweeps[i];

		forget_ended_holders(sweep);
		/* in this order: a holder may be about to run its task so */
		sweep->last_pass = sweep->nholders == 0 && !any_may_put_back(sweep->mark);
		/* what was locked in the last one is not looked at again at once */
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

/* The last rows of the pass are removed by this transaction, too. */
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
	/* those that are gone are found missing */
	dw_marks_changed();
}

static bool
is_same_lane(const DwTaskKey *a, const DwTaskKey *b)
{
	return a->owner == b->owner && a->origin == b->origin && a->queue == b->queue &&
		a->priority == b->priority;
}

/*
 * The lane is done.  If much of it was in memory, as is likely, memory is read
 * again: else all that would come to executors in its time.
 */
static void
leave_lane(void)
{
	DwLaneRef	ref;

	if (lane_removed >= MANY_TASKS && lane.origin == dw_origin_stamp() &&
		dw_my_database() == db && dw_lane_enter(db, lane.owner, lane.queue, lane.priority, &ref))
	{
		DwLane	   *l = &dw_lanes[ref.index];

		if (lane_lowest <= dw_atomic_read(&l->horizon) &&
			lane_removed >= (l->waiting + dw_ready_count(l)) / 4)
			dw_touch_lane(ref, lane_lowest);
	}
	lane_removed = 0;
	lane_lowest = DW_NEVER;
}

/* Which marks of the pass may hit tasks of the lane of this key? */
static void
look_up_marks_of_lane(const DwTaskKey *key)
{
	if (!in_lane || !is_same_lane(key, &lane))
	{
		if (in_lane)
			leave_lane();
		lane = *key;
		in_lane = true;
	}
	nlane_sweeps = 0;
	for (int i = 0; i < nsweeps; i++)
		if (sweeps[i].in_pass &&
			dw_mark_hits_lane(sweeps[i].mark, key->origin, key->owner, key->queue))
			lane_sweeps[nlane_sweeps++] = &sweeps[i];
}

/*
 * Is this a due time that some mark hits?  If not, *key becomes where to go on:
 * in this lane, or the next one.
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
		else if (key->due < mark->due_until)
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

/* Not while an executor runs the task. */
static TM_Result
delete_hit_row(Relation rel, HeapTuple tuple, const DwTaskKey *key)
{
	TM_FailureData failure;
	TM_Result	result;

	if (key->has_more && !dw_autonomous_enter(key->id, false))
		return TM_BeingModified;
	result = heap_delete(rel, &tuple->t_self, GetCurrentCommandId(true),
						 InvalidSnapshot, false, &failure, false);
	if (key->has_more)
		dw_autonomous_leave(key->id);
	return result;
}

/* Removes a row if it is hit. */
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
		/* the first of them has it; if that fails, it is left for all */
		if (result == TM_Invisible)
		{
			DW_INJECT("sweep-before-delete");
			if (dw_recurring_may_end(rel, tuple))
				result = delete_hit_row(rel, tuple, key);
			else
				result = TM_BeingModified;
			if (result == TM_Ok)
			{
				sweep->removed++;
				slice_removed++;
				lane_removed++;
				lane_lowest = Min(lane_lowest, key->due);
				/* who waits for it was told by the mark */
				if (!heap_attisnull(tuple, Anum_task_more, RelationGetDescr(rel)))
					dw_conclude_row(rel, tuple, key, DW_CANCELLED, NULL);
			}
		}
		if (result != TM_Ok)
			sweep->left = true;
	}
}

/* A slice of the pass; true if that was the last one. */
static bool
sweep_slice(Relation rel)
{
	DwLaneScan *scan = dw_lanes_scan_begin(rel, &cursor, GetActiveSnapshot());
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
	dw_lane_scan_end(scan);
	if (ended && in_lane)
		leave_lane();
	return ended;
}

/*
 * Begins a transaction that may write, without waiting for any lock.  NULL if
 * some table is locked.
 */
static Relation
begin_sweeping(void)
{
	Relation	rel = dw_read_begin();

	if (rel != NULL &&
		ConditionalLockRelationOid(RelationGetRelid(rel), RowExclusiveLock) &&
		ConditionalLockRelationOid(dw_catalog()->recurring, RowExclusiveLock) &&
		ConditionalLockRelationOid(dw_catalog()->task_id_seq, RowExclusiveLock) &&
		ConditionalLockRelationOid(dw_catalog()->cancellation, RowExclusiveLock))
		return rel;
	dw_read_end(rel);
	return NULL;
}

/* What is committed. */
static void
note_sweep_progress(void)
{
	dw_progress_add(db, DW_WORK_SWEEP, slice_removed);
	dw_progress_steps(db, DW_WORK_SWEEP, nmet - nsweeps, nmet);
	if (nsweeps > 0)
		return;
	dw_progress_end(db, DW_WORK_SWEEP);
	nmet = 0;
}

/*
 * Does a slice of what is to be done.  Returns when there is more to do, unless
 * a mark is made; a time that has passed is now, DW_NEVER is when there are no
 * marks of this database.
 */
TimestampTz
dw_sweep_some(void)
{
	static bool waited = false;
	Relation	rel = begin_sweeping();
	TimestampTz next = PG_INT64_MIN;

	if (rel == NULL)
	{
		dw_progress_phase(db, DW_WORK_SWEEP, DW_PHASE_WAITING);
		return dw_extension_gone ? DW_NEVER : dw_now() + RETRY_US;
	}

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

		dw_progress_begin(db, DW_WORK_SWEEP, DW_PHASE_SWEEPING);
		ended = sweep_slice(rel);
		write_all_progress(ended);
		if (ended)
			end_sweep_pass();
	}
	else if (begin_sweep_pass(waited))
	{
		/* the slices' snapshots come after the look at who has ended */
		publish_waits(false);
		dw_progress_begin(db, DW_WORK_SWEEP, DW_PHASE_SWEEPING);
		waited = false;
	}
	else
	{
		publish_waits(true);
		dw_progress_begin(db, DW_WORK_SWEEP, DW_PHASE_WAITING);
		next = dw_now() + wait_us;
		wait_us = Min(wait_us * 2, WAIT_MAX_US);
		waited = true;
	}
	DW_INJECT("sweep-before-commit");
	dw_read_end(rel);
	note_sweep_progress();
	pgstat_report_stat(!passing);
	return next;
}
