# Messages of delay_wheel, handled by its library for Node (workers/node): by leases, as the
# other peers of npm do it, and in the transaction of the work.

use strict;
use warnings;

return {
	title => 'delay_wheel, worker for Node',
	missing => \&no_node,
	version => q{SELECT extversion FROM pg_extension WHERE extname = 'delay_wheel'},
	setup => q{CREATE EXTENSION delay_wheel; SELECT delay_wheel.create_queue('rate', external => true)},
	schedule => "SELECT delay_send('rate', jsonb_build_object('oid', :oid::bigint), delay => '48 hours');\n",
	bulk => q{SELECT count(delay_send('rate', jsonb_build_object('oid', oid), due => due)) FROM t_order},
	left => 'SELECT count(*) FROM delay_wheel_data.task',
	clear => 'TRUNCATE delay_wheel_data.task',
	variants => [
		{ title => 'leases, 100 at a time', worker => [ 'delay_wheel_node', 'lease' ], idle_workers => q{backend_type LIKE 'delay\_wheel %'} },
		{
			name => 'delay_wheel_node_transaction', title => 'in the transaction of the work, 10 at a time', worker => [ 'delay_wheel_node', 'transaction' ],
			measures => [qw(late burst)]
		},
	],
};
