# What monitoring/ ships: each query runs as pg_monitor and gives the columns that the
# exporters are told of; dashboard and alerts use only metrics that come of them; and with
# Debian's own exporters and Prometheus, if they are there: the metrics come out at the end,
# under one name whichever exporter has asked, and alerts fire when they should.

use strict;
use warnings;

use CPAN::Meta::YAML;
use File::Basename qw(dirname);
use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use HTTP::Tiny;
use IPC::Run ();
use JSON::PP qw(decode_json);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Workers;

my $dir = dirname(__FILE__) . '/../../monitoring';
my $doc = slurp_file("$dir/../doc/monitoring.md") . slurp_file("$dir/../doc/http.md");

sub yaml
{
	my $parsed = CPAN::Meta::YAML->read("$dir/$_[0]") or die "$_[0]: " . CPAN::Meta::YAML->errstr;
	return $parsed->[0];
}

# Of each query: its text, labels, values, and whether it is of a single database.
sub of_postgres_exporter
{
	my ($file) = @_;
	my %queries;

	for my $name (keys %$file)
	{
		my %q = (sql => $file->{$name}{query}, single => $file->{$name}{master} ? 0 : 1, labels => [], values => []);
		for my $metric (@{ $file->{$name}{metrics} })
		{
			my ($column) = keys %$metric;
			push @{ $q{ $metric->{$column}{usage} eq 'LABEL' ? 'labels' : 'values' } }, $column;
			$q{usage}{$column} = $metric->{$column}{usage};
			$q{described} += length($metric->{$column}{description} // '') > 0;
		}
		$queries{$name} = \%q;
	}
	return \%queries;
}

sub of_sql_exporter
{
	my ($file) = @_;
	my %queries;

	for my $n (0, 1)
	{
		$queries{ $_->{name} } = { sql => $_->{query}, single => $n, labels => $_->{labels} // [], values => $_->{values} }
		  for @{ $file->{jobs}[$n]{queries} };
	}
	return \%queries;
}

my $queries = of_postgres_exporter(yaml('postgres_exporter.yaml'));
my $same = of_sql_exporter(yaml('sql_exporter.yml'));
is(join(' ', sort keys %$same), join(' ', sort keys %$queries), 'both exporters have the same queries');
for my $name (sort keys %$queries)
{
	my %other = %{ $queries->{$name} };
	delete @other{qw(usage described)};
	is_deeply($same->{$name}, \%other, "$name is the same for both");
	is($queries->{$name}{described}, @{ $other{labels} } + @{ $other{values} }, "each of its columns is described");
}

#
# The queries.
#
my $node = new_node('monitoring', conf => q{
log_statement = none
timezone = UTC
delay_wheel.executor_idle_timeout = 1h
});
$node->safe_psql('postgres', q{
	CREATE ROLE prometheus LOGIN IN ROLE pg_monitor;
	CREATE ROLE other LOGIN;
	SELECT delay_wheel.allow('other');
	SELECT delay_wheel.create_queue('mails', users => '{other}');
	SELECT count(delay_schedule('0', 'SELECT 1')) FROM generate_series(1, 20);
	SELECT count(delay_schedule('1 day', 'SELECT 1')) FROM generate_series(1, 5);
	SELECT delay_schedule('0', 'SELECT 1 / 0');
	SET SESSION AUTHORIZATION other;
	SELECT delay_wheel.pause_queue('mails') WHERE false;
	SELECT delay_schedule_task('SELECT 1', queue => 'mails')});
wait_for($node, 'SELECT done, failed FROM delay_wheel.status', 'there are tasks that were done, and failed', 60, expected => '21|1');

# Rows of a query as the exporters' role, as hashes.
sub rows_of
{
	my ($name, $db) = @_;
	my ($code, $out, $err) = $node->psql($db // 'postgres', $queries->{$name}{sql},
		extra_params => [ '-U', 'prometheus', '-P', 'tuples_only=off', '-P', 'footer=off' ]);
	return [] if !is("$code$err", '0', "$name runs as pg_monitor");
	my ($head, @lines) = split /\n/, $out;
	my @names = split /\|/, $head, -1;
	return [ map { my %row; @row{@names} = split /\|/, $_, -1; \%row } @lines ];
}

my %rows;
for my $name (sort keys %$queries)
{
	my $q = $queries->{$name};
	$rows{$name} = rows_of($name);
	cmp_ok(scalar @{ $rows{$name} }, '>', 0, "$name has rows");
	is(join(' ', sort keys %{ $rows{$name}[0] }), join(' ', sort @{ $q->{labels} }, @{ $q->{values} }), "$name has the columns of the file");
	my @wrong = grep { $_ !~ /^-?\d+(\.\d+)?(e[-+]\d+)?$/ } map { @$_{ @{ $q->{values} } } } @{ $rows{$name} };
	is("@wrong", '', "$name: all values are numbers");
	my %labels = map { join('|', @$_{ @{ $q->{labels} } }) => 1 } @{ $rows{$name} };
	is(scalar keys %labels, scalar @{ $rows{$name} }, "$name: no two rows have the same labels");
}
my ($status) = grep { $_->{datname} eq 'postgres' } @{ $rows{delay_wheel} };
is("@$status{qw(serving done_total failed_total)}", '1 21 1', 'they tell of the tasks of all roles');
my ($queue) = @{ $rows{delay_wheel_queue} };
is("@$queue{qw(queue done_total)}", 'mails 1', 'and of their queues');
is(join(' ', map { "$_->{kind}=$_->{count}" } sort { $a->{kind} cmp $b->{kind} } grep { $_->{kind} =~ /launcher|timer/ } @{ $rows{delay_wheel_processes} }),
	'launcher=1 timer=1', 'and of the processes');
my %bucket = map { $_->{le} => $_->{bucket} } @{ $rows{delay_wheel_lateness_seconds} };
is($bucket{'+Inf'}, 22, 'each attempt is in the histogram of lateness');
is(join(' ', grep { $_ ne '+Inf' } sort { $a <=> $b } keys %bucket), join(' ', map { my $n = sprintf('%.6f', 2**$_ / 1e6); $n } 6 .. 37), 'whose bounds are powers of two');
is_deeply([ map { $bucket{$_} } sort { $a <=> $b } grep { $_ ne '+Inf' } keys %bucket ], [ sort { $a <=> $b } map { $bucket{$_} } grep { $_ ne '+Inf' } keys %bucket ], 'and which grows');

# what waits, and for what
sub waiting
{
	my ($state) = @_;
	my ($row) = grep { $_->{state} eq $state } @{ rows_of('delay_wheel_waiting') };
	return $row;
}
$node->safe_psql('postgres', q{SELECT delay_pause_all(); SELECT count(delay_schedule_at(now() - interval '1 hour', 'SELECT 1')) FROM generate_series(1, 7)});
wait_for($node, q{SELECT tasks, lanes, first_due < now() - interval '59 min' FROM delay_wheel.waiting WHERE state = 'paused'}, 'paused tasks are seen to wait', 60, expected => '7|1|t');
my $paused = waiting('paused');
is("$paused->{tasks} " . ($paused->{oldest_seconds} > 3540), '7 1', 'with how long they have');
$node->safe_psql('postgres', 'SELECT delay_resume_all()');
wait_for($node, q{SELECT sum(tasks), max(first_due) IS NULL FROM delay_wheel.waiting}, 'then nothing waits', 60, expected => '0|t');

# messages: two are sent; one is leased, its lease ends without a word, and it is leased again
$node->safe_psql('postgres', q{SELECT delay_wheel.create_queue('letters', external => true); SELECT delay_send('letters', '1'), delay_send('letters', '2')});
wait_for($node, q{SELECT count(*) FROM delay_lease('letters', 1, '1 ms')}, 'a message is leased', 60, expected => 1);
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'letters'}, 'both are due', 60, expected => 2);
is($node->safe_psql('postgres', q{SELECT count(*) FROM delay_lease('letters', 2, '1 hour')}), 2, 'both are leased');
my ($letters) = grep { $_->{queue} eq 'letters' } @{ rows_of('delay_wheel_queue') };
is("@$letters{qw(ready oldest_seconds awaiting leased lapsed_total)}", '0 0 0 2 1', 'what becomes of messages is told');
$node->safe_psql('postgres', q{SELECT delay_send('letters', '3')});
wait_for($node, q{SELECT clock_timestamp() - first_due > '1 s' FROM delay_wheel.queues WHERE name = 'letters'}, 'another one waits');
($letters) = grep { $_->{queue} eq 'letters' } @{ rows_of('delay_wheel_queue') };
ok($letters->{ready} == 1 && $letters->{oldest_seconds} > 1, 'and for how long one waits');
is(waiting('unreceived')->{tasks}, 1, 'also in sum');
is($node->safe_psql('postgres', q{SELECT count(*) FROM delay_lease('letters', 2, '1 hour')}), 1, 'it is leased, too');

# a queue that no receiver has ever come to
sub unreceived { my ($row) = grep { $_->{queue} eq 'unread' } @{ rows_of('delay_wheel_queue') }; return "@$row{qw(external unreceived ready retried_total failed_total)}"; }
$node->safe_psql('postgres', q{SELECT delay_wheel.create_queue('unread', external => true); SELECT delay_send('unread', '1')});
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'unread'}, 'a message is due', 60, expected => 1);
is(unreceived(), '1 1 1 0 0', 'messages that are due, and that nobody receives, are told of');
$node->safe_psql('postgres', q{SELECT id, token FROM delay_lease('unread', 1, '1 hour') \gset
	SELECT delay_fail(:id, :token, 'busy', retry_in => '0')});
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'unread'}, 'it is due again', 60, expected => 1);
is(unreceived(), '1 0 1 1 0', 'an attempt that failed is counted, and a receiver has come');
$node->safe_psql('postgres', q{SELECT id, token FROM delay_lease('unread', 1, '1 hour') \gset
	SELECT delay_fail(:id, :token, 'gone', give_up => true)});
is(unreceived(), '1 0 0 1 1', 'and one that was given up');
is((grep { $_->{queue} eq 'mails' } @{ rows_of('delay_wheel_queue') })[0]{external}, 0, 'SQL tasks are no messages');

# recurring tasks: of other, which has secrets, in each kind of trouble
sub recurring { return $rows{delay_wheel_recurring} = rows_of('delay_wheel_recurring')->[0]; }
sub trouble { return join(' ', @{ recurring() }{qw(tasks failed skipped paused overdue)}); }
is(trouble(), '0 0 0 0 0', 'without recurring tasks, all is 0');
$node->safe_psql('postgres', q{
	SELECT delay_every('mine', '1 day', 'SELECT 1');
	SET SESSION AUTHORIZATION other;
	SELECT delay_every('secret', '1 day', 'SELECT 1 / 0 -- secret', starts => now());
	SELECT delay_every('stops', '1 day', 'SELECT 1', starts => now() + '1 hour');
	SELECT delay_every('skips', '1 day', 'SELECT 1', starts => now() + '1 hour', options => '{"skip_after": "1 second"}');
	SELECT delay_every('rests', '1 day', 'SELECT 1'), delay_pause_recurring('rests');
	RESET SESSION AUTHORIZATION;
	-- its time zone is gone when it looks for its next time; the other one comes too late
	UPDATE delay_wheel_data.recurring_task SET timezone = 'Mars/Base' WHERE name = 'stops';
	UPDATE delay_wheel_data.task SET due = now() - interval '30 s' FROM delay_wheel_data.recurring_task r WHERE r.task = task.id AND name IN ('stops', 'skips')});
ok(wait_until(60, sub { trouble() eq '5 2 1 1 0' }), 'those that have failed, cannot go on, were skipped, or are paused, are counted') or diag(trouble());
ok($rows{delay_wheel_recurring}{failed_oldest_seconds} > 0 && $rows{delay_wheel_recurring}{failed_oldest_seconds} < 600, 'with the time of the first failure');
is($rows{delay_wheel_recurring}{overdue_oldest_seconds}, 0, 'none waits');

my $late = q{SELECT task FROM delay_wheel.recurring WHERE name = 'late'};
my $lock = $node->background_psql('postgres');
$lock->query_safe('SELECT pg_advisory_lock(1)');
$node->safe_psql('postgres', q{
	SELECT delay_pause_all();
	SELECT delay_every('late', '1 day', 'SELECT pg_advisory_xact_lock(1)', starts => now() - interval '1 hour', options => '{"catch_up": "all"}')});
is(trouble(), '6 2 1 1 1', 'and one whose run was due long ago');
cmp_ok($rows{delay_wheel_recurring}{overdue_oldest_seconds}, '>=', 3600, 'with how long ago');
$node->safe_psql('postgres', "SELECT delay_reschedule(($late), '1 hour')");
is(trouble(), '6 2 1 1 0', 'if the run is moved, its new time counts');
$node->safe_psql('postgres', "SELECT delay_reschedule(($late), now() - interval '30 min')");
is(trouble(), '6 2 1 1 1', 'and the other way round');
my $table = $node->background_psql('postgres');
$table->query_safe('BEGIN; LOCK TABLE delay_wheel_data.task');
is(trouble(), '6 2 1 1 1', 'a look does not wait while the table of tasks is locked');
$table->quit;
$node->safe_psql('postgres', 'SELECT delay_resume_all()');
wait_for($node, "SELECT count(*) FROM delay_wheel.running WHERE task = ($late)", 'its run has begun', 60, expected => 1);
is(trouble(), '6 2 1 1 0', 'then it is not overdue, however long it lasts');
$lock->quit;
wait_for($node, q{SELECT runs FROM delay_wheel.recurring WHERE name = 'late'}, 'and it ends', 60, expected => 1);

# who may see what
my $owners = q{SELECT string_agg(format('%s %s', owner, tasks), ', ' ORDER BY owner = 'other') FROM delay_wheel.recurring_status};
my $me = $node->safe_psql('postgres', 'SELECT current_user');
is($node->safe_psql('postgres', $owners, extra_params => [ '-U', 'prometheus' ]), "$me 2, other 4", 'pg_monitor sees how many each role has');
is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.recurring', extra_params => [ '-U', 'prometheus' ]), 0, 'and none of their names');
unlike($node->safe_psql('postgres', 'TABLE delay_wheel.recurring_status; SELECT * FROM delay_wheel_internal.get_recurring()', extra_params => [ '-U', 'prometheus' ]), qr/secret|zero|Mars/, 'nor texts');
is($node->safe_psql('postgres', $owners, extra_params => [ '-U', 'other' ]), 'other 4', 'others see their own');
$node->safe_psql('postgres', 'CREATE ROLE nobody LOGIN');
is($node->safe_psql('postgres', $owners, extra_params => [ '-U', 'nobody' ]), '', 'a role without tasks sees none');

# the next run ends it
$node->safe_psql('postgres', q{SET SESSION AUTHORIZATION other;
	SELECT delay_every('secret', '1 day', 'SELECT 1', starts => now()), delay_every('skips', '1 day', 'SELECT 1'), delay_unschedule('stops'), delay_resume_recurring('rests')});
$node->safe_psql('postgres', q{SELECT delay_run(task) FROM delay_wheel.recurring WHERE name IN ('secret', 'skips')}, extra_params => [ '-U', 'other' ]);
is(trouble(), '5 0 0 0 0', 'after another run, all is well');

#
# Dashboard and alerts: nothing is asked for that does not come.
#
my %labels_of;
for my $name (keys %$queries)
{
	$labels_of{"${name}_$_"} = [ @{ $queries->{$name}{labels} }, 'instance', 'job' ] for @{ $queries->{$name}{values} };
}

# delay-wheel-http gives its own (613_workers_http.pl tests that they come, and are in doc/http.md)
my %http_labels_of;
my $http_source = slurp_file("$dir/../workers/http/src/metrics.c");
push @{ $http_labels_of{$1} }, 'instance', 'job', $2 // () while $http_source =~ /\b(delay_http_\w+)(?:\{(\w+)=)?/g;
push @{ $http_labels_of{"${_}_bucket"} }, 'instance', 'job', 'le' for $http_source =~ /write_histogram\(out, "(\w+)"/g;

# What is wrong with an expression: unknown metrics, labels they do not have, rates of gauges.
sub complaints
{
	my ($expr) = @_;
	my @found;

	push @found, 'no metric of ours' if $expr !~ /delay_(wheel|http)_/;
	while ($expr =~ /\b(delay_(?:wheel|http)\w*)(?:\{(.*?)\})?/g)
	{
		my ($metric, $selector) = ($1, $2 // '');
		my $labels = $labels_of{$metric} // $http_labels_of{$metric};
		push @found, "$metric does not come" if !$labels;
		for my $label ($selector =~ /(\w+)\s*(?:=|!=|=~|!~)\s*"/g)
		{
			push @found, "$metric has no label $label" if !grep { $_ eq $label } @{ $labels // [] };
		}
	}
	while ($expr =~ /\b(?:rate|increase)\((delay_(?:wheel|http)\w*)/g)
	{
		push @found, "$1 is no counter" if $1 !~ /(_total|_bucket)$/;
	}
	return join(', ', @found);
}

is(complaints('rate(delay_wheel_near{nobody="x"}[1m]) + delay_wheel_nothing'),
	'delay_wheel_near has no label nobody, delay_wheel_nothing does not come, delay_wheel_near is no counter', 'what is wrong would be seen');
is(complaints('delay_http_running{session="x"} + delay_http_nothing'), 'delay_http_running has no label session, delay_http_nothing does not come', 'also of delay-wheel-http');
is(complaints('delay_http_connected{session="wait"} + increase(delay_http_requests_total{outcome="done"}[1m]) + delay_http_duration_seconds_bucket{le="1"}'), '', 'and what is right, not');
for my $name (sort keys %$queries)
{
	my @wrong = grep { ($queries->{$name}{usage}{$_} eq 'COUNTER') ne (/^(.*_total|bucket)$/ ? 1 : '') } @{ $queries->{$name}{values} };
	is("@wrong", '', "$name: counters are called so");
}

my $dashboard = decode_json(slurp_file("$dir/grafana.json"));
my (%ids, %taken);
for my $panel (@{ $dashboard->{panels} })
{
	my $grid = $panel->{gridPos};

	is(join(', ', grep { $_ ne '' } map { complaints($_->{expr}) } @{ $panel->{targets} }), '', "panel \"$panel->{title}\" uses what there is");
	ok(!$ids{ $panel->{id} }++, 'has a number of its own');
	my @cells = map { my $x = $_; map { "$x/$_" } $grid->{y} .. $grid->{y} + $grid->{h} - 1 } $grid->{x} .. $grid->{x} + $grid->{w} - 1;
	is(scalar(grep { $taken{$_}++ } @cells), 0, 'and covers no other');
	cmp_ok($grid->{x} + $grid->{w}, '<=', 24, 'the panel does not exceed the margin');
}
is(complaints($_->{query}{query}), '', "variable $_->{name} uses what there is") for grep { ref $_->{query} } @{ $dashboard->{templating}{list} };

my $dashboard_text = slurp_file("$dir/grafana.json");
like($dashboard_text, qr/\b$_(?:_bucket)?\{/, "the dashboard shows $_") for sort grep { !/_bucket$/ } keys %http_labels_of;

my $alerts = slurp_file("$dir/alerts.yml");
my @alerts = $alerts =~ /^  - alert: (\w+)\n    expr: (.*?)\n    (?:for|labels):/msg;
cmp_ok(scalar @alerts / 2, '==', () = $alerts =~ /- alert:/g, 'all alerts are found');
while (my ($alert, $expr) = splice @alerts, 0, 2)
{
	is(complaints($expr), '', "alert $alert uses what there is");
	like($doc, qr/^(?:\| `$alert` \||\* `$alert`: )/m, 'and the manual says what to do');
	like(slurp_file("$dir/alerts_test.yml"), qr/- name: $alert comes\n.*- name: $alert does not come\n/s, 'and it is tested');
}
like($doc, qr/`\Q$_\E`/, "the manual knows $_") for sort keys %labels_of;

#
# Debian's Prometheus and exporters.
#
sub program
{
	my ($name) = @_;
	for my $path (split(/:/, $ENV{PATH}), '/usr/sbin')
	{
		return "$path/$name" if -x "$path/$name";
	}
	return undef;
}

my $promtool = program('promtool');
SKIP:
{
	skip 'there is no promtool (package prometheus)', 3 if !$promtool;
	command_ok([ $promtool, 'check', 'config', "$dir/prometheus.yml" ], 'promtool takes configuration and alerts');
	my ($out, $err) = ('', '');
	my $ok = IPC::Run::run([ $promtool, 'test', 'rules', "$dir/alerts_test.yml" ], '<', \undef, '>', \$out, '2>', \$err);
	ok($ok, 'each alert comes when it should, and only then') or diag("$out$err");
	my $broken = PostgreSQL::Test::Utils::tempdir();
	append_to_file("$broken/alerts.yml", $alerts =~ s/state="blocked"/state="limited"/r);
	append_to_file("$broken/alerts_test.yml", slurp_file("$dir/alerts_test.yml"));
	ok(!IPC::Run::run([ $promtool, 'test', 'rules', "$broken/alerts_test.yml" ], '<', \undef, '>', \$out, '2>', \$err), 'the test of alerts fails for a wrong alert');
}

my $http = HTTP::Tiny->new(timeout => 10);
my %started;

# Also if the test ends early.
sub end_started
{
	for my $process (values %started)
	{
		$process->signal('TERM');
		eval { $process->finish };
	}
	%started = ();
	return;
}
END { local $?; end_started(); }

sub port { return PostgreSQL::Test::Cluster::get_free_port(); }

sub start
{
	my ($name, $env, @command) = @_;
	local %ENV = (%ENV, %$env);
	my $log = "$PostgreSQL::Test::Utils::log_path/570_monitoring_$name.log";

	$started{$name} = IPC::Run::start(\@command, '<', \undef, '>', $log, '2>&1');
	return;
}

sub metrics_at
{
	my ($port) = @_;
	my $answer = $http->get("http://127.0.0.1:$port/metrics");
	return $answer->{success} ? $answer->{content} : '';
}

# Which of our metrics are not there.
sub missing
{
	my ($text, $pattern) = @_;
	return join(' ', grep { $text !~ $pattern->($_) } sort keys %labels_of);
}

my $dsn = sprintf('host=%s port=%s user=prometheus dbname=postgres sslmode=disable', $node->host, $node->port);
my %ports;
if (my $exporter = program('prometheus-postgres-exporter'))
{
	$ports{postgres} = port();
	start('postgres_exporter', { DATA_SOURCE_NAME => $dsn }, $exporter, "--web.listen-address=127.0.0.1:$ports{postgres}",
		"--extend.query-path=$dir/postgres_exporter.yaml", '--disable-settings-metrics');
	my $pattern = sub { my ($m) = @_; return qr/^\Q$m\E\{[^}]*\} [\d.e+-]+$/m };
	my $text = '';
	ok(wait_until(60, sub { $text = metrics_at($ports{postgres}); missing($text, $pattern) eq '' }), 'postgres_exporter has them all')
	  or diag('missing: ' . missing($text, $pattern));
	my $done = $node->safe_psql('postgres', 'SELECT done FROM delay_wheel.status');
	like($text, qr/^delay_wheel_done_total\{datname="postgres",[^}]*\} $done$/m, 'with their values');
	like($text, qr/^delay_wheel_recurring_tasks\{datname="postgres",[^}]*\} 5$/m, 'also those of recurring tasks');
	like($text, qr/^# TYPE delay_wheel_done_total counter$/m, 'and types');
}
else { note('skipped: there is no prometheus-postgres-exporter'); }

if (my $exporter = program('prometheus-sql-exporter'))
{
	my $config = PostgreSQL::Test::Utils::tempdir() . '/sql_exporter.yml';
	my $socket = $node->host =~ s/([^\w.-])/sprintf '%%%02X', ord $1/ger;
	my $url = sprintf('postgres://prometheus@/postgres?host=%s&port=%s&sslmode=disable', $socket, $node->port);
	append_to_file($config, slurp_file("$dir/sql_exporter.yml") =~ s,'postgres://[^']*','$url',gr =~ s/'15s'/'1s'/gr);
	$ports{sql} = port();
	start('sql_exporter', {}, $exporter, "-web.listen-address=127.0.0.1:$ports{sql}", "-config.file=$config");
	my $pattern = sub { my ($name, $col) = by_query($_[0]); return qr/^sql_$name\{[^}]*col="$col"[^}]*\} [\d.e+-]+$/m };
	my $text = '';
	ok(wait_until(60, sub { $text = metrics_at($ports{sql}); missing($text, $pattern) eq '' }), 'sql_exporter has them all')
	  or diag('missing: ' . missing($text, $pattern));
}
else { note('skipped: there is no prometheus-sql-exporter'); }

# delay-wheel-http tells Prometheus its own
my $http_port;
if (!lacks_for_http())
{
	my $scratch = PostgreSQL::Test::Utils::tempdir();

	system_or_bail('cp', '-R', "$dir/../workers/http", "$scratch/");
	ok(works('make', '-s', '-C', "$scratch/http", 'clean', 'all'), 'delay-wheel-http is built');
	$node->safe_psql('postgres', slurp_file("$scratch/http/setup.sql"));
	$http_port = port();
	start('delay_wheel_http', { PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGUSER => 'delay_http_worker' },
		"$scratch/http/delay-wheel-http", '--metrics-port', $http_port);
	ok(wait_until(60, sub { 2 == (() = metrics_at($http_port) =~ /^delay_http_connected\{.*\} 1$/mg) }), 'and connected');
}
else { note('skipped: ' . lacks_for_http()); }

# The query and the column of a metric.
sub by_query
{
	my ($metric) = @_;
	for my $name (keys %$queries)
	{
		return ($name, $_) for grep { "${name}_$_" eq $metric } @{ $queries->{$name}{values} };
	}
	die $metric;
}

# What Prometheus answers to an expression: the values by a label.
sub ask
{
	my ($port, $expr, $label) = @_;
	my $escaped = $expr =~ s/([^\w.-])/sprintf '%%%02X', ord $1/ger;
	my $answer = $http->get("http://127.0.0.1:$port/api/v1/query?query=$escaped");
	return {} if !$answer->{success};
	return { map { ($_->{metric}{$label} // '') => $_->{value}[1] } @{ decode_json($answer->{content})->{data}{result} } };
}

my $prometheus = program('prometheus');
SKIP:
{
	skip 'there is no prometheus, or no exporter', 1 if !$prometheus || !%ports;
	my $base = PostgreSQL::Test::Utils::tempdir();
	my $config = slurp_file("$dir/prometheus.yml") =~ s/15s/1s/gr;
	my $port = port();

	$config =~ s/localhost:9187/'127.0.0.1:@{[ $ports{postgres} \/\/ 1 ]}'/;
	$config =~ s/localhost:9237/'127.0.0.1:@{[ $ports{sql} \/\/ 1 ]}'/;
	$config =~ s/localhost:9188/'127.0.0.1:@{[ $http_port \/\/ 1 ]}'/;
	append_to_file("$base/prometheus.yml", $config);
	append_to_file("$base/alerts.yml", $alerts =~ s/^    for: .*\n//mgr);
	start('prometheus', {}, $prometheus, "--config.file=$base/prometheus.yml", "--storage.tsdb.path=$base/data", "--web.listen-address=127.0.0.1:$port");
	my $expected = join(' ', sort keys %ports);
	my ($metric, $jobs);
	ok(wait_until(60, sub {
		for $metric (sort keys %labels_of)
		{
			$jobs = join(' ', sort keys %{ ask($port, $metric, 'job') });
			return 0 if $jobs ne $expected;
		}
		return 1;
	}), "Prometheus has them all, under the same names from each: $expected") or diag("$metric: '$jobs'");
	for my $panel (@{ $dashboard->{panels} })
	{
		for my $target (@{ $panel->{targets} })
		{
			my $expr = $target->{expr} =~ s/\$(instance|datname|http)/.*/gr =~ s/\$__rate_interval/1m/gr;
			next if $expr =~ /delay_http_/ && !$http_port;
			# a rate takes two looks
			ok(wait_until(60, sub { %{ ask($port, $expr, 'job') } }), "panel \"$panel->{title}\", $target->{refId}: there is an answer")
			  or diag($expr);
		}
	}
	is_deeply(ask($port, 'ALERTS{alertstate="firing"}', 'alertname'), {}, 'no alert fires');
	$node->safe_psql('postgres', q{SELECT delay_wheel.create_queue('forgotten', external => true); SELECT delay_send('forgotten', '1')});
	ok(wait_until(60, sub { ask($port, 'ALERTS{alertstate="firing", alertname="DelayWheelNoReceiver"}', 'queue')->{forgotten} }), 'one does when nobody receives')
	  or diag(explain(ask($port, 'ALERTS', 'alertname')));
	$node->safe_psql('postgres', 'SELECT delay_wheel.pause_database()');
	ok(wait_until(60, sub { ask($port, 'ALERTS{alertstate="firing"}', 'alertname')->{DelayWheelSwitchedOff} }), 'one does when the database is paused')
	  or diag(explain(ask($port, 'ALERTS', 'alertname')));
}

end_started();
$node->stop;
done_testing();
