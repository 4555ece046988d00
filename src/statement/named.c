/*-------------------------------------------------------------------------
 *
 * named.c
 *	  Arguments of a task that have names.
 *
 * Run by sessions that schedule tasks.
 *
 * A task's SQL may say :user_id in place of $1, with the values as a JSON object.  Here
 * names become numbers before anything else looks at the text, so a task is stored, checked
 * and run as if its author had counted.  PostgreSQL's own lexer finds the names: what looks
 * like one in a string, a comment or a cast is none.  SQL has a colon that is followed by a
 * name in slices of arrays only, as in a[1:n]; there a space tells them apart.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "parser/parser.h"
#include "parser/scanner.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"

#include "args.h"
#include "named.h"
#include "sql_text.h"

/* A text on its way from names to numbers */
typedef struct Numbering
{
	const char *sql;
	StringInfoData result;		/* the text so far, with numbers */
	int			copied;			/* so many bytes of sql are in the result */
	Jsonb	   *values;
	int			nargs;
	int			max_args;		/* allocated */
	JsonbValue *names;			/* of $1, $2, ... */
	Datum	   *args;			/* their values as text */
	bool	   *nulls;
} Numbering;

/* Returns the length of the name at the beginning of the string; 0 if there is none. */
static int
name_length(const char *string)
{
	int			n = 0;

	while (string[n] == '_' || IS_HIGHBIT_SET(string[n]) ||
		   (string[n] >= 'a' && string[n] <= 'z') || (string[n] >= 'A' && string[n] <= 'Z') ||
		   (n > 0 && string[n] >= '0' && string[n] <= '9'))
		n++;
	return n;
}

/* Returns a value in text form, as a literal of its type: strings without quotes, objects and arrays as JSON. */
static text *
text_of_value(const JsonbValue *value)
{
	switch (value->type)
	{
		case jbvString:
			return cstring_to_text_with_len(value->val.string.val, value->val.string.len);
		case jbvNumeric:
			return cstring_to_text(DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value->val.numeric))));
		case jbvBool:
			return cstring_to_text(value->val.boolean ? "true" : "false");
		case jbvBinary:
			return cstring_to_text(JsonbToCString(NULL, value->val.binary.data, value->val.binary.len));
		default:
			elog(ERROR, "unexpected type of a JSON value: %d", (int) value->type);
	}
}

/* Returns the number of the name at this place of the text, which it gets if it is new. */
static int
parameter_of_name(Numbering *numbering, int location, int length)
{
	const char *name = numbering->sql + location;
	JsonbValue	value;

	for (int i = 0; i < numbering->nargs; i++)
		if (numbering->names[i].val.string.len == length &&
			memcmp(numbering->names[i].val.string.val, name, length) == 0)
			return i + 1;
	if (getKeyJsonValueFromContainer(&numbering->values->root, name, length, &value) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_PARAMETER),
				 errmsg("there is no value for parameter :%.*s", length, name),
				 dw_sql_text_errposition(numbering->sql, location - 1),
				 errhint("The option \"named\" must have this name. In a slice of an array, put a space after the colon.")));
	if (numbering->nargs == numbering->max_args)
	{
		numbering->max_args *= 2;
		numbering->names = repalloc(numbering->names, numbering->max_args * sizeof(JsonbValue));
		numbering->args = repalloc(numbering->args, numbering->max_args * sizeof(Datum));
		numbering->nulls = repalloc(numbering->nulls, numbering->max_args * sizeof(bool));
	}
	numbering->names[numbering->nargs].val.string.val = unconstify(char *, name);
	numbering->names[numbering->nargs].val.string.len = length;
	numbering->nulls[numbering->nargs] = value.type == jbvNull;
	numbering->args[numbering->nargs] = value.type == jbvNull ? (Datum) 0 : PointerGetDatum(text_of_value(&value));
	return ++numbering->nargs;
}

/* Looks at one token of the text: a colon that a name follows at once becomes a number. */
static void
look_at_token(Numbering *numbering, int token, int location)
{
	int			length;

	if (token == DW_TOKEN_PARAM)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("parameters with names and with numbers cannot be mixed"),
				 dw_sql_text_errposition(numbering->sql, location)));
	if (token != ':' || (length = name_length(numbering->sql + location + 1)) == 0)
		return;
	appendBinaryStringInfo(&numbering->result, numbering->sql + numbering->copied, location - numbering->copied);
	appendStringInfo(&numbering->result, "$%d", parameter_of_name(numbering, location + 1, length));
	numbering->copied = location + 1 + length;
}

/* Raises an error if a value is not used. */
static void
check_values_used(const Numbering *numbering)
{
	JsonbIterator *iterator = JsonbIteratorInit(&numbering->values->root);
	JsonbIteratorToken token;
	JsonbValue	key;

	while ((token = JsonbIteratorNext(&iterator, &key, true)) != WJB_DONE)
	{
		bool		used = token != WJB_KEY;

		for (int i = 0; i < numbering->nargs && !used; i++)
			used = numbering->names[i].val.string.len == key.val.string.len &&
				memcmp(numbering->names[i].val.string.val, key.val.string.val, key.val.string.len) == 0;
		if (!used)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("there is no parameter :%.*s for a value of \"named\"", key.val.string.len, key.val.string.val),
					 errhint("The SQL text must use each name.")));
	}
}

/*
 * Returns an SQL text with $1, $2, ... in place of :name, and in *args the values as text[]
 * in this order; NULL if there are none.  values is a JSON object.  A name without a value,
 * a value whose name is not used, and $n in the text raise an error.  The result is in the
 * current memory context.
 */
text *
dw_named_numbered(const text *sql, Jsonb *values, ArrayType **args)
{
	Numbering	numbering = {.sql = text_to_cstring(sql), .values = values, .max_args = 8};
	DwSqlText	shown = {.sql = numbering.sql};
	ErrorContextCallback callback = {.previous = error_context_stack, .callback = dw_sql_text_callback, .arg = &shown};
	core_yyscan_t scanner;
	core_yy_extra_type extra;
	core_YYSTYPE value;
	YYLTYPE		location;
	int			token;

	if (!JB_ROOT_IS_OBJECT(values))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("named must be a JSON object"),
				 errhint("Such as {\"user_id\": 7}, for :user_id in the SQL text.")));
	initStringInfo(&numbering.result);
	numbering.names = palloc(numbering.max_args * sizeof(JsonbValue));
	numbering.args = palloc(numbering.max_args * sizeof(Datum));
	numbering.nulls = palloc(numbering.max_args * sizeof(bool));

	error_context_stack = &callback;
	scanner = scanner_init(numbering.sql, &extra, &ScanKeywords, ScanKeywordTokens);
	/* the check of the text gives the warnings */
	extra.escape_string_warning = false;
	while ((token = core_yylex(&value, &location, scanner)) != 0)
	{
		CHECK_FOR_INTERRUPTS();
		look_at_token(&numbering, token, location);
	}
	scanner_finish(scanner);
	check_values_used(&numbering);
	error_context_stack = callback.previous;

	appendStringInfoString(&numbering.result, numbering.sql + numbering.copied);
	*args = numbering.nargs == 0 ? NULL :
		construct_md_array(numbering.args, numbering.nulls, 1, &numbering.nargs, &(int) {1}, TEXTOID, -1, false, TYPALIGN_INT);
	return cstring_to_text_with_len(numbering.result.data, numbering.result.len);
}
