// SPDX-License-Identifier: MIT
/*
 * Owns checked mode of a process: what is checked, shadow memory, and the observer that sees every
 * access before it happens. See check.h for the files around it.
 *
 *	access --> reach fine? --> unwritten bits: a store clears them, a load of nothing but
 *	                           unwritten bytes is followed (check_flow.c)
 *
 * Of the stack: when sp has moved down since the last access, the part between is new and holds
 * nothing. It is filled with CHECK_FILL, so that bytes which differ have been written by somebody
 * who is not seen: the host, or the card.
 */
#include "dpa/observe/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "host/fault.h"
#include "dpa/cpu/ops.h"

enum { SP = 2 };

#define MALLOC_SIZE (128ULL << 20)
#define MALLOC_MIN  (64ULL << 10)
#define WORK_LOOK   (64ULL << 10) /* bytes, before the thread may have to come out */

/* ---- shadow memory ---- */

static inline void put(uint8_t *at, uint8_t value)
{
	__atomic_store_n(at, value, __ATOMIC_RELAXED);
}

static inline uint8_t get(const uint8_t *at)
{
	return __atomic_load_n(at, __ATOMIC_RELAXED);
}

/* memset and memcpy, of what other threads may look at meanwhile. */
void vb_check_fill(uint8_t *to, uint8_t value, uint64_t len)
{
	for (; len && (uintptr_t)to % 8; to++, len--)
		put(to, value);
	for (; len >= 8; to += 8, len -= 8)
		__atomic_store_n((uint64_t *)to, value * 0x0101010101010101ULL, __ATOMIC_RELAXED);
	for (; len; to++, len--)
		put(to, value);
}

void vb_check_copy(uint8_t *to, const uint8_t *from, uint64_t len)
{
	for (; len >= 8 && !((uintptr_t)to % 8 | (uintptr_t)from % 8); to += 8, from += 8, len -= 8)
		__atomic_store_n((uint64_t *)to,
				 __atomic_load_n((const uint64_t *)from, __ATOMIC_RELAXED),
				 __ATOMIC_RELAXED);
	for (; len; to++, from++, len--)
		put(to, get(from));
}

void vb_check_set_reach(struct check *c, uint64_t addr, uint64_t len)
{
	vb_check_fill(c->reach + addr / 8, 8, len / 8);
	if (len % 8)
		put(c->reach + (addr + len) / 8, len % 8);
}

void vb_check_clear_reach(struct check *c, uint64_t addr, uint64_t len, uint8_t why)
{
	vb_check_fill(c->reach + addr / 8, why, (len + 7) / 8);
}

static void check_change_bits(uint8_t *at, uint8_t bits, bool set)
{
	if (set)
		__atomic_fetch_or(at, bits, __ATOMIC_RELAXED);
	else
		__atomic_fetch_and(at, (uint8_t)~bits, __ATOMIC_RELAXED);
}

void vb_check_set_unwritten(struct check *c, uint64_t addr, uint64_t len, bool unwritten)
{
	uint64_t end = addr + len;

	for (; addr < end && addr % 8; addr++)
		check_change_bits(c->unwritten + addr / 8, (uint8_t)(1U << addr % 8), unwritten);
	for (; addr < end && end % 8; end--)
		check_change_bits(c->unwritten + (end - 1) / 8, (uint8_t)(1U << (end - 1) % 8),
				  unwritten);
	if (addr < end)
		vb_check_fill(c->unwritten + addr / 8, unwritten ? 0xff : 0, (end - addr) / 8);
}

/* ---- findings ---- */

void vb_check_trace(struct vb_dpa_thread *thread, struct trace *trace)
{
	uint64_t frames[CHECK_DEPTH];

	trace->thread = vb_dpa_thread_number(thread);
	trace->depth = vb_dpa_backtrace(thread, &thread->cpu.s, frames, CHECK_DEPTH);
	for (unsigned int i = 0; i < CHECK_DEPTH; i++)
		trace->frames[i] = i < trace->depth ? (uint32_t)frames[i] : 0;
}

/* Under the lock. Whether the finding is to be shown: where threads go on, each place once. */
static bool is_news(struct check *c, const struct finding *f)
{
	struct place place = { f->thread ? f->thread->cpu.s.pc : f->addr, f->kind };

	for (unsigned int i = 0; c->checks & VB_CHECK_CONTINUE && i < c->nplaces; i++)
		if (c->places[i].pc == place.pc && c->places[i].kind == place.kind)
			return false;
	if (c->nplaces == CHECK_MAX_PLACES)
		return false;
	c->places[c->nplaces++] = place;
	return true;
}

enum vb_seen vb_check_found(struct check *c, struct finding *f)
{
	struct block *near;
	bool news;

	pthread_mutex_lock(&c->lock);
	news = is_news(c, f);
	near = news && f->kind != FIND_UNINIT ? vb_block_near(c, f->bad) : NULL;
	f->has_block = near;
	if (near)
		f->block = *near;
	/* In front of a block, or far behind it: which is the likelier name of the mistake. */
	if (near && f->kind == FIND_NOBODYS)
		f->kind = FIND_OVERFLOW;
	f->last = c->nplaces == CHECK_MAX_PLACES;
	pthread_mutex_unlock(&c->lock);
	if (news)
		vb_report_finding(c, f);
	if (!f->thread || c->checks & VB_CHECK_CONTINUE)
		return VB_SEEN_GO;
	f->thread->cpu.s.cause = VB_DPA_CAUSE_CHECK;
	f->thread->cpu.s.tval = f->addr;
	f->thread->check.why = VB_DPA_WHY_TRAP; /* not a stop behind it, which is forgotten */
	return VB_SEEN_STOP;
}

enum vb_seen vb_check_worked(struct vb_dpa_thread *thread, uint64_t bytes)
{
	const struct vb_dpa_ops *ops = thread->process->ops;

	thread->check.worked += bytes;
	if (thread->check.worked < WORK_LOOK)
		return VB_SEEN_GO;
	bytes = thread->check.worked;
	thread->check.worked = 0;
	if (ops && ops->worked && ops->worked(thread, bytes, thread->process->ops_arg)) {
		thread->check.why = VB_DPA_WHY_EXIT;
		return VB_SEEN_STOP_BEHIND;
	}
	if (atomic_load_explicit(&thread->cpu.stop, memory_order_relaxed)) {
		thread->check.why = VB_DPA_WHY_STOP;
		return VB_SEEN_STOP_BEHIND;
	}
	return VB_SEEN_GO;
}

/* ---- reach ---- */

/* An access within 16 bytes of shadow: 0, or how many bytes of it are fine plus one. */
static unsigned int first_bad(const struct check *c, uint64_t addr, unsigned int size)
{
	unsigned int offset = addr % 8, here = size < 8 - offset ? size : 8 - offset;
	uint8_t reach = get(c->reach + addr / 8);

	if (reach > 8 || offset + here > reach)
		return reach > 8 || reach <= offset ? 1 : reach - offset + 1;
	if (here == size)
		return 0;
	reach = get(c->reach + addr / 8 + 1);
	if (reach <= 8 && size - here <= reach)
		return 0;
	return here + (reach > 8 ? 0 : reach) + 1;
}

static bool in_heaps(const struct check *c, uint64_t addr)
{
	return addr - c->heaps[OWNER_MALLOC].base < c->heaps[OWNER_MALLOC].len ||
	       addr - c->heaps[OWNER_HEAP].base < c->heaps[OWNER_HEAP].len;
}

static enum finding_kind kind_at(const struct check *c, uint64_t bad)
{
	switch (get(c->reach + bad / 8)) {
	case 0:
		return FIND_NOBODYS;
	case REACH_FREED:
		return FIND_FREED;
	default:
		return FIND_OVERFLOW;
	}
}

static const struct vb_insn *insn_of(const struct vb_dpa_thread *thread)
{
	const struct vb_text *text = thread->cpu.text;

	return &text->insns[(thread->cpu.s.pc - text->lo) / 2];
}

/* What compilers make of an atomic of one or two bytes: its word, and all else in it stays. */
static bool check_is_wide(const struct vb_dpa_thread *thread)
{
	switch (insn_of(thread)->op) {
	case VB_OP_LR_W:
	case VB_OP_SC_W:
	case VB_OP_AMOAND_W:
	case VB_OP_AMOOR_W:
	case VB_OP_AMOXOR_W:
		return true;
	default:
		return false;
	}
}

static __attribute__((noinline)) enum vb_seen bad_access(struct check *c,
							 struct vb_dpa_thread *thread,
							 uint64_t addr, unsigned int size,
							 unsigned int kind)
{
	unsigned int bad = first_bad(c, addr, size);
	uint64_t pc = thread->cpu.s.pc;
	struct finding f = { .addr = addr, .size = size, .access = kind, .thread = thread };

	/* A word of a string whose end is in it. */
	if (kind == VB_ACCESS_LOAD && bad > 1 && !(addr % size) && pc >= c->strlen_from &&
	    pc < c->strlen_to)
		return VB_SEEN_GO;
	if (bad > 1 && check_is_wide(thread))
		return VB_SEEN_GO;
	if (!bad)
		return VB_SEEN_GO; /* somebody was given it meanwhile */
	f.bad = addr + bad - 1;
	f.kind = kind_at(c, f.bad);
	return vb_check_found(c, &f);
}

/* ---- values ---- */

static __attribute__((noinline)) enum vb_seen sp_moved(struct check *c,
						       struct vb_dpa_thread *thread)
{
	uint64_t sp = thread->cpu.s.x[SP], last = thread->check.sp;
	uint64_t lo = thread->stack_addr, hi = lo + thread->stack_size;

	thread->check.sp = sp;
	if (sp >= last || sp < lo || last > hi)
		return VB_SEEN_GO;
	vb_check_fill(c->process->space.base + sp, CHECK_FILL, last - sp);
	vb_check_set_unwritten(c, sp, last - sp, true);
	return vb_check_worked(thread, last - sp);
}

/* A stack pointer that was loaded is of another stack (a coroutine), or of longjmp(): no new frame. */
static inline enum vb_seen look_at_sp(struct check *c, struct vb_dpa_thread *thread)
{
	if (thread->check.sp_loaded) {
		thread->check.sp_loaded = false;
		thread->check.sp = thread->cpu.s.x[SP];
	}
	return thread->cpu.s.x[SP] == thread->check.sp ? VB_SEEN_GO : sp_moved(c, thread);
}

/* Whether the store under way stores what was loaded from unwritten memory. */
static bool stores_nothing(struct vb_dpa_thread *thread)
{
	struct check_thread *t = &thread->check;
	uint64_t instret = thread->cpu.s.instret;
	unsigned int kept = 0;
	bool match = false;

	for (unsigned int i = 0; i < t->ncopies; i++) {
		match |= t->copies[i] == instret;
		if (t->copies[i] > instret)
			t->copies[kept++] = t->copies[i];
	}
	t->ncopies = kept;
	return match;
}

/*
 * False: who is not seen has written there, or it is not there any more. Whole words are looked at:
 * one byte of what the card has written may well be CHECK_FILL.
 */
static bool is_filled(const struct check *c, uint64_t from, uint64_t to)
{
	uint8_t bytes[16];

	if (vb_view_read(vb_space_view(&c->process->space, from), bytes, to - from))
		return false;
	for (uint64_t at = from; at < to; at++)
		if (get(c->unwritten + at / 8) & 1U << at % 8 && bytes[at - from] != CHECK_FILL)
			return false;
	return true;
}

static __attribute__((noinline)) enum vb_seen load_of_nothing(struct check *c,
							      struct vb_dpa_thread *thread,
							      uint64_t addr, unsigned int size,
							      unsigned int kind)
{
	struct finding f = { FIND_UNINIT, addr, size, kind, thread, .bad = addr };
	uint64_t from = addr & ~7ULL, to = (addr + size + 7) & ~7ULL;

	if (!is_filled(c, from, to)) {
		vb_check_set_unwritten(c, from, to - from, false);
		return VB_SEEN_GO;
	}
	if (kind == VB_ACCESS_LOAD && vb_flow_follow(thread) != FLOW_USED)
		return VB_SEEN_GO;
	vb_check_set_unwritten(c, addr, size, false); /* found once is enough */
	return vb_check_found(c, &f);
}

static enum vb_seen see_value(struct check *c, struct vb_dpa_thread *thread, uint64_t addr,
			      unsigned int size, unsigned int kind)
{
	const uint8_t *at = c->unwritten + addr / 8;
	unsigned int mask = ((1U << size) - 1) << addr % 8;
	unsigned int bits = (get(at) | (unsigned int)get(at + 1) << 8) & mask;

	if (kind & VB_ACCESS_LOAD && bits == mask)
		return load_of_nothing(c, thread, addr, size, kind);
	if (!(kind & VB_ACCESS_STORE))
		return VB_SEEN_GO;
	if (thread->check.ncopies && stores_nothing(thread))
		vb_check_set_unwritten(c, addr, size, true);
	else if (bits)
		vb_check_set_unwritten(c, addr, size, false);
	return VB_SEEN_GO;
}

/* ---- what the observer is shown ---- */

static enum vb_seen check_on_access(struct vb_dpa_thread *thread, uint64_t addr, unsigned int size,
				    unsigned int kind, void *arg)
{
	struct check *c = arg;
	enum vb_seen moved = VB_SEEN_GO, seen = VB_SEEN_GO;

	if (c->checks & VB_CHECK_UNINIT) {
		moved = look_at_sp(c, thread);
		thread->check.sp_loaded = kind == VB_ACCESS_LOAD && insn_of(thread)->rd == SP;
	}
	if (addr >= c->limit)
		return moved; /* a window, or a device page */
	if (c->checks & VB_CHECK_HEAP && in_heaps(c, addr) && first_bad(c, addr, size))
		seen = bad_access(c, thread, addr, size, kind);
	if (c->checks & VB_CHECK_UNINIT && seen == VB_SEEN_GO)
		seen = see_value(c, thread, addr, size, kind);
	return seen != VB_SEEN_GO ? seen : moved;
}

void vb_check_ecall(struct vb_dpa_thread *thread)
{
	struct check *c = thread->process->check;

	/* The call may write to a frame that no access has shown yet. */
	if (c->checks & VB_CHECK_UNINIT)
		look_at_sp(c, thread);
}

void vb_check_forget(struct vb_dpa_process *process, uint64_t addr, uint64_t len)
{
	struct check *c = process->check;

	if (c && c->checks & VB_CHECK_UNINIT)
		vb_check_set_unwritten(c, addr, len, false);
}

/* ---- beginning and end ---- */

static int make_shadow(struct check *c)
{
	void *at;

	/* Two more: an access may end in the next byte, and one that crosses the limit is looked at. */
	c->shadow_len = c->limit / 8 + 16;
	at = mmap(NULL, 2 * c->shadow_len, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return -ENOMEM;
	c->reach = at;
	c->unwritten = c->reach + c->shadow_len;
	return 0;
}

static void watch_heap(struct check_heap *heap, struct vb_arena *arena)
{
	*heap = (struct check_heap){ .arena = arena,
				     .base = arena->base,
				     .len = arena->size,
				     .quarantine_max = arena->size / 4 };
	/* Nobody's, in front of the first block. */
	vb_arena_alloc(arena, VB_ARENA_ALIGN, VB_ARENA_ALIGN);
}

/* Memory for malloc, apart from everything else. A small guest has little of it, or none. */
static int make_malloc(struct check *c)
{
	uint64_t addr = 0, len = MALLOC_SIZE;
	int err;

	while (len > c->limit / 4)
		len /= 2;
	for (err = -ENOMEM; err && len >= MALLOC_MIN; len /= 2) {
		err = vb_space_map(&c->process->space, &addr, len, VB_DPA_READ | VB_DPA_WRITE, 1);
		if (!err)
			break;
	}
	if (err)
		return 0;
	err = vb_arena_init(&c->malloc_arena, addr, len);
	if (err)
		return err;
	watch_heap(&c->heaps[OWNER_MALLOC], &c->malloc_arena);
	return 0;
}

static int check_begin(struct check *c, const void *elf, size_t len)
{
	int err;

	c->elf = malloc(len);
	if (!c->elf)
		return -ENOMEM;
	memcpy(c->elf, elf, len);
	c->elf_len = len;
	err = make_shadow(c);
	if (!err)
		err = make_malloc(c);
	if (!err)
		err = vb_blocks_init(c);
	if (!err)
		err = vb_observe(c->process, OBSERVE_CHECK, &c->ops);
	if (!err)
		vb_libc_begin(c);
	return err;
}

int vb_check_begin(struct vb_dpa_process *process, uint32_t checks, const void *elf, size_t len)
{
	struct check *c;
	uint64_t size;

	if (!(checks & ~(uint32_t)VB_CHECK_CONTINUE))
		return 0;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	pthread_mutex_init(&c->lock, NULL);
	process->check = c;
	c->process = process;
	c->checks = checks;
	c->limit = process->space.limit;
	c->ops = (struct observe_ops){ .mark = vb_libc_mark, .access = check_on_access, .arg = c };
	if (!vb_dpa_symbol_value(process, "strlen", &c->strlen_from, &size))
		c->strlen_to = c->strlen_from + size;
	return check_begin(c, elf, len);
}

void vb_check_end(struct vb_dpa_process *process)
{
	struct check *c = process->check;

	if (!c)
		return;
	vb_blocks_free(c);
	vb_arena_destroy(&c->malloc_arena);
	if (c->reach)
		munmap(c->reach, 2 * c->shadow_len);
	pthread_mutex_destroy(&c->lock);
	free(c->elf);
	free(c);
	process->check = NULL;
}

/* ---- what the layer above says and asks ---- */

bool vb_dpa_check_heap(struct vb_dpa_process *process, struct vb_arena *arena)
{
	struct check *c = process->check;

	if (!c || !(c->checks & VB_CHECK_HEAP))
		return false;
	watch_heap(&c->heaps[OWNER_HEAP], arena);
	return true;
}

bool vb_dpa_check_malloc_holds(const struct vb_dpa_process *process, uint64_t addr, uint64_t len)
{
	const struct check_heap *heap =
		process->check ? &process->check->heaps[OWNER_MALLOC] : NULL;

	return heap && addr - heap->base < heap->len && len <= heap->len - (addr - heap->base);
}

uint64_t vb_dpa_check_alloc(struct vb_dpa_process *process, uint64_t size, uint64_t align,
			    const char *call)
{
	return vb_block_give(process->check, OWNER_HEAP, size, align,
			     &(struct trace){ .call = call });
}

bool vb_dpa_check_free(struct vb_dpa_process *process, uint64_t addr, const char *call)
{
	struct check *c = process->check;
	struct finding f = { .addr = addr, .bad = addr, .call = call };

	if (vb_block_take(c, OWNER_HEAP, addr, &(struct trace){ .call = call }, &f))
		return true;
	vb_check_found(c, &f);
	return false;
}

/* The first byte that may not be accessed, or end. */
static uint64_t find_bad(const struct check *c, uint64_t addr, uint64_t end)
{
	const uint64_t all = 0x0808080808080808ULL;

	while (addr < end) {
		uint64_t part = 8 - addr % 8;
		unsigned int bad;

		if (!(addr % 64) && end - addr >= 64 &&
		    __atomic_load_n((const uint64_t *)(c->reach + addr / 8), __ATOMIC_RELAXED) ==
			    all) {
			addr += 64;
			continue;
		}
		part = part < end - addr ? part : end - addr;
		bad = first_bad(c, addr, (unsigned int)part);
		if (bad)
			return addr + bad - 1;
		addr += part;
	}
	return end;
}

bool vb_dpa_check_range(struct vb_dpa_process *process, uint64_t addr, uint64_t len, bool write,
			const char *call)
{
	struct check *c = process->check;
	struct finding f = { .addr = addr, .size = len, .call = call };

	if (!c)
		return true;
	if (write && c->checks & VB_CHECK_UNINIT)
		vb_check_set_unwritten(c, addr, len, false);
	if (!(c->checks & VB_CHECK_HEAP) || !in_heaps(c, addr))
		return true;
	f.bad = find_bad(c, addr, addr + len);
	if (f.bad == addr + len)
		return true;
	f.access = write ? VB_ACCESS_STORE : VB_ACCESS_LOAD;
	f.kind = kind_at(c, f.bad);
	vb_check_found(c, &f);
	return c->checks & VB_CHECK_CONTINUE;
}

void vb_dpa_check_usage(struct vb_dpa_process *process, uint64_t *requested, uint64_t *allocated)
{
	struct check *c = process->check;

	pthread_mutex_lock(&c->lock);
	*requested = c->heaps[OWNER_HEAP].requested;
	*allocated = c->heaps[OWNER_HEAP].allocated;
	pthread_mutex_unlock(&c->lock);
}
