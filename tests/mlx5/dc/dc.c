// SPDX-License-Identifier: MIT
/* The helpers of dc.h, as a program of DC writes them. */
#include "dc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

void dc_receive(struct dc *dc, unsigned int index)
{
	struct ibv_sge sge = { (uintptr_t)dc->buf + DC_SIZE / 2 + (size_t)index * DC_BLOCK,
			       DC_BLOCK, dc->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = index, .sg_list = &sge, .num_sge = 1 }, *bad;

	check_eq(ibv_post_srq_recv(dc->srq, &wr, &bad), 0);
}

void dc_open(struct dc *dc)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = DC_RECEIVES, .max_sge = 1 } };

	memset(dc, 0, sizeof(*dc));
	dc->ctx = device_open();
	if (!mlx5dv_is_supported(dc->ctx->device))
		test_skip("the device is no mlx5 adapter");
	dc->pd = ibv_alloc_pd(dc->ctx);
	dc->send_cq = ibv_create_cq(dc->ctx, 256, NULL, NULL, 0);
	dc->recv_cq = ibv_create_cq(dc->ctx, 256, NULL, NULL, 0);
	check(dc->pd && dc->send_cq && dc->recv_cq);
	dc->srq = ibv_create_srq(dc->pd, &srq);
	check(dc->srq != NULL);
	dc->buf = kind_map(DC_SIZE, PROT_READ | PROT_WRITE);
	check(dc->buf != NULL);
	dc->mr = ibv_reg_mr(dc->pd, dc->buf, DC_SIZE, ACCESS_ALL);
	check(dc->mr != NULL);
	dc->gid_index = TEST_GID_INDEX;
	check_eq(ibv_query_gid(dc->ctx, 1, dc->gid_index, &dc->gid), 0);
	for (unsigned int i = 0; i < DC_RECEIVES; i++)
		dc_receive(dc, i);
}

void dc_close(struct dc *dc)
{
	check_eq(ibv_destroy_srq(dc->srq), 0);
	check_eq(ibv_destroy_cq(dc->send_cq), 0);
	check_eq(ibv_destroy_cq(dc->recv_cq), 0);
	check_eq(ibv_dereg_mr(dc->mr), 0);
	check_eq(ibv_dealloc_pd(dc->pd), 0);
	check_eq(ibv_close_device(dc->ctx), 0);
	kind_unmap(dc->buf, DC_SIZE);
}

/* --- targets ------------------------------------------------------------------------------------- */

struct ibv_qp *dct_create(struct dc *dc, uint64_t key)
{
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_DRIVER,
					    .send_cq = dc->recv_cq,
					    .recv_cq = dc->recv_cq,
					    .srq = dc->srq,
					    .comp_mask = IBV_QP_INIT_ATTR_PD,
					    .pd = dc->pd };
	struct mlx5dv_qp_init_attr direct = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCT, .dct_access_key = key },
	};

	return mlx5dv_create_qp(dc->ctx, &attr, &direct);
}

int dct_to_init(struct ibv_qp *qp, int access)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = access };

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int dct_to_rtr(struct ibv_qp *qp, uint8_t gid_index)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_1024,
				    .min_rnr_timer = 1,
				    .ah_attr = {
					    .is_global = 1,
					    .port_num = 1,
					    .grh = { .sgid_index = gid_index, .hop_limit = 64 } } };

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV | IBV_QP_MIN_RNR_TIMER);
}

struct ibv_qp *dct_open(struct dc *dc, uint64_t key)
{
	struct ibv_qp *qp = dct_create(dc, key);

	check(qp != NULL);
	check_eq(dct_to_init(qp, ACCESS_REMOTE), 0);
	check_eq(dct_to_rtr(qp, dc->gid_index), 0);
	check(qp->qp_num != 0);
	return qp;
}

void dct_target(const struct dc *dc, const struct ibv_qp *qp, uint64_t key,
		struct dc_target *target)
{
	memset(target, 0, sizeof(*target));
	target->key = key;
	target->addr = (uintptr_t)dc->buf;
	target->dctn = qp->qp_num;
	target->rkey = dc->mr->rkey;
	target->gid = dc->gid;
}

/* --- initiators ---------------------------------------------------------------------------------- */

struct dci_attr dci_attr(void)
{
	return (struct dci_attr){ .timeout = 14, .retry_cnt = 3, .rnr_retry = 7 };
}

void dci_create(struct dci *dci, struct dc *dc, const struct dci_attr *streams)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_DRIVER,
		.send_cq = dc->send_cq,
		.recv_cq = dc->recv_cq,
		.cap = { .max_send_wr = 64, .max_send_sge = 2, .max_inline_data = 64 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = dc->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};
	struct mlx5dv_qp_init_attr direct = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCI },
	};

	if (streams->log_streams) {
		direct.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
		direct.dc_init_attr.dci_streams.log_num_concurent = streams->log_streams;
		direct.dc_init_attr.dci_streams.log_num_errored = streams->log_errored;
	}
	dci->dc = dc;
	dci->qp = mlx5dv_create_qp(dc->ctx, &attr, &direct);
	check(dci->qp != NULL);
	dci->ex = ibv_qp_to_qp_ex(dci->qp);
	check(dci->ex != NULL);
	dci->dv = mlx5dv_qp_ex_from_ibv_qp_ex(dci->ex);
	check(dci->dv != NULL);
}

int dci_to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT);
}

int dci_to_rtr(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024 };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU);
}

int dci_to_rts(struct ibv_qp *qp, const struct dci_attr *dci)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
				    .timeout = dci->timeout,
				    .retry_cnt = dci->retry_cnt,
				    .rnr_retry = dci->rnr_retry,
				    .max_rd_atomic = 4,
				    .sq_psn = TEST_PSN };

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN);
}

void dci_open(struct dci *dci, struct dc *dc, const struct dci_attr *attr)
{
	dci_create(dci, dc, attr);
	check_eq(dci_to_init(dci->qp), 0);
	check_eq(dci_to_rtr(dci->qp), 0);
	check_eq(dci_to_rts(dci->qp, attr), 0);
}

struct ibv_ah *dc_ah(struct dc *dc, const union ibv_gid *gid)
{
	struct ibv_ah_attr attr;
	struct ibv_ah *ah;

	ah_attr_to(&attr, gid);
	attr.grh.sgid_index = dc->gid_index;
	ah = ibv_create_ah(dc->pd, &attr);
	check(ah != NULL);
	return ah;
}

int dci_post(struct dci *dci, struct ibv_ah *ah, const struct dc_target *to, const struct dc_wr *wr)
{
	struct ibv_qp_ex *ex = dci->ex;
	uint64_t remote = to->addr + wr->remote;

	ibv_wr_start(ex);
	ex->wr_id = wr->wr_id;
	ex->wr_flags = IBV_SEND_SIGNALED;
	switch (wr->opcode) {
	case IBV_WR_SEND:
		ibv_wr_send(ex);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(ex, wr->imm);
		break;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(ex, to->rkey, remote);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(ex, to->rkey, remote, wr->imm);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(ex, to->rkey, remote);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(ex, to->rkey, remote, wr->compare, wr->swap_add);
		break;
	default:
		ibv_wr_atomic_fetch_add(ex, to->rkey, remote, wr->swap_add);
	}
	if (wr->stream)
		mlx5dv_wr_set_dc_addr_stream(dci->dv, ah, to->dctn, to->key, wr->stream);
	else
		mlx5dv_wr_set_dc_addr(dci->dv, ah, to->dctn, to->key);
	ibv_wr_set_sge(ex, dci->dc->mr->lkey, (uintptr_t)dci->dc->buf + wr->offset, wr->len);
	return ibv_wr_complete(ex);
}

void dc_expect_send(struct dc *dc, uint64_t wr_id, enum ibv_wc_status status)
{
	cq_expect(dc->send_cq, wr_id, status);
}

/* --- the target's side --------------------------------------------------------------------------- */

static void expect_receive(struct dc *dc, uint32_t dctn, const struct dc_command *c)
{
	const uint8_t *at;
	struct ibv_wc wc;

	check(cq_wait(dc->recv_cq, &wc, PATIENCE_MS), "no receive came");
	check_status(&wc, IBV_WC_SUCCESS);
	check_eq(wc.qp_num, dctn);
	check_eq(wc.src_qp, c->src_qpn);
	check_eq(wc.byte_len, c->len);
	check_eq(wc.opcode, c->written ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
	check_eq(wc.wc_flags & IBV_WC_WITH_IMM, c->imm ? IBV_WC_WITH_IMM : 0);
	if (c->imm)
		check_eq(wc.imm_data, c->imm);
	at = c->written ? dc->buf + c->offset : dc->buf + DC_SIZE / 2 + wc.wr_id * DC_BLOCK;
	check_eq(pattern_check(at, c->len, c->seed), c->len);
	dc_receive(dc, (unsigned int)wc.wr_id);
}

static void obey(struct dc_side *side, const struct dc_command *c)
{
	struct dc *dc = side->dc;

	switch (c->order) {
	case DC_EXPECT:
		expect_receive(dc, side->target[c->which].dctn, c);
		break;
	case DC_CHECK:
		check_eq(pattern_check(dc->buf + c->offset, c->len, c->seed), c->len);
		break;
	case DC_FILL:
		pattern_fill(dc->buf + c->offset, c->len, c->seed);
		break;
	case DC_DESTROY:
		check_eq(ibv_destroy_qp(side->dct[c->which]), 0);
		side->dct[c->which] = NULL;
		break;
	case DC_CREATE:
		side->dct[c->which] = dct_open(dc, c->key);
		dct_target(dc, side->dct[c->which], c->key, &side->target[c->which]);
		break;
	case DC_END:
		break;
	}
}

void dc_side_open(struct dc_side *side, struct dc *dc, unsigned int count)
{
	memset(side, 0, sizeof(*side));
	side->dc = dc;
	side->count = count;
	for (unsigned int i = 0; i < count; i++)
		obey(side,
		     &(struct dc_command){ .order = DC_CREATE, .which = i, .key = DC_KEY + i });
}

void dc_side_spawn(struct dc_side *side, unsigned int count)
{
	memset(side, 0, sizeof(*side));
	side->count = count;
	side->pid = spawn_self("target", &side->fd);
	msg_send(side->fd, &count, sizeof(count));
	msg_recv(side->fd, side->target, sizeof(side->target));
}

void dc_side_tell(struct dc_side *side, const struct dc_command *command)
{
	if (side->dc) {
		obey(side, command);
		return;
	}
	msg_send(side->fd, command, sizeof(*command));
	msg_recv(side->fd, side->target, sizeof(side->target));
}

void dc_side_close(struct dc_side *side)
{
	struct dc_command end = { .order = DC_END };

	if (side->dc) {
		for (unsigned int i = 0; i < side->count; i++)
			if (side->dct[i])
				check_eq(ibv_destroy_qp(side->dct[i]), 0);
		return;
	}
	msg_send(side->fd, &end, sizeof(end));
	close(side->fd);
	spawn_wait(side->pid);
}

void dc_side_serve(int fd)
{
	struct dc_command command;
	struct dc_side side;
	unsigned int count;
	struct dc dc;

	dc_open(&dc);
	msg_recv(fd, &count, sizeof(count));
	dc_side_open(&side, &dc, count);
	msg_send(fd, side.target, sizeof(side.target));
	while (msg_try_recv(fd, &command, sizeof(command)) && command.order != DC_END) {
		obey(&side, &command);
		msg_send(fd, side.target, sizeof(side.target));
	}
	dc_side_close(&side);
	dc_close(&dc);
}
