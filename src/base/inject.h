/*-------------------------------------------------------------------------
 *
 * inject.h
 *	  Points at which tests can make a process wait, fail or crash.
 *
 * Compiled only with -DDW_INJECTION.  Then the SQL function dw_inject_attach() switches a point on;
 * see inject.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_INJECT_H
#define DW_INJECT_H

#include "postgres.h"

#ifdef DW_INJECTION
extern void dw_inject_request(void);
extern void dw_inject_init(void);
extern void dw_inject_point(const char *name);

/* Marks a point in the code at which a test can make the process wait, fail or crash. */
#define DW_INJECT(name)		dw_inject_point(name)
#else
#define DW_INJECT(name)		((void) 0)
#endif

/* A point whose passes tests count, to measure the work that is done. */
#define DW_COUNT(name)		DW_INJECT(name)

#endif							/* DW_INJECT_H */
