// SPDX-License-Identifier: MIT
/*
 * Owns the table of sites.
 *
 *	hash(rip) --> [ rip | version | code, form | traps | ... ]   free: rip 0
 *	              [ ...                                      ]   probed PROBE places far
 *
 * Handlers of several threads look and enter at the same time, without a lock. An entry's rip is set
 * once. Its code and form are read between two looks at its version, and written by whoever made the
 * version odd; who finds it odd decodes for himself.
 */
#include "host/patch/sites.h"

#include <string.h>

#include "host/patch/patch.h"

enum { SITES = 1024, PROBE = 8, INT3 = 0xcc };

static struct vb_site sites[SITES];

static uint32_t sites_hash(uintptr_t rip)
{
	return (uint32_t)((rip * 0x9e3779b97f4a7c15ull) >> 32) % SITES;
}

struct vb_site *vb_site_find(uintptr_t rip)
{
	uint32_t at = sites_hash(rip);

	for (uint32_t i = 0; i < PROBE; i++) {
		struct vb_site *site = &sites[(at + i) % SITES];
		uintptr_t there = atomic_load_explicit(&site->rip, memory_order_acquire);

		if (there == rip)
			return site;
		if (!there)
			return NULL;
	}
	return NULL;
}

/* Two threads that enter the same rip meet at the same free place. */
static struct vb_site *sites_enter(uintptr_t rip)
{
	uint32_t at = sites_hash(rip);

	for (uint32_t i = 0; i < PROBE; i++) {
		struct vb_site *site = &sites[(at + i) % SITES];
		uintptr_t there = 0;

		if (atomic_compare_exchange_strong_explicit(
			    &site->rip, &there, rip, memory_order_acq_rel, memory_order_acquire) ||
		    there == rip)
			return site;
	}
	return NULL;
}

/* False where the bytes are others, or another thread writes them. */
static bool known(struct vb_site *site, const uint8_t *code, size_t len, struct vb_store_form *form)
{
	uint32_t version = atomic_load_explicit(&site->version, memory_order_acquire);
	bool same;

	if (version & 1)
		return false;
	*form = site->form;
	/* int3 stores nothing: it is a breakpoint, and somebody executed what stood below it. */
	same = form->length && form->length <= len &&
	       (code[0] == site->code[0] || code[0] == INT3) &&
	       !memcmp(site->code + 1, code + 1, form->length - 1u);
	atomic_thread_fence(memory_order_acquire);
	return same && atomic_load_explicit(&site->version, memory_order_relaxed) == version;
}

/* Other code than before is another site: it starts from nothing. */
static bool sites_note(struct vb_site *site, const uint8_t *code, const struct vb_store_form *form)
{
	uint32_t version = atomic_load_explicit(&site->version, memory_order_relaxed);

	if ((version & 1) ||
	    !atomic_compare_exchange_strong_explicit(&site->version, &version, version + 1,
						     memory_order_acq_rel, memory_order_relaxed))
		return false;
	/* Another thread may have noted it since we looked. */
	if (site->form.length != form->length || memcmp(site->code, code, form->length)) {
		memcpy(site->code, code, form->length);
		site->form = *form;
		atomic_store_explicit(&site->traps, 0, memory_order_relaxed);
		atomic_store_explicit(&site->tries, 0, memory_order_relaxed);
		vb_patch_keep_trap(site, VB_SITE_NONE);
	}
	atomic_store_explicit(&site->version, version + 2, memory_order_release);
	return true;
}

int vb_site_parse(uintptr_t rip, const uint8_t *code, size_t len, struct vb_store_form *form,
		  struct vb_site **out)
{
	struct vb_site *site = vb_site_find(rip);
	int ret;

	*out = NULL;
	if (site && known(site, code, len, form)) {
		*out = site;
		return 0;
	}
	ret = vb_store_parse(code, len, form);
	if (ret)
		return ret;
	if (!site)
		site = sites_enter(rip);
	if (site && sites_note(site, code, form))
		*out = site;
	return 0;
}
