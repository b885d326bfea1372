// SPDX-License-Identifier: MIT
/*
 * Owns recoverable buffers: buffers of the device heap whose content goes to a buffer of the user
 * when they are freed, or with their process, also after a fatal error.
 *
 *	flexio_process.recoverables -> buffer -> buffer      device memory, whole blocks
 *	                                 `-- watch --> key    of the user's buffer, of the same length
 *
 * The key is watched from the allocation on: one that was deregistered meanwhile means nothing any
 * more, even if another region has got its number. Then the content is lost, with a line in the
 * log. process.recover_lock is held over the copy, so that nobody gets the memory before its
 * content is safe.
 */
#include "api/flexio/process.h"

#include <stdlib.h>

#include "api/ibverbs/accessors.h"
#include "card/memory/mr.h"
#include "host/fault.h"

#define BLOCK 4096U /* of device memory */
/* What is copied in one go: the end of the key waits for that. */
#define COPY_CHUNK (1U << 20)

struct recoverable {
	struct vb_mr_watch watch; /* first */
	struct vb_lock lock;      /* of what the card changes: */
	bool live;                /* the key is there */
	struct vb_mr_info info;
	unsigned int changes; /* of info, so far */

	uint64_t daddr, size;
	uint32_t mkey;
	struct recoverable *next; /* under process.recover_lock */
};

/* ---- the key ---- */

static void recoverable_key_gone(struct vb_mr_watch *watch)
{
	struct recoverable *r = (struct recoverable *)watch;

	vb_lock(&r->lock);
	r->live = false;
	vb_unlock(&r->lock);
}

static void recoverable_key_changed(struct vb_mr_watch *watch, const struct vb_mr_info *info)
{
	struct recoverable *r = (struct recoverable *)watch;

	vb_lock(&r->lock);
	r->info = *info;
	r->changes++;
	vb_unlock(&r->lock);
}

static bool recoverable_fits(const struct vb_mr_info *info, uint64_t size)
{
	return info->length == size && info->access & IBV_ACCESS_LOCAL_WRITE;
}

/* Watch the key, whose region must have this size. */
static flexio_status key_watch(struct flexio_process *process, struct recoverable *r)
{
	struct vb_mr_info info;

	r->watch = (struct vb_mr_watch){ .gone = recoverable_key_gone,
					 .changed = recoverable_key_changed };
	r->live = true;
	if (vb_mr_watch(vb_verbs_pd(process->pd), r->mkey, &r->watch, &info))
		return fail("process %s: no memory region of its protection domain has key 0x%x",
			    process->name, r->mkey);
	vb_lock(&r->lock);
	if (!r->changes)
		r->info = info; /* a change since then is newer */
	info = r->info;
	vb_unlock(&r->lock);
	if (recoverable_fits(&info, r->size))
		return FLEXIO_STATUS_SUCCESS;
	vb_mr_unwatch(&r->watch);
	if (info.length != r->size)
		return fail(
			"the region of key 0x%x has %llu bytes; the buffer has %llu, in blocks of %u",
			r->mkey, (unsigned long long)info.length, (unsigned long long)r->size,
			BLOCK);
	return fail("the region of key 0x%x was registered without IBV_ACCESS_LOCAL_WRITE",
		    r->mkey);
}

/* ---- the copy ---- */

/* Under recover_lock; false: the key has ended or changed, or memory is not there. */
static bool copy_out(struct flexio_process *process, struct recoverable *r)
{
	struct vb_dpa_view from = vb_dpa_mem_host(process->dpa, r->daddr, r->size, VB_DPA_READ);
	bool done = !vb_view_is_none(from);

	for (uint64_t at = 0; done && at < r->size; at += COPY_CHUNK) {
		size_t len = r->size - at < COPY_CHUNK ? r->size - at : COPY_CHUNK;

		vb_lock(&r->lock);
		done = r->live && recoverable_fits(&r->info, r->size) &&
		       !vb_view_read(vb_view_at(from, at), (char *)r->info.addr + at, len);
		vb_unlock(&r->lock);
	}
	return done;
}

/* It is in no list any more. */
static void dump(struct flexio_process *process, struct recoverable *r)
{
	if (!copy_out(process, r))
		log_warn(
			"process %s: the buffer at 0x%llx is lost: the region of key 0x%x is not there any more, or not as it was",
			process->name, (unsigned long long)r->daddr, r->mkey);
	vb_mr_unwatch(&r->watch);
	free(r);
}

bool vb_recoverable_free(struct flexio_process *process, uint64_t daddr)
{
	struct recoverable **link, *r;
	bool freed;

	pthread_mutex_lock(&process->recover_lock);
	for (link = &process->recoverables; *link && (*link)->daddr != daddr; link = &(*link)->next)
		;
	r = *link;
	if (r) {
		*link = r->next;
		dump(process, r);
	}
	freed = vb_device_free(process, daddr);
	pthread_mutex_unlock(&process->recover_lock);
	return freed;
}

void vb_recoverables_dump(struct flexio_process *process)
{
	struct recoverable *r;

	while ((r = process->recoverables)) {
		process->recoverables = r->next;
		dump(process, r);
	}
}

/* ---- allocation ---- */

static flexio_status recoverable_alloc(struct flexio_process *process, size_t size, uint32_t mkey,
				       flexio_uintptr_t *daddr)
{
	struct recoverable *r = calloc(1, sizeof(*r));

	if (!r)
		return fail("process %s: no memory for a recoverable buffer", process->name);
	r->size = (size + BLOCK - 1) & ~(uint64_t)(BLOCK - 1);
	r->mkey = mkey;
	if (key_watch(process, r) != FLEXIO_STATUS_SUCCESS) {
		free(r);
		return failed();
	}
	r->daddr = vb_device_alloc(process, r->size, BLOCK);
	if (!r->daddr) {
		fail("process %s: no room for %llu bytes on the device heap (dpa_heap of the configuration)",
		     process->name, (unsigned long long)r->size);
		vb_mr_unwatch(&r->watch);
		free(r);
		return failed();
	}
	*daddr = r->daddr;
	pthread_mutex_lock(&process->recover_lock);
	r->next = process->recoverables;
	process->recoverables = r;
	pthread_mutex_unlock(&process->recover_lock);
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_recoverable_buf_dev_alloc(struct flexio_process *process, size_t buff_bsize,
					       uint32_t mkey, flexio_uintptr_t *dest_daddr_p)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);

	API_CALL();
	if (!dest_daddr_p)
		return fail("dest_daddr_p is NULL");
	*dest_daddr_p = 0;
	if (!pin)
		return bad_handle(process, "process");
	if (!buff_bsize || buff_bsize > SIZE_MAX - BLOCK)
		return fail("a buffer of %zu bytes cannot be had", buff_bsize);
	return recoverable_alloc(process, buff_bsize, mkey, dest_daddr_p);
}
