/*
 * src/shmem/suspects.c: the file that outlives a crash of the server, whatever stands
 * in it.  What is read and written again is read as the same.
 */
#include "stubs.h"

#include "../../src/shmem/suspects.c"
#undef fprintf
#undef vfprintf

static const uint8_t *content;
static size_t content_size;

FILE *
AllocateFile(const char *name, const char *mode)
{
	/* fmemopen() takes no empty one */
	return content_size > 0 ? fmemopen((void *) content, content_size, mode) : fopen("/dev/null", mode);
}

int
FreeFile(FILE *file)
{
	return fclose(file);
}

int
pg_fprintf(FILE *file, const char *format,...)
{
	va_list		args;
	int			result;

	va_start(args, format);
	result = vfprintf(file, format, args);
	va_end(args);
	return result;
}

/* Only to the log. */
bool
errstart(int level, const char *domain)
{
	if (level != LOG)
		finding("an error of level %d", level);
	return false;
}

static DwSuspects *
read_content(const void *data, size_t size)
{
	dw_suspects = palloc0(sizeof(DwSuspects));
	content = data;
	content_size = size;
	dw_suspects_read_file();
	if (pg_atomic_read_u32(&dw_suspects->n) > DW_MAX_SUSPECTS)
		finding("%u suspects", pg_atomic_read_u32(&dw_suspects->n));
	return dw_suspects;
}

static void
check_again(const DwSuspects *first)
{
	uint32		n = pg_atomic_read_u32((pg_atomic_uint32 *) &first->n);
	char	   *text;
	size_t		size;
	FILE	   *file = open_memstream(&text, &size);
	DwSuspects *again;

	write_suspects(file, first->suspects, n);
	fclose(file);
	again = read_content(text, size);
	if (pg_atomic_read_u32(&again->n) != n)
		finding("%u suspects became %u", n, pg_atomic_read_u32(&again->n));
	for (uint32 i = 0; i < n; i++)
	{
		const DwSuspect *a = &first->suspects[i];
		const DwSuspect *b = &again->suspects[i];

		if (a->crashes < 1 || a->database != b->database || a->id != b->id || a->crashes != b->crashes ||
			a->in_batch != b->in_batch || a->crashed_at != b->crashed_at)
			finding("suspect %u is not the same", i);
	}
	free(text);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_again(read_content(data, size));
	fuzz_free_all();
	return 0;
}
