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
/* What is written; NULL when it is closed. */
static FILE *written;

FILE *
AllocateFile(const char *name, const char *mode)
{
	if (strcmp(mode, PG_BINARY_W) == 0)
		return written;
	/* fmemopen() takes no empty one */
	return content_size > 0 ? fmemopen((void *) content, content_size, mode) : fopen("/dev/null", mode);
}

int
FreeFile(FILE *file)
{
	if (file == written)
		written = NULL;
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

/* Stays: the bytes of the input are no file. */
int
durable_unlink(const char *name, int level)
{
	return 0;
}

static const DwNotes *
read_content(const void *data, size_t size)
{
	dw_shared = palloc0(sizeof(DwShared));
	content = data;
	content_size = size;
	dw_suspects_read_file();
	return &dw_shared->suspects;
}

static void
check_again(const DwNotes *first)
{
	char	   *text = NULL;
	size_t		size = 0;
	const DwNotes *again;

	written = open_memstream(&text, &size);
	dw_suspects_write_file();
	if (written != NULL)
		fclose(written);
	again = read_content(text, size);
	for (uint32 i = 0; i < DW_MAX_NOTES; i++)
	{
		const DwNote *a = &first->notes[i];
		const DwNote *b = &again->notes[i];

		if (a->n < 0 || a->database != b->database || a->id != b->id || a->n != b->n ||
			a->at != b->at)
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
