/*-------------------------------------------------------------------------
 *
 * rows.h
 *	  Reading and writing rows of the extension's tables.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ROWS_H
#define DW_ROWS_H

#include "access/genam.h"
#include "access/htup.h"
#include "access/skey.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "nodes/pg_list.h"
#include "storage/block.h"
#include "storage/itemptr.h"
#include "utils/array.h"
#include "utils/jsonb.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "../shmem/shared.h"
#include "columns.h"

/*---- catalog.c: transactions that only read; OIDs of the tables ----*/

/* True if timer or sweeper has found that the extension is not in this database (any more). */
extern bool dw_extension_gone;

/*
 * True if this transaction has locked the table of tasks, and the indexes that have an entry for
 * each task, to write to them.  A call of the lock manager for each row would be slower.  False
 * again when these locks may be gone, at the end of a (sub)transaction.
 */
extern bool dw_tables_being_written;

/* The result of dw_read(). */
typedef enum DwRead
{
	DW_READ_DONE,
	DW_READ_LOCKED,				/* a table is locked, or the extension is gone */
	DW_READ_FAILED				/* an error was raised, which is reported */
} DwRead;

/* Reads, with an active snapshot.  Returns false if another table that it needs is locked. */
typedef bool (*DwReadWork) (Relation tasks, void *arg);

extern Relation dw_read_begin(void);
extern void dw_renew_snapshot(void);
extern bool dw_read_also(Oid table);
extern void dw_read_end(Relation rel);
extern void dw_end_failed_transaction(MemoryContext context);
extern DwRead dw_read(DwDatabase *database, const char *what, DwReadWork work, void *arg);
extern bool dw_role_exists(Oid role);
extern void dw_require_writable(const char *function);
extern bool dw_catalog_lookup(DwCatalog *catalog);
extern Relation dw_open_if_free(Oid oid);
extern bool dw_any_may_have_rows(size_t offset, int n);
extern const DwCatalog *dw_catalog(void);
extern bool dw_catalog_is_there(void);
extern Relation dw_tasks_open(void);
extern int64 dw_origin_stamp(void);
extern TM_Result dw_heap_delete(Relation rel, ItemPointer tid, bool wait);
extern void dw_deform(Relation rel, HeapTuple tuple, Datum **values, bool **nulls);

/*---- task_rows.c: the column "more" of a task's row: options that few tasks have ----*/

/* The keys of the column, a jsonb object. */
#define DW_MORE_LAST_ERROR	"last_error"	/* text: error of the last attempt */
#define DW_MORE_LOST		"lost"	/* number: how often the task was put back because it had lost
									 * its connection to another node */
#define DW_MORE_SNOOZES		"snoozes"	/* number: how often the task has called delay_snooze() */
#define DW_MORE_SHARD		"shard"	/* number: the shard of Citus whose trigger
									 * scheduled the task */
#define DW_MORE_SKIP_AFTER	"skip_after"	/* number: in us; the task is skipped if it would begin
											 * later than this after its due time */
#define DW_MORE_UNIQUE_FOR	"unique_for"	/* number: how long the task's key is unique after the
											 * call that scheduled the task, in us */
#define DW_MORE_HEADERS		"headers"	/* object: headers of the sender */
#define DW_MORE_RECEIVER		"receiver"	/* text: the last receiver that leased the message */
#define DW_MORE_NOTIFY		"notify"	/* text: channel for a NOTIFY at the end */
#define DW_MORE_ON_SUCCESS	"on_success"	/* text: SQL of a follow-up task */
#define DW_MORE_ON_FAILURE	"on_failure"	/* text: SQL of a follow-up task */
#define DW_MORE_MODE		"mode"	/* text: see DwMode */
#define DW_MORE_RETRY_BACKOFF	"retry_backoff" /* text: see task/attempts.c */
#define DW_MORE_RETRY_MAX_DELAY "retry_max_delay"	/* number: the longest pause, in us; 0: an hour,
													 * or retry_delay if that is longer */
#define DW_MORE_RETRY_ON	"retry_on"	/* text: SQLSTATEs or classes, separated by commas */
#define DW_MORE_GIVE_UP_ON	"give_up_on"	/* text: SQLSTATEs or classes, as in retry_on */
#define DW_MORE_SETTINGS	"settings"	/* object: settings of the caller, see
										 * statement/kept_settings.c */
#define DW_MORE_NOT_BEFORE	"not_before"	/* number, a timestamptz: no attempt begins before this
											 * time; the task keeps its due time, and so its place
											 * in its group */
#define DW_MORE_LOCAL		"local" /* object: the task's local due time, see
									 * recurring/local_times.c; an index names this key */
#define DW_MORE_BATCH_ID	"batch_id"	/* number: the batch of which the task is a member; an index
										 * names this key */
#define DW_MORE_RECURRING	"recurring" /* number: id of the recurring task, if this task is one of
										 * its runs */

/* The option mode: how the task's statement is run, see executor/autonomous.c. */
typedef enum DwMode
{
	DW_IN_TRANSACTION,			/* in the transaction that deletes the row (default) */
	DW_AT_MOST_ONCE,			/* outside of a transaction; not again after a crash */
	DW_AT_LEAST_ONCE			/* outside of a transaction; again after a crash */
} DwMode;

/* Lengths of an SQLSTATE, and of its class, the first characters. */
#define DW_STATE_LENGTH	5
#define DW_CLASS_LENGTH	2

/* How the pause before further attempts grows. */
typedef enum DwBackoff
{
	DW_EXPONENTIAL,				/* doubled each time; the default */
	DW_LINEAR,					/* retry_delay times the number of failed attempts */
	DW_FIXED					/* retry_delay */
} DwBackoff;

extern bool dw_more_has(const Datum *values, const bool *nulls, int column, const char *key);
extern char *dw_more_text(const Datum *values, const bool *nulls, int column, const char *key);
extern bool dw_more_number(const Datum *values, const bool *nulls, int column, const char *key,
						   int64 *number);
extern Jsonb *dw_more_object(const Datum *values, const bool *nulls, int column, const char *key);
extern bool dw_more_has_room(const Datum *values, const bool *nulls, int column, Size bytes);
extern void dw_more_set_text(Datum *values, bool *nulls, int column, const char *key,
							 const char *text);
extern void dw_more_set_number(Datum *values, bool *nulls, int column, const char *key,
							   int64 number);
extern void dw_more_set_object(Datum *values, bool *nulls, int column, const char *key,
							   Jsonb *object);
extern void dw_more_remove(Datum *values, bool *nulls, int column, const char *key);
extern DwMode dw_mode(const Datum *values, const bool *nulls);
extern DwMode dw_mode_named(const char *name);
extern DwBackoff dw_backoff_named(const char *name, bool strict);
extern void dw_errors_check(ArrayType *errors, const char *option);
extern char *dw_errors_joined(ArrayType *errors);

/*---- task_rows.c: writing and finding rows ----*/

/* A row of the history that will be written. */
typedef struct DwHistoryRow
{
	Datum		values[Natts_history];
	bool		nulls[Natts_history];
} DwHistoryRow;

/* A row of delay_wheel_data.task that will be written. */
typedef struct DwTaskRow
{
	Datum	   *values;			/* the columns */
	bool	   *nulls;
	ItemPointerData tid;		/* set by the insertion */
} DwTaskRow;

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
extern void dw_tasks_insert(Relation rel, DwTaskRow *tasks, int n);
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
extern char *dw_row_text(Relation rel, HeapTuple tuple, AttrNumber column);
extern Datum dw_row_column(Relation rel, HeapTuple tuple, AttrNumber attnum);

/*---- scans.c: scans by lane, by group, of leases, and of failed tasks by time ----*/

/*
 * A scan of the pending tasks of one lane, of all lanes one after the other, or of one group of a
 * queue, in the order of (due, id); or of failed tasks in the order of (failed_at, id) or
 * backwards.
 */
typedef struct DwRowScan DwRowScan;

/* Decides whether a leased message counts. */
typedef bool (*DwLeaseCounts) (Relation rel, HeapTuple tuple, const DwTaskKey *key);

/* A message whose last lease has ended. */
typedef struct DwLapsed
{
	DwTaskKey	key;
	TimestampTz first_due;		/* its due time before the lease */
} DwLapsed;

/* The leases of a group. */
typedef struct DwGroupLeases
{
	uint32		n;				/* number of leases that last */
	TimestampTz next_end;		/* first end of these leases; DW_NEVER: no lease lasts */
	bool		any_lapsed;
	DwLapsed	lapsed;			/* the first lease that has ended, by first_due and id */
} DwGroupLeases;

extern DwTaskKey dw_lane_begin(const DwLane *lane);
extern DwRowScan *dw_lane_scan_begin(Relation rel, const DwTaskKey *from, Snapshot snapshot);
extern DwRowScan *dw_lanes_scan_begin(Relation rel, const DwTaskKey *from, Snapshot snapshot);
extern void dw_lane_scan_keys_only(DwRowScan *scan, bool with_group);
extern void dw_lanes_scan_seek(DwRowScan *scan, const DwTaskKey *from);
extern bool dw_lane_scan_step(DwRowScan *scan, DwTaskKey *key, bool *visible);
extern uint32 dw_lane_scan_group(DwRowScan *scan);
extern bool dw_lane_scan_is_leased(DwRowScan *scan);
extern bool dw_lane_scan_next(DwRowScan *scan, DwTaskKey *key);
extern HeapTuple dw_lane_scan_tuple(DwRowScan *scan);
extern DwRowScan *dw_group_scan_begin(Relation rel, int16 queue, uint32 hash, TimestampTz due,
									  int64 id, Snapshot snapshot);
extern DwRowScan *dw_failed_scan_begin(Relation rel, ScanDirection direction,
									   TimestampTz failed_at, int64 id, Snapshot snapshot);
extern HeapTuple dw_row_scan_next(DwRowScan *scan);
extern HeapTuple dw_failed_scan_next(DwRowScan *scan, TimestampTz *failed_at, int64 *id);
extern void dw_row_scan_end(DwRowScan *scan);
extern bool dw_next_lane(Relation rel, Snapshot snapshot, DwTaskKey *key, bool first);
extern SysScanDesc dw_lease_scan_begin(Relation rel, TimestampTz from, Snapshot snapshot);
extern void dw_lease_scan_end(SysScanDesc scan);
extern void dw_leases_of_group(Relation rel, int16 queue, uint32 hash, Snapshot snapshot,
							   DwLeaseCounts counts, DwGroupLeases *leases);
extern uint32 dw_leases_count(Relation rel, int16 queue, TimestampTz now, TimestampTz *next_end);

/*---- task_finder.c: finding rows of many tasks by their ids ----*/

/*
 * State of the searches of one transaction; all zero at first.  An abort of the transaction frees
 * the resources of this state.
 */
typedef struct DwTaskFinder
{
	Relation	index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
} DwTaskFinder;

extern bool dw_task_finder_has_seen(int64 id, ItemPointer tid);
extern void dw_task_finder_note(int64 id, const ItemPointerData *tid);
extern HeapTuple dw_task_fetch(Relation rel, int64 id, const ItemPointerData *tid,
							   Snapshot snapshot);
extern HeapTuple dw_task_find_noted(Relation rel, int64 id);
extern HeapTuple dw_task_find_next(DwTaskFinder *finder, Relation rel, int64 id, Snapshot snapshot);
extern void dw_task_find_end(DwTaskFinder *finder);

#endif							/* DW_ROWS_H */
