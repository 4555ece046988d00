/*
 * What sqlcheck.c calls besides: none of it is come to.  Without PostgreSQL's
 * headers, since it is no matter what these functions look like.
 */
#include <stdio.h>

#define UNREACHED(name) \
	void name(void) { fprintf(stderr, "finding: %s was called\n", #name); __builtin_trap(); }

void	   *CurrentMemoryContext;
void	   *error_context_stack;

UNREACHED(AllocSetContextCreateInternal)
UNREACHED(CreateCommandTag)
UNREACHED(GetCommandTagName)
UNREACHED(MemoryContextDelete)
UNREACHED(defGetBoolean)
UNREACHED(errcode)
UNREACHED(errcontext_msg)
UNREACHED(errdetail)
UNREACHED(errdetail_plural)
UNREACHED(errfinish)
UNREACHED(errhint)
UNREACHED(errmsg)
UNREACHED(errposition)
UNREACHED(errstart)
UNREACHED(errstart_cold)
UNREACHED(geterrposition)
UNREACHED(internalerrposition)
UNREACHED(internalerrquery)
UNREACHED(pg_mbstrlen_with_len)
UNREACHED(raw_parser)
UNREACHED(scanner_isspace)
UNREACHED(set_errcontext_domain)
UNREACHED(text_to_cstring)
