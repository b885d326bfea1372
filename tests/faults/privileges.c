// SPDX-License-Identifier: MIT
/*
 * A program with more rights than its caller: the caller wrote the environment, so no variable of ours may count and
 * no file that one names may be opened. A set-uid copy of this program is run by another user; the variables name a
 * file of root's as the log, and a configuration with one adapter.
 */
#include "../programs/common.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OTHER_UID = 65533, BY_DEFAULT = 5, BY_CONFIG = 1 };

static const char secret[] = "a file of root's\n";

static char dir[] = "/tmp/verbatim-privileges-XXXXXX";

/* Valid until it has been called a few times more. */
static const char *in_dir(const char *name)
{
	static char paths[8][64];
	static unsigned int next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
	return path;
}

static void write_file(const char *path, const char *text, mode_t mode, uid_t owner)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	check(fd >= 0, "%s: %s", path, strerror(errno));
	check_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	check_eq(fchown(fd, owner, owner), 0);
	check_eq(fchmod(fd, mode), 0);
	close(fd);
}

static size_t read_file(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	check(fd >= 0, "%s: %s", path, strerror(errno));
	n = read(fd, text, size - 1);
	check(n >= 0, "%s: %s", path, strerror(errno));
	text[n] = '\0';
	close(fd);
	return (size_t)n;
}

static void copy_self(const char *path, mode_t mode)
{
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
	char buf[65536];
	ssize_t n;

	check(from >= 0 && to >= 0, "%s: %s", path, strerror(errno));
	while ((n = read(from, buf, sizeof(buf))) > 0)
		check_eq(write(to, buf, (size_t)n), n);
	check_eq(fchmod(to, mode), 0);
	close(from);
	close(to);
}

/* In the copy: exit code 0 where the adapters are as many as told, and it has a card that works. */
static int use_card(const char *secure, const char *adapters)
{
	struct ibv_device **list;
	struct ibv_context *ctx;
	int count;

	check_eq(getauxval(AT_SECURE), (unsigned long)atoi(secure));
	list = ibv_get_device_list(&count);
	check(list, "no list: %s", strerror(errno));
	check_eq(count, atoi(adapters));
	ctx = ibv_open_device(list[0]);
	check(ctx, "not opened: %s", strerror(errno));
	check_eq(ibv_close_device(ctx), 0);
	ibv_free_device_list(list);
	return 0;
}

/* As the other user, with these variables; what it said goes to a file that is ours. */
static void run(const char *program, const char *secure, int adapters, const char *log_file)
{
	const char *config = in_dir("config"), *said = in_dir("said");
	char number[16];
	int status;
	pid_t pid;

	snprintf(number, sizeof(number), "%d", adapters);
	unlink(said);
	pid = fork();
	check(pid >= 0, "%s", strerror(errno));
	if (pid == 0) {
		int fd = open(said, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

		if (fd < 0 || dup2(fd, STDERR_FILENO) < 0 || setgroups(0, NULL) ||
		    setresgid(OTHER_UID, OTHER_UID, OTHER_UID) ||
		    setresuid(OTHER_UID, OTHER_UID, OTHER_UID))
			_exit(99);
		setenv("VERBATIM_LOG", "a text of the caller's choice", 1);
		setenv("VERBATIM_LOG_FILE", log_file, 1);
		setenv("VERBATIM_CONFIG", config, 1);
		setenv("VERBATIM_DIRECT", "nonsense", 1);
		execl(program, program, "card", secure, number, (char *)NULL);
		_exit(98);
	}
	check_eq(waitpid(pid, &status, 0), pid);
	if (status) {
		char text[4096];

		read_file(said, text, sizeof(text));
		check(false, "%s: wait status %#x, said: %s", program, status, text);
	}
}

static void remove_all(void)
{
	static const char *const names[] = {
		"config", "said", "secret", "log", "plain", "set-uid"
	};

	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlink(in_dir(names[i]));
	rmdir(dir);
}

int main(int argc, char **argv)
{
	struct statvfs vfs;
	char text[4096];

	if (argc == 4 && !strcmp(argv[1], "card"))
		return use_card(argv[2], argv[3]);
	if (geteuid() != 0)
		test_skip("a set-uid program for another user needs root");
	/* Its programs have rights, and look for no VERBATIM_SHM_DIR: another network, another registry. */
	if (!enter_namespaces(CLONE_NEWNET))
		test_skip("no network namespace: %s", strerror(errno));
	check(mkdtemp(dir), "%s: %s", dir, strerror(errno));
	atexit(remove_all);
	if (statvfs(dir, &vfs) || (vfs.f_flag & (ST_NOSUID | ST_NOEXEC)))
		test_skip("/tmp has no set-uid programs (mounted nosuid or noexec)");
	check_eq(chmod(dir, 0755), 0);
	write_file(in_dir("config"), "[adapter mlx5_0]\n", 0644, 0);
	write_file(in_dir("secret"), secret, 0600, 0);
	write_file(in_dir("log"), "", 0600, OTHER_UID);
	copy_self(in_dir("plain"), 0755);
	copy_self(in_dir("set-uid"), 04755);

	/* The variables have their effect where the caller has no more rights than its program. */
	run(in_dir("plain"), "0", BY_CONFIG, in_dir("log"));
	check(read_file(in_dir("log"), text, sizeof(text)) > 0 && strstr(text, "caller's choice"),
	      "the log file has: %s", text);
	check_eq(read_file(in_dir("said"), text, sizeof(text)), 0);

	run(in_dir("set-uid"), "1", BY_DEFAULT, in_dir("secret"));
	read_file(in_dir("secret"), text, sizeof(text));
	check(!strcmp(text, secret), "the file of root's has: %s", text);
	/* Nothing is said of variables that do not count. */
	read_file(in_dir("said"), text, sizeof(text));
	check(!*text, "it said: %s", text);
	return 0;
}
