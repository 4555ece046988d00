/*-------------------------------------------------------------------------
 *
 * wait.h
 *	  delay_wait(): waits for the outcome of a task.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_WAIT_H
#define DW_WAIT_H

#include "postgres.h"

#endif							/* DW_WAIT_H */
