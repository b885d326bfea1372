// SPDX-License-Identifier: MIT
/* Owns the words for an address that device code failed at: which object it belongs to, or misses. */
#include "api/flexio/crash.h"

#include <inttypes.h>

#include "api/flexio/process.h"
#include "card/memory/mr.h"

#define ENTITY_SHIFT 48
#define NEAR         65536 /* how far behind the heap an address is still said to be behind it */

struct words {
	const struct guest *guest;
	uint64_t addr;
	bool write, jump;
	char *text;
	size_t size;
};

static bool say(struct words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The address and what it is. Always true: it has been said. */
static bool say(struct words *w, const char *fmt, ...)
{
	int n = snprintf(w->text, w->size, "0x%" PRIx64 ", ", w->addr);
	va_list args;

	va_start(args, fmt);
	vsnprintf(w->text + n, w->size - (size_t)n, fmt, args);
	va_end(args);
	return true;
}

/* ---- above device memory ---- */

/* Where a host address lies, seen from the region. */
static void put_where(const struct words *w, const struct vb_mr_info *info, uint64_t haddr,
		      char *where, size_t size)
{
	uint64_t end = info->iova + info->length;

	if (haddr < info->iova)
		snprintf(where, size, "%" PRIu64 " bytes before it", info->iova - haddr);
	else if (haddr == end)
		snprintf(where, size, "right behind its end");
	else if (haddr > end)
		snprintf(where, size, "%" PRIu64 " bytes behind its end", haddr - end);
	else if (w->write && !(info->access & IBV_ACCESS_LOCAL_WRITE))
		snprintf(where, size, "in it, but it cannot be written");
	else if (w->jump)
		snprintf(where, size, "in it, but it is no program");
	else
		snprintf(where, size, "in it, misaligned, over its end or without memory");
}

static bool describe_window(struct words *w, unsigned int entity)
{
	const struct guest_window *gw = &w->guest->windows[entity];
	uint64_t haddr = w->addr & ((1ULL << ENTITY_SHIFT) - 1);
	struct vb_mr_info info;
	char where[96];

	if (!gw->id)
		return say(w,
			   "host address 0x%" PRIx64
			   " in window %u, which the thread has not configured",
			   haddr, entity);
	if (!vb_window_region(w->guest, entity, &info))
		return say(w,
			   "host address 0x%" PRIx64
			   " in window %u, whose key 0x%x, or window object %u, is gone",
			   haddr, entity, gw->mkey, gw->id);
	put_where(w, &info, haddr, where, sizeof(where));
	return say(w,
		   "host address 0x%" PRIx64
		   " in window %u: the memory region of key 0x%x (window object %u) is 0x%" PRIx64
		   " to 0x%" PRIx64 ", and this is %s",
		   haddr, entity, gw->mkey, gw->id, info.iova, info.iova + info.length, where);
}

static bool describe_high(struct words *w)
{
	uint64_t entity = w->addr >> ENTITY_SHIFT;

	if (w->addr - OUTBOX_PAGE < OUTBOX_SIZE)
		return say(w, "register 0x%x of the outbox, which takes loads and stores only",
			   (unsigned int)(w->addr - OUTBOX_PAGE));
	return (entity == 1 || entity == 2) && describe_window(w, (unsigned int)entity - 1);
}

/* ---- heaps ---- */

static bool describe_heap(struct words *w)
{
	struct flexio_process *process = w->guest->process;
	uint64_t base = process->heap.base, end = base + process->heap.size;
	struct vb_arena_place place;
	char where[96] = "in the device heap";

	if (w->addr < base || w->addr >= end + NEAR)
		return false;
	if (w->addr >= end)
		snprintf(where, sizeof(where),
			 "%" PRIu64 " bytes behind the end of the device heap", w->addr - end);
	if (!(process->checked ? vb_dpa_check_find(process->dpa, w->addr, &place)
			       : vb_arena_find(&process->heap, w->addr, &place)))
		return say(w, "%s, of which nobody has a buffer", where);
	if (w->addr - place.addr < place.size)
		return say(w,
			   "%s, byte %" PRIu64 " of a buffer of %" PRIu64
			   " bytes that flexio_buf_dev_alloc() or a relative of it gave out%s",
			   where, w->addr - place.addr, place.size,
			   place.freed ? ", and that was freed" : "");
	return say(w,
		   "%s, %" PRIu64 " bytes behind the end of a buffer of %" PRIu64
		   " bytes at 0x%" PRIx64,
		   where, w->addr - place.addr - place.size, place.size, place.addr);
}

static bool describe_malloc(struct words *w)
{
	struct flexio_process *process = w->guest->process;
	uint64_t used;

	if (w->addr < process->brk_base || w->addr >= process->brk_end)
		return false;
	pthread_mutex_lock(&process->brk_lock);
	used = process->brk - process->brk_base;
	pthread_mutex_unlock(&process->brk_lock);
	return say(w,
		   "byte %" PRIu64
		   " of the memory for malloc() of device code, which has taken %" PRIu64 " bytes",
		   w->addr - process->brk_base, used);
}

/* ---- threads ---- */

/* vb_dpa_threads_each. */
static int describe_thread(struct vb_dpa_thread *thread, void *arg)
{
	struct words *w = arg;
	const struct guest *guest = vb_dpa_thread_user(thread);
	char whose[64 + VB_DPA_NAME_TEXT], name[VB_DPA_NAME_TEXT];
	uint64_t addr = w->addr;
	struct vb_dpa_stack stack;
	struct vb_dpa_range tls;

	vb_dpa_thread_stack(thread, &stack);
	vb_dpa_thread_tls(thread, &tls);
	if (guest == w->guest)
		snprintf(whose, sizeof(whose), "the thread");
	else
		snprintf(whose, sizeof(whose), "thread %u, %s", guest->thread_id,
			 vb_dpa_printable(vb_dpa_thread_name(thread), name));
	if (addr - stack.addr < stack.size)
		return say(w, "in the stack of %s, %" PRIu64 " bytes below its top", whose,
			   stack.addr + stack.size - addr);
	if (addr < stack.addr && stack.addr - addr <= stack.guard)
		return say(w,
			   "%" PRIu64 " bytes below the stack of %s, which has %" PRIu64 " bytes",
			   stack.addr - addr, whose, stack.size);
	if (addr - tls.addr < tls.len)
		return say(w, "in the thread-local storage of %s", whose);
	if (addr - guest->ctx_addr < guest->len)
		return say(w, "in the %s of %s",
			   addr - guest->ctx_addr < sizeof(struct vb_rtos_thread) ? "context"
										  : "arguments",
			   whose);
	return 0;
}

/* ---- the program ---- */

static bool describe_program(struct words *w)
{
	struct vb_dpa_process *dpa = w->guest->process->dpa;
	char text[VB_DPA_NAME_TEXT];
	struct vb_dpa_range range;
	uint64_t offset;
	const char *name = vb_dpa_symbol_name(dpa, w->addr, &offset), *kind = "";

	if (vb_dpa_mem_next(dpa, w->addr, &range) && range.addr <= w->addr)
		kind = range.rights & VB_DPA_EXEC    ? ": text"
		       : range.rights & VB_DPA_WRITE ? ": data"
						     : ": data that cannot be written";
	if (name)
		return say(w, "%s+0x%" PRIx64 " of the program%s", vb_dpa_printable(name, text),
			   offset, kind);
	return vb_dpa_program_holds(dpa, w->addr, 1) && say(w, "in the program%s", kind);
}

void vb_address_describe(const struct guest *guest, const struct crash *crash, char *text,
			 size_t size)
{
	const struct vb_dpa_state *state = &crash->snapshot.state;
	struct words w = { .guest = guest,
			   .addr = state->tval,
			   .write = state->cause == VB_DPA_CAUSE_STORE,
			   .jump = state->cause == VB_DPA_CAUSE_FETCH,
			   .text = text,
			   .size = size };

	if (w.addr < 4096) {
		say(&w, "near NULL");
		return;
	}
	if (describe_high(&w) || vb_dpa_threads_each(guest->process->dpa, describe_thread, &w) ||
	    describe_malloc(&w) || describe_heap(&w) || describe_program(&w))
		return;
	say(&w, "no memory of the process");
}
