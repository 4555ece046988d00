/*
 * src/statement/constants.c: the text with $n for its constants, put together again with
 * the constants, is the text.
 */
#include "stubs.h"
#undef fprintf

#include "../../src/statement/constants.h"

/* Each "$n " stands where it is said to, for what is said. */
static void
check(const char *sql, const DwConstants *constants)
{
	char	   *again = palloc0(strlen(sql) + 1);
	char	   *to = again;
	const char *from = constants->sql;
	int			done = 0;

	for (int i = 0; i < constants->count; i++)
	{
		char	   *mark = psprintf("$%d ", i + 1);
		int			plain = constants->locations[i] - done;

		if (plain < 0 || constants->ends[i] <= constants->locations[i])
			finding("constant %d of \"%s\" is at %d to %d", i, sql, constants->locations[i], constants->ends[i]);
		memcpy(to, from, plain);
		to += plain;
		from += plain;
		if (strncmp(from, mark, strlen(mark)) != 0)
			finding("no %s in \"%s\"", mark, constants->sql);
		from += strlen(mark);
		memcpy(to, sql + constants->locations[i], constants->ends[i] - constants->locations[i]);
		to += constants->ends[i] - constants->locations[i];
		done = constants->ends[i];
		if (dw_constants_location(constants, from - constants->sql) != done)
			finding("place %d of \"%s\" is not %d", (int) (from - constants->sql), constants->sql, done);
	}
	strcpy(to, from);
	if (strcmp(again, sql) != 0)
		finding("\"%s\" became \"%s\"", sql, again);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char	   *sql = palloc0(size + 1);
	DwConstants constants;

	memcpy(sql, data, size);
	if (dw_constants_take(sql, &constants))
		check(sql, &constants);
	fuzz_free_all();
	return 0;
}
