/*-------------------------------------------------------------------------
 *
 * named.c
 *	  Named arguments of a task.
 *
 * Run by sessions that schedule tasks.
 *
 * A task's SQL may contain :user_id instead of $1; a JSON object then contains the values.  This
 * file replaces names by numbers before any other code reads the text, so a task is stored, checked
 * and run as if its author had used numbers.  PostgreSQL's own lexer finds the names, so text in
 * strings, comments and casts is never a name.  SQL itself has a colon directly before a name only
 * in slices of arrays, as in a[1:n]: there the author must write a space after the colon.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "../base/errors.h"
#include "statement.h"

/* A value, and its name */
typedef struct NamedValue
{
	JsonbValue	name;
	JsonbValue	value;
	int			number;			/* number of its parameter; 0: not found in the text so far */
} NamedValue;

/* The state of a text whose names are being replaced by numbers */
typedef struct Numbering
{
	const char *sql;
	StringInfoData result;		/* the text so far, with numbers */
	int			copied;			/* bytes of sql that are in the result */
	int			colon;			/* byte offset of the last token if it was a colon, else -1 */
	int			nvalues;
	NamedValue *values;			/* sorted by lengths of names, then by their bytes, as in a jsonb */
	int			nargs;			/* number of values that the text has used so far */
	Datum	   *args;			/* these values as text, in the order of their numbers */
	bool	   *nulls;
} Numbering;

/* Compares two strings of JSON in the order of the keys of a jsonb. */
static int
compare_names(const void *a, const void *b)
{
	const JsonbValue *name = &((const NamedValue *) a)->name;
	const JsonbValue *other = &((const NamedValue *) b)->name;

	if (name->val.string.len != other->val.string.len)
		return name->val.string.len < other->val.string.len ? -1 : 1;
	return memcmp(name->val.string.val, other->val.string.val, name->val.string.len);
}

/* Takes names and values from a JSON object. */
static void
take_values(Numbering *numbering, Jsonb *object)
{
	JsonbIterator *iterator = JsonbIteratorInit(&object->root);
	JsonbIteratorToken token;
	JsonbValue	value;

	dw_args_require_limit(JB_ROOT_COUNT(object));
	numbering->values = palloc0(JB_ROOT_COUNT(object) * sizeof(NamedValue));
	numbering->args = palloc(JB_ROOT_COUNT(object) * sizeof(Datum));
	numbering->nulls = palloc(JB_ROOT_COUNT(object) * sizeof(bool));
	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
		if (token == WJB_KEY)
			numbering->values[numbering->nvalues].name = value;
		else if (token == WJB_VALUE)
			numbering->values[numbering->nvalues++].value = value;
}

/* Returns the length of the name at the beginning of the string; 0 if there is none. */
static int
name_length(const char *string)
{
	int			n = 0;

	if (*string == '$' || (*string >= '0' && *string <= '9'))
		return 0;
	while (dw_is_word_char(string[n]))
		n++;
	return n;
}

/* Returns a value as text: strings without quotes, objects and arrays as JSON. */
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

/* Returns the number of the name at this place of the text.  A new name gets the next number. */
static int
number_for_name(Numbering *numbering, int location, int length)
{
	NamedValue	wanted = {.number = 0};
	NamedValue *found;

	wanted.name.val.string.val = unconstify(char *, numbering->sql + location);
	wanted.name.val.string.len = length;
	found = bsearch(&wanted, numbering->values, numbering->nvalues, sizeof(NamedValue), compare_names);
	if (found == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_PARAMETER),
				 errmsg("there is no value for parameter :%.*s", length, numbering->sql + location),
				 dw_sql_text_errposition(numbering->sql, location - 1),
				 errhint("The option \"named\" must contain this name. In a slice of an array, put a space after the colon.")));
	if (found->number == 0)
	{
		bool		isnull = found->value.type == jbvNull;

		numbering->nulls[numbering->nargs] = isnull;
		numbering->args[numbering->nargs] = isnull ? (Datum) 0 : PointerGetDatum(text_of_value(&found->value));
		found->number = ++numbering->nargs;
	}
	return found->number;
}

/*
 * Handles one token of the text: a word directly after a colon is a name, and becomes a number.
 * E'...' and similar tokens begin like a name, but are no names.
 */
static void
look_at_token(Numbering *numbering, int token, int location)
{
	int			length = name_length(numbering->sql + location);
	StringInfo	result = &numbering->result;

	if (token == DW_TOKEN_PARAM)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("parameters with names and with numbers cannot be mixed"),
				 dw_sql_text_errposition(numbering->sql, location)));
	if (numbering->colon >= 0 && numbering->colon == location - 1 && length > 0 &&
		(token == DW_TOKEN_IDENT || token > DW_TOKEN_PARAM))
	{
		appendBinaryStringInfo(result, numbering->sql + numbering->copied,
							   numbering->colon - numbering->copied);
		/* in LIMIT:n the colon ends the word before, but in LIMIT$1 nothing would end the word */
		if (result->len > 0 && dw_is_word_char(result->data[result->len - 1]))
			appendStringInfoChar(result, ' ');
		appendStringInfo(result, "$%d", number_for_name(numbering, location, length));
		numbering->copied = location + length;
	}
	numbering->colon = token == ':' ? location : -1;
}

/* Raises an error if a value is not used. */
static void
check_values_used(const Numbering *numbering)
{
	for (int i = 0; i < numbering->nvalues; i++)
	{
		const JsonbValue *name = &numbering->values[i].name;

		if (numbering->values[i].number == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("value \"%.*s\" of \"named\" is not used by the SQL text",
							name->val.string.len, name->val.string.val),
					 errhint("Refer to the value as :%.*s in the SQL text, or do not pass it.",
							 name->val.string.len, name->val.string.val)));
	}
}

/*
 * Returns an SQL text with $1, $2, ... in place of :name.  Sets *args to a text[] of the values in
 * this order, or to NULL if the text has no names.  values is a JSON object.
 */
text *
dw_named_numbered(const text *sql, Jsonb *values, ArrayType **args)
{
	Numbering	numbering = {.sql = text_to_cstring(sql), .colon = -1};
	DwSqlText	shown = {.sql = numbering.sql};
	ErrorContextCallback callback;
	DwTokens	tokens;

	if (!JB_ROOT_IS_OBJECT(values))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("named must be a JSON object"),
				 errhint("For example, use {\"user_id\": 7} for :user_id in the SQL text.")));
	take_values(&numbering, values);
	initStringInfo(&numbering.result);

	dw_push_context(&callback, dw_sql_text_callback, &shown);
	dw_tokens_begin(&tokens, numbering.sql);
	while (dw_tokens_next(&tokens))
	{
		CHECK_FOR_INTERRUPTS();
		look_at_token(&numbering, tokens.token, tokens.location);
	}
	dw_tokens_end(&tokens);
	check_values_used(&numbering);
	error_context_stack = callback.previous;

	appendStringInfoString(&numbering.result, numbering.sql + numbering.copied);
	*args = numbering.nargs == 0 ? NULL :
		construct_md_array(numbering.args, numbering.nulls, 1, &numbering.nargs, &(int) {1}, TEXTOID, -1, false, TYPALIGN_INT);
	return cstring_to_text_with_len(numbering.result.data, numbering.result.len);
}
