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

#include "../shmem/outcome.h"
#include "claim.h"

extern void dw_error_add_detail(ErrorData *error, const char *sentence);
extern DwOutcome dw_attempt_end(Relation rel, DwClaim *claim, TimestampTz due, bool give_up,
								TimestampTz started, ErrorData *error);
extern void dw_attempt_fail(const DwClaim *claim, int attempts, TimestampTz started,
							const ErrorData *error);
extern void dw_attempt_lost(DwClaim *claim, TimestampTz due, int64 lost, TimestampTz started,
							const ErrorData *error);
extern void dw_attempt_retry(DwClaim *claim, TimestampTz due, int failed, TimestampTz started,
							 const ErrorData *error);

#endif							/* DW_ATTEMPT_END_H */
