// SPDX-License-Identifier: MIT
/*
 * Patched sites in programs that do what few do: threads that are cancelled, children that unmap, locks that are held over
 * a fork, stacks and heaps that grow, instructions that want alignment.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/patch/patch.h"
#include "host/signals.h"
#include "host/trap/trap.h"
#include "patch_text.h"

enum { LOOK = 70000 };

/* mov %rsi, 0x100(%rdi); ret */
static const uint8_t long_store[] = { 0x48, 0x89, 0xb7, 0x00, 0x01, 0x00, 0x00, 0xc3 };

static _Atomic uint64_t total;
static store_function *shared_store;
static void *shared_bell;

static void count(void *arg, size_t offset, const void *data, size_t size)
{
	atomic_fetch_add(&total, 1);
}

/* A bell, and a site that is patched unless the trap was asked for. */
static void make_site(vb_trap_store *callback)
{
	const char *after = getenv("VERBATIM_PATCH");

	shared_bell = vb_trap_map(4096, callback, NULL);
	shared_store = function_at(text_map(NULL, long_store, sizeof(long_store)));
	for (int i = 0; i < 10; i++)
		shared_store(shared_bell, 1);
	must(vb_patch_counts.patched == (strcmp(after, "off") != 0));
}

/* --- cancellation --------------------------------------------------------------------------------------------------- */

static _Atomic bool survived;

static void *ring_cancelled(void *arg)
{
	pthread_cancel(pthread_self());
	for (int i = 0; i < LOOK; i++)
		shared_store(shared_bell, 1);
	survived = true;
	pthread_testcancel();
	return NULL;
}

/* A store is no cancellation point, however often it is executed. */
static void cancelled_later(void)
{
	pthread_t thread;
	void *result;

	make_site(count);
	must(!pthread_create(&thread, NULL, ring_cancelled, NULL));
	must(!pthread_join(thread, &result));
	must(result == PTHREAD_CANCELED && survived);
}

static pthread_mutex_t device = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool started;

/* As a card has locks. */
static void locked(void *arg, size_t offset, const void *data, size_t size)
{
	pthread_mutex_lock(&device);
	for (volatile int i = 0; i < 200; i++)
		;
	pthread_mutex_unlock(&device);
	atomic_fetch_add(&total, 1);
}

static void *ring_on(void *arg)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	started = true;
	for (;;)
		shared_store(shared_bell, 1);
	return NULL;
}

/* Nor does a thread that may be cancelled anywhere take the card's locks with it. */
static void cancelled_anywhere(void)
{
	alarm(60);
	make_site(locked);
	for (int i = 0; i < 500; i++) {
		pthread_t thread;
		void *result;

		started = false;
		must(!pthread_create(&thread, NULL, ring_on, NULL));
		while (!started)
			sched_yield();
		for (volatile int n = 0; n < i % 50 * 20; n++)
			;
		must(!pthread_cancel(thread) && !pthread_join(thread, &result));
		must(result == PTHREAD_CANCELED);
		must(!pthread_mutex_trylock(&device));
		pthread_mutex_unlock(&device);
	}
}

static void *ring_until_patched(void *arg)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	started = true;
	for (;;)
		function_at(arg)(shared_bell, 1);
	return NULL;
}

/* In the middle of patching: the next fork() waits for nobody. */
static void cancelled_patching(void)
{
	alarm(60);
	shared_bell = vb_trap_map(4096, count, NULL);
	for (int i = 0; i < 60; i++) {
		void *text = text_map(NULL, long_store, sizeof(long_store));
		pthread_t thread;
		pid_t pid;

		started = false;
		must(!pthread_create(&thread, NULL, ring_until_patched, text));
		while (!started)
			sched_yield();
		for (volatile int n = 0; n < i * 500; n++)
			;
		must(!pthread_cancel(thread) && !pthread_join(thread, NULL));
		pid = fork();
		if (!pid)
			_exit(0);
		must(waitpid(pid, NULL, 0) == pid);
	}
}

static void cancellation(void **state)
{
	in_child(cancelled_later, "first");
#ifdef __SANITIZE_ADDRESS__
	/* It keeps what it knows of the frames that such a cancellation leaves, and calls the next ones there wrong. */
	skip();
#endif
	in_child(cancelled_anywhere, "off");
	in_child(cancelled_anywhere, "first");
	in_child(cancelled_patching, "first");
}

/* --- forks ---------------------------------------------------------------------------------------------------------- */

static _Atomic bool over;

static void *ring_till_over(void *arg)
{
	while (!over)
		shared_store(shared_bell, 1);
	return NULL;
}

/* A thread that was in a callback does not exist in the child: nobody waits for it. */
static void unmap_in_child(void)
{
	pthread_t thread;

	make_site(locked);
	must(!pthread_create(&thread, NULL, ring_till_over, NULL));
	for (int i = 0; i < 300; i++) {
		pid_t pid = fork();
		int status;

		if (!pid) {
			alarm(10);
			vb_trap_unmap(shared_bell);
			_exit(0);
		}
		must(waitpid(pid, &status, 0) == pid && status == 0);
	}
	over = true;
	must(!pthread_join(thread, NULL));
}

static pthread_mutex_t program = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool holding, forking;

static void lock_program(void)
{
	forking = true;
	pthread_mutex_lock(&program);
}

static void unlock_program(void)
{
	pthread_mutex_unlock(&program);
}

static void *close_locked(void *arg)
{
	pthread_mutex_lock(&program);
	holding = true;
	while (!forking)
		sched_yield();
	vb_patch_hide(arg);
	pthread_mutex_unlock(&program);
	return NULL;
}

/* A lock that a program takes before it forks, and has while it closes a device. */
static void fork_meets_close(void)
{
	struct vb_slot_doorbells slot = { 0 };
	pthread_t thread;
	pid_t pid;

	alarm(20);
	must(!pthread_atfork(lock_program, unlock_program, unlock_program));
	make_site(count);
	vb_patch_publish(&slot);
	must(!pthread_create(&thread, NULL, close_locked, &slot));
	while (!holding)
		sched_yield();
	pid = fork();
	if (!pid)
		_exit(0);
	must(waitpid(pid, NULL, 0) == pid);
	must(!pthread_join(thread, NULL));
}

/* Patches one site again and again: its code is loaded anew each time. */
static void *patch_again(void *arg)
{
	void *text = text_map(NULL, long_store, sizeof(long_store));

	while (!over) {
		must(madvise(text, 4096, MADV_DONTNEED) == 0);
		function_at(text)(shared_bell, 1);
	}
	return NULL;
}

/* A child made by a system call has no thread that patches, and forks as any other. */
static void fork_past_libc_forks(void)
{
	pthread_t thread;

	shared_bell = vb_trap_map(4096, count, NULL);
	must(!pthread_create(&thread, NULL, patch_again, NULL));
	while (!vb_patch_counts.patched)
		sched_yield();
	for (int i = 0; i < 100; i++) {
		pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		int status, waited = 0;

		if (!pid) {
			pid_t grandchild = fork();

			if (!grandchild)
				_exit(0);
			_exit(waitpid(grandchild, &status, 0) == grandchild ? status : 3);
		}
		/* It blocks all signals where it hangs: no alarm would end it. */
		while (!waitpid(pid, &status, WNOHANG) && waited++ < 10000)
			usleep(1000);
		if (waited > 10000)
			kill(pid, SIGKILL);
		must(waited <= 10000 && status == 0);
	}
	over = true;
	must(!pthread_join(thread, NULL));
}

static void forks(void **state)
{
	in_child(fork_past_libc_forks, "first");
	in_child(unmap_in_child, "off");
	in_child(unmap_in_child, "first");
	in_child(fork_meets_close, "first");
}

/* --- numbers -------------------------------------------------------------------------------------------------------- */

static pthread_barrier_t all_ready;

static void *ring_together(void *arg)
{
	pthread_barrier_wait(&all_ready);
	function_at(arg)(shared_bell, 1);
	return NULL;
}

/* Each site counts once, however many threads meet at it. */
static void threads_count_once(void)
{
	enum { THREADS = 8, SITES = 40 };
	pthread_t threads[THREADS];

	shared_bell = vb_trap_map(4096, count, NULL);
	must(!pthread_barrier_init(&all_ready, NULL, THREADS));
	for (int i = 0; i < SITES; i++) {
		void *text = text_map(NULL, long_store, sizeof(long_store));

		for (int n = 0; n < THREADS; n++)
			must(!pthread_create(&threads[n], NULL, ring_together, text));
		for (int n = 0; n < THREADS; n++)
			must(!pthread_join(threads[n], NULL));
		function_at(text)(shared_bell, 1);
		must(vb_patch_counts.sites[VB_SITE_OFF] == (uint32_t)i + 1);
	}
}

/* One whose code is replaced is another one, and the old one is gone. */
static void replaced_counts_once(void)
{
	/* stos %al, (%rdi); ret and stos %eax, (%rdi); ret */
	static const uint8_t code[2][2] = { { 0xaa, 0xc3 }, { 0xab, 0xc3 } };
	void *text = text_map(NULL, code[0], sizeof(code[0]));

	shared_bell = vb_trap_map(4096, count, NULL);
	for (int i = 0; i < 10; i++) {
		text_map(text, code[i % 2], sizeof(code[0]));
		for (int n = 0; n < 3; n++)
			function_at(text)(shared_bell, 1);
		must(vb_patch_counts.sites[VB_SITE_FORM] == 1);
	}
}

static void numbers(void **state)
{
	in_child(threads_count_once, "off");
	in_child(replaced_counts_once, "first");
}

/* --- stacks --------------------------------------------------------------------------------------------------------- */

/* As most who compute have it: that is no reason for the trap. */
static void unlimited_stack(void)
{
	const struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };

	if (setrlimit(RLIMIT_STACK, &unlimited))
		exit(0); /* not for us */
	make_site(count);
}

static sigjmp_buf jump;
static stack_t seen;

static void on_segv(int sig)
{
	must(!sigaltstack(NULL, &seen));
	siglongjmp(jump, 1);
}

/* A store to a doorbell that is none that we know is the program's fault, and its handler has the stack that it asked for. */
static void alternate_stays(void)
{
	/* addq %rsi, 0x100(%rdi); ret */
	static const uint8_t add[] = { 0x48, 0x01, 0xb7, 0x00, 0x01, 0x00, 0x00, 0xc3 };
	struct sigaction act = { .sa_handler = on_segv, .sa_flags = SA_ONSTACK };
	stack_t alternate = { .ss_sp = malloc(65536), .ss_size = 65536 }, after;
	void *text = text_map(NULL, add, sizeof(add));

	make_site(count);
	must(!sigaltstack(&alternate, NULL));
	must(!vb_signal_action(SIGSEGV, &act, NULL));
	must(freopen("/dev/null", "w", stderr)); /* what is said about the store */
	if (!sigsetjmp(jump, 1))
		function_at(text)(shared_bell, 1);
	must(!sigaltstack(NULL, &after));
	if (seen.ss_flags != SS_ONSTACK || after.ss_flags || after.ss_sp != alternate.ss_sp)
		_exit(2);
}

static void stacks(void **state)
{
	in_child(unlimited_stack, "first");
	in_child(alternate_stays, "first");
}

/* --- handlers ------------------------------------------------------------------------------------------------------- */

static _Atomic bool entered, left;

static void take_time(void *arg, size_t offset, const void *data, size_t size)
{
	const struct timespec time = { .tv_nsec = 50000000 };

	entered = true;
	nanosleep(&time, NULL);
	left = true;
}

static void do_nothing(int sig)
{
}

static void install(int sig)
{
	struct sigaction act = { .sa_handler = do_nothing };

	must(!vb_signal_action(sig, &act, NULL));
}

static void *install_first(void *arg)
{
	install(SIGUSR1);
	return NULL;
}

static void *ring_slowly(void *arg)
{
	shared_store(arg, 1);
	return NULL;
}

/* The first one waits for a call that holds no signals off: so does one that comes while it waits. */
static void second_handler(void)
{
	pthread_t ringer, first;
	void *slow;

	make_site(count);
	slow = vb_trap_map(4096, take_time, NULL);
	must(!pthread_create(&ringer, NULL, ring_slowly, slow));
	while (!entered)
		sched_yield();
	must(!pthread_create(&first, NULL, install_first, NULL));
	while (!atomic_load(vb_signal_keeper.handlers))
		sched_yield();
	install(SIGUSR2);
	must(left);
	must(!pthread_join(first, NULL) && !pthread_join(ringer, NULL));
}

static void handlers(void **state)
{
	in_child(second_handler, "first");
}

/* --- two threads at a new site ------------------------------------------------------------------------------------- */

/* Between the look into the table and the look at the bytes another thread has the site patched. */
static size_t read_late(uintptr_t rip, uint8_t *code)
{
	shared_store(shared_bell, 1);
	must(vb_patch_counts.patched == 1);
	memcpy(code, (const void *)rip, sizeof(long_store));
	return sizeof(long_store);
}

/* What the first thread executed is the store, whatever stands there now. */
static void patched_meanwhile(void)
{
	uint8_t code[VB_STORE_CODE_MAX];
	const struct vb_tramp *tramp;
	size_t len;

	shared_bell = vb_trap_map(4096, count, NULL);
	shared_store = function_at(text_map(NULL, long_store, sizeof(long_store)));
	tramp = vb_patch_executed((uintptr_t)shared_store, code, &len, read_late);
	must(len == sizeof(long_store) && memcmp(code, long_store, len));
	must(tramp && tramp->form.length == sizeof(long_store) - 1);
	must(!memcmp(tramp->code, long_store, tramp->form.length));
}

static void meetings(void **state)
{
	in_child(patched_meanwhile, "first");
}

/* --- flags and alignment -------------------------------------------------------------------------------------------- */

void store_checked(store_function *store, void *at, uint64_t value);

/* Calls store(at, value) with alignment checks switched on. */
__asm__(".text\n"
	".type store_checked, @function\n"
	"store_checked:\n"
	"	pushq %rbx\n"
	"	movq %rdi, %rbx\n"
	"	movq %rsi, %rdi\n"
	"	movq %rdx, %rsi\n"
	"	pushfq\n"
	"	orq $0x40000, (%rsp)\n"
	"	popfq\n"
	"	call *%rbx\n"
	"	pushfq\n"
	"	testq $0x40000, (%rsp)\n"
	"	jnz 1f\n"
	"	ud2\n"
	"1:	andq $~0x40000, (%rsp)\n"
	"	popfq\n"
	"	popq %rbx\n"
	"	ret\n"
	".size store_checked, .-store_checked\n");

static uint8_t packet[16];

static void write_unaligned(void *arg, size_t offset, const void *data, size_t size)
{
	/* Not by C, in which it would be undefined. */
	__asm__ volatile("movq %1, %0" : "=m"(packet[1]) : "r"((uint64_t)size) : "memory");
	atomic_fetch_add(&total, 1);
}

/* The flag is the program's, and not for the card's accesses. */
static void alignment_checks(void)
{
	make_site(write_unaligned);
	total = 0;
	for (int i = 0; i < 10; i++)
		store_checked(shared_store, shared_bell, 1);
	must(total == 10);
}

static void on_misaligned(int sig)
{
	siglongjmp(jump, 1);
}

/* An instruction that wants alignment faults without it, patched or not, and rings nothing. */
static void misaligned(void)
{
	/* movaps %xmm0, 0x100(%rdi); ret and movntdq %xmm0, 0x100(%rdi); ret */
	static const uint8_t code[2][9] = {
		{ 0x0f, 0x29, 0x87, 0x00, 0x01, 0x00, 0x00, 0xc3 },
		{ 0x66, 0x0f, 0xe7, 0x87, 0x00, 0x01, 0x00, 0x00, 0xc3 },
	};
	struct sigaction act = { .sa_handler = on_misaligned };

	make_site(count);
	must(!vb_signal_action(SIGSEGV, &act, NULL));
	for (int i = 0; i < 2; i++) {
		store_function *store = function_at(text_map(NULL, code[i], sizeof(code[i])));
		volatile bool faulted = false;

		total = 0;
		store(shared_bell, 1);
		store(shared_bell, 1);
		if (!sigsetjmp(jump, 1))
			store((uint8_t *)shared_bell + 8, 1);
		else
			faulted = true;
		must(faulted && total == 2);
	}
}

static void flags(void **state)
{
	in_child(misaligned, "off");
	in_child(misaligned, "first");
	in_child(alignment_checks, "off");
	in_child(alignment_checks, "first");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cancellation), cmocka_unit_test(forks),
		cmocka_unit_test(numbers),      cmocka_unit_test(stacks),
		cmocka_unit_test(handlers),     cmocka_unit_test(flags),
		cmocka_unit_test(meetings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
