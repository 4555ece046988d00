/*---- Views of how it all stands: ring, lanes, queues, databases, work in the background, lateness ----*/

CREATE FUNCTION delay_wheel_internal.get_ring(OUT slot integer, OUT tasks bigint, OUT min_cycle bigint, OUT max_cycle bigint, OUT is_current boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_ring' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.get_ring() IS 'slots of this database''s ring, see delay_wheel.ring';

CREATE VIEW delay_wheel.ring AS SELECT * FROM delay_wheel_internal.get_ring();
COMMENT ON VIEW delay_wheel.ring IS
'for each slot of this database''s ring: tasks in memory, their lowest and highest cycle number, and whether it is the current index. A task that was just committed is in none until the timer has looked at what sessions tell it, mostly within a millisecond; nor is one that is due in the current tick, or later than lanes.horizon: see lanes.near and lanes.ready for all that is in memory';
COMMENT ON COLUMN delay_wheel.ring.slot IS 'number of the slot, from 0 to delay_wheel.slots - 1';
COMMENT ON COLUMN delay_wheel.ring.tasks IS 'tasks in memory that are in this slot, of all turns';
COMMENT ON COLUMN delay_wheel.ring.min_cycle IS 'whole turns of the ring until the first of them is due; null if there is none';
COMMENT ON COLUMN delay_wheel.ring.max_cycle IS 'whole turns of the ring until the last of them is due; null if there is none';
COMMENT ON COLUMN delay_wheel.ring.is_current IS 'whether the clock is in this slot';

CREATE FUNCTION delay_wheel_internal.get_lanes(
	OUT owner regrole, OUT queue smallint, OUT priority smallint, OUT state text, OUT reason text,
	OUT retry_at timestamptz, OUT near bigint, OUT ready bigint, OUT running integer,
	OUT horizon timestamptz, OUT recheck_at timestamptz,
	OUT done bigint, OUT failed bigint, OUT retried bigint, OUT cancelled bigint,
	OUT lateness_p50 double precision, OUT lateness_p95 double precision, OUT lateness_max double precision,
	OUT skipped bigint, OUT lateness_p99 double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_lanes' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.get_lanes() IS 'one''s own lanes of this database, all of them for pg_read_all_stats and superusers; see delay_wheel.lanes';

CREATE VIEW delay_wheel.lanes AS
SELECT pg_catalog.pg_get_userbyid(l.owner::oid)::text AS owner, COALESCE(q.name, CASE l.queue WHEN 0 THEN 'default' ELSE l.queue::text END) AS queue, l.priority, l.state, l.reason, l.retry_at,
	   l.near, l.ready, l.running, l.horizon, l.recheck_at,
	   l.done, l.failed, l.retried, l.cancelled, l.lateness_p50, l.lateness_p95, l.lateness_max, l.skipped, l.lateness_p99
FROM delay_wheel_internal.get_lanes() l
	 LEFT JOIN delay_wheel_data.queue q ON q.id = l.queue;
COMMENT ON VIEW delay_wheel.lanes IS
'the state of each lane, which is a combination of owner, queue and priority that has tasks in this database. Users see their own lanes; all of them are for pg_monitor, pg_read_all_stats, pg_read_all_data and superusers';
COMMENT ON COLUMN delay_wheel.lanes.owner IS 'role whose tasks these are';
COMMENT ON COLUMN delay_wheel.lanes.queue IS 'name of the queue; default is that of tasks that name none; a number if it is not declared';
COMMENT ON COLUMN delay_wheel.lanes.priority IS '-9 to 9';
COMMENT ON COLUMN delay_wheel.lanes.state IS 'paused: none of its tasks is started; blocked: no executor can be had, or the database is not served; limited: due tasks wait for what the queue allows; running: executors are on it, and it may have more; ready: due tasks wait for an executor; unreceived: due messages wait for a receiver; idle: nothing is due. For the first three, and unreceived, see reason';
COMMENT ON COLUMN delay_wheel.lanes.reason IS 'what is paused; or max_running, rate, or another owner''s turn, of the queue; or why no executor could be had; or that the database is not served: it has no timer, see delay_wheel.status; or, of an external queue, since when no receiver has come; else null';
COMMENT ON COLUMN delay_wheel.lanes.retry_at IS 'when it is tried again; a change of rights tries at once; null for want of a background worker: when it is its turn';
COMMENT ON COLUMN delay_wheel.lanes.near IS 'tasks in memory that are not due yet; one that was moved or cancelled is counted until its old time';
COMMENT ON COLUMN delay_wheel.lanes.ready IS 'tasks in memory that are due and wait for an executor; one that was cancelled is counted until one looks';
COMMENT ON COLUMN delay_wheel.lanes.running IS 'executors that run tasks of it';
COMMENT ON COLUMN delay_wheel.lanes.horizon IS 'tasks that are due before are in memory; null if no later ones are known, or while all are loaded anew';
COMMENT ON COLUMN delay_wheel.lanes.recheck_at IS 'when a task is looked at again that another session''s plain SQL has locked';
COMMENT ON COLUMN delay_wheel.lanes.done IS 'tasks that were run, since the lane was entered: at the start of the server, with its first task since then, or again after it was empty and its place was needed';
COMMENT ON COLUMN delay_wheel.lanes.failed IS 'tasks that were given up, since the lane was entered';
COMMENT ON COLUMN delay_wheel.lanes.retried IS 'attempts that failed and are followed by another one, since the lane was entered';
COMMENT ON COLUMN delay_wheel.lanes.cancelled IS 'tasks that turned out to be cancelled by delay_cancel_all when they were due, since the lane was entered; those cancelled earlier are not counted';
COMMENT ON COLUMN delay_wheel.lanes.lateness_p50 IS 'milliseconds from due to start, median, since the lane was entered; right to about 20%. Waiting for limits, and pauses, are part of it';
COMMENT ON COLUMN delay_wheel.lanes.lateness_p95 IS 'the same, 95th percentile';
COMMENT ON COLUMN delay_wheel.lanes.lateness_p99 IS 'the same, 99th percentile';
COMMENT ON COLUMN delay_wheel.lanes.lateness_max IS 'the same, highest value, exact';
COMMENT ON COLUMN delay_wheel.lanes.skipped IS 'tasks that were not run since it was too late, see skip_after of delay_schedule_task, since the lane was entered';

CREATE FUNCTION delay_wheel_internal.get_groups(
	most integer, OUT owner regrole, OUT queue smallint, OUT priority smallint, OUT group_hash integer, OUT group_key text, OUT state text,
	OUT ready bigint, OUT more boolean, OUT running integer, OUT first_due timestamptz, OUT waits_until timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_groups' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.get_groups(integer) IS 'groups of one''s own tasks in this database that are due or run, of all for pg_read_all_stats and superusers, of each queue the first most of them; see delay_wheel.groups';

CREATE VIEW delay_wheel.groups AS
SELECT COALESCE(q.name, g.queue::text) AS queue, g.group_key, g.state, g.ready, g.more, g.running, g.first_due, g.waits_until,
	   pg_catalog.pg_get_userbyid(g.owner::oid)::text AS owner, g.priority, g.group_hash
FROM delay_wheel_internal.get_groups(1000) g
	 LEFT JOIN delay_wheel_data.queue q ON q.id OPERATOR(pg_catalog.=) g.queue
ORDER BY g.first_due, q.name, g.group_key;
COMMENT ON VIEW delay_wheel.groups IS
'groups of queues with groups of which tasks are due or run in this database, those first whose first task is due for longest: of each queue a thousand. A row for each owner and priority. Of lanes with more than ten thousand groups, those that came last are missing; of groups for which there was no place (delay_wheel.max_groups), all. Users see the groups of their own tasks; all of them are for pg_monitor, pg_read_all_stats, pg_read_all_data and superusers. Whether the lane itself waits, delay_wheel.lanes tells';
COMMENT ON COLUMN delay_wheel.groups.queue IS 'name of the queue; a number if it is not declared';
COMMENT ON COLUMN delay_wheel.groups.group_key IS 'name of the group, from a row of one of its tasks; null if one may not read these, or there is none any more; or for tasks without a group, which take turns as if they were one';
COMMENT ON COLUMN delay_wheel.groups.state IS 'open: it waits for its turn, and for an executor; full: as many of its tasks run as group_max_running or group_order allows; asleep: its rate allows no task before waits_until; held: a task that comes first in its order cannot begin, waits_until is when it is looked at again, or sooner if a task of it ends; running: tasks of it run, none waits; loading: those that wait are being read from the table';
COMMENT ON COLUMN delay_wheel.groups.ready IS 'tasks in memory that are due and wait, a thousand at most';
COMMENT ON COLUMN delay_wheel.groups.more IS 'whether others that are due wait in the table';
COMMENT ON COLUMN delay_wheel.groups.running IS 'executors that run tasks of it, of this owner and priority; not for messages';
COMMENT ON COLUMN delay_wheel.groups.first_due IS 'since when the first of the tasks that wait is due; null if none waits';
COMMENT ON COLUMN delay_wheel.groups.waits_until IS 'when it can go on, if it is asleep; or when it is looked at again, if it is held';
COMMENT ON COLUMN delay_wheel.groups.owner IS 'role whose tasks these are';
COMMENT ON COLUMN delay_wheel.groups.priority IS '-9 to 9';
COMMENT ON COLUMN delay_wheel.groups.group_hash IS 'all that is in memory of its name: groups with the same one are one group; null for tasks without a group. For who may not read its tasks another number, which stands for the group until the server starts anew';

CREATE FUNCTION delay_wheel_internal.get_queues(
	OUT id smallint, OUT state text, OUT reason text, OUT running integer, OUT near bigint, OUT ready bigint,
	OUT lanes integer, OUT done bigint, OUT failed bigint, OUT retried bigint, OUT cancelled bigint, OUT skipped bigint,
	OUT first_due timestamptz, OUT leased integer, OUT lapsed bigint, OUT awaiting integer,
	OUT lateness_p50 double precision, OUT lateness_p95 double precision, OUT lateness_p99 double precision, OUT lateness_max double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_queues' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.get_queues() IS 'how the queues of this database stand that one may use, all of them for pg_read_all_stats and superusers; see delay_wheel.queues';

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
'declared queues that one owns or may schedule into, see delay_wheel.create_queue(), and how they stand; all of them for pg_read_all_data, pg_read_all_stats and superusers. Null is no limit. Numbers are of all owners'' tasks, and null if the timer does not know the queue (yet), or one may not see them';
COMMENT ON COLUMN delay_wheel.queues.name IS 'name of the queue';
COMMENT ON COLUMN delay_wheel.queues.owner IS 'role whose members may change, pause and drop it';
COMMENT ON COLUMN delay_wheel.queues.paused IS 'whether delay_wheel.pause_queue() holds for it';
COMMENT ON COLUMN delay_wheel.queues.priority IS 'of tasks that say none: -9 to 9';
COMMENT ON COLUMN delay_wheel.queues.timeout IS 'an interval as text: of tasks that say none; null is the roles setting';
COMMENT ON COLUMN delay_wheel.queues.max_attempts IS 'of tasks that say none: how often one is run if it fails';
COMMENT ON COLUMN delay_wheel.queues.retry_delay IS 'an interval as text: of tasks that say none: pause before the second attempt';
COMMENT ON COLUMN delay_wheel.queues.batch IS 'whether its tasks may share a transaction with others';
COMMENT ON COLUMN delay_wheel.queues.spread IS 'an interval as text: due times of its new tasks are put off, each by another part of this; null is not at all';
COMMENT ON COLUMN delay_wheel.queues.reason IS 'what due tasks of it wait for, if the state is limited: max_running, rate or limits of groups; or, if it is unreceived, since when no receiver has come; else null';
COMMENT ON COLUMN delay_wheel.queues.users IS 'roles that may schedule into it, beside members of its owner; ''-'' stands for all roles';
COMMENT ON COLUMN delay_wheel.queues.max_running IS 'how many of its tasks run at a time at most';
COMMENT ON COLUMN delay_wheel.queues.rate IS 'how many of its tasks are started in the time per at most';
COMMENT ON COLUMN delay_wheel.queues.per IS 'an interval as text: the time that rate is for; null if there is no rate';
COMMENT ON COLUMN delay_wheel.queues.burst IS 'how many starts that the rate has left unused are made up for at once; null is what it allows in 100 ms and one more, at least 2';
COMMENT ON COLUMN delay_wheel.queues.groups IS 'whether its tasks may have groups, which take turns';
COMMENT ON COLUMN delay_wheel.queues.group_max_running IS 'how many tasks of one group run at a time at most; null is no limit';
COMMENT ON COLUMN delay_wheel.queues.group_rate IS 'how many tasks of one group are started in the time group_per at most; null is no limit';
COMMENT ON COLUMN delay_wheel.queues.group_per IS 'an interval as text: the time that group_rate is for; null if there is no such rate';
COMMENT ON COLUMN delay_wheel.queues.group_burst IS 'as burst, for one group';
COMMENT ON COLUMN delay_wheel.queues.group_order IS 'hold or pass: tasks of one group run one after the other, in the order of their due times; null is in any order';
COMMENT ON COLUMN delay_wheel.queues.history IS 'which ends of its tasks are recorded in delay_wheel.history: off, errors, sample or all; null is as the setting of that name says';
COMMENT ON COLUMN delay_wheel.queues.state IS 'paused; limited: due tasks wait for what reason says, max_running, rate or limits of groups; running: tasks of it run; ready: due tasks wait for an executor; unreceived: it is external, and due messages wait for a receiver; idle';
COMMENT ON COLUMN delay_wheel.queues.running IS 'executors that run its tasks, of all roles; if it is external, messages that open transactions have received; never above max_running, but for those that ran when it was lowered';
COMMENT ON COLUMN delay_wheel.queues.near IS 'tasks in memory that are not due yet; one that was moved or cancelled is counted until its old time';
COMMENT ON COLUMN delay_wheel.queues.ready IS 'tasks in memory that are due and wait; if there are many, others wait in the table; one that was cancelled is counted until somebody looks';
COMMENT ON COLUMN delay_wheel.queues.lanes IS 'combinations of owner and priority that have, or had, tasks in it';
COMMENT ON COLUMN delay_wheel.queues.done IS 'tasks that were run, since the start of the server, or since the queue was declared';
COMMENT ON COLUMN delay_wheel.queues.failed IS 'tasks that were given up, since then';
COMMENT ON COLUMN delay_wheel.queues.retried IS 'attempts that failed and are followed by another one, since then';
COMMENT ON COLUMN delay_wheel.queues.cancelled IS 'tasks that turned out to be cancelled by delay_cancel_all when they were due, since then; those cancelled earlier are not counted';
COMMENT ON COLUMN delay_wheel.queues.skipped IS 'tasks that were not run since it was too late, see skip_after of delay_schedule_task, since then';
COMMENT ON COLUMN delay_wheel.queues.lateness_p50 IS 'milliseconds from due to start, median of its lanes, since each was entered; right to about 20%. Waiting for limits, and pauses, are part of it';
COMMENT ON COLUMN delay_wheel.queues.lateness_p95 IS 'the same, 95th percentile';
COMMENT ON COLUMN delay_wheel.queues.lateness_p99 IS 'the same, 99th percentile';
COMMENT ON COLUMN delay_wheel.queues.lateness_max IS 'the same, highest value, exact';
COMMENT ON COLUMN delay_wheel.queues.external IS 'whether it has messages, which sessions receive, and not SQL tasks, which executors run';
COMMENT ON COLUMN delay_wheel.queues.lease IS 'an interval as text: if external: how long a lease is that says nothing, see delay_lease(); else null';
COMMENT ON COLUMN delay_wheel.queues.receive_timeout IS 'an interval as text: if external: how long a transaction that has received may be idle, 0 is without limit; else null';
COMMENT ON COLUMN delay_wheel.queues.notify_channel IS 'if external: the channel that is notified when a message can be received, or null';
COMMENT ON COLUMN delay_wheel.queues.first_due IS 'of the task in memory that is due and waits longest: since when it waits, which is its due time; of a message whose lease has ended, that end; null if none waits';
COMMENT ON COLUMN delay_wheel.queues.awaiting IS 'if external: sessions that wait for its messages in delay_await(); else null';
COMMENT ON COLUMN delay_wheel.queues.leased IS 'if external: messages that receivers have under a lease, see delay_lease(); they count for max_running beside running; else null, and so while a command rewrites the table of tasks';
COMMENT ON COLUMN delay_wheel.queues.lapsed IS 'if external: leases that ended without a word of their receiver, since the start of the server, or since the queue was declared; each is counted when its message is received again, or has failed; else null';
COMMENT ON COLUMN delay_wheel.queues.retry_backoff IS 'of tasks that say none: how the pause before further attempts grows: exponential, linear or fixed';
COMMENT ON COLUMN delay_wheel.queues.retry_max_delay IS 'an interval as text: of tasks that say none: no pause is longer; null is an hour, or retry_delay if that is longer';
COMMENT ON COLUMN delay_wheel.queues.retry_on IS 'of tasks that say none: SQLSTATEs, or their classes, after which alone one is tried again; null is after all';
COMMENT ON COLUMN delay_wheel.queues.give_up_on IS 'of tasks that say none: SQLSTATEs, or their classes, after which one is not tried again; null is none';
COMMENT ON COLUMN delay_wheel.queues.keep_settings IS 'of tasks that say none: settings of the caller that are kept with them; null is none';
COMMENT ON COLUMN delay_wheel.queues.receivers IS 'roles that may receive its messages, beside members of its owner; ''-'' stands for all roles';

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
COMMENT ON FUNCTION delay_wheel_internal.get_status() IS 'state of this database, or of each one that is served, see delay_wheel.status';

CREATE VIEW delay_wheel.status AS
SELECT v.database::text AS database, v.state, v.current_index, v.horizon, v.lanes, v.near, v.ready, v.running,
	   v.executors, v.parked, v.done, v.failed, v.lateness_p50, v.lateness_p95, v.lateness_p99, v.lateness_max,
	   v.memory_used, v.memory_limit, v.last_problem, v.last_problem_at, v.unarmed, v.retried, v.skipped,
	   v.rests_until, v.silent
FROM delay_wheel_internal.get_status() v;
COMMENT ON VIEW delay_wheel.status IS
'state of delay_wheel since the start of the server: in this database; in each one that it serves, for pg_read_all_stats and superusers';
COMMENT ON COLUMN delay_wheel.status.database IS 'name of the database';
COMMENT ON COLUMN delay_wheel.status.lanes IS 'combinations of owner, queue and priority that have tasks';
COMMENT ON COLUMN delay_wheel.status.running IS 'tasks that executors run just now';
COMMENT ON COLUMN delay_wheel.status.executors IS 'executors of this database, busy or not';
COMMENT ON COLUMN delay_wheel.status.lateness_p95 IS 'the same, 95th percentile';
COMMENT ON COLUMN delay_wheel.status.lateness_p99 IS 'the same, 99th percentile';
COMMENT ON COLUMN delay_wheel.status.lateness_max IS 'the same, highest value';
COMMENT ON COLUMN delay_wheel.status.last_problem IS 'what last kept tasks from being run, as the reference lists it; null if there was nothing since the start of the server, and for roles that are neither in pg_monitor nor in pg_read_all_stats. It stays when it is over. The message of an error that it quotes is shown to pg_read_all_data and superusers, since it can contain SQL and values of a task; others are referred to the server''s log';
COMMENT ON COLUMN delay_wheel.status.last_problem_at IS 'when that was';
COMMENT ON COLUMN delay_wheel.status.state IS 'starting; running; silent: the timer does not answer, or the launcher that is to start one, see delay_wheel.silent, and due tasks do not begin; resting: there is no timer process, since nothing is to be done before rests_until, and one is started in time, or as soon as a session needs it (delay_wheel.timer_idle_timeout); disabled: delay_wheel.enabled is off; paused: by delay_wheel.pause_database(); stopped: there is no timer process, or no background worker was free to see whether this database has the extension; no place: delay_wheel.max_databases others are served, and tasks of this database wait until one of them is not; standby: the server is in recovery; held: it came out of recovery, and delay_wheel.start_after_recovery is hold';
COMMENT ON COLUMN delay_wheel.status.rests_until IS 'if there is no timer process since nothing is to be done: when there is something to do again, as to load a task an hour ahead; null if never, as far as is known';
COMMENT ON COLUMN delay_wheel.status.silent IS 'processes that do not answer, the launcher included: kind and pid of each, see delay_wheel.silent; null if all answer';
COMMENT ON COLUMN delay_wheel.status.current_index IS 'slot that the clock is in';
COMMENT ON COLUMN delay_wheel.status.horizon IS 'tasks that are due before are in memory, in whichever lane; null if all of them are, or while all of a lane''s are loaded anew';
COMMENT ON COLUMN delay_wheel.status.near IS 'tasks in memory that are not due yet; one that was moved or cancelled is counted until its old time';
COMMENT ON COLUMN delay_wheel.status.ready IS 'tasks in memory that are due and wait for an executor; one that was cancelled is counted until one looks';
COMMENT ON COLUMN delay_wheel.status.parked IS 'lanes with due tasks for which no executor can be had, see delay_wheel.lanes';
COMMENT ON COLUMN delay_wheel.status.lateness_p50 IS 'milliseconds from due to start, median; each attempt counts, from its own due time';
COMMENT ON COLUMN delay_wheel.status.memory_used IS 'bytes of the ring''s memory that this database holds';
COMMENT ON COLUMN delay_wheel.status.memory_limit IS 'bytes of the ring''s memory that it may hold';
COMMENT ON COLUMN delay_wheel.status.done IS 'tasks that were run with success';
COMMENT ON COLUMN delay_wheel.status.failed IS 'tasks that were given up; each is counted once';
COMMENT ON COLUMN delay_wheel.status.retried IS 'attempts that failed and were followed by another one; repeats at once after serialization failures and deadlocks are not counted';
COMMENT ON COLUMN delay_wheel.status.skipped IS 'tasks that were not run since it was too late, see skip_after of delay_schedule_task';
COMMENT ON COLUMN delay_wheel.status.unarmed IS 'there are tasks that came with a copy of another database and are not run, see delay_wheel.arm(); known from the start, from plain SQL, restores and replication since then, and from delay_wheel.arm() itself: true may be late to become false if they were cancelled';

CREATE FUNCTION delay_wheel_internal.get_waiting(
	OUT database name, OUT state text, OUT lanes bigint, OUT tasks bigint, OUT first_due timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_waiting' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.get_waiting() IS
'due tasks in memory, and what they wait for, of this database, or of each one that is served, see delay_wheel.waiting';

CREATE VIEW delay_wheel.waiting AS
SELECT v.database::text AS database, v.state, v.lanes, v.tasks, v.first_due
FROM delay_wheel_internal.get_waiting() v;
COMMENT ON VIEW delay_wheel.waiting IS
'due tasks in memory by what they wait for: a row for each state, of this database; for pg_read_all_stats and superusers of each one that is served. See delay_wheel.lanes for whose they are. Tasks that are in the table only, since memory is short, or since there is no timer, are not counted';
COMMENT ON COLUMN delay_wheel.waiting.database IS 'name of the database';
COMMENT ON COLUMN delay_wheel.waiting.state IS
'of the lanes that the tasks are in, as in delay_wheel.lanes: ready: all executors are busy; running: executors are on the lane; limited: by what the queue allows; blocked: no executor can be had; paused; unreceived: messages, no receiver has taken them. And suspected: tasks that are suspected to have crashed the server, which are counted whether due or not, and stand in delay_wheel.failed, with SQLSTATE DW004, after the third crash';
COMMENT ON COLUMN delay_wheel.waiting.lanes IS 'lanes in this state that have due tasks; null for suspected';
COMMENT ON COLUMN delay_wheel.waiting.tasks IS 'due tasks in these lanes; those that are being run do not count';
COMMENT ON COLUMN delay_wheel.waiting.first_due IS
'due time of the task that has waited longest among those that are first in line in their lanes; null if there is none';

CREATE FUNCTION delay_wheel_internal.get_lateness(OUT database name, OUT below double precision, OUT tasks bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_lateness' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.get_lateness() IS
'how late tasks of this database, or of each one that is served, began, see delay_wheel.lateness';

CREATE VIEW delay_wheel.lateness AS
SELECT v.database::text AS database, v.below, v.tasks
FROM delay_wheel_internal.get_lateness() v;
COMMENT ON VIEW delay_wheel.lateness IS
'how many tasks began less than so long after they were due, since the start of the server: a cumulative histogram of 33 rows, whose bounds are powers of two; of this database, for pg_read_all_stats and superusers of each one that is served. Two looks at it tell how late tasks were in between';
COMMENT ON COLUMN delay_wheel.lateness.database IS 'name of the database';
COMMENT ON COLUMN delay_wheel.lateness.below IS 'seconds: 0.000064, doubled from row to row up to 137438.953472, then Infinity';
COMMENT ON COLUMN delay_wheel.lateness.tasks IS
'attempts that began less than that after their due time, as in delay_wheel.status; waiting for limits, and pauses, are part of it';

CREATE FUNCTION delay_wheel_internal.get_silent(
	OUT database name, OUT process text, OUT pid integer, OUT since timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_silent' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.get_silent() IS
'processes that do not answer, of this database, or of each one that is served, see delay_wheel.silent';

CREATE VIEW delay_wheel.silent AS
SELECT v.database::text AS database, v.process, v.pid, v.since
FROM delay_wheel_internal.get_silent() v;
COMMENT ON VIEW delay_wheel.silent IS
'processes of delay_wheel that have not answered for 5 seconds: of this database, or of all for pg_read_all_stats and superusers, and the launcher. Reading it takes no lock';
COMMENT ON COLUMN delay_wheel.silent.database IS 'name of the database; null for the launcher';
COMMENT ON COLUMN delay_wheel.silent.process IS 'executor, timer, sweeper or launcher. An executor that runs a task is never shown';
COMMENT ON COLUMN delay_wheel.silent.pid IS 'its pid; null if the process has not come up';
COMMENT ON COLUMN delay_wheel.silent.since IS 'when it was called, should have woken by itself, or began the work that it has not ended';

GRANT SELECT ON delay_wheel.ring, delay_wheel.lanes, delay_wheel.groups, delay_wheel.queues, delay_wheel.status, delay_wheel.waiting, delay_wheel.lateness, delay_wheel.silent
	TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel_internal.get_ring(), delay_wheel_internal.get_lanes(), delay_wheel_internal.get_groups(integer), delay_wheel_internal.get_queues(), delay_wheel_internal.get_status(), delay_wheel_internal.get_waiting(), delay_wheel_internal.get_lateness(), delay_wheel_internal.get_silent()
	TO PUBLIC;
