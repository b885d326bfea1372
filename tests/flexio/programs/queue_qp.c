// SPDX-License-Identifier: MIT
/* Queue pairs: the state machine, every transport and kind of receive queue, and what errors look like. */
#include "queue_kit.h"

#include <errno.h>

extern struct flexio_app *qpdev;
extern flexio_func_t run_work, fill_recv, fill_linked, ring_raw, make_block, sum_block;

enum { LOG = 4, SIZE = 256, BUFFERS = SIZE * 4 };

/* mlx5 syndromes */
enum {
	LENGTH = 0x01,
	QP_OP = 0x02,
	PROT = 0x04,
	FLUSH = 0x05,
	REM_INVAL = 0x12,
	REM_ACCESS = 0x13,
	REM_OP = 0x14,
	RNR = 0x16
};
enum { RESP_ERR = 14, REQ_ERR = 13 };

static struct ibv_context *ctx;
static struct flexio_process *process;
static struct kit_mem mem;
static struct kit_cq send_cq, recv_cq;
static flexio_uintptr_t work_daddr, fill_daddr;
static union ibv_gid gid;

/* ---- work ---- */

static struct work_op op(uint32_t type, uint64_t from, uint64_t to, uint32_t len)
{
	return (struct work_op){ .type = type,
				 .ce = CE_ALWAYS,
				 .lkey = mem.key,
				 .rkey = mem.key,
				 .laddr = mem.addr + from,
				 .raddr = mem.addr + to,
				 .len = len };
}

/* One operation on a queue pair, and the completion of its send queue. */
static struct work_cqe one(struct kit_qp *qp, struct work_op o)
{
	struct work w = { .cq = send_cq.work, .qp = qp->work, .nops = 1, .expect = 1 };

	w.ops[0] = o;
	work_run(process, run_work, work_daddr, &w);
	send_cq.work = w.cq;
	qp->work = w.qp;
	CHECK(w.os_errno == 0);
	CHECK(w.cqes[0].qpn == qp->work.number);
	return w.cqes[0];
}

static void good(struct kit_qp *qp, struct work_op o)
{
	struct work_cqe cqe = one(qp, o);

	CHECK(cqe.opcode == 0 && cqe.syndrome == 0);
}

static void bad(struct kit_qp *qp, struct work_op o, uint32_t syndrome)
{
	struct work_cqe cqe = one(qp, o);

	if (cqe.opcode != REQ_ERR || cqe.syndrome != syndrome)
		fprintf(stderr, "opcode %u, syndrome 0x%x\n", cqe.opcode, cqe.syndrome);
	CHECK(cqe.opcode == REQ_ERR && cqe.syndrome == syndrome);
}

/* The next completion of the receive queues. */
static struct work_cqe received(void)
{
	struct work w = { .cq = recv_cq.work, .expect = 1 };

	work_run(process, run_work, work_daddr, &w);
	recv_cq.work = w.cq;
	return w.cqes[0];
}

static void fill(flexio_func_t *func, struct work_qp *qp)
{
	struct work_handler f = {
		.qp = *qp, .buffers = mem.addr + BUFFERS, .size = SIZE, .lkey = mem.key
	};

	dev_write(process, fill_daddr, &f, sizeof(f));
	OK(flexio_process_call(process, func, NULL, fill_daddr));
	dev_get(process, &f, fill_daddr, sizeof(f));
	*qp = f.qp;
}

/* Put text at the start of the memory. */
static void put(const char *text)
{
	char bytes[SIZE] = { 0 };

	strcpy(bytes, text);
	dev_write(process, mem.addr, bytes, sizeof(bytes));
}

static void expect(uint64_t at, const char *text)
{
	char bytes[SIZE];

	dev_get(process, bytes, mem.addr + at, sizeof(bytes));
	CHECK(!strcmp(bytes, text));
}

static struct flexio_qp_attr attr_now(void)
{
	return qp_attr(process, LOG, LOG, send_cq.work.number, recv_cq.work.number);
}

static void make(enum flexio_qp_transport_type type, struct kit_qp *qp)
{
	struct flexio_qp_attr attr = attr_now();

	attr.transport_type = type;
	attr.user_index = 0x77;
	qp_make(process, NULL, &attr, qp);
}

/* A connected pair whose second half has receives. */
static void pair(enum flexio_qp_transport_type type, struct kit_qp *a, struct kit_qp *b)
{
	make(type, a);
	make(type, b);
	qp_pair(a, b);
	fill(fill_recv, &b->work);
}

static void end(struct kit_qp *a, struct kit_qp *b)
{
	OK(flexio_qp_destroy(a->qp));
	OK(flexio_qp_destroy(b->qp));
}

/* ---- creation ---- */

#define REFUSE(change)                                                                          \
	do {                                                                                    \
		struct flexio_qp_attr a = attr;                                                 \
		struct flexio_qp *qp = NULL;                                                    \
		change;                                                                         \
		CHECK(flexio_qp_create(process, NULL, &a, &qp) == FLEXIO_STATUS_FAILED && !qp); \
	} while (0)

static void refusals(void)
{
	struct flexio_qp_attr attr = attr_now();
	struct ibv_context *second = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(second);

	REFUSE(a.transport_type = FLEXIO_QPC_ST_XRC);
	REFUSE(a.transport_type = FLEXIO_QPC_ST_DCI);
	REFUSE(a.log_sq_depth = 16);
	REFUSE(a.log_sq_depth = -1);
	REFUSE(a.log_rq_depth = 16);
	REFUSE(a.rq_type = 2);
	REFUSE(a.rq_type = FLEXIO_QP_QPC_RQ_TYPE_ZERO_SIZE_RQ; a.no_sq = 1);
	REFUSE(a.rq_type = FLEXIO_QP_QPC_RQ_TYPE_SRQ_RMP_XRC_SRQ_XRQ; a.rmpqn = 99);
	REFUSE(a.sq_cqn = 0);
	REFUSE(a.rq_cqn = 0xfffff);
	REFUSE(a.uar_id = 0);
	REFUSE(a.user_index = 1 << 24);
	REFUSE(a.qp_wq_buff_qmem.daddr = 0x10);
	REFUSE(a.qp_wq_buff_qmem.daddr += 16);
	REFUSE(a.qp_wq_dbr_qmem.daddr += 2);
	REFUSE(a.qp_wq_dbr_qmem.memtype = FLEXIO_MEMTYPE_HOST);
	REFUSE(a.pd = pd);
	CHECK(flexio_qp_create(process, NULL, NULL, NULL) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_qp_state_get(NULL) == FLEXIO_QP_STATE_ERR);
	OK(flexio_qp_destroy(NULL));
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(second));
}

static void step(struct flexio_qp *qp, struct flexio_qp_attr *attr, enum flexio_qp_state state,
		 bool allowed)
{
	enum flexio_qp_state before = flexio_qp_state_get(qp);
	struct flexio_qp_attr_opt_param_mask mask = { 0 };
	flexio_status status;

	attr->next_state = state;
	status = flexio_qp_modify(qp, attr, &mask);
	CHECK(status == (allowed ? FLEXIO_STATUS_SUCCESS : FLEXIO_STATUS_FAILED));
	CHECK(flexio_qp_state_get(qp) == (allowed ? state : before));
}

static void states(void)
{
	struct flexio_qp_attr link = qp_link(1, NULL), wrong;
	struct kit_qp qp;

	make(FLEXIO_QPC_ST_RC, &qp);
	step(qp.qp, &link, FLEXIO_QP_STATE_RTR, false);
	step(qp.qp, &link, FLEXIO_QP_STATE_RTS, false);
	step(qp.qp, &link, (enum flexio_qp_state)5, false);
	step(qp.qp, &link, FLEXIO_QP_STATE_INIT, true);
	step(qp.qp, &link, FLEXIO_QP_STATE_INIT, true);
	step(qp.qp, &link, FLEXIO_QP_STATE_RTS, false);
	wrong = link;
	wrong.path_mtu = 9;
	step(qp.qp, &wrong, FLEXIO_QP_STATE_RTR, false);
	wrong = link;
	wrong.gid_table_index = 31;
	step(qp.qp, &wrong, FLEXIO_QP_STATE_RTR, false);
	wrong = link;
	wrong.min_rnr_nak_timer = 32;
	step(qp.qp, &wrong, FLEXIO_QP_STATE_RTR, false);
	wrong = link;
	wrong.log_rra_max = 9;
	step(qp.qp, &wrong, FLEXIO_QP_STATE_RTR, false);
	wrong = link;
	wrong.vhca_port_num = 2;
	step(qp.qp, &wrong, FLEXIO_QP_STATE_RTR, false);
	step(qp.qp, &link, FLEXIO_QP_STATE_RTR, true);
	step(qp.qp, &link, FLEXIO_QP_STATE_INIT, false);
	wrong = link;
	wrong.retry_count = 8;
	step(qp.qp, &wrong, FLEXIO_QP_STATE_RTS, false);
	step(qp.qp, &link, FLEXIO_QP_STATE_RTS, true);
	step(qp.qp, &link, FLEXIO_QP_STATE_RTS, true);
	step(qp.qp, &link, FLEXIO_QP_STATE_ERR, true);
	step(qp.qp, &link, FLEXIO_QP_STATE_RTS, false);
	step(qp.qp, &link, FLEXIO_QP_STATE_RST, true);
	step(qp.qp, &link, FLEXIO_QP_STATE_ERR, false);
	qp_to_rts(qp.qp, &link);
	CHECK(flexio_qp_modify(qp.qp, NULL, NULL) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_qp_modify(NULL, &link, NULL) == FLEXIO_STATUS_FAILED);
	OK(flexio_qp_destroy(qp.qp));
	CHECK(flexio_qp_modify(qp.qp, &link, NULL) == FLEXIO_STATUS_FAILED);
}

/* The optional mask changes a queue that works. */
static void optional(void)
{
	struct flexio_qp_attr attr = qp_link(0, NULL);
	struct flexio_qp_attr_opt_param_mask mask = { 0 };
	struct kit_cq shared = recv_cq;
	struct kit_qp a, b;

	cq_simple(process, LOG, NULL, &recv_cq); /* for the receives that are flushed */
	pair(FLEXIO_QPC_ST_RC, &a, &b);
	attr.next_state = FLEXIO_QP_STATE_RTS;
	attr.qp_access_mask = IBV_ACCESS_REMOTE_READ;
	attr.min_rnr_nak_timer = 5;
	OK(flexio_qp_modify(b.qp, &attr, &mask)); /* nothing named, nothing changed */
	put("written");
	good(&a, op(SEG_WRITE, 0, SIZE, SIZE));
	expect(SIZE, "written");
	mask.qp_access_mask = mask.min_rnr_nak_timer = true;
	OK(flexio_qp_modify(b.qp, &attr, &mask));
	good(&a, op(SEG_READ, 2 * SIZE, SIZE, SIZE));
	bad(&a, op(SEG_WRITE, 0, SIZE, SIZE), REM_INVAL);
	CHECK(flexio_qp_state_get(a.qp) == FLEXIO_QP_STATE_ERR);
	end(&a, &b);
	OK(flexio_cq_destroy(recv_cq.cq));
	recv_cq = shared;
}

/* ---- transports and receive queues ---- */

static void uc(void)
{
	struct kit_qp a, b;
	struct work_cqe cqe;

	pair(FLEXIO_QPC_ST_UC, &a, &b);
	put("unreliable");
	good(&a, op(SEG_SEND, 0, 0, SIZE));
	cqe = received();
	CHECK(cqe.opcode == 2 && cqe.byte_cnt == SIZE && cqe.user_index == 0x77);
	expect(BUFFERS, "unreliable");
	good(&a, op(SEG_WRITE, 0, SIZE, SIZE));
	expect(SIZE, "unreliable");
	bad(&a, op(SEG_READ, 0, SIZE, SIZE), QP_OP);
	CHECK(flexio_qp_state_get(a.qp) == FLEXIO_QP_STATE_ERR);
	end(&a, &b);
}

static void ud(void)
{
	struct work_op o = op(SEG_SEND_UD, 0, 0, 64);
	struct kit_qp a, b;
	struct work_cqe cqe;

	pair(FLEXIO_QPC_ST_UD, &a, &b);
	put("datagram");
	o.dqpn = b.work.number;
	o.qkey = 0x11111111;
	memcpy(o.gid, &gid, sizeof(gid));
	good(&a, o);
	cqe = received();
	CHECK(cqe.opcode == 2 && cqe.byte_cnt == 64 + 40);
	expect(BUFFERS + 40, "datagram");
	/* without the full address vector there is no way */
	bad(&a, op(SEG_SEND, 0, 0, 16), QP_OP);
	end(&a, &b);
}

/* Receives of an RMP serve two queue pairs. */
static void rmp(bool linked)
{
	struct flexio_wq_attr attr = {
		.log_wq_depth = LOG,
		.log_wq_stride = linked ? 5 : 0,
		.rq = { .wq_type = linked ? FLEXIO_WQ_TYPE_LINKED_LIST : FLEXIO_WQ_TYPE_CYCLIC },
		.wq_ring_qmem = { .daddr = dev_alloc(process, 32 << LOG) },
		.wq_dbr_qmem = { .daddr = dev_alloc(process, 8) },
	};
	struct work_qp ring = { .rq = attr.wq_ring_qmem.daddr,
				.dbr = attr.wq_dbr_qmem.daddr,
				.log_rq = LOG,
				.stride = linked ? 32 : 16 };
	static const uint16_t order[2][4] = { { 0, 1, 2, 3 }, { 0, 15, 14, 13 } };
	struct kit_qp a[2], b[2];
	struct flexio_rmp *queue;

	OK(flexio_rmp_create(process, NULL, &attr, &queue));
	CHECK(flexio_rmp_get_wq_num(queue) != UINT32_MAX);
	for (int i = 0; i < 2; i++) {
		struct flexio_qp_attr qp = attr_now();

		make(FLEXIO_QPC_ST_RC, &a[i]);
		qp.rq_type = FLEXIO_QP_QPC_RQ_TYPE_SRQ_RMP_XRC_SRQ_XRQ;
		qp.rmpqn = flexio_rmp_get_wq_num(queue);
		qp.user_index = 0x100 + (uint32_t)i;
		qp_make(process, NULL, &qp, &b[i]);
		qp_pair(&a[i], &b[i]);
	}
	CHECK(flexio_rmp_destroy(queue) == FLEXIO_STATUS_FAILED);
	fill(linked ? fill_linked : fill_recv, &ring);
	for (uint32_t i = 0; i < 4; i++) {
		struct work_cqe cqe;

		put(i % 2 ? "odd" : "even");
		good(&a[i % 2], op(SEG_SEND, 0, 0, SIZE));
		cqe = received();
		CHECK(cqe.opcode == 2 && cqe.wqe_counter == order[linked][i]);
		CHECK(cqe.user_index == 0x100 + i % 2 && cqe.qpn == b[i % 2].work.number);
		expect(BUFFERS + SIZE * order[linked][i], i % 2 ? "odd" : "even");
	}
	end(&a[0], &b[0]);
	end(&a[1], &b[1]);
	OK(flexio_rmp_destroy(queue));
	CHECK(flexio_rmp_destroy(queue) == FLEXIO_STATUS_FAILED);
	attr.log_wq_stride = linked ? 4 : 3;
	CHECK(flexio_rmp_create(process, NULL, &attr, &queue) == FLEXIO_STATUS_FAILED);
}

/* An RMP whose ring and record are the host's, for queue pairs of every transport that only receive. */
static void host_rmp(enum flexio_qp_transport_type type)
{
	char *host = aligned_alloc(4096, 8192);
	struct mlx5dv_devx_umem *umem =
		mlx5dv_devx_umem_reg(ctx, host, 8192, IBV_ACCESS_LOCAL_WRITE);
	struct flexio_wq_attr attr = {
		.log_wq_depth = LOG,
		.rq = { .wq_type = FLEXIO_WQ_TYPE_CYCLIC },
		.wq_ring_qmem = { .memtype = FLEXIO_MEMTYPE_HOST, .humem_offset = 4096 },
		.wq_dbr_qmem = { .memtype = FLEXIO_MEMTYPE_HOST, .humem_offset = 8 },
	};
	struct work_op o = op(type == FLEXIO_QPC_ST_UD ? SEG_SEND_UD : SEG_SEND, 0, 0, 64);
	struct flexio_qp_attr qp = attr_now();
	struct kit_qp a, b;
	struct flexio_rmp *queue;
	struct work_cqe cqe;

	CHECK(umem);
	memset(host, 0, 8192);
	attr.wq_ring_qmem.umem_id = attr.wq_dbr_qmem.umem_id = umem->umem_id;
	OK(flexio_rmp_create(process, NULL, &attr, &queue));
	CHECK(mlx5dv_devx_umem_dereg(umem) == EBUSY);
	qp.transport_type = type;
	qp.no_sq = 1;
	qp.rq_type = FLEXIO_QP_QPC_RQ_TYPE_SRQ_RMP_XRC_SRQ_XRQ;
	qp.rmpqn = flexio_rmp_get_wq_num(queue);
	qp_make(process, NULL, &qp, &b);
	make(type, &a);
	qp_pair(&a, &b);
	mlx5dv_set_data_seg((struct mlx5_wqe_data_seg *)(host + 4096), SIZE, mem.key,
			    mem.addr + BUFFERS);
	*(volatile uint32_t *)(host + 8) = htobe32(1);
	o.dqpn = b.work.number;
	o.qkey = 0x11111111;
	memcpy(o.gid, &gid, sizeof(gid));
	put("to the host's ring");
	good(&a, o);
	cqe = received();
	CHECK(cqe.opcode == 2 && cqe.wqe_counter == 0 && cqe.qpn == b.work.number);
	expect(BUFFERS + (type == FLEXIO_QPC_ST_UD ? 40 : 0), "to the host's ring");
	end(&a, &b);
	OK(flexio_rmp_destroy(queue));
	CHECK(!mlx5dv_devx_umem_dereg(umem));
	free(host);
}

/* Queue pairs with one half only. */
static void halves(void)
{
	struct flexio_qp_attr sender = attr_now(), receiver = attr_now();
	struct kit_qp a, b;

	sender.rq_type = FLEXIO_QP_QPC_RQ_TYPE_ZERO_SIZE_RQ;
	sender.rq_cqn = 0;
	qp_make(process, NULL, &sender, &a);
	receiver.no_sq = 1;
	receiver.sq_cqn = 0;
	qp_make(process, NULL, &receiver, &b);
	qp_pair(&a, &b);
	fill(fill_recv, &b.work);
	put("half");
	good(&a, op(SEG_SEND, 0, 0, SIZE));
	CHECK(received().opcode == 2);
	expect(BUFFERS, "half");
	end(&a, &b);
}

/* ---- rings in host memory: the host writes the WQE, device code rings ---- */

static void host_rings(void)
{
	char *host = aligned_alloc(4096, 8192);
	struct mlx5dv_devx_umem *umem =
		mlx5dv_devx_umem_reg(ctx, host, 8192, IBV_ACCESS_LOCAL_WRITE);
	struct flexio_qp_attr attr = attr_now();
	struct work w = { .cq = send_cq.work, .expect = 1 };
	struct mlx5_wqe_ctrl_seg *ctrl;
	struct kit_qp a, b;

	CHECK(umem);
	memset(host, 0, 8192);
	attr.qp_wq_buff_qmem = (struct flexio_qmem){ .memtype = FLEXIO_MEMTYPE_HOST,
						     .umem_id = umem->umem_id,
						     .humem_offset = 4096 };
	attr.qp_wq_dbr_qmem = (struct flexio_qmem){ .memtype = FLEXIO_MEMTYPE_HOST,
						    .umem_id = umem->umem_id,
						    .humem_offset = 64 };
	qp_make(process, NULL, &attr, &a);
	make(FLEXIO_QPC_ST_RC, &b);
	qp_pair(&a, &b);
	put("from the host's ring");
	ctrl = (void *)(host + 4096 + (16 << LOG));
	ctrl->opmod_idx_opcode = htobe32(MLX5_OPCODE_RDMA_WRITE);
	ctrl->qpn_ds = htobe32(a.work.number << 8 | 3);
	ctrl->fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
	((struct mlx5_wqe_raddr_seg *)(ctrl + 1))->raddr = htobe64(mem.addr + SIZE);
	((struct mlx5_wqe_raddr_seg *)(ctrl + 1))->rkey = htobe32(mem.key);
	mlx5dv_set_data_seg((struct mlx5_wqe_data_seg *)(ctrl + 2), SIZE, mem.key, mem.addr);
	/* device code writes a NOP into a ring that nobody reads, and rings number a */
	w.qp = b.work;
	w.qp.number = a.work.number;
	w.nops = 1;
	w.ops[0] = op(SEG_NOP, 0, 0, 0);
	work_run(process, run_work, work_daddr, &w);
	send_cq.work = w.cq;
	CHECK(w.cqes[0].opcode == 0);
	expect(SIZE, "from the host's ring");
	end(&a, &b);
	CHECK(!mlx5dv_devx_umem_dereg(umem));
	free(host);
}

/* Device memory by the number of the process's own umem: the offset is the device address. */
static void dumem_rings(void)
{
	struct flexio_qp_attr attr = attr_now();
	struct kit_qp a, b;

	attr.qp_wq_buff_qmem.umem_id = attr.qp_wq_dbr_qmem.umem_id =
		flexio_process_get_dumem_id(process);
	attr.qp_wq_buff_qmem.memtype = attr.qp_wq_dbr_qmem.memtype = FLEXIO_MEMTYPE_HOST;
	qp_make(process, NULL, &attr, &a);
	make(FLEXIO_QPC_ST_RC, &b);
	qp_pair(&a, &b);
	put("by number");
	good(&a, op(SEG_WRITE, 0, SIZE, SIZE));
	expect(SIZE, "by number");
	end(&a, &b);
}

/* ---- errors ---- */

static void refused_send(struct work_op o, uint32_t syndrome)
{
	struct kit_qp a, b;

	pair(FLEXIO_QPC_ST_RC, &a, &b);
	bad(&a, o, syndrome);
	CHECK(flexio_qp_state_get(a.qp) == FLEXIO_QP_STATE_ERR);
	/* what follows is flushed */
	bad(&a, op(SEG_WRITE, 0, SIZE, 8), FLUSH);
	end(&a, &b);
}

/* A WQE that nobody could mean; the NOP behind it is flushed, where it can be told where that begins. */
static void raw_wqe(uint32_t first, uint32_t second, uint32_t completions)
{
	struct work w = { .cq = send_cq.work, .expect = completions, .nops = 1 };
	struct kit_qp a, b;
	uint64_t got;

	pair(FLEXIO_QPC_ST_RC, &a, &b);
	w.qp = a.work;
	w.ops[0] = op(SEG_NOP, 0, 0, 0);
	dev_write(process, work_daddr, &w, sizeof(w));
	OK(flexio_process_call(process, ring_raw, &got, work_daddr, first, second));
	dev_get(process, &w, work_daddr, sizeof(w));
	send_cq.work = w.cq;
	CHECK(w.cqes[0].opcode == REQ_ERR && w.cqes[0].syndrome == QP_OP);
	if (completions == 2)
		CHECK(w.cqes[1].opcode == REQ_ERR && w.cqes[1].syndrome == FLUSH);
	CHECK(flexio_qp_state_get(a.qp) == FLEXIO_QP_STATE_ERR);
	end(&a, &b);
}

/* The receive queue's side of errors: a fresh CQ each time, because flushed receives fill it. */
static void receive_errors(void)
{
	struct kit_cq shared = recv_cq;
	struct work_cqe cqe;
	struct kit_qp a, b;

	/* longer than the buffer */
	cq_simple(process, LOG + 1, NULL, &recv_cq);
	pair(FLEXIO_QPC_ST_RC, &a, &b);
	bad(&a, op(SEG_SEND, 0, 0, SIZE + 1), REM_INVAL);
	cqe = received();
	CHECK(cqe.opcode == RESP_ERR && cqe.syndrome == LENGTH && cqe.wqe_counter == 0);
	for (uint32_t i = 1; i < 1 << LOG; i++) {
		cqe = received();
		CHECK(cqe.opcode == RESP_ERR && cqe.syndrome == FLUSH && cqe.wqe_counter == i);
	}
	CHECK(flexio_qp_state_get(b.qp) == FLEXIO_QP_STATE_ERR);
	end(&a, &b);
	OK(flexio_cq_destroy(recv_cq.cq));
	/* a buffer with a key that does not exist */
	cq_simple(process, LOG + 1, NULL, &recv_cq);
	make(FLEXIO_QPC_ST_RC, &a);
	make(FLEXIO_QPC_ST_RC, &b);
	qp_pair(&a, &b);
	mem.key ^= 1 << 20;
	fill(fill_recv, &b.work);
	mem.key ^= 1 << 20;
	bad(&a, op(SEG_SEND, 0, 0, 8), REM_OP);
	cqe = received();
	CHECK(cqe.opcode == RESP_ERR && cqe.syndrome == PROT);
	end(&a, &b);
	OK(flexio_cq_destroy(recv_cq.cq));
	recv_cq = shared;
}

/* Nobody posted a receive, and the sender may not try again. */
static void empty_queue(void)
{
	struct flexio_qp_attr to_a, to_b;
	struct kit_qp a, b;

	make(FLEXIO_QPC_ST_RC, &a);
	make(FLEXIO_QPC_ST_RC, &b);
	to_b = qp_link(b.work.number, NULL);
	to_b.retry_count = 0;
	to_a = qp_link(a.work.number, NULL);
	qp_to_rts(a.qp, &to_b);
	qp_to_rts(b.qp, &to_a);
	bad(&a, op(SEG_SEND, 0, 0, 8), RNR);
	/* reset makes both fresh again */
	qp_reset(a.qp);
	qp_reset(b.qp);
	a.work.pi = b.work.recv_pi = 0;
	qp_pair(&a, &b);
	fill(fill_recv, &b.work);
	good(&a, op(SEG_SEND, 0, 0, 8));
	CHECK(received().opcode == 2);
	end(&a, &b);
}

/* ---- local work ---- */

static struct work_op copy(uint64_t from, uint64_t to, uint32_t len)
{
	struct work_op o = op(SEG_LDMA, from, to, len);

	o.to_len = len;
	return o;
}

static struct work_op transpose(uint8_t element, uint8_t rows, uint8_t cols)
{
	struct work_op o = copy(0, BUFFERS, (uint32_t)element * rows * cols);

	o.type = SEG_TRANSPOSE;
	o.element = element;
	o.rows = rows;
	o.cols = cols;
	return o;
}

static void one_matrix(struct kit_qp *qp, uint8_t element, uint8_t rows, uint8_t cols)
{
	uint8_t before[BUFFERS], after[BUFFERS];
	uint32_t size = (uint32_t)element * rows * cols;

	CHECK(size <= BUFFERS);
	for (uint32_t i = 0; i < size; i++)
		before[i] = (uint8_t)(i * 7 + i / 256);
	dev_write(process, mem.addr, before, size);
	good(qp, transpose(element, rows, cols));
	dev_get(process, after, mem.addr + BUFFERS, size);
	for (uint32_t r = 0; r < rows; r++)
		for (uint32_t c = 0; c < cols; c++)
			CHECK(!memcmp(after + (c * rows + r) * element,
				      before + (r * cols + c) * element, element));
}

static struct work_op wait_for(uint8_t condition, uint64_t value, uint64_t mask)
{
	struct work_op o = op(SEG_WAIT, 0, 0, 0);

	o.wait = condition;
	o.compare = value;
	o.swap_add = mask;
	return o;
}

static void set_word(uint64_t value)
{
	value = htobe64(value);
	dev_write(process, mem.addr, &value, sizeof(value));
}

/* Conditions that are true at once; the inverted ones, too. */
static void conditions(struct kit_qp *qp)
{
	enum { ALWAYS, EQUAL, BIGGER, SMALLER, CYCLIC_BIGGER, CYCLIC_SMALLER, NOT = 0x10 };

	set_word(0xff00000000000005);
	good(qp, wait_for(ALWAYS, 1, 0));
	good(qp, wait_for(EQUAL, 5, 0xff));
	good(qp, wait_for(EQUAL, 0x1205, 0xff)); /* the mask is for both */
	good(qp, wait_for(EQUAL | NOT, 6, 0xff));
	good(qp, wait_for(BIGGER, 4, ~0ull));
	good(qp, wait_for(BIGGER | NOT, 5, 0xff));
	good(qp, wait_for(SMALLER, 6, 0xff));
	good(qp, wait_for(SMALLER | NOT, 6, ~0ull));
	good(qp, wait_for(CYCLIC_BIGGER, 0xff00000000000004, ~0ull));
	good(qp, wait_for(CYCLIC_SMALLER, 4, ~0ull));
	good(qp, wait_for(CYCLIC_BIGGER | NOT, 4, ~0ull));
}

/* What follows the wait is not done before the word has changed. */
static void waits(struct kit_qp *qp)
{
	struct work w = { .cq = send_cq.work, .qp = qp->work, .nops = 2 };

	put("0");
	dev_write(process, mem.addr + SIZE, "later", 6);
	dev_write(process, mem.addr + 2 * SIZE, "early", 6);
	w.ops[0] = wait_for(1, 0x1122334455667788, ~0ull);
	w.ops[1] = copy(SIZE, 2 * SIZE, 6);
	work_run(process, run_work, work_daddr, &w);
	usleep(5000);
	expect(2 * SIZE, "early");
	set_word(0x1122334455667788);
	w.nops = 0;
	w.expect = 2;
	work_run(process, run_work, work_daddr, &w);
	expect(2 * SIZE, "later");
	CHECK(w.cqes[0].opcode == 0 && w.cqes[1].opcode == 0 && w.cqes[1].byte_cnt == 6);
	send_cq.work = w.cq;
	qp->work = w.qp;
}

/* Bytes of every value, into memory of the device's malloc. */
static void into_block(struct kit_qp *qp)
{
	struct flexio_mkey_attr attr = { .len = SIZE, .access = IBV_ACCESS_LOCAL_WRITE };
	struct work_op o = copy(0, 0, SIZE);
	struct flexio_mkey *mkey;
	unsigned char bytes[SIZE];
	uint64_t sum;

	for (unsigned int i = 0; i < SIZE; i++)
		bytes[i] = (unsigned char)(5 * i);
	dev_write(process, mem.addr, bytes, SIZE);
	OK(flexio_process_call(process, make_block, &o.raddr, (uint64_t)SIZE));
	CHECK(o.raddr);
	attr.daddr = o.raddr;
	OK(flexio_device_mkey_create(process, &attr, &mkey));
	o.rkey = flexio_mkey_get_id(mkey);
	good(qp, o);
	OK(flexio_process_call(process, sum_block, &sum, o.raddr, (uint64_t)SIZE));
	CHECK(sum == SIZE * (SIZE - 1) / 2);
	OK(flexio_device_mkey_destroy(mkey));
}

static void local_work(enum flexio_qp_transport_type type)
{
	struct kit_qp a, b;

	pair(type, &a, &b);
	put("from here to there");
	good(&a, copy(0, SIZE, SIZE));
	expect(SIZE, "from here to there");
	good(&a, copy(0, 2 * SIZE, 1));
	one_matrix(&a, 1, 4, 4);
	one_matrix(&a, 1, 1, 127);
	one_matrix(&a, 1, 127, 8);
	one_matrix(&a, 2, 3, 5);
	one_matrix(&a, 4, 16, 16);
	one_matrix(&a, 8, 8, 16);
	one_matrix(&a, 3, 7, 2);
	one_matrix(&a, 255, 2, 2);
	conditions(&a);
	waits(&a);
	into_block(&a);
	end(&a, &b);
}

static void local_errors(void)
{
	struct work_op o;

	o = copy(0, SIZE, 8);
	o.to_len = 7;
	refused_send(o, LENGTH);
	o = copy(0, SIZE, 7);
	o.to_len = 8;
	refused_send(o, LENGTH);
	o = copy(0, SIZE, 8);
	o.lkey ^= 1 << 20;
	refused_send(o, PROT);
	o = copy(0, SIZE, 8);
	o.rkey ^= 1 << 20;
	refused_send(o, PROT);
	refused_send(copy(0, mem.size - 4, 8), PROT);
	o = transpose(1, 4, 4);
	o.len = 15;
	refused_send(o, LENGTH);
	o = transpose(1, 4, 4);
	o.rows = 0;
	refused_send(o, LENGTH);
	o = transpose(1, 4, 4);
	o.element = 0;
	refused_send(o, LENGTH);
	o = wait_for(1, 0, 0);
	o.lkey ^= 1 << 20;
	refused_send(o, PROT);
	refused_send(wait_for(6, 0, 0), QP_OP);
}

/* Several operations with one doorbell, and so many completions. */
static void several(struct kit_qp *qp, const struct work_op *ops, uint32_t n, uint32_t completions,
		    struct work *w)
{
	*w = (struct work){ .cq = send_cq.work, .qp = qp->work, .nops = n, .expect = completions };
	memcpy(w->ops, ops, n * sizeof(*ops));
	work_run(process, run_work, work_daddr, w);
	send_cq.work = w->cq;
	qp->work = w->qp;
}

/*
 * Which work completes: cq_ce_mode of its control segment. Success only with ALWAYS and AND_EQE. Of
 * what fails, and of what is flushed behind it, everything, but with ON_FIRST_CQE_ERROR only the
 * first that fails.
 */
static void completion_modes(void)
{
	struct work_op ops[4], fault = op(SEG_WRITE, 0, SIZE, 8);
	struct kit_qp a, b;
	struct work w;

	for (uint32_t ce = CE_ERROR; ce <= CE_AND_EQE; ce++) {
		uint32_t each = ce >= CE_ALWAYS, flushed = ce != CE_FIRST_ERROR, first;

		pair(FLEXIO_QPC_ST_RC, &a, &b);
		for (uint32_t i = 0; i < 4; i++) {
			ops[i] = op(SEG_WRITE, 0, SIZE, 8);
			ops[i].ce = i < 3 ? ce : CE_ALWAYS;
		}
		first = a.work.pi;
		several(&a, ops, 4, each ? 4 : 1, &w);
		for (uint32_t i = 0; i < (each ? 4 : 1); i++)
			CHECK(!w.cqes[i].opcode && w.cqes[i].wqe_counter == first + (each ? i : 3));
		ops[0] = fault;
		ops[0].rkey ^= 1 << 20;
		ops[0].ce = ce;
		first = a.work.pi;
		several(&a, ops, 4, flushed ? 4 : 2, &w);
		CHECK(w.cqes[0].syndrome == REM_ACCESS && w.cqes[0].wqe_counter == first);
		for (uint32_t i = 1; i < (flushed ? 4 : 2); i++) {
			CHECK(w.cqes[i].opcode == REQ_ERR && w.cqes[i].syndrome == FLUSH);
			CHECK(w.cqes[i].wqe_counter == first + (flushed ? i : 3));
		}
		end(&a, &b);
	}
	/* Of a queue that the program puts into the error state the first that is flushed is it. */
	pair(FLEXIO_QPC_ST_RC, &a, &b);
	OK(flexio_qp_modify(a.qp, &(struct flexio_qp_attr){ .next_state = FLEXIO_QP_STATE_ERR },
			    &(struct flexio_qp_attr_opt_param_mask){ 0 }));
	for (uint32_t i = 0; i < 3; i++) {
		ops[i] = op(SEG_WRITE, 0, SIZE, 8);
		ops[i].ce = CE_FIRST_ERROR;
	}
	several(&a, ops, 3, 1, &w);
	CHECK(w.cqes[0].syndrome == FLUSH && w.cqes[0].wqe_counter == 0);
	ops[0].ce = CE_ALWAYS;
	several(&a, ops, 1, 1, &w);
	CHECK(w.cqes[0].syndrome == FLUSH && w.cqes[0].wqe_counter == 3);
	end(&a, &b);
}

static void errors(void)
{
	struct kit_cq shared = recv_cq;
	struct kit_log log;
	struct work_op o;

	cq_simple(process, 10, NULL, &recv_cq); /* room for what is flushed */
	o = op(SEG_WRITE, 0, SIZE, 8);
	o.lkey ^= 1 << 20;
	refused_send(o, PROT);
	o = op(SEG_WRITE, mem.size - 4, SIZE, 8);
	refused_send(o, PROT);
	/* the side whose memory was meant gets an event */
	o = op(SEG_WRITE, 0, SIZE, 8);
	o.rkey ^= 1 << 20;
	log_begin(&log);
	refused_send(o, REM_ACCESS);
	CHECK(log_end(&log, "local access violation work queue error") == 1);
	refused_send(op(SEG_READ, 0, mem.size - 4, 8), REM_ACCESS);
	o = op(SEG_CAS, 0, SIZE + 4, 8);
	log_begin(&log);
	refused_send(o, REM_INVAL); /* not aligned */
	CHECK(log_end(&log, "invalid request local work queue error") == 1);
	refused_send(op(SEG_FAA, 0, SIZE, 4), LENGTH);
	o = op(SEG_SEND, 0, 0, 8);
	o.opcode = 0x25; /* no such work here */
	refused_send(o, QP_OP);
	o.opcode = 0xff;
	refused_send(o, QP_OP);
	refused_send(op(SEG_LSO, 0, 0, 8), QP_OP); /* work of the raw queues */
	local_errors();
	completion_modes();
	raw_wqe(MLX5_OPCODE_RDMA_WRITE, 0, 2); /* no size */
	raw_wqe(MLX5_OPCODE_RDMA_WRITE, 1, 2); /* no room for its segments */
	raw_wqe(MLX5_OPCODE_ATOMIC_CS, 2, 2);
	raw_wqe(MLX5_OPCODE_SEND, 0x3f, 1); /* reaches beyond the doorbell */
	OK(flexio_cq_destroy(recv_cq.cq));
	recv_cq = shared;
	receive_errors();
	empty_queue();
}

/* ---- queues of raw frames ---- */

static struct flexio_wq_attr raw_attr(void)
{
	return (struct flexio_wq_attr){
		.log_wq_depth = LOG,
		.uar_id = flexio_uar_get_id(flexio_process_get_uar(process)),
		.user_index = 0x55,
		.wq_ring_qmem = { .daddr = dev_alloc(process, 64 << LOG) },
		.wq_dbr_qmem = { .daddr = dev_alloc(process, 8) },
	};
}

static void raw_send(struct flexio_transport_domain *td)
{
	struct work w = { .cq = send_cq.work, .nops = 1, .expect = 1 };
	struct flexio_wq_attr attr = raw_attr();
	struct flexio_sq_tis *tis;
	struct flexio_sq *sq;

	OK(flexio_sq_tis_create(ctx, td, &tis));
	CHECK(flexio_transport_domain_destroy(td) == FLEXIO_STATUS_FAILED);
	attr.sq.tis = tis;
	attr.sq.allow_multi_pkt_send_wqe = 1;
	CHECK(flexio_sq_create(process, NULL, 0, &attr, &sq) == FLEXIO_STATUS_FAILED);
	OK(flexio_sq_create(process, NULL, send_cq.work.number, &attr, &sq));
	CHECK(flexio_sq_tis_destroy(tis) == FLEXIO_STATUS_FAILED);
	w.qp = (struct work_qp){ .sq = attr.wq_ring_qmem.daddr,
				 .number = flexio_sq_get_wq_num(sq),
				 .log_sq = LOG };
	w.ops[0] = op(SEG_NOP, 0, 0, 0);
	work_run(process, run_work, work_daddr, &w);
	CHECK(w.cqes[0].opcode == 0 && w.cqes[0].user_index == 0x55);
	w.ops[0] = wait_for(0, 0, 0);
	work_run(process, run_work, work_daddr, &w);
	CHECK(w.cqes[0].opcode == 0);
	w.ops[0] = op(SEG_SEND_EN, 0, 0, 64);
	work_run(process, run_work, work_daddr, &w);
	CHECK(w.cqes[0].opcode == 0);
	w.ops[0] = op(SEG_SEND_EN, 0, 0, 13); /* no frame */
	work_run(process, run_work, work_daddr, &w);
	CHECK(w.cqes[0].opcode == REQ_ERR && w.cqes[0].syndrome == LENGTH);
	CHECK(w.cqes[0].qpn == flexio_sq_get_wq_num(sq));
	send_cq.work = w.cq;
	OK(flexio_sq_destroy(sq));
	OK(flexio_sq_tis_destroy(tis));
}

static void raw_receive(struct flexio_transport_domain *td, struct kit_cq *cq, bool linked)
{
	struct work look = { .cq = cq->work, .expect = 1 << LOG };
	struct flexio_wq_attr attr = raw_attr();
	struct work_qp ring = { .rq = attr.wq_ring_qmem.daddr,
				.dbr = attr.wq_dbr_qmem.daddr,
				.log_rq = LOG,
				.stride = 32 };
	struct flexio_rq *rq;

	attr.uar_id = 0;
	attr.log_wq_stride = 5;
	attr.rq = (struct flexio_wq_rq_attr){
		.wq_type = linked ? FLEXIO_WQ_TYPE_LINKED_LIST : FLEXIO_WQ_TYPE_CYCLIC,
		.end_pad_mode = FLEXIO_WQ_END_PAD_ALIGN,
		.td = td,
		.vlan_strip_disable = 1,
	};
	OK(flexio_rq_create(process, NULL, cq->work.number, &attr, &rq));
	CHECK(flexio_rq_get_wq_num(rq) != UINT32_MAX);
	CHECK(flexio_rq_get_tir(rq) && flexio_rq_get_object(rq));
	CHECK(flexio_transport_domain_destroy(td) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_cq_destroy(cq->cq) == FLEXIO_STATUS_FAILED);
	fill(linked ? fill_linked : fill_recv, &ring);
	OK(flexio_rq_set_err_state(rq));
	work_run(process, run_work, work_daddr, &look);
	cq->work = look.cq;
	for (uint32_t i = 0; i < 1 << LOG; i++) {
		CHECK(look.cqes[i].opcode == RESP_ERR && look.cqes[i].syndrome == FLUSH);
		CHECK(look.cqes[i].wqe_counter == (linked ? (-i & 15) : i));
		CHECK(look.cqes[i].user_index == 0x55);
	}
	OK(flexio_rq_destroy(rq));
	CHECK(flexio_rq_destroy(rq) == FLEXIO_STATUS_FAILED);
}

/*
 * Queues as most programs ask for them: a send queue without a record, because the doorbell carries the index; a receive
 * queue of which only depth and memory are said, which is a ring of 16-byte entries.
 */
static void raw_plain(struct kit_cq *cq)
{
	struct flexio_wq_attr attr = {
		.log_wq_depth = LOG,
		.pd = flexio_process_get_pd(process),
		.wq_ring_qmem = { .daddr = dev_alloc(process, 64 << LOG) },
	};
	struct work w = { .cq = send_cq.work, .nops = 1, .expect = 1 };
	struct work look = { .expect = 1 << LOG };
	struct work_qp ring = { .rq = attr.wq_ring_qmem.daddr, .log_rq = LOG, .stride = 16 };
	struct flexio_sq *sq;
	struct flexio_rq *rq;

	attr.uar_id = flexio_uar_get_id(flexio_process_get_uar(process));
	attr.sq.allow_multi_pkt_send_wqe = 1;
	OK(flexio_sq_create(process, NULL, send_cq.work.number, &attr, &sq));
	w.qp = (struct work_qp){ .sq = attr.wq_ring_qmem.daddr,
				 .number = flexio_sq_get_wq_num(sq),
				 .log_sq = LOG };
	w.ops[0] = op(SEG_NOP, 0, 0, 0);
	for (int i = 0; i < 40; i++) { /* around the ring */
		work_run(process, run_work, work_daddr, &w);
		CHECK(w.cqes[0].opcode == 0 && w.cqes[0].qpn == flexio_sq_get_wq_num(sq));
	}
	send_cq.work = w.cq;
	OK(flexio_sq_destroy(sq));
	attr.wq_dbr_qmem.daddr = 0x10; /* one that is named must be there */
	CHECK(flexio_sq_create(process, NULL, send_cq.work.number, &attr, &sq) ==
	      FLEXIO_STATUS_FAILED);
	memset(&attr.sq, 0, sizeof(attr.sq));
	attr.uar_id = 0;
	attr.wq_dbr_qmem.daddr = 0; /* a receive queue needs one */
	CHECK(flexio_rq_create(process, NULL, cq->work.number, &attr, &rq) == FLEXIO_STATUS_FAILED);
	for (uint8_t stride = 0; stride <= 4; stride += 4) {
		ring.dbr = attr.wq_dbr_qmem.daddr = dev_alloc(process, 8);
		attr.log_wq_stride = stride;
		OK(flexio_rq_create(process, NULL, cq->work.number, &attr, &rq));
		ring.recv_pi = 0;
		fill(fill_recv, &ring);
		OK(flexio_rq_set_err_state(rq));
		look.cq = cq->work;
		work_run(process, run_work, work_daddr, &look);
		cq->work = look.cq;
		for (uint32_t i = 0; i < 1 << LOG; i++)
			CHECK(look.cqes[i].syndrome == FLUSH && look.cqes[i].wqe_counter == i);
		OK(flexio_rq_destroy(rq));
	}
}

static void raw_queues(void)
{
	struct flexio_transport_domain *td;
	struct kit_cq cq;

	OK(flexio_transport_domain_create(ctx, &td));
	raw_send(td);
	cq_simple(process, LOG + 1, NULL, &cq);
	raw_receive(td, &cq, false);
	raw_receive(td, &cq, true);
	raw_plain(&cq);
	OK(flexio_cq_destroy(cq.cq));
	OK(flexio_transport_domain_destroy(td));
}

int main(void)
{
	ctx = open_device();
	CHECK(!ibv_query_gid(ctx, 1, 0, &gid));
	OK(flexio_process_create(ctx, qpdev, NULL, &process));
	mem_make(process, BUFFERS + (SIZE << LOG), &mem);
	work_daddr = dev_alloc(process, sizeof(struct work));
	fill_daddr = dev_alloc(process, sizeof(struct work_handler));
	cq_simple(process, 6, NULL, &send_cq);
	cq_simple(process, 6, NULL, &recv_cq);
	refusals();
	states();
	uc();
	ud();
	rmp(false);
	rmp(true);
	host_rmp(FLEXIO_QPC_ST_RC);
	host_rmp(FLEXIO_QPC_ST_UC);
	host_rmp(FLEXIO_QPC_ST_UD);
	halves();
	host_rings();
	dumem_rings();
	local_work(FLEXIO_QPC_ST_RC);
	local_work(FLEXIO_QPC_ST_UC);
	raw_queues();
	optional();
	errors();
	OK(flexio_cq_destroy(send_cq.cq));
	OK(flexio_cq_destroy(recv_cq.cq));
	mem_end(&mem);
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
	return 0;
}
