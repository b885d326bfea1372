// SPDX-License-Identifier: MIT
/*
 * A program that changes what it is: it forks, executes, becomes another user, drops its rights and
 * leaves its namespaces, with a thread beside it and without. Every result is printed, and is the
 * same whatever is loaded with it.
 *
 * Rights are dropped in the program itself, one order after the other, each in a process that is
 * started for it: there Verbatim's threads are beside the program's. Namespaces of users, which no
 * process with threads can leave (docs/in-your-process.md), are left in children of fork().
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
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

/* --- rights of the process itself ------------------------------------------------------------- */

int capset(cap_user_header_t header, const cap_user_data_t data);

enum { NOBODY = 65534 };

/* What /proc says about a thread's users, groups and rights. */
static void describe(const char *thread, char *text, size_t size)
{
	static const char *const kinds[] = { "Uid:",    "Gid:",    "Groups:",
					     "CapInh:", "CapPrm:", "CapEff:",
					     "CapBnd:", "CapAmb:", "NoNewPrivs:" };
	char path[300], line[4096];
	FILE *status;

	text[0] = 0;
	snprintf(path, sizeof(path), "/proc/self/task/%s/status", thread);
	status = fopen(path, "r");
	while (status && fgets(line, sizeof(line), status))
		for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
			if (!strncmp(line, kinds[i], strlen(kinds[i])))
				strncat(text, line, size - strlen(text) - 1);
	if (status)
		fclose(status);
}

/* A thread that kept a right has it for all: they share their memory. */
static void say_threads(void)
{
	char own[8192], other[8192], name[16];
	DIR *threads = opendir("/proc/self/task");
	struct dirent *entry;
	int differ = 0;

	snprintf(name, sizeof(name), "%d", getpid());
	describe(name, own, sizeof(own));
	while (threads && (entry = readdir(threads)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		describe(entry->d_name, other, sizeof(other));
		if (!strcmp(own, other))
			continue;
		differ++;
		fprintf(stderr, "thread %s:\n%s", entry->d_name, other);
	}
	if (threads)
		closedir(threads);
	printf("%s\tthreads that differ: %d\n", own, differ);
	fflush(stdout);
}

/* Rights of the user are left only for groups, or not at all. */
static int keep_caps(uint32_t effective, uint32_t permitted)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = { { effective, permitted, 0 } };

	return capset(&header, data);
}

static void change_ids(void)
{
	gid_t groups[] = { 7, 8, 9 };

	CALL(setgroups(3, groups));
	CALL(setregid((gid_t)-1, NOBODY));
	CALL(setegid(getgid()));
	CALL(setgid(NOBODY));
	CALL(setreuid((uid_t)-1, NOBODY));
	CALL(setuid(NOBODY));
	CALL(seteuid((uid_t)-1));
	CALL(initgroups("nobody", NOBODY));
	CALL(setuid(0));
}

static void drops_ids(void)
{
	change_ids();
}

static void drops_caps_then_ids(void)
{
	CALL(keep_caps(0, 0));
	say_threads();
	change_ids();
}

static void drops_ids_keeps_caps(void)
{
	CALL(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0));
	CALL(setresuid(NOBODY, NOBODY, NOBODY));
	say_threads();
	CALL(keep_caps(1 << CAP_SETGID | 1 << CAP_SETUID, 1 << CAP_SETGID | 1 << CAP_SETUID));
	change_ids();
	CALL(setresuid(3, 4, 5));
	CALL(keep_caps(0, 0));
	CALL(setgroups(0, NULL));
}

static void drops_all_but_groups(void)
{
	CALL(keep_caps(1 << CAP_SETGID, 1 << CAP_SETGID));
	CALL(setgroups(0, NULL));
	CALL(setuid(NOBODY));
	CALL(setresgid(1, 2, 3));
	CALL(keep_caps(0, 1 << CAP_SETGID));
	CALL(setgroups(0, NULL));
	CALL(initgroups("nobody", 7));
}

static void drops_for_ever(void)
{
	CALL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CALL(prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0));
	CALL(prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED, 0, 0,
		   0));
	CALL(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
	say_threads();
	CALL(setresuid(NOBODY, NOBODY, 0));
	CALL(setgroups(0, NULL));
	CALL(keep_caps(0, 0));
	CALL(setgroups(1, (gid_t[]){ 5 }));
	CALL(setresuid(0, 0, 0));
}

/* By numbers, past libc's functions: seen with the next of those. */
static void drops_by_numbers(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { { 0 } };

	CALL(syscall(SYS_prctl, PR_SET_KEEPCAPS, 1, 0, 0, 0));
	CALL(setresuid(NOBODY, NOBODY, NOBODY));
	say_threads();
	CALL(syscall(SYS_capset, &header, none));
	CALL(setgroups(0, NULL));
	CALL(setuid(0));
}

/* libc tells the program's own thread, and with it ours. */
static void drops_with_thread(void)
{
	pthread_t thread;
	int ends[2];

	if (pipe(ends) || pthread_create(&thread, NULL, wait_at, ends))
		_exit(1);
	change_ids();
	say_threads();
	close(ends[1]);
	pthread_join(thread, NULL);
	CALL(keep_caps(0, 0));
	CALL(setgroups(0, NULL));
}

/* In a child that borrows the memory: nothing of it is for this process. */
static void drops_in_borrowed(void)
{
	pid_t pid = vfork();

	if (!pid) {
		int refused =
			setgroups(0, NULL) | setgid(NOBODY) | setuid(NOBODY) | keep_caps(0, 0);

		_exit(refused ? 1 : 0);
	}
	say_end(pid);
}

static const struct order {
	const char *name;
	void (*drop)(void);
} orders[] = {
	{ "drops ids", drops_ids },
	{ "drops capabilities, then ids", drops_caps_then_ids },
	{ "drops ids and keeps capabilities", drops_ids_keeps_caps },
	{ "drops all but groups", drops_all_but_groups },
	{ "drops for ever", drops_for_ever },
	{ "drops by numbers", drops_by_numbers },
	{ "drops with a thread", drops_with_thread },
	{ "drops in a child of vfork()", drops_in_borrowed },
};
enum { ORDERS = sizeof(orders) / sizeof(orders[0]) };

static int drop_as(const char *name)
{
	for (int i = 0; i < ORDERS; i++)
		if (!strcmp(orders[i].name, name)) {
			orders[i].drop();
			say_threads();
			return 0;
		}
	return 1;
}

static void in_process(const char *name)
{
	char *argv[] = { self, (char *)"--drop", (char *)name, NULL };
	pid_t pid;

	printf("%s\n", name);
	fflush(stdout);
	if (posix_spawn(&pid, self, NULL, NULL, argv, environ))
		_exit(1);
	say_end(pid);
}

/* --- namespaces ------------------------------------------------------------------------------- */

/* False: it is still where everybody is (below a chroot, say), and must leave that alone. */
static bool leave(int flag)
{
	pid_t pid;

	if (CALL(unshare(flag)))
		return false;
	pid = fork();
	if (!pid)
		_exit(flag == CLONE_NEWPID ? getpid() : 7);
	say_end(pid);
	return true;
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
	if (!leave(CLONE_NEWUSER | CLONE_NEWNS) ||
	    CALL(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)))
		return;
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
	if (leave(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS))
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
	if (argc > 2 && !strcmp(argv[1], "--drop"))
		return drop_as(argv[2]);
	if (argc > 1) {
		printf("\t%s\n", argv[1]);
		return 9;
	}
	in_child("forks", forks);
	in_child("executes", executes);
	in_child("becomes another", becomes_another);
	in_child("becomes another, with a thread", becomes_another_with_thread);
	in_child("drops rights", drops_rights);
	for (int i = 0; i < ORDERS; i++)
		in_process(orders[i].name);
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
	drops_rights();
	CALL(setgroups(0, NULL));
	return 0;
}
