/* SPDX-License-Identifier: MIT */
/*
 * What both sides of a program's socket (ask.h, client.h) agree on: its name, requests, answers, and that
 * either side refuses a peer of another user, by the kernel's word. Inline, because a tool may be linked
 * with nothing else of ours.
 *
 *	@verbatim/UID/NAMESPACE/PID/KEY     NAMESPACE: the inode of the PID namespace
 *	                                    KEY: eight hex digits, drawn at random for each program
 *
 * A tool sends one request, which begins with the name of a service, and gets one answer. What follows
 * on the connection is between tool and service.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define VB_ASK_MAGIC 0x316b7361U /* "ask1": another layout has another number */

/* Texts end with a 0. */
struct vb_ask_request {
	uint32_t magic;
	char service[16];
	char words[268]; /* what is asked for, in the service's own words */
};

struct vb_ask_answer {
	uint32_t magic;
	int32_t status;  /* 0 or -errno; -EPROTONOSUPPORT: there is no such service */
	uint32_t count;  /* of what follows, where a service says so */
	char words[256]; /* why, where a service has words for it */
};

/* The address of an abstract name; its length. A name that does not fit gives 0. */
static inline socklen_t vb_peer_address(struct sockaddr_un *to, const char *name)
{
	size_t len = strlen(name);

	memset(to, 0, sizeof(*to));
	to->sun_family = AF_UNIX;
	if (len + 1 > sizeof(to->sun_path))
		return 0;
	memcpy(to->sun_path + 1, name, len);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

/* PID namespaces that share a network are kept apart; 0: it cannot be known. */
static inline unsigned long long vb_peer_namespace(void)
{
	struct stat st;

	return stat("/proc/thread-self/ns/pid", &st) ? 0 : (unsigned long long)st.st_ino;
}

/* Whether the uid at the other end is this process's, as the kernel says. pid may be NULL. */
static inline bool vb_peer_is_own(int fd, pid_t *pid)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) || peer.uid != geteuid())
		return false;
	if (pid)
		*pid = peer.pid;
	return true;
}

/* How long a read or write may take; 0: without limit. */
static inline void vb_peer_patience(int fd, int seconds)
{
	struct timeval patience = { .tv_sec = seconds };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

/* Goes on where n bytes were passed, or a signal came. Otherwise false, and errno says why. */
static inline bool vb_peer_advance(ssize_t n, char **at, size_t *len)
{
	if (!n)
		errno = ECONNRESET;
	if (n <= 0)
		return n < 0 && errno == EINTR;
	*at += n;
	*len -= (size_t)n;
	return true;
}

/* All of it, over short counts and signals. False: errno. */
static inline bool vb_peer_write(int fd, const void *from, size_t len)
{
	char *at = (char *)from;

	while (len)
		if (!vb_peer_advance(send(fd, at, len, MSG_NOSIGNAL), &at, &len))
			return false;
	return true;
}

static inline bool vb_peer_read(int fd, void *to, size_t len)
{
	char *at = (char *)to;

	while (len)
		if (!vb_peer_advance(recv(fd, at, len, 0), &at, &len))
			return false;
	return true;
}
