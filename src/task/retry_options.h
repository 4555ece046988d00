/*-------------------------------------------------------------------------
 *
 * retry_options.h
 *	  What tasks and queues may say of further attempts: names and lists of errors.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RETRY_OPTIONS_H
#define DW_RETRY_OPTIONS_H

#include "postgres.h"

#include "utils/array.h"

/* Lengths of an SQLSTATE and of its class, which it begins with. */
#define DW_STATE_LENGTH	5
#define DW_CLASS_LENGTH	2

/* How the pause before further attempts grows. */
typedef enum DwBackoff
{
	DW_EXPONENTIAL,				/* doubled each time; the default */
	DW_LINEAR,					/* retry_delay times the number of failed attempts */
	DW_FIXED					/* retry_delay */
} DwBackoff;

/* What a task, or its queue, says of its attempts beside their number and retry_delay. */
typedef struct DwRetry
{
	DwBackoff	backoff;
	int64		max_delay;		/* the longest pause, in us; 0: see dw_retry_pause() */
	char	   *retry_on;		/* SQLSTATEs, or classes, with commas between; NULL or empty: all */
	char	   *give_up_on;		/* the same; NULL or empty: none */
} DwRetry;

extern void dw_backoff_check(const char *name);
extern DwBackoff dw_backoff_named(const char *name);
extern void dw_errors_check(ArrayType *errors, const char *option);
extern char *dw_errors_joined(ArrayType *errors);

#endif							/* DW_RETRY_OPTIONS_H */
