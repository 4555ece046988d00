-- A shop's tasks in all states, for the pictures of the web page (scripts/page_pictures).

CREATE EXTENSION IF NOT EXISTS delay_wheel;
CREATE ROLE shop;
CREATE ROLE billing;
SELECT delay_wheel.allow('shop', 'billing');
SELECT delay_wheel.create_queue('mail', max_running => 2, rate => 50, users => '{shop, billing}');
SELECT delay_wheel.create_queue('reports', max_running => 1, users => '{billing}');
SELECT delay_wheel.create_queue('partner', users => '{shop}');
CREATE TABLE purchase (id int PRIMARY KEY, status text NOT NULL);
CREATE TABLE invoice (id int PRIMARY KEY, total numeric);
CREATE TABLE stock_total (n bigint);
INSERT INTO purchase SELECT i, 'placed' FROM generate_series(1, 20000) i;
GRANT ALL ON purchase, stock_total TO shop;
GRANT ALL ON invoice TO billing;
GRANT SELECT ON purchase TO billing;

SET ROLE shop;
-- orders: 30 minutes to pay, more of them at some times than at others
SELECT count(delay_schedule_task('UPDATE purchase SET status = ''cancelled'' WHERE id = $1 AND status = ''placed''',
	args => ARRAY[i::text], key => 'unpaid ' || i, delay => make_interval(secs => 60 + 1740 * (1 - power((i * 7919 % 1000) / 1000.0, 2))), options => '{"arg_types": ["int"]}'))
	FROM generate_series(1, 3000) i;
SELECT count(delay_schedule_task('UPDATE purchase SET status = ''rated'' WHERE id = $1', args => ARRAY[i::text],
	delay => make_interval(secs => 1800 + i * 8.5), options => '{"arg_types": ["int"]}')) FROM generate_series(1, 5000) i;
-- what is done by the time of the picture: one after the other, as orders come in
SELECT count(delay_schedule(make_interval(secs => 1 + (i - 3000) / 500.0), 'UPDATE purchase SET status = ''rated'' WHERE id = $1', i))
	FROM generate_series(3001, 9000) i;
SELECT delay_schedule_task('INSERT INTO partner_outbox SELECT * FROM purchase WHERE id = $1', args => ARRAY[i::text],
	tag => 'spring campaign', options => '{"arg_types": ["int"]}') FROM generate_series(71, 74) i;
SELECT delay_every('stock total', '10 minutes', 'UPDATE stock_total SET n = (SELECT count(*) FROM purchase)');
SELECT delay_cron('old purchases', '30 2 * * mon-fri', 'DELETE FROM purchase WHERE status = ''cancelled''', timezone => 'Europe/Berlin');
RESET ROLE;
SELECT delay_wheel.pause_queue('partner');
SET ROLE shop;
SELECT delay_schedule_task('SELECT 1', queue => 'partner') FROM generate_series(1, 12) i;

SET ROLE billing;
SELECT delay_schedule_task('INSERT INTO invoice VALUES ($1, 100.0 / $2)', args => ARRAY[i::text, (i % 3)::text], tag => 'month end', options => '{"arg_types": ["int", " int"]}')
	FROM generate_series(1, 9) i;
SELECT delay_schedule_task('INSERT INTO invoice VALUES (1, 20)');
SELECT delay_schedule_task('SELECT count(*) FROM purchase, pg_sleep(600)', queue => 'reports', key => 'turnover by month');
SELECT delay_schedule_task('SELECT count(*) FROM purchase, pg_sleep(600)', queue => 'reports', key => 'turnover by item');
SELECT delay_every('dunning letters', '1 hour', 'SELECT send_letter(id) FROM invoice', starts => now());
RESET ROLE;

-- messages: under a lease, failed and tried again, given up, due later
SELECT delay_wheel.create_queue('letters', external => true, users => '{shop}', receivers => '{shop}');
SELECT delay_wheel.create_queue('webhooks', external => true, max_attempts => 18, users => '{shop}', receivers => '{shop}');
SET ROLE shop;
SELECT count(delay_send('webhooks', format('{"method": "POST", "url": "https://%s.example/hooks/unpaid"}', (ARRAY['till', 'depot', 'forum'])[1 + i % 3])::jsonb,
	key => 'unpaid ' || i, delay => make_interval(mins => greatest(i - 5, 0)))) FROM generate_series(1, 9) i;
CALL delay_await('webhooks', '30 s');
SELECT id, token FROM delay_lease('webhooks', 1, '1 minute', 'delay-wheel-http') \gset
SELECT delay_fail(:id, :token, 'HTTP 503: the depot is closed', retry_in => '40 s');
CALL delay_await('webhooks', '30 s');
SELECT id, token FROM delay_lease('webhooks', 1, '1 minute', 'delay-wheel-http') \gset
SELECT delay_fail(:id, :token, 'HTTP 410: gone', give_up => true);
CALL delay_await('webhooks', '30 s');
SELECT count(*) FROM delay_lease('webhooks', 3, '1 minute', 'delay-wheel-http');
RESET ROLE;
