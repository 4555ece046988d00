#ifndef SIGN_H
#define SIGN_H

#include <stdbool.h>
#include <stddef.h>

/* Signatures of all secrets of an endpoint, separated by blanks, fit into this. */
#define SIGNATURES_SIZE 512

extern bool sign_load(const char *path);
extern const char *sign_message(const char *endpoint, const char *host, const char *id, long long timestamp,
								const char *body, char *signatures, bool *lacks_secret);

#endif
