// SPDX-License-Identifier: MIT
/*
 * Owns the SIGSEGV and SIGBUS handlers and the recovery points behind vb_fault_*().
 *
 *	vb_fault_copy: thread's guard := here ---> memcpy ---> guard := NULL
 *	                                             | fault
 *	handler: guard set? ---- yes: jump back to "here", return -EFAULT
 *	             |
 *	             no: the handler that was there before us
 *
 * The guard is thread-local and in the initial-exec model: a general-dynamic access would cost more than the copy of
 * a small message.
 */
#include "base/fault.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <ucontext.h>

#include "base/tsan.h"

/*
 * ThreadSanitizer must see jumps, and must not look at what the card does to program memory: that is DMA, and whether
 * the program may touch a buffer at that time is between the program and its completions.
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

static struct sigaction earlier_segv, earlier_bus;
static pthread_mutex_t arm_lock = PTHREAD_MUTEX_INITIALIZER;

static void chain(int sig, siginfo_t *info, void *context)
{
	const struct sigaction *old = sig == SIGSEGV ? &earlier_segv : &earlier_bus;

	if (old->sa_flags & SA_SIGINFO) {
		old->sa_sigaction(sig, info, context);
	} else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN) {
		old->sa_handler(sig);
	} else {
		/* Back to the default: the access is repeated and ends the process as it would have without us. */
		struct sigaction dfl = { .sa_handler = SIG_DFL };

		sigaction(sig, &dfl, NULL);
		if (info->si_code <= 0)
			raise(sig); /* sent by somebody, nothing will be repeated */
	}
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	struct guard *guard = active;

	if (guard && info->si_code > 0) {
		active = NULL;
		/* Ours blocks nothing, but who wraps sigaction (a sanitizer) may: leave as a return would. */
		pthread_sigmask(SIG_SETMASK, &((ucontext_t *)context)->uc_sigmask, NULL);
		do_jump(guard);
	}
	chain(sig, info, context);
}

static int arm_one(int sig, struct sigaction *earlier)
{
	struct sigaction ours = { .sa_sigaction = on_fault,
				  .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };
	struct sigaction now;

	sigemptyset(&ours.sa_mask);
	if (sigaction(sig, NULL, &now))
		return -errno;
	if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault)
		return 0;
	*earlier = now;
	return sigaction(sig, &ours, NULL) ? -errno : 0;
}

int vb_fault_arm(void)
{
	int ret;

	pthread_mutex_lock(&arm_lock);
	ret = arm_one(SIGSEGV, &earlier_segv);
	if (!ret)
		ret = arm_one(SIGBUS, &earlier_bus);
	pthread_mutex_unlock(&arm_lock);
	return ret;
}

/*
 * Run an access with a recovery point. A macro, because setjmp must be in the frame that is returned to.
 *
 * The access itself is a call through a volatile pointer: only a call that the compiler knows nothing about is taken
 * to be one that may jump. With the access in line gcc sees no way to the second return and drops it.
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

static void do_fetch_add(uint64_t *word, uint64_t add, uint64_t *old)
{
	*old = atomic_fetch_add_explicit((_Atomic uint64_t *)word, add, memory_order_seq_cst);
}

static void do_compare_swap(uint64_t *word, uint64_t compare, uint64_t swap, uint64_t *old)
{
	atomic_compare_exchange_strong((_Atomic uint64_t *)word, &compare, swap);
	*old = compare;
}

/* memmove: the two ends of a loopback message may overlap. */
static void *(*volatile copy)(void *, const void *, size_t) = memmove;
static void (*volatile fetch_add)(uint64_t *, uint64_t, uint64_t *) = do_fetch_add;
static void (*volatile compare_swap)(uint64_t *, uint64_t, uint64_t, uint64_t *) = do_compare_swap;

__attribute__((noinline)) int vb_fault_copy(void *dst, const void *src, size_t n)
{
	GUARDED(copy(dst, src, n));
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

bool vb_fault_readable(const void *p, size_t n)
{
	const char *at = p, *end = at + n;
	char byte;

	for (; at < end; at = (const char *)(((uintptr_t)at | 4095) + 1))
		if (vb_fault_copy(&byte, at, 1))
			return false;
	return true;
}
