/* SPDX-License-Identifier: MIT */
/* Emulated functions in use by a card, for emulation.c (device side) and driver.c. */
#pragma once

#include "card/emulation/emulation.h"
#include "fabric/function.h"

/*
 * On the list from the first use by a map, an EQ or a driver of this process to the last. Read
 * inside read sections, changed under emulation.lock of the card.
 */
struct vb_function {
	struct vb_function_info info;
	struct vb_function_page *page;
	unsigned int users; /* under the lock */
	_Atomic(struct vb_function *) next;
	_Atomic(struct vb_emu_map *) map[VB_FUNCTION_QUEUES]; /* of this process; NULL: none */
	_Atomic(struct vb_emu_driver *) driver;               /* the same */
	_Atomic bool missed; /* a driver elsewhere is still to be told of interrupts */
};

static inline _Atomic uint64_t *vb_bit_word(_Atomic uint64_t *words, uint32_t bit)
{
	return &words[bit / 64];
}

static inline uint64_t vb_bit(uint32_t bit)
{
	return 1ull << bit % 64;
}

/* The function with this id, to be put back; 0, or -errno. */
int vb_function_get(struct vb_card *card, uint32_t vhca_id, struct vb_function **function);
void vb_function_put(struct vb_function *function);

/* Inside a read section, with no lock held. */
void vb_emu_map_look(struct vb_emu_map *map);          /* a doorbell may have come */
void vb_emu_driver_look(struct vb_function *function); /* vectors may have been raised */
/* Somebody rang the queue, or the doorbell could not be looked at then. */
void vb_function_rung(struct vb_function *function, uint32_t queue);
/* What other processes told this one, and what was put off. */
void vb_emulation_run(struct vb_card *card);
/* When to run it again, ns; UINT64_MAX: once it is told. */
uint64_t vb_emulation_next(struct vb_card *card);
void vb_emulation_forked(struct vb_card *card);
