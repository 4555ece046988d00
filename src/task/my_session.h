/*-------------------------------------------------------------------------
 *
 * my_session.h
 *	  What a process knows of itself.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_MY_SESSION_H
#define DW_MY_SESSION_H

#include "postgres.h"

#include "../shmem/shared.h"

/* Id of the task that delay_run() or delay_run_due() is running in this session, else 0. */
extern int64 dw_run_now_id;
extern Oid	dw_run_now_owner;

/* Due time that delay_run_due() has reached; DT_NOBEGIN while that function is not running. */
extern TimestampTz dw_run_now_clock;

/* True if the batch that this executor is running must take no more tasks. */
extern bool dw_batch_is_closed;

extern DwDatabase *dw_my_database(void);
extern DwDatabase *dw_my_pinned_database(void);
extern DwDatabase *dw_my_database_find(void);
extern void dw_my_database_unpin(void);
extern void dw_warn_no_place(void);
extern void dw_warn_not_served(DwDatabase *db);
extern bool dw_executor_runs_here(int64 id);
extern Oid	dw_owner_of_task_here(int64 id);
extern TimestampTz dw_time_reached(void);
extern void dw_batch_close(void);

#endif							/* DW_MY_SESSION_H */
