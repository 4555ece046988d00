/*-------------------------------------------------------------------------
 *
 * group_places.h
 *	  The places of groups in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_GROUP_PLACES_H
#define DW_GROUP_PLACES_H

#include "postgres.h"

#include "groups.h"
#include "shared.h"

extern Size dw_group_places_size(void);
extern void dw_group_places_attach(void);
extern void dw_group_places_init(void);

extern DwGroup *dw_group_find(const DwLane *lane, uint32 hash);
extern DwGroup *dw_group_sibling(const DwLane *lane, uint32 hash, const DwGroup *after);
extern DwGroup *dw_group_place_take(DwLane *lane, uint32 hash, bool by_reserve);
extern void dw_group_place_give_back(DwGroup *group);
extern bool dw_group_places_are_short(void);

#endif							/* DW_GROUP_PLACES_H */
