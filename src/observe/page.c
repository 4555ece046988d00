/*-------------------------------------------------------------------------
 *
 * page.c
 *	  A JSON document made readable for its client.
 *
 * Run by sessions, and by executors whose tasks call it; also if the library is not in
 * shared_preload_libraries.
 *
 * The page (delay_wheel.page_data()) shows texts of many roles.  In a database whose encoding
 * is SQL_ASCII, a text is a string of bytes that each role may choose.  PostgreSQL sends
 * a text only if it is valid in the client's encoding; else the query fails.  So one
 * role's invalid byte would keep the page from all users.  A function that cuts such a
 * text, to show its beginning, may also cut a character, and so make bytes invalid.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "mb/pg_wchar.h"

#include "../base/compat.h"

PG_FUNCTION_INFO_V1(dw_readable);

/*
 * SQL function: replaces each byte that is not valid in the client's encoding by a
 * question mark.  No such byte belongs to the document's structure, which is ASCII.
 */
Datum
dw_readable(PG_FUNCTION_ARGS)
{
	int			encoding = pg_get_client_encoding();
	struct varlena *document;
	char	   *c;
	int			left;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	/* in other databases all texts are valid; a client with SQL_ASCII accepts all bytes */
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
			 * In encodings that only clients can have, the second byte of a
			 * character may be ASCII, such as the backslash before a quote.
			 * There each byte that is not ASCII is replaced.
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
