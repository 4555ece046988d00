#!/usr/bin/env perl
#
# One client of the Patroni test: schedules, or receives, again and again, and writes
# what came of it into a journal outside of the database.
#
#   client.pl --kind schedule|inside|outside --dsn DSN --name NAME --journal FILE
#             --stop FILE [--rate N]
#
# The work is done by a child.  A statement that hangs, as commits do on a primary that
# has lost its synchronous standby, ends the child by SIGALRM, and another one begins;
# what it had begun has no acknowledgement in the journal then.  It ends when the file
# --stop is there, or whoever started it is gone.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../chaos";
use Chaos::Lines;
use DBI;
use Fcntl;
use Getopt::Long;
use Time::HiRes qw(sleep time);

my %opt = (rate => 50);
GetOptions(\%opt, 'kind=s', 'dsn=s', 'name=s', 'journal=s', 'stop=s', 'rate=f') or die "usage: see the head of $0\n";

my %body = (schedule => \&schedule, inside => \&inside, outside => \&outside);
my $parent = getppid();
my $warned = 0;
my ($journal, $dbh, $node);

sub wanted
{
	return !-e $opt{stop} && getppid() == $parent;
}

sub note
{
	my (%row) = @_;
	my $line = Chaos::Lines::encode(t => sprintf('%.6f', time()), node => $node, client => $opt{name}, %row);

	# one write for each line: a journal has no half lines but for its last one
	(syswrite($journal, $line) // 0) == length $line or die "cannot write to $opt{journal}: $!\n";
	return;
}

sub connect_
{
	alarm 10;
	$warned = 0;
	$dbh = DBI->connect("dbi:Pg:$opt{dsn};connect_timeout=2;tcp_user_timeout=4000;target_session_attrs=read-write",
		'app', '', { RaiseError => 1, PrintError => 0, PrintWarn => 1, AutoCommit => 1, pg_server_prepare => 0 });
	($node) = $dbh->selectrow_array("SELECT current_setting('dw_test.node')");
	return;
}

# A transaction with a plain row and with a task, or a message, that is due within 5 s.
my $number = 0;
sub schedule
{
	my $draw = rand();
	my $kind = $draw < 0.6 ? 'task' : $draw < 0.8 ? 'inside' : 'outside';
	my $token = join '.', $opt{name}, $$, ++$number;
	my $begun = time();

	note(e => 'put', token => $token, kind => $kind);
	$dbh->do('SELECT put(?, ?, ?)', undef, $token, $kind, 5 * rand());
	# "has already committed locally, but might not have been replicated" is no word of success
	die "no replication\n" if $warned;
	note(e => 'put_ok', token => $token, kind => $kind);
	my $rest = $begun + (0.5 + rand()) / $opt{rate} - time();
	sleep $rest if $rest > 0;
	return;
}

# Work that is written to the database, in the transaction that receives.
sub inside
{
	$dbh->do("CALL delay_await('inside', '1 s')");
	my $tokens = $dbh->selectcol_arrayref(<<'END');
INSERT INTO effect (token, due)
SELECT payload ->> 'token', (payload ->> 'due')::timestamptz FROM delay_receive('inside', 20) RETURNING token
END
	die "no replication\n" if $warned;
	note(e => 'inside_ok', token => $_) for @$tokens;
	return;
}

# Work outside of the database: here, the line of the journal.  One message in fifty gets
# no word, so that its lease ends.
sub outside
{
	my (@ids, @leases, %token);

	$dbh->do("CALL delay_await('outside', '1 s')");
	my $asked = sprintf '%.6f', time();
	my $rows = $dbh->selectall_arrayref("SELECT id, token, payload ->> 'token' FROM delay_lease('outside', 20)");
	die "no replication\n" if $warned;
	for my $row (@$rows)
	{
		my ($id, $lease, $token) = @$row;

		note(e => 'lease_ok', token => $token, asked => $asked);
		next if rand() < 0.02;
		push @ids, $id;
		push @leases, $lease;
		$token{$id} = $token;
	}
	return unless @ids;
	note(e => 'done', token => $token{$_}) for @ids;
	my ($done) = $dbh->selectrow_array('SELECT delay_done_all(?, ?)', undef, \@ids, \@leases);
	die "no replication\n" if $warned;
	note(e => 'done_ok', token => $token{$_}) for @{ $done // [] };
	return;
}

sub work
{
	srand($$ ^ int(time() * 1000));
	local $SIG{ALRM} = 'DEFAULT';
	local $SIG{__WARN__} = sub {
		$warned = 1 if $_[0] =~ /synchronous replication/;
	};
	while (wanted())
	{
		eval {
			connect_() unless $dbh;
			alarm 6;
			$body{ $opt{kind} }->();
			1;
		} and next;
		# a journal that cannot be written is none
		die $@ if $@ =~ /^cannot write/;
		note(e => 'error', text => substr($@, 0, 200)) if $dbh;
		alarm 6;
		eval { $dbh->disconnect } if $dbh;
		undef $dbh;
		alarm 0;
		sleep 0.2;
	}
	return;
}

sysopen($journal, $opt{journal}, O_WRONLY | O_CREAT | O_APPEND) or die "cannot write $opt{journal}: $!\n";
while (wanted())
{
	my $pid = fork() // die "cannot fork: $!\n";
	if ($pid == 0)
	{
		$parent = getppid();
		work();
		exit 0;
	}
	waitpid($pid, 0);
	sleep 0.1;
}
