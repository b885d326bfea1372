// SPDX-License-Identifier: MIT
/*
 * The recording of the timeline: every note is in the file once, or counted as lost. Each case runs in
 * a child, because a child has a file of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/record/timeline.h"

enum {
	MIB = 1,
	PLACES = ((MIB << 20) / VB_TIMELINE_PIECE - VB_TIMELINE_FIRST) * VB_TIMELINE_NOTES
};

static uint64_t written;

static void note(void)
{
	uint64_t value = __atomic_add_fetch(&written, 1, __ATOMIC_RELAXED);

	vb_timeline_write(&(struct vb_note){ .kind = VB_NOTE_DOORBELL, .time = 1, .value = value });
}

static void fail_child(const char *what, uint64_t a, uint64_t b)
{
	fprintf(stderr, "%s: %llu, %llu\n", what, (unsigned long long)a, (unsigned long long)b);
	_exit(1);
}

/* --- its file --------------------------------------------------------------------------------- */

static struct vb_timeline_head *map_own(size_t *size)
{
	char path[4096];
	struct stat st;
	void *map;
	int fd;

	snprintf(path, sizeof(path), "%s/%d.0.notes", getenv("VERBATIM_TRACE"), (int)getpid());
	fd = open(path, O_RDWR);
	if (fd < 0 || fstat(fd, &st))
		fail_child("no file", (uint64_t)errno, 0);
	unlink(path);
	map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	*size = (size_t)st.st_size;
	return map;
}

/* Every value once, and what is missing is counted. */
static void check_all(void)
{
	size_t size;
	struct vb_timeline_head *head = map_own(&size);
	struct vb_timeline_piece *pieces = (void *)head;
	uint8_t *seen = calloc(written + 1, 1);
	uint64_t kept = 0;

	for (size_t i = VB_TIMELINE_FIRST; i < size / VB_TIMELINE_PIECE; i++)
		for (size_t n = 0; n < VB_TIMELINE_NOTES; n++) {
			const struct vb_note *at = &pieces[i].note[n];

			if (!at->kind)
				continue;
			if (i >= head->pieces)
				fail_child("a note in a piece that is not there", i, head->pieces);
			if (!at->value || at->value > written || seen[at->value]++)
				fail_child("a wrong note", at->value, written);
			kept++;
		}
	if (kept + head->lost != written)
		fail_child("kept and lost, but written", kept + head->lost, written);
}

/* --- cases ------------------------------------------------------------------------------------ */

static void in_child(void (*run)(uint64_t arg), uint64_t arg)
{
	pid_t child = fork();
	int status;

	if (!child) {
		run(arg);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (status)
		print_error("argument %llu\n", (unsigned long long)arg);
	assert_int_equal(status, 0);
}

#if defined(__x86_64__)
enum { TRAP_FLAG = 0x100 };

static volatile uint64_t steps, handler_at;

static void on_step(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	(void)context;
	if (++steps == handler_at) {
		note();
		note();
		note();
	}
}

/* One note whose handler notes, too, behind its instruction number `at`. */
static void note_stepped(uint64_t at)
{
	struct sigaction step = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO };

	steps = 0;
	handler_at = at;
	sigaction(SIGTRAP, &step, NULL);
	__asm__ volatile("pushfq; orq %0, (%%rsp); popfq" ::"i"(TRAP_FLAG) : "memory", "cc");
	note();
	__asm__ volatile("pushfq; andq %0, (%%rsp); popfq" ::"i"(~TRAP_FLAG) : "memory", "cc");
}

/* The file, or its first piece, has one place left. */
static void run_stepped(uint64_t arg)
{
	uint64_t at = arg / 2, before = arg % 2 ? PLACES - 1 : VB_TIMELINE_NOTES - 1;

	while (written < before)
		note();
	note_stepped(at);
	for (int i = 0; i < 300; i++)
		note();
	check_all();
	if (steps < at)
		_exit(77);
}

/* A handler may interrupt a note behind each of its instructions. */
static void interrupted(void **state)
{
	(void)state;
	for (uint64_t arg = 2;; arg++) {
		pid_t child = fork();
		int status;

		if (!child) {
			run_stepped(arg);
			_exit(0);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
			break;
		if (status)
			print_error("instruction %llu\n", (unsigned long long)arg / 2);
		assert_int_equal(status, 0);
	}
}
#endif

static void run_overwritten(uint64_t arg)
{
	struct vb_timeline_head *head;
	size_t size;

	note();
	head = map_own(&size);
	head->most = UINT32_MAX;
	head->pieces = arg ? UINT32_MAX : 0;
	memset(head->name, 0xff, sizeof(head->name));
	head->lost = 0;
	for (int i = 1; i < PLACES; i++)
		note();
	if (head->lost)
		fail_child("lost", head->lost, 0);
	if (vb_timeline_name("text"))
		fail_child("a name", 0, 0);
	for (int i = 0; i < 10; i++)
		note();
	if (head->lost != 10)
		fail_child("lost", head->lost, 10);
}

/* Another process of the user may write anything to the file. */
static void overwritten(void **state)
{
	(void)state;
	in_child(run_overwritten, 0);
	in_child(run_overwritten, 1);
}

static pthread_barrier_t barrier;

static void *note_some(void *arg)
{
	if (arg)
		pthread_barrier_wait(&barrier);
	for (int i = 0; i < 100; i++)
		note();
	return NULL;
}

/* All at the first note: those that come while the file is made are counted. */
static void run_together(uint64_t threads)
{
	pthread_t thread[8];

	pthread_barrier_init(&barrier, NULL, (unsigned int)threads);
	for (uint64_t i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, note_some, &barrier))
			fail_child("no thread", i, 0);
	for (uint64_t i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	check_all();
}

static void together(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++)
		in_child(run_together, 8);
}

/* As _Fork() does it: no handler of pthread_atfork() hears of it. */
static void run_cloned(uint64_t notes)
{
	pid_t child;
	int status;

	for (uint64_t i = 0; i < notes; i++)
		note();
	child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!child) {
		written = 0;
		for (int i = 0; i < 3; i++)
			note();
		check_all();
		_exit(0);
	}
	note();
	if (waitpid(child, &status, 0) != child || status)
		fail_child("the child", (uint64_t)status, 0);
	note();
	check_all();
}

/* Such a child has a file of its own, too, whether its parent had one or not. */
static void cloned(void **state)
{
	(void)state;
	in_child(run_cloned, 0);
	in_child(run_cloned, 2);
	in_child(run_cloned, PLACES + 5);
}

/* One after the other. */
static void run_many_threads(uint64_t threads)
{
	struct vb_timeline_head *head;
	pthread_t thread;
	size_t size;

	for (uint64_t i = 0; i < threads; i++)
		if (pthread_create(&thread, NULL, note_some, NULL) || pthread_join(thread, NULL))
			fail_child("no thread", i, 0);
	head = map_own(&size);
	if (head->lost)
		fail_child("lost", head->lost, 0);
}

/* Threads that note little share the room. */
static void many_threads(void **state)
{
	(void)state;
	in_child(run_many_threads, 200);
}

static void *note_named(void *arg)
{
	pthread_setname_np(pthread_self(), "worker");
	note();
	return arg;
}

static void run_named(uint64_t arg)
{
	struct vb_timeline_head *head;
	pthread_t thread;
	size_t size;

	if (pthread_create(&thread, NULL, note_named, NULL) || pthread_join(thread, NULL))
		fail_child("no thread", arg, 0);
	head = map_own(&size);
	if (strcmp(head->command, "test_timeline"))
		fail_child(head->command, 0, 0);
	if (strcmp(((struct vb_timeline_piece *)(void *)head)[VB_TIMELINE_FIRST].name, "worker"))
		fail_child("the thread's name", 0, 0);
}

/* The program has its own name, whichever thread is first. */
static void named(void **state)
{
	(void)state;
	in_child(run_named, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#if defined(__x86_64__)
		cmocka_unit_test(interrupted),
#endif
		cmocka_unit_test(overwritten),
		cmocka_unit_test(together),
		cmocka_unit_test(cloned),
		cmocka_unit_test(many_threads),
		cmocka_unit_test(named),
	};
	char dir[] = "/dev/shm/test-timeline-XXXXXX";
	int ret;

	(void)argc;
	if (!getenv("VERBATIM_TRACE")) {
		/* The variable counts when the program starts. */
		if (!mkdtemp(dir) || setenv("VERBATIM_TRACE", dir, 1) ||
		    setenv("VERBATIM_TRACE_MIB", "1", 1))
			return 1;
		execv("/proc/self/exe", argv);
		return 1;
	}
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(getenv("VERBATIM_TRACE"));
	return ret;
}
