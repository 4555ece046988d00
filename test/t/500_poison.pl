# Tasks that crash the server, beside innocent ones: the former are set aside
# when they have crashed it twice alone, the latter never; stops that were ordered
# from outside, and crashes of others, blame nobody.
#
#   DW_STOPS     immediate stops (6; 100 if DW_LONG)
#   DW_CRASHES   poison tasks, each of which crashes the server three times (6; 36 if DW_LONG)

use strict;
use warnings;

use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

plan skip_all => 'needs the build with injection points' unless has_injection();

my $poisons = $ENV{DW_CRASHES} // (long_tests() ? 36 : 6);
my $stops = $ENV{DW_STOPS} // (long_tests() ? 100 : 6);
my $limit = 120;
my @dbs = qw(postgres other);
my @roles = qw(alice bob carol);
my $scheduled = 0;

my $node = new_node('poison', injection => 1, batches => 1,
	conf => "restart_after_crash = on\nfsync = off\nmax_worker_processes = 30\nlog_min_messages = log\n");
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('postgres', join ';', map { "CREATE ROLE $_ LOGIN" } @roles);
for my $db (@dbs)
{
	$node->safe_psql($db, 'CREATE EXTENSION IF NOT EXISTS delay_wheel');
	$node->safe_psql($db, q{
		GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO PUBLIC;
		CREATE FUNCTION die(text) RETURNS void AS 'delay_wheel', 'dw_inject_die' LANGUAGE C STRICT;
		CREATE TABLE done (name text, who text DEFAULT current_user, at timestamptz DEFAULT clock_timestamp());
		GRANT INSERT, SELECT ON done TO PUBLIC;
	});
}

my $data = $node->data_dir;

sub q_
{
	my ($sql, $db) = @_;
	return $node->safe_psql($db // 'postgres', $sql);
}

sub wait_up
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, 'SELECT true', $what // 'the server is back', $limit);
}

# Innocent tasks of all roles in both databases, due within some seconds, some of
# which take a while; with and without batches.
sub innocents
{
	my ($n, $over) = @_;
	for my $db (@dbs)
	{
		my $sql = '';
		for my $role (@roles)
		{
			$sql .= "SET ROLE $role; SELECT count(delay_schedule(g * interval '$over' / $n,
				'INSERT INTO done SELECT \$1 FROM pg_sleep(\$2)', 'i' || $scheduled + g, CASE g % 7 WHEN 0 THEN 0.2 ELSE 0 END))
				FROM generate_series(1, $n) g; RESET ROLE;";
		}
		q_($sql, $db);
	}
	$scheduled += $n;
	return;
}

# Each of them was run exactly once, and none has failed.
sub innocents_are_done
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $db (@dbs)
	{
		wait_for($node, q{SELECT count(*) FROM done WHERE name LIKE 'i%'}, "$what: innocent tasks are run in $db", $limit,
			expected => $scheduled * @roles, db => $db);
		is(q_(q{SELECT count(*) FROM (SELECT name, who FROM done GROUP BY name, who HAVING count(*) > 1) d}, $db),
			0, "$what: none twice");
		is(q_(q{SELECT count(*) FROM delay_wheel.failed WHERE sql LIKE 'INSERT%'}, $db), 0, "$what: none has failed");
	}
	return;
}

sub file { return -e "$data/delay_wheel.crashes" ? slurp_file("$data/delay_wheel.crashes") : ''; }

# Nobody is suspected any more.
sub no_suspects
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(wait_until($limit, sub { file() eq '' }), "$what: nobody is suspected") or diag(file());
	return;
}

sub crashes_since
{
	my ($position) = @_;
	my @found = log_since($node, $position) =~ /all server processes terminated; reinitializing/g;
	return scalar @found;
}

#
# Poison of all kinds.
#
my @kinds = qw(segv exit abort kill _exit panic quit exit);
{
	my $position = log_position($node);
	my @ids;

	innocents(40, '12 s');
	for my $i (1 .. $poisons)
	{
		my $kind = $kinds[ ($i - 1) % @kinds ];
		my $role = $roles[ $i % @roles ];
		my $db = $dbs[ $i % @dbs ];
		$kind = '3' if $kind eq 'exit';
		# a task of its own lane, now and then among others that share a transaction
		push @ids, [ $db, q_("SET ROLE $role; SELECT delay_schedule(interval '3 s' + interval '1 s' * ($i % 5), 'SELECT die(''$kind'')')", $db), $kind ];
	}
	for my $poison (@ids)
	{
		my ($db, $id, $kind) = @$poison;
		wait_for($node, "SELECT sqlstate, crashes FROM delay_wheel.failed_task WHERE id = $id",
			"a task that ends its process by $kind is set aside", $limit * 2, expected => 'DW004|3', db => $db);
	}
	is(crashes_since($position), 3 * $poisons, 'after three crashes each');
	innocents_are_done('beside poison');
	no_suspects('after poison');
}

$node->stop;
done_testing();
