-- HTTP calls from SQL: the schema delay_http, the queue "http", and two roles.  Run it as a
-- superuser in each database that schedules calls:
--
--   sudo -u postgres psql -d shop -f setup.sql
--
-- It can run again, after an update for instance: then it replaces the functions, and leaves
-- the queue as it is.  PostgreSQL 15 or later.
--
-- Roles: members of delay_http_sender may schedule calls; delay_http_worker, as which
-- delay-wheel-http connects, may receive them, and nothing else.

BEGIN;
SET LOCAL client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS delay_wheel;
-- Bodies of functions below are bound to the extension's schema now, whatever search_path
-- their callers have.
DO $$ BEGIN PERFORM set_config('search_path', extnamespace::regnamespace::text, true) FROM pg_extension WHERE extname = 'delay_wheel'; END $$;

DO $$
BEGIN
	IF to_regrole('delay_http_sender') IS NULL THEN
		CREATE ROLE delay_http_sender;
	END IF;
	IF to_regrole('delay_http_worker') IS NULL THEN
		CREATE ROLE delay_http_worker LOGIN;
	END IF;
	PERFORM delay_wheel.allow('delay_http_sender', 'delay_http_worker');
	-- The worker calls our functions without their schema.
	EXECUTE format('ALTER ROLE delay_http_worker IN DATABASE %I SET search_path = %s', current_database(), current_setting('search_path'));
	-- It only receives: it can schedule nothing.
	EXECUTE format('ALTER ROLE delay_http_worker IN DATABASE %I SET delay_wheel.max_pending = 0', current_database());
	-- Each host is a group, so that a slow host holds up no other: at most 20 calls of a host
	-- at a time.  18 attempts with pauses from 5 seconds to 6 hours: within two days.
	IF NOT EXISTS (SELECT FROM delay_wheel.queues WHERE name = 'http') THEN
		PERFORM delay_wheel.create_queue('http', external => true, groups => true, max_attempts => 18,
			users => '{delay_http_sender}', receivers => '{delay_http_worker}',
			options => '{"group_max_running": 20, "retry_delay": "5 seconds", "retry_max_delay": "6 hours"}');
	END IF;
END
$$;

CREATE SCHEMA IF NOT EXISTS delay_http;
COMMENT ON SCHEMA delay_http IS 'HTTP calls that delay-wheel-http makes when they are due';
GRANT USAGE ON SCHEMA delay_http TO delay_http_sender;

CREATE OR REPLACE FUNCTION delay_http.host(url text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN lower((regexp_match(url, '^https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?(?:[/?#][!-~]*)?$', 'i'))[1]);
COMMENT ON FUNCTION delay_http.host(text) IS
'Returns the host of a URL; NULL if the URL is not http or https, names a user, or has other characters than printable ASCII.';

-- delay-wheel-http checks all this again before it sends, since a sender may also call
-- delay_send().  The checks here are for the caller's sake: an error now, not in two days.
CREATE OR REPLACE FUNCTION delay_http.payload(method text, url text, body text, headers jsonb, endpoint text, timeout interval) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	wrong text;
BEGIN
	IF method IS NULL OR method NOT IN ('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE') THEN
		RAISE EXCEPTION 'method must be GET, HEAD, POST, PUT, PATCH or DELETE' USING ERRCODE = '22023';
	END IF;
	IF url IS NULL OR length(url) > 8000 OR delay_http.host(url) IS NULL THEN
		RAISE EXCEPTION 'url is not valid' USING ERRCODE = '22023',
			HINT = 'Write http or https, a host without a user, and printable ASCII characters; encode others.';
	END IF;
	IF method = 'HEAD' AND body IS NOT NULL THEN
		RAISE EXCEPTION 'HEAD cannot have a body' USING ERRCODE = '22023';
	END IF;
	IF endpoint !~ '^[A-Za-z0-9_-]{1,64}$' THEN
		RAISE EXCEPTION 'endpoint must be 1 to 64 letters, digits, "_" or "-"' USING ERRCODE = '22023';
	END IF;
	IF timeout <= '0' THEN
		RAISE EXCEPTION 'timeout must be greater than zero' USING ERRCODE = '22023';
	END IF;
	IF jsonb_typeof(headers) <> 'object' THEN
		RAISE EXCEPTION 'headers must be a JSON object' USING ERRCODE = '22023';
	END IF;
	IF (SELECT count(*) FROM jsonb_object_keys(headers)) > 100 THEN
		RAISE EXCEPTION 'there are more than 100 headers' USING ERRCODE = '22023';
	END IF;
	SELECT key INTO wrong FROM jsonb_each_text(headers)
	WHERE key !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]{1,255}$' OR value IS NULL OR value ~ '[\x01-\x08\x0a-\x1f\x7f]' OR length(value) > 8000
		OR lower(key) ~ '^(host|content-length|transfer-encoding|te|trailer|connection|keep-alive|upgrade|expect|proxy-.*|webhook-.*)$'
	LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'header % is not valid', quote_ident(wrong) USING ERRCODE = '22023',
			HINT = 'Names have no blanks, values no control characters. Host, lengths, connections, Proxy-* and Webhook-* cannot be set.';
	END IF;
	-- The same for all attempts; unique among all databases that call a host.
	RETURN jsonb_strip_nulls(jsonb_build_object('id', 'msg_' || replace(gen_random_uuid()::text, '-', ''), 'method', method, 'url', url,
		'body', body, 'headers', headers, 'endpoint', endpoint, 'timeout', extract(epoch FROM timeout)));
END
$$;
COMMENT ON FUNCTION delay_http.payload(text, text, text, jsonb, text, interval) IS
'Checks a call, and returns the payload of its message.';

CREATE OR REPLACE FUNCTION delay_http.send(
	method text, url text, body text DEFAULT NULL, delay interval DEFAULT NULL, due timestamptz DEFAULT NULL, key text DEFAULT NULL,
	if_exists text DEFAULT NULL, tag text DEFAULT NULL, priority integer DEFAULT NULL, max_attempts integer DEFAULT NULL,
	headers jsonb DEFAULT NULL, endpoint text DEFAULT NULL, timeout interval DEFAULT NULL, options jsonb DEFAULT NULL) RETURNS bigint
LANGUAGE sql VOLATILE
BEGIN ATOMIC
	SELECT delay_send('http', delay_http.payload(send.method, send.url, send.body, send.headers, send.endpoint, send.timeout),
		delay => send.delay, due => send.due, key => send.key, if_exists => send.if_exists, tag => send.tag, priority => send.priority,
		max_attempts => send.max_attempts, group_key => delay_http.host(send.url),
		headers => (SELECT jsonb_build_object('traceparent', t) FROM nullif(current_setting('delay_wheel.traceparent', true), '') t WHERE t IS NOT NULL),
		options => send.options);
END;
COMMENT ON FUNCTION delay_http.send(text, text, text, interval, timestamptz, text, text, text, integer, integer, jsonb, text, interval, jsonb) IS
'Schedules an HTTP call, if this transaction commits, and returns the id of its message.';

CREATE OR REPLACE FUNCTION delay_http.post(
	url text, body jsonb, delay interval DEFAULT NULL, due timestamptz DEFAULT NULL, key text DEFAULT NULL,
	if_exists text DEFAULT NULL, tag text DEFAULT NULL, priority integer DEFAULT NULL, max_attempts integer DEFAULT NULL,
	headers jsonb DEFAULT NULL, endpoint text DEFAULT NULL, timeout interval DEFAULT NULL, options jsonb DEFAULT NULL) RETURNS bigint
LANGUAGE sql VOLATILE
BEGIN ATOMIC
	SELECT delay_http.send('POST', post.url, post.body::text, post.delay, post.due, post.key, post.if_exists, post.tag, post.priority,
		post.max_attempts, coalesce(post.headers, '{"Content-Type": "application/json"}'), post.endpoint, post.timeout, post.options);
END;
COMMENT ON FUNCTION delay_http.post(text, jsonb, interval, timestamptz, text, text, text, integer, integer, jsonb, text, interval, jsonb) IS
'Schedules a POST of JSON, if this transaction commits, and returns the id of its message.';

CREATE OR REPLACE FUNCTION delay_http.cancel(key text) RETURNS text LANGUAGE sql VOLATILE
BEGIN ATOMIC
	SELECT delay_cancel(key => cancel.key, queue => 'http');
END;
COMMENT ON FUNCTION delay_http.cancel(text) IS 'Cancels the pending call of a key of the current user.';

CREATE OR REPLACE FUNCTION delay_http.post_trigger() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	new_row jsonb := to_jsonb(NEW);
	body jsonb := '{}';
	option jsonb := '{}';
	word text;
	url text;
	wait interval;
	at timestamptz;
BEGIN
	IF TG_NARGS < 2 OR TG_WHEN <> 'AFTER' OR TG_LEVEL <> 'ROW' OR TG_OP = 'DELETE' THEN
		RAISE EXCEPTION 'post_trigger() needs a delay and a URL, and AFTER INSERT OR UPDATE ... FOR EACH ROW' USING ERRCODE = '39P01';
	END IF;
	FOREACH word IN ARRAY TG_ARGV[2:] LOOP
		IF word ~ '^(key|tag|endpoint|if_exists)=' THEN
			option := option || jsonb_build_object(split_part(word, '=', 1), substr(word, strpos(word, '=') + 1));
		ELSIF new_row ? word THEN
			body := body || jsonb_build_object(word, new_row -> word);
		ELSE
			RAISE EXCEPTION 'column "%" does not exist', word USING ERRCODE = '42703';
		END IF;
	END LOOP;
	IF body = '{}' THEN
		body := new_row;
	END IF;
	-- "key" and "tag" name a column, or are the same for all rows.
	FOREACH word IN ARRAY '{key,tag}'::text[] LOOP
		IF new_row ? (option ->> word) THEN
			option := option || jsonb_build_object(word, new_row ->> (option ->> word));
		END IF;
	END LOOP;
	url := CASE WHEN new_row ? TG_ARGV[1] THEN new_row ->> TG_ARGV[1] ELSE TG_ARGV[1] END;
	IF NOT new_row ? TG_ARGV[0] THEN
		wait := TG_ARGV[0];
	ELSIF EXISTS (SELECT FROM pg_attribute WHERE attrelid = TG_RELID AND attname = TG_ARGV[0] AND atttypid = 'interval'::regtype) THEN
		wait := new_row ->> TG_ARGV[0];
	ELSE
		at := new_row ->> TG_ARGV[0];
	END IF;
	IF url IS NULL OR (wait IS NULL AND at IS NULL) THEN
		-- No URL, no time: no call, and a pending call of the key is withdrawn.
		IF option ->> 'key' IS NOT NULL THEN
			PERFORM delay_http.cancel(option ->> 'key');
		END IF;
		RETURN NULL;
	END IF;
	PERFORM delay_http.post(url, body, delay => wait, due => at, key => option ->> 'key', tag => option ->> 'tag', endpoint => option ->> 'endpoint',
		if_exists => CASE WHEN option ->> 'key' IS NOT NULL THEN coalesce(option ->> 'if_exists', 'replace') END);
	RETURN NULL;
END
$$;
COMMENT ON FUNCTION delay_http.post_trigger() IS
'Trigger: posts each row as JSON after a delay. Arguments: delay, URL, columns, and key=, tag=, endpoint=, if_exists=. Keys belong to the role that writes the row.';

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA delay_http FROM PUBLIC;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA delay_http TO delay_http_sender;
COMMIT;
