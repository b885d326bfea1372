// SPDX-License-Identifier: MIT
/*
 * The rest of what a process offers: which tier runs and how to force it, symbols, guest memory,
 * calls with arguments, the dump in words, the file for profilers.
 */
#include "bed.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/time.h"

static struct vb_dpa_process *create(struct vb_dpa *dpa, const struct rv_prog *p,
				     enum vb_dpa_tier tier)
{
	struct vb_dpa_process_attr pa = { .tier = tier, .name = "probe" };
	struct vb_dpa_process *process;
	uint8_t *image;
	size_t size = rv_elf_image(p, &image);

	assert_int_equal(vb_dpa_process_create(dpa, image, size, &pa, &process, NULL), 0);
	free(image);
	return process;
}

static void expect_tier(const char *env, enum vb_dpa_tier asked, enum vb_dpa_tier got)
{
	struct vb_dpa_process *process;
	struct rv_prog p;
	struct vb_dpa *dpa;

	if (env)
		setenv("VERBATIM_DPA_TIER", env, 1);
	rv_init(&p);
	rv_emit(&p, OP_jalr, 0, 1, 0, 0);
	rv_layout(&p);
	assert_int_equal(vb_dpa_create(NULL, &dpa), 0);
	process = create(dpa, &p, asked);
	assert_int_equal(vb_dpa_process_tier(process), got);
	assert_int_equal(vb_dpa_process_destroy(process), 0);
	assert_int_equal(vb_dpa_destroy(dpa), 0);
	rv_free(&p);
	unsetenv("VERBATIM_DPA_TIER");
}

static void test_tiers(void **state)
{
	(void)state;
	expect_tier(NULL, VB_DPA_TIER_INTERP, VB_DPA_TIER_INTERP);
	expect_tier("interp", VB_DPA_TIER_JIT, VB_DPA_TIER_INTERP);
	expect_tier("interp", VB_DPA_TIER_AUTO, VB_DPA_TIER_INTERP);
	if (bed_tier == VB_DPA_TIER_JIT) {
		expect_tier(NULL, VB_DPA_TIER_AUTO, VB_DPA_TIER_JIT);
		expect_tier("jit", VB_DPA_TIER_INTERP, VB_DPA_TIER_JIT);
	}
}

/* From here on no memory of this process can become executable, as hardened systems have it. */
static int refuse_exec(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* In a child: two processes; exit 0 if both are interpreted and work. Its stderr is what it says about that. */
static int without_exec(void)
{
	struct rv_prog p;
	struct vb_dpa *dpa;

	if (refuse_exec())
		return 77;
	rv_init(&p);
	rv_emit(&p, OP_addi, 10, 10, 0, 2);
	rv_emit(&p, OP_jalr, 0, 1, 0, 0);
	rv_layout(&p);
	if (vb_dpa_create(NULL, &dpa))
		return 1;
	for (int round = 0; round < 2; round++) {
		struct vb_dpa_process *process = create(dpa, &p, VB_DPA_TIER_JIT);
		struct vb_dpa_thread *thread;
		uint64_t arg = 40, result;

		if (vb_dpa_process_tier(process) != VB_DPA_TIER_INTERP ||
		    vb_dpa_thread_create(process, NULL, &thread) ||
		    vb_dpa_call(thread, RV_TEXT, &arg, 1, &result) || result != 42)
			return 2;
	}
	return 0;
}

/* Where executable memory is refused the interpreter takes over and says so once. */
static void test_no_executable_memory(void **state)
{
	char said[4096] = "", *at = said;
	int p[2], status, lines = 0;
	ssize_t n;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (!pid) {
		dup2(p[1], 2);
		_exit(without_exec());
	}
	close(p[1]);
	while ((n = read(p[0], at, (size_t)(said + sizeof(said) - 1 - at))) > 0)
		at += n;
	close(p[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
	for (at = said; *at; at++)
		lines += *at == '\n';
	assert_int_equal(lines, 1);
	assert_non_null(strstr(said, "interpret"));
}

/* f(a, b, ...) = sum of eight weighted arguments; registers of the caller's choice come back. */
static void test_call(void **state)
{
	struct bed b = { 0 };
	uint64_t args[8], want = 0, result;

	(void)state;
	rv_emit(&b.p, OP_addi, 5, 0, 0, 0);
	for (unsigned i = 0; i < 8; i++) {
		rv_emit(&b.p, OP_slli, 6, 5, 0, 4);
		rv_emit(&b.p, OP_add, 5, 6, 10 + i, 0);
		args[i] = i * 0x1000000001ull + 3;
		want = (want << 4) + args[i];
	}
	rv_emit(&b.p, OP_addi, 10, 5, 0, 0);
	rv_emit(&b.p, OP_jalr, 0, 1, 0, 0);
	bed_open(&b, NULL);
	for (int round = 0; round < 3; round++) {
		assert_int_equal(vb_dpa_call(b.thread, RV_TEXT, args, 8, &result), 0);
		assert_int_equal(result, want);
		assert_int_equal(bed_state(&b)->x[2] % 16, 0); /* the psABI's stack alignment */
	}
	assert_int_equal(vb_dpa_call(b.thread, 0, args, 1, &result), -EFAULT);
	assert_int_equal(bed_state(&b)->cause, VB_DPA_CAUSE_FETCH);
	assert_ptr_equal(vb_dpa_thread_process(b.thread), b.process);
	bed_close(&b);
}

/* A view that was good when it was taken: behind an unmap every use of it is an error, and no more. */
static void expect_gone(struct bed *b, u64 addr)
{
	struct vb_dpa_view view = vb_dpa_mem_host(b->process, addr, 4096, VB_DPA_READ);
	struct vb_dpa_view other;
	u64 at = 0, word = 7;

	assert_false(vb_view_is_none(view));
	assert_int_equal(vb_view_store(view, 8, 0x0102030405060708), 0);
	for (uint32_t size = 1; size <= 8; size *= 2) {
		assert_int_equal(vb_view_load(view, size, &word), 0);
		assert_int_equal(word, 0x0102030405060708 & (~0ull >> (64 - 8 * size)));
		assert_int_equal(vb_view_store(vb_view_at(view, 16), size, ~0ull), 0);
		assert_int_equal(vb_view_get(view, 16, 8), ~0ull >> (64 - 8 * size));
	}
	assert_int_equal(vb_dpa_mem_map(b->process, &at, 4096, VB_DPA_READ | VB_DPA_WRITE), 0);
	other = vb_dpa_mem_host(b->process, at, 4096, VB_DPA_READ | VB_DPA_WRITE);
	assert_int_equal(vb_dpa_mem_unmap(b->process, at, 4096), 0);
	assert_false(vb_view_is_readable(other, 8));
	assert_int_equal(vb_view_load(other, 8, &word), -EFAULT);
	assert_int_equal(vb_view_store(other, 8, 1), -EFAULT);
	assert_int_equal(vb_view_read(other, &word, 8), -EFAULT);
	assert_int_equal(vb_view_write(other, &word, 8), -EFAULT);
	assert_int_equal(vb_view_copy(view, other, 8), -EFAULT);
	assert_int_equal(vb_view_copy(other, view, 8), -EFAULT);
	assert_int_equal(vb_view_get(other, 0, 4), 0);
	vb_view_put(other, 0, 4, 1);
}

static void test_memory(void **state)
{
	struct bed b = { 0 };
	uint64_t any = 0, fixed = 0x2000000, again = 0x2000000, v;
	uint8_t *host;

	(void)state;
	rv_data(&b.p, "hello", 6, 8);
	rv_emit(&b.p, OP_jalr, 0, 1, 0, 0);
	bed_open(&b, NULL);
	assert_int_equal(vb_dpa_mem_map(b.process, &any, 100, VB_DPA_READ | VB_DPA_WRITE), 0);
	assert_int_equal(any % 4096, 0);
	assert_true(any >= 4096);
	assert_int_equal(vb_dpa_mem_map(b.process, &fixed, 8192, VB_DPA_READ), 0);
	assert_int_equal(fixed, 0x2000000);
	assert_int_equal(vb_dpa_mem_map(b.process, &again, 4096, VB_DPA_READ), -EEXIST);
	again = RV_TEXT;
	assert_int_equal(vb_dpa_mem_map(b.process, &again, 4096, VB_DPA_READ), -EEXIST);
	host = vb_view_lend(vb_dpa_mem_host(b.process, any, 4096, VB_DPA_READ | VB_DPA_WRITE));
	assert_non_null(host);
	assert_int_equal(host[0], 0);
	host[5] = 55;
	assert_int_equal(vb_dpa_mem_read(b.process, any + 5, &v, 1), 0);
	assert_int_equal((uint8_t)v, 55);
	assert_null(vb_view_lend(vb_dpa_mem_host(b.process, any, 8192 + 4096, VB_DPA_READ)));
	assert_null(vb_view_lend(vb_dpa_mem_host(b.process, fixed, 8, VB_DPA_WRITE)));
	assert_null(vb_view_lend(vb_dpa_mem_host(b.process, 0, 8, VB_DPA_READ)));
	assert_null(vb_view_lend(vb_dpa_mem_host(b.process, ~0ull - 3, 8, VB_DPA_READ)));
	assert_int_equal(vb_dpa_mem_write(b.process, fixed, &v, 8), 0); /* a debugger may */
	assert_int_equal(vb_dpa_mem_read(b.process, 0, &v, 8), -EFAULT);
	assert_int_equal(vb_dpa_mem_read(b.process, fixed + 8188, &v, 8), -EFAULT);
	expect_gone(&b, any);
	assert_int_equal(vb_dpa_mem_unmap(b.process, fixed, 4096), 0);
	assert_int_equal(vb_dpa_mem_read(b.process, fixed, &v, 8), -EFAULT);
	assert_int_equal(vb_dpa_mem_read(b.process, fixed + 4096, &v, 8), 0);
	assert_int_equal(vb_dpa_mem_read(b.process, b.p.data_base, &v, 6), 0);
	assert_memory_equal(&v, "hello", 6);
	bed_close(&b);
}

static void test_dump(void **state)
{
	struct bed b = { 0 };
	char text[8192], little[10];
	size_t need;

	(void)state;
	rv_li(&b.p, 9, 0x123456789abcdefull);
	rv_emit(&b.p, OP_ld, 5, 0, 0, 64);
	bed_open(&b, NULL);
	bed_reset(&b);
	assert_int_equal(bed_run(&b, UINT64_MAX), VB_DPA_WHY_TRAP);
	need = vb_dpa_state_format(b.process, bed_state(&b), text, sizeof(text));
	assert_true(need > 100 && need < sizeof(text));
	assert_int_equal(strlen(text), need);
	assert_non_null(strstr(text, vb_dpa_cause_name(VB_DPA_CAUSE_LOAD)));
	assert_non_null(strstr(text, "123456789abcdef"));
	assert_int_equal(vb_dpa_state_format(b.process, bed_state(&b), little, sizeof(little)),
			 need);
	assert_true(strlen(little) < sizeof(little));
	assert_int_equal(vb_dpa_state_format(b.process, bed_state(&b), NULL, 0), need);
	bed_close(&b);
}

static void test_text_stats(void **state)
{
	struct vb_dpa_text_stats s;
	struct bed b = { 0 };

	(void)state;
	for (int i = 0; i < 500; i++)
		rv_emit(&b.p, OP_add, 5, 5, 6, 0);
	rv_emit(&b.p, OP_jalr, 0, 1, 0, 0);
	bed_open(&b, NULL);
	vb_dpa_text_stats(b.process, &s);
	assert_in_range(s.text_bytes, b.p.text_size, b.p.text_size + 4096);
	if (bed_tier == VB_DPA_TIER_JIT) {
		assert_true(s.code_bytes > 500);
		assert_true(s.translations >= 1);
	} else {
		assert_int_equal(s.code_bytes, 0);
	}
	bed_close(&b);
}

/* Clocks never run backwards and time runs at its documented rate or near it, seen over a second at most. */
static void test_clocks(void **state)
{
	struct bed b = { 0 };
	uint64_t before[2], after[2];

	(void)state;
	for (unsigned k = 0; k < 2; k++)
		rv_emit(&b.p, OP_csrrs, 10 + k, 0, 0, 0xc00 + k);
	rv_emit(&b.p, OP_jalr, 0, 1, 0, 0);
	bed_open(&b, NULL);
	assert_int_equal(vb_dpa_call(b.thread, RV_TEXT, NULL, 0, &before[0]), 0);
	before[1] = bed_state(&b)->x[11];
	for (int n = 0; n < 1000; n++) {
		assert_int_equal(vb_dpa_call(b.thread, RV_TEXT, NULL, 0, &after[0]), 0);
		after[1] = bed_state(&b)->x[11];
		assert_true(after[0] >= before[0]);
		assert_true(after[1] >= before[1]);
		memcpy(before, after, sizeof(before));
	}
	usleep(1000);
	assert_int_equal(vb_dpa_call(b.thread, RV_TEXT, NULL, 0, &after[0]), 0);
	/* A millisecond is 1.8 million cycles; a sleep may take longer, never less. */
	assert_true(after[0] - before[0] >= VB_DPA_CLOCK_HZ / 1000);
	assert_true(bed_state(&b)->x[11] - before[1] > 0);
	bed_close(&b);
}

static _Atomic uint64_t simulated_ns;

static uint64_t read_simulated(struct vb_time *time)
{
	(void)time;
	return atomic_load(&simulated_ns);
}

/* Device code reads the card's time: where that is replaced, so are its cycles, 9 in 5 ns. */
static void test_replaced_clock(void **state)
{
	static const struct vb_time_ops ops = { .now = read_simulated };
	static const uint64_t ns[] = {
		0, 1, 4, 5, 999999999, 1000000000, 3600000000003, UINT64_MAX
	};
	struct vb_time time = { &ops };
	struct bed b = { 0 };
	uint64_t cycles;

	(void)state;
	rv_emit(&b.p, OP_csrrs, 10, 0, 0, 0xc00);
	rv_emit(&b.p, OP_jalr, 0, 1, 0, 0);
	bed_open(&b, NULL);
	atomic_store(&vb_time_replaced, &time);
	for (size_t i = 0; i < sizeof(ns) / sizeof(ns[0]); i++) {
		atomic_store(&simulated_ns, ns[i]);
		assert_int_equal(vb_dpa_call(b.thread, RV_TEXT, NULL, 0, &cycles), 0);
		assert_int_equal(cycles, (uint64_t)((unsigned __int128)ns[i] * 9 / 5));
	}
	atomic_store(&vb_time_replaced, NULL);
	bed_close(&b);
}

struct unmapper {
	struct vb_dpa_process *process;
	uint64_t addr, len;
	atomic_uint rounds;
};

static void *unmap_often(void *arg)
{
	struct unmapper *u = arg;
	uint64_t addr = u->addr; /* the other reads there all the time */

	for (unsigned n = 0; n < 3000; n++) {
		vb_dpa_mem_unmap(u->process, addr, u->len);
		vb_dpa_mem_map(u->process, &addr, u->len, VB_DPA_READ | VB_DPA_WRITE);
		atomic_fetch_add(&u->rounds, 1);
	}
	return NULL;
}

/* What is read may go away at that moment, as the stack of a call that ran out of time does. */
static void test_read_while_unmapped(void **state)
{
	struct unmapper u = { .len = 256 << 10 };
	struct bed b = { 0 };
	uint8_t *to = malloc(u.len);
	pthread_t thread;
	unsigned read = 0;

	(void)state;
	rv_emit(&b.p, OP_jalr, 0, 1, 0, 0);
	bed_open(&b, NULL);
	u.process = b.process;
	assert_int_equal(vb_dpa_mem_map(u.process, &u.addr, u.len, VB_DPA_READ | VB_DPA_WRITE), 0);
	assert_int_equal(pthread_create(&thread, NULL, unmap_often, &u), 0);
	while (atomic_load(&u.rounds) < 3000) {
		int err = vb_dpa_mem_read(u.process, u.addr, to, u.len);

		assert_true(!err || err == -EFAULT);
		read += !err;
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(read > 0 || !vb_dpa_mem_read(u.process, u.addr, to, u.len));
	free(to);
	bed_close(&b);
}

/* Without room for all that 32 bits can name, programs are interpreted; they run all the same. */
static void test_little_address_space(void **state)
{
	struct vb_dpa_process_attr pa = { .tier = VB_DPA_TIER_JIT, .limit = 16 << 20 };
	unsigned long pages = 0;
	struct rlimit limit;
	FILE *statm;
	pid_t pid;
	int status;

	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return; /* they need more than any limit leaves */
#endif
	statm = fopen("/proc/self/statm", "r");
	assert_non_null(statm);
	assert_int_equal(fscanf(statm, "%lu", &pages), 1);
	fclose(statm);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct vb_dpa_process *process;
		struct vb_dpa_thread *thread;
		uint64_t arg = 41, result = 0;
		struct rv_prog p;
		struct vb_dpa *dpa;
		uint8_t *image;
		size_t size;

		rv_init(&p);
		rv_emit(&p, OP_addi, 10, 10, 0, 1);
		rv_emit(&p, OP_jalr, 0, 1, 0, 0);
		rv_layout(&p);
		size = rv_elf_image(&p, &image);
		limit.rlim_cur = limit.rlim_max = pages * 4096 + (1ul << 30);
		_exit(setrlimit(RLIMIT_AS, &limit) || vb_dpa_create(NULL, &dpa) ||
		      vb_dpa_process_create(dpa, image, size, &pa, &process, NULL) ||
		      vb_dpa_process_tier(process) != VB_DPA_TIER_INTERP ||
		      vb_dpa_thread_create(process, NULL, &thread) ||
		      vb_dpa_call(thread, RV_TEXT, &arg, 1, &result) || result != 42);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tiers),
		cmocka_unit_test(test_no_executable_memory),
		cmocka_unit_test(test_call),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_dump),
		cmocka_unit_test(test_text_stats),
		cmocka_unit_test(test_clocks),
		cmocka_unit_test(test_replaced_clock),
		cmocka_unit_test(test_read_while_unmapped),
		cmocka_unit_test(test_little_address_space),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
