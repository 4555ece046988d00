--
-- TRANSACTIONS
-- A task exists if and only if the transaction and subtransaction that
-- scheduled it committed; the same holds for cancel and reschedule.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE TABLE transactions_effect (label text);

--
-- Commit, rollback, savepoints
--
BEGIN;
SELECT delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('committed')$$) > 0 AS ok;
COMMIT;
BEGIN;
SELECT delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('NEVER: rolled back')$$) > 0 AS ok;
ROLLBACK;
BEGIN;
SELECT delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('NEVER: ended by an error')$$) > 0 AS ok;
SELECT 1 / 0;
COMMIT;
BEGIN;
SELECT delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('before the savepoint')$$) > 0 AS ok;
SAVEPOINT a;
SELECT delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('NEVER: after savepoint a')$$) > 0 AS ok;
SAVEPOINT b;
SELECT delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('NEVER: released into a')$$) > 0 AS ok;
RELEASE b;
ROLLBACK TO a;
SELECT delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('after the rollback to a')$$) > 0 AS ok;
SAVEPOINT c;
SELECT delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('released')$$) > 0 AS ok;
SAVEPOINT d;
SELECT delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('NEVER: d')$$) > 0 AS ok;
ROLLBACK TO d;
RELEASE c;
COMMIT;
-- the first of many commands of a transaction block counts as well
SELECT delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('NEVER: multi')$$) > 0 AS ok\; SELECT 1 / 0;

--
-- PL/pgSQL exception blocks, nested
--
DO $do$
BEGIN
	PERFORM delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('plpgsql: outside')$$);
	BEGIN
		PERFORM delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('NEVER: plpgsql, block 1')$$);
		BEGIN
			PERFORM delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('NEVER: plpgsql, block 2 without an error')$$);
		EXCEPTION WHEN OTHERS THEN
			RAISE;
		END;
		RAISE EXCEPTION 'block 1';
	EXCEPTION WHEN OTHERS THEN
		PERFORM delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('plpgsql: handler')$$);
	END;
	BEGIN
		PERFORM delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('plpgsql: block 3 without an error')$$);
		BEGIN
			PERFORM delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('NEVER: plpgsql, block 4')$$);
			PERFORM delay_schedule(NULL, 'refused');
		EXCEPTION WHEN null_value_not_allowed THEN
			NULL;
		END;
	EXCEPTION WHEN OTHERS THEN
		RAISE;
	END;
END
$do$;

--
-- Cancel and reschedule
--
SELECT delay_cancel(delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('NEVER: cancelled at once')$$));
SELECT count(*) FILTER (WHERE delay_cancel(id) = 'cancelled') AS cancelled
	FROM (SELECT delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('NEVER: cancelled in one statement')$$) AS id
		FROM generate_series(1, 100)) s;
BEGIN;
SELECT delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('cancel undone')$$) AS id \gset
SAVEPOINT a;
SELECT delay_cancel(:id), delay_cancel(:id) AS again;
ROLLBACK TO a;
SELECT delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('NEVER: cancelled in a savepoint')$$) AS id \gset
SAVEPOINT b;
SELECT delay_cancel(:id);
RELEASE b;
SELECT delay_schedule('1 hour', $$INSERT INTO transactions_effect VALUES ('moved from far to near')$$) AS id \gset
SELECT delay_reschedule(:id, '0');
SELECT delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('moved away and undone')$$) AS id \gset
SAVEPOINT c;
SELECT delay_reschedule(:id, '1 hour');
ROLLBACK TO c;
SELECT delay_schedule('0', $$INSERT INTO transactions_effect VALUES ('NEVER: moved away')$$) AS away \gset
SELECT delay_reschedule(:away, '1 hour'), delay_reschedule(:away, '2 hours'), delay_reschedule(:away, now() + interval '3 hours');
COMMIT;
SELECT due - now() BETWEEN '2 h 50 min' AND '3 h' AS as_moved_last FROM delay_wheel.tasks WHERE id = :away;
SELECT delay_cancel(:away);

SELECT pg_temp.wait_until_done();
SELECT label FROM transactions_effect ORDER BY label COLLATE "C";

--
-- What was pending before: cancelled or moved, and that rolled back
--
SELECT delay_schedule('1 hour', $$INSERT INTO transactions_effect VALUES ('kept')$$) AS kept \gset
SELECT due AS kept_due FROM delay_wheel.tasks WHERE id = :kept \gset
BEGIN; SELECT delay_cancel(:kept); ROLLBACK;
BEGIN; SELECT delay_reschedule(:kept, '0'); ROLLBACK;
DO $$
BEGIN
	PERFORM delay_cancel(id) FROM delay_wheel_data.task;
	RAISE EXCEPTION 'undone';
EXCEPTION WHEN OTHERS THEN
	PERFORM delay_reschedule(id, '0') FROM delay_wheel_data.task;
	RAISE;
END
$$;
SELECT due = :'kept_due' AS unmoved FROM delay_wheel.tasks WHERE id = :kept;
SELECT delay_cancel(:kept);

--
-- Many in one transaction: beyond what is remembered one by one
--
CREATE TABLE transactions_many (i int);
CREATE ROLE regress_dw_many LOGIN;
SELECT delay_wheel.allow('regress_dw_many');
ALTER ROLE regress_dw_many SET synchronous_commit = off;
GRANT ALL ON transactions_many TO regress_dw_many;
SET SESSION AUTHORIZATION regress_dw_many;
SELECT count(delay_schedule('0', 'INSERT INTO transactions_many VALUES ($1)', i)) FROM generate_series(1, 100000) i;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT count(*), count(DISTINCT i), min(i), max(i) FROM transactions_many;
TRUNCATE transactions_many;

-- the same with savepoints, with some of them cancelled and some moved
SET SESSION AUTHORIZATION regress_dw_many;
BEGIN;
SELECT count(delay_schedule('0', 'INSERT INTO transactions_many VALUES ($1)', i)) FROM generate_series(1, 900) i;
SAVEPOINT a;
SELECT count(delay_schedule('0', 'INSERT INTO transactions_many VALUES ($1)', i)) FROM generate_series(901, 3000) i;
ROLLBACK TO a;
SELECT count(delay_schedule('0', 'INSERT INTO transactions_many VALUES ($1)', i)) FROM generate_series(3001, 6000) i;
SELECT count(delay_schedule('1 hour', 'INSERT INTO transactions_many VALUES ($1)', i)) FROM generate_series(6001, 7000) i;
SELECT delay_cancel(id), count(*) FROM delay_wheel.tasks WHERE args[1]::int % 10 = 0 GROUP BY 1;
SELECT count(*), bool_and(delay_reschedule(id, '0.2 s') = 'moved') FROM delay_wheel.tasks WHERE args[1]::int > 6000;
COMMIT;
BEGIN;
SELECT count(delay_schedule('0', 'INSERT INTO transactions_many VALUES ($1)', -i)) FROM generate_series(1, 3000) i;
ROLLBACK;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel.tasks WHERE owner = ''regress_dw_many'')');
SELECT count(*), count(DISTINCT i), min(i), max(i), count(*) FILTER (WHERE i BETWEEN 901 AND 3000 OR i % 10 = 0) AS wrong
	FROM transactions_many;
-- many that were pending, moved by a transaction that is rolled back, and
-- by one that is not
TRUNCATE transactions_many;
SET SESSION AUTHORIZATION regress_dw_many;
SELECT count(delay_schedule('1 hour', 'INSERT INTO transactions_many VALUES ($1)', i)) FROM generate_series(1, 3000) i;
BEGIN;
SELECT count(*), bool_and(delay_reschedule(id, '0') = 'moved') FROM delay_wheel.tasks;
ROLLBACK;
BEGIN;
SELECT count(*), bool_and(delay_reschedule(id, '0') = 'moved') FROM delay_wheel.tasks;
SAVEPOINT a;
SELECT delay_cancel(id), count(*) FROM delay_wheel.tasks GROUP BY 1;
ROLLBACK TO a;
COMMIT;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel.tasks WHERE owner = ''regress_dw_many'')');
SELECT count(*), count(DISTINCT i) FROM transactions_many;
DROP TABLE transactions_many;
SELECT delay_wheel.disallow('regress_dw_many');
DROP ROLE regress_dw_many;

--
-- The story that all of this is for: an order that is not rated gets five
-- stars some time after it is finished, once, also if orders come by COPY.
--
CREATE TABLE t_order (oid bigint PRIMARY KEY, finish_time timestamptz NOT NULL DEFAULT now(),
	stars int, status int NOT NULL DEFAULT 0, updates int NOT NULL DEFAULT 0);
CREATE FUNCTION rate_later() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM delay_schedule(TG_ARGV[0]::interval,
		'UPDATE t_order SET stars = 5, status = 1, updates = updates + 1 WHERE oid = $1 AND status = 0', NEW.oid);
	RETURN NULL;
END
$$;
CREATE TRIGGER rate_later AFTER INSERT ON t_order FOR EACH ROW EXECUTE FUNCTION rate_later('48 hours');
BEGIN;
COPY t_order (oid) FROM STDIN;
1
2
\.
SELECT count(*), bool_and(due = now() + interval '48 hours') AS in_48_hours, array_agg(args ORDER BY id) FROM delay_wheel.tasks;
ROLLBACK;
DROP TRIGGER rate_later ON t_order;
CREATE TRIGGER rate_later AFTER INSERT ON t_order FOR EACH ROW EXECUTE FUNCTION rate_later('1 second');
-- order 3 is rated by its passenger before the time is over
BEGIN;
COPY t_order (oid) FROM STDIN;
1
2
3
4
\.
UPDATE t_order SET stars = 1, status = 1 WHERE oid = 3;
COMMIT;
COPY t_order (oid) FROM STDIN;
5
5
\.
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel.tasks)');
SELECT oid, stars, status, updates FROM t_order ORDER BY oid;

SELECT count(*) AS failed FROM delay_wheel.failed;
DROP TABLE t_order, transactions_effect;
DROP FUNCTION rate_later;
