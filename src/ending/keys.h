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
#include "utils/relcache.h"

#include "../rows/task_rows.h"
#include "pending.h"

/*
 * Makes room for a new task of the key.  True: the caller is to insert its row
 * and then to call dw_key_leave(), until when others of this key wait.  False:
 * *kept is pending, and will not begin before the end of this transaction.
 * The table is open, locked for writing.
 */
extern bool dw_key_enter(Relation rel, const DwKey *key, DwIfExists if_exists, int64 *kept);

/*
 * The same for a task that has failed and is to be put back.  False: there is
 * another one that is pending, or a newer one that runs.
 */
extern bool dw_key_enter_again(Relation rel, const DwKey *key, int64 id);

/* Cancels the pending task of a key. */
extern DwTaken dw_key_cancel(Relation rel, const DwKey *key);

/*
 * For executors whose task has failed: may its row, with the same id, be
 * inserted again?  If not, *newer is the task that is pending or running
 * instead.  The key stays locked until the end of this transaction, which
 * must be near: nothing but the insertion and the commit.
 */
extern bool dw_key_retry_allowed(Relation rel, HeapTuple tuple, int64 *newer);

#endif							/* DW_KEYS_H */
