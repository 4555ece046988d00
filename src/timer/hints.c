/*-------------------------------------------------------------------------
 *
 * hints.c
 *	  Handles the hints of committed tasks.
 *
 * Run by the timer.  Steps D1 to D4 of the model in test/model; near.c has D2 to D4.
 *
 * A load reads a row as soon as its commit is visible.  The session that commits sends its hint a
 * moment later, so the task would be in memory twice.  An executor that took the task a second time
 * would find no row.  But a message that waits for a receiver, or a task that waits in a paused
 * queue, would be counted twice.
 *
 * The timer may drop a hint only if the load has seen all changes that the hint reports.  So loads
 * are numbered.  After a session has written its rows, and before its commit is visible, it reads
 * the number of the last load (DwHint.loads).  If a later load has read a row of this task at this
 * TID, the load has read the committed row and not an older row.  All further loads read the row,
 * too, if it still exists.  A hint can report another change than a written row, such as the end of
 * a lock.  Such a hint gets the number of the last load when it is sent, so no stored load is
 * later.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "timer.h"

/* Number of rows that are stored: the last ones, by id. */
#define NREMEMBERED		4096
/* Maximum number of hints that the timer takes from the inbox in one step. */
#define INBOX_SLICE		256

typedef struct Loaded
{
	int64		id;				/* 0: unused */
	TimestampTz due;
	ItemPointerData tid;
	uint32		load;			/* number of the load */
} Loaded;

static DwDatabase *db = NULL;
static Loaded *remembered = NULL;

/* Hints of tasks in lanes with groups, whose rows must be read. */
static DwHint to_read[INBOX_SLICE];
static int	nto_read = 0;

/* Initializes this file, without stored rows. */
void
dw_hints_begin(DwDatabase *database)
{
	db = database;
	remembered = MemoryContextAllocZero(TopMemoryContext, NREMEMBERED * sizeof(Loaded));
}

/*---- Rows that loads have read recently ----*/

/* Returns the element for a task. */
static Loaded *
place_of(int64 id)
{
	return &remembered[(uint64) id % NREMEMBERED];
}

/* Stores that the load has put the task of this row into memory. */
void
dw_loaded_note(const DwTaskKey *key)
{
	*place_of(key->id) = (Loaded) {
		.id = key->id, .due = key->due, .tid = key->tid, .load = dw_loads_read(&db->timer_news)
	};
}

/* Step D2l: returns true if a load has read all changes that the hint reports. */
static bool
was_loaded(const DwHint *hint)
{
	Loaded	   *loaded = place_of(hint->id);
	ItemPointerData tid = hint->tid;
	uint32		now = dw_loads_read(&db->timer_news);
	/* a hint has only the low 16 bits; if it comes very late, it looks newer and is not dropped */
	uint32		seen = (uint16) (now - hint->loads);
	uint32		since = now - loaded->load;

	/* an entry with a group has no TID, so ItemPointerEquals() would fail an assertion */
	return loaded->id == hint->id && loaded->due == hint->due &&
		ItemPointerCompare(&loaded->tid, &tid) == 0 && since < seen;
}

/*---- Hints ----*/

/*
 * For dw_read(): puts the tasks of to_read into memory, with their groups, which hints do not have.
 * If a task was moved, the session that moved the task sends another hint.
 */
static bool
add_grouped(Relation rel, void *arg)
{
	for (int i = 0; i < nto_read; i++)
	{
		HeapTuple	tuple = dw_task_find(rel, to_read[i].id, GetActiveSnapshot());
		DwTaskKey	key;

		if (tuple == NULL)
			continue;
		dw_task_key(rel, tuple, &key);
		if (key.due == to_read[i].due)
		{
			DwEntry		entry = {.due = key.due, .id = key.id, .lane = to_read[i].lane.index};

			dw_entry_set_group(&entry, key.group);
			dw_near_take(&entry, &key.tid, true);
		}
		heap_freetuple(tuple);
	}
	return true;
}

/* Handles the hints that dw_hint_take() has left in to_read. */
void
dw_hints_read_rest(void)
{
	if (nto_read > 0 && dw_read(db, "load tasks", add_grouped, NULL) != DW_READ_DONE)
	{
		for (int i = 0; i < nto_read; i++)
			dw_near_cut(&dw_lanes[to_read[i].lane.index], to_read[i].due, to_read[i].id);
		dw_near_apply_cuts();
	}
	nto_read = 0;
}

/* Steps D1 to D4: handles a hint of a committed task, or leaves it to dw_hints_read_rest(). */
void
dw_hint_take(const DwHint *hint)
{
	DwLane	   *lane = &dw_lanes[hint->lane.index];
	DwEntry		entry = {.due = hint->due, .id = hint->id, .lane = hint->lane.index};
	bool		before_cursor;

	if (pg_atomic_read_u32(&lane->generation) != hint->lane.generation ||
		lane->database != db->oid)
	{
		/* the lane was given back after the hint was made */
		dw_reload_ask(&db->timer_news, hint->due);
		return;
	}
	before_cursor = dw_near_is_before_cursor(lane, hint->due, hint->id);
	if (before_cursor && was_loaded(hint))
		return;
	entry.block = ItemPointerGetBlockNumberNoCheck(&hint->tid);
	entry.offset = ItemPointerGetOffsetNumberNoCheck(&hint->tid);
	if (lane->grouped && before_cursor && nto_read < INBOX_SLICE)
		to_read[nto_read++] = *hint;
	else
		dw_near_take(&entry, NULL, !lane->grouped);
}

/* Handles hints of the inbox, INBOX_SLICE at most.  Returns true if there were hints. */
bool
dw_hints_drain_inbox(void)
{
	DwHint		hints[INBOX_SLICE];
	uint32		n = dw_inbox_drain(db->inbox, hints, INBOX_SLICE);

	if (n > 0)
		DW_INJECT("drain-after-take");
	for (uint32 i = 0; i < n; i++)
		dw_hint_take(&hints[i]);
	dw_hints_read_rest();
	return n > 0;
}
