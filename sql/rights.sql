/*---- Who may schedule ----*/

CREATE FUNCTION delay_wheel.allow(VARIADIC roles name[]) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_allow' LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION delay_wheel.allow(name[]) FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.allow(name[]) IS
'allows roles to schedule, cancel and reschedule tasks of their own: grants EXECUTE on all functions of the extension that lie in the schema given to CREATE EXTENSION, but those for administrators: delay_arm, delay_queue, delay_queue_drop, delay_pause_database, delay_resume_database. Names are as in pg_roles, upper and lower case as they are; public stands for all roles. Only for superusers and the owner of the functions, for others an error, SQLSTATE 42501. No name at all is one, 42883, an empty array (VARIADIC) another, 22023, a null name, 22004, and a role that does not exist, 42704. Plain GRANT does as well; a dump carries the grants. On Citus the roles become members of the role delay_wheel_user, which has these grants on all nodes, and on nodes that are added later; all of it is undone by ROLLBACK; public, and roles with NOINHERIT, are errors there, 0A000 and 55000. With citus.enable_ddl_propagation off only this node is concerned. For many roles allow a group once, and grant that to them: a call for each of thousands takes minutes, as so many GRANTs would. Returns true';

CREATE FUNCTION delay_wheel.disallow(VARIADIC roles name[]) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_disallow' LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION delay_wheel.disallow(name[]) FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.disallow(name[]) IS
'takes back what delay_wheel.allow(name[]) granted, on all nodes of Citus; what a role may do as a member of another one, or since all may, it still may. Tasks that are pending run nevertheless. A role that was allowed can be dropped after this (or after DROP OWNED). Returns true';
