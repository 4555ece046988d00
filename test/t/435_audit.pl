# The audit: how long its rows are kept, whence a client came, and where the rows go: not into
# a dump, but by a publication to another server.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir();
my $node = new_node('audit', conf => q{
wal_level = logical
max_wal_senders = 5
listen_addresses = '127.0.0.1'
delay_wheel.audit = 'control'
log_min_messages = fatal
});

sub set
{
	my ($name, $value) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET delay_wheel.$name = '$value'");
	$node->reload;
	return;
}

# As if it had been done then.
sub insert_old
{
	my ($n, $at) = @_;
	$node->safe_psql('postgres', qq{
		SET delay_wheel.audit = off;
		INSERT INTO delay_wheel_data.audit (id, at, owner, pid, action, name)
			SELECT nextval('delay_wheel_data.audit_id_seq'), $at, current_user::regrole, 1, 'pause', 'old' FROM generate_series(1, $n)});
	return;
}
my $old = q{SELECT count(*) FROM delay_wheel.audit WHERE name = 'old'};

#
# How long
#
insert_old(2500, q{now() - interval '2 hours'});
insert_old(10, q{now() - interval '20 minutes'});
$node->safe_psql('postgres', 'SELECT delay_pause_all()');
is($node->safe_psql('postgres', $old), 2510, 'nothing is removed that is younger than the limit');
set('audit_max_age', '1 h');
wait_for($node, $old, 'old rows go when the limit is lowered, however many', 60, expected => 10);
set('audit_max_age', '-1');
insert_old(5, q{now() - interval '10 years'});
$node->restart;
$node->safe_psql('postgres', 'SELECT delay_resume_all()');
is($node->safe_psql('postgres', $old), 15, 'without a limit all are kept');
$node->stop;
$node->append_conf('postgresql.conf', "delay_wheel.audit_max_age = '1 h'");
$node->start;
set('audit_max_age', '1 h');
wait_for($node, $old, 'those from before a restart go, too', 60, expected => 10);
is($node->safe_psql('postgres', q{SELECT string_agg(action, ' ' ORDER BY at) FROM delay_wheel.audit WHERE name IS NULL}), 'pause_all resume_all', 'others stay');

#
# Whence
#
$node->safe_psql('postgres', 'CREATE ROLE shop LOGIN; SELECT delay_wheel.allow($$shop$$)');
is(system('psql', '-XAtq', '-h', '127.0.0.1', '-p', $node->port, '-U', 'shop', '-d', 'dbname=postgres application_name=till', '-o', '/dev/null',
	'-c', 'SELECT delay_pause_all()'), 0, 'a client by TCP');
is($node->safe_psql('postgres', q{SELECT action, login_role, role, owner, client_addr, application_name FROM delay_wheel.audit WHERE login_role = 'shop'}),
	'pause_all|shop|shop|shop|127.0.0.1|till', 'has its address');
$node->safe_psql('postgres', 'SET ROLE shop; SELECT delay_resume_all()');
# the name stays when the role is gone
$node->safe_psql('postgres', 'SELECT delay_wheel.disallow($$shop$$); DROP ROLE shop');
is($node->safe_psql('postgres', q{SELECT login_role, role, client_addr IS NULL FROM delay_wheel.audit WHERE login_role = 'shop' OR role = 'shop' ORDER BY at}),
	"shop|shop|f\npostgres|shop|t", 'names are there when the role is gone');

#
# Where to
#
$node->command_ok([ 'pg_dump', '-h', $node->host, '-p', $node->port, '-f', "$dir/dump", 'postgres' ], 'a dump');
unlike(slurp_file("$dir/dump"), qr/till/, 'has no row of it');
my $archive = PostgreSQL::Test::Cluster->new('archive');
$archive->init;
$archive->start;
my $columns = $node->safe_psql('postgres', q{
	SELECT string_agg(attname || ' ' || CASE WHEN atttypid = 'regrole'::regtype THEN 'text' ELSE format_type(atttypid, atttypmod) END, ', ' ORDER BY attnum)
	FROM pg_attribute WHERE attrelid = 'delay_wheel_data.audit'::regclass AND attnum > 0});
$archive->safe_psql('postgres', "CREATE SCHEMA delay_wheel_data; CREATE TABLE delay_wheel_data.audit ($columns)");
$node->safe_psql('postgres', q{CREATE PUBLICATION audit FOR TABLE delay_wheel_data.audit WITH (publish = 'insert')});
$archive->safe_psql('postgres', 'CREATE SUBSCRIPTION audit CONNECTION $$' . $node->connstr('postgres') . '$$ PUBLICATION audit');
wait_for($archive, q{SELECT count(*) > 10 FROM delay_wheel_data.audit}, 'another server has a copy');
$node->safe_psql('postgres', q{SELECT delay_wheel.create_queue('mail')});
wait_for($archive, q{SELECT action || ' ' || name || ' ' || owner FROM delay_wheel_data.audit WHERE name = 'mail'}, 'and what comes', 60,
	expected => 'create_queue mail postgres');
set('audit_max_age', '1 min');
wait_for($node, $old, 'what is removed here', 60, expected => 0);
$node->safe_psql('postgres', q{SELECT delay_wheel.drop_queue('mail')});
wait_for($archive, q{SELECT count(*) FROM delay_wheel_data.audit WHERE action = 'drop_queue'}, 'and what came after that', 60, expected => 1);
is($archive->safe_psql('postgres', q{SELECT count(*) FROM delay_wheel_data.audit WHERE name = 'old'}), 10, 'stays there');
$archive->safe_psql('postgres', 'DROP SUBSCRIPTION audit');

done_testing();
