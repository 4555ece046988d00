#!/usr/bin/env perl
#
# The fault campaign: a mixed workload, faults at random, and a checker outside
# of the database that knows what was committed.  See README.md.
#
#   chaos.pl --bindir DIR --injection DIR --dir DIR [--seed N] [--minutes M]
#            [--faults LIST] [--clients N] [--receivers N] [--no-standby] [--check-only]
#
# Not to be run as root.  test/chaos/run finds and builds what is needed.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Chaos::Check;
use Chaos::Client;
use Chaos::Faults;
use Chaos::Lines;
use Chaos::Receiver;
use Chaos::Server;
use File::Path qw(make_path);
use Getopt::Long;
use POSIX qw(strftime);
use Time::HiRes qw(sleep time);

my %opt = (seed => time() % 1_000_000 | 0, minutes => 5, clients => 4, receivers => 6, think => 0.04);
GetOptions(\%opt, 'bindir=s', 'injection=s', 'dir=s', 'seed=i', 'minutes=f', 'faults=s', 'clients=i', 'receivers=i', 'think=f', 'check-only', 'no-standby')
  or die "usage: see the head of $0\n";
my $begun = time();
my $begun_at = strftime('%Y-%m-%d %H:%M', gmtime);
if (($opt{faults} // '') eq 'help')
{
	print map { "$_\n" } sort keys %Chaos::Faults::weight;
	exit 0;
}
my $dir = $opt{dir} // die "--dir is missing\n";
my $c = bless { clients => [], receivers => [], faults => {}, problems => [], recoveries => [] }, 'Chaos';
$| = 1;

exit report(Chaos::Check::check($dir)) if $opt{'check-only'};


#
# A generator of our own for the plan: the same on each machine, whatever else
# draws numbers.
#
my $state;
sub draw
{
	$state //= $opt{seed} * 2654435761 % 4294967296;
	$state = ($state * 1103515245 + 12345) % 2147483648;
	return int($state / 8) % 100_000 / 100_000;
}

sub say_
{
	printf "%7.1f  %s\n", time() - $begun, "@_";
	return;
}

sub problem    # also of faults
{
	my ($what) = @_;

	push @{ $c->{problems} }, $what;
	say_("FINDING: $what");
	return;
}

# Settings that change the ways which tasks take; each campaign has others.
sub drawn_settings
{
	my %of = (
		slots => [ 10, 60, 3600 ],
		tick => [ '20ms', '100ms', '1s' ],
		turns_ahead => [ 1, 2 ],
		ring_memory => [ '32kB', '64kB', '32MB' ],
		inbox_size => [ 1, 16, 1024 ],
		max_executors => [ 2, 3, 5 ],
		executor_idle_timeout => [ '200ms', '1s', '60s' ],
		batch_tasks => [ 1, 10, 100, 100 ],
		plan_cache => [ 0, '4MB' ]);
	my @settings = map { "delay_wheel.$_ = " . $of{$_}[ int(draw() * @{ $of{$_} }) ] } sort keys %of;

	say_($_) for @settings;
	return join("\n", @settings);
}

sub conf
{
	my $drawn = drawn_settings();

	return <<"END";
listen_addresses = ''
shared_preload_libraries = 'delay_wheel'
dynamic_library_path = '$opt{injection}:\$libdir'
log_line_prefix = '%m [%p] %b '
fsync = off
max_connections = 40
superuser_reserved_connections = 6
max_worker_processes = 14
max_parallel_workers = 14
max_prepared_transactions = 20
max_locks_per_transaction = 16
shared_buffers = 16MB
wal_level = replica
min_wal_size = 2MB
wal_recycle = off
max_wal_size = 32MB
wal_keep_size = 64MB
checkpoint_timeout = 30s
wal_retrieve_retry_interval = 200ms
hot_standby = on
autovacuum_naptime = 5s
$drawn
delay_wheel.history = all
END
}

sub main
{
	die "the plan needs --bindir and --injection\n" unless $opt{bindir} && $opt{injection};
	say_("seed $opt{seed}");
	set_up();
	start('clients');
	start('receivers');
	make_standby();
	eval { campaign(); 1 } or problem("the campaign broke off: $@");
	unlink("$c->{primary}{full}");
	stop('clients');
	eval { come_to_rest(); 1 } or problem("no end: $@");
	stop('receivers');
	eval { dump_state(); 1 } or problem("no state: $@");
	for my $server (@$c{qw(primary standby)})
	{
		$server->stop('fast') if $server && $server->is_alive;
	}
	look_at_logs();
	exit report(-e "$dir/state.one" ? Chaos::Check::check($dir) : ([], {}));
}

#
# Servers, databases, roles.
#
sub new_server
{
	my ($name, $port) = @_;

	return Chaos::Server->new(name => $name, dir => "$dir/$name", sockets => $dir, port => $port, bindir => $opt{bindir},
		preload => "$dir/full_disk.so");
}

sub set_up
{
	make_path($dir);
	system('cc', '-shared', '-fPIC', '-O2', '-o', "$dir/full_disk.so", "$FindBin::RealBin/full_disk.c", '-ldl') == 0
	  or die "cannot build full_disk.so\n";
	$c->{primary} = new_server('x', 5501);
	$c->{standby} = new_server('y', 5502);
	$c->{primary}->init(conf());
	$c->{primary}->start or die "the server does not start\n";
	sql('postgres', 'CREATE ROLE a LOGIN', 'CREATE ROLE b LOGIN', 'CREATE ROLE n', 'GRANT n TO a, b',
		"CREATE TABLESPACE space LOCATION '$c->{primary}{space}'",
		'CREATE DATABASE one TABLESPACE space', 'CREATE DATABASE two', 'CREATE EXTENSION delay_wheel');
	for my $db (qw(one two))
	{
		sql($db, 'CREATE EXTENSION delay_wheel', q{SELECT delay_wheel.allow('public')},
			'CREATE TABLE client_tx (tx text PRIMARY KEY)',
			q{CREATE TABLE effects (token text, task bigint DEFAULT nullif(current_setting('delay_wheel.task_id', true), '')::bigint,
				role name DEFAULT current_user, at timestamptz DEFAULT now(), written timestamptz DEFAULT clock_timestamp(), pid int DEFAULT pg_backend_pid())},
			'CREATE INDEX ON effects (token)',
			'CREATE TABLE orders (token text, wait interval)',
			q{CREATE TRIGGER schedule AFTER INSERT ON orders FOR EACH ROW
				EXECUTE FUNCTION delay_schedule_trigger('wait', 'INSERT INTO effects (token) VALUES ($1)', 'token')},
			'CREATE PROCEDURE note(t text) LANGUAGE plpgsql AS $$BEGIN COMMIT; INSERT INTO effects (token) VALUES (t); COMMIT; END$$',
			'CREATE TABLE probe (n int)', 'CREATE TABLE ballast (x text)',
			'CREATE TABLE parallel AS SELECT 1 AS x FROM generate_series(1, 20000)', 'ALTER TABLE parallel SET (parallel_workers = 12)',
			q{SELECT delay_wheel.create_queue('narrow', max_running => 1, users => '{public}')},
			q{SELECT delay_wheel.create_queue('steady', rate => 200, users => '{public}')},
			q{SELECT delay_wheel.create_queue('single', users => '{public}', options => '{"batch": false}')},
			q{SELECT delay_wheel.create_queue('grouped', groups => true, users => '{public}', options => '{"group_max_running": 2}')},
			q{SELECT delay_wheel.create_queue('ordered', groups => true, users => '{public}', options => '{"group_order": "hold"}')},
			# of messages; a rollback is an attempt now and then
			q{SELECT delay_wheel.create_queue(q, external => true, users => '{public}', receivers => '{public}', max_attempts => 30000, options => '{"retry_delay": "50 ms"}') FROM unnest('{inbox,letters}'::text[]) q},
			q{SELECT delay_wheel.create_queue('parcels', external => true, users => '{public}', receivers => '{public}', max_attempts => 30000, groups => true, options => '{"retry_delay": "50 ms", "group_max_running": 2}')},
			q{SELECT delay_wheel.create_queue('ledger', external => true, users => '{public}', receivers => '{public}', max_attempts => 30000, groups => true, options => '{"retry_delay": "50 ms", "group_order": "hold"}')},
			'GRANT ALL ON effects, client_tx, orders, probe, ballast TO PUBLIC');
	}
	# each point at which the sources can be made to fail
	for my $db (qw(one))
	{
		sql($db, q{CREATE FUNCTION dw_inject_attach(text, text, int, int) RETURNS void AS 'delay_wheel', 'dw_inject_attach' LANGUAGE C STRICT},
			q{CREATE FUNCTION dw_inject_detach(text) RETURNS void AS 'delay_wheel', 'dw_inject_detach' LANGUAGE C STRICT});
	}
	$c->{points} = [ points() ];
	$c->announce;
	return;
}

sub points
{
	my %points;

	for my $file (glob("$FindBin::RealBin/../../src/*/*.c"))
	{
		open(my $in, '<', $file) or die $!;
		while (<$in>) { $points{$1} = 1 if /DW_INJECT\("([^"]+)"\)/; }
	}
	return sort keys %points;
}

sub sql
{
	my ($db, @sql) = @_;
	my $dbh = $c->{primary}->connect($db) or die "no connection to $db\n";

	$dbh->do($_) for @sql;
	$dbh->disconnect;
	return;
}

# Where the clients are to connect to.
sub Chaos::announce
{
	my ($self) = @_;

	open(my $out, '>', "$dir/current.new") or die $!;
	print $out $self->{primary}{port};
	close($out);
	rename("$dir/current.new", "$dir/current");
	return;
}

#
# Clients and receivers: processes of their own.
#
my %code = (clients => \&Chaos::Client::run, receivers => \&Chaos::Receiver::run);

sub start
{
	my ($kind) = @_;
	my @where = ([ 'one', 'a' ], [ 'two', 'b' ], [ 'one', 'b' ], [ 'two', 'a' ]);

	unlink(stop_file($kind));
	for my $n (1 .. $opt{$kind})
	{
		my ($db, $role) = @{ $where[ ($n - 1) % @where ] };
		my $pid = fork() // die "fork: $!";

		if ($pid == 0)
		{
			eval {
				$code{$kind}->(dir => $dir, sockets => $dir, number => $n, db => $db, role => $role, seed => $opt{seed}, think => $opt{think});
				1;
			} or do { print "$kind $n: $@"; POSIX::_exit(1) };
			POSIX::_exit(0);
		}
		push @{ $c->{$kind} }, $pid;
	}
	return;
}

sub stop_file { return "$dir/stop.$_[0]"; }

sub stop
{
	my ($kind) = @_;
	my $deadline = time() + 90;
	my %left = map { $_ => 1 } @{ $c->{$kind} };

	ensure_up();
	open(my $stop, '>', stop_file($kind)) or die $!;
	close($stop);
	while (%left && time() < $deadline)
	{
		for my $pid (keys %left)
		{
			next unless waitpid($pid, POSIX::WNOHANG());
			problem("one of the $kind ended with status $?") if $?;
			delete $left{$pid};
		}
		sleep(0.1);
	}
	for my $pid (keys %left)
	{
		problem("one of the $kind hangs:\n" . activity());
		kill('KILL', $pid);
		waitpid($pid, 0);
	}
	return;
}

sub activity
{
	return join("\n", map { $c->{primary}->value($_, q{SELECT string_agg(a::text, E'\n') FROM pg_stat_activity a WHERE datname IS NOT NULL}) // '?' } 'postgres')
	  . "\n" . join("\n", map { $c->{primary}->value('postgres', $_) // '?' }
		'SELECT string_agg(s::text, chr(10)) FROM delay_wheel.status s') . "\n";
}

#
# The standby, synchronous as soon as it has caught up.
#
sub make_standby
{
	my ($primary, $standby) = @$c{qw(primary standby)};

	return if $opt{'no-standby'};
	$standby->kill9 if $standby->is_alive;
	if (!$standby->init_from($primary) || !$standby->start)
	{
		say_('no standby could be made; tried again later');
		$c->{standby_is_wanted} = 1;
		return;
	}
	$primary->value('postgres', q{SELECT count(*) FROM (SELECT set_config('x.x', '', false)) s});
	eval { sql('postgres', "ALTER SYSTEM SET synchronous_standby_names = '*'", 'SELECT pg_reload_conf()'); 1 };
	$c->{standby_is_wanted} = 0;
	return;
}

sub Chaos::has_sync_standby
{
	my ($self) = @_;

	return 0 if $opt{'no-standby'} || $self->{standby_is_wanted};
	$self->{primary}->wait_for(20, 'postgres', q{SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state = 'sync'}) or return 0;
	# whoever was told of a commit before that: it is there, too
	my $lsn = $self->{primary}->value('postgres', 'SELECT pg_current_wal_insert_lsn()') // return 0;
	sleep(1.2) unless $self->{sync_known}{ $self->{primary}{name} }++;
	$lsn = $self->{primary}->value('postgres', 'SELECT pg_current_wal_insert_lsn()') // return 0;
	return $self->{primary}->wait_for(20, 'postgres', "SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state = 'sync' AND flush_lsn >= '$lsn'");
}

#
# Faults.
#
sub plan
{
	my @names = $opt{faults} ? split(/,/, $opt{faults}) : grep { $_ ne 'promote' || !$opt{'no-standby'} } sort keys %Chaos::Faults::weight;
	my @bag = map { ($_) x ($Chaos::Faults::weight{$_} // die "there is no fault \"$_\"\n") } @names;

	# each of them before any comes often
	for (@names) { push @{ $c->{plan} }, $_; }
	for my $i (reverse 1 .. $#{ $c->{plan} })
	{
		my $j = int(draw() * ($i + 1));
		@{ $c->{plan} }[ $i, $j ] = @{ $c->{plan} }[ $j, $i ];
	}
	$c->{bag} = \@bag;
	return;
}

sub campaign
{
	my $end = time() + 60 * $opt{minutes};

	plan();
	while (time() < $end && @{ $c->{problems} } < 5)
	{
		my $name = shift @{ $c->{plan} } // $c->{bag}[ int(draw() * @{ $c->{bag} }) ];
		my $pause = 0.2 + draw() * 2;
		my $seed = draw();

		sleep($pause);
		fault($name, $seed);
	}
	return;
}

sub fault
{
	my ($name, $seed) = @_;
	my $x = int($seed * 2**31);
	my $r = sub { $x = ($x * 1103515245 + 12345) % 2147483648; return int($x / 8) % 100_000 / 100_000; };
	my $code = Chaos::Faults->can($name);
	my $what = $code->($c, $r);
	my $over = time();

	$c->{faults}{$name}++;
	$what =~ s/\s*\n.*//s;
	recover();
	say_(sprintf('%-13s %s (back after %.1f s)', $name, $what, time() - $over));
	push @{ $c->{recoveries} }, time() - $over;
	make_standby() if $c->{standby_is_wanted};
	return;
}

sub ensure_up
{
	my $primary = $c->{primary};
	my $deadline = time() + 90;

	while (time() < $deadline)
	{
		my $up = $primary->value('postgres', 'SELECT 1');
		return 1 if $up;
		$primary->start_once unless $primary->is_alive;
		sleep(0.1);
	}
	die "the server does not come back: " . ($primary->{error} // '') . "\n";
}

# The server is there, and runs a task in each database.
sub recover
{
	my $n = ++$c->{nprobes};

	ensure_up();
	for my $db (qw(one two))
	{
		my $deadline = time() + 60;
		my $asked = 0;

		until ($asked && ($c->{primary}->value($db, "SELECT count(*) FROM probe WHERE n = $n") // 0) > 0)
		{
			$asked ||= defined $c->{primary}->value($db, "SELECT delay_schedule('0', 'INSERT INTO probe VALUES ($n)')");
			ensure_up() unless $c->{primary}->is_alive;
			if (time() > $deadline)
			{
				problem("stuck: a task that is due does not run in $db\n" . activity());
				return;
			}
			sleep(0.05);
		}
		my $twice = $c->{primary}->value($db,
			'SELECT count(*) FROM (SELECT FROM delay_wheel.tasks WHERE key IS NOT NULL AND sql IS NOT NULL GROUP BY owner, queue, key HAVING count(*) > 1) s');
		problem("$twice keys are pending twice in $db") if $twice;
	}
	return;
}

#
# The end: all that is due runs, what failed because of the machine is put back
# and runs, too.
#
sub come_to_rest
{
	ensure_up();
	sql('postgres', "ALTER SYSTEM SET synchronous_standby_names = ''", 'SELECT pg_reload_conf()');
	for my $db (qw(one two))
	{
		my $prepared = $c->{primary}->value($db, 'SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()');
		problem("$prepared prepared transactions are left in $db") if $prepared;
		for my $round (1 .. 20)
		{
			$c->{primary}->wait_for(120, $db, q{SELECT count(*) = 0 FROM delay_wheel.tasks WHERE due < now() + interval '1 h'
				AND id NOT IN (SELECT task FROM delay_wheel_data.recurring_task WHERE task IS NOT NULL)})
			  or do { problem("not all that is due has run in $db\n" . activity()); last };
			put_back($db) or last;
		}
		$c->{primary}->wait_for(60, $db, 'SELECT count(*) = 0 FROM delay_wheel.running');
	}
	return;
}

# What was to do well, and did not because of a fault.
sub put_back
{
	my ($db) = @_;
	my $which = q{sqlstate ~ '^(53|58|57|25006|XX000|40|55P03|DW004|DW005)' AND message !~ 'division by zero'
		AND sql !~ '1 / 0|CALL note|c\d+\.(all|skip)'};
	my $rows = 0;
	my $dbh = $c->{primary}->connect($db) or die "no connection\n";

	for my $row (@{ $dbh->selectall_arrayref("SELECT id, sqlstate, sql, args::text FROM delay_wheel.failed WHERE $which", { Slice => {} }) })
	{
		my ($done) = eval { $dbh->selectrow_array(q{SELECT delay_retry(?) = 'retried'}, undef, $row->{id}) };
		# one that was put back just now: when that has run
		if ($@ =~ /another task of key/)
		{
			$rows++;
			next;
		}
		die $@ if $@;
		problem("$row->{id} in $db could not be put back") unless $done;
		$c->{failed_by}{ $row->{sqlstate} }++;
		push @{ $c->{put_back}{$db} }, $row;
		$rows++;
	}
	$dbh->disconnect;
	return $rows;
}

sub dump_state
{
	my $us = sub { "(extract(epoch FROM $_[0]) * 1000000)::bigint" };

	for my $db (qw(one two))
	{
		my %query = (
			tx => 'SELECT tx FROM client_tx',
			effect => 'SELECT token, coalesce(task, 0) AS task, role, ' . $us->('at') . ' AS at, ' . $us->('written') . ' AS written, pid FROM effects',
			pending => 'SELECT id, ' . $us->('due') . ' AS due, owner::text, queue, key, coalesce(sql, payload::text) AS sql, args::text FROM delay_wheel.tasks'
			  . q{ WHERE sql ~ 'c\d+\.(all|skip)' IS NOT TRUE},
			failed => 'SELECT id, sqlstate, message, coalesce(sql, payload::text) AS sql, args::text, (SELECT count(*) FROM delay_wheel.tasks t'
			  . ' WHERE (t.owner, t.queue, t.key) = (f.owner, f.queue, f.key)) AS others FROM delay_wheel.failed f',
			history => 'SELECT task, ' . $us->('due') . ' AS due, coalesce(' . $us->('started') . ', 0) AS started, outcome, recurring FROM delay_wheel.history',
			recurring => 'SELECT id, name, ' . $us->('starts') . ' AS starts, ' . $us->('next_due') . ' AS next_due, catch_up FROM delay_wheel_data.recurring_task');
		my $dbh = $c->{primary}->connect($db) or die "no connection\n";
		open(my $out, '>', "$dir/state.$db") or die $!;

		$dbh->do('BEGIN ISOLATION LEVEL REPEATABLE READ');
		for my $s (sort keys %query)
		{
			my $rows = $dbh->prepare($query{$s});
			$rows->execute;
			while (my $row = $rows->fetchrow_hashref)
			{
				print $out Chaos::Lines::encode(s => $s, %$row);
			}
		}
		print $out Chaos::Lines::encode(s => 'put_back', %$_) for @{ $c->{put_back}{$db} // [] };
		my ($t) = $dbh->selectrow_array('SELECT ' . $us->('now()'));
		print $out Chaos::Lines::encode(s => 'end', t => $t);
		close($out);
		$dbh->disconnect;
	}
	return;
}

# Crashes that nobody ordered.
sub look_at_logs
{
	for my $server (@$c{qw(primary standby)})
	{
		open(my $in, '<', $server->{log}) or next;
		while (my $line = <$in>)
		{
			chomp $line;
			if ($line =~ /terminated by signal (\d+)/ && $1 != 9)
			{
				next if $1 == 6 && $c->{faults}{wal_full};
				problem("a crash: $line");
			}
			problem("a panic: $line") if $line =~ /PANIC:/ && $line !~ /No space left|could not write to (log )?file/;
			problem("an assertion: $line") if $line =~ /TRAP:/;
			$c->{crashes}++ if $line =~ /terminated by signal/;
			$c->{killed_executors}++ if $line =~ /delay_wheel executor.* terminated by signal 9/;
		}
	}
	# set aside for crashes: only what we have killed three times
	my $set_aside = $c->{failed_by}{DW004} // 0;
	problem("$set_aside tasks are set aside as if they had crashed the server") if 3 * $set_aside > ($c->{killed_executors} // 0);
	return;
}

sub report
{
	my ($findings, $figures) = @_;
	my @all = (@{ $c->{problems} }, @$findings);
	my @back = sort { $a <=> $b } @{ $c->{recoveries} };
	my $faults = 0;

	$faults += $_ for values %{ $c->{faults} };
	print "\n";
	print "finding: $_\n" for @all[ 0 .. ($#all < 40 ? $#all : 40) ];
	printf "%-34s %s\n", 'begun', $begun_at;
	printf "%-34s %d\n", 'seed', $opt{seed};
	printf "%-34s %.2f\n", 'hours', (time() - $begun) / 3600;
	printf "%-34s %d\n", 'faults', $faults;
	printf "  %-32s %d\n", $_, $c->{faults}{$_} for sort keys %{ $c->{faults} };
	printf "%-34s %d\n", "stopped: $_", $c->{frozen}{$_} for sort keys %{ $c->{frozen} // {} };
	printf "%-34s %d\n", 'crashes in the log', $c->{crashes} // 0;
	printf "%-34s %d\n", '  of executors', $c->{killed_executors} // 0;
	printf "%-34s %.1f s, at most %.1f s\n", 'back after a fault (median)', $back[ @back / 2 ], $back[-1] if @back;
	printf "%-34s %d\n", "failed with $_, put back", $c->{failed_by}{$_} for sort keys %{ $c->{failed_by} // {} };
	printf "%-34s %d\n", $_, $figures->{$_} for grep { !/^finding/ } sort keys %$figures;
	printf "%-34s %d\n", 'findings', scalar(@all);
	return @all ? 1 : 0;
}
main();
