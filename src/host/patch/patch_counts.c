// SPDX-License-Identifier: MIT
/*
 * Owns the numbers of traps and sites: those of this process, and their copy that others see in its
 * slot of the registry.
 */
#include "host/patch/patch.h"

#include <sched.h>

#include "base/fork.h"

static const char *const reason_names[VB_SITE_REASONS] = {
	[VB_SITE_NONE] = "few",           [VB_SITE_OFF] = "off",
	[VB_SITE_TRACED] = "debugger",    [VB_SITE_FORM] = "form",
	[VB_SITE_TEXT] = "generated",     [VB_SITE_EXEMPT] = "libc",
	[VB_SITE_OVERLAP] = "neighbour",  [VB_SITE_PLACE] = "no room",
	[VB_SITE_REFUSED] = "refused",    [VB_SITE_FULL] = "too many",
	[VB_SITE_RESTORED] = "elsewhere",
};

const char *vb_site_reason_name(enum vb_site_reason reason)
{
	return reason_names[reason];
}

struct vb_patch_counts vb_patch_counts;
static _Atomic(struct vb_slot_doorbells *) shown;

static uint32_t at_most(uint32_t n, uint32_t most)
{
	return n < most ? n : most;
}

static void show_counts(struct vb_slot_doorbells *to)
{
	if (!to)
		return;
	atomic_store_explicit(&to->traps,
			      atomic_load_explicit(&vb_patch_counts.traps, memory_order_relaxed),
			      memory_order_relaxed);
	atomic_store_explicit(&to->patched,
			      (uint16_t)at_most(atomic_load_explicit(&vb_patch_counts.patched,
								     memory_order_relaxed),
						UINT16_MAX),
			      memory_order_relaxed);
	for (int i = 0; i < VB_SITE_REASONS; i++)
		atomic_store_explicit(
			&to->kept[i],
			(uint8_t)at_most(atomic_load_explicit(&vb_patch_counts.sites[i],
							      memory_order_relaxed),
					 UINT8_MAX),
			memory_order_relaxed);
}

void vb_patch_publish(struct vb_slot_doorbells *where)
{
	struct vb_slot_doorbells *none = NULL;

	show_counts(where);
	atomic_compare_exchange_strong_explicit(&shown, &none, where, memory_order_seq_cst,
						memory_order_relaxed);
}

void vb_patch_withdraw(struct vb_slot_doorbells *where)
{
	/* Pairs with patch_counts_show(): it sees this, or vb_patch_hide() sees it. */
	atomic_compare_exchange_strong_explicit(&shown, &where, NULL, memory_order_seq_cst,
						memory_order_relaxed);
}

static _Atomic uint32_t showing; /* threads that may be writing where it says */

static void patch_counts_show(void)
{
	atomic_fetch_add_explicit(&showing, 1, memory_order_seq_cst);
	show_counts(atomic_load_explicit(&shown, memory_order_seq_cst));
	atomic_fetch_sub_explicit(&showing, 1, memory_order_release);
}

/*
 * Not under the lock of patching: whoever closes the card may hold a lock that the program takes
 * before it forks, and a fork has that of patching by then.
 */
void vb_patch_hide(struct vb_slot_doorbells *where)
{
	vb_patch_withdraw(where);
	while (atomic_load_explicit(&showing, memory_order_seq_cst))
		sched_yield();
}

static void counts_forked(void)
{
	atomic_store_explicit(&showing, 0, memory_order_relaxed);
	atomic_store_explicit(&shown, NULL, memory_order_relaxed); /* the parent's slot */
}

VB_STAGE(COUNTS, .child = counts_forked);

void vb_patch_keep_trap(struct vb_site *site, enum vb_site_reason reason)
{
	enum vb_site_reason before =
		atomic_exchange_explicit(&site->reason, reason, memory_order_relaxed);

	if (before == reason)
		return;
	if (before)
		atomic_fetch_sub_explicit(&vb_patch_counts.sites[before], 1, memory_order_relaxed);
	if (reason)
		atomic_fetch_add_explicit(&vb_patch_counts.sites[reason], 1, memory_order_relaxed);
	patch_counts_show();
}

void vb_patch_count_trap(void)
{
	struct vb_slot_doorbells *to = atomic_load_explicit(&shown, memory_order_acquire);
	uint64_t traps =
		1 + atomic_fetch_add_explicit(&vb_patch_counts.traps, 1, memory_order_relaxed);

	if (to)
		atomic_store_explicit(&to->traps, traps, memory_order_relaxed);
}

void vb_patch_count_patched(int change)
{
	atomic_fetch_add_explicit(&vb_patch_counts.patched, (uint32_t)change, memory_order_relaxed);
	patch_counts_show();
}
