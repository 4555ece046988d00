#ifndef SETTINGS_H
#define SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#define VERSION "1.0"

typedef struct Settings
{
	const char *connection;		/* conninfo */
	const char *wait_connection;	/* NULL: the same */
	const char *queue;
	int			concurrency;
	int			lease;			/* times are in seconds */
	int			timeout;
	int			max_timeout;
	int			connect_timeout;
	int			max_retry_after;
	int			redirects;
	int			keep_answer;	/* sizes are in bytes */
	int			max_answer;
	bool		https_only;
	const char *secrets;		/* file */
	const char *ca_file;
	const char *metrics_address;
	int			metrics_port;	/* 0: none */
	int			stop_within;
} Settings;

extern Settings settings;

extern void settings_read(int argc, char **argv);

#endif
