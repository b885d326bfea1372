// SPDX-License-Identifier: MIT
/*
 * A program that changes what it is: it forks, executes, becomes another user, drops its rights and
 * leaves its namespaces, with a thread beside it and without. Every result is printed, and is the
 * same whatever is loaded with it.
 *
 * What a thread beside the program changes (docs/in-your-process.md: namespaces of users, rights
 * that belong to one thread) is done in children: Verbatim's threads are not there.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *self;

#define CALL(expression)                                                         \
	({                                                                       \
		long ret_;                                                       \
                                                                                 \
		errno = 0;                                                       \
		ret_ = (long)(expression);                                       \
		printf("\t%s = %ld%s%s\n", #expression, ret_, errno ? ", " : "", \
		       errno ? strerrorname_np(errno) : "");                     \
		fflush(stdout);                                                  \
		ret_;                                                            \
	})

static void say_end(pid_t pid)
{
	int status = 0;

	if (waitpid(pid, &status, 0) != pid)
		printf("\tno child\n");
	else if (WIFSIGNALED(status))
		printf("\tended by signal %d\n", WTERMSIG(status));
	else
		printf("\texit code %d\n", WEXITSTATUS(status));
	fflush(stdout);
}

/* In a child, so that each starts as the program did. */
static void in_child(const char *name, void (*act)(void))
{
	pid_t pid;

	printf("%s\n", name);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		act();
		fflush(stdout);
		_exit(0);
	}
	say_end(pid);
}

/* --- children --------------------------------------------------------------------------------- */

static void forks(void)
{
	pid_t pid = fork();

	if (!pid) {
		pid = fork();
		if (!pid)
			_exit(3);
		say_end(pid);
		_exit(4);
	}
	say_end(pid);
	pid = vfork();
	if (!pid)
		_exit(5);
	say_end(pid);
	pid = fork();
	if (!pid)
		abort();
	say_end(pid);
}

static void executes(void)
{
	char word[] = "executed", *argv[] = { self, word, NULL };
	pid_t pid;

	if (posix_spawn(&pid, self, NULL, NULL, argv, environ))
		_exit(1);
	say_end(pid);
	pid = vfork();
	if (!pid) {
		execv(self, argv);
		_exit(127);
	}
	say_end(pid);
	CALL(execv("/nowhere", argv));
	CALL(system("exit 6") >> 8);
	execv(self, argv);
}

/* --- users and rights ------------------------------------------------------------------------- */

static void *wait_at(void *arg)
{
	char byte;

	return read(*(int *)arg, &byte, 1) < 0 ? NULL : arg;
}

static void say_ids(void)
{
	uid_t r, e, s;
	gid_t g;

	getresuid(&r, &e, &s);
	g = getgid();
	printf("\tuser %u %u %u, group %u\n", r, e, s, g);
}

static void change_user(bool with_thread)
{
	bool root = !geteuid();
	pthread_t thread;
	int ends[2];

	if (pipe(ends) || (with_thread && pthread_create(&thread, NULL, wait_at, ends)))
		_exit(1);
	CALL(setgroups(0, NULL));
	CALL(setresgid(root ? 65534 : getgid(), (gid_t)-1, root ? 65534 : getgid()));
	CALL(seteuid(root ? 65534 : geteuid()));
	say_ids();
	CALL(seteuid(getuid()));
	CALL(setresuid(root ? 65534 : getuid(), root ? 65534 : getuid(), root ? 65534 : getuid()));
	say_ids();
	CALL(setuid(0));
	CALL(open("/etc/shadow", O_RDONLY) < 0 ? -1 : 0);
	close(ends[1]);
	if (with_thread)
		pthread_join(thread, NULL);
}

static void becomes_another(void)
{
	change_user(false);
}

static void becomes_another_with_thread(void)
{
	change_user(true);
}

static void drops_rights(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { { 0 } };

	CALL(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0));
	CALL(prctl(PR_CAPBSET_DROP, CAP_NET_RAW, 0, 0, 0));
	CALL(syscall(SYS_capset, &header, none));
	CALL(mknod("node", S_IFCHR | 0600, makedev(1, 3)));
	CALL(chown("/", 1, 1));
	CALL(sethostname("x", 1));
	CALL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CALL(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
	CALL(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
	CALL(nice(3));
	CALL(setrlimit(RLIMIT_NPROC, &(struct rlimit){ 1000, 1000 }));
	CALL(kill(1, 0));
}

/* --- namespaces ------------------------------------------------------------------------------- */

static void leave(int flag)
{
	pid_t pid;

	if (CALL(unshare(flag)))
		return;
	pid = fork();
	if (!pid)
		_exit(flag == CLONE_NEWPID ? getpid() : 7);
	say_end(pid);
}

static void leaves_files(void)
{
	leave(CLONE_FS | CLONE_FILES);
}

static void leaves_users(void)
{
	leave(CLONE_NEWUSER);
	CALL(getuid());
}

static void leaves_mounts(void)
{
	leave(CLONE_NEWUSER | CLONE_NEWNS);
	CALL(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	CALL(mount("none", "/tmp", "tmpfs", 0, NULL));
	CALL(access("/tmp/anything", F_OK));
}

static void leaves_processes(void)
{
	CALL(unshare(CLONE_NEWUSER));
	leave(CLONE_NEWPID);
}

static void leaves_network(void)
{
	leave(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS);
	CALL(sethostname("elsewhere", 9));
}

static void changes_root(void)
{
	CALL(unshare(CLONE_NEWUSER | CLONE_NEWNS));
	CALL(chroot("/usr"));
	CALL(chdir("/"));
	CALL(access("/bin", F_OK));
	CALL(access("/proc", F_OK));
	forks();
}

static void starts_session(void)
{
	CALL(setsid() == getpid());
	CALL(setpgid(0, 0));
	for (int fd = 3; fd < 256; fd++)
		close(fd);
	forks();
}

int main(int argc, char **argv)
{
	self = argv[0];
	if (argc > 1) {
		printf("\t%s\n", argv[1]);
		return 9;
	}
	in_child("forks", forks);
	in_child("executes", executes);
	in_child("becomes another", becomes_another);
	in_child("becomes another, with a thread", becomes_another_with_thread);
	in_child("drops rights", drops_rights);
	in_child("leaves files", leaves_files);
	in_child("leaves users", leaves_users);
	in_child("leaves mounts", leaves_mounts);
	in_child("leaves processes", leaves_processes);
	in_child("leaves the network", leaves_network);
	in_child("changes its root", changes_root);
	in_child("starts a session", starts_session);
	printf("itself\n");
	fflush(stdout);
	forks();
	leaves_files();
	becomes_another_with_thread();
	return 0;
}
