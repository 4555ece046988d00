# pgmq, from the pgmq.sql that --pgmq names.  Two sessions read 100 messages each 100 ms
# while there are none, at once while there are some, and do the work and delete the
# messages in the same transaction.

use strict;
use warnings;

our %opt;

return {
	title => 'pgmq',
	missing => sub { return $opt{pgmq} ? '' : 'its pgmq.sql was not named: --pgmq FILE' },
	setup => sub {
		return slurp($opt{pgmq}) . q{;
			SELECT pgmq.create('q');
			CREATE PROCEDURE consume() LANGUAGE plpgsql AS $$
			DECLARE
				message record;
				done bigint[];
			BEGIN
				LOOP
					done := '{}';
					FOR message IN SELECT * FROM pgmq.read('q', 60, 100) LOOP
						UPDATE t_order SET stars = stars + 5, status = status + 1 WHERE oid = (message.message->>'oid')::bigint;
						done := done || message.msg_id;
					END LOOP;
					IF done = '{}' THEN
						PERFORM pg_sleep(0.1);
					ELSE
						PERFORM pgmq.delete('q', done);
					END IF;
					COMMIT;
				END LOOP;
			END $$};
	},
	schedule => "SELECT pgmq.send('q', jsonb_build_object('oid', :oid::bigint), now() + interval '48 hours');\n",
	bulk => q{SELECT count(*) FROM (SELECT array_agg(jsonb_build_object('oid', oid)) AS messages, due FROM t_order GROUP BY due) o, pgmq.send_batch('q', messages, due)},
	left => 'SELECT count(*) FROM pgmq.q_q',
	clear => 'TRUNCATE pgmq.q_q',
	variants => [ { title => '100 a transaction', consumers => [ ('CALL consume()') x 2 ] } ],
};
