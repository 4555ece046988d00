/*-------------------------------------------------------------------------
 *
 * marks.c
 *	  Marks: rows that cancel many tasks at once.
 *
 * Run by sessions, executors and the sweeper.  The timer runs it, too, but first locks the table of
 * marks, since it must not wait.  backend/cancel_all.c writes marks.
 *
 * delay_cancel_all() does not touch the tasks.  It writes one row, a mark, with the criteria of the
 * tasks to cancel, however many there are.  When the mark has been committed, all processes that
 * ask dw_task_is_cancelled() treat these tasks as gone.  The sweeper (sweeper/sweep.c) removes
 * their rows, and in the end the mark.
 *
 * A mark hits a task (cancels it) if the task fits the mark and has a lower number.  Tasks and
 * marks draw their numbers from one sequence.  So a mark hits the tasks that were scheduled before
 * it, even by transactions that are prepared or have not committed yet, and no later tasks.  A task
 * keeps its number when it is moved or tried again.
 *
 * A task can be spared: the column "spared" then holds the id of a mark, and only marks with a
 * higher id hit the task.  A session spares a task that it moves or puts back if an old mark, which
 * did not hit the task before, would hit it now.
 *
 * Numbers count within one origin, the database that a row was written in.  A mark that came with a
 * copy of another database (copies/arm.c) hits only the tasks of this copy.  The sweeper leaves
 * such a mark, since more tasks of that origin may come; delay_wheel.arm() removes it.
 *
 * No claim succeeds after the commit of a mark has returned.  The process that commits a mark
 * raises control after the mark is visible to all, and before the client gets the answer
 * (touched.c).  An executor reads control after it has deleted the task's row.  If it finds the new
 * value, it reads the marks with a new snapshot.  If it finds the old value, it had claimed the
 * task before the commit returned, so the task was running already.  COMMIT PREPARED raises the
 * value, too.
 *
 * Each process keeps a copy of the marks.  The copy is complete while control has the value from
 * before the snapshot of the copy, and this transaction has written no mark itself.  But the copy
 * may have marks that have been removed since.  Mostly there are no marks: then the whole test is a
 * comparison of two numbers.
 *
 * The marks that may hit a task are found by the task's owner.  So the marks of one role cost the
 * tasks of other roles no time.  They cost memory, which is bounded: a role that is not a superuser
 * can have a limited number of marks (backend/cancel_all.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/htup.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "datatype/timestamp.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "../base/inject.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/shared.h"
#include "marks.h"
#include "task.h"
#include "touched.h"

/* This process's copy of the marks. */
static DwMark *marks = NULL;
static int	nmarks = 0;
static MemoryContext marks_context = NULL;

/*
 * A list of the marks of the copy for each owner, sorted by owner.  A mark for several
 * owners is in the list several times; marks for all owners come last.
 */
typedef struct OwnerMark
{
	Oid			owner;
	bool		any_owner;
	int			mark;			/* index into marks */
} OwnerMark;

static OwnerMark *by_owner = NULL;
static int	nby_owner = 0;

/*
 * True if the copy can be used.  It is for this database, this table, and this value of control,
 * which was read before the marks.
 */
static bool copy_valid = false;
static DwDatabase *copy_database;
static uint32 copy_control;
static Oid	copy_table = InvalidOid;

/* True if this transaction has written a mark, which may be rolled back. */
static bool own_marks = false;

/*---- The copy of the marks ----*/

/* Fills the owners of a mark, sorted, from an array of roles. */
static void
read_owners(DwMark *mark, Datum array)
{
	Datum	   *owners;
	bool	   *nulls;
	int			n;

	deconstruct_array(DatumGetArrayTypeP(array), REGROLEOID, sizeof(Oid), true, TYPALIGN_INT,
					  &owners, &nulls, &n);
	mark->owners = palloc(Max(n, 1) * sizeof(Oid));
	for (int i = 0; i < n; i++)
		if (!nulls[i])
			mark->owners[mark->nowners++] = DatumGetObjectId(owners[i]);
	qsort(mark->owners, mark->nowners, sizeof(Oid), oid_cmp);
}

/* Fills *mark from a row of delay_wheel_data.cancellation; allocates in the current context. */
static void
read_mark(Relation rel, HeapTuple tuple, DwMark *mark)
{
	Datum	   *values;
	bool	   *nulls;

	dw_deform(rel, tuple, &values, &nulls);
	MemSet(mark, 0, sizeof(DwMark));
	mark->id = DatumGetInt64(values[Anum_cancellation_id - 1]);
	mark->origin = DatumGetInt64(values[Anum_cancellation_origin - 1]);
	mark->ours = mark->origin == dw_origin_stamp();
	mark->any_owner = nulls[Anum_cancellation_owners - 1];
	if (!mark->any_owner)
		read_owners(mark, values[Anum_cancellation_owners - 1]);
	mark->any_queue = nulls[Anum_cancellation_queue - 1];
	if (!mark->any_queue)
		mark->queue = DatumGetInt16(values[Anum_cancellation_queue - 1]);
	if (!nulls[Anum_cancellation_tag - 1])
	{
		mark->tag = TextDatumGetCString(values[Anum_cancellation_tag - 1]);
		mark->tag_length = strlen(mark->tag);
	}
	mark->due_from = nulls[Anum_cancellation_due_from - 1] ? DT_NOBEGIN :
		DatumGetTimestampTz(values[Anum_cancellation_due_from - 1]);
	mark->due_until = nulls[Anum_cancellation_due_until - 1] ? DT_NOEND :
		DatumGetTimestampTz(values[Anum_cancellation_due_until - 1]);
}

/* For qsort() of by_owner. */
static int
compare_owners(const void *a, const void *b)
{
	const OwnerMark *left = a;
	const OwnerMark *right = b;

	if (left->any_owner != right->any_owner)
		return left->any_owner ? 1 : -1;
	return oid_cmp(&left->owner, &right->owner);
}

/* Fills by_owner from the marks of the copy. */
static void
list_by_owner(void)
{
	Size		n = 0;

	for (int i = 0; i < nmarks; i++)
		n += marks[i].any_owner ? 1 : marks[i].nowners;
	by_owner = MemoryContextAllocHuge(marks_context, Max(n, 1) * sizeof(OwnerMark));
	nby_owner = 0;
	for (int i = 0; i < nmarks; i++)
	{
		if (marks[i].any_owner)
			by_owner[nby_owner++] = (OwnerMark) {InvalidOid, true, i};
		for (int j = 0; j < marks[i].nowners; j++)
			by_owner[nby_owner++] = (OwnerMark) {marks[i].owners[j], false, i};
	}
	qsort(by_owner, nby_owner, sizeof(OwnerMark), compare_owners);
}

/*
 * Reads all marks into the copy, with a new snapshot.  Does not keep the lock of the table: a long
 * task must not block a session that wants an exclusive lock.
 */
static void
read_marks(void)
{
	MemoryContext context;
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			size = 8;

	if (marks_context == NULL)
		marks_context = AllocSetContextCreate(TopMemoryContext, "delay_wheel marks",
											  ALLOCSET_SMALL_SIZES);
	MemoryContextReset(marks_context);
	nmarks = nby_owner = 0;

	rel = table_open(dw_catalog()->cancellation, AccessShareLock);
	copy_table = RelationGetRelid(rel);
	context = MemoryContextSwitchTo(marks_context);
	marks = palloc(size * sizeof(DwMark));
	MemoryContextSwitchTo(context);
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		context = MemoryContextSwitchTo(marks_context);
		if (nmarks == size)
			marks = repalloc(marks, (size *= 2) * sizeof(DwMark));
		read_mark(rel, tuple, &marks[nmarks]);
		MemoryContextSwitchTo(context);
		nmarks++;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	list_by_owner();
}

/*
 * Brings the copy up to date.  Reads control after all that the caller has done to the task's row,
 * and before the snapshot is taken.
 */
static void
refresh_copy(void)
{
	/* the forecast can be read even if the server has not preloaded the library */
	DwDatabase *db = dw_shared != NULL ? dw_my_database() : NULL;
	uint32		control = 0;

	pg_memory_barrier();
	if (db != NULL)
		control = dw_control_read(&db->timer_news);
	if (copy_valid && !own_marks && db == copy_database && control == copy_control)
		return;

	DW_INJECT("marks-before-read");
	copy_valid = false;
	read_marks();
	copy_database = db;
	copy_control = control;
	/* if the database has no place, no control shows changes */
	copy_valid = db != NULL;
}

/*
 * Notes that this transaction writes or deletes marks.  If it commits, timer, executors
 * and sessions notice.
 */
void
dw_marks_touched(void)
{
	own_marks = true;
	dw_touch_control();
}

/* Makes this process read the marks again, since the sweeper has removed some. */
void
dw_marks_changed(void)
{
	copy_valid = false;
}

/*
 * Relcache callback: forgets the copy if the table of marks was truncated, or dropped with the
 * extension.
 */
static void
forget_copy(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == copy_table)
		copy_valid = false;
}

/* Forgets the copy at the end of a transaction that has written marks. */
static void
marks_xact_callback(XactEvent event, void *arg)
{
	if (own_marks && (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
					  event == XACT_EVENT_PREPARE))
		own_marks = copy_valid = false;
}

/* Installs the callback; called once by the postmaster. */
void
dw_marks_install(void)
{
	RegisterXactCallback(marks_xact_callback, NULL);
}

/*
 * Returns an array of all marks, and their number in *n.  Some may have been removed
 * already.  The array lasts until the next call of a function that reads marks.
 */
const DwMark *
dw_marks(int *n)
{
	static bool callback_registered = false;

	if (!callback_registered)
	{
		CacheRegisterRelcacheCallback(forget_copy, (Datum) 0);
		callback_registered = true;
	}
	refresh_copy();
	*n = nmarks;
	return marks;
}

/*
 * Does the same as dw_marks(), but reads the table, so that the result has no mark that was removed
 * before this call.  For a scan of many rows with an earlier snapshot: dw_marks_hit() is then
 * enough for each of these rows.  A row that was moved before is spared by the marks of that time.
 */
const DwMark *
dw_marks_anew(int *n)
{
	copy_valid = false;
	return dw_marks(n);
}

/*---- Which tasks a mark hits ----*/

/*
 * Fills *task from a row of delay_wheel_data.task.  The tag points into the tuple, which must live
 * as long as *task.
 */
void
dw_markable(Relation rel, HeapTuple tuple, DwMarkable *task)
{
	TupleDesc	desc = RelationGetDescr(rel);
	bool		isnull;
	Datum		value;

	task->owner = DatumGetObjectId(heap_getattr(tuple, Anum_task_owner, desc, &isnull));
	task->origin = DatumGetInt64(heap_getattr(tuple, Anum_task_origin, desc, &isnull));
	task->queue = DatumGetInt16(heap_getattr(tuple, Anum_task_queue, desc, &isnull));
	/* a leased message is due when its lease ends, but its first due time counts */
	value = heap_getattr(tuple, Anum_task_first_due, desc, &isnull);
	if (isnull)
		value = heap_getattr(tuple, Anum_task_due, desc, &isnull);
	task->due = DatumGetTimestampTz(value);
	value = heap_getattr(tuple, Anum_task_spared, desc, &isnull);
	if (isnull)
		value = heap_getattr(tuple, Anum_task_id, desc, &isnull);
	task->number = DatumGetInt64(value);
	value = heap_getattr(tuple, Anum_task_tag, desc, &isnull);
	task->tag = isnull ? NULL : (struct varlena *) DatumGetPointer(value);
}

/* Returns true if the task has the mark's tag. */
static bool
tag_is(const DwMarkable *task, const DwMark *mark)
{
	text	   *tag;
	bool		same;

	/* a tag of another length is different, and need not be detoasted */
	if (task->tag == NULL ||
		toast_raw_datum_size(PointerGetDatum(task->tag)) - VARHDRSZ != mark->tag_length)
		return false;
	tag = (text *) PG_DETOAST_DATUM_PACKED(PointerGetDatum(task->tag));
	same = memcmp(VARDATA_ANY(tag), mark->tag, mark->tag_length) == 0;
	if ((struct varlena *) tag != task->tag)
		pfree(tag);
	return same;
}

/* Returns true if the mark can hit tasks of the owner. */
bool
dw_mark_hits_owner(const DwMark *mark, Oid owner)
{
	return mark->any_owner ||
		bsearch(&owner, mark->owners, mark->nowners, sizeof(Oid), oid_cmp) != NULL;
}

/* Returns true if the mark can hit tasks of this origin, owner and queue. */
bool
dw_mark_hits_lane(const DwMark *mark, int64 origin, Oid owner, int16 queue)
{
	return (mark->ours || mark->origin == origin) &&
		dw_mark_hits_owner(mark, owner) &&
		(mark->any_queue || mark->queue == queue);
}

/* Returns true if the mark hits the task. */
bool
dw_mark_hits(const DwMark *mark, const DwMarkable *task)
{
	return task->number < mark->id &&
		task->due >= mark->due_from && task->due < mark->due_until &&
		dw_mark_hits_lane(mark, task->origin, task->owner, task->queue) &&
		(mark->tag == NULL || tag_is(task, mark));
}

/* Returns the index in by_owner of the owner's first entry, or of its place if there is none. */
static int
first_of_owner(Oid owner, bool any_owner)
{
	OwnerMark	wanted = {owner, any_owner, 0};
	int			low = 0;
	int			high = nby_owner;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (compare_owners(&by_owner[middle], &wanted) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Returns the id of the latest mark of the copy that hits the task, 0 if none does. */
static int64
latest_hit(const DwMarkable *task)
{
	int64		latest = 0;
	int			i;

	for (i = first_of_owner(task->owner, false);
		 i < nby_owner && by_owner[i].owner == task->owner; i++)
		if (dw_mark_hits(&marks[by_owner[i].mark], task))
			latest = Max(latest, marks[by_owner[i].mark].id);
	for (i = first_of_owner(InvalidOid, true); i < nby_owner; i++)
		if (dw_mark_hits(&marks[by_owner[i].mark], task))
			latest = Max(latest, marks[by_owner[i].mark].id);
	return latest;
}

/*
 * Returns true if a mark of the copy hits the task.  Does not read marks again.  The caller has
 * called dw_marks() or dw_marks_anew().
 */
bool
dw_marks_hit(Relation rel, HeapTuple tuple)
{
	DwMarkable	task;

	if (nmarks == 0)
		return false;
	dw_markable(rel, tuple, &task);
	return latest_hit(&task) != 0;
}

/*
 * Returns true if a mark of delay_cancel_all(), committed or of this transaction, hits the task.
 * Reads the marks again, with a new snapshot, if any were committed since the last call.
 *
 * No process informs others that a mark was removed.  A later move of a task may give it columns
 * that the removed mark would hit: the task is not cancelled.  So before the result is true, the
 * marks are read once more, after the row.
 */
bool
dw_task_is_cancelled(Relation rel, HeapTuple tuple)
{
	int			n;

	(void) dw_marks(&n);
	if (!dw_marks_hit(rel, tuple))
		return false;
	(void) dw_marks_anew(&n);
	return dw_marks_hit(rel, tuple);
}

/*---- The marks' own rows ----*/

/*
 * Deletes the row of a mark and returns a copy of the row; NULL if another transaction has locked
 * it, or it is gone.
 */
HeapTuple
dw_mark_take(int64 id)
{
	Relation	rel = table_open(dw_catalog()->cancellation, RowExclusiveLock);
	HeapTuple	tuple;
	ScanKeyData key;

	ScanKeyInit(&key, Anum_cancellation_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	tuple = dw_row_find(rel, dw_catalog()->cancellation_pkey, &key, NULL);
	if (tuple != NULL && dw_heap_delete(rel, &tuple->t_self, false) != TM_Ok)
		tuple = NULL;
	CommandCounterIncrement();
	table_close(rel, NoLock);
	return tuple;
}

/* Returns true if the mark is for all owners that the older one is for. */
static bool
covers_owners(const DwMark *mark, const DwMark *older)
{
	if (older->any_owner)
		return mark->any_owner;
	for (int i = 0; i < older->nowners; i++)
		if (!dw_mark_hits_owner(mark, older->owners[i]))
			return false;
	return true;
}

/* Returns true if the mark hits all tasks that the older one hits. */
static bool
covers(const DwMark *mark, const DwMark *older)
{
	return older->id < mark->id && older->origin == mark->origin &&
		covers_owners(mark, older) &&
		(mark->any_queue || (!older->any_queue && older->queue == mark->queue)) &&
		(mark->tag == NULL || (older->tag != NULL && strcmp(older->tag, mark->tag) == 0)) &&
		mark->due_from <= older->due_from && mark->due_until >= older->due_until;
}

/*
 * Deletes the marks that are needless, since the mark with this id, of this transaction, hits all
 * their tasks.  Leaves marks that another transaction has locked.
 */
void
dw_marks_supersede(int64 id)
{
	int			n;
	const DwMark *all = dw_marks(&n);
	const DwMark *mark = NULL;

	for (int i = 0; i < n; i++)
		if (all[i].id == id)
			mark = &all[i];
	for (int i = 0; i < n && mark != NULL; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (covers(mark, &all[i]))
			(void) dw_mark_take(all[i].id);
	}
}

/*
 * Protects a task that is moved or put back from the present marks; later marks may cancel it.
 * Sets the column "spared" to the id of the latest mark that would hit the row with these columns.
 * Leaves the column unchanged if no mark would hit it.
 */
void
dw_marks_spare(Datum *values, bool *nulls)
{
	int			n;
	DwMarkable	task;
	int64		latest;

	(void) dw_marks(&n);
	if (n == 0)
		return;
	task.number = DatumGetInt64(nulls[Anum_task_spared - 1] ? values[Anum_task_id - 1] :
								values[Anum_task_spared - 1]);
	task.origin = DatumGetInt64(values[Anum_task_origin - 1]);
	task.owner = DatumGetObjectId(values[Anum_task_owner - 1]);
	task.queue = DatumGetInt16(values[Anum_task_queue - 1]);
	task.due = DatumGetTimestampTz(values[Anum_task_due - 1]);
	task.tag = nulls[Anum_task_tag - 1] ? NULL :
		(struct varlena *) DatumGetPointer(values[Anum_task_tag - 1]);
	latest = latest_hit(&task);
	if (latest == 0)
		return;
	values[Anum_task_spared - 1] = Int64GetDatum(latest);
	nulls[Anum_task_spared - 1] = false;
}

/*
 * Deletes all marks that came with a copy of another database; called by delay_wheel.arm() when no
 * task is left that they could hit.  Waits for the locks of the rows.
 */
void
dw_marks_armed(void)
{
	Relation	rel = table_open(dw_catalog()->cancellation, RowExclusiveLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	while ((tuple = systable_getnext(scan)) != NULL)
	{
		bool		isnull;
		Datum		origin = heap_getattr(tuple, Anum_cancellation_origin,
										  RelationGetDescr(rel), &isnull);

		if (DatumGetInt64(origin) == dw_origin_stamp())
			continue;
		dw_marks_touched();
		(void) dw_heap_delete(rel, &tuple->t_self, true);
	}
	systable_endscan(scan);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

/*
 * Returns true if there are marks of this database, so that the sweeper has work.  For the timer,
 * which has opened and locked the table of marks; uses the active snapshot.
 */
bool
dw_sweep_needed(Relation rel)
{
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	HeapTuple	tuple;
	bool		found = false;

	while (!found && (tuple = systable_getnext(scan)) != NULL)
	{
		bool		isnull;
		Datum		origin = heap_getattr(tuple, Anum_cancellation_origin,
										  RelationGetDescr(rel), &isnull);

		found = DatumGetInt64(origin) == dw_origin_stamp();
	}
	systable_endscan(scan);
	return found;
}
