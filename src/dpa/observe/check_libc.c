// SPDX-License-Identifier: MIT
/*
 * Owns malloc and its family in checked mode: at the first instruction of each function the host
 * does the work on its own blocks, and the thread goes on where the function would return. Only of
 * the C library that comes with the tools; a program with a malloc of its own keeps it.
 */
#include "dpa/observe/check.h"

#include <errno.h>

enum { RA = 1, A0 = 10, A1, A2, PAGE = 4096 };

/* Call of a function: its arguments are in a0 to a2, the result goes to a0. */
typedef enum vb_seen (*serve_fn)(struct check *c, struct vb_dpa_thread *thread);

/* What a call takes in any case, in bytes: most of it is looking for the callers. */
#define CALL_WORK 4096

/* seen: of a finding. bytes: how many were filled or copied. */
static enum vb_seen check_libc_give_back(struct vb_dpa_thread *thread, uint64_t value,
					 enum vb_seen seen, uint64_t bytes)
{
	if (seen == VB_SEEN_STOP)
		return seen; /* the call is the fault */
	thread->cpu.s.x[A0] = value;
	thread->cpu.s.pc = thread->cpu.s.x[RA] & ~1ULL;
	return vb_check_worked(thread, CALL_WORK + bytes);
}

/* ---- pieces ---- */

static uint64_t check_libc_alloc(struct check *c, struct vb_dpa_thread *thread, uint64_t size,
				 uint64_t align)
{
	struct trace by = { 0 };
	uint64_t addr;

	if (align & (align - 1))
		return 0;
	vb_check_trace(thread, &by);
	addr = vb_block_give(c, OWNER_MALLOC, size, align, &by);
	if (addr && c->checks & VB_CHECK_UNINIT) {
		vb_check_fill(c->process->space.base + addr, CHECK_FILL, size);
		vb_check_set_unwritten(c, addr, size, true);
	}
	return addr;
}

static enum vb_seen check_libc_release(struct check *c, struct vb_dpa_thread *thread, uint64_t addr)
{
	struct finding f = { .addr = addr, .bad = addr, .thread = thread };
	struct trace by = { 0 };

	if (!addr)
		return VB_SEEN_GO;
	vb_check_trace(thread, &by);
	return vb_block_take(c, OWNER_MALLOC, addr, &by, &f) ? VB_SEEN_GO : vb_check_found(c, &f);
}

static enum vb_seen give_block(struct check *c, struct vb_dpa_thread *thread, uint64_t size,
			       uint64_t align)
{
	uint64_t addr = check_libc_alloc(c, thread, size, align);

	return check_libc_give_back(thread, addr, VB_SEEN_GO, addr ? size : 0);
}

/* ---- the functions ---- */

static enum vb_seen serve_malloc(struct check *c, struct vb_dpa_thread *thread)
{
	return give_block(c, thread, thread->cpu.s.x[A0], 1);
}

static enum vb_seen serve_memalign(struct check *c, struct vb_dpa_thread *thread)
{
	return give_block(c, thread, thread->cpu.s.x[A1], thread->cpu.s.x[A0]);
}

static enum vb_seen serve_valloc(struct check *c, struct vb_dpa_thread *thread)
{
	return give_block(c, thread, thread->cpu.s.x[A0], PAGE);
}

static enum vb_seen serve_pvalloc(struct check *c, struct vb_dpa_thread *thread)
{
	uint64_t size = (thread->cpu.s.x[A0] + PAGE - 1) & ~(PAGE - 1ULL);

	return give_block(c, thread, size < thread->cpu.s.x[A0] ? UINT64_MAX : size, PAGE);
}

static enum vb_seen serve_free(struct check *c, struct vb_dpa_thread *thread)
{
	return check_libc_give_back(thread, 0, check_libc_release(c, thread, thread->cpu.s.x[A0]),
				    0);
}

static enum vb_seen serve_calloc(struct check *c, struct vb_dpa_thread *thread)
{
	uint64_t size, addr = 0;

	if (!__builtin_mul_overflow(thread->cpu.s.x[A0], thread->cpu.s.x[A1], &size))
		addr = check_libc_alloc(c, thread, size, 1);
	if (!addr)
		return check_libc_give_back(thread, 0, VB_SEEN_GO, 0);
	vb_check_fill(c->process->space.base + addr, 0, size);
	if (c->checks & VB_CHECK_UNINIT)
		vb_check_set_unwritten(c, addr, size, false);
	return check_libc_give_back(thread, addr, VB_SEEN_GO, size);
}

/* Always to another place, so that pointers to the old one are found. */
static enum vb_seen serve_realloc(struct check *c, struct vb_dpa_thread *thread)
{
	uint64_t old = thread->cpu.s.x[A0], size = thread->cpu.s.x[A1], old_size, addr, len;
	uint8_t *base = c->process->space.base;

	if (!old)
		return give_block(c, thread, size, 1);
	/* What is none is found by freeing it. */
	if (!vb_block_size(c, OWNER_MALLOC, old, &old_size))
		return check_libc_give_back(thread, 0, check_libc_release(c, thread, old), 0);
	/* As the library that is replaced. */
	if (!size)
		return check_libc_give_back(thread, 0, check_libc_release(c, thread, old), 0);
	addr = check_libc_alloc(c, thread, size, 1);
	if (!addr)
		return check_libc_give_back(thread, 0, VB_SEEN_GO, 0);
	len = size < old_size ? size : old_size;
	vb_check_copy(base + addr, base + old, len);
	/* Blocks begin at a byte of shadow. The bits behind the block are nobody's. */
	if (c->checks & VB_CHECK_UNINIT)
		vb_check_copy(c->unwritten + addr / 8, c->unwritten + old / 8, len / 8);
	if (c->checks & VB_CHECK_UNINIT && len % 8)
		vb_check_set_unwritten(c, addr + len - len % 8, len % 8, false);
	return check_libc_give_back(thread, addr, check_libc_release(c, thread, old), size + len);
}

static enum vb_seen serve_posix_memalign(struct check *c, struct vb_dpa_thread *thread)
{
	uint64_t to = thread->cpu.s.x[A0], align = thread->cpu.s.x[A1], addr;

	if (!align || align % 8 || align & (align - 1))
		return check_libc_give_back(thread, EINVAL, VB_SEEN_GO, 0);
	if (!vb_space_holds(&c->process->space, to, 8, VB_DPA_READ | VB_DPA_WRITE)) {
		thread->cpu.s.cause = VB_DPA_CAUSE_STORE;
		thread->cpu.s.tval = to;
		thread->check.why = VB_DPA_WHY_TRAP;
		return VB_SEEN_STOP;
	}
	addr = check_libc_alloc(c, thread, thread->cpu.s.x[A2], align);
	if (!addr || vb_dpa_mem_write(c->process, to, &addr, sizeof(addr)))
		return check_libc_give_back(thread, ENOMEM, VB_SEEN_GO, 0);
	if (c->checks & VB_CHECK_UNINIT)
		vb_check_set_unwritten(c, to, sizeof(addr), false);
	return check_libc_give_back(thread, 0, VB_SEEN_GO, thread->cpu.s.x[A2]);
}

static enum vb_seen serve_usable(struct check *c, struct vb_dpa_thread *thread)
{
	uint64_t size = 0;

	vb_block_size(c, OWNER_MALLOC, thread->cpu.s.x[A0], &size);
	return check_libc_give_back(thread, size, VB_SEEN_GO, 0);
}

/* ---- which, and where they are ---- */

static const struct {
	const char *name;
	serve_fn serve;
} functions[LIBC_FUNCTIONS] = {
	{ "malloc", serve_malloc },
	{ "free", serve_free },
	{ "calloc", serve_calloc },
	{ "realloc", serve_realloc },
	{ "cfree", serve_free },
	{ "memalign", serve_memalign },
	{ "aligned_alloc", serve_memalign },
	{ "posix_memalign", serve_posix_memalign },
	{ "valloc", serve_valloc },
	{ "pvalloc", serve_pvalloc },
	{ "malloc_usable_size", serve_usable },
};

enum vb_seen vb_libc_mark(struct vb_dpa_thread *thread, void *arg)
{
	struct check *c = arg;

	if (c->checks & VB_CHECK_UNINIT)
		vb_check_ecall(thread);
	for (unsigned int i = 0; i < LIBC_FUNCTIONS; i++)
		if (c->functions[i] == thread->cpu.s.pc)
			return functions[i].serve(c, thread);
	return VB_SEEN_GO;
}

void vb_libc_begin(struct check *c)
{
	uint64_t pc;

	/* A part of picolibc's malloc that no other has. */
	if (!c->heaps[OWNER_MALLOC].arena ||
	    vb_dpa_symbol_value(c->process, "__malloc_sbrk_aligned", &pc, NULL))
		return;
	for (unsigned int i = 0; i < LIBC_FUNCTIONS; i++)
		if (functions[i].name &&
		    !vb_dpa_symbol_value(c->process, functions[i].name, &pc, NULL) &&
		    !vb_observe_mark(c->process, OBSERVE_CHECK, pc, true))
			c->functions[i] = pc;
}
