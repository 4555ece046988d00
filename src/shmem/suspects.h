/*-------------------------------------------------------------------------
 *
 * suspects.h
 *	  Suspects: tasks that have crashed the server, and the number of their crashes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SUSPECTS_H
#define DW_SUSPECTS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "storage/s_lock.h"

#include "executors.h"

/* Number of crashes after which a task is set aside. */
#define DW_MAX_CRASHES	3

/*
 * Number of crashes after which a task is left alone.  The last crash happened while the task was
 * being set aside, for example because its row is damaged.
 */
#define DW_CRASHES_LEFT_ALONE	(DW_MAX_CRASHES + 1)

/* Maximum number of suspects. */
#define DW_MAX_SUSPECTS	64

/* A task whose process has crashed. */
typedef struct DwSuspect
{
	int			crashes;		/* 0 if this element is free */
	Oid			database;
	int64		id;
	TimestampTz crashed_at;		/* time of the last crash */
} DwSuspect;

/* All suspects, in shared memory. */
typedef struct DwSuspects
{
	pg_atomic_uint32 n;			/* number of suspects; also read without the lock */
	slock_t		lock;
	int64		careful_until;	/* dw_crashes_are_recent() is true before this time, by dw_uptime();
								 * 0: never; set only by the postmaster */
	DwSuspect	suspects[DW_MAX_SUSPECTS];
} DwSuspects;

extern void dw_crashes_request(void);
extern int	dw_crashes_of(Oid database, int64 id);
extern int	dw_crashes_list(Oid database, TimestampTz before, int64 *ids);
extern bool dw_crashes_are_recent(void);
extern void dw_crashes_end(Oid database, int64 id, int64 next);
extern void dw_crashes_forget_database(Oid database);

/* In shared memory; NULL before shared memory is created. */
extern DwSuspects *dw_suspects;
extern void dw_suspects_blame(const DwExecutor *e);
extern void dw_suspects_write_file(void);
extern void dw_suspects_read_file(void);

/*---- crash_watch.c: finds out whether a process was told to quit or has crashed ----*/

extern void dw_crashes_install(void);
extern void dw_crashes_init(void);

extern void dw_crashes_watch_signals(void);
extern void dw_crashes_watch_panics(void);

/*---- quits.c: tasks that have ended their executor ----*/

extern void dw_quit_note(Oid database, int64 id, bool stopped);
extern bool dw_quit_is_noted(int64 id);
extern ErrorData *dw_quit_take(int64 id);
extern void dw_quits_forget_database(Oid database);

#endif							/* DW_SUSPECTS_H */
