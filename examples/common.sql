--
-- What the examples share: the extension, and a schema "example" with the means
-- to wait and to check.  Included first, by a superuser, with ON_ERROR_STOP set.
--
\set QUIET on
\pset footer off
\pset null '-'
\if :{?size}
\else
	\set size small
\endif
SELECT :'size' = 'large' AS large \gset
SET client_min_messages = warning;

CREATE EXTENSION delay_wheel;
CREATE SCHEMA example;
GRANT USAGE ON SCHEMA example TO PUBLIC;

-- Waits until a query gives true, which it asks 50 times a second: an error if
-- it does not within the limit.
CREATE PROCEDURE example.wait_until(query text, what text, time_limit interval DEFAULT '60 seconds')
LANGUAGE plpgsql AS $$
DECLARE
	fulfilled boolean;
	give_up CONSTANT timestamptz := clock_timestamp() + time_limit;
BEGIN
	LOOP
		EXECUTE query INTO fulfilled;
		EXIT WHEN fulfilled;
		IF clock_timestamp() > give_up THEN
			RAISE EXCEPTION 'after %, still not so: %', time_limit, what;
		END IF;
		COMMIT;
		PERFORM pg_sleep(0.02);
	END LOOP;
END $$;

-- What must be: an error if it is not.
CREATE FUNCTION example.make_sure(what text, is_so boolean) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF is_so IS NOT TRUE THEN
		RAISE EXCEPTION 'not as it must be: %', what;
	END IF;
	RETURN 'ok - ' || what;
END $$;

-- Milliseconds of an interval.
CREATE FUNCTION example.ms(length interval) RETURNS numeric LANGUAGE sql IMMUTABLE AS
	'SELECT round(extract(epoch FROM length) * 1000, 1)';
