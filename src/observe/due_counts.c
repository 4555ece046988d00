/*-------------------------------------------------------------------------
 *
 * due_counts.c
 *	  How many tasks are due in given periods, from the index of lanes.
 *
 * A hundred million tasks may be pending, so they are not counted one by one.
 * The pages of the B-tree above its leaves tell which keys each page below
 * holds.  So we go down from the root, level by level, and read a page only if
 * its keys belong to several lanes or periods.  What belongs to one period as a
 * whole is a subtree of it.  Of the subtrees of a period some are measured, for
 * the average; if there are but a few leaves, all of them are read.
 *
 * Leaves hold entries of rows that are gone, too, and of transactions that are
 * not seen.  So where all entries of a period were read they are looked up in
 * the table, one by one, and the count is exact.  For others a sample is.
 *
 * Rows of which the visibility map knows that everybody sees them are not read.
 * It is asked while the leaf is pinned: VACUUM takes no entries out of it then,
 * so it has not removed their rows either, and a page of the table that has such
 * a row is not in the map.  Asked later, it would tell that a page is seen by
 * all from which the row has been removed.  To look the row up needs no pin: our
 * snapshot, which is older than what may have taken its place, does not see that.
 *
 * Pages are read one at a time, and none is locked while another is read.  So
 * a page may have been split since the page above it was read: then we follow
 * its right links up to the key at which the next page begins.  A page that was
 * deleted since was empty.  None that we have a link to is used again before
 * our snapshot ends.
 *
 * Run by backends.  However many tasks, lanes and periods there are, about
 * twice MAX_PAGES pages are read and MAX_LOOKUPS rows are looked up at most.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "access/nbtree.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/visibilitymap.h"
#include "access/xact.h"
#include "datatype/timestamp.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../base/inject.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../task/marks.h"
#include "due_counts.h"
#include "views.h"

/* pages that are read to tell periods apart; as many to measure subtrees */
#define MAX_PAGES		10000
#define MAX_LOOKUPS		100000
/* more than any tree has */
#define MAX_LEVELS		12
/* subtrees that are measured, of each period and level */
#define SAMPLES			8
/* entries of a period that are remembered, to be looked up */
#define MAX_REMEMBERED	10000
/* entries that are looked up of a leaf, or of a period, if not all are */
#define LEAF_LOOKUPS	32
#define CELL_LOOKUPS	256
/* entries of a leaf if none was read */
#define USUAL_ENTRIES	100

/* A page with its keys: from low, inclusive, to high. */
typedef struct Place
{
	BlockNumber block;
	DwTaskKey	low;
	DwTaskKey	high;
} Place;

typedef struct Places
{
	Place	   *all;
	int			n;
	int			room;
} Places;

/* Subtrees of one level: each stride-th, beginning with the first. */
typedef struct Subtrees
{
	int64		count;
	int64		stride;
	int			n;
	Place		sample[SAMPLES];
} Subtrees;

/* A row, as an entry of a leaf tells of it. */
typedef struct Row
{
	ItemPointerData tid;
	bool		seen_by_all;	/* as the visibility map knew, with the leaf pinned */
} Row;

/* What is known of a period. */
typedef struct Cell
{
	int64		entries;		/* of leaves that were read */
	Row		   *rows;			/* the first of them */
	int			nrows;
	int			room;
	Subtrees   *subtrees[MAX_LEVELS];	/* that belong to it alone; NULL: none */
	double		shares[MAX_LEVELS]; /* of subtrees that belong to others, too, but
									 * were not read */
} Cell;

/* Pages of one level that were read, and what was in them. */
typedef struct Level
{
	int64		pages;
	int64		items;
} Level;

/* Entries that were looked up. */
typedef struct Lookups
{
	int			tried;
	int			seen;
} Lookups;

typedef struct Count
{
	Relation	rel;
	Relation	index;
	const TimestampTz *bounds;
	int			nbounds;
	Cell	   *cells;			/* nbounds + 1 */
	Level		levels[MAX_LEVELS];
	int			pages;			/* read so far */
	int			lookups;		/* done so far */
	bool		skip_dead;
	int			nmarks;			/* cancelled tasks may still have rows */
	Oid			last_owner;		/* the one that was asked for last */
	bool		last_counts;
	IndexFetchTableData *fetch;
	TupleTableSlot *slot;
	Buffer		map;			/* page of the visibility map, pinned */
	Buffer		leaf;			/* that is being read, pinned */
	PGAlignedBlock page;		/* a copy of the page read last */
} Count;

/*---- Keys ----*/

static const DwTaskKey lowest_key = {
	.owner = 0,
	.origin = PG_INT64_MIN,
	.queue = PG_INT16_MIN,
	.priority = PG_INT16_MIN,
	.due = PG_INT64_MIN,
	.id = PG_INT64_MIN,
};

static const DwTaskKey highest_key = {
	.owner = OID_MAX,
	.origin = PG_INT64_MAX,
	.queue = PG_INT16_MAX,
	.priority = PG_INT16_MAX,
	.due = PG_INT64_MAX,
	.id = PG_INT64_MAX,
};

#define COMPARE(a, b)	((a) < (b) ? -1 : (a) > (b))

static int
compare_lanes(const DwTaskKey *a, const DwTaskKey *b)
{
	int			result = COMPARE(a->owner, b->owner);

	if (result == 0)
		result = COMPARE(a->origin, b->origin);
	if (result == 0)
		result = COMPARE(a->queue, b->queue);
	if (result == 0)
		result = COMPARE(a->priority, b->priority);
	return result;
}

static int
compare_keys(const DwTaskKey *a, const DwTaskKey *b)
{
	int			result = compare_lanes(a, b);

	if (result == 0)
		result = COMPARE(a->due, b->due);
	if (result == 0)
		result = COMPARE(a->id, b->id);
	return result;
}

/* Columns that are cut off a key of an inner page are lower than all others. */
static void
read_key(Count *c, IndexTuple tuple, DwTaskKey *key)
{
	TupleDesc	desc = RelationGetDescr(c->index);
	int			n = BTreeTupleGetNAtts(tuple, c->index);
	bool		isnull;

	*key = lowest_key;
	if (n >= 1)
		key->owner = DatumGetObjectId(index_getattr(tuple, 1, desc, &isnull));
	if (n >= 2)
		key->origin = DatumGetInt64(index_getattr(tuple, 2, desc, &isnull));
	if (n >= 3)
		key->queue = DatumGetInt16(index_getattr(tuple, 3, desc, &isnull));
	if (n >= 4)
		key->priority = DatumGetInt16(index_getattr(tuple, 4, desc, &isnull));
	if (n >= 5)
		key->due = DatumGetTimestampTz(index_getattr(tuple, 5, desc, &isnull));
	if (n >= 6)
		key->id = DatumGetInt64(index_getattr(tuple, 6, desc, &isnull));
}

/* Tasks of another origin are not run, so they are not due at all. */
static bool
counts(Count *c, const DwTaskKey *key)
{
	if (key->origin != dw_origin_stamp())
		return false;
	if (key->owner != c->last_owner)
	{
		c->last_owner = key->owner;
		c->last_counts = dw_may_watch(key->owner);
	}
	return c->last_counts;
}

/* The number of bounds that are not after the time. */
static int
cell_number(const Count *c, TimestampTz due)
{
	int			low = 0;
	int			high = c->nbounds;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (c->bounds[middle] <= due)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*---- What pages hold ----*/

static void
push_place(Places *places, const Place *place)
{
	if (places->n == places->room)
	{
		Size		room = Max(places->room * 2, 64);

		places->all = places->all == NULL ? palloc_extended(room * sizeof(Place), MCXT_ALLOC_HUGE)
			: repalloc_huge(places->all, room * sizeof(Place));
		places->room = room;
	}
	places->all[places->n++] = *place;
}

static void
add_subtree(Cell *cell, int level, const Place *place)
{
	Subtrees   *s = cell->subtrees[level];

	if (s == NULL)
	{
		s = cell->subtrees[level] = palloc0(sizeof(Subtrees));
		s->stride = 1;
	}
	if (s->count % s->stride == 0 && s->n == SAMPLES)
	{
		s->n = 0;
		for (int i = 0; i < SAMPLES; i += 2)
			s->sample[s->n++] = s->sample[i];
		s->stride *= 2;
	}
	if (s->count % s->stride == 0)
		s->sample[s->n++] = *place;
	s->count++;
}

/* Of an entry of the leaf that is pinned. */
static Row
row_at(Count *c, const ItemPointerData *tid)
{
	Assert(BufferIsValid(c->leaf));
	/* whether it is cancelled only the row tells */
	return (Row) {*tid, c->nmarks == 0 && VM_ALL_VISIBLE(c->rel, ItemPointerGetBlockNumber(tid), &c->map)};
}

static void
add_entry(Count *c, Cell *cell, const ItemPointerData *tid)
{
	cell->entries++;
	if (cell->nrows >= MAX_REMEMBERED)
		return;
	if (cell->nrows == cell->room)
	{
		cell->room = Max(cell->room * 2, 64);
		cell->rows = cell->rows == NULL ? palloc(cell->room * sizeof(Row))
			: repalloc(cell->rows, cell->room * sizeof(Row));
	}
	cell->rows[cell->nrows++] = row_at(c, tid);
}

static void
release_leaf(Count *c)
{
	ReleaseBuffer(c->leaf);
	c->leaf = InvalidBuffer;
}

static bool
is_of_level(Page page, int level)
{
	BTPageOpaque opaque;

	if (PageIsNew(page))
		return false;
	opaque = BTPageGetOpaque(page);
	return !P_IGNORE(opaque) && opaque->btpo_level == level;
}

/*
 * Copies a page.  NULL if it is none of this level any more: then it was
 * deleted, and is empty.  Who reads a leaf releases it.
 */
static Page
read_page(Count *c, BlockNumber block, int level)
{
	Page		page = (Page) c->page.data;
	Buffer		buffer;

	CHECK_FOR_INTERRUPTS();
	c->pages++;
	buffer = ReadBuffer(c->index, block);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	memcpy(c->page.data, BufferGetPage(buffer), BLCKSZ);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);

	if (is_of_level(page, level))
	{
		if (level > 0)
			ReleaseBuffer(buffer);
		else
			c->leaf = buffer;
		DW_INJECT("count-page");
		return page;
	}
	ReleaseBuffer(buffer);
	return NULL;
}

static IndexTuple
tuple_at(Page page, OffsetNumber offset)
{
	return (IndexTuple) PageGetItem(page, PageGetItemId(page, offset));
}

/* The rows of an entry of a leaf: several only if it is a posting list. */
static int
entry_tids(IndexTuple tuple, ItemPointer *tids)
{
	if (BTreeTupleIsPosting(tuple))
	{
		*tids = BTreeTupleGetPosting(tuple);
		return BTreeTupleGetNPosting(tuple);
	}
	*tids = &tuple->t_tid;
	return 1;
}

static bool
is_dead(Count *c, Page page, OffsetNumber offset)
{
	return c->skip_dead && ItemIdIsDead(PageGetItemId(page, offset));
}

static void
read_leaf(Count *c, Page page)
{
	OffsetNumber last = PageGetMaxOffsetNumber(page);

	c->levels[0].pages++;
	for (OffsetNumber i = P_FIRSTDATAKEY(BTPageGetOpaque(page)); i <= last; i++)
	{
		ItemPointer tids;
		int			n;
		DwTaskKey	key;

		if (is_dead(c, page, i))
			continue;
		n = entry_tids(tuple_at(page, i), &tids);
		c->levels[0].items += n;
		read_key(c, tuple_at(page, i), &key);
		if (!counts(c, &key))
			continue;
		for (int j = 0; j < n; j++)
			add_entry(c, &c->cells[cell_number(c, key.due)], &tids[j]);
	}
	release_leaf(c);
}

/* A page of this level belongs to a period, to nobody, or has to be read. */
static void
sort_place(Count *c, int level, const Place *place, Places *to_read)
{
	bool		one_owner = place->low.owner == place->high.owner && place->low.origin == place->high.origin;
	int			number;

	if (one_owner && !counts(c, &place->low))
		return;
	number = cell_number(c, place->low.due);
	if (compare_lanes(&place->low, &place->high) == 0 && number == cell_number(c, place->high.due))
		add_subtree(&c->cells[number], level, place);
	else
		push_place(to_read, place);
}

static void
read_inner(Count *c, Page page, int level, const DwTaskKey *low, const DwTaskKey *high,
		   Places *to_read)
{
	OffsetNumber first = P_FIRSTDATAKEY(BTPageGetOpaque(page));
	OffsetNumber last = PageGetMaxOffsetNumber(page);

	c->levels[level].pages++;
	c->levels[level].items += last + 1 - first;
	for (OffsetNumber i = first; i <= last; i++)
	{
		Place		child = {BTreeTupleGetDownLink(tuple_at(page, i)), *low, *high};

		if (i > first)
			read_key(c, tuple_at(page, i), &child.low);
		if (i < last)
			read_key(c, tuple_at(page, i + 1), &child.high);
		sort_place(c, level - 1, &child, to_read);
	}
}

/* Reads a page, and those that were split off it since we heard of it. */
static void
read_place(Count *c, int level, const Place *place, Places *to_read)
{
	BlockNumber block = place->block;
	DwTaskKey	low = place->low;

	for (;;)
	{
		Page		page = read_page(c, block, level);
		DwTaskKey	high = place->high;
		bool		split = false;
		BTPageOpaque opaque;

		if (page == NULL)
			return;
		opaque = BTPageGetOpaque(page);
		if (!P_RIGHTMOST(opaque))
		{
			read_key(c, tuple_at(page, P_HIKEY), &high);
			split = compare_keys(&high, &place->high) < 0;
			if (!split)
				high = place->high;
		}
		if (level > 0)
			read_inner(c, page, level, &low, &high, to_read);
		else
			read_leaf(c, page);
		if (!split)
			return;
		low = high;
		block = opaque->btpo_next;
	}
}

/* A page that belongs to several periods, and for which there is no time. */
static void
share_place(Count *c, int level, const Place *place)
{
	int			low = cell_number(c, place->low.due);
	int			high = cell_number(c, place->high.due);
	double		width = (double) place->high.due - (double) place->low.due;

	/* of several lanes, or with an open end: half to either end */
	if (compare_lanes(&place->low, &place->high) != 0 || low > high ||
		place->low.due == PG_INT64_MIN || place->high.due == PG_INT64_MAX)
	{
		c->cells[low].shares[level] += 0.5;
		c->cells[high].shares[level] += 0.5;
		return;
	}
	for (int i = low; i <= high; i++)
	{
		TimestampTz from = i == low ? place->low.due : c->bounds[i - 1];
		TimestampTz until = i == high ? place->high.due : c->bounds[i];

		c->cells[i].shares[level] += ((double) until - (double) from) / width;
	}
}

/* Goes down from the root, to where each period is told from the others. */
static void
divide_tree(Count *c)
{
	Page		page = (Page) c->page.data;
	Buffer		buffer = ReadBuffer(c->index, BTREE_METAPAGE);
	Place		root = {InvalidBlockNumber, lowest_key, highest_key};
	Places		places = {0};
	int			level;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	memcpy(c->page.data, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
	root.block = BTPageGetMeta(page)->btm_fastroot;
	level = BTPageGetMeta(page)->btm_fastlevel;
	if (root.block == P_NONE)
		return;
	if (level >= MAX_LEVELS)
		elog(ERROR, "index \"%s\" has %d levels", RelationGetRelationName(c->index), level + 1);

	push_place(&places, &root);
	for (; level >= 0; level--)
	{
		int64		room = Min(places.n, MAX_PAGES - c->pages);
		Places		below = {0};

		/* if there is not room for all, evenly spread */
		room = Max(room, 0);
		for (int64 i = 0; i < places.n; i++)
			if (i * room / places.n < (i + 1) * room / places.n)
				read_place(c, level, &places.all[i], &below);
			else
				share_place(c, level, &places.all[i]);
		if (places.all != NULL)
			pfree(places.all);
		places = below;
	}
}

/*---- Rows ----*/

/* Does the snapshot see the row, and is it not cancelled? */
static bool
look_up(Count *c, Row row, Lookups *lookups)
{
	bool		call_again = false;
	bool		seen;

	CHECK_FOR_INTERRUPTS();
	c->lookups++;
	lookups->tried++;
	seen = row.seen_by_all ||
		table_index_fetch_tuple(c->fetch, &row.tid, GetActiveSnapshot(), c->slot, &call_again, NULL);
	if (seen && c->nmarks > 0)
	{
		bool		should_free;
		HeapTuple	tuple = ExecFetchSlotHeapTuple(c->slot, false, &should_free);

		seen = !dw_marks_hit(c->rel, tuple);
		if (should_free)
			heap_freetuple(tuple);
	}
	if (seen)
		lookups->seen++;
	return seen;
}

static double
seen_part(const Lookups *lookups)
{
	return lookups->tried > 0 ? (double) lookups->seen / lookups->tried : 1;
}

static int
compare_rows(const void *a, const void *b)
{
	return ItemPointerCompare(&((Row *) a)->tid, &((Row *) b)->tid);
}

/* Of n things, evenly spread, those that are to be taken if no more than most are. */
static bool
is_taken(int64 i, int64 n, int64 most)
{
	return n <= most || i * most / n < (i + 1) * most / n;
}

/* How many entries that were read are of tasks. */
static double
tasks_of_entries(Count *c, Cell *cell, bool all)
{
	Lookups		lookups = {0};
	int			most = all ? cell->nrows : CELL_LOOKUPS;

	DW_INJECT("count-rows");
	qsort(cell->rows, cell->nrows, sizeof(Row), compare_rows);
	for (int i = 0; i < cell->nrows; i++)
		if (is_taken(i, cell->nrows, most) && (all || c->lookups < MAX_LOOKUPS))
			(void) look_up(c, cell->rows[i], &lookups);
	return cell->entries * seen_part(&lookups);
}

/* Looks at some entries of a leaf; returns how many it has. */
static int
measure_leaf(Count *c, Page page, Lookups *lookups)
{
	ItemPointerData tids[MaxTIDsPerBTreePage];
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	int			n = 0;

	for (OffsetNumber i = P_FIRSTDATAKEY(BTPageGetOpaque(page)); i <= last; i++)
	{
		ItemPointer of_entry;
		int			nof_entry = entry_tids(tuple_at(page, i), &of_entry);

		for (int j = 0; j < nof_entry && !is_dead(c, page, i); j++)
			tids[n++] = of_entry[j];
	}
	for (int i = 0; i < n; i++)
		if (is_taken(i, n, LEAF_LOOKUPS) && c->lookups < MAX_LOOKUPS)
			(void) look_up(c, row_at(c, &tids[i]), lookups);
	release_leaf(c);
	return n;
}

/* About how many entries a subtree has: down one way; -1 if it is gone. */
static double
measure_subtree(Count *c, int level, BlockNumber block, Lookups *lookups)
{
	double		entries = 1;
	Page		page;
	int			n;

	for (; level > 0; level--)
	{
		OffsetNumber first;

		page = read_page(c, block, level);
		if (page == NULL)
			return -1;
		first = P_FIRSTDATAKEY(BTPageGetOpaque(page));
		n = PageGetMaxOffsetNumber(page) + 1 - first;
		if (n == 0)
			return -1;
		c->levels[level].pages++;
		c->levels[level].items += n;
		entries *= n;
		block = BTreeTupleGetDownLink(tuple_at(page, first + n / 2));
	}
	page = read_page(c, block, 0);
	if (page == NULL)
		return -1;
	n = measure_leaf(c, page, lookups);
	c->levels[0].pages++;
	c->levels[0].items += n;
	return entries * n;
}

/* Entries of a subtree, by all that were read. */
static double
usual_entries(const Count *c, int level)
{
	double		entries = 1;

	for (int i = 0; i <= level; i++)
		entries *= c->levels[i].pages > 0 ? (double) c->levels[i].items / c->levels[i].pages : USUAL_ENTRIES;
	return entries;
}

static double
tasks_of_subtrees(Count *c, int level, const Subtrees *subtrees)
{
	Lookups		lookups = {0};
	double		sum = 0;
	int			n = 0;

	for (int i = 0; i < subtrees->n && c->pages < 2 * MAX_PAGES; i++)
	{
		double		entries = measure_subtree(c, level, subtrees->sample[i].block, &lookups);

		if (entries < 0)
			continue;
		sum += entries;
		n++;
	}
	return subtrees->count * (n > 0 ? sum / n : usual_entries(c, level)) * seen_part(&lookups);
}

/*---- Periods ----*/

/* May all entries of the period be read?  If so, they are. */
static bool
read_all(Count *c, Cell *cell)
{
	Subtrees   *leaves = cell->subtrees[0];

	for (int level = 0; level < MAX_LEVELS; level++)
		if (cell->shares[level] > 0 || (level > 0 && cell->subtrees[level] != NULL))
			return false;
	if (leaves != NULL && (leaves->count > SAMPLES || c->pages >= 2 * MAX_PAGES))
		return false;
	if (leaves != NULL)
		for (int i = 0; i < leaves->n; i++)
			read_place(c, 0, &leaves->sample[i], NULL);
	cell->subtrees[0] = NULL;
	return cell->entries == cell->nrows && c->lookups + cell->nrows <= MAX_LOOKUPS;
}

static DwDueCount
count_cell(Count *c, Cell *cell)
{
	bool		exact = read_all(c, cell);
	double		tasks = tasks_of_entries(c, cell, exact);

	for (int level = 0; level < MAX_LEVELS; level++)
	{
		if (cell->subtrees[level] != NULL)
			tasks += tasks_of_subtrees(c, level, cell->subtrees[level]);
		if (cell->shares[level] > 0)
			tasks += cell->shares[level] * usual_entries(c, level);
	}
	return (DwDueCount) {(int64) rint(tasks), exact};
}

/*
 * Counts the tasks that the user may know of in the n + 1 periods that n
 * ascending bounds make; the first has no beginning, the last no end.
 */
DwDueCount *
dw_due_counts(const TimestampTz *bounds, int n)
{
	DwDueCount *result = palloc(sizeof(DwDueCount) * (n + 1));
	Count	   *c = palloc0(sizeof(Count));

	c->rel = table_open(dw_catalog()->task, AccessShareLock);
	c->index = index_open(dw_catalog()->task_lane_index, AccessShareLock);
	c->bounds = bounds;
	c->nbounds = n;
	c->cells = palloc0(sizeof(Cell) * (n + 1));
	/* on a standby, others may have set them */
	c->skip_dead = !TransactionStartedDuringRecovery();
	(void) dw_marks_anew(&c->nmarks);
	c->fetch = table_index_fetch_begin(c->rel);
	c->slot = table_slot_create(c->rel, NULL);
	c->map = c->leaf = InvalidBuffer;

	divide_tree(c);
	for (int i = 0; i <= n; i++)
		result[i] = count_cell(c, &c->cells[i]);

	if (BufferIsValid(c->map))
		ReleaseBuffer(c->map);
	ExecDropSingleTupleTableSlot(c->slot);
	table_index_fetch_end(c->fetch);
	index_close(c->index, AccessShareLock);
	table_close(c->rel, AccessShareLock);
	return result;
}
