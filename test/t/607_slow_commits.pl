# Commits that wait for a synchronous standby which does not answer, as those of a primary
# do that is cut off: nothing is handed out before the commit, and what has become due
# meanwhile is not forgotten after it.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('slow_commits', conf => q{
log_statement = none
wal_level = replica
max_wal_senders = 2
});

sub query { return $node->safe_psql('postgres', $_[0]); }

# By a session that does not wait for a standby itself.
sub query_local { return query("SET synchronous_commit = local; $_[0]"); }

sub set_standbys
{
	my ($names) = @_;

	query_local("ALTER SYSTEM SET synchronous_standby_names = '$names'");
	query('SELECT pg_reload_conf()');
	wait_for($node, 'SHOW synchronous_standby_names', "standbys that must answer: '$names'", 60, expected => $names);
	return;
}

# Runs a statement in a session of its own, and waits until its commit waits for a standby.
sub begin_commit
{
	my ($statement, $waiting, $what) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0, timeout => 3 * $PostgreSQL::Test::Utils::timeout_default);

	$session->query_until(qr/^begun$/m, "\\echo begun\n$statement;\n\\echo ended\n");
	wait_for($node, "SELECT count(*) = $waiting FROM pg_stat_activity WHERE wait_event = 'SyncRep'", $what);
	return $session;
}

sub has { my ($session, $pattern) = @_; $session->{run}->pump_nb; return $session->{stdout} =~ $pattern ? 1 : 0; }

query(q{
	SELECT delay_wheel.create_queue('mail', external => true);
	SELECT delay_wheel.create_queue('inside', external => true);
	CREATE TABLE effect (what text);
	SELECT count(delay_send('mail', to_jsonb(i))) FROM generate_series(1, 20) i;
	SELECT delay_send('inside', '"inside"')});
wait_for($node, q{SELECT string_agg(name || ready, ' ' ORDER BY name) FROM delay_wheel.queues WHERE external}, 'messages are due', 60, expected => 'inside1 mail20');

#
# A task, a receiver inside, and a lease, whose commits wait
#
set_standbys('nobody');
query_local(q{SELECT delay_schedule('0', $$INSERT INTO effect VALUES ('task')$$)});
wait_for($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'}, 'a task has run, and its commit waits');
my $inside = begin_commit(q{INSERT INTO effect SELECT payload #>> '{}' FROM delay_receive('inside')}, 2, 'so does that of a receiver inside');
my $scheduling = begin_commit(q{SELECT delay_schedule('0', $$INSERT INTO effect VALUES ('scheduled')$$)}, 3, 'and one that schedules');
my $lease = begin_commit(q{SELECT 'leased ' || id FROM delay_lease('mail', 10, '1 s')}, 4, 'and a lease');

# Leases are looked at that have ended later than the one that waits.
query('SELECT pg_sleep(1.2)');
is(query_local(q{SELECT count(*) FROM delay_lease('mail', 1, '100 ms')}), 1, 'another session leases one for a moment');
wait_for($node, q{SELECT ready = 10 FROM delay_wheel.queues WHERE name = 'mail'}, 'that message is due again');
is(query('SELECT count(*) FROM effect'), 0, 'no effect is to be seen');
is(has($lease, qr/leased|^ended/m), 0, 'and nobody has got the lease');

#
# They go on
#
set_standbys('');
wait_until(60, sub { has($lease, qr/^ended/m) });
is(scalar(() = $lease->{stdout} =~ /^leased/mg), 10, 'the lease is handed out');
my %got;
wait_until(60, sub {
	query(q{CALL delay_await('mail', '1 s')});
	$got{$_}++ for split /\n/, query(q{SELECT id FROM delay_lease('mail', 100, '1 hour')});
	return keys %got >= 20;
});
is(scalar(keys %got), 20, 'its messages are due again, since it had ended before it was committed');
is(scalar(grep { $_ > 1 } values %got), 0, 'each once');
wait_for($node, q{SELECT string_agg(what, ' ' ORDER BY what) FROM effect}, 'and the tasks and what was received inside have taken effect once', 60, expected => 'inside scheduled task');
$_->quit for $inside, $scheduling, $lease;

$node->stop;
done_testing();
