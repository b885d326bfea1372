// SPDX-License-Identifier: MIT
/*
 * Owns indirect memory keys: their layouts, and access through them.
 *
 *	entry of the key table            struct vb_indirect
 *	key, or 0 while it is free  --->  start, length, rights
 *	no rights, no length              layout: a list of pieces, or a block of pieces that repeats
 *
 *	list       | piece 0 | piece 1 | piece 2 |            each of another key, anywhere
 *	repeated   | a0 | b0 | a1 | b1 | a2 | b2 |            a1 lies a.stride bytes behind a0
 *
 * The entry has no rights, so that peers that look at it leave the access to this process
 * (fabric/direct.c), and vb_mr_translate() finds nothing.
 *
 * A layout is read and replaced under the key's lock, a leaf. The entry's generation tells messages
 * of several packets that it is another one.
 *
 * A piece may be of an indirect key itself, to a depth of VB_MAX_INDIRECTION: keys that are made of
 * one another end there. One key's lock is never held while another's is taken; a layout that is
 * replaced meanwhile counts from the next piece on.
 */
#include "card/memory/indirect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "card/memory/keys.h"
#include "card/memory/mr.h"
#include "card/queue/objects.h"
#include "host/fault.h"

struct vb_indirect {
	struct vb_lock lock; /* of what follows */
	uint32_t pdn;
	uint8_t flags; /* enum vb_mkey_flags */
	uint8_t tag;   /* low byte of the key, also while it is free */
	unsigned int access;
	uint64_t start, length;
	struct vb_layout layout;
	struct vb_layout next; /* being built: a WQE that is wrong changes nothing */
	struct vb_piece pieces[];
};

/* --- keys ------------------------------------------------------------------------------------- */

static void lay_out(struct vb_indirect *in, const struct vb_mkey_attr *attr)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < attr->count; i++) {
		const struct vb_mkey_piece *piece = &attr->piece[i];

		end += piece->len;
		in->layout.piece[i] = (struct vb_piece){
			.addr = piece->addr, .key = piece->key, .len = piece->len, .end = end
		};
	}
	in->layout.count = attr->count;
	in->layout.bytes = end;
	in->layout.repeat = 1;
	in->start = attr->start;
	in->length = attr->length;
	in->access = attr->access;
}

struct vb_indirect *vb_indirect_new(const struct vb_mkey_attr *attr, uint32_t pdn, uint32_t key)
{
	struct vb_indirect *indirect = calloc(
		1, sizeof(*indirect) + 2 * (size_t)attr->max_entries * sizeof(struct vb_piece));

	if (!indirect)
		return NULL;
	indirect->pdn = pdn;
	indirect->flags = attr->flags;
	indirect->tag = (uint8_t)key;
	indirect->layout.max = indirect->next.max = attr->max_entries;
	indirect->layout.piece = indirect->pieces;
	indirect->next.piece = indirect->pieces + attr->max_entries;
	lay_out(indirect, attr);
	return indirect;
}

bool vb_indirect_invalidate(struct vb_indirect *indirect, struct vb_seg_mr *entry, uint32_t key)
{
	bool was;

	if (indirect->flags & VB_MKEY_FIXED)
		return false;
	vb_lock(&indirect->lock);
	was = atomic_compare_exchange_strong_explicit(&entry->key, &key, 0, memory_order_seq_cst,
						      memory_order_seq_cst);
	if (was) {
		indirect->access = 0;
		indirect->start = indirect->length = 0;
		indirect->layout.count = 0;
		indirect->layout.bytes = 0;
	}
	vb_unlock(&indirect->lock);
	return was;
}

bool vb_indirect_is_remote(const struct vb_indirect *indirect)
{
	return indirect->flags & VB_MKEY_REMOTE_INVALIDATE;
}

/* The entry, and what it stands for, by index; NULL: no indirect key. */
static struct vb_indirect *of_entry(struct vb_seg_mr *entry)
{
	return entry ? (struct vb_indirect *)(uintptr_t)atomic_load_explicit(&entry->indirect,
									     memory_order_acquire)
		     : NULL;
}

/* A key that can be used. */
static struct vb_indirect *indirect_find(struct vb_card *card, uint32_t key)
{
	struct vb_seg_mr *entry = vb_segment_find_mr(card->fabric, key >> 8);

	/* Pairs with vb_indirect_configure(). */
	if (!entry || !key || atomic_load_explicit(&entry->key, memory_order_acquire) != key)
		return NULL;
	return of_entry(entry);
}

/*
 * The same with its lock held; NULL: no such key. It is looked at again under the lock: who waited
 * there for a work request may have waited for one that gave the layout to another key.
 */
static struct vb_indirect *lock_key(struct vb_card *card, uint32_t key)
{
	struct vb_indirect *in = indirect_find(card, key);

	if (!in)
		return NULL;
	vb_lock(&in->lock);
	if (indirect_find(card, key) == in)
		return in;
	vb_unlock(&in->lock);
	return NULL;
}

bool vb_indirect_is(struct vb_card *card, uint32_t key)
{
	return indirect_find(card, key) != NULL;
}

/* --- access: the key's lock is held ----------------------------------------------------------- */

static uint64_t indirect_reach(const struct vb_indirect *in)
{
	uint64_t bytes = in->layout.bytes * in->layout.repeat;

	return bytes < in->length ? bytes : in->length;
}

static bool allows(const struct vb_indirect *in, uint32_t pdn, uint64_t addr, uint64_t len,
		   unsigned int access)
{
	return in->pdn == pdn && (in->access & access) == access && addr >= in->start &&
	       len <= indirect_reach(in) && addr - in->start <= indirect_reach(in) - len;
}

/* A part of a piece: addresses of another key. */
struct part {
	uint32_t key;
	uint64_t addr;
	size_t len;
};

/* What is behind byte `at` of the key, up to the end of its piece, len bytes at most. */
static struct part part_at(const struct vb_indirect *in, uint64_t at, size_t len)
{
	const struct vb_layout *layout = &in->layout;
	uint64_t block = at / layout->bytes, offset = at % layout->bytes, begin;
	const struct vb_piece *piece;
	uint32_t low = 0, high = layout->count - 1;

	while (low < high) {
		uint32_t mid = (low + high) / 2;

		if (offset < layout->piece[mid].end)
			high = mid;
		else
			low = mid + 1;
	}
	piece = &layout->piece[low];
	begin = low ? layout->piece[low - 1].end : 0;
	if (len > piece->end - offset)
		len = piece->end - offset;
	return (struct part){ .key = piece->key,
			      .addr = piece->addr + block * piece->stride + (offset - begin),
			      .len = len };
}

/* Its memory, where it is of a direct key that allows this; NULL: it is not. */
static char *part_memory(struct vb_card *card, const struct part *part, uint32_t pdn, bool write)
{
	return vb_mr_translate(card, part->key, pdn, part->addr, part->len,
			       write ? IBV_ACCESS_LOCAL_WRITE : 0);
}

/* --- access: no lock is held ------------------------------------------------------------------ */

/*
 * Copy up to the end, or to the first part that has no memory of its own: *rest is then that part.
 * 0 or -errno; what was done is taken off *addr, *buf and *len.
 */
static int move_direct(struct vb_card *card, uint32_t key, uint32_t pdn, uint64_t *addr, char **buf,
		       size_t *len, unsigned int access, bool write, struct part *rest)
{
	struct vb_indirect *in = lock_key(card, key);
	int ret = 0;

	rest->len = 0;
	if (!in)
		return -EACCES;
	if (!allows(in, pdn, *addr, *len, access))
		ret = -EACCES;
	while (!ret && *len) {
		struct part part = part_at(in, *addr - in->start, *len);
		char *memory = part_memory(card, &part, pdn, write);

		if (!memory) {
			*rest = part;
			break;
		}
		if (vb_fault_copy(write ? memory : *buf, write ? *buf : memory, part.len))
			ret = -EFAULT;
		*addr += part.len;
		*buf += part.len;
		*len -= part.len;
	}
	vb_unlock(&in->lock);
	return ret;
}

/* depth: how many keys may still follow one another. */
static int indirect_move(struct vb_card *card, uint32_t key, uint32_t pdn, uint64_t addr, char *buf,
			 size_t len, unsigned int access, bool write, unsigned int depth)
{
	do {
		struct part rest;
		int ret = move_direct(card, key, pdn, &addr, &buf, &len, access, write, &rest);

		if (!ret && rest.len)
			ret = depth ? indirect_move(card, rest.key, pdn, rest.addr, buf, rest.len,
						    write ? IBV_ACCESS_LOCAL_WRITE : 0, write,
						    depth - 1)
				    : -EACCES;
		if (ret)
			return ret;
		addr += rest.len;
		buf += rest.len;
		len -= rest.len;
	} while (len);
	return 0;
}

bool vb_indirect_allows(struct vb_card *card, uint32_t key, uint32_t pdn, uint64_t addr,
			uint64_t len, unsigned int access)
{
	struct vb_indirect *in = lock_key(card, key);
	bool ret;

	if (!in)
		return false;
	ret = allows(in, pdn, addr, len, access);
	vb_unlock(&in->lock);
	return ret;
}

int vb_indirect_read(struct vb_card *card, uint32_t key, uint32_t pdn, uint64_t addr, void *buf,
		     size_t len, unsigned int access)
{
	return indirect_move(card, key, pdn, addr, buf, len, access, false, VB_MAX_INDIRECTION - 1);
}

int vb_indirect_write(struct vb_card *card, uint32_t key, uint32_t pdn, uint64_t addr,
		      const void *buf, size_t len, unsigned int access)
{
	return indirect_move(card, key, pdn, addr, (char *)(uintptr_t)buf, len, access, true,
			     VB_MAX_INDIRECTION - 1);
}

void *vb_indirect_word(struct vb_card *card, uint32_t key, uint32_t pdn, uint64_t addr,
		       uint32_t size, unsigned int access)
{
	struct part part = { .key = key, .addr = addr, .len = size };

	for (unsigned int depth = 0; depth < VB_MAX_INDIRECTION; depth++) {
		struct vb_indirect *in = lock_key(card, part.key);
		void *word = NULL;

		if (!in)
			return NULL;
		if (allows(in, pdn, part.addr, part.len, access))
			part = part_at(in, part.addr - in->start, part.len);
		else
			part.len = 0;
		if (part.len == size)
			word = part_memory(card, &part, pdn, true);
		vb_unlock(&in->lock);
		if (word || part.len != size)
			return word;
		access = IBV_ACCESS_LOCAL_WRITE;
	}
	return NULL;
}

/* --- configuration ---------------------------------------------------------------------------- */

/* Where each piece of a new layout ends. False: it has no bytes, or more than a length can be. */
static bool measure(struct vb_layout *layout)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < layout->count; i++) {
		end += layout->piece[i].len;
		layout->piece[i].end = end;
	}
	layout->bytes = end;
	return !layout->count || (end && layout->repeat && end <= UINT64_MAX / layout->repeat);
}

/* Where it is wrong, nothing changes. */
static enum ibv_wc_status set_layout(struct vb_indirect *in, const struct vb_qp *qp,
				     const struct vb_wr *wr)
{
	const struct vb_umr *umr = &wr->umr;
	struct vb_layout old = in->layout;
	const void *list = NULL;
	int ret;

	if (umr->list_len) {
		list = vb_mr_translate(qp->card, umr->list_key, in->pdn, umr->list_addr,
				       umr->list_len, 0);
		if (!list)
			return IBV_WC_LOC_PROT_ERR;
	}
	in->next.count = 0;
	in->next.repeat = 1;
	ret = qp->codec->layout(wr, list, &in->next);
	if (ret == -EFAULT)
		return IBV_WC_LOC_PROT_ERR;
	if (ret || !measure(&in->next))
		return IBV_WC_MW_BIND_ERR;
	in->layout = in->next;
	in->next = old;
	return IBV_WC_SUCCESS;
}

static enum ibv_wc_status indirect_apply(struct vb_indirect *in, const struct vb_qp *qp,
					 const struct vb_wr *wr)
{
	const struct vb_umr *umr = &wr->umr;
	enum ibv_wc_status status = IBV_WC_SUCCESS;

	if (umr->set & VB_UMR_LAYOUT)
		status = set_layout(in, qp, wr);
	if (status != IBV_WC_SUCCESS)
		return status;
	in->access = (in->access & ~umr->access_mask) | umr->access;
	if (umr->set & VB_UMR_START)
		in->start = umr->start;
	if (umr->set & VB_UMR_LENGTH)
		in->length = umr->length;
	if (umr->set & VB_UMR_TAG)
		in->tag = umr->tag;
	return status;
}

/* A key is found by its index: the byte below it changes only where the key was made so. */
static bool may_configure(const struct vb_indirect *in, const struct vb_seg_mr *entry,
			  const struct vb_qp *qp, const struct vb_wr *wr)
{
	uint8_t tag = wr->umr.set & VB_UMR_TAG ? wr->umr.tag : (uint8_t)wr->imm;

	if (in->flags & VB_MKEY_FIXED)
		return false;
	if (in->pdn != qp->init.pd->number || (tag != in->tag && !(in->flags & VB_MKEY_UPDATE_TAG)))
		return false;
	return !(wr->umr.set & VB_UMR_CHECK_FREE) ||
	       !atomic_load_explicit(&entry->key, memory_order_relaxed);
}

/*
 * What is wrong is refused as an error of memory management, but for a list in memory that the queue
 * may not read: that is one of protection.
 */
enum ibv_wc_status vb_indirect_configure(const struct vb_qp *qp, const struct vb_wr *wr)
{
	struct vb_seg_mr *entry = vb_segment_find_mr(qp->card->fabric, wr->imm >> 8);
	struct vb_indirect *in = of_entry(entry);
	enum ibv_wc_status status = IBV_WC_MW_BIND_ERR;
	uint32_t key;

	if (!in)
		return status;
	vb_lock(&in->lock);
	if (may_configure(in, entry, qp, wr))
		status = indirect_apply(in, qp, wr);
	if (status == IBV_WC_SUCCESS) {
		key = (wr->imm & ~0xffu) | in->tag;
		__atomic_store_n(&entry->generation, entry->generation + 1, __ATOMIC_RELAXED);
		/* Pairs with indirect_find(). */
		atomic_store_explicit(&entry->key, wr->umr.set & VB_UMR_FREE ? 0 : key,
				      memory_order_release);
	}
	vb_unlock(&in->lock);
	return status;
}
