--
-- The functions of pgmq 1.5 on top of delay_wheel.  A queue of pgmq is an external queue, and
-- its messages are messages of delay_wheel.  doc/from-pgmq.md shows how to move, and what differs.
--
-- Load this file by psql, once in each database:
--     psql -d NAME -f examples/pgmq/pgmq.sql
-- The role that loads it owns all messages, and the functions run with its rights.  It must be a
-- superuser, or a role that may use delay_wheel, declare and drop queues, and create a schema.
-- Roles with USAGE on the schema pgmq can send to and read from all queues.
--
-- pgmq.read() receives messages, which deletes them, and sends them again in the same transaction,
-- due when their visibility timeout ends.  So it can be called in transactions and functions, as
-- delay_lease() cannot.  The number of a message is its key, and stays the same.  The member
-- "pgmq" of the message's headers holds what delay_wheel has no place for:
--     at        when the message was sent
--     reads     number of times that it has been read
--     is_null   true if the message is NULL
--     headers   headers that are no object, or have a member "pgmq" themselves
--
\set ON_ERROR_STOP on
SELECT pg_catalog.current_setting('search_path') AS pgmq_search_path \gset

DO $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'delay_wheel') THEN
		RAISE EXCEPTION 'delay_wheel is not installed in this database'
			USING ERRCODE = 'undefined_object', HINT = 'CREATE EXTENSION delay_wheel comes first.';
	ELSIF pg_catalog.to_regnamespace('pgmq') IS NOT NULL THEN
		RAISE EXCEPTION 'there is a schema pgmq already'
			USING ERRCODE = 'duplicate_schema',
				HINT = 'Rename it in the transaction that loads this file, and take its messages over: see doc/from-pgmq.md.';
	END IF;
END $$;

-- The functions that run with their owner's rights have this search_path.
SET search_path = pg_catalog, pg_temp;

CREATE SCHEMA pgmq;
COMMENT ON SCHEMA pgmq IS 'functions of pgmq, on top of delay_wheel';

CREATE TABLE pgmq.meta
(
	queue_name text PRIMARY KEY,
	is_partitioned boolean NOT NULL DEFAULT false,
	is_unlogged boolean NOT NULL DEFAULT false,
	created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE pgmq.meta IS 'the queues';
CREATE UNIQUE INDEX ON pgmq.meta (lower(queue_name));

CREATE TYPE pgmq.message_record AS
	(msg_id bigint, read_ct integer, enqueued_at timestamptz, vt timestamptz, message jsonb, headers jsonb);
CREATE TYPE pgmq.queue_record AS
	(queue_name text, is_partitioned boolean, is_unlogged boolean, created_at timestamptz);
CREATE TYPE pgmq.metrics_result AS
	(queue_name text, queue_length bigint, newest_msg_age_sec integer, oldest_msg_age_sec integer,
	 total_messages bigint, scrape_time timestamptz, queue_visible_length bigint);

/*---- Inside ----*/

CREATE FUNCTION pgmq.format_table_name(queue_name text, prefix text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF queue_name ~ '[$;'']|--' OR length(queue_name) > 47 THEN
		RAISE EXCEPTION 'queue name is too long or has invalid characters: %', queue_name
			USING ERRCODE = 'invalid_name', HINT = 'Use at most 47 characters, and none of $, ;, -- and single quotes.';
	END IF;
	RETURN lower(prefix || '_' || queue_name);
END $$;
COMMENT ON FUNCTION pgmq.format_table_name(text, text) IS 'name of a table of the queue; an error if no queue can have this name';

-- The owner of these functions may be able to receive from other queues of delay_wheel.
CREATE FUNCTION pgmq.queue(queue_name text) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM pgmq.meta m WHERE lower(m.queue_name) = lower($1)) THEN
		RAISE EXCEPTION 'queue "%" does not exist', queue_name
			USING ERRCODE = 'undefined_table', HINT = 'Make it by pgmq.create().';
	END IF;
	RETURN lower(queue_name);
END $$;
COMMENT ON FUNCTION pgmq.queue(text) IS 'the queue of delay_wheel; an error if pgmq.create() has not made it';

CREATE FUNCTION pgmq.next_number(queue_name text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	RETURN nextval(format('pgmq.%I', pgmq.format_table_name(queue_name, 'q') || '_msg_id_seq'));
END $$;
COMMENT ON FUNCTION pgmq.next_number(text) IS 'next number of a message in the queue; an error if there is no such queue';

CREATE FUNCTION pgmq.get(number text, payload jsonb, headers jsonb, more_reads integer, vt timestamptz)
	RETURNS pgmq.message_record LANGUAGE plpgsql STABLE AS $$
DECLARE
	own CONSTANT jsonb := headers -> 'pgmq';
	m pgmq.message_record;
BEGIN
	m.read_ct := more_reads;
	m.vt := vt;
	m.message := payload;
	m.headers := headers;
	IF own IS NOT NULL THEN
		m.msg_id := number::bigint;
		m.read_ct := m.read_ct + (own ->> 'reads')::integer;
		m.enqueued_at := own ->> 'at';
		m.message := CASE WHEN own -> 'is_null' <> 'true' THEN payload END;
		m.headers := CASE WHEN own ? 'headers' THEN nullif(own -> 'headers', 'null') ELSE headers - 'pgmq' END;
	END IF;
	RETURN m;
END $$;
COMMENT ON FUNCTION pgmq.get(text, jsonb, jsonb, integer, timestamptz) IS
'a message of delay_wheel as pgmq has it; msg_id and enqueued_at are null if it was sent by delay_send()';

CREATE FUNCTION pgmq.messages(queue_name text) RETURNS SETOF pgmq.message_record LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
	its_queue CONSTANT text := pgmq.queue(queue_name);
BEGIN
	RETURN QUERY SELECT g.* FROM delay_wheel.tasks t
		CROSS JOIN LATERAL pgmq.get(t.key, t.payload, t.headers, t.attempts::integer, coalesce(t.leased_until, t.due)) g
	WHERE t.queue = its_queue;
END $$;
COMMENT ON FUNCTION pgmq.messages(text) IS 'all messages of the queue, as the view of its name shows them';

/*
 * The only functions that call those of delay_wheel in the schema of the extension.  They pass all
 * arguments, of exactly the declared types, so that no other function of the same name is called.
 */
SELECT replace($file$
CREATE FUNCTION pgmq.put(queue_name text, m pgmq.message_record) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	own jsonb := jsonb_build_object('at', m.enqueued_at, 'reads', m.read_ct, 'is_null', m.message IS NULL);
BEGIN
	IF jsonb_typeof(m.headers) = 'object' AND NOT m.headers ? 'pgmq' THEN
		own := m.headers || jsonb_build_object('pgmq', own);
	ELSE
		own := jsonb_build_object('pgmq', own || jsonb_build_object('headers', m.headers));
	END IF;
	PERFORM @extschema@.delay_send(queue_name, coalesce(m.message, 'null'), NULL::interval, m.vt, m.msg_id::text, 'error'::text,
		NULL::text, NULL::integer, NULL::integer, NULL::text, own, NULL::jsonb);
	RETURN m.msg_id;
END $$;
COMMENT ON FUNCTION pgmq.put(text, pgmq.message_record) IS 'sends a message of pgmq to this queue of delay_wheel; returns its number';

/*
 * delay_send() returns the task that has the key.  It waits for a transaction that is reading the
 * message, as UPDATE does.
 */
CREATE FUNCTION pgmq.task_of(queue_name text, number bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	task CONSTANT bigint := @extschema@.delay_send(pgmq.queue(queue_name), 'null'::jsonb, NULL::interval, '9999-12-31'::timestamptz, number::text,
		'keep'::text, NULL::text, NULL::integer, NULL::integer, NULL::text, NULL::jsonb, NULL::jsonb);
BEGIN
	IF (SELECT outcome FROM @extschema@.delay_scheduled(task)) = 'kept' THEN
		RETURN task;
	END IF;
	PERFORM pgmq.cancel(task, false);
	RETURN NULL;
END $$;
COMMENT ON FUNCTION pgmq.task_of(text, bigint) IS 'the task of the message with this number; null if there is none, or if it is leased';

-- The timer takes a message a moment after the commit of its sender.
CREATE FUNCTION pgmq.receive(queue text, n integer, OUT payload jsonb, OUT attempt integer, OUT due timestamptz,
	OUT headers jsonb, OUT key text) RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
	FOR try IN 1..2 LOOP
		RETURN QUERY SELECT r.payload, r.attempt, r.due, r.headers, r.key FROM @extschema@.delay_receive(queue, n, true) r;
		EXIT WHEN FOUND OR try = 2;
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
COMMENT ON FUNCTION pgmq.receive(text, integer) IS 'receives messages; if there are none, looks again after 10 ms';

CREATE FUNCTION pgmq.cancel(task bigint, stop_running boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RETURN @extschema@.delay_cancel(task, stop_running, false, NULL::text, NULL::text, false) = 'cancelled';
END $$;
COMMENT ON FUNCTION pgmq.cancel(bigint, boolean) IS 'deletes a message; false if it is leased, or gone';

CREATE FUNCTION pgmq.cancel_all(queue text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM @extschema@.delay_cancel_all(queue, NULL::text, NULL::timestamptz, NULL::timestamptz);
END $$;
COMMENT ON FUNCTION pgmq.cancel_all(text) IS 'deletes all messages of this queue of delay_wheel';

CREATE FUNCTION pgmq.move(task bigint, due timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RETURN @extschema@.delay_reschedule(task, due, NULL::text, NULL::text) = 'moved';
END $$;
COMMENT ON FUNCTION pgmq.move(bigint, timestamptz) IS 'gives a message another due time; false if it is leased, or gone';
$file$, '@extschema@', quote_ident(n.nspname))
FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
WHERE e.extname = 'delay_wheel'
\gexec

/*---- Queues ----*/

/*
 * As in pgmq, messages may be read any number of times, and a reader's transaction may be idle for
 * any time.
 */
CREATE FUNCTION pgmq.create(queue_name text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
	messages CONSTANT text := pgmq.format_table_name(queue_name, 'q');
	archive CONSTANT text := pgmq.format_table_name(queue_name, 'a');
BEGIN
	INSERT INTO pgmq.meta (queue_name) VALUES ($1) ON CONFLICT DO NOTHING;
	IF NOT FOUND THEN
		RETURN;
	ELSIF EXISTS (SELECT FROM delay_wheel.queues q WHERE q.name = lower(queue_name)) THEN
		RAISE EXCEPTION 'delay_wheel has a queue "%" already', lower(queue_name) USING ERRCODE = 'duplicate_object';
	END IF;
	PERFORM delay_wheel.create_queue(name => lower(queue_name), external => true, max_attempts => 32767,
		options => '{"receive_timeout": "0", "history": "off"}');
	EXECUTE format('CREATE SEQUENCE pgmq.%I', messages || '_msg_id_seq');
	EXECUTE format('CREATE VIEW pgmq.%I AS SELECT * FROM pgmq.messages(%L)', messages, queue_name);
	EXECUTE format('CREATE TABLE pgmq.%I (msg_id bigint PRIMARY KEY, read_ct integer NOT NULL, enqueued_at timestamptz,
		archived_at timestamptz NOT NULL DEFAULT now(), vt timestamptz NOT NULL, message jsonb, headers jsonb)', archive);
	EXECUTE format('CREATE INDEX ON pgmq.%I (archived_at)', archive);
END $$;
COMMENT ON FUNCTION pgmq.create(text) IS 'makes a queue, unless it exists: an external queue of delay_wheel of the same name in lower case';

CREATE FUNCTION pgmq.create_unlogged(queue_name text) RETURNS void LANGUAGE sql
BEGIN ATOMIC
	SELECT pgmq.create($1);
END;
COMMENT ON FUNCTION pgmq.create_unlogged(text) IS 'does the same as pgmq.create()';

CREATE FUNCTION pgmq.drop_queue(queue_name text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
	messages CONSTANT text := pgmq.format_table_name(queue_name, 'q');
BEGIN
	DELETE FROM pgmq.meta m WHERE lower(m.queue_name) = lower($1);
	IF NOT FOUND THEN
		RAISE NOTICE 'queue "%" does not exist', queue_name;
		RETURN false;
	END IF;
	PERFORM pgmq.cancel(t.id, true)
		FROM delay_wheel.tasks t WHERE t.queue = lower(queue_name);
	-- messages that pgmq.purge_queue() has cancelled are removed within some seconds
	FOR try IN REVERSE 100..0 LOOP
		BEGIN
			PERFORM delay_wheel.drop_queue(lower(queue_name));
			EXIT;
		EXCEPTION WHEN object_in_use THEN
			IF try = 0 THEN
				RAISE;
			END IF;
			PERFORM pg_sleep(0.1);
		END;
	END LOOP;
	EXECUTE format('DROP VIEW pgmq.%I', messages);
	EXECUTE format('DROP SEQUENCE pgmq.%I', messages || '_msg_id_seq');
	EXECUTE format('DROP TABLE pgmq.%I', pgmq.format_table_name(queue_name, 'a'));
	RETURN true;
END $$;
COMMENT ON FUNCTION pgmq.drop_queue(text) IS 'drops a queue with its messages and its archive; false if there is none';

CREATE FUNCTION pgmq.drop_queue(queue_name text, partitioned boolean) RETURNS boolean LANGUAGE sql
BEGIN ATOMIC
	SELECT pgmq.drop_queue($1);
END;
COMMENT ON FUNCTION pgmq.drop_queue(text, boolean) IS 'does the same as with one argument';

CREATE FUNCTION pgmq.purge_queue(queue_name text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
	its_queue CONSTANT text := pgmq.queue(queue_name);
	n CONSTANT bigint := (SELECT count(*) FROM delay_wheel.tasks t WHERE t.queue = its_queue);
BEGIN
	PERFORM pgmq.cancel_all(its_queue);
	RETURN n;
END $$;
COMMENT ON FUNCTION pgmq.purge_queue(text) IS 'deletes all messages of the queue; returns their number';

CREATE FUNCTION pgmq.list_queues() RETURNS SETOF pgmq.queue_record LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
BEGIN ATOMIC
	SELECT queue_name, is_partitioned, is_unlogged, created_at FROM pgmq.meta;
END;
COMMENT ON FUNCTION pgmq.list_queues() IS 'all queues';

CREATE FUNCTION pgmq.metrics(queue_name text) RETURNS pgmq.metrics_result LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
	its_queue CONSTANT text := pgmq.queue(queue_name);
	m pgmq.metrics_result;
BEGIN
	EXECUTE format('SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM pgmq.%I',
		pgmq.format_table_name(queue_name, 'q') || '_msg_id_seq') INTO m.total_messages;
	m.queue_name := queue_name;
	m.scrape_time := now();
	SELECT count(*), extract(epoch FROM now() - max(q.at)), extract(epoch FROM now() - min(q.at)), count(*) FILTER (WHERE q.vt <= now())
		INTO m.queue_length, m.newest_msg_age_sec, m.oldest_msg_age_sec, m.queue_visible_length
		FROM (SELECT (t.headers #>> '{pgmq,at}')::timestamptz AS at, coalesce(t.leased_until, t.due) AS vt
			FROM delay_wheel.tasks t WHERE t.queue = its_queue) q;
	RETURN m;
END $$;
COMMENT ON FUNCTION pgmq.metrics(text) IS 'numbers and ages of the messages of a queue';

CREATE FUNCTION pgmq.metrics_all() RETURNS SETOF pgmq.metrics_result LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
BEGIN ATOMIC
	SELECT m.* FROM pgmq.meta q CROSS JOIN LATERAL pgmq.metrics(q.queue_name) m;
END;
COMMENT ON FUNCTION pgmq.metrics_all() IS 'pgmq.metrics() of all queues';

/*---- Sending ----*/

CREATE FUNCTION pgmq.send_batch(queue_name text, msgs jsonb[], headers jsonb[], delay timestamptz)
	RETURNS SETOF bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
	its_queue CONSTANT text := pgmq.queue(queue_name);
BEGIN
	RETURN QUERY SELECT pgmq.put(its_queue, ROW(pgmq.next_number(queue_name), 0, now(), delay, m.message, m.headers)::pgmq.message_record)
		FROM ROWS FROM (unnest(msgs), unnest(send_batch.headers)) WITH ORDINALITY m(message, headers, place)
		WHERE m.place <= cardinality(msgs) ORDER BY m.place;
END $$;
COMMENT ON FUNCTION pgmq.send_batch(text, jsonb[], jsonb[], timestamptz) IS 'sends messages, to be read from the time delay on; returns their numbers';

CREATE FUNCTION pgmq.send_batch(queue_name text, msgs jsonb[]) RETURNS SETOF bigint LANGUAGE sql
BEGIN ATOMIC
	SELECT pgmq.send_batch($1, $2, NULL, clock_timestamp());
END;
CREATE FUNCTION pgmq.send_batch(queue_name text, msgs jsonb[], headers jsonb[]) RETURNS SETOF bigint LANGUAGE sql
BEGIN ATOMIC
	SELECT pgmq.send_batch($1, $2, $3, clock_timestamp());
END;
CREATE FUNCTION pgmq.send_batch(queue_name text, msgs jsonb[], delay integer) RETURNS SETOF bigint LANGUAGE sql
BEGIN ATOMIC
	SELECT pgmq.send_batch($1, $2, NULL, clock_timestamp() + make_interval(secs => $3));
END;
CREATE FUNCTION pgmq.send_batch(queue_name text, msgs jsonb[], delay timestamptz) RETURNS SETOF bigint LANGUAGE sql
BEGIN ATOMIC
	SELECT pgmq.send_batch($1, $2, NULL, $3);
END;
CREATE FUNCTION pgmq.send_batch(queue_name text, msgs jsonb[], headers jsonb[], delay integer) RETURNS SETOF bigint LANGUAGE sql
BEGIN ATOMIC
	SELECT pgmq.send_batch($1, $2, $3, clock_timestamp() + make_interval(secs => $4));
END;

CREATE FUNCTION pgmq.send(queue_name text, msg jsonb, headers jsonb, delay timestamptz)
	RETURNS SETOF bigint LANGUAGE sql
BEGIN ATOMIC
	SELECT pgmq.send_batch($1, ARRAY[$2], ARRAY[$3], $4);
END;
COMMENT ON FUNCTION pgmq.send(text, jsonb, jsonb, timestamptz) IS 'sends a message, to be read from the time delay on; returns its number';

CREATE FUNCTION pgmq.send(queue_name text, msg jsonb) RETURNS SETOF bigint LANGUAGE sql
BEGIN ATOMIC
	SELECT pgmq.send($1, $2, NULL, clock_timestamp());
END;
CREATE FUNCTION pgmq.send(queue_name text, msg jsonb, headers jsonb) RETURNS SETOF bigint LANGUAGE sql
BEGIN ATOMIC
	SELECT pgmq.send($1, $2, $3, clock_timestamp());
END;
CREATE FUNCTION pgmq.send(queue_name text, msg jsonb, delay integer) RETURNS SETOF bigint LANGUAGE sql
BEGIN ATOMIC
	SELECT pgmq.send($1, $2, NULL, clock_timestamp() + make_interval(secs => $3));
END;
CREATE FUNCTION pgmq.send(queue_name text, msg jsonb, delay timestamptz) RETURNS SETOF bigint LANGUAGE sql
BEGIN ATOMIC
	SELECT pgmq.send($1, $2, NULL, $3);
END;
CREATE FUNCTION pgmq.send(queue_name text, msg jsonb, headers jsonb, delay integer) RETURNS SETOF bigint LANGUAGE sql
BEGIN ATOMIC
	SELECT pgmq.send($1, $2, $3, clock_timestamp() + make_interval(secs => $4));
END;

/*---- Reading ----*/

CREATE FUNCTION pgmq.read(queue_name text, vt integer, qty integer, conditional jsonb DEFAULT '{}')
	RETURNS SETOF pgmq.message_record LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
	-- a transaction can receive a thousand messages
	n CONSTANT integer := least(qty, 1000);
	its_queue CONSTANT text := pgmq.queue(queue_name);
	t record;
	m pgmq.message_record;
BEGIN
	IF n <= 0 THEN
		RETURN;
	ELSIF conditional <> '{}' THEN
		FOR t IN SELECT * FROM delay_wheel.tasks w
			WHERE w.queue = its_queue AND w.due <= clock_timestamp() AND w.leased_until IS NULL AND w.payload @> conditional
			ORDER BY w.id LIMIT n
		LOOP
			-- another reader may have it by now
			CONTINUE WHEN NOT pgmq.cancel(t.id, false);
			m := pgmq.get(t.key, t.payload, t.headers, t.attempts + 1, clock_timestamp() + make_interval(secs => read.vt));
			m.msg_id := coalesce(m.msg_id, pgmq.next_number(queue_name));
			PERFORM pgmq.put(its_queue, m);
			RETURN NEXT m;
		END LOOP;
		RETURN;
	END IF;
	FOR t IN SELECT * FROM pgmq.receive(its_queue, n) LOOP
		m := pgmq.get(t.key, t.payload, t.headers, t.attempt, clock_timestamp() + make_interval(secs => read.vt));
		m.msg_id := coalesce(m.msg_id, pgmq.next_number(queue_name));
		PERFORM pgmq.put(its_queue, m);
		RETURN NEXT m;
	END LOOP;
END $$;
COMMENT ON FUNCTION pgmq.read(text, integer, integer, jsonb) IS
'returns up to qty messages, 1000 at most, that nobody else gets for vt seconds; with a condition, only messages that contain it';

CREATE FUNCTION pgmq.read_with_poll(queue_name text, vt integer, qty integer, max_poll_seconds integer DEFAULT 5,
	poll_interval_ms integer DEFAULT 100, conditional jsonb DEFAULT '{}') RETURNS SETOF pgmq.message_record LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
	until CONSTANT timestamptz := clock_timestamp() + make_interval(secs => max_poll_seconds);
BEGIN
	WHILE clock_timestamp() < until LOOP
		RETURN QUERY SELECT * FROM pgmq.read(queue_name, read_with_poll.vt, qty, conditional);
		EXIT WHEN FOUND;
		PERFORM pg_sleep(poll_interval_ms / 1000.0);
	END LOOP;
END $$;
COMMENT ON FUNCTION pgmq.read_with_poll(text, integer, integer, integer, integer, jsonb) IS
'calls pgmq.read() again and again, until it returns messages or max_poll_seconds have passed';

CREATE FUNCTION pgmq.pop(queue_name text) RETURNS SETOF pgmq.message_record LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
	m pgmq.message_record;
BEGIN
	SELECT g.* INTO m FROM pgmq.receive(pgmq.queue(queue_name), 1) t
		CROSS JOIN LATERAL pgmq.get(t.key, t.payload, t.headers, t.attempt - 1, t.due) g;
	IF FOUND THEN
		m.msg_id := coalesce(m.msg_id, pgmq.next_number(queue_name));
		RETURN NEXT m;
	END IF;
END $$;
COMMENT ON FUNCTION pgmq.pop(text) IS 'deletes a message and returns it';

CREATE FUNCTION pgmq.set_vt(queue_name text, msg_id bigint, vt integer)
	RETURNS SETOF pgmq.message_record LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
	task CONSTANT bigint := pgmq.task_of(queue_name, msg_id);
BEGIN
	IF task IS NOT NULL AND pgmq.move(task, clock_timestamp() + make_interval(secs => vt)) THEN
		RETURN QUERY SELECT g.* FROM delay_wheel.tasks t
			CROSS JOIN LATERAL pgmq.get(t.key, t.payload, t.headers, t.attempts::integer, t.due) g WHERE t.id = task;
	END IF;
END $$;
COMMENT ON FUNCTION pgmq.set_vt(text, bigint, integer) IS 'nobody else gets the message for vt seconds from now on';

CREATE FUNCTION pgmq.delete(queue_name text, msg_ids bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
	number bigint;
	task bigint;
BEGIN
	FOREACH number IN ARRAY msg_ids LOOP
		task := pgmq.task_of(queue_name, number);
		IF task IS NOT NULL AND pgmq.cancel(task, false) THEN
			RETURN NEXT number;
		END IF;
	END LOOP;
END $$;
COMMENT ON FUNCTION pgmq.delete(text, bigint[]) IS 'deletes messages; returns the numbers of those that there were';

CREATE FUNCTION pgmq.delete(queue_name text, msg_id bigint) RETURNS boolean LANGUAGE sql
BEGIN ATOMIC
	SELECT EXISTS (SELECT FROM pgmq.delete($1, ARRAY[$2]));
END;
COMMENT ON FUNCTION pgmq.delete(text, bigint) IS 'deletes a message; false if there is none';

CREATE FUNCTION pgmq.archive(queue_name text, msg_ids bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
	archive CONSTANT text := pgmq.format_table_name(queue_name, 'a');
	number bigint;
	m pgmq.message_record;
	task bigint;
BEGIN
	FOREACH number IN ARRAY msg_ids LOOP
		task := pgmq.task_of(queue_name, number);
		CONTINUE WHEN task IS NULL;
		SELECT g.* INTO m FROM delay_wheel.tasks t
			CROSS JOIN LATERAL pgmq.get(t.key, t.payload, t.headers, t.attempts::integer, t.due) g WHERE t.id = task;
		CONTINUE WHEN NOT pgmq.cancel(task, false);
		EXECUTE format('INSERT INTO pgmq.%I (msg_id, read_ct, enqueued_at, vt, message, headers) VALUES ($1.*)', archive) USING m;
		RETURN NEXT number;
	END LOOP;
END $$;
COMMENT ON FUNCTION pgmq.archive(text, bigint[]) IS 'moves messages to the archive; returns the numbers of those that there were';

CREATE FUNCTION pgmq.archive(queue_name text, msg_id bigint) RETURNS boolean LANGUAGE sql
BEGIN ATOMIC
	SELECT EXISTS (SELECT FROM pgmq.archive($1, ARRAY[$2]));
END;
COMMENT ON FUNCTION pgmq.archive(text, bigint) IS 'moves a message to the archive; false if there is none';

/*---- What has no meaning here, or cannot be offered ----*/

CREATE FUNCTION pgmq.validate_queue_name(queue_name text) RETURNS void LANGUAGE sql
BEGIN ATOMIC
	SELECT pgmq.format_table_name($1, 'q');
END;
COMMENT ON FUNCTION pgmq.validate_queue_name(text) IS 'an error if no queue can have this name';

CREATE FUNCTION pgmq.detach_archive(queue_name text) RETURNS void LANGUAGE sql
BEGIN ATOMIC
	SELECT;
END;
COMMENT ON FUNCTION pgmq.detach_archive(text) IS 'does nothing: no extension owns the archive';

CREATE FUNCTION pgmq.create_partitioned(queue_name text, partition_interval text DEFAULT '10000',
	retention_interval text DEFAULT '100000') RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
	IF pgmq.format_table_name(queue_name, 'q') IN (SELECT pgmq.format_table_name(q.queue_name, 'q') FROM pgmq.list_queues() q) THEN
		RETURN;
	END IF;
	RAISE EXCEPTION 'queues have no partitions here' USING ERRCODE = 'feature_not_supported',
		HINT = 'Use pgmq.create(). A recurring task can delete old rows of the archive, see delay_cron().';
END $$;
COMMENT ON FUNCTION pgmq.create_partitioned(text, text, text) IS 'an error, SQLSTATE 0A000, unless the queue exists';

/*---- Moving ----*/

CREATE FUNCTION pgmq.take_over(queue_name text, from_schema text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
	messages CONSTANT text := pgmq.format_table_name(queue_name, 'q');
	archive CONSTANT text := pgmq.format_table_name(queue_name, 'a');
	n bigint;
BEGIN
	PERFORM pgmq.create(queue_name);
	EXECUTE format('LOCK TABLE %1$I.%2$I, %1$I.%3$I', from_schema, messages, archive);
	EXECUTE format('SELECT count(pgmq.put($1, ROW(msg_id, read_ct, enqueued_at, vt, message, headers)::pgmq.message_record)) FROM %I.%I',
		from_schema, messages) USING pgmq.queue(queue_name) INTO n;
	EXECUTE format('INSERT INTO pgmq.%I (msg_id, read_ct, enqueued_at, archived_at, vt, message, headers)
		SELECT msg_id, read_ct, enqueued_at, archived_at, vt, message, headers FROM %I.%1$I', archive, from_schema);
	EXECUTE format('SELECT setval(%L, last_value, is_called) FROM %I.%I',
		format('pgmq.%I', messages || '_msg_id_seq'), from_schema, messages || '_msg_id_seq');
	RETURN n;
END $$;
COMMENT ON FUNCTION pgmq.take_over(text, text) IS
'makes a queue with the messages and the archive of a queue of pgmq, whose schema has been renamed; returns the number of messages';

CREATE FUNCTION pgmq.give_back(queue_name text, to_schema text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
	messages CONSTANT text := pgmq.format_table_name(queue_name, 'q');
	archive CONSTANT text := pgmq.format_table_name(queue_name, 'a');
	n bigint;
BEGIN
	EXECUTE format('TRUNCATE %1$I.%2$I, %1$I.%3$I', to_schema, messages, archive);
	EXECUTE format('INSERT INTO %I.%I (msg_id, read_ct, enqueued_at, vt, message, headers) OVERRIDING SYSTEM VALUE
		SELECT coalesce(msg_id, pgmq.next_number($1)), read_ct, coalesce(enqueued_at, now()), vt, message, headers FROM pgmq.messages($1)',
		to_schema, messages) USING queue_name;
	GET DIAGNOSTICS n = ROW_COUNT;
	EXECUTE format('INSERT INTO %I.%I (msg_id, read_ct, enqueued_at, archived_at, vt, message, headers)
		SELECT msg_id, read_ct, coalesce(enqueued_at, archived_at), archived_at, vt, message, headers FROM pgmq.%2$I', to_schema, archive);
	EXECUTE format('SELECT setval(%L, last_value, is_called) FROM pgmq.%I',
		format('%I.%I', to_schema, messages || '_msg_id_seq'), messages || '_msg_id_seq');
	PERFORM pgmq.drop_queue(queue_name);
	RETURN n;
END $$;
COMMENT ON FUNCTION pgmq.give_back(text, text) IS
'the way back of pgmq.take_over(): writes messages and archive to the tables of pgmq, and drops the queue here; returns the number of messages';

REVOKE EXECUTE ON FUNCTION pgmq.create(text), pgmq.drop_queue(text), pgmq.take_over(text, text), pgmq.give_back(text, text),
	pgmq.queue(text), pgmq.next_number(text), pgmq.put(text, pgmq.message_record), pgmq.get(text, jsonb, jsonb, integer, timestamptz),
	pgmq.receive(text, integer), pgmq.task_of(text, bigint), pgmq.cancel(bigint, boolean), pgmq.cancel_all(text),
	pgmq.move(bigint, timestamptz) FROM PUBLIC;

SELECT pg_catalog.set_config('search_path', :'pgmq_search_path', false) \g /dev/null
