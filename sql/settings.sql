--
-- SETTINGS
-- Values, who may set what, what is refused; how long a task may take.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

SELECT name, boot_val, min_val, max_val, enumvals, context
	FROM pg_settings WHERE name IN ('delay_wheel.enabled', 'delay_wheel.start_after_recovery',
		'delay_wheel.default_timeout', 'delay_wheel.log_min_duration', 'delay_wheel.turns_ahead')
	ORDER BY name COLLATE "C";

-- values that there are not
SELECT command, code FROM unnest(ARRAY[
		'SET delay_wheel.default_timeout = -1', 'SET delay_wheel.log_min_duration = -2',
		'SET delay_wheel.enabled = perhaps', 'SET delay_wheel.start_after_recovery = off']) command, pg_temp.error_of(command);
ALTER SYSTEM SET delay_wheel.start_after_recovery = 'off';
ALTER SYSTEM SET delay_wheel.turns_ahead = 0;
-- tools that keep settings in YAML have such words for on and off
ALTER SYSTEM SET delay_wheel.start_after_recovery = 'True';
ALTER SYSTEM SET delay_wheel.start_after_recovery = 'yes';
ALTER SYSTEM SET delay_wheel.start_after_recovery = '1';
ALTER SYSTEM RESET delay_wheel.start_after_recovery;
ALTER SYSTEM SET delay_wheel.history = 'False';
ALTER SYSTEM SET delay_wheel.history = 'no';
ALTER SYSTEM SET delay_wheel.history = '0';
ALTER SYSTEM RESET delay_wheel.history;
SET delay_wheel.history = 'False';
SHOW delay_wheel.history;
RESET delay_wheel.history;
-- not in a session
SET delay_wheel.start_after_recovery = 'hold';
SET delay_wheel.turns_ahead = 3;
SET delay_wheel.max_executors = 3;
SET delay_wheel.slots = 60;

-- who may do what: the service is the superuser's, a timeout one's own
CREATE ROLE regress_dw_settings LOGIN;
SELECT delay_wheel.allow('regress_dw_settings');
CREATE TABLE settings_effect (label text);
GRANT ALL ON settings_effect TO regress_dw_settings;
SET ROLE regress_dw_settings;
SET delay_wheel.enabled = off;
SET delay_wheel.log_min_duration = 0;
ALTER ROLE regress_dw_settings SET delay_wheel.enabled = off;
SET delay_wheel.default_timeout = '1min';
SHOW delay_wheel.default_timeout;
RESET delay_wheel.default_timeout;
-- the session's value is not the task's
SET delay_wheel.default_timeout = '1ms';
SELECT delay_schedule('0', $$SELECT pg_sleep(0.05); INSERT INTO settings_effect VALUES ('no limit')$$) > 0 AS ok;
RESET delay_wheel.default_timeout;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM settings_effect)');
RESET ROLE;

-- of the timeouts that a task does not have itself, the shorter one counts
CREATE ROLE regress_dw_settings_default LOGIN;
ALTER ROLE regress_dw_settings_default SET delay_wheel.default_timeout = '20ms';
ALTER ROLE regress_dw_settings_default SET statement_timeout = '1h';
CREATE ROLE regress_dw_settings_statement LOGIN;
ALTER ROLE regress_dw_settings_statement SET delay_wheel.default_timeout = '1h';
ALTER ROLE regress_dw_settings_statement SET statement_timeout = '20ms';
CREATE ROLE regress_dw_settings_own LOGIN;
ALTER ROLE regress_dw_settings_own SET delay_wheel.default_timeout = '20ms';
SELECT delay_wheel.allow('regress_dw_settings_default', 'regress_dw_settings_statement');
GRANT ALL ON settings_effect TO PUBLIC;
SET ROLE regress_dw_settings_default;
SELECT delay_schedule('0', 'SELECT pg_sleep(600)') > 0 AS ok;
SET ROLE regress_dw_settings_statement;
SELECT delay_schedule('0', 'SELECT pg_sleep(600)') > 0 AS ok;
RESET ROLE;
-- a task with one of its own, until there is a function for that
INSERT INTO delay_wheel_data.task (due, owner, timeout, sql)
	VALUES (now(), 'regress_dw_settings_own', 3600000, $$SELECT pg_sleep(0.2); INSERT INTO settings_effect VALUES ('its own')$$);
SELECT pg_temp.wait_for($$count(*) = 2 FROM delay_wheel.failed WHERE owner::text LIKE 'regress_dw_settings%'$$);
SELECT pg_temp.wait_for($$EXISTS (SELECT FROM settings_effect WHERE label = 'its own')$$);
SELECT owner, sqlstate, message FROM delay_wheel.failed WHERE owner::text LIKE 'regress_dw_settings%' ORDER BY owner::text COLLATE "C";
SELECT label FROM settings_effect;

DELETE FROM delay_wheel_data.failed_task WHERE owner::text LIKE 'regress_dw_settings%';
DROP TABLE settings_effect;
SELECT pg_temp.wait_until_done();
SELECT delay_wheel.disallow('regress_dw_settings', 'regress_dw_settings_default', 'regress_dw_settings_statement');
DROP ROLE regress_dw_settings, regress_dw_settings_default, regress_dw_settings_statement, regress_dw_settings_own;
