--
-- RETRIES
-- How the pauses between attempts grow, and after which errors there is no
-- further attempt: of tasks, queues, messages and recurring tasks.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE FUNCTION retries_fail(code text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'on purpose' USING ERRCODE = code;
END $$;
SELECT delay_wheel.create_queue('retries', max_attempts => 30000, options => '{"retry_delay": "10 minutes", "retry_backoff": "linear", "retry_max_delay": "25 minutes", "retry_on": ["22", "40001"], "give_up_on": ["22012"]}');
SELECT retry_delay, retry_backoff, retry_max_delay, retry_on, give_up_on FROM delay_wheel.queues WHERE name = 'retries';

--
-- Pauses
--
CREATE TEMP TABLE pauses (n serial, options text, attempts int, pause interval, task bigint);
INSERT INTO pauses (options, attempts, pause) VALUES
	('max_attempts => 30000, retry_delay => ''10 minutes''', 2, '40 minutes'),
	('max_attempts => 30000, retry_delay => ''10 minutes''', 20, '1 hour'),
	('max_attempts => 30000, retry_delay => ''10 minutes'', retry_backoff => ''exponential'', retry_max_delay => ''15 minutes''', 1, '15 minutes'),
	('max_attempts => 30000, retry_delay => ''10 minutes'', retry_max_delay => ''2 days''', 20, '2 days'),
	('max_attempts => 30000, retry_delay => ''10 minutes'', retry_backoff => ''linear''', 2, '30 minutes'),
	('max_attempts => 30000, retry_delay => ''10 minutes'', retry_backoff => ''linear''', 20, '1 hour'),
	('max_attempts => 30000, retry_delay => ''3 hours'', retry_backoff => ''linear''', 20, '3 hours'),
	('max_attempts => 30000, retry_delay => ''366 days'', retry_backoff => ''linear''', 29000, '366 days'),
	('max_attempts => 30000, retry_delay => ''10 minutes'', retry_backoff => ''linear'', retry_max_delay => ''366 days''', 29000, '290010 minutes'),
	('max_attempts => 30000, retry_delay => ''10 minutes'', retry_backoff => ''fixed''', 20, '10 minutes'),
	('max_attempts => 30000, retry_delay => ''10 minutes'', retry_backoff => ''fixed'', retry_max_delay => ''5 minutes''', 0, '5 minutes'),
	-- what the queue says, and what the task says instead
	('queue => ''retries''', 1, '20 minutes'),
	('queue => ''retries''', 4, '25 minutes'),
	('queue => ''retries'', retry_max_delay => ''0''', 4, '50 minutes'),
	('queue => ''retries'', retry_backoff => ''fixed''', 4, '10 minutes'),
	('queue => ''retries'', retry_delay => ''5 minutes'', retry_backoff => ''exponential''', 1, '10 minutes');
BEGIN;
DO $$
DECLARE p record;
BEGIN
	FOR p IN SELECT * FROM pauses ORDER BY n LOOP
		EXECUTE format('UPDATE pauses SET task = %s WHERE n = %s', pg_temp.call_of('delay_schedule_task', '''SELECT retries_fail(''''22023'''')'', ' || p.options), p.n);
		UPDATE delay_wheel_data.task SET attempts = p.attempts WHERE id = (SELECT task FROM pauses WHERE n = p.n);
	END LOOP;
END $$;
-- of these, plain SQL has written nonsense: as if they said nothing
INSERT INTO pauses (options, attempts, pause, task) VALUES
	('nonsense', 1, '20 minutes', delay_schedule_task('SELECT retries_fail(''22023'')', max_attempts => 3, options => '{"retry_delay": "10 minutes"}')),
	('nonsense', 1, '20 minutes', delay_schedule_task('SELECT retries_fail(''22023'')', max_attempts => 3, options => '{"retry_delay": "10 minutes"}'));
UPDATE delay_wheel_data.task t SET attempts = 1, more = CASE p.n % 2 WHEN 0 THEN
		'{"retry_backoff": 7, "retry_max_delay": "x", "retry_on": [], "give_up_on": {"22": 22}}'::jsonb
		ELSE '{"retry_backoff": "steep", "retry_max_delay": -5, "retry_on": "", "give_up_on": ",x,220,2202322"}' END
	FROM pauses p WHERE p.task = t.id AND p.options = 'nonsense';
SELECT id = task AS same, retry_backoff, retry_max_delay, retry_on, give_up_on FROM delay_wheel.tasks JOIN pauses ON task = id WHERE n IN (9, 17, 18) ORDER BY n;
COMMIT;
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM pauses p LEFT JOIN delay_wheel_data.task t ON t.id = p.task WHERE t.attempts IS DISTINCT FROM p.attempts + 1)');
-- no sooner, and at most a quarter later (the minute is for slow machines)
SELECT n, options, attempts + 1 AS failed, pause,
	(SELECT due - now() BETWEEN pause - interval '1 minute' AND pause * 1.25 FROM delay_wheel.tasks t WHERE t.id = p.task) AS as_expected
	FROM pauses p ORDER BY n;
SELECT count(delay_cancel(task)) FROM pauses;

--
-- Errors
--
CREATE TEMP TABLE errors (n serial, sql text, options text, task bigint);
INSERT INTO errors (sql, options) VALUES
	('SELECT retries_fail(''23505'')', 'retry_on => ''{40001,08006}'''),
	('SELECT retries_fail(''08006'')', 'retry_on => ''{40001,08006}'''),
	('SELECT retries_fail(''08003'')', 'retry_on => ''{08}'''),
	('SELECT retries_fail(''22023'')', 'retry_on => ''{23,40,08006}'''),
	('SELECT retries_fail(''23505'')', 'give_up_on => ''{22,23505}'''),
	('SELECT retries_fail(''23503'')', 'give_up_on => ''{22,23505}'''),
	('SELECT 1 / 0', 'give_up_on => ''{23505,22}'''),
	-- both: give_up_on decides
	('SELECT retries_fail(''23505'')', 'retry_on => ''{23}'', give_up_on => ''{23505}'''),
	('SELECT retries_fail(''23503'')', 'retry_on => ''{23}'', give_up_on => ''{23505}'''),
	-- empty: none
	('SELECT 1 / 0', 'retry_on => ''{}'', give_up_on => ''{}'''),
	-- a timeout, and its own executor's end
	('SELECT pg_sleep(100)', 'timeout => ''50 ms'', give_up_on => ''{57014}'''),
	('SELECT pg_sleep(100)', 'timeout => ''50 ms'', retry_on => ''{57014}'''),
	('SELECT pg_terminate_backend(pg_backend_pid())', 'give_up_on => ''{DW}'''),
	-- a cancel is the end, whatever is listed
	('SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(100)', 'retry_on => ''{57014}'''),
	-- with a mode
	('CALL retries_call()', 'mode => ''at_least_once'', give_up_on => ''{22}'''),
	('CALL retries_call()', 'mode => ''at_most_once'', retry_on => ''{22}'''),
	-- what the queue says, and what the task says instead
	('SELECT 1 / 0', 'queue => ''retries'''),
	('SELECT retries_fail(''23505'')', 'queue => ''retries'''),
	('SELECT retries_fail(''22023'')', 'queue => ''retries'''),
	('SELECT 1 / 0', 'queue => ''retries'', give_up_on => ''{}'''),
	('SELECT retries_fail(''23505'')', 'queue => ''retries'', retry_on => ''{}'''),
	('SELECT retries_fail(''23505'')', 'queue => ''retries'', retry_on => ''{23505}'''),
	-- only this attempt was left
	('SELECT 1 / 0', 'max_attempts => 1, give_up_on => ''{22012}''');
CREATE PROCEDURE retries_call() LANGUAGE plpgsql AS $$BEGIN COMMIT; PERFORM 1 / 0; END$$;
DO $$
DECLARE e record;
BEGIN
	FOR e IN SELECT * FROM errors ORDER BY n LOOP
		EXECUTE format('UPDATE errors SET task = %s WHERE n = %s',
			pg_temp.call_of('delay_schedule_task', format('%L, %s, %s retry_delay => ''1 hour''', e.sql, e.options, CASE WHEN e.options NOT LIKE '%max_attempts%' THEN 'max_attempts => 3,' END)), e.n);
	END LOOP;
END $$;
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM errors e WHERE NOT EXISTS (SELECT FROM delay_wheel.failed WHERE id = e.task)
	AND NOT EXISTS (SELECT FROM delay_wheel.tasks WHERE id = e.task AND attempts = 1))');
SELECT n, options, COALESCE(f.sqlstate, left(t.last_error, 5)) AS error, CASE WHEN t.id IS NULL THEN 'failed' ELSE 'retried' END AS outcome,
	COALESCE(f.attempts, t.attempts) AS attempts, f.detail
	FROM errors e LEFT JOIN delay_wheel.failed f ON f.id = e.task LEFT JOIN delay_wheel.tasks t ON t.id = e.task ORDER BY n;
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks JOIN errors ON task = id;

-- an error at the commit; one with a detail of its own, which stays
CREATE TABLE retries_parent (i int PRIMARY KEY);
CREATE TABLE retries_child (i int REFERENCES retries_parent DEFERRABLE INITIALLY DEFERRED);
SELECT delay_schedule_task('INSERT INTO retries_child VALUES (1)', max_attempts => 3, options => '{"give_up_on": ["23503"]}') AS id \gset
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel.failed WHERE id = %s)', :id));
SELECT attempts, sqlstate, detail FROM delay_wheel.failed WHERE id = :id;
DROP TABLE retries_child, retries_parent;

-- put back, it says the same
SELECT delay_retry(:id);
SELECT pg_temp.wait_for(format('attempts = 1 FROM delay_wheel.tasks WHERE id = %s', :id));
SELECT left(last_error, 5) AS error, give_up_on FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_cancel(:id);

-- a serialization failure is repeated at once, which is no attempt; then it is an error like others
CREATE SEQUENCE retries_seq;
SELECT delay_schedule_task('SELECT nextval(''retries_seq''), retries_fail(''40001'')', max_attempts => 3, options => '{"give_up_on": ["40"]}') AS id \gset
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel.failed WHERE id = %s)', :id));
SELECT attempts, sqlstate, detail, (SELECT last_value >= 11 FROM retries_seq) AS was_repeated FROM delay_wheel.failed WHERE id = :id;
DROP SEQUENCE retries_seq;

-- a changed queue holds for what is pending
SELECT delay_schedule_task('SELECT retries_fail(''23505'')', queue => 'retries', delay => '1 hour') AS id \gset
SELECT delay_wheel.create_queue('retries', options => '{"retry_on": [], "give_up_on": [], "retry_backoff": "exponential", "retry_max_delay": "0"}');
SELECT retry_backoff, retry_max_delay, retry_on, give_up_on FROM delay_wheel.queues WHERE name = 'retries';
SELECT delay_reschedule(:id, '0');
SELECT pg_temp.wait_for(format('attempts = 1 FROM delay_wheel.tasks WHERE id = %s', :id));
SELECT delay_cancel(:id);
SELECT delay_wheel.drop_queue('retries');

--
-- Messages: the receiver says whether an error is final
--
SELECT delay_wheel.create_queue('retries', max_attempts => 9, options => '{"give_up_on": ["DW007"]}') AND delay_wheel.create_queue('retries', external => true);
SELECT delay_send('retries', '1', options => '{"retry_delay": "10 minutes", "retry_backoff": "linear", "retry_max_delay": "15 minutes"}') AS id \gset
SELECT pg_temp.wait_for('ready = 1 FROM delay_wheel.queues WHERE name = ''retries''');
SELECT id AS leased, token FROM delay_lease('retries') \gset
SELECT delay_fail(:id, :token, 'first');
SELECT attempts, due - now() BETWEEN interval '9 minutes' AND interval '13 minutes' AS due_in_time, retry_backoff, retry_max_delay, last_error
	FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_reschedule(:id, '0');
SELECT pg_temp.wait_for('ready = 1 FROM delay_wheel.queues WHERE name = ''retries''');
BEGIN;
SELECT id AS received FROM delay_receive('retries') \gset
SELECT delay_fail(:id, error => 'second');
COMMIT;
SELECT attempts, due - now() BETWEEN interval '14 minutes' AND interval '19 minutes' AS due_in_time FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_cancel(:id);
SELECT pg_temp.wait_for('delay_wheel.drop_queue(''retries'')');

--
-- Recurring tasks
--
SELECT delay_every('retries', '1 day', 'SELECT 1 / 0', starts => '2020-01-01', max_attempts => 3, options => '{"catch_up": "all", "max_runs": 1, "retry_backoff": "fixed", "retry_max_delay": "1 hour", "retry_on": [], "give_up_on": ["22012", "23"]}') > 0 AS made;
SELECT retry_backoff, retry_max_delay, retry_on, give_up_on FROM delay_wheel.recurring WHERE name = 'retries';
SELECT pg_temp.wait_for('failures = 1 FROM delay_wheel.recurring WHERE name = ''retries''');
SELECT attempts, sqlstate, detail FROM delay_wheel.failed ORDER BY failed_at DESC LIMIT 1;
SELECT delay_cron('retries', '0 0 1 1 *', 'SELECT 1', options => '{"retry_backoff": "linear", "give_up_on": ["23"]}') > 0 AS made;
SELECT retry_backoff, retry_max_delay, retry_on, give_up_on FROM delay_wheel.recurring WHERE name = 'retries';
SELECT delay_unschedule('retries');

--
-- What is refused
--
SELECT e.* FROM unnest(ARRAY[
	$$SELECT delay_schedule_task('SELECT 1', options => '{"retry_backoff": "Linear"}')$$,
	$$SELECT delay_schedule_task('SELECT 1', options => '{"retry_max_delay": "-1 s"}')$$,
	$$SELECT delay_schedule_task('SELECT 1', options => '{"retry_max_delay": "367 days"}')$$,
	$$SELECT delay_schedule_task('SELECT 1', options => '{"retry_on": ["unique_violation"]}')$$,
	$$SELECT delay_schedule_task('SELECT 1', options => '{"retry_on": ["40001", "4000"]}')$$,
	$$SELECT delay_schedule_task('SELECT 1', options => '{"retry_on": ["xx000"]}')$$,
	$$SELECT delay_schedule_task('SELECT 1', options => jsonb_build_object('retry_on', '{""}'::text[]))$$,
	$$SELECT delay_schedule_task('SELECT 1', options => jsonb_build_object('retry_on', '{40001,NULL}'::text[]))$$,
	$$SELECT delay_schedule_task('SELECT 1', options => jsonb_build_object('give_up_on', '{"40001,23"}'::text[]))$$,
	$$SELECT delay_schedule_task('SELECT 1', options => jsonb_build_object('give_up_on', array_fill('23'::text, '{101}')))$$,
	$$SELECT delay_wheel.create_queue('retries', options => '{"retry_backoff": ""}')$$,
	$$SELECT delay_wheel.create_queue('retries', options => '{"retry_max_delay": "-1 s"}')$$,
	$$SELECT delay_wheel.create_queue('retries', options => '{"give_up_on": ["NO"]}')$$,
	$$SELECT delay_wheel.create_queue('retries', options => '{"give_up_on": ["no"]}')$$,
	$$SELECT delay_every('retries', '1 day', 'SELECT 1', options => '{"retry_on": ["4"]}')$$,
	$$SELECT delay_send('retries', '1', options => '{"retry_backoff": "quadratic"}')$$]) c, pg_temp.error_of(c) e;
SELECT delay_wheel.drop_queue('retries');
-- by plain SQL, too, as far as the table knows
SELECT code, message FROM unnest(ARRAY[
	$$INSERT INTO delay_wheel_data.queue (name, retry_backoff) VALUES ('retries', 'steep')$$,
	$$INSERT INTO delay_wheel_data.queue (name, retry_max_delay) VALUES ('retries', '0')$$]) c, pg_temp.error_of(c) e;

SELECT count(*) AS pending FROM delay_wheel.tasks;
DELETE FROM delay_wheel_data.failed_task;
DROP FUNCTION retries_fail;
DROP PROCEDURE retries_call;
