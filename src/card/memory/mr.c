// SPDX-License-Identifier: MIT
/*
 * Owns memory registration. The table of keys is the one in the process's segment, so that peers on
 * this host check the same entries as our own queues do.
 *
 *	key = index << 8 | variant      index -> struct vb_seg_mr      variant: changes when the index is used again
 */
#include "card/memory/mr.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/rcu.h"
#include "card/device.h"
#include "card/fault/fault.h"
#include "card/memory/indirect.h"
#include "card/memory/keys.h"
#include "host/fault.h"
#include "host/shared/shared.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

enum {
	ACCESS_KNOWN = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		       IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB,
};

static int mr_check_access(unsigned int access)
{
	access &= ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE; /* hints, free to be ignored */
	if (access & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_MW_BIND))
		return vb_refuse_unsupported("IBV_ACCESS_ON_DEMAND and IBV_ACCESS_MW_BIND");
	/*
	 * That remote write needs local write is a rule of verbs (IBTA 10.6.3.1), which libibverbs
	 * checks.
	 */
	if (access & ~(unsigned int)ACCESS_KNOWN)
		return vb_refuse_bits("access", access & ~(unsigned int)ACCESS_KNOWN);
	return 0;
}

static bool populate(void *addr, size_t length, int advice)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = (uintptr_t)addr & ~(page - 1);
	uintptr_t end = ((uintptr_t)addr + length + page - 1) & ~(page - 1);

	return !madvise((void *)first, end - first, advice);
}

/*
 * Hardware pins the pages, so memory that is not there, or not writable where it must be, is
 * refused at once. Filling in the page tables finds that out without changing a byte, and spares
 * the first message the page faults. Mappings of devices cannot be filled in: those are read, and
 * so is everything on kernels before 5.14.
 */
int vb_mr_check_memory(void *addr, size_t length, unsigned int access)
{
	bool write = access &
		     (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);

	if ((uintptr_t)addr + length < (uintptr_t)addr)
		return vb_refuse_wraps(addr, length);
	if (!length || populate(addr, length, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ))
		return 0;
	if (errno == ENOMEM || errno == EFAULT ||
	    (write && populate(addr, length, MADV_POPULATE_READ)))
		return vb_refuse_unmapped(addr, length, write ? "writable" : "readable");
	return vb_fault_readable(addr, length) ? 0 : vb_refuse_unmapped(addr, length, "readable");
}

static void mr_publish(struct vb_seg_mr *entry, uint32_t key, uint32_t pdn, void *addr,
		       size_t length, uint64_t iova, unsigned int access)
{
	entry->access = access;
	entry->pdn = pdn;
	entry->addr = (uintptr_t)addr;
	entry->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
	entry->length = length;
	/* Relaxed: vb_mr_generation() also asks for keys that were retracted. */
	__atomic_store_n(&entry->generation, entry->generation + 1, __ATOMIC_RELAXED);
	atomic_store_explicit(&entry->key, key, memory_order_release);
}

static struct vb_mr_info info_of(const struct vb_seg_mr *entry)
{
	return (struct vb_mr_info){ .addr = (void *)(uintptr_t)entry->addr,
				    .iova = entry->iova,
				    .length = entry->length,
				    .access = entry->access };
}

/* --- watches: few, and only looked at when keys come and go ----------------------------------- */

static void unlink_watch(struct vb_card *card, struct vb_mr_watch *watch)
{
	struct vb_mr_watch **link = &card->mr.first;

	while (*link != watch)
		link = &(*link)->next;
	*link = watch->next;
}

/* Call one of the two functions, without the lock: gone() where info is NULL. */
static void mr_tell(struct vb_card *card, struct vb_mr_watch *watch, const struct vb_mr_info *info)
{
	watch->calling = true;
	watch->changing = info;
	pthread_mutex_unlock(&card->mr.lock);
	if (info)
		watch->changed(watch, info);
	else
		watch->gone(watch);
	pthread_mutex_lock(&card->mr.lock);
	if (!info) {
		unlink_watch(card, watch);
		watch->key = 0;
	}
	watch->calling = watch->changing = false;
	pthread_cond_broadcast(&card->mr.called);
}

/* The key is dead. One that is being told of a change is told this after it. */
static void tell_gone(struct vb_card *card, uint32_t key)
{
	VB_NO_CANCEL;
	struct vb_mr_watch *watch;

	pthread_mutex_lock(&card->mr.lock);
	for (;;) {
		watch = card->mr.first;
		while (watch && (watch->key != key || (watch->calling && !watch->changing)))
			watch = watch->next;
		if (!watch)
			break;
		if (watch->changing)
			pthread_cond_wait(&card->mr.called, &card->mr.lock);
		else
			mr_tell(card, watch, NULL);
	}
	pthread_mutex_unlock(&card->mr.lock);
}

/* The key means something else: tell those that watch it. */
static void tell_changed(struct vb_card *card, uint32_t key, uint32_t pdn, uint32_t generation,
			 const struct vb_mr_info *info)
{
	struct vb_mr_watch *watch;

	pthread_mutex_lock(&card->mr.lock);
	for (;;) {
		watch = card->mr.first;
		while (watch &&
		       (watch->key != key || watch->calling || watch->generation == generation))
			watch = watch->next;
		if (!watch)
			break;
		watch->generation = generation;
		mr_tell(card, watch, watch->changed && watch->pdn == pdn ? info : NULL);
	}
	pthread_mutex_unlock(&card->mr.lock);
}

/* No thread of ours and no peer uses the key when this returns. */
static void retract(struct vb_card *card, struct vb_seg_mr *entry, uint32_t key)
{
	atomic_store_explicit(&entry->key, 0, memory_order_seq_cst);
	vb_read_wait();
	vb_segment_wait_mr(card->fabric, key >> 8);
}

/* Two keys mean something else in WQEs: the end of a list, and a block of pieces that repeats. */
static uint32_t make_key(struct vb_card *card, uint32_t index)
{
	enum { NO_KEY = 0x100, REPEATED = 0x400 };
	uint32_t key;

	do {
		key = index << 8 |
		      atomic_fetch_add_explicit(&card->mr.next_variant, 1, memory_order_relaxed);
	} while (key == NO_KEY || key == REPEATED);
	return key;
}

/* Whether peers may have to go through the kernel is to be known before they can begin. */
static void note_memory(struct vb_mr *mr, const void *addr, size_t length)
{
	mr->is_private = !vb_shared_covers(addr, length);
	if (mr->is_private)
		vb_fabric_private_memory(vb_dev_card(mr->pd->dev)->fabric, 1);
}

static void forget_memory(struct vb_mr *mr)
{
	if (mr->is_private)
		vb_fabric_private_memory(vb_dev_card(mr->pd->dev)->fabric, -1);
	mr->is_private = false;
}

/* The key, the entry and the object of a new registration. */
static int make_mr(struct vb_pd *pd, struct vb_mr **out)
{
	struct vb_card *card = vb_dev_card(pd->dev);
	int64_t index = vb_ids_take(&card->numbers.mr, pd->dev->adapter->max_mr);
	struct vb_seg_mr *entry;
	struct vb_mr *mr;

	if (index < 0)
		return vb_refuse_limit("memory regions", pd->dev->adapter->max_mr);
	mr = calloc(1, sizeof(*mr));
	entry = vb_segment_mr(card->fabric, (uint32_t)index);
	if (!mr || !entry) {
		free(mr);
		vb_ids_give(&card->numbers.mr, (uint32_t)index);
		return vb_refuse_memory("the memory region");
	}
	*mr = (struct vb_mr){ .pd = pd, .key = make_key(card, (uint32_t)index), .entry = entry };
	*out = mr;
	return 0;
}

static void count_mr(struct vb_pd *pd)
{
	atomic_fetch_add_explicit(&pd->refs, 1, memory_order_release);
	atomic_fetch_add_explicit(&pd->dev->objects, 1, memory_order_release);
}

/* variant NULL: the card chooses it. */
static int mr_reg(struct vb_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access,
		  const uint8_t *variant, struct vb_mr **out)
{
	struct vb_mr *mr;
	int ret;

	if (vb_dev_stale(pd->dev))
		return vb_refuse_forked();
	ret = mr_check_access(access);
	if (!ret)
		ret = vb_mr_check_memory(addr, length, access);
	if (!ret)
		ret = vb_inject_create(pd->dev, VB_INJECT_MR);
	if (!ret)
		ret = vb_fault_arm(); /* in case the program has installed its own handlers meanwhile */
	if (!ret)
		ret = make_mr(pd, &mr);
	if (ret)
		return ret;
	if (variant)
		mr->key = (mr->key & ~0xffu) | *variant;
	note_memory(mr, addr, length);
	mr_publish(mr->entry, mr->key, pd->number, addr, length, iova, access);
	count_mr(pd);
	*out = mr;
	return 0;
}

int vb_mkey_create(struct vb_pd *pd, const struct vb_mkey_attr *attr, struct vb_mr **out)
{
	struct vb_card *card = vb_dev_card(pd->dev);
	struct vb_mr *mr;
	int ret;

	if (vb_dev_stale(pd->dev))
		return vb_refuse_forked();
	ret = vb_inject_create(pd->dev, VB_INJECT_MR);
	if (!ret)
		ret = vb_fault_arm();
	if (!ret)
		ret = make_mr(pd, &mr);
	if (ret)
		return ret;
	if (attr->has_variant)
		mr->key = (mr->key & ~0xffu) | attr->variant;
	mr->indirect = vb_indirect_new(attr, pd->number, mr->key);
	if (!mr->indirect) {
		vb_ids_give(&card->numbers.mr, mr->key >> 8);
		free(mr);
		return vb_refuse_memory("the key");
	}
	mr_publish(mr->entry, 0, pd->number, NULL, 0, 0, 0);
	/* Pairs with of_entry() in indirect.c. */
	atomic_store_explicit(&mr->entry->indirect, (uintptr_t)mr->indirect, memory_order_release);
	if (attr->count)
		atomic_store_explicit(&mr->entry->key, mr->key, memory_order_release);
	count_mr(pd);
	*out = mr;
	return 0;
}

int vb_mr_reg(struct vb_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access,
	      struct vb_mr **mr)
{
	return mr_reg(pd, addr, length, iova, access, NULL, mr);
}

int vb_mr_reg_variant(struct vb_pd *pd, void *addr, size_t length, uint64_t iova,
		      unsigned int access, uint8_t variant, struct vb_mr **mr)
{
	return mr_reg(pd, addr, length, iova, access, &variant, mr);
}

int vb_mr_rereg(struct vb_mr *mr, int flags, struct vb_pd *pd, void *addr, size_t length,
		uint64_t iova, unsigned int access)
{
	struct vb_seg_mr *entry = mr->entry;
	struct vb_pd *new_pd = flags & IBV_REREG_MR_CHANGE_PD ? pd : mr->pd;
	struct vb_mr_info info;
	int ret;

	if (vb_dev_stale(mr->pd->dev))
		return vb_refuse_forked();
	if (new_pd->dev != mr->pd->dev)
		return vb_refuse_other_context("pd");
	if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
		access = entry->access;
	if (!(flags & IBV_REREG_MR_CHANGE_TRANSLATION)) {
		addr = (void *)(uintptr_t)entry->addr;
		length = entry->length;
		iova = entry->iova;
	}
	ret = mr_check_access(access);
	if (!ret)
		ret = vb_mr_check_memory(addr, length, access);
	if (ret)
		return ret;
	retract(vb_dev_card(mr->pd->dev), entry, mr->key);
	forget_memory(mr);
	note_memory(mr, addr, length);
	mr_publish(entry, mr->key, new_pd->number, addr, length, iova, access);
	info = info_of(entry);
	tell_changed(vb_dev_card(mr->pd->dev), mr->key, new_pd->number, entry->generation, &info);
	atomic_fetch_add_explicit(&new_pd->refs, 1, memory_order_release);
	atomic_fetch_sub_explicit(&mr->pd->refs, 1, memory_order_release);
	mr->pd = new_pd;
	return 0;
}

int vb_mr_dereg(struct vb_mr *mr)
{
	struct vb_card *card = vb_dev_card(mr->pd->dev);

	if (!vb_dev_stale(mr->pd->dev)) {
		if (mr->indirect) {
			/* No work request brings it back to life. */
			atomic_store_explicit(&mr->entry->indirect, 0, memory_order_relaxed);
			vb_read_wait();
		}
		retract(vb_dev_card(mr->pd->dev), mr->entry, mr->key);
		tell_gone(card, mr->key);
		forget_memory(mr);
		vb_ids_give(&card->numbers.mr, mr->key >> 8);
	}
	atomic_fetch_sub_explicit(&mr->pd->refs, 1, memory_order_release);
	atomic_fetch_sub_explicit(&mr->pd->dev->objects, 1, memory_order_release);
	free(mr->indirect);
	free(mr);
	return 0;
}

uint32_t vb_mr_key(const struct vb_mr *mr)
{
	return mr->key;
}

static inline struct vb_seg_mr *own_entry(struct vb_card *card, uint32_t key)
{
	return vb_segment_find_mr(card->fabric, key >> 8);
}

void *vb_mr_translate(struct vb_card *card, uint32_t key, uint32_t pdn, uint64_t addr, uint64_t len,
		      unsigned int access)
{
	struct vb_seg_mr *entry = own_entry(card, key);

	/* Pairs with mr_publish(). */
	if (!entry || !key || atomic_load_explicit(&entry->key, memory_order_acquire) != key)
		return NULL;
	if ((entry->access & access) != access || entry->pdn != pdn || addr < entry->iova ||
	    len > entry->length || addr - entry->iova > entry->length - len)
		return NULL;
	return (void *)(uintptr_t)(entry->addr + (addr - entry->iova));
}

const char *vb_mr_explain(struct vb_card *card, uint32_t key, uint32_t pdn, uint64_t addr,
			  uint64_t len, unsigned int access)
{
	struct vb_seg_mr *entry = own_entry(card, key);

	if (!entry || !key || atomic_load_explicit(&entry->key, memory_order_acquire) != key)
		return "does not exist";
	if (entry->pdn != pdn)
		return "belongs to another protection domain";
	if ((entry->access & access) != access)
		return "lacks the right that this needs";
	if (addr < entry->iova || len > entry->length || addr - entry->iova > entry->length - len)
		return "does not cover this range";
	return NULL;
}

uint32_t vb_mr_generation(struct vb_card *card, uint32_t key)
{
	const struct vb_seg_mr *entry = own_entry(card, key);

	/* Relaxed: a configuration of an indirect key changes it while others look. */
	return entry ? __atomic_load_n(&entry->generation, __ATOMIC_RELAXED) : 0;
}

bool vb_mr_is_live(struct vb_card *card, uint32_t key, uint32_t pdn)
{
	struct vb_seg_mr *entry = own_entry(card, key);

	/* Pairs with mr_publish(). */
	return entry && key && atomic_load_explicit(&entry->key, memory_order_acquire) == key &&
	       entry->pdn == pdn && (entry->access & IBV_ACCESS_REMOTE_WRITE);
}

void vb_mr_forked(struct vb_card *card)
{
	pthread_mutex_init(&card->mr.lock, NULL);
	pthread_cond_init(&card->mr.called, NULL);
	for (struct vb_mr_watch *watch = card->mr.first; watch; watch = watch->next)
		watch->calling = watch->changing = false; /* by a thread of the parent */
}

int vb_mr_watch(struct vb_pd *pd, uint32_t key, struct vb_mr_watch *watch, struct vb_mr_info *info)
{
	struct vb_card *card = vb_dev_card(pd->dev);
	struct vb_seg_mr *entry = own_entry(card, key);
	int ret = -EINVAL;

	watch->card = card;
	/* In a read section: retract() waits for it to end before it looks for watches. */
	vb_read_lock();
	pthread_mutex_lock(&card->mr.lock);
	/*
	 * The key first, pairs with mr_publish(): what is behind a live key stays until this read
	 * section ends.
	 */
	if (entry && key && atomic_load_explicit(&entry->key, memory_order_acquire) == key &&
	    entry->pdn == pd->number &&
	    !atomic_load_explicit(&entry->indirect, memory_order_relaxed)) {
		*info = info_of(entry);
		watch->key = key;
		watch->pdn = entry->pdn;
		watch->generation = entry->generation;
		watch->calling = watch->changing = false;
		watch->next = card->mr.first;
		card->mr.first = watch;
		ret = 0;
	}
	pthread_mutex_unlock(&card->mr.lock);
	vb_read_unlock();
	return ret;
}

bool vb_mr_unwatch(struct vb_mr_watch *watch)
{
	VB_NO_CANCEL; /* waiting for a condition is a cancellation point */
	struct vb_card *card = watch->card;
	bool there;

	if (!card) /* it watched nothing yet */
		return false;
	pthread_mutex_lock(&card->mr.lock);
	while (watch->calling)
		pthread_cond_wait(&card->mr.called, &card->mr.lock);
	there = watch->key;
	if (there) {
		unlink_watch(card, watch);
		watch->key = 0;
	}
	pthread_mutex_unlock(&card->mr.lock);
	return there;
}

int vb_mr_invalidate(struct vb_card *card, uint32_t key, uint32_t pdn, bool remote)
{
	struct vb_seg_mr *entry = own_entry(card, key);
	struct vb_indirect *indirect;

	/* The key before what it stands for; pairs with mr_publish(). */
	if (!entry || !key || atomic_load_explicit(&entry->key, memory_order_acquire) != key ||
	    entry->pdn != pdn)
		return -EINVAL;
	indirect = (struct vb_indirect *)(uintptr_t)atomic_load_explicit(&entry->indirect,
									 memory_order_acquire);
	if (remote && indirect && !vb_indirect_is_remote(indirect))
		return -EINVAL;
	if (indirect)
		return vb_indirect_invalidate(indirect, entry, key) ? 0 : -EINVAL;
	if (!atomic_compare_exchange_strong_explicit(&entry->key, &key, 0, memory_order_seq_cst,
						     memory_order_seq_cst))
		return -EINVAL;
	tell_gone(card, key);
	return 0;
}
