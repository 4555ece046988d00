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
	-- found by an index, whose order the library must know
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
-- each run updates its row, which finds room on the page
WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.1, vacuum_truncate = off);
COMMENT ON TABLE delay_wheel_data.recurring_task IS
'one row for each recurring task, as delay_every or delay_cron declared it; the next run is an ordinary task in delay_wheel_data.task. Read it by the view delay_wheel.recurring';
COMMENT ON COLUMN delay_wheel_data.recurring_task.queue IS 'of its runs, as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.priority IS 'of its runs, as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.max_attempts IS 'of its runs, as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.retry_delay IS 'of its runs, as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.sql IS 'of its runs, as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.args IS 'of its runs, as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.arg_types IS 'of its runs, as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.search_path IS 'of its runs, as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.tag IS 'of its runs, as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.more IS 'of its runs: what few tasks have';
COMMENT ON COLUMN delay_wheel_data.recurring_task.group_key IS 'of its runs, as in delay_wheel_data.task';
COMMENT ON COLUMN delay_wheel_data.recurring_task.id IS 'number of the recurring task, from the same sequence as those of tasks';
COMMENT ON COLUMN delay_wheel_data.recurring_task.task IS 'id of the task that is the run which is pending or going on; null if there is none';
COMMENT ON COLUMN delay_wheel_data.recurring_task.next_due IS 'ideal time of that run; null if there are no runs any more';
COMMENT ON COLUMN delay_wheel_data.recurring_task.origin IS 'database that it was declared in, see delay_wheel_internal.origin(); in another one, it has no runs until delay_wheel.arm() is called';
COMMENT ON COLUMN delay_wheel_data.recurring_task.starts IS 'first ideal time, from which the others are counted; with a cron schedule, there is none before';
COMMENT ON COLUMN delay_wheel_data.recurring_task.until IS 'no ideal time is later; null is no limit';
COMMENT ON COLUMN delay_wheel_data.recurring_task.last_due IS 'ideal time of the last run that has ended';
COMMENT ON COLUMN delay_wheel_data.recurring_task.last_started IS 'when its last attempt was started; null if it was not';
COMMENT ON COLUMN delay_wheel_data.recurring_task.last_ended IS 'when it ended';
COMMENT ON COLUMN delay_wheel_data.recurring_task.runs IS 'runs that have ended, with success or not';
COMMENT ON COLUMN delay_wheel_data.recurring_task.failures IS 'those that failed';
COMMENT ON COLUMN delay_wheel_data.recurring_task.skipped IS 'runs that were cancelled, or not begun since they were too late';
COMMENT ON COLUMN delay_wheel_data.recurring_task.max_runs IS 'no further run after so many; null is no limit';
COMMENT ON COLUMN delay_wheel_data.recurring_task.owner IS 'role that declared it, whose rights its runs have';
COMMENT ON COLUMN delay_wheel_data.recurring_task.timeout IS 'of its runs, as in delay_wheel_data.task, in milliseconds';
COMMENT ON COLUMN delay_wheel_data.recurring_task.paused IS 'it has no runs, see delay_pause_recurring';
COMMENT ON COLUMN delay_wheel_data.recurring_task.every IS 'interval between ideal times; null if it has a cron schedule';
COMMENT ON COLUMN delay_wheel_data.recurring_task.name IS 'name, unique for its owner';
COMMENT ON COLUMN delay_wheel_data.recurring_task.schedule IS 'cron schedule; null if it has an interval';
COMMENT ON COLUMN delay_wheel_data.recurring_task.timezone IS 'time zone that days and months, and the cron schedule, are counted in';
COMMENT ON COLUMN delay_wheel_data.recurring_task.catch_up IS 'what to do with ideal times that have passed: skip or all';
COMMENT ON COLUMN delay_wheel_data.recurring_task.last_outcome IS 'how the last run ended: done, failed, skipped or cancelled';
COMMENT ON COLUMN delay_wheel_data.recurring_task.last_error IS 'its error, or why there is no further run; null if there was none';
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
	   -- whatever plain SQL may have written
	   CASE WHEN pg_catalog.jsonb_typeof(d.more OPERATOR(pg_catalog.->) 'skip_after'::text) = 'number' THEN
			pg_catalog.make_interval(secs => LEAST(GREATEST((d.more OPERATOR(pg_catalog.->) 'skip_after'::text)::numeric, 0::numeric), 1e15::numeric)::double precision / 1000000::double precision)::text
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
	 -- two executors may hold the same task for a moment, until one has claimed it
	 LEFT JOIN (SELECT DISTINCT task FROM delay_wheel_internal.get_running()) r ON r.task = d.task;
COMMENT ON VIEW delay_wheel.recurring IS
'one''s own recurring tasks, see delay_every() and delay_cron(); all of them for pg_read_all_data and superusers';
COMMENT ON COLUMN delay_wheel.recurring.name IS 'as given to delay_every() or delay_cron(), unique for its owner';
COMMENT ON COLUMN delay_wheel.recurring.owner IS 'role that declared it, whose rights its runs have';
COMMENT ON COLUMN delay_wheel.recurring.every IS 'interval, as text, between ideal times; null if it has a cron schedule';
COMMENT ON COLUMN delay_wheel.recurring.schedule IS 'cron schedule; null if it has an interval';
COMMENT ON COLUMN delay_wheel.recurring.timezone IS 'in which days, months and the cron schedule are counted';
COMMENT ON COLUMN delay_wheel.recurring.starts IS 'first ideal time, from which the others are counted; with a cron schedule, there is none before';
COMMENT ON COLUMN delay_wheel.recurring.until IS 'no ideal time is later; null is no limit';
COMMENT ON COLUMN delay_wheel.recurring.max_runs IS 'no further run after so many; null is no limit';
COMMENT ON COLUMN delay_wheel.recurring.catch_up IS 'what is done with ideal times that have passed: skip or all';
COMMENT ON COLUMN delay_wheel.recurring.last_ended IS 'when the last run ended, or was given up; null if there was none';
COMMENT ON COLUMN delay_wheel.recurring.paused IS 'whether delay_pause_recurring() holds';
COMMENT ON COLUMN delay_wheel.recurring.queue IS 'name of the queue of its runs; null if it has been dropped';
COMMENT ON COLUMN delay_wheel.recurring.priority IS 'of its runs: -9 to 9';
COMMENT ON COLUMN delay_wheel.recurring.group_key IS 'the group that its runs belong to, or null';
COMMENT ON COLUMN delay_wheel.recurring.tag IS 'of its runs, or null';
COMMENT ON COLUMN delay_wheel.recurring.sql IS 'of its runs';
COMMENT ON COLUMN delay_wheel.recurring.args IS 'of its runs: values of $1, $2 ... in text form; null if there are none';
COMMENT ON COLUMN delay_wheel.recurring.state IS 'waiting for its next run; running (if one may see that in delay_wheel.running); paused by delay_pause_recurring(); finished: there are no runs any more; unarmed: it came with a copy of another database, see delay_wheel.arm()';
COMMENT ON COLUMN delay_wheel.recurring.next_due IS 'ideal time of the next run, or of the one that is going on; null if there is none';
COMMENT ON COLUMN delay_wheel.recurring.task IS 'id of that run in delay_wheel.tasks, which has its own due time if it was moved or is tried again';
COMMENT ON COLUMN delay_wheel.recurring.last_due IS 'ideal time of the last run that has ended';
COMMENT ON COLUMN delay_wheel.recurring.last_started IS 'when its last attempt was started; null if it was not';
COMMENT ON COLUMN delay_wheel.recurring.last_outcome IS 'how it ended: done, failed (see delay_wheel.failed), skipped (it was too late) or cancelled';
COMMENT ON COLUMN delay_wheel.recurring.last_error IS 'its error, up to 1000 bytes of it, or why there is no further run; null if there was none';
COMMENT ON COLUMN delay_wheel.recurring.runs IS 'runs that have ended, with success or not';
COMMENT ON COLUMN delay_wheel.recurring.failures IS 'those that failed';
COMMENT ON COLUMN delay_wheel.recurring.skipped IS 'runs that were cancelled, or too late; times that were left out since they had passed (catch_up => skip, or all with skip_after) have no run, and are not counted';
COMMENT ON COLUMN delay_wheel.recurring.id IS 'number of the recurring task, as in column recurring of delay_wheel.history';
COMMENT ON COLUMN delay_wheel.recurring.arg_types IS 'of its runs: types of the args, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.max_attempts IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.retry_delay IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.retry_backoff IS 'of its runs: how the pause before further attempts grows: exponential, linear or fixed; null is as the queue says, or else exponential';
COMMENT ON COLUMN delay_wheel.recurring.retry_max_delay IS 'an interval as text: of its runs: no pause is longer; 0 is an hour, or retry_delay if that is longer; null is the queue''s, or else 0';
COMMENT ON COLUMN delay_wheel.recurring.retry_on IS 'of its runs: SQLSTATEs, or their classes, after which alone it is tried again; empty is after all; null is the queue''s, or else empty';
COMMENT ON COLUMN delay_wheel.recurring.settings IS 'of its runs: settings of the caller that were kept for it, see keep_settings of delay_schedule_task(): names with their values, null for what was not set; null is none';
COMMENT ON COLUMN delay_wheel.recurring.headers IS 'of its runs, see headers of delay_schedule_task(); null is none';
COMMENT ON COLUMN delay_wheel.recurring.give_up_on IS 'of its runs: SQLSTATEs, or their classes, after which it is not tried again; null is the queue''s, or else empty';
COMMENT ON COLUMN delay_wheel.recurring.timeout IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.skip_after IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.notify IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.on_success IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.on_failure IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.mode IS 'of its runs, as in delay_wheel.tasks';

CREATE FUNCTION delay_wheel_internal.get_recurring(
	OUT owner regrole, OUT task bigint, OUT failed boolean, OUT skipped boolean, OUT paused boolean,
	OUT ended timestamptz, OUT due timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_recurring' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_wheel_internal.get_recurring() IS
'how one''s own recurring tasks stand, a row for each, all of them for pg_read_all_stats and superusers, without their texts; due is null unless the run was due more than a minute ago. See delay_wheel.recurring_status';

CREATE VIEW delay_wheel.recurring_status AS
SELECT pg_catalog.pg_get_userbyid(d.owner::oid)::text AS owner, pg_catalog.count(*) AS tasks,
	   pg_catalog.count(*) FILTER (WHERE d.failed) AS failed,
	   pg_catalog.min(d.ended) FILTER (WHERE d.failed) AS oldest_failure,
	   pg_catalog.count(*) FILTER (WHERE d.skipped) AS skipped,
	   pg_catalog.count(*) FILTER (WHERE d.paused) AS paused,
	   pg_catalog.count(d.due) FILTER (WHERE r.task IS NULL) AS overdue,
	   pg_catalog.min(d.due) FILTER (WHERE r.task IS NULL) AS first_due
FROM delay_wheel_internal.get_recurring() d
	 -- two executors may hold the same task for a moment, until one has claimed it
	 LEFT JOIN (SELECT DISTINCT task FROM delay_wheel_internal.get_running()) r ON r.task OPERATOR(pg_catalog.=) d.task
GROUP BY d.owner;
COMMENT ON VIEW delay_wheel.recurring_status IS
'which recurring tasks of this database are in trouble: a row for each role that has some, without names and texts. One''s own; all of them for pg_read_all_stats and superusers. Those that came with a copy and are not armed are left out. delay_wheel.recurring has them one by one';
COMMENT ON COLUMN delay_wheel.recurring_status.owner IS 'role that declared them';
COMMENT ON COLUMN delay_wheel.recurring_status.tasks IS 'its recurring tasks, those that are finished included';
COMMENT ON COLUMN delay_wheel.recurring_status.failed IS 'those whose last run failed, or that have no further run because of an error, such as a time zone that is gone; also if they are paused or finished; until another run ends otherwise, or delay_unschedule()';
COMMENT ON COLUMN delay_wheel.recurring_status.oldest_failure IS 'when the last run of these ended, the earliest one; null if there is none';
COMMENT ON COLUMN delay_wheel.recurring_status.skipped IS 'those whose last run was skipped, since it would have been too late, see skip_after of delay_every()';
COMMENT ON COLUMN delay_wheel.recurring_status.paused IS 'those that delay_pause_recurring() has paused, or a crash; pauses of roles, queues and the database do not count';
COMMENT ON COLUMN delay_wheel.recurring_status.overdue IS 'those whose run has been due for more than a minute and is not running: for want of an executor, by a limit or a pause of its queue, role or database';
COMMENT ON COLUMN delay_wheel.recurring_status.first_due IS 'due time of the one of these that has waited longest; null if there is none';

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
'like delay_schedule_task(), for a local time: the task is due when the clocks of the time zone show it. delay_schedule_local(''2027-03-28 09:00'', ''Europe/Berlin'', ''SELECT f()'').
local_time: as AT TIME ZONE has it, of a time that comes twice, when clocks are set back, the second one is meant, and one that is left out, when they are set forward, is moved by what is left out: 02:30 is 03:30.
timezone: a name of the view pg_timezone_names, or a POSIX time zone, as for the setting TimeZone; no other abbreviations. An unknown one is an error, SQLSTATE 22023.
The time zone is kept with the task: if its rules change, the task is moved. The rules are those of the server''s time zone data; pending tasks are looked at when the server starts, and once a day. A zone that is gone from the data leaves the due time as it is. The spread of the queue is added. A task that is moved by delay_reschedule(), or by if_exists (earlier, later), or whose due time is that of another one (replace_keep_due), and one that has failed and is tried again, has a due time like others, and does not follow any more; delay_update() leaves the local time.
The other arguments are those of delay_schedule_task(). A null local_time or timezone, SQLSTATE 22004, an infinite local_time, and one that is out of range, 22008, are errors';

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
'declares a recurring task of the current user, if this transaction commits, or changes the one of this name; returns the id of the task that is its next run (while a run is going on, of that one; null if there is none). Each run is an ordinary task, which schedules the next one in its own transaction, also if it fails; so no two of them ever overlap. Null is always: not given.
name, 1 to 1000 bytes: unique for its owner.
every, 100 ms at least, without negative parts: ideal times are starts plus 0, 1, 2 ... times every, computed from starts, never from an actual start; months and days are counted in timezone (null: that of this session), as timestamptz + interval does: 31 January plus n months is the last day of shorter months; 24 hours are elapsed time.
starts: the first one; null is every after the start of this transaction; it may be past.
timezone: a name as in pg_timezone_names; null is that of this session.
until: no run has a later ideal time; null is no limit.
args, named, queue, tag, priority, max_attempts: of each run, as in delay_schedule_task.
options: a JSON object, as in delay_schedule_task(), with max_runs, catch_up and, of each run, arg_types, group_key, retry_delay, retry_backoff, retry_max_delay, retry_on, give_up_on, timeout, skip_after, notify, on_success, on_failure, headers, mode, check_sql, keep_settings (the values of the declaration).
max_runs: no run after so many; null is no limit. A recurring task without further runs stays listed in delay_wheel.recurring until delay_unschedule.
catch_up: what to do with ideal times that have passed, since the server was down, a run took longer than every, or its queue was paused: skip (the default) makes the run that was waiting at once, then goes on with the first ideal time that is not past; all makes all of them, in order, one after the other. With a starts that is past, skip begins with the first ideal time from now on, all with starts.
skip_after: of each run, too: a run that is later than that is left out, and with catch_up => all, only ideal times that are not too late by then are made up for. What a queue spreads is not spread here. A run that is cancelled (delay_cancel) is left out; one that is moved (delay_reschedule), or made early (delay_run), leaves the ideal times as they are.
If the task exists, all is as given now, what is null included; but if starts is null, and every and timezone are as before, starts stays, and so does the ideal time of the next run. A run that waits is replaced by a new one; one that is going on is not touched, and its end goes by what is declared then. It stays paused if it was. If nothing is changed nothing is done. Waits for another session''s open change of the same as INSERT does, and for the end of a run that delay_run makes in an open transaction.
Errors as in delay_schedule_task (more than 65535 arguments, and on_success and on_failure of more than 128 MB together, SQLSTATE 54000, among them); also an interval or a schedule that is none, and a new one that would never have a run, SQLSTATE 22023';

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
'like delay_every, with a cron schedule, see delay_wheel.cron_times(); ideal times are those of the schedule in timezone (null: that of this session) that are not before starts (null: the start of this transaction)';

CREATE FUNCTION delay_unschedule(name text) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_unschedule' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_unschedule(text) IS
'removes the current user''s recurring task of this name with the run that is pending, if this transaction commits; a run that is going on is the last one. False if there is none of this name. Waits as delay_every does. A null name is an error, SQLSTATE 22004';

CREATE FUNCTION delay_pause_recurring(name text) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_pause_recurring' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_pause_recurring(text) IS
'pauses the current user''s recurring task of this name, if this transaction commits: it has no runs until delay_resume_recurring; a run that is going on is finished. False if there is none of this name. Waits as delay_every does. A null name is an error, SQLSTATE 22004';

CREATE FUNCTION delay_resume_recurring(name text) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_resume_recurring' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_resume_recurring(text) IS
'ends what delay_pause_recurring began, if this transaction commits: the next run is at the first ideal time from now on, whatever catch_up says. False if there is none of this name; nothing is changed if it is not paused. Waits as delay_every does. Errors: a null name, SQLSTATE 22004; more pending tasks than delay_wheel.max_pending allows, 53400';

CREATE FUNCTION delay_wheel.cron_times(schedule text, timezone text DEFAULT NULL,
	after timestamptz DEFAULT pg_catalog.now(), n integer DEFAULT 1) RETURNS SETOF timestamptz
AS 'MODULE_PATHNAME', 'dw_cron_times' LANGUAGE C STABLE PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel.cron_times(text, text, timestamptz, integer) IS
'the next n times (1, the default, to 10000) of a cron schedule that are later than after (now by default), in order; fewer, or none, if there are no more of them.
schedule: five fields, minute, hour, day of month, month and day of week, or six with the second before them, each with *, values, ranges, steps and lists, months and days of the week also by name; L is the last day of the month, friL its last Friday, fri#2 the second; or @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually. If neither day of month nor day of week begins with *, either is enough.
timezone: a name as in pg_timezone_names; null is that of the session. When the clock is changed, hours that do not begin with * are fixed: a time that the clock leaves out comes at the end of the gap, one that it shows twice comes once, at the first; otherwise each instant counts at which the clock shows such a time. Nothing is run. A text that is no schedule, of more than 1000 bytes for instance, an unknown time zone, an infinite after and other n are errors, SQLSTATE 22023; null for schedule, after or n 22004';
GRANT EXECUTE ON FUNCTION delay_wheel.cron_times(text, text, timestamptz, integer) TO PUBLIC;
