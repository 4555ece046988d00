# A receiver that fails, ends or crashes at each point between the ready list and its
# commit: the message, and what was done with it, are there exactly once.  And so for those
# who end leases and rollbacks in the background, and for a waiter that dies.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'no build with injection points' if !has_injection();

my $node = new_node('message_points', injection => 1, conf => q{
log_statement = none
restart_after_crash = on
});

sub query { return $node->safe_psql('postgres', $_[0]); }

# Runs a statement, and waits until the server is back if that has made it crash.
sub disturb
{
	my ($action, $sql) = @_;
	my $position = log_position($node);

	try_psql($node, 'postgres', $sql);
	return if $action ne 'crash';
	ok(wait_until(60, sub { log_since($node, $position) =~ /database system is ready to accept connections/ }), 'the server has crashed, and is back');
	return;
}

query(q{
	SELECT delay_wheel.create_queue('q', external => true, max_attempts => 3, options => '{"retry_delay": "50 ms"}');
	CREATE TABLE effect (id bigint);
	CREATE FUNCTION take(n int) RETURNS void LANGUAGE sql AS $$ INSERT INTO effect SELECT id FROM delay_receive('q', n) $$;
});

# In the table, and in the hands of receivers
for my $point (qw(receive-after-pop claim-before-fetch claim-before-delete claim-after-delete receive-after-claim receive-commit))
{
	for my $action (qw(error fatal crash))
	{
		query(q{SELECT delay_send('q', '1') FROM generate_series(1, 5)});
		is(query(q{CALL delay_await('q', '60 s')}), 't', "$point, $action: messages are due");
		attach($node, $point, $action, 0, 1);
		disturb($action, 'SELECT take(5)');
		detach($node, $point);
		# some may be received one by one, after rollbacks
		wait_until(60, sub { query(q{CALL delay_await('q', '1 s')}); query('SELECT take(5)'); return query('SELECT count(*) FROM effect') == 5 });
		is(query('SELECT count(*), count(DISTINCT id) FROM effect'), '5|5', "$point, $action: each is received once");
		is(query('SELECT count(*) FROM delay_wheel_data.task'), 0, "$point, $action: none is left");
		query('TRUNCATE effect');
	}
}
is(query('SELECT count(*) FROM delay_wheel.failed'), 0, 'none has failed');

# A lease whose statement does not come to its end
for my $point (qw(receive-after-claim receive-commit))
{
	for my $action (qw(error crash))
	{
		query(q{SELECT delay_send('q', '1')});
		query(q{CALL delay_await('q', '60 s')});
		attach($node, $point, $action, 0, 1);
		disturb($action, q{SELECT * FROM delay_lease('q', 5, '500 ms')});
		detach($node, $point);
		is(query(q{CALL delay_await('q', '60 s')}), 't', "lease, $point, $action: the message is due again");
		my ($id, $token) = split /\|/, query(q{SELECT id, token FROM delay_lease('q', 1, '1 hour')});
		is(query("SELECT delay_done($id, $token)"), 't', "lease, $point, $action: and can be finished");
	}
}

# Who ends last leases, and attempts that were rolled back, is disturbed.
for my $action (qw(error fatal crash))
{
	my $id = query(q{SELECT delay_send('q', '1', max_attempts => 1)});
	query(q{CALL delay_await('q', '60 s')});
	attach($node, 'leases-before-commit', $action, 0, 1);
	query(q{SELECT * FROM delay_lease('q', 1, '100 ms')});
	ok(wait_until(60, sub { my (undef, $out) = try_psql($node, 'postgres', "SELECT sqlstate FROM delay_wheel.failed WHERE id = $id"); return defined $out && $out eq 'DW006' }),
		"the sweeper, $action: a last lease is ended");
	detach($node, 'leases-before-commit');
	query('DELETE FROM delay_wheel_data.failed_task');

	$id = query(q{SELECT delay_send('q', '1', max_attempts => 1)});
	attach($node, 'rollbacks-before-commit', $action, 0, 1);
	my $failed = wait_until(60, sub {
		try_psql($node, 'postgres', q{CALL delay_await('q', '100 ms')});
		try_psql($node, 'postgres', q{BEGIN; SELECT take(1); ROLLBACK});
		my (undef, $out) = try_psql($node, 'postgres', "SELECT sqlstate FROM delay_wheel.failed WHERE id = $id");
		return defined $out && $out eq 'DW008' });
	ok($failed, "the sweeper, $action: rollbacks use up the attempts");
	detach($node, 'rollbacks-before-commit');
	query('DELETE FROM delay_wheel_data.failed_task');
}

$node->stop;
done_testing();
