/*-------------------------------------------------------------------------
 *
 * metrics.c
 *	  Figures for Prometheus, on a port of their own.
 *
 * A listener and not a file for node_exporter: it is as small, a container has
 * no node_exporter, a scrape that fails shows that the process is gone, and
 * while nobody asks nothing has to be written.  The answer does not depend on
 * the request, of which only the end is awaited.
 *
 *-------------------------------------------------------------------------
 */
#include "metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "log.h"
#include "loop.h"
#include "report.h"
#include "settings.h"

#define MAX_CLIENTS 8

typedef struct Client
{
	int			fd;				/* 0: free */
	unsigned	last;			/* bytes of the request: its end is awaited */
} Client;

Metrics		metrics;

static const double bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
#define N_BOUNDS ((int) (sizeof(bounds) / sizeof(bounds[0])))

static Client clients[MAX_CLIENTS];
static int	next_client;

void
metrics_observe(Histogram *histogram, double seconds)
{
	int			i = 0;

	while (i < N_BOUNDS && seconds > bounds[i])
		i++;
	histogram->counts[i]++;
	histogram->count++;
	histogram->sum += seconds;
}

static void
write_histogram(FILE *out, const char *name, const char *help, const Histogram *histogram)
{
	long long	sum = 0;

	fprintf(out, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name);
	for (int i = 0; i < N_BOUNDS; i++)
	{
		sum += histogram->counts[i];
		fprintf(out, "%s_bucket{le=\"%g\"} %lld\n", name, bounds[i], sum);
	}
	fprintf(out, "%s_bucket{le=\"+Inf\"} %lld\n%s_sum %.6f\n%s_count %lld\n", name, histogram->count, name, histogram->sum, name, histogram->count);
}

static void
write_one(FILE *out, const char *name, const char *type, const char *help, long long value)
{
	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n%s %lld\n", name, help, name, type, name, value);
}

static void
write_all(FILE *out)
{
	write_one(out, "delay_http_running", "gauge", "Requests that are running", metrics.running);
	write_one(out, "delay_http_messages", "gauge", "Leased messages, running or waiting for their report", metrics.taken);
	write_one(out, "delay_http_concurrency", "gauge", "Largest number of messages", settings.concurrency);
	fprintf(out, "# HELP delay_http_connected Whether the session with the database is there\n# TYPE delay_http_connected gauge\n"
			"delay_http_connected{session=\"wait\"} %d\ndelay_http_connected{session=\"report\"} %d\n", metrics.is_connected[0], metrics.is_connected[1]);
	write_one(out, "delay_http_connects_total", "counter", "Connects of the session that reports", metrics.connects);
	fprintf(out, "# HELP delay_http_requests_total Attempts by what became of their messages\n# TYPE delay_http_requests_total counter\n"
			"delay_http_requests_total{outcome=\"done\"} %lld\ndelay_http_requests_total{outcome=\"failed\"} %lld\n"
			"delay_http_requests_total{outcome=\"given_up\"} %lld\ndelay_http_requests_total{outcome=\"released\"} %lld\n",
			metrics.requests[WORD_DONE], metrics.requests[WORD_RETRY], metrics.requests[WORD_GIVE_UP], metrics.requests[WORD_RELEASE]);
	fprintf(out, "# HELP delay_http_responses_total Requests by the class of their status; none: no answer\n# TYPE delay_http_responses_total counter\n");
	fprintf(out, "delay_http_responses_total{status=\"none\"} %lld\n", metrics.responses[0]);
	for (int i = 2; i < 6; i++)
		fprintf(out, "delay_http_responses_total{status=\"%dxx\"} %lld\n", i, metrics.responses[i]);
	write_one(out, "delay_http_lost_total", "counter", "Messages whose lease ended first, or that were cancelled", metrics.lost);
	write_one(out, "delay_http_extended_total", "counter", "Leases that were extended", metrics.extended);
	write_one(out, "delay_http_refused_total", "counter", "Requests to addresses that are not allowed", metrics.refused);
	write_one(out, "delay_http_cut_total", "counter", "Answers that were longer than --max-answer", metrics.cut);
	write_histogram(out, "delay_http_duration_seconds", "Time from the beginning of a request to its answer", &metrics.duration);
	write_histogram(out, "delay_http_lateness_seconds", "Time from the due time to the lease, first attempts only", &metrics.lateness);
}

static void
hang_up(Client *client)
{
	loop_forget(client->fd);
	close(client->fd);
	client->fd = 0;
}

static void
on_client(void *owner, uint32_t events)
{
	Client	   *client = owner;
	char		bytes[2048];
	ssize_t		n = read(client->fd, bytes, sizeof(bytes));
	char	   *body;
	char		head[128];
	size_t		length;
	FILE	   *out;

	(void) events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
	{
		hang_up(client);
		return;
	}
	for (ssize_t i = 0; i < n; i++)
		client->last = client->last << 8 | (unsigned char) bytes[i];
	if (client->last != 0x0d0a0d0a)
		return;

	out = open_memstream(&body, &length);
	if (!out)
		abort();
	write_all(out);
	fclose(out);
	snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", length);
	/* both fit into the socket's buffer; whoever has gone gets nothing */
	if (send(client->fd, head, strlen(head), MSG_NOSIGNAL | MSG_MORE) > 0 && send(client->fd, body, length, MSG_NOSIGNAL) > 0)
		shutdown(client->fd, SHUT_WR);
	free(body);
	hang_up(client);
}

static void
on_listener(void *owner, uint32_t events)
{
	int			fd = accept4((int) (intptr_t) owner, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	Client	   *client = &clients[next_client];

	(void) events;
	if (fd < 0)
		return;
	/* whoever sends half a request and stays has to go when his turn comes */
	next_client = (next_client + 1) % MAX_CLIENTS;
	if (client->fd)
		hang_up(client);
	*client = (Client) {.fd = fd};
	loop_watch(fd, EPOLLIN, on_client, client);
}

/* Returns false, with errno, if the port cannot be had. */
bool
metrics_listen(void)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t) settings.metrics_port)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t) settings.metrics_port)};
	bool		is_v4 = inet_pton(AF_INET, settings.metrics_address, &v4.sin_addr) == 1;
	int			one = 1;
	int			fd;

	if (!is_v4 && inet_pton(AF_INET6, settings.metrics_address, &v6.sin6_addr) != 1)
	{
		errno = EINVAL;
		return false;
	}
	fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, is_v4 ? (struct sockaddr *) &v4 : (struct sockaddr *) &v6, is_v4 ? sizeof(v4) : sizeof(v6)) != 0 || listen(fd, 16) != 0)
		return false;
	loop_watch(fd, EPOLLIN, on_listener, (void *) (intptr_t) fd);
	return true;
}
