/*-------------------------------------------------------------------------
 *
 * suspects.h
 *	  Tasks that crash the server: suspects, and how often they did.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SUSPECTS_H
#define DW_SUSPECTS_H

#include "postgres.h"

#include "executor/executor.h"

#include "executors.h"

/* Number of crashes after which a task is set aside: the first, and two on trial. */
#define DW_MAX_CRASHES	3

/*
 * Number of crashes after which a task is left alone: one more, while its process was
 * setting it aside.  Its row cannot be read, say.
 */
#define DW_CRASHES_LEFT_ALONE	(DW_MAX_CRASHES + 1)

/* Maximum number of suspects. */
#define DW_MAX_SUSPECTS	64

/*
 * How long after the crash of a batch no batch is begun: the crash may be the fault of
 * another task of the batch than the one that ran.
 */
#define DW_NO_BATCHES_US	USECS_PER_MINUTE

/* A task whose process has crashed. */
typedef struct DwSuspect
{
	Oid			database;
	int64		id;
	int			crashes;		/* 0 only while the array is being changed */
	bool		in_batch;		/* it ran in a batch at its last crash */
	bool		lost;			/* its row was deleted before it ran; so when a recurring
								 * task is given its next run, that run becomes the suspect */
	int			put_off;		/* times that its run was left to a fresh process */
	TimestampTz crashed_at;
} DwSuspect;

/* All suspects, in shared memory. */
typedef struct DwSuspects
{
	pg_atomic_uint32 n;			/* number of suspects; also read without the lock */
	pg_atomic_uint32 unsaved;	/* 1 if the file is out of date */
	slock_t		lock;
	int64		no_batches_until;	/* no batch is begun before then; by dw_uptime(), set by
									 * the postmaster only */
	DwSuspect		suspects[DW_MAX_SUSPECTS];	/* the oldest ones first */
} DwSuspects;

extern Size dw_crashes_size(void);
extern void dw_crashes_attach(void);
extern int	dw_crashes_of(Oid database, int64 id);
extern int	dw_crashes_suspects(Oid database);
extern bool dw_crashes_put_off(Oid database, int64 id);
extern bool dw_crashes_forbid_batches(void);

extern void dw_crashes_forget(Oid database, int64 id);
extern void dw_crashes_forget_database(Oid database);
extern void dw_crashes_gone(Oid database, int64 id);
extern void dw_crashes_pass_on(Oid database, int64 from, int64 to);
extern void dw_crashes_save(void);

/* In shared memory; NULL before it is set up. */
extern DwSuspects *dw_suspects;
extern int dw_suspects_blame(const DwExecutor *e, bool proved);
extern void dw_suspects_report(const DwExecutor *e, int count);
extern void dw_suspects_ask_for_save(void);
extern void dw_suspects_write_file(const DwSuspect *suspects, uint32 n);
extern void dw_suspects_read_file(void);

#endif							/* DW_SUSPECTS_H */
