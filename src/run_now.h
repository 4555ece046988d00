/*-------------------------------------------------------------------------
 *
 * run_now.h
 *	  delay_run(): running a pending task at once, in one's own transaction.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RUN_NOW_H
#define DW_RUN_NOW_H

#include "postgres.h"

/* The task that delay_run() runs just now in this process, or 0. */
extern int64 dw_run_now_id;

#endif							/* DW_RUN_NOW_H */
