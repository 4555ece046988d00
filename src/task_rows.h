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
#include "access/sdir.h"
#include "nodes/pg_list.h"
#include "shared.h"
#include "storage/block.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/* Columns of delay_wheel.task, as the install script has them. */
enum
{
	Anum_task_id = 1,
	Anum_task_due,
	Anum_task_origin,
	Anum_task_owner,
	Anum_task_queue,
	Anum_task_priority,
	Anum_task_attempts,
	Anum_task_max_attempts,
	Anum_task_timeout,
	Anum_task_spared,
	Anum_task_retry_delay,
	Anum_task_expires,
	Anum_task_sql,
	Anum_task_args,
	Anum_task_arg_types,
	Anum_task_search_path,
	Anum_task_key,
	Anum_task_tag,
	Anum_task_more,
	Natts_task = Anum_task_more
};

/* Columns of delay_wheel.failed_task. */
enum
{
	Anum_failed_id = 1,
	Anum_failed_failed_at,
	Anum_failed_due,
	Anum_failed_origin,
	Anum_failed_owner,
	Anum_failed_queue,
	Anum_failed_priority,
	Anum_failed_attempts,
	Anum_failed_crashes,
	Anum_failed_max_attempts,
	Anum_failed_timeout,
	Anum_failed_retry_delay,
	Anum_failed_expires,
	Anum_failed_sqlstate,
	Anum_failed_message,
	Anum_failed_detail,
	Anum_failed_hint,
	Anum_failed_context,
	Anum_failed_sql,
	Anum_failed_args,
	Anum_failed_arg_types,
	Anum_failed_search_path,
	Anum_failed_key,
	Anum_failed_tag,
	Anum_failed_more,
	Natts_failed = Anum_failed_more
};

/* Columns of delay_wheel.history_0 and the others. */
enum
{
	Anum_history_task = 1,
	Anum_history_due,
	Anum_history_started,
	Anum_history_ended,
	Anum_history_rows,
	Anum_history_recurring,
	Anum_history_owner,
	Anum_history_queue,
	Anum_history_attempt,
	Anum_history_outcome,
	Anum_history_command_tag,
	Anum_history_sqlstate,
	Anum_history_message,
	Anum_history_sql,
	Anum_history_key,
	Anum_history_tag,
	Natts_history = Anum_history_tag
};
#define DW_HISTORY_TABLES	3

/* A row of these. */
typedef struct DwHistoryRow
{
	Datum		values[Natts_history];
	bool		nulls[Natts_history];
} DwHistoryRow;

/* Columns of delay_wheel.prepared. */
enum
{
	Anum_prepared_gid = 1,
	Anum_prepared_owner,
	Anum_prepared_queue,
	Anum_prepared_priority,
	Anum_prepared_due,
	Natts_prepared = Anum_prepared_due
};

/* Columns of delay_wheel.queue. */
enum
{
	Anum_queue_id = 1,
	Anum_queue_priority,
	Anum_queue_max_attempts,
	Anum_queue_paused,
	Anum_queue_batch,
	Anum_queue_owner,
	Anum_queue_max_running,
	Anum_queue_rate,
	Anum_queue_timeout,
	Anum_queue_name,
	Anum_queue_users,
	Anum_queue_retry_delay,
	Anum_queue_spread,
	Anum_queue_history,
	Anum_queue_more,
	Natts_queue = Anum_queue_more
};

/* Columns of delay_wheel.pause. */
enum
{
	Anum_pause_owner = 1,
	Anum_pause_since,
	Natts_pause = Anum_pause_since
};

/* Columns of delay_wheel.cancellation. */
enum
{
	Anum_cancellation_id = 1,
	Anum_cancellation_origin,
	Anum_cancellation_made_at,
	Anum_cancellation_made_by,
	Anum_cancellation_owners,
	Anum_cancellation_queue,
	Anum_cancellation_tag,
	Anum_cancellation_due_from,
	Anum_cancellation_due_until,
	Anum_cancellation_removed,
	Natts_cancellation = Anum_cancellation_removed
};

/* Columns of delay_wheel.recurring_task. */
enum
{
	Anum_recurring_id = 1,
	Anum_recurring_task,
	Anum_recurring_next_due,
	Anum_recurring_origin,
	Anum_recurring_starts,
	Anum_recurring_until,
	Anum_recurring_last_due,
	Anum_recurring_last_started,
	Anum_recurring_last_ended,
	Anum_recurring_runs,
	Anum_recurring_failures,
	Anum_recurring_skipped,
	Anum_recurring_max_runs,
	Anum_recurring_owner,
	Anum_recurring_timeout,
	Anum_recurring_queue,
	Anum_recurring_priority,
	Anum_recurring_max_attempts,
	Anum_recurring_paused,
	Anum_recurring_every,
	Anum_recurring_retry_delay,
	Anum_recurring_name,
	Anum_recurring_schedule,
	Anum_recurring_time_zone,
	Anum_recurring_catch_up,
	Anum_recurring_last_outcome,
	Anum_recurring_last_error,
	Anum_recurring_sql,
	Anum_recurring_args,
	Anum_recurring_arg_types,
	Anum_recurring_search_path,
	Anum_recurring_tag,
	Anum_recurring_more,
	Natts_recurring = Anum_recurring_more
};

typedef struct DwCatalog
{
	Oid			task;
	Oid			task_pkey;
	Oid			task_lane_index;
	Oid			task_key_index;
	Oid			task_id_seq;
	Oid			failed;
	Oid			failed_pkey;
	Oid			failed_at_index;
	Oid			prepared;
	Oid			prepared_gid_index;
	Oid			queue;
	Oid			queue_name_key;
	Oid			queue_id_seq;
	Oid			pause;
	Oid			pause_pkey;
	Oid			cancellation;
	Oid			cancellation_pkey;
	Oid			history[DW_HISTORY_TABLES];
	Oid			history_seq;
	Oid			recurring;
	Oid			recurring_pkey;
	Oid			recurring_name_key;
} DwCatalog;

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

/* A scan of one lane in (due, id) order, or of all lanes, one after the other. */
typedef struct DwLaneScan DwLaneScan;

/* A scan of failed tasks in (failed_at, id) order, or backwards. */
typedef struct DwFailedScan DwFailedScan;

extern bool dw_catalog_lookup(DwCatalog *catalog);

/*
 * May the table have rows?  Without waiting: true if that cannot be told.  It
 * stays locked against being dropped.
 */
extern bool dw_may_have_rows(Oid table);
extern const DwCatalog *dw_catalog(void);
/* Would dw_catalog() find it?  Costs nothing if it has. */
extern bool dw_catalog_is_there(void);
extern int64 dw_origin_stamp(void);

/*
 * Locks the table of tasks to write to it, until the end of the (sub)transaction;
 * costs nothing the second time.
 */
extern void dw_tasks_lock(void);
extern Relation dw_tasks_open(void);
/* That lock may be gone. */
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
/* Its columns are all of the table; it is locked by this transaction. */
extern void dw_recurring_update(Relation rel, ItemPointer tid, Datum *values, bool *nulls);

/* A row's columns, those that others added included. */
extern void dw_deform(Relation rel, HeapTuple tuple, Datum **values, bool **nulls);
extern void dw_task_key(Relation rel, HeapTuple tuple, DwTaskKey *key);
extern bool dw_task_of_owner(Relation rel, Oid index, Oid owner);
/*
 * A copy of the row that the unique index has for the key, as it is now, whatever
 * the transaction's snapshot; or NULL.  The caller has the table locked.
 */
extern HeapTuple dw_find_now(Relation rel, Oid index, ScanKey key);
extern HeapTuple dw_task_find(Relation rel, int64 id, Snapshot snapshot);
extern int	dw_task_count(Oid owner, int limit, bool (*counts) (Relation, HeapTuple));

extern DwLaneScan *dw_lane_scan_begin(Relation rel, const DwTaskKey *from, Snapshot snapshot);
extern DwLaneScan *dw_lanes_scan_begin(Relation rel, const DwTaskKey *from, Snapshot snapshot);
extern void dw_lane_scan_keys_only(DwLaneScan *scan);
extern void dw_lanes_scan_seek(DwLaneScan *scan, const DwTaskKey *from);
extern bool dw_lane_scan_step(DwLaneScan *scan, DwTaskKey *key, bool *visible);
extern bool dw_lane_scan_next(DwLaneScan *scan, DwTaskKey *key);
extern HeapTuple dw_lane_scan_tuple(DwLaneScan *scan);
extern void dw_lane_scan_end(DwLaneScan *scan);
extern DwFailedScan *dw_failed_scan_begin(Relation rel, ScanDirection direction,
										  TimestampTz failed_at, int64 id, Snapshot snapshot);
extern HeapTuple dw_failed_scan_next(DwFailedScan *scan, TimestampTz *failed_at, int64 *id);
extern void dw_failed_scan_end(DwFailedScan *scan);
extern bool dw_next_lane(Relation rel, Snapshot snapshot, DwTaskKey *key, bool first);

#endif							/* DW_TASK_ROWS_H */
