// SPDX-License-Identifier: MIT
/*
 * The smallest whole RDMA program: one process, two queue pairs connected to each other, and an
 *RDMA WRITE from one buffer into another.
 *
 *	gcc hello.c -o hello -libverbs
 *	verbatim run -- ./hello              the write succeeds
 *	verbatim run -- ./hello wrong-key    the same with a key that nobody has registered
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

static void *must(void *p, const char *what)
{
	if (!p) {
		perror(what);
		exit(1);
	}
	return p;
}

static void must_be_0(int err, const char *what)
{
	if (err) {
		fprintf(stderr, "%s: %s\n", what, strerror(err));
		exit(1);
	}
}

/*
 * Which of its addresses a port uses is an index into its GID table. 3 is RoCE v2 over IPv4, here as on most hardware;
 * ibv_devinfo -v shows the table.
 */
enum { GID_INDEX = 3 };

/* From RESET to RTS, talking to the queue pair that has this number on the same adapter. */
static void connect_qp(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	must_be_0(
		ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		"to INIT");
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = peer;
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 12;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.is_global = 1; /* RoCE: the peer is named by its GID */
	attr.ah_attr.grh.sgid_index = GID_INDEX;
	attr.ah_attr.grh.dgid = *gid;
	attr.ah_attr.grh.hop_limit = 1;
	must_be_0(ibv_modify_qp(qp, &attr,
				IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					IBV_QP_MIN_RNR_TIMER),
		  "to RTR");
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	must_be_0(ibv_modify_qp(qp, &attr,
				IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
		  "to RTS");
}

/* One work request, write the memory of one key into that of another, and its completion. */
static struct ibv_wc rdma_write(struct ibv_qp *qp, const struct ibv_mr *from, uintptr_t target,
				uint32_t rkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)from->addr,
			       .length = (uint32_t)from->length,
			       .lkey = from->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = 42,
					.sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_RDMA_WRITE,
					.send_flags = IBV_SEND_SIGNALED };
	struct ibv_wc wc;
	int n;

	wr.wr.rdma.remote_addr = target;
	wr.wr.rdma.rkey = rkey;
	must_be_0(ibv_post_send(qp, &wr, &bad), "post");
	do
		n = ibv_poll_cq(qp->send_cq, 1, &wc);
	while (n == 0);
	must_be_0(n < 0 ? -n : 0, "poll");
	return wc;
}

int main(int argc, char **argv)
{
	int wrong_key = argc > 1 && !strcmp(argv[1], "wrong-key");
	char source[32] = "hello, remote memory", target[32] = "";

	/* The adapter, a protection domain, and both buffers as memory that the card may touch. */
	struct ibv_device **list = must(ibv_get_device_list(NULL), "device list");
	struct ibv_context *ctx = must(list[0] ? ibv_open_device(list[0]) : NULL, "first device");
	struct ibv_pd *pd = must(ibv_alloc_pd(ctx), "protection domain");
	struct ibv_mr *from = must(ibv_reg_mr(pd, source, sizeof(source), 0), "source");
	struct ibv_mr *to = must(ibv_reg_mr(pd, target, sizeof(target),
					    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
				 "target");

	/* Two queue pairs, both reporting to one completion queue. */
	struct ibv_cq *cq = must(ibv_create_cq(ctx, 16, NULL, NULL, 0), "completion queue");
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 }
	};
	struct ibv_qp *a = must(ibv_create_qp(pd, &init), "first queue pair");
	struct ibv_qp *b = must(ibv_create_qp(pd, &init), "second queue pair");
	union ibv_gid gid;

	must_be_0(ibv_query_gid(ctx, 1, GID_INDEX, &gid), "GID");
	connect_qp(a, b->qp_num, &gid);
	connect_qp(b, a->qp_num, &gid);

	uint32_t rkey = wrong_key ? to->rkey ^ 0x5500 : to->rkey;
	struct ibv_wc wc = rdma_write(a, from, (uintptr_t)target, rkey);

	printf("%s: work request %d: %s\n", ibv_get_device_name(list[0]), (int)wc.wr_id,
	       ibv_wc_status_str(wc.status));
	printf("target holds \"%s\"\n", target);

	ibv_destroy_qp(a);
	ibv_destroy_qp(b);
	ibv_destroy_cq(cq);
	ibv_dereg_mr(from);
	ibv_dereg_mr(to);
	ibv_dealloc_pd(pd);
	ibv_close_device(ctx);
	ibv_free_device_list(list);
	return wc.status == IBV_WC_SUCCESS ? 0 : 1;
}
