/* SPDX-License-Identifier: MIT */
/*
 * Memory of a peer that lies in memfds, as far as this process has mapped it: loads and stores in
 * place of system calls.
 *
 * The peer's table (host/shared/shared.h) says which page of which file an address is. The files are
 * mapped in windows when they are first needed, and stay mapped until the peer is given up.
 */
#pragma once

#include "base/lock.h"
#include "host/shared/shared.h"

struct vb_fabric;
struct vb_peer;

enum {
	VB_REACH_CHUNK = 1024, /* tables that are mapped at once: of 2 GiB of memory */
	VB_REACH_CHUNKS = VB_SHARED_TABLES / VB_REACH_CHUNK,
	VB_REACH_WINDOW = 16 << 20,
	VB_REACH_WINDOWS = 2048, /* of one file: 32 GiB */
	VB_REACH_RETIRED = 64,   /* files that are no more and stay mapped */
};

struct vb_reach_file;

struct vb_reach {
	struct vb_lock lock;                           /* held while more is mapped */
	_Atomic bool refused;                          /* the kernel or the peer: not asked again */
	_Atomic(struct vb_shared_map *) map;           /* the head of the table; only read */
	_Atomic(const char *) tables[VB_REACH_CHUNKS]; /* mapped, or known not to be possible */
	_Atomic(struct vb_reach_file *) files[VB_SHARED_FILES];
	struct vb_reach_file *retired; /* a list */
	unsigned int num_retired;
};

/* Whether loads and stores may work at all: the peer shares something, and nothing was refused. */
bool vb_reach_works(const struct vb_peer *peer);

/*
 * The first piece of [addr, addr + len) of the peer, for which a pin is held (host/shared/shared.h): where
 * it is in our address space, or NULL where it is not shared or cannot be mapped, or
 * VB_REACH_NOT where nobody but the peer itself may write. *piece is how far that goes, at least
 * 1. What is there may still fault (host/fault.h).
 */
#define VB_REACH_NOT ((char *)-1)
char *vb_reach_at(struct vb_peer *peer, uint64_t addr, uint64_t len, uint64_t *piece);

/* Nobody uses the peer any more. */
void vb_reach_close(struct vb_reach *reach);

/*
 * The own side: show the table to peers, and wait for their pins when pages are taken back. Started for each
 * fabric that runs (running.h); stopped for the process, when none does.
 */
void vb_reach_start(struct vb_fabric *fabric);
void vb_reach_stop(void);
