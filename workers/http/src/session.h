#ifndef SESSION_H
#define SESSION_H

#include <libpq-fe.h>
#include <stdbool.h>

typedef enum SessionState { SESSION_OFF, SESSION_CONNECTING, SESSION_CHECKING, SESSION_READY, SESSION_BUSY, SESSION_CLOSED } SessionState;

/* A connection to the database that comes back by itself. */
typedef struct Session
{
	const char *name;			/* for the log */
	const char *conninfo;
	void		(*on_result) (PGresult *result);	/* of a statement, errors included */
	void		(*on_lost) (void);	/* the session has ended, and a statement may have been cut off */
	void		(*on_notice) (const PGresult *notice);	/* NULL: they are ignored */

	SessionState state;
	PGconn	   *conn;
	int			fd;				/* the socket that the loop watches, or -1 */
	double		deadline;		/* end of the patience with a connect or statement */
	double		retry_at;
	int			failures;		/* in a row */
	bool		server_answered;	/* the last failure was an error of a statement */
	char		last_error[1024];	/* that was logged */
	long long	connects;
} Session;

extern void session_open(Session *session);
extern void session_send(Session *session, const char *sql, int n, const char *const *values, double patience);
extern void session_fail(Session *session, const char *error, bool server_answers);
extern void session_close(Session *session);
extern void session_tick(Session *session);
extern double session_next(const Session *session);

#endif
