// SPDX-License-Identifier: MIT
/*
 * Who is there and who is gone, as the registry tells it: a slot is reaped when the whole process is gone and never before,
 * however it ends, whatever children and threads are left, and whatever the one that asks lacks. And many that join at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "../programs/common.h"
#include "base/time.h"
#include "base/tsan.h"
#include "registry_kit.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

enum { STORM = 256 };

/* ---- a process that joins, and then does this ---- */

struct member {
	pid_t pid;
	int fd; /* what it says, and is told */
	struct vb_slot_info info;
};

static int line[2]; /* of the member itself */

static void say(char word)
{
	if (write(line[1], &word, 1) != 1)
		_exit(1);
}

static void __attribute__((noreturn)) stay(void)
{
	for (;;)
		syscall(SYS_pause);
}

static int start(struct member *m, void (*body)(void))
{
	char word = 0;

	if (pipe(line))
		return -1;
	m->pid = fork();
	if (m->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (join())
			_exit(1);
		body();
		stay();
	}
	close(line[1]);
	m->fd = line[0];
	if (read(m->fd, &word, 1) != 1)
		return -1;
	for (uint32_t slot = 0; slot < VB_SLOTS; slot++)
		if (vb_registry_lookup(&registry, slot, &m->info) && m->info.pid == m->pid)
			return 0;
	return -1;
}

static bool is_there(const struct member *m)
{
	return vb_registry_alive(&registry, m->info.slot, m->info.generation);
}

static bool is_reaped(const struct member *m)
{
	vb_registry_reap(&registry);
	return vb_registry_generation(&registry, m->info.slot) != m->info.generation;
}

static void end(const struct member *m)
{
	kill(m->pid, SIGKILL);
	waitpid(m->pid, NULL, 0);
	close(m->fd);
}

/* ---- children that live on ---- */

static void leave_forked(void)
{
	if (!fork())
		stay();
	say('r');
}

static void leave_forked_bare(void)
{
	if (!_Fork())
		stay();
	say('r');
}

static void leave_cloned(void)
{
	if (!syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0))
		stay();
	say('r');
}

static void (*const leave_child[])(void) = { leave_forked, leave_forked_bare, leave_cloned };

static volatile pid_t vforked;

static void *vfork_and_wait(void *arg)
{
	if (!vfork()) {
		vforked = (pid_t)syscall(SYS_getpid);
		stay();
	}
	return arg;
}

/* It has the memory of its parent, and could store with it. */
static void leave_vforked(void)
{
	pthread_t thread;
	pid_t pid;

	pthread_create(&thread, NULL, vfork_and_wait, NULL);
	while (!vforked)
		sched_yield();
	pid = vforked;
	if (write(line[1], "r", 1) != 1 || write(line[1], &pid, sizeof(pid)) != sizeof(pid))
		_exit(1);
}

static int children_stay(void)
{
	struct member m;
	pid_t child;

	if (mount_shm(NULL, 0) || join() || prctl(PR_SET_CHILD_SUBREAPER, 1))
		return 99;
	for (int i = 0; i < 3; i++) {
		if (start(&m, leave_child[i]) || !is_there(&m) || is_reaped(&m))
			return 10 + i;
		end(&m);
		if (is_there(&m) || !is_reaped(&m))
			return 20 + i;
	}
#ifdef VB_TSAN
	return 0; /* ThreadSanitizer makes a fork() of a vfork() */
#endif
	if (start(&m, leave_vforked) || read(m.fd, &child, sizeof(child)) != sizeof(child))
		return 30;
	end(&m);
	if (!is_there(&m) || is_reaped(&m))
		return 31;
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return is_there(&m) || !is_reaped(&m) ? 32 : 0;
}

/* ---- ends other than by a signal ---- */

static void execute(void)
{
	fcntl(line[1], F_SETFD, 0);
	dup2(line[1], STDOUT_FILENO);
	say('j');
	if (!_Fork())
		stay();
	execl("/bin/sh", "sh", "-c", "echo e; exec sleep 1000", NULL);
}

static void *outlive(void *arg)
{
	say('r');
	stay();
	return arg;
}

/* All threads that had anything to do with the registry have ended, but the process has not. */
static void end_thread(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, outlive, NULL);
	pthread_exit(NULL);
}

static int other_ends(void)
{
	struct member m;
	char word;

	if (mount_shm(NULL, 0) || join())
		return 99;
	if (start(&m, execute) || read(m.fd, &word, 1) != 1)
		return 1;
	if (is_there(&m) || !is_reaped(&m))
		return 2;
	end(&m);
	if (start(&m, end_thread))
		return 3;
	usleep(20000);
	if (!is_there(&m) || is_reaped(&m))
		return 4;
	end(&m);
	return is_there(&m) || !is_reaped(&m) ? 5 : 0;
}

/* ---- what the one that asks lacks ---- */

static void ready(void)
{
	say('r');
}

/* A process that is gone and has not been waited for: its pid is still there. */
static void kill_only(const struct member *m)
{
	siginfo_t info;

	kill(m->pid, SIGKILL);
	waitid(P_PID, (id_t)m->pid, &info, WEXITED | WNOWAIT);
}

static int without_descriptors(void)
{
	struct rlimit limit = { 0, 0 };
	struct member m;

	if (mount_shm(NULL, 0) || join() || start(&m, ready) || setrlimit(RLIMIT_NOFILE, &limit))
		return 99;
	if (!is_there(&m) || is_reaped(&m))
		return 1;
	kill_only(&m);
	return is_there(&m) || !is_reaped(&m) ? 2 : 0;
}

static int without_proc(void)
{
	struct member m;

	if (mount_shm(NULL, 0) || join() || start(&m, ready) ||
	    mount("none", "/proc", "tmpfs", 0, NULL))
		return 99;
	if (!is_there(&m) || is_reaped(&m))
		return 1;
	kill_only(&m);
	return is_there(&m) || !is_reaped(&m) ? 2 : 0;
}

/* Whoever closed our descriptors asks for the pid, and reaps nothing. */
static int closed_all(void)
{
	struct member m;

	if (mount_shm(NULL, 0) || join() || start(&m, ready))
		return 99;
	closefrom(3);
	if (!is_there(&m))
		return 1;
	kill_only(&m);
	waitpid(m.pid, NULL, 0);
	return is_there(&m) ? 2 : 0;
}

/* ---- time namespaces ---- */

/* In one, all start times of /proc are others. */
static int join_in_other_time(void)
{
	FILE *offsets;
	int status;
	pid_t pid;

	if (!enter_namespaces(CLONE_NEWTIME))
		return NO_NAMESPACES;
	offsets = fopen("/proc/self/timens_offsets", "w");
	if (!offsets || fprintf(offsets, "boottime 1000000 0\nmonotonic 1000000 0\n") < 0 ||
	    fclose(offsets))
		return NO_NAMESPACES;
	pid = fork();
	if (pid == 0)
		_exit(join() ? 1 : members() == 2 ? 0 : 2);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

static int other_time(void)
{
	struct vb_slot_info self, now;
	int status;
	pid_t pid;

	if (mount_shm(NULL, 0) || vb_registry_join(&registry, &self))
		return 99;
	pid = fork();
	if (pid == 0)
		_exit(join_in_other_time());
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return 98;
	if (WEXITSTATUS(status))
		return WEXITSTATUS(status);
	return vb_registry_lookup(&registry, self.slot, &now) && now.generation == self.generation
		       ? 0
		       : 4;
}

/* ---- slots that were given back ---- */

static void leave_and_stay(void)
{
	say('j');
	usleep(50000);
	vb_registry_leave(&registry);
	say('l');
}

/* Its threads may still be using the slot's name: no other process gets it before they are gone. */
static int given_back(void)
{
	struct vb_slot_info self;
	struct member m;
	char word;

	if (mount_shm(NULL, 0) || join() || start(&m, leave_and_stay) || read(m.fd, &word, 1) != 1)
		return 99;
	if (vb_registry_generation(&registry, m.info.slot) ||
	    !vb_registry_lingers(&registry, m.info.slot))
		return 1;
	for (int i = 0; i < VB_SLOTS; i++) {
		vb_registry_leave(&registry);
		if (vb_registry_join(&registry, &self) || self.slot == m.info.slot)
			return 2;
	}
	end(&m);
	return vb_registry_lingers(&registry, m.info.slot) ? 3 : 0;
}

/* ---- many at once ---- */

/* As many as there are slots. */
static int storm(void)
{
	int go[2], status, failed = 0;
	pid_t pid[STORM];
	char word;

	if (mount_shm(NULL, 0) || pipe(go))
		return 99;
	for (int i = 0; i < STORM; i++) {
		pid[i] = fork();
		if (pid[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(go[1]);
		if (read(go[0], &word, 1))
			_exit(1);
		_exit(join() ? 1 : 0);
	}
	close(go[1]);
	for (int i = 0; i < STORM; i++)
		failed += waitpid(pid[i], &status, 0) != pid[i] || status;
	return failed ? 1 : 0;
}

/* A clock that the case sets, and that counts who looks at it. */
static struct shared_clock {
	_Atomic uint64_t now, looks;
} * shared_clock;

static uint64_t look_at_clock(struct vb_time *time)
{
	(void)time;
	atomic_fetch_add(&shared_clock->looks, 1);
	return atomic_load(&shared_clock->now);
}

static const struct vb_time_ops shared_time_ops = { .now = look_at_clock };
static struct vb_time shared_time = { &shared_time_ops };

/* Let so much time pass that the one that waits asks who has the lock, and wait until it has, or has given up. */
static void let_time_pass(pid_t waiter)
{
	siginfo_t info = { 0 };
	uint64_t looks;

	atomic_fetch_add(&shared_clock->now, 6000000000u);
	looks = atomic_load(&shared_clock->looks);
	while (atomic_load(&shared_clock->looks) < looks + 4 && !info.si_pid) {
		usleep(1000);
		waitid(P_PID, (id_t)waiter, &info, WEXITED | WNOHANG | WNOWAIT);
	}
}

static void stop_waiting(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/*
 * A process waits for the lock longer than anybody may have it, but others have it one after the other. Which ones cannot
 * be seen: as if each time that it looked one had just given it back.
 */
static int others_come_first(void)
{
	pid_t holder, waiter;
	int status;

	shared_clock = mmap(NULL, sizeof(*shared_clock), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared_clock == MAP_FAILED || mount_shm(NULL, 0) ||
	    mount("/dev/null", "/proc/locks", NULL, MS_BIND, NULL))
		return 99;
	holder = hold_lock();
	waiter = fork();
	if (waiter == 0) {
		atomic_store(&vb_time_replaced, &shared_time);
		_exit(join());
	}
	let_time_pass(waiter);
	for (int i = 0; i < 3; i++) {
		/* Another one joins, while the waiter does not look. */
		kill(waiter, SIGSTOP);
		if (waitpid(waiter, &status, WUNTRACED) != waiter || !WIFSTOPPED(status))
			return 1;
		stop_waiting(holder);
		if (join())
			return 2;
		holder = hold_lock();
		kill(waiter, SIGCONT);
		let_time_pass(waiter);
	}
	stop_waiting(holder);
	return waitpid(waiter, &status, 0) == waiter && WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

static int (*now)(void);

/* With all that it leaves behind. */
static int in_group(void)
{
	int ret;

	setpgid(0, 0);
	ret = now();
	signal(SIGTERM, SIG_IGN);
	kill(0, SIGTERM);
	return ret;
}

static void run(int (*body)(void))
{
	int ret;

	now = body;
	ret = in_child(in_group);

	if (ret)
		print_error("%d: %s\n", ret, said);
	assert_int_equal(ret, 0);
	assert_string_equal(said, "");
}

#define CASE(name)                            \
	static void test_##name(void **state) \
	{                                     \
		(void)state;                  \
		run(name);                    \
	}

CASE(children_stay)
CASE(other_ends)
CASE(without_descriptors)
CASE(without_proc)
CASE(closed_all)
CASE(other_time)
CASE(given_back)
CASE(storm)
CASE(others_come_first)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_children_stay),       cmocka_unit_test(test_other_ends),
		cmocka_unit_test(test_without_descriptors), cmocka_unit_test(test_without_proc),
		cmocka_unit_test(test_closed_all),          cmocka_unit_test(test_other_time),
		cmocka_unit_test(test_given_back),          cmocka_unit_test(test_storm),
		cmocka_unit_test(test_others_come_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
