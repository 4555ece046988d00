/*-------------------------------------------------------------------------
 *
 * attempts.h
 *	  How often a task is tried, how long, and when again.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ATTEMPTS_H
#define DW_ATTEMPTS_H

#include "postgres.h"

#include "../rows/task_rows.h"
#include "../shmem/shared.h"
#include "retry_options.h"

/* Limit of the immediate repeats of one run, see dw_is_transient(). */
#define DW_MAX_REPEATS	10

/* The limits of one task: its own values, else those of its queue, else the defaults. */
typedef struct DwTerms
{
	int			timeout;		/* for one attempt, in ms; 0: no limit */
	int			max_attempts;	/* the first one included */
	int64		retry_delay;	/* pause after the first failed attempt, in us */
} DwTerms;

extern void dw_terms(DwDatabase *db, const DwTaskKey *key, const Datum *values,
					 const bool *nulls, DwTerms *terms);
extern bool dw_is_transient(int sqlstate);
extern bool dw_is_lost_connection(int sqlstate);
extern TimestampTz dw_next_connection(int64 lost, int sqlstate);
extern TimestampTz dw_next_attempt(const DwTerms *terms, const DwRetry *retry, int failed);
extern void dw_keep_error(Datum *values, bool *nulls, const ErrorData *error);

#endif							/* DW_ATTEMPTS_H */
