--
-- FAILED
-- What becomes of failed tasks: put back by delay_retry and delay_retry_all.
-- How long they are kept is in t/350_failed.pl; what failed in 2101 is not old.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE ROLE regress_dw_one LOGIN;
CREATE ROLE regress_dw_two LOGIN;
SELECT delay_wheel.allow('regress_dw_one', 'regress_dw_two');
CREATE TABLE failed_effect (label text, who text DEFAULT current_user);
GRANT ALL ON failed_effect TO PUBLIC;
CREATE TABLE failed_switch (is_broken boolean);
INSERT INTO failed_switch VALUES (true);
GRANT SELECT ON failed_switch TO PUBLIC;
-- fails as long as the switch says so
CREATE FUNCTION failed_do(label text, sqlstate text DEFAULT 'P0001') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF is_broken FROM public.failed_switch THEN
		RAISE EXCEPTION USING ERRCODE = sqlstate, MESSAGE = label || ' is broken';
	END IF;
	INSERT INTO public.failed_effect VALUES (label);
END $$;
DELETE FROM delay_wheel_data.failed_task;

--
-- delay_retry
--
SELECT delay_schedule('-2 days', 'SELECT failed_do($1)', 'first') AS id \gset
SELECT pg_temp.wait_until_done();
-- in a transaction, and rolled back
BEGIN;
SELECT delay_retry(:id);
SELECT count(*) AS failed FROM delay_wheel.failed;
SELECT id = :id AS same_id, due = now() AS due_now, origin = delay_wheel_internal.origin() AS armed, owner = current_user::regrole AS owner, queue, priority,
	attempts, spared, sql, args, arg_types, key, tag FROM delay_wheel_data.task;
SELECT delay_retry(:id);
ROLLBACK;
SELECT count(*) AS failed FROM delay_wheel.failed;
-- it fails again: by the same id, once
SELECT delay_retry(:id);
SELECT pg_temp.wait_for(format('(count(*) = 1 AND bool_and(id = %s)) FROM delay_wheel.failed WHERE due > now() - interval ''1 hour''', :id));
-- it works
UPDATE failed_switch SET is_broken = false;
SELECT delay_retry(:id);
SELECT pg_temp.wait_until_done();
SELECT label FROM failed_effect;
SELECT count(*) AS failed FROM delay_wheel.failed;
SELECT delay_retry(:id);
SELECT delay_retry(-1);
SELECT delay_retry(NULL);
BEGIN READ ONLY;
SELECT delay_retry(:id);
ROLLBACK;
BEGIN READ ONLY;
SELECT delay_retry_all();
ROLLBACK;
UPDATE failed_switch SET is_broken = true;

-- all that a task has is kept; long texts, too
SELECT string_agg(md5(i::text), '') AS noise FROM generate_series(1, 10000) i \gset
SELECT delay_schedule('1 day', 'SELECT failed_do($1), $2', 'long'::text, :'noise'::text) AS id \gset
BEGIN;
UPDATE delay_wheel_data.task SET due = now(), attempts = 2, max_attempts = 3, timeout = 60000, retry_delay = '1 min', expires = '1 day', priority = 1,
	search_path = 'public, pg_catalog', tag = 'a tag', key = 'a key', more = '{"kept": 1}' WHERE id = :id;
SELECT * INTO TEMP before FROM delay_wheel_data.task WHERE id = :id;
COMMIT;
SELECT pg_temp.wait_for(format('count(*) = 1 FROM delay_wheel_data.failed_task WHERE id = %s', :id));
BEGIN;
SELECT delay_retry(:id);
SELECT (b.owner, b.queue, b.priority, b.max_attempts, b.timeout, b.retry_delay, b.expires, b.sql, b.args, b.arg_types, b.search_path, b.tag, b.key)
	= (t.owner, t.queue, t.priority, t.max_attempts, t.timeout, t.retry_delay, t.expires, t.sql, t.args, t.arg_types, t.search_path, t.tag, t.key) AS kept,
	t.more ->> 'kept' AS more, t.attempts
	FROM before b JOIN delay_wheel_data.task t USING (id);
ROLLBACK;
DELETE FROM delay_wheel_data.failed_task;

-- failed twice: the newest failure counts, and all of them go
INSERT INTO delay_wheel_data.failed_task (id, failed_at, due, origin, owner, queue, priority, attempts, sqlstate, message, sql, tag)
	SELECT 7000000000, failed_at, '2001-01-01', 0, current_user::regrole, 0, 0, 1, 'P0001', 'by hand', sql, sql
	FROM (VALUES ('2101-01-02'::timestamptz, 'SELECT 2'), ('2101-01-03', 'SELECT 3'), ('2101-01-01', 'SELECT 1')) v(failed_at, sql);
BEGIN;
SELECT delay_retry(7000000000);
SELECT sql FROM delay_wheel_data.task WHERE id = 7000000000;
SELECT count(*) AS failed FROM delay_wheel.failed;
ROLLBACK;
BEGIN;
SELECT delay_retry_all(tag => 'SELECT 1'), delay_retry_all(tag => 'SELECT 2');
SELECT delay_retry_all(tag => 'SELECT 3');
SELECT sql FROM delay_wheel_data.task WHERE id = 7000000000;
SELECT count(*) AS failed FROM delay_wheel.failed;
ROLLBACK;
-- pending as well, or its queue, or its owner does not exist any more
INSERT INTO delay_wheel_data.task (id, due, sql) VALUES (7000000000, now() + '1 day', 'SELECT 4');
SELECT delay_retry(7000000000);
SELECT delay_retry_all();
DELETE FROM delay_wheel_data.task;
UPDATE delay_wheel_data.failed_task SET queue = 32000;
SELECT delay_retry(7000000000);
SELECT delay_retry_all();
UPDATE delay_wheel_data.failed_task SET queue = 0, owner = '4294967000';
SELECT delay_retry(7000000000);
SELECT delay_retry_all();
-- a task of its key is pending, or a newer one runs; of another owner's, and of another key, not
UPDATE delay_wheel_data.failed_task SET key = 'once', owner = current_user::regrole;
INSERT INTO delay_wheel_data.task (due, sql, key, owner) VALUES (now() + '1 day', 'SELECT 4', 'twice', current_user::regrole), (now() + '1 day', 'SELECT 4', 'once', 'regress_dw_one');
BEGIN;
SELECT delay_retry(7000000000);
ROLLBACK;
INSERT INTO delay_wheel_data.task (due, sql, key) VALUES (now() + '1 day', 'SELECT 4', 'once');
SELECT delay_retry(7000000000);
SELECT delay_retry_all();
DELETE FROM delay_wheel_data.task;
SELECT pg_advisory_lock(350);
INSERT INTO delay_wheel_data.task (id, due, sql, key) VALUES (7000000001, now(), 'SELECT pg_advisory_xact_lock(350)', 'once');
SELECT pg_temp.wait_for('EXISTS (SELECT FROM pg_locks WHERE locktype = ''advisory'' AND NOT granted)');
SELECT delay_retry(7000000000);
SELECT pg_advisory_unlock(350);
SELECT pg_temp.wait_until_done();
SELECT delay_retry(7000000000);
SELECT pg_temp.wait_until_done();
DELETE FROM delay_wheel_data.failed_task;

-- rights, and how many
SET SESSION AUTHORIZATION regress_dw_one;
SELECT delay_schedule('0', 'SELECT public.failed_do($1)', 'of one') AS id \gset
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SET SESSION AUTHORIZATION regress_dw_two;
\set VERBOSITY sqlstate
SELECT delay_retry(:id);
\set VERBOSITY default
SELECT delay_retry_all();
RESET SESSION AUTHORIZATION;
GRANT regress_dw_one TO regress_dw_two;
SET SESSION AUTHORIZATION regress_dw_two;
BEGIN;
SELECT delay_retry(:id);
ROLLBACK;
BEGIN;
SELECT delay_retry_all();
ROLLBACK;
RESET SESSION AUTHORIZATION;
REVOKE regress_dw_one FROM regress_dw_two;
SET delay_wheel.max_pending = 0;
SET SESSION AUTHORIZATION regress_dw_one;
SELECT delay_retry(:id);
SELECT delay_retry_all();
RESET SESSION AUTHORIZATION;
RESET delay_wheel.max_pending;
UPDATE failed_switch SET is_broken = false;
DELETE FROM failed_effect;
SELECT delay_retry(:id);
SELECT pg_temp.wait_until_done();
SELECT * FROM failed_effect;
UPDATE failed_switch SET is_broken = true;

--
-- delay_retry_all
--
INSERT INTO delay_wheel_data.queue (id, name) VALUES (77, 'failed queue');
-- who may schedule into the queue now does not matter
INSERT INTO delay_wheel_data.failed_task (id, failed_at, due, origin, owner, queue, priority, attempts, sqlstate, message, sql)
	VALUES (7000000000, '2101-01-01', '2001-01-01', 0, 'regress_dw_one', 77, 0, 1, 'P0001', 'by hand', 'SELECT 1');
SET SESSION AUTHORIZATION regress_dw_one;
BEGIN;
SELECT delay_retry_all('failed queue');
ROLLBACK;
SELECT delay_retry(7000000000);
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
INSERT INTO delay_wheel_data.failed_task (id, failed_at, due, origin, owner, queue, priority, attempts, sqlstate, message, sql, tag)
	SELECT 7000000000 + i, '2101-01-01 00:00+00'::timestamptz + interval '1 min' * i, '2001-01-01', 0, CASE WHEN i % 2 = 0 THEN current_user ELSE 'regress_dw_one' END::regrole,
		CASE WHEN i % 10 < 2 THEN 77 ELSE 0 END, 0, 1, CASE WHEN i % 3 = 0 THEN '40001' ELSE 'P0001' END, 'by hand', 'SELECT ' || i, CASE WHEN i % 5 = 0 THEN 'five' END
	FROM generate_series(1, 60) i;
CREATE FUNCTION pg_temp.redriven(call text, OUT n bigint, OUT tasks text, OUT left_failed bigint) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'SELECT ' || call INTO n;
	SELECT string_agg((id - 7000000000)::text, ',' ORDER BY id) INTO tasks FROM delay_wheel_data.task;
	SELECT count(*) INTO left_failed FROM delay_wheel_data.failed_task;
	RAISE EXCEPTION USING ERRCODE = 'DW000';
EXCEPTION WHEN SQLSTATE 'DW000' THEN
	RETURN;
END $$;
SELECT call, r.* FROM unnest(ARRAY[
	'delay_retry_all()', $$delay_retry_all('default')$$, $$delay_retry_all('failed queue')$$, $$delay_retry_all(tag => 'five')$$,
	$$delay_retry_all(tag => 'FIVE')$$, $$delay_retry_all(sqlstate => '40001')$$, $$delay_retry_all(failed_from => '2101-01-01 00:58+00')$$,
	$$delay_retry_all(failed_until => '2101-01-01 00:03+00')$$, $$delay_retry_all(failed_from => '2101-01-01 00:10+00', failed_until => '2101-01-01 00:12+00')$$,
	$$delay_retry_all(failed_from => '-infinity', failed_until => 'infinity', max_tasks => 3)$$, 'delay_retry_all(max_tasks => 0)',
	$$delay_retry_all('failed queue', 'five', '40001', '2101-01-01 00:20+00', NULL, 1)$$, $$delay_retry_all(failed_from => '2101-01-02', failed_until => '2101-01-01')$$]) WITH ORDINALITY u(call, n),
	pg_temp.redriven(call) r ORDER BY u.n;
-- the same are discarded by what says the same
SELECT call, r.* FROM unnest(ARRAY[
	'delay_discard_all()', $$delay_discard_all('default')$$, $$delay_discard_all('failed queue')$$, $$delay_discard_all(tag => 'five')$$,
	$$delay_discard_all(sqlstate => '40001')$$, $$delay_discard_all(failed_from => '2101-01-01 00:10+00', failed_until => '2101-01-01 00:12+00')$$,
	$$delay_discard_all(max_tasks => 3)$$, $$delay_discard_all('failed queue', 'five', '40001', '2101-01-01 00:20+00', NULL, 1)$$,
	'(delay_discard(7000000001) = ''discarded'')::int', '(delay_discard(1) = ''discarded'')::int']) WITH ORDINALITY u(call, n),
	pg_temp.redriven(call) r ORDER BY u.n;
-- all rows of a task; those of others are not one's own to discard
SELECT count(*) FROM delay_wheel_data.failed_task;
SET SESSION AUTHORIZATION regress_dw_one;
BEGIN;
SELECT delay_discard(7000000001), delay_discard(7000000001), delay_retry(7000000001);
SELECT * FROM pg_temp.error_of('SELECT delay_discard(7000000002)');
SELECT delay_discard_all(), delay_discard_all(), delay_retry_all();
SELECT count(*) FROM delay_wheel.failed;
RESET SESSION AUTHORIZATION;
SELECT count(*), bool_and(owner = current_user::regrole) AS mine FROM delay_wheel_data.failed_task;
ROLLBACK;
RESET SESSION AUTHORIZATION;
BEGIN;
INSERT INTO delay_wheel_data.failed_task (id, failed_at, due, origin, owner, queue, priority, attempts, sqlstate, message, sql)
	SELECT id, failed_at + '1 s', due, origin, owner, queue, priority, attempts, sqlstate, message, sql FROM delay_wheel_data.failed_task WHERE id = 7000000001;
-- plain SQL may have given one of them to another owner: it stays
INSERT INTO delay_wheel_data.failed_task (id, failed_at, due, origin, owner, queue, priority, attempts, sqlstate, message, sql)
	SELECT id, failed_at - interval '1 day', due, origin, CURRENT_USER::regrole, queue, priority, attempts, sqlstate, message, sql FROM delay_wheel_data.failed_task WHERE id = 7000000001 LIMIT 1;
SELECT delay_discard(7000000001);
SELECT count(*) FROM delay_wheel_data.failed_task WHERE id = 7000000001;
ROLLBACK;
SELECT count(*) FROM delay_wheel_data.failed_task;
SELECT call, e.code, e.message FROM unnest(ARRAY['delay_discard(NULL)', $$delay_discard_all('no such queue')$$, $$delay_discard_all(sqlstate => '4000')$$,
	'delay_discard_all(max_tasks => -1)']) call, pg_temp.error_of('SELECT ' || call) e;
BEGIN READ ONLY;
SELECT delay_discard(7000000001);
ROLLBACK;
SET SESSION AUTHORIZATION regress_dw_two;
SELECT delay_discard_all();
RESET SESSION AUTHORIZATION;
SELECT delay_wheel.disallow('regress_dw_two');
SET SESSION AUTHORIZATION regress_dw_two;
SELECT call, e.code, e.message FROM unnest(ARRAY['delay_discard(7000000001)', 'delay_discard_all()']) call, pg_temp.error_of('SELECT ' || call) e;
RESET SESSION AUTHORIZATION;
SELECT delay_wheel.allow('regress_dw_two');
SELECT call, e.* FROM unnest(ARRAY[$$delay_retry_all('no such queue')$$, $$delay_retry_all(sqlstate => '4000')$$, $$delay_retry_all(sqlstate => 'p0001')$$,
	$$delay_retry_all(sqlstate => '')$$, 'delay_retry_all(max_tasks => -1)']) call, pg_temp.error_of('SELECT ' || call) e;
-- the oldest ones by and by, each once; one's own
SET SESSION AUTHORIZATION regress_dw_one;
BEGIN;
SELECT delay_retry_all(max_tasks => 20), delay_retry_all(max_tasks => 20), delay_retry_all(max_tasks => 20);
COMMIT;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT count(*), bool_and(owner = current_user::regrole) AS mine FROM delay_wheel_data.failed_task;
-- what cannot be put back is left
INSERT INTO delay_wheel_data.task (id, due, sql) VALUES (7000000002, now() + '1 day', 'SELECT 4');
SELECT delay_retry_all();
SELECT id, sql FROM delay_wheel_data.failed_task;
SELECT pg_temp.wait_until_done();
SELECT count(*) AS pending FROM delay_wheel_data.task;
DELETE FROM delay_wheel_data.task;
DELETE FROM delay_wheel_data.failed_task;
DELETE FROM delay_wheel_data.queue WHERE id = 77;

-- a cancellation hits what is pending, not what is put back after it
SELECT delay_schedule_task('SELECT failed_do(''marked'')', tag => 'marked') AS id \gset
SELECT pg_temp.wait_until_done();
SELECT delay_schedule_task('SELECT failed_do(''never'')', tag => 'marked', delay => '1 day') AS id2 \gset
BEGIN;
SELECT delay_cancel_all(tag => 'marked') > 0 AS ok;
SELECT delay_retry(:id), delay_run(:id2);
SELECT id = :id AS put_back FROM delay_wheel.tasks;
SELECT delay_cancel_all(tag => 'marked') > 0 AS ok;
SELECT count(*) AS pending FROM delay_wheel.tasks;
SELECT delay_run(:id);
COMMIT;
SELECT count(*) AS pending FROM delay_wheel.tasks;
SELECT count(*) AS failed FROM delay_wheel.failed;

-- one that commits later does: what was put back meanwhile is not spared
SELECT delay_schedule_task('SELECT failed_do(''late mark'')', tag => 'late') AS id \gset
SELECT pg_temp.wait_until_done();
BEGIN;
SELECT delay_cancel_all(tag => 'late') > 0 AS ok;
PREPARE TRANSACTION 'late mark';
SELECT delay_pause_all();
SELECT delay_retry(:id);
SELECT count(*) AS pending FROM delay_wheel.tasks;
COMMIT PREPARED 'late mark';
SELECT count(*) AS pending FROM delay_wheel.tasks;
SELECT delay_resume_all();

-- a task may put others back
SELECT delay_schedule('0', 'SELECT failed_do($1)', 'retried by a task') AS id \gset
SELECT pg_temp.wait_until_done();
UPDATE failed_switch SET is_broken = false;
DELETE FROM failed_effect;
SELECT delay_schedule('0', 'SELECT delay_retry($1)', :id) > 0 AS ok;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM failed_effect)');
SELECT pg_temp.wait_until_done();
SELECT label FROM failed_effect;
SELECT count(*) AS failed FROM delay_wheel.failed;

DROP TABLE failed_effect, failed_switch;
DROP FUNCTION failed_do;
SELECT delay_wheel.disallow('regress_dw_one', 'regress_dw_two');
DROP ROLE regress_dw_one, regress_dw_two;
