// SPDX-License-Identifier: MIT
/*
 * Patched sites: when a store is replaced by a jump and when not, what happens around it (threads, signals, forks,
 * unwinding, code that goes away), and that every store counts, once.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <execinfo.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/patch/patch.h"
#include "host/signals.h"
#include "host/trap/trap.h"
#include "patch_text.h"

enum { RINGS = 100 };

/* mov %rsi, 0x100(%rdi); ret */
static const uint8_t long_store[] = { 0x48, 0x89, 0xb7, 0x00, 0x01, 0x00, 0x00, 0xc3 };
/* mov %esi, 0x14(%rdi); nop; nop; ret */
static const uint8_t short_store[] = { 0x89, 0x77, 0x14, 0x90, 0x90, 0xc3 };

static _Atomic uint64_t total, sum;

static void count(void *arg, size_t offset, const void *data, size_t size)
{
	uint64_t value = 0;

	memcpy(&value, data, size);
	atomic_fetch_add(&total, 1);
	atomic_fetch_add(&sum, value);
}

static uint32_t kept(enum vb_site_reason reason)
{
	return atomic_load(&vb_patch_counts.sites[reason]);
}

static void ring_many(store_function *store, void *bell, uint64_t n)
{
	uint64_t before = total, sum_before = sum;

	for (uint64_t i = 1; i <= n; i++)
		store(bell, i);
	must(total == before + n);
	must(sum == sum_before + n * (n + 1) / 2);
}

/* --- when --------------------------------------------------------------------------------------------------------- */

static void patched_after_traps(void)
{
	uint64_t after = strtoul(getenv("VERBATIM_PATCH"), NULL, 10);
	void *bell = vb_trap_map(4096, count, NULL);
	store_function *store = function_at(text_map(NULL, long_store, sizeof(long_store)));

	ring_many(store, bell, RINGS);
	must(vb_patch_counts.patched == 1);
	must(vb_patch_counts.traps == (after ? after : 1));
	must(*(uint8_t *)(uintptr_t)store == 0xe9);
}

static void never_patched(void)
{
	void *bell = vb_trap_map(4096, count, NULL);
	store_function *store = function_at(text_map(NULL, long_store, sizeof(long_store)));

	ring_many(store, bell, RINGS);
	must(vb_patch_counts.patched == 0);
	must(vb_patch_counts.traps == RINGS);
	must(kept(VB_SITE_OFF) == 1);
	must(!memcmp((void *)(uintptr_t)store, long_store, sizeof(long_store)));
}

static void as_told(void **state)
{
	in_child(patched_after_traps, "first");
	in_child(patched_after_traps, "7");
	in_child(patched_after_traps, "32");
	in_child(never_patched, "off");
	in_child(never_patched, "soon");
	in_child(never_patched, "0");
}

/* --- where not ---------------------------------------------------------------------------------------------------- */

static void anonymous(void)
{
	void *bell = vb_trap_map(4096, count, NULL);
	void *text = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(text, long_store, sizeof(long_store));
	must(!mprotect(text, 4096, PROT_READ | PROT_EXEC));
	ring_many(function_at(text), bell, RINGS);
	must(vb_patch_counts.patched == 0 && kept(VB_SITE_TEXT) == 1);
}

static void memory_file(void)
{
	void *bell = vb_trap_map(4096, count, NULL), *text;
	int fd = memfd_create("jit", 0);

	must(write(fd, long_store, sizeof(long_store)) == sizeof(long_store));
	text = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	ring_many(function_at(text), bell, RINGS);
	must(vb_patch_counts.patched == 0 && kept(VB_SITE_TEXT) == 1);
}

static void writable(void)
{
	void *bell = vb_trap_map(4096, count, NULL);
	void *text = text_map(NULL, long_store, sizeof(long_store));

	must(!mprotect(text, 4096, PROT_READ | PROT_WRITE | PROT_EXEC));
	ring_many(function_at(text), bell, RINGS);
	must(vb_patch_counts.patched == 0 && kept(VB_SITE_TEXT) == 1);
}

/* memset() of libc: many doorbells, none of its bytes changes. */
static void of_libc(void)
{
	void *(*volatile fill)(void *, int, size_t) = memset;
	void *bell = vb_trap_map(4096, count, NULL);
	uint8_t before[64], now[64];

	memcpy(before, (void *)(uintptr_t)fill, 64);
	for (int i = 0; i < RINGS; i++)
		fill((char *)bell + 64, i, 4);
	memcpy(now, (void *)(uintptr_t)fill, 64);
	must(total >= RINGS && !memcmp(before, now, 64));
	must(vb_patch_counts.patched == 0 && kept(VB_SITE_EXEMPT) > 0);
}

static void strings(void)
{
	/* mov %rsi, %rax; stos %rax, (%rdi); ret */
	static const uint8_t code[] = { 0x48, 0x89, 0xf0, 0x48, 0xab, 0xc3 };
	void *bell = vb_trap_map(4096, count, NULL);

	ring_many(function_at(text_map(NULL, code, sizeof(code))), bell, RINGS);
	must(vb_patch_counts.patched == 0 && kept(VB_SITE_FORM) == 1);
}

/* A jump over a lock prefix lands on the same bytes. */
static void locked(void)
{
	/* jmp 1f; lock; 1: xchg %rsi, 0x100(%rdi); ret */
	static const uint8_t code[] = { 0xeb, 0x01, 0xf0, 0x48, 0x87, 0xb7,
					0x00, 0x01, 0x00, 0x00, 0xc3 };
	void *bell = vb_trap_map(4096, count, NULL);
	uint8_t *text = text_map(NULL, code, sizeof(code));

	ring_many(function_at(text), bell, RINGS);
	ring_many(function_at(text + 2), bell, RINGS);
	must(!memcmp(text + 3, code + 3, 7));
}

static void traced_child(void)
{
	void *bell = vb_trap_map(4096, count, NULL);
	store_function *store = function_at(text_map(NULL, long_store, sizeof(long_store)));

	must(!ptrace(PTRACE_TRACEME, 0, NULL, NULL));
	ring_many(store, bell, RINGS);
	must(vb_patch_counts.patched == 0 && kept(VB_SITE_TRACED) == 1);
	must(!memcmp((void *)(uintptr_t)store, long_store, sizeof(long_store)));
}

static void traced(void)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		traced_child();
		_exit(0);
	}
	while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status))
		ptrace(PTRACE_CONT, pid, NULL, WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status));
	must(status == 0);
}

/* openat() answers EPERM: no /proc, for what we know. */
static void close_in(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0))
		exit(0); /* not on this kernel */
}

static void closed_in_before(void)
{
	store_function *store = function_at(text_map(NULL, long_store, sizeof(long_store)));
	void *bell;

	close_in();
	bell = vb_trap_map(4096, count, NULL);
	ring_many(store, bell, RINGS);
	must(vb_patch_counts.patched == 0 && kept(VB_SITE_REFUSED) == 1);
}

static void closed_in_since(void)
{
	store_function *store = function_at(text_map(NULL, long_store, sizeof(long_store)));
	void *bell = vb_trap_map(4096, count, NULL);

	close_in();
	ring_many(store, bell, RINGS);
	must(vb_patch_counts.patched == 0 && kept(VB_SITE_REFUSED) == 1);
}

/* No descriptor left. */
static void no_descriptors(void)
{
	store_function *store = function_at(text_map(NULL, long_store, sizeof(long_store)));
	void *bell = vb_trap_map(4096, count, NULL);

	while (dup(0) >= 0)
		;
	ring_many(store, bell, RINGS);
	must(vb_patch_counts.patched == 0 && kept(VB_SITE_REFUSED) == 1);
}

static _Atomic bool thread_ready, thread_done;

/* Past the functions that would leave SIGSEGV unblocked. */
static void *block_all(void *arg)
{
	uint64_t all = UINT64_MAX;

	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, 8);
	thread_ready = true;
	while (!thread_done)
		sched_yield();
	return NULL;
}

/* A thread that would be ended by the hlt, were it to execute the site at that moment. */
static void blocked_thread(void)
{
	store_function *store = function_at(text_map(NULL, long_store, sizeof(long_store)));
	void *bell = vb_trap_map(4096, count, NULL);
	pthread_t thread;

	must(!pthread_create(&thread, NULL, block_all, NULL));
	while (!thread_ready)
		sched_yield();
	ring_many(store, bell, RINGS);
	must(vb_patch_counts.patched == 0 && kept(VB_SITE_REFUSED) == 1);
	thread_done = true;
	pthread_join(thread, NULL);
	/* It is tried again, now and then. */
	ring_many(store, bell, 10 * RINGS);
	must(vb_patch_counts.patched == 1 && kept(VB_SITE_REFUSED) == 0);
}

static void too_many(void)
{
	enum { SITES = VB_TRAMP_MAX + 10 };
	uint8_t *code = malloc(SITES * sizeof(long_store)), *text;
	void *bell = vb_trap_map(4096, count, NULL);

	for (int i = 0; i < SITES; i++)
		memcpy(code + (size_t)i * sizeof(long_store), long_store, sizeof(long_store));
	text = text_map(NULL, code, SITES * sizeof(long_store));
	for (int i = 0; i < SITES; i++)
		ring_many(function_at(text + (size_t)i * sizeof(long_store)), bell, 5);
	must(vb_patch_counts.patched == VB_TRAMP_MAX);
	must(kept(VB_SITE_FULL) == SITES - VB_TRAMP_MAX);
	free(code);
}

static void not_there(void **state)
{
	in_child(anonymous, "first");
	in_child(memory_file, "first");
	in_child(writable, "first");
	in_child(of_libc, "first");
	in_child(strings, "first");
	in_child(locked, "first");
	in_child(traced, "first");
	in_child(closed_in_before, "first");
	in_child(closed_in_since, "first");
	in_child(no_descriptors, "first");
	in_child(blocked_thread, "first");
	in_child(too_many, "first");
}

/* --- neighbours --------------------------------------------------------------------------------------------------- */

/* Stores side by side: the jump of one must not use bytes that the other's changes. */
static void adjacent(void)
{
	/* mov %esi, (%rdi); mov %esi, 4(%rdi); mov %esi, 8(%rdi); mov %rsi, 0x100(%rdi); ret */
	static const uint8_t code[] = { 0x89, 0x37, 0x89, 0x77, 0x04, 0x89, 0x77, 0x08,
					0x48, 0x89, 0xb7, 0x00, 0x01, 0x00, 0x00, 0xc3 };
	void *bell = vb_trap_map(4096, count, NULL);
	uint8_t *text = text_map(NULL, code, sizeof(code));

	for (unsigned int first = 0; first < 4; first++) {
		static const unsigned int at[] = { 0, 2, 5, 8 };
		store_function *store = function_at(text + at[first]);
		uint64_t before = total;

		for (uint64_t i = 0; i < RINGS; i++)
			store(bell, i);
		must(total == before + RINGS * (4 - first));
	}
	must(vb_patch_counts.patched >= 1);
	must(!memcmp(text + 15, code + 15, 1));
}

/* Many short ones, whose trampolines crowd into the same few pages: none damages another one. */
static void crowded(void)
{
	enum { CROWD = 120, SIZE = 32 };
	static const uint8_t shortest[] = {
		0x89, 0x37, 0x48, 0x31, 0xc0, 0xc3
	}; /* mov %esi, (%rdi); xor %rax, %rax */
	uint8_t bytes[CROWD * SIZE], *text;
	void *bell = vb_trap_map(4096, count, NULL), *memory = malloc(4096);

	memset(bytes, 0x90, sizeof(bytes));
	for (size_t i = 0; i < CROWD; i++)
		memcpy(bytes + i * SIZE, i % 2 ? shortest : short_store, 6);
	text = text_map(NULL, bytes, sizeof(bytes));
	for (int round = 0; round < 3; round++)
		for (size_t i = 0; i < CROWD; i++) {
			ring_many(function_at(text + i * SIZE), bell, 3);
			function_at(text + i * SIZE)(memory, 1);
		}
	must(vb_patch_counts.patched > CROWD / 2);
	free(memory);
}

static void neighbours(void **state)
{
	in_child(crowded, "first");
	in_child(adjacent, "first");
	in_child(adjacent, "2");
}

/* --- elsewhere ---------------------------------------------------------------------------------------------------- */

static void mostly_elsewhere(void)
{
	void *bell = vb_trap_map(4096, count, NULL);
	uint64_t *memory = calloc(1, 4096);
	uint8_t *text = text_map(NULL, long_store, sizeof(long_store));
	store_function *store = function_at(text);
	uint64_t traps;

	ring_many(store, bell, 10);
	must(vb_patch_counts.patched == 1);
	for (uint64_t i = 1; i <= 20000; i++) {
		store(memory, i);
		must(memory[32] == i);
	}
	ring_many(store, bell, 1);
	must(vb_patch_counts.patched == 0 && kept(VB_SITE_RESTORED) == 1);
	must(!memcmp(text, long_store, sizeof(long_store)));
	/* And it stays so. */
	traps = vb_patch_counts.traps;
	ring_many(store, bell, RINGS);
	must(vb_patch_counts.traps == traps + RINGS);
	must(!memcmp(text, long_store, sizeof(long_store)));
	free(memory);
}

/* One ring for fifty other stores is worth it. */
static void sometimes_elsewhere(void)
{
	void *bell = vb_trap_map(4096, count, NULL);
	uint64_t *memory = calloc(1, 4096);
	store_function *store = function_at(text_map(NULL, short_store, sizeof(short_store)));

	ring_many(store, bell, 10);
	must(vb_patch_counts.patched == 1);
	for (uint64_t i = 1; i <= 100000; i++) {
		store(memory, i);
		must(*(uint32_t *)((char *)memory + 0x14) == (uint32_t)i);
		if (i % 50 == 0)
			store(bell, i);
	}
	must(vb_patch_counts.patched == 1 && vb_patch_counts.traps == 1);
	free(memory);
}

static sigjmp_buf fault_back;
static void *volatile fault_rip, *volatile fault_addr;

static void on_segv(int sig, siginfo_t *info, void *context)
{
	fault_rip = (void *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	fault_addr = info->si_addr;
	siglongjmp(fault_back, 1);
}

/* A store through a patched site that is wrong: the program's handler sees the site. */
static void faults_of_the_program(void)
{
	struct sigaction act = { .sa_sigaction = on_segv, .sa_flags = SA_SIGINFO };
	void *bell = vb_trap_map(4096, count, NULL);
	char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *text = text_map(NULL, long_store, sizeof(long_store));
	store_function *store = function_at(text);

	must(!vb_signal_action(SIGSEGV, &act, NULL));
	ring_many(store, bell, RINGS);
	must(vb_patch_counts.patched == 1);
	if (!sigsetjmp(fault_back, 1)) {
		store(page, 1);
		must(false);
	}
	must(fault_rip == text && fault_addr == page + 0x100);
	/* Not canonical: a general protection fault. */
	if (!sigsetjmp(fault_back, 1)) {
		store((void *)0x1234567812345678, 1);
		must(false);
	}
	must(fault_rip == text);
	ring_many(store, bell, RINGS);
	must(vb_patch_counts.traps == 1);
}

static void elsewhere(void **state)
{
	in_child(mostly_elsewhere, "first");
	in_child(sometimes_elsewhere, "first");
	in_child(faults_of_the_program, "first");
}

/* --- code that goes away ------------------------------------------------------------------------------------------ */

/* As dlclose() and dlopen() do: other text at the same place. */
static void replaced(void)
{
	static const uint8_t other[] = {
		0x66, 0x89, 0xb7, 0x00, 0x01, 0x00, 0x00, 0xc3
	}; /* mov %si, 0x100(%rdi) */
	void *bell = vb_trap_map(4096, count, NULL);
	void *text = text_map(NULL, long_store, sizeof(long_store));

	for (int i = 0; i < 10; i++) {
		uint64_t traps = vb_patch_counts.traps;

		ring_many(function_at(text), bell, RINGS);
		must(vb_patch_counts.traps == traps + 3);
		must(*(uint8_t *)text == 0xe9);
		text_map(text, other, sizeof(other));
		ring_many(function_at(text), bell, RINGS);
		must(vb_patch_counts.traps == traps + 6);
		/* The very same code once more, unpatched. */
		text_map(text, other, sizeof(other));
		ring_many(function_at(text), bell, RINGS);
		text_map(text, long_store, sizeof(long_store));
	}
}

/* A plugin that comes and goes does not use up what is bounded. */
static void reloaded(void)
{
	void *bell = vb_trap_map(4096, count, NULL);
	void *text = text_map(NULL, long_store, sizeof(long_store));

	for (int i = 0; i < 40; i++) {
		ring_many(function_at(text), bell, 10);
		must(*(uint8_t *)text == 0xe9);
		text_map(text, long_store, sizeof(long_store));
	}
	must(kept(VB_SITE_FULL) == 0 && vb_patch_counts.patched == 1);
}

static void replaced_code(void **state)
{
	in_child(replaced, "3");
	in_child(reloaded, "first");
}

/* --- what the program sees ---------------------------------------------------------------------------------------- */

static void *frames[64];
static _Atomic int num_frames;

static void unwind(void *arg, size_t offset, const void *data, size_t size)
{
	num_frames = backtrace(frames, 64);
	errno = EDOM;
	atomic_fetch_add(&total, 1);
}

static void *site_address, *caller_address;

__attribute__((noinline)) static void ring_here(void *bell, int *before, int *after)
{
	caller_address = __builtin_return_address(0);
	*before = errno = ENOTTY;
	__asm__ volatile("leaq 1f(%%rip), %0\n"
			 "1: movl $7, 0x120(%1)"
			 : "=&r"(site_address)
			 : "r"(bell)
			 : "memory");
	*after = errno;
}

/* From the callback through the site to who called it. */
static void unwinds(void)
{
	void *bell = vb_trap_map(4096, unwind, NULL);
	int before, after;

	(void)backtrace(frames, 1); /* loads libgcc */
	for (int i = 0; i < 5; i++) {
		bool site = false, caller = false;

		num_frames = 0;
		ring_here(bell, &before, &after);
		must(before == after);
		for (int k = 0; k < num_frames; k++) {
			caller |= site && frames[k] == caller_address;
			site |= frames[k] == site_address;
		}
		must(site && caller);
	}
	must(vb_patch_counts.patched == 1 && vb_patch_counts.traps == 1);
}

static uint64_t in_use(void)
{
	uint32_t low, high;

	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
	return low;
}

static void use_vectors(void *arg, size_t offset, const void *data, size_t size)
{
	atomic_fetch_add(&total, 1);
	if (__builtin_cpu_supports("avx512bw"))
		__asm__ volatile("vpternlogd $255, %%zmm3, %%zmm3, %%zmm3\n"
				 "vpternlogd $255, %%zmm19, %%zmm19, %%zmm19\n"
				 "kxnorq %%k3, %%k3, %%k3\n"
				 "vzeroupper\n" ::
					 : "xmm3");
}

/* Components that were initial before a ring and are in use after it; mask: those that are made initial. */
static uint64_t newly_used(store_function *store, void *bell, uint32_t mask)
{
	static _Alignas(64) uint8_t image[4096];
	uint32_t low, high;
	uint64_t use;

	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	memset(image, 0, sizeof(image));
	*(uint32_t *)(image + 24) = 0x1f80;
	__asm__ volatile("xrstor64 %0" ::"m"(image), "a"(mask & low), "d"(0)
			 : "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
			   "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
	use = in_use();
	__asm__ volatile("call *%0" ::"r"(store), "D"(bell), "S"(1ull) : "memory");
	return in_use() & ~use;
}

/*
 * What is initial for the processor stays so, and x87 registers are not touched. A processor may say "in use" of
 * what is initial, and does so when the machine is shared: then it is asked again.
 */
static void state_stays_initial(void)
{
	static _Alignas(64) uint8_t before[512], after[512];
	void *bell = vb_trap_map(4096, use_vectors, NULL);
	store_function *store = function_at(text_map(NULL, long_store, sizeof(long_store)));
	unsigned int a = 0xd, b, c = 1, d;

	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	for (int i = 0; i < 5; i++)
		store(bell, 1);
	must(vb_patch_counts.patched == 1);
	for (uint32_t mask = 0; mask < 256 && (a & 4); mask += 2) {
		int tries = 0;

		while (newly_used(store, bell, mask))
			must(++tries < 50);
	}
	__asm__ volatile("fninit; fld1; fldpi; fldl2e");
	__asm__ volatile("fxsave64 %0" : "=m"(before));
	store(bell, 1);
	__asm__ volatile("fxsave64 %0" : "=m"(after));
	must(!memcmp(before, after, 24) && !memcmp(before + 32, after + 32, 128));
	__asm__ volatile("fninit");
}

/* Rounding and sticky flags of the program. */
static void rounding(void)
{
	void *bell = vb_trap_map(4096, use_vectors, NULL);
	store_function *store = function_at(text_map(NULL, long_store, sizeof(long_store)));
	uint32_t mine = 0x1f80 | 0x6000 | 0x8000 | 0x3f, now;

	store(bell, 1);
	__asm__ volatile("ldmxcsr %0" ::"m"(mine));
	for (int i = 0; i < 5; i++)
		store(bell, 1);
	__asm__ volatile("stmxcsr %0" : "=m"(now));
	must(now == mine);
}

static void as_after_a_store(void **state)
{
	in_child(unwinds, "first");
	in_child(state_stays_initial, "first");
	in_child(rounding, "first");
}

/* --- signals ------------------------------------------------------------------------------------------------------ */

static _Atomic bool inside, violated;
static sigjmp_buf jump;
static volatile bool may_jump;
static _Atomic uint32_t alarms;

/* Long enough to be met by a signal. */
static void slow(void *arg, size_t offset, const void *data, size_t size)
{
	if (atomic_exchange(&inside, true))
		violated = true;
	for (volatile int i = 0; i < 2000; i++)
		;
	inside = false;
	atomic_fetch_add(&total, 1);
}

static void on_alarm(int sig)
{
	alarms++;
	if (may_jump) {
		may_jump = false;
		siglongjmp(jump, 1);
	}
}

/* Handlers that jump away: never out of the middle of a doorbell. */
static void handlers_jump(void)
{
	struct itimerval often = { { 0, 200 }, { 0, 200 } }, never = { { 0, 0 }, { 0, 0 } };
	struct sigaction act = { .sa_handler = on_alarm };
	void *bell = vb_trap_map(4096, slow, NULL);
	store_function *store = function_at(text_map(NULL, long_store, sizeof(long_store)));
	volatile bool first = true;

	store(bell, 1);
	must(vb_patch_counts.patched == 1);
	must(!vb_signal_action(SIGALRM, &act, NULL));
	must(!setitimer(ITIMER_REAL, &often, NULL));
	while (alarms < 300) {
		if (!sigsetjmp(jump, 1) || first) {
			first = false;
			may_jump = true;
			store(bell, 1);
		}
	}
	may_jump = false;
	setitimer(ITIMER_REAL, &never, NULL);
	must(!violated && !inside);
	must(vb_patch_counts.traps == 1);
}

/* One that was there before the card, and past its functions. */
static void handlers_before(void)
{
	struct sigaction act = { .sa_handler = on_alarm };
	struct itimerval often = { { 0, 200 }, { 0, 200 } };
	void *bell;
	store_function *store = function_at(text_map(NULL, long_store, sizeof(long_store)));

	must(!vb_libc_sigaction(SIGALRM, &act, NULL));
	bell = vb_trap_map(4096, slow, NULL);
	store(bell, 1);
	must(vb_patch_counts.patched == 1);
	must(!setitimer(ITIMER_REAL, &often, NULL));
	while (alarms < 300)
		if (!sigsetjmp(jump, 1)) {
			may_jump = true;
			store(bell, 1);
		}
	must(!violated && !inside);
}

static void *handler_bell;
static store_function *handler_store;
static _Atomic uint64_t handler_rings;

static void ring_in_handler(int sig)
{
	handler_store(handler_bell, 1);
	handler_rings++;
}

/* A handler that rings through the same site. */
static void handlers_ring(void)
{
	struct itimerval often = { { 0, 100 }, { 0, 100 } }, never = { { 0, 0 }, { 0, 0 } };
	struct sigaction act = { .sa_handler = ring_in_handler, .sa_flags = SA_RESTART };
	uint64_t rings = 0;

	handler_bell = vb_trap_map(4096, slow, NULL);
	handler_store = function_at(text_map(NULL, short_store, sizeof(short_store)));
	must(!vb_signal_action(SIGALRM, &act, NULL));
	must(!setitimer(ITIMER_REAL, &often, NULL));
	while (handler_rings < 300) {
		handler_store(handler_bell, 1);
		rings++;
	}
	setitimer(ITIMER_REAL, &never, NULL);
	must(!violated && total == rings + handler_rings);
	must(vb_patch_counts.patched == 1);
}

static void signals(void **state)
{
	in_child(handlers_jump, "first");
	in_child(handlers_before, "first");
	in_child(handlers_ring, "first");
	in_child(handlers_ring, "50");
}

/* --- forks -------------------------------------------------------------------------------------------------------- */

static void forks_ring(void)
{
	void *bell = vb_trap_map(4096, count, NULL);
	store_function *store = function_at(text_map(NULL, long_store, sizeof(long_store)));
	store_function *second = function_at(text_map(NULL, short_store, sizeof(short_store)));
	int status;
	pid_t pid;

	ring_many(store, bell, RINGS);
	pid = fork();
	if (!pid) {
		uint64_t traps = vb_patch_counts.traps;

		ring_many(store, bell, RINGS);
		must(vb_patch_counts.traps == traps);
		ring_many(second, bell, RINGS);
		must(vb_patch_counts.traps == traps + 1);
		must(vb_patch_counts.patched == 2);
		_exit(0);
	}
	must(waitpid(pid, &status, 0) == pid && status == 0);
	must(!memcmp((void *)(uintptr_t)second, short_store, sizeof(short_store)));
	ring_many(second, bell, RINGS);
	must(vb_patch_counts.patched == 2);
	pid = vfork();
	if (!pid) {
		store(bell, 5);
		_exit(0);
	}
	must(waitpid(pid, &status, 0) == pid && status == 0);
	must(total == 2 * RINGS + 1);
}

/* A thread patches while others fork, with libc's function and without. */
static _Atomic bool forks_done;

static void *patch_often(void *arg)
{
	enum { SITES = 200 };
	uint8_t *code = malloc(SITES * sizeof(long_store)), *text;
	uint64_t *memory = calloc(1, 4096);

	for (int i = 0; i < SITES; i++)
		memcpy(code + (size_t)i * sizeof(long_store), long_store, sizeof(long_store));
	text = text_map(NULL, code, SITES * sizeof(long_store));
	for (int i = 0; i < SITES; i++) {
		store_function *store = function_at(text + (size_t)i * sizeof(long_store));

		*(void *_Atomic *)arg = (void *)(uintptr_t)store;
		store(handler_bell, 1);
		for (int k = 0; k < 6000; k++)
			store(memory, 1);
	}
	forks_done = true;
	return NULL;
}

static void forks_meet_changes(void)
{
	static void *_Atomic site;
	pthread_t thread;
	int status, n = 0;

	handler_bell = vb_trap_map(4096, count, NULL);
	must(!pthread_create(&thread, NULL, patch_often, (void *)&site));
	while (!forks_done) {
		void *at = site;
		pid_t pid = n++ % 2 ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();

		if (!pid) {
			uint64_t before = total;

			if (at)
				function_at(at)(handler_bell, 3);
			_exit(at && total != before + 1);
		}
		must(waitpid(pid, &status, 0) == pid && status == 0);
	}
	pthread_join(thread, NULL);
}

static void forks(void **state)
{
	in_child(forks_ring, "first");
	in_child(forks_meet_changes, "first");
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

enum { THREADS = 4, SITES = 40, STORES = 10000 };

static struct {
	uint8_t *text;
	size_t size;
	void *bell;
	pthread_barrier_t barrier;
} race;

/* Rings and plain stores through the same sites, while they are patched, and restored. */
static void *run_race(void *arg)
{
	uint64_t *memory = aligned_alloc(4096, 4096), me = (uintptr_t)arg;

	memset(memory, 0, 4096);
	for (uint64_t i = 0; i < SITES; i++) {
		store_function *store = function_at(race.text + i * race.size);
		/* half of the sites are restored in the middle of it */
		uint64_t every = i % 2 ? 2 : 1000;

		pthread_barrier_wait(&race.barrier);
		for (uint64_t k = 1; k <= STORES; k++) {
			uint64_t value = me << 32 | k;

			if (k % every == 0) {
				store(race.bell, 1);
			} else {
				store(memory, value);
				must(race.size == 16
					     ? *(uint32_t *)((char *)memory + 0x14) == (uint32_t)k
					     : memory[32] == value);
			}
		}
	}
	free(memory);
	return NULL;
}

static void race_over(const uint8_t *code, size_t n, size_t size)
{
	uint8_t *bytes = malloc(SITES * size);
	pthread_t threads[THREADS];

	memset(bytes, 0x90, SITES * size);
	for (size_t i = 0; i < SITES; i++)
		memcpy(bytes + i * size, code, n);
	race.size = size;
	race.text = text_map(NULL, bytes, SITES * size);
	race.bell = vb_trap_map(4096, count, NULL);
	total = 0;
	pthread_barrier_init(&race.barrier, NULL, THREADS);
	for (uintptr_t i = 0; i < THREADS; i++)
		must(!pthread_create(&threads[i], NULL, run_race, (void *)i));
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	must(total == (uint64_t)THREADS * SITES / 2 * (STORES / 2 + STORES / 1000));
	must(vb_patch_counts.patched >= SITES / 2 - 5);
	must(kept(VB_SITE_RESTORED) >= SITES / 4);
	free(bytes);
}

static void race_long(void)
{
	race_over(long_store, sizeof(long_store), 32);
}

static void race_short(void)
{
	race_over(short_store, sizeof(short_store), 16);
}

static _Atomic bool page_done;
static _Atomic uint64_t page_rings;

static void *ring_on(void *arg)
{
	store_function *store = function_at(race.text);
	uint64_t n = 0;

	pthread_barrier_wait(&race.barrier); /* a thread that starts has SIGSEGV blocked */
	while (!page_done) {
		store(race.bell, 1);
		n++;
	}
	atomic_fetch_add(&page_rings, n);
	return NULL;
}

/* Trampolines that share a page: one comes, and the page is replaced, while threads execute another. */
static void shared_page(void)
{
	enum { ON_PAGE = 60, SIZE = 16 };
	uint8_t bytes[ON_PAGE * SIZE];
	pthread_t threads[THREADS];
	uint64_t rings = 0;

	memset(bytes, 0x90, sizeof(bytes));
	for (size_t i = 0; i < ON_PAGE; i++)
		memcpy(bytes + i * SIZE, short_store, sizeof(short_store));
	race.text = text_map(NULL, bytes, sizeof(bytes));
	race.bell = vb_trap_map(4096, count, NULL);
	function_at(race.text)(race.bell, 1);
	pthread_barrier_init(&race.barrier, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		must(!pthread_create(&threads[i], NULL, ring_on, NULL));
	pthread_barrier_wait(&race.barrier);
	for (size_t i = 1; i < ON_PAGE; i++)
		for (int k = 0; k < 2000; k++, rings++)
			function_at(race.text + i * SIZE)(race.bell, 1);
	page_done = true;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	must(total == 1 + rings + page_rings);
	must(vb_patch_counts.patched == ON_PAGE);
}

static void threads_race(void **state)
{
	in_child(shared_page, "first");
	in_child(race_long, "first");
	in_child(race_short, "first");
	in_child(race_long, "5");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_told),       cmocka_unit_test(not_there),
		cmocka_unit_test(neighbours),    cmocka_unit_test(elsewhere),
		cmocka_unit_test(replaced_code), cmocka_unit_test(as_after_a_store),
		cmocka_unit_test(signals),       cmocka_unit_test(forks),
		cmocka_unit_test(threads_race),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
