--
-- A table of orders in the schema :way, with old ones that were rated long ago.
-- Included by example.sql once for each way.
--
CREATE SCHEMA :way;
CREATE TABLE :way.t_order (
	oid bigint PRIMARY KEY,
	finish_time timestamptz NOT NULL,
	rate_at timestamptz NOT NULL,		-- 48 hours later
	stars int,
	status int NOT NULL DEFAULT 0,		-- 0 = not rated, 1 = rated
	rated_at timestamptz			-- when it got its five stars
);
INSERT INTO :way.t_order (oid, finish_time, rate_at, stars, status)
SELECT n, at - 48 * interval :'hour', at, 4, 1
FROM (SELECT n, now() - (1 + :history - n) * interval :'hour' AS at FROM generate_series(1, :history) n) x;
