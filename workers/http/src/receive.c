/*-------------------------------------------------------------------------
 *
 * receive.c
 *	  Waits for messages, and leases as many as there are free places.
 *
 * One session does both, in turns: delay_await() while there is nothing to do,
 * then delay_lease() until it returns less than it was asked for.  While no
 * place is free, the session does not wait: each message wakes one receiver,
 * and it would be woken for nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "receive.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "loop.h"
#include "metrics.h"
#include "report.h"
#include "request.h"
#include "session.h"
#include "settings.h"

#define MAX_BATCH 100
#define WAIT 300				/* seconds; should the network be cut unnoticed, it is noticed then */

static void on_result(PGresult *result);
static void on_lost(void);

static Session session = {.name = "wait", .on_result = on_result, .on_lost = on_lost};
static bool is_leasing;
static int	asked;
static double asked_at;
static bool may_be_more;		/* the last lease got all it had asked for */
static bool reports_first;
static bool is_stopping;
static char receiver[128];

void
receive_init(void)
{
	char		host[64] = "";

	gethostname(host, sizeof(host) - 1);
	snprintf(receiver, sizeof(receiver), "delay-wheel-http %d on %s", (int) getpid(), host);
	session.conninfo = settings.wait_connection ? settings.wait_connection : settings.connection;
	session_open(&session);
}

static void
wait_for_message(void)
{
	const char *values[2] = {settings.queue, "300 s"};

	is_leasing = false;
	session_send(&session, "CALL delay_await($1::text, $2::interval)", 2, values, WAIT + 10);
}

static void
lease(int n)
{
	char		number[16],
				length[32];
	const char *values[4] = {settings.queue, number, length, receiver};

	snprintf(number, sizeof(number), "%d", n);
	snprintf(length, sizeof(length), "%d seconds", settings.lease);
	is_leasing = true;
	asked = n;
	asked_at = now;
	session_send(&session, "SELECT " REQUEST_COLUMNS " FROM delay_lease($1::text, $2::integer, $3::interval, $4::text)", 4, values, 10);
}

/* Sends the next statement, if the session is ready and there is a free place. */
void
receive_go_on(void)
{
	int			n = request_free_places();

	if (session.state != SESSION_READY || !request_may_lease())
		return;

	/*
	 * After a restart leases may have ended whose requests are done.  If their
	 * reports come first, these requests are not made again.
	 */
	if (reports_first && !report_is_caught_up())
		return;
	reports_first = false;
	if (may_be_more)
		lease(n < MAX_BATCH ? n : MAX_BATCH);
	else
		wait_for_message();
}

static void
on_result(PGresult *result)
{
	if (PQresultStatus(result) == PGRES_FATAL_ERROR)
	{
		session_fail(&session, PQresultErrorMessage(result), true);
		return;
	}
	if (!is_leasing)
	{
		may_be_more = PQgetvalue(result, 0, 0)[0] == 't';
		return;
	}
	int			n = PQntuples(result);

	may_be_more = n == asked;
	loop_look_at_clock();
	for (int i = 0; i < n; i++)
		request_begin(result, i, asked_at + settings.lease, is_stopping || now > asked_at + settings.lease * 0.9);
}

static void
on_lost(void)
{
	reports_first = true;
}

void
receive_tick(void)
{
	session_tick(&session);
	metrics.is_connected[0] = session.state == SESSION_READY || session.state == SESSION_BUSY;
}

double
receive_next(void)
{
	return session_next(&session);
}

/*
 * Takes no further message.  Returns whether the session is closed: a lease
 * that is being answered has to be waited for, since its messages are to be
 * released.
 */
bool
receive_stop(void)
{
	is_stopping = true;
	if (session.state != SESSION_BUSY || !is_leasing)
		session_close(&session);
	return session.state == SESSION_CLOSED;
}
