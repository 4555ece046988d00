/*-------------------------------------------------------------------------
 *
 * key_lock.h
 *	  The lock of a key, and the rows that have it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_KEY_LOCK_H
#define DW_KEY_LOCK_H

#include "postgres.h"

#include "access/htup.h"
#include "utils/relcache.h"

#include "../rows/task_rows.h"
#include "../shmem/executors.h"

/* A row of a key, and the open transactions that insert or delete it. */
typedef struct DwKeyRow
{
	HeapTuple	tuple;
	DwTaskKey	task;
	TransactionId inserter;		/* invalid if the row is committed, or our own */
	TransactionId deleter;		/* invalid if no open transaction deletes the row */
} DwKeyRow;

extern bool dw_key_of(Relation rel, HeapTuple tuple, DwKey *key, DwTaskKey *task);
extern void dw_key_lock(const DwKey *key);
extern List *dw_key_rows(Relation rel, const DwKey *key);
extern bool dw_key_row_is_claimed(const DwKeyRow *row, List *rows);
extern DwKeyRow *dw_key_newest(List *rows, bool any_origin);
extern DwKeyRow *dw_key_superseder(List *rows, const DwTaskKey *task);
extern void dw_key_leave(void);
extern ItemPointerData dw_task_insert_again(Relation rel, Datum *values, bool *nulls);
extern bool dw_task_is_superseded(Relation rel, HeapTuple tuple);
extern bool dw_key_lock_of(Relation rel, HeapTuple tuple);
extern void dw_key_claim_refused(DwExecutor *me, Relation rel, HeapTuple tuple);

#endif							/* DW_KEY_LOCK_H */
