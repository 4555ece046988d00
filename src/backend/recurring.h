/*-------------------------------------------------------------------------
 *
 * recurring.h
 *	  The SQL functions that declare, change, remove, pause and resume recurring tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RECURRING_H
#define DW_RECURRING_H

#include "postgres.h"

#endif							/* DW_RECURRING_H */
