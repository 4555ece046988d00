# pg_upgrade, with the library preloaded in both clusters: tasks and their
# owners are carried, and all else, nothing runs meanwhile, and afterwards only
# when it is armed.
#
# DW_OLD_BINDIR and DW_NEW_BINDIR name other PostgreSQLs than the one under
# test, with delay_wheel installed (test/majors/run --upgrade).

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
	GRANT INSERT ON delay_wheel.tasks TO PUBLIC;
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
	INSERT INTO delay_wheel_data.task (due, origin, owner, sql) VALUES (now(), 1, 'dropped', 'SELECT 1');
	DROP ROLE dropped;
});
wait_for($old, 'SELECT count(*) FROM delay_wheel_data.failed_task', 'one task fails', 60, expected => 1);

# Each database is for itself.
$old->safe_psql('postgres', 'CREATE DATABASE second');
$old->safe_psql('second', q{CREATE EXTENSION delay_wheel; SELECT delay_schedule('1 hour', 'CREATE TABLE effects ()')});

# One has everything.
$old->safe_psql('postgres', 'CREATE DATABASE everything');
$old->safe_psql('everything', q{
	CREATE EXTENSION delay_wheel;
	ALTER DATABASE everything SET delay_wheel.history = 'all';
	SELECT delay_wheel.allow('anna');
	CREATE TABLE effects (label text);
	GRANT ALL ON effects TO anna;
	SELECT delay_wheel.create_queue('slow', rate => 1000, max_running => 1, users => '{anna}'), delay_wheel.create_queue('stopped', users => '{anna}');
	SELECT delay_wheel.pause_queue('stopped');
	SET SESSION AUTHORIZATION anna;
	SELECT delay_schedule('0', 'SELECT 1 / 0'), delay_schedule('0', 'SELECT 1');
	SELECT delay_schedule_task('INSERT INTO public.effects VALUES (''key'')', delay => '1 day', key => 'order 1', tag => 'mail', queue => 'slow');
	SELECT delay_schedule_task('INSERT INTO public.effects VALUES (''stopped'')', delay => '1 day', queue => 'stopped');
	SELECT delay_schedule_task('INSERT INTO public.effects VALUES (''marked'')', delay => '1 day', tag => 'marked') FROM generate_series(1, 5);
	SELECT delay_every('each day', '1 day', 'INSERT INTO public.effects VALUES (''recurring'')', starts => now() + interval '1 day')});
wait_for($old, q{SELECT string_agg(outcome, ' ' ORDER BY outcome) FROM delay_wheel.history}, 'there is history', 60,
	db => 'everything', expected => 'done failed');
# a cancellation that comes to no end, since its rows are locked, before the server does
my $open = $old->background_psql('everything');
$open->query_safe(q{BEGIN; SELECT FROM delay_wheel_data.task WHERE tag = 'marked' FOR UPDATE});
$old->safe_psql('everything', q{SELECT delay_cancel_all(tag => 'marked'); CHECKPOINT});

# One has messages, one of them under a lease, and a key whose period lasts.
$old->safe_psql('postgres', 'CREATE DATABASE letters');
$old->safe_psql('letters', q{
	CREATE EXTENSION delay_wheel;
	SELECT delay_wheel.allow('anna');
	SELECT delay_wheel.create_queue('letters', external => true, users => '{anna}', receivers => '{anna}', options => '{"lease": "1 day"}');
	SET SESSION AUTHORIZATION anna;
	SELECT delay_schedule_task('SELECT 1', key => 'welcome 7', options => '{"unique_for": "10 days"}');
	SELECT delay_send('letters', '"leased"', key => 'letter 1');
	SELECT delay_send('letters', '"later"', delay => '1 day')});
my $lease = q{SELECT id || ', ' || token, payload, attempt FROM delay_lease('letters')};
my $leased;
ok(wait_until(60, sub { $leased = $old->safe_psql('letters', "SET SESSION AUTHORIZATION anna; $lease") }), 'a message is leased');
my ($of_lease) = split /[|]/, $leased;
wait_for($old, 'SELECT count(*) FROM delay_wheel_data.task', 'and a key has its period', 60, db => 'letters', expected => 2);

# All are overdue when the upgrade begins.
$old->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$old->stop('immediate');
eval { $open->quit };
$old->start;
$old->safe_psql($_, q{UPDATE delay_wheel_data.task SET due = now() - interval '1 day'}) for qw(postgres second everything);
is($old->safe_psql('everything', q{SELECT count(*) FROM delay_wheel_data.task WHERE tag = 'marked'}), 5, 'tasks are cancelled, and still there');
my @tables = ((map { "delay_wheel_data.$_" } qw(task failed_task queue pause cancellation recurring_task unique_key)), map { "delay_wheel_data.history_$_" } 0 .. 2);
my $rows = q{SELECT md5(string_agg(r, ';' ORDER BY r)) FROM (SELECT to_jsonb(t)::text FROM %s t) _(r)};

sub all_rows
{
	my ($node) = @_;
	return map { my $t = $_; map { "$t " . $node->safe_psql($_, sprintf($rows, $t)) } qw(postgres everything letters) } @tables;
}

my $owners = 'SELECT owner::oid, count(*) FROM delay_wheel_data.task GROUP BY 1 ORDER BY 1';
my @before = (all_rows($old), $old->safe_psql('postgres', $owners));
my $last = $old->safe_psql('postgres', 'SELECT max(id) FROM delay_wheel_data.task');
$old->append_conf('postgresql.conf', "shared_preload_libraries = 'delay_wheel'\n");
$old->stop;

my $new = new_node('new', $new_bindir ? (bindir => $new_bindir) : (), start => 0,
	conf => "log_statement = none\n",
	# the default from 18 on, which an older cluster does not have
	init => [ ($old->pg_version < 18 && `"@{[ $new_bindir // $bindir ]}/initdb" --help` =~ /--no-data-checksums/)
		? (extra => ['--no-data-checksums']) : () ]);

# it leaves a script in the current directory
my $upgraded = run_log(
	[
		'sh', '-c', 'cd "$0" && exec "$@"', PostgreSQL::Test::Utils::tempdir(),
		($new_bindir // $bindir) . '/pg_upgrade', '--no-sync',
		'-d', abs_path($old->data_dir), '-D', abs_path($new->data_dir),
		'-b', $old_bindir // $bindir, '-B', $new_bindir // $bindir,
		'-s', $new->host, '-p', $old->port, '-P', $new->port ]);
ok($upgraded, 'pg_upgrade')
  or do
{
	diag(grep { /error|fatal/i } map { split /^/m, slurp_file($_) } glob($new->data_dir . '/pg_upgrade_output.d/*/log/*'));
	done_testing();
	exit;
};

my $position = log_position($new);
$new->start;
wait_for($new, q{SELECT unarmed FROM delay_wheel.status WHERE database = 'postgres'}, 'the view status tells', 60);
like(log_since($new, $position), qr/WARNING:.*database "postgres" holds tasks that came with a copy/, 'the log warns about tasks of the copy');
is_deeply([ all_rows($new), $new->safe_psql('postgres', $owners) ], \@before, 'all tasks are carried, with their owners, and all else');
cmp_ok(
	$new->safe_psql('postgres', q{SELECT delay_schedule('0', $$INSERT INTO effects VALUES ('new')$$)}),
	'>', $last, 'the numbers of tasks go on');
wait_for($new, q{SELECT count(*) FROM effects WHERE label = 'new'}, 'a new task runs', 60, expected => 1);
is($new->safe_psql('postgres', 'SELECT count(*) FROM effects'), 1, 'no other has, neither during the upgrade');
is($new->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.tasks WHERE armed'), 0, 'they are not armed');

my ($rc, $out, $err) = $new->psql('postgres', 'SELECT delay_wheel.arm()');
is($out, $n + 1, 'they are armed');
like($err, qr/WARNING:  1 task is left unarmed, since its owner does not exist/, 'the task of a dropped role is left unarmed');
wait_for($new, 'SELECT count(*) FROM delay_wheel_data.task', 'they run', 120, expected => 1);
is( $new->safe_psql('postgres', q{SELECT who, count(*), count(DISTINCT label) FROM effects WHERE label <> 'new' GROUP BY 1 ORDER BY 1}),
	"Bert \"B\"|1|1\nanna|$n|$n", 'each once, as its owner');
is($new->safe_psql('second', 'SELECT count(*) FROM delay_wheel_data.task'), 1, 'each database is armed by itself');
is($new->safe_psql('second', 'SELECT delay_wheel.arm()'), 1, 'the second database is armed');
wait_for($new, q{SELECT to_regclass('effects') IS NOT NULL}, 'its task runs', 60, db => 'second');

# The one that has everything.
my $q = sub { return $new->safe_psql('everything', $_[0]) };
wait_for($new, q{SELECT unarmed FROM delay_wheel.status WHERE database = 'everything'}, 'everything: the view status tells', 60, db => 'everything');
ok(wait_until(60, sub { log_since($new, $position) =~ /WARNING:.*database "everything" holds tasks that came with a copy/ }), 'everything: the log warns about tasks of the copy');
is($q->('SELECT count(*) FROM delay_wheel.tasks WHERE armed'), 0, 'nothing is armed');
is($q->('SELECT name, state FROM delay_wheel.recurring'), 'each day|unarmed', 'the recurring task is not armed');
is($q->(q{SELECT state FROM delay_wheel.cancellations}), 'unarmed', 'the cancellation came along');
is($q->(q{SELECT name, rate, max_running, paused FROM delay_wheel.queues WHERE name IN ('slow', 'stopped') ORDER BY name}),
	"slow|1000|1|f\nstopped|||t", 'queues came along with their limits and a pause');
$q->(q{SET SESSION AUTHORIZATION anna; SELECT delay_schedule('0', 'INSERT INTO public.effects VALUES (''new'')')});
wait_for($new, q{SELECT string_agg(label, ' ') FROM effects}, 'a new task runs, no other has', 60, db => 'everything', expected => 'new');
cmp_ok($q->('SELECT delay_wheel.arm()'), '>=', 2, 'armed');
wait_for($new, q{SELECT string_agg(label, ' ' ORDER BY label) FROM effects}, 'what may run does, once, the recurring task, too', 60,
	db => 'everything', expected => 'key new recurring');
wait_for($new, 'SELECT state FROM delay_wheel.recurring', 'which waits for its next run', 60, db => 'everything', expected => 'waiting');
$q->(q{SELECT delay_wheel.resume_queue('stopped')});
wait_for($new, q{SELECT count(*) FROM delay_wheel.history WHERE outcome = 'done'}, 'what was paused runs when that ends; there is history of all', 60,
	db => 'everything', expected => 5);
is($q->(q{SELECT string_agg(label, ' ' ORDER BY label) FROM effects}), 'key new recurring stopped', 'each once');
wait_for($new, q{SELECT count(*) FROM delay_wheel_data.task WHERE tag = 'marked'}, 'what was cancelled is removed', 60, db => 'everything', expected => 0);
wait_for($new, 'SELECT count(*) FROM delay_wheel.cancellations', 'the cancellation has come to its end', 60, db => 'everything', expected => 0);
is($q->('SELECT count(*) FROM delay_wheel.failed'), 1, 'no task has failed again');
is($q->(q{SELECT unarmed FROM delay_wheel.status WHERE database = 'everything'}), 'f', 'nothing is left to be armed');

# Messages and keys.
sub letter
{
	my ($sql) = @_;
	return $new->safe_psql('letters', "SET SESSION AUTHORIZATION anna; $sql");
}

wait_for($new, q{SELECT unarmed FROM delay_wheel.status WHERE database = 'letters'}, 'letters: the view status tells', 60, db => 'letters');
is(letter($lease), '', 'nothing is received');
is($new->safe_psql('letters', 'SELECT delay_wheel.arm()'), 2, 'armed');
is(letter("SELECT delay_done($of_lease)"), 'f', 'a lease of before has ended');
ok(wait_until(60, sub { $leased = letter($lease) }), 'its message is due again');
my ($of_next) = split /[|]/, $leased;
like($leased, qr/[|]"leased"[|]2$/, 'as the second attempt');
is(letter("SELECT delay_done($of_next)"), 't', 'it is done');
is($new->safe_psql('letters', 'SELECT payload FROM delay_wheel.tasks'), '"later"', 'the other one waits');
is(letter(q{SELECT outcome FROM delay_scheduled(delay_schedule_task('SELECT 1', key => 'welcome 7', options => '{"unique_for": "10 days"}'))}), 'refused', 'the period of a key goes on');

done_testing();
