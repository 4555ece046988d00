# What a session keeps between its calls to schedule: nothing that grows with
# the number of tasks, and no lock that is gone.

use strict;
use warnings;

use DelayWheel;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('scheduling');
my $n = long_tests() ? 1_000_000 : 100_000;

$node->safe_psql('postgres', qq{
	CREATE EXTENSION amcheck;
	CREATE TABLE orders (n int, memory bigint);
	SELECT delay_wheel.create_queue('mail');
	CREATE FUNCTION memory() RETURNS bigint LANGUAGE sql
		AS 'SELECT sum(total_bytes) FROM pg_backend_memory_contexts';
	CREATE FUNCTION on_order() RETURNS trigger LANGUAGE plpgsql AS \$\$
	BEGIN
		PERFORM delay_schedule('1 day', 'UPDATE orders SET n = n WHERE n = ' || NEW.n);
		IF NEW.n % (${n} / 10) = 0 THEN
			NEW.memory := memory();
		END IF;
		RETURN NEW;
	END \$\$;
	CREATE TRIGGER on_order BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION on_order();
});

# The memory of the backend, as it is at each tenth of the way, is the same.
my %statements = (
	'literal texts' => "delay_schedule('1 day', 'SELECT ' || i)",
	'texts of all sorts' => "delay_schedule('1 day', 'SELECT ''' || md5(i::text) || '''')",
	'arguments' => "delay_schedule('1 day', 'SELECT \$1, \$2::text', i, 'x'::text)",
	'options' => "delay_schedule_task('SELECT ' || i, delay => '1 day', queue => 'mail', tag => 'some tag', key => 'k' || i % 1000)",
);
foreach my $what (sort keys %statements)
{
	my $grown = $node->safe_psql('postgres', qq{
		SELECT max(memory) - min(memory) FROM (
			SELECT $statements{$what}, CASE WHEN i % ($n / 10) = 0 THEN memory() END AS memory
			FROM generate_series(1, $n) i OFFSET 0) s});
	cmp_ok($grown, '<', 500_000, "one statement, $what: memory is flat");
}

my $grown = $node->safe_psql('postgres', qq{
	SET client_min_messages = error;
	DO \$\$
	DECLARE
		low bigint;
		high bigint;
		id bigint;
	BEGIN
		FOR i IN 1 .. $n LOOP
			id := delay_schedule('1 day', 'SELECT ' || i);
			PERFORM delay_schedule('1 day', 'SELECT \$1', i);
			IF i % ($n / 10) = 0 THEN
				low := least(low, memory());
				high := greatest(high, memory());
			END IF;
		END LOOP;
		PERFORM set_config('test.grown', (high - low)::text, false);
	END \$\$;
	SELECT current_setting('test.grown')});
cmp_ok($grown, '<', 500_000, 'a loop: memory is flat');

# the list of a statement's triggers does grow, with AFTER triggers; so this is one before
$grown = $node->safe_psql('postgres', qq{
	INSERT INTO orders SELECT i FROM generate_series(1, $n) i;
	SELECT max(memory) - min(memory) FROM orders});
cmp_ok($grown, '<', 500_000, 'a trigger: memory is flat');

# The locks of a subtransaction go with it: then indexes are made, dropped and
# exchanged by others.
my $session = $node->background_psql('postgres', on_error_stop => 1);
my $schedule = q{SELECT count(delay_schedule_task('SELECT 1', delay => '1 day', key => md5(random()::text || i))) FROM generate_series(1, 5) i;};

sub begin_over { $session->query_safe("BEGIN; SAVEPOINT s; $schedule ROLLBACK TO s;"); }

sub all_indexes_are_right
{
	my ($what) = @_;
	my ($code, undef, $problem) = $node->psql('postgres', q{
		SELECT bt_index_parent_check(indexrelid, true) FROM pg_index
		WHERE indrelid = 'delay_wheel_data.task'::regclass});
	is($code, 0, "$what: all indexes have all rows") or diag($problem);
}

$node->safe_psql('postgres', 'TRUNCATE delay_wheel_data.task');
begin_over();
$node->safe_psql('postgres', 'CREATE INDEX others_idx ON delay_wheel_data.task (tag, id)');
$session->query_safe("$schedule COMMIT;");
all_indexes_are_right('CREATE INDEX');

begin_over();
$node->safe_psql('postgres', 'REINDEX TABLE delay_wheel_data.task');
$session->query_safe("$schedule COMMIT;");
all_indexes_are_right('REINDEX');

begin_over();
$node->safe_psql('postgres', 'DROP INDEX delay_wheel_data.others_idx');
$session->query_safe("$schedule COMMIT;");
all_indexes_are_right('DROP INDEX');

begin_over();
$node->safe_psql('postgres', 'VACUUM FULL delay_wheel_data.task');
$session->query_safe("$schedule COMMIT;");
all_indexes_are_right('VACUUM FULL');

begin_over();
$node->safe_psql('postgres', 'TRUNCATE delay_wheel_data.task');
$session->query_safe("$schedule COMMIT;");
all_indexes_are_right('TRUNCATE');
is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.tasks'), 5, 'the tasks are there');

# whoever would change the table waits for the transaction, not for what was
# rolled back in it
begin_over();
# without a key, whose index is locked by itself
$session->query_safe(q{SELECT count(delay_schedule('1 day', 'SELECT 1')) FROM generate_series(1, 5)});
my ($code, undef, $problem) = $node->psql('postgres',
	"SET lock_timeout = '100 ms'; TRUNCATE delay_wheel_data.task");
like($problem, qr/lock timeout/, 'the lock is there again');
$session->query_safe('COMMIT');
$session->quit;

$node->stop;
done_testing();
