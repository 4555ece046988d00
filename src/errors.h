/*-------------------------------------------------------------------------
 *
 * errors.h
 *	  Errors of tasks, as they are kept.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ERRORS_H
#define DW_ERRORS_H

#include "postgres.h"

/* What is kept of each of an error's texts, in bytes. */
#define DW_MAX_ERROR_TEXT	16384

/*
 * Ends the handling of an error, and returns a copy in the current memory
 * context: its texts are cut, and valid in the database's encoding.
 */
extern ErrorData *dw_take_error(void);

#endif							/* DW_ERRORS_H */
