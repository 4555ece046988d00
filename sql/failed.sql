/*---- Failed tasks: put back, or removed ----*/

CREATE FUNCTION delay_retry(id bigint) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_retry' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_retry(bigint) IS
'puts a failed task back, to be run at once with all its attempts if this transaction commits; the id stays, and the row in delay_wheel.failed goes. False if there is no failed task of that id (any more); waits for another session that does the same. An error if the task, or another one of the same key, is pending (or a newer one runs), SQLSTATE 23505, if it is running, 55006, or if its queue or its owner does not exist any more, 42704. Only for members of the owner role and superusers; counts for delay_wheel.max_pending. Cancellations that are committed do not concern it, those of transactions that are still open do. A null id is an error, SQLSTATE 22004';

CREATE FUNCTION delay_redrive(queue text DEFAULT NULL, tag text DEFAULT NULL, sqlstate text DEFAULT NULL,
	failed_from timestamptz DEFAULT NULL, failed_until timestamptz DEFAULT NULL, max_tasks integer DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_redrive' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_redrive(text, text, text, timestamptz, timestamptz, integer) IS
'puts failed tasks back as delay_retry() does, those that failed first before others, at most max_tasks; returns how many. Those whose rights the caller has, all of them for a superuser, that are in this queue, have this tag and this SQLSTATE (five characters), and failed in [failed_from, failed_until); null stands for any, so without arguments all of one''s own. Tasks that delay_retry() would refuse, or for which it would have to wait since another transaction changes them, are left, with a notice of their number. A queue that does not exist, SQLSTATE 42704, a malformed sqlstate and a negative max_tasks, 22023, are errors';

CREATE FUNCTION delay_discard(id bigint) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_discard' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_discard(bigint) FROM PUBLIC;
COMMENT ON FUNCTION delay_discard(bigint) IS
'removes a failed task from delay_wheel.failed for good, if this transaction commits; the history keeps it. False if there is no failed task of that id (any more); waits for another session that puts it back or discards it. A pending task is not concerned, see delay_cancel(). Only for members of the owner role and superusers, for others an error, SQLSTATE 42501; a task that runs just now, 55006; a null id, 22004';

CREATE FUNCTION delay_discard_all(queue text DEFAULT NULL, tag text DEFAULT NULL, sqlstate text DEFAULT NULL,
	failed_from timestamptz DEFAULT NULL, failed_until timestamptz DEFAULT NULL, max_tasks integer DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_discard_all' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_discard_all(text, text, text, timestamptz, timestamptz, integer) FROM PUBLIC;
COMMENT ON FUNCTION delay_discard_all(text, text, text, timestamptz, timestamptz, integer) IS
'removes failed tasks as delay_discard() does, those that failed first before others, at most max_tasks; returns how many. Those whose rights the caller has, all of them for a superuser, that are in this queue, have this tag and this sqlstate (five characters), and failed in [failed_from, failed_until); null stands for any, so without arguments all of one''s own. A queue that does not exist, SQLSTATE 42704, a malformed sqlstate and a negative max_tasks, 22023, are errors. Those that run just now, or that another transaction changes or locks, are left, without waiting and without a notice: a second call has the rest';
