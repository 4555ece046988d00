/*-------------------------------------------------------------------------
 *
 * notes.c
 *	  Notes in shared memory: at which batches the sweepers must look.
 *
 * Run by all processes that end transactions, and by sweepers.  The number of notes is limited.  If
 * a note finds no room, and after events that concern many tasks, the sweeper looks at all batches
 * of the database, in a pass.
 *
 * A sweeper copies notes, looks at their batches, and then removes the notes.  So no note is lost if
 * the sweeper ends before.  A batch that is noted while the sweeper looks at it gets another note.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/atomics.h"
#include "storage/shmem.h"
#include "storage/spin.h"

#include "../base/compat.h"
#include "../base/settings.h"
#include "../shmem/shared.h"
#include "batches.h"

/* Notes for all databases; further ones make the sweepers look at all batches. */
#define MAX_NOTES		1024

/* A batch whose note is among so many last ones gets no other one. */
#define LAST_NOTES		8

/* A request to look at all batches of a database. */
typedef enum AllState
{
	NO_PASS = 0,
	PASS_ASKED,
	PASS_BEGUN					/* a sweeper has begun with a pass after the request */
} AllState;

typedef struct Pass
{
	pg_atomic_uint32 state;		/* whether the sweeper must look at all batches, see AllState */
	int64		at;				/* not before this uptime; of the sweeper */
} Pass;

typedef struct Note
{
	Oid			database;
	int64		id;
	bool		taken;			/* the sweeper looks at it just now */
} Note;

/* In shared memory. */
typedef struct Notes
{
	slock_t		lock;
	int			n;
	Note		notes[MAX_NOTES];
	Pass		passes[FLEXIBLE_ARRAY_MEMBER];	/* for each place of a database */
} Notes;

static Notes *notes = NULL;

void
dw_batches_request_memory(void)
{
	ShmemRequestStruct(.name = "delay_wheel batches",
					   .size = add_size(offsetof(Notes, passes),
										mul_size(dw_max_databases, sizeof(Pass))),
					   .ptr = (void **) &notes);
}

void
dw_batches_init(void)
{
	SpinLockInit(&notes->lock);
	notes->n = 0;
	for (int i = 0; i < dw_max_databases; i++)
	{
		pg_atomic_init_u32(&notes->passes[i].state, PASS_ASKED);
		notes->passes[i].at = 0;
	}
}

/* Asks for the sweeper's job. */
static void
ask(DwDatabase *db)
{
	dw_ask_sweeper(db, DW_JOB_BATCHES, dw_job_soonest(&db->sweeper_news, DW_JOB_BATCHES));
}

/* Asks for a pass over all batches of the database, whenever the job is done. */
void
dw_batch_pass_ask(DwDatabase *db)
{
	pg_atomic_write_u32(&notes->passes[dw_database_number(db)].state, PASS_ASKED);
}

/* Has the sweeper look at all batches of the database that may end.  Cannot fail. */
void
dw_batches_look_at_all(DwDatabase *db)
{
	dw_batch_pass_ask(db);
	ask(db);
}

/* Has the sweeper look at a batch.  Called at the end of a transaction, so it cannot fail. */
void
dw_batch_look(DwDatabase *db, int64 id)
{
	bool		noted = false;

	SpinLockAcquire(&notes->lock);
	for (int i = notes->n - 1; i >= Max(notes->n - LAST_NOTES, 0) && !noted; i--)
	{
		const Note *note = &notes->notes[i];

		noted = note->id == id && note->database == db->oid && !note->taken;
	}
	if (!noted && notes->n < MAX_NOTES)
	{
		notes->notes[notes->n++] = (Note) {.database = db->oid, .id = id};
		noted = true;
	}
	SpinLockRelease(&notes->lock);
	if (!noted)
		dw_batch_pass_ask(db);
	ask(db);
}

/*
 * Copies the ids of up to max notes of this database to *ids, and sets *n to their number.  Returns
 * true if there are more.
 */
bool
dw_batch_notes_take(DwDatabase *db, int64 *ids, int max, int *n)
{
	bool		more = false;

	*n = 0;
	SpinLockAcquire(&notes->lock);
	for (int i = 0; i < notes->n && !more; i++)
	{
		Note	   *note = &notes->notes[i];

		if (note->database != db->oid)
			continue;
		more = *n == max;
		if (!more)
		{
			note->taken = true;
			ids[(*n)++] = note->id;
		}
	}
	SpinLockRelease(&notes->lock);
	return more;
}

/* Removes the notes that were taken. */
void
dw_batch_notes_remove(DwDatabase *db)
{
	int			kept = 0;

	SpinLockAcquire(&notes->lock);
	for (int i = 0; i < notes->n; i++)
		if (notes->notes[i].database != db->oid || !notes->notes[i].taken)
			notes->notes[kept++] = notes->notes[i];
	notes->n = kept;
	SpinLockRelease(&notes->lock);
}

/*---- Passes over all batches ----*/

/* Returns true if the sweeper must look at all batches.  It begins to do so. */
bool
dw_batch_pass_begin(DwDatabase *db)
{
	pg_atomic_uint32 *state = &notes->passes[dw_database_number(db)].state;

	if (pg_atomic_read_u32(state) == NO_PASS)
		return false;
	pg_atomic_write_u32(state, PASS_BEGUN);
	return true;
}

/* Notes that the pass is complete, unless another one was asked for meanwhile. */
void
dw_batch_pass_end(DwDatabase *db)
{
	uint32		begun = PASS_BEGUN;

	(void) pg_atomic_compare_exchange_u32(&notes->passes[dw_database_number(db)].state, &begun, NO_PASS);
}

/* Returns true if the sweeper must look at all batches. */
bool
dw_batch_pass_is_asked(DwDatabase *db)
{
	return pg_atomic_read_u32(&notes->passes[dw_database_number(db)].state) != NO_PASS;
}

/* Returns the uptime before which no pass begins.  The next sweeper obeys it, too. */
int64
dw_batch_pass_at(DwDatabase *db)
{
	return notes->passes[dw_database_number(db)].at;
}

/* Lets no pass begin for this time, in us.  Only the sweeper calls this. */
void
dw_batch_pass_delay(DwDatabase *db, int64 pause)
{
	Pass	   *pass = &notes->passes[dw_database_number(db)];

	pass->at = Max(pass->at, dw_uptime() + pause);
}
