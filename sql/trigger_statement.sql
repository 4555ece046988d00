--
-- TRIGGER FOR EACH STATEMENT
-- delay_schedule_trigger() and delay_send_trigger() with a transition table: the same tasks as a
-- trigger for each row; written together; savepoints, keys, limits, partitions, COPY.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
\set VERBOSITY terse

SELECT delay_wheel.create_queue('statement_groups', groups => true),
	delay_wheel.create_queue('statement_mails', external => true);
CREATE TABLE statement_row (id bigint PRIMARY KEY, pause interval, k text, label varchar, team char(10), line text, big text);
CREATE TABLE statement_all (LIKE statement_row INCLUDING ALL);
-- the same arguments for a trigger FOR EACH ROW of the one table, and FOR EACH STATEMENT of the other
CREATE FUNCTION statement_triggers(called text, event text DEFAULT 'INSERT') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE OR REPLACE TRIGGER t AFTER %s ON statement_row FOR EACH ROW EXECUTE FUNCTION %s', event, called);
	EXECUTE format('CREATE OR REPLACE TRIGGER t AFTER %s ON statement_all REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION %s', event, called);
END $$;
-- how many tasks there are, and how many of one half are not in the other: all but their ids
CREATE FUNCTION statement_differences(OUT tasks bigint, OUT others bigint, OUT one_row bigint, OUT same_order boolean) LANGUAGE plpgsql AS $$
BEGIN
	CREATE TEMP TABLE seen ON COMMIT DROP AS
		SELECT id, (to_jsonb(t) - 'id')::text AS task, id <= (SELECT max(id) FROM statement_half) AS by_row FROM delay_wheel_data.task t;
	SELECT count(*) FILTER (WHERE by_row), count(*) FILTER (WHERE NOT by_row) INTO tasks, others FROM seen;
	SELECT count(*) INTO one_row FROM (SELECT task, count(*) FILTER (WHERE by_row) - count(*) FILTER (WHERE NOT by_row) AS more FROM seen GROUP BY task) d WHERE more <> 0;
	SELECT array_agg(task ORDER BY id) FILTER (WHERE by_row) = array_agg(task ORDER BY id) FILTER (WHERE NOT by_row) INTO same_order FROM seen;
END $$;
CREATE TABLE statement_half (id bigint);
CREATE VIEW statement_rows AS
	SELECT i AS id, CASE WHEN i % 7 > 0 THEN i * interval '1 minute' END AS pause, 'k' || i % 50 AS k, 'label ' || i % 3 AS label,
		'team' || i % 5 AS team, CASE i % 3 WHEN 0 THEN 'statement_groups' WHEN 1 THEN 'default' END AS line,
		CASE i % 100 WHEN 0 THEN repeat('long text ', 300) ELSE 'x' || i END AS big
	FROM generate_series(1, 1000) i;

--
-- The same tasks, in the same order
--
SELECT statement_triggers($$delay_schedule_trigger('48 hours', 'SELECT $1, $2', 'id', 'big')$$);
BEGIN;
INSERT INTO statement_row SELECT * FROM statement_rows;
INSERT INTO statement_half SELECT max(id) FROM delay_wheel_data.task;
INSERT INTO statement_all SELECT * FROM statement_rows;
SELECT * FROM statement_differences();
ROLLBACK;
-- delay, queue, tag and group from columns, and options
SELECT statement_triggers($$delay_schedule_trigger('pause', 'SELECT $1', 'id', 'queue=line', 'tag=label', 'priority=3', 'max_attempts=4', 'on_failure=SELECT 2')$$);
BEGIN;
INSERT INTO statement_row SELECT * FROM statement_rows;
INSERT INTO statement_half SELECT max(id) FROM delay_wheel_data.task;
INSERT INTO statement_all SELECT * FROM statement_rows;
SELECT * FROM statement_differences();
ROLLBACK;
SELECT statement_triggers($$delay_schedule_trigger('pause', 'SELECT $1', 'id', 'queue=statement_groups', 'tag=big', 'group_key=team')$$);
BEGIN;
INSERT INTO statement_row SELECT * FROM statement_rows WHERE length(big) < 1000;
INSERT INTO statement_half SELECT max(id) FROM delay_wheel_data.task;
INSERT INTO statement_all SELECT * FROM statement_rows WHERE length(big) < 1000;
SELECT * FROM statement_differences();
ROLLBACK;
-- only the later rows have a group: its index has their entries
SELECT statement_triggers($$delay_schedule_trigger('pause', 'SELECT $1', 'id', 'queue=statement_groups', 'group_key=label')$$);
BEGIN;
INSERT INTO statement_all (id, pause, label) SELECT i, '1 hour', CASE WHEN i > 50 THEN 'g' || i % 7 END FROM generate_series(1, 100) i;
SELECT count(*), count(DISTINCT group_hash) FROM delay_wheel_data.task WHERE group_key IS NOT NULL;
SET LOCAL enable_seqscan = off;
SELECT count(*), count(DISTINCT group_hash) FROM delay_wheel_data.task WHERE origin IS NOT NULL AND group_hash IS NOT NULL;
ROLLBACK;
-- keys: a later row replaces the task of an earlier row, and a row without a delay cancels it
SELECT statement_triggers($$delay_schedule_trigger('pause', 'SELECT $1', 'id', 'key=k')$$);
BEGIN;
INSERT INTO statement_row SELECT * FROM statement_rows;
INSERT INTO statement_half SELECT max(id) FROM delay_wheel_data.task;
CREATE TEMP TABLE by_row ON COMMIT DROP AS SELECT key, args FROM delay_wheel_data.task;
DELETE FROM delay_wheel_data.task;
INSERT INTO statement_all SELECT * FROM statement_rows;
SELECT (SELECT count(*) FROM by_row), (SELECT count(*) FROM delay_wheel_data.task NATURAL JOIN by_row), (SELECT count(*) FROM delay_wheel_data.task);
ROLLBACK;
-- only some rows have keys
BEGIN;
INSERT INTO statement_row SELECT id, '1 hour', CASE WHEN id % 10 = 0 THEN k END FROM statement_rows;
INSERT INTO statement_half SELECT max(id) FROM delay_wheel_data.task;
CREATE TEMP TABLE by_row ON COMMIT DROP AS SELECT key, args FROM delay_wheel_data.task;
DELETE FROM delay_wheel_data.task;
INSERT INTO statement_all SELECT id, '1 hour', CASE WHEN id % 10 = 0 THEN k END FROM statement_rows;
SELECT (SELECT count(*) FROM by_row), (SELECT count(*) FROM delay_wheel_data.task t JOIN by_row r ON t.args = r.args AND t.key IS NOT DISTINCT FROM r.key), (SELECT count(*) FROM delay_wheel_data.task);
ROLLBACK;
-- messages
SELECT statement_triggers($$delay_send_trigger('1 hour', 'statement_mails')$$);
BEGIN;
INSERT INTO statement_row SELECT * FROM statement_rows;
INSERT INTO statement_half SELECT max(id) FROM delay_wheel_data.task;
INSERT INTO statement_all SELECT * FROM statement_rows;
SELECT * FROM statement_differences();
ROLLBACK;

--
-- Rows of the transition table that do not fit into memory
--
SELECT statement_triggers($$delay_schedule_trigger('1 hour', 'SELECT $1', 'big', 'tag=label')$$);
SET work_mem = '64kB';
BEGIN;
INSERT INTO statement_row SELECT id, pause, k, 'label ' || id, team, line, repeat(id::text, 100) FROM statement_rows;
INSERT INTO statement_half SELECT max(id) FROM delay_wheel_data.task;
INSERT INTO statement_all SELECT id, pause, k, 'label ' || id, team, line, repeat(id::text, 100) FROM statement_rows;
SELECT * FROM statement_differences();
ROLLBACK;
RESET work_mem;
-- rows that are long: 30 MB of arguments
BEGIN;
INSERT INTO statement_all SELECT id, pause, k, label, team, line, repeat(md5(id::text), 3000) FROM statement_rows WHERE id <= 300;
SELECT count(*), sum(length(args[1])), count(DISTINCT args) FROM delay_wheel_data.task;
ROLLBACK;

--
-- Two triggers of one statement read the same rows; an UPDATE; no rows
--
CREATE TRIGGER t2 AFTER INSERT ON statement_all REFERENCING NEW TABLE AS n2 FOR EACH STATEMENT EXECUTE FUNCTION
	delay_schedule_trigger('2 hours', 'SELECT $1', 'id');
CREATE TRIGGER u AFTER UPDATE ON statement_all REFERENCING OLD TABLE AS o NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION
	delay_schedule_trigger('3 hours', 'SELECT $1', 'id', 'key=id');
BEGIN;
INSERT INTO statement_all SELECT * FROM statement_rows WHERE id <= 300;
SELECT due - now() AS delay, count(*), count(DISTINCT args) FROM delay_wheel_data.task GROUP BY 1 ORDER BY 1;
UPDATE statement_all SET k = 'y' WHERE id <= 200;
UPDATE statement_all SET k = 'z' WHERE id <= 3;
UPDATE statement_all SET k = 'z' WHERE id < 0;
SELECT due - now() AS delay, count(*) FROM delay_wheel_data.task GROUP BY 1 ORDER BY 1;
SELECT args FROM delay_wheel_data.task WHERE key <= '3' AND key ~ '^.$' ORDER BY key;
INSERT INTO statement_all SELECT * FROM statement_rows WHERE id BETWEEN 200 AND 400
	ON CONFLICT (id) DO UPDATE SET k = 'again';
SELECT due - now() AS delay, count(*) FROM delay_wheel_data.task GROUP BY 1 ORDER BY 1;
-- the rows were updated by their own statement
SELECT outcome FROM delay_scheduled();
ROLLBACK;
DROP TRIGGER t2 ON statement_all;
DROP TRIGGER u ON statement_all;

--
-- To the end: COPY, savepoints, one transaction with single tasks
--
CREATE TABLE statement_done (id bigint);
SELECT statement_triggers($$delay_schedule_trigger('0', 'INSERT INTO statement_done VALUES ($1)', 'id')$$);
BEGIN;
INSERT INTO statement_all SELECT id FROM generate_series(1, 1500) id;
SAVEPOINT s;
INSERT INTO statement_all SELECT id FROM generate_series(2001, 2300) id;
ROLLBACK TO s;
COPY statement_all (id) FROM stdin;
3001
3002
\.
SELECT count(delay_schedule('0', 'INSERT INTO statement_done VALUES ($1)', 4000::bigint));
COMMIT;
SELECT pg_temp.wait_until_done();
SELECT count(*), count(DISTINCT id), min(id), max(id), sum(id) FROM statement_done;
TRUNCATE statement_done;
-- few tasks, which the commit tells one by one
INSERT INTO statement_all SELECT id FROM generate_series(4001, 4100) id;
SELECT pg_temp.wait_until_done();
SELECT count(*), count(DISTINCT id), min(id), max(id) FROM statement_done;
TRUNCATE statement_done;
-- an error in one row: no task
DO $$
BEGIN
	INSERT INTO statement_row VALUES (1);
	INSERT INTO statement_all SELECT id FROM generate_series(5001, 5300) id UNION ALL SELECT 5001;
EXCEPTION WHEN unique_violation THEN
	RAISE NOTICE 'as expected';
END $$;
SELECT count(*) FROM delay_wheel_data.task;
-- also if the error is in the trigger, after tasks were written
SELECT statement_triggers($$delay_schedule_trigger('1 hour', 'SELECT $1', 'id', 'tag=label')$$);
INSERT INTO statement_all (id, label) SELECT id, repeat('x', id::int - 9000) FROM generate_series(9801, 10100) id;
SELECT count(*) FROM delay_wheel_data.task;

--
-- The function that writes the rows, and is called several times by one statement, finds their tasks
--
CREATE FUNCTION statement_looks(bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO statement_all (id) SELECT i FROM generate_series(10 * $1, 10 * $1 + 4) i;
	RETURN (SELECT count(*) FROM delay_wheel_data.task);
END $$;
SELECT statement_triggers($$delay_schedule_trigger('1 hour', 'SELECT $1', 'id')$$);
BEGIN;
SELECT statement_looks(id) FROM generate_series(1000, 1003) id;
ROLLBACK;

--
-- Partitions: the trigger of the parent gets the rows of all partitions
--
CREATE TABLE statement_parent (name text, id int) PARTITION BY LIST (id);
CREATE TABLE statement_part (gone int, id int, name text);
ALTER TABLE statement_part DROP COLUMN gone;
ALTER TABLE statement_parent ATTACH PARTITION statement_part FOR VALUES IN (1);
CREATE TABLE statement_rest PARTITION OF statement_parent DEFAULT;
CREATE TRIGGER t AFTER INSERT ON statement_parent REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION
	delay_schedule_trigger('1 hour', 'SELECT $1, $2', 'id', 'name');
BEGIN;
INSERT INTO statement_parent VALUES ('one', 1), ('two', 2), ('three', 3);
SELECT args FROM delay_wheel_data.task ORDER BY id;
ROLLBACK;

--
-- The limit of pending tasks, the audit, other columns and indexes of the table
--
SET delay_wheel.max_pending = 250;
BEGIN;
INSERT INTO statement_all SELECT id FROM generate_series(6001, 6250) id;
SELECT count(*) FROM delay_wheel_data.task;
INSERT INTO statement_all VALUES (6251);
ROLLBACK;
INSERT INTO statement_all SELECT id FROM generate_series(6001, 6251) id;
RESET delay_wheel.max_pending;
BEGIN;
ALTER TABLE delay_wheel_data.task ADD COLUMN statement_more int;
CREATE INDEX statement_index ON delay_wheel_data.task ((args[1]), (id % 10)) WHERE tag IS NULL;
INSERT INTO statement_all SELECT id FROM generate_series(7001, 7300) id;
SET LOCAL enable_seqscan = off;
SELECT count(*), min(args[1]), max(args[1]) FROM delay_wheel_data.task WHERE args[1] >= '' AND tag IS NULL;
ROLLBACK;
BEGIN;
SET LOCAL delay_wheel.audit = 'all';
INSERT INTO statement_all SELECT id FROM generate_series(8001, 8300) id;
SELECT action, count(*), count(DISTINCT task) FROM delay_wheel.audit WHERE at >= now() GROUP BY 1;
ROLLBACK;

--
-- The memory of rows is freed, with and without a task: each test has 40 MB
--
SELECT statement_triggers($$delay_schedule_trigger('pause', 'SELECT $1', 'id', 'tag=big')$$);
CREATE FUNCTION statement_memory(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF $1 LIKE 'last%' THEN
		RAISE NOTICE 'the memory of this session is small: %', (SELECT sum(total_bytes) < 20000000 FROM pg_backend_memory_contexts);
	END IF;
	RETURN $1;
END $$;
SET work_mem = '64kB';
BEGIN;
CREATE INDEX statement_index ON delay_wheel_data.task (statement_memory(tag)) WHERE tag LIKE 'last%';
INSERT INTO statement_all (id, pause, big) SELECT id, CASE WHEN id IN (20001, 60000) THEN interval '1 hour' END, CASE WHEN id IN (20001, 60000) THEN 'last' ELSE '' END || repeat('x', 900) FROM generate_series(20001, 60000) id;
INSERT INTO statement_all (id, pause, big) SELECT id, '1 hour', CASE WHEN id = 100000 THEN 'last' ELSE '' END || repeat('x', 900) FROM generate_series(60001, 100000) id;
ROLLBACK;
RESET work_mem;
DROP FUNCTION statement_memory;

--
-- A cast to json, which the payload calls, runs user code: it finds the tasks of earlier rows, and
-- the role that it sets needs the right
--
CREATE TYPE statement_mood AS ENUM ('plain', 'count', 'drop', 'role');
CREATE ROLE regress_dw_nobody;
SELECT delay_wheel.create_queue('statement_users', external => true, users => '{public}');
CREATE FUNCTION statement_mood_json(statement_mood) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
	CASE $1
		WHEN 'count' THEN RETURN (SELECT to_json(count(*)) FROM delay_wheel_data.task);
		WHEN 'drop' THEN PERFORM delay_wheel.drop_queue('statement_users');
		WHEN 'role' THEN SET LOCAL ROLE regress_dw_nobody;
		ELSE NULL;
	END CASE;
	RETURN '"mood"';
END $$;
CREATE CAST (statement_mood AS json) WITH FUNCTION statement_mood_json;
CREATE TABLE statement_cast (id int, mood statement_mood);
GRANT ALL ON statement_cast TO regress_dw_nobody;
CREATE TRIGGER t AFTER INSERT ON statement_cast REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION delay_send_trigger('1 hour', 'statement_users');
BEGIN;
INSERT INTO statement_cast VALUES (1, 'plain'), (2, 'count'), (3, 'plain'), (4, 'count');
SELECT payload FROM delay_wheel_data.task ORDER BY id;
ROLLBACK;
INSERT INTO statement_cast VALUES (1, 'plain'), (2, 'drop');
INSERT INTO statement_cast VALUES (1, 'plain'), (2, 'role'), (3, 'plain');
SELECT count(*) FROM delay_wheel_data.task;
-- without rows nobody needs a right, as no trigger FOR EACH ROW would be called
TRUNCATE statement_cast;
SET ROLE regress_dw_nobody;
INSERT INTO statement_cast SELECT 1, 'plain' WHERE false;
INSERT INTO statement_cast VALUES (1, 'plain');
RESET ROLE;
DROP TABLE statement_cast;
DROP TYPE statement_mood CASCADE;
DROP ROLE regress_dw_nobody;
SELECT delay_wheel.drop_queue('statement_users');

--
-- What is refused
--
CREATE TRIGGER wrong AFTER INSERT ON statement_row FOR EACH STATEMENT EXECUTE FUNCTION delay_schedule_trigger('1 h', 'SELECT 1');
INSERT INTO statement_row VALUES (99);
DROP TRIGGER wrong ON statement_row;
CREATE TRIGGER wrong AFTER UPDATE ON statement_row REFERENCING OLD TABLE AS o FOR EACH STATEMENT EXECUTE FUNCTION delay_send_trigger('1 h', 'statement_mails');
UPDATE statement_row SET k = 'x';
DROP TRIGGER wrong ON statement_row;
CREATE TRIGGER wrong AFTER DELETE ON statement_row REFERENCING OLD TABLE AS o FOR EACH STATEMENT EXECUTE FUNCTION delay_schedule_trigger('1 h', 'SELECT 1');
DELETE FROM statement_row;

DROP TABLE statement_row, statement_all, statement_half, statement_done, statement_parent CASCADE;
DROP FUNCTION statement_triggers, statement_differences, statement_looks;
SELECT delay_wheel.drop_queue('statement_groups'), delay_wheel.drop_queue('statement_mails');
