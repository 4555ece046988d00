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

#endif							/* DW_RUN_NOW_H */
