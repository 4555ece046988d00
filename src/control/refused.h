/*-------------------------------------------------------------------------
 *
 * refused.h
 *	  Starts for which no background worker was free.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_REFUSED_H
#define DW_REFUSED_H

#include "postgres.h"

/* No background worker was free for a start, which is tried again. */
typedef struct DwRefusal
{
	int64		since;			/* by dw_uptime(); 0: it was not refused */
	bool		is_told;		/* it was reported */
} DwRefusal;

extern bool dw_refused(DwRefusal *refusal, bool *is_first);
extern void dw_refusal_ends(DwRefusal *refusal);
extern int64 dw_refused_until(const DwRefusal *refusal);
extern void dw_refused_look(void);

#endif							/* DW_REFUSED_H */
