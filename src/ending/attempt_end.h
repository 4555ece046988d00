/*-------------------------------------------------------------------------
 *
 * attempt_end.h
 *	  The end of a failed attempt: another one, or none.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ATTEMPT_END_H
#define DW_ATTEMPT_END_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "claim.h"

extern void dw_attempt_fail(const DwClaim *claim, int attempts, TimestampTz started,
							const ErrorData *error);
extern void dw_attempt_retry(DwClaim *claim, TimestampTz due, int failed, TimestampTz started,
							 const ErrorData *error);

#endif							/* DW_ATTEMPT_END_H */
