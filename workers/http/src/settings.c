/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  Options of the command line, and of the environment: --max-answer is
 *	  DELAY_HTTP_MAX_ANSWER there.  The command line wins.
 *
 *-------------------------------------------------------------------------
 */
#include "settings.h"

#include <ctype.h>
#include <getopt.h>
#include <libpq-fe.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guard.h"
#include "log.h"

#define EXIT_USAGE 2

Settings	settings = {
	.connection = "",
	.queue = "http",
	.concurrency = 200,
	.lease = 60,
	.timeout = 30,
	.max_timeout = 600,
	.connect_timeout = 10,
	.max_retry_after = 3600,
	.keep_answer = 1024,
	.max_answer = 1024 * 1024,
	.metrics_address = "127.0.0.1",
	.stop_within = 30,
};

typedef struct Option
{
	const char *name;
	const char *argument;		/* for --help; NULL: takes none */
	const char *help;
	enum { TEXT, CONNINFO, NUMBER, FLAG, LIST } kind;
	void	   *target;			/* LIST: the function that takes a value, and returns whether it is good */
	int			lowest;
	int			highest;
} Option;

typedef bool (*TakeValue) (const char *value);

static bool is_verbose;

static const Option options[] = {
	{"connection", "CONNINFO", "database, a connection string of libpq (default: PGHOST and the like)", CONNINFO, &settings.connection, 0, 0},
	{"wait-connection", "CONNINFO", "the same without a pooler, for the session that waits (default: --connection)", CONNINFO, &settings.wait_connection, 0, 0},
	{"queue", "NAME", "queue (http)", TEXT, &settings.queue, 0, 0},
	{"concurrency", "N", "largest number of requests at a time (200)", NUMBER, &settings.concurrency, 1, 100000},
	{"lease", "SECONDS", "length of a lease, which is extended in time (60)", NUMBER, &settings.lease, 1, 86400},
	{"timeout", "SECONDS", "limit of a request whose message has none (30)", NUMBER, &settings.timeout, 1, 86400},
	{"max-timeout", "SECONDS", "limit of a request whose message has one (600)", NUMBER, &settings.max_timeout, 1, 86400},
	{"connect-timeout", "SECONDS", "limit of looking up, connecting and the TLS handshake (10)", NUMBER, &settings.connect_timeout, 1, 86400},
	{"max-retry-after", "SECONDS", "longest Retry-After that is obeyed (3600)", NUMBER, &settings.max_retry_after, 0, 31536000},
	{"redirects", "N", "number of redirects that are followed (0)", NUMBER, &settings.redirects, 0, 10},
	{"keep-answer", "BYTES", "beginning of an answer that is stored as result or error (1024)", NUMBER, &settings.keep_answer, 0, 65536},
	{"max-answer", "BYTES", "an answer is cut off there (1048576)", NUMBER, &settings.max_answer, 0, INT_MAX},
	{"https-only", NULL, "refuse http", FLAG, &settings.https_only, 0, 0},
	{"host", "NAME", "may be reached, if given, and others not: shop.example or *.shop.example; repeatable", LIST, guard_add_host, 0, 0},
	{"allow-address", "CIDR", "may be reached although it is private: 10.1.0.0/16; repeatable", LIST, guard_allow, 0, 0},
	{"refuse-address", "CIDR", "may not be reached although it is public; repeatable", LIST, guard_refuse, 0, 0},
	{"secrets", "FILE", "endpoints and their secrets", TEXT, &settings.secrets, 0, 0},
	{"ca-file", "FILE", "certificates of the authorities to trust (default: the system's)", TEXT, &settings.ca_file, 0, 0},
	{"metrics-port", "PORT", "metrics for Prometheus (0: none)", NUMBER, &settings.metrics_port, 0, 65535},
	{"metrics-address", "ADDRESS", "where the port is (127.0.0.1)", TEXT, &settings.metrics_address, 0, 0},
	{"stop-within", "SECONDS", "time for running requests after SIGTERM (30)", NUMBER, &settings.stop_within, 0, 86400},
	{"verbose", NULL, "a line for each request, not only for failures", FLAG, &is_verbose, 0, 0},
};

#define N_OPTIONS (sizeof(options) / sizeof(options[0]))

static void
complain(const char *name, const char *value)
{
	fprintf(stderr, "delay-wheel-http: option --%s cannot be \"%s\"\n", name, value);
	exit(EXIT_USAGE);
}

/*
 * Is it a connection string, or the name of a database?  libpq would say what is wrong only when
 * it connects, and its text can show the password.
 */
static void
check_conninfo(const char *name, const char *value)
{
	PQconninfoOption *parsed;

	if (!strchr(value, '=') && strncmp(value, "postgres://", 11) != 0 && strncmp(value, "postgresql://", 13) != 0)
		return;
	parsed = PQconninfoParse(value, NULL);
	if (!parsed)
	{
		fprintf(stderr, "delay-wheel-http: option --%s is no connection string of libpq (not shown here, since it can have a password)\n", name);
		exit(EXIT_USAGE);
	}
	PQconninfoFree(parsed);
}

static void
set(const Option *option, const char *value)
{
	char	   *end,
			   *copy;
	long		number;

	switch (option->kind)
	{
		case TEXT:
			*(const char **) option->target = value;
			break;
		case CONNINFO:
			check_conninfo(option->name, value);
			*(const char **) option->target = strdup(value);
			break;
		case FLAG:
			*(bool *) option->target = value == NULL || strcmp(value, "0") != 0;
			break;
		case NUMBER:
			number = strtol(value, &end, 10);
			if (end == value || *end || number < option->lowest || number > option->highest)
				complain(option->name, value);
			*(int *) option->target = (int) number;
			break;
		case LIST:
			/* lists in the environment have commas */
			copy = strdup(value);
			for (char *word = strtok_r(copy, ", ", &end); word; word = strtok_r(NULL, ", ", &end))
				if (!((TakeValue) option->target) (word))
					complain(option->name, word);
			free(copy);
			break;
	}
}

static void
help(void)
{
	printf("delay-wheel-http sends the HTTP requests of delay_wheel's queue \"http\" when they are due.\n\n");
	for (size_t i = 0; i < N_OPTIONS; i++)
		printf("  --%s%s%-*s %s\n", options[i].name, options[i].argument ? " " : "",
			   (int) (27 - strlen(options[i].name)), options[i].argument ? options[i].argument : "", options[i].help);
	printf("\nEach option is also in the environment: DELAY_HTTP_MAX_ANSWER for --max-answer.\n"
		   "Secrets: DELAY_HTTP_SECRET_SHOP for the endpoint \"shop\", or a line of --secrets: shop HOST[,HOST] whsec_... [whsec_...]\n");
	exit(0);
}

void
settings_read(int argc, char **argv)
{
	struct option long_options[N_OPTIONS + 3] = {0};
	int			index,
				c;

	for (size_t i = 0; i < N_OPTIONS; i++)
	{
		char		name[64] = "DELAY_HTTP_";
		size_t		n = strlen(name);

		for (const char *from = options[i].name; *from; from++)
			name[n++] = *from == '-' ? '_' : (char) toupper((unsigned char) *from);
		if (getenv(name))
			set(&options[i], getenv(name));
		long_options[i] = (struct option)
		{
			options[i].name, options[i].argument ? required_argument : no_argument, NULL, 'o'
		};
	}
	long_options[N_OPTIONS] = (struct option)
	{
		"help", no_argument, NULL, 'h'
	};
	long_options[N_OPTIONS + 1] = (struct option)
	{
		"version", no_argument, NULL, 'V'
	};
	while ((c = getopt_long(argc, argv, "hV", long_options, &index)) != -1)
	{
		if (c == 'o')
		{
			set(&options[index], optarg);
			/* ps shows no password */
			if (options[index].kind == CONNINFO)
				memset(optarg, '*', strlen(optarg));
		}
		else if (c == 'h')
			help();
		else if (c == 'V')
		{
			printf("delay-wheel-http " VERSION "\n");
			exit(0);
		}
		else
			exit(EXIT_USAGE);
	}
	if (optind < argc)
	{
		fprintf(stderr, "delay-wheel-http: there are no arguments, only options: %s\n", argv[optind]);
		exit(EXIT_USAGE);
	}
	if (is_verbose)
		log_level = LOG_DEBUG;
}
