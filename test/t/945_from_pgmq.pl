# doc/from-pgmq.md and the functions of examples/pgmq/pgmq.sql: the page, whole; messages are read,
# kept from others, deleted and archived as with pgmq; nothing is lost while a queue moves and its
# programs go on; and no role gets more by these functions than pgmq's queues.
# test/from/pgmq.sql stands in for pgmq.
#
#   DW_PGMQ=DIR   also pgmq's own regression test, with its sources in DIR (pgmq-extension): how
#                 many of its statements do the same

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use Documents;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = "$FindBin::RealBin/../..";
my $load = "\\set QUIET on\n\\i $root/examples/pgmq/pgmq.sql\n\\set ON_ERROR_STOP off\n";
my $dir = PostgreSQL::Test::Utils::tempdir_short();
my $node = new_node('from_pgmq', extension => 0, init => [ extra => [ '--encoding=UTF8', '--no-locale' ] ]);
my $q = sub { return $node->safe_psql('shim', $_[0]) };

sub as
{
	my ($role, $sql) = @_;
	return $node->safe_psql('shim', $sql, extra_params => [ '-U', $role ]);
}

# Tests: each statement fails with this SQLSTATE.
sub refused
{
	my ($role, @statements) = @_;
	my $script = "\\set VERBOSITY sqlstate\n" . join '', map { "\\warn ## $_\n$statements[$_][0];\n" } 0 .. $#statements;
	my (undef, undef, $err) = $node->psql('shim', $script, extra_params => [ '-U', $role ], on_error_stop => 0);
	my (undef, %err) = split /^## (\d+)\n/m, $err, -1;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	like($err{$_}, qr/ERROR:  $statements[$_][1]$/m, "refused to $role: $statements[$_][2]") for 0 .. $#statements;
	return;
}

#
# The page.
#
{
	my $page = slurp_file("$root/doc/from-pgmq.md");

	append_to_file("$dir/from-pgmq.md", $page . <<'END');
```sql
SELECT msg_id, read_ct, message FROM pgmq.q_mail;
SELECT pgmq.send('mail', '{"order": 11}') AS id;
SELECT count(*) AS queues, (SELECT string_agg(payload::text, ' ') FROM delay_wheel.tasks) AS moved FROM delay_wheel.queues;
```
<!-- output -->
```text
 msg_id | read_ct |   message
--------+---------+--------------
      2 |       0 | {"order": 8}
(1 row)

 id
----
  4
(1 row)

 queues |    moved
--------+--------------
      1 | {"order": 9}
(1 row)
```

The calls in the table.

```sql
SELECT delay_reschedule(id, '0') AS moved FROM delay_wheel.tasks;
CALL delay_await('push', '30 s');
SELECT id, token FROM delay_lease('push', 10, lease => '30 s') \gset
SELECT delay_extend(:id, :token, '5 minutes') AS extended, delay_fail(:id, :token, retry_in => '1 hour') AS failed;
SELECT delay_reschedule(:id, '0') AS moved;
CALL delay_await('push', '30 s');
SELECT payload, attempt FROM delay_receive('push', autocommit => true);
SELECT delay_cancel_all(queue => 'push') > 0 AS cancelled, delay_wheel.drop_queue('push') AS dropped;
```
<!-- output -->
```text
...
 extended | failed
----------+--------
 t        | t
(1 row)
...
   payload    | attempt
--------------+---------
 {"order": 9} |       2
(1 row)

 cancelled | dropped
-----------+---------
 t         | t
(1 row)
```
END
	is(join("\n", problems_of($node, "$dir/from-pgmq.md")), '', 'from-pgmq.md');
}

#
# While a queue moves, programs go on.
#
{
	$node->safe_psql('postgres', 'CREATE DATABASE moving');
	$node->safe_psql('moving', "CREATE EXTENSION delay_wheel;\n\\i $root/test/from/pgmq.sql\n" . q{SELECT pgmq.create('mail');
		CREATE TABLE made (o bigint GENERATED ALWAYS AS IDENTITY); CREATE TABLE done (o bigint, here bool, was_deleted bool)});
	my %scripts = (
		send => q{WITH n AS (INSERT INTO made DEFAULT VALUES RETURNING o) SELECT pgmq.send('mail', jsonb_build_object('order', o)) FROM n;},
		work => q{WITH m AS (SELECT * FROM pgmq.read('mail', 300, 10)) INSERT INTO done SELECT (message ->> 'order')::bigint,
			to_regnamespace('pgmq_before') IS NOT NULL, pgmq.delete('mail', msg_id) FROM m;});
	my @clients;

	for my $name (qw(send send work work))
	{
		my $n = @clients;

		my $line = $scripts{$name} =~ s/\s+/ /gr . "\n";

		append_to_file("$dir/$name.$n", $line x 50_000);
		push @clients, IPC::Run::start([ 'psql', '-Xq', '-d', $node->connstr('moving'), '-f', "$dir/$name.$n" ], '<', \undef, '>', '/dev/null', '2>', "$dir/err.$n");
	}
	wait_for($node, 'SELECT count(*) > 100 FROM done', 'programs run', 60, db => 'moving');
	my ($move) = grep { /take_over/ } map { $_->{text} } @{ (Documents::parse_document(slurp_file("$root/doc/from-pgmq.md")))[0] };
	$node->safe_psql('moving', "\\cd $root\n" . $move =~ s/^COMMIT;.*/COMMIT;/msr);
	wait_for($node, 'SELECT count(*) > 100 FROM done WHERE here', 'they go on', 60, db => 'moving');
	$clients[$_]->kill_kill for 0, 1;
	wait_for($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE query LIKE '%INSERT INTO made%' AND pid <> pg_backend_pid()}, 'senders are gone');
	wait_for($node, 'SELECT (SELECT count(*) FROM made) = (SELECT count(*) FROM done)', 'all is done', 60, db => 'moving');
	is($node->safe_psql('moving', 'SELECT count(*) - count(DISTINCT o), bool_or(here), bool_or(NOT here), bool_and(was_deleted) FROM done'), '0|t|t|t', 'once, before and after');
	$clients[$_]->kill_kill for 2, 3;
	cmp_ok(scalar(() = slurp_file("$dir/err.$_") =~ /ERROR:/g), '<=', 1, "program $_ fails once at most") for 0 .. 3;
}

#
# Reading.
#
$node->safe_psql('postgres', 'CREATE DATABASE shim; CREATE ROLE app LOGIN; CREATE ROLE other LOGIN');
$q->("CREATE EXTENSION delay_wheel;\n$load" . q{GRANT USAGE ON SCHEMA pgmq TO app; SELECT pgmq.create(n) FROM unnest('{Mail, busy, plain, dropped}'::text[]) n;
	SELECT delay_wheel.create_queue('secret', external => true); SELECT delay_send('secret', '1')});
my $visible = q{SELECT count(*) FROM pgmq.q_mail WHERE vt <= now()};
is(as('app', q{SELECT pgmq.send('Mail', '{"n": 1}'), pgmq.send('mail', '2', '{"h": 1}'::jsonb), pgmq.send('mail', NULL, '[1]', 0), pgmq.send('mail', '4', 3600)}), '1|2|3|4', 'messages have numbers');
is(as('app', q{SELECT msg_id, read_ct, enqueued_at <= now(), vt > now() + interval '50 s', message, headers FROM pgmq.read('mail', 60, 10) ORDER BY 1}),
	"1|1|t|t|{\"n\": 1}|\n2|1|t|t|2|{\"h\": 1}\n3|1|t|t||[1]", 'they are read');
is(as('app', q{SELECT count(*) FROM pgmq.read('mail', 60, 10)}), 0, 'nobody else reads them');
is(as('app', q{SELECT msg_id, read_ct, message IS NULL, headers FROM pgmq.set_vt('mail', 3, 0); SELECT msg_id, read_ct FROM pgmq.read('mail', 1, 10)}), "3|1|t|[1]\n3|2", 'until set_vt');
is(as('app', q{SELECT msg_id, read_ct FROM pgmq.read_with_poll('mail', 60, 10, 30)}), '3|3', 'or until the timeout ends');
is(as('app', q{SELECT pgmq.delete('mail', 1), pgmq.delete('mail', 1); SELECT pgmq.archive('mail', '{2, 1, 3}'::bigint[])}), "t|f\n2\n3", 'they are deleted and archived');
is($q->('SELECT msg_id, read_ct, message, headers FROM pgmq.a_mail ORDER BY 1'), "2|1|2|{\"h\": 1}\n3|3||[1]", 'the archive has them');
is(as('app', q{SELECT queue_name, queue_length, total_messages, queue_visible_length FROM pgmq.metrics('mail')}), 'mail|1|4|0', 'there are metrics');
is(as('app', q{SELECT count(*) FROM pgmq.send_batch('mail', '{5, 6, 7}', '{"{}"}'::jsonb[])}), 3, 'three are sent');
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'mail'}, 'and due', 60, expected => 3, db => 'shim');
is(as('app', q{SELECT msg_id, headers FROM pgmq.pop('mail'); SELECT msg_id, headers, message FROM pgmq.read('mail', 60, 5, '7');
	SELECT pgmq.purge_queue('mail'), (SELECT queue_length FROM pgmq.metrics('mail'))}), "5|{}\n7||7\n3|3", 'pop takes the first, a condition chooses');
is(as('app', q{SELECT queue_length FROM pgmq.metrics('mail')}), 0, 'purge_queue deletes all');

# in a transaction, and in a function
is(as('app', q{SELECT pgmq.send('mail', '8'); BEGIN; SELECT read_ct FROM pgmq.read('mail', 60, 1); ROLLBACK;
	BEGIN; SELECT read_ct FROM pgmq.read_with_poll('mail', 60, 1); SELECT pgmq.delete('mail', 8); COMMIT; SELECT count(*) FROM pgmq.read_with_poll('mail', 0, 1, 1)}),
	"8\n1\n1\nt\n0", 'a rollback gives back, a commit deletes');
is(as('app', q{SELECT pgmq.send('mail', '9'); DO $$DECLARE m record; BEGIN SELECT * INTO STRICT m FROM pgmq.read('mail', 60, 1); PERFORM pgmq.delete('mail', m.msg_id); END$$;
	SELECT queue_length FROM pgmq.metrics('mail')}), "9\n0", 'PL/pgSQL can read');

# a reader with an open transaction
{
	my ($reader, $second) = map { $node->background_psql('shim') } 1 .. 2;

	for my $how ('COMMIT', 'ROLLBACK')
	{
		my $id = $q->(q{SELECT pgmq.send('mail', '10')});

		is($reader->query_safe(q{BEGIN; SELECT msg_id FROM pgmq.read_with_poll('mail', 60, 1)}), $id, 'one reads');
		is($q->(q{SELECT count(*) FROM pgmq.read('mail', 60, 1)}), 0, 'another one does not get the message');
		$second->{stdout} = '';
		$second->{stdin} .= "SELECT 'deleted', pgmq.delete('mail', $id);\n";
		$second->{run}->pump_nb;
		wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%deleted%' AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()}, 'who deletes it waits', 60, expected => 1);
		$reader->query_safe($how);
		$second->{run}->pump until $second->{stdout} =~ /deleted\|(.)/;
		is($1, 't', "and deletes it after $how");
	}
	$_->quit for $reader, $second;
	is($q->(q{SELECT queue_length FROM pgmq.metrics('mail')}), 0, 'it is gone');
}

# many at once
$q->(q{CREATE TABLE got (id bigint); SELECT count(*) FROM pgmq.send_batch('busy', array_fill('{}'::jsonb, '{2000}'))});
append_to_file("$dir/get", "INSERT INTO got SELECT msg_id FROM pgmq.read('busy', 600, 7);\n");
$node->command_ok([ 'pgbench', '-n', '-c', 4, '-t', 100, '-f', "$dir/get", '-d', 'shim', '-h', $node->host, '-p', $node->port ], 'four read at once');
is($q->('SELECT count(*), count(DISTINCT id), max(read_ct) FROM got JOIN pgmq.q_busy ON id = msg_id'), '2000|2000|1', 'each message is read once');

#
# Beside calls of delay_wheel.
#
is($q->(q{SELECT pgmq.send('plain', '1', '{"trace": "x"}'::jsonb); CALL delay_await('plain', '30 s');
	SELECT payload, headers ->> 'trace', attempt, key FROM delay_lease('plain'); SELECT pgmq.delete('plain', 1), pgmq.archive('plain', 1);
	SELECT delay_cancel(id, stop_running => true) FROM delay_wheel.tasks WHERE queue = 'plain'}), "1\nt\n1|x|1|1\nf|f\ncancelled", 'a message of pgmq.send is leased, and delete lets it alone');
is($q->(q{SELECT delay_send('plain', '2', key => 'mine', headers => '{"trace": "y"}') > 0; SELECT msg_id, message, headers, enqueued_at FROM pgmq.read_with_poll('plain', 60, 1);
	SELECT pgmq.delete('plain', 2)}), "t\n2|2|{\"trace\": \"y\"}|\nt", 'one of delay_send is read');
my $lease = q{AS $$SELECT id, payload FROM delay_lease(queue, n)$$};
is($q->(qq{CREATE FUNCTION inlined(queue text, n int) RETURNS TABLE (id bigint, payload jsonb) LANGUAGE sql STABLE $lease;
	CREATE FUNCTION called(queue text, n int) RETURNS TABLE (id bigint, payload jsonb) LANGUAGE sql VOLATILE $lease;
	SELECT pgmq.send('plain', '3'); CALL delay_await('plain', '30 s'); SELECT payload FROM inlined('plain', 1)}), "3\nt\n3", 'delay_lease can be in a STABLE SQL function');
refused('postgres', [ q{SELECT * FROM called('plain', 1)}, '25001', 'delay_lease in another function' ],
	[ q{SELECT pgmq.create('secret')}, '42710', 'a queue that delay_wheel has' ], [ $load, '42P06', 'the file again' ]);
is($q->(q{SELECT pgmq.drop_queue('plain'), pgmq.drop_queue('dropped', true), pgmq.drop_queue('dropped'); SELECT to_regclass('pgmq.a_plain') IS NULL,
	(SELECT string_agg(queue_name, ' ' ORDER BY queue_name) FROM pgmq.list_queues()), (SELECT string_agg(name, ' ' ORDER BY name) FROM delay_wheel.queues)}), "t|t|f\nt|Mail busy|busy mail secret", 'queues are dropped');

#
# Roles.
#
refused('other', [ q{SELECT pgmq.send('mail', '1')}, '42501', 'the schema' ]);
refused('app',
	(map { [ "SELECT $_", '42P01', "$_, which is no queue of pgmq" ] } q{pgmq.send('secret', '1')}, q{pgmq.read('secret', 1, 1)}, q{pgmq.read('secret', 1, 1, '1')}, q{pgmq.pop('secret')},
		q{pgmq.delete('secret', 1)}, q{pgmq.archive('secret', 1)}, q{pgmq.set_vt('secret', 1, 1)}, q{pgmq.purge_queue('secret')}, q{pgmq.messages('secret')}, q{pgmq.metrics('secret')}),
	(map { [ "SELECT $_", '42501', $_ ] } q{pgmq.create('mine')}, q{pgmq.create_unlogged('mine')}, q{pgmq.drop_queue('mail')}, q{pgmq.take_over('mail', 'public')}, q{pgmq.give_back('mail', 'public')},
		q{pgmq.put('mail', NULL)}, q{pgmq.task_of('mail', 1)}, q{pgmq.receive('mail', 1)}),
	[ q{SELECT pgmq.create_partitioned('mine')}, '0A000', 'partitions' ], [ q{SELECT pgmq.validate_queue_name(repeat('x', 48))}, '42602', 'a long name' ], [ q{SELECT pgmq.validate_queue_name('a;b')}, '42602', 'a semicolon' ]);
is($q->(q{SELECT payload FROM delay_wheel.tasks WHERE queue = 'secret'}), 1, 'other queues are as they were');

# traps in the schema of the extension, and in the search_path
$q->('CREATE SCHEMA trap AUTHORIZATION app; CREATE TABLE trapped (who name, what text); GRANT INSERT ON trapped TO PUBLIC; GRANT CREATE ON SCHEMA public TO app');
my @traps = ('delay_send(a text, b jsonb, c interval, d timestamptz, e text, f text, g text, h int, i int, j text, k jsonb, l json)', 'delay_send(varchar, jsonb, interval, timestamptz, text, text, text, int, int, text, jsonb, jsonb)',
	'delay_cancel(int, boolean, boolean, text, text, boolean)', 'delay_receive(varchar, int, boolean)', 'delay_reschedule(bigint, timestamp, text, text)', 'delay_scheduled(int)',
	'lower(varchar)', 'lower(text)', 'nextval(text)', 'clock_timestamp()', 'format_table_name(text, text)');
as('app', join ' ', map { my $what = $_; map { qq{CREATE FUNCTION $_.$what RETURNS text LANGUAGE plpgsql AS \$\$BEGIN INSERT INTO public.trapped VALUES (current_user, '$what'); RETURN NULL; END\$\$;} } qw(trap public) } @traps);
is(as('app', q{SET search_path = trap, public, pg_catalog; SELECT pg_catalog.count(*) FROM pgmq.send('mail', '1'); SELECT pg_catalog.count(*) FROM pgmq.read_with_poll('mail', 0, 1); SELECT pg_catalog.count(*) FROM pgmq.set_vt('mail', 12, 0);
	SELECT pgmq.archive('mail', 12); SELECT pg_catalog.count(*) FROM pgmq.send('mail', '1', '{"a": 1}'::jsonb, 0); SELECT pgmq.delete('mail', 13); SELECT pg_catalog.count(*) FROM pgmq.pop('mail'); SELECT pgmq.purge_queue('mail')}), "1\n1\n1\nt\n1\nt\n0\n0", 'all is done');
is($q->(q{SELECT * FROM trapped WHERE who <> 'app'}), '', 'and no trap is met');

#
# pgmq's own test.
#
SKIP:
{
	skip 'no DW_PGMQ', 1 if !$ENV{DW_PGMQ};
	$node->safe_psql('postgres', 'CREATE DATABASE regress');
	$node->safe_psql('regress', 'CREATE EXTENSION delay_wheel');

	my @statements = statements_of("$ENV{DW_PGMQ}/pgmq-extension/test");
	my ($script, $out, $err) = ('', '', '');
	for my $n (0 .. $#statements)
	{
		# to be run with this instead
		my $text = $statements[$n]{text};
		$text = $text =~ /^CREATE EXTENSION (?:IF NOT EXISTS )?pgmq/ ? $load
		  : $text =~ /^DROP EXTENSION pgmq/ ? "SELECT pgmq.drop_queue(queue_name) FROM pgmq.list_queues(); DROP SCHEMA pgmq CASCADE;\n"
		  : $text =~ /EXTENSION/ ? '' : $text;
		$script .= "\\echo ## $n\n\\warn ## $n\n$text";
	}
	IPC::Run::run([ 'psql', '-X', '-q', '-d', $node->connstr('regress') ], '<', \$script, '>', \$out, '2>', \$err);
	my (undef, %out) = split /^## (\d+)\n/m, $out, -1;
	my (undef, %err) = split /^## (\d+)\n/m, $err, -1;
	my @calls = grep { $statements[$_]{text} =~ /pgmq/ && $statements[$_]{text} !~ /EXTENSION/ } 0 .. $#statements;
	my @other;
	for my $n (@calls)
	{
		my $got = plain(($err{$n} // '') . ($out{$n} // ''));

		push @other, "$statements[$n]{text}there: " . plain($statements[$n]{expected}) . "\nhere:  $got" if $got ne plain($statements[$n]{expected});
	}
	note("$_\n") for @other;
	note(sprintf '%d of %d statements do the same', @calls - @other, scalar @calls);
	is_deeply([ grep { !/partition|test_numeric_queue|test_duration_queue|-part'|QueueCasedPart|metrics_all|\(7 rows\)|a_detach_archive_queue/ } @other ], [], 'all others do the same');
	cmp_ok(scalar @calls, '>', 100, 'there were statements');
}

# Statements of the regression test, with what they print there.
sub statements_of
{
	my ($test) = @_;
	my @printed = split /\n/, slurp_file("$test/expected/base.out");
	my (@statements, $open);

	for my $line (grep { /\S/ } split /\n/, slurp_file("$test/sql/base.sql"))
	{
		while (@printed && $printed[0] ne $line)
		{
			$statements[-1]{expected} .= shift(@printed) . "\n";
		}
		shift @printed // die "not in the output: $line\n";
		next if $line =~ /^\s*--/;
		push @statements, { text => '', expected => '' } if !$open;
		$statements[-1]{text} .= "$line\n";
		$open = $line !~ /;\s*$|^\\set|\\gset\s*$/ || ($statements[-1]{text} =~ tr/'// % 2 && $statements[-1]{text} !~ /\$\$/);
	}
	$statements[-1]{expected} .= join("\n", @printed);
	return @statements;
}

# Each has errors and notices of its own words.
sub plain
{
	my ($text) = @_;

	return 'an error' if $text =~ /^(?:psql:.*)?ERROR:/m;
	return $text =~ s/^(?:psql:.*)?(?:NOTICE|WARNING|DETAIL|HINT):.*\n//gmr =~ s/-+/-/gr =~ s/\s+/ /gr =~ s/^ | $//gr;
}

$node->stop;
done_testing();
