/*
 * sleep_floor: how late this machine wakes a process that sleeps until given
 * times on a timerfd, with nothing else to do.
 *
 *   sleep_floor START INTERVAL COUNT [all]
 *
 * START is in microseconds since 1970, INTERVAL in microseconds.  Prints the
 * median, the 99th percentile and the maximum of the lateness, in microseconds;
 * with "all", how late each time was, a line each.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static int
compare(const void *a, const void *b)
{
	int64_t		x = *(const int64_t *) a;
	int64_t		y = *(const int64_t *) b;

	return (x > y) - (x < y);
}

static int64_t
now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

int
main(int argc, char **argv)
{
	int			timer = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);
	int			set = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN};
	int64_t    *late;
	int64_t		start;
	int64_t		interval;
	int			count;
	bool		all = argc == 5 && strcmp(argv[4], "all") == 0;

	if ((argc != 4 && !all) || timer < 0 || set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, timer, &event) < 0)
		return 2;
	start = strtoll(argv[1], NULL, 10);
	interval = strtoll(argv[2], NULL, 10);
	count = atoi(argv[3]);
	late = count > 0 ? malloc(count * sizeof(int64_t)) : NULL;
	if (late == NULL)
		return 2;

	for (int i = 0; i < count; i++)
	{
		int64_t		due = start + i * interval;
		struct itimerspec spec = {.it_value = {due / 1000000, due % 1000000 * 1000}};
		uint64_t	expirations;

		if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &spec, NULL) < 0 ||
			epoll_wait(set, &event, 1, -1) != 1 ||
			read(timer, &expirations, sizeof(expirations)) < 0)
			return 2;
		late[i] = now_us() - due;
	}
	for (int i = 0; all && i < count; i++)
		printf("%lld\n", (long long) late[i]);
	if (all)
		return 0;
	qsort(late, count, sizeof(int64_t), compare);
	printf("%lld %lld %lld\n", (long long) late[count / 2],
		   (long long) late[count - 1 - count / 100], (long long) late[count - 1]);
	return 0;
}
