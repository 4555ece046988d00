--
-- ATTEMPTS
-- A task that fails is tried again as often as it may be, later each time;
-- what lost against others is done again at once; what takes too long, and
-- what has expired.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE TABLE attempts_effect (label text, attempt int);
CREATE SEQUENCE attempts_seq;
-- How often a task was begun is known from sequences: they are not rolled back.
CREATE FUNCTION attempts_fail_until(n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	attempt int := nextval('attempts_seq');
BEGIN
	IF attempt < n THEN
		RAISE EXCEPTION 'attempt % failed', attempt USING ERRCODE = 'DW042';
	END IF;
	RETURN attempt;
END $$;
-- A task due now, with what delay_schedule() does not say.
CREATE FUNCTION pg_temp.task(sql text, attempts int, pause interval DEFAULT '0', timeout int DEFAULT NULL,
	expires interval DEFAULT NULL, due timestamptz DEFAULT now(), priority int DEFAULT 0) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	new bigint := delay_schedule_at($6, $1);
BEGIN
	EXECUTE 'UPDATE delay_wheel_data.task SET max_attempts = $2, retry_delay = $3, timeout = $4, expires = $5, priority = $6 WHERE id = $1'
		USING new, $2, $3, $4, $5, $7;
	RETURN new;
END $$;
-- what is known of a failed one
CREATE FUNCTION pg_temp.failure(task bigint, OUT attempts int, OUT sqlstate text, OUT message text, OUT detail text) RETURNS SETOF record LANGUAGE sql AS
	'SELECT attempts, sqlstate, message, detail FROM delay_wheel.failed WHERE id = task';
SELECT done, failed, retried FROM delay_wheel.status WHERE database = current_database() \gset before_

-- once, unless said otherwise
SELECT setval('attempts_seq', 1, false);
SELECT delay_schedule('0', 'SELECT attempts_fail_until(2)') AS id \gset
SELECT pg_temp.wait_until_done();
SELECT * FROM pg_temp.failure(:id);

-- until it goes well
SELECT setval('attempts_seq', 1, false);
SELECT pg_temp.task($$INSERT INTO attempts_effect VALUES ('third', -1); INSERT INTO attempts_effect VALUES ('third', attempts_fail_until(3))$$, 3) AS id \gset
SELECT pg_temp.wait_for('EXISTS (SELECT FROM attempts_effect WHERE label = ''third'' AND attempt > 0)');
SELECT attempt FROM attempts_effect WHERE label = 'third' ORDER BY 1;
SELECT * FROM pg_temp.failure(:id);

-- until it has no attempts left; the last error counts
SELECT setval('attempts_seq', 1, false);
SELECT pg_temp.task('SELECT attempts_fail_until(100)', 4) AS id \gset
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel.failed WHERE id = %s)', :id));
SELECT * FROM pg_temp.failure(:id);
SELECT last_value FROM attempts_seq;

-- between two attempts it is pending: with its error, in its lane, and due
-- no sooner than the pause (and no later than a quarter more)
SELECT setval('attempts_seq', 1, false);
SELECT pg_temp.task('SELECT attempts_fail_until(100)', 4, '40 minutes', priority => 1) AS id \gset
SELECT pg_temp.wait_for(format('attempts = 1 FROM delay_wheel.tasks WHERE id = %s', :id));
SELECT attempts, last_error, priority, queue, armed, due - now() BETWEEN interval '39 min' AND interval '51 min' AS due_in_time
	FROM delay_wheel.tasks WHERE id = :id;
-- twice as long, but at most an hour; the jitter is in the last digits
SELECT delay_reschedule(:id, '0');
SELECT pg_temp.wait_for(format('attempts = 2 FROM delay_wheel.tasks WHERE id = %s', :id));
SELECT last_error, due - now() BETWEEN interval '59 min' AND interval '76 min' AS due_in_time
	FROM delay_wheel.tasks WHERE id = :id;
-- it can be cancelled then
SELECT delay_cancel(:id);
SELECT count(*) FROM pg_temp.failure(:id);
-- a pause that begins longer than an hour does not grow
BEGIN;
SELECT pg_temp.task('SELECT 1 / 0', 32767, '3 hours') AS id \gset
UPDATE delay_wheel_data.task SET attempts = 30, more = '{"x": 1, "last_error": 2}' WHERE id = :id;
COMMIT;
SELECT pg_temp.wait_for(format('attempts = 31 FROM delay_wheel.tasks WHERE id = %s', :id));
SELECT due - now() BETWEEN interval '2 h 59 min' AND interval '3 h 46 min' AS due_in_time, more
	FROM delay_wheel_data.task WHERE id = :id;
SELECT delay_cancel(:id);
-- the error is cut
SELECT pg_temp.task($$DO 'BEGIN RAISE EXCEPTION ''%'', repeat(''long message '', 100000); END'$$, 2, '1 hour') AS id \gset
SELECT pg_temp.wait_for(format('attempts = 1 FROM delay_wheel.tasks WHERE id = %s', :id));
SELECT left(last_error, 30), length(last_error) FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_cancel(:id);

-- what makes no sense does no harm: attempts beyond the limits, intervals
-- beyond the calendar
BEGIN;
SELECT pg_temp.task('SELECT 1 / 0', 32767, '0') AS id1, pg_temp.task('SELECT 1 / 0', 2, '-1 year') AS id2,
	pg_temp.task('SELECT 1 / 0', 2, '178000000 years') AS id3, pg_temp.task('SELECT 1 / 0', 0, '0') AS id4,
	pg_temp.task('SELECT 1 / 0', -1, '0') AS id5 \gset
UPDATE delay_wheel_data.task SET attempts = 32766 WHERE id = :id1;
UPDATE delay_wheel_data.task SET more = '[1]' WHERE id = :id3;
COMMIT;
SELECT pg_temp.wait_for(format('count(*) = 4 FROM delay_wheel.failed WHERE id IN (%s, %s, %s, %s)', :id1, :id2, :id4, :id5));
SELECT attempts, sqlstate FROM delay_wheel.failed WHERE id IN (:id1, :id2, :id4, :id5) ORDER BY id;
SELECT pg_temp.wait_for(format('attempts = 1 FROM delay_wheel_data.task WHERE id = %s', :id3));
SELECT isfinite(due), due > '294276-01-01', more FROM delay_wheel_data.task WHERE id = :id3;
SELECT delay_cancel(:id3);

-- what it scheduled, and cancelled, was undone with it
SELECT setval('attempts_seq', 1, false);
SELECT delay_schedule('1 hour', 'SELECT 1') AS other \gset
SELECT pg_temp.task(format($$SELECT delay_schedule('1 hour', 'SELECT $a$new$a$'), delay_cancel(%s); SELECT attempts_fail_until(2)$$, :other), 2) AS id \gset
SELECT pg_temp.wait_for('EXISTS (SELECT FROM delay_wheel.tasks WHERE sql LIKE ''SELECT $a$new%'')');
SELECT sql FROM delay_wheel.tasks ORDER BY sql;
SELECT delay_cancel(id) FROM delay_wheel.tasks;

--
-- At the commit
--
CREATE TABLE attempts_parent (i int PRIMARY KEY);
CREATE TABLE attempts_child (i int REFERENCES attempts_parent DEFERRABLE INITIALLY DEFERRED);
SELECT pg_temp.task($$INSERT INTO attempts_child VALUES (1)$$, 3, '1 hour') AS id \gset
SELECT pg_temp.wait_for(format('attempts = 1 FROM delay_wheel.tasks WHERE id = %s', :id));
SELECT attempts, last_error FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_reschedule(:id, '0');
SELECT pg_temp.wait_for(format('attempts = 2 FROM delay_wheel.tasks WHERE id = %s', :id));
INSERT INTO attempts_parent VALUES (1);
SELECT delay_reschedule(:id, '0');
SELECT pg_temp.wait_for('EXISTS (SELECT FROM attempts_child)');
SELECT pg_temp.task($$INSERT INTO attempts_child VALUES (2)$$, 2) AS id \gset
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel.failed WHERE id = %s)', :id));
SELECT attempts, sqlstate, message FROM pg_temp.failure(:id);

--
-- At once, without an attempt: serialization failures and deadlocks
--
CREATE FUNCTION attempts_lose_until(n int, code text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	attempt int := nextval('attempts_seq');
BEGIN
	IF attempt < n THEN
		RAISE EXCEPTION 'lost' USING ERRCODE = code;
	END IF;
	RETURN attempt;
END $$;
SELECT retried AS before_at_once FROM delay_wheel.status WHERE database = current_database() \gset
SELECT setval('attempts_seq', 1, false);
-- (what a session keeps is gone the next time)
SELECT pg_temp.task($$PREPARE p AS SELECT 1; SELECT pg_advisory_lock(4713); INSERT INTO attempts_effect VALUES ('serialized', attempts_lose_until(11, '40001'))$$, 1, '1 hour') AS id \gset
SELECT pg_temp.wait_until_done();
SELECT setval('attempts_seq', 1, false);
SELECT pg_temp.task($$INSERT INTO attempts_effect VALUES ('deadlock', attempts_lose_until(4, '40P01'))$$, 1, '1 hour') AS id \gset
SELECT pg_temp.wait_until_done();
SELECT * FROM attempts_effect WHERE label IN ('serialized', 'deadlock') ORDER BY label;
-- ten times, then it is a failure like others; in the pauses, another executor may take it over and begin to count
SELECT setval('attempts_seq', 1, false);
SELECT pg_temp.task($$SELECT attempts_lose_until(100, '40001')$$, 2, '1 hour') AS id \gset
SELECT pg_temp.wait_for(format('attempts = 1 FROM delay_wheel.tasks WHERE id = %s', :id));
SELECT attempts, last_error, (SELECT last_value >= 11 AND last_value <= 33 FROM attempts_seq) AS some_runs FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_reschedule(:id, '0');
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel.failed WHERE id = %s)', :id));
SELECT attempts, sqlstate, message, (SELECT last_value >= 22 AND last_value <= 66 FROM attempts_seq) AS some_runs FROM pg_temp.failure(:id);
-- at the commit, as well
CREATE FUNCTION attempts_lose_trigger() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM attempts_lose_until(3, '40001'); RETURN NULL; END$$;
CREATE CONSTRAINT TRIGGER lose AFTER UPDATE ON attempts_parent DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION attempts_lose_trigger();
SELECT setval('attempts_seq', 1, false);
SELECT pg_temp.task($$UPDATE attempts_parent SET i = i; INSERT INTO attempts_effect VALUES ('at commit', 0)$$, 1, '1 hour') AS id \gset
SELECT pg_temp.wait_until_done();
SELECT count(*), (SELECT last_value FROM attempts_seq) AS runs FROM attempts_effect WHERE label = 'at commit';
-- of these, one was tried again later
SELECT pg_temp.wait_for(format('retried - %s = 1 FROM delay_wheel.status WHERE database = current_database()', :before_at_once));

--
-- Timeouts: tried again; a cancel is not
--
SELECT setval('attempts_seq', 1, false);
SELECT pg_temp.task($$SELECT nextval('attempts_seq'), pg_sleep(100)$$, 3, '0', 100) AS id \gset
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel.failed WHERE id = %s)', :id));
SELECT attempts, sqlstate, message, (SELECT last_value FROM attempts_seq) AS runs FROM pg_temp.failure(:id);
-- of the whole task, at its commit as well
CREATE FUNCTION attempts_slow() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM nextval('attempts_seq'), pg_sleep(100); RETURN NULL; END$$;
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON attempts_parent DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION attempts_slow();
SELECT setval('attempts_seq', 1, false);
SELECT pg_temp.task($$INSERT INTO attempts_parent VALUES (7)$$, 2, '0', 500) AS id \gset
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel.failed WHERE id = %s)', :id));
SELECT attempts, sqlstate, message, (SELECT last_value FROM attempts_seq) AS runs FROM pg_temp.failure(:id);
-- the row's own timeout ranks above the settings, 0 is none
CREATE ROLE regress_dw_hasty LOGIN;
ALTER ROLE regress_dw_hasty SET statement_timeout = '100 ms';
SELECT delay_wheel.allow('regress_dw_hasty');
GRANT ALL ON attempts_effect TO regress_dw_hasty;
BEGIN;
SET LOCAL SESSION AUTHORIZATION regress_dw_hasty;
SELECT delay_schedule('0', $$SELECT pg_sleep(0.5); INSERT INTO attempts_effect VALUES ('no timeout', 0)$$) AS id \gset
RESET SESSION AUTHORIZATION;
UPDATE delay_wheel_data.task SET timeout = 0 WHERE id = :id;
COMMIT;
SELECT pg_temp.wait_until_done();
SELECT count(*) FROM attempts_effect WHERE label = 'no timeout';
-- cancelled by somebody, or by itself: not again
SELECT pg_temp.task('SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(100)', 3) AS id \gset
SELECT pg_temp.wait_until_done();
SELECT * FROM pg_temp.failure(:id);

--
-- Expired: not run any more, attempts as they were
--
BEGIN;
SELECT pg_temp.task($$INSERT INTO attempts_effect VALUES ('NEVER', 0)$$, 3, '1 hour', NULL, '1 hour', now() - interval '61 min') AS id1,
	pg_temp.task($$INSERT INTO attempts_effect VALUES ('not expired', 0)$$, 3, '1 hour', NULL, '1 hour', now() - interval '10 min') AS id2,
	pg_temp.task($$INSERT INTO attempts_effect VALUES ('not expired', 1)$$, 3, '1 hour', NULL, '178000000 years', now() - interval '10 min') AS id3,
	pg_temp.task($$INSERT INTO attempts_effect VALUES ('NEVER', 1)$$, 3, '1 hour', NULL, '-178000000 years') AS id4 \gset
UPDATE delay_wheel_data.task SET attempts = 2 WHERE id = :id4;
COMMIT;
SELECT pg_temp.wait_until_done();
SELECT id = :id1 AS first, attempts, sqlstate, message FROM delay_wheel.failed WHERE id IN (:id1, :id2, :id3, :id4) ORDER BY id;
SELECT count(*) FROM attempts_effect WHERE label = 'not expired';

--
-- The queue's values hold for tasks that say nothing
--
SELECT delay_wheel.create_queue('attempts', max_attempts => 2, options => '{"retry_delay": "1 hour", "timeout": "100 ms"}');
SELECT delay_schedule_task('SELECT pg_sleep(100)', queue => 'attempts') AS id \gset
SELECT pg_temp.wait_for(format('attempts = 1 FROM delay_wheel.tasks WHERE id = %s', :id));
SELECT last_error, due - now() BETWEEN interval '59 min' AND interval '76 min' AS due_in_time FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_reschedule(:id, '0');
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel.failed WHERE id = %s)', :id));
SELECT * FROM pg_temp.failure(:id);
SELECT delay_schedule_task('SELECT 1 / 0', queue => 'attempts', max_attempts => 1, options => '{"timeout": "1 hour"}') AS id \gset
SELECT pg_temp.wait_until_done();
SELECT * FROM pg_temp.failure(:id);
-- zero is what a queue can say, too: at once, and no timeout
SELECT delay_wheel.create_queue('attempts', max_attempts => 3, options => '{"retry_delay": "1 hour", "timeout": "50 ms"}');
SELECT delay_schedule_task('SELECT pg_sleep(0.2); SELECT 1 / 0', queue => 'attempts', options => '{"retry_delay": "0", "timeout": "0"}') AS id \gset
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel.failed WHERE id = %s)', :id));
SELECT attempts, sqlstate FROM pg_temp.failure(:id);
SELECT delay_wheel.create_queue('attempts', options => '{"retry_delay": "0", "timeout": "0"}');
SELECT timeout, retry_delay FROM delay_wheel.queues WHERE name = 'attempts';
SELECT delay_wheel.drop_queue('attempts');

--
-- A newer task of the same key is not to be followed by the older one
--
SELECT pg_advisory_lock(4714);
SELECT delay_schedule_task('SELECT pg_advisory_xact_lock_shared(4714); SELECT 1 / 0', key => 'attempts', max_attempts => 3) AS id \gset
SELECT pg_temp.wait_for('EXISTS (SELECT FROM pg_locks WHERE locktype = ''advisory'' AND NOT granted)');
SELECT delay_schedule_task('SELECT 1', delay => '1 hour', key => 'attempts', max_attempts => 3) AS newer \gset
SELECT pg_advisory_unlock(4714);
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel.failed WHERE id = %s)', :id));
SELECT attempts, sqlstate, message, replace(detail, :'newer', 'N') AS detail FROM pg_temp.failure(:id);
SELECT delay_cancel(:newer);

SELECT count(*) AS pending FROM delay_wheel.tasks;
SELECT label, count(*) FROM attempts_effect GROUP BY label ORDER BY label COLLATE "C";
SELECT retried - :before_retried > 10 AS counts_retried, failed - :before_failed AS failed FROM delay_wheel.status WHERE database = current_database();

DELETE FROM delay_wheel_data.failed_task;
DROP TABLE attempts_effect, attempts_child, attempts_parent;
DROP FUNCTION attempts_fail_until, attempts_lose_until, attempts_lose_trigger, attempts_slow;
DROP SEQUENCE attempts_seq;
SELECT delay_wheel.disallow('regress_dw_hasty');
DROP ROLE regress_dw_hasty;
