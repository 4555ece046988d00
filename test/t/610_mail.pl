# The workers of examples/mail, in Python and Node, with a mail server of the test's own:
# mails arrive, once each, also if sending takes longer than a lease; what is refused for now comes
# later, what is refused for ever has failed; SIGTERM leaves nothing leased; a worker that is killed,
# a server that restarts, and a network that is cut lose no mail.  A worker whose packages are not
# there is left out.
#
#   DW_DRIVER_MODULES   see Workers.pm

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use POSIX ();
use Test::More;
use Time::HiRes qw(sleep);
use Workers;

my $dir = "$FindBin::RealBin/../../examples/mail";
my $node = new_node('mail', extension => 0, conf => "log_statement = none\n");
my $scratch = PostgreSQL::Test::Utils::tempdir();
my $received = "$scratch/received";

sub query { return $node->safe_psql('postgres', $_[0]); }

#
# A mail server.  It refuses addresses with "later" once, those with "never" always, and
# writes a line for each mail that it accepts.
#
my $listener = IO::Socket::INET->new(Listen => 50, LocalAddr => '127.0.0.1', ReuseAddr => 1) or die "no port: $!";
my $smtp_port = $listener->sockport;

sub serve_mail
{
	my ($client) = @_;
	my ($to, $in_data, $id) = ('', 0, '');

	$client->autoflush(1);
	print $client "220 sink ready\r\n";
	while (my $line = <$client>)
	{
		$line =~ s/\r?\n$//;
		if ($in_data)
		{
			$id = $1 if $line =~ /^Message-ID: <(.*)>/i;
			next if $line ne '.';
			$in_data = 0;
			open(my $out, '>>', $received);
			print $out "$to $id\n";
			close $out;
			print $client "250 taken\r\n";
		}
		elsif ($line =~ /^RCPT TO:<(.*?)>/i)
		{
			$to = $1;
			my $first = $to =~ /later/ && !-e "$scratch/$to";
			if ($first) { open(my $seen, '>', "$scratch/$to"); close $seen; }
			print $client $first ? "451 later\r\n" : $to =~ /never/ ? "550 nobody of that name\r\n" : "250 known\r\n";
		}
		elsif ($line =~ /^DATA/i) { $in_data = 1; sleep 3 if $to =~ /slow/; print $client "354 go on\r\n"; }
		elsif ($line =~ /^QUIT/i) { print $client "221 bye\r\n"; last; }
		else { print $client "250 yes\r\n"; }
	}
	return;
}

my $server = fork;
if (!$server)
{
	$SIG{CHLD} = 'IGNORE';
	$SIG{TERM} = sub { POSIX::_exit(0) };
	while (my $client = $listener->accept)
	{
		next if fork;
		serve_mail($client);
		POSIX::_exit(0);
	}
	POSIX::_exit(1);
}
close $listener;

sub mails { return -e $received ? grep { /\S/ } split /\n/, slurp_file($received) : (); }

sub arrived
{
	my ($what, @expected) = @_;
	my @got;

	wait_until(60, sub { @got = sort map { s/ .*//r } mails(); return "@got" eq "@{[ sort @expected ]}" });
	is("@got", "@{[ sort @expected ]}", $what);
	return;
}

#
# A way to the database that can be cut: it passes on what it gets, from a port to the
# socket of the server.
#
my $way_port = do { my $probe = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die "no port: $!"; $probe->sockport };

sub open_way
{
	my $way = IO::Socket::INET->new(Listen => 50, LocalAddr => '127.0.0.1', LocalPort => $way_port, ReuseAddr => 1) or die "no port: $!";
	my $pid = fork;

	return $pid if $pid;
	my $select = IO::Select->new($way);
	my %other;
	for (;;)
	{
		for my $from ($select->can_read)
		{
			if ($from == $way)
			{
				my $client = $way->accept or next;
				my $server = IO::Socket::UNIX->new($node->host . '/.s.PGSQL.' . $node->port) or next;
				@other{ $client, $server } = ($server, $client);
				$select->add($client, $server);
			}
			elsif (sysread($from, my $bytes, 65536)) { syswrite($other{$from}, $bytes); }
			else
			{
				$select->remove($from, $other{$from});
				close $_ for $other{$from}, $from;
			}
		}
	}
}

# Those who talk over it hear of the end, or if it is stopped nothing at all.
sub cut_way { my ($pid) = @_; kill 'KILL', $pid; waitpid($pid, 0); return; }

my $way = open_way();

#
# The workers
#
# node looks for packages beside a program, and then in the directories above it
my $workers = "$FindBin::RealBin/../../workers";
system('cp', '-R', $dir, "$scratch/mail") == 0 or die "cannot copy examples/mail\n";
mkdir "$scratch/mail/node_modules";
system('cp', '-R', "$workers/node", "$scratch/mail/node_modules/delay-wheel") == 0 or die "cannot copy workers/node\n";
system('rm', '-rf', "$scratch/mail/node_modules/delay-wheel/node_modules");
link_node_modules("$scratch/mail/node_modules");
$dir = "$scratch/mail";
my %is_there = (
	'worker.py' => \&has_python,
	'worker.mjs' => sub { return has_node(qw(pg nodemailer)) });
my %program = ('worker.py' => '/usr/bin/python3', 'receive.py' => '/usr/bin/python3', 'worker.mjs' => 'node');
local $ENV{PYTHONPATH} = "$workers/python/src";
local $ENV{PYTHONDONTWRITEBYTECODE} = 1;

sub start_worker
{
	my ($worker) = @_;
	my $pid = fork;

	return $pid if $pid;
	$ENV{$_->[0]} = $_->[1] for [ PGHOST => '127.0.0.1' ], [ PGPORT => $way_port ], [ PGUSER => 'mailer' ], [ PGDATABASE => 'postgres' ],
	  [ SMTP_HOST => '127.0.0.1' ], [ SMTP_PORT => $smtp_port ];
	open(STDERR, '>>', "$scratch/errors");
	exec($program{$worker}, "$dir/$worker") or POSIX::_exit(1);
}

# An order whose mail is due at once; the trigger's delay is in the row.
sub order
{
	my ($id, $email) = @_;

	$node->safe_psql('postgres', "INSERT INTO purchase VALUES ($id, '$email', '0')", extra_params => [ '-U', 'shop' ]);
	return;
}

query(slurp_file("$dir/schema.sql"));
# what is tried again is tried soon, and a lease that is lost ends soon
query(q{SELECT delay_wheel.create_queue('mail', options => '{"retry_delay": "100 ms", "lease": "2 s"}')});
my $n = 0;
my $any = 0;
for my $worker ('worker.py', 'worker.mjs')
{
  SKIP:
	{
		skip("there is no driver for $worker", 1) if !$is_there{$worker}->();
		$any++;
		unlink $received;
		my $pid = start_worker($worker);
		order(++$n, "$_$n\@example.com") for 'one', 'two', 'later', 'never';
		my $last = $n;
		my @sent = ("one@{[ $last - 3 ]}\@example.com", "two@{[ $last - 2 ]}\@example.com", "later@{[ $last - 1 ]}\@example.com");

		arrived("$worker: mails arrive, also one that was refused for now", @sent);
		wait_for($node, q{SELECT string_agg(sqlstate || ' ' || attempts, ',') = 'DW007 1' FROM delay_wheel.failed}, "$worker: one that is refused for ever has failed");
		like(query('SELECT message FROM delay_wheel.failed'), qr/550|nobody/, "$worker: with the words of the mail server");
		wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel.tasks', "$worker: nothing is left");
		query('DELETE FROM delay_wheel_data.failed_task');
		is(join(' ', map { / (\d+)@/ ? () : $_ } mails()), '', "$worker: each has an id");

		# one by one they would take 15 s, and a lease 2
		unlink $received;
		order(++$n, "slow$n\@example.com") for 1 .. 5;
		arrived("$worker: mails that take longer than a lease arrive once", map { "slow$_\@example.com" } $n - 4 .. $n);
		wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel.tasks', "$worker: and are done");

		# it waits, or works, when it is told to end
		kill 'TERM', $pid;
		waitpid($pid, 0);
		is($?, 0, "$worker: SIGTERM ends it");
		is(query('SELECT count(*) FROM delay_wheel.tasks WHERE leased_until IS NOT NULL'), 0, "$worker: nothing is leased");

		# killed while it has some: they come by the next one
		unlink $received;
		order(++$n, "k$n\@example.com") for 1 .. 30;
		$pid = start_worker($worker);
		wait_until(60, sub { return mails() > 0 });
		kill 'KILL', $pid;
		waitpid($pid, 0);
		$pid = start_worker($worker);
		my %got;
		wait_until(60, sub { %got = map { s/ .*//r => 1 } mails(); return keys %got == 30 });
		is(scalar(keys %got), 30, "$worker: a worker that is killed loses no mail");
		wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel.tasks', "$worker: all are done");

		# the server restarts
		unlink $received;
		$node->restart;
		order(++$n, "r$n\@example.com");
		arrived("$worker: it goes on after a restart of the server", "r$n\@example.com");
		wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel.tasks', "$worker: and says that it is done");

		# the network is cut while it waits, and while it works
		for my $mails (1, 30)
		{
			unlink $received;
			%got = ();
			order(++$n, "c$n\@example.com") for 2 .. $mails;
			wait_until(60, sub { return mails() > 0 }) if $mails > 1;
			cut_way($way);
			order(++$n, "c$n\@example.com");
			$way = open_way();
			wait_until(60, sub { %got = map { s/ .*//r => 1 } mails(); return keys %got == $mails });
			is(scalar(keys %got), $mails, "$worker: after a cut of the network all mails come: $mails");
			wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel.tasks', "$worker: and are done");
		}
		kill 'TERM', $pid;
		waitpid($pid, 0);
		is($?, 0, "$worker: SIGTERM ends it again");
	}
}
# In transactions: each effect once, whoever is killed.
SKIP:
{
	skip('there is no driver for receive.py', 1) if !$is_there{'worker.py'}->();
	query(q{CREATE TABLE greeting (id bigint PRIMARY KEY, text text); GRANT INSERT ON greeting TO mailer; SELECT delay_wheel.create_queue('greetings', external => true, receivers => '{mailer}')});
	my $pid = start_worker('receive.py');
	for my $round (1 .. 5)
	{
		query(q{SELECT delay_send('greetings', jsonb_build_object('text', n)) FROM generate_series(1, 200) n});
		wait_for($node, "SELECT count(*) > 200 * ($round - 1) FROM greeting", "receive.py: greetings come: $round");
		kill 'KILL', $pid;
		waitpid($pid, 0);
		$pid = start_worker('receive.py');
	}
	wait_for($node, 'SELECT count(*) = 1000 FROM greeting', 'receive.py: each is written once');
	kill 'KILL', $pid;
	waitpid($pid, 0);
}
note('errors of the workers: ' . (-s "$scratch/errors" ? slurp_file("$scratch/errors") : 'none'));
is(query('SELECT count(*) FROM delay_wheel.failed'), 0, 'nothing else has failed');

cut_way($way);
kill 'TERM', $server;
waitpid($server, 0);
$node->stop;
done_testing();
