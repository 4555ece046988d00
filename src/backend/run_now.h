/*-------------------------------------------------------------------------
 *
 * run_now.h
 *	  delay_run() and delay_run_due(): run pending tasks at once, in the caller's
 *	  transaction.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RUN_NOW_H
#define DW_RUN_NOW_H

#include "postgres.h"

#endif							/* DW_RUN_NOW_H */
