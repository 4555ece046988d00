/*-------------------------------------------------------------------------
 *
 * recurring.h
 *	  Recurring tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RECURRING_H
#define DW_RECURRING_H

#include "postgres.h"

#endif							/* DW_RECURRING_H */
