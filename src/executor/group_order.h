/*-------------------------------------------------------------------------
 *
 * group_order.h
 *	  Which task of an ordered group comes first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_GROUP_ORDER_H
#define DW_GROUP_ORDER_H

#include "postgres.h"

#include "../shmem/executors.h"
#include "../shmem/shared.h"

extern bool dw_group_order_keeps(DwDatabase *db, DwExecutor *me);
extern void dw_group_order_waits(DwDatabase *db, const DwExecutor *me);

#endif							/* DW_GROUP_ORDER_H */
