/*---- Messages: work that is done outside of the database ----*/

CREATE FUNCTION delay_send(
	queue text,
	payload jsonb,
	delay interval DEFAULT NULL,
	due timestamptz DEFAULT NULL,
	key text DEFAULT NULL,
	if_exists text DEFAULT NULL,
	tag text DEFAULT NULL,
	priority integer DEFAULT NULL,
	max_attempts integer DEFAULT NULL,
	group_key text DEFAULT NULL,
	headers jsonb DEFAULT NULL,
	options jsonb DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_send' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_send(text, jsonb, interval, timestamptz, text, text, text, integer, integer, text, jsonb, jsonb) IS
'sends a message into an external queue, see delay_wheel.create_queue(), if this transaction commits: from its due time on, one of the queue''s receivers gets it. Returns its id. A message is a task whose work is done elsewhere: it is cancelled, moved, paused, waited for and seen in the views as tasks are, by these functions.
queue: its name; the current user must own it, or be one of its users.
payload: what the receiver gets, up to 1 MB.
delay, due, key, if_exists, tag, priority, max_attempts, group_key: as in delay_schedule_task(); max_attempts of a queue that says none is 20. A message that a transaction has received, and that is still open, counts as running.
headers: a JSON object beside the payload, up to 64 kB, for what is not the work itself: a trace, a version; the receiver gets it, too. Null is none.
options: a JSON object, as in delay_schedule_task(), with retry_delay, retry_backoff, retry_max_delay, expires, skip_after, unique_for, notify, on_success, on_failure.
on_success, on_failure: as in delay_schedule_task(), SQL that is scheduled when the message was received and that transaction commits, or when it is given up; a task of the sender in the default queue. $1 is the message''s id in both; $2 of on_success is the result (jsonb) that delay_done() was given, null without one or if the message was received in a transaction; $2 and $3 of on_failure are SQLSTATE and message (text).
Errors: a null queue or payload, SQLSTATE 22004; a queue that does not exist, 42704, is not external, 55000, or is not for the current user, 42501; a payload that is too long, 54000; others as in delay_schedule_task()';

CREATE FUNCTION delay_send_trigger() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_send_trigger' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_send_trigger() IS
'for CREATE TRIGGER ... AFTER INSERT OR UPDATE ... FOR EACH ROW EXECUTE FUNCTION delay_send_trigger(delay, queue [, column ...] [, option ...]): each row sends a message of the current user, who must be allowed to use delay_wheel, see delay_wheel.allow(), and to send into the queue. Names of columns are written as in the catalog, without quotes.
delay: as in delay_schedule_trigger(). queue: the name of an external queue. column ...: those that become the payload, an object with their names, as row_to_json() makes it; without any, all columns of the table.
Options: key=, tag=, group_key=, if_exists=, and others that messages have, as in delay_schedule_trigger(). All else is as the queue says.
Wrong arguments and wrong kinds of triggers are errors when the trigger first fires, others as in delay_send()';

CREATE FUNCTION delay_receive(queue text, messages integer DEFAULT 1, autocommit boolean DEFAULT false,
	OUT id bigint, OUT payload jsonb, OUT attempt integer, OUT due timestamptz, OUT headers jsonb)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_receive' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION delay_receive(text, integer, boolean) IS
'takes due messages of an external queue, at most as many as asked for, and returns them; skips those that others have, and never waits. They are gone when this transaction commits, together with all that it wrote: so what it writes into this database is done exactly once for each. After a rollback, also to a savepoint, or as soon as the server knows that the session is gone, they are due again.
queue: its name; the current user must own it, or be one of its receivers.
messages, 1 to 1000: null is 1. No transaction receives more than 1000 altogether.
autocommit: outside of a transaction block a SELECT is committed before its client has seen the rows, so it is an error, SQLSTATE 25P01, unless this is true.
id: of the message; payload: as sent; attempt: 1, and one more after each delay_fail() and each lease; due: when it was due.
Only messages that the snapshot of the statement sees are taken. What a LIMIT or WHERE of the same query, or a cursor that is closed early, leaves out was received nevertheless: use it in FROM, alone. Higher priorities come first, else they come in the order in which they became due, or came back; messages of several senders come in turn. Refused are EXPLAIN ANALYZE, a call in the target list, 0A000, PREPARE TRANSACTION after it, 0A000, read-only transactions and standbys, 25006. Errors: a null queue, 22004, one that does not exist, 42704, is not external, 55000, or is not for the current user, 42501; another number of messages, 22023, more than 1000, 54000';

CREATE FUNCTION delay_lease(queue text, messages integer DEFAULT 1, lease interval DEFAULT NULL, receiver text DEFAULT NULL,
	OUT id bigint, OUT token bigint, OUT payload jsonb, OUT attempt integer, OUT due timestamptz, OUT headers jsonb)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_lease' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION delay_lease(text, integer, interval, text) IS
'gives due messages of an external queue to the caller for some time, at most as many as asked for, and returns them; skips those that others have, and never waits. Until the lease ends nobody else gets them. Then the receiver says how it went, with id and token: delay_done(), delay_fail(), delay_release(), or delay_extend() for more time. A message whose lease ends without a word is due again at once, and counts as an attempt; after the last one it is given up, and stands in delay_wheel.failed with SQLSTATE DW006. For work outside of this database, which is done at least once. The statement commits by itself, so it must be a SELECT of its own, outside of a transaction block.
queue: its name; the current user must own it, or be one of its receivers.
messages, 1 to 1000: null is 1.
lease, 1 ms to 366 days, from now on: null is the queue''s, or else a minute.
receiver, 1 to 1000 bytes: a name of the caller, for the view delay_wheel.tasks; null is none.
id: of the message; token: a random number, of this lease; payload: as sent; attempt: 1, and one more with each lease; due: when it was due first.
Within a transaction block, a function or DO it is an error, SQLSTATE 25001. Others as in delay_receive()';

CREATE FUNCTION delay_done(id bigint, token bigint, result jsonb DEFAULT NULL) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_done' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_done(bigint, bigint, jsonb) IS
'ends a message that delay_lease() has given, if this transaction commits: its work is done. result, at most 1 MB, is handed to its on_success as $2; nobody else keeps it. True; false if the token is not (any more) that of its lease: the lease has ended and another receiver has it or had it, it was cancelled, or has ended already. Waits for another transaction that has the message''s row, as UPDATE does, but not for another receiver. A lease that has ended, of a message that nobody has got since, is as good as one that lasts. Errors: a null id or token, SQLSTATE 22004; a result that is too long, 54000; without the right to receive from its queue, 42501';

CREATE FUNCTION delay_done_all(ids bigint[], tokens bigint[]) RETURNS bigint[]
AS 'MODULE_PATHNAME', 'dw_done_all' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_done_all(bigint[], bigint[]) IS
'delay_done() for each of the messages; returns the ids of those for which it is true. For the others of its kind, or with results, call the function over unnest(ids, tokens). Arrays of different length, or of more than one dimension, are errors, SQLSTATE 2202E, null arrays or elements, 22004';

CREATE FUNCTION delay_extend(id bigint, token bigint, lease interval DEFAULT NULL) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_extend' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_extend(bigint, bigint, interval) IS
'lets a lease end that long from now on, if this transaction commits: 1 ms to 366 days; null is the queue''s lease, or else a minute. Result, and errors, as in delay_done(); lease out of its range, SQLSTATE 22023';

CREATE FUNCTION delay_release(id bigint, token bigint, delay interval DEFAULT NULL) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_release' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_release(bigint, bigint, interval) IS
'gives a leased message back, if this transaction commits, as if it had not been leased: the attempt does not count. It is due again after delay, 0 to 366 days; null or zero is at once, with its old due time: messages that are due already may come before it. Result, and errors, as in delay_done(); delay out of its range, SQLSTATE 22023';

CREATE FUNCTION delay_fail(id bigint, token bigint DEFAULT NULL, error text DEFAULT NULL, retry_in interval DEFAULT NULL, give_up boolean DEFAULT false) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_fail' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_fail(bigint, bigint, text, interval, boolean) IS
'says that an attempt has failed, if this transaction commits: with a token, of a message that delay_lease() has given; without, of one that this transaction has received by delay_receive(), which is put back. It is due again after retry_in, 0 to 366 days, or if that is null after its retry_delay, which grows as its retry_backoff says; without attempts left, or with give_up, it is given up, and stands in delay_wheel.failed with SQLSTATE DW007 and error as its message. True; false if the token is not that of its lease, as in delay_done(), or this transaction has not received the message, or has put it back already. Errors: a null id, SQLSTATE 22004; retry_in out of its range, 22023; with a token, without the right to receive from its queue, 42501';

CREATE PROCEDURE delay_await(queue text, timeout interval DEFAULT NULL, INOUT found boolean DEFAULT NULL)
AS 'MODULE_PATHNAME', 'dw_await' LANGUAGE C;
COMMENT ON PROCEDURE delay_await(text, interval, boolean) IS
'waits until a message of an external queue can be taken, at most for timeout (null: without limit; zero or less: not at all; a day counts 24 hours, a month 30 days), and sets found to whether one can be. To be called by CALL, as a statement of its own outside of a transaction block: it commits, so that it waits without snapshot, lock or transaction id, and costs nothing meanwhile but its connection; delay_wheel.max_await limits that. Each message that becomes due wakes one session that waits. Another one may be faster: then delay_receive() returns nothing, and one calls this again. It ends with false shortly before statement_timeout or transaction_timeout would end it, with an error after a cancel, and when its client is gone.
queue: its name; the current user must own it, or be one of its receivers.
Errors: within a transaction block, a function or DO, SQLSTATE 25001; a null queue, 22004, one that does not exist, or is dropped meanwhile, 42704, is not external, 55000, or is not for the current user, 42501; a database for which shared memory has no place, 53400';
