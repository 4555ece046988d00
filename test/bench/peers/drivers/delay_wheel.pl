# delay_wheel, with the settings that it has by default.  Its executors are background
# workers: there is no consumer to start.

use strict;
use warnings;

my $task = q{'update t_order set stars = stars + 5, status = status + 1 where oid = $1'};

return {
	title => 'delay_wheel',
	version => q{SELECT extversion FROM pg_extension WHERE extname = 'delay_wheel'},
	setup => 'CREATE EXTENSION delay_wheel',
	schedule => "SELECT delay_schedule('48 hours', $task, :oid::bigint);\n",
	bulk => "SELECT count(delay_schedule_at(due, $task, oid)) FROM t_order",
	left => 'SELECT count(*) FROM delay_wheel_data.task',
	clear => 'TRUNCATE delay_wheel_data.task',
	variants => [ { idle_workers => q{backend_type LIKE 'delay\_wheel %'} } ],
};
