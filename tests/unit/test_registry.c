// SPDX-License-Identifier: MIT
/*
 * The registry where the machine is not as it should be: no /dev/shm, a full one, a read-only one, a damaged file, names
 * that others took first, locks that are not given back, a program without standard output, with a timer, with a limit on
 * its files. Each case is a process of its own, in namespaces of its own; what it logged is read back, because a user sees
 * nothing else.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "../programs/common.h"
#include "registry_kit.h"
#include "meet/registry.h"
#include "meet/registry_dir.h"

enum { USER = 65533, OTHER = 65532 };

static int join_without_shm(void)
{
	return mount("none", "/dev", "tmpfs", 0, NULL) ? -1 : join();
}

static int join_full(void)
{
	return mount_shm("size=4k", 0) ? -1 : join();
}

static int join_read_only(void)
{
	return mount_shm(NULL, MS_RDONLY) ? -1 : join();
}

static int join_without_proc(void)
{
	return mount("none", "/proc", "tmpfs", 0, NULL) ? -1 : join();
}

static void machine_lacks(void **state)
{
	(void)state;
	assert_int_equal(in_child(join_without_shm), ENOENT);
	assert_said("Verbatim needs a /dev/shm that you can write to");
	assert_int_equal(in_child(join_read_only), EROFS);
	assert_said("Verbatim needs a /dev/shm that you can write to");
	assert_int_equal(in_child(join_full), ENOSPC);
	assert_said("/dev/shm is full");
	assert_int_equal(in_child(join_without_proc), ENOENT);
	assert_said("is /proc mounted?");
}

static bool become(uid_t uid)
{
	return !setgroups(0, NULL) && !setresgid(uid, uid, uid) && !setresuid(uid, uid, uid);
}

/* ---- damage ---- */

static int join_damaged(void)
{
	char path[128];
	FILE *f;

	if (mount_shm(NULL, 0))
		return -1;
	find_directory(path, sizeof(path));
	mkdir(path, 0700);
	strcat(path, "/registry");
	f = fopen(path, "w");
	for (int i = 0; f && i < 65536; i++)
		fputc('x', f);
	if (f)
		fclose(f);
	return join();
}

static int join_open_to_others(void)
{
	char path[128];
	struct stat st;

	if (mount_shm(NULL, 0))
		return -1;
	find_directory(path, sizeof(path));
	mkdir(path, 0700);
	chmod(path, 0777);
	if (join() || stat(path, &st))
		return 1;
	return (st.st_mode & 0777) == 0700 ? 0 : 2;
}

static void somebody_was_there(void **state)
{
	(void)state;
	assert_int_equal(in_child(join_damaged), EUCLEAN);
	assert_said("is damaged; remove that directory");
	assert_int_equal(in_child(join_open_to_others), 0);
	assert_said("was open to other users; now it is not");
}

/* A umask that takes all rights away, also from the owner. Root would not notice. */
static int join_umask(void)
{
	char path[128];
	int until, ret;
	pid_t pid;

	if (mount_shm("mode=1777", 0))
		return 99;
	if (!become(USER))
		return NO_ROOT;
	umask(0777);
	pid = start_member(&until);
	if (pid < 0 || join() || members() != 2)
		return 1;
	vb_registry_leave(&registry);
	end_member(pid, until);
	/* and what such a program left behind when it was killed */
	find_directory(path, sizeof(path));
	if (mkdir(path, 0) && errno != EEXIST)
		return 2;
	umask(022);
	chmod(path, 0);
	ret = join();
	return ret ? ret : members() == 1 ? 0 : 3;
}

static void hostile_umask(void **state)
{
	(void)state;
	assert_int_equal(in_child(join_umask), 0);
	assert_string_equal(said, "");
}

/* ---- names that others have taken ---- */

static int take_name(const char *path, int kind, uid_t owner)
{
	int ret;

	switch (kind) {
	case 0:
		ret = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
		if (ret >= 0)
			close(ret);
		break;
	case 1:
		ret = mkfifo(path, 0666);
		break;
	case 2:
		ret = symlink("/tmp", path);
		break;
	default:
		ret = mkdir(path, 0777);
		break;
	}
	return ret < 0 ? -1 : lchown(path, owner, owner);
}

enum { KINDS = 4 };

/* Whatever has the name, the user's processes meet; also when it goes away between one and the next. */
static int meet_elsewhere(void)
{
	char path[128];
	int until[2];
	pid_t pid[2];

	if (mount_shm("mode=1777", 0))
		return 99;
	for (int kind = 0; kind < KINDS; kind++) {
		if (seteuid(USER))
			return NO_ROOT;
		find_directory(path, sizeof(path));
		if (seteuid(0) || take_name(path, kind, OTHER) || seteuid(USER))
			return 1;
		pid[0] = start_member(&until[0]);
		pid[1] = start_member(&until[1]);
		if (pid[0] < 0 || pid[1] < 0 || members() != 2)
			return 10 + kind;
		if (seteuid(0) || (kind == KINDS - 1 ? rmdir(path) : unlink(path)) || seteuid(USER))
			return 2;
		end_member(pid[1], until[1]);
		pid[1] = start_member(&until[1]);
		if (pid[1] < 0 || members() != 2)
			return 20 + kind;
		end_member(pid[0], until[0]);
		end_member(pid[1], until[1]);
		if (directories() != 0)
			return 30 + kind;
		if (seteuid(0))
			return 3;
	}
	return 0;
}

/* Two own directories, as a name that was free for a moment leaves them: the one in which somebody lives counts. */
static int meet_in_second(void)
{
	char path[128];
	int until[2], ret;
	pid_t pid[2];

	if (mount_shm("mode=1777", 0))
		return 99;
	if (seteuid(USER))
		return NO_ROOT;
	find_directory(path, sizeof(path));
	if (seteuid(0) || take_name(path, 0, OTHER) || seteuid(USER))
		return 1;
	pid[0] = start_member(&until[0]);
	if (pid[0] < 0 || seteuid(0) || unlink(path) || seteuid(USER) || mkdir(path, 0700))
		return 2;
	pid[1] = start_member(&until[1]);
	ret = pid[1] < 0 ? 3 : members() != 2 ? 4 : directories() != 1 ? 5 : 0;
	end_member(pid[0], until[0]);
	end_member(pid[1], until[1]);
	return ret;
}

/* Take the name and give it back, as fast as it goes. */
static pid_t start_flipping(const char *path)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			if (!take_name(path, 0, OTHER))
				unlink(path);
			sched_yield();
		}
	}
	return pid;
}

/* Processes that join at once, while the first name comes and goes: all in one directory, and none left behind. */
static int meet_in_a_storm(void)
{
	enum { ROUNDS = 40, MEMBERS = 4 };
	pid_t flipper, pid[MEMBERS];
	char path[128];
	int go[2];

	if (mount_shm("mode=1777", 0))
		return 99;
	if (seteuid(USER))
		return NO_ROOT;
	find_directory(path, sizeof(path));
	if (seteuid(0))
		return 1;
	flipper = start_flipping(path);
	if (seteuid(USER))
		return 1;
	for (int round = 0; round < ROUNDS; round++) {
		int joined[2], until[2];
		char word;

		if (pipe(go) || pipe(joined) || pipe(until))
			return 1;
		for (int i = 0; i < MEMBERS; i++) {
			pid[i] = fork();
			if (pid[i])
				continue;
			if (read(go[0], &word, 1) != 1 || join() || write(joined[1], "j", 1) != 1 ||
			    read(until[0], &word, 1) != 1)
				_exit(1);
			vb_registry_leave(&registry);
			_exit(0);
		}
		if (write(go[1], "gggg", MEMBERS) != MEMBERS)
			return 1;
		for (int i = 0; i < MEMBERS; i++)
			if (read(joined[0], &word, 1) != 1)
				return 2;
		if (members() != MEMBERS || directories() != 1)
			return 3;
		if (write(until[1], "uuuu", MEMBERS) != MEMBERS)
			return 1;
		for (int i = 0; i < MEMBERS; i++)
			waitpid(pid[i], NULL, 0);
		for (int i = 0; i < 2; i++) {
			close(go[i]);
			close(joined[i]);
			close(until[i]);
		}
	}
	if (seteuid(0) || kill(flipper, SIGKILL))
		return 1;
	waitpid(flipper, NULL, 0);
	return 0;
}

static int all_taken(void)
{
	char path[128], name[160];
	int ret;

	if (mount_shm("mode=1777", 0))
		return 99;
	if (seteuid(USER))
		return NO_ROOT;
	find_directory(path, sizeof(path));
	if (seteuid(0))
		return 1;
	for (int i = 0; i < 8; i++) {
		snprintf(name, sizeof(name), i ? "%s-%d" : "%s", path, i);
		if (take_name(name, 0, OTHER))
			return 1;
	}
	if (mkdir("/dev/shm/mine", 0755) || chown("/dev/shm/mine", USER, USER) || seteuid(USER))
		return 1;
	ret = join();
	/* what the message says helps */
	setenv("VERBATIM_SHM_DIR", "/dev/shm/mine", 1);
	return ret != EPERM ? 2 : join() || members() != 1 ? 3 : 0;
}

static int relative_shm_dir(void)
{
	setenv("VERBATIM_SHM_DIR", "mine", 1);
	return join();
}

static void names_taken(void **state)
{
	(void)state;
	assert_int_equal(in_child(meet_elsewhere), 0);
	assert_string_equal(said, "");
	assert_int_equal(in_child(meet_in_second), 0);
	assert_int_equal(in_child(meet_in_a_storm), 0);
	assert_int_equal(in_child(all_taken), 0);
	assert_said("set VERBATIM_SHM_DIR to a directory of yours");
	assert_int_equal(in_child(relative_shm_dir), EINVAL);
	assert_said("VERBATIM_SHM_DIR=mine: the path must begin with /");
}

/* ---- the lock ---- */

static void on_alarm(int sig)
{
	(void)sig;
}

static void set_timer(long us)
{
	struct sigaction act = { .sa_handler = on_alarm }; /* no SA_RESTART */
	struct itimerval timer = { { 0, us }, { 0, us } };

	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
}

/* With a timer that interrupts every wait: join while another has the lock for a while, claim, leave. */
static int join_under_timer(void)
{
	struct vb_slot_info self;
	int ret, status;
	pid_t pid, killer;

	if (mount_shm(NULL, 0))
		return 99;
	pid = hold_lock();
	if (pid < 0)
		return 98;
	killer = fork();
	if (killer == 0) {
		usleep(300000);
		_exit(kill(pid, SIGKILL) ? 1 : 0);
	}
	set_timer(200);
	ret = -vb_registry_join(&registry, &self);
	if (!ret && vb_registry_claim(&registry, 3))
		ret = 97;
	vb_registry_reap(&registry);
	vb_registry_leave(&registry);
	set_timer(0);
	waitpid(killer, &status, 0);
	waitpid(pid, NULL, 0);
	return ret ? ret : directories() ? 96 : 0;
}

static int join_locked(void)
{
	pid_t pid;
	int ret;

	if (mount_shm(NULL, 0))
		return 99;
	pid = hold_lock();
	if (pid < 0)
		return 98;
	ret = join();
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	fprintf(stderr, "pid %d ", (int)pid);
	return ret;
}

static void interrupted_by_timer(void **state)
{
	(void)state;
	assert_int_equal(in_child(join_under_timer), 0);
	assert_string_equal(said, "");
}

static void lock_is_not_given_back(void **state)
{
	char want[64];
	int pid = 0;

	(void)state;
	assert_int_equal(in_child(join_locked), ETIMEDOUT);
	assert_int_equal(sscanf(strrchr(said, '\n'), " pid %d", &pid), 1);
	snprintf(want, sizeof(want), "process %d keeps /dev/shm/", pid);
	assert_said(want);
}

static void *claim_all(void *arg)
{
	unsigned int first = *(unsigned int *)arg;

	for (int round = 0; round < 200; round++)
		for (unsigned int i = first; i < first + 8; i++) {
			if (vb_registry_claim(&registry, i))
				return arg;
			vb_registry_reap(&registry);
			vb_registry_release(&registry, i);
		}
	return NULL;
}

/* The lock is the process's; its threads take turns all the same. */
static int threads_claim(void)
{
	unsigned int first[4] = { 0, 8, 16, 24 };
	pthread_t thread[4];
	void *failed = NULL;

	if (mount_shm(NULL, 0) || join())
		return 99;
	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, claim_all, &first[i]);
	for (int i = 0; i < 4; i++) {
		void *ret;

		pthread_join(thread[i], &ret);
		failed = failed ? failed : ret;
	}
	vb_registry_leave(&registry);
	return failed ? 1 : directories();
}

static void claims_of_threads(void **state)
{
	(void)state;
	assert_int_equal(in_child(threads_claim), 0);
}

/* ---- sniffers ---- */

/* A process that joins, sniffs, says its slot and sleeps; the slot, or -1. */
static int start_sniffer(pid_t *pid)
{
	struct vb_slot_info self;
	int ends[2], slot = -1;

	if (pipe(ends))
		return -1;
	*pid = fork();
	if (!*pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		vb_registry_forked(&registry);
		if (vb_registry_join(&registry, &self))
			_exit(1);
		vb_registry_sniff(&registry, true);
		slot = (int)self.slot;
		if (write(ends[1], &slot, sizeof(slot)) == sizeof(slot))
			pause();
		_exit(1);
	}
	close(ends[1]);
	if (read(ends[0], &slot, sizeof(slot)) != sizeof(slot))
		slot = -1;
	close(ends[0]);
	return slot;
}

/* Whether anybody sniffs, as sniffers come, go and are killed. */
static int sniffers_come_and_go(void)
{
	struct vb_slot_info self;
	pid_t pid;
	int slot;

	if (mount_shm(NULL, 0) || vb_registry_sniffed(&registry) ||
	    vb_registry_join(&registry, &self))
		return 99;
	if (vb_registry_sniffed(&registry) || vb_registry_sniffs(&registry, self.slot))
		return 1;
	vb_registry_sniff(&registry, true);
	vb_registry_sniff(&registry, true);
	if (!vb_registry_sniffed(&registry) || !vb_registry_sniffs(&registry, self.slot))
		return 2;
	slot = start_sniffer(&pid);
	if (slot < 0 || !vb_registry_sniffs(&registry, (uint32_t)slot))
		return 3;
	vb_registry_sniff(&registry, false);
	if (!vb_registry_sniffed(&registry) || vb_registry_sniffs(&registry, self.slot))
		return 4;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	vb_registry_reap(&registry);
	if (vb_registry_sniffed(&registry) || vb_registry_sniffs(&registry, (uint32_t)slot))
		return 5;
	vb_registry_sniff(&registry, true);
	vb_registry_leave(&registry);
	if (vb_registry_sniffed(&registry))
		return 6;
	vb_registry_close(&registry);
	return vb_registry_sniffed(&registry) ? 7 : 0;
}

static void sniffers(void **state)
{
	(void)state;
	assert_int_equal(in_child(sniffers_come_and_go), 0);
}

/* ---- namespaces that are gone ---- */

/* A member in a network namespace of its own. */
static pid_t member_elsewhere(int *until)
{
	int ready[2], stay[2];
	char word = 0;
	pid_t pid;

	if (pipe(ready) || pipe(stay))
		return -1;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(stay[1]);
		word = enter_namespaces(CLONE_NEWNET) && !join() ? 'y' : 'n';
		if (write(ready[1], &word, 1) != 1 || read(stay[0], &word, 1) < 0)
			_exit(1);
		pause();
	}
	close(ready[1]);
	close(stay[0]);
	if (read(ready[0], &word, 1) != 1 || word != 'y')
		pid = -1;
	close(ready[0]);
	*until = stay[1];
	return pid;
}

static int sweep_dead(void)
{
	int until[3];
	pid_t pid[3];

	if (mount_shm(NULL, 0))
		return 99;
	for (int i = 0; i < 3; i++) {
		pid[i] = member_elsewhere(&until[i]);
		if (pid[i] < 0)
			return NO_NAMESPACES;
	}
	if (join() || directories() != 4)
		return 1; /* all of them live */
	vb_registry_leave(&registry);
	if (directories() != 3)
		return 2;
	/* nobody is left in the namespaces of two */
	for (int i = 0; i < 2; i++) {
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
	if (join() || directories() != 2)
		return 3;
	vb_registry_leave(&registry);
	kill(pid[2], SIGKILL);
	waitpid(pid[2], NULL, 0);
	return directories() == 1 ? 0 : 4;
}

static void dead_namespaces(void **state)
{
	(void)state;
	assert_int_equal(in_child(sweep_dead), 0);
	assert_string_equal(said, "");
}

/* Processes that share a file have the same one, and it goes with the last of them, however they end. */
static int share_a_file(void)
{
	struct stat first, second;
	int until, fd;
	pid_t pid;

	if (mount_shm(NULL, 0))
		return 99;
	pid = start_member(&until);
	if (pid < 0 || join())
		return 1;
	fd = vb_registry_open_shared(&registry, "function-a-0");
	if (fd < 0 || fstat(fd, &first))
		return 2;
	close(fd);
	vb_registry_leave(&registry);
	vb_registry_close(&registry);
	if (join())
		return 3;
	fd = vb_registry_open_shared(&registry, "function-a-0");
	if (fd < 0 || fstat(fd, &second) || first.st_ino != second.st_ino)
		return 4;
	close(fd);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(until);
	vb_registry_leave(&registry);
	return directories() ? 5 : 0;
}

static void shared_files(void **state)
{
	(void)state;
	assert_int_equal(in_child(share_a_file), 0);
	assert_string_equal(said, "");
}

/* ---- limits of the program ---- */

static int join_small_files(void)
{
	struct rlimit limit = { 4096, 4096 };

	if (mount_shm(NULL, 0) || setrlimit(RLIMIT_FSIZE, &limit))
		return 99;
	return join();
}

/* A sandbox that forbids the call. */
static int join_without_fallocate(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };

	if (mount_shm(NULL, 0) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		return NO_NAMESPACES;
	return join();
}

static void program_is_limited(void **state)
{
	(void)state;
	assert_int_equal(in_child(join_small_files), EFBIG);
	assert_said("(ulimit -f)");
	assert_int_equal(in_child(join_without_fallocate), EPERM);
	assert_said("(fallocate): Operation not permitted");
}

/* 0 where the registry is whole after text went to where standard input, output and error were. */
static int write_to_closed_stdio(void)
{
	struct vb_file segment;
	char junk[4096];
	int fd;

	if (mount_shm(NULL, 0))
		return 2;
	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		close(fd);
	if (join())
		return 3;
	if (vb_registry_segment(&registry, &segment) || segment.fd <= STDERR_FILENO)
		return 4;
	memset(junk, 0xaa, sizeof(junk));
	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (write(fd, junk, sizeof(junk)) >= 0)
			return 5;
	return members() == 1 ? 0 : 6;
}

/* A program that closes what it did not open, and uses the numbers for files of its own. */
static int close_all_descriptors(void)
{
	char path[] = "/dev/shm/mine-XXXXXX", text[8] = "";
	struct vb_file segment;
	int fd;

	if (mount_shm(NULL, 0) || join())
		return 2;
	closefrom(3);
	fd = mkstemp(path);
	for (int i = 0; i < 16; i++)
		if (dup(fd) < 0)
			return 3;
	if (flock(fd, LOCK_EX) || write(fd, "text", 4) != 4)
		return 4;
	if (vb_registry_segment(&registry, &segment) != -EBADF)
		return 5;
	vb_registry_claim(&registry, 1);
	vb_registry_leave(&registry);
	/* the file has neither lost its lock nor its text, and its descriptors are open */
	vb_registry_close(&registry);
	if (pread(fd, text, sizeof(text), 0) != 4 || strcmp(text, "text"))
		return 6;
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK ? 0 : 7;
}

static void closed_descriptors(void **state)
{
	(void)state;
	assert_int_equal(in_child(close_all_descriptors), 0);
}

static void closed_stdio(void **state)
{
	(void)state;
	assert_int_equal(in_child(write_to_closed_stdio), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(machine_lacks),
		cmocka_unit_test(somebody_was_there),
		cmocka_unit_test(hostile_umask),
		cmocka_unit_test(names_taken),
		cmocka_unit_test(interrupted_by_timer),
		cmocka_unit_test(lock_is_not_given_back),
		cmocka_unit_test(claims_of_threads),
		cmocka_unit_test(dead_namespaces),
		cmocka_unit_test(shared_files),
		cmocka_unit_test(program_is_limited),
		cmocka_unit_test(closed_descriptors),
		cmocka_unit_test(closed_stdio),
		cmocka_unit_test(sniffers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
