/*-------------------------------------------------------------------------
 *
 * follow_up.c
 *	  Tasks that follow the end of another one.
 *
 * Run by the process that ends a task, see conclude.c.  The follow-up is a task of the
 * same owner.  The transaction that ends the first task writes it, so it exists
 * exactly once, and only if that end is committed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../shmem/outcome.h"
#include "../statement/spi_run.h"
#include "../task/ended.h"
#include "../task/new_task.h"
#include "../task/queues.h"
#include "follow_up.h"

/* Limit of an error message that is passed to a follow-up, in bytes. */
#define MAX_MESSAGE		16384

/*
 * Sets the arguments of a follow-up in its new row, in the form that args.c reads.  The
 * follow-up's SQL need not use all of them.
 */
static void
set_args(DwNewTask *task, Datum *args, const Oid *types, int n)
{
	Datum		type_datums[DW_ON_FAILURE_ARGS];

	for (int i = 0; i < n; i++)
		type_datums[i] = ObjectIdGetDatum(types[i]);
	task->values[Anum_task_args - 1] =
		PointerGetDatum(construct_array(args, n, TEXTOID, -1, false, TYPALIGN_INT));
	task->values[Anum_task_arg_types - 1] =
		PointerGetDatum(construct_array(type_datums, n, REGTYPEOID, sizeof(Oid), true,
										TYPALIGN_INT));
	task->nulls[Anum_task_args - 1] = task->nulls[Anum_task_arg_types - 1] = false;
}

static Datum
number_text(int64 number)
{
	return CStringGetTextDatum(psprintf("%lld", (long long) number));
}

static void
set_success_args(DwNewTask *task, const DwEnded *ended)
{
	static const Oid types[DW_ON_SUCCESS_ARGS] = {INT8OID, INT8OID};
	Datum		args[DW_ON_SUCCESS_ARGS];

	args[0] = number_text(ended->key->id);
	args[1] = number_text((int64) ended->result.rows);
	set_args(task, args, types, DW_ON_SUCCESS_ARGS);
}

static void
set_failure_args(DwNewTask *task, const DwEnded *ended)
{
	static const Oid types[DW_ON_FAILURE_ARGS] = {INT8OID, TEXTOID, TEXTOID};
	const char *message = dw_error_message(ended->error);
	Datum		args[DW_ON_FAILURE_ARGS];

	args[0] = number_text(ended->key->id);
	args[1] = CStringGetTextDatum(unpack_sql_state(ended->error->sqlerrcode));
	args[2] = dw_clipped_text(message, strlen(message), MAX_MESSAGE);
	set_args(task, args, types, DW_ON_FAILURE_ARGS);
}

/* Copies a column of the task that has ended to its follow-up. */
static void
inherit(DwNewTask *task, const DwEnded *ended, AttrNumber column)
{
	task->values[column - 1] = ended->values[column - 1];
	task->nulls[column - 1] = ended->nulls[column - 1];
}

/*
 * Schedules the follow-up that the task's option on_success or on_failure asks for, if
 * the option fits the outcome.  To be called by dw_conclude().
 */
void
dw_follow_up(const DwEnded *ended)
{
	bool		done = ended->outcome == DW_DONE;
	DwNewTask	task;
	char	   *sql;

	if (!done && (ended->outcome != DW_FAILED || ended->error == NULL))
		return;
	sql = dw_more_text(ended->values, ended->nulls, Anum_task_more,
					   done ? DW_MORE_ON_SUCCESS : DW_MORE_ON_FAILURE);
	if (sql == NULL)
		return;
	dw_new_task_init(&task, cstring_to_text(sql));
	task.owner = ended->key->owner;
	task.queue = ended->key->queue;
	task.priority = ended->key->priority;
	inherit(&task, ended, Anum_task_search_path);
	inherit(&task, ended, Anum_task_tag);
	if (done)
		set_success_args(&task, ended);
	else
		set_failure_args(&task, ended);
	/* run early by delay_run(): a session that drops the queue may have looked before */
	if (task.due < ended->key->due)
		(void) dw_queue_keep(task.queue);
	(void) dw_schedule_successor(&task);
}
