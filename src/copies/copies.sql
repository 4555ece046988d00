/*---- Tasks that came with a copy ----*/

CREATE FUNCTION delay_wheel.arm() RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_arm' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_wheel.arm() FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.arm() IS
'makes tasks that came with a copy of another database (a restored dump, CREATE DATABASE ... TEMPLATE, logical replication, pg_upgrade) this database''s own, if this transaction commits: how many. Until then they are not run. Those that are overdue run at once, begun in the order of their due times, so look before: SELECT * FROM delay_wheel.tasks WHERE NOT armed; delay_cancel and delay_reschedule work on them. Arms the tasks of all roles whose rights the caller has, of all roles for a superuser; tasks of roles that do not exist are left, with a warning. Only for superusers and the owner of the function, unless granted';
