# pg_cron with the articles' scheme: a job looks for orders that are due and not rated.
# Nothing is scheduled for an order.  The distribution's version knows no seconds: so
# there are a job that scans once a minute, and one that is started each minute and scans
# at each of its seconds, which stands for '1 second' of later versions.  Each start
# waits for the beginning of a minute, so there are few rounds of it.

use strict;
use warnings;

our %opt;

sub cron_start
{
	my ($command, $is_there) = @_;

	query('pg_cron', "SELECT cron.schedule('scan', '* * * * *', '$command');
		UPDATE cron.job SET nodename = current_setting('unix_socket_directories')");
	wait_until('pg_cron has begun', 130, sub { one('pg_cron', $is_there) eq 't' }) if $is_there;
	return;
}

sub cron_stop
{
	query('pg_cron', q{SELECT cron.unschedule('scan')});
	query('pg_cron', q{SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE query LIKE 'CALL scan%'});
	return;
}

return {
	title => 'pg_cron',
	missing => sub { return -f "$opt{pkglibdir}/pg_cron.so" ? '' : 'not installed for this PostgreSQL: postgresql-15-cron' },
	named => 1,
	rounds => 2,
	version => q{SELECT extversion FROM pg_extension WHERE extname = 'pg_cron'},
	# the scans find their rows in this index
	setup => q{
		CREATE EXTENSION pg_cron;
		CREATE INDEX ON t_order (due) WHERE status = 0;
		CREATE PROCEDURE scan() LANGUAGE plpgsql AS $$
		BEGIN
			UPDATE t_order SET stars = stars + 5, status = status + 1 WHERE due <= now() AND status = 0;
		END $$;
		CREATE PROCEDURE scan_each_second() LANGUAGE plpgsql AS $$
		BEGIN
			FOR i IN 1 .. 59 LOOP
				CALL scan();
				COMMIT;
				PERFORM pg_sleep(extract(epoch FROM
					date_trunc('second', clock_timestamp()) + interval '1 second' - clock_timestamp()));
				COMMIT;
			END LOOP;
		END $$},
	bulk => 'SELECT 1',
	left => 'SELECT 0',
	clear => 'TRUNCATE cron.job_run_details',
	variants => [
		{
			title => 'a scan each second',
			start => sub { cron_start('CALL scan_each_second()', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'CALL scan_each_second%'}) },
			stop => \&cron_stop, measures => [qw(late burst snapshot idle)],
			note => 'idle: of 59 seconds in a minute; a job of its own each second asks more'
		},
		{
			name => 'pg_cron_minute', title => 'a scan each minute',
			start => sub { cron_start('CALL scan()') }, stop => \&cron_stop,
			measures => ['late'], late => [ 10, 60 ]
		},
	],
};
