/*---- Who may schedule ----*/

CREATE FUNCTION delay_wheel.allow(VARIADIC roles name[]) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_allow' LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION delay_wheel.allow(name[]) FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.allow(name[]) IS
'Allows roles to use delay_wheel for tasks of their own: grants INSERT on the view delay_wheel.tasks.';

CREATE FUNCTION delay_wheel.disallow(VARIADIC roles name[]) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_disallow' LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION delay_wheel.disallow(name[]) FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.disallow(name[]) IS
'Revokes the right that delay_wheel.allow() has granted. Pending tasks of the roles still run.';
