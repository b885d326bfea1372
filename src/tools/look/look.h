/* SPDX-License-Identifier: MIT */
/*
 * One look at the cards of the user: processes, adapters, queue pairs and device code, copied from
 * what programs show (control/show/). `verbatim ps`, `stats` and `top` print what is in here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "host/patch/patch.h"
#include "meet/registry.h"
#include "control/show/layout.h"

/* As struct vb_monitor_traffic, of a moment. */
struct look_traffic {
	uint64_t sent, received, packets, copies, calls, retries, dropped, stores;
};

struct look_doorbells {
	uint32_t patched;
	uint64_t traps;
	uint32_t kept[VB_SITE_REASONS];
};

struct look_process {
	pid_t pid;
	uint32_t slot;
	int dir; /* of the registry in which it has that slot: the same number for all of one */
	char command[16];
	struct look_doorbells doorbells;
};

/* What one process has of an adapter: all of its queue pairs, those that are gone, too. */
struct look_adapter {
	pid_t pid;
	char name[32];
	uint32_t qps;
	struct look_traffic traffic;
};

struct look_qp {
	pid_t pid;
	char adapter[32];
	uint32_t number, type, state, send_cq, recv_cq, peer;
	pid_t peer_pid; /* 0: none, or not of this host */
	struct look_traffic sq, rq;
};

struct look_thread {
	pid_t pid;
	uint32_t process_id, id;
	char name[VB_MONITOR_NAME], process[VB_MONITOR_NAME], adapter[32];
	bool counted; /* somebody has switched the counters on */
	uint64_t ticks, instructions, executions;
};

struct look_dpa {
	pid_t pid;
	uint32_t id;
	char name[VB_MONITOR_NAME], adapter[32];
	uint32_t threads;
};

enum { LOOK_EUS = 4096 };

/* The execution units of an adapter's accelerator, as one process has it. */
struct look_accelerator {
	pid_t pid;
	char adapter[32];
	uint32_t eus;
	uint64_t ticks; /* of the processor, when they were read */
	uint64_t *busy; /* ticks of each */
};

/* A growing array. */
struct look_list {
	void *at;
	size_t count, room, size;
};

struct look {
	uint64_t time; /* vb_machine_ns() */
	struct look_list processes, adapters, qps, dpas, threads, accelerators;
	bool failed; /* memory was short: something is missing */
};

/* 0 or -errno. A look that was made must be freed. */
int look_make(struct look *look);
void look_free(struct look *look);

/* Device threads are counted from now on; false: no longer, where it was us who asked. */
void look_count(bool on);

#define look_each(type, item, list)          \
	for (struct type *item = (list)->at; \
	     item && item < (struct type *)(list)->at + (list)->count; item++)

const struct look_process *look_process(const struct look *look, pid_t pid);
/* The same one in another look, or NULL. */
const struct look_qp *look_same_qp(const struct look *look, const struct look_qp *qp);
const struct look_thread *look_same_thread(const struct look *look, const struct look_thread *t);
/* "RC", "RTS"; "?" for what nobody knows. */
const char *look_type(uint32_t type);
const char *look_state(uint32_t state);
/* 17 letters at most: "1.5 GiB". */
void look_bytes(uint64_t bytes, char text[24]);
