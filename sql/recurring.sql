/*---- Recurring tasks ----*/

CREATE FUNCTION delay_every(
	name text,
	every interval,
	sql_text text,
	args anycompatiblearray DEFAULT NULL::text[],
	arg_types regtype[] DEFAULT NULL,
	starts timestamptz DEFAULT NULL,
	time_zone text DEFAULT NULL,
	until timestamptz DEFAULT NULL,
	max_runs bigint DEFAULT NULL,
	catch_up text DEFAULT 'skip',
	queue text DEFAULT NULL,
	tag text DEFAULT NULL,
	priority integer DEFAULT NULL,
	max_attempts integer DEFAULT NULL,
	retry_delay interval DEFAULT NULL,
	timeout interval DEFAULT NULL,
	skip_after interval DEFAULT NULL,
	notify text DEFAULT NULL,
	on_success text DEFAULT NULL,
	on_failure text DEFAULT NULL,
	mode text DEFAULT NULL,
	retry_backoff text DEFAULT NULL,
	retry_max_delay interval DEFAULT NULL,
	retry_on text[] DEFAULT NULL,
	give_up_on text[] DEFAULT NULL,
	keep_settings text[] DEFAULT NULL,
	check_sql text DEFAULT NULL,
	group_key text DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_every' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_every(text, interval, text, anycompatiblearray, regtype[], timestamptz, text, timestamptz, bigint, text, text, text, integer, integer, interval, interval, interval, text, text, text, text, text, interval, text[], text[], text[], text, text) IS
'declares a recurring task of the current user, if this transaction commits, or changes the one of this name; returns the id of the task that is its next run (while a run is going on, of that one; null if there is none). Each run is an ordinary task, which schedules the next one in its own transaction, also if it fails; so no two of them ever overlap. Null is always: not given.
name, 1 to 1000 bytes: unique for its owner.
every, 100 ms at least, without negative parts: ideal times are starts plus 0, 1, 2 ... times every, computed from starts, never from an actual start; months and days are counted in time_zone (null: that of this session), as timestamptz + interval does: 31 January plus n months is the last day of shorter months; 24 hours are elapsed time.
starts: the first one; null is every after the start of this transaction; it may be past.
time_zone: a name as in pg_timezone_names; null is that of this session.
until: no run has a later ideal time; null is no limit.
max_runs: no run after so many; null is no limit. A recurring task without further runs stays listed in delay_wheel.recurring until delay_unschedule.
catch_up: what to do with ideal times that have passed, since the server was down, a run took longer than every, or its queue was paused: skip (the default) makes the run that was waiting at once, then goes on with the first ideal time that is not past; all makes all of them, in order, one after the other. With a starts that is past, skip begins with the first ideal time from now on, all with starts.
args, arg_types, queue, tag, priority, max_attempts, retry_delay, timeout, notify, on_success, on_failure, mode, retry_backoff, retry_max_delay, retry_on, give_up_on, keep_settings (the values of the declaration), check_sql, group_key: of each run, as in delay_schedule_task.
skip_after: of each run, too: a run that is later than that is left out, and with catch_up => all, only ideal times that are not too late by then are made up for. What a queue spreads is not spread here. A run that is cancelled (delay_cancel) is left out; one that is moved (delay_reschedule), or made early (delay_run), leaves the ideal times as they are.
If the task exists, all is as given now, what is null included; but if starts is null, and every and time_zone are as before, starts stays, and so does the ideal time of the next run. A run that waits is replaced by a new one; one that is going on is not touched, and its end goes by what is declared then. It stays paused if it was. If nothing is changed nothing is done. Waits for another session''s open change of the same as INSERT does, and for the end of a run that delay_run makes in an open transaction.
Errors as in delay_schedule_task (more than 65535 arguments, and on_success and on_failure of more than 128 MB together, SQLSTATE 54000, among them); also an interval or a schedule that is none, and a new one that would never have a run, SQLSTATE 22023';

CREATE FUNCTION delay_cron(
	name text,
	schedule text,
	sql_text text,
	args anycompatiblearray DEFAULT NULL::text[],
	arg_types regtype[] DEFAULT NULL,
	starts timestamptz DEFAULT NULL,
	time_zone text DEFAULT NULL,
	until timestamptz DEFAULT NULL,
	max_runs bigint DEFAULT NULL,
	catch_up text DEFAULT 'skip',
	queue text DEFAULT NULL,
	tag text DEFAULT NULL,
	priority integer DEFAULT NULL,
	max_attempts integer DEFAULT NULL,
	retry_delay interval DEFAULT NULL,
	timeout interval DEFAULT NULL,
	skip_after interval DEFAULT NULL,
	notify text DEFAULT NULL,
	on_success text DEFAULT NULL,
	on_failure text DEFAULT NULL,
	mode text DEFAULT NULL,
	retry_backoff text DEFAULT NULL,
	retry_max_delay interval DEFAULT NULL,
	retry_on text[] DEFAULT NULL,
	give_up_on text[] DEFAULT NULL,
	keep_settings text[] DEFAULT NULL,
	check_sql text DEFAULT NULL,
	group_key text DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_cron' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_cron(text, text, text, anycompatiblearray, regtype[], timestamptz, text, timestamptz, bigint, text, text, text, integer, integer, interval, interval, interval, text, text, text, text, text, interval, text[], text[], text[], text, text) IS
'like delay_every, with a cron schedule, see delay_wheel.cron_times(); ideal times are those of the schedule in time_zone (null: that of this session) that are not before starts (null: the start of this transaction)';

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

CREATE FUNCTION delay_wheel.cron_times(schedule text, time_zone text DEFAULT NULL,
	after timestamptz DEFAULT pg_catalog.now(), n integer DEFAULT 1) RETURNS SETOF timestamptz
AS 'MODULE_PATHNAME', 'dw_cron_times' LANGUAGE C STABLE PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel.cron_times(text, text, timestamptz, integer) IS
'the next n times (1, the default, to 10000) of a cron schedule that are later than after (now by default), in order; fewer, or none, if there are no more of them.
schedule: five fields, minute, hour, day of month, month and day of week, or six with the second before them, each with *, values, ranges, steps and lists, months and days of the week also by name; L is the last day of the month, friL its last Friday, fri#2 the second; or @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually. If neither day of month nor day of week begins with *, either is enough.
time_zone: a name as in pg_timezone_names; null is that of the session. When the clock is changed, hours that do not begin with * are fixed: a time that the clock leaves out comes at the end of the gap, one that it shows twice comes once, at the first; otherwise each instant counts at which the clock shows such a time. Nothing is run. A text that is no schedule, of more than 1000 bytes for instance, an unknown time zone, an infinite after and other n are errors, SQLSTATE 22023; null for schedule, after or n 22004';
GRANT EXECUTE ON FUNCTION delay_wheel.cron_times(text, text, timestamptz, integer) TO PUBLIC;
