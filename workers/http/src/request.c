/*-------------------------------------------------------------------------
 *
 * request.c
 *	  From a leased message to its word: the HTTP requests, by libcurl.
 *
 * There are as many places as --concurrency allows.  A message has a place
 * from its lease on until the server has answered its last word, so there are
 * never more messages in memory.
 *
 * A request ends in one of these ways:
 *
 *	  2xx                                    done
 *	  408, 425, 429, 5xx, no answer          tried again by the queue's rules
 *	  other answers, or it cannot be sent    given up
 *	  its lease cannot be extended           stopped, and released
 *
 *-------------------------------------------------------------------------
 */
#include "request.h"

#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "guard.h"
#include "log.h"
#include "loop.h"
#include "metrics.h"
#include "report.h"
#include "settings.h"
#include "sign.h"

#define MAX_ANSWER_HEADERS (64 * 1024)
#define MAX_HEADERS 100			/* of a sender */
/* No further lease while the messages in memory are longer than this. */
#define MAX_MEMORY (64 * 1024 * 1024)

static Request *requests;
static TAILQ_HEAD(, Request) free_places = TAILQ_HEAD_INITIALIZER(free_places);
static int	n_free;
static size_t memory;
static CURLM *multi;
static double curl_due = INFINITY;	/* when libcurl wants to be called */
static double check_due = INFINITY; /* when a lease needs to be extended */

static void collect(void);

/*---- libcurl's sockets and timer in our loop ----*/

static void
on_socket(void *owner, uint32_t events)
{
	int			running;
	int			mask = (events & EPOLLIN ? CURL_CSELECT_IN : 0) | (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
		(events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);

	curl_multi_socket_action(multi, (curl_socket_t) (intptr_t) owner, mask, &running);
	collect();
}

static int
socket_callback(CURL *easy, curl_socket_t fd, int what, void *user, void *socket_user)
{
	(void) easy, (void) user, (void) socket_user;
	if (what == CURL_POLL_REMOVE)
		loop_forget(fd);
	else
		loop_watch(fd, (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0), on_socket, (void *) (intptr_t) fd);
	return 0;
}

static int
timer_callback(CURLM *of, long milliseconds, void *user)
{
	(void) of, (void) user;
	curl_due = milliseconds < 0 ? INFINITY : now + milliseconds / 1000.0;
	return 0;
}

void
request_init(void)
{
	requests = calloc(settings.concurrency, sizeof(Request));
	multi = curl_multi_init();
	if (!requests || !multi)
		abort();
	for (int i = 0; i < settings.concurrency; i++)
		TAILQ_INSERT_TAIL(&free_places, &requests[i], link);
	n_free = settings.concurrency;
	curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, socket_callback);
	curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, timer_callback);
	curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long) settings.concurrency);
}

int
request_free_places(void)
{
	return n_free;
}

bool
request_may_lease(void)
{
	return n_free > 0 && memory < MAX_MEMORY;
}

/*---- The beginning ----*/

static char *
copy_value(PGresult *result, int row, int column)
{
	char	   *copy;

	if (PQgetisnull(result, row, column))
		return NULL;
	copy = strdup(PQgetvalue(result, row, column));
	if (!copy)
		abort();
	return copy;
}

/* libcurl is about to connect: this is the address that it connects to. */
static curl_socket_t
open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
	Request    *request = user;
	const void *bytes = address->family == AF_INET ? (void *) &((struct sockaddr_in *) &address->addr)->sin_addr :
		(void *) &((struct sockaddr_in6 *) &address->addr)->sin6_addr;

	if (purpose != CURLSOCKTYPE_IPCXN || !guard_address(&address->addr))
	{
		if (address->family != AF_INET && address->family != AF_INET6)
			strcpy(request->refused, "?");
		else
			inet_ntop(address->family, bytes, request->refused, sizeof(request->refused));
		return CURL_SOCKET_BAD;
	}
	request->has_tried = true;
	return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static size_t
take_answer(char *data, size_t one, size_t length, void *user)
{
	Request    *request = user;
	size_t		keep = settings.keep_answer - request->kept_length;

	(void) one;
	request->answer_length += length;
	if (keep > length)
		keep = length;
	if (keep > 0)
	{
		request->kept = realloc(request->kept, request->kept_length + keep + 1);
		if (!request->kept)
			abort();
		memcpy(request->kept + request->kept_length, data, keep);
		request->kept_length += keep;
	}
	if (request->answer_length > settings.max_answer)
	{
		request->is_cut = true;
		return 0;				/* ends the transfer */
	}
	return length;
}

static size_t
take_header(char *data, size_t one, size_t length, void *user)
{
	Request    *request = user;

	(void) data, (void) one;
	request->header_length += length;
	return request->header_length > MAX_ANSWER_HEADERS ? 0 : length;
}

static void
add_line(Request *request, const char *name, const char *value)
{
	char		line[8400];
	struct curl_slist *lines;

	snprintf(line, sizeof(line), "%s: %s", name, value);
	lines = curl_slist_append(request->lines, line);
	if (!lines)
		abort();
	request->lines = lines;
}

/* Scheme, host and port, to be compared. */
static char *
origin_of(CURLU *url, const char *host)
{
	char	   *scheme = NULL,
			   *port = NULL,
			   *origin;

	curl_url_get(url, CURLUPART_SCHEME, &scheme, 0);
	curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT);
	if (asprintf(&origin, "%s://%s:%s", scheme, host, port) < 0)
		abort();
	curl_free(scheme);
	curl_free(port);
	return origin;
}

/*
 * Adds the headers of the sender.  After a redirect to another host or port
 * only those that cannot be secrets.
 */
static const char *
add_sender_headers(Request *request, bool is_other_origin, bool *has_type, bool *has_trace)
{
	char	   *copy = request->headers ? strdup(request->headers) : NULL;
	const char *wrong = NULL;
	int			n = 0;
	char	   *rest;

	for (char *line = copy ? strtok_r(copy, "\n", &rest) : NULL; line && !wrong; line = strtok_r(NULL, "\n", &rest))
	{
		char	   *colon = strstr(line, ": ");
		bool		is_type = strncasecmp(line, "content-type:", 13) == 0;

		wrong = ++n > MAX_HEADERS ? "there are more than 100 headers" : guard_header(line);
		if (wrong)
			break;
		*has_type |= is_type;
		*has_trace |= strncasecmp(line, "traceparent:", 12) == 0;
		if (is_other_origin && !is_type)
			continue;
		if (colon[2] == '\0')
			strcpy(colon, ";"); /* libcurl's way to write an empty header */
		struct curl_slist *lines = curl_slist_append(request->lines, line);

		if (!lines)
			abort();
		request->lines = lines;
	}
	free(copy);
	return wrong;
}

/*
 * Starts the transfer to a URL, the message's own or that of a redirect.
 * Returns NULL, or why it cannot be sent.
 */
static const char *
start(Request *request, const char *url)
{
	bool		has_type = false,
				has_trace = false;
	const char *wrong;
	char	   *origin;
	CURL	   *easy;

	curl_url_cleanup(request->parsed);
	request->parsed = curl_url();
	free(request->host);
	wrong = guard_url(request->parsed, url, &request->host);
	if (wrong)
		return wrong;
	origin = origin_of(request->parsed, request->host);
	if (!request->first_origin)
		request->first_origin = strdup(origin);

	curl_slist_free_all(request->lines);
	request->lines = NULL;
	wrong = add_sender_headers(request, strcasecmp(origin, request->first_origin) != 0, &has_type, &has_trace);
	free(origin);
	if (wrong)
		return wrong;
	if (request->body && !has_type)
		add_line(request, "Content-Type", "text/plain; charset=utf-8");
	if (request->traceparent && !has_trace)
	{
		if (strlen(request->traceparent) > 512 || strspn(request->traceparent, "0123456789abcdef-") != strlen(request->traceparent))
			return "traceparent is not valid";
		add_line(request, "traceparent", request->traceparent);
	}
	add_line(request, "webhook-id", request->message_id);
	if (request->endpoint)
	{
		char		signatures[SIGNATURES_SIZE],
					text[32];
		long long	timestamp = time(NULL);

		wrong = sign_message(request->endpoint, request->host, request->message_id, timestamp, request->body ? request->body : "", signatures,
							 &request->lacks_secret);
		if (wrong)
			return wrong;
		snprintf(text, sizeof(text), "%lld", timestamp);
		add_line(request, "webhook-timestamp", text);
		add_line(request, "webhook-signature", signatures);
	}
	/* no question in advance, which some servers never answer */
	add_line(request, "Expect", "");

	if (!request->easy)
		request->easy = curl_easy_init();
	easy = request->easy;
	if (!easy)
		abort();
	curl_easy_reset(easy);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, request);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, request->error);
	curl_easy_setopt(easy, CURLOPT_CURLU, request->parsed);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, request->lines);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "delay-wheel-http/" VERSION);
	if (request->body)
	{
		curl_easy_setopt(easy, CURLOPT_POST, 1L);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t) strlen(request->body));
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body);
	}
	else if (strcmp(request->method, "POST") == 0 || strcmp(request->method, "PUT") == 0 || strcmp(request->method, "PATCH") == 0)
	{
		curl_easy_setopt(easy, CURLOPT_POST, 1L);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, 0L);
	}
	else if (strcmp(request->method, "HEAD") == 0)
		curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);

	/* Only http, to where the URL says, and to checked addresses. */
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, settings.https_only ? "https" : "http,https");
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L); /* we do it, with the checks of guard_url() */
	curl_easy_setopt(easy, CURLOPT_PROXY, "");	/* also if the environment has one */
	curl_easy_setopt(easy, CURLOPT_NETRC, (long) CURL_NETRC_IGNORED);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, request);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long) CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
	curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
	curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long) CURL_SSLVERSION_TLSv1_2);
	if (settings.ca_file)
		curl_easy_setopt(easy, CURLOPT_CAINFO, settings.ca_file);

	/* Nobody can keep us busy, or fill our memory. */
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	/* a name server that does not answer: otherwise the end of the transfer would wait for its thread */
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, (long) settings.connect_timeout);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long) fmax(1, (request->deadline - now) * 1000));
	curl_easy_setopt(easy, CURLOPT_MAXLIFETIME_CONN, 300L); /* then the name is looked up again */
	curl_easy_setopt(easy, CURLOPT_HTTP_CONTENT_DECODING, 0L);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_answer);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, request);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, request);

	request->error[0] = request->refused[0] = '\0';
	request->answer_length = request->header_length = request->kept_length = 0;
	request->is_cut = request->has_tried = false;
	if (curl_multi_add_handle(multi, easy) != CURLM_OK)
		abort();
	request->is_running = true;
	metrics.running++;
	return NULL;
}

/*---- The end ----*/

static void
stop_transfer(Request *request)
{
	if (!request->is_running)
		return;
	curl_multi_remove_handle(multi, request->easy);
	request->is_running = false;
	metrics.running--;
}

const char *
word_name(Word word)
{
	switch (word)
	{
		case WORD_DONE:
			return "done";
		case WORD_RETRY:
			return "failed";
		case WORD_GIVE_UP:
			return "given_up";
		case WORD_RELEASE:
			return "released";
		case WORD_EXTEND:
			return "extended";
		case WORD_NONE:
			break;
	}
	return "none";
}

/* Begins a line about a message; the caller adds what follows ("next"), and ends it. */
void
request_log(LogLevel level, const char *event, const Request *request, const char *error)
{
	log_begin(level, event);
	log_number("id", request->id);
	log_number("attempt", request->attempt);
	if (request->host)
		log_text("host", request->host);
	/* what is no name can be anything */
	if (request->endpoint && guard_id(request->endpoint))
		log_text("endpoint", request->endpoint);
	if (request->status)
		log_number("status", request->status);
	if (error && *error)
		log_text("error", error);
	log_seconds("seconds", (request->ended > 0 ? request->ended : now) - request->began);
}

static void
end(Request *request, Word word, int status, const char *error)
{
	request->status = status;
	request->ended = now;
	snprintf(request->reason, sizeof(request->reason), "%s", error ? error : "");
	if (request->status || word == WORD_RETRY)
	{
		metrics.responses[status / 100 % 6]++;
		metrics_observe(&metrics.duration, now - request->began);
	}
	/* whether a failed one has attempts left only the server knows: report.c logs its answer */
	if (word != WORD_RETRY)
	{
		request_log(word == WORD_DONE ? LOG_DEBUG : word == WORD_GIVE_UP ? LOG_ERROR : LOG_WARNING, word_name(word), request, error);
		log_text("next", word == WORD_RELEASE ? "again at once" : "none");
		log_end();
	}
	report_word(request, word);
}

/*
 * Makes the beginning of the answer a text that every database takes: valid
 * UTF-8 without NUL.  Other bytes become "?".
 */
static void
make_text(char *text, int length)
{
	unsigned char *c = (unsigned char *) text,
			   *last = c + length;

	while (c < last)
	{
		int			more = *c < 0x80 ? 0 : *c >= 0xc2 && *c < 0xe0 ? 1 : (*c & 0xf0) == 0xe0 ? 2 : *c >= 0xf0 && *c < 0xf5 ? 3 : -1;
		bool		is_good = *c != '\0' && more >= 0 && c + more < last;

		for (int i = 1; is_good && i <= more; i++)
			is_good = (c[i] & 0xc0) == 0x80;
		/* overlong forms, surrogates, and beyond U+10FFFF */
		if (is_good && more >= 2)
			is_good = !(*c == 0xe0 && c[1] < 0xa0) && !(*c == 0xed && c[1] >= 0xa0) &&
				!(*c == 0xf0 && c[1] < 0x90) && !(*c == 0xf4 && c[1] >= 0x90);
		if (is_good)
			c += more + 1;
		else
			*c++ = '?';
	}
	*c = '\0';
}

/*
 * The pause that the server demands, but never less than a second that doubles
 * with each attempt: "Retry-After: 1" for an hour must not use up all attempts.
 */
static double
pause_after(const Request *request)
{
	curl_off_t	seconds = 0;

	curl_easy_getinfo(request->easy, CURLINFO_RETRY_AFTER, &seconds);
	if (seconds <= 0 || settings.max_retry_after == 0)
		return NAN;
	double		pause = fmax((double) seconds, pow(2, fmin(request->attempt - 1, 12)));

	/* a little later, so that not all come back at once */
	return fmin(pause, settings.max_retry_after) * (1 + drand48() / 10);
}

static void
answered(Request *request, int status)
{
	bool		is_redirect = status == 301 || status == 302 || status == 307 || status == 308;
	char	   *url = NULL;
	char		error[64];

	/* The URL of an answer's Location goes through the same checks as a message's. */
	if (is_redirect && request->redirects < settings.redirects &&
		curl_easy_getinfo(request->easy, CURLINFO_REDIRECT_URL, &url) == CURLE_OK && url)
	{
		char	   *copy = strdup(url);
		char	   *scheme = NULL;
		const char *wrong;

		request->redirects++;
		curl_easy_getinfo(request->easy, CURLINFO_SCHEME, &scheme);
		wrong = scheme && strcasecmp(scheme, "https") == 0 && strncasecmp(copy, "https:", 6) != 0 ?
			"a redirect leaves https" : start(request, copy);
		free(copy);
		if (!wrong)
			return;
		request->text = strdup(wrong);
		end(request, request->lacks_secret ? WORD_RETRY : WORD_GIVE_UP, status, wrong);
		return;
	}

	make_text(request->kept_length ? request->kept : (request->kept = realloc(request->kept, 1)), request->kept_length);
	if (request->is_cut)
		metrics.cut++;
	if (status >= 200 && status < 300)
	{
		request->text = strdup(request->kept);
		end(request, WORD_DONE, status, NULL);
		return;
	}
	snprintf(error, sizeof(error), "HTTP %d", status);
	request->text = malloc(strlen(error) + request->kept_length + 3);
	if (!request->text)
		abort();
	sprintf(request->text, request->kept_length ? "%s: %s" : "%s%s", error, request->kept_length ? request->kept : "");
	if (status == 408 || status == 425 || status == 429 || status >= 500)
	{
		request->retry_in = pause_after(request);
		end(request, WORD_RETRY, status, error);
	}
	else
		end(request, WORD_GIVE_UP, status, error);
}

static void
transfer_ended(Request *request, CURLcode code)
{
	long		status = 0;
	char		error[CURL_ERROR_SIZE + 128];

	stop_transfer(request);
	curl_easy_getinfo(request->easy, CURLINFO_RESPONSE_CODE, &status);
	/* If we have cut off the answer, its status counts all the same. */
	if (status >= 200 && (code == CURLE_OK || (code == CURLE_WRITE_ERROR && request->is_cut)))
	{
		answered(request, (int) status);
		return;
	}

	if (request->refused[0])
	{
		metrics.refused++;
		snprintf(error, sizeof(error), "%s has the address %s, which is not allowed", request->host, request->refused);
	}
	else if (code == CURLE_WRITE_ERROR || code == CURLE_OUT_OF_MEMORY)
		snprintf(error, sizeof(error), "the headers of the answer are too long");
	else
		snprintf(error, sizeof(error), "%s", request->error[0] ? request->error : curl_easy_strerror(code));
	make_text(error, (int) strlen(error));
	request->text = strdup(error);
	/* if one of its addresses may be reached, it may answer later */
	end(request, request->refused[0] && !request->has_tried ? WORD_GIVE_UP : WORD_RETRY, 0, error);
}

static void
collect(void)
{
	CURLMsg    *message;
	int			left;

	while ((message = curl_multi_info_read(multi, &left)))
	{
		Request    *request;
		CURLcode	code = message->data.result;

		if (message->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &request);
		transfer_ended(request, code);
	}
}

static size_t
length_of(const Request *request)
{
	return (request->body ? strlen(request->body) : 0) + (request->headers ? strlen(request->headers) : 0);
}

/*
 * Begins the request of a row of delay_lease().  The caller has leased no more
 * than there are free places.
 */
void
request_begin(PGresult *result, int row, double lease_end, bool is_too_late)
{
	Request    *request = TAILQ_FIRST(&free_places);
	const char *wrong = NULL;
	char	   *timeout;
	double		seconds;

	TAILQ_REMOVE(&free_places, request, link);
	n_free--;
	metrics.taken++;
	request->id = strtoll(PQgetvalue(result, row, 0), NULL, 10);
	request->token = strtoll(PQgetvalue(result, row, 1), NULL, 10);
	request->attempt = atoi(PQgetvalue(result, row, 2));
	request->message_id = copy_value(result, row, 4);
	request->method = copy_value(result, row, 5);
	request->url = copy_value(result, row, 6);
	request->body = copy_value(result, row, 7);
	request->endpoint = copy_value(result, row, 8);
	timeout = copy_value(result, row, 9);
	request->traceparent = copy_value(result, row, 10);
	request->headers = copy_value(result, row, 11);
	memory += length_of(request);
	request->lease_end = lease_end;
	request->extend_at = lease_end - settings.lease * 2 / 3.0;
	request->began = now;
	request->retry_in = NAN;
	request->word = request->last_word = WORD_NONE;

	if (request->attempt == 1)
		metrics_observe(&metrics.lateness, strtod(PQgetvalue(result, row, 3), NULL));
	seconds = timeout ? strtod(timeout, NULL) : 0;
	free(timeout);
	/* not shorter than a second: a look-up that is given up goes on in its thread */
	request->deadline = now + (seconds > 0 ? fmax(1, fmin(seconds, settings.max_timeout)) : settings.timeout);
	if (is_too_late)
	{
		end(request, WORD_RELEASE, 0, "there was no time left to begin");
		return;
	}
	if (!request->url || !request->method || !guard_method(request->method))
		wrong = "the message has no URL, or no method that is allowed";
	else if (!request->message_id || !guard_id(request->message_id))
		wrong = "the message has no valid id";
	else if (request->body && strcmp(request->method, "HEAD") == 0)
		wrong = "HEAD cannot have a body";
	else
		wrong = start(request, request->url);
	if (wrong)
	{
		request->text = strdup(wrong);
		end(request, request->lacks_secret ? WORD_RETRY : WORD_GIVE_UP, 0, wrong);
		return;
	}
	check_due = fmin(check_due, request->extend_at);
}

/* The server has answered delay_extend(). */
void
request_extended(Request *request, double lease_end, bool is_still_ours)
{
	if (is_still_ours)
	{
		metrics.extended++;
		request->lease_end = lease_end;
		request->extend_at = lease_end - settings.lease * 2 / 3.0;
		check_due = fmin(check_due, request->extend_at);
		return;
	}
	metrics.lost++;
	stop_transfer(request);
	request_log(LOG_WARNING, "lost", request, "the lease is over: cancelled, or another receiver has the message");
	log_text("next", "the request is stopped");
	log_end();
	request_finished(request);
}

/* The last word has been answered: the place is free. */
void
request_finished(Request *request)
{
	char	  **const texts[] = {&request->method, &request->url, &request->body, &request->headers, &request->message_id,
		&request->endpoint, &request->traceparent, &request->host, &request->first_origin, &request->kept, &request->text};
	CURL	   *easy = request->easy;

	memory -= length_of(request);
	curl_slist_free_all(request->lines);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		free(*texts[i]);
	if (easy)
		curl_easy_reset(easy);
	curl_url_cleanup(request->parsed);
	memset(request, 0, sizeof(Request));
	request->easy = easy;
	metrics.taken--;
	n_free++;
	/* the one used last comes first: few are in use while there is little to do */
	TAILQ_INSERT_HEAD(&free_places, request, link);
}

void
request_tick(void)
{
	int			running;

	if (now < curl_due)
		return;
	curl_due = INFINITY;
	curl_multi_socket_action(multi, CURL_SOCKET_TIMEOUT, 0, &running);
	collect();
}

/* Extends leases in time, and stops requests whose leases are about to end. */
void
request_check_leases(void)
{
	double		margin = fmin(5, settings.lease / 10.0);

	if (now < check_due)
		return;
	check_due = INFINITY;
	for (int i = 0; i < settings.concurrency; i++)
	{
		Request    *request = &requests[i];

		if (!request->is_running)
			continue;
		if (now >= request->lease_end - margin)
		{
			/* Somebody else will have the message soon, so nobody may be at work here. */
			metrics.lost++;
			stop_transfer(request);
			end(request, WORD_RELEASE, 0, "the lease could not be extended");
			continue;
		}
		if (now >= request->extend_at)
		{
			request->extend_at = INFINITY;
			report_word(request, WORD_EXTEND);
		}
		check_due = fmin(check_due, fmin(request->extend_at, request->lease_end - margin));
	}
}

double
request_next(void)
{
	return fmin(curl_due, metrics.running > 0 ? check_due : INFINITY);
}

/* The time for running requests after a SIGTERM has passed. */
void
request_stop_all(void)
{
	for (int i = 0; i < settings.concurrency; i++)
	{
		if (!requests[i].is_running)
			continue;
		stop_transfer(&requests[i]);
		end(&requests[i], WORD_RELEASE, 0, "stopped");
	}
}

/* The program ends, and the server does not know what became of these messages. */
void
request_log_unreported(void)
{
	for (int i = 0; i < settings.concurrency; i++)
	{
		const Request *request = &requests[i];

		if (request->id == 0)
			continue;
		request_log(LOG_ERROR, "not_reported", request, request->reason);
		log_text("report", word_name(request->last_word != WORD_NONE ? request->last_word : request->word));
		log_text("next", "the message comes again when its lease ends");
		log_end();
	}
}
