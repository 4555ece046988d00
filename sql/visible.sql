/*---- Rows that the reader may read: the views are made of these foreign tables ----*/

/*
 * The views are made of these instead of the tables: a condition in a view hides
 * rows, but neither from leakproof operators, nor from EXPLAIN ANALYZE, nor from
 * estimates.  See visible.c.
 */
CREATE FUNCTION delay_wheel_internal.visible_handler() RETURNS fdw_handler
AS 'MODULE_PATHNAME', 'dw_visible_handler' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.visible_handler() FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel_internal.visible_handler() IS
'handler of the foreign-data wrapper delay_wheel, for PostgreSQL alone';

CREATE FOREIGN DATA WRAPPER delay_wheel HANDLER delay_wheel_internal.visible_handler;
COMMENT ON FOREIGN DATA WRAPPER delay_wheel IS
'reads tables of extension delay_wheel: those rows that the reader may read';

CREATE SERVER delay_wheel FOREIGN DATA WRAPPER delay_wheel;
COMMENT ON SERVER delay_wheel IS
'this database; for the foreign tables of extension delay_wheel, see delay_wheel_internal.visible_task';

CREATE FOREIGN TABLE delay_wheel_internal.visible_task
(
	id bigint,
	due timestamptz,
	origin bigint,
	owner regrole,
	queue smallint,
	priority smallint,
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
	group_key text,
	group_hash integer
)
SERVER delay_wheel OPTIONS (table 'task');
COMMENT ON FOREIGN TABLE delay_wheel_internal.visible_task IS
'rows of tasks that are pending of roles that one is a member of, of all for pg_read_all_data and superusers; those that delay_cancel_all() has cancelled, or that a newer one of the same key has superseded, are among them until they are removed. Nobody is meant to read it: the view delay_wheel.tasks does. To PostgreSQL there are no other rows, so conditions, counts and estimates tell nothing of these';

CREATE FOREIGN TABLE delay_wheel_internal.visible_failed_task
(
	id bigint,
	failed_at timestamptz,
	due timestamptz,
	origin bigint,
	owner regrole,
	queue smallint,
	priority smallint,
	attempts smallint,
	crashes smallint,
	max_attempts smallint,
	timeout integer,
	retry_delay interval,
	expires interval,
	sqlstate text,
	message text,
	detail text,
	hint text,
	context text,
	sql text,
	args text[],
	arg_types regtype[],
	search_path text,
	key text,
	tag text,
	more jsonb,
	payload jsonb,
	group_key text
)
SERVER delay_wheel OPTIONS (table 'failed_task');
COMMENT ON FOREIGN TABLE delay_wheel_internal.visible_failed_task IS
'rows of failed tasks of roles that one is a member of, of all for pg_read_all_data and superusers. Nobody is meant to read it: the view delay_wheel.failed does. To PostgreSQL there are no other rows, so conditions, counts and estimates tell nothing of these';

CREATE FOREIGN TABLE delay_wheel_internal.visible_recurring_task
(
	id bigint,
	task bigint,
	next_due timestamptz,
	origin bigint,
	starts timestamptz,
	until timestamptz,
	last_due timestamptz,
	last_started timestamptz,
	last_ended timestamptz,
	runs bigint,
	failures bigint,
	skipped bigint,
	max_runs bigint,
	owner regrole,
	timeout integer,
	queue smallint,
	priority smallint,
	max_attempts smallint,
	paused boolean,
	every interval,
	retry_delay interval,
	name text COLLATE "C",
	schedule text,
	time_zone text,
	catch_up text,
	last_outcome text,
	last_error text,
	sql text,
	args text[],
	arg_types regtype[],
	search_path text,
	tag text,
	more jsonb,
	group_key text
)
SERVER delay_wheel OPTIONS (table 'recurring_task');
COMMENT ON FOREIGN TABLE delay_wheel_internal.visible_recurring_task IS
'rows of recurring tasks of roles that one is a member of, of all for pg_read_all_data and superusers. Nobody is meant to read it: the view delay_wheel.recurring does. To PostgreSQL there are no other rows, so conditions, counts and estimates tell nothing of these';

CREATE FOREIGN TABLE delay_wheel_internal.visible_history
(
	task bigint,
	due timestamptz,
	started timestamptz,
	ended timestamptz,
	rows bigint,
	recurring bigint,
	owner regrole,
	queue smallint,
	attempt smallint,
	outcome text,
	command_tag text,
	sqlstate text,
	message text,
	sql text,
	key text,
	tag text,
	sample double precision,
	result jsonb,
	group_key text
)
SERVER delay_wheel OPTIONS (table 'history');
COMMENT ON FOREIGN TABLE delay_wheel_internal.visible_history IS
'rows of the history of roles that one is a member of, of all for pg_read_all_data and superusers: its three tables, one after the other. Nobody is meant to read it: the view delay_wheel.history does. To PostgreSQL there are no other rows, so conditions, counts and estimates tell nothing of these';

CREATE FOREIGN TABLE delay_wheel_internal.visible_queue
(
	id smallint,
	priority smallint,
	max_attempts smallint,
	paused boolean,
	batch boolean,
	owner regrole,
	max_running integer,
	rate integer,
	timeout integer,
	name text COLLATE "C",
	users regrole[],
	retry_delay interval,
	spread interval,
	history text,
	more jsonb,
	external boolean,
	receivers regrole[],
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
	group_order text
)
SERVER delay_wheel OPTIONS (table 'queue');
COMMENT ON FOREIGN TABLE delay_wheel_internal.visible_queue IS
'rows of queues that one may use, or see: of roles that one is a member of, or that were declared for such a role as a user or a receiver, or for all; all of them for pg_read_all_data, pg_monitor, pg_read_all_stats and superusers. Nobody is meant to read it: the view delay_wheel.queues does. To PostgreSQL there are no other rows, so conditions, counts and estimates tell nothing of these';

CREATE FOREIGN TABLE delay_wheel_internal.visible_unique_key
(
	id bigint,
	until timestamptz,
	owner regrole,
	queue smallint,
	key text
)
SERVER delay_wheel OPTIONS (table 'unique_key');
COMMENT ON FOREIGN TABLE delay_wheel_internal.visible_unique_key IS
'rows of keys that are unique for a period, of roles that one is a member of, of all for pg_read_all_data and superusers. Nobody is meant to read it: the view delay_wheel.unique_keys does. To PostgreSQL there are no other rows, so conditions, counts and estimates tell nothing of these';

CREATE FOREIGN TABLE delay_wheel_internal.visible_audit
(
	id bigint,
	at timestamptz,
	task bigint,
	due timestamptz,
	rows bigint,
	owner regrole,
	pid integer,
	queue smallint,
	action text,
	key text,
	tag text,
	name text,
	detail text,
	login_role text,
	role text,
	client_addr text,
	application_name text
)
SERVER delay_wheel OPTIONS (table 'audit');
COMMENT ON FOREIGN TABLE delay_wheel_internal.visible_audit IS
'rows of the audit that are about tasks of roles that one is a member of, or what such roles did; all of them for pg_read_all_data and superusers. Nobody is meant to read it: the view delay_wheel.audit does. To PostgreSQL there are no other rows, so conditions, counts and statistics tell nothing of them';

-- the same words for the same columns
DO $$
DECLARE c record;
BEGIN
	FOR c IN SELECT 'visible_' OPERATOR(pg_catalog.||) v.name AS name, a.attname, pg_catalog.col_description(a.attrelid, a.attnum) AS words
			 FROM (VALUES ('task', 'delay_wheel.task'), ('failed_task', 'delay_wheel.failed_task'), ('recurring_task', 'delay_wheel.recurring_task'),
				('history', 'delay_wheel_internal.history_0'), ('queue', 'delay_wheel.queue'), ('unique_key', 'delay_wheel.unique_key'), ('audit', 'delay_wheel_internal.audit')) v(name, of),
				  pg_catalog.pg_attribute a
			 WHERE a.attrelid = v.of::regclass::oid AND a.attnum > 0
			 ORDER BY v.name, a.attnum
	LOOP
		EXECUTE pg_catalog.format('COMMENT ON COLUMN delay_wheel_internal.%I.%I IS %L', c.name, c.attname, c.words);
	END LOOP;
END
$$;
