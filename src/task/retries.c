/*-------------------------------------------------------------------------
 *
 * retries.c
 *	  Errors after which a task is tried again, and the pauses between its attempts.
 *
 * Run by executors, sessions and the sweeper when an attempt has failed.  A task that succeeds does
 * not need these options.  So a queue's options for retries are not in shared memory, but only in
 * the process's copy of the table of queues.  Plain SQL may have written any values.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/array.h"

#include "../rows/catalog.h"
#include "../rows/more.h"
#include "queues.h"
#include "task.h"

/* Default limit for the growing pause, in us.  A longer retry_delay stays unchanged. */
#define MAX_PAUSE		USECS_PER_HOUR

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
		retry->backoff = dw_backoff_named(text);
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

/* Returns the pause after this number of failed attempts, at most the longest pause. */
static int64
grow(DwBackoff backoff, int64 retry_delay, int failed, int64 longest)
{
	int64		pause = retry_delay;

	switch (backoff)
	{
		case DW_FIXED:
			break;
		case DW_LINEAR:
			return pause > longest / failed ? longest : pause * failed;
		case DW_EXPONENTIAL:
			for (int i = 1; i < failed && pause > 0 && pause < longest; i++)
				pause = pause > longest / 2 ? longest : pause * 2;
			break;
	}
	return pause;
}

/*
 * Returns the pause of a task after this number (at least 1) of failed attempts, in us, without the
 * jitter.  retry_delay: the value of the task, or of its queue.
 */
int64
dw_retry_pause(const DwRetry *retry, int64 retry_delay, int failed)
{
	int64		longest = retry->max_delay > 0 ? retry->max_delay : Max(retry_delay, MAX_PAUSE);

	return Min(grow(retry->backoff, retry_delay, Max(failed, 1), longest), longest);
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
