--
-- KEYS
-- delay_schedule_task: every option, what it refuses; at most one pending task
-- for each owner, queue and key; delay_cancel.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
\set VERBOSITY terse

CREATE ROLE regress_dw_keys LOGIN;
CREATE TABLE keys_effect (label text, n int, at timestamptz DEFAULT now());
GRANT ALL ON keys_effect TO PUBLIC;

--
-- Options
--
BEGIN;
SELECT delay_schedule_task('SELECT 1') AS plain \gset
SELECT delay_schedule_task('SELECT $1, $2', args => '{1,NULL}', delay => '1 hour') AS untyped \gset
SELECT delay_schedule_task('SELECT $1, $2, $3, $4', args => '{1,2,NULL,x}', due => '2040-01-01 00:00:00+00',
	key => 'k', if_exists => 'error', queue => NULL, tag => 'a tag', priority => 9, max_attempts => 32767, options => jsonb_build_object('arg_types', '{int,-,date,NULL}'::text[], 'retry_delay', '1 s', 'timeout', '1.5 s', 'expires', '1 month')) AS typed \gset
SELECT delay_schedule_task('SELECT 1', priority => -9, max_attempts => 1, options => '{"timeout": "1 us", "retry_delay": "365 days", "expires": "1 us"}') AS least \gset
SELECT delay_schedule_task('SELECT 1', args => '{}', delay => '-1 day', options => '{"timeout": "2147483647 ms", "arg_types": []}') AS most \gset
SELECT delay_schedule_task('SELECT 1', args => NULL, named => NULL, delay => NULL, due => NULL, key => NULL, if_exists => NULL, queue => NULL, tag => NULL, priority => NULL, max_attempts => NULL) AS nulls \gset
SELECT id - :plain AS n, due = now() AS now, CASE WHEN due < now() + interval '10 years' THEN due - now() END AS later, queue, priority, attempts,
		max_attempts, timeout, spared, retry_delay, expires, sql, args, arg_types, search_path, key, tag, more
	FROM delay_wheel_data.task WHERE id >= :plain ORDER BY id;
SELECT due AT TIME ZONE 'UTC' FROM delay_wheel.tasks WHERE id = :typed;
ROLLBACK;

-- arguments are read as the session would read a literal
SET DateStyle = 'German';
SET IntervalStyle = 'sql_standard';
BEGIN;
SELECT delay_schedule_task('INSERT INTO keys_effect SELECT $1', args => '{01.02.2030}', delay => '1 hour', options => '{"arg_types": ["date"]}') AS id \gset
SELECT args, arg_types FROM delay_wheel_data.task WHERE id = :id;
ROLLBACK;
RESET DateStyle;
RESET IntervalStyle;
CREATE DOMAIN keys_positive AS int CHECK (VALUE > 0) NOT NULL;
CREATE TYPE keys_pair AS (a int, b text);
CREATE TYPE keys_mood AS ENUM ('good', 'bad');
SELECT delay_schedule_task('INSERT INTO keys_effect SELECT concat_ws(''|'', $1, $2, ($3).b, $4, $5[2], $6, $7, pg_typeof($1), pg_typeof($7))',
	args => ARRAY['7', '2030-01-02 12:00:00+00', '(1,"x, y")', 'bad', '{1,2}', '1.50', 'text'],
	options => jsonb_build_object('arg_types', ARRAY['keys_positive', 'timestamp', 'keys_pair', 'keys_mood', 'int[]', 'numeric', '-']::regtype[])) > 0 AS ok;
SELECT pg_temp.wait_until_done();
SELECT label FROM keys_effect;

-- refused
SELECT * FROM unnest(ARRAY[
	$$NULL$$, $$''$$, $$'SELECT $1'$$, $$'SELECT 1', args => '{1}'$$, $$'COMMIT'$$,
	$$'SELECT 1', delay => '1 h', due => now()$$, $$'SELECT 1', due => 'infinity'$$, $$'SELECT 1', delay => '300000 years'$$,
	$$'SELECT $1', arg_types => '{int}'$$, $$'SELECT $1', args => '{1}', arg_types => '{int,int}'$$, $$'SELECT $1', args => '{1}', arg_types => '{}'$$,
	$$'SELECT $1', args => '{{1}}'$$, $$'SELECT $1', args => '{1}', arg_types => '{{int}}'$$,
	$$'SELECT $1', args => '{1}', arg_types => '{anyelement}'$$, $$'SELECT $1', args => '{(1)}', arg_types => '{record}'$$,
	$$'SELECT $1', args => '{1}', arg_types => '{pg_node_tree}'$$, $$'SELECT $1', args => '{1}', arg_types => '{4000000000}'$$,
	$$'SELECT $1', args => '{x}', arg_types => '{int}'$$, $$'SELECT $1', args => '{-1}', arg_types => '{keys_positive}'$$,
	$$'SELECT $1', args => '{NULL}', arg_types => '{keys_positive}'$$,
	$$'SELECT 1', key => ''$$, $$'SELECT 1', tag => ''$$, $$'SELECT 1', key => repeat('x', 1001)$$, $$'SELECT 1', tag => repeat('x', 1001)$$,
	$$'SELECT 1', key => 'k', if_exists => 'update'$$, $$'SELECT 1', if_exists => 'KEEP'$$, $$'SELECT 1', if_exists => 'replace'$$, $$'SELECT 1', if_exists => 'error'$$,
	$$'SELECT 1', queue => 'no such queue'$$, $$'SELECT 1', priority => 10$$, $$'SELECT 1', priority => -10$$,
	$$'SELECT 1', max_attempts => 0$$, $$'SELECT 1', max_attempts => 32768$$,
	$$'SELECT 1', retry_delay => '-1 s'$$, $$'SELECT 1', retry_delay => '366 days 1 us'$$,
	$$'SELECT 1', timeout => '-1 us'$$, $$'SELECT 1', timeout => '2147483647.001 ms'$$, $$'SELECT 1', timeout => '100000000 years'$$,
	$$'SELECT 1', expires => '0'$$, $$'SELECT 1', expires => '-100000000 years'$$, $$'SELECT 1', expires => '300000 years'$$,
	$$'SELECT 1', due => '294276-12-31', expires => '1 week'$$]) args,
	pg_temp.error_of('SELECT ' || pg_temp.call_of('delay_schedule_task', args));
SELECT * FROM pg_temp.error_of($$SELECT delay_cancel(key => 'x', queue => 'no such queue')$$);
BEGIN READ ONLY;
SELECT delay_schedule_task('SELECT 1', key => 'k');
ROLLBACK;
BEGIN READ ONLY;
SELECT delay_cancel(key => 'k');
ROLLBACK;
SELECT count(*) AS nothing_pending FROM delay_wheel_data.task;
-- a task is judged before a number is drawn for it
SELECT last_value AS before FROM delay_wheel_data.task_id_seq \gset
SELECT delay_schedule_task('SELECT 1', due => '294276-12-31', options => '{"expires": "1 week"}');
SELECT last_value = :before AS undrawn FROM delay_wheel_data.task_id_seq;
-- the time at which it expires must be one after a move, too
SELECT delay_schedule_task('SELECT 1', delay => '1 day', options => '{"expires": "1 day"}') AS id \gset
SELECT delay_reschedule(:id, '294276-12-31 12:00:00+00');
SELECT delay_cancel(:id);
-- one of 1000 bytes has room, whatever else there is
SELECT delay_schedule_task(format('SELECT %L', repeat('long ', 1000)), key => string_agg(md5(i::text), '' ORDER BY i) || 'abcdefgh',
		tag => string_agg(md5(i::text), '' ORDER BY i), delay => '1 day') > 0 AS ok
	FROM generate_series(1, 31) i;
SELECT delay_cancel(key => string_agg(md5(i::text), '' ORDER BY i) || 'abcdefgh') FROM generate_series(1, 31) i;

--
-- Modes
--
CREATE FUNCTION pg_temp.add(key text, if_exists text DEFAULT 'keep', what text DEFAULT 'x', delay interval DEFAULT '1 day') RETURNS bigint
	LANGUAGE sql AS $$
	SELECT delay_schedule_task('INSERT INTO keys_effect (label) VALUES ($1)', args => ARRAY[what], delay => delay, key => key, if_exists => if_exists) $$;
CREATE FUNCTION pg_temp.pending(text) RETURNS TABLE (n bigint, what text) LANGUAGE sql AS $$
	SELECT id, args[1] FROM delay_wheel.tasks WHERE key = $1 ORDER BY id $$;
SELECT pg_temp.add('a', what => 'first') AS first \gset
SELECT pg_temp.add('a', what => 'second') = :first AS kept, pg_temp.add('a', NULL, what => 'second') = :first AS null_keeps;
SELECT n = :first AS same, what FROM pg_temp.pending('a');
SELECT code, message, detail = format('It is task %s.', :first) AS detail, hint FROM pg_temp.error_of($$SELECT pg_temp.add('a', 'error')$$);
SELECT pg_temp.add('a', 'replace', 'third') AS third \gset
SELECT :third > :first AS new_id, n = :third AS this, what FROM pg_temp.pending('a');
SELECT pg_temp.add('a', what => 'fourth') = :third AS kept;
-- others are independent: another key, case, queue, none
SELECT pg_temp.add('A') > :third AS upper, pg_temp.add('a ') > :third AS space, pg_temp.add(NULL) <> pg_temp.add(NULL) AS none;
SELECT count(*), count(DISTINCT key) FROM delay_wheel.tasks;
SELECT delay_cancel(key => 'a'), delay_cancel(key => 'a'), delay_cancel(key => 'A'), delay_cancel(key => 'a '), delay_cancel(key => '', queue => NULL);
SELECT pg_temp.add('a', 'error') > :third AS again;
SELECT delay_cancel(id) FROM delay_wheel.tasks;

-- no lock on the key is left by any of these
BEGIN;
SELECT pg_temp.add('l'), pg_temp.add('l', 'replace'), pg_temp.add('l', 'keep') \g /dev/null
SELECT code, message FROM pg_temp.error_of($$SELECT pg_temp.add('l', 'error')$$);
SELECT delay_cancel(key => 'l');
SELECT count(*) AS locks FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory';
ROLLBACK;

-- another role's key is another one
GRANT CREATE ON SCHEMA public TO regress_dw_keys;
SELECT delay_wheel.allow('regress_dw_keys');
SELECT pg_temp.add('a') AS mine \gset
SET SESSION AUTHORIZATION regress_dw_keys;
SELECT delay_cancel(key => 'a');
SELECT delay_schedule_task('SELECT 1', key => 'a', delay => '1 day', if_exists => 'error') > :mine AS own;
SELECT key FROM delay_wheel.tasks;
RESET SESSION AUTHORIZATION;
SELECT owner = 'regress_dw_keys' AS others, count(*) FROM delay_wheel.tasks GROUP BY 1 ORDER BY 1;
-- a superuser, too, means his own
SELECT delay_cancel(key => 'a');
SELECT owner FROM delay_wheel.tasks WHERE key = 'a';
-- the owner of a SECURITY DEFINER function is the owner of the task
CREATE FUNCTION keys_definer() RETURNS bigint SECURITY DEFINER LANGUAGE sql AS
	$$SELECT delay_schedule_task('SELECT 1', key => 'd', delay => '1 day')$$;
CREATE FUNCTION keys_cancel_definer() RETURNS text SECURITY DEFINER LANGUAGE sql AS $$SELECT delay_cancel(key => 'd')$$;
SET SESSION AUTHORIZATION regress_dw_keys;
SELECT keys_definer() = keys_definer() AS kept;
SELECT delay_cancel(key => 'd'), keys_cancel_definer();
SELECT delay_cancel(key => 'a');
RESET SESSION AUTHORIZATION;
SELECT delay_wheel.disallow('regress_dw_keys');
SET SESSION AUTHORIZATION regress_dw_keys;
SELECT delay_schedule_task('SELECT 1');
SELECT delay_cancel(key => 'a');
RESET SESSION AUTHORIZATION;

--
-- In one transaction, with savepoints
--
BEGIN;
SELECT pg_temp.add('t', what => 'one') AS one \gset
SELECT pg_temp.add('t', what => 'two') = :one AS kept_own;
SAVEPOINT a;
SELECT pg_temp.add('t', 'replace', 'three') > :one AS replaced_own;
SELECT what FROM pg_temp.pending('t');
SELECT delay_cancel(key => 't'), delay_cancel(key => 't');
SELECT pg_temp.add('t', 'error', 'four') > :one AS after_cancel;
ROLLBACK TO a;
SELECT n = :one AS back, what FROM pg_temp.pending('t');
SELECT pg_temp.add('t', 'keep', 'five') = :one AS kept;
COMMIT;
SELECT n = :one AS committed, what FROM pg_temp.pending('t');
BEGIN;
SAVEPOINT a;
SELECT pg_temp.add('t') = :one AS kept;
RELEASE a;
SAVEPOINT b;
SELECT pg_temp.add('t') = :one AS kept;
SELECT delay_cancel(key => 't') AS locked_by_an_outer_one;
SELECT count(*) FROM pg_temp.pending('t');
ROLLBACK TO b;
SELECT pg_temp.add('t', 'replace', 'six') > :one AS replaced;
ROLLBACK;
SELECT n = :one AS still, what FROM pg_temp.pending('t');
-- each isolation level looks at what is there now
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM keys_effect WHERE false;
SELECT pg_temp.add('t') = :one AS kept, pg_temp.add('t', 'replace') > :one AS replaced, delay_cancel(key => 't');
ROLLBACK;
-- many in one transaction: at most one lock, and hints beyond what is remembered
BEGIN;
SELECT count(DISTINCT pg_temp.add('many ' || i % 2000)) FROM generate_series(1, 4000) i;
SELECT count(*) FILTER (WHERE locktype = 'advisory') AS locks FROM pg_locks WHERE pid = pg_backend_pid();
COMMIT;
BEGIN;
SELECT count(DISTINCT pg_temp.add('many ' || i % 2000)), count(*) FILTER (WHERE delay_cancel(key => 'many ' || i) = 'cancelled') AS cancelled FROM generate_series(1, 2000) i;
COMMIT;
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks;

--
-- A task that runs is not pending
--
CREATE FUNCTION pg_temp.runs(int) RETURNS text LANGUAGE sql AS $$
	SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM pg_locks l JOIN delay_wheel.running r USING (pid) WHERE l.locktype = ''advisory'' AND NOT l.granted AND l.objid = %s)', $1)) $$;
SELECT pg_advisory_lock(1);
SELECT delay_schedule_task('SELECT pg_advisory_xact_lock_shared(1); INSERT INTO keys_effect VALUES (''old'')', key => 'r') AS old \gset
SELECT pg_temp.runs(1);
SELECT delay_cancel(key => 'r') AS running;
-- in each mode, and nobody waits for it
SELECT pg_temp.add('r', 'error', 'new', '0') AS new \gset
SELECT pg_temp.wait_for('EXISTS (SELECT FROM keys_effect WHERE label = ''new'')');
SELECT pg_temp.add('r', 'keep', 'newer') AS newer \gset
SELECT pg_temp.add('r', 'keep') = :newer AS kept, :newer > :new AND :new > :old AS new_ids;
SELECT pg_temp.add('r', 'replace', 'newest') AS newest \gset
SELECT what FROM pg_temp.pending('r');
SELECT delay_cancel(:old) AS running, delay_cancel(key => 'r') AS pending, delay_cancel(key => 'r') AS running;
SELECT label FROM keys_effect WHERE label = 'old';
SELECT pg_advisory_unlock(1);
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel.running)');
SELECT label FROM keys_effect WHERE label = 'old';
SELECT delay_cancel(key => 'r');

-- a task that schedules its own key: a new one, each time
CREATE TABLE keys_round (n int);
INSERT INTO keys_round VALUES (0);
CREATE FUNCTION keys_again() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	UPDATE keys_round SET n = n + 1;
	INSERT INTO keys_effect VALUES ('cancel in itself: ' || delay_cancel(key => 'again') || ', ' || delay_cancel(key => 'another'));
	IF (SELECT n < 3 FROM keys_round) THEN
		PERFORM delay_schedule_task('SELECT keys_again()', key => 'again', if_exists => 'error');
	END IF;
END $$;
SELECT delay_schedule_task('SELECT keys_again()', key => 'again') > 0 AS ok;
SELECT pg_temp.wait_for('n = 3 FROM keys_round');
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel_data.task)');
SELECT label, count(*) FROM keys_effect WHERE label LIKE 'cancel%' GROUP BY 1;

--
-- Several rows of a key, written by a superuser's SQL: the newest is the task
--
INSERT INTO delay_wheel_data.task (id, due, sql, key, args, arg_types) SELECT nextval('delay_wheel_data.task_id_seq'), now() + interval '1 day', 'SELECT $1', 's', ARRAY['row ' || i], '{-}'
	FROM generate_series(1, 3) i;
SELECT min(id) AS lowest, max(id) AS highest FROM delay_wheel_data.task WHERE key = 's' \gset
SELECT n = :highest AS newest, what FROM pg_temp.pending('s');
SELECT delay_cancel(:lowest) AS gone, delay_reschedule(:lowest, '0') AS gone, pg_temp.add('s') = :highest AS kept;
-- they do not count, where that matters
SET delay_wheel.max_pending = 2;
SELECT pg_temp.add('s2') > :highest AS room;
SELECT pg_temp.add('s3') > :highest AS no_room;
SELECT pg_temp.add('s') = :highest AS keeping_needs_none, pg_temp.add('s2', 'replace') > :highest AS nor_does_replacing;
RESET delay_wheel.max_pending;
-- a superseded one is due: it has failed; nothing of it is run
BEGIN;
UPDATE delay_wheel_data.task SET due = now() - interval '1 second' WHERE id = :lowest;
COMMIT;
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel.failed WHERE id = %s)', :lowest));
SELECT id - :lowest AS n, sqlstate, message FROM delay_wheel.failed WHERE key = 's';
-- the newest is moved and cancelled: older ones do not come back
BEGIN;
SELECT delay_cancel(:highest);
SELECT count(*) FROM pg_temp.pending('s');
SELECT delay_cancel(key => 's') AS gone;
ROLLBACK;
SELECT delay_reschedule(:highest, '0');
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel_data.task WHERE key = ''s'')');
SELECT id - :lowest AS n, sqlstate, detail = format('It is task %s.', :highest) AS detail FROM delay_wheel.failed WHERE key = 's' ORDER BY id;
-- the newest is due: its claim removes them
INSERT INTO delay_wheel_data.task (id, due, sql, key) SELECT nextval('delay_wheel_data.task_id_seq'), now() + interval '1 day', 'SELECT 1', 's' FROM generate_series(1, 3) i;
SELECT max(id) AS highest FROM delay_wheel_data.task WHERE key = 's' \gset
UPDATE delay_wheel_data.task SET due = now() WHERE id = :highest;
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel_data.task WHERE key = ''s'')');
SELECT id - :highest AS n, sqlstate, detail = format('It is task %s.', :highest) AS detail FROM delay_wheel.failed WHERE key = 's' AND id > :highest - 3 ORDER BY id;
-- delay_cancel takes all of them
INSERT INTO delay_wheel_data.task (due, sql, key) SELECT now() + interval '1 day', 'SELECT 1', 's' FROM generate_series(1, 3) i;
SELECT delay_cancel(key => 's'), delay_cancel(key => 's');
SELECT count(*) FROM delay_wheel_data.task WHERE key = 's';

--
-- Of another origin, as after a restore: they are not run, so they keep nobody
-- from scheduling; armed, they have a newer one, or not
--
INSERT INTO delay_wheel_data.task (due, sql, key, origin, args, arg_types) SELECT now() + interval '1 day', 'SELECT $1', key, 1, '{restored}', '{-}' FROM unnest('{o1,o2,o3}'::text[]) key;
SELECT pg_temp.add('o1', what => 'scheduled here') > 0 AS new;
SELECT key, armed, args FROM delay_wheel.tasks WHERE key LIKE 'o_' ORDER BY 1;
SELECT delay_cancel(key => 'o2') AS an_unarmed_one;
SELECT delay_wheel.arm();
SELECT key, armed, args FROM delay_wheel.tasks WHERE key LIKE 'o_' ORDER BY 1;
SELECT delay_cancel(key => 'o1'), delay_cancel(key => 'o3');

SELECT count(delay_cancel(id)) AS left_over FROM delay_wheel.tasks;
SELECT count(*) FROM delay_wheel_data.task;
DELETE FROM delay_wheel_data.failed_task WHERE key IS NOT NULL;
DROP FUNCTION keys_again, keys_definer, keys_cancel_definer;
DROP TABLE keys_effect, keys_round;
DROP TYPE keys_pair, keys_mood;
DROP DOMAIN keys_positive;
REVOKE CREATE ON SCHEMA public FROM regress_dw_keys;
DROP ROLE regress_dw_keys;
