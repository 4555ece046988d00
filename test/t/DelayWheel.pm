# What the TAP tests of delay_wheel share.
#
# Environment:
#   DW_LIBDIR            directory of the delay_wheel.so to be tested, instead
#                        of the installed one
#   DW_INJECTION_LIBDIR  directory of the build with injection points
#   DW_CONF              more settings for all servers, before a test's own
#   DW_LONG              true for the long versions
#   DW_COVERAGE          true if servers are to be stopped so that processes can
#                        write what they have counted
#   DW_RACES             names of groups of a test, if not all are wanted
#   DW_WAIT_LIMIT        seconds after which a test waits for nothing any more
#   DW_FAIL_FAST         end with the first thing that is waited for in vain

package DelayWheel;

use strict;
use warnings;

use Exporter 'import';
use File::Basename qw(dirname);
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep clock_gettime CLOCK_MONOTONIC);

our @EXPORT = qw(
  new_node call_args group wait_for wait_until try_psql log_position log_since
  has_injection create_injection attach detach wait_until_waiting counted
  worker_pids context_switches long_tests start_pgbouncer
);

# The superuser's name, whoever runs the tests: some of them show it.
$ENV{PGUSER} = 'postgres';

# The arguments of a call, as name => value: those that are no parameters go into the parameter
# options.  Those of a text that begins with a comma are further ones.
my %is_option = map { $_ => 1 } qw(arg_types retry_delay retry_backoff retry_max_delay retry_on give_up_on timeout expires skip_after unique_for notify on_success
  on_failure mode check_sql keep_settings max_runs catch_up spread batch history group_max_running group_rate group_per group_burst group_order lease receive_timeout notify_channel);

sub call_args
{
	my ($args) = @_;
	my ($comma, $rest) = $args =~ /^(,?\s*)(.*)$/s;
	my (@parameters, @options);

	for (split /,\s*(?=[a-z_]+ => )/, $rest)
	{
		/^([a-z_]+) => (.*)$/s && $is_option{$1} ? push(@options, "'$1', $2" . ($1 =~ /^(?:arg_types|retry_on|give_up_on|keep_settings)$/ ? '::text[]' : '')) : push @parameters, $_;
	}
	push @parameters, 'options => jsonb_build_object(' . join(', ', @options) . ')' if @options;
	return $comma . join(', ', @parameters);
}

sub long_tests { return $ENV{DW_LONG} ? 1 : 0; }

# Before that of PostgreSQL's module, which stops servers at once.
my @nodes;

END
{
	my $exit_code = $?;

	if ($ENV{DW_COVERAGE})
	{
		$_->stop('fast', fail_ok => 1) for reverse @nodes;
	}
	$? = $exit_code;
}

# A part of a test; DW_RACES has the names of those wanted, or is empty.
sub group
{
	my ($name, $code) = @_;
	my %wanted = map { $_ => 1 } split ' ', $ENV{DW_RACES} // '';

	$code->() if !%wanted || $wanted{$name};
	return;
}

sub has_injection { return defined $ENV{DW_INJECTION_LIBDIR}; }

#
# A new cluster, started, with the extension in database postgres.  Options:
#   preload => 0      without the library (and without the extension)
#   injection => 1    with the injection build and its functions
#   conf => text      more settings
#   batches => 1      with batches, whatever the suite is run with
#   extension => 0    do not create the extension
#   start => 0        do not start it
#   init => [...]     arguments for init
#   bindir => dir     with the programs, and the library, of another PostgreSQL
#
sub new_node
{
	my ($name, %options) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name,
		$options{bindir} ? (install_path => dirname($options{bindir})) : ());
	push @nodes, $node;
	my $preload = $options{preload} // 1;
	my $libdir = $options{bindir} ? undef : $ENV{DW_LIBDIR};

	if ($options{injection})
	{
		$libdir = $ENV{DW_INJECTION_LIBDIR}
		  or die "DW_INJECTION_LIBDIR is not set";
	}
	my %init = @{ $options{init} // [] };
	$node->init(%init, extra => [ @{ $init{extra} // [] }, "--username=$ENV{PGUSER}" ]);
	$node->append_conf('postgresql.conf',
		    "max_worker_processes = 20\n"
		  . "max_prepared_transactions = 10\n"
		  . "log_line_prefix = '%m [%p] %b '\n"
		  . ($libdir ? "dynamic_library_path = '$libdir:\$libdir'\n" : '')
		  . ($preload ? "shared_preload_libraries = 'delay_wheel'\n" : '')
		  . ($preload && $ENV{DW_CONF} ? "$ENV{DW_CONF}\n" : '')
		  . ($options{batches} ? "delay_wheel.batch_tasks = 100\n" : '')
		  . ($options{batches} && ($ENV{DW_CONF} // '') =~ /fail_batches/ ? "delay_wheel.fail_batches = 0\n" : '')
		  . ($options{conf} // ''));
	return $node unless $options{start} // 1;

	$node->start;
	if ($preload && ($options{extension} // 1))
	{
		$node->safe_psql('postgres', 'CREATE EXTENSION delay_wheel');
		create_injection($node) if $options{injection};
	}
	return $node;
}

# Waits until the code returns true; false if it did not in time.
sub wait_until
{
	my ($seconds, $code) = @_;
	$seconds = $ENV{DW_WAIT_LIMIT} if $seconds > ($ENV{DW_WAIT_LIMIT} || $seconds);
	# whatever is done to the clock
	my $deadline = clock_gettime(CLOCK_MONOTONIC) + $seconds;

	for (;;)
	{
		return 1 if $code->();
		return 0 if clock_gettime(CLOCK_MONOTONIC) > $deadline;
		sleep(0.05);
	}
}

#
# Like $node->psql, while the server may be restarting: psql that is refused
# ends before it has read the query, which must not end the test.
#
sub try_psql
{
	my ($node, $db, $sql) = @_;
	my @result = eval { $node->psql($db, $sql) };

	return @result if @result;
	die $@ if $@ !~ /Broken pipe/;
	return (2, '', $@);
}

#
# A test: the query comes to return true (or the expected value).  It may fail
# in between: the server may be restarting.
#
sub wait_for
{
	my ($node, $sql, $what, $seconds, %options) = @_;
	my $expected = $options{expected} // 't';
	my $db = $options{db} // 'postgres';
	my ($out, $err) = ('', '');
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	my $done = wait_until(
		$seconds // 60,
		sub {
			(undef, $out, $err) = try_psql($node, $db, $sql);
			return defined $out && $out eq $expected;
		});
	ok($done, $what)
	  or diag("waited for: $sql\nlast answer: " . ($out // '') . "\n" . ($err // ''));
	die "failed: $what\n" if !$done && $ENV{DW_FAIL_FAST};
	return $done;
}

#
# The server's log, from a position on.
#
sub log_position { return -s $_[0]->logfile // 0; }

sub log_since
{
	my ($node, $position) = @_;
	return PostgreSQL::Test::Utils::slurp_file($node->logfile, $position);
}

#
# Injection points, see src/base/inject.c.
#
sub create_injection
{
	my ($node, $db) = @_;

	$node->safe_psql($db // 'postgres', q{
		CREATE FUNCTION dw_inject_attach(text, text, int, int) RETURNS void
			AS 'delay_wheel', 'dw_inject_attach' LANGUAGE C STRICT;
		CREATE FUNCTION dw_inject_detach(text) RETURNS void
			AS 'delay_wheel', 'dw_inject_detach' LANGUAGE C STRICT;
		CREATE FUNCTION dw_inject_waiting(text) RETURNS int
			AS 'delay_wheel', 'dw_inject_waiting' LANGUAGE C STRICT;
	});
	return;
}

sub attach
{
	my ($node, $point, $action, $skip, $hits) = @_;
	$node->safe_psql('postgres',
		sprintf("SELECT dw_inject_attach('%s', '%s', %d, %d)", $point, $action, $skip // 0, $hits // 0));
	return;
}

sub detach
{
	my ($node, $point) = @_;
	$node->safe_psql('postgres', "SELECT dw_inject_detach('$point')");
	return;
}

# A test: so many processes (at least one) have come to wait at the point.
sub wait_until_waiting
{
	my ($node, $point, $what, $n) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return wait_for($node, sprintf("SELECT dw_inject_waiting('%s') >= %d", $point, $n // 1),
		$what // "a process waits at $point");
}

# How often processes have passed a point since the first call.
sub counted
{
	my ($node, $point) = @_;
	return $node->safe_psql('postgres',
		"SELECT dw_inject_waiting('$point') FROM dw_inject_attach('$point', 'count', 0, 0)");
}

#
# Our processes, by kind: launcher, timer, executor; all of them without.
#
sub worker_pids
{
	my ($node, $kind, $db) = @_;
	my $out = $node->safe_psql($db // 'postgres',
		"SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'delay_wheel "
		  . ($kind // '%') . "' ORDER BY pid");

	return split /\n/, $out;
}

#
# How often a process has gone to sleep of its own accord; undef if it is
# gone, or the system does not tell.
#
sub context_switches
{
	my ($pid) = @_;

	open(my $status, '<', "/proc/$pid/status") or return undef;
	while (my $line = <$status>)
	{
		return $1 if $line =~ /^voluntary_ctxt_switches:\s+(\d+)/;
	}
	return undef;
}

#
# PgBouncer before a node, in transaction mode, for these users; undef if it is not installed.
# connstr() is as that of a node; stop() ends it.
#
sub start_pgbouncer
{
	my ($node, $pool_size, @users) = @_;
	my ($program) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';

	return undef unless $program;
	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	append_to_file("$dir/users", join('', map { qq{"$_" ""\n} } @users));
	append_to_file("$dir/ini", join("\n", '[databases]', 'postgres = host=' . $node->host . ' port=' . $node->port . " dbname=postgres pool_size=$pool_size",
		'[pgbouncer]', 'listen_addr =', "unix_socket_dir = $dir", 'listen_port = 6432', 'auth_type = trust', "auth_file = $dir/users",
		'pool_mode = transaction', 'server_reset_query = DISCARD ALL', 'server_reset_query_always = 1', "pidfile = $dir/pid", ''));
	my $job = IPC::Run::start([ $program, '-q', "$dir/ini" ], '>', \my $out, '2>', \my $err);
	wait_until(60, sub { -S "$dir/.s.PGSQL.6432" }) or die 'pgbouncer does not start';
	return bless { job => $job, dir => $dir }, 'DelayWheel::Pooler';
}

package DelayWheel::Pooler
{
	sub dir { return $_[0]{dir}; }
	sub connstr { return "host=$_[0]{dir} port=6432 dbname=$_[1]"; }
	sub stop { $_[0]{job}->signal('INT'); return $_[0]{job}->finish; }
}

#
# A psql that is fed by a pipe, and connects anew when its session is lost: for children of a
# test, which have no use for its node's own.
#
package DelayWheel::Session
{
	use IO::Handle;
	use IPC::Open2;

	sub new { my ($class, $node, $user) = @_; return bless { node => $node, user => $user // 'postgres' }, $class; }

	# The psql, if there is one.
	sub pid { return $_[0]{pid}; }

	# The lines that statements return; undef if the session was lost.
	sub ask
	{
		my ($self, $sql) = @_;
		my @lines;

		if (!defined $self->{pid})
		{
			$self->{pid} = open2($self->{from}, $self->{to}, 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=0',
				'-d', $self->{node}->connstr('postgres'), '-U', $self->{user});
			$self->{to}->autoflush(1);
		}
		if (print { $self->{to} } "$sql;\n\\echo --\n")
		{
			while (defined(my $line = readline $self->{from}))
			{
				chomp $line;
				return \@lines if $line eq '--';
				push @lines, $line;
			}
		}
		close $self->{$_} for qw(to from);
		waitpid($self->{pid}, 0);
		delete $self->{pid};
		return undef;
	}
}

1;
