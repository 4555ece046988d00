/*-------------------------------------------------------------------------
 *
 * executor.h
 *	  Declarations shared by the files of the executor.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_EXECUTOR_H
#define DW_EXECUTOR_H

#include "postgres.h"

#include "../base/wing.h"
#include "../ending/ending.h"
#include "../shmem/groups.h"

extern void dw_executor_install(void);
extern PGDLLEXPORT void dw_executor_main(Datum place);

/*---- autonomous.c: tasks whose statement cannot run in a transaction block ----*/

/* A task with a mode that an executor runs.  Lives longer than all transactions of the run. */
typedef struct DwAutonomous
{
	DwMode		mode;			/* DW_IN_TRANSACTION before its run begins */
	Oid			table;			/* OID of delay_wheel_data.task at the claim: the task may drop and
								 * create the extension */
	HeapTuple	row;			/* copy of the task's row, without TOAST pointers */
	TimestampTz begun_at;		/* time of the record for an unknown end */
} DwAutonomous;
extern void dw_autonomous_begin(DwExecutor *me, DwClaim *claim, DwMode mode, DwAutonomous *task);
extern DwSpiResult dw_autonomous_run(const DwClaim *claim, const char *sql);
extern bool dw_autonomous_reclaim(DwDatabase *db, DwExecutor *me, const DwAutonomous *task,
								  DwClaim *claim);
extern void dw_autonomous_undone(DwDatabase *db, DwExecutor *me, const DwAutonomous *task);
extern void dw_autonomous_end(DwDatabase *db, DwExecutor *me);
extern bool dw_autonomous_is_lost(DwExecutor *me);

/*---- batch.c: several tasks of a lane in one transaction ----*/

extern bool dw_batches_allowed(void);
extern void dw_batch_begin(DwDatabase *db, DwExecutor *me);
extern void dw_batch_expect_end(void);
extern void dw_batch_end(DwDatabase *db, DwExecutor *me);
extern bool dw_run_batch(DwDatabase *db, DwExecutor *me);

/* group_order.c: the first task of an ordered group */

extern bool dw_group_order_keeps(DwDatabase *db, DwExecutor *me);
extern void dw_group_order_waits(DwDatabase *db, const DwExecutor *me);

/*---- run_task.c: claiming and running one task ----*/

extern void dw_run_task(DwDatabase *db, DwExecutor *me);
extern void dw_fail_task(DwDatabase *db, DwExecutor *me, ErrorData *error);
extern DwSpiResult dw_run_sql(const DwClaim *claim, const char *sql);
extern void dw_task_clean(bool used_temp);

/*---- settle.c: settling a run: recording its outcome, or putting its task back ----*/

/* One run of a task, and its outcome.  The executor that runs the task fills it in. */
typedef struct DwRun
{
	DwEntry		entry;
	DwOutcome	outcome;		/* dw_settle() changes the outcome of a task that is put back */
	bool		was_run;		/* counts as an attempt: the SQL began here, or has ended an executor */
	int			attempts;		/* number of earlier attempts */
	TimestampTz started;		/* time of the claim */
	DwSpiResult result;			/* valid if the outcome is DW_DONE */
	ErrorData  *error;			/* the error of the run, or of the verdict; else NULL */
	bool		timed_out;		/* the task's timeout has caused the error */
	bool		undone;			/* other nodes of Citus took part in the failed run, and undid their part */
} DwRun;

extern bool dw_is_to_be_run(DwRun *run, const DwClaim *claim);
extern void dw_settle(DwDatabase *db, DwExecutor *me, DwRun *run, DwClaim *claim);
extern void dw_settled(DwDatabase *db, const DwRun *run);

/*---- session.c: the session of an executor, and its transactions ----*/

extern void dw_session_begin(Oid database, Oid owner, bool can_log_in);
extern bool dw_session_interrupts(void);
extern bool dw_session_is_switched(void);
extern void dw_session_start_transaction(void);
extern void dw_session_commit_transaction(void);
extern void dw_claim_begin_transaction(bool settle);
extern void dw_claim_commit_transaction(DwDatabase *db, const DwRun *runs, uint32 n);
extern void dw_settled_watch_commits(void);
extern void dw_session_finish_work(void);
extern void dw_session_set_path(const char *path, GucAction action);
extern void dw_session_clean_within(void);
extern void dw_session_clean(bool used_temp);

/*---- task_limits.c: the limits of a run: its messages in the log, and its timeout ----*/

extern void dw_task_log_install(void);
extern void dw_task_log_begin(void);
extern void dw_task_log_end(void);
extern void dw_task_log_resume(void);
extern bool dw_task_sql_runs(void);
extern ErrorData *dw_task_error(void);
extern const char *dw_logged_sql(const char *sql);

extern void dw_timeout_arm(int ms);
extern void dw_timeout_disarm(void);
extern bool dw_timeout_struck(void);
extern bool dw_timeout_ends_process(void);

#endif							/* DW_EXECUTOR_H */
