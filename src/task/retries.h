/*-------------------------------------------------------------------------
 *
 * retries.h
 *	  After which errors a task is tried again, and how its pauses grow.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RETRIES_H
#define DW_RETRIES_H

#include "postgres.h"

#include "retry_options.h"

extern void dw_retry_read(int16 queue, const Datum *values, const bool *nulls, DwRetry *retry);
extern int64 dw_retry_pause(const DwRetry *retry, int64 retry_delay, int failed);
extern bool dw_retry_gives_up(const DwRetry *retry, int sqlstate);
extern char *dw_retry_refusal(const DwRetry *retry, int sqlstate);

#endif							/* DW_RETRIES_H */
