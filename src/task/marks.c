/*-------------------------------------------------------------------------
 *
 * marks.c
 *	  Cancelling many tasks by one mark.
 *
 * delay_cancel_all() does not touch the tasks: it writes one row that says
 * which ones are cancelled, however many there are.  From its commit on they
 * are gone for everybody who asks dw_task_is_cancelled(); the sweeper
 * (sweep.c) removes their rows, and in the end the mark.
 *
 * Which ones: those that match and have a lower number than the mark.  Both
 * numbers come from one sequence, so tasks are hit that were scheduled before
 * it, also by transactions that have not committed yet, or are prepared; and
 * no other ones.  A task keeps its number when it is moved or tried again.
 *
 * Numbers count within one origin: a mark that came with a copy of another
 * database (copies.c) hits what came with it, and nothing else.  It is not
 * swept, since more tasks of that origin may come; delay_arm() ends it.
 *
 * No claim succeeds after the commit of a mark has returned: who commits one
 * raises db->control when it is visible to everybody, and before its client
 * hears of it (touched.c).  An executor reads db->control after it has
 * deleted the task's row.  Either it finds the new number, and reads the marks
 * with a snapshot taken then; or it has read before the number was raised, and
 * so had claimed the task before the commit returned: then the task is
 * running.  COMMIT PREPARED raises the number, too.
 *
 * Each process keeps a copy of the marks.  It lacks none as long as db->control
 * is as it was read before the snapshot of that copy was taken, and this
 * transaction has written none itself; but it may have some that are gone.
 * Mostly there are none: then all this is a comparison of two numbers.
 *
 * Which marks may hit a task is found by its owner, so the marks of one role cost
 * another one's tasks nothing but the memory, which is bounded: a role that is no
 * superuser can have only so many (cancellations.c).
 *
 * Run by backends, executors, the sweeper; and by timers, which have locked
 * the table before.  Marks are written by cancellations.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/heapam.h"
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
#include "my_session.h"
#include "touched.h"

/* This process's copy. */
static DwMark *marks = NULL;
static int	nmarks = 0;
static MemoryContext marks_context = NULL;

/* Its marks by owner, in that order; those of any owner come last. */
typedef struct OwnerMark
{
	Oid			owner;
	bool		any_owner;
	int			mark;
} OwnerMark;

static OwnerMark *by_owner = NULL;
static int	nby_owner = 0;

/* What it holds for; the numbers are those from before it was read. */
static bool copy_valid = false;
static DwDatabase *copy_database;
static uint32 copy_control;
static Oid	copy_table = InvalidOid;

/* This transaction has written a mark, and may yet take it back. */
static bool own_marks = false;

/*---- Reading ----*/

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

static int
compare_owners(const void *a, const void *b)
{
	const OwnerMark *left = a;
	const OwnerMark *right = b;

	if (left->any_owner != right->any_owner)
		return left->any_owner ? 1 : -1;
	return oid_cmp(&left->owner, &right->owner);
}

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
 * All marks, with a snapshot taken now.  The lock is not kept, so that a long
 * task does not stand in the way of who wants the table for himself.
 */
static void
read_marks(void)
{
	MemoryContext context;
	Relation	rel;
	Snapshot	snapshot;
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
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
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
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	list_by_owner();
}

/*
 * Brings the copy up to date.  What the caller has done to the task's row
 * comes before db->control is read, and that before the snapshot.
 */
static void
refresh(void)
{
	/* the forecast can be read without the library preloaded */
	DwDatabase *db = dw_shared != NULL ? dw_my_database() : NULL;
	uint32		control = 0;

	pg_memory_barrier();
	if (db != NULL)
		control = pg_atomic_read_u32(&db->control);
	if (copy_valid && !own_marks && db == copy_database && control == copy_control)
		return;

	DW_INJECT("marks-before-read");
	copy_valid = false;
	read_marks();
	copy_database = db;
	copy_control = control;
	/* nobody tells of marks where there is no place for the database */
	copy_valid = db != NULL;
}

/* This transaction writes marks: tell timer and executors, if it commits. */
void
dw_marks_touched(void)
{
	own_marks = true;
	dw_touch_control();
}

/* What this process knows of them is not to be trusted any more. */
void
dw_marks_changed(void)
{
	copy_valid = false;
}

/* Somebody has truncated the table, or dropped it with the extension. */
static void
forget_copy(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == copy_table)
		copy_valid = false;
}

static void
marks_xact_callback(XactEvent event, void *arg)
{
	if (own_marks && (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
					  event == XACT_EVENT_PREPARE))
		own_marks = copy_valid = false;
}

/* Called once by the postmaster. */
void
dw_marks_install(void)
{
	RegisterXactCallback(marks_xact_callback, NULL);
}

/* All there are, in a memory that lasts until the next call of any of these. */
const DwMark *
dw_marks(int *n)
{
	static bool callback_registered = false;

	if (!callback_registered)
	{
		CacheRegisterRelcacheCallback(forget_copy, (Datum) 0);
		callback_registered = true;
	}
	refresh();
	*n = nmarks;
	return marks;
}

const DwMark *
dw_marks_anew(int *n)
{
	copy_valid = false;
	return dw_marks(n);
}

/*---- Matching ----*/

void
dw_markable(Relation rel, HeapTuple tuple, DwMarkable *task)
{
	TupleDesc	desc = RelationGetDescr(rel);
	bool		isnull;
	Datum		value;

	task->owner = DatumGetObjectId(heap_getattr(tuple, Anum_task_owner, desc, &isnull));
	task->origin = DatumGetInt64(heap_getattr(tuple, Anum_task_origin, desc, &isnull));
	task->queue = DatumGetInt16(heap_getattr(tuple, Anum_task_queue, desc, &isnull));
	task->due = DatumGetTimestampTz(heap_getattr(tuple, Anum_task_due, desc, &isnull));
	value = heap_getattr(tuple, Anum_task_spared, desc, &isnull);
	if (isnull)
		value = heap_getattr(tuple, Anum_task_id, desc, &isnull);
	task->number = DatumGetInt64(value);
	value = heap_getattr(tuple, Anum_task_tag, desc, &isnull);
	task->tag = isnull ? NULL : (struct varlena *) DatumGetPointer(value);
}

static bool
tag_is(const DwMarkable *task, const DwMark *mark)
{
	text	   *tag;
	bool		same;

	/* without unpacking those that cannot be the same */
	if (task->tag == NULL ||
		toast_raw_datum_size(PointerGetDatum(task->tag)) - VARHDRSZ != mark->tag_length)
		return false;
	tag = (text *) PG_DETOAST_DATUM_PACKED(PointerGetDatum(task->tag));
	same = memcmp(VARDATA_ANY(tag), mark->tag, mark->tag_length) == 0;
	if ((struct varlena *) tag != task->tag)
		pfree(tag);
	return same;
}

bool
dw_mark_hits_owner(const DwMark *mark, Oid owner)
{
	return mark->any_owner ||
		bsearch(&owner, mark->owners, mark->nowners, sizeof(Oid), oid_cmp) != NULL;
}

bool
dw_mark_hits_lane(const DwMark *mark, int64 origin, Oid owner, int16 queue)
{
	return (mark->ours || mark->origin == origin) &&
		dw_mark_hits_owner(mark, owner) &&
		(mark->any_queue || mark->queue == queue);
}

bool
dw_mark_hits(const DwMark *mark, const DwMarkable *task)
{
	return task->number < mark->id &&
		task->due >= mark->due_from && task->due < mark->due_until &&
		dw_mark_hits_lane(mark, task->origin, task->owner, task->queue) &&
		(mark->tag == NULL || tag_is(task, mark));
}

/* The first place in the list that is not before these. */
static int
first_of(Oid owner, bool any_owner)
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

/* The number of the latest mark that hits the task, 0 if none does. */
static int64
latest_hit(const DwMarkable *task)
{
	int64		latest = 0;
	int			i;

	for (i = first_of(task->owner, false); i < nby_owner && by_owner[i].owner == task->owner; i++)
		if (dw_mark_hits(&marks[by_owner[i].mark], task))
			latest = Max(latest, marks[by_owner[i].mark].id);
	for (i = first_of(InvalidOid, true); i < nby_owner; i++)
		if (dw_mark_hits(&marks[by_owner[i].mark], task))
			latest = Max(latest, marks[by_owner[i].mark].id);
	return latest;
}

bool
dw_marks_hit(Relation rel, HeapTuple tuple)
{
	DwMarkable	task;

	if (nmarks == 0)
		return false;
	dw_markable(rel, tuple, &task);
	return latest_hit(&task) != 0;
}

static bool
is_hit(Relation rel, HeapTuple tuple)
{
	int			n;

	(void) dw_marks(&n);
	return dw_marks_hit(rel, tuple);
}

/*
 * Is the task hit by a mark of delay_cancel_all(), committed or of this very
 * transaction?  Reads the marks anew if any was committed since the last
 * call, with a snapshot of its own.
 *
 * Nobody tells that a mark was removed.  A task that was moved to where it
 * would hit is not hit by one that is no more, so what the copy says is not
 * believed before the marks were read after the row.
 */
bool
dw_task_is_cancelled(Relation rel, HeapTuple tuple)
{
	if (!is_hit(rel, tuple))
		return false;
	copy_valid = false;
	return is_hit(rel, tuple);
}

/*---- The marks' own rows ----*/

/* The row of a mark as it is now, or NULL. */
static HeapTuple
find_mark(Relation rel, int64 id)
{
	ScanKeyData key;

	ScanKeyInit(&key, Anum_cancellation_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	return dw_find_now(rel, dw_catalog()->cancellation_pkey, &key);
}

/*
 * Deletes the row of a mark, and returns what was in it; NULL if it is locked.
 */
HeapTuple
dw_mark_take(int64 id)
{
	Relation	rel = table_open(dw_catalog()->cancellation, RowExclusiveLock);
	HeapTuple	tuple = find_mark(rel, id);
	TM_FailureData failure;

	if (tuple != NULL &&
		heap_delete(rel, &tuple->t_self, GetCurrentCommandId(true), InvalidSnapshot, false,
					&failure, false) != TM_Ok)
		tuple = NULL;
	CommandCounterIncrement();
	table_close(rel, NoLock);
	return tuple;
}

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

/* Does the mark hit all that the other one hits? */
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
 * Deletes the marks that hit nothing but what this one, of this transaction, hits.
 * Those that others have locked are left.
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

/*---- Tasks that are spared ----*/

/*
 * For a task that is moved, or put back, by who knows about the marks there
 * are: the number of the latest one that hits the row as it is to be written,
 * for its column spared, so that only later ones hit it; 0 if none does.
 */
int64
dw_mark_on_row(const Datum *values, const bool *nulls)
{
	int			n;
	DwMarkable	task;

	(void) dw_marks(&n);
	if (n == 0)
		return 0;
	task.number = DatumGetInt64(nulls[Anum_task_spared - 1] ? values[Anum_task_id - 1] :
								values[Anum_task_spared - 1]);
	task.origin = DatumGetInt64(values[Anum_task_origin - 1]);
	task.owner = DatumGetObjectId(values[Anum_task_owner - 1]);
	task.queue = DatumGetInt16(values[Anum_task_queue - 1]);
	task.due = DatumGetTimestampTz(values[Anum_task_due - 1]);
	task.tag = nulls[Anum_task_tag - 1] ? NULL :
		(struct varlena *) DatumGetPointer(values[Anum_task_tag - 1]);
	return latest_hit(&task);
}

/* delay_arm() has left nothing (else) that came with a copy. */
void
dw_marks_armed(void)
{
	Relation	rel = table_open(dw_catalog()->cancellation, RowExclusiveLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	HeapTuple	tuple;

	while ((tuple = systable_getnext(scan)) != NULL)
	{
		TM_FailureData failure;
		bool		isnull;
		Datum		origin = heap_getattr(tuple, Anum_cancellation_origin, RelationGetDescr(rel), &isnull);

		if (DatumGetInt64(origin) == dw_origin_stamp())
			continue;
		dw_marks_touched();
		(void) heap_delete(rel, &tuple->t_self, GetCurrentCommandId(true),
						   InvalidSnapshot, true, &failure, false);
	}
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

/* Are there marks of this database?  For timers, with the table locked. */
bool
dw_sweep_needed(Relation rel)
{
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	HeapTuple	tuple;
	bool		found = false;

	while (!found && (tuple = systable_getnext(scan)) != NULL)
	{
		bool		isnull;
		Datum		origin = heap_getattr(tuple, Anum_cancellation_origin, RelationGetDescr(rel), &isnull);

		found = DatumGetInt64(origin) == dw_origin_stamp();
	}
	systable_endscan(scan);
	return found;
}
