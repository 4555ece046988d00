# graphile-worker from npm: jobs are scheduled by its SQL functions, and run by
# graphile_worker.mjs; with its defaults (it looks each 2 seconds, one job at a time), and
# tuned.

use strict;
use warnings;

return {
	title => 'graphile-worker',
	missing => \&no_node,
	version => sub { return npm_version('graphile-worker') },
	prepare => sub { node('graphile_worker', 'setup') },
	schedule => "SELECT graphile_worker.add_job('rate', json_build_object('oid', :oid::bigint), run_at => now() + interval '48 hours');\n",
	bulk => q{SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
		SELECT ('rate', json_build_object('oid', oid), NULL, due, NULL, NULL, NULL, NULL)::graphile_worker.job_spec FROM t_order))},
	left => 'SELECT count(*) FROM graphile_worker._private_jobs',
	clear => 'TRUNCATE graphile_worker._private_jobs',
	variants => [
		{ title => 'tuned: looks each 100 ms, 10 at a time', worker => [ 'graphile_worker', 'work', 'tuned' ] },
		{
			name => 'graphile_worker_default', title => 'by default: each 2 s, 1 at a time', worker => [ 'graphile_worker', 'work', 'default' ],
			measures => [qw(late burst idle)]
		},
	],
};
