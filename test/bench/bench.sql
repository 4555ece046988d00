--
-- What the benchmark works on: the story's orders, and next to delay_wheel what
-- it is compared with, in plain PostgreSQL.  Run once, as a superuser, in an
-- empty database.
--
\set ON_ERROR_STOP on
SET client_min_messages = warning;

CREATE EXTENSION delay_wheel;
CREATE ROLE shop LOGIN;
SELECT delay_wheel.allow('shop') \g /dev/null
GRANT CREATE ON SCHEMA public TO shop;

--
-- Plain copies of our own table: the same columns, and indexes, with constants
-- for what a task has from its session.  No constraints but NOT NULL, and no
-- triggers, as somebody would write it who wants nothing but speed.
--
CREATE FUNCTION make_floor(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE %I (LIKE delay_wheel_data.task INCLUDING INDEXES) WITH (vacuum_truncate = off)', name);
	EXECUTE format('CREATE SEQUENCE %I', name || '_id');
	EXECUTE format('ALTER TABLE %I ALTER id SET DEFAULT nextval(%L), ALTER origin SET DEFAULT %s,
		ALTER owner SET DEFAULT %s, ALTER queue SET DEFAULT 0, ALTER priority SET DEFAULT 0',
		name, name || '_id', delay_wheel_internal.origin(), 'shop'::regrole::oid || '::oid::regrole');
	EXECUTE format('ALTER TABLE %I OWNER TO shop', name);
	EXECUTE format('ALTER SEQUENCE %I OWNER TO shop', name || '_id');
END $$;
SELECT make_floor('floor_task') \g /dev/null

SET ROLE shop;

-- "at" is when the order's task began, where that is measured.
CREATE TABLE t_order (
	oid bigint PRIMARY KEY,
	finish_time timestamptz,
	stars int NOT NULL DEFAULT 0,
	status int NOT NULL DEFAULT 0,
	at timestamptz
) WITH (vacuum_truncate = off);

--
-- Orders without a trigger, with one that schedules, and with a foreign key
-- instead.
--
CREATE TABLE rider (id bigint PRIMARY KEY) WITH (vacuum_truncate = off);
CREATE TABLE ride_plain (LIKE t_order INCLUDING ALL, few bigint NOT NULL, many bigint NOT NULL);
CREATE TABLE ride_wheel (LIKE ride_plain INCLUDING ALL);
CREATE TABLE ride_statement (LIKE ride_plain INCLUDING ALL);
CREATE TABLE ride_plpgsql (LIKE ride_plain INCLUDING ALL);
CREATE TABLE ride_few (LIKE ride_plain INCLUDING ALL, FOREIGN KEY (few) REFERENCES rider);
CREATE TABLE ride_many (LIKE ride_plain INCLUDING ALL, FOREIGN KEY (many) REFERENCES rider);
CREATE TRIGGER rate_later AFTER INSERT ON ride_wheel FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger(
	'48 hours', 'update ride_wheel set stars = 5, status = 1 where oid = $1 and status = 0', 'oid');
CREATE TRIGGER rate_later AFTER INSERT ON ride_statement REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION delay_schedule_trigger(
	'48 hours', 'update ride_wheel set stars = 5, status = 1 where oid = $1 and status = 0', 'oid');
CREATE FUNCTION rate_later() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM delay_schedule('48 hours', 'update ride_plpgsql set stars = 5, status = 1 where oid = $1 and status = 0', new.oid);
	RETURN NULL;
END $$;
CREATE TRIGGER rate_later AFTER INSERT ON ride_plpgsql FOR EACH ROW EXECUTE FUNCTION rate_later();

--
-- The task of an order.  It counts: an order that gets it twice has 10 stars.
--
CREATE FUNCTION task_of(oid bigint) RETURNS text LANGUAGE sql IMMUTABLE
RETURN 'update t_order set stars=stars+5, status=status+1 where oid=' || oid;

-- The same, which writes down when it began.
CREATE FUNCTION timed_task_of(oid bigint) RETURNS text LANGUAGE sql IMMUTABLE
RETURN 'update t_order set stars=stars+5, status=status+1, at=clock_timestamp() where oid=' || oid;

-- So many orders that are not rated yet.
CREATE FUNCTION new_orders(how_many bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	TRUNCATE t_order;
	INSERT INTO t_order (oid) SELECT generate_series(1, how_many);
END $$;

--
-- Has each order had its task exactly once?  An error if not.
--
CREATE FUNCTION check_orders(how_many bigint, orders regclass DEFAULT 't_order') RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	once bigint;
	other bigint;
BEGIN
	EXECUTE format('SELECT count(*) FILTER (WHERE stars = 5 AND status = 1),
		count(*) FILTER (WHERE stars <> 5 OR status <> 1) FROM %s', orders) INTO once, other;
	IF once <> how_many OR other <> 0 THEN
		RAISE EXCEPTION 'of % orders % were updated exactly once, % were not', how_many, once, other;
	END IF;
END $$;

--
-- The floor of a drain in one session: nothing but the updates, in one
-- transaction.  There is no table of tasks to be read or emptied.
--
CREATE PROCEDURE update_bound(how_many bigint) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. how_many LOOP
		UPDATE t_order SET stars = stars + 5, status = status + 1 WHERE oid = i;
	END LOOP;
END $$;

CREATE PROCEDURE update_literal(how_many bigint) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. how_many LOOP
		EXECUTE 'update t_order set stars=stars+5, status=status+1 where oid=' || i;
	END LOOP;
END $$;

--
-- The best loop over a table of tasks that we could write by hand: rows are
-- found in the index and locked in order, deleted by their tid, and run, so many
-- in each transaction.  Ends when nothing is due.
--
CREATE PROCEDURE skip_locked_drain(batch int) LANGUAGE plpgsql AS $$
DECLARE
	task text;
	origin_here CONSTANT bigint := delay_wheel_internal.origin();
BEGIN
	LOOP
		FOR task IN
			DELETE FROM floor_task WHERE ctid = ANY (ARRAY(
				SELECT ctid FROM floor_task
				WHERE owner = 'shop'::regrole AND origin = origin_here AND queue = 0 AND priority = 0 AND due <= now()
				ORDER BY due, id LIMIT batch FOR UPDATE SKIP LOCKED))
			RETURNING sql
		LOOP
			EXECUTE task;
		END LOOP;
		EXIT WHEN NOT FOUND;
		COMMIT;
	END LOOP;
END $$;

-- The same as a poller: it looks ten times a second.
CREATE PROCEDURE skip_locked_poll(until timestamptz) LANGUAGE plpgsql AS $$
BEGIN
	WHILE clock_timestamp() < until LOOP
		CALL skip_locked_drain(100);
		PERFORM pg_sleep(0.1);
		-- now() goes on
		COMMIT;
	END LOOP;
END $$;

--
-- For WAL: tasks of a plain table, deleted and run, so many in a transaction.
--
CREATE PROCEDURE delete_and_update(first bigint, how_many bigint, batch int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. how_many LOOP
		DELETE FROM floor_task WHERE id = first + i - 1;
		UPDATE t_order SET stars = stars + 5, status = status + 1 WHERE oid = i;
		IF i % batch = 0 THEN
			COMMIT;
		END IF;
	END LOOP;
END $$;

--
-- The articles' cron job: look for orders that were finished 48 hours ago and
-- not rated, in one table for each of two jobs.  The index is a kindness, theirs
-- reads all orders.
--
CREATE TABLE each_minute (LIKE t_order INCLUDING DEFAULTS INCLUDING INDEXES);
CREATE INDEX ON each_minute (finish_time) WHERE status = 0;
CREATE TABLE each_second (LIKE each_minute INCLUDING DEFAULTS INCLUDING INDEXES);
CREATE PROCEDURE scan(orders regclass) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('UPDATE %s SET stars = stars + 5, status = status + 1, at = clock_timestamp()
		WHERE finish_time <= now() - interval ''48 hours'' AND status = 0', orders);
END $$;
-- for a pg_cron that knows no seconds: once a minute, each second of it
CREATE PROCEDURE scan_each_second(orders regclass) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 59 LOOP
		CALL scan(orders);
		PERFORM pg_sleep(extract(epoch FROM
			date_trunc('second', clock_timestamp()) + interval '1 second' - clock_timestamp()));
		COMMIT;
	END LOOP;
END $$;
