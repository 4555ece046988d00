# A headless chromium with one page, driven over pipes by its DevTools protocol: for
# test/t/931_page_server.pl and scripts/page_pictures.  No module of the tests is used.
#
#	my $browser = Browser->new($dir);        a directory for its files; undef without chromium
#	$browser->show($url, width => 1100, dark => 1);
#	$browser->ask($expression);              what the expression is in the page
#	$browser->wait_for($expression, 60);     until it is true; false if it is not within that time
#	$browser->picture($file, $expression);   PNG of [x, y, width, height], which the expression gives
#	$browser->said();                        errors of the page's console, since the last question
#	$browser->end();

package Browser;

use strict;
use warnings;

use Fcntl ();
use IO::Handle;
use JSON::PP ();
use MIME::Base64 qw(decode_base64);
use POSIX ();
use Time::HiRes qw(sleep clock_gettime CLOCK_MONOTONIC);

my $json = JSON::PP->new->utf8->allow_nonref;
# seconds for an answer
my $limit = 60;

sub find
{
	for my $name (qw(chromium chromium-browser google-chrome))
	{
		for my $path (split /:/, $ENV{PATH})
		{
			return "$path/$name" if -x "$path/$name";
		}
	}
	return;
}

sub new
{
	my ($class, $dir) = @_;
	my $program = find() or return;

	pipe(my $its_in, my $to) && pipe(my $from, my $its_out) or die "no pipe: $!";
	my $pid = fork // die "could not fork: $!";
	if ($pid == 0)
	{
		setpgrp;
		$ENV{HOME} = $dir;
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>>', "$dir/chromium.log");
		open(STDERR, '>>', "$dir/chromium.log");
		# it reads from 3 and writes to 4: first out of the way of these
		my ($in, $out) = map { fcntl($_, Fcntl::F_DUPFD(), 10) + 0 } $its_in, $its_out;
		POSIX::dup2($in, 3);
		POSIX::dup2($out, 4);
		# the sandbox needs rights that a test's user need not have; the only pages are our own
		exec($program, '--headless=new', '--remote-debugging-pipe', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage',
			'--no-first-run', '--disable-extensions', '--disable-background-networking', '--disable-component-update', '--no-proxy-server',
			'--hide-scrollbars', "--user-data-dir=$dir/chromium", '--lang=en-US', 'about:blank')
		  or POSIX::_exit(1);
	}
	close $its_in;
	close $its_out;
	$to->autoflush(1);
	my $self = bless { pid => $pid, to => $to, from => $from, buffer => '', number => 0, said => [] }, $class;
	my $target = $self->call('Target.createTarget', { url => 'about:blank' })->{targetId};
	$self->{session} = $self->call('Target.attachToTarget', { targetId => $target, flatten => JSON::PP::true })->{sessionId};
	$self->call("$_.enable") for qw(Page Runtime Log);
	return $self;
}

sub message
{
	my ($self) = @_;
	my $end = clock_gettime(CLOCK_MONOTONIC) + $limit;

	my $at;
	while (($at = index($self->{buffer}, "\0")) < 0)
	{
		my $ready = '';
		vec($ready, fileno $self->{from}, 1) = 1;
		my $left = $end - clock_gettime(CLOCK_MONOTONIC);
		die "the browser does not answer\n" if $left <= 0 || !select($ready, undef, undef, $left);
		sysread($self->{from}, $self->{buffer}, 65536, length $self->{buffer}) or die "the browser has ended\n";
	}
	my $text = substr($self->{buffer}, 0, $at + 1, '');
	chop $text;
	return $json->decode($text);
}

sub call
{
	my ($self, $method, $params) = @_;
	my $number = ++$self->{number};

	print { $self->{to} } $json->encode({
		id => $number, method => $method, params => $params // {},
		$self->{session} ? (sessionId => $self->{session}) : () }), "\0";
	for (;;)
	{
		my $message = $self->message;
		if (($message->{id} // 0) == $number)
		{
			die "$method: $message->{error}{message}\n" if $message->{error};
			return $message->{result};
		}
		my $entry = ($message->{method} // '') eq 'Log.entryAdded' ? $message->{params}{entry} : {};
		push @{ $self->{said} }, "$entry->{text} " . ($entry->{url} // '') if ($entry->{level} // '') eq 'error';
		push @{ $self->{said} }, $message->{params}{exceptionDetails}{text} if ($message->{method} // '') eq 'Runtime.exceptionThrown';
	}
}

sub show
{
	my ($self, $url, %how) = @_;

	$self->call('Emulation.setDeviceMetricsOverride',
		{ width => $how{width} // 1100, height => 1000, deviceScaleFactor => 1, mobile => JSON::PP::false });
	$self->call('Emulation.setEmulatedMedia', { features => [ { name => 'prefers-color-scheme', value => $how{dark} ? 'dark' : 'light' } ] });
	# an address that differs behind the # only would be no other page
	$self->call('Page.navigate', { url => 'about:blank' });
	$self->wait_for(q{location.href === 'about:blank'}) or die "the browser does not leave its page\n";
	$self->call('Page.navigate', { url => $url });
	return;
}

sub ask
{
	my ($self, $expression) = @_;
	my $answer = $self->call('Runtime.evaluate', { expression => $expression, returnByValue => JSON::PP::true, awaitPromise => JSON::PP::true });

	die "$expression: $answer->{exceptionDetails}{exception}{description}\n" if $answer->{exceptionDetails};
	return $answer->{result}{value};
}

sub wait_for
{
	my ($self, $expression, $seconds) = @_;
	my $end = clock_gettime(CLOCK_MONOTONIC) + ($seconds // 60);

	# between two pages there is nothing to ask
	until (eval { $self->ask($expression) })
	{
		die $@ if $@ =~ /^the browser/;
		return 0 if clock_gettime(CLOCK_MONOTONIC) > $end;
		sleep(0.05);
	}
	return 1;
}

sub picture
{
	my ($self, $file, $expression) = @_;
	my %clip = (scale => 1);

	@clip{qw(x y width height)} = @{ $self->ask($expression) };
	my $picture = $self->call('Page.captureScreenshot', { format => 'png', captureBeyondViewport => JSON::PP::true, clip => \%clip });
	open(my $out, '>:raw', $file) or die "$file: $!\n";
	print $out decode_base64($picture->{data});
	close $out or die "$file: $!\n";
	return;
}

sub said
{
	my ($self) = @_;
	my @said = @{ $self->{said} };

	$self->{said} = [];
	return @said;
}

sub end
{
	my ($self) = @_;

	return if !$self->{pid};
	kill 'KILL', -$self->{pid};
	waitpid(delete $self->{pid}, 0);
	return;
}

sub DESTROY { local ($?, $@); $_[0]->end; return; }

1;
