# delay_wheel by the drivers of many languages, as their users write: a small program for
# each, test/drivers/*, makes the same calls in the same order, and says "ok CALL" or
# "not ok CALL: error" of each.  All run beside each other, as a role of their own, that has
# a schema and a queue of its name.  A program whose driver is not there is skipped; in the
# end stands a table of drivers and calls.
#
# The calls:
#
#   untyped      delay_schedule with values whose types are left to driver and server
#   typed        with casts
#   mixed        with literals, a cast, and a point in time
#   null         with a null
#   prepared     in a prepared statement, twice
#   text         all of delay_schedule's arguments are values, the delay is a text
#   duration     the delay is what the language, or the driver, has for durations ("none": it
#                has nothing)
#   at           delay_schedule_at with the language's point in time
#   args         delay_schedule_task with a list of numbers, and one of texts
#   named        with names, and an object
#   rollback     in a transaction that is rolled back
#   commit       in one that is committed
#   zone         a session as its driver or framework makes it keeps nothing with its tasks;
#                in one that is in another time zone, times without a zone are of that zone
#                (of some drivers; the others have sessions as theirs)
#   cancel_key   delay_cancel
#   reschedule   delay_reschedule with a text
#   send         delay_send with an object
#   lease        delay_await, delay_lease, delay_done; the payload is an object again
#   views        SELECT * of all views
#   effect       delay_wait for all tasks, and what they did is seen
#   error        the SQLSTATE of a wrong call reaches the program
#
# And the programs of doc/languages.md, examples/languages/*: of each an order is delivered,
# and to be rated; its test is rolled back; migrations make the trigger; the workers for Go and
# Java receive messages.
#
#   DW_DRIVERS          programs whose names match this only
#   DW_DRIVER_MODULES   directory in which node finds what test/drivers/package.json names

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Copy qw(copy);
use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

my $tree = abs_path("$FindBin::RealBin/../..");
my $dir = "$tree/test/drivers";
my $scratch = PostgreSQL::Test::Utils::tempdir();
my @calls = qw(untyped typed mixed null prepared text duration at args named rollback commit
  zone cancel_key reschedule send lease views effect error);
my %has_zone = map { $_ => 1 } qw(python_psycopg python_psycopg2 python_django node_pg java_jdbc ruby_pg);
my $jar = '/usr/share/java/postgresql.jar';

# test/run says where those are that scripts/setup has fetched
$ENV{NODE_PATH} = join ':', grep { defined } $ENV{DW_DRIVER_MODULES}, $ENV{DW_NODE_MODULES}, '/usr/share/nodejs:/usr/lib/node_modules:/usr/local/lib/node_modules';
# Debian's packages for Go, without the network
@ENV{qw(GO111MODULE GOPATH GOFLAGS GOCACHE GOTOOLCHAIN)} = ('off', '/usr/share/gocode', '', "$scratch/go", 'local');

# driver, what runs it, and a command that succeeds if the driver is there
sub python { my (@modules) = @_; return ([ '/usr/bin/python3' ], [ '/usr/bin/python3', '-c', join('; ', map { "import $_" } @modules) ]); }
sub node { my (@modules) = @_; return ([ 'node' ], [ 'node', '-e', join('; ', map { "require('$_')" } @modules) ]); }
sub go { my ($package) = @_; return ([ 'go', 'run' ], [ 'go', 'list', $package ]); }
sub java { return ([ 'java', '-XX:TieredStopAtLevel=1', '-cp', $jar ], [ 'sh', '-c', "java --list-modules | grep -q jdk.compiler && test -f $jar" ]); }
sub ruby { return ([ 'ruby' ], [ 'ruby', '-e', 'require "pg"' ]); }
sub php { my ($module) = @_; return ([ 'php' ], [ 'php', '-r', "exit(extension_loaded('$module') ? 0 : 1);" ]); }
my @drivers = (
	[ 'python_psycopg.py', python('psycopg') ],
	[ 'python_psycopg2.py', python('psycopg2') ],
	[ 'python_asyncpg.py', python('asyncpg') ],
	[ 'python_sqlalchemy.py', python('sqlalchemy', 'psycopg2') ],
	[ 'python_django.py', python('django', 'psycopg2') ],
	[ 'node_pg.js', node('pg') ],
	[ 'node_knex.js', node('knex', 'pg') ],
	[ 'node_drizzle.js', node('drizzle-orm/node-postgres', 'pg') ],
	[ 'node_postgres.js', node('postgres') ],
	[ 'node_prisma.js', node('.prisma/client', '@prisma/adapter-pg') ],
	[ 'java_jdbc.java', java() ],
	[ 'go_pq.go', go('github.com/lib/pq') ],
	[ 'go_pgx.go', go('github.com/jackc/pgx/v4') ],
	[ 'ruby_pg.rb', ruby() ],
	[ 'perl_dbd.pl', [ 'perl' ], [ 'perl', '-MDBD::Pg', '-e', '1' ] ],
	[ 'php_pdo.php', php('pdo_pgsql') ],
	[ 'php_pgsql.php', php('pgsql') ],
);
@drivers = grep { $_->[0] =~ m{$ENV{DW_DRIVERS}} } @drivers if $ENV{DW_DRIVERS};

# Does the command succeed?  It need not be there.
sub succeeds
{
	my (@command) = @_;
	my $output = '';

	return eval { IPC::Run::run(\@command, '<', '/dev/null', '>&', \$output, IPC::Run::timeout(60)) };
}

# JDBC speaks TCP only
my $node = new_node('drivers', conf => "listen_addresses = '127.0.0.1'\ndelay_wheel.max_executors = 4\ntimezone = 'Etc/UTC'\n");
$ENV{TZ} = 'UTC';
@ENV{qw(PGHOST PGPORT PGDATABASE)} = ('127.0.0.1', $node->port, 'postgres');

sub query { return $node->safe_psql('postgres', $_[0]); }

my (@programs, @examples, @skipped);
my %is_there;

# Skips what has no driver.
sub is_there
{
	my ($name, @command) = @_;
	my $is_there = $is_there{"@command"} //= succeeds(@command) ? 1 : 0;

	return 1 if $is_there;
	push @skipped, $name;
  SKIP: { skip("the driver of $name is not there", 1); }
	return 0;
}

# A role with a schema and a queue of its name, in the database; the schema has what the SQL makes.
sub new_user
{
	my ($name, $sql) = @_;

	query(qq{
		CREATE ROLE "$name" LOGIN;
		CREATE SCHEMA "$name" AUTHORIZATION "$name";
		SELECT delay_wheel.allow('$name');
		SELECT delay_wheel.create_queue('$name', external => true, users => '{$name}', receivers => '{$name}');
		SET SESSION AUTHORIZATION "$name";
		$sql});
	return;
}

sub start_program
{
	my ($name, @command) = @_;
	my $log = "$scratch/$name";
	local $ENV{PGUSER} = $name;

	return { name => $name, log => $log, run => IPC::Run::start(\@command, '<', '/dev/null', '>', "$log.out", '2>', "$log.err", IPC::Run::timeout(120)) };
}

# Its output, and what it says of errors.
sub finish_program
{
	my ($program) = @_;

	eval { $program->{run}->finish; 1 } or $program->{run}->kill_kill(grace => 1);
	return map { slurp_file("$program->{log}.$_") } qw(out err);
}

#
# All at once: most of their time they wait, or start.
#
for my $driver (@drivers)
{
	my ($program, $runner, $is_there) = @$driver;
	my $name = $program =~ s/\.\w+$//r;

	next if !is_there($name, @$is_there);
	new_user($name, q{
		CREATE TABLE t (id int PRIMARY KEY, n int, note text, at timestamptz);
		INSERT INTO t SELECT n, NULL, 'old' FROM generate_series(1, 16) n});
	push @programs, start_program($name, @$runner, "$dir/$program");
}

# The programs of the document.  Those of Go and Java go on as workers.
my ($migration) = slurp_file("$tree/doc/languages.md") =~ /^```sql\n(CREATE TRIGGER.*?)^```/ms or die 'there is no trigger';
my $work = sub { my ($program) = @_; return [ 'sh', '-c', "$program && exec $program work" ]; };
my $examples = "$tree/examples/languages";
mkdir "$scratch/$_" or die $! for qw(knex shop shop/migrations);
copy("$examples/migration_knex.js", "$scratch/knex/1_unpaid.js") or die $!;
copy("$examples/migration_django.py", "$scratch/shop/migrations/0001_unpaid.py") or die $!;
append_to_file("$scratch/shop/$_", '') for qw(__init__.py migrations/__init__.py);
append_to_file("$scratch/shop/settings.py", q{
import os
INSTALLED_APPS = ["shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"],
    "USER": os.environ["PGUSER"], "HOST": os.environ["PGHOST"], "PORT": os.environ["PGPORT"]}}
});
for my $example (
	[ 'orders_psycopg', python('psycopg') ],
	[ 'orders_sqlalchemy', python('sqlalchemy', 'psycopg2') ],
	[ 'orders_django', python('django', 'psycopg2') ],
	[ 'orders_pg', node('pg') ],
	[ 'orders_knex', node('knex', 'pg') ],
	[ 'orders_drizzle', node('drizzle-orm/node-postgres', 'pg') ],
	[ 'orders_ruby', ruby(), 'orders.rb' ],
	[ 'orders_php', php('pdo_pgsql'), 'orders.php' ],
	[ 'orders_go', $work->("$scratch/orders"), (go('github.com/jackc/pgx/v4'))[1], '', [ 'go', 'build', '-o', "$scratch/orders", "$examples/orders.go" ] ],
	[ 'orders_java', $work->("java -XX:TieredStopAtLevel=1 -cp $jar '$examples/Orders.java'"), (java())[1], '' ],
	[ 'migration_django', (map { [ @$_, $_->[1] ? () : qw(-m django migrate --settings shop.settings) ] } python('django', 'psycopg2')), '' ],
	[ 'migration_knex', [ 'node', '-e', "const k = require('knex')({ client: 'pg', connection: {}, migrations: { directory: '$scratch/knex' } }); k.migrate.latest().then(() => k.destroy())" ], (node('knex', 'pg'))[1], '' ])
{
	my ($name, $runner, $is_there, $file, $before) = @$example;
	my $kind = $runner->[0] eq 'node' ? 'js' : 'py';

	next if !is_there($name, @$is_there);
	new_user($name, q{
		CREATE TABLE orders (id int PRIMARY KEY, state text NOT NULL DEFAULT 'open', stars int);
		INSERT INTO orders SELECT generate_series(1, 2);} . ($name =~ /^orders/ ? $migration : ''));
	local $ENV{PYTHONPATH} = $scratch;
	system_or_bail(@$before) if $before;
	$file //= "$name.$kind";
	push @examples, start_program($name, @$runner, $file ? "$examples/$file" : ());
}

my $effects = <<'END';
1|7|it's|
2|7|it's|
3|7|mixed|2001-02-03 04:05:06
4|8||
5|5|old|
6|6|old|
7|7|old|
8|8|old|
9||old|2001-02-03 04:05:06
10|100|old|
11||a list|
12||named|
13||old|
14|14|mine|
15|15|old|
16||old|
END
my @table = (sprintf '%-18s %s', 'driver', "@calls");
for my $program (@programs)
{
	my $name = $program->{name};

	my ($out, $err) = finish_program($program);
	my (%said, @said);
	for (split /\n/, $out)
	{
		next if !/^(ok|not ok|none) (\w+)/;
		push @said, $2;
		$said{$2} = $1;
	}
	my @failed = grep { $_ !~ /^(?:ok|none duration\b)/ } split /\n/, $out;
	my @wanted = grep { $_ ne 'zone' || $has_zone{$name} } @calls;
	is("@said", "@wanted", "$name: makes all calls");
	is(join("\n", @failed), '', "$name: they work") && "@said" eq "@wanted"
	  or diag("$name:\n$out\n$err");
	my $has = ($said{duration} // '') eq 'none' ? $effects =~ s/^8\|8/8|/mr : $effects;
	$has =~ s/^16\|.*$/16||true|2001-02-03 04:05:06/m if $has_zone{$name};
	is(query(qq{SELECT id, n, note, at AT TIME ZONE 'UTC' FROM "$name".t ORDER BY id}) . "\n", $has, "$name: and do what they should");
	push @table, sprintf '%-18s %s', $name, join ' ', map { sprintf '%-*s', length, ($said{$_} // '-') =~ s/not ok/FAIL/r } @calls;
}

#
# The programs of the document.
#
for my $program (@examples)
{
	my $name = $program->{name};

	if ($name =~ /_(?:go|java)$/)
	{
		query(qq{SELECT delay_send('$name', '{"email": "anna\@example.com"}'), delay_send('$name', '{}', key => 'none', options => '{"retry_delay": "1 hour"}')});
		wait_for($node, qq{SELECT string_agg(last_error, ' ') = 'DW007: no address' FROM delay_wheel.tasks WHERE queue = '$name'}, "$name: the worker has received its messages");
		is(query(qq{SELECT delay_cancel(key => 'none', queue => '$name')}), 'cancelled', "$name: and said that one has failed");
		$program->{run}->signal('KILL');
		my ($out, $err) = finish_program($program);
		is($out, "to anna\@example.com\n", "$name: the other one was worked on") or diag($err);
	}
	else
	{
		my (undef, $err) = finish_program($program);
		is(($program->{run}->full_results)[0], 0, "$name: it runs") or diag($err);
	}
	if ($name =~ /^orders/)
	{
		is(query(qq{SELECT id, state, stars FROM "$name".orders ORDER BY id}), "1|open|\n2|delivered|", "$name: what its test did is gone, the order is delivered");
		is(query(qq{SELECT args, round(extract(epoch FROM due - now()) / 3600) FROM delay_wheel.tasks WHERE owner = '$name' AND sql LIKE '%stars%'}), '{2}|48', "$name: and will be rated");
	}
	query(qq{SET SESSION AUTHORIZATION "$name"; INSERT INTO orders VALUES (3)});
	is(query(qq{SELECT args, round(extract(epoch FROM due - now()) / 60) FROM delay_wheel.tasks WHERE owner = '$name' AND sql LIKE '%cancelled%'}), '{3}|30', "$name: the trigger is there");
	query(qq{SET SESSION AUTHORIZATION "$name"; SELECT delay_cancel_all(due_from => '-infinity')});
}
my $page = slurp_file("$tree/doc/languages.md");
is(join(' ', grep { $page !~ m{\]\(../test/drivers/\Q$_\E\)} } map { s{.*/}{}r } glob("$dir/*_*.*")), '', 'the page knows them all');
push @table, 'skipped: ' . (join(', ', @skipped) || 'none');
note($_) for @table;
is(query('SELECT count(*) FROM delay_wheel.failed'), 0, 'no task has failed');
is(query('SELECT count(*) FROM delay_wheel.tasks'), 0, 'and none is left');

$node->stop;
done_testing();
