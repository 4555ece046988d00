/*-------------------------------------------------------------------------
 *
 * retry_options.c
 *	  Options of further attempts, for tasks and queues: names, and lists of errors.
 *
 * Run by sessions that schedule tasks and declare queues, and by processes that read queues.  A
 * process that reads a queue raises no error for values that plain SQL has written.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "../base/errors.h"
#include "task.h"

/* Limit for the elements of retry_on and of give_up_on. */
#define MAX_ERRORS		100

static const char *const backoff_names[] = {
	[DW_EXPONENTIAL] = "exponential",
	[DW_LINEAR] = "linear",
	[DW_FIXED] = "fixed"
};

/*
 * Returns the backoff of this name; the default if the name is NULL.  For an unknown name, raises
 * an error if "strict" is true, else returns the default.
 */
DwBackoff
dw_backoff_named(const char *name, bool strict)
{
	for (size_t i = 0; name != NULL && i < lengthof(backoff_names); i++)
		if (strcmp(backoff_names[i], name) == 0)
			return i;
	if (strict)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for retry_backoff: \"%s\"", name),
				 errhint("Use 'exponential', 'linear' or 'fixed'.")));
	return DW_EXPONENTIAL;
}

/* Returns true if the text is an SQLSTATE or the class of an SQLSTATE. */
static bool
is_error(const char *text)
{
	size_t		length = strspn(text, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ");

	return text[length] == '\0' && (length == DW_STATE_LENGTH || length == DW_CLASS_LENGTH);
}

/* Raises an error if the array is not a list of SQLSTATEs and classes. */
void
dw_errors_check(ArrayType *errors, const char *option)
{
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	deconstruct_array(errors, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	if (n > MAX_ERRORS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not have more than %d elements", option, MAX_ERRORS),
				 errhint("The first two characters, such as 08, stand for a whole class.")));
	for (int i = 0; i < n; i++)
	{
		char	   *error;

		dw_refuse_null(nulls[i], psprintf("SQLSTATE in %s", option));
		error = TextDatumGetCString(elements[i]);
		if (!is_error(error))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid SQLSTATE in %s: \"%s\"", option, error),
					 errhint("An SQLSTATE consists of five digits and upper-case letters, such as 40001. The first two characters, such as 40, are its class.")));
	}
}

/* Returns the elements of an array of texts, with commas between. */
char *
dw_errors_joined(ArrayType *errors)
{
	StringInfoData joined;
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	initStringInfo(&joined);
	deconstruct_array(errors, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	for (int i = 0; i < n; i++)
		if (!nulls[i])
			appendStringInfo(&joined, "%s%s", joined.len > 0 ? "," : "",
							 TextDatumGetCString(elements[i]));
	return joined.data;
}
