// SPDX-License-Identifier: MIT
/*
 * Owns what a host marks for all others in the registry file: that it takes frames (a bit of its slot), and
 * that it sniffs (a word of its slot, and one bit that says that any does). Set and cleared by the owner
 * without a lock; cleared by registry.c for one that is gone.
 */
#include "meet/registry_file.h"

static void set_listener(struct vb_registry_file *file, uint32_t index, bool listens)
{
	_Atomic uint64_t *word = &file->listeners[index / 64];

	if (listens)
		atomic_fetch_or_explicit(word, 1ull << index % 64, memory_order_acq_rel);
	else
		atomic_fetch_and_explicit(word, ~(1ull << index % 64), memory_order_acq_rel);
}

static void begin_sniffing(struct vb_registry_file *file, uint32_t index)
{
	uint64_t old = atomic_load_explicit(&file->sniffed, memory_order_relaxed);

	/* The slot first; seq_cst, here and below: it is seen, or the number has changed. */
	atomic_store_explicit(&file->slot[index].sniffs, 1, memory_order_seq_cst);
	while (!atomic_compare_exchange_weak_explicit(&file->sniffed, &old, (old + 2) | 1,
						      memory_order_seq_cst, memory_order_relaxed))
		;
}

static void end_sniffing(struct vb_registry_file *file, uint32_t index)
{
	uint64_t old;

	if (!atomic_exchange_explicit(&file->slot[index].sniffs, 0, memory_order_seq_cst))
		return;
	old = atomic_load_explicit(&file->sniffed, memory_order_seq_cst);
	for (uint32_t i = 0; i < VB_SLOTS; i++)
		if (atomic_load_explicit(&file->slot[i].sniffs, memory_order_seq_cst))
			return;
	atomic_compare_exchange_strong_explicit(&file->sniffed, &old, old & ~1ull,
						memory_order_seq_cst, memory_order_relaxed);
}

void vb_registry_clear_marks(struct vb_registry_file *file, uint32_t index)
{
	set_listener(file, index, false);
	end_sniffing(file, index);
}

void vb_registry_listen(struct vb_registry *registry, bool listen)
{
	if (vb_registry_is_joined(registry))
		set_listener(registry->place.file, registry->self.slot, listen);
}

uint64_t vb_registry_listeners(const struct vb_registry *registry, uint32_t word)
{
	return atomic_load_explicit(&registry->place.file->listeners[word], memory_order_acquire);
}

void vb_registry_sniff(struct vb_registry *registry, bool sniffs)
{
	if (vb_registry_is_joined(registry))
		(sniffs ? begin_sniffing : end_sniffing)(registry->place.file, registry->self.slot);
}

bool vb_registry_sniffs(const struct vb_registry *registry, uint32_t slot)
{
	return atomic_load_explicit(&registry->place.file->slot[slot].sniffs, memory_order_acquire);
}
