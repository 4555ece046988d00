/*-------------------------------------------------------------------------
 *
 * sign.c
 *	  Signatures of Standard Webhooks 1.0.0: HMAC-SHA256 of "id.timestamp.body",
 *	  by each secret of the endpoint.  While a secret is replaced an endpoint
 *	  has two.
 *
 * Secrets are in a file, a line for each endpoint:
 *
 *	  NAME HOST[,HOST...] SECRET [SECRET...]
 *
 * and what is signed for NAME only goes to these hosts ("*": to any), so that
 * a sender cannot get another endpoint's signature by a URL of his own.  Or
 * they are in the environment, DELAY_HTTP_SECRET_NAME=SECRET, for any host; in
 * NAME letters are capital there, and "-" is "_".
 *
 *-------------------------------------------------------------------------
 */
#include "sign.h"

#include <ctype.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guard.h"
#include "log.h"

#define MAX_SECRETS 8
#define MIN_SECRET 24			/* bytes; the standard has 24 to 64 */
#define MAX_SECRET 96

#define SECRET_IS "a secret is whsec_ and base64 of at least 24 bytes, and an endpoint has at most 8"

typedef struct Endpoint
{
	struct Endpoint *next;
	char	   *name;
	char	   *hosts;			/* with commas */
	bool		is_variable;	/* of the environment */
	int			n;
	int			lengths[MAX_SECRETS];
	unsigned char secrets[MAX_SECRETS][MAX_SECRET];
} Endpoint;

static Endpoint *endpoints;

/* Takes "whsec_BASE64". */
static bool
add_secret(Endpoint *endpoint, const char *text)
{
	unsigned char bytes[MAX_SECRET + 3];
	size_t		length;
	int			n;

	if (strncmp(text, "whsec_", 6) != 0)
		return false;
	text += 6;
	length = strlen(text);
	if (endpoint->n == MAX_SECRETS || length == 0 || length % 4 != 0 || length > MAX_SECRET / 3 * 4)
		return false;
	n = EVP_DecodeBlock(bytes, (const unsigned char *) text, (int) length);
	if (n < 0)
		return false;
	/* what "=" stands for does not count */
	n -= text[length - 1] == '=';
	n -= text[length - 2] == '=';
	if (n < MIN_SECRET)
	{
		OPENSSL_cleanse(bytes, sizeof(bytes));
		return false;
	}
	memcpy(endpoint->secrets[endpoint->n], bytes, n);
	endpoint->lengths[endpoint->n++] = n;
	OPENSSL_cleanse(bytes, sizeof(bytes));
	return true;
}

/* Are these hosts that a URL can have? */
static bool
are_hosts(const char *names)
{
	char	   *copy = strdup(names);
	char	   *rest;
	bool		are = false;

	for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
	{
		are = strcmp(word, "*") == 0 || guard_host_pattern(word);
		if (!are)
			break;
	}
	free(copy);
	return are;
}

static void
free_endpoints(Endpoint *list)
{
	while (list)
	{
		Endpoint   *next = list->next;

		free(list->name);
		free(list->hosts);
		OPENSSL_clear_free(list, sizeof(Endpoint));
		list = next;
	}
}

/* Makes an endpoint of "[SECRET ...]"; the words of the text are cut. */
static Endpoint *
make_endpoint(const char *name, const char *hosts, char *words)
{
	Endpoint   *endpoint = calloc(1, sizeof(Endpoint));
	char	   *rest;

	if (!endpoint)
		abort();
	endpoint->name = strdup(name);
	endpoint->hosts = strdup(hosts);
	for (char *word = strtok_r(words, " \t\r\n", &rest); word; word = strtok_r(NULL, " \t\r\n", &rest))
	{
		if (!add_secret(endpoint, word))
		{
			free_endpoints(endpoint);
			return NULL;
		}
	}
	if (endpoint->n == 0)
	{
		free_endpoints(endpoint);
		return NULL;
	}
	return endpoint;
}

/* Adds the endpoints of the environment.  Returns a variable that is wrong, with its value, or NULL. */
static const char *
add_variables(Endpoint **list)
{
	static const char prefix[] = "DELAY_HTTP_SECRET_";

	for (char **variable = environ; *variable; variable++)
	{
		const char *value = strchr(*variable, '=');
		char	   *copy;
		Endpoint   *endpoint;

		if (!value || strncmp(*variable, prefix, strlen(prefix)) != 0)
			continue;
		copy = strdup(*variable);
		copy[value - *variable] = '\0';
		endpoint = make_endpoint(copy + strlen(prefix), "*", copy + (value - *variable) + 1);
		OPENSSL_clear_free(copy, strlen(*variable));
		if (!endpoint)
			return *variable;
		endpoint->is_variable = true;
		endpoint->next = *list;
		*list = endpoint;
	}
	return NULL;
}

/*
 * Reads the environment and the file.  If they cannot be used, the secrets that were read before
 * stay, and the result is false.  The log names a variable, never its value.
 */
bool
sign_load(const char *path)
{
	static bool has_some;		/* read before */
	Endpoint   *list = NULL;
	const char *wrong = NULL;
	const char *variable = add_variables(&list);
	char	   *line = NULL;
	size_t		size = 0;
	int			number = 0;
	struct stat status;
	FILE	   *file = path ? fopen(path, "re") : NULL;

	if (variable)
		wrong = "the variable is not SECRET [SECRET...]; " SECRET_IS;
	else if (path && !file)
		wrong = strerror(errno);
	else if (path && (fstat(fileno(file), &status) != 0 || (status.st_mode & 007) != 0))
		wrong = "other users may read the file: chmod o= FILE";
	while (!wrong && file && getline(&line, &size, file) >= 0)
	{
		char	   *rest;
		char	   *name = strtok_r(line, " \t\r\n", &rest);
		char	   *names = name ? strtok_r(NULL, " \t\r\n", &rest) : NULL;
		Endpoint   *endpoint;

		number++;
		if (!name || name[0] == '#')
			continue;
		if (!guard_id(name) || !names)
			wrong = "not NAME HOST[,HOST...] SECRET [SECRET...]";
		else if (!are_hosts(names))
			wrong = "not *, *.HOST or HOST: write the host without scheme, port and path";
		endpoint = wrong ? NULL : make_endpoint(name, names, rest);
		if (!endpoint)
		{
			wrong = wrong ? wrong : SECRET_IS;
			break;
		}
		endpoint->next = list;
		list = endpoint;
	}
	if (line)
		OPENSSL_cleanse(line, size);
	free(line);
	if (file)
		fclose(file);
	if (wrong)
	{
		free_endpoints(list);
		log_begin(LOG_ERROR, "secrets_not_read");
		if (variable)
		{
			char		name[128];

			snprintf(name, sizeof(name), "%.*s", (int) strcspn(variable, "="), variable);
			log_text("variable", name);
		}
		else
			log_text("file", path);
		if (number > 0)
			log_number("line", number);
		log_text("error", wrong);
		log_text("next", has_some ? "the former secrets stay" : "the program ends");
		log_end();
		return false;
	}
	free_endpoints(endpoints);
	endpoints = list;
	has_some = true;
	return true;
}

/* The file's endpoints are in front, and win. */
static Endpoint *
find(const char *name)
{
	char		variable[128];
	size_t		n = 0;

	for (; name[n] && n < sizeof(variable) - 1; n++)
		variable[n] = name[n] == '-' ? '_' : (char) toupper((unsigned char) name[n]);
	variable[n] = '\0';
	for (Endpoint *endpoint = endpoints; endpoint; endpoint = endpoint->next)
		if (strcmp(endpoint->name, endpoint->is_variable ? variable : name) == 0)
			return endpoint;
	return NULL;
}

static bool
may_go_to(const Endpoint *endpoint, const char *host)
{
	char	   *copy = strdup(endpoint->hosts);
	char	   *rest;
	bool		may = false;

	for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
		may |= strcmp(word, "*") == 0 || guard_host_matches(host, word);
	free(copy);
	return may;
}

/*
 * Writes the value of webhook-signature.  Returns NULL, or what is wrong.  A
 * secret that is missing may be put there; nothing else can be mended here.
 */
const char *
sign_message(const char *name, const char *host, const char *id, long long timestamp, const char *body, char *signatures, bool *lacks_secret)
{
	static char wrong[160];
	Endpoint   *endpoint;
	size_t		size;
	char	   *content;
	int			length;
	size_t		n = 0;

	if (!guard_id(name))
		return "the name of the endpoint is not valid";
	endpoint = find(name);
	*lacks_secret = !endpoint;
	if (!endpoint || !may_go_to(endpoint, host))
	{
		snprintf(wrong, sizeof(wrong), "endpoint \"%s\" %s", name, endpoint ? "is for other hosts" : "has no secret here");
		return wrong;
	}
	size = strlen(id) + strlen(body) + 32;
	content = malloc(size);
	if (!content)
		abort();
	length = snprintf(content, size, "%s.%lld.%s", id, timestamp, body);
	for (int i = 0; i < endpoint->n; i++)
	{
		unsigned char digest[EVP_MAX_MD_SIZE];
		unsigned int digest_length;

		if (!HMAC(EVP_sha256(), endpoint->secrets[i], endpoint->lengths[i], (unsigned char *) content, length, digest, &digest_length))
			abort();
		n += sprintf(signatures + n, "%sv1,", i > 0 ? " " : "");
		n += EVP_EncodeBlock((unsigned char *) signatures + n, digest, (int) digest_length);
	}
	free(content);
	return NULL;
}
