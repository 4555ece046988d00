/*-------------------------------------------------------------------------
 *
 * served.c
 *	  The file that tells which databases were served.
 *
 * Run by the launcher.  It cannot see which databases have the extension, and to look into
 * one takes a background worker.  So it keeps their OIDs in a file: at the next start it
 * knows how many background workers they may need, and a database whose timer cannot be
 * started is not forgotten.
 *
 * The file is a hint.  The launcher probes databases that are not in it, and takes off those
 * that do not exist or have no extension.  A copy of the data directory has the same OIDs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "storage/fd.h"

#include "served.h"

/* The file, in the data directory; its first line; an OID in each of the others. */
#define FILE_NAME		"delay_wheel.databases"
#define FILE_NEW		FILE_NAME ".tmp"
#define FILE_HEADER		"delay_wheel databases 1: OIDs of those that were served"

/* Reads no more than this from the file, whatever it is. */
#define MAX_DATABASES	10000

/* The OIDs in the file; none if there is no such file, or it is not understood. */
List *
dw_served_read(void)
{
	FILE	   *file = AllocateFile(FILE_NAME, PG_BINARY_R);
	List	   *databases = NIL;
	char		line[256];

	if (file == NULL)
	{
		if (errno != ENOENT)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not read file \"%s\": %m", FILE_NAME)));
		return NIL;
	}
	if (fgets(line, sizeof(line), file) == NULL || strcmp(line, FILE_HEADER "\n") != 0)
		ereport(LOG,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is not understood, and ignored", FILE_NAME)));
	else
		while (list_length(databases) < MAX_DATABASES && fgets(line, sizeof(line), file) != NULL)
		{
			Oid			database;

			if (sscanf(line, "%u", &database) == 1 && OidIsValid(database))
				databases = list_append_unique_oid(databases, database);
		}
	(void) FreeFile(file);
	return databases;
}

/* Removes the file: nothing of the extension is left in the data directory. */
static void
remove_file(void)
{
	if (unlink(FILE_NAME) != 0 && errno != ENOENT)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", FILE_NAME)));
}

/*
 * Writes the file, or removes it if there is no database.  If that fails, the log says so, and
 * the old one stays.
 */
void
dw_served_write(List *databases)
{
	FILE	   *file;
	bool		written;
	ListCell   *lc;

	if (databases == NIL)
	{
		remove_file();
		return;
	}
	file = AllocateFile(FILE_NEW, PG_BINARY_W);
	written = file != NULL && fprintf(file, "%s\n", FILE_HEADER) >= 0;
	foreach(lc, databases)
		written = written && fprintf(file, "%u\n", lfirst_oid(lc)) >= 0;
	/* close it in any case; an error of buffered data may show only now */
	if (file != NULL && FreeFile(file) != 0)
		written = false;
	if (written)
	{
		(void) durable_rename(FILE_NEW, FILE_NAME, LOG);
		return;
	}
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("could not write file \"%s\": %m", FILE_NEW)));
	(void) unlink(FILE_NEW);
}
