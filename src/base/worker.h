/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  What launcher, timers and executors have in common as processes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_WORKER_H
#define DW_WORKER_H

#include "postgres.h"

#include "utils/backend_status.h"

/* May and can sessions of a role be had in this database? */
typedef enum DwAccess
{
	DW_ACCESS_LOGIN,
	DW_ACCESS_NO_LOGIN,			/* yes, but the role itself could not log in */
	DW_ACCESS_NO_ROLE,
	DW_ACCESS_NO_CONNECT,		/* lacks CONNECT on the database */
	DW_ACCESS_CLOSED			/* the database allows no connections */
} DwAccess;

/* Sets up signals; to be called first. */
extern void dw_worker_begin(void);

/*
 * Serves what signals asked for, between pieces of work: ends this process,
 * reads the settings again (then true).  A cancel finds nothing to cancel.
 */
extern bool dw_worker_interrupts(void);

/*
 * What pg_stat_activity shows of this process, which runs no SQL: a text that
 * lasts.  Costs nothing if it is the same as before.
 */
extern void dw_worker_activity(BackendState state, const char *text);

/* The memory of this process that it shares with no other, in kB; 0: not known. */
extern int64 dw_private_memory(void);

/* Was this process told to end by another one, by SIGTERM? */
extern bool dw_worker_terminated(void);

/*
 * By how many microseconds the clock was set back since this was called before,
 * or the process began; 0 if it was not.  Times that were computed before are
 * too late then.
 */
extern int64 dw_worker_clock_set_back(void);

/*
 * To be called in a transaction, by a process that is connected to the
 * database.
 */
extern DwAccess dw_session_access(Oid owner);

#endif							/* DW_WORKER_H */
