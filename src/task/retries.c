/*-------------------------------------------------------------------------
 *
 * retries.c
 *	  After which errors a task is tried again, and how its pauses grow.
 *
 * Run by executors, sessions and the sweeper when an attempt has failed.  Nothing here is
 * looked at before: a task that succeeds pays nothing for it.  So what queues say of it is
 * not in shared memory, but in the process's copy of their table.
 *
 * A task has the options in its column "more", a queue in columns.  Both may have been
 * written by plain SQL: a list may name what is no SQLSTATE, which then fits no error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "../rows/catalog.h"
#include "../rows/more.h"
#include "queues.h"
#include "task.h"

/* Limit for the growing pause, in us, if there is no other; a longer retry_delay stays as it is. */
#define MAX_PAUSE		USECS_PER_HOUR

/*
 * Fills in *retry for a task of this queue whose attempt has failed, by the columns of its row
 * of delay_wheel_data.task.  The lists of errors may be a queue's, and are gone after the next look
 * at queues.
 */
void
dw_retry_read(int16 queue, const Datum *values, const bool *nulls, DwRetry *retry)
{
	const DwDeclaredQueue *declared;
	char	   *text;

	(void) dw_queue_tables_now(dw_my_database());
	declared = dw_queue_declared(queue);
	if (declared != NULL)
		*retry = declared->retry;
	else
		memset(retry, 0, sizeof(DwRetry));
	if ((text = dw_more_text(values, nulls, Anum_task_more, DW_MORE_RETRY_BACKOFF)) != NULL)
		retry->backoff = dw_backoff_named(text);
	(void) dw_more_number(values, nulls, Anum_task_more, DW_MORE_RETRY_MAX_DELAY, &retry->max_delay);
	if ((text = dw_more_text(values, nulls, Anum_task_more, DW_MORE_RETRY_ON)) != NULL)
		retry->retry_on = text;
	if ((text = dw_more_text(values, nulls, Anum_task_more, DW_MORE_GIVE_UP_ON)) != NULL)
		retry->give_up_on = text;
}

/* True if the list names the SQLSTATE or its class. */
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

/* Returns the pause after so many failed attempts, as long as it is below the longest one. */
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
 * Returns the pause of a task after so many failed attempts, at least one, in us, without
 * the jitter.  retry_delay is the task's or its queue's.
 */
int64
dw_retry_pause(const DwRetry *retry, int64 retry_delay, int failed)
{
	int64		longest = retry->max_delay > 0 ? retry->max_delay : Max(retry_delay, MAX_PAUSE);

	return Min(grow(retry->backoff, retry_delay, Max(failed, 1), longest), longest);
}

/* True if give_up_on of the task, or of its queue, lists the error. */
bool
dw_retry_gives_up(const DwRetry *retry, int sqlstate)
{
	return retry->give_up_on != NULL && is_listed(retry->give_up_on, unpack_sql_state(sqlstate));
}

/*
 * Returns why the task must not be tried again after this error, as a sentence for
 * people; NULL if it may.
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
