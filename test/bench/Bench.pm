# What the rows of the benchmark share: sessions, the server, rounds, figures.
#
# Environment, set by test/bench/run:
#   PGHOST, PGPORT, PGUSER     the throw-away server
#   DW_BENCH_BINDIR            its programs
#   DW_BENCH_DATA              its data directory
#   DW_BENCH_LOG               its log
#   DW_BENCH_AS_USER           what to put before a command that root must not
#                              run, or nothing

package Bench;

use strict;
use warnings;

use Exporter 'import';
use File::Temp;
use IO::Handle;
use IPC::Open2;
use List::Util qw(min max sum);
use POSIX ();
use Time::HiRes qw(sleep time);

our @EXPORT = qw(
  session kept_session admin shop value run wait_for close_sessions
  set_conf stop_server start_server log_size log_after
  begin_pgbench end_pgbench
  median quantiles say_progress
);

#
# Sessions: a psql each, fed by a pipe, so that connecting costs no measured
# time, and several can work at once.
#
my $end_mark = '--end of answer--';
my %sessions;

package Bench::Session
{
	# The statements; their answer is to be fetched by answer().
	sub send
	{
		my ($self, $sql) = @_;

		print { $self->{in} } "$sql\n;\n\\echo $end_mark\n";
		$self->{in}->flush;
		return;
	}

	# Lines of what was sent last; dies if it was an error.
	sub answer
	{
		my ($self) = @_;
		my @lines;

		while (defined(my $line = readline $self->{out}))
		{
			chomp $line;
			return @lines if $line eq $end_mark;
			push @lines, $line;
		}
		die "$self->{name}: " . join("\n", @lines) . "\n";
	}

	sub query
	{
		my ($self, $sql) = @_;

		$self->send($sql);
		return $self->answer;
	}

	sub value { return (query(@_))[0]; }

	sub close
	{
		my ($self) = @_;

		CORE::close($self->{in});
		waitpid $self->{pid}, 0;
		return;
	}
}

sub session
{
	my ($user, $name, $database) = @_;
	my $self = bless { name => $name // $user }, 'Bench::Session';

	$self->{pid} = open2($self->{out}, $self->{in},
		'sh', '-c', 'exec "$0" "$@" 2>&1', "$ENV{DW_BENCH_BINDIR}/psql",
		'-XqAt', '-v', 'ON_ERROR_STOP=1', '-U', $user, '-d', $database // 'bench');
	$self->query("SET application_name = 'benchmark'; SET client_min_messages = warning");
	return $self;
}

# Those that are kept: the superuser's, that of the role that schedules, others.
sub kept_session
{
	my ($name, $user) = @_;

	return $sessions{$name} //= session($user, $name);
}

sub admin { return kept_session('admin', 'postgres'); }
sub shop { return kept_session('shop', 'shop'); }

sub value { return admin()->value(@_); }
sub run { admin()->query(@_); return; }

sub close_sessions
{
	$_->close for values %sessions;
	%sessions = ();
	return;
}

#
# Waits until a query of the superuser's gives "t".
#
sub wait_for
{
	my ($what, $seconds, $sql, $pause) = @_;
	my $deadline = time() + $seconds;

	until (value($sql) eq 't')
	{
		die "waited $seconds s in vain: $what\n" . join("\n", trouble()) . "\n" if time() > $deadline;
		sleep($pause // 0.05);
	}
	return;
}

# What delay_wheel has to say about a wait that was in vain.
sub trouble
{
	return admin()->query(q{SELECT 'status: ' || s FROM delay_wheel.status s WHERE database = current_database();
		SELECT 'lane: ' || l FROM delay_wheel.lanes l;
		SELECT 'failed: ' || sqlstate || ' ' || message FROM delay_wheel.failed LIMIT 5});
}

#
# The server.
#
sub pg_ctl
{
	my ($action, @options) = @_;
	my @command = (split(' ', $ENV{DW_BENCH_AS_USER}), "$ENV{DW_BENCH_BINDIR}/pg_ctl",
		$action, '--silent', '--wait', "--pgdata=$ENV{DW_BENCH_DATA}", @options);

	open(my $null, '+<', '/dev/null') or die $!;
	my $pid = fork() // die "fork: $!";
	if ($pid == 0)
	{
		open(STDIN, '<&', $null);
		open(STDOUT, '>&', $null);
		exec(@command) or POSIX::_exit(127);
	}
	waitpid $pid, 0;
	die "pg_ctl $action failed, see $ENV{DW_BENCH_LOG}\n" if $?;
	return;
}

sub stop_server
{
	my ($mode) = @_;

	close_sessions();
	pg_ctl('stop', '--mode=' . ($mode // 'fast'), '--timeout=600');
	return;
}

sub start_server
{
	my (@settings) = @_;

	pg_ctl('start', '--timeout=600', "--log=$ENV{DW_BENCH_LOG}",
		@settings ? '--options=' . join(' ', map { "-c $_" } @settings) : ());
	return;
}

sub log_size { return -s $ENV{DW_BENCH_LOG} // 0; }

sub log_after
{
	my ($position) = @_;

	open(my $log, '<', $ENV{DW_BENCH_LOG}) or die "$ENV{DW_BENCH_LOG}: $!";
	seek $log, $position, 0;
	local $/ = undef;
	return scalar readline $log;
}

# Settings that take effect by a reload; undef: back to what the server started
# with.
sub set_conf
{
	my (%settings) = @_;

	while (my ($name, $setting) = each %settings)
	{
		run(defined $setting ? "ALTER SYSTEM SET $name = '$setting'" : "ALTER SYSTEM RESET $name");
	}
	run('SELECT pg_reload_conf()');
	for my $name (grep { defined $settings{$_} } keys %settings)
	{
		wait_for("$name is $settings{$name}", 60,
			"SELECT current_setting('$name') = '$settings{$name}'", 0.01);
	}
	# the other processes need a moment, too
	sleep(0.2);
	return;
}

#
# Begins so many clients of pgbench, which run this text, or what @how says.  end_pgbench()
# waits for them; it returns their transactions in a second, and in all.
#
sub begin_pgbench
{
	my ($text, $clients, @how) = @_;
	my $script;

	if (defined $text)
	{
		$script = File::Temp->new;
		print $script $text;
		$script->flush;
		push @how, '-M', 'prepared', '-f', $script->filename;
	}
	my $pid = open2(my $out, my $in, 'sh', '-c', 'exec "$0" "$@" 2>&1', "$ENV{DW_BENCH_BINDIR}/pgbench", '-n',
		'-c', $clients, '-j', min($clients, 2), @how, '-U', 'shop', 'bench');
	return { pid => $pid, out => $out, script => $script };
}

sub end_pgbench
{
	my ($begun) = @_;
	local $/ = undef;
	my $said = readline $begun->{out};

	waitpid $begun->{pid}, 0;
	my ($tps) = $said =~ /^tps = ([\d.]+)/m or die $said;
	my ($count) = $said =~ /^number of transactions actually processed: (\d+)/m or die $said;
	die $said if $said =~ /ERROR|failed transactions: [1-9]/;
	return wantarray ? ($tps, $count) : $tps;
}

#
# Figures.
#
sub median
{
	my @sorted = sort { $a <=> $b } @_;

	return undef unless @sorted;
	return ($sorted[ $#sorted / 2 ] + $sorted[ @sorted / 2 ]) / 2;
}

# Values at the given fractions.
sub quantiles
{
	my ($values, @fractions) = @_;
	my @sorted = sort { $a <=> $b } @$values;

	return map { $sorted[ min($#sorted, int($_ * @sorted)) ] } @fractions;
}

sub say_progress
{
	my ($format, @values) = @_;

	STDERR->autoflush(1);
	printf STDERR "$format\n", @values;
	return;
}

1;
