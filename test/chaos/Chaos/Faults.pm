# What the campaign does to the servers.  Each fault is over, and the server
# runs or is to be started, when its function returns.  $r->() is the next
# number of the plan, 0 to 1; what is said is for the log.
package Chaos::Faults;

use strict;
use warnings;

use Time::HiRes qw(sleep time);

# name, weight
our %weight = (
	kill_backend => 2,
	kill_worker => 5,
	terminate => 4,
	cancel => 2,
	immediate => 3,
	kill_server => 3,
	fast => 2,
	crash_point => 8,
	error_point => 6,
	wal_full => 2,
	table_full => 3,
	locks => 2,
	workers => 2,
	connections => 2,
	maintenance => 2,
	promote => 3,
	freeze => 6,
);

sub pids
{
	my ($c, $like) = @_;
	my $dbh = $c->{primary}->connect('postgres') or return;
	my $rows = eval {
		$dbh->selectall_arrayref('SELECT a.pid, a.backend_type, r.task FROM pg_stat_activity a'
			  . ' LEFT JOIN delay_wheel_internal.get_running() r USING (pid) WHERE a.backend_type LIKE ?'
			  . ' AND a.pid <> pg_backend_pid() ORDER BY a.backend_start, a.pid', undef, $like);
	} // [];

	eval { $dbh->disconnect };
	return @$rows;
}

sub pick { my ($r, @of) = @_; return @of ? $of[ int($r->() * @of) ] : undef; }

sub describe { my ($row) = @_; return "$row->[1] $row->[0]" . ($row->[2] ? " with task $row->[2]" : ''); }

sub kill_backend
{
	my ($c, $r) = @_;
	my $row = pick($r, pids($c, 'client backend')) // return 'nobody is there';

	kill('KILL', $row->[0]);
	return describe($row);
}

sub kill_worker
{
	my ($c, $r) = @_;
	my $kind = pick($r, qw(executor executor executor timer launcher sweeper));
	my $row = pick($r, pids($c, "delay_wheel $kind")) // return "no $kind is there";

	kill('KILL', $row->[0]);
	return describe($row);
}

sub terminate
{
	my ($c, $r) = @_;
	my $kind = pick($r, 'delay_wheel executor', 'delay_wheel timer', 'delay_wheel launcher', 'delay_wheel sweeper',
		'delay_wheel %', 'client backend', '%');
	my @rows = grep { $_->[1] =~ /^delay_wheel|^client backend|^autovacuum worker|^walsender/ } pids($c, $kind);

	kill('TERM', map { $_->[0] } @rows);
	return scalar(@rows) . " of $kind";
}

sub cancel
{
	my ($c, $r) = @_;
	my @rows = pids($c, 'delay_wheel %');

	for (1 .. 10)
	{
		kill('INT', map { $_->[0] } @rows);
		sleep(0.05);
	}
	return scalar(@rows) . ' workers';
}

sub immediate { my ($c) = @_; $c->{primary}->stop('immediate'); return $c->{primary}{name}; }

sub fast { my ($c) = @_; $c->{primary}->stop('fast'); return $c->{primary}{name}; }

sub kill_server
{
	my ($c, $r) = @_;
	my $postmaster_only = $r->() < 0.5;

	$c->{primary}->kill9($postmaster_only);
	return $postmaster_only ? 'the postmaster' : 'all processes';
}

sub point
{
	my ($c, $r, $action) = @_;
	my $point = pick($r, @{ $c->{points} });
	my $skip = int($r->() * 4);
	my $hits = $action eq 'crash' ? 1 : 1 + int($r->() * 3);
	my $deadline = time() + 3;
	my $hit = 0;

	defined $c->{primary}->value('one', 'SELECT dw_inject_attach(?, ?, ?, ?)::text', $point, $action, $skip, $hits)
	  or return 'no connection';
	while (!$hit && time() < $deadline)
	{
		sleep(0.1);
		# a crash forgets all points
		$hit = !defined $c->{primary}->value('one', 'SELECT 1') if $action eq 'crash';
	}
	$c->{primary}->value('one', 'SELECT dw_inject_detach(?)::text', $point);
	return "$action at $point, passed $skip" . ($action ne 'crash' || $hit ? '' : ', not reached');
}

sub crash_point { my ($c, $r) = @_; return point($c, $r, 'crash'); }

sub error_point { my ($c, $r) = @_; return point($c, $r, pick($r, qw(error fatal))); }

sub fill
{
	my ($c, $seconds, @dirs) = @_;
	my $primary = $c->{primary};
	my $deadline = time() + $seconds;

	open(my $out, '>', "$primary->{full}.new") or die $!;
	print $out "$_\n" for @dirs;
	close($out);
	rename("$primary->{full}.new", $primary->{full});
	# new WAL segments, and pages, are wanted
	while (time() < $deadline)
	{
		# without waiting for the standby
		$primary->value('one', 'SELECT pg_switch_wal()::text') if grep { /pg_wal/ } @dirs;
		$primary->value('one', 'INSERT INTO ballast SELECT repeat(set_config(\'synchronous_commit\', \'local\', true), 400) FROM generate_series(1, 300)');
		sleep(0.1);
	}
	unlink($primary->{full});
	$primary->value('one', 'TRUNCATE ballast');
	return;
}

sub wal_full
{
	my ($c, $r) = @_;
	my $seconds = 0.5 + $r->() * 2;

	fill($c, $seconds, "$c->{primary}{data}/pg_wal");
	return sprintf('%.1f s', $seconds);
}

sub table_full
{
	my ($c, $r) = @_;
	my $seconds = 0.5 + $r->() * 3;
	my $what = pick($r, 'tablespace', 'base', 'both');
	my @dirs = ($c->{primary}{space}, "$c->{primary}{data}/base");

	@dirs = $what eq 'tablespace' ? $dirs[0] : $what eq 'base' ? $dirs[1] : @dirs;
	fill($c, $seconds, @dirs);
	return sprintf('%s, %.1f s', $what, $seconds);
}

# Takes what there is of something, for some time.
sub hold
{
	my ($c, $seconds, $take) = @_;
	my @held;
	my $deadline = time() + $seconds;

	while (time() < $deadline)
	{
		push @held, $take->();
		sleep(0.05);
	}
	eval { $_->disconnect } for grep { $_ } @held;
	return scalar(@held);
}

sub locks
{
	my ($c, $r) = @_;
	my $seconds = 0.5 + $r->() * 2;
	my $dbh = $c->{primary}->connect('one') // return 'no connection';
	my $tries = 0;

	# what a failed statement has locked for the session, it keeps
	hold($c, $seconds, sub {
		eval { $dbh->do('SELECT pg_advisory_lock(i + ?) FROM generate_series(1, 100000) i', undef, 1_000_000 * $tries++) };
		return;
	});
	eval { $dbh->disconnect };
	return sprintf('%.1f s', $seconds);
}

sub workers
{
	my ($c, $r) = @_;
	my $seconds = 1 + $r->() * 2;
	my $pid = fork() // die "fork: $!";

	if ($pid == 0)
	{
		my $dbh = $c->{primary}->connect('one');
		my $deadline = time() + $seconds;

		while ($dbh && time() < $deadline)
		{
			eval {
				$dbh->do(sprintf('SET statement_timeout = %d', 1000 * $seconds));
				$dbh->do('SET max_parallel_workers_per_gather = 100');
				$dbh->do('SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0');
				$dbh->do('SELECT count(*) FROM parallel WHERE pg_sleep(0.001) IS NOT NULL');
				1;
			} or last;
		}
		POSIX::_exit(0);
	}
	waitpid($pid, 0);
	return sprintf('%.1f s', $seconds);
}

sub connections
{
	my ($c, $r) = @_;
	my $seconds = 1 + $r->() * 2;
	my $n = hold($c, $seconds, sub { return map { $c->{primary}->connect('one', 'a') || () } 1 .. 5 });

	return sprintf('%d, %.1f s', $n, $seconds);
}

sub maintenance
{
	my ($c, $r) = @_;
	my $what = pick($r, 'VACUUM FULL delay_wheel_data.task', 'REINDEX TABLE delay_wheel_data.task', 'REINDEX TABLE CONCURRENTLY delay_wheel_data.task',
		'VACUUM (FREEZE) delay_wheel_data.task', 'CHECKPOINT', 'CLUSTER delay_wheel_data.task USING task_pkey');
	my $dbh = $c->{primary}->connect('one') // return 'no connection';

	eval { $dbh->do('SET statement_timeout = \'20s\''); $dbh->do($what); 1 } or return "$what: $@";
	eval { $dbh->disconnect };
	return $what;
}

# Stops processes for so many seconds, while code runs; it returns true to let them go on before.
sub stopped
{
	my ($seconds, $code, @pids) = @_;
	my $until = time() + $seconds;

	kill('STOP', @pids);
	# another process lets them go on, whatever happens to this one, which may wait for them
	my $other = fork() // die "fork: $!";
	if ($other == 0)
	{
		sleep(0.01) while time() < $until && getppid() != 1;
		kill('CONT', @pids);
		POSIX::_exit(0);
	}
	my $over = $code->($until);
	kill('TERM', $other) if $over;
	waitpid($other, 0);
	kill('CONT', @pids);
	return;
}

sub wait_out { my ($until) = @_; sleep(0.05) while time() < $until; return 0; }

# The row of an executor that is stopped while it waits for work, and so holds nothing.
sub is_idle
{
	my ($c, $db, $pid) = @_;

	return $c->{primary}->value($db, q{SELECT count(*) FROM delay_wheel_internal.get_running() r JOIN pg_stat_activity a USING (pid)
		WHERE pid = ? AND r.state = 'idle' AND a.wait_event_type = 'Extension'}, $pid) // 0;
}

# An executor.  If it is idle, tasks of its owner must not wait for it.
sub freeze_executor
{
	my ($c, $r) = @_;
	my $db = pick($r, qw(one two));
	my $dbh = $c->{primary}->connect($db) // return 'no connection';
	my $rows = eval { $dbh->selectall_arrayref('SELECT pid, owner::text, task FROM delay_wheel_internal.get_running() WHERE pid IS NOT NULL ORDER BY pid') } // [];
	# mostly an idle one
	my @idle = grep { !$_->[2] } @$rows;
	my $row = pick($r, @idle && $r->() < 0.7 ? @idle : @$rows);
	my $n = ++$c->{nprobes};
	my $begun = time();
	my ($idle, $ran);

	eval { $dbh->disconnect };
	return "no executor is there" unless $row;
	my ($pid, $owner, $task) = @$row;
	stopped(20, sub {
		my ($until) = @_;

		$idle = is_idle($c, $db, $pid);
		return wait_out(time() + 0.3 + $r->() * 2) || 1 unless $idle;
		my $sent = $c->{primary}->value($db, "SELECT set_config('role', ?, false) || delay_schedule('0', 'INSERT INTO probe VALUES ($n)')", $owner);
		while (defined $sent && !$ran && time() < $until - 1)
		{
			sleep(0.02);
			$ran = $c->{primary}->value($db, "SELECT count(*) FROM probe WHERE n = $n");
			return 1 unless defined $ran;
		}
		main::problem("a task of $owner in $db waits for executor $pid, which is stopped") if defined $sent && !$ran;
		return 1;
	}, $pid);
	$c->{frozen}{ $idle ? 'executors, idle' : 'executors, at work' }++;
	return sprintf('executor %d of %s%s', $pid, $owner, $ran ? sprintf(', idle: a task ran after %.2f s', time() - $begun) : $task ? " with task $task" : '');
}

# A timer, launcher or sweeper.  If it is called and does not answer for more than five seconds, it is named.
sub freeze_other
{
	my ($c, $r, $kind) = @_;
	my ($row) = pick($r, pids($c, "delay_wheel $kind")) // return "no $kind is there";
	my $seconds = $r->() < 0.4 ? 8 : 0.3 + $r->() * 3;
	my $pid = $row->[0];
	my $named = '';

	stopped($seconds, sub {
		my ($until) = @_;
		my $db = $c->{primary}->value('postgres', 'SELECT datname FROM pg_stat_activity WHERE pid = ?', $pid);

		return wait_out($until) if $seconds < 8 || $kind ne 'timer' || !$db;
		my $sent = $c->{primary}->value($db, q{SELECT delay_schedule('0', 'SELECT 1')});
		my $at = time();
		wait_out($at + 5.5);
		my $silent = $c->{primary}->value($db, 'SELECT count(*) FROM delay_wheel.silent WHERE pid = ?', $pid);
		return 0 if !defined $sent || !defined $silent || time() > $until - 0.2;
		$named = ', named';
		main::problem("timer $pid of $db is stopped, and not named") unless $silent;
		return 0;
	}, $pid);
	$c->{frozen}{ $kind . ($named ? 's, named' : 's') }++;
	return sprintf('%s %d, %.1f s%s', $kind, $pid, $seconds, $named);
}

sub freeze_some
{
	my ($c, $r, $what, @pids) = @_;
	my $seconds = 0.3 + $r->() * 3;

	return "no $what is there" unless @pids;
	stopped($seconds, \&wait_out, @pids);
	$c->{frozen}{$what}++;
	return sprintf('%d %s, %.1f s', scalar(@pids), $what, $seconds);
}

# Some seconds in which processes do nothing, and then go on.
sub freeze
{
	my ($c, $r) = @_;
	my $kind = pick($r, qw(executor executor executor timer timer launcher sweeper backend receiver workers));
	my $backend = pick($r, pids($c, 'client backend'));

	return freeze_executor($c, $r) if $kind eq 'executor';
	return freeze_some($c, $r, 'backends', $backend ? $backend->[0] : ()) if $kind eq 'backend';
	return freeze_some($c, $r, 'receivers', @{ $c->{receivers} }[ grep { $r->() < 0.5 } 0 .. $#{ $c->{receivers} } ]) if $kind eq 'receiver';
	return freeze_some($c, $r, 'workers', map { $_->[0] } pids($c, 'delay_wheel %')) if $kind eq 'workers';
	return freeze_other($c, $r, $kind);
}

# The primary dies, its synchronous standby takes over.
sub promote
{
	my ($c, $r) = @_;
	my ($old, $new) = @$c{qw(primary standby)};

	$c->has_sync_standby or return 'no synchronous standby yet';
	$old->kill9;
	$new->promote or die "could not promote $new->{name}\n";
	@$c{qw(primary standby)} = ($new, $old);
	$c->{standby_is_wanted} = 1;
	$c->announce;
	return "$old->{name} is dead, $new->{name} promoted";
}

1;
