// SPDX-License-Identifier: MIT
/* The plug-in of late.c: queues driven by hand. */
#include "raw.h"

__attribute__((visibility("default"))) void late_run(void);

void late_run(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	static struct raw raw;
	struct address self;
	struct mlx4_cqe cqe;
	struct node node;

	node_open(&node, &attr);
	node_address(&node, &self);
	node_connect(&node, &self);
	raw_open(&raw, &node);
	for (int i = 0; i < 100; i++) {
		raw_recv(&raw, 0, 64);
		raw_send(&raw, 4096, 64, MLX4_WQE_CTRL_CQ_UPDATE);
		raw_ring(&raw);
		raw_expect(&raw.send, node.qp->qp_num, true, &cqe);
		raw_free(&raw, &cqe);
		raw_expect(&raw.recv, node.qp->qp_num, false, &cqe);
	}
	node_close(&node);
}
