# The floor: plain PostgreSQL, asked the same statements by a client that knows by
# itself when they are due.  There is no queue to be read or emptied.

use strict;
use warnings;

my $update = 'UPDATE t_order SET stars = stars + 5, status = status + 1 WHERE oid =';

# One session that sleeps until an order is due, and then updates it.
sub floor_late
{
	my ($count, $first_due, $apart) = @_;
	my $session = session('postgres', 'floor', 'peer_floor');

	for my $i (1 .. $count)
	{
		my $pause = $first_due + ($i - 1) * $apart - time();

		sleep($pause) if $pause > 0;
		$session->query("$update $i");
	}
	$session->close;
	return;
}

# Two clients of pgbench, 100 updates a transaction, in a pipeline.
sub floor_burst
{
	my ($count) = @_;
	my $each = int($count / 2);
	my $batch = min(100, $each);
	my $script = "\\startpipeline\nBEGIN;\n"
	  . join('', map { "$update :client_id * $each + :n + $_;\n" } 1 .. $batch)
	  . "COMMIT;\n\\endpipeline\n\\set n :n + $batch\n";

	my ($done, $tps) = pgbench('peer_floor', $script, '-D', 'n=0', '-t', $each / $batch);
	return $tps * $batch;
}

return {
	title => 'plain PostgreSQL',
	note => 'INSERT into a table with two indexes; a client that sleeps until the time and updates; UPDATEs in a pipeline, 100 a transaction, two clients',
	schedule => "INSERT INTO queue (due, oid) VALUES (now() + interval '48 hours', :oid::bigint);\n",
	bulk => 'INSERT INTO queue (due, oid) SELECT due, oid FROM t_order',
	left => 'SELECT count(*) FROM queue',
	clear => 'TRUNCATE queue',
	variants => [ { late => \&floor_late, burst => \&floor_burst, measures => [qw(schedule bulk late burst snapshot)] } ],
};
