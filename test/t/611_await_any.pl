# delay_await_any(): sessions that wait for a message of several queues. What it has in common
# with delay_await() is in 600_messages.pl.

use strict;
use warnings;

use DelayWheel;
use Test::More;

my $node = new_node('await_any', conf => "autovacuum = off\n");
my %session = map { $_ => $node->background_psql('postgres', on_error_stop => 0) } qw(one two three);

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub declare { return sql(join '; ', map { "SELECT delay_wheel.create_queue('$_', external => true)" } @_); }

# A session begins to wait, and sleeps.
sub waits
{
	my ($who, $queues, $timeout) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$session{$who}{stderr} = '';
	$session{$who}->query_until(qr/begun/, "\\echo begun\nCALL delay_await_any('{$queues}'" . ($timeout ? ", '$timeout'" : '') . ");\n");
	my $asleep = $node->pg_version < 17 ? "wait_event_type = 'Extension'" : "wait_event = 'DelayWheelAwait'";
	wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CALL delay_await_any(''{$queues}''%' AND $asleep AND state = 'active'", "$who waits for $queues", 60, expected => 1);
	return;
}

# What the call that a session waits in returns.
sub found
{
	my ($who) = @_;
	my $answer = $session{$who}->query('');
	return $answer =~ s/^background_psql: QUERY_SEPARATOR\n\z//r;
}

sub refused
{
	my ($call, $message, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my (undef, undef, $error) = $node->psql('postgres', $call);

	return like($error, $message, $what);
}

sub received
{
	my ($queue) = @_;
	return sql("SELECT payload FROM delay_receive('$queue', 10, autocommit => true) ORDER BY id");
}

declare(qw(a b c));

#
# Errors, and what is there already
#
refused("CALL delay_await_any(NULL)", qr/ERROR:  queue name must not be null/, 'no array');
refused("CALL delay_await_any('{a, NULL}')", qr/ERROR:  queue name must not be null/, 'a name that is null');
refused("CALL delay_await_any('{}')", qr/ERROR:  delay_await_any\(\) waits for 1 to 32 queues, not 0/, 'no queue');
refused("CALL delay_await_any(array_fill('a'::text, '{33}'))", qr/ERROR:  delay_await_any\(\) waits for 1 to 32 queues, not 33/, 'too many');
refused("CALL delay_await_any('{a, nowhere}')", qr/ERROR:  queue "nowhere" does not exist/, 'a queue that is not there');
sql(q{SELECT delay_wheel.create_queue('sql_tasks')});
refused("CALL delay_await_any('{a, sql_tasks}')", qr/ERROR:  queue "sql_tasks" is not external/, 'a queue of SQL tasks');
refused("BEGIN; CALL delay_await_any('{a}')", qr/ERROR:  delay_await_any\(\) cannot run inside a transaction block.*\n.*\nHINT:  Use CALL delay_await_any\(\) as/, 'a transaction block');
refused("DO \$\$ DECLARE found text[]; BEGIN CALL delay_await_any('{a}', '0', found); END \$\$", qr/ERROR:  delay_await_any\(\) cannot run inside/, 'DO');
sql('CREATE ROLE stranger LOGIN; CREATE ROLE half LOGIN');
sql(q{SELECT delay_wheel.allow('half'), delay_wheel.create_queue('b', options => '{"receivers": ["half"]}')});
refused("SET ROLE stranger; CALL delay_await_any('{a}')", qr/ERROR:  permission denied to use delay_wheel/, 'a stranger');
refused("SET ROLE half; CALL delay_await_any('{b, a}', '0')", qr/ERROR:  permission denied to receive from queue "a"/, 'a receiver of one of them only');
is(sql("SET ROLE half; CALL delay_await_any('{b}', '0')"), '', 'and of that one he waits');
is(sql("CALL delay_await_any('{a,b,c}', '10 ms')"), '', 'nothing is there, so found is null');
sql(q{SELECT delay_send('b', '1')});
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'b'}, 'a message is ready', 60, expected => 1);
is(sql("CALL delay_await_any('{a,b,c}')"), '{b}', 'it is found');
sql(q{SELECT delay_send('a', '1')});
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'a'}, 'so is another one', 60, expected => 1);
is(sql("CALL delay_await_any('{c,b,a,b}')"), '{b,a,b}', 'both are found, in the order of the names');
is(received($_), 1, "the message of $_ is received") for qw(a b);

#
# Woken by each of them
#
for my $queue (qw(c a b))
{
	waits('one', 'a,b,c');
	sql("SELECT delay_send('$queue', '2')");
	is(found('one'), "{$queue}", "a message of $queue wakes the session");
	is(received($queue), 2, 'and is received');
}

#
# One message wakes one session, and one that was woken for another queue is no obstacle
#
waits('one', 'a,b');
waits('two', 'b');
waits('three', 'b,c');
sql(q{SELECT delay_send('a', '3')});
is(found('one'), '{a}', 'only one session waits for this queue, and is woken');
sql(q{SELECT delay_send('b', '3')});
wait_for($node, q{SELECT count(*) <= 1 FROM pg_stat_activity WHERE query LIKE 'CALL delay_await_any%' AND state = 'active'}, 'one of two is woken', 60);
sql(q{SELECT delay_send('c', '3')});
sql(q{SELECT delay_send('b', '4')});
wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CALL delay_await_any%' AND state = 'active'}, 'then the other one', 60, expected => 0);
is(found('two'), '{b}', 'the second session has found its queue');
like(found('three'), qr/^\{(b|c|b,c)\}$/, 'and the third one of its own');
is(received('a') . received('b') . received('c'), "33\n43", 'all messages are received');

#
# A session that ends, one whose statement is cancelled, and one that is killed leave nothing
#
waits('one', 'a,b,c', '200 ms');
is(found('one'), '', 'a wait that has ended');
waits('one', 'a,b,c');
sql(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL delay_await_any%' AND state = 'active'});
found('one');
like($session{one}{stderr}, qr/canceling statement due to user request/, 'a wait is cancelled');
waits('one', 'a,b,c');
sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL delay_await_any%' AND state = 'active'});
wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CALL delay_await_any%'}, 'a session that waited is gone', 60, expected => 0);
waits('two', 'c,b');
sql(q{SELECT delay_send('b', '5')});
is(found('two'), '{b}', 'the next message wakes one that is there');
is(received('b'), 5, 'which receives it');

# What the session that waits for these queues is asked.
sub of_waiting { my ($call) = @_; return sql("SELECT $call FROM pg_stat_activity WHERE query LIKE 'CALL delay_await_any%' AND state = 'active'"); }

#
# delay_end_await() ends a wait without an error
#
my $log_size = log_position($node);
waits('two', 'a,b,c');
is(of_waiting('delay_end_await(pid)'), 't', 'a wait is ended');
is(found('two'), '', 'the call returns, and has found nothing');
unlike($session{two}{stderr}, qr/ERROR/, 'without an error');
is(sql('SELECT delay_end_await(pg_backend_pid()), delay_end_await(1)'), 'f|f', 'a session that does not wait, a process that is no session');
refused('SELECT delay_end_await(NULL)', qr/ERROR:  process id must not be null/, 'no process');
waits('two', 'a,b,c');
is(of_waiting('delay_end_await(pid)'), 't', 'a second wait of the session');
is(found('two'), '', 'ends in the same way');
waits('two', 'b');
sql(q{BEGIN; SELECT delay_end_await(pid) FROM pg_stat_activity WHERE query LIKE 'CALL delay_await_any%' AND state = 'active'; SELECT delay_send('b', '9'); COMMIT});
is(found('two'), '', 'it ends at once, before the commit of the caller');
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'b'}, 'the message is ready', 60, expected => 1);
is(sql("CALL delay_await_any('{b}')"), '{b}', 'and no wake-up is lost');
is(received('b'), 9, 'it is received');
waits('three', 'a');
waits('two', 'b');
is(sql("SELECT delay_end_await(pid) FROM pg_stat_activity WHERE query LIKE 'CALL delay_await_any(''{b}''%' AND state = 'active'"), 't', 'one of two');
is(found('two'), '', 'ends');
is(of_waiting('count(*)'), 1, 'the other one waits on');
refused("SET ROLE half; SELECT delay_end_await(pid) FROM pg_stat_activity WHERE pid = " . of_waiting('pid'), qr/ERROR:  permission denied to end the wait of process \d+\n.*DETAIL:  Only members/, 'a role without the rights of the session');
refused("SET ROLE stranger; SELECT delay_end_await(1)", qr/ERROR:  permission denied to use delay_wheel/, 'a stranger');
is(of_waiting('delay_end_await(pid)'), 't', 'a superuser may');
is(found('three'), '', 'so it ends');
unlike(log_since($node, $log_size), qr/(?:ERROR|FATAL):.*\n.*STATEMENT:  CALL/, 'the server logs nothing of a wait that has ended');

#
# A client that goes away ends its session, and nothing is logged
#
$log_size = log_position($node);
waits('two', 'a,b,c');
$session{two}{run}->kill_kill;
wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CALL delay_await_any%'}, 'the session is gone', 60, expected => 0);
unlike(log_since($node, $log_size), qr/FATAL|ERROR|connection to client lost/, 'without a line in the log');
is(sql(q{SELECT sessions_abandoned > 0 FROM pg_stat_database WHERE datname = 'postgres'}), 't', 'and is counted as abandoned');
$session{two} = $node->background_psql('postgres', on_error_stop => 0);

#
# Receivers get the key
#
sql(q{SELECT delay_send('a', '1', key => 'k'), delay_send('a', '2', key => repeat('é', 500)), delay_send('a', '3')});
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'a'}, 'three messages are ready', 60, expected => 3);
is(sql(q{SELECT payload, key = 'k', length(key) FROM delay_lease('a')}), '1|t|1', 'delay_lease() returns the key');
is(sql(q{SELECT payload, length(key), key FROM delay_receive('a', 2, autocommit => true) ORDER BY id}), '2|500|' . ('é' x 500) . "\n3||", 'delay_receive() too, NULL without a key');

#
# Queues that change meanwhile
#
waits('two', 'a,b,c');
sql(q{SELECT delay_wheel.pause_queue('b')});
sql(q{SELECT delay_send('b', '6')});
waits('three', 'a');
sql(q{SELECT delay_send('a', '6'), delay_send('a', '7')});
is(found('three'), '{a}', 'a message of another queue');
is(found('two'), '{a}', 'paused, a queue is not found');
is(received('a'), "6\n7", 'both are received');
waits('two', 'a,b,c');
sql(q{SELECT delay_wheel.resume_queue('b')});
is(found('two'), '{b}', 'resumed, it is');
is(received('b'), 6, 'and its message is received');
waits('two', 'a,b,c');
sql(q{SELECT delay_wheel.drop_queue('c')});
found('two');
like($session{two}{stderr}, qr/ERROR:  queue "c" does not exist/, 'a queue is dropped: the wait ends with an error');
$session{three}->query('SET ROLE half');
waits('three', 'b');
sql(q{SELECT delay_wheel.create_queue('b', external => false)});
found('three');
like($session{three}{stderr}, qr/ERROR:  queue "b" is not external/, 'a queue of SQL tasks now: the receiver is told that, not of its rights');
sql(q{SELECT delay_wheel.create_queue('b', external => true)});
declare('c');
waits('two', 'b,c');
sql(q{SELECT delay_send('c', '8')});
is(found('two'), '{c}', 'declared anew, it is one to wait for');
is(received('c'), 8, 'its message is received');

$session{$_}->quit for qw(two three);
$node->stop;
done_testing();
