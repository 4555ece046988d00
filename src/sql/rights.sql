/*---- Who may schedule ----*/

CREATE FUNCTION delay_wheel.allow(VARIADIC roles name[]) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_allow' LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION delay_wheel.allow(name[]) FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.allow(name[]) IS
'allows roles to use delay_wheel, for tasks of their own: grants INSERT on the view delay_wheel.tasks, and USAGE on the schema given to CREATE EXTENSION to roles that do not have it. INSERT is the right that all functions in that schema ask for; the view itself cannot be written. Functions for administrators need EXECUTE instead: delay_wheel.arm, delay_wheel.create_queue, delay_wheel.drop_queue, delay_wheel.pause_database, delay_wheel.resume_database, delay_wheel.follow_shards. Names are as in pg_roles, upper and lower case as they are; public stands for all roles. Only for superusers and the owner of the view, for others an error, SQLSTATE 42501. No name at all is an error, 42883; so are an empty array (VARIADIC), 22023, a null name, 22004, and a role that does not exist, 42704. Plain GRANT INSERT ON delay_wheel.tasks does the same; a dump carries the grants. Members of pg_write_all_data have the right, too. On Citus the roles become members of the role delay_wheel_user, which has the right on all nodes, and on nodes that are added later; all of it is undone by ROLLBACK; public, and roles with NOINHERIT, are errors there, 0A000 and 55000. With citus.enable_ddl_propagation off only this node is concerned. The grants of a view have to fit into one row: beyond some 2,000 roles there is an error, 54000. For many roles allow a group once, and grant that to them. Returns true';

CREATE FUNCTION delay_wheel.disallow(VARIADIC roles name[]) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_disallow' LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION delay_wheel.disallow(name[]) FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.disallow(name[]) IS
'takes back INSERT on delay_wheel.tasks, on all nodes of Citus; USAGE on the schema stays; what a role may do as a member of another one, or since all may, it still may. Tasks that are pending run nevertheless. A role that was allowed can be dropped after this (or after DROP OWNED). Returns true';
