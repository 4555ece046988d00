--
-- CANCEL ALL
-- delay_cancel_all: what it hits and what not; rights; transactions; that hit
-- tasks are gone for everything; that the rows go, and then the cancellation.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
\set SHOW_CONTEXT never

CREATE TABLE cancel_all_effect (label text);
GRANT ALL ON cancel_all_effect TO PUBLIC;
INSERT INTO delay_wheel_data.queue (id, name) VALUES (101, 'cancel_all queue');
-- a task of the current user; its SQL says which
CREATE FUNCTION pg_temp.add(label text, due timestamptz, queue int DEFAULT 0, tag text DEFAULT NULL) RETURNS bigint
LANGUAGE sql AS $$
	INSERT INTO delay_wheel_data.task (due, owner, queue, tag, sql)
		VALUES (due, to_regrole(quote_ident(current_user)), queue, tag, format('INSERT INTO cancel_all_effect VALUES (%L)', label))
		RETURNING id
$$;
CREATE FUNCTION pg_temp.label(sql text) RETURNS text LANGUAGE sql AS $$ SELECT substring(sql FROM '\(''(.*)''\)') $$;
CREATE FUNCTION pg_temp.pending() RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(pg_temp.label(sql), ', ' ORDER BY pg_temp.label(sql) COLLATE "C") FROM delay_wheel.tasks
$$;
-- the rows of what is cancelled are gone, and so are the cancellations
CREATE FUNCTION pg_temp.swept() RETURNS text LANGUAGE sql AS $$
	SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel_data.cancellation WHERE origin = delay_wheel_internal.origin())')
$$;
\set d '''2100-01-01 00:00:00+00''::timestamptz'

-- one of the four must be given; the others may be null
SELECT delay_cancel_all();
SELECT code, message, hint FROM pg_temp.error_of('SELECT delay_cancel_all(NULL, NULL, NULL, NULL)');
SELECT code, message FROM pg_temp.error_of('SELECT delay_cancel_all(queue => ''no such queue'')');
SELECT code, message FROM pg_temp.error_of('SELECT delay_cancel_all(queue => '''')');
SELECT code, message FROM pg_temp.error_of('SELECT delay_cancel_all(tag => repeat(''x'', 1001))');
SELECT code, message FROM pg_temp.error_of('SELECT delay_cancel_all(due_from => ''2100-01-02'', due_until => ''2100-01-01'')');
SELECT code, message FROM pg_temp.error_of('SELECT delay_cancel_all(due_from => ''2100-01-01'', due_until => ''2100-01-01'')');
SELECT code, message FROM pg_temp.error_of('SELECT delay_cancel_all(due_from => ''infinity'', due_until => ''infinity'')');
BEGIN READ ONLY;
SELECT delay_cancel_all(tag => 'x');
ROLLBACK;
SELECT count(*) FROM delay_wheel_data.cancellation;

-- What each filter hits.  All of it in a transaction that is rolled back.
SELECT count(pg_temp.add(format('%s %s %s', q, coalesce(t, '-'), h), :d + h * interval '1 hour', q, t))
	FROM unnest('{0, 101}'::int[]) q, unnest('{a, b, NULL}'::text[]) t, generate_series(0, 2) h;
CREATE FUNCTION pg_temp.hit(queue text DEFAULT NULL, tag text DEFAULT NULL, due_from timestamptz DEFAULT NULL, due_until timestamptz DEFAULT NULL)
RETURNS TABLE (hit bigint, spared bigint, hits text) LANGUAGE plpgsql AS $$
DECLARE
	pending text[] := (SELECT array_agg(sql) FROM delay_wheel.tasks);
BEGIN
	PERFORM delay_cancel_all(queue, tag, due_from, due_until);
	RETURN QUERY SELECT count(*) FILTER (WHERE NOT sql IN (SELECT t.sql FROM delay_wheel.tasks t)), (SELECT count(*) FROM delay_wheel.tasks),
		string_agg(pg_temp.label(sql), ', ' ORDER BY sql COLLATE "C") FILTER (WHERE NOT sql IN (SELECT t.sql FROM delay_wheel.tasks t))
		FROM unnest(pending) sql;
	RAISE EXCEPTION USING ERRCODE = 'DW000';
EXCEPTION WHEN SQLSTATE 'DW000' THEN
END $$;
SELECT * FROM pg_temp.hit(tag => 'a');
SELECT * FROM pg_temp.hit(tag => 'A');
SELECT * FROM pg_temp.hit(tag => '');
SELECT * FROM pg_temp.hit(queue => 'default', tag => 'b');
SELECT * FROM pg_temp.hit(queue => 'cancel_all queue');
SELECT * FROM pg_temp.hit(due_from => :d + interval '1 hour', due_until => :d + interval '2 hours');
SELECT * FROM pg_temp.hit(due_from => :d + interval '2 hours');
SELECT * FROM pg_temp.hit(due_until => :d);
SELECT * FROM pg_temp.hit(due_until => :d + interval '1 microsecond');
SELECT * FROM pg_temp.hit('cancel_all queue', 'a', :d, :d + interval '1 hour');
SELECT hit, spared FROM pg_temp.hit(due_from => '-infinity');
SELECT hit, spared FROM pg_temp.hit(due_until => 'infinity');
SELECT hit, spared FROM pg_temp.hit(due_from => 'infinity');
-- all of it was rolled back
SELECT count(*), (SELECT count(*) FROM delay_wheel_data.cancellation) AS cancellations FROM delay_wheel.tasks;

-- for good
SELECT delay_cancel_all(tag => 'a') AS cancellation \gset
SELECT pg_temp.swept();
SELECT count(*), count(*) FILTER (WHERE tag = 'a') AS hit FROM delay_wheel_data.task;
SELECT delay_cancel_all('default') > :cancellation AS higher, delay_cancel_all('cancel_all queue') > :cancellation AS higher;
SELECT count(*) FROM delay_wheel.tasks;
SELECT pg_temp.swept();
SELECT count(*) FROM delay_wheel_data.task;
-- a long tag, and one that only begins like it
SELECT pg_temp.add('long', :d, 0, repeat('long', 250)) > 0 AS ok, pg_temp.add('longer', :d, 0, repeat('long', 250) || '!') > 0 AS ok;
SELECT delay_cancel_all(tag => repeat('long', 250)) > 0 AS ok;
SELECT pg_temp.pending();
SELECT pg_temp.swept();
SELECT pg_temp.label(sql) FROM delay_wheel_data.task;
SELECT delay_cancel(id) FROM delay_wheel.tasks;

-- In a transaction: what it scheduled before is hit, what it schedules after is
-- not; a savepoint takes it back.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT pg_temp.add('before', :d) AS before \gset
SELECT delay_cancel_all(due_from => '-infinity') AS cancellation \gset
SELECT pg_temp.add('after', :d) AS after \gset
SELECT :before < :cancellation AND :cancellation < :after AS in_order;
SELECT pg_temp.pending();
SELECT delay_cancel(:before), delay_reschedule(:before, '1 hour'), delay_reschedule(:after, '20 years');
SELECT id = :cancellation AS this_one, made_by = current_user AS by_me, owners, queue, tag, due_from, due_until, removed, running FROM delay_wheel.cancellations;
SAVEPOINT s;
SELECT delay_cancel_all(due_from => '-infinity') > 0 AS ok;
SELECT pg_temp.pending();
ROLLBACK TO s;
SELECT pg_temp.pending(), delay_cancel(:after);
COMMIT;
SELECT pg_temp.pending();
SELECT pg_temp.swept();
SELECT count(*) FROM delay_wheel_data.task;

-- Rolled back, everything is as before: it runs.
SELECT pg_temp.add('rolled back', now()) > 0 AS ok \gset
SELECT delay_schedule('0.2 s', $$INSERT INTO cancel_all_effect VALUES ('armed')$$) AS id \gset
BEGIN;
SELECT delay_cancel_all(due_from => '-infinity') > 0 AS ok;
SELECT delay_cancel(:id);
ROLLBACK;
SELECT pg_temp.wait_for('count(*) = 2 FROM cancel_all_effect');
SELECT * FROM cancel_all_effect ORDER BY 1;
TRUNCATE cancel_all_effect;

-- What is overdue, or about to be, does not run: others behind it do.
BEGIN;
SELECT count(delay_schedule('0', $$INSERT INTO cancel_all_effect VALUES ('NEVER')$$)) FROM generate_series(1, 100);
SELECT count(delay_schedule('0.1 s', $$INSERT INTO cancel_all_effect VALUES ('NEVER')$$)) FROM generate_series(1, 100);
SELECT delay_cancel_all(due_from => '-infinity') > 0 AS ok;
COMMIT;
SELECT delay_schedule('0.2 s', $$INSERT INTO cancel_all_effect VALUES ('later')$$) > 0 AS ok;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM cancel_all_effect WHERE label = ''later'')');
SELECT pg_temp.swept();
SELECT * FROM cancel_all_effect;
SELECT count(*) FROM delay_wheel_data.task;
TRUNCATE cancel_all_effect;

-- Moved into the time of a cancellation that does not hit it: it is not hit
-- then, but by a later one it is.
BEGIN;
SELECT pg_temp.add('moved', :d + interval '5 hours') AS moved \gset
SELECT pg_temp.add('hit', :d + interval '1 hour') AS hit \gset
SELECT delay_cancel_all(due_from => :d, due_until => :d + interval '2 hours') AS cancellation \gset
SELECT delay_reschedule(:moved, :d + interval '1 hour'), delay_reschedule(:hit, :d + interval '5 hours');
SELECT spared = :cancellation AS spared FROM delay_wheel_data.task WHERE id = :moved;
SELECT delay_reschedule(:moved, :d + interval '30 min'), pg_temp.pending();
SELECT delay_cancel_all(due_until => :d + interval '1 hour') > 0 AS ok, pg_temp.pending();
COMMIT;
SELECT pg_temp.pending();
SELECT pg_temp.swept();
SELECT pg_temp.label(sql) FROM delay_wheel_data.task;
SELECT delay_cancel(id) FROM delay_wheel.tasks;

--
-- Rights: tasks of the roles whose rights the caller has; all for a superuser.
--
CREATE ROLE regress_dw_all_owner LOGIN;
CREATE ROLE regress_dw_all_member LOGIN IN ROLE regress_dw_all_owner;
CREATE ROLE regress_dw_all_noinherit LOGIN NOINHERIT IN ROLE regress_dw_all_owner;
CREATE ROLE regress_dw_all_other LOGIN;
CREATE ROLE regress_dw_all_reader LOGIN IN ROLE pg_read_all_data;
CREATE ROLE regress_dw_all_writer LOGIN IN ROLE pg_write_all_data;
SET SESSION AUTHORIZATION regress_dw_all_owner;
SELECT delay_cancel_all(tag => 'x');
RESET SESSION AUTHORIZATION;
SELECT delay_wheel.allow('regress_dw_all_owner', 'regress_dw_all_member', 'regress_dw_all_noinherit', 'regress_dw_all_other');
CREATE FUNCTION pg_temp.add_all() RETURNS bigint LANGUAGE sql AS $$
	INSERT INTO delay_wheel_data.task (due, owner, sql)
		SELECT '2100-01-01', owner, format('INSERT INTO cancel_all_effect VALUES (%L)', owner::text)
		FROM unnest(ARRAY['regress_dw_all_owner', 'regress_dw_all_member', 'regress_dw_all_noinherit', 'regress_dw_all_other']::regrole[]) owner;
	SELECT count(*) FROM delay_wheel.tasks
$$;
SELECT pg_temp.add_all();
-- the owner hits its own, not those of its members
SET SESSION AUTHORIZATION regress_dw_all_owner;
SELECT delay_cancel_all(due_from => '-infinity') > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.pending();
SELECT pg_temp.swept(), pg_temp.add_all();
-- a member those of its group, too; not one that does not inherit
SET SESSION AUTHORIZATION regress_dw_all_noinherit;
SELECT delay_cancel_all(due_from => '-infinity') > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT owner, count(*) FROM delay_wheel.tasks GROUP BY owner ORDER BY owner::text;
SET SESSION AUTHORIZATION regress_dw_all_member;
BEGIN;
SELECT delay_cancel_all(due_from => '-infinity') > 0 AS ok;
SELECT made_by, owners @> '{regress_dw_all_member, regress_dw_all_owner}' AS groups, owners && '{regress_dw_all_other, regress_dw_all_noinherit}' AS others FROM delay_wheel.cancellations;
COMMIT;
RESET SESSION AUTHORIZATION;
SELECT owner, count(*) FROM delay_wheel.tasks GROUP BY owner ORDER BY owner::text;
SELECT pg_temp.swept();
SELECT owner, count(*) FROM delay_wheel_data.task GROUP BY owner ORDER BY owner::text;
-- the rights count that one has then: losing them takes nothing back
BEGIN;
SELECT pg_temp.add_all() > 0 AS ok;
SET LOCAL SESSION AUTHORIZATION regress_dw_all_member;
SELECT delay_cancel_all(due_from => '-infinity') > 0 AS ok;
RESET SESSION AUTHORIZATION;
REVOKE regress_dw_all_owner FROM regress_dw_all_member;
SELECT owner, count(*) FROM delay_wheel.tasks GROUP BY owner ORDER BY owner::text;
ROLLBACK;
-- a superuser hits all, also those of roles that do not exist
INSERT INTO delay_wheel_data.task (due, origin, owner, sql) VALUES (:d, 1, '4294000000', 'SELECT 1');
SELECT delay_cancel_all(due_from => '-infinity') > 0 AS ok;
SELECT count(*) FROM delay_wheel.tasks;
SELECT pg_temp.swept();
SELECT count(*) FROM delay_wheel_data.task;

-- who sees cancellations
BEGIN;
SET LOCAL SESSION AUTHORIZATION regress_dw_all_owner;
SELECT delay_cancel_all(tag => 'of the owner') > 0 AS ok;
SELECT tag FROM delay_wheel.cancellations;
SET LOCAL SESSION AUTHORIZATION regress_dw_all_other;
SELECT delay_cancel_all(tag => 'of the other') > 0 AS ok;
SELECT tag FROM delay_wheel.cancellations;
SET LOCAL SESSION AUTHORIZATION regress_dw_all_member;
SELECT tag FROM delay_wheel.cancellations;
SET LOCAL SESSION AUTHORIZATION regress_dw_all_reader;
SELECT tag FROM delay_wheel.cancellations ORDER BY id;
RESET SESSION AUTHORIZATION;
SELECT tag FROM delay_wheel.cancellations ORDER BY id;
ROLLBACK;

-- Plain SQL: nobody cancels so what is not his, nor takes it back.
BEGIN;
SET LOCAL SESSION AUTHORIZATION regress_dw_all_owner;
SELECT delay_cancel_all(tag => 'x') AS of_owner \gset
RESET SESSION AUTHORIZATION;
SELECT delay_cancel_all(tag => 'y') AS of_all \gset
SET LOCAL SESSION AUTHORIZATION regress_dw_all_writer;
SELECT code, message, hint FROM pg_temp.error_of('INSERT INTO delay_wheel_data.cancellation VALUES (9e18, 0, now(), ''regress_dw_all_writer'', NULL, NULL, NULL, NULL, NULL, 0)');
SELECT code FROM pg_temp.error_of('INSERT INTO delay_wheel_data.cancellation VALUES (9e18, 0, now(), ''regress_dw_all_writer'', ''{regress_dw_all_owner}'', NULL, NULL, NULL, NULL, 0)');
SELECT code FROM pg_temp.error_of('INSERT INTO delay_wheel_data.cancellation VALUES (9e18, 0, now(), ''regress_dw_all_writer'', ''{regress_dw_all_writer, NULL}'', NULL, NULL, NULL, NULL, 0)');
SELECT code FROM pg_temp.error_of('UPDATE delay_wheel_data.cancellation SET owners = ''{regress_dw_all_writer}''');
SELECT code FROM pg_temp.error_of('UPDATE delay_wheel_data.cancellation SET due_from = NULL');
SELECT code FROM pg_temp.error_of('DELETE FROM delay_wheel_data.cancellation');
SELECT code FROM pg_temp.error_of('MERGE INTO delay_wheel_data.cancellation c USING (VALUES (1)) v ON c.id = 1 WHEN NOT MATCHED THEN INSERT VALUES (1, 0, now(), ''regress_dw_all_writer'', NULL, NULL, NULL, NULL, NULL, 0)');
SELECT code FROM pg_temp.error_of('TRUNCATE delay_wheel_data.cancellation');
INSERT INTO delay_wheel_data.cancellation VALUES (9e18, 0, now(), 'regress_dw_all_writer', '{regress_dw_all_writer}', NULL, NULL, NULL, NULL, 0);
RESET SESSION AUTHORIZATION;
SELECT count(*) FROM delay_wheel_data.cancellation;
-- the trigger is for our table only
CREATE TABLE cancel_all_table (owners text);
CREATE TRIGGER t BEFORE INSERT ON cancel_all_table FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.cancellation_guard();
SELECT code, message FROM pg_temp.error_of('INSERT INTO cancel_all_table VALUES (1)');
ROLLBACK;

-- A cancellation that came with a copy hits what came with it, is left alone,
-- and keeps its tasks cancelled when the others are armed.
INSERT INTO delay_wheel_data.cancellation VALUES (1000000, 1, now(), 'regress_dw_all_other', '{regress_dw_all_other}', NULL, NULL, NULL, NULL, 0);
INSERT INTO delay_wheel_data.task (id, due, origin, owner, sql) VALUES
	(999991, :d, 1, 'regress_dw_all_other', 'SELECT $$(''copied, hit'')$$'), (999992, :d, 1, 'regress_dw_all_owner', 'SELECT $$(''copied, other owner'')$$'),
	(1000001, :d, 1, 'regress_dw_all_other', 'SELECT $$(''copied, later'')$$'), (999993, :d, 2, 'regress_dw_all_other', 'SELECT $$(''other copy'')$$'),
	(999994, :d, delay_wheel_internal.origin(), 'regress_dw_all_other', 'SELECT $$(''ours'')$$');
SELECT pg_temp.pending();
SELECT id, state, waiting_for FROM delay_wheel.cancellations;
SELECT delay_cancel(999991);
SELECT delay_wheel.arm(), pg_temp.pending();
SELECT count(*) FILTER (WHERE origin <> delay_wheel_internal.origin()) AS unarmed, count(*), (SELECT count(*) FROM delay_wheel_data.cancellation) AS cancellations FROM delay_wheel_data.task;
-- ours hits copies
INSERT INTO delay_wheel_data.task (id, due, origin, owner, tag, sql) VALUES (1, :d, 1, 'regress_dw_all_other', 'copied', 'SELECT 1');
SELECT delay_cancel_all(tag => 'copied') > 0 AS ok;
SELECT pg_temp.swept();
SELECT count(*) FROM delay_wheel_data.task WHERE tag = 'copied';
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks;
SELECT delay_wheel.arm();

-- several of one role: each counts
BEGIN;
SET LOCAL ROLE regress_dw_all_other;
SELECT count(delay_schedule_task('SELECT 1', delay => '1 day', tag => tag)) FROM unnest('{a,b,c,d,e}'::text[]) tag;
SELECT count(delay_cancel_all(tag => tag)) FROM unnest('{a,b,c,d}'::text[]) tag;
RESET ROLE;
SELECT tag, delay_cancel(id) FROM delay_wheel_data.task WHERE owner = 'regress_dw_all_other'::regrole ORDER BY tag;
ROLLBACK;

-- not counted by max_pending
SET delay_wheel.max_pending = 2;
BEGIN;
SELECT delay_schedule('1 day', 'SELECT 1') > 0 AS ok;
SELECT delay_schedule('1 day', 'SELECT 1') > 0 AS ok;
SAVEPOINT s;
SELECT delay_schedule('1 day', 'SELECT 1') > 0 AS ok;
ROLLBACK TO s;
SELECT delay_cancel_all('default') > 0 AS ok;
SELECT delay_schedule('1 day', 'SELECT 1') > 0 AS ok;
ROLLBACK;
RESET delay_wheel.max_pending;

-- the extension is dropped and created again: nothing of it is remembered
SELECT delay_cancel_all(due_from => '-infinity') > 0 AS ok;
SELECT delay_cancel(-1);
DROP EXTENSION delay_wheel;
CREATE EXTENSION delay_wheel;
SELECT delay_schedule('0', $$INSERT INTO cancel_all_effect VALUES ('of the new one')$$);
SELECT delay_cancel(delay_schedule('1 day', 'SELECT 1'));
SELECT pg_temp.wait_for('EXISTS (SELECT FROM cancel_all_effect)');
SELECT * FROM cancel_all_effect;

DROP TABLE cancel_all_effect;
DROP ROLE regress_dw_all_owner, regress_dw_all_member, regress_dw_all_noinherit, regress_dw_all_other, regress_dw_all_reader, regress_dw_all_writer;
