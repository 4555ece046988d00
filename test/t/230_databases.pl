# Many databases: each that has the extension is served, without a list of
# them; new ones are found; and what happens when there are more than places.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('databases', conf => q{
max_worker_processes = 40
delay_wheel.max_databases = 3
delay_wheel.executor_idle_timeout = 200ms
});
my $full = qr/WARNING: \s+ delay_wheel\ has\ no\ place\ for\ another\ database:\ the\ limit\ of\ 3\ is\ reached \s+
	DETAIL: \s+ Tasks\ of\ this\ database\ wait\ until\ there\ is\ a\ place\. \s+
	HINT: \s+ Increase\ "delay_wheel\.max_databases"\ and\ restart\ the\ server\./x;

sub sql
{
	my ($db, $sql) = @_;
	my ($out, $err);

	$node->psql($db, $sql, stdout => \$out, stderr => \$err, on_error_die => 0);
	return ($out, $err);
}

sub served
{
	return $node->safe_psql('postgres', q{
		SELECT string_agg(database, ' ' ORDER BY database) FROM delay_wheel.status WHERE state = 'running'});
}

sub are_served
{
	my ($names, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return wait_for($node, q{
		SELECT string_agg(database, ' ' ORDER BY database) FROM delay_wheel.status WHERE state = 'running'},
		$what, 60, expected => $names);
}

sub schedule
{
	my ($db, $text) = @_;
	return sql($db, "SELECT delay_schedule('0', 'INSERT INTO effect VALUES (''$text'')')");
}

sub has_run
{
	my ($db, $text, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, "SELECT count(*) FROM effect WHERE name = '$text'", $what, 60, db => $db, expected => 1);
}

sub count_in_log
{
	my ($position, $pattern) = @_;
	return scalar(() = log_since($node, $position) =~ /$pattern/g);
}

# more databases than places, but few with the extension: no matter
$node->safe_psql('postgres', "CREATE DATABASE plain$_") for 1 .. 6;
$node->safe_psql('postgres', "CREATE DATABASE db$_") for 1 .. 5;
for my $db (1 .. 2)
{
	my ($out, $err) = sql("db$db", 'CREATE EXTENSION delay_wheel; CREATE TABLE effect (name text)');
	is($err, '', "the extension is created in db$db");
}
are_served('db1 db2 postgres', 'databases are served as soon as they have the extension');
schedule('db1', 'a');
has_run('db1', 'a', 'a task runs there');

#
# One too many.
#
my $position = log_position($node);
my ($out, $err) = sql('db3', q{
	CREATE EXTENSION delay_wheel;
	CREATE TABLE effect (name text);
	SELECT delay_schedule('0', 'INSERT INTO effect VALUES (''a'')');
	SELECT delay_schedule('1 day', 'SELECT 1')});
like($err, $full, 'the extension is created in a database that has no place, with a warning');
is(scalar(() = $err =~ /WARNING/g), 1, 'once for a session');
is($node->safe_psql('db3', 'SELECT count(*) FROM delay_wheel_data.task'), 2, 'its tasks are there');
($out, $err) = schedule('db3', 'b');
like($out, qr/^\d+$/, 'a new session schedules, too');
like($err, $full, 'and is warned');
my $id = $out;
is($node->safe_psql('db3', "SELECT delay_reschedule($id, '1 hour'), delay_cancel($id), delay_cancel($id)"),
	'moved|cancelled|gone', 'a task can be moved and cancelled');
is($node->safe_psql('db3', "BEGIN; SAVEPOINT s; SELECT delay_cancel(1); ROLLBACK TO s; SELECT delay_cancel(2); ROLLBACK"),
	"cancelled\ncancelled", 'cancellations are rolled back');
is($node->safe_psql('db3', q{
	BEGIN;
	SELECT delay_wheel.create_queue('mail');
	SELECT delay_schedule_task('SELECT 1', queue => 'mail', due => '2020-01-01') > 0;
	SELECT delay_run_due('2020-01-02', as_executor => true);
	ROLLBACK}), "t\nt\n1", 'a task of a queue runs at once, as by an executor');
$node->safe_psql('db3', q{BEGIN; SELECT delay_schedule('0', 'INSERT INTO effect VALUES (''c'')'); PREPARE TRANSACTION 'c'});
$node->safe_psql('db3', q{COMMIT PREPARED 'c'});
is($node->safe_psql('db3', q{SELECT state FROM delay_wheel.status WHERE database = current_database()}),
	'no place', 'the view shows it');
is($node->safe_psql('db3', 'SELECT count(*) FROM delay_wheel.status'), 4, 'besides the others');
ok(wait_until(60, sub { count_in_log($position, 'LOG:  delay_wheel has no place for another database') >= 1 }),
	'the log tells of it');
schedule('db3', 'd');
schedule('db1', 'b');
has_run('db1', 'b', 'the others are served as before');
is($node->safe_psql('db3', 'SELECT count(*) FROM effect'), 0, 'nothing has run there');
is(count_in_log($position, 'LOG:  delay_wheel has no place for another database'), 1, 'the log has told of it once');

#
# A place is given back.
#
$node->safe_psql('db1', 'DROP EXTENSION delay_wheel');
are_served('db2 db3 postgres', 'then the database that waits gets it');
has_run('db3', 'a', 'its tasks run');
has_run('db3', $_, "so do those of others: $_") for qw(c d);
is($node->safe_psql('db3', 'SELECT count(*) FROM delay_wheel_data.task'), 1, 'what is to be run later, waits');
my $warnings = (schedule('db3', 'e'))[1];
is($warnings, '', 'there is no warning any more');
has_run('db3', 'e', 'a new one runs, too');

# by a database that goes, to one that has been waiting since before
($out, $err) = sql('db4', q{CREATE EXTENSION delay_wheel; CREATE TABLE effect (name text)});
like($err, $full, 'there is no place for db4');
schedule('db4', 'a');
$node->safe_psql('postgres', 'DROP DATABASE db2');
are_served('db3 db4 postgres', 'a dropped database gives its place to db4');
has_run('db4', 'a', 'its task runs');

# which it does, too, if it is scheduled in the very session that was turned
# away and committed when there was a place
($out, $err) = sql('db5', q{CREATE EXTENSION delay_wheel; CREATE TABLE effect (name text)});
like($err, $full, 'there is no place for db5');
my $session = $node->background_psql('db5', on_error_stop => 0);
$session->query(q{BEGIN; SELECT delay_schedule('0', 'INSERT INTO effect VALUES (''late'')')});
$node->safe_psql('postgres', 'DROP DATABASE db4');
are_served('db3 db5 postgres', 'then there is');
$session->query('COMMIT');
$session->quit;
has_run('db5', 'late', 'a task runs that was scheduled when there was none');

#
# A restart: those that have the extension get the places.  The log tells of
# databases that wait for one, and not of those that do not want any.
#
my $no_place = qr/LOG:  delay_wheel has no place for another database/;
$position = log_position($node);
$node->restart;
are_served('db3 db5 postgres', 'after a restart the same are served');
$node->safe_psql('postgres', 'CREATE DATABASE plain7');
ok(wait_until(60, sub { $node->safe_psql('postgres', q{
	SELECT wait_event FROM pg_stat_activity WHERE backend_type = 'delay_wheel launcher'}) =~ /DelayWheelLauncher|Extension/ }),
	'the launcher has nothing to do');
my $quiet = log_position($node);
$node->safe_psql('plain7', 'CREATE EXTENSION delay_wheel');
ok(wait_until(60, sub { count_in_log($quiet, $no_place) >= 1 }), 'the log tells of a database that wants a place');
is(count_in_log($position, $no_place), 1, 'and of no other');

# whoever owns a database without a place can drop it while it is looked into
$node->safe_psql('postgres', 'CREATE ROLE maker LOGIN CREATEDB; DROP DATABASE plain7');
$node->restart;
are_served('db3 db5 postgres', 'there is no place, and nobody waits for one');
$position = log_position($node);
my $failed_drops = '';
for (1 .. 3)
{
	my ($code, $stdout, $stderr) = $node->psql('postgres', "CREATE DATABASE looked_into;\nDROP DATABASE looked_into WITH (FORCE);\n" x 5,
		extra_params => [ '-U', 'maker' ]);

	$failed_drops .= $stderr;
}
is($failed_drops, '', 'a database that is looked into can be dropped by its owner');
is(count_in_log($position, $no_place), 0, 'the log tells nothing of it');

# the same, for certain: the look is stopped while DROP DATABASE begins
$node->safe_psql('postgres', 'CREATE DATABASE looked_into OWNER maker IS_TEMPLATE true');
my $looked = $node->background_psql('looked_into', on_error_stop => 1);
$looked->query_safe('BEGIN; LOCK TABLE pg_extension IN ACCESS EXCLUSIVE MODE');
$node->safe_psql('postgres', 'ALTER DATABASE looked_into IS_TEMPLATE false');
my $look = q{FROM pg_stat_activity WHERE backend_type = 'delay_wheel look' AND wait_event_type = 'Lock'};
wait_for($node, "SELECT count(*) $look", 'the launcher looks into a database', 60, expected => 1);
my $look_pid = $node->safe_psql('postgres', "SELECT pid $look");
kill 'STOP', $look_pid;
$looked->query_safe('ROLLBACK');
$looked->quit;
my $others = q{FROM pg_stat_activity WHERE datname = 'looked_into' AND backend_type = 'client backend'};
wait_for($node, "SELECT count(*) $others", 'nobody else is there', 60, expected => 0);
my $dropper = $node->background_psql('postgres', on_error_stop => 0, extra_params => [ '-U', 'maker' ]);
$dropper->query_until(qr/now/, "\\echo now\nDROP DATABASE looked_into WITH (FORCE);\n");
wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'DROP DATABASE looked_into%' AND (state = 'idle' OR wait_event_type IS NOT NULL)},
	'it is being dropped', 60, expected => 1);
kill 'CONT', $look_pid;
wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'DROP DATABASE looked_into%' AND state = 'idle'}, 'DROP DATABASE ends', 60, expected => 1);
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_database WHERE datname = 'looked_into'}), 0, 'the database is gone');
$dropper->quit;
$node->safe_psql('postgres', 'DROP DATABASE IF EXISTS looked_into');

# a look that is terminated has found out nothing, so another one is taken
$node->safe_psql('postgres', 'CREATE DATABASE plain8');
$node->safe_psql('plain8', 'CREATE EXTENSION delay_wheel');
$node->safe_psql('postgres', 'ALTER DATABASE plain8 IS_TEMPLATE true');
$node->restart;
are_served('db3 db5 postgres', 'a template waits for no place');
my $locker = $node->background_psql('plain8', on_error_stop => 1);
$locker->query_safe('BEGIN; LOCK TABLE pg_extension IN ACCESS EXCLUSIVE MODE');
$position = log_position($node);
$node->safe_psql('postgres', 'ALTER DATABASE plain8 IS_TEMPLATE false');
wait_for($node, q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'delay_wheel look' AND wait_event_type = 'Lock'},
	'a look is terminated', 60, expected => 1);
$locker->query_safe('ROLLBACK');
$locker->quit;
ok(wait_until(60, sub { count_in_log($position, $no_place) >= 1 }), 'another one is taken');
$node->safe_psql('postgres', 'DROP DATABASE plain8');

# nobody has used it since the start
$node->safe_psql('postgres', 'CREATE DATABASE plain7');
$node->safe_psql('plain7', 'CREATE EXTENSION delay_wheel');
$position = log_position($node);
$node->restart;
ok(wait_until(60, sub { count_in_log($position, $no_place) >= 1 }), 'after a restart the log tells of one that waits');
my @served = split ' ', served();

# It tells once, whatever timers do meanwhile.
for (1 .. 3)
{
	my $timer = qq{SELECT pid FROM pg_stat_activity WHERE datname = '$served[0]' AND backend_type = 'delay_wheel timer'};
	my $pid = $node->safe_psql('postgres', $timer);

	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	wait_for($node, "SELECT count(*) FROM ($timer) t WHERE pid <> $pid", 'another timer is there', 60, expected => 1);
	are_served("@served", 'and runs');
}
is(count_in_log($position, $no_place), 1, 'the log has told of it once');
$node->safe_psql('postgres', 'DROP DATABASE plain7');
are_served('db3 db5 postgres', 'nobody waits any more');

# Databases that are looked into take no place from others for want of a worker.  Those that were served
# have theirs from the start on, so one of them is not.
sql('db3', 'DROP EXTENSION delay_wheel');
are_served('db5 postgres', 'a place is free');
$node->append_conf('postgresql.conf', "max_worker_processes = 1\nmax_logical_replication_workers = 0\n");
$position = log_position($node);
$node->restart;
wait_for($node, q{SELECT state, last_problem FROM delay_wheel.status WHERE database = current_database()},
	'the view tells why nothing is served', 60, db => 'db5', expected => 'stopped|could not start the timer: no background worker is free');
ok(wait_until(60, sub { log_since($node, $position) =~ /could not look into database/ }), 'and the log that others are not looked into');
sql('db3', 'CREATE EXTENSION delay_wheel');
is((schedule($_, 'few'))[1], '', "there is a place for $_") for qw(db3 db5);
$node->append_conf('postgresql.conf', "max_worker_processes = 40\n");
$node->restart;
has_run($_, 'few', "with workers, the task of $_ runs") for qw(db3 db5);

#
# More places than databases; a crowd of them.
#
$node->append_conf('postgresql.conf', "delay_wheel.max_databases = 16\n");
$node->restart;
are_served('db3 db5 postgres', 'there are more places');
my @crowd = map { "crowd$_" } 10 .. 19;
$node->safe_psql('postgres', 'CREATE DATABASE crowd10 TEMPLATE db5');
$node->safe_psql('postgres', "CREATE DATABASE $_ TEMPLATE crowd10") for @crowd[ 1 .. 9 ];
are_served("@crowd db3 db5 postgres", 'copies are served, though nobody has used them');
schedule($_, 'mine') for @crowd;
has_run($_, 'mine', "a task runs in $_") for @crowd;
my $memory = $node->safe_psql('postgres', 'SELECT min(memory_limit) * 13 >= 0.9 * 32 * 1024 * 1024 FROM delay_wheel.status');
is($memory, 't', 'each has its part of the memory');

# gone before anybody has looked into them
my $failures = 0;
for my $i (1 .. 10)
{
	$failures += $node->psql('postgres', 'CREATE DATABASE short_lived TEMPLATE crowd10') != 0;
	$failures += $node->psql('postgres', 'DROP DATABASE short_lived') != 0;
}
is($failures, 0, 'databases can be dropped as soon as they are created');
are_served("@crowd db3 db5 postgres", 'and leave nothing behind');

#
# A database that is closed, and opened again.
#
$node->safe_psql('postgres', q{
	ALTER DATABASE crowd10 ALLOW_CONNECTIONS false;
	SELECT pg_terminate_backend(pid) FROM pg_stat_activity
	WHERE datname = 'crowd10' AND backend_type = 'delay_wheel timer'});
wait_for($node, q{SELECT count(*) FROM delay_wheel.status WHERE database = 'crowd10'},
	'a database that allows no connections gives its place back', 60, expected => 0);
$node->safe_psql('postgres', 'ALTER DATABASE crowd10 ALLOW_CONNECTIONS true');
are_served("@crowd db3 db5 postgres", 'it is found again when it allows them');

#
# The extension comes to a database while the timer of another one is starting:
# a postmaster that stands still makes that last.
#
$node->safe_psql('postgres', "CREATE DATABASE $_") for qw(early served);
my $session = $node->background_psql('early', on_error_stop => 1);
my $other = $node->background_psql('postgres', on_error_stop => 1);
$session->query_safe('CREATE TABLE effect (name text)');
wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'served' OR
	(datname = 'early' AND backend_type <> 'client backend')},
	'databases without the extension were looked into', 60, expected => 0);
my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
kill 'STOP', $postmaster;
eval {
	$other->query_safe('CREATE DATABASE late');
	wait_until(60, sub { return $other->query_safe(q{
		SELECT wait_event FROM pg_stat_activity WHERE backend_type = 'delay_wheel launcher'}) =~ /DelayWheelLauncher|Extension/; });
	$session->query_safe(q{CREATE EXTENSION delay_wheel;
		SELECT delay_schedule('0', 'INSERT INTO effect VALUES (''mine'')')});
	$other->query_safe('SELECT pg_sleep(0.5)');	# the launcher hears of it
};
my $error = $@;
kill 'CONT', $postmaster;
is($error, '', 'CREATE EXTENSION while a timer is starting');
has_run('early', 'mine', 'a task scheduled meanwhile runs, without another one');
$_->quit for $session, $other;

$node->stop;
done_testing();
