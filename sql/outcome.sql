--
-- OUTCOME
-- delay_status tells what became of a task; cancellations are recorded where all is recorded.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
\set SHOW_CONTEXT never

CREATE ROLE regress_dw_out_owner LOGIN;
CREATE ROLE regress_dw_out_member LOGIN IN ROLE regress_dw_out_owner;
CREATE ROLE regress_dw_out_reader LOGIN IN ROLE pg_read_all_data;
CREATE ROLE regress_dw_out_other LOGIN;
SELECT delay_wheel.allow('regress_dw_out_owner', 'regress_dw_out_member', 'regress_dw_out_reader', 'regress_dw_out_other');
SELECT delay_wheel.create_queue('out_all', users => '{public}', options => '{"history": "all"}'), delay_wheel.create_queue('out_errors', users => '{public}', options => '{"history": "errors"}'),
	delay_wheel.create_queue('out_off', users => '{public}', options => '{"history": "off"}'),
	delay_wheel.create_queue('out_messages', external => true, users => '{public}', receivers => '{public}', options => '{"history": "all"}');
TRUNCATE delay_wheel_data.history_0, delay_wheel_data.history_1, delay_wheel_data.history_2;
CREATE TABLE outcome_of (what text, id bigint);
GRANT ALL ON outcome_of TO PUBLIC;
CREATE FUNCTION outcome_mended() RETURNS int LANGUAGE sql AS 'SELECT 1 / 0';
-- what is told of each; the time is compared with its due time and now
CREATE VIEW outcome_seen AS
	SELECT o.id, o.what, f.state, CASE WHEN f.at > clock_timestamp() THEN 'future' WHEN f.at IS NOT NULL THEN 'past' END AS at,
		f.attempts, f.sqlstate, f.message
	FROM outcome_of o CROSS JOIN LATERAL delay_status(o.id) f;
GRANT SELECT ON outcome_seen TO PUBLIC;

-- the owner's own tasks, in every state
SET SESSION AUTHORIZATION regress_dw_out_owner;
INSERT INTO outcome_of VALUES
	('pending', delay_schedule('1 hour', 'SELECT 1')),
	('pending, tried once', delay_schedule_task('SELECT 1 / 0', max_attempts => 2, options => '{"retry_delay": "1 day"}')),
	('done', delay_schedule_task('SELECT 1', queue => 'out_all')),
	('done, not recorded', delay_schedule_task('SELECT 1', queue => 'out_errors')),
	('failed', delay_schedule_task('SELECT 1 / 0', queue => 'out_all')),
	('failed, discarded', delay_schedule_task('SELECT 1 / 0', queue => 'out_errors')),
	('failed, discarded, not recorded', delay_schedule_task('SELECT 1 / 0', queue => 'out_off')),
	('failed, put back, done', delay_schedule_task('SELECT outcome_mended()', queue => 'out_all')),
	('failed, put back, done, not recorded', delay_schedule_task('SELECT outcome_mended()', queue => 'out_errors')),
	('skipped', delay_schedule_task('SELECT 1', due => now() - interval '1 hour', queue => 'out_errors', options => '{"skip_after": "1 s"}')),
	('expired', delay_schedule_task('SELECT 1', due => now() - interval '1 hour', queue => 'out_off', options => '{"expires": "1 s"}')),
	('cancelled', delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'out_all')),
	('cancelled, not recorded', delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'out_errors')),
	('cancelled by key', delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'out_all', key => 'a')),
	('replaced', delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'out_all', key => 'b')),
	('cancelled by tag', delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'out_all', tag => 'out')),
	('cancelled by tag, not recorded', delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'out_errors', tag => 'out')),
	('cancelled by tag, notified', delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'out_all', tag => 'out', options => '{"notify": "outcome"}')),
	('message', delay_send('out_messages', '1', delay => '1 hour')),
	('never there', -1);
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SET SESSION AUTHORIZATION regress_dw_out_owner;
CREATE OR REPLACE FUNCTION pg_temp.id(what text) RETURNS bigint LANGUAGE sql AS 'SELECT o.id FROM outcome_of o WHERE o.what = $1';
-- another session has not committed that it cancels: it is pending, and nobody waits
BEGIN;
SELECT delay_cancel(pg_temp.id('cancelled'));
RESET SESSION AUTHORIZATION;
PREPARE TRANSACTION 'outcome';
SET SESSION AUTHORIZATION regress_dw_out_owner;
SELECT state FROM outcome_seen WHERE what = 'cancelled';
RESET SESSION AUTHORIZATION;
COMMIT PREPARED 'outcome';
SET SESSION AUTHORIZATION regress_dw_out_owner;
-- what is rolled back has not happened, nor is it recorded
BEGIN;
SELECT delay_cancel(pg_temp.id('cancelled by tag')), delay_cancel(key => 'a', queue => 'out_all');
SELECT what, state, at FROM outcome_seen WHERE what IN ('cancelled by tag', 'cancelled by key') ORDER BY id;
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT delay_cancel(pg_temp.id('cancelled by tag'));
ROLLBACK TO s;
SELECT delay_cancel(key => 'a', queue => 'out_all');
COMMIT;
SELECT what, state, at FROM outcome_seen WHERE what IN ('cancelled by tag', 'cancelled by key') ORDER BY id;
-- by a mark, before anybody has removed the row
BEGIN;
SELECT delay_cancel_all(tag => 'out') > 0 AS ok;
SELECT what, state, at, attempts FROM outcome_seen WHERE what LIKE 'cancelled by tag%' ORDER BY id;
SELECT delay_cancel(id), delay_cancel(id, tell_end => true) FROM outcome_of WHERE what = 'cancelled by tag, not recorded';
ROLLBACK;
SELECT delay_cancel(pg_temp.id('cancelled, not recorded'));
SELECT delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'out_all', key => 'b', if_exists => 'replace') AS replacing \gset
SELECT delay_cancel_all(tag => 'out') > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel_data.cancellation)');
-- those that ran before, and were put back
CREATE OR REPLACE FUNCTION outcome_mended() RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT count(delay_retry(id)) FROM outcome_of WHERE what LIKE 'failed, put back, done%';
SELECT pg_temp.wait_until_done();
SELECT count(delay_discard(id)) FROM outcome_of WHERE what LIKE 'failed, discarded%';
-- those that run just now
SELECT pg_advisory_lock(4713);
SET SESSION AUTHORIZATION regress_dw_out_owner;
INSERT INTO outcome_of VALUES
	('running', delay_schedule('0', 'SELECT pg_advisory_xact_lock_shared(4713); SELECT 1')),
	('running, at most once', delay_schedule_task('SELECT pg_advisory_lock_shared(4713), pg_advisory_unlock_shared(4713)', queue => 'out_all', options => '{"mode": "at_most_once"}')),
	('running, at least once', delay_schedule_task('SELECT pg_advisory_lock_shared(4713), pg_advisory_unlock_shared(4713)', queue => 'out_all', options => '{"mode": "at_least_once"}'));
SELECT pg_temp.wait_for('count(*) = 3 FROM pg_locks WHERE locktype = ''advisory'' AND objid = 4713 AND NOT granted');

SELECT what, state, at, attempts, sqlstate, message FROM outcome_seen ORDER BY id;
SELECT what, delay_cancel(id, tell_end => true) AS told, delay_cancel(id) AS not_told, delay_wait(id, '0') AS waited FROM outcome_of
	WHERE what NOT IN ('pending', 'pending, tried once', 'message') ORDER BY id;
-- a member, who may read all, and a stranger
SET SESSION AUTHORIZATION regress_dw_out_member;
CREATE TEMP TABLE seen AS SELECT * FROM outcome_seen;
SELECT count(*), count(*) FILTER (WHERE state <> 'unknown') AS known FROM seen;
SET SESSION AUTHORIZATION regress_dw_out_reader;
SELECT count(*), count(*) FILTER (WHERE state <> 'unknown') AS known FROM outcome_seen;
SET SESSION AUTHORIZATION regress_dw_out_other;
SELECT DISTINCT state, at, attempts, sqlstate, message FROM outcome_of CROSS JOIN LATERAL delay_status(id);
SELECT DISTINCT delay_cancel(id, tell_end => true) FROM outcome_of WHERE what ~ '^(done|failed|skipped|cancelled)';
RESET SESSION AUTHORIZATION;
SELECT count(*), count(*) FILTER (WHERE state <> 'unknown') AS known FROM outcome_seen;
-- what is recorded of the cancelled ones, and not of others
SELECT what, outcome, attempt, started IS NULL AS not_started, ended > due AS late, owner, key, tag, h.queue FROM delay_wheel.history h JOIN outcome_of ON task = id
	WHERE outcome = 'cancelled' ORDER BY id;

-- the times are those of the views
SELECT what FROM outcome_of o CROSS JOIN LATERAL delay_status(id) f
	LEFT JOIN delay_wheel.tasks t USING (id) LEFT JOIN delay_wheel.running r ON r.task = o.id
	LEFT JOIN delay_wheel.failed x ON x.id = o.id LEFT JOIN delay_wheel.history h ON h.task = o.id AND h.outcome = f.state
	WHERE f.at IS DISTINCT FROM CASE f.state WHEN 'pending' THEN t.due WHEN 'running' THEN r.since WHEN 'failed' THEN x.failed_at ELSE h.ended END;
SELECT pg_advisory_unlock(4713);
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel.running)');
SELECT pg_temp.wait_until_done();
SELECT what, state, at, attempts FROM outcome_seen WHERE what LIKE 'running%' ORDER BY id;

-- a task sees itself, others of its batch, and what it cancels
CREATE TABLE outcome_self (state text, other text);
INSERT INTO outcome_of VALUES ('to be cancelled by a task', delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'out_all'));
SELECT delay_schedule('0', 'INSERT INTO outcome_self SELECT (delay_status(current_setting(''delay_wheel.task_id'')::bigint)).state, delay_cancel($1)', pg_temp.id('to be cancelled by a task')) > 0 AS ok
	FROM (SELECT) s;
SELECT pg_temp.wait_until_done();
TABLE outcome_self;
SELECT state, at FROM outcome_seen WHERE what = 'to be cancelled by a task';
DROP TABLE outcome_self;

-- messages: leased, and cancelled under the lease
BEGIN;
SELECT delay_reschedule(pg_temp.id('message'), '0');
COMMIT;
SELECT pg_temp.wait_for('ready = 1 FROM delay_wheel.queues WHERE name = ''out_messages''');
SELECT count(*) FROM delay_lease('out_messages', 1, '1 hour');
SELECT state, at, attempts FROM outcome_seen WHERE what = 'message';
SELECT delay_cancel(pg_temp.id('message')), delay_cancel(pg_temp.id('message'), stop_running => true);
SELECT state, at, attempts FROM outcome_seen WHERE what = 'message';

-- superseded by a newer one of its key: it is never run
INSERT INTO delay_wheel_data.task (due, sql, key) VALUES (now() + interval '1 day', 'SELECT 1', 'out') RETURNING id AS older \gset
INSERT INTO delay_wheel_data.task (due, sql, key) VALUES (now() + interval '1 day', 'SELECT 2', 'out') RETURNING id AS newer \gset
SELECT * FROM delay_status(:older);
SELECT state FROM delay_status(:newer);
SELECT delay_cancel(key => 'out');

-- a recurring task's run
SELECT delay_every('outcome', '1 hour', 'SELECT 1', queue => 'out_all', starts => now() + interval '1 hour') > 0 AS ok;
SELECT task AS run FROM delay_wheel.recurring WHERE name = 'outcome' \gset
SELECT state FROM delay_status(:run);
SELECT delay_unschedule('outcome');
SELECT state FROM delay_status(:run);

-- older than the newest rows of the history, and in another of its tables; with indexes, too
SELECT now() - interval '1 day' AS long_ago \gset
INSERT INTO delay_wheel_data.history_0 (task, due, started, ended, owner, queue, attempt, outcome, sql)
	SELECT i, :'long_ago', :'long_ago', :'long_ago', 'regress_dw_out_owner'::regrole, 0, 1, 'done', repeat('x', 1000) FROM generate_series(-1000, -2) i;
INSERT INTO delay_wheel_data.history_1 SELECT task - 1000, due, started, ended, rows, recurring, owner, queue, attempt, outcome, command_tag, sqlstate, message, sql, key, tag
	FROM delay_wheel_data.history_0 WHERE task < 0;
INSERT INTO delay_wheel_data.history_2 SELECT task - 2000, due, started, ended, rows, recurring, owner, queue, attempt, outcome, command_tag, sqlstate, message, sql, key, tag
	FROM delay_wheel_data.history_0 WHERE task < 0;
SELECT id, state, at = :'long_ago' AS at, attempts FROM unnest('{-1000,-2000,-3000,-500,-3001}'::bigint[]) id CROSS JOIN LATERAL delay_status(id);
SELECT count(*) FROM unnest('{-1000,-2000,-3000}'::bigint[]) id WHERE delay_wait(id, '0') = 'gone';
CREATE INDEX outcome_0 ON delay_wheel_data.history_0 (task);
CREATE INDEX outcome_1 ON delay_wheel_data.history_1 (task) WHERE outcome = 'failed';
CREATE INDEX outcome_2 ON delay_wheel_data.history_2 (queue, task);
SELECT id, state, at = :'long_ago' AS at, attempts FROM unnest('{-1000,-2000,-3000,-500,-3001}'::bigint[]) id CROSS JOIN LATERAL delay_status(id);
SET SESSION AUTHORIZATION regress_dw_out_other;
SELECT id, state, at, attempts FROM unnest('{-1000,-2000,-3000,-500,-3001}'::bigint[]) id CROSS JOIN LATERAL delay_status(id);
RESET SESSION AUTHORIZATION;
DROP INDEX delay_wheel_data.outcome_0, delay_wheel_data.outcome_1, delay_wheel_data.outcome_2;

-- the setting, and the session's: it is that of who cancels
SELECT delay_schedule('1 hour', 'SELECT 1') AS one, delay_schedule('1 hour', 'SELECT 1') AS two \gset
SET delay_wheel.history = 'all';
SELECT delay_cancel(:one);
SET delay_wheel.history = 'errors';
SELECT delay_cancel(:two);
RESET delay_wheel.history;
SELECT (delay_status(:one)).state, (delay_status(:two)).state;
-- while nothing can be recorded, the rows that a mark has hit stay: another session has locked the history
SELECT delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'out_all', tag => 'locked') AS recorded,
	delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'out_errors', tag => 'locked') AS plain \gset
BEGIN;
LOCK TABLE delay_wheel_data.history_0, delay_wheel_data.history_1, delay_wheel_data.history_2 IN SHARE MODE;
PREPARE TRANSACTION 'outcome';
SELECT delay_cancel_all(tag => 'locked') > 0 AS ok;
SELECT pg_temp.wait_for(format('NOT EXISTS (SELECT FROM delay_wheel_data.task WHERE id = %s)', :plain));
SELECT count(*) FROM delay_wheel_data.task WHERE id = :recorded;
SELECT state, at FROM delay_status(:recorded);
ROLLBACK PREPARED 'outcome';
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel_data.cancellation)');
SELECT state, at IS NOT NULL AS at FROM delay_status(:recorded);

-- errors, and nulls
SELECT * FROM delay_status(NULL);
SELECT delay_cancel(-1, false, NULL);
-- the result of delay_cancel is as ever for who does not ask
SELECT delay_cancel(pg_temp.id('done')), delay_cancel(pg_temp.id('done'), false), delay_cancel(pg_temp.id('done'), tell_end => true);

-- a task that is run by hand asks for itself
CREATE TABLE outcome_own (how text, state text);
SELECT delay_schedule('1 hour', $$INSERT INTO outcome_own SELECT 'run', state FROM delay_status(current_setting('delay_wheel.task_id')::bigint)$$) AS own \gset
SELECT delay_run(:own);
SELECT delay_schedule('1 hour', $$INSERT INTO outcome_own SELECT 'run_due', state FROM delay_status(current_setting('delay_wheel.task_id')::bigint)$$) AS own \gset
SELECT delay_run_due(now() + '1 hour') > 0 AS ran;
SELECT delay_schedule('1 hour', $$INSERT INTO outcome_own SELECT 'as_executor', state FROM delay_status(current_setting('delay_wheel.task_id')::bigint)$$) AS own \gset
SELECT delay_run_due(now() + '1 hour', as_executor => true) > 0 AS ran;
SELECT delay_schedule('0', $$INSERT INTO outcome_own SELECT 'executor', state FROM delay_status(current_setting('delay_wheel.task_id')::bigint)$$) AS own \gset
SELECT pg_temp.wait_until_done();
SELECT * FROM outcome_own ORDER BY how;
DROP TABLE outcome_own;

SELECT delay_cancel(:replacing), count(delay_cancel(id)) FROM outcome_of WHERE what LIKE 'pending%';
DELETE FROM delay_wheel_data.failed_task;
DROP VIEW outcome_seen;
DROP TABLE outcome_of;
DROP FUNCTION outcome_mended;
SELECT delay_wheel.drop_queue('out_all'), delay_wheel.drop_queue('out_errors'), delay_wheel.drop_queue('out_off'), delay_wheel.drop_queue('out_messages');
TRUNCATE delay_wheel_data.history_0, delay_wheel_data.history_1, delay_wheel_data.history_2;
SELECT delay_wheel.disallow('regress_dw_out_owner', 'regress_dw_out_member', 'regress_dw_out_reader', 'regress_dw_out_other');
DROP FUNCTION pg_temp.id;
DROP OWNED BY regress_dw_out_member;
DROP ROLE regress_dw_out_member, regress_dw_out_owner, regress_dw_out_reader, regress_dw_out_other;
