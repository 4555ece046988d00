/*-------------------------------------------------------------------------
 *
 * page.c
 *	  A JSON document that its client can read.
 *
 * In a database whose encoding is SQL_ASCII a text is bytes, which each role may
 * choose.  PostgreSQL sends a text as it is, but only if it is valid in the
 * client's encoding: else the query fails.  The page shows texts of many roles,
 * so one byte of one of them would keep the page from everybody.  A function that
 * cuts such a text cannot know where a character ends, either.
 *
 * Run by backends, and by executors whose tasks call it.  Also without the
 * library in shared_preload_libraries.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"

#include "../base/signature.h"

PG_FUNCTION_INFO_V1(dw_readable);

/*
 * Replaces each byte that the client could not be sent.  None of them is part of
 * the document's structure, which is ASCII.
 */
Datum
dw_readable(PG_FUNCTION_ARGS)
{
	static const Oid args[] = {JSONOID};
	int			encoding = pg_get_client_encoding();
	struct varlena *document;
	char	   *c;
	int			left;

	dw_require_signature(fcinfo, JSONOID, lengthof(args), args);
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	/* elsewhere all texts are valid; and who asks for bytes gets them */
	if (GetDatabaseEncoding() != PG_SQL_ASCII || encoding == PG_SQL_ASCII)
		PG_RETURN_DATUM(PG_GETARG_DATUM(0));

	document = PG_DETOAST_DATUM_COPY(PG_GETARG_DATUM(0));
	c = VARDATA(document);
	left = VARSIZE(document) - VARHDRSZ;
	while (left > 0)
	{
		int			length = 1;

		if (IS_HIGHBIT_SET(*c))
		{
			/*
			 * Encodings that no server can have hide ASCII in characters: the
			 * backslash before a quote would be one's second half.
			 */
			if (PG_VALID_BE_ENCODING(encoding))
				length = pg_encoding_verifymbchar(encoding, c, left);
			else
				length = -1;
			if (length < 0)
			{
				*c = '?';
				length = 1;
			}
		}
		c += length;
		left -= length;
	}
	PG_RETURN_POINTER(document);
}
