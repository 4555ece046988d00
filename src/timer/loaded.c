/*-------------------------------------------------------------------------
 *
 * loaded.c
 *	  Rows that loads have read of late, so that their hints are superfluous.
 *
 * Run by the timer.  A load reads a row as soon as its commit is visible.  The session that
 * commits sends its hint a moment later, and the task would be in memory twice.  An executor
 * that took it a second time would find that it is gone.  But a message that nobody receives,
 * or a task of a queue that is paused, would be counted twice for as long as it waits.
 *
 * So the timer remembers what it has loaded, and drops a hint of the very same row.  That is
 * safe only if the hint does not tell more than the load has seen.  Loads have numbers.  A
 * session notes the number of the last load before its commit is visible, when the rows that it
 * has written are in place (DwHint.loads).  A later load that met a row of this task at this
 * place has met the row that was committed, and not an older one that was there before; all
 * loads that follow see it, too, if it is still there.  A hint that tells of anything else than
 * a row that was written, such as the end of a lock, has the number of the load that was last
 * when it was sent: so none that was remembered is later.
 *
 * Only the last rows are remembered, by their ids.  A hint that is not dropped costs what is
 * said above, and no more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "../shmem/timer_news.h"
#include "timer.h"

/* How many rows are remembered. */
#define NREMEMBERED		4096

typedef struct Loaded
{
	int64		id;				/* 0: nothing is remembered here */
	TimestampTz due;
	ItemPointerData tid;
	uint32		load;			/* the number of the load */
} Loaded;

static DwDatabase *db = NULL;
static Loaded *remembered = NULL;

/* Remembers nothing. */
void
dw_loaded_reset(DwDatabase *database)
{
	db = database;
	remembered = MemoryContextAllocZero(TopMemoryContext, NREMEMBERED * sizeof(Loaded));
}

/* The place of a task. */
static Loaded *
place_of(int64 id)
{
	return &remembered[(uint64) id % NREMEMBERED];
}

/*
 * Step L4n of the model in test/model: a load has its snapshot, and is about to read.  The number
 * is raised after the snapshot was taken: who sees this number before a commit becomes visible
 * knows that the load does not see it.  Raised before, hints would be kept that are superfluous,
 * but none would be lost.
 */
void
dw_loaded_begin(void)
{
	dw_loads_raise(&db->timer_news);
}

/* The load has put the task of this row into memory. */
void
dw_loaded_note(const DwTaskKey *key)
{
	*place_of(key->id) = (Loaded) {
		.id = key->id, .due = key->due, .tid = key->tid, .load = dw_loads_read(&db->timer_news)
	};
}

/* Step D2l: true if what the hint tells of has been read by a load. */
bool
dw_loaded_has(const DwHint *hint)
{
	Loaded	   *loaded = place_of(hint->id);
	ItemPointerData tid = hint->tid;
	uint32		now = dw_loads_read(&db->timer_news);
	/* a hint has the last digits only; one that took too long for them seems to be newer */
	uint32		seen = (uint16) (now - hint->loads);
	uint32		since = now - loaded->load;

	/* an entry with a group has no TID, so ItemPointerEquals() would fail an assertion */
	return loaded->id == hint->id && loaded->due == hint->due &&
		ItemPointerCompare(&loaded->tid, &tid) == 0 && since < seen;
}
