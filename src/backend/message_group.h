/*-------------------------------------------------------------------------
 *
 * message_group.h
 *	  Limits and order of groups of messages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_MESSAGE_GROUP_H
#define DW_MESSAGE_GROUP_H

#include "postgres.h"

#include "utils/relcache.h"

#include "../rows/lease_scan.h"
#include "../rows/task_rows.h"
#include "../shmem/groups.h"
#include "../shmem/shared.h"

/* What becomes of a message that a session has taken. */
typedef enum DwGroupVerdict
{
	DW_GROUP_CLAIM,				/* it may be claimed; its entry may be that of another message now */
	DW_GROUP_GOES_BACK,			/* it is to be put back at the end of the call */
	DW_GROUP_WENT_BACK			/* it was put back */
} DwGroupVerdict;

extern DwGroupVerdict dw_group_verdict(DwDatabase *db, Relation rel, int16 queue, DwEntry *entry,
									   DwGroupTaken *taken, DwLeaseCounts counts);
extern DwGroupVerdict dw_group_is_locked(DwDatabase *db, const DwEntry *entry, DwGroupTaken *taken);
extern bool dw_group_is_limited(const DwTaskKey *key);

#endif							/* DW_MESSAGE_GROUP_H */
