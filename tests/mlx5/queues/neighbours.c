// SPDX-License-Identifier: MIT
/*
 * A queue pair by command and its peer in another process, which has one by command or one of verbs: every operation, both
 * ways, rings by store on both sides; a peer that does nothing while its memory is read and written.
 *
 *	this process                         role "command" or "verbs"
 *	address  ---- socket ---->  connects, posts receives, answers each SEND with the same bytes
 */
#include "hand.h"

#include <endian.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 300, LENGTH = 3000, AT = 8192 };

static struct hand hand;
static struct hand_cq send_cq, recv_cq;
static struct hand_qp qp;

static void open_qp(void)
{
	hand_open(&hand);
	hand_cq(&hand, &send_cq, 7);
	hand_cq(&hand, &recv_cq, 7);
	hand_qp(&hand, &qp, IBV_QPT_RC, &send_cq, &recv_cq);
}

static void close_qp(void)
{
	hand_qp_end(&qp);
	hand_cq_end(&send_cq);
	hand_cq_end(&recv_cq);
	hand_close(&hand);
}

/* --- the peer ------------------------------------------------------------------------------------ */

static void command_peer(int fd)
{
	struct hand_address self, peer;
	struct mlx5_cqe64 cqe;
	char byte;

	open_qp();
	hand_address(&qp, &self);
	msg_send(fd, &self, sizeof(self));
	msg_recv(fd, &peer, sizeof(peer));
	hand_connect(&qp, &peer);
	hand_recv(&qp, 0, LENGTH);
	msg_send(fd, "r", 1);
	for (int i = 0; i < ROUNDS; i++) {
		hand_expect(&recv_cq, &qp, MLX5_CQE_RESP_SEND, &cqe);
		hand_recv(&qp, i % 2 ? 0 : LENGTH, LENGTH);
		hand_send(&qp, i % 2 ? LENGTH : 0, be32toh(cqe.byte_cnt));
		hand_expect(&send_cq, &qp, MLX5_CQE_REQ, &cqe);
	}
	msg_recv(fd, &byte, 1); /* passive until then */
	close_qp();
}

static void verbs_peer(int fd)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct hand_address self, peer;
	struct address far, near;
	struct node node;
	char byte;

	attr.size = HAND_BUF;
	node_open(&node, &attr);
	node_address(&node, &near);
	self = (struct hand_address){ .qpn = near.qpn,
				      .psn = near.psn,
				      .rkey = near.rkey,
				      .addr = near.addr,
				      .gid = near.gid };
	msg_send(fd, &self, sizeof(self));
	msg_recv(fd, &peer, sizeof(peer));
	far = (struct address){ .qpn = peer.qpn,
				.psn = peer.psn,
				.rkey = peer.rkey,
				.addr = peer.addr,
				.size = HAND_BUF,
				.gid = peer.gid };
	node_connect(&node, &far);
	check_eq(node_recv(&node, 0, 0, LENGTH), 0);
	msg_send(fd, "r", 1);
	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_wc wc;

		cq_expect_at(__FILE__, __LINE__, node.recv_cq, (uint64_t)i, IBV_WC_SUCCESS, &wc);
		check_eq(node_recv(&node, (uint64_t)i + 1, i % 2 ? 0 : LENGTH, LENGTH), 0);
		check_eq(node_send(&node, (uint64_t)i, i % 2 ? LENGTH : 0, wc.byte_len,
				   IBV_SEND_SIGNALED),
			 0);
		cq_expect(node.send_cq, (uint64_t)i, IBV_WC_SUCCESS);
	}
	msg_recv(fd, &byte, 1);
	node_close(&node);
}

/* --- this process -------------------------------------------------------------------------------- */

static void echo(void)
{
	struct mlx5_cqe64 cqe;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t len = 1 + i * 7 % LENGTH;

		hand_recv(&qp, AT, LENGTH);
		pattern_fill(hand.buf, len, i);
		hand_send(&qp, 0, len);
		hand_expect(&send_cq, &qp, MLX5_CQE_REQ, &cqe);
		hand_expect(&recv_cq, &qp, MLX5_CQE_RESP_SEND, &cqe);
		check_eq(be32toh(cqe.byte_cnt), len);
		check_eq(pattern_check(hand.buf + AT, len, i), len);
	}
}

static void one_sided(const struct hand_address *peer)
{
	struct mlx5_cqe64 cqe;
	struct wqe wqe;
	uint64_t sum;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		pattern_fill(hand.buf, LENGTH, i);
		hand_write(&qp, 0, LENGTH, peer, 16384);
		hand_expect(&send_cq, &qp, MLX5_CQE_REQ, &cqe);
		wqe_begin(&wqe, MLX5_OPCODE_RDMA_READ, MLX5_WQE_CTRL_CQ_UPDATE, 0);
		wqe_put_raddr(&wqe, peer->addr + 16384, peer->rkey);
		wqe_put_data(&wqe, hand.buf + AT, LENGTH, hand.mr->lkey);
		hand_post(&qp, &wqe);
		hand_ring(&qp);
		hand_expect(&send_cq, &qp, MLX5_CQE_REQ, &cqe);
		check_eq(pattern_check(hand.buf + AT, LENGTH, i), LENGTH);
	}
	memset(hand.buf, 0, 8);
	hand_write(&qp, 0, 8, peer, 24576);
	hand_expect(&send_cq, &qp, MLX5_CQE_REQ, &cqe);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		wqe_begin(&wqe, MLX5_OPCODE_ATOMIC_FA, MLX5_WQE_CTRL_CQ_UPDATE, 0);
		wqe_put_raddr(&wqe, peer->addr + 24576, peer->rkey);
		wqe_put_atomic(&wqe, 3, 0);
		wqe_put_data(&wqe, hand.buf, 8, hand.mr->lkey);
		hand_post(&qp, &wqe);
		hand_ring(&qp);
		hand_expect(&send_cq, &qp, MLX5_CQE_REQ, &cqe);
		memcpy(&sum, hand.buf, 8);
		check_eq(sum, 3 * i);
	}
}

static void with(const char *role)
{
	struct hand_address self, peer;
	char byte;
	pid_t pid;
	int fd;

	pid = spawn_self(role, &fd);
	open_qp();
	hand_address(&qp, &self);
	msg_recv(fd, &peer, sizeof(peer));
	msg_send(fd, &self, sizeof(self));
	hand_connect(&qp, &peer);
	msg_recv(fd, &byte, 1);
	echo();
	one_sided(&peer);
	msg_send(fd, "e", 1);
	spawn_wait(pid);
	close(fd);
	close_qp();
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "command")) {
		command_peer(ROLE_FD);
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "verbs")) {
		verbs_peer(ROLE_FD);
		return 0;
	}
	with("command");
	with("verbs");
	return 0;
}
