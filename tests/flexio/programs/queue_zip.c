// SPDX-License-Identifier: MIT
/* Compressed completions: the same traffic to a compressed and to a plain CQ says the same, and is compressed. */
#include "queue_host.h"
#include "queue_kit.h"

#include <pthread.h>
#include <sys/wait.h>

#include "queue_zip.h"

extern struct flexio_app *zipdev;
extern flexio_func_t burst, prepare, react, pump, watch;

enum { LOG = 5, CQ_LOG = 6, SIZE = 128, ROUNDS = 1500, ARRAY = 7 };

static struct ibv_context *ctx;
static struct flexio_process *process;
static struct kit_mem mem;
static flexio_uintptr_t burst_daddr;

static uint32_t draw(uint32_t limit)
{
	static uint64_t state = 88172645463325252ull;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 33) % limit;
}

/* Two pairs of queue pairs with the same CQs: sends complete in send, receives in recv. */
struct side {
	struct kit_cq send, recv;
	struct kit_qp from[2], to[2];
	struct zip_burst z;
};

static void make_half(struct side *s, int pair, struct kit_qp *qp)
{
	struct flexio_qp_attr attr =
		qp_attr(process, LOG, LOG, s->send.work.number, s->recv.work.number);

	attr.user_index = 0x40 + (uint32_t)pair;
	qp_make(process, NULL, &attr, qp);
}

static void side_open(struct side *s, bool compressed, enum flexio_cqe_comp_format format,
		      uint32_t log)
{
	struct flexio_cq_attr send = cq_attr(process, log), recv = cq_attr(process, log);

	memset(s, 0, sizeof(*s));
	send.cqe_comp_type = recv.cqe_comp_type =
		compressed ? FLEXIO_CQE_COMP_ENABLE : FLEXIO_CQE_COMP_NONE;
	send.cqe_comp_format = recv.cqe_comp_format = format;
	cq_make(process, NULL, &send, &s->send);
	cq_make(process, NULL, &recv, &s->recv);
	for (int i = 0; i < 2; i++) {
		make_half(s, i, &s->from[i]);
		make_half(s, i, &s->to[i]);
		qp_pair(&s->from[i], &s->to[i]);
	}
	s->z = (struct zip_burst){ .send = { .cq = s->send.work, .compressed = compressed },
				   .recv = { .cq = s->recv.work,
					     .compressed = compressed,
					     .tagged = format == FLEXIO_CQE_FORMAT_RESP_FLOW_TAG },
				   .buffers = mem.addr + SIZE,
				   .size = SIZE,
				   .lkey = mem.key };
}

static void side_close(struct side *s)
{
	for (int i = 0; i < 2; i++) {
		OK(flexio_qp_destroy(s->from[i].qp));
		OK(flexio_qp_destroy(s->to[i].qp));
	}
	OK(flexio_cq_destroy(s->send.cq));
	OK(flexio_cq_destroy(s->recv.cq));
}

/* Mostly sends, some work that cannot be compressed, or is not received. */
static void draw_op(struct zip_burst *z)
{
	struct work_op *op = &z->ops[z->nops++];
	uint32_t kind = draw(24);

	*op = (struct work_op){ .type = SEG_SEND,
				.ce = draw(8) ? CE_ALWAYS : CE_ERROR,
				.lkey = mem.key,
				.rkey = mem.key,
				.laddr = mem.addr,
				.raddr = mem.addr,
				.len = draw(SIZE) + 1 };
	if (kind == 0) {
		op->type = SEG_WRITE;
	} else if (kind == 1) {
		op->type = SEG_WRITE_IMM;
		op->imm = draw(3);
	} else if (kind == 2) {
		op->opcode = MLX5_OPCODE_SEND_IMM;
		op->imm = draw(3);
	} else if (kind == 3) {
		op->type = SEG_NOP;
	} else if (kind == 4) {
		op->has_inline = 1;
		op->len = 8;
	}
	z->sends += op->ce == CE_ALWAYS;
	z->receives += op->type != SEG_WRITE && op->type != SEG_NOP;
}

static void run(struct side *s, int pair, const struct zip_burst *what)
{
	uint64_t good;

	memcpy(s->z.ops, what->ops, sizeof(what->ops));
	s->z.nops = what->nops;
	s->z.sends = what->sends;
	s->z.receives = what->receives;
	s->z.from = s->from[pair].work;
	s->z.to = s->to[pair].work;
	dev_write(process, burst_daddr, &s->z, sizeof(s->z));
	OK(flexio_process_call(process, burst, &good, burst_daddr));
	CHECK(good);
	dev_get(process, &s->z, burst_daddr, sizeof(s->z));
	s->from[pair].work = s->z.from;
	s->to[pair].work = s->z.to;
}

/* The last completions of both, with numbers of queue pairs that stand for the same. */
static void compare(const struct zip_cq *a, uint32_t a_qpn, const struct zip_cq *b, uint32_t b_qpn,
		    uint32_t number)
{
	CHECK(a->seen == b->seen && a->cq.ci == b->cq.ci);
	for (uint64_t i = a->seen - number; i < a->seen; i++) {
		struct work_cqe one = a->cqes[i % ZIP_SEEN], two = b->cqes[i % ZIP_SEEN];

		CHECK(one.qpn == a_qpn && two.qpn == b_qpn);
		one.qpn = two.qpn = 0;
		two.validity = one.validity;
		CHECK(!memcmp(&one, &two, sizeof(one)));
	}
}

static void run_both(struct side *zipped, struct side *plain, int pair, struct zip_burst *what)
{
	run(zipped, pair, what);
	run(plain, pair, what);
	compare(&zipped->z.send, zipped->from[pair].work.number, &plain->z.send,
		plain->from[pair].work.number, what->sends);
	compare(&zipped->z.recv, zipped->to[pair].work.number, &plain->z.recv,
		plain->to[pair].work.number, what->receives);
}

/* More turns of the ring than the validity byte can count, in bursts of every size. */
static void same(enum flexio_cqe_comp_format format, uint32_t rounds)
{
	struct side zipped, plain;
	struct zip_burst what;
	struct kit_log log;

	side_open(&zipped, true, format, CQ_LOG);
	side_open(&plain, false, format, CQ_LOG);
	log_begin(&log);
	for (uint32_t i = 0; i < rounds; i++) {
		uint32_t number = 1 + draw(WORK_OPS - 1);

		memset(&what, 0, sizeof(what));
		while (what.nops < number)
			draw_op(&what);
		run_both(&zipped, &plain, (int)draw(2), &what);
	}
	CHECK(log_end(&log, "error") == 0);
	CHECK(zipped.z.send.arrays > rounds && plain.z.send.arrays == 0);
	CHECK(zipped.z.recv.arrays > rounds && plain.z.recv.arrays == 0);
	CHECK(zipped.z.recv.arrays * 2 < zipped.z.recv.seen);
	if (rounds >= ROUNDS)
		CHECK(zipped.z.recv.cq.ci >> CQ_LOG > 256);
	side_close(&zipped);
	side_close(&plain);
}

static void sends(struct zip_burst *what, uint32_t number)
{
	memset(what, 0, sizeof(*what));
	for (uint32_t i = 0; i < number; i++)
		what->ops[i] = (struct work_op){ .type = SEG_SEND,
						 .ce = CE_ALWAYS,
						 .lkey = mem.key,
						 .laddr = mem.addr,
						 .len = i + 1 };
	what->nops = what->sends = what->receives = number;
}

/* Entries that every turn skips do not become valid when the byte comes round. */
static void skipped(void)
{
	struct zip_burst what;
	struct side s;

	side_open(&s, true, FLEXIO_CQE_FORMAT_RESP_BYTECOUNT_HASH, 3);
	for (uint32_t turn = 0; turn < 600; turn++) {
		sends(&what, turn % 256 == 255 ? 1 : 1 + ARRAY);
		for (uint32_t i = 0; i < (turn % 256 == 255 ? 1u + ARRAY : 1); i++)
			run(&s, 0, &what);
		CHECK(s.z.recv.cq.ci == (turn + 1) * (1 + ARRAY));
	}
	CHECK(s.z.recv.arrays == 598 && s.z.send.arrays == 598);
	side_close(&s);
}

/* Rings that are smaller than an array. */
static void tiny(void)
{
	struct zip_burst what;
	struct side s;

	for (uint32_t log = 0; log < 3; log++) {
		side_open(&s, true, FLEXIO_CQE_FORMAT_RESP_BYTECOUNT_HASH, log);
		for (uint32_t i = 0; i < 20; i++) {
			sends(&what, 1 + i % (1u << log));
			run(&s, 0, &what);
		}
		side_close(&s);
	}
}

/* An error in the middle of a burst: what was before it, it, and what is flushed. */
static void errors(void)
{
	struct zip_burst what;
	struct side zipped, plain;

	side_open(&zipped, true, FLEXIO_CQE_FORMAT_RESP_BYTECOUNT_HASH, CQ_LOG);
	side_open(&plain, false, FLEXIO_CQE_FORMAT_RESP_BYTECOUNT_HASH, CQ_LOG);
	sends(&what, 12);
	what.ops[ARRAY].lkey = 0x1234;
	what.receives = ARRAY;
	run_both(&zipped, &plain, 0, &what);
	CHECK(zipped.z.send.cqes[ARRAY].syndrome == 0x04 &&
	      zipped.z.send.cqes[11].syndrome == 0x05);
	CHECK(zipped.z.send.arrays == 1 && zipped.z.recv.arrays == 1);
	side_close(&zipped);
	side_close(&plain);
}

/* ---- event handlers ---- */

/* A handler on a compressed CQ that takes what `qp` receives. */
struct taker {
	struct flexio_event_handler *handler;
	struct kit_cq send, recv;
	struct kit_qp qp;
	flexio_uintptr_t daddr;
};

/* How completions become events. */
enum arming { ARMED, ALWAYS_ARMED, MODERATED };

static void taker_open(struct taker *t, enum arming arming)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = react };
	struct flexio_cq_attr recv = cq_attr(process, CQ_LOG);
	struct flexio_qp_attr qp;

	OK(flexio_event_handler_create(process, &attr, &t->handler));
	recv.element_type = FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD;
	recv.thread = flexio_event_handler_get_thread(t->handler);
	recv.cqe_comp_type = FLEXIO_CQE_COMP_ENABLE;
	recv.always_armed = arming == ALWAYS_ARMED;
	if (arming == MODERATED) {
		recv.cq_max_count = 5;
		recv.cq_period = 300;
	}
	cq_make(process, NULL, &recv, &t->recv);
	cq_simple(process, CQ_LOG, NULL, &t->send);
	qp = qp_attr(process, LOG, LOG, t->send.work.number, t->recv.work.number);
	qp_make(process, NULL, &qp, &t->qp);
}

static void taker_run(struct taker *t)
{
	struct zip_handler state = { .recv = { .cq = t->recv.work, .compressed = 1 },
				     .qp = t->qp.work,
				     .buffers = mem.addr + SIZE,
				     .size = SIZE,
				     .lkey = mem.key };

	t->daddr = dev_alloc(process, sizeof(state));
	dev_write(process, t->daddr, &state, sizeof(state));
	OK(flexio_process_call(process, prepare, NULL, t->daddr));
	OK(flexio_event_handler_run(t->handler, t->daddr));
}

static void taker_await(struct taker *t, uint64_t handled)
{
	dev_await(process, t->daddr + offsetof(struct zip_handler, handled), handled);
}

static void taker_close(struct taker *t, uint64_t handled, uint64_t bytes)
{
	struct zip_handler state;

	taker_await(t, handled);
	dev_get(process, &state, t->daddr, sizeof(state));
	CHECK(state.handled == handled && state.bytes == bytes && state.recv.arrays > 0);
	OK(flexio_qp_destroy(t->qp.qp));
	OK(flexio_cq_destroy(t->send.cq));
	OK(flexio_cq_destroy(t->recv.cq));
	OK(flexio_event_handler_destroy(t->handler));
}

/* Events come for everything, and nothing is still to be written when they do. */
static void events(enum arming arming)
{
	uint64_t handled = 0, bytes = 0;
	struct zip_burst z;
	struct taker t;
	struct side s;

	side_open(&s, false, FLEXIO_CQE_FORMAT_RESP_BYTECOUNT_HASH, CQ_LOG);
	taker_open(&t, arming);
	OK(flexio_qp_destroy(s.from[0].qp));
	make_half(&s, 0, &s.from[0]);
	qp_pair(&s.from[0], &t.qp);
	taker_run(&t);
	for (uint32_t round = 0; round < 200; round++) {
		sends(&z, 1 + draw(20));
		for (uint32_t i = 0; i < z.nops; i++)
			bytes += z.ops[i].len;
		handled += z.nops;
		z.receives = 0;
		run(&s, 0, &z);
		if (round % 3 == 0)
			taker_await(&t, handled);
	}
	taker_close(&t, handled, bytes);
	side_close(&s);
}

/* ---- two senders at a time ---- */

enum { BURSTS = 96 };

static void *pump_main(void *daddr)
{
	uint64_t sent = 0;

	for (uint32_t i = 0; i < BURSTS; i++)
		OK(flexio_process_call(process, pump, &sent, (uint64_t)(uintptr_t)daddr,
				       1 + i % 16));
	return (void *)(uintptr_t)sent;
}

/* Both complete in one CQ; the order of each is kept. */
static void together(void)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = watch };
	struct flexio_cq_attr cq = cq_attr(process, CQ_LOG);
	flexio_uintptr_t daddr = dev_alloc(process, sizeof(struct zip_watch));
	struct zip_watch state = { 0 };
	struct flexio_event_handler *handler;
	struct kit_qp qp[2];
	struct kit_cq kit;
	pthread_t thread[2];
	void *sent;

	OK(flexio_event_handler_create(process, &attr, &handler));
	cq.element_type = FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD;
	cq.thread = flexio_event_handler_get_thread(handler);
	cq.cqe_comp_type = FLEXIO_CQE_COMP_ENABLE;
	cq_make(process, NULL, &cq, &kit);
	for (int i = 0; i < 2; i++) {
		struct flexio_qp_attr one =
			qp_attr(process, LOG, LOG, kit.work.number, kit.work.number);

		qp_make(process, NULL, &one, &qp[i]);
		state.qpn[i] = qp[i].work.number;
	}
	qp_pair(&qp[0], &qp[1]);
	state.send = (struct zip_cq){ .cq = kit.work, .compressed = 1 };
	dev_write(process, daddr, &state, sizeof(state));
	OK(flexio_event_handler_run(handler, daddr));
	for (uint64_t i = 0; i < 2; i++) {
		struct zip_pump p = { .qp = qp[i].work,
				      .done = daddr + offsetof(struct zip_watch, done) + i * 8,
				      .op = { .type = SEG_WRITE,
					      .ce = CE_ALWAYS,
					      .lkey = mem.key,
					      .rkey = mem.key,
					      .laddr = mem.addr,
					      .raddr = mem.addr + (1 + i) * SIZE,
					      .len = 16 } };
		flexio_uintptr_t at = dev_alloc(process, sizeof(p));

		dev_write(process, at, &p, sizeof(p));
		CHECK(!pthread_create(&thread[i], NULL, pump_main, (void *)(uintptr_t)at));
	}
	for (int i = 0; i < 2; i++) {
		CHECK(!pthread_join(thread[i], &sent));
		CHECK((uintptr_t)sent == BURSTS / 16 * (16 * 17 / 2));
	}
	dev_get(process, &state, daddr, sizeof(state));
	CHECK(!state.wrong && state.done[0] == state.done[1] && state.send.arrays > 0);
	OK(flexio_qp_destroy(qp[0].qp));
	OK(flexio_qp_destroy(qp[1].qp));
	OK(flexio_cq_destroy(kit.cq));
	OK(flexio_event_handler_destroy(handler));
}

/* ---- from another process ---- */

enum { LISTS = 200, LIST = 16 };

/* Lists of sends, as fast as they go. */
static void peer_main(int fd)
{
	struct ibv_send_wr wr[LIST] = { 0 }, *wrong;
	struct ibv_sge sge[LIST];
	struct ibv_wc wc;
	struct peer p;
	char c;

	peer_open(&p, fd);
	for (uint32_t i = 0; i < LISTS; i++) {
		for (uint32_t j = 0; j < LIST; j++) {
			sge[j] = (struct ibv_sge){ (uintptr_t)p.buf, j + 1, p.mr->lkey };
			wr[j] = (struct ibv_send_wr){ .opcode = IBV_WR_SEND,
						      .sg_list = &sge[j],
						      .num_sge = 1,
						      .next = j + 1 < LIST ? &wr[j + 1] : NULL };
		}
		wr[LIST - 1].send_flags = IBV_SEND_SIGNALED;
		CHECK(!ibv_post_send(p.qp, wr, &wrong));
		while (!ibv_poll_cq(p.cq, 1, &wc))
			;
		CHECK(wc.status == IBV_WC_SUCCESS);
	}
	hear(fd, &c, 1);
	_exit(0);
}

static void across(int fd)
{
	struct hello self, other;
	struct flexio_qp_attr link;
	struct taker t;
	char c;

	taker_open(&t, ARMED);
	self = (struct hello){ .qpn = t.qp.work.number };
	CHECK(!ibv_query_gid(ctx, 1, 0, &self.gid));
	hear(fd, &other, sizeof(other));
	link = qp_link(other.qpn, &other.gid);
	qp_to_rts(t.qp.qp, &link);
	taker_run(&t);
	tell(fd, &self, sizeof(self));
	hear(fd, &c, 1);
	taker_await(&t, LISTS * LIST);
	tell(fd, "d", 1);
	taker_close(&t, LISTS * LIST, LISTS * LIST * (LIST + 1) / 2);
}

int main(void)
{
	int fds[2], status;
	pid_t pid;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	pid = fork();
	if (!pid) {
		close(fds[0]);
		peer_main(fds[1]);
	}
	close(fds[1]);
	ctx = open_device();
	OK(flexio_process_create(ctx, zipdev, NULL, &process));
	mem_make(process, SIZE * (1 + (1 << LOG)), &mem);
	burst_daddr = dev_alloc(process, sizeof(struct zip_burst));
	same(FLEXIO_CQE_FORMAT_RESP_BYTECOUNT_HASH, ROUNDS);
	same(FLEXIO_CQE_FORMAT_RESP_BYTECOUNT_CKSUM, 40);
	same(FLEXIO_CQE_FORMAT_RESP_BYTECOUNT_CKSUM_STRIDE_INDEX, 40);
	same(FLEXIO_CQE_FORMAT_RESP_FLOW_TAG, 40);
	same(FLEXIO_CQE_FORMAT_RESP_L3_L4_INFO, 40);
	skipped();
	tiny();
	errors();
	events(ARMED);
	events(ALWAYS_ARMED);
	events(MODERATED);
	together();
	across(fds[0]);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	mem_end(&mem);
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
	return 0;
}
