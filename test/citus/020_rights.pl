# Rights on all nodes: delay_wheel.allow() and disallow(), nodes that are added later,
# and shards that move to them.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../t";
use Citus;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use Test::More;

my ($coordinator, @workers) = new_cluster(2);
my @nodes = ($coordinator, @workers);
my $may = q{has_table_privilege('%s', 'delay_wheel.tasks', 'INSERT')
	AND has_schema_privilege('%1$s', 'public', 'USAGE')
	AND NOT has_function_privilege('%1$s', 'delay_wheel.arm()', 'EXECUTE')};

sub may
{
	my ($role, $expected, $what, @where) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is(join('', on_nodes('SELECT ' . sprintf($may, $role), @where)), $expected x @where, $what);
	return;
}

sub sql { return $coordinator->safe_psql('postgres', $_[0]); }

sub fails
{
	my ($sql, $message, $what) = @_;
	my (undef, undef, $err) = $coordinator->psql('postgres', $sql);
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	like($err, $message, $what);
	return;
}

may('shop', 't', 'allow() is for all nodes', @nodes);
$coordinator->safe_psql('postgres', 'CREATE ROLE other; CREATE ROLE "Odd, name"; CREATE ROLE apart NOINHERIT');
$coordinator->psql('postgres', q{BEGIN; SELECT delay_wheel.allow('other'); ROLLBACK});
may('other', 'f', 'ROLLBACK undoes allow() on all nodes', @nodes);
$coordinator->safe_psql('postgres', q{BEGIN; CREATE ROLE fresh; SELECT delay_wheel.allow('other', 'Odd, name', 'fresh'); COMMIT});
may($_, 't', "allow() of several roles: $_", @nodes) for 'other', 'Odd, name', 'fresh';
$coordinator->safe_psql('postgres', q{SELECT delay_wheel.disallow('other', 'fresh')});
may($_, 'f', "disallow() is for all nodes: $_", @nodes) for 'other', 'fresh';
may('shop', 't', 'disallow() leaves other roles alone', @nodes);

fails(q{SELECT delay_wheel.allow('public')}, qr/ERROR:  cannot allow all roles on all nodes of Citus/, 'public is no member of a group');
fails(q{SELECT delay_wheel.allow('apart')}, qr/ERROR:  role "apart" does not inherit the rights of role "delay_wheel_user"/,
	'a role that inherits no rights is refused') if $workers[0]->pg_version < 16;
fails(q{SELECT delay_wheel.allow('nobody')}, qr/ERROR:  role "nobody" does not exist/, 'a role that does not exist');
fails(q{SET ROLE shop; SELECT delay_wheel.allow('other')}, qr/ERROR:  permission denied for function allow/, 'only for superusers');

# on one node, by the setting of Citus that says so
$coordinator->safe_psql('postgres', q{SET citus.enable_ddl_propagation = off; SELECT delay_wheel.allow('other')});
may('other', 't', 'without propagation the node itself', $coordinator);
may('other', 'f', 'without propagation no other node', @workers);
$coordinator->safe_psql('postgres', q{SELECT delay_wheel.disallow('other')});
may('other', 'f', 'disallow() takes a direct grant, too', $coordinator);

# the group gets its right by GRANT from whoever may give them, whatever the search_path
sql(q{CREATE ROLE maker LOGIN CREATEROLE; CREATE ROLE trapper LOGIN; CREATE SCHEMA trap AUTHORIZATION trapper});
sql(q{SET ROLE trapper;
	CREATE FUNCTION trap.spring(oid, oid) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RAISE ''sprung as %'', current_user; END';
	CREATE OPERATOR trap.= (FUNCTION = trap.spring, LEFTARG = oid, RIGHTARG = oid)});
my $group_may = q{SELECT EXISTS (SELECT FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = 'delay_wheel.tasks'::regclass AND a.grantee = 'delay_wheel_user'::regrole)};
sql(q{REVOKE INSERT ON delay_wheel.tasks FROM delay_wheel_user});
sql(q{SET ROLE maker; GRANT delay_wheel_user TO other}) if $coordinator->pg_version < 16;
is(sql($group_may), 'f', 'a role that does not own the view gives the group no right');
my (undef, undef, $sprung) = $coordinator->psql('postgres', q{SET search_path = trap, pg_catalog, public; GRANT delay_wheel_user TO shop});
unlike($sprung, qr/sprung/, 'GRANT of the group calls nothing that the search_path leads to');
is(sql($group_may), 't', 'a superuser gives it with GRANT of the group');
sql(q{DROP SCHEMA trap CASCADE; REVOKE delay_wheel_user FROM other});
# of databases of Citus only
sql('CREATE DATABASE plain');
$coordinator->safe_psql('plain', 'CREATE EXTENSION delay_wheel');
is($coordinator->safe_psql('plain', $group_may), 'f', 'in a database without Citus the group has no right');

# nodes that come later: bare, and with the extension
$coordinator->safe_psql('postgres', q{
	SET ROLE shop;
	CREATE TABLE t_order (oid bigint PRIMARY KEY, runs int NOT NULL DEFAULT 0);
	SELECT create_distributed_table('t_order', 'oid', shard_count => 8);
	SET citus.enable_unsafe_triggers = on;
	CREATE TRIGGER later AFTER INSERT ON t_order FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('0',
		'update public.t_order set runs = runs + 1 where oid = $1', 'oid');
});
for my $prepared (0, 1)
{
	my $new = new_worker("new$prepared");
	my $n = 1000 * ($prepared + 1);

	$new->safe_psql('postgres', 'CREATE EXTENSION citus; CREATE EXTENSION delay_wheel') if $prepared;
	$prepared
	  ? $coordinator->safe_psql('postgres', sprintf(q{SELECT citus_add_node('127.0.0.1', %d)}, $new->port))
	  : add_worker($coordinator, $new);
	my $name = $prepared ? 'a new node with the extension' : 'a new node';
	may('shop', 't', "$name has the rights", $new);
	may('other', 'f', "$name has no other rights", $new);
	my ($shard, $port) = shard_of($coordinator, 't_order', $n);
	my ($from) = grep { $_->port == $port } @workers;
	my ($status, undef, $err) = move_shard($coordinator, $shard, $from, $new);
	is("$status$err", '0', "a shard can move to $name");
	$coordinator->safe_psql('postgres', "SET ROLE shop; INSERT INTO t_order VALUES ($n)");
	wait_for($coordinator, "SELECT runs FROM t_order WHERE oid = $n", "a task of $name runs", 30, expected => 1);
	is($new->safe_psql('postgres', 'SELECT done FROM delay_wheel.status'), '1', "it ran there");
	push @workers, $new;
}

done_testing();
