/*-------------------------------------------------------------------------
 *
 * restricted.h
 *	  Code of a role in a session that is not its own.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RESTRICTED_H
#define DW_RESTRICTED_H

#include "postgres.h"

/* What the session is to come back to. */
typedef struct DwRestricted
{
	Oid			userid;
	int			context;
	int			nest_level;		/* of settings */
	CommandId	began;
} DwRestricted;

/*
 * Around the code: from begin to end it runs as the role, in a
 * security-restricted operation, and what it sets is undone.  After an error
 * the abort of the (sub)transaction does what end would have done, but leave is
 * to be called in any case (PG_FINALLY).
 */
extern void dw_restricted_begin(DwRestricted *state, Oid role);
extern void dw_restricted_end(const DwRestricted *state);
extern void dw_restricted_leave(void);
extern bool dw_is_restricted(void);

#endif							/* DW_RESTRICTED_H */
