/*
 * A disk that is full, for any process and without any right: to be preloaded
 * (LD_PRELOAD) into a server.
 *
 * While the file named by CHAOS_FULL_DISK exists, no file below one of the
 * directories that it lists, one in a line, can be made longer: ENOSPC.  What
 * was allocated before can be written, as on a real disk.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *
control_file(void)
{
	static const char *name = NULL;

	if (name == NULL)
		name = getenv("CHAOS_FULL_DISK");
	return name != NULL ? name : "";
}

static int
is_below_full_directory(const char *path)
{
	FILE	   *list = fopen(control_file(), "re");
	char		dir[PATH_MAX];
	int			found = 0;

	if (list == NULL)
		return 0;
	while (!found && fgets(dir, sizeof(dir), list) != NULL)
	{
		size_t		len = strcspn(dir, "\n");

		found = len > 0 && strncmp(path, dir, len) == 0 && path[len] == '/';
	}
	fclose(list);
	return found;
}

/* Is there no room for the file to reach this end? */
static int
is_full(int fd, off_t end)
{
	int			saved = errno;
	char		link[64];
	char		path[PATH_MAX];
	struct stat st;
	ssize_t		len;
	int			full = 0;

	if (access(control_file(), F_OK) == 0 && fstat(fd, &st) == 0 &&
		S_ISREG(st.st_mode) && end > st.st_size)
	{
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		len = readlink(link, path, sizeof(path) - 1);
		if (len > 0)
		{
			path[len] = '\0';
			full = is_below_full_directory(path);
		}
	}
	errno = saved;
	return full;
}

static off_t
position(int fd)
{
	int			saved = errno;
	off_t		at = lseek(fd, 0, SEEK_CUR);

	errno = saved;
	return at;
}

static off_t
length_of(const struct iovec *iov, int n)
{
	off_t		length = 0;

	for (int i = 0; i < n; i++)
		length += iov[i].iov_len;
	return length;
}

#define NEXT(name) \
	static __typeof__(&name) next = NULL; \
	if (next == NULL) \
		next = (__typeof__(&name)) dlsym(RTLD_NEXT, #name)

#define FAIL_IF_FULL(fd, end) \
	if (is_full(fd, end)) \
		return errno = ENOSPC, -1

ssize_t
write(int fd, const void *data, size_t n)
{
	NEXT(write);
	FAIL_IF_FULL(fd, position(fd) + (off_t) n);
	return next(fd, data, n);
}

ssize_t
pwrite(int fd, const void *data, size_t n, off_t at)
{
	NEXT(pwrite);
	FAIL_IF_FULL(fd, at + (off_t) n);
	return next(fd, data, n, at);
}

ssize_t
pwrite64(int fd, const void *data, size_t n, off64_t at)
{
	NEXT(pwrite64);
	FAIL_IF_FULL(fd, at + (off_t) n);
	return next(fd, data, n, at);
}

ssize_t
pwritev(int fd, const struct iovec *iov, int n, off_t at)
{
	NEXT(pwritev);
	FAIL_IF_FULL(fd, at + length_of(iov, n));
	return next(fd, iov, n, at);
}

ssize_t
pwritev64(int fd, const struct iovec *iov, int n, off64_t at)
{
	NEXT(pwritev64);
	FAIL_IF_FULL(fd, at + length_of(iov, n));
	return next(fd, iov, n, at);
}

int
posix_fallocate(int fd, off_t at, off_t n)
{
	NEXT(posix_fallocate);
	return is_full(fd, at + n) ? ENOSPC : next(fd, at, n);
}

int
posix_fallocate64(int fd, off64_t at, off64_t n)
{
	NEXT(posix_fallocate64);
	return is_full(fd, at + n) ? ENOSPC : next(fd, at, n);
}
