--
-- ARM
-- Tasks stamped with another database wait until delay_wheel.arm() makes them this
-- one's own; then each runs once. (Real copies are made by TAP tests.)
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE TABLE arm_effect (label text, who name DEFAULT current_user);
GRANT ALL ON arm_effect TO PUBLIC;
CREATE ROLE regress_dw_anna LOGIN;
CREATE ROLE regress_dw_bert LOGIN;
CREATE ROLE regress_dw_carl LOGIN;
-- as if a task had come with a copy
CREATE FUNCTION pg_temp.copied(owner text, label text, due timestamptz DEFAULT now() - interval '1 day') RETURNS bigint
LANGUAGE sql AS $$
INSERT INTO delay_wheel_data.task (due, origin, owner, sql)
	VALUES (due, delay_wheel_internal.origin() # 1, owner::regrole, format('INSERT INTO public.arm_effect VALUES (%L)', label)) RETURNING id
$$;
CREATE FUNCTION pg_temp.unarmed() RETURNS boolean
LANGUAGE sql AS $$ SELECT unarmed FROM delay_wheel.status WHERE database = current_database() $$;

-- nothing to arm
SELECT delay_wheel.arm(), pg_temp.unarmed();

-- overdue for a day, but not run; the view tells, and so does status
SELECT pg_temp.copied('regress_dw_anna', 'armed by a superuser') AS anna \gset
SELECT pg_temp.copied('regress_dw_bert', 'armed by a superuser') AS bert \gset
SELECT pg_temp.wait_for('pg_temp.unarmed()');
SELECT owner, armed FROM delay_wheel.tasks ORDER BY owner;
-- (the timer has been here, and has passed them over)
SELECT delay_schedule('0', $$INSERT INTO public.arm_effect VALUES ('own')$$) > 0 AS ok;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM arm_effect)');
SELECT label FROM arm_effect;
-- rolled back, nothing is armed
BEGIN;
SELECT delay_wheel.arm();
SELECT delay_wheel.arm();
ROLLBACK;
BEGIN;
SAVEPOINT a;
SELECT delay_wheel.arm();
ROLLBACK TO a;
COMMIT;
SELECT owner, armed FROM delay_wheel.tasks ORDER BY owner;
SELECT pg_temp.unarmed();
SELECT delay_wheel.arm();
SELECT pg_temp.wait_until_done();
SELECT * FROM arm_effect WHERE label <> 'own' ORDER BY who;
SELECT delay_wheel.arm(), pg_temp.unarmed();

-- what is not due yet stays
SELECT pg_temp.copied('regress_dw_anna', 'NEVER', now() + interval '1 hour') AS later \gset
SELECT delay_wheel.arm();
SELECT id = :later AS later, armed FROM delay_wheel.tasks;
SELECT delay_cancel(:later);

-- cancelled or moved before; moved, it stays unarmed
TRUNCATE arm_effect;
SELECT pg_temp.copied('regress_dw_anna', 'NEVER') AS cancelled \gset
SELECT pg_temp.copied('regress_dw_anna', 'moved') AS moved \gset
SELECT delay_cancel(:cancelled), delay_reschedule(:moved, '0');
SELECT delay_schedule('0', $$INSERT INTO public.arm_effect VALUES ('own')$$) > 0 AS ok;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM arm_effect)');
SELECT id = :moved AS moved, armed FROM delay_wheel.tasks;
SELECT delay_reschedule(:moved, '1 hour');
SELECT delay_wheel.arm();
SELECT armed FROM delay_wheel.tasks WHERE id = :moved;
SELECT delay_reschedule(:moved, '0');
SELECT pg_temp.wait_until_done();
SELECT label FROM arm_effect ORDER BY 1;

-- with arguments, a key, a long text, and all else that a row can have
TRUNCATE arm_effect;
INSERT INTO delay_wheel_data.task (due, origin, owner, sql, args, arg_types, search_path, key, tag, more)
	VALUES (now(), 1, 'regress_dw_anna', 'INSERT INTO arm_effect VALUES (length($1)) --' || repeat('0123456789', 10000),
		ARRAY[repeat('x', 100000)], '{text}', 'public', 'key', 'tag', '{"a": 1}') RETURNING id \gset
UPDATE delay_wheel_data.task SET due = now() + interval '1 hour' WHERE id = :id;
CREATE TABLE arm_row AS SELECT to_jsonb(t) - 'origin' AS j FROM delay_wheel_data.task t;
SELECT delay_wheel.arm();
SELECT j = to_jsonb(t) - 'origin' AS same, origin = delay_wheel_internal.origin() AS ours FROM delay_wheel_data.task t, arm_row;
SELECT delay_reschedule(:id, '0');
SELECT pg_temp.wait_until_done();
SELECT * FROM arm_effect;

-- by whom: nobody unless allowed, and then of those whose rights one has
TRUNCATE arm_effect;
SELECT pg_temp.copied('regress_dw_anna', 'anna'), pg_temp.copied('regress_dw_bert', 'bert'), pg_temp.copied('regress_dw_carl', 'NEVER') AS carl \gset
SET SESSION AUTHORIZATION regress_dw_anna;
SELECT code, message FROM pg_temp.error_of('SELECT delay_wheel.arm()');
RESET SESSION AUTHORIZATION;
GRANT EXECUTE ON FUNCTION delay_wheel.arm() TO regress_dw_anna;
GRANT regress_dw_bert TO regress_dw_anna;
SET SESSION AUTHORIZATION regress_dw_anna;
SELECT delay_wheel.arm();
SELECT pg_temp.wait_for('count(*) = 2 FROM arm_effect');
SELECT delay_wheel.arm();
RESET SESSION AUTHORIZATION;
SELECT * FROM arm_effect ORDER BY label;
SELECT owner, armed FROM delay_wheel.tasks;
SELECT pg_temp.unarmed();

-- the owner is gone: they are left, with a warning, for the DBA to decide
SELECT pg_temp.copied('regress_dw_bert', 'bert') \gset
UPDATE delay_wheel_data.task SET owner = '4294000000' WHERE id = :carl;
SELECT delay_wheel.arm();
SELECT owner, armed FROM delay_wheel.tasks WHERE NOT armed;
SELECT pg_temp.unarmed();
UPDATE delay_wheel_data.task SET owner = 'regress_dw_bert', sql = $$INSERT INTO public.arm_effect VALUES ('of carl')$$ WHERE id = :carl;
SELECT delay_wheel.arm();
SELECT pg_temp.wait_until_done();
SELECT * FROM arm_effect ORDER BY label;

BEGIN READ ONLY;
SELECT delay_wheel.arm();
ROLLBACK;

SELECT count(*) AS pending FROM delay_wheel_data.task;
SELECT count(*) AS failed FROM delay_wheel_data.failed_task;
REVOKE EXECUTE ON FUNCTION delay_wheel.arm() FROM regress_dw_anna;
DROP TABLE arm_effect, arm_row;
DROP ROLE regress_dw_anna, regress_dw_bert, regress_dw_carl;
