// SPDX-License-Identifier: MIT
/*
 * Patched sites in programs that leave little room for them: faults of the store itself, small stacks, limits, filters,
 * forks in handlers, the first handler, children that libc knows nothing of, a signal at every instruction.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
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
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "host/patch/patch.h"
#include "host/signals.h"
#include "host/trap/trap.h"
#include "patch_text.h"

enum { RINGS = 100, ELSEWHERE = 20000, SPARE = 65536, FILL = 0xa5 };

/* What functions in front of libc's take of a stack. */
#ifdef __SANITIZE_ADDRESS__
enum { SANITIZER = 4096 };
#else
enum { SANITIZER = 0 };
#endif

/* mov %rsi, 0x100(%rdi); ret */
static const uint8_t long_store[] = { 0x48, 0x89, 0xb7, 0x00, 0x01, 0x00, 0x00, 0xc3 };
/* mov %esi, 0x14(%rdi); nop; nop; ret */
static const uint8_t short_store[] = { 0x89, 0x77, 0x14, 0x90, 0x90, 0xc3 };
/* movaps %xmm0, 0x100(%rdi); ret */
static const uint8_t aligned_store[] = { 0x0f, 0x29, 0x87, 0x00, 0x01, 0x00, 0x00, 0xc3 };

static _Alignas(4096) uint8_t memory[4096];
static _Atomic uint64_t total;
static store_function *shared_store;
static void *shared_bell;

static void count(void *arg, size_t offset, const void *data, size_t size)
{
	atomic_fetch_add(&total, 1);
}

static void ring_many(store_function *store, void *bell, uint64_t n)
{
	uint64_t before = total;

	for (uint64_t i = 0; i < n; i++)
		store(bell, i);
	must(total == before + n);
}

static void store_elsewhere(store_function *store)
{
	for (int i = 0; i < ELSEWHERE; i++)
		store(memory, 1);
}

/* A bell, and a site that is patched. */
static void make_patched(const uint8_t *code, size_t n)
{
	shared_bell = vb_trap_map(4096, count, NULL);
	shared_store = function_at(text_map(NULL, code, n));
	ring_many(shared_store, shared_bell, 10);
	must(vb_patch_counts.patched == 1);
}

/* --- faults of the store itself ----------------------------------------------------------------------------------- */

static sigjmp_buf jump;
static void *volatile fault_rip;

static void on_segv(int sig, siginfo_t *info, void *context)
{
	fault_rip = (void *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	siglongjmp(jump, 1);
}

static void expect_fault(void *at)
{
	fault_rip = NULL;
	if (!sigsetjmp(jump, 1))
		shared_store(at, 1);
	must(fault_rip == (void *)(uintptr_t)shared_store);
}

/* A general protection fault, as a hlt raises one: at a site that is patched, and that was. */
static void protection_fault(void)
{
	struct sigaction act = { .sa_sigaction = on_segv, .sa_flags = SA_SIGINFO };

	must(!vb_signal_action(SIGSEGV, &act, NULL));
	make_patched(aligned_store, sizeof(aligned_store));
	expect_fault(memory + 4);
	expect_fault((void *)0x8000000000000000u);
	store_elsewhere(shared_store);
	ring_many(shared_store, shared_bell, 1);
	must(vb_patch_counts.sites[VB_SITE_RESTORED] == 1);
	alarm(30); /* it was repeated for ever */
	for (int i = 0; i < 3; i++) {
		expect_fault(memory + 4);
		expect_fault((void *)0x8000000000000000u);
		ring_many(shared_store, shared_bell, 3);
	}
}

static void faults(void **state)
{
	in_child(protection_fault, "first");
}

/* --- limits ------------------------------------------------------------------------------------------------------- */

/* A file that grows beyond it would end the process by SIGXFSZ. */
static void file_size(void)
{
	void *bell = vb_trap_map(4096, count, NULL);
	store_function *store = function_at(text_map(NULL, long_store, sizeof(long_store)));
	struct rlimit none = { 0, 0 };

	must(!setrlimit(RLIMIT_FSIZE, &none));
	ring_many(store, bell, RINGS);
	must(vb_patch_counts.patched == 0 && vb_patch_counts.sites[VB_SITE_REFUSED] == 1);
}

/* A program that is ended for opening a file, for membarrier(), and for a question by prctl(). */
static void close_in(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 5, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 2),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_GET_SECCOMP, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	/* What the function of libibverbs.so.1 does in front of libc's. */
	vb_signal_note_prctl(PR_SET_NO_NEW_PRIVS);
	must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0))
		exit(0); /* not on this kernel */
}

static void restore_closed_in(void)
{
	make_patched(long_store, sizeof(long_store));
	close_in();
	store_elsewhere(shared_store);
	ring_many(shared_store, shared_bell, RINGS);
	must(vb_patch_counts.patched == 1);
}

static void patch_closed_in(void)
{
	void *bell = vb_trap_map(4096, count, NULL);
	store_function *store = function_at(text_map(NULL, long_store, sizeof(long_store)));

	close_in();
	ring_many(store, bell, RINGS);
	must(vb_patch_counts.patched == 0 && vb_patch_counts.sites[VB_SITE_REFUSED] == 1);
}

/* The lowest address of the first mapping with this name; 0 where there is none. */
static uintptr_t mapped_at(const char *name)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	uintptr_t start, found = 0;
	char line[512];

	must(maps);
	while (!found && fgets(line, sizeof(line), maps))
		if (strstr(line, name) && sscanf(line, "%lx", &start) == 1)
			found = start;
	fclose(maps);
	return found;
}

/* Text below the stack: what the stack may still grow into stays free. */
static void stack_grows(void)
{
	const struct rlimit large = { 512ul << 20, 512ul << 20 };
	uintptr_t stack = mapped_at("[stack]"), tramp;
	void *bell = vb_trap_map(4096, count, NULL);
	store_function *store;

	if (setrlimit(RLIMIT_STACK, &large))
		exit(0); /* not for us */
	store = function_at(text_map((void *)((stack - (80ul << 20)) & ~(uintptr_t)4095),
				     long_store, sizeof(long_store)));
	ring_many(store, bell, RINGS);
	must(vb_patch_counts.patched == 1);
	tramp = mapped_at(VB_TRAMP_FILE);
	must(tramp && (tramp > stack || stack - tramp > large.rlim_cur - (1ul << 20)));
}

static _Atomic bool over;

static void *close_all(void *arg)
{
	while (!over)
		for (int fd = 3; fd < 16; fd++)
			close(fd);
	return NULL;
}

/* A thread that closes every descriptor it can think of, as daemons do: each store still counts. */
static void descriptors_close(void)
{
	enum { SITES = 60, SIZE = 16 };
	static uint8_t bytes[SITES * SIZE];
	void *bell = vb_trap_map(4096, count, NULL);
	uint8_t *text;
	pthread_t thread;

	for (int i = 0; i < SITES; i++)
		memcpy(bytes + i * SIZE, long_store, sizeof(long_store));
	text = text_map(NULL, bytes, sizeof(bytes));
	alarm(60); /* it waited for ever for its file */
	must(!pthread_create(&thread, NULL, close_all, NULL));
	for (int round = 0; round < 20; round++)
		for (int i = 0; i < SITES; i++)
			ring_many(function_at(text + i * SIZE), bell, 5);
	over = true;
	must(!pthread_join(thread, NULL));
}

static void limits(void **state)
{
	in_child(file_size, "first");
	in_child(restore_closed_in, "first");
	in_child(patch_closed_in, "first");
	in_child(stack_grows, "first");
	in_child(descriptors_close, "first");
}

/* --- stacks ------------------------------------------------------------------------------------------------------- */

static uint8_t *make_stack(size_t size)
{
	uint8_t *low = mmap(NULL, SPARE + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);

	must(low != MAP_FAILED);
	memset(low, FILL, SPARE + size);
	return low + SPARE;
}

static void must_have_kept_to(const uint8_t *stack)
{
	for (const uint8_t *at = stack - SPARE; at < stack; at++)
		must(*at == FILL);
}

static void *ring_in_thread(void *arg)
{
	/* Refused while the thread that started this one has all signals blocked. */
	do
		ring_many(shared_store, shared_bell, 10 * RINGS);
	while (!vb_patch_counts.patched);
	return NULL;
}

/* The trap with and without the patch needs the same. */
static void small_thread(void)
{
	size_t size = (size_t)sysconf(_SC_THREAD_STACK_MIN);
	uint8_t *stack = make_stack(size);
	pthread_attr_t attr;
	pthread_t thread;

	shared_bell = vb_trap_map(4096, count, NULL);
	shared_store = function_at(text_map(NULL, long_store, sizeof(long_store)));
	must(!pthread_attr_init(&attr) && !pthread_attr_setstack(&attr, stack, size));
	must(!pthread_create(&thread, &attr, ring_in_thread, NULL));
	must(!pthread_join(thread, NULL));
	must(vb_patch_counts.patched == 1);
	must_have_kept_to(stack);
}

static void store_in_handler(int sig)
{
	store_elsewhere(shared_store);
}

/* A handler on an alternate stack: a store that rings nothing needs next to none of it, however many there are. */
static void small_alternate(void)
{
	struct sigaction act = { .sa_handler = store_in_handler, .sa_flags = SA_ONSTACK };
	long least = sysconf(_SC_MINSIGSTKSZ);
	stack_t alternate = { .ss_size = (size_t)(least > 0 ? least : 0) + 1024 + SANITIZER };
	uint8_t *stack = make_stack(alternate.ss_size);

	alternate.ss_sp = stack;
	must(!sigaltstack(&alternate, NULL));
	must(!vb_signal_action(SIGUSR1, &act, NULL));
	make_patched(long_store, sizeof(long_store));
	raise(SIGUSR1);
	must_have_kept_to(stack);
	must(vb_patch_counts.patched == 1);
	ring_many(shared_store, shared_bell, 1);
	must(vb_patch_counts.sites[VB_SITE_RESTORED] == 1);
}

static void stacks(void **state)
{
	in_child(small_thread, "first");
	in_child(small_alternate, "first");
}

/* --- forks -------------------------------------------------------------------------------------------------------- */

static volatile int handler_forks;

static void fork_once(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static void fork_in_handler(int sig)
{
	int saved = errno;

	fork_once();
	handler_forks++;
	errno = saved;
}

/* As a handler of SIGCHLD does that starts its next child. */
static void fork_meets_fork(void)
{
	struct itimerval often = { { 0, 20011 }, { 0, 20011 } };
	struct sigaction act = { .sa_handler = fork_in_handler, .sa_flags = SA_RESTART };

	make_patched(long_store, sizeof(long_store));
	must(!vb_signal_action(SIGALRM, &act, NULL));
	must(!setitimer(ITIMER_REAL, &often, NULL));
	while (handler_forks < 60)
		fork_once();
}

static void *ring_sixty(void *arg)
{
	for (int i = 0; i < 60; i++)
		shared_store(shared_bell, 1);
	return NULL;
}

static void ring_in_threads(void)
{
	enum { THREADS = 6 };
	pthread_t threads[THREADS];

	alarm(60);
	for (int i = 0; i < THREADS; i++)
		must(!pthread_create(&threads[i], NULL, ring_sixty, NULL));
	for (int i = 0; i < THREADS; i++)
		must(!pthread_join(threads[i], NULL));
	must(total == THREADS * 60);
	_exit(0);
}

/* A child made by a system call has threads of its own, which meet at a site that one of them changes. */
static void forked_past_libc(void)
{
	shared_bell = vb_trap_map(4096, count, NULL);
	shared_store = function_at(text_map(NULL, short_store, sizeof(short_store)));
	for (int i = 0; i < 300; i++) {
		pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		int status;

		if (!pid)
			ring_in_threads();
		must(waitpid(pid, &status, 0) == pid && status == 0);
	}
}

static void forks(void **state)
{
	in_child(fork_meets_fork, "first");
	in_child(forked_past_libc, "first");
}

/* --- the first handler -------------------------------------------------------------------------------------------- */

static _Atomic bool entered, left, jumped_out;

static void take_time(void *arg, size_t offset, const void *data, size_t size)
{
	const struct timespec time = { .tv_nsec = 20000000 };

	entered = true;
	nanosleep(&time, NULL);
	left = true;
}

static void jump_away(int sig)
{
	siglongjmp(jump, 1);
}

static void *ring_slowly(void *arg)
{
	if (!sigsetjmp(jump, 1))
		shared_store(arg, 1);
	jumped_out = !left;
	return NULL;
}

/* It is installed while another thread is in a call that holds no signals off: it waits for its end. */
static void first_handler(void)
{
	struct sigaction act = { .sa_handler = jump_away };
	void *slow = vb_trap_map(4096, take_time, NULL);
	pthread_t thread;

	make_patched(long_store, sizeof(long_store));
	must(!pthread_create(&thread, NULL, ring_slowly, slow));
	while (!entered)
		sched_yield();
	must(!vb_signal_action(SIGUSR1, &act, NULL));
	must(left);
	must(!pthread_join(thread, NULL));
	must(!jumped_out);
	vb_trap_unmap(slow);
}

static void handlers(void **state)
{
	in_child(first_handler, "first");
}

/* --- every instruction -------------------------------------------------------------------------------------------- */

void step_through(store_function *store, void *at, uint64_t value);

/* Calls store(at, value) with the trap flag set. */
__asm__(".text\n"
	".type step_through, @function\n"
	"step_through:\n"
	"	pushq %rbx\n"
	"	movq %rdi, %rbx\n"
	"	movq %rsi, %rdi\n"
	"	movq %rdx, %rsi\n"
	"	pushfq\n"
	"	orq $0x100, (%rsp)\n"
	"	popfq\n"
	"	call *%rbx\n"
	"	pushfq\n"
	"	andq $~0x100, (%rsp)\n"
	"	popfq\n"
	"	popq %rbx\n"
	"	ret\n"
	".size step_through, .-step_through\n");

static volatile bool stepping;
static volatile uint64_t steps;

static void on_step(int sig)
{
	if (stepping)
		return;
	stepping = true;
	shared_store(shared_bell, 1);
	steps++;
	stepping = false;
}

/* A handler that rings through the same site, at every instruction on the way. */
static void step_by_step(void)
{
	struct sigaction act = { .sa_handler = on_step };
	uint64_t before;
	uint32_t stored;

	make_patched(short_store, sizeof(short_store));
	must(!vb_signal_action(SIGTRAP, &act, NULL));
	before = total;
	step_through(shared_store, shared_bell, 1);
	must(steps > 100 && total == before + 1 + steps);
	step_through(shared_store, memory, 7);
	memcpy(&stored, memory + 0x14, sizeof(stored));
	must(stored == 7 && total == before + 1 + steps);
}

static void every_instruction(void **state)
{
	in_child(step_by_step, "first");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(faults),   cmocka_unit_test(limits),
		cmocka_unit_test(stacks),   cmocka_unit_test(forks),
		cmocka_unit_test(handlers), cmocka_unit_test(every_instruction),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
