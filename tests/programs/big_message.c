// SPDX-License-Identifier: MIT
/*
 * Messages of hundreds of megabytes up to the largest, 1 GiB: WRITE, READ and SEND between two processes, with the
 * first, last and some inner bytes checked. One byte more than the largest is refused. And as benchmarks do it: several
 * messages of 1 GiB at a time, each of which takes far longer than the time-out for its acknowledgement.
 *
 * The memory is sparse: only the pages that are looked at hold more than zeroes, but all are copied.
 */
#include "common.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LARGEST (1ull << 30)
/* Both processes touch their whole buffer, and the machine needs room for the rest of the tests. */
#define NEEDED (2 * LARGEST + (1ull << 30))

static uint64_t available_memory(void)
{
	char line[128];
	unsigned long long kib = 0;
	FILE *f = fopen("/proc/meminfo", "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			break;
	}
	if (f)
		fclose(f);
	return kib * 1024;
}

/* Marks at places that a wrong chunk order or a 32-bit overflow would miss. */
static void mark(uint8_t *buf, uint64_t len, uint8_t tag)
{
	for (uint64_t i = 0; i < 64; i++)
		buf[len / 64 * i + i] = (uint8_t)(tag + i);
	buf[len - 1] = tag;
}

static void check_marks(const uint8_t *buf, uint64_t len, uint8_t tag)
{
	for (uint64_t i = 0; i < 64; i++)
		check_eq(buf[len / 64 * i + i], (uint8_t)(tag + i));
	check_eq(buf[len - 1], tag);
}

static void open_node(struct node *node, uint64_t size)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = size;
	attr.timeout = 20; /* 4 s: a copy of 1 GiB may take its time */
	node_open(node, &attr);
}

/* For the reader of the log only: nothing depends on it. */
static void say(const char *what, uint64_t size, uint64_t *start)
{
	uint64_t now = now_us();

	printf("%s of %llu MiB: %.2f s\n", what, (unsigned long long)size >> 20,
	       (double)(now - *start) / 1e6);
	fflush(stdout);
	*start = now;
}

/* --- several at a time ------------------------------------------------------------------------------ */

enum { STREAM = 3 };
#define STREAM_SIZE   (1ull << 30)
#define STREAM_NEEDED (4ull << 30)

static void open_stream(struct node *node)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = STREAM_SIZE;
	attr.timeout = 14; /* 67 ms */
	attr.rd_atomic = attr.dest_rd_atomic = STREAM;
	node_open(node, &attr);
}

static void expect_all(struct ibv_cq *cq, uint64_t first)
{
	struct ibv_wc wc;

	for (uint64_t i = 0; i < STREAM; i++) {
		check(cq_wait(cq, &wc, 10 * PATIENCE_MS), "no completion of %d", (int)(first + i));
		check_status(&wc, IBV_WC_SUCCESS);
		check_eq(wc.wr_id, first + i);
	}
}

static int stream_target(void)
{
	struct node node;
	struct address peer;
	char word;

	open_stream(&node);
	node_meet(&node, ROLE_FD, &peer);
	for (int i = 0; i < STREAM; i++)
		check_eq(node_recv(&node, 20 + (uint64_t)i, 0, STREAM_SIZE), 0);
	msg_recv(ROLE_FD, &word, 1); /* written */
	check_marks(node.buf, STREAM_SIZE, 1);
	msg_send(ROLE_FD, &word, 1);
	expect_all(node.recv_cq, 20);
	check_marks(node.buf, STREAM_SIZE, 2);
	mark(node.buf, STREAM_SIZE, 3);
	msg_send(ROLE_FD, &word, 1);
	msg_recv(ROLE_FD, &word, 1);
	node_close(&node);
	return 0;
}

static void stream(void)
{
	struct node node;
	struct address peer;
	uint64_t start;
	char word = 0;
	pid_t pid;
	int fd;

	pid = spawn_self("stream-target", &fd);
	open_stream(&node);
	node_meet(&node, fd, &peer);
	mark(node.buf, STREAM_SIZE, 1);
	start = now_us();
	for (uint64_t i = 0; i < STREAM; i++)
		check_eq(node_rdma(&node, i, IBV_WR_RDMA_WRITE, 0, STREAM_SIZE, &peer, 0), 0);
	expect_all(node.send_cq, 0);
	say("3 WRITEs", STREAM_SIZE, &start);
	msg_send(fd, &word, 1);
	msg_recv(fd, &word, 1);
	mark(node.buf, STREAM_SIZE, 2);
	start = now_us();
	for (uint64_t i = 0; i < STREAM; i++)
		check_eq(node_send(&node, 10 + i, 0, STREAM_SIZE, IBV_SEND_SIGNALED), 0);
	expect_all(node.send_cq, 10);
	say("3 SENDs", STREAM_SIZE, &start);
	msg_recv(fd, &word, 1);
	start = now_us();
	for (uint64_t i = 0; i < STREAM; i++)
		check_eq(node_rdma(&node, 30 + i, IBV_WR_RDMA_READ, 0, STREAM_SIZE, &peer, 0), 0);
	expect_all(node.send_cq, 30);
	say("3 READs", STREAM_SIZE, &start);
	check_marks(node.buf, STREAM_SIZE, 3);
	msg_send(fd, &word, 1);
	spawn_wait(pid);
	close(fd);
	node_close(&node);
}

/* --- one at a time ------------------------------------------------------------------------------------ */

static int target(void)
{
	struct node node;
	struct address peer;
	struct ibv_wc wc;
	uint64_t size;

	msg_recv(ROLE_FD, &size, sizeof(size));
	open_node(&node, size);
	node_meet(&node, ROLE_FD, &peer);
	msg_recv(ROLE_FD, &size, sizeof(size)); /* written */
	check_marks(node.buf, size, 1);
	mark(node.buf, size, 2);
	check_eq(node_recv(&node, 9, 0, (uint32_t)size), 0);
	msg_send(ROLE_FD, &size, sizeof(size)); /* to be read, then sent to */
	cq_expect_at(__FILE__, __LINE__, node.recv_cq, 9, IBV_WC_SUCCESS, &wc);
	check_eq(wc.byte_len, size);
	check_marks(node.buf, size, 3);
	node_close(&node);
	return 0;
}

static void run(uint64_t size)
{
	struct node node;
	struct address peer;
	struct ibv_wc wc;
	uint64_t start;
	pid_t pid;
	int fd;

	pid = spawn_self("target", &fd);
	msg_send(fd, &size, sizeof(size));
	open_node(&node, size);
	node_meet(&node, fd, &peer);
	mark(node.buf, size, 1);
	start = now_us();
	check_eq(node_rdma(&node, 1, IBV_WR_RDMA_WRITE, 0, (uint32_t)size, &peer, 0), 0);
	cq_expect_at(__FILE__, __LINE__, node.send_cq, 1, IBV_WC_SUCCESS, NULL);
	say("WRITE", size, &start);
	msg_send(fd, &size, sizeof(size));
	msg_recv(fd, &size, sizeof(size));
	start = now_us();
	check_eq(node_rdma(&node, 2, IBV_WR_RDMA_READ, 0, (uint32_t)size, &peer, 0), 0);
	cq_expect_at(__FILE__, __LINE__, node.send_cq, 2, IBV_WC_SUCCESS, NULL);
	say("READ", size, &start);
	check_marks(node.buf, size, 2);
	mark(node.buf, size, 3);
	check_eq(node_send(&node, 3, 0, (uint32_t)size, IBV_SEND_SIGNALED), 0);
	check(cq_wait(node.send_cq, &wc, 3 * PATIENCE_MS), "no completion");
	check_status(&wc, IBV_WC_SUCCESS);
	say("SEND", size, &start);
	spawn_wait(pid);
	close(fd);
	node_close(&node);
}

/* More than the port's largest message: an error, at posting or on completion. */
static void too_long(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct ibv_port_attr port;
	struct node a;
	struct address to;
	struct ibv_wc wc;

	attr.size = LARGEST + 4096;
	node_open(&a, &attr);
	node_address(&a, &to);
	node_connect(&a, &to);
	check_eq(ibv_query_port(a.ctx, 1, &port), 0);
	check_eq(port.max_msg_sz, LARGEST);
	if (node_rdma(&a, 1, IBV_WR_RDMA_WRITE, 0, port.max_msg_sz + 1, &to, 0) == 0) {
		check(cq_wait(a.send_cq, &wc, PATIENCE_MS), "no completion");
		check(wc.status == IBV_WC_LOC_LEN_ERR || wc.status == IBV_WC_LOC_QP_OP_ERR, "%s",
		      ibv_wc_status_str(wc.status));
	}
	node_close(&a);
}

int main(int argc, char **argv)
{
	uint64_t largest;

	if (argc > 1 && !strcmp(argv[1], "target"))
		return target();
	if (argc > 1 && !strcmp(argv[1], "stream-target"))
		return stream_target();
	if (argc > 1 && !strcmp(argv[1], "stream")) {
		if (available_memory() < STREAM_NEEDED)
			test_skip("messages of 1 GiB need %llu MiB of free memory",
				  STREAM_NEEDED >> 20);
		stream();
		return 0;
	}
	largest = argc > 1 ? strtoull(argv[1], NULL, 0) : 256ull << 20;
	if (largest < LARGEST) {
		run(100ull << 20 | 13);
		run(largest);
		return 0;
	}
	if (available_memory() < NEEDED)
		test_skip("1 GiB messages need %llu MiB of free memory", NEEDED >> 20);
	too_long();
	run(LARGEST);
	return 0;
}
