/*-------------------------------------------------------------------------
 *
 * restricted.h
 *	  Runs code with the rights of another role, safely for the session.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RESTRICTED_H
#define DW_RESTRICTED_H

#include "postgres.h"

/* The state of the session before the code, to be restored after it */
typedef struct DwRestricted
{
	Oid			userid;
	int			context;		/* security context flags */
	int			nest_level;		/* of settings */
	CommandId	began;			/* the first command of the code */
} DwRestricted;

extern void dw_restricted_begin(DwRestricted *state, Oid role);
extern void dw_restricted_end(const DwRestricted *state);
extern void dw_restricted_leave(void);
extern bool dw_is_restricted(void);

#endif							/* DW_RESTRICTED_H */
