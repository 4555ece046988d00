/*---- The end: rights that stand in the way of default privileges ----*/

SELECT delay_revoke_defaults();
DROP FUNCTION delay_revoke_defaults();

-- whose dump is to have them
GRANT USAGE ON SCHEMA delay_wheel_data TO pg_database_owner;
GRANT SELECT ON delay_wheel_data.task, delay_wheel_data.queue, delay_wheel_data.pause, delay_wheel_data.cancellation, delay_wheel_data.unique_key, delay_wheel_data.failed_task, delay_wheel_data.recurring_task, delay_wheel_data.prepared,
	delay_wheel_data.audit, delay_wheel_data.history_0, delay_wheel_data.history_1, delay_wheel_data.history_2,
	delay_wheel_data.task_id_seq, delay_wheel_data.queue_id_seq, delay_wheel_data.audit_id_seq, delay_wheel_data.history_seq
	TO pg_database_owner;
