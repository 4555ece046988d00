/*---- Tables: the truth about all tasks, and what the functions keep ----*/

CREATE FUNCTION delay_wheel_internal.origin() RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_origin' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel_internal.origin() IS
'identity of this database in this cluster, derived from the system identifier and the database''s OID; tasks stamped with another one are not run';

-- CACHE 1: the order of ids is the order of scheduling, which is relied on
CREATE SEQUENCE delay_wheel_data.task_id_seq AS bigint CACHE 1;
COMMENT ON SEQUENCE delay_wheel_data.task_id_seq IS 'ids of tasks, in the order of scheduling';

CREATE TABLE delay_wheel_data.task
(
	id bigint NOT NULL DEFAULT pg_catalog.nextval('delay_wheel_data.task_id_seq'),
	due timestamptz NOT NULL,
	origin bigint NOT NULL DEFAULT delay_wheel_internal.origin(),
	owner regrole NOT NULL DEFAULT pg_catalog.to_regrole(pg_catalog.quote_ident(CURRENT_USER)),
	queue smallint NOT NULL DEFAULT 0,
	priority smallint NOT NULL DEFAULT 0,
	attempts smallint,
	max_attempts smallint,
	timeout integer,
	spared bigint,
	token bigint,
	first_due timestamptz,
	leased_at timestamptz,
	retry_delay interval,
	expires interval,
	sql text,
	args text[],
	arg_types regtype[],
	search_path text,
	key text,
	tag text,
	more jsonb,
	payload jsonb,
	group_key text COLLATE "C",
	group_hash integer GENERATED ALWAYS AS (CASE pg_catalog.hashtext(group_key) WHEN 0 THEN 1 ELSE pg_catalog.hashtext(group_key) END) STORED,
	CONSTRAINT task_pkey PRIMARY KEY (id),
	CONSTRAINT task_priority_check CHECK (priority BETWEEN -9 AND 9),
	CONSTRAINT task_attempts_check CHECK (attempts >= 0),
	CONSTRAINT task_due_check CHECK (pg_catalog.isfinite(due)),
	CONSTRAINT task_token_check CHECK ((token IS NULL) = (first_due IS NULL) AND (token IS NULL) = (leased_at IS NULL)),
	-- they become due times and times of the history
	CONSTRAINT task_lease_check CHECK (pg_catalog.isfinite(first_due) AND pg_catalog.isfinite(leased_at)),
	CONSTRAINT task_payload_check CHECK ((sql IS NULL) <> (payload IS NULL)),
	CONSTRAINT task_args_check CHECK (pg_catalog.cardinality(args) IS NOT DISTINCT FROM pg_catalog.cardinality(arg_types))
)
USING heap
WITH (
	autovacuum_vacuum_threshold = 5000,
	autovacuum_vacuum_scale_factor = 0.01,
	autovacuum_vacuum_cost_delay = 0,
	autovacuum_analyze_threshold = 50000,
	autovacuum_analyze_scale_factor = 0.1,
	vacuum_truncate = off,
	toast.autovacuum_vacuum_threshold = 5000,
	toast.autovacuum_vacuum_scale_factor = 0.01,
	toast.vacuum_truncate = off
);
ALTER SEQUENCE delay_wheel_data.task_id_seq OWNED BY delay_wheel_data.task.id;
-- with the origin, so that tasks of other origins are in nobody's way
CREATE INDEX task_lane_due_idx ON delay_wheel_data.task (owner, origin, queue, priority, due, id);
-- not unique: a task that runs, and whose row is not gone yet, may have a successor
CREATE INDEX task_key_idx ON delay_wheel_data.task (owner, queue, key) WHERE key IS NOT NULL;
-- leases, few at a time: to count them, and to find those that have ended
CREATE INDEX task_lease_idx ON delay_wheel_data.task (due, queue) WHERE token IS NOT NULL;
CREATE INDEX task_group_idx ON delay_wheel_data.task (origin, queue, group_hash, due, id) WHERE group_hash IS NOT NULL;
-- leases of groups: to count them
CREATE INDEX task_group_lease_idx ON delay_wheel_data.task (origin, queue, group_hash) WHERE token IS NOT NULL AND group_hash IS NOT NULL;
-- tasks that are due at a local time, whose time zone may get other rules
CREATE INDEX task_local_idx ON delay_wheel_data.task (id) WHERE more OPERATOR(pg_catalog.?) 'local';
COMMENT ON TABLE delay_wheel_data.task IS
'one row for each pending task; the row is removed in the transaction that runs the task. Use the view delay_wheel.tasks to read it and the functions delay_schedule, delay_cancel, delay_reschedule to change it; these do not fire triggers, nor check constraints or foreign keys that are added to the table';
COMMENT ON COLUMN delay_wheel_data.task.id IS 'number of the task, as delay_schedule returned it';
COMMENT ON COLUMN delay_wheel_data.task.due IS 'the task runs at this time or after, never before';
COMMENT ON COLUMN delay_wheel_data.task.origin IS 'database that the task was scheduled in, see delay_wheel_internal.origin(); in another one, it is not run until delay_wheel.arm() is called';
COMMENT ON COLUMN delay_wheel_data.task.owner IS 'role that scheduled the task and whose rights it has';
COMMENT ON COLUMN delay_wheel_data.task.queue IS 'queue, see delay_wheel_data.queue; 0 is the default queue';
COMMENT ON COLUMN delay_wheel_data.task.priority IS '-9 to 9; higher first among due tasks';
COMMENT ON COLUMN delay_wheel_data.task.attempts IS 'how often the task was run and failed; null is never';
COMMENT ON COLUMN delay_wheel_data.task.max_attempts IS 'how often the task may be run in all; null is as often as its queue says, or else once';
COMMENT ON COLUMN delay_wheel_data.task.timeout IS 'statement timeout of each attempt in milliseconds, 0 is none; null is the queue''s, or else the shorter one of the role''s settings statement_timeout and delay_wheel.default_timeout';
COMMENT ON COLUMN delay_wheel_data.task.spared IS 'cancellations up to this number do not concern the task; null: those that are newer than its id do';
COMMENT ON COLUMN delay_wheel_data.task.token IS 'of a message that was leased, see delay_lease: a random number that the receiver shows; due is the end of the lease';
COMMENT ON COLUMN delay_wheel_data.task.first_due IS 'of a message that was leased: when it was due';
COMMENT ON COLUMN delay_wheel_data.task.leased_at IS 'of a message that was leased: when its lease began';
COMMENT ON COLUMN delay_wheel_data.task.retry_delay IS 'pause before the second attempt; grows as retry_backoff in more, or its queue, says, is doubled else, up to an hour, and lengthened by up to a quarter at random; a second at least after 100 attempts; null is the queue''s, or else 10 seconds; a day counts 24 hours, a month 30 days';
COMMENT ON COLUMN delay_wheel_data.task.expires IS 'the task is not run later than that after due, which of a later attempt is its own; null is at any time; a day counts 24 hours, a month 30 days';
COMMENT ON COLUMN delay_wheel_data.task.sql IS 'one or several SQL statements; null in a message';
COMMENT ON COLUMN delay_wheel_data.task.args IS 'values of $1, $2 ... in text form; null if there are none';
COMMENT ON COLUMN delay_wheel_data.task.arg_types IS 'types of the args; ''-'' for an untyped literal, which takes its type from the statement';
COMMENT ON COLUMN delay_wheel_data.task.search_path IS 'search_path of the caller, kept where it was not the default of the owner';
COMMENT ON COLUMN delay_wheel_data.task.key IS 'at most one pending task for each owner, queue and key; of several rows, the one with the highest id';
COMMENT ON COLUMN delay_wheel_data.task.tag IS 'free grouping, for instance a sender or a campaign';
COMMENT ON COLUMN delay_wheel_data.task.more IS 'what few tasks have';
COMMENT ON COLUMN delay_wheel_data.task.payload IS 'of a message, see delay_send: what its receiver gets; null in an SQL task';
COMMENT ON COLUMN delay_wheel_data.task.group_key IS 'the group that it belongs to, if its queue has groups; null is none';
COMMENT ON COLUMN delay_wheel_data.task.group_hash IS 'a hash of group_key, by which the tasks of a group are found; null without a group';

-- ids are not given again: failed tasks name theirs for as long as they are kept
CREATE SEQUENCE delay_wheel_data.queue_id_seq AS smallint CYCLE;
COMMENT ON SEQUENCE delay_wheel_data.queue_id_seq IS 'ids of queues';

CREATE TABLE delay_wheel_data.queue
(
	id smallint NOT NULL DEFAULT pg_catalog.nextval('delay_wheel_data.queue_id_seq'),
	priority smallint NOT NULL DEFAULT 0,
	max_attempts smallint,
	paused boolean NOT NULL DEFAULT false,
	batch boolean NOT NULL DEFAULT true,
	owner regrole NOT NULL DEFAULT pg_catalog.to_regrole(pg_catalog.quote_ident(CURRENT_USER)),
	max_running integer,
	rate integer,
	timeout integer,
	-- found by an index, whose order the library must know
	name text COLLATE "C" NOT NULL,
	users regrole[] NOT NULL DEFAULT '{}',
	retry_delay interval,
	spread interval,
	history text,
	external boolean NOT NULL DEFAULT false,
	receivers regrole[] NOT NULL DEFAULT '{}',
	lease interval,
	receive_timeout integer,
	notify_channel text,
	retry_backoff text,
	retry_max_delay interval,
	retry_on text[],
	give_up_on text[],
	keep_settings text[],
	per interval,
	burst integer,
	groups boolean,
	group_max_running integer,
	group_rate integer,
	group_per interval,
	group_burst integer,
	group_order text,
	CONSTRAINT queue_pkey PRIMARY KEY (id),
	CONSTRAINT queue_name_key UNIQUE (name),
	CONSTRAINT queue_id_check CHECK (id > 0),
	CONSTRAINT queue_priority_check CHECK (priority BETWEEN -9 AND 9),
	CONSTRAINT queue_max_attempts_check CHECK (max_attempts > 0),
	CONSTRAINT queue_max_running_check CHECK (max_running > 0),
	CONSTRAINT queue_rate_check CHECK (rate BETWEEN 1 AND 1000000),
	CONSTRAINT queue_per_check CHECK (per BETWEEN '1 second' AND '366 days'),
	CONSTRAINT queue_burst_check CHECK (burst BETWEEN 1 AND 100000),
	CONSTRAINT queue_group_max_running_check CHECK (group_max_running > 0),
	CONSTRAINT queue_group_rate_check CHECK (group_rate BETWEEN 1 AND 1000000),
	CONSTRAINT queue_group_per_check CHECK (group_per BETWEEN '1 second' AND '366 days'),
	CONSTRAINT queue_group_burst_check CHECK (group_burst BETWEEN 1 AND 100000),
	CONSTRAINT queue_group_order_check CHECK (group_order IN ('hold', 'pass')),
	CONSTRAINT queue_timeout_check CHECK (timeout > 0),
	CONSTRAINT queue_name_check CHECK (name NOT IN ('', 'default') AND pg_catalog.octet_length(name) < 64),
	CONSTRAINT queue_retry_delay_check CHECK (retry_delay >= '0'),
	CONSTRAINT queue_retry_backoff_check CHECK (retry_backoff IN ('exponential', 'linear', 'fixed')),
	CONSTRAINT queue_retry_max_delay_check CHECK (retry_max_delay > '0'),
	CONSTRAINT queue_spread_check CHECK (spread >= '0'),
	CONSTRAINT queue_lease_check CHECK (lease > '0'),
	CONSTRAINT queue_receive_timeout_check CHECK (receive_timeout >= 0),
	CONSTRAINT queue_notify_channel_check CHECK (pg_catalog.octet_length(notify_channel) BETWEEN 1 AND 63),
	CONSTRAINT queue_history_check CHECK (history IN ('off', 'errors', 'sample', 'all'))
)
USING heap;
ALTER SEQUENCE delay_wheel_data.queue_id_seq OWNED BY delay_wheel_data.queue.id;
-- none for queue 0: it would be in the way of a copy of the rows
COMMENT ON TABLE delay_wheel_data.queue IS
'queues, as delay_wheel.create_queue declared them; tasks are in queue 0, the default queue, which needs no row, unless said otherwise. Read it by the view delay_wheel.queues';
COMMENT ON COLUMN delay_wheel_data.queue.id IS 'number of the queue, in delay_wheel_data.task.queue; it is not given again when the queue is dropped';
COMMENT ON COLUMN delay_wheel_data.queue.priority IS 'of tasks that say none: -9 to 9';
COMMENT ON COLUMN delay_wheel_data.queue.max_attempts IS 'of tasks that say nothing: how often one may be run in all; null is once, and 20 times if external';
COMMENT ON COLUMN delay_wheel_data.queue.paused IS 'no task of the queue is started, see delay_wheel.pause_queue()';
COMMENT ON COLUMN delay_wheel_data.queue.batch IS 'tasks of it may share a transaction with others';
COMMENT ON COLUMN delay_wheel_data.queue.owner IS 'role whose members may change, pause and drop the queue';
COMMENT ON COLUMN delay_wheel_data.queue.max_running IS 'how many of its tasks run at a time at most; null is no limit';
COMMENT ON COLUMN delay_wheel_data.queue.rate IS 'how many of its tasks are started in the time per at most; null is no limit';
COMMENT ON COLUMN delay_wheel_data.queue.timeout IS 'of tasks that say none: statement timeout in milliseconds; null is the role''s setting';
COMMENT ON COLUMN delay_wheel_data.queue.name IS 'name of the queue, up to 63 bytes';
COMMENT ON COLUMN delay_wheel_data.queue.users IS 'roles that may schedule into the queue, beside the owner''s members; ''-'' stands for all roles';
COMMENT ON COLUMN delay_wheel_data.queue.retry_delay IS 'of tasks that say none: pause before the second attempt, which grows as retry_backoff says; zero is at once, but a second after 100 attempts; null is 10 seconds';
COMMENT ON COLUMN delay_wheel_data.queue.spread IS 'due times of its tasks are put off, each by another part of this; null is not at all';
COMMENT ON COLUMN delay_wheel_data.queue.history IS 'which ends of its tasks are recorded: off, errors, sample or all; null is as the setting delay_wheel.history says';
COMMENT ON COLUMN delay_wheel_data.queue.external IS 'it has messages, which sessions receive; else SQL tasks, which executors run';
COMMENT ON COLUMN delay_wheel_data.queue.lease IS 'if external: how long a lease is that says nothing; null is a minute';
COMMENT ON COLUMN delay_wheel_data.queue.receive_timeout IS 'if external: how long a transaction that has received may be idle, in milliseconds; 0 is without limit, null a minute';
COMMENT ON COLUMN delay_wheel_data.queue.notify_channel IS 'if external: a channel that is notified, with the name of the queue, when a message can be received; null is none';
COMMENT ON COLUMN delay_wheel_data.queue.retry_backoff IS 'of tasks that say none: how the pause before further attempts grows: exponential, linear or fixed; null is exponential';
COMMENT ON COLUMN delay_wheel_data.queue.retry_max_delay IS 'of tasks that say none: no pause is longer; null is an hour, or retry_delay if that is longer';
COMMENT ON COLUMN delay_wheel_data.queue.retry_on IS 'of tasks that say none: SQLSTATEs, or their classes, after which alone one is tried again; null is after all';
COMMENT ON COLUMN delay_wheel_data.queue.give_up_on IS 'of tasks that say none: SQLSTATEs, or their classes, after which one is not tried again; null is none';
COMMENT ON COLUMN delay_wheel_data.queue.keep_settings IS 'of tasks that say none: settings of the caller that are kept with them; null is none';
COMMENT ON COLUMN delay_wheel_data.queue.per IS 'the time that rate is for; null is a second';
COMMENT ON COLUMN delay_wheel_data.queue.burst IS 'how many tasks that the rate has left unused may be started at once; null is 1 + rate/10 a second, at least 2';
COMMENT ON COLUMN delay_wheel_data.queue.groups IS 'its tasks may have groups, which take turns; null is false';
COMMENT ON COLUMN delay_wheel_data.queue.group_max_running IS 'how many tasks of one group run at a time at most, or messages are received or leased; null is no limit';
COMMENT ON COLUMN delay_wheel_data.queue.group_rate IS 'how many tasks of one group are started in the time group_per at most; null is no limit';
COMMENT ON COLUMN delay_wheel_data.queue.group_per IS 'the time that group_rate is for; null is a second';
COMMENT ON COLUMN delay_wheel_data.queue.group_burst IS 'as burst, for one group';
COMMENT ON COLUMN delay_wheel_data.queue.group_order IS 'hold or pass: tasks of one group run one after the other, in the order of their due times; null is in any order';
COMMENT ON COLUMN delay_wheel_data.queue.receivers IS 'if external: roles that may receive its messages, beside the owner''s members; ''-'' stands for all roles';

-- owner 0, shown as -, stands for all roles
CREATE TABLE delay_wheel_data.pause
(
	owner regrole NOT NULL,
	since timestamptz NOT NULL DEFAULT pg_catalog.now(),
	CONSTRAINT pause_pkey PRIMARY KEY (owner)
)
USING heap;
COMMENT ON TABLE delay_wheel_data.pause IS
'whose tasks are paused by delay_pause_all(): no task of the role in owner is started; of none at all, for ''-'', by delay_wheel.pause_database()';
COMMENT ON COLUMN delay_wheel_data.pause.owner IS 'role whose tasks are paused; ''-'' stands for all roles';
COMMENT ON COLUMN delay_wheel_data.pause.since IS 'start of the transaction that paused them';

CREATE TABLE delay_wheel_data.cancellation
(
	id bigint NOT NULL,
	origin bigint NOT NULL,
	made_at timestamptz NOT NULL,
	made_by regrole NOT NULL,
	owners regrole[],
	queue smallint,
	tag text,
	due_from timestamptz,
	due_until timestamptz,
	removed bigint NOT NULL,
	CONSTRAINT cancellation_pkey PRIMARY KEY (id)
)
USING heap
WITH (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0, vacuum_truncate = off);
-- those of all roles, which the view "tasks" compares with each task
CREATE INDEX cancellation_all_idx ON delay_wheel_data.cancellation (id) WHERE owners IS NULL;
COMMENT ON TABLE delay_wheel_data.cancellation IS
'one row for each call of delay_cancel_all(), until all tasks that it has cancelled are removed; read it by the view delay_wheel.cancellations';
COMMENT ON COLUMN delay_wheel_data.cancellation.made_at IS 'start of the transaction that called delay_cancel_all()';
COMMENT ON COLUMN delay_wheel_data.cancellation.made_by IS 'role that called it';
COMMENT ON COLUMN delay_wheel_data.cancellation.id IS 'number, from the same sequence as those of tasks; tasks with lower ones that match are cancelled';
COMMENT ON COLUMN delay_wheel_data.cancellation.origin IS 'database that it was made in, see delay_wheel_internal.origin(); in another one it concerns tasks of that origin only';
COMMENT ON COLUMN delay_wheel_data.cancellation.owners IS 'tasks of these roles, whose rights the caller had; null is of all';
COMMENT ON COLUMN delay_wheel_data.cancellation.queue IS 'tasks of this queue, see delay_wheel_data.queue; null is of all';
COMMENT ON COLUMN delay_wheel_data.cancellation.tag IS 'tasks with this tag; null is all';
COMMENT ON COLUMN delay_wheel_data.cancellation.due_from IS 'tasks that are due then or later; null is all';
COMMENT ON COLUMN delay_wheel_data.cancellation.due_until IS 'tasks that are due before; null is all';
COMMENT ON COLUMN delay_wheel_data.cancellation.removed IS 'rows that the sweeper has removed, brought up to date once a second';

CREATE TABLE delay_wheel_data.unique_key
(
	id bigint NOT NULL,
	until timestamptz NOT NULL,
	owner regrole NOT NULL,
	queue smallint NOT NULL,
	key text NOT NULL,
	CONSTRAINT unique_key_pkey PRIMARY KEY (id)
)
USING heap
WITH (autovacuum_vacuum_scale_factor = 0.05, vacuum_truncate = off);
-- not unique: rows of periods that have ended stay for a while
CREATE INDEX unique_key_key_idx ON delay_wheel_data.unique_key (owner, queue, key);
CREATE INDEX unique_key_until_idx ON delay_wheel_data.unique_key (until);
COMMENT ON TABLE delay_wheel_data.unique_key IS
'one row for each task that was scheduled with unique_for, until some minutes after that time; removed when the task is cancelled, skipped, given up, or deleted by plain SQL. Read it by the view delay_wheel.unique_keys';
COMMENT ON COLUMN delay_wheel_data.unique_key.id IS 'number of the task';
COMMENT ON COLUMN delay_wheel_data.unique_key.until IS 'until when no other task of the key is scheduled with unique_for';
COMMENT ON COLUMN delay_wheel_data.unique_key.owner IS 'role that scheduled the task';
COMMENT ON COLUMN delay_wheel_data.unique_key.queue IS 'queue that it was scheduled into, see delay_wheel_data.queue; 0 is the default queue';
COMMENT ON COLUMN delay_wheel_data.unique_key.key IS 'key of the task';

/*
 * What a prepared transaction touched, written by itself, so that whoever
 * commits it or rolls it back can tell the timer.
 */
CREATE TABLE delay_wheel_data.prepared
(
	gid text COLLATE "C" NOT NULL,
	owner regrole NOT NULL,
	queue smallint NOT NULL,
	priority smallint NOT NULL,
	due timestamptz NOT NULL
)
USING heap
WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, vacuum_truncate = off);
-- while an old snapshot is held the table only grows
CREATE INDEX prepared_gid_idx ON delay_wheel_data.prepared (gid);
-- its rows are deleted, too, which a publication of all tables publishes
ALTER TABLE delay_wheel_data.prepared REPLICA IDENTITY FULL;
COMMENT ON TABLE delay_wheel_data.prepared IS
'for each prepared transaction and lane, the lowest due time that it touched; emptied by the timer';
COMMENT ON COLUMN delay_wheel_data.prepared.gid IS 'of the prepared transaction; empty if an apply worker of logical replication has prepared it, whose name for it is not known';
COMMENT ON COLUMN delay_wheel_data.prepared.owner IS 'of the lane';
COMMENT ON COLUMN delay_wheel_data.prepared.queue IS 'of the lane';
COMMENT ON COLUMN delay_wheel_data.prepared.priority IS 'of the lane';
COMMENT ON COLUMN delay_wheel_data.prepared.due IS 'the lowest due time that it touched there';

/*---- Dumps, statistics ----*/

SELECT pg_catalog.pg_extension_config_dump('delay_wheel_data.task',
	'WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles)');
SELECT pg_catalog.pg_extension_config_dump('delay_wheel_data.unique_key',
	'WHERE until > pg_catalog.now() AND owner IN (SELECT oid FROM pg_catalog.pg_roles)');
SELECT pg_catalog.pg_extension_config_dump('delay_wheel_data.queue',
	'WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles)');
SELECT pg_catalog.pg_extension_config_dump('delay_wheel_data.queue_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('delay_wheel_data.pause',
	'WHERE owner::oid = 0::oid OR owner IN (SELECT oid FROM pg_catalog.pg_roles)');
-- also one that names a role that was dropped meanwhile: left out, the tasks of
-- the others would come back
SELECT pg_catalog.pg_extension_config_dump('delay_wheel_data.cancellation', '');
SELECT pg_catalog.pg_extension_config_dump('delay_wheel_data.task_id_seq', '');

-- a table that was never analyzed is not taken for empty: plans of the views
-- would seem so expensive that each is compiled
ANALYZE delay_wheel_data.cancellation, delay_wheel_data.queue;

GRANT EXECUTE ON FUNCTION delay_wheel_internal.origin()
	TO PUBLIC;
