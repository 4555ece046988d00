--
-- The objects of every database of the measure, whichever peer works in it: the story's
-- orders, with the time at which each is to be rated.  Run once in each.
--

-- The task of an order is
--     UPDATE t_order SET stars = stars + 5, status = status + 1 WHERE oid = $1
-- It counts: an order that gets it twice has 10 stars.
CREATE TABLE t_order (
	oid bigint PRIMARY KEY,
	due timestamptz NOT NULL,
	stars int NOT NULL DEFAULT 0,
	status int NOT NULL DEFAULT 0
) WITH (vacuum_truncate = off);

-- A queue as one would write it by hand; the floor of scheduling is an INSERT into it.
CREATE TABLE queue (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	due timestamptz NOT NULL,
	oid bigint NOT NULL
) WITH (vacuum_truncate = off);
CREATE INDEX ON queue (due);

-- So many orders that are not rated yet: the first is due at that time, each other one
-- so much later than the one before it.
CREATE FUNCTION new_orders(how_many bigint, first_due timestamptz, apart interval) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	TRUNCATE t_order;
	INSERT INTO t_order (oid, due) SELECT i, first_due + (i - 1) * apart FROM generate_series(1, how_many) i;
END $$;

-- Their outcome.  "early" are those whose effect was committed before they were due.
CREATE FUNCTION effects(OUT once bigint, OUT twice bigint, OUT never bigint, OUT early bigint, OUT last_commit float8)
LANGUAGE sql
BEGIN ATOMIC
	SELECT count(*) FILTER (WHERE status = 1 AND stars = 5), count(*) FILTER (WHERE status > 1 OR stars > 5),
		count(*) FILTER (WHERE status = 0),
		count(*) FILTER (WHERE status > 0 AND pg_xact_commit_timestamp(xmin) < due),
		extract(epoch FROM max(pg_xact_commit_timestamp(xmin)) FILTER (WHERE status > 0))
	FROM t_order;
END;
