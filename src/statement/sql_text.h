/*-------------------------------------------------------------------------
 *
 * sql_text.h
 *	  The SQL text of a task: its tokens, and errors that point into it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SQL_TEXT_H
#define DW_SQL_TEXT_H

#include "postgres.h"

/*
 * The lexer's codes.  No installed header defines them, but the first tokens of every
 * grammar on top of the core scanner are fixed (see the comment in parser/scanner.h):
 * IDENT = 258, UIDENT, FCONST, SCONST, USCONST, BCONST, XCONST, Op, ICONST, PARAM.
 * Keywords, and operators such as ::, come after them.
 */
#define DW_TOKEN_IDENT	258
#define DW_TOKEN_SCONST	261
#define DW_TOKEN_ICONST	266
#define DW_TOKEN_PARAM	267

/* A text that errors can point into */
typedef struct DwSqlText
{
	const char *sql;
	const char *option;			/* the option that gave the text; NULL: the task's own SQL */
} DwSqlText;

/* True if the character could be part of an identifier or of a dollar quote's tag. */
static inline bool
dw_is_word_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		c == '_' || c == '$' || IS_HIGHBIT_SET(c);
}

extern void dw_sql_text_callback(void *text);
extern int	dw_sql_text_errposition(const char *sql, int location);

#endif							/* DW_SQL_TEXT_H */
