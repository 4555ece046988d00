/*-------------------------------------------------------------------------
 *
 * problem.h
 *	  The last problem of a database, for the view status.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_PROBLEM_H
#define DW_PROBLEM_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "storage/spin.h"

typedef struct DwProblem
{
	slock_t		lock;
	TimestampTz at;
	char		text[256];		/* empty if no problem has occurred */
	int			plain;			/* length of the part that quotes no error message */
} DwProblem;

extern void dw_problem_init(DwProblem *problem);
extern void dw_problem(DwProblem *problem, const char *text);
extern void dw_problem_quoting(DwProblem *problem, const char *text, const char *quoted);
extern TimestampTz dw_problem_read(DwProblem *problem, char *text, Size size, bool all);

#endif							/* DW_PROBLEM_H */
