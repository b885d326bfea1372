// SPDX-License-Identifier: MIT
/*
 * A program that has mlx5_0 open and does what the lines of its input say:
 *
 *	state      print the state of port 1
 *	full       take all descriptors that there are
 *	name       take a name that a terminal would obey
 *	cpu        print the milliseconds of processor time so far
 *	close      close mlx5_0, and
 *	open       open it again
 *	closed in  end with the next system call that makes, names or accepts a socket
 *
 * With "race" it opens the device in several threads at a time instead, and each looks at the port.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../programs/common.h"

enum { THREADS = 8 };

static pthread_barrier_t together;

static int port_state(struct ibv_context *ctx)
{
	struct ibv_port_attr attr;

	check_eq(ibv_query_port(ctx, 1, &attr), 0);
	return attr.state;
}

static void *open_and_look(void *arg)
{
	struct ibv_context *ctx;

	pthread_barrier_wait(&together);
	ctx = device_open();
	*(int *)arg = port_state(ctx);
	check_eq(ibv_close_device(ctx), 0);
	return NULL;
}

static int race(void)
{
	pthread_t thread[THREADS];
	int state[THREADS];

	pthread_barrier_init(&together, NULL, THREADS);
	for (int i = 0; i < THREADS; i++)
		check_eq(pthread_create(&thread[i], NULL, open_and_look, &state[i]), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(thread[i], NULL);
		printf("%d\n", state[i]);
	}
	return 0;
}

static int take_descriptors(void)
{
	const struct rlimit few = { 64, 64 };
	int n = 0;

	check_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	while (dup(STDIN_FILENO) >= 0)
		n++;
	check_eq(errno, EMFILE);
	return n;
}

static int cpu_ms(void)
{
	struct rusage use;

	check_eq(getrusage(RUSAGE_SELF, &use), 0);
	return (int)((use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000 +
		     (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1000);
}

static int close_in(void)
{
	static struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the number of the call */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_bind, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_accept4, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	const struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };

	check_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

static int obey(struct ibv_context **ctx, const char *line)
{
	if (!strcmp(line, "state\n"))
		return port_state(*ctx);
	if (!strcmp(line, "close\n"))
		return ibv_close_device(*ctx);
	if (!strcmp(line, "open\n"))
		return !(*ctx = device_open());
	if (!strcmp(line, "closed in\n"))
		return close_in();
	if (!strcmp(line, "full\n"))
		return take_descriptors();
	if (!strcmp(line, "name\n"))
		return prctl(PR_SET_NAME, "a\033[31mb");
	if (!strcmp(line, "cpu\n"))
		return cpu_ms();
	return -1;
}

int main(int argc, char **argv)
{
	struct ibv_context *ctx;
	char line[32];

	if (argc > 1 && !strcmp(argv[1], "race"))
		return race();
	ctx = device_open();
	check(ctx);
	printf("ready\n");
	do
		fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && printf("%d\n", obey(&ctx, line)) > 0);
	check_eq(ibv_close_device(ctx), 0);
	return 0;
}
