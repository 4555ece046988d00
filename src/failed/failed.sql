/*---- Failed tasks: rows, the view, put back or removed ----*/

CREATE TABLE delay_wheel_data.failed_task
(
	id bigint NOT NULL,
	failed_at timestamptz NOT NULL,
	due timestamptz NOT NULL,
	origin bigint NOT NULL,
	owner regrole NOT NULL,
	queue smallint NOT NULL,
	priority smallint NOT NULL,
	attempts smallint NOT NULL,
	crashes smallint,
	max_attempts smallint,
	timeout integer,
	retry_delay interval,
	expires interval,
	sqlstate text NOT NULL,
	message text NOT NULL,
	detail text,
	hint text,
	context text,
	sql text,
	args text[],
	arg_types regtype[],
	search_path text,
	key text,
	tag text,
	more jsonb,
	payload jsonb,
	group_key text,
	CONSTRAINT failed_task_pkey PRIMARY KEY (id, failed_at)
)
USING heap
WITH (autovacuum_vacuum_scale_factor = 0.05, vacuum_truncate = off);
CREATE INDEX failed_task_failed_at_idx ON delay_wheel_data.failed_task (failed_at, id);
COMMENT ON TABLE delay_wheel_data.failed_task IS
'Tasks that were given up, with the error of the last attempt. To read them, use the view delay_wheel.failed.';
COMMENT ON COLUMN delay_wheel_data.failed_task.id IS 'Id of the task';
COMMENT ON COLUMN delay_wheel_data.failed_task.failed_at IS 'Time at which the task was given up';
COMMENT ON COLUMN delay_wheel_data.failed_task.due IS 'Due time of the last attempt';
COMMENT ON COLUMN delay_wheel_data.failed_task.owner IS 'Role that scheduled the task';
COMMENT ON COLUMN delay_wheel_data.failed_task.queue IS 'Id of the queue; 0 is the default queue';
COMMENT ON COLUMN delay_wheel_data.failed_task.priority IS 'Priority, -9 to 9';
COMMENT ON COLUMN delay_wheel_data.failed_task.attempts IS 'Failed attempts';
COMMENT ON COLUMN delay_wheel_data.failed_task.crashes IS 'Number of crashes of a process that ran the task; NULL: none';
COMMENT ON COLUMN delay_wheel_data.failed_task.max_attempts IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.timeout IS 'As in delay_wheel_data.task, in milliseconds';
COMMENT ON COLUMN delay_wheel_data.failed_task.retry_delay IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.expires IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.sqlstate IS 'SQLSTATE of the error of the last attempt';
COMMENT ON COLUMN delay_wheel_data.failed_task.message IS 'First 16 kB of the error message';
COMMENT ON COLUMN delay_wheel_data.failed_task.detail IS 'Detail of the error';
COMMENT ON COLUMN delay_wheel_data.failed_task.hint IS 'Hint of the error';
COMMENT ON COLUMN delay_wheel_data.failed_task.context IS 'Context of the error';
COMMENT ON COLUMN delay_wheel_data.failed_task.sql IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.args IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.arg_types IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.search_path IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.key IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.tag IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.more IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.payload IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.group_key IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.origin IS 'Database in which the task was scheduled; for information only';
SELECT pg_catalog.pg_extension_config_dump('delay_wheel_data.failed_task',
	'WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles)');
CREATE TRIGGER task_guard BEFORE INSERT OR UPDATE ON delay_wheel_data.failed_task
	FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.task_guard();
ALTER TABLE delay_wheel_data.failed_task ENABLE ALWAYS TRIGGER task_guard;

CREATE TABLE delay_wheel_data.readable_failed_task (LIKE delay_wheel_data.failed_task INCLUDING COMMENTS) USING heap;
ALTER TABLE delay_wheel_data.failed_task INHERIT delay_wheel_data.readable_failed_task;

CREATE VIEW delay_wheel.failed WITH (security_invoker) AS
SELECT f.id, f.failed_at, f.due, pg_catalog.pg_get_userbyid(f.owner::oid)::text AS owner, COALESCE(q.name, CASE f.queue WHEN 0 THEN 'default' END) AS queue, f.priority, f.key, f.tag, f.sql, f.args,
	   f.attempts, f.sqlstate, f.message, f.detail, f.hint, f.context, COALESCE(f.crashes, 0::smallint) AS crashes, f.payload, f.group_key,
	   delay_wheel_internal.batch_of(f.more) AS batch_id
FROM delay_wheel_data.readable_failed_task f
	 LEFT JOIN delay_wheel_data.queue_name q ON q.id = f.queue
-- without running tasks in mode at_most_once
WHERE NOT (f.sqlstate = 'DW003' AND delay_wheel_internal.is_running(f.id));
COMMENT ON VIEW delay_wheel.failed IS
'Tasks that were given up, with the error of the last attempt';
COMMENT ON COLUMN delay_wheel.failed.id IS 'Id of the task, for delay_retry() and delay_discard()';
COMMENT ON COLUMN delay_wheel.failed.failed_at IS 'Time at which the task was given up';
COMMENT ON COLUMN delay_wheel.failed.due IS 'Due time of the last attempt';
COMMENT ON COLUMN delay_wheel.failed.owner IS 'Role that scheduled the task';
COMMENT ON COLUMN delay_wheel.failed.queue IS 'Name of the queue; NULL if the queue was dropped';
COMMENT ON COLUMN delay_wheel.failed.priority IS 'Priority, -9 to 9';
COMMENT ON COLUMN delay_wheel.failed.key IS 'Key; NULL if the task had no key. Another task with this key can be scheduled.';
COMMENT ON COLUMN delay_wheel.failed.tag IS 'Tag';
COMMENT ON COLUMN delay_wheel.failed.payload IS 'Content of a message';
COMMENT ON COLUMN delay_wheel.failed.group_key IS 'Name of the group';
COMMENT ON COLUMN delay_wheel.failed.batch_id IS 'Id of the batch of which the task is a member; NULL: none';
COMMENT ON COLUMN delay_wheel.failed.sql IS 'One or several SQL statements';
COMMENT ON COLUMN delay_wheel.failed.args IS 'Values of the parameters $1, $2 ... as text';
COMMENT ON COLUMN delay_wheel.failed.attempts IS 'Failed attempts; 0 if the task was given up before its first run';
COMMENT ON COLUMN delay_wheel.failed.sqlstate IS 'SQLSTATE of the error of the last attempt; DW001 to DW008 are errors of delay_wheel itself';
COMMENT ON COLUMN delay_wheel.failed.message IS 'First 16 kB of the error message';
COMMENT ON COLUMN delay_wheel.failed.detail IS 'Detail of the error';
COMMENT ON COLUMN delay_wheel.failed.hint IS 'Hint of the error';
COMMENT ON COLUMN delay_wheel.failed.context IS 'Context of the error, with the position in the SQL if it is known';
COMMENT ON COLUMN delay_wheel.failed.crashes IS 'Number of crashes of a process that ran the task; crashes do not count as attempts';

CREATE VIEW delay_wheel_internal.newest_failed WITH (security_invoker) AS
SELECT * FROM delay_wheel.failed ORDER BY failed_at DESC, id DESC LIMIT 1000;
COMMENT ON VIEW delay_wheel_internal.newest_failed IS
'The newest 1,000 rows of delay_wheel.failed, in descending order of time';

-- the COMMENTs of the columns of delay_wheel.failed
DO $$
DECLARE c record;
BEGIN
	FOR c IN SELECT a.attname, pg_catalog.col_description(a.attrelid, a.attnum) AS words
			 FROM pg_catalog.pg_attribute a
			 WHERE a.attrelid = 'delay_wheel.failed'::regclass::oid AND a.attnum > 0
			 ORDER BY a.attnum
	LOOP
		EXECUTE pg_catalog.format('COMMENT ON COLUMN delay_wheel_internal.newest_failed.%I IS %L', c.attname, c.words);
	END LOOP;
END
$$;

GRANT SELECT ON delay_wheel.failed, delay_wheel_internal.newest_failed TO PUBLIC;

CREATE FUNCTION delay_retry(id bigint) RETURNS text
AS 'MODULE_PATHNAME', 'dw_retry' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_retry(bigint) IS
'Puts a failed task back. The task is due at once and has all its attempts again.';

CREATE FUNCTION delay_retry_all(queue text DEFAULT NULL, tag text DEFAULT NULL, sqlstate text DEFAULT NULL,
	failed_from timestamptz DEFAULT NULL, failed_until timestamptz DEFAULT NULL, max_tasks integer DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_retry_all' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_retry_all(text, text, text, timestamptz, timestamptz, integer) IS
'Puts failed tasks back, selected by queue, tag, SQLSTATE and time of failure. Returns the number of tasks.';

CREATE FUNCTION delay_discard(id bigint) RETURNS text
AS 'MODULE_PATHNAME', 'dw_discard' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_discard(bigint) IS
'Removes a failed task from delay_wheel.failed. The rows of the task in delay_wheel.history stay.';

CREATE FUNCTION delay_discard_all(queue text DEFAULT NULL, tag text DEFAULT NULL, sqlstate text DEFAULT NULL,
	failed_from timestamptz DEFAULT NULL, failed_until timestamptz DEFAULT NULL, max_tasks integer DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_discard_all' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_discard_all(text, text, text, timestamptz, timestamptz, integer) IS
'Removes failed tasks, selected by queue, tag, SQLSTATE and time of failure. Returns the number of tasks.';
