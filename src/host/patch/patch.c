// SPDX-License-Identifier: MIT
/*
 * Owns the patched sites: which ones, when, and the change of their bytes.
 *
 *	trap, trap, ... --> vb_patch_consider() --> no: reason, the trap stays
 *	                        |
 *	                        v
 *	            trampoline in a page of its own --> bytes changed --> patched
 *	                                                                     | mostly stores elsewhere
 *	                                                                     v
 *	                                                       bytes put back --> the trap, for ever
 *
 * A site is changed only by a thread that is executing it. So what stands there cannot be unmapped
 * at the same time by a correct program.
 */
#include "host/patch/patch.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/file.h"
#include "base/fork.h"

struct vb_patch_bounds vb_patch_bounds;

#if defined(__x86_64__)

#include <limits.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/env.h"
#include "host/fault.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/time.h"
#include "host/signals.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x10u
#endif

enum {
	JMP = 0xe9,
	ES = 0x26, /* a prefix that means nothing */
	LOCK = 0xf0,
	PAGE = 4096,
	DEFAULT_TRAPS = 32,
	FIRST_BUDGET = 4096,
	/*
	 * A store elsewhere takes a few nanoseconds longer through the trampoline; a trap takes
	 * two microseconds longer than a call.
	 */
	HIT_WORTH = 64,
	MOST_BUDGET = 1 << 20,
	MAX_TRIES = 6,
	KERNEL_SIGSET = 8,
	SKIP = 256,
	NEXT_PLACE = 16, /* bytes to the next place that is tried */
	MAX_PLACES = 16,
	STACK = 32768,
	YIELDS = 64,             /* before a thread that waits for a change sleeps */
	RINGS_TO_LOOK = 1 << 16, /* of a thread, before it looks for a debugger again */
};

#ifdef __SANITIZE_ADDRESS__
void __asan_unpoison_memory_region(const volatile void *at, size_t size);
#endif

static struct {
	uint32_t after; /* traps before a site is patched; 0: never */
	bool had_seccomp;
	struct vb_lock lock;
	_Atomic uint32_t *alive; /* see is_taken_over(); NULL: not known */
	_Atomic uint32_t count;  /* trampolines */
	struct vb_tramp tramps[VB_TRAMP_MAX];
	/*
	 * Patching is done on a stack of its own, whose owner has the lock: a thread or coroutine
	 * that rings may have a small one.
	 */
	_Alignas(64) uint8_t stack[STACK];
} patch;

/* Of a process; the kernel makes the first of them in a child of fork(). */
enum { FORKED, ALIVE, TAKING };

/* What a general protection fault of this thread was taken for a hlt of ours at. */
static _Thread_local struct {
	uintptr_t rip;
	uint32_t changes;
} repeated __attribute__((tls_model("initial-exec")));

/*
 * The stack's upper end; the lock is held, so nobody is on it. AddressSanitizer may take it for in use: in a child that was
 * forked while a thread of the parent's was.
 */
static uint8_t *empty_stack(void)
{
#ifdef __SANITIZE_ADDRESS__
	__asan_unpoison_memory_region(patch.stack, STACK);
#endif
	return patch.stack + STACK;
}

/* A change that the parent was making ends as it began; false where the kernel refuses. */
static bool end_changes(void)
{
	uint32_t count = atomic_load_explicit(&patch.count, memory_order_acquire), changes;

	for (uint32_t i = 0; i < count; i++) {
		struct vb_tramp *tramp = &patch.tramps[i];
		struct vb_site *site = tramp->entry;

		if (atomic_load_explicit(&site->tramp, memory_order_relaxed) != tramp)
			continue;
		changes = atomic_load_explicit(&site->changes, memory_order_acquire);
		if (changes & 1)
			vb_text_finish(site, tramp, changes);
		if (atomic_load_explicit(&site->changes, memory_order_relaxed) & 1)
			return false;
	}
	return true;
}

/*
 * In a child that was forked past libc, a lock that is held is held by nobody. The first one that
 * wants it makes it free; from then on threads wait for threads of this process.
 */
static bool is_taken_over(void)
{
	uint32_t state = FORKED;

	if (!patch.alive)
		return true;
	if (atomic_compare_exchange_strong_explicit(patch.alive, &state, TAKING,
						    memory_order_acquire, memory_order_acquire)) {
		state = end_changes() ? ALIVE : FORKED;
		if (state == ALIVE)
			atomic_store_explicit(&patch.lock.held, 0, memory_order_relaxed);
		atomic_store_explicit(patch.alive, state, memory_order_release);
	}
	return state == ALIVE;
}

/* The lock, with the program's signals blocked. */
static bool patch_try_lock(void)
{
	return is_taken_over() && vb_trylock(&patch.lock);
}

/* --- looking up --------------------------------------------------------------------------------- */

struct vb_tramp *vb_patch_at(uintptr_t rip)
{
	uint32_t count = atomic_load_explicit(&patch.count, memory_order_acquire);

	for (uint32_t i = 0; i < count; i++)
		if (patch.tramps[i].original == rip)
			return &patch.tramps[i];
	return NULL;
}

struct vb_tramp *vb_patch_executed(uintptr_t rip, uint8_t *code, size_t *len,
				   size_t (*read)(uintptr_t rip, uint8_t *code))
{
	struct vb_site *site = vb_site_find(rip);
	uint32_t changes = site ? atomic_load_explicit(&site->changes, memory_order_acquire) : 0;
	struct vb_tramp *tramp =
		site ? atomic_load_explicit(&site->tramp, memory_order_acquire) : NULL;

	*len = read(rip, code);
	atomic_thread_fence(memory_order_acquire);
	/*
	 * Another thread may have entered the site since, and patched it before the bytes were
	 * read. It began with no change, so that one is seen below.
	 */
	if (!site)
		site = vb_site_find(rip);
	if (!site)
		return NULL;
	if ((changes & 1) || atomic_load_explicit(&site->changes, memory_order_relaxed) != changes)
		return atomic_load_explicit(&site->tramp, memory_order_acquire);
	/* int3 stores nothing: somebody executed for us what stood below it. */
	return tramp && *len >= tramp->changed &&
			       (code[0] == tramp->jump[0] || code[0] == VB_INT3) &&
			       !memcmp(code + 1, tramp->jump + 1, tramp->changed - 1u)
		       ? tramp
		       : NULL;
}

uintptr_t vb_patch_strayed(uintptr_t rip)
{
	uint32_t count = atomic_load_explicit(&patch.count, memory_order_acquire);

	for (uint32_t i = 0; i < count; i++)
		if (vb_stray_led_to(&patch.tramps[i], rip)) {
			atomic_store_explicit(&patch.tramps[i].disturbed, true,
					      memory_order_relaxed);
			return patch.tramps[i].code_start;
		}
	return 0;
}

/* --- waiting ------------------------------------------------------------------------------------ */

/* Whoever is waited for may have a lower priority: then only a sleep lets it run. */
static void wait_a_little(unsigned int tries)
{
	if (tries < YIELDS)
		sched_yield();
	else
		vb_pause_ns(20000);
}

/* Waits until the bytes are not being changed; which change was the last one. */
static uint32_t await_change(struct vb_site *site, const struct vb_tramp *tramp)
{
	unsigned int tries = 0;
	uint32_t changes;

	while ((changes = atomic_load_explicit(&site->changes, memory_order_acquire)) & 1) {
		if (patch.alive &&
		    atomic_load_explicit(patch.alive, memory_order_relaxed) == FORKED)
			vb_text_finish(site, tramp, changes);
		wait_a_little(tries++);
	}
	return changes;
}

/*
 * The thread goes on at the site, unless a hlt is there that is the program's own: one that stands
 * there while nothing is being changed. The next change may begin right after the last one.
 *
 * A store can raise this fault itself, by an address that is not canonical or not aligned. What was
 * executed cannot be told afterwards. So it is repeated, once: no thread meets the hlt of one change
 * twice.
 */
bool vb_patch_halted(uintptr_t rip)
{
	struct vb_site *site = vb_site_find(rip);
	struct vb_tramp *tramp =
		site ? atomic_load_explicit(&site->tramp, memory_order_acquire) : NULL;
	uint32_t changes;
	uint8_t byte;

	if (!tramp)
		return false;
	do {
		changes = await_change(site, tramp);
		if (vb_fault_copy(&byte, (const void *)rip, 1))
			return false;
		atomic_thread_fence(memory_order_acquire);
	} while (byte == VB_HLT &&
		 atomic_load_explicit(&site->changes, memory_order_relaxed) != changes);
	if (byte == VB_HLT || (repeated.rip == rip && repeated.changes == changes))
		return false;
	repeated.rip = rip;
	repeated.changes = changes;
	return true;
}

/* --- trampolines -------------------------------------------------------------------------------- */

const struct vb_tramp *vb_tramp_next(uintptr_t from, uintptr_t to)
{
	uint32_t count = atomic_load_explicit(&patch.count, memory_order_relaxed);
	const struct vb_tramp *best = NULL;

	for (uint32_t i = 0; i < count; i++) {
		const struct vb_tramp *t = &patch.tramps[i];

		if (t->code_start < to && t->code_start + t->code_size > from &&
		    (!best || t->code_start < best->code_start))
			best = t;
	}
	return best;
}

/*
 * A file of executable code that nobody else can open: the descriptor or -1. Where it would be larger
 * than the program allows itself, the kernel would send SIGXFSZ.
 */
static int code_file(size_t length)
{
	struct rlimit limit;
	int fd;

	if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur < length)
		return -1;
	fd = memfd_create(VB_TRAMP_FILE, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(VB_TRAMP_FILE, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return vb_file_above_stdio(fd);
}

/*
 * On a page of its own, or in place of a page that has the same trampolines and one less: a thread
 * that executes one of them meanwhile waits in the kernel for a moment. No mapping is ever writable.
 * Between trampolines there is hlt: a jump that lands there is recognized (patch_stray.c).
 */
static bool map_code(const struct vb_place *place, const uint8_t *code, size_t size)
{
	uintptr_t page = place->entry & ~(uintptr_t)(PAGE - 1);
	size_t length = ((place->entry + size - page) + PAGE - 1) & ~(size_t)(PAGE - 1);
	int how = MAP_PRIVATE | (place->shared ? MAP_FIXED : MAP_FIXED_NOREPLACE);
	uint8_t bytes[2 * PAGE];
	int fd = length <= sizeof(bytes) ? code_file(length) : -1;
	void *map = MAP_FAILED;

	if (fd < 0)
		return false;
	if (place->shared)
		memcpy(bytes, (const void *)page, length);
	else
		memset(bytes, VB_HLT, length);
	memcpy(bytes + (place->entry - page), code, size);
	if (vb_sys_pwrite(fd, bytes, length, 0) == (ssize_t)length &&
	    !fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		map = mmap((void *)page, length, PROT_READ | PROT_EXEC, how, fd, 0);
	vb_sys_close(fd);
	if (map != MAP_FAILED && map != (void *)page) {
		munmap(map, length); /* a kernel that takes the address for a hint */
		map = MAP_FAILED;
	}
	return map != MAP_FAILED;
}

static void make_jump(struct vb_tramp *tramp, const struct vb_jump_window *window)
{
	unsigned int p = window->prefixes;
	int32_t rel = (int32_t)(tramp->code_start - (tramp->site + p + VB_JUMP));

	memset(tramp->jump, ES, p);
	tramp->jump[p] = JMP;
	memcpy(tramp->jump + p + 1, &rel, sizeof(rel));
	tramp->span = (uint8_t)(p + VB_JUMP);
	tramp->changed = tramp->form.length < tramp->span ? tramp->form.length : tramp->span;
}

/* A jump whose last bytes are its neighbour's ends elsewhere when the neighbour is changed. */
static bool patch_overlaps(uintptr_t site, size_t span)
{
	uint32_t count = atomic_load_explicit(&patch.count, memory_order_relaxed);

	for (uint32_t i = 0; i < count; i++) {
		const struct vb_tramp *t = &patch.tramps[i];

		if (t->site != site && site < t->site + t->span && t->site < site + span &&
		    !atomic_load_explicit(&t->restored, memory_order_relaxed))
			return true;
	}
	return false;
}

/* Those of its windows whose jump touches no other one. */
static unsigned int free_windows(uintptr_t site, const uint8_t *bytes, unsigned int length,
				 struct vb_jump_window *windows)
{
	unsigned int all = vb_jump_windows(site, bytes, length, windows), count = 0;

	for (unsigned int i = 0; i < all; i++)
		if (!patch_overlaps(site, (size_t)windows[i].prefixes + VB_JUMP))
			windows[count++] = windows[i];
	return count;
}

/* --- whether ------------------------------------------------------------------------------------ */

/* By a system call: libc's function is the program's, too (host/signal_wrappers.c). */
static bool has_seccomp(void)
{
	return syscall(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0) != 0;
}

/*
 * A program that has closed itself in since may be ended for a system call that it does not know, even
 * for the question. So what it announced by libc's functions is believed without one.
 */
static bool is_closed_in(void)
{
	return vb_fault_is_closing_in() || (!patch.had_seccomp && has_seccomp());
}

/*
 * A child of vfork() may be killed in the middle of a change, which its parent would wait for; and of
 * the parent's threads and handlers it knows nothing.
 */
static bool is_held_off(void)
{
	return is_closed_in() || vb_signal_is_borrowed();
}

/*
 * A breakpoint behind the store: the jump would lead elsewhere when it goes. Right behind a store it is
 * nothing else; further on it may be what the compiler filled up with, unless it was not there before.
 */
static bool has_probe(uintptr_t rip, const uint8_t *code, size_t length)
{
	uint32_t count = atomic_load_explicit(&patch.count, memory_order_relaxed);
	uint8_t now[VB_STORE_CODE_MAX];

	if (length >= VB_JUMP ||
	    vb_fault_copy(now, (const void *)(rip + length), sizeof(now) - length))
		return false;
	if (now[0] == VB_INT3)
		return true;
	for (uint32_t i = 0; i < count; i++) {
		const struct vb_tramp *t = &patch.tramps[i];

		if (t->site != rip || t->form.length != length || memcmp(t->code, code, length))
			continue;
		for (size_t n = t->changed; n < t->span; n++)
			if (now[n - length] == VB_INT3 && t->jump[n] != VB_INT3)
				return true;
	}
	return false;
}

/* What can be said without a look at the process. */
static enum vb_site_reason patch_refuse(uintptr_t rip, const uint8_t *code,
					const struct vb_store_form *form)
{
	if (!vb_tramp_can(form))
		return VB_SITE_FORM;
	/*
	 * Somebody may jump over a lock prefix: into the middle of what we change, or to where a
	 * jump would then be locked.
	 */
	if (form->kind == VB_STORE_EXCHANGE &&
	    (rip % PAGE == 0 || *(const uint8_t *)(rip - 1) == LOCK || memchr(code, LOCK, 3)))
		return VB_SITE_FORM;
	if (vb_place_is_exempt(rip))
		return VB_SITE_EXEMPT;
	if (is_held_off())
		return VB_SITE_REFUSED;
	return has_probe(rip, code, form->length) ? VB_SITE_TRACED : vb_proc_tracer();
}

/* Whether a jump of another site would land there, were there breakpoints behind it. */
static bool is_landing(uintptr_t from, uintptr_t to)
{
	uint32_t count = atomic_load_explicit(&patch.count, memory_order_relaxed);
	uintptr_t at[VB_LANDINGS];

	for (uint32_t i = 0; i < count; i++)
		for (unsigned int n = vb_stray_landings(&patch.tramps[i], at); n--;)
			if (at[n] >= from && at[n] < to)
				return true;
	return false;
}

/* Whether a thread at one of its landings could have come from another site. */
static bool shares_landing(const struct vb_tramp *tramp)
{
	uintptr_t at[VB_LANDINGS];

	for (unsigned int n = vb_stray_landings(tramp, at); n--;)
		if (is_landing(at[n], at[n] + 1))
			return true;
	return false;
}

/* The trampoline of a site at this place, mapped; tramp is filled in. bytes: what stands at the site. */
static enum vb_site_reason place_tramp(struct vb_tramp *tramp, const struct vb_place *place,
				       const struct vb_jump_window *window, const uint8_t *bytes,
				       size_t n)
{
	uint8_t text[PAGE / 4];

	if (!vb_tramp_build(tramp, place->entry, text, sizeof(text)))
		return VB_SITE_PLACE;
	make_jump(tramp, window);
	tramp->starts = vb_stray_starts(bytes, n, tramp->changed, tramp->span);
	if (vb_tramp_next(place->entry, place->entry + tramp->code_size) ||
	    is_landing(place->entry, place->entry + tramp->code_size) || shares_landing(tramp) ||
	    memcmp(tramp->jump + tramp->changed, bytes + tramp->changed,
		   (size_t)tramp->span - tramp->changed) ||
	    !vb_stray_close(tramp))
		return VB_SITE_PLACE;
	return map_code(place, text, tramp->code_size) ? VB_SITE_NONE : VB_SITE_REFUSED;
}

/* What is left of a window without the places up to this one, which is the nearest. */
static void narrow(struct vb_jump_window *window, uintptr_t entry, uintptr_t site)
{
	if (entry > site)
		window->low = entry + NEXT_PLACE;
	else
		window->high = entry;
}

/* In one of the windows of the site. */
static enum vb_site_reason try_windows(struct vb_tramp *tramp, const uint8_t *bytes, size_t n)
{
	const struct vb_store_form *form = &tramp->form;
	struct vb_jump_window windows[VB_JUMP_WINDOWS];
	unsigned int count = free_windows(tramp->site, bytes, form->length, windows);
	enum vb_site_reason reason = VB_SITE_OVERLAP;
	struct vb_place place;

	for (unsigned int tries = 0; count && tries < MAX_PLACES; tries++) {
		reason = vb_place_find(tramp->site, form->length + (size_t)VB_JUMP,
				       vb_tramp_size(form) + tramp->skip, windows, count, &place);
		if (reason)
			break;
		reason = place_tramp(tramp, &place, &windows[place.window], bytes, n);
		if (reason != VB_SITE_PLACE)
			break;
		if (shares_landing(tramp))
			narrow(&windows[place.window], place.entry, tramp->site);
		else
			windows[place.window] = windows[--count];
	}
	return reason;
}

/* A breakpoint that changes the lowest byte of the distance leads into the code, if none is skipped. */
static enum vb_site_reason make_tramp(struct vb_tramp *tramp)
{
	uint8_t bytes[VB_STORE_CODE_MAX + VB_JUMP];
	enum vb_site_reason reason;

	if (vb_fault_copy(bytes, (const void *)tramp->site, sizeof(bytes)) ||
	    memcmp(bytes, tramp->code, tramp->form.length))
		return VB_SITE_TEXT;
	reason = try_windows(tramp, bytes, sizeof(bytes));
	if (reason == VB_SITE_PLACE) {
		tramp->skip = SKIP;
		reason = try_windows(tramp, bytes, sizeof(bytes));
	}
	return reason;
}

/* A library that was unloaded often comes back to the same place: its trampolines are still there. */
static struct vb_tramp *patch_find_old(uintptr_t rip, const uint8_t *code, size_t length)
{
	uint32_t count = atomic_load_explicit(&patch.count, memory_order_relaxed);

	for (uint32_t i = 0; i < count; i++) {
		struct vb_tramp *t = &patch.tramps[i];
		uint8_t foreign[VB_STORE_CODE_MAX];
		size_t n = (size_t)t->span - t->changed;

		if (t->site == rip && t->form.length == length && !memcmp(t->code, code, length) &&
		    !vb_fault_copy(foreign, (const void *)(rip + t->changed), n) &&
		    !memcmp(foreign, t->jump + t->changed, n) && !patch_overlaps(rip, t->span))
			return t;
	}
	return NULL;
}

static enum vb_site_reason patch_use(struct vb_site *site, struct vb_tramp *tramp)
{
	atomic_store_explicit(&tramp->budget, FIRST_BUDGET, memory_order_relaxed);
	atomic_store_explicit(&tramp->restored, false, memory_order_relaxed);
	/* Before the first byte changes: handlers must find it. */
	atomic_store_explicit(&site->tramp, tramp, memory_order_release);
	if (vb_text_change(site, tramp->site, tramp->code, tramp->jump, tramp->changed))
		return VB_SITE_NONE;
	atomic_store_explicit(&tramp->restored, true, memory_order_relaxed);
	return VB_SITE_REFUSED;
}

static enum vb_site_reason try_patch(struct vb_site *site, uintptr_t rip, const uint8_t *code,
				     const struct vb_store_form *form)
{
	enum vb_site_reason reason = patch_refuse(rip, code, form);
	uint32_t count = atomic_load_explicit(&patch.count, memory_order_relaxed);
	struct vb_tramp *tramp = patch_find_old(rip, code, form->length);

	if (reason)
		return reason;
	if (tramp)
		return patch_use(site, tramp);
	if (count == VB_TRAMP_MAX)
		return VB_SITE_FULL;
	tramp = &patch.tramps[count];
	*tramp = (struct vb_tramp){ .site = rip, .entry = site, .form = *form };
	memcpy(tramp->code, code, form->length);
	if (form->source == VB_STORE_FROM_VECTOR || form->mask != VB_STORE_MASK_NONE)
		tramp->vectors = vb_patch_components;
	reason = make_tramp(tramp);
	if (reason)
		return reason;
	atomic_store_explicit(&patch.count, count + 1, memory_order_release);
	return patch_use(site, tramp);
}

/* No signal at all, because an interrupted change would make this thread wait for itself. */
static void block_all(sigset_t *before)
{
	const uint64_t all = ~VB_SIGNALS_OF_FAULTS;

	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, before, KERNEL_SIGSET);
}

/* --- entry points ------------------------------------------------------------------------------- */

/* A consistent copy of what the table says. */
static bool read_site(struct vb_site *site, uint8_t *code, struct vb_store_form *form)
{
	uint32_t version = atomic_load_explicit(&site->version, memory_order_acquire);

	memcpy(code, site->code, sizeof(site->code));
	*form = site->form;
	atomic_thread_fence(memory_order_acquire);
	return !(version & 1) &&
	       atomic_load_explicit(&site->version, memory_order_relaxed) == version;
}

/* It may be over later: a limit, a thread that just starts, a debugger. */
static bool may_pass(enum vb_site_reason reason)
{
	return reason == VB_SITE_REFUSED || reason == VB_SITE_TRACED;
}

static void try_later(struct vb_site *site)
{
	atomic_fetch_add_explicit(&site->tries, 1, memory_order_relaxed);
	atomic_store_explicit(&site->traps, 0, memory_order_relaxed);
}

/* What became of an attempt. */
static void note_attempt(struct vb_site *site, enum vb_site_reason reason)
{
	if (may_pass(reason))
		try_later(site);
	vb_patch_keep_trap(site, reason);
	if (!reason)
		vb_patch_count_patched(1);
}

/* It was patched, and then the code was loaded anew. */
static void forget_jump(struct vb_site *site)
{
	struct vb_tramp *old = atomic_load_explicit(&site->tramp, memory_order_relaxed);

	if (old && !atomic_exchange_explicit(&old->restored, true, memory_order_relaxed))
		vb_patch_count_patched(-1);
}

static bool may_try(struct vb_site *site)
{
	enum vb_site_reason reason = atomic_load_explicit(&site->reason, memory_order_relaxed);

	return reason == VB_SITE_NONE || may_pass(reason);
}

static void patch_now(void *arg)
{
	VB_NO_CANCEL;
	struct vb_site *site = arg;
	uintptr_t rip = atomic_load_explicit(&site->rip, memory_order_relaxed);
	struct vb_store_form form;
	uint8_t code[VB_STORE_CODE_MAX];
	sigset_t before;

	block_all(&before);
	/* Another thread may have done it meanwhile. */
	if (may_try(site) && read_site(site, code, &form) &&
	    !memcmp((const void *)rip, code, form.length)) {
		vb_fault_find_handlers();
		forget_jump(site);
		note_attempt(site, try_patch(site, rip, code, &form));
	}
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, KERNEL_SIGSET);
}

/*
 * How many traps are enough. What was refused may work later, because a thread that just starts
 * blocks all signals for a moment: each time the wait is four times as long.
 */
static uint64_t traps_needed(struct vb_site *site)
{
	uint32_t tries = atomic_load_explicit(&site->tries, memory_order_relaxed);

	return (uint64_t)patch.after << 2 * (tries < MAX_TRIES ? tries : MAX_TRIES);
}

void vb_patch_consider(struct vb_site *site)
{
	uint32_t traps = atomic_fetch_add_explicit(&site->traps, 1, memory_order_relaxed) + 1;

	if (!may_try(site) || traps < traps_needed(site))
		return;
	if (!patch.after) {
		vb_patch_keep_trap(site, VB_SITE_OFF);
		return;
	}
	/* Before the first system call: the program may have forbidden any of them. */
	if (is_held_off()) {
		note_attempt(site, VB_SITE_REFUSED);
		return;
	}
	if (!patch_try_lock())
		return; /* the next trap, then */
	vb_trap_call_on(empty_stack(), patch_now, site);
	vb_unlock(&patch.lock);
}

struct put_back {
	struct vb_tramp *tramp;
	enum vb_site_reason reason;
	bool covered; /* a breakpoint is the first byte, and stays there */
};

/* Where something else stands there by now it stays as it is. */
static void patch_put_back(void *arg)
{
	const struct put_back *back = arg;
	struct vb_tramp *tramp = back->tramp;
	struct vb_site *site = tramp->entry;

	if (atomic_load_explicit(&site->tramp, memory_order_relaxed) != tramp ||
	    atomic_load_explicit(&tramp->restored, memory_order_relaxed) ||
	    !(back->covered ? vb_text_change_below(tramp)
			    : vb_text_change(site, tramp->site, tramp->jump, tramp->code,
					     tramp->changed)))
		return;
	atomic_store_explicit(&tramp->restored, true, memory_order_relaxed);
	vb_patch_count_patched(-1);
	if (may_pass(back->reason))
		try_later(site);
	vb_patch_keep_trap(site, back->reason);
}

/*
 * A uprobe: the kernel executed for us the instruction of the file, and when the probe goes, it puts
 * back the first byte of that. A debugger would put back the byte that it found, which is the jump's.
 */
void vb_patch_uncover(struct vb_tramp *tramp)
{
	VB_NO_CANCEL;
	struct put_back back = { tramp, VB_SITE_TRACED, true };

	if (is_held_off() || vb_proc_tracer() || !patch_try_lock())
		return; /* the next trap, then */
	vb_trap_call_on(empty_stack(), patch_put_back, &back);
	vb_unlock(&patch.lock);
}

/* A fault on our stack would then be put on top of the frames there. */
static bool is_on_alternate(void)
{
	stack_t now;

	return sigaltstack(NULL, &now) || (now.ss_flags & SS_ONSTACK);
}

void vb_patch_restore(struct vb_tramp *tramp, enum vb_site_reason reason)
{
	VB_NO_CANCEL;
	struct put_back back = { tramp, reason, false };
	sigset_t before;

	/* Where it cannot be: not at every store again. */
	atomic_store_explicit(&tramp->budget, MOST_BUDGET, memory_order_relaxed);
	if (is_held_off())
		return;
	if (is_on_alternate()) {
		atomic_store_explicit(&tramp->budget, FIRST_BUDGET, memory_order_relaxed);
		return;
	}
	block_all(&before);
	if (patch_try_lock()) {
		vb_trap_call_on(empty_stack(), patch_put_back, &back);
		vb_unlock(&patch.lock);
	}
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, KERNEL_SIGSET);
}

static bool is_traced(void)
{
	VB_NO_CANCEL;
	sigset_t before;
	bool traced;

	if (is_held_off())
		return false;
	/* A handler that leaves by a jump would leave a descriptor behind. */
	block_all(&before);
	traced = vb_proc_tracer() == VB_SITE_TRACED;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, KERNEL_SIGSET);
	return traced;
}

/* Whether the bytes of the site are better as they were; why. */
static enum vb_site_reason is_unwanted(struct vb_tramp *tramp)
{
	static _Thread_local uint32_t rings __attribute__((tls_model("initial-exec")));

	if (atomic_load_explicit(&tramp->disturbed, memory_order_relaxed)) {
		atomic_store_explicit(&tramp->disturbed, false, memory_order_relaxed);
		return VB_SITE_TRACED;
	}
	return ++rings % RINGS_TO_LOOK || !is_traced() ? VB_SITE_NONE : VB_SITE_TRACED;
}

void vb_patch_hit(struct vb_tramp *tramp)
{
	int64_t budget = atomic_load_explicit(&tramp->budget, memory_order_relaxed);
	enum vb_site_reason reason = is_unwanted(tramp);

	if (reason || budget < 0)
		vb_patch_restore(tramp, reason ? reason : VB_SITE_RESTORED);
	else if (budget < FIRST_BUDGET)
		atomic_store_explicit(&tramp->budget, budget + HIT_WORTH, memory_order_relaxed);
}

/* --- set-up ------------------------------------------------------------------------------------- */

/* on, off, first (the same as 1), or the number of traps before a site is patched. */
static uint32_t read_environment(void)
{
	const char *text = vb_getenv("VERBATIM_PATCH");
	unsigned long n;
	char *end;

	if (!text || !*text || !strcmp(text, "on"))
		return DEFAULT_TRAPS;
	if (!strcmp(text, "off"))
		return 0;
	if (!strcmp(text, "first"))
		return 1;
	n = strtoul(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end || !n || n > UINT32_MAX) {
		vb_warn("VERBATIM_PATCH=%s: it can be on, off, first, or a number of traps", text);
		return 0;
	}
	return (uint32_t)n;
}

/* No thread of a child finds a site half changed. */
static void patch_prepare(void)
{
	for (unsigned int tries = 0; !patch_try_lock(); tries++)
		wait_a_little(tries);
}

static void patch_parent(void)
{
	vb_unlock(&patch.lock);
}

static void patch_forked(void)
{
	if (patch.alive)
		atomic_store_explicit(patch.alive, ALIVE, memory_order_relaxed);
	vb_unlock(&patch.lock);
}

VB_STAGE(PATCH, .prepare = patch_prepare, .parent = patch_parent, .child = patch_forked);

static void map_alive(void)
{
	void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return;
	if (madvise(page, PAGE, MADV_WIPEONFORK)) {
		munmap(page, PAGE);
		return;
	}
	patch.alive = page;
	atomic_store_explicit(patch.alive, ALIVE, memory_order_relaxed);
}

static void patch_setup(void)
{
	uint32_t after = read_environment();

	/*
	 * ThreadSanitizer, in the program or in this build, knows nothing of text that changes. What
	 * threads write on the stack that they take turns on would be races to it.
	 */
	if (dlsym(RTLD_DEFAULT, "__tsan_init"))
		after = 0;
	dlerror(); /* that there is none is nothing to the program */
	if (!after || !vb_patch_thunk_setup() ||
	    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0))
		return;
	vb_place_setup();
	vb_fault_forget_closing_in();
	patch.had_seccomp = has_seccomp();
	map_alive();
	if (!vb_forks_are_watched())
		return;
	patch.after = after;
}

void vb_patch_setup(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, patch_setup);
}

#endif
