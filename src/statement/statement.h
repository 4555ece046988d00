/*-------------------------------------------------------------------------
 *
 * statement.h
 *	  A task's SQL text: arguments, checks, plans, runs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_STATEMENT_H
#define DW_STATEMENT_H

#include "postgres.h"

#include "executor/spi.h"
#include "parser/parse_node.h"
#include "parser/parser.h"
#include "parser/scanner.h"
#include "utils/guc.h"
#include "utils/jsonb.h"

/*---- constants.c: takes the constants out of an SQL text, so that texts can share a plan ----*/

/* Limit for one text: a text with more constants is not changed */
#define DW_MAX_CONSTANTS	32

/* An SQL text, and the constants that were taken out of it */
typedef struct DwConstants
{
	const char *original;		/* the text */
	char	   *sql;			/* the text with $1, $2, ... in place of the constants */
	int			count;
	Oid			types[DW_MAX_CONSTANTS];	/* InvalidOid: the type unknown */
	Datum		values[DW_MAX_CONSTANTS];	/* C strings for the type unknown */
	int			locations[DW_MAX_CONSTANTS];	/* byte offsets in the original text */
	int			ends[DW_MAX_CONSTANTS]; /* offsets of the next tokens in the original text */
	int			new_ends[DW_MAX_CONSTANTS]; /* offsets of the same tokens in sql */
} DwConstants;

extern bool dw_constants_take(const char *sql, DwConstants *constants);
extern void dw_constants_forget_form(void);
extern int	dw_constants_location(const DwConstants *constants, int location);

/*---- args.c: the arguments of a task: the values of $1, $2, ... in its SQL ----*/

/* Limit for the number of arguments of a task */
#define DW_MAX_ARGS		65535

extern void dw_args_require_limit(int count);
extern int	dw_args_collect(FunctionCallInfo fcinfo, int first, Datum *args, Datum *types);
extern int	dw_args_parse(ArrayType *args, ArrayType *types, bool are_row_types,
						  Datum *stored_args, Datum *stored_types);

/* How to write values of a type as text, looked up once for many values */
typedef struct DwWriter
{
	bool		needs_fixed_settings;	/* the text form depends on settings */
	FmgrInfo	output;			/* the type's output function */
} DwWriter;

extern void dw_writer_init(DwWriter *writer, Oid type, MemoryContext context);

/* An argument for a task's row */
typedef struct DwArgument
{
	Oid			type;			/* UNKNOWNOID: an untyped literal, a C string */
	Datum		value;
	bool		isnull;
	const DwWriter *writer;		/* the type's writer; NULL: not looked up yet */
} DwArgument;

extern Datum dw_argument_text(const DwArgument *argument);
extern Datum dw_args_texts(const DwArgument *arguments, int count);
extern ParamListInfo dw_args_params(const char *sql,
									Datum args, bool args_null,
									Datum types, bool types_null);
extern bool dw_args_any_untyped(Datum args, bool args_null, Datum types, bool types_null);
extern ParamListInfo dw_args_constants(const DwConstants *constants);
extern const Oid *dw_args_types(ParamListInfo params, int *nargs);

/* Connects the $n of a statement with the values of one run, see args.c */
typedef struct DwBinding DwBinding;

extern DwBinding *dw_args_binding(ParamListInfo params, const char *sql);
extern void dw_args_bind(DwBinding *binding, ParamListInfo params);
extern void dw_args_parser_setup(struct ParseState *pstate, void *binding);
extern List *dw_args_analyze(RawStmt *raw, const char *sql, ParamListInfo params);
extern int	dw_reading_as;

/*---- first_row.c: the first row that the SQL of a task returns ----*/

/* A receiver that keeps the first row of the last statement, and drops all other rows */
typedef struct DwFirstRow
{
	DestReceiver pub;			/* must be first */
	int			limit;			/* limit for the bytes of the row; 0: keep no row */
	MemoryContext context;		/* memory for the row */
	bool		met;			/* the last statement has returned a row */
	TupleDesc	names;			/* columns of the statement, with their names */
	TupleDesc	desc;			/* a copy of names, for the tuple */
	HeapTuple	tuple;			/* the first row; NULL: it is too long */
	Jsonb	   *jsonb;			/* the row as jsonb */
} DwFirstRow;

extern void dw_first_row_init(DwFirstRow *row, int limit);
extern void dw_first_row_forget(DestReceiver *receiver);
extern Jsonb *dw_first_row_take(DwFirstRow *row);
extern Jsonb *dw_jsonb_within(const char *json, int limit);

/*---- kept_settings.c ----*/

extern ArrayType *dw_kept_settings_default(void);
extern void dw_kept_settings_check(ArrayType *names);
extern Jsonb *dw_kept_settings_take(ArrayType *names, const char *const *others, int nothers);
extern bool dw_kept_settings_set(Jsonb *settings, GucAction action);

/*---- named.c: arguments of a task that have names ----*/

extern text *dw_named_numbered(const text *sql, Jsonb *values, ArrayType **args);

/*---- open_query.c: queries that stay open from one task of a batch to the next ----*/

typedef struct DwOpenQuery DwOpenQuery;

/* The open query of a kept plan. */
typedef struct DwOpenPlace
{
	DwOpenQuery *query;			/* NULL: no query is open */
	int			refused;		/* generation of the plan whose query cannot stay open, or -1 */
} DwOpenPlace;

extern void dw_open_queries_hooks_begin(void);
extern void dw_open_queries_hooks_end(void);

extern void dw_open_queries_begin(void);
extern void dw_open_queries_give_way(void);
extern void dw_open_queries_end(void);
extern void dw_open_queries_forget(void);

extern bool dw_open_query_run(DwOpenPlace *place, SPIPlanPtr spi, const SPIExecuteOptions *options,
							  int *result);
extern void dw_open_query_close(DwOpenQuery *query);

/*---- plans.c: runs the SQL of a task ----*/

/* The command that was the last statement of a text, and its row count */
typedef struct DwSpiResult
{
	CommandTag	tag;			/* CMDTAG_UNKNOWN: a rule has replaced the statement by another kind */
	uint64		rows;			/* number of rows that the statement processed */
	Jsonb	   *first_row;		/* first row of the result, if the caller wants it, else NULL */
	TimestampTz again_at;		/* when to run the task again after delay_snooze(), else 0 */
} DwSpiResult;

extern DwSpiResult dw_last_utility;

extern DwSpiResult dw_spi_run(const char *sql, ParamListInfo params, int max_row, bool may_keep);
extern void dw_spi_note_utility(CommandTag tag, const QueryCompletion *qc);

/*---- sqlcheck.c: the SQL text of a task: its tokens, and errors that point into it ----*/

/*
 * The lexer's codes.  No installed header defines them.  But the first tokens of every grammar on
 * top of the core scanner are fixed (see the comment in parser/scanner.h): IDENT = 258, UIDENT,
 * FCONST, SCONST, USCONST, BCONST, XCONST, Op, ICONST, PARAM.  Keywords, and operators such as ::,
 * come after them.
 */
#define DW_TOKEN_IDENT	258
#define DW_TOKEN_SCONST	261
#define DW_TOKEN_USCONST	262
#define DW_TOKEN_ICONST	266
#define DW_TOKEN_PARAM	267

/* PostgreSQL's lexer, and its position in a text */
typedef struct DwTokens
{
	const char *sql;
	core_yyscan_t scanner;
	core_yy_extra_type extra;
	int			token;			/* code of the current token; 0: the end of the text */
	core_YYSTYPE value;			/* value of the current token */
	int			location;		/* byte offset of the current token */
} DwTokens;

extern void dw_tokens_begin(DwTokens *tokens, const char *sql);
extern bool dw_tokens_next(DwTokens *tokens);
extern void dw_tokens_end(DwTokens *tokens);

/* A text whose positions errors can show */
typedef struct DwSqlText
{
	const char *sql;
	const char *option;			/* the option that gave the text; NULL: the task's own SQL */
} DwSqlText;

extern bool dw_is_word_char(char c);
extern void dw_position_callback(void *sql);
extern void dw_sql_text_callback(void *text);
extern int	dw_sql_text_errposition(const char *sql, int location);

/*---- sqlcheck.c: refuses SQL that can never run as a task, when the task is scheduled ----*/

extern void dw_check_sql(const text *sql, int nargs);
extern void dw_check_follow_up(const text *sql, const char *option, int nargs);
extern void dw_check_sql_autonomous(const text *sql, int nargs);
extern void dw_check_plan(const text *sql, Datum args, bool args_null,
						  Datum types, bool types_null);

#endif							/* DW_STATEMENT_H */
