/*-------------------------------------------------------------------------
 *
 * task_rows.h
 *	  Rows of delay_wheel's tables, by the table access method.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_TASK_ROWS_H
#define DW_TASK_ROWS_H

#include "postgres.h"

#include "access/genam.h"
#include "access/htup.h"
#include "access/skey.h"
#include "nodes/pg_list.h"
#include "storage/block.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "catalog.h"

/* A row of these. */
typedef struct DwHistoryRow
{
	Datum		values[Natts_history];
	bool		nulls[Natts_history];
} DwHistoryRow;

/* What memory and claims need to know of a row. */
typedef struct DwTaskKey
{
	int64		id;
	TimestampTz due;
	int64		origin;
	Oid			owner;
	int16		queue;
	int16		priority;
	int16		attempts;
	bool		has_more;		/* it may have a mode; not known by the index */
	ItemPointerData tid;
} DwTaskKey;

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
 * Locks the table of tasks to write to it, until the end of the (sub)transaction;
 * costs nothing the second time.
 */
extern void dw_tasks_lock(void);
extern Relation dw_tasks_open(void);
extern void dw_tasks_unlocked(void);
extern ItemPointerData dw_task_insert(Datum *values, bool *nulls);
/* At most so many bytes of a text, as a value; and of what an error says. */
extern Datum dw_clipped_text(const char *text, int length, int max);
extern const char *dw_error_message(const ErrorData *error);
/* A row of failed_task for the task of that row, which has failed with that error. */
extern void dw_failed_write(const Datum *task, const bool *task_nulls, int attempts,
							TimestampTz failed_at, const ErrorData *error);
extern void dw_failed_delete(int64 id, TimestampTz failed_at);
extern void dw_task_from_failed(const Datum *failed, const bool *failed_nulls,
								Datum *values, bool *nulls);
/* A list of DwHistoryRow, at least one; returns the page of the last one. */
extern BlockNumber dw_history_insert(Relation rel, List *rows);
extern void dw_prepared_insert(Datum *values, bool *nulls);
extern bool dw_prepared_is_open(const char *gid);
extern void dw_queue_insert(Datum *values, bool *nulls);
extern void dw_pause_insert(Datum *values, bool *nulls);
extern void dw_cancellation_insert(Datum *values, bool *nulls);
extern void dw_recurring_insert(Datum *values, bool *nulls);
extern void dw_recurring_update(Relation rel, ItemPointer tid, Datum *values, bool *nulls);
extern void dw_task_key(Relation rel, HeapTuple tuple, DwTaskKey *key);
extern bool dw_task_of_owner(Relation rel, Oid index, Oid owner);
/*
 * A copy of the row that the unique index has for the key, as it is now, whatever
 * the transaction's snapshot; or NULL.  The caller has the table locked.
 */
extern HeapTuple dw_find_now(Relation rel, Oid index, ScanKey key);
extern HeapTuple dw_task_find(Relation rel, int64 id, Snapshot snapshot);
extern int	dw_task_count(Oid owner, int limit, bool (*counts) (Relation, HeapTuple));
extern Datum dw_row_column(Relation rel, HeapTuple tuple, AttrNumber attnum, bool *isnull);

#endif							/* DW_TASK_ROWS_H */
