// SPDX-License-Identifier: MIT
/*
 * Guest memory that peers can map: handlers of signals that fork at any moment, children made past fork(), data of the
 * program, and where it lies in the host's address space.
 */
#include "bed.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20, SIZE = 16 << 20 };

static struct bed bed;
static uint64_t page;

static int setup(void **state)
{
	(void)state;
	page = (uint64_t)sysconf(_SC_PAGESIZE);
	rv_init(&bed.p);
	rv_data(&bed.p, NULL, 64, 64);
	rv_emit(&bed.p, OP_jalr, 0, 1, 0, 0);
	bed_open(&bed, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	bed_close(&bed);
	return 0;
}

static struct vb_dpa_process *make_process(bool share_data)
{
	struct vb_dpa_process_attr attr = { .tier = bed_tier, .share_data = share_data };
	struct vb_dpa_process *process;
	struct vb_dpa_error error = { "" };
	uint8_t *image;
	size_t size = rv_elf_image(&bed.p, &image);

	if (vb_dpa_process_create(bed.dpa, image, size, &attr, &process, &error))
		fail_msg("%s", error.text);
	free(image);
	return process;
}

static uint64_t make_heap(struct vb_dpa_process *process)
{
	uint64_t heap = 0;

	assert_int_equal(vb_dpa_mem_map_shareable(process, &heap, SIZE), 0);
	return heap;
}

/* The file of the newest process, or -1. */
static int device_file(void)
{
	int found = -1;

	for (int fd = 0; fd < 256; fd++) {
		char path[32], name[64] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, name, sizeof(name) - 1) > 0 && strstr(name, "verbatim-dpa"))
			found = fd;
	}
	return found;
}

/* ---- forks ---- */

static struct vb_dpa_process *busy_process;
static uint64_t busy_heap;
static volatile sig_atomic_t in_child;
static _Atomic bool over;
static volatile sig_atomic_t failures, forks;

static void fork_now(int sig)
{
	int status, err = errno;
	pid_t pid;

	(void)sig;
	if (in_child)
		return;
	pid = fork();
	if (!pid) {
		in_child = 1;
		signal(SIGALRM, SIG_DFL);
		alarm(20); /* one that waits for ever */
		return;
	}
	forks++;
	if (waitpid(pid, &status, 0) != pid || status)
		failures++;
	errno = err;
}

static void *use(void *arg)
{
	while (!atomic_load(&over))
		vb_dpa_mem_share(busy_process, busy_heap, 8);
	return arg;
}

/* In the middle of everything that has the lock, and of waiting for it. Parent and child go on. */
static void test_handlers_fork(void **state)
{
	struct sigaction act = { .sa_handler = fork_now, .sa_flags = SA_RESTART }, before;
	sigset_t all, mask;
	pthread_t other;

	(void)state;
	busy_process = make_process(false);
	busy_heap = make_heap(busy_process);
	/* The other thread takes no alarm, not even before it runs: a child of it would go on for ever. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &mask);
	assert_int_equal(pthread_create(&other, NULL, use, NULL), 0);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	assert_int_equal(sigaction(SIGALRM, &act, &before), 0);
	for (int i = 0; i < 100 && !in_child; i++) {
		struct itimerval once = { { 0, 0 }, { 0, 20 + 7 * i } };

		assert_int_equal(setitimer(ITIMER_REAL, &once, NULL), 0);
		while (forks == i && !in_child) {
			vb_dpa_mem_share(busy_process, busy_heap, 8);
			vb_dpa_mem_protect(busy_process, busy_heap, page,
					   VB_DPA_READ); /* refused */
		}
	}
	for (int i = 0; in_child && i < 10; i++)
		vb_dpa_mem_share(busy_process, busy_heap, 8);
	if (in_child)
		_exit(0);
	sigaction(SIGALRM, &before, NULL);
	atomic_store(&over, true);
	pthread_join(other, NULL);
	assert_int_equal(failures, 0);
	assert_int_equal(vb_dpa_process_destroy(busy_process), 0);
}

/* A child made past fork() shares the memory. It may end the process there: that is not the parent's. */
static void test_child_past_fork(void **state)
{
	struct vb_dpa_process *process = make_process(true);
	uint64_t heap = make_heap(process), word = 4711, was = 0;
	int status;
	pid_t pid;

	(void)state;
	assert_int_equal(vb_dpa_mem_write(process, heap, &word, 8), 0);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (!pid) {
		uint64_t more = 0;

		/* New memory is not in the parent's file, either. */
		if (vb_dpa_mem_map_shareable(process, &more, page) ||
		    vb_dpa_mem_write(process, more, &word, 8) || vb_dpa_process_destroy(process))
			_exit(1);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(vb_dpa_mem_read(process, heap, &was, 8), 0);
	assert_int_equal(was, 4711);
	assert_int_equal(vb_dpa_process_destroy(process), 0);
}

/* ---- places ---- */

/* The kernel has huge pages for a file only where both are aligned alike. */
static void test_aligned(void **state)
{
	struct vb_dpa_process *process = make_process(false);
	uint64_t heap = make_heap(process), at = (heap + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1ull);
	void *host = vb_view_lend(vb_dpa_mem_host(process, at, 8, VB_DPA_READ | VB_DPA_WRITE));

	(void)state;
	assert_non_null(host);
	assert_int_equal((uintptr_t)host % HUGE_PAGE, 0);
	assert_int_equal(vb_dpa_process_destroy(process), 0);
}

/* What a peer has in the file is what the program has in its data, only where that was asked for. */
static void test_data(void **state)
{
	(void)state;
	for (int share = 0; share < 2; share++) {
		struct vb_dpa_process *process = make_process(share);
		uint64_t word = 0, seen = 0;
		struct vb_dpa_range range = { 0 };
		uint64_t addr = 0;
		int fd = device_file();

		while (vb_dpa_mem_next(process, addr, &range) &&
		       range.rights != (VB_DPA_READ | VB_DPA_WRITE))
			addr = range.addr + range.len;
		assert_int_equal(range.rights, VB_DPA_READ | VB_DPA_WRITE);
		assert_true(share || fd < 0);
		assert_int_equal(vb_dpa_mem_read(process, range.addr, &word, 8), 0);
		word += 12345;
		assert_int_equal(vb_dpa_mem_write(process, range.addr, &word, 8), 0);
		if (fd >= 0) {
			assert_int_equal(pread(fd, &seen, 8, (off_t)range.addr), 8);
			assert_int_equal(seen, word);
			word++;
			assert_int_equal(pwrite(fd, &word, 8, (off_t)range.addr), 8);
		}
		assert_int_equal(vb_dpa_mem_read(process, range.addr, &seen, 8), 0);
		assert_int_equal(seen, word);
		assert_int_equal(vb_dpa_process_destroy(process), 0);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_handlers_fork),
		cmocka_unit_test(test_child_past_fork),
		cmocka_unit_test(test_aligned),
		cmocka_unit_test(test_data),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, setup, teardown);
}
