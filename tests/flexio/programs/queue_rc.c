// SPDX-License-Identifier: MIT
/*
 * Two RC queue pairs of device code, connected to each other: every operation, data verified, then messages that wake
 * an event handler. Once with each form of the device library.
 */
#include "queue_kit.h"

extern struct flexio_app *ops, *old;
extern flexio_func_t run_work, run_work_old, fill_recv, fill_recv_old, receive, receive_old;

enum { LOG = 6, SIZE = 4096, MESSAGES = 500 };

struct forms {
	struct flexio_app *app;
	flexio_func_t *work, *fill, *receive;
};

struct setup {
	struct flexio_process *process;
	const struct forms *forms;
	struct kit_cq send_cq, recv_cq;
	struct kit_qp a, b;
	struct kit_mem mem;
	flexio_uintptr_t daddr;
	struct work work;
};

static struct work_op op(const struct setup *s, uint32_t type, uint64_t from, uint64_t to,
			 uint32_t len)
{
	return (struct work_op){ .type = type,
				 .ce = CE_ALWAYS,
				 .lkey = s->mem.key,
				 .rkey = s->mem.key,
				 .laddr = s->mem.addr + from,
				 .raddr = s->mem.addr + to,
				 .len = len };
}

/* One operation, one completion. */
static struct work_cqe one(struct setup *s, struct work_op o)
{
	s->work.ops[0] = o;
	s->work.nops = s->work.expect = 1;
	work_run(s->process, s->forms->work, s->daddr, &s->work);
	CHECK(s->work.os_errno == 0);
	return s->work.cqes[0];
}

static void expect_bytes(struct setup *s, uint64_t at, const void *bytes, size_t size)
{
	char copy[SIZE];

	dev_get(s->process, copy, s->mem.addr + at, size);
	CHECK(!memcmp(copy, bytes, size));
}

static void one_sided(struct setup *s)
{
	struct work_cqe cqe;
	struct work_op o;
	char text[512];
	uint64_t word = 40;

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (char)(i * 7);
	dev_write(s->process, s->mem.addr, text, sizeof(text));
	cqe = one(s, op(s, SEG_WRITE, 0, 1024, sizeof(text)));
	CHECK(cqe.opcode == 0 && cqe.wqe_counter == 0 && cqe.qpn == s->a.work.number);
	CHECK(cqe.user_index == 0xabc);
	expect_bytes(s, 1024, text, sizeof(text));
	one(s, op(s, SEG_READ, 2048, 1024, sizeof(text)));
	expect_bytes(s, 2048, text, sizeof(text));
	cqe = one(s, op(s, SEG_NOP, 0, 0, 0));
	CHECK(cqe.opcode == 0 && cqe.wqe_counter == 2);

	dev_write(s->process, s->mem.addr + 3072, &word, 8);
	o = op(s, SEG_FAA, 3080, 3072, 8);
	o.swap_add = 2;
	one(s, o);
	expect_bytes(s, 3080, &word, 8);
	word = 42;
	expect_bytes(s, 3072, &word, 8);
	o = op(s, SEG_CAS, 3080, 3072, 8);
	o.compare = 42;
	o.swap_add = 7;
	one(s, o);
	expect_bytes(s, 3080, &word, 8);
	word = 7;
	expect_bytes(s, 3072, &word, 8);

	o = op(s, SEG_WRITE, 0, 3200, 12);
	o.has_inline = 1;
	memcpy(o.inlined, "hello, card", 12);
	one(s, o);
	expect_bytes(s, 3200, "hello, card", 12);
}

/* Only the last of many completes, with the index of its first block. */
static void batch(struct setup *s)
{
	uint32_t first = s->work.qp.pi;

	for (uint32_t i = 0; i < WORK_OPS; i++) {
		s->work.ops[i] = op(s, SEG_WRITE, 0, 1024 + 8 * i, 8);
		s->work.ops[i].ce = i == WORK_OPS - 1 ? CE_ALWAYS : CE_ERROR;
	}
	s->work.nops = WORK_OPS;
	s->work.expect = 1;
	work_run(s->process, s->forms->work, s->daddr, &s->work);
	CHECK(s->work.cqes[0].wqe_counter == ((first + WORK_OPS - 1) & 0xffff));
}

/* Receives, and a write with immediate data, polled. */
static void two_sided(struct setup *s)
{
	struct work_handler fill = {
		.qp = s->b.work, .buffers = s->mem.addr + SIZE, .size = 64, .lkey = s->mem.key
	};
	flexio_uintptr_t daddr = dev_alloc(s->process, sizeof(fill));
	struct work look = { .cq = s->recv_cq.work };
	struct work_op o = op(s, SEG_SEND, 0, 0, 64);

	dev_write(s->process, daddr, &fill, sizeof(fill));
	OK(flexio_process_call(s->process, s->forms->fill, NULL, daddr));
	one(s, o);
	o = op(s, SEG_WRITE_IMM, 0, 1024, 16);
	o.imm = htobe32(4711);
	one(s, o);
	look.expect = 2;
	work_run(s->process, s->forms->work, s->daddr, &look);
	CHECK(look.cqes[0].opcode == 2 && look.cqes[0].byte_cnt == 64);
	CHECK(look.cqes[0].user_index == 0xdef && look.cqes[0].qpn == s->b.work.number);
	CHECK(look.cqes[1].opcode == 1 && look.cqes[1].imm == htobe32(4711));
	CHECK(look.cqes[1].byte_cnt == 16 && look.cqes[1].wqe_counter == 1);
	dev_get(s->process, &fill, daddr, sizeof(fill));
	s->b.work = fill.qp;
	s->recv_cq.work = look.cq;
}

static void open_setup(struct setup *s, struct ibv_context *ctx, const struct forms *forms,
		       struct flexio_event_handler **handler)
{
	struct flexio_event_handler_attr handler_attr = { .host_stub_func = forms->receive };
	struct flexio_qp_attr attr;

	memset(s, 0, sizeof(*s));
	s->forms = forms;
	OK(flexio_process_create(ctx, forms->app, NULL, &s->process));
	if (handler)
		OK(flexio_event_handler_create(s->process, &handler_attr, handler));
	cq_simple(s->process, LOG, NULL, &s->send_cq);
	cq_simple(s->process, LOG, handler ? *handler : NULL, &s->recv_cq);
	attr = qp_attr(s->process, LOG, LOG, s->send_cq.work.number, s->recv_cq.work.number);
	attr.user_index = 0xabc;
	qp_make(s->process, NULL, &attr, &s->a);
	attr = qp_attr(s->process, LOG, LOG, s->send_cq.work.number, s->recv_cq.work.number);
	attr.user_index = 0xdef;
	qp_make(s->process, NULL, &attr, &s->b);
	qp_pair(&s->a, &s->b);
	mem_make(s->process, 2 * SIZE + 64 * 64, &s->mem);
	s->daddr = dev_alloc(s->process, sizeof(s->work));
	s->work.cq = s->send_cq.work;
	s->work.qp = s->a.work;
}

static void close_setup(struct setup *s, struct flexio_event_handler *handler)
{
	/* What is in use is not destroyed. */
	CHECK(flexio_process_destroy(s->process) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_cq_destroy(s->recv_cq.cq) == FLEXIO_STATUS_FAILED);
	if (handler)
		CHECK(flexio_event_handler_destroy(handler) == FLEXIO_STATUS_FAILED);
	OK(flexio_qp_destroy(s->a.qp));
	CHECK(flexio_cq_destroy(s->recv_cq.cq) == FLEXIO_STATUS_FAILED);
	OK(flexio_qp_destroy(s->b.qp));
	CHECK(flexio_qp_destroy(s->b.qp) == FLEXIO_STATUS_FAILED);
	OK(flexio_cq_destroy(s->recv_cq.cq));
	OK(flexio_cq_destroy(s->send_cq.cq));
	if (handler)
		OK(flexio_event_handler_destroy(handler));
	mem_end(&s->mem);
	OK(flexio_process_destroy(s->process));
}

/* Each message wakes the handler; some come while it runs. */
static void woken(struct ibv_context *ctx, const struct forms *forms)
{
	struct flexio_event_handler *handler;
	struct work_handler state;
	flexio_uintptr_t daddr;
	struct setup s;
	uint64_t sum = 0;

	open_setup(&s, ctx, forms, &handler);
	state = (struct work_handler){ .cq = s.recv_cq.work,
				       .qp = s.b.work,
				       .buffers = s.mem.addr + SIZE,
				       .size = 64,
				       .lkey = s.mem.key,
				       .uidx = 0xdef };
	daddr = dev_alloc(s.process, sizeof(state));
	dev_write(s.process, daddr, &state, sizeof(state));
	OK(flexio_process_call(s.process, forms->fill, NULL, daddr));
	OK(flexio_event_handler_run(handler, daddr));
	for (uint64_t i = 0; i < MESSAGES; i++) {
		sum += i;
		dev_write(s.process, s.mem.addr, &i, 8);
		one(&s, op(&s, SEG_SEND, 0, 0, 64));
	}
	dev_await(s.process, daddr + offsetof(struct work_handler, handled), MESSAGES);
	dev_get(s.process, &state, daddr, sizeof(state));
	CHECK(state.handled == MESSAGES && state.sum == sum && state.errors == 0);
	CHECK(state.runs > 0 && state.runs <= MESSAGES + 1);
	close_setup(&s, handler);
}

int main(void)
{
	const struct forms forms[] = {
		{ ops, run_work, fill_recv, receive },
		{ old, run_work_old, fill_recv_old, receive_old },
	};
	struct ibv_context *ctx = open_device();

	for (int i = 0; i < 2; i++) {
		struct setup s;

		open_setup(&s, ctx, &forms[i], NULL);
		one_sided(&s);
		batch(&s);
		two_sided(&s);
		close_setup(&s, NULL);
		woken(ctx, &forms[i]);
	}
	CHECK(!ibv_close_device(ctx));
	return 0;
}
