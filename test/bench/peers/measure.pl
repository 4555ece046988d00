#!/usr/bin/env perl
#
# Measures the peers, run by test/bench/peers/run on a server that is there already, and
# writes the raw rounds, from which report.pl makes the tables.
#
#   measure.pl ROUNDS_FILE OPTION=VALUE...
#
# A peer is a file of drivers/, in the order below, that returns a hash:
#   title, version    its name; a query, or a sub, that tells its version
#   missing           a sub: why it cannot be measured, or nothing
#   named             with --quick it is measured only if --only names it
#   rounds            in so many rounds at most
#   setup, prepare    SQL for its database, and a sub to be called once after that
#   end               a sub that ends what prepare has started
#   processes         a sub: a process whose processor time is its, beside the others
#   schedule          a script of pgbench that schedules :oid for the day after tomorrow,
#                     or a sub that returns a number and a rate
#   bulk              a query that schedules all rows of t_order, or a sub that returns seconds
#   left, clear       a query or a sub: how many tasks are in its store; empties that
#   variants          how it is asked to work, each a row of the tables:
#     name, title, note   the name is that of the file, if there is none
#     consumers           what sessions run until they are ended; or
#     worker              the arguments of a program in Node; or
#     start, stop         subs
#     measures            which of those below, all if not given
#     late                tasks a second, and seconds, if others than usual; or a sub
#     burst               a sub, instead of tasks that fall due
#     idle_workers        a condition on pg_stat_activity: its processes beside those in its database
# Queries and scripts are run in a database of its own, peer_ and the name of the file.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Bench;
use Cwd qw(getcwd);
use File::Temp;
use IPC::Open2;
use JSON::PP;
use List::Util qw(max min sum);
use POSIX qw(:sys_wait_h);
use Time::HiRes qw(sleep time);

my @files = qw(floor delay_wheel delay_wheel_node skip_locked pg_cron pgq pgmq pg_timers redis graphile_worker pg_boss);
my @measures = qw(schedule bulk late burst snapshot idle);

my ($rounds_file, @options) = @ARGV;
our %opt = map { split /=/, $_, 2 } @options;
my %only = map { $_ => 1 } split /,/, $opt{only};
my ($results, %databases, %child, @peers, @errors);

sub one { return (query(@_))[0]; }

# A kept session in a peer's database.
sub query
{
	my ($name, $sql) = @_;

	$databases{$name} //= session('postgres', "measuring $name", "peer_$name");
	return $databases{$name}->query($sql);
}

sub wait_until
{
	my ($what, $seconds, $is_so) = @_;
	my $deadline = time() + $seconds;

	until ($is_so->())
	{
		die "waited $seconds s in vain: $what\n" if time() > $deadline;
		sleep(0.05);
	}
	return;
}

sub slurp
{
	my ($file) = @_;

	open(my $in, '<', $file) or die "$file: $!\n";
	local $/ = undef;
	return scalar readline $in;
}

sub in_path { my ($program) = @_; return !!grep { -x "$_/$program" } split /:/, $ENV{PATH}; }
sub no_node { return $opt{node} eq 'yes' ? '' : $opt{node}; }
sub npm_version { return decode_json(slurp("$opt{node_dir}/node_modules/$_[0]/package.json"))->{version}; }
sub as_user { return (split(' ', $ENV{DW_BENCH_AS_USER}), @_); }

# The output of a program; its errors are ours.
sub output_of
{
	my @command = @_;

	open(my $out, '-|', @command) or die "$command[0]: $!\n";
	local $/ = undef;
	my $said = readline($out) // '';
	close $out or die "$command[0] has failed\n$said";
	return $said;
}

# Figures that a peer's program in Node prints.
sub node
{
	my ($name, @arguments) = @_;

	local $ENV{PGDATABASE} = "peer_$name";
	my @said = split ' ', output_of('node', "$opt{node_dir}/$name.mjs", @arguments);
	return wantarray ? @said : $said[0];
}

# Transactions that a script made, and how many a second.
sub pgbench
{
	my ($database, $script, @how) = @_;
	my $file = File::Temp->new;

	print $file $script;
	close $file;
	my $said = output_of('sh', '-c', 'exec "$0" "$@" 2>&1', "$ENV{DW_BENCH_BINDIR}/pgbench", '-n', '-M', 'prepared',
		'-c', 2, '-j', 2, @how, '-f', $file->filename, '-U', 'postgres', $database);
	my ($count) = $said =~ /^number of transactions actually processed: (\d+)/m or die $said;
	my ($tps) = $said =~ /^tps = ([\d.]+)/m or die $said;
	die $said if $said =~ /ERROR|failed transactions: [1-9]/;
	return ($count, $tps);
}

#
# Requests to a peer.
#
sub left { my ($peer) = @_; return ref $peer->{left} ? $peer->{left}->() : one($peer->{file}, $peer->{left}); }

sub clear
{
	my ($peer) = @_;

	ref $peer->{clear} ? $peer->{clear}->() : query($peer->{file}, $peer->{clear});
	query($peer->{file}, 'VACUUM (ANALYZE)');
	query($peer->{file}, 'CHECKPOINT');
	return;
}

sub new_orders
{
	my ($peer, $count, $first_due, $apart) = @_;

	query($peer->{file}, sprintf(q{SELECT new_orders(%d, to_timestamp(%.3f), '%.3f s')}, $count, $first_due, $apart));
	query($peer->{file}, 'VACUUM ANALYZE t_order');
	return;
}

# Schedules all orders; returns the seconds that it took.
sub bulk
{
	my ($peer) = @_;

	return $peer->{bulk}->() if ref $peer->{bulk};
	my $begun = time();
	query($peer->{file}, $peer->{bulk});
	return time() - $begun;
}

sub spawn
{
	my ($output, @command) = @_;

	open(my $said, '>', $output) or die "$output: $!\n";
	my $pid = fork() // die "fork: $!";
	if ($pid == 0)
	{
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>&', $said);
		open(STDERR, '>&', \*STDOUT);
		exec(@command) or POSIX::_exit(127);
	}
	$child{$pid} = $output;
	return $pid;
}

sub start_consumers
{
	my ($peer, $variant) = @_;
	my $said = "$opt{work}/consumer";

	if ($variant->{consumers})
	{
		my $n = @{ $variant->{consumers} };

		local $ENV{PGAPPNAME} = 'consumer';
		spawn("$said.$_", "$ENV{DW_BENCH_BINDIR}/psql", '-Xq', '-d', "peer_$peer->{file}", '-c', $variant->{consumers}[$_]) for 0 .. $n - 1;
		wait_until("$n sessions work\n", 30, sub {
			one($peer->{file}, "SELECT count(*) = $n FROM pg_stat_activity WHERE application_name = 'consumer' AND query LIKE 'CALL%'") eq 't' });
	}
	elsif ($variant->{worker})
	{
		my ($name, @arguments) = @{ $variant->{worker} };

		local $ENV{PGDATABASE} = "peer_$peer->{file}";
		my $pid = spawn($said, 'node', "$opt{node_dir}/$name.mjs", @arguments);
		wait_until("$name.mjs works", 30, sub {
			die "$name.mjs has ended: " . slurp($said) if waitpid($pid, WNOHANG) == $pid && delete $child{$pid};
			slurp($said) =~ /^ready/m });
	}
	elsif ($variant->{start})
	{
		$variant->{start}->();
	}
	return;
}

sub stop_consumers
{
	my ($peer, $variant) = @_;

	$variant->{stop}->() if $variant->{stop};
	query($peer->{file}, q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'consumer'});
	kill 'TERM', keys %child;
	for my $pid (keys %child)
	{
		my $deadline = time() + 10;

		until (waitpid($pid, WNOHANG) != 0)
		{
			kill 'KILL', $pid if time() > $deadline;
			sleep(0.02);
		}
		my $said = slurp($child{$pid}) =~ s/^ready\n//mr;
		say_progress('  %s: said: %s', $variant->{name}, $said) if $said =~ /\S/ && $said !~ /terminating connection/;
		delete $child{$pid};
	}
	return;
}

#
# Orders that fall due, the first one in a moment, one each so many seconds; 0: all at
# once.  Returns when the first one was due, and what became of them.  Consumers are
# there before, and wait.
#
my %lead;
sub let_fall_due
{
	my ($peer, $variant, $count, $apart, $limit) = @_;
	my $lead = $lead{ $peer->{file} } //= $opt{lead};
	my $due;

	start_consumers($peer, $variant);
	for (;;)
	{
		$due = POSIX::ceil(10 * (time() + $lead)) / 10;
		new_orders($peer, $count, $due, $apart);
		bulk($peer);
		query($peer->{file}, 'ANALYZE');
		my $in_time = time() < $due - 0.1;
		my $deadline = $due + $count * $apart + $limit;
		sleep(max(0, $due - time()));
		sleep(0.1) until one($peer->{file}, 'SELECT NOT EXISTS (SELECT FROM t_order WHERE status = 0)') eq 't' || time() > $deadline;
		last if $in_time;
		# it was due before it was scheduled: once more
		$lead = $lead{ $peer->{file} } *= 2;
		die "scheduling $count takes more than a minute\n" if $lead > 60;
	}
	stop_consumers($peer, $variant);
	my %effect;
	@effect{qw(once twice never early last_commit)} = split /\|/, one($peer->{file}, 'SELECT * FROM effects()'), -1;
	$effect{left} = left($peer);
	tally($variant, %effect);
	return ($due, %effect);
}

# Over all rounds: how often the effect was there.
sub tally
{
	my ($variant, %effect) = @_;
	my $sum = $results->{effects}{ $variant->{name} } //= {};

	# a burst that was cut off has tasks which were not lost, but are left
	$effect{lost} = max(0, $effect{never} - $effect{left});
	$effect{cut} = min($effect{never}, $effect{left});
	$sum->{$_} = ($sum->{$_} // 0) + $effect{$_} for qw(once twice lost early cut);
	return;
}

sub own_effects
{
	my ($peer, $variant) = @_;
	my %effect = (left => 0);

	@effect{qw(once twice never early)} = split /\|/, one($peer->{file}, 'SELECT * FROM effects()'), -1;
	tally($variant, %effect);
	return;
}

#
# The measures; each returns what is to be kept of a round.
#
my $two_days = 48 * 3600;

sub measure_schedule
{
	my ($peer) = @_;

	clear($peer);
	my ($count, $rate) = ref $peer->{schedule} ? $peer->{schedule}->()
	  : pgbench("peer_$peer->{file}", "\\set oid random(1, 1000000)\n$peer->{schedule}", '-T', $opt{seconds});
	my $left = left($peer);
	die "$left tasks after $count calls\n" if $left != $count;
	return { rate => $rate };
}

sub measure_bulk
{
	my ($peer) = @_;

	clear($peer);
	new_orders($peer, $opt{bulk}, time() + $two_days, 0);
	my $seconds = bulk($peer);
	my $left = left($peer);
	die "$left tasks of $opt{bulk}\n" if $left != $opt{bulk};
	return { rate => $opt{bulk} / $seconds };
}

sub measure_late
{
	my ($peer, $variant) = @_;
	my ($rate, $seconds) = ref $variant->{late} eq 'ARRAY' ? @{ $variant->{late} } : (100, $opt{late});
	my $count = int($rate * $seconds);

	clear($peer);
	if (ref $variant->{late} eq 'CODE')
	{
		my $due = POSIX::ceil(time() + 0.5);

		new_orders($peer, $count, $due, 1 / $rate);
		$variant->{late}->($count, $due, 1 / $rate);
		own_effects($peer, $variant);
	}
	else
	{
		let_fall_due($peer, $variant, $count, 1 / $rate, 130);
	}
	my @late = query($peer->{file}, 'SELECT extract(epoch FROM pg_xact_commit_timestamp(xmin) - due) * 1000 FROM t_order WHERE status > 0');
	my %figures;
	@figures{qw(p50 p99 max)} = map { $_ + 0 } quantiles(\@late, 0.5, 0.99, 1);
	return \%figures;
}

sub burst
{
	my ($peer, $variant) = @_;

	if ($variant->{burst})
	{
		new_orders($peer, $opt{burst}, time(), 0);
		my $rate = $variant->{burst}->($opt{burst});
		own_effects($peer, $variant);
		return { rate => $rate };
	}
	my ($due, %effect) = let_fall_due($peer, $variant, $opt{burst}, 0, 60);
	my $done = $opt{burst} - $effect{never};
	die "none of $opt{burst} tasks was done\n" if $done == 0;
	return { rate => $done / ($effect{last_commit} - $due), $effect{never} ? (done => $done) : () };
}

sub measure_burst
{
	my ($peer, $variant) = @_;

	clear($peer);
	return burst($peer, $variant);
}

# Two bursts beside a transaction that has a snapshot from before them, so that nothing
# that they delete or update can be removed; the second one meets what the first one left.
sub measure_snapshot
{
	my ($peer, $variant) = @_;

	clear($peer);
	my $holder = session('postgres', 'holder', "peer_$peer->{file}");
	$holder->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class');
	my $first = burst($peer, $variant);
	# what is left of one that was cut off would be done to the orders of the next one
	my $second = $first->{done} ? undef : burst($peer, $variant);
	$holder->query('COMMIT');
	$holder->close;
	return { first => $first->{rate}, second => $second ? $second->{rate} : undef, done => $second ? $second->{done} : $first->{done} };
}

# The server's work while tasks are pending and none is due.  Statements are
# those that it executes, also within functions, but pg_sleep(); wake-ups are the
# times that processes of the peer's database gave up the processor by themselves.
sub measure_idle
{
	my ($peer, $variant) = @_;
	my $seconds = $opt{idle};
	my $workers = $variant->{idle_workers} // 'false';
	my $ticks = POSIX::sysconf(&POSIX::_SC_CLK_TCK);

	clear($peer);
	new_orders($peer, $opt{idle_pending}, time() + $two_days, 0);
	bulk($peer);
	(delete $databases{ $peer->{file} })->close;
	set_conf('pg_stat_statements.track' => 'all');
	start_consumers($peer, $variant);
	# new connections, plans, and the like are over by then
	(delete $databases{ $peer->{file} })->close if $databases{ $peer->{file} };
	sleep($opt{settle});
	my @servers = split ' ', value("SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE datname = 'peer_$peer->{file}' OR $workers") // '';
	my @clients = $variant->{worker} ? keys %child : ();
	push @clients, $peer->{processes}->() if $peer->{processes};
	value('SELECT pg_stat_statements_reset()');
	my @before = (switches(@servers), cpu_ticks(@servers, @clients));
	sleep($seconds);
	my @after = (switches(@servers), cpu_ticks(@servers, @clients));
	my $statements = value(qq{SELECT coalesce(sum(calls), 0) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
		WHERE d.datname = 'peer_$peer->{file}' AND query NOT LIKE '%pg_sleep%'});
	stop_consumers($peer, $variant);
	set_conf('pg_stat_statements.track' => 'none');
	return {
		statements => $statements / $seconds, wakeups => ($after[0] - $before[0]) / $seconds,
		cpu => ($after[1] - $before[1]) / $ticks / $seconds * 100
	};
}

# Those that have ended meanwhile count no more.
sub switches
{
	return sum0(map { my $text = eval { slurp("/proc/$_/status") } // ''; $text =~ /^voluntary_ctxt_switches:\s+(\d+)/m ? $1 : 0 } @_);
}

sub cpu_ticks
{
	return sum0(map { my $text = eval { slurp("/proc/$_/stat") } // ''; my @fields = split ' ', $text =~ s/.*\)//sr; @fields ? $fields[11] + $fields[12] : 0 } @_);
}

sub sum0 { return sum(0, @_); }

my %measure = (
	schedule => \&measure_schedule, bulk => \&measure_bulk, late => \&measure_late, burst => \&measure_burst,
	snapshot => \&measure_snapshot, idle => \&measure_idle);

#
# How busy the machine is with other things than us, just now, when we do nothing.
#
sub others_load
{
	my $cpu = sub { return (slurp('/proc/stat') =~ /^cpu\s+(.*)/m)[0] };
	my @before = split ' ', $cpu->();
	sleep($opt{quick} ? 0.5 : 5);
	my @after = split ' ', $cpu->();
	my @spent = map { $after[$_] - $before[$_] } 0 .. 7;
	my ($load) = slurp('/proc/loadavg') =~ /^(\S+)/;

	return (load => $load + 0, busy => 100 * (1 - ($spent[3] + $spent[4]) / max(1, sum(@spent))));
}

sub write_results
{
	open(my $out, '>', "$rounds_file.new") or die "$rounds_file.new: $!";
	print $out JSON::PP->new->canonical->pretty->encode($results);
	close $out or die "$rounds_file.new: $!";
	rename "$rounds_file.new", $rounds_file or die "$rounds_file: $!";
	return;
}

# Its database, and what it needs beside; returns its version.
sub set_up
{
	my ($peer) = @_;
	my $file = $peer->{file};

	push @peers, $peer;
	run("CREATE DATABASE peer_$file");
	query($file, slurp("$FindBin::RealBin/orders.sql"));
	query($file, ref $peer->{setup} ? $peer->{setup}->() : $peer->{setup}) if $peer->{setup};
	$peer->{prepare}->() if $peer->{prepare};
	return !$peer->{version} ? '' : ref $peer->{version} ? $peer->{version}->() : one($file, $peer->{version});
}

#
# All of it.
#
$SIG{INT} = $SIG{TERM} = sub { exit 130 };

END
{
	my $status = $?;

	kill 'TERM', keys %child;
	for my $peer (@peers) { eval { $peer->{end}->() } if $peer->{end}; }
	local $? = 0;
	waitpid $_, 0 for keys %child;
	$? = $status;
}

$results = {
	begun => time(), commit => $opt{commit}, machine => { map { my ($name, $value) = split /=/, $_, 2; ($name => $value) } split /\n/, slurp($opt{machine}) },
	sizes => { map { $_ => $opt{$_} } qw(rounds seconds bulk late burst idle idle_pending) }, rounds => [], rows => [], skipped => [], effects => {} };
for my $file (grep { $_ eq 'floor' || !%only || $only{$_} } @files)
{
	my $peer = do "$FindBin::RealBin/drivers/$file.pl" // die "drivers/$file.pl: " . ($@ || $!) . "\n";
	my $missing = $peer->{missing} ? $peer->{missing}->() : '';

	$missing = 'takes minutes, so only if it is named with --only' if !$missing && $opt{quick} && $peer->{named} && !$only{$file};
	if ($missing)
	{
		say_progress('%s: skipped, %s', $peer->{title}, $missing);
		push @{ $results->{skipped} }, "$peer->{title}: $missing";
		next;
	}
	$peer->{file} = $file;
	my $version = eval { set_up($peer) };
	if (!defined $version)
	{
		my $error = $@ =~ s/\s*\n\s*/; /gr;

		push @errors, "$file: $error\n";
		push @{ $results->{skipped} }, "$peer->{title}: failed, $error";
		next;
	}
	for my $variant (@{ $peer->{variants} })
	{
		$variant->{name} //= $file;
		push @{ $results->{rows} }, {
			name => $variant->{name}, title => join(', ', join(' ', $peer->{title}, $version || ()), $variant->{title} // ()),
			note => $variant->{note} // $peer->{note}, rounds => $peer->{rounds}
		};
	}
}
die "there is nothing to be measured\n" if @peers < 2;
run('CREATE EXTENSION pg_stat_statements');

for my $round (1 .. $opt{rounds})
{
	my %others = others_load();

	say_progress('round %d, load %.2f, others use %.0f%% of the processors', $round, @others{qw(load busy)});
	push @{ $results->{rounds} }, { %others, at => time(), measures => {} };
	for my $name (@measures)
	{
		my @all = map { my $peer = $_; map { [ $peer, $_ ] } @{ $peer->{variants} } } @peers;

		for my $pair ($round % 2 ? @all : reverse @all)
		{
			my ($peer, $variant) = @$pair;

			next if $peer->{rounds} && $round > $peer->{rounds};
			next unless grep { $_ eq $name } @{ $variant->{measures} // \@measures };
			next if $name eq 'idle' && $peer->{file} eq 'floor';
			my $figures = eval { $measure{$name}->($peer, $variant) };
			if (!$figures)
			{
				my $error = $@ =~ s/\s*\n\s*/; /gr;

				push @errors, "round $round, $name, $variant->{name}: $error\n";
				say_progress('  %-8s %-24s FAILED: %s', $name, $variant->{name}, $error);
				stop_consumers($peer, $variant);
				next;
			}
			$results->{rounds}[-1]{measures}{$name}{ $variant->{name} } = $figures;
			say_progress('  %-8s %-24s %s', $name, $variant->{name},
				join ', ', map { defined $figures->{$_} ? sprintf('%s %.4g', $_, $figures->{$_}) : () } sort keys %$figures);
			write_results();
		}
	}
}
$results->{ended} = time();
write_results();
while (my ($name, $effects) = each %{ $results->{effects} })
{
	my @wrong = map { "$effects->{$_} $_" } grep { $effects->{$_} } qw(twice lost early);

	say_progress('%s: %d tasks once, but %s', $name, $effects->{once}, join(', ', @wrong)) if @wrong;
	push @errors, "$name: " . join(', ', @wrong) . "\n" if @wrong && $name =~ /^(?:floor|delay_wheel|skip_locked)/;
}
$_->close for values %databases;
close_sessions();
print STDERR "FAILED: $_" for @errors;
exit(@errors ? 1 : 0);
