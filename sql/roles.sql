--
-- ROLES
-- A task runs as the role that was current when it was scheduled, in a session
-- that never was anything more; each role sees its own tasks only.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE ROLE regress_dw_alice LOGIN;
CREATE ROLE regress_dw_bob LOGIN;
CREATE ROLE "regress_dw Quoted ""Role" LOGIN;
SELECT delay_wheel.allow('regress_dw_alice', 'regress_dw_bob', 'regress_dw Quoted "Role');
CREATE TABLE roles_effect (label text, who text DEFAULT current_user, session text DEFAULT session_user, path text DEFAULT current_setting('search_path'));
GRANT INSERT ON roles_effect TO regress_dw_alice, regress_dw_bob, "regress_dw Quoted ""Role";
CREATE TABLE roles_secret (i int);

-- by session, by SET ROLE, in the code of another role
SET SESSION AUTHORIZATION regress_dw_alice;
SELECT delay_schedule('0', $$INSERT INTO roles_effect VALUES ('1 session')$$) > 0 AS ok;
RESET SESSION AUTHORIZATION;
SET ROLE regress_dw_bob;
SELECT delay_schedule('0', $$INSERT INTO roles_effect VALUES ('2 set role')$$) > 0 AS ok;
RESET ROLE;
SET SESSION AUTHORIZATION "regress_dw Quoted ""Role";
SELECT delay_schedule('0', $$INSERT INTO roles_effect VALUES ('3 quoted')$$) > 0 AS ok;
RESET SESSION AUTHORIZATION;
CREATE FUNCTION roles_definer() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS
	$$SELECT delay_schedule('0', 'INSERT INTO roles_effect VALUES (''4 definer'')')$$;
ALTER FUNCTION roles_definer OWNER TO regress_dw_bob;
CREATE FUNCTION roles_definer_path() RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public AS
	$$SELECT delay_schedule('0', 'INSERT INTO roles_effect VALUES (''5 definer with search_path'')')$$;
ALTER FUNCTION roles_definer_path OWNER TO regress_dw_bob;
SET SESSION AUTHORIZATION regress_dw_alice;
SELECT roles_definer() > 0 AND roles_definer_path() > 0 AS ok;
-- the definer's are not alice's
SELECT count(*) FROM delay_wheel.tasks WHERE owner <> current_user;
SET search_path = public, pg_temp;
SELECT delay_schedule('0', $$INSERT INTO roles_effect VALUES ('6 own search_path')$$) > 0 AS ok;
SET search_path = '';
SELECT public.delay_schedule('0', $$INSERT INTO public.roles_effect VALUES ('7 empty search_path')$$) > 0 AS ok;
RESET search_path;
SELECT delay_schedule('0', $$INSERT INTO roles_effect VALUES ('8 search_path reset')$$) > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
-- a default of the role is found by the task itself, as it is then
ALTER ROLE regress_dw_bob SET search_path = public, information_schema;
SET SESSION AUTHORIZATION regress_dw_bob;
SELECT delay_schedule('0', $$SELECT 1$$) > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT * FROM roles_effect ORDER BY label COLLATE "C";

-- no more rights than the role's, and no way to any
SELECT nextval('delay_wheel_data.task_id_seq') AS before \gset
SET SESSION AUTHORIZATION regress_dw_alice;
SELECT delay_schedule('0', sql) > 0 AS ok FROM unnest(ARRAY[
	'INSERT INTO roles_secret VALUES (1)',
	'RESET ROLE; INSERT INTO roles_secret VALUES (2)',
	'RESET SESSION AUTHORIZATION; INSERT INTO roles_secret VALUES (3)',
	'SET SESSION AUTHORIZATION DEFAULT; INSERT INTO roles_secret VALUES (4)',
	'RESET ALL; INSERT INTO roles_secret VALUES (5)',
	'DISCARD TEMP; SELECT set_config(''role'', ''none'', false); INSERT INTO roles_secret VALUES (6)',
	'SET ROLE regress_dw_bob',
	'SET SESSION AUTHORIZATION regress_dw_bob',
	'SELECT * FROM delay_wheel_data.task',
	'SELECT * FROM delay_wheel_data.failed_task',
	'SELECT * FROM delay_wheel_data.prepared',
	'DELETE FROM delay_wheel_data.task',
	'SELECT nextval(''delay_wheel_data.task_id_seq'')',
	'INSERT INTO delay_wheel_data.task (due, owner, sql) VALUES (now(), ''regress_dw_bob'', ''SELECT 1'')'
	]) sql;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
-- minors differ in whether they say which role it was
SELECT sql, sqlstate, replace(message, ' authorization "regress_dw_bob"', ' authorization') AS message
FROM delay_wheel.failed WHERE id > :before ORDER BY id;
SELECT count(*) FROM roles_secret;

-- the views show one's own, and those of roles that one is a member of
SET SESSION AUTHORIZATION regress_dw_alice;
SELECT delay_schedule('1 hour', 'SELECT ''alice''') AS alice \gset
SET SESSION AUTHORIZATION regress_dw_bob;
SELECT delay_schedule('1 hour', 'SELECT ''bob''') AS bob \gset
SELECT owner, sql, queue, priority, attempts, armed FROM delay_wheel.tasks;
SELECT count(*) FROM delay_wheel.failed;
SET SESSION AUTHORIZATION regress_dw_alice;
SELECT owner, sql FROM delay_wheel.tasks;
SELECT count(*) > 0 AS failed, count(DISTINCT owner) AS owners FROM delay_wheel.failed;
-- nor does a leaky function see more
CREATE FUNCTION pg_temp.tell(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$BEGIN RAISE NOTICE 'saw %', $1; RETURN true; END$$;
SELECT count(*) FROM delay_wheel.tasks WHERE pg_temp.tell(sql);
DROP FUNCTION pg_temp.tell;
RESET SESSION AUTHORIZATION;
SELECT oid AS tasks FROM pg_class WHERE oid = 'delay_wheel_data.task'::regclass \gset
SELECT reltoastrelid AS toast FROM pg_class WHERE oid = 'delay_wheel_data.failed_task'::regclass \gset
-- a cursor has the rights of who reads it first, as always with row level security that asks for the current user: rows that
-- are sorted are all read then; for one that is read later its reader needs the right, too
BEGIN;
CREATE FUNCTION pg_temp.skip(c refcursor) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN MOVE 1 FROM c; END';
SET LOCAL SESSION AUTHORIZATION regress_dw_alice;
DECLARE c CURSOR FOR SELECT owner, sql FROM delay_wheel.tasks ORDER BY sql;
SELECT pg_temp.skip('c');
FETCH ALL FROM c;
CLOSE c;
CREATE FUNCTION pg_temp.owners(c refcursor) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	t record;
BEGIN
	LOOP
		FETCH c INTO t;
		EXIT WHEN NOT FOUND;
		RETURN NEXT t.owner;
	END LOOP;
END $$;
DECLARE c CURSOR FOR SELECT owner, sql FROM delay_wheel.tasks;
SELECT pg_temp.skip('c');
SELECT count(*) AS of_bob FROM pg_temp.owners('c') WHERE owners = 'regress_dw_bob';
ROLLBACK;
SELECT owner, sql FROM delay_wheel.tasks WHERE id IN (:alice, :bob) ORDER BY id;
GRANT pg_read_all_data TO regress_dw_alice;
SET SESSION AUTHORIZATION regress_dw_alice;
SELECT owner, sql FROM delay_wheel.tasks WHERE id IN (:alice, :bob) ORDER BY id;
-- reading is not changing
SELECT code FROM pg_temp.error_of(format('SELECT delay_cancel(%s)', :bob));
RESET SESSION AUTHORIZATION;
REVOKE pg_read_all_data FROM regress_dw_alice;
GRANT regress_dw_bob TO regress_dw_alice;
SET SESSION AUTHORIZATION regress_dw_alice;
SELECT owner, sql FROM delay_wheel.tasks WHERE id IN (:alice, :bob) ORDER BY id;
RESET SESSION AUTHORIZATION;
SELECT delay_cancel(:alice), delay_cancel(:bob);

-- who has lost a right until the task is due, does not have it then
CREATE TABLE roles_revoked (i int);
GRANT ALL ON roles_revoked TO regress_dw_bob;
SELECT nextval('delay_wheel_data.task_id_seq') AS before \gset
BEGIN;
SET LOCAL SESSION AUTHORIZATION regress_dw_bob;
SELECT delay_schedule('0', 'INSERT INTO roles_revoked VALUES (1)') > 0 AS ok;
RESET SESSION AUTHORIZATION;
REVOKE ALL ON roles_revoked FROM regress_dw_bob;
COMMIT;
SELECT pg_temp.wait_until_done();
SELECT owner, sqlstate, message FROM delay_wheel.failed WHERE id > :before;

-- who cannot drop a role is not to learn whether it has tasks: statistics of the own transaction tell what was read
REVOKE regress_dw_bob FROM regress_dw_alice;
BEGIN;
SET LOCAL SESSION AUTHORIZATION regress_dw_alice;
SELECT idx_scan AS scans FROM pg_stat_xact_all_tables WHERE relid = :tasks \gset
SAVEPOINT s;
\set VERBOSITY terse
DROP ROLE regress_dw_bob;
\set VERBOSITY default
ROLLBACK TO s;
SELECT idx_scan - :scans AS scans FROM pg_stat_xact_all_tables WHERE relid = :tasks;
ROLLBACK;

-- failed tasks of others are not compared, however large a value is
BEGIN;
INSERT INTO delay_wheel_data.failed_task (id, failed_at, due, origin, owner, queue, priority, attempts, sqlstate, message, sql, tag)
	SELECT nextval('delay_wheel_data.task_id_seq'), now(), now(), delay_wheel_internal.origin(), 'regress_dw_bob', 0, 0, 1, '22012', left(v, 900), left(v, 900), left(v, 1000)
	FROM (SELECT string_agg(md5(i::text), '') AS v FROM generate_series(1, 32) i) t;
SET LOCAL SESSION AUTHORIZATION regress_dw_alice;
SELECT idx_scan AS scans FROM pg_stat_xact_all_tables WHERE relid = :toast \gset
SELECT delay_discard_all(tag => repeat('x', 1000)), delay_retry_all(tag => repeat('x', 1000));
SELECT idx_scan - :scans AS scans FROM pg_stat_xact_all_tables WHERE relid = :toast;
RESET SESSION AUTHORIZATION;
SELECT delay_discard_all(tag => repeat('x', 1000));
SELECT idx_scan > :scans AS compared FROM pg_stat_xact_all_tables WHERE relid = :toast;
ROLLBACK;

DELETE FROM delay_wheel_data.failed_task;
DROP FUNCTION roles_definer, roles_definer_path;
DROP TABLE roles_effect, roles_secret, roles_revoked;
SELECT delay_wheel.disallow('regress_dw_alice', 'regress_dw_bob', 'regress_dw Quoted "Role');
DROP ROLE regress_dw_alice, regress_dw_bob, "regress_dw Quoted ""Role";
