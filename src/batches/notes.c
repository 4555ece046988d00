/*-------------------------------------------------------------------------
 *
 * notes.c
 *	  Notes in shared memory: at which batches the sweepers must look.
 *
 * Run by all processes that end transactions, and by sweepers.  The number of notes is limited.  If
 * a note finds no room, and after events that concern many tasks, the sweeper looks at all batches
 * of the database, in a pass.
 *
 * A batch that cannot end now, because of a lock or an error, is put off: passes leave it out, and
 * the sweeper looks at it alone a little later.  So no other batch waits for it.
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

/* Batches of one database that are put off; further ones make the sweeper look at all batches again. */
#define MAX_PUT_OFF		32

/* A request to look at all batches of a database. */
typedef enum AllState
{
	NO_PASS = 0,
	PASS_ASKED,
	PASS_BEGUN					/* a sweeper has begun with a pass after the request */
} AllState;

/* A batch that could not end. */
typedef struct PutOff
{
	int64		id;
	int64		until;			/* uptime */
	bool		failed;			/* by an error, so a note does not help; otherwise its row was locked */
} PutOff;

/* For a place of a database.  Its sweeper alone uses all fields but the first. */
typedef struct Pass
{
	pg_atomic_uint32 state;		/* whether the sweeper must look at all batches, see AllState */
	int64		at;				/* not before this uptime */
	int64		again_at;		/* uptime of a pass that nobody asks for; 0: none */
	int			nput_off;
	PutOff		put_off[MAX_PUT_OFF];
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
		Pass	   *pass = &notes->passes[i];

		pg_atomic_init_u32(&pass->state, PASS_ASKED);
		pass->at = pass->again_at = pass->nput_off = 0;
	}
}

/* Asks for the sweeper's job. */
static void
ask(DwDatabase *db)
{
	dw_ask_sweeper(db, DW_JOB_BATCHES, dw_job_soonest(&db->sweeper_news, DW_JOB_BATCHES));
}

static Pass *
pass_of(DwDatabase *db)
{
	return &notes->passes[dw_database_number(db)];
}

/* Asks for a pass over all batches of the database, whenever the job is done. */
static void
ask_for_pass(DwDatabase *db)
{
	pg_atomic_write_u32(&pass_of(db)->state, PASS_ASKED);
}

/* Has the sweeper look at all batches of the database that may end.  Cannot fail. */
void
dw_batches_look_at_all(DwDatabase *db)
{
	ask_for_pass(db);
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
		ask_for_pass(db);
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

/* Returns when the next pass may begin, by dw_uptime(); PG_INT64_MAX: none is needed. */
static int64
pass_at(Pass *pass)
{
	if (pg_atomic_read_u32(&pass->state) != NO_PASS)
		return pass->at;
	return pass->again_at == 0 ? PG_INT64_MAX : Max(pass->at, pass->again_at);
}

/* Returns true if the sweeper must look at all batches now.  It begins to do so. */
bool
dw_batch_pass_begin(DwDatabase *db)
{
	Pass	   *pass = pass_of(db);

	if (dw_uptime() < pass_at(pass))
		return false;
	pg_atomic_write_u32(&pass->state, PASS_BEGUN);
	pass->again_at = 0;
	return true;
}

/* Notes that the pass is complete, unless another one was asked for meanwhile. */
void
dw_batch_pass_end(DwDatabase *db)
{
	uint32		begun = PASS_BEGUN;

	(void) pg_atomic_compare_exchange_u32(&pass_of(db)->state, &begun, NO_PASS);
}

/* Lets no pass begin for this time, in us.  The next sweeper obeys it, too. */
void
dw_batch_pass_delay(DwDatabase *db, int64 pause)
{
	Pass	   *pass = pass_of(db);

	pass->at = Max(pass->at, dw_uptime() + pause);
}

/*---- Batches that are put off ----*/

/* Puts a batch off for this time, in us.  If there is no room, a pass follows after this time. */
void
dw_batch_put_off(DwDatabase *db, int64 id, bool failed, int64 pause)
{
	Pass	   *pass = pass_of(db);
	int64		until = dw_uptime() + pause;
	int			i = 0;

	while (i < pass->nput_off && pass->put_off[i].id != id)
		i++;
	if (i < MAX_PUT_OFF)
	{
		pass->put_off[i] = (PutOff) {.id = id,.until = until,.failed = failed};
		pass->nput_off = Max(pass->nput_off, i + 1);
	}
	else if (pass->again_at == 0)
		pass->again_at = until;
}

/* Returns true if the batch is put off.  noted: a process has just noted it. */
bool
dw_batch_is_put_off(DwDatabase *db, int64 id, bool noted, int64 now)
{
	const Pass *pass = pass_of(db);

	for (int i = 0; i < pass->nput_off; i++)
		if (pass->put_off[i].id == id)
			return pass->put_off[i].until > now && (pass->put_off[i].failed || !noted);
	return false;
}

/* Copies the ids of batches whose time has come to *ids, which has room for all.  Returns how many. */
int
dw_batch_put_off_take(DwDatabase *db, int64 *ids, int64 now)
{
	const Pass *pass = pass_of(db);
	int			n = 0;

	for (int i = 0; i < pass->nput_off; i++)
		if (pass->put_off[i].until <= now)
			ids[n++] = pass->put_off[i].id;
	return n;
}

/* Removes the batches that were taken, except those that were put off again. */
void
dw_batch_put_off_remove(DwDatabase *db, int64 now)
{
	Pass	   *pass = pass_of(db);
	int			kept = 0;

	for (int i = 0; i < pass->nput_off; i++)
		if (pass->put_off[i].until > now)
			pass->put_off[kept++] = pass->put_off[i];
	pass->nput_off = kept;
}

/* Returns when the sweeper must look though nothing is noted, by dw_uptime(); PG_INT64_MAX: never. */
int64
dw_batch_next_look(DwDatabase *db)
{
	Pass	   *pass = pass_of(db);
	int64		at = pass_at(pass);

	for (int i = 0; i < pass->nput_off; i++)
		at = Min(at, pass->put_off[i].until);
	return at;
}
