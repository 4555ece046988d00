# pg_timers, if --pg-timers says that it is installed in this PostgreSQL.  Its one
# background worker runs the tasks, of one database.

use strict;
use warnings;

our %opt;

my $task = q{'update t_order set stars = stars + 5, status = status + 1 where oid = '};

return {
	title => 'pg_timers',
	missing => sub { return $opt{pg_timers} ? '' : '--pg-timers was not given' },
	version => q{SELECT extversion FROM pg_extension WHERE extname = 'pg_timers'},
	setup => 'CREATE EXTENSION pg_timers',
	# it was started before its database was there, and tries again
	prepare => sub {
		wait_until('the worker of pg_timers', 60, sub {
			one('pg_timers', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND backend_type ~ 'timers'}) eq 't' });
	},
	schedule => "SELECT timers.schedule_at(now() + interval '48 hours', $task || :oid::bigint);\n",
	bulk => "SELECT count(timers.schedule_at(due, $task || oid)) FROM t_order",
	left => 'SELECT count(*) FROM timers.timers WHERE status IN (0, 2)',
	clear => 'TRUNCATE timers.timers',
	variants => [ {} ],
};
