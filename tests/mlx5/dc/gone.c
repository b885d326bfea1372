// SPDX-License-Identifier: MIT
/*
 * What initiators and targets of DC leave behind when they go in the middle of something: receives, numbers, acknowledgements. And
 * initiators with timeouts that only hardware could meet.
 */
#include "dc.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct dc dc;

/* --- receives ------------------------------------------------------------------------------------ */

enum { BROKEN = 4 };

/* A message whose second half is no memory any more: its first packets arrive. Told when to connect, and when to send. */
static void break_off(int fd)
{
	struct dc_wr connect = { .wr_id = 1, .opcode = IBV_WR_RDMA_WRITE };
	struct dc_wr wr = { .wr_id = 2, .opcode = IBV_WR_SEND, .len = DC_BLOCK };
	struct dci_attr attr = dci_attr();
	struct dc_target target;
	struct ibv_ah *ah;
	struct dci dci;
	char go = 0;

	dc_open(&dc);
	msg_recv(fd, &target, sizeof(target));
	ah = dc_ah(&dc, &target.gid);
	/* not unmapped: what is mapped later could lie there */
	check_eq(kind_protect(dc.buf + DC_BLOCK / 2, DC_BLOCK / 2, PROT_NONE), 0);
	dci_open(&dci, &dc, &attr);
	msg_send(fd, &go, 1);
	msg_recv(fd, &go, 1);
	check_eq(dci_post(&dci, ah, &target, &connect), 0);
	dc_expect_send(&dc, 1, IBV_WC_SUCCESS);
	msg_send(fd, &go, 1);
	msg_recv(fd, &go, 1);
	check_eq(dci_post(&dci, ah, &target, &wr), 0);
	dc_expect_send(&dc, 2, IBV_WC_LOC_PROT_ERR);
	msg_send(fd, &go, 1);
	pause();
}

/* All at once, so that each is connected when it happens. */
static void break_off_some(const struct dc_target *target)
{
	pid_t pid[BROKEN];
	int fd[BROKEN];
	char go = 0;

	for (int i = 0; i < BROKEN; i++) {
		pid[i] = spawn_self("breaks", &fd[i]);
		msg_send(fd[i], target, sizeof(*target));
	}
	for (int step = 0; step < 3; step++) {
		for (int i = 0; i < BROKEN; i++)
			msg_recv(fd[i], &go, 1);
		for (int i = 0; i < BROKEN; i++)
			msg_send(fd[i], &go, 1);
	}
	for (int i = 0; i < BROKEN; i++) {
		int status;

		kill(pid[i], SIGKILL);
		check_eq(waitpid(pid[i], &status, 0), pid[i]);
		close(fd[i]);
	}
}

/* Every receive that is posted takes a message, and comes back. */
static void receives_serve(const struct dc_target *target)
{
	struct ibv_ah *ah = dc_ah(&dc, &target->gid);
	struct dci_attr attr = dci_attr();
	bool seen[DC_RECEIVES] = { false };
	struct dci dci;
	struct ibv_wc wc;

	attr.rnr_retry = 6;
	dci_open(&dci, &dc, &attr);
	for (unsigned int i = 0; i < DC_RECEIVES; i++) {
		struct dc_wr wr = { .wr_id = i, .opcode = IBV_WR_SEND, .len = 8 };

		check_eq(dci_post(&dci, ah, target, &wr), 0);
		dc_expect_send(&dc, i, IBV_WC_SUCCESS);
		check(cq_wait(dc.recv_cq, &wc, PATIENCE_MS));
		check_status(&wc, IBV_WC_SUCCESS);
		check(wc.wr_id < DC_RECEIVES && !seen[wc.wr_id]);
		seen[wc.wr_id] = true;
	}
	for (unsigned int i = 0; i < DC_RECEIVES; i++)
		dc_receive(&dc, i);
	check_eq(ibv_destroy_qp(dci.qp), 0);
	check_eq(ibv_destroy_ah(ah), 0);
}

static void receives_come_back(void)
{
	struct ibv_qp *dct = dct_open(&dc, DC_KEY);
	struct dc_target target;

	dct_target(&dc, dct, DC_KEY, &target);
	break_off_some(&target);
	receives_serve(&target);
	/* With the target they do not go, either. */
	break_off_some(&target);
	check_eq(ibv_destroy_qp(dct), 0);
	dct = dct_open(&dc, DC_KEY);
	dct_target(&dc, dct, DC_KEY, &target);
	receives_serve(&target);
	check_eq(ibv_destroy_qp(dct), 0);
}

/* --- timeouts ------------------------------------------------------------------------------------ */

/*
 * Eight microseconds, once: who is there has still connected, and has still answered, although it has to get a core first. In
 * packets, too, where it may lose the core after it has taken the packet and before the acknowledgement.
 */
static void short_timeouts(struct dc_side *side)
{
	struct dci_attr attr = { .timeout = 1, .retry_cnt = 0, .rnr_retry = 7 };
	struct dc_wr wr = { .wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .len = 64 };
	struct ibv_ah *ah = dc_ah(&dc, &side->target[0].gid);
	struct dci dci;

	for (int i = 0; i < 500; i++) {
		dci_open(&dci, &dc, &attr);
		check_eq(dci_post(&dci, ah, &side->target[0], &wr), 0);
		dc_expect_send(&dc, 1, IBV_WC_SUCCESS);
		check_eq(ibv_destroy_qp(dci.qp), 0);
	}
	check_eq(ibv_destroy_ah(ah), 0);
}

/* --- acknowledgements ---------------------------------------------------------------------------- */

/* An RC queue pair that takes nothing, and is gone: another one has its number, and expects what comes after. */
static void forget(int fd)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address peer;
	struct node node;
	uint32_t before, qpn, old;
	char go;

	/* The context of a node knows no reserved number: the device's numbers are one row. */
	dc_open(&dc);
	check_eq(mlx5dv_reserved_qpn_alloc(dc.ctx, &before), 0);
	node_open(&node, &attr);
	old = node.qp->qp_num;
	check_eq(old, before + 1);
	node_meet(&node, fd, &peer);
	msg_recv(fd, &go, 1);
	check_eq(ibv_destroy_qp(node.qp), 0);
	check_eq(mlx5dv_reserved_qpn_dealloc(dc.ctx, before), 0);
	do {
		check_eq(mlx5dv_reserved_qpn_alloc(dc.ctx, &qpn), 0);
		check_eq(mlx5dv_reserved_qpn_dealloc(dc.ctx, qpn), 0);
	} while (qpn != before);
	node.qp = node_create_qp(&node);
	check(node.qp != NULL);
	check_eq(node.qp->qp_num, old);
	node_to_init(&node);
	peer.qpn = old; /* connected to itself */
	peer.psn++;
	node_to_rtr(&node, &peer);
	msg_send(fd, &go, 1);
	pause();
}

/* A message that nobody took is not delivered, whatever has that number when the process dies. */
static void not_delivered(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address peer;
	struct node node;
	struct ibv_wc wc;
	int fd, status;
	pid_t pid = spawn_self("forgets", &fd);
	char go = 0;

	attr.timeout = 0; /* it waits for ever */
	attr.rnr_retry = 7;
	node_open(&node, &attr);
	node_meet(&node, fd, &peer);
	check_eq(node_send(&node, 1, 0, 64, IBV_SEND_SIGNALED), 0);
	check(!cq_wait(node.send_cq, &wc, 20));
	msg_send(fd, &go, 1);
	msg_recv(fd, &go, 1);
	check(!cq_wait(node.send_cq, &wc, 20));
	kill(pid, SIGKILL);
	check_eq(waitpid(pid, &status, 0), pid);
	close(fd);
	cq_expect(node.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	node_close(&node);
}

int main(int argc, char **argv)
{
	struct dc_side side;

	if (argc > 1 && !strcmp(argv[1], "breaks")) {
		break_off(ROLE_FD);
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "forgets")) {
		forget(ROLE_FD);
		return 0;
	}
	if (argc > 1) {
		dc_side_serve(ROLE_FD);
		return 0;
	}
	dc_open(&dc);
	receives_come_back();
	for (int other = 0; other < 2; other++) {
		if (other)
			dc_side_spawn(&side, 1);
		else
			dc_side_open(&side, &dc, 1);
		short_timeouts(&side);
		dc_side_close(&side);
	}
	not_delivered();
	dc_close(&dc);
	return 0;
}
