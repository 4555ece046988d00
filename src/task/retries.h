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

extern int64 dw_retry_pause(int64 retry_delay, int16 queue, const Datum *values,
							const bool *nulls, int failed);
extern bool dw_retry_gives_up(int16 queue, const Datum *values, const bool *nulls, int sqlstate);
extern char *dw_retry_refusal(int16 queue, const Datum *values, const bool *nulls, int sqlstate);

#endif							/* DW_RETRIES_H */
