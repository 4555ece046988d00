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

/*
 * Is there a newer task of the same key, pending or running?  Then this row
 * is not a pending task any more, whatever it says.
 */
extern bool dw_task_is_superseded(Relation rel, HeapTuple tuple);

/*
 * The id of a newer task of the same key, pending or running; 0 if there is
 * none: then the task, which this transaction has claimed, may be retried.
 */
extern int64 dw_key_newer(Relation rel, HeapTuple tuple);

#endif							/* DW_KEYS_H */
