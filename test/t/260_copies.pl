# Copies of a database: dumps by whoever may make one, restored with and
# without the library, and TEMPLATE. Tasks come along and are not run until
# delay_wheel.arm() is called; then each runs once.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# many databases, each with a timer and executors of several roles
my $conf = q{
max_worker_processes = 100
log_statement = none
delay_wheel.executor_idle_timeout = 1s
};
my $node = new_node('copies', extension => 0, conf => $conf);
my $dir = PostgreSQL::Test::Utils::tempdir();

# What is copied: label and owner of each task.
my %tasks = (one => 'anna', two => 'bert', three => 'Carla "C" Doe', four => 'anna');

my $roles = q{
	CREATE ROLE anna LOGIN;
	CREATE ROLE bert LOGIN;
	CREATE ROLE "Carla ""C"" Doe" LOGIN;
	CREATE ROLE app_owner LOGIN;
	CREATE ROLE reader LOGIN;
	GRANT pg_read_all_data TO reader;
};
my $extension = q{
	CREATE EXTENSION delay_wheel;
	GRANT INSERT ON delay_wheel.tasks TO PUBLIC; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO PUBLIC; GRANT EXECUTE ON FUNCTION delay_wheel.create_queue, delay_wheel.drop_queue, delay_wheel.pause_database, delay_wheel.resume_database, delay_wheel.arm, delay_wheel.follow_shards TO PUBLIC;
};

sub schedule
{
	my ($node, $db, $label, $owner, $delay) = @_;

	(my $role = $owner) =~ s/"/""/g;
	return $node->safe_psql($db, qq{
		SET SESSION AUTHORIZATION "$role";
		SELECT delay_schedule('$delay', 'INSERT INTO public.effects VALUES (\$1)', '$label')});
}

# A new database without anything; returns its name.
my $databases = 0;

sub new_database
{
	my ($node, $owner) = @_;
	my $db = 'copy' . ++$databases;

	$node->safe_psql('postgres', "CREATE DATABASE $db OWNER " . ($owner // 'postgres'));
	return $db;
}

# Labels and owners of a database's tasks, or of what ran, in order.
sub expected
{
	return join "\n", map { "$_|$tasks{$_}" } sort keys %tasks;
}

sub pending
{
	my ($node, $db, $condition) = @_;
	return $node->safe_psql($db, "SELECT args[1], t.owner FROM delay_wheel.tasks t JOIN pg_roles r ON r.rolname = t.owner
		WHERE $condition ORDER BY args[1] COLLATE \"C\"");
}

#
# The copy holds all tasks, unarmed; overdue, they are not run, while new ones
# are; armed, each runs once, as its owner.
#
sub check_copy
{
	my ($node, $db, $what) = @_;
	my $n = keys %tasks;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	subtest $what => sub {
		is(pending($node, $db, 'NOT armed'), expected(), 'all tasks are there, unarmed');
		is(pending($node, $db, 'armed'), '', 'none is armed');
		wait_for($node, "SELECT unarmed FROM delay_wheel.status WHERE database = '$db'",
			'the view status tells', 60, db => $db);
		my $id = $node->safe_psql($db, q{
			UPDATE delay_wheel_data.task SET due = now() - interval '1 hour' * id;
			SELECT max(id) FROM delay_wheel_data.task});
		my $new = schedule($node, $db, 'new', 'anna', '0');
		cmp_ok($new, '>', $id, 'the numbers of tasks go on');
		wait_for($node, "SELECT count(*) FROM effects WHERE label = 'new'", 'a new task runs', 60,
			db => $db, expected => 1);
		is($node->safe_psql($db, 'SELECT count(*) FROM effects'), 1, 'tasks of the copy do not run');
		is($node->safe_psql($db, 'SELECT delay_wheel.arm()'), $n, 'they are armed');
		wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'they run', 60, db => $db, expected => 0);
		is($node->safe_psql($db, q{SELECT * FROM effects WHERE label <> 'new' ORDER BY label COLLATE "C"}),
			expected(), 'each once, as its owner');
		is($node->safe_psql($db, "SELECT delay_wheel.arm(), unarmed FROM delay_wheel.status WHERE database = '$db'"),
			'0|f', 'nothing is left to be armed');
	};
	return;
}

#
# The source.
#
$node->safe_psql('postgres', $roles . 'CREATE DATABASE app OWNER app_owner');
$node->safe_psql('app', $extension . q{
	CREATE TABLE effects (label text, who name DEFAULT current_user);
	ALTER TABLE effects OWNER TO app_owner;
	GRANT ALL ON effects TO PUBLIC;
	-- what is left of a role that was dropped while nobody looked
	INSERT INTO delay_wheel_data.task (due, origin, owner, sql) VALUES (now(), 1, '4294000000', 'SELECT 1');
});
schedule($node, 'app', $_, $tasks{$_}, '1 hour') for sort keys %tasks;

sub dump_as
{
	my ($role, $file, @options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->command_ok([ 'pg_dump', '-U', $role, '-f', "$dir/$file", @options, 'app' ], "pg_dump by $role: $file @options");
	return;
}

dump_as('postgres', 'super.sql');
dump_as('postgres', 'super.dump', '-Fc');
dump_as('app_owner', 'owner.sql');
dump_as('app_owner', 'owner.dump', '-Fc');
dump_as('reader', 'reader.dump', '-Fc');
dump_as('postgres', 'data.sql', '--data-only');
dump_as('reader', 'data.dump', '-Fc', '--data-only');
dump_as('app_owner', 'schema.sql', '--schema-only');
dump_as('postgres', 'inserts.sql', '--inserts');

sub restore_sql
{
	my ($node, $file, $db) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-f', "$dir/$file", $db ],
		"$file is restored");
	return;
}

# Returns what pg_restore had to say if it may fail.
sub restore
{
	my ($node, $file, $db, %options) = @_;
	my @command = ('pg_restore', '-d', $db, @{ $options{options} // [] }, "$dir/$file");
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	if (!$options{fails})
	{
		$node->command_ok(\@command, "$file is restored");
		return;
	}
	my ($stdout, $stderr) = ('', '');
	local %ENV = $node->_get_env();
	ok(!IPC::Run::run([@command], '>', \$stdout, '2>', \$stderr), "$file is restored with errors");
	return $stderr;
}

# An archive's data of the tables of delay_wheel, as a list for pg_restore.
sub list_of_tasks
{
	my ($node, $file) = @_;
	my ($stdout) = run_command([ 'pg_restore', '-l', "$dir/$file" ]);
	my @lines = grep { / (TABLE DATA|SEQUENCE SET) delay_wheel_data / } split /\n/, $stdout;

	PostgreSQL::Test::Utils::append_to_file("$dir/$file.list", join("\n", @lines) . "\n");
	return "$dir/$file.list";
}

# With the library.
for my $file (qw(super.sql owner.sql inserts.sql))
{
	my $db = new_database($node);
	restore_sql($node, $file, $db);
	check_copy($node, $db, $file);
}
for my $file (qw(super.dump owner.dump reader.dump))
{
	my $db = new_database($node);
	restore($node, $file, $db, options => $file eq 'reader.dump' ? ['--single-transaction'] : []);
	check_copy($node, $db, $file);
}
my $position = log_position($node);
my $db = new_database($node);
restore_sql($node, 'schema.sql', $db);
is($node->safe_psql($db, 'SELECT count(*) FROM delay_wheel_data.task'), 0, 'a schema has no tasks');
is($node->safe_psql($db, "SELECT nextval('delay_wheel_data.task_id_seq')"), 1, 'its tasks count from 1');
restore_sql($node, 'data.sql', $db);
check_copy($node, $db, 'schema.sql and data.sql');
$db = new_database($node);
restore_sql($node, 'schema.sql', $db);
restore($node, 'data.dump', $db, options => ['--disable-triggers']);
# which forgets that a trigger is to be fired always
is($node->safe_psql($db, "SELECT tgname FROM pg_trigger WHERE tgrelid = 'delay_wheel_data.task'::regclass AND tgenabled <> 'A' ORDER BY 1"),
	"member_deleted\nmembers_truncated\nperiod_changed\nperiod_deleted\nperiod_truncated\nplain_sql\ntask_changed\ntask_guard", 'ENABLE TRIGGER ALL is not ENABLE ALWAYS');
$node->safe_psql($db, q{
	ALTER TABLE delay_wheel_data.task ENABLE ALWAYS TRIGGER task_guard, ENABLE ALWAYS TRIGGER task_changed;
	ALTER TABLE delay_wheel_data.failed_task ENABLE ALWAYS TRIGGER task_guard;
	-- so that the timer looks
	UPDATE delay_wheel_data.task SET due = due WHERE false});
check_copy($node, $db, 'schema.sql and data.dump, without triggers');

# By the owner of the database, who cannot create the extension.
$db = new_database($node, 'app_owner');
my $stderr = restore($node, 'owner.dump', $db, options => [ '-U', 'app_owner' ], fails => 1);
like($stderr, qr/permission denied to create extension "delay_wheel"/, 'he is told why');
is($node->safe_psql($db, "SELECT count(*) FROM effects"), 0, 'what is his is restored');
$node->safe_psql($db, $extension);
$stderr = restore($node, 'owner.dump', $db,
	options => [ '-U', 'app_owner', '-L', list_of_tasks($node, 'owner.dump') ], fails => 1);
like($stderr, qr/permission denied for table task/, 'he cannot write tasks of others');
restore($node, 'owner.dump', $db, options => [ '-L', "$dir/owner.dump.list" ]);
check_copy($node, $db, 'owner.dump, the tasks by a superuser');

#
# Another cluster, whose roles are not there, without the library.
#
my $other = new_node('other', preload => 0, conf => $conf =~ s/delay_wheel\..*\n//r);
$other->safe_psql('postgres', 'CREATE ROLE app_owner; CREATE ROLE anna LOGIN');
$db = new_database($other);
$stderr = restore($other, 'super.dump', $db, fails => 1);
like($stderr, qr/COPY failed for table "task": ERROR:  role "\S.*" does not exist/, 'owners that do not exist are told');
is($other->safe_psql($db, 'SELECT count(*) FROM delay_wheel_data.task'), 0, 'no task is restored');
$other->safe_psql('postgres', q{CREATE ROLE bert LOGIN; CREATE ROLE "Carla ""C"" Doe" LOGIN});
restore($other, 'super.dump', $db, options => [ '-L', list_of_tasks($node, 'super.dump') ]);
is($other->safe_psql($db, 'SELECT count(*) FROM delay_wheel_data.task'), scalar(keys %tasks), 'with them, all are');
my $sql_db = new_database($other);
restore_sql($other, 'super.sql', $sql_db);
my (undef, undef, $error) = $other->psql($db, 'SELECT delay_wheel.arm()');
like($error, qr/must be loaded via "shared_preload_libraries"/, 'without the library nothing is armed');

$other->append_conf('postgresql.conf', "shared_preload_libraries = 'delay_wheel'\n");
$position = log_position($other);
$other->restart;
for my $copy ($db, $sql_db)
{
	wait_for($other, "SELECT unarmed FROM delay_wheel.status WHERE database = '$copy'",
		'there are tasks to be armed', 60, db => $copy);
	my $log = log_since($other, $position);
	is( scalar(() = $log =~ /WARNING:.*database "$copy" holds tasks that came with a copy/g), 1,
		'a warning at the start');
}
like(log_since($other, $position), qr/HINT:.*WHERE NOT armed.*delay_wheel.arm\(\)/, 'the warning has the remedy');
check_copy($other, $db, 'super.dump, the library came later');
check_copy($other, $sql_db, 'super.sql, the library came later');
$position = log_position($other);
$other->restart;
wait_for($other, "SELECT state FROM delay_wheel.status WHERE database = '$db'", 'after a restart', 60, db => $db,
	expected => 'running');
schedule($other, $db, 'after', 'anna', '0');
wait_for($other, "SELECT count(*) FROM effects WHERE label = 'after'", 'a task runs', 60, db => $db, expected => 1);
unlike(log_since($other, $position), qr/tasks that came with a copy/, 'no more warning');
$other->stop;

#
# TEMPLATE, while nothing is connected to the source.
#
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$node->restart;
$node->safe_psql('postgres', 'CREATE DATABASE template_copy TEMPLATE app');
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'delay_wheel'\n");
$position = log_position($node);
$node->restart;
wait_for($node, "SELECT unarmed FROM delay_wheel.status WHERE database = 'template_copy'", 'the copy has tasks to be armed', 60,
	db => 'template_copy');
is(pending($node, 'app', 'armed'), expected(), 'those of the source are armed');
$node->safe_psql('app', 'SELECT delay_reschedule(id, interval \'0\') FROM delay_wheel.tasks WHERE armed');
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task WHERE origin <> 1', 'they run', 60, db => 'app', expected => 0);
is($node->safe_psql('app', 'SELECT * FROM effects ORDER BY label COLLATE "C"'), expected(), 'each once, as its owner');
like(log_since($node, $position), qr/WARNING:.*database "template_copy" holds tasks that came with a copy/, 'a warning');
# where the row without owner is, too: it is left, and told
my ($rc, $out, $warning) = $node->psql('template_copy', 'SELECT delay_wheel.arm()');
is($out, scalar(keys %tasks), 'the copy is armed, once somebody says so');
like($warning, qr/WARNING:  1 task is left unarmed, since its owner does not exist/, 'a task without owner is left unarmed, with a warning');
$node->safe_psql('template_copy', 'SELECT delay_reschedule(id, interval \'0\') FROM delay_wheel.tasks WHERE armed');
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task WHERE origin <> 1', 'they run', 60, db => 'template_copy', expected => 0);
is($node->safe_psql('template_copy', 'SELECT * FROM effects ORDER BY label COLLATE "C"'), expected(), 'each once, as its owner');
is($node->safe_psql('template_copy', "SELECT unarmed FROM delay_wheel.status WHERE database = 'template_copy'"), 't',
	'the one is still told');

#
# Arming while others change the tasks, whatever the isolation level.
#
$db = new_database($node);
$node->safe_psql($db, $extension . 'CREATE TABLE effects (label text, who name DEFAULT current_user); GRANT ALL ON effects TO PUBLIC; CREATE TABLE result (n bigint)');

sub copied
{
	my ($n, $due) = @_;
	return $node->safe_psql($db, qq{
		INSERT INTO delay_wheel_data.task (due, origin, owner, sql)
			SELECT $due, 1, 'anna', format('INSERT INTO public.effects VALUES (%L)', i) FROM generate_series(1, $n) i});
}

for my $end (qw(COMMIT ROLLBACK))
{
	copied(6, "now() + interval '1 hour'");
	my ($cancelled, $moved) = split /\n/, $node->safe_psql($db, 'SELECT id FROM delay_wheel.tasks ORDER BY id LIMIT 2');
	my $other = $node->background_psql($db, on_error_stop => 1);
	my $arming = $node->background_psql($db, on_error_stop => 1);

	$arming->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM delay_wheel_data.task');
	$other->query_safe("BEGIN; SELECT delay_cancel($cancelled), delay_reschedule($moved, '2 hours')");
	copied(1, "now() + interval '1 hour'");
	$arming->query_until(qr/^started$/m, "\\echo started\nINSERT INTO result SELECT delay_wheel.arm();\nCOMMIT;\n");
	wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE query ~ 'delay_wheel.arm' AND wait_event_type = 'Lock'},
		'arming waits for another session', 60, expected => 1);
	$other->query_safe($end);
	wait_for($node, 'SELECT n FROM result', "after its $end", 60, db => $db, expected => $end eq 'COMMIT' ? 6 : 7);
	is($node->safe_psql($db, 'SELECT count(*) FROM delay_wheel.tasks WHERE NOT armed'), 0, 'all are armed');
	is( $node->safe_psql($db, "SELECT count(*) FILTER (WHERE id = $cancelled), count(*) FILTER (WHERE id = $moved),
			max(due) > now() + interval '90 min' FROM delay_wheel.tasks"),
		$end eq 'COMMIT' ? '0|1|t' : '1|1|f', 'and the other session had its way');
	$other->quit;
	$arming->quit;
	$node->safe_psql($db, 'TRUNCATE result; SELECT delay_cancel(id) FROM delay_wheel.tasks');
}

#
# Very many in front of one's own: they are stepped over, and again after a
# look at everything (which plain SQL makes).
#
$node->append_conf('postgresql.conf', "delay_wheel.max_executors = 1\nautovacuum = off\n");
$node->restart;
copied(200000, "now() - interval '1 day' - i * interval '1 ms'");
wait_for($node, "SELECT unarmed FROM delay_wheel.status WHERE database = '$db'", 'a copy of 200,000 tasks is noticed', 60,
	db => $db);
$node->safe_psql($db, q{INSERT INTO delay_wheel_data.task (due, owner, sql) VALUES (now(), 'anna', $$INSERT INTO public.effects VALUES ('plain SQL')$$)});
schedule($node, $db, 'own', 'anna', '0');
wait_for($node, 'SELECT count(*) FROM effects', 'own tasks run', 60, db => $db, expected => 2);
cmp_ok($node->safe_psql($db, "SELECT lateness_max FROM delay_wheel.status WHERE database = '$db'"), '<', 5000,
	'in time, by a generous limit');
my ($timer) = split /\n/, $node->safe_psql('postgres',
	"SELECT pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND datname = '$db'");
my $before = context_switches($timer);
SKIP:
{
	skip 'the system does not count context switches', 1 unless defined $before;
	sleep 3;
	cmp_ok(context_switches($timer) - $before, '<=', 3, 'the timer sleeps');
}

# Armed, they run in the order of their due times.
is($node->safe_psql($db, "DELETE FROM delay_wheel_data.task WHERE id % 200 <> 0; TRUNCATE effects; SELECT delay_wheel.arm()"), 1000, 'a thousand of them are armed');
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'they run', 120, db => $db, expected => 0);
is( $node->safe_psql($db, q{SELECT count(*), bool_and(place = by_due)
		FROM (SELECT row_number() OVER (ORDER BY ctid) AS place, row_number() OVER (ORDER BY label::int DESC) AS by_due FROM effects) e}),
	'1000|t', 'each once, in the order of their due times');

# A rolled back arming of many is as if nothing had happened.
copied(20000, "now() - interval '1 day'");
is($node->safe_psql($db, 'BEGIN; SELECT delay_wheel.arm(); ROLLBACK'), 20000, 'arming very many, rolled back');
is($node->safe_psql($db, 'SELECT count(*) FROM delay_wheel.tasks WHERE NOT armed'), 20000, 'none is armed');
schedule($node, $db, 'own', 'anna', '0');
wait_for($node, q{SELECT count(*) FROM effects WHERE label = 'own'}, 'an own task runs', 60, db => $db, expected => 1);
is($node->safe_psql($db, 'SELECT count(*) FROM delay_wheel_data.task'), 20000, 'the others do not');
is($node->safe_psql($db, 'SELECT delay_wheel.arm()'), 20000, 'armed after all');
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'they run', 120, db => $db, expected => 0);

done_testing();
