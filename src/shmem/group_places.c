/*-------------------------------------------------------------------------
 *
 * group_places.c
 *	  The places of groups in shared memory: a table by hash, and a free list.
 *
 * Run by the timer, executors and sessions, under the ready lock of the database.  All
 * databases share the places, so the table has a spinlock of its own.
 *
 * There are delay_wheel.max_groups places for all, and some more that only lanes without an
 * open group get.  A group has one for each lane in which it has tasks: these are siblings,
 * and stand in one bucket.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "port/pg_bitutils.h"
#include "storage/shmem.h"
#include "storage/spin.h"

#include "../base/compat.h"
#include "../base/settings.h"
#include "group_places.h"
#include "shared.h"

#define NO_PLACE		(-1)

/* What all databases share. */
typedef struct Table
{
	slock_t		lock;			/* protects the free list and the buckets */
	int32		free;			/* first free place */
	uint32		nfree;
	uint32		nbuckets;		/* a power of two */
	int32		buckets[FLEXIBLE_ARRAY_MEMBER];	/* first place of each */
} Table;

static Table *table = NULL;
static DwGroup *places = NULL;

/* Places that only lanes without an open group get: each executor may need one. */
static uint32
reserved_places(void)
{
	return dw_executor_places();
}

static uint32
all_places(void)
{
	return dw_max_groups + reserved_places();
}

static Size
table_size(void)
{
	return MAXALIGN(add_size(offsetof(Table, buckets),
							 mul_size(pg_nextpower2_32(all_places()), sizeof(int32))));
}

/* Requests shared memory. */
void
dw_group_places_request(void)
{
	ShmemRequestStruct(.name = "delay_wheel group table",
					   .size = table_size(),
					   .ptr = (void **) &table);
	ShmemRequestStruct(.name = "delay_wheel groups",
					   .size = mul_size(all_places(), sizeof(DwGroup)),
					   .ptr = (void **) &places);
}

/* Makes all places free.  Called once for each shared memory. */
void
dw_group_places_init(void)
{
	uint32		n = all_places();

	memset(places, 0, n * sizeof(DwGroup));
	SpinLockInit(&table->lock);
	table->nbuckets = pg_nextpower2_32(n);
	for (uint32 i = 0; i < table->nbuckets; i++)
		table->buckets[i] = NO_PLACE;
	for (uint32 i = 0; i < n; i++)
		places[i].next = i + 1 < n ? (int32) i + 1 : NO_PLACE;
	table->free = 0;
	table->nfree = n;
}

static int32 *
bucket_of_group(const DwLane *lane, uint32 hash)
{
	uint32		h = hash_combine(hash, hash_combine(lane->database, (uint16) lane->queue));

	return &table->buckets[h & (table->nbuckets - 1)];
}

/* True if the place is that of this group of the lane's queue, in any of the queue's lanes. */
static bool
is_of_group(const DwGroup *group, const DwLane *lane, uint32 hash)
{
	const DwLane *other = &dw_lanes[group->lane];

	return group->hash == hash && other->database == lane->database && other->queue == lane->queue;
}

/* The place of this group in this lane, or NULL. */
DwGroup *
dw_group_find(const DwLane *lane, uint32 hash)
{
	DwGroup    *found = NULL;

	SpinLockAcquire(&table->lock);
	for (int32 i = *bucket_of_group(lane, hash); i != NO_PLACE && found == NULL; i = places[i].next)
		if (places[i].hash == hash && places[i].lane == lane - dw_lanes)
			found = &places[i];
	SpinLockRelease(&table->lock);
	return found;
}

/*
 * The next sibling of a group, itself included; after: the one before, NULL: the first one.
 * Siblings come and go only under the ready lock, which the caller holds.
 */
DwGroup *
dw_group_sibling(const DwLane *lane, uint32 hash, const DwGroup *after)
{
	DwGroup    *found = NULL;

	SpinLockAcquire(&table->lock);
	for (int32 i = after ? after->next : *bucket_of_group(lane, hash);
		 i != NO_PLACE && found == NULL; i = places[i].next)
		if (is_of_group(&places[i], lane, hash))
			found = &places[i];
	SpinLockRelease(&table->lock);
	return found;
}

/*
 * Takes a free place for a group of the lane, which is in no list of the lane yet; NULL if none is
 * free, or only reserved ones are and by_reserve is false.
 */
DwGroup *
dw_group_place_take(DwLane *lane, uint32 hash, bool by_reserve)
{
	int32	   *bucket = bucket_of_group(lane, hash);
	DwGroup    *group = NULL;

	SpinLockAcquire(&table->lock);
	if (table->nfree > (by_reserve ? 0 : reserved_places()))
	{
		group = &places[table->free];
		table->free = group->next;
		table->nfree--;
		group->lane = lane - dw_lanes;
		group->hash = hash;
		group->has_siblings = false;
		for (int32 i = *bucket; i != NO_PLACE; i = places[i].next)
			if (is_of_group(&places[i], lane, hash))
				places[i].has_siblings = group->has_siblings = true;
		group->next = *bucket;
		*bucket = group - places;
	}
	SpinLockRelease(&table->lock);
	return group;
}

/* Gives a place back that is in no list of its lane any more. */
void
dw_group_place_give_back(DwGroup *group)
{
	int32	   *link = bucket_of_group(&dw_lanes[group->lane], group->hash);

	SpinLockAcquire(&table->lock);
	while (*link != group - places)
		link = &places[*link].next;
	*link = group->next;
	group->next = table->free;
	table->free = group - places;
	table->nfree++;
	SpinLockRelease(&table->lock);
}

/* True if groups get reserved places only.  The answer may be old, so no lock is needed. */
bool
dw_group_places_are_short(void)
{
	return table->nfree <= reserved_places();
}
