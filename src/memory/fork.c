// SPDX-License-Identifier: MIT
/*
 * Owns what makes a forked child's memory its own, although the parent's is shared.
 *
 *	parent, before:  lock; copy all that was written of the shared pages into private memory
 *	the kernel:      the child has that copy, as any private memory
 *	child, after:    moves the copy over the shared pages; everything is private
 *	parent, after:   drops the copy; unlock
 *
 * The copy is made before the child exists, so that there is nobody to wait for, and a copy that
 * cannot be had is an error of fork(). It is made by the last handler of fork that runs before it,
 * and the first after: what the program locks in its own handlers does not change meanwhile. Other
 * threads that write without a lock go on; what they write after their page was copied, the child
 * does not see.
 *
 * fork() runs these handlers, whoever calls it. _Fork() does not, and neither do clone() without
 * CLONE_VM and the system calls: they are wrapped. vfork() and posix_spawn() have the parent's
 * memory anyway.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>

#include "memory/libc.h"
#include "memory/memory.h"

/* Of the one who has the lock, from before_fork() to after_fork(). */
static struct {
	sigset_t mask;
	char *copy; /* NULL: none */
	size_t len;
	bool failed; /* there shall be no child */
} forking;

/* Of fork(): addresses that were found before its handlers ran, while it can still fail. */
static __thread struct {
	char *copy;
	size_t len;
	bool failed;
} reserved;

static bool is_copied(uint32_t page)
{
	return (memory.pages.state[page] & (PAGE_KIND | PAGE_NOFORK)) == PAGE_SHARED;
}

static size_t bytes_to_copy(void)
{
	size_t count = 0;
	uint32_t n;

	for (uint32_t first = 0; first < memory.high; first += n) {
		n = pages_alike(&memory.pages, first, memory.high, PAGE_KIND | PAGE_NOFORK);
		if (is_copied(first))
			count += n;
	}
	return count * MEMORY_PAGE;
}

static char *map_copy(size_t len)
{
	char *copy = (char *)RAW(SYS_mmap, NULL, len, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return copy == MAP_FAILED ? NULL : copy;
}

/* With the lock. */
static int copy_all(void)
{
	char *to = forking.copy;
	uint32_t n;
	int ret;

	for (uint32_t first = 0; first < memory.high; first += n) {
		n = pages_alike(&memory.pages, first, memory.high, PAGE_KIND | PAGE_NOFORK);
		if (!is_copied(first))
			continue;
		ret = memory_copy(first, n, to);
		if (ret)
			return ret;
		to += (size_t)n * MEMORY_PAGE;
	}
	return 0;
}

/* --- a stack in shared memory ----------------------------------------------------------------- */

struct stack_move {
	uint32_t first, count;
	int ret;
};

static int move_stack(void *arg)
{
	struct stack_move *move = arg;

	move->ret = memory_make_private(move->first, move->count);
	return 0;
}

/* The block, or the mapping, around an address in shared pages. False: the address is elsewhere. */
static bool find_block(uintptr_t address, struct stack_move *move)
{
	uint32_t page, count, end;

	if (!memory_part(address, 1, &page, &count) ||
	    (memory.pages.state[page] & PAGE_KIND) != PAGE_SHARED)
		return false;
	for (end = page + 1; end < memory.high; end++)
		if ((memory.pages.state[end] & (PAGE_KIND | PAGE_HEAD)) != PAGE_SHARED)
			break;
	while (page && !(memory.pages.state[page] & PAGE_HEAD) &&
	       (memory.pages.state[page - 1] & PAGE_KIND) == PAGE_SHARED)
		page--;
	*move = (struct stack_move){ .first = page, .count = end - page };
	return true;
}

/*
 * Parent and child cannot both run on one stack. Where this thread's stack is shared (a coroutine's,
 * one that the program gave to pthread_create or sigaltstack), it becomes private, which must not be
 * done by a thread that runs on it: a helper does it, while the kernel holds us as it holds the
 * caller of vfork(). With the lock. 0, or -errno.
 */
static int leave_shared_stack(void)
{
	static char stack[16384] __attribute__((aligned(16)));
	static struct stack_move move;
	pid_t helper;

	if (!find_block((uintptr_t)__builtin_frame_address(0), &move))
		return 0;
	memory_hide(move.first, move.count);
	helper = LIBC(clone)(move_stack, stack + sizeof(stack),
			     CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_FS, &move);
	if (helper < 0)
		return -errno;
	while (RAW(SYS_wait4, helper, NULL, __WCLONE, NULL) < 0 && errno == EINTR)
		;
	return move.ret;
}

/* The stack that a child of clone() is to run on: the copy that it gets is older than its frames. */
static int make_stack_private(const char *stack)
{
	struct stack_move move;

	if (!find_block((uintptr_t)stack - 1, &move))
		return 0;
	memory_hide(move.first, move.count);
	return memory_make_private(move.first, move.count);
}

/*
 * The stack of a thread is private before the thread exists: others may sleep on a word of it until
 * it ends, and the kernel would look for them in another place after the stack has become private.
 */
PUBLIC int pthread_attr_setstack(pthread_attr_t *attr, void *stack, size_t size)
{
	uint32_t first, count;
	sigset_t mask;

	if (memory_part((uintptr_t)stack, size, &first, &count)) {
		memory_hide(first, count);
		memory_lock(&mask);
		memory_make_private(first, count); /* or a fork() in the thread does it */
		memory_unlock(&mask);
	}
	return LIBC(pthread_attr_setstack)(attr, stack, size);
}

/* --- the three steps -------------------------------------------------------------------------- */

/* stack: where a child of clone() will run, or NULL. 0, or -ENOMEM; the lock is held in both cases. */
static int prepare(const char *stack)
{
	sigset_t mask;
	size_t len;

	memory_lock(&mask);
	forking.mask = mask;
	forking.copy = NULL;
	forking.failed = false;
	if (!memory.size)
		return 0;
	memory_release_kept();
	forking.failed = leave_shared_stack() || (stack && make_stack_private(stack));
	len = forking.failed ? 0 : bytes_to_copy();
	if (!len)
		return forking.failed ? -ENOMEM : 0;
	if (reserved.copy && reserved.len >= len) {
		forking.copy = reserved.copy;
		forking.len = reserved.len;
		reserved.copy = NULL;
	} else {
		forking.copy = map_copy(len);
		forking.len = len;
	}
	forking.failed = !forking.copy || copy_all();
	return forking.failed ? -ENOMEM : 0;
}

static void drop_copy(void)
{
	if (forking.copy)
		RAW(SYS_munmap, forking.copy, forking.len);
	forking.copy = NULL;
}

static void in_parent(void)
{
	sigset_t mask = forking.mask;

	reserved.failed = forking.failed;
	drop_copy();
	memory_unlock(&mask);
}

/* Copied pages of one state become the child's. */
static bool adopt(uint32_t first, uint32_t count, char *copy)
{
	char *at = memory_page(first);
	size_t len = (size_t)count * MEMORY_PAGE;
	uint8_t state = memory.pages.state[first];
	int prot = (state & PAGE_PROT) >> PAGE_PROT_SHIFT;

	if (prot != (PROT_READ | PROT_WRITE) && RAW(SYS_mprotect, copy, len, prot))
		return false;
	return RAW(SYS_mremap, copy, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, at) == (long)at;
}

/* Addresses that are nobody's memory, but not the kernel's to give out either. */
static bool reserve(uint32_t first, uint32_t count)
{
	char *at = memory_page(first);

	return RAW(SYS_mmap, at, (size_t)count * MEMORY_PAGE, PROT_NONE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == (long)at;
}

/* The parent's file is no longer mapped here. */
static bool adopt_all(void)
{
	char *copy = forking.copy, *end = copy + forking.len;
	uint8_t state, kind;
	uint32_t n;
	bool done;

	/* Behind high all pages are free, or all are gone. */
	if (memory.high < memory.pages.count && memory.pages.state[memory.high] == PAGE_FREE &&
	    !reserve(memory.high, memory.pages.count - memory.high))
		return false;
	for (uint32_t first = 0; first < memory.high; first += n) {
		n = pages_alike(&memory.pages, first, memory.high,
				PAGE_KIND | PAGE_NOFORK | PAGE_PROT);
		state = memory.pages.state[first];
		kind = state & PAGE_KIND;
		done = true;
		if (is_copied(first)) {
			done = adopt(first, n, copy);
			copy += (size_t)n * MEMORY_PAGE;
		} else if (kind == PAGE_FREE || (kind != PAGE_GONE && state & PAGE_NOFORK)) {
			/* What MADV_DONTFORK kept from us is a hole, and still the program's. */
			done = reserve(first, n);
		}
		if (!done)
			return false;
		for (uint32_t i = first; kind == PAGE_SHARED && i < first + n; i++)
			memory.pages.state[i] ^= PAGE_SHARED ^ PAGE_PRIVATE;
	}
	/* More may have been reserved than was needed. */
	if (copy && copy < end)
		RAW(SYS_munmap, copy, end - copy);
	return true;
}

static void in_child(void)
{
	static const char text[] = "verbatim: no memory for a forked child's copy\n";
	sigset_t mask = forking.mask;

	if (memory.size && memory.mode != MEMORY_NONE) {
		if (forking.failed || !adopt_all()) {
			RAW(SYS_write, STDERR_FILENO, text, sizeof(text) - 1);
			RAW(SYS_exit_group, 127);
		}
		if (memory_fd_is_ours())
			RAW(SYS_close, memory.fd);
		memory.fd = -1;
		memory.pid = (pid_t)RAW(SYS_getpid);
		if (memory.mode == MEMORY_OPEN)
			memory.mode = MEMORY_INHERITED;
	}
	forking.copy = NULL;
	memory_unlock(&mask);
}

/* --- handlers --------------------------------------------------------------------------------- */

extern void *__dso_handle __attribute__((visibility("hidden")));

typedef int register_function(void (*)(void), void (*)(void), void (*)(void), void *);

static void before_fork(void)
{
	prepare(NULL); /* that it failed is said after the fork, when it can be */
}

static register_function *find_register(void)
{
	static _Atomic(register_function *) found;
	register_function *next = atomic_load(&found);

	if (!next) {
		next = (register_function *)dlsym(RTLD_NEXT, "__register_atfork");
		atomic_store(&found, next);
	}
	return next;
}

void memory_watch_forks(void)
{
	static atomic_bool done;
	register_function *next = find_register();

	if (next && !atomic_exchange(&done, true))
		next(before_fork, in_parent, in_child, &__dso_handle);
}

/* What pthread_atfork() calls. Handlers run before a fork in the opposite order of coming here. */
PUBLIC int __register_atfork(void (*prepare_)(void), void (*parent)(void), void (*child)(void),
			     void *dso);

PUBLIC int __register_atfork(void (*prepare_)(void), void (*parent)(void), void (*child)(void),
			     void *dso)
{
	memory_watch_forks();
	return find_register()(prepare_, parent, child, dso);
}

__attribute__((constructor)) static void watch_early(void)
{
	memory_watch_forks();
}

/* --- the calls -------------------------------------------------------------------------------- */

static int no_memory(void)
{
	errno = ENOMEM;
	return -1;
}

PUBLIC pid_t fork(void)
{
	pid_t pid;
	sigset_t mask;
	int err;

	if (!atomic_load(&memory.size))
		return LIBC(fork)();
	/*
	 * The handlers cannot refuse, so the address space is found before them. That they need
	 * more of it, and cannot have it, is possible only where another handler allocates.
	 */
	memory_lock(&mask);
	reserved.len = bytes_to_copy();
	memory_unlock(&mask);
	reserved.failed = false;
	reserved.copy = reserved.len ? map_copy(reserved.len) : NULL;
	if (reserved.len && !reserved.copy)
		return no_memory();
	pid = LIBC(fork)();
	err = errno;
	if (reserved.copy)
		RAW(SYS_munmap, reserved.copy, reserved.len);
	reserved.copy = NULL;
	if (pid > 0 && reserved.failed) {
		RAW(SYS_wait4, pid, NULL, 0, NULL);
		return no_memory();
	}
	errno = err;
	return pid;
}

/* The value of call, which makes a child with memory of its own and returns in both. */
#define WITH_COPY(call)                             \
	({                                          \
		long made = -1;                     \
		int err = ENOMEM;                   \
                                                    \
		if (!prepare(NULL)) {               \
			made = (call);              \
			err = made < 0 ? errno : 0; \
		}                                   \
		made ? in_parent() : in_child();    \
		if (made < 0)                       \
			errno = err;                \
		made;                               \
	})

PUBLIC pid_t _Fork(void)
{
	return (pid_t)WITH_COPY(LIBC(_Fork)());
}

struct started {
	int (*function)(void *arg);
	void *arg;
};

static int start_child(void *arg)
{
	struct started started = *(struct started *)arg;

	in_child();
	return started.function(started.arg);
}

PUBLIC int clone(int (*function)(void *arg), void *stack, int flags, void *arg, ...)
{
	struct started started = { function, arg };
	void *rest[3];
	va_list args;
	int ret = -1, err = ENOMEM;

	va_start(args, arg);
	for (int i = 0; i < 3; i++)
		rest[i] = va_arg(args, void *);
	va_end(args);
	if (flags & CLONE_VM || !atomic_load(&memory.size) || !function || !stack)
		return LIBC(clone)(function, stack, flags, arg, rest[0], rest[1], rest[2]);
	if (!prepare(stack)) {
		ret = LIBC(clone)(start_child, stack, flags, &started, rest[0], rest[1], rest[2]);
		err = ret < 0 ? errno : 0;
	}
	in_parent();
	if (ret < 0)
		errno = err;
	return ret;
}

/* The fields of struct clone_args that matter: flags at 0, stack at 40. */
static bool is_fork(long number, const long *arg)
{
	switch (number) {
#ifdef SYS_fork
	case SYS_fork:
		return true;
#endif
	case SYS_clone:
		return !(arg[0] & CLONE_VM) && !arg[1];
#ifdef SYS_clone3
	case SYS_clone3:
		return arg[0] && arg[1] >= 64 && !(*(const uint64_t *)arg[0] & CLONE_VM) &&
		       !((const uint64_t *)arg[0])[5];
#endif
	}
	return false;
}

PUBLIC long syscall(long number, ...)
{
	va_list args;
	long arg[6];

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		arg[i] = va_arg(args, long);
	va_end(args);
	if (atomic_load_explicit(&memory.size, memory_order_relaxed) && is_fork(number, arg))
		return WITH_COPY(RAW(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]));
	return RAW(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}
