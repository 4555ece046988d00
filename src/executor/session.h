/*-------------------------------------------------------------------------
 *
 * session.h
 *	  The session of an executor: whose it is, and what is left between tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SESSION_H
#define DW_SESSION_H

#include "postgres.h"

/*
 * Connects this process as the role.  can_log_in is of interest to
 * PostgreSQL 15 and 16 only.  FATAL if it cannot connect.
 */
extern void dw_session_begin(Oid database, Oid owner, bool can_log_in);

/*
 * dw_worker_interrupts() for executors.  Returns false if the session may not be
 * like a new one any more, and must end without running another task.
 */
extern bool dw_session_interrupts(void);

/*
 * Is the process connected as somebody else, and the role by its transactions
 * only?  Then none of these may be ended by the role's SQL.
 */
extern bool dw_session_is_switched(void);

/*
 * Around each transaction that runs SQL of the role: begins one and commits
 * it.  An abort needs nothing else.
 */
extern void dw_session_start_transaction(void);
extern void dw_session_commit_transaction(void);

/*
 * What is left of a task's own work when its SQL is done: all that a commit
 * would run of it.
 */
extern void dw_session_finish_work(void);

/* Between tasks of one transaction: ends what cannot stay until its end. */
extern void dw_session_clean_within(void);

/*
 * Ends what a task may have left in the session.  What a procedural language
 * keeps, stays.
 */
extern void dw_session_clean(bool used_temp);

#endif							/* DW_SESSION_H */
