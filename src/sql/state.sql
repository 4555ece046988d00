/*---- Views of state: ring, lanes, groups, queues, databases, waiting tasks, lateness, silent processes ----*/

CREATE FUNCTION delay_wheel_internal.get_ring(OUT slot integer, OUT tasks bigint, OUT min_cycle bigint, OUT max_cycle bigint, OUT is_current boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_ring' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.get_ring() IS
'Returns the slots of this database''s ring. The view delay_wheel.ring calls this function.';

CREATE VIEW delay_wheel.ring AS SELECT * FROM delay_wheel_internal.get_ring();
COMMENT ON VIEW delay_wheel.ring IS
'Slots of this database''s ring, with the number of tasks in memory and their cycle numbers';
COMMENT ON COLUMN delay_wheel.ring.slot IS 'Number of the slot, from 0 to delay_wheel.slots - 1';
COMMENT ON COLUMN delay_wheel.ring.tasks IS 'Tasks in memory in this slot, for all turns of the ring';
COMMENT ON COLUMN delay_wheel.ring.min_cycle IS 'Whole turns of the ring until the first task of the slot is due';
COMMENT ON COLUMN delay_wheel.ring.max_cycle IS 'Whole turns of the ring until the last task of the slot is due';
COMMENT ON COLUMN delay_wheel.ring.is_current IS 'Whether the current time is in this slot';

CREATE FUNCTION delay_wheel_internal.get_lanes(
	OUT owner regrole, OUT queue smallint, OUT priority smallint, OUT state text, OUT reason text,
	OUT retry_at timestamptz, OUT near bigint, OUT ready bigint, OUT running integer,
	OUT horizon timestamptz, OUT recheck_at timestamptz,
	OUT done bigint, OUT failed bigint, OUT retried bigint, OUT cancelled bigint,
	OUT lateness_p50 double precision, OUT lateness_p95 double precision, OUT lateness_max double precision,
	OUT skipped bigint, OUT lateness_p99 double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_lanes' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.get_lanes() IS
'Returns lanes of this database. The view delay_wheel.lanes calls this function.';

CREATE VIEW delay_wheel.lanes AS
SELECT pg_catalog.pg_get_userbyid(l.owner::oid)::text AS owner, COALESCE(q.name, CASE l.queue WHEN 0 THEN 'default' ELSE l.queue::text END) AS queue, l.priority, l.state, l.reason, l.retry_at,
	   l.near, l.ready, l.running, l.horizon, l.recheck_at,
	   l.done, l.failed, l.retried, l.cancelled, l.lateness_p50, l.lateness_p95, l.lateness_max, l.skipped, l.lateness_p99
FROM delay_wheel_internal.get_lanes() l
	 LEFT JOIN delay_wheel_data.queue q ON q.id = l.queue;
COMMENT ON VIEW delay_wheel.lanes IS
'State and figures of each lane in this database. A lane has all tasks of one owner, queue and priority.';
COMMENT ON COLUMN delay_wheel.lanes.owner IS 'Role that scheduled the tasks';
COMMENT ON COLUMN delay_wheel.lanes.queue IS 'Name of the queue; default for tasks without a queue, a number if the queue is not declared';
COMMENT ON COLUMN delay_wheel.lanes.priority IS 'Priority, -9 to 9';
COMMENT ON COLUMN delay_wheel.lanes.state IS 'paused; blocked: no executor, or no timer; limited (by the queue, see reason); running; ready: due tasks wait for an executor; unreceived: due messages wait for a receiver; idle: nothing is due';
COMMENT ON COLUMN delay_wheel.lanes.reason IS 'Why the tasks wait: a pause, a limit, the reason for a missing executor, or the time since which no receiver has come';
COMMENT ON COLUMN delay_wheel.lanes.retry_at IS 'Time at which the start of an executor is tried again after it failed; otherwise NULL, also if no background worker is free';
COMMENT ON COLUMN delay_wheel.lanes.near IS 'Tasks in memory that are not due yet; a moved or cancelled task counts until its old due time';
COMMENT ON COLUMN delay_wheel.lanes.ready IS 'Due tasks in memory that wait; a cancelled task counts until an executor or a receiver finds it';
COMMENT ON COLUMN delay_wheel.lanes.running IS 'Executors that run tasks of the lane';
COMMENT ON COLUMN delay_wheel.lanes.horizon IS 'All tasks due before this time are in memory; NULL if all tasks are in memory, or while they are loaded again';
COMMENT ON COLUMN delay_wheel.lanes.recheck_at IS 'Time at which a task is checked again because plain SQL has locked its row';
COMMENT ON COLUMN delay_wheel.lanes.done IS 'Tasks that succeeded';
COMMENT ON COLUMN delay_wheel.lanes.failed IS 'Tasks that were given up';
COMMENT ON COLUMN delay_wheel.lanes.retried IS 'Failed attempts that are followed by another attempt';
COMMENT ON COLUMN delay_wheel.lanes.cancelled IS 'Due tasks that delay_cancel_all() had cancelled';
COMMENT ON COLUMN delay_wheel.lanes.lateness_p50 IS 'Median time from due to start in milliseconds; accurate to about 20%';
COMMENT ON COLUMN delay_wheel.lanes.lateness_p95 IS '95th percentile, see lateness_p50';
COMMENT ON COLUMN delay_wheel.lanes.lateness_p99 IS '99th percentile, see lateness_p50';
COMMENT ON COLUMN delay_wheel.lanes.lateness_max IS 'Exact maximum, see lateness_p50';
COMMENT ON COLUMN delay_wheel.lanes.skipped IS 'Tasks that were skipped because they were too late';

CREATE FUNCTION delay_wheel_internal.get_groups(
	most integer, OUT owner regrole, OUT queue smallint, OUT priority smallint, OUT group_hash integer, OUT group_key text, OUT state text,
	OUT ready bigint, OUT more boolean, OUT running integer, OUT first_due timestamptz, OUT waits_until timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_groups' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.get_groups(integer) IS
'Returns groups with due or running tasks, up to a given number for each queue. The view delay_wheel.groups calls this function.';

CREATE VIEW delay_wheel.groups AS
SELECT COALESCE(q.name, g.queue::text) AS queue, g.group_key, g.state, g.ready, g.more, g.running, g.first_due, g.waits_until,
	   pg_catalog.pg_get_userbyid(g.owner::oid)::text AS owner, g.priority, g.group_hash
FROM delay_wheel_internal.get_groups(1000) g
	 LEFT JOIN delay_wheel_data.queue q ON q.id OPERATOR(pg_catalog.=) g.queue
ORDER BY g.first_due, q.name, g.group_key;
COMMENT ON VIEW delay_wheel.groups IS
'Groups that have due or running tasks in this database, up to 1,000 of each queue. Groups that have waited longest come first.';
COMMENT ON COLUMN delay_wheel.groups.queue IS 'Name of the queue; a number if the queue is not declared';
COMMENT ON COLUMN delay_wheel.groups.group_key IS 'Name of the group; NULL for tasks without a group, or if the reader may not read any row of the group';
COMMENT ON COLUMN delay_wheel.groups.state IS 'open: waits for its turn; full: limited by group_max_running or group_order; asleep: limited by group_rate; held: the first task cannot begin; running: no task waits; loading: tasks are being read';
COMMENT ON COLUMN delay_wheel.groups.ready IS 'Due tasks in memory that wait, up to 1,000';
COMMENT ON COLUMN delay_wheel.groups.more IS 'Whether more due tasks wait in the table';
COMMENT ON COLUMN delay_wheel.groups.running IS 'Executors that run tasks of this group, owner and priority; messages do not count';
COMMENT ON COLUMN delay_wheel.groups.first_due IS 'Due time of the first waiting task';
COMMENT ON COLUMN delay_wheel.groups.waits_until IS 'Time at which an asleep group can start tasks again, or a held group is checked again';
COMMENT ON COLUMN delay_wheel.groups.owner IS 'Role that scheduled the tasks';
COMMENT ON COLUMN delay_wheel.groups.priority IS 'Priority, -9 to 9';
COMMENT ON COLUMN delay_wheel.groups.group_hash IS 'Hash of the name; groups with the same hash are one group. NULL for tasks without a group.';

CREATE FUNCTION delay_wheel_internal.get_queues(
	OUT id smallint, OUT state text, OUT reason text, OUT running integer, OUT near bigint, OUT ready bigint,
	OUT lanes integer, OUT done bigint, OUT failed bigint, OUT retried bigint, OUT cancelled bigint, OUT skipped bigint,
	OUT first_due timestamptz, OUT leased integer, OUT lapsed bigint, OUT awaiting integer,
	OUT lateness_p50 double precision, OUT lateness_p95 double precision, OUT lateness_p99 double precision, OUT lateness_max double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_queues' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.get_queues() IS
'Returns the state of the queues of this database. The view delay_wheel.queues calls this function.';

CREATE VIEW delay_wheel.queues WITH (security_invoker) AS
SELECT q.name, pg_catalog.pg_get_userbyid(q.owner::oid)::text AS owner,
	   CASE WHEN q.users IS NOT NULL THEN ARRAY(SELECT CASE WHEN r.id OPERATOR(pg_catalog.=) 0::oid THEN '-' ELSE pg_catalog.pg_get_userbyid(r.id)::text END FROM pg_catalog.unnest(q.users::oid[]) WITH ORDINALITY r(id, n) ORDER BY r.n) END AS users,
	   q.paused, q.max_running, q.rate, CASE WHEN q.rate IS NOT NULL THEN COALESCE(q.per, '1 second'::interval)::text END AS per, q.burst,
	   COALESCE(q.groups, false) AS groups, q.group_max_running, q.group_rate,
	   CASE WHEN q.group_rate IS NOT NULL THEN COALESCE(q.group_per, '1 second'::interval)::text END AS group_per, q.group_burst, q.group_order, q.priority,
	   pg_catalog.make_interval(secs => pg_catalog.float8(q.timeout) / 1000::double precision)::text AS timeout,
	   COALESCE(q.max_attempts, CASE WHEN q.external THEN 20 ELSE 1 END::smallint) AS max_attempts,
	   COALESCE(q.retry_delay, '10 seconds'::interval)::text AS retry_delay, q.batch, q.spread::text AS spread, q.history,
	   s.state, s.reason, s.running, s.near, s.ready, s.lanes, s.done, s.failed, s.retried, s.cancelled, s.skipped,
	   q.external,
	   CASE WHEN q.receivers IS NOT NULL THEN ARRAY(SELECT CASE WHEN r.id OPERATOR(pg_catalog.=) 0::oid THEN '-' ELSE pg_catalog.pg_get_userbyid(r.id)::text END FROM pg_catalog.unnest(q.receivers::oid[]) WITH ORDINALITY r(id, n) ORDER BY r.n) END AS receivers,
	   CASE WHEN q.external THEN COALESCE(q.lease, '1 minute'::interval)::text END AS lease,
	   CASE WHEN q.external THEN pg_catalog.make_interval(secs => pg_catalog.float8(COALESCE(q.receive_timeout, 60000)) / 1000::double precision)::text END AS receive_timeout,
	   q.notify_channel, s.first_due, s.awaiting, s.leased, s.lapsed,
	   COALESCE(q.retry_backoff, 'exponential') AS retry_backoff, q.retry_max_delay::text AS retry_max_delay, q.retry_on, q.give_up_on, q.keep_settings,
	   s.lateness_p50, s.lateness_p95, s.lateness_p99, s.lateness_max
FROM delay_wheel_data.readable_queue q
	 LEFT JOIN delay_wheel_internal.get_queues() s ON s.id OPERATOR(pg_catalog.=) q.id;
COMMENT ON VIEW delay_wheel.queues IS
'Declared queues: their options, state and figures. The figures include the tasks of all owners.';
COMMENT ON COLUMN delay_wheel.queues.name IS 'Name of the queue';
COMMENT ON COLUMN delay_wheel.queues.owner IS 'Role whose members may change, pause and drop the queue';
COMMENT ON COLUMN delay_wheel.queues.paused IS 'Whether delay_wheel.pause_queue() has paused the queue';
COMMENT ON COLUMN delay_wheel.queues.priority IS 'Default priority of tasks, -9 to 9';
COMMENT ON COLUMN delay_wheel.queues.timeout IS 'Default time limit of an attempt; NULL: the settings of the task''s owner';
COMMENT ON COLUMN delay_wheel.queues.max_attempts IS 'Default limit of attempts';
COMMENT ON COLUMN delay_wheel.queues.retry_delay IS 'Default pause before the second attempt';
COMMENT ON COLUMN delay_wheel.queues.batch IS 'Whether tasks of the queue may share a transaction';
COMMENT ON COLUMN delay_wheel.queues.spread IS 'Each new task is delayed by a different part of this interval; NULL: no delay';
COMMENT ON COLUMN delay_wheel.queues.reason IS 'In state limited: max_running, rate or limits of groups; in state unreceived: the time since which no receiver has come';
COMMENT ON COLUMN delay_wheel.queues.users IS 'Roles that may schedule into the queue, besides members of its owner; - stands for all roles';
COMMENT ON COLUMN delay_wheel.queues.max_running IS 'Maximum number of tasks that run at the same time; NULL: no limit';
COMMENT ON COLUMN delay_wheel.queues.rate IS 'Maximum number of tasks that start in one period, see per; NULL: no limit';
COMMENT ON COLUMN delay_wheel.queues.per IS 'Period of rate';
COMMENT ON COLUMN delay_wheel.queues.burst IS 'Maximum number of unused starts that can be used later, at once; NULL: the starts of 100 ms and one more, at least 2';
COMMENT ON COLUMN delay_wheel.queues.groups IS 'Whether tasks of the queue may have groups, which take turns';
COMMENT ON COLUMN delay_wheel.queues.group_max_running IS 'Maximum number of tasks of one group that run at the same time; NULL: no limit';
COMMENT ON COLUMN delay_wheel.queues.group_rate IS 'Maximum number of tasks of one group that start in one period, see group_per; NULL: no limit';
COMMENT ON COLUMN delay_wheel.queues.group_per IS 'Period of group_rate';
COMMENT ON COLUMN delay_wheel.queues.group_burst IS 'Same as burst, for one group';
COMMENT ON COLUMN delay_wheel.queues.group_order IS 'hold or pass: tasks of one group run one after the other, in the order of their due times; NULL: no order';
COMMENT ON COLUMN delay_wheel.queues.history IS 'Ends of tasks that are recorded: off, errors, sample or all; NULL: the setting delay_wheel.history applies';
COMMENT ON COLUMN delay_wheel.queues.state IS 'paused; limited: due tasks wait, see reason; running; ready: due tasks wait for an executor; unreceived: due messages wait for a receiver; idle';
COMMENT ON COLUMN delay_wheel.queues.running IS 'Executors that run tasks of the queue; in an external queue, messages that open transactions have received';
COMMENT ON COLUMN delay_wheel.queues.near IS 'Tasks in memory that are not due yet; a moved or cancelled task counts until its old due time';
COMMENT ON COLUMN delay_wheel.queues.ready IS 'Due tasks in memory that wait; a cancelled task counts until an executor or a receiver finds it. More due tasks may wait in the table.';
COMMENT ON COLUMN delay_wheel.queues.lanes IS 'Combinations of owner and priority that have or had tasks in the queue';
COMMENT ON COLUMN delay_wheel.queues.done IS 'Tasks that succeeded';
COMMENT ON COLUMN delay_wheel.queues.failed IS 'Tasks that were given up';
COMMENT ON COLUMN delay_wheel.queues.retried IS 'Failed attempts that are followed by another attempt';
COMMENT ON COLUMN delay_wheel.queues.cancelled IS 'Due tasks that delay_cancel_all() had cancelled';
COMMENT ON COLUMN delay_wheel.queues.skipped IS 'Tasks that were skipped because they were too late';
COMMENT ON COLUMN delay_wheel.queues.lateness_p50 IS 'Median time from due to start in milliseconds; accurate to about 20%';
COMMENT ON COLUMN delay_wheel.queues.lateness_p95 IS '95th percentile, see lateness_p50';
COMMENT ON COLUMN delay_wheel.queues.lateness_p99 IS '99th percentile, see lateness_p50';
COMMENT ON COLUMN delay_wheel.queues.lateness_max IS 'Exact maximum, see lateness_p50';
COMMENT ON COLUMN delay_wheel.queues.external IS 'Whether the queue has messages that sessions receive, instead of SQL tasks that executors run';
COMMENT ON COLUMN delay_wheel.queues.lease IS 'Default length of a lease';
COMMENT ON COLUMN delay_wheel.queues.receive_timeout IS 'Time that a transaction may be idle after it has received a message; 0: no limit';
COMMENT ON COLUMN delay_wheel.queues.notify_channel IS 'Channel that is notified when a message can be received';
COMMENT ON COLUMN delay_wheel.queues.first_due IS 'Due time of the task in memory that has waited longest; for a message whose lease has expired, the end of the lease';
COMMENT ON COLUMN delay_wheel.queues.awaiting IS 'Sessions that wait in delay_await() for messages of the queue';
COMMENT ON COLUMN delay_wheel.queues.leased IS 'Messages under a lease; NULL if the queue is not external, or while a command rewrites the table of tasks';
COMMENT ON COLUMN delay_wheel.queues.lapsed IS 'Leases that expired';
COMMENT ON COLUMN delay_wheel.queues.retry_backoff IS 'Default growth of the pause between attempts: exponential, linear or fixed';
COMMENT ON COLUMN delay_wheel.queues.retry_max_delay IS 'Default limit of the pause between attempts; NULL: 1 hour, or retry_delay if that is longer';
COMMENT ON COLUMN delay_wheel.queues.retry_on IS 'Default: SQLSTATEs, or classes, after which a task is tried again; NULL: all';
COMMENT ON COLUMN delay_wheel.queues.give_up_on IS 'Default: SQLSTATEs, or classes, after which a task is not tried again';
COMMENT ON COLUMN delay_wheel.queues.keep_settings IS 'Default: settings of the caller that are kept for a task; NULL: the setting delay_wheel.keep_settings applies';
COMMENT ON COLUMN delay_wheel.queues.receivers IS 'Roles that may receive messages of the queue, besides members of its owner; - stands for all roles';

CREATE FUNCTION delay_wheel_internal.get_status(
	OUT database name, OUT state text, OUT current_index integer, OUT horizon timestamptz,
	OUT lanes integer, OUT near bigint, OUT ready bigint, OUT running integer, OUT executors integer,
	OUT parked integer, OUT done bigint, OUT failed bigint,
	OUT lateness_p50 double precision, OUT lateness_p95 double precision,
	OUT lateness_p99 double precision, OUT lateness_max double precision,
	OUT memory_used bigint, OUT memory_limit bigint, OUT last_problem text, OUT last_problem_at timestamptz,
	OUT unarmed boolean, OUT retried bigint, OUT skipped bigint, OUT rests_until timestamptz, OUT silent text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_status' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.get_status() IS
'Returns the state of delay_wheel in each database. The view delay_wheel.status calls this function.';

CREATE VIEW delay_wheel.status AS
SELECT v.database::text AS database, v.state, v.current_index, v.horizon, v.lanes, v.near, v.ready, v.running,
	   v.executors, v.parked, v.done, v.failed, v.lateness_p50, v.lateness_p95, v.lateness_p99, v.lateness_max,
	   v.memory_used, v.memory_limit, v.last_problem, v.last_problem_at, v.unarmed, v.retried, v.skipped,
	   v.rests_until, v.silent
FROM delay_wheel_internal.get_status() v;
COMMENT ON VIEW delay_wheel.status IS
'State of delay_wheel in this database, or in each served database, and figures since the start of the server';
COMMENT ON COLUMN delay_wheel.status.database IS 'Name of the database';
COMMENT ON COLUMN delay_wheel.status.lanes IS 'Combinations of owner, queue and priority that have tasks';
COMMENT ON COLUMN delay_wheel.status.running IS 'Tasks that executors are running';
COMMENT ON COLUMN delay_wheel.status.executors IS 'Executors of this database, busy or not';
COMMENT ON COLUMN delay_wheel.status.lateness_p95 IS '95th percentile, see lateness_p50';
COMMENT ON COLUMN delay_wheel.status.lateness_p99 IS '99th percentile, see lateness_p50';
COMMENT ON COLUMN delay_wheel.status.lateness_max IS 'Exact maximum, see lateness_p50';
COMMENT ON COLUMN delay_wheel.status.last_problem IS 'Last problem that prevented tasks from running; NULL if there was no problem, or if the reader lacks pg_read_all_stats';
COMMENT ON COLUMN delay_wheel.status.last_problem_at IS 'Time of last_problem';
COMMENT ON COLUMN delay_wheel.status.state IS 'starting, running, resting, paused, disabled, silent, stopped, no place, standby or held';
COMMENT ON COLUMN delay_wheel.status.rests_until IS 'Time at which the rest of a resting database ends; NULL if the database does not rest, or the time is not known';
COMMENT ON COLUMN delay_wheel.status.silent IS 'Kind and process id of each process that does not answer, see delay_wheel.silent';
COMMENT ON COLUMN delay_wheel.status.current_index IS 'Slot of the ring for the current time';
COMMENT ON COLUMN delay_wheel.status.horizon IS 'All tasks due before this time are in memory; NULL if all tasks are in memory, or while a lane is loaded again';
COMMENT ON COLUMN delay_wheel.status.near IS 'Tasks in memory that are not due yet; a moved or cancelled task counts until its old due time';
COMMENT ON COLUMN delay_wheel.status.ready IS 'Due tasks in memory that wait; a cancelled task counts until an executor or a receiver finds it';
COMMENT ON COLUMN delay_wheel.status.parked IS 'Lanes that have due tasks but no executor, see delay_wheel.lanes';
COMMENT ON COLUMN delay_wheel.status.lateness_p50 IS 'Median time from the due time of an attempt to its start, in milliseconds; accurate to about 6%';
COMMENT ON COLUMN delay_wheel.status.memory_used IS 'Bytes of the ring''s memory that this database uses';
COMMENT ON COLUMN delay_wheel.status.memory_limit IS 'Bytes of the ring''s memory that this database may use';
COMMENT ON COLUMN delay_wheel.status.done IS 'Tasks that succeeded';
COMMENT ON COLUMN delay_wheel.status.failed IS 'Tasks that were given up';
COMMENT ON COLUMN delay_wheel.status.retried IS 'Failed attempts that are followed by another attempt; immediate repeats do not count';
COMMENT ON COLUMN delay_wheel.status.skipped IS 'Tasks that were skipped because they were too late';
COMMENT ON COLUMN delay_wheel.status.unarmed IS 'Whether there are tasks that came with a copy of another database and do not run, see delay_wheel.arm()';

CREATE FUNCTION delay_wheel_internal.get_waiting(
	OUT database name, OUT state text, OUT lanes bigint, OUT tasks bigint, OUT first_due timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_waiting' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.get_waiting() IS
'Returns due tasks in memory and what they wait for. The view delay_wheel.waiting calls this function.';

CREATE VIEW delay_wheel.waiting AS
SELECT v.database::text AS database, v.state, v.lanes, v.tasks, v.first_due
FROM delay_wheel_internal.get_waiting() v;
COMMENT ON VIEW delay_wheel.waiting IS
'Numbers of due tasks in memory, one row for each database and each state in which tasks wait';
COMMENT ON COLUMN delay_wheel.waiting.database IS 'Name of the database';
COMMENT ON COLUMN delay_wheel.waiting.state IS 'State of the lanes, as in delay_wheel.lanes; or suspected: tasks that may have crashed the server';
COMMENT ON COLUMN delay_wheel.waiting.lanes IS 'Lanes in this state that have due tasks; NULL for suspected';
COMMENT ON COLUMN delay_wheel.waiting.tasks IS 'Due tasks in these lanes; running tasks do not count';
COMMENT ON COLUMN delay_wheel.waiting.first_due IS 'Earliest due time of the first tasks of these lanes';

CREATE FUNCTION delay_wheel_internal.get_lateness(OUT database name, OUT below double precision, OUT tasks bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_lateness' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.get_lateness() IS
'Returns a histogram of how late tasks have begun. The view delay_wheel.lateness calls this function.';

CREATE VIEW delay_wheel.lateness AS
SELECT v.database::text AS database, v.below, v.tasks
FROM delay_wheel_internal.get_lateness() v;
COMMENT ON VIEW delay_wheel.lateness IS
'Cumulative histogram of the time from due to start since the start of the server, 33 rows for each database';
COMMENT ON COLUMN delay_wheel.lateness.database IS 'Name of the database';
COMMENT ON COLUMN delay_wheel.lateness.below IS 'Upper bound in seconds: 0.000064, doubled from row to row up to 137438.953472, then Infinity';
COMMENT ON COLUMN delay_wheel.lateness.tasks IS 'Attempts that started less than this time after they were due';

CREATE FUNCTION delay_wheel_internal.get_silent(
	OUT database name, OUT process text, OUT pid integer, OUT since timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_silent' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.get_silent() IS
'Returns processes that do not answer. The view delay_wheel.silent calls this function.';

CREATE VIEW delay_wheel.silent AS
SELECT v.database::text AS database, v.process, v.pid, v.since
FROM delay_wheel_internal.get_silent() v;
COMMENT ON VIEW delay_wheel.silent IS
'Processes of delay_wheel that have not answered for 5 seconds';
COMMENT ON COLUMN delay_wheel.silent.database IS 'Name of the database; NULL for the launcher';
COMMENT ON COLUMN delay_wheel.silent.process IS 'executor, timer, sweeper or launcher. An executor that runs a task is never shown.';
COMMENT ON COLUMN delay_wheel.silent.pid IS 'Process id; NULL if the process has not started';
COMMENT ON COLUMN delay_wheel.silent.since IS 'Time at which the process was called, should have woken, or began its unfinished work';

GRANT SELECT ON delay_wheel.ring, delay_wheel.lanes, delay_wheel.groups, delay_wheel.queues, delay_wheel.status, delay_wheel.waiting, delay_wheel.lateness, delay_wheel.silent
	TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel_internal.get_ring(), delay_wheel_internal.get_lanes(), delay_wheel_internal.get_groups(integer), delay_wheel_internal.get_queues(), delay_wheel_internal.get_status(), delay_wheel_internal.get_waiting(), delay_wheel_internal.get_lateness(), delay_wheel_internal.get_silent()
	TO PUBLIC;
