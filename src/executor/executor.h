/*-------------------------------------------------------------------------
 *
 * executor.h
 *	  Start of executors, the processes that run tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_EXECUTOR_H
#define DW_EXECUTOR_H

#include "postgres.h"

extern void dw_executor_install(void);
extern PGDLLEXPORT void dw_executor_main(Datum place);

#endif							/* DW_EXECUTOR_H */
