--
-- KEYS: OPTIONS
-- Further values of if_exists, what delay_scheduled says, moving by key, and changing what
-- is pending.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
\set VERBOSITY terse

CREATE ROLE regress_dw_options LOGIN;
CREATE ROLE regress_dw_member LOGIN;
CREATE TABLE options_effect (label text);
GRANT ALL ON options_effect TO PUBLIC;
SELECT delay_wheel.allow('regress_dw_options', 'regress_dw_member');

-- what one call does, ids counted from the first one
CREATE FUNCTION pg_temp.put(if_exists text, delay interval, what text DEFAULT 'x', queue text DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
	SELECT format('%s, due in %s', p.outcome, p.due_at - now()) FROM delay_scheduled(delay_schedule_task('SELECT $1', args => ARRAY[what], key => 'k', if_exists => if_exists, delay => delay, queue => queue)) p $$;
CREATE FUNCTION pg_temp.pending(text DEFAULT 'k') RETURNS TABLE (what text, due_in interval) LANGUAGE sql AS $$
	SELECT args[1], due - now() FROM delay_wheel.tasks WHERE key = $1 ORDER BY id $$;

--
-- earlier, later, replace_keep_due; the same transaction, so the same now()
--
BEGIN;
SELECT pg_temp.put('earlier', '2 h', 'first');
SELECT id AS first FROM delay_wheel.tasks WHERE key = 'k' \gset
SELECT pg_temp.put('earlier', '3 h'), pg_temp.put('earlier', '2 h'), pg_temp.put('earlier', '1 h'), pg_temp.put('earlier', '-1 h'), pg_temp.put('later', '-2 h');
SELECT pg_temp.put('later', '1 h'), pg_temp.put('later', '59 min'), pg_temp.put('later', '1 h'), pg_temp.put('later', '61 min');
-- what is moved is the task that was there
SELECT id = :first AS same, what, due_in FROM pg_temp.pending(), delay_wheel.tasks WHERE key = 'k';
SELECT id = :first AS the_same, outcome FROM delay_scheduled(delay_schedule_task('SELECT 1', key => 'k', if_exists => 'later', delay => '2 h'));
SELECT delay_schedule_task('SELECT 1', key => 'k', if_exists => 'earlier', delay => '1 h') = :first AS the_same;
SAVEPOINT s;
SELECT pg_temp.put('replace_keep_due', '5 h', 'second'), pg_temp.put('replace_keep_due', '1 min', 'third');
SELECT id > :first AS new_id, what, due_in FROM pg_temp.pending(), delay_wheel.tasks WHERE key = 'k';
ROLLBACK TO s;
SELECT * FROM pg_temp.pending();
SELECT pg_temp.put('replace', '5 h', 'fourth'), pg_temp.put('keep', '6 h'), pg_temp.put(NULL, '6 h');
SELECT * FROM pg_temp.pending();
SELECT count(*) FILTER (WHERE locktype = 'advisory') AS locks FROM pg_locks WHERE pid = pg_backend_pid();
-- without a key there is always a new one
SELECT outcome, due_at = now() AS at_once FROM delay_scheduled(delay_schedule_task('SELECT 1'));
ROLLBACK;
SELECT count(*) FROM delay_wheel_data.task;
SELECT * FROM unnest(ARRAY['later ', 'LATER', 'latest', '']) value, pg_temp.error_of(format('SELECT delay_scheduled(delay_schedule_task(''SELECT 1'', key => ''k'', if_exists => %L))', value));
SELECT * FROM unnest(ARRAY['earlier', 'later', 'replace_keep_due']) value, pg_temp.error_of(format('SELECT delay_scheduled(delay_schedule_task(''SELECT 1'', if_exists => %L))', value));
SELECT * FROM pg_temp.error_of($$SELECT delay_scheduled(delay_schedule_task(NULL))$$);
BEGIN READ ONLY;
SELECT delay_scheduled(delay_schedule_task('SELECT 1'));
ROLLBACK;
-- the time at which it expires must be one, also for a due time that it gets from another
BEGIN;
SELECT delay_schedule_task('SELECT 1', key => 'k', due => '294276-12-31 12:00:00+00') > 0 AS ok;
SELECT delay_schedule_task('SELECT 1', key => 'k', if_exists => 'replace_keep_due', options => '{"expires": "1 day"}');
ROLLBACK;
BEGIN;
SELECT delay_schedule_task('SELECT 1', key => 'k', delay => '1 h', options => '{"expires": "1 day"}') > 0 AS ok;
SELECT delay_schedule_task('SELECT 1', key => 'k', if_exists => 'later', due => '294276-12-31 12:00:00+00');
ROLLBACK;

-- a queue that spreads: each task keeps its own part of the spread
SELECT delay_wheel.create_queue('regress_options_spread', options => '{"spread": "1 hour"}');
BEGIN;
SELECT outcome, due_at >= now() + interval '1 day' AND due_at < now() + interval '25 hours' AS spread, due_at - now() - interval '1 day' AS by, id AS first
	FROM delay_scheduled(delay_schedule_task('SELECT 1', key => 'k', queue => 'regress_options_spread', delay => '1 day')) \gset
SELECT :'outcome', :'spread';
SELECT pg_temp.put('earlier', '1 day', queue => 'regress_options_spread') = format('kept, due in %s', interval '1 day' + :'by') AS kept,
	pg_temp.put('later', '1 day', queue => 'regress_options_spread') = format('kept, due in %s', interval '1 day' + :'by') AS kept,
	pg_temp.put('later', '2 days', queue => 'regress_options_spread') = format('moved, due in %s', interval '2 days' + :'by') AS moved,
	pg_temp.put('replace_keep_due', '9 days', queue => 'regress_options_spread') = format('replaced, due in %s', interval '2 days' + :'by') AS replaced;
ROLLBACK;
SELECT delay_wheel.drop_queue('regress_options_spread');

-- a limit of tasks: those that are moved or replaced take no room
BEGIN;
SELECT pg_temp.put('keep', '1 h');
SET LOCAL delay_wheel.max_pending = 1;
SELECT pg_temp.put('later', '2 h'), pg_temp.put('replace_keep_due', '1 min');
ROLLBACK;

-- one that is moved to now runs, as it was scheduled
SELECT delay_schedule_task('INSERT INTO options_effect VALUES (''earlier'')', key => 'k', delay => '1 day') > 0 AS ok;
SELECT outcome FROM delay_scheduled(delay_schedule_task('INSERT INTO options_effect VALUES (''never'')', key => 'k', if_exists => 'earlier'));
SELECT pg_temp.wait_until_done();
SELECT label FROM options_effect;

-- messages
SELECT delay_wheel.create_queue('regress_options_messages', external => true);
BEGIN;
SELECT outcome, due_at - now() AS due_in FROM delay_scheduled(delay_send('regress_options_messages', '1', key => 'k', delay => '1 h'));
SELECT outcome, due_at - now() AS due_in FROM delay_scheduled(delay_send('regress_options_messages', '2', key => 'k', delay => '2 h', if_exists => 'later'));
SELECT delay_send('regress_options_messages', '3', key => 'k', delay => '2 h', if_exists => 'replace_keep_due') > 0 AS ok;
SELECT payload, due - now() AS due_in FROM delay_wheel.tasks WHERE key = 'k';
SELECT delay_reschedule(key => 'k', delay => '0') AS elsewhere, delay_reschedule(key => 'k', delay => '0', queue => 'regress_options_messages');
COMMIT;
CALL delay_await('regress_options_messages', '1 min');
SELECT payload FROM delay_receive('regress_options_messages', autocommit => true);

--
-- Triggers
--
CREATE TABLE options_row (customer int, delay interval, what text);
CREATE TRIGGER options_earlier AFTER INSERT OR UPDATE ON options_row FOR EACH ROW
	EXECUTE FUNCTION delay_schedule_trigger('delay', 'SELECT $1', 'what', 'key=customer', 'if_exists=earlier');
INSERT INTO options_row VALUES (1, '2 h', 'a'), (1, '1 h', 'b'), (1, '3 h', 'c');
SELECT what, round(extract(epoch FROM due_in) / 3600) AS hours FROM pg_temp.pending('1');
-- a row that wants none says nothing of the others'
INSERT INTO options_row VALUES (1, NULL, 'd');
SELECT count(*) FROM pg_temp.pending('1');
DROP TRIGGER options_earlier ON options_row;
CREATE TRIGGER options_keep_due AFTER INSERT OR UPDATE ON options_row FOR EACH ROW
	EXECUTE FUNCTION delay_schedule_trigger('delay', 'SELECT $1', 'what', 'key=customer', 'if_exists=replace_keep_due');
INSERT INTO options_row VALUES (1, '9 h', 'e');
SELECT what, round(extract(epoch FROM due_in) / 3600) AS hours FROM pg_temp.pending('1');
INSERT INTO options_row VALUES (1, NULL, 'f');
SELECT count(*) FROM pg_temp.pending('1');
DROP TABLE options_row;

--
-- Moving by key
--
SELECT delay_schedule_task('SELECT 1', key => 'k', delay => '1 day') AS id \gset
BEGIN;
SELECT delay_reschedule(key => 'k', delay => '2 days');
SELECT id = :id AS same, due - now() AS due_in FROM delay_wheel.tasks WHERE key = 'k';
SELECT delay_reschedule(key => 'k', delay => interval '3 days', queue => 'default'), delay_reschedule(key => 'K', delay => '0'), delay_reschedule(key => '', delay => '0');
SELECT due - now() AS due_in FROM delay_wheel.tasks WHERE key = 'k';
SELECT delay_reschedule(key => 'k', due => '2040-01-01 00:00+00');
SELECT due AT TIME ZONE 'UTC' AS due FROM delay_wheel.tasks WHERE key = 'k';
SELECT count(*) FILTER (WHERE locktype = 'advisory') AS locks FROM pg_locks WHERE pid = pg_backend_pid();
ROLLBACK;
-- another role's key is another one, also for a superuser
SET ROLE regress_dw_options;
SELECT delay_reschedule(key => 'k', delay => '0');
RESET ROLE;
SELECT * FROM unnest(ARRAY[$$(key => NULL, delay => '1 h')$$, $$(key => 'k', delay => NULL::text)$$, $$(key => 'k', delay => NULL::interval)$$, $$(key => 'k', delay => 'soon')$$, $$(key => 'k', delay => '1 h', queue => 'no such queue')$$,
	$$(key => 'k', due => NULL)$$, $$(key => 'k', due => 'infinity')$$, $$(1, '1 h', key => 'k')$$, $$(1, '1 h', queue => 'q')$$]) args,
	pg_temp.error_of('SELECT delay_reschedule' || args);
-- by a mark of delay_cancel_all(), it is not pending any more
SELECT delay_cancel_all(due_from => '-infinity') > 0 AS ok;
SELECT delay_reschedule(key => 'k', delay => '0'), delay_update(key => 'k', priority => 1);
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel.cancellations)');
-- unarmed, and one of this database's own, which comes first
INSERT INTO delay_wheel_data.task (due, sql, key, origin, args, arg_types) VALUES (now() + interval '1 day', 'SELECT $1', 'o', 1, '{restored}', '{-}');
SELECT delay_reschedule(key => 'o', delay => '2 days'), what, armed FROM pg_temp.pending('o'), delay_wheel.tasks WHERE key = 'o';
SELECT delay_schedule_task('SELECT $1', args => '{own}', key => 'o', delay => '1 day') > 0 AS ok;
SELECT delay_reschedule(key => 'o', delay => '3 days');
SELECT what, round(extract(epoch FROM due_in) / 86400) AS days FROM pg_temp.pending('o') ORDER BY 1;
SELECT delay_cancel(key => 'o');

--
-- Changing what is pending
--
SELECT delay_wheel.create_queue('regress_options_slow', max_running => 1), delay_wheel.create_queue('regress_options_others', users => ARRAY['regress_dw_member']);
SELECT delay_schedule_task('SELECT $1, $2', args => '{1,2}', key => 'u', tag => 'first', delay => '1 day', max_attempts => 3, options => '{"timeout": "1 s", "expires": "2 days", "notify": "c", "on_success": "SELECT 2"}') AS id \gset
CREATE VIEW pg_temp.row_of AS SELECT due, queue, priority, max_attempts, timeout, expires, sql, args, arg_types, search_path, key, tag, more FROM delay_wheel_data.task WHERE key = 'u';
CREATE TABLE options_before AS SELECT * FROM pg_temp.row_of;
BEGIN;
-- one thing at a time: all else stays
SELECT delay_update(:id, priority => 1);
SELECT to_jsonb(now) - 'priority' = to_jsonb(before) - 'priority' AS else_same, now.priority FROM options_before before, pg_temp.row_of now;
SELECT delay_update(:id, priority => 0), delay_update(:id, max_attempts => 7), delay_update(:id, options => '{"timeout": "0.5 ms"}');
SELECT max_attempts, timeout FROM pg_temp.row_of;
SELECT delay_update(:id, tag => 'second');
SELECT tag FROM pg_temp.row_of;
SELECT delay_update(:id, tag => '');
SELECT tag FROM pg_temp.row_of;
-- arguments without types keep those that the task has
SELECT delay_schedule_task('SELECT $1, $2', delay => '1 day', args => '{5,x}', options => '{"arg_types": ["int4", "-"]}') AS typed \gset
SELECT delay_update(:typed, args => '{6,y}');
SELECT args, arg_types FROM delay_wheel_data.task WHERE id = :typed;
SAVEPOINT wrong; SELECT delay_update(:typed, args => '{x,y}'); ROLLBACK TO wrong;
SELECT delay_update(:typed, sql_text => 'SELECT $1', args => '{7}');
SELECT args, arg_types FROM delay_wheel_data.task WHERE id = :typed;
SELECT delay_update(:typed, args => ARRAY[8]);
SELECT delay_update(:typed, args => '{9}');
SELECT args, arg_types FROM delay_wheel_data.task WHERE id = :typed;
SELECT delay_cancel(:typed);
SELECT delay_update(:id, args => '{3,4}');
SELECT sql, args, arg_types FROM pg_temp.row_of;
SELECT delay_update(:id, args => ARRAY[5, 6]);
SELECT sql, args, arg_types FROM pg_temp.row_of;
SELECT delay_update(:id, sql_text => 'SELECT $2, $1 + 1');
SELECT sql, args, arg_types FROM pg_temp.row_of;
SELECT delay_update(:id, sql_text => 'SELECT 1', args => '{}');
SELECT sql, args, arg_types FROM pg_temp.row_of;
SELECT delay_update(:id, sql_text => 'SELECT :a', named => '{"a": 9}');
SELECT sql, args, arg_types FROM pg_temp.row_of;
SELECT delay_update(:id, sql_text => 'SELECT $1', args => ARRAY['1'], max_attempts => 1, priority => -1, tag => 't', options => '{"arg_types": ["int"], "timeout": "0", "to_queue": "regress_options_slow"}');
SELECT sql, args, arg_types, timeout, max_attempts, priority, tag, key, expires, more, to_jsonb(due) = (SELECT to_jsonb(due) FROM options_before) AS same_due,
	(SELECT queue FROM delay_wheel.tasks WHERE id = :id) FROM pg_temp.row_of;
SELECT delay_update(key => 'u', tag => 'x') AS elsewhere, delay_update(key => 'u', queue => 'regress_options_slow', tag => 'x', options => '{"to_queue": "default"}') AS there, delay_update(key => 'u', tag => 'y') AS and_back;
SELECT queue, tag, id = :id AS same FROM delay_wheel.tasks WHERE key = 'u';
-- the search path of a new text is that of this session
SET LOCAL search_path = pg_catalog;
SELECT public.delay_update(:id, args => '{1}');
SELECT search_path FROM pg_temp.row_of;
SELECT public.delay_update(:id, sql_text => 'SELECT $1, 2');
SELECT search_path FROM pg_temp.row_of;
SET LOCAL search_path TO DEFAULT;
SELECT delay_update(:id, sql_text => 'SELECT $1');
SELECT search_path FROM pg_temp.row_of;
ROLLBACK;
SELECT to_jsonb(now) = to_jsonb(before) AS rolled_back FROM options_before before, pg_temp.row_of now;
DROP TABLE options_before;

-- refused
SELECT args, code, replace(message, 'task ' || :'id', 'task N') AS message FROM unnest(ARRAY[$$$$, $$sql_text => NULL, args => NULL$$, $$named => '{"a": 1}'$$, $$sql_text => 'SELECT :a', named => '{"a": 1}', args => '{1}'$$, $$sql_text => 'SELECT 1'$$, $$sql_text => 'SELECT $1'$$, $$sql_text => ''$$, $$sql_text => 'COMMIT', args => '{}'$$,
	$$args => '{1}'$$, $$args => '{}'$$, $$arg_types => '{int,int}'$$, $$args => '{1,2}', arg_types => '{int}'$$, $$priority => 10$$, $$max_attempts => 0$$, $$timeout => '-1 s'$$, $$tag => repeat('x', 1001)$$,
	$$to_queue => 'no such queue'$$, $$to_queue => 'regress_options_messages'$$, $$payload => '1'$$]) args,
	pg_temp.error_of('SELECT ' || pg_temp.call_of('delay_update', concat_ws(', ', :id, nullif(args, ''))));
SELECT * FROM pg_temp.error_of($$SELECT delay_update(NULL, priority => 1)$$) UNION ALL SELECT * FROM pg_temp.error_of($$SELECT delay_update(key => NULL, priority => 1)$$)
	UNION ALL SELECT * FROM pg_temp.error_of($$SELECT delay_update(key => 'u')$$) UNION ALL SELECT * FROM pg_temp.error_of($$SELECT delay_update(key => 'u', queue => 'no such queue', priority => 1)$$);
SELECT delay_update(0, priority => 1), delay_update(key => 'none', priority => 1);
BEGIN READ ONLY;
SELECT delay_update(:id, priority => 1);
ROLLBACK;
-- its key is pending there
SELECT delay_schedule_task('SELECT 1', key => 'u', queue => 'regress_options_slow', delay => '1 day') > 0 AS ok;
SELECT delay_update(:id, options => '{"to_queue": "regress_options_slow"}');
SELECT delay_cancel(key => 'u', queue => 'regress_options_slow');
SELECT delay_update(:id, options => '{"to_queue": "regress_options_slow"}');
SELECT delay_cancel(:id);

-- an older cancellation that did not concern the task does not concern it as it is now
SELECT delay_schedule_task('INSERT INTO options_effect VALUES (''spared'')', delay => '1 day') AS id \gset
BEGIN;
SELECT delay_cancel_all(tag => 'gone') > 0 AS ok;
SELECT delay_update(:id, tag => 'gone'), delay_reschedule(:id, '0');
COMMIT;
SELECT pg_temp.wait_until_done();
SELECT label FROM options_effect;
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel.cancellations)');

-- a task with a mode is a single statement
SELECT delay_schedule_task('VACUUM options_effect', delay => '1 day', options => '{"mode": "at_least_once"}') AS id \gset
SELECT delay_update(:id, sql_text => 'VACUUM options_effect; SELECT 1');
SELECT delay_update(:id, sql_text => 'ANALYZE options_effect');
SELECT delay_cancel(:id);

-- messages
SELECT delay_send('regress_options_messages', '1', delay => '1 day') AS id \gset
SELECT delay_update(:id, payload => '2', max_attempts => 3, priority => 1, tag => 't');
SELECT payload, max_attempts, priority, tag FROM delay_wheel_data.task WHERE id = :id;
SELECT args, code, replace(message, 'task ' || :'id', 'task N') AS message, detail FROM unnest(ARRAY[$$sql_text => 'SELECT 1'$$, $$args => '{1}'$$, $$timeout => '1 s'$$, $$to_queue => 'regress_options_slow'$$, $$payload => to_jsonb(repeat('x', 1100000))$$]) args,
	pg_temp.error_of('SELECT ' || pg_temp.call_of('delay_update', concat_ws(', ', :id, args)));
-- under a lease it is not pending; when that has ended, it is
SELECT delay_reschedule(:id, '0');
CALL delay_await('regress_options_messages', '1 min');
SELECT attempt, payload FROM delay_lease('regress_options_messages', lease => '1 s');
SELECT delay_update(:id, payload => '3') AS leased;
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel_data.task WHERE id = %s AND due < clock_timestamp())', :id));
SELECT delay_update(:id, payload => '3') AS ended;
SELECT payload, attempts, token, due < now() - interval '1 s' AS first_due FROM delay_wheel_data.task WHERE id = :id;
SELECT delay_cancel(:id);

-- a task that runs just now, and one that changes itself
SELECT pg_advisory_lock(1);
SELECT delay_schedule('0', 'SELECT pg_advisory_xact_lock_shared(1); SELECT 1') AS id \gset
SELECT pg_temp.wait_for('EXISTS (SELECT FROM pg_locks l JOIN delay_wheel.running r USING (pid) WHERE l.locktype = ''advisory'' AND NOT l.granted)');
SELECT delay_update(:id, priority => 1);
SELECT pg_advisory_unlock(1);
CREATE FUNCTION options_itself() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO options_effect VALUES ('itself: ' || delay_update(key => 'itself', priority => 1) || ', ' || delay_reschedule(key => 'itself', delay => '0'));
END $$;
SELECT delay_schedule_task('SELECT options_itself()', key => 'itself') > 0 AS ok;
SELECT pg_temp.wait_until_done();
SELECT label FROM options_effect WHERE label LIKE 'itself%';
DROP FUNCTION options_itself;

-- it goes where its new queue and priority say
SELECT delay_schedule_task('INSERT INTO options_effect VALUES (''other lane'')', delay => '1 s') AS id \gset
SELECT delay_update(:id, priority => 1, options => '{"to_queue": "regress_options_slow"}');
SELECT pg_temp.wait_for('EXISTS (SELECT FROM options_effect WHERE label = ''other lane'')');

-- the rights: those of the owner, and for the SQL those to become it
SET ROLE regress_dw_options;
SELECT delay_schedule('1 day', 'SELECT current_user') AS id \gset
SET ROLE regress_dw_member;
SELECT code, replace(message, 'task ' || :'id', 'task N') AS message FROM unnest(ARRAY['priority => 1', 'sql_text => ''SELECT 1''']) args, pg_temp.error_of('SELECT ' || pg_temp.call_of('delay_update', concat_ws(', ', :id, args)));
RESET ROLE;
GRANT regress_dw_options TO regress_dw_member;
SET ROLE regress_dw_member;
SELECT delay_update(:id, priority => 1), delay_update(:id, sql_text => 'INSERT INTO options_effect VALUES (current_user)');
-- the queue is looked at for the one who moves it there
SELECT delay_update(:id, options => '{"to_queue": "regress_options_others"}');
SET ROLE regress_dw_options;
SELECT delay_update(:id, options => '{"to_queue": "regress_options_others"}');
RESET ROLE;
-- the path of the session that wrote the text goes with it, since it is not the owner's own
SELECT owner, priority, search_path FROM delay_wheel_data.task WHERE id = :id;
SELECT delay_reschedule(:id, '0');
SELECT pg_temp.wait_until_done();
SELECT label FROM options_effect WHERE label LIKE 'regress%';

SELECT delay_wheel.disallow('regress_dw_options', 'regress_dw_member');
SET ROLE regress_dw_options;
SELECT delay_scheduled(delay_schedule_task('SELECT 1'));
SELECT delay_scheduled(delay_send('q', '1'));
SELECT delay_update(1, priority => 1);
SELECT delay_update(key => 'k', priority => 1);
SELECT delay_reschedule(key => 'k', delay => '0');
SELECT delay_reschedule(key => 'k', due => now());
RESET ROLE;

SELECT count(*) FROM delay_wheel_data.task;
SELECT delay_wheel.drop_queue('regress_options_messages'), delay_wheel.drop_queue('regress_options_slow'), delay_wheel.drop_queue('regress_options_others');
DROP TABLE options_effect;
DROP ROLE regress_dw_options, regress_dw_member;
