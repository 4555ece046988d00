--
-- RIGHTS
-- Who may schedule: nobody but superusers, until they are allowed to.  How
-- many tasks a role may have pending.  What they may who can write any table.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
\set SHOW_CONTEXT never

CREATE ROLE regress_dw_plain LOGIN;
CREATE ROLE regress_dw_group;
CREATE ROLE regress_dw_member LOGIN IN ROLE regress_dw_group;
CREATE ROLE "regress_dw Odd ""Name'" LOGIN;
CREATE TABLE rights_effect (label text, who text DEFAULT current_user);
GRANT ALL ON rights_effect TO PUBLIC;

-- the functions of the extension; what everybody may call beside those in its schema
CREATE VIEW rights_functions AS
	SELECT p.oid, p.oid::regprocedure AS function, 
			p.pronamespace = e.extnamespace OR (p.pronamespace = 'delay_wheel'::regnamespace
				AND p.proname IN ('pause_queue', 'resume_queue', 'create_queue', 'drop_queue', 'pause_database', 'resume_database', 'arm', 'follow_shards')) AS public
	FROM pg_extension e JOIN pg_depend d ON d.refobjid = e.oid AND d.deptype = 'e' JOIN pg_proc p ON p.oid = d.objid
	WHERE e.extname = 'delay_wheel' AND d.classid = 'pg_proc'::regclass;
SELECT function FROM rights_functions WHERE has_function_privilege('public', oid, 'EXECUTE') AND NOT public ORDER BY function::text COLLATE "C";

-- Calls each function in the schema given to CREATE EXTENSION, and those for administrators, with null for each argument, as a
-- role of the caller's choice.  None is forgotten: the catalog has the list
CREATE FUNCTION rights_calls(role name, OUT function text, OUT code text, OUT message text, OUT hint text)
	RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
	f record;
BEGIN
	FOR f IN
		SELECT p.oid::regprocedure::text AS function,
			CASE prokind WHEN 'p' THEN 'CALL ' ELSE 'SELECT ' END || p.oid::regproc || '('
				|| COALESCE((SELECT string_agg(format('NULL::%s', CASE t::regtype::text WHEN '"any"' THEN 'text' WHEN 'anycompatiblearray' THEN 'text[]' ELSE t::regtype::text END), ', ' ORDER BY n)
					FROM unnest(proargtypes::oid[]) WITH ORDINALITY a(t, n)), '') || ')' AS call
		FROM rights_functions JOIN pg_proc p USING (oid)
		WHERE public
		ORDER BY p.oid::regprocedure::text COLLATE "C"
	LOOP
		function := f.function;
		BEGIN
			EXECUTE format('SET LOCAL ROLE %I', role);
			EXECUTE f.call;
			code := '00000';
			message := 'called';
			hint := NULL;
			RESET ROLE;
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
		END;
		RETURN NEXT;
	END LOOP;
END $$;
SELECT code, message, hint, count(*) FROM rights_calls('regress_dw_plain') GROUP BY 1, 2, 3 ORDER BY 4 DESC, message COLLATE "C";
SELECT hint FROM rights_calls('regress_dw Odd "Name''') WHERE function = 'delay_cancel(bigint,boolean,boolean,text,text,boolean)';
SET SESSION AUTHORIZATION regress_dw_plain;
SELECT delay_schedule('0', 'SELECT 1');
SELECT delay_cancel(1);
-- looking is for all
SELECT count(*) FROM delay_wheel.tasks;

-- only for the owner of the view and superusers, also if granted
SELECT delay_wheel.allow('regress_dw_plain');
SELECT delay_wheel.disallow('regress_dw_plain');
RESET SESSION AUTHORIZATION;
GRANT EXECUTE ON FUNCTION delay_wheel.allow(name[]), delay_wheel.disallow(name[]) TO regress_dw_plain;
GRANT INSERT ON delay_wheel.tasks TO regress_dw_plain;
SET SESSION AUTHORIZATION regress_dw_plain;
SELECT delay_wheel.allow('regress_dw_member');
SELECT delay_wheel.disallow('regress_dw_plain');
RESET SESSION AUTHORIZATION;
REVOKE EXECUTE ON FUNCTION delay_wheel.allow(name[]), delay_wheel.disallow(name[]) FROM regress_dw_plain;
REVOKE INSERT ON delay_wheel.tasks FROM regress_dw_plain;

-- names
SELECT delay_wheel.allow('regress_dw_no_such_role');
SELECT delay_wheel.allow('regress_dw_plain', 'Regress_dw_plain');
SELECT delay_wheel.allow(NULL);
SELECT delay_wheel.allow('regress_dw_plain', NULL);
SELECT delay_wheel.allow(VARIADIC NULL);
SELECT delay_wheel.allow(VARIADIC '{}');
SELECT delay_wheel.disallow('regress_dw_no_such_role');
SELECT has_table_privilege('regress_dw_plain', 'delay_wheel.tasks', 'INSERT');

-- allowed: one role, several, a strange name; nothing of it through the
-- search_path of the caller
CREATE SCHEMA rights_path;
CREATE FUNCTION rights_path.wrong() RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'not this one'; END$$;
CREATE FUNCTION rights_path.wrong(name, text) RETURNS boolean LANGUAGE sql AS 'SELECT rights_path.wrong()';
CREATE FUNCTION rights_path.wrong(oid, oid) RETURNS boolean LANGUAGE sql AS 'SELECT rights_path.wrong()';
CREATE FUNCTION rights_path.string_agg(text, text) RETURNS text LANGUAGE sql AS 'SELECT rights_path.wrong()::text';
CREATE OPERATOR rights_path.= (LEFTARG = name, RIGHTARG = text, FUNCTION = rights_path.wrong);
CREATE OPERATOR rights_path.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = rights_path.wrong);
SET search_path = rights_path, pg_catalog, public;
SELECT public.delay_schedule('1 hour', 'SELECT 1') AS id \gset
SELECT delay_wheel.allow('regress_dw Odd "Name''', 'regress_dw_plain');
SELECT public.delay_reschedule(:id, '2 hours');
SELECT public.delay_cancel(:id);
RESET search_path;
SELECT r AS role, has_table_privilege(r, 'delay_wheel.tasks', 'INSERT') FROM unnest(ARRAY['regress_dw Odd "Name''', 'regress_dw_plain', 'regress_dw_member', 'public']::name[]) r ORDER BY r COLLATE "C";
-- it is the only one, and a role that has it may call each function but those for administrators
SELECT pg_describe_object(classid, objid, objsubid) FROM pg_shdepend WHERE refobjid = 'regress_dw_plain'::regrole AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database());
SELECT code, message FROM rights_calls('regress_dw_plain') WHERE code = '42501';
-- the view does not let anybody write
SET SESSION AUTHORIZATION regress_dw_plain;
SELECT command, e.code, e.message FROM unnest(ARRAY[
	$$INSERT INTO delay_wheel.tasks (sql) VALUES ('SELECT 1')$$, 'INSERT INTO delay_wheel.tasks DEFAULT VALUES',
	'INSERT INTO delay_wheel.tasks (id) VALUES (1) ON CONFLICT DO NOTHING', 'INSERT INTO delay_wheel.tasks SELECT * FROM delay_wheel.tasks',
	'UPDATE delay_wheel.tasks SET due = now()', 'DELETE FROM delay_wheel.tasks', 'LOCK delay_wheel.tasks IN ROW EXCLUSIVE MODE',
	'CREATE RULE r AS ON INSERT TO delay_wheel.tasks DO INSTEAD NOTHING',
	$$CREATE TRIGGER t INSTEAD OF INSERT ON delay_wheel.tasks FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('1 h', 'SELECT 1')$$]) command, pg_temp.error_of(command) e;
COPY delay_wheel.tasks FROM STDIN;
\.
RESET SESSION AUTHORIZATION;
SELECT count(*) FROM delay_wheel_data.task WHERE owner = 'regress_dw_plain'::regrole;
SET SESSION AUTHORIZATION "regress_dw Odd ""Name'";
SELECT delay_schedule('0', $$INSERT INTO rights_effect VALUES ('allowed')$$) > 0 AS ok;
SET SESSION AUTHORIZATION regress_dw_plain;
SELECT delay_schedule('1 hour', $$INSERT INTO rights_effect VALUES ('allowed once')$$) AS id \gset
SELECT delay_cancel(delay_schedule_at('2100-01-01', 'SELECT $1', 1));
RESET SESSION AUTHORIZATION;
-- what is pending runs, though its owner is not allowed any more
SELECT delay_wheel.disallow('regress_dw_plain');
SET SESSION AUTHORIZATION regress_dw_plain;
SELECT delay_schedule('0', 'SELECT 1');
SELECT delay_reschedule(:id, '0');
RESET SESSION AUTHORIZATION;
SELECT delay_reschedule(:id, '0');
-- by way of a group, of all, of plain GRANT
SELECT delay_wheel.allow('regress_dw_group');
SET SESSION AUTHORIZATION regress_dw_member;
SELECT delay_schedule('0', $$INSERT INTO rights_effect VALUES ('a member')$$) > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT delay_wheel.disallow('regress_dw_group');
SELECT delay_wheel.allow('public');
SET SESSION AUTHORIZATION regress_dw_plain;
SELECT delay_schedule('0', $$INSERT INTO rights_effect VALUES ('all are allowed')$$) > 0 AS ok;
RESET SESSION AUTHORIZATION;
-- those to whom a role has given the right on lose it with that role; one that keeps it by another way is named
GRANT INSERT ON delay_wheel.tasks TO regress_dw_group WITH GRANT OPTION;
SET ROLE regress_dw_group;
GRANT INSERT ON delay_wheel.tasks TO regress_dw_plain;
RESET ROLE;
SELECT delay_wheel.disallow('regress_dw_plain');
SELECT delay_wheel.disallow('public', 'regress_dw_plain');
SELECT delay_wheel.disallow('regress_dw_group');
SELECT has_table_privilege('regress_dw_plain', 'delay_wheel.tasks', 'INSERT') AS still_allowed;
SELECT delay_wheel.disallow('public', 'regress_dw Odd "Name''');
SELECT r AS still_allowed FROM unnest(ARRAY['regress_dw Odd "Name''', 'public']::name[]) r WHERE has_table_privilege(r, 'delay_wheel.tasks', 'INSERT');
GRANT INSERT ON delay_wheel.tasks TO regress_dw_plain;
SET SESSION AUTHORIZATION regress_dw_plain;
SELECT delay_schedule('0', $$INSERT INTO rights_effect VALUES ('by GRANT')$$) > 0 AS ok;
RESET SESSION AUTHORIZATION;
REVOKE INSERT ON delay_wheel.tasks FROM regress_dw_plain;

--
-- Whose right counts, and when: that of the current user, at the time of the call
--
-- granted and taken back in a transaction, and after savepoints
BEGIN;
SAVEPOINT s;
SELECT delay_wheel.allow('regress_dw_plain');
SET LOCAL ROLE regress_dw_plain;
SELECT delay_cancel(key => 'none');
ROLLBACK TO s;
SET LOCAL ROLE regress_dw_plain;
SELECT code FROM pg_temp.error_of($$SELECT delay_cancel(key => 'none')$$);
RESET ROLE;
SELECT delay_wheel.allow('regress_dw_plain');
SAVEPOINT s;
SELECT delay_wheel.disallow('regress_dw_plain');
SET LOCAL ROLE regress_dw_plain;
SELECT code FROM pg_temp.error_of($$SELECT delay_cancel(key => 'none')$$);
ROLLBACK TO s;
SET LOCAL ROLE regress_dw_plain;
SELECT delay_cancel(key => 'none');
ROLLBACK;
-- SET ROLE to one that may, and to one that may not
SELECT delay_wheel.allow('regress_dw_group');
GRANT regress_dw_plain TO regress_dw_group;
SET SESSION AUTHORIZATION regress_dw_member;
SELECT delay_cancel(key => 'none');
SET ROLE regress_dw_group;
SELECT delay_cancel(key => 'none');
SET ROLE regress_dw_plain;
SELECT delay_cancel(key => 'none');
RESET SESSION AUTHORIZATION;
REVOKE regress_dw_plain FROM regress_dw_group;
-- in a SECURITY DEFINER function that of its owner: also if the caller has it and the owner has not
CREATE FUNCTION rights_by_owner() RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$BEGIN RETURN delay_cancel(key => 'none'); END$$;
ALTER FUNCTION rights_by_owner OWNER TO regress_dw_group;
SET SESSION AUTHORIZATION regress_dw_plain;
SELECT rights_by_owner();
RESET SESSION AUTHORIZATION;
ALTER FUNCTION rights_by_owner OWNER TO regress_dw_plain;
SET SESSION AUTHORIZATION regress_dw_member;
SELECT rights_by_owner();
RESET SESSION AUTHORIZATION;
SELECT delay_wheel.disallow('regress_dw_group');
DROP FUNCTION rights_by_owner;
-- a task of a role whose right was taken back runs, and its follow-up, and a recurring one goes on;
-- what a task schedules itself is refused
SELECT delay_wheel.allow('regress_dw_plain');
SET SESSION AUTHORIZATION regress_dw_plain;
SELECT delay_schedule_task($$INSERT INTO rights_effect VALUES ('right taken back')$$, delay => '1 hour',
	options => jsonb_build_object('on_success', $$INSERT INTO rights_effect VALUES ('follow-up without right')$$)) AS with_follow_up \gset
SELECT delay_schedule('1 hour', $$SELECT delay_schedule('0', 'SELECT 1')$$) AS schedules \gset
SELECT delay_every('rights', '1 second', $$INSERT INTO rights_effect SELECT 'recurring without right' WHERE NOT has_table_privilege('delay_wheel.tasks', 'INSERT')$$) > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT delay_wheel.disallow('regress_dw_plain');
SELECT delay_reschedule(id, '0') FROM unnest(ARRAY[:with_follow_up, :schedules]) id;
SELECT pg_temp.wait_for($$count(*) >= 2 FROM rights_effect WHERE label = 'recurring without right'$$);
SELECT pg_temp.wait_for($$count(*) = 2 FROM rights_effect WHERE label IN ('right taken back', 'follow-up without right')$$);
SELECT pg_temp.wait_for(format('count(*) = 1 FROM delay_wheel.failed WHERE id = %s', :schedules));
SELECT sqlstate, message FROM delay_wheel.failed WHERE id = :schedules;
SET SESSION AUTHORIZATION regress_dw_plain;
SELECT code FROM pg_temp.error_of($$SELECT delay_unschedule('rights')$$);
RESET SESSION AUTHORIZATION;
SET ROLE regress_dw_plain;
SELECT code FROM pg_temp.error_of($$SELECT delay_pause_recurring('rights')$$);
RESET ROLE;
SELECT delay_wheel.allow('regress_dw_plain');
SET ROLE regress_dw_plain;
SELECT delay_unschedule('rights');
RESET ROLE;
SELECT delay_wheel.disallow('regress_dw_plain');
SELECT pg_temp.wait_until_done();
DELETE FROM rights_effect WHERE label = 'recurring without right';
DELETE FROM delay_wheel_data.failed_task;
-- who may write all tables may
CREATE ROLE regress_dw_writes_all IN ROLE pg_write_all_data;
SET SESSION AUTHORIZATION regress_dw_writes_all;
SELECT delay_cancel(key => 'none');
SELECT code, message FROM pg_temp.error_of($$INSERT INTO delay_wheel.tasks (sql) VALUES ('SELECT 1')$$);
RESET SESSION AUTHORIZATION;
DROP ROLE regress_dw_writes_all;

--
-- The schema of the functions
--
CREATE ROLE regress_dw_no_schema;
REVOKE USAGE ON SCHEMA public FROM PUBLIC;
SELECT delay_wheel.allow('regress_dw_no_schema');
SELECT has_schema_privilege('regress_dw_no_schema', 'public', 'USAGE') AS role, has_schema_privilege('public', 'public', 'USAGE') AS public;
SET SESSION AUTHORIZATION regress_dw_no_schema;
SELECT delay_cancel(key => 'none');
RESET SESSION AUTHORIZATION;
-- two lines: the right, and the schema
DROP ROLE regress_dw_no_schema;
SELECT delay_wheel.disallow('regress_dw_no_schema');
SELECT has_schema_privilege('regress_dw_no_schema', 'public', 'USAGE') AS role;
REVOKE USAGE ON SCHEMA public FROM regress_dw_no_schema;
SELECT delay_wheel.allow('public');
SELECT has_schema_privilege('public', 'public', 'USAGE') AS public;
SELECT delay_wheel.disallow('public');
-- who has it gets no grant of it: one line
SELECT delay_wheel.allow('regress_dw_no_schema');
DROP ROLE regress_dw_no_schema;
SELECT delay_wheel.disallow('regress_dw_no_schema');
DROP ROLE regress_dw_no_schema;

-- a SECURITY DEFINER trigger schedules as its owner, whoever writes the row
CREATE FUNCTION rights_definer() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
	PERFORM delay_schedule('0', 'INSERT INTO rights_effect VALUES ($1)', 'row of ' || NEW.who);
	RETURN NEW;
END $$;
ALTER FUNCTION rights_definer OWNER TO regress_dw_member;
SELECT delay_wheel.allow('regress_dw_member');
CREATE TABLE rights_order (who text DEFAULT session_user);
CREATE TRIGGER rights_definer BEFORE INSERT ON rights_order FOR EACH ROW EXECUTE FUNCTION rights_definer();
GRANT INSERT ON rights_order TO regress_dw_plain;
SET SESSION AUTHORIZATION regress_dw_plain;
INSERT INTO rights_order DEFAULT VALUES;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT * FROM rights_effect ORDER BY label COLLATE "C";

--
-- How many
--
SELECT delay_wheel.allow('regress_dw_plain');
SET SESSION AUTHORIZATION regress_dw_plain;
SET delay_wheel.max_pending = 1;
ALTER ROLE regress_dw_plain SET delay_wheel.max_pending = 1;
SELECT set_config('delay_wheel.max_pending', '1', false);
RESET SESSION AUTHORIZATION;
SET delay_wheel.max_pending = 25;
SET SESSION AUTHORIZATION regress_dw_plain;
SELECT count(delay_schedule('1 hour', 'SELECT 1')) FROM generate_series(1, 25);
SELECT * FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELECT 2')$$);
SELECT code FROM pg_temp.error_of($$SELECT delay_schedule_at('2100-01-01', 'SELECT $1', 1)$$);
-- moving is no more; cancelled ones make room, those of this transaction, too
SELECT count(delay_reschedule(id, '2 hours')) FROM delay_wheel.tasks;
BEGIN;
SELECT count(delay_cancel(id)) FROM (SELECT id FROM delay_wheel.tasks ORDER BY id LIMIT 2) t;
SELECT count(delay_schedule('1 hour', 'SELECT 1')) FROM generate_series(1, 2);
SELECT code FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELECT 2')$$);
ROLLBACK;
SELECT code FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELECT 2')$$);
SELECT count(delay_cancel(id)) FROM (SELECT id FROM delay_wheel.tasks ORDER BY id LIMIT 3) t;
-- what was rolled back counts no more
BEGIN;
SELECT count(delay_schedule('1 hour', 'SELECT 1')) FROM generate_series(1, 3);
ROLLBACK;
SELECT count(delay_schedule('0', 'SELECT 1')) FROM generate_series(1, 3);
-- nor what was run
SELECT pg_temp.wait_for('count(*) = 22 FROM delay_wheel.tasks');
SELECT count(delay_schedule('1 hour', 'SELECT 1')) FROM generate_series(1, 3);
-- more than there may be is an error of the whole statement
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks;
SELECT count(delay_schedule('1 hour', 'SELECT 1')) FROM generate_series(1, 26);
SELECT count(*) FROM delay_wheel.tasks;
SELECT count(delay_schedule('1 hour', 'SELECT 1')) FROM generate_series(1, 25);
-- each role has its own
RESET SESSION AUTHORIZATION;
SET SESSION AUTHORIZATION regress_dw_member;
SELECT delay_cancel(delay_schedule('1 hour', 'SELECT 1'));
RESET SESSION AUTHORIZATION;
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks WHERE owner = 'regress_dw_plain';
SET delay_wheel.max_pending = 0;
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELECT 2')$$);
RESET delay_wheel.max_pending;
SELECT delay_cancel(delay_schedule('1 hour', 'SELECT 1'));
-- by ALTER ROLE; for tasks of tasks, too: the one that runs is none of them
CREATE ROLE regress_dw_limited LOGIN;
ALTER ROLE regress_dw_limited SET delay_wheel.max_pending = 3;
SELECT delay_wheel.allow('regress_dw_limited');
SET SESSION AUTHORIZATION regress_dw_limited;
SELECT delay_schedule('0', $$INSERT INTO rights_effect SELECT 'task of a task ' || delay_schedule('1 hour', 'SELECT 1') / 1000000000 FROM generate_series(1, 4)$$) AS id \gset
SELECT pg_temp.wait_for(format('count(*) = 1 FROM delay_wheel.failed WHERE id = %s', :id));
SELECT sqlstate, message FROM delay_wheel.failed WHERE id = :id;
SELECT delay_schedule('0', $$INSERT INTO rights_effect SELECT 'task of a task ' || delay_schedule('1 hour', 'SELECT 1') / 1000000000 FROM generate_series(1, 3)$$) > 0 AS ok;
SELECT pg_temp.wait_for($$count(*) = 3 FROM rights_effect WHERE label LIKE 'task of a task%'$$);
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks;
RESET SESSION AUTHORIZATION;
DELETE FROM delay_wheel_data.failed_task;

--
-- Who may write any table (pg_write_all_data) makes nobody run anything
--
CREATE ROLE regress_dw_writer LOGIN;
GRANT pg_write_all_data, pg_read_all_data TO regress_dw_writer;
SET SESSION AUTHORIZATION regress_dw_plain;
SELECT delay_schedule('1 hour', 'INSERT INTO rights_effect VALUES (''not touched'')') AS id \gset
SET SESSION AUTHORIZATION regress_dw_writer;
INSERT INTO delay_wheel_data.task (due, owner, sql) VALUES (now(), 'regress_dw_plain', 'SELECT 1');
INSERT INTO delay_wheel_data.task (due, owner, sql) VALUES (now(), 10, 'SELECT 1');
INSERT INTO delay_wheel_data.task (due, owner, sql) VALUES (now(), NULL, 'SELECT 1');
INSERT INTO delay_wheel_data.task (due, owner, sql) VALUES (now(), 0, 'SELECT 1');
COPY delay_wheel_data.task (due, owner, sql) FROM STDIN;
2001-01-01	regress_dw_plain	SELECT 1
\.
UPDATE delay_wheel_data.task SET sql = 'SELECT 2' WHERE id = :id;
UPDATE delay_wheel_data.task SET owner = 'regress_dw_writer' WHERE id = :id;
UPDATE delay_wheel_data.task SET due = now() WHERE id = :id;
UPDATE delay_wheel_data.task SET search_path = 'nowhere' WHERE id = :id;
INSERT INTO delay_wheel_data.task (id, due, sql) VALUES (:id, now(), 'SELECT 2') ON CONFLICT (id) DO UPDATE SET sql = EXCLUDED.sql;
MERGE INTO delay_wheel_data.task t USING (SELECT :id::bigint AS id) s ON s.id = t.id WHEN MATCHED THEN UPDATE SET sql = 'SELECT 2';
SET session_replication_role = replica;
ALTER TABLE delay_wheel_data.task DISABLE TRIGGER task_guard;
TRUNCATE delay_wheel_data.task;
-- of one's own, by plain SQL: moved, with another id, it runs once; with
-- another origin, not at all
INSERT INTO delay_wheel_data.task (due, sql) VALUES ('2100-01-01', $$INSERT INTO rights_effect VALUES ('of the writer')$$) RETURNING id AS own \gset
INSERT INTO delay_wheel_data.task (due, origin, sql) VALUES (now(), 1, $$INSERT INTO rights_effect VALUES ('NEVER: of another origin')$$) RETURNING id AS foreign \gset
UPDATE delay_wheel_data.task SET id = id + 1000000000000, due = now() WHERE id = :own;
SELECT pg_temp.wait_for($$EXISTS (SELECT FROM rights_effect WHERE label = 'of the writer')$$);
SELECT owner, armed FROM delay_wheel.tasks WHERE id = :foreign;
-- what stands in columns that the functions never fill so is an error, no more
INSERT INTO delay_wheel_data.task (due, sql, args, arg_types) SELECT now(), 'SELECT $1', args, types FROM (VALUES
	('{1}'::text[], '{internal}'::regtype[]), ('{1}', '{cstring}'), ('{1}', '{anyelement}'), ('{1}', '{record}'), ('{1}', '{trigger}'),
	('{1}', '{pg_ddl_command}'), ('{1}', '{void}'), ('{1}', '{pg_node_tree}'), ('{1}', '{unknown}'), ('{1}', '{delay_wheel_data.task}'),
	('{1}', '{4294967295}'), ('{NULL}', '{NULL}'), ('{{1,2}}', '{int,int}'), ('{1,2}', '{{int,text}}'), ('{}', '{}')) v(args, types);
SELECT code, message FROM pg_temp.error_of($$INSERT INTO delay_wheel_data.task (due, sql, args, arg_types) VALUES (now(), 'SELECT', '{1,2}', '{int}')$$);
SELECT code, message FROM pg_temp.error_of($$INSERT INTO delay_wheel_data.task (due, sql, attempts) VALUES (now(), 'SELECT', -1)$$);
INSERT INTO delay_wheel_data.task (due, sql, attempts, timeout, search_path, key, tag, more)
	VALUES (now(), 'SELECT pg_sleep(60)', 32767, 1, '', 'k', '', '[]');
INSERT INTO delay_wheel_data.task (due, sql, search_path) VALUES (now(), 'SELECT 1', 'a,,b');
INSERT INTO delay_wheel_data.task (due, sql) VALUES (now(), ''), (now(), 'SELEC');
INSERT INTO delay_wheel_data.task (due, sql, timeout) VALUES (now(), $$INSERT INTO rights_effect VALUES ('odd timeout')$$, -1);
INSERT INTO delay_wheel_data.task (due, queue, sql) VALUES (now(), -32768, $$INSERT INTO rights_effect VALUES ('NEVER: odd queue')$$);
SELECT pg_temp.wait_for(format('count(*) = 1 FROM delay_wheel_data.task WHERE owner = %L::regrole', 'regress_dw_writer'));
SELECT sql, args, arg_types, sqlstate, message FROM delay_wheel_data.failed_task ORDER BY id, sqlstate;
-- deleting is what that role is for
DELETE FROM delay_wheel_data.failed_task;
DELETE FROM delay_wheel_data.task WHERE id = :foreign;
DELETE FROM delay_wheel_data.task WHERE id = :id;
RESET SESSION AUTHORIZATION;
SELECT delay_cancel(:id);
SELECT label, who FROM rights_effect WHERE who = 'regress_dw_writer' OR label LIKE 'NEVER%' OR label = 'not touched' ORDER BY label COLLATE "C";
-- replication and restore fire triggers of their own kind only: these, too
SET session_replication_role = replica;
INSERT INTO delay_wheel_data.task (due, owner, sql) VALUES (now(), 'regress_dw_plain', $$INSERT INTO rights_effect VALUES ('of a replica')$$);
RESET session_replication_role;
SELECT pg_temp.wait_for($$EXISTS (SELECT FROM rights_effect WHERE label = 'of a replica' AND who = 'regress_dw_plain')$$);

--
-- The trigger functions
--
CREATE SCHEMA regress_dw_plain AUTHORIZATION regress_dw_plain;
SET SESSION AUTHORIZATION regress_dw_plain;
CREATE TABLE regress_dw_plain.t (owner text, i int);
CREATE TRIGGER changed AFTER INSERT ON regress_dw_plain.t EXECUTE FUNCTION delay_wheel_internal.task_changed();
CREATE TRIGGER guard BEFORE INSERT ON regress_dw_plain.t FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.task_guard();
SELECT delay_wheel_internal.task_changed();
RESET SESSION AUTHORIZATION;
SELECT delay_wheel_internal.task_changed();
SELECT delay_wheel_internal.task_guard();
CREATE FUNCTION pg_temp.with_trigger(definition text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE definition;
	INSERT INTO regress_dw_plain.t VALUES ('x', 1);
	RETURN 'inserted';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
SELECT pg_temp.with_trigger('CREATE TRIGGER changed AFTER INSERT ON regress_dw_plain.t EXECUTE FUNCTION delay_wheel_internal.task_changed()');
SELECT pg_temp.with_trigger('CREATE TRIGGER guard BEFORE INSERT ON regress_dw_plain.t FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.task_guard()');
BEGIN;
CREATE TRIGGER guard BEFORE DELETE ON delay_wheel_data.task EXECUTE FUNCTION delay_wheel_internal.task_guard();
DELETE FROM delay_wheel_data.task;
ROLLBACK;
BEGIN;
CREATE TABLE delay_wheel.ownerless (owner text);
CREATE TRIGGER guard BEFORE DELETE ON delay_wheel.ownerless FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.task_guard();
INSERT INTO delay_wheel.ownerless VALUES ('other');
DELETE FROM delay_wheel.ownerless;
ROLLBACK;

SELECT delay_wheel.disallow('regress_dw_plain', 'regress_dw_member', 'regress_dw_limited');
DROP TABLE rights_effect, rights_order;
DROP FUNCTION rights_calls;
DROP VIEW rights_functions;
DROP FUNCTION rights_definer;
SET client_min_messages = warning;
DROP SCHEMA rights_path, regress_dw_plain CASCADE;
RESET client_min_messages;
DROP ROLE regress_dw_plain, regress_dw_member, regress_dw_group, regress_dw_limited, regress_dw_writer, "regress_dw Odd ""Name'";
