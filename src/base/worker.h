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
extern void dw_worker_begin(void);
extern bool dw_worker_interrupts(void);
extern void dw_worker_activity(BackendState state, const char *text);
extern int64 dw_private_memory(void);
extern bool dw_worker_terminated(void);
extern int64 dw_worker_clock_set_back(void);
extern DwAccess dw_session_access(Oid owner);

#endif							/* DW_WORKER_H */
