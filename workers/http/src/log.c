/*-------------------------------------------------------------------------
 *
 * log.c
 *	  Lines of key=value on standard error.
 *
 * A line never has a URL, a body, a header or a secret: paths and queries of
 * webhooks are often secrets themselves.  It has the host and the id of the
 * message, by which the sender finds the rest.
 *
 *-------------------------------------------------------------------------
 */
#include "log.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

LogLevel	log_level = LOG_INFO;

static const char *const level_names[] = {"debug", "info", "warning", "error"};
static char line[4096];
static size_t length;
static bool is_written;

static void
add(char c)
{
	/* room for the end of the line stays */
	if (length < sizeof(line) - 1)
		line[length++] = c;
}

static void
add_text(const char *text)
{
	while (*text)
		add(*text++);
}

void
log_begin(LogLevel level, const char *event)
{
	struct timespec at;
	struct tm	utc;
	char		time_text[64];

	is_written = level >= log_level;
	if (!is_written)
		return;
	length = 0;
	clock_gettime(CLOCK_REALTIME, &at);
	gmtime_r(&at.tv_sec, &utc);
	strftime(time_text, sizeof(time_text), "%Y-%m-%dT%H:%M:%S", &utc);
	add_text("time=");
	add_text(time_text);
	snprintf(time_text, sizeof(time_text), ".%03ldZ level=", at.tv_nsec / 1000000);
	add_text(time_text);
	add_text(level_names[level]);
	add_text(" event=");
	add_text(event);
}

/* A value with blanks and the like is quoted; a control character becomes a blank. */
void
log_text(const char *key, const char *value)
{
	bool		is_plain = *value != '\0';

	if (!is_written)
		return;
	for (const char *c = value; *c; c++)
		if ((unsigned char) *c <= ' ' || strchr("\"\\=\177", *c))
			is_plain = false;
	add(' ');
	add_text(key);
	add('=');
	if (is_plain)
	{
		add_text(value);
		return;
	}
	add('"');
	for (const char *c = value; *c; c++)
	{
		if (*c == '"' || *c == '\\')
			add('\\');
		add((unsigned char) *c < ' ' || *c == '\177' ? ' ' : *c);
	}
	add('"');
}

void
log_number(const char *key, long long value)
{
	char		text[32];

	snprintf(text, sizeof(text), "%lld", value);
	log_text(key, text);
}

void
log_seconds(const char *key, double value)
{
	char		text[32];

	snprintf(text, sizeof(text), "%.3f", value);
	log_text(key, text);
}

void
log_end(void)
{
	if (!is_written)
		return;
	line[length++] = '\n';
	/* One write, so that lines of several processes do not mix; a log that is gone ends nothing. */
	if (write(STDERR_FILENO, line, length) < 0)
		return;
}

void
log_event(LogLevel level, const char *event, const char *key, const char *value)
{
	log_begin(level, event);
	log_text(key, value);
	log_end();
}
