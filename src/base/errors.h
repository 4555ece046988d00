/*-------------------------------------------------------------------------
 *
 * errors.h
 *	  Errors of tasks, as they are kept, and errors of callers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ERRORS_H
#define DW_ERRORS_H

#include "postgres.h"

/* What is kept of each of an error's texts, in bytes. */
#define DW_MAX_ERROR_TEXT	16384

/* SQLSTATEs of tasks that were given up without an error of their own. */
#define DW_ERRCODE_SUPERSEDED	MAKE_SQLSTATE('D', 'W', '0', '0', '1')
#define DW_ERRCODE_EXPIRED		MAKE_SQLSTATE('D', 'W', '0', '0', '2')
#define DW_ERRCODE_END_UNKNOWN	MAKE_SQLSTATE('D', 'W', '0', '0', '3')
#define DW_ERRCODE_CRASHED		MAKE_SQLSTATE('D', 'W', '0', '0', '4')
#define DW_ERRCODE_QUIT			MAKE_SQLSTATE('D', 'W', '0', '0', '5')

extern ErrorData *dw_take_error(void);
extern void dw_refuse_null(bool isnull, const char *what);

#endif							/* DW_ERRORS_H */
