/*-------------------------------------------------------------------------
 *
 * loop.c
 *	  Waits for sockets and for a point in time, by epoll.
 *
 * Watches are found by the number of their descriptor.  If a handler closes a
 * descriptor that has another event pending, and a new descriptor gets its
 * number, the new one's handler is called without need.  All handlers bear
 * that: their descriptors do not block.
 *
 *-------------------------------------------------------------------------
 */
#include "loop.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "log.h"

#define MAX_EVENTS 128

typedef struct Watch
{
	LoopHandler handler;		/* NULL: not watched */
	void	   *owner;
} Watch;

double		now;

static int	epoll_fd;
static Watch *watches;
static int	watches_size;
static struct epoll_event events[MAX_EVENTS];
static int	n_events;

double
loop_look_at_clock(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	now = at.tv_sec + at.tv_nsec / 1e9;
	return now;
}

void
loop_init(void)
{
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_fd < 0)
		abort();
	loop_look_at_clock();
}

void
loop_watch(int fd, uint32_t events, LoopHandler handler, void *owner)
{
	struct epoll_event event = {.events = events, .data.fd = fd};

	if (fd >= watches_size)
	{
		int			size = (fd + 1) * 2;

		watches = realloc(watches, size * sizeof(Watch));
		if (!watches)
			abort();
		for (int i = watches_size; i < size; i++)
			watches[i].handler = NULL;
		watches_size = size;
	}

	/*
	 * A library may have closed the descriptor, which ends epoll's watch, and
	 * opened another one of its number.
	 */
	if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &event) != 0 &&
		(errno != ENOENT || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0))
		log_event(LOG_ERROR, "watch_failed", "error", strerror(errno));
	watches[fd].handler = handler;
	watches[fd].owner = owner;
}

void
loop_forget(int fd)
{
	if (fd < 0 || fd >= watches_size)
		return;
	watches[fd].handler = NULL;
	epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* Waits until something happens, or that time has come. */
void
loop_wait(double until)
{
	int			timeout = -1;

	if (!isinf(until))
	{
		double		wait = ceil((until - loop_look_at_clock()) * 1000);

		timeout = wait < 0 ? 0 : wait > 3600000 ? 3600000 : (int) wait;
	}
	n_events = epoll_wait(epoll_fd, events, MAX_EVENTS, timeout);
	loop_look_at_clock();
}

/* Calls the handlers of what has happened. */
void
loop_dispatch(void)
{
	for (int i = 0; i < n_events; i++)
	{
		Watch		watch = watches[events[i].data.fd];

		if (watch.handler)
			watch.handler(watch.owner, events[i].events);
	}
}
