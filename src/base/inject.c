/*-------------------------------------------------------------------------
 *
 * inject.c
 *	  Points at which tests can make a process wait, fail or crash.
 *
 * Run by all processes, only in builds with -DDW_INJECTION.  The code names its points by
 * DW_INJECT("name").  The SQL functions of this file are not in the install script.  Tests create
 * them by CREATE FUNCTION:
 *
 * dw_inject_attach(point text, action text, skip int, hits int) returns void
 *		Switches a point on.  The action is wait, block, count, error, fatal, crash or log.  The
 *		first "skip" passes through the point do nothing.  The next "hits" passes (0: all passes) do
 *		the action.  A point with the action wait or block stays until it is detached.  "block" also
 *		resets the latch of the process, as a wait for a lock or a buffer does.  So the process
 *		loses wake-ups that arrive meanwhile.
 * dw_inject_detach(point text) returns void
 *		Switches a point off, and releases the processes that wait at it.
 * dw_inject_waiting(point text) returns int
 *		Returns the number of processes that wait at a point, or of passes that "count" has counted.
 * dw_inject_locked(point text) returns void
 *		Passes through a point while this process has RelCacheInitLock.  A test can so delay a
 *		COMMIT PREPARED that changes system catalogs, at a moment when the transaction is visible,
 *		but its invalidations are not sent yet.
 * dw_inject_die(how text) returns void
 *		Ends the process.  The words segv, abort, kill and quit send a signal.  The word full raises
 *		a PANIC for a full disk, and panic another PANIC.  "_exit" calls _exit(), and a number calls
 *		exit().  "deaf" only makes the process ignore SIGQUIT.
 *
 * The actions error and fatal do nothing where no error may be raised, for example
 * in a commit callback.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#ifdef DW_INJECTION

#include <signal.h>
#include <unistd.h>

#include "fmgr.h"
#include "storage/spin.h"
#include "utils/builtins.h"

#include "compat.h"
#include "inject.h"

#define MAX_POINTS	32			/* points that can be switched on at once */

/* A point that is switched on */
typedef struct Point
{
	char		name[48];		/* empty: this entry is free */
	char		action[8];
	int			skip;			/* passes that do nothing before the first action */
	int			hits;			/* remaining actions; 0: no limit, -1: none */
	int			waiting;		/* processes that wait at the point */
	int			passes;			/* passes that were counted */
	uint32		generation;		/* changes when the point is attached or detached */
} Point;

/* In shared memory */
typedef struct Points
{
	slock_t		lock;			/* protects all fields */
	int			n;				/* points in use; 0 can be read without the lock */
	Point		points[MAX_POINTS];
} Points;

static Points *points = NULL;

PG_FUNCTION_INFO_V1(dw_inject_attach);
PG_FUNCTION_INFO_V1(dw_inject_detach);
PG_FUNCTION_INFO_V1(dw_inject_waiting);
PG_FUNCTION_INFO_V1(dw_inject_locked);
PG_FUNCTION_INFO_V1(dw_inject_die);

/* Requests shared memory for the points. */
void
dw_inject_request(void)
{
	ShmemRequestStruct(.name = "delay_wheel injection",
					   .size = sizeof(Points),
					   .ptr = (void **) &points);
}

/* Initializes the points.  Called whenever shared memory is created. */
void
dw_inject_init(void)
{
	memset(points, 0, sizeof(Points));
	SpinLockInit(&points->lock);
}

/* Returns the point with this name ("": a free entry), or NULL.  The caller holds the spinlock. */
static Point *
find_point(const char *name)
{
	for (int i = 0; i < MAX_POINTS; i++)
		if (strcmp(points->points[i].name, name) == 0)
			return &points->points[i];
	return NULL;
}

/*
 * Switches a point off.  The changed generation releases processes that wait.  The caller holds the
 * spinlock.
 */
static void
remove_point(Point *point)
{
	point->name[0] = '\0';
	point->generation++;
	points->n--;
}

/*
 * Waits until the point at this index is detached or attached again.  If interrupts are allowed,
 * SIGTERM also ends the wait.
 */
static void
wait_at(int i, uint32 generation)
{
	bool		dies;
	bool		over;

	do
	{
		pg_usleep(1000);
		dies = InterruptHoldoffCount == 0 && CritSectionCount == 0 && ProcDiePending;
		SpinLockAcquire(&points->lock);
		over = dies || points->points[i].generation != generation;
		if (over)
			points->points[i].waiting--;
		SpinLockRelease(&points->lock);
	} while (!over);
	if (dies)
		CHECK_FOR_INTERRUPTS();
}

/* Does a point's action if a test has switched the point on; see DW_INJECT. */
void
dw_inject_point(const char *name)
{
	char		action[8] = "";
	Point	   *point;
	uint32		generation = 0;
	bool		waits = false;

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
			waits = strcmp(action, "wait") == 0 || strcmp(action, "block") == 0;
			if (waits)
				point->waiting++;
			else if (strcmp(action, "count") == 0)
				point->passes++;
			else if (point->hits < 0)
				remove_point(point);
		}
	}
	SpinLockRelease(&points->lock);

	if (waits)
	{
		wait_at(point - points->points, generation);
		if (strcmp(action, "block") == 0)
			ResetLatch(MyLatch);
	}
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
	if (point == NULL && (point = find_point("")) != NULL)
	{
		points->n++;
		point->passes = 0;
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
		n = point->waiting + point->passes;
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
		/* system() of libc also ignores SIGQUIT while its command runs */
		(void) pqsignal(SIGQUIT, PG_SIG_IGN);
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
