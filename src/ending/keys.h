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
#include "../task/key_lock.h"
#include "../task/new_task.h"
#include "pending.h"

extern DwKeyRow *dw_key_enter(Relation rel, DwNewTask *new);
extern bool dw_key_enter_again(Relation rel, const DwKey *key, int64 id, bool wait);
extern DwTakeResult dw_key_take(Relation rel, const DwKey *key, HeapTuple *tuple, DwTaskKey *task);
extern DwTakeResult dw_key_cancel(Relation rel, const DwKey *key);
extern bool dw_key_retry_allowed(Relation rel, HeapTuple tuple, int64 *newer);

#endif							/* DW_KEYS_H */
