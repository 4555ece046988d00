/*---- Views of tasks: pending, running, cancelled ----*/

CREATE FUNCTION delay_wheel_internal.slot(due timestamptz) RETURNS integer
AS 'MODULE_PATHNAME', 'dw_slot' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel_internal.slot(timestamptz) IS
'Returns the slot of the ring that a due time belongs to.';

CREATE FUNCTION delay_wheel_internal.cycle_num(due timestamptz) RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_cycle_num' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel_internal.cycle_num(timestamptz) IS
'Returns the number of whole turns of the ring until a due time.';

CREATE FUNCTION delay_wheel_internal.crashes(id bigint) RETURNS smallint
AS 'MODULE_PATHNAME', 'dw_crashes' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel_internal.crashes(bigint) IS
'Returns how often a process that ran this pending task has crashed; 0 for roles that may not read the task.';

-- STABLE: with a volatile function in a column, PostgreSQL would not merge the view into a query, but
-- compute all rows before LIMIT.  In LANGUAGE internal, since a function in SQL would be inlined.
CREATE FUNCTION delay_wheel_internal.clock() RETURNS timestamptz
AS 'clock_timestamp' LANGUAGE internal STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel_internal.clock() IS
'Returns the current time, like clock_timestamp(), for the views.';
GRANT EXECUTE ON FUNCTION delay_wheel_internal.clock() TO PUBLIC;

CREATE VIEW delay_wheel.tasks WITH (security_invoker) AS
SELECT t.id, COALESCE(t.first_due, t.due) AS due, pg_catalog.pg_get_userbyid(t.owner::oid)::text AS owner, COALESCE(q.name, CASE t.queue WHEN 0 THEN 'default' END) AS queue, t.priority, t.key, t.tag, t.sql, t.args,
	   delay_wheel_internal.slot(t.due) AS slot, delay_wheel_internal.cycle_num(t.due) AS cycle_num, COALESCE(t.attempts, 0::smallint) AS attempts,
	   t.more OPERATOR(pg_catalog.->>) 'last_error'::text AS last_error,
	   t.origin = delay_wheel_internal.origin() AS armed,
	   t.more OPERATOR(pg_catalog.->>) 'mode'::text AS mode,
	   delay_wheel_internal.crashes(t.id) AS crashes,
	   t.arg_types::text[] AS arg_types, t.max_attempts, t.retry_delay::text AS retry_delay,
	   pg_catalog.make_interval(secs => pg_catalog.float8(t.timeout) / 1000::double precision)::text AS timeout, t.expires::text AS expires,
	   -- plain SQL may have written any value
	   CASE WHEN pg_catalog.jsonb_typeof(t.more OPERATOR(pg_catalog.->) 'skip_after'::text) = 'number' THEN
			pg_catalog.make_interval(secs => LEAST(GREATEST((t.more OPERATOR(pg_catalog.->) 'skip_after'::text)::numeric, 0::numeric), 9.2e18::numeric)::double precision / 1000000::double precision)::text
	   END AS skip_after,
	   t.more OPERATOR(pg_catalog.->>) 'notify'::text AS notify,
	   t.more OPERATOR(pg_catalog.->>) 'on_success'::text AS on_success,
	   t.more OPERATOR(pg_catalog.->>) 'on_failure'::text AS on_failure, t.payload, t.group_key,
	   CASE WHEN t.token IS NOT NULL AND t.due > delay_wheel_internal.clock() THEN t.due END AS leased_until,
	   CASE WHEN t.token IS NOT NULL AND t.due > delay_wheel_internal.clock() THEN t.more OPERATOR(pg_catalog.->>) 'receiver'::text END AS receiver,
	   t.more OPERATOR(pg_catalog.->>) 'retry_backoff'::text AS retry_backoff,
	   CASE WHEN pg_catalog.jsonb_typeof(t.more OPERATOR(pg_catalog.->) 'retry_max_delay'::text) = 'number' THEN
			pg_catalog.make_interval(secs => LEAST(GREATEST((t.more OPERATOR(pg_catalog.->) 'retry_max_delay'::text)::numeric, 0::numeric), 1e15::numeric)::double precision / 1000000::double precision)::text
	   END AS retry_max_delay,
	   pg_catalog.string_to_array(t.more OPERATOR(pg_catalog.->>) 'retry_on'::text, ','::text) AS retry_on,
	   pg_catalog.string_to_array(t.more OPERATOR(pg_catalog.->>) 'give_up_on'::text, ','::text) AS give_up_on,
	   t.more OPERATOR(pg_catalog.->) 'settings'::text AS settings, t.more OPERATOR(pg_catalog.->) 'headers'::text AS headers,
	   ('2000-01-01'::timestamp + pg_catalog.make_interval(days => pg_catalog.div(l.us, 86400000000::numeric)::integer,
			secs => pg_catalog.mod(l.us, 86400000000::numeric)::double precision / 1000000::double precision))::text AS local_time,
	   t.more OPERATOR(pg_catalog.#>>) '{local,zone}'::text[] AS timezone,
	   -- plain SQL may have written any value
	   CASE WHEN pg_catalog.jsonb_typeof(t.more OPERATOR(pg_catalog.->) 'snoozes'::text) = 'number' THEN
			LEAST(GREATEST((t.more OPERATOR(pg_catalog.->) 'snoozes'::text)::numeric, 0::numeric), 9223372036854775807::numeric)::bigint
	   END AS snoozes,
	   delay_wheel_internal.batch_of(t.more) AS batch_id
FROM delay_wheel_data.readable_task t
	 LEFT JOIN delay_wheel_data.queue_name q ON q.id = t.queue
	 CROSS JOIN LATERAL (
		SELECT CASE WHEN pg_catalog.jsonb_typeof(t.more OPERATOR(pg_catalog.#>) '{local,time}'::text[]) = 'number' THEN
			LEAST(GREATEST((t.more OPERATOR(pg_catalog.#>) '{local,time}'::text[])::numeric, -211813488000000000::numeric), 9223371331199999999::numeric)
		END AS us) l
-- no task that is superseded by a newer task of the same key; messages under a lease are not superseded
WHERE NOT EXISTS (
		SELECT FROM delay_wheel_data.readable_task n
		WHERE n.key IS NOT NULL AND n.owner OPERATOR(pg_catalog.=) t.owner AND n.queue = t.queue AND n.key = t.key AND n.id > t.id
			AND (t.token IS NULL OR t.due <= delay_wheel_internal.clock())
			AND (n.origin = t.origin OR n.origin = delay_wheel_internal.origin()))
	-- no cancelled tasks, as in marks.c: first cancellations for all roles, then cancellations for
	-- single owners.  A cancellation for an owner is compared only with the tasks of this owner.
	AND NOT EXISTS (
		SELECT FROM delay_wheel_data.mark c
		WHERE COALESCE(t.spared, t.id) < c.id
			AND (c.origin = t.origin OR c.origin = delay_wheel_internal.origin())
			AND (c.queue IS NULL OR c.queue = t.queue)
			AND (c.tag IS NULL OR c.tag = t.tag)
			AND (c.due_from IS NULL OR COALESCE(t.first_due, t.due) >= c.due_from)
			AND (c.due_until IS NULL OR COALESCE(t.first_due, t.due) < c.due_until))
	AND NOT EXISTS (
		SELECT FROM delay_wheel_data.owner_mark c
		WHERE c.owner OPERATOR(pg_catalog.=) t.owner AND COALESCE(t.spared, t.id) < c.id
			AND (c.origin = t.origin OR c.origin = delay_wheel_internal.origin())
			AND (c.queue IS NULL OR c.queue = t.queue)
			AND (c.tag IS NULL OR c.tag = t.tag)
			AND (c.due_from IS NULL OR COALESCE(t.first_due, t.due) >= c.due_from)
			AND (c.due_until IS NULL OR COALESCE(t.first_due, t.due) < c.due_until));
COMMENT ON VIEW delay_wheel.tasks IS
'Pending tasks and messages. INSERT on this view is the right to use delay_wheel, see delay_wheel.allow(); nothing can be inserted.';
COMMENT ON COLUMN delay_wheel.tasks.id IS 'Id of the task, as delay_schedule() returned it; ids are in the order of scheduling';
COMMENT ON COLUMN delay_wheel.tasks.due IS 'Earliest time at which the task runs; after a failed attempt, the time of the next attempt';
COMMENT ON COLUMN delay_wheel.tasks.owner IS 'Role that scheduled the task; the task runs with the rights of this role';
COMMENT ON COLUMN delay_wheel.tasks.queue IS 'Name of the queue; default for a task without a queue, NULL if the queue was dropped';
COMMENT ON COLUMN delay_wheel.tasks.priority IS '-9 to 9; due tasks with a higher priority start first';
COMMENT ON COLUMN delay_wheel.tasks.key IS 'Key: at most one pending task per owner, queue and key';
COMMENT ON COLUMN delay_wheel.tasks.tag IS 'Free label, for instance a sender or a campaign';
COMMENT ON COLUMN delay_wheel.tasks.sql IS 'One or several SQL statements';
COMMENT ON COLUMN delay_wheel.tasks.leased_until IS 'End of the lease, if a receiver has leased the message';
COMMENT ON COLUMN delay_wheel.tasks.receiver IS 'Name that the receiver gave to delay_lease(), while the lease lasts';
COMMENT ON COLUMN delay_wheel.tasks.headers IS 'JSON object that was passed in addition to the payload or the SQL';
COMMENT ON COLUMN delay_wheel.tasks.snoozes IS 'Number of times that delay_snooze() has put the task off; NULL: never';
COMMENT ON COLUMN delay_wheel.tasks.payload IS 'Content of a message';
COMMENT ON COLUMN delay_wheel.tasks.group_key IS 'Name of the group';
COMMENT ON COLUMN delay_wheel.tasks.batch_id IS 'Id of the batch of which the task is a member; NULL: none';
COMMENT ON COLUMN delay_wheel.tasks.args IS 'Values of the parameters $1, $2 ... as text';
COMMENT ON COLUMN delay_wheel.tasks.attempts IS 'Number of failed attempts. For a message, each lease is an attempt, also the present lease';
COMMENT ON COLUMN delay_wheel.tasks.last_error IS 'SQLSTATE and message of the last failed attempt, separated by a colon';
COMMENT ON COLUMN delay_wheel.tasks.slot IS 'Slot of the ring to which the due time belongs';
COMMENT ON COLUMN delay_wheel.tasks.cycle_num IS 'Whole turns of the ring until the task is due';
COMMENT ON COLUMN delay_wheel.tasks.armed IS 'False for a task that came with a copy of another database and runs only after delay_wheel.arm()';
COMMENT ON COLUMN delay_wheel.tasks.crashes IS 'Number of crashes of a process that ran the task. After a crash, the task runs alone; after three crashes, it fails.';
COMMENT ON COLUMN delay_wheel.tasks.mode IS 'at_most_once or at_least_once, for a statement that runs outside a transaction; NULL for all other tasks';
COMMENT ON COLUMN delay_wheel.tasks.arg_types IS 'Types of args; - stands for an untyped literal, whose type depends on the statement';
COMMENT ON COLUMN delay_wheel.tasks.max_attempts IS 'Limit of attempts; NULL: the queue''s default, or 1';
COMMENT ON COLUMN delay_wheel.tasks.retry_delay IS 'Pause before the second attempt; NULL: the queue''s default, or 10 seconds';
COMMENT ON COLUMN delay_wheel.tasks.retry_backoff IS 'Growth of the pause between attempts: exponential, linear or fixed; NULL: the queue''s default, or exponential';
COMMENT ON COLUMN delay_wheel.tasks.retry_max_delay IS 'Limit of the pause between attempts; 0: 1 hour, or retry_delay if that is longer. NULL: the queue''s default, or 0.';
COMMENT ON COLUMN delay_wheel.tasks.retry_on IS 'SQLSTATEs, or classes, after which the task is tried again; empty: all. NULL: the queue''s default, or empty.';
COMMENT ON COLUMN delay_wheel.tasks.settings IS 'Names and values of the settings that are kept for the task, with JSON null for a setting that was not set';
COMMENT ON COLUMN delay_wheel.tasks.local_time IS 'Local time at which the task is due; NULL if the task does not follow a time zone';
COMMENT ON COLUMN delay_wheel.tasks.timezone IS 'Name of the time zone of local_time';
COMMENT ON COLUMN delay_wheel.tasks.give_up_on IS 'SQLSTATEs, or classes, after which the task is not tried again. NULL: the queue''s default, or empty.';
COMMENT ON COLUMN delay_wheel.tasks.timeout IS 'Time limit of each attempt; 0: none. NULL: the queue''s default, or the shorter one of the role''s statement_timeout and delay_wheel.default_timeout.';
COMMENT ON COLUMN delay_wheel.tasks.expires IS 'The task fails if it has not started within this time after it was due; NULL: no limit';
COMMENT ON COLUMN delay_wheel.tasks.skip_after IS 'The task is skipped if it has not started within this time after it was due; NULL: no limit';
COMMENT ON COLUMN delay_wheel.tasks.notify IS 'Channel that is notified when the task ends';
COMMENT ON COLUMN delay_wheel.tasks.on_success IS 'SQL of the task that follows if this task is done';
COMMENT ON COLUMN delay_wheel.tasks.on_failure IS 'SQL of the task that follows if this task has failed';

CREATE FUNCTION delay_wheel_internal.is_running(id bigint) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_is_running' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.is_running(bigint) IS
'Returns true if an executor runs this task in mode at_most_once. The view delay_wheel.failed calls this function.';

CREATE FUNCTION delay_wheel_internal.get_running(OUT pid integer, OUT owner regrole, OUT task bigint, OUT due timestamptz, OUT since timestamptz, OUT state text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_running' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.get_running() IS
'Returns executors of this database. The view delay_wheel.running calls this function.';

CREATE VIEW delay_wheel.running AS
SELECT r.pid, pg_catalog.pg_get_userbyid(r.owner::oid)::text AS owner, r.task, r.due, r.since
FROM delay_wheel_internal.get_running() r
WHERE r.task IS NOT NULL;
COMMENT ON VIEW delay_wheel.running IS
'Tasks that executors of this database are running';
COMMENT ON COLUMN delay_wheel.running.pid IS 'Process id of the executor, as in pg_stat_activity';
COMMENT ON COLUMN delay_wheel.running.owner IS 'Role that scheduled the task';
COMMENT ON COLUMN delay_wheel.running.task IS 'Id of the task';
COMMENT ON COLUMN delay_wheel.running.due IS 'Due time of the task';
COMMENT ON COLUMN delay_wheel.running.since IS 'Start of the run; after an immediate repeat (serialization failure or deadlock), the first start';

CREATE FUNCTION delay_wheel_internal.get_cancellations(
	OUT id bigint, OUT made_at timestamptz, OUT made_by regrole, OUT owners regrole[], OUT queue smallint,
	OUT tag text, OUT due_from timestamptz, OUT due_until timestamptz, OUT removed bigint, OUT running integer,
	OUT state text, OUT waiting_for integer[])
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_cancellations' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_wheel_internal.get_cancellations() IS
'Returns cancellations that are not complete. The view delay_wheel.cancellations calls this function.';

CREATE VIEW delay_wheel.cancellations AS
SELECT c.id, c.made_at, pg_catalog.pg_get_userbyid(c.made_by::oid)::text AS made_by,
	   CASE WHEN c.owners IS NOT NULL THEN ARRAY(SELECT CASE WHEN r.id OPERATOR(pg_catalog.=) 0::oid THEN '-' ELSE pg_catalog.pg_get_userbyid(r.id)::text END FROM pg_catalog.unnest(c.owners::oid[]) WITH ORDINALITY r(id, n) ORDER BY r.n) END AS owners,
	   COALESCE(q.name, CASE c.queue WHEN 0 THEN 'default' ELSE c.queue::text END) AS queue,
	   c.tag, c.due_from, c.due_until, c.running, c.removed, c.state, c.waiting_for
FROM delay_wheel_internal.get_cancellations() c
	 LEFT JOIN delay_wheel_data.queue q ON q.id = c.queue;
COMMENT ON VIEW delay_wheel.cancellations IS
'Calls of delay_cancel_all() whose tasks are not all removed yet. These tasks are cancelled: none of them starts.';
COMMENT ON COLUMN delay_wheel.cancellations.made_at IS 'Start of the transaction that called delay_cancel_all()';
COMMENT ON COLUMN delay_wheel.cancellations.made_by IS 'Role that called delay_cancel_all()';
COMMENT ON COLUMN delay_wheel.cancellations.queue IS 'Name of the queue whose tasks are cancelled; NULL: all queues';
COMMENT ON COLUMN delay_wheel.cancellations.tag IS 'Tag of the cancelled tasks; NULL: any';
COMMENT ON COLUMN delay_wheel.cancellations.due_from IS 'Tasks due at this time or later are cancelled; NULL: no limit';
COMMENT ON COLUMN delay_wheel.cancellations.due_until IS 'Tasks due before this time are cancelled; NULL: no limit';
COMMENT ON COLUMN delay_wheel.cancellations.id IS 'Id of the cancellation, as delay_cancel_all() returned it';
COMMENT ON COLUMN delay_wheel.cancellations.owners IS 'Roles whose tasks are cancelled; NULL: all roles';
COMMENT ON COLUMN delay_wheel.cancellations.running IS 'Matching tasks that were running at the call and are still running; they are not stopped';
COMMENT ON COLUMN delay_wheel.cancellations.removed IS 'Rows removed so far, updated once a second';
COMMENT ON COLUMN delay_wheel.cancellations.state IS 'sweeping: rows are being removed; waiting: for open transactions, see waiting_for; queued: the sweeper has not started yet; unarmed: the row came with a copy of another database';
COMMENT ON COLUMN delay_wheel.cancellations.waiting_for IS 'Process ids of some open transactions that the sweeper waits for, 0 for a prepared transaction; NULL if the state is not waiting';

CREATE VIEW delay_wheel.unique_keys WITH (security_invoker) AS
SELECT u.id, pg_catalog.pg_get_userbyid(u.owner::oid)::text AS owner, COALESCE(q.name, CASE u.queue WHEN 0 THEN 'default' END) AS queue, u.key, u.until
FROM delay_wheel_data.readable_unique_key u
	 LEFT JOIN delay_wheel_data.queue_name q ON q.id = u.queue
WHERE u.until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp();
COMMENT ON VIEW delay_wheel.unique_keys IS
'Keys that are unique for a period. In the period, calls with unique_for schedule no other task of the key.';
COMMENT ON COLUMN delay_wheel.unique_keys.id IS 'Id of the task that began the period; it is pending, running or done';
COMMENT ON COLUMN delay_wheel.unique_keys.owner IS 'Role that scheduled the task';
COMMENT ON COLUMN delay_wheel.unique_keys.queue IS 'Name of the queue into which the task was scheduled; NULL if the queue was dropped';
COMMENT ON COLUMN delay_wheel.unique_keys.key IS 'Key of the task';
COMMENT ON COLUMN delay_wheel.unique_keys.until IS 'End of the period';

GRANT SELECT ON delay_wheel.tasks, delay_wheel.running, delay_wheel.cancellations, delay_wheel.unique_keys
	TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel_internal.slot(timestamptz), delay_wheel_internal.cycle_num(timestamptz), delay_wheel_internal.crashes(bigint), delay_wheel_internal.is_running(bigint), delay_wheel_internal.get_running(), delay_wheel_internal.get_cancellations()
	TO PUBLIC;
