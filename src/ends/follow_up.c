/*-------------------------------------------------------------------------
 *
 * follow_up.c
 *	  Tasks that follow the end of another task.
 *
 * Run by the process that ends a task, see conclude.c.  The follow-up is a task of the same owner.
 * The transaction that ends the first task writes the follow-up.  So the follow-up is scheduled
 * exactly once, and only if the end is committed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/async.h"
#include "utils/builtins.h"
#include "utils/json.h"

#include "../base/signature.h"
#include "../ending/ending.h"
#include "../shmem/parts.h"
#include "../task/options.h"
#include "ends.h"

/* Limit of an error message that is passed to a follow-up, in bytes. */
#define MAX_MESSAGE		16384

/* Returns true if the ended task is a message. */
static bool
was_message(const DwEnded *ended)
{
	return ended->nulls[Anum_task_sql - 1];
}

/*
 * Sets the arguments of a follow-up in its new row, in the form that args.c reads.  The follow-up's
 * SQL need not use all arguments.
 */
static void
set_args(DwNewTask *task, const DwEnded *ended)
{
	bool		done = ended->outcome == DW_DONE;
	int			n = done ? DW_ON_SUCCESS_ARGS : DW_ON_FAILURE_ARGS;
	Datum		args[DW_ON_FAILURE_ARGS] = {0};
	bool		nulls[DW_ON_FAILURE_ARGS] = {false};
	Datum		types[DW_ON_FAILURE_ARGS];

	args[0] = CStringGetTextDatum(psprintf("%lld", (long long) ended->key->id));
	types[0] = ObjectIdGetDatum(INT8OID);
	if (!done)
	{
		const char *message = dw_error_message(ended->error);

		args[1] = CStringGetTextDatum(unpack_sql_state(ended->error->sqlerrcode));
		args[2] = dw_clipped_text(message, strlen(message), MAX_MESSAGE);
		types[1] = types[2] = ObjectIdGetDatum(TEXTOID);
	}
	else if (was_message(ended))
	{
		args[1] = PointerGetDatum(ended->reply);
		nulls[1] = ended->reply == NULL;
		types[1] = ObjectIdGetDatum(JSONBOID);
	}
	else
	{
		args[1] = CStringGetTextDatum(psprintf("%llu", (unsigned long long) ended->result.rows));
		types[1] = ObjectIdGetDatum(INT8OID);
	}
	dw_new_task_args(task, args, nulls, types, n);
}

/*
 * Schedules the follow-up that the task's option on_success or on_failure asks for, if
 * the option fits the outcome.  To be called by dw_conclude().
 */
static void
follow_up(const DwEnded *ended)
{
	bool		done = ended->outcome == DW_DONE;
	DwNewTask	task;
	Jsonb	   *settings;
	int64		batch_id;
	char	   *sql;

	if (!done && (ended->outcome != DW_FAILED || ended->error == NULL))
		return;
	sql = dw_more_text(ended->values, ended->nulls, Anum_task_more,
					   done ? DW_MORE_ON_SUCCESS : DW_MORE_ON_FAILURE);
	if (sql == NULL)
		return;
	dw_new_task_init(&task, cstring_to_text(sql));
	task.owner = ended->key->owner;
	/* no executor runs SQL in the queue of a message */
	task.queue = was_message(ended) ? 0 : ended->key->queue;
	task.priority = ended->key->priority;
	dw_new_task_set(&task, Anum_task_search_path, ended->values[Anum_task_search_path - 1],
					ended->nulls[Anum_task_search_path - 1]);
	settings = dw_more_object(ended->values, ended->nulls, Anum_task_more, DW_MORE_SETTINGS);
	if (settings != NULL)
		dw_more_set_object(task.values, task.nulls, Anum_task_more, DW_MORE_SETTINGS, settings);
	dw_new_task_set(&task, Anum_task_tag, ended->values[Anum_task_tag - 1],
					ended->nulls[Anum_task_tag - 1]);
	/* a batch ends when the follow-ups of its members have ended, too */
	if (dw_more_number(ended->values, ended->nulls, Anum_task_more, DW_MORE_BATCH_ID, &batch_id))
		dw_more_set_number(task.values, task.nulls, Anum_task_more, DW_MORE_BATCH_ID, batch_id);
	if (task.queue == ended->key->queue)
		dw_new_task_set(&task, Anum_task_group_key, ended->values[Anum_task_group_key - 1],
						ended->nulls[Anum_task_group_key - 1]);
	set_args(&task, ended);
	/* after an early delay_run(), a session may drop the queue without seeing the follow-up */
	if (task.due < ended->key->due)
		(void) dw_queue_keep(task.queue);
	(void) dw_schedule_successor(&task);
}

/*---- Notifications of the end of a task ----*/

/* The notification is part of the transaction that ends the task, so the commit sends it. */

/* A payload must be shorter than this number of bytes: NOTIFY_PAYLOAD_MAX_LENGTH of async.c. */
#define MAX_PAYLOAD		(BLCKSZ - NAMEDATALEN - 128)

static void
append_text(StringInfo payload, const char *name, const char *value)
{
	appendStringInfo(payload, ",\"%s\":", name);
	escape_json(payload, value);
}

static void
append_column(StringInfo payload, const DwEnded *ended, AttrNumber column, const char *name)
{
	if (!ended->nulls[column - 1])
		append_text(payload, name, TextDatumGetCString(ended->values[column - 1]));
}

/* Returns the payload as JSON, without key and tag if it would be too long with them. */
static char *
make_payload(const DwEnded *ended)
{
	StringInfoData payload;
	int			length;

	initStringInfo(&payload);
	appendStringInfo(&payload, "{\"id\":%lld,\"outcome\":\"%s\"", (long long) ended->key->id,
					 dw_outcome_names[ended->outcome]);
	if (ended->error != NULL)
		append_text(&payload, "sqlstate", unpack_sql_state(ended->error->sqlerrcode));
	length = payload.len;
	append_column(&payload, ended, Anum_task_key, "key");
	append_column(&payload, ended, Anum_task_tag, "tag");
	/* escaping can make key and tag six times as long */
	if (payload.len + 1 >= MAX_PAYLOAD)
	{
		payload.len = length;
		payload.data[length] = '\0';
	}
	appendStringInfoChar(&payload, '}');
	return payload.data;
}

/* If the task has the option notify, the commit notifies the named channel. */
static void
notify_end(const DwEnded *ended)
{
	char	   *channel;

	/* an attempt has ended, but the task has not */
	if (ended->outcome == DW_RETRIED)
		return;
	channel = dw_more_text(ended->values, ended->nulls, Anum_task_more, DW_MORE_NOTIFY);
	/* plain SQL may have written the row, without checks */
	if (channel != NULL && dw_is_channel(channel))
		Async_Notify(channel, make_payload(ended));
}

/* ---- Follow-up and notification ---- */

/*
 * Makes follow-up and notification of an ended task.  Most tasks have no follow-up and no
 * notification.
 */
void
dw_ends_follow(const DwEnded *ended)
{
	if (ended->nulls[Anum_task_more - 1])
		return;
	notify_end(ended);
	follow_up(ended);
}
