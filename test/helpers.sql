-- Functions for the regression tests, temporary so that nothing of them stays.
-- Included by each file: \getenv abs_srcdir PG_ABS_SRCDIR gives the way here.

-- Waits for a condition, with a limit that only a failure reaches.
CREATE FUNCTION pg_temp.wait_for(condition text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	deadline timestamptz := clock_timestamp() + interval '120 seconds';
	is_met boolean;
BEGIN
	LOOP
		EXECUTE 'SELECT ' || condition INTO is_met;
		IF is_met THEN
			RETURN 'ok';
		END IF;
		IF clock_timestamp() > deadline THEN
			RETURN 'waited in vain for ' || condition;
		END IF;
		PERFORM pg_sleep(0.02), pg_stat_clear_snapshot();
	END LOOP;
END
$$;

-- Waits until no task is left that is due: each one's row goes with its end.
CREATE FUNCTION pg_temp.wait_until_done() RETURNS text
LANGUAGE sql AS $$
SELECT pg_temp.wait_for(
	'NOT EXISTS (SELECT FROM delay_wheel_data.task WHERE due <= clock_timestamp())')
$$;

-- A call with these arguments, as name => value: those that are no parameters go into the parameter options.
CREATE FUNCTION pg_temp.call_of(function text, args text) RETURNS text LANGUAGE sql AS $$
	SELECT format('%s(%s)', function, concat_ws(', ', string_agg(a.text, ', ' ORDER BY n) FILTER (WHERE is_parameter),
			'options => jsonb_build_object(' || string_agg(format('%L, %s', name, value), ', ' ORDER BY n) FILTER (WHERE NOT is_parameter) || ')'))
	FROM (SELECT n, text, name, name IS NULL OR EXISTS (SELECT FROM pg_proc WHERE proname = substring(function FROM '[a-z_]+$') AND name = ANY (proargnames)) AS is_parameter,
			regexp_replace(text, '^[a-z_]+ => ', '') || CASE WHEN name IN ('arg_types', 'retry_on', 'give_up_on', 'keep_settings') THEN '::text[]' ELSE '' END AS value
		FROM (SELECT n, text, substring(text FROM '^([a-z_]+) => ') AS name FROM regexp_split_to_table(args, ',\s*(?=[a-z_]+ => )') WITH ORDINALITY r(text, n)) named) a
$$;

-- What a command fails with; no row if it does not.
CREATE FUNCTION pg_temp.error_of(command text, OUT code text,
	OUT message text, OUT detail text, OUT hint text) RETURNS SETOF record
LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE command;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE,
		message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
		hint = PG_EXCEPTION_HINT;
	RETURN NEXT;
END
$$;
