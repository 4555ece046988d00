/*-------------------------------------------------------------------------
 *
 * periods_end.h
 *	  The sweeper removes the rows of keys whose period of uniqueness has ended.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_PERIODS_END_H
#define DW_PERIODS_END_H

#include "postgres.h"

#include "datatype/timestamp.h"

extern TimestampTz dw_periods_end(bool *more);

#endif							/* DW_PERIODS_END_H */
