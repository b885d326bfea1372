// SPDX-License-Identifier: MIT
/*
 * Owns direct access to peers' memory: pin, check, process_vm_writev or process_vm_readv, unpin.
 *
 * The check is the responder's, made here against what the target shows in its segment (segment.h has the protocol).
 */
#include "fabric/direct.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fabric/peer.h"
#include "fabric/segment.h"

/* Find a free pin of ours in the peer's segment; threads of this process share the eight. */
static _Atomic uint64_t *pin_take(struct vb_peer *peer, uint64_t value)
{
	for (unsigned int i = 0; i < VB_SEG_PINS; i++) {
		_Atomic uint64_t *pin = &peer->segment->pins[vb_segment_self->slot][i];
		uint64_t none = 0;

		/* seq_cst: the pin must be seen before the entries are read; pairs with wait_unpinned(). */
		if (!atomic_load_explicit(pin, memory_order_relaxed) &&
		    atomic_compare_exchange_strong(pin, &none, value))
			return pin;
	}
	return NULL;
}

static enum vb_direct check(struct vb_peer *peer, uint32_t sqpn, uint32_t dqpn, bool write,
			    uint64_t va, uint32_t rkey, uint32_t len, uint64_t *remote)
{
	struct vb_seg_qp *qp = vb_segment_qp(peer->segment, dqpn & VB_QPN_INDEX_MASK, false);
	unsigned int need = write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
	struct vb_seg_mr *mr;

	if (!qp || !atomic_load_explicit(&qp->ready, memory_order_acquire) ||
	    qp->remote_qpn != sqpn)
		return VB_DIRECT_SILENT;
	if (!(qp->access & need))
		return VB_DIRECT_INVALID;
	if (!len)
		return VB_DIRECT_OK; /* IBTA 9.7.5.2: an empty message needs no valid key */
	mr = vb_segment_mr(peer->segment, rkey >> 8, false);
	if (!mr || !rkey || atomic_load_explicit(&mr->key, memory_order_acquire) != rkey)
		return VB_DIRECT_ACCESS;
	if (!(mr->access & need) || mr->pdn != qp->pdn || va < mr->iova || len > mr->length ||
	    va - mr->iova > mr->length - len)
		return VB_DIRECT_ACCESS;
	*remote = mr->addr + (va - mr->iova);
	return VB_DIRECT_OK;
}

/* After a failed copy: was it our side? One byte of every page is enough to tell. */
static bool local_fault(const struct iovec *iov, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++) {
		const char *p = iov[i].iov_base, *end = p + iov[i].iov_len;

		for (; p < end; p = (const char *)(((uintptr_t)p | 4095) + 1)) {
			char byte;
			struct iovec to = { &byte, 1 }, from = { (void *)p, 1 };

			if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != 1)
				return true;
		}
	}
	return false;
}

static enum vb_direct copy(struct vb_peer *peer, bool write, const struct iovec *iov,
			   uint32_t iov_cnt, uint64_t remote, uint32_t len)
{
	struct iovec local[VB_DIRECT_MAX_IOV], far;
	uint64_t done = 0;
	uint32_t first = 0;

	memcpy(local, iov, iov_cnt * sizeof(*iov));
	while (done < len) {
		ssize_t n;

		far = (struct iovec){ (void *)(uintptr_t)(remote + done), len - done };
		n = write ? process_vm_writev(peer->pid, &local[first], iov_cnt - first, &far, 1, 0)
			  : process_vm_readv(peer->pid, &local[first], iov_cnt - first, &far, 1, 0);
		if (n < 0 && errno == EFAULT)
			return local_fault(iov, iov_cnt) ? VB_DIRECT_LOCAL_FAULT : VB_DIRECT_ACCESS;
		if (n < 0 && errno == ESRCH)
			return VB_DIRECT_SILENT;
		if (n < 0)
			return done ? VB_DIRECT_ACCESS : VB_DIRECT_UNAVAILABLE;
		/* One call moves at most 2 GiB less a page, and stops at a page that is not there: go on behind it. */
		done += (uint64_t)n;
		while (first < iov_cnt && (size_t)n >= local[first].iov_len)
			n -= (ssize_t)local[first++].iov_len;
		if (first < iov_cnt) {
			local[first].iov_base = (char *)local[first].iov_base + n;
			local[first].iov_len -= (size_t)n;
		}
	}
	return VB_DIRECT_OK;
}

/* VERBATIM_DIRECT=off: everything in packets, as where the kernel refuses. For tests, and to compare. */
static bool switched_off(void)
{
	static _Atomic int off = -1;

	if (off < 0) {
		const char *value = getenv("VERBATIM_DIRECT");

		off = value && !strcmp(value, "off");
	}
	return off;
}

enum vb_direct vb_direct_copy(struct vb_path *path, uint32_t sqpn, uint32_t dqpn, bool write,
			      const struct iovec *iov, uint32_t iov_cnt, uint64_t va, uint32_t rkey,
			      uint32_t len)
{
	struct vb_peer *peer = path->peer;
	_Atomic uint64_t *pin;
	enum vb_direct ret;
	uint64_t remote = 0;

	if (atomic_load_explicit(&peer->no_direct, memory_order_relaxed) ||
	    iov_cnt > VB_DIRECT_MAX_IOV || switched_off())
		return VB_DIRECT_UNAVAILABLE;
	if (!vb_peer_known_alive(peer))
		return VB_DIRECT_SILENT;
	pin = pin_take(peer,
		       vb_pin(vb_segment_self->generation, dqpn & VB_QPN_INDEX_MASK, rkey >> 8));
	if (!pin)
		return VB_DIRECT_UNAVAILABLE;
	ret = check(peer, sqpn, dqpn, write, va, rkey, len, &remote);
	if (ret == VB_DIRECT_OK && len)
		ret = copy(peer, write, iov, iov_cnt, remote, len);
	atomic_store_explicit(pin, 0, memory_order_release);
	if (ret == VB_DIRECT_UNAVAILABLE)
		atomic_store_explicit(&peer->no_direct, true, memory_order_relaxed);
	return ret;
}
