/*-------------------------------------------------------------------------
 *
 * ring_standalone.h
 *	  What ring.c needs of PostgreSQL, for building it alone.
 *
 * The test has one process and one thread, so the spinlock only checks that
 * it is used properly.
 *
 *-------------------------------------------------------------------------
 */
#ifndef RING_STANDALONE_H
#define RING_STANDALONE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef int32_t int32;
typedef int64_t int64;
typedef uint16_t uint16;
typedef uint32_t uint32;
typedef uint64_t uint64;
typedef size_t Size;
typedef int slock_t;

#define FLEXIBLE_ARRAY_MEMBER	/* empty */
#define UINT64CONST(x)			UINT64_C(x)
#define PG_INT64_MIN			INT64_MIN
#define PG_INT64_MAX			INT64_MAX

#define Max(x, y)				((x) > (y) ? (x) : (y))
#define Min(x, y)				((x) < (y) ? (x) : (y))
#define MAXALIGN(len)			(((uintptr_t) (len) + 7) & ~(uintptr_t) 7)

#define Assert(condition)		assert(condition)

/* Without _Static_assert, which C99 does not have */
#define StaticAssertName2(line)	static_assert_##line
#define StaticAssertName(line)	StaticAssertName2(line)
#define StaticAssertDecl(condition, message) \
	extern int	StaticAssertName(__LINE__)[(condition) ? 1 : -1]

#define SpinLockInit(lock)		(*(lock) = 0)
#define SpinLockAcquire(lock)	(assert(*(lock) == 0), *(lock) = 1)
#define SpinLockRelease(lock)	(assert(*(lock) == 1), *(lock) = 0)

#endif							/* RING_STANDALONE_H */
