/*-------------------------------------------------------------------------
 *
 * catalog.h
 *	  The extension's tables: OIDs, columns, and transactions that only read them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_CATALOG_H
#define DW_CATALOG_H

#include "postgres.h"

#include "access/htup.h"
#include "access/tableam.h"
#include "utils/relcache.h"

#include "../shmem/shared.h"

/*
 * Columns of delay_wheel_data.task, in the order of the install script.  check_tables() in
 * catalog.c has the types of the columns of all tables.
 */
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
	Anum_task_token,
	Anum_task_first_due,
	Anum_task_leased_at,
	Anum_task_retry_delay,
	Anum_task_expires,
	Anum_task_sql,
	Anum_task_args,
	Anum_task_arg_types,
	Anum_task_search_path,
	Anum_task_key,
	Anum_task_tag,
	Anum_task_more,
	Anum_task_payload,
	Anum_task_group_key,
	Anum_task_group_hash,
	Natts_task = Anum_task_group_hash
};

/* Columns of delay_wheel_data.failed_task. */
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
	Anum_failed_payload,
	Anum_failed_group_key,
	Natts_failed = Anum_failed_group_key
};

/* Columns of delay_wheel_data.history_0, history_1 and history_2. */
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
	Anum_history_sample,
	Anum_history_result,
	Anum_history_group_key,
	Natts_history = Anum_history_group_key
};

#define DW_HISTORY_TABLES	3

/* Columns of delay_wheel_data.prepared. */
enum
{
	Anum_prepared_gid = 1,
	Anum_prepared_owner,
	Anum_prepared_queue,
	Anum_prepared_priority,
	Anum_prepared_due,
	Natts_prepared = Anum_prepared_due
};

/* Columns of delay_wheel_data.queue. */
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
	Anum_queue_external,
	Anum_queue_receivers,
	Anum_queue_lease,
	Anum_queue_receive_timeout,
	Anum_queue_notify_channel,
	Anum_queue_retry_backoff,
	Anum_queue_retry_max_delay,
	Anum_queue_retry_on,
	Anum_queue_give_up_on,
	Anum_queue_keep_settings,
	Anum_queue_per,
	Anum_queue_burst,
	Anum_queue_groups,
	Anum_queue_group_max_running,
	Anum_queue_group_rate,
	Anum_queue_group_per,
	Anum_queue_group_burst,
	Anum_queue_group_order,
	Natts_queue = Anum_queue_group_order
};

/* Columns of delay_wheel_data.pause. */
enum
{
	Anum_pause_owner = 1,
	Anum_pause_since,
	Natts_pause = Anum_pause_since
};

/* Columns of delay_wheel_data.unique_key. */
enum
{
	Anum_unique_id = 1,
	Anum_unique_until,
	Anum_unique_owner,
	Anum_unique_queue,
	Anum_unique_key,
	Natts_unique = Anum_unique_key
};

/* Columns of delay_wheel_data.audit. */
enum
{
	Anum_audit_id = 1,
	Anum_audit_at,
	Anum_audit_task,
	Anum_audit_due,
	Anum_audit_rows,
	Anum_audit_owner,
	Anum_audit_pid,
	Anum_audit_queue,
	Anum_audit_action,
	Anum_audit_key,
	Anum_audit_tag,
	Anum_audit_name,
	Anum_audit_detail,
	Anum_audit_login_role,
	Anum_audit_role,
	Anum_audit_client_addr,
	Anum_audit_application_name,
	Natts_audit = Anum_audit_application_name
};

/* Columns of delay_wheel_data.cancellation. */
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

/* Columns of delay_wheel_data.recurring_task. */
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
	Anum_recurring_group_key,
	Natts_recurring = Anum_recurring_group_key
};

/* OIDs of the extension's tables, and of the indexes and sequences that C code uses. */
typedef struct DwCatalog
{
	Oid			task;
	Oid			task_pkey;
	Oid			task_lane_index;
	Oid			task_key_index;
	Oid			task_lease_index;
	Oid			task_group_index;
	Oid			task_group_lease_index;
	Oid			task_local_index;
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
	Oid			unique_key;
	Oid			unique_key_pkey;
	Oid			unique_key_index;
	Oid			unique_key_until_index;
	Oid			audit;
	Oid			audit_pkey;
	Oid			audit_id_seq;
	Oid			history[DW_HISTORY_TABLES];
	Oid			history_seq;
	Oid			recurring;
	Oid			recurring_pkey;
	Oid			recurring_name_key;
} DwCatalog;

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

#endif							/* DW_CATALOG_H */
