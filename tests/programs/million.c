// SPDX-License-Identifier: MIT
/*
 * A million messages of 16 to 256 bytes between two processes, each with a sequence number and a checksum over all of
 * its bytes: none is lost, doubled, reordered or changed. The contract is ten seconds for them.
 */
#include "common.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MESSAGES = 1000000, DEPTH = 512, BATCH = 32, SLOT = 256 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INSTRUMENTED 1
#endif
#endif

struct message {
	uint64_t sequence, sum;
	uint64_t words[SLOT / 8 - 2];
};

static uint32_t length_of(uint64_t sequence)
{
	return 16 + (uint32_t)((sequence * 2654435761u >> 7) % 31) * 8;
}

static uint64_t checksum(const struct message *m, uint32_t len)
{
	uint64_t h = m->sequence * 0x9e3779b97f4a7c15ull + len;

	for (uint32_t i = 0; i < (len - 16) / 8; i++)
		h = (h ^ m->words[i]) * 0x100000001b3ull + (h >> 29);
	return h;
}

static void open_node(struct node *node)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.cap.max_send_wr = DEPTH;
	attr.cap.max_recv_wr = DEPTH;
	attr.cqe = DEPTH * 2;
	attr.size = DEPTH * SLOT;
	node_open(node, &attr);
}

static void post_receives(struct node *node, uint64_t first, int count)
{
	struct ibv_recv_wr wr[BATCH], *bad;
	struct ibv_sge sge[BATCH];

	for (int i = 0; i < count; i++) {
		sge[i] = (struct ibv_sge){ (uintptr_t)node->buf +
						   (first + (uint64_t)i) % DEPTH * SLOT,
					   SLOT, node->mr->lkey };
		wr[i] = (struct ibv_recv_wr){ .wr_id = first + (uint64_t)i,
					      .sg_list = &sge[i],
					      .num_sge = 1,
					      .next = i + 1 < count ? &wr[i + 1] : NULL };
	}
	check_eq(ibv_post_recv(node->qp, wr, &bad), 0);
}

static int receiver(void)
{
	struct node node;
	struct address peer;
	struct ibv_wc wc[BATCH];
	uint64_t next = 0, posted = 0;

	open_node(&node);
	node_meet(&node, ROLE_FD, &peer);
	for (; posted < DEPTH; posted += BATCH)
		post_receives(&node, posted, BATCH);
	while (next < MESSAGES) {
		int n = ibv_poll_cq(node.recv_cq, BATCH, wc);

		check(n >= 0, "poll");
		for (int i = 0; i < n; i++, next++) {
			const struct message *m = (void *)(node.buf + next % DEPTH * SLOT);

			check_status(&wc[i], IBV_WC_SUCCESS);
			check_eq(wc[i].wr_id, next);
			check_eq(wc[i].byte_len, length_of(next));
			check_eq(m->sequence, next);
			check(m->sum == checksum(m, wc[i].byte_len), "message %llu is damaged",
			      (unsigned long long)next);
		}
		while (posted + BATCH <= next + DEPTH) {
			post_receives(&node, posted, BATCH);
			posted += BATCH;
		}
	}
	msg_send(ROLE_FD, &next, sizeof(next));
	node_close(&node);
	return 0;
}

/* A batch in one call; its last request is signalled. */
static void send_batch(struct node *node, uint64_t first)
{
	static uint64_t noise = 1;
	struct ibv_send_wr wr[BATCH], *bad;
	struct ibv_sge sge[BATCH];

	for (int i = 0; i < BATCH; i++) {
		uint64_t sequence = first + (uint64_t)i;
		struct message *m = (void *)(node->buf + sequence % DEPTH * SLOT);
		uint32_t len = length_of(sequence);

		m->sequence = sequence;
		m->words[(sequence >> 3) % (SLOT / 8 - 2)] = next_random(&noise);
		m->sum = checksum(m, len);
		sge[i] = (struct ibv_sge){ (uintptr_t)m, len, node->mr->lkey };
		wr[i] = (struct ibv_send_wr){ .wr_id = sequence,
					      .sg_list = &sge[i],
					      .num_sge = 1,
					      .opcode = IBV_WR_SEND,
					      .next = i + 1 < BATCH ? &wr[i + 1] : NULL };
	}
	wr[BATCH - 1].send_flags = IBV_SEND_SIGNALED;
	check_eq(ibv_post_send(node->qp, wr, &bad), 0);
}

int main(int argc, char **argv)
{
	struct node node;
	struct address peer;
	uint64_t sent = 0, done = 0, total, start;
	pid_t pid;
	int fd;

	if (argc > 1 && !strcmp(argv[1], "receiver"))
		return receiver();
	pid = spawn_self("receiver", &fd);
	open_node(&node);
	node_meet(&node, fd, &peer);
	start = now_us();
	while (done < MESSAGES) {
		struct ibv_wc wc;

		if (sent < MESSAGES && sent - done + BATCH <= DEPTH) {
			send_batch(&node, sent);
			sent += BATCH;
		} else if (ibv_poll_cq(node.send_cq, 1, &wc) > 0) {
			check_status(&wc, IBV_WC_SUCCESS);
			done += BATCH;
			check_eq(wc.wr_id, done - 1);
		}
	}
	msg_recv(fd, &total, sizeof(total));
	check_eq(total, MESSAGES);
	start = now_us() - start;
	printf("%d messages in %.2f s\n", MESSAGES, (double)start / 1e6);
#ifndef INSTRUMENTED
	check(start < 10 * 1000000ull, "took %.1f s", (double)start / 1e6);
#endif
	spawn_wait(pid);
	close(fd);
	node_close(&node);
	return 0;
}
