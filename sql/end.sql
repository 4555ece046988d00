/*---- The end: rights that stand in the way of default privileges ----*/

SELECT delay_revoke_defaults();
DROP FUNCTION delay_revoke_defaults();

-- whose dump is to have them
GRANT SELECT ON delay_wheel.task, delay_wheel.queue, delay_wheel.pause, delay_wheel.cancellation, delay_wheel.unique_key, delay_wheel.failed_task, delay_wheel.recurring_task, delay_wheel.prepared,
	delay_wheel_internal.audit, delay_wheel_internal.history_0, delay_wheel_internal.history_1, delay_wheel_internal.history_2,
	delay_wheel.task_id_seq, delay_wheel.queue_id_seq, delay_wheel_internal.audit_id_seq, delay_wheel_internal.history_seq
	TO pg_database_owner;
