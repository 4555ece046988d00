/*-------------------------------------------------------------------------
 *
 * group_first.h
 *	  Which task of an ordered group comes first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_GROUP_FIRST_H
#define DW_GROUP_FIRST_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "../ring/ring.h"
#include "../rows/lease_scan.h"
#include "../rows/task_rows.h"

/* What a process does with a task that it has taken. */
typedef enum DwGroupDecision
{
	DW_GROUP_RUN_IT,			/* it comes first, or is not there any more, which the claim finds */
	DW_GROUP_TAKE_OTHER,		/* another one of its lane comes first */
	DW_GROUP_WAIT				/* none of the lane may begin now */
} DwGroupDecision;

extern DwGroupDecision dw_group_decide(Relation rel, Snapshot snapshot, const DwEntry *entry,
									   const DwLapsed *lapsed, DwTaskKey *first, TimestampTz *until);

#endif							/* DW_GROUP_FIRST_H */
