/*-------------------------------------------------------------------------
 *
 * suspects.h
 *	  Tasks that crash the server: who is suspected, and set aside.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SUSPECTS_H
#define DW_SUSPECTS_H

#include "postgres.h"

#include "executor/executor.h"

#include "executors.h"

/* After so many crashes a task is set aside: the first, and two on trial. */
#define DW_MAX_CRASHES	3

/* One more, while that was done: its row cannot be read, say, and is left alone. */
#define DW_CRASHES_LEFT_ALONE	(DW_MAX_CRASHES + 1)

#define DW_MAX_SUSPECTS	64

/* The one at fault in a batch may be another than the last: all run alone. */
#define DW_NO_BATCHES_US	USECS_PER_MINUTE

typedef struct DwSuspect
{
	Oid			database;
	int64		id;
	int			crashes;
	bool		in_batch;		/* at its last crash */
	bool		lost;			/* its row may be gone, though it has not ended:
								 * the next run of a recurring task is suspected */
	int			put_off;		/* so often, for a fresh process */
	TimestampTz crashed_at;
} DwSuspect;

typedef struct DwSuspects
{
	pg_atomic_uint32 n;			/* suspects; read without the lock for "none" */
	pg_atomic_uint32 unsaved;	/* the file is out of date */
	slock_t		lock;
	int64		no_batches_until;	/* by dw_uptime(), set by the postmaster only */
	DwSuspect		suspects[DW_MAX_SUSPECTS];
} DwSuspects;

/* Set-up; the latter by the postmaster also reads what an earlier one has left. */
extern Size dw_crashes_size(void);
extern void dw_crashes_attach(void);
extern int	dw_crashes_of(Oid database, int64 id);
extern int	dw_crashes_suspects(Oid database);
extern bool dw_crashes_put_off(Oid database, int64 id);
extern bool dw_crashes_forbid_batches(void);

/* The task has ended, or another one of the same id may come. */
extern void dw_crashes_forget(Oid database, int64 id);
extern void dw_crashes_forget_database(Oid database);
extern void dw_crashes_gone(Oid database, int64 id);
extern void dw_crashes_pass_on(Oid database, int64 from, int64 to);
extern void dw_crashes_save(void);
extern DwSuspects *dw_suspects;
extern int dw_suspects_blame(const DwExecutor *e, bool proved);
extern void dw_suspects_report(const DwExecutor *e, int count);
extern void dw_suspects_ask_for_save(void);
extern void dw_suspects_write_file(const DwSuspect *suspects, uint32 n);
extern void dw_suspects_read_file(void);

#endif							/* DW_SUSPECTS_H */
