// SPDX-License-Identifier: MIT
/*
 * Owns direct access to peers' memory: pin, check, loads and stores or process_vm_writev or
 * process_vm_readv, unpin.
 *
 * The check is the responder's, made here against what the target shows in its segment (segment.h
 * has the protocol).
 *
 * Memory that the target shares is reached in our own address space (reach.h), the rest by the
 * kernel; a range may be of both kinds, and is then moved piece by piece, in order. A word can be
 * changed atomically only where it is shared.
 *
 * The kernel is told the target's background thread, not its pid. A process that executes another
 * program keeps the pid and loses the thread, before it has the new program's memory. So a copy
 * finds the memory of the program that registered it, or nothing, whenever that happens.
 */
#include "fabric/direct.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/env.h"
#include "host/fault.h"
#include "base/log.h"
#include "fabric/peer.h"
#include "fabric/segment.h"

/* Find a free pin of ours in the peer's segment; threads of this process share the eight. */
static _Atomic uint64_t *pin_take(struct vb_peer *peer, uint64_t value)
{
	for (unsigned int i = 0; i < VB_SEG_PINS; i++) {
		_Atomic uint64_t *pin = &peer->segment->pins[peer->self->slot][i];
		uint64_t none = 0;

		/*
		 * seq_cst: the pin must be seen before the entries are read; pairs with
		 * wait_unpinned().
		 */
		if (!atomic_load_explicit(pin, memory_order_relaxed) &&
		    atomic_compare_exchange_strong_explicit(pin, &none, value, memory_order_seq_cst,
							    memory_order_seq_cst))
			return pin;
	}
	return NULL;
}

/*
 * What is to be moved: local pieces, and the bytes behind a key of the peer, for which these rights
 * are needed.
 */
struct access {
	const struct iovec *iov;
	uint32_t iov_cnt;
	bool write;
	unsigned int need; /* of both QP and key */
	uint64_t va;
	uint32_t rkey, len;
	uint32_t generation; /* found */
	const struct vb_direct_atomic *atomic;
	uint64_t *old;
	bool called;  /* the kernel did a part of it, */
	bool refused; /* or does not do it */
};

/* What a look-up of a peer's entry means that failed with err; -ENOENT gives `missing`. */
static __attribute__((noinline, cold)) enum vb_direct no_entry(const struct vb_peer *peer, int err,
							       enum vb_direct missing)
{
	if (err == -ENOENT)
		return missing;
	if (err == -ESRCH)
		return VB_DIRECT_SILENT;
	vb_info("memory of process %d is reached by packets only: its shared memory: %s",
		(int)peer->pid, strerror(-err));
	return VB_DIRECT_UNAVAILABLE;
}

static enum vb_direct direct_check(struct vb_peer *peer, uint8_t transport, uint32_t sqpn,
				   uint32_t dqpn, struct access *a, uint64_t *remote)
{
	struct vb_seg_qp *qp;
	struct vb_seg_mr *mr;
	int ret;

	ret = vb_view_qp(&peer->view, dqpn & VB_QPN_INDEX_MASK, &qp);
	if (__builtin_expect(ret, 0))
		return no_entry(peer, ret, VB_DIRECT_SILENT);
	if (!atomic_load_explicit(&qp->ready, memory_order_acquire) || qp->remote_qpn != sqpn ||
	    qp->transport != transport)
		return VB_DIRECT_SILENT;
	if ((qp->access & a->need) != a->need)
		return VB_DIRECT_INVALID;
	if (!a->len)
		return VB_DIRECT_OK; /* IBTA 9.7.5.2: an empty message needs no valid key */
	ret = vb_view_mr(&peer->view, a->rkey >> 8, &mr);
	if (__builtin_expect(ret, 0))
		return no_entry(peer, ret, VB_DIRECT_ACCESS);
	if (!a->rkey || atomic_load_explicit(&mr->key, memory_order_acquire) != a->rkey)
		return VB_DIRECT_ACCESS;
	if ((mr->access & a->need) != a->need || mr->pdn != qp->pdn || a->va < mr->iova ||
	    a->len > mr->length || a->va - mr->iova > mr->length - a->len)
		return VB_DIRECT_ACCESS;
	*remote = mr->addr + (a->va - mr->iova);
	a->generation = mr->generation;
	return VB_DIRECT_OK;
}

/* Whether all of it can be read. One byte of every page is enough to tell. */
static bool readable(pid_t thread, uint64_t addr, uint64_t len)
{
	uint64_t end = addr + len;

	for (; addr < end; addr = (addr | 4095) + 1) {
		char byte;
		struct iovec to = { &byte, 1 }, from = { (void *)(uintptr_t)addr, 1 };

		if (process_vm_readv(thread, &to, 1, &from, 1, 0) != 1)
			return false;
	}
	return true;
}

/*
 * After a failed copy: the side that is read from has the fault, or else the one that is written
 * to.
 */
static bool local_fault(struct vb_peer *peer, const struct access *a, uint64_t remote)
{
	if (!a->write)
		return readable(peer->thread, remote, a->len);
	for (uint32_t i = 0; i < a->iov_cnt; i++)
		if (!readable(getpid(), (uintptr_t)a->iov[i].iov_base, a->iov[i].iov_len))
			return true;
	return false;
}

static enum vb_direct direct_call_kernel(struct vb_peer *peer, const struct access *a,
					 uint64_t remote)
{
	struct iovec local[VB_DIRECT_MAX_IOV], far;
	uint64_t done = 0;
	uint32_t first = 0, cnt = a->iov_cnt;

	memcpy(local, a->iov, cnt * sizeof(*a->iov));
	while (done < a->len) {
		ssize_t n;

		far = (struct iovec){ (void *)(uintptr_t)(remote + done), a->len - done };
		n = a->write ? process_vm_writev(peer->thread, &local[first], cnt - first, &far, 1,
						 0)
			     : process_vm_readv(peer->thread, &local[first], cnt - first, &far, 1,
						0);
		if (n < 0 && errno == EFAULT)
			return local_fault(peer, a, remote) ? VB_DIRECT_LOCAL_FAULT
							    : VB_DIRECT_ACCESS;
		if (n < 0 && errno == ESRCH) {
			/* Ask soon whether it is gone. */
			atomic_store_explicit(&peer->checked, 0, memory_order_relaxed);
			return VB_DIRECT_SILENT;
		}
		if (n < 0)
			return done ? VB_DIRECT_ACCESS : VB_DIRECT_UNAVAILABLE;
		/*
		 * One call moves at most 2 GiB less a page, and stops at a page that is not there:
		 * go on behind it.
		 */
		done += (uint64_t)n;
		while (first < cnt && (size_t)n >= local[first].iov_len)
			n -= (ssize_t)local[first++].iov_len;
		if (first < cnt) {
			local[first].iov_base = (char *)local[first].iov_base + n;
			local[first].iov_len -= (size_t)n;
		}
	}
	return VB_DIRECT_OK;
}

/* --- loads and stores -------------------------------------------------------------------------- */

/*
 * Bytes that we store ourselves. Whoever waits for the last byte of a message finds the others
 * there, so the last ones go after the rest; a copy of more than a word may have any order.
 */
static int direct_store(char *to, const char *from, size_t n, bool last)
{
	size_t tail = last && n > 8 ? 8 : 0;

	if (tail) {
		if (vb_fault_copy(to, from, n - tail))
			return -EFAULT;
		/* Pairs with nothing of ours: the program polls its memory. */
		atomic_thread_fence(memory_order_release);
	}
	return vb_fault_copy(to + (tail ? n - tail : 0), from + (tail ? n - tail : 0),
			     tail ? tail : n);
}

/* Where we are in the local pieces. */
struct cursor {
	const struct iovec *iov;
	size_t offset;
};

static enum vb_direct load_store(const struct access *a, struct cursor *at, char *remote,
				 uint64_t len, bool last)
{
	while (len) {
		size_t n = at->iov->iov_len - at->offset;
		char *local = (char *)at->iov->iov_base + at->offset;

		n = n < len ? n : len;
		if (a->write ? direct_store(remote, local, n, last && n == len)
			     : vb_fault_copy(local, remote, n))
			return vb_fault_readable(a->write ? local : remote, n) == a->write
				       ? VB_DIRECT_ACCESS
				       : VB_DIRECT_LOCAL_FAULT;
		remote += n;
		len -= n;
		at->offset += n;
		if (at->offset == at->iov->iov_len) {
			at->iov++;
			at->offset = 0;
		}
	}
	return VB_DIRECT_OK;
}

/* A part that is not shared. */
static __attribute__((noinline)) enum vb_direct
copy_part(struct vb_peer *peer, struct access *a, struct cursor *at, uint64_t remote, uint64_t len)
{
	struct iovec part[VB_DIRECT_MAX_IOV];
	struct access rest = *a;
	enum vb_direct ret;
	uint32_t cnt = 0;

	a->called = true;
	if (atomic_load_explicit(&peer->no_direct, memory_order_relaxed))
		return VB_DIRECT_UNAVAILABLE;
	if (len == a->len) {
		ret = direct_call_kernel(peer, a, remote);
		a->refused = ret == VB_DIRECT_UNAVAILABLE;
		return ret;
	}
	rest.len = (uint32_t)len;
	for (; len; cnt++) {
		size_t n = at->iov->iov_len - at->offset;

		n = n < len ? n : len;
		part[cnt] = (struct iovec){ (char *)at->iov->iov_base + at->offset, n };
		len -= n;
		at->offset += n;
		if (at->offset == at->iov->iov_len) {
			at->iov++;
			at->offset = 0;
		}
	}
	rest.iov = part;
	rest.iov_cnt = cnt;
	ret = direct_call_kernel(peer, &rest, remote);
	a->refused = ret == VB_DIRECT_UNAVAILABLE;
	return ret;
}

static enum vb_direct copy(struct vb_peer *peer, struct access *a, uint64_t remote)
{
	struct cursor at = { a->iov, 0 };
	enum vb_direct ret = VB_DIRECT_OK;

	for (uint64_t done = 0, n; done < a->len && ret == VB_DIRECT_OK; done += n) {
		char *there = vb_reach_at(peer, remote + done, a->len - done, &n);

		/* To read it is no risk, whoever has the page meanwhile: host/shared/shared.h. */
		bool may_call = there != VB_REACH_NOT || !a->write;

		there = there == VB_REACH_NOT ? NULL : there;
		ret = there      ? load_store(a, &at, there, n, done + n == a->len)
		      : may_call ? copy_part(peer, a, &at, remote + done, n)
				 : VB_DIRECT_UNAVAILABLE;
	}
	return ret;
}

/* Only where it is shared; and the target itself says what is wrong with a word that is not aligned. */
static enum vb_direct direct_change(struct vb_peer *peer, const struct access *a, uint64_t remote)
{
	const struct vb_direct_atomic *atomic = a->atomic;
	uint64_t n;
	char *word;
	int ret;

	if (remote % a->len)
		return VB_DIRECT_ACCESS;
	word = vb_reach_at(peer, remote, a->len, &n);
	if (!word || word == VB_REACH_NOT)
		return VB_DIRECT_UNAVAILABLE;
	if (__builtin_expect(atomic->masked, 0))
		ret = vb_fault_masked(word, a->len,
				      &(struct vb_masked){ atomic->add, atomic->swap_add,
							   atomic->compare, atomic->swap_mask,
							   atomic->compare_mask },
				      a->old);
	else
		ret = atomic->add ? vb_fault_fetch_add((uint64_t *)word, atomic->swap_add, a->old)
				  : vb_fault_compare_swap((uint64_t *)word, atomic->compare,
							  atomic->swap_add, a->old);
	return ret ? VB_DIRECT_ACCESS : VB_DIRECT_OK;
}

/* --- both --------------------------------------------------------------------------------------- */

/*
 * VERBATIM_DIRECT=off: everything in packets, as where the kernel refuses. For tests, and to
 * compare.
 */
static bool direct_switched_off(void)
{
	static _Atomic int off = -1;

	int is = atomic_load_explicit(&off, memory_order_relaxed);

	if (is < 0) {
		const char *value = vb_getenv("VERBATIM_DIRECT");

		is = value && !strcmp(value, "off");
		atomic_store_explicit(&off, is, memory_order_relaxed);
	}
	return is;
}

bool vb_direct_works(const struct vb_path *path)
{
	return vb_path_can(path, VB_PATH_DIRECT) &&
	       (!atomic_load_explicit(&path->peer->no_direct, memory_order_relaxed) ||
		vb_reach_works(path->peer)) &&
	       !direct_switched_off();
}

static enum vb_direct direct_run(struct vb_path *path, uint32_t sqpn, uint32_t dqpn,
				 struct access *a)
{
	static _Thread_local uint8_t
		count; /* per thread, whichever host: tells uses of a key apart */
	struct vb_peer *peer = path->peer;
	_Atomic uint64_t *pin;
	enum vb_direct ret;
	uint64_t remote = 0;

	if (!vb_direct_works(path) || a->iov_cnt > VB_DIRECT_MAX_IOV)
		return VB_DIRECT_UNAVAILABLE;
	if (!vb_peer_known_alive(peer))
		return VB_DIRECT_SILENT;
	pin = pin_take(peer, vb_pin(peer->self->generation, count++, dqpn & VB_QPN_INDEX_MASK,
				    a->rkey >> 8));
	if (!pin)
		return VB_DIRECT_UNAVAILABLE;
	ret = direct_check(peer, path->transport, sqpn, dqpn, a, &remote);
	a->refused = ret == VB_DIRECT_UNAVAILABLE;
	if (ret == VB_DIRECT_OK && a->len)
		ret = a->atomic ? direct_change(peer, a, remote) : copy(peer, a, remote);
	atomic_store_explicit(pin, 0, memory_order_release);
	/* It ended meanwhile: what was copied last, the program has not seen. */
	if (__builtin_expect(vb_segment_has_ended(peer->segment), 0))
		return VB_DIRECT_SILENT;
	if (ret == VB_DIRECT_UNAVAILABLE && a->refused)
		atomic_store_explicit(&peer->no_direct, true, memory_order_relaxed);
	return ret;
}

enum vb_direct vb_direct_copy(struct vb_path *path, uint32_t sqpn, uint32_t dqpn, bool write,
			      const struct iovec *iov, uint32_t iov_cnt, uint64_t va, uint32_t rkey,
			      uint32_t len, struct vb_direct_done *done)
{
	struct access a = { .iov = iov,
			    .iov_cnt = iov_cnt,
			    .write = write,
			    .need = write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ,
			    .va = va,
			    .rkey = rkey,
			    .len = len };
	enum vb_direct ret = direct_run(path, sqpn, dqpn, &a);

	*done = (struct vb_direct_done){ a.generation, !a.called };
	return ret;
}

enum vb_direct vb_direct_change(struct vb_path *path, uint32_t sqpn, uint32_t dqpn,
				const struct vb_direct_atomic *atomic, uint64_t va, uint32_t rkey,
				uint64_t *old)
{
	struct access a = { .need = IBV_ACCESS_REMOTE_ATOMIC,
			    .va = va,
			    .rkey = rkey,
			    .len = atomic->masked ? atomic->size : 8,
			    .atomic = atomic,
			    .old = old };

	return vb_reach_works(path->peer) ? direct_run(path, sqpn, dqpn, &a)
					  : VB_DIRECT_UNAVAILABLE;
}

enum vb_direct vb_direct_pull(struct vb_path *path, uint32_t sqpn, uint32_t dqpn,
			      const struct iovec *iov, uint32_t iov_cnt,
			      const struct vb_source *source, uint32_t len)
{
	struct access a = {
		.iov = iov, .iov_cnt = iov_cnt, .va = source->addr, .rkey = source->lkey, .len = len
	};

	return direct_run(path, sqpn, dqpn, &a);
}

enum vb_direct vb_direct_move(struct vb_peer *peer, bool write, const struct iovec *iov,
			      uint32_t iov_cnt, uint64_t remote, uint32_t len)
{
	struct access a = { .iov = iov, .iov_cnt = iov_cnt, .write = write, .len = len };
	enum vb_direct ret = copy(peer, &a, remote);

	if (ret == VB_DIRECT_UNAVAILABLE && a.refused)
		atomic_store_explicit(&peer->no_direct, true, memory_order_relaxed);
	return ret;
}
