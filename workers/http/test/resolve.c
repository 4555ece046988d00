/*
 * Preloaded into the program: names for tests.  "rebind.test" has an address that
 * is allowed, on which nobody listens, and then one that is not.  So whoever
 * checks only the first address, or the name, connects to the second.  The name
 * server of "slow.test" does not answer.
 */
#include <dlfcn.h>
#include <netdb.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

typedef int (*GetAddrInfo) (const char *, const char *, const struct addrinfo *, struct addrinfo **);

int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
	GetAddrInfo real = (GetAddrInfo) dlsym(RTLD_NEXT, "getaddrinfo");
	int			status;

	if (!node)
		return real(node, service, hints, result);
	if (strcmp(node, "private.test") == 0)
		return real("127.0.0.1", service, hints, result);
	if (strcmp(node, "link-local.test") == 0)
		return real("169.254.169.254", service, hints, result);
	if (strcmp(node, "mapped.test") == 0)
		return real("::ffff:127.0.0.1", service, hints, result);
	if (strcmp(node, "slow.test") == 0)
	{
		sleep(20);
		return EAI_AGAIN;
	}
	if (strcmp(node, "rebind.test") == 0)
	{
		struct addrinfo *last;

		status = real("127.0.0.2", service, hints, result);
		if (status != 0)
			return status;
		for (last = *result; last->ai_next; last = last->ai_next)
			;
		return real("127.0.0.1", service, hints, &last->ai_next);
	}
	return real(node, service, hints, result);
}
