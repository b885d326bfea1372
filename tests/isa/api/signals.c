// SPDX-License-Identifier: MIT
/*
 * Signals that arrive while guest code runs: ordinary handlers, on the interrupted stack and on an
 * alternate one, must find a usable stack and leave the guest undisturbed. Faults of host code stay
 * the program's own business.
 */
#include "bed.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../gen/gen.h"
#include "host/fault.h"

static atomic_uint handled, misplaced;
static _Thread_local uint8_t *alternate;
enum { ALTERNATE = 64 << 10 };

/* ThreadSanitizer holds signals back and runs handlers later, on whatever stack is then in use. */
#ifdef __SANITIZE_THREAD__
static const bool on_time = false;
#else
static const bool on_time = true;
#endif

static bool on_alternate(const void *p)
{
	return alternate && (const uint8_t *)p >= alternate &&
	       (const uint8_t *)p < alternate + ALTERNATE;
}

/* What handlers do: use a lot of stack, clobber every register, call functions, be counted. */
static void handler(int number)
{
	volatile uint8_t room[12 << 10];
	char text[256];

	for (unsigned i = 0; i < sizeof(room); i++)
		room[i] = (uint8_t)(i * number);
	snprintf(text, sizeof(text), "%d %u %f", number, room[77], (double)number / 3);
	if (on_alternate((const void *)room) != (number == SIGUSR2))
		atomic_fetch_add(&misplaced, 1);
	atomic_fetch_add(&handled, 1);
}

static void install(int number, int flags)
{
	struct sigaction sa = { .sa_handler = handler, .sa_flags = flags | SA_RESTART };

	assert_int_equal(sigaction(number, &sa, NULL), 0);
}

struct shooter {
	pthread_t target, self;
	atomic_bool stop;
	int number;
};

static void *shoot(void *arg)
{
	struct shooter *s = arg;

	while (!atomic_load(&s->stop)) {
		unsigned before = atomic_load(&handled);

		pthread_kill(s->target, s->number);
		while (atomic_load(&handled) == before && !atomic_load(&s->stop))
			sched_yield();
	}
	return NULL;
}

/* Random programs, again and again, until enough signals have hit them. */
static void under_fire(int number)
{
	struct shooter s = { .target = pthread_self(), .number = number };
	unsigned rounds = 0;

	atomic_store(&handled, 0);
	atomic_store(&misplaced, 0);
	assert_int_equal(pthread_create(&s.self, NULL, shoot, &s), 0);
	do {
		struct bed b = { 0 };
		struct rv_model m;

		gen_programs(&b.p, 5000 + rounds, 60, GEN_OURS);
		bed_open(&b, NULL);
		rv_model_init(&m, &b.p);
		assert_int_equal(rv_model_run(&m, ~0ull), RV_EXIT);
		for (int again = 0; again < 20; again++) {
			b.out_size = 0;
			bed_reset(&b);
			bed_state(&b)->instret = 0;
			/* The programs change their data, so it must be fresh each time. */
			assert_int_equal(
				vb_dpa_mem_write(b.process, b.p.data_base, b.p.data, b.p.data_size),
				0);
			assert_int_equal(bed_run(&b, UINT64_MAX), VB_DPA_WHY_EXIT);
			assert_int_equal(b.out_size, m.out_size);
			assert_memory_equal(b.out, m.out, m.out_size);
			assert_int_equal(bed_state(&b)->instret, m.count);
		}
		rv_model_free(&m);
		bed_close(&b);
	} while (++rounds < 8 || (atomic_load(&handled) < 50 && rounds < 200));
	atomic_store(&s.stop, true);
	pthread_join(s.self, NULL);
	assert_true(atomic_load(&handled) > 0);
	if (on_time)
		assert_int_equal(atomic_load(&misplaced), 0);
}

static void test_ordinary_stack(void **state)
{
	(void)state;
	install(SIGUSR1, 0);
	under_fire(SIGUSR1);
}

static void test_alternate_stack(void **state)
{
	stack_t ss = { .ss_size = ALTERNATE }, old;

	(void)state;
	ss.ss_sp = alternate = malloc(ALTERNATE);
	assert_int_equal(sigaltstack(&ss, &old), 0);
	install(SIGUSR2, SA_ONSTACK);
	under_fire(SIGUSR2);
	old.ss_flags |= old.ss_sp ? 0 : SS_DISABLE;
	assert_int_equal(sigaltstack(&old, NULL), 0);
	free(alternate);
	alternate = NULL;
}

/* Guest recursion to the end of its stack, so deep that the host's return stack is at its limit, under fire. */
static void test_deep_recursion(void **state)
{
	struct shooter s = { .target = pthread_self(), .number = SIGUSR1 };
	struct bed b = { 0 };
	int f = rv_label(&b.p), done = rv_label(&b.p);
	struct vb_dpa_thread_attr ta = { .stack_size = 8 << 20 };
	struct vb_dpa_thread *t;

	(void)state;
	/* f(n) = n ? f(n - 1) + 1 : 0, never in tail position */
	rv_place(&b.p, f);
	rv_branch(&b.p, OP_beq, 10, 0, done);
	rv_emit(&b.p, OP_addi, 2, 2, 0, -16);
	rv_emit(&b.p, OP_sd, 0, 2, 1, 8);
	rv_emit(&b.p, OP_addi, 10, 10, 0, -1);
	rv_jump(&b.p, 1, f);
	rv_emit(&b.p, OP_ld, 1, 2, 0, 8);
	rv_emit(&b.p, OP_addi, 2, 2, 0, 16);
	rv_emit(&b.p, OP_addi, 10, 10, 0, 1);
	rv_place(&b.p, done);
	rv_emit(&b.p, OP_jalr, 0, 1, 0, 0);
	install(SIGUSR1, 0);
	atomic_store(&handled, 0);
	bed_open(&b, NULL);
	assert_int_equal(vb_dpa_thread_create(b.process, &ta, &t), 0);
	assert_int_equal(pthread_create(&s.self, NULL, shoot, &s), 0);
	for (unsigned n = 0; n < 40 || (atomic_load(&handled) < 20 && n < 2000); n++) {
		uint64_t depth = 300000 - n % 40, result;

		assert_int_equal(vb_dpa_call(t, RV_TEXT, &depth, 1, &result), 0);
		assert_int_equal(result, depth);
	}
	atomic_store(&s.stop, true);
	pthread_join(s.self, NULL);
	assert_int_equal(vb_dpa_thread_destroy(t), 0);
	bed_close(&b);
}

static sigset_t eu_mask;

static enum vb_dpa_action note_mask(struct vb_dpa_thread *thread, struct vb_dpa_state *s, void *arg)
{
	(void)thread, (void)s, (void)arg;
	pthread_sigmask(SIG_BLOCK, NULL, &eu_mask);
	return VB_DPA_EXIT;
}

/* The threads that drive EUs leave asynchronous signals to the program's own threads. */
static void test_eu_threads_block(void **state)
{
	static const struct vb_dpa_ops ops = { .ecall = note_mask };
	static const int number[] = { SIGUSR1, SIGALRM, SIGTERM, SIGINT, SIGCHLD, SIGPROF };
	struct vb_dpa_process_attr pa = { .tier = bed_tier, .ops = &ops };
	struct vb_dpa_process *process;
	struct vb_dpa_thread *t;
	struct vb_dpa *dpa;
	struct rv_prog p;
	uint8_t *image;
	size_t size;

	(void)state;
	rv_init(&p);
	rv_emit(&p, OP_ecall, 0, 0, 0, 0);
	rv_layout(&p);
	size = rv_elf_image(&p, &image);
	assert_int_equal(vb_dpa_create(NULL, &dpa), 0);
	assert_int_equal(vb_dpa_process_create(dpa, image, size, &pa, &process, NULL), 0);
	assert_int_equal(vb_dpa_thread_create(process, NULL, &t), 0);
	assert_int_equal(vb_dpa_thread_set_call(t, RV_TEXT, NULL, 0), 0);
	assert_int_equal(vb_dpa_thread_start(t), 0);
	assert_int_equal(vb_dpa_thread_wait(t, -1, NULL), 0);
	for (unsigned i = 0; i < sizeof(number) / sizeof(number[0]); i++)
		assert_int_equal(sigismember(&eu_mask, number[i]), 1);
	assert_int_equal(sigismember(&eu_mask, SIGSEGV), 0);
	assert_int_equal(vb_dpa_thread_destroy(t), 0);
	assert_int_equal(vb_dpa_process_destroy(process), 0);
	assert_int_equal(vb_dpa_destroy(dpa), 0);
	rv_free(&p);
	free(image);
}

static void *host_page;

static void own_handler(int number, siginfo_t *info, void *context)
{
	(void)number, (void)context;
	_exit(info->si_addr == host_page ? 33 : 34);
}

/* A fault in the program itself, after the engine came into it, reaches the handler the program had. */
static void test_host_faults(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	if (!pid) {
		char *argv[] = { (char *)"/proc/self/exe",
				 (char *)(bed_tier == VB_DPA_TIER_JIT ? "jit" : "interp"),
				 (char *)"host-fault", NULL };

		execv(argv[0], argv); /* a fresh process, where the engine has not been yet */
		_exit(99);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 33);
}

static int host_fault_child(void)
{
	struct sigaction sa = { .sa_sigaction = own_handler, .sa_flags = SA_SIGINFO };
	struct bed b = { 0 };

	sigaction(SIGSEGV, &sa, NULL);
	host_page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	rv_data(&b.p, NULL, 64, 8);
	rv_emit(&b.p, OP_ld, 5, 0, 0, 16);
	rv_emit(&b.p, OP_ebreak, 0, 0, 0, 0);
	bed_expect_trap(&b, VB_DPA_CAUSE_LOAD, 16); /* a fault of the guest is not the program's */
	*(volatile char *)host_page = 1;
	return 35;
}

static enum vb_dpa_action copy_from_nowhere(struct vb_dpa_thread *thread, struct vb_dpa_state *s,
					    void *arg)
{
	char byte;

	(void)thread, (void)arg;
	s->x[10] = (uint64_t)vb_fault_copy(&byte, host_page, 1);
	return VB_DPA_CONTINUE;
}

/*
 * The card's guarded copies and the engine's traps share one handler: a copy that fails inside a
 * call of the guest is an error of the copy, the guest's own bad access right after it is a trap,
 * again and again, and whichever armed last.
 */
static void test_copies_and_traps(void **state)
{
	static const struct vb_dpa_ops ops = { .ecall = copy_from_nowhere };
	struct vb_dpa_process_attr pa = { .tier = bed_tier, .ops = &ops };
	struct vb_dpa_process *process;
	struct vb_dpa_thread *t;
	struct vb_dpa *dpa;
	struct rv_prog p;
	uint8_t *image;
	size_t size;

	(void)state;
	if (!on_time)
		skip(); /* nor does it know a jump out of a handler */
	host_page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	rv_init(&p);
	rv_emit(&p, OP_ecall, 0, 0, 0, 0);
	rv_emit(&p, OP_ld, 5, 0, 0, 16);
	rv_layout(&p);
	size = rv_elf_image(&p, &image);
	assert_int_equal(vb_dpa_create(NULL, &dpa), 0);
	assert_int_equal(vb_dpa_process_create(dpa, image, size, &pa, &process, NULL), 0);
	assert_int_equal(vb_dpa_thread_create(process, NULL, &t), 0);
	for (int i = 0; i < 100; i++) {
		if (i % 2)
			assert_int_equal(vb_fault_arm(), 0);
		assert_int_equal(vb_dpa_call(t, RV_TEXT, NULL, 0, NULL), -EFAULT);
		assert_int_equal((int64_t)vb_dpa_thread_state(t)->x[10], -EFAULT);
		assert_int_equal(vb_dpa_thread_state(t)->cause, VB_DPA_CAUSE_LOAD);
		assert_int_equal(vb_dpa_thread_state(t)->tval, 16);
	}
	assert_int_equal(vb_dpa_thread_destroy(t), 0);
	assert_int_equal(vb_dpa_process_destroy(process), 0);
	assert_int_equal(vb_dpa_destroy(dpa), 0);
	rv_free(&p);
	free(image);
	munmap(host_page, 4096);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ordinary_stack), cmocka_unit_test(test_alternate_stack),
		cmocka_unit_test(test_deep_recursion), cmocka_unit_test(test_eu_threads_block),
		cmocka_unit_test(test_host_faults),    cmocka_unit_test(test_copies_and_traps),
	};

	bed_main(argc, argv);
	if (argc > 2)
		return host_fault_child();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
