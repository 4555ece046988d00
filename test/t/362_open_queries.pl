# Queries that stay open from one task of a batch to the next: each task sees and does what
# it would with a query of its own.
#
# Tasks that change something in another session do so by dblink, in the middle of a batch.
# Results are right also where a slow machine cuts a batch in two there, or undoes it.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'needs the build with injection points' unless has_injection();

my $common = q{
	autovacuum = off
	delay_wheel.executor_idle_timeout = 1h
	delay_wheel.max_executors = 1
	delay_wheel.batch_time = 100ms
	delay_wheel.check_sql = off
};
my $node = new_node('open', injection => 1, batches => 1, conf => $common);

sub prepare
{
	my ($on) = @_;
	my $port = $on->port;
	my $host = $on->host;

	$on->safe_psql('postgres', qq{
		CREATE ROLE worker LOGIN;
		SELECT delay_wheel.allow('worker');
		CREATE TABLE account (id int PRIMARY KEY, n bigint NOT NULL DEFAULT 0, note text);
		INSERT INTO account SELECT g FROM generate_series(1, 300) g;
		CREATE TABLE seen (place serial PRIMARY KEY, n bigint CHECK (n <> 13), label text, at_path text);
		CREATE TABLE fired (what text, n bigint);
		CREATE TABLE parent (id int PRIMARY KEY);
		CREATE TABLE child (parent int REFERENCES parent, note text);
		GRANT ALL ON ALL TABLES IN SCHEMA public TO worker;
		GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO worker;
		GRANT CREATE ON SCHEMA public TO worker;
	});
	return;
}
prepare($node);

sub sql { my ($sql, $on) = @_; return ($on // $node)->safe_psql('postgres', "SET ROLE worker;\n$sql"); }
sub admin { my ($sql, $on) = @_; return ($on // $node)->safe_psql('postgres', $sql); }

# Runs the tasks that this SQL schedules, as a backlog of one executor, in order.
sub batch
{
	my ($sql, $what, $on) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $server = $on // $node;
	admin('SELECT delay_wheel.pause_database()', $server);
	sql($sql, $server);
	admin('SELECT delay_wheel.resume_database()', $server);
	return wait_for($server, 'SELECT count(*) FROM delay_wheel_data.task', "$what: all tasks come to an end", 120, expected => 0);
}


# As batch(); *least* tasks at least must have found their query open.
sub open_batch
{
	my ($sql, $least, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = counted($node, 'queries-begun-again');
	batch($sql, $what);
	return cmp_ok(counted($node, 'queries-begun-again') - $before, '>=', $least, "$what: by queries that stay open");
}

# As batch(); none may have.
sub closed_batch
{
	my ($sql, $what, $on) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = counted($on // $node, 'queries-begun-again');
	batch($sql, $what, $on);
	return is(counted($on // $node, 'queries-begun-again') - $before, 0, "$what: each has a query of its own");
}

sub query_is
{
	my ($query, $expected, $what, $on) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(admin($query, $on), $expected, $what);
}

sub clean
{
	admin(q{UPDATE account SET n = 0, note = NULL; TRUNCATE seen, fired, parent, child RESTART IDENTITY;
		DELETE FROM delay_wheel_data.failed_task; VACUUM delay_wheel_data.task});
	return;
}

my $updates = q{SELECT count(delay_schedule('0', 'UPDATE account SET n = n + $2, note = $3 WHERE id = $1',
	g, g * 2::bigint, 'note ' || g)) FROM generate_series(1, 300) g;};

#
# Values of each task, in every form that keeps its query open.
#
open_batch($updates, 100, 'updates with arguments');
query_is(q{SELECT count(*) FROM account WHERE n = 2 * id AND note = 'note ' || id}, 300, 'each with its own values');
clean();
open_batch(q{SELECT count(delay_schedule('0', format('UPDATE account SET n = %s, note = %L WHERE id = %s', g * 2, 'note ' || g, g)))
	FROM generate_series(1, 300) g;}, 100, 'updates with literals');
query_is(q{SELECT count(*) FROM account WHERE n = 2 * id AND note = 'note ' || id}, 300, 'each with its own values');
clean();
open_batch(q{SELECT count(delay_schedule('0', 'INSERT INTO seen (n, label) VALUES ($1, $2)', 100 + g, NULLIF('x' || g, 'x7')))
	FROM generate_series(1, 300) g;}, 100, 'insertions');
query_is(q{SELECT count(*) || ' ' || count(DISTINCT place) || ' ' || count(*) FILTER (WHERE label IS NULL) FROM seen WHERE n = 100 + place AND
	(label = 'x' || place OR place = 7)}, '300 300 1', 'with defaults, checks and nulls');
clean();
open_batch(q{SELECT count(delay_schedule('0', 'DELETE FROM account WHERE id = $1', g)) FROM generate_series(101, 300) g;}, 50, 'deletions');
query_is('SELECT count(*) FROM account', 100, 'each has deleted its row');
admin('INSERT INTO account SELECT g FROM generate_series(101, 300) g');
# a long value is toasted in the row of the task
open_batch(q{SELECT count(delay_schedule('0', 'UPDATE account SET note = $2 WHERE id = $1', g, (SELECT string_agg(md5(g::text || i), '') FROM
	generate_series(1, 200) i))) FROM generate_series(1, 100) g;}, 30, 'long values');
query_is(q{SELECT count(*) FROM account WHERE id <= 100 AND note = (SELECT string_agg(md5(id::text || i), '') FROM generate_series(1, 200) i)},
	100, 'are those of the task');
clean();

#
# A task sees what tasks before it have done, and what others have committed meanwhile.
#
open_batch(q{SELECT count(delay_schedule('0', 'UPDATE account SET n = n + 1 WHERE id = $1', 1 + g % 2)) FROM generate_series(1, 200) g;},
	100, 'changes of one row');
query_is('SELECT n FROM account WHERE id IN (1, 2) ORDER BY id', "100\n100", 'each is made on the one before');
clean();

my $dblink = admin(q{SELECT count(*) FROM pg_available_extensions WHERE name = 'dblink'});
SKIP:
{
	skip 'dblink is not installed', 1 unless $dblink;
	my $where = sprintf "host=%s port=%s dbname=postgres", $node->host, $node->port;
	admin(qq{
		CREATE EXTENSION dblink;
		CREATE FUNCTION elsewhere(what text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS \$\$
		BEGIN
			RETURN dblink_exec('$where', what);
		END \$\$;
		CREATE FUNCTION on_the_way() RETURNS trigger LANGUAGE plpgsql AS \$\$
		BEGIN
			IF current_setting('application_name') = 'delay_wheel' THEN
				PERFORM elsewhere('UPDATE account SET n = n + 1000 WHERE id IN (SELECT id FROM account WHERE id > 200 FOR UPDATE SKIP LOCKED)');
			END IF;
			RETURN NULL;
		END \$\$;
	});

	my $look = q{SELECT count(delay_schedule('0', 'INSERT INTO seen (n, label) SELECT n, $2 FROM account WHERE id = $1', 5, '%s'))
		FROM generate_series(1, 40) g;};
	batch(sprintf($look, 'before') . q{SELECT delay_schedule('0', $$SELECT elsewhere('UPDATE account SET n = 2 WHERE id = 5')$$);} .
		sprintf($look, 'behind'), 'others commit meanwhile');
	query_is(q{SELECT count(*) FILTER (WHERE label = 'behind' AND n = 2) || ' ' || count(*) FROM seen}, '40 80', 'the tasks behind see it');
	clean();

	# a row that changes between the snapshot of a task and its own change
	admin('CREATE TRIGGER way BEFORE UPDATE ON account FOR EACH STATEMENT EXECUTE FUNCTION on_the_way()');
	batch(q{SELECT count(delay_schedule('0', 'UPDATE account SET n = n + $2 WHERE id = $1', g, 1::bigint)) FROM generate_series(201, 204) g;},
		'rows that others have changed since the snapshot');
	admin('DROP TRIGGER way ON account');
	query_is('SELECT string_agg(n % 1000 || CASE WHEN n > 1000 THEN \'+\' ELSE \'-\' END, \' \') FROM account WHERE id BETWEEN 201 AND 204', '1+ 1+ 1+ 1+', 'each has looked at the new version');
	clean();

	# rights, functions
	my $pay = q{SELECT count(delay_schedule('0', 'UPDATE account SET n = n + 1 WHERE id = $1', g)) FROM generate_series(%d, %d) g;};
	batch(sprintf($pay, 1, 50) . q{SELECT delay_schedule('0', $$SELECT elsewhere('REVOKE UPDATE ON account FROM worker')$$);} .
		sprintf($pay, 51, 100), 'a right that is taken away meanwhile');
	admin('GRANT UPDATE ON account TO worker');
	# the first that fails undoes its batch, so some before it may have come too late, too
	query_is(q{SELECT count(*) FROM account WHERE n > 0 AND id > 50}, 0, 'no task behind has it');
	query_is(q{SELECT count(*) >= 50 AND min(sqlstate) = '42501' AND max(sqlstate) = '42501' FROM delay_wheel_data.failed_task}, 't', 'these have failed');
	clean();
	for my $language (['sql', q{SELECT %d}], ['plpgsql', q{BEGIN RETURN %d; END}])
	{
		my ($name, $body) = @$language;
		my $define = sprintf "CREATE OR REPLACE FUNCTION value() RETURNS int LANGUAGE $name VOLATILE AS \$\$$body\$\$", 1;
		my $again = sprintf "CREATE OR REPLACE FUNCTION value() RETURNS int LANGUAGE $name VOLATILE AS ''$body''", 2;
		admin($define);
		my $ask = q{SELECT count(delay_schedule('0', 'INSERT INTO seen (n, label) VALUES (value(), ''%s'')')) FROM generate_series(1, 50) g;};
		batch(sprintf($ask, 'before') . "SELECT delay_schedule('0', \$\$SELECT elsewhere('$again')\$\$);" . sprintf($ask, 'behind'), "a function in $name that is replaced meanwhile");
		query_is(q{SELECT count(*) FILTER (WHERE label = 'behind' AND n = 2) || ' ' || count(*) FROM seen}, '50 100', 'tasks behind call the new one');
		admin('DROP FUNCTION value()');
		clean();
	}
}

#
# Triggers: each task is a statement.
#
admin(q{
	CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO fired VALUES (TG_WHEN || ' ' || TG_LEVEL, CASE TG_LEVEL WHEN 'ROW' THEN NEW.id END);
		RETURN NEW;
	END $$;
	CREATE TRIGGER bs BEFORE UPDATE ON account FOR EACH STATEMENT EXECUTE FUNCTION fire();
	CREATE TRIGGER br BEFORE UPDATE ON account FOR EACH ROW EXECUTE FUNCTION fire();
	CREATE TRIGGER ar AFTER UPDATE ON account FOR EACH ROW EXECUTE FUNCTION fire();
	CREATE TRIGGER ass AFTER UPDATE ON account FOR EACH STATEMENT EXECUTE FUNCTION fire();
});
open_batch($updates, 100, 'triggers');
query_is(q{SELECT string_agg(what || ':' || c || ':' || d, ' ' ORDER BY what) FROM (SELECT what, count(*) AS c, count(DISTINCT n) AS d FROM fired GROUP BY what) x},
	'AFTER ROW:300:300 AFTER STATEMENT:300:0 BEFORE ROW:300:300 BEFORE STATEMENT:300:0', 'fire once for each task');
clean();
admin(q{
	CREATE FUNCTION fire_all() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO fired SELECT 'table', count(*) FROM new_rows;
		RETURN NULL;
	END $$;
	CREATE TRIGGER tables AFTER UPDATE ON account REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION fire_all();
});
closed_batch($updates, 'triggers with transition tables');
query_is(q{SELECT count(*) || ' ' || max(n) FROM fired WHERE what = 'table'}, '300 1', 'which see the rows of their task');
admin('DROP TRIGGER tables ON account; DROP TRIGGER bs ON account; DROP TRIGGER br ON account; DROP TRIGGER ar ON account; DROP TRIGGER ass ON account');
clean();
admin('INSERT INTO parent SELECT g FROM generate_series(1, 300) g');
open_batch(q{SELECT count(delay_schedule('0', 'INSERT INTO child VALUES ($1, $2)', g, 'x')) FROM generate_series(1, 200) g;
	SELECT count(delay_schedule('0', 'INSERT INTO child VALUES ($1, $2)', 1000, 'no parent'));
	SELECT count(delay_schedule('0', 'DELETE FROM parent WHERE id = $1', g)) FROM generate_series(191, 210) g;}, 100, 'foreign keys');
query_is(q{SELECT (SELECT count(*) FROM child) || ' ' || (SELECT count(*) FROM parent) || ' ' ||
	(SELECT count(*) || min(sqlstate) || max(sqlstate) FROM delay_wheel_data.failed_task)}, '200 290 112350323503', 'are checked task by task');
clean();

#
# Functions, errors that they catch, and those that they do not.
#
admin(q{
	CREATE FUNCTION careful(n int) RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		BEGIN
			INSERT INTO seen (n, label) VALUES (n, 'careful');
			PERFORM 1 / (n % 3);
		EXCEPTION WHEN division_by_zero THEN
			INSERT INTO fired VALUES ('caught', n);
		END;
		RETURN n;
	END $$;
});
open_batch(q{SELECT count(delay_schedule('0', 'SELECT careful($1)', 100 + g)) FROM generate_series(1, 300) g;}, 100, 'queries that call functions');
query_is(q{SELECT (SELECT count(*) FROM seen) || ' ' || (SELECT count(*) || ' ' || count(DISTINCT n) FROM fired)}, '200 100 100', 'each is called once');
clean();
open_batch(q{SELECT count(delay_schedule('0', 'INSERT INTO seen (n, label) VALUES ($1, $2)', g, 'checked')) FROM generate_series(1, 300) g;}, 100, 'one of many fails');
query_is(q{SELECT count(*) || ' ' || count(DISTINCT n) FROM seen}, '299 299', 'the others ran once each');
query_is(q{SELECT sqlstate FROM delay_wheel_data.failed_task}, '23514', 'that one has failed');
clean();

# A function in SQL is parsed for the search_path, and planned for the role, that the query sets.
admin(q{
	CREATE SCHEMA one;
	CREATE SCHEMA two;
	CREATE TABLE one.place (n int);
	CREATE TABLE two.place (n int);
	CREATE ROLE odd;
	CREATE ROLE even;
	GRANT odd, even TO worker;
	CREATE TABLE guarded (who text);
	INSERT INTO guarded VALUES ('odd'), ('even'), ('even');
	ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
	CREATE POLICY odd ON guarded TO odd USING (who = 'odd');
	CREATE POLICY even ON guarded TO even USING (who = 'even');
	GRANT USAGE ON SCHEMA one, two TO worker;
	GRANT ALL ON one.place, two.place TO worker;
	GRANT ALL ON guarded, fired TO odd, even;
	SET search_path = public, one;
	CREATE FUNCTION come(int) RETURNS bigint LANGUAGE sql AS 'INSERT INTO place VALUES ($1); SELECT count(*) FROM fired';
	RESET search_path;
	CREATE FUNCTION look() RETURNS bigint LANGUAGE sql AS 'INSERT INTO fired SELECT current_user, count(*) FROM guarded; SELECT 1::bigint';
});
batch(q{SELECT count(delay_schedule('0', 'SELECT set_config(''search_path'', $1, true), public.come($2)',
	CASE WHEN g <= 150 THEN 'one, public' ELSE 'two, public' END, g)) FROM generate_series(1, 300) g;}, 'functions in SQL');
query_is(q{SELECT (SELECT count(*) FROM one.place WHERE n <= 150) || ' ' || (SELECT count(*) FROM two.place WHERE n > 150)}, '150 150', 'write where the path of their task says');
batch(q{SELECT count(delay_schedule('0', 'SELECT set_config(''role'', $1, true), look()', CASE WHEN g % 2 = 1 THEN 'odd' ELSE 'even' END)) FROM generate_series(1, 300) g;},
	'roles and functions in SQL');
query_is(q{SELECT string_agg(what || n || ':' || c, ' ' ORDER BY what, n) FROM (SELECT what, n, count(*) AS c FROM fired GROUP BY what, n) x}, 'even2:150 odd1:150', 'see the rows of the role of their task');
admin('DROP TABLE guarded');
clean();

# What an index is searched for is computed behind triggers BEFORE STATEMENT.
admin(q{
	CREATE FUNCTION choose() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM set_config('app.row', (SELECT 1 + count(*) FROM fired)::text, true);
		INSERT INTO fired VALUES ('chosen');
		RETURN NULL;
	END $$;
	CREATE TRIGGER choose BEFORE UPDATE ON account FOR EACH STATEMENT EXECUTE FUNCTION choose();
});
open_batch(q{SELECT count(delay_schedule('0', 'UPDATE account SET n = n + $1 WHERE id = nullif(current_setting(''app.row'', true), '''')::int', 1::bigint)) FROM generate_series(1, 200) g;},
	100, 'a trigger that chooses the row');
query_is('SELECT count(*) || \' \' || max(n) FROM account WHERE n > 0', '200 1', 'each task has changed its own');
admin('DROP TRIGGER choose ON account');
clean();

# A table that a query has open is not in use.
admin(q{
	CREATE FUNCTION tidy() RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
	BEGIN
		TRUNCATE seen;
		ALTER TABLE seen ADD COLUMN IF NOT EXISTS added int DEFAULT 5;
		RETURN 'done';
	EXCEPTION WHEN object_in_use THEN
		INSERT INTO fired VALUES (SQLERRM);
		RETURN 'in use';
	END $$;
});
my $fill = q{SELECT count(delay_schedule('0', 'INSERT INTO seen (n, label) VALUES ($1, $2)', 100 + g, 'fill')) FROM generate_series(1, 40) g;};
open_batch("$fill SELECT delay_schedule('0', 'SELECT tidy()'); $fill", 30, 'a function that changes the table');
query_is(q{SELECT count(*) FROM fired}, '0', 'can do so, as it could alone');
query_is(q{SELECT count(*) || ' ' || sum(added) FROM seen}, '40 200', 'and all goes on with the table as it is now');
admin('ALTER TABLE seen DROP COLUMN IF EXISTS added');
clean();

# What is logged is the same as alone.
admin(q{
	CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'row % changes', NEW.id; RETURN NEW; END $$;
	CREATE TRIGGER warn BEFORE UPDATE ON account FOR EACH ROW EXECUTE FUNCTION warn();
});
my @log;
for my $tasks (100, 1)
{
	admin("ALTER SYSTEM SET delay_wheel.batch_tasks = $tasks");
	$node->reload;
	my $position = log_position($node);
	batch(q{SELECT count(delay_schedule('0', 'UPDATE account SET n = n + 1 WHERE id = $1', g)) FROM generate_series(1, 30) g;}, "a warning, $tasks in a batch");
	push @log, join '', map { s/^.*?(WARNING|CONTEXT|STATEMENT|DETAIL|QUERY)/$1/r } grep { /WARNING|CONTEXT|STATEMENT|QUERY/ } map { "$_\n" } split /\n/, log_since($node, $position);
}
like($log[0], qr/row 30 changes/, 'warnings are logged');
is($log[0], $log[1], 'with the same words in a batch as alone');
admin('ALTER SYSTEM RESET delay_wheel.batch_tasks; DROP TRIGGER warn ON account');
$node->reload;
clean();

#
# Many texts, search paths, and queries that cannot stay open.
#
open_batch(q{SELECT count(delay_schedule('0', format('INSERT INTO seen (n, label) VALUES ($1, %L || current_user)', 'text ' || g % 40), 100 + g))
	FROM generate_series(1, 2000) g;}, 100, 'more texts than may stay open');
query_is(q{SELECT count(*) || ' ' || count(DISTINCT n) || ' ' || count(DISTINCT label) FROM seen}, '2000 2000 40', 'each ran once');
clean();
batch(join('', map { "SET search_path = $_; SELECT count(delay_schedule('0', 'INSERT INTO public.seen (n, label, at_path) VALUES (\$1, \$2, current_setting(''search_path''))', 1, '$_')) FROM generate_series(1, 60) g;" }
	("public", "pg_catalog, public", "public")) . 'RESET search_path; ' . q{SELECT count(delay_schedule('0', 'INSERT INTO public.seen (n, label, at_path) VALUES ($1, $2, current_setting(''search_path''))', 1, '"$user", public')) FROM generate_series(1, 60) g;},
	'search paths');
query_is(q{SELECT count(*) FILTER (WHERE label = at_path) || ' of ' || count(*) FROM seen}, '240 of 240', 'each task has its own');
clean();
# plain SQL has left it out: the path of the role
admin(q{ALTER ROLE worker SET search_path = public, pg_temp});
admin('SELECT delay_wheel.pause_database()');
sql(q{SET search_path = public; SELECT count(delay_schedule('0', 'INSERT INTO public.seen (n, label, at_path) VALUES ($1, $2, current_setting(''search_path''))', g, 'some')) FROM generate_series(101, 200) g;});
admin(q{UPDATE delay_wheel_data.task SET search_path = NULL WHERE id % 100 >= 50; SELECT delay_wheel.resume_database()});
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'tasks without a path: all tasks come to an end', 120, expected => 0);
query_is(q{SELECT count(*) FILTER (WHERE at_path = 'public') || ' ' || count(*) FILTER (WHERE at_path = 'public, pg_temp') FROM seen}, '50 50', 'they have that of their role');
admin(q{ALTER ROLE worker RESET search_path});
clean();

closed_batch(q{SELECT count(delay_schedule('0', 'INSERT INTO seen (n, label) SELECT g, $1 FROM generate_series(100, 102) g', g::text)) FROM generate_series(1, 100) g;}, 'rows of a function');
query_is('SELECT count(*) FROM seen', 300, 'are those of the task');
clean();
closed_batch(q{SELECT count(delay_schedule('0', 'UPDATE account SET n = $1 WHERE id = $1 RETURNING n', g)) FROM generate_series(1, 100) g;}, 'RETURNING');
closed_batch(q{SELECT count(delay_schedule('0', 'INSERT INTO account VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET n = account.n + 1', g)) FROM generate_series(1, 100) g;}, 'ON CONFLICT');
query_is('SELECT count(*) FROM account WHERE n = id + 1 AND id <= 100', 100, 'each in its row');
clean();
SKIP:
{
	skip 'pgcrypto is not installed', 1 unless admin(q{SELECT count(*) FROM pg_available_extensions WHERE name = 'pgcrypto'});
	admin('CREATE EXTENSION pgcrypto');
	closed_batch(q{SELECT count(delay_schedule('0', 'INSERT INTO seen (n, label) VALUES ($1, gen_salt(''md5''))', 100 + g)) FROM generate_series(1, 100) g;}, 'a C function of another extension');
	query_is('SELECT count(DISTINCT label) FROM seen', 100, 'is called each time');
	clean();
	open_batch(q{SELECT count(delay_schedule('0', 'UPDATE account SET note = encode(digest($2, ''sha1''), ''hex'') WHERE id = $1', g, g::text)) FROM generate_series(1, 100) g;}, 30, 'one whose result depends on its arguments only');
	query_is(q{SELECT count(*) FROM account WHERE note = encode(digest(id::text, 'sha1'), 'hex')}, 100, 'is called each time, too');
	clean();
}
my $log = slurp_file($node->logfile);
unlike($log, qr/leak|still referenced|was not closed|PANIC|TRAP/, 'nothing is left open');

#
# Other extensions that look at queries see each task's.
#
SKIP:
{
	skip 'pg_stat_statements is not installed', 1
		unless admin(q{SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_stat_statements'});
	for my $libraries ('pg_stat_statements, delay_wheel', 'delay_wheel, pg_stat_statements')
	{
		my $watched = new_node($libraries =~ /^pg/ ? 'before' : 'behind', injection => 1, batches => 1,
			conf => "$common\nshared_preload_libraries = '$libraries'\n");
		prepare($watched);
		admin('CREATE EXTENSION pg_stat_statements; SELECT pg_stat_statements_reset()', $watched);
		closed_batch($updates, "$libraries", $watched);
		query_is(q{SELECT sum(calls) || ' ' || sum(rows) FROM pg_stat_statements WHERE query LIKE 'UPDATE account SET n = n + $2%'}, '300 300', 'each task is a call', $watched);
		$watched->stop;
	}
}

done_testing();
