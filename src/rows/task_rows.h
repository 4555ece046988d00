/*-------------------------------------------------------------------------
 *
 * task_rows.h
 *	  Writing and finding rows of delay_wheel's tables.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_TASK_ROWS_H
#define DW_TASK_ROWS_H

#include "postgres.h"

#include "access/genam.h"
#include "access/htup.h"
#include "access/skey.h"
#include "executor/tuptable.h"
#include "nodes/pg_list.h"
#include "storage/block.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "catalog.h"

/* A row of the history that will be written. */
typedef struct DwHistoryRow
{
	Datum		values[Natts_history];
	bool		nulls[Natts_history];
} DwHistoryRow;

/* The short columns of a task's row: enough to load the task, claim it or lock its row. */
typedef struct DwTaskKey
{
	int64		id;
	TimestampTz due;
	int64		origin;			/* stamp of the database where the row was written */
	Oid			owner;
	int16		queue;
	int16		priority;
	int16		attempts;		/* attempts so far; 0 if read from the index only */
	bool		has_more;		/* column "more" is not null, so the task may have a mode;
								 * false if read from the index only */
	bool		is_message;		/* has a payload and no SQL; false if read from the index only */
	bool		is_leased;		/* has a token: due is the end of a lease; false if read from the
								 * index only */
	uint32		group;			/* hash of its group; DW_NO_GROUP: no group, or read from the
								 * index */
	ItemPointerData tid;		/* TID of the row */
} DwTaskKey;

/* A key as users give it: at most one pending task has the same owner, queue and key. */
typedef struct DwKey
{
	Oid			owner;
	int16		queue;
	text	   *key;
} DwKey;

/* The option if_exists: what to do with a pending task of the same key. */
typedef enum DwIfExists
{
	DW_KEEP,					/* keep the pending task */
	DW_REPLACE,					/* replace the pending task */
	DW_REPLACE_KEEP_DUE,		/* replace the pending task, but keep its due time */
	DW_EARLIER,					/* move the pending task if the new task is due earlier */
	DW_LATER,					/* move the pending task if the new task is due later */
	DW_RAISE					/* raise an error */
} DwIfExists;

/* Returns true if the new task replaces a pending task of the key. */
static inline bool
dw_replaces(DwIfExists if_exists)
{
	return if_exists == DW_REPLACE || if_exists == DW_REPLACE_KEEP_DUE;
}

/* Limit for the length of a key, in bytes: an entry of the index has no room for a longer key. */
#define DW_MAX_KEY	1000

/* Error message of a superseded task, which is given up since there is a newer task of its key. */
#define DW_SUPERSEDED_MESSAGE	"a newer task of the same key is pending or running"

extern ItemPointerData dw_task_insert(Relation rel, Datum *values, bool *nulls);
extern Datum dw_clipped_text(const char *text, int length, int max);
extern const char *dw_error_message(const ErrorData *error);
extern void dw_failed_write(const Datum *task, const bool *task_nulls, int attempts,
							TimestampTz failed_at, const ErrorData *error);
extern void dw_failed_delete(int64 id, TimestampTz failed_at);
extern void dw_task_from_failed(const Datum *failed, const bool *failed_nulls,
								Datum *values, bool *nulls);
extern BlockNumber dw_history_insert(Relation rel, List *rows);
extern void dw_table_insert(Oid table, Datum *values, bool *nulls, int n);
extern bool dw_prepared_is_open(const char *gid);
extern void dw_recurring_update(Relation rel, ItemPointer tid, Datum *values, bool *nulls);
extern bool dw_task_lease_lasts(const DwTaskKey *task);
extern void dw_row_end_lease(bool *nulls);
extern TimestampTz dw_task_not_before(Relation rel, HeapTuple tuple, const DwTaskKey *key);
extern void dw_task_key(Relation rel, HeapTuple tuple, DwTaskKey *key);
extern HeapTuple dw_row_find(Relation rel, Oid index, ScanKey key, Snapshot snapshot);
extern HeapTuple dw_task_find(Relation rel, int64 id, Snapshot snapshot);
extern List *dw_failed_rows(Relation rel, int64 id, Snapshot snapshot);
extern int	dw_task_count(Oid owner, int limit, bool (*counts) (Relation, HeapTuple));
extern char *dw_row_text(Relation rel, HeapTuple tuple, AttrNumber column);
extern Datum dw_row_column(Relation rel, HeapTuple tuple, AttrNumber attnum);

#endif							/* DW_TASK_ROWS_H */
