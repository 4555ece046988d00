/*---- Messages: work that is done outside of the database ----*/

CREATE FUNCTION delay_send(
	queue text,
	payload jsonb,
	delay interval DEFAULT NULL,
	due timestamptz DEFAULT NULL,
	key text DEFAULT NULL,
	if_exists text DEFAULT 'keep',
	tag text DEFAULT NULL,
	priority integer DEFAULT NULL,
	max_attempts integer DEFAULT NULL,
	retry_delay interval DEFAULT NULL,
	expires interval DEFAULT NULL,
	skip_after interval DEFAULT NULL,
	notify text DEFAULT NULL,
	on_success text DEFAULT NULL,
	on_failure text DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_send' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_send(text, jsonb, interval, timestamptz, text, text, text, integer, integer, interval, interval, interval, text, text, text) IS
'sends a message into an external queue, see delay_queue(), if this transaction commits: from its due time on, one of the queue''s receivers gets it. Returns its id. A message is a task whose work is done elsewhere: it is cancelled, moved, paused, waited for and seen in the views as tasks are, by these functions.
queue: its name; the current user must own it, or be one of its users.
payload: what the receiver gets, up to 1 MB.
delay, due, key, if_exists, tag, priority, max_attempts, retry_delay, expires, skip_after, notify: as in delay_schedule_task(); max_attempts of a queue that says none is 20. A message that a transaction has received, and that is still open, counts as running.
on_success, on_failure: as in delay_schedule_task(), SQL that is scheduled when the message was received and that transaction commits, or when it is given up; a task of the sender in the default queue.
Errors: a null queue or payload, SQLSTATE 22004; a queue that does not exist, 42704, is not external, 55000, or is not for the current user, 42501; a payload that is too long, 54000; others as in delay_schedule_task()';

CREATE FUNCTION delay_receive(queue text, messages integer DEFAULT 1, autocommit boolean DEFAULT false,
	OUT id bigint, OUT payload jsonb, OUT attempt integer, OUT due timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_receive' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION delay_receive(text, integer, boolean) IS
'takes due messages of an external queue, at most as many as asked for, and returns them; skips those that others have, and never waits. They are gone when this transaction commits, together with all that it wrote: so what it writes into this database is done exactly once for each. After a rollback, also to a savepoint, or as soon as the server knows that the session is gone, they are due again.
queue: its name; the current user must own it, or be one of its receivers.
messages, 1 to 1000: null is 1. No transaction receives more than 1000 altogether.
autocommit: outside of a transaction block a SELECT is committed before its client has seen the rows, so it is an error, SQLSTATE 25P01, unless this is true.
id: of the message; payload: as sent; attempt: 1, and one more after each delay_fail(); due: when it was due.
Only messages that the snapshot of the statement sees are taken. What a LIMIT or WHERE of the same query, or a cursor that is closed early, leaves out was received nevertheless: use it in FROM, alone. Higher priorities come first, then lower due times; messages of several senders come in turn. Refused are EXPLAIN ANALYZE, a call in the target list, 0A000, PREPARE TRANSACTION after it, 0A000, read-only transactions and standbys, 25006. Errors: a null queue, 22004, one that does not exist, 42704, is not external, 55000, or is not for the current user, 42501; another number of messages, 22023, more than 1000, 54000';

CREATE FUNCTION delay_fail(id bigint, error text DEFAULT NULL, retry_in interval DEFAULT NULL, give_up boolean DEFAULT false) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_fail' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_fail(bigint, text, interval, boolean) IS
'puts a message back that this transaction has received by delay_receive(): an attempt that failed, if this transaction commits. It is due again after retry_in, 0 to 366 days, or if that is null after its retry_delay, which doubles with each attempt; without attempts left, or with give_up, it is given up, and stands in delay_wheel.failed with SQLSTATE DW007 and error as its message. True; false if this transaction has not received the message, or has put it back already. Errors: a null id, SQLSTATE 22004; retry_in out of its range, 22023';

CREATE PROCEDURE delay_await(queue text, timeout interval DEFAULT NULL, INOUT found boolean DEFAULT NULL)
AS 'MODULE_PATHNAME', 'dw_await' LANGUAGE C;
COMMENT ON PROCEDURE delay_await(text, interval, boolean) IS
'waits until a message of an external queue can be taken, at most for timeout (null: without limit; zero or less: not at all; a day counts 24 hours, a month 30 days), and sets found to whether one can be. To be called by CALL, as a statement of its own outside of a transaction block: it commits, so that it waits without snapshot, lock or transaction id, and costs nothing meanwhile. Each message that becomes due wakes one session that waits. Another one may be faster: then delay_receive() returns nothing, and one calls this again. It ends with false shortly before statement_timeout or transaction_timeout would end it, with an error after a cancel, and when its client is gone.
queue: its name; the current user must own it, or be one of its receivers.
Errors: within a transaction block, a function or DO, SQLSTATE 25001; a null queue, 22004, one that does not exist, or is dropped meanwhile, 42704, is not external, 55000, or is not for the current user, 42501; a database for which shared memory has no place, 53400';
