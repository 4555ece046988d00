/*---- Tables: tasks, queues, pauses, cancellations, unique keys, prepared transactions ----*/

CREATE FUNCTION delay_wheel_internal.origin() RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_origin' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel_internal.origin() IS
'Returns the identity of this database in this cluster. Tasks with another origin do not run.';

-- CACHE 1, since the order of ids must be the order of scheduling
CREATE SEQUENCE delay_wheel_data.task_id_seq AS bigint CACHE 1;
COMMENT ON SEQUENCE delay_wheel_data.task_id_seq IS
'Ids of tasks, recurring tasks and cancellations, in the order of scheduling';

CREATE TABLE delay_wheel_data.task
(
	id bigint NOT NULL DEFAULT pg_catalog.nextval('delay_wheel_data.task_id_seq'),
	due timestamptz NOT NULL,
	origin bigint NOT NULL DEFAULT delay_wheel_internal.origin(),
	owner regrole NOT NULL DEFAULT pg_catalog.to_regrole(pg_catalog.quote_ident(CURRENT_USER)),
	queue smallint NOT NULL DEFAULT 0,
	priority smallint NOT NULL DEFAULT 0,
	-- before the columns of any length: loads read it from each row
	group_hash integer GENERATED ALWAYS AS (CASE pg_catalog.hashtext(group_key) WHEN 0 THEN 1 ELSE pg_catalog.hashtext(group_key) END) STORED,
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
	CONSTRAINT task_pkey PRIMARY KEY (id),
	CONSTRAINT task_priority_check CHECK (priority BETWEEN -9 AND 9),
	CONSTRAINT task_attempts_check CHECK (attempts >= 0),
	CONSTRAINT task_due_check CHECK (pg_catalog.isfinite(due)),
	CONSTRAINT task_token_check CHECK ((token IS NULL) = (first_due IS NULL) AND (token IS NULL) = (leased_at IS NULL)),
	-- these become due times, and times in the history
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
-- with the origin, so that scans skip tasks of other origins
CREATE INDEX task_lane_due_idx ON delay_wheel_data.task (owner, origin, queue, priority, due, id);
-- not unique: a running task still has its row, and may have a successor with its key
CREATE INDEX task_key_idx ON delay_wheel_data.task (owner, queue, key) WHERE key IS NOT NULL;
-- leases: to count them, and to find expired ones; there are few at a time
CREATE INDEX task_lease_idx ON delay_wheel_data.task (due, queue) WHERE token IS NOT NULL;
CREATE INDEX task_group_idx ON delay_wheel_data.task (origin, queue, group_hash, due, id) WHERE group_hash IS NOT NULL;
-- leases of groups: to count them
CREATE INDEX task_group_lease_idx ON delay_wheel_data.task (origin, queue, group_hash) WHERE token IS NOT NULL AND group_hash IS NOT NULL;
-- tasks that are due at a local time: the rules of their time zones may change
CREATE INDEX task_local_idx ON delay_wheel_data.task (id) WHERE more OPERATOR(pg_catalog.?) 'local';
-- members of batches; leakproof: otherwise row level security would keep readers of the views from using the index
CREATE FUNCTION delay_wheel_internal.batch_of(more jsonb) RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_batch_of' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel_internal.batch_of(jsonb) IS
'Returns the id of the batch in column more of a task; NULL: none.';
GRANT EXECUTE ON FUNCTION delay_wheel_internal.batch_of(jsonb) TO PUBLIC;
CREATE INDEX task_batch_idx ON delay_wheel_data.task (delay_wheel_internal.batch_of(more)) WHERE delay_wheel_internal.batch_of(more) IS NOT NULL;
-- as for columns, see end.sql
ALTER INDEX delay_wheel_data.task_batch_idx ALTER COLUMN 1 SET STATISTICS 0;
COMMENT ON TABLE delay_wheel_data.task IS
'Pending tasks, one row each. The transaction that runs a task deletes its row. To read them, use the view delay_wheel.tasks.';
COMMENT ON COLUMN delay_wheel_data.task.id IS 'Id of the task, as delay_schedule() returned it';
COMMENT ON COLUMN delay_wheel_data.task.due IS 'Earliest time at which the task runs; for a leased message, the end of the lease';
COMMENT ON COLUMN delay_wheel_data.task.origin IS 'Database in which the task was scheduled. In another database, the task runs only after delay_wheel.arm().';
COMMENT ON COLUMN delay_wheel_data.task.owner IS 'Role that scheduled the task; the task runs with the rights of this role';
COMMENT ON COLUMN delay_wheel_data.task.queue IS 'Id of the queue; 0 is the default queue';
COMMENT ON COLUMN delay_wheel_data.task.priority IS '-9 to 9; due tasks with a higher priority start first';
COMMENT ON COLUMN delay_wheel_data.task.attempts IS 'Failed attempts so far; leases of a message count, too';
COMMENT ON COLUMN delay_wheel_data.task.max_attempts IS 'Limit of attempts; NULL: the queue''s default, or 1';
COMMENT ON COLUMN delay_wheel_data.task.timeout IS 'Time limit of each attempt in milliseconds; 0: none. NULL: the queue''s default, or the shorter one of the role''s statement_timeout and delay_wheel.default_timeout.';
COMMENT ON COLUMN delay_wheel_data.task.spared IS 'Cancellations up to this id do not affect the task; NULL: up to the id of the task';
COMMENT ON COLUMN delay_wheel_data.task.token IS 'Random number that the receiver of a leased message must pass; NULL if the message was not leased';
COMMENT ON COLUMN delay_wheel_data.task.first_due IS 'Due time of a message before it was leased; NULL if the message was not leased';
COMMENT ON COLUMN delay_wheel_data.task.leased_at IS 'Start of the lease; NULL if the message was not leased';
COMMENT ON COLUMN delay_wheel_data.task.retry_delay IS 'Pause before the second attempt; NULL: the queue''s default, or 10 seconds. A day counts 24 hours, a month 30 days.';
COMMENT ON COLUMN delay_wheel_data.task.expires IS 'The task fails if it has not started within this time after it was due; NULL: no limit. A day counts 24 hours, a month 30 days.';
COMMENT ON COLUMN delay_wheel_data.task.sql IS 'One or several SQL statements';
COMMENT ON COLUMN delay_wheel_data.task.args IS 'Values of the parameters $1, $2 ... as text';
COMMENT ON COLUMN delay_wheel_data.task.arg_types IS 'Types of args; - stands for an untyped literal, whose type depends on the statement';
COMMENT ON COLUMN delay_wheel_data.task.search_path IS 'search_path of the caller; NULL if it was the owner''s default';
COMMENT ON COLUMN delay_wheel_data.task.key IS 'Key: at most one pending task per owner, queue and key. If there are several rows, the row with the highest id counts.';
COMMENT ON COLUMN delay_wheel_data.task.tag IS 'Free label, for instance a sender or a campaign';
COMMENT ON COLUMN delay_wheel_data.task.more IS 'Options that few tasks have, as a JSON object';
COMMENT ON COLUMN delay_wheel_data.task.payload IS 'Content of a message';
COMMENT ON COLUMN delay_wheel_data.task.group_key IS 'Name of the group';
COMMENT ON COLUMN delay_wheel_data.task.group_hash IS 'Hash of group_key, by which tasks of a group are found; NULL without a group';

-- ids are not used again: a failed task keeps the id of its queue
CREATE SEQUENCE delay_wheel_data.queue_id_seq AS smallint CYCLE;
COMMENT ON SEQUENCE delay_wheel_data.queue_id_seq IS
'Ids of queues';

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
	-- COLLATE "C": the library searches the index, and must know its order
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
-- queue 0 has no row: it would conflict with a copy of the rows
COMMENT ON TABLE delay_wheel_data.queue IS
'Queues that delay_wheel.create_queue() declared. The default queue has number 0 and no row. To read them, use the view delay_wheel.queues.';
COMMENT ON COLUMN delay_wheel_data.queue.id IS 'Id of the queue, as in delay_wheel_data.task.queue; not used again after the queue was dropped';
COMMENT ON COLUMN delay_wheel_data.queue.priority IS 'Default priority of tasks, -9 to 9';
COMMENT ON COLUMN delay_wheel_data.queue.max_attempts IS 'Default limit of attempts; NULL: 1, or 20 if external';
COMMENT ON COLUMN delay_wheel_data.queue.paused IS 'Whether delay_wheel.pause_queue() has paused the queue';
COMMENT ON COLUMN delay_wheel_data.queue.batch IS 'Whether tasks of the queue may share a transaction';
COMMENT ON COLUMN delay_wheel_data.queue.owner IS 'Role whose members may change, pause and drop the queue';
COMMENT ON COLUMN delay_wheel_data.queue.max_running IS 'Maximum number of tasks that run at the same time; NULL: no limit';
COMMENT ON COLUMN delay_wheel_data.queue.rate IS 'Maximum number of tasks that start in one period, see per; NULL: no limit';
COMMENT ON COLUMN delay_wheel_data.queue.timeout IS 'Default time limit of an attempt in milliseconds; NULL: the settings of the task''s owner';
COMMENT ON COLUMN delay_wheel_data.queue.name IS 'Name of the queue, up to 63 bytes';
COMMENT ON COLUMN delay_wheel_data.queue.users IS 'Roles that may schedule into the queue, besides members of its owner; - stands for all roles';
COMMENT ON COLUMN delay_wheel_data.queue.retry_delay IS 'Default pause before the second attempt; NULL: 10 seconds';
COMMENT ON COLUMN delay_wheel_data.queue.spread IS 'Each new task is delayed by a different part of this interval; NULL: no delay';
COMMENT ON COLUMN delay_wheel_data.queue.history IS 'Ends of tasks that are recorded: off, errors, sample or all; NULL: the setting delay_wheel.history applies';
COMMENT ON COLUMN delay_wheel_data.queue.external IS 'Whether the queue has messages that sessions receive, instead of SQL tasks that executors run';
COMMENT ON COLUMN delay_wheel_data.queue.lease IS 'Default length of a lease, if external; NULL: 1 minute';
COMMENT ON COLUMN delay_wheel_data.queue.receive_timeout IS 'Time in milliseconds that a transaction may be idle after it has received a message, if external; 0: no limit, NULL: 1 minute';
COMMENT ON COLUMN delay_wheel_data.queue.notify_channel IS 'Channel that is notified with the name of the queue when a message can be received, if external';
COMMENT ON COLUMN delay_wheel_data.queue.retry_backoff IS 'Default growth of the pause between attempts: exponential, linear or fixed; NULL: exponential';
COMMENT ON COLUMN delay_wheel_data.queue.retry_max_delay IS 'Default limit of the pause between attempts; NULL: 1 hour, or retry_delay if that is longer';
COMMENT ON COLUMN delay_wheel_data.queue.retry_on IS 'Default: SQLSTATEs, or classes, after which a task is tried again; NULL: all';
COMMENT ON COLUMN delay_wheel_data.queue.give_up_on IS 'Default: SQLSTATEs, or classes, after which a task is not tried again';
COMMENT ON COLUMN delay_wheel_data.queue.keep_settings IS 'Default: settings of the caller that are kept for a task; NULL: the setting delay_wheel.keep_settings applies';
COMMENT ON COLUMN delay_wheel_data.queue.per IS 'Period of rate; NULL: 1 second';
COMMENT ON COLUMN delay_wheel_data.queue.burst IS 'Maximum number of unused starts that can be used later, at once; NULL: the starts of 100 ms and one more, at least 2';
COMMENT ON COLUMN delay_wheel_data.queue.groups IS 'Whether tasks of the queue may have groups, which take turns; NULL: no';
COMMENT ON COLUMN delay_wheel_data.queue.group_max_running IS 'Maximum number of tasks of one group that run, or messages that are received or leased, at the same time; NULL: no limit';
COMMENT ON COLUMN delay_wheel_data.queue.group_rate IS 'Maximum number of tasks of one group that start in one period, see group_per; NULL: no limit';
COMMENT ON COLUMN delay_wheel_data.queue.group_per IS 'Period of group_rate; NULL: 1 second';
COMMENT ON COLUMN delay_wheel_data.queue.group_burst IS 'Same as burst, for one group';
COMMENT ON COLUMN delay_wheel_data.queue.group_order IS 'hold or pass: tasks of one group run one after the other, in the order of their due times; NULL: no order';
COMMENT ON COLUMN delay_wheel_data.queue.receivers IS 'Roles that may receive messages of the queue, besides members of its owner; - stands for all roles';

-- owner 0, shown as -, stands for all roles
CREATE TABLE delay_wheel_data.pause
(
	owner regrole NOT NULL,
	since timestamptz NOT NULL DEFAULT pg_catalog.now(),
	CONSTRAINT pause_pkey PRIMARY KEY (owner)
)
USING heap;
COMMENT ON TABLE delay_wheel_data.pause IS
'Roles whose tasks delay_pause_all() has paused; - stands for all roles, paused by delay_wheel.pause_database()';
COMMENT ON COLUMN delay_wheel_data.pause.owner IS 'Role whose tasks are paused; - stands for all roles';
COMMENT ON COLUMN delay_wheel_data.pause.since IS 'Start of the transaction that paused them';

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
-- cancellations for all roles: the view "tasks" compares each task with these
CREATE INDEX cancellation_all_idx ON delay_wheel_data.cancellation (id) WHERE owners IS NULL;
COMMENT ON TABLE delay_wheel_data.cancellation IS
'Calls of delay_cancel_all() whose tasks are not all removed yet. To read them, use the view delay_wheel.cancellations.';
COMMENT ON COLUMN delay_wheel_data.cancellation.made_at IS 'Start of the transaction that called delay_cancel_all()';
COMMENT ON COLUMN delay_wheel_data.cancellation.made_by IS 'Role that called delay_cancel_all()';
COMMENT ON COLUMN delay_wheel_data.cancellation.id IS 'Id of the cancellation; it cancels matching tasks with lower ids';
COMMENT ON COLUMN delay_wheel_data.cancellation.origin IS 'Database of the call. In another database, the call cancels only tasks that came from the database of the call.';
COMMENT ON COLUMN delay_wheel_data.cancellation.owners IS 'Roles whose tasks are cancelled: roles whose rights the caller had; NULL: all roles';
COMMENT ON COLUMN delay_wheel_data.cancellation.queue IS 'Id of the queue whose tasks are cancelled; NULL: all queues';
COMMENT ON COLUMN delay_wheel_data.cancellation.tag IS 'Tag of the cancelled tasks; NULL: any';
COMMENT ON COLUMN delay_wheel_data.cancellation.due_from IS 'Tasks due at this time or later are cancelled; NULL: no limit';
COMMENT ON COLUMN delay_wheel_data.cancellation.due_until IS 'Tasks due before this time are cancelled; NULL: no limit';
COMMENT ON COLUMN delay_wheel_data.cancellation.removed IS 'Rows that the sweeper has removed so far, updated once a second';

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
-- not unique: rows of ended periods stay for a while
CREATE INDEX unique_key_key_idx ON delay_wheel_data.unique_key (owner, queue, key);
CREATE INDEX unique_key_until_idx ON delay_wheel_data.unique_key (until);
COMMENT ON TABLE delay_wheel_data.unique_key IS
'Keys that are unique for a period: one row per task scheduled with unique_for. To read them, use the view delay_wheel.unique_keys.';
COMMENT ON COLUMN delay_wheel_data.unique_key.id IS 'Id of the task that began the period';
COMMENT ON COLUMN delay_wheel_data.unique_key.until IS 'End of the period';
COMMENT ON COLUMN delay_wheel_data.unique_key.owner IS 'Role that scheduled the task';
COMMENT ON COLUMN delay_wheel_data.unique_key.queue IS 'Id of the queue into which the task was scheduled; 0 is the default queue';
COMMENT ON COLUMN delay_wheel_data.unique_key.key IS 'Key of the task';

/*
 * Lanes that prepared transactions touched.  Each writes its own rows, from which
 * the session that commits it, or rolls it back, informs the timer.
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
-- an index, since the table grows while an old snapshot exists
CREATE INDEX prepared_gid_idx ON delay_wheel_data.prepared (gid);
-- a publication of all tables publishes deletions, which need this
ALTER TABLE delay_wheel_data.prepared REPLICA IDENTITY FULL;
COMMENT ON TABLE delay_wheel_data.prepared IS
'Lowest due time that each prepared transaction touched in each lane. The timer deletes the rows.';
COMMENT ON COLUMN delay_wheel_data.prepared.gid IS 'Name of the prepared transaction; empty if an apply worker of logical replication has prepared it';
COMMENT ON COLUMN delay_wheel_data.prepared.owner IS 'Owner of the lane';
COMMENT ON COLUMN delay_wheel_data.prepared.queue IS 'Queue of the lane';
COMMENT ON COLUMN delay_wheel_data.prepared.priority IS 'Priority of the lane';
COMMENT ON COLUMN delay_wheel_data.prepared.due IS 'Lowest due time that the transaction touched in the lane';

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
-- including cancellations that name a dropped role, since they also cancel tasks of other roles
SELECT pg_catalog.pg_extension_config_dump('delay_wheel_data.cancellation', '');
SELECT pg_catalog.pg_extension_config_dump('delay_wheel_data.task_id_seq', '');

-- Without ANALYZE, the planner assumes that an empty table has rows.  Then plans of the views
-- would seem so expensive that JIT compiles them.
ANALYZE delay_wheel_data.cancellation, delay_wheel_data.queue;

GRANT EXECUTE ON FUNCTION delay_wheel_internal.origin()
	TO PUBLIC;
