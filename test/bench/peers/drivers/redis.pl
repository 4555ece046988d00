# Redis from the distribution: a sorted set by due time, in a server of its own that keeps
# an append-only file and syncs it each second.  redis.mjs has the consumer.

use strict;
use warnings;

our %opt;

my $dir = "$opt{work}/redis";
my $socket = "$dir/socket";
my $pid;

sub redis_cli
{
	my $said = output_of('redis-cli', '-s', $socket, @_);

	chomp $said;
	return $said;
}

return {
	title => 'Redis',
	missing => sub {
		return 'there is no redis-server' if !in_path('redis-server') || !in_path('redis-cli');
		return no_node();
	},
	version => sub { return redis_cli('info', 'server') =~ /^redis_version:(\S+)/m ? $1 : '' },
	prepare => sub {
		$ENV{DW_PEERS_REDIS} = $socket;
		output_of(as_user('mkdir', $dir));
		output_of(as_user(
			'redis-server', '--port', 0, '--unixsocket', $socket, '--dir', $dir, '--save', '', '--appendonly', 'yes',
			'--appendfsync', 'everysec', '--daemonize', 'yes', '--pidfile', "$dir/pid", '--logfile', "$dir/log"));
		wait_until('Redis', 30, sub { -S $socket && redis_cli('ping') eq 'PONG' && -s "$dir/pid" });
		$pid = slurp("$dir/pid") + 0;
	},
	end => sub { kill 'TERM', $pid if $pid },
	processes => sub { return $pid },
	schedule => sub { return node('redis', 'schedule', $opt{seconds}) },
	bulk => sub { return node('redis', 'bulk') },
	left => sub { return redis_cli('zcard', 'delayed') },
	clear => sub { redis_cli('flushall') },
	variants => [
		{ title => 'by 100, read each 10 ms', worker => [ 'redis', 'work', 100 ] },
		{
			name => 'redis_1', title => 'one by one, read each 10 ms', worker => [ 'redis', 'work', 1 ],
			measures => [qw(late burst snapshot idle)]
		},
	],
};
