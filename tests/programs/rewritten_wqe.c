// SPDX-License-Identifier: MIT
/*
 * A send ring is memory of the program, or of device code: a WQE may be another one when its answer comes. The answer
 * of an atomic is not written to memory that only a SEND may name.
 */
#include "common.h"

#include <infiniband/mlx5dv.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { VALUE = 5, UNTOUCHED = 7 };

static void open_node(struct node *node)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.timeout = 0;
	node_open(node, &attr);
}

static int target(void)
{
	struct address peer;
	struct node node;
	char word;

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody lets it go on if the test fails */
	open_node(&node);
	*(uint64_t *)node.buf = VALUE;
	node_meet(&node, ROLE_FD, &peer);
	msg_recv(ROLE_FD, &word, 1);
	node_close(&node);
	return 0;
}

static int post_fetch_add(struct node *node, const struct address *peer)
{
	struct ibv_sge sge = { (uintptr_t)node->buf, 8, node->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = { .remote_addr = peer->addr, .rkey = peer->rkey, .compare_add = 1 },
	};
	struct ibv_send_wr *bad;

	return ibv_post_send(node->qp, &wr, &bad);
}

int main(int argc, char **argv)
{
	static uint64_t read_only = UNTOUCHED;
	struct mlx5dv_qp ring;
	struct mlx5dv_obj obj = { .qp.out = &ring };
	struct address peer;
	struct ibv_mr *mr;
	struct node node;
	char word = 0;
	pid_t pid;
	int fd;

	if (argc > 1 && !strcmp(argv[1], "target"))
		return target();
	pid = spawn_self("target", &fd);
	open_node(&node);
	node_meet(&node, fd, &peer);
	mr = ibv_reg_mr(node.pd, &read_only, sizeof(read_only), 0);
	check(mr);
	obj.qp.in = node.qp;
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), 0);
	kill(pid, SIGSTOP);
	check_eq(waitpid(pid, NULL, WUNTRACED), pid);
	check_eq(post_fetch_add(&node, &peer), 0);
	mlx5dv_set_ctrl_seg(ring.sq.buf, 0, MLX5_OPCODE_SEND, 0, node.qp->qp_num,
			    MLX5_WQE_CTRL_CQ_UPDATE, 2, 0, 0);
	mlx5dv_set_data_seg((struct mlx5_wqe_data_seg *)((char *)ring.sq.buf + 16), 8, mr->lkey,
			    (uintptr_t)&read_only);
	kill(pid, SIGCONT);
	cq_expect(node.send_cq, 1, IBV_WC_LOC_PROT_ERR);
	check_eq(*(volatile uint64_t *)&read_only, UNTOUCHED);
	msg_send(fd, &word, 1);
	spawn_wait(pid);
	check_eq(ibv_dereg_mr(mr), 0);
	node_close(&node);
	return 0;
}
