/*
 * src/recurring/cron.c: any text is a schedule or not; the next time of one, in any time
 * zone, is later than the time given, and the same for all times up to it.
 */
#include "stubs.h"
#undef fprintf

#include "../../src/recurring/recurring.h"
#include "utils/timestamp.h"

typedef struct Input
{
	const uint8_t *data;
	size_t		left;
} Input;

static uint64
take(Input *input, int bytes)
{
	uint64		value = 0;

	while (bytes-- > 0)
	{
		value = value << 8 | (input->left > 0 ? *input->data : 0);
		if (input->left > 0)
		{
			input->data++;
			input->left--;
		}
	}
	return value;
}

static void
take_zone(Input *input, struct pg_tz *zone)
{
	pg_time_t	from = -((pg_time_t) take(input, 4));

	zone->n = 1 + take(input, 1) % MAX_SPANS;
	for (int i = 0; i < zone->n; i++)
	{
		zone->from[i] = from += 1 + take(input, 4);
		/* as far as PostgreSQL goes: 167 hours and a bit */
		zone->offset[i] = (long) (take(input, 3) % (2 * 604799 + 1)) - 604799;
	}
}

static TimestampTz
take_time(Input *input)
{
	int64		value = (int64) take(input, 8);

	if (value & 1)				/* mostly near to the changes of the clock */
		value = (value >> 1) % (INT64CONST(100) * 366 * USECS_PER_DAY);
	return Max(MIN_TIMESTAMP, Min(value, END_TIMESTAMP - 1));
}

static void
check_next(const DwCron *cron, struct pg_tz *zone, TimestampTz after)
{
	TimestampTz next;
	TimestampTz again;

	if (!dw_cron_next(cron, zone, after, &next))
		return;
	if (next <= after || next % USECS_PER_SEC != 0 || next >= END_TIMESTAMP)
		finding("after %lld comes %lld", (long long) after, (long long) next);
	for (int i = 0; i < 2; i++)
	{
		TimestampTz between = i == 0 ? next - 1 : after + (next - after) / 2;

		if (!dw_cron_next(cron, zone, between, &again) || again != next)
			finding("after %lld comes %lld, but after %lld %lld", (long long) after, (long long) next,
					(long long) between, (long long) again);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input		input = {data, size};
	struct pg_tz zone;
	TimestampTz after;
	char	   *text;
	DwCron		cron;
	const char *problem = NULL;
	const char *hint = NULL;

	take_zone(&input, &zone);
	after = take_time(&input);
	text = palloc0(input.left + 1);
	memcpy(text, input.data, input.left);
	if (dw_cron_parse(text, &cron, &problem, &hint))
		check_next(&cron, &zone, after);
	else if (problem == NULL || strlen(problem) == 0)
		finding("refused without a word");
	fuzz_free_all();
	return 0;
}
