--
-- TASK_BATCHES
-- Sets of tasks and messages, and what follows when all of them have ended.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE TABLE batch_effect (n serial, what text, numbers bigint[], owner text DEFAULT current_user);
CREATE FUNCTION batch_note(what text) RETURNS text LANGUAGE sql AS $$
	SELECT format('INSERT INTO batch_effect (what, numbers) SELECT concat_ws('' '', %L, $2), ARRAY[$3, $4, $5, $6, $7]', what)
$$;
CREATE FUNCTION batch_make(name text, open boolean DEFAULT false, batch_id bigint DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$
	SELECT delay_batch(name, on_done => batch_note('done'), on_failed => batch_note('failed'), on_end => batch_note('end'), open => open, batch_id => batch_id)
$$;
CREATE FUNCTION batch_put(batch bigint, sql text DEFAULT 'SELECT 1', more jsonb DEFAULT '{}') RETURNS bigint LANGUAGE sql AS $$
	SELECT delay_schedule_task(sql, delay => '0', options => more || jsonb_build_object('batch_id', batch))
$$;
CREATE VIEW batch_numbers AS
SELECT name, state, total, pending, done, failed, cancelled, skipped, ended_at IS NOT NULL AS ended FROM delay_wheel.batches;

-- a batch without members is done at once
SELECT batch_make('empty') AS batch \gset
SELECT delay_wait(:batch, '1 min');
SELECT pg_temp.wait_until_done();
SELECT what, numbers FROM batch_effect ORDER BY what;
TRUNCATE batch_effect;

-- all are done; the callbacks run once, after the last
BEGIN;
SELECT batch_make('ten') AS batch \gset
SELECT count(batch_put(:batch, 'INSERT INTO batch_effect (what) VALUES (''member'')')) FROM generate_series(1, 10);
SELECT state, total, pending, done FROM delay_wheel.batches WHERE id = :batch;
COMMIT;
SELECT delay_wait(:batch, '1 min');
SELECT pg_temp.wait_until_done();
SELECT what, count(*), min(numbers), min(n) > 10 AS after_members FROM batch_effect GROUP BY what ORDER BY what;
SELECT * FROM batch_numbers WHERE name = 'ten';
SELECT delay_wait(:batch), delay_cancel(:batch), delay_close_batch(:batch), delay_cancel_batch(:batch);
TRUNCATE batch_effect;

-- all outcomes mixed: two done, one failed, two cancelled, one skipped, and a follow-up of the failed one
SELECT delay_wheel.create_queue('batch messages', external => true, max_attempts => 1);
BEGIN;
SELECT batch_make('mixed') AS batch \gset
SELECT batch_put(:batch) AS done \gset
SELECT batch_put(:batch, 'SELECT 1/0', '{"on_failure": "SELECT 2"}') AS failed \gset
SELECT delay_schedule_task('SELECT 1', delay => '1 day', tag => 'batch tag', options => jsonb_build_object('batch_id', :batch)) AS cancelled \gset
SELECT delay_schedule_task('SELECT 1', delay => '1 day', tag => 'batch tag', options => jsonb_build_object('batch_id', :batch)) AS marked \gset
SELECT delay_schedule_task('SELECT 1', due => now() - interval '1 hour', options => jsonb_build_object('batch_id', :batch, 'skip_after', '1 second')) AS skipped \gset
SELECT delay_send('batch messages', '{}', options => jsonb_build_object('batch_id', :batch)) AS message \gset
SELECT delay_send('batch messages', '{}', options => jsonb_build_object('batch_id', :batch)) AS leased \gset
COMMIT;
SELECT pg_temp.wait_for(format('(SELECT pending = 4 FROM delay_wheel.batches WHERE id = %s)', :batch));
SELECT delay_cancel(:cancelled);
SELECT delay_cancel_all(tag => 'batch tag') > 0 AS marked;
BEGIN;
SELECT id = :message AS received FROM delay_receive('batch messages');
COMMIT;
SELECT token FROM delay_lease('batch messages') \gset
SELECT state FROM delay_wheel.batches WHERE id = :batch;
SELECT delay_fail(:leased, :token, 'cannot');
SELECT delay_wait(:batch, '1 min');
SELECT pg_temp.wait_until_done();
SELECT what, numbers FROM batch_effect ORDER BY what;
SELECT * FROM batch_numbers WHERE name = 'mixed';
TRUNCATE batch_effect;

-- failed members are put back: the batch ends once more
SELECT count(*) FROM delay_wheel.failed WHERE batch_id = :batch;
SELECT delay_retry(:leased);
SELECT state, pending, failed FROM delay_wheel.batches WHERE id = :batch;
SELECT delay_cancel(:leased);
SELECT delay_wait(:batch, '1 min');
SELECT pg_temp.wait_until_done();
SELECT what, numbers FROM batch_effect ORDER BY what;
TRUNCATE batch_effect;
CREATE TABLE batch_switch (open boolean);
INSERT INTO batch_switch VALUES (false);
BEGIN;
SELECT batch_make('mended') AS batch \gset
SELECT batch_put(:batch), batch_put(:batch, 'SELECT 1 / open::int FROM batch_switch') AS failed \gset
COMMIT;
SELECT delay_wait(:batch, '1 min');
UPDATE batch_switch SET open = true;
SELECT delay_retry(id) FROM delay_wheel.failed WHERE batch_id = :batch;
SELECT pg_temp.wait_for(format('(SELECT state = ''done'' FROM delay_wheel.batches WHERE id = %s)', :batch));
SELECT pg_temp.wait_until_done();
SELECT what, numbers FROM batch_effect ORDER BY numbers[2], what;
TRUNCATE batch_effect;

-- an open batch, which other transactions join, ends after it is closed
SELECT batch_make('open', open => true) AS batch \gset
SELECT batch_put(:batch) AS first \gset
SELECT delay_wait(:first, '1 min') IN ('done', 'gone');
SELECT delay_wait(:batch, '0.1 s');
SELECT * FROM batch_numbers WHERE name = 'open';
SELECT batch_put(:batch) > 0 AS joined;
SELECT pg_temp.error_of(format('SELECT delay_close_batch(%1$s), delay_wait(%1$s)', :batch)) IS NOT NULL AS refused;
SELECT delay_close_batch(:batch);
SELECT delay_wait(:batch, '1 min');
SELECT code, replace(message, :'batch', 'N') AS message, detail, hint FROM pg_temp.error_of(format('SELECT batch_put(%s)', :batch));
SELECT pg_temp.wait_until_done();
SELECT what, numbers FROM batch_effect ORDER BY what;
TRUNCATE batch_effect;

-- savepoints
BEGIN;
SAVEPOINT a;
SELECT batch_make('undone') AS undone \gset
ROLLBACK TO a;
SELECT batch_make('savepoints') AS batch \gset
SAVEPOINT b;
SELECT batch_put(:batch) > 0 AS joined;
ROLLBACK TO b;
SAVEPOINT c;
SELECT batch_put(:batch, 'SELECT 1/0') > 0 AS joined;
SAVEPOINT d;
SELECT batch_put(:batch, 'SELECT 1') > 0 AS joined;
RELEASE c;
SELECT batch_put(:batch, 'SELECT 1') > 0 AS joined;
COMMIT;
SELECT delay_wait(:batch, '1 min');
SELECT pg_temp.wait_until_done();
SELECT what, numbers FROM batch_effect ORDER BY what;
SELECT count(*) FROM delay_wheel.batches WHERE id = :undone;
TRUNCATE batch_effect;
-- a whole transaction that joins is rolled back
SELECT batch_make('rollback', open => true) AS batch \gset
BEGIN;
SELECT batch_put(:batch) > 0 AS joined;
ROLLBACK;
SELECT delay_close_batch(:batch);
SELECT delay_wait(:batch, '1 min');
SELECT pg_temp.wait_until_done();
SELECT what, numbers FROM batch_effect ORDER BY what;
TRUNCATE batch_effect;

-- members add members to their closed batch
CREATE FUNCTION batch_spread(batch bigint, depth int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO batch_effect (what) VALUES ('depth ' || depth);
	SELECT batch_put(batch, format('SELECT batch_spread(%s, %s)', batch, depth - 1)) FROM generate_series(1, 2) WHERE depth > 0
$$;
BEGIN;
SELECT batch_make('spread') AS batch \gset
SELECT batch_put(:batch, format('SELECT batch_spread(%s, 3)', :batch)) > 0 AS scheduled;
COMMIT;
SELECT delay_wait(:batch, '1 min');
SELECT pg_temp.wait_until_done();
SELECT what, count(*), min(numbers) FROM batch_effect GROUP BY what ORDER BY what;
TRUNCATE batch_effect;

-- three levels: an outer batch ends after its inner batches and their callbacks
BEGIN;
SELECT batch_make('top') AS top \gset
SELECT batch_make('middle', batch_id => :top) AS middle \gset
SELECT batch_make('leaf 1', batch_id => :middle) AS leaf1, batch_make('leaf 2', batch_id => :middle) AS leaf2 \gset
SELECT batch_put(:leaf1) > 0, batch_put(:leaf2) > 0, batch_put(:leaf2) > 0, batch_put(:top) > 0;
COMMIT;
SELECT delay_wait(:top, '1 min');
SELECT pg_temp.wait_until_done();
SELECT what, numbers FROM batch_effect WHERE what LIKE '%leaf%' ORDER BY what;
SELECT what, numbers FROM batch_effect WHERE what NOT LIKE '%leaf%' ORDER BY what;
SELECT * FROM batch_numbers WHERE name IN ('top', 'middle') OR name LIKE 'leaf%' ORDER BY name;
TRUNCATE batch_effect;
-- a leaf fails, and is mended: all levels end once more
UPDATE batch_switch SET open = false;
BEGIN;
SELECT batch_make('high') AS high \gset
SELECT batch_make('low', batch_id => :high) AS low \gset
SELECT batch_put(:low, 'SELECT 1 / open::int FROM batch_switch') AS failing \gset
COMMIT;
SELECT delay_wait(:high, '1 min');
UPDATE batch_switch SET open = true;
SELECT delay_retry(:failing);
SELECT pg_temp.wait_for(format('(SELECT state = ''done'' FROM delay_wheel.batches WHERE id = %s)', :high));
SELECT pg_temp.wait_until_done();
SELECT what, numbers FROM batch_effect WHERE what LIKE 'done%' OR what LIKE 'failed%' ORDER BY what;
TRUNCATE batch_effect;
-- an inner batch without callbacks and its outer one end at once: the failure counts
BEGIN;
SELECT batch_make('around') AS around \gset
SELECT delay_batch('inside', batch_id => :around) AS inside \gset
SELECT delay_schedule_task('SELECT 1', delay => '1 day', options => jsonb_build_object('batch_id', :inside)) AS member \gset
SELECT delay_cancel(:member);
COMMIT;
SELECT pg_temp.wait_for(format('(SELECT ended_at IS NOT NULL FROM delay_wheel.batches WHERE id = %s)', :around));
SELECT pg_temp.wait_until_done();
SELECT what, numbers FROM batch_effect ORDER BY what;
TRUNCATE batch_effect;

-- cancelled as a whole
BEGIN;
SELECT batch_make('stopped', open => true) AS batch \gset
SELECT count(delay_schedule_task('SELECT 1', delay => '1 day', options => jsonb_build_object('batch_id', :batch))) FROM generate_series(1, 3);
COMMIT;
SELECT delay_cancel_batch(:batch);
SELECT delay_wait(:batch, '1 min');
SELECT pg_temp.wait_until_done();
SELECT what, numbers FROM batch_effect ORDER BY what;
TRUNCATE batch_effect;

-- plain SQL deletes a member; a member is changed, and replaced by its key
BEGIN;
SELECT batch_make('plain') AS batch \gset
SELECT delay_schedule_task('SELECT 1', delay => '1 day', options => jsonb_build_object('batch_id', :batch)) AS deleted \gset
SELECT delay_schedule_task('SELECT 1', delay => '1 day', options => jsonb_build_object('batch_id', :batch)) AS moved \gset
SELECT delay_schedule_task('SELECT 1', delay => '1 day', key => 'batch key', options => jsonb_build_object('batch_id', :batch)) > 0 AS keyed;
SELECT delay_schedule_task('SELECT 1', delay => '1 day', key => 'batch key', if_exists => 'keep', options => jsonb_build_object('batch_id', :batch)) > 0 AS kept;
SELECT delay_schedule_task('SELECT 1', delay => '0', key => 'batch key', if_exists => 'replace', options => jsonb_build_object('batch_id', :batch)) > 0 AS replaced;
COMMIT;
DELETE FROM delay_wheel_data.task WHERE id = :deleted;
SELECT delay_update(:moved, delay => '0', options => '{"tag": "moved"}');
SELECT delay_wait(:batch, '1 min');
SELECT pg_temp.wait_until_done();
SELECT what, numbers FROM batch_effect ORDER BY what;
TRUNCATE batch_effect;

-- a member does not wait for its batch
BEGIN;
SELECT batch_make('waiting') AS batch \gset
SELECT batch_put(:batch, format('SELECT delay_wait(%s)', :batch)) > 0 AS joined;
COMMIT;
SELECT delay_wait(:batch, '1 min');
SELECT replace(message, :'batch', 'N') AS message FROM delay_wheel.failed WHERE batch_id = :batch;
SELECT pg_temp.wait_until_done();
TRUNCATE batch_effect;

-- a member that is run again has not ended
BEGIN;
SELECT batch_make('snoozing') AS batch \gset
CREATE SEQUENCE batch_tries;
SELECT batch_put(:batch, 'SELECT CASE WHEN nextval(''batch_tries'') < 3 THEN delay_snooze(''0.01 s'') END') > 0 AS snoozes;
SELECT batch_put(:batch, 'SELECT 1 / greatest(nextval(''batch_tries'') - 3, 0)', '{"max_attempts": 9, "retry_delay": "0"}') > 0 AS retries;
COMMIT;
SELECT delay_wait(:batch, '1 min');
SELECT pg_temp.wait_until_done();
SELECT what, numbers FROM batch_effect ORDER BY what;
TRUNCATE batch_effect;
-- a member that runs another task at once still adds members to its closed batch
BEGIN;
SELECT delay_schedule_task('SELECT 1', delay => '1 day') AS other \gset
SELECT batch_make('run inside') AS batch \gset
SELECT batch_put(:batch, format('SELECT delay_run(%s); SELECT batch_put(%s)', :other, :batch)) > 0 AS scheduled;
COMMIT;
SELECT delay_wait(:batch, '1 min');
SELECT pg_temp.wait_until_done();
SELECT what, numbers FROM batch_effect ORDER BY what;
TRUNCATE batch_effect;

-- delay_wait() sees the end that is newer than the snapshot of its transaction
SELECT batch_make('snapshot', open => true) AS batch \gset
SELECT pg_advisory_lock(46);
SELECT delay_schedule_task(format('SELECT pg_advisory_xact_lock(46); SELECT delay_close_batch(%s)', :batch), delay => '0') > 0 AS closes;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT state FROM delay_wheel.batches WHERE id = :batch;
SELECT pg_advisory_unlock(46);
SELECT delay_wait(:batch, '1 min');
SELECT state FROM delay_wheel.batches WHERE id = :batch;
COMMIT;
SELECT pg_temp.wait_until_done();
TRUNCATE batch_effect;

-- members are found by their index also below row level security
SELECT count(*) FROM pg_proc WHERE oid = 'delay_wheel_internal.batch_of'::regproc AND proleakproof;
SELECT more, delay_wheel_internal.batch_of(more) FROM unnest('{"{\"batch_id\": 7}", "{\"batch_id\": \"7\"}", "{\"batch_id\": 1e99}", "{\"batch_id\": 0.5}", "{}", "[]", "7"}'::jsonb[]) more;

-- rights: only members of the owner and superusers may close, cancel, wait for or see a batch
CREATE ROLE regress_dw_batch_owner;
CREATE ROLE regress_dw_batch_other;
SELECT delay_wheel.allow('regress_dw_batch_owner', 'regress_dw_batch_other');
GRANT ALL ON batch_effect TO PUBLIC;
GRANT ALL ON SEQUENCE batch_effect_n_seq TO PUBLIC;
SET SESSION AUTHORIZATION regress_dw_batch_owner;
SELECT batch_make('own', open => true) AS batch \gset
SET SESSION AUTHORIZATION regress_dw_batch_other;
SELECT code, replace(message, :'batch', 'N') AS message FROM pg_temp.error_of(format('SELECT batch_put(%s)', :batch));
SELECT code, replace(message, :'batch', 'N') AS message FROM pg_temp.error_of(format('SELECT batch_make(''inner'', batch_id => %s)', :batch));
SELECT delay_close_batch(:batch), delay_cancel_batch(:batch);
SELECT code, replace(message, :'batch', 'N') AS message, detail FROM pg_temp.error_of(format('SELECT delay_wait(%s)', :batch));
SELECT count(*) FROM delay_wheel.batches;
SELECT code, message FROM pg_temp.error_of('SELECT * FROM delay_wheel_data.batch');
SET SESSION AUTHORIZATION regress_dw_batch_owner;
SELECT name, owner, state FROM delay_wheel.batches;
SELECT batch_put(:batch) > 0 AS joined;
SELECT delay_close_batch(:batch);
SELECT delay_wait(:batch, '1 min');
SET SESSION AUTHORIZATION regress_dw_batch_other;
SELECT delay_wait(:batch), state FROM delay_status(:batch);
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT what, numbers, owner FROM batch_effect ORDER BY what;
TRUNCATE batch_effect;
-- a member of the owner closes, a superuser cancels; a reader of all data does neither
CREATE ROLE regress_dw_batch_member;
CREATE ROLE regress_dw_batch_reader;
GRANT regress_dw_batch_owner TO regress_dw_batch_member;
GRANT pg_read_all_data TO regress_dw_batch_reader;
SELECT delay_wheel.allow('regress_dw_batch_member', 'regress_dw_batch_reader');
SELECT coalesce(max(id), 0) AS before FROM delay_wheel.audit \gset
SET delay_wheel.audit = 'control';
SET SESSION AUTHORIZATION regress_dw_batch_owner;
BEGIN;
SELECT batch_make('by a member', open => true) AS by_member, batch_make('by a superuser', open => true) AS by_superuser \gset
SELECT batch_make('inner', batch_id => :by_superuser) AS inner \gset
SELECT count(delay_schedule_task('SELECT 1', delay => '1 day', options => jsonb_build_object('batch_id', b))) FROM unnest(ARRAY[:by_superuser, :by_superuser, :inner]) b;
COMMIT;
SET SESSION AUTHORIZATION regress_dw_batch_reader;
SELECT count(*) FROM delay_wheel.batches WHERE id IN (:by_member, :by_superuser);
SELECT delay_close_batch(:by_member), delay_cancel_batch(:by_superuser);
SET SESSION AUTHORIZATION regress_dw_batch_member;
SELECT delay_close_batch(:by_member);
RESET SESSION AUTHORIZATION;
SELECT delay_close_batch(:by_superuser), delay_cancel_batch(:by_superuser), delay_cancel_batch(-1);
SELECT delay_wait(:by_member, '1 min'), delay_wait(:by_superuser, '1 min');
SELECT pg_temp.wait_until_done();
SELECT what, numbers, owner FROM batch_effect ORDER BY what;
SELECT action, owner, role = current_user AS by_superuser, rows FROM delay_wheel.audit WHERE id > :before AND action LIKE '%batch' ORDER BY id;
RESET delay_wheel.audit;
REVOKE regress_dw_batch_owner FROM regress_dw_batch_member;
DROP OWNED BY regress_dw_batch_member, regress_dw_batch_reader;
DROP ROLE regress_dw_batch_member, regress_dw_batch_reader;
TRUNCATE batch_effect;

-- an inner batch that ends again counts once in its outer batch; only its callbacks that run again count again
UPDATE batch_switch SET open = false;
BEGIN;
SELECT batch_make('outer of two') AS outer \gset
SELECT delay_batch('quiet', batch_id => :outer) AS quiet, delay_batch('loud', on_end => 'SELECT 1', batch_id => :outer) AS loud \gset
SELECT batch_put(:quiet, 'SELECT 1 / open::int FROM batch_switch') AS failing \gset
SELECT batch_put(:loud, 'SELECT 1 / open::int FROM batch_switch') AS failing_too \gset
COMMIT;
SELECT delay_wait(:outer, '1 min');
SELECT total, done, failed FROM delay_wheel.batches WHERE id = :outer;
UPDATE batch_switch SET open = true;
SELECT delay_retry(:failing);
SELECT pg_temp.wait_for(format('(SELECT failed = 1 AND ended_at IS NOT NULL FROM delay_wheel.batches WHERE id = %s)', :outer));
SELECT total, done, failed FROM delay_wheel.batches WHERE id = :outer;
SELECT delay_retry(:failing_too);
SELECT pg_temp.wait_for(format('(SELECT state = ''done'' FROM delay_wheel.batches WHERE id = %s)', :outer));
SELECT total, done, failed FROM delay_wheel.batches WHERE id = :outer;
SELECT pg_temp.wait_until_done();
TRUNCATE batch_effect;

-- errors
SELECT * FROM pg_temp.error_of('SELECT batch_put(-1)');
SELECT * FROM pg_temp.error_of('SELECT batch_put(9223372036854775807)');
SELECT code, message FROM pg_temp.error_of('SELECT delay_batch(''x'', on_done => ''SELEC 1'')');
SELECT code, message FROM pg_temp.error_of('SELECT delay_batch(''x'', on_done => ''SELECT $8'')');
SELECT code, message FROM pg_temp.error_of('SELECT delay_batch('''')');
SELECT code, message FROM pg_temp.error_of('SELECT delay_batch(queue => ''no such queue'')');
SELECT code, message FROM pg_temp.error_of('SELECT delay_batch(batch_id => -1)');
SELECT code, message FROM pg_temp.error_of('SELECT delay_close_batch(NULL)');
SELECT code, message FROM pg_temp.error_of('SELECT delay_cancel_batch(NULL)');
SELECT delay_close_batch(-1), delay_cancel_batch(-1);
BEGIN;
SELECT delay_batch() AS batch \gset
SELECT * FROM pg_temp.error_of(format('SELECT batch_put(%s, more => ''{"mode": "at_most_once"}'')', :batch));
ROLLBACK;
BEGIN READ ONLY;
SELECT code, message FROM pg_temp.error_of('SELECT delay_batch()');
ROLLBACK;
-- the queue of a callback is needed
SELECT delay_wheel.create_queue('batch callbacks');
SELECT delay_batch('queued', on_end => 'SELECT 1', queue => 'batch callbacks', open => true) AS batch \gset
SELECT code, message FROM pg_temp.error_of('SELECT delay_wheel.drop_queue(''batch callbacks'')');
SELECT delay_close_batch(:batch);
SELECT delay_wait(:batch, '1 min');
SELECT pg_temp.wait_until_done();
SELECT delay_wheel.drop_queue('batch callbacks');
-- but if it is gone when the batch ends once more, the callback runs in the default queue
SELECT delay_wheel.create_queue('batch callbacks');
BEGIN;
SELECT delay_batch('unqueued', on_end => batch_note('end'), queue => 'batch callbacks') AS batch \gset
SELECT batch_put(:batch, 'SELECT 1/0') AS failed \gset
COMMIT;
SELECT delay_wait(:batch, '1 min');
SELECT pg_temp.wait_until_done();
SELECT delay_wheel.drop_queue('batch callbacks');
SELECT delay_retry(:failed);
SELECT pg_temp.wait_until_done();
SELECT pg_temp.wait_for('(SELECT count(*) = 2 FROM batch_effect)');
SELECT what, numbers FROM batch_effect ORDER BY what;

SELECT delay_wheel.drop_queue('batch messages');
SELECT count(*) FROM delay_wheel_data.batch_count;
DELETE FROM delay_wheel_data.batch;
DELETE FROM delay_wheel_data.failed_task;
DROP OWNED BY regress_dw_batch_owner, regress_dw_batch_other;
DROP ROLE regress_dw_batch_owner, regress_dw_batch_other;
DROP VIEW batch_numbers;
DROP FUNCTION batch_note, batch_make, batch_put, batch_spread;
DROP TABLE batch_effect, batch_switch;
DROP SEQUENCE batch_tries;
