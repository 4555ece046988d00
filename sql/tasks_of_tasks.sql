--
-- TASKS OF TASKS
-- A task may schedule, cancel and reschedule: part of its own transaction. It
-- is running itself, and can neither cancel nor see itself.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE TABLE nested_effect (label text, began timestamptz DEFAULT now());

-- a task that schedules the next one, five times
CREATE FUNCTION nested_chain(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO nested_effect VALUES ('chain ' || n);
	IF n < 5 THEN
		PERFORM delay_schedule('20 ms', 'SELECT nested_chain($1)', n + 1);
	END IF;
END
$$;
SELECT delay_schedule('0', 'SELECT nested_chain(1)') > 0 AS ok;
SELECT pg_temp.wait_for('count(*) = 5 FROM nested_effect');
SELECT label, began >= lag(began) OVER (ORDER BY label) + interval '20 ms' AS after_the_last FROM nested_effect ORDER BY label;

-- what a failing task scheduled, cancelled and moved is undone with it; also
-- when it fails at its commit
CREATE TABLE nested_unique (i int UNIQUE DEFERRABLE INITIALLY DEFERRED);
BEGIN;
SELECT delay_schedule('1 day', $$INSERT INTO nested_effect VALUES ('NEVER')$$) AS cancelled \gset
SELECT delay_schedule('1 day', $$INSERT INTO nested_effect VALUES ('NEVER')$$) AS moved \gset
SELECT delay_schedule('0', format($$SELECT delay_schedule('0', 'INSERT INTO nested_effect VALUES (''NEVER: of a failing one'')'),
	delay_cancel(%s), delay_reschedule(%s, '0'); SELECT 1 / 0$$, :cancelled, :moved)) > 0 AS ok;
SELECT delay_schedule('0', format($$SELECT delay_schedule('0', 'INSERT INTO nested_effect VALUES (''NEVER: of one that fails at its commit'')'),
	delay_cancel(%s), delay_reschedule(%s, '0'); INSERT INTO nested_unique VALUES (1), (1)$$, :cancelled, :moved)) > 0 AS ok;
COMMIT;
SELECT pg_temp.wait_until_done();
SELECT sqlstate, message FROM delay_wheel.failed ORDER BY id;
DELETE FROM delay_wheel_data.failed_task;
SELECT count(*) AS untouched FROM delay_wheel.tasks WHERE due > now() + interval '23 hours';

UPDATE delay_wheel_data.task SET sql = $$INSERT INTO nested_effect VALUES ('the one that was moved')$$ WHERE id = :moved;
-- undone by itself, in a block; the rest of it stands
SELECT delay_schedule('0', format($$DO $d$
	BEGIN
		PERFORM delay_schedule('0', 'INSERT INTO nested_effect VALUES (''of a task'')');
		BEGIN
			PERFORM delay_schedule('0', 'INSERT INTO nested_effect VALUES (''NEVER: of a block'')'), delay_cancel(%s);
			RAISE EXCEPTION 'undone';
		EXCEPTION WHEN raise_exception THEN
			NULL;
		END;
	END$d$;
	INSERT INTO nested_effect VALUES (delay_cancel(%s) || ', ' || delay_cancel(%s)), ('moved: ' || delay_reschedule(%s, '0.1 s'))$$,
	:cancelled, :cancelled, :cancelled, :moved)) > 0 AS ok;
SELECT pg_temp.wait_for($$count(*) = 1 FROM nested_effect WHERE label = 'the one that was moved'$$);

-- itself
SELECT delay_schedule('0', $$
	INSERT INTO nested_effect
	SELECT concat_ws(' ', 'cancel:', delay_cancel(id), 'reschedule:', delay_reschedule(id, '0'), delay_reschedule(id, now()),
		'sees itself:', EXISTS (SELECT FROM delay_wheel.tasks t WHERE t.id = s.id), 'is running:', (SELECT count(*) FROM delay_wheel.running r WHERE r.task = s.id AND r.pid = pg_backend_pid()))
	FROM (SELECT current_setting('delay_wheel.task_id')::bigint AS id) s$$) > 0 AS ok;
SELECT delay_schedule('0', $$DELETE FROM delay_wheel_data.task WHERE id = current_setting('delay_wheel.task_id')::bigint; INSERT INTO nested_effect VALUES ('deleted itself')$$) > 0 AS ok;
SELECT delay_schedule('0', $$UPDATE delay_wheel_data.task SET due = now() WHERE id = current_setting('delay_wheel.task_id')::bigint; INSERT INTO nested_effect VALUES ('moved itself')$$) > 0 AS ok;
SELECT pg_temp.wait_until_done();
SELECT delay_schedule('0', $$TRUNCATE delay_wheel_data.task; INSERT INTO nested_effect VALUES ('truncated all')$$) > 0 AS ok;
SELECT pg_temp.wait_for($$EXISTS (SELECT FROM nested_effect WHERE label = 'truncated all')$$);

-- many at once
SELECT delay_schedule('0', $$SELECT count(delay_schedule('0', 'INSERT INTO nested_effect VALUES (''many'')')) FROM generate_series(1, 3000)$$) > 0 AS ok;
SELECT pg_temp.wait_for($$count(*) = 3000 FROM nested_effect WHERE label = 'many'$$);
SELECT label, count(*) FROM nested_effect WHERE label NOT LIKE 'chain%' GROUP BY label ORDER BY label COLLATE "C";
SELECT sql, sqlstate, message FROM delay_wheel.failed ORDER BY id;
SELECT count(*) AS pending FROM delay_wheel.tasks;

DROP TABLE nested_effect, nested_unique;
DROP FUNCTION nested_chain;
