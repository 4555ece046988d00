/* Prints whether each address of the command line may be connected to. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "../src/guard.h"

int
main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
	{
		struct sockaddr_in v4 = {.sin_family = AF_INET};
		struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
		bool		is_v4 = inet_pton(AF_INET, argv[i], &v4.sin_addr) == 1;

		if (!is_v4 && inet_pton(AF_INET6, argv[i], &v6.sin6_addr) != 1)
			return 1;
		puts(guard_address(is_v4 ? (struct sockaddr *) &v4 : (struct sockaddr *) &v6) ? "yes" : "no");
	}
	return 0;
}
