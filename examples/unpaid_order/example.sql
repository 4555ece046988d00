--
-- Unpaid after 30 minutes: three shops with the same orders and the same
-- customers, whose unpaid orders expire by delay_wheel, by polling, or when
-- somebody looks.  A minute lasts 100 ms (2 s in the large size), so half an hour
-- is 3 seconds.
--
-- Run it by "examples/run unpaid_order", or as a superuser in a database of its
-- own, on a server with delay_wheel in shared_preload_libraries:
--     psql -X -f example.sql
-- It makes the roles "store" and "customer", and the queue "unpaid".
--
\set ON_ERROR_STOP on
\ir ../common.sql

\if :large
	\set orders 100000
	\set minute '2 s'
\else
	\set orders 2000
	\set minute '100 ms'
\endif
SELECT 30 * :'minute'::interval AS half_hour, 100 * :'minute'::interval + interval '60 s' AS time_limit \gset

CREATE ROLE store LOGIN;
CREATE ROLE customer LOGIN;
SELECT delay_wheel.allow('store', 'customer') \g /dev/null
-- For the expiry of orders: it can be paused by itself, and its keys are numbers
-- of orders.
SELECT delay_wheel.create_queue('unpaid', users => '{store}') \g /dev/null
GRANT CREATE ON DATABASE :"DBNAME" TO store;

\echo
\echo '--- 1. Three shops'
\echo

SET SESSION AUTHORIZATION store;
\set way wheel
\ir shop.sql
\ir wheel.sql
\set way polling
\ir shop.sql
\ir polling.sql
\set way passive
\ir shop.sql
\ir passive.sql
RESET SESSION AUTHORIZATION;
RESET search_path;

\echo 'wheel:   each order schedules its expiry, a payment cancels it by its key'
\echo 'polling: each minute, a job expires what is due, which it finds by an index'
\echo 'passive: an order expires when somebody looks at it'
\echo
\echo '--- 2.' :orders 'orders in each, and what their customers are going to do'
\echo

-- Their time is up one after the other, from a quarter of an hour from now on, for
-- another one.  Of ten, one is never paid, and one in the very moment in which its
-- time is up; one of thirty is not paid, but looked at later.
CREATE TABLE example.plan AS
SELECT id, 1 + id / 10 % 100 AS item, pay_until,
	CASE WHEN id % 10 = 1 THEN pay_until
		WHEN id % 10 > 1 THEN now() + (0.2 + 0.6 * random()) * (pay_until - now()) END AS pays_at,
	CASE WHEN id % 30 = 0 THEN pay_until + random() * interval :'half_hour' / 3 END AS looks_at
FROM (SELECT id, now() + (0.5 + 0.5 * id / :orders) * interval :'half_hour' AS pay_until
	FROM generate_series(1, :orders) id) x;
GRANT SELECT ON example.plan TO PUBLIC;

-- They are placed in bulk here; README.md has it one by one.
SET SESSION AUTHORIZATION store;
SELECT format('INSERT INTO %1$I.purchase (id, item, pay_until) SELECT id, item, pay_until FROM example.plan ORDER BY id', way),
	format('UPDATE %1$I.stock SET n = n - gone FROM (SELECT item, count(*) AS gone FROM %1$I.purchase GROUP BY item) x '
		'WHERE stock.item = x.item', way)
FROM unnest('{wheel,polling,passive}'::text[]) way
\gexec
SELECT delay_every('expire all', interval :'minute', 'SELECT polling.expire_all()') \g /dev/null

-- The customers are tasks, too, of a role of their own.
SET SESSION AUTHORIZATION customer;
SELECT count(delay_schedule_at(pays_at, format('SELECT %I.pay($1)', way), id)) FILTER (WHERE pays_at IS NOT NULL) AS payments,
	count(delay_schedule_at(looks_at, format('SELECT %I.look($1)', way), id)) FILTER (WHERE looks_at IS NOT NULL) AS looks
FROM unnest('{wheel,polling,passive}'::text[]) way, example.plan;
RESET SESSION AUTHORIZATION;

SELECT count(*) AS never_paid, count(looks_at) AS looked_at FROM example.plan WHERE pays_at IS NULL \gset
\echo 'Never paid:' :never_paid '-- of these are looked at later:' :looked_at
\echo
\echo '--- 3. Half an hour later'
\echo

CALL example.wait_until('SELECT clock_timestamp() > max(greatest(pay_until, looks_at)) FROM example.plan',
	'all times are up', :'time_limit');
CALL example.wait_until($$SELECT NOT EXISTS (SELECT FROM delay_wheel_data.task
	WHERE owner = 'customer'::regrole OR owner = 'store'::regrole AND key IS NOT NULL)$$,
	'all tasks have run', :'time_limit');
-- a run that began after the last time has ended, and made the next one
CALL example.wait_until(format('SELECT next_due > (SELECT max(pay_until) FROM example.plan) + interval %L FROM delay_wheel.recurring',
	:'minute'), 'the job has looked once more', :'time_limit');
SELECT runs AS polls FROM delay_wheel.recurring \gset
SET SESSION AUTHORIZATION store;
SELECT delay_unschedule('expire all') \g /dev/null
RESET SESSION AUTHORIZATION;

-- What the statistics have to tell at least, without looking at the tables that they
-- are about: a payment that was accepted is an update of its order, and so is each
-- item that is for sale again.
SELECT format($$CALL example.wait_until($q$
		SELECT n_tup_upd >= (SELECT count(*) FROM %1$I.payment WHERE accepted) + (SELECT sum(n) FROM %1$I.stock) - 99 * %2$s
		FROM pg_stat_all_tables WHERE relid = '%1$I.purchase'::regclass$q$, 'all is in the statistics')$$, way, :orders)
FROM unnest('{wheel,polling,passive}'::text[]) way
\gexec
CREATE TABLE example.work AS
SELECT schemaname AS way, COALESCE(seq_tup_read, 0) + COALESCE(idx_tup_fetch, 0) AS rows_read, n_tup_ins + n_tup_upd AS rows_written
FROM pg_stat_all_tables WHERE relname = 'purchase';

CREATE VIEW example.purchase AS
SELECT 'wheel' AS way, * FROM wheel.purchase
UNION ALL SELECT 'polling', * FROM polling.purchase
UNION ALL SELECT 'passive', * FROM passive.purchase;
CREATE VIEW example.payment AS
SELECT 'wheel' AS way, * FROM wheel.payment
UNION ALL SELECT 'polling', * FROM polling.payment
UNION ALL SELECT 'passive', * FROM passive.payment;
CREATE VIEW example.stock AS
SELECT 'wheel' AS way, * FROM wheel.stock
UNION ALL SELECT 'polling', * FROM polling.stock
UNION ALL SELECT 'passive', * FROM passive.stock;

-- each of the wheel's orders has a task, which is a row that is written and removed
SELECT done AS ran FROM delay_wheel.queues WHERE name = 'unpaid' \gset
SELECT count(*) AS cancelled FROM wheel.payment WHERE task = 'cancelled' \gset

CREATE TABLE example.figures AS
SELECT way, count(*) FILTER (WHERE status = 'paid') AS paid,
	count(*) FILTER (WHERE status = 'paid' AND ended > pay_until) AS paid_late,
	count(*) FILTER (WHERE status = 'expired') AS expired,
	count(*) FILTER (WHERE status = 'placed') AS still_open,
	example.ms(percentile_cont(0.5) WITHIN GROUP (ORDER BY ended - pay_until) FILTER (WHERE status = 'expired')) AS late_p50_ms,
	example.ms(max(ended - pay_until) FILTER (WHERE status = 'expired')) AS late_max_ms
FROM example.purchase GROUP BY way;

\echo 'What became of the orders, and how late the items were for sale again ("minute":' :minute '):'
SELECT * FROM example.figures ORDER BY way DESC;
\echo 'The work. wheel: each order has a task, a row that is inserted and removed,'
\echo 'cancelled or run:' :cancelled 'were cancelled,' :ran 'have run.'
SELECT way, rows_read, rows_written,
	CASE way WHEN 'wheel' THEN 2 * :orders ELSE 0 END AS task_rows_written,
	CASE way WHEN 'wheel' THEN :ran WHEN 'polling' THEN :polls ELSE 0 END AS statements
FROM example.work ORDER BY way DESC;

\echo '--- 4. Was all as it must be?'
\echo

\pset tuples_only on
\pset format unaligned
SELECT example.make_sure('wheel: each order is paid or expired',
	(SELECT still_open = 0 AND paid + expired = :orders FROM example.figures WHERE way = 'wheel'));
SELECT example.make_sure('wheel: an order expired if it was not paid in time, and no other one',
	(SELECT count(*) >= :never_paid AND bool_and(p.status = 'expired') FROM wheel.purchase p JOIN example.plan USING (id) WHERE pays_at IS NULL)
	AND NOT EXISTS (SELECT FROM wheel.purchase p LEFT JOIN wheel.payment y USING (id)
		WHERE (p.status = 'paid') <> COALESCE(y.accepted, false)));
SELECT example.make_sure('wheel: a task was cancelled by the payment, or it ran, once',
	:cancelled + :ran = :orders);
SELECT example.make_sure('wheel: the tasks of who paid before the last moment were cancelled, at least ' || count(*),
	bool_and(y.task = 'cancelled' AND y.accepted))
FROM example.plan JOIN wheel.purchase p USING (id) JOIN wheel.payment y USING (id)
WHERE id % 10 > 1 AND p.ended < p.pay_until - interval :'minute' / 2;
SELECT example.make_sure(way || ': no order expired before its time',
	NOT EXISTS (SELECT FROM example.purchase p WHERE p.way = w.way AND status = 'expired' AND ended < pay_until))
FROM unnest('{wheel,polling,passive}'::text[]) w(way);
SELECT example.make_sure(way || ': a payment was accepted, or it came too late and the order has expired, never both',
	NOT EXISTS (SELECT FROM example.payment y JOIN example.purchase p USING (way, id)
		WHERE y.way = w.way AND p.status <> CASE WHEN accepted THEN 'paid' ELSE 'expired' END))
FROM unnest('{wheel,polling,passive}'::text[]) w(way);
SELECT example.make_sure(way || ': what is for sale, paid for or reserved is what there was', bool_and(n + taken = :orders))
FROM example.stock
	JOIN (SELECT way, item, count(*) FILTER (WHERE status <> 'expired') AS taken FROM example.purchase GROUP BY way, item) p USING (way, item)
GROUP BY way;
SELECT example.make_sure('polling: each order is paid or expired, but later than by the wheel',
	(SELECT still_open = 0 FROM example.figures WHERE way = 'polling')
	AND (SELECT late_p50_ms FROM example.figures WHERE way = 'polling') > (SELECT late_p50_ms FROM example.figures WHERE way = 'wheel'));
SELECT example.make_sure('passive: who is never looked at stays open, and its item is not for sale: ' || :never_paid - :looked_at,
	(SELECT still_open = :never_paid - :looked_at FROM example.figures WHERE way = 'passive'));
SELECT example.make_sure('no task has failed', NOT EXISTS (SELECT FROM delay_wheel.failed));
\echo
