/* delay_wheel--1.0--1.1.sql: what came with 1.1: pictures, forecast, progress, for those who watch */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION delay_wheel UPDATE TO '1.1'" to load this file. \quit

/*---- Progress of what is done in the background ----*/

CREATE FUNCTION delay_wheel.get_progress(
	OUT database name, OUT work text, OUT phase text, OUT active boolean, OUT pid integer,
	OUT started timestamptz, OUT duration interval, OUT unit text, OUT done bigint, OUT total bigint,
	OUT rate double precision, OUT steps bigint, OUT steps_total bigint, OUT times bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_progress' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.get_progress() IS
'what goes on in the background in this database, or in each one that is served, see delay_wheel.progress';
CREATE VIEW delay_wheel.progress AS SELECT * FROM delay_wheel.get_progress();
COMMENT ON VIEW delay_wheel.progress IS
'how far the background processes have come: a row for each kind of work that was begun in this database since the start of the server, as it goes on, or as it was the last time; for pg_read_all_stats and superusers also those of other databases. It is kept in shared memory; reading it takes microseconds, and waits for nobody';
COMMENT ON COLUMN delay_wheel.progress.database IS 'name of the database';
COMMENT ON COLUMN delay_wheel.progress.work IS
'load: tasks of the near future are read into memory, all of them, since the timer has started, an inbox was full, or plain SQL wrote rows (loads of single lanes in between, as the ring turns, are not shown); dropped roles: tasks of roles that were dropped are moved to the failed ones; cancel: rows of tasks that delay_cancel_all() has cancelled are removed; failed: old rows of failed tasks are removed, see delay_wheel.failed_max_age and delay_wheel.failed_max_count; history: the oldest table of the history is emptied; recurring: it is looked whether recurring tasks have their runs';
COMMENT ON COLUMN delay_wheel.progress.phase IS
'of load: looking for lanes, loading; of dropped roles: moving; of cancel: sweeping; of failed: counting, deleting; of history: emptying; of recurring: checking. Of all: waiting: for a lock, or for transactions that may have scheduled cancelled tasks, and it is tried again; done; interrupted: the process ended in the middle, and it begins anew';
COMMENT ON COLUMN delay_wheel.progress.active IS 'it goes on; false if phase is done or interrupted';
COMMENT ON COLUMN delay_wheel.progress.pid IS
'process that does it: the timer (load, dropped roles) or the sweeper; null if it does not go on, or waits without a process';
COMMENT ON COLUMN delay_wheel.progress.started IS 'when it began';
COMMENT ON COLUMN delay_wheel.progress.duration IS 'how long it has lasted so far, or lasted in all, waiting included; right also if the clock is set';
COMMENT ON COLUMN delay_wheel.progress.unit IS
'what done and total count: tasks (load, dropped roles, cancel), rows (failed), pages of 8 kB, or as the server was built (history), recurring tasks (recurring)';
COMMENT ON COLUMN delay_wheel.progress.done IS
'read into memory, moved, removed, counted, emptied or looked at so far; what is committed only';
COMMENT ON COLUMN delay_wheel.progress.total IS
'of so many at most, while rows of failed tasks are counted: delay_wheel.failed_max_count; else null: not known, since nobody counts rows beforehand';
COMMENT ON COLUMN delay_wheel.progress.rate IS 'done for each second of duration; null in the first microsecond';
COMMENT ON COLUMN delay_wheel.progress.steps IS
'of load: lanes that have in memory what they can have; of cancel: calls of delay_cancel_all() that are complete; null for others';
COMMENT ON COLUMN delay_wheel.progress.steps_total IS
'of load: lanes known so far; of cancel: calls of delay_cancel_all() met since it began; null for others';
COMMENT ON COLUMN delay_wheel.progress.times IS 'how often this work was begun since the start of the server, or since the database was served';

GRANT SELECT ON delay_wheel.progress TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel.get_progress() TO PUBLIC;

/*---- For programs that watch ----*/

CREATE FUNCTION delay_wheel.get_waiting(
	OUT database name, OUT state text, OUT lanes bigint, OUT tasks bigint, OUT first_due timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_waiting' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.get_waiting() IS
'due tasks in memory, and what they wait for, of this database, or of each one that is served, see delay_wheel.waiting';
CREATE VIEW delay_wheel.waiting AS SELECT * FROM delay_wheel.get_waiting();
COMMENT ON VIEW delay_wheel.waiting IS
'due tasks in memory by what they wait for: a row for each state, of this database; for pg_read_all_stats and superusers of each one that is served. See delay_wheel.lanes for whose they are. Tasks that are in the table only, since memory is short, or since there is no timer, are not counted';
COMMENT ON COLUMN delay_wheel.waiting.database IS 'name of the database';
COMMENT ON COLUMN delay_wheel.waiting.state IS
'of the lanes that the tasks are in, as in delay_wheel.lanes: ready: all executors are busy; running: executors are on the lane; limited: by what the queue allows; blocked: no executor can be had; paused. And suspected: tasks that are suspected to have crashed the server, which are counted whether due or not, and stand in delay_wheel.failed, with SQLSTATE DW004, after the third crash';
COMMENT ON COLUMN delay_wheel.waiting.lanes IS 'lanes in this state that have due tasks; null for suspected';
COMMENT ON COLUMN delay_wheel.waiting.tasks IS 'due tasks in these lanes; those that are being run do not count';
COMMENT ON COLUMN delay_wheel.waiting.first_due IS
'due time of the task that has waited longest among those that are first in line in their lanes; null if there is none';

CREATE FUNCTION delay_wheel.get_lateness(OUT database name, OUT below double precision, OUT tasks bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_lateness' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.get_lateness() IS
'how late tasks of this database, or of each one that is served, began, see delay_wheel.lateness';
CREATE VIEW delay_wheel.lateness AS SELECT * FROM delay_wheel.get_lateness();
COMMENT ON VIEW delay_wheel.lateness IS
'how many tasks began less than so long after they were due, since the start of the server: a cumulative histogram of 33 rows, whose bounds are powers of two; of this database, for pg_read_all_stats and superusers of each one that is served. Two looks at it tell how late tasks were in between';
COMMENT ON COLUMN delay_wheel.lateness.database IS 'name of the database';
COMMENT ON COLUMN delay_wheel.lateness.below IS 'seconds: 0.000064, doubled from row to row up to 137438.953472, then Infinity';
COMMENT ON COLUMN delay_wheel.lateness.tasks IS
'attempts that began less than that after their due time, as in delay_wheel.status; waiting for limits, and pauses, are part of it';

GRANT SELECT ON delay_wheel.waiting, delay_wheel.lateness TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel.get_waiting(), delay_wheel.get_lateness() TO PUBLIC;

/*---- Rights: to be kept at the end ----*/

-- as in 1.0: what ALTER DEFAULT PRIVILEGES grants is not meant for these
CREATE FUNCTION delay_wheel.revoke_defaults() RETURNS void
AS 'MODULE_PATHNAME', 'dw_revoke_defaults' LANGUAGE C
SET search_path = pg_catalog, pg_temp;
SELECT delay_wheel.revoke_defaults();
DROP FUNCTION delay_wheel.revoke_defaults();
