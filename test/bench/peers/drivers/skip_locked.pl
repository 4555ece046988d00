# A queue written by hand: rows are locked with SKIP LOCKED, deleted, and what they ask
# for is done in the same transaction, so that it is done exactly once.  Two sessions look
# each 100 ms while there is nothing, and at once while there is something.  The loop is
# PL/pgSQL: no round trips to a client.  The row has the order's number, and the UPDATE
# is prepared: a queue that can do nothing else.

use strict;
use warnings;

my $consume = q{
	CREATE PROCEDURE consume(batch int) LANGUAGE plpgsql AS $$
	DECLARE
		task bigint;
	BEGIN
		LOOP
			FOR task IN
				DELETE FROM queue WHERE ctid = ANY (ARRAY(
					SELECT ctid FROM queue WHERE due <= now() ORDER BY due LIMIT batch FOR UPDATE SKIP LOCKED))
				RETURNING oid
			LOOP
				UPDATE t_order SET stars = stars + 5, status = status + 1 WHERE oid = task;
			END LOOP;
			IF NOT FOUND THEN
				PERFORM pg_sleep(0.1);
			END IF;
			COMMIT;
		END LOOP;
	END $$};

return {
	title => 'SKIP LOCKED by hand',
	setup => $consume,
	schedule => "INSERT INTO queue (due, oid) VALUES (now() + interval '48 hours', :oid::bigint);\n",
	bulk => 'INSERT INTO queue (due, oid) SELECT due, oid FROM t_order',
	left => 'SELECT count(*) FROM queue',
	clear => 'TRUNCATE queue',
	variants => [
		{ title => '100 a transaction', consumers => [ ('CALL consume(100)') x 2 ] },
		{
			name => 'skip_locked_1', title => '1 a transaction', consumers => [ ('CALL consume(1)') x 2 ],
			measures => [qw(late burst snapshot idle)]
		},
	],
};
