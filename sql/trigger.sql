--
-- TRIGGER
-- delay_schedule_trigger(): each row schedules a task; arguments from columns
-- of all kinds; keys, queues and tags; whose task it is; what is refused.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
\set VERBOSITY terse
-- (other messages than ours differ between majors)

-- what is pending, relative to now(), and gone with the transaction
CREATE VIEW trigger_tasks AS
	SELECT t.due - now() AS delay, q.name AS queue, t.key, t.tag, t.sql, t.args, t.arg_types
	FROM delay_wheel_data.task t LEFT JOIN delay_wheel_data.queue q ON q.id = t.queue ORDER BY t.id;

--
-- The main example, to its end
--
CREATE TABLE trigger_order (oid bigint PRIMARY KEY, finish_time timestamptz, stars int, status int NOT NULL DEFAULT 0);
CREATE TRIGGER rate_later AFTER INSERT ON trigger_order FOR EACH ROW EXECUTE FUNCTION
	delay_schedule_trigger('48 hours', 'update trigger_order set stars = 5, status = 1 where oid = $1 and status = 0', 'oid');
BEGIN;
INSERT INTO trigger_order VALUES (1, now()), (2, now());
SELECT * FROM trigger_tasks \gx
INSERT INTO trigger_order VALUES (3, now());
ROLLBACK;
SELECT count(*) FROM trigger_tasks;
INSERT INTO trigger_order SELECT oid, now() FROM generate_series(1, 100) oid;
UPDATE trigger_order SET stars = 1, status = 1 WHERE oid = 7;
SELECT count(*), count(DISTINCT args), min(delay) < '48 hours', min(delay) > '47 hours' FROM trigger_tasks;
SELECT count(delay_reschedule(id, '0')) FROM delay_wheel_data.task;
SELECT pg_temp.wait_until_done();
SELECT stars, status, count(*) FROM trigger_order GROUP BY 1, 2 ORDER BY 1;
-- savepoints
BEGIN;
INSERT INTO trigger_order VALUES (101);
SAVEPOINT s;
INSERT INTO trigger_order VALUES (102);
ROLLBACK TO s;
SELECT args FROM trigger_tasks;
ROLLBACK;
-- COPY, ON CONFLICT, MERGE
BEGIN;
COPY trigger_order FROM stdin;
201	\N	\N	0
202	\N	\N	0
\.
INSERT INTO trigger_order VALUES (203), (202) ON CONFLICT DO NOTHING;
MERGE INTO trigger_order o USING (VALUES (204), (203)) v(oid) ON o.oid = v.oid
	WHEN MATCHED THEN UPDATE SET stars = 3 WHEN NOT MATCHED THEN INSERT (oid) VALUES (v.oid);
SELECT args FROM trigger_tasks;
ROLLBACK;
DROP TABLE trigger_order;

--
-- When it is due
--
CREATE FUNCTION trigger_on(arguments text, event text DEFAULT 'AFTER INSERT OR UPDATE') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE OR REPLACE TRIGGER t %s ON trigger_t FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger(%s)', event, arguments);
END $$;
CREATE DOMAIN trigger_pause AS interval CHECK (VALUE < '1 year');
CREATE TABLE trigger_t (id int, i interval, d trigger_pause, at timestamptz, k text, plain timestamp, n int);
SELECT trigger_on($$'i', 'SELECT $1', 'id'$$);
BEGIN;
INSERT INTO trigger_t (id, i) VALUES (1, '1 hour'), (2, NULL), (3, '-1 hour'), (4, '0');
SELECT delay, args FROM trigger_tasks;
ROLLBACK;
SELECT trigger_on($$'d', 'SELECT $1', 'id'$$);
BEGIN;
INSERT INTO trigger_t (id, d) VALUES (1, '1 day'), (2, NULL);
SELECT delay, args FROM trigger_tasks;
ROLLBACK;
SELECT trigger_on($$'at', 'SELECT $1', 'id'$$);
BEGIN;
INSERT INTO trigger_t (id, at) VALUES (1, now() + '5 min'), (2, NULL), (3, now() - interval '1 year');
SELECT delay, args FROM trigger_tasks;
INSERT INTO trigger_t (id, at) VALUES (4, 'infinity');
ROLLBACK;
-- WHEN, UPDATE OF; the new row of an update
SELECT trigger_on($$'1 hour', 'SELECT $1, $2', 'n', 'id'$$, 'AFTER UPDATE OF n');
BEGIN;
INSERT INTO trigger_t (id, n) VALUES (1, 10), (2, 20);
UPDATE trigger_t SET id = id + 100;
UPDATE trigger_t SET n = n + 1 WHERE id = 101;
SELECT args FROM trigger_tasks;
CREATE TRIGGER when_n AFTER UPDATE ON trigger_t FOR EACH ROW WHEN (old.n IS DISTINCT FROM new.n AND new.n > 100)
	EXECUTE FUNCTION delay_schedule_trigger('2 hours', 'SELECT 2');
DROP TRIGGER t ON trigger_t;
UPDATE trigger_t SET n = n * 8;
UPDATE trigger_t SET n = n * 1;
SELECT delay, sql, args, arg_types FROM trigger_tasks;
ROLLBACK;

--
-- Keys: the pending task follows the row
--
SELECT trigger_on($$'at', 'SELECT $1', 'n', 'key=id', 'tag=k'$$);
BEGIN;
INSERT INTO trigger_t (id, at, n, k) VALUES (1, now() + '1 h', 1, 'a'), (2, now() + '1 h', 1, NULL), (NULL, now() + '1 h', 1, 'no key');
SELECT delay, key, tag, args FROM trigger_tasks;
UPDATE trigger_t SET at = now() + '2 h', n = 2 WHERE id = 1;
UPDATE trigger_t SET at = NULL, n = 3 WHERE id = 2;
UPDATE trigger_t SET n = 4 WHERE id IS NULL;
SELECT delay, key, tag, args FROM trigger_tasks;
UPDATE trigger_t SET at = NULL;
SELECT delay, key, tag, args FROM trigger_tasks;
ROLLBACK;
SELECT trigger_on($$'at', 'SELECT $1', 'n', 'if_exists=keep', 'key=total'$$);
BEGIN;
INSERT INTO trigger_t (id, at, n) VALUES (1, now() + '1 h', 1), (2, now() + '2 h', 2);
UPDATE trigger_t SET at = NULL;
SELECT delay, key, args FROM trigger_tasks;
ROLLBACK;
SELECT trigger_on($$'1 h', 'SELECT $1', 'n', 'if_exists=error', 'key=k'$$);
BEGIN;
INSERT INTO trigger_t (k) VALUES ('a'), ('b'), (NULL), (NULL);
SELECT key FROM trigger_tasks;
INSERT INTO trigger_t (k) VALUES ('b');
ROLLBACK;
INSERT INTO trigger_t (k) VALUES ('');
INSERT INTO trigger_t (k) VALUES (repeat('x', 1001));
-- (one that is compressed)
ALTER TABLE trigger_t ALTER k SET STORAGE EXTENDED;
BEGIN;
INSERT INTO trigger_t (k) VALUES (repeat('x', 1000));
SELECT length(key) FROM trigger_tasks;
ROLLBACK;
-- the same value is the same key under all settings; a char(n) is what it is as text
CREATE TABLE trigger_keys (id int, b bytea, bs bytea[], c char(10), q char(30), at timestamptz, f float8, r regclass);
SELECT format('CREATE TRIGGER %I AFTER INSERT ON trigger_keys FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger(''1 h'', %L, %L, %L)',
	name, 'SELECT 1 AS ' || name, 'key=' || name, 'queue=q') FROM unnest('{b, bs, c, at, f, r}'::text[]) name \gexec
SELECT delay_wheel.create_queue('trigger_mails');
BEGIN;
INSERT INTO trigger_keys VALUES (1, '\x00ff27', ARRAY['\x00ff'::bytea], 'a  b', 'trigger_mails', '2026-02-01 12:00+00', 1 / 3.0, 'trigger_keys');
SET LOCAL bytea_output = 'escape';
SET LOCAL DateStyle = 'German';
SET LOCAL TimeZone = 'Asia/Kolkata';
SET LOCAL extra_float_digits = -10;
SET LOCAL quote_all_identifiers = on;
INSERT INTO trigger_keys SELECT * FROM trigger_keys;
SELECT queue, key, sql FROM trigger_tasks;
SELECT delay_cancel(key => c::text, queue => 'trigger_mails') FROM trigger_keys LIMIT 1;
ROLLBACK;
DROP TABLE trigger_keys;

--
-- Queues
--
SELECT delay_wheel.create_queue('trigger_mails', priority => 1, options => '{"spread": "1 hour"}');
SELECT delay_wheel.create_queue('trigger_other');
SELECT trigger_on($$'1 day', 'SELECT 1', 'queue=trigger_mails', 'tag=some tag'$$);
BEGIN;
INSERT INTO trigger_t (id) VALUES (1);
SELECT queue, tag, delay BETWEEN '1 day' AND '1 day 1 hour' AS spread FROM trigger_tasks;
SELECT priority FROM delay_wheel_data.task;
ROLLBACK;
SELECT trigger_on($$'1 day', 'SELECT 1', 'queue=k'$$);
BEGIN;
INSERT INTO trigger_t (k) VALUES ('trigger_other'), (NULL), ('default'), ('trigger_mails');
SELECT queue FROM trigger_tasks;
ROLLBACK;
INSERT INTO trigger_t (k) VALUES ('trigger_missing');
SELECT trigger_on($$'1 day', 'SELECT 1', 'queue=trigger_missing'$$);
INSERT INTO trigger_t (k) VALUES ('a');
SELECT trigger_on($$'1 day', 'SELECT 1', 'queue=trigger_other', 'key=k'$$);
BEGIN;
INSERT INTO trigger_t (k) VALUES ('a'), ('a');
SELECT queue, key FROM trigger_tasks;
SELECT delay_cancel(key => 'a', queue => 'trigger_other');
ROLLBACK;

--
-- Types: all that a column can have, as in delay_schedule
--
CREATE TYPE trigger_mood AS ENUM ('sad', 'happy');
CREATE DOMAIN trigger_id AS bigint CHECK (VALUE > 0);
CREATE DOMAIN trigger_when AS timestamptz;
CREATE TYPE trigger_pair AS (a int, b date);
CREATE DOMAIN trigger_pairs AS trigger_pair[];
CREATE TABLE trigger_types (
	b bool, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, num numeric(10, 2), t text, v varchar(5), c char(5), n name, by bytea,
	d date, ti time, tz timestamptz, ts timestamp, iv interval, u uuid, j json, jb jsonb, x xml, ip inet, e trigger_mood, a int[], ad date[],
	p trigger_pair, r int4range, m money, dom trigger_id, dw trigger_when, dp trigger_pairs, o oid, rc regclass,
	g int GENERATED ALWAYS AS (i4 * 2) STORED, "Odd ""name" int, "key=i4" int);
SELECT string_agg(quote_literal(attname), ', ' ORDER BY attnum) AS names, string_agg('$' || attnum, ', ' ORDER BY attnum) AS parameters
	FROM pg_attribute WHERE attrelid = 'trigger_types'::regclass AND attnum > 0 \gset
CREATE TABLE trigger_copy AS SELECT * FROM trigger_types;
SELECT format('CREATE TRIGGER t AFTER INSERT ON trigger_types FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger(''0'', ''INSERT INTO trigger_copy VALUES (%s)'', %s)', :'parameters', :'names') \gexec
SET DateStyle = 'German, DMY';
SET IntervalStyle = 'sql_standard';
SET TimeZone = 'Asia/Kolkata';
SET extra_float_digits = -10;
INSERT INTO trigger_types VALUES (true, 1, 2, 3, 1.1, 1e-7, 1.5, 'it''s', 'abc', 'c', 'name', '\x00ff',
	'2026-02-01', '12:34:56.7', '2026-02-01 12:00', '2026-02-01 12:00', '-1 day 2 hours', '11111111-2222-3333-4444-555555555555', '{"a": 1}', '[1]', '<a/>', '10.0.0.1/8', 'happy', '{1,NULL,3}', '{2026-02-01}',
	'(1,2026-02-01)', '[1,5)', '12.34', 42, '2026-02-01 12:00', '{"(1,2026-02-01)"}', 4000000000, 'pg_class', DEFAULT, 7, 8);
INSERT INTO trigger_types DEFAULT VALUES;
INSERT INTO trigger_types (t) VALUES (repeat('long ', 100000));
RESET DateStyle;
RESET IntervalStyle;
RESET TimeZone;
RESET extra_float_digits;
SELECT pg_temp.wait_until_done();
SELECT message FROM delay_wheel.failed;
SELECT count(*) AS rows, count(*) FILTER (WHERE (SELECT count(*) FROM trigger_types original WHERE original::text = copy::text) = 1) AS same FROM trigger_copy copy;
SELECT length(t), count(*) FROM trigger_copy GROUP BY 1 ORDER BY 1;
DROP TABLE trigger_types, trigger_copy;

--
-- Partitions with other columns in other places, inheritance, foreign tables
--
CREATE TABLE trigger_parts (id int, gone int, name text, at timestamptz) PARTITION BY RANGE (id);
CREATE TABLE trigger_part1 PARTITION OF trigger_parts FOR VALUES FROM (0) TO (100);
CREATE TABLE trigger_part2 (at timestamptz, junk int, name text, more int, id int, gone int);
ALTER TABLE trigger_part2 DROP junk, DROP more;
ALTER TABLE trigger_parts ATTACH PARTITION trigger_part2 FOR VALUES FROM (100) TO (200);
CREATE TRIGGER t AFTER INSERT OR UPDATE ON trigger_parts FOR EACH ROW EXECUTE FUNCTION
	delay_schedule_trigger('at', 'SELECT $1, $2', 'name', 'id', 'key=id', 'tag=name');
CREATE TABLE trigger_part3 (name text, id int, gone int, at timestamptz) PARTITION BY LIST (id);
CREATE TABLE trigger_part31 (gone int, id int, at timestamptz, name text);
ALTER TABLE trigger_part3 ATTACH PARTITION trigger_part31 DEFAULT;
ALTER TABLE trigger_parts ATTACH PARTITION trigger_part3 FOR VALUES FROM (200) TO (300);
BEGIN;
INSERT INTO trigger_parts (id, name, at) SELECT i, 'n' || i, now() + i * interval '1 h' FROM unnest('{1, 101, 201, 2, 102, 202}'::int[]) i;
INSERT INTO trigger_part2 (id, name, at) VALUES (103, 'direct', now());
UPDATE trigger_parts SET name = 'updated' WHERE id IN (2, 102, 202);
-- an update that moves a row is an INSERT where it comes to
UPDATE trigger_parts SET id = id + 100, name = 'moved' WHERE id = 1;
SELECT delay, key, tag, args, arg_types FROM trigger_tasks;
ROLLBACK;
-- columns are dropped, added and renamed meanwhile
BEGIN;
INSERT INTO trigger_parts (id, name, at) VALUES (1, 'a', now()), (101, 'a', now()), (201, 'a', now());
ALTER TABLE trigger_parts DROP gone;
INSERT INTO trigger_parts (id, name, at) VALUES (2, 'b', now()), (102, 'b', now()), (202, 'b', now());
ALTER TABLE trigger_parts ADD extra text DEFAULT 'x', ALTER name TYPE varchar(10);
CREATE OR REPLACE TRIGGER t AFTER INSERT OR UPDATE ON trigger_parts FOR EACH ROW EXECUTE FUNCTION
	delay_schedule_trigger('at', 'SELECT $1, $2, $3', 'name', 'id', 'extra');
UPDATE trigger_parts SET at = now() WHERE id % 100 = 1;
INSERT INTO trigger_parts (id, name, at) VALUES (3, 'c', now()), (103, 'c', now()), (203, 'c', now());
SELECT key, args, arg_types FROM trigger_tasks;
ALTER TABLE trigger_parts RENAME name TO title;
INSERT INTO trigger_parts (id, title, at) VALUES (104, 'd', now());
ROLLBACK;
BEGIN;
ALTER TABLE trigger_parts DROP name CASCADE;
INSERT INTO trigger_parts (id, at) VALUES (5, now());
ROLLBACK;
-- a rolled back rename is forgotten, too
INSERT INTO trigger_parts (id, name, at) VALUES (105, 'e', now() + '1 h');
BEGIN;
ALTER TABLE trigger_parts RENAME name TO title;
ROLLBACK;
INSERT INTO trigger_parts (id, name, at) VALUES (106, 'f', now() + '1 h');
SELECT key, args FROM trigger_tasks;
DELETE FROM delay_wheel_data.task;
DROP TABLE trigger_parts;
-- more partitions than triggers are remembered
CREATE TABLE trigger_many (id int) PARTITION BY LIST (id);
CREATE TRIGGER t AFTER INSERT ON trigger_many FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('1 h', 'SELECT $1', 'id');
DO $$ BEGIN
	FOR i IN 1 .. 1100 LOOP
		EXECUTE format('CREATE TABLE trigger_many%s PARTITION OF trigger_many FOR VALUES IN (%1$s)', i);
	END LOOP;
END $$;
BEGIN;
INSERT INTO trigger_many SELECT 1 + i % 1100 FROM generate_series(1, 2500) i;
SELECT count(*), count(DISTINCT args) FROM trigger_tasks;
SELECT count(*) BETWEEN 1 AND 1024 AS bounded FROM pg_backend_memory_contexts WHERE name = 'delay_wheel trigger';
ROLLBACK;
DROP TABLE trigger_many;
-- inheritance: a child has triggers of its own
CREATE TABLE trigger_child () INHERITS (trigger_t);
SELECT trigger_on($$'1 h', 'SELECT $1', 'id'$$);
BEGIN;
INSERT INTO trigger_child (id) VALUES (1);
INSERT INTO trigger_t (id) VALUES (2);
UPDATE trigger_t SET id = id + 10;
SELECT args FROM trigger_tasks;
ROLLBACK;
DROP TABLE trigger_child;

--
-- Deferred: at the commit, due from the start of the transaction
--
DROP TRIGGER t ON trigger_t;
CREATE CONSTRAINT TRIGGER t AFTER INSERT ON trigger_t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
	EXECUTE FUNCTION delay_schedule_trigger('1 h', 'SELECT $1', 'id', 'key=id');
BEGIN;
INSERT INTO trigger_t (id) VALUES (1), (2);
SELECT count(*) FROM trigger_tasks;
SET CONSTRAINTS ALL IMMEDIATE;
SELECT delay, key FROM trigger_tasks;
ROLLBACK;
BEGIN;
INSERT INTO trigger_t (id) VALUES (1);
SELECT now() AS began \gset
COMMIT;
SELECT due - :'began' AS delay, key FROM delay_wheel_data.task;
-- an error comes at the commit
CREATE TABLE trigger_deferred (k text);
CREATE CONSTRAINT TRIGGER t AFTER INSERT ON trigger_deferred DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
	EXECUTE FUNCTION delay_schedule_trigger('1 h', 'SELECT 1', 'key=k');
BEGIN;
INSERT INTO trigger_deferred VALUES ('');
COMMIT;
SELECT count(*) FROM trigger_deferred;
-- in a task, whose deferred triggers fire at its end
SELECT delay_schedule('0', $$INSERT INTO trigger_t (id) VALUES (77)$$) > 0 AS ok;
SELECT pg_temp.wait_until_done();
SELECT key FROM trigger_tasks;
DELETE FROM delay_wheel_data.task;
DROP TABLE trigger_deferred;
DROP TRIGGER t ON trigger_t;
-- a chain: the task's own row schedules the next one
CREATE TABLE trigger_chain (n int);
CREATE TRIGGER t AFTER INSERT ON trigger_chain FOR EACH ROW WHEN (new.n < 5)
	EXECUTE FUNCTION delay_schedule_trigger('0', 'INSERT INTO trigger_chain VALUES ($1 + 1)', 'n');
INSERT INTO trigger_chain VALUES (1);
SELECT pg_temp.wait_for('max(n) = 5 FROM trigger_chain');
DROP TABLE trigger_chain;

--
-- Whose task it is, and who may
--
CREATE ROLE regress_dw_owner LOGIN;
CREATE ROLE regress_dw_writer LOGIN;
CREATE ROLE regress_dw_group;
SELECT delay_wheel.allow('regress_dw_owner');
CREATE SCHEMA regress_dw_schema AUTHORIZATION regress_dw_owner;
SET SESSION AUTHORIZATION regress_dw_owner;
-- (search_path is kept as it is when the trigger fires)
SET search_path = regress_dw_schema, public;
CREATE TABLE t (id int);
CREATE TRIGGER t AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('1 h', 'SELECT $1', 'id');
GRANT USAGE ON SCHEMA regress_dw_schema TO PUBLIC;
GRANT INSERT ON t TO PUBLIC;
INSERT INTO t VALUES (1);
CREATE FUNCTION definer(id int) RETURNS void LANGUAGE sql SECURITY DEFINER AS 'INSERT INTO regress_dw_schema.t VALUES (id)';
SET SESSION AUTHORIZATION regress_dw_writer;
SET search_path = public;
SELECT * FROM pg_temp.error_of('INSERT INTO regress_dw_schema.t VALUES (2)') \gx
SELECT regress_dw_schema.definer(3);
RESET SESSION AUTHORIZATION;
-- a right that is granted, inherited, taken back: known at once, also in the middle of a transaction
BEGIN;
GRANT INSERT ON delay_wheel.tasks TO regress_dw_group;
SET LOCAL ROLE regress_dw_writer;
SELECT code FROM pg_temp.error_of('INSERT INTO regress_dw_schema.t VALUES (4)');
RESET ROLE;
GRANT regress_dw_group TO regress_dw_writer;
SET LOCAL ROLE regress_dw_writer;
INSERT INTO regress_dw_schema.t VALUES (5);
RESET ROLE;
REVOKE regress_dw_group FROM regress_dw_writer;
SET LOCAL ROLE regress_dw_writer;
SELECT code FROM pg_temp.error_of('INSERT INTO regress_dw_schema.t VALUES (6)');
RESET ROLE;
GRANT regress_dw_group TO regress_dw_writer;
SET LOCAL ROLE regress_dw_writer;
INSERT INTO regress_dw_schema.t VALUES (7);
RESET ROLE;
REVOKE INSERT ON delay_wheel.tasks FROM regress_dw_group;
SET LOCAL ROLE regress_dw_writer;
SELECT code FROM pg_temp.error_of('INSERT INTO regress_dw_schema.t VALUES (8)');
RESET ROLE;
SELECT owner, args, search_path FROM delay_wheel_data.task ORDER BY id;
ROLLBACK;
-- a queue of others
SELECT delay_wheel.create_queue('trigger_private', users => '{regress_dw_owner}');
SELECT delay_wheel.allow('regress_dw_writer');
CREATE OR REPLACE TRIGGER t AFTER INSERT ON regress_dw_schema.t FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('1 h', 'SELECT $1', 'id', 'queue=trigger_private');
SET SESSION AUTHORIZATION regress_dw_writer;
SELECT code, message FROM pg_temp.error_of('INSERT INTO regress_dw_schema.t VALUES (9)');
RESET SESSION AUTHORIZATION;
SELECT delay_wheel.create_queue('trigger_private', users => '{regress_dw_owner,regress_dw_writer}');
SET SESSION AUTHORIZATION regress_dw_writer;
INSERT INTO regress_dw_schema.t VALUES (10);
SELECT owner, args, queue FROM delay_wheel.tasks ORDER BY id;
RESET SESSION AUTHORIZATION;
-- not in a security-restricted operation
CREATE FUNCTION regress_dw_schema.writes() RETURNS void LANGUAGE sql AS 'INSERT INTO regress_dw_schema.t VALUES (11)';
CREATE FUNCTION regress_dw_schema.pretends(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN PERFORM regress_dw_schema.writes(); RETURN i; END';
SET ROLE regress_dw_owner;
CREATE TABLE regress_dw_schema.indexed (i int);
INSERT INTO regress_dw_schema.indexed VALUES (1);
RESET ROLE;
SELECT code, message FROM pg_temp.error_of('CREATE INDEX ON regress_dw_schema.indexed (regress_dw_schema.pretends(i))');
SET client_min_messages = warning;
DROP SCHEMA regress_dw_schema CASCADE;
RESET client_min_messages;
DELETE FROM delay_wheel_data.task;
SELECT delay_wheel.drop_queue('trigger_private');
SELECT delay_wheel.disallow('regress_dw_owner', 'regress_dw_writer');
DROP ROLE regress_dw_owner, regress_dw_writer, regress_dw_group;

--
-- Wrong use, found when it first fires
--
CREATE TABLE trigger_wrong (id int, name text, at timestamptz, plain timestamp, gone int, queue text);
ALTER TABLE trigger_wrong DROP gone;
CREATE VIEW trigger_view AS SELECT * FROM trigger_wrong;
INSERT INTO trigger_wrong (id) VALUES (0);
CREATE FUNCTION pg_temp.fire(trigger text, command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	a record;
BEGIN
	BEGIN
		EXECUTE 'CREATE TRIGGER wrong ' || trigger;
	EXCEPTION WHEN OTHERS THEN
		RETURN 'CREATE TRIGGER: ' || SQLERRM;
	END;
	SELECT * INTO a FROM pg_temp.error_of(command);
	EXECUTE 'DROP TRIGGER wrong ON ' || (regexp_match(trigger, ' ON (\w+)'))[1];
	RETURN coalesce(a.code || ': ' || a.message || E'\n' || coalesce(a.hint, 'no hint'), 'no error');
END $$;
SELECT pg_temp.fire(trigger || ' EXECUTE FUNCTION delay_schedule_trigger(''1 h'', ''SELECT 1'')', command) FROM (VALUES
	('BEFORE INSERT ON trigger_wrong FOR EACH ROW', 'INSERT INTO trigger_wrong VALUES (1)'),
	('BEFORE UPDATE ON trigger_wrong FOR EACH ROW', 'UPDATE trigger_wrong SET id = 1'),
	('AFTER DELETE ON trigger_wrong FOR EACH ROW', 'DELETE FROM trigger_wrong'),
	('AFTER INSERT OR DELETE ON trigger_wrong FOR EACH ROW', 'DELETE FROM trigger_wrong'),
	('AFTER INSERT OR DELETE ON trigger_wrong FOR EACH ROW', 'INSERT INTO trigger_wrong VALUES (1)'),
	('AFTER INSERT ON trigger_wrong FOR EACH STATEMENT', 'INSERT INTO trigger_wrong VALUES (1)'),
	('BEFORE INSERT ON trigger_wrong', 'INSERT INTO trigger_wrong VALUES (1)'),
	('AFTER TRUNCATE ON trigger_wrong', 'TRUNCATE trigger_wrong'),
	('INSTEAD OF INSERT ON trigger_view FOR EACH ROW', 'INSERT INTO trigger_view VALUES (1)')) v(trigger, command);
SELECT * FROM pg_temp.error_of('SELECT delay_schedule_trigger()') \gx
SELECT arguments, pg_temp.fire('AFTER INSERT ON trigger_wrong FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger(' || arguments || ')',
	'INSERT INTO trigger_wrong VALUES (1, ''n'', now(), now())') FROM unnest(ARRAY[
	'', $$'1 h'$$,
	-- delay
	$$'soon', 'SELECT 1'$$, $$'', 'SELECT 1'$$, $$'name', 'SELECT 1'$$, $$'plain', 'SELECT 1'$$, $$'At', 'SELECT 1'$$, $$'gone', 'SELECT 1'$$,
	$$'20000000 years', 'SELECT 1'$$,
	-- SQL
	$$'1 h', 'SELEC 1'$$, $$'1 h', ''$$, $$'1 h', 'COMMIT'$$, $$'1 h', 'SELECT $1'$$, $$'1 h', 'SELECT 1', 'id'$$, $$'1 h', 'SELECT $1', 'id', 'name'$$,
	-- columns
	$$'1 h', 'SELECT $1', 'missing'$$, $$'1 h', 'SELECT $1', 'ID'$$, $$'1 h', 'SELECT $1', ''$$, $$'1 h', 'SELECT $1', 'ctid'$$,
	$$'1 h', 'SELECT $1', '........pg.dropped.5........'$$,
	-- options
	$$'1 h', 'SELECT 1', 'kez=id'$$, $$'1 h', 'SELECT 1', 'key =id'$$, $$'1 h', 'SELECT 1', '=id'$$, $$'1 h', 'SELECT 1', 'k=id'$$, $$'1 h', 'SELECT 1', 'keys=id'$$,
	$$'1 h', 'SELECT 1', 'key='$$, $$'1 h', 'SELECT 1', 'tag='$$, $$'1 h', 'SELECT 1', 'queue='$$,
	$$'1 h', 'SELECT 1', 'key=a', 'key=b'$$, $$'1 h', 'SELECT 1', 'if_exists=replace'$$, $$'1 h', 'SELECT 1', 'key=id', 'if_exists=update'$$,
	$$'1 h', 'SELECT 1', 'queue=missing'$$, $$'1 h', 'SELECT 1', 'queue=name'$$]) arguments;
-- the SQL is checked by the trigger whatever the setting
SET delay_wheel.check_sql = off;
SELECT pg_temp.fire($$AFTER INSERT ON trigger_wrong FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('1 h', 'SELEC 1')$$, 'INSERT INTO trigger_wrong VALUES (1)');
RESET delay_wheel.check_sql;
-- which trigger it was
\set VERBOSITY default
CREATE TRIGGER wrong AFTER INSERT ON trigger_wrong FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('soon', 'SELECT 1');
INSERT INTO trigger_wrong VALUES (1);
DROP TRIGGER wrong ON trigger_wrong;
CREATE TRIGGER wrong AFTER INSERT ON trigger_wrong FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('1 h', 'SELEC 1');
INSERT INTO trigger_wrong VALUES (1);
SELECT count(*) FROM trigger_tasks;


--
-- A trigger that is created anew while it fires, by a cast of the row's values
--
SELECT delay_wheel.create_queue('trigger_again', external => true);
CREATE TYPE trigger_again AS ENUM ('again', 'no');
CREATE TABLE trigger_casts (id int, c trigger_again);
CREATE FUNCTION trigger_again(trigger_again) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
	IF $1 = 'again' THEN
		CREATE OR REPLACE TRIGGER again AFTER INSERT ON trigger_casts FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('1 h', 'SELECT 1', 'no_such=1');
		BEGIN
			INSERT INTO trigger_casts VALUES (2, 'no');
		EXCEPTION WHEN invalid_parameter_value THEN
		END;
	END IF;
	RETURN '"cast"';
END $$;
CREATE CAST (trigger_again AS json) WITH FUNCTION trigger_again(trigger_again);
CREATE TRIGGER again AFTER INSERT ON trigger_casts FOR EACH ROW EXECUTE FUNCTION
	delay_send_trigger('1 h', 'trigger_again', 'id', 'c', 'tag=x', 'key=id', 'on_success=SELECT 77', 'retry_delay=3 s', 'notify=ch');
INSERT INTO trigger_casts VALUES (1, 'again');
SELECT payload, tag, key, retry_delay, notify, on_success FROM delay_wheel.tasks WHERE queue = 'trigger_again';
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks WHERE queue = 'trigger_again';
DROP TABLE trigger_casts;
DROP TYPE trigger_again CASCADE;
SELECT delay_wheel.drop_queue('trigger_again');

DROP VIEW trigger_tasks, trigger_view;
DROP TABLE trigger_t, trigger_wrong;
DROP FUNCTION trigger_on;
DROP DOMAIN trigger_pause, trigger_id, trigger_when, trigger_pairs;
DROP TYPE trigger_mood, trigger_pair;
SELECT delay_wheel.drop_queue('trigger_mails'), delay_wheel.drop_queue('trigger_other');
