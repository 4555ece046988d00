/*-------------------------------------------------------------------------
 *
 * problem.c
 *	  The last problem of a database, for the view status.
 *
 * Run by our background workers, which note problems; sessions read.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "../base/clock.h"
#include "problem.h"

/* There was no problem yet. */
void
dw_problem_init(DwProblem *problem)
{
	memset(problem, 0, sizeof(DwProblem));
	SpinLockInit(&problem->lock);
}

/*
 * Keeps a text as the last problem.
 *
 * The text ends with "quoted", the message of an error.  That can contain SQL and values
 * of a task, so the view shows this part only to roles that may read these.
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

/* Keeps a text that quotes no error as the last problem. */
void
dw_problem(DwProblem *problem, const char *text)
{
	dw_problem_quoting(problem, text, "");
}

/*
 * Copies the last problem, cut to "size" bytes, and returns when it was noted.  Unless
 * "all" is true, a part that quotes an error is replaced.
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
