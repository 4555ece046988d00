/*-------------------------------------------------------------------------
 *
 * keys.h
 *	  Keys: at most one pending task for each owner, queue and key.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_KEYS_H
#define DW_KEYS_H

#include "postgres.h"

#include "access/htup.h"
#include "pending.h"
#include "utils/relcache.h"

/* Of the pending tasks with all three the same, there is one at most. */
typedef struct DwKey
{
	Oid			owner;
	int16		queue;
	text	   *key;
} DwKey;

/* What to do if a task of the key is pending. */
typedef enum DwIfExists
{
	DW_KEEP,					/* leave it as it is */
	DW_REPLACE,					/* delete it */
	DW_RAISE					/* error */
} DwIfExists;

/* In bytes, so that an entry of the index has room. */
#define DW_MAX_KEY	1000

/* Of tasks that are given up since there is a newer one. */
#define DW_SUPERSEDED_MESSAGE	"a newer task of the same key is pending or running"

/*
 * Makes room for a new task of the key.  True: the caller is to insert its row
 * and then to call dw_key_leave(), until when others of this key wait.  False:
 * *kept is pending, and will not begin before the end of this transaction.
 * The table is open, locked for writing.
 */
extern bool dw_key_enter(Relation rel, const DwKey *key, DwIfExists if_exists, int64 *kept);
extern void dw_key_leave(void);

/*
 * The same for a task that has failed and is to be put back.  False: there is
 * another one that is pending, or a newer one that runs.
 */
extern bool dw_key_enter_again(Relation rel, const DwKey *key, int64 id);

/* Cancels the pending task of a key. */
extern DwTaken dw_key_cancel(Relation rel, const DwKey *key);

/*
 * Is there a newer task of the same key, pending or running?  Then this row
 * is not a pending task any more, whatever it says.
 */
extern bool dw_task_is_superseded(Relation rel, HeapTuple tuple);

/*
 * For who inserts the row of a task again, and for executors, from before they
 * delete it until it is decided whether it is run.  True if it has a key: then
 * they are to call dw_key_leave().
 */
extern bool dw_key_lock_of(Relation rel, HeapTuple tuple);

/*
 * For executors, in between: false if the task is superseded.  Else older ones
 * of its key go to the failed tasks.
 */
extern bool dw_key_claimed(Relation rel, HeapTuple tuple);

/*
 * For executors whose task has failed: may its row, with the same id, be
 * inserted again?  If not, *newer is the task that is pending or running
 * instead.  The key stays locked until the end of this transaction, which
 * must be near: nothing but the insertion and the commit.
 */
extern bool dw_key_retry_allowed(Relation rel, HeapTuple tuple, int64 *newer);

/* An executor could not claim the task: somebody has locked its row. */
extern void dw_key_claim_refused(DwExecutor *me, Relation rel, HeapTuple tuple);

/* Tasks that this one, which was just deleted, had superseded. */
extern void dw_key_bury_older(Relation rel, HeapTuple tuple);

#endif							/* DW_KEYS_H */
