/*
 * src/statement/constants.c: the text with $n for its constants, put together again with
 * the constants, is the text.  A text that has the form of the one before is taken apart as by
 * the lexer.
 */
#include "stubs.h"

#include "../../src/statement/sqlcheck.c"
#undef fprintf

/* Each "$n " stands where it is said to, for what is said. */
static void
check_places(const char *sql, const DwConstants *constants)
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

/* Refuses a text that is taken apart in one way by its form, and in another by the lexer. */
static void
compare(const char *sql)
{
	DwConstants by_form;
	DwConstants by_lexer;
	bool		formed = dw_constants_take(sql, &by_form);
	char	   *taken = formed ? pstrdup(by_form.sql) : NULL;

	dw_constants_forget_form();
	if (dw_constants_take(sql, &by_lexer) != formed)
		finding("\"%s\" has constants by its form only, or by the lexer only", sql);
	if (!formed)
		return;
	if (strcmp(taken, by_lexer.sql) != 0 || by_form.count != by_lexer.count)
		finding("\"%s\" became \"%s\" and \"%s\"", sql, taken, by_lexer.sql);
	for (int i = 0; i < by_form.count; i++)
		if (by_form.types[i] != by_lexer.types[i] || by_form.locations[i] != by_lexer.locations[i] ||
			by_form.ends[i] != by_lexer.ends[i] || by_form.new_ends[i] != by_lexer.new_ends[i] ||
			(by_form.types[i] == 0 ?
			 strcmp(DatumGetCString(by_form.values[i]), DatumGetCString(by_lexer.values[i])) != 0 :
			 DatumGetInt32(by_form.values[i]) != DatumGetInt32(by_lexer.values[i])))
			finding("constant %d of \"%s\" is two", i, sql);
}

/* A text of the same form, mostly: each constant has other bytes in it, of the input. */
static char *
with_others(const char *sql, const DwConstants *constants, const uint8_t *data, size_t size)
{
	char	   *other = palloc0(strlen(sql) + 8 * constants->count + 1);
	int			done = 0;

	for (int i = 0; i < constants->count; i++)
	{
		const char *with = constants->types[i] == 0 ? "\\'x \n1" : "0123456789x_.'";
		int			from = constants->locations[i] + 1;

		strncat(other, sql + done, from - done);
		for (size_t n = size > 0 ? data[i % size] % 8 : 0; n > 0; n--)
			strncat(other, with + data[(i + n) % size] % strlen(with), 1);
		done = from;
	}
	return strcat(other, sql + done);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char	   *sql = palloc0(size + 1);
	DwConstants constants;

	memcpy(sql, data, size);
	if (dw_constants_take(sql, &constants))
	{
		check_places(sql, &constants);
		compare(with_others(sql, &constants, data, size));
	}
	fuzz_free_all();
	return 0;
}
