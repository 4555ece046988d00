/* delay_wheel--1.1--1.2.sql: what came with 1.2: views that hold against strangers */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION delay_wheel UPDATE TO '1.2'" to load this file. \quit

/*---- Default privileges: this stands first, its call last ----*/

-- takes back what ALTER DEFAULT PRIVILEGES grants on what is created from here on, see 1.0
CREATE FUNCTION delay_wheel.revoke_defaults() RETURNS void
AS 'MODULE_PATHNAME', 'dw_revoke_new_defaults' LANGUAGE C
SET search_path = pg_catalog, pg_temp;

/*---- New objects go here, above the next heading, with GRANTs to PUBLIC only ----*/

COMMENT ON COLUMN delay_wheel.cancellations.waiting_for IS 'pids of some of the transactions waited for, 0 for prepared ones, and of executors whose task, of mode at_most_once, may yet be tried again; null in other states';

/*---- The end ----*/

SELECT delay_wheel.revoke_defaults();
DROP FUNCTION delay_wheel.revoke_defaults();

-- GRANTs to certain roles go below
