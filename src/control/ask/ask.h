/* SPDX-License-Identifier: MIT */
/*
 * Tools of the user ask this program: one socket (socket.h has its name), one table of services.
 *
 *	tool                                            this program
 *	wakes it ------------------------------------>  vb_ask_asked() starts the thread that listens
 *	connects, names a service, says what it wants ->  that thread reads the request and finds the service
 *	                                                  a thread of the service: serve()
 *
 * A program that is not asked has neither socket nor thread for it. Both are there from the first question
 * until some seconds after the last one, and while a service holds them (vb_ask_hold()).
 *
 * A child of fork() has no socket, no connection and another key; services stay in the table. At exit each
 * service may say good-bye; no connection is waited for beyond that.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/public.h"
#include "control/ask/socket.h"

struct vb_ask_service {
	const char *name;     /* 15 letters with "verbatim-" in front: the name of its threads */
	unsigned int at_once; /* connections served at a time, each by a thread; others wait */
	/*
	 * Serve a connection, which is closed afterwards; reads and writes take some seconds at most. The
	 * program may have closed the file. A peer that has gone before its turn is not served.
	 */
	void (*serve)(const struct vb_file *file, const char *words);
	/* The program exits, with this status. NULL, or a service that holds the socket at times. */
	void (*leave)(int status);

	/* ask.c only */
	struct vb_ask_service *next;
	_Atomic bool listed;
	unsigned int serving; /* threads */
};

/* It lives as long as the program. A service that is in the table already stays as it is. */
VB_PUBLIC void vb_ask_serve(struct vb_ask_service *service);

/* Answer, with these words or none (NULL). False: the peer has gone. */
VB_PUBLIC bool vb_ask_answer(const struct vb_file *file, int status, uint32_t count,
			     const char *words);
/* Send bytes behind the answer. False: the peer has gone, or the program has closed the connection. */
VB_PUBLIC bool vb_ask_write(const struct vb_file *file, const void *from, size_t len);

/* Listen until it is released as often as it is held. 0 and the program's key, or -errno. */
VB_PUBLIC int vb_ask_hold(uint32_t *key);
VB_PUBLIC void vb_ask_release(void);

/* By the background thread, which does not wait here: a tool wants to ask, and wakes us until it can. */
void vb_ask_asked(void);
