// SPDX-License-Identifier: MIT
/*
 * Owns accesses at or above the limit: a thread's table of windows and device pages, and the rule
 * that none is in use once it was taken away.
 *
 *   guest thread                            vb_access_invalidate
 *     accessing = odd                         (the source has forgotten the window)
 *     compiler barrier                        entry.len = 0 in every table
 *     look into the table or ask the source   membarrier: every barrier becomes a real one
 *     access                                  wait until accessing was even or moved on
 *     accessing = even                        twice, for an entry that was being filled meanwhile
 *
 * The guest's side pays no fence for what almost never happens. Where membarrier is refused, both
 * sides fence, translated code (jit/emit_mem.c) included. Where it is refused later, by a filter
 * that the program gave itself meanwhile, taking rights away from a page makes x86-64 kernels
 * interrupt every CPU that runs a thread of ours, which is the same barrier by another name (not
 * where the CPU tells the others by itself, as the newest ones of AMD do). Other hosts always
 * fence.
 */
#include "dpa/cpu/cpu.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lock.h"

/* There is no membarrier: both sides fence. Written once, before the first access. */
static bool fence_always;
static pthread_once_t fence_once = PTHREAD_ONCE_INIT;

/* The page of barrier_by_page; NULL: none. */
static _Atomic(uint32_t) *page;
static struct vb_lock page_lock;

#define PAGE_BYTES 4096

static void fence_init(void)
{
#if defined(__x86_64__)
	page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		page = NULL;
#endif
	fence_always = !page || syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
					0, 0) != 0;
}

/* All CPUs that run us must forget what they know of the page, and are interrupted for that. */
static void barrier_by_page(void)
{
	vb_lock(&page_lock);
	mprotect((void *)page, PAGE_BYTES, PROT_READ | PROT_WRITE);
	atomic_fetch_add(page, 1);
	mprotect((void *)page, PAGE_BYTES, PROT_NONE);
	vb_unlock(&page_lock);
}

/* Every running thread of the process passes a full barrier before this returns. */
static void barrier_everywhere(void)
{
	vb_cpu_fence();
	if (fence_always || !syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
		return;
	/* A child of fork(2) registers anew. */
	if (syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) ||
	    syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
		barrier_by_page();
}

void vb_access_init(void)
{
	pthread_once(&fence_once, fence_init);
}

bool vb_access_fences(void)
{
	return fence_always;
}

static void access_begin(struct vb_cpu *cpu)
{
	unsigned int n = atomic_load_explicit(&cpu->accessing, memory_order_relaxed);

	atomic_store_explicit(&cpu->accessing, n | 1, memory_order_relaxed);
	if (fence_always)
		vb_cpu_fence();
	else
		atomic_signal_fence(memory_order_seq_cst);
}

void vb_access_end(struct vb_cpu *cpu)
{
	unsigned int n = atomic_load_explicit(&cpu->accessing, memory_order_relaxed);

	/* Pairs with the acquire in quiesce: what the access did is done. */
	if (n & 1)
		atomic_store_explicit(&cpu->accessing, n + 1, memory_order_release);
}

/*
 * *offset: of the access in the entry, from one look at its length, which others may take away at
 * any time. What was found to be in use stays valid until the access ends.
 */
static bool access_holds(const struct vb_access_entry *e, uint64_t len, uint64_t addr,
			 unsigned int size, uint64_t *offset)
{
	*offset = vb_cpu_below(addr - e->tag, len);
	return addr - e->tag < len && len - (addr - e->tag) >= size;
}

static bool entry_holds(const struct vb_access_entry *e, uint64_t addr, unsigned int size,
			uint64_t *offset)
{
	return access_holds(e, atomic_load_explicit(&e->len, memory_order_relaxed), addr, size,
			    offset);
}

/* Let translated code use this entry without asking. */
static void copy_entry(struct vb_cpu *cpu, const struct vb_access_entry *e)
{
	uint64_t len = atomic_load_explicit(&e->len, memory_order_relaxed);
	uint64_t end = e->host && len >= 8 ? len - 7 : 0;

	cpu->window_tag = e->tag;
	cpu->window_host = e->host;
	atomic_store_explicit(&cpu->window_load, e->rights & VB_DPA_READ ? end : 0,
			      memory_order_relaxed);
	atomic_store_explicit(&cpu->window_store, e->rights & VB_DPA_WRITE ? end : 0,
			      memory_order_relaxed);
}

static struct vb_access_entry *access_refill(struct vb_cpu *cpu, uint64_t addr)
{
	struct vb_access_entry *e;

	cpu->table_misses++;
	cpu->table_last = cpu->table_next++ % VB_CPU_TABLE_SLOTS;
	e = &cpu->table[cpu->table_last];
	atomic_store_explicit(&e->len, 0, memory_order_relaxed);
	if (!cpu->source.find || !cpu->source.find(cpu->source.arg, cpu->thread, addr, e))
		return NULL;
	return e;
}

/* Under access_begin. The table is a short list with the latest hit in front. */
static const struct vb_access_entry *access_find(struct vb_cpu *cpu, uint64_t addr,
						 unsigned int size, uint64_t *offset)
{
	struct vb_access_entry *e = &cpu->table[cpu->table_last];
	uint64_t len;

	if (entry_holds(e, addr, size, offset))
		return e;
	for (unsigned int i = 0; i < VB_CPU_TABLE_SLOTS; i++) {
		if (entry_holds(&cpu->table[i], addr, size, offset)) {
			cpu->table_last = i;
			return &cpu->table[i];
		}
	}
	/*
	 * An entry may be emptied as soon as it is filled: its window is being changed, or that was
	 * a wrong guess of vb_access_invalidate. That is no reason for a trap, so the source is
	 * asked again.
	 */
	do {
		e = access_refill(cpu, addr);
		len = e ? atomic_load_explicit(&e->len, memory_order_relaxed) : 0;
	} while (e && !len);
	return e && access_holds(e, len, addr, size, offset) ? e : NULL;
}

static const struct vb_access_entry *access_lookup(struct vb_cpu *cpu, uint64_t addr,
						   unsigned int size, uint64_t *offset)
{
	const struct vb_access_entry *e;

	if (addr < VB_DPA_WINDOW_BASE || addr >= VB_DPA_WINDOW_END)
		return NULL;
	e = access_find(cpu, addr, size, offset);
	if (e)
		copy_entry(cpu, e);
	return e;
}

VB_GUEST_ACCESS static uint64_t host_load(const uint8_t *p, unsigned int size)
{
	switch (size) {
	case 1:
		return *(const volatile uint8_t *)p;
	case 2:
		return ((const volatile struct { uint16_t v; }
			 __attribute__((packed, may_alias)) *)p)
			->v;
	case 4:
		return ((const volatile struct { uint32_t v; }
			 __attribute__((packed, may_alias)) *)p)
			->v;
	default:
		return ((const volatile struct { uint64_t v; }
			 __attribute__((packed, may_alias)) *)p)
			->v;
	}
}

VB_GUEST_ACCESS static void host_store(uint8_t *p, unsigned int size, uint64_t value)
{
	switch (size) {
	case 1:
		*(volatile uint8_t *)p = (uint8_t)value;
		break;
	case 2:
		((volatile struct { uint16_t v; } __attribute__((packed, may_alias)) *)p)->v =
			(uint16_t)value;
		break;
	case 4:
		((volatile struct { uint32_t v; } __attribute__((packed, may_alias)) *)p)->v =
			(uint32_t)value;
		break;
	default:
		((volatile struct { uint64_t v; } __attribute__((packed, may_alias)) *)p)->v =
			value;
	}
}

/*
 * A device page's callback may take long and may take windows away, so it runs outside of the
 * access: the window is held by its user count instead.
 */
static struct vb_dpa_window *device_hold(struct vb_cpu *cpu, const struct vb_access_entry *e)
{
	struct vb_dpa_window *w = e->window;

	/* One that lasts needs no count, which all threads of the process would write. */
	if (!w->device->permanent)
		atomic_fetch_add_explicit(&w->users, 1, memory_order_relaxed);
	vb_access_end(cpu);
	return w;
}

static void device_release(struct vb_dpa_window *w)
{
	/* Pairs with the acquire in vb_dpa_window_destroy. */
	if (!w->device->permanent)
		atomic_fetch_sub_explicit(&w->users, 1, memory_order_release);
}

bool vb_access_load(struct vb_cpu *cpu, uint64_t addr, unsigned int size, uint64_t *value)
{
	const struct vb_access_entry *e;
	uint64_t offset;
	bool ok = false;

	access_begin(cpu);
	e = access_lookup(cpu, addr, size, &offset);
	if (e && e->host && e->rights & VB_DPA_READ) {
		*value = host_load(e->host + offset, size);
		ok = true;
	} else if (e && !e->host) {
		struct vb_dpa_window *w = device_hold(cpu, e);
		jmp_buf *fault = cpu->fault;

		/* A fault inside the callback is the host program's, not the guest's. */
		cpu->fault = NULL;
		ok = w->device->load &&
		     !w->device->load(cpu->thread, addr - w->addr, size, value, w->device_arg);
		cpu->fault = fault;
		device_release(w);
	}
	vb_access_end(cpu);
	return ok;
}

bool vb_access_store(struct vb_cpu *cpu, uint64_t addr, unsigned int size, uint64_t value)
{
	const struct vb_access_entry *e;
	uint64_t offset;
	bool ok = false;

	access_begin(cpu);
	e = access_lookup(cpu, addr, size, &offset);
	if (e && e->host && e->rights & VB_DPA_WRITE) {
		host_store(e->host + offset, size, value);
		ok = true;
	} else if (e && !e->host) {
		struct vb_dpa_window *w = device_hold(cpu, e);
		jmp_buf *fault = cpu->fault;

		if (size < 8)
			value &= (1ULL << 8 * size) - 1;
		cpu->fault = NULL;
		ok = w->device->store &&
		     !w->device->store(cpu->thread, addr - w->addr, size, value, w->device_arg);
		cpu->fault = fault;
		device_release(w);
	}
	vb_access_end(cpu);
	return ok;
}

void *vb_access_atomic_begin(struct vb_cpu *cpu, uint64_t addr, unsigned int size,
			     unsigned int rights)
{
	const struct vb_access_entry *e;
	uint64_t offset;
	uint8_t *p;

	access_begin(cpu);
	e = access_lookup(cpu, addr, size, &offset);
	if (e && e->host && (e->rights & rights) == rights) {
		p = e->host + offset;
		/*
		 * The guest address is aligned; if the window is not, the host could not do it
		 * atomically.
		 */
		if (!((uintptr_t)p & (size - 1)))
			return p;
	}
	vb_access_end(cpu);
	return NULL;
}

/* Wait until the access that was under way, if any, is over. */
static void quiesce(struct vb_cpu *cpu)
{
	unsigned int n = atomic_load_explicit(&cpu->accessing, memory_order_acquire);

	while (n & 1 && atomic_load_explicit(&cpu->accessing, memory_order_acquire) == n)
		sched_yield();
}

void vb_access_invalidate(struct vb_cpu *cpus, const struct vb_dpa_window *window)
{
	for (unsigned int round = 0; round < 2; round++) {
		for (struct vb_cpu *cpu = cpus; cpu; cpu = cpu->next) {
			atomic_store_explicit(&cpu->window_load, 0, memory_order_relaxed);
			atomic_store_explicit(&cpu->window_store, 0, memory_order_relaxed);
			for (unsigned int i = 0; i < VB_CPU_TABLE_SLOTS; i++)
				/*
				 * A wrong guess while the owner refills the slot costs it one more
				 * miss.
				 */
				if (__atomic_load_n(&cpu->table[i].window, __ATOMIC_RELAXED) ==
				    window)
					atomic_store_explicit(&cpu->table[i].len, 0,
							      memory_order_relaxed);
		}
		barrier_everywhere();
		for (struct vb_cpu *cpu = cpus; cpu; cpu = cpu->next)
			quiesce(cpu);
	}
}
