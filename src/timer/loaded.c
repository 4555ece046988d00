/*-------------------------------------------------------------------------
 *
 * loaded.c
 *	  Remembers rows that loads have read recently, to drop superfluous hints of these rows.
 *
 * Run by the timer.  A load reads a row as soon as its commit is visible.  The session that commits
 * sends its hint a moment later, and the task would be in memory twice.  An executor that took the
 * task a second time would find that its row is gone.  But a message that nobody receives, or a
 * task of a paused queue, would be counted twice while it waits.
 *
 * So the timer remembers loaded rows, and drops a hint of the same row.  That is safe only if the
 * load has seen all changes that the hint reports.  So loads are numbered.  After a session has
 * written its rows, and before its commit is visible, it reads the number of the last load
 * (DwHint.loads).  If a later load has met a row of this task at this TID, it was the committed row
 * and not an older row.  All further loads see it, too, if it is still there.  A hint that reports
 * another change than a written row, such as the end of a lock, gets the number of the last load
 * when it is sent, so no remembered load is later.
 *
 * Only the last rows are remembered, by id.  A superfluous hint that is kept has only the cost
 * described above.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "../shmem/timer_news.h"
#include "timer.h"

/* Number of rows that are remembered. */
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

/* Starts with no row remembered. */
void
dw_loaded_reset(DwDatabase *database)
{
	db = database;
	remembered = MemoryContextAllocZero(TopMemoryContext, NREMEMBERED * sizeof(Loaded));
}

/* Returns the place of a task. */
static Loaded *
place_of(int64 id)
{
	return &remembered[(uint64) id % NREMEMBERED];
}

/*
 * Step L4n of the model in test/model: numbers a load that has its snapshot and is about to read.
 * The number is incremented after the snapshot was taken.  So if a session reads the new number
 * before its commit is visible, the load does not see the commit.  If the number were incremented
 * before, superfluous hints would be kept, but no hint would be lost.
 */
void
dw_loaded_begin(void)
{
	dw_loads_raise(&db->timer_news);
}

/* Remembers that the load has put the task of this row into memory. */
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
	/* a hint has only the low 16 bits; if it comes very late, it looks newer and is kept */
	uint32		seen = (uint16) (now - hint->loads);
	uint32		since = now - loaded->load;

	/* an entry with a group has no TID, so ItemPointerEquals() would fail an assertion */
	return loaded->id == hint->id && loaded->due == hint->due &&
		ItemPointerCompare(&loaded->tid, &tid) == 0 && since < seen;
}
