/*-------------------------------------------------------------------------
 *
 * errors.c
 *	  Catches errors of tasks in a form that can be stored, and raises common argument errors.
 *
 * Run by executors, which catch the errors of tasks, and by sessions that call the
 * extension's functions.  README.md explains why texts are cut and made valid.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "utils/resowner.h"

#include "errors.h"

/*
 * Cuts a text to DW_MAX_ERROR_TEXT bytes, in place, and replaces each byte that is
 * not part of a valid character by '?'.  NULL is allowed.
 */
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
		/* the cut has split the last character: drop the rest of this character */
		if (cut && length - valid < pg_encoding_max_length(encoding))
			text[length = valid] = '\0';
		else
			text[valid++] = '?';
	}
}

/*
 * Ends the handling of the current error (in a PG_CATCH block), and returns a copy of the error in
 * the current memory context.  The texts of the copy have at most DW_MAX_ERROR_TEXT bytes each, and
 * are valid in the database's encoding.
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

/*
 * Calls a function in a subtransaction, in the current memory context.  Returns NULL if the
 * function succeeds.  If the function fails, rolls back its changes, and returns the error.  Raises
 * a cancel again, since the cancel is for the caller's statement or task.
 */
ErrorData *
dw_try(void (*work) (void *), void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		MemoryContextSwitchTo(context);
		work(arg);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = dw_take_error();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	if (error != NULL && error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(error);
	return error;
}

/* Raises an error if an argument is null.  "what" names the argument in the message. */
void
dw_refuse_null(bool isnull, const char *what)
{
	if (isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
}
