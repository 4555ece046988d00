# A server of the campaign: started, stopped and killed in every way.
package Chaos::Server;

use strict;
use warnings;

use DBI;
use File::Path qw(make_path remove_tree);
use POSIX qw(WNOHANG);
use Time::HiRes qw(sleep time);

# bindir, dir (of its own), sockets, port, libdir, preload, log
sub new
{
	my ($class, %self) = @_;
	my $self = bless {%self}, $class;

	$self->{data} = "$self->{dir}/data";
	$self->{space} = "$self->{dir}/space";
	$self->{log} = "$self->{dir}.log";
	$self->{full} = "$self->{dir}.full";
	return $self;
}

sub program
{
	my ($self, $name, @args) = @_;
	my $pid = fork() // die "fork: $!";

	if ($pid == 0)
	{
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>>', "$self->{dir}.programs");
		open(STDERR, '>&', \*STDOUT);
		exec("$self->{bindir}/$name", @args) or POSIX::_exit(127);
	}
	waitpid($pid, 0);
	return $? == 0;
}

sub init
{
	my ($self, $conf) = @_;

	make_path($self->{dir}, $self->{space});
	$self->program('initdb', '-N', '-A', 'trust', '-U', 'postgres', '--no-locale', '-E', 'UTF8', '--wal-segsize=1',
		'-D', $self->{data})
	  or die "initdb failed, see $self->{dir}.programs\n";
	$self->append($conf);
	$self->append_own();
	return;
}

sub append
{
	my ($self, $conf) = @_;

	open(my $out, '>>', "$self->{data}/postgresql.conf") or die $!;
	print $out $conf;
	close($out);
	return;
}

# What distinguishes it from its copy; the last word counts.
sub append_own
{
	my ($self) = @_;
	return $self->append("port = $self->{port}\nunix_socket_directories = '$self->{sockets}'\ncluster_name = '$self->{name}'\n");
}

# A standby of the other one.
sub init_from
{
	my ($self, $primary) = @_;

	remove_tree($self->{dir});
	make_path($self->{dir});
	$self->program('pg_basebackup', '-h', $primary->{sockets}, '-p', $primary->{port}, '-U', 'postgres', '-D', $self->{data},
		'-c', 'fast', '-X', 'stream', '--no-sync', '-T', "$primary->{space}=$self->{space}")
	  or return 0;
	$self->append_own();
	$self->append("primary_conninfo = 'host=$primary->{sockets} port=$primary->{port} user=postgres application_name=$self->{name}'\n");
	open(my $signal, '>', "$self->{data}/standby.signal") or die $!;
	close($signal);
	return 1;
}

sub postmaster
{
	my ($self) = @_;

	open(my $in, '<', "$self->{data}/postmaster.pid") or return 0;
	my $pid = <$in> // 0;
	$pid =~ s/\D//g;
	return $pid || 0;
}

sub is_alive
{
	my ($self) = @_;
	my $pid = $self->postmaster or return 0;

	open(my $in, '<', "/proc/$pid/cmdline") or return 0;
	return (<$in> // '') =~ /postgres|postmaster/ ? 1 : 0;
}

# Once.  Another server of the same cluster may not be gone yet.
sub start_once
{
	my ($self) = @_;

	local $ENV{LD_PRELOAD} = $self->{preload};
	local $ENV{CHAOS_FULL_DISK} = $self->{full};
	return $self->program('pg_ctl', '-D', $self->{data}, '-l', $self->{log}, '-t', 60, '-w', 'start');
}

sub start
{
	my ($self) = @_;
	my $deadline = time() + 90;

	until ($self->start_once)
	{
		return 0 if time() > $deadline;
		sleep(0.2);
	}
	return 1;
}

sub stop { return $_[0]->program('pg_ctl', '-D', $_[0]->{data}, '-m', $_[1], '-t', 90, '-w', 'stop'); }

sub promote { return $_[0]->program('pg_ctl', '-D', $_[0]->{data}, '-t', 90, '-w', 'promote'); }

sub children
{
	my ($pid) = @_;
	my @children;

	for my $stat (glob('/proc/[0-9]*/stat'))
	{
		open(my $in, '<', $stat) or next;
		my $line = <$in> // next;
		push @children, $1 if $line =~ /^(\d+) \(.*\) \S (\d+)/s && $2 == $pid;
	}
	return @children;
}

# All of its processes at once, as a machine would that loses its power.
sub kill9
{
	my ($self, $postmaster_only) = @_;
	my $pid = $self->postmaster or return;
	my @children = children($pid);

	kill('KILL', $pid, $postmaster_only ? () : @children);
	for (1 .. 600)
	{
		last unless grep { kill(0, $_) && !is_zombie($_) } $pid, @children;
		sleep(0.05);
	}
	return;
}

sub is_zombie
{
	open(my $in, '<', "/proc/$_[0]/stat") or return 1;
	return (<$in> // '') =~ /^\d+ \(.*\) [ZX]/s ? 1 : 0;
}

# undef if it cannot be had.
sub connect
{
	my ($self, $db, $user, %options) = @_;

	return Chaos::Server::connect_to($self->{sockets}, $self->{port}, $db, $user, %options);
}

sub connect_to
{
	my ($host, $port, $db, $user, %options) = @_;
	my $dbh = eval {
		DBI->connect("dbi:Pg:dbname=$db;host=$host;port=$port;connect_timeout=20;application_name=chaos",
			$user // 'postgres', '',
			{ RaiseError => 1, PrintError => 0, PrintWarn => 0, AutoCommit => 1, pg_server_prepare => 0, AutoInactiveDestroy => 1 });
	};

	eval { $dbh->do($_) for @{ $options{first} // [] } } if $dbh;
	return $dbh;
}

# The first row's only column; undef, too, if the server is not there.
sub value
{
	my ($self, $db, $sql, @args) = @_;
	my $dbh = $self->connect($db) or return undef;
	my $value = eval {
		$dbh->do('SET statement_timeout = \'30s\'');
		($dbh->selectrow_array($sql, undef, @args))[0];
	};

	$self->{error} = $@;
	eval { $dbh->disconnect };
	return $value;
}

sub wait_for
{
	my ($self, $seconds, $db, $sql) = @_;
	my $deadline = time() + $seconds;

	while (time() < $deadline)
	{
		return 1 if $self->value($db, $sql);
		sleep(0.1);
	}
	return 0;
}

1;
