--
-- GROUPS
-- Tasks and messages of a queue with groups say to which one they belong: what is
-- refused, what is shown, and what follows a task. How groups take turns and how
-- their limits hold is tested in t/345_groups.pl.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE ROLE regress_dw_tenant_a LOGIN;
CREATE ROLE regress_dw_tenant_b LOGIN;
SELECT delay_wheel.allow('regress_dw_tenant_a'), delay_wheel.allow('regress_dw_tenant_b');
CREATE TABLE group_effect (label text, task text DEFAULT current_setting('delay_wheel.task_id'));
GRANT ALL ON group_effect TO PUBLIC;

-- declared
SELECT delay_wheel.create_queue('grouped', groups => true, users => '{regress_dw_tenant_a}', options => '{"group_max_running": 2, "group_rate": 600, "group_per": "1 minute", "group_burst": 5}');
SELECT delay_wheel.create_queue('turns', groups => true);
SELECT delay_wheel.create_queue('ungrouped');
SELECT delay_wheel.create_queue('letters', groups => true, external => true);
SELECT name, groups, group_max_running, group_rate, group_per, group_burst, max_running, rate, per, burst
FROM delay_wheel.queues WHERE name IN ('grouped', 'turns', 'ungrouped', 'letters') ORDER BY name;
SELECT delay_wheel.create_queue('grouped', options => '{"group_rate": 7, "group_per": "2 days"}');
SELECT delay_wheel.create_queue('grouped', options => '{"group_max_running": 0, "group_burst": 0}');
SELECT name, groups, group_max_running, group_rate, group_per, group_burst FROM delay_wheel.queues WHERE name = 'grouped';
-- those of messages have limits and order, too
SELECT delay_wheel.create_queue('letters', options => '{"group_max_running": 1, "group_rate": 100, "group_order": "hold"}');
SELECT name, group_max_running, group_rate, group_order FROM delay_wheel.queues WHERE name = 'letters';
SELECT delay_wheel.create_queue('letters', options => '{"group_max_running": 0, "group_rate": 0, "group_order": "any"}');
-- refused
SELECT delay_wheel.create_queue('ungrouped', options => '{"group_max_running": 1}');
SELECT delay_wheel.create_queue('ungrouped', options => '{"group_rate": 1}');
SELECT delay_wheel.create_queue('grouped', groups => false);
SELECT delay_wheel.create_queue('ungrouped', options => '{"group_order": "pass"}');
SELECT delay_wheel.create_queue('turns', options => '{"group_order": "strict"}');
SELECT delay_wheel.create_queue('turns', options => '{"group_order": ""}');
SELECT delay_wheel.create_queue('grouped', options => '{"group_max_running": -1}');
SELECT delay_wheel.create_queue('grouped', options => '{"group_rate": 1000001}');
SELECT delay_wheel.create_queue('grouped', options => '{"group_per": "0.9 s"}');
SELECT delay_wheel.create_queue('grouped', options => '{"group_per": "367 days"}');
SELECT delay_wheel.create_queue('grouped', options => '{"group_burst": -1}');
SELECT delay_wheel.create_queue('grouped', groups => false, options => '{"group_rate": 0}');
SELECT delay_wheel.create_queue('grouped', groups => true, options => '{"group_max_running": 1}');

SELECT delay_wheel.create_queue('turns', options => '{"group_order": "hold"}');
SELECT delay_wheel.create_queue('turns', groups => false);
SELECT name, group_order FROM delay_wheel.queues WHERE name = 'turns';
SELECT delay_wheel.create_queue('turns', groups => false, options => '{"group_order": "any"}');
SELECT name, groups, group_order FROM delay_wheel.queues WHERE name = 'turns';

-- plain SQL gives a row the same hash
SELECT delay_schedule_task('SELECT 1', delay => '1 day', queue => 'grouped', group_key => 'ä') AS by_function \gset
INSERT INTO delay_wheel_data.task (due, owner, queue, sql, group_key)
SELECT due, owner, queue, sql, 'ä' FROM delay_wheel_data.task WHERE id = :by_function;
SELECT count(*), count(DISTINCT group_hash) FROM delay_wheel_data.task WHERE group_key = 'ä';
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks WHERE group_key = 'ä';

-- scheduled
SELECT delay_schedule_task('SELECT 1', group_key => 'a');
SELECT delay_schedule_task('SELECT 1', queue => 'default', group_key => 'a');
SELECT delay_schedule_task('SELECT 1', queue => 'ungrouped', group_key => 'a');
SELECT delay_schedule_task('SELECT 1', queue => 'grouped', group_key => '');
SELECT delay_schedule_task('SELECT 1', queue => 'grouped', group_key => repeat('x', 1001));
SELECT delay_scheduled(delay_schedule_task('SELECT 1', queue => 'ungrouped', group_key => 'a'));
SELECT delay_send('letters', '1', group_key => '');
SELECT delay_scheduled(delay_send('letters', '1', group_key => repeat('x', 1001)));
SELECT delay_schedule_task('SELECT 1', delay => '1 day', queue => 'grouped', group_key => repeat('x', 1000)) IS NOT NULL AS longest;
SELECT delay_schedule_task('SELECT 1', delay => '1 day', queue => 'grouped', group_key => 'tenant 7', key => 'k') IS NOT NULL AS new;
SELECT outcome FROM delay_scheduled(delay_schedule_task('SELECT 2', delay => '1 day', queue => 'grouped', group_key => 'tenant 8', key => 'k', if_exists => 'replace'));
SELECT delay_schedule_task('SELECT 1', delay => '1 day', queue => 'grouped') IS NOT NULL AS none;
SELECT delay_send('letters', '1', delay => '1 day', group_key => 'reader') IS NOT NULL AS sent;
SELECT outcome FROM delay_scheduled(delay_send('letters', '2', delay => '1 day', key => 'k', group_key => 'reader'));
SELECT queue, key, "left"(group_key, 10) AS group_key, octet_length(group_key) FROM delay_wheel.tasks WHERE queue IN ('grouped', 'letters') ORDER BY id;
-- moving and changing a task leaves its group
SELECT delay_reschedule(key => 'k', delay => '2 days', queue => 'grouped');
SELECT delay_update(key => 'k', queue => 'grouped', priority => 3);
SELECT key, group_key, priority FROM delay_wheel.tasks WHERE queue = 'grouped' AND key = 'k';
-- in another queue it means nothing
SELECT delay_update(key => 'k', queue => 'grouped', options => '{"to_queue": "ungrouped"}');
SELECT delay_update(key => 'k', queue => 'grouped', options => '{"group_key": "tenant 9"}');
SELECT queue, group_key FROM delay_wheel.tasks WHERE key = 'k' AND queue = 'grouped';
SELECT delay_update(key => 'k', queue => 'grouped', options => '{"to_queue": "ungrouped", "group_key": ""}');
SELECT queue, group_key FROM delay_wheel.tasks WHERE key = 'k' AND queue = 'ungrouped';

-- by triggers
CREATE TABLE group_order (id int PRIMARY KEY, tenant int);
CREATE TRIGGER later AFTER INSERT ON group_order FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('1 day', 'SELECT $1', 'id', 'queue=grouped', 'group_key=tenant');
INSERT INTO group_order VALUES (1, 7), (2, 8), (3, NULL);
CREATE OR REPLACE TRIGGER later AFTER INSERT ON group_order FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('1 day', 'SELECT $1', 'id', 'group_key=tenant');
INSERT INTO group_order VALUES (4, NULL);
INSERT INTO group_order VALUES (5, 9);
CREATE OR REPLACE TRIGGER later AFTER INSERT ON group_order FOR EACH ROW EXECUTE FUNCTION delay_send_trigger('1 day', 'letters', 'id', 'group_key=tenant');
INSERT INTO group_order VALUES (6, 9);
SELECT queue, COALESCE(args[1], payload::text) AS of_row, group_key FROM delay_wheel.tasks WHERE sql = 'SELECT $1' OR payload ? 'id' ORDER BY id;
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks WHERE sql = 'SELECT $1' OR payload ? 'id';
DROP TABLE group_order;
-- for a local time
SELECT delay_schedule_local('2099-01-01 09:00', 'Europe/Berlin', 'SELECT 1', queue => 'grouped', group_key => 'tenant 7') AS local \gset
SELECT queue, group_key, timezone FROM delay_wheel.tasks WHERE id = :local;
SELECT delay_cancel(:local);

-- by those who may use the queue; others learn nothing of the group
SET SESSION AUTHORIZATION regress_dw_tenant_a;
SELECT delay_schedule_task('SELECT 1', delay => '1 day', queue => 'grouped', group_key => 'of a') IS NOT NULL AS scheduled;
SELECT queue, group_key FROM delay_wheel.tasks;
SET SESSION AUTHORIZATION regress_dw_tenant_b;
SELECT delay_schedule_task('SELECT 1', delay => '1 day', queue => 'grouped', group_key => 'of a');
SELECT queue, group_key FROM delay_wheel.tasks;
SELECT queue, group_key FROM delay_wheel.failed;
RESET SESSION AUTHORIZATION;
SELECT count(*) AS cancelled FROM (SELECT delay_cancel(id) FROM delay_wheel.tasks WHERE queue IN ('grouped', 'ungrouped', 'letters')) c;

-- what follows a task is of its group, if it is of its queue; failed tasks keep it
SELECT delay_schedule_task($$INSERT INTO group_effect VALUES ('first')$$, queue => 'grouped', group_key => 'tenant 7', max_attempts => 1,
	options => jsonb_build_object('on_success', $$SELECT pg_sleep(0), 1 / 0$$)) AS first \gset
SELECT pg_temp.wait_for($$(SELECT count(*) = 1 FROM delay_wheel.failed WHERE queue = 'grouped')$$);
SELECT queue, group_key, message FROM delay_wheel.failed WHERE queue = 'grouped';
SELECT delay_wheel.pause_queue('grouped');
SELECT count(delay_retry(id)) AS put_back FROM delay_wheel.failed WHERE queue = 'grouped';
SELECT queue, group_key FROM delay_wheel.tasks WHERE queue = 'grouped';
SELECT count(*) AS cancelled FROM (SELECT delay_cancel(id) FROM delay_wheel.tasks WHERE queue = 'grouped') c;
SELECT delay_wheel.resume_queue('grouped');
-- of a message the follow-up is an SQL task, and so has no group
SELECT delay_send('letters', '3', group_key => 'reader', options => jsonb_build_object('on_success', $$INSERT INTO group_effect VALUES ('received')$$)) AS message \gset
SELECT pg_temp.wait_for($$(SELECT ready = 1 FROM delay_wheel.queues WHERE name = 'letters')$$);
SELECT payload FROM delay_receive('letters', autocommit => true);
SELECT pg_temp.wait_for($$(SELECT count(*) = 2 FROM group_effect)$$);
SELECT label FROM group_effect ORDER BY label;

-- runs of a recurring task are of its group, as it is declared when they are scheduled
SELECT delay_every('grouped', '1 day', 'SELECT 1', queue => 'grouped', options => '{"group_key": "tenant 7"}') AS run \gset
SELECT delay_cron('grouped cron', '0 0 1 1 *', 'SELECT 1', queue => 'grouped', options => '{"group_key": "tenant 8"}') IS NOT NULL AS declared;
SELECT delay_every('ungrouped', '1 day', 'SELECT 1', options => '{"group_key": "tenant 7"}');
SELECT delay_cron('ungrouped', '0 0 1 1 *', 'SELECT 1', queue => 'ungrouped', options => '{"group_key": "tenant 7"}');
SELECT delay_every('ungrouped', '1 day', 'SELECT 1', queue => 'grouped', options => '{"group_key": ""}');
SELECT r.name, r.group_key, t.group_key AS of_run FROM delay_wheel.recurring r JOIN delay_wheel.tasks t ON t.id = r.task ORDER BY r.name;
SELECT delay_run(:run);
SELECT r.name, r.group_key, t.group_key AS of_run, t.id <> :run AS next FROM delay_wheel.recurring r JOIN delay_wheel.tasks t ON t.id = r.task WHERE r.name = 'grouped';
SELECT delay_every('grouped', '1 day', 'SELECT 1', queue => 'grouped', options => '{"group_key": "tenant 9"}') <> :run AS changed;
SELECT r.group_key, t.group_key AS of_run, r.task AS same FROM delay_wheel.recurring r JOIN delay_wheel.tasks t ON t.id = r.task WHERE r.name = 'grouped' \gset
SELECT :'group_key', :'of_run', delay_every('grouped', '1 day', 'SELECT 1', queue => 'grouped', options => '{"group_key": "tenant 9"}') = :same AS unchanged;
SELECT delay_every('grouped', '1 day', 'SELECT 1', queue => 'grouped') <> :same AS changed;
SELECT r.group_key, t.group_key AS of_run FROM delay_wheel.recurring r JOIN delay_wheel.tasks t ON t.id = r.task WHERE r.name = 'grouped';
SELECT delay_unschedule('grouped'), delay_unschedule('grouped cron');

--
-- The groups that wait, and who sees them; the history has the group of each task
--
SELECT delay_wheel.create_queue('grouped', groups => true, options => '{"group_max_running": 1, "group_rate": 0, "history": "all"}');
SELECT delay_wheel.create_queue('turns', groups => true, users => '{regress_dw_tenant_a,regress_dw_tenant_b}', options => '{"group_rate": 1, "group_per": "1 hour", "group_burst": 1}');
SELECT delay_wheel.pause_queue('turns');
SELECT pg_advisory_lock(5);
SELECT count(delay_schedule_task('SELECT pg_advisory_xact_lock_shared(5)', due => now() - interval '1 minute', queue => 'grouped', group_key => 'busy')) FROM generate_series(1, 3);
SET SESSION AUTHORIZATION regress_dw_tenant_a;
SELECT count(delay_schedule_task('SELECT 1', due => now() - i * interval '1 hour', queue => 'turns', group_key => 'of a ' || i)) FROM generate_series(1, 2) i;
SET SESSION AUTHORIZATION regress_dw_tenant_b;
SELECT count(delay_schedule_task('SELECT 1', due => now() - interval '90 min', queue => 'turns', group_key => 'of b', priority => 2)) FROM generate_series(1, 2) i;
SELECT count(delay_schedule_task('SELECT 1', queue => 'turns')) FROM generate_series(1, 2) i;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_for($$(SELECT sum(ready) = 6 FROM delay_wheel.groups WHERE queue = 'turns') AND (SELECT state = 'full' FROM delay_wheel.groups WHERE queue = 'grouped')$$);
CREATE VIEW group_seen AS SELECT queue, group_key, state, ready, more, running, now() - first_due > '30 s' AS for_long, waits_until - now() BETWEEN '50 min' AND '60 min' AS waits,
	owner, priority, group_hash = hashtext(group_key) AS hash FROM delay_wheel.groups;
GRANT SELECT ON group_seen TO PUBLIC;
SELECT * FROM group_seen WHERE queue = 'grouped' OR owner LIKE 'regress_dw_tenant%';
SET SESSION AUTHORIZATION regress_dw_tenant_a;
SELECT queue, group_key, ready, owner FROM group_seen;
RESET SESSION AUTHORIZATION;
-- who watches sees groups without their names
CREATE ROLE regress_dw_tenant_m IN ROLE pg_monitor;
SET ROLE regress_dw_tenant_m;
SELECT queue, group_key, state, ready, owner, group_hash IS NOT NULL AS hash,
	group_hash IN (SELECT hashtext(name) FROM unnest('{of a 1,of a 2,of b}'::text[]) name) AS told FROM delay_wheel.groups WHERE queue IN ('grouped', 'turns') AND (queue = 'grouped' OR owner LIKE 'regress_dw_tenant%');
RESET ROLE;
DROP ROLE regress_dw_tenant_m;
-- the first of each group begins, and the others wait for the rate
SELECT delay_wheel.resume_queue('turns');
SELECT pg_temp.wait_for($$(SELECT count(*) = 1 AND bool_and(state = 'asleep' AND running = 0) FROM delay_wheel.groups WHERE queue = 'turns' AND group_hash IS NOT NULL)
	AND NOT EXISTS (SELECT FROM delay_wheel.groups WHERE queue = 'turns' AND group_hash IS NULL)$$);
SELECT * FROM group_seen WHERE queue = 'turns';
-- a thousand of each queue, those that wait for longest
SELECT delay_wheel.pause_queue('grouped');
SELECT count(delay_schedule_task('SELECT 1', due => now() - interval '1 day' - i * interval '1 s', queue => 'grouped', group_key => 'of many ' || i)) FROM generate_series(1, 1500) i;
SELECT pg_temp.wait_for($$(SELECT ready >= 1502 FROM delay_wheel.queues WHERE name = 'grouped')$$);
SELECT queue, count(*), min(substr(group_key, 9)::int) FILTER (WHERE queue = 'grouped') AS least, (array_agg(group_key))[1] AS first FROM delay_wheel.groups GROUP BY queue ORDER BY queue;
SELECT count(*) AS cancelled FROM (SELECT delay_cancel(id) FROM delay_wheel.tasks WHERE queue = 'grouped' AND group_key LIKE 'of many%') c;
SELECT delay_wheel.resume_queue('grouped');
SELECT pg_advisory_unlock(5);
SELECT pg_temp.wait_for($$NOT EXISTS (SELECT FROM delay_wheel.tasks WHERE queue = 'grouped')
	AND NOT EXISTS (SELECT FROM delay_wheel.groups WHERE queue = 'grouped')$$);
SELECT outcome, group_key, count(*) FROM delay_wheel.history WHERE queue = 'grouped' AND outcome = 'done' AND sql LIKE '%(5)' GROUP BY 1, 2;
SELECT count(*) AS cancelled FROM (SELECT delay_cancel(id) FROM delay_wheel.tasks WHERE queue = 'turns') c;
-- one that is to be tried again comes first, and holds the group
SELECT delay_wheel.create_queue('turns', options => '{"group_rate": 0, "group_order": "hold"}');
SELECT delay_schedule_task('SELECT 1 / 0', queue => 'turns', group_key => 'ordered', key => 'again', max_attempts => 2, due => now() - interval '1 hour', options => '{"retry_delay": "1 hour"}') IS NOT NULL AS fails;
SELECT delay_schedule_task('SELECT 1', queue => 'turns', group_key => 'ordered') IS NOT NULL AS waits;
SELECT pg_temp.wait_for($$EXISTS (SELECT FROM delay_wheel.groups WHERE queue = 'turns' AND group_key = 'ordered' AND state = 'held' AND waits_until BETWEEN now() AND now() + interval '11 s')$$);
-- it begins when its pause ends: a time before that is not later, and is earlier
BEGIN;
SELECT outcome FROM delay_scheduled(delay_schedule_task('SELECT 1', queue => 'turns', group_key => 'ordered', key => 'again', if_exists => 'later', delay => '1 minute'));
SELECT outcome FROM delay_scheduled(delay_schedule_task('SELECT 1', queue => 'turns', group_key => 'ordered', key => 'again', if_exists => 'earlier', delay => '1 day'));
SELECT outcome FROM delay_scheduled(delay_schedule_task('SELECT 1', queue => 'turns', group_key => 'ordered', key => 'again', if_exists => 'earlier', delay => '1 minute'));
ROLLBACK;
SELECT count(*) AS cancelled FROM (SELECT delay_cancel(id) FROM delay_wheel.tasks WHERE queue = 'turns') c;
DROP VIEW group_seen;

SELECT delay_wheel.drop_queue('grouped'), delay_wheel.drop_queue('turns'), delay_wheel.drop_queue('ungrouped'), delay_wheel.drop_queue('letters');
DROP TABLE group_effect;
SELECT delay_wheel.disallow('regress_dw_tenant_a'), delay_wheel.disallow('regress_dw_tenant_b');
DROP ROLE regress_dw_tenant_a, regress_dw_tenant_b;
