/*-------------------------------------------------------------------------
 *
 * task_timeout.h
 *	  The timeout of a task or a batch.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_TASK_TIMEOUT_H
#define DW_TASK_TIMEOUT_H

#include "postgres.h"

extern void dw_timeout_arm(int ms);
extern void dw_timeout_disarm(void);
extern bool dw_timeout_struck(void);
extern bool dw_timeout_ends_process(void);

#endif							/* DW_TASK_TIMEOUT_H */
