/*---- Tasks that came with a copy ----*/

CREATE FUNCTION delay_wheel.arm() RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_arm' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_wheel.arm() FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.arm() IS
'Arms the tasks that came with a copy of another database: they can run in this database. Returns the number of armed tasks.';
