// SPDX-License-Identifier: MIT
/*
 * What test_trace.py records: a queue pair connected to itself that does a known number of things.
 *
 *	traced work      7 WRITEs of 64 bytes, 3 SENDs of 32, 1 READ that is refused (a wrong key)
 *	traced fork      the same in a child, too
 *	traced killed    ... and ends by SIGKILL
 *	traced many N    N WRITEs; with another argument, half of them after all descriptors were closed that end in .notes
 *	traced overrun   8 WRITEs whose completions nobody takes, on a CQ that has less room
 *	traced churn     makes queue pairs that do 2 WRITEs each, and destroys them, beside many that do nothing. Prints "ready" and goes on
 *	                 until the end of its input
 *	traced hold      7 WRITEs and 3 SENDs; a queue pair that is gone again has done 2 WRITEs before. Prints "ready" and waits for the
 *	                 end of its input; each line there is another WRITE
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../programs/common.h"

static void write_some(struct node *a, const struct address *self, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		check_eq(node_rdma(a, i, IBV_WR_RDMA_WRITE, 0, 64, self, 4096), 0);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
	}
}

static void work(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address self, wrong;
	struct node a;

	node_open(&a, &attr);
	node_address(&a, &self);
	node_connect(&a, &self);
	write_some(&a, &self, 7);
	for (uint64_t i = 0; i < 3; i++) {
		check_eq(node_recv(&a, i, 8192, 32), 0);
		check_eq(node_send(&a, i, 0, 32, IBV_SEND_SIGNALED), 0);
		cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
		cq_expect(a.recv_cq, i, IBV_WC_SUCCESS);
	}
	wrong = self;
	wrong.rkey ^= 0x55aa00;
	check_eq(node_rdma(&a, 9, IBV_WR_RDMA_READ, 0, 16, &wrong, 0), 0);
	cq_expect(a.send_cq, 9, IBV_WC_REM_ACCESS_ERR);
	node_close(&a);
}

/* As a program does that closes what it did not open. */
static void close_notes(void)
{
	char link[64], path[4096];
	ssize_t n;

	for (int fd = 3; fd < 1000; fd++) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, path, sizeof(path));
		if (n > 6 && !memcmp(path + n - 6, ".notes", 6))
			close(fd);
	}
}

static void many(uint64_t count, bool closes)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address self;
	struct node a;

	node_open(&a, &attr);
	node_address(&a, &self);
	node_connect(&a, &self);
	if (closes) {
		write_some(&a, &self, count / 2);
		close_notes();
		count -= count / 2;
	}
	write_some(&a, &self, count);
	node_close(&a);
}

static void overrun(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address self;
	struct node a;

	attr.cqe = 1;
	node_open(&a, &attr);
	check(a.send_cq->cqe < 8);
	node_address(&a, &self);
	node_connect(&a, &self);
	for (uint64_t i = 0; i < 8; i++)
		check_eq(node_rdma(&a, i, IBV_WR_RDMA_WRITE, 0, 64, &self, 4096), 0);
	_exit(0); /* the queue pair is in error now */
}

static void *wait_for_end(void *arg)
{
	while (fgetc(stdin) != EOF)
		;
	atomic_store((atomic_bool *)arg, true);
	return NULL;
}

static void churn(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct ibv_qp_init_attr idle = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	static atomic_bool ended;
	struct address self;
	struct node first, a;
	pthread_t thread;

	node_open(&first, &attr);
	idle.send_cq = first.send_cq;
	idle.recv_cq = first.recv_cq;
	for (int i = 0; i < 3000; i++)
		check(ibv_create_qp(first.pd, &idle));
	check_eq(pthread_create(&thread, NULL, wait_for_end, &ended), 0);
	printf("ready 0x%x\n", first.qp->qp_num);
	fflush(stdout);
	while (!atomic_load(&ended)) {
		node_open(&a, &attr);
		node_address(&a, &self);
		node_connect(&a, &self);
		write_some(&a, &self, 2);
		usleep(5000); /* longer than two looks of a tool */
		node_close(&a);
	}
	exit(0);
}

static void hold(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address self;
	struct node a, gone;
	char line[16];

	node_open(&gone, &attr);
	node_address(&gone, &self);
	node_connect(&gone, &self);
	write_some(&gone, &self, 2);
	node_open(&a, &attr);
	node_close(&gone);
	node_address(&a, &self);
	node_connect(&a, &self);
	write_some(&a, &self, 7);
	for (uint64_t i = 0; i < 3; i++) {
		check_eq(node_recv(&a, i, 8192, 32), 0);
		check_eq(node_send(&a, i, 0, 32, IBV_SEND_SIGNALED), 0);
		cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
		cq_expect(a.recv_cq, i, IBV_WC_SUCCESS);
	}
	do {
		printf("ready 0x%x\n", a.qp->qp_num);
		fflush(stdout);
		if (!fgets(line, sizeof(line), stdin))
			break;
		write_some(&a, &self, 1);
	} while (true);
	node_close(&a);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "work";
	int status;

	if (!strcmp(what, "many")) {
		many(strtoull(argv[2], NULL, 10), argc > 3);
		return 0;
	}
	if (!strcmp(what, "overrun")) {
		overrun();
		return 0;
	}
	if (!strcmp(what, "churn")) {
		churn();
		return 0;
	}
	if (!strcmp(what, "hold")) {
		hold();
		return 0;
	}
	if (!strcmp(what, "fork")) {
		pid_t child = fork();

		if (!child) {
			work();
			_exit(0);
		}
		check_eq(waitpid(child, &status, 0), child);
		check_eq(status, 0);
	}
	work();
	if (!strcmp(what, "killed"))
		raise(SIGKILL);
	return 0;
}
