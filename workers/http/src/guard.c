/*-------------------------------------------------------------------------
 *
 * guard.c
 *	  What may be sent, and whereto.
 *
 * Whoever may schedule calls chooses URLs, so this program must not be his way
 * into the network that it is in.  Names prove nothing: a name can resolve to
 * any address, and to another one a moment later.  So the address is checked
 * that the socket is about to be connected to (guard_address(), called by
 * libcurl before each connect, also after a redirect).  Names are only checked
 * against the list of hosts.
 *
 * Everything of a message is checked here again, although delay_http.send()
 * has done so: a sender may also call delay_send().
 *
 *-------------------------------------------------------------------------
 */
#include "guard.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "settings.h"

/* An IPv6 range; IPv4 stands in it as ::ffff:a.b.c.d. */
typedef struct Range
{
	unsigned char bytes[16];
	int			bits;
} Range;

typedef struct Ranges
{
	Range	   *ranges;
	int			n;
} Ranges;

static Ranges allowed;
static Ranges refused;
static const char **hosts;
static int	n_hosts;

/*
 * The special-purpose registries of IANA, as far as they are not global, and
 * what clouds have elsewhere.  Of IPv6 only 2000::/3 is global unicast.
 */
static const char *const never[] = {
	"0.0.0.0/8",				/* this network; Linux connects it to itself */
	"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",	/* private */
	"100.64.0.0/10",			/* shared by customers of a provider; metadata of Alibaba */
	"127.0.0.0/8",
	"169.254.0.0/16",			/* link-local; metadata of most clouds */
	"192.0.0.0/24",				/* IETF; metadata of Oracle */
	"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24",	/* documentation */
	"192.88.99.0/24",			/* relays of 6to4 */
	"198.18.0.0/15",			/* benchmarks */
	"224.0.0.0/4",				/* multicast */
	"240.0.0.0/4",				/* reserved, broadcast */
	"168.63.129.16/32",			/* Azure's agent, a public address */
	"2001::/23",				/* IETF; Teredo */
	"2001:db8::/32", "3fff::/20",	/* documentation */
	"2002::/16",				/* 6to4: any IPv4 address is in it */
};

static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
static const unsigned char nat64[12] = {0x00, 0x64, 0xff, 0x9b};

static bool
add_range(Ranges *ranges, const char *cidr)
{
	char		text[INET6_ADDRSTRLEN + 1] = "";
	const char *slash = strchr(cidr, '/');
	size_t		length = slash ? (size_t) (slash - cidr) : strlen(cidr);
	Range		range;
	bool		is_v4;
	char	   *end;
	int			most;

	if (length >= sizeof(text))
		return false;
	memcpy(text, cidr, length);
	is_v4 = strchr(text, ':') == NULL;
	most = is_v4 ? 32 : 128;
	memcpy(range.bytes, mapped, 12);
	if (inet_pton(is_v4 ? AF_INET : AF_INET6, text, range.bytes + (is_v4 ? 12 : 0)) != 1)
		return false;
	range.bits = slash ? (int) strtol(slash + 1, &end, 10) : most;
	if ((slash && (end == slash + 1 || *end)) || range.bits < 0 || range.bits > most)
		return false;
	range.bits += 128 - most;
	ranges->ranges = realloc(ranges->ranges, (ranges->n + 1) * sizeof(Range));
	if (!ranges->ranges)
		abort();
	ranges->ranges[ranges->n++] = range;
	return true;
}

bool
guard_allow(const char *cidr)
{
	return add_range(&allowed, cidr);
}

bool
guard_refuse(const char *cidr)
{
	return add_range(&refused, cidr);
}

static bool
is_in(const Ranges *ranges, const unsigned char *bytes)
{
	for (int i = 0; i < ranges->n; i++)
	{
		const Range *range = &ranges->ranges[i];
		int			whole = range->bits / 8;
		int			rest = range->bits % 8;

		if (memcmp(range->bytes, bytes, whole) == 0 &&
			(rest == 0 || ((range->bytes[whole] ^ bytes[whole]) >> (8 - rest)) == 0))
			return true;
	}
	return false;
}

/* May we connect to this address? */
bool
guard_address(const struct sockaddr *address)
{
	static Ranges special;
	unsigned char bytes[16];

	for (; special.n < (int) (sizeof(never) / sizeof(never[0]));)
		if (!add_range(&special, never[special.n]))
			abort();

	if (address->sa_family == AF_INET)
	{
		memcpy(bytes, mapped, 12);
		memcpy(bytes + 12, &((const struct sockaddr_in *) address)->sin_addr, 4);
	}
	else if (address->sa_family == AF_INET6)
	{
		memcpy(bytes, &((const struct sockaddr_in6 *) address)->sin6_addr, 16);
		/* 64:ff9b::a.b.c.d leads to a.b.c.d */
		if (memcmp(bytes, nat64, 12) == 0)
			memcpy(bytes, mapped, 12);
	}
	else
		return false;

	if (is_in(&refused, bytes))
		return false;
	if (is_in(&allowed, bytes))
		return true;
	if (is_in(&special, bytes))
		return false;
	return memcmp(bytes, mapped, 12) == 0 || (bytes[0] & 0xe0) == 0x20;
}

/*
 * Is it HOST or *.HOST, where HOST is a name, an IPv4 address, or an IPv6
 * address in brackets?  With a port, a scheme or a path it would match no host.
 */
bool
guard_host_pattern(const char *pattern)
{
	const char *host = strncmp(pattern, "*.", 2) == 0 ? pattern + 2 : pattern;
	size_t		n = strlen(host);

	if (host == pattern && host[0] == '[')
		return n > 2 && host[n - 1] == ']' && strspn(host + 1, "abcdefABCDEF0123456789.:") == n - 2;
	return n > 0 && strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == n;
}

bool
guard_add_host(const char *pattern)
{
	if (!guard_host_pattern(pattern))
		return false;
	hosts = realloc(hosts, (n_hosts + 1) * sizeof(char *));
	if (!hosts)
		abort();
	hosts[n_hosts++] = strdup(pattern);
	return true;
}

/* "*.shop.example" is a host in that domain, but not the domain. */
bool
guard_host_matches(const char *host, const char *pattern)
{
	size_t		n = strlen(host),
				m = strlen(pattern);

	if (pattern[0] != '*')
		return strcasecmp(host, pattern) == 0;
	return n > m - 1 && strcasecmp(host + n - (m - 1), pattern + 1) == 0;
}

/*
 * Reads a URL.  Returns NULL and its host, or what is wrong.  libcurl gets the
 * parsed URL, so that there is no second opinion of where the host ends.
 */
const char *
guard_url(CURLU *url, const char *text, char **host)
{
	char	   *part = NULL;
	bool		is_allowed;

	*host = NULL;
	if (strlen(text) > 8000)
		return "the URL is too long";
	for (const char *c = text; *c; c++)
		if (*c <= ' ' || *c > '~')
			return "the URL has a character that is not printable ASCII";
	if (curl_url_set(url, CURLUPART_URL, text, 0) != CURLUE_OK)
		return "the URL is not valid";

	curl_url_get(url, CURLUPART_SCHEME, &part, 0);
	is_allowed = part && (strcmp(part, "https") == 0 || (strcmp(part, "http") == 0 && !settings.https_only));
	curl_free(part);
	if (!is_allowed)
		return settings.https_only ? "the URL is not https" : "the URL is neither http nor https";

	if (curl_url_get(url, CURLUPART_USER, &part, 0) == CURLUE_OK || curl_url_get(url, CURLUPART_PASSWORD, &part, 0) == CURLUE_OK)
	{
		curl_free(part);
		return "the URL names a user";
	}

	if (curl_url_get(url, CURLUPART_HOST, &part, 0) != CURLUE_OK || !*part)
		return "the URL has no host";
	*host = strdup(part);
	curl_free(part);
	/* What %XX stood for is decoded now: no blanks, no letters that become others in a look-up. */
	if (strspn(*host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]") != strlen(*host))
		return "the host is not valid";
	is_allowed = n_hosts == 0;
	for (int i = 0; i < n_hosts; i++)
		is_allowed |= guard_host_matches(*host, hosts[i]);
	return is_allowed ? NULL : "the host is not in the list of hosts";
}

/* Looks at a header, "Name: value".  Returns NULL, or what is wrong. */
const char *
guard_header(const char *line)
{
	static const char *const ours[] = {"host", "content-length", "transfer-encoding", "te", "trailer", "connection",
		"keep-alive", "upgrade", "expect", "proxy-*", "webhook-*"};
	const char *colon = strstr(line, ": ");
	size_t		length = colon ? (size_t) (colon - line) : 0;

	if (length == 0 || length > 255 || strspn(line, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+.^_`|~-") != length)
		return "the name of a header is not valid";
	for (const char *c = line; *c; c++)
		if (((unsigned char) *c < ' ' && *c != '\t') || *c == '\177')
			return "a header has a control character";
	if (strlen(line) > length + 8002)
		return "a header is too long";
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
	{
		size_t		n = strlen(ours[i]);
		bool		is_prefix = ours[i][n - 1] == '*';

		n -= is_prefix;
		if (strncasecmp(line, ours[i], n) == 0 && (is_prefix || length == n))
			return "a header cannot be set by the sender";
	}
	return NULL;
}

bool
guard_method(const char *method)
{
	static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"};

	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (strcmp(method, methods[i]) == 0)
			return true;
	return false;
}

/* An id is signed as "id.timestamp.body", so it must not have a dot. */
bool
guard_id(const char *id)
{
	size_t		length = strlen(id);

	return length > 0 && length <= 100 && strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == length;
}
