/*-------------------------------------------------------------------------
 *
 * inject.h
 *	  Points at which tests can make a process wait, fail or crash.
 *
 * Compiled in only with -DDW_INJECTION.  A point is switched on by the SQL
 * function dw_inject_attach(point, action [, after]) of that build; see
 * inject.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_INJECT_H
#define DW_INJECT_H

#include "postgres.h"

#ifdef DW_INJECTION
extern Size dw_inject_size(void);
extern void dw_inject_init(bool found);
extern void dw_inject_point(const char *name);
extern void dw_inject_count(const char *name);
#define DW_INJECT(name)		dw_inject_point(name)
/* counts how often something is done, for tests of how much work there is */
#define DW_COUNT(name)		dw_inject_count(name)
#else
#define DW_INJECT(name)		((void) 0)
#define DW_COUNT(name)		((void) 0)
#endif

#endif							/* DW_INJECT_H */
