/*-------------------------------------------------------------------------
 *
 * clock_shim.c
 *	  A machine whose clock tests can set, for the processes of one server.
 *
 * To be preloaded (LD_PRELOAD) into a server.  The file named by
 * DW_CLOCK_FILE has eight bytes: by how many microseconds the clock of that
 * server is ahead of the machine's.  Whoever writes them sets the clock, at
 * once and for all of its processes; so now() in a task, the timeouts of
 * PostgreSQL and what we write to tables go by the same clock as dw_now().
 *
 * A timer (timerfd) on CLOCK_REALTIME behaves as the kernel's does with
 * TFD_TIMER_CANCEL_ON_SET: a step wakes who waits for it, and read() and
 * timerfd_settime() then say ECANCELED, once.  For that, what timerfd_create
 * returns is an epoll descriptor of the real timer and of an inotify watch of
 * the file.  There is at most one such timer in a process.
 *
 * CLOCK_MONOTONIC, and sleeping for a time, are not concerned: as with the
 * kernel.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static int	(*real_clock_gettime) (clockid_t, struct timespec *);
static ssize_t (*real_read) (int, void *, size_t);
static int	(*real_timerfd_create) (int, int);
static int	(*real_timerfd_settime) (int, int, const struct itimerspec *, struct itimerspec *);

static const volatile int64_t *ahead;
static const char *file;

/* the timer of this process */
static int	timer = -1;			/* what others know */
static int	kernel_timer = -1;
static int	watch = -1;
static int64_t seen;			/* by how much the clock was ahead when it was last looked at */

/* Other libraries may need us before a constructor of ours is called. */
static void
begin(void)
{
	static const int64_t none = 0;
	int			fd;

	if (ahead != NULL)
		return;
	real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
	real_read = dlsym(RTLD_NEXT, "read");
	real_timerfd_create = dlsym(RTLD_NEXT, "timerfd_create");
	real_timerfd_settime = dlsym(RTLD_NEXT, "timerfd_settime");
	ahead = &none;
	file = getenv("DW_CLOCK_FILE");
	/* ps titles are written over the environment */
	file = file == NULL ? NULL : strdup(file);
	fd = file == NULL ? -1 : open(file, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
	{
		void	   *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);

		if (mapped != MAP_FAILED)
			ahead = mapped;
		close(fd);
	}
}

static struct timespec
moved(struct timespec t, int64_t us)
{
	t.tv_sec += us / 1000000;
	t.tv_nsec += us % 1000000 * 1000;
	if (t.tv_nsec < 0)
	{
		t.tv_nsec += 1000000000;
		t.tv_sec--;
	}
	if (t.tv_nsec >= 1000000000)
	{
		t.tv_nsec -= 1000000000;
		t.tv_sec++;
	}
	return t;
}

int
clock_gettime(clockid_t id, struct timespec *t)
{
	int			result;

	begin();
	result = real_clock_gettime(id, t);
	if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		*t = moved(*t, *ahead);
	return result;
}

int
gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec t;

	(void) zone;
	if (clock_gettime(CLOCK_REALTIME, &t) != 0)
		return -1;
	tv->tv_sec = t.tv_sec;
	tv->tv_usec = t.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *result)
{
	struct timespec t;

	(void) clock_gettime(CLOCK_REALTIME, &t);
	if (result != NULL)
		*result = t.tv_sec;
	return t.tv_sec;
}

int
timerfd_create(int id, int flags)
{
	int			created;

	begin();
	created = real_timerfd_create(id, flags);
	if (created < 0 || id != CLOCK_REALTIME || file == NULL || timer >= 0)
		return created;
	kernel_timer = created;
	watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	timer = epoll_create1(EPOLL_CLOEXEC);
	if (watch < 0 || timer < 0 || inotify_add_watch(watch, file, IN_MODIFY) < 0 ||
		epoll_ctl(timer, EPOLL_CTL_ADD, watch, &(struct epoll_event) {.events = EPOLLIN}) < 0 ||
		epoll_ctl(timer, EPOLL_CTL_ADD, kernel_timer, &(struct epoll_event) {.events = EPOLLIN}) < 0)
		abort();
	seen = *ahead;
	return timer;
}

/* Was the clock set since this was asked the last time? */
static int
was_set(void)
{
	char		events[4096];
	int64_t		before = seen;

	while (real_read(watch, events, sizeof(events)) > 0)
		;
	seen = *ahead;
	return seen != before;
}

int
timerfd_settime(int fd, int flags, const struct itimerspec *new_value, struct itimerspec *old_value)
{
	struct itimerspec spec = *new_value;
	int			step;

	begin();
	if (fd != timer || timer < 0)
		return real_timerfd_settime(fd, flags, new_value, old_value);
	step = was_set();
	if ((flags & TFD_TIMER_ABSTIME) != 0 && (spec.it_value.tv_sec != 0 || spec.it_value.tv_nsec != 0))
	{
		spec.it_value = moved(spec.it_value, -seen);
		/* long ago: zero would disarm it */
		if (spec.it_value.tv_sec < 1)
			spec.it_value.tv_sec = 1;
	}
	if (real_timerfd_settime(kernel_timer, flags, &spec, old_value) != 0)
		return -1;
	if (step)
	{
		errno = ECANCELED;
		return -1;
	}
	return 0;
}

ssize_t
read(int fd, void *buffer, size_t size)
{
	begin();
	if (fd != timer || timer < 0)
		return real_read(fd, buffer, size);
	if (was_set())
	{
		errno = ECANCELED;
		return -1;
	}
	return real_read(kernel_timer, buffer, size);
}
