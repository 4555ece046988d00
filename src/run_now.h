/*-------------------------------------------------------------------------
 *
 * run_now.h
 *	  delay_run() and delay_run_due(): running pending tasks at once, in one's
 *	  own transaction.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RUN_NOW_H
#define DW_RUN_NOW_H

#include "postgres.h"

#include "datatype/timestamp.h"

/* The task that delay_run() runs just now in this process, or 0. */
extern int64 dw_run_now_id;

/*
 * The due time up to which delay_run_due() has come, or DT_NOBEGIN.  What its
 * tasks schedule is due as if they ran at that time.
 */
extern TimestampTz dw_run_now_clock;

#endif							/* DW_RUN_NOW_H */
