/*-------------------------------------------------------------------------
 *
 * backend.h
 *	  What the functions that sessions call have in common.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_BACKEND_H
#define DW_BACKEND_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "fmgr.h"
#include "nodes/nodes.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

#include "../ending/ending.h"
#include "../rows/lease_scan.h"
#include "../rows/task_rows.h"
#include "../shmem/groups.h"
#include "../shmem/shared.h"
#include "../task/task.h"

/*---- cursors.c: the session's cursors, and those that have received messages ----*/

extern void dw_cursors_note(void);
extern void dw_cursors_undo(SubTransactionId subid);
extern void dw_cursors_forget(void);

/*---- lease.c: the ends of leases, by a word of the receiver ----*/

extern void dw_lease_install(void);
extern bool dw_lease_fail(int64 id, int64 token, TimestampTz due, bool give_up, ErrorData *error);

/*---- message_group.c: limits and order of groups of messages ----*/

/* What becomes of a message that a session has taken. */
typedef enum DwGroupVerdict
{
	DW_GROUP_CLAIM,				/* it may be claimed; its entry may be that of another message now */
	DW_GROUP_GOES_BACK,			/* it is to be put back at the end of the call */
	DW_GROUP_WENT_BACK			/* it was put back */
} DwGroupVerdict;

extern DwGroupVerdict dw_group_verdict(DwDatabase *db, Relation rel, int16 queue, DwEntry *entry,
									   DwGroupTaken *taken, DwLeaseCounts counts);
extern DwGroupVerdict dw_group_is_locked(DwDatabase *db, const DwEntry *entry, DwGroupTaken *taken);
extern bool dw_group_is_limited(const DwTaskKey *key);

/*---- options.c: makes a task of the arguments of delay_schedule_task() ----*/

/* The arguments of delay_schedule_task(), in the order of the install script */
enum
{
	DW_ARG_SQL,
	DW_ARG_ARGS,
	DW_ARG_ARG_TYPES,
	DW_ARG_NAMED,
	DW_ARG_DELAY,
	DW_ARG_DUE,
	DW_ARG_KEY,
	DW_ARG_IF_EXISTS,
	DW_ARG_QUEUE,
	DW_ARG_TAG,
	DW_ARG_PRIORITY,
	DW_ARG_MAX_ATTEMPTS,
	DW_ARG_RETRY_DELAY,
	DW_ARG_TIMEOUT,
	DW_ARG_EXPIRES,
	DW_ARG_SKIP_AFTER,
	DW_ARG_NOTIFY,
	DW_ARG_ON_SUCCESS,
	DW_ARG_ON_FAILURE,
	DW_ARG_MODE,
	DW_ARG_RETRY_BACKOFF,
	DW_ARG_RETRY_MAX_DELAY,
	DW_ARG_RETRY_ON,
	DW_ARG_GIVE_UP_ON,
	DW_ARG_KEEP_SETTINGS,
	DW_ARG_UNIQUE_FOR,
	DW_ARG_CHECK_SQL,
	DW_ARG_GROUP_KEY,
	DW_NARGS
};

extern int	dw_options_read(FunctionCallInfo fcinfo, DwNewTask *task);
extern void dw_options_read_message(FunctionCallInfo fcinfo, Datum payload, DwNewTask *task);
extern void dw_option_refuse_long_json(Datum json, const char *what);
extern void dw_new_task_payload(DwNewTask *task, Datum payload);
extern void dw_new_task_queue(DwNewTask *task, const char *name, int16 priority);
extern int32 dw_option_number(FunctionCallInfo fcinfo, int number, const char *name, int32 low,
							  int32 high);
extern int64 dw_option_pause(FunctionCallInfo fcinfo, int number, const char *name);
extern int64 dw_option_lease(FunctionCallInfo fcinfo, int number, const char *name);
extern int32 dw_option_timeout(FunctionCallInfo fcinfo, int number, const char *name);
extern DwIfExists dw_if_exists_named(const char *name);
extern void dw_option_refuse_both(bool named, bool args);
extern void dw_option_refuse_long(const text *value, const char *name);
extern void dw_option_check_text(const text *value, const char *name);
extern text *dw_option_text(FunctionCallInfo fcinfo, int number, const char *name);

/*---- parameters.c: parameters of clients that leave their types to the server ----*/

/* To be called once, by the postmaster. */
extern void dw_parameters_install(void);

/*---- receive.c: messages that a transaction receives ----*/

/* Utility statements within which a session works. */
typedef struct DwReceiveWithin
{
	bool		explain;		/* EXPLAIN, which throws rows away */
	bool		copy_to;		/* COPY ... TO */
} DwReceiveWithin;

extern void dw_receive_install(void);
extern DwReceiveWithin dw_receive_enter(const Node *statement);
extern void dw_receive_leave(DwReceiveWithin outer);

/*---- schedule.c: schedules new tasks, and cancels by key ----*/

/* For dw_take_named(), in place of the argument with a queue: argument 0 is a task's id. */
#define DW_BY_ID	0

extern int64 dw_schedule_new(DwNewTask *task, int nargs);
extern bool dw_take_named(FunctionCallInfo fcinfo, int queue, Relation rel, HeapTuple *tuple,
						  DwTaskKey *key);
extern int64 dw_schedule_row(DwNewTask *task, bool limited);
extern DwTakeResult dw_schedule_cancel(const DwKey *key);

#endif							/* DW_BACKEND_H */
