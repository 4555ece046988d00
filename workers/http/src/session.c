/*-------------------------------------------------------------------------
 *
 * session.c
 *	  A connection to the database that never blocks, and that comes back by
 *	  itself: after a restart, a failover, a cut network, a terminated backend.
 *
 *	  OFF -> CONNECTING -> CHECKING -> READY <-> BUSY;  a failure leads to OFF
 *
 * CHECKING: a standby is no server for us, since nothing becomes due there.
 *
 * A server that does not answer at all is noticed by the deadline of the
 * statement, and by keepalives of TCP while a session waits.
 *
 *-------------------------------------------------------------------------
 */
#include "session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "log.h"
#include "loop.h"

#define CONNECT_PATIENCE 5.0

static void on_socket(void *owner, uint32_t events);

/* The server's notices are no lines of our log. */
static void
take_notice(void *owner, const PGresult *notice)
{
	Session    *session = owner;

	if (session->on_notice)
		session->on_notice(notice);
}

/* Which server, as whom; the password is nowhere. */
static void
log_server(const Session *session)
{
	const char *const values[][2] = {{"server", PQhost(session->conn)}, {"port", PQport(session->conn)},
	{"database", PQdb(session->conn)}, {"user", PQuser(session->conn)}};

	log_text("session", session->name);
	for (int i = 0; i < 4; i++)
		log_text(values[i][0], values[i][1] ? values[i][1] : "");
}

/* Pause before the n-th connect of an episode: 0, 50 ms, doubling; a random part of it. */
static double
pause_before(int failures, double longest)
{
	double		pause = failures <= 1 ? 0 : 0.05 * pow(2, fmin(failures - 2, 20));

	return fmin(pause, longest) * (0.5 + drand48() / 2);
}

/* Did the server refuse to let us in (class 28)?  Its text may be in any language. */
static bool
is_refused(Session *session, const char *error)
{
	const char *state = error ? strstr(error, ":  28") : NULL;

	return session->state == SESSION_CONNECTING && session->conn &&
		(PQconnectionNeedsPassword(session->conn) || (state && strlen(state) > 8 && state[8] == ':'));
}

static void
drop(Session *session)
{
	loop_forget(session->fd);
	session->fd = -1;
	PQfinish(session->conn);
	session->conn = NULL;
	session->deadline = INFINITY;
}

/*
 * Ends the session, which comes back after a pause.  While nobody answers the
 * pause is short, since we have to be there within a second after the server
 * is.  A server that answers with an error (no such queue, no right) gets more
 * peace, and so does one that refuses the role or its password.
 */
void
session_fail(Session *session, const char *error, bool server_answers)
{
	char		text[sizeof(session->last_error)];
	double		longest = server_answers ? 10 : is_refused(session, error) ? 5 : 0.5;

	char	   *rest;
	char		next[64];

	/*
	 * Of a connect all lines count: each is about one address.  Of a statement
	 * only the first, since its context can show our parameters.
	 */
	snprintf(text, sizeof(text), "%s", error && *error ? error : "connection lost");
	rest = session->state == SESSION_CONNECTING ? strstr(text, "\nLOCATION:") : strchr(text, '\n');
	if (rest)
		*rest = '\0';
	rest = strrchr(text, '\n');
	if (rest && !rest[1])
		*rest = '\0';
	/* one line for each kind of error of an episode */
	if (strcmp(text, session->last_error) != 0)
	{
		log_begin(LOG_WARNING, "disconnected");
		log_server(session);
		log_text("error", text);
		snprintf(next, sizeof(next), "tried again, at least every %g s", longest);
		log_text("next", next);
		log_end();
		strcpy(session->last_error, text);
	}
	drop(session);
	session->state = SESSION_OFF;
	session->failures++;
	session->server_answered = server_answers;
	session->retry_at = now + pause_before(session->failures, longest);
	session->on_lost();
}

void
session_close(Session *session)
{
	if (session->conn)
		drop(session);
	session->state = SESSION_CLOSED;
}

static void
watch(Session *session, uint32_t events)
{
	int			fd = PQsocket(session->conn);

	/* the next host of several has another socket */
	if (fd != session->fd)
		loop_forget(session->fd);
	session->fd = fd;
	loop_watch(fd, events, on_socket, session);
}

void
session_open(Session *session)
{
	const char *const keys[] = {"keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout",
	"client_encoding", "fallback_application_name", "dbname", NULL};
	const char *const values[] = {"10", "1", "10", "20000", "UTF8", "delay-wheel-http", session->conninfo, NULL};

	session->fd = -1;
	session->state = SESSION_CONNECTING;
	session->deadline = now + CONNECT_PATIENCE;
	/* dbname is last, so that the user's settings win */
	session->conn = PQconnectStartParams(keys, values, 1);
	if (!session->conn)
		abort();
	PQsetNoticeReceiver(session->conn, take_notice, session);
	PQsetErrorVerbosity(session->conn, PQERRORS_VERBOSE);	/* with the SQLSTATE */
	if (PQstatus(session->conn) == CONNECTION_BAD)
	{
		session_fail(session, PQerrorMessage(session->conn), false);
		return;
	}
	watch(session, EPOLLOUT);
}

static void
end_episode(Session *session)
{
	if (session->server_answered)
		log_event(LOG_INFO, "recovered", "session", session->name);
	session->failures = 0;
	session->last_error[0] = '\0';
	session->server_answered = false;
}

static void
flush(Session *session)
{
	int			left = PQflush(session->conn);

	if (left < 0)
		session_fail(session, PQerrorMessage(session->conn), false);
	else
		watch(session, left > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Sends a statement to a session that is ready; all values are texts. */
void
session_send(Session *session, const char *sql, int n, const char *const *values, double patience)
{
	session->state = SESSION_BUSY;
	session->deadline = now + patience;
	if (PQsendQueryParams(session->conn, sql, n, NULL, values, NULL, NULL, 0))
		flush(session);
	else
		session_fail(session, PQerrorMessage(session->conn), false);
}

static void
go_on_connecting(Session *session)
{
	switch (PQconnectPoll(session->conn))
	{
		case PGRES_POLLING_READING:
			watch(session, EPOLLIN);
			return;
		case PGRES_POLLING_WRITING:
			watch(session, EPOLLOUT);
			return;
		case PGRES_POLLING_OK:
			PQsetnonblocking(session->conn, 1);
			PQsetErrorVerbosity(session->conn, PQERRORS_DEFAULT);
			session_send(session, "SELECT pg_is_in_recovery()", 0, NULL, CONNECT_PATIENCE);
			if (session->state == SESSION_BUSY)
				session->state = SESSION_CHECKING;
			return;
		default:
			session_fail(session, PQerrorMessage(session->conn), false);
	}
}

static void
check(Session *session, PGresult *result)
{
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		session_fail(session, PQresultErrorMessage(result), false);
	else if (PQgetvalue(result, 0, 0)[0] == 't')
		session_fail(session, "the server is a standby", false);
	else
	{
		session->connects++;
		log_begin(session->server_answered ? LOG_DEBUG : LOG_INFO, "connected");
		log_server(session);
		log_number("pid", PQbackendPID(session->conn));
		log_end();
		/* after an error of a statement only its success ends the episode */
		if (!session->server_answered)
			end_episode(session);
	}
}

static void
on_socket(void *owner, uint32_t events)
{
	Session    *session = owner;

	if (session->state == SESSION_CONNECTING)
	{
		go_on_connecting(session);
		return;
	}
	if (!session->conn)
		return;
	if (events & EPOLLOUT)
		flush(session);
	if (!session->conn)
		return;

	/*
	 * What has come before the end of the connection is read first: it may be
	 * the answer.
	 */
	bool		is_over = !PQconsumeInput(session->conn);

	while ((session->state == SESSION_BUSY || session->state == SESSION_CHECKING) && !PQisBusy(session->conn))
	{
		PGresult   *result = PQgetResult(session->conn);

		if (!result)
		{
			session->state = SESSION_READY;
			session->deadline = INFINITY;
		}
		else if (session->state == SESSION_CHECKING)
			check(session, result);
		else if (PQstatus(session->conn) != CONNECTION_BAD)
		{
			if (PQresultStatus(result) != PGRES_FATAL_ERROR)
				end_episode(session);
			session->on_result(result);
		}
		PQclear(result);
	}
	if (session->conn && (is_over || PQstatus(session->conn) == CONNECTION_BAD))
		session_fail(session, PQerrorMessage(session->conn), false);
}

/* Connects again, or loses patience, if it is time. */
void
session_tick(Session *session)
{
	if (session->state == SESSION_OFF && now >= session->retry_at)
		session_open(session);
	else if (now >= session->deadline && session->conn)
		session_fail(session, "the server does not answer", false);
}

/* When session_tick() has something to do. */
double
session_next(const Session *session)
{
	return session->state == SESSION_OFF ? session->retry_at : session->state == SESSION_CLOSED ? INFINITY : session->deadline;
}
