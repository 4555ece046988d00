/*-------------------------------------------------------------------------
 *
 * notify.c
 *	  Notifications of the end of a task.
 *
 * Run by the process that ends a task, see conclude.c.  The notification is part of
 * the transaction that ends the task, so it is sent when that transaction commits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/async.h"
#include "utils/builtins.h"
#include "utils/json.h"

#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../shmem/outcome.h"
#include "../task/ended.h"
#include "notify.h"

/* A payload must be shorter than this, in bytes: NOTIFY_PAYLOAD_MAX_LENGTH of async.c. */
#define MAX_PAYLOAD		(BLCKSZ - NAMEDATALEN - 128)

/* True if the text can be the name of a notification channel. */
bool
dw_is_channel(const char *name)
{
	return name[0] != '\0' && strlen(name) < NAMEDATALEN;
}

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

/* The payload, as JSON; without key and tag if it would be too long with them. */
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

/* Notifies the channel that the task's option notify names, if any, at the commit. */
void
dw_notify_end(const DwEnded *ended)
{
	char	   *channel;

	/* an attempt has ended, not the task */
	if (ended->outcome == DW_RETRIED)
		return;
	channel = dw_more_text(ended->values, ended->nulls, Anum_task_more, DW_MORE_NOTIFY);
	/* the row may have been written by plain SQL, without checks */
	if (channel != NULL && dw_is_channel(channel))
		Async_Notify(channel, make_payload(ended));
}
