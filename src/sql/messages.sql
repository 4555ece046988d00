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
'Sends a message into an external queue. One receiver gets the message, at its due time or later. Returns the id of the message.';

CREATE FUNCTION delay_send_trigger() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_send_trigger' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_send_trigger() IS
'Sends a message for each row that is inserted or updated. For CREATE TRIGGER ... AFTER ... FOR EACH ROW, or FOR EACH STATEMENT with a transition table.';

CREATE FUNCTION delay_receive(queue text, messages integer DEFAULT 1, autocommit boolean DEFAULT false,
	OUT id bigint, OUT payload jsonb, OUT attempt integer, OUT due timestamptz, OUT headers jsonb, OUT key text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_receive' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION delay_receive(text, integer, boolean) IS
'Receives due messages of an external queue. The commit of the transaction deletes them; after a rollback, they are due again.';

CREATE FUNCTION delay_lease(queue text, messages integer DEFAULT 1, lease interval DEFAULT NULL, receiver text DEFAULT NULL,
	OUT id bigint, OUT token bigint, OUT payload jsonb, OUT attempt integer, OUT due timestamptz, OUT headers jsonb, OUT key text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_lease' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION delay_lease(text, integer, interval, text) IS
'Leases due messages of an external queue to the caller for some time, for work outside of this database.';

CREATE FUNCTION delay_done(id bigint, token bigint, result jsonb DEFAULT NULL) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_done' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_done(bigint, bigint, jsonb) IS
'Ends a leased message whose work is done. Returns false if the token is no longer valid.';

CREATE FUNCTION delay_done_all(ids bigint[], tokens bigint[]) RETURNS bigint[]
AS 'MODULE_PATHNAME', 'dw_done_all' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_done_all(bigint[], bigint[]) IS
'Ends several leased messages, like delay_done(). Returns the ids of the ended messages.';

CREATE FUNCTION delay_extend(id bigint, token bigint, lease interval DEFAULT NULL) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_extend' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_extend(bigint, bigint, interval) IS
'Extends a lease. Returns false if the token is no longer valid.';

CREATE FUNCTION delay_release(id bigint, token bigint, delay interval DEFAULT NULL) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_release' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_release(bigint, bigint, interval) IS
'Gives a leased message back without counting an attempt. Returns false if the token is no longer valid.';

CREATE FUNCTION delay_fail(id bigint, token bigint DEFAULT NULL, error text DEFAULT NULL, retry_in interval DEFAULT NULL, give_up boolean DEFAULT false) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_fail' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_fail(bigint, bigint, text, interval, boolean) IS
'Reports a failed attempt of a leased or received message. The message is tried again or given up.';

CREATE PROCEDURE delay_await(queue text, timeout interval DEFAULT NULL, INOUT found boolean DEFAULT NULL)
AS 'MODULE_PATHNAME', 'dw_await' LANGUAGE C;
COMMENT ON PROCEDURE delay_await(text, interval, boolean) IS
'Waits outside of a transaction until a message of an external queue can be received.';

CREATE FUNCTION delay_end_await(pid integer) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_end_await' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_end_await(integer) IS
'Ends the wait of another session as a timeout does, without an error. Returns false if that session does not wait.';

-- not named delay_await(): a call with an untyped NULL as found would be ambiguous
CREATE PROCEDURE delay_await_any(queues text[], timeout interval DEFAULT NULL, INOUT found text[] DEFAULT NULL)
AS 'MODULE_PATHNAME', 'dw_await_any' LANGUAGE C;
COMMENT ON PROCEDURE delay_await_any(text[], interval, text[]) IS
'Waits outside of a transaction until a message of one of several external queues can be received.';
