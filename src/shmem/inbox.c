/*-------------------------------------------------------------------------
 *
 * inbox.c
 *	  The inbox of a database: hints from sessions to the timer about tasks.
 *
 * Sessions call dw_inbox_push() in commit callbacks, so this function never fails, never waits for
 * long and never allocates memory.  The timer removes the hints.  delay_wheel.inbox_size limits
 * their number.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "storage/shmem.h"

#include "../base/settings.h"
#include "parts.h"

Size
dw_inbox_bytes(void)
{
	return MAXALIGN(add_size(offsetof(DwInbox, hints), mul_size(dw_inbox_size, sizeof(DwHint))));
}

void
dw_inbox_init(DwInbox *inbox)
{
	SpinLockInit(&inbox->lock);
	inbox->head = inbox->count = 0;
}

/*
 * Puts a hint into the inbox.  Returns false if the inbox is full.
 *
 * If the inbox is at least half full, sets *crowded to true: then the caller wakes the timer at
 * once, for any due time.  Otherwise does not change *crowded.
 */
bool
dw_inbox_push(DwInbox *inbox, const DwHint *hint, bool *crowded)
{
	bool		pushed = false;

	SpinLockAcquire(&inbox->lock);
	if (inbox->count < (uint32) dw_inbox_size)
	{
		inbox->hints[(inbox->head + inbox->count) % dw_inbox_size] = *hint;
		inbox->count++;
		pushed = true;
	}
	if (inbox->count >= (uint32) dw_inbox_size / 2)
		*crowded = true;
	SpinLockRelease(&inbox->lock);
	return pushed;
}

/*
 * Takes up to max hints out of the inbox, and returns their number.  Called by the timer.
 *
 * Releases the spinlock after each 8 hints, so that committing sessions do not spin for long.
 */
uint32
dw_inbox_drain(DwInbox *inbox, DwHint *hints, uint32 max)
{
	uint32		n = 0;
	bool		empty = false;

	while (n < max && !empty)
	{
		uint32		stop = Min(max, n + 8);

		SpinLockAcquire(&inbox->lock);
		while (n < stop && inbox->count > 0)
		{
			hints[n++] = inbox->hints[inbox->head];
			inbox->head = (inbox->head + 1) % dw_inbox_size;
			inbox->count--;
		}
		empty = inbox->count == 0;
		SpinLockRelease(&inbox->lock);
	}
	return n;
}

bool
dw_inbox_is_empty(DwInbox *inbox)
{
	bool		empty;

	SpinLockAcquire(&inbox->lock);
	empty = inbox->count == 0;
	SpinLockRelease(&inbox->lock);
	return empty;
}

/*---- The last problem of a database, for the view status ----*/

/* Background workers of delay_wheel store problems, and sessions read them. */

void
dw_problem_init(DwProblem *problem)
{
	memset(problem, 0, sizeof(DwProblem));
	SpinLockInit(&problem->lock);
}

/*
 * Stores a text as the last problem.
 *
 * The text ends with "quoted", an error message.  An error message can contain SQL and values of a
 * task, so the view shows this part only to roles that may read the task.
 */
void
dw_problem_quoting(DwProblem *problem, const char *text, const char *quoted)
{
	int			plain = strlen(text) - strlen(quoted);
	int			length = pg_mbcliplen(text, strlen(text), sizeof(problem->text) - 1);
	TimestampTz now = dw_now();

	SpinLockAcquire(&problem->lock);
	memcpy(problem->text, text, length);
	problem->text[length] = '\0';
	problem->plain = plain;
	problem->at = now;
	SpinLockRelease(&problem->lock);
}

/* Stores a text that quotes no error as the last problem. */
void
dw_problem(DwProblem *problem, const char *text)
{
	dw_problem_quoting(problem, text, "");
}

/*
 * Copies the last problem, cut to "size" bytes, and returns when the problem was stored.  If "all"
 * is false, replaces the part that quotes an error.
 */
TimestampTz
dw_problem_read(DwProblem *problem, char *text, Size size, bool all)
{
	DwProblem	copy;

	SpinLockAcquire(&problem->lock);
	copy = *problem;
	SpinLockRelease(&problem->lock);
	strlcpy(text, copy.text, size);
	if (copy.plain < strlen(copy.text) && copy.plain < size && !all)
		strlcpy(text + copy.plain, "see the server's log", size - copy.plain);
	return copy.at;
}
