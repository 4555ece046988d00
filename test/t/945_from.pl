# The pages for those who come from another system (doc/from-*.md), whole: with a Redis and a
# RabbitMQ of this test's own, where they are installed, and with what must be so afterwards.
# 905_docs runs the other blocks of these pages everywhere.
#
#   from-skip-locked.md, from-graphile-worker.md    what is moved, what stays, an error;
#                      the first also while programs use the table
#   from-redis.md      needs redis-server and redis-cli 7.0 or later
#   from-rabbitmq.md   needs rabbitmq-server, and python3 with pika and psycopg

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use Documents;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use POSIX ();
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('from', extension => 0,
	init => [ allows_streaming => 1, extra => [ '--encoding=UTF8', '--no-locale' ] ]);
my $dir = PostgreSQL::Test::Utils::tempdir_short();
my %children;
my $mark = '<!-- shown by: test/t/945_from.pl -->';

# Whatever happens, no server is left behind.
END
{
	my $status = $?;

	stop_server($_) for keys %children;
	$? = $status;
}

# The page with all of its blocks, also those that only this test runs, and more at its end.
# Programs are given to python3.
sub page_holds
{
	my ($page, $more) = @_;
	my $text = slurp_file("$FindBin::RealBin/../../doc/$page");
	my $begun = time;

	$text =~ s/^\s*\Q$mark\E\n//mg;
	$text =~ s/^```python\n(.*?)^```$/```sh\npython3 - <<'END'\n$1END\n```/msg;
	unlink "$dir/$page";
	append_to_file("$dir/$page", "$text\n$more");
	is(join("\n", problems_of($node, "$dir/$page")), '', $page);
	note(sprintf '%.1f s', time - $begun);
	return;
}

sub start_server
{
	my ($log, @command) = @_;
	my $pid = fork // die "fork: $!";

	if (!$pid)
	{
		setpgrp;
		open(STDIN, '<', '/dev/null') && open(STDOUT, '>', $log) && open(STDERR, '>&', \*STDOUT) or POSIX::_exit(126);
		exec(@command) or POSIX::_exit(127);
	}
	$children{$pid} = 1;
	return $pid;
}

# With all that it has started; nothing that it knows is wanted any more.
sub stop_server
{
	my ($pid) = @_;

	kill '-KILL', $pid;
	waitpid $pid, 0;
	delete $children{$pid};
	return;
}

# A program of this name that is there, or undef.
sub path_of
{
	my ($program) = @_;

	return (grep { -x } map { "$_/$program" } split(/:/, $ENV{PATH}), '/usr/sbin', '/usr/lib/rabbitmq/bin')[0];
}

#
# From tables.
#
page_holds('from-skip-locked.md', <<'END');
```sql
SELECT count(*) FROM job;
SELECT coalesce(sql, payload ->> 'email') AS what, key, args, round(extract(epoch FROM due - now()) / 60) AS minutes, max_attempts
FROM delay_wheel.tasks ORDER BY due, key;
```
<!-- output -->
```text
 count
-------
     0
(1 row)

          what           |   key    | args | minutes | max_attempts
-------------------------+----------+------+---------+--------------
 SELECT expire_order($1) | expire 7 | {7}  |      30 |
 SELECT expire_order($1) | expire 8 | {8}  |      30 |
 anna@example.com        | 7        |      |      60 |            5
 berta@example.com       | 8        |      |      60 |
(4 rows)
```

An old program goes on inserting; what is due runs at once.

```sql
INSERT INTO orders VALUES (9);
INSERT INTO job (run_at, kind, payload, attempts) VALUES (now() - interval '1 hour', 'expire', '{"order": 9}', 0),
	(now(), 'mail', '{"order": 9}', 3), (now(), 'other', '{}', 0);
SELECT kind FROM job;
SELECT max_attempts FROM delay_wheel.tasks WHERE key = '9';
```
<!-- output -->
```text
...
 kind
-------
 other
(1 row)

 max_attempts
--------------
            2
(1 row)
```
<!-- wait: SELECT state = 'expired' FROM orders WHERE id = 9 -->

A key that is pending undoes all.

```sql
ALTER TABLE job DISABLE TRIGGER take_over;
INSERT INTO job (run_at, kind, payload) VALUES (now(), 'mail', '{"order": 8}'), (now() + interval '1 day', 'mail', '{"order": 10}');
```
<!-- error: 23505 -->
```sql
WITH moved AS (DELETE FROM job WHERE kind IN ('expire', 'mail') RETURNING job AS j) SELECT count(take_over(j)) FROM moved;
```
```sql
SELECT (SELECT count(*) FROM job) AS jobs, (SELECT count(*) FROM delay_wheel.tasks WHERE key = '10') AS messages;
```
<!-- output -->
```text
 jobs | messages
------+----------
    3 |        0
(1 row)
```
END

# While producers and workers go on, each job is done once, by an old worker or by a task.
{
	my @sql = slurp_file("$FindBin::RealBin/../../doc/from-skip-locked.md") =~ /^```sql\n(.*?)^```/msg;
	my ($table) = $sql[0] =~ /^(CREATE TABLE job.*?;)/ms;
	my ($claim) = $sql[0] =~ /^(DELETE FROM job.*?);/ms;
	my ($functions, $move) = split /^(?=BEGIN;)/m, $sql[2];
	my @clients;

	$node->safe_psql('postgres', 'CREATE DATABASE moving');
	$node->safe_psql('moving', <<"END");
CREATE EXTENSION delay_wheel;
SELECT delay_wheel.create_queue('mail', external => true);
CREATE TABLE made (o bigint GENERATED ALWAYS AS IDENTITY);
CREATE TABLE done (o bigint, task bool);
CREATE FUNCTION expire_order(bigint) RETURNS void LANGUAGE sql AS \$\$INSERT INTO public.done VALUES (\$1, true)\$\$;
$table
$functions
END
	append_to_file("$dir/produce", <<'END');
WITH n AS (INSERT INTO made DEFAULT VALUES RETURNING o)
INSERT INTO job (run_at, kind, payload) SELECT now(), 'expire', jsonb_build_object('order', o) FROM n;
END
	append_to_file("$dir/work", "WITH d AS ($claim) INSERT INTO done SELECT (payload ->> 'order')::bigint, false FROM d;\n");
	for my $script (qw(produce work))
	{
		push @clients, IPC::Run::start([ 'pgbench', '-n', '-c', 2, '-T', 600, '-f', "$dir/$script", '-h', $node->host, '-p', $node->port, 'moving' ],
			'<', \undef, '>&', "$dir/$script.log");
	}
	wait_for($node, 'SELECT count(*) > 100 FROM done', 'old workers work', 60, db => 'moving');
	$node->safe_psql('moving', $move);
	wait_for($node, 'SELECT count(*) > 100 FROM done WHERE task', 'tasks do', 60, db => 'moving');
	$_->kill_kill for @clients;
	unlike(slurp_file("$dir/$_.log"), qr/error|aborted/i, "$_: no error") for qw(produce work);
	wait_for($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'pgbench'}, 'they are gone');
	wait_for($node, 'SELECT (SELECT count(*) FROM made) = (SELECT count(*) FROM done)', 'all is done', 60, db => 'moving');
	is($node->safe_psql('moving', 'SELECT count(*) - count(DISTINCT o), bool_or(task), bool_or(NOT task) FROM done'), '0|t|t',
		'once, before by workers, after by tasks');
	is($node->safe_psql('moving', 'SELECT (SELECT count(*) FROM job), (SELECT count(*) FROM delay_wheel.failed)'), '0|0', 'nothing is left');
}

my ($move) = slurp_file("$FindBin::RealBin/../../doc/from-graphile-worker.md") =~ /^(WITH moved.*?)^```/ms;
page_holds('from-graphile-worker.md', <<"END");
```sql
SELECT key, payload, sql, args, round(extract(epoch FROM due - now()) / 60) AS minutes, max_attempts FROM delay_wheel.tasks ORDER BY id;
```
<!-- output -->
```text
   key    |   payload   |                     sql                      |          args           | minutes | max_attempts
----------+-------------+----------------------------------------------+-------------------------+---------+--------------
 remind 9 | {"order": 9} | | | 30 |
 remind 7 | {"order": 7} | | | 30 | 25
 remind 8 | {"order": 8} | | | 30 | 3
 | | SELECT graphile_worker.add_job(\$1, \$2) | {remind,"{\\"order\\": 10}"} | 2880 |
(4 rows)
```

Jobs that run, have failed, wait for others, or are of another name stay; attempts that were made count.

```sql
INSERT INTO graphile_worker._private_tasks (identifier) VALUES ('other');
INSERT INTO graphile_worker._private_jobs (task_id, payload, priority, attempts, max_attempts, locked_at, key)
	SELECT t.id, v.payload::json, v.priority, v.attempts, v.max_attempts, v.locked_at, v.payload
	FROM (VALUES ('remind', '{"g": 1}', 10, 24, 25, NULL::timestamptz), ('remind', '{"g": 2}', 0, 1, 25, now()),
		('remind', '{"g": 3}', 0, 25, 25, NULL), ('other', '{"g": 4}', 0, 0, 25, NULL)) v(identifier, payload, priority, attempts, max_attempts, locked_at)
	JOIN graphile_worker._private_tasks t USING (identifier);
INSERT INTO pgboss.job (name, data, state, priority, retry_limit, retry_count, blocked)
	VALUES ('remind', '{"p": 1}', 'retry', 7, 2, 0, false), ('remind', NULL, 'retry', 0, 2, 1, false), ('remind', '{"p": 3}', 'active', 0, 2, 0, false),
		('remind', '{"p": 4}', 'failed', 0, 2, 2, false), ('remind', '{"p": 5}', 'created', 0, 2, 0, true), ('other', '{"p": 6}', 'created', 0, 2, 0, false);
$move
SELECT payload, priority, max_attempts FROM delay_wheel.tasks WHERE due <= now() ORDER BY payload DESC;
SELECT string_agg(payload::text, ' ' ORDER BY id) AS stay FROM graphile_worker._private_jobs WHERE payload::text LIKE '%g%';
SELECT string_agg(data::text, ' ' ORDER BY data) AS stay FROM pgboss.job WHERE data::text LIKE '%p%';
```
<!-- output -->
```text
...
 payload  | priority | max_attempts
----------+----------+--------------
 {"p": 1} |        7 |            2
 {"g": 1} |       -9 |            1
 {}       |        0 |            1
(3 rows)

 stay
-------------------------------
 {"g": 2} {"g": 3} {"g": 4}
(1 row)

 stay
-------------------------------------
 {"p": 3} {"p": 4} {"p": 5} {"p": 6}
(1 row)
```

The task that was put off adds the job at its time; a recurring one sends.

```sql
SELECT delay_cron('daily', '0 8 * * *', \$\$SELECT delay_send('remind', '{}')\$\$) > 0 AS recurs;
SELECT delay_reschedule(id, '0') AS moved FROM delay_wheel.tasks WHERE sql LIKE '%add_job%';
```
<!-- wait: SELECT count(*) = 1 FROM graphile_worker._private_jobs WHERE payload::text = '{"order": 10}' AND run_at <= now() -->
END

#
# From Redis.
#
SKIP:
{
	my ($server, $cli) = map { path_of($_) } 'redis-server', 'redis-cli';
	my $version = $cli ? qx($cli --version) =~ /(\d+)\.\d/ ? $1 : 0 : 0;

	skip 'no redis-server, or no redis-cli of 7.0 or later', 1 if !$server || $version < 7;

	mkdir "$dir/redis";
	my $pid = start_server("$dir/redis/log", $server, '--port', '0', '--unixsocket', "$dir/redis/socket", '--dir', "$dir/redis", '--save', '');
	append_to_file("$dir/redis-cli", qq(#!/bin/sh\nexec $cli -s $dir/redis/socket "\$@"\n));
	chmod 0755, "$dir/redis-cli";
	local $ENV{PATH} = "$dir:$ENV{PATH}";
	ok(wait_until(60, sub { qx(redis-cli PING 2>&1) eq "PONG\n" }), 'a Redis runs');

	# blanks, quotes, backslashes and other letters come over as they are; a fraction of a second, too
	is(system('redis-cli', 'ZADD', 'later', '4000000000.5', q({"order": "it's \"11\"", "to": "ä\n"})) >> 8, 0, 'it has another member');
	page_holds('from-redis.md', <<'END');
```sql
SELECT key, payload, round(extract(epoch FROM due - now()) / 60) AS minutes FROM delay_wheel.tasks WHERE key IN ('7', '8') ORDER BY key;
SELECT extract(epoch FROM due) AS due, key, payload FROM delay_wheel.tasks WHERE key NOT IN ('7', '8');
```
<!-- output -->
```text
 key |                   payload                    | minutes
-----+----------------------------------------------+---------
 7   | {"email": "anna@example.com", "order": 7}       |      30
 8   | {"email": "berta@example.com", "order": 8}      |      30
(2 rows)

        due        |    key    | payload
-------------------+-----------+---------
 4000000000.500000 | it's "11" | {"to": "ä\n", "order": "it's \"11\""}
(1 row)
```

A second time is an error, and a second set has to wait for the end of the first.

<!-- error: 23505 -->
```sql
INSERT INTO moved VALUES ('later');
```
```sh
redis-cli ZADD later 1 new
redis-cli RENAMENX later moving
redis-cli UNLINK moving
redis-cli RENAMENX later moving
```
<!-- output -->
```text
1
0
1
1
```
END
	stop_server($pid);
}

#
# From RabbitMQ.
#
SKIP:
{
	my ($server, $ctl, $epmd) = map { path_of($_) } 'rabbitmq-server', 'rabbitmqctl', 'epmd';

	skip 'no rabbitmq-server, or no python3 with pika and psycopg', 1
	  if !$server || !$ctl || !$epmd || system('python3 -c "import psycopg; from pika import BlockingConnection" 2>/dev/null') != 0;

	my ($port, $dist_port, $epmd_port) = map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. 3;
	mkdir "$dir/rabbit";
	local %ENV = (
		%ENV,
		HOME => "$dir/rabbit",
		AMQP_URL => "amqp://127.0.0.1:$port",
		ERL_EPMD_PORT => $epmd_port,
		ERL_EPMD_ADDRESS => '127.0.0.1',
		RABBITMQ_BASE => "$dir/rabbit",
		RABBITMQ_CONF_ENV_FILE => "$dir/rabbit/none",
		RABBITMQ_CONFIG_FILE => "$dir/rabbit/none",
		RABBITMQ_ENABLED_PLUGINS_FILE => "$dir/rabbit/plugins",
		RABBITMQ_DIST_PORT => $dist_port,
		RABBITMQ_LOG_BASE => "$dir/rabbit",
		RABBITMQ_MNESIA_BASE => "$dir/rabbit",
		RABBITMQ_NODENAME => 'from@localhost',
		RABBITMQ_NODE_IP_ADDRESS => '127.0.0.1',
		RABBITMQ_NODE_PORT => $port,
		RABBITMQ_PID_FILE => "$dir/rabbit/pid");
	my $epmd_pid = start_server("$dir/rabbit/epmd.log", $epmd, '-port', $epmd_port);
	my $pid = start_server("$dir/rabbit/server.log", $server);
	my $up = wait_until(120, sub { system("python3 -c 'import os, pika; pika.BlockingConnection(pika.URLParameters(os.environ[\"AMQP_URL\"]))' 2>/dev/null") == 0 });
	ok($up, 'a RabbitMQ runs') or diag(slurp_file("$dir/rabbit/server.log"));

	# more of them: without a time, which stays; twice, of which one comes over
	my $publish = <<'END';
import os, time, pika
channel = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"])).channel()
channel.queue_declare("mail.later", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "mail"})
for body, properties in [("{}", {}), ('{"order": 9}', {"message_id": "9", "timestamp": int(time.time()) - 3600, "expiration": "7200000"})] * 2:
    channel.basic_publish("", "mail.later", body, pika.BasicProperties(**properties))
END
	ok(IPC::Run::run([ 'python3', '-' ], '<', \$publish), 'it has more messages');
	page_holds('from-rabbitmq.md', <<'END');
```sql
SELECT key, payload, round(extract(epoch FROM due - now()) / 60) AS minutes FROM delay_wheel.tasks ORDER BY key;
```
<!-- output -->
```text
 key |                 payload                 | minutes
-----+-----------------------------------------+---------
 7   | {"email": "anna@example.com", "order": 7}  |      30
 8   | {"email": "berta@example.com", "order": 8} |      30
 9   | {"order": 9}                            |      60
(3 rows)
```
```sh
python3 -c '
import os, pika
channel = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"])).channel()
print(channel.queue_declare("mail.later", passive=True).method.message_count)'
```
<!-- output -->
```text
2
```
END
	stop_server($_) for $pid, $epmd_pid;
}

$node->stop;
done_testing();
