/* SPDX-License-Identifier: MIT */
/* The tool's side of a program's socket: find the program, ask one of its services. */
#pragma once

#include "control/ask/socket.h"

/* Which program of this user. */
struct vb_ask_process {
	pid_t pid;    /* 0: any, and vb_ask_open() says which; 0 in another PID namespace */
	uint32_t key; /* 0: any */
	/* Have it listen, 0 or -errno. NULL: it does so already, or is not found. */
	int (*wake)(void *arg);
	void *arg;
};

/*
 * Ask a service. The connection, on which more may follow and calls take some seconds at most; or -errno:
 * what the service says, -EPROTONOSUPPORT: the program has no such service, -ENOENT: no such program
 * listens, -EPERM: one of another user has taken its name, -ETIMEDOUT: it does not answer, -ECONNRESET: it
 * ended. The answer is filled in either case.
 */
int vb_ask_open(struct vb_ask_process *process, const char *service, const char *words,
		struct vb_ask_answer *answer);

/* The keys of all that listen, for free(); the number of them, or -errno. */
int vb_ask_list(uint32_t **keys);
