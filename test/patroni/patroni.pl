#!/usr/bin/env perl
#
# The Patroni test with one setting of synchronous_mode: starts etcd, three nodes and
# clients, does the faults one after the other, and has the end checked.  See README.md.
#
#   patroni.pl --mode sync|async --rounds N --dir DIR --bindir DIR --prefix NAME
#              --user NAME [--kinds LIST]
#
# To be run as root in the namespace NAMEhub, which test/patroni/run has made.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../chaos";
use Chaos::Lines;
use DBI;
use Getopt::Long;
use Patroni::Check;
use Patroni::Cluster;
use Time::HiRes qw(sleep time);

# A round has each of these once, in this order.
my @round = qw(switchover kill_postmaster cut switchover kill_node freeze_cut freeze);
# How long the old leader stays isolated after another one was promoted.
my $split = 10;
# Limit of all that is waited for.
my $patience = 180;

my %opt = (rounds => 1);
GetOptions(\%opt, 'mode=s', 'rounds=i', 'dir=s', 'bindir=s', 'prefix=s', 'user=s', 'kinds=s')
  or die "usage: see the head of $0\n";
@round = split /,/, $opt{kinds} if $opt{kinds};
my $begun = time();
my $cluster = Patroni::Cluster->new(map { $_ => $opt{$_} } qw(mode dir bindir prefix user));
my $check = Patroni::Check->new(mode => $opt{mode}, dir => $opt{dir}, cluster => $cluster);
my (@faults, @clients);
$| = 1;

sub say_
{
	printf "%7.1f  %s\n", time() - $begun, "@_";
	return;
}

#
# Set up
#

sub make_database
{
	my ($leader) = @_;

	$cluster->execute($leader, 'CREATE ROLE app LOGIN');
	$cluster->execute($leader, 'CREATE DATABASE app OWNER app');
	$cluster->execute($leader, <<'END', 'app');
CREATE EXTENSION delay_wheel;
SELECT delay_wheel.allow('app');
CREATE TABLE marker (token text, kind text, due timestamptz);
CREATE TABLE effect (token text, due timestamptz, ran timestamptz DEFAULT clock_timestamp(),
	node text DEFAULT current_setting('dw_test.node'));
CREATE INDEX ON effect (ran);
ALTER TABLE marker OWNER TO app;
ALTER TABLE effect OWNER TO app;
SELECT delay_wheel.create_queue('inside', external => true, users => '{app}', receivers => '{app}', max_attempts => 1000);
SELECT delay_wheel.create_queue('outside', external => true, users => '{app}', receivers => '{app}', max_attempts => 1000, options => '{"lease": "15 s"}');
SET ROLE app;
CREATE FUNCTION put(token text, kind text, seconds float8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	due timestamptz := clock_timestamp() + make_interval(secs => seconds);
BEGIN
	INSERT INTO marker VALUES (token, kind, due);
	IF kind = 'task' THEN
		PERFORM delay_schedule_at(due, 'INSERT INTO effect (token, due) VALUES ($1, $2)', token, due);
	ELSE
		PERFORM delay_send(kind, jsonb_build_object('token', token, 'due', due), due => due);
	END IF;
END $$;
END
	return;
}

# Clients in the hub, which look for the leader, and clients beside each node, which
# know that one only.
sub start_clients
{
	my $any = join ',', map { $Patroni::Cluster::address{$_} } @Patroni::Cluster::nodes;
	my @wanted = map { [ 'hub', $_, $any, 45 ] } qw(schedule schedule schedule inside outside);

	for my $name (@Patroni::Cluster::nodes)
	{
		push @wanted, map { [ $name, $_, '127.0.0.1', 30 ] } qw(schedule inside outside);
	}
	for my $wish (@wanted)
	{
		my ($space, $kind, $host, $rate) = @$wish;
		my $name = "$space-" . @clients;

		push @clients, { space => $space, name => $name, kind => $kind, journal => "$opt{dir}/journal.$name" };
		$clients[-1]{pid} = $cluster->spawn($space, "$opt{dir}/clients.log", $^X, "$FindBin::RealBin/client.pl", '--kind', $kind,
			'--dsn', $cluster->dsn($host, 'app'), '--name', $name, '--journal', $clients[-1]{journal},
			'--stop', "$opt{dir}/stop.$kind", '--rate', $rate);
	}
	return;
}

sub stop_clients
{
	my ($kind) = @_;

	open(my $out, '>', "$opt{dir}/stop.$kind") or die "cannot write: $!\n";
	close $out;
	waitpid $_->{pid}, 0 for grep { $_->{kind} eq $kind } @clients;
	return;
}

#
# Faults
#

# The first promotion since then, of another node if one is named.
sub wait_promotion
{
	my ($since, $not) = @_;

	return $cluster->until_('a promotion', $patience,
		sub { (grep { $_->[1] ne ($not // '') } $cluster->promotions($since))[0] });
}

# The old leader is cut off, or nobody renews its key, or both, while its own clients go
# on.  It is looked at each half second until it is brought back.
sub isolate
{
	my ($fault, $leader, %how) = @_;
	my $end;

	$cluster->freeze($leader) if $how{freeze};
	$cluster->cut($leader) if $how{cut};
	# its standbys still answer a leader that is only frozen, until one of them is promoted
	$fault->{isolated} = time() if $how{cut};
	until ($end && time() > $end)
	{
		$check->peek($fault, $leader) if $fault->{isolated};
		sleep 0.4;
		my ($new) = grep { $_->[1] ne $leader } $cluster->promotions($fault->{at});
		$fault->{isolated} //= $new->[0] if $new;
		$end //= time() + $split if $new;
		die "waited $patience s for another leader\n" if time() > $fault->{at} + $patience;
	}
	$fault->{healed} = time();
	$cluster->heal($leader) if $how{cut};
	$cluster->restart_patroni($leader) if $how{freeze};
	return wait_promotion($fault->{at}, $leader);
}

my %do = (
	switchover => sub {
		my ($fault, $leader) = @_;
		$cluster->switchover($leader);
		return wait_promotion($fault->{at}, $leader);
	},
	kill_postmaster => sub {
		my ($fault, $leader) = @_;
		$cluster->kill_postmaster($leader);
		return wait_promotion($fault->{at});
	},
	kill_node => sub {
		my ($fault, $leader) = @_;
		$cluster->kill_node($leader);
		my $new = wait_promotion($fault->{at}, $leader);
		$cluster->start($leader);
		return $new;
	},
	cut => sub { return isolate(@_, cut => 1) },
	freeze => sub { return isolate(@_, freeze => 1) },
	freeze_cut => sub { return isolate(@_, freeze => 1, cut => 1) });

sub do_fault
{
	my ($kind) = @_;
	my $leader = $cluster->until_('a whole cluster', $patience, sub { $cluster->stable_leader });
	my %fault = (kind => $kind, old => $leader);

	# tasks that become due meanwhile are there
	sleep 4;
	$fault{at} = time();
	my $new = $do{$kind}->(\%fault, $leader);
	@fault{qw(promoted new)} = @$new;
	$cluster->until_('a whole cluster again', $patience, sub { $cluster->stable_leader });
	$fault{back} = time();
	push @faults, \%fault;
	say_(sprintf '%-16s %s to %s, promoted after %.1f s, whole again after %.1f s',
		$kind, $leader, $fault{new}, $fault{promoted} - $fault{at}, $fault{back} - $fault{at});
	return;
}

#
# The end
#

sub drain
{
	stop_clients('schedule');
	my $leader = $cluster->until_('a whole cluster', $patience, sub { $cluster->stable_leader });
	$cluster->until_('all tasks and messages', $patience,
		sub { $cluster->query($leader, 'SELECT count(*) FROM delay_wheel_data.task', 'app')->[0][0] == 0 });
	stop_clients($_) for qw(inside outside);
	return $leader;
}

sub main
{
	say_(join ', ', map { (split /\n/, qx($_ --version))[0] } "$opt{bindir}/postgres", 'patroni', 'etcd');
	say_("synchronous_mode and synchronous_mode_strict " . ($opt{mode} eq 'sync' ? 'on' : 'off') . ", " . join ', ',
		map { "$_ $Patroni::Cluster::timing{$_} s" } sort keys %Patroni::Cluster::timing);
	$cluster->start_etcd;
	$cluster->start('n1');
	$cluster->until_('the first leader', $patience, sub { $cluster->query('n1', 'SELECT pg_is_in_recovery()')->[0][0] eq '0' });
	$cluster->start($_) for qw(n2 n3);
	make_database($cluster->until_('a whole cluster', $patience, sub { $cluster->stable_leader }));
	start_clients();
	for my $round (1 .. $opt{rounds})
	{
		do_fault($_) for @round;
	}
	my $leader = drain();
	say_('all is done, on ' . $leader);
	return $check->all($leader, \@faults, [ map { $_->{journal} } @clients ]);
}

my $failed = eval { main() };
if (!defined $failed)
{
	say_("FAILED: $@");
	print "0 passed, 1 failed\n";
	$failed = 1;
}
exit($failed ? 1 : 0);
