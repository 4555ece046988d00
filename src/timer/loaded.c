/*-------------------------------------------------------------------------
 *
 * loaded.c
 *	  Stores which rows loads have read recently, to drop superfluous hints of these rows.
 *
 * Run by the timer.  A load reads a row as soon as its commit is visible.  The session that commits
 * sends its hint a moment later, so the task would be in memory twice.  An executor that took the
 * task a second time would find no row.  But a message that waits for a receiver, or a task that
 * waits in a paused queue, would be counted twice.
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

typedef struct Loaded
{
	int64		id;				/* 0: unused */
	TimestampTz due;
	ItemPointerData tid;
	uint32		load;			/* number of the load */
} Loaded;

static DwDatabase *db = NULL;
static Loaded *remembered = NULL;

/* Begins without stored rows. */
void
dw_loaded_reset(DwDatabase *database)
{
	db = database;
	remembered = MemoryContextAllocZero(TopMemoryContext, NREMEMBERED * sizeof(Loaded));
}

/* Returns the element for a task. */
static Loaded *
place_of(int64 id)
{
	return &remembered[(uint64) id % NREMEMBERED];
}

/*
 * Step L4n of the model in test/model: gives a number to a load that has taken its snapshot and is
 * about to read.  If a session reads the new number before its commit is visible, the load does not
 * see the commit.  If the number were incremented before the snapshot, superfluous hints would be
 * kept, but no hint would be lost.
 */
void
dw_loaded_begin(void)
{
	dw_loads_raise(&db->timer_news);
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
bool
dw_loaded_has(const DwHint *hint)
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
