/*-------------------------------------------------------------------------
 *
 * backend.h
 *	  Declarations shared by the functions that sessions call.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_BACKEND_H
#define DW_BACKEND_H

#include "postgres.h"

#include "access/table.h"
#include "lib/stringinfo.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/signature.h"
#include "../base/wing.h"
#include "../ending/ending.h"
#include "../shmem/groups.h"
#include "../task/options.h"

/*---- lease.c: calls by which a receiver ends or extends its lease ----*/

extern void dw_lease_install(void);
extern void dw_message_put_back(Relation rel, DwClaim *claim, TimestampTz due, DwTouchKind kind);
extern bool dw_lease_fail(int64 id, int64 token, TimestampTz due, bool give_up, ErrorData *error);

/*---- message_group.c: limits and order of groups of messages ----*/

/* The decision about a message that a session has taken. */
typedef enum DwGroupVerdict
{
	DW_GROUP_CLAIM,				/* claim it; the entry may have been replaced by another message */
	DW_GROUP_GOES_BACK,			/* it must be put back at the end of the call */
	DW_GROUP_WENT_BACK			/* it was put back */
} DwGroupVerdict;

extern DwGroupVerdict dw_group_verdict(DwDatabase *db, Relation rel, int16 queue, DwEntry *entry,
									   DwGroupTaken *taken, DwLeaseCounts counts);
extern DwGroupVerdict dw_group_send_back(DwDatabase *db, DwEntry *entry, DwGroupTaken *taken,
										 const DwTaskKey *first, TimestampTz until, bool full);
extern bool dw_group_is_limited(const DwTaskKey *key);

/*---- parameters.c: parameters of clients that leave their types to the server ----*/

extern void dw_parameters_install(void);

/*---- receive.c: messages that a transaction receives ----*/

/* Utility statements that a session executes now, and whose queries may call functions. */
typedef struct DwReceiveWithin
{
	bool		explain;		/* EXPLAIN, which throws rows away */
	bool		copy_to;		/* COPY ... TO */
} DwReceiveWithin;

extern void dw_receive_install(void);
extern DwReceiveWithin dw_receive_within;
extern DwReceiveWithin dw_receive_enter(const Node *statement);

/*---- schedule.c: schedules new tasks, and cancels by key ----*/

/* The pending task that a call names, by its id or by a key of the current user. */
typedef struct DwNamedTask
{
	bool		by_key;
	int64		id;
	DwKey		key;
} DwNamedTask;

extern void dw_named_task(FunctionCallInfo fcinfo, int key, DwNamedTask *named);
extern DwTakeResult dw_take_named(const DwNamedTask *named, Relation rel, HeapTuple *tuple,
								  DwTaskKey *key);
extern const char *dw_take_answer(DwTakeResult result, const char *taken);
extern const char *dw_cancel_by_id(int64 id, bool stop_running, bool no_retry, bool tell_end);
extern int64 dw_schedule_new(DwNewTask *task, int nargs);
extern int64 dw_schedule_row(DwNewTask *task, bool limited);

/* Limits for tasks that are collected: about three pages of ordinary rows, and bytes of long rows. */
#define DW_MANY_TASKS	128
#define DW_MANY_BYTES	(1024 * 1024)

/* New tasks whose rows will be written together. */
typedef struct DwManyTasks
{
	MemoryContext context;		/* memory of the tasks; dw_schedule_many_next() resets it */
	int			n;
	DwNewTask	tasks[DW_MANY_TASKS];
} DwManyTasks;

extern DwManyTasks *dw_schedule_many_begin(void);
extern void dw_schedule_many_add(DwManyTasks *many, DwNewTask *task);
extern void dw_schedule_many_next(DwManyTasks *many);
extern void dw_schedule_many_end(DwManyTasks *many);
extern DwTakeResult dw_schedule_cancel(const DwKey *key);

#endif							/* DW_BACKEND_H */
