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
 * All of it happens on a private stack (stack.c). Who calls fork() is calls.c's business; here are
 * the handlers, which run whoever calls it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "host/memory/fork_copy.h"
#include "host/memory/libc.h"
#include "host/memory/memory.h"
#include "host/memory/room.h"

/* Of the thread that has the lock, from memory_prepare() to memory_in_parent() or memory_adopt(). */
static struct {
	sigset_t mask;
	char *copy; /* NULL: none */
	size_t len;
	bool failed; /* there shall be no child */
} forking;

__thread struct memory_reserved memory_reserved;

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

/* Not in core dumps of the parent: what the program has kept out of them would be there once more. */
static char *map_copy(size_t len)
{
	char *copy = (char *)RAW(SYS_mmap, NULL, len, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (copy == MAP_FAILED)
		return NULL;
	RAW(SYS_madvise, copy, len, MADV_DONTDUMP);
	return copy;
}

/* With the lock. */
static int memory_fork_copy_all(void)
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

/* Where the kernel cannot give so much it ends a process, perhaps us; fork() can say so instead. */
static bool is_room(size_t len)
{
	enum { SMALL = 64 << 20 };
	struct stat st;

	if (len < SMALL || (memory_fd_is_ours() && !fstat(memory.file.fd, &st) &&
			    (len = (size_t)st.st_blocks * 512) < SMALL))
		return true;
	return len < room_left();
}

bool memory_reserve_copy(void)
{
	sigset_t mask;

	memory_lock(&mask);
	memory_reserved.len = bytes_to_copy();
	memory_unlock(&mask);
	memory_reserved.failed = false;
	if (!is_room(memory_reserved.len))
		return false;
	memory_reserved.copy = memory_reserved.len ? map_copy(memory_reserved.len) : NULL;
	return memory_reserved.copy || !memory_reserved.len;
}

void memory_drop_reserved(void)
{
	if (memory_reserved.copy)
		RAW(SYS_munmap, memory_reserved.copy, memory_reserved.len);
	memory_reserved.copy = NULL;
}

/* --- pages that parent and child cannot both use ---------------------------------------------- */

struct leaving {
	uint32_t first, count;
	int ret;
};

static int memory_fork_leave(void *arg)
{
	struct leaving *leaving = arg;

	leaving->ret = memory_make_private(leaving->first, leaving->count);
	return 0;
}

/* The block, or the mapping, around an address in shared pages. False: the address is elsewhere. */
static bool find_block(uintptr_t address, struct leaving *leaving)
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
	*leaving = (struct leaving){ .first = page, .count = end - page };
	return true;
}

/*
 * The block in which this address lies becomes private. This thread may be using it, so it must not
 * do that itself: a helper does, while the kernel holds us as it holds the caller of vfork(). With
 * the lock. 0, or -errno.
 */
static int leave_block(const void *address)
{
	static char stack[16384] __attribute__((aligned(16)));
	static struct leaving leaving;
	pid_t helper;

	if (!find_block((uintptr_t)address, &leaving))
		return 0;
	memory_hide(leaving.first, leaving.count);
	helper = LIBC(clone)(memory_fork_leave, stack + sizeof(stack),
			     CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_FS, &leaving);
	if (helper < 0)
		return -errno;
	while (RAW(SYS_wait4, helper, NULL, __WCLONE, NULL) < 0 && errno == EINTR)
		;
	return leaving.ret;
}

/*
 * What is left after the change of stacks: the kernel writes the child's number into the thread's
 * descriptor, which lies at the end of a stack that the program gave to the thread; and libc may
 * have come to fork() by a way of its own.
 */
static int leave_shared_pages(void)
{
	int ret = leave_block((const void *)pthread_self());

	return ret ? ret : leave_block(__builtin_frame_address(0));
}

/*
 * The stack of a thread is private before the thread exists: others may sleep on a word of it until
 * it ends, and the kernel would look for them in another place after the stack has become private.
 */
PUBLIC int pthread_attr_setstack(pthread_attr_t *attr, void *stack, size_t size)
{
	struct memory_pages part[2] = { 0 };
	sigset_t mask;

	if (memory_part((uintptr_t)stack, size, &part[0].first, &part[0].count)) {
		memory_hide_and_lock(part, &mask);
		memory_make_private(part[0].first,
				    part[0].count); /* or a fork() in the thread does it */
		memory_unlock(&mask);
	}
	return LIBC(pthread_attr_setstack)(attr, stack, size);
}

/* The same by its old name, with the end of the stack: the block around it. */
int pthread_attr_setstackaddr(pthread_attr_t *attr, void *end);

PUBLIC int pthread_attr_setstackaddr(pthread_attr_t *attr, void *end)
{
	int (*set_address)(pthread_attr_t *, void *) =
		(int (*)(pthread_attr_t *, void *))libc_function(LIBC_pthread_attr_setstackaddr);
	struct leaving leaving;
	sigset_t mask;
	bool found;

	memory_lock(&mask);
	found = find_block((uintptr_t)end - 1, &leaving);
	memory_unlock(&mask);
	if (found) {
		memory_hide_and_lock((struct memory_pages[2]){ { leaving.first, leaving.count } },
				     &mask);
		memory_make_private(leaving.first, leaving.count);
		memory_unlock(&mask);
	}
	return set_address(attr, end);
}

/* --- signals ---------------------------------------------------------------------------------- */

/*
 * Where faults of this process are answered by a reader of a userfaultfd, a fork waits for him, and
 * perhaps for ever. Signals that end the process do so then, as they do without us: those that the program
 * neither blocks nor handles. None of them runs a handler while the lock is held.
 */
static void let_signals_end(const sigset_t *before)
{
	static const int harmless[] = { SIGCHLD, SIGCONT, SIGURG,  SIGWINCH,
					SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU };
	struct {
		void (*handler)(int);
		unsigned long flags;
		void (*restorer)(void);
		unsigned long mask;
	} action;
	unsigned long blocked, set = 0;

	memcpy(&blocked, before, sizeof(blocked));
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		blocked |= 1ul << (harmless[i] - 1);
	for (int sig = 1; sig <= 64; sig++)
		if (!(blocked >> (sig - 1) & 1) &&
		    !RAW(SYS_rt_sigaction, sig, NULL, &action, sizeof(action.mask)) &&
		    action.handler == SIG_DFL)
			set |= 1ul << (sig - 1);
	RAW(SYS_rt_sigprocmask, SIG_UNBLOCK, &set, NULL, sizeof(set));
}

/* --- the three steps -------------------------------------------------------------------------- */

int memory_prepare(void)
{
	sigset_t mask;
	size_t len;

	memory_lock(&mask);
	if (atomic_load_explicit(&memory.watched, memory_order_relaxed))
		let_signals_end(&mask);
	forking.mask = mask;
	forking.copy = NULL;
	forking.failed = false;
	if (!memory.size)
		return 0;
	memory_release_kept();
	forking.failed = leave_shared_pages();
	len = forking.failed ? 0 : bytes_to_copy();
	if (!len)
		return forking.failed ? -ENOMEM : 0;
	if (memory_reserved.copy && memory_reserved.len >= len) {
		forking.copy = memory_reserved.copy;
		forking.len = memory_reserved.len;
		memory_reserved.copy = NULL;
	} else if (is_room(len)) {
		forking.copy = map_copy(len);
		forking.len = len;
	}
	forking.failed = !forking.copy || memory_fork_copy_all();
	return forking.failed ? -ENOMEM : 0;
}

void memory_in_parent(void)
{
	sigset_t mask = forking.mask;

	memory_reserved.failed = forking.failed;
	if (forking.copy)
		RAW(SYS_munmap, forking.copy, forking.len);
	forking.copy = NULL;
	memory_unlock(&mask);
}

/* Copied pages of one state become the child's. */
static bool adopt(uint32_t first, uint32_t count, char *copy)
{
	char *at = memory_page(first);
	size_t len = (size_t)count * MEMORY_PAGE;
	uint8_t state = memory.pages.state[first];
	int prot = (state & PAGE_PROT) >> PAGE_PROT_SHIFT;

	if (memory_mark_copy(copy, len, first) ||
	    (prot != (PROT_READ | PROT_WRITE) && RAW(SYS_mprotect, copy, len, prot)))
		return false;
	return RAW(SYS_mremap, copy, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, at) == (long)at;
}

/*
 * The parent's file is no longer mapped here. What MADV_DONTFORK kept from us is not mapped either, and
 * still the program's: a part of a block, perhaps.
 */
static bool adopt_all(void)
{
	char *copy = forking.copy, *end = copy + forking.len;
	uint32_t n;

	memory_close_mirror();
	if (copy)
		RAW(SYS_madvise, copy, forking.len, MADV_DODUMP);
	for (uint32_t first = 0; first < memory.high; first += n) {
		n = memory_alike(first, memory.high, PAGE_KIND | PAGE_NOFORK | PAGE_PROT);
		if ((memory.pages.state[first] & PAGE_KIND) != PAGE_SHARED)
			continue;
		if (is_copied(first)) {
			if (!adopt(first, n, copy))
				return false;
			copy += (size_t)n * MEMORY_PAGE;
		}
		for (uint32_t i = first; i < first + n; i++)
			memory.pages.state[i] ^= PAGE_SHARED ^ PAGE_PRIVATE;
	}
	memory_mark(0, memory.high, MARK_LOCKED | MARK_ONFAULT, 0); /* locks are the parent's */
	memory.locked_all = false;
	/* More may have been reserved than was needed. */
	if (copy && copy < end)
		RAW(SYS_munmap, copy, end - copy);
	return true;
}

sigset_t memory_adopt(bool shares_files)
{
	static const char text[] = "verbatim: no memory for a forked child's copy\n";

	if (memory.size && memory.mode != MEMORY_NONE) {
		if (forking.failed || !adopt_all()) {
			RAW(SYS_write, STDERR_FILENO, text, sizeof(text) - 1);
			RAW(SYS_exit_group, 127);
		}
		if (!shares_files && memory_fd_is_ours())
			RAW(SYS_close, memory.file.fd);
		memory.file.fd = -1;
		memory.pid = (pid_t)RAW(SYS_getpid);
		if (memory.mode == MEMORY_OPEN)
			memory.mode = MEMORY_INHERITED;
	}
	forking.copy = NULL;
	return forking.mask;
}

/* --- handlers --------------------------------------------------------------------------------- */

typedef int register_function(void (*)(void), void (*)(void), void (*)(void), void *);

static void before_fork(void)
{
	memory_prepare(); /* that it failed is said after the fork, when it can be */
}

static void in_child(void)
{
	sigset_t mask = memory_adopt(false);

	memory_unlock(&mask);
}

static register_function *memory_fork_find_register(void)
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
	register_function *next = memory_fork_find_register();

	/* Of no library: those of one leave libc's list at exit(), also beside a fork (base/fork.c). */
	if (next && !atomic_exchange(&done, true))
		next(before_fork, memory_in_parent, in_child, NULL);
}

/* What pthread_atfork() calls. Handlers run before a fork in the opposite order of coming here. */
PUBLIC int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
			     void *dso);

PUBLIC int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
			     void *dso)
{
	register_function *next = memory_fork_find_register();
	int (*other)(void (*)(void), void (*)(void), void (*)(void));

	memory_watch_forks();
	if (next)
		return next(prepare, parent, child, dso);
	/* musl has another one. Whoever looks for this one there finds us. */
	other = (__typeof__(other))dlsym(RTLD_NEXT, "pthread_atfork");
	return other ? other(prepare, parent, child) : ENOSYS;
}

__attribute__((constructor)) static void watch_early(void)
{
	memory_watch_forks();
}
