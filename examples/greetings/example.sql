--
-- Greetings for a day to come: written months ahead, all due at one midnight.  A
-- sender is stopped before it, a campaign in the midst of it.  The midnight is some
-- seconds ahead here (minutes in the large size), and there is a year of others.
--
-- Run it by "examples/run greetings", or as a superuser in a database of its own, on
-- a server with delay_wheel in shared_preload_libraries:
--     psql -X -f example.sql
-- It makes the roles "greeter" and "clock", and the queues "spring" and "vouchers".
--
\set ON_ERROR_STOP on
\ir ../common.sql

\if :large
	\set greetings 10000000
	\set later 2500000
	\set chunk 100000
	\set campaign_rate 2000
	\set campaign_stop 20000
	\set vouchers 100000
	\set ticks 200
	\set tick '500 ms'
	\set time_limit '1 hour'
\else
	\set greetings 20000
	\set later 5000
	\set chunk 5000
	\set campaign_rate 200
	\set campaign_stop 50
	\set vouchers 200
	\set ticks 20
	\set tick '20 ms'
	\set time_limit '2 minutes'
\endif

CREATE ROLE greeter LOGIN;
CREATE ROLE clock LOGIN;
SELECT delay_wheel.allow('greeter', 'clock') \g /dev/null
-- A campaign has a queue: it can be limited, paused and stopped by itself.
SELECT delay_wheel.create_queue('spring', users => '{greeter}', rate => :campaign_rate) \g /dev/null
SELECT delay_wheel.create_queue('vouchers', users => '{greeter}') \g /dev/null
GRANT CREATE ON DATABASE :"DBNAME" TO greeter;

\echo
\echo '--- 1. Who writes to whom'
\echo

SET SESSION AUTHORIZATION greeter;
CREATE SCHEMA greeter;
-- Numbers of accounts are unsigned, of 32 bits; a hundred million are in use.
CREATE TABLE greeting (
	sender bigint NOT NULL CHECK (sender BETWEEN 0 AND 4294967295),
	friend bigint NOT NULL CHECK (friend BETWEEN 0 AND 4294967295),
	n int NOT NULL,				-- several greetings for one friend
	written_at timestamptz NOT NULL DEFAULT now(),
	deliver_at timestamptz NOT NULL,
	campaign text,				-- a queue; null for most
	message text NOT NULL,
	PRIMARY KEY (sender, friend, n),
	CHECK (deliver_at > written_at)
);
CREATE TABLE inbox (
	friend bigint NOT NULL,
	sender bigint NOT NULL,
	n int NOT NULL,
	arrived timestamptz NOT NULL,
	message text NOT NULL,
	PRIMARY KEY (friend, sender, n)		-- nothing comes twice
);
CREATE TABLE voucher (friend bigint PRIMARY KEY);
CREATE TABLE report (at timestamptz, batch text, sent bigint, of bigint, failed bigint, vouchers bigint);
CREATE TRIGGER deliver_later AFTER INSERT ON greeting FOR EACH ROW EXECUTE FUNCTION
	delay_schedule_trigger('deliver_at', 'INSERT INTO inbox SELECT friend, sender, n, clock_timestamp(), message
		FROM greeting WHERE sender = $1 AND friend = $2 AND n = $3', 'sender', 'friend', 'n', 'tag=sender', 'queue=campaign');

-- Greetings with the numbers first to last.  Four of one sender, two each to two
-- friends; who writes to whom is spread over all accounts (100000007 is a prime).
-- Every hundredth is one of a sender who writes to thousands; a tenth of the others
-- belong to a campaign.
CREATE PROCEDURE write_greetings(first bigint, last bigint, chunk bigint, midnight timestamptz, days int)
LANGUAGE plpgsql AS $$
BEGIN
	FOR start IN first .. last BY chunk LOOP
		INSERT INTO greeting (sender, friend, n, deliver_at, campaign, message)
		SELECT CASE WHEN g % 100 = 99 THEN 4294967295 ELSE g / 4 * 48271 % 100000007 END,
			g / 2 * 69621 % 100000007,
			1 + g % 2,
			midnight + g % days * interval '1 day',
			CASE WHEN g % 100 <> 99 AND g / 4 % 10 = 0 THEN 'spring' END,
			'happy new year, number ' || g
		FROM generate_series(start, least(start + chunk - 1, last)) g;
		COMMIT;
	END LOOP;
END $$;
RESET SESSION AUTHORIZATION;
\set spammer 4294967295

CREATE SCHEMA clock;
CREATE TABLE clock.tick (due timestamptz, arrived timestamptz);
GRANT ALL ON SCHEMA clock TO clock;
GRANT ALL ON clock.tick TO clock;

-- How many there are of each kind, of the numbers first to last.
CREATE FUNCTION example.kinds(first bigint, last bigint, OUT plain bigint, OUT campaign bigint, OUT spam bigint)
LANGUAGE sql AS $$
	SELECT count(*) FILTER (WHERE g % 100 <> 99 AND g / 4 % 10 <> 0), count(*) FILTER (WHERE g % 100 <> 99 AND g / 4 % 10 = 0),
		count(*) FILTER (WHERE g % 100 = 99)
	FROM generate_series(first, last) g
$$;
SELECT plain AS today_plain, campaign AS today_campaign, spam AS today_spam FROM example.kinds(1, :greetings) \gset
SELECT plain AS later_plain FROM example.kinds(:greetings + 1, :greetings + :later) \gset

\echo '--- 2.' :later 'for the days of the year to come'
\echo

SELECT clock_timestamp() AS begun \gset
SET SESSION AUTHORIZATION greeter;
CALL write_greetings(:greetings + 1, :greetings + :later, :chunk, date_trunc('day', now()) + interval '30 days', 300);
RESET SESSION AUTHORIZATION;
SELECT extract(epoch FROM clock_timestamp() - :'begun') AS took \gset

\echo 'Each is a task; so many turns of the ring (hours) ahead that none is in memory:'
SELECT count(*) AS tasks, min(cycle_num) AS nearest_cycle, max(cycle_num) AS farthest_cycle,
	(SELECT near FROM delay_wheel.status WHERE database = current_database()) AS in_memory
FROM (SELECT cycle_num FROM delay_wheel.tasks LIMIT 5000) t;

\echo '--- 3.' :greetings 'for the next midnight'
\echo

-- late enough to have written them all by then
SELECT date_trunc('second', clock_timestamp() + greatest('5 s', 2.5 * :took * :greetings / :later * interval '1 s')) + interval '1 s' AS midnight,
	clock_timestamp() AS begun \gset
SET SESSION AUTHORIZATION greeter;
CALL write_greetings(1, :greetings, :chunk, :'midnight', 1);
RESET SESSION AUTHORIZATION;
SELECT round(:greetings / extract(epoch FROM clock_timestamp() - :'begun')) AS written_per_s \gset
SET SESSION AUTHORIZATION clock;
SELECT count(delay_schedule_at(:'midnight'::timestamptz + i * interval :'tick', 'INSERT INTO clock.tick VALUES ($1, clock_timestamp())',
	:'midnight'::timestamptz + i * interval :'tick')) AS ticks
FROM generate_series(1, :ticks) i \gset
RESET SESSION AUTHORIZATION;

-- Vouchers are a batch: when all have been sent, it reports.
SET SESSION AUTHORIZATION greeter;
BEGIN;
SELECT delay_batch('vouchers', queue => 'vouchers', on_end => 'INSERT INTO report SELECT clock_timestamp(), $2, $4, $3, $5, count(*) FROM voucher') AS batch \gset
SELECT count(delay_schedule_task('INSERT INTO voucher VALUES ($1)', args => ARRAY[i], due => :'midnight', queue => 'vouchers',
	options => jsonb_build_object('batch_id', :batch))) AS vouchers FROM generate_series(1, :vouchers) i \gset
COMMIT;
RESET SESSION AUTHORIZATION;

\echo 'A sender writes to several friends, more than once:'
SELECT sender, friend, n, campaign, message FROM greeter.greeting WHERE sender = 1008 / 4 * 48271 % 100000007 ORDER BY friend, n;

-- One is taken back by its sender: its row goes, and its task finds nothing.
DELETE FROM greeter.greeting WHERE sender = 1004 / 4 * 48271 % 100000007 AND friend = 1004 / 2 * 69621 % 100000007 AND n = 1;

\echo 'One sender, ' :spammer ', writes to too many. Stopped:'
SET SESSION AUTHORIZATION greeter;
SELECT clock_timestamp() AS begun \gset
SELECT delay_cancel_all(tag => :'spammer') \g /dev/null
SELECT example.ms(clock_timestamp() - :'begun') AS sender_stop_ms, clock_timestamp() < :'midnight' AS in_time \gset
RESET SESSION AUTHORIZATION;
\echo '    delay_cancel_all(tag => ...) took' :sender_stop_ms 'ms'
\echo
SELECT example.make_sure('all was ready before midnight', :'in_time'::boolean) \g /dev/null

SELECT pg_stat_force_next_flush() \g /dev/null
SELECT COALESCE(seq_scan, 0) AS scans, COALESCE(idx_tup_fetch, 0) AS fetched
FROM pg_stat_all_tables WHERE relid = 'greeter.greeting'::regclass \gset before_
SELECT pg_size_pretty(pg_total_relation_size('greeter.greeting')) AS greeting_size,
	pg_size_pretty(pg_total_relation_size('delay_wheel_data.task')) AS task_size, pg_current_wal_lsn() AS wal \gset
SELECT pg_size_pretty(memory_used) AS memory FROM delay_wheel.status WHERE database = current_database() \gset

\echo '--- 4. Midnight'
\echo

\set done 'SELECT COALESCE(sum(done), 0) >= %s FROM delay_wheel.lanes WHERE owner = %L AND queue = %L'
SELECT format(:'done', :campaign_stop, 'greeter', 'spring') AS campaign_begun,
	format(:'done', :today_plain, 'greeter', 'default') AS all_done,
	format(:'done', :ticks, 'clock', 'default') AS clock_done \gset
CALL example.wait_until(:'campaign_begun', 'the campaign has begun', :'time_limit');

SET SESSION AUTHORIZATION greeter;
SELECT clock_timestamp() AS begun, (SELECT count(*) FROM delay_wheel.running) AS at_work \gset
SELECT delay_cancel_all(queue => 'spring') \g /dev/null
SELECT example.ms(clock_timestamp() - :'begun') AS campaign_stop_ms, clock_timestamp() AS stopped_at \gset
RESET SESSION AUTHORIZATION;
\echo 'The campaign is stopped; executors at work just then:' :at_work
\echo '    delay_cancel_all(queue => ''spring'') took' :campaign_stop_ms 'ms'

CALL example.wait_until(:'all_done', 'all greetings are delivered', :'time_limit');
SELECT clock_timestamp() AS all_done_at, pg_wal_lsn_diff(pg_current_wal_lsn(), :'wal') AS wal \gset
CALL example.wait_until(:'clock_done', 'the clock has ticked', :'time_limit');
CALL example.wait_until('SELECT EXISTS (SELECT FROM greeter.report)', 'the batch has reported', :'time_limit');
CALL example.wait_until('SELECT NOT EXISTS (SELECT FROM delay_wheel.cancellations)', 'rows of cancelled tasks are removed', :'time_limit');
SELECT sum(done) FILTER (WHERE queue = 'default') AS plain_done, sum(done) FILTER (WHERE queue = 'spring') AS campaign_done
FROM delay_wheel.lanes WHERE owner = 'greeter' \gset

CALL example.wait_until(format('SELECT idx_tup_fetch - %s >= %s FROM pg_stat_all_tables WHERE relid = %L::regclass',
	:before_fetched, :plain_done + :campaign_done - 1, 'greeter.greeting'), 'all is in the statistics');
SELECT seq_scan - :before_scans AS scans, idx_tup_fetch - :before_fetched AS fetched
FROM pg_stat_all_tables WHERE relid = 'greeter.greeting'::regclass \gset
SELECT min(arrived) AS first_at, count(*) AS delivered FROM greeter.inbox \gset
SELECT count(*) AS campaign_after FROM greeter.inbox JOIN greeter.greeting USING (sender, friend, n)
WHERE campaign = 'spring' AND arrived > :'stopped_at' \gset

\echo
SELECT * FROM (VALUES
	('greetings written in a second, with their tasks', :'written_per_s'),
	('table of greetings', :'greeting_size'),
	('table of tasks', :'task_size'),
	('memory of the ring in use, before midnight', :'memory'),
	('stop of a sender, ms', :'sender_stop_ms'),
	('stop of the campaign, ms', :'campaign_stop_ms'),
	('of the campaign: delivered before it was stopped', :'campaign_done'),
	('of the campaign: not delivered', (:today_campaign - :campaign_done)::text),
	('first greeting after midnight, ms', example.ms(:'first_at'::timestamptz - :'midnight')::text),
	('last greeting after midnight, s', round(extract(epoch FROM :'all_done_at'::timestamptz - :'midnight'), 2)::text),
	('greetings delivered in a second', round(:plain_done / extract(epoch FROM :'all_done_at'::timestamptz - :'midnight'))::text),
	('bytes of WAL for each', round(:wal / :plain_done)::text),
	('rows of greetings read for each', round(:fetched::numeric / (:plain_done + :campaign_done), 2)::text),
	('another role''s tasks meanwhile, late by, median ms', (SELECT example.ms(percentile_cont(0.5) WITHIN GROUP (ORDER BY arrived - due))::text FROM clock.tick)),
	('... at most, ms', (SELECT example.ms(max(arrived - due))::text FROM clock.tick))) figures (what, figure);

\echo 'The report of the vouchers:'
SELECT batch, sent, of, failed FROM greeter.report;

\echo '--- 5. Was all as it must be?'
\echo

\pset tuples_only on
\pset format unaligned
SELECT example.make_sure('each greeting of the day has arrived, but the one that was taken back',
	(SELECT count(*) = :today_plain - 1 FROM greeter.greeting JOIN greeter.inbox USING (sender, friend, n)
	 WHERE deliver_at = :'midnight' AND campaign IS NULL AND sender <> :spammer));
SELECT example.make_sure('each task has run once',
	:plain_done = :today_plain AND :plain_done + :campaign_done - 1 = :delivered);
SELECT example.make_sure('none has arrived before midnight', :'first_at'::timestamptz >= :'midnight');
SELECT example.make_sure('none has arrived of the sender who was stopped',
	(SELECT count(*) = 0 FROM greeter.inbox WHERE sender = :spammer));
-- What ran already goes on: it has an executor, and the role has three of them.
SELECT example.make_sure('no task of the campaign began after it was stopped',
	:campaign_after <= 3 AND :campaign_done < :today_campaign);
SELECT example.make_sure('the greetings of other days were left alone, and their tasks are pending',
	(SELECT count(*) = :later_plain FROM delay_wheel_data.task WHERE owner = 'greeter'::regrole AND due > :'midnight')
	AND (SELECT count(*) = :later_plain FROM delay_wheel_data.task));
SELECT example.make_sure('nothing was searched for: a row was read for each greeting, and no table scanned',
	:scans = 0 AND :fetched <= 2 * (:plain_done + :campaign_done));
SELECT example.make_sure('another role''s tasks have run meanwhile', (SELECT count(*) = :ticks AND bool_and(arrived >= due) FROM clock.tick));
SELECT example.make_sure('the batch has reported once, after its last voucher',
	(SELECT count(*) = 1 AND bool_and(sent = :vouchers AND vouchers = :vouchers) FROM greeter.report));
SELECT example.make_sure('no task has failed', NOT EXISTS (SELECT FROM delay_wheel.failed));
\echo
