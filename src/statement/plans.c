/*-------------------------------------------------------------------------
 *
 * plans.c
 *	  Plans of tasks' SQL that an executor keeps.
 *
 * Run by executors.
 *
 * To parse, analyze and plan a short statement costs several times what it
 * costs to run it.  A text that comes again is run by a saved SPI plan, as a
 * client's prepared statement would be: the first runs with arguments are
 * planned for their values, later ones perhaps by a generic plan.
 *
 * A task's SQL means what it would mean if it were parsed now.  So all is
 * forgotten when
 *
 * - anything changes in a catalog that names, types or privileges are looked
 *	 up in: a new table or function can come before the one that was meant,
 *	 and PostgreSQL's plan cache looks only after what a plan refers to;
 * - the server's settings are read again: constants were read under them;
 *
 * and a plan is made anew after a second.  Else one that was made while its
 * table was small would be in use while that is being filled, until somebody
 * analyzes it, and what a function that calls itself immutable has said would
 * be frozen.
 *
 * Only single queries and changes of data are kept: anything else has to be
 * looked at when it runs.  So does a constant such as 'today', which is read
 * when the text is analyzed.
 *
 * A text that comes for the first time leaves nothing but a hash: with
 * constants in the texts, most never come again.  But if it is of a form whose
 * constants can be taken out (constants.c), it is looked at without them.
 * Such a plan is kept only if it cannot matter what the constants are: it
 * finds its row by a unique index, or reads no table.  Then the generic plan
 * is as good as any, and no choice of the planner is lost.
 *
 * delay_run() does not come by here, so no plan is used while it is in use.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_index.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "executor/spi_priv.h"
#include "lib/ilist.h"
#include "mb/pg_wchar.h"
#include "nodes/plannodes.h"
#include "parser/parser.h"
#include "parser/scanner.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "../base/settings.h"
#include "args.h"
#include "constants.h"
#include "plans.h"

/* Longer texts hardly come twice. */
#define MAX_TEXT		(32 * 1024)
/* Texts without a plan need little memory; this is what limits their number. */
#define MAX_PLANS		1000
#define MAX_AGE_US		USECS_PER_SEC
/* What takes more than this part of the memory is not kept. */
#define LARGEST_PART	4
/* So many texts are known to have been seen. */
#define SEEN			1024

/* The lexer's codes for '' and U&''; sqlcheck.c says why they are known. */
#define SCONST_TOKEN	261
#define USCONST_TOKEN	262

/* What a plan is for. */
typedef struct Key
{
	uint64		hash;
	const char *sql;
	size_t		length;
	const char *search_path;
	int			nargs;
	const Oid  *types;
	bool		any_values;		/* for constants, whatever they are */
} Key;

/* A text that came again; with its plan, unless it is not to have one. */
typedef struct KeptPlan
{
	uint64		hash;			/* must be first */
	dlist_node	node;
	MemoryContext context;		/* of key and binding */
	Key			key;
	DwBinding  *binding;		/* NULL without arguments */
	SPIPlanPtr	spi;			/* NULL: to be run without */
	TimestampTz made;
	int			measured;		/* the plan's generation then */
	Size		bytes;
} KeptPlan;

/* A task's SQL, and what it is without its constants. */
typedef struct TakenText
{
	const char *sql;
	const DwConstants *constants;
} TakenText;

/* The one that was used last comes first. */
static dlist_head plans = DLIST_STATIC_INIT(plans);
static HTAB *by_hash = NULL;
static MemoryContext plans_context = NULL;
static Size total_bytes = 0;
static int	nplans = 0;

/* Hashes of texts seen lately */
static uint32 seen[SEEN];

/* All is to be forgotten. */
static bool outdated = false;
static TimestampTz settings_read = 0;

/* Where names, types and privileges are looked up */
static const int catalogs[] = {
	AUTHOID, AUTHMEMMEMROLE, CASTSOURCETARGET, CLAOID, COLLOID, ENUMOID,
	NAMESPACEOID, OPEROID, PROCOID, RELOID, TSCONFIGOID, TSDICTOID, TYPEOID
};

static void
note_change(Datum arg, int cache, uint32 hash)
{
	outdated = true;
}

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

static void
free_plan(KeptPlan *plan)
{
	if (plan->spi != NULL)
		(void) SPI_freeplan(plan->spi);
	plan->spi = NULL;
}

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
 * What has been seen is forgotten, too: if changes come faster than texts come
 * again, nothing is prepared.
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
	outdated = false;
	settings_read = PgReloadTime;
}

static uint64
add_hash(uint64 hash, const void *data, size_t length)
{
	return hash_bytes_extended((const unsigned char *) data, length, hash);
}

static void
make_key(const char *sql, ParamListInfo params, bool any_values, Key *key)
{
	key->sql = sql;
	key->any_values = any_values;
	key->length = strlen(sql);
	key->search_path = namespace_search_path;
	key->types = dw_args_types(params, &key->nargs);
	key->hash = add_hash(any_values, sql, key->length);
	key->hash = add_hash(key->hash, key->search_path, strlen(key->search_path));
	if (key->nargs > 0)
		key->hash = add_hash(key->hash, key->types, key->nargs * sizeof(Oid));
}

static bool
same_key(const Key *a, const Key *b)
{
	return a->length == b->length && a->nargs == b->nargs &&
		a->any_values == b->any_values &&
		memcmp(a->sql, b->sql, a->length) == 0 &&
		strcmp(a->search_path, b->search_path) == 0 &&
		(a->nargs == 0 || memcmp(a->types, b->types, a->nargs * sizeof(Oid)) == 0);
}

static void
copy_key(const Key *key, Key *copy)
{
	*copy = *key;
	copy->sql = pstrdup(key->sql);
	copy->search_path = pstrdup(key->search_path);
	if (key->nargs > 0)
		copy->types = memcpy(palloc(key->nargs * sizeof(Oid)),
							 key->types, key->nargs * sizeof(Oid));
}

/* Was it seen lately?  From now on it was. */
static bool
note_seen(uint64 hash)
{
	uint32	   *place = &seen[hash % SEEN];
	uint32		high = (uint32) (hash >> 32);
	bool		result = *place == high;

	*place = high;
	return result;
}

static CachedPlanSource *
plan_source_of(const KeptPlan *plan)
{
	return linitial(SPI_plan_get_plan_sources(plan->spi));
}

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

/* Makes room for the entry that was used last, which is the first one. */
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

/* Does the text say one of these words, by itself? */
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
 * Is there a constant in the text that may stand for the time at which it is
 * read?  One that is escaped by U& might, for what we know.
 */
static bool
has_moment(const char *sql)
{
	core_yyscan_t scanner;
	core_yy_extra_type extra;
	core_YYSTYPE value;
	YYLTYPE		location;
	bool		result = false;
	int			token;

	scanner = scanner_init(sql, &extra, &ScanKeywords, ScanKeywordTokens);
	extra.escape_string_warning = false;
	while (!result && (token = core_yylex(&value, &location, scanner)) != 0)
		result = token == USCONST_TOKEN ||
			(token == SCONST_TOKEN && says_moment(value.str));
	scanner_finish(scanner);
	return result;
}

/* The position of a syntax error is one in the task's SQL, as SPI shows it. */
static void
syntax_callback(void *arg)
{
	internalerrposition(geterrposition());
	internalerrquery((const char *) arg);
	errposition(0);
}

static void
push_syntax_context(ErrorContextCallback *callback, const char *sql)
{
	callback->previous = error_context_stack;
	callback->callback = syntax_callback;
	callback->arg = unconstify(char *, sql);
	error_context_stack = callback;
}

static List *
parse(const char *sql)
{
	ErrorContextCallback callback;
	List	   *statements;

	push_syntax_context(&callback, sql);
	statements = raw_parser(sql, RAW_PARSE_DEFAULT);
	error_context_stack = callback.previous;
	return statements;
}

/* The lexer may find something wrong, too. */
static bool
take_constants(const char *sql, DwConstants *constants)
{
	ErrorContextCallback callback;
	bool		taken;

	push_syntax_context(&callback, sql);
	taken = dw_constants_take(sql, constants);
	error_context_stack = callback.previous;
	return taken;
}

static bool
selects_into(const SelectStmt *stmt)
{
	while (stmt->op != SETOP_NONE)
		stmt = stmt->larg;
	return stmt->intoClause != NULL;
}

/* A single query or change of data that means the same when it comes again? */
static bool
can_be_kept(const char *sql)
{
	List	   *statements = parse(sql);
	Node	   *stmt;

	if (list_length(statements) != 1)
		return false;
	stmt = linitial_node(RawStmt, statements)->stmt;
	switch (nodeTag(stmt))
	{
		case T_SelectStmt:
			if (selects_into((SelectStmt *) stmt))
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

/* Are all columns of a unique index given? */
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

/* Is there no better plan, whatever the values are? */
static bool
suits_any_values(const PlannedStmt *stmt)
{
	const Plan *plan = stmt->planTree;

	if (stmt->relationOids == NIL)
		return true;
	if (!IsA(plan, ModifyTable) || stmt->subplans != NIL ||
		list_length(((const ModifyTable *) plan)->resultRelations) != 1)
		return false;
	plan = outerPlan(plan);
	return IsA(plan, IndexScan) && finds_one_row((const IndexScan *) plan);
}

static bool
is_sure(SPIPlanPtr spi)
{
	CachedPlan *plan = SPI_plan_get_cached_plan(spi);
	bool		result = plan != NULL && list_length(plan->stmt_list) == 1 &&
		linitial_node(PlannedStmt, plan->stmt_list)->commandType != CMD_UTILITY &&
		suits_any_values(linitial(plan->stmt_list));

	if (plan != NULL)
		ReleaseCachedPlan(plan, NULL);
	return result;
}

/*
 * Enters the text, with a plan if it can have one.  All is the transaction's
 * until it is complete, so an error leaves nothing.
 */
static KeptPlan *
add_plan(const Key *key, ParamListInfo params)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "delay_wheel plan",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	DwBinding  *binding = NULL;
	SPIPlanPtr	spi = NULL;
	Key			copy;
	KeptPlan   *plan;

	copy_key(key, &copy);
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
 * Finds the text, made ready for these arguments; or enters it, if it was seen
 * before.  NULL if there is none, or only one that happens to have its hash.
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

static bool
run(KeptPlan *plan, const SPIExecuteOptions *options, int *result)
{
	if (plan == NULL || plan->spi == NULL)
		return false;
	*result = SPI_execute_plan_extended(plan->spi, options);
	if (plan_source_of(plan)->generation != plan->measured)
		settle_plan(plan);
	return true;
}

/* An error in the text without its constants is shown in the task's own. */
static void
constants_callback(void *arg)
{
	const TakenText *taken = arg;
	int			position = getinternalerrposition();
	int			location;

	if (position <= 0)
		return;
	location = pg_mbcharcliplen(taken->constants->sql, strlen(taken->constants->sql), position - 1);
	location = dw_constants_location(taken->constants, location);
	internalerrposition(pg_mbstrlen_with_len(taken->sql, location) + 1);
	internalerrquery(taken->sql);
}

/*
 * The constants are the arguments.  Returns NULL also if the text without them
 * came for the first time.
 */
static KeptPlan *
find_without_constants(const char *sql, const DwConstants *constants, ParamListInfo params)
{
	TakenText	taken = {.sql = sql, .constants = constants};
	ErrorContextCallback callback = {
		.previous = error_context_stack,
		.callback = constants_callback,
		.arg = &taken
	};
	KeptPlan   *plan;
	Key			key;

	make_key(constants->sql, params, true, &key);
	error_context_stack = &callback;
	plan = find_plan(&key, params);
	error_context_stack = callback.previous;
	return plan;
}

static bool
run_without_constants(const char *sql, const SPIExecuteOptions *options, int *result)
{
	SPIExecuteOptions with_constants = *options;
	DwConstants constants;

	if (!take_constants(sql, &constants))
		return false;
	with_constants.params = dw_args_constants(&constants);
	return run(find_without_constants(sql, &constants, with_constants.params),
			   &with_constants, result);
}

/*
 * Runs a task's SQL by a plan that is kept, if there is one or it is worth
 * one; *result is what SPI says.  False if nothing was done: the text is to be
 * run without.
 *
 * Executors only, inside SPI_connect(), at the beginning of a task: settings
 * are the session's own but for search_path.
 */
bool
dw_plans_run(const char *sql, const SPIExecuteOptions *options, int *result)
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
