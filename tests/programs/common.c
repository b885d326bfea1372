// SPDX-License-Identifier: MIT
/*
 * Checks, time, patterns and second processes for the test programs. The verbs helpers are in node.c.
 */
#include "common.h"
#include "hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>

static void fail_exit(const char *file, int line)
{
	(void)file;
	(void)line;
	exit(1);
}

_Thread_local int role_fd = ROLE_PROCESS_FD;

void (*test_fail_hook)(const char *file, int line) = fail_exit;

void test_failed(const char *file, int line, const char *cond, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "# %s:%d: failed: %s%s\n", file, line, cond, text);
	fflush(stderr);
	/* The hook may jump, or wait for this thread. */
	if (hosts_is_side())
		_exit(1);
	test_fail_hook(file, line);
}

/* What is one number in all cases; some errors have several. 0: none of them, and not 0. */
static const uint8_t vendor_errors[] = {
	[IBV_WC_WR_FLUSH_ERR] = 0xf9,   [IBV_WC_REM_INV_REQ_ERR] = 0x8a,
	[IBV_WC_REM_ACCESS_ERR] = 0x88, [IBV_WC_REM_OP_ERR] = 0x89,
	[IBV_WC_RETRY_EXC_ERR] = 0x81,  [IBV_WC_RNR_RETRY_EXC_ERR] = 0x87,
};

void check_status_at(const char *file, int line, const struct ibv_wc *wc, enum ibv_wc_status want)
{
	uint8_t vendor = want < sizeof(vendor_errors) ? vendor_errors[want] : 0;

	if (wc->status != want)
		test_failed(file, line, ibv_wc_status_str(want), " was '%s' (wr_id %llu)",
			    ibv_wc_status_str(wc->status), (unsigned long long)wc->wr_id);
	if (vendor ? wc->vendor_err != vendor : !wc->vendor_err != (want == IBV_WC_SUCCESS))
		test_failed(file, line, "vendor_err", " of '%s' is %#x", ibv_wc_status_str(want),
			    wc->vendor_err);
}

void test_skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("skipped: ", stdout);
	vfprintf(stdout, fmt, ap);
	fputc('\n', stdout);
	va_end(ap);
	exit(EXIT_SKIP);
}

uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

void sleep_ms(unsigned int ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

/* SplitMix64: short, and every seed (0 included) gives a good stream. */
uint32_t next_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (uint32_t)((z ^ (z >> 31)) >> 16);
}

/* Depends on every bit of the position, so that a chunk in the wrong place shows. */
static inline uint8_t pattern_byte(size_t i, uint32_t seed)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull + seed * 0x85ebca6bull;

	return (uint8_t)(x >> 37);
}

void pattern_fill(void *buf, size_t len, uint32_t seed)
{
	uint8_t *p = buf;

	for (size_t i = 0; i < len; i++)
		p[i] = pattern_byte(i, seed);
}

size_t pattern_check(const void *buf, size_t len, uint32_t seed)
{
	const uint8_t *p = buf;

	for (size_t i = 0; i < len; i++) {
		if (p[i] != pattern_byte(i, seed))
			return i;
	}
	return len;
}

pid_t spawn_self(const char *role, int *fd)
{
	int pair[2];
	pid_t pid, parent = getpid();

	if (hosts_wanted())
		return hosts_spawn(role, fd);
	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "%s",
	      strerror(errno));
	fflush(NULL);
	pid = fork();
	check(pid >= 0, "%s", strerror(errno));
	if (pid == 0) {
		char self[] = "/proc/self/exe";
		char *argv[] = { self, strdup(role), NULL };

		/* A test that fails must not leave its children behind. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		if (pair[1] == ROLE_PROCESS_FD)
			fcntl(ROLE_PROCESS_FD, F_SETFD, 0);
		else
			dup2(pair[1], ROLE_PROCESS_FD);
		execv(self, argv);
		_exit(126);
	}
	close(pair[1]);
	*fd = pair[0];
	return pid;
}

void spawn_wait(pid_t pid)
{
	int status = -1;

	if (hosts_wait(pid))
		return;
	check_eq(waitpid(pid, &status, 0), pid);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: wait status %#x", status);
}

bool spawn_is_process(void)
{
	return !hosts_wanted();
}

void role_exit(int status)
{
	if (hosts_is_side())
		hosts_exit(status);
	exit(status);
}

void msg_send(int fd, const void *msg, size_t len)
{
	ssize_t n;

	do {
		n = send(fd, msg, len, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	check(n == (ssize_t)len, "the other process is gone: %s", strerror(errno));
}

bool msg_try_recv(int fd, void *msg, size_t len)
{
	ssize_t n;

	do {
		n = recv(fd, msg, len, 0);
	} while (n < 0 && errno == EINTR);
	return n == (ssize_t)len;
}

void msg_recv(int fd, void *msg, size_t len)
{
	check(msg_try_recv(fd, msg, len), "the other process is gone");
}

void node_meet(struct node *node, int fd, struct address *peer)
{
	struct address mine;
	char ready = 1;

	node_address(node, &mine);
	msg_send(fd, &mine, sizeof(mine));
	msg_recv(fd, peer, sizeof(*peer));
	node_connect(node, peer);
	/* Nobody sends before both are in RTS: the tests are not about the time before. */
	msg_send(fd, &ready, 1);
	msg_recv(fd, &ready, 1);
}

static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

bool enter_namespaces(int flags)
{
	unsigned int uid = geteuid(), gid = getegid();
	char map[64];

	if (unshare(flags) == 0)
		return true;
	if (unshare(flags | CLONE_NEWUSER))
		return false;
	/* The same ids inside, so that files belong to the same user. */
	write_file("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	if (!write_file("/proc/self/uid_map", map))
		return false;
	snprintf(map, sizeof(map), "%u %u 1", gid, gid);
	return write_file("/proc/self/gid_map", map);
}

void enter_small_shm(const char *options)
{
	if (!enter_namespaces(CLONE_NEWNS))
		test_skip("a small /dev/shm needs the right to make a mount namespace (%s)",
			  strerror(errno));
	mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	if (mount("tmpfs", "/dev/shm", "tmpfs", 0, options))
		test_skip("a small /dev/shm needs the right to mount a tmpfs (%s)",
			  strerror(errno));
	unsetenv("VERBATIM_SHM_DIR");
}

const char *shm_path(void)
{
	const char *path = getenv("VERBATIM_SHM_DIR");

	return path ? path : "/dev/shm";
}

int campaign(int count, int long_count)
{
	const char *wish = getenv("VERBATIM_TEST_LONG");

	return wish && *wish && strcmp(wish, "0") ? long_count : count;
}
