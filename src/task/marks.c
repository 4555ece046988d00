/*-------------------------------------------------------------------------
 *
 * marks.c
 *	  Marks: rows that cancel many tasks at once.
 *
 * Run by sessions, executors and the sweeper.  The timer, which must not wait, first locks the
 * table of marks.  backend/cancel_all.c writes marks, sweeper/sweep.c removes them, and README.md
 * describes which tasks a mark hits, and why no claim succeeds after its commit has returned.
 *
 * Each process keeps a copy of the marks.  The copy is complete while control has the value that
 * was read before the copy's snapshot, and this transaction has written no mark.  But the copy may
 * contain marks that were removed later.  Mostly there are no marks: then the whole test is a
 * comparison of two numbers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../base/inject.h"
#include "task.h"

/* This process's copy of the marks. */
static DwMark *marks = NULL;
static int	nmarks = 0;
static MemoryContext marks_context = NULL;

/*
 * A list of owners and their marks in the copy, sorted by owner, so that marks of one role do not
 * slow down tasks of other roles.  A mark for several owners has several entries in the list.
 */
typedef struct OwnerMark
{
	Oid			owner;			/* InvalidOid: all owners.  Must be first, for oid_cmp() */
	int			mark;			/* index into marks */
} OwnerMark;

static OwnerMark *by_owner = NULL;
static int	nby_owner = 0;

/*
 * True if the copy can be used.  The copy belongs to this database, this table, and this value of
 * control, which was read before the marks.
 */
static bool copy_valid = false;
static DwDatabase *copy_database;
static uint32 copy_control;
static Oid	copy_table = InvalidOid;

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
			by_owner[nby_owner++] = (OwnerMark) {InvalidOid, i};
		for (int j = 0; j < marks[i].nowners; j++)
			by_owner[nby_owner++] = (OwnerMark) {marks[i].owners[j], i};
	}
	qsort(by_owner, nby_owner, sizeof(OwnerMark), oid_cmp);
}

/*
 * Reads all marks into the copy, with a new snapshot.  Releases the lock of the table, since a long
 * task must not block a session that wants an exclusive lock.
 */
static void
read_marks(void)
{
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			size = 0;

	if (marks_context == NULL)
		marks_context = AllocSetContextCreate(TopMemoryContext, "delay_wheel marks",
											  ALLOCSET_SMALL_SIZES);
	MemoryContextReset(marks_context);
	marks = NULL;
	nmarks = nby_owner = 0;

	rel = table_open(dw_catalog()->cancellation, AccessShareLock);
	copy_table = RelationGetRelid(rel);
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		MemoryContext outer = MemoryContextSwitchTo(marks_context);

		CHECK_FOR_INTERRUPTS();
		marks = dw_reserve(marks, nmarks, &size, sizeof(DwMark), marks_context);
		read_mark(rel, tuple, &marks[nmarks]);
		MemoryContextSwitchTo(outer);
		nmarks++;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	list_by_owner();
}

/*
 * Brings the copy up to date.  Reads control after the caller's changes of the task's row, and
 * before the snapshot is taken.
 */
static void
refresh_copy(void)
{
	/* views of the forecast call this even if the library is not preloaded */
	DwDatabase *db = dw_shared != NULL ? dw_my_database() : NULL;
	uint32		control = 0;

	pg_memory_barrier();
	if (db != NULL)
		control = dw_control_read(&db->timer_news);
	if (copy_valid && !dw_control_is_touched() && db == copy_database && control == copy_control)
		return;

	DW_INJECT("marks-before-read");
	copy_valid = false;
	read_marks();
	copy_database = db;
	copy_control = control;
	/*
	 * A database without a place has no control that shows changes.  Marks of this transaction may
	 * be rolled back.
	 */
	copy_valid = db != NULL && !dw_control_is_touched();
}

/* Makes this process read the marks again, since the sweeper has removed marks. */
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

/*
 * Returns an array of all marks, and their number in *n.  Some of the marks may have been removed
 * already.  The array is valid until the next call of a function that reads marks.
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
 * Does the same as dw_marks(), but reads the table, so that the result contains no mark that was
 * removed before this call.  A caller that scans many rows with an earlier snapshot then needs only
 * dw_marks_hit() for each row, since a moved row is spared by the marks that existed at its move.
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

	task->owner = DatumGetObjectId(dw_row_column(rel, tuple, Anum_task_owner));
	task->origin = DatumGetInt64(dw_row_column(rel, tuple, Anum_task_origin));
	task->queue = DatumGetInt16(dw_row_column(rel, tuple, Anum_task_queue));
	/* the due time of a leased message is the end of the lease, but its first due time counts */
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

	/* do not detoast a tag of another length, which is different anyway */
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

/* Returns the index of the owner's first entry in by_owner, or the place for such an entry. */
static int
first_of_owner(Oid owner)
{
	int			low = 0;
	int			high = nby_owner;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (by_owner[middle].owner < owner)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Returns the id of the latest mark of the copy that hits the task, 0 if no mark hits it. */
static int64
latest_hit(const DwMarkable *task)
{
	const Oid	owners[] = {task->owner, InvalidOid};
	int64		latest = 0;

	for (int n = 0; n < lengthof(owners); n++)
		for (int i = first_of_owner(owners[n]);
			 i < nby_owner && by_owner[i].owner == owners[n]; i++)
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
 * If a mark was committed since the last call, first reads the marks again, with a new snapshot.
 *
 * No process reports the removal of a mark to other processes.  After a later move, a task may have
 * columns that the removed mark would hit, but the task is not cancelled.  So before this function
 * returns true, it reads the marks once more, after the row.
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
 * Deletes the row of a mark and returns a copy of the row; NULL if the row is gone, or another
 * transaction has locked it.
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

/* Returns true if the mark hits tasks of all owners of the older mark. */
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

/* Returns true if the mark hits all tasks that the older mark hits. */
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
 * Deletes older marks if the new mark with this id, of this transaction, hits all their tasks.
 * Leaves marks that another transaction has locked.
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
 * When a task is moved or put back, protects the task from the present marks, but not from later
 * marks.  Sets the column "spared" to the id of the latest mark that would hit the row with these
 * columns.  Leaves the column unchanged if no mark would hit the row.
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
 * Deletes all marks that came with a copy of another database.  delay_wheel.arm() calls this when
 * the marks can hit no task any more.  Waits for the locks of the rows.
 */
void
dw_marks_armed(void)
{
	Relation	rel = table_open(dw_catalog()->cancellation, RowExclusiveLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	while ((tuple = systable_getnext(scan)) != NULL)
	{
		if (DatumGetInt64(dw_row_column(rel, tuple, Anum_cancellation_origin)) == dw_origin_stamp())
			continue;
		dw_touch(DW_CONTROL_CHANGED);
		(void) dw_heap_delete(rel, &tuple->t_self, true);
	}
	systable_endscan(scan);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

/*
 * Returns true if marks of this database exist, so that the sweeper has work.  Uses the active
 * snapshot.  Called by the timer, which has opened and locked the table of marks.
 */
bool
dw_sweep_needed(Relation rel)
{
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	HeapTuple	tuple;
	bool		found = false;

	while (!found && (tuple = systable_getnext(scan)) != NULL)
		found = DatumGetInt64(dw_row_column(rel, tuple, Anum_cancellation_origin)) ==
			dw_origin_stamp();
	systable_endscan(scan);
	return found;
}
