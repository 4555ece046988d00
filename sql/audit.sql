--
-- AUDIT
-- Who has done what: which actions leave a row at which level, whose names stand in it, who
-- sees it, and that nobody can forge one.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
\set VERBOSITY terse

CREATE ROLE regress_dw_audit_a LOGIN;
CREATE ROLE regress_dw_audit_b LOGIN;
CREATE ROLE regress_dw_audit_dba LOGIN;
GRANT pg_read_all_data, pg_write_all_data TO regress_dw_audit_dba;
SELECT delay_wheel.allow('regress_dw_audit_a', 'regress_dw_audit_b');
-- rows since the last call, numbers of tasks and times as far as they can be said
CREATE FUNCTION pg_temp.news(OUT action text, OUT task boolean, OUT key text, OUT tag text, OUT queue text, OUT name text, OUT detail text, OUT due boolean, OUT rows bigint)
RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY SELECT a.action, a.task IS NOT NULL, a.key, a.tag, a.queue, a.name, regexp_replace(a.detail, 'task \d+', 'task N'), a.due IS NOT NULL, a.rows
		FROM delay_wheel.audit a WHERE a.id > current_setting('regress.seen')::bigint ORDER BY a.at, a.id;
	PERFORM set_config('regress.seen', max(a.id)::text, false) FROM delay_wheel.audit a HAVING count(*) > 0;
END
$$;
SET regress.seen = 0;

-- off unless it is set, by a superuser
SHOW delay_wheel.audit;
SELECT delay_schedule('1 day', 'SELECT 1') AS id \gset
SELECT delay_cancel(:id);
SELECT delay_pause_all();
SELECT delay_resume_all();
SELECT count(*) FROM delay_wheel.audit;
SET ROLE regress_dw_audit_a;
SET delay_wheel.audit = 'control';
RESET ROLE;
SET delay_wheel.audit = 'some';
SET delay_wheel.audit = 'control';

-- control: all but scheduling
SELECT delay_schedule_task('SELECT 1', delay => '1 day', key => 'k', tag => 't') AS id \gset
SELECT * FROM pg_temp.news();
SELECT delay_reschedule(:id, '2 days'), delay_reschedule(:id, interval '2 days'), delay_reschedule(:id, now() + interval '3 days');
SELECT delay_reschedule(key => 'k', delay => '2 days'), delay_reschedule(key => 'k', delay => interval '2 days'), delay_reschedule(key => 'k', due => now() + interval '3 days');
SELECT delay_update(:id, priority => 1, tag => 'u'), delay_update(key => 'k', options => '{"timeout": "1 s"}');
SELECT * FROM pg_temp.news();
SELECT delay_run(:id);
SELECT delay_run(:id), delay_cancel(:id), delay_reschedule(:id, '1 day'), delay_update(:id, priority => 2);
SELECT delay_run_due() FROM delay_schedule('-1 s', 'SELECT 1');
SELECT * FROM pg_temp.news();
SELECT delay_schedule_task('SELECT 1', delay => '1 day', key => 'k', tag => 't') AS id \gset
SELECT delay_cancel(:id);
SELECT delay_cancel(key => 'k') FROM delay_schedule_task('SELECT 1', delay => '1 day', key => 'k');
SELECT delay_cancel(key => 'k');
SELECT delay_cancel_all(tag => 't', due_from => '2100-01-01') > 0;
SELECT * FROM pg_temp.news();

-- a running task
SELECT pg_advisory_lock(1);
SELECT delay_schedule_task('SELECT pg_advisory_xact_lock_shared(1); SELECT 1') AS id \gset
SELECT pg_temp.wait_for('EXISTS (SELECT FROM pg_locks l JOIN delay_wheel.running r USING (pid) WHERE l.locktype = ''advisory'' AND NOT l.granted)');
SELECT delay_cancel(:id), delay_cancel(:id, true);
SELECT pg_advisory_unlock(1);
SELECT pg_temp.wait_until_done();
SELECT * FROM pg_temp.news();

-- failed tasks
SELECT delay_schedule_task('SELECT 1/0', key => 'f', tag => 't') AS id \gset
SELECT pg_temp.wait_until_done();
SELECT delay_retry(:id), delay_retry(1);
SELECT pg_temp.wait_until_done();
SELECT delay_retry_all(tag => 't', sqlstate => '22012', failed_from => '2000-01-01');
SELECT pg_temp.wait_until_done();
SELECT delay_discard(:id), delay_discard(1);
SELECT pg_temp.news();
SELECT delay_discard_all() > 0;
SELECT delay_discard_all(), delay_retry_all();
SELECT action, tag, rows > 0 AS rows FROM pg_temp.news();

-- queues, pauses, roles
SELECT delay_wheel.create_queue('regress_audit', max_running => 2, users => '{regress_dw_audit_a,regress_dw_audit_b}', options => '{"history": "all"}');
SELECT delay_wheel.create_queue('regress_audit', max_running => 0);
SELECT delay_wheel.pause_queue('regress_audit'), delay_wheel.resume_queue('regress_audit'), delay_pause_all(), delay_resume_all();
SELECT delay_wheel.pause_database(), delay_wheel.resume_database();
SELECT delay_wheel.drop_queue('regress_audit');
SELECT delay_wheel.disallow('regress_dw_audit_b');
SELECT delay_wheel.allow('regress_dw_audit_b');
SELECT delay_wheel.arm();
SELECT * FROM pg_temp.news();

-- recurring tasks: what is declared again without a change is left alone
SELECT delay_every('e', '1 day', 'SELECT 1', tag => 't') > 0, delay_every('e', '1 day', 'SELECT 1', tag => 't') > 0, delay_cron('c', '0 0 * * *', 'SELECT 1') > 0;
SELECT delay_every('e', '2 days', 'SELECT 1') > 0;
SELECT delay_pause_recurring('e'), delay_resume_recurring('e'), delay_resume_recurring('e'), delay_unschedule('e'), delay_unschedule('c'), delay_unschedule('c');
SELECT * FROM pg_temp.news();

-- a trigger that cancels
CREATE TABLE audit_source (id int, delay interval);
CREATE TRIGGER schedule AFTER INSERT OR UPDATE ON audit_source FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('delay', 'SELECT 1', 'key=id');
INSERT INTO audit_source VALUES (1, '1 day');
UPDATE audit_source SET delay = NULL;
SELECT * FROM pg_temp.news();

-- all: scheduling and sending, too
SET delay_wheel.audit = 'all';
SELECT delay_wheel.create_queue('regress_audit', external => true);
SELECT delay_schedule('1 day', 'SELECT $1::int', 1) > 0, delay_schedule(interval '1 day', 'SELECT 1') > 0, delay_schedule_at(now() + interval '1 day', 'SELECT 1') > 0;
SELECT delay_schedule_task('SELECT 1', delay => '1 day', key => 'k', tag => 't') > 0;
SELECT outcome FROM delay_scheduled(delay_schedule_task('SELECT 1', delay => '1 day', key => 'k'));
SELECT outcome FROM delay_scheduled(delay_schedule_task('SELECT 1', delay => '1 day', key => 'k', if_exists => 'replace'));
SELECT outcome FROM delay_scheduled(delay_schedule_task('SELECT 1', delay => '1 hour', key => 'k', if_exists => 'earlier'));
SELECT delay_send('regress_audit', '{}', delay => '1 day') > 0;
SELECT outcome FROM delay_scheduled(delay_send('regress_audit', '{}', delay => '1 day'));
CREATE TRIGGER send AFTER INSERT ON audit_source FOR EACH ROW EXECUTE FUNCTION delay_send_trigger('1 day', 'regress_audit', 'id');
INSERT INTO audit_source VALUES (2, '1 day');
SELECT * FROM pg_temp.news();

-- what is rolled back leaves nothing; a prepared transaction leaves what it did
BEGIN;
SELECT delay_pause_all();
SAVEPOINT s;
SELECT delay_wheel.pause_database();
ROLLBACK TO s;
SELECT delay_resume_all();
COMMIT;
BEGIN;
SELECT delay_pause_all();
ROLLBACK;
BEGIN;
SELECT delay_cancel(key => 'k');
PREPARE TRANSACTION 'regress_audit';
SELECT * FROM pg_temp.news();
COMMIT PREPARED 'regress_audit';
SELECT * FROM pg_temp.news();

-- plain SQL: each statement, with the rows where they are counted
INSERT INTO delay_wheel_data.task (due, sql) SELECT now() + interval '1 day', 'SELECT 1' FROM generate_series(1, 3);
BEGIN;
SAVEPOINT s;
INSERT INTO delay_wheel_data.task (id, due, sql) SELECT 1 - i / 4, now() + interval '1 day', 'SELECT 1' FROM generate_series(1, 3) i;
ROLLBACK TO s;
INSERT INTO delay_wheel_data.task (due, sql) SELECT now() + interval '1 day', 'SELECT 1' FROM generate_series(1, 2);
COMMIT;
UPDATE delay_wheel_data.task SET tag = 'x' WHERE key IS NULL AND sql IS NOT NULL;
UPDATE delay_wheel_data.task SET tag = 'x' WHERE false;
DELETE FROM delay_wheel_data.task;
TRUNCATE delay_wheel_data.task;
UPDATE delay_wheel_data.queue SET max_running = NULL;
INSERT INTO delay_wheel_data.pause VALUES ('regress_dw_audit_a', now());
DELETE FROM delay_wheel_data.pause;
DELETE FROM delay_wheel_data.failed_task;
DELETE FROM delay_wheel_data.recurring_task;
DELETE FROM delay_wheel_data.cancellation;
DELETE FROM delay_wheel_data.unique_key;
DELETE FROM delay_wheel_data.history_0;
-- also of the audit itself
UPDATE delay_wheel_data.audit SET role = 'nobody' WHERE false;
DELETE FROM delay_wheel_data.audit WHERE action = 'allow';
SELECT * FROM pg_temp.news();

-- who it was, under whatever name; a task has the setting of its owner
CREATE FUNCTION audit_definer() RETURNS boolean LANGUAGE sql SECURITY DEFINER AS 'SELECT delay_pause_all()';
ALTER ROLE regress_dw_audit_a SET delay_wheel.audit = 'control';
SET application_name = 'regress audit';
CREATE TEMP TABLE seen AS SELECT current_setting('regress.seen')::bigint AS id;
SET ROLE regress_dw_audit_a;
SELECT delay_schedule('0', 'SELECT delay_cancel(key => ''k'') FROM delay_schedule_task(''SELECT 1'', delay => ''1 day'', key => ''k'')') > 0;
RESET ROLE;
SELECT pg_temp.wait_until_done();
SET ROLE regress_dw_audit_a;
SELECT delay_pause_all();
SELECT audit_definer();
SELECT delay_resume_all();
RESET ROLE;
SELECT delay_resume_all();
SET SESSION AUTHORIZATION regress_dw_audit_b;
SELECT delay_pause_all();
SET application_name = '';
SELECT delay_resume_all();
RESET SESSION AUTHORIZATION;
SELECT action, login_role, role, owner, application_name, pid = pg_backend_pid() AS here,
	client_addr IS NOT DISTINCT FROM CASE WHEN pid = pg_backend_pid() THEN host(inet_client_addr()) END AS client_addr, at BETWEEN now() - interval '5 min' AND clock_timestamp() AS at
FROM delay_wheel.audit WHERE id > (SELECT id FROM seen) ORDER BY at, id;

-- who sees it: what one did, and what was done to one's tasks
SET ROLE regress_dw_audit_a;
SELECT delay_schedule_task('SELECT 1', delay => '1 day', tag => 'of a') AS id \gset
RESET ROLE;
SELECT delay_cancel(:id);
SET ROLE regress_dw_audit_a;
SELECT login_role, role, owner, action, tag FROM delay_wheel.audit ORDER BY at, id;
SELECT count(*) FROM delay_wheel_data.audit;
SET ROLE regress_dw_audit_b;
SELECT role, action FROM delay_wheel.audit ORDER BY at DESC, id DESC;
-- nobody forges or removes a row: not those who may write to any table
SET ROLE regress_dw_audit_dba;
SELECT count(*) > 50 AS sees_all FROM delay_wheel.audit;
INSERT INTO delay_wheel_data.audit (id, at, owner, pid, action) VALUES (1, now(), 'regress_dw_audit_b', 1, 'pause');
UPDATE delay_wheel_data.audit SET login_role = 'regress_dw_audit_b';
DELETE FROM delay_wheel_data.audit;
TRUNCATE delay_wheel_data.audit;
DELETE FROM delay_wheel.audit;
SET ROLE regress_dw_audit_b;
INSERT INTO delay_wheel_data.audit (id, at, owner, pid, action) VALUES (1, now(), 'regress_dw_audit_b', 1, 'pause');
SELECT delay_wheel_internal.plain_sql();
RESET ROLE;

-- what a key replaces or moves is changed, at control as well
SET delay_wheel.audit = 'control';
SELECT count(*) AS before FROM delay_wheel.audit \gset
SELECT delay_schedule_task('SELECT 1', delay => '1 day', key => 'audited') IS NOT NULL AS first;
SELECT outcome FROM delay_scheduled(delay_schedule_task('SELECT 2', delay => '1 day', key => 'audited', if_exists => 'replace'));
SELECT outcome FROM delay_scheduled(delay_schedule_task('SELECT 2', delay => '2 days', key => 'audited', if_exists => 'later'));
SELECT outcome FROM delay_scheduled(delay_schedule_task('SELECT 3', delay => '1 day', key => 'audited', if_exists => 'keep'));
SELECT action, key, regexp_replace(detail, '\d+', 'N') AS detail FROM delay_wheel.audit ORDER BY id OFFSET :before;
SELECT delay_cancel(key => 'audited');
SET delay_wheel.audit = 'all';
SELECT delay_batch('audited', open => true) AS batch \gset
SELECT delay_close_batch(:batch), delay_cancel_batch(:batch);
SELECT action, task = :batch AS is_batch, rows FROM delay_wheel.audit ORDER BY id DESC LIMIT 3;
RESET delay_wheel.audit;

-- each function that may write is known: by its action, or why it has none
CREATE TEMP TABLE known (name text, action text, why_not text);
INSERT INTO known SELECT 'delay_' || a, a FROM unnest('{schedule,cancel,cancel_all,reschedule,update,run,run_due,retry,retry_all,discard,discard_all,pause_all,resume_all,every,cron,unschedule,pause_recurring,resume_recurring,batch,close_batch,cancel_batch}'::text[]) a;
INSERT INTO known SELECT 'delay_wheel.' || a, a FROM unnest('{create_queue,drop_queue,pause_queue,resume_queue,pause_database,resume_database,arm}'::text[]) a;
INSERT INTO known SELECT f, a FROM (VALUES ('schedule', '{delay_schedule_at,delay_schedule_task,delay_schedule_local,delay_schedule_trigger,delay_send,delay_send_trigger}'::text[]),
	('allow', '{delay_wheel.allow}'), ('disallow', '{delay_wheel.disallow}'), ('plain_sql', '{delay_wheel_internal.plain_sql}')) k(a, fs), unnest(fs) f;
INSERT INTO known SELECT f, NULL, why FROM (VALUES
	('what a receiver does with its messages', '{delay_receive,delay_lease,delay_done,delay_done_all,delay_extend,delay_release,delay_fail,delay_await,delay_await_any,delay_end_await}'::text[]),
	('waits', '{delay_wait}'), ('says when its task runs again', '{delay_snooze}'),
	('nodes of Citus: the tables; delay_wheel.follow_shards by what it moves on each node', '{delay_wheel.set_up_citus,delay_wheel.follow_shards,delay_wheel_internal.leave_shards,delay_wheel_internal.take_over}'),
	('triggers on tables of the extension', '{delay_wheel_internal.task_changed,delay_wheel_internal.task_guard,delay_wheel_internal.period_follows,delay_wheel_internal.queue_changed,delay_wheel_internal.queue_guard,delay_wheel_internal.cancellation_guard,delay_wheel_internal.history_guard,delay_wheel_internal.member_deleted}'),
	('reads', '{delay_status,delay_scheduled,delay_wheel.page_data,delay_wheel.ring_svg,delay_wheel.forecast_svg,delay_wheel.lateness_svg,delay_wheel_internal.next_due,delay_wheel_internal.next_tasks,delay_wheel_internal.is_running}')) k(why, fs), unnest(fs) f;
CREATE TEMP VIEW may_write AS
SELECT CASE WHEN n.nspname LIKE 'delay\_wheel%' THEN n.nspname || '.' ELSE '' END || p.proname AS name, p.provolatile
FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'delay_wheel')
	AND p.provolatile = 'v' AND p.proname NOT LIKE 'get\_%';
SELECT DISTINCT name AS neither_audited_nor_excepted FROM may_write EXCEPT SELECT name FROM known ORDER BY 1;
SELECT name AS does_not_exist FROM known EXCEPT SELECT name FROM may_write ORDER BY 1;
-- and each action was seen above; 'allow' was deleted there
SELECT DISTINCT action AS not_seen FROM known WHERE action IS NOT NULL EXCEPT SELECT action FROM delay_wheel.audit ORDER BY 1;

-- the end
SET delay_wheel.audit = 'off';
SELECT delay_wheel.drop_queue('regress_audit');
DELETE FROM delay_wheel_data.pause;
SELECT delay_discard_all() >= 0;
TRUNCATE delay_wheel_data.audit;
DROP TABLE audit_source;
DROP FUNCTION audit_definer();
SELECT delay_wheel.disallow('regress_dw_audit_a', 'regress_dw_audit_b');
DROP ROLE regress_dw_audit_a, regress_dw_audit_b, regress_dw_audit_dba;
