--
-- CANCEL
-- delay_cancel and delay_reschedule: their answers, their rights, and that
-- a sleeping timer hears of a task that is moved before what it sleeps for.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE TABLE cancel_effect (label text, began timestamptz DEFAULT now());
GRANT ALL ON cancel_effect TO PUBLIC;

-- cancelled, then gone; never there; done
SELECT delay_schedule('1 hour', 'SELECT 1') AS id \gset
SELECT delay_cancel(:id);
SELECT delay_cancel(:id), delay_reschedule(:id, '0'), delay_reschedule(:id, now());
SELECT delay_cancel(-1), delay_cancel(0), delay_cancel(9223372036854775807), delay_reschedule(-1, '0');
SELECT delay_schedule('0', $$INSERT INTO cancel_effect VALUES ('done')$$) AS id \gset
SELECT pg_temp.wait_until_done();
SELECT delay_cancel(:id), delay_reschedule(:id, '0');

-- one of the near future, one of the far, and one beyond what is in memory
SELECT count(*), string_agg(DISTINCT delay_cancel(id), ',')
	FROM (SELECT delay_schedule(d, $$INSERT INTO cancel_effect VALUES ('NEVER')$$) AS id
		FROM unnest('{0.2 s, 30 min, 3 hours, 1 year}'::interval[]) d) s;

-- moved before everything that the timer sleeps for; the id stays
SELECT count(delay_schedule(d, $$INSERT INTO cancel_effect VALUES ('moved near')$$))
	FROM unnest('{1 hour, 3 hours, 1 year}'::interval[]) d;
SELECT count(*), bool_and(delay_reschedule(id, '0.2 s') = 'moved') AS moved FROM delay_wheel.tasks;
SELECT pg_temp.wait_for('count(*) = 3 FROM cancel_effect WHERE label = ''moved near''');
SELECT count(*), bool_and(delay_reschedule(id, '2000-01-01') = 'moved') AS moved
	FROM (SELECT delay_schedule(d, $$INSERT INTO cancel_effect VALUES ('moved into the past')$$) AS id
		FROM unnest('{1 hour, 3 hours, 1 year}'::interval[]) d) s;
SELECT pg_temp.wait_for('count(*) = 3 FROM cancel_effect WHERE label = ''moved into the past''');

-- moved away while it is near, and back: runs once, not before its last due
SELECT delay_schedule('2 s', $$INSERT INTO cancel_effect VALUES ('to and fro')$$) AS id \gset
SELECT delay_reschedule(:id, '1 hour'), delay_reschedule(:id, '5 years'), delay_reschedule(:id, '0.1 s'), delay_reschedule(:id, '0.6 s');
SELECT due AS to_and_fro FROM delay_wheel.tasks WHERE id = :id \gset
SELECT pg_temp.wait_for('EXISTS (SELECT FROM cancel_effect WHERE label = ''to and fro'')');
SELECT count(*), bool_and(began >= :'to_and_fro') AS not_early FROM cancel_effect WHERE label = 'to and fro';

-- everything else of the task stays as it was
SET search_path = public, pg_catalog;
SELECT delay_schedule('1 hour', 'INSERT INTO cancel_effect VALUES (left($1, $2))', repeat('long', 100000), 4) AS id \gset
RESET search_path;
SELECT to_jsonb(t) - 'due' AS before FROM delay_wheel_data.task t WHERE id = :id \gset
SELECT delay_reschedule(:id, '2 hours');
SELECT to_jsonb(t) - 'due' = :'before'::jsonb AS same, due > now() + interval '1 hour 30 min' AS moved FROM delay_wheel_data.task t WHERE id = :id;
SELECT delay_reschedule(:id, '0');
SELECT pg_temp.wait_for('EXISTS (SELECT FROM cancel_effect WHERE label = ''long'')');

--
-- Rights: members of the role that scheduled it, and superusers
--
CREATE ROLE regress_dw_owner LOGIN;
CREATE ROLE regress_dw_member LOGIN IN ROLE regress_dw_owner;
CREATE ROLE regress_dw_noinherit LOGIN NOINHERIT IN ROLE regress_dw_owner;
CREATE ROLE regress_dw_other LOGIN;
SELECT delay_wheel.allow('regress_dw_owner', 'regress_dw_member', 'regress_dw_noinherit', 'regress_dw_other');
SET SESSION AUTHORIZATION regress_dw_owner;
SELECT delay_schedule('1 hour', 'INSERT INTO cancel_effect VALUES (current_user)') AS id \gset
SET SESSION AUTHORIZATION regress_dw_other;
SELECT code, replace(message, :'id', 'N') AS message, detail FROM pg_temp.error_of(format('SELECT delay_cancel(%s)', :id));
SELECT code, replace(message, :'id', 'N') AS message, detail FROM pg_temp.error_of(format('SELECT delay_reschedule(%s, ''0'')', :id));
SELECT code, replace(message, :'id', 'N') AS message, detail FROM pg_temp.error_of(format('SELECT delay_reschedule(%s, now())', :id));
SET SESSION AUTHORIZATION regress_dw_noinherit;
SELECT code, replace(message, :'id', 'N') AS message FROM pg_temp.error_of(format('SELECT delay_cancel(%s)', :id));
SET ROLE regress_dw_owner;
SELECT delay_reschedule(:id, '2 hours');
SET SESSION AUTHORIZATION regress_dw_member;
SELECT delay_reschedule(:id, '3 hours');
RESET SESSION AUTHORIZATION;
SELECT delay_reschedule(:id, '4 hours');
-- whoever moves it: it stays the owner's
SELECT owner, due > now() + interval '3 hours 30 min' AS moved FROM delay_wheel.tasks WHERE id = :id;
SET SESSION AUTHORIZATION regress_dw_member;
SELECT delay_reschedule(:id, '0');
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM cancel_effect WHERE label = ''regress_dw_owner'')');
SET SESSION AUTHORIZATION regress_dw_owner;
SELECT delay_schedule('1 hour', 'SELECT 1') AS id \gset
SELECT delay_schedule('1 hour', 'SELECT 1') AS id2 \gset
SET SESSION AUTHORIZATION regress_dw_member;
SELECT delay_cancel(:id);
RESET SESSION AUTHORIZATION;
SELECT delay_cancel(:id2);
-- what is no task is gone, for everybody
SET SESSION AUTHORIZATION regress_dw_other;
SELECT delay_cancel(:id);
RESET SESSION AUTHORIZATION;

SELECT count(*) AS pending, count(*) FILTER (WHERE due > now()) FROM delay_wheel.tasks;
SELECT label, count(*) FROM cancel_effect GROUP BY label ORDER BY label COLLATE "C";
DROP TABLE cancel_effect;
SELECT delay_wheel.disallow('regress_dw_owner', 'regress_dw_member', 'regress_dw_noinherit', 'regress_dw_other');
DROP ROLE regress_dw_owner, regress_dw_member, regress_dw_noinherit, regress_dw_other;
