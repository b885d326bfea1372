/* SPDX-License-Identifier: MIT */
/*
 * Keys inside of the card: look-ups on the data path. A key is checked in two places: here, by the
 * process that registered it, for its own work and for packets; and in fabric/direct.c
 * (direct_check()), by a peer that copies by itself, on what entries.h shows of the key. A new rule
 * for keys goes to both.
 */
#pragma once

#include "card/memory/mr.h"
#include "fabric/entries.h"

struct vb_mr {
	struct vb_pd *pd;
	uint32_t key; /* index << 8 | variant */
	struct vb_seg_mr *entry;
	struct vb_indirect *indirect; /* of an indirect key (indirect.h), or NULL */
	bool is_private;              /* peers that reach its memory need the kernel for it */
};

/* In a forked child: what a thread of the parent had locked is free. */
void vb_mr_forked(struct vb_card *card);
int vb_mr_check_memory(void *addr, size_t length, unsigned int access);
/* inside a read section: */
/*
 * The address behind [addr, addr + len) of a key, with these rights and in this domain; NULL where
 * not allowed.
 */
void *vb_mr_translate(struct vb_card *card, uint32_t key, uint32_t pdn, uint64_t addr, uint64_t len,
		      unsigned int access);
/*
 * Of the registration behind a key that vb_mr_translate() has just accepted: the same for all of a
 * message, or it is refused.
 */
uint32_t vb_mr_generation(struct vb_card *card, uint32_t key);
/* Whether the key is there, in this domain, and lets peers write. */
bool vb_mr_is_live(struct vb_card *card, uint32_t key, uint32_t pdn);
/* Why vb_mr_translate() refuses, in words; NULL: it does not. */
const char *vb_mr_explain(struct vb_card *card, uint32_t key, uint32_t pdn, uint64_t addr,
			  uint64_t len, unsigned int access);
/*
 * SEND_WITH_INV (remote) and LOCAL_INV: the key is dead from now on, or free where it is indirect;
 * -EINVAL where it is not one of this domain, or not one that a peer may invalidate.
 */
int vb_mr_invalidate(struct vb_card *card, uint32_t key, uint32_t pdn, bool remote);
