/*---- What became of a task ----*/

CREATE FUNCTION delay_wait(id bigint, timeout interval DEFAULT NULL) RETURNS text
AS 'MODULE_PATHNAME', 'dw_wait' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_wait(bigint, interval) IS
'Waits until a task has ended, or until a timeout. Returns how the task has ended.';

CREATE FUNCTION delay_status(id bigint, OUT state text, OUT at timestamptz, OUT attempts integer, OUT sqlstate text, OUT message text)
RETURNS record
AS 'MODULE_PATHNAME', 'dw_status_of' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_status(bigint) IS
'Returns the state of a task, the time of the state, the number of attempts and the last error. Does not wait.';
