/*
 * src/statement/sqlcheck.c: the comparison of a text with the last one that passed, but
 * for its numbers.  It must say what another way says: replace each number
 * that may differ by one sign, and compare.
 *
 * The parser is never come to.
 */
#include "stubs.h"

#include "../../src/statement/sqlcheck.c"
#undef fprintf

/* One sign for each number; the result is as long as the text at most. */
static int
normalize(const char *text, int length, char *result)
{
	int			n = 0;

	for (int i = 0; i < length;)
	{
		int			end = i;

		while (end < length && text[end] >= '0' && text[end] <= '9')
			end++;
		if (end == i)
		{
			result[n++] = text[i++];
			continue;
		}
		if (end - i > MAX_KNOWN_DIGITS || i == 0 || dw_is_word_char(text[i - 1]) ||
			(end < length && dw_is_word_char(text[end])))
			while (i < end)
				result[n++] = text[i++];
		else
			result[n++] = '\x01';
		i = end;
	}
	return n;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *middle = memchr(data, '\n', size);
	int			a_length;
	int			b_length;
	char	   *a;
	char	   *b;
	char	   *na;
	char	   *nb;
	bool		same;

	if (middle == NULL || memchr(data, '\x01', size) != NULL)
		return 0;
	a_length = Min(middle - data, MAX_KNOWN_TEXT);
	b_length = data + size - middle - 1;
	memcpy(known.text, data, a_length);
	known.length = a_length;
	known.nargs = 0;
	b = palloc(b_length);		/* exactly, so that a byte beyond is noticed */
	memcpy(b, middle + 1, b_length);
	a = known.text;

	na = palloc(a_length + 1);
	nb = palloc(b_length + 1);
	a_length = normalize(a, a_length, na);
	same = a_length == normalize(b, b_length, nb) && memcmp(na, nb, a_length) == 0;
	if (known.length > 0 && is_known(b, b_length, 0) != same)
		finding("\"%.*s\" and \"%.*s\" are %staken for the same", known.length, a, b_length, b, same ? "not " : "");
	fuzz_free_all();
	return 0;
}
