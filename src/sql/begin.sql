/* delay_wheel--1.0.sql, which make joins from the files in the folder sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION delay_wheel" to load this file. \quit

/*---- The schemas, and a function that end.sql calls and drops ----*/

/*
 * Functions go into the schema chosen at CREATE EXTENSION, so that triggers
 * may call them unqualified; views into delay_wheel; tables into
 * delay_wheel_data; what the views are made of into delay_wheel_internal.
 *
 * What ALTER DEFAULT PRIVILEGES grants is not meant for these: who can read or
 * write the tables has everybody's tasks.  This function takes it back from all
 * that is created after the function.
 */
CREATE FUNCTION delay_revoke_defaults() RETURNS void
AS 'MODULE_PATHNAME', 'dw_revoke_defaults' LANGUAGE C
SET search_path = pg_catalog, pg_temp;

CREATE SCHEMA delay_wheel;
COMMENT ON SCHEMA delay_wheel IS
'views of delay_wheel, and functions about it: tasks to be run later, each once';
GRANT USAGE ON SCHEMA delay_wheel TO PUBLIC;

/*
 * Nobody but superusers and the owner may use it.  Most commands lock a table before they
 * look at the rights to it, and some keep the lock; but all look up its schema first, and
 * fail without USAGE.  Views and functions find the tables nevertheless.
 */
CREATE SCHEMA delay_wheel_data;
COMMENT ON SCHEMA delay_wheel_data IS
'tables of delay_wheel, for superusers alone; the views in schema delay_wheel show their rows';
REVOKE ALL ON SCHEMA delay_wheel_data FROM PUBLIC;

-- page_data() and the pictures name its objects with the rights of their callers
CREATE SCHEMA delay_wheel_internal;
COMMENT ON SCHEMA delay_wheel_internal IS
'what the views of delay_wheel are made of, and functions of triggers: not to be used directly, it may change with each version';
GRANT USAGE ON SCHEMA delay_wheel_internal TO PUBLIC;
