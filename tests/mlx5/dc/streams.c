// SPDX-License-Identifier: MIT
/*
 * Streams of a DCI: an error stays in the stream that it is of, and what the others have posted around it arrives, in order.
 * A stream that is in error goes on after it was reset. As many as the DCI was made for are its own error.
 */
#include "dc.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { STREAMS = 6, LOG_STREAMS = 3, LOG_ERRORED = 2, COUNT = 30 };

static struct dc dc;

/* How a request can be wrong: each is found out at another place. */
enum fault { BAD_KEY, BAD_RKEY, BAD_LKEY, NOBODY, FAULTS };

static const enum ibv_wc_status statuses[FAULTS] = {
	[BAD_KEY] = IBV_WC_REM_ACCESS_ERR,
	[BAD_RKEY] = IBV_WC_REM_ACCESS_ERR,
	[BAD_LKEY] = IBV_WC_LOC_PROT_ERR,
	[NOBODY] = IBV_WC_RETRY_EXC_ERR,
};

static void post(struct dci *dci, struct ibv_ah *ah, struct dc_target to, uint64_t wr_id,
		 uint16_t stream, enum fault fault)
{
	struct dc_wr wr = { .wr_id = wr_id,
			    .opcode = IBV_WR_SEND,
			    .offset = wr_id * 64,
			    .len = 64,
			    .stream = stream };

	if (fault == BAD_RKEY) {
		wr.opcode = IBV_WR_RDMA_WRITE;
		to.rkey ^= 0x3300;
	}
	to.key += fault == BAD_KEY;
	to.dctn ^= fault == NOBODY ? 0x7000 : 0;
	wr.offset += fault == BAD_LKEY ? DC_SIZE : 0;
	pattern_fill(dc.buf + wr_id * 64, 64, (uint32_t)wr_id);
	check_eq(dci_post(dci, ah, &to, &wr), 0);
}

static void arrives(struct dci *dci, struct dc_side *side, uint64_t wr_id)
{
	dc_side_tell(side, &(struct dc_command){ .order = DC_EXPECT,
						 .which = wr_id % side->count,
						 .len = 64,
						 .seed = (uint32_t)wr_id,
						 .src_qpn = dci->qp->qp_num });
}

/* Streams take turns; one of them fails with its second request. */
static void one_fails(struct dci *dci, struct ibv_ah *ah, struct dc_side *side, enum fault fault)
{
	uint16_t bad = 1 + fault;

	for (uint64_t i = 0; i < COUNT; i++) {
		uint16_t stream = 1 + i % STREAMS;

		post(dci, ah, side->target[i % side->count], i, stream,
		     i == STREAMS + bad - 1u ? fault : FAULTS);
	}
	for (uint64_t i = 0; i < COUNT; i++) {
		uint16_t stream = 1 + i % STREAMS;

		if (stream == bad && i >= STREAMS) {
			dc_expect_send(&dc, i,
				       i < 2 * STREAMS ? statuses[fault] : IBV_WC_WR_FLUSH_ERR);
			continue;
		}
		arrives(dci, side, i);
		dc_expect_send(&dc, i, IBV_WC_SUCCESS);
	}
	check_eq(qp_get_state(dci->qp), IBV_QPS_RTS);
	for (uint16_t stream = 0; stream <= STREAMS + 1; stream++)
		if (stream != bad)
			check_eq(mlx5dv_dci_stream_id_reset(dci->qp, stream), EINVAL);
	check_eq(mlx5dv_dci_stream_id_reset(dci->qp, bad), 0);
	check_eq(mlx5dv_dci_stream_id_reset(dci->qp, bad), EINVAL);
	post(dci, ah, side->target[0], 0, bad, FAULTS);
	arrives(dci, side, 0);
	dc_expect_send(&dc, 0, IBV_WC_SUCCESS);
}

static void all_fail(struct dci *dci, struct ibv_ah *ah, struct dc_side *side,
		     const struct dci_attr *attr)
{
	for (uint16_t stream = 1; stream <= 1 << LOG_ERRORED; stream++) {
		check_eq(qp_get_state(dci->qp), IBV_QPS_RTS);
		post(dci, ah, side->target[0], stream, stream, BAD_LKEY);
		dc_expect_send(&dc, stream, IBV_WC_LOC_PROT_ERR);
	}
	check_eq(qp_get_state(dci->qp), IBV_QPS_ERR);
	check_eq(mlx5dv_dci_stream_id_reset(dci->qp, 1), EINVAL);
	post(dci, ah, side->target[0], 0, STREAMS, FAULTS);
	dc_expect_send(&dc, 0, IBV_WC_WR_FLUSH_ERR);
	check_eq(qp_set_state(dci->qp, IBV_QPS_RESET), 0);
	check_eq(dci_to_init(dci->qp), 0);
	check_eq(dci_to_rtr(dci->qp), 0);
	check_eq(dci_to_rts(dci->qp, attr), 0);
	for (uint16_t stream = 1; stream <= STREAMS; stream++) {
		post(dci, ah, side->target[stream % side->count], stream, stream, FAULTS);
		arrives(dci, side, stream);
		dc_expect_send(&dc, stream, IBV_WC_SUCCESS);
	}
}

/*
 * The answer to a READ finds no memory, when the target has done what is behind it: that is not done again, whether it
 * ends with success or not.
 */
static void done_once(struct dc_side *side, const struct dci_attr *attr)
{
	enum { GONE = 64 << 10, WORD = 8192, PAGE = 4096 };
	struct dc_wr read = {
		.wr_id = 1, .opcode = IBV_WR_RDMA_READ, .len = 64, .offset = GONE, .stream = 1
	};
	struct dc_wr add = { .wr_id = 2,
			     .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			     .len = 8,
			     .remote = WORD,
			     .swap_add = 1,
			     .stream = 2 };
	struct dc_wr look = {
		.wr_id = 3, .opcode = IBV_WR_RDMA_READ, .len = 8, .remote = WORD, .stream = 3
	};
	struct ibv_ah *ah = dc_ah(&dc, &side->target[0].gid);
	uint64_t before, after;
	struct ibv_wc wc;
	struct dci dci;

	dci_open(&dci, &dc, attr);
	check_eq(dci_post(&dci, ah, &side->target[0], &look), 0);
	dc_expect_send(&dc, 3, IBV_WC_SUCCESS);
	memcpy(&before, dc.buf, sizeof(before));
	check_eq(mprotect(dc.buf + GONE, PAGE, PROT_NONE), 0);
	check_eq(dci_post(&dci, ah, &side->target[1], &read),
		 0); /* the next waits for the connection, too */
	check_eq(dci_post(&dci, ah, &side->target[1], &add), 0);
	dc_expect_send(&dc, 1, IBV_WC_LOC_PROT_ERR);
	check(cq_wait(dc.send_cq, &wc, PATIENCE_MS));
	check_eq(wc.wr_id, 2);
	check_eq(mprotect(dc.buf + GONE, PAGE, PROT_READ | PROT_WRITE), 0);
	check_eq(dci_post(&dci, ah, &side->target[0], &look), 0);
	dc_expect_send(&dc, 3, IBV_WC_SUCCESS);
	memcpy(&after, dc.buf, sizeof(after));
	if (wc.status == IBV_WC_SUCCESS)
		check_eq(after - before, 1);
	else
		check(after - before <= 1);
	check_eq(ibv_destroy_qp(dci.qp), 0);
	check_eq(ibv_destroy_ah(ah), 0);
}

/* Without streams, or of a queue pair that has none. */
static void refusals(void)
{
	struct mlx5dv_context caps = { .comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS };
	struct mlx5dv_qp_init_attr direct = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS,
		.dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCI },
	};
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_DRIVER,
					    .send_cq = dc.send_cq,
					    .recv_cq = dc.recv_cq,
					    .cap = { .max_send_wr = 4, .max_send_sge = 1 },
					    .comp_mask = IBV_QP_INIT_ATTR_PD,
					    .pd = dc.pd };
	struct mlx5dv_dci_streams *streams = &direct.dc_init_attr.dci_streams;
	struct ibv_qp *dct = dct_open(&dc, DC_KEY);

	check_eq(mlx5dv_query_device(dc.ctx, &caps), 0);
	check_eq(caps.comp_mask, MLX5DV_CONTEXT_MASK_DCI_STREAMS);
	check(caps.dci_streams_caps.max_log_num_concurent >= LOG_STREAMS);
	check(caps.dci_streams_caps.max_log_num_errored >= LOG_ERRORED);
	streams->log_num_concurent = caps.dci_streams_caps.max_log_num_concurent + 1;
	check(!mlx5dv_create_qp(dc.ctx, &attr, &direct) && errno == EINVAL);
	streams->log_num_concurent = caps.dci_streams_caps.max_log_num_concurent;
	streams->log_num_errored = caps.dci_streams_caps.max_log_num_errored + 1;
	check(!mlx5dv_create_qp(dc.ctx, &attr, &direct) && errno == EINVAL);
	check_eq(mlx5dv_dci_stream_id_reset(dct, 0), EINVAL);
	check_eq(ibv_destroy_qp(dct), 0);
}

int main(int argc, char **argv)
{
	struct dci_attr attr = dci_attr();
	struct dc_side side;
	struct ibv_ah *ah;
	struct dci dci;

	if (argc > 1) {
		dc_side_serve(ROLE_FD);
		return 0;
	}
	attr.log_streams = LOG_STREAMS;
	attr.log_errored = LOG_ERRORED;
	dc_open(&dc);
	refusals();
	for (int other = 0; other < 2; other++) {
		if (other)
			dc_side_spawn(&side, 2);
		else
			dc_side_open(&side, &dc, 2);
		ah = dc_ah(&dc, &side.target[0].gid);
		dci_open(&dci, &dc, &attr);
		for (enum fault fault = 0; fault < FAULTS; fault++)
			one_fails(&dci, ah, &side, fault);
		all_fail(&dci, ah, &side, &attr);
		for (int i = 0; i < 20; i++)
			done_once(&side, &attr);
		check_eq(ibv_destroy_qp(dci.qp), 0);
		check_eq(ibv_destroy_ah(ah), 0);
		dc_side_close(&side);
	}
	dc_close(&dc);
	return 0;
}
