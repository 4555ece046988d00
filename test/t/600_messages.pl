# Messages: sent and received with transactions, exactly once; keys, retries,
# limits and pauses as for tasks; rights; what is refused; waiting for them.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('messages', conf => q{
log_statement = none
autovacuum = off
restart_after_crash = on
});

# A session that stays open, of a role.
sub session
{
	my ($role) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0,
		extra_params => [ '-U', $role // 'postgres' ]);

	$session->query('\set VERBOSITY verbose');
	return $session;
}

# What a session answers; an error ends the test.
sub of
{
	my ($session, $sql) = @_;

	$session->{stderr} = '';
	return $session->query_safe($sql);
}

# A test: the session gets an error with this SQLSTATE.
sub refused
{
	my ($session, $sql, $sqlstate, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$session->{stderr} = '';
	$session->query($sql);
	like($session->{stderr}, qr/ERROR:  $sqlstate:/, $what);
	$session->{stderr} = '';
	return;
}

my $admin = session();

sub value { return of($admin, $_[0]); }

# A test: the query comes to have this answer.
sub comes
{
	my ($sql, $expected, $what) = @_;
	my $answer = '';
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_until(60, sub { return ($answer = value($sql)) eq $expected });
	is($answer, $expected, $what);
	return;
}

# So many due messages are in memory.
sub ready
{
	my ($queue, $n) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	comes("SELECT ready FROM delay_wheel.queues WHERE name = '$queue'", $n, "$queue: $n are ready");
	return;
}

# Sends texts in this order.
sub put
{
	my ($queue, @texts) = @_;

	value("SELECT delay_send('$queue', to_jsonb('$_'::text))") for @texts;
	return;
}

# The texts that a session receives.
sub got
{
	my ($session, $queue, $n) = @_;

	$n //= 10;
	return of($session, "SELECT string_agg(payload #>> '{}', ' ') FROM delay_receive('$queue', $n)");
}

value(q{
	CREATE TABLE done (text text);
	SELECT delay_queue('mail', external => true);
});
my ($one, $two) = (session(), session());

#
# In transactions.
#
group transactions => sub {
	value(q{SELECT delay_send('mail', '{"to": 7}')});
	ready('mail', 1);
	of($one, 'BEGIN');
	is(of($one, q{SELECT payload, attempt, due <= now() FROM delay_receive('mail')}), '{"to": 7}|1|t', 'a message is received');
	is(got($two, 'mail'), '', 'nobody else gets it') if !of($two, 'BEGIN');
	of($one, 'COMMIT');
	of($two, 'COMMIT');
};

$_->quit for $one, $two, $admin;
$node->stop;
done_testing();
