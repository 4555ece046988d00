/*-------------------------------------------------------------------------
 *
 * columns.h
 *	  The extension's tables: their columns, and the OIDs of tables and indexes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_COLUMNS_H
#define DW_COLUMNS_H

/*
 * The columns of each table, in the order of the install script, with their types.  The numbers of
 * the columns (Anum_task_id, Natts_task) and the check of the tables in catalog.c follow from these
 * lists.
 */
#define DW_TASK_COLUMNS(_) \
	_(task, id, INT8OID) \
	_(task, due, TIMESTAMPTZOID) \
	_(task, origin, INT8OID) \
	_(task, owner, REGROLEOID) \
	_(task, queue, INT2OID) \
	_(task, priority, INT2OID) \
	_(task, group_hash, INT4OID) \
	_(task, attempts, INT2OID) \
	_(task, max_attempts, INT2OID) \
	_(task, timeout, INT4OID) \
	_(task, spared, INT8OID) \
	_(task, token, INT8OID) \
	_(task, first_due, TIMESTAMPTZOID) \
	_(task, leased_at, TIMESTAMPTZOID) \
	_(task, retry_delay, INTERVALOID) \
	_(task, expires, INTERVALOID) \
	_(task, sql, TEXTOID) \
	_(task, args, TEXTARRAYOID) \
	_(task, arg_types, REGTYPEARRAYOID) \
	_(task, search_path, TEXTOID) \
	_(task, key, TEXTOID) \
	_(task, tag, TEXTOID) \
	_(task, more, JSONBOID) \
	_(task, payload, JSONBOID) \
	_(task, group_key, TEXTOID)

#define DW_FAILED_COLUMNS(_) \
	_(failed, id, INT8OID) \
	_(failed, failed_at, TIMESTAMPTZOID) \
	_(failed, due, TIMESTAMPTZOID) \
	_(failed, origin, INT8OID) \
	_(failed, owner, REGROLEOID) \
	_(failed, queue, INT2OID) \
	_(failed, priority, INT2OID) \
	_(failed, attempts, INT2OID) \
	_(failed, crashes, INT2OID) \
	_(failed, max_attempts, INT2OID) \
	_(failed, timeout, INT4OID) \
	_(failed, retry_delay, INTERVALOID) \
	_(failed, expires, INTERVALOID) \
	_(failed, sqlstate, TEXTOID) \
	_(failed, message, TEXTOID) \
	_(failed, detail, TEXTOID) \
	_(failed, hint, TEXTOID) \
	_(failed, context, TEXTOID) \
	_(failed, sql, TEXTOID) \
	_(failed, args, TEXTARRAYOID) \
	_(failed, arg_types, REGTYPEARRAYOID) \
	_(failed, search_path, TEXTOID) \
	_(failed, key, TEXTOID) \
	_(failed, tag, TEXTOID) \
	_(failed, more, JSONBOID) \
	_(failed, payload, JSONBOID) \
	_(failed, group_key, TEXTOID)

#define DW_HISTORY_COLUMNS(_) \
	_(history, task, INT8OID) \
	_(history, due, TIMESTAMPTZOID) \
	_(history, started, TIMESTAMPTZOID) \
	_(history, ended, TIMESTAMPTZOID) \
	_(history, rows, INT8OID) \
	_(history, recurring, INT8OID) \
	_(history, owner, REGROLEOID) \
	_(history, queue, INT2OID) \
	_(history, attempt, INT2OID) \
	_(history, outcome, TEXTOID) \
	_(history, command_tag, TEXTOID) \
	_(history, sqlstate, TEXTOID) \
	_(history, message, TEXTOID) \
	_(history, sql, TEXTOID) \
	_(history, key, TEXTOID) \
	_(history, tag, TEXTOID) \
	_(history, sample, FLOAT8OID) \
	_(history, result, JSONBOID) \
	_(history, group_key, TEXTOID)

#define DW_PREPARED_COLUMNS(_) \
	_(prepared, gid, TEXTOID) \
	_(prepared, owner, REGROLEOID) \
	_(prepared, queue, INT2OID) \
	_(prepared, priority, INT2OID) \
	_(prepared, due, TIMESTAMPTZOID)

#define DW_QUEUE_COLUMNS(_) \
	_(queue, id, INT2OID) \
	_(queue, priority, INT2OID) \
	_(queue, max_attempts, INT2OID) \
	_(queue, paused, BOOLOID) \
	_(queue, batch, BOOLOID) \
	_(queue, owner, REGROLEOID) \
	_(queue, max_running, INT4OID) \
	_(queue, rate, INT4OID) \
	_(queue, timeout, INT4OID) \
	_(queue, name, TEXTOID) \
	_(queue, users, REGROLEARRAYOID) \
	_(queue, retry_delay, INTERVALOID) \
	_(queue, spread, INTERVALOID) \
	_(queue, history, TEXTOID) \
	_(queue, external, BOOLOID) \
	_(queue, receivers, REGROLEARRAYOID) \
	_(queue, lease, INTERVALOID) \
	_(queue, receive_timeout, INT4OID) \
	_(queue, notify_channel, TEXTOID) \
	_(queue, retry_backoff, TEXTOID) \
	_(queue, retry_max_delay, INTERVALOID) \
	_(queue, retry_on, TEXTARRAYOID) \
	_(queue, give_up_on, TEXTARRAYOID) \
	_(queue, keep_settings, TEXTARRAYOID) \
	_(queue, per, INTERVALOID) \
	_(queue, burst, INT4OID) \
	_(queue, groups, BOOLOID) \
	_(queue, group_max_running, INT4OID) \
	_(queue, group_rate, INT4OID) \
	_(queue, group_per, INTERVALOID) \
	_(queue, group_burst, INT4OID) \
	_(queue, group_order, TEXTOID)

#define DW_PAUSE_COLUMNS(_) \
	_(pause, owner, REGROLEOID) \
	_(pause, since, TIMESTAMPTZOID)

#define DW_UNIQUE_COLUMNS(_) \
	_(unique, id, INT8OID) \
	_(unique, until, TIMESTAMPTZOID) \
	_(unique, owner, REGROLEOID) \
	_(unique, queue, INT2OID) \
	_(unique, key, TEXTOID)

#define DW_AUDIT_COLUMNS(_) \
	_(audit, id, INT8OID) \
	_(audit, at, TIMESTAMPTZOID) \
	_(audit, task, INT8OID) \
	_(audit, due, TIMESTAMPTZOID) \
	_(audit, rows, INT8OID) \
	_(audit, owner, REGROLEOID) \
	_(audit, pid, INT4OID) \
	_(audit, queue, INT2OID) \
	_(audit, action, TEXTOID) \
	_(audit, key, TEXTOID) \
	_(audit, tag, TEXTOID) \
	_(audit, name, TEXTOID) \
	_(audit, detail, TEXTOID) \
	_(audit, login_role, TEXTOID) \
	_(audit, role, TEXTOID) \
	_(audit, client_addr, TEXTOID) \
	_(audit, application_name, TEXTOID)

#define DW_CANCELLATION_COLUMNS(_) \
	_(cancellation, id, INT8OID) \
	_(cancellation, origin, INT8OID) \
	_(cancellation, made_at, TIMESTAMPTZOID) \
	_(cancellation, made_by, REGROLEOID) \
	_(cancellation, owners, REGROLEARRAYOID) \
	_(cancellation, queue, INT2OID) \
	_(cancellation, tag, TEXTOID) \
	_(cancellation, due_from, TIMESTAMPTZOID) \
	_(cancellation, due_until, TIMESTAMPTZOID) \
	_(cancellation, removed, INT8OID)

#define DW_RECURRING_COLUMNS(_) \
	_(recurring, id, INT8OID) \
	_(recurring, task, INT8OID) \
	_(recurring, next_due, TIMESTAMPTZOID) \
	_(recurring, origin, INT8OID) \
	_(recurring, starts, TIMESTAMPTZOID) \
	_(recurring, until, TIMESTAMPTZOID) \
	_(recurring, last_due, TIMESTAMPTZOID) \
	_(recurring, last_started, TIMESTAMPTZOID) \
	_(recurring, last_ended, TIMESTAMPTZOID) \
	_(recurring, runs, INT8OID) \
	_(recurring, failures, INT8OID) \
	_(recurring, skipped, INT8OID) \
	_(recurring, max_runs, INT8OID) \
	_(recurring, owner, REGROLEOID) \
	_(recurring, timeout, INT4OID) \
	_(recurring, queue, INT2OID) \
	_(recurring, priority, INT2OID) \
	_(recurring, max_attempts, INT2OID) \
	_(recurring, paused, BOOLOID) \
	_(recurring, every, INTERVALOID) \
	_(recurring, retry_delay, INTERVALOID) \
	_(recurring, name, TEXTOID) \
	_(recurring, schedule, TEXTOID) \
	_(recurring, time_zone, TEXTOID) \
	_(recurring, catch_up, TEXTOID) \
	_(recurring, last_outcome, TEXTOID) \
	_(recurring, last_error, TEXTOID) \
	_(recurring, sql, TEXTOID) \
	_(recurring, args, TEXTARRAYOID) \
	_(recurring, arg_types, REGTYPEARRAYOID) \
	_(recurring, search_path, TEXTOID) \
	_(recurring, tag, TEXTOID) \
	_(recurring, more, JSONBOID) \
	_(recurring, group_key, TEXTOID)

#define DW_BATCH_COLUMNS(_) \
	_(batch, id, INT8OID) \
	_(batch, origin, INT8OID) \
	_(batch, owner, REGROLEOID) \
	_(batch, batch_id, INT8OID) \
	_(batch, closed, BOOLOID) \
	_(batch, made_at, TIMESTAMPTZOID) \
	_(batch, ended_at, TIMESTAMPTZOID) \
	_(batch, total, INT8OID) \
	_(batch, failed, INT8OID) \
	_(batch, cancelled, INT8OID) \
	_(batch, skipped, INT8OID) \
	_(batch, queue, INT2OID) \
	_(batch, name, TEXTOID) \
	_(batch, on_done, TEXTOID) \
	_(batch, on_failed, TEXTOID) \
	_(batch, on_end, TEXTOID) \
	_(batch, search_path, TEXTOID) \
	_(batch, settings, JSONBOID)

#define DW_BATCH_COUNT_COLUMNS(_) \
	_(batch_count, batch_id, INT8OID) \
	_(batch_count, owner, REGROLEOID) \
	_(batch_count, total, INT8OID) \
	_(batch_count, failed, INT8OID) \
	_(batch_count, cancelled, INT8OID) \
	_(batch_count, skipped, INT8OID)

/* The tables: their members of DwCatalog, their names, and their columns. */
#define DW_TABLES(_) \
	_(task, "task", DW_TASK_COLUMNS) \
	_(failed, "failed_task", DW_FAILED_COLUMNS) \
	_(prepared, "prepared", DW_PREPARED_COLUMNS) \
	_(queue, "queue", DW_QUEUE_COLUMNS) \
	_(pause, "pause", DW_PAUSE_COLUMNS) \
	_(cancellation, "cancellation", DW_CANCELLATION_COLUMNS) \
	_(recurring, "recurring_task", DW_RECURRING_COLUMNS) \
	_(batch, "batch", DW_BATCH_COLUMNS) \
	_(batch_count, "batch_count", DW_BATCH_COUNT_COLUMNS) \
	_(unique_key, "unique_key", DW_UNIQUE_COLUMNS) \
	_(audit, "audit", DW_AUDIT_COLUMNS)

#define DW_HISTORY_TABLES	3

/* The indexes and sequences that C code uses. */
#define DW_INDEXES(_) \
	_(task_pkey, "task_pkey") \
	_(task_lane_index, "task_lane_due_idx") \
	_(task_key_index, "task_key_idx") \
	_(task_lease_index, "task_lease_idx") \
	_(task_group_index, "task_group_idx") \
	_(task_group_lease_index, "task_group_lease_idx") \
	_(task_local_index, "task_local_idx") \
	_(task_batch_index, "task_batch_idx") \
	_(task_id_seq, "task_id_seq") \
	_(failed_pkey, "failed_task_pkey") \
	_(failed_at_index, "failed_task_failed_at_idx") \
	_(prepared_gid_index, "prepared_gid_idx") \
	_(queue_name_key, "queue_name_key") \
	_(queue_id_seq, "queue_id_seq") \
	_(pause_pkey, "pause_pkey") \
	_(cancellation_pkey, "cancellation_pkey") \
	_(unique_key_pkey, "unique_key_pkey") \
	_(unique_key_index, "unique_key_key_idx") \
	_(unique_key_until_index, "unique_key_until_idx") \
	_(audit_pkey, "audit_pkey") \
	_(audit_id_seq, "audit_id_seq") \
	_(history_seq, "history_seq") \
	_(recurring_pkey, "recurring_task_pkey") \
	_(recurring_name_key, "recurring_task_name_key") \
	_(batch_ended_at_index, "batch_ended_at_idx")

#define DW_COLUMN_NUMBER(table, column, type) Anum_##table##_##column,
#define DW_COLUMN_NUMBERS(table, name, columns) \
	Before_##table = 0, columns(DW_COLUMN_NUMBER) After_##table, Natts_##table = After_##table - 1,
enum
{
	DW_TABLES(DW_COLUMN_NUMBERS)
	DW_COLUMN_NUMBERS(history, "", DW_HISTORY_COLUMNS)
};

#define DW_TABLE_OID(table, name, columns) Oid table;
#define DW_INDEX_OID(index, name) Oid index;

/* OIDs of the extension's relations. */
typedef struct DwCatalog
{
	DW_TABLES(DW_TABLE_OID)
	Oid			history[DW_HISTORY_TABLES];
	DW_INDEXES(DW_INDEX_OID)
} DwCatalog;

#endif							/* DW_COLUMNS_H */
