--
-- QUEUES
-- Declared, changed and dropped; who may do so, and who may schedule into
-- them; paused and resumed, as are one's own tasks and the database.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
\set SHOW_CONTEXT never
\set columns 'name, owner, users, paused, max_running, rate, per, burst, priority, timeout, max_attempts, retry_delay, batch, spread'

CREATE ROLE regress_dw_dba LOGIN;
CREATE ROLE regress_dw_team;
CREATE ROLE regress_dw_anna LOGIN IN ROLE regress_dw_team;
CREATE ROLE regress_dw_ben LOGIN;
CREATE ROLE "regress_dw Odd" LOGIN;
SELECT delay_wheel.allow('regress_dw_dba', 'regress_dw_anna', 'regress_dw_ben');
CREATE TABLE queues_effect (n int, who text DEFAULT current_user);
GRANT ALL ON queues_effect TO PUBLIC;
-- by plain SQL, too
GRANT pg_write_all_data TO regress_dw_dba, regress_dw_anna, regress_dw_ben;
GRANT SELECT ON delay_wheel_data.task TO regress_dw_ben;
CREATE FUNCTION queue_id(queue text) RETURNS smallint LANGUAGE sql SECURITY DEFINER
	AS 'SELECT id FROM delay_wheel_data.queue WHERE name = $1';

--
-- Declaring
--
SELECT delay_wheel.create_queue('mails');
SELECT :columns FROM delay_wheel.queues;
-- null leaves as it is
SELECT delay_wheel.create_queue('mails', max_running => 3, rate => 100, priority => 1, max_attempts => 4, users => '{regress_dw_team,regress_dw Odd}', options => '{"timeout": "5 s", "retry_delay": "1 minute", "batch": false, "spread": "1 hour"}');
SELECT :columns FROM delay_wheel.queues;
SELECT delay_wheel.create_queue('mails', rate => 50);
SELECT :columns FROM delay_wheel.queues;
SELECT delay_wheel.create_queue('mails', per => '1 hour', burst => 5);
SELECT :columns FROM delay_wheel.queues;
-- back to no limit
SELECT delay_wheel.create_queue('mails', max_running => 0, rate => 0, burst => 0, priority => 0, max_attempts => 1, users => '{}', options => '{"timeout": "0", "retry_delay": "0", "batch": true, "spread": "0"}');
SELECT :columns FROM delay_wheel.queues;
SELECT delay_wheel.create_queue('mails', users => '{public}', options => '{"timeout": "1 us", "retry_delay": "1 day 2 h", "spread": "1 month"}');
SELECT :columns FROM delay_wheel.queues;
-- names
SELECT delay_wheel.create_queue(repeat('x', 63));
SELECT delay_wheel.create_queue('Ünusual "name''s"; DROP');
SELECT name FROM delay_wheel.queues ORDER BY name;
SELECT delay_wheel.drop_queue(repeat('x', 63)), delay_wheel.drop_queue('Ünusual "name''s"; DROP');
SELECT call, e.* FROM unnest(ARRAY[
	$$delay_wheel.create_queue(NULL)$$, $$delay_wheel.create_queue('')$$, $$delay_wheel.create_queue('default')$$, $$delay_wheel.create_queue(repeat('x', 64))$$,
	$$delay_wheel.create_queue('q', max_running => -1)$$, $$delay_wheel.create_queue('q', rate => -1)$$, $$delay_wheel.create_queue('q', rate => 1000001)$$,
	$$delay_wheel.create_queue('q', per => '0.999 s')$$, $$delay_wheel.create_queue('q', per => '367 days')$$,
	$$delay_wheel.create_queue('q', burst => -1)$$, $$delay_wheel.create_queue('q', burst => 100001)$$,
	$$delay_wheel.create_queue('q', priority => 10)$$, $$delay_wheel.create_queue('q', priority => -10)$$,
	$$delay_wheel.create_queue('q', options => '{"timeout": "-1 s"}')$$, $$delay_wheel.create_queue('q', options => '{"timeout": "1 month"}')$$,
	$$delay_wheel.create_queue('q', max_attempts => 0)$$, $$delay_wheel.create_queue('q', max_attempts => 32768)$$,
	$$delay_wheel.create_queue('q', options => '{"retry_delay": "-1 s"}')$$, $$delay_wheel.create_queue('q', options => '{"retry_delay": "367 days"}')$$,
	$$delay_wheel.create_queue('q', options => '{"spread": "-1 s"}')$$, $$delay_wheel.create_queue('q', options => '{"spread": "178956970 years"}')$$,
	$$delay_wheel.create_queue('q', users => '{regress_dw_no_such_role}')$$, $$delay_wheel.create_queue('q', users => '{NULL}')$$,
	$$delay_wheel.drop_queue(NULL)$$, $$delay_wheel.drop_queue('')$$, $$delay_wheel.drop_queue('default')$$, $$delay_wheel.drop_queue('q')$$,
	$$delay_wheel.pause_queue('q')$$, $$delay_wheel.resume_queue('q')$$, $$delay_wheel.pause_queue('default')$$, $$delay_wheel.resume_queue('default')$$, $$delay_wheel.pause_queue('')$$]) call,
	pg_temp.error_of('SELECT ' || call) e;
SELECT name FROM delay_wheel.queues;
-- part of the transaction
BEGIN;
SELECT delay_wheel.create_queue('brief'), delay_wheel.create_queue('brief', rate => 7), delay_wheel.create_queue('mails', rate => 8);
SELECT name, rate FROM delay_wheel.queues ORDER BY name;
SAVEPOINT s;
SELECT delay_wheel.drop_queue('brief'), delay_wheel.pause_queue('mails');
SELECT name, rate, paused FROM delay_wheel.queues ORDER BY name;
ROLLBACK TO s;
SELECT name, rate, paused FROM delay_wheel.queues ORDER BY name;
ROLLBACK;
SELECT name, rate, paused FROM delay_wheel.queues ORDER BY name;
-- not in a transaction that must not write, nor by what somebody else evaluates
BEGIN READ ONLY;
SELECT code FROM pg_temp.error_of($$SELECT delay_wheel.create_queue('q')$$) UNION ALL SELECT code FROM pg_temp.error_of($$SELECT delay_wheel.drop_queue('mails')$$)
	UNION ALL SELECT code FROM pg_temp.error_of($$SELECT delay_pause_all()$$) UNION ALL SELECT code FROM pg_temp.error_of($$SELECT delay_wheel.resume_queue('mails')$$)
	UNION ALL SELECT code FROM pg_temp.error_of($$SELECT delay_wheel.pause_database()$$) UNION ALL SELECT code FROM pg_temp.error_of($$SELECT delay_wheel.resume_database()$$);
COMMIT;
CREATE FUNCTION queues_restricted() RETURNS text LANGUAGE plpgsql SET search_path = public AS $$
BEGIN
	PERFORM delay_pause_all();
	RETURN 'paused';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
CREATE MATERIALIZED VIEW queues_restricted AS SELECT queues_restricted();
SELECT * FROM queues_restricted;
DROP MATERIALIZED VIEW queues_restricted;
-- an id is not given again
SELECT delay_wheel.create_queue('a');
SELECT queue_id('a') AS first \gset
SELECT delay_wheel.drop_queue('a'), delay_wheel.create_queue('a');
SELECT queue_id('a') > :first AS another_id;
SELECT delay_wheel.drop_queue('a');

--
-- Scheduling into it
--
SELECT delay_wheel.create_queue('mails', users => '{regress_dw_team}', options => '{"timeout": "0", "retry_delay": "10 s", "spread": "0"}');
SELECT queue_id('mails') AS mails \gset
CREATE FUNCTION put(n int, queue text, due timestamptz DEFAULT now()) RETURNS boolean LANGUAGE sql AS $$
	SELECT delay_schedule_task(format('INSERT INTO queues_effect VALUES (%s)', $1), queue => $2, due => $3) > 0 $$;
SELECT put(1, 'mails');
SET SESSION AUTHORIZATION regress_dw_anna;
SELECT put(2, 'mails');
SELECT name, users FROM delay_wheel.queues;
SELECT queue, sql FROM delay_wheel.tasks WHERE queue <> 'mails';
SET SESSION AUTHORIZATION regress_dw_ben;
SELECT * FROM pg_temp.error_of($$SELECT put(3, 'mails')$$);
SELECT * FROM pg_temp.error_of($$SELECT put(3, 'no such queue')$$);
SELECT * FROM pg_temp.error_of(format($$INSERT INTO delay_wheel_data.task (due, queue, sql) VALUES (now(), %s, 'SELECT 1')$$, :mails));
SELECT * FROM pg_temp.error_of($$INSERT INTO delay_wheel_data.task (due, queue, sql) VALUES (now(), -1, 'SELECT 1')$$);
INSERT INTO delay_wheel_data.task (id, due, sql) VALUES (1000000, '2100-01-01', 'SELECT 4');
\set own 1000000
SELECT * FROM pg_temp.error_of(format('UPDATE delay_wheel_data.task SET queue = %s WHERE id = %s', :mails, :own));
SELECT delay_cancel(:own);
SELECT name FROM delay_wheel.queues;
-- by a function of somebody who may
CREATE FUNCTION pg_temp.put_for_me(n int) RETURNS boolean LANGUAGE sql SECURITY DEFINER AS $$SELECT put($1, 'mails')$$;
SELECT * FROM pg_temp.error_of('SELECT pg_temp.put_for_me(4)');
RESET SESSION AUTHORIZATION;
ALTER FUNCTION pg_temp.put_for_me OWNER TO regress_dw_anna;
SET SESSION AUTHORIZATION regress_dw_ben;
SELECT pg_temp.put_for_me(4);
RESET SESSION AUTHORIZATION;
-- the queue that was found is kept for the next call: not longer than it may be
BEGIN;
SELECT put(9, 'mails');
SELECT delay_wheel.create_queue('mails', priority => 9, options => '{"spread": "1 s"}');
SELECT put(9, 'mails');
SAVEPOINT s;
SELECT delay_wheel.create_queue('mails', priority => -9, options => '{"spread": "0"}');
SELECT put(9, 'mails');
SELECT priority, due - now() BETWEEN '0.000001 s' AND '1 s' AS spread FROM delay_wheel.tasks WHERE queue = 'mails' AND sql LIKE '%(9)' ORDER BY id;
ROLLBACK TO s;
SELECT put(9, 'mails');
SELECT priority, due - now() BETWEEN '0.000001 s' AND '1 s' AS spread FROM delay_wheel.tasks WHERE queue = 'mails' AND sql LIKE '%(9)' ORDER BY id;
ROLLBACK;
BEGIN;
SELECT put(9, 'mails');
SELECT priority, due - now() BETWEEN '0.000001 s' AND '1 s' AS spread FROM delay_wheel.tasks WHERE queue = 'mails' AND sql LIKE '%(9)' ORDER BY id;
ROLLBACK;
SELECT pg_temp.wait_until_done();
SELECT n, who FROM queues_effect ORDER BY n;
-- all roles; the owner's members; superusers
SELECT delay_wheel.create_queue('mails', users => '{public}');
SET SESSION AUTHORIZATION regress_dw_ben;
SELECT put(5, 'mails');
SELECT name, users FROM delay_wheel.queues;
RESET SESSION AUTHORIZATION;
SELECT delay_wheel.create_queue('mails', users => '{}');
UPDATE delay_wheel_data.queue SET owner = 'regress_dw_team' WHERE name = 'mails';
SET SESSION AUTHORIZATION regress_dw_ben;
SELECT code FROM pg_temp.error_of($$SELECT put(6, 'mails')$$);
SET SESSION AUTHORIZATION regress_dw_anna;
SELECT put(7, 'mails');
RESET SESSION AUTHORIZATION;
SELECT put(8, 'mails');
SELECT pg_temp.wait_until_done();
SELECT n FROM queues_effect WHERE n > 4 ORDER BY n;

--
-- Who may change it
--
SET SESSION AUTHORIZATION regress_dw_anna;
-- not by allow()
SELECT call, e.code, e.message FROM unnest(ARRAY[
	$$delay_wheel.create_queue('mails')$$, $$delay_wheel.drop_queue('mails')$$, $$delay_wheel.pause_database()$$, $$delay_wheel.resume_database()$$]) call,
	pg_temp.error_of('SELECT ' || call) e;
RESET SESSION AUTHORIZATION;
GRANT EXECUTE ON FUNCTION delay_wheel.create_queue, delay_wheel.drop_queue TO regress_dw_dba, regress_dw_anna;
SET SESSION AUTHORIZATION regress_dw_anna;
SELECT delay_wheel.create_queue('mails', rate => 9);
SELECT delay_wheel.create_queue('of anna');
SET SESSION AUTHORIZATION regress_dw_dba;
SELECT call, e.code, e.message FROM unnest(ARRAY[
	$$delay_wheel.create_queue('mails', rate => 0)$$, $$delay_wheel.create_queue('mails')$$, $$delay_wheel.drop_queue('mails')$$, $$delay_wheel.pause_queue('mails')$$, $$delay_wheel.resume_queue('mails')$$,
	$$delay_wheel.pause_queue('of anna')$$]) call,
	pg_temp.error_of('SELECT ' || call) e;
-- nor by plain SQL of who may write to any table
SELECT call, e.* FROM unnest(ARRAY[
	$$UPDATE delay_wheel_data.queue SET users = '{-}'$$, $$UPDATE delay_wheel_data.queue SET paused = true$$, $$DELETE FROM delay_wheel_data.queue$$,
	$$INSERT INTO delay_wheel_data.queue (name) VALUES ('plain')$$, $$INSERT INTO delay_wheel_data.pause (owner) VALUES ('-')$$,
	$$INSERT INTO delay_wheel_data.pause (owner) VALUES ('regress_dw_dba')$$]) call,
	pg_temp.error_of(call) e;
SELECT code FROM pg_temp.error_of('TRUNCATE delay_wheel_data.queue');
RESET SESSION AUTHORIZATION;
SELECT name, owner, users, rate, paused FROM delay_wheel.queues ORDER BY name;
SELECT delay_wheel.drop_queue('of anna');
-- as a replica, and by a trigger of one's own making
SET ROLE regress_dw_dba;
SELECT delay_wheel_internal.queue_changed();
SELECT delay_wheel_internal.queue_guard();
RESET ROLE;
SELECT delay_wheel_internal.queue_changed();
SELECT delay_wheel_internal.queue_guard();
BEGIN;
CREATE TRIGGER guard BEFORE INSERT ON delay_wheel_data.queue EXECUTE FUNCTION delay_wheel_internal.queue_guard();
INSERT INTO delay_wheel_data.queue (name) VALUES ('x');
ROLLBACK;
-- what the table itself refuses
SELECT e.code, e.message FROM unnest(ARRAY['''''', '''default''', quote_literal(repeat('x', 64)), '''mails''']) name,
	pg_temp.error_of(format('INSERT INTO delay_wheel_data.queue (name) VALUES (%s)', name)) e;

--
-- Pauses
--
SET SESSION AUTHORIZATION regress_dw_anna;
SELECT delay_wheel.create_queue('mails', rate => 0);
SELECT delay_wheel.pause_queue('mails'), delay_wheel.pause_queue('mails');
SELECT name, paused FROM delay_wheel.queues;
SELECT put(n, 'mails', now() - '1 s'::interval * n) FROM generate_series(10, 19) n;
SELECT delay_schedule('0', 'INSERT INTO queues_effect VALUES (20)') > 0 AS ok;
-- another queue's tasks run, those of this one can be moved and cancelled
SELECT pg_temp.wait_for('EXISTS (SELECT FROM queues_effect WHERE n = 20)');
SELECT count(*) FILTER (WHERE delay_cancel(id) = 'cancelled') FROM delay_wheel.tasks WHERE sql LIKE '%(10)';
SELECT count(*) FILTER (WHERE delay_reschedule(id, '1 hour') = 'moved') FROM delay_wheel.tasks WHERE sql LIKE '%(11)';
SELECT count(*) FILTER (WHERE delay_reschedule(id, now() - interval '1 minute') = 'moved') FROM delay_wheel.tasks WHERE sql LIKE '%(12)';
SELECT count(*) FROM queues_effect WHERE n BETWEEN 10 AND 19;
-- undone
BEGIN;
SELECT delay_wheel.resume_queue('mails');
ROLLBACK;
SELECT delay_schedule('0', 'INSERT INTO queues_effect VALUES (21)') > 0 AS ok;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM queues_effect WHERE n = 21)');
SELECT count(*) FROM queues_effect WHERE n BETWEEN 10 AND 19;
SELECT delay_wheel.resume_queue('mails'), delay_wheel.resume_queue('mails');
SELECT pg_temp.wait_for('count(*) = 8 FROM queues_effect WHERE n BETWEEN 12 AND 19');
SELECT n FROM queues_effect WHERE n BETWEEN 10 AND 19 ORDER BY n;
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks;
-- all of one's own, nobody else's
SELECT delay_pause_all(), delay_pause_all();
SELECT put(30, 'mails');
SELECT delay_schedule('0', 'INSERT INTO queues_effect VALUES (31)') > 0 AS ok;
SET SESSION AUTHORIZATION regress_dw_ben;
SELECT delay_resume_all();
SELECT delay_schedule('0', 'INSERT INTO queues_effect VALUES (32)') > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT delay_resume_all();
SELECT put(33, 'mails');
SELECT pg_temp.wait_for('count(*) = 2 FROM queues_effect WHERE n IN (32, 33)');
SELECT owner, since <= now() AS since FROM delay_wheel_data.pause;
SELECT n FROM queues_effect WHERE n IN (30, 31);
-- both, the queue and all of one's own
SELECT delay_wheel.pause_queue('mails');
SET SESSION AUTHORIZATION regress_dw_anna;
SELECT delay_resume_all();
SELECT pg_temp.wait_for('EXISTS (SELECT FROM queues_effect WHERE n = 31)');
SELECT n FROM queues_effect WHERE n = 30;
SELECT delay_wheel.resume_queue('mails');
SELECT pg_temp.wait_for('EXISTS (SELECT FROM queues_effect WHERE n = 30)');
-- in a transaction of one's own the last word counts
BEGIN;
SELECT delay_pause_all(), delay_resume_all(), delay_pause_all(), delay_resume_all();
SELECT delay_wheel.pause_queue('mails'), delay_wheel.resume_queue('mails');
SELECT delay_schedule('0', 'INSERT INTO queues_effect VALUES (34)') > 0 AS ok;
SELECT put(35, 'mails');
COMMIT;
SELECT pg_temp.wait_for('count(*) = 2 FROM queues_effect WHERE n IN (34, 35)');
-- by a task: it is part of the task
SELECT delay_schedule('0', $$SELECT delay_wheel.pause_queue('mails'), delay_pause_all(); INSERT INTO queues_effect VALUES (36); SELECT 1/0$$) > 0 AS ok;
SELECT pg_temp.wait_for('count(*) = 1 FROM delay_wheel.failed');
SELECT delay_schedule('0', $$SELECT delay_wheel.pause_queue('mails')$$) > 0 AS ok;
SELECT pg_temp.wait_for('paused FROM delay_wheel.queues');
SELECT delay_wheel.resume_queue('mails');
RESET SESSION AUTHORIZATION;
DELETE FROM delay_wheel_data.failed_task;

-- the database, also for tasks of queues and of superusers
GRANT EXECUTE ON FUNCTION delay_wheel.pause_database, delay_wheel.resume_database TO regress_dw_dba;
SET SESSION AUTHORIZATION regress_dw_dba;
SELECT delay_wheel.pause_database(), delay_wheel.pause_database();
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_for($$state = 'paused' FROM delay_wheel.status WHERE database = current_database()$$);
SELECT put(40, 'mails');
SELECT delay_schedule('0', 'INSERT INTO queues_effect VALUES (41)') > 0 AS ok;
SELECT owner FROM delay_wheel_data.pause;
-- a superuser's own pause is another one
SELECT delay_pause_all(), delay_resume_all();
SELECT pg_temp.wait_for('sum(ready) = 2 FROM delay_wheel.lanes');
SET SESSION AUTHORIZATION regress_dw_dba;
SELECT delay_wheel.resume_database();
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_for('count(*) = 2 FROM queues_effect WHERE n IN (40, 41)');
SELECT state FROM delay_wheel.status WHERE database = current_database();

-- plain SQL of a superuser works as well
UPDATE delay_wheel_data.queue SET paused = true WHERE name = 'mails';
SELECT put(50, 'mails');
SELECT delay_schedule('0', 'INSERT INTO queues_effect VALUES (51)') > 0 AS ok;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM queues_effect WHERE n = 51)');
INSERT INTO delay_wheel_data.pause (owner) VALUES ('-');
UPDATE delay_wheel_data.queue SET paused = false WHERE name = 'mails';
SELECT n FROM queues_effect WHERE n = 50;
TRUNCATE delay_wheel_data.pause;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM queues_effect WHERE n = 50)');

--
-- Dropping
--
SELECT put(60, 'mails', '2100-01-01');
SELECT * FROM pg_temp.error_of($$SELECT delay_wheel.drop_queue('mails')$$);
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks;
BEGIN;
SELECT put(61, 'mails', '2100-01-01');
SELECT delay_cancel(id) FROM delay_wheel.tasks;
SELECT delay_wheel.drop_queue('mails');
ROLLBACK;
SELECT name FROM delay_wheel.queues;
-- tasks of a queue without a row wait: it might have had limits
SELECT delay_wheel.create_queue('gone');
SELECT queue_id('gone') AS gone \gset
DELETE FROM delay_wheel_data.queue WHERE name = 'gone';
INSERT INTO delay_wheel_data.task (due, queue, sql) VALUES (now(), :gone, 'INSERT INTO queues_effect VALUES (62)');
SELECT pg_temp.wait_for(format('ready = 1 FROM delay_wheel.lanes WHERE queue = %L', :gone));
SELECT delay_schedule('0', 'INSERT INTO queues_effect VALUES (63)') > 0 AS ok;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM queues_effect WHERE n = 63)');
SELECT n FROM queues_effect WHERE n = 62;
INSERT INTO delay_wheel_data.queue (id, name) VALUES (:gone, 'back again');
SELECT pg_temp.wait_for('EXISTS (SELECT FROM queues_effect WHERE n = 62)');
SELECT delay_wheel.drop_queue('back again');

--
-- Dropped roles: the queue is the bootstrap superuser's, and can be given away
--
CREATE ROLE regress_dw_brief;
GRANT EXECUTE ON FUNCTION delay_wheel.create_queue TO regress_dw_brief;
SET ROLE regress_dw_brief;
SELECT delay_wheel.create_queue('of brief', users => '{regress_dw_brief,regress_dw_ben,public}');
RESET ROLE;
SELECT delay_wheel.create_queue('mails', users => '{regress_dw_brief,regress_dw_ben}');
REVOKE EXECUTE ON FUNCTION delay_wheel.create_queue FROM regress_dw_brief;
DROP ROLE regress_dw_brief;
SELECT pg_temp.wait_for($$owner::oid = 10 FROM delay_wheel_data.queue WHERE name = 'of brief'$$);
SELECT name, users FROM delay_wheel.queues ORDER BY name;
SELECT delay_wheel.drop_queue('of brief');

-- many queues in turn, more than a session remembers: each task is in the right one
SELECT count(delay_wheel.create_queue('turn ' || n, priority => n % 3 - 1)) FROM generate_series(1, 12) n;
SELECT count(delay_schedule_task('SELECT ' || n, delay => '1 hour', queue => 'turn ' || n))
	FROM generate_series(1, 3) round, unnest('{1,2,3,4,5,6,7,8,1,9,2,10,11,12,12,1}'::int[]) n;
SELECT queue, priority, count(*), bool_and(sql = replace(queue, 'turn', 'SELECT')) AS right_one
	FROM delay_wheel.tasks WHERE queue LIKE 'turn%' GROUP BY 1, 2 ORDER BY length(queue), queue;
BEGIN;
SELECT delay_wheel.create_queue('turn 1', priority => 1), delay_wheel.create_queue('turn 2', users => '{regress_dw_ben}');
SELECT delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'turn 1') AS id \gset
SELECT queue, priority FROM delay_wheel.tasks WHERE id = :id;
SET SESSION AUTHORIZATION regress_dw_ben;
SELECT delay_schedule_task('SELECT 2', delay => '1 hour', queue => 'turn 2') > 0 AS ok;
SELECT code FROM pg_temp.error_of($$SELECT delay_schedule_task('SELECT 1', queue => 'turn 1')$$);
RESET SESSION AUTHORIZATION;
ROLLBACK;
SELECT delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'turn 1') AS id \gset
SELECT queue, priority FROM delay_wheel.tasks WHERE id = :id;
SET SESSION AUTHORIZATION regress_dw_ben;
SELECT code FROM pg_temp.error_of($$SELECT delay_schedule_task('SELECT 2', queue => 'turn 2')$$);
RESET SESSION AUTHORIZATION;
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks WHERE queue LIKE 'turn%';
SELECT count(delay_wheel.drop_queue(name)) FROM delay_wheel.queues WHERE name LIKE 'turn%' AND name <> 'turn 1';
-- those of an extension that is gone are not there any more
SELECT delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'turn 1') > 0 AS ok;
BEGIN;
DROP EXTENSION delay_wheel;
CREATE EXTENSION delay_wheel;
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule_task('SELECT 1', queue => 'turn 1')$$);
ROLLBACK;
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks WHERE queue = 'turn 1';
SELECT delay_wheel.drop_queue('turn 1');

-- options that mean nothing for a queue of that kind: refused, unless they are the defaults
SELECT args, code, message, hint FROM unnest(ARRAY['receivers => ''{public}''', 'lease => ''1 minute''', 'receive_timeout => ''1 minute''', 'receive_timeout => ''0''',
		'notify_channel => ''c''', 'external => false, lease => ''1 minute''']) args, pg_temp.error_of('SELECT ' || pg_temp.call_of('delay_wheel.create_queue', '''of tasks'', ' || args));
SELECT args, code, message, hint FROM unnest(ARRAY['timeout => ''1 s''', 'batch => false', 'retry_on => ''{40}''', 'give_up_on => ''{23}''', 'keep_settings => ''{TimeZone}''']) args,
	pg_temp.error_of('SELECT ' || pg_temp.call_of('delay_wheel.create_queue', '''of messages'', external => true, ' || args));
SELECT delay_wheel.create_queue('of tasks', receivers => '{}', options => '{"notify_channel": "", "timeout": "1 s", "batch": false, "retry_on": ["40"], "give_up_on": ["23"], "keep_settings": ["TimeZone"]}');
SELECT delay_wheel.create_queue('of messages', external => true, receivers => '{public}', options => '{"timeout": "0", "batch": true, "retry_on": [], "give_up_on": [], "keep_settings": [], "lease": "1 s", "receive_timeout": "0", "notify_channel": "c"}');
SELECT code, message FROM pg_temp.error_of($$SELECT delay_wheel.create_queue('of tasks', options => '{"lease": "1 minute"}')$$) UNION ALL SELECT code, message FROM pg_temp.error_of($$SELECT delay_wheel.create_queue('of messages', options => '{"batch": false}')$$);
-- a queue that becomes one of the other kind keeps the rest as it was
SELECT delay_wheel.create_queue('of tasks', external => true, options => '{"lease": "1 minute"}'), delay_wheel.create_queue('of messages', external => false, options => '{"batch": false}');
SELECT name, external, lease, batch, timeout, receivers FROM delay_wheel.queues WHERE name LIKE 'of %' ORDER BY name;
SELECT delay_wheel.drop_queue('of tasks'), delay_wheel.drop_queue('of messages');

SELECT delay_wheel.drop_queue('mails');
-- of another extension in the same transaction: what was paused is not
SELECT delay_wheel.pause_database();
SET SESSION AUTHORIZATION regress_dw_ben;
SELECT delay_pause_all();
RESET SESSION AUTHORIZATION;
BEGIN;
DROP EXTENSION delay_wheel;
CREATE EXTENSION delay_wheel;
SELECT delay_wheel.allow('regress_dw_ben');
COMMIT;
SET SESSION AUTHORIZATION regress_dw_ben;
SELECT delay_schedule('0', 'INSERT INTO queues_effect VALUES (70)') > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM queues_effect WHERE n = 70)');
SELECT * FROM delay_wheel_data.queue;
SELECT * FROM delay_wheel_data.pause;
SELECT delay_wheel.disallow('regress_dw_ben');
DROP TABLE queues_effect;
DROP FUNCTION put, queue_id, queues_restricted, pg_temp.put_for_me;
DROP ROLE regress_dw_anna, regress_dw_ben, regress_dw_dba, regress_dw_team, "regress_dw Odd";
