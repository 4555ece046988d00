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
'tasks that were given up, with the error of the last attempt; read it by the view delay_wheel.failed. Rows stay until delay_wheel.failed_max_age or delay_wheel.failed_max_count is reached, delay_retry() or delay_retry_all() puts the task back, or they are deleted';
COMMENT ON COLUMN delay_wheel_data.failed_task.id IS 'number of the task';
COMMENT ON COLUMN delay_wheel_data.failed_task.failed_at IS 'when it was given up';
COMMENT ON COLUMN delay_wheel_data.failed_task.due IS 'due time of its last attempt';
COMMENT ON COLUMN delay_wheel_data.failed_task.owner IS 'role that scheduled the task';
COMMENT ON COLUMN delay_wheel_data.failed_task.queue IS 'queue, see delay_wheel_data.queue; 0 is the default queue';
COMMENT ON COLUMN delay_wheel_data.failed_task.priority IS '-9 to 9';
COMMENT ON COLUMN delay_wheel_data.failed_task.attempts IS 'how often the task was run and failed';
COMMENT ON COLUMN delay_wheel_data.failed_task.crashes IS 'how often the process that ran it crashed; null is never';
COMMENT ON COLUMN delay_wheel_data.failed_task.max_attempts IS 'as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.timeout IS 'as in delay_wheel_data.task, in milliseconds';
COMMENT ON COLUMN delay_wheel_data.failed_task.retry_delay IS 'as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.expires IS 'as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.sqlstate IS 'of the error of the last attempt';
COMMENT ON COLUMN delay_wheel_data.failed_task.message IS 'of that error, its first 16 kB';
COMMENT ON COLUMN delay_wheel_data.failed_task.detail IS 'of that error, or null';
COMMENT ON COLUMN delay_wheel_data.failed_task.hint IS 'of that error, or null';
COMMENT ON COLUMN delay_wheel_data.failed_task.context IS 'of that error, or null';
COMMENT ON COLUMN delay_wheel_data.failed_task.sql IS 'as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.args IS 'as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.arg_types IS 'as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.search_path IS 'as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.key IS 'as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.tag IS 'as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.more IS 'what few tasks have';
COMMENT ON COLUMN delay_wheel_data.failed_task.payload IS 'as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.group_key IS 'as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.failed_task.origin IS 'database that the task was scheduled in; for information only';
SELECT pg_catalog.pg_extension_config_dump('delay_wheel_data.failed_task',
	'WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles)');
CREATE TRIGGER task_guard BEFORE INSERT OR UPDATE ON delay_wheel_data.failed_task
	FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.task_guard();
ALTER TABLE delay_wheel_data.failed_task ENABLE ALWAYS TRIGGER task_guard;

CREATE TABLE delay_wheel_data.readable_failed_task (LIKE delay_wheel_data.failed_task INCLUDING COMMENTS) USING heap;
ALTER TABLE delay_wheel_data.failed_task INHERIT delay_wheel_data.readable_failed_task;

CREATE VIEW delay_wheel.failed WITH (security_invoker) AS
SELECT f.id, f.failed_at, f.due, pg_catalog.pg_get_userbyid(f.owner::oid)::text AS owner, COALESCE(q.name, CASE f.queue WHEN 0 THEN 'default' END) AS queue, f.priority, f.key, f.tag, f.sql, f.args,
	   f.attempts, f.sqlstate, f.message, f.detail, f.hint, f.context, COALESCE(f.crashes, 0::smallint) AS crashes, f.payload, f.group_key
FROM delay_wheel_data.readable_failed_task f
	 LEFT JOIN delay_wheel_data.queue_name q ON q.id = f.queue
-- begun in mode at_most_once, and not ended yet
WHERE NOT (f.sqlstate = 'DW003' AND delay_wheel_internal.is_running(f.id));
COMMENT ON VIEW delay_wheel.failed IS
'one''s own tasks that were given up, with their error; all of them for pg_read_all_data and superusers';
COMMENT ON COLUMN delay_wheel.failed.id IS 'number of the task, as delay_schedule returned it; for delay_retry()';
COMMENT ON COLUMN delay_wheel.failed.failed_at IS 'when it was given up';
COMMENT ON COLUMN delay_wheel.failed.due IS 'due time of its last attempt';
COMMENT ON COLUMN delay_wheel.failed.owner IS 'role that scheduled the task';
COMMENT ON COLUMN delay_wheel.failed.queue IS 'name of its queue; null if the queue has been dropped';
COMMENT ON COLUMN delay_wheel.failed.priority IS '-9 to 9';
COMMENT ON COLUMN delay_wheel.failed.key IS 'its key, or null; a task of the same key can be scheduled again';
COMMENT ON COLUMN delay_wheel.failed.tag IS 'its tag, or null';
COMMENT ON COLUMN delay_wheel.failed.payload IS 'of a message; null for an SQL task';
COMMENT ON COLUMN delay_wheel.failed.group_key IS 'the group that it belonged to; null is none';
COMMENT ON COLUMN delay_wheel.failed.sql IS 'one or several SQL statements; null for a message';
COMMENT ON COLUMN delay_wheel.failed.args IS 'values of $1, $2 ... in text form; null if there are none';
COMMENT ON COLUMN delay_wheel.failed.attempts IS 'how often it was run and failed; 0 if it was given up without having been run';
COMMENT ON COLUMN delay_wheel.failed.sqlstate IS 'of the error of the last attempt, five characters; DW001: superseded by a newer task of its key, DW002: expired, DW003: its end is not known (mode at_most_once), DW004: it crashed the server, DW005: it ended its own executor; of messages DW006: its last lease has ended, DW007: its receiver has called delay_fail(), DW008: its receivers were rolled back';
COMMENT ON COLUMN delay_wheel.failed.message IS 'of that error, its first 16 kB';
COMMENT ON COLUMN delay_wheel.failed.detail IS 'of that error, or null';
COMMENT ON COLUMN delay_wheel.failed.hint IS 'of that error, or null';
COMMENT ON COLUMN delay_wheel.failed.context IS 'of that error: where it was raised; with the place in which SQL, if it is known';
COMMENT ON COLUMN delay_wheel.failed.crashes IS 'how often the process that ran it had crashed; no attempts are counted for these';

CREATE VIEW delay_wheel_internal.newest_failed WITH (security_invoker) AS
SELECT * FROM delay_wheel.failed ORDER BY failed_at DESC, id DESC LIMIT 1000;
COMMENT ON VIEW delay_wheel_internal.newest_failed IS
'the 1,000 rows of delay_wheel.failed that failed last, the newest first. It reads an index from its end, so that it takes the same time for a million of failed tasks as for a thousand, if they are one''s own; all of them for pg_read_all_data and superusers. Columns as in delay_wheel.failed';

-- the same words for the same columns
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
'puts a failed task back, to be run at once with all its attempts if this transaction commits; the id stays, and the row in delay_wheel.failed goes: retried; gone, if there is no failed task of that id (any more); waits for another session that does the same. An error if the task, or another one of the same key, is pending (or a newer one runs), SQLSTATE 23505, if it is running, 55006, or if its queue or its owner does not exist any more, 42704. Only for members of the owner role and superusers; counts for delay_wheel.max_pending. Cancellations that are committed do not concern it, those of transactions that are still open do. A null id is an error, SQLSTATE 22004';

CREATE FUNCTION delay_retry_all(queue text DEFAULT NULL, tag text DEFAULT NULL, sqlstate text DEFAULT NULL,
	failed_from timestamptz DEFAULT NULL, failed_until timestamptz DEFAULT NULL, max_tasks integer DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_retry_all' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_retry_all(text, text, text, timestamptz, timestamptz, integer) IS
'puts failed tasks back as delay_retry() does, those that failed first before others, at most max_tasks; returns how many. Those whose rights the caller has, all of them for a superuser, that are in this queue, have this tag and this SQLSTATE (five characters), and failed in [failed_from, failed_until); null stands for any, so without arguments all of one''s own. Tasks that delay_retry() would refuse, or for which it would have to wait since another transaction changes them, are left, with a notice of their number. A queue that does not exist, SQLSTATE 42704, a malformed sqlstate and a negative max_tasks, 22023, are errors';

CREATE FUNCTION delay_discard(id bigint) RETURNS text
AS 'MODULE_PATHNAME', 'dw_discard' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_discard(bigint) IS
'removes a failed task from delay_wheel.failed for good, if this transaction commits; the history keeps it: discarded; gone, if there is no failed task of that id (any more); waits for another session that puts it back or discards it. A pending task is not concerned, see delay_cancel(). Only for members of the owner role and superusers, for others an error, SQLSTATE 42501; a task that runs just now, 55006; a null id, 22004';

CREATE FUNCTION delay_discard_all(queue text DEFAULT NULL, tag text DEFAULT NULL, sqlstate text DEFAULT NULL,
	failed_from timestamptz DEFAULT NULL, failed_until timestamptz DEFAULT NULL, max_tasks integer DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_discard_all' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_discard_all(text, text, text, timestamptz, timestamptz, integer) IS
'removes failed tasks as delay_discard() does, those that failed first before others, at most max_tasks; returns how many. Those whose rights the caller has, all of them for a superuser, that are in this queue, have this tag and this sqlstate (five characters), and failed in [failed_from, failed_until); null stands for any, so without arguments all of one''s own. A queue that does not exist, SQLSTATE 42704, a malformed sqlstate and a negative max_tasks, 22023, are errors. Those that run just now, or that another transaction changes or locks, are left, without waiting and without a notice: a second call has the rest';
