/*
 * What the fuzz targets share: pieces of the input, and what stands in for
 * PostgreSQL (stubs.c).
 */
#ifndef FUZZ_STUBS_H
#define FUZZ_STUBS_H

#include "postgres.h"

#include "pgtime.h"

/* Frees what was allocated since, at the end of each input. */
extern void fuzz_free_all(void);

/* A time zone that the input makes: offsets, each from a time on. */
#define MAX_SPANS	8

struct pg_tz
{
	int			n;				/* 1 at least; the first begins at no time */
	pg_time_t	from[MAX_SPANS];
	long		offset[MAX_SPANS];
};

/* Ends the process with a message: a finding. */
#define finding(...) \
	do { fprintf(stderr, "finding: " __VA_ARGS__); fputc('\n', stderr); __builtin_trap(); } while (0)

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif							/* FUZZ_STUBS_H */
