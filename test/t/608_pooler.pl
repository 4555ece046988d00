# delay_await() holds a connection to the server while it waits; so behind a pooler in transaction
# mode, receivers that wait keep a busy one from saying that its work is done, until its lease has
# ended.  What messages.md recommends against that: a connection for each receiver, connections of
# their own for those who wait, or a limit that an administrator sets (delay_wheel.max_await).
#
# PgBouncer is used where it is installed; "make test" installs it with CI in the environment only.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $node = new_node('pooler');
my $q = sub { return $node->safe_psql('postgres', $_[0]) };

$q->(q{
	CREATE ROLE postman LOGIN;
	CREATE ROLE other LOGIN;
	SELECT delay_wheel.allow('postman', 'other');
	SELECT delay_wheel.create_queue('mail', external => true, receivers => '{postman,other}', options => '{"lease": "5 s", "retry_delay": "0"}');
	CREATE TABLE sent (id bigint, attempt int);
	GRANT ALL ON sent TO PUBLIC;
});

#
# The limit.
#
group limit => sub {
	my ($postman, $other) = map { DelayWheel::Session->new($node, $_) } qw(postman other);
	# whether a message was there, and how long that took
	my $await = sub {
		my ($session, $timeout) = @_;
		$session->ask("SELECT clock_timestamp() AS began \\gset\nSELECT WHERE false");
		return join ' ', @{ $session->ask("CALL delay_await('mail', $timeout)") }, @{ $session->ask(q{SELECT clock_timestamp() - :'began' < '20 s'}) };
	};

	is(join(' ', @{ $postman->ask('SHOW delay_wheel.max_await') }), '-1', 'there is none by default');
	$q->(q{ALTER ROLE postman SET delay_wheel.max_await = '300 ms'});
	$postman = DelayWheel::Session->new($node, 'postman');
	is($await->($postman, q{'30 s'}), 'f t', 'a longer wait ends earlier, as if nothing had come');
	# only a failure reaches this
	$postman->ask(q{SET statement_timeout = '30 s'});
	is($await->($postman, 'NULL'), 'f t', 'so does one without limit');
	is($await->($postman, q{'0'}), 'f t', 'a shorter one ends as before');
	is($await->($other, q{'100 ms'}), 'f t', 'another role has no limit');
	my $refused = '';
	$node->psql('postgres', 'SET delay_wheel.max_await = -1', extra_params => [ '-U', 'postman', '-v', 'VERBOSITY=sqlstate' ], stderr => \$refused);
	like($refused, qr/42501/, 'the role may not change it');
	$postman->ask('DISCARD ALL');
	is($await->($postman, q{'30 s'}), 'f t', 'DISCARD ALL leaves it');
	$postman->ask(q{SET statement_timeout = '200 ms'});
	is($await->($postman, q{'30 s'}), 'f t', 'a statement_timeout that is shorter is obeyed');
	$q->(q{ALTER ROLE postman SET delay_wheel.max_await = 0});
	$postman = DelayWheel::Session->new($node, 'postman');
	is($await->($postman, q{'30 s'}), 'f t', '0 is not at all');
	$q->(q{SELECT delay_send('mail', '0')});
	wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'mail'}, 'a message', 60, expected => 1);
	is($await->($postman, q{'30 s'}), 't t', 'a message is found nevertheless');
	$q->(q{ALTER ROLE postman RESET delay_wheel.max_await; DELETE FROM delay_wheel_data.task});
};

#
# Behind the pooler.
#
my @children;

# A receiver that waits and leases in a loop: over these nodes, or poolers.
sub receiver
{
	my ($waits_at, $works_at, $work) = @_;
	my $pid = fork;

	if (!$pid)
	{
		my ($waits, $works) = map { DelayWheel::Session->new($_, 'postman') } $waits_at, $works_at;
		for (;;)
		{
			$waits->ask(q{CALL delay_await('mail', '30 s')}) or POSIX::_exit(0);
			my @messages = @{ $works->ask(q{SELECT id, token, attempt FROM delay_lease('mail', 3)}) // POSIX::_exit(0) };
			for (@messages)
			{
				my ($id, undef, $attempt) = split /\|/;
				$works->ask("INSERT INTO sent VALUES ($id, $attempt)") or POSIX::_exit(0);
				sleep($work);
			}
			next unless @messages;
			# several by one call
			my ($ids, $tokens) = map { my $i = $_; join ',', map { (split /\|/)[$i] } @messages } 0, 1;
			$works->ask("SELECT delay_done_all('{$ids}', '{$tokens}')") or POSIX::_exit(0);
		}
	}
	push @children, $pid;
	return;
}

sub end_receivers
{
	my ($pooler) = @_;

	$pooler->stop;
	kill 'KILL', @children;
	waitpid($_, 0) for @children;
	@children = ();
	$q->(q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'postman'});
	wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'postman'}, 'their sessions have ended', 60, expected => 0);
	$q->('TRUNCATE sent; DELETE FROM delay_wheel_data.task');
	return;
}

# A busy receiver has three messages, and two others wait: whether its first word comes after the end
# of its lease, and what becomes of the three.
sub three_messages
{
	my ($pool_size, $own_connection) = @_;
	my $pooler = start_pgbouncer($node, $pool_size, 'postman');
	my $busy = DelayWheel::Session->new($pooler, 'postman');

	$q->(q{SELECT delay_send('mail', to_jsonb(i)) FROM generate_series(1, 3) i});
	wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'mail'}, 'three messages', 60, expected => 3);
	my @messages = map { [ split /\|/ ] } @{ $busy->ask(q{SELECT id, token FROM delay_lease('mail', 3)}) };
	receiver($own_connection ? $node : $pooler, $pooler, 0) for 1 .. 2;
	wait_for($node, q{SELECT awaiting FROM delay_wheel.queues WHERE name = 'mail'}, 'two others wait', 60, expected => 2);
	my $ends = $q->('SELECT min(leased_until) FROM delay_wheel.tasks');
	my ($late, $done) = ('', '');
	for (@messages)
	{
		my ($is_late, $is_done) = split /\|/, join '', @{ $busy->ask("SELECT clock_timestamp() > '$ends', delay_done($_->[0], $_->[1])") };
		$late ||= $is_late;
		$done .= $is_done;
	}
	wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'all are done', 60, expected => 0);
	my $again = $q->('SELECT count(*) FROM sent');
	end_receivers($pooler);
	return "$late $done $again";
}

group pooler => sub {
	SKIP:
	{
		my $pooler = start_pgbouncer($node, 1, 'postman');

		skip 'there is no pgbouncer', 1 unless $pooler;
		$pooler->stop;
		like(three_messages(2), qr/^t /, 'as many receivers that wait as connections: the lease of the busy one ends before it is heard');
		is(three_messages(3), 'f ttt 0', 'a connection for each receiver: the busy one is heard');
		is(three_messages(2, 1), 'f ttt 0', 'if others wait over their own connections, the busy one is heard');
		$q->(q{ALTER ROLE postman SET delay_wheel.max_await = '200 ms'});
		is(three_messages(2), 'f ttt 0', 'so it is with a limit');

		# the loop of messages.md
		$pooler = start_pgbouncer($node, 2, 'postman');
		receiver($pooler, $pooler, 0.2) for 1 .. 3;
		wait_for($node, q{SELECT awaiting > 0 FROM delay_wheel.queues WHERE name = 'mail'}, 'receivers wait');
		$q->(q{SELECT delay_send('mail', to_jsonb(i)) FROM generate_series(1, 10) i});
		wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'three receivers work off ten messages over two connections', 60, expected => 0);
		is($q->('SELECT count(*), max(attempt) FROM sent'), '10|1', 'each once, at the first attempt');
		end_receivers($pooler);
	}
};

done_testing();
