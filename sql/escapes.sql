--
-- ESCAPES
-- What a role may try by way of a task to get rights that are not its own, or
-- to have others run what it wrote; each thing must come to nothing. What a
-- task leaves in its session is in session.sql, what plain SQL may write in
-- rights.sql.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
\set SHOW_CONTEXT never

CREATE ROLE regress_dw_mallory LOGIN;
CREATE ROLE regress_dw_victim LOGIN;
CREATE ROLE regress_dw_group;
GRANT regress_dw_group TO regress_dw_mallory;
CREATE ROLE regress_dw_boss LOGIN SUPERUSER;
-- and one whose sessions are made otherwise on PostgreSQL 15 and 16
CREATE ROLE regress_dw_nologin NOLOGIN;
GRANT regress_dw_group TO regress_dw_nologin;
SELECT delay_wheel.allow('regress_dw_mallory', 'regress_dw_nologin', 'regress_dw_victim', 'regress_dw_group');
CREATE SCHEMA escapes AUTHORIZATION regress_dw_mallory;
GRANT USAGE ON SCHEMA escapes TO PUBLIC;
-- only the victim and superusers can write here
CREATE TABLE escapes_loot (n int, who text DEFAULT current_user);
GRANT INSERT ON escapes_loot TO regress_dw_victim;
CREATE TABLE escapes_seen (label text, who text DEFAULT current_user, session text DEFAULT session_user, pid int DEFAULT pg_backend_pid());
GRANT ALL ON escapes_seen TO PUBLIC;

--
-- 1. Becoming somebody else.  Each task tries, and then writes the loot; where
-- that is to happen later, at the commit, it says so by itself.
--
SET SESSION AUTHORIZATION regress_dw_mallory;
CREATE FUNCTION escapes.at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE TG_ARGV[0];
	INSERT INTO public.escapes_loot VALUES (TG_ARGV[1]::int);
	RETURN NULL;
END $$;
CREATE TABLE escapes.deferred_role (i int);
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON escapes.deferred_role DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION escapes.at_commit('RESET ROLE', '101');
CREATE TABLE escapes.deferred_authorization (i int);
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON escapes.deferred_authorization DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION escapes.at_commit('SET SESSION AUTHORIZATION DEFAULT', '102');
CREATE TABLE escapes.deferred_nothing (i int);
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON escapes.deferred_nothing DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION escapes.at_commit('SELECT 1', '103');
CREATE TABLE escapes.deferred_as_group (i int);
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON escapes.deferred_as_group DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION escapes.at_commit('RESET ROLE', '104');
CREATE FUNCTION escapes.loot(n int, what text DEFAULT 'SELECT 1') RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE what;
	INSERT INTO public.escapes_loot VALUES (n);
	RETURN n;
END $$;
CREATE FUNCTION escapes.definer(n int, what text DEFAULT 'SELECT 1') RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	EXECUTE what;
	INSERT INTO public.escapes_loot VALUES (n);
	RETURN n;
END $$;
RESET SESSION AUTHORIZATION;
GRANT ALL ON SCHEMA escapes TO regress_dw_nologin;
GRANT INSERT ON ALL TABLES IN SCHEMA escapes TO regress_dw_nologin;
GRANT INSERT ON escapes.deferred_as_group TO regress_dw_group;

CREATE TABLE escapes_attack (n int, sql text);
INSERT INTO escapes_attack VALUES
	(0, 'SELECT 1'),
	(1, 'RESET ROLE'),
	(2, 'SET ROLE NONE'),
	(3, 'SET ROLE regress_dw_victim'),
	(4, 'SET LOCAL ROLE regress_dw_boss'),
	(5, 'SET SESSION AUTHORIZATION regress_dw_victim'),
	(6, 'SET SESSION AUTHORIZATION DEFAULT'),
	(7, 'RESET SESSION AUTHORIZATION'),
	(8, 'SET LOCAL SESSION AUTHORIZATION regress_dw_boss'),
	(9, 'SELECT set_config(''role'', ''none'', false)'),
	(10, 'SELECT set_config(''role'', ''regress_dw_victim'', true)'),
	(11, 'SELECT set_config(''session_authorization'', ''regress_dw_boss'', false)'),
	(12, 'UPDATE pg_settings SET setting = ''none'' WHERE name = ''role'''),
	(13, 'UPDATE pg_settings SET setting = ''regress_dw_victim'' WHERE name = ''role'''),
	(14, 'RESET ALL; DISCARD TEMP; DISCARD PLANS; DISCARD SEQUENCES'),
	(15, 'DO $d$BEGIN RESET ROLE; RESET SESSION AUTHORIZATION; END$d$'),
	(16, 'SET ROLE regress_dw_group; RESET ROLE'),
	(17, 'SET ROLE regress_dw_group; RESET SESSION AUTHORIZATION'),
	(18, 'SELECT escapes.definer(18)'),
	(19, 'SELECT escapes.definer(19, ''RESET ROLE'')'),
	(20, 'SELECT escapes.definer(20, ''SET SESSION AUTHORIZATION DEFAULT'')'),
	(21, 'CREATE FUNCTION escapes.f21() RETURNS int LANGUAGE sql SET role = regress_dw_victim AS ''SELECT escapes.loot(21)''; SELECT escapes.f21()'),
	(22, 'CREATE FUNCTION escapes.f22() RETURNS int LANGUAGE sql SET session_authorization = regress_dw_boss AS ''SELECT escapes.loot(22)''; SELECT escapes.f22()'),
	(23, 'CREATE FUNCTION escapes.f23() RETURNS int LANGUAGE sql SET role = none AS ''SELECT escapes.loot(23)''; SELECT escapes.f23()'),
	(24, 'ALTER FUNCTION escapes.definer OWNER TO regress_dw_victim'),
	(25, 'ALTER ROLE regress_dw_mallory SUPERUSER'),
	(26, 'GRANT regress_dw_victim TO regress_dw_mallory'),
	(27, 'GRANT INSERT ON escapes_loot TO regress_dw_mallory'),
	(28, 'ALTER ROLE regress_dw_mallory SET role = regress_dw_victim'),
	(29, 'ALTER ROLE regress_dw_victim SET role = regress_dw_mallory'),
	(30, 'ALTER DEFAULT PRIVILEGES FOR ROLE regress_dw_victim GRANT INSERT ON TABLES TO PUBLIC'),
	(31, 'SET session_replication_role = replica'),
	(32, 'SET delay_wheel.max_pending = -1'),
	(33, 'LOAD ''/nowhere'''),
	(34, 'CREATE FUNCTION escapes.c() RETURNS bigint AS ''delay_wheel'', ''dw_origin'' LANGUAGE C'),
	(35, 'COPY escapes_seen TO PROGRAM ''false'''),
	(36, 'SELECT pg_read_file(''postgresql.auto.conf'')'),
	(37, 'SELECT lo_import(''/etc/passwd'')'),
	(38, 'UPDATE pg_authid SET rolsuper = true'),
	(39, 'DECLARE c CURSOR WITH HOLD FOR SELECT escapes.loot(39, ''RESET ROLE'')'),
	(40, 'DECLARE c CURSOR WITH HOLD FOR SELECT escapes.loot(40, ''SET SESSION AUTHORIZATION DEFAULT'')'),
	(41, 'PREPARE p AS SELECT escapes.loot(41, ''RESET ROLE''); EXECUTE p'),
	(42, 'EXPLAIN ANALYZE SELECT escapes.loot(42, ''RESET ROLE'')'),
	(43, 'CREATE TEMP TABLE t (i int DEFAULT escapes.loot(43, ''RESET ROLE'')) ON COMMIT DELETE ROWS; INSERT INTO t DEFAULT VALUES'),
	(101, 'INSERT INTO escapes.deferred_role VALUES (1)'),
	(102, 'INSERT INTO escapes.deferred_authorization VALUES (1)'),
	(103, 'INSERT INTO escapes.deferred_nothing VALUES (1)'),
	(104, 'SET ROLE regress_dw_group; INSERT INTO escapes.deferred_as_group VALUES (1)');
CREATE FUNCTION pg_temp.attack_as(role name) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	a record;
	n bigint := 0;
BEGIN
	FOR a IN SELECT * FROM escapes_attack ORDER BY escapes_attack.n LOOP
		EXECUTE format('SET LOCAL SESSION AUTHORIZATION %I', role);
		PERFORM delay_schedule('0', a.sql || CASE WHEN a.n < 100 AND a.sql NOT LIKE 'DECLARE%'
			THEN format('; INSERT INTO public.escapes_loot VALUES (%s)', a.n) ELSE '' END);
		RESET SESSION AUTHORIZATION;
		n := n + 1;
	END LOOP;
	RETURN n;
END $$;
SELECT nextval('delay_wheel_data.task_id_seq') AS before \gset
SELECT pg_temp.attack_as('regress_dw_mallory') = count(*) AS all_of_them FROM escapes_attack;
SELECT pg_temp.attack_as('regress_dw_nologin') = count(*) AS all_of_them FROM escapes_attack;
SELECT pg_temp.wait_until_done();
SELECT a.sql AS succeeded, l.who FROM escapes_loot l JOIN escapes_attack a USING (n);
SELECT owner, count(*) = (SELECT count(*) FROM escapes_attack) AS all_failed FROM delay_wheel.failed WHERE id > :before GROUP BY owner ORDER BY 1;
SELECT owner, sql, sqlstate, message FROM delay_wheel.failed WHERE id > :before AND sqlstate <> '42501';
-- nothing of that has changed anything for others, or for the next task
SELECT rolname, rolsuper, rolconfig FROM pg_roles WHERE rolname ~ '^regress_dw_(mallory|victim|boss|nologin)' ORDER BY 1;
SELECT pg_has_role('regress_dw_mallory', 'regress_dw_victim', 'MEMBER') AS member;
-- the loot is there for those who may take it
SET SESSION AUTHORIZATION regress_dw_victim;
SELECT delay_schedule('0', 'INSERT INTO escapes_loot VALUES (1000)') > 0 AS ok;
SET SESSION AUTHORIZATION regress_dw_mallory;
SELECT delay_schedule('0', 'INSERT INTO escapes_seen VALUES (''after all'')') > 0 AS ok;
SET SESSION AUTHORIZATION regress_dw_nologin;
SELECT delay_schedule('0', 'INSERT INTO escapes_seen VALUES (''after all, NOLOGIN'')') > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT * FROM escapes_loot;
SELECT label, who FROM escapes_seen ORDER BY label COLLATE "C";
TRUNCATE escapes_loot, escapes_seen;
DELETE FROM delay_wheel_data.failed_task;

--
-- 2. Names: temporary objects that hide others, for the next task of the same
-- role and for another role's
--
CREATE FUNCTION escapes_name() RETURNS text LANGUAGE sql AS $$SELECT 'the real one'$$;
CREATE TABLE escapes_names (name text, who text DEFAULT current_user);
GRANT ALL ON escapes_names TO PUBLIC;
SET SESSION AUTHORIZATION regress_dw_mallory;
SELECT delay_schedule('0', $$
	CREATE TEMP TABLE escapes_names (name text, who text);
	CREATE TEMP TABLE pg_authid (rolname name, rolsuper boolean);
	CREATE FUNCTION pg_temp.escapes_name() RETURNS text LANGUAGE sql AS 'SELECT ''a wrong one'' || escapes.loot(201)';
	CREATE FUNCTION pg_temp.delay_schedule(interval, text) RETURNS bigint LANGUAGE sql AS 'SELECT escapes.loot(202)::bigint';
	SET search_path = pg_temp, public;
	INSERT INTO escapes_seen VALUES ('first')$$) > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel.running)');
SET SESSION AUTHORIZATION regress_dw_mallory;
SELECT delay_schedule('0', $$
	INSERT INTO escapes_names SELECT escapes_name();
	SELECT delay_schedule('0', 'INSERT INTO escapes_names VALUES (''a task''''s task'')');
	INSERT INTO escapes_seen VALUES ('second')$$) > 0 AS ok;
SET SESSION AUTHORIZATION regress_dw_victim;
SELECT delay_schedule('0', $$
	INSERT INTO escapes_names SELECT escapes_name();
	INSERT INTO escapes_seen VALUES ('other')$$) > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT pg_temp.wait_for('count(*) = 3 FROM escapes_names');
SELECT name, who FROM public.escapes_names ORDER BY name COLLATE "C", who;
SELECT * FROM escapes_loot;
SELECT count(DISTINCT pid) FILTER (WHERE label IN ('first', 'second')) AS processes_of_one, count(DISTINCT pid) > 1 AS another_process FROM escapes_seen;
SELECT sqlstate, message FROM delay_wheel_data.failed_task;

--
-- 3. search_path: operators and functions that come before those of pg_catalog
-- are met by nothing that delay_wheel itself does
--
GRANT CREATE ON DATABASE :DBNAME TO regress_dw_mallory;
SET SESSION AUTHORIZATION regress_dw_mallory;
CREATE SCHEMA regress_dw_evil;
CREATE FUNCTION regress_dw_evil.met(what text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'met: %', what;
END $$;
\set ECHO errors
SELECT format('CREATE FUNCTION regress_dw_evil.f(%1$s, %2$s) RETURNS boolean LANGUAGE sql IMMUTABLE AS ''SELECT regress_dw_evil.met(''''%1$s, %2$s'''')''', l, r)
	FROM (VALUES ('bigint', 'bigint'), ('smallint', 'smallint'), ('integer', 'integer'), ('oid', 'oid'), ('regrole', 'regrole'), ('timestamptz', 'timestamptz'),
		('text', 'text'), ('name', 'name'), ('name', 'text'), ('jsonb', 'text'), ('jsonb', 'jsonb'), ('boolean', 'boolean')) v(l, r) \gexec
SELECT format('CREATE OPERATOR regress_dw_evil.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = regress_dw_evil.f)', o, l, r)
	FROM (VALUES ('bigint', 'bigint'), ('smallint', 'smallint'), ('integer', 'integer'), ('oid', 'oid'), ('regrole', 'regrole'), ('timestamptz', 'timestamptz'),
		('text', 'text'), ('name', 'name'), ('name', 'text'), ('boolean', 'boolean')) v(l, r), unnest('{=,<>,<,<=,>,>=}'::text[]) o
	UNION ALL SELECT format('CREATE OPERATOR regress_dw_evil.->> (LEFTARG = jsonb, RIGHTARG = %s, FUNCTION = regress_dw_evil.f)', r) FROM unnest('{text,jsonb}'::text[]) r \gexec
\set ECHO all
CREATE FUNCTION regress_dw_evil.now() RETURNS timestamptz LANGUAGE sql AS $$SELECT CASE WHEN regress_dw_evil.met('now') THEN 'now'::timestamptz END$$;
CREATE FUNCTION regress_dw_evil.nextval(regclass) RETURNS bigint LANGUAGE sql AS $$SELECT CASE WHEN regress_dw_evil.met('nextval') THEN 1 END$$;
CREATE FUNCTION regress_dw_evil.pg_has_role(oid, text) RETURNS boolean LANGUAGE sql AS $$SELECT regress_dw_evil.met('pg_has_role')$$;
CREATE FUNCTION regress_dw_evil.isfinite(timestamptz) RETURNS boolean LANGUAGE sql AS $$SELECT regress_dw_evil.met('isfinite')$$;
CREATE DOMAIN regress_dw_evil.timestamptz AS text CHECK (regress_dw_evil.met('a type'));
CREATE TYPE regress_dw_evil.mood AS ENUM ('good');
CREATE TYPE regress_dw_evil.pair AS (a timestamptz, b regress_dw_evil.mood);
SET search_path = regress_dw_evil, pg_catalog, public;
SELECT delay_schedule('0', 'SELECT 1 / $1::text::int', '0') AS failing \gset
SELECT delay_schedule('0', 'INSERT INTO escapes_seen SELECT concat_ws('' '', ''evil'', $1, $2, $3)', '2026-01-01 00:00+00'::pg_catalog.timestamptz, ROW('2026-01-01', 'good')::pair, ARRAY['good']::mood[]) AS id1 \gset
SELECT delay_schedule('1 hour', 'SELECT 2') AS id2 \gset
SELECT delay_reschedule(:id2, '2 hours'), delay_cancel(:id2);
SELECT 1 AS looked FROM (SELECT count(t) FROM delay_wheel.tasks t) a, (SELECT count(f) FROM delay_wheel.failed f) b, (SELECT count(r) FROM delay_wheel.running r) c, (SELECT count(s) FROM delay_wheel.status s) d;
RESET search_path;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT label ~ '^evil 20' AS ran FROM escapes_seen WHERE label LIKE 'evil%';
SELECT id - :failing AS task, sqlstate, message FROM delay_wheel.failed ORDER BY id;
DELETE FROM delay_wheel_data.failed_task;
-- created into a schema that somebody else has prepared, the extension refers
-- to nothing there
BEGIN;
SET search_path = public;
DROP EXTENSION delay_wheel;
CREATE EXTENSION delay_wheel SCHEMA regress_dw_evil;
SELECT pg_describe_object(d.classid, d.objid, 0) AS object, pg_describe_object(d.refclassid, d.refobjid, 0) AS uses
	FROM pg_depend d
		JOIN LATERAL pg_identify_object(d.refclassid, d.refobjid, 0) r ON r.schema = 'regress_dw_evil'
		JOIN LATERAL pg_identify_object(d.classid, d.objid, 0) o ON o.schema = 'delay_wheel' OR o.identity LIKE '%delay\_wheel.%'
	WHERE d.deptype IN ('n', 'a', 'i');
SELECT count(*) > 5 AS compared FROM pg_depend d JOIN LATERAL pg_identify_object(d.refclassid, d.refobjid, 0) r ON r.schema = 'regress_dw_evil'
	JOIN LATERAL pg_identify_object(d.classid, d.objid, 0) o ON o.schema = 'regress_dw_evil' WHERE d.deptype = 'n';
ROLLBACK;

--
-- 4. Functions with the rights of others
--
-- the owner of a task is who runs the code that schedules it
CREATE FUNCTION escapes_of_victim(sql text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$BEGIN EXECUTE sql; RETURN delay_schedule('0', 'INSERT INTO escapes_seen VALUES (''of a definer'')'); END$$;
ALTER FUNCTION escapes_of_victim OWNER TO regress_dw_victim;
SET SESSION AUTHORIZATION regress_dw_mallory;
SELECT escapes_of_victim('SELECT 1') > 0 AS ok;
SELECT escapes_of_victim('RESET ROLE');
SELECT escapes_of_victim('SET SESSION AUTHORIZATION regress_dw_mallory');
-- in a task as well, and there is no way out of the function's rights
SELECT delay_schedule('0', 'SELECT escapes_of_victim(''RESET ROLE'')') AS id1 \gset
SELECT delay_schedule('0', 'SELECT escapes_of_victim(''SET ROLE regress_dw_mallory'')') AS id2 \gset
SELECT delay_schedule('0', 'SELECT escapes_of_victim(''SELECT 1''); INSERT INTO escapes_seen VALUES (''after a definer'')') AS id3 \gset
-- a function with a role of its own, of which the caller is a member
CREATE FUNCTION escapes.as_group() RETURNS bigint LANGUAGE sql SET role = regress_dw_group AS
	$$INSERT INTO public.escapes_seen VALUES ('as group'); SELECT public.delay_schedule('0', 'INSERT INTO escapes_seen VALUES (''scheduled as group'')')$$;
SELECT delay_schedule('0', 'SELECT escapes.as_group(); INSERT INTO escapes_seen VALUES (''after as group'')') > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_for(format('count(*) = 2 FROM delay_wheel.failed WHERE id IN (%s, %s)', :id1, :id2));
SELECT pg_temp.wait_until_done();
SELECT id - :id1 AS task, sqlstate, message FROM delay_wheel.failed ORDER BY id;
SELECT label, who FROM escapes_seen WHERE label ~ 'definer|group' ORDER BY label COLLATE "C", who;
DELETE FROM delay_wheel_data.failed_task;
-- a role that is another one by default: its tasks are its own nevertheless
CREATE ROLE regress_dw_default LOGIN IN ROLE regress_dw_group;
ALTER ROLE regress_dw_default SET role = regress_dw_group;
SELECT delay_wheel.allow('regress_dw_default');
SET SESSION AUTHORIZATION regress_dw_default;
SELECT delay_schedule('0', 'INSERT INTO escapes_seen VALUES (''role by default, 1'')') > 0 AS ok;
SELECT delay_schedule('0', 'INSERT INTO escapes_seen VALUES (''role by default, 2''); SET ROLE regress_dw_group') > 0 AS ok;
SELECT delay_schedule('0', 'INSERT INTO escapes_seen VALUES (''role by default, 3'')') > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT label, who, session FROM escapes_seen WHERE label LIKE 'role by default%' ORDER BY label COLLATE "C";
-- nor does it help to say so of a role that is not granted
CREATE ROLE regress_dw_mallory2 LOGIN;
SELECT delay_wheel.allow('regress_dw_mallory2');
SET SESSION AUTHORIZATION regress_dw_mallory2;
SET client_min_messages = warning;
ALTER ROLE regress_dw_mallory2 SET role = regress_dw_victim;
ALTER ROLE regress_dw_mallory2 SET session_authorization = regress_dw_boss;
RESET client_min_messages;
SELECT delay_schedule('0', 'INSERT INTO escapes_seen SELECT ''mallory by default: '' || current_setting(''role'')') > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT label, who, session FROM escapes_seen WHERE label LIKE 'mallory by default%';

--
-- 5. Code of others that maintenance runs: it must not leave a task behind
--
SET SESSION AUTHORIZATION regress_dw_mallory;
CREATE FUNCTION escapes.expression(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN i; END';
CREATE TABLE escapes.maintained (i int, j int);
INSERT INTO escapes.maintained SELECT i, i FROM generate_series(1, 100) i;
CREATE INDEX maintained_idx ON escapes.maintained (escapes.expression(i));
CREATE VIEW escapes.view AS SELECT escapes.expression(i) AS i FROM escapes.maintained;
CREATE MATERIALIZED VIEW escapes.materialized AS SELECT * FROM escapes.view;
CREATE UNIQUE INDEX ON escapes.materialized (i);
SELECT delay_schedule('1 hour', 'SELECT 1') AS id \gset
CREATE TABLE escapes.what (call text);
CREATE OR REPLACE FUNCTION escapes.expression(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	EXECUTE 'SELECT ' || (SELECT call FROM escapes.what);
	RETURN i;
END $$;
RESET SESSION AUTHORIZATION;
CREATE FUNCTION pg_temp.maintain(command text, call text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	DELETE FROM escapes.what;
	INSERT INTO escapes.what VALUES (call);
	EXECUTE command;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
SELECT command, pg_temp.maintain(command, call)
	FROM unnest(ARRAY['CREATE INDEX ON escapes.maintained (escapes.expression(j))', 'ANALYZE escapes.maintained', 'REINDEX TABLE escapes.maintained',
			'CLUSTER escapes.maintained USING maintained_idx', 'REFRESH MATERIALIZED VIEW escapes.materialized', 'REFRESH MATERIALIZED VIEW CONCURRENTLY escapes.materialized']) command,
		unnest(ARRAY['public.delay_schedule(''0'', ''SELECT escapes.loot(301)'')', 'public.delay_schedule_at(now(), ''SELECT escapes.loot($1)'', 302)',
			format('public.delay_cancel(%s)', :id), format('public.delay_reschedule(%s, ''0'')', :id), format('public.delay_reschedule(%s, now())', :id),
			format('public.delay_update(%s, priority => 1)', :id)]) call;
INSERT INTO escapes.what VALUES ('public.delay_schedule(''0'', ''SELECT escapes.loot(303)'')');
VACUUM FULL escapes.maintained;
VACUUM (ANALYZE) escapes.maintained;
-- the owner's own statement may schedule in there, as may any statement of his
SET SESSION AUTHORIZATION regress_dw_mallory;
INSERT INTO escapes.maintained VALUES (101);
RESET SESSION AUTHORIZATION;
SELECT count(*) AS pending FROM delay_wheel_data.task WHERE due > now();
SELECT pg_temp.wait_until_done();
SELECT owner, sqlstate, message FROM delay_wheel.failed;
SELECT * FROM escapes_loot;
SELECT delay_cancel(:id);
DELETE FROM delay_wheel_data.failed_task;

--
-- 6. Tables of others: a task is a statement of its owner, and runs their
-- triggers with its owner's rights, as a statement in his session would
--
SET SESSION AUTHORIZATION regress_dw_mallory;
CREATE TABLE escapes.bait (i int);
GRANT ALL ON escapes.bait TO PUBLIC;
CREATE FUNCTION escapes.bait() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO public.escapes_seen VALUES ('a trigger of the table''s owner'); RETURN NULL; END$$;
CREATE TRIGGER bait AFTER INSERT ON escapes.bait FOR EACH ROW EXECUTE FUNCTION escapes.bait();
CREATE CONSTRAINT TRIGGER bait_deferred AFTER INSERT ON escapes.bait DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION escapes.bait();
SELECT delay_schedule('0', 'INSERT INTO escapes.bait VALUES (1)') > 0 AS ok;
SET SESSION AUTHORIZATION regress_dw_boss;
SELECT delay_schedule('0', 'INSERT INTO escapes.bait VALUES (1)') > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT label, who, session, count(*) FROM escapes_seen WHERE label LIKE 'a trigger of%' GROUP BY 1, 2, 3 ORDER BY who COLLATE "C";

--
-- 7. A task's own row, and what is left of a superuser's
--
SET SESSION AUTHORIZATION regress_dw_mallory;
SELECT delay_schedule('0', $$INSERT INTO escapes_seen SELECT concat_ws(' ', 'itself:', delay_cancel(i), delay_reschedule(i, '1 hour'), delay_reschedule(i, now()), (SELECT count(*) FROM delay_wheel.tasks WHERE id = i))
	FROM (SELECT current_setting('delay_wheel.task_id')::bigint) v(i)$$) > 0 AS ok;
SELECT delay_schedule('0', 'SET delay_wheel.task_id = 1') AS id \gset
SET SESSION AUTHORIZATION regress_dw_boss;
SELECT delay_schedule('0', 'SET SESSION AUTHORIZATION regress_dw_mallory; INSERT INTO escapes_seen VALUES (''boss as another'')') > 0 AS ok;
SELECT delay_schedule('0', 'INSERT INTO escapes_seen VALUES (''boss again'')') > 0 AS ok;
SELECT delay_schedule('0', 'SET ROLE regress_dw_mallory; SELECT 1 / 0') > 0 AS ok;
SELECT delay_schedule('0', 'INSERT INTO escapes_seen VALUES (''boss again'')') > 0 AS ok;
-- by plain SQL a superuser's task may write its own row anew: another task
SELECT delay_schedule('0', $$INSERT INTO delay_wheel_data.task (id, due, sql) VALUES (current_setting('delay_wheel.task_id')::bigint, now(), 'INSERT INTO escapes_seen VALUES (''reborn'')');
	UPDATE delay_wheel_data.task SET due = now() WHERE id = current_setting('delay_wheel.task_id')::bigint;
	INSERT INTO escapes_seen VALUES ('born')$$) > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT label, who FROM escapes_seen WHERE label ~ '^(itself|boss|born|reborn)' ORDER BY label COLLATE "C";
SELECT sqlstate, message FROM delay_wheel.failed ORDER BY id;
DELETE FROM delay_wheel_data.failed_task;

--
-- 8. Types of others: a polymorphic function of the victim passes a value on,
-- whose type has a CHECK of mallory's.  Reading it again gives him no rights, and the
-- value arrives.
--
SET SESSION AUTHORIZATION regress_dw_mallory;
CREATE FUNCTION escapes.is_fine(i int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('search_path', 'escapes, public', false);
	BEGIN
		SET CONSTRAINTS ALL IMMEDIATE;
		IF session_user <> 'regress_dw_mallory' THEN
			INSERT INTO public.escapes_seen VALUES ('SET CONSTRAINTS was let through');
		END IF;
	EXCEPTION WHEN insufficient_privilege THEN
	END;
	INSERT INTO public.escapes_loot VALUES (801);
	RETURN true;
EXCEPTION WHEN insufficient_privilege THEN
	RETURN true;
END $$;
CREATE DOMAIN escapes.small AS int CHECK (escapes.is_fine(VALUE));
CREATE DOMAIN escapes.smaller AS escapes.small;
CREATE DOMAIN escapes.some AS escapes.small[];
CREATE TYPE escapes.pair AS (a escapes.small, b text);
CREATE TYPE escapes.nested AS (p escapes.pair[]);
CREATE TYPE escapes.span AS RANGE (subtype = escapes.small);
CREATE TABLE escapes.wide (i escapes.smaller, t text);
SET SESSION AUTHORIZATION regress_dw_boss;
CREATE TYPE public.escapes_pair AS (a escapes.small);
RESET SESSION AUTHORIZATION;
GRANT CREATE ON SCHEMA public TO regress_dw_victim;
SET SESSION AUTHORIZATION regress_dw_victim;
CREATE FUNCTION public.escapes_note_later(x anyelement) RETURNS boolean LANGUAGE sql SECURITY DEFINER SET search_path = public AS
	$$SELECT delay_schedule('0', 'SET CONSTRAINTS ALL IMMEDIATE; INSERT INTO escapes_seen (label) SELECT format(''type %s %s %s'', pg_typeof($1), $1, current_setting(''search_path''))', x) > 0$$;
RESET SESSION AUTHORIZATION;
REVOKE CREATE ON SCHEMA public FROM regress_dw_victim;
CREATE FUNCTION escapes.is_own(i int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF session_user = current_user THEN
		INSERT INTO public.escapes_seen VALUES ('own check');
	END IF;
	RETURN true;
END $$;
CREATE DOMAIN public.escapes_own AS int CHECK (escapes.is_own(VALUE));
ALTER DOMAIN public.escapes_own OWNER TO regress_dw_victim;
SET SESSION AUTHORIZATION regress_dw_mallory;
SELECT public.escapes_note_later(1::escapes.small), public.escapes_note_later(2::escapes.smaller), public.escapes_note_later('{3}'::escapes.small[]),
	public.escapes_note_later('{4}'::escapes.some), public.escapes_note_later('(5,x)'::escapes.pair), public.escapes_note_later('{"(6,y)"}'::escapes.pair[]),
	public.escapes_note_later(ROW(ARRAY['(7,z)'::escapes.pair])::escapes.nested), public.escapes_note_later('[8,9]'::escapes.span),
	public.escapes_note_later('{[10,11]}'::escapes.span_multirange), public.escapes_note_later(ROW(12, 't')::escapes.wide),
	public.escapes_note_later('(13)'::public.escapes_pair), public.escapes_note_later(14::public.escapes_own);
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
-- she may be one of his members: he has none of her rights by that
GRANT regress_dw_mallory TO regress_dw_victim;
SET SESSION AUTHORIZATION regress_dw_mallory;
SELECT public.escapes_note_later(15::escapes.small);
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
REVOKE regress_dw_mallory FROM regress_dw_victim;
SELECT sql, sqlstate, message FROM delay_wheel.failed;
SELECT * FROM escapes_loot;
-- who gives such a task other arguments reads them as its types, which he has not chosen
SET SESSION AUTHORIZATION regress_dw_mallory;
CREATE TABLE escapes.updated AS SELECT delay_schedule('1 day', 'SELECT $1', 1::escapes.small) AS a, delay_schedule('1 day', 'SELECT $1', '{3}'::escapes.small[]) AS b,
	delay_schedule('1 day', 'SELECT $1', '{4}'::escapes.some) AS c, delay_schedule('1 day', 'SELECT $1', ROW(ARRAY['(7,z)'::escapes.pair])::escapes.nested) AS d,
	delay_schedule('1 day', 'SELECT $1', '[8,9]'::escapes.span) AS e, delay_schedule('1 day', 'SELECT $1', '(13)'::public.escapes_pair) AS f;
SET SESSION AUTHORIZATION regress_dw_boss;
SELECT delay_update(a, args => '{2}'), delay_update(b, args => '{"{2}"}'), delay_update(c, args => '{"{2}"}'), delay_update(d, args => '{"(\"{\"\"(2,z)\"\"}\")"}'),
	delay_update(e, args => '{"[2,3]"}'), delay_update(f, args => '{(2)}') FROM escapes.updated;
SELECT delay_update(a, args => '{NULL}') FROM escapes.updated;
SELECT args FROM delay_wheel.tasks ORDER BY id;
SELECT delay_cancel(id) FROM delay_wheel.tasks;
RESET SESSION AUTHORIZATION;
SELECT * FROM escapes_loot;
SELECT label, who, session FROM escapes_seen WHERE label ~ '^(type|own check|SET CONSTRAINTS)' ORDER BY label COLLATE "C", who COLLATE "C";

--
-- 9. Messages.  A superuser receives them, and ends them; what follows runs as the sender.
--
SELECT delay_wheel.create_queue('escapes_post', external => true, users => '{regress_dw_mallory}');
SET SESSION AUTHORIZATION regress_dw_mallory;
SELECT delay_send('escapes_post', '1', options => jsonb_build_object('on_success', sql, 'on_failure', sql)) > 0 AS sent
	FROM unnest(ARRAY['RESET ROLE', 'SET SESSION AUTHORIZATION DEFAULT', 'SET ROLE regress_dw_boss']) attack, format('SELECT escapes.loot(801, %L)', attack) sql;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_for($$(SELECT ready = 3 FROM delay_wheel.queues WHERE name = 'escapes_post')$$);
BEGIN;
SELECT payload FROM delay_receive('escapes_post', autocommit => true);
SELECT delay_fail(id, error => '''; RESET ROLE', give_up => true) AS failed FROM delay_receive('escapes_post', 2);
COMMIT;
SELECT pg_temp.wait_until_done();
SELECT payload, sqlstate, message FROM delay_wheel.failed WHERE sql LIKE '%801%' OR payload IS NOT NULL ORDER BY id;
SELECT * FROM escapes_loot;
SELECT delay_wheel.drop_queue('escapes_post');

SELECT delay_wheel.disallow('regress_dw_mallory', 'regress_dw_victim', 'regress_dw_default', 'regress_dw_mallory2', 'regress_dw_nologin', 'regress_dw_group');
SET client_min_messages = warning;
DROP OWNED BY regress_dw_mallory, regress_dw_nologin, regress_dw_group, regress_dw_victim CASCADE;
DROP SCHEMA IF EXISTS escapes CASCADE;
DROP TYPE escapes_pair;
DROP TABLE escapes_loot, escapes_seen, escapes_attack, escapes_names;
DROP FUNCTION escapes_name;
DROP ROLE regress_dw_mallory, regress_dw_victim, regress_dw_default, regress_dw_mallory2, regress_dw_nologin, regress_dw_boss, regress_dw_group;
