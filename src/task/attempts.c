/*-------------------------------------------------------------------------
 *
 * attempts.c
 *	  Number and time limits of attempts, errors after which a task is tried again, and the time of
 *	  the next attempt.
 *
 * Run by executors, sessions and the sweeper, which must decide about every row.  So a value out of
 * range, which plain SQL may have written, is replaced by the nearest valid value, and raises no
 * error.
 *
 * A task that succeeds does not need its options for retries.  So these options of a queue are not
 * in shared memory, but only in the process's copy of the table of queues.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "mb/pg_wchar.h"
#include "storage/proc.h"

#include "task.h"

/*
 * A retry_delay of zero does not grow.  So after MAX_AT_ONCE failed attempts the pause is at least
 * PAUSE_AFTER us, since each attempt writes a row and a line of the log.
 */
#define MAX_AT_ONCE		100
#define PAUSE_AFTER		USECS_PER_SEC

/*
 * A task that has lost its connection to another node is run again after a second.  The pause
 * doubles up to five minutes.  After MAX_LOST such errors (about a day), the error counts as a
 * failed attempt, so that users notice the lost node.
 */
#define LOST_PAUSE		USECS_PER_SEC
#define MAX_LOST_PAUSE	(5 * USECS_PER_MINUTE)
#define MAX_LOST		300
/*
 * Citus reports a connection that is lost in the middle of a command as an internal error.  If the
 * other node is down, the next run gets a clearer error.
 */
#define MAX_LOST_VAGUE	10

/* Default limit for the growing pause, in us.  A longer retry_delay stays unchanged. */
#define MAX_PAUSE		USECS_PER_HOUR

/* Limit for the text of the last error that is kept with a pending task, in bytes. */
#define MAX_LAST_ERROR	500

/*
 * Returns the smaller value of statement_timeout and delay_wheel.default_timeout for the role, in
 * ms; zero or less if neither is set.
 */
static int
default_timeout(void)
{
	if (StatementTimeout <= 0)
		return dw_default_timeout;
	if (dw_default_timeout <= 0)
		return StatementTimeout;
	return Min(StatementTimeout, dw_default_timeout);
}

/*
 * Fills *terms with the limits of a task, by its row of delay_wheel_data.task.  Takes the
 * ready lock for a moment if the task is in a declared queue.
 */
void
dw_terms(DwDatabase *db, const DwTaskKey *key, const Datum *values, const bool *nulls,
		 DwTerms *terms)
{
	DwQueueDefaults defaults = dw_queue_defaults(db, key->queue);

	terms->max_attempts = defaults.max_attempts;
	terms->retry_delay = defaults.retry_delay;
	terms->timeout = defaults.timeout >= 0 ? defaults.timeout : default_timeout();

	if (!nulls[Anum_task_max_attempts - 1])
		terms->max_attempts = DatumGetInt16(values[Anum_task_max_attempts - 1]);
	if (!nulls[Anum_task_retry_delay - 1])
		terms->retry_delay = dw_interval_us(DatumGetIntervalP(values[Anum_task_retry_delay - 1]));
	if (!nulls[Anum_task_timeout - 1])
		terms->timeout = DatumGetInt32(values[Anum_task_timeout - 1]);
	terms->retry_delay = Max(terms->retry_delay, 0);
	terms->timeout = Max(terms->timeout, 0);
}

/*---- Retries ----*/

/*
 * Fills *retry for a task of this queue whose attempt has failed, from the columns of its row of
 * delay_wheel_data.task.  The lists of errors may belong to the queue, and so are valid only until
 * queues are read again.
 */
void
dw_retry_read(int16 queue, const Datum *values, const bool *nulls, DwRetry *retry)
{
	const DwDeclaredQueue *declared = dw_queue_now(dw_my_database(), queue);
	char	   *text;

	*retry = declared != NULL ? declared->retry : (DwRetry) {0};
	if ((text = dw_more_text(values, nulls, Anum_task_more, DW_MORE_RETRY_BACKOFF)) != NULL)
		retry->backoff = dw_backoff_named(text, false);
	(void) dw_more_number(values, nulls, Anum_task_more, DW_MORE_RETRY_MAX_DELAY, &retry->max_delay);
	if ((text = dw_more_text(values, nulls, Anum_task_more, DW_MORE_RETRY_ON)) != NULL)
		retry->retry_on = text;
	if ((text = dw_more_text(values, nulls, Anum_task_more, DW_MORE_GIVE_UP_ON)) != NULL)
		retry->give_up_on = text;
}

/* Returns true if the list names the SQLSTATE or its class. */
static bool
is_listed(const char *list, const char *sqlstate)
{
	while (*list != '\0')
	{
		size_t		length = strcspn(list, ",");

		if ((length == DW_STATE_LENGTH || length == DW_CLASS_LENGTH) &&
			strncmp(list, sqlstate, length) == 0)
			return true;
		list += length;
		list += strspn(list, ",");
	}
	return false;
}

/*
 * Returns the pause of a task after this number (at least 1) of failed attempts, in us, without the
 * jitter.  retry_delay: the value of the task, or of its queue.
 */
static int64
retry_pause(const DwRetry *retry, int64 retry_delay, int failed)
{
	int64		longest = retry->max_delay > 0 ? retry->max_delay : Max(retry_delay, MAX_PAUSE);
	int64		pause = retry_delay;

	failed = Max(failed, 1);
	if (retry->backoff == DW_LINEAR)
		pause = pause > longest / failed ? longest : pause * failed;
	else if (retry->backoff == DW_EXPONENTIAL)
		for (int i = 1; i < failed && pause > 0 && pause < longest; i++)
			pause = pause > longest / 2 ? longest : pause * 2;
	return Min(pause, longest);
}

/* Returns true if give_up_on of the task, or of its queue, lists the error. */
bool
dw_retry_gives_up(const DwRetry *retry, int sqlstate)
{
	return retry->give_up_on != NULL && is_listed(retry->give_up_on, unpack_sql_state(sqlstate));
}

/*
 * Returns why the task must not be tried again after this error, as a sentence; NULL if another
 * attempt is allowed.
 */
char *
dw_retry_refusal(const DwRetry *retry, int sqlstate)
{
	const char *state = unpack_sql_state(sqlstate);

	if (dw_retry_gives_up(retry, sqlstate))
		return psprintf("The task was not tried again, since give_up_on lists SQLSTATE %s.", state);
	if (retry->retry_on != NULL && retry->retry_on[0] != '\0' && !is_listed(retry->retry_on, state))
		return psprintf("The task was not tried again, since retry_on does not list SQLSTATE %s.", state);
	return NULL;
}

/*
 * Returns true if the error is a serialization failure or a deadlock: the same statements, repeated
 * at once, will probably succeed.
 */
bool
dw_is_transient(int sqlstate)
{
	return sqlstate == ERRCODE_T_R_SERIALIZATION_FAILURE ||
		sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED;
}

/*
 * Returns true if the error may mean that the connection to another node was refused or lost, or
 * that the other node shuts down, has crashed or is starting.  A shutdown of this node raises no
 * such error in executors: they end.
 */
bool
dw_is_lost_connection(int sqlstate)
{
	switch (sqlstate)
	{
		case ERRCODE_CONNECTION_EXCEPTION:
		case ERRCODE_CONNECTION_DOES_NOT_EXIST:
		case ERRCODE_CONNECTION_FAILURE:
		case ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION:
		case ERRCODE_ADMIN_SHUTDOWN:
		case ERRCODE_CRASH_SHUTDOWN:
		case ERRCODE_CANNOT_CONNECT_NOW:
		case ERRCODE_INTERNAL_ERROR:
			return true;
		default:
			return false;
	}
}

/* Returns the time after this pause and a random delay of up to a quarter of the pause. */
static TimestampTz
after_pause(int64 pause)
{
	int64		jitter = pg_prng_uint64_range(&pg_global_prng_state, 0, pause / 4);

	return Min(dw_time_add(dw_time_add(dw_time_reached(), pause), jitter), END_TIMESTAMP - 1);
}

/*
 * Returns when to run a task again that has lost its connection to another node; DW_NEVER if the
 * task has lost too many connections.  lost: number of lost connections, at least 1.  sqlstate: the
 * last error.
 */
TimestampTz
dw_next_connection(int64 lost, int sqlstate)
{
	int64		pause = LOST_PAUSE;

	if (lost < 1 || lost > (sqlstate == ERRCODE_INTERNAL_ERROR ? MAX_LOST_VAGUE : MAX_LOST))
		return DW_NEVER;
	for (int64 i = 1; i < lost && pause < MAX_LOST_PAUSE; i++)
		pause *= 2;
	return after_pause(Min(pause, MAX_LOST_PAUSE));
}

/*
 * Returns the due time of the next attempt of a task, after this number of failed attempts.  A
 * jitter of up to a quarter of the pause separates tasks that failed together.
 */
TimestampTz
dw_next_attempt(const DwTerms *terms, const DwRetry *retry, int failed)
{
	int64		pause = retry_pause(retry, terms->retry_delay, failed);

	if (failed >= MAX_AT_ONCE)
		pause = Max(pause, PAUSE_AFTER);
	return after_pause(pause);
}

/*
 * Stores an error in a task's row, as the error of the task's last attempt.  values and nulls are
 * the columns of delay_wheel_data.task; "more" is changed.  Raises no error.
 */
void
dw_keep_error(Datum *values, bool *nulls, const ErrorData *error)
{
	char	   *text = psprintf("%s: %s", unpack_sql_state(error->sqlerrcode),
								dw_error_message(error));

	text[pg_mbcliplen(text, strlen(text), MAX_LAST_ERROR)] = '\0';
	/* if other texts, written by plain SQL, fill the column: keep them, not the error */
	if (!dw_more_has_room(values, nulls, Anum_task_more, strlen(text)))
		return;
	dw_more_set_text(values, nulls, Anum_task_more, DW_MORE_LAST_ERROR, text);
}
