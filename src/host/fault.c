// SPDX-License-Identifier: MIT
/*
 * Owns the SIGSEGV and SIGBUS handlers and the recovery points behind vb_fault_*().
 *
 *	vb_fault_copy: thread's guard := here ---> memcpy ---> guard := NULL
 *	                                             | fault
 *	handler: guard set? ---- yes: jump back to "here", return -EFAULT
 *	             |
 *	             no: the registered handlers in turn, then the one that was there before us
 *
 * There is one owner of these signals in a process. Two that each chain to whoever was there before
 * can end up chained to one another, for ever.
 *
 * The guard is thread-local and in the initial-exec model: a general-dynamic access would cost more
 * than the copy of a small message.
 */
#include "host/fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/barrier.h"
#include "base/fork.h"
#include "base/lock.h"
#include "host/signals.h"
#include "host/thread.h"
#include "base/tsan.h"

/*
 * ThreadSanitizer must see jumps, and must not look at what the card does to program memory: that
 * is DMA, and whether the program may touch a buffer at that time is between the program and its
 * completions.
 */
#ifdef VB_TSAN
#include <setjmp.h>

void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

struct guard {
	jmp_buf jump;
};

#define set_jump(guard) _setjmp((guard)->jump)
#define do_jump(guard)  _longjmp((guard)->jump, 1)

static void dma_begin(void)
{
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
	AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static void dma_end(void)
{
	AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
struct guard {
	void *jump[5]; /* the buffer of __builtin_setjmp */
};

#define set_jump(guard) __builtin_setjmp((guard)->jump)
#define do_jump(guard)  __builtin_longjmp((guard)->jump, 1)
#define dma_begin()
#define dma_end()
#endif

static _Thread_local struct guard *volatile active __attribute__((tls_model("initial-exec")));

enum { MAX_HANDLERS = 4 };

/* Of the kernel, in no header of libc: SA_EXPOSE_TAGBITS, and SA_RESTORER where there is one. */
enum { SA_EXPOSES_TAGS = 0x800, LIBC_FLAGS = 0x04000000 };

static _Atomic(vb_fault_handler *)
	handlers[MAX_HANDLERS]; /* filled from the front, never emptied */

/*
 * The program's own action for each of the two signals. Written with all signals blocked, under the
 * lock; read in the handler without it: an odd or changed version means that a write came in
 * between.
 */
static struct own {
	struct sigaction action;
	_Atomic uint32_t version;
	bool armed; /* the kernel has our handler */
	/* what libc adds to every action that it sets: seen where it set ours */
	int libc_flags;
	void (*restorer)(void);
} own_segv, own_bus;
static struct vb_lock own_lock;
static pthread_mutex_t arm_lock = PTHREAD_MUTEX_INITIALIZER;

/* Who knows what the program blocks: we, or the preload. */
static const struct vb_signal_keeper *keeper = &vb_signal_keeper;

/* Another thread of the parent may have been at it: the child has no such thread. */
static void fault_forked(void)
{
	atomic_store_explicit(&own_lock.held, 0, memory_order_relaxed);
	atomic_fetch_and_explicit(&own_segv.version, ~1u, memory_order_relaxed);
	atomic_fetch_and_explicit(&own_bus.version, ~1u, memory_order_relaxed);
	pthread_mutex_init(&arm_lock, NULL);
}

/* The preload is there before us, or never. */
static void fault_start(void)
{
	const struct vb_signal_keeper *(*meet)(
		int (*)(int, const struct sigaction *, struct sigaction *));

	*(void **)&meet = dlsym(RTLD_DEFAULT, "verbatim_preload_signals");
	if (meet)
		keeper = meet(vb_fault_action);
	dlerror(); /* that there is none is nothing to the program */
	vb_barrier_ask(vb_fault_is_closing_in);
}

VB_STAGE(FAULTS, .start = fault_start, .child = fault_forked);

static struct own *own_of(int sig)
{
	return sig == SIGSEGV ? &own_segv : &own_bus;
}

static struct sigaction own_action(int sig)
{
	struct own *own = own_of(sig);
	struct sigaction action;
	uint32_t version;

	do {
		version = atomic_load_explicit(&own->version, memory_order_acquire);
		memcpy(&action, &own->action, sizeof(action));
		atomic_thread_fence(memory_order_acquire);
	} while ((version & 1) ||
		 atomic_load_explicit(&own->version, memory_order_relaxed) != version);
	return action;
}

/* own_lock is held. */
static void set_own_action(struct own *own, const struct sigaction *action)
{
	atomic_fetch_add_explicit(&own->version, 1, memory_order_acq_rel);
	memcpy(&own->action, action, sizeof(*action));
	atomic_fetch_add_explicit(&own->version, 1, memory_order_release);
}

/* Back to the default: the access is repeated and ends the process as it would have without us. */
static void die(int sig, const siginfo_t *info)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };

	vb_libc_sigaction(sig, &dfl, NULL);
	if (info->si_code <= 0)
		raise(sig); /* sent by a process: returning would not repeat it */
}

/* A jump out of the handler restores the mask as a return would. */
void vb_fault_unblock(void *context)
{
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &((ucontext_t *)context)->uc_sigmask, NULL, 8);
}

static void chain(int sig, siginfo_t *info, void *context)
{
	struct sigaction own = own_action(sig);
	bool sent = info->si_code <= 0;
	struct sigaction reset = own;
	sigset_t saved;

	if (sent && keeper->is_held(sig)) {
		keeper->hold(sig);
		return;
	}
	if (sent && own.sa_handler == SIG_IGN)
		return;
	/* A fault that is ignored or blocked ends the process all the same. */
	if (!vb_signal_has_handler(&own) || keeper->is_held(sig)) {
		die(sig, info);
		return;
	}
	if (own.sa_flags & SA_RESETHAND) { /* of the action only the handler */
		reset.sa_handler = SIG_DFL;
		vb_fault_action(sig, &reset, NULL);
	}
	/*
	 * The signal itself is not blocked, whatever the flags say: the handler may ring a
	 * doorbell. Nor is that noted: a handler that leaves by siglongjmp() would never take it
	 * back. What we block is not what the program asked for.
	 */
	vb_fault_unblock(context);
	vb_signal_mask(SIG_BLOCK, &own.sa_mask, &saved);
	if (own.sa_flags & SA_SIGINFO)
		own.sa_sigaction(sig, info, context);
	else
		own.sa_handler(sig);
	vb_signal_mask(SIG_SETMASK, &saved, NULL);
}

static bool handled(int sig, siginfo_t *info, void *context)
{
	for (int i = 0; i < MAX_HANDLERS; i++) {
		/* pairs with vb_fault_register */
		vb_fault_handler *handler =
			atomic_load_explicit(&handlers[i], memory_order_acquire);

		if (!handler)
			return false;
		if (handler(sig, info, context))
			return true;
	}
	return false;
}

/*
 * Whether the fault was made by the access under the guard, and not by a handler of the program for
 * some other signal, which came in between and may ring a doorbell (a fault that is meant) or just
 * be wrong. An access is one call deep; a signal's frame is larger than this distance, or on
 * another stack.
 */
static bool is_guarded(const struct guard *guard, const void *context)
{
#if defined(__x86_64__) && !defined(VB_TSAN)
	const ucontext_t *uc = context;
	uintptr_t sp = (uintptr_t)uc->uc_mcontext.gregs[REG_RSP];

	return (uintptr_t)guard - sp < 1024;
#else
	return true;
#endif
}

/* Nothing: a place for a debugger's breakpoint, because faults that are ours are too many to stop at. */
__attribute__((noinline)) void vb_fault_of_program(const siginfo_t *info)
{
	__asm__ volatile("" : : "r"(info) : "memory");
}

static void fault_on_fault(int sig, siginfo_t *info, void *context)
{
	struct guard *guard = active;

	/* si_code > 0: raised by an access, not sent by a process. */
	if (info->si_code > 0) {
		if (guard && is_guarded(guard, context)) {
			active = NULL;
			vb_fault_unblock(context);
			do_jump(guard);
		}
		/*
		 * Handlers make guarded accesses themselves; a copy that was interrupted must find
		 * its guard again.
		 */
		if (handled(sig, info, context)) {
			active = guard;
			return;
		}
		vb_fault_of_program(info);
	} else if (vb_thread_serve(info)) {
		return;
	}
	chain(sig, info, context);
}

void *vb_fault_guard(void)
{
	return active;
}

void vb_fault_set_guard(void *guard)
{
	active = guard;
}

bool vb_fault_has_handlers(void)
{
	return atomic_load_explicit(keeper->handlers, memory_order_seq_cst) ||
	       atomic_load_explicit(vb_signal_keeper.handlers, memory_order_seq_cst);
}

void vb_fault_find_handlers(void)
{
	struct sigaction now;

	for (int sig = 1; sig < 65; sig++)
		if (vb_signal_is_asynchronous(sig) && !vb_libc_sigaction(sig, NULL, &now) &&
		    vb_signal_has_handler(&now))
			atomic_fetch_or_explicit(keeper->handlers, 1ull << (sig - 1),
						 memory_order_seq_cst);
}

void vb_fault_on_handlers(void (*wait)(void))
{
	atomic_store_explicit(keeper->settle, wait, memory_order_release);
	atomic_store_explicit(vb_signal_keeper.settle, wait, memory_order_release);
}

void vb_fault_on_rights(vb_rights_hook *hook)
{
	atomic_store_explicit(keeper->rights, hook, memory_order_release);
	atomic_store_explicit(vb_signal_keeper.rights, hook, memory_order_release);
}

void vb_fault_on_closing_in(void (*prepare)(void))
{
	atomic_store_explicit(keeper->on_closing_in, prepare, memory_order_release);
	atomic_store_explicit(vb_signal_keeper.on_closing_in, prepare, memory_order_release);
}

bool vb_fault_is_closing_in(void)
{
	return atomic_load_explicit(keeper->closing_in, memory_order_relaxed) ||
	       atomic_load_explicit(vb_signal_keeper.closing_in, memory_order_relaxed);
}

void vb_fault_forget_closing_in(void)
{
	atomic_store_explicit(keeper->closing_in, false, memory_order_relaxed);
	atomic_store_explicit(vb_signal_keeper.closing_in, false, memory_order_relaxed);
}

/*
 * Ours in the kernel, on the stack that the program's own handler wants; without one, on the
 * alternate one. Other signals wait meanwhile, as they would for one instruction: a handler of the
 * program that rings a doorbell, too, must not meet this thread in the middle of one.
 */
static int install(int sig, const struct sigaction *own)
{
	struct sigaction ours = { .sa_sigaction = fault_on_fault,
				  .sa_flags = SA_SIGINFO | SA_NODEFER };

	vb_sigset_put_bits(&ours.sa_mask, ~(VB_SIGNALS_OF_FAULTS | VB_SIGNALS_OF_LIBC));
	/* One that is sent to a thread of ours interrupts nothing there, if the program lets us choose. */
	ours.sa_flags |= vb_signal_has_handler(own) ? own->sa_flags & (SA_ONSTACK | SA_RESTART)
						    : SA_ONSTACK | SA_RESTART;
	return vb_libc_sigaction(sig, &ours, NULL) ? -errno : 0;
}

/* An action as the kernel would keep it, and libc hand it out again. */
static struct sigaction as_kept(const struct own *own, const struct sigaction *act)
{
	enum {
		KNOWN = SA_NOCLDSTOP | SA_NOCLDWAIT | SA_SIGINFO | SA_ONSTACK | SA_RESTART |
			SA_NODEFER | SA_EXPOSES_TAGS
	};
	struct sigaction kept = *act;

	vb_sigset_put_bits(&kept.sa_mask,
			   vb_sigset_bits(&act->sa_mask) &
				   ~(VB_SIGNAL_BIT(SIGKILL) | VB_SIGNAL_BIT(SIGSTOP)));
	kept.sa_flags = (act->sa_flags & (KNOWN | (int)SA_RESETHAND)) | own->libc_flags;
	kept.sa_restorer = own->restorer;
	return kept;
}

/* With all signals blocked: a handler that comes meanwhile may want the lock. */
static void lock_own(sigset_t *saved)
{
	const uint64_t all = ~VB_SIGNALS_OF_LIBC;

	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, saved, 8);
	vb_lock(&own_lock);
}

static void unlock_own(const sigset_t *saved)
{
	vb_unlock(&own_lock);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, saved, NULL, 8);
}

static int arm_one(int sig)
{
	struct own *own = own_of(sig);
	struct sigaction now;
	sigset_t saved;
	int ret = 0;

	lock_own(&saved);
	/* A program that has closed itself in may be ended for the question, or not get an answer. */
	if (own->armed && vb_fault_is_closing_in()) {
		ret = 0;
	} else if (vb_libc_sigaction(sig, NULL, &now)) {
		ret = own->armed ? 0 : -errno;
	} else if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != fault_on_fault) {
		set_own_action(own, &now);
		ret = install(sig, &now);
		own->armed = !ret;
		if (!ret && !vb_libc_sigaction(sig, NULL, &now)) {
			own->libc_flags = now.sa_flags & LIBC_FLAGS;
			own->restorer = now.sa_restorer;
		}
	}
	unlock_own(&saved);
	return ret;
}

int vb_fault_action(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct own *own = own_of(sig);
	struct sigaction before, kept;
	sigset_t saved;
	int ret = 0;

	lock_own(&saved);
	if (!own->armed) {
		ret = vb_libc_sigaction(sig, act, &before);
	} else {
		before = own->action;
		if (act) {
			kept = as_kept(own, act);
			set_own_action(own, &kept);
			ret = install(sig, act) ? -1 : 0;
		}
	}
	unlock_own(&saved);
	if (!ret && old)
		*old = before;
	return ret;
}

bool vb_fault_is_armed(void)
{
	struct sigaction now;

	return !vb_libc_sigaction(SIGSEGV, NULL, &now) && (now.sa_flags & SA_SIGINFO) &&
	       now.sa_sigaction == fault_on_fault;
}

int vb_fault_arm(void)
{
	int ret;

	pthread_mutex_lock(&arm_lock);
	ret = arm_one(SIGSEGV);
	if (!ret)
		ret = arm_one(SIGBUS);
	pthread_mutex_unlock(&arm_lock);
	return ret;
}

static int add_handler(vb_fault_handler *handler)
{
	for (int i = 0; i < MAX_HANDLERS; i++) {
		vb_fault_handler *there = atomic_load_explicit(&handlers[i], memory_order_relaxed);

		if (there == handler)
			return 0;
		if (!there) {
			atomic_store_explicit(&handlers[i], handler, memory_order_release);
			return 0;
		}
	}
	return -ENOSPC;
}

int vb_fault_register(vb_fault_handler *handler)
{
	int ret;

	pthread_mutex_lock(&arm_lock);
	ret = add_handler(handler);
	pthread_mutex_unlock(&arm_lock);
	return ret ? ret : vb_fault_arm();
}

/*
 * Run an access with a recovery point. A macro, because setjmp must be in the frame that is
 * returned to.
 *
 * The access itself is a call through a volatile pointer: only a call that the compiler knows
 * nothing about is taken to be one that may jump. With the access in line gcc sees no way to the
 * second return and drops it.
 */
#define GUARDED(access)                 \
	do {                            \
		struct guard guard;     \
                                        \
		dma_begin();            \
		if (set_jump(&guard)) { \
			dma_end();      \
			return -EFAULT; \
		}                       \
		active = &guard;        \
		access;                 \
		active = NULL;          \
		dma_end();              \
		return 0;               \
	} while (0)

/*
 * ThreadSanitizer holds a lock of its own during an atomic operation that orders, and a jump out of
 * there would leave it held: these are not instrumented.
 */
#ifdef VB_TSAN
#define UNLOCKED __attribute__((no_sanitize("thread")))
#else
#define UNLOCKED
#endif

static UNLOCKED void fault_do_fetch_add(uint64_t *word, uint64_t add, uint64_t *old)
{
	*old = atomic_fetch_add_explicit((_Atomic uint64_t *)word, add, memory_order_seq_cst);
}

static UNLOCKED void do_compare_swap(uint64_t *word, uint64_t compare, uint64_t swap, uint64_t *old)
{
	atomic_compare_exchange_strong_explicit((_Atomic uint64_t *)word, &compare, swap,
						memory_order_seq_cst, memory_order_seq_cst);
	*old = compare;
}

static UNLOCKED void do_masked(void *word, uint32_t size, const struct vb_masked *m, uint64_t *old)
{
	uint64_t was8;
	uint32_t was4;

	if (size == sizeof(was4)) {
		was4 = atomic_load_explicit((_Atomic uint32_t *)word, memory_order_relaxed);
		while (!atomic_compare_exchange_weak_explicit(
			(_Atomic uint32_t *)word, &was4, (uint32_t)vb_masked_result(m, was4),
			memory_order_seq_cst, memory_order_relaxed))
			;
		*old = was4;
		return;
	}
	was8 = atomic_load_explicit((_Atomic uint64_t *)word, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit((_Atomic uint64_t *)word, &was8,
						      vb_masked_result(m, was8),
						      memory_order_seq_cst, memory_order_relaxed))
		;
	*old = was8;
}

static UNLOCKED void do_load(const void *word, uint32_t size, uint64_t *value)
{
	*value = size == 1   ? __atomic_load_n((const uint8_t *)word, __ATOMIC_ACQUIRE)
		 : size == 2 ? __atomic_load_n((const uint16_t *)word, __ATOMIC_ACQUIRE)
		 : size == 4 ? __atomic_load_n((const uint32_t *)word, __ATOMIC_ACQUIRE)
			     : __atomic_load_n((const uint64_t *)word, __ATOMIC_ACQUIRE);
}

static UNLOCKED void fault_do_store(void *word, uint32_t size, uint64_t value)
{
	switch (size) {
	case 1:
		__atomic_store_n((uint8_t *)word, (uint8_t)value, __ATOMIC_RELEASE);
		break;
	case 2:
		__atomic_store_n((uint16_t *)word, (uint16_t)value, __ATOMIC_RELEASE);
		break;
	case 4:
		__atomic_store_n((uint32_t *)word, (uint32_t)value, __ATOMIC_RELEASE);
		break;
	default:
		__atomic_store_n((uint64_t *)word, value, __ATOMIC_RELEASE);
	}
}

/* memmove: the two ends of a loopback message may overlap. */
static void *(*volatile copy)(void *, const void *, size_t) = memmove;
static void (*volatile load)(const void *, uint32_t, uint64_t *) = do_load;
static void (*volatile store)(void *, uint32_t, uint64_t) = fault_do_store;
static void (*volatile fetch_add)(uint64_t *, uint64_t, uint64_t *) = fault_do_fetch_add;
static void (*volatile compare_swap)(uint64_t *, uint64_t, uint64_t, uint64_t *) = do_compare_swap;
static void (*volatile masked)(void *, uint32_t, const struct vb_masked *, uint64_t *) = do_masked;

__attribute__((noinline)) int vb_fault_copy(void *dst, const void *src, size_t n)
{
	GUARDED(copy(dst, src, n));
}

__attribute__((noinline)) int vb_fault_load(const void *word, uint32_t size, uint64_t *value)
{
	GUARDED(load(word, size, value));
}

__attribute__((noinline)) int vb_fault_store(void *word, uint32_t size, uint64_t value)
{
	GUARDED(store(word, size, value));
}

__attribute__((noinline)) int vb_fault_fetch_add(uint64_t *word, uint64_t add, uint64_t *old)
{
	GUARDED(fetch_add(word, add, old));
}

__attribute__((noinline)) int vb_fault_compare_swap(uint64_t *word, uint64_t compare, uint64_t swap,
						    uint64_t *old)
{
	GUARDED(compare_swap(word, compare, swap, old));
}

__attribute__((noinline)) int vb_fault_masked(void *word, uint32_t size, const struct vb_masked *m,
					      uint64_t *old)
{
	GUARDED(masked(word, size, m, old));
}

bool vb_fault_readable(const void *p, size_t n)
{
	const char *at = p, *end = at + n;
	char byte;

	for (; at < end; at = (const char *)(((uintptr_t)at | 4095) + 1))
		if (vb_fault_copy(&byte, at, 1))
			return false;
	return true;
}
