/*---- Scheduling, cancelling, moving, waiting, running at once ----*/

CREATE FUNCTION delay_schedule(delay interval, sql_text text) RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_schedule' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule(interval, text) IS
'Schedules SQL that runs once, after a delay, as the current user. Returns the id of the task.';

CREATE FUNCTION delay_schedule(delay interval, sql_text text, VARIADIC args "any") RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_schedule' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule(interval, text, "any") IS
'Schedules SQL with values for $1, $2 ... that runs once, after a delay, as the current user. Returns the id of the task.';

-- no value has type void: by this default the function recognizes a call without values
CREATE FUNCTION delay_schedule(delay text, sql_text text, VARIADIC args "any" DEFAULT NULL::void) RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_schedule_text' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule(text, text, "any") IS
'Schedules SQL that runs once, as the current user, after a delay or at a time given as text. Returns the id of the task.';

CREATE FUNCTION delay_schedule_at(due timestamptz, sql_text text, VARIADIC args "any" DEFAULT NULL::void) RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_schedule_at' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule_at(timestamptz, text, "any") IS
'Schedules SQL that runs once, at a point in time, as the current user. Returns the id of the task.';

CREATE FUNCTION delay_schedule_task(
	sql_text text,
	args anycompatiblearray DEFAULT NULL::text[],
	named jsonb DEFAULT NULL,
	delay interval DEFAULT NULL,
	due timestamptz DEFAULT NULL,
	key text DEFAULT NULL,
	if_exists text DEFAULT NULL,
	queue text DEFAULT NULL,
	tag text DEFAULT NULL,
	priority integer DEFAULT NULL,
	max_attempts integer DEFAULT NULL,
	group_key text DEFAULT NULL,
	options jsonb DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_schedule_task' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule_task(text, anycompatiblearray, jsonb, interval, timestamptz, text, text, text, text, integer, integer, text, jsonb) IS
'Schedules SQL that runs once, with all options of tasks, as the current user. Returns the id of the task.';

CREATE FUNCTION delay_wheel_internal.get_options(OUT name text, OUT type text, OUT minimum text, OUT maximum text, OUT given_to text[])
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_options' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel_internal.get_options() IS 'Returns all options. The view delay_wheel.options calls this function.';

CREATE VIEW delay_wheel.options AS SELECT * FROM delay_wheel_internal.get_options();
COMMENT ON VIEW delay_wheel.options IS
'Options of functions, given as parameters or in the parameter options';
COMMENT ON COLUMN delay_wheel.options.name IS 'Name of the option';
COMMENT ON COLUMN delay_wheel.options.type IS 'Type; in the parameter options, intervals and points in time are JSON strings, and arrays have strings as elements';
COMMENT ON COLUMN delay_wheel.options.minimum IS 'Lowest value, or shortest length of a text in bytes; NULL: no limit of the value (limits of lengths are in the reference)';
COMMENT ON COLUMN delay_wheel.options.maximum IS 'Highest value, or greatest length of a text in bytes; NULL: no limit of the value (limits of lengths are in the reference)';
COMMENT ON COLUMN delay_wheel.options.given_to IS 'Where the option can be given: tasks, messages, triggers (for their rows), recurring tasks, changes of pending tasks, queues';
GRANT SELECT ON delay_wheel.options TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel_internal.get_options() TO PUBLIC;

CREATE FUNCTION delay_scheduled(INOUT id bigint DEFAULT NULL, OUT outcome text, OUT due_at timestamptz)
RETURNS record
AS 'MODULE_PATHNAME', 'dw_scheduled' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_scheduled(bigint) IS
'Returns id, outcome and due time of the last call in this transaction that scheduled a task or sent a message.';

CREATE FUNCTION delay_schedule_trigger() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_schedule_trigger' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule_trigger() IS
'Schedules a task of the current user for each row that is inserted or updated. For CREATE TRIGGER ... AFTER ... FOR EACH ROW, or FOR EACH STATEMENT with a transition table.';

CREATE FUNCTION delay_cancel(id bigint DEFAULT NULL, stop_running boolean DEFAULT false, tell_end boolean DEFAULT false,
	key text DEFAULT NULL, queue text DEFAULT NULL, no_retry boolean DEFAULT false) RETURNS text
AS 'MODULE_PATHNAME', 'dw_cancel' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_cancel(bigint, boolean, boolean, text, text, boolean) IS
'Cancels a pending task, named by its id or its key; stop_running also stops a running task. Returns the result as a word.';

CREATE FUNCTION delay_cancel_all(queue text DEFAULT NULL, tag text DEFAULT NULL, due_from timestamptz DEFAULT NULL, due_until timestamptz DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_cancel_all' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_cancel_all(text, text, timestamptz, timestamptz) IS
'Cancels at once all pending tasks of a queue, with a tag, or in a range of due times. Returns the id of the cancellation.';

CREATE FUNCTION delay_reschedule(id bigint DEFAULT NULL, delay interval DEFAULT NULL, key text DEFAULT NULL, queue text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'dw_reschedule' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_reschedule(bigint, interval, text, text) IS
'Moves a pending task, named by its id or its key, to a delay after the start of this transaction.';

CREATE FUNCTION delay_reschedule(id bigint DEFAULT NULL, delay text DEFAULT NULL, key text DEFAULT NULL, queue text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'dw_reschedule_text' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_reschedule(bigint, text, text, text) IS
'Moves a pending task, named by its id or its key, to a delay or a point in time given as text.';

CREATE FUNCTION delay_reschedule(id bigint DEFAULT NULL, due timestamptz DEFAULT NULL, key text DEFAULT NULL, queue text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'dw_reschedule_due' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_reschedule(bigint, timestamptz, text, text) IS
'Moves a pending task, named by its id or its key, to a point in time.';

CREATE FUNCTION delay_update(
	id bigint DEFAULT NULL,
	delay interval DEFAULT NULL,
	due timestamptz DEFAULT NULL,
	sql_text text DEFAULT NULL,
	args anycompatiblearray DEFAULT NULL::text[],
	named jsonb DEFAULT NULL,
	payload jsonb DEFAULT NULL,
	tag text DEFAULT NULL,
	priority integer DEFAULT NULL,
	max_attempts integer DEFAULT NULL,
	options jsonb DEFAULT NULL,
	key text DEFAULT NULL,
	queue text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'dw_update' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_update(bigint, interval, timestamptz, text, anycompatiblearray, jsonb, jsonb, text, integer, integer, jsonb, text, text) IS
'Changes a pending task, named by its id or its key. The id and all values that are not given do not change.';

CREATE FUNCTION delay_run(id bigint) RETURNS text
AS 'MODULE_PATHNAME', 'dw_run' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_run(bigint) IS
'Runs a pending task of the session''s own role now, in the caller''s transaction.';

CREATE FUNCTION delay_snooze(delay interval) RETURNS void
AS 'MODULE_PATHNAME', 'dw_delay_snooze' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_snooze(interval) IS
'Makes the task whose SQL calls it run again after a delay, if this run ends without an error.';

CREATE FUNCTION delay_run_due(until timestamptz DEFAULT NULL, as_executor boolean DEFAULT false) RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_run_due' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_run_due(timestamptz, boolean) IS
'Runs all pending tasks of the current user that are due by a time, in the caller''s transaction. For tests of applications.';

CREATE FUNCTION delay_now() RETURNS timestamptz
AS 'MODULE_PATHNAME', 'dw_delay_now' LANGUAGE C STABLE PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_now() IS
'Returns the time from which delays count: now(), or a later time in a task that delay_run_due() runs.';
