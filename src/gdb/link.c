// SPDX-License-Identifier: MIT
/* Owns the tool's side of the socket to a host program, and what both sides share. */
#include "gdb/link.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "control/ask/peer.h"

/* Device processes of one program; more than any accelerator has room for. */
#define ENTRIES_MAX 65536
/* How long a program may take to answer: one that is stopped never does. */
#define PATIENCE_S 10

/* False, and errno says why: an end of the connection leaves none. */
static bool end_of(ssize_t n)
{
	if (!n)
		errno = ECONNRESET;
	return false;
}

bool vb_gdb_write_all(int fd, const void *from, size_t len)
{
	while (len) {
		ssize_t n = send(fd, from, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return end_of(n);
		from = (const char *)from + n;
		len -= (size_t)n;
	}
	return true;
}

bool vb_gdb_read_all(int fd, void *to, size_t len)
{
	while (len) {
		ssize_t n = recv(fd, to, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return end_of(n);
		to = (char *)to + n;
		len -= (size_t)n;
	}
	return true;
}

/* A line of /proc/net/unix, if it is a program of this user that listens. */
static bool gdb_link_parse(char *line, struct vb_gdb_host *host)
{
	char prefix[64], *name = strchr(line, '@');
	unsigned long flags;

	line[strcspn(line, "\n")] = '\0';
	/* Num: RefCount Protocol Flags ...; a socket that listens has __SO_ACCEPTCON. */
	if (!name || sscanf(line, "%*s %*s %*s %lx", &flags) != 1 || !(flags & 0x10000))
		return false;
	name++;
	snprintf(prefix, sizeof(prefix), "verbatim-dpa/%u/", (unsigned int)geteuid());
	if (strncmp(name, prefix, strlen(prefix)) || strlen(name) >= sizeof(host->name) - 1)
		return false;
	strcpy(host->name, name);
	return true;
}

int vb_gdb_hosts(struct vb_gdb_host **hosts)
{
	struct vb_gdb_host *list = NULL, *more;
	FILE *f = fopen("/proc/net/unix", "re");
	char line[512];
	int n = 0;

	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f)) {
		more = realloc(list, (size_t)(n + 1) * sizeof(*list));
		if (!more) {
			n = -ENOMEM;
			break;
		}
		list = more;
		n += gdb_link_parse(line, &list[n]);
	}
	fclose(f);
	if (n < 0)
		free(list);
	else
		*hosts = list;
	return n;
}

/* errno of a call on a socket with a time limit. */
static int failure(void)
{
	return errno == EAGAIN || errno == EWOULDBLOCK ? -ETIMEDOUT : -errno;
}

int vb_gdb_connect(const struct vb_gdb_host *host, pid_t *pid)
{
	struct sockaddr_un to;
	socklen_t len = vb_peer_address(&to, host->name);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), err;

	if (fd < 0)
		return -errno;
	vb_peer_patience(fd, PATIENCE_S);
	if (!len || connect(fd, (struct sockaddr *)&to, len))
		err = len ? failure() : -EINVAL;
	else
		err = vb_peer_is_own(fd, pid) ? 0 : -EPERM;
	if (!err)
		return fd;
	close(fd);
	return err;
}

int vb_gdb_connect_token(uint64_t token, pid_t *pid)
{
	struct vb_gdb_host *hosts;
	int n = vb_gdb_hosts(&hosts), fd = -ENOENT;
	char end[16];

	if (n < 0)
		return n;
	snprintf(end, sizeof(end), "/%08" PRIx32, (uint32_t)(token >> 32));
	for (int i = 0; i < n && fd < 0; i++) {
		size_t len = strlen(hosts[i].name);

		if (len > strlen(end) && !strcmp(hosts[i].name + len - strlen(end), end))
			fd = vb_gdb_connect(&hosts[i], pid);
	}
	free(hosts);
	return fd;
}

int vb_gdb_ask(int fd, enum vb_gdb_request request, uint64_t token, struct vb_gdb_entry **entries)
{
	struct vb_gdb_hello hello = { VB_GDB_MAGIC, VB_GDB_VERSION, request, 0, token };
	struct vb_gdb_answer answer;
	struct vb_gdb_entry *list;

	if (!vb_gdb_write_all(fd, &hello, sizeof(hello)) ||
	    !vb_gdb_read_all(fd, &answer, sizeof(answer)))
		return failure() == -ETIMEDOUT ? -ETIMEDOUT : -ECONNRESET;
	if (answer.magic != VB_GDB_MAGIC || answer.version != VB_GDB_VERSION ||
	    answer.count > ENTRIES_MAX)
		return -EPROTO;
	if (answer.status)
		return answer.status < 0 ? answer.status : -EPROTO;
	list = calloc(answer.count + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	if (!vb_gdb_read_all(fd, list, answer.count * sizeof(*list))) {
		free(list);
		return -ECONNRESET;
	}
	for (uint32_t i = 0; i < answer.count; i++) {
		list[i].process[sizeof(list[i].process) - 1] = '\0';
		list[i].app[sizeof(list[i].app) - 1] = '\0';
		list[i].adapter[sizeof(list[i].adapter) - 1] = '\0';
	}
	*entries = list;
	return (int)answer.count;
}
