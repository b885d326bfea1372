// SPDX-License-Identifier: MIT
/*
 * A reliable connection over a link that loses, with time that the test moves: what was lost is sent again when that time says so and never
 * before, with the same number, as often as the queue pair was told. The other process has the system's clock.
 *
 *	program --> card --> [record] --> [lose] --> shm --> the other process
 */
#include <stdatomic.h>
#include <string.h>

#include "../unit/sim_time.h"
#include "common.h"
#include "fabric/fabric.h"

enum { RETRIES = 3, WR = 40, LOOKS = 5000, TIMEOUT = 14 };

static struct sim_time sim;

/*
 * A part of the timeout of the queue pair, and a while for the card to look at its clock: it stamps what is in flight when it
 * looks. A whole timeout does not pass between two looks of the test.
 */
static void pass_time(void)
{
	sim_move(&sim, (4096ull << TIMEOUT) / 4);
	sleep_ms(1);
}

/* --- two links, one over the other ------------------------------------------------------------ */

static struct {
	struct vb_link_ops record_ops, lose_ops;
	struct vb_link record, lose;
	_Atomic uint32_t tries, lost; /* of SENDs */
	_Atomic uint32_t psn;         /* of the last one */
	_Atomic uint32_t to_lose;
	_Atomic uint32_t answers; /* that came */
} links;

static int record_send(struct vb_link *link, struct vb_path *path, const struct vb_pkt *pkt)
{
	if (pkt->op == VB_PKT_SEND) {
		atomic_fetch_add(&links.tries, 1);
		atomic_store(&links.psn, pkt->psn);
	}
	return vb_link_pass.send(link, path, pkt);
}

static void record_receive(struct vb_link *link, const struct vb_pkt *pkt)
{
	if (pkt->op == VB_PKT_ACK)
		atomic_fetch_add(&links.answers, 1);
	vb_link_pass.receive(link, pkt);
}

static int lose_send(struct vb_link *link, struct vb_path *path, const struct vb_pkt *pkt)
{
	if (pkt->op == VB_PKT_SEND && atomic_load(&links.to_lose)) {
		atomic_fetch_sub(&links.to_lose, 1);
		atomic_fetch_add(&links.lost, 1);
		return 0;
	}
	return vb_link_pass.send(link, path, pkt);
}

static void links_lay(void)
{
	links.record_ops = links.lose_ops = vb_link_pass;
	links.lose_ops.name = "lose";
	links.lose_ops.send = lose_send;
	links.record_ops.send = record_send;
	links.record_ops.receive = record_receive;
	links.lose.ops = &links.lose_ops;
	links.record.ops = &links.record_ops;
	check_eq(vb_link_wrap(vb_host_program.fabric, "shm", &links.lose), 0);
	check_eq(vb_link_wrap(vb_host_program.fabric, "lose", &links.record), 0);
}

/* --- both sides ------------------------------------------------------------------------------- */

static struct node_attr patient(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.timeout = TIMEOUT;
	attr.retry_cnt = RETRIES;
	return attr;
}

/* One message for each word of the other side. */
static int receiver(void)
{
	struct node_attr attr = patient();
	struct address peer;
	struct node node;
	struct ibv_wc wc;
	char word;

	node_open(&node, &attr);
	node_meet(&node, ROLE_FD, &peer);
	for (msg_recv(ROLE_FD, &word, 1); word != 'e'; msg_recv(ROLE_FD, &word, 1)) {
		check_eq(node_recv(&node, WR, 0, 64), 0);
		msg_send(ROLE_FD, "p", 1);
		check(cq_wait(node.recv_cq, &wc, PATIENCE_MS), "nothing came");
		check_eq(wc.status, IBV_WC_SUCCESS);
		check_eq(node.buf[0], word);
		msg_send(ROLE_FD, "r", 1);
	}
	node_close(&node);
	return 0;
}

/* While the clock stands still nothing is sent again, however often the program polls. */
static void expect_nothing(struct node *node)
{
	uint32_t tries = links.tries;
	struct ibv_wc wc;

	for (int i = 0; i < LOOKS; i++)
		check_eq(ibv_poll_cq(node->send_cq, 1, &wc), 0);
	check_eq(links.tries, tries);
}

/* Time goes on until it is sent again. */
static void await_try(struct node *node, uint32_t tries)
{
	uint64_t end = now_us() + PATIENCE_MS * 1000ull;
	struct ibv_wc wc;

	while (links.tries < tries) {
		check(now_us() < end, "%u tries, not %u", links.tries, tries);
		check_eq(ibv_poll_cq(node->send_cq, 1, &wc), 0);
		pass_time();
	}
	check_eq(links.tries, tries);
}

static void send_word(struct node *node, int fd, char word)
{
	char ready;

	msg_send(fd, &word, 1);
	msg_recv(fd, &ready, 1);
	links.tries = links.lost = links.answers = 0;
	node->buf[0] = (uint8_t)word;
	check_eq(node_send(node, WR, 0, 8, IBV_SEND_SIGNALED), 0);
}

/* So many tries are lost, each with the same number; the next one arrives, and is acknowledged. */
static void lose_some(struct node *node, int fd, uint32_t count)
{
	struct ibv_wc wc;
	uint32_t psn;
	char came;

	links.to_lose = count;
	send_word(node, fd, (char)('0' + count));
	check_eq(links.tries, 1);
	psn = links.psn;
	for (uint32_t i = 0; i < count; i++) {
		expect_nothing(node);
		await_try(node, i + 2);
	}
	check(cq_wait(node->send_cq, &wc, PATIENCE_MS), "no completion");
	check_eq(wc.status, IBV_WC_SUCCESS);
	msg_recv(fd, &came, 1);
	check_eq(links.lost, count);
	check_eq(links.tries, count + 1);
	check_eq(links.psn, psn);
	check(links.answers > 0, "no acknowledgement passed");
}

/* After the first try and all retries the queue pair gives up. */
static void lose_all(struct node *node)
{
	uint64_t end = now_us() + PATIENCE_MS * 1000ull;
	struct ibv_wc wc;

	links.tries = 0;
	links.to_lose = UINT32_MAX;
	check_eq(node_send(node, WR, 0, 8, IBV_SEND_SIGNALED), 0);
	for (uint32_t i = 0; i < RETRIES; i++) {
		expect_nothing(node);
		await_try(node, i + 2);
	}
	expect_nothing(node);
	while (!ibv_poll_cq(node->send_cq, 1, &wc)) {
		check(now_us() < end, "no completion");
		pass_time();
	}
	check_eq(wc.status, IBV_WC_RETRY_EXC_ERR);
	check_eq(links.tries, RETRIES + 1);
}

int main(int argc, char **argv)
{
	struct node_attr attr = patient();
	struct address peer;
	struct node node;
	pid_t pid;
	int fd;

	if (argc > 1 && !strcmp(argv[1], "receiver"))
		return receiver();
	pid = spawn_self("receiver", &fd);
	sim_begin(&sim, 1000000000);
	links_lay();
	node_open(&node, &attr);
	node_meet(&node, fd, &peer);
	for (uint32_t count = 0; count <= RETRIES; count++)
		lose_some(&node, fd, count);
	lose_all(&node);
	msg_send(fd, "e", 1);
	spawn_wait(pid);
	node_close(&node);
	return 0;
}
