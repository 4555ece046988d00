/*-------------------------------------------------------------------------
 *
 * plans.c
 *	  Runs the SQL of tasks by plans that an executor keeps.
 *
 * Run by executors, and without kept plans by sessions that run a task at once.
 *
 * A text that comes again is run by a saved SPI plan, like a client's prepared statement.  If the
 * constants can be taken out of a text (constants.c), the text without constants is looked up.  Its
 * plan is generic from the first run on.  README.md describes which texts have plans, and when
 * plans are forgotten: a task's SQL must mean the same as if it were parsed at the time of the run.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "catalog/namespace.h"
#include "common/hashfn.h"
#include "executor/spi_priv.h"
#include "mb/pg_wchar.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/settings.h"
#include "statement.h"

/* Limit for a text that can have a plan, in bytes; longer texts hardly come twice */
#define MAX_TEXT		(32 * 1024)
/* Limit for the number of entries: the limit of memory hardly counts entries without a plan */
#define MAX_PLANS		1000
/*
 * Limit for the age of a plan, in microseconds: a table may grow, and the result of a function that
 * is wrongly declared immutable must not stay in the plan
 */
#define MAX_AGE_US		USECS_PER_SEC
/* One plan may take at most 1/LARGEST_PART of delay_wheel.plan_cache */
#define LARGEST_PART	4
/* Number of slots for hashes of texts that came once */
#define SEEN			1024

/* Identifies a plan */
typedef struct Key
{
	uint64		hash;			/* hash of all members below */
	const char *sql;
	size_t		length;
	const char *search_path;
	int			date_order;		/* settings for reading constants */
	int			interval_style;
	const pg_tz *zone;
	int			nargs;
	const Oid  *types;			/* types of the arguments */
	bool		any_values;		/* the arguments are constants taken out of the text */
} Key;

/* An entry for a text that came again, with its plan, if the text can have a plan */
typedef struct KeptPlan
{
	uint64		hash;			/* hash key, must be first */
	dlist_node	node;
	MemoryContext context;		/* holds key and binding */
	Key			key;
	DwBinding  *binding;		/* NULL: no arguments */
	SPIPlanPtr	spi;			/* NULL: the text cannot have a plan */
	DwOpenPlace open;			/* the open query of the plan, in a batch */
	TimestampTz made;			/* statement timestamp at which it was made */
	int			measured;		/* generation of the plan for which "bytes" was measured */
	Size		bytes;			/* memory of the entry and its plan */
} KeptPlan;

/* All entries; the most recently used entry comes first */
static dlist_head plans = DLIST_STATIC_INIT(plans);
static HTAB *by_hash = NULL;
static MemoryContext plans_context = NULL;
static Size total_bytes = 0;
static int	nplans = 0;

/* Hashes of texts that have come once recently.  The lower half of a hash chooses the slot */
static uint32 seen[SEEN];

/* True if a catalog has changed, so that all plans must be forgotten */
static bool outdated = false;

/* PgReloadTime (when the settings were last read) of the plans */
static TimestampTz settings_read = 0;

/* The system caches of names, types and privileges */
static const int catalogs[] = {
	AUTHOID, AUTHMEMMEMROLE, CASTSOURCETARGET, CLAOID, COLLOID, ENUMOID,
	NAMESPACEOID, OPEROID, PROCOID, RELOID, TSCONFIGOID, TSDICTOID, TYPEOID
};

/*---- Entries ----*/

/* Called when an entry of one of these caches changes. */
static void
note_change(Datum arg, int cache, uint32 hash)
{
	outdated = true;
}

/* Initializes this file, at the first task of this executor. */
static void
begin_keeping(void)
{
	HASHCTL		info = {.keysize = sizeof(uint64), .entrysize = sizeof(KeptPlan)};

	plans_context = AllocSetContextCreate(TopMemoryContext, "delay_wheel plans",
										  ALLOCSET_DEFAULT_SIZES);
	for (int i = 0; i < lengthof(catalogs); i++)
		CacheRegisterSyscacheCallback(catalogs[i], note_change, (Datum) 0);
	settings_read = PgReloadTime;
	info.hcxt = plans_context;
	by_hash = hash_create("delay_wheel plans", MAX_PLANS, &info,
						  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* Frees the plan of an entry, and keeps the entry. */
static void
free_plan(KeptPlan *plan)
{
	if (plan->open.query != NULL)
		dw_open_query_close(plan->open.query);
	if (plan->spi != NULL)
		(void) SPI_freeplan(plan->spi);
	plan->spi = NULL;
}

/* Removes an entry with its plan. */
static void
forget_plan(KeptPlan *plan)
{
	free_plan(plan);
	MemoryContextDelete(plan->context);
	dlist_delete(&plan->node);
	total_bytes -= plan->bytes;
	nplans--;
	(void) hash_search(by_hash, &plan->hash, HASH_REMOVE, NULL);
}

/*
 * Forgets all plans if a catalog has changed, or the settings were read again, and the hashes of
 * texts: no plan is made while such changes come more often than texts come again.
 */
static void
forget_outdated(void)
{
	if (!outdated && settings_read == PgReloadTime)
		return;
	while (!dlist_is_empty(&plans))
		/* cppcheck-suppress nullPointer ; the macro asks NULL for a type */
		forget_plan(dlist_head_element(KeptPlan, node, &plans));
	memset(seen, 0, sizeof(seen));
	dw_constants_forget_form();
	outdated = false;
	settings_read = PgReloadTime;
}

static uint64
add_hash(uint64 hash, const void *data, size_t length)
{
	return hash_bytes_extended((const unsigned char *) data, length, hash);
}

/* Fills in the key of a text with these arguments.  Copies nothing. */
static void
make_key(const char *sql, ParamListInfo params, bool any_values, Key *key)
{
	key->sql = sql;
	key->any_values = any_values;
	key->length = strlen(sql);
	key->search_path = namespace_search_path;
	key->date_order = DateOrder;
	key->interval_style = IntervalStyle;
	key->zone = session_timezone;
	key->types = dw_args_types(params, &key->nargs);
	key->hash = add_hash(any_values, sql, key->length);
	key->hash = add_hash(key->hash, key->search_path, strlen(key->search_path));
	key->hash = add_hash(key->hash, &key->zone, sizeof(key->zone)) + DateOrder + 8 * IntervalStyle;
	if (key->nargs > 0)
		key->hash = add_hash(key->hash, key->types, key->nargs * sizeof(Oid));
}

static bool
same_key(const Key *a, const Key *b)
{
	return a->length == b->length && a->nargs == b->nargs &&
		a->any_values == b->any_values && a->date_order == b->date_order &&
		a->interval_style == b->interval_style && a->zone == b->zone &&
		memcmp(a->sql, b->sql, a->length) == 0 &&
		strcmp(a->search_path, b->search_path) == 0 &&
		(a->nargs == 0 || memcmp(a->types, b->types, a->nargs * sizeof(Oid)) == 0);
}

/* Returns true if a text with this hash has come recently.  Notes that the text has come. */
static bool
note_seen(uint64 hash)
{
	uint32	   *known = &seen[hash % SEEN];
	uint32		high = (uint32) (hash >> 32);
	bool		result = *known == high;

	*known = high;
	return result;
}

static CachedPlanSource *
plan_source_of(const KeptPlan *plan)
{
	return linitial(SPI_plan_get_plan_sources(plan->spi));
}

/* Measures the memory of an entry with its plan, and adds it to the total. */
static void
measure(KeptPlan *plan)
{
	Size		bytes = MemoryContextMemAllocated(plan->context, true);

	if (plan->spi != NULL)
	{
		CachedPlanSource *source = plan_source_of(plan);

		plan->measured = source->generation;
		bytes += MemoryContextMemAllocated(plan->spi->plancxt, true) +
			MemoryContextMemAllocated(source->context, true);
		if (source->gplan != NULL)
			bytes += MemoryContextMemAllocated(source->gplan->context, true);
	}
	total_bytes += bytes - plan->bytes;
	plan->bytes = bytes;
}

/*
 * Measures the first entry of the list, and frees its plan if it is too large.  Forgets the last
 * entries while all entries together take too much memory.
 */
static void
settle_plan(KeptPlan *plan)
{
	Size		limit = (Size) dw_plan_cache * 1024;

	measure(plan);
	if (plan->bytes > limit / LARGEST_PART)
	{
		free_plan(plan);
		measure(plan);
	}
	while ((total_bytes > limit || nplans > MAX_PLANS) && nplans > 1)
		/* cppcheck-suppress nullPointer */
		forget_plan(dlist_tail_element(KeptPlan, node, &plans));
}

/*---- Texts that can have a plan ----*/

/* Returns true if the text contains one of these words, as a whole word. */
static bool
says_moment(const char *text)
{
	static const char *const words[] = {"now", "today", "tomorrow", "yesterday"};

	while (*text != '\0')
	{
		const char *end = text;

		while (isalpha((unsigned char) *end))
			end++;
		for (int i = 0; i < lengthof(words); i++)
			if (end - text == strlen(words[i]) &&
				pg_strncasecmp(text, words[i], end - text) == 0)
				return true;
		text = Max(end, text + 1);
	}
	return false;
}

/*
 * Returns true if the text contains a string, such as 'today', that may mean the time when it is
 * read.  Returns true for any string U&'...', which is not decoded here.
 */
static bool
has_moment(const char *sql)
{
	DwTokens	tokens;
	bool		result = false;

	dw_tokens_begin(&tokens, sql);
	while (!result && dw_tokens_next(&tokens))
		result = tokens.token == DW_TOKEN_USCONST ||
			(tokens.token == DW_TOKEN_SCONST && says_moment(tokens.value.str));
	dw_tokens_end(&tokens);
	return result;
}

/* Returns true if the text is a single query or change of data, and has the same meaning later. */
static bool
can_be_kept(const char *sql)
{
	ErrorContextCallback callback;
	List	   *statements;
	Node	   *stmt;

	dw_push_context(&callback, dw_position_callback, sql);
	statements = raw_parser(sql, RAW_PARSE_DEFAULT);
	error_context_stack = callback.previous;
	if (list_length(statements) != 1)
		return false;
	stmt = linitial_node(RawStmt, statements)->stmt;
	switch (nodeTag(stmt))
	{
		case T_SelectStmt:
			while (((SelectStmt *) stmt)->op != SETOP_NONE)
				stmt = (Node *) ((SelectStmt *) stmt)->larg;
			/* SELECT INTO creates a table */
			if (((SelectStmt *) stmt)->intoClause != NULL)
				return false;
			break;
		case T_InsertStmt:
		case T_UpdateStmt:
		case T_DeleteStmt:
		case T_MergeStmt:
			break;
		default:
			return false;
	}
	return !has_moment(sql);
}

/*---- Making plans ----*/

/* Prepares a plan.  If any_values is true, the plan is generic from the first run on. */
static SPIPlanPtr
prepare(const char *sql, DwBinding *binding, bool any_values)
{
	SPIPrepareOptions options = {
		.parseMode = RAW_PARSE_DEFAULT,
		.cursorOptions = CURSOR_OPT_PARALLEL_OK
	};
	SPIPlanPtr	spi;

	if (binding != NULL)
	{
		options.parserSetup = dw_args_parser_setup;
		options.parserSetupArg = binding;
	}
	if (any_values)
		options.cursorOptions |= CURSOR_OPT_GENERIC_PLAN;
	spi = SPI_prepare_extended(sql, &options);
	if (spi == NULL)
		elog(ERROR, "could not prepare task: %s", SPI_result_code_string(SPI_result));
	return spi;
}

/* Returns true if the scan finds at most one row: it compares all columns of a unique index. */
static bool
finds_one_row(const IndexScan *scan)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(scan->indexid));
	Form_pg_index index;
	Bitmapset  *given = NULL;
	ListCell   *lc;
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	foreach(lc, scan->indexqual)
	{
		OpExpr	   *qual = lfirst(lc);

		if (IsA(qual, OpExpr) && IsA(linitial(qual->args), Var) &&
			get_mergejoin_opfamilies(qual->opno) != NIL)
			given = bms_add_member(given, linitial_node(Var, qual->args)->varattno);
	}
	index = (Form_pg_index) GETSTRUCT(tuple);
	result = index->indisunique && bms_num_members(given) == index->indnkeyatts;
	ReleaseSysCache(tuple);
	return result;
}

/* Returns true if this plan is the best plan for all values of its parameters. */
static bool
suits_any_values(const PlannedStmt *stmt)
{
	const Plan *plan = stmt->planTree;

	if (stmt->commandType == CMD_UTILITY)
		return false;
	if (stmt->relationOids == NIL)
		return true;
	if (!IsA(plan, ModifyTable) || stmt->subplans != NIL ||
		list_length(((const ModifyTable *) plan)->resultRelations) != 1)
		return false;
	plan = outerPlan(plan);
	return IsA(plan, IndexScan) && finds_one_row((const IndexScan *) plan);
}

/* Returns true if the generic plan of a single statement suits all values of its parameters. */
static bool
is_sure(SPIPlanPtr spi)
{
	CachedPlan *plan = SPI_plan_get_cached_plan(spi);
	bool		result = plan != NULL && list_length(plan->stmt_list) == 1 &&
		suits_any_values(linitial_node(PlannedStmt, plan->stmt_list));

	if (plan != NULL)
		ReleaseCachedPlan(plan, NULL);
	return result;
}

/*
 * Adds an entry for a text, with a plan if the text can have a plan.  Until the entry is complete,
 * its memory belongs to the transaction, so that an error leaves nothing behind.
 */
static KeptPlan *
add_plan(const Key *key, ParamListInfo params)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "delay_wheel plan",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	DwBinding  *binding = NULL;
	SPIPlanPtr	spi = NULL;
	Key			copy = *key;
	KeptPlan   *plan;

	copy.sql = pstrdup(key->sql);
	copy.search_path = pstrdup(key->search_path);
	if (key->nargs > 0)
		copy.types = memcpy(palloc(key->nargs * sizeof(Oid)), key->types, key->nargs * sizeof(Oid));
	if (params != NULL)
		binding = dw_args_binding(params, copy.sql);
	MemoryContextSwitchTo(old);
	if (can_be_kept(copy.sql))
	{
		if (binding != NULL)
			dw_args_bind(binding, params);
		spi = prepare(copy.sql, binding, key->any_values);
		if (key->any_values && !is_sure(spi))
		{
			(void) SPI_freeplan(spi);
			spi = NULL;
		}
	}

	plan = hash_search(by_hash, &copy.hash, HASH_ENTER, NULL);
	plan->context = context;
	plan->key = copy;
	plan->binding = binding;
	plan->spi = spi;
	plan->open = (DwOpenPlace) {.refused = -1};
	plan->made = GetCurrentStatementStartTimestamp();
	plan->measured = -1;
	plan->bytes = 0;
	MemoryContextSetParent(context, plans_context);
	if (spi != NULL)
		(void) SPI_keepplan(spi);
	dlist_push_head(&plans, &plan->node);
	nplans++;
	settle_plan(plan);
	return plan;
}

/*
 * Returns the entry for a text, bound to these arguments.  Adds the entry if the text came before,
 * and replaces an old one.  Returns NULL for a new text, or if another text has the same hash.
 */
static KeptPlan *
find_plan(const Key *key, ParamListInfo params)
{
	KeptPlan   *plan = hash_search(by_hash, &key->hash, HASH_FIND, NULL);
	int64		age;

	if (plan == NULL)
		return note_seen(key->hash) ? add_plan(key, params) : NULL;
	if (!same_key(&plan->key, key))
		return NULL;
	age = GetCurrentStatementStartTimestamp() - plan->made;
	if (age > MAX_AGE_US || age < 0)
	{
		forget_plan(plan);
		return add_plan(key, params);
	}
	dlist_move_head(&plans, &plan->node);
	if (plan->spi != NULL && plan->binding != NULL)
		dw_args_bind(plan->binding, params);
	return plan;
}

/*---- Running ----*/

/* Runs the plan of an entry.  Returns false if there is no entry, or no plan. */
static bool
run(KeptPlan *plan, const SPIExecuteOptions *options, int *result)
{
	if (plan == NULL || plan->spi == NULL)
		return false;
	if (!dw_open_query_run(&plan->open, plan->spi, options, result))
		*result = SPI_execute_plan_extended(plan->spi, options);
	if (plan_source_of(plan)->generation != plan->measured)
		settle_plan(plan);
	return true;
}

/*
 * Error context callback: translates the position of an error in the text without constants to the
 * task's own SQL.  arg is a DwConstants.
 */
static void
constants_callback(void *arg)
{
	const DwConstants *constants = arg;
	int			position = getinternalerrposition();
	int			location;

	if (position <= 0)
		return;
	location = pg_mbcharcliplen(constants->sql, strlen(constants->sql), position - 1);
	location = dw_constants_location(constants, location);
	internalerrposition(pg_mbstrlen_with_len(constants->original, location) + 1);
	internalerrquery(constants->original);
}

/* Runs a text by the plan for the text without its constants.  Returns false if there is none. */
static bool
run_without_constants(const char *sql, const SPIExecuteOptions *options, int *result)
{
	SPIExecuteOptions with_constants = *options;
	DwConstants constants;
	ErrorContextCallback callback;
	bool		found;
	KeptPlan   *plan;
	Key			key;

	dw_push_context(&callback, dw_position_callback, sql);
	found = dw_constants_take(sql, &constants);
	error_context_stack = callback.previous;
	if (!found)
		return false;
	with_constants.params = dw_args_constants(&constants);
	make_key(constants.sql, with_constants.params, true, &key);
	dw_push_context(&callback, constants_callback, &constants);
	plan = find_plan(&key, with_constants.params);
	error_context_stack = callback.previous;
	return run(plan, &with_constants, result);
}

/*
 * Runs a task's SQL by a kept plan, or makes a plan if the text came before.  Returns false if
 * nothing was run.
 *
 * Only for executors, inside SPI_connect(), at the beginning of a task: the session's settings must
 * be unchanged, except settings that are part of the key, and settings without effect on plans (see
 * kept_settings.c).
 */
static bool
run_plans(const char *sql, const SPIExecuteOptions *options, int *result)
{
	Key			key;

	if (dw_plan_cache == 0 || strnlen(sql, MAX_TEXT) == MAX_TEXT)
		return false;
	if (by_hash == NULL)
		begin_keeping();
	forget_outdated();
	if (options->params == NULL && run_without_constants(sql, options, result))
		return true;
	make_key(sql, options->params, false, &key);
	return run(find_plan(&key, options->params), options, result);
}

/*---- Runs the SQL of a task ----*/

/*
 * The last utility statement that has ended in this process.  The history shows its name, but SPI
 * does not return which statement it has run.  So the utility hook (control/ddl.c) notes it.
 */
DwSpiResult dw_last_utility = {.tag = CMDTAG_UNKNOWN};

/*
 * Notes that a utility statement of this process has ended.  For EXECUTE, notes the executed
 * statement, as psql shows it.  qc may be NULL.
 */
void
dw_spi_note_utility(CommandTag tag, const QueryCompletion *qc)
{
	bool		known = qc != NULL && qc->commandTag != CMDTAG_UNKNOWN;

	dw_last_utility.tag = known && tag == CMDTAG_EXECUTE ? qc->commandTag : tag;
	dw_last_utility.rows = known ? qc->nprocessed : 0;
}

/* Returns true if SPI's code is for a statement that can return rows. */
static bool
returns_rows(int code)
{
	return code == SPI_OK_SELECT || code == SPI_OK_UTILITY || code == SPI_OK_INSERT_RETURNING ||
		code == SPI_OK_UPDATE_RETURNING || code == SPI_OK_DELETE_RETURNING ||
		code == SPI_OK_MERGE_RETURNING;
}

/* Returns the command of a statement that is no utility statement, by SPI's code. */
static CommandTag
tag_of(int code)
{
	static const CommandTag tags[] = {
		[SPI_OK_SELECT] = CMDTAG_SELECT,
		[SPI_OK_SELINTO] = CMDTAG_SELECT_INTO,
		[SPI_OK_INSERT] = CMDTAG_INSERT,
		[SPI_OK_INSERT_RETURNING] = CMDTAG_INSERT,
		[SPI_OK_UPDATE] = CMDTAG_UPDATE,
		[SPI_OK_UPDATE_RETURNING] = CMDTAG_UPDATE,
		[SPI_OK_DELETE] = CMDTAG_DELETE,
		[SPI_OK_DELETE_RETURNING] = CMDTAG_DELETE,
		[SPI_OK_MERGE] = CMDTAG_MERGE,
		[SPI_OK_MERGE_RETURNING] = CMDTAG_MERGE
	};

	return code < (int) lengthof(tags) ? tags[code] : CMDTAG_UNKNOWN;
}

/* Ends a call of SPI.  Raises an error for a result by which SPI reports a refused statement. */
static DwSpiResult
end(int result, DwFirstRow *row)
{
	DwSpiResult done = {.rows = SPI_processed};

	if (result == SPI_ERROR_TRANSACTION)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("transaction control is not possible in a task")));
	if (result == SPI_ERROR_COPY)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot COPY to or from the client in a task")));
	if (result < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not execute task: %s", SPI_result_code_string(result))));
	if (result == SPI_OK_UTILITY)
		done = dw_last_utility;
	else
		done.tag = tag_of(result);
	SPI_finish();
	if (returns_rows(result))
		done.first_row = dw_first_row_take(row);
	return done;
}

/*
 * Runs a task's SQL in the current transaction, as the current user.  Raises the errors of the SQL.
 * Drops rows that the SQL returns, since they may be huge, but keeps the first row of the last
 * statement if it has at most max_row bytes (0: keeps no row).  may_keep: a kept plan may run the
 * SQL, since the caller obeys the rules of run_plans().
 */
DwSpiResult
dw_spi_run(const char *sql, ParamListInfo params, int max_row, bool may_keep)
{
	DwFirstRow	row;
	SPIExecuteOptions options = {.params = params, .dest = &row.pub};
	int			result;

	dw_first_row_init(&row, max_row);
	(void) SPI_connect();
	if (!may_keep || !run_plans(sql, &options, &result))
		result = SPI_execute_extended(sql, &options);
	return end(result, &row);
}
