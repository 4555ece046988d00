# pg-boss from npm, tuned: pg_boss.mjs schedules by its calls, and works by batches.  With
# its defaults a worker takes one job each 2 seconds: there is no burst to be measured.

use strict;
use warnings;

our %opt;

return {
	title => 'pg-boss',
	missing => \&no_node,
	version => sub { return npm_version('pg-boss') },
	prepare => sub { node('pg_boss', 'setup') },
	schedule => sub { return node('pg_boss', 'schedule', $opt{seconds}) },
	bulk => sub { return node('pg_boss', 'bulk') },
	left => q{SELECT count(*) FROM pgboss.job WHERE name = 'rate' AND state < 'completed'},
	clear => 'TRUNCATE pgboss.job',
	variants => [ { title => 'tuned: looks each 500 ms, 100 at a time', worker => [ 'pg_boss', 'work' ] } ],
};
