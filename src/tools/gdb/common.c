// SPDX-License-Identifier: MIT
/* Owns what both tools do with a program that can be debugged: find it, attach, pass bytes on. */
#include "tools/gdb/gdb.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Device processes of one program; more than any accelerator has room for. */
#define ENTRIES_MAX 65536

bool gdb_parse_token(const char *text, uint64_t *token)
{
	size_t len = strlen(text);
	bool prefix = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
	/* No PID has more digits than 10, and few tokens have no letter. */
	bool hex = prefix || strpbrk(text, "abcdefABCDEF") || (len > 10 && len <= 16);
	char *end;

	if (!isxdigit((unsigned char)*text))
		return false;
	errno = 0;
	*token = strtoull(text, &end, hex ? 16 : 10);
	return !errno && !*end && *token;
}

const char *gdb_reason(int err)
{
	switch (-err) {
	case ENOENT:
		return "no device process of yours has this token; 'verbatim gdb' lists those that can be debugged";
	case EBUSY:
		return "a debugger is attached to it already";
	case EPERM:
		return "the program belongs to another user: only its owner may debug it";
	case EACCES:
		return "the program lets no debugger in (PR_SET_DUMPABLE, or it changed its user)";
	case ECONNRESET:
	case ECONNREFUSED:
		return "the program has ended";
	case ETIMEDOUT:
		return "the program does not answer; is it stopped, by a signal or by a debugger of its host's half?";
	case EUSERS:
		return "the program has too many connections of debuggers";
	case EPROTO:
	case EPROTONOSUPPORT:
		return "the program uses another version of Verbatim";
	case ENOTUNIQ:
		return "it has several device processes; name one by its token";
	default:
		return strerror(-err);
	}
}

/* The entries behind an answer: their number or -errno. */
static int entries_read(int fd, uint32_t count, struct vb_gdb_entry **entries)
{
	struct vb_gdb_entry *list;

	if (count > ENTRIES_MAX)
		return -EPROTO;
	list = calloc(count + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	if (!vb_peer_read(fd, list, count * sizeof(*list))) {
		free(list);
		return -ECONNRESET;
	}
	for (uint32_t i = 0; i < count; i++) {
		list[i].process[sizeof(list[i].process) - 1] = '\0';
		list[i].app[sizeof(list[i].app) - 1] = '\0';
		list[i].adapter[sizeof(list[i].adapter) - 1] = '\0';
	}
	*entries = list;
	return (int)count;
}

int gdb_ask(struct vb_ask_process *program, const char *request, uint64_t token,
	    struct vb_gdb_entry **entries, int *fd)
{
	struct vb_ask_answer answer;
	char words[64];
	int peer, n;

	snprintf(words, sizeof(words), "%s %" PRIx64, request, token);
	peer = vb_ask_open(program, VB_GDB_SERVICE, words, &answer);
	if (peer < 0)
		return peer;
	n = entries_read(peer, answer.count, entries);
	if (n < 0 || !fd)
		close(peer);
	else
		*fd = peer;
	return n;
}

int gdb_ask_token(const char *request, uint64_t token, struct vb_gdb_entry **entries, int *fd)
{
	return gdb_ask(&(struct vb_ask_process){ .key = (uint32_t)(token >> 32) }, request, token,
		       entries, fd);
}

int gdb_attach(uint64_t token)
{
	struct vb_gdb_entry *entries;
	int fd, n = gdb_ask_token(VB_GDB_ATTACH, token, &entries, &fd);

	if (n < 0)
		return n;
	free(entries);
	return fd;
}

int gdb_look(uint64_t token, struct vb_gdb_entry *entry, pid_t *pid)
{
	struct vb_ask_process program = { .key = (uint32_t)(token >> 32) };
	struct vb_gdb_entry *entries;
	int n = gdb_ask(&program, VB_GDB_LIST, 0, &entries, NULL), err = -ENOENT;

	if (n < 0)
		return n;
	for (int i = 0; i < n; i++)
		if (entries[i].token == token) {
			*entry = entries[i];
			err = 0;
		}
	free(entries);
	if (pid)
		*pid = program.pid;
	return err;
}

/* One way: what was read and is not yet written. */
struct way {
	int from, to;
	size_t at, len;
	char bytes[16384];
};

/* False: an end. Nothing that was read before it is lost. */
static bool gdb_common_pass(struct way *way, const struct pollfd *from, const struct pollfd *to)
{
	ssize_t n;

	if (way->at < way->len && to->revents) {
		n = write(way->to, way->bytes + way->at, way->len - way->at);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return false;
		way->at += n > 0 ? (size_t)n : 0;
	}
	if (way->at == way->len && from->revents) {
		n = read(way->from, way->bytes, sizeof(way->bytes));
		if (!n || (n < 0 && errno != EINTR && errno != EAGAIN))
			return false;
		way->at = 0;
		way->len = n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* The last words of a session: the reply to a detach, or that the program has ended. */
static bool flush(struct way *way)
{
	while (way->at < way->len) {
		struct pollfd room = { .fd = way->to, .events = POLLOUT };
		ssize_t n = write(way->to, way->bytes + way->at, way->len - way->at);

		if (n < 0 && (errno != EAGAIN || poll(&room, 1, -1) < 0))
			return false;
		way->at += n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* What has come meanwhile; it may have ended while we wrote to it. */
static bool gdb_common_refill(struct way *way)
{
	ssize_t n = read(way->from, way->bytes, sizeof(way->bytes));

	way->at = 0;
	way->len = n > 0 ? (size_t)n : 0;
	return n > 0;
}

void gdb_send_away(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd >= 0)
		close(fd);
}

void gdb_relay(int in, int out, int program, int listener)
{
	static struct way there, back;
	bool open = true;

	/* A peer that does not read must not keep the other direction. */
	fcntl(in, F_SETFL, O_NONBLOCK);
	fcntl(out, F_SETFL, O_NONBLOCK);
	fcntl(program, F_SETFL, O_NONBLOCK);
	there = (struct way){ .from = in, .to = program };
	back = (struct way){ .from = program, .to = out };
	while (open) {
		bool full = there.at < there.len, owed = back.at < back.len;
		struct pollfd fds[] = {
			{ .fd = full ? -1 : in, .events = POLLIN },
			{ .fd = full ? program : -1, .events = POLLOUT },
			{ .fd = owed ? -1 : program, .events = POLLIN },
			{ .fd = owed ? out : -1, .events = POLLOUT },
			{ .fd = listener, .events = POLLIN },
		};

		if (poll(fds, 5, -1) < 0) {
			open = errno == EINTR;
			continue;
		}
		open = gdb_common_pass(&there, &fds[0], &fds[1]) &&
		       gdb_common_pass(&back, &fds[2], &fds[3]);
		if (fds[4].revents)
			gdb_send_away(listener);
	}
	while (flush(&back) && gdb_common_refill(&back))
		;
}
