/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  Functions for the launcher, timers, executors and sweepers as processes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_WORKER_H
#define DW_WORKER_H

#include "postgres.h"

#include "postmaster/bgworker.h"
#include "utils/backend_status.h"

/* Whether a role can have sessions in a database, and if not, why */
typedef enum DwAccess
{
	DW_ACCESS_LOGIN,			/* yes, the role can log in */
	DW_ACCESS_NO_LOGIN,			/* the role may connect, but has no LOGIN attribute */
	DW_ACCESS_NO_ROLE,			/* the role does not exist */
	DW_ACCESS_SUPERUSER,		/* tasks of superusers are switched off */
	DW_ACCESS_NO_CONNECT,		/* the role lacks CONNECT on the database */
	DW_ACCESS_CLOSED			/* the database does not exist or allows no connections */
} DwAccess;

extern void dw_worker_describe(BackgroundWorker *worker, const char *kind);
extern bool dw_worker_start(const char *kind, int32 number, const void *extra, Size size,
							BackgroundWorkerHandle **handle);
extern bool dw_worker_has_ended(BackgroundWorkerHandle *handle);
extern void dw_worker_begin(void);
extern void dw_worker_end_if_told(void);
extern bool dw_worker_interrupts(void);
extern bool dw_worker_is_signalled(void);
extern void dw_worker_activity(BackendState state, const char *text);
extern void dw_worker_progress(int64 n);
extern int64 dw_private_memory(void);
extern bool dw_worker_terminated(void);
extern int64 dw_worker_clock_set_back(void);
extern DwAccess dw_session_access(Oid owner);

#endif							/* DW_WORKER_H */
