# The three nodes of the Patroni test, each in a network namespace, and what is done to
# them: started, killed, frozen, cut off.  The caller is root in the namespace "hub".
package Patroni::Cluster;

use strict;
use warnings;

use DBI;
use HTTP::Tiny;
use JSON::PP;
use POSIX qw(setsid);
use Time::HiRes qw(sleep time);
use Time::Local qw(timegm);

our @nodes = qw(n1 n2 n3);
our %address = (n1 => '10.77.0.11', n2 => '10.77.0.12', n3 => '10.77.0.13');
# the values that Patroni allows at least, so that the test does not take too long
our %timing = (ttl => 20, loop_wait => 2, retry_timeout => 3);

sub new
{
	my ($class, %opt) = @_;
	my ($uid, $gid) = (getpwnam($opt{user}))[ 2, 3 ];
	my $self = bless { %opt, uid => $uid, gid => $gid, pid => {}, read => {}, ready => [] }, $class;

	for my $name (@nodes)
	{
		mkdir "$self->{dir}/$name";
		chown $uid, $gid, "$self->{dir}/$name";
		open(my $out, '>', "$self->{dir}/$name/patroni.yml") or die "cannot write: $!\n";
		# JSON is YAML
		print $out JSON::PP->new->pretty->encode($self->config($name));
		close $out;
	}
	return $self;
}

sub config
{
	my ($self, $name) = @_;
	my $dir = "$self->{dir}/$name";
	my $sync = $self->{mode} eq 'sync' ? JSON::PP::true : JSON::PP::false;

	return {
		scope => 'dw',
		name => $name,
		restapi => { listen => "$address{$name}:8008", connect_address => "$address{$name}:8008" },
		etcd3 => { host => '10.77.0.1:2379' },
		bootstrap => {
			dcs => {
				%timing,
				maximum_lag_on_failover => 16 * 1024 * 1024,
				synchronous_mode => $sync,
				synchronous_mode_strict => $sync,
				postgresql => {
					use_pg_rewind => JSON::PP::true,
					use_slots => JSON::PP::true,
					parameters => { shared_preload_libraries => 'delay_wheel', max_worker_processes => 16 } } },
			initdb => [ { encoding => 'UTF8' }, 'no-locale' ] },
		postgresql => {
			listen => '0.0.0.0:5432',
			connect_address => "$address{$name}:5432",
			data_dir => "$dir/data",
			bin_dir => $self->{bindir},
			pgpass => "$dir/pgpass",
			authentication => {
				superuser => { username => 'postgres', password => 'x' },
				replication => { username => 'replicator', password => 'x' },
				rewind => { username => 'rewinder', password => 'x' } },
			pg_hba => [ 'local all all trust', 'host all all 0.0.0.0/0 trust', 'host replication all 0.0.0.0/0 trust' ],
			parameters => {
				unix_socket_directories => $dir,
				'dw_test.node' => $name,
				log_line_prefix => '%m [%p] %b ',
				log_timezone => 'UTC',
				shared_buffers => '32MB' } } };
}

# A program in the namespace of a node, or in "hub", as the unprivileged user.
sub spawn
{
	my ($self, $space, $log, @command) = @_;
	my $pid = fork() // die "cannot fork: $!\n";

	return $pid if $pid;
	setsid();
	chdir $self->{dir};
	open(STDIN, '<', '/dev/null');
	open(STDOUT, '>>', $log) or die "cannot write $log: $!\n";
	open(STDERR, '>&', \*STDOUT);
	exec 'nsenter', "--net=/run/netns/$self->{prefix}$space", "--setuid=$self->{uid}", "--setgid=$self->{gid}", '--',
	  'env', 'PYTHONUNBUFFERED=1', "HOME=$self->{dir}", @command
	  or die "cannot start $command[0]: $!\n";
}

sub start_etcd
{
	my ($self) = @_;

	$self->{etcd} = $self->spawn('hub', "$self->{dir}/etcd.log", 'etcd', '--data-dir', "$self->{dir}/etcd",
		'--listen-client-urls', 'http://10.77.0.1:2379', '--advertise-client-urls', 'http://10.77.0.1:2379',
		'--listen-peer-urls', 'http://127.0.0.1:2380');
	return $self->until_('etcd', 60, sub { HTTP::Tiny->new(timeout => 2)->get('http://10.77.0.1:2379/health')->{success} });
}

sub start
{
	my ($self, $name) = @_;

	$self->{pid}{$name} = $self->spawn($name, "$self->{dir}/$name/log", 'patroni', "$self->{dir}/$name/patroni.yml");
	return;
}

# Waits for a condition; dies if that takes too long.  Returns what the condition returned.
sub until_
{
	my ($self, $what, $limit, $condition) = @_;
	my $end = time() + $limit;

	while (time() < $end)
	{
		my $result = eval { $condition->() };
		return $result if $result;
		sleep 0.1;
	}
	die "waited $limit s for $what\n";
}

sub timing
{
	my ($self, $name) = @_;

	return $timing{$name};
}

sub dsn
{
	my ($self, $host, $database) = @_;

	return "dbname=$database;host=$host;port=5432";
}

sub connection
{
	my ($self, $name, $database) = @_;

	return DBI->connect('dbi:Pg:' . $self->dsn($address{$name}, $database // 'postgres') . ';connect_timeout=2',
		'postgres', '', { RaiseError => 1, PrintError => 0, PrintWarn => 0 });
}

# Statements as the superuser.
sub execute
{
	my ($self, $name, $sql, $database) = @_;
	my $dbh = $self->connection($name, $database);

	$dbh->do($sql);
	$dbh->disconnect;
	return;
}

# Rows of a query as the superuser; dies if the node does not answer.
sub query
{
	my ($self, $name, $sql, $database) = @_;
	my $dbh = $self->connection($name, $database);
	my $rows = $dbh->selectall_arrayref($sql);
	$dbh->disconnect;
	return $rows;
}

# The names of leader, replicas and synchronous standby, as Patroni has them; of the
# node that is asked, or of any.
sub members
{
	my ($self) = @_;

	for my $name (@nodes)
	{
		my $answer = HTTP::Tiny->new(timeout => 2)->get("http://$address{$name}:8008/cluster");
		next unless $answer->{success};
		my $members = decode_json($answer->{content})->{members};
		return { map { $_->{name} => $_ } @$members };
	}
	return {};
}

# The leader if all nodes are well, else undef.
sub stable_leader
{
	my ($self) = @_;
	my $members = $self->members;
	my @leaders = grep { $_->{role} eq 'leader' } values %$members;
	my $well = grep { $_->{state} =~ /^(running|streaming)$/ } values %$members;
	my $wanted = $self->{mode} eq 'sync' ? 1 : 0;

	return if @leaders != 1 || $well != @nodes;
	my $leader = $leaders[0]{name};
	my $row = $self->query($leader, <<'END')->[0];
SELECT pg_is_in_recovery(), count(*), count(*) FILTER (WHERE sync_state = 'sync')
FROM pg_stat_replication WHERE state = 'streaming' AND application_name ~ '^n[123]$'
END
	return if $row->[0] || $row->[1] != @nodes - 1 || $row->[2] < $wanted;
	return if $wanted && !grep { $_->{role} eq 'sync_standby' } values %$members;
	return $leader;
}

# When servers that came out of recovery were ready, as they say themselves: new lines of
# their logs are read.  Returns [time, node] for those since then.
sub promotions
{
	my ($self, $since) = @_;

	for my $name (@nodes)
	{
		open(my $log, '<', "$self->{dir}/$name/log") or next;
		my $state = $self->{read}{$name} //= { at => 0, promoted => 0 };
		seek $log, $state->{at}, 0;
		while (my $line = <$log>)
		{
			last unless $line =~ /\n\z/;
			$state->{at} += length $line;
			$state->{promoted} = 1 if $line =~ /LOG:  archive recovery complete/;
			next unless $state->{promoted} && $line =~ /LOG:  database system is ready to accept connections/;
			$state->{promoted} = 0;
			push @{ $self->{ready} }, [ log_time($line), $name ];
		}
	}
	return grep { $_->[0] >= $since } sort { $a->[0] <=> $b->[0] } @{ $self->{ready} };
}

sub log_time
{
	my ($line) = @_;
	my ($y, $mo, $d, $h, $mi, $s) = $line =~ /^(\d+)-(\d+)-(\d+) (\d+):(\d+):([\d.]+)/ or return 0;

	return timegm(int $s, $mi, $h, $d, $mo - 1, $y) + $s - int $s;
}

#
# What is done to nodes
#

sub postmaster
{
	my ($self, $name) = @_;

	open(my $in, '<', "$self->{dir}/$name/data/postmaster.pid") or die "$name has no postmaster\n";
	chomp(my $pid = <$in>);
	return $pid;
}

sub kill_postmaster
{
	my ($self, $name) = @_;

	kill 'KILL', $self->postmaster($name);
	return;
}

sub kill_node
{
	my ($self, $name) = @_;
	my $postmaster = $self->postmaster($name);

	kill 'KILL', $self->{pid}{$name}, $postmaster;
	waitpid $self->{pid}{$name}, 0;
	return;
}

sub freeze
{
	my ($self, $name) = @_;

	kill 'STOP', $self->{pid}{$name};
	return;
}

# What hangs is killed, and started again, while its server goes on; as systemd or a
# watchdog would.  It is not woken: see README.md.
sub restart_patroni
{
	my ($self, $name) = @_;

	kill 'KILL', $self->{pid}{$name};
	waitpid $self->{pid}{$name}, 0;
	$self->start($name);
	return;
}

# The other end of the node's line leaves the bridge: packets go nowhere, and nobody is
# told.  Programs within the node's namespace go on.
sub cut
{
	my ($self, $name) = @_;

	system('ip', '-n', "$self->{prefix}hub", 'link', 'set', $name, 'nomaster') == 0 or die "cannot cut $name off\n";
	return;
}

sub heal
{
	my ($self, $name) = @_;

	system('ip', '-n', "$self->{prefix}hub", 'link', 'set', $name, 'master', 'bridge0') == 0 or die "cannot heal $name\n";
	return;
}

sub switchover
{
	my ($self, $leader) = @_;
	my $answer = HTTP::Tiny->new(timeout => 60)->post("http://$address{$leader}:8008/switchover",
		{ content => encode_json({ leader => $leader }), headers => { 'content-type' => 'application/json' } });

	die "switchover: $answer->{content}\n" unless $answer->{success};
	return;
}

1;
