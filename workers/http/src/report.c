/*-------------------------------------------------------------------------
 *
 * report.c
 *	  Tells the server what became of leased messages: done, failed, released,
 *	  or that a lease has to be longer.
 *
 * All words that have gathered while the last statement was on its way go by
 * one statement.  A word stays until it has been answered:
 *
 *	- The session is lost.  Nobody knows whether the statement was committed,
 *	  so all of its words are sent again.  A word that comes twice is refused
 *	  by its token, which does no harm.
 *	- The statement fails, because of one of its words (the row is locked, the
 *	  answer's text does not fit the database's encoding).  Statements become
 *	  shorter until only that word fails; it waits, and the others go on.
 *
 *-------------------------------------------------------------------------
 */
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "loop.h"
#include "metrics.h"
#include "session.h"
#include "settings.h"

#define MAX_BATCH 500
#define PATIENCE 5.0			/* longer than a whole batch takes */

TAILQ_HEAD(Words, Request);

static void on_result(PGresult *result);
static void on_lost(void);
static void on_notice(const PGresult *notice);

static Session session = {.name = "report", .on_result = on_result, .on_lost = on_lost, .on_notice = on_notice};
static struct Words fresh = TAILQ_HEAD_INITIALIZER(fresh);
static struct Words failed = TAILQ_HEAD_INITIALIZER(failed);	/* alone; they wait for their not_before */
static Request *sent[MAX_BATCH];
static int	n_sent;
static double sent_at;
static int	limit = MAX_BATCH;	/* of words in a statement */

/*
 * Each row is one call.  The condition sets lock_timeout for this statement,
 * before the first call: a row that another session has locked must not hold
 * up the others, whose leases go on meanwhile.  client_min_messages is for
 * on_notice().
 */
static const char sql[] =
"SELECT n, CASE word"
" WHEN 'd' THEN delay_done(id, token, result => jsonb_strip_nulls(jsonb_build_object('status', status, 'answer', text)))"
" WHEN 'f' THEN delay_fail(id, token, text, retry_in => make_interval(secs => pause))"
" WHEN 'g' THEN delay_fail(id, token, text, give_up => true)"
" WHEN 'r' THEN delay_release(id, token)"
" WHEN 'e' THEN delay_extend(id, token, $7::interval) END"
" FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::int[], $5::text[], $6::float8[])"
" WITH ORDINALITY AS w (word, id, token, status, text, pause, n)"
" WHERE set_config('lock_timeout', '500ms', true) IS NOT NULL AND set_config('client_min_messages', 'log', true) IS NOT NULL";

/*---- An array, as text ----*/

typedef struct Text
{
	char	   *data;
	size_t		length;
	size_t		size;
} Text;

static Text arrays[6];

static void
add(Text *to, const char *bytes, size_t n)
{
	if (to->length + n + 1 > to->size)
	{
		to->size = (to->length + n + 1) * 2;
		to->data = realloc(to->data, to->size);
		if (!to->data)
			abort();
	}
	memcpy(to->data + to->length, bytes, n);
	to->length += n;
	to->data[to->length] = '\0';
}

/* Adds an element; NULL is null. */
static void
add_element(Text *to, const char *value)
{
	add(to, to->length == 0 ? "{" : ",", 1);
	if (!value)
	{
		add(to, "NULL", 4);
		return;
	}
	add(to, "\"", 1);
	for (const char *c = value; *c; c++)
	{
		if (*c == '"' || *c == '\\')
			add(to, "\\", 1);
		add(to, c, 1);
	}
	add(to, "\"", 1);
}

static void
add_number(Text *to, long long value)
{
	char		text[32];

	snprintf(text, sizeof(text), "%lld", value);
	add_element(to, text);
}

/*---- Words ----*/

void
report_init(void)
{
	session.conninfo = settings.connection;
	session_open(&session);
}

/* Sends this word as soon as possible. */
void
report_word(Request *request, Word word)
{
	if (request->is_sent)
	{
		/* an extension is on its way; the last word follows it */
		request->last_word = word;
		return;
	}
	/* an extension that is not sent yet is not needed any more */
	if (request->word == WORD_NONE)
		TAILQ_INSERT_TAIL(&fresh, request, link);
	request->not_before = now;
	request->word = word;
}

static void
add_to_batch(Request *request)
{
	char		pause[32];

	add_element(&arrays[0], (char[2]) {(char) request->word, '\0'});
	add_number(&arrays[1], request->id);
	add_number(&arrays[2], request->token);
	add_number(&arrays[3], request->status);
	add_element(&arrays[4], request->word == WORD_EXTEND || request->is_textless ? NULL : request->text);
	snprintf(pause, sizeof(pause), "%.3f", request->retry_in);
	add_element(&arrays[5], isnan(request->retry_in) ? NULL : pause);
	request->next[0] = '\0';
	request->is_sent = true;
	sent[n_sent++] = request;
}

/* Sends words, if there are some and no statement is on its way. */
void
report_flush(void)
{
	const char *values[7];
	char		lease[32];
	Request    *request;

	if (session.state != SESSION_READY || n_sent > 0)
		return;
	while (n_sent < limit && (request = TAILQ_FIRST(&fresh)))
	{
		TAILQ_REMOVE(&fresh, request, link);
		add_to_batch(request);
	}
	if (n_sent == 0)
	{
		TAILQ_FOREACH(request, &failed, link)
			if (request->not_before <= now)
				break;
		if (!request)
			return;
		TAILQ_REMOVE(&failed, request, link);
		add_to_batch(request);
	}
	for (int i = 0; i < 6; i++)
	{
		add(&arrays[i], "}", 1);
		values[i] = arrays[i].data;
	}
	snprintf(lease, sizeof(lease), "%d seconds", settings.lease);
	values[6] = lease;
	sent_at = now;
	session_send(&session, sql, 7, values, PATIENCE);
	for (int i = 0; i < 6; i++)
		arrays[i].length = 0;
}

static void
answered(Request *request, bool is_good)
{
	Word		word = request->word;

	request->is_sent = false;
	request->word = WORD_NONE;
	request->tries = 0;
	if (word == WORD_EXTEND && request->last_word != WORD_NONE)
	{
		report_word(request, request->last_word);
		request->last_word = WORD_NONE;
		return;
	}
	if (word == WORD_EXTEND)
	{
		request_extended(request, sent_at + settings.lease, is_good);
		return;
	}
	if (word == WORD_RETRY && is_good)
	{
		bool		is_last = strcmp(request->next, "none") == 0;

		if (is_last)
			word = WORD_GIVE_UP;
		request_log(is_last ? LOG_ERROR : LOG_WARNING, word_name(word), request, request->reason);
		log_text("next", request->next[0] ? request->next : "again, if an attempt is left");
		log_end();
	}
	metrics.requests[word]++;
	if (!is_good)
	{
		/* If the word was sent before, it may have been heard then. */
		if (!request->is_repeated)
			metrics.lost++;
		request_log(request->is_repeated ? LOG_INFO : LOG_WARNING, request->is_repeated ? "heard_before_or_lost" : "lost", request, request->reason);
		log_text("report", word_name(word));
		log_text("next", "the lease is over: cancelled, or another receiver has the message");
		log_end();
	}
	request_finished(request);
}

/*
 * delay_fail() does not return whether the message is tried again, but the server logs it
 * (doc/reference/errors.md), and client_min_messages sends us its line.  The error's text, which a
 * receiver can choose, comes after the words that are read here.
 */
static void
on_notice(const PGresult *notice)
{
	const char *text = PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY);
	const char *detail = PQresultErrorField(notice, PG_DIAG_MESSAGE_DETAIL);
	long long	id;
	int			n = 0,
				attempt,
				most;
	char		due[48];

	if (!text || sscanf(text, "delay_wheel task %lld failed%n", &id, &n) != 1 || n == 0)
		return;
	for (int i = 0; i < n_sent; i++)
	{
		if (sent[i]->id != id)
			continue;
		if (text[n] == ':')
			strcpy(sent[i]->next, "none");
		else if (detail && sscanf(detail, "This was attempt %d of %d; the next one is due at %47[^\n]", &attempt, &most, due) == 3)
			/* without the full stop */
			snprintf(sent[i]->next, sizeof(sent[i]->next), "attempt %d of %d at %.*s", attempt + 1, most, (int) strlen(due) - 1, due);
	}
}

/*
 * A word that fails alone waits, longer each time.  A text that the database
 * does not take is left out: the work is done, and must not be done again.
 */
static void
put_aside(Request *request, const char *state, const char *error)
{
	Word		word = request->word;
	bool		is_lost;
	double		pause;
	char		next[64] = "its lease has ended: the message comes again";

	request->is_sent = false;
	request->is_textless |= strncmp(state, "22", 2) == 0 || strncmp(state, "54", 2) == 0;
	request->tries++;
	if (request->last_word != WORD_NONE)
	{
		request->word = request->last_word;
		request->last_word = WORD_NONE;
	}
	is_lost = now > request->lease_end && request->tries > 3 && !request->is_running;
	pause = fmin(30, 0.05 * pow(2, fmin(request->tries, 20)));
	if (!is_lost)
		snprintf(next, sizeof(next), "reported again in %.1f s", pause);
	request_log(LOG_WARNING, is_lost ? "lost" : "report_failed", request, error);
	log_text("report", word_name(word));
	log_text("next", next);
	log_end();
	if (is_lost)
	{
		metrics.lost++;
		request_finished(request);
		return;
	}
	request->not_before = now + pause;
	TAILQ_INSERT_TAIL(&failed, request, link);
}

static void
on_result(PGresult *result)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	int			n = n_sent;

	if (PQresultStatus(result) == PGRES_TUPLES_OK)
	{
		n_sent = 0;
		limit = limit * 2 > MAX_BATCH ? MAX_BATCH : limit * 2;
		for (int i = 0; i < PQntuples(result); i++)
			answered(sent[atoi(PQgetvalue(result, i, 0)) - 1], PQgetvalue(result, i, 1)[0] == 't');
		return;
	}
	/* The server ends, or has become a standby, or this is no SQL error at all. */
	if (!state || strncmp(state, "57P", 3) == 0 || strncmp(state, "08", 2) == 0 || strcmp(state, "25006") == 0)
	{
		session_fail(&session, PQresultErrorMessage(result), false);
		return;
	}
	n_sent = 0;
	if (n == 1)
	{
		/* its context can show our parameters */
		put_aside(sent[0], state, PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
		limit = 2;
		return;
	}
	limit = n / 2;
	for (int i = n - 1; i >= 0; i--)
	{
		sent[i]->is_sent = false;
		TAILQ_INSERT_HEAD(&fresh, sent[i], link);
	}
}

static void
on_lost(void)
{
	int			n = n_sent;

	n_sent = 0;
	for (int i = n - 1; i >= 0; i--)
	{
		Request    *request = sent[i];

		request->is_sent = false;
		request->is_repeated = true;
		if (request->last_word != WORD_NONE)
		{
			request->word = request->last_word;
			request->last_word = WORD_NONE;
			request->is_repeated = false;
		}
		TAILQ_INSERT_HEAD(&fresh, request, link);
	}
}

void
report_tick(void)
{
	session_tick(&session);
	metrics.is_connected[1] = session.state == SESSION_READY || session.state == SESSION_BUSY;
	metrics.connects = session.connects;
}

double
report_next(void)
{
	double		next = session_next(&session);
	Request    *request;

	if (session.state == SESSION_READY)
		TAILQ_FOREACH(request, &failed, link)
			next = fmin(next, request->not_before);
	return next;
}

/* Has the server had all words, but for those that it does not take? */
bool
report_is_caught_up(void)
{
	return n_sent == 0 && TAILQ_EMPTY(&fresh);
}

void
report_close(void)
{
	session_close(&session);
}
