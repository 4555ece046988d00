--
-- SESSION
-- A task finds a fresh session, as if its role had just logged in: nothing
-- that a task before it has set or left is there. The commit is part of the
-- task, so there its settings are in force.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE ROLE regress_dw_session LOGIN;
CREATE ROLE regress_dw_session_group;
GRANT regress_dw_session_group TO regress_dw_session;
SELECT delay_wheel.allow('regress_dw_session');
ALTER ROLE regress_dw_session SET work_mem = '3MB';
CREATE TABLE session_effect (label text, value text, pid int DEFAULT pg_backend_pid());
GRANT ALL ON session_effect TO PUBLIC;
CREATE SEQUENCE session_seq;
GRANT ALL ON session_seq TO PUBLIC;

-- What a session is in; each line is a thing that could leak.
CREATE FUNCTION session_state() RETURNS TABLE (what text, value text) LANGUAGE sql AS $$
	SELECT s, current_setting(s, true) FROM unnest(ARRAY['work_mem', 'search_path', 'role', 'TimeZone', 'DateStyle',
		'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'default_transaction_isolation',
		'default_transaction_read_only', 'transaction_isolation', 'transaction_read_only', 'session_replication_role',
		'synchronous_commit', 'application_name', 'check_function_bodies', 'row_security', 'dw_session.own']) s
	UNION ALL SELECT 'current_user', current_user
	UNION ALL SELECT 'session_user', session_user
	UNION ALL SELECT 'temporary objects', count(*)::text FROM pg_class WHERE relnamespace = pg_my_temp_schema()
	UNION ALL SELECT 'temporary functions', count(*)::text FROM pg_proc WHERE pronamespace = pg_my_temp_schema()
	UNION ALL SELECT 'prepared statements', count(*)::text FROM pg_prepared_statements
	UNION ALL SELECT 'cursors', count(*)::text FROM pg_cursors WHERE name <> ''
	UNION ALL SELECT 'advisory locks', count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
	UNION ALL SELECT 'channels', count(*)::text FROM pg_listening_channels()
$$;

SET SESSION AUTHORIZATION regress_dw_session;
SELECT delay_schedule('0', $$INSERT INTO session_effect (label, value) SELECT 'fresh: ' || what, value FROM session_state()$$) > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT label, value FROM session_effect ORDER BY label COLLATE "C";

-- Each of these is followed by a look, in a task of its own. One is scheduled
-- when the executor is idle after the other, so all are in one process.
CREATE FUNCTION session_deferred() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('role', 'regress_dw_session_group', false), set_config('work_mem', '77MB', false),
		set_config('dw_session.own', 'deferred', false);
	CREATE TEMP TABLE session_of_trigger ();
	PERFORM pg_advisory_lock(4712);
	RETURN NULL;
END
$$;
CREATE TABLE session_deferred (i int);
GRANT ALL ON session_deferred TO PUBLIC;
CREATE CONSTRAINT TRIGGER session_deferred AFTER INSERT ON session_deferred DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION session_deferred();
-- a SELECT after each DECLARE: PostgreSQL's SPI fails an assertion when a
-- command without a snapshot of its own, such as FETCH, comes next
CREATE TABLE session_leavings (n int, label text, sql text);
INSERT INTO session_leavings VALUES
	(1, 'settings', $$SET work_mem = '99MB'; SET search_path = nowhere; SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German';
		SET statement_timeout = '1 h'; SET lock_timeout = '1 h'; SET idle_in_transaction_session_timeout = '1 h';
		SET default_transaction_isolation = serializable; SET synchronous_commit = off; SET application_name = 'mine';
		SET check_function_bodies = off; SET row_security = off; SET dw_session.own = 'set'; SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY;
		SET LOCAL dw_session.local = 'local'$$),
	(2, 'a role', 'SET ROLE regress_dw_session_group'),
	(3, 'a role that was reset to another', 'SET ROLE regress_dw_session_group; RESET ROLE; SET SESSION AUTHORIZATION DEFAULT; SET LOCAL ROLE regress_dw_session_group'),
	(4, 'a read only transaction', 'SET TRANSACTION READ ONLY'),
	(5, 'temporary objects', 'CREATE TEMP TABLE session_temp AS SELECT 1 AS i; CREATE TEMP VIEW session_view AS SELECT 1 AS i; CREATE TEMP SEQUENCE session_temp_seq; CREATE FUNCTION pg_temp.session_f() RETURNS int LANGUAGE sql AS ''SELECT 1'''),
	(6, 'a prepared statement', 'PREPARE session_prepared AS SELECT $1 + 1'),
	(7, 'an advisory lock', 'SELECT pg_advisory_lock(4711), pg_advisory_lock(4711), pg_advisory_lock_shared(1, 2)'),
	(8, 'a cursor', 'DECLARE session_cursor CURSOR WITH HOLD FOR SELECT repeat(''x'', 1000) || i FROM generate_series(1, 20000) i; SELECT 1; FETCH 3 FROM session_cursor; DECLARE session_cursor2 CURSOR FOR SELECT 1'),
	(9, 'what a deferred trigger did', 'INSERT INTO session_deferred VALUES (1)'),
	(10, 'all of it, and an error', $$SET work_mem = '99MB'; CREATE TEMP TABLE session_temp2 (); PREPARE session_prepared2 AS SELECT 1;
		SELECT pg_advisory_lock(4713); DECLARE session_cursor3 CURSOR WITH HOLD FOR SELECT 1; SELECT 1; SET ROLE regress_dw_session_group; SELECT 1 / 0$$),
	(11, 'an error at the commit, of a cursor', 'DECLARE session_cursor4 CURSOR WITH HOLD FOR SELECT 1 / (3 - i) FROM generate_series(1, 5) i; SELECT 1; PREPARE session_prepared3 AS SELECT 1; SELECT pg_advisory_lock(4714)'),
	(12, 'a value of a sequence', 'SELECT nextval(''session_seq'')');
SELECT n, label FROM session_leavings ORDER BY n;

DO $do$
DECLARE
	l record;
	deadline timestamptz := clock_timestamp() + interval '180 seconds';
BEGIN
	FOR l IN SELECT * FROM session_leavings ORDER BY n LOOP
		SET LOCAL SESSION AUTHORIZATION regress_dw_session;
		PERFORM delay_schedule('0', l.sql);
		RESET SESSION AUTHORIZATION;
		COMMIT;
		WHILE clock_timestamp() < deadline AND (EXISTS (SELECT FROM delay_wheel_data.task) OR EXISTS (SELECT FROM delay_wheel.running)) LOOP
			PERFORM pg_sleep(0.01);
		END LOOP;
		SET LOCAL SESSION AUTHORIZATION regress_dw_session;
		PERFORM delay_schedule('0', 'INSERT INTO session_effect (label, value) SELECT $1 || '': '' || what, value FROM session_state()', l.n::text);
		RESET SESSION AUTHORIZATION;
		COMMIT;
		WHILE clock_timestamp() < deadline AND (EXISTS (SELECT FROM delay_wheel_data.task) OR EXISTS (SELECT FROM delay_wheel.running)) LOOP
			PERFORM pg_sleep(0.01);
		END LOOP;
	END LOOP;
END
$do$;
SELECT count(DISTINCT split_part(label, ':', 1)) AS looks, count(DISTINCT pid) AS processes FROM session_effect WHERE label NOT LIKE 'fresh%';
-- (the name of a setting of one's own stays known, with an empty value)
SELECT l.n, l.label, e.label AS leaked, e.value
	FROM session_effect e JOIN session_leavings l ON l.n::text = split_part(e.label, ':', 1)
	JOIN session_effect fresh ON fresh.label = 'fresh:' || split_part(e.label, ':', 2)
	WHERE coalesce(e.value, '') <> coalesce(fresh.value, '') ORDER BY 1, 3;
SELECT sqlstate, message FROM delay_wheel.failed ORDER BY id;
DELETE FROM delay_wheel_data.failed_task;
-- nor is there a current value of a sequence
SET SESSION AUTHORIZATION regress_dw_session;
SELECT delay_schedule('0', 'SELECT currval(''session_seq'')') > 0 AS ok;
SELECT delay_schedule('0', 'SELECT lastval()') > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT sqlstate, message FROM delay_wheel.failed ORDER BY id;
DELETE FROM delay_wheel_data.failed_task;

-- The commit belongs to the task: deferred triggers see what it has set, and
-- the search_path that was kept for it.
CREATE FUNCTION session_see() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.session_effect VALUES ('at the commit ' || NEW.i,
		concat_ws(', ', current_setting('work_mem'), current_setting('search_path'), current_user, current_setting('synchronous_commit')));
	RETURN NULL;
END
$$;
CREATE TABLE session_see (i int);
GRANT ALL ON session_see TO PUBLIC;
CREATE CONSTRAINT TRIGGER session_see AFTER INSERT ON session_see DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION session_see();
SET SESSION AUTHORIZATION regress_dw_session;
SELECT delay_schedule('0', 'INSERT INTO public.session_see VALUES (1)') > 0 AS ok;
SET search_path = pg_catalog, public;
SELECT public.delay_schedule('0', 'INSERT INTO public.session_see VALUES (2)') > 0 AS ok;
RESET search_path;
SELECT delay_schedule('0', 'SET work_mem = ''5MB''; SET LOCAL search_path = pg_catalog; SET synchronous_commit = off; SET ROLE regress_dw_session_group; INSERT INTO public.session_see VALUES (3)') > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT label, value FROM session_effect WHERE label LIKE 'at the commit%' ORDER BY 1;

-- A task knows which one it is; a client is none.
CREATE TABLE session_task (id text);
SELECT delay_schedule('0', $$INSERT INTO session_task VALUES (current_setting('delay_wheel.task_id'))$$) AS id \gset
SELECT pg_temp.wait_until_done();
SELECT id = :'id' AS same, current_setting('delay_wheel.task_id') = '' AS none_here FROM session_task;
SET delay_wheel.task_id = 1;

DROP TABLE session_effect, session_leavings, session_deferred, session_see, session_task;
DROP SEQUENCE session_seq;
DROP FUNCTION session_state, session_deferred, session_see;
SELECT delay_wheel.disallow('regress_dw_session');
DROP ROLE regress_dw_session, regress_dw_session_group;
