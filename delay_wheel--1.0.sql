/* delay_wheel--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION delay_wheel" to load this file. \quit

/*
 * Functions go into the schema chosen at CREATE EXTENSION, so that triggers
 * may call them unqualified; tables and views into delay_wheel.
 */
CREATE SCHEMA delay_wheel;
COMMENT ON SCHEMA delay_wheel IS
'tables and views of delay_wheel: tasks to be run later, each once';
GRANT USAGE ON SCHEMA delay_wheel TO PUBLIC;

/*---- The catalog ----*/

CREATE FUNCTION delay_wheel.origin() RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_origin' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel.origin() IS
'identity of this database in this cluster, derived from the system identifier and the database''s OID; tasks stamped with another one are not run';

-- CACHE 1: the order of ids is the order of scheduling, which is relied on
CREATE SEQUENCE delay_wheel.task_id_seq AS bigint CACHE 1;
COMMENT ON SEQUENCE delay_wheel.task_id_seq IS 'ids of tasks, in the order of scheduling';

CREATE TABLE delay_wheel.task
(
	id bigint NOT NULL DEFAULT pg_catalog.nextval('delay_wheel.task_id_seq'),
	due timestamptz NOT NULL,
	origin bigint NOT NULL DEFAULT delay_wheel.origin(),
	owner regrole NOT NULL DEFAULT pg_catalog.to_regrole(pg_catalog.quote_ident(CURRENT_USER)),
	queue smallint NOT NULL DEFAULT 0,
	priority smallint NOT NULL DEFAULT 0,
	attempts smallint,
	max_attempts smallint,
	timeout integer,
	spared bigint,
	retry_delay interval,
	expires interval,
	sql text NOT NULL,
	args text[],
	arg_types regtype[],
	search_path text,
	key text,
	tag text,
	more jsonb,
	CONSTRAINT task_pkey PRIMARY KEY (id),
	CONSTRAINT task_priority_check CHECK (priority BETWEEN -1 AND 1),
	CONSTRAINT task_attempts_check CHECK (attempts >= 0),
	CONSTRAINT task_due_check CHECK (pg_catalog.isfinite(due)),
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
ALTER SEQUENCE delay_wheel.task_id_seq OWNED BY delay_wheel.task.id;
-- with the origin, so that tasks of other origins are in nobody's way
CREATE INDEX task_lane_due_idx ON delay_wheel.task (owner, origin, queue, priority, due, id);
-- not unique: a task that runs, and whose row is not gone yet, may have a successor
CREATE INDEX task_key_idx ON delay_wheel.task (owner, queue, key) WHERE key IS NOT NULL;

COMMENT ON TABLE delay_wheel.task IS
'one row for each pending task; the row is removed in the transaction that runs the task. Use the view delay_wheel.tasks to read it and the functions delay_schedule, delay_cancel, delay_reschedule to change it; these do not fire triggers, nor check constraints or foreign keys that are added to the table';
COMMENT ON COLUMN delay_wheel.task.id IS 'number of the task, as delay_schedule returned it';
COMMENT ON COLUMN delay_wheel.task.due IS 'the task runs at this time or after, never before';
COMMENT ON COLUMN delay_wheel.task.origin IS 'database that the task was scheduled in, see delay_wheel.origin(); in another one, it is not run until delay_arm() is called';
COMMENT ON COLUMN delay_wheel.task.owner IS 'role that scheduled the task and whose rights it has';
COMMENT ON COLUMN delay_wheel.task.queue IS 'queue, see delay_wheel.queue; 0 is the default queue';
COMMENT ON COLUMN delay_wheel.task.priority IS '-1, 0 or 1; higher first among due tasks';
COMMENT ON COLUMN delay_wheel.task.attempts IS 'how often the task was run and failed; null is never';
COMMENT ON COLUMN delay_wheel.task.max_attempts IS 'how often the task may be run in all; null is as often as its queue says, or else once';
COMMENT ON COLUMN delay_wheel.task.timeout IS 'statement timeout of each attempt in milliseconds, 0 is none; null is the queue''s, or else the shorter one of the role''s settings statement_timeout and delay_wheel.default_timeout';
COMMENT ON COLUMN delay_wheel.task.spared IS 'cancellations up to this number do not concern the task; null: those that are newer than its id do';
COMMENT ON COLUMN delay_wheel.task.retry_delay IS 'pause before the second attempt, doubled before each further one up to an hour, and lengthened by up to a quarter at random; a second at least after 100 attempts; null is the queue''s, or else 10 seconds; a day counts 24 hours, a month 30 days';
COMMENT ON COLUMN delay_wheel.task.expires IS 'the task is not run later than that after due, which of a later attempt is its own; null is at any time; a day counts 24 hours, a month 30 days';
COMMENT ON COLUMN delay_wheel.task.sql IS 'one or several SQL statements';
COMMENT ON COLUMN delay_wheel.task.args IS 'values of $1, $2 ... in text form; null if there are none';
COMMENT ON COLUMN delay_wheel.task.arg_types IS 'types of the args; ''-'' for an untyped literal, which takes its type from the statement';
COMMENT ON COLUMN delay_wheel.task.search_path IS 'search_path of the caller, kept where it was not the default of the owner';
COMMENT ON COLUMN delay_wheel.task.key IS 'at most one pending task for each owner, queue and key; of several rows, the one with the highest id';
COMMENT ON COLUMN delay_wheel.task.tag IS 'free grouping, for instance a sender or a campaign';
COMMENT ON COLUMN delay_wheel.task.more IS 'what few tasks have';

-- ids are not given again: failed tasks name theirs for as long as they are kept
CREATE SEQUENCE delay_wheel.queue_id_seq AS smallint CYCLE;
COMMENT ON SEQUENCE delay_wheel.queue_id_seq IS 'ids of queues';

CREATE TABLE delay_wheel.queue
(
	id smallint NOT NULL DEFAULT pg_catalog.nextval('delay_wheel.queue_id_seq'),
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
	more jsonb,
	CONSTRAINT queue_pkey PRIMARY KEY (id),
	CONSTRAINT queue_name_key UNIQUE (name),
	CONSTRAINT queue_id_check CHECK (id > 0),
	CONSTRAINT queue_priority_check CHECK (priority BETWEEN -1 AND 1),
	CONSTRAINT queue_max_attempts_check CHECK (max_attempts > 0),
	CONSTRAINT queue_max_running_check CHECK (max_running > 0),
	CONSTRAINT queue_rate_check CHECK (rate BETWEEN 1 AND 1000000),
	CONSTRAINT queue_timeout_check CHECK (timeout > 0),
	CONSTRAINT queue_name_check CHECK (name NOT IN ('', 'default') AND pg_catalog.octet_length(name) < 64),
	CONSTRAINT queue_retry_delay_check CHECK (retry_delay >= '0'),
	CONSTRAINT queue_spread_check CHECK (spread >= '0'),
	CONSTRAINT queue_history_check CHECK (history IN ('off', 'errors', 'all'))
)
USING heap;
ALTER SEQUENCE delay_wheel.queue_id_seq OWNED BY delay_wheel.queue.id;
-- none for queue 0: it would be in the way of a copy of the rows
COMMENT ON TABLE delay_wheel.queue IS
'queues, as delay_queue declared them; tasks are in queue 0, the default queue, which needs no row, unless said otherwise. Read it by the view delay_wheel.queues';
COMMENT ON COLUMN delay_wheel.queue.id IS 'number of the queue, in delay_wheel.task.queue; it is not given again when the queue is dropped';
COMMENT ON COLUMN delay_wheel.queue.priority IS 'of tasks that say none: -1, 0 or 1';
COMMENT ON COLUMN delay_wheel.queue.max_attempts IS 'of tasks that say nothing: how often one may be run in all; null is once';
COMMENT ON COLUMN delay_wheel.queue.paused IS 'no task of the queue is started, see delay_pause';
COMMENT ON COLUMN delay_wheel.queue.batch IS 'tasks of it may share a transaction with others';
COMMENT ON COLUMN delay_wheel.queue.owner IS 'role whose members may change, pause and drop the queue';
COMMENT ON COLUMN delay_wheel.queue.max_running IS 'how many of its tasks run at a time at most; null is no limit';
COMMENT ON COLUMN delay_wheel.queue.rate IS 'how many of its tasks are started in a second at most; null is no limit';
COMMENT ON COLUMN delay_wheel.queue.timeout IS 'of tasks that say none: statement timeout in milliseconds; null is the role''s setting';
COMMENT ON COLUMN delay_wheel.queue.name IS 'name of the queue, up to 63 bytes';
COMMENT ON COLUMN delay_wheel.queue.users IS 'roles that may schedule into the queue, beside the owner''s members; ''-'' stands for all roles';
COMMENT ON COLUMN delay_wheel.queue.retry_delay IS 'of tasks that say none: pause before the second attempt, doubled before each further one; zero is at once, but a second after 100 attempts; null is 10 seconds';
COMMENT ON COLUMN delay_wheel.queue.spread IS 'due times of its tasks are put off, each by another part of this; null is not at all';
COMMENT ON COLUMN delay_wheel.queue.history IS 'which ends of its tasks are recorded: off, errors or all; null is as the setting delay_wheel.history says';
COMMENT ON COLUMN delay_wheel.queue.more IS 'what few queues have';

-- owner 0, shown as -, stands for all roles
CREATE TABLE delay_wheel.pause
(
	owner regrole NOT NULL,
	since timestamptz NOT NULL DEFAULT pg_catalog.now(),
	CONSTRAINT pause_pkey PRIMARY KEY (owner)
)
USING heap;
COMMENT ON TABLE delay_wheel.pause IS
'whose tasks are paused by delay_pause(): no task of the role in owner is started; of none at all, for ''-'', by delay_pause_database()';
COMMENT ON COLUMN delay_wheel.pause.owner IS 'role whose tasks are paused; ''-'' stands for all roles';
COMMENT ON COLUMN delay_wheel.pause.since IS 'start of the transaction that paused them';

CREATE TABLE delay_wheel.cancellation
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
COMMENT ON TABLE delay_wheel.cancellation IS
'one row for each call of delay_cancel_all(), until all tasks that it has cancelled are removed; read it by the view delay_wheel.cancellations';
COMMENT ON COLUMN delay_wheel.cancellation.made_at IS 'start of the transaction that called delay_cancel_all()';
COMMENT ON COLUMN delay_wheel.cancellation.made_by IS 'role that called it';
COMMENT ON COLUMN delay_wheel.cancellation.id IS 'number, from the same sequence as those of tasks; tasks with lower ones that match are cancelled';
COMMENT ON COLUMN delay_wheel.cancellation.origin IS 'database that it was made in, see delay_wheel.origin(); in another one it concerns tasks of that origin only';
COMMENT ON COLUMN delay_wheel.cancellation.owners IS 'tasks of these roles, whose rights the caller had; null is of all';
COMMENT ON COLUMN delay_wheel.cancellation.queue IS 'tasks of this queue, see delay_wheel.queue; null is of all';
COMMENT ON COLUMN delay_wheel.cancellation.tag IS 'tasks with this tag; null is all';
COMMENT ON COLUMN delay_wheel.cancellation.due_from IS 'tasks that are due then or later; null is all';
COMMENT ON COLUMN delay_wheel.cancellation.due_until IS 'tasks that are due before; null is all';
COMMENT ON COLUMN delay_wheel.cancellation.removed IS 'rows that the sweeper has removed, brought up to date once a second';

CREATE TABLE delay_wheel.failed_task
(
	id bigint NOT NULL,
	failed_at timestamptz NOT NULL,
	due timestamptz NOT NULL,
	origin bigint NOT NULL,
	owner regrole NOT NULL,
	queue smallint NOT NULL,
	priority smallint NOT NULL,
	attempts smallint NOT NULL,
	crashes smallint,
	max_attempts smallint,
	timeout integer,
	retry_delay interval,
	expires interval,
	sqlstate text NOT NULL,
	message text NOT NULL,
	detail text,
	hint text,
	context text,
	sql text NOT NULL,
	args text[],
	arg_types regtype[],
	search_path text,
	key text,
	tag text,
	more jsonb,
	CONSTRAINT failed_task_pkey PRIMARY KEY (id, failed_at)
)
USING heap
WITH (autovacuum_vacuum_scale_factor = 0.05, vacuum_truncate = off);
CREATE INDEX failed_task_failed_at_idx ON delay_wheel.failed_task (failed_at, id);
COMMENT ON TABLE delay_wheel.failed_task IS
'tasks that were given up, with the error of the last attempt; read it by the view delay_wheel.failed. Rows stay until delay_wheel.failed_max_age or delay_wheel.failed_max_count is reached, delay_retry() or delay_redrive() puts the task back, or they are deleted';
COMMENT ON COLUMN delay_wheel.failed_task.id IS 'number of the task';
COMMENT ON COLUMN delay_wheel.failed_task.failed_at IS 'when it was given up';
COMMENT ON COLUMN delay_wheel.failed_task.due IS 'due time of its last attempt';
COMMENT ON COLUMN delay_wheel.failed_task.owner IS 'role that scheduled the task';
COMMENT ON COLUMN delay_wheel.failed_task.queue IS 'queue, see delay_wheel.queue; 0 is the default queue';
COMMENT ON COLUMN delay_wheel.failed_task.priority IS '-1, 0 or 1';
COMMENT ON COLUMN delay_wheel.failed_task.attempts IS 'how often the task was run and failed';
COMMENT ON COLUMN delay_wheel.failed_task.crashes IS 'how often the process that ran it crashed; null is never';
COMMENT ON COLUMN delay_wheel.failed_task.max_attempts IS 'as in delay_wheel.task';
COMMENT ON COLUMN delay_wheel.failed_task.timeout IS 'as in delay_wheel.task, in milliseconds';
COMMENT ON COLUMN delay_wheel.failed_task.retry_delay IS 'as in delay_wheel.task';
COMMENT ON COLUMN delay_wheel.failed_task.expires IS 'as in delay_wheel.task';
COMMENT ON COLUMN delay_wheel.failed_task.sqlstate IS 'of the error of the last attempt';
COMMENT ON COLUMN delay_wheel.failed_task.message IS 'of that error, its first 16 kB';
COMMENT ON COLUMN delay_wheel.failed_task.detail IS 'of that error, or null';
COMMENT ON COLUMN delay_wheel.failed_task.hint IS 'of that error, or null';
COMMENT ON COLUMN delay_wheel.failed_task.context IS 'of that error, or null';
COMMENT ON COLUMN delay_wheel.failed_task.sql IS 'as in delay_wheel.task';
COMMENT ON COLUMN delay_wheel.failed_task.args IS 'as in delay_wheel.task';
COMMENT ON COLUMN delay_wheel.failed_task.arg_types IS 'as in delay_wheel.task';
COMMENT ON COLUMN delay_wheel.failed_task.search_path IS 'as in delay_wheel.task';
COMMENT ON COLUMN delay_wheel.failed_task.key IS 'as in delay_wheel.task';
COMMENT ON COLUMN delay_wheel.failed_task.tag IS 'as in delay_wheel.task';
COMMENT ON COLUMN delay_wheel.failed_task.more IS 'what few tasks have';
COMMENT ON COLUMN delay_wheel.failed_task.origin IS 'database that the task was scheduled in; for information only';

CREATE TABLE delay_wheel.recurring_task
(
	id bigint NOT NULL DEFAULT pg_catalog.nextval('delay_wheel.task_id_seq'),
	task bigint,
	next_due timestamptz,
	origin bigint NOT NULL DEFAULT delay_wheel.origin(),
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
	time_zone text NOT NULL,
	catch_up text NOT NULL DEFAULT 'skip',
	last_outcome text,
	last_error text,
	sql text NOT NULL,
	args text[],
	arg_types regtype[],
	search_path text,
	tag text,
	more jsonb,
	CONSTRAINT recurring_task_pkey PRIMARY KEY (id),
	CONSTRAINT recurring_task_name_key UNIQUE (owner, name),
	CONSTRAINT recurring_task_next_due_check CHECK (pg_catalog.isfinite(next_due)),
	CONSTRAINT recurring_task_starts_check CHECK (pg_catalog.isfinite(starts)),
	CONSTRAINT recurring_task_every_check CHECK ((every IS NULL) <> (schedule IS NULL)),
	CONSTRAINT recurring_task_priority_check CHECK (priority BETWEEN -1 AND 1),
	CONSTRAINT recurring_task_catch_up_check CHECK (catch_up IN ('skip', 'all')),
	CONSTRAINT recurring_task_args_check CHECK (pg_catalog.cardinality(args) IS NOT DISTINCT FROM pg_catalog.cardinality(arg_types))
)
USING heap
-- each run updates its row, which finds room on the page
WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.1, vacuum_truncate = off);
COMMENT ON TABLE delay_wheel.recurring_task IS
'one row for each recurring task, as delay_every or delay_cron declared it; the next run is an ordinary task in delay_wheel.task. Read it by the view delay_wheel.recurring';
COMMENT ON COLUMN delay_wheel.recurring_task.queue IS 'of its runs, as in delay_wheel.task';
COMMENT ON COLUMN delay_wheel.recurring_task.priority IS 'of its runs, as in delay_wheel.task';
COMMENT ON COLUMN delay_wheel.recurring_task.max_attempts IS 'of its runs, as in delay_wheel.task';
COMMENT ON COLUMN delay_wheel.recurring_task.retry_delay IS 'of its runs, as in delay_wheel.task';
COMMENT ON COLUMN delay_wheel.recurring_task.sql IS 'of its runs, as in delay_wheel.task';
COMMENT ON COLUMN delay_wheel.recurring_task.args IS 'of its runs, as in delay_wheel.task';
COMMENT ON COLUMN delay_wheel.recurring_task.arg_types IS 'of its runs, as in delay_wheel.task';
COMMENT ON COLUMN delay_wheel.recurring_task.search_path IS 'of its runs, as in delay_wheel.task';
COMMENT ON COLUMN delay_wheel.recurring_task.tag IS 'of its runs, as in delay_wheel.task';
COMMENT ON COLUMN delay_wheel.recurring_task.more IS 'of its runs: what few tasks have';
COMMENT ON COLUMN delay_wheel.recurring_task.id IS 'number of the recurring task, from the same sequence as those of tasks';
COMMENT ON COLUMN delay_wheel.recurring_task.task IS 'id of the task that is the run which is pending or going on; null if there is none';
COMMENT ON COLUMN delay_wheel.recurring_task.next_due IS 'ideal time of that run; null if there are no runs any more';
COMMENT ON COLUMN delay_wheel.recurring_task.origin IS 'database that it was declared in, see delay_wheel.origin(); in another one, it has no runs until delay_arm() is called';
COMMENT ON COLUMN delay_wheel.recurring_task.starts IS 'first ideal time, from which the others are counted; with a cron schedule, there is none before';
COMMENT ON COLUMN delay_wheel.recurring_task.until IS 'no ideal time is later; null is no limit';
COMMENT ON COLUMN delay_wheel.recurring_task.last_due IS 'ideal time of the last run that has ended';
COMMENT ON COLUMN delay_wheel.recurring_task.last_started IS 'when its last attempt was started; null if it was not';
COMMENT ON COLUMN delay_wheel.recurring_task.last_ended IS 'when it ended';
COMMENT ON COLUMN delay_wheel.recurring_task.runs IS 'runs that have ended, with success or not';
COMMENT ON COLUMN delay_wheel.recurring_task.failures IS 'those that failed';
COMMENT ON COLUMN delay_wheel.recurring_task.skipped IS 'runs that were cancelled, or not begun since they were too late';
COMMENT ON COLUMN delay_wheel.recurring_task.max_runs IS 'no further run after so many; null is no limit';
COMMENT ON COLUMN delay_wheel.recurring_task.owner IS 'role that declared it, whose rights its runs have';
COMMENT ON COLUMN delay_wheel.recurring_task.timeout IS 'of its runs, as in delay_wheel.task, in milliseconds';
COMMENT ON COLUMN delay_wheel.recurring_task.paused IS 'it has no runs, see delay_pause_recurring';
COMMENT ON COLUMN delay_wheel.recurring_task.every IS 'interval between ideal times; null if it has a cron schedule';
COMMENT ON COLUMN delay_wheel.recurring_task.name IS 'name, unique for its owner';
COMMENT ON COLUMN delay_wheel.recurring_task.schedule IS 'cron schedule; null if it has an interval';
COMMENT ON COLUMN delay_wheel.recurring_task.time_zone IS 'time zone that days and months, and the cron schedule, are counted in';
COMMENT ON COLUMN delay_wheel.recurring_task.catch_up IS 'what to do with ideal times that have passed: skip or all';
COMMENT ON COLUMN delay_wheel.recurring_task.last_outcome IS 'how the last run ended: done, failed, skipped or cancelled';
COMMENT ON COLUMN delay_wheel.recurring_task.last_error IS 'its error, or why there is no further run; null if there was none';

/*
 * Three tables in turn, so that what is old goes by TRUNCATE.  Nothing in them
 * is ever updated or deleted, so there is nothing to vacuum.
 */
CREATE TABLE delay_wheel.history_0
(
	task bigint NOT NULL,
	due timestamptz NOT NULL,
	started timestamptz,
	ended timestamptz NOT NULL,
	rows bigint,
	recurring bigint,
	owner regrole NOT NULL,
	queue smallint NOT NULL,
	attempt smallint,
	outcome text NOT NULL,
	command_tag text,
	sqlstate text,
	message text,
	sql text NOT NULL,
	key text,
	tag text,
	-- the view has the differences, which may be infinite, or too large
	CONSTRAINT history_times_check CHECK (pg_catalog.isfinite(due) AND pg_catalog.isfinite(started) AND pg_catalog.isfinite(ended)
		AND pg_catalog.isfinite(started - due) AND pg_catalog.isfinite(ended - started))
)
USING heap
WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);
-- not moved out of line
ALTER TABLE delay_wheel.history_0
	ALTER COLUMN message SET STORAGE MAIN,
	ALTER COLUMN sql SET STORAGE MAIN,
	ALTER COLUMN key SET STORAGE MAIN,
	ALTER COLUMN tag SET STORAGE MAIN;
COMMENT ON TABLE delay_wheel.history_0 IS
'how tasks ended, one of three tables that are written in turn: the oldest one is emptied as a whole, by size and age, see the settings delay_wheel.history_max_size and delay_wheel.history_max_age. Read it by the view delay_wheel.history. Not in dumps';
COMMENT ON COLUMN delay_wheel.history_0.task IS 'number of the task';
COMMENT ON COLUMN delay_wheel.history_0.due IS 'due time of this attempt';
COMMENT ON COLUMN delay_wheel.history_0.started IS 'when it began; null if it was not run';
COMMENT ON COLUMN delay_wheel.history_0.ended IS 'when its SQL had ended, or it was given up';
COMMENT ON COLUMN delay_wheel.history_0.rows IS 'that the last statement of its SQL wrote or returned; null unless done';
COMMENT ON COLUMN delay_wheel.history_0.recurring IS 'number of the recurring task that it was a run of, or null';
COMMENT ON COLUMN delay_wheel.history_0.owner IS 'role that scheduled the task';
COMMENT ON COLUMN delay_wheel.history_0.queue IS 'queue, see delay_wheel.queue; 0 is the default queue';
COMMENT ON COLUMN delay_wheel.history_0.attempt IS '1 for the first one; null if it was not run';
COMMENT ON COLUMN delay_wheel.history_0.outcome IS 'done, failed, retried or skipped';
COMMENT ON COLUMN delay_wheel.history_0.command_tag IS 'of the last statement of its SQL; null unless done';
COMMENT ON COLUMN delay_wheel.history_0.sqlstate IS 'of the error, if failed or retried';
COMMENT ON COLUMN delay_wheel.history_0.message IS 'of the error, its first 1000 bytes';
COMMENT ON COLUMN delay_wheel.history_0.sql IS 'its first 200 bytes, without the values of its parameters';
COMMENT ON COLUMN delay_wheel.history_0.key IS 'its key, or null';
COMMENT ON COLUMN delay_wheel.history_0.tag IS 'its tag, or null';
CREATE TABLE delay_wheel.history_1 (LIKE delay_wheel.history_0 INCLUDING STORAGE INCLUDING CONSTRAINTS INCLUDING COMMENTS)
USING heap
WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);
COMMENT ON TABLE delay_wheel.history_1 IS 'see delay_wheel.history_0';
CREATE TABLE delay_wheel.history_2 (LIKE delay_wheel.history_0 INCLUDING STORAGE INCLUDING CONSTRAINTS INCLUDING COMMENTS)
USING heap
WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);
COMMENT ON TABLE delay_wheel.history_2 IS 'see delay_wheel.history_0';
CREATE SEQUENCE delay_wheel.history_seq AS smallint MINVALUE 0 MAXVALUE 2 START 0 CACHE 1 CYCLE;
COMMENT ON SEQUENCE delay_wheel.history_seq IS 'number of the table of delay_wheel.history that is written';

/*
 * What a prepared transaction touched, written by itself, so that whoever
 * commits it or rolls it back can tell the timer.
 */
CREATE TABLE delay_wheel.prepared
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
CREATE INDEX prepared_gid_idx ON delay_wheel.prepared (gid);
-- its rows are deleted, too, which a publication of all tables publishes
ALTER TABLE delay_wheel.prepared REPLICA IDENTITY FULL;
COMMENT ON TABLE delay_wheel.prepared IS
'for each prepared transaction and lane, the lowest due time that it touched; emptied by the timer';
COMMENT ON COLUMN delay_wheel.prepared.gid IS 'of the prepared transaction';
COMMENT ON COLUMN delay_wheel.prepared.owner IS 'of the lane';
COMMENT ON COLUMN delay_wheel.prepared.queue IS 'of the lane';
COMMENT ON COLUMN delay_wheel.prepared.priority IS 'of the lane';
COMMENT ON COLUMN delay_wheel.prepared.due IS 'the lowest due time that it touched there';

-- see also the end of this script
REVOKE ALL ON delay_wheel.task, delay_wheel.queue, delay_wheel.pause, delay_wheel.cancellation, delay_wheel.failed_task, delay_wheel.recurring_task, delay_wheel.prepared,
	delay_wheel.history_0, delay_wheel.history_1, delay_wheel.history_2 FROM PUBLIC;
REVOKE ALL ON SEQUENCE delay_wheel.task_id_seq, delay_wheel.queue_id_seq, delay_wheel.history_seq FROM PUBLIC;

SELECT pg_catalog.pg_extension_config_dump('delay_wheel.task',
	'WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles)');
SELECT pg_catalog.pg_extension_config_dump('delay_wheel.failed_task',
	'WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles)');
SELECT pg_catalog.pg_extension_config_dump('delay_wheel.recurring_task',
	'WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles)');
SELECT pg_catalog.pg_extension_config_dump('delay_wheel.queue',
	'WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles)');
SELECT pg_catalog.pg_extension_config_dump('delay_wheel.queue_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('delay_wheel.pause',
	'WHERE owner::oid = 0::oid OR owner IN (SELECT oid FROM pg_catalog.pg_roles)');
-- also one that names a role that was dropped meanwhile: left out, the tasks of
-- the others would come back
SELECT pg_catalog.pg_extension_config_dump('delay_wheel.cancellation', '');
SELECT pg_catalog.pg_extension_config_dump('delay_wheel.task_id_seq', '');

-- rows written by plain SQL reach the timer through this trigger; also in
-- a restore, whence ALWAYS
CREATE FUNCTION delay_wheel.task_changed() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_task_changed' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel.task_changed() IS
'tells the timer of rows that plain SQL wrote into delay_wheel.task';
REVOKE EXECUTE ON FUNCTION delay_wheel.task_changed() FROM PUBLIC;
CREATE TRIGGER task_changed AFTER INSERT OR UPDATE ON delay_wheel.task
	FOR EACH STATEMENT EXECUTE FUNCTION delay_wheel.task_changed();
ALTER TABLE delay_wheel.task ENABLE ALWAYS TRIGGER task_changed;

-- who may write to any table, as pg_write_all_data, must not run SQL as others
CREATE FUNCTION delay_wheel.task_guard() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_task_guard' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel.task_guard() IS
'refuses rows that plain SQL writes for a role whose rights the current user does not have';
REVOKE EXECUTE ON FUNCTION delay_wheel.task_guard() FROM PUBLIC;
CREATE TRIGGER task_guard BEFORE INSERT OR UPDATE ON delay_wheel.task
	FOR EACH ROW EXECUTE FUNCTION delay_wheel.task_guard();
ALTER TABLE delay_wheel.task ENABLE ALWAYS TRIGGER task_guard;
CREATE TRIGGER task_guard BEFORE INSERT OR UPDATE ON delay_wheel.failed_task
	FOR EACH ROW EXECUTE FUNCTION delay_wheel.task_guard();
ALTER TABLE delay_wheel.failed_task ENABLE ALWAYS TRIGGER task_guard;
CREATE TRIGGER task_guard BEFORE INSERT OR UPDATE ON delay_wheel.recurring_task
	FOR EACH ROW EXECUTE FUNCTION delay_wheel.task_guard();
ALTER TABLE delay_wheel.recurring_task ENABLE ALWAYS TRIGGER task_guard;

-- queues and pauses that plain SQL changes reach timer and executors, too
CREATE FUNCTION delay_wheel.queue_changed() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_queue_changed' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel.queue_changed() IS
'tells timer and executors that plain SQL changed delay_wheel.queue or delay_wheel.pause';
REVOKE EXECUTE ON FUNCTION delay_wheel.queue_changed() FROM PUBLIC;
CREATE TRIGGER queue_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON delay_wheel.queue
	FOR EACH STATEMENT EXECUTE FUNCTION delay_wheel.queue_changed();
ALTER TABLE delay_wheel.queue ENABLE ALWAYS TRIGGER queue_changed;
CREATE TRIGGER queue_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON delay_wheel.pause
	FOR EACH STATEMENT EXECUTE FUNCTION delay_wheel.queue_changed();
ALTER TABLE delay_wheel.pause ENABLE ALWAYS TRIGGER queue_changed;

-- who may write to any table must not decide who may use a queue, and what is paused
CREATE FUNCTION delay_wheel.queue_guard() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_queue_guard' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel.queue_guard() IS
'refuses plain SQL that changes delay_wheel.queue or delay_wheel.pause, but by superusers and the owner of the table';
REVOKE EXECUTE ON FUNCTION delay_wheel.queue_guard() FROM PUBLIC;
CREATE TRIGGER queue_guard BEFORE INSERT OR UPDATE OR DELETE ON delay_wheel.queue
	FOR EACH ROW EXECUTE FUNCTION delay_wheel.queue_guard();
ALTER TABLE delay_wheel.queue ENABLE ALWAYS TRIGGER queue_guard;
CREATE TRIGGER queue_guard BEFORE INSERT OR UPDATE OR DELETE ON delay_wheel.pause
	FOR EACH ROW EXECUTE FUNCTION delay_wheel.queue_guard();
ALTER TABLE delay_wheel.pause ENABLE ALWAYS TRIGGER queue_guard;

-- nor cancel what others have scheduled, or undo that; also tells of marks that
-- plain SQL, a restore or replication wrote
CREATE FUNCTION delay_wheel.cancellation_guard() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_cancellation_guard' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel.cancellation_guard() IS
'refuses cancellations that plain SQL writes for a role whose rights the current user does not have; tells timer and executors of the others';
REVOKE EXECUTE ON FUNCTION delay_wheel.cancellation_guard() FROM PUBLIC;
CREATE TRIGGER cancellation_guard BEFORE INSERT OR UPDATE OR DELETE ON delay_wheel.cancellation
	FOR EACH ROW EXECUTE FUNCTION delay_wheel.cancellation_guard();
ALTER TABLE delay_wheel.cancellation ENABLE ALWAYS TRIGGER cancellation_guard;

-- what happened is not for others to say: neither for those who may write to
-- any table, nor for a publisher
CREATE FUNCTION delay_wheel.history_guard() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_history_guard' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel.history_guard() IS
'refuses plain SQL that changes rows of delay_wheel.history, but by superusers and the owner of the table; leaves out what is replicated: the history of a publisher is its own';
REVOKE EXECUTE ON FUNCTION delay_wheel.history_guard() FROM PUBLIC;
CREATE TRIGGER history_guard BEFORE INSERT OR UPDATE OR DELETE ON delay_wheel.history_0
	FOR EACH ROW EXECUTE FUNCTION delay_wheel.history_guard();
ALTER TABLE delay_wheel.history_0 ENABLE ALWAYS TRIGGER history_guard;
CREATE TRIGGER history_guard BEFORE INSERT OR UPDATE OR DELETE ON delay_wheel.history_1
	FOR EACH ROW EXECUTE FUNCTION delay_wheel.history_guard();
ALTER TABLE delay_wheel.history_1 ENABLE ALWAYS TRIGGER history_guard;
CREATE TRIGGER history_guard BEFORE INSERT OR UPDATE OR DELETE ON delay_wheel.history_2
	FOR EACH ROW EXECUTE FUNCTION delay_wheel.history_guard();
ALTER TABLE delay_wheel.history_2 ENABLE ALWAYS TRIGGER history_guard;

/*---- Scheduling ----*/

CREATE FUNCTION delay_schedule(delay interval, sql_text text) RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_schedule' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule(interval, text) IS
'schedules SQL to be run once, delay after the start of this transaction and as the current user, if this transaction commits; returns the id of the task. A delay of zero or less runs it at once after the commit. Errors: null arguments, SQLSTATE 22004; an infinite delay, 22008; syntax errors, 42601, unless delay_wheel.check_sql is off; an empty text, 22023; transaction control, LISTEN and COPY with a client, 0A000; statements that cannot run inside a transaction, 25001, for which see delay_schedule_task, mode; more pending tasks than delay_wheel.max_pending allows, 53400; a read-only transaction or a standby, 25006';

CREATE FUNCTION delay_schedule(delay interval, sql_text text, VARIADIC args "any") RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_schedule' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule(interval, text, "any") IS
'like delay_schedule(interval, text), with values for $1, $2 ... of the SQL, bound with their types; an untyped literal takes its type from the statement. A parameter without a value, SQLSTATE 42P02, and a value without a parameter, 22023, are errors';

CREATE FUNCTION delay_schedule_at(due timestamptz, sql_text text) RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_schedule_at' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule_at(timestamptz, text) IS
'like delay_schedule(interval, text), at a point in time; one that is past runs at once after the commit, infinity is an error, SQLSTATE 22008';

CREATE FUNCTION delay_schedule_at(due timestamptz, sql_text text, VARIADIC args "any") RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_schedule_at' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule_at(timestamptz, text, "any") IS
'like delay_schedule(interval, text, "any"), at a point in time';

CREATE FUNCTION delay_schedule_task(
	sql_text text,
	args text[] DEFAULT NULL,
	arg_types regtype[] DEFAULT NULL,
	delay interval DEFAULT NULL,
	due timestamptz DEFAULT NULL,
	key text DEFAULT NULL,
	if_exists text DEFAULT 'keep',
	queue text DEFAULT NULL,
	tag text DEFAULT NULL,
	priority integer DEFAULT NULL,
	max_attempts integer DEFAULT NULL,
	retry_delay interval DEFAULT NULL,
	timeout interval DEFAULT NULL,
	expires interval DEFAULT NULL,
	skip_after interval DEFAULT NULL,
	notify text DEFAULT NULL,
	on_success text DEFAULT NULL,
	on_failure text DEFAULT NULL,
	mode text DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_schedule_task' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule_task(text, text[], regtype[], interval, timestamptz, text, text, text, text, integer, integer, interval, interval, interval, interval, text, text, text, text) IS
'delay_schedule with all options, to be called with names: delay_schedule_task(''SELECT f($1)'', args => ''{1}'', delay => ''1 hour'', key => ''f 1''). Null is always: not given.
args: values of $1, $2 ... as text, read as literals are in this session.
arg_types: their types, as many, ''-'' or null for one that takes its type from the statement, as all do without arg_types.
delay: counted from the start of this transaction; zero or less is at once after the commit.
due: point in time, instead of delay; with neither, the task runs at once after the commit; both are an error.
key, 1 to 1000 bytes: at most one pending task for each owner, queue and key.
if_exists: what to do if there is one: keep (the default) returns its id and leaves it as it is, with the promise that it begins after this transaction, and sees what it did; replace deletes it and makes a new one, with a new id; error raises unique_violation, SQLSTATE 23505. A task that an executor runs just now is not pending: there is a new one then, and it is not waited for. Other transactions that have scheduled, moved or cancelled it, and are open, are waited for as UPDATE does.
queue: name of a declared queue, see delay_queue(); null is the default queue.
tag, 1 to 1000 bytes: for grouping, as for delay_cancel_all().
priority: -1, 0 or 1, higher first; null is the queue''s, or else 0.
max_attempts, 1 to 32767: how often it is run if it fails; null is the queue''s, or else 1.
retry_delay, up to 365 days: pause before the second attempt, doubled before each further one up to an hour; greater than zero; null is the queue''s, or else 10 seconds.
timeout, up to 2147483647 ms: after which each attempt is cancelled, in whole ms, greater than zero; null is the queue''s, or else the shorter one of the role''s settings statement_timeout and delay_wheel.default_timeout.
expires: it is not run later than that after due, but fails with SQLSTATE DW002; greater than zero; null is at any time.
skip_after: it is not run later than that after due, which of a later attempt is its own, and leaves no failed task: its row goes, and it is counted as skipped; greater than zero, null is not at all. The shorter one of expires and skip_after decides, expires if they are equal.
notify, 1 to 63 bytes: a channel, as given to pg_notify(), that is notified of its end, in the transaction that ends it: a JSON object with id, outcome (done, failed: given up, skipped, cancelled), sqlstate if it failed, key and tag if it has them and they are not too long.
on_success, on_failure: SQL that is scheduled as a task of its own, due at once, in the transaction in which this one is done, or given up; with its owner, queue, priority, tag and search_path. on_success may use $1, its id (bigint), and $2, the number of rows of its last statement (bigint); on_failure $1, its id, $2, SQLSTATE, and $3, the message of its last error (text). Neither is run for tasks that are skipped or cancelled.
mode, for a statement that cannot run inside a transaction (VACUUM, CREATE INDEX CONCURRENTLY, CALL of a procedure that commits ...): at_most_once or at_least_once; it is run by itself then, as a client would run it, and only this one statement is allowed. at_most_once: it is not begun a second time if its end is not known, after a crash of the server or the end of its executor, but stands in delay_wheel.failed with SQLSTATE DW003; at_least_once: it is run again then. Both are run again after an error if max_attempts allows; what the statement had committed before the error stays. Not for tasks of roles without LOGIN before PostgreSQL 17: these fail with SQLSTATE 0A000. Null, the default, for all that can run in a transaction: only these are run exactly once.
Other errors as in delay_schedule. The id of a task with the key that is pending already is returned with keep, else that of the new one';

CREATE FUNCTION delay_schedule_trigger() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_schedule_trigger' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule_trigger() IS
'for CREATE TRIGGER ... AFTER INSERT OR UPDATE ... FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger(delay, sql [, column ...] [, option ...]): each row schedules a task of the current user, who must be allowed to call delay_schedule(interval, text). Names of columns are written as in the catalog, without quotes.
delay: the name of a column of type interval (counted from the start of the transaction) or timestamptz (point in time), or else an interval. Null in the column: no task, and with if_exists=replace the pending one of the key is cancelled. sql: as in delay_schedule. column ...: for $1, $2 ..., bound with their types.
Options: key=, queue=, tag=, each with the name of a column, of any type, or else text; null in the column: none. Keys are those of the current user and the queue: two triggers with the same keys replace each other''s tasks. if_exists= what to do if a task of the key is pending: replace (the default), keep, error; see delay_schedule_task. All else is as the queue says.
Wrong arguments and wrong kinds of triggers are errors when the trigger first fires, others as in delay_schedule';

CREATE FUNCTION delay_cancel_key(key text, queue text DEFAULT NULL) RETURNS text
AS 'MODULE_PATHNAME', 'dw_cancel_key' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_cancel_key(text, text) IS
'cancels the pending task of the current user that has this key in this queue (null: the default queue), if this transaction commits: cancelled; running, if an executor runs it just now (it is not stopped) and none is pending; gone, if there is none. Null if the key is null. Waits for another session''s open change of the task as UPDATE does; does not see tasks that others have not committed. A queue that does not exist is an error, SQLSTATE 42704';

CREATE FUNCTION delay_cancel(id bigint, stop_running boolean DEFAULT false) RETURNS text
AS 'MODULE_PATHNAME', 'dw_cancel' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_cancel(bigint, boolean) IS
'cancels a pending task, if this transaction commits: cancelled; running, if an executor runs it just now (it is not stopped, unless stop_running is true); gone, if there is no such task (any more). Waits for another session''s open change of the task as UPDATE does. With stop_running, a task that runs is stopped at once, whatever becomes of this transaction: stopping; it fails with SQLSTATE 57014 and a message that says who stopped it, and is not tried again. A task that is just committing may still be done, and one that is not interruptible (as a function in C that does not look for cancels) goes on until it is; delay_wait(id) tells. Null if an argument is null. Only for members of the owner role and superusers, for others an error, SQLSTATE 42501';

CREATE FUNCTION delay_wait(id bigint, timeout interval DEFAULT NULL) RETURNS text
AS 'MODULE_PATHNAME', 'dw_wait' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_wait(bigint, interval) IS
'waits until a task has ended, at most for timeout (null: without limit; zero or less: not at all; a day counts 24 hours, a month 30 days): done, failed, skipped, cancelled, or timeout if it has not. A failed attempt that is followed by another, and a task that is moved, are waited on. A task that had ended before the call is failed if it stands in delay_wheel.failed, else gone: done, skipped, cancelled, or never there as far as this session can see. An error, SQLSTATE 55000, if this very transaction has written or locked the task, or is the task. It does not poll; only a row of delay_wheel.task that was deleted by plain SQL is noticed up to a minute late, as cancelled. The waiting transaction stays open, with its locks and its snapshot: a task that needs one of the locks is not waited for successfully. If somebody waits for one of its locks on the tables of delay_wheel (VACUUM FULL, say), so that no task can begin, it is an error, SQLSTATE 40P01. Only for members of the owner role and superusers: for others an error while the task is pending, and gone afterwards';

CREATE FUNCTION delay_cancel_all(queue text DEFAULT NULL, tag text DEFAULT NULL, due_from timestamptz DEFAULT NULL, due_until timestamptz DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_cancel_all' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_cancel_all(text, text, timestamptz, timestamptz) IS
'cancels all pending tasks of this queue, with this tag, that are due from due_from (inclusive) to due_until (exclusive), if this transaction commits: at once, however many they are, also those that open and prepared transactions have scheduled before. Null does not restrict; one of the four must be given (all tasks: due_from => ''-infinity''). Concerns the tasks of all roles whose rights the caller has, of all roles for a superuser. Returns the number of the cancellation in the view delay_wheel.cancellations: it shows which of the tasks are running, which are not stopped, and how far the removal of their rows is, which goes on in the background. Tasks that are scheduled, or moved to such a time, afterwards are not concerned. No restriction at all, SQLSTATE 22004, an unknown queue, 42704, a tag of more than 1000 bytes, and due times in the wrong order, 22023, are errors';

CREATE FUNCTION delay_reschedule(id bigint, delay interval) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_reschedule' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_reschedule(bigint, interval) IS
'moves a pending task to delay after the start of this transaction, if this transaction commits; the id stays. False if the task is running or gone. Waits and rights as in delay_cancel. Null arguments, SQLSTATE 22004, and an infinite delay, 22008, are errors';

CREATE FUNCTION delay_reschedule_at(id bigint, due timestamptz) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_reschedule_at' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_reschedule_at(bigint, timestamptz) IS
'like delay_reschedule(bigint, interval), to a point in time';

CREATE FUNCTION delay_run(id bigint) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_run' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_run(bigint) IS
'runs a pending task now, as its owner and in the caller''s transaction, whatever its due time, expires, skip_after, attempts, and pauses of its queue; errors are the caller''s. If the caller''s transaction is rolled back the task stays as it was. False if an executor runs the task just now, or it is gone. Waits for another session''s open change of the task as UPDATE does. The task''s timeout does not apply, the caller''s statement_timeout does; settings that the task makes are undone. Only for members of the owner role and superusers; in a session that is not the owner''s own (session_user, current_user) the SQL runs in a security-restricted operation: temporary tables, cursors WITH HOLD, deferred triggers, prepared statements and delay_ functions are refused, cursors of the caller are out of its reach, and it is an error if the caller has large objects open; what is left within reach of the task are session-level advisory locks, and the texts of the query and of prepared statements. Errors, beside those of the SQL: a task that is not armed, or has a mode, SQLSTATE 55000; that of a role whose rights one does not have, 42501; a null id, 22004';

CREATE FUNCTION delay_run_due(until timestamptz DEFAULT NULL) RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_run_due' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_run_due(timestamptz) IS
'for tests of an application: runs all pending tasks of the current user that are due until then (null: now(), the start of this transaction), in the order of their due times, as delay_run() does: in the caller''s transaction, whatever pauses, limits, timeout, expires, skip_after and attempts say, errors being the caller''s; returns how many. Those that this transaction has scheduled are among them, and those that the tasks schedule: delays count from the due time of the task that is run, if it is later than now(), which stays as it is; so with recurring tasks and until = infinity it has no end. Tasks that executors run just now, that are not armed, and those that do not run in a transaction (with a notice of their number) are left; others that open transactions change are waited for as UPDATE does. Tasks that were committed may be run by executors before: delay_pause(), committed, keeps them from that. Tasks of one due time that schedule others for the same time, more than 1000 times one after the other, are an error, SQLSTATE 54000';

CREATE FUNCTION delay_retry(id bigint) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_retry' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_retry(bigint) IS
'puts a failed task back, to be run at once with all its attempts if this transaction commits; the id stays, and the row in delay_wheel.failed goes. False if there is no failed task of that id (any more); waits for another session that does the same. An error if the task, or another one of the same key, is pending (or a newer one runs), SQLSTATE 23505, if it is running, 55006, or if its queue or its owner does not exist any more, 42704. Only for members of the owner role and superusers; counts for delay_wheel.max_pending. Cancellations that are committed do not concern it, those of transactions that are still open do. A null id is an error, SQLSTATE 22004';

CREATE FUNCTION delay_redrive(queue text DEFAULT NULL, tag text DEFAULT NULL, sqlstate text DEFAULT NULL,
	failed_from timestamptz DEFAULT NULL, failed_until timestamptz DEFAULT NULL, max_tasks integer DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_redrive' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_redrive(text, text, text, timestamptz, timestamptz, integer) IS
'puts failed tasks back as delay_retry() does, those that failed first before others, at most max_tasks; returns how many. Those whose rights the caller has, all of them for a superuser, that are in this queue, have this tag and this SQLSTATE (five characters), and failed in [failed_from, failed_until); null stands for any, so without arguments all of one''s own. Tasks that delay_retry() would refuse are left, with a notice of their number. A queue that does not exist, SQLSTATE 42704, a malformed sqlstate and a negative max_tasks, 22023, are errors';

CREATE FUNCTION delay_arm() RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_arm' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_arm() FROM PUBLIC;
COMMENT ON FUNCTION delay_arm() IS
'makes tasks that came with a copy of another database (a restored dump, CREATE DATABASE ... TEMPLATE, logical replication, pg_upgrade) this database''s own, if this transaction commits: how many. Until then they are not run. Those that are overdue run at once, in the order of their due times, so look before: SELECT * FROM delay_wheel.tasks WHERE NOT armed; delay_cancel and delay_reschedule work on them. Arms the tasks of all roles whose rights the caller has, of all roles for a superuser; tasks of roles that do not exist are left, with a warning. Only for superusers and the owner of the function, unless granted';

/*---- Recurring tasks ----*/

CREATE FUNCTION delay_every(
	name text,
	every interval,
	sql_text text,
	args text[] DEFAULT NULL,
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
	mode text DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_every' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_every(text, interval, text, text[], regtype[], timestamptz, text, timestamptz, bigint, text, text, text, integer, integer, interval, interval, interval, text, text, text, text) IS
'declares a recurring task of the current user, if this transaction commits, or changes the one of this name; returns the id of the task that is its next run (while a run is going on, of that one; null if there is none). Each run is an ordinary task, which schedules the next one in its own transaction, also if it fails; so no two of them ever overlap. Null is always: not given.
name, 1 to 1000 bytes: unique for its owner.
every, 100 ms at least, without negative parts: ideal times are starts plus 0, 1, 2 ... times every, computed from starts, never from an actual start; months and days are counted in time_zone (null: that of this session), as timestamptz + interval does: 31 January plus n months is the last day of shorter months; 24 hours are elapsed time.
starts: the first one; null is every after the start of this transaction; it may be past.
time_zone: a name as in pg_timezone_names; null is that of this session.
until: no run has a later ideal time; null is no limit.
max_runs: no run after so many; null is no limit. A recurring task without further runs stays listed in delay_wheel.recurring until delay_unschedule.
catch_up: what to do with ideal times that have passed, since the server was down, a run took longer than every, or its queue was paused: skip (the default) makes the run that was waiting at once, then goes on with the first ideal time that is not past; all makes all of them, in order, one after the other. With a starts that is past, skip begins with the first ideal time from now on, all with starts.
args, arg_types, queue, tag, priority, max_attempts, retry_delay, timeout, notify, on_success, on_failure, mode: of each run, as in delay_schedule_task.
skip_after: of each run, too: a run that is later than that is left out, and with catch_up => all, only ideal times that are not too late by then are made up for. What a queue spreads is not spread here. A run that is cancelled (delay_cancel) is left out; one that is moved (delay_reschedule), or made early (delay_run), leaves the ideal times as they are.
If the task exists, all is as given now, what is null included; but if starts is null, and every and time_zone are as before, starts stays, and so does the ideal time of the next run. A run that waits is replaced by a new one; one that is going on is not touched, and its end goes by what is declared then. It stays paused if it was. If nothing is changed nothing is done. Waits for another session''s open change of the same as INSERT does, and for the end of a run that delay_run makes in an open transaction.
Errors as in delay_schedule_task; also an interval or a schedule that is none, and a new one that would never have a run, SQLSTATE 22023';

CREATE FUNCTION delay_cron(
	name text,
	schedule text,
	sql_text text,
	args text[] DEFAULT NULL,
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
	mode text DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_cron' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_cron(text, text, text, text[], regtype[], timestamptz, text, timestamptz, bigint, text, text, text, integer, integer, interval, interval, interval, text, text, text, text) IS
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
'ends what delay_pause_recurring began, if this transaction commits: the next run is at the first ideal time from now on, whatever catch_up says. False if there is none of this name; nothing is changed if it is not paused. Waits as delay_every does. A null name is an error, SQLSTATE 22004';

/*---- Queues ----*/

CREATE FUNCTION delay_queue(name text, max_running integer DEFAULT NULL, rate integer DEFAULT NULL,
	priority integer DEFAULT NULL, timeout interval DEFAULT NULL, max_attempts integer DEFAULT NULL,
	retry_delay interval DEFAULT NULL, batch boolean DEFAULT NULL, spread interval DEFAULT NULL,
	users name[] DEFAULT NULL, history text DEFAULT NULL) RETURNS void
AS 'MODULE_PATHNAME', 'dw_queue' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_queue(text, integer, integer, integer, interval, integer, interval, boolean, interval, name[], text) FROM PUBLIC;
COMMENT ON FUNCTION delay_queue(text, integer, integer, integer, interval, integer, interval, boolean, interval, name[], text) IS
'declares a queue, which the current user owns, or changes one, if this transaction commits; acts at once. What is null is left as it is, or is the default of a new queue.
name: up to 63 bytes, not ''default''.
max_running: how many of its tasks run at a time; 0 (the default) is no limit.
rate, up to 1000000: how many are started in a second; 0 (the default) is no limit.
priority: of tasks that say none: -1, 0 (the default) or 1.
timeout, up to 24 days: of tasks that say none; 0 (the default) is none.
max_attempts, 1 (the default) to 32767: of tasks that say none.
retry_delay, 0 to 366 days: of tasks that say none; 10 seconds by default.
batch: whether its tasks may share a transaction with others, true by default.
spread, up to 366 days: due times of new tasks are put off, each by another part of this; 0 (the default) is not at all.
users: roles that may schedule into it, beside members of its owner and superusers, names as in pg_roles, public for all roles; none by default.
history: which ends of its tasks are recorded in delay_wheel.history, off, errors or all, or default (the default): as the setting delay_wheel.history says.
Limits hold for the whole database, whoever owns the tasks. To be called by those granted it; a queue is changed only by members of its owner and superusers, for others it is an error, SQLSTATE 42501. So is more than delay_wheel.max_queues in all databases, 53400, a value out of its range, 22023, and a name that is null, 22004, or too long, 42622';

CREATE FUNCTION delay_queue_drop(name text) RETURNS void
AS 'MODULE_PATHNAME', 'dw_queue_drop' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_queue_drop(text) FROM PUBLIC;
COMMENT ON FUNCTION delay_queue_drop(text) IS
'drops a queue, if this transaction commits. An error, SQLSTATE 55006, if tasks are pending in it, recurring tasks name it, or open transactions have scheduled some; nothing is waited for. A queue that does not exist is one, too, 42704. Failed tasks of it stay, without the name. To be called by those granted it, for queues of roles that they are members of';

CREATE FUNCTION delay_pause(queue text DEFAULT NULL) RETURNS void
AS 'MODULE_PATHNAME', 'dw_pause' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_pause(text) IS
'pauses a queue, or, if it is null, all tasks of the current user in this database, if this transaction commits: from then on none of them is started; those that run go on. Tasks are scheduled, moved and cancelled as ever. A pause lasts until delay_resume, also over restarts; if there is one already nothing changes. A queue is paused by members of its owner and superusers, for others it is an error, SQLSTATE 42501; one that does not exist is one, 42704. Waits for another session''s open pause or resume of the same';

CREATE FUNCTION delay_resume(queue text DEFAULT NULL) RETURNS void
AS 'MODULE_PATHNAME', 'dw_resume' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_resume(text) IS
'ends what delay_pause with the same argument began, if this transaction commits: tasks that are overdue run at once, in the order of their due times, at the rate of their queue. What is paused otherwise, too (queue, role, database), stays paused. If there is no such pause nothing changes. Waits and rights as in delay_pause';

CREATE FUNCTION delay_pause_database() RETURNS void
AS 'MODULE_PATHNAME', 'dw_pause_database' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_pause_database() FROM PUBLIC;
COMMENT ON FUNCTION delay_pause_database() IS
'pauses all tasks of this database, as delay_pause does those of one role. Only for superusers and the owner of the function, unless granted';

CREATE FUNCTION delay_resume_database() RETURNS void
AS 'MODULE_PATHNAME', 'dw_resume_database' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_resume_database() FROM PUBLIC;
COMMENT ON FUNCTION delay_resume_database() IS
'ends what delay_pause_database began; pauses of roles and queues stay. Only for superusers and the owner of the function, unless granted';

/*---- Recurring tasks ----*/

CREATE FUNCTION delay_wheel.cron_times(schedule text, time_zone text DEFAULT NULL,
	after timestamptz DEFAULT pg_catalog.now(), n integer DEFAULT 1) RETURNS SETOF timestamptz
AS 'MODULE_PATHNAME', 'dw_cron_times' LANGUAGE C STABLE PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel.cron_times(text, text, timestamptz, integer) IS
'the next n times (1, the default, to 10000) of a cron schedule that are later than after (now by default), in order; fewer, or none, if there are no more of them.
schedule: five fields, minute, hour, day of month, month and day of week, or six with the second before them, each with *, values, ranges, steps and lists, months and days of the week also by name; L is the last day of the month, friL its last Friday, fri#2 the second; or @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually. If neither day of month nor day of week begins with *, either is enough.
time_zone: a name as in pg_timezone_names; null is that of the session. When the clock is changed, hours that do not begin with * are fixed: a time that the clock leaves out comes at the end of the gap, one that it shows twice comes once, at the first; otherwise each instant counts at which the clock shows such a time. Nothing is run. A text that is no schedule, of more than 1000 bytes for instance, an unknown time zone, an infinite after and other n are errors, SQLSTATE 22023; null for schedule, after or n 22004';
GRANT EXECUTE ON FUNCTION delay_wheel.cron_times(text, text, timestamptz, integer) TO PUBLIC;

/*---- Who may schedule ----*/

-- nobody but their owner and superusers, until allowed to
REVOKE EXECUTE ON FUNCTION
	delay_schedule(interval, text), delay_schedule(interval, text, VARIADIC "any"),
	delay_schedule_at(timestamptz, text), delay_schedule_at(timestamptz, text, VARIADIC "any"),
	delay_schedule_task(text, text[], regtype[], interval, timestamptz, text, text, text, text, integer, integer, interval, interval, interval, interval, text, text, text, text),
	delay_cancel(bigint, boolean), delay_cancel_key(text, text),
	delay_cancel_all(text, text, timestamptz, timestamptz),
	delay_wait(bigint, interval), delay_reschedule(bigint, interval), delay_reschedule_at(bigint, timestamptz),
	delay_pause(text), delay_resume(text),
	delay_schedule_trigger(),
	delay_run(bigint), delay_run_due(timestamptz), delay_retry(bigint),
	delay_redrive(text, text, text, timestamptz, timestamptz, integer),
	delay_every(text, interval, text, text[], regtype[], timestamptz, text, timestamptz, bigint, text, text, text, integer, integer, interval, interval, interval, text, text, text, text),
	delay_cron(text, text, text, text[], regtype[], timestamptz, text, timestamptz, bigint, text, text, text, integer, integer, interval, interval, interval, text, text, text, text),
	delay_unschedule(text), delay_pause_recurring(text), delay_resume_recurring(text)
	FROM PUBLIC;

CREATE FUNCTION delay_wheel.allow(VARIADIC roles name[]) RETURNS void
AS 'MODULE_PATHNAME', 'dw_allow' LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION delay_wheel.allow(name[]) FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.allow(name[]) IS
'allows roles to schedule, cancel and reschedule tasks of their own: grants EXECUTE on all functions of the extension that lie in the schema given to CREATE EXTENSION, but those for administrators: delay_arm, delay_queue, delay_queue_drop, delay_pause_database, delay_resume_database. Names are as in pg_roles, upper and lower case as they are; public stands for all roles. Only for superusers and the owner of the functions, for others an error, SQLSTATE 42501. No name at all is one, 22023, a null one, 22004, and a role that does not exist, 42704. Plain GRANT does as well; a dump carries the grants. For many roles allow a group once, and grant that to them: a call for each of thousands takes minutes, as so many GRANTs would';

CREATE FUNCTION delay_wheel.disallow(VARIADIC roles name[]) RETURNS void
AS 'MODULE_PATHNAME', 'dw_disallow' LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION delay_wheel.disallow(name[]) FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.disallow(name[]) IS
'takes back what delay_wheel.allow(name[]) granted; what a role may do as a member of another one, or since all may, it still may. Tasks that are pending run nevertheless. A role that was allowed can be dropped after this (or after DROP OWNED)';

/*---- Views ----*/

CREATE FUNCTION delay_wheel.place(due timestamptz, OUT slot integer, OUT cycle_num bigint)
AS 'MODULE_PATHNAME', 'dw_place' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.place(timestamptz) IS
'slot of the ring and whole turns until a due time';

CREATE FUNCTION delay_wheel.crashes(id bigint) RETURNS smallint
AS 'MODULE_PATHNAME', 'dw_crashes' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel.crashes(bigint) IS
'how often the process that ran this pending task, of a role whose rights one has, has crashed; of any role for pg_read_all_data and superusers; 0 for all others. Such a task is run alone, and set aside after three times';

CREATE VIEW delay_wheel.tasks WITH (security_barrier) AS
SELECT t.id, t.due, t.owner, COALESCE(q.name, CASE t.queue WHEN 0 THEN 'default' END) AS queue, t.priority, t.key, t.tag, t.sql, t.args,
	   p.slot, p.cycle_num, COALESCE(t.attempts, 0::smallint) AS attempts,
	   t.more OPERATOR(pg_catalog.->>) 'last_error'::text AS last_error,
	   t.origin = delay_wheel.origin() AS armed,
	   t.more OPERATOR(pg_catalog.->>) 'mode'::text AS mode,
	   delay_wheel.crashes(t.id) AS crashes
FROM delay_wheel.task t
	 LEFT JOIN delay_wheel.queue q ON q.id = t.queue
	 CROSS JOIN LATERAL delay_wheel.place(t.due) p
WHERE (pg_catalog.pg_has_role(t.owner, 'USAGE')
	   OR pg_catalog.pg_has_role('pg_read_all_data', 'USAGE'))
	-- superseded by a newer one; IS NOT NULL is for the partial index
	AND NOT EXISTS (
		SELECT FROM delay_wheel.task n
		WHERE n.key IS NOT NULL
			AND n.owner OPERATOR(pg_catalog.=) t.owner AND n.queue = t.queue AND n.key = t.key AND n.id > t.id
			AND (n.origin = t.origin OR n.origin = delay_wheel.origin()))
	-- as in marks.c
	AND NOT EXISTS (
		SELECT FROM delay_wheel.cancellation c
		WHERE COALESCE(t.spared, t.id) < c.id
			AND (c.origin = t.origin OR c.origin = delay_wheel.origin())
			AND (c.owners IS NULL OR t.owner::oid OPERATOR(pg_catalog.=) ANY (c.owners::oid[]))
			AND (c.queue IS NULL OR c.queue = t.queue)
			AND (c.tag IS NULL OR c.tag = t.tag)
			AND (c.due_from IS NULL OR t.due >= c.due_from)
			AND (c.due_until IS NULL OR t.due < c.due_until));
COMMENT ON VIEW delay_wheel.tasks IS
'one''s own pending tasks; all of them for pg_read_all_data and superusers';
COMMENT ON COLUMN delay_wheel.tasks.id IS 'number of the task, as delay_schedule returned it; the order of ids is the order of scheduling';
COMMENT ON COLUMN delay_wheel.tasks.due IS 'the task runs at this time or after, never before; of a task that is tried again, the time of the next attempt';
COMMENT ON COLUMN delay_wheel.tasks.owner IS 'role that scheduled the task and whose rights it has';
COMMENT ON COLUMN delay_wheel.tasks.queue IS 'name of its queue; default is that of tasks that name none; null if the queue has been dropped';
COMMENT ON COLUMN delay_wheel.tasks.priority IS '-1, 0 or 1; higher first among due tasks';
COMMENT ON COLUMN delay_wheel.tasks.key IS 'at most one pending task for each owner, queue and key; null if it has none';
COMMENT ON COLUMN delay_wheel.tasks.tag IS 'free grouping, for instance a sender or a campaign; null if it has none';
COMMENT ON COLUMN delay_wheel.tasks.sql IS 'one or several SQL statements';
COMMENT ON COLUMN delay_wheel.tasks.args IS 'values of $1, $2 ... in text form; null if there are none';
COMMENT ON COLUMN delay_wheel.tasks.attempts IS 'how often the task was run and failed; 0 is never';
COMMENT ON COLUMN delay_wheel.tasks.last_error IS 'SQLSTATE and message of the last attempt that failed, with a colon between; null if none has';
COMMENT ON COLUMN delay_wheel.tasks.slot IS 'slot of the ring that the due time belongs into';
COMMENT ON COLUMN delay_wheel.tasks.cycle_num IS 'whole turns of the ring until the task is due';
COMMENT ON COLUMN delay_wheel.tasks.armed IS 'false for a task that came with a copy of another database; it is not run until delay_arm() is called';

COMMENT ON COLUMN delay_wheel.tasks.crashes IS 'how often the process that ran it has crashed: it is run alone then, and set aside as failed after three times; 4: the server crashed even when it was to be set aside, so it is left alone';
COMMENT ON COLUMN delay_wheel.tasks.mode IS 'at_most_once or at_least_once: it runs outside of a transaction, see delay_schedule_task(); null for all others';

CREATE FUNCTION delay_wheel.is_running(id bigint) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_is_running' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.is_running(bigint) IS
'whether an executor runs this task, of a role whose rights one has, in mode at_most_once just now; all of them for pg_read_all_data and superusers. It stands in delay_wheel.failed_task meanwhile; see delay_wheel.failed';

CREATE VIEW delay_wheel.failed WITH (security_barrier) AS
SELECT f.id, f.failed_at, f.due, f.owner, COALESCE(q.name, CASE f.queue WHEN 0 THEN 'default' END) AS queue, f.priority, f.key, f.tag, f.sql, f.args,
	   f.attempts, f.sqlstate, f.message, f.detail, f.hint, f.context, COALESCE(f.crashes, 0::smallint) AS crashes
FROM delay_wheel.failed_task f
	 LEFT JOIN delay_wheel.queue q ON q.id = f.queue
WHERE (pg_catalog.pg_has_role(f.owner, 'USAGE')
	   OR pg_catalog.pg_has_role('pg_read_all_data', 'USAGE'))
	-- begun in mode at_most_once, and not ended yet
	AND NOT (f.sqlstate = 'DW003' AND delay_wheel.is_running(f.id));
COMMENT ON VIEW delay_wheel.failed IS
'one''s own tasks that were given up, with their error; all of them for pg_read_all_data and superusers';
COMMENT ON COLUMN delay_wheel.failed.id IS 'number of the task, as delay_schedule returned it; for delay_retry()';
COMMENT ON COLUMN delay_wheel.failed.failed_at IS 'when it was given up';
COMMENT ON COLUMN delay_wheel.failed.due IS 'due time of its last attempt';
COMMENT ON COLUMN delay_wheel.failed.owner IS 'role that scheduled the task';
COMMENT ON COLUMN delay_wheel.failed.queue IS 'name of its queue; null if the queue has been dropped';
COMMENT ON COLUMN delay_wheel.failed.priority IS '-1, 0 or 1';
COMMENT ON COLUMN delay_wheel.failed.key IS 'its key, or null; a task of the same key can be scheduled again';
COMMENT ON COLUMN delay_wheel.failed.tag IS 'its tag, or null';
COMMENT ON COLUMN delay_wheel.failed.sql IS 'one or several SQL statements';
COMMENT ON COLUMN delay_wheel.failed.args IS 'values of $1, $2 ... in text form; null if there are none';
COMMENT ON COLUMN delay_wheel.failed.attempts IS 'how often it was run and failed; 0 if it was given up without having been run';
COMMENT ON COLUMN delay_wheel.failed.sqlstate IS 'of the error of the last attempt, five characters; DW001: superseded by a newer task of its key, DW002: expired, DW003: its end is not known (mode at_most_once), DW004: it crashed the server, DW005: it ended its own executor';
COMMENT ON COLUMN delay_wheel.failed.message IS 'of that error, its first 16 kB';
COMMENT ON COLUMN delay_wheel.failed.detail IS 'of that error, or null';
COMMENT ON COLUMN delay_wheel.failed.hint IS 'of that error, or null';
COMMENT ON COLUMN delay_wheel.failed.context IS 'of that error: where it was raised; with the place in which SQL, if it is known';
COMMENT ON COLUMN delay_wheel.failed.crashes IS 'how often the process that ran it had crashed; no attempts are counted for these';

CREATE VIEW delay_wheel.history WITH (security_barrier) AS
SELECT h.ended, h.task, h.outcome, h.started - h.due AS lateness, h.ended - h.started AS duration, h.rows, h.command_tag, h.sqlstate, h.message,
	   COALESCE(q.name, CASE h.queue WHEN 0 THEN 'default' END) AS queue, h.key, h.tag, h.owner, h.attempt, h.due, h.started, h.sql, h.recurring
FROM (SELECT * FROM delay_wheel.history_0
	  UNION ALL SELECT * FROM delay_wheel.history_1
	  UNION ALL SELECT * FROM delay_wheel.history_2) h
	 LEFT JOIN delay_wheel.queue q ON q.id = h.queue
WHERE pg_catalog.pg_has_role(h.owner, 'USAGE')
   OR pg_catalog.pg_has_role('pg_read_all_data', 'USAGE');
COMMENT ON VIEW delay_wheel.history IS
'how one''s own tasks ended, as far as the setting delay_wheel.history, or their queue, says that it is recorded; all of them for pg_read_all_data and superusers. One row for each attempt, written in the task''s own transaction, so exactly if that was committed. In no particular order; no index, unless one was added to delay_wheel.history_0, history_1 and history_2. Rows go when they are older than delay_wheel.history_max_age, or there are more than delay_wheel.history_max_size allows, a third of them or more at a time. Cancelled tasks have no row';
COMMENT ON COLUMN delay_wheel.history.task IS 'number of the task';
COMMENT ON COLUMN delay_wheel.history.key IS 'its key, or null';
COMMENT ON COLUMN delay_wheel.history.tag IS 'its tag, or null';
COMMENT ON COLUMN delay_wheel.history.owner IS 'role that scheduled the task';
COMMENT ON COLUMN delay_wheel.history.started IS 'when this attempt began; null if it was not run';
COMMENT ON COLUMN delay_wheel.history.ended IS 'when its SQL had ended, or it was given up; the commit came after';
COMMENT ON COLUMN delay_wheel.history.outcome IS 'done; failed: it was given up; retried: this attempt failed, another one follows; skipped: it came too late';
COMMENT ON COLUMN delay_wheel.history.lateness IS 'from due to started; waiting for limits, and pauses, are part of it; null if it was not run';
COMMENT ON COLUMN delay_wheel.history.duration IS 'from started to ended; null if it was not run';
COMMENT ON COLUMN delay_wheel.history.rows IS 'that the last statement of its SQL wrote or returned; null unless done';
COMMENT ON COLUMN delay_wheel.history.command_tag IS 'of the last statement of its SQL, as psql shows it, without numbers; null unless done, or if a rule replaced it by one of another kind';
COMMENT ON COLUMN delay_wheel.history.sqlstate IS 'of the error, if failed or retried';
COMMENT ON COLUMN delay_wheel.history.message IS 'of the error, its first 1000 bytes';
COMMENT ON COLUMN delay_wheel.history.queue IS 'null if it was dropped since';
COMMENT ON COLUMN delay_wheel.history.attempt IS '1 for the first one; null if it was not run';
COMMENT ON COLUMN delay_wheel.history.due IS 'of this attempt';
COMMENT ON COLUMN delay_wheel.history.sql IS 'its first 200 bytes, without the values of its parameters';
COMMENT ON COLUMN delay_wheel.history.recurring IS 'number of the recurring task that it was a run of, or null';

CREATE FUNCTION delay_wheel.get_running(OUT pid integer, OUT owner regrole, OUT task bigint, OUT due timestamptz, OUT since timestamptz, OUT state text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_running' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.get_running() IS 'one''s own executors of this database, all of them for pg_read_all_stats and superusers; see delay_wheel.running';
CREATE VIEW delay_wheel.running AS
SELECT r.pid, r.owner, r.task, r.due, r.since
FROM delay_wheel.get_running() r
WHERE r.task IS NOT NULL;
COMMENT ON VIEW delay_wheel.running IS
'one''s own tasks that executors of this database run just now; all of them for pg_read_all_stats and superusers';
COMMENT ON COLUMN delay_wheel.running.pid IS 'of the executor, as in pg_stat_activity; pg_terminate_backend() makes the task run again, pg_cancel_backend() makes it fail';
COMMENT ON COLUMN delay_wheel.running.owner IS 'role whose task it is';
COMMENT ON COLUMN delay_wheel.running.task IS 'number of the task';
COMMENT ON COLUMN delay_wheel.running.due IS 'its due time';
COMMENT ON COLUMN delay_wheel.running.since IS 'when it began; of a task that is repeated at once after a serialization failure or deadlock, the first time';

CREATE VIEW delay_wheel.recurring WITH (security_barrier) AS
SELECT d.name, d.owner,
	   CASE WHEN d.next_due IS NULL AND r.task IS NULL THEN 'finished'
			WHEN d.origin <> delay_wheel.origin() THEN 'unarmed'
			WHEN r.task IS NOT NULL THEN 'running'
			WHEN d.paused THEN 'paused'
			ELSE 'waiting' END AS state,
	   d.every, d.schedule, d.time_zone, d.starts, d.until, d.max_runs, d.catch_up,
	   CASE WHEN d.task IS NOT NULL THEN d.next_due END AS next_due, d.task,
	   d.last_due, d.last_started, d.last_ended, d.last_outcome, d.last_error,
	   d.runs, d.failures, d.skipped, d.paused,
	   COALESCE(q.name, CASE d.queue WHEN 0 THEN 'default' END) AS queue, d.priority, d.tag, d.sql, d.args
FROM delay_wheel.recurring_task d
	 LEFT JOIN delay_wheel.queue q ON q.id = d.queue
	 -- two executors may hold the same task for a moment, until one has claimed it
	 LEFT JOIN (SELECT DISTINCT task FROM delay_wheel.get_running()) r ON r.task = d.task
WHERE pg_catalog.pg_has_role(d.owner, 'USAGE')
   OR pg_catalog.pg_has_role('pg_read_all_data', 'USAGE');
COMMENT ON VIEW delay_wheel.recurring IS
'one''s own recurring tasks, see delay_every() and delay_cron(); all of them for pg_read_all_data and superusers';
COMMENT ON COLUMN delay_wheel.recurring.name IS 'as given to delay_every() or delay_cron(), unique for its owner';
COMMENT ON COLUMN delay_wheel.recurring.owner IS 'role that declared it, whose rights its runs have';
COMMENT ON COLUMN delay_wheel.recurring.every IS 'interval between ideal times; null if it has a cron schedule';
COMMENT ON COLUMN delay_wheel.recurring.schedule IS 'cron schedule; null if it has an interval';
COMMENT ON COLUMN delay_wheel.recurring.time_zone IS 'in which days, months and the cron schedule are counted';
COMMENT ON COLUMN delay_wheel.recurring.starts IS 'first ideal time, from which the others are counted; with a cron schedule, there is none before';
COMMENT ON COLUMN delay_wheel.recurring.until IS 'no ideal time is later; null is no limit';
COMMENT ON COLUMN delay_wheel.recurring.max_runs IS 'no further run after so many; null is no limit';
COMMENT ON COLUMN delay_wheel.recurring.catch_up IS 'what is done with ideal times that have passed: skip or all';
COMMENT ON COLUMN delay_wheel.recurring.last_ended IS 'when the last run ended, or was given up; null if there was none';
COMMENT ON COLUMN delay_wheel.recurring.paused IS 'whether delay_pause_recurring() holds';
COMMENT ON COLUMN delay_wheel.recurring.queue IS 'name of the queue of its runs; null if it has been dropped';
COMMENT ON COLUMN delay_wheel.recurring.priority IS 'of its runs: -1, 0 or 1';
COMMENT ON COLUMN delay_wheel.recurring.tag IS 'of its runs, or null';
COMMENT ON COLUMN delay_wheel.recurring.sql IS 'of its runs';
COMMENT ON COLUMN delay_wheel.recurring.args IS 'of its runs: values of $1, $2 ... in text form; null if there are none';
COMMENT ON COLUMN delay_wheel.recurring.state IS 'waiting for its next run; running (if one may see that in delay_wheel.running); paused by delay_pause_recurring(); finished: there are no runs any more; unarmed: it came with a copy of another database, see delay_arm()';
COMMENT ON COLUMN delay_wheel.recurring.next_due IS 'ideal time of the next run, or of the one that is going on; null if there is none';
COMMENT ON COLUMN delay_wheel.recurring.task IS 'id of that run in delay_wheel.tasks, which has its own due time if it was moved or is tried again';
COMMENT ON COLUMN delay_wheel.recurring.last_due IS 'ideal time of the last run that has ended';
COMMENT ON COLUMN delay_wheel.recurring.last_started IS 'when its last attempt was started; null if it was not';
COMMENT ON COLUMN delay_wheel.recurring.last_outcome IS 'how it ended: done, failed (see delay_wheel.failed), skipped (it was too late) or cancelled';
COMMENT ON COLUMN delay_wheel.recurring.last_error IS 'its error, up to 1000 bytes of it, or why there is no further run; null if there was none';
COMMENT ON COLUMN delay_wheel.recurring.runs IS 'runs that have ended, with success or not';
COMMENT ON COLUMN delay_wheel.recurring.failures IS 'those that failed';
COMMENT ON COLUMN delay_wheel.recurring.skipped IS 'runs that were cancelled, or too late; times that were left out since they had passed (catch_up => skip, or all with skip_after) have no run, and are not counted';

CREATE FUNCTION delay_wheel.get_cancellations(
	OUT id bigint, OUT made_at timestamptz, OUT made_by regrole, OUT owners regrole[], OUT queue smallint,
	OUT tag text, OUT due_from timestamptz, OUT due_until timestamptz, OUT removed bigint, OUT running integer,
	OUT state text, OUT waiting_for integer[])
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_cancellations' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_wheel.get_cancellations() IS 'one''s own cancellations that are not complete, all of them for pg_read_all_data and superusers; see delay_wheel.cancellations';
CREATE VIEW delay_wheel.cancellations AS
SELECT c.id, c.made_at, c.made_by, c.owners, COALESCE(q.name, CASE c.queue WHEN 0 THEN 'default' ELSE c.queue::text END) AS queue,
	   c.tag, c.due_from, c.due_until, c.running, c.removed, c.state, c.waiting_for
FROM delay_wheel.get_cancellations() c
	 LEFT JOIN delay_wheel.queue q ON q.id = c.queue;
COMMENT ON VIEW delay_wheel.cancellations IS
'calls of delay_cancel_all() whose tasks are not all removed yet: they are cancelled nevertheless. One''s own; all of them for pg_read_all_data and superusers';
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
COMMENT ON COLUMN delay_wheel.cancellations.state IS 'sweeping: rows are being removed; waiting: all that can be seen are removed, but transactions are open that may have scheduled more before, see waiting_for; queued: the process that removes them is not there yet, for want of a background worker perhaps, see delay_wheel.status.last_problem; unarmed: it came with a copy of another database, concerns tasks that came with it, and ends with delay_arm()';
COMMENT ON COLUMN delay_wheel.cancellations.waiting_for IS 'pids of some of the transactions waited for, 0 for prepared ones; null in other states';

CREATE FUNCTION delay_wheel.get_ring(OUT slot integer, OUT tasks bigint, OUT min_cycle bigint, OUT max_cycle bigint, OUT is_current boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_ring' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.get_ring() IS 'slots of this database''s ring, see delay_wheel.ring';
CREATE VIEW delay_wheel.ring AS SELECT * FROM delay_wheel.get_ring();
COMMENT ON VIEW delay_wheel.ring IS
'for each slot of this database''s ring: tasks in memory, their lowest and highest cycle number, and whether it is the current index. A task that was just committed is in none until the timer has looked at what sessions tell it, mostly within a millisecond; nor is one that is due in the current tick, or later than lanes.horizon: see lanes.near and lanes.ready for all that is in memory';
COMMENT ON COLUMN delay_wheel.ring.slot IS 'number of the slot, from 0 to delay_wheel.slots - 1';
COMMENT ON COLUMN delay_wheel.ring.tasks IS 'tasks in memory that are in this slot, of all turns';
COMMENT ON COLUMN delay_wheel.ring.min_cycle IS 'whole turns of the ring until the first of them is due; null if there is none';
COMMENT ON COLUMN delay_wheel.ring.max_cycle IS 'whole turns of the ring until the last of them is due; null if there is none';
COMMENT ON COLUMN delay_wheel.ring.is_current IS 'whether the clock is in this slot';

CREATE FUNCTION delay_wheel.get_lanes(
	OUT owner regrole, OUT queue smallint, OUT priority smallint, OUT state text, OUT reason text,
	OUT retry_at timestamptz, OUT near bigint, OUT ready bigint, OUT running integer,
	OUT horizon timestamptz, OUT recheck_at timestamptz,
	OUT done bigint, OUT failed bigint, OUT retried bigint, OUT cancelled bigint,
	OUT lateness_p50 double precision, OUT lateness_p95 double precision, OUT lateness_max double precision,
	OUT skipped bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_lanes' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.get_lanes() IS 'one''s own lanes of this database, all of them for pg_read_all_stats and superusers; see delay_wheel.lanes';
CREATE VIEW delay_wheel.lanes AS
SELECT l.owner, COALESCE(q.name, CASE l.queue WHEN 0 THEN 'default' ELSE l.queue::text END) AS queue, l.priority, l.state, l.reason, l.retry_at,
	   l.near, l.ready, l.running, l.horizon, l.recheck_at,
	   l.done, l.failed, l.retried, l.cancelled, l.lateness_p50, l.lateness_p95, l.lateness_max, l.skipped
FROM delay_wheel.get_lanes() l
	 LEFT JOIN delay_wheel.queue q ON q.id = l.queue;
COMMENT ON VIEW delay_wheel.lanes IS
'for each combination of owner, queue and priority that has tasks in this database: how it stands. One''s own; all of them for pg_read_all_stats and superusers';
COMMENT ON COLUMN delay_wheel.lanes.owner IS 'role whose tasks these are';
COMMENT ON COLUMN delay_wheel.lanes.queue IS 'name of the queue; default is that of tasks that name none; a number if it is not declared';
COMMENT ON COLUMN delay_wheel.lanes.priority IS '-1, 0 or 1';
COMMENT ON COLUMN delay_wheel.lanes.state IS 'paused: none of its tasks is started; blocked: no executor can be had; limited: due tasks wait for what the queue allows; running: executors are on it, and it may have more; ready: due tasks wait for an executor; idle: nothing is due. For the first three see reason';
COMMENT ON COLUMN delay_wheel.lanes.reason IS 'what is paused; or max_running, rate, or another owner''s turn, of the queue; or why no executor could be had; else null';
COMMENT ON COLUMN delay_wheel.lanes.retry_at IS 'when it is tried again; a change of rights tries at once';
COMMENT ON COLUMN delay_wheel.lanes.near IS 'tasks in memory that are not due yet';
COMMENT ON COLUMN delay_wheel.lanes.ready IS 'tasks in memory that are due and wait for an executor';
COMMENT ON COLUMN delay_wheel.lanes.running IS 'executors that run tasks of it';
COMMENT ON COLUMN delay_wheel.lanes.horizon IS 'tasks that are due before are in memory; null if no later ones are known, or while all are loaded anew';
COMMENT ON COLUMN delay_wheel.lanes.recheck_at IS 'when a task is looked at again that another session''s plain SQL has locked';
COMMENT ON COLUMN delay_wheel.lanes.done IS 'tasks that were run, since the lane was entered: at the start of the server, with its first task since then, or again after it was empty and its place was needed';
COMMENT ON COLUMN delay_wheel.lanes.failed IS 'tasks that were given up, since the lane was entered';
COMMENT ON COLUMN delay_wheel.lanes.retried IS 'attempts that failed and are followed by another one, since the lane was entered';
COMMENT ON COLUMN delay_wheel.lanes.cancelled IS 'tasks that turned out to be cancelled by delay_cancel_all when they were due, since the lane was entered; those cancelled earlier are not counted';
COMMENT ON COLUMN delay_wheel.lanes.lateness_p50 IS 'milliseconds from due to start, median, since the lane was entered; right to about 20%. Waiting for limits, and pauses, are part of it';
COMMENT ON COLUMN delay_wheel.lanes.lateness_p95 IS 'the same, 95th percentile';
COMMENT ON COLUMN delay_wheel.lanes.lateness_max IS 'the same, highest value, exact';
COMMENT ON COLUMN delay_wheel.lanes.skipped IS 'tasks that were not run since it was too late, see skip_after of delay_schedule_task, since the lane was entered';

CREATE FUNCTION delay_wheel.get_queues(
	OUT id smallint, OUT state text, OUT reason text, OUT running integer, OUT near bigint, OUT ready bigint,
	OUT lanes integer, OUT done bigint, OUT failed bigint, OUT retried bigint, OUT cancelled bigint, OUT skipped bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_queues' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.get_queues() IS 'how the queues of this database stand that one may use, all of them for pg_read_all_stats and superusers; see delay_wheel.queues';
CREATE VIEW delay_wheel.queues WITH (security_barrier) AS
SELECT q.name, q.owner, q.users, q.paused, q.max_running, q.rate, q.priority,
	   pg_catalog.make_interval(secs => pg_catalog.float8(q.timeout) / 1000::double precision) AS timeout,
	   COALESCE(q.max_attempts, 1::smallint) AS max_attempts,
	   COALESCE(q.retry_delay, '10 seconds'::interval) AS retry_delay, q.batch, q.spread, q.history,
	   s.state, s.reason, s.running, s.near, s.ready, s.lanes, s.done, s.failed, s.retried, s.cancelled, s.skipped
FROM delay_wheel.queue q
	 LEFT JOIN delay_wheel.get_queues() s ON s.id OPERATOR(pg_catalog.=) q.id
WHERE pg_catalog.pg_has_role(q.owner, 'USAGE')
   OR 0::oid = ANY (q.users::oid[])
   OR EXISTS (SELECT FROM pg_catalog.unnest(q.users) u WHERE pg_catalog.pg_has_role(u, 'USAGE'))
   OR pg_catalog.pg_has_role('pg_read_all_data', 'USAGE')
   OR pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE');
COMMENT ON VIEW delay_wheel.queues IS
'declared queues that one owns or may schedule into, see delay_queue(), and how they stand; all of them for pg_read_all_data, pg_read_all_stats and superusers. Null is no limit. Numbers are of all owners'' tasks, and null if the timer does not know the queue (yet), or one may not see them';
COMMENT ON COLUMN delay_wheel.queues.name IS 'name of the queue';
COMMENT ON COLUMN delay_wheel.queues.owner IS 'role whose members may change, pause and drop it';
COMMENT ON COLUMN delay_wheel.queues.paused IS 'whether delay_pause() holds for it';
COMMENT ON COLUMN delay_wheel.queues.priority IS 'of tasks that say none: -1, 0 or 1';
COMMENT ON COLUMN delay_wheel.queues.timeout IS 'of tasks that say none; null is the roles setting';
COMMENT ON COLUMN delay_wheel.queues.max_attempts IS 'of tasks that say none: how often one is run if it fails';
COMMENT ON COLUMN delay_wheel.queues.retry_delay IS 'of tasks that say none: pause before the second attempt, doubled before each further one';
COMMENT ON COLUMN delay_wheel.queues.batch IS 'whether its tasks may share a transaction with others';
COMMENT ON COLUMN delay_wheel.queues.spread IS 'due times of its new tasks are put off, each by another part of this; null is not at all';
COMMENT ON COLUMN delay_wheel.queues.reason IS 'what due tasks of it wait for, if the state is limited: max_running or rate; else null';
COMMENT ON COLUMN delay_wheel.queues.users IS 'roles that may schedule into it, beside members of its owner; ''-'' stands for all roles';
COMMENT ON COLUMN delay_wheel.queues.max_running IS 'how many of its tasks run at a time at most';
COMMENT ON COLUMN delay_wheel.queues.rate IS 'how many of its tasks are started in a second at most';
COMMENT ON COLUMN delay_wheel.queues.history IS 'which ends of its tasks are recorded in delay_wheel.history: off, errors or all; null is as the setting of that name says';
COMMENT ON COLUMN delay_wheel.queues.state IS 'paused; limited: due tasks wait for what reason says, max_running or rate; running: tasks of it run; ready: due tasks wait for an executor; idle';
COMMENT ON COLUMN delay_wheel.queues.running IS 'executors that run its tasks, of all roles; never above max_running, but for those that ran when it was lowered';
COMMENT ON COLUMN delay_wheel.queues.near IS 'tasks in memory that are not due yet';
COMMENT ON COLUMN delay_wheel.queues.ready IS 'tasks in memory that are due and wait; if there are many, others wait in the table';
COMMENT ON COLUMN delay_wheel.queues.lanes IS 'combinations of owner and priority that have, or had, tasks in it';
COMMENT ON COLUMN delay_wheel.queues.done IS 'tasks that were run, since the start of the server, or since the queue was declared';
COMMENT ON COLUMN delay_wheel.queues.failed IS 'tasks that were given up, since then';
COMMENT ON COLUMN delay_wheel.queues.retried IS 'attempts that failed and are followed by another one, since then';
COMMENT ON COLUMN delay_wheel.queues.cancelled IS 'tasks that turned out to be cancelled by delay_cancel_all when they were due, since then; those cancelled earlier are not counted';
COMMENT ON COLUMN delay_wheel.queues.skipped IS 'tasks that were not run since it was too late, see skip_after of delay_schedule_task, since then';

CREATE FUNCTION delay_wheel.get_status(
	OUT database name, OUT state text, OUT current_index integer, OUT horizon timestamptz,
	OUT lanes integer, OUT near bigint, OUT ready bigint, OUT running integer, OUT executors integer,
	OUT parked integer, OUT done bigint, OUT failed bigint,
	OUT lateness_p50 double precision, OUT lateness_p95 double precision,
	OUT lateness_p99 double precision, OUT lateness_max double precision,
	OUT memory_used bigint, OUT memory_limit bigint, OUT last_problem text, OUT last_problem_at timestamptz,
	OUT unarmed boolean, OUT retried bigint, OUT skipped bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_status' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.get_status() IS 'state of this database, or of each one that is served, see delay_wheel.status';
CREATE VIEW delay_wheel.status AS SELECT * FROM delay_wheel.get_status();
COMMENT ON VIEW delay_wheel.status IS
'state of delay_wheel since the start of the server: in this database; in each one that it serves, for pg_read_all_stats and superusers';
COMMENT ON COLUMN delay_wheel.status.database IS 'name of the database';
COMMENT ON COLUMN delay_wheel.status.lanes IS 'combinations of owner, queue and priority that have tasks';
COMMENT ON COLUMN delay_wheel.status.running IS 'tasks that executors run just now';
COMMENT ON COLUMN delay_wheel.status.executors IS 'executors of this database, busy or not';
COMMENT ON COLUMN delay_wheel.status.lateness_p95 IS 'the same, 95th percentile';
COMMENT ON COLUMN delay_wheel.status.lateness_p99 IS 'the same, 99th percentile';
COMMENT ON COLUMN delay_wheel.status.lateness_max IS 'the same, highest value';
COMMENT ON COLUMN delay_wheel.status.last_problem IS 'what last kept tasks from being run, as the reference lists it; null if there was nothing since the start of the server. It stays when it is over';
COMMENT ON COLUMN delay_wheel.status.last_problem_at IS 'when that was';
COMMENT ON COLUMN delay_wheel.status.state IS 'starting; running; disabled: delay_wheel.enabled is off; paused: by delay_pause_database(); stopped: there is no timer process; no place: delay_wheel.max_databases others are served, and tasks of this database wait until one of them is not; standby: the server is in recovery; held: it came out of recovery, and delay_wheel.start_after_recovery is hold';
COMMENT ON COLUMN delay_wheel.status.current_index IS 'slot that the clock is in';
COMMENT ON COLUMN delay_wheel.status.horizon IS 'tasks that are due before are in memory, in whichever lane; null if all of them are, or while all of a lane''s are loaded anew';
COMMENT ON COLUMN delay_wheel.status.near IS 'tasks in memory that are not due yet';
COMMENT ON COLUMN delay_wheel.status.ready IS 'tasks in memory that are due and wait for an executor';
COMMENT ON COLUMN delay_wheel.status.parked IS 'lanes with due tasks for which no executor can be had, see delay_wheel.lanes';
COMMENT ON COLUMN delay_wheel.status.lateness_p50 IS 'milliseconds from due to start, median; each attempt counts, from its own due time';
COMMENT ON COLUMN delay_wheel.status.memory_used IS 'bytes of the ring''s memory that this database holds';
COMMENT ON COLUMN delay_wheel.status.memory_limit IS 'bytes of the ring''s memory that it may hold';
COMMENT ON COLUMN delay_wheel.status.done IS 'tasks that were run with success';
COMMENT ON COLUMN delay_wheel.status.failed IS 'tasks that were given up; each is counted once';
COMMENT ON COLUMN delay_wheel.status.retried IS 'attempts that failed and were followed by another one; repeats at once after serialization failures and deadlocks are not counted';
COMMENT ON COLUMN delay_wheel.status.skipped IS 'tasks that were not run since it was too late, see skip_after of delay_schedule_task';
COMMENT ON COLUMN delay_wheel.status.unarmed IS 'there are tasks that came with a copy of another database and are not run, see delay_arm(); known from the start, from restores and replication since then, and from delay_arm() itself: true may be late to become false if they were cancelled';

-- a table that was never analyzed is not taken for empty: plans of the views
-- would seem so expensive that each is compiled
ANALYZE delay_wheel.cancellation, delay_wheel.queue;

GRANT SELECT ON delay_wheel.tasks, delay_wheel.failed, delay_wheel.history, delay_wheel.recurring, delay_wheel.queues, delay_wheel.running, delay_wheel.cancellations, delay_wheel.ring, delay_wheel.lanes, delay_wheel.status
	TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel.origin(), delay_wheel.place(timestamptz), delay_wheel.crashes(bigint), delay_wheel.is_running(bigint),
	delay_wheel.get_running(), delay_wheel.get_cancellations(), delay_wheel.get_ring(), delay_wheel.get_lanes(), delay_wheel.get_queues(), delay_wheel.get_status()
	TO PUBLIC;

-- what ALTER DEFAULT PRIVILEGES grants is not meant for these: who can read or
-- write the tables has everybody's tasks
CREATE FUNCTION delay_wheel.revoke_defaults() RETURNS void
AS 'MODULE_PATHNAME', 'dw_revoke_defaults' LANGUAGE C
SET search_path = pg_catalog, pg_temp;
SELECT delay_wheel.revoke_defaults();
DROP FUNCTION delay_wheel.revoke_defaults();

-- whose dump is to have them
GRANT SELECT ON delay_wheel.task, delay_wheel.queue, delay_wheel.pause, delay_wheel.cancellation, delay_wheel.failed_task, delay_wheel.recurring_task, delay_wheel.prepared,
	delay_wheel.history_0, delay_wheel.history_1, delay_wheel.history_2,
	delay_wheel.task_id_seq, delay_wheel.queue_id_seq, delay_wheel.history_seq
	TO pg_database_owner;
