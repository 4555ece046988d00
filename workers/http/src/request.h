#ifndef REQUEST_H
#define REQUEST_H

#include <curl/curl.h>
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "log.h"

/* What the server is told of a leased message. */
typedef enum Word
{
	WORD_NONE = '-',
	WORD_DONE = 'd',
	WORD_RETRY = 'f',
	WORD_GIVE_UP = 'g',
	WORD_RELEASE = 'r',
	WORD_EXTEND = 'e',
} Word;

/*
 * A place for a leased message, from the lease until its last word has been
 * answered.
 */
typedef struct Request
{
	TAILQ_ENTRY(Request) link;	/* in the free places, or in the words to send */

	/* the message */
	int64_t		id;
	int64_t		token;
	int			attempt;
	char	   *method;
	char	   *url;
	char	   *body;			/* NULL: none */
	char	   *headers;		/* a line for each */
	char	   *message_id;		/* "webhook-id" */
	char	   *endpoint;		/* NULL: not signed */
	char	   *traceparent;

	/* its lease, by our clock, counted from before it was asked for */
	double		lease_end;
	double		extend_at;

	/* the transfer */
	bool		is_running;
	CURL	   *easy;
	CURLU	   *parsed;
	char	   *host;
	char	   *first_origin;	/* scheme, host and port of the message's own URL */
	struct curl_slist *lines;
	double		began;
	double		deadline;
	int			redirects;
	char		error[CURL_ERROR_SIZE];
	char		refused[64];	/* address to which we did not connect */
	bool		has_tried;		/* another address */
	bool		lacks_secret;	/* for its endpoint */
	long long	answer_length;
	long long	header_length;
	bool		is_cut;			/* the answer was longer than we read */
	char	   *kept;			/* its beginning */
	int			kept_length;

	/* its word, see report.c */
	Word		word;			/* in the list of words, or in the statement that is on its way */
	bool		is_sent;		/* in that statement */
	Word		last_word;		/* waits for an extension that is on its way */
	int			status;
	char	   *text;			/* the answer's beginning, or the error */
	char		reason[CURL_ERROR_SIZE + 128];	/* the error without the answer, for the log */
	char		next[96];		/* what the server does after a failure; empty: not known */
	double		ended;			/* 0: it runs */
	double		retry_in;		/* NAN: the queue's pause */
	int			tries;			/* that failed, without the others */
	bool		is_textless;
	double		not_before;
	bool		is_repeated;	/* an earlier statement may have had it */
} Request;

extern void request_init(void);
extern int	request_free_places(void);
extern bool request_may_lease(void);
extern void request_begin(PGresult *result, int row, double lease_end, bool is_too_late);
extern void request_extended(Request *request, double lease_end, bool is_still_ours);
extern void request_finished(Request *request);
extern void request_check_leases(void);
extern void request_tick(void);
extern double request_next(void);
extern void request_stop_all(void);
extern void request_log(LogLevel level, const char *event, const Request *request, const char *error);
extern void request_log_unreported(void);
extern const char *word_name(Word word);

/* columns of request_begin()'s result */
#define REQUEST_COLUMNS \
	"id, token, attempt, extract(epoch FROM clock_timestamp() - due), payload ->> 'id', payload ->> 'method', payload ->> 'url', " \
	"payload ->> 'body', payload ->> 'endpoint', payload ->> 'timeout', headers ->> 'traceparent', " \
	/* a line feed in a value becomes a carriage return, which is refused: lines stay lines */ \
	"CASE WHEN jsonb_typeof(payload -> 'headers') = 'object' THEN " \
	"(SELECT string_agg(translate(key || ': ' || coalesce(value, ''), E'\\n', E'\\r'), E'\\n') FROM jsonb_each_text(payload -> 'headers')) END"

#endif
