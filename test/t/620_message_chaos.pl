# Messages under faults: receivers of both kinds are killed, cut off and frozen beyond their
# lease, the timer is terminated, the server is stopped at once.  What came of each message
# is checked from outside: by what committed, and by what the receivers wrote into files.
#
# Inside, each message has its effect once.  Under a lease, each is finished once, by its
# token; a receiver that was frozen is refused; no two leases of a message overlap.
#
#   DW_MESSAGES, DW_CRASHES   how many; more than usual with DW_LONG
#   DW_SEED                   repeats random choices, as far as time allows

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $messages = $ENV{DW_MESSAGES} // (long_tests() ? 100_000 : 1_500);
my $crashes = $ENV{DW_CRASHES} // (long_tests() ? 10 : 1);
my $seed = $ENV{DW_SEED} // int(rand(2**31));
my $receivers = 16;
# seconds that a lease lasts
my $lease = 1.5;

note("repeat this with DW_SEED=$seed DW_MESSAGES=$messages DW_CRASHES=$crashes");
srand($seed);
$SIG{PIPE} = 'IGNORE';

my $node = new_node('message_chaos', conf => q{
log_statement = none
max_connections = 60
restart_after_crash = on
});
my $dir = PostgreSQL::Test::Utils::tempdir();

sub query { return $node->safe_psql('postgres', $_[0]); }

query(q{
	SELECT delay_wheel.create_queue('q', external => true, max_attempts => 30000, options => '{"retry_delay": "50 ms"}');
	CREATE TABLE sent (id bigint PRIMARY KEY);
	CREATE TABLE effect (id bigint, receiver int);
	CREATE FUNCTION send(n int) RETURNS void LANGUAGE sql AS $$
		INSERT INTO sent SELECT delay_send('q', to_jsonb(i), delay => CASE WHEN i % 3 = 0 THEN random() * interval '3 s' END)
		FROM generate_series(1, n) i
	$$;
});

#
# A receiver: a child process with a psql.  A session that is lost is begun anew.
#
my $session = DelayWheel::Session->new($node);
my $file;

# The lines that a statement returns; undef, after a pause, if the session was lost.
sub ask
{
	my ($sql) = @_;
	my $answer = $session->ask($sql);

	sleep(0.05 + rand(0.2)) if !defined $answer;
	return $answer;
}

sub record { print $file join(' ', @_), "\n"; return; }

# In a transaction: what it writes is the effect.
sub receive_inside
{
	my ($n) = @_;
	my $some = 1 + int(rand(20));

	ask("BEGIN; INSERT INTO effect SELECT id, $n FROM delay_receive('q', $some)") or return;
	if (rand() < 0.1)
	{
		ask("SAVEPOINT s; INSERT INTO effect SELECT id, -$n FROM delay_receive('q', 3); ROLLBACK TO s") or return;
	}
	if (rand() < 0.1)
	{
		ask("WITH one AS (DELETE FROM effect WHERE id = (SELECT min(id) FROM effect WHERE xmin = pg_current_xact_id()::xid AND receiver = $n) RETURNING id) SELECT delay_fail(id, retry_in => '0') FROM one") or return;
	}
	sleep(rand(0.05)) if rand() < 0.2;
	ask(rand() < 0.1 ? 'ROLLBACK' : 'COMMIT');
	return;
}

# Under a lease: what it writes into its file is the effect.
sub receive_leased
{
	my $before = time;
	my $got = ask(sprintf(q{SELECT id, token FROM delay_lease('q', %d, '%d ms')}, 1 + int(rand(10)), $lease * 1000)) or return;
	my $after = time;
	my @leased = map { [ split /\|/, $_ ] } grep { /^\d+\|\d+$/ } @$got;

	record('lease', $_->[0], $_->[1], $before, $after) for @leased;
	for my $l (@leased)
	{
		my ($id, $token) = @$l;
		my $chance = rand();

		next if $chance < 0.03;    # forgotten
		if ($chance < 0.08)
		{
			my $at = time;
			my $answer = ask("SELECT delay_extend($id, $token, '2 s')");
			record('extend', $id, $token, $at, $answer ? $answer->[0] // '?' : '?');
		}
		my $word = $chance > 0.95 ? 'release' : $chance > 0.9 ? 'fail' : 'done';
		record('try', $id, $token, time);
		my $answer = ask($word eq 'fail' ? "SELECT delay_fail($id, $token, 'no', '0')" : "SELECT delay_$word($id, $token)");
		record($word, $id, $token, time, $answer ? $answer->[0] // '?' : '?');
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
		ask("CALL delay_await('q', '2 s')") or next;
		$n % 2 ? receive_inside($n) : receive_leased();
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

#
# Faults
#
my %done;

sub fault
{
	my $n = 1 + int(rand($receivers));
	my $kind = rand();

	if ($kind < 0.3)
	{
		# with its psql, whose session the server has to notice
		$done{killed}++;
		kill 'KILL', $children{$n};
		try_psql($node, 'postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'receiver $n'") if rand() < 0.5;
		waitpid($children{$n}, 0);
		start_receiver($n);
	}
	elsif ($kind < 0.6)
	{
		$done{'cut off'}++;
		try_psql($node, 'postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'receiver $n'");
	}
	elsif ($kind < 0.9)
	{
		$done{frozen}++;
		kill 'STOP', $children{$n};
		return [ time + 1 + rand(2 * $lease), $n ];
	}
	else
	{
		$done{'timer ended'}++;
		try_psql($node, 'postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer'});
	}
	return;
}

start_receiver($_) for 1 .. $receivers;
my $sent = 0;
my $crashed = 0;
my @frozen;
my $began = time;
while ($sent < $messages)
{
	my $n = 1 + int(rand(Min($messages - $sent, 200)));
	my ($code) = try_psql($node, 'postgres', rand() < 0.1 ? "BEGIN; SELECT send($n); ROLLBACK" : "SELECT send($n)");

	$sent = (try_psql($node, 'postgres', 'SELECT count(*) FROM sent'))[1] || $sent;
	push @frozen, grep { defined } fault() if rand() < ($messages > 10_000 ? 0.2 : 0.5);
	for my $f (grep { $_->[0] < time } @frozen) { kill 'CONT', $children{ $f->[1] } }
	@frozen = grep { $_->[0] >= time } @frozen;
	if ($crashed < $crashes && $sent > $messages * ($crashed + 1) / ($crashes + 1))
	{
		$crashed++;
		$node->stop('immediate');
		$node->start;
	}
	sleep(0.02);
}

sub Min { return $_[0] < $_[1] ? $_[0] : $_[1]; }

kill 'CONT', $_ for values %children;
wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel_data.task', 'all messages come to an end', $ENV{DW_WAIT} // 300)
  or diag(query('SELECT id, due, first_due, token, attempts, clock_timestamp() FROM delay_wheel_data.task LIMIT 5; SELECT * FROM delay_wheel.lanes'));
sleep(0.5);
kill 'TERM', $_ for values %children;
waitpid($_, 0) for values %children;
note(sprintf('%d messages in %.0f s, crashes %d, %s', $sent, time - $began, $crashed, join(', ', map { "$_ $done{$_}" } sort keys %done)));

#
# What came of each message
#
my %is_sent = map { $_ => 1 } split /\n/, query('SELECT id FROM sent');
my (%effects, %finished, %unknown, %of_message, %refused, %words);
$effects{$_}++ for split /\n/, query('SELECT id FROM effect');
for my $n (1 .. $receivers)
{
	open(my $in, '<', "$dir/receiver.$n") or next;
	while (my $line = <$in>)
	{
		my ($what, $id, $token, @more) = split ' ', $line;

		next if !defined $more[-1] || $line !~ /\n$/;
		if ($what eq 'lease') { push @{ $of_message{$id} }, { token => $token, before => $more[0], after => $more[1], end => $more[0] + $lease }; next; }
		my ($l) = grep { $_->{token} == $token } @{ $of_message{$id} // [] };
		$l->{tried} = $more[0] if $what eq 'try';
		next if $what eq 'try';
		$words{"$what $more[1]"}++;
		if ($what eq 'extend') { $l->{end} = $more[0] + 2 if $more[1] ne 'f' && $more[0] + 2 > $l->{end}; next; }
		$finished{$id}++ if $what eq 'done' && $more[1] eq 't';
		$unknown{$id} = 1 if $what eq 'done' && $more[1] eq '?';
		$l->{word} = 1 if $more[1] ne 'f';
	}
}
# one that died while it asked
for my $id (keys %of_message)
{
	$unknown{$id} = 1 if grep { $_->{tried} && !$_->{word} } @{ $of_message{$id} };
}
note('words: ' . join(', ', map { "$_ $words{$_}" } sort keys %words));

sub none { my ($what, @ids) = @_; is(scalar(@ids), 0, $what) or diag(join(' ', splice(@ids, 0, 20))); return; }

cmp_ok(scalar(keys %effects), '>', 0, 'some were received inside: ' . keys %effects);
cmp_ok(scalar(keys %finished), '>', 0, 'some under a lease: ' . keys %finished);
none('each effect inside is there once', grep { $effects{$_} > 1 } keys %effects);
none('each message is finished once under a lease', grep { $finished{$_} > 1 } keys %finished);
none('none is both', grep { $effects{$_} } keys %finished);
none('none is lost', grep { !$effects{$_} && !$finished{$_} && !$unknown{$_} } keys %is_sent);
none('none came that was not committed', grep { !$is_sent{$_} } keys %effects, keys %finished, keys %of_message);
my @overlaps;
for my $id (keys %of_message)
{
	my @leases = sort { $a->{before} <=> $b->{before} } @{ $of_message{$id} };

	for my $i (0 .. $#leases)
	{
		my $l = $leases[$i];

		# a word that may have ended it, or a lease that surely had ended when the next began
		next if $l->{word} || $l->{tried};
		push @overlaps, $id if grep { $_->{after} < $l->{end} && $_->{before} > $l->{after} } @leases;
	}
}
none('no two leases of a message overlap', @overlaps);
is(query(q{SELECT count(*) FROM delay_wheel.failed}), 0, 'none has failed');

$node->stop;
done_testing();
