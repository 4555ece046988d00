# A task means what it meant in the session that scheduled it, and a session that reads as a
# new one of its owner keeps nothing: what clients set when they connect is compared with
# what the server has, also after a reload; a session that has begun before settings changed
# reads as it did; a dump takes along what is kept.
#
# sql/meaning.sql has the ways in which values come, and those in which tasks
# are run.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('meaning', conf => "timezone = 'Etc/UTC'\ndatestyle = 'ISO, DMY'\n");

$node->safe_psql('postgres', q{
	CREATE TABLE effects (label text, d date, ts timestamptz);
	CREATE ROLE a LOGIN;
	SELECT delay_wheel.allow('a');
	GRANT ALL ON effects TO a});

# What a task keeps that is scheduled by a new session; the environment is that of the caller.
my $keeps = q{SELECT delay_schedule('1 hour', 'SELECT 1') AS id \gset
	SELECT COALESCE(settings::text, 'nothing') FROM delay_wheel.tasks WHERE id = :id;
	SELECT delay_cancel(:id) \gset};

sub kept { return $node->safe_psql('postgres', $keeps); }

#
# What a client sets when it connects.
#
for my $case (
	# the server's, or what means the same
	[ {}, 'nothing' ],
	[ { PGTZ => 'Etc/UTC' }, 'nothing' ],
	[ { PGTZ => 'UTC' }, 'nothing' ],
	[ { PGTZ => 'GMT', PGDATESTYLE => 'ISO' }, 'nothing' ],
	[ { PGDATESTYLE => 'SQL, DMY', PGOPTIONS => '-c intervalstyle=iso_8601 -c extra_float_digits=3' }, 'nothing' ],
	# others
	[ { PGTZ => 'Asia/Kolkata' }, '{"TimeZone": "Asia/Kolkata"}' ],
	[ { PGTZ => 'Asia/Kolkata', PGDATESTYLE => 'ISO, MDY' }, '{"TimeZone": "Asia/Kolkata", "DateStyle": "ISO, MDY"}' ],
	[ { PGOPTIONS => '-c intervalstyle=sql_standard -c xmloption=document' }, '{"xmloption": "document", "IntervalStyle": "sql_standard"}' ],
	[ { PGOPTIONS => '-c search_path=pg_catalog,public -c array_nulls=off' }, '{"array_nulls": "off"}' ])
{
	my ($environment, $expected) = @$case;
	local %ENV = (%ENV, %$environment);

	is(kept(), $expected, 'a client that sets ' . (join(', ', map { "$_ to $environment->{$_}" } sort keys %$environment) || 'nothing'));
}

{
	local $ENV{PGTZ} = 'Asia/Kolkata';
	local $ENV{PGDATESTYLE} = 'ISO, MDY';

	$node->safe_psql('postgres', q{SELECT delay_schedule('0', $$INSERT INTO effects VALUES ('client', $1, '2026-02-03 10:00')$$, '02/03/2026')});
}
wait_for($node, q{SELECT count(*) FROM effects WHERE label = 'client' AND d = '2026-02-03' AND ts = '2026-02-03 04:30+00'}, 'its values mean what it meant', 60, expected => 1);

#
# A session that goes on while the settings of its role change.
#
my $old = $node->background_psql('postgres');
is($old->query($keeps), 'nothing', 'a session that has set nothing');
$node->safe_psql('postgres', q{ALTER ROLE postgres SET timezone = 'Asia/Tokyo'});
is($old->query($keeps), '{"TimeZone": "Etc/UTC"}', 'it keeps its zone when new ones have another');
is(kept(), 'nothing', 'new ones need not');
$old->query_safe(q{SELECT delay_schedule('0', $$INSERT INTO effects (label, ts) VALUES ('old session', '2026-02-03 10:00')$$)});
wait_for($node, q{SELECT ts = '2026-02-03 10:00+00' FROM effects WHERE label = 'old session'}, 'its task is read as it reads');
{
	# the value of a role, which the server does not have, and the server's, which the role does not
	local $ENV{PGTZ} = 'Asia/Tokyo';
	is(kept(), 'nothing', 'a client that sets what its role has');
	local $ENV{PGTZ} = 'UTC';
	is(kept(), '{"TimeZone": "UTC"}', 'a client that sets what the server has, and its role has not');
}
$old->query_safe(q{SET ROLE a});
is($old->query($keeps), 'nothing', 'another role has the zone of the server');
$old->query_safe(q{RESET ROLE});
$node->safe_psql('postgres', q{ALTER ROLE postgres RESET timezone});

#
# A reload: sessions with and without a zone of their client, and the launcher, which tells
# these what the server has.
#
my $client = do {
	local $ENV{PGTZ} = 'Asia/Tokyo';
	$node->background_psql('postgres');
};
is($old->query($keeps), 'nothing', 'before a reload: a session that has set nothing');
is($client->query($keeps), '{"TimeZone": "Asia/Tokyo"}', 'one whose client has');
$node->append_conf('postgresql.conf', "timezone = 'Asia/Tokyo'\n");
$node->reload;
ok(wait_until(60, sub { return $client->query($keeps) eq 'nothing' }), 'after it: a session whose client has the zone');
ok(wait_until(60, sub { return $old->query('SHOW timezone') eq 'Asia/Tokyo' && $old->query($keeps) eq 'nothing' }), 'one that has set nothing');
{
	local $ENV{PGTZ} = 'UTC';
	is(kept(), '{"TimeZone": "UTC"}', 'one that has the zone of before');
}
$node->append_conf('postgresql.conf', "timezone = 'Etc/UTC'\n");
$node->reload;
ok(wait_until(60, sub { return $client->query($keeps) eq '{"TimeZone": "Asia/Tokyo"}' }), 'and back');
$_->quit for $old, $client;

#
# A crash, and a dump into a database that has other settings.
#
$node->safe_psql('postgres', q{
	SET timezone = 'Asia/Kolkata';
	SELECT delay_schedule('1 hour', $$INSERT INTO effects VALUES ('dumped', $1, '2026-02-03 10:00')$$, '03/02/2026');
	SELECT delay_every('dumped', '1 hour', $$INSERT INTO effects (label, ts) VALUES ('recurring', $1)$$, args => '{2026-02-03 10:00}');
	SELECT delay_schedule_task($$SELECT 1 / 0, timestamptz '2026-02-03 10:00'$$)});
wait_for($node, 'SELECT count(*) = 1 FROM delay_wheel.failed', 'a task has failed');
$node->stop('immediate');
$node->start;
my $dump = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr('postgres') ], 'a dump');
$node->safe_psql('postgres', q{CREATE DATABASE copy; ALTER DATABASE copy SET timezone = 'Asia/Tokyo'});
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr('copy') ], 'its restore');
is($node->safe_psql('copy', q{SELECT count(*), count(DISTINCT settings), min(settings::text) FROM (SELECT settings FROM delay_wheel.tasks UNION ALL SELECT settings FROM delay_wheel.recurring UNION ALL SELECT more->'settings' FROM delay_wheel_data.failed_task) t}),
	'4|1|{"TimeZone": "Asia/Kolkata"}', 'it has what was kept, of all kinds of tasks');
$node->safe_psql('copy', q{SELECT delay_wheel.arm(); SELECT delay_reschedule(id, '0') FROM delay_wheel.tasks});
for my $label (qw(dumped recurring))
{
	wait_for($node, qq{SELECT ts = '2026-02-03 04:30+00' FROM effects WHERE label = '$label'}, "$label: read there as it was meant", 60, db => 'copy');
}

$node->stop;
done_testing();
