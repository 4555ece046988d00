#ifndef METRICS_H
#define METRICS_H

#include <stdbool.h>

typedef struct Histogram
{
	long long	counts[16];
	long long	count;
	double		sum;
} Histogram;

typedef struct Metrics
{
	int			running;
	int			taken;			/* places */
	bool		is_connected[2];	/* wait, report */
	long long	connects;
	long long	requests[256];	/* by the last word */
	long long	responses[6];	/* by the first digit of the status; 0: no answer */
	long long	lost;
	long long	refused;
	long long	cut;
	long long	extended;
	Histogram	duration;
	Histogram	lateness;
} Metrics;

extern Metrics metrics;

extern void metrics_observe(Histogram *histogram, double seconds);
extern bool metrics_listen(void);

#endif
