# The forecast in one snapshot, on a standby, and without the library preloaded;
# pictures there; the dashboard in psql; the script that makes the manual's pictures.

use strict;
use warnings;

use DelayWheel;
use Encode qw(decode);
use FindBin;
use IPC::Run qw(start timer);
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('pictures', init => [ allows_streaming => 1 ], conf => 'max_worker_processes = 30');
my $xml = q{SELECT string_agg(xml_is_well_formed_document(svg)::text, ' ') FROM unnest(ARRAY[
	delay_wheel.ring_svg(), delay_wheel.forecast_svg(), delay_wheel.lateness_svg()]) svg};

#
# The numbers are those of the caller's snapshot, while others schedule tasks
#
$node->safe_psql('postgres', q{
	SELECT count(delay_schedule_at('2100-01-01'::timestamptz + i * interval '10 s', 'SELECT 1'))
		FROM generate_series(1, 2000) i});
my $counting = $node->background_psql('postgres', on_error_stop => 1);
my $periods = q{ARRAY(SELECT '2100-01-01'::timestamptz + i * interval '100 s' FROM generate_series(0, 201) i)};
my $counted = qq{SELECT sum(tasks), bool_and(exact) FROM delay_wheel_internal.count_due($periods)};
$counting->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$node->safe_psql('postgres', q{
	SELECT count(delay_cancel(id)) FROM (SELECT id FROM delay_wheel.tasks LIMIT 10) t;
	SELECT count(delay_schedule_at('2100-01-01'::timestamptz + random() * interval '20000 s', 'SELECT 2'))
		FROM generate_series(1, 1000)});
is($counting->query_safe($counted), '2000|t', 'what others have done since is not counted');
$counting->query_safe('COMMIT');
is($counting->query_safe($counted), '2990|t', '... until there is a new snapshot');
$counting->quit;

#
# On a standby: the same numbers, and pictures
#
my $sum = q{SELECT step, sum(tasks) FROM delay_wheel.forecast WHERE step IN ('day', 'later') GROUP BY 1 ORDER BY 1};
$node->safe_psql('postgres', q{
	SELECT count(delay_schedule(i * interval '1 h', 'SELECT 3')) FROM generate_series(1, 100) i;
	SELECT count(delay_cancel(id)) FROM delay_wheel.tasks WHERE due > '2100-01-01'});
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', $sum), "day|100\nlater|0", 'a standby counts as well');
is($standby->safe_psql('postgres', $xml), 'true true true', 'it draws');
like($standby->safe_psql('postgres', 'SELECT delay_wheel.ring_svg()'), qr/Timer: standby/, 'it says what it is');
$standby->stop('fast');

#
# The dashboard, as a role that sees its own only, and as one that sees all
#
my $tree = PostgreSQL::Test::Utils::tempdir();
mkdir "$tree/scripts" or die $!;
PostgreSQL::Test::Utils::system_or_bail('cp', "$FindBin::RealBin/../../scripts/dashboard.sql", "$tree/scripts/");
chdir $tree or die $!;
$node->safe_psql('postgres', 'CREATE DATABASE shop');
$node->safe_psql('shop', q{
	CREATE EXTENSION delay_wheel;
	CREATE ROLE clerk LOGIN;
	SELECT delay_wheel.allow('clerk');
	SELECT delay_wheel.create_queue('letters', external => true, users => '{clerk}');
	SET SESSION AUTHORIZATION clerk;
	SELECT delay_send('letters', '1');
	SELECT count(delay_schedule('5 min', 'SELECT 1')) FROM generate_series(1, 7);
	SELECT delay_schedule('0', 'SELECT 1 / 0');
	SELECT delay_schedule('0', 'SELECT pg_sleep(600)')});
wait_for($node, q{SELECT count(*) FROM delay_wheel.failed}, 'a task fails', 60, db => 'shop', expected => '1');
wait_for($node, q{SELECT count(*) FROM delay_wheel.running}, 'a task runs', 60, db => 'shop', expected => '1');
wait_for($node, q{SELECT ready FROM delay_wheel.queues}, 'a message is due', 60, db => 'shop', expected => '1');
local %ENV = $node->_get_env();
my ($out, $err);

my $once = 'psql -v once=1 -f scripts/dashboard.sql';
for my $role ('clerk', '')
{
	local $ENV{PGOPTIONS} = $role ? "-c role=$role" : '';
	my $who = $role || 'a superuser';
	($out, $err) = run_command([ 'bash', '-c', "$once shop" ]);

	is($err, '', "the dashboard of $who: no error");
	like($out, qr/^database shop: RUNNING\b/m, "$who: state");
	like($out, qr/^\d\d:\d\d +7 #{50}$/m, "$who: what is due");
	like($out, qr/^task \d+ of clerk for .*SELECT pg_sleep\(600\)$/m, "$who: what runs");
	like($out, qr/^letters +1 due, not taken for \d\d:\d\d:\d\d   receivers waiting 0   leased 0   leases without a word 0  no receiver has come$/m, "$who: messages");
	like($out, qr/^.* of clerk: 22012 division by zero$/m, "$who: what failed");
	unlike($out, qr/\e/, "$who: nothing for a terminal");
}

# again and again, until it is told to end
for my $command ('psql -f scripts/dashboard.sql shop', 'psql -v interval=10 -f scripts/dashboard.sql shop')
{
	($out, $err) = ('', '');
	my $times = $command =~ /interval/ ? 1 : 2;
	my $run = start [ 'bash', '-c', "exec $command" ], '>', \$out, '2>', \$err, timer(60);

	$run->pump until $out =~ /(?:\e\[H\e\[2J.*?database shop: RUNNING.*?){$times}/s || !$run->pumpable;
	$run->kill_kill;
	like($out, qr/(?:\e\[H\e\[2J.*?database shop: RUNNING.*?){$times}/s, "$command: $times times");
	is($err, '', "$command: no error");
}

#
# Names, SQL and errors that would speak to the terminal: colours, a new title,
# lines of their own, text from right to left.
#
$node->safe_psql('postgres', q{CREATE DATABASE evil TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'});
$node->safe_psql('evil', q{
	CREATE EXTENSION delay_wheel;
	DO $$
	DECLARE
		role name := E'r\u001b[31m\u0085\u202e\n\tdatabase forged: RUNNING';
		queue name := E'q\u001b[31m\u009b\u2066\n\tdatabase forged: RUNNING';
		words text := E'\u0001\t\u0007\u0085\u009b31m\u061c\u200e\u202e\u2028\u2066\u007f\u001b]0;owned\u0007\u001b[2J\r\ndatabase forged: RUNNING';
	BEGIN
		-- 19 has no such names of roles
		IF current_setting('server_version_num')::int >= 190000 THEN
			role := replace(role, E'\n', ' ');
		END IF;
		EXECUTE format('CREATE ROLE %I', role);
		PERFORM delay_wheel.allow(role), delay_wheel.create_queue(queue, users => '{public}');
		PERFORM set_config('role', role, true);
		PERFORM delay_schedule_task(format('DO %L', format('BEGIN RAISE EXCEPTION %L; END', words)), queue => queue);
		PERFORM delay_schedule_task('/*' || words || '*/ SELECT pg_sleep(600)', queue => queue, tag => words, key => words);
	END $$});
wait_for($node, q{SELECT count(*) FROM delay_wheel.failed WHERE message ~ 'forged'}, 'a task fails with such a message', 60, db => 'evil', expected => '1');
wait_for($node, q{SELECT count(*) FROM delay_wheel.running}, 'a task of such SQL runs', 60, db => 'evil', expected => '1');
($out, $err) = run_command([ 'bash', '-c', "$once evil" ]);
is($err, '', 'the dashboard of hostile names: no error');
my %line = (
	lane => qr/^r *\[31m.* q *\[31m.*running/m,
	running => qr/^task \d+ of .*r *\[31m.* forged/m,
	failed => qr/^\d.* of .*r *\[31m.*: P0001 .*owned/m);
like($out, $line{$_}, "the dashboard of hostile names: $_") for sort keys %line;
unlike($out, qr/^\s*database forged/m, 'nobody makes a line of his own');
my @left = map { sprintf 'U+%04X', ord } decode('UTF-8', $out) =~
  /[\x00-\x09\x0b-\x1f\x7f-\x9f\x{61c}\x{200e}\x{200f}\x{2028}-\x{202e}\x{2066}-\x{2069}]/g;
is("@left", '', 'no control characters are left, nor what turns text around');
chdir '/';

#
# Databases in other encodings, and in each the names of roles that were given in
# another one: UTF-8, with what no XML can have; LATIN1; EUC_JP; bytes.  So are
# the names of the databases.
#
my %given = (UTF8 => '7376672d75c3bce697a5efbfbe01efbfbf3c2622', LATIN1 => '7376672d6cfc6c', EUC_JP => '7376672d65c6fc',
	SQL_ASCII => '7376672d61ff');
my %shown = (LATIN1 => 'svg-l&#252;l', EUC_JP => 'svg-e??', SQL_ASCII => 'svg-a?');
my %db = (UTF8 => 'evil', map { $_ => "b\xfccher $_" } keys %shown);
$node->safe_psql('postgres', q{CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'});
$node->safe_psql('latin', qq{CREATE DATABASE "$db{$_}" TEMPLATE template0 ENCODING '$_' LOCALE 'C'})
  for sort keys %shown;
$node->safe_psql($db{$_}, qq{DO \$\$ BEGIN EXECUTE format('CREATE ROLE %I', convert_from('\\x$given{$_}', '$_')); END \$\$})
  for sort keys %given;
for my $encoding (sort keys %shown)
{
	my $db = $db{$encoding};

	$node->safe_psql($db, qq{
		CREATE EXTENSION delay_wheel;
		SELECT delay_wheel.create_queue(convert_from('\\x$given{$encoding}', '$encoding')::name, users => '{public}');
		DO \$\$
		DECLARE r name;
		BEGIN
			FOR r IN SELECT rolname FROM pg_roles WHERE rolname BETWEEN 'svg-' AND 'svg.' LOOP
				PERFORM delay_wheel.allow(r);
				PERFORM set_config('role', r, true);
				PERFORM delay_schedule_task('SELECT 1', queue => convert_from('\\x$given{$encoding}', '$encoding'));
				RESET ROLE;
			END LOOP;
		END \$\$});
	wait_for($node, 'SELECT sum(done) FROM delay_wheel.lanes', "$encoding: tasks of all roles run", 60, db => $db, expected => '4');
	is($node->safe_psql($db, $xml), 'true true true', "$encoding: pictures are well-formed");
	my $svg = $node->safe_psql($db, 'SET client_encoding = SQL_ASCII; SELECT delay_wheel.lateness_svg()');
	unlike($svg, qr/[^\x0a\x20-\x7e]/, "$encoding: they are plain ASCII");
	like($svg, qr/<title>[^<]*\Q$shown{$encoding}\E[^<]*, [^<]*\Q$shown{$encoding}\E[^<]*: median/, "$encoding: names that were given there are right");
	my @lanes = $svg =~ /<title>[^<]*svg-[^<]*: median/g;
	is(scalar @lanes, 4, "$encoding: those that were given elsewhere are there");
}

#
# scripts/pictures, into a directory of its own
#
my $place = PostgreSQL::Test::Utils::tempdir_short();
my $pictures = PostgreSQL::Test::Utils::tempdir();
{
	local $ENV{TMPDIR} = $place;
	($out, $err) = run_command([ "$FindBin::RealBin/../../scripts/pictures", '--small', $pictures ]);
}
is($err, '', 'scripts/pictures: no error');
is($out, join("\n", map { "$pictures/$_.svg" } qw(ring forecast lateness)), 'it says what it has made');
my %shows = (
	ring => qr/Ring of database &#34;shop&#34;.*>running: 2</s,
	forecast => qr/When tasks of &#34;shop&#34; will be due.*Overdue: 2 tasks\./s,
	lateness => qr/How late tasks of &#34;shop&#34; are begun(?=.*shop, invoices: )(?=.*mailer, newsletter )/s);
for my $name (sort keys %shows)
{
	my $svg = slurp_file("$pictures/$name.svg");

	is($node->safe_psql('postgres', "SELECT xml_is_well_formed_document(\$svg\$$svg\$svg\$)"), 't', "$name.svg is XML");
	like($svg, $shows{$name}, '... and shows the tasks of that shop');
	unlike($svg, qr/\b1 (?:task|turn|attempt)s\b/, '... one is not many');
}
is(join(' ', glob("$place/*")), '', 'nothing else is left of it');

#
# Rings of other sizes: two halves; slots drawn one by one; two by two, with one left
#
for my $slots (2, 7, 61)
{
	$node->append_conf('postgresql.conf', "delay_wheel.slots = $slots\n");
	$node->restart;
	is($node->safe_psql('postgres', $xml), 'true true true', "$slots slots: pictures are well-formed");
	my @drawn = $node->safe_psql('postgres', 'SELECT delay_wheel.ring_svg()') =~ /<title>slots? (\d+)(?: to (\d+))?: /g;
	my $next = 0;
	while (my ($first, $last) = splice @drawn, 0, 2)
	{
		$next = ($last // $first) + 1 if $first == $next;
	}
	is($next, $slots, 'each of them is in the picture');
}

#
# Without the library preloaded: they say so, and nothing dies
#
$node->stop('fast');
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$node->start;
for my $query ($sum, 'SELECT delay_wheel_internal.next_due()', 'SELECT delay_wheel.ring_svg()', 'SELECT delay_wheel.page_data()')
{
	my ($ret, $stdout, $stderr) = $node->psql('postgres', '\set VERBOSITY sqlstate' . "\n$query");
	like($stderr, qr/55000/, "without the library preloaded: $query");
}
$node->stop('fast');

done_testing();
