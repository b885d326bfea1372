/* SPDX-License-Identifier: MIT */
/*
 * Copies into or out of the memory of another process, which need not run: one-sided work done by
 * the initiator itself, and payloads fetched by their target.
 */
#pragma once

#include "fabric/fabric.h"

enum { VB_DIRECT_MAX_IOV = 32 };

enum vb_direct {
	VB_DIRECT_OK,
	VB_DIRECT_UNAVAILABLE, /* the kernel refuses, or too many at once: send packets */
	VB_DIRECT_SILENT, /* the QP is not there, or not connected to us: as if packets were lost */
	VB_DIRECT_ACCESS, /* key, bounds or rights: a remote access error */
	VB_DIRECT_INVALID,     /* the QP does not allow this operation: a remote invalid request */
	VB_DIRECT_LOCAL_FAULT, /* our own memory is not there */
};

/*
 * Move len bytes between local memory and [va, va + len) of key rkey, through the QP dqpn of the
 * path's peer that must be connected to sqpn. write: towards the peer. Blocks for the time of the
 * copy; holds a pin, so that the peer's deregistration waits for it.
 */
struct vb_direct_done {
	uint32_t generation; /* of the registration, where len is not 0 */
	bool stored;         /* by loads and stores alone, without the kernel */
};

enum vb_direct vb_direct_copy(struct vb_path *path, uint32_t sqpn, uint32_t dqpn, bool write,
			      const struct iovec *iov, uint32_t iov_cnt, uint64_t va, uint32_t rkey,
			      uint32_t len, struct vb_direct_done *done);

struct vb_direct_atomic {
	bool add;    /* else compare and swap */
	bool masked; /* of size bytes, 4 or 8, with masks; else of 8 */
	uint8_t size;
	uint64_t compare, swap_add;
	uint64_t compare_mask, swap_mask;
};

/*
 * Change the word at va atomically, for everybody: the peer's program, its card and other
 * initiators. *old is what was there. VB_DIRECT_UNAVAILABLE where the word is not in shared memory.
 */
enum vb_direct vb_direct_change(struct vb_path *path, uint32_t sqpn, uint32_t dqpn,
				const struct vb_direct_atomic *atomic, uint64_t va, uint32_t rkey,
				uint64_t *old);

/*
 * The other way round, for the target of a message: fetch len bytes of payload that the peer has
 * described, from memory of its own that the QP dqpn may send. VB_DIRECT_ACCESS: the payload is not
 * there.
 */
enum vb_direct vb_direct_pull(struct vb_path *path, uint32_t sqpn, uint32_t dqpn,
			      const struct iovec *iov, uint32_t iov_cnt,
			      const struct vb_source *source, uint32_t len);

/*
 * The copy alone, between local memory and [remote, remote + len) of the peer's address space, for
 * callers who have checked what there is to check, and whom the peer waits for before it takes pages
 * back, as it does for a pin.
 */
enum vb_direct vb_direct_move(struct vb_peer *peer, bool write, const struct iovec *iov,
			      uint32_t iov_cnt, uint64_t remote, uint32_t len);

/* Whether direct access to the peer works, as far as is known. */
bool vb_direct_works(const struct vb_path *path);
