--
-- SCHEDULE
-- What delay_schedule and delay_schedule_at return, store and refuse: due
-- times count from the start of the transaction, and a task that can never
-- run is refused with SQLSTATE, message and hint.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE TABLE schedule_effect (label text, due timestamptz,
	began timestamptz DEFAULT now(), ran timestamptz DEFAULT clock_timestamp());

-- ids grow in the order of scheduling
BEGIN;
SELECT delay_schedule('1 hour', 'SELECT 1') AS first \gset
ROLLBACK;
BEGIN;
SELECT delay_schedule('1 hour', 'SELECT 1') AS second \gset
SELECT delay_schedule_at(now(), 'SELECT 1') AS third \gset
SELECT :first < :second AND :second < :third AS growing;
ROLLBACK;

--
-- Due times
--
BEGIN;
SELECT pg_sleep(0.01);
CREATE TEMP TABLE scheduled ON COMMIT DROP AS
	SELECT d, delay_schedule(d, 'SELECT 1') AS id
	FROM unnest('{0, 1 us, 1.5 s, -1 s, 48 h, 3 days 4 h, 1 month, 1 year 2 months 3 days 04:05:06.789012, -2000 years, 100000 years}'::interval[]) d;
SELECT d, t.due = now() + d AS counts_from_now FROM scheduled JOIN delay_wheel.tasks t USING (id) ORDER BY d;
ROLLBACK;

-- months and days are those of the caller's time zone: on the way round the
-- year there is a change of the clocks
BEGIN;
SET LOCAL TimeZone = 'America/New_York';
CREATE TEMP TABLE scheduled ON COMMIT DROP AS
	SELECT d, delay_schedule(d, 'SELECT 1') AS id, now() + d AS due
	FROM (SELECT m * interval '1 month' AS d FROM generate_series(1, 12) m) months;
SELECT count(*), bool_and(t.due = s.due) AS as_there
	FROM scheduled s JOIN delay_wheel.tasks t USING (id);
SET LOCAL TimeZone = 'UTC';
SELECT bool_or(t.due <> now() + s.d) AS not_as_here
	FROM scheduled s JOIN delay_wheel.tasks t USING (id);
ROLLBACK;
BEGIN;
SET LOCAL TimeZone = 'Europe/Berlin';
SELECT delay_schedule_at(timestamp '2030-06-01 12:00', 'SELECT 1') AS id \gset
SELECT due AT TIME ZONE 'UTC' FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_schedule_at('294276-12-31 23:59:59.999999+00', 'SELECT 1') AS id \gset
SELECT due AT TIME ZONE 'UTC' FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_schedule_at('4713-01-01 00:00:00+00 BC', 'SELECT 1') AS id \gset
SELECT due AT TIME ZONE 'UTC' FROM delay_wheel.tasks WHERE id = :id;
ROLLBACK;

-- never early, and now() inside of the task is not before its due either;
-- what is due already runs at once
SELECT count(delay_schedule(d,
		'INSERT INTO schedule_effect (label, due) VALUES ($1, $2)', d::text, now() + d))
	FROM unnest('{-1 year, -1 us, 0, 1 us, 10 ms, 333.333 ms, 1 s, 1.5 s}'::interval[]) d;
SELECT delay_schedule_at('2001-02-03 04:05:06.7+00',
	$$INSERT INTO schedule_effect (label, due) VALUES ('past', $1)$$,
	timestamptz '2001-02-03 04:05:06.7+00') > 0 AS ok;
SELECT pg_temp.wait_for('count(*) = 9 FROM schedule_effect');
SELECT label, began >= due AND ran >= due AS not_early FROM schedule_effect ORDER BY due;

-- a delay counts from the start of the transaction, so this one is due
-- before it is committed
BEGIN;
SELECT now() AS started \gset
SELECT pg_sleep(0.1);
SELECT delay_schedule('50 ms', $$INSERT INTO schedule_effect (label) VALUES ('counted from the start')$$) AS id \gset
SELECT due = :'started'::timestamptz + interval '50 ms' AS from_the_start,
	   due < clock_timestamp() AS due_already
	FROM delay_wheel.tasks WHERE id = :id;
COMMIT;
SELECT pg_temp.wait_for($$count(*) = 1 FROM schedule_effect WHERE label = 'counted from the start'$$);

-- several statements, each of which sees what the one before has done
SELECT delay_schedule('0', $$
	CREATE TABLE schedule_several (i int);
	INSERT INTO schedule_several VALUES (1), (2);;
	-- a comment; with a semicolon
	INSERT INTO schedule_effect (label) SELECT 'several: ' || sum(i) FROM schedule_several;
	DROP TABLE schedule_several
$$) > 0 AS ok;
SELECT pg_temp.wait_for($$count(*) = 1 FROM schedule_effect WHERE label = 'several: 3'$$);

--
-- Refused: values
--
SELECT * FROM pg_temp.error_of($$SELECT delay_schedule_at(NULL, 'SELECT 1')$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_schedule('1 s', NULL)$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_schedule(NULL, 'SELECT 1')$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_schedule_at(now(), NULL)$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_schedule(NULL, 'SELECT $1', 1)$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_schedule_at('infinity', 'SELECT 1')$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_schedule_at('-infinity', 'SELECT 1')$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_schedule('300000 years', 'SELECT 1')$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_schedule('-20000 years', 'SELECT 1')$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_schedule('178000000 years', 'SELECT 1')$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_reschedule(NULL, '1 s')$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_reschedule(1, NULL)$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_reschedule(1, NULL)$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_reschedule(1, timestamptz 'infinity')$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_reschedule(1, '300000 years')$$);
SELECT * FROM pg_temp.error_of('SELECT delay_cancel(NULL)');
SELECT * FROM pg_temp.error_of($$SELECT delay_cancel(1, key => 'k')$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_cancel(1, queue => 'q')$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_cancel(stop_running => true, key => 'k')$$);
-- a number without a unit, and points in time, as texts (18 has other letters in its hint)
SELECT when_text, code, message, detail, replace(hint, 'DateStyle', 'datestyle') AS hint FROM unnest(ARRAY['5000', ' 1.5', '-3', '+7 ', '2027-13-01', '2027-01-01 25:00', 'tomorrow', '']) when_text, pg_temp.error_of(format('SELECT delay_schedule(%L, ''SELECT 1'')', when_text));
SELECT code, message FROM pg_temp.error_of('SELECT delay_schedule(5000, ''SELECT 1'')');
BEGIN;
SELECT delay_schedule('2100-01-01', 'SELECT 1') AS day, delay_schedule('2100-01-01 10:00+02', 'SELECT 1') AS instant, delay_schedule('0', 'SELECT 1') > 0 AS zero, delay_schedule(' 00 ', 'SELECT 1') > 0 AS zeros \gset
SELECT due FROM delay_wheel.tasks WHERE id IN (:day, :instant) ORDER BY id;
SELECT delay_reschedule(:day, '2100-01-02'), delay_reschedule(:instant, '2100-01-02 10:00+02'::timestamptz);
SELECT due FROM delay_wheel.tasks WHERE id IN (:day, :instant) ORDER BY id;
ROLLBACK;

--
-- Refused: texts
--
SELECT * FROM unnest(ARRAY['', '  ', ';', E' \n;; ', '-- nothing', '/* nothing */ ;']) text,
	pg_temp.error_of(format('SELECT delay_schedule(%L, %L)', '1 s', text));

-- the position is that in the task's text
SELECT delay_schedule('1 s', 'SELECT 1; SELEC 2');
SELECT delay_schedule('1 s', E'SELECT 1;\nSELECT 2 +;');
SELECT delay_schedule('1 s', 'SELECT 1; VACUUM');
SELECT delay_schedule('1 s', 'SELECT ''unterminated');
\echo :LAST_ERROR_SQLSTATE
SELECT delay_schedule('1 s', 'SELECT $1 + $2', 1);
SELECT delay_schedule('1 s', 'SELECT $3');
SELECT delay_schedule('1 s', 'SELECT $1', 1, 2);
SELECT delay_schedule('1 s', 'SELECT 1', 1);
SELECT delay_schedule('1 s', 'SELECT $0', 1);
SELECT delay_schedule('1 s', 'CREATE VIEW v AS SELECT $1', 1);
SELECT delay_schedule('1 s', 'SELECT 1; COMMENT ON TABLE t IS ''$1''; DO $d$BEGIN END$d$; SET work_mem = $1', 'x');

-- what cannot run inside a transaction that somebody else ends, or without a
-- client; each with its own hint
SELECT text, e.code, e.message, e.hint
	FROM unnest(ARRAY[
		'BEGIN', 'START TRANSACTION', 'COMMIT', 'COMMIT AND CHAIN', 'END', 'ROLLBACK', 'ABORT',
		'SAVEPOINT s', 'RELEASE s', 'ROLLBACK TO s',
		$$PREPARE TRANSACTION 'x'$$, $$COMMIT PREPARED 'x'$$, $$ROLLBACK PREPARED 'x'$$,
		'VACUUM', 'VACUUM FULL t', 'VACUUM (ANALYZE) t',
		'CLUSTER', 'CLUSTER VERBOSE',
		'REINDEX SCHEMA s', 'REINDEX DATABASE d', 'REINDEX SYSTEM d',
		'REINDEX TABLE CONCURRENTLY t', 'REINDEX (CONCURRENTLY) INDEX i', 'REINDEX (CONCURRENTLY true) INDEX i',
		'CREATE INDEX CONCURRENTLY ON t (a)', 'DROP INDEX CONCURRENTLY i',
		'ALTER TABLE t DETACH PARTITION p CONCURRENTLY',
		'CREATE DATABASE d', 'DROP DATABASE d', 'ALTER DATABASE d SET TABLESPACE s',
		$$CREATE TABLESPACE s LOCATION '/x'$$, 'DROP TABLESPACE s',
		'ALTER SYSTEM SET work_mem = 1', 'DISCARD ALL',
		$$CREATE SUBSCRIPTION s CONNECTION 'x' PUBLICATION p$$,
		'ALTER SUBSCRIPTION s REFRESH PUBLICATION',
		'ALTER SUBSCRIPTION s SET PUBLICATION p',
		'COPY t FROM STDIN', 'COPY t TO STDOUT', 'COPY (SELECT 1) TO STDOUT',
		'LISTEN c',
		'SET TRANSACTION ISOLATION LEVEL SERIALIZABLE', 'SET TRANSACTION READ ONLY, ISOLATION LEVEL REPEATABLE READ',
		'SET TRANSACTION NOT DEFERRABLE', $$SET TRANSACTION SNAPSHOT '1'$$
	]) text
	LEFT JOIN LATERAL pg_temp.error_of(format('SELECT delay_schedule(%L, %L)', '1 s', text)) e ON true;
-- one of them is enough
SELECT delay_schedule('1 s', 'SELECT 1; SELECT 2; COMMIT; SELECT 3');

-- what looks similar and can run, or is decided by the state of the database
-- then, is let through
BEGIN;
SELECT text, e.message AS wrongly_refused
	FROM unnest(ARRAY[
		'ANALYZE', 'ANALYZE t', 'CLUSTER t', 'REINDEX TABLE t', 'REINDEX INDEX i', 'REINDEX (CONCURRENTLY false) TABLE t',
		'CREATE INDEX ON t (a)', 'DROP INDEX i', 'ALTER TABLE t DETACH PARTITION p',
		'DISCARD TEMP', 'ALTER DATABASE d CONNECTION LIMIT 3', 'TRUNCATE t', 'LOCK t',
		'DO $d$BEGIN NULL; END$d$', 'CALL p()', 'SET work_mem = 1', 'SET TRANSACTION READ ONLY', 'SET TRANSACTION ISOLATION LEVEL READ COMMITTED', 'SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE', 'NOTIFY c', 'UNLISTEN c',
		$$COPY t FROM '/x'$$, $$COPY t TO PROGRAM 'cat'$$, 'CHECKPOINT',
		$$CREATE SUBSCRIPTION s CONNECTION 'x' PUBLICATION p WITH (connect = false)$$,
		$$CREATE SUBSCRIPTION s CONNECTION 'x' PUBLICATION p WITH (create_slot = false)$$,
		'DROP SUBSCRIPTION s', 'ALTER SUBSCRIPTION s SET PUBLICATION p WITH (refresh = false)',
		'EXPLAIN SELECT 1', 'PREPARE p AS SELECT $1', 'CREATE FUNCTION f(int) RETURNS int LANGUAGE sql RETURN $1',
		'SELECT ''$1''', 'SELECT $$ $1 $$', 'SELECT 1 -- $1', 'SELECT "$1" FROM t'
	]) text
	LEFT JOIN LATERAL pg_temp.error_of(format('SELECT delay_schedule(%L, %L)', '1 hour', text)) e ON true
	WHERE e.message IS NOT NULL;
ROLLBACK;

-- the check can be switched off; then the task fails
SET delay_wheel.check_sql = off;
SELECT delay_schedule('0', 'SELEC 1') AS id \gset
SELECT delay_schedule('0', 'COMMIT') AS id2 \gset
SELECT delay_schedule('0', 'COPY schedule_effect TO STDOUT') AS id3 \gset
SELECT delay_schedule('0', 'VACUUM') AS id4 \gset
SELECT delay_schedule('0', 'LISTEN x') AS id5 \gset
SELECT delay_schedule('0', 'SAVEPOINT s; SELECT 1') AS id6 \gset
RESET delay_wheel.check_sql;
SELECT pg_temp.wait_for('count(*) = 6 FROM delay_wheel.failed WHERE id BETWEEN ' || :id || ' AND ' || :id6);
SELECT sql, sqlstate, message FROM delay_wheel.failed WHERE id BETWEEN :id AND :id6 ORDER BY id;

--
-- Refused: circumstances
--
BEGIN READ ONLY;
SELECT * FROM pg_temp.error_of($$SELECT delay_schedule('1 s', 'SELECT 1')$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_schedule_at(now(), 'SELECT 1')$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_cancel(1)$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_reschedule(1, '1 s')$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_reschedule(1, now())$$);
ROLLBACK;
CREATE MATERIALIZED VIEW schedule_mv AS SELECT delay_schedule('1 s', 'SELECT 1');
\echo :LAST_ERROR_SQLSTATE
SELECT proname, proparallel, provolatile, bool_and(prosecdef) AS definer
	FROM pg_proc WHERE oid IN (SELECT objid FROM pg_depend WHERE refclassid = 'pg_extension'::regclass
		AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'delay_wheel') AND deptype = 'e')
		AND proname LIKE 'delay\_%'
	GROUP BY 1, 2, 3 ORDER BY 1;

-- nothing of what was refused or rolled back is left
SELECT count(*) FROM delay_wheel_data.task;

DROP TABLE schedule_effect;
DELETE FROM delay_wheel_data.failed_task WHERE id BETWEEN :id AND :id6;
