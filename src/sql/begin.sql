/* delay_wheel--1.0.sql: make joins it from the files of src/sql and of the wings */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION delay_wheel" to load this file. \quit

/*---- The schemas, and a function that end.sql calls and drops ----*/

/*
 * Functions go into the schema chosen at CREATE EXTENSION, so that triggers can
 * call them unqualified.  Views go into delay_wheel, tables into
 * delay_wheel_data, parts of the views into delay_wheel_internal.
 *
 * ALTER DEFAULT PRIVILEGES must not grant rights to these objects: a role that could
 * write the tables could run SQL as any role.  This function revokes default
 * privileges on all objects that are created after it.
 */
CREATE FUNCTION delay_revoke_defaults() RETURNS void
AS 'MODULE_PATHNAME', 'dw_revoke_defaults' LANGUAGE C
SET search_path = pg_catalog, pg_temp;

CREATE SCHEMA delay_wheel;
COMMENT ON SCHEMA delay_wheel IS
'Views of delay_wheel, and functions for administration and monitoring';
GRANT USAGE ON SCHEMA delay_wheel TO PUBLIC;

/*
 * Only superusers and the owner may use this schema.  Most commands lock a table before
 * they check the rights to it, and some keep the lock.  But all of them look up the schema
 * first, and fail without USAGE.  Views and functions reach the tables without USAGE.
 */
CREATE SCHEMA delay_wheel_data;
COMMENT ON SCHEMA delay_wheel_data IS
'Tables of delay_wheel, for superusers only. The views in schema delay_wheel show their rows.';
REVOKE ALL ON SCHEMA delay_wheel_data FROM PUBLIC;

-- for all roles: page_data() and the pictures use its objects with the rights of their callers
CREATE SCHEMA delay_wheel_internal;
COMMENT ON SCHEMA delay_wheel_internal IS
'Parts of the views, and trigger functions. Do not use them directly: each version may change them.';
GRANT USAGE ON SCHEMA delay_wheel_internal TO PUBLIC;
