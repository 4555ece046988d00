/*---- Queues and pauses ----*/

CREATE FUNCTION delay_wheel.create_queue(
	name text,
	max_running integer DEFAULT NULL,
	rate integer DEFAULT NULL,
	per interval DEFAULT NULL,
	burst integer DEFAULT NULL,
	priority integer DEFAULT NULL,
	max_attempts integer DEFAULT NULL,
	groups boolean DEFAULT NULL,
	external boolean DEFAULT NULL,
	users name[] DEFAULT NULL,
	receivers name[] DEFAULT NULL,
	options jsonb DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_create_queue' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_wheel.create_queue(text, integer, integer, interval, integer, integer, integer, boolean, boolean, name[], name[], jsonb) FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.create_queue(text, integer, integer, interval, integer, integer, integer, boolean, boolean, name[], name[], jsonb) IS
'Declares a queue of the current user, or changes an existing queue.';

CREATE FUNCTION delay_wheel.drop_queue(name text) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_drop_queue' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_wheel.drop_queue(text) FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.drop_queue(text) IS
'Drops a queue that has no pending tasks.';

CREATE FUNCTION delay_pause_all() RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_pause_all' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_pause_all() IS
'Pauses all tasks of the current user in this database until delay_resume_all().';

CREATE FUNCTION delay_resume_all() RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_resume_all' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_resume_all() IS
'Ends the pause that delay_pause_all() began. Overdue tasks run at once.';

CREATE FUNCTION delay_wheel.pause_queue(name text) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_pause_queue' LANGUAGE C VOLATILE PARALLEL UNSAFE;
GRANT EXECUTE ON FUNCTION delay_wheel.pause_queue(text) TO PUBLIC;
COMMENT ON FUNCTION delay_wheel.pause_queue(text) IS
'Pauses a queue until delay_wheel.resume_queue().';

CREATE FUNCTION delay_wheel.resume_queue(name text) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_resume_queue' LANGUAGE C VOLATILE PARALLEL UNSAFE;
GRANT EXECUTE ON FUNCTION delay_wheel.resume_queue(text) TO PUBLIC;
COMMENT ON FUNCTION delay_wheel.resume_queue(text) IS
'Ends the pause that delay_wheel.pause_queue() began. Overdue tasks run at once.';

CREATE FUNCTION delay_wheel.pause_database() RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_pause_database' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_wheel.pause_database() FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.pause_database() IS
'Pauses all tasks of this database until delay_wheel.resume_database().';

CREATE FUNCTION delay_wheel.resume_database() RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_resume_database' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_wheel.resume_database() FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.resume_database() IS
'Ends the pause that delay_wheel.pause_database() began. Pauses of roles and queues stay.';
