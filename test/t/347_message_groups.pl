# Groups of messages: their limits and order hold for all that is received in open transactions and
# all that is leased, in all sessions and of all senders, over savepoints, restarts, kills, and
# leases that end without a word; who waits is woken when a group opens, and nobody looks in vain
# over and over.
#
#   DW_SEED    repeats random choices of the campaign, as far as time allows
#   DW_RACES   parts to run: leases open late declared woken order inside last rate places races campaign

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $injection = has_injection();
my $seed = $ENV{DW_SEED} // int(rand(2**31));
my $node = new_node('message_groups', injection => $injection, conf => q{
log_statement = none
autovacuum = off
max_connections = 60
restart_after_crash = on
});

sub query { return $node->safe_psql('postgres', $_[0]); }

sub session { return $node->background_psql('postgres', on_error_stop => 0, timeout => 3 * $PostgreSQL::Test::Utils::timeout_default); }

# What a transaction receives, or leases: "payload payload".
sub received { my ($session, $queue, $n) = @_; return $session->query_safe(sprintf q{SELECT string_agg(payload #>> '{}', ' ') FROM delay_receive('%s', %d)}, $queue, $n // 1); }

# Leases up to n messages; returns a list of [id, token, payload].
sub lease
{
	my ($queue, $n, $time) = @_;

	return map { [ split /\|/, $_ ] } split /\n/,
	  query(sprintf q{SELECT id, token, payload #>> '{}' FROM delay_lease('%s', %d, '%s')}, $queue, $n // 1, $time // '1 hour');
}

sub texts { return join(' ', map { $_->[2] } @_); }

sub word { my ($word, $lease, @more) = @_; return query("SELECT delay_$word(" . join(', ', @$lease[ 0, 1 ], @more) . ')'); }

# Sends messages to groups, "group:payload"; they are due in this order.
sub put
{
	my ($queue, @what) = @_;

	query(join '', map { my ($of, $text) = split /:/; qq{SELECT delay_send('$queue', to_jsonb('$text'::text), group_key => '$of');} } @what);
	return;
}

# A message can be received; waits for that.
sub await { is(query("CALL delay_await('$_[0]', '60 s')"), 't', $_[1]); return; }

sub nothing { is(query("CALL delay_await('$_[0]', '0')"), 'f', $_[1]); return; }

# All messages of the queue that are due are in memory.
sub ready { my ($queue, $n) = @_; return wait_for($node, "SELECT ready >= $n FROM delay_wheel.queues WHERE name = '$queue'", "$queue: $n are due"); }

sub is_stopped { my ($queue, $what) = @_; return is(query("SELECT reason FROM delay_wheel.queues WHERE name = '$queue'"), 'limits of groups', $what); }

query(q{
	CREATE ROLE anna LOGIN; CREATE ROLE berta LOGIN;
	SELECT delay_wheel.allow('public');
});

my $one = session();
my $held;

sub send_as { my ($role, $queue, $of, $text, $due, $priority) = @_; query(sprintf q{SET SESSION AUTHORIZATION %s; SELECT delay_send('%s', to_jsonb('%s'::text), due => now() %s, group_key => '%s', priority => %d)}, $role, $queue, $text, $due, $of, $priority // 0); return; }
sub next_one
{
	my ($queue, $time) = @_;
	my @got;

	wait_until(60, sub { query("CALL delay_await('$queue', '1 s')"); return @got = lease($queue, 10, $time) });
	return $got[0] // [ 0, 0, '' ];
}
sub wakes
{
	my ($what, $hold, $open) = @_;
	my $waiter = session();

	put('woken', 'a:1', 'a:2', 'a:3');
	ready('woken', 3);
	$hold->();
	$waiter->query_until(qr/^waits$/m, "\\echo waits\nCALL delay_await('woken', '30 s');\n\\echo ended\n");
	wait_for($node, q{SELECT awaiting FROM delay_wheel.queues WHERE name = 'woken'}, "$what: a session waits", 60, expected => 1);
	is(texts(lease('woken')), '', "$what: another one finds none");
	sleep(0.3);
	is(query(q{SELECT awaiting FROM delay_wheel.queues WHERE name = 'woken'}), 1, "$what: it goes on waiting");
	my $at = time;
	$open->();
	ok(wait_until(60, sub { $waiter->{run}->pump_nb; return $waiter->{stdout} =~ /^ended$/m }), "$what: it is woken");
	cmp_ok(time - $at, '<', 5, "$what: at once");
	$waiter->{stdout} = '';
	# one that is shorter now still lasts
	ok(wait_until(10, sub { return scalar(lease('woken')) }), "$what: there is one");
	$waiter->quit;
	$one->query_safe('COMMIT') if $what eq 'a savepoint';
	# a row that plain SQL deletes tells nobody
	query(q{SELECT count(delay_cancel(id, stop_running => true)) FROM delay_wheel.tasks});
	return;
}
sub drain { wait_until(60, sub { lease('woken', 10, '1 ms'); return query(q{SELECT coalesce(sum(ready), 0) FROM delay_wheel.queues WHERE name = 'woken'}) eq '0' }); return; }

#
# Limits, by leases
#
group(leases => sub {
	query(q{SELECT delay_wheel.create_queue('leased', external => true, groups => true, options => '{"group_max_running": 2}')});
	put('leased', qw(a:a1 a:a2 a:a3 a:a4 b:b1));
	ready('leased', 5);
	my @two = lease('leased', 10);
	is(texts(@two), 'a1 b1 a2', 'one call leases no more of a group than its limit');
	is(scalar(lease('leased', 10)), 0, 'another call leases no more of the group');
	nothing('leased', 'nobody is told that there is one');
	is_stopped('leased', 'the view says why');
	put('leased', 'c:c1');
	await('leased', 'a group at its limit does not hold up another one');
	is(texts(lease('leased', 10)), 'c1', 'the message of the other group is leased');
	nothing('leased', 'then there is none again');
	$node->restart;
	$one = session();
	query(q{SELECT pg_sleep(0.3)});
	is(texts(lease('leased', 10)), '', 'after a restart leases still count');
	is(word('done', $two[0]), 't', 'one is done');
	my @more = lease('leased', 10);
	is(texts(@more), 'a3', 'then the next one is leased, and no more');
	is(word('fail', $two[2], q{'no'}, q{'1 hour'}), 't', 'one has failed');
	push @more, lease('leased', 10);
	is(texts(@more), 'a3 a4', 'then the last one is leased');
	put('leased', 'a:a5');
	ready('leased', 1);
	is(texts(lease('leased', 10)), '', 'a new one has to wait');
	is(word('release', $more[0], q{'1 hour'}), 't', 'one is released, for later');
	is(texts(lease('leased', 10)), 'a5', 'then it comes');
	put('leased', 'a:a6');
	ready('leased', 1);
	is(texts(lease('leased', 10)), '', 'and the next one has to wait');
	query("SELECT delay_cancel($more[1][0], stop_running => true)");
	my $cancelled = time;
	is(wait_until(60, sub { return texts(lease('leased', 10)) eq 'a6' }), 1, 'until one is cancelled');
	cmp_ok(time - $cancelled, '<', 5, 'also if nobody waits');
	query('DELETE FROM delay_wheel_data.task');
});

#
# Limits, by what transactions receive, and both kinds mixed
#
group(open => sub {
	query(q{SELECT delay_wheel.create_queue('open', external => true, groups => true, options => '{"group_max_running": 2}')});
	put('open', map { "a:a$_" } 1 .. 8);
	ready('open', 8);
	my $other = session();
	$one->query_safe('BEGIN');
	$other->query_safe('BEGIN');
	is(received($one, 'open'), 'a1', 'a transaction receives one');
	is(received($other, 'open', 10), 'a2', 'another one, and no third one');
	is(received($one, 'open', 10), '', 'the first transaction receives no third one');
	is(texts(lease('open')), '', 'no message can be leased');
	nothing('open', 'nobody is told that there is one');
	$other->query_safe('ROLLBACK');
	await('open', 'one is rolled back');
	my ($l) = lease('open');
	is(texts($l), 'a3', 'the next one is leased');
	is(texts(lease('open')), '', 'no second one is leased');
	$one->query_safe('COMMIT; BEGIN; SAVEPOINT s');
	like(received($one, 'open', 10), qr/^a[24]$/, 'the first one is done, which makes room for one');
	$one->query_safe('ROLLBACK TO s');
	await('open', 'a savepoint is rolled back');
	my ($m) = lease('open');
	like(texts($m), qr/^a[245]$/, 'one is leased instead');
	is(received($one, 'open'), '', 'the transaction gets none');
	is(word('done', $m), 't', 'one lease is over');
	like(received($one, 'open', 10), qr/^a\d$/, 'it gets one');
	$one->query_safe('SAVEPOINT t');
	is($one->query_safe("SELECT delay_done($l->[0], $l->[1])"), 't', 'it ends a lease itself');
	like(received($one, 'open', 10), qr/^(a\d)?$/, 'and gets another one in its place, or none');
	is(texts(lease('open')), '', 'others see the lease as long as that is not committed');
	$one->query_safe('ROLLBACK TO t');
	is(texts(lease('open')), '', 'others see the lease after the end was undone');
	is(received($one, 'open', 10), '', 'then it does not get one any more');
	is($one->query_safe("SELECT delay_done($l->[0], $l->[1])"), 't', 'the lease is there again');
	$one->query_safe('COMMIT');
	wait_for($node, q{SELECT ready >= 4 FROM delay_wheel.queues WHERE name = 'open'}, 'some are left');
	my @five = lease('open', 10);
	is(scalar(@five), 2, 'nothing is left over');
	word('done', $_) for @five;

	# a receiver dies
	$other->query_safe('BEGIN');
	like(received($other, 'open', 10), qr/^a\d a\d$/, 'two are received');
	nothing('open', 'that is all there may be');
	query('SELECT pg_terminate_backend(' . $other->query_safe('SELECT pg_backend_pid()') . ')');
	await('open', 'the receiver is terminated');
	my @short = lease('open', 10);
	is(scalar(@short), 2, 'the messages come again');
	nothing('open', 'that is all again');
	word('extend', $_, q{'300 ms'}) for @short;
	await('open', 'leases end without a word');
	my @again;
	wait_until(60, sub { push @again, lease('open', 10); return @again >= 2 });
	is(scalar(@again), 2, 'the messages come again');
	query('DELETE FROM delay_wheel_data.task');
});

# a lease that has ended cannot be extended: others may have been received since
group(late => sub {
	query(q{SELECT delay_wheel.create_queue('late', external => true, groups => true, options => '{"group_max_running": 1}'); SELECT delay_wheel.create_queue('late turns', external => true, groups => true)});
	put($_, 'a:1', 'a:2') for 'late', 'late turns';
	for my $queue ('late', 'late turns')
	{
		ready($queue, 2);
		my ($late) = lease($queue, 1, '50 ms');
		sleep(0.1);
		is(word('extend', $late, q{'1 hour'}), $queue eq 'late' ? 'f' : 't', "$queue: a lease that has ended is extended, or not");
		is(word('done', $late), 't', "$queue: its receiver is heard nevertheless");
	}
	query('DELETE FROM delay_wheel_data.task');
});

# groups without limits pay nothing, and what is declared while messages are received counts them
group(declared => sub {
	query(q{SELECT delay_wheel.create_queue('turns', external => true, groups => true)});
	put('turns', map { "a:$_" } 1 .. 6);
	ready('turns', 6);
	$one->query_safe('BEGIN');
	is(received($one, 'turns', 3), '1 2 3', 'without a limit all are received');
	query(q{SELECT delay_wheel.create_queue('turns', options => '{"group_max_running": 4}')});
	wait_for($node, q{SELECT group_max_running FROM delay_wheel.queues WHERE name = 'turns'}, 'a limit is declared', 60, expected => 4);
	wait_until(60, sub { return query(q{CALL delay_await('turns', '1 s')}) eq 't' });
	is(texts(lease('turns', 10)), '4', 'it counts those that were received before');
	query(q{SELECT delay_wheel.create_queue('turns', options => '{"group_max_running": 0}')});
	wait_until(60, sub { return query(q{CALL delay_await('turns', '1 s')}) eq 't' });
	is(texts(lease('turns', 10)), '5 6', 'without it all are leased');
	$one->query_safe('COMMIT');
	query(q{SELECT delay_wheel.create_queue('turns', options => '{"group_max_running": 4}')});
	put('turns', map { "a:$_" } 7 .. 10);
	ready('turns', 4);
	is(texts(lease('turns', 10)), '7', 'what was received is over');
	query('DELETE FROM delay_wheel_data.task');
});

#
# A waiting session is woken when a group opens, and by nothing else.
#
group(woken => sub {
	query(q{SELECT delay_wheel.create_queue('woken', external => true, groups => true, options => '{"group_max_running": 1}')});
	for my $way (
		[ 'done', sub { ($held) = lease('woken') }, sub { word('done', $held) } ],
		[ 'released', sub { ($held) = lease('woken') }, sub { word('release', $held) } ],
		[ 'failed', sub { ($held) = lease('woken') }, sub { word('fail', $held) } ],
		[ 'done by hand', sub { ($held) = lease('woken') }, sub { query("SELECT delay_done_all('{$held->[0]}', '{$held->[1]}')") } ],
		[ 'lapsed', sub { ($held) = lease('woken', 1, '1500 ms') }, sub { sleep(1) } ],
		[ 'cancelled', sub { ($held) = lease('woken') }, sub { query("SELECT delay_cancel($held->[0], stop_running => true)") } ],
		[ 'shorter', sub { ($held) = lease('woken') }, sub { word('extend', $held, q{'100 ms'}) } ],
		[ 'committed', sub { $one->query_safe('BEGIN'); received($one, 'woken') }, sub { $one->query_safe('COMMIT') } ],
		[ 'rolled back', sub { $one->query_safe('BEGIN'); received($one, 'woken') }, sub { $one->query_safe('ROLLBACK') } ],
		[ 'a savepoint', sub { $one->query_safe('BEGIN; SAVEPOINT s'); received($one, 'woken') }, sub { $one->query_safe('ROLLBACK TO s') } ],
		[ 'failed inside', sub { $one->query_safe('BEGIN'); $held = $one->query_safe(q{SELECT id FROM delay_receive('woken')}) }, sub { $one->query_safe("SELECT delay_fail($held); COMMIT") } ])
	{
		wakes(@$way);
		drain();
	}
});

#
# Order
#
group(order => sub {
	query(qq{SELECT delay_wheel.create_queue('$_', external => true, groups => true, users => '{public}', options => jsonb_build_object('group_order', '$_', 'retry_delay', '300 ms'))}) for qw(hold pass);
	# the order of due times, of several senders and priorities
	send_as('anna', 'hold', 'a', 3, q{- interval '30 s'});
	send_as('berta', 'hold', 'a', 1, q{- interval '50 s'}, -5);
	send_as('anna', 'hold', 'a', 4, q{- interval '20 s'}, 5);
	send_as('berta', 'hold', 'a', 2, q{- interval '40 s'}, 5);
	send_as('berta', 'hold', 'b', 'b', '');
	ready('hold', 5);
	my @got = lease('hold', 10);
	is(join(' ', sort map { $_->[2] } @got), '1 b', 'of each group the first one, by its due time');
	for my $n (2 .. 4)
	{
		is(texts(lease('hold', 10)), '', "before $n the one before has to be done");
		word('done', $_) for @got;
		@got = (next_one('hold'));
		is(texts(@got), $n, "then $n comes");
	}
	word('done', $_) for @got;

	# failing, releasing, lapsing
	for my $queue (qw(hold pass))
	{
		send_as('anna', $queue, 'a', 1, q{- interval '3 s'});
		send_as('berta', $queue, 'a', 2, q{- interval '2 s'});
		send_as('anna', $queue, 'a', 3, q{- interval '1 s'});
		ready($queue, 3);
		my $first = next_one($queue);
		is(texts($first), 1, "$queue: the first one is leased");
		word('fail', $first, q{'no'}, $queue eq 'hold' ? q{'1 s'} : q{'1 hour'});
		my $second = next_one($queue);
		is(texts($second), $queue eq 'hold' ? 1 : 2, "$queue: it has failed");
		is(query("SELECT $second->[0] <> $first->[0] OR leased_at - first_due > '3 s' FROM delay_wheel_data.task WHERE id = $second->[0]"), 't', "$queue: after its pause");
		word('release', $second);
		my $third = next_one($queue, '400 ms');
		is(texts($third), texts($second), "$queue: it was released, and comes again");
		my $fourth = next_one($queue);
		is(texts($fourth), $queue eq 'hold' ? 1 : 3, "$queue: its lease has lapsed");
		is(texts(lease($queue, 10)), '', "$queue: no other one comes meanwhile");
		word('release', $fourth, q{'1 hour'});
		my $fifth = next_one($queue);
		is(texts($fifth), 2, "$queue: one that is released for later lets the others go on");
		word('done', $fifth);
		query("SELECT delay_cancel_all(queue => '$queue')");
		query('DELETE FROM delay_wheel_data.task');
	}

	# one that has failed under 'hold' is passed by as soon as the order says so
	send_as('anna', 'hold', 'a', 1, q{- interval '3 s'});
	send_as('berta', 'hold', 'a', 2, q{- interval '2 s'});
	send_as('anna', 'hold', 'a', 3, q{- interval '1 s'});
	ready('hold', 3);
	word('fail', next_one('hold'), q{'no'}, q{'1 hour'});
	is(texts(lease('hold', 10)), '', 'one that has failed holds its group back');
	query(q{SELECT delay_wheel.create_queue('hold', options => '{"group_order": "pass"}')});
	for my $n (2, 3)
	{
		my $passing = next_one('hold');
		is(texts($passing), $n, "$n passes it by");
		word('done', $passing);
	}
	is(texts(lease('hold', 10)), '', 'it waits for its time nevertheless');
	query('DELETE FROM delay_wheel_data.task');
});

# inside of transactions: the next one comes after the commit, also if it is put back there
group(inside => sub {
	query(q{SELECT delay_wheel.create_queue('inside', external => true, groups => true, options => '{"group_order": "hold", "retry_delay": "10 ms"}')});
	put('inside', 'a:1', 'a:2', 'a:3', 'b:4');
	ready('inside', 4);
	$one->query_safe('BEGIN');
	is(received($one, 'inside', 10), '1 4', 'a transaction gets the first one of each group');
	is(received($one, 'inside', 10), '', 'and no other one');
	$one->query_safe('ROLLBACK; BEGIN');
	wait_until(60, sub { query(q{CALL delay_await('inside', '1 s')}); return received($one, 'inside') });
	$one->query_safe('ROLLBACK');
	wait_until(60, sub { query(q{CALL delay_await('inside', '1 s')}); $one->query_safe('BEGIN'); $held = received($one, 'inside', 10); $one->query_safe('ROLLBACK'); return $held eq '1 4' || $held eq '4 1' });
	like($held, qr/1/, 'rolled back, it is the first one again');
	# with new ones: after rollbacks a message may come alone
	query(q{SELECT delay_wheel.create_queue('back', external => true, groups => true, options => '{"group_order": "hold", "retry_delay": "10 ms"}')});
	put('back', 'a:1', 'a:2', 'a:3', 'b:4');
	ready('back', 4);
	$one->query_safe('BEGIN');
	$held = $one->query_safe(q{SELECT string_agg(delay_fail(id)::text || payload, ' ') FROM delay_receive('back', 10) WHERE payload = '"1"'});
	is($held, 'true"1"', 'the first one is put back');
	is($one->query_safe(q{SELECT count(*) FROM delay_receive('back', 10) WHERE payload <> '"4"'}), 0, 'put back, it lets no other one of its group come in this transaction');
	$one->query_safe('COMMIT');
	my $next = next_one('back');
	$next = next_one('back') if texts($next) eq '4';
	is(texts($next), '1', 'the next transaction begins with the group\'s first message');
	query('DELETE FROM delay_wheel_data.task');
});

# the sweeper ends the last attempt of one, and who waits behind it is woken; a pause counts for expiry
group(last => sub {
	query(q{SELECT delay_wheel.create_queue('last', external => true, groups => true, max_attempts => 1, options => '{"group_order": "hold"}')});
	put('last', 'a:1', 'a:2');
	ready('last', 2);
	my $next = next_one('last', '200 ms');
	is(texts($next), 1, 'the only attempt of one');
	$next = next_one('last');
	is(texts($next), 2, 'has lapsed, and the next one comes after its end');
	is(query(q{SELECT sqlstate FROM delay_wheel.failed WHERE queue = 'last'}), 'DW006', 'it has failed');
	query('DELETE FROM delay_wheel_data.task; DELETE FROM delay_wheel_data.failed_task');

	# a pause between attempts counts for its expiry
	query(q{SELECT delay_wheel.create_queue('hold', external => true, groups => true, options => '{"group_order": "hold"}');
		SELECT delay_send('hold', '"late"', group_key => 'x', options => '{"expires": "3 s"}')});
	$next = next_one('hold');
	word('fail', $next, q{'no'}, q{'4 s'});
	$next = next_one('hold', '100 ms');
	is(texts($next), 'late', 'what has failed and is tried later has not expired');
	$next = next_one('hold');
	is(texts($next), 'late', 'a failed message whose lease has lapsed has not expired');
	query('DELETE FROM delay_wheel_data.task');
});

#
# Rate
#
group(rate => sub {
	query(q{SELECT delay_wheel.create_queue('rated', external => true, groups => true, options => '{"group_rate": 5, "group_burst": 1}')});
	put('rated', map { ("a:a$_", "b:b$_") } 1 .. 5);
	ready('rated', 10);
	my (%at, $waits);
	my $since = time;
	while (keys(%at) < 10 && time - $since < 60)
	{
		query(q{CALL delay_await('rated', '30 s')});
		$waits++;
		my $before = time;
		$at{ $_->[2] } = [ $before, time ] for lease('rated', 10);
	}
	is(scalar(keys %at), 10, 'messages of groups with a rate come');
	# this process may have been late to see the first one
	cmp_ok($at{a5}[1] - $at{a1}[0], '>', 0.75, 'no faster than the rate');
	cmp_ok($at{a5}[1] - $since, '<', 10, 'and as fast as it allows');
	cmp_ok($waits, '<', 40, "who waits is woken for messages: $waits times");
	query('DELETE FROM delay_wheel_data.task');

	# What was taken and did not come to anything, as a message is gone, has not used up the rate.
	query(q{SELECT delay_wheel.create_queue('rarely', external => true, groups => true, options => '{"group_rate": 1, "group_per": "1 hour", "group_burst": 1}')});
	put('rarely', 'a:1', 'a:2', 'a:3');
	ready('rarely', 3);
	query(q{DELETE FROM delay_wheel_data.task WHERE payload IN ('"1"', '"2"')});
	is(texts(lease('rarely', 10)), 3, 'messages that are gone have not used up the rate');
	query('DELETE FROM delay_wheel_data.task');
});

#
# Few places in memory: groups that wait do not keep them.
#
sub few_places
{
	my $few = new_node('message_places', conf => q{
log_statement = none
delay_wheel.max_groups = 3
delay_wheel.ring_memory = 48kB
});
	$few->safe_psql('postgres', q{SELECT delay_wheel.create_queue('few', external => true, groups => true, options => '{"group_max_running": 1}');
		SELECT count(delay_send('few', to_jsonb(i), group_key => 'g' || i % 30, priority => i % 2)) FROM generate_series(1, 300) i});
	my %seen;
	my $empty = 0;

	wait_until(120, sub {
		$few->safe_psql('postgres', q{CALL delay_await('few', '500 ms')});
		my @ids = split /\n/, $few->safe_psql('postgres', q{SELECT id, token FROM delay_lease('few', 20)});
		$empty++ if !@ids;
		my %of;
		for (@ids)
		{
			my ($id, $token) = split /\|/;
			$seen{$id}++;
			$of{ $few->safe_psql('postgres', "SELECT group_key FROM delay_wheel.tasks WHERE id = $id") }++ if keys(%seen) < 60;
			$few->safe_psql('postgres', "SELECT delay_done($id, $token)");
		}
		ok(0, 'two of a group at a time') if grep { $_ > 1 } values %of;
		return keys(%seen) == 300;
	});
	is(scalar(keys %seen), 300, 'with few places all messages come');
	cmp_ok($empty, '<', 200, "few looks are in vain: $empty");
	$few->stop;
	return;
}
group(places => \&few_places);

#
# Races, with a session stopped on its way
#
group(races => sub {
	return if !$injection;
	query(q{SELECT delay_wheel.create_queue('race', external => true, groups => true, options => '{"group_max_running": 1}')});
	my $waiter = session();
	my $late = session();

	# memory does not know any more that a lease fills the group
	my $reopen = sub {
		query(q{SELECT delay_wheel.create_queue('race', options => '{"lease": "10 s"}'), delay_wheel.create_queue('race', options => '{"lease": "20 s"}')});
		ok(wait_until(60, sub { return query(q{CALL delay_await('race', '0')}) eq 't' }), 'the group is open');
	};

	# the lease is over between the look and the hold
	put('race', 'a:1', 'a:2', 'a:3');
	ready('race', 3);
	($held) = lease('race');
	$reopen->();
	attach($node, 'receive-before-hold', 'wait', 0, 1);
	$late->query_until(qr/^asks$/m, "\\echo asks\nSELECT payload #>> '{}' AS got FROM delay_lease('race');\n\\echo ended\n");
	wait_until_waiting($node, 'receive-before-hold');
	word('done', $held);
	detach($node, 'receive-before-hold');
	ok(wait_until(60, sub { $late->{run}->pump_nb; return $late->{stdout} =~ /^ended$/m }), 'the call ends');
	is(query(q{CALL delay_await('race', '0')}), 't', 'the lease was over before the group was held: so it is not held');
	is(texts(lease('race')), 2, 'and the next one is leased');
	$late->{stdout} = '';
	query('DELETE FROM delay_wheel_data.task');
	wait_until(60, sub { lease('race', 10, '1 ms'); return query(q{SELECT ready FROM delay_wheel.queues WHERE name = 'race'}) eq '0' });

	# ... between the hold and the return of the message, while another one waits
	put('race', 'a:1', 'a:2', 'a:3');
	ready('race', 3);
	($held) = lease('race');
	$reopen->();
	attach($node, 'receive-before-return', 'wait', 0, 1);
	$late->query_until(qr/^asks$/m, "\\echo asks\nSELECT payload #>> '{}' AS got FROM delay_lease('race');\n\\echo ended\n");
	wait_until_waiting($node, 'receive-before-return');
	$waiter->query_until(qr/^waits$/m, "\\echo waits\nCALL delay_await('race', '30 s');\n\\echo ended\n");
	wait_for($node, q{SELECT awaiting FROM delay_wheel.queues WHERE name = 'race'}, 'a session waits', 60, expected => 1);
	word('done', $held);
	my $at = time;
	detach($node, 'receive-before-return');
	ok(wait_until(60, sub { $waiter->{run}->pump_nb; return $waiter->{stdout} =~ /^ended$/m }), 'who waits is woken');
	cmp_ok(time - $at, '<', 5, 'at once');
	ok(wait_until(60, sub { $late->{run}->pump_nb; return $late->{stdout} =~ /^ended$/m }), 'the call ends');
	$late->{stdout} = $waiter->{stdout} = '';
	lease('race', 10, '1 ms');
	query('DELETE FROM delay_wheel_data.task');
	wait_until(60, sub { lease('race', 10, '1 ms'); return query(q{SELECT ready FROM delay_wheel.queues WHERE name = 'race'}) eq '0' });

	# a lease whose commit is visible, and which is still counted as received
	query(q{SELECT delay_wheel.create_queue('race', options => '{"group_max_running": 2}')});
	put('race', 'a:1', 'a:2', 'a:3');
	ready('race', 3);
	attach($node, 'receive-commit', 'wait', 0, 1);
	$late->query_until(qr/^asks$/m, "\\echo asks\nSELECT payload #>> '{}' AS got FROM delay_lease('race');\n\\echo ended\n");
	wait_until_waiting($node, 'receive-commit');
	is(texts(lease('race')), '', 'a lease that is counted twice for a moment keeps others out');
	$waiter->query_until(qr/^waits$/m, "\\echo waits\nCALL delay_await('race', '30 s');\n\\echo ended\n");
	wait_for($node, q{SELECT awaiting FROM delay_wheel.queues WHERE name = 'race'}, 'a session waits', 60, expected => 1);
	$at = time;
	detach($node, 'receive-commit');
	ok(wait_until(60, sub { $waiter->{run}->pump_nb; return $waiter->{stdout} =~ /^ended$/m }), 'and no longer');
	cmp_ok(time - $at, '<', 5, 'who waits is woken at once');
	is(texts(lease('race')), 2, 'and gets the next one');
	query('DELETE FROM delay_wheel_data.task');
	$waiter->quit;
	$late->quit;
});

#
# A campaign: several receivers of both kinds, who fail, release, forget, are cut off; what they saw
# is in files.  What is written lies within the time in which the message was theirs.
#
my $messages = long_tests() ? 4000 : 240;
my $receivers = 8;
my $lease = 1.5;
my $dir = PostgreSQL::Test::Utils::tempdir();
my @queues = ('two', 'in order', 'past');

note("repeat the campaign with DW_SEED=$seed");
$SIG{PIPE} = 'IGNORE';
query(q{
	SELECT delay_wheel.create_queue('two', external => true, groups => true, max_attempts => 30000, users => '{public}', options => '{"group_max_running": 2, "retry_delay": "20 ms"}');
	SELECT delay_wheel.create_queue('in order', external => true, groups => true, max_attempts => 30000, users => '{public}', options => '{"group_order": "hold", "retry_delay": "20 ms"}');
	SELECT delay_wheel.create_queue('past', external => true, groups => true, max_attempts => 30000, users => '{public}', options => '{"group_order": "pass", "retry_delay": "20 ms"}');
	CREATE TABLE plan (id bigint PRIMARY KEY, queue text, of text, due timestamptz);
	CREATE TABLE effect (id bigint, receiver text);
	GRANT ALL ON plan TO PUBLIC;
	CREATE FUNCTION send(queue text, n int) RETURNS void LANGUAGE sql AS $$
		INSERT INTO plan SELECT delay_send(queue, to_jsonb('g' || i % 5), due => d, group_key => 'g' || i % 5, priority => i % 3), queue, 'g' || i % 5, d
		FROM generate_series(1, n) i, LATERAL (SELECT now() - i / 7 * interval '1 s' AS d) s
	$$;
});

my $session = DelayWheel::Session->new($node);
my $file;

# The lines that a statement returns; undef, after a pause, if the session was lost.
sub ask
{
	my ($sql) = @_;
	my $answer = $session->ask($sql);

	sleep(0.05) if !defined $answer;
	return $answer;
}

# id, from, to, and whether it was finished
sub record { my ($id, $began, $ended, $how) = @_; printf $file "%d %.6f %.6f %s\n", $id, $began, $ended, $how; return; }

sub receive_inside
{
	my ($queue, $n) = @_;
	my $some = 1 + int(rand(4));
	my $got = ask("BEGIN; INSERT INTO effect SELECT id, '$n' FROM delay_receive('$queue', $some) RETURNING id") or return;
	my $began = time;
	my @ids = grep { /^\d+$/ } @$got;
	my %how = map { $_ => 'done' } @ids;

	sleep(rand(0.03));
	if (@ids && rand() < 0.1)
	{
		$how{ $ids[0] } = 'failed';
		ask("DELETE FROM effect WHERE id = $ids[0]; SELECT delay_fail($ids[0])") or return;
	}
	my $word = rand() < 0.15 ? 'ROLLBACK' : 'COMMIT';
	my $ended = time;
	my $answer = ask("$word; SELECT 'over'");
	my $is_lost = !$answer || ($answer->[-1] // '') ne 'over';

	# a session that was lost may have been so from the beginning, and another one has had them since
	record($_, $began, $is_lost ? $began : $ended, $is_lost ? 'lost' : $word eq 'COMMIT' ? $how{$_} : 'undone') for @ids;
	return;
}

sub receive_leased
{
	my ($queue) = @_;
	my $before = time;
	my $got = ask(sprintf q{SELECT id, token FROM delay_lease('%s', %d, '%d ms')}, $queue, 1 + int(rand(4)), $lease * 1000) or return;
	my $began = time;

	for my $l (map { [ split /\|/, $_ ] } grep { /^\d+\|\d+$/ } @$got)
	{
		my ($id, $token) = @$l;
		my $chance = rand();

		sleep(rand(0.02));
		if ($chance < 0.03) { record($id, $began, $before + $lease, 'forgotten'); next; }
		my $word = $chance > 0.95 ? 'release' : $chance > 0.88 ? 'fail' : 'done';
		my $at = time;
		my $answer = ask($word eq 'fail' ? "SELECT delay_fail($id, $token)" : "SELECT delay_$word($id, $token)");
		my $ended = $at < $before + $lease ? $at : $before + $lease;
		record($id, $began, $ended > $began ? $ended : $began, !$answer ? 'lost' : ($answer->[0] // '') eq 't' ? $word : 'refused');
	}
	return;
}

sub be_receiver
{
	my ($n) = @_;

	srand($seed + $n);
	local $SIG{TERM} = sub { kill 'KILL', $session->pid // (); POSIX::_exit(0) };
	open(STDERR, '>', "$dir/errors.$n");
	open($file, '>>', "$dir/receiver.$n") or die;
	$file->autoflush(1);
	for (;;)
	{
		my $queue = $queues[ int(rand(@queues)) ];
		my $found = ask("CALL delay_await('$queue', '200 ms')") or next;
		next if ($found->[0] // '') ne 't';
		$n % 2 ? receive_inside($queue, $n) : receive_leased($queue);
	}
	return;
}

my %children;
sub start_receiver
{
	my ($n) = @_;
	my $pid = fork;

	if (!$pid)
	{
		require POSIX;
		$ENV{PGAPPNAME} = "receiver $n";
		eval { be_receiver($n) };
		POSIX::_exit(1);
	}
	$children{$n} = $pid;
	return;
}

group(campaign => sub {
	srand($seed);
	for my $queue (@queues) { query("SET SESSION AUTHORIZATION $_; SELECT send('$queue', $messages / 2)") for qw(anna berta); }
	start_receiver($_) for 1 .. $receivers;
	my ($rounds, $crashed) = (0, 0);
	my $campaign = time;
	ok(wait_until(long_tests() ? 900 : 180, sub {
		my (undef, $left) = try_psql($node, 'postgres', q{SELECT count(*) FROM delay_wheel_data.task WHERE queue IN (SELECT id FROM delay_wheel_data.queue WHERE name IN ('two', 'in order', 'past'))});
		return 1 if defined $left && $left eq '0';
		my $n = 1 + int(rand($receivers));
		my $kind = rand();
		if ($kind < 0.3)
		{
			kill 'KILL', $children{$n};
			try_psql($node, 'postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'receiver $n'");
			waitpid($children{$n}, 0);
			start_receiver($n);
		}
		elsif ($kind < 0.6)
		{
			try_psql($node, 'postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'receiver $n'");
		}
		elsif ($kind < 0.7)
		{
			try_psql($node, 'postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer'});
		}
		if (++$rounds % 40 == 8)
		{
			$crashed++;
			$node->stop('immediate');
			$node->start;
		}
		sleep(0.3);
		return 0;
	}), 'all messages of the campaign come to an end') or diag(query('SELECT id, queue, due, first_due, token, attempts, more, group_key FROM delay_wheel_data.task ORDER BY group_key, due LIMIT 20; SELECT * FROM delay_wheel.lanes'));
	sleep(0.3);
	kill 'TERM', $_ for values %children;
	waitpid($_, 0) for values %children;
	note(sprintf '%d messages in %.0f s, %d rounds, %d crashes', @queues * $messages, time - $campaign, $rounds, $crashed);

	my %plan = map { my ($id, @p) = split /\|/; $id => \@p } split /\n/, query(q{SELECT id, queue, of, extract(epoch FROM due) FROM plan});
	my (%held, %finish, %words);
	for my $n (1 .. $receivers)
	{
		open(my $in, '<', "$dir/receiver.$n") or next;
		while (my $line = <$in>)
		{
			my ($id, $began, $ended, $how) = split ' ', $line;

			next if !defined $how || !$plan{$id};
			$words{$how}++;
			push @{ $held{"$plan{$id}[0]|$plan{$id}[1]"} }, { id => $id, began => $began, ended => $ended, how => $how };
			$finish{$id} = $ended if $how eq 'done';
		}
	}
	note(join ', ', map { "$_ $words{$_}" } sort keys %words);
	my %most;
	my $overtaken = 0;
	for my $of (sort keys %held)
	{
		my ($queue) = split /\|/, $of;
		my $now = 0;

		# where one ends as another begins, the end comes first
		for my $step (sort { $a->[0] <=> $b->[0] || $a->[1] <=> $b->[1] } map { ([ $_->{began}, 1 ], [ $_->{ended}, -1 ]) } grep { $_->{ended} > $_->{began} } @{ $held{$of} })
		{
			$now += $step->[1];
			$most{$queue} = $now if $now > ($most{$queue} // 0);
		}
		next if $queue ne 'in order';
		my $last = 0;
		for my $id (sort { $plan{$a}[2] <=> $plan{$b}[2] || $a <=> $b } grep { "$plan{$_}[0]|$plan{$_}[1]" eq $of } keys %plan)
		{
			my ($began) = sort { $a <=> $b } map { $_->{began} } grep { $_->{id} == $id } @{ $held{$of} };

			next if !defined $began;
			$overtaken++ if $began < $last;
			$last = $finish{$id} if ($finish{$id} // 0) > $last;
		}
	}
	is($most{two}, 2, 'of a group with a limit two were held at a time, and no more');
	is($most{'in order'}, 1, 'of an ordered one never more than one');
	is($most{past}, 1, 'an ordered group that passes failed messages by has one at a time');
	is($overtaken, 0, 'none was begun before the one that comes before it was done');
	is(query(q{SELECT count(*) FROM (SELECT id FROM effect GROUP BY id HAVING count(*) > 1) s}), 0, 'none was done inside more than once');
	is(query(q{SELECT count(*) FROM delay_wheel.failed}), 0, 'none has failed');

	# nothing is left over: of each group as many can be received as the limit says
	for my $queue (@queues)
	{
		query("SELECT delay_send('$queue', to_jsonb('g' || i % 5), group_key => 'g' || i % 5) FROM generate_series(1, 20) i");
		ready($queue, 20);
		my @got = lease($queue, 100);
		is(scalar(@got), $queue eq 'two' ? 10 : 5, "$queue: nothing is counted any more");
	}
});

# a lower priority has one message in 16 also where a group's limit lets only one be received at a time
query(q{SELECT delay_wheel.create_queue('ranked', external => true, groups => true, options => '{"group_max_running": 1}')});
query(q{SELECT count(delay_send('ranked', to_jsonb(p), group_key => 'tenant', priority => p)) FROM generate_series(1, 60), unnest('{0,3}'::int[]) p});
ready('ranked', 120);
query(join(';', (q{SELECT FROM delay_receive('ranked', autocommit => true)}) x 48));
is(query(q{SELECT string_agg(priority || ' ' || n, ', ' ORDER BY priority) FROM (SELECT priority, 60 - count(*) AS n FROM delay_wheel.tasks WHERE queue = 'ranked' GROUP BY 1) s}),
	'0 3, 3 45', 'of 48 messages three have the lower priority');

$node->stop;
done_testing();
