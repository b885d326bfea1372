/* SPDX-License-Identifier: MIT */
/*
 * A device process that is none: memory, threads and stops as a test wants them, behind the functions of
 * dpa/observe/debug.h that a debugger's session calls.
 */
#pragma once

#include <pthread.h>

#include "dpa/observe/debug.h"

#define FAKE_BASE  0x1000
#define FAKE_SIZE  0x1000
#define FAKE_TEXT  0x800 /* bytes of it that cannot be written */
#define FAKE_ENTRY 0x1010

struct fake_thread {
	uint32_t number;
	struct vb_dpa_thread_info info;
	struct vb_dpa_state state;
};

struct vb_dpa_process {
	uint8_t memory[FAKE_SIZE];
};

struct vb_dpa_debug {
	struct vb_dpa_process process;
	pthread_mutex_t lock;
	int fd;
	bool stopped;
	struct vb_dpa_stopped stop;
	struct fake_thread threads[40];
	unsigned int nthreads;
	/* what was asked for */
	struct vb_dpa_resume how[256];
	unsigned int nhow, resumes, holds;
	uint64_t breaks[8];
	unsigned int nbreaks;
	struct {
		uint64_t addr, len;
		unsigned int watch;
	} watches[8];
	unsigned int nwatches;
	/* the next resume stops at once, for this */
	bool script, every; /* every: all of them do */
	struct vb_dpa_stopped next;
};

void fake_init(struct vb_dpa_debug *fake);
void fake_add(struct vb_dpa_debug *fake, uint32_t number, const char *name, bool idle);
void fake_stop(struct vb_dpa_debug *fake, const struct vb_dpa_stopped *stop);
void fake_free(struct vb_dpa_debug *fake);
