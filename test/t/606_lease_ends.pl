# Leases that end in other ways than by a word of the receiver, or change: shortened,
# cancelled, moved, in prepared transactions, in copies, received again and rolled back;
# and what max_running counts meanwhile, and history has afterwards.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('lease_ends', conf => q{
log_statement = none
autovacuum = off
max_prepared_transactions = 5
wal_level = replica
max_wal_senders = 2
});

sub query { return $node->safe_psql('postgres', $_[0]); }

# Leases up to n messages: a list of [id, token, payload].
sub lease
{
	my ($queue, $n, $time) = @_;

	return map { [ split /\|/, $_ ] } split /\n/, query("SELECT id, token, payload #>> '{}' FROM delay_lease('$queue', $n, '$time')");
}

# Leases one message; waits until that is possible.
sub lease_one
{
	my ($queue, $time, $what) = @_;
	my @got;

	wait_until(60, sub { query("CALL delay_await('$queue', '1 s')"); return @got = lease($queue, 1, $time) });
	is(scalar(@got), 1, $what);
	return $got[0] // [ 0, 0, '' ];
}

sub call { my ($function, $lease, @more) = @_; return query("SELECT $function(" . join(', ', @$lease[ 0, 1 ], @more) . ')'); }

# What a statement returns that must not wait for a lock, or its SQLSTATE.
sub without_waiting
{
	my ($code, $out, $err) = $node->psql('postgres', "SET lock_timeout = '10s'; $_[0]", extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);

	return $err =~ /ERROR: +(\w{5})/ ? $1 : $out;
}

# A session in which a transaction stays open.
sub session { return $node->background_psql('postgres', on_error_stop => 0, timeout => 3 * $PostgreSQL::Test::Utils::timeout_default); }

# A queue with two messages more than may be under leases or received at a time; returns a
# lease of the first.
sub narrow
{
	my ($queue, $n, $time, $options) = @_;

	query("SELECT delay_wheel.create_queue('$queue', external => true, max_running => $n, " . call_args("history => 'all'" . ($options // '')) . ");
		SELECT count(delay_send('$queue', to_jsonb(i), tag => 'n' || i)) FROM generate_series(1, $n + 2) i");
	wait_for($node, "SELECT ready = $n + 2 FROM delay_wheel.queues WHERE name = '$queue'", "$queue: messages are due");
	my ($first) = lease($queue, 1, $time);
	lease($queue, $n - 1, '1 hour') if $n > 1;
	is(scalar(lease($queue, 10, '1 hour')), 0, "$queue: max_running is reached");
	return $first;
}

#
# max_running: a place is free as soon as its lease is gone, in whatever way
#
my $first = narrow('shorter', 1, '1 hour');
is(call('delay_extend', $first, q{'10 ms'}), 't', 'a lease is made shorter');
lease_one('shorter', '1 hour', 'its end frees the place');
is(scalar(lease('shorter', 10, '1 hour')), 0, 'one place');

$first = narrow('longer', 1, '1 s');
is(call('delay_extend', $first, q{'1 hour'}), 't', 'a lease is made longer');
wait_for($node, "SELECT clock_timestamp() > leased_at + interval '1100 ms' FROM delay_wheel_data.task WHERE id = $first->[0]", 'its first end comes');
is(scalar(lease('longer', 10, '1 hour')), 0, 'the place is kept');

$first = narrow('cancelled', 1, '1 hour');
is(query("SELECT delay_cancel($first->[0])"), 'running', 'a leased message is running');
is(query("SELECT delay_cancel($first->[0], stop_running => true)"), 'cancelled', 'unless its lease is to end');
is(call('delay_done', $first), 'f', 'its token is void');
lease_one('cancelled', '1 hour', 'a cancellation frees the place');

$first = narrow('swept', 1, '1 hour');
query(q{SELECT delay_cancel_all(tag => 'n1')});
lease_one('swept', '1 hour', 'one of many frees the place');

$first = narrow('prepared', 1, '1 hour');
query("BEGIN; SELECT delay_done($first->[0], $first->[1]); PREPARE TRANSACTION 'done'");
is(scalar(lease('prepared', 10, '1 hour')), 0, 'a prepared transaction frees nothing');
query(q{COMMIT PREPARED 'done'});
lease_one('prepared', '1 hour', 'its commit does');

# a lease that has ended is not counted: nor is its end, when the word comes late
$first = narrow('late', 1, '1 hour', ', priority => -1');
query(q{SELECT delay_send('late', '"urgent"', priority => 1)});
is(call('delay_extend', $first, q{'1 ms'}), 't', 'a lease is made to end');
wait_for($node, q{SELECT count(*) = 4 FROM delay_wheel_data.task t JOIN delay_wheel_data.queue q ON q.id = t.queue WHERE q.name = 'late' AND t.due < clock_timestamp()}, 'its end has come');
is(lease_one('late', '1 hour', 'another one is leased')->[2], 'urgent', 'the message that is leased is the urgent one');
is(call('delay_done', $first), 't', 'the receiver of the first one is done');
is(scalar(lease('late', 10, '1 hour')), 0, 'that frees no second place');

# the commit of a lease that others do not see yet when they count
$first = narrow('slow', 2, '1 hour');
query(qq{SELECT delay_done(t.id, t.token) FROM delay_wheel_data.task t JOIN delay_wheel_data.queue q ON q.id = t.queue WHERE q.name = 'slow' AND t.token IS NOT NULL AND t.id <> $first->[0]});
$node->append_conf('postgresql.conf', q{synchronous_standby_names = 'nobody'});
$node->reload;
is(query("SET synchronous_commit = local; SELECT delay_extend($first->[0], $first->[1], '2 s')"), 't', 'a lease is made to end soon');
wait_for($node, q{SHOW synchronous_standby_names}, 'commits wait for a standby', 60, expected => 'nobody');
my $slow = session();
$slow->query_until(qr/begun/, "\\echo begun\nSET synchronous_commit = on; SELECT id FROM delay_lease('slow', 1, '3 s');\n");
wait_for($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'}, 'a lease waits for it');
wait_for($node, qq{SELECT clock_timestamp() > due FROM delay_wheel_data.task WHERE id = $first->[0]}, 'the other one has ended meanwhile');
query(q{SET synchronous_commit = local; BEGIN; SELECT count(*) FROM delay_receive('slow', 1); ROLLBACK});
$node->append_conf('postgresql.conf', q{synchronous_standby_names = ''});
$node->reload;
wait_for($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'}, 'then it is committed');
$slow->quit;
wait_for($node, q{SELECT count(*) = 0 FROM delay_wheel.tasks WHERE queue = 'slow' AND leased_until > clock_timestamp()}, 'all leases end');
my $n = 0;
wait_until(60, sub { return ($n += lease('slow', 10, '1 hour')) >= 2 });
is($n, 2, 'and free their places, no more than there are');

#
# Messages that were due when they were cancelled: nobody waits for them
#
query(q{SELECT delay_wheel.create_queue('gone', external => true); SELECT count(delay_send('gone', '1', tag => 't')) FROM generate_series(1, 3); SELECT delay_send('gone', '2', delay => '1 hour')});
wait_for($node, q{SELECT ready = 3 FROM delay_wheel.queues WHERE name = 'gone'}, 'messages are due that nobody takes');
query(q{SELECT delay_cancel_all(tag => 't')});
wait_for($node, q{SELECT ready = 0 FROM delay_wheel.queues WHERE name = 'gone'}, 'they are cancelled, and not due any more');
is(query(q{CALL delay_await('gone', '0')}), 'f', 'nobody is told that there are some');

# received in a transaction
$first = narrow('received', 1, '1 hour');
call('delay_done', $first);
is(query(q{BEGIN; SELECT count(*) FROM delay_receive('received', 10); COMMIT}), 1, 'one is received at a time');
lease_one('received', '1 hour', 'a commit frees its place');

# undone by a savepoint
$first = narrow('undone', 1, '1 hour');
query("BEGIN; SAVEPOINT s; SELECT delay_done($first->[0], $first->[1]); ROLLBACK TO s; COMMIT");
is(scalar(lease('undone', 10, '1 hour')), 0, 'what a savepoint has undone frees nothing');
is(call('delay_done', $first), 't', 'it is still leased');

# in one transaction: begun and ended
$first = narrow('at_once', 1, '1 hour');
call('delay_done', $first);
is(query(q{SELECT delay_done(id, token) FROM delay_lease('at_once', 1, '1 hour')}), 't', 'done by the statement that leases it');
lease_one('at_once', '1 hour', 'that keeps no place');

#
# Cancelling what a transaction has: no busy loop, and no waiting for a receiver
#
query(q{SELECT delay_wheel.create_queue('mail', external => true, options => '{"history": "all", "retry_delay": "0"}'); SELECT delay_send('mail', '"a"'); CALL delay_await('mail', '60 s')});
my $receiver = session();
my $id = $receiver->query_safe(q{BEGIN; SELECT id FROM delay_receive('mail')});
is(without_waiting("SELECT delay_cancel($id)"), 'running', 'what a transaction has received is running');
is(without_waiting("SELECT delay_cancel($id, stop_running => true)"), 'running', 'and cannot be stopped');
is($receiver->query_safe("SELECT delay_cancel($id, stop_running => true)"), 'gone', 'to the receiver it is gone');
$receiver->query_safe('ROLLBACK');
query(q{CALL delay_await('mail', '60 s')});
is($receiver->query_safe(q{BEGIN; SAVEPOINT s; SELECT id FROM delay_receive('mail')}), $id, 'received after a savepoint');
is(without_waiting("SELECT delay_cancel($id)"), 'running', 'it is running as well');
$receiver->query_safe('ROLLBACK');
my $a = lease_one('mail', '1 hour', 'it is leased');
$receiver->query_safe("BEGIN; SELECT delay_done($a->[0], $a->[1])");
my $canceller = session();
$canceller->query_until(qr/begun/, "\\echo begun\nSELECT delay_cancel($a->[0], stop_running => true);\n");
wait_for($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'SELECT delay_cancel%' AND wait_event_type = 'Lock'}, 'a cancellation waits for who is about to say done');
$receiver->query_safe('ROLLBACK');
like($canceller->query_safe('SELECT 1'), qr/cancelled/, 'and then ends the lease');

#
# A word waits for another transaction that has the row, and then counts if the token is still
# that of the lease.  It does not wait for a receiver, who has got the message after the lease.
#
my $words = 0;
for my $case (
	[ 'delay_done', 'delay_extend', 'COMMIT', 't' ], [ 'delay_extend', 'delay_extend', 'COMMIT', 't' ], [ 'delay_release', 'delay_extend', 'ROLLBACK', 't' ],
	[ 'delay_fail', 'UPDATE', 'COMMIT', 't' ], [ 'delay_done_all', 'FOR UPDATE', 'COMMIT', 'it' ], [ 'delay_done_all', 'delay_done', 'COMMIT', '{}' ],
	[ 'delay_done', 'delay_done', 'COMMIT', 'f' ], [ 'delay_done', 'delay_done', 'ROLLBACK', 't' ], [ 'delay_extend', 'delay_release', 'COMMIT', 'f' ],
	[ 'delay_done', 'delay_cancel', 'COMMIT', 'f' ], [ 'delay_done', 'delay_extend', 'COMMIT', 't', 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1' ])
{
	my ($word, $other, $end, $expected, $begin) = @$case;

	query(q{SELECT delay_cancel_all(queue => 'mail'), delay_send('mail', '"w"')});
	$a = lease_one('mail', '1 hour', 'a message is leased');
	my $args = $word eq 'delay_done_all' ? "'{$a->[0]}', '{$a->[1]}'" : "$a->[0], $a->[1]";
	my $held = $other eq 'UPDATE' ? "UPDATE delay_wheel_data.task SET tag = 'w' WHERE id = $a->[0]" :
	  $other eq 'FOR UPDATE' ? "SELECT FROM delay_wheel_data.task WHERE id = $a->[0] FOR UPDATE" :
	  $other eq 'delay_cancel' ? "SELECT delay_cancel($a->[0], stop_running => true)" : "SELECT $other($a->[0], $a->[1])";
	$canceller->query_safe($begin) if $begin;
	$receiver->query_safe("BEGIN; $held");
	$words++;
	$canceller->query_until(qr/begun/, "\\echo begun\nSELECT $word($args) /* word $words */;\n");
	# or has an answer already
	wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '% /* word $words */%' AND pid <> pg_backend_pid() AND (wait_event_type = 'Lock' OR state LIKE 'idle%')",
		"$word() meets $other", undef, expected => 1);
	$receiver->query_safe($end);
	is($canceller->query_safe('SELECT 1'), ($expected eq 'it' ? "{$a->[0]}" : $expected) . "\n1", "$word(): $other, $end");
	$canceller->query_safe('COMMIT') if $begin;
}
query(q{SELECT delay_cancel_all(queue => 'mail'), delay_send('mail', '"w"')});
$a = lease_one('mail', '1 hour', 'a message is leased');
is(without_waiting("BEGIN; WITH d AS (DELETE FROM delay_wheel_data.task WHERE id = $a->[0] RETURNING id) SELECT delay_done(id, $a->[1]) FROM d; ROLLBACK"), 'f', 'what the command itself has deleted is gone');
$receiver->query_safe("BEGIN; SELECT delay_extend($a->[0], $a->[1])");
is(without_waiting("SET lock_timeout = '10ms'; SELECT delay_done($a->[0], $a->[1])"), '55P03', 'a word waits for no longer than lock_timeout');
$receiver->query_safe('ROLLBACK');
is(call('delay_extend', $a, q{'1 ms'}), 't', 'the lease ends');
query(q{CALL delay_await('mail', '60 s')});
is($receiver->query_safe(q{BEGIN; SELECT id FROM delay_receive('mail')}), $a->[0], 'and another one receives the message');
is(without_waiting("SELECT $_($a->[0], $a->[1])"), 'f', "$_() does not wait for it") for qw(delay_done delay_extend delay_release delay_fail);
is(without_waiting("SELECT delay_done_all('{$a->[0]}', '{$a->[1]}')"), '{}', 'delay_done_all() does not wait for it');
$receiver->query_safe('ROLLBACK');
is(call('delay_done', $a), 't', 'when that one has rolled back, the token is valid');
$canceller->quit;

#
# A lease that has ended leaves nothing behind
#
is(query(q{SELECT count(delay_fail(id, token, repeat('e', 1000000), give_up => true)) FROM delay_lease('mail', 1, '1 ms')}), 0, 'nothing is left');
query(q{SELECT delay_send('mail', '"long"')});
is(call('delay_fail', lease_one('mail', '1 hour', 'one is leased'), q{repeat('e', 1000000)}, q{give_up => true}), 't', 'it fails, with many words');
is(query(q{SELECT length(message) FROM delay_wheel.failed WHERE payload = '"long"'}), 16384, 'of which the first are kept');
cmp_ok(-s $node->logfile, '<', 500_000, 'and logged');
query(q{SELECT delay_send('mail', '"b"'); CALL delay_await('mail', '60 s')});
my $due = query('SELECT due FROM delay_wheel.tasks WHERE payload = \'"b"\'');
my $b = lease_one('mail', '1 ms', 'one is leased for a moment');
wait_for($node, q{SELECT ready = 1 FROM delay_wheel.queues WHERE name = 'mail'}, 'and due again');
is($receiver->query_safe(q{SELECT due FROM delay_lease('mail', lease => '1 ms')}), $due, 'to whom it is leased next, it was due when it was due first');
wait_for($node, q{SELECT ready = 1 FROM delay_wheel.queues WHERE name = 'mail'}, 'that lease ends, too');
for my $n (1 .. 3)
{
	query(q{CALL delay_await('mail', '60 s')});
	is($receiver->query_safe(q{BEGIN; SELECT id FROM delay_receive('mail')}), $b->[0], "received, and rolled back: $n");
	$receiver->query_safe('ROLLBACK');
}
is(lease_one('mail', '1 ms', 'it is not lost')->[0], $b->[0], 'and leased again');
is(query("SELECT attempts, last_error LIKE 'DW008%' FROM delay_wheel.tasks WHERE id = $b->[0]"), '4|t', 'the rollbacks are an attempt');
wait_for($node, q{SELECT ready = 1 FROM delay_wheel.queues WHERE name = 'mail'}, 'its lease ends');
my ($late) = query("SELECT token FROM delay_wheel_data.task WHERE id = $b->[0]");
is(query("SELECT delay_reschedule($b->[0], '1 hour')"), 'moved', 'it is moved');
is(query("SELECT leased_until IS NULL FROM delay_wheel.tasks WHERE id = $b->[0]"), 't', 'that is no lease');
is(query("SELECT delay_done($b->[0], $late)"), 'f', 'the old token is void');
is(query("SELECT delay_cancel($b->[0])"), 'cancelled', 'and it can be cancelled');

# a transaction that has received only in a savepoint that was rolled back can be prepared,
# and is not taken for a receiver then
query(q{SELECT delay_send('mail', '"c"'); CALL delay_await('mail', '60 s')});
query(q{BEGIN; SAVEPOINT s; SELECT count(*) FROM delay_receive('mail'); ROLLBACK TO s; CREATE TABLE prepared_here (i int); PREPARE TRANSACTION 'nothing received'; ROLLBACK PREPARED 'nothing received'});
my $c = lease_one('mail', '1 hour', 'its message is there');

#
# Messages whose receivers are rolled back over and over: one that is alone has lost an
# attempt, those that come together are suspected only, and come alone the next time
#
query(q{SELECT delay_wheel.create_queue('poison', external => true, options => '{"retry_delay": "1 hour"}'); SELECT count(delay_send('poison', to_jsonb(n))) FROM generate_series(1, 3) n});
for my $n (1 .. 3)
{
	wait_for($node, q{SELECT ready = 3 FROM delay_wheel.queues WHERE name = 'poison'}, "three messages are due: $n");
	is($receiver->query_safe(q{BEGIN; SELECT count(*) FROM delay_receive('poison', 10)}), 3, 'and received together');
	$receiver->query_safe('ROLLBACK');
}
wait_for($node, q{SELECT ready = 3 FROM delay_wheel.queues WHERE name = 'poison'}, 'after three rollbacks they are due');
is(query(q{SELECT count(*) FROM delay_wheel.tasks WHERE queue = 'poison' AND attempts > 0}), 0, 'none of them has lost an attempt');
is($receiver->query_safe(q{BEGIN; SELECT string_agg(payload::text, ',') FROM delay_receive('poison', 10)}), '1', 'but each comes alone now');
$receiver->query_safe('ROLLBACK');
wait_for($node, q{SELECT string_agg(payload::text || ' ' || last_error, ',') LIKE '1 DW008%' FROM delay_wheel.tasks WHERE queue = 'poison' AND attempts > 0}, 'then it has lost one');

#
# A receiver that sits in its transaction: ends by receive_timeout, and gives way
#
query(q{SELECT delay_wheel.create_queue('idle', external => true, options => '{"receive_timeout": "100 ms"}'); SELECT delay_send('idle', '1'); CALL delay_await('idle', '60 s')});
my $idle = session();
$idle->query_until(qr/begun/, "BEGIN; SELECT id FROM delay_receive('idle');\n\\echo begun\n");
wait_for($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'}, 'receive_timeout ends its session');
is(query(q{CALL delay_await('idle', '60 s')}), 't', 'its message is due');
eval { $idle->quit };

query(q{SELECT delay_wheel.create_queue('idle', options => '{"receive_timeout": "0"}')});
$idle = session();
$idle->query_until(qr/begun/, "BEGIN; SELECT id FROM delay_receive('idle');\n\\echo begun\n");
is(without_waiting('VACUUM FULL delay_wheel_data.task'), '', 'the table can be rewritten');
is(query(q{SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'}), 0, 'the receiver gave way');
is(query(q{CALL delay_await('idle', '60 s')}), 't', 'its message is due');
eval { $idle->quit };

#
# History
#
query(q{SELECT pg_sleep(0.02)});
is(call('delay_fail', $c, q{'x'}, q{'0'}), 't', 'an attempt fails');
$c = lease_one('mail', '1 hour', 'the next one');
query(q{SELECT pg_sleep(0.02)});
is(call('delay_done', $c), 't', 'is done');
query(q{SELECT delay_send('mail', '"d"', max_attempts => 1)});
my $d = lease_one('mail', '20 ms', 'one is given up after its lease');
wait_for($node, "SELECT count(*) = 1 FROM delay_wheel.failed WHERE id = $d->[0]", 'without a word');
is(query("SELECT outcome, attempt, lateness >= 0, lateness < 600000, duration >= 20 FROM delay_wheel.history WHERE task IN ($c->[0], $d->[0]) ORDER BY task, ended"),
	"retried|1|t|t|t\ndone|2|t|t|t\nfailed|1|t|t|t", 'history has when each was due, and how long its leases lasted');

#
# A leased message that has a newer one of its key is shown, as long as its lease lasts
#
query(q{SELECT delay_wheel.create_queue('keyed', external => true); SELECT delay_send('keyed', '1', key => 'k')});
my $keyed = lease_one('keyed', '1 hour', 'one of a key is leased');
query(q{SELECT delay_send('keyed', '2', key => 'k', delay => '1 hour')});
is(query(q{SELECT string_agg(payload::text, ' ' ORDER BY id) FROM delay_wheel.tasks WHERE queue = 'keyed'}), '1 2', 'both are shown');
is(call('delay_extend', $keyed, q{'1 ms'}), 't', 'its lease ends');
wait_for($node, q{SELECT string_agg(payload::text, ' ' ORDER BY id) FROM delay_wheel.tasks WHERE queue = 'keyed'}, 'then the newer one is', 60, expected => '2');

#
# A cancellation by the transaction that then receives: undone with it
#
query(q{SELECT delay_wheel.create_queue('own', external => true); SELECT delay_send('own', '1'); CALL delay_await('own', '60 s')});
is(query(q{BEGIN; SELECT count(delay_cancel_all(queue => 'own')); SELECT count(*) FROM delay_receive('own'); ROLLBACK}), "1\n0", 'what one has cancelled one does not receive');
lease_one('own', '1 hour', 'after a rollback it is there');

#
# Attempts that are added after a last lease: the message is not forgotten
#
query(q{SELECT delay_wheel.create_queue('added', external => true, max_attempts => 1); SELECT delay_send('added', '1')});
my $added = lease_one('added', '100 ms', 'one is leased for the last time');
$receiver->query_safe("BEGIN; SELECT FROM delay_wheel_data.task WHERE id = $added->[0] FOR UPDATE");
wait_for($node, q{SELECT ready = 1 FROM delay_wheel.queues WHERE name = 'added'}, 'its lease ends, while its row is locked');
is(scalar(lease('added', 1, '1 hour')), 0, 'it is not leased');
query(q{SELECT delay_wheel.create_queue('added', max_attempts => 5)});
# a sweeper that has begun before may end the message as it was then
wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'delay_wheel sweeper' AND xact_start IS NOT NULL}, 'no sweeper is at work', 60, expected => 0);
$receiver->query_safe('ROLLBACK');
lease_one('added', '1 hour', 'with more attempts it is');

#
# The last lease: nobody gets the message again, also while the sweeper cannot end it
#
query(q{SELECT delay_wheel.create_queue('last', external => true, max_attempts => 1); SELECT delay_send('last', '1')});
my $last = lease_one('last', '100 ms', 'one is leased for the last time');
$receiver->query_safe("BEGIN; SELECT FROM delay_wheel_data.task WHERE id = $last->[0] FOR UPDATE");
wait_for($node, q{SELECT ready = 1 FROM delay_wheel.queues WHERE name = 'last'}, 'its lease ends, while its row is locked');
query('SELECT pg_sleep(0.3)');
$receiver->query_safe('ROLLBACK');
is(scalar(lease('last', 1, '1 hour')), 0, 'it is not leased again');
wait_for($node, "SELECT sqlstate FROM delay_wheel.failed WHERE id = $last->[0]", 'but has failed', 60, expected => 'DW006');

#
# A copy whose lanes are in use when it is armed
#
query(q{SELECT delay_send('mail', '"copied"')});
lease_one('mail', '1 hour', 'one is leased when the database is copied');
$receiver->quit;
wait_until(60, sub { $node->psql('template1', 'CREATE DATABASE copy TEMPLATE postgres') == 0 });
$node->safe_psql('copy', q{SELECT delay_send('mail', '"new"'); CALL delay_await('mail', '60 s'); BEGIN; SELECT count(*) FROM delay_receive('mail'); COMMIT; SELECT delay_wheel.arm(); CALL delay_await('mail', '60 s')});
is($node->safe_psql('copy', q{BEGIN; SELECT payload FROM delay_receive('mail', 10); COMMIT}), '"copied"', 'its message is due in the copy, once it is armed');

#
# In a task there is nobody who could say done; and a queue that goes with what was received
#
query(q{SELECT delay_wheel.create_queue('task', external => true); SELECT delay_send('task', '1');
	SELECT delay_schedule_task($$SELECT * FROM delay_lease('task')$$, tag => 'leases', options => '{"mode": "at_least_once"}');
	SELECT delay_schedule_task($$CALL delay_await('task')$$, tag => 'waits', options => '{"mode": "at_least_once"}')});
wait_for($node, q{SELECT string_agg(tag || sqlstate, ' ' ORDER BY tag) FROM delay_wheel.failed WHERE tag IN ('leases', 'waits')}, 'a task neither leases nor waits', 60, expected => 'leases25001 waits25001');
is(without_waiting(q{BEGIN; CREATE TEMP TABLE got AS SELECT id FROM delay_receive('task'); SELECT delay_wheel.drop_queue('task'); SELECT delay_fail(id) FROM got}), '42704', 'what was received from a queue that is dropped cannot be put back');
is(query(q{CALL delay_await('task', '60 s')}), 't', 'so all is as it was');

# what has failed, and a queue of the other kind
query(q{SELECT delay_wheel.create_queue('kind'); SELECT delay_schedule_task('SELECT 1/0', queue => 'kind')});
wait_for($node, q{SELECT count(*) = 1 FROM delay_wheel.failed WHERE queue = 'kind'}, 'a task fails');
query(q{SELECT delay_wheel.create_queue('kind', external => true)});
is(without_waiting(q{SELECT delay_retry(id) FROM delay_wheel.failed WHERE queue = 'kind'}), '55000', 'it is no message');
is(query(q{SELECT delay_retry_all(queue => 'kind')}), 0, 'and stays where it is');

#
# Dropped roles
#
query(q{CREATE ROLE leaver; CREATE ROLE stayer; SELECT delay_wheel.create_queue('mail', users => '{leaver,stayer}', receivers => '{stayer,leaver}'); DROP ROLE leaver});
wait_for($node, q{SELECT users::text || receivers::text = '{stayer}{stayer}' FROM delay_wheel_data.queue WHERE name = 'mail'}, 'a dropped role is no receiver any more');

$node->stop;
done_testing();
