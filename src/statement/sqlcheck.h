/*-------------------------------------------------------------------------
 *
 * sqlcheck.h
 *	  What can be known to be wrong with a task's SQL when it is scheduled.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SQLCHECK_H
#define DW_SQLCHECK_H

#include "postgres.h"

/*
 * Raise an error if the text can never run as a task: bad syntax, no
 * statement at all, a statement that cannot run inside a transaction or that
 * needs a client, a parameter without an argument, an argument without a
 * parameter.  Errors show their place in the text as internal query and
 * position.
 *
 * nargs is the number of arguments that $1, $2, ... stand for; less than 0
 * means that parameters are not looked at.
 *
 * Names and types are not looked up: what they mean is decided when the task
 * runs.  Works in a memory context of its own and leaves nothing behind.
 */
extern void dw_check_sql(const text *sql, int nargs);

/*
 * The same for SQL that is run when a task has ended, given by the option of
 * that name: it may use any of so many arguments, which it is given all.
 */
extern void dw_check_follow_up(const text *sql, const char *option, int nargs);

/*
 * The same for a task that runs outside of a transaction: it is one statement,
 * which may be one that can run only so.
 */
extern void dw_check_sql_autonomous(const text *sql, int nargs);

#endif							/* DW_SQLCHECK_H */
