// SPDX-License-Identifier: MIT
/*
 * What direct verbs say of contexts, ports and queue pairs: clocks that agree with completions, allocators, reserved
 * numbers, packet pacing entries, the UDP source port as a sniffer sees it, and creation flags of queue pairs.
 */
#include "direct.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct node node;
static struct address self;

static uint64_t wall_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* A completion's time lies between that before the post and that after the poll, on the wall clock. */
static void clocks(void)
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = 8, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
	};
	struct mlx5dv_context caps = { .comp_mask = MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE };
	struct ibv_poll_cq_attr poll = { 0 };
	struct mlx5dv_clock_info info;
	struct node on = node;
	struct ibv_cq_ex *cq;
	struct address to;

	check_eq(mlx5dv_query_device(node.ctx, &caps), 0);
	check(caps.comp_mask && caps.max_clock_info_update_nsec > 1000000);
	check_eq(mlx5dv_get_clock_info(NULL, &info), EINVAL);
	check_eq(mlx5dv_get_clock_info(node.ctx, NULL), EINVAL);
	cq = ibv_create_cq_ex(node.ctx, &init);
	check(cq);
	on.send_cq = ibv_cq_ex_to_cq(cq);
	on.qp = node_create_qp(&on);
	check(on.qp);
	node_address(&on, &to);
	node_connect(&on, &to);
	for (int i = 0; i < 20; i++) {
		uint64_t before = wall_ns(), at;

		/* Taken before in one half of the rounds, and after in the other. */
		if (i & 1)
			check_eq(mlx5dv_get_clock_info(node.ctx, &info), 0);
		check_eq(node_rdma(&on, 0, IBV_WR_RDMA_WRITE, 0, 8, &to, 64), 0);
		while (ibv_start_poll(cq, &poll))
			;
		at = ibv_wc_read_completion_ts(cq);
		ibv_end_poll(cq);
		if (!(i & 1))
			check_eq(mlx5dv_get_clock_info(node.ctx, &info), 0);
		at = mlx5dv_ts_to_ns(&info, at);
		/* The two clocks are read one after the other, and the wall clock may be slewed. */
		check(at + 1000000000 > before && at < wall_ns() + 1000000000);
	}
	check_eq(ibv_destroy_qp(on.qp), 0);
	check_eq(ibv_destroy_cq(on.send_cq), 0);
}

static void port(void)
{
	struct mlx5dv_port info;

	memset(&info, 0xff, sizeof(info));
	check_eq(mlx5dv_query_port(node.ctx, 1, &info), 0);
	check(info.flags & MLX5DV_QUERY_PORT_VPORT);
	check_eq(info.vport, 0xffff);
	check_eq(info.reg_c0.mask, 0);
	check_eq(mlx5dv_query_port(node.ctx, 2, &info), EINVAL);
	check_eq(mlx5dv_query_port(node.ctx, 257, &info), EINVAL);
	check_eq(mlx5dv_query_port(node.ctx, 1, NULL), EINVAL);
}

static int allocated, freed;

static void *own_alloc(size_t size, void *data)
{
	void *ptr = NULL;

	check(data == &allocated);
	allocated++;
	return posix_memalign(&ptr, 4096, size) ? NULL : ptr;
}

static void own_free(void *ptr, void *data)
{
	freed++;
	free(ptr);
}

static void allocators(void)
{
	struct mlx5dv_ctx_allocators own = { own_alloc, own_free, &allocated }, none = { 0 };
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node n;

	own.free = NULL;
	check_eq(mlx5dv_set_context_attr(node.ctx, MLX5DV_CTX_ATTR_BUF_ALLOCATORS, &own), EINVAL);
	own.free = own_free;
	check_eq(mlx5dv_set_context_attr(node.ctx, 99, &own), EOPNOTSUPP);
	check_eq(mlx5dv_set_context_attr(node.ctx, MLX5DV_CTX_ATTR_BUF_ALLOCATORS, &own), 0);
	n = node;
	n.attr = attr;
	n.qp = node_create_qp(&n);
	check(n.qp && allocated == 2);
	check_eq(mlx5dv_set_context_attr(node.ctx, MLX5DV_CTX_ATTR_BUF_ALLOCATORS, &none), 0);
	check_eq(ibv_destroy_qp(n.qp), 0);
	check_eq(freed, 2);
}

static void numbers(void)
{
	struct ibv_ah_attr attr = { 0 };
	uint32_t qpn[3];
	struct ibv_ah *ah;

	for (int i = 0; i < 3; i++)
		check_eq(mlx5dv_reserved_qpn_alloc(node.ctx, &qpn[i]), 0);
	check(qpn[0] && qpn[0] != qpn[1] && qpn[1] != qpn[2] && qpn[0] != qpn[2]);
	for (int i = 0; i < 300; i++) {
		struct ibv_qp *qp = node_create_qp(&node);

		check(qp && qp->qp_num != qpn[0] && qp->qp_num != qpn[1] && qp->qp_num != qpn[2]);
		check_eq(ibv_destroy_qp(qp), 0);
	}
	check_eq(mlx5dv_reserved_qpn_dealloc(node.ctx, qpn[1]), 0);
	check_eq(mlx5dv_reserved_qpn_dealloc(node.ctx, qpn[1]), EINVAL);
	check_eq(mlx5dv_reserved_qpn_dealloc(node.ctx, node.qp->qp_num), EINVAL);
	check_eq(mlx5dv_reserved_qpn_alloc(node.ctx, NULL), EINVAL);

	ah_attr_to(&attr, &node.gid);
	ah = ibv_create_ah(node.pd, &attr);
	check(ah);
	check_eq(mlx5dv_map_ah_to_qp(ah, node.qp->qp_num), 0);
	check_eq(mlx5dv_map_ah_to_qp(ah, qpn[0]), EINVAL);
	check_eq(mlx5dv_map_ah_to_qp(NULL, node.qp->qp_num), EINVAL);
	check_eq(ibv_destroy_ah(ah), 0);
}

static void pacing(void)
{
	__be32 slow[2] = { htobe32(100), 0 }, fast = htobe32(200), none = 0;
	struct mlx5dv_pp *a = mlx5dv_pp_alloc(node.ctx, 4, slow, 0);
	struct mlx5dv_pp *b = mlx5dv_pp_alloc(node.ctx, sizeof(slow), slow, 0);
	struct mlx5dv_pp *c = mlx5dv_pp_alloc(node.ctx, 4, &fast, 0);
	struct mlx5dv_pp *d =
		mlx5dv_pp_alloc(node.ctx, 4, slow, MLX5DV_PP_ALLOC_FLAGS_DEDICATED_INDEX);

	check(a && b && c && d && a->index);
	check_eq(a->index, b->index);
	check(a->index != c->index && a->index != d->index && c->index != d->index);
	mlx5dv_pp_free(a);
	mlx5dv_pp_free(d);
	a = mlx5dv_pp_alloc(node.ctx, 4, slow, 0);
	check(a && a->index == b->index);
	check(!mlx5dv_pp_alloc(node.ctx, 4, &none, 0) && errno == EINVAL);
	check(!mlx5dv_pp_alloc(node.ctx, 3, slow, 0) && errno == EINVAL);
	check(!mlx5dv_pp_alloc(node.ctx, 4, slow, 2) && errno == EINVAL);
	check(!mlx5dv_pp_alloc(node.ctx, 4, NULL, 0) && errno == EINVAL);
	for (int i = 0; i < 1000; i++) {
		d = mlx5dv_pp_alloc(node.ctx, 4, slow, MLX5DV_PP_ALLOC_FLAGS_DEDICATED_INDEX);
		check(d);
		mlx5dv_pp_free(d);
	}
	mlx5dv_pp_free(a);
	mlx5dv_pp_free(b);
	mlx5dv_pp_free(c);
	mlx5dv_pp_free(NULL);
}

/* --- frames -------------------------------------------------------------------------------------- */

/* The UDP source port of the next frame that a sniffer gets. */
static uint16_t sniffed(struct node *sniffer)
{
	struct ibv_wc wc;

	check(cq_wait(sniffer->recv_cq, &wc, PATIENCE_MS));
	check_eq(wc.status, IBV_WC_SUCCESS);
	check(wc.byte_len > 14 + 20 + 8 && sniffer->buf[12] == 8 && sniffer->buf[13] == 0);
	return (uint16_t)(sniffer->buf[34] << 8 | sniffer->buf[35]);
}

static void source_port(void)
{
	struct ibv_flow_attr sniff = { .type = IBV_FLOW_ATTR_SNIFFER,
				       .size = sizeof(sniff),
				       .port = 1 };
	struct node_attr attr = node_attr(IBV_QPT_RAW_PACKET);
	struct ibv_flow *flow;
	struct node raw;
	uint16_t first;

	check_eq(mlx5dv_modify_qp_udp_sport(NULL, 55555), EINVAL);
	node_open(&raw, &attr);
	check_eq(mlx5dv_modify_qp_udp_sport(raw.qp, 55555), EOPNOTSUPP);
	raw_to_rts(raw.qp);
	flow = ibv_create_flow(raw.qp, &sniff);
	check(flow);
	for (int i = 0; i < 3; i++) {
		/* A request and its acknowledgement. */
		for (int k = 0; k < 2; k++)
			check_eq(node_recv(&raw, 0, 0, 9216), 0);
		if (i == 1)
			check_eq(mlx5dv_modify_qp_udp_sport(node.qp, 55555), 0);
		if (i == 2) { /* connected anew */
			check_eq(qp_set_state(node.qp, IBV_QPS_RESET), 0);
			node_address(&node, &self);
			node_connect(&node, &self);
		}
		check_eq(node_rdma(&node, 0, IBV_WR_RDMA_WRITE, 0, 8, &self, 64), 0);
		cq_expect(node.send_cq, 0, IBV_WC_SUCCESS);
		if (!i)
			first = sniffed(&raw);
		else
			check_eq(sniffed(&raw), i == 1 ? 55555 : first);
		check_eq(sniffed(&raw), i == 1 ? 55555 : first);
	}
	check_eq(qp_set_state(node.qp, IBV_QPS_ERR), 0);
	check_eq(mlx5dv_modify_qp_udp_sport(node.qp, 55555), EINVAL);
	check_eq(ibv_destroy_flow(flow), 0);
	node_close(&raw);
}

/* --- creation flags ------------------------------------------------------------------------------ */

static struct ibv_qp *create(enum ibv_qp_type type, uint64_t mask, uint32_t flags)
{
	struct ibv_qp_init_attr_ex attr = { .send_cq = node.send_cq,
					    .recv_cq = node.recv_cq,
					    .cap = node.attr.cap,
					    .qp_type = type,
					    .comp_mask = IBV_QP_INIT_ATTR_PD,
					    .pd = node.pd };
	struct mlx5dv_qp_init_attr direct = { .comp_mask = mask, .create_flags = flags };

	errno = 0;
	return mlx5dv_create_qp(node.ctx, &attr, &direct);
}

static void refuse(enum ibv_qp_type type, uint64_t mask, uint32_t flags, int err)
{
	check(!create(type, mask, flags));
	check_eq(errno, err);
}

static void flags(void)
{
	const uint64_t mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
	const uint32_t raw = MLX5DV_QP_CREATE_TUNNEL_OFFLOADS |
			     MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC |
			     MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC;
	struct ibv_wq_init_attr wq = {
		.wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1, .pd = node.pd, .cq = node.recv_cq
	};
	struct mlx5dv_wq_init_attr striding = { .comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ },
				   plain = { 0 };
	struct mlx5dv_context caps = { .comp_mask = ~0ull };
	struct ibv_qp *qp;
	struct ibv_wq *made;

	for (uint32_t flag = 1; flag <= MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE; flag <<= 1) {
		enum ibv_qp_type type = flag & raw ? IBV_QPT_RAW_PACKET : IBV_QPT_RC;

		qp = create(type, mask, flag);
		check(qp);
		check_eq(ibv_destroy_qp(qp), 0);
		if (flag & raw)
			refuse(IBV_QPT_RC, mask, flag, EOPNOTSUPP);
	}
	refuse(IBV_QPT_RC, mask,
	       MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE | MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE,
	       EINVAL);
	refuse(IBV_QPT_RC, mask, MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE, EOPNOTSUPP);
	refuse(IBV_QPT_RC, mask, MLX5DV_QP_CREATE_SIG_PIPELINING, EOPNOTSUPP);
	refuse(IBV_QPT_RC, mask, 1 << 20, EINVAL);
	refuse(IBV_QPT_RC, 1 << 20, 0, EINVAL);
	check(!mlx5dv_create_wq(node.ctx, &wq, &striding) && errno == EINVAL); /* no sizes */
	made = mlx5dv_create_wq(node.ctx, &wq, &plain);
	check(made);
	check_eq(ibv_destroy_wq(made), 0);
	check_eq(mlx5dv_query_device(node.ctx, &caps), 0);
	check_eq(caps.striding_rq_caps.supported_qpts, 1u << IBV_QPT_RAW_PACKET);
	check(!(caps.flags & MLX5DV_CONTEXT_FLAGS_PACKET_BASED_CREDIT_MODE));
	check_eq(caps.sig_caps.block_prot, 0);
	check_eq(caps.crypto_caps.flags, 0);
	check(caps.max_wr_memcpy_length > 0);
}

/* A RAW_PACKET queue pair hears itself where that is allowed. */
static void self_loopback(void)
{
	for (int allowed = 0; allowed < 2; allowed++) {
		struct node_attr attr = node_attr(IBV_QPT_RAW_PACKET);
		struct ibv_flow *flow;
		struct node raw;
		struct ibv_wc wc;

		node_open(&raw, &attr);
		check_eq(ibv_destroy_qp(raw.qp), 0);
		struct node saved = node;

		node = raw;
		raw.qp = create(IBV_QPT_RAW_PACKET, MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
				allowed ? MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC : 0);
		node = saved;
		check(raw.qp);
		raw_to_rts(raw.qp);
		flow = flow_all(raw.qp);
		check(flow);
		memset(raw.buf, 2, 6);
		memset(raw.buf + 6, 4, 6);
		memset(raw.buf + 12, 0x99, 100);
		check_eq(node_recv(&raw, 1, 4096, 2048), 0);
		check_eq(node_send(&raw, 2, 0, 100, IBV_SEND_SIGNALED), 0);
		cq_expect(raw.send_cq, 2, IBV_WC_SUCCESS);
		if (allowed)
			cq_expect(raw.recv_cq, 1, IBV_WC_SUCCESS);
		else
			check(!cq_wait(raw.recv_cq, &wc, 20));
		check_eq(ibv_destroy_flow(flow), 0);
		node_close(&raw);
	}
}

int main(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	node_open(&node, &attr);
	node_address(&node, &self);
	node_connect(&node, &self);
	clocks();
	port();
	allocators();
	numbers();
	pacing();
	flags();
	self_loopback();
	source_port();
	node_close(&node);
	return 0;
}
