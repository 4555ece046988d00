--
-- RECURRING
-- Recurring tasks: their ideal times, what they can be told, how they are
-- changed, paused and removed, and what becomes of single runs.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
SET timezone = 'Europe/Berlin';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';

CREATE TABLE recurring_run (name text, ideal timestamptz, due timestamptz, n int GENERATED ALWAYS AS IDENTITY);
CREATE FUNCTION note_run(of_name text) RETURNS void LANGUAGE sql AS $$
	INSERT INTO public.recurring_run (name, ideal, due)
	SELECT name, next_due, clock_timestamp() FROM delay_wheel.recurring WHERE name = of_name
$$;
-- what is to be seen of them without actual times
CREATE VIEW shown AS
	SELECT name, state, next_due, task IS NOT NULL AS has_run, last_due, last_outcome, last_error, runs, failures, skipped
	FROM delay_wheel.recurring ORDER BY name;
CREATE FUNCTION pg_temp.finished() RETURNS text LANGUAGE sql AS $$
	SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel.recurring WHERE state IN (''waiting'', ''running''))')
$$;

-- ideal times: of the past, all of them are made, in order
-- days over both changes of the clock, at a time that does not exist once and one that comes twice
SELECT delay_every('spring', '1 day', 'SELECT note_run($1)', args => '{spring}', starts => '2025-03-28 02:30', until => '2025-04-01', options => '{"catch_up": "all"}') > 0 AS ok;
SELECT delay_every('autumn', '1 day', 'SELECT note_run($1)', args => '{autumn}', starts => '2025-10-24 02:30', until => '2025-10-29', options => '{"catch_up": "all"}') > 0 AS ok;
-- elapsed time goes on as it is
SELECT delay_every('elapsed', '24 hours', 'SELECT note_run($1)', args => '{elapsed}', starts => '2025-10-24 02:30', until => '2025-10-29', options => '{"catch_up": "all"}') > 0 AS ok;
-- in another time zone, the other way round
SELECT delay_every('new york', '1 day', 'SELECT note_run($1)', args => '{new york}', starts => '2025-03-07 02:30 America/New_York', until => '2025-03-12',
	timezone => 'America/New_York', options => '{"catch_up": "all"}') > 0 AS ok;
SELECT delay_every('new york fall', '12 hours', 'SELECT note_run($1)', args => '{new york fall}', starts => '2025-11-01 01:30 America/New_York', until => '2025-11-03',
	timezone => 'America/New_York', options => '{"catch_up": "all"}') > 0 AS ok;
-- no drift to the 28th
SELECT delay_every('months', '1 month', 'SELECT note_run($1)', args => '{months}', starts => '2023-10-31 12:00', until => '2024-07-31', options => '{"catch_up": "all"}') > 0 AS ok;
SELECT delay_every('years', '1 year', 'SELECT note_run($1)', args => '{years}', starts => '2020-02-29 12:00', until => '2025-12-31', options => '{"catch_up": "all"}') > 0 AS ok;
-- months and days and hours together, from the first one
SELECT delay_every('mixed', '1 month 1 day 1 hour', 'SELECT note_run($1)', args => '{mixed}', starts => '2024-01-31 12:00', options => '{"max_runs": 6, "catch_up": "all"}') > 0 AS ok;
SELECT delay_every('short', '0.1 s', 'SELECT note_run($1)', args => '{short}', starts => '1999-12-31 23:59:59.7', options => '{"max_runs": 5, "catch_up": "all"}') > 0 AS ok;
SELECT delay_cron('cron', '30 2 * * *', 'SELECT note_run($1)', args => '{cron}', starts => '2025-03-28', until => '2025-04-01', options => '{"catch_up": "all"}') > 0 AS ok;
-- of a time that comes twice the first one, where delay_every takes the second
SELECT delay_cron('cron autumn', '30 2 * * *', 'SELECT note_run($1)', args => '{cron autumn}', starts => '2025-10-24', until => '2025-10-29', options => '{"catch_up": "all"}') > 0 AS ok;
SELECT delay_cron('cron seconds', '*/20 30 12 29 2 *', 'SELECT note_run($1)', args => '{cron seconds}', starts => '2020-01-01', options => '{"max_runs": 4, "catch_up": "all"}') > 0 AS ok;
SELECT pg_temp.finished();
SELECT name, ideal, CASE WHEN name LIKE 'new york%' THEN ideal AT TIME ZONE 'America/New_York' END AS new_york FROM recurring_run ORDER BY name COLLATE "C", n;
-- as PostgreSQL has it
SELECT name, ideal, computed FROM (
	SELECT name, ideal, starts + (row_number() OVER (PARTITION BY name ORDER BY n) - 1) * every::interval AS computed
	FROM recurring_run JOIN delay_wheel.recurring USING (name) WHERE every IS NOT NULL AND timezone = 'Europe/Berlin') c
	WHERE ideal <> computed;
SELECT * FROM shown;
-- finished ones stay until they are removed
SELECT count(*) FROM delay_wheel.tasks;
SELECT count(*) FROM (SELECT delay_unschedule(name) AS done FROM delay_wheel.recurring) u WHERE done;
SELECT delay_unschedule('spring');
TRUNCATE recurring_run;

-- missed times: skip makes up for the one that waits at most, and a task that begins in the past for none
SELECT delay_every('begins', '1 day', 'SELECT 1', starts => '2001-01-01 12:34:56.789') > 0 AS ok;
SELECT next_due > now() AND next_due < now() + '25 hours' AND next_due::time = '12:34:56.789' AS next_day FROM delay_wheel.recurring;
UPDATE delay_wheel_data.recurring_task SET next_due = '2001-01-01 12:34:56.789', sql = 'SELECT note_run(''begins'')';
UPDATE delay_wheel_data.task SET due = '2001-01-01 12:34:56.789', sql = 'SELECT note_run(''begins'')';
SELECT pg_temp.wait_for('(SELECT runs = 1 FROM delay_wheel.recurring)');
SELECT ideal FROM recurring_run;
SELECT next_due > now() AND next_due < now() + '25 hours' AND next_due::time = '12:34:56.789' AS next_day, runs, skipped FROM delay_wheel.recurring;
-- not even that one with skip_after
SELECT delay_every('begins', '1 day', 'SELECT note_run(''begins'')', starts => '2001-01-01 12:34:56.789', options => '{"skip_after": "1 hour"}') > 0 AS ok;
UPDATE delay_wheel_data.recurring_task SET next_due = '2002-01-01 12:34:56.789';
UPDATE delay_wheel_data.task SET due = '2002-01-01 12:34:56.789';
SELECT pg_temp.wait_for('(SELECT skipped = 1 FROM delay_wheel.recurring)');
SELECT ideal FROM recurring_run;
SELECT next_due > now() AND next_due < now() + '25 hours' AS next_day, runs, skipped, last_outcome, last_due, last_started FROM delay_wheel.recurring;
SELECT delay_unschedule('begins');

-- all, with skip_after: those that are not too late by then; the others are not gone through
TRUNCATE recurring_run;
SELECT delay_every('begins', '40 minutes', 'SELECT note_run(''begins'')', starts => '2001-01-01 12:34:56.789', options => '{"catch_up": "all", "skip_after": "1 hour"}') > 0 AS ok;
SELECT pg_temp.wait_for('(SELECT next_due > now() FROM delay_wheel.recurring)');
SELECT min(ideal) > now() - interval '65 minutes' AS last_hour, count(*) = max(runs) AND count(*) IN (1, 2) AS all, max(skipped) AS skipped FROM recurring_run JOIN delay_wheel.recurring USING (name);
UPDATE delay_wheel_data.recurring_task SET next_due = '2002-01-01 12:34:56.789', last_due = NULL;
UPDATE delay_wheel_data.task SET due = '2002-01-01 12:34:56.789';
SELECT pg_temp.wait_for('(SELECT last_outcome = ''done'' AND next_due > now() FROM delay_wheel.recurring WHERE last_due IS NOT NULL)');
SELECT min(ideal) > now() - interval '65 minutes' AS last_hour, max(skipped) AS skipped FROM recurring_run JOIN delay_wheel.recurring USING (name);
SELECT delay_unschedule('begins');

-- each run begins at its ideal time or after, and goes by that, not by the run before
TRUNCATE recurring_run;
CREATE FUNCTION note_start() RETURNS void LANGUAGE sql AS $$
	INSERT INTO public.recurring_run (name, ideal, due) SELECT 'rhythm', next_due, clock_timestamp() FROM delay_wheel_data.recurring_task WHERE name = 'rhythm'
$$;
SELECT delay_every('rhythm', '150 ms', 'SELECT note_start()', options => '{"max_runs": 20}') > 0 AS ok;
SELECT pg_temp.finished();
SELECT count(*), count(DISTINCT ideal), bool_and(due >= ideal) AS never_before,
	bool_and(extract(epoch FROM ideal - d.starts)::numeric % 0.15 = 0) AS from_the_first, max(ideal - d.starts) >= '2850 ms' AS no_time_twice
	FROM recurring_run, delay_wheel.recurring d;
SELECT delay_unschedule('rhythm');

-- one that takes longer: runs do not overlap, and times are left out or not
SELECT delay_every(catch_up, '100 ms', 'SELECT note_run($1), pg_sleep(0.25)', args => ARRAY[catch_up], options => jsonb_build_object('max_runs', 3, 'catch_up', catch_up)) > 0 AS ok
	FROM unnest('{skip,all}'::text[]) catch_up;
SELECT pg_temp.finished();
SELECT name, bool_and(due >= due_before + '250 ms') AS no_overlap, bool_and(ideal >= ideal_before + '300 ms') AS left_out, bool_and(ideal = ideal_before + '100 ms') AS all_of_them
	FROM (SELECT name, ideal, due, lag(ideal) OVER w AS ideal_before, lag(due) OVER w AS due_before FROM recurring_run WHERE name <> 'rhythm' WINDOW w AS (PARTITION BY name ORDER BY n)) r
	WHERE due_before IS NOT NULL GROUP BY name ORDER BY name;
SELECT delay_unschedule('skip'), delay_unschedule('all');

-- a task that fails goes on; what its last run said is shown
SELECT delay_every('fails', '100 ms', 'SELECT 1/0', options => '{"max_runs": 3}') > 0 AS ok;
SELECT pg_temp.finished();
SELECT name, state, last_outcome, last_error, runs, failures FROM delay_wheel.recurring;
SELECT sqlstate, message, sql FROM delay_wheel.failed WHERE sql = 'SELECT 1/0';
-- a failed run that is put back is an ordinary task
SELECT delay_every('fails', '1 day', 'SELECT 1/0', options => '{"max_runs": 10}') > 0 AS ok;
SELECT delay_retry_all(sqlstate => '22012') AS put_back;
SELECT pg_temp.wait_for('(SELECT count(*) = 3 FROM delay_wheel.failed WHERE sql = ''SELECT 1/0'')');
SELECT state, runs, failures FROM delay_wheel.recurring;
DELETE FROM delay_wheel_data.failed_task WHERE sql = 'SELECT 1/0';
SELECT delay_unschedule('fails');
-- attempts belong to one run, which the next one waits for
CREATE SEQUENCE recurring_attempt;
SELECT delay_every('attempts', '100 ms', 'SELECT 1/(nextval(''recurring_attempt'') - 3)::int, note_run(''attempts'')', max_attempts => 5, options => '{"max_runs": 1, "retry_delay": "1 ms"}') > 0 AS ok;
SELECT pg_temp.finished();
SELECT last_outcome, runs, failures FROM delay_wheel.recurring;
SELECT delay_unschedule('attempts');
DROP SEQUENCE recurring_attempt;

-- options go with each run
SELECT delay_wheel.create_queue('recurring_queue', priority => 1, options => '{"spread": "1 day"}');
SELECT delay_every('options', '1 day', 'SELECT $1, $2', args => '{a,1}', starts => '2999-01-01', timezone => 'UTC', until => '2999-02-01', queue => 'recurring_queue', tag => 'tag', max_attempts => 3, options => '{"arg_types": ["text", "int"], "max_runs": 5, "catch_up": "all", "retry_delay": "5 s", "timeout": "1 minute", "skip_after": "2 hours", "notify": "channel", "on_success": "SELECT $1", "on_failure": "SELECT $2"}') > 0 AS ok;
SELECT name, every, schedule, timezone, starts, until, max_runs, catch_up, next_due, queue, priority, tag, sql, args FROM delay_wheel.recurring;
SELECT due, t.owner = current_user::regrole AS own, priority, attempts, max_attempts, timeout, retry_delay, expires, sql, args, arg_types, key, tag, more - 'recurring' AS more
	FROM delay_wheel_data.task t;
SELECT delay_wheel.drop_queue('recurring_queue');
-- also without a run
SELECT delay_pause_recurring('options');
SELECT delay_wheel.drop_queue('recurring_queue');
SELECT delay_unschedule('options');
SELECT delay_wheel.drop_queue('recurring_queue');
-- the search path that was in force
CREATE SCHEMA recurring_schema;
CREATE TABLE recurring_schema.recurring_place (label text);
SET search_path = recurring_schema;
SELECT public.delay_every('path', '100 ms', 'INSERT INTO recurring_place VALUES (''there'')', options => '{"max_runs": 2}') > 0 AS ok;
RESET search_path;
SELECT pg_temp.finished();
SELECT * FROM recurring_schema.recurring_place;
SELECT delay_unschedule('path');
DROP SCHEMA recurring_schema CASCADE;

-- changed by name
SELECT delay_every('changed', '1 day', 'SELECT 1', starts => '2999-01-31 12:00', timezone => 'UTC') AS first_id \gset
-- nothing is changed
SELECT delay_every('changed', '1 day', 'SELECT 1', timezone => 'UTC') = :first_id AS same;
SELECT delay_every('changed', '1 day', 'SELECT 1', starts => '2999-01-31 12:00', timezone => 'UTC') = :first_id AS same;
-- the text only
SELECT delay_every('changed', '1 day', 'SELECT 2', timezone => 'UTC') AS second_id \gset
SELECT :second_id > :first_id AS new_run;
SELECT due, sql FROM delay_wheel.tasks;
-- the interval, counted from the same time; then from now
SELECT delay_every('changed', '1 month', 'SELECT 2', starts => '2999-01-31 12:00', timezone => 'UTC') > 0 AS ok;
SELECT every, starts, next_due FROM delay_wheel.recurring;
SELECT delay_every('changed', '2 months', 'SELECT 2', timezone => 'UTC') > 0 AS ok;
SELECT every, starts > now() + '1 month' AND starts < now() + '3 months' AS from_now, starts = next_due AS first_one FROM delay_wheel.recurring;
-- to a schedule and back, in one transaction, undone in part
BEGIN;
SELECT delay_cron('changed', '0 0 1 1 *', 'SELECT 3', starts => '2998-02-01') > 0 AS ok;
SELECT every, schedule, next_due FROM delay_wheel.recurring;
SAVEPOINT s;
SELECT delay_unschedule('changed');
SELECT delay_unschedule('changed');
SELECT delay_every('changed', '1 hour', 'SELECT 4', starts => '2999-01-31 12:00') > 0 AS ok;
SELECT every, schedule, next_due FROM delay_wheel.recurring;
SELECT sql FROM delay_wheel.tasks;
ROLLBACK TO s;
SELECT every, schedule, next_due FROM delay_wheel.recurring;
SELECT sql FROM delay_wheel.tasks;
COMMIT;
SELECT name, state, every, schedule, next_due FROM delay_wheel.recurring;
SELECT due, sql FROM delay_wheel.tasks;
-- rolled back: no trace
BEGIN;
SELECT delay_every('undone', '100 ms', 'SELECT note_run(''undone'')') > 0 AS ok;
SELECT delay_unschedule('changed');
ROLLBACK;
SELECT name, state FROM shown;
SELECT due, sql FROM delay_wheel.tasks;
-- an end that is past: there is no further run; a later one: there is again
SELECT delay_cron('changed', '0 0 1 1 *', 'SELECT 3', until => '2001-01-01') AS none;
SELECT * FROM shown;
SELECT delay_cron('changed', '0 0 1 1 *', 'SELECT 3', starts => '2998-02-01', until => '3001-01-01') > 0 AS ok;
SELECT * FROM shown;
SELECT count(*) FROM delay_wheel.tasks;

-- paused and resumed
SELECT delay_pause_recurring('changed'), delay_pause_recurring('changed'), delay_pause_recurring('none');
SELECT * FROM shown;
SELECT count(*) FROM delay_wheel.tasks;
-- changed while it is paused, it stays so
SELECT delay_every('changed', '1 day', 'SELECT 5', starts => '2001-01-01 12:00', timezone => 'UTC', options => '{"catch_up": "all"}') AS none;
SELECT name, state, has_run FROM shown;
-- what was missed is not made up for
SELECT delay_resume_recurring('changed'), delay_resume_recurring('changed'), delay_resume_recurring('none');
SELECT name, state, next_due > now() AND next_due < now() + '1 day' AS next_day, has_run FROM shown;
SELECT due > now() AS next_day, sql FROM delay_wheel.tasks;

-- single runs: a cancelled one is left out
SELECT delay_every('changed', '1 day', 'SELECT note_run(''changed'')', starts => '2999-03-30 02:30') AS id \gset
SELECT delay_cancel(:id);
SELECT name, state, next_due, last_due, last_outcome, runs, skipped FROM shown;
SELECT delay_cancel(:id);
SELECT delay_wait(:id);
-- a moved one keeps its ideal time
SELECT task AS id FROM delay_wheel.recurring \gset
SELECT delay_reschedule(:id, '2999-03-30 18:00');
SELECT name, next_due FROM shown;
SELECT due FROM delay_wheel.tasks;
-- one that is run now is followed by the next; rolled back, it is not
BEGIN;
SELECT delay_run(:id);
SELECT name, next_due, last_due, last_outcome, runs FROM shown;
ROLLBACK;
SELECT name, next_due, last_due, last_outcome, runs FROM shown;
SELECT delay_run(:id), delay_run(:id);
SELECT name, next_due, last_due, last_outcome, runs FROM shown;
-- by a mark: its row is removed later, and then there is the next one
SELECT delay_cancel_all(due_from => '2999-01-01') > 0 AS ok;
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel.cancellations)');
SELECT name, next_due, last_outcome, runs, skipped FROM shown;
SELECT due, sql FROM delay_wheel.tasks;
-- changed while the mark has hit, but not removed it yet
BEGIN;
SELECT delay_cancel_all(due_from => '2999-01-01') > 0 AS ok;
SELECT delay_every('changed', '1 day', 'SELECT note_run(''changed'')', starts => '2999-06-01') > 0 AS ok;
COMMIT;
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel.cancellations)');
SELECT name, next_due, last_outcome, runs, skipped FROM shown;
SELECT due, sql FROM delay_wheel.tasks;
SELECT delay_unschedule('changed');
SELECT count(*) FROM delay_wheel.tasks;

-- one that is not paused is left alone by resuming, also a run that was moved
SELECT delay_every('awake', '1 day', 'SELECT 1', starts => '2999-01-01 UTC') AS id \gset
SELECT delay_reschedule(:id, '2999-03-03 UTC');
SELECT delay_resume_recurring('awake');
SELECT task = :id AS same, t.due AT TIME ZONE 'UTC' AS due FROM delay_wheel.recurring r JOIN delay_wheel.tasks t ON t.id = r.task;
-- plain SQL has made the definition name another task: that is not touched
SELECT delay_schedule_at('2999-01-01 UTC', 'SELECT ''other''') AS other \gset
UPDATE delay_wheel_data.recurring_task SET task = :other;
SELECT delay_pause_recurring('awake'), delay_resume_recurring('awake');
UPDATE delay_wheel_data.recurring_task SET task = :other;
SELECT delay_unschedule('awake');
SELECT sql, more FROM delay_wheel_data.task WHERE id = :other;
SELECT count(delay_cancel(id)) > 1 AS ok FROM delay_wheel.tasks;

-- a run that changes, removes or pauses its own task
SELECT delay_every('itself', '100 ms', $$SELECT delay_every('itself', '1 day', 'SELECT 2', starts => '2999-01-01 UTC')$$) > 0 AS ok;
SELECT pg_temp.wait_for('(SELECT runs = 1 FROM delay_wheel.recurring)');
SELECT * FROM (SELECT name, state, every, next_due, runs, last_outcome FROM delay_wheel.recurring) r;
SELECT delay_every('itself', '100 ms', $$SELECT delay_unschedule('itself'); INSERT INTO recurring_run (name) VALUES ('removed')$$) > 0 AS ok;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM recurring_run WHERE name = ''removed'')');
SELECT count(*) FROM delay_wheel.recurring;
SELECT count(*) FROM delay_wheel.tasks;
SELECT delay_every('itself', '100 ms', $$SELECT delay_pause_recurring('itself')$$) > 0 AS ok;
SELECT pg_temp.wait_for('(SELECT runs = 1 FROM delay_wheel.recurring)');
SELECT name, state, runs, last_outcome, has_run FROM shown;
SELECT delay_resume_recurring('itself');
SELECT pg_temp.wait_for('(SELECT runs = 2 FROM delay_wheel.recurring)');
-- removed and declared anew: another one
SELECT delay_every('itself', '100 ms', $$SELECT delay_unschedule('itself'); SELECT delay_every('itself', '1 day', 'SELECT 2', starts => '2999-01-01 UTC')$$) AS none;
SELECT delay_resume_recurring('itself');
SELECT pg_temp.wait_for('(SELECT runs = 0 FROM delay_wheel.recurring)');
SELECT name, state, next_due, runs FROM shown;
SELECT due, sql FROM delay_wheel.tasks;
-- within delay_run()
SELECT delay_every('itself', '1 day', $$SELECT delay_every('itself', '2 days', 'SELECT 2', starts => '2999-05-01 UTC')$$, starts => '2999-01-01 UTC') AS id \gset
SELECT delay_run(:id);
SELECT name, state, next_due, runs FROM shown;
SELECT due, sql FROM delay_wheel.tasks;
SELECT delay_unschedule('itself');
SELECT count(*) FROM delay_wheel.tasks;

-- within delay_run_due(), which has its own clock: at 24, 25 and 26 hours
BEGIN;
SELECT delay_every('outer', '24 hours', $$SELECT delay_every('inner', '1 hour', 'SELECT note_run(''inner'')')$$, options => '{"max_runs": 1}') > 0 AS ok;
SELECT delay_run_due(now() + '26.5 hours');
SELECT ideal - now() AS after FROM recurring_run WHERE name = 'inner' ORDER BY n;
ROLLBACK;

-- names are of their owner; rights are those of tasks
CREATE ROLE regress_recurring_a;
CREATE ROLE regress_recurring_b;
GRANT USAGE ON SCHEMA public TO regress_recurring_a, regress_recurring_b;
SET ROLE regress_recurring_a;
SELECT delay_every('mine', '1 day', 'SELECT 1');
RESET ROLE;
SELECT delay_wheel.allow('regress_recurring_a', 'regress_recurring_b');
SET ROLE regress_recurring_a;
SELECT delay_every('mine', '1 day', 'SELECT 1', starts => '2999-01-01') > 0 AS ok;
SET ROLE regress_recurring_b;
SELECT delay_every('mine', '2 days', 'SELECT 2', starts => '2999-01-01') > 0 AS ok;
SELECT name, owner, every FROM delay_wheel.recurring;
SELECT delay_unschedule('mine'), delay_unschedule('mine');
SELECT count(*) FROM delay_wheel.recurring;
SELECT name FROM delay_wheel_data.recurring_task;
RESET ROLE;
SELECT name, owner, every FROM delay_wheel.recurring;
-- plain SQL does not make runs of others
GRANT pg_write_all_data, pg_read_all_data TO regress_recurring_b;
SET ROLE regress_recurring_b;
INSERT INTO delay_wheel_data.recurring_task (name, owner, every, starts, timezone, sql) VALUES ('x', 'regress_recurring_a', '1 day', now(), 'UTC', 'SELECT 1');
UPDATE delay_wheel_data.recurring_task SET sql = 'SELECT 2';
-- a task that names another role's definition is none of its runs
INSERT INTO delay_wheel_data.task (due, sql, more) SELECT now(), 'SELECT 3', jsonb_build_object('recurring', id) FROM delay_wheel_data.recurring_task;
INSERT INTO delay_wheel_data.task (due, sql, more) VALUES (now(), 'SELECT 3', '{"recurring": "x"}'), (now(), 'SELECT 3', '{"recurring": 1e30}'), (now(), 'SELECT 3', '[]');
RESET ROLE;
REVOKE pg_write_all_data, pg_read_all_data FROM regress_recurring_b;
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel_data.task WHERE owner = ''regress_recurring_b''::regrole)');
SELECT name, owner, state, runs, next_due FROM delay_wheel.recurring;
-- nor a time that a dump could not bring back with the run
SELECT code, message FROM pg_temp.error_of($$UPDATE delay_wheel_data.recurring_task SET next_due = 'infinity'$$);
-- the role's limit counts it when it is declared
SET ROLE regress_recurring_a;
SELECT delay_every('second', '1 day', 'SELECT 1', starts => '2999-01-01') > 0 AS ok;
RESET ROLE;
SET delay_wheel.max_pending = 1;
SET ROLE regress_recurring_a;
SELECT delay_every('third', '1 day', 'SELECT 1', starts => '2999-01-01') > 0 AS ok;
SELECT delay_every('second', '1 day', 'SELECT 2', starts => '2999-01-01') > 0 AS ok;
RESET ROLE;
RESET delay_wheel.max_pending;
-- a dropped role takes them along, those without a run, too
SET ROLE regress_recurring_b;
SELECT delay_every('without', '1 day', 'SELECT 1') > 0 AS ok;
SELECT delay_pause_recurring('without');
RESET ROLE;
SELECT delay_wheel.disallow('regress_recurring_a', 'regress_recurring_b');
REVOKE USAGE ON SCHEMA public FROM regress_recurring_a, regress_recurring_b;
DROP ROLE regress_recurring_a, regress_recurring_b;
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel_data.recurring_task)');
SELECT pg_temp.wait_for('(SELECT count(*) = 2 FROM delay_wheel.failed WHERE message LIKE ''role with OID%'')');
DELETE FROM delay_wheel_data.failed_task WHERE message LIKE 'role with OID%';

-- what is refused
SELECT command, e.code, e.message FROM unnest(ARRAY[
	$$delay_every(NULL, '1 day', 'SELECT 1')$$,
	$$delay_every('', '1 day', 'SELECT 1')$$,
	$$delay_every(repeat('x', 1001), '1 day', 'SELECT 1')$$,
	$$delay_every('x', NULL, 'SELECT 1')$$,
	$$delay_every('x', '0', 'SELECT 1')$$,
	$$delay_every('x', '99 ms', 'SELECT 1')$$,
	$$delay_every('x', '-1 day', 'SELECT 1')$$,
	$$delay_every('x', '1 month -1 day', 'SELECT 1')$$,
	$$delay_every('x', '1 day', NULL)$$,
	$$delay_every('x', '1 day', 'SELECT $1')$$,
	$$delay_every('x', '1 day', 'SELEC')$$,
	$$delay_every('x', '1 day', 'VACUUM')$$,
	$$delay_every('x', '1 day', 'SELECT 1', starts => 'infinity')$$,
	$$delay_every('x', '1 day', 'SELECT 1', timezone => 'Nowhere/Land')$$,
	$$delay_every('x', '1 day', 'SELECT 1', until => '2001-01-01')$$,
	$$delay_every('x', '1 day', 'SELECT 1', starts => '2999-01-02', until => '2999-01-01')$$,
	$$delay_every('x', '1 day', 'SELECT 1', options => '{"max_runs": 0}')$$,
	$$delay_every('x', '1 day', 'SELECT 1', options => '{"catch_up": "maybe"}')$$,
	$$delay_every('x', '1 day', 'SELECT 1', queue => 'no such queue')$$,
	$$delay_every('x', '1 day', 'SELECT 1', priority => 10)$$,
	$$delay_every('x', '1 day', 'SELECT 1', max_attempts => 0)$$,
	$$delay_every('x', '1 day', 'SELECT 1', options => '{"timeout": "-1 s"}')$$,
	$$delay_every('x', '1 day', 'SELECT 1', options => '{"skip_after": "-1 s"}')$$,
	$$delay_every('x', '1 day', 'SELECT 1', options => '{"on_success": "SELEC"}')$$,
	$$delay_every('x', '1 day', 'SELECT 1', options => '{"mode": "maybe"}')$$,
	$$delay_every('x', '1 day', 'SELECT 1; SELECT 2', options => '{"mode": "at_least_once"}')$$,
	$$delay_every('x', '200000000 years', 'SELECT 1')$$,
	$$delay_cron('x', NULL, 'SELECT 1')$$,
	$$delay_cron('x', 'whenever', 'SELECT 1')$$,
	$$delay_cron('x', '0 0 31 2 *', 'SELECT 1')$$,
	$$delay_unschedule(NULL)$$,
	$$delay_pause_recurring(NULL)$$,
	$$delay_resume_recurring(NULL)$$]) command,
	pg_temp.error_of('SELECT ' || command) e;
BEGIN READ ONLY;
SELECT delay_every('x', '1 day', 'SELECT 1');
ROLLBACK;
SELECT count(*) FROM delay_wheel_data.recurring_task;

-- the end of timestamps is the end of runs
SELECT delay_every('last', '1 year', 'SELECT note_run(''last'')', starts => '294275-06-01', timezone => 'UTC') AS id \gset
SELECT delay_run(:id);
SELECT task AS id FROM delay_wheel.recurring \gset
SELECT delay_run(:id);
SELECT * FROM shown;
SELECT delay_unschedule('last');
-- a definition that plain SQL has spoilt has no runs any more, and says why
SELECT delay_every('spoilt', '1 day', 'SELECT 1', starts => '2999-01-01') AS id \gset
UPDATE delay_wheel_data.recurring_task SET timezone = 'Nowhere/Land';
SELECT delay_run(:id);
SELECT * FROM shown;
SELECT delay_unschedule('spoilt');

SELECT count(*) FROM delay_wheel.tasks;
DROP VIEW shown;
DROP FUNCTION note_run, note_start;
DROP TABLE recurring_run;
