// SPDX-License-Identifier: MIT
/*
 * Owns the tool's side of a program's socket. A program that listens is found by the name of its socket,
 * among those of this network namespace.
 */
#include "control/ask/client.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	TOOL_MS = 10000, /* for a program that does not answer: one that is stopped never does */
	RETRY_MS = 5,
	WAKE_AGAIN_MS = 200,
	BUSY_MS = 500, /* for a socket that many wait for, and that may be of another user */
	TRIES = 3,     /* a program that was not asked for a while may close its socket just then */
};

struct listener {
	unsigned int uid;
	unsigned long long space;
	int pid;
	uint32_t key;
	char name[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

/* A line of /proc/net/unix, if it is a program of this user that listens. */
static bool listener_parse(const char *line, struct listener *l)
{
	const char *name = strchr(line, '@');
	unsigned long flags;
	int end = 0;

	/* Num: RefCount Protocol Flags ...; a socket that listens has __SO_ACCEPTCON. */
	if (!name || sscanf(line, "%*s %*s %*s %lx", &flags) != 1 || !(flags & 0x10000) ||
	    sscanf(name, "@verbatim/%u/%llu/%d/%8" SCNx32 "%n", &l->uid, &l->space, &l->pid,
		   &l->key, &end) != 4 ||
	    (name[end] && name[end] != '\n') || (size_t)end > sizeof(l->name))
		return false;
	snprintf(l->name, sizeof(l->name), "%.*s", end - 1, name + 1);
	return l->uid == geteuid();
}

/* Call visit for each until it returns true. 0 or -errno. */
static int listener_each(bool (*visit)(void *arg, const struct listener *listener), void *arg)
{
	FILE *f = fopen("/proc/net/unix", "re");
	struct listener listener;
	char line[512];

	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f))
		if (listener_parse(line, &listener) && visit(arg, &listener))
			break;
	fclose(f);
	return 0;
}

/* ---- connecting ------------------------------------------------------------------------------ */

struct attempt {
	const struct vb_ask_process *process;
	unsigned long long space; /* of this tool */
	pid_t pid;                /* of the process that listens, as the kernel says */
	int fd;                   /* or -errno */
};

/* Where many wait already, connect() would wait for a program that may be stopped. */
static int listener_connect(const struct listener *listener, pid_t *pid)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err = 0;
	struct sockaddr_un to;
	socklen_t len = vb_peer_address(&to, listener->name);

	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&to, len) || fcntl(fd, F_SETFL, 0))
		err = -errno;
	else if (!vb_peer_is_own(fd, pid))
		err = -EPERM;
	if (!err)
		return fd;
	close(fd);
	return err;
}

/* Another user can take a name like that of our program, and is passed over. */
static bool attempt_one(void *arg, const struct listener *listener)
{
	struct attempt *a = arg;
	const struct vb_ask_process *p = a->process;

	if ((p->key && p->key != listener->key) ||
	    (p->pid && (p->pid != listener->pid || a->space != listener->space)))
		return false;
	a->fd = listener_connect(listener, &a->pid);
	if (a->fd >= 0 && p->pid && a->pid != p->pid) {
		close(a->fd);
		a->fd = -EPERM;
	}
	return a->fd >= 0;
}

/* The connection or -errno. A program that listens not yet is woken until it does. */
static int process_connect(struct vb_ask_process *process)
{
	struct attempt a = { .process = process, .space = vb_peer_namespace() };
	int err;

	for (int ms = 0; ms < TOOL_MS; ms += RETRY_MS) {
		a.fd = -ENOENT;
		err = listener_each(attempt_one, &a);
		if (err)
			return err;
		if (a.fd >= 0) {
			process->pid = a.pid;
			return a.fd;
		}
		if (!process->wake && (a.fd != -EAGAIN || ms >= BUSY_MS))
			return a.fd == -ECONNREFUSED ? -ENOENT : a.fd;
		err = process->wake && ms % WAKE_AGAIN_MS == 0 ? process->wake(process->arg) : 0;
		if (err)
			return err;
		usleep(RETRY_MS * 1000);
	}
	return a.fd == -EPERM ? -EPERM : -ETIMEDOUT;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* 0 and the answer, or -errno. */
static int request_send(int fd, const struct vb_ask_request *request, struct vb_ask_answer *answer)
{
	vb_peer_patience(fd, TOOL_MS / 1000);
	/* A program that refuses us may have said so, and closed, before it has read the request. */
	if (!vb_peer_write(fd, request, sizeof(*request)) && errno == EAGAIN)
		return -ETIMEDOUT;
	if (!vb_peer_read(fd, answer, sizeof(*answer)))
		return errno == EAGAIN ? -ETIMEDOUT : -ECONNRESET;
	answer->words[sizeof(answer->words) - 1] = '\0';
	return answer->magic != VB_ASK_MAGIC || answer->status > 0 ? -EPROTO : answer->status;
}

int vb_ask_open(struct vb_ask_process *process, const char *service, const char *words,
		struct vb_ask_answer *answer)
{
	struct vb_ask_request request = { .magic = VB_ASK_MAGIC };
	int fd, err = -ECONNRESET;

	memset(answer, 0, sizeof(*answer));
	snprintf(request.service, sizeof(request.service), "%s", service);
	snprintf(request.words, sizeof(request.words), "%s", words);
	for (int i = 0; err == -ECONNRESET && i < TRIES; i++) {
		fd = process_connect(process);
		if (fd < 0)
			return fd;
		err = request_send(fd, &request, answer);
		if (!err)
			return fd;
		close(fd);
	}
	return err;
}

/* ---- all ------------------------------------------------------------------------------------- */

struct list {
	uint32_t *keys;
	int count; /* or -errno */
};

static bool list_add(void *arg, const struct listener *listener)
{
	struct list *list = arg;
	uint32_t *more = realloc(list->keys, (size_t)(list->count + 1) * sizeof(*more));

	if (!more) {
		list->count = -ENOMEM;
		return true;
	}
	list->keys = more;
	more[list->count++] = listener->key;
	return false;
}

int vb_ask_list(uint32_t **keys)
{
	struct list list = { 0 };
	int err = listener_each(list_add, &list);

	if (err || list.count < 0)
		free(list.keys);
	else
		*keys = list.keys;
	return err ? err : list.count;
}
