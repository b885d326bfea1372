/* SPDX-License-Identifier: MIT */
/*
 * Indirect memory keys: keys whose memory is pieces of other keys, as a work request (UMR) lays them
 * out. Inside a read section, any queue locks held.
 *
 * Memory behind such a key has no one address: what asks vb_mr_translate() for one gets none, and
 * then asks here. The key's rights and bounds are checked against the whole of an access, those of
 * the keys that it is made of when their pieces are touched. These may be indirect themselves, so
 * that up to VB_MAX_INDIRECTION keys follow one another.
 */
#pragma once

#include "card/memory/mr.h"
#include "card/queue/objects.h"

/* Whether the key is one. */
bool vb_indirect_is(struct vb_card *card, uint32_t key);
/* Whether [addr, addr + len) of such a key may be used so, in this domain. */
bool vb_indirect_allows(struct vb_card *card, uint32_t key, uint32_t pdn, uint64_t addr,
			uint64_t len, unsigned int access);
/*
 * Copy between a buffer and that memory: 0, -EACCES where it is not allowed, -EFAULT where one of the
 * two sides is not there. What was copied before stays.
 */
int vb_indirect_read(struct vb_card *card, uint32_t key, uint32_t pdn, uint64_t addr, void *buf,
		     size_t len, unsigned int access);
int vb_indirect_write(struct vb_card *card, uint32_t key, uint32_t pdn, uint64_t addr,
		      const void *buf, size_t len, unsigned int access);
/* The place of a word for an atomic, which must lie in one piece; NULL where not allowed. */
void *vb_indirect_word(struct vb_card *card, uint32_t key, uint32_t pdn, uint64_t addr,
		       uint32_t size, unsigned int access);

/* Carry out VB_WR_UMR, under the send queue's lock. */
enum ibv_wc_status vb_indirect_configure(const struct vb_qp *qp, const struct vb_wr *wr);

/* --- for mr.c --- */
struct vb_indirect;
/* A new one, with its own memory: free() ends it. NULL where there is none. */
struct vb_indirect *vb_indirect_new(const struct vb_mkey_attr *attr, uint32_t pdn, uint32_t key);
/* The key is free to be configured again. False: it was so, has another low byte by now, or never is. */
bool vb_indirect_invalidate(struct vb_indirect *indirect, struct vb_seg_mr *entry, uint32_t key);
/* Whether a peer may do that. */
bool vb_indirect_is_remote(const struct vb_indirect *indirect);
