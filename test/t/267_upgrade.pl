# pg_upgrade, with the library preloaded in both clusters: tasks and their
# owners are carried, nothing runs meanwhile, and afterwards only when it is
# armed.
#
# DW_OLD_BINDIR and DW_NEW_BINDIR name other PostgreSQLs than the one under
# test, with delay_wheel installed.

use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($bindir) = run_command([ $ENV{PG_CONFIG} // 'pg_config', '--bindir' ]);
my ($old_bindir, $new_bindir) = ($ENV{DW_OLD_BINDIR}, $ENV{DW_NEW_BINDIR});
my $old = new_node('old', $old_bindir ? (bindir => $old_bindir) : (), conf => "log_statement = none\n");

my $n = 2000;
$old->safe_psql('postgres', qq{
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO PUBLIC;
	CREATE ROLE anna LOGIN;
	CREATE ROLE "Bert ""B""" LOGIN;
	CREATE ROLE dropped LOGIN;
	CREATE TABLE effects (label text, who name DEFAULT current_user);
	GRANT ALL ON effects TO PUBLIC;
	SET SESSION AUTHORIZATION anna;
	SELECT delay_schedule('1 hour', 'INSERT INTO public.effects VALUES (\$1)', i::text) FROM generate_series(1, $n) i;
	SELECT delay_schedule('0', 'SELECT 1 / 0');
	SET SESSION AUTHORIZATION "Bert ""B""";
	SELECT delay_schedule('1 hour', 'INSERT INTO public.effects VALUES (\$1)', 'Bert''s');
	RESET SESSION AUTHORIZATION;
	INSERT INTO delay_wheel.task (due, origin, owner, sql) VALUES (now(), 1, 'dropped', 'SELECT 1');
	DROP ROLE dropped;
});
wait_for($old, 'SELECT count(*) FROM delay_wheel.failed_task', 'one task fails', 60, expected => 1);

# Each database is for itself.
$old->safe_psql('postgres', 'CREATE DATABASE second');
$old->safe_psql('second', q{CREATE EXTENSION delay_wheel; SELECT delay_schedule('1 hour', 'CREATE TABLE effects ()')});

# All are overdue when the upgrade begins.
$old->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$old->restart;
$old->safe_psql($_, q{UPDATE delay_wheel.task SET due = now() - interval '1 day'}) for qw(postgres second);
my $rows = q{SELECT md5(string_agg(to_jsonb(t)::text || owner::oid, ';' ORDER BY id)) FROM delay_wheel.};
my @before = map { $old->safe_psql('postgres', "$rows$_ t") } qw(task failed_task);
my $last = $old->safe_psql('postgres', 'SELECT max(id) FROM delay_wheel.task');
$old->append_conf('postgresql.conf', "shared_preload_libraries = 'delay_wheel'\n");
$old->stop;

my $new = new_node('new', $new_bindir ? (bindir => $new_bindir) : (), start => 0,
	conf => "log_statement = none\n",
	# the default from 18 on, which an older cluster does not have
	init => [ ($old->pg_version < 18 && `"@{[ $new_bindir // $bindir ]}/initdb" --help` =~ /--no-data-checksums/)
		? (extra => ['--no-data-checksums']) : () ]);

# it leaves a script in the current directory
command_ok(
	[
		'sh', '-c', 'cd "$0" && exec "$@"', PostgreSQL::Test::Utils::tempdir(),
		($new_bindir // $bindir) . '/pg_upgrade', '--no-sync',
		'-d', abs_path($old->data_dir), '-D', abs_path($new->data_dir),
		'-b', $old_bindir // $bindir, '-B', $new_bindir // $bindir,
		'-s', $new->host, '-p', $old->port, '-P', $new->port ],
	'pg_upgrade');

my $position = log_position($new);
$new->start;
wait_for($new, q{SELECT unarmed FROM delay_wheel.status WHERE database = 'postgres'}, 'the view status tells', 60);
like(log_since($new, $position), qr/WARNING:.*database "postgres" holds tasks that came with a copy/, 'so does the log');
my @after = map { $new->safe_psql('postgres', "$rows$_ t") } qw(task failed_task);
is_deeply(\@after, \@before, 'all tasks are carried, with their owners');
cmp_ok(
	$new->safe_psql('postgres', q{SELECT delay_schedule('0', $$INSERT INTO effects VALUES ('new')$$)}),
	'>', $last, 'the numbers of tasks go on');
wait_for($new, q{SELECT count(*) FROM effects WHERE label = 'new'}, 'a new task runs', 60, expected => 1);
is($new->safe_psql('postgres', 'SELECT count(*) FROM effects'), 1, 'no other has, neither during the upgrade');
is($new->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.tasks WHERE armed'), 0, 'they are not armed');

my ($rc, $out, $err) = $new->psql('postgres', 'SELECT delay_arm()');
is($out, $n + 1, 'they are armed');
like($err, qr/WARNING:  1 task is left unarmed, since its owner does not exist/, 'but for that of a role which was dropped');
wait_for($new, 'SELECT count(*) FROM delay_wheel.task', 'they run', 120, expected => 1);
is( $new->safe_psql('postgres', q{SELECT who, count(*), count(DISTINCT label) FROM effects WHERE label <> 'new' GROUP BY 1 ORDER BY 1}),
	"Bert \"B\"|1|1\nanna|$n|$n", 'each once, as its owner');
is($new->safe_psql('second', 'SELECT count(*) FROM delay_wheel.task'), 1, 'each database is armed by itself');
is($new->safe_psql('second', 'SELECT delay_arm()'), 1, 'so is this one');
wait_for($new, q{SELECT to_regclass('effects') IS NOT NULL}, 'its task runs', 60, db => 'second');

done_testing();
