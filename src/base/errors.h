/*-------------------------------------------------------------------------
 *
 * errors.h
 *	  Catches errors of tasks in a form that can be stored, and raises common argument errors.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ERRORS_H
#define DW_ERRORS_H

#include "postgres.h"

/* Limit for each text (message, detail, hint, ...) of a task's error, in bytes */
#define DW_MAX_ERROR_TEXT	16384

/*
 * SQLSTATEs of tasks that failed without an error of their own SQL:
 *
 * SUPERSEDED	a newer task with the same key has taken the task's place
 * EXPIRED		the task could not begin in the time that "expires" allows
 * END_UNKNOWN	a task in mode at_most_once was begun, but its end is not known
 * CRASHED		the server crashed several times while the task ran
 * QUIT			the executor ended while it ran the task
 * LEASE_ENDED	the last lease of the message has ended without a report of the receiver
 * REPORTED		the receiver of the message has reported a failure, by delay_fail()
 * ROLLED_BACK	transactions that received the message were rolled back
 */
#define DW_ERRCODE_SUPERSEDED	MAKE_SQLSTATE('D', 'W', '0', '0', '1')
#define DW_ERRCODE_EXPIRED		MAKE_SQLSTATE('D', 'W', '0', '0', '2')
#define DW_ERRCODE_END_UNKNOWN	MAKE_SQLSTATE('D', 'W', '0', '0', '3')
#define DW_ERRCODE_CRASHED		MAKE_SQLSTATE('D', 'W', '0', '0', '4')
#define DW_ERRCODE_QUIT			MAKE_SQLSTATE('D', 'W', '0', '0', '5')
#define DW_ERRCODE_LEASE_ENDED	MAKE_SQLSTATE('D', 'W', '0', '0', '6')
#define DW_ERRCODE_REPORTED		MAKE_SQLSTATE('D', 'W', '0', '0', '7')
#define DW_ERRCODE_ROLLED_BACK	MAKE_SQLSTATE('D', 'W', '0', '0', '8')

/*
 * Begins an error context.  The caller ends the context by restoring error_context_stack from
 * callback->previous.
 */
static inline void
dw_push_context(ErrorContextCallback *callback, void (*function) (void *arg), const void *arg)
{
	callback->callback = function;
	callback->arg = unconstify(void *, arg);
	callback->previous = error_context_stack;
	error_context_stack = callback;
}

extern ErrorData *dw_take_error(void);
extern ErrorData *dw_try(void (*work) (void *), void *arg);
extern void dw_refuse_null(bool isnull, const char *what);

#endif							/* DW_ERRORS_H */
