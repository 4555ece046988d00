#ifndef GUARD_H
#define GUARD_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

extern bool guard_add_host(const char *pattern);
extern bool guard_allow(const char *cidr);
extern bool guard_refuse(const char *cidr);

extern bool guard_address(const struct sockaddr *address);
extern bool guard_host_pattern(const char *pattern);
extern bool guard_host_matches(const char *host, const char *pattern);
extern const char *guard_url(CURLU *url, const char *text, char **host);
extern const char *guard_header(const char *line);
extern bool guard_method(const char *method);
extern bool guard_id(const char *id);

#endif
