/*-------------------------------------------------------------------------
 *
 * errors.c
 *	  Errors of tasks, as they are kept, and errors of callers.
 *
 * Run by executors, and by sessions whose arguments are looked at.
 *
 * The texts of an error are the task's: they may be as long as memory allows,
 * and need not be valid in the database's encoding (names of files, for one,
 * come as they are).  They go into tables, from there into dumps, into
 * notifications, follow-ups and the log.  So they are cut and mended once, where
 * the error is caught.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "errors.h"

/* Cuts a text, and puts '?' for each byte that is no part of a character. */
static void
make_valid(char *text)
{
	int			encoding = GetDatabaseEncoding();
	int			length;
	int			valid = 0;
	bool		cut;

	if (text == NULL)
		return;
	length = strnlen(text, DW_MAX_ERROR_TEXT);
	cut = text[length] != '\0';
	text[length] = '\0';
	for (;;)
	{
		valid += pg_encoding_verifymbstr(encoding, text + valid, length - valid);
		if (valid >= length)
			return;
		/* the last character, cut through */
		if (cut && length - valid < pg_encoding_max_length(encoding))
			text[length = valid] = '\0';
		else
			text[valid++] = '?';
	}
}

/* An error of the caller, if so: what it names must not be null. */
void
dw_refuse_null(bool isnull, const char *what)
{
	if (isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
}

/*
 * Ends the handling of an error, and returns a copy in the current memory
 * context: its texts are cut, and valid in the database's encoding.
 */
ErrorData *
dw_take_error(void)
{
	ErrorData  *error = CopyErrorData();

	FlushErrorState();
	make_valid(error->message);
	make_valid(error->detail);
	make_valid(error->hint);
	make_valid(error->context);
	make_valid(error->internalquery);
	return error;
}
