// SPDX-License-Identifier: MIT
/*
 * Owns the shared pages of emulated functions, who has them, and how their sides wake each other.
 */
#include "fabric/function.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/file.h"
#include "base/log.h"
#include "meet/registry.h"
#include "fabric/fabric.h"
#include "fabric/peer.h"
#include "fabric/segment.h"
#include "fabric/state.h"

/* --- pages ------------------------------------------------------------------------------------ */

int vb_function_map_page(struct vb_fabric *fabric, const char *adapter, unsigned int n,
			 struct vb_function_page **out)
{
	VB_NO_CANCEL;
	struct vb_function_page *page = MAP_FAILED;
	char name[VB_NAME_MAX + 32];
	int fd, ret;

	snprintf(name, sizeof(name), "function-%s-%u", adapter, n);
	fd = vb_registry_open_shared(fabric->registry, name);
	ret = fd < 0 ? fd
		     : vb_file_reserve(fd, 0, sizeof(*page), vb_registry_root(fabric->registry));
	if (!ret) {
		page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		ret = page == MAP_FAILED ? -errno : 0;
	}
	if (ret)
		vb_error("cannot map emulated function %u of %s: %s", n, adapter, strerror(-ret));
	if (fd >= 0)
		close(fd);
	if (ret)
		return ret;
	/* As the segment: a forked child has no part in it. */
	madvise(page, sizeof(*page), MADV_DONTFORK);
	*out = page;
	return 0;
}

void vb_function_unmap_page(struct vb_function_page *page)
{
	munmap(page, sizeof(*page));
}

/* --- owners: slot, then generation ------------------------------------------------------------ */

uint64_t vb_function_self(struct vb_fabric *fabric)
{
	return (uint64_t)fabric->segment->slot << 32 | fabric->segment->generation;
}

bool vb_function_alive(struct vb_fabric *fabric, uint64_t owner)
{
	return vb_registry_alive(fabric->registry, (uint32_t)(owner >> 32), (uint32_t)owner);
}

int vb_function_claim(struct vb_fabric *fabric, _Atomic uint64_t *owner)
{
	uint64_t self = vb_function_self(fabric), was = 0;

	/* The limit is for an owner that another process changes all the time. */
	for (int tries = 0; tries < 64; tries++) {
		if (atomic_compare_exchange_strong_explicit(owner, &was, self, memory_order_acq_rel,
							    memory_order_acquire))
			return 0;
		if (was == self || (was && vb_function_alive(fabric, was)))
			return -EBUSY;
	}
	return -EBUSY;
}

void vb_function_release(struct vb_fabric *fabric, _Atomic uint64_t *owner)
{
	uint64_t self = vb_function_self(fabric);

	atomic_compare_exchange_strong_explicit(owner, &self, 0, memory_order_acq_rel,
						memory_order_relaxed);
}

/* --- waking ----------------------------------------------------------------------------------- */

bool vb_function_wake(struct vb_fabric *fabric, uint64_t owner)
{
	uint32_t slot = (uint32_t)(owner >> 32);
	struct vb_peer *peer;

	if (owner == vb_function_self(fabric)) {
		atomic_store_explicit(&fabric->segment->functions, 1, memory_order_seq_cst);
		vb_fabric_kick(fabric);
		return true;
	}
	if (!owner || slot >= VB_SLOTS)
		return true;
	peer = vb_peer_find(fabric, slot);
	if (!peer)
		return !vb_function_alive(fabric, owner);
	if (peer->generation != (uint32_t)owner)
		return true;
	/* After the bits that it is to find; vb_peer_wake() has the barrier before its look. */
	atomic_store_explicit(&peer->segment->functions, 1, memory_order_release);
	vb_peer_wake(peer);
	return true;
}

bool vb_function_was_told(struct vb_fabric *fabric)
{
	/* Pairs with vb_function_wake(): the bits are seen. */
	return vb_function_is_told(fabric) &&
	       atomic_exchange_explicit(&fabric->segment->functions, 0, memory_order_seq_cst);
}
