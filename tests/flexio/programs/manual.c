// SPDX-License-Identifier: MIT
/*
 * Sentences of the manual about queues, doorbells and dumps that are no other program's subject. docs/coverage.md says for
 * every other one which test shows it.
 */
#define _GNU_SOURCE
#include "frames_host.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>

extern struct flexio_app *sentences;
extern flexio_func_t run_work, fill_recv, arm, zero, look, fall, ring_later;

enum { LOG = 4, SIZE = 256, BUFFERS = 4 * SIZE };
enum { REQ = 0, REQ_ERR = 13, RESP_SEND = 2 };
enum { LENGTH = 0x01, PROT = 0x04, RETRY = 0x15, RNR = 0x16 };
enum { MODE_FIRST = 0, MODE_LAST = 3 }; /* of enum cq_ce_mode */

static struct ibv_context *ctx;
static struct flexio_process *process;
static struct kit_mem mem;
static flexio_uintptr_t work_daddr;

static uint64_t call2(flexio_func_t *func, uint32_t a, uint32_t b)
{
	uint64_t result;

	OK(flexio_process_call(process, func, &result, a, b));
	return result;
}

static struct work_op op(uint32_t type, uint32_t len)
{
	return (struct work_op){ .type = type,
				 .ce = CE_ALWAYS,
				 .lkey = mem.key,
				 .rkey = mem.key,
				 .laddr = mem.addr,
				 .raddr = mem.addr + SIZE,
				 .len = len };
}

/* Two connected queue pairs; sends of either complete in send, receives in recv. */
struct pair {
	struct kit_cq send, recv;
	struct kit_qp a, b;
};

static void connect_pair(struct pair *p, struct flexio_qp_attr *a, struct flexio_qp_attr *b)
{
	qp_make(process, NULL, a, &p->a);
	qp_make(process, NULL, b, &p->b);
	qp_pair(&p->a, &p->b);
}

static struct flexio_qp_attr pair_attr(const struct pair *p)
{
	return qp_attr(process, LOG, LOG, p->send.work.number, p->recv.work.number);
}

static void pair_open(struct pair *p)
{
	struct flexio_qp_attr a, b;

	cq_simple(process, LOG + 1, NULL, &p->send);
	cq_simple(process, LOG + 1, NULL, &p->recv);
	a = pair_attr(p);
	b = pair_attr(p);
	connect_pair(p, &a, &b);
}

static void pair_close(struct pair *p)
{
	OK(flexio_qp_destroy(p->a.qp));
	OK(flexio_qp_destroy(p->b.qp));
	OK(flexio_cq_destroy(p->send.cq));
	OK(flexio_cq_destroy(p->recv.cq));
}

/* Operations on one queue pair; as many completions as expected, the first of which is returned. */
static struct work_cqe run(struct kit_cq *cq, struct work_qp *qp, const struct work_op *ops,
			   uint32_t nops, uint32_t expect)
{
	static struct work w;

	memset(&w, 0, sizeof(w));
	w.cq = cq->work;
	w.qp = *qp;
	w.nops = nops;
	w.expect = expect;
	memcpy(w.ops, ops, nops * sizeof(*ops));
	work_run(process, run_work, work_daddr, &w);
	cq->work = w.cq;
	*qp = w.qp;
	return w.cqes[0];
}

static struct work_cqe one(struct kit_cq *cq, struct work_qp *qp, struct work_op o)
{
	return run(cq, qp, &o, 1, 1);
}

static void fill(struct work_qp *qp)
{
	struct work_handler f = {
		.qp = *qp, .buffers = mem.addr + BUFFERS, .size = SIZE, .lkey = mem.key
	};
	flexio_uintptr_t daddr = dev_alloc(process, sizeof(f));

	dev_write(process, daddr, &f, sizeof(f));
	OK(flexio_process_call(process, fill_recv, NULL, daddr));
	dev_get(process, &f, daddr, sizeof(f));
	*qp = f.qp;
	OK(flexio_buf_dev_free(process, daddr));
}

/* ---- when a send completes ---- */

/* Of four that end well those that ask for it; one that fails always. */
static void completion_modes(void)
{
	for (uint32_t mode = MODE_FIRST; mode <= MODE_LAST; mode++) {
		bool always = mode >= CE_ALWAYS;
		struct work_op ops[4];
		struct work_cqe cqe;
		struct pair p;

		pair_open(&p);
		for (int i = 0; i < 4; i++) {
			ops[i] = op(SEG_WRITE, 8);
			ops[i].ce = mode;
		}
		ops[3].ce = CE_ALWAYS;
		cqe = run(&p.send, &p.a.work, ops, 4, always ? 4 : 1);
		CHECK(cqe.opcode == REQ && cqe.wqe_counter == (always ? 0 : 3));
		ops[0].lkey ^= 1 << 20;
		cqe = run(&p.send, &p.a.work, ops, 1, 1);
		CHECK(cqe.opcode == REQ_ERR && cqe.syndrome == PROT && cqe.wqe_counter == 4);
		pair_close(&p);
	}
}

/* ---- events ---- */

struct eqe {
	uint8_t reserved0[56];
	__be32 cqn;
	uint8_t reserved60[3];
	volatile uint8_t owner;
};

static struct mlx5dv_devx_eq *make_eq(uint8_t *number)
{
	uint8_t in[272] = { 0x03, 0x01 }, out[16];
	struct mlx5dv_devx_eq *eq;

	in[28] = 3; /* log_eq_size */
	eq = mlx5dv_devx_create_eq(ctx, in, sizeof(in), out, sizeof(out));
	CHECK(eq);
	*number = out[11];
	return eq;
}

static uint32_t events(const struct eqe *ring)
{
	uint32_t n = 0;

	while (n < 8 && !(ring[n].owner & 1))
		n++;
	return n;
}

/* The next completion of an armed CQ is an event, those behind it are none until it is armed again; one of zeros counts. */
static void armed_once(void)
{
	struct flexio_outbox_attr outbox_attr = { 0 };
	struct flexio_outbox *outbox;
	struct flexio_cq_attr attr = cq_attr(process, LOG);
	struct mlx5dv_devx_eq *eq;
	const struct eqe *ring;
	struct mlx5_cqe64 cqe;
	uint32_t cqn, id;
	uint8_t number;
	struct kit_cq cq;

	eq = make_eq(&number);
	ring = eq->vaddr;
	OK(flexio_outbox_create(process, &outbox_attr, &outbox));
	id = flexio_outbox_get_id(outbox);
	attr.element_type = FLEXIO_CQ_ELEMENT_TYPE_EXT_EQ;
	attr.emulated_eqn = number;
	cq_make(process, NULL, &attr, &cq);
	cqn = cq.work.number;
	CHECK(events(ring) == 0);
	CHECK(call2(zero, id, cqn) == 0);
	CHECK(events(ring) == 1 && be32toh(ring[0].cqn) == cqn);
	dev_get(process, &cqe, cq.work.ring, sizeof(cqe));
	CHECK(!cqe.byte_cnt && !cqe.wqe_counter && !cqe.sop_drop_qpn && !cqe.op_own);
	CHECK(call2(zero, id, cqn) == 0);
	CHECK(events(ring) == 1);
	CHECK(call2(arm, 2, cqn) == 0); /* behind what is there */
	CHECK(events(ring) == 1);
	CHECK(call2(zero, id, cqn) == 0);
	CHECK(events(ring) == 2);
	OK(flexio_cq_destroy(cq.cq));
	OK(flexio_outbox_destroy(outbox));
	CHECK(!mlx5dv_devx_destroy_eq(eq));
}

struct later {
	pthread_t thread;
	flexio_uintptr_t word;
	uint32_t outbox, number;
	uint64_t result;
};

static void *call_later(void *arg)
{
	struct later *l = arg;

	OK(flexio_process_call(process, ring_later, &l->result, l->outbox, l->word, l->number));
	return NULL;
}

/* An outbox that the host destroys rings nothing, also where a thread has it configured. */
static void destroyed_outbox(void)
{
	for (int destroy = 0; destroy < 2; destroy++) {
		struct flexio_outbox_attr attr = { 0 };
		struct later l = { .word = dev_alloc(process, 8) };
		struct flexio_outbox *outbox;
		struct pair p;

		pair_open(&p);
		OK(flexio_outbox_create(process, &attr, &outbox));
		l.outbox = flexio_outbox_get_id(outbox);
		l.number = p.a.work.number;
		CHECK(!pthread_create(&l.thread, NULL, call_later, &l));
		dev_await(process, l.word, 1);
		if (destroy)
			OK(flexio_outbox_destroy(outbox));
		dev_write(process, l.word, &(uint64_t){ 2 }, 8);
		CHECK(!pthread_join(l.thread, NULL));
		CHECK(l.result == (destroy ? ENODEV : 0));
		if (!destroy)
			OK(flexio_outbox_destroy(outbox));
		pair_close(&p);
	}
}

/* ---- queue pairs ---- */

/* What is deprecated or has no effect on RoCE may hold anything. */
static void unused_attributes(void)
{
	struct pair p;
	struct flexio_qp_attr attr, link;

	cq_simple(process, LOG, NULL, &p.send);
	cq_simple(process, LOG, NULL, &p.recv);
	attr = pair_attr(&p);
	attr.ops_flag = -1;
	qp_make(process, NULL, &attr, &p.a);
	attr = pair_attr(&p);
	qp_make(process, NULL, &attr, &p.b);
	link = qp_link(p.b.work.number, NULL);
	link.dest_mac = (uint8_t *)1;
	link.rlid = link.udp_sport = 0xffff;
	link.grh = link.isolate_vl_tc = 0xff;
	link.ops_flag = -1;
	qp_to_rts(p.a.qp, &link);
	link = qp_link(p.a.work.number, NULL);
	qp_to_rts(p.b.qp, &link);
	CHECK(one(&p.send, &p.a.work, op(SEG_WRITE, 8)).opcode == REQ);
	pair_close(&p);
}

/* The first packet has the number that is set here; one that the other side does not expect is never acknowledged. */
static void packet_numbers(void)
{
	struct flexio_qp_attr attr, to_a, to_b;
	struct work_cqe cqe;
	struct pair p;

	cq_simple(process, LOG, NULL, &p.send);
	cq_simple(process, LOG, NULL, &p.recv);
	attr = pair_attr(&p);
	qp_make(process, NULL, &attr, &p.a);
	attr = pair_attr(&p);
	qp_make(process, NULL, &attr, &p.b);
	to_b = qp_link(p.b.work.number, NULL);
	to_a = qp_link(p.a.work.number, NULL);
	fill(&p.b.work);
	to_b.next_send_psn = to_a.next_rcv_psn = 0xfffffe;
	to_b.next_rcv_psn = to_a.next_send_psn = 7;
	qp_to_rts(p.a.qp, &to_b);
	qp_to_rts(p.b.qp, &to_a);
	for (int i = 0; i < 4; i++) /* around the end of the numbers */
		CHECK(one(&p.send, &p.a.work, op(SEG_SEND, 8)).opcode == REQ);
	to_b.retry_count = 1;
	for (int i = 0; i < 2; i++) { /* numbers of the past, and of the future */
		qp_reset(p.a.qp);
		qp_reset(p.b.qp);
		p.a.work.pi = p.b.work.recv_pi = 0;
		fill(&p.b.work);
		to_b.next_send_psn = i ? 0x300 : 0x100;
		to_a.next_rcv_psn = 0x200;
		qp_to_rts(p.a.qp, &to_b);
		qp_to_rts(p.b.qp, &to_a);
		cqe = one(&p.send, &p.a.work, op(SEG_SEND, 8));
		CHECK(cqe.opcode == REQ_ERR && cqe.syndrome == RETRY);
	}
	pair_close(&p);
}

/* The syndrome of the next acknowledgement to a queue pair, as a sniffer sees it on the wire. */
static uint8_t sniff_syndrome(struct station *s, uint32_t qpn)
{
	uint8_t frame[STATION_SLOT], *bth;

	for (;;) {
		if (!station_take(s, frame))
			continue;
		bth = frame + 14 + (get16(frame + 12) == 0x0800 ? 20 : 40) +
		      (get16(frame + 12) == 0x8915 ? 0 : 8);
		if (bth[0] == 0x11 && (get32(bth + 4) & 0xffffff) == qpn)
			return bth[12];
	}
}

/* A SEND that finds no receive, and is not tried again: the time that the NAK asks for. */
static uint8_t asked_time(struct pair *p, struct station *s)
{
	struct flexio_qp_attr to_b = qp_link(p->b.work.number, NULL);
	struct work_cqe cqe;
	uint8_t syndrome;

	to_b.retry_count = 0;
	qp_reset(p->a.qp);
	p->a.work.pi = 0;
	qp_to_rts(p->a.qp, &to_b);
	cqe = one(&p->send, &p->a.work, op(SEG_SEND, 8));
	CHECK(cqe.opcode == REQ_ERR && cqe.syndrome == RNR);
	syndrome = sniff_syndrome(s, p->a.work.number);
	CHECK(syndrome >> 5 == 1); /* RNR NAK; the rest is its timer */
	return syndrome & 0x1f;
}

/* The timer of RNR NAKs: from the transition to RTR, and from then on where the optional mask names it. */
static void rnr_timer(void)
{
	struct ibv_flow_attr sniffer = { .type = IBV_FLOW_ATTR_SNIFFER,
					 .size = sizeof(sniffer),
					 .port = 1 };
	struct flexio_qp_attr_opt_param_mask mask = { 0 };
	struct flexio_qp_attr a, b, to_a;
	struct station s;
	struct pair p;

	station_open(&s, ibv_get_device_name(ctx->device), 0x020000000001);
	CHECK(!ibv_destroy_flow(s.flow));
	s.flow = ibv_create_flow(s.qp, &sniffer);
	CHECK(s.flow);
	cq_simple(process, LOG, NULL, &p.send);
	cq_simple(process, LOG, NULL, &p.recv);
	a = pair_attr(&p);
	b = pair_attr(&p);
	qp_make(process, NULL, &a, &p.a);
	qp_make(process, NULL, &b, &p.b);
	to_a = qp_link(p.a.work.number, NULL);
	to_a.min_rnr_nak_timer = 3;
	qp_to_rts(p.b.qp, &to_a);
	CHECK(asked_time(&p, &s) == 3);
	to_a.min_rnr_nak_timer = 17;
	OK(flexio_qp_modify(p.b.qp, &to_a, &mask));
	CHECK(asked_time(&p, &s) == 3);
	mask.min_rnr_nak_timer = true;
	OK(flexio_qp_modify(p.b.qp, &to_a, &mask));
	CHECK(asked_time(&p, &s) == 17);
	pair_close(&p);
	station_close(&s);
}

/* A queue pair uses keys of its own protection domain, and no others. */
static void domains(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	static uint64_t host[2];
	struct ibv_mr *mr = ibv_reg_mr(pd, host, sizeof(host), IBV_ACCESS_LOCAL_WRITE);
	struct flexio_qp_attr a, b;
	struct work_op o = op(SEG_LDMA, 8);
	struct work_cqe cqe;
	struct pair p;

	CHECK(pd && mr);
	cq_simple(process, LOG, NULL, &p.send);
	cq_simple(process, LOG, NULL, &p.recv);
	a = pair_attr(&p);
	b = pair_attr(&p);
	a.pd = pd;
	connect_pair(&p, &a, &b);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	host[0] = 0x1234;
	o.lkey = o.rkey = mr->lkey;
	o.laddr = (uintptr_t)&host[0];
	o.raddr = (uintptr_t)&host[1];
	o.to_len = 8;
	CHECK(one(&p.send, &p.a.work, o).opcode == REQ && host[1] == 0x1234);
	o.lkey = mem.key; /* of the process's domain */
	o.laddr = mem.addr;
	cqe = one(&p.send, &p.a.work, o);
	CHECK(cqe.opcode == REQ_ERR && cqe.syndrome == PROT);
	pair_close(&p);
	CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
}

/* A CQ for receives is not relevant where they come from an RMP: without one they complete where sends do. */
static void rmp_without_cq(void)
{
	struct flexio_wq_attr wq = {
		.log_wq_depth = LOG,
		.rq = { .wq_type = FLEXIO_WQ_TYPE_CYCLIC },
		.wq_ring_qmem = { .daddr = dev_alloc(process, 16 << LOG) },
		.wq_dbr_qmem = { .daddr = dev_alloc(process, 8) },
	};
	struct work_qp ring = { .rq = wq.wq_ring_qmem.daddr,
				.dbr = wq.wq_dbr_qmem.daddr,
				.log_rq = LOG,
				.stride = 16 };
	struct flexio_qp_attr a, b;
	struct flexio_rmp *rmp;
	struct kit_cq other;
	struct work_op o = op(SEG_SEND, 8);
	struct work_cqe cqe;
	struct pair p;

	OK(flexio_rmp_create(process, NULL, &wq, &rmp));
	cq_simple(process, LOG, NULL, &p.send);
	cq_simple(process, LOG, NULL, &p.recv);
	cq_simple(process, LOG, NULL, &other);
	a = pair_attr(&p);
	b = pair_attr(&p);
	b.sq_cqn = other.work.number;
	b.rq_cqn = 0;
	b.rq_type = FLEXIO_QP_QPC_RQ_TYPE_SRQ_RMP_XRC_SRQ_XRQ;
	b.rmpqn = flexio_rmp_get_wq_num(rmp);
	connect_pair(&p, &a, &b);
	fill(&ring);
	CHECK(one(&p.send, &p.a.work, o).opcode == REQ);
	cqe = run(&other, &ring, &o, 0, 1);
	CHECK(cqe.opcode == RESP_SEND && cqe.qpn == p.b.work.number && cqe.byte_cnt == 8);
	pair_close(&p);
	OK(flexio_cq_destroy(other.cq));
	OK(flexio_rmp_destroy(rmp));
}

/* Rows and columns have 7 bits: the eighth is none of theirs. */
static void matrix_bits(void)
{
	struct work_op o = op(SEG_TRANSPOSE, 4);
	struct work_cqe cqe;
	struct pair p;

	pair_open(&p);
	o.element = 1;
	o.rows = 2;
	o.cols = 0x80 | 2;
	o.to_len = 4;
	CHECK(one(&p.send, &p.a.work, o).opcode == REQ);
	o.rows = 0x80;
	o.len = o.to_len = 2 * 128;
	o.cols = 2;
	cqe = one(&p.send, &p.a.work, o);
	CHECK(cqe.opcode == REQ_ERR && cqe.syndrome == LENGTH);
	pair_close(&p);
}

/* ---- raw frames ---- */

#define MAC 0x0200fe0000a1ull

/* A frame for MAC at the start of the memory. */
static void put_frame(void)
{
	uint8_t frame[64] = { 0 };

	for (int i = 0; i < 6; i++)
		frame[i] = (uint8_t)(MAC >> (40 - 8 * i));
	frame[12] = 0x88;
	frame[13] = 0xb5;
	dev_write(process, mem.addr, frame, sizeof(frame));
}

static struct flexio_sq *make_sq(uint32_t cqn, struct flexio_sq_tis *tis, struct work_qp *work)
{
	struct flexio_wq_attr attr = {
		.log_wq_depth = LOG,
		.uar_id = flexio_uar_get_id(flexio_process_get_uar(process)),
		.sq = { .tis = tis },
		.wq_ring_qmem = { .daddr = dev_alloc(process, 64 << LOG) },
	};
	struct flexio_sq *sq;

	OK(flexio_sq_create(process, NULL, cqn, &attr, &sq));
	*work = (struct work_qp){ .sq = attr.wq_ring_qmem.daddr,
				  .number = flexio_sq_get_wq_num(sq),
				  .log_sq = LOG };
	return sq;
}

/* A send queue may complete in a CQ of the host. */
static void host_cq(void)
{
	struct ibv_cq *host = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct mlx5dv_cq dv;
	struct mlx5dv_obj obj = { .cq = { host, &dv } };
	struct kit_cq none = { 0 };
	struct mlx5_cqe64 *cqe;
	struct work_op o = op(SEG_SEND_EN, 64);
	struct work_qp work;
	struct flexio_sq *sq;

	CHECK(host && !mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
	sq = make_sq(dv.cqn, NULL, &work);
	put_frame();
	run(&none, &work, &o, 1, 0);
	cqe = dv.buf;
	CHECK(!mlx5dv_get_cqe_owner(cqe) && mlx5dv_get_cqe_opcode(cqe) == MLX5_CQE_REQ);
	CHECK((be32toh(cqe->sop_drop_qpn) & 0xffffff) == work.number);
	CHECK(ibv_destroy_cq(host) == EBUSY);
	OK(flexio_sq_destroy(sq));
	CHECK(!ibv_destroy_cq(host));
}

struct rule {
	struct mlx5dv_dr_domain *domain;
	struct mlx5dv_dr_table *table;
	struct mlx5dv_dr_matcher *matcher;
	struct mlx5dv_dr_action *action;
	struct mlx5dv_dr_rule *rule;
};

static void rule_open(struct rule *r, struct flexio_rq *rq)
{
	struct {
		size_t match_sz;
		uint8_t bytes[64];
	} mask = { .match_sz = 64 }, value = { .match_sz = 64 };

	for (int i = 0; i < 6; i++) {
		mask.bytes[8 + i] = 0xff;
		value.bytes[8 + i] = (uint8_t)(MAC >> (40 - 8 * i));
	}
	r->domain = mlx5dv_dr_domain_create(ctx, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	r->table = mlx5dv_dr_table_create(r->domain, 0);
	r->matcher = mlx5dv_dr_matcher_create(r->table, 0, 1, (void *)&mask);
	r->action = mlx5dv_dr_action_create_dest_devx_tir(flexio_rq_get_tir(rq));
	r->rule = mlx5dv_dr_rule_create(r->matcher, (void *)&value, 1, &r->action);
	CHECK(r->rule);
}

static void rule_close(struct rule *r)
{
	CHECK(!mlx5dv_dr_rule_destroy(r->rule) && !mlx5dv_dr_action_destroy(r->action));
	CHECK(!mlx5dv_dr_matcher_destroy(r->matcher) && !mlx5dv_dr_table_destroy(r->table));
	CHECK(!mlx5dv_dr_domain_destroy(r->domain));
}

/*
 * Without a domain a receive queue has one of its own, and so has a send queue without a TIS: frames get there. Of a send
 * queue in the domain of the receive queue they do not.
 */
static void transport_domains(bool named)
{
	struct flexio_wq_attr attr = {
		.log_wq_depth = LOG,
		.wq_ring_qmem = { .daddr = dev_alloc(process, 16 << LOG) },
		.wq_dbr_qmem = { .daddr = dev_alloc(process, 8) },
	};
	struct work_qp ring = { .rq = attr.wq_ring_qmem.daddr,
				.dbr = attr.wq_dbr_qmem.daddr,
				.log_rq = LOG,
				.stride = 16 };
	struct flexio_transport_domain *td;
	struct work_op o = op(SEG_SEND_EN, 64);
	struct work_qp inside, outside;
	struct flexio_sq *sq[2];
	struct flexio_sq_tis *tis;
	struct flexio_rq *rq;
	struct work_cqe cqe;
	struct rule rule;
	struct pair p;

	OK(flexio_transport_domain_create(ctx, &td));
	OK(flexio_sq_tis_create(ctx, td, &tis));
	cq_simple(process, LOG, NULL, &p.send);
	cq_simple(process, LOG, NULL, &p.recv);
	attr.rq.td = named ? td : NULL;
	OK(flexio_rq_create(process, NULL, p.recv.work.number, &attr, &rq));
	sq[0] = make_sq(p.send.work.number, tis, &inside);
	sq[1] = make_sq(p.send.work.number, NULL, &outside);
	rule_open(&rule, rq);
	fill(&ring);
	put_frame();
	CHECK(one(&p.send, &inside, o).opcode == REQ);
	o.len = 100;
	CHECK(one(&p.send, &outside, o).opcode == REQ);
	cqe = run(&p.recv, &ring, &o, 0, 1);
	CHECK(cqe.opcode == RESP_SEND && cqe.byte_cnt == (named ? 100 : 64));
	rule_close(&rule);
	OK(flexio_sq_destroy(sq[0]));
	OK(flexio_sq_destroy(sq[1]));
	OK(flexio_rq_destroy(rq));
	OK(flexio_sq_tis_destroy(tis));
	OK(flexio_transport_domain_destroy(td));
	OK(flexio_cq_destroy(p.send.cq));
	OK(flexio_cq_destroy(p.recv.cq));
}

/* ---- core files ---- */

/* Host memory that device code sees through a window is not in its core file; device memory is. */
static void no_windows(void)
{
	static uint64_t secret[512];
	const uint64_t mark = 0x5ec7e75ec7e7a55aull, known = 0x0b0d1ede0b0d1edeull;
	struct ibv_pd *pd = flexio_process_get_pd(process);
	struct ibv_mr *mr;
	struct flexio_window *window;
	flexio_uintptr_t daddr;
	uint64_t seen;
	char *core;
	FILE *file;
	long size;

	for (int i = 0; i < 512; i++)
		secret[i] = mark;
	mr = ibv_reg_mr(pd, secret, sizeof(secret), 0);
	CHECK(mr);
	OK(flexio_window_create(process, pd, &window));
	OK(flexio_copy_from_host(process, (void *)&known, 8, &daddr));
	OK(flexio_process_call(process, look, &seen, flexio_window_get_id(window), mr->lkey,
			       (uint64_t)secret));
	CHECK(seen == mark);
	OK(flexio_coredump_create(process, "windows"));
	CHECK(!system("mv windows.*.core windows.core"));
	file = fopen("windows.core", "r");
	CHECK(file && !fseek(file, 0, SEEK_END) && (size = ftell(file)) > 0);
	rewind(file);
	core = malloc((size_t)size);
	CHECK(core && fread(core, 1, (size_t)size, file) == (size_t)size);
	CHECK(memmem(core, (size_t)size, (uint64_t[]){ known }, 8));
	CHECK(!memmem(core, (size_t)size, (uint64_t[]){ mark, mark }, 16));
	free(core);
	fclose(file);
	CHECK(!unlink("windows.core"));
	OK(flexio_buf_dev_free(process, daddr));
	OK(flexio_window_destroy(window));
	CHECK(!ibv_dereg_mr(mr));
}

/* Where nothing can be written, a name without a slash in front leads to /tmp, any other one to nothing. */
static void crash_elsewhere(void)
{
	struct flexio_process *p;
	char folder[512];

	CHECK(getcwd(folder, sizeof(folder)));
	OK(flexio_process_create(ctx, sentences, NULL, &p));
	CHECK(flexio_process_call(p, fall, NULL) == FLEXIO_STATUS_FATAL_ERR);
	CHECK(!chdir("/proc"));
	OK(flexio_crash_data(p, "last-resort"));
	CHECK(flexio_crash_data(p, "/proc/last-resort") == FLEXIO_STATUS_FAILED);
	CHECK(!chdir(folder));
	CHECK(!system("rm /tmp/last-resort.*.crash"));
	OK(flexio_process_destroy(p));
}

int main(void)
{
	unsetenv("LD_PRELOAD"); /* a sanitizer's run-time is not for shells */
	ctx = open_device();
	OK(flexio_process_create(ctx, sentences, NULL, &process));
	mem_make(process, BUFFERS + (SIZE << LOG), &mem);
	work_daddr = dev_alloc(process, sizeof(struct work));
	completion_modes();
	armed_once();
	destroyed_outbox();
	unused_attributes();
	packet_numbers();
	rnr_timer();
	domains();
	rmp_without_cq();
	matrix_bits();
	host_cq();
	transport_domains(false);
	transport_domains(true);
	no_windows();
	crash_elsewhere();
	mem_end(&mem);
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
	return 0;
}
