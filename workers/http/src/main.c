/*-------------------------------------------------------------------------
 *
 * main.c
 *	  delay-wheel-http: sends the HTTP requests of a queue when they are due.
 *
 * One thread, which never blocks (libcurl looks up names in threads of its
 * own):
 *
 *	  receive.c   waits for messages, and leases them   -> request_begin()
 *	  request.c   makes the requests                    -> report_word()
 *	  report.c    reports what became of them           -> request_finished()
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "loop.h"
#include "metrics.h"
#include "receive.h"
#include "report.h"
#include "request.h"
#include "settings.h"
#include "sign.h"

static int	signal_fd;
static bool is_stopping;
static double stop_at = INFINITY;	/* when running requests are stopped */

static void
on_signal(void *owner, uint32_t events)
{
	struct signalfd_siginfo info;
	sigset_t	set;

	(void) owner, (void) events;
	while (read(signal_fd, &info, sizeof(info)) == sizeof(info))
	{
		if (info.ssi_signo == SIGHUP)
		{
			if (sign_load(settings.secrets))
				log_event(LOG_INFO, "secrets_read", "file", settings.secrets ? settings.secrets : "");
			continue;
		}
		log_begin(LOG_INFO, "stopping");
		log_number("running", metrics.running);
		log_number("within", settings.stop_within);
		log_end();
		is_stopping = true;
		stop_at = now + settings.stop_within;
		/* the next one ends the process, whatever it is doing */
		sigemptyset(&set);
		sigaddset(&set, SIGTERM);
		sigaddset(&set, SIGINT);
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		return;
	}
}

static void
init(void)
{
	struct rlimit limit;
	sigset_t	set;

	/* A core would have secrets and payloads; nor may others of this user look at our memory. */
	limit.rlim_cur = limit.rlim_max = 0;
	setrlimit(RLIMIT_CORE, &limit);
	prctl(PR_SET_DUMPABLE, 0);
	unsetenv("SSLKEYLOGFILE");
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < (rlim_t) settings.concurrency * 2 + 64)
	{
		/* a socket for each request, kept ones, and two for each look-up */
		limit.rlim_cur = limit.rlim_max < (rlim_t) settings.concurrency * 2 + 64 ? limit.rlim_max : (rlim_t) settings.concurrency * 2 + 64;
		setrlimit(RLIMIT_NOFILE, &limit);
	}

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	srand48(time(NULL) ^ ((long) getpid() << 16));
	curl_global_init(CURL_GLOBAL_DEFAULT);
	loop_init();
	loop_watch(signal_fd, EPOLLIN, on_signal, NULL);
}

/* Is everything done after a SIGTERM? */
static bool
has_stopped(void)
{
	bool		is_closed = receive_stop();

	if (now >= stop_at)
		request_stop_all();
	return is_closed && metrics.taken == 0;
}

int
main(int argc, char **argv)
{
	settings_read(argc, argv);
	init();
	if (!sign_load(settings.secrets))
		return 2;
	if (settings.metrics_port && !metrics_listen())
	{
		log_begin(LOG_ERROR, "no_metrics");
		log_text("address", settings.metrics_address);
		log_number("port", settings.metrics_port);
		log_text("error", strerror(errno));
		log_text("next", "the program ends");
		log_end();
		return 2;
	}
	log_begin(LOG_INFO, "started");
	log_text("version", VERSION);
	log_text("queue", settings.queue);
	log_number("concurrency", settings.concurrency);
	log_end();
	request_init();
	report_init();
	receive_init();
	for (;;)
	{
		double		next = fmin(fmin(receive_next(), report_next()), fmin(request_next(), stop_at));

		/* a while for the last reports, if the database is away */
		if (now >= stop_at)
			next = fmin(fmin(receive_next(), report_next()), fmin(request_next(), stop_at + 5));
		loop_wait(next);
		/* If we were frozen, leases have ended: look before anything is sent. */
		request_check_leases();
		loop_dispatch();
		receive_tick();
		report_tick();
		request_tick();
		if (is_stopping && has_stopped())
			break;
		if (now >= stop_at + 5)
		{
			request_log_unreported();
			return 1;
		}
		receive_go_on();
		report_flush();
	}
	report_close();
	log_begin(LOG_INFO, "stopped");
	log_end();
	return 0;
}
