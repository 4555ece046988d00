/* delay_wheel--1.1--1.2.sql: what came with 1.2: views that hold against strangers */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION delay_wheel UPDATE TO '1.2'" to load this file. \quit

/*---- Default privileges: this stands first, its call last ----*/

-- takes back what ALTER DEFAULT PRIVILEGES grants on what is created from here on, see 1.0
CREATE FUNCTION delay_wheel.revoke_defaults() RETURNS void
AS 'MODULE_PATHNAME', 'dw_revoke_new_defaults' LANGUAGE C
SET search_path = pg_catalog, pg_temp;

/*---- New objects go here, above the next heading, with GRANTs to PUBLIC only ----*/

/*---- Comments that said too much, or not enough ----*/

COMMENT ON FUNCTION @extschema@.delay_arm() IS
'makes tasks that came with a copy of another database (a restored dump, CREATE DATABASE ... TEMPLATE, logical replication, pg_upgrade) this database''s own, if this transaction commits: how many. Until then they are not run. Those that are overdue run at once, begun in the order of their due times, so look before: SELECT * FROM delay_wheel.tasks WHERE NOT armed; delay_cancel and delay_reschedule work on them. Arms the tasks of all roles whose rights the caller has, of all roles for a superuser; tasks of roles that do not exist are left, with a warning. Only for superusers and the owner of the function, unless granted';

COMMENT ON FUNCTION @extschema@.delay_resume(text) IS
'ends what delay_pause with the same argument began, if this transaction commits: tasks that are overdue run at once, at the rate of their queue, begun in the order of their due times: where several executors work off a queue (max_running is not 1), one may be done before another that was due earlier. What is paused otherwise, too (queue, role, database), stays paused. If there is no such pause nothing changes. Waits and rights as in delay_pause';

COMMENT ON FUNCTION delay_wheel.allow(name[]) IS
'allows roles to schedule, cancel and reschedule tasks of their own: grants EXECUTE on all functions of the extension that lie in the schema given to CREATE EXTENSION, but those for administrators: delay_arm, delay_queue, delay_queue_drop, delay_pause_database, delay_resume_database. Names are as in pg_roles, upper and lower case as they are; public stands for all roles. Only for superusers and the owner of the functions, for others an error, SQLSTATE 42501. No name at all is one, 42883, an empty array (VARIADIC) another, 22023, a null name, 22004, and a role that does not exist, 42704. Plain GRANT does as well; a dump carries the grants. For many roles allow a group once, and grant that to them: a call for each of thousands takes minutes, as so many GRANTs would';

/*---- The end ----*/

SELECT delay_wheel.revoke_defaults();
DROP FUNCTION delay_wheel.revoke_defaults();

-- GRANTs to certain roles go below
