// SPDX-License-Identifier: MIT
/*
 * A process that is stopped between two steps of a direct WRITE, while the target registers that
 * memory anew. The target must wait, because the copy may go on at any time. It waits asleep and
 * says for whom.
 */
#include "../programs/common.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LEN = 4 << 20, TRIES = 200, STILL_MS = 100 };

static _Atomic unsigned int asked, done; /* registrations */
static _Atomic int stop;
static struct node node;

static void open_node(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = LEN;
	node_open(&node, &attr);
}

static int writer(void)
{
	struct address peer;
	struct ibv_wc wc;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_node();
	node_meet(&node, ROLE_FD, &peer);
	while (!node_rdma(&node, 1, IBV_WR_RDMA_WRITE, 0, LEN, &peer, 0))
		while (!ibv_poll_cq(node.send_cq, 1, &wc))
			;
	return 1;
}

/* The key stays, so that the writer can go on. */
static void *register_anew(void *arg)
{
	while (!stop) {
		if (asked == done) {
			sleep_ms(1);
			continue;
		}
		check_eq(ibv_rereg_mr(node.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				      ACCESS_ALL),
			 0);
		done++;
	}
	return arg;
}

/*
 * Stop it until it is stopped in the middle, so that a registration waits; false where that never
 * was.
 */
static bool stop_in_the_middle(pid_t pid)
{
	for (int i = 0; i < TRIES; i++) {
		kill(pid, SIGSTOP);
		check_eq(waitpid(pid, NULL, WUNTRACED), pid);
		asked++;
		for (int ms = 0; ms < STILL_MS && asked != done; ms++)
			sleep_ms(1);
		if (asked != done)
			return true;
		kill(pid, SIGCONT);
		sleep_ms(3);
	}
	return false;
}

static uint64_t cpu_us(pthread_t thread)
{
	struct timespec ts;
	clockid_t clock;

	check_eq(pthread_getcpuclockid(thread, &clock), 0);
	check_eq(clock_gettime(clock, &ts), 0);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* Whether the log names the process in time. */
static bool wait_line(int log, pid_t pid)
{
	uint64_t end = now_us() + PATIENCE_MS * 1000ull;
	char said[4096], name[32];
	ssize_t n;

	snprintf(name, sizeof(name), "process %d ", (int)pid);
	while (now_us() < end) {
		n = read(log, said, sizeof(said) - 1);
		said[n > 0 ? n : 0] = '\0';
		if (strstr(said, name))
			return true;
		sleep_ms(1);
	}
	return false;
}

int main(int argc, char **argv)
{
	struct address peer;
	pthread_t thread;
	uint64_t cpu, wall;
	int fd, log[2], err;
	bool said;
	pid_t pid;

	if (argc > 1)
		return writer();
	pid = spawn_self("writer", &fd);
	open_node();
	node_meet(&node, fd, &peer);
	check_eq(pipe2(log, O_NONBLOCK | O_CLOEXEC), 0);
	err = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	check_eq(pthread_create(&thread, NULL, register_anew, NULL), 0);
	if (!stop_in_the_middle(pid))
		test_skip("the writer was never in the middle of a copy");
	dup2(log[1], STDERR_FILENO);
	cpu = cpu_us(thread);
	wall = now_us();
	said = wait_line(log[0], pid);
	dup2(err, STDERR_FILENO);
	check(said, "nothing about process %d", (int)pid);
	cpu = cpu_us(thread) - cpu;
	wall = now_us() - wall;
	check(cpu < wall / 4, "%llu us of CPU time in %llu us", (unsigned long long)cpu,
	      (unsigned long long)wall);
	kill(pid, SIGCONT);
	while (asked != done)
		sleep_ms(1);
	stop = 1;
	check_eq(pthread_join(thread, NULL), 0);
	kill(pid, SIGKILL);
	check_eq(waitpid(pid, NULL, 0), pid);
	close(fd);
	node_close(&node);
	return 0;
}
