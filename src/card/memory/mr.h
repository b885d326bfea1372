/* SPDX-License-Identifier: MIT */
/* Protection domains, and the keys of memory in them. */
#pragma once

#include "card/card.h"

VB_PUBLIC int vb_pd_alloc(struct vb_dev *dev, struct vb_pd **pd);
VB_PUBLIC int vb_pd_dealloc(struct vb_pd *pd); /* -EBUSY while used */
VB_PUBLIC uint32_t vb_pd_number(const struct vb_pd *pd);
/* The one of this device with this number, in use until vb_pd_put(); NULL: none. */
VB_PUBLIC struct vb_pd *vb_pd_get(struct vb_dev *dev, uint32_t number);
VB_PUBLIC void vb_pd_put(struct vb_pd *pd);

struct vb_mr; /* lkey equals rkey */

VB_PUBLIC int vb_mr_reg(struct vb_pd *pd, void *addr, size_t length, uint64_t iova,
			unsigned int access, struct vb_mr **mr);
/* The same with a key whose lower 8 bits the caller chooses. */
VB_PUBLIC int vb_mr_reg_variant(struct vb_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access, uint8_t variant, struct vb_mr **mr);
/*
 * As ibv_rereg_mr: flags are enum ibv_rereg_mr_flags; on failure the MR is as it was. The key
 * stays. When this returns, nobody uses the memory as it was registered before; a request of a peer
 * that is under way meanwhile is refused.
 */
VB_PUBLIC int vb_mr_rereg(struct vb_mr *mr, int flags, struct vb_pd *pd, void *addr, size_t length,
			  uint64_t iova, unsigned int access);
/*
 * When this returns, nobody (no local queue, no peer) touches the memory through this key any more.
 */
VB_PUBLIC int vb_mr_dereg(struct vb_mr *mr);
VB_PUBLIC uint32_t vb_mr_key(const struct vb_mr *mr);

/*
 * An indirect key: free until a work request of a send queue (UMR) lays out the memory that it stands
 * for, in pieces of other keys of its domain, and free again when it is invalidated; or laid out from
 * its beginning. Destroyed with vb_mr_dereg().
 */
enum vb_mkey_flags {
	VB_MKEY_REMOTE_INVALIDATE = 1 << 0, /* peers may invalidate it */
	VB_MKEY_UPDATE_TAG = 1 << 1,        /* work requests may change its low byte */
	VB_MKEY_FIXED = 1 << 2,             /* work requests may not change it at all */
};

/* Of another key; whether there is one is seen when it is used. */
struct vb_mkey_piece {
	uint64_t addr;
	uint32_t key, len; /* len: not 0 */
};

struct vb_mkey_attr {
	uint8_t flags;        /* enum vb_mkey_flags */
	uint16_t max_entries; /* pieces that a layout may have */
	bool has_variant;     /* the caller chooses the lower 8 bits of the key */
	uint8_t variant;
	/* How it is laid out: as many as count, up to max_entries; 0: it is free. */
	const struct vb_mkey_piece *piece;
	uint16_t count;
	uint64_t start, length; /* its addresses, no more than the pieces have */
	unsigned int access;    /* enum ibv_access_flags */
};

VB_PUBLIC int vb_mkey_create(struct vb_pd *pd, const struct vb_mkey_attr *attr,
			     struct vb_mr **mkey);

struct vb_mr_info {
	void *addr; /* where the memory is */
	uint64_t iova, length;
	unsigned int access;
};

/*
 * Somebody outside of the card keeps what a key means, as the accelerator's windows do, and is told
 * when that changes, before the call that changes it returns. Neither function may call the card,
 * or wait for anybody who may be in the card.
 */
struct vb_mr_watch {
	/*
	 * The key died, or is of another domain now: called once. No lock of the card is held, but
	 * that of a queue that invalidates the key.
	 */
	void (*gone)(struct vb_mr_watch *watch);
	/* The region was registered anew. Once this returns, only what info says is used. */
	void (*changed)(struct vb_mr_watch *watch, const struct vb_mr_info *info);
	/* the card's, from here on */
	struct vb_card *card;
	uint32_t key, pdn;
	uint32_t generation;      /* of the registration that it was told of */
	bool calling, changing;   /* one of the two is under way; changed() is */
	struct vb_mr_watch *next; /* NULL-ended list of all */
};

/* -EINVAL: no such key in this domain. */
VB_PUBLIC int vb_mr_watch(struct vb_pd *pd, uint32_t key, struct vb_mr_watch *watch,
			  struct vb_mr_info *info);
/* Neither is running, or will be called, when this returns. False if gone() was called before. */
VB_PUBLIC bool vb_mr_unwatch(struct vb_mr_watch *watch);
