-- The tour of scripts/try, 3 of 3: a message is sent, waited for and received.

\echo
\echo '3 of 3. A message is for a program of your own: here it is this session. It waits'
\echo 'for the message without polling, and takes it in a transaction, exactly once.'
\echo
\set ECHO queries
SELECT delay_wheel.create_queue('mail', external => true);

SELECT delay_send('mail', '{"to": "ann"}', delay => '2 seconds') AS id \gset
CALL delay_await('mail', '1 minute');

BEGIN;
SELECT id, payload FROM delay_receive('mail');
COMMIT;

SELECT state, done, lateness_p50 AS median_milliseconds_late FROM delay_wheel.status;
\set ECHO none
\set next '\\echo The tour has ended: doc/tutorial.md goes on from here.'
\echo 'That was the tour. doc/tutorial.md goes on from here, and README.md has an overview.'
