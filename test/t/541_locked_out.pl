# Locks on delay_wheel's tables, by who has no right to them.  Most commands of PostgreSQL lock
# a table before they look at rights, and some keep the lock.  All look up the table's schema
# first, delay_wheel_data, which nobody but superusers may use.  So no command waits, and none
# keeps a lock that stops anybody.  The commands are those that psql's \h lists, on each major:
# one that is new fails the test until somebody has written here what it names.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('locks_of_others', conf => q{
max_prepared_transactions = 5
delay_wheel.executor_idle_timeout = 1h
});
$node->safe_psql('postgres', q{
	CREATE ROLE outsider LOGIN;
	CREATE ROLE friend LOGIN;
	SELECT delay_wheel.allow('friend');
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO friend; GRANT EXECUTE ON FUNCTION delay_wheel.create_queue, delay_wheel.drop_queue, delay_wheel.pause_database, delay_wheel.resume_database, delay_wheel.arm, delay_wheel.follow_shards TO friend;
	GRANT CREATE ON DATABASE postgres TO outsider;
	CREATE SCHEMA own AUTHORIZATION outsider;
	CREATE TABLE effect (what text);
	GRANT ALL ON effect TO friend;
	SET SESSION AUTHORIZATION outsider;
	SET search_path = own;
	CREATE TABLE t (id bigint PRIMARY KEY, a int DEFAULT 0);
	CREATE TABLE parts (id bigint) PARTITION BY LIST (id);
	CREATE INDEX parts_id ON parts (id);
	CREATE EXTENSION hstore;
	CREATE MATERIALIZED VIEW m AS SELECT 1 AS id;
	CREATE VIEW v AS SELECT id FROM t;
	CREATE SEQUENCE s;
	CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
	CREATE FUNCTION sum_up(bigint, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT $1';
	CREATE PUBLICATION p});
my $toast = $node->safe_psql('postgres', q{SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 'delay_wheel_data.task'::regclass});
my @relations = ('delay_wheel_data.task', 'delay_wheel_data.readable_task', 'delay_wheel_data.history_1', 'delay_wheel_data.task_pkey',
	'delay_wheel_data.task_id_seq', 'delay_wheel_data.queue_name', $toast, "${toast}_index");

# Commands that name no relation.  Some of them lock the schema or the extension before they look
# at rights, which stands in nobody's way; IMPORT FOREIGN SCHEMA takes a server, and SECURITY LABEL a
# provider, neither of which is there.
my $none = qr/^(?:ABORT|ALTER\ (?:AGGREGATE|DEFAULT\ PRIVILEGES|SCHEMA|COLLATION|CONVERSION|DATABASE|EVENT\ TRIGGER|FOREIGN\ DATA\ WRAPPER|GROUP|LANGUAGE|LARGE\ OBJECT|OPERATOR.*|PROCEDURE|ROLE|ROUTINE|SERVER|SUBSCRIPTION|SYSTEM|TABLESPACE|TEXT\ SEARCH.*|USER|USER\ MAPPING)|
	BEGIN|CHECKPOINT|CLOSE|COMMIT|COMMIT\ PREPARED|CREATE\ (?:ACCESS\ METHOD|EXTENSION|COLLATION|CONVERSION|DATABASE|EVENT\ TRIGGER|FOREIGN\ DATA\ WRAPPER|GROUP|LANGUAGE|OPERATOR.*|ROLE|SERVER|SUBSCRIPTION|TABLESPACE|TEXT\ SEARCH.*|TRANSFORM|USER|USER\ MAPPING)|
	DEALLOCATE|DISCARD|DROP\ (?:ACCESS\ METHOD|EXTENSION|SCHEMA|CAST|COLLATION|CONVERSION|DATABASE|EVENT\ TRIGGER|FOREIGN\ DATA\ WRAPPER|GROUP|LANGUAGE|OPERATOR.*|OWNED|PUBLICATION|ROLE|SERVER|SUBSCRIPTION|TABLESPACE|TEXT\ SEARCH.*|TRANSFORM|USER|USER\ MAPPING)|
	END|EXECUTE|FETCH|IMPORT\ FOREIGN\ SCHEMA|LISTEN|LOAD|MOVE|NOTIFY|PREPARE\ TRANSACTION|REASSIGN\ OWNED|RELEASE\ SAVEPOINT|RESET|ROLLBACK.*|SAVEPOINT|SECURITY\ LABEL|SET|SET\ (?:CONSTRAINTS|ROLE|SESSION\ AUTHORIZATION|TRANSACTION)|SHOW|START\ TRANSACTION|UNLISTEN|WAIT(?:\ FOR)?)$/x;

# What can be said of a relation, % (of its schema, its trigger, its column) by each of the others.
my @query = ('%s SELECT 1 FROM %', '%s SELECT 1 FROM % FOR UPDATE', '%s SELECT NULL::%', '%s DELETE FROM %', '%s INSERT INTO % SELECT', '%s UPDATE % SET id = 1',
	'%s WITH d AS (DELETE FROM % RETURNING 1) TABLE d', '%s MERGE INTO % x USING t ON x.id = t.id WHEN MATCHED THEN DELETE');
sub queries { my ($before) = @_; return map { s/%s /$before/r } @query; }
sub reads { my ($before) = @_; return map { s/%s /$before/r } grep { /^%s (?:SELECT|WITH)/ } @query; }
my @kinds = ('TABLE', 'INDEX', 'SEQUENCE', 'VIEW', 'MATERIALIZED VIEW', 'FOREIGN TABLE');
my %alter = map { ("ALTER $_" => [ "ALTER $_ % RENAME TO x", $_ eq 'INDEX' ? () : "ALTER $_ % SET SCHEMA own" ]) } @kinds;
my %drop = map { ("DROP $_" => [ "DROP $_ %", "DROP $_ IF EXISTS % CASCADE" ]) } @kinds;
my %statements = (
	%alter, %drop,
	'ALTER TABLE' => [ @{ $alter{'ALTER TABLE'} }, 'ALTER TABLE % ADD x int', 'ALTER TABLE % OWNER TO outsider', 'ALTER TABLE % ENABLE ROW LEVEL SECURITY', 'ALTER TABLE t ADD FOREIGN KEY (id) REFERENCES %',
		'ALTER TABLE t ADD b bigint REFERENCES %', 'ALTER TABLE t INHERIT %', 'ALTER TABLE t NO INHERIT %', 'ALTER TABLE t OF %', 'ALTER TABLE parts ATTACH PARTITION % DEFAULT', 'ALTER TABLE parts DETACH PARTITION %',
		'ALTER TABLE parts DETACH PARTITION % CONCURRENTLY', 'ALTER TABLE % VALIDATE CONSTRAINT x', 'ALTER TABLE % RENAME id TO x', q{ALTER TABLE t ALTER a SET DEFAULT nextval('%')},
		'ALTER TABLE t ALTER a TYPE %' ],
	'ALTER INDEX' => [ @{ $alter{'ALTER INDEX'} }, 'ALTER INDEX % DEPENDS ON EXTENSION plpgsql', 'ALTER INDEX % NO DEPENDS ON EXTENSION plpgsql', 'ALTER INDEX parts_id ATTACH PARTITION %', 'ALTER INDEX % SET (fillfactor = 50)' ],
	'ALTER SEQUENCE' => [ @{ $alter{'ALTER SEQUENCE'} }, 'ALTER SEQUENCE % RESTART', 'ALTER SEQUENCE s OWNED BY %.id' ],
	'ALTER VIEW' => [ @{ $alter{'ALTER VIEW'} }, 'ALTER VIEW % ALTER id SET DEFAULT 1' ],
	'ALTER MATERIALIZED VIEW' => [ @{ $alter{'ALTER MATERIALIZED VIEW'} }, 'ALTER MATERIALIZED VIEW % DEPENDS ON EXTENSION plpgsql', 'ALTER MATERIALIZED VIEW % CLUSTER ON x' ],
	'ALTER DOMAIN' => [ 'ALTER DOMAIN % SET NOT NULL' ],
	'ALTER EXTENSION' => [ map { "ALTER EXTENSION hstore ADD $_ %" } grep { $_ ne 'INDEX' } @kinds ],
	'ALTER FUNCTION' => [ 'ALTER FUNCTION f(%) STABLE' ],
	'ALTER POLICY' => [ 'ALTER POLICY own ON % USING (true)', 'ALTER POLICY own ON % RENAME TO x' ],
	'ALTER PROPERTY GRAPH' => [ 'ALTER PROPERTY GRAPH % RENAME TO x' ],
	'ALTER PUBLICATION' => [ 'ALTER PUBLICATION p ADD TABLE %', 'ALTER PUBLICATION p SET TABLE %', 'ALTER PUBLICATION p DROP TABLE %' ],
	'ALTER RULE' => [ 'ALTER RULE no_insert ON % RENAME TO x' ],
	'ALTER STATISTICS' => [ 'ALTER STATISTICS % SET STATISTICS 1' ],
	'ALTER TRIGGER' => [ 'ALTER TRIGGER task_guard ON % RENAME TO x', 'ALTER TRIGGER task_guard ON % DEPENDS ON EXTENSION plpgsql' ],
	'ALTER TYPE' => [ 'ALTER TYPE % RENAME TO x', 'ALTER TYPE % ADD ATTRIBUTE x int' ],
	'ANALYZE' => [ 'ANALYZE %' ],
	'CALL' => [ 'CALL f(NULL::%)' ],
	'CLUSTER' => [ 'CLUSTER %', 'CLUSTER % USING x' ],
	'COMMENT' => [ (map { "COMMENT ON $_ % IS 'x'" } @kinds), "COMMENT ON COLUMN %.id IS 'x'", "COMMENT ON CONSTRAINT x ON % IS 'x'", "COMMENT ON TRIGGER task_guard ON % IS 'x'", "COMMENT ON RULE x ON % IS 'x'", "COMMENT ON POLICY own ON % IS 'x'",
		"COMMENT ON TYPE % IS 'x'" ],
	'COPY' => [ 'COPY % TO STDOUT', 'COPY (SELECT FROM %) TO STDOUT', 'COPY (DELETE FROM % RETURNING 1) TO STDOUT' ],
	'CREATE AGGREGATE' => [ 'CREATE AGGREGATE own.a(bigint) (SFUNC = sum_up, STYPE = %)' ],
	'CREATE CAST' => [ 'CREATE CAST (% AS text) WITH INOUT' ],
	'CREATE DOMAIN' => [ 'CREATE DOMAIN own.d AS %' ],
	'CREATE FOREIGN TABLE' => [ 'CREATE FOREIGN TABLE x () INHERITS (%) SERVER none', 'CREATE FOREIGN TABLE x PARTITION OF % DEFAULT SERVER none' ],
	'CREATE FUNCTION' => [ "CREATE FUNCTION x() RETURNS void LANGUAGE sql AS 'DELETE FROM %'", 'CREATE FUNCTION x() RETURNS void LANGUAGE sql BEGIN ATOMIC DELETE FROM %; END', "CREATE FUNCTION x() RETURNS SETOF % LANGUAGE sql AS 'SELECT 1'",
		"CREATE FUNCTION x(a %.id%TYPE) RETURNS void LANGUAGE sql AS ''" ],
	'CREATE INDEX' => [ 'CREATE INDEX ON % (id)', 'CREATE INDEX CONCURRENTLY ON % (id)' ],
	'CREATE MATERIALIZED VIEW' => [ reads('CREATE MATERIALIZED VIEW x AS ') ],
	'CREATE POLICY' => [ 'CREATE POLICY x ON %', 'CREATE POLICY x ON t USING (EXISTS (SELECT FROM %))' ],
	'CREATE PROCEDURE' => [ 'CREATE PROCEDURE x() LANGUAGE sql BEGIN ATOMIC DELETE FROM %; END' ],
	'CREATE PROPERTY GRAPH' => [ 'CREATE PROPERTY GRAPH x VERTEX TABLES (% KEY (id))' ],
	'CREATE PUBLICATION' => [ 'CREATE PUBLICATION x FOR TABLE %', 'CREATE PUBLICATION x FOR TABLES IN SCHEMA @' ],
	'CREATE RULE' => [ 'CREATE RULE r AS ON INSERT TO % DO NOTHING', 'CREATE RULE r AS ON INSERT TO t DO ALSO DELETE FROM %', 'CREATE RULE r AS ON DELETE TO v DO INSTEAD DELETE FROM %' ],
	'CREATE SCHEMA' => [ 'CREATE SCHEMA x CREATE VIEW y AS TABLE %' ],
	'CREATE SEQUENCE' => [ 'CREATE SEQUENCE x OWNED BY %.id' ],
	'CREATE STATISTICS' => [ 'CREATE STATISTICS x ON id, due FROM %' ],
	'CREATE TABLE' => [ 'CREATE TABLE x () INHERITS (%)', 'CREATE TABLE x PARTITION OF % DEFAULT', 'CREATE TABLE x (LIKE %)', 'CREATE TABLE x OF %', 'CREATE TABLE x (a %)', 'CREATE TABLE x (a bigint REFERENCES %)', 'CREATE TABLE x (a bigint, FOREIGN KEY (a) REFERENCES %)',
		q{CREATE TABLE x (a bigint DEFAULT nextval('%'))}, 'CREATE TABLE @.x ()' ],
	'CREATE TABLE AS' => [ reads('CREATE TABLE x AS '), 'CREATE TABLE x AS SELECT FROM % FOR UPDATE WITH NO DATA' ],
	'CREATE TRIGGER' => [ 'CREATE TRIGGER x AFTER INSERT ON % FOR EACH ROW EXECUTE FUNCTION f()', 'CREATE CONSTRAINT TRIGGER x AFTER INSERT ON t FROM % FOR EACH ROW EXECUTE FUNCTION f()' ],
	'CREATE TYPE' => [ 'CREATE TYPE x AS (a %)', 'CREATE TYPE x AS RANGE (SUBTYPE = %)' ],
	'CREATE VIEW' => [ reads('CREATE VIEW x AS ') ],
	'DECLARE' => [ reads('BEGIN; DECLARE c CURSOR FOR ') ],
	'DELETE' => [ 'DELETE FROM %', 'DELETE FROM t USING %' ],
	'DO' => [ q{DO 'BEGIN DELETE FROM %; END'}, q{DO 'BEGIN CREATE RULE r AS ON INSERT TO % DO NOTHING; END'}, q{DO 'DECLARE r %; BEGIN END'} ],
	'DROP AGGREGATE' => [ 'DROP AGGREGATE a(%)' ],
	'DROP DOMAIN' => [ 'DROP DOMAIN %' ],
	'DROP FUNCTION' => [ 'DROP FUNCTION f(%)' ],
	'DROP POLICY' => [ 'DROP POLICY own ON %', 'DROP POLICY IF EXISTS own ON %' ],
	'DROP PROCEDURE' => [ 'DROP PROCEDURE f(%)' ],
	'DROP PROPERTY GRAPH' => [ 'DROP PROPERTY GRAPH %' ],
	'DROP ROUTINE' => [ 'DROP ROUTINE f(%)' ],
	'DROP RULE' => [ 'DROP RULE no_insert ON %' ],
	'DROP STATISTICS' => [ 'DROP STATISTICS %' ],
	'DROP TRIGGER' => [ 'DROP TRIGGER task_guard ON %', 'DROP TRIGGER IF EXISTS task_guard ON %' ],
	'DROP TYPE' => [ 'DROP TYPE %' ],
	'EXPLAIN' => [ queries('EXPLAIN ') ],
	'GRANT' => [ 'GRANT SELECT ON % TO PUBLIC', 'GRANT USAGE ON SCHEMA @ TO outsider', 'GRANT SELECT ON ALL TABLES IN SCHEMA @ TO outsider', 'GRANT USAGE ON TYPE % TO PUBLIC' ],
	'INSERT' => [ 'INSERT INTO % SELECT', 'INSERT INTO % DEFAULT VALUES', 'INSERT INTO t SELECT 1 FROM %' ],
	'LOCK' => [ 'BEGIN; LOCK %', 'BEGIN; LOCK ONLY % IN ACCESS SHARE MODE', 'BEGIN; LOCK t, %' ],
	'MERGE' => [ 'MERGE INTO % x USING t ON x.id = t.id WHEN MATCHED THEN DELETE', 'MERGE INTO t USING % x ON x.id = t.id WHEN MATCHED THEN DELETE' ],
	'PREPARE' => [ queries('PREPARE p AS ') ],
	'REFRESH MATERIALIZED VIEW' => [ 'REFRESH MATERIALIZED VIEW %', 'REFRESH MATERIALIZED VIEW CONCURRENTLY %' ],
	'REINDEX' => [ 'REINDEX TABLE %', 'REINDEX INDEX %', 'REINDEX TABLE CONCURRENTLY %', 'REINDEX SCHEMA @' ],
	'REPACK' => [ 'REPACK %', 'REPACK (CONCURRENTLY) %' ],
	'REVOKE' => [ 'REVOKE SELECT ON % FROM PUBLIC', 'REVOKE SELECT ON ALL TABLES IN SCHEMA @ FROM PUBLIC' ],
	'SELECT' => [ queries(''), 'SELECT 1 FROM % TABLESAMPLE SYSTEM (1)', q{SELECT '%'::regclass}, q{SELECT nextval('%')}, q{SELECT pg_relation_size('%')}, q{SELECT table_to_xmlschema('%', true, true, '')}, q{SELECT currtid2('%', '(0,1)')},
		q{SELECT brin_summarize_new_values('%')}, q{SELECT has_table_privilege('%', 'SELECT')} ],
	'SELECT INTO' => [ 'SELECT id INTO x FROM %' ],
	'TABLE' => [ 'TABLE %' ],
	'TRUNCATE' => [ 'TRUNCATE %', 'TRUNCATE t, %' ],
	'UPDATE' => [ 'UPDATE % SET id = 1', 'UPDATE t SET a = 1 FROM %' ],
	'VACUUM' => [ 'VACUUM %', 'VACUUM FULL %', 'VACUUM (ANALYZE) %' ],
	'VALUES' => [ 'VALUES ((SELECT 1 FROM %))' ],
	'WITH' => [ 'WITH d AS (SELECT 1 FROM %) TABLE d' ]);

#
# No command waits: with all that is ours dropped in a transaction that has not ended.
#
my $list = $node->safe_psql('postgres', '\h *');
my @commands = $list =~ /^Command:\s+(\S.*?)\s*$/mg;
cmp_ok(@commands, '>', 150, 'psql lists the commands of PostgreSQL');
my @unknown = grep { !$statements{$_} && !/$none/ } @commands;
is(join(', ', @unknown), '', 'it is known of each what it names');

my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; DROP EXTENSION delay_wheel');
my (%said, @bad);
for my $command (sort grep { $statements{$_} } @commands)
{
	my @all = map { my $sql = $_; $sql =~ /(?<!\w)%/ ? map { my $r = $_; $sql =~ s/(?<!\w)%(?!TYPE)/$r/gr } @relations : $sql =~ s/@/delay_wheel_data/gr } @{ $statements{$command} };
	my (undef, undef, $err) = $node->psql('postgres', join("\n", "\\set VERBOSITY sqlstate\nSET search_path = own, public; SET lock_timeout = '1s';", map { "\\warn :: $_\n$_;\nROLLBACK;" } @all),
		on_error_stop => 0, extra_params => [ '-U', 'outsider' ]);
	my @answers = "$err\n" =~ /^:: (.*)\n((?:(?!:: ).*\n)*)/mg;
	is(@answers / 2, scalar(@all), "$command: " . @all . ' statements were run');
	while (my ($sql, $answer) = splice @answers, 0, 2)
	{
		my ($state) = $answer =~ /ERROR:\s+(\w+)/;
		$said{ $state // 'done' }++;
		# from 19 on GRANT locks what it names before it looks at rights: here a schema, whose lock is for those who drop it
		next if $sql =~ /^GRANT USAGE ON SCHEMA/ && ($state // '') eq '55P03' && $node->pg_version->major >= 19;
		push @bad, "$sql: " . ($state // "done $answer") if !defined $state || $state ne '42501';
	}
}
# psql reads what follows it as data
for my $relation (@relations)
{
	my (undef, undef, $err) = $node->psql('postgres', undef, extra_params => [ '-U', 'outsider', '-v', 'VERBOSITY=sqlstate', '-c', "COPY $relation FROM STDIN" ]);
	push @bad, "COPY $relation FROM STDIN: $err" if $err !~ /ERROR:\s+42501/;
}
is(join("\n", @bad), '', 'each is refused, and none has waited');
note(join ', ', map { "$_: $said{$_}" } sort keys %said);
$holder->query_safe('ROLLBACK');
$holder->quit;

#
# What such a role keeps until the end of its transaction, by the views, which everybody may
# read: nothing that stops writers or autovacuum, and nobody of ours waits for it.
#
my $ours = q{c.relnamespace IN ('delay_wheel'::regnamespace, 'delay_wheel_data'::regnamespace, 'delay_wheel_internal'::regnamespace)};
my @views = split /\n/, $node->safe_psql('postgres', qq{SELECT oid::regclass FROM pg_class c WHERE $ours AND relkind = 'v' AND has_table_privilege('outsider', oid, 'SELECT')
	AND has_schema_privilege('outsider', relnamespace, 'USAGE')});
cmp_ok(@views, '>', 15, 'views for everybody');
my @statements = ((map { my $view = $_; map { s/%/$view/r } 'TABLE %', 'PREPARE p AS DELETE FROM %', 'PREPARE p AS SELECT FROM % FOR UPDATE', 'PREPARE p AS UPDATE % SET id = 1', 'PREPARE p AS INSERT INTO % DEFAULT VALUES',
	'PREPARE p AS WITH d AS (DELETE FROM % RETURNING 1) TABLE d', 'PREPARE p AS MERGE INTO % USING (SELECT 1) s ON true WHEN MATCHED THEN DELETE', 'DECLARE c CURSOR FOR SELECT FROM % FOR UPDATE', 'LOCK % IN ACCESS SHARE MODE', 'LOCK % IN ROW EXCLUSIVE MODE', 'LOCK %',
	'CREATE VIEW v2 AS TABLE %; PREPARE p AS DELETE FROM v2', 'CREATE RULE r AS ON INSERT TO t DO ALSO DELETE FROM %' } @views), 'SELECT delay_wheel.page_data()');
# a savepoint gives back what a statement that fails had locked
my $modes = qq{SELECT 'modes ' || string_agg(DISTINCT mode, ' ') FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE pid = pg_backend_pid() AND $ours AND relkind <> 'v'};
my (undef, $kept) = $node->psql('postgres', join('', "SET search_path = own, public;\n", map { "BEGIN; SAVEPOINT s;\n$_;\n\\if :ERROR\nROLLBACK TO s;\n\\endif\n$modes;\nROLLBACK; DEALLOCATE ALL;\n" } @statements),
	on_error_stop => 0, extra_params => [ '-U', 'outsider' ]);
my %modes = map { $_ => 1 } map { split ' ' } $kept =~ /^modes (.*)$/mg;
is(join(' ', sort keys %modes), 'AccessShareLock RowShareLock', 'the locks that ' . @statements . ' statements keep');

my $keeper = $node->background_psql('postgres', extra_params => [ '-U', 'outsider' ]);
my $n = 0;
$keeper->query_safe(join '; ', 'BEGIN', map { 'PREPARE p' . $n++ . " AS SELECT FROM $_ FOR UPDATE" } grep { !/newest_failed|first_messages|forecast|nodes|waiting|lateness|recurring_status/ } @views);
(undef, undef, my $err) = $node->psql('postgres', q{SET lock_timeout = '2s';
	SELECT delay_cancel(delay_schedule('1 day', 'SELECT 1')), delay_reschedule(delay_schedule('1 day', 'SELECT 1'), '2 days'), delay_schedule_task('SELECT 1', key => 'kept', delay => '1 day') > 0, delay_cancel(key => 'kept');
	SELECT delay_every('kept', '1 day', 'SELECT 1') > 0, delay_pause_recurring('kept'), delay_unschedule('kept');
	SELECT delay_pause_all(); SELECT delay_resume_all(); SELECT delay_run(delay_schedule('1 day', 'SELECT 1')), delay_retry_all(), delay_discard_all(), delay_cancel_all(tag => 'kept') > 0;
	SELECT delay_schedule('0', 'INSERT INTO effect VALUES (''beside locks that are kept'')'), delay_schedule('0', 'SELECT 1/0')}, on_error_stop => 0, extra_params => [ '-U', 'friend' ]);
is($err, '', 'nobody who schedules waits for these');
wait_for($node, 'SELECT count(*) FROM effect', 'nor do tasks', 20, expected => 1);
(undef, undef, $err) = $node->psql('postgres', q{SET lock_timeout = '2s'; SELECT delay_wheel.create_queue('kept'); SELECT delay_wheel.drop_queue('kept'); SELECT delay_wheel.pause_database(); SELECT delay_wheel.resume_database(); SELECT delay_wheel.arm();
	VACUUM delay_wheel_data.task, delay_wheel_data.history_0, delay_wheel_data.prepared; ANALYZE delay_wheel_data.task}, on_error_stop => 0);
is($err, '', 'administrators and VACUUM do not wait');
$keeper->query_safe('ROLLBACK');
$keeper->quit;

$node->stop;
done_testing();
