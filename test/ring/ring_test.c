/*-------------------------------------------------------------------------
 *
 * ring_test.c
 *	  Property test of the ring, the lists and the pool.
 *
 * Random operations run against the code under test and against a model,
 * which keeps all entries in plain arrays and searches them one by one.
 * Every case prints nothing unless it fails; then it names the seed to run
 * it again with.
 *
 *-------------------------------------------------------------------------
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "ring.h"

#define NSIDES		2			/* databases that share the pool */
#define NLISTS		2			/* ready lists of each */
#define NSESSIONS	2			/* passes of each that go on at the same time */
#define OUT_MAX		(4 * DW_CHUNK_ENTRIES + 5)
#define NEVER		UINT64_MAX

#define CHECK(cond) \
	do { if (!(cond)) fail(__LINE__, #cond); } while (0)

/* What the model knows of one entry of a ring */
typedef struct Known
{
	bool		present;
	uint32		pos;			/* in the array of the ids present */
	uint32		slot;
	uint64		born;			/* number of the operation that inserted it */
	DwEntry		entry;
} Known;

typedef struct ModelRing
{
	int64		current_tick;
	uint32		n;
	int64	   *ids;			/* of the n entries, in no order */
	Known	   *known;			/* by id */
	bool	   *tight;			/* by slot: are its bounds to be exact? */
	uint32		nfree_ids;
	int64	   *free_ids;
} ModelRing;

typedef struct ModelList
{
	uint32		start;
	uint32		n;
	uint32		cap;
	DwEntry    *entries;
} ModelList;

/* A pass that other operations come between */
typedef struct Session
{
	bool		open;
	bool		disturbed;		/* it need not be complete any more */
	uint64		begin;
	DwTake		take;
} Session;

typedef struct Side
{
	DwAccount	acct;
	DwRing	   *ring;
	DwList		lists[NLISTS];
	ModelRing	model;
	ModelList	model_lists[NLISTS];
	DwPosition	places[NLISTS]; /* somewhere in them, or not any more */
	Session		sessions[NSESSIONS];
} Side;

typedef struct World
{
	uint32		nslots;
	int64		tick_us;
	uint32		nchunks;
	DwPool	   *pool;
	uint8_t    *seen;
	Side		sides[NSIDES];
} World;

typedef struct Config
{
	uint32		nslots;
	int64		tick_us;
	uint32		nchunks;
} Config;

typedef void (*CaseBody) (World *world, uint64 nops);

static uint64 seed;
static uint64 rng_state;
static uint64 opno;
static const char *case_name;
static const Config *case_config;
static jmp_buf case_failed;
static int	npassed;
static int	nfailed;


/* ----------------------------------------------------------------
 *		Tools
 * ----------------------------------------------------------------
 */

static void
fail(int line, const char *what)
{
	fprintf(stderr, "FAILED: %s (nslots %u, tick %" PRId64 ", chunks %u), "
			"seed %" PRIu64 ", operation %" PRIu64 ", line %d: %s\n",
			case_name, case_config->nslots, case_config->tick_us,
			case_config->nchunks, seed, opno, line, what);
	longjmp(case_failed, 1);
}

/* splitmix64 */
static uint64
rng(void)
{
	uint64		z = (rng_state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

/* in [0, n) */
static uint64
below(uint64 n)
{
	return rng() % n;
}

/* in [from, to] */
static int64
between(int64 from, int64 to)
{
	return from + (int64) below((uint64) (to - from) + 1);
}

static bool
one_in(uint64 n)
{
	return below(n) == 0;
}

static void *
alloc(size_t size)
{
	void	   *p = calloc(1, size > 0 ? size : 1);

	if (p == NULL)
	{
		fprintf(stderr, "out of memory\n");
		exit(2);
	}
	return p;
}

static bool
same_entry(const DwEntry *a, const DwEntry *b)
{
	return a->due == b->due && a->id == b->id && a->block == b->block &&
		a->offset == b->offset && a->lane == b->lane;
}

static DwEntry
make_entry(int64 id, int64 due)
{
	DwEntry		entry;

	entry.due = due;
	entry.id = id;
	entry.block = rng();
	entry.offset = rng();
	entry.lane = rng();
	return entry;
}


/* ----------------------------------------------------------------
 *		The model
 * ----------------------------------------------------------------
 */

static int64
model_tick(const World *world, int64 due)
{
	__int128	tick = due / world->tick_us;

	while (tick * world->tick_us > due)
		tick--;
	return (int64) tick;
}

static uint32
model_index(const World *world, int64 tick)
{
	int64		n = world->nslots;

	return ((tick % n) + n) % n;
}

static void
model_insert(const World *world, ModelRing *model, const DwEntry *entry)
{
	Known	   *known = &model->known[entry->id];
	int64		tick = model_tick(world, entry->due);

	CHECK(!known->present);
	known->present = true;
	known->pos = model->n;
	known->slot = model_index(world, Max(tick, model->current_tick));
	known->born = opno;
	known->entry = *entry;
	model->ids[model->n++] = entry->id;
}

static void
model_remove(ModelRing *model, int64 id)
{
	Known	   *known = &model->known[id];
	int64		last = model->ids[--model->n];

	known->present = false;
	model->ids[known->pos] = last;
	model->known[last].pos = known->pos;
	model->free_ids[model->nfree_ids++] = id;
}

static const Known *
model_nth(const ModelRing *model, uint32 n)
{
	return &model->known[model->ids[n]];
}

static int64
model_min_due(const ModelRing *model)
{
	int64		result = INT64_MAX;

	for (uint32 i = 0; i < model->n; i++)
		result = Min(result, model_nth(model, i)->entry.due);
	return result;
}

static bool
model_all_tight(const World *world, const ModelRing *model)
{
	for (uint32 i = 0; i < world->nslots; i++)
	{
		if (!model->tight[i])
			return false;
	}
	return true;
}

static void
model_reset(const World *world, ModelRing *model, int64 current_tick)
{
	while (model->n > 0)
		model_remove(model, model->ids[0]);
	for (uint32 i = 0; i < world->nslots; i++)
		model->tight[i] = true;
	model->current_tick = current_tick;
}

static void
model_push(ModelList *list, const DwEntry *entry)
{
	if (list->start + list->n == list->cap)
	{
		memmove(list->entries, list->entries + list->start, list->n * sizeof(DwEntry));
		list->start = 0;
	}
	CHECK(list->n < list->cap);
	list->entries[list->start + list->n++] = *entry;
}

static void
model_put_back(ModelList *list, const DwEntry *entry)
{
	CHECK(list->n < list->cap);
	if (list->start == 0)
	{
		list->start = (list->cap - list->n + 1) / 2;
		memmove(list->entries + list->start, list->entries, list->n * sizeof(DwEntry));
	}
	list->entries[--list->start] = *entry;
	list->n++;
}


/* ----------------------------------------------------------------
 *		The world
 * ----------------------------------------------------------------
 */

static void
side_init(World *world, Side *side, uint32 owner, uint32 quota)
{
	uint32		max_entries = world->nchunks * DW_CHUNK_ENTRIES + 1;
	ModelRing  *model = &side->model;

	side->acct = (DwAccount) {owner, 0, quota};
	side->ring = alloc(dw_ring_size(world->nslots));
	dw_ring_init(side->ring, world->nslots, world->tick_us);
	model->ids = alloc(max_entries * sizeof(int64));
	model->known = alloc(max_entries * sizeof(Known));
	model->free_ids = alloc(max_entries * sizeof(int64));
	model->tight = alloc(world->nslots * sizeof(bool));
	for (uint32 i = 0; i < max_entries; i++)
		model->free_ids[model->nfree_ids++] = i;
	model_reset(world, model, 0);
	for (int i = 0; i < NLISTS; i++)
	{
		dw_list_init(&side->lists[i]);
		side->places[i].chunk = DW_NO_CHUNK;
		side->model_lists[i].cap = 2 * max_entries;
		side->model_lists[i].entries = alloc(2 * max_entries * sizeof(DwEntry));
	}
}

static World *
world_create(const Config *config)
{
	World	   *world = alloc(sizeof(World));

	world->nslots = config->nslots;
	world->tick_us = config->tick_us;
	world->nchunks = config->nchunks;
	world->pool = alloc(dw_pool_size(config->nchunks));
	world->seen = alloc(config->nchunks);
	dw_pool_init(world->pool, config->nchunks);

	/* Together more than there is, so that both limits are met */
	side_init(world, &world->sides[0], 7, config->nchunks);
	side_init(world, &world->sides[1], 9, (config->nchunks + 1) / 2);
	return world;
}

static void
world_destroy(World *world)
{
	for (int i = 0; i < NSIDES; i++)
	{
		Side	   *side = &world->sides[i];

		free(side->ring);
		free(side->model.ids);
		free(side->model.known);
		free(side->model.free_ids);
		free(side->model.tight);
		for (int j = 0; j < NLISTS; j++)
			free(side->model_lists[j].entries);
	}
	free(world->pool);
	free(world->seen);
	free(world);
}

/* Another process maps the memory at another address. */
static void
world_relocate(World *world)
{
	Side	   *side = &world->sides[below(NSIDES)];
	DwPool	   *pool = alloc(dw_pool_size(world->nchunks));
	DwRing	   *ring = alloc(dw_ring_size(world->nslots));

	memcpy(pool, world->pool, dw_pool_size(world->nchunks));
	memset(world->pool, 0xA5, dw_pool_size(world->nchunks));
	free(world->pool);
	world->pool = pool;

	memcpy(ring, side->ring, dw_ring_size(world->nslots));
	memset(side->ring, 0xA5, dw_ring_size(world->nslots));
	free(side->ring);
	side->ring = ring;
}


/* ----------------------------------------------------------------
 *		Invariants
 * ----------------------------------------------------------------
 */

static void
check_list(World *world, const Side *side, const DwList *list)
{
	uint32		count = 0;
	uint32		nchunks = 0;
	uint32		last = DW_NO_CHUNK;

	for (uint32 c = list->head; c != DW_NO_CHUNK; c = world->pool->chunks[c].next)
	{
		const DwChunk *chunk;

		CHECK(c < world->nchunks);
		chunk = &world->pool->chunks[c];
		CHECK(world->seen[c]++ == 0);
		CHECK(chunk->owner == side->acct.owner);
		CHECK(chunk->count > 0);
		CHECK((uint32) chunk->first + chunk->count <= DW_CHUNK_ENTRIES);
		count += chunk->count;
		nchunks++;
		last = c;
	}
	CHECK(list->tail == last);
	CHECK(list->count == count);
	CHECK(list->nchunks == nchunks);
}

/* A ready list is at one with its model, and none of its chunks is empty. */
static void
check_ready(World *world, const DwList *list, const ModelList *model)
{
	DwPosition	head = dw_list_head(world->pool, list);
	const DwEntry *first = dw_list_first(world->pool, &head);
	uint32		n = 0;

	CHECK(list->count == model->n);
	CHECK((first == NULL) == (model->n == 0));
	CHECK(first == NULL || same_entry(first, &model->entries[model->start]));
	for (uint32 c = list->head; c != DW_NO_CHUNK; c = world->pool->chunks[c].next)
	{
		const DwChunk *chunk = &world->pool->chunks[c];
		uint32		end = (uint32) chunk->first + chunk->count;

		CHECK(chunk->count > 0 && end <= DW_CHUNK_ENTRIES);
		for (uint32 i = chunk->first; i < end; i++)
			CHECK(same_entry(&chunk->entries[i], &model->entries[model->start + n++]));
	}
	CHECK(n == model->n);
}

static void
check_slot_entries(World *world, Side *side, uint32 slotno)
{
	const DwSlot *slot = dw_ring_slot(side->ring, slotno);
	int64		min_due = INT64_MAX;
	int64		max_due = INT64_MIN;

	for (uint32 c = slot->list.head; c != DW_NO_CHUNK; c = world->pool->chunks[c].next)
	{
		const DwChunk *chunk = &world->pool->chunks[c];

		for (uint32 i = chunk->first; i < (uint32) chunk->first + chunk->count; i++)
		{
			const DwEntry *entry = &chunk->entries[i];
			const Known *known = &side->model.known[entry->id];

			CHECK(known->present && same_entry(entry, &known->entry));
			CHECK(known->slot == slotno);
			min_due = Min(min_due, entry->due);
			max_due = Max(max_due, entry->due);
		}
	}
	CHECK(slot->min_due <= min_due && slot->max_due >= max_due);
	if (side->model.tight[slotno])
		CHECK(slot->min_due == min_due && slot->max_due == max_due);
}

/* With as many entries as the model has, and all known, none is double. */
static void
check_ring(World *world, Side *side)
{
	DwRing	   *ring = side->ring;
	uint64		total = 0;

	CHECK(ring->current_tick == side->model.current_tick);
	for (uint32 s = 0; s < world->nslots; s++)
	{
		const DwSlot *slot = dw_ring_slot(ring, s);
		bool		bit = (ring->occupied[s / 64] >> (s % 64)) & 1;

		CHECK(bit == (slot->list.count > 0));
		if (!bit)
			CHECK(slot->min_due == INT64_MAX && slot->max_due == INT64_MIN);
		check_list(world, side, &slot->list);
		check_slot_entries(world, side, s);
		total += slot->list.count;
	}
	for (uint32 s = world->nslots; s % 64 != 0; s++)
		CHECK(((ring->occupied[s / 64] >> (s % 64)) & 1) == 0);
	CHECK(side->model.n == total);
}

static uint32
count_free(const World *world)
{
	uint32		n = 0;

	for (uint32 c = world->pool->free_head; c != DW_NO_CHUNK; c = world->pool->chunks[c].next)
		n++;
	return n;
}

static void
check_pool(World *world)
{
	uint32		used[NSIDES] = {0};

	CHECK(world->pool->lock == 0);
	for (uint32 c = world->pool->free_head; c != DW_NO_CHUNK; c = world->pool->chunks[c].next)
	{
		CHECK(c < world->nchunks);
		CHECK(world->seen[c]++ == 0);
		CHECK(world->pool->chunks[c].owner == 0);
	}
	for (uint32 c = 0; c < world->nchunks; c++)
	{
		CHECK(world->seen[c] == 1);
		for (int i = 0; i < NSIDES; i++)
			used[i] += world->pool->chunks[c].owner == world->sides[i].acct.owner;
	}
	for (int i = 0; i < NSIDES; i++)
	{
		CHECK(world->sides[i].acct.used == used[i]);
		CHECK(used[i] <= world->sides[i].acct.quota);
	}
}

static void
check_world(World *world)
{
	memset(world->seen, 0, world->nchunks);
	for (int i = 0; i < NSIDES; i++)
	{
		Side	   *side = &world->sides[i];

		check_ring(world, side);
		for (int j = 0; j < NLISTS; j++)
		{
			check_list(world, side, &side->lists[j]);
			check_ready(world, &side->lists[j], &side->model_lists[j]);
		}
	}
	check_pool(world);
}

static void
check_next_due(World *world, Side *side)
{
	int64		next = dw_ring_next_due(side->ring);
	int64		least = INT64_MAX;
	int64		min_due = model_min_due(&side->model);

	for (uint32 s = 0; s < world->nslots; s++)
		least = Min(least, dw_ring_slot(side->ring, s)->min_due);
	CHECK(next == least);
	CHECK(next <= min_due);
	if (model_all_tight(world, &side->model))
		CHECK(next == min_due);
}


/* ----------------------------------------------------------------
 *		Operations, each with its model
 * ----------------------------------------------------------------
 */

static bool
may_alloc(const World *world, const Side *side)
{
	return world->pool->free_head != DW_NO_CHUNK && side->acct.used < side->acct.quota;
}

/* A failed insert or push must leave no trace. */
static bool
do_insert(World *world, Side *side, int64 due)
{
	ModelRing  *model = &side->model;
	DwEntry		entry;
	uint32		slotno;
	DwSlot		before;
	bool		could = may_alloc(world, side);

	if (model->nfree_ids == 0)
		return false;
	entry = make_entry(model->free_ids[model->nfree_ids - 1], due);
	slotno = model_index(world, Max(model_tick(world, due), model->current_tick));
	before = *dw_ring_slot(side->ring, slotno);

	if (dw_ring_insert(side->ring, world->pool, &side->acct, &entry))
	{
		model->nfree_ids--;
		model_insert(world, model, &entry);
		return true;
	}
	CHECK(!could);
	CHECK(memcmp(&before, dw_ring_slot(side->ring, slotno), sizeof(DwSlot)) == 0);
	return false;
}

static int64
any_due(const World *world, const Side *side)
{
	int64		turn = (int64) world->nslots * world->tick_us;
	int64		now = side->model.current_tick * world->tick_us;
	int64		fixed = now - now % (turn * 4);

	switch (below(12))
	{
		case 0:
			return between(-3 * turn, 3 * turn);
		case 1:
			return now - between(0, 3 * turn);
		case 2:
			return now + between(0, 50 * turn);
		case 3:
			return now + turn * between(0, 3) + between(-1, 1);
		case 4:
			return now + world->tick_us * between(-2, 2) + between(-1, 1);
		case 5:
			return fixed + between(0, 2);
		case 6:
			if (one_in(20))
				return one_in(2) ? INT64_MAX - between(0, 2) : INT64_MIN + between(0, 2);
			return now;
		default:
			return now + between(0, turn);
	}
}

static void
accept_taken(Side *side, const DwTake *take, const DwEntry *out, uint32 n)
{
	for (uint32 i = 0; i < n; i++)
	{
		const Known *known = &side->model.known[out[i].id];

		CHECK(known->present && same_entry(&known->entry, &out[i]));
		CHECK(known->slot == take->slot);
		CHECK(out[i].due <= take->until_due);
		model_remove(&side->model, out[i].id);
	}
}

/* A slice of a pass. */
static uint32
do_take(World *world, Side *side, DwTake *take, DwEntry *out)
{
	uint32		max = (uint32) between(DW_CHUNK_ENTRIES, OUT_MAX);
	uint32		before = take->chunks_left;
	uint32		used = side->acct.used;
	uint32		n;

	n = dw_ring_take(side->ring, world->pool, &side->acct, take, out, max);
	CHECK(n <= max);
	CHECK(before == 0 || take->chunks_left < before);
	CHECK(side->acct.used <= used);
	accept_taken(side, take, out, n);
	if (n > 0)
		side->model.tight[take->slot] = false;
	return n;
}

/* Nothing born before the pass began may be left that is due. */
static void
check_pass(Side *side, const DwTake *take, uint64 begin)
{
	for (uint32 i = 0; i < side->model.n; i++)
	{
		const Known *known = model_nth(&side->model, i);

		CHECK(known->slot != take->slot || known->born >= begin ||
			  known->entry.due > take->until_due);
	}
}

static void
disturb_sessions(Side *side, uint32 slotno)
{
	for (int i = 0; i < NSESSIONS; i++)
	{
		if (slotno == UINT32_MAX || side->sessions[i].take.slot == slotno)
			side->sessions[i].disturbed = true;
	}
}

/* The end of the tick as a rule, or some time within it. */
static int64
some_due_of(const Side *side, int64 tick)
{
	int64		due = dw_ring_last_due(side->ring, tick);

	return one_in(3) && due > INT64_MIN + side->ring->tick_us ?
		due - between(0, side->ring->tick_us) : due;
}

/* A whole pass that nothing comes between. */
static void
do_pass(World *world, Side *side, int64 slot_tick, int64 until_tick)
{
	DwEntry		out[OUT_MAX];
	DwTake		take;

	disturb_sessions(side, model_index(world, slot_tick));
	dw_ring_take_begin(side->ring, slot_tick, some_due_of(side, until_tick), &take);
	CHECK(take.slot == model_index(world, slot_tick));
	do
		do_take(world, side, &take, out);
	while (take.chunks_left > 0);
	side->model.tight[take.slot] = true;
	check_pass(side, &take, NEVER);
}

static void
some_ticks(const World *world, const Side *side, int64 *slot_tick, int64 *until_tick)
{
	int64		current = side->model.current_tick;
	int64		nslots = world->nslots;

	*slot_tick = current;
	if (one_in(2) && side->model.n > 0)
		*slot_tick = model_tick(world, model_nth(&side->model, below(side->model.n))->entry.due);
	else if (one_in(3))
		*slot_tick = current + between(-nslots, nslots);
	*until_tick = *slot_tick;
	if (one_in(3))
		*until_tick = current + between(-nslots, 4 * nslots);
}

static void
op_pass(World *world, Side *side)
{
	int64		slot_tick;
	int64		until_tick;

	some_ticks(world, side, &slot_tick, &until_tick);
	do_pass(world, side, slot_tick, until_tick);
}

static void
op_session(World *world, Side *side)
{
	Session    *session = &side->sessions[below(NSESSIONS)];
	DwEntry		out[OUT_MAX];

	if (!session->open)
	{
		int64		slot_tick;
		int64		until_tick;

		some_ticks(world, side, &slot_tick, &until_tick);
		disturb_sessions(side, model_index(world, slot_tick));
		dw_ring_take_begin(side->ring, slot_tick, some_due_of(side, until_tick), &session->take);
		session->open = true;
		session->disturbed = false;
		session->begin = opno;
		return;
	}

	/* A slice of one pass disturbs all others over the same slot */
	for (int i = 0; i < NSESSIONS; i++)
	{
		if (&side->sessions[i] != session && side->sessions[i].take.slot == session->take.slot)
			side->sessions[i].disturbed = true;
	}
	/* it may come to want less */
	if (one_in(8))
		session->take.until_due -= session->take.until_due > 0 ? between(0, side->ring->tick_us) : 0;
	do_take(world, side, &session->take, out);
	if (session->take.chunks_left == 0)
	{
		session->open = false;
		if (!session->disturbed)
			check_pass(side, &session->take, session->begin);
	}
}

typedef struct Predicate
{
	uint64		salt;
	uint64		out_of;			/* 0: keep nothing, 1: all */
	uint64		calls;
} Predicate;

static bool
wanted(const DwEntry *entry, const Predicate *predicate)
{
	uint64		hash;

	if (predicate->out_of <= 1)
		return predicate->out_of == 1;
	hash = ((uint64) entry->id ^ entry->block ^ predicate->salt) * UINT64_C(0x9E3779B97F4A7C15);
	return (hash >> 32) % predicate->out_of != 0;
}

static bool
keep_wanted(const DwEntry *entry, void *arg)
{
	((Predicate *) arg)->calls++;
	return wanted(entry, arg);
}

static Predicate
any_predicate(void)
{
	Predicate	predicate = {rng(), one_in(8) ? below(2) : 2 + below(10), 0};

	return predicate;
}

static void
op_ring_filter(World *world, Side *side)
{
	Predicate	predicate = any_predicate();
	ModelRing  *model = &side->model;
	uint64		before = model->n;
	uint32		used = side->acct.used;

	dw_ring_filter(side->ring, world->pool, &side->acct, keep_wanted, &predicate);
	CHECK(predicate.calls == before);
	CHECK(side->acct.used <= used);
	for (uint32 i = 0; i < model->n;)
	{
		if (wanted(&model_nth(model, i)->entry, &predicate))
			i++;
		else
			model_remove(model, model->ids[i]);
	}
	for (uint32 i = 0; i < world->nslots; i++)
	{
		uint32		count = dw_ring_slot(side->ring, i)->list.count;

		model->tight[i] = true;
		CHECK(dw_ring_slot(side->ring, i)->list.nchunks ==
			  (count + DW_CHUNK_ENTRIES - 1) / DW_CHUNK_ENTRIES);
	}
	disturb_sessions(side, UINT32_MAX);
}

static void
do_advance(Side *side, int64 tick)
{
	dw_ring_advance(side->ring, tick);
	side->model.current_tick = tick;
}

static void
op_advance(World *world, Side *side)
{
	int64		nslots = world->nslots;
	int64		step = 1;

	if (one_in(4))
		step = between(-3, 3);
	else if (one_in(8))
		step = between(-3 * nslots, 3 * nslots);
	do_advance(side, side->model.current_tick + step);
}

static bool
do_push(World *world, Side *side, int listno, const DwEntry *entry)
{
	DwList		before = side->lists[listno];
	bool		could = may_alloc(world, side);

	if (dw_list_push(world->pool, &side->acct, &side->lists[listno], entry))
	{
		model_push(&side->model_lists[listno], entry);
		return true;
	}
	CHECK(!could);
	CHECK(memcmp(&before, &side->lists[listno], sizeof(DwList)) == 0);
	return false;
}

/* Where entries were popped, there is room without a chunk. */
static bool
do_put_back(World *world, Side *side, int listno, const DwEntry *entry)
{
	DwList	   *list = &side->lists[listno];
	DwList		before = *list;
	uint32		used = side->acct.used;
	bool		room = list->head != DW_NO_CHUNK && world->pool->chunks[list->head].first > 0;
	bool		could = room || may_alloc(world, side);
	DwPosition	head;

	if (dw_list_put_back(world->pool, &side->acct, list, entry))
	{
		CHECK(could);
		CHECK(side->acct.used == used + (room ? 0 : 1));
		head = dw_list_head(world->pool, list);
		CHECK(same_entry(dw_list_first(world->pool, &head), entry));
		model_put_back(&side->model_lists[listno], entry);
		return true;
	}
	CHECK(!could);
	CHECK(memcmp(&before, list, sizeof(DwList)) == 0);
	CHECK(side->acct.used == used);
	return false;
}

static bool
pop_entry(World *world, Side *side, int listno, DwEntry *entry)
{
	ModelList  *model = &side->model_lists[listno];
	DwPosition	head = dw_list_head(world->pool, &side->lists[listno]);
	const DwEntry *first = dw_list_first(world->pool, &head);

	CHECK((first == NULL) == (model->n == 0));
	CHECK(first == NULL || same_entry(first, &model->entries[model->start]));
	if (!dw_list_pop(world->pool, &side->acct, &side->lists[listno], &head, entry))
	{
		CHECK(model->n == 0);
		return false;
	}
	CHECK(model->n > 0);
	CHECK(same_entry(entry, &model->entries[model->start]));
	model->start++;
	model->n--;
	return true;
}

static bool
do_pop(World *world, Side *side, int listno)
{
	DwEntry		entry;

	return pop_entry(world, side, listno, &entry);
}

/*
 * As a batch that is undone: what was popped is put back, the last one first,
 * while others come to the end.
 */
static void
op_undo(World *world, Side *side, int listno)
{
	DwEntry		popped[DW_CHUNK_ENTRIES * 3];
	uint32		wanted = 1 + (uint32) below(one_in(4) ? DW_CHUNK_ENTRIES * 3 : 5);
	uint32		n = 0;

	while (n < wanted && pop_entry(world, side, listno, &popped[n]))
		n++;
	for (uint64 more = one_in(2) ? below(50) : 0; more > 0; more--)
	{
		DwEntry		entry = make_entry((int64) rng(), (int64) rng());

		do_push(world, side, listno, &entry);
	}
	/* the timer reads again what finds no room */
	while (n > 0)
		do_put_back(world, side, listno, &popped[--n]);
}

/* How many entries of a list are before a place; all of them if it is not there. */
static uint32
entries_before(const World *world, const DwList *list, const DwPosition *place)
{
	uint32		n = 0;

	for (uint32 c = list->head; c != DW_NO_CHUNK; c = world->pool->chunks[c].next)
	{
		if (c == place->chunk && world->pool->chunks[c].serial == place->serial)
			break;
		n += world->pool->chunks[c].count;
	}
	return n;
}

/* Pops where it did the time before, or at a new place. */
static void
op_pop_at_place(World *world, Side *side, int listno)
{
	ModelList  *model = &side->model_lists[listno];
	DwList	   *list = &side->lists[listno];
	DwPosition    *place = &side->places[listno];
	uint32		before;
	DwEntry    *expected;
	const DwEntry *first;
	DwEntry		entry;

	if (one_in(10))
	{
		DwPosition	head = dw_list_head(world->pool, list);

		*place = dw_list_ahead(world->pool, &head, below(list->nchunks + 1));
		CHECK((place->chunk == DW_NO_CHUNK) == (entries_before(world, list, place) == model->n));
	}
	before = entries_before(world, list, place);
	expected = &model->entries[model->start + before];
	first = dw_list_first(world->pool, place);
	CHECK((first != NULL) == (before < model->n));
	if (first != NULL)
		CHECK(same_entry(first, expected));
	CHECK(dw_list_pop(world->pool, &side->acct, list, place, &entry) == (before < model->n));
	if (before == model->n)
		return;
	CHECK(same_entry(&entry, expected));
	model->n--;
	memmove(expected, expected + 1, (model->n - before) * sizeof(DwEntry));
	CHECK(entries_before(world, list, place) == before);
}

static void
op_list_filter(World *world, Side *side, int listno)
{
	Predicate	predicate = any_predicate();
	ModelList  *model = &side->model_lists[listno];
	DwList	   *list = &side->lists[listno];
	uint32		before = model->n;
	uint32		kept = 0;

	dw_list_filter(world->pool, &side->acct, list, keep_wanted, &predicate);
	CHECK(predicate.calls == before);
	for (uint32 i = 0; i < before; i++)
	{
		DwEntry    *entry = &model->entries[model->start + i];

		if (wanted(entry, &predicate))
			model->entries[model->start + kept++] = *entry;
	}
	model->n = kept;
	CHECK(list->count == kept);
	CHECK(list->nchunks == (kept + DW_CHUNK_ENTRIES - 1) / DW_CHUNK_ENTRIES);
}

static void
op_list_append(World *world, Side *side, int listno)
{
	int			moreno = (listno + 1) % NLISTS;
	ModelList  *model = &side->model_lists[moreno];

	dw_list_append(world->pool, &side->lists[listno], &side->lists[moreno]);
	CHECK(side->lists[moreno].count == 0 && side->lists[moreno].nchunks == 0);
	side->places[moreno].chunk = DW_NO_CHUNK;
	for (; model->n > 0; model->n--)
		model_push(&side->model_lists[listno], &model->entries[model->start++]);
}

static void
op_list(World *world, Side *side)
{
	int			listno = (int) below(NLISTS);
	uint32		n = one_in(10) ? 100 : 1;

	switch (below(14))
	{
		case 0:
			if (one_in(10))
				op_list_filter(world, side, listno);
			else if (one_in(10))
				op_list_append(world, side, listno);
			break;
		case 9:
			op_undo(world, side, listno);
			break;
		case 10:
			/* of another executor, of which nothing is left here */
			for (; n > 0; n--)
			{
				DwEntry		entry = make_entry((int64) rng(), (int64) rng());

				do_put_back(world, side, listno, &entry);
			}
			break;
		case 11:
		case 12:
		case 13:
			for (; n > 0; n--)
				op_pop_at_place(world, side, listno);
			break;
		case 1:
		case 2:
		case 3:
		case 4:
			for (; n > 0; n--)
			{
				DwEntry		entry = make_entry((int64) rng(), (int64) rng());

				do_push(world, side, listno, &entry);
			}
			break;
		default:
			while (n-- > 0 && do_pop(world, side, listno))
				;
			break;
	}
}

/* The timer has died; another one begins anew. */
static void
op_reclaim(World *world, Side *side)
{
	int64		tick = between(-1000, 1000);

	dw_pool_reclaim(world->pool, &side->acct);
	CHECK(side->acct.used == 0);
	dw_ring_init(side->ring, world->nslots, world->tick_us);
	dw_ring_advance(side->ring, tick);
	model_reset(world, &side->model, tick);
	for (int i = 0; i < NLISTS; i++)
	{
		dw_list_init(&side->lists[i]);
		side->model_lists[i].start = 0;
		side->model_lists[i].n = 0;
	}
	for (int i = 0; i < NSESSIONS; i++)
		side->sessions[i].open = false;
}

static void
op_insert(World *world, Side *side)
{
	int64		due = any_due(world, side);
	uint32		n = one_in(40) ? (uint32) below(300) : 1;

	for (; n > 0; n--)
		do_insert(world, side, due);
}

/* Not below what is in use, so that this stays an invariant. */
static void
op_quota(World *world, Side *side)
{
	side->acct.quota = (uint32) between(side->acct.used, world->nchunks);
}


/* ----------------------------------------------------------------
 *		Cases: random operations
 * ----------------------------------------------------------------
 */

/* Checking costs time in proportion to what there is to check. */
static void
check_sometimes(World *world, Side *side)
{
	uint64		size = side->model.n + world->nslots + world->nchunks;

	if (one_in(16 + size / 2))
		check_world(world);
	if (one_in(4 + size / 8))
		check_next_due(world, side);
}

static void
random_ring_ops(World *world, Side *side)
{
	switch (below(40))
	{
		case 0:
		case 1:
		case 2:
			op_advance(world, side);
			break;
		case 3:
			op_pass(world, side);
			break;
		case 4:
		case 5:
		case 6:
		case 7:
			op_session(world, side);
			break;
		case 8:
			if (one_in(100))
				op_ring_filter(world, side);
			break;
		default:
			if (one_in(2))
				op_insert(world, side);
			else
				op_pass(world, side);
			break;
	}
}

static void
case_random_all(World *world, uint64 nops)
{
	for (; opno < nops; opno++)
	{
		Side	   *side = &world->sides[below(NSIDES)];

		if (one_in(3))
			op_list(world, side);
		else
			random_ring_ops(world, side);
		if (one_in(20000))
			op_reclaim(world, side);
		if (one_in(1000))
			op_quota(world, side);
		if (one_in(20000))
			world_relocate(world);
		check_sometimes(world, side);
	}
	check_world(world);
}

/* Long fill and drain phases, which random operations alone do not make. */
static void
case_fill_and_drain(World *world, uint64 nops)
{
	while (opno < nops)
	{
		Side	   *side = &world->sides[below(NSIDES)];
		int64		due = any_due(world, side);

		while (do_insert(world, side, one_in(2) ? due : any_due(world, side)))
			opno++;
		check_world(world);
		check_next_due(world, side);
		for (uint32 i = 0; i < world->nslots && side->model.n > 0; i++)
		{
			int64		tick = side->model.current_tick + 1;

			do_pass(world, side, tick, one_in(2) ? tick : tick + world->nslots);
			do_advance(side, tick);
			if (one_in(world->nslots))
				check_next_due(world, side);
			opno++;
		}
		check_world(world);
		if (one_in(4))
			op_reclaim(world, side);
		opno++;
	}
}

/* Only whole passes: then next_due is exact, wherever the clock is. */
static void
case_next_due_exact(World *world, uint64 nops)
{
	Side	   *side = &world->sides[0];

	for (opno = 0; opno < nops / 4; opno++)
	{
		switch (below(8))
		{
			case 0:
				op_advance(world, side);
				break;
			case 1:
			case 2:
				op_pass(world, side);
				break;
			case 3:
				if (one_in(50))
					op_ring_filter(world, side);
				break;
			default:
				if (side->model.n < 40 || one_in(4))
					do_insert(world, side, any_due(world, side));
				break;
		}
		CHECK(model_all_tight(world, &side->model));
		if (world->nslots < 100 || one_in(64))
			check_next_due(world, side);
	}
}


/* ----------------------------------------------------------------
 *		Case: as the timer drives it
 * ----------------------------------------------------------------
 */

typedef struct Clock
{
	int64		now;
	uint64		inserted;
	uint64		delivered;
} Clock;

/* No entry is due at a time that the timer has already handled. */
static void
check_nothing_late(World *world, Side *side, int64 tick)
{
	CHECK(model_tick(world, model_min_due(&side->model)) > tick || side->model.n == 0);
}

static void
sim_insert(World *world, Side *side, Clock *sim)
{
	int64		turn = (int64) world->nslots * world->tick_us;
	int64		due = sim->now + between(-world->tick_us, 2 * turn);

	if (one_in(4))
		due = sim->now + between(-2 * turn, 10 * turn);
	if (do_insert(world, side, due))
		sim->inserted++;
}

static void
sim_deliver(World *world, Side *side, Clock *sim, const DwEntry *out, uint32 n)
{
	for (uint32 i = 0; i < n; i++)
	{
		CHECK(model_tick(world, out[i].due) <= model_tick(world, sim->now));
		sim->delivered++;
		/* With no room in the ready list, a real timer would try again */
		do_push(world, side, out[i].lane % NLISTS, &out[i]);
	}
}

static void
sim_pass(World *world, Side *side, Clock *sim, int64 tick, int64 until, bool noise)
{
	DwEntry		out[OUT_MAX];
	DwTake		take;

	dw_ring_take_begin(side->ring, tick, dw_ring_last_due(side->ring, until), &take);
	while (take.chunks_left > 0)
	{
		sim_deliver(world, side, sim, out, do_take(world, side, &take, out));
		if (noise && one_in(8))
			sim_insert(world, side, sim);
		if (noise && one_in(500))
		{
			op_ring_filter(world, side);
			/* What is filtered out is not to be waited for */
			sim->inserted = sim->delivered + side->model.n;
			dw_ring_take_begin(side->ring, tick, dw_ring_last_due(side->ring, until), &take);
		}
	}
}

/*
 * One round of the timer: the slots from its tick to the one of now.  What is
 * due then still, it finds in the slots whose bounds say so.
 */
static void
sim_round(World *world, Side *side, Clock *sim)
{
	int64		now_tick = model_tick(world, sim->now);
	int64		from = side->model.current_tick;
	bool		advance_first = one_in(4);
	int			sweeps = 0;

	if (now_tick < from || advance_first)
		do_advance(side, now_tick);
	from = Max(from, now_tick - (int64) world->nslots + 1);
	for (int64 tick = from; tick <= now_tick; tick++)
		sim_pass(world, side, sim, tick, now_tick, true);
	do_advance(side, now_tick);

	while (side->model.n > 0 &&
		   dw_ring_tick(side->ring, dw_ring_next_due(side->ring)) <= now_tick)
	{
		CHECK(++sweeps <= 2);
		for (uint32 s = 0; s < world->nslots; s++)
		{
			if (dw_ring_tick(side->ring, dw_ring_slot(side->ring, s)->min_due) <= now_tick)
				sim_pass(world, side, sim, s, now_tick, false);
		}
	}
	check_nothing_late(world, side, now_tick);
	CHECK(sim->inserted == sim->delivered + side->model.n);
}

/* Time goes on until the timer wants to wake up, or something disturbs. */
static void
sim_sleep(World *world, Side *side, Clock *sim)
{
	int64		turn = (int64) world->nslots * world->tick_us;
	int64		next = dw_ring_next_due(side->ring);
	int64		nap = between(0, 3 * world->tick_us);

	if (side->model.n > 0 && one_in(2))
		nap = Min(Max(next - sim->now, 0), 20 * turn);
	if (one_in(50))
		nap = between(0, 5 * turn);
	if (one_in(50))
		nap = -between(0, 3 * turn);
	if (one_in(1000))
		nap = between(-50 * turn, 50 * turn);
	sim->now += nap;
}

/* A new timer reads again what the dead one held. */
static void
sim_takeover(World *world, Side *side, Clock *sim)
{
	uint32		n = side->model.n;
	int64	   *dues = alloc(n * sizeof(int64));

	for (uint32 i = 0; i < n; i++)
		dues[i] = model_nth(&side->model, i)->entry.due;
	op_reclaim(world, side);
	do_advance(side, model_tick(world, sim->now));
	for (uint32 i = 0; i < n; i++)
		do_insert(world, side, dues[i]);
	sim->inserted = sim->delivered + side->model.n;
	free(dues);
}

static void
case_timer(World *world, uint64 nops)
{
	Side	   *side = &world->sides[0];
	Clock		sim = {0, 0, 0};

	sim.now = between(-100, 100) * world->tick_us;
	do_advance(side, model_tick(world, sim.now));
	for (opno = 0; opno < nops / 8; opno++)
	{
		uint32		n = one_in(50) ? (uint32) below(500) : (uint32) below(4);

		for (; n > 0; n--)
			sim_insert(world, side, &sim);
		sim_sleep(world, side, &sim);
		sim_round(world, side, &sim);
		for (n = (uint32) below(8); n > 0; n--)
			do_pop(world, side, (int) below(NLISTS));
		if (one_in(5000))
			sim_takeover(world, side, &sim);
		if (one_in(16 + (world->nslots + side->model.n) / 4))
			check_world(world);
	}
	check_world(world);
}

/* With the hand on time, an entry comes out of the slot of its own tick. */
static void
case_own_tick(World *world, uint64 nops)
{
	Side	   *side = &world->sides[0];
	int64		turn = (int64) world->nslots * world->tick_us;

	for (opno = 0; opno < nops / 8; opno++)
	{
		int64		tick = side->model.current_tick;
		DwEntry		out[OUT_MAX];
		DwTake		take;

		for (uint64 n = below(4); n > 0; n--)
			do_insert(world, side, tick * world->tick_us + between(0, 6 * turn));
		dw_ring_take_begin(side->ring, tick, dw_ring_last_due(side->ring, tick), &take);
		while (take.chunks_left > 0)
		{
			uint32		n = do_take(world, side, &take, out);

			while (n > 0)
				CHECK(model_tick(world, out[--n].due) == tick);
		}
		side->model.tight[take.slot] = true;
		if (world->nslots < 100 || one_in(32))
		{
			check_nothing_late(world, side, tick);
			check_next_due(world, side);
		}
		do_advance(side, tick + 1);
	}
	check_world(world);
}


/* ----------------------------------------------------------------
 *		Cases: single properties
 * ----------------------------------------------------------------
 */

static void
case_arithmetic(World *world, uint64 nops)
{
	DwRing	   *ring = world->sides[0].ring;

	for (opno = 0; opno < nops / 8; opno++)
	{
		int64		due = (int64) rng() >> below(63);
		int64		tick;
		__int128	start;
		__int128	ahead;

		if (one_in(100))
			due = one_in(2) ? INT64_MAX : INT64_MIN;
		tick = dw_ring_tick(ring, due);
		start = (__int128) tick * world->tick_us;
		CHECK(start <= due && due < start + world->tick_us);
		CHECK(dw_ring_index(ring, tick) < world->nslots);
		CHECK(((__int128) tick - dw_ring_index(ring, tick)) % world->nslots == 0);

		dw_ring_advance(ring, (int64) rng() >> (1 + below(60)));
		ahead = (__int128) tick - ring->current_tick;
		ahead = ahead < 0 ? 0 : ahead / world->nslots;
		if (ahead <= INT64_MAX)
			CHECK(dw_ring_cycle(ring, due) == (int64) ahead);
	}
}

static void
case_fresh(World *world, uint64 nops)
{
	(void) nops;
	CHECK(dw_pool_size(world->nchunks) == offsetof(DwPool, chunks) + 1024 * (size_t) world->nchunks);
	CHECK(dw_ring_size(world->nslots) % 8 == 0);
	CHECK((char *) (dw_ring_slot(world->sides[0].ring, world->nslots - 1) + 1) <=
		  (char *) world->sides[0].ring + dw_ring_size(world->nslots));
	CHECK(count_free(world) == world->nchunks);
	CHECK(dw_ring_next_due(world->sides[0].ring) == INT64_MAX);
	check_world(world);
}

/* With the pool exhausted, passes still work and need no chunk. */
static void
case_take_when_exhausted(World *world, uint64 nops)
{
	Side	   *side = &world->sides[0];

	for (opno = 0; opno < nops / 2000; opno++)
	{
		int64		now = side->model.current_tick;

		while (do_insert(world, side, any_due(world, side)))
			;
		side->acct.quota = side->acct.used;
		CHECK(!may_alloc(world, side));
		for (int i = 0; i < 5; i++)
			op_pass(world, side);
		check_world(world);
		if (one_in(3))
			do_pass(world, side, now, now + 2 * (int64) world->nslots);
		side->acct.quota = world->nchunks;
		check_world(world);
	}
}

/* Neither side gets more than its quota, nor what the other one holds. */
static void
case_quota(World *world, uint64 nops)
{
	DwEntry		entry = make_entry(1, 1);

	(void) nops;
	for (uint32 quota = 0; quota <= world->nchunks; quota++)
	{
		uint32		rest = world->nchunks - quota;
		uint32		n[NSIDES] = {0};

		world->sides[0].acct.quota = quota;
		world->sides[1].acct.quota = world->nchunks;
		for (int i = 0; i < NSIDES; i++)
		{
			while (do_push(world, &world->sides[i], 0, &entry))
				n[i]++;
		}
		CHECK(n[0] == quota * DW_CHUNK_ENTRIES);
		CHECK(n[1] == rest * DW_CHUNK_ENTRIES);
		check_world(world);

		/* A quota lowered below what is in use stops the growth */
		world->sides[1].acct.quota = 0;
		CHECK(do_pop(world, &world->sides[1], 0) == (rest > 0));
		CHECK(!do_push(world, &world->sides[1], 0, &entry));
		for (int i = 0; i < NSIDES; i++)
		{
			while (do_pop(world, &world->sides[i], 0))
				;
		}
		check_world(world);
	}
}

/*
 * Only put back: the pool is used up to the last place, and what comes out is
 * in the order of the latest one first.
 */
static void
case_put_back(World *world, uint64 nops)
{
	Side	   *side = &world->sides[0];

	for (opno = 0; opno < nops / 20000 + 1; opno++)
	{
		uint32		quota = (uint32) between(1, world->nchunks);
		int64		n = 0;
		DwEntry		entry = make_entry(0, 0);

		side->acct.quota = quota;
		CHECK(side->lists[0].head == DW_NO_CHUNK);
		for (; do_put_back(world, side, 0, &entry); entry.id = n)
			n++;
		CHECK(n == (int64) quota * DW_CHUNK_ENTRIES);
		CHECK(!do_push(world, side, 0, &entry));
		check_world(world);
		while (pop_entry(world, side, 0, &entry))
			CHECK(entry.id == --n);
		CHECK(n == 0 && side->acct.used == 0);
		op_undo(world, side, 1);
		check_world(world);
		while (do_pop(world, side, 1))
			;
	}
}

static void
case_reclaim(World *world, uint64 nops)
{
	for (opno = 0; opno < nops / 2000; opno++)
	{
		Side	   *dead = &world->sides[opno % NSIDES];
		Side	   *other = &world->sides[1 - opno % NSIDES];
		uint32		used;

		for (int i = 0; i < 50; i++)
		{
			op_insert(world, &world->sides[i % NSIDES]);
			op_list(world, &world->sides[i % NSIDES]);
		}
		used = other->acct.used;
		op_reclaim(world, dead);
		CHECK(other->acct.used == used);
		CHECK(count_free(world) == world->nchunks - used);
		check_world(world);
	}
}

/* A filter in the middle of a pass: it ends, and loses nothing. */
static void
case_filter_in_pass(World *world, uint64 nops)
{
	Side	   *side = &world->sides[0];

	for (opno = 0; opno < nops / 1000; opno++)
	{
		int64		tick = side->model.current_tick;
		int64		due = tick * world->tick_us;
		DwEntry		out[OUT_MAX];
		DwTake		take;
		int64		soonest = one_in(3) ? 1 : 0;
		int			slices = 0;

		for (uint64 n = below(400); n > 0; n--)
			do_insert(world, side, due + between(soonest, 2) * world->nslots * world->tick_us +
					  between(0, world->tick_us - 1));
		dw_ring_take_begin(side->ring, tick, dw_ring_last_due(side->ring, tick), &take);
		do_take(world, side, &take, out);
		op_ring_filter(world, side);

		/* Whoever does not start again must still come to an end */
		while (one_in(2) && take.chunks_left > 0)
		{
			do_take(world, side, &take, out);
			CHECK(++slices <= 20);
		}
		take.chunks_left += (uint32) below(1000);
		while (take.chunks_left > 0)
		{
			do_take(world, side, &take, out);
			CHECK(++slices <= 2000);
		}
		check_world(world);
		do_pass(world, side, tick, tick);
		check_world(world);
		do_advance(side, tick + 1);
		check_next_due(world, side);
	}
}

/* Kept entries go around without spreading over more chunks. */
static void
case_pass_compacts(World *world, uint64 nops)
{
	Side	   *side = &world->sides[0];

	for (opno = 0; opno < nops / 2000; opno++)
	{
		int64		tick = side->model.current_tick;
		const DwSlot *slot;

		for (uint64 n = below(300); n > 0; n--)
			do_insert(world, side, (tick + between(0, 3) * world->nslots) * world->tick_us);
		do_pass(world, side, tick, tick);
		slot = dw_ring_slot(side->ring, dw_ring_index(side->ring, tick));
		CHECK(slot->list.nchunks <= (slot->list.count + DW_CHUNK_ENTRIES - 1) / DW_CHUNK_ENTRIES + 1);
		check_world(world);
		do_advance(side, tick + world->nslots);
	}
}

/*
 * An entry that came late and is then, the clock having gone back, early
 * again, but not in its own slot: next to others of the same tick.
 */
static void
clamp_and_step_back(World *world, Side *side)
{
	int64		nslots = world->nslots;
	int64		tick = side->model.current_tick - between(1, nslots);

	do_insert(world, side, tick * world->tick_us + between(0, world->tick_us - 1));
	do_advance(side, tick - between(0, nslots));
	for (int i = 0; i < 3; i++)
	{
		do_insert(world, side, (tick + between(0, 1)) * world->tick_us +
				  between(0, world->tick_us - 1));
		check_next_due(world, side);
	}
	do_pass(world, side, side->model.current_tick, side->model.current_tick);
	check_next_due(world, side);
}

/* What a walk from the current slot would miss, one by one. */
static void
case_strays(World *world, uint64 nops)
{
	Side	   *side = &world->sides[0];
	int64		nslots = world->nslots;

	for (opno = 0; opno < nops / 500; opno++)
	{
		int64		tick = side->model.current_tick;

		clamp_and_step_back(world, side);

		/* left behind and clamped */
		do_insert(world, side, (tick + between(0, 2)) * world->tick_us);
		do_insert(world, side, (tick - between(0, 2 * nslots)) * world->tick_us);
		do_insert(world, side, (tick + between(0, 2 * nslots)) * world->tick_us);
		check_next_due(world, side);
		for (int i = 0; i < 4; i++)
		{
			do_advance(side, side->model.current_tick + between(-2 * nslots, 2 * nslots));
			check_next_due(world, side);
			do_insert(world, side, any_due(world, side));
			check_next_due(world, side);
		}
		while (side->model.n > 3)
		{
			int64		next = dw_ring_next_due(side->ring);
			uint32		s = 0;

			/* Where there is nothing, min_due may look like an infinite due */
			while (dw_ring_slot(side->ring, s)->list.count == 0 ||
				   dw_ring_slot(side->ring, s)->min_due != next)
				CHECK(++s < world->nslots);
			do_pass(world, side, s, model_tick(world, next));
			check_next_due(world, side);
		}
	}
}


/* ----------------------------------------------------------------
 *		Running the cases
 * ----------------------------------------------------------------
 */

static void
run_case(const char *name, CaseBody body, const Config *config, uint64 nops)
{
	World	   *world;

	case_name = name;
	case_config = config;
	opno = 0;

	/* Each case has its own sequence, so that it can be told apart */
	rng_state = seed;
	for (const char *p = name; *p; p++)
		rng_state = (rng_state ^ (uint64) *p) * UINT64_C(0x100000001B3);

	world = world_create(config);
	if (setjmp(case_failed) == 0)
	{
		body(world, nops);
		npassed++;
	}
	else
		nfailed++;
	world_destroy(world);
}

static void
run_config(const Config *config, uint64 nops)
{
	run_case("a fresh pool and ring", case_fresh, config, nops);
	run_case("tick, index and cycle", case_arithmetic, config, nops);
	run_case("quotas", case_quota, config, nops);
	run_case("put back", case_put_back, config, nops);
	run_case("reclaim", case_reclaim, config, nops);
	run_case("take when exhausted", case_take_when_exhausted, config, nops);
	run_case("filter in a pass", case_filter_in_pass, config, nops);
	run_case("a pass compacts", case_pass_compacts, config, nops);
	run_case("strays", case_strays, config, nops);
	run_case("next_due is exact", case_next_due_exact, config, nops);
	run_case("fill and drain", case_fill_and_drain, config, nops);
	run_case("each in its own tick", case_own_tick, config, nops);
	run_case("as the timer drives it", case_timer, config, nops);
	run_case("random operations", case_random_all, config, nops);
}

static void
usage(void)
{
	printf("usage: ring_test [-s seed] [-n operations] [-r nslots -c chunks [-t tick_us]]\n"
		   "-n is the number for each of the larger cases (default 1000000)\n");
	exit(2);
}

int
main(int argc, char **argv)
{
	static const Config configs[] = {
		{1, 1000, 3},
		{2, 7, 2},
		{7, 1000, 4},
		{64, 1, 8},
		{65, 1000, 64},
		{200, 1000000, 8},
		{3600, 1000000, 200},
	};
	Config		own = {0, 1000, 0};
	uint64		nops = 1000000;
	int			opt;

	seed = (uint64) time(NULL);
	while ((opt = getopt(argc, argv, "s:n:r:c:t:")) != -1)
	{
		switch (opt)
		{
			case 's':
				seed = strtoull(optarg, NULL, 10);
				break;
			case 'n':
				nops = strtoull(optarg, NULL, 10);
				break;
			case 'r':
				own.nslots = (uint32) strtoul(optarg, NULL, 10);
				break;
			case 'c':
				own.nchunks = (uint32) strtoul(optarg, NULL, 10);
				break;
			case 't':
				own.tick_us = strtoll(optarg, NULL, 10);
				break;
			default:
				usage();
		}
	}
	if ((own.nslots == 0) != (own.nchunks == 0) || own.tick_us <= 0 || optind < argc)
		usage();

	printf("seed %" PRIu64 "\n", seed);
	if (own.nslots > 0)
		run_config(&own, nops);
	else
	{
		for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++)
			run_config(&configs[i], nops);
	}
	printf("%d passed, %d failed\n", npassed, nfailed);
	return nfailed > 0;
}
