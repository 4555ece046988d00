/*-------------------------------------------------------------------------
 *
 * inject.c
 *	  Points at which tests can make a process wait, fail or crash.
 *
 * Compiled in only with -DDW_INJECTION.  Tests create these functions
 * themselves:
 *
 * dw_inject_attach(point text, action text, skip int, hits int) returns void
 *		action is wait, error, fatal, crash or log; the first skip passes
 *		through the point do nothing, the next hits do it (0: all of them);
 *		a point at which processes may wait stays until it is detached
 * dw_inject_detach(point text) returns void
 *		releases those that wait
 * dw_inject_waiting(point text) returns int
 *		how many processes wait there
 * dw_inject_locked(point text) returns void
 *		passes through the point with a lock that COMMIT PREPARED takes when the
 *		transaction is visible, before it tells what that has changed in
 *		catalogs, if these were system catalogs
 * dw_inject_counted(counter text) returns bigint
 *		how often something was done since the start
 * dw_inject_die(how text) returns void
 *		ends the process: segv, abort, kill, quit, full (a PANIC for want of disk),
 *		panic (another one), _exit, or exit() with a number; deaf only makes it
 *		ignore SIGQUIT
 *
 * An error where none may be raised (in a commit callback, say) does nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#ifdef DW_INJECTION

#include <signal.h>
#include <unistd.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/builtins.h"
#include "inject.h"

#define MAX_POINTS	32
#define MAX_COUNTERS 8

typedef struct Point
{
	char		name[48];		/* empty: free */
	char		action[8];
	int			skip;
	int			hits;			/* 0: without end, -1: no more */
	int			waiting;
	uint32		generation;
} Point;

typedef struct Counter
{
	char		name[24];		/* empty: free */
	pg_atomic_uint64 count;
} Counter;

typedef struct Points
{
	Counter		counters[MAX_COUNTERS];
	slock_t		lock;
	int			n;				/* in use; a quick test for none */
	Point		points[MAX_POINTS];
} Points;

static Points *points = NULL;

PG_FUNCTION_INFO_V1(dw_inject_attach);
PG_FUNCTION_INFO_V1(dw_inject_detach);
PG_FUNCTION_INFO_V1(dw_inject_waiting);
PG_FUNCTION_INFO_V1(dw_inject_locked);
PG_FUNCTION_INFO_V1(dw_inject_counted);
PG_FUNCTION_INFO_V1(dw_inject_die);

Size
dw_inject_size(void)
{
	return MAXALIGN(sizeof(Points));
}

void
dw_inject_init(bool found)
{
	points = ShmemInitStruct("delay_wheel injection", sizeof(Points), &found);
	if (!found)
	{
		memset(points, 0, sizeof(Points));
		SpinLockInit(&points->lock);
		for (int i = 0; i < MAX_COUNTERS; i++)
			pg_atomic_init_u64(&points->counters[i].count, 0);
	}
}

/* Under the spinlock. */
static Point *
find_point(const char *name)
{
	for (int i = 0; i < MAX_POINTS; i++)
		if (strcmp(points->points[i].name, name) == 0)
			return &points->points[i];
	return NULL;
}

static void
remove_point(Point *point)
{
	point->name[0] = '\0';
	point->generation++;
	points->n--;
}

/* Waits until the point is detached. */
static void
wait_at(int i, uint32 generation)
{
	for (;;)
	{
		bool		over;

		SpinLockAcquire(&points->lock);
		over = points->points[i].generation != generation;
		if (over)
			points->points[i].waiting--;
		SpinLockRelease(&points->lock);
		if (over)
			return;
		pg_usleep(1000);
		if (InterruptHoldoffCount == 0 && CritSectionCount == 0 && ProcDiePending)
		{
			SpinLockAcquire(&points->lock);
			points->points[i].waiting--;
			SpinLockRelease(&points->lock);
			CHECK_FOR_INTERRUPTS();
		}
	}
}

static pg_atomic_uint64 *
find_counter(const char *name)
{
	pg_atomic_uint64 *found = NULL;

	SpinLockAcquire(&points->lock);
	for (int i = 0; i < MAX_COUNTERS && found == NULL; i++)
	{
		Counter    *counter = &points->counters[i];

		if (counter->name[0] == '\0')
			strlcpy(counter->name, name, sizeof(counter->name));
		if (strcmp(counter->name, name) == 0)
			found = &counter->count;
	}
	SpinLockRelease(&points->lock);
	return found;
}

void
dw_inject_count(const char *name)
{
	pg_atomic_uint64 *count = points != NULL ? find_counter(name) : NULL;

	if (count != NULL)
		pg_atomic_fetch_add_u64(count, 1);
}

Datum
dw_inject_counted(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	pg_atomic_uint64 *count = find_counter(name);

	PG_RETURN_INT64(count != NULL ? (int64) pg_atomic_read_u64(count) : 0);
}

void
dw_inject_point(const char *name)
{
	char		action[8] = "";
	Point	   *point;
	uint32		generation = 0;

	if (points == NULL || points->n == 0)
		return;

	SpinLockAcquire(&points->lock);
	point = find_point(name);
	if (point != NULL)
	{
		if (point->skip > 0)
			point->skip--;
		else if (point->hits >= 0)
		{
			strcpy(action, point->action);
			generation = point->generation;
			if (point->hits > 0 && --point->hits == 0)
				point->hits = -1;
			if (strcmp(action, "wait") == 0)
				point->waiting++;
			else if (point->hits < 0)
				remove_point(point);
		}
	}
	SpinLockRelease(&points->lock);

	if (strcmp(action, "wait") == 0)
		wait_at(point - points->points, generation);
	else if (strcmp(action, "crash") == 0)
		kill(MyProcPid, SIGKILL);
	else if (strcmp(action, "log") == 0)
		ereport(LOG, (errmsg_internal("injection point \"%s\"", name)));
	else if (InterruptHoldoffCount > 0 || CritSectionCount > 0)
		return;
	else if (strcmp(action, "error") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("error injected at \"%s\"", name)));
	else if (strcmp(action, "fatal") == 0)
		ereport(FATAL,
				(errcode(ERRCODE_ADMIN_SHUTDOWN),
				 errmsg("termination injected at \"%s\"", name)));
}

Datum
dw_inject_attach(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *action = text_to_cstring(PG_GETARG_TEXT_PP(1));
	Point	   *point;

	SpinLockAcquire(&points->lock);
	point = find_point(name);
	if (point == NULL)
	{
		point = find_point("");
		if (point != NULL)
			points->n++;
	}
	if (point != NULL)
	{
		strlcpy(point->name, name, sizeof(point->name));
		strlcpy(point->action, action, sizeof(point->action));
		point->skip = PG_GETARG_INT32(2);
		point->hits = PG_GETARG_INT32(3);
		point->generation++;
	}
	SpinLockRelease(&points->lock);
	if (point == NULL)
		elog(ERROR, "too many injection points");
	PG_RETURN_VOID();
}

Datum
dw_inject_detach(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Point	   *point;

	SpinLockAcquire(&points->lock);
	point = find_point(name);
	if (point != NULL)
		remove_point(point);
	SpinLockRelease(&points->lock);
	PG_RETURN_VOID();
}

Datum
dw_inject_waiting(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Point	   *point;
	int			n = 0;

	SpinLockAcquire(&points->lock);
	point = find_point(name);
	if (point != NULL)
		n = point->waiting;
	SpinLockRelease(&points->lock);
	PG_RETURN_INT32(n);
}

Datum
dw_inject_locked(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));

	LWLockAcquire(RelCacheInitLock, LW_EXCLUSIVE);
	dw_inject_point(name);
	LWLockRelease(RelCacheInitLock);
	PG_RETURN_VOID();
}

Datum
dw_inject_die(PG_FUNCTION_ARGS)
{
	char	   *how = text_to_cstring(PG_GETARG_TEXT_PP(0));

	if (strcmp(how, "segv") == 0)
		(void) raise(SIGSEGV);
	else if (strcmp(how, "abort") == 0)
		abort();
	else if (strcmp(how, "kill") == 0)
		(void) raise(SIGKILL);
	else if (strcmp(how, "quit") == 0)
		(void) raise(SIGQUIT);
	else if (strcmp(how, "deaf") == 0)
		/* as while system() runs something */
		(void) pqsignal(SIGQUIT, SIG_IGN);
	else if (strcmp(how, "full") == 0)
		ereport(PANIC, (errcode(ERRCODE_DISK_FULL), errmsg("injected: disk full")));
	else if (strcmp(how, "panic") == 0)
		elog(PANIC, "injected: panic");
	else if (strcmp(how, "_exit") == 0)
		_exit(0);
	else
		exit(atoi(how));
	PG_RETURN_VOID();
}

#endif							/* DW_INJECTION */
