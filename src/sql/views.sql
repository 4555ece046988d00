/*---- Views of tasks: pending, running, cancelled ----*/

CREATE FUNCTION delay_wheel_internal.slot(due timestamptz) RETURNS integer
AS 'MODULE_PATHNAME', 'dw_slot' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel_internal.slot(timestamptz) IS
'slot of the ring that a due time belongs into';

CREATE FUNCTION delay_wheel_internal.cycle_num(due timestamptz) RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_cycle_num' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel_internal.cycle_num(timestamptz) IS
'whole turns of the ring until a due time';

CREATE FUNCTION delay_wheel_internal.crashes(id bigint) RETURNS smallint
AS 'MODULE_PATHNAME', 'dw_crashes' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel_internal.crashes(bigint) IS
'number of times that the process that ran this pending task has crashed. Needs the rights of the task''s owner, pg_read_all_data or a superuser''s; 0 for all others. A task that has crashed is run alone, and set aside after three crashes';

CREATE VIEW delay_wheel.tasks WITH (security_invoker) AS
SELECT t.id, COALESCE(t.first_due, t.due) AS due, pg_catalog.pg_get_userbyid(t.owner::oid)::text AS owner, COALESCE(q.name, CASE t.queue WHEN 0 THEN 'default' END) AS queue, t.priority, t.key, t.tag, t.sql, t.args,
	   delay_wheel_internal.slot(t.due) AS slot, delay_wheel_internal.cycle_num(t.due) AS cycle_num, COALESCE(t.attempts, 0::smallint) AS attempts,
	   t.more OPERATOR(pg_catalog.->>) 'last_error'::text AS last_error,
	   t.origin = delay_wheel_internal.origin() AS armed,
	   t.more OPERATOR(pg_catalog.->>) 'mode'::text AS mode,
	   delay_wheel_internal.crashes(t.id) AS crashes,
	   t.arg_types::text[] AS arg_types, t.max_attempts, t.retry_delay::text AS retry_delay,
	   pg_catalog.make_interval(secs => pg_catalog.float8(t.timeout) / 1000::double precision)::text AS timeout, t.expires::text AS expires,
	   -- whatever plain SQL may have written
	   CASE WHEN pg_catalog.jsonb_typeof(t.more OPERATOR(pg_catalog.->) 'skip_after'::text) = 'number' THEN
			pg_catalog.make_interval(secs => LEAST(GREATEST((t.more OPERATOR(pg_catalog.->) 'skip_after'::text)::numeric, 0::numeric), 1e15::numeric)::double precision / 1000000::double precision)::text
	   END AS skip_after,
	   t.more OPERATOR(pg_catalog.->>) 'notify'::text AS notify,
	   t.more OPERATOR(pg_catalog.->>) 'on_success'::text AS on_success,
	   t.more OPERATOR(pg_catalog.->>) 'on_failure'::text AS on_failure, t.payload, t.group_key,
	   CASE WHEN t.token IS NOT NULL AND t.due > pg_catalog.clock_timestamp() THEN t.due END AS leased_until,
	   CASE WHEN t.token IS NOT NULL AND t.due > pg_catalog.clock_timestamp() THEN t.more OPERATOR(pg_catalog.->>) 'receiver'::text END AS receiver,
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
	   -- whatever plain SQL may have written
	   CASE WHEN pg_catalog.jsonb_typeof(t.more OPERATOR(pg_catalog.->) 'snoozes'::text) = 'number' THEN
			LEAST(GREATEST((t.more OPERATOR(pg_catalog.->) 'snoozes'::text)::numeric, 0::numeric), 9223372036854775807::numeric)::bigint
	   END AS snoozes
FROM delay_wheel_data.readable_task t
	 LEFT JOIN delay_wheel_data.queue_name q ON q.id = t.queue
	 CROSS JOIN LATERAL (
		SELECT CASE WHEN pg_catalog.jsonb_typeof(t.more OPERATOR(pg_catalog.#>) '{local,time}'::text[]) = 'number' THEN
			LEAST(GREATEST((t.more OPERATOR(pg_catalog.#>) '{local,time}'::text[])::numeric, -211813488000000000::numeric), 9223371331199999999::numeric)
		END AS us) l
-- superseded by a newer one; what a receiver has under a lease is not
WHERE NOT EXISTS (
		SELECT FROM delay_wheel_data.readable_task n
		WHERE n.key IS NOT NULL AND n.owner OPERATOR(pg_catalog.=) t.owner AND n.queue = t.queue AND n.key = t.key AND n.id > t.id
			AND (t.token IS NULL OR t.due <= pg_catalog.now())
			AND (n.origin = t.origin OR n.origin = delay_wheel_internal.origin()))
	-- as in marks.c: what is cancelled of all roles, and of its own.  Each of these is compared with the tasks
	-- of its role only, and those of roles whose tasks are not shown with none: they can be many
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
'one''s own pending tasks; all of them for pg_read_all_data and superusers. INSERT on it is the right to use delay_wheel, see delay_wheel.allow(); nothing can be inserted';
COMMENT ON COLUMN delay_wheel.tasks.id IS 'number of the task, as delay_schedule returned it; the order of ids is the order of scheduling';
COMMENT ON COLUMN delay_wheel.tasks.due IS 'the task runs at this time or after, never before; of a task that is tried again, the time of the next attempt';
COMMENT ON COLUMN delay_wheel.tasks.owner IS 'role that scheduled the task and whose rights it has';
COMMENT ON COLUMN delay_wheel.tasks.queue IS 'name of its queue; default is that of tasks that name none; null if the queue has been dropped';
COMMENT ON COLUMN delay_wheel.tasks.priority IS '-9 to 9; higher first among due tasks';
COMMENT ON COLUMN delay_wheel.tasks.key IS 'at most one pending task for each owner, queue and key; null if it has none';
COMMENT ON COLUMN delay_wheel.tasks.tag IS 'free grouping, for instance a sender or a campaign; null if it has none';
COMMENT ON COLUMN delay_wheel.tasks.sql IS 'one or several SQL statements';
COMMENT ON COLUMN delay_wheel.tasks.leased_until IS 'of a message that a receiver has, see delay_lease(): when its lease ends; else null';
COMMENT ON COLUMN delay_wheel.tasks.receiver IS 'the name that its receiver has given to delay_lease(), while the lease lasts';
COMMENT ON COLUMN delay_wheel.tasks.headers IS 'what the sender says beside the payload, see headers of delay_send()';
COMMENT ON COLUMN delay_wheel.tasks.snoozes IS 'how often it has put itself off by delay_snooze(); null is never';
COMMENT ON COLUMN delay_wheel.tasks.payload IS 'of a message, see delay_send(); null for an SQL task';
COMMENT ON COLUMN delay_wheel.tasks.group_key IS 'the group that it belongs to, see delay_wheel.create_queue(); null is none';
COMMENT ON COLUMN delay_wheel.tasks.args IS 'values of $1, $2 ... in text form; null if there are none';
COMMENT ON COLUMN delay_wheel.tasks.attempts IS 'how often the task was run and failed; 0 is never';
COMMENT ON COLUMN delay_wheel.tasks.last_error IS 'SQLSTATE and message of the last attempt that failed, with a colon between; null if none has';
COMMENT ON COLUMN delay_wheel.tasks.slot IS 'slot of the ring that the due time belongs into';
COMMENT ON COLUMN delay_wheel.tasks.cycle_num IS 'whole turns of the ring until the task is due';
COMMENT ON COLUMN delay_wheel.tasks.armed IS 'false for a task that came with a copy of another database; it is not run until delay_wheel.arm() is called';
COMMENT ON COLUMN delay_wheel.tasks.crashes IS 'how often the process that ran it has crashed: it is run alone then, and set aside as failed after three times; 4: the server crashed even when it was to be set aside, so it is not run any more';
COMMENT ON COLUMN delay_wheel.tasks.mode IS 'at_most_once or at_least_once: it runs outside of a transaction, see delay_schedule_task(); null for all others';
COMMENT ON COLUMN delay_wheel.tasks.arg_types IS 'types of the args; ''-'' for an untyped literal, which takes its type from the statement; null if there are none';
COMMENT ON COLUMN delay_wheel.tasks.max_attempts IS 'how often the task may be run in all; null is as often as its queue says, or else once';
COMMENT ON COLUMN delay_wheel.tasks.retry_delay IS 'an interval as text: pause before the second attempt; null is the queue''s, or else 10 seconds';
COMMENT ON COLUMN delay_wheel.tasks.retry_backoff IS 'how the pause before further attempts grows: exponential, linear or fixed; null is as the queue says, or else exponential';
COMMENT ON COLUMN delay_wheel.tasks.retry_max_delay IS 'an interval as text: no pause is longer; 0 is an hour, or retry_delay if that is longer; null is the queue''s, or else 0';
COMMENT ON COLUMN delay_wheel.tasks.retry_on IS 'SQLSTATEs, or their classes, after which alone it is tried again; empty is after all; null is the queue''s, or else empty';
COMMENT ON COLUMN delay_wheel.tasks.settings IS 'settings of the caller that were kept for it, see keep_settings of delay_schedule_task(): names with their values, null for what was not set; null is none';
COMMENT ON COLUMN delay_wheel.tasks.local_time IS 'a timestamp as text, of a task of delay_schedule_local(): what the clocks of timezone show when it is due; null of one that was moved, or has failed and is tried again';
COMMENT ON COLUMN delay_wheel.tasks.timezone IS 'of a task that has local_time: the name of its time zone';
COMMENT ON COLUMN delay_wheel.tasks.give_up_on IS 'SQLSTATEs, or their classes, after which it is not tried again; null is the queue''s, or else empty';
COMMENT ON COLUMN delay_wheel.tasks.timeout IS 'an interval as text: time that each attempt may take; 0 is any; null is the queue''s, or else the shorter one of the role''s settings statement_timeout and delay_wheel.default_timeout';
COMMENT ON COLUMN delay_wheel.tasks.expires IS 'an interval as text: the task fails if it cannot begin within that after it was due; null is at any time';
COMMENT ON COLUMN delay_wheel.tasks.skip_after IS 'an interval as text: the task is skipped if it cannot begin within that after it was due; null is at any time';
COMMENT ON COLUMN delay_wheel.tasks.notify IS 'channel on which its end is told; null is none';
COMMENT ON COLUMN delay_wheel.tasks.on_success IS 'SQL of the task that follows if it is done; null is none';
COMMENT ON COLUMN delay_wheel.tasks.on_failure IS 'SQL of the task that follows if it has failed; null is none';

CREATE FUNCTION delay_wheel_internal.is_running(id bigint) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_is_running' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.is_running(bigint) IS
'whether an executor runs this task, of a role whose rights one has, in mode at_most_once just now; all of them for pg_read_all_data and superusers. It stands in delay_wheel_data.failed_task meanwhile; see delay_wheel.failed';

CREATE FUNCTION delay_wheel_internal.get_running(OUT pid integer, OUT owner regrole, OUT task bigint, OUT due timestamptz, OUT since timestamptz, OUT state text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_running' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.get_running() IS 'one''s own executors of this database, all of them for pg_read_all_stats and superusers; see delay_wheel.running';

CREATE VIEW delay_wheel.running AS
SELECT r.pid, pg_catalog.pg_get_userbyid(r.owner::oid)::text AS owner, r.task, r.due, r.since
FROM delay_wheel_internal.get_running() r
WHERE r.task IS NOT NULL;
COMMENT ON VIEW delay_wheel.running IS
'one''s own tasks that executors of this database run just now; all of them for pg_monitor, pg_read_all_stats, pg_read_all_data and superusers';
COMMENT ON COLUMN delay_wheel.running.pid IS 'of the executor, as in pg_stat_activity; pg_terminate_backend() makes the task run again, pg_cancel_backend() makes it fail';
COMMENT ON COLUMN delay_wheel.running.owner IS 'role whose task it is';
COMMENT ON COLUMN delay_wheel.running.task IS 'number of the task';
COMMENT ON COLUMN delay_wheel.running.due IS 'its due time';
COMMENT ON COLUMN delay_wheel.running.since IS 'when it began; of a task that is repeated at once after a serialization failure or deadlock, the first time';

CREATE FUNCTION delay_wheel_internal.get_cancellations(
	OUT id bigint, OUT made_at timestamptz, OUT made_by regrole, OUT owners regrole[], OUT queue smallint,
	OUT tag text, OUT due_from timestamptz, OUT due_until timestamptz, OUT removed bigint, OUT running integer,
	OUT state text, OUT waiting_for integer[])
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_cancellations' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_wheel_internal.get_cancellations() IS 'one''s own cancellations that are not complete, all of them for pg_read_all_data and superusers; see delay_wheel.cancellations';

CREATE VIEW delay_wheel.cancellations AS
SELECT c.id, c.made_at, pg_catalog.pg_get_userbyid(c.made_by::oid)::text AS made_by,
	   CASE WHEN c.owners IS NOT NULL THEN ARRAY(SELECT CASE WHEN r.id OPERATOR(pg_catalog.=) 0::oid THEN '-' ELSE pg_catalog.pg_get_userbyid(r.id)::text END FROM pg_catalog.unnest(c.owners::oid[]) WITH ORDINALITY r(id, n) ORDER BY r.n) END AS owners,
	   COALESCE(q.name, CASE c.queue WHEN 0 THEN 'default' ELSE c.queue::text END) AS queue,
	   c.tag, c.due_from, c.due_until, c.running, c.removed, c.state, c.waiting_for
FROM delay_wheel_internal.get_cancellations() c
	 LEFT JOIN delay_wheel_data.queue q ON q.id = c.queue;
COMMENT ON VIEW delay_wheel.cancellations IS
'calls of delay_cancel_all() whose tasks are not all removed yet: they are cancelled nevertheless. One''s own; all of them for pg_read_all_data and superusers, and without their tags for pg_monitor and pg_read_all_stats';
COMMENT ON COLUMN delay_wheel.cancellations.made_at IS 'when delay_cancel_all() was called: start of that transaction';
COMMENT ON COLUMN delay_wheel.cancellations.made_by IS 'role that called it';
COMMENT ON COLUMN delay_wheel.cancellations.queue IS 'tasks of this queue; null is of all';
COMMENT ON COLUMN delay_wheel.cancellations.tag IS 'tasks with this tag; null is all';
COMMENT ON COLUMN delay_wheel.cancellations.due_from IS 'tasks that are due then or later; null is all';
COMMENT ON COLUMN delay_wheel.cancellations.due_until IS 'tasks that are due before; null is all';
COMMENT ON COLUMN delay_wheel.cancellations.id IS 'as delay_cancel_all() returned it';
COMMENT ON COLUMN delay_wheel.cancellations.owners IS 'roles whose tasks are cancelled; null is all';
COMMENT ON COLUMN delay_wheel.cancellations.running IS 'its tasks that were running before and still are; delay_cancel_all() does not stop them';
COMMENT ON COLUMN delay_wheel.cancellations.removed IS 'rows of tasks removed so far, as of a second ago';
COMMENT ON COLUMN delay_wheel.cancellations.state IS 'sweeping: rows are being removed; waiting: all that can be seen are removed, but transactions are open that may have scheduled more before, see waiting_for; queued: the process that removes them is not there yet, for want of a background worker perhaps, see delay_wheel.status.last_problem; unarmed: it came with a copy of another database, concerns tasks that came with it, and ends with delay_wheel.arm()';
COMMENT ON COLUMN delay_wheel.cancellations.waiting_for IS 'pids of some of the transactions waited for, 0 for prepared ones, and of executors whose task, of mode at_most_once, may yet be tried again; null in other states';

CREATE VIEW delay_wheel.unique_keys WITH (security_invoker) AS
SELECT u.id, pg_catalog.pg_get_userbyid(u.owner::oid)::text AS owner, COALESCE(q.name, CASE u.queue WHEN 0 THEN 'default' END) AS queue, u.key, u.until
FROM delay_wheel_data.readable_unique_key u
	 LEFT JOIN delay_wheel_data.queue_name q ON q.id = u.queue
WHERE u.until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp();
COMMENT ON VIEW delay_wheel.unique_keys IS
'one''s own keys that are unique for a period, see unique_for of delay_schedule_task(): until then calls with this option schedule no other task of the key; all of them for pg_read_all_data and superusers';
COMMENT ON COLUMN delay_wheel.unique_keys.id IS 'number of the task that began the period; it is pending, runs, or is done';
COMMENT ON COLUMN delay_wheel.unique_keys.owner IS 'role that scheduled it';
COMMENT ON COLUMN delay_wheel.unique_keys.queue IS 'name of the queue that it was scheduled into; null if the queue has been dropped';
COMMENT ON COLUMN delay_wheel.unique_keys.key IS 'its key';
COMMENT ON COLUMN delay_wheel.unique_keys.until IS 'end of the period';

GRANT SELECT ON delay_wheel.tasks, delay_wheel.running, delay_wheel.cancellations, delay_wheel.unique_keys
	TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel_internal.slot(timestamptz), delay_wheel_internal.cycle_num(timestamptz), delay_wheel_internal.crashes(bigint), delay_wheel_internal.is_running(bigint), delay_wheel_internal.get_running(), delay_wheel_internal.get_cancellations()
	TO PUBLIC;
