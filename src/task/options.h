/*-------------------------------------------------------------------------
 *
 * options.h
 *	  All options of tasks, messages, recurring tasks and queues.
 *
 * An option is a parameter of SQL functions, or a member of their JSON parameter "options", or
 * both.  A new option needs a new line in this table, and no new signature of a function.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_OPTIONS_H
#define DW_OPTIONS_H

#include "task.h"

/* Bits for the places where an option may be given by its name. */
#define DW_FOR_TASK		0x01	/* delay_schedule_task(), delay_schedule_local() */
#define DW_FOR_MESSAGE	0x02	/* delay_send() */
#define DW_FOR_TRIGGER	0x04	/* arguments name=value of a trigger */
#define DW_FOR_RECURRING 0x08	/* delay_every(), delay_cron() */
#define DW_FOR_UPDATE	0x10	/* delay_update() */
#define DW_FOR_QUEUE	0x20	/* delay_wheel.create_queue() */

/* The type of an option's value. */
typedef enum DwOptionType
{
	DW_TYPE_TEXT,				/* text */
	DW_TYPE_LABEL,				/* text of 1 to DW_MAX_KEY bytes */
	DW_TYPE_INTEGER,			/* int4, in a range */
	DW_TYPE_BIGINT,				/* int8, in a range */
	DW_TYPE_SPAN,				/* interval, in a range of microseconds */
	DW_TYPE_TIME,				/* timestamptz */
	DW_TYPE_BOOLEAN,			/* bool */
	DW_TYPE_TEXTS,				/* text[] */
	DW_TYPE_ROLES,				/* name[] */
	DW_TYPE_TYPES,				/* regtype[] */
	DW_TYPE_OBJECT,				/* jsonb, an object */
	DW_TYPE_OTHER				/* only a parameter, of any type */
} DwOptionType;

#define DW_T	DW_FOR_TASK
#define DW_M	DW_FOR_MESSAGE
#define DW_G	DW_FOR_TRIGGER
#define DW_R	DW_FOR_RECURRING
#define DW_U	DW_FOR_UPDATE
#define DW_Q	DW_FOR_QUEUE
#define DW_DAYS_366		(366 * USECS_PER_DAY)
#define DW_MAX_MS		(PG_INT32_MAX * INT64CONST(1000))

/*
 * For each option: its name, its type, the lowest and the highest value, and where it may be given.
 * Options without a place are parameters of functions only.
 */
#define DW_OPTIONS(_) \
	_(NAME, "name", OTHER, 0, 0, 0) \
	_(SQL, "sql_text", OTHER, 0, 0, 0) \
	_(WHEN, "when", OTHER, 0, 0, 0) \
	_(ARGS, "args", OTHER, 0, 0, 0) \
	_(NAMED, "named", OTHER, 0, 0, 0) \
	_(PAYLOAD, "payload", OTHER, 0, 0, 0) \
	_(DELAY, "delay", OTHER, 0, 0, 0) \
	_(DUE, "due", OTHER, 0, 0, 0) \
	_(ARG_TYPES, "arg_types", TYPES, 0, 0, DW_T | DW_R | DW_U) \
	_(KEY, "key", LABEL, 0, 0, DW_T | DW_M | DW_G) \
	_(IF_EXISTS, "if_exists", TEXT, 0, 0, DW_T | DW_M | DW_G) \
	_(QUEUE, "queue", TEXT, 0, 0, DW_T | DW_G | DW_R) \
	_(TAG, "tag", LABEL, 0, 0, DW_T | DW_M | DW_G | DW_R | DW_U) \
	_(GROUP_KEY, "group_key", LABEL, 0, 0, DW_T | DW_M | DW_G | DW_R | DW_U) \
	_(PRIORITY, "priority", INTEGER, DW_MIN_PRIORITY, DW_MAX_PRIORITY, DW_T | DW_M | DW_G | DW_R | DW_U | DW_Q) \
	_(MAX_ATTEMPTS, "max_attempts", INTEGER, 1, PG_INT16_MAX, DW_T | DW_M | DW_G | DW_R | DW_U | DW_Q) \
	_(RETRY_DELAY, "retry_delay", SPAN, 0, DW_DAYS_366, DW_T | DW_M | DW_G | DW_R | DW_U | DW_Q) \
	_(RETRY_BACKOFF, "retry_backoff", TEXT, 0, 0, DW_T | DW_M | DW_G | DW_R | DW_U | DW_Q) \
	_(RETRY_MAX_DELAY, "retry_max_delay", SPAN, 0, DW_DAYS_366, DW_T | DW_M | DW_G | DW_R | DW_U | DW_Q) \
	_(RETRY_ON, "retry_on", TEXTS, 0, 0, DW_T | DW_G | DW_R | DW_U | DW_Q) \
	_(GIVE_UP_ON, "give_up_on", TEXTS, 0, 0, DW_T | DW_G | DW_R | DW_U | DW_Q) \
	_(TIMEOUT, "timeout", SPAN, 0, DW_MAX_MS, DW_T | DW_G | DW_R | DW_U | DW_Q) \
	_(EXPIRES, "expires", SPAN, 1, PG_INT64_MAX, DW_T | DW_M | DW_G | DW_U) \
	_(SKIP_AFTER, "skip_after", SPAN, 1, PG_INT64_MAX, DW_T | DW_M | DW_G | DW_R | DW_U) \
	_(UNIQUE_FOR, "unique_for", SPAN, 1, DW_DAYS_366, DW_T | DW_M | DW_G) \
	_(BATCH_ID, "batch_id", BIGINT, 1, PG_INT64_MAX, DW_T | DW_M) \
	_(HEADERS, "headers", OBJECT, 0, 0, DW_T | DW_M | DW_R | DW_U) \
	_(NOTIFY, "notify", TEXT, 0, 0, DW_T | DW_M | DW_G | DW_R | DW_U) \
	_(ON_SUCCESS, "on_success", TEXT, 0, 0, DW_T | DW_M | DW_G | DW_R | DW_U) \
	_(ON_FAILURE, "on_failure", TEXT, 0, 0, DW_T | DW_M | DW_G | DW_R | DW_U) \
	_(MODE, "mode", TEXT, 0, 0, DW_T | DW_R) \
	_(CHECK_SQL, "check_sql", TEXT, 0, 0, DW_T | DW_R) \
	_(KEEP_SETTINGS, "keep_settings", TEXTS, 0, 0, DW_T | DW_G | DW_R | DW_Q) \
	_(TO_QUEUE, "to_queue", TEXT, 0, 0, DW_U) \
	_(NEW_KEY, "new_key", LABEL, 0, 0, DW_U) \
	_(STARTS, "starts", TIME, 0, 0, DW_R) \
	_(UNTIL, "until", TIME, 0, 0, DW_R) \
	_(TIME_ZONE, "timezone", TEXT, 0, 0, DW_R) \
	_(MAX_RUNS, "max_runs", BIGINT, 1, PG_INT64_MAX, DW_R) \
	_(CATCH_UP, "catch_up", TEXT, 0, 0, DW_R) \
	_(MAX_RUNNING, "max_running", INTEGER, 0, PG_INT32_MAX, DW_Q) \
	_(RATE, "rate", INTEGER, 0, 1000000, DW_Q) \
	_(PER, "per", SPAN, USECS_PER_SEC, DW_DAYS_366, DW_Q) \
	_(BURST, "burst", INTEGER, 0, 100000, DW_Q) \
	_(SPREAD, "spread", SPAN, 0, DW_DAYS_366, DW_Q) \
	_(BATCH, "batch", BOOLEAN, 0, 0, DW_Q) \
	_(HISTORY, "history", TEXT, 0, 0, DW_Q) \
	_(USERS, "users", ROLES, 0, 0, DW_Q) \
	_(GROUPS, "groups", BOOLEAN, 0, 0, DW_Q) \
	_(GROUP_MAX_RUNNING, "group_max_running", INTEGER, 0, PG_INT32_MAX, DW_Q) \
	_(GROUP_RATE, "group_rate", INTEGER, 0, 1000000, DW_Q) \
	_(GROUP_PER, "group_per", SPAN, USECS_PER_SEC, DW_DAYS_366, DW_Q) \
	_(GROUP_BURST, "group_burst", INTEGER, 0, 100000, DW_Q) \
	_(GROUP_ORDER, "group_order", TEXT, 0, 0, DW_Q) \
	_(EXTERNAL, "external", BOOLEAN, 0, 0, DW_Q) \
	_(RECEIVERS, "receivers", ROLES, 0, 0, DW_Q) \
	_(LEASE, "lease", SPAN, 1000, DW_DAYS_366, DW_Q) \
	_(RECEIVE_TIMEOUT, "receive_timeout", SPAN, 0, DW_MAX_MS, DW_Q) \
	_(NOTIFY_CHANNEL, "notify_channel", TEXT, 0, 0, DW_Q)

#define DW_OPTION_ID(id, name, type, low, high, places) DW_OPT_##id,
typedef enum DwOption
{
	DW_OPTIONS(DW_OPTION_ID)
	DW_NOPTIONS,
	DW_OPT_JSON = DW_NOPTIONS	/* stands for the parameter with the JSON object of further
								 * options */
} DwOption;
#undef DW_OPTION_ID

/*
 * Number of a follow-up's arguments.  After success the arguments are id and rows (for a message:
 * id and result), after failure id, SQLSTATE and message.
 */
#define DW_ON_SUCCESS_ARGS	2
#define DW_ON_FAILURE_ARGS	3

/* The options of a call.  An option that was not given is null. */
typedef struct DwOptions
{
	int			place;			/* the place where the options are given */
	NullableDatum values[DW_NOPTIONS];
} DwOptions;

#define dw_given(options, id)		(!(options)->values[DW_OPT_##id].isnull)
#define dw_option(options, id)		((options)->values[DW_OPT_##id].value)
#define dw_option_cstring(options, id) TextDatumGetCString(dw_option(options, id))

extern void dw_options_none(DwOptions *options, int place);
extern void dw_options_take(FunctionCallInfo fcinfo, const DwOption *parameters, int n, int place,
							DwOptions *options);
extern DwOption dw_option_named(const char *name, int length, int place);
extern void dw_option_set_text(DwOptions *options, DwOption option, const char *value);
extern const char *dw_option_name(DwOption option);
extern int64 dw_option_us(const DwOptions *options, DwOption option);
extern int32 dw_option_ms(const DwOptions *options, DwOption option);
extern int64 dw_span_argument(FunctionCallInfo fcinfo, int number, const char *name, int64 low);

extern void dw_option_check_text(const text *value, const char *name);
extern void dw_option_refuse_long(const text *value, const char *name);
extern void dw_option_refuse_long_json(Datum json, const char *what);
extern DwIfExists dw_if_exists_named(const char *name);

extern text *dw_options_sql(const DwOptions *options, ArrayType **args);
extern int	dw_options_task(const DwOptions *options, DwNewTask *task);
extern void dw_options_message(const DwOptions *options, DwNewTask *task);
extern void dw_options_set_due(const DwOptions *options, DwNewTask *task);
extern void dw_options_set(const DwOptions *options, DwNewTask *task);
extern void dw_new_task_unique_for(DwNewTask *task, int64 us);
extern void dw_new_task_payload(DwNewTask *task, Datum payload);
extern void dw_new_task_queue(DwNewTask *task, const char *name, int16 priority);

#endif							/* DW_OPTIONS_H */
