--
-- OPTIONS
-- Options by name in a JSON object: of tasks, messages, recurring tasks, triggers, queues, and of
-- what is to be changed.  What became of the last task that was scheduled.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

SELECT * FROM delay_wheel.options;

-- each option, in JSON, for tasks
BEGIN;
SELECT delay_schedule_task('SELECT $1, $2, $3', args => '{1,2,3}', delay => '1 day', options => '{"arg_types": ["int", "-", null], "key": "k", "if_exists": "error", "tag": "t", "priority": -3, "max_attempts": 4,
	"retry_delay": "5 s", "retry_backoff": "fixed", "retry_max_delay": "1 hour", "retry_on": ["08", "40001"], "give_up_on": [], "timeout": "1500 us", "expires": "2 days", "skip_after": "1 day",
	"unique_for": "1 hour", "notify": "channel", "on_success": "SELECT $1, $2", "on_failure": "SELECT $1, $2, $3", "check_sql": "off", "keep_settings": ["work_mem"], "queue": null}') AS id \gset
SELECT queue, priority, max_attempts, timeout, retry_delay, expires, args, arg_types, key, tag, more FROM delay_wheel_data.task WHERE id = :id;
-- what is not given, and what is null, in no way differs
SELECT delay_schedule_task('SELECT 1', delay => '1 day') AS bare, delay_schedule_task('SELECT 1', delay => '1 day', options => '{}') AS empty,
	delay_schedule_task('SELECT 1', delay => '1 day', options => '{"timeout": null, "retry_on": null, "key": null}') AS nulls \gset
SELECT count(DISTINCT to_jsonb(t) - '{id,due}'::text[]) FROM delay_wheel_data.task t WHERE id IN (:bare, :empty, :nulls);
ROLLBACK;

-- what is refused
SELECT options, code, message, detail, hint FROM unnest(ARRAY[
	'[]', '1', '"x"', 'null', '{"tiemout": "1 s"}', '{"max_attempt": 1}', '{"": 1}', '{"completely different": 1}', '{"sql_text": "SELECT 1"}', '{"delay": "1 s"}', '{"Timeout": "1 s"}', '{"options": {}}',
	'{"max_running": 1}', '{"to_queue": "q"}', '{"starts": "2030-01-01"}',
	'{"timeout": 5}', '{"timeout": true}', '{"timeout": ["5 s"]}', '{"timeout": "soon"}', '{"timeout": "-1 s"}', '{"timeout": "25 days"}', '{"expires": "0"}', '{"unique_for": "367 days", "key": "k"}',
	'{"max_attempts": "3"}', '{"max_attempts": 0}', '{"max_attempts": 1.5}', '{"max_attempts": 1e10}', '{"priority": 10}',
	'{"retry_on": "40001"}', '{"retry_on": {"a": 1}}', '{"retry_on": ["x"]}', '{"retry_on": [40001]}', '{"retry_on": [["40001"]]}', '{"retry_on": [null]}', '{"arg_types": ["no such type"]}', '{"arg_types": ["int"]}',
	'{"notify": 1}', '{"notify": ""}', '{"key": ""}', '{"key": 7}', '{"tag": {"a": "b"}}', '{"mode": "twice"}', '{"check_sql": "maybe"}', '{"retry_backoff": "none"}', '{"if_exists": "replace"}', '{"queue": "no such queue"}',
	'{"keep_settings": ["no_such_setting"]}', '{"on_success": "SELEC"}']) options,
	pg_temp.error_of(format('SELECT delay_schedule_task(''SELECT 1'', delay => ''1 day'', options => %L)', options)) WHERE code IS NOT NULL;
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule_task('SELECT 1', priority => 1, options => '{"priority": 1}')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule_task('SELECT 1', priority => 1, timeout => '1 s')$$);
SELECT code, message, hint FROM pg_temp.error_of($$SELECT delay_send('q', '1', options => '{"timeout": "1 s"}')$$);
SELECT code, message, hint FROM pg_temp.error_of($$SELECT delay_every('e', '1 day', 'SELECT 1', options => '{"unique_for": "1 day"}')$$);
SELECT code, message, hint FROM pg_temp.error_of($$SELECT delay_wheel.create_queue('q', options => '{"key": "k"}')$$);
SELECT code, message, hint FROM pg_temp.error_of($$SELECT delay_update(1, options => '{"mode": "at_most_once"}')$$);
SELECT count(*) FROM delay_wheel.tasks WHERE sql = 'SELECT 1';

-- an error says which option it was
\set VERBOSITY default
SELECT delay_schedule_task('SELECT 1', options => '{"timeout": "soon"}');

--
-- What is to be changed
--
SELECT delay_wheel.create_queue('options_turns', groups => true), delay_wheel.create_queue('options_mail', external => true);
BEGIN;
SELECT delay_schedule_task('SELECT 1', delay => '1 day', key => 'k', queue => 'options_turns', group_key => 'g') AS id \gset
SELECT delay_update(:id, delay => '2 days', tag => 't', priority => 2, max_attempts => 5, options => '{"retry_delay": "5 s", "retry_backoff": "fixed", "retry_max_delay": "1 hour", "retry_on": ["08"], "give_up_on": ["23"],
	"timeout": "1 s", "expires": "2 days", "skip_after": "1 day", "notify": "channel", "on_success": "SELECT $1", "on_failure": "SELECT $2", "group_key": "h", "new_key": "new"}');
SELECT id = :id AS same, due - now() AS due_in, priority, max_attempts, timeout, retry_delay, expires, key, tag, group_key, more FROM delay_wheel_data.task WHERE id >= :id;
SELECT delay_update(key => 'new', queue => 'options_turns', due => now() + interval '3 days', options => '{"new_key": "", "group_key": "", "notify": "other"}');
SELECT due - now() AS due_in, key, group_key, more->'notify' AS notify FROM delay_wheel_data.task WHERE id >= :id;
-- the old keys are free, and a key of another task is not
SELECT outcome FROM delay_scheduled(delay_schedule_task('SELECT 2', delay => '1 day', key => 'k', queue => 'options_turns'));
SAVEPOINT s;
SELECT delay_update(:id, options => '{"new_key": "k"}');
ROLLBACK TO s;
SELECT delay_update(:id, delay => '1 day', due => now());
ROLLBACK TO s;
SELECT delay_update(:id, options => '{"retry_backoff": ""}');
ROLLBACK TO s;
SELECT delay_update(key => 'k', queue => 'options_turns', options => '{"new_key": "l"}');
SELECT delay_update(:id, options => '{"new_key": "k"}');
SELECT key, sql FROM delay_wheel.tasks ORDER BY id;
ROLLBACK;
-- a message
BEGIN;
SELECT delay_send('options_mail', '1', delay => '1 day') AS id \gset
SELECT delay_update(:id, payload => '2', options => '{"notify": "channel", "on_success": "SELECT 1", "retry_delay": "1 s", "new_key": "k"}');
SELECT payload, key, retry_delay, more FROM delay_wheel_data.task WHERE id >= :id;
SELECT options, code, replace(message, :'id', 'N') AS message, detail FROM unnest(ARRAY['{"retry_on": ["08"]}', '{"group_key": "g"}']) options, pg_temp.error_of(format('SELECT delay_update(%s, options => %L)', :id, options));
ROLLBACK;
-- follow-ups run as the owner: only who may become the owner may set them
CREATE ROLE regress_dw_options_owner;
CREATE ROLE regress_dw_options_member LOGIN;
SELECT delay_wheel.allow('regress_dw_options_owner', 'regress_dw_options_member');
GRANT regress_dw_options_owner TO regress_dw_options_member;
SET ROLE regress_dw_options_owner;
SELECT delay_schedule_task('SELECT 1', delay => '1 day') AS id \gset
RESET ROLE;
SET SESSION AUTHORIZATION regress_dw_options_member;
SELECT delay_update(:id, options => '{"on_failure": "SELECT 1"}');
SELECT delay_cancel(:id);
RESET SESSION AUTHORIZATION;
SELECT delay_wheel.disallow('regress_dw_options_owner', 'regress_dw_options_member');
DROP ROLE regress_dw_options_member, regress_dw_options_owner;

--
-- Triggers: what is the same for all rows
--
CREATE TABLE options_row (id int, label text, at interval);
CREATE TRIGGER t AFTER INSERT ON options_row FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('1 day', 'SELECT $1', 'id', 'key=label', 'priority=5', 'max_attempts=3', 'retry_delay=1 s', 'retry_backoff=linear',
	'retry_max_delay=1 min', 'retry_on={08,40001}', 'give_up_on={23}', 'timeout=2 s', 'expires=1 hour', 'skip_after=2 hours', 'unique_for=1 day', 'notify=channel', 'on_success=SELECT $1', 'on_failure=SELECT $2', 'keep_settings={work_mem}');
BEGIN;
INSERT INTO options_row VALUES (1, 'a'), (2, NULL);
SELECT args, key, priority, max_attempts, timeout, retry_delay, expires, more FROM delay_wheel_data.task WHERE key = 'a' OR args = '{2}' ORDER BY id;
SELECT key FROM delay_wheel.unique_keys;
ROLLBACK;
DROP TRIGGER t ON options_row;
CREATE FUNCTION pg_temp.of_trigger(VARIADIC args text[]) RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TRIGGER t AFTER INSERT ON options_row FOR EACH ROW EXECUTE FUNCTION %s', args[1] || '(' || (SELECT string_agg(quote_literal(a), ', ' ORDER BY n) FROM unnest(args[2:]) WITH ORDINALITY r(a, n)) || ')');
	INSERT INTO options_row VALUES (1, 'a', '1 hour');
	DROP TRIGGER t ON options_row;
END $$;
SELECT args, code, message, hint FROM unnest(ARRAY['priority=10', 'max_attempts=x', 'timeout=soon', 'mode=at_most_once', 'arg_types={int}', 'starts=2030-01-01', 'retry_on=08', 'retry_on={x}', 'unique_for=1 day',
		'timeout=1 s'',''timeout=2 s', 'on_success=SELEC', 'prioritaet=1']) args,
	pg_temp.error_of(format($$SELECT pg_temp.of_trigger('delay_schedule_trigger', '1 day', 'SELECT 1', '%s')$$, args)) WHERE code <> '42601' OR message LIKE '%SELEC%';
SELECT args, code, message, hint FROM unnest(ARRAY['timeout=1 s', 'retry_on={08}', 'queue=options_mail', 'key=label'',''key=label']) args,
	pg_temp.error_of(format($$SELECT pg_temp.of_trigger('delay_send_trigger', '1 day', 'options_mail', '%s')$$, args)) WHERE code <> '42601';
CREATE TRIGGER t AFTER INSERT ON options_row FOR EACH ROW EXECUTE FUNCTION delay_send_trigger('at', 'options_mail', 'id', 'max_attempts=3', 'on_success=SELECT $1', 'expires=1 day');
BEGIN;
INSERT INTO options_row VALUES (1, 'a', '1 hour');
SELECT payload, max_attempts, expires, more FROM delay_wheel_data.task WHERE payload IS NOT NULL;
ROLLBACK;
DROP TABLE options_row;

--
-- What became of the last one
--
SELECT * FROM delay_scheduled();
BEGIN;
SELECT delay_schedule('1 day', 'SELECT 1') AS id \gset
SELECT id = :id AS this, outcome, due_at - now() AS due_in FROM delay_scheduled();
SELECT outcome FROM delay_scheduled(delay_schedule_task('SELECT 1', delay => '1 day', key => 'k'));
SELECT outcome FROM delay_scheduled(delay_schedule_task('SELECT 1', delay => '2 days', key => 'k'));
SELECT outcome FROM delay_scheduled(delay_schedule_task('SELECT 1', delay => '3 days', key => 'k', if_exists => 'later'));
SELECT outcome FROM delay_scheduled(delay_schedule_task('SELECT 1', delay => '1 days', key => 'k', if_exists => 'replace'));
SELECT outcome FROM delay_scheduled(delay_send('options_mail', '1', delay => '1 days'));
-- of each row its own
SELECT n, outcome FROM generate_series(1, 3) n, delay_scheduled(delay_schedule_task('SELECT 1', delay => '1 day', key => (n % 2)::text)) ORDER BY n;
SAVEPOINT s;
SELECT delay_schedule('2 days', 'SELECT 2') AS undone \gset
SAVEPOINT t;
RELEASE t;
SELECT due_at - now() AS due_in FROM delay_scheduled(:undone);
ROLLBACK TO s;
SELECT * FROM delay_scheduled();
ROLLBACK TO s;
SAVEPOINT t;
SELECT delay_schedule('2 days', 'SELECT 2') AS kept \gset
RELEASE t;
SAVEPOINT t;
ROLLBACK TO t;
SELECT due_at - now() AS due_in FROM delay_scheduled(:kept);
SELECT code, replace(message, :'id', 'N') AS message, detail ~ '^The transaction has scheduled task \d+ last\.$' AS which, hint FROM pg_temp.error_of(format('SELECT * FROM delay_scheduled(%s)', :id));
ROLLBACK;
SELECT * FROM delay_scheduled();

-- only in FROM: a target list would call it, and what it is called with, once for each column
SELECT (delay_scheduled(delay_schedule_task('SELECT 1', delay => '1 day', key => 'starred'))).*;
SELECT count(*) FROM delay_wheel.tasks WHERE key = 'starred';

--
-- Headers
--
CREATE TABLE options_trace (label text, trace text DEFAULT current_setting('delay_wheel.traceparent'));
SELECT delay_schedule_task('INSERT INTO options_trace VALUES (''task'')', options => '{"headers": {"traceparent": "00-aa-bb-01", "n": 1}, "on_success": "INSERT INTO options_trace VALUES (''follows'')"}') IS NOT NULL AS ok;
SELECT delay_schedule_task('INSERT INTO options_trace VALUES (''alone'')', options => '{"headers": {"traceparent": "00-cc-dd-01"}, "mode": "at_least_once"}') IS NOT NULL AS ok;
SELECT delay_schedule_task('INSERT INTO options_trace VALUES (''no text'')', options => '{"headers": {"traceparent": 7}}') IS NOT NULL AS ok;
SELECT delay_schedule('0', 'INSERT INTO options_trace VALUES (''none'')') IS NOT NULL AS ok;
SELECT pg_temp.wait_until_done();
-- what a task schedules belongs to its trace, if that is kept
SELECT delay_schedule_task($$SELECT delay_schedule_task('INSERT INTO options_trace VALUES (''kept'')', options => '{"keep_settings": ["delay_wheel.traceparent"]}')$$, options => '{"headers": {"traceparent": "00-ee-ff-01"}}') IS NOT NULL AS ok;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM options_trace WHERE label = ''kept'')');
SELECT * FROM options_trace ORDER BY label;
DROP TABLE options_trace;
BEGIN;
SELECT delay_schedule_task('SELECT 1', delay => '1 day', options => '{"headers": {"traceparent": "00-aa-bb-01", "n": 1}, "keep_settings": ["work_mem"]}') AS id \gset
SELECT headers, settings FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_update(:id, options => '{"headers": {"m": 2}}');
SELECT headers, settings FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_update(:id, options => '{"headers": {"traceparent": "00-11-22-01"}}');
SELECT headers, settings FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_update(:id, options => '{"headers": {}}');
SELECT headers, settings FROM delay_wheel.tasks WHERE id = :id;
SELECT options, code, message FROM unnest(ARRAY['{"headers": 1}', '{"headers": [1]}', '{"headers": "a"}']) options,
	pg_temp.error_of(format('SELECT delay_update(%s, options => %L)', :id, options));
SELECT code, message, detail FROM pg_temp.error_of(format('SELECT delay_update(%s, options => %L)', :id, format('{"headers": {"a": "%s"}}', repeat('x', 65536))));
SELECT code, message FROM pg_temp.error_of($$SELECT delay_send('options_mail', '1', headers => '[]')$$);
ROLLBACK;
SELECT delay_send('options_mail', '{"n": 1}', headers => '{"traceparent": "00-aa-bb-01", "version": 2}') IS NOT NULL AS ok, delay_send('options_mail', '{"n": 2}') IS NOT NULL AS plain;
CALL delay_await('options_mail', '1 min');
BEGIN;
SELECT payload, headers FROM delay_receive('options_mail', 2);
ROLLBACK;
CALL delay_await('options_mail', '1 min');
SELECT payload, headers FROM delay_lease('options_mail', 2, '1 hour', receiver => 'worker 1') ORDER BY payload;
SELECT payload, headers, receiver, settings FROM delay_wheel.tasks WHERE queue = 'options_mail' ORDER BY id;
SELECT count(delay_release(id, token)) FROM delay_wheel_data.task WHERE token IS NOT NULL;
SELECT payload, receiver FROM delay_wheel.tasks WHERE queue = 'options_mail' ORDER BY id;
CALL delay_await('options_mail', '1 min');
SELECT payload FROM delay_lease('options_mail', 1, '1 hour');
SELECT receiver FROM delay_wheel.tasks WHERE queue = 'options_mail' AND leased_until IS NOT NULL;
SELECT * FROM pg_temp.error_of($$SELECT * FROM delay_lease('options_mail', receiver => '')$$);
SELECT count(delay_cancel(id, stop_running => true)) FROM delay_wheel.tasks WHERE queue = 'options_mail';

--
-- Texts that say a delay or a time: a number alone is refused wherever a text is read
--
\pset null null
SELECT text, code, message FROM unnest(ARRAY['5000', E'5000\n', E'\t5000 ', '@ 5000', '+5', '-5.', '5000,', ',5000', '5000 @', '1 month 5000', '1 day -5', '1-2 3', '28.03.2027', '1e3', '.', '', '2027-01', '2027-01 09:00', '2027/13/01 09:00', '20271301 09:00',
	'20270301', 'tomorrow', '2027-02-30', '2027-01-01-01']) text, pg_temp.error_of(format('SELECT delay_schedule(%L::text, %L)', text, 'SELECT 1'));
SELECT text, at FROM unnest(ARRAY['2127-03-01', ' 2127-03-01 09:00', '2127/3/1 09:00', '21270301 09:00', '21270301T0900', '2127-3-1 9:00 pm']) text,
	LATERAL (SELECT due_at AT TIME ZONE current_setting('TimeZone') AS at FROM delay_scheduled(delay_schedule(text, 'SELECT 1'))) s;
SELECT text, delay_schedule(text, 'SELECT 1') > 0 AS ok FROM unnest(ARRAY['0', '0 ', '1-2', '1 12:00', 'PT5M', 'P1', '5 days ago', '5 days, 0', '@ 1 hour']) text;
SELECT * FROM pg_temp.error_of($$SELECT delay_schedule('soon'::text, 'SELECT 1')$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_reschedule(7, '5000'::text)$$);
SELECT options, code, message FROM unnest(ARRAY['{"timeout": "5000"}', '{"retry_delay": " 30"}', '{"expires": "7"}', '{"timeout": "0"}']) options,
	pg_temp.error_of(format('SELECT delay_schedule_task(%L, options => %L)', 'SELECT 1', options));
SELECT * FROM pg_temp.error_of($$SELECT delay_wheel.create_queue('options_turns', options => '{"per": "60"}')$$);
SELECT delay_cancel_all(due_from => '-infinity') IS NOT NULL AS ok;
-- errors of a type name the option, and a long name is cut
\set SHOW_CONTEXT always
SELECT delay_schedule_task('SELECT 1', options => '{"max_attempts": 99999999999}');
SELECT delay_schedule_task('SELECT 1', options => '{"arg_types": ["no_such_type"]}');
SELECT delay_every('options', '1 day', 'SELECT 1', options => '{"max_runs": 9223372036854775808}');
\set SHOW_CONTEXT errors
SELECT message FROM pg_temp.error_of(format('SELECT delay_schedule_task(%L, options => %L)', 'SELECT 1', format('{"%s": 1}', repeat('ä', 100))));

--
-- A trace that is kept, and one of headers: that of headers counts
--
BEGIN;
SET delay_wheel.traceparent = '00-session-01';
SELECT delay_schedule_task('SELECT 1', delay => '1 day', options => '{"headers": {"traceparent": "00-header-01"}, "keep_settings": ["delay_wheel.traceparent", "work_mem"]}') AS id \gset
SELECT settings FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_update(:id, sql_text => 'SELECT 2');
SELECT settings FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_schedule_task('SELECT 1', delay => '1 day', options => '{"keep_settings": ["delay_wheel.traceparent"]}') AS id \gset
SELECT delay_update(:id, options => '{"headers": {"n": 1}}');
SELECT headers, settings FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_every('options', '1 day', 'SELECT 1', options => '{"headers": {"n": 1}}') IS NOT NULL AS ok;
SELECT headers FROM delay_wheel.recurring;
ROLLBACK;

--
-- What a pending task has can be taken away
--
BEGIN;
SELECT delay_schedule_task('SELECT 1', delay => '1 day', tag => 't', options => '{"expires": "1 h", "skip_after": "1 h", "notify": "c", "on_success": "SELECT 1", "on_failure": "SELECT 1"}') AS id \gset
SELECT delay_update(:id, tag => '', options => '{"expires": "0", "skip_after": "0", "notify": "", "on_success": "", "on_failure": ""}');
SELECT tag, expires, more FROM delay_wheel_data.task WHERE id = :id;
SELECT options, message FROM unnest(ARRAY['{"expires": "-1 s"}', '{"skip_after": "-1 s"}']) options, pg_temp.error_of(format('SELECT delay_update(%s, options => %L)', :id, options));
SELECT options, message FROM unnest(ARRAY['{"expires": "0"}', '{"skip_after": "0"}', '{"notify": ""}', '{"on_success": ""}']) options, pg_temp.error_of(format('SELECT delay_schedule_task(%L, options => %L)', 'SELECT 1', options));
ROLLBACK;

--
-- User code that runs while a task is judged: names of settings stay those of the task's queue
--
SELECT delay_wheel.create_queue('options_keep', options => '{"keep_settings": ["options.tenant"]}');
SELECT count(delay_wheel.create_queue('options_keep' || i, options => format('{"keep_settings": ["options.other%s"]}', i)::jsonb)) FROM generate_series(1, 9) i;
CREATE FUNCTION options_evil() RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('options.depth', true) = '1' THEN
		PERFORM set_config('options.depth', '0', false);
		PERFORM delay_schedule_task('SELECT 1', delay => '1 day', queue => 'options_keep' || i) FROM generate_series(1, 9) i;
	END IF;
	RETURN 1;
END $$;
BEGIN;
SET LOCAL options.tenant = 'me';
SET LOCAL options.depth = '1';
SELECT delay_schedule_task('SELECT options_evil()', delay => '1 day', queue => 'options_keep', options => '{"check_sql": "plan"}') AS id \gset
SELECT settings FROM delay_wheel.tasks WHERE id = :id;
ROLLBACK;
SELECT count(delay_wheel.drop_queue('options_keep' || i)) FROM unnest(ARRAY['', '1', '2', '3', '4', '5', '6', '7', '8', '9']) i;
DROP FUNCTION options_evil;

--
-- A queue whose kind changes loses what it has not any more, and groups stay while tasks wait
--
SELECT delay_wheel.create_queue('options_turns', options => '{"timeout": "1 min", "batch": false, "keep_settings": ["work_mem"], "retry_on": ["40"], "groups": true}');
SELECT delay_schedule_task('SELECT 1', delay => '1 day', queue => 'options_turns', group_key => 'g') AS id \gset
SELECT delay_wheel.create_queue('options_turns', groups => false);
SELECT delay_cancel(:id);
SELECT delay_wheel.create_queue('options_turns', external => true, groups => false);
SELECT external, groups, timeout, batch, keep_settings, retry_on FROM delay_wheel.queues WHERE name = 'options_turns';
SELECT delay_wheel.create_queue('options_turns', external => true, receivers => '{public}', options => '{"lease": "1 min", "receive_timeout": "1 s", "notify_channel": "c"}');
SELECT delay_wheel.create_queue('options_turns', external => false);
SELECT external, receivers, lease, receive_timeout, notify_channel FROM delay_wheel.queues WHERE name = 'options_turns';

SELECT delay_wheel.drop_queue('options_turns'), delay_wheel.drop_queue('options_mail');
