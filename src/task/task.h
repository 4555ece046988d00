/*-------------------------------------------------------------------------
 *
 * task.h
 *	  Functions for one pending task, within a transaction.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_TASK_H
#define DW_TASK_H

#include "commands/trigger.h"
#include "fmgr.h"
#include "storage/lock.h"

#include "../base/settings.h"
#include "../rows/rows.h"
#include "../shmem/executors.h"
#include "../shmem/queue_limits.h"
#include "../statement/statement.h"

/* Returns the array, enlarged if it has no room for one more element; a new array for NULL. */
static inline void *
dw_reserve(void *array, int n, int *size, Size element, MemoryContext context)
{
	if (n < *size)
		return array;
	*size = Max(*size * 2, 16);
	return array == NULL ? MemoryContextAlloc(context, *size * element) :
		repalloc(array, *size * element);
}

/* new_task.c: a new task: its due time, its checks, and its row */

/* Stands for a priority that was not given. */
#define DW_NO_PRIORITY	PG_INT16_MIN
/* Stands for a number of arguments: the SQL was checked when it was stored. */
#define DW_SQL_CHECKED	(-1)

/* Outcome of scheduling a task. */
typedef enum DwScheduled
{
	DW_NEW,						/* the new task is pending */
	DW_REPLACED,				/* the new task is pending, in place of another task of its key */
	DW_KEPT,					/* a task of its key was pending, and stays unchanged */
	DW_MOVED,					/* a task of its key was pending, and has got the new due time */
	DW_REFUSED					/* the period of another task of its key lasts (unique_for) */
} DwScheduled;

/*
 * A task that is to be scheduled.  values and nulls are the columns of its row.  The columns id and
 * origin, and columns with a separate member here, are filled in last.
 */
typedef struct DwNewTask
{
	Oid			owner;
	TimestampTz due;
	int16		queue;
	int16		priority;
	int64		spread;			/* the due time is delayed by less than this time, in us */
	DwIfExists	if_exists;		/* if the task has a key */
	DwCheck		check;			/* how its SQL is checked */
	ArrayType  *keep_settings;	/* names of the settings that are kept; NULL: the names in
								 * delay_wheel.keep_settings */
	int64		unique_for;		/* no other task of the key for this time, in us; 0: not given */
	bool		by_engine;		/* a callback, or the successor of a task that ends */
	DwLaneRef	lane;			/* set when the row is written */
	DwScheduled outcome;		/* set when the task is scheduled; due is then the due time of the
								 * pending task */
	Datum		values[Natts_task];
	bool		nulls[Natts_task];
} DwNewTask;

extern void dw_refuse_superuser(Oid owner);
extern void dw_check_expires(TimestampTz due, Datum expires);
extern void dw_new_task_init(DwNewTask *task, text *sql);
extern void dw_new_task_set(DwNewTask *task, AttrNumber column, Datum value, bool isnull);
extern void dw_new_task_args(DwNewTask *task, Datum *args, bool *nulls, Datum *types, int n);
extern TimestampTz dw_new_task_due(const DwNewTask *task, int64 id);
extern void dw_new_task_check(DwNewTask *task, int nargs);
extern void dw_new_task_keep(DwNewTask *task);
extern void dw_new_task_set_settings(DwNewTask *task, Jsonb *settings);
extern void dw_new_task_forget_trace(DwNewTask *task);
extern const char *dw_new_task_reads_otherwise(const DwNewTask *task);
extern int64 dw_new_task_insert(Relation rel, DwNewTask *task);
extern int64 dw_new_tasks_insert(Relation rel, DwNewTask *tasks, int n);
extern int64 dw_schedule_successor(DwNewTask *task);
extern TimestampTz dw_schedule_now(void);
extern TimestampTz dw_due_after(const Interval *delay);
extern Interval *dw_interval_of_text(const char *text, const char *what);
extern TimestampTz dw_due_of_text(const text *when);
extern TimestampTz dw_finite_due(TimestampTz due);

/*---- allow.c: delay_wheel.allow() and disallow(): the rights of applications ----*/

/* The group of roles that may schedule on all nodes of Citus. */
#define DW_GROUP	"delay_wheel_user"

extern void dw_group_allow(void);

/* attempts.c */

/* Options of a task, or its queue, for further attempts, besides their number and retry_delay. */
typedef struct DwRetry
{
	DwBackoff	backoff;
	int64		max_delay;		/* the longest pause, in us; 0: see retry_pause() */
	char	   *retry_on;		/* SQLSTATEs, or classes, with commas between; NULL or empty: all */
	char	   *give_up_on;		/* as retry_on; NULL or empty: no error */
} DwRetry;

/* Limit of the immediate repeats of one run, see dw_is_transient(). */
#define DW_MAX_REPEATS	10

/* The limits of one task: its own values, else the values of its queue, else the defaults. */
typedef struct DwTerms
{
	int			timeout;		/* for one attempt, in ms; 0: no limit */
	int			max_attempts;	/* including the first attempt */
	int64		retry_delay;	/* pause after the first failed attempt, in us */
} DwTerms;

extern void dw_terms(DwDatabase *db, const DwTaskKey *key, const Datum *values,
					 const bool *nulls, DwTerms *terms);
extern void dw_retry_read(int16 queue, const Datum *values, const bool *nulls, DwRetry *retry);
extern bool dw_retry_gives_up(const DwRetry *retry, int sqlstate);
extern char *dw_retry_refusal(const DwRetry *retry, int sqlstate);
extern bool dw_is_transient(int sqlstate);
extern bool dw_is_lost_connection(int sqlstate);
extern TimestampTz dw_next_connection(int64 lost, int sqlstate);
extern TimestampTz dw_next_attempt(const DwTerms *terms, const DwRetry *retry, int failed);
extern void dw_keep_error(Datum *values, bool *nulls, const ErrorData *error);

/* actions.c: reports actions of sessions on tasks and queues to wings */

/* An action, for a row of the audit.  Except in owner, zero and NULL become null in the row. */
typedef struct DwAction
{
	const char *what;			/* the name of the function, without delay_ */
	int64		task;
	Oid			owner;			/* owner of the task; InvalidOid: the current user */
	int16		queue;			/* queue of the task, if with_queue */
	bool		with_queue;
	TimestampTz due;
	int64		rows;			/* number of tasks, or of rows of plain SQL */
	const text *key;
	const text *tag;
	const char *name;			/* name of a queue, a recurring task, or a table */
	const char *detail;
} DwAction;

/* True if actions of this level are recorded.  Otherwise this check is the only cost. */
#define dw_audits(level)	unlikely(dw_audit >= (level))

extern void dw_audit_write(const DwAction *action);
extern void dw_audit_task(const char *what, const Datum *values, const bool *nulls,
						  TimestampTz due, const char *detail);
extern void dw_audit_row(const char *what, Relation rel, HeapTuple tuple, TimestampTz due,
						 const char *detail);
extern void dw_audit_count(Relation rel);

/*---- A task that has ended ----*/

/*
 * A task that has ended.  The task's row is deleted already; values and nulls are the row's
 * columns.
 */
typedef struct DwEnded
{
	const DwTaskKey *key;		/* from the row: the former due time, the attempts before this
								 * one */
	const Datum *values;		/* columns of delay_wheel_data.task */
	const bool *nulls;
	DwOutcome	outcome;
	TimestampTz started;		/* start of the last attempt; 0 if the task was not run */
	DwSpiResult result;			/* result of the last statement; valid for DW_DONE */
	text	   *reply;			/* result that the receiver of a message gave, jsonb as text; NULL:
								 * none */
	const ErrorData *error;		/* set for DW_FAILED and DW_RETRIED */
} DwEnded;

/* key_lock.c: the lock of a key, and the rows with the key */

/* A row of a key, and the open transactions that insert or delete it. */
typedef struct DwKeyRow
{
	HeapTuple	tuple;
	DwTaskKey	task;
	TransactionId inserter;		/* invalid if the row is committed, or our own */
	TransactionId deleter;		/* invalid if no open transaction deletes the row */
} DwKeyRow;

extern bool dw_key_of(Relation rel, HeapTuple tuple, DwKey *key, DwTaskKey *task);
extern void dw_key_lock(const DwKey *key);
extern List *dw_key_rows(Relation rel, const DwKey *key);
extern bool dw_key_row_is_claimed(const DwKeyRow *row, List *rows);
extern DwKeyRow *dw_key_newest(List *rows, bool any_origin);
extern DwKeyRow *dw_key_superseder(List *rows, const DwTaskKey *task);
extern void dw_key_leave(void);
extern ItemPointerData dw_task_insert_again(Relation rel, Datum *values, bool *nulls);
extern bool dw_task_is_superseded(Relation rel, HeapTuple tuple);
extern DwKey dw_key_of_values(const Datum *values);
extern bool dw_key_retry_allowed(Relation rel, HeapTuple tuple, int64 *newer);

/*---- login.c: how a new session of a role would read a task's text ----*/

/* The settings of a new session of a role in this database */
typedef struct DwLogin DwLogin;

extern const DwLogin *dw_login(Oid role);
extern const char *dw_login_value(const DwLogin *login, DwLoginSetting setting);
extern bool dw_login_differs(const DwLogin *login, DwLoginSetting setting);
extern void dw_login_changing(void);
extern void dw_login_changed(void);

/* my_session.c: the database of this process, and the task that it runs */

/* Id of the task that delay_run() or delay_run_due() is running in this session, else 0. */
extern int64 dw_run_now_id;
extern Oid	dw_run_now_owner;

/* Due time that delay_run_due() has reached; DT_NOBEGIN while that function is not running. */
extern TimestampTz dw_run_now_clock;

/* True if no further task may share the transaction of the running batch.  Any code may set it. */
extern bool dw_batch_is_closed;

/* The batch of the task that runs; 0: none.  After the run the value has no meaning. */
extern int64 dw_running_batch_id;

extern void dw_running_in(const Datum *values, const bool *nulls);

/* True while the executor's task may call delay_snooze().  False for its deferred triggers. */
extern bool dw_may_snooze;

extern DwDatabase *dw_my_database(void);
extern DwDatabase *dw_my_pinned_database(void);
extern DwDatabase *dw_require_my_database(void);
extern DwDatabase *dw_my_database_find(void);
extern void dw_my_database_unpin(void);
extern void dw_warn_no_place(void);
extern void dw_warn_not_served(DwDatabase *db);
extern Oid	dw_owner_of_task_here(int64 id);
extern TimestampTz dw_time_reached(void);
extern void dw_snooze(TimestampTz until);
extern TimestampTz dw_snooze_take(void);

/* other_nodes.c: tasks that write to or read from other nodes */

/* How Citus commits a transaction. */
typedef enum DwPhases
{
	DW_NO_PART,					/* Citus takes no part in it */
	DW_ONE_PHASE,
	DW_TWO_PHASES				/* after a failure, no other node has committed a part of it */
} DwPhases;

extern void dw_other_nodes_install(void);
extern void dw_other_nodes_prepare(void);
extern bool dw_other_nodes_exist(void);
extern DwPhases dw_other_nodes_phases(void);

/*---- period.c: the periods in which keys are unique (option unique_for) ----*/

/* The period of a key that lasts. */
typedef struct DwPeriod
{
	int64		id;				/* id of the task that began the period */
	TimestampTz until;
	TransactionId open;			/* open transaction that begins or ends the period, or invalid */
	ItemPointerData tid;
} DwPeriod;

extern void dw_period_prepare(void);
extern bool dw_period_find(const DwKey *key, int64 except, DwPeriod *period);
extern void dw_period_wait(DwPeriod *period);
extern void dw_period_begin(const DwNewTask *task, int64 id);
extern void dw_period_end(const Datum *values, const bool *nulls);
extern void dw_period_move(const Datum *old, const bool *old_nulls, const Datum *new,
						   const bool *new_nulls);

/*---- rights.c: to use delay_wheel, to have a number of tasks, to change tasks of others ----*/

/* The view whose INSERT is the right to use delay_wheel. */
#define DW_RIGHT_VIEW	"delay_wheel.tasks"

extern Oid	dw_right_view(void);
extern void dw_require_right(void);
extern void dw_require_right_to_write(const char *function);
extern bool dw_may_read(Oid owner);
extern bool dw_has_any_role(const Oid *roles, int n);
extern void dw_require_task_owner(int64 id, Oid owner);
extern void dw_require_role(Oid owner);
extern void dw_require_room(Oid owner);

/*---- row_lock.c: locking and deleting the rows of pending tasks ----*/

extern TM_Result dw_row_delete(Relation rel, const DwTaskKey *key);
extern TM_Result dw_row_remove(Relation rel, const DwTaskKey *key);
extern TM_Result dw_row_lock(Relation rel, ItemPointerData tid, LockTupleMode mode,
							 LockWaitPolicy wait);
extern TM_Result dw_row_keep(Relation rel, const DwTaskKey *key);
extern bool dw_row_is_claimed(Relation rel, const DwTaskKey *key);
extern bool dw_row_is_locked_here(Relation rel, const DwTaskKey *key);
extern bool dw_row_wait(Relation rel, const DwTaskKey *key);
extern bool dw_autonomous_enter(int64 id, bool wait);
extern void dw_autonomous_leave(int64 id);
extern bool dw_autonomous_has_key(const DwKey *key);
extern uint32 dw_autonomous_ended(void);
extern bool dw_lock_is_wanted(const Oid *relations, int n);
extern bool dw_is_one_of(const LOCKTAG *tag, const Oid *relations, int n);
extern bool dw_locks_conflict(LOCKMASK held, LOCKMODE wanted);
extern pid_t dw_who_waits_for_us(void);

/* other_nodes.c: shards of Citus */

typedef struct DwShard
{
	int64		id;				/* 0: the table is no shard */
	bool		is_copy;		/* other nodes may have the same rows, as for a reference table */
	bool		is_first;		/* this node is the first of these nodes */
} DwShard;

extern void dw_shard_of(Relation rel, DwShard *shard);

/*---- marks.c: cancelling many tasks by one mark ----*/

/* A row of delay_wheel_data.cancellation: it cancels the tasks that meet all criteria. */
typedef struct DwMark
{
	int64		id;				/* cancels only tasks with a lower number */
	int64		origin;			/* stamp of the database where the mark was written */
	bool		ours;			/* the mark was written in this database */
	bool		any_owner;		/* cancels tasks of all owners */
	Oid		   *owners;			/* unless any_owner: the owners, sorted */
	int			nowners;
	bool		any_queue;		/* cancels tasks of all queues */
	int16		queue;			/* unless any_queue */
	char	   *tag;			/* NULL: any tag, or none */
	Size		tag_length;
	TimestampTz due_from;		/* range of due times; infinite if not given */
	TimestampTz due_until;		/* exclusive */
} DwMark;

/* The columns of a task that decide whether a mark cancels it. */
typedef struct DwMarkable
{
	int64		number;			/* value of the column "spared"; if null, the task's id */
	int64		origin;
	Oid			owner;
	int16		queue;
	TimestampTz due;
	struct varlena *tag;		/* as in the row, maybe toasted; NULL: none */
} DwMarkable;

extern bool dw_task_is_cancelled(Relation rel, HeapTuple tuple);
extern void dw_marks_spare(Datum *values, bool *nulls);
extern const DwMark *dw_marks(int *n);
extern const DwMark *dw_marks_anew(int *n);
extern bool dw_marks_hit(Relation rel, HeapTuple tuple);
extern void dw_marks_changed(void);
extern void dw_markable(Relation rel, HeapTuple tuple, DwMarkable *task);
extern bool dw_mark_hits(const DwMark *mark, const DwMarkable *task);
extern bool dw_mark_hits_owner(const DwMark *mark, Oid owner);
extern bool dw_mark_hits_lane(const DwMark *mark, int64 origin, Oid owner, int16 queue);
extern HeapTuple dw_mark_take(int64 id);
extern void dw_marks_supersede(int64 id);
extern void dw_marks_armed(void);
extern bool dw_sweep_needed(Relation rel);

/*---- queues.c: declared queues, rights to use them, and pauses ----*/

/* The settings of a queue that scheduling uses. */
typedef struct DwQueueForTask
{
	int16		id;				/* 0: the default queue */
	int16		priority;		/* of tasks without their own priority */
	int64		spread;			/* due times are delayed by less than this time, in us */
	bool		external;		/* true: for messages, which sessions receive; false: for SQL
								 * tasks */
	bool		groups;			/* its tasks may have groups */
	ArrayType  *keep_settings;	/* names of settings that its tasks keep, or NULL */
} DwQueueForTask;

/* The order in which tasks of one group run. */
typedef enum DwGroupOrder
{
	DW_ORDER_NONE,
	DW_ORDER_HOLD,				/* by due time and id; the group waits while a task waits for its
								 * next attempt */
	DW_ORDER_PASS				/* by due time and id; no task waits for the next attempt of another
								 * task */
} DwGroupOrder;

/* A row of delay_wheel_data.queue: a declared queue. */
typedef struct DwDeclaredQueue
{
	int16		id;
	DwPause		pause;
	bool		batch;			/* its tasks may share a transaction */
	int32		max_running;	/* tasks at the same time; 0: no limit */
	DwRate		rate;
	bool		groups;			/* its tasks may have groups, which take turns */
	int32		group_max_running;	/* tasks of one group at the same time; 0: no limit */
	DwRate		group_rate;		/* rate of one group */
	DwGroupOrder group_order;
	DwQueueDefaults defaults;
	DwRetry		retry;
	DwHistoryLevel history;		/* tasks of the queue that go into the history */
	bool		external;		/* for messages, which sessions receive */
	int32		receive_timeout;	/* how long a receiver's transaction may be idle, in ms; 0: no
									 * limit */
	char	   *name;
	char	   *notify_channel; /* channel that is notified of messages that can be received, or NULL */
	int32		place;			/* index into dw_queues, or DW_NO_QUEUE; the timer sets it */
} DwDeclaredQueue;

/* This process's copy of delay_wheel_data.queue and delay_wheel_data.pause. */
typedef struct DwQueueTables
{
	MemoryContext context;		/* all memory of the copy */
	uint32		control;		/* value of control before the copy was read (not for the timer) */
	bool		is_valid;		/* the copy can be used while control stays the same */
	int			nqueues;
	DwDeclaredQueue *queues;	/* sorted by id */
	int			nowners;
	Oid		   *owners;			/* roles whose tasks are paused, sorted; InvalidOid: all roles */
} DwQueueTables;

extern DwQueueTables dw_queue_tables;

extern void dw_queue_find(const char *name, DwQueueForTask *queue);
extern void dw_queue_require(int16 id, bool message);
extern int16 dw_queue_find_to_receive(const char *name);
extern void dw_queue_require_receiver(int16 id);
extern void dw_queue_require_kind(const char *name, bool external, bool message);
extern void dw_queue_require_groups(const char *name, const DwQueueForTask *queue);
extern bool dw_queue_keep(int16 id);
extern int16 dw_queue_named(const char *name);
extern HeapTuple dw_queue_row(Relation rel, const char *name);
extern bool dw_queue_is_usable(Relation rel, HeapTuple tuple);
extern LockAcquireResult dw_queue_lock(Oid table, Oid id, LOCKMODE mode, bool wait);
extern bool dw_is_paused(DwDatabase *db, Oid owner, int16 queue);
extern const DwQueueTables *dw_queue_tables_now(DwDatabase *db);
extern bool dw_queue_is_external(DwDatabase *db, int16 queue);
extern const DwDeclaredQueue *dw_queue_now(DwDatabase *db, int16 queue);
extern bool dw_queue_holds_groups(int16 queue);
extern void dw_queue_put_back(DwDatabase *db, const DwEntry *entry);
extern int16 dw_queue_id(Relation rel, HeapTuple tuple);
extern char *dw_queue_name_of(int16 id);
extern DwDeclaredQueue *dw_queue_declared(int16 id);
extern DwGroupOrder dw_group_order_named(const char *name);
extern bool dw_owner_is_paused(Oid owner);
extern void dw_queue_tables_read(Snapshot snapshot);
extern DwPause dw_pause_of_lane(const DwLane *lane);

/*---- touched.c: notes the effects of the transaction, and informs other processes ----*/

/* The effect of a transaction on a row, which decides when the timer gets a hint of the row. */
typedef enum DwTouchKind
{
	DW_TOUCH_WRITTEN,			/* after a commit */
	DW_TOUCH_LEASED,			/* its due time is the end of its lease: after a commit */
	DW_TOUCH_LOCKED,			/* to be deleted or moved: after an abort */
	DW_TOUCH_LEASE_LOCKED,		/* a leased message, to be deleted or moved: after an abort */
	DW_TOUCH_KEPT				/* locked, and left as it is: at the end, if the task is due */
} DwTouchKind;

/* Effects of a transaction on more than single rows. */
typedef enum DwEffect
{
	DW_ALL_TOUCHED = 0x01,		/* any rows may have been written: at the end, the timer reads all
								 * lanes again */
	DW_CONTROL_CHANGED = 0x02,	/* queues, pauses or marks were changed: the end raises control, so
								 * that all processes read the tables again */
	DW_LEASES_CHANGED = 0x04,	/* leases must be counted again */
	DW_PREPARED_ENDED = 0x08,	/* this transaction ends a prepared transaction, which has left
								 * rows in delay_wheel_data.prepared */
	DW_UNARMED_LEFT = 0x10,		/* rows of another origin were written, or left */
	DW_NONE_UNARMED = 0x20,		/* delay_wheel.arm() has left no such rows */
	DW_EXTENSION_CREATED = 0x40,	/* the commit starts a timer */
	DW_ROLES_DROPPED = 0x80,	/* the commit informs all timers */
	DW_WING_WRITTEN = 0x100		/* a wing has written rows: Citus commits in two phases */
} DwEffect;

extern void dw_touched_install(void);
extern void dw_touch_row(const DwHint *hint, DwTouchKind kind);
extern void dw_touch_ended(int64 id, DwOutcome outcome);
extern void dw_touch_group(int16 queue, uint32 hash);
extern void dw_touch_lane(DwLaneRef lane, TimestampTz due);
extern bool dw_control_is_touched(void);
extern void dw_touch(DwEffect effect);
extern void dw_touch_leases(void);
extern void dw_touched_prepare_as(const char *gid);
extern void dw_deliver(DwDatabase *db, const DwHint *hint);
extern bool dw_accept_replicated(TriggerData *trigger, HeapTuple row);
extern DwLaneRef dw_require_lane(Oid owner, int16 queue, int16 priority);
extern DwLaneRef dw_lane_if_any(Oid owner, int16 queue, int16 priority);

#endif							/* DW_TASK_H */
