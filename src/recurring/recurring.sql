/*---- Recurring tasks, and tasks at a local time ----*/

CREATE TABLE delay_wheel_data.recurring_task
(
	id bigint NOT NULL DEFAULT pg_catalog.nextval('delay_wheel_data.task_id_seq'),
	task bigint,
	next_due timestamptz,
	origin bigint NOT NULL DEFAULT delay_wheel_internal.origin(),
	starts timestamptz NOT NULL,
	until timestamptz,
	last_due timestamptz,
	last_started timestamptz,
	last_ended timestamptz,
	runs bigint NOT NULL DEFAULT 0,
	failures bigint NOT NULL DEFAULT 0,
	skipped bigint NOT NULL DEFAULT 0,
	max_runs bigint,
	owner regrole NOT NULL DEFAULT pg_catalog.to_regrole(pg_catalog.quote_ident(CURRENT_USER)),
	timeout integer,
	queue smallint NOT NULL DEFAULT 0,
	priority smallint NOT NULL DEFAULT 0,
	max_attempts smallint,
	paused boolean NOT NULL DEFAULT false,
	every interval,
	retry_delay interval,
	-- COLLATE "C": the library searches the index, and must know its order
	name text COLLATE "C" NOT NULL,
	schedule text,
	timezone text NOT NULL,
	catch_up text NOT NULL DEFAULT 'skip',
	last_outcome text,
	last_error text,
	sql text NOT NULL,
	args text[],
	arg_types regtype[],
	search_path text,
	tag text,
	more jsonb,
	group_key text,
	CONSTRAINT recurring_task_pkey PRIMARY KEY (id),
	CONSTRAINT recurring_task_name_key UNIQUE (owner, name),
	CONSTRAINT recurring_task_next_due_check CHECK (pg_catalog.isfinite(next_due)),
	CONSTRAINT recurring_task_starts_check CHECK (pg_catalog.isfinite(starts)),
	CONSTRAINT recurring_task_every_check CHECK ((every IS NULL) <> (schedule IS NULL)),
	CONSTRAINT recurring_task_priority_check CHECK (priority BETWEEN -9 AND 9),
	CONSTRAINT recurring_task_catch_up_check CHECK (catch_up IN ('skip', 'all')),
	CONSTRAINT recurring_task_args_check CHECK (pg_catalog.cardinality(args) IS NOT DISTINCT FROM pg_catalog.cardinality(arg_types))
)
USING heap
-- each run updates the row, and the new version must fit on the page
WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.1, vacuum_truncate = off);
COMMENT ON TABLE delay_wheel_data.recurring_task IS
'Recurring tasks that delay_every() or delay_cron() declared. To read them, use the view delay_wheel.recurring.';
COMMENT ON COLUMN delay_wheel_data.recurring_task.queue IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.priority IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.max_attempts IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.retry_delay IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.sql IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.args IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.arg_types IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.search_path IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.tag IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.more IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.group_key IS 'As in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.id IS 'Id of the recurring task, from the same sequence as ids of tasks';
COMMENT ON COLUMN delay_wheel_data.recurring_task.task IS 'Id of the present run, pending or running';
COMMENT ON COLUMN delay_wheel_data.recurring_task.next_due IS 'Ideal time of the present or next run; NULL if no run follows';
COMMENT ON COLUMN delay_wheel_data.recurring_task.origin IS 'Database in which the task was declared. In another database, the task runs only after delay_wheel.arm().';
COMMENT ON COLUMN delay_wheel_data.recurring_task.starts IS 'First ideal time, from which later ideal times are counted; with a cron schedule, lower limit of ideal times';
COMMENT ON COLUMN delay_wheel_data.recurring_task.until IS 'Upper limit of ideal times; NULL: no limit';
COMMENT ON COLUMN delay_wheel_data.recurring_task.last_due IS 'Ideal time of the last run that has ended';
COMMENT ON COLUMN delay_wheel_data.recurring_task.last_started IS 'Start of the last attempt of the last run';
COMMENT ON COLUMN delay_wheel_data.recurring_task.last_ended IS 'End of the last run';
COMMENT ON COLUMN delay_wheel_data.recurring_task.runs IS 'Runs that were done or have failed; cancelled and skipped runs do not count';
COMMENT ON COLUMN delay_wheel_data.recurring_task.failures IS 'Runs that failed';
COMMENT ON COLUMN delay_wheel_data.recurring_task.skipped IS 'Runs that were cancelled, or skipped because they were too late';
COMMENT ON COLUMN delay_wheel_data.recurring_task.max_runs IS 'Limit of runs; NULL: no limit';
COMMENT ON COLUMN delay_wheel_data.recurring_task.owner IS 'Role that declared the task; the runs have the rights of this role';
COMMENT ON COLUMN delay_wheel_data.recurring_task.timeout IS 'As in delay_wheel_data.task, in milliseconds';
COMMENT ON COLUMN delay_wheel_data.recurring_task.paused IS 'Whether delay_pause_recurring() or a crash has paused the task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.every IS 'Interval between ideal times; NULL if the task has a cron schedule';
COMMENT ON COLUMN delay_wheel_data.recurring_task.name IS 'Name, unique for the owner';
COMMENT ON COLUMN delay_wheel_data.recurring_task.schedule IS 'Cron schedule; NULL if the task has an interval';
COMMENT ON COLUMN delay_wheel_data.recurring_task.timezone IS 'Time zone in which days, months and the cron schedule are counted';
COMMENT ON COLUMN delay_wheel_data.recurring_task.catch_up IS 'Treatment of ideal times that have passed: skip or all';
COMMENT ON COLUMN delay_wheel_data.recurring_task.last_outcome IS 'How the last run ended: done, failed, skipped or cancelled';
COMMENT ON COLUMN delay_wheel_data.recurring_task.last_error IS 'Error of the last run, or the reason why no run follows';
SELECT pg_catalog.pg_extension_config_dump('delay_wheel_data.recurring_task',
	'WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles)');
CREATE TRIGGER task_guard BEFORE INSERT OR UPDATE ON delay_wheel_data.recurring_task
	FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.task_guard();
ALTER TABLE delay_wheel_data.recurring_task ENABLE ALWAYS TRIGGER task_guard;

CREATE TABLE delay_wheel_data.readable_recurring_task (LIKE delay_wheel_data.recurring_task INCLUDING COMMENTS) USING heap;
ALTER TABLE delay_wheel_data.recurring_task INHERIT delay_wheel_data.readable_recurring_task;

CREATE VIEW delay_wheel.recurring WITH (security_invoker) AS
SELECT d.name, pg_catalog.pg_get_userbyid(d.owner::oid)::text AS owner,
	   CASE WHEN d.next_due IS NULL AND r.task IS NULL THEN 'finished'
			WHEN d.origin <> delay_wheel_internal.origin() THEN 'unarmed'
			WHEN r.task IS NOT NULL THEN 'running'
			WHEN d.paused THEN 'paused'
			ELSE 'waiting' END AS state,
	   d.every::text AS every, d.schedule, d.timezone, d.starts, d.until, d.max_runs, d.catch_up,
	   CASE WHEN d.task IS NOT NULL THEN d.next_due END AS next_due, d.task,
	   d.last_due, d.last_started, d.last_ended, d.last_outcome, d.last_error,
	   d.runs, d.failures, d.skipped, d.paused,
	   COALESCE(q.name, CASE d.queue WHEN 0 THEN 'default' END) AS queue, d.priority, d.tag, d.sql, d.args,
	   d.id, d.arg_types::text[] AS arg_types, d.max_attempts, d.retry_delay::text AS retry_delay,
	   pg_catalog.make_interval(secs => pg_catalog.float8(d.timeout) / 1000::double precision)::text AS timeout,
	   -- plain SQL may have written any value
	   CASE WHEN pg_catalog.jsonb_typeof(d.more OPERATOR(pg_catalog.->) 'skip_after'::text) = 'number' THEN
			pg_catalog.make_interval(secs => LEAST(GREATEST((d.more OPERATOR(pg_catalog.->) 'skip_after'::text)::numeric, 0::numeric), 9.2e18::numeric)::double precision / 1000000::double precision)::text
	   END AS skip_after,
	   d.more OPERATOR(pg_catalog.->>) 'notify'::text AS notify,
	   d.more OPERATOR(pg_catalog.->>) 'on_success'::text AS on_success,
	   d.more OPERATOR(pg_catalog.->>) 'on_failure'::text AS on_failure,
	   d.more OPERATOR(pg_catalog.->>) 'mode'::text AS mode,
	   d.more OPERATOR(pg_catalog.->>) 'retry_backoff'::text AS retry_backoff,
	   CASE WHEN pg_catalog.jsonb_typeof(d.more OPERATOR(pg_catalog.->) 'retry_max_delay'::text) = 'number' THEN
			pg_catalog.make_interval(secs => LEAST(GREATEST((d.more OPERATOR(pg_catalog.->) 'retry_max_delay'::text)::numeric, 0::numeric), 1e15::numeric)::double precision / 1000000::double precision)::text
	   END AS retry_max_delay,
	   pg_catalog.string_to_array(d.more OPERATOR(pg_catalog.->>) 'retry_on'::text, ','::text) AS retry_on,
	   pg_catalog.string_to_array(d.more OPERATOR(pg_catalog.->>) 'give_up_on'::text, ','::text) AS give_up_on,
	   d.more OPERATOR(pg_catalog.->) 'settings'::text AS settings,
	   d.more OPERATOR(pg_catalog.->) 'headers'::text AS headers,
	   d.group_key
FROM delay_wheel_data.readable_recurring_task d
	 LEFT JOIN delay_wheel_data.queue_name q ON q.id = d.queue
	 -- for a moment, two executors may have the same task, before one of them has claimed it
	 LEFT JOIN (SELECT DISTINCT task FROM delay_wheel_internal.get_running()) r ON r.task = d.task;
COMMENT ON VIEW delay_wheel.recurring IS
'Recurring tasks, declared by delay_every() and delay_cron(), with their last and next runs';
COMMENT ON COLUMN delay_wheel.recurring.name IS 'Name, unique for the owner';
COMMENT ON COLUMN delay_wheel.recurring.owner IS 'Role that declared the task; the runs have the rights of this role';
COMMENT ON COLUMN delay_wheel.recurring.every IS 'Interval between ideal times; NULL if the task has a cron schedule';
COMMENT ON COLUMN delay_wheel.recurring.schedule IS 'Cron schedule; NULL if the task has an interval';
COMMENT ON COLUMN delay_wheel.recurring.timezone IS 'Time zone in which days, months and the cron schedule are counted';
COMMENT ON COLUMN delay_wheel.recurring.starts IS 'First ideal time, from which later ideal times are counted; with a cron schedule, lower limit of ideal times';
COMMENT ON COLUMN delay_wheel.recurring.until IS 'Upper limit of ideal times; NULL: no limit';
COMMENT ON COLUMN delay_wheel.recurring.max_runs IS 'Limit of column runs; NULL: no limit';
COMMENT ON COLUMN delay_wheel.recurring.catch_up IS 'Treatment of ideal times that have passed: skip or all';
COMMENT ON COLUMN delay_wheel.recurring.last_ended IS 'End of the last run';
COMMENT ON COLUMN delay_wheel.recurring.paused IS 'Whether delay_pause_recurring() or a crash has paused the task';
COMMENT ON COLUMN delay_wheel.recurring.queue IS 'Name of the queue of the runs; NULL if the queue was dropped';
COMMENT ON COLUMN delay_wheel.recurring.priority IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.group_key IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.tag IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.sql IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.args IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.state IS 'waiting: the next run is pending; running; paused: by delay_pause_recurring() or a crash; finished: no run follows; unarmed: the task came with a copy, see delay_wheel.arm()';
COMMENT ON COLUMN delay_wheel.recurring.next_due IS 'Ideal time of the present or next run';
COMMENT ON COLUMN delay_wheel.recurring.task IS 'Id of the present or next run in delay_wheel.tasks. If the run was moved or is tried again, its due time differs from the ideal time.';
COMMENT ON COLUMN delay_wheel.recurring.last_due IS 'Ideal time of the last run that has ended';
COMMENT ON COLUMN delay_wheel.recurring.last_started IS 'Start of the last attempt of the last run';
COMMENT ON COLUMN delay_wheel.recurring.last_outcome IS 'How the last run ended: done, failed, skipped (too late) or cancelled';
COMMENT ON COLUMN delay_wheel.recurring.last_error IS 'First 1,000 bytes of the last run''s error, or the reason why no run follows';
COMMENT ON COLUMN delay_wheel.recurring.runs IS 'Runs that were done or have failed; cancelled and skipped runs do not count';
COMMENT ON COLUMN delay_wheel.recurring.failures IS 'Runs that failed';
COMMENT ON COLUMN delay_wheel.recurring.skipped IS 'Runs that were cancelled, or skipped because they were too late';
COMMENT ON COLUMN delay_wheel.recurring.id IS 'Id of the recurring task, as in column recurring of delay_wheel.history';
COMMENT ON COLUMN delay_wheel.recurring.arg_types IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.max_attempts IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.retry_delay IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.retry_backoff IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.retry_max_delay IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.retry_on IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.settings IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.headers IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.give_up_on IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.timeout IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.skip_after IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.notify IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.on_success IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.on_failure IS 'As in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.mode IS 'As in delay_wheel.tasks';

CREATE FUNCTION delay_wheel_internal.get_recurring(
	OUT owner regrole, OUT task bigint, OUT failed boolean, OUT skipped boolean, OUT paused boolean,
	OUT ended timestamptz, OUT due timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_recurring' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_wheel_internal.get_recurring() IS
'Returns the state of each recurring task, without its texts. The view delay_wheel.recurring_status calls this function.';

CREATE VIEW delay_wheel.recurring_status AS
SELECT pg_catalog.pg_get_userbyid(d.owner::oid)::text AS owner, pg_catalog.count(*) AS tasks,
	   pg_catalog.count(*) FILTER (WHERE d.failed) AS failed,
	   pg_catalog.min(d.ended) FILTER (WHERE d.failed) AS oldest_failure,
	   pg_catalog.count(*) FILTER (WHERE d.skipped) AS skipped,
	   pg_catalog.count(*) FILTER (WHERE d.paused) AS paused,
	   pg_catalog.count(d.due) FILTER (WHERE r.task IS NULL) AS overdue,
	   pg_catalog.min(d.due) FILTER (WHERE r.task IS NULL) AS first_due
FROM delay_wheel_internal.get_recurring() d
	 -- for a moment, two executors may have the same task, before one of them has claimed it
	 LEFT JOIN (SELECT DISTINCT task FROM delay_wheel_internal.get_running()) r ON r.task OPERATOR(pg_catalog.=) d.task
GROUP BY d.owner;
COMMENT ON VIEW delay_wheel.recurring_status IS
'Numbers of recurring tasks with problems, without names and texts; one row for each role that has recurring tasks';
COMMENT ON COLUMN delay_wheel.recurring_status.owner IS 'Role that declared the tasks';
COMMENT ON COLUMN delay_wheel.recurring_status.tasks IS 'Recurring tasks of the owner, finished tasks included';
COMMENT ON COLUMN delay_wheel.recurring_status.failed IS 'Tasks whose last run failed, or that have no more runs because of an error';
COMMENT ON COLUMN delay_wheel.recurring_status.oldest_failure IS 'Earliest last_ended of the failed tasks, see delay_wheel.recurring';
COMMENT ON COLUMN delay_wheel.recurring_status.skipped IS 'Tasks whose last run was skipped because it was too late';
COMMENT ON COLUMN delay_wheel.recurring_status.paused IS 'Tasks that delay_pause_recurring() or a crash has paused; other pauses do not count';
COMMENT ON COLUMN delay_wheel.recurring_status.overdue IS 'Tasks whose run has been due for more than a minute and is not running';
COMMENT ON COLUMN delay_wheel.recurring_status.first_due IS 'Earliest due time of the overdue runs';

CREATE FUNCTION delay_schedule_local(
	local_time timestamp,
	timezone text,
	sql_text text,
	args anycompatiblearray DEFAULT NULL::text[],
	named jsonb DEFAULT NULL,
	key text DEFAULT NULL,
	if_exists text DEFAULT NULL,
	queue text DEFAULT NULL,
	tag text DEFAULT NULL,
	priority integer DEFAULT NULL,
	max_attempts integer DEFAULT NULL,
	group_key text DEFAULT NULL,
	options jsonb DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_schedule_local' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule_local(timestamp, text, text, anycompatiblearray, jsonb, text, text, text, text, integer, integer, text, jsonb) IS
'Schedules SQL that runs once, as the current user, at a local time of a time zone. Returns the id of the task.';

GRANT SELECT ON delay_wheel.recurring, delay_wheel.recurring_status TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel_internal.get_recurring() TO PUBLIC;

CREATE FUNCTION delay_every(
	name text,
	every interval,
	sql_text text,
	args anycompatiblearray DEFAULT NULL::text[],
	named jsonb DEFAULT NULL,
	starts timestamptz DEFAULT NULL,
	until timestamptz DEFAULT NULL,
	timezone text DEFAULT NULL,
	queue text DEFAULT NULL,
	tag text DEFAULT NULL,
	priority integer DEFAULT NULL,
	max_attempts integer DEFAULT NULL,
	options jsonb DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_every' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_every(text, interval, text, anycompatiblearray, jsonb, timestamptz, timestamptz, text, text, text, integer, integer, jsonb) IS
'Declares a recurring task of the current user with an interval, or changes the existing task of this name. Returns the id of the next run.';

CREATE FUNCTION delay_cron(
	name text,
	schedule text,
	sql_text text,
	args anycompatiblearray DEFAULT NULL::text[],
	named jsonb DEFAULT NULL,
	starts timestamptz DEFAULT NULL,
	until timestamptz DEFAULT NULL,
	timezone text DEFAULT NULL,
	queue text DEFAULT NULL,
	tag text DEFAULT NULL,
	priority integer DEFAULT NULL,
	max_attempts integer DEFAULT NULL,
	options jsonb DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_cron' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_cron(text, text, text, anycompatiblearray, jsonb, timestamptz, timestamptz, text, text, text, integer, integer, jsonb) IS
'Declares a recurring task of the current user with a cron schedule, or changes the existing task of this name. Returns the id of the next run.';

CREATE FUNCTION delay_unschedule(name text) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_unschedule' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_unschedule(text) IS
'Removes a recurring task of the current user with its pending run. Returns false if no recurring task has this name.';

CREATE FUNCTION delay_pause_recurring(name text) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_pause_recurring' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_pause_recurring(text) IS
'Pauses a recurring task of the current user until delay_resume_recurring(). Returns false if no recurring task has this name.';

CREATE FUNCTION delay_resume_recurring(name text) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_resume_recurring' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_resume_recurring(text) IS
'Ends the pause of a recurring task of the current user. Returns false if no recurring task has this name.';

CREATE FUNCTION delay_wheel.cron_times(schedule text, timezone text DEFAULT NULL,
	after timestamptz DEFAULT pg_catalog.now(), n integer DEFAULT 1) RETURNS SETOF timestamptz
AS 'MODULE_PATHNAME', 'dw_cron_times' LANGUAGE C STABLE PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel.cron_times(text, text, timestamptz, integer) IS
'Returns the next times of a cron schedule in a time zone.';
GRANT EXECUTE ON FUNCTION delay_wheel.cron_times(text, text, timestamptz, integer) TO PUBLIC;
