--
-- INSTALL
-- What the extension brings along, all of it with a comment; created, used,
-- dropped and created again, also in one transaction.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

-- its objects (newer majors count the types of its tables, too)
SELECT object FROM pg_depend, pg_describe_object(classid, objid, 0) object
	WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
		AND classid <> 'pg_type'::regclass AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'delay_wheel')
	ORDER BY object COLLATE "C";
-- none without a comment: functions, tables, views, the schema, the extension
SELECT pg_describe_object(classid, objid, 0) AS object_without_comment
	FROM pg_depend WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
		AND classid <> 'pg_type'::regclass AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'delay_wheel')
		AND obj_description(objid, classid::regclass::text) IS NULL
		ORDER BY 1;
-- columns whose name does not say it all: those of the catalog have one each
SELECT attrelid::regclass, attname AS column_without_comment
	FROM pg_attribute WHERE attrelid = 'delay_wheel_data.task'::regclass AND attnum > 0 AND NOT attisdropped
		AND col_description(attrelid, attnum) IS NULL;
SELECT obj_description(oid, 'pg_extension') FROM pg_extension WHERE extname = 'delay_wheel';
-- settings
SELECT name, boot_val AS setting, unit, context, vartype, short_desc <> '' AS described
	FROM pg_settings WHERE name LIKE 'delay\_wheel.%' AND name <> 'delay_wheel.fail_batches' ORDER BY name COLLATE "C";
SET delay_wheel.no_such_setting = 1;
-- everybody may look, nobody but superusers may change
SELECT c.oid::regclass AS relation, p.privilege
	FROM pg_class c, unnest('{SELECT, INSERT, UPDATE, DELETE, TRUNCATE}'::text[]) p(privilege)
	WHERE relnamespace IN ('delay_wheel'::regnamespace, 'delay_wheel_data'::regnamespace, 'delay_wheel_internal'::regnamespace) AND relkind IN ('r', 'v', 'f', 'S')
		AND CASE WHEN relkind = 'S' THEN p.privilege IN ('SELECT', 'UPDATE') AND has_sequence_privilege('public', c.oid, p.privilege)
			ELSE has_table_privilege('public', c.oid, p.privilege) END
	ORDER BY c.oid::regclass::text COLLATE "C", 2;
-- what a dump takes along
SELECT c::regclass, condition FROM pg_extension e, unnest(extconfig, extcondition) u(c, condition) WHERE extname = 'delay_wheel' ORDER BY c::regclass::text COLLATE "C";

-- created in the transaction that already uses it
CREATE TABLE install_effect (label text);
BEGIN;
DROP EXTENSION delay_wheel;
CREATE EXTENSION delay_wheel;
SELECT delay_schedule('0', $$INSERT INTO install_effect VALUES ('scheduled in the transaction of CREATE EXTENSION')$$);
SELECT delay_cancel(delay_schedule('0', $$INSERT INTO install_effect VALUES ('NEVER')$$));
COMMIT;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM install_effect)');
-- rolled back: as if nothing had happened
SELECT delay_schedule('1 hour', $$INSERT INTO install_effect VALUES ('NEVER')$$) AS id \gset
BEGIN;
DROP EXTENSION delay_wheel;
ROLLBACK;
BEGIN;
DROP EXTENSION delay_wheel;
CREATE EXTENSION delay_wheel;
SELECT delay_schedule('0', $$INSERT INTO install_effect VALUES ('NEVER')$$) > 0 AS ok;
ROLLBACK;
SELECT delay_reschedule(:id, '2 hours'), delay_cancel(:id);
SELECT delay_schedule('0', $$INSERT INTO install_effect VALUES ('after the rollback')$$) > 0 AS ok;
SELECT pg_temp.wait_for('count(*) = 2 FROM install_effect');

-- dropped with tasks pending and due: they are gone with it
SELECT delay_schedule('1 hour', 'SELECT 1') > 0 AS ok;
BEGIN;
SELECT delay_schedule('0', $$INSERT INTO install_effect VALUES ('NEVER')$$) > 0 AS ok;
DROP EXTENSION delay_wheel;
COMMIT;
\set VERBOSITY terse
SELECT delay_schedule('0', 'SELECT 1');
\set VERBOSITY default
-- into a schema of its own, and used in the same session
CREATE SCHEMA install_schema;
CREATE EXTENSION delay_wheel SCHEMA install_schema;
SELECT install_schema.delay_schedule('0', $$INSERT INTO install_effect VALUES ('scheduled by a function in its own schema')$$);
SELECT pg_temp.wait_for('count(*) = 3 FROM install_effect');
DROP EXTENSION delay_wheel;
DROP SCHEMA install_schema;
CREATE EXTENSION delay_wheel;
SELECT delay_schedule('0', $$INSERT INTO install_effect VALUES ('scheduled after another CREATE EXTENSION')$$);
SELECT pg_temp.wait_for('count(*) = 4 FROM install_effect');
-- a second time
CREATE EXTENSION delay_wheel;

-- tables of its own are local to each node: no shards of them, whatever else is there
CREATE TABLE delay_wheel_data.task_102008 (id bigint);
CREATE TABLE IF NOT EXISTS delay_wheel_data.failed_task_7 (LIKE delay_wheel_data.failed_task);
CREATE TABLE delay_wheel_data.two_phase (n int);
CREATE TABLE delay_wheel_data.two_phase_102009 (n int);
CREATE TABLE delay_wheel_data.task_x1 (n int);
DROP TABLE delay_wheel_data.two_phase, delay_wheel_data.two_phase_102009, delay_wheel_data.task_x1;

SELECT label FROM install_effect;
DROP TABLE install_effect;
