/* SPDX-License-Identifier: MIT */
/*
 * The host program's side: device processes that debuggers may attach to. The program listens while
 * there is an offer (control/ask/ask.h). Sessions end with their offer, and with the program.
 *
 * A child of fork() has no device threads: its copies of offers cannot be attached to.
 */
#pragma once

#include "gdb/gdb.h"

struct vb_gdb_offer;

/* What is copied is said; the rest lives as long as the offer. */
struct vb_gdb_offer_attr {
	struct vb_dpa_process *process;
	uint32_t id;
	const char *name, *app, *adapter; /* copied */
	const void *elf;
	size_t elf_len;
	void (*thread_name)(void *arg, uint32_t thread, char *name, size_t size); /* see gdb.h */
	void *arg;
	bool started; /* a debugger started this program: it may kill it */
};

/*
 * Serve tools that ask for device processes. all: offer every one, when a tool asks for it (0 or -errno);
 * NULL: as it was, at first only those that the program offers.
 */
void vb_gdb_serve_tools(int (*all)(void));

/* 0, or -errno: there is no socket. */
int vb_gdb_offer(const struct vb_gdb_offer_attr *attr, struct vb_gdb_offer **offer);
/* Never 0. */
uint64_t vb_gdb_offer_token(const struct vb_gdb_offer *offer);
/* Returns when a debugger has attached, and holds the process. */
void vb_gdb_offer_await(struct vb_gdb_offer *offer);
/*
 * Tell a tool that waits on the abstract unix socket `name` the token. 0: it will come, -errno: it
 * will not.
 */
int vb_gdb_offer_announce(struct vb_gdb_offer *offer, const char *name);
/* Take it back: a session ends, and has ended when this returns. NULL is none. */
void vb_gdb_offer_end(struct vb_gdb_offer *offer);
