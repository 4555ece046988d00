-- Stands in for pgmq 1.5 (doc/from-pgmq.md): its tables with their columns and defaults, as its documentation and
-- test/bench/results show them, and a little of its functions.
CREATE SCHEMA pgmq;
CREATE TABLE pgmq.meta (queue_name varchar UNIQUE NOT NULL, is_partitioned bool NOT NULL DEFAULT false, is_unlogged bool NOT NULL DEFAULT false,
	created_at timestamptz NOT NULL DEFAULT now());
CREATE FUNCTION pgmq.create(name text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	archived text := '';
	kind text;
BEGIN
	FOREACH kind IN ARRAY ARRAY['q', 'a'] LOOP
		EXECUTE format('CREATE TABLE pgmq.%I (msg_id bigint PRIMARY KEY%s, read_ct int NOT NULL DEFAULT 0, enqueued_at timestamptz NOT NULL DEFAULT now(),
			%s vt timestamptz NOT NULL, message jsonb, headers jsonb)', lower(kind || '_' || name),
			CASE kind WHEN 'q' THEN ' GENERATED ALWAYS AS IDENTITY' ELSE '' END,
			CASE kind WHEN 'a' THEN 'archived_at timestamptz NOT NULL DEFAULT now(),' ELSE '' END);
	END LOOP;
	INSERT INTO pgmq.meta VALUES (name);
END $$;
CREATE FUNCTION pgmq.drop_queue(name text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('DROP TABLE pgmq.%I, pgmq.%I', lower('q_' || name), lower('a_' || name));
	DELETE FROM pgmq.meta WHERE queue_name = name;
	RETURN FOUND;
END $$;
CREATE FUNCTION pgmq.send(queue text, message jsonb, delay int DEFAULT 0, OUT msg_id bigint) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format('INSERT INTO pgmq.%I (vt, message) VALUES ($1, $2) RETURNING msg_id', lower('q_' || queue))
		USING clock_timestamp() + delay * interval '1 second', message;
END $$;
CREATE FUNCTION pgmq.read(queue text, vt int, qty int, OUT msg_id bigint, OUT read_ct int, OUT message jsonb) RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format('UPDATE pgmq.%I SET vt = clock_timestamp() + $1, read_ct = read_ct + 1 WHERE msg_id = ANY (ARRAY(
			SELECT msg_id FROM pgmq.%1$I WHERE vt <= clock_timestamp() ORDER BY msg_id LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING msg_id, read_ct, message',
		lower('q_' || queue)) USING vt * interval '1 second', qty;
END $$;
CREATE FUNCTION pgmq.delete(queue text, id bigint, OUT deleted boolean) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('WITH d AS (DELETE FROM pgmq.%I WHERE msg_id = $1 RETURNING 1) SELECT count(*) = 1 FROM d', lower('q_' || queue)) INTO deleted USING id;
END $$;
