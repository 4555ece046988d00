# PgQ, the queue of Skytools.  It has no delay, but a table of events that are to be tried
# again at a time, into which event_retry_raw() puts an event as well for its first try.
# One session does what its daemon pgqd does (moves those that are due into the queue,
# and makes a tick), each 100 ms instead of each 30 s and each second; another one
# is the consumer, which takes a batch in one transaction.

use strict;
use warnings;

our %opt;

return {
	title => 'PgQ',
	missing => sub { return -f "$opt{sharedir}/extension/pgq.control" ? '' : 'not installed for this PostgreSQL: postgresql-15-pgq3' },
	version => 'SELECT pgq.version()',
	setup => q{
		CREATE EXTENSION pgq;
		SELECT pgq.create_queue('q'), pgq.register_consumer('q', 'c');
		SELECT pgq.set_queue_config('q', 'ticker_max_lag', '100 ms'), pgq.set_queue_config('q', 'ticker_idle_period', '100 ms');
		CREATE PROCEDURE maintain() LANGUAGE plpgsql AS $$
		BEGIN
			LOOP
				WHILE pgq.maint_retry_events() > 0 LOOP
					COMMIT;
				END LOOP;
				PERFORM pgq.ticker('q');
				COMMIT;
				PERFORM pg_sleep(0.1);
				COMMIT;
			END LOOP;
		END $$;
		CREATE PROCEDURE consume() LANGUAGE plpgsql AS $$
		DECLARE
			batch bigint;
			task text;
		BEGIN
			LOOP
				batch := pgq.next_batch('q', 'c');
				IF batch IS NULL THEN
					PERFORM pg_sleep(0.1);
				ELSE
					FOR task IN SELECT ev_data FROM pgq.get_batch_events(batch) LOOP
						UPDATE t_order SET stars = stars + 5, status = status + 1 WHERE oid = task::bigint;
					END LOOP;
					PERFORM pgq.finish_batch(batch);
				END IF;
				COMMIT;
			END LOOP;
		END $$},
	schedule => "SELECT pgq.event_retry_raw('q', 'c', now() + interval '48 hours', NULL, now(), 1, 'rate', :oid::bigint::text, NULL, NULL, NULL, NULL);\n",
	bulk => q{SELECT count(pgq.event_retry_raw('q', 'c', due, NULL, now(), 1, 'rate', oid::text, NULL, NULL, NULL, NULL)) FROM t_order},
	# those that wait, and those after the last batch that was finished
	left => q{
		SELECT (SELECT count(*) FROM pgq.retry_queue) + (SELECT count(*)
			FROM pgq.subscription JOIN pgq.tick ON tick_queue = sub_queue AND tick_id = sub_last_tick, pgq.event_template
			WHERE NOT txid_visible_in_snapshot(ev_txid, tick_snapshot))},
	clear => 'TRUNCATE pgq.retry_queue',
	variants => [ { consumers => [ 'CALL maintain()', 'CALL consume()' ] } ],
};
