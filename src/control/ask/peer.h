/* SPDX-License-Identifier: MIT */
/*
 * Sockets on which a program is asked by tools of its user: the debugger (gdb/listen.c), faults on
 * demand (card/fault/inject_link.c). Inline, because a tool may be linked with nothing else of ours.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

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

/* Whether the uid at the other end is this process's, as the kernel says. pid may be NULL. */
static inline bool vb_peer_is_own(int fd, pid_t *pid)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) || who.uid != geteuid())
		return false;
	if (pid)
		*pid = who.pid;
	return true;
}

/* How long a read or write may take; 0: for ever. */
static inline void vb_peer_patience(int fd, int seconds)
{
	struct timeval patience = { .tv_sec = seconds };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}
