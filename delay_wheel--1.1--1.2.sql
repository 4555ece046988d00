/* delay_wheel--1.1--1.2.sql: what came with 1.2: views that hold against strangers */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION delay_wheel UPDATE TO '1.2'" to load this file. \quit

/*---- Default privileges: this stands first, its call last ----*/

-- takes back what ALTER DEFAULT PRIVILEGES grants on what is created from here on, see 1.0
CREATE FUNCTION delay_wheel.revoke_defaults() RETURNS void
AS 'MODULE_PATHNAME', 'dw_revoke_new_defaults' LANGUAGE C
SET search_path = pg_catalog, pg_temp;

/*---- New objects go here, above the next heading, with GRANTs to PUBLIC only ----*/

/*---- What is said of functions that there were ----*/

COMMENT ON FUNCTION delay_cancel_all(text, text, timestamptz, timestamptz) IS
'cancels all pending tasks of this queue, with this tag, that are due from due_from (inclusive) to due_until (exclusive), if this transaction commits: at once, however many they are, also those that open and prepared transactions have scheduled before. Null does not restrict; one of the four must be given (all tasks: due_from => ''-infinity''). Concerns the tasks of all roles whose rights the caller has, of all roles for a superuser. Returns the number of the cancellation in the view delay_wheel.cancellations: it shows which of the tasks are running, which are not stopped, and how far the removal of their rows is, which goes on in the background. Tasks that are scheduled, or moved to such a time, afterwards are not concerned. No restriction at all, SQLSTATE 22004, an unknown queue, 42704, a tag of more than 1000 bytes, due times in the wrong order, 22023, and more than 10,000 cancellations of one role, which is no superuser, whose rows are not removed yet, 53400, are errors';

COMMENT ON FUNCTION delay_redrive(text, text, text, timestamptz, timestamptz, integer) IS
'puts failed tasks back as delay_retry() does, those that failed first before others, at most max_tasks; returns how many. Those whose rights the caller has, all of them for a superuser, that are in this queue, have this tag and this SQLSTATE (five characters), and failed in [failed_from, failed_until); null stands for any, so without arguments all of one''s own. Tasks that delay_retry() would refuse, or would have to wait for since another transaction changes them, are left, with a notice of their number. A queue that does not exist, SQLSTATE 42704, a malformed sqlstate and a negative max_tasks, 22023, are errors';

/*---- The end ----*/

SELECT delay_wheel.revoke_defaults();
DROP FUNCTION delay_wheel.revoke_defaults();

-- GRANTs to certain roles go below
