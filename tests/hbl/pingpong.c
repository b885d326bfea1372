// SPDX-License-Identifier: MIT
/*
 * Ping-pong between hbl_0 and hbl_1 in two processes, data verified: sizes from nothing to several packets, on one or many
 * QPs, on one or several ports.
 *
 * usage: pingpong QPS PORTS ROUNDS
 */
#include "hbl.h"

enum { MAX_QPS = 512, MAX_PORTS = 4, SLOT = 64 << 10 };

static int qps, ports, rounds;

static const uint32_t sizes[] = { 0, 1, 7, 64, 4096, 8192, 8193, 20000, SLOT };

struct side {
	struct dev dev;
	struct mem out, in;
	struct fifo fifo[MAX_PORTS];
	struct cq req[MAX_PORTS], res[MAX_PORTS];
	struct end end[MAX_QPS];
	struct address own[MAX_QPS], peer[MAX_QPS];
};

static struct side s;

/* QPs of a port share its two CQs: a port has 14. */
static void make_end(struct end *end, int port)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = (uint8_t)(port + 1) };
	struct hbldv_qp_attr hbl = { .wq_type = HBLDV_WQ_WRITE };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
					 .send_cq = s.req[port].ibv,
					 .recv_cq = s.res[port].ibv,
					 .cap.max_send_wr = 16 };

	*end = (struct end){ .dev = &s.dev, .port = (uint32_t)port + 1, .wqes = 16 };
	end->qp = ibv_create_qp(s.dev.pd, &attr);
	CHECK(end->qp);
	CHECK(!hbldv_modify_qp(end->qp, &init,
			       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
			       &hbl));
	CHECK(!hbldv_query_qp(end->qp, &end->q));
}

static void set_up(int number, int fd)
{
	dev_open(&s.dev, number);
	mem_device(&s.out, &s.dev, SLOT);
	mem_host(&s.in, &s.dev, (size_t)qps * SLOT);
	for (int p = 0; p < ports; p++) {
		set_port(&s.dev, (uint32_t)p + 1);
		hbl_cq_create(&s.req[p], &s.dev, (uint32_t)p + 1, 1024);
		hbl_cq_create(&s.res[p], &s.dev, (uint32_t)p + 1, 1024);
	}
	for (int i = 0; i < qps; i++) {
		make_end(&s.end[i], i % ports);
		hbl_end_address(&s.end[i], &s.own[i]);
		s.own[i].va = s.in.va + (uint64_t)i * SLOT;
	}
	tell(fd, s.own, (size_t)qps * sizeof(s.own[0]));
	hear(fd, s.peer, (size_t)qps * sizeof(s.peer[0]));
	for (int i = 0; i < qps; i++)
		hbl_end_connect(&s.end[i], &s.peer[i], NULL);
	for (int p = 0; p < ports; p++)
		fifo_create(&s.fifo[p], &s.dev, (uint32_t)p + 1, HBLDV_USR_FIFO_TYPE_DB);
	meet(fd);
}

static void send_one(int i, uint32_t round)
{
	uint32_t size = sizes[round % (sizeof(sizes) / sizeof(sizes[0]))];
	struct cqe cqe;

	fill(s.out.host, size, round);
	hbl_end_write(&s.end[i], &s.fifo[i % ports], s.out.va, s.peer[i].va, size, round);
	hbl_cq_wait(&s.req[i % ports], &cqe);
	CHECK(cqe.requester && cqe.qpn == s.end[i].q.qp_num && cqe.tag == ~round);
	CHECK(cqe.size == size);
}

static void receive_one(int i, uint32_t round)
{
	uint32_t size = sizes[round % (sizeof(sizes) / sizeof(sizes[0]))];
	struct cqe cqe;

	hbl_cq_wait(&s.res[i % ports], &cqe);
	CHECK(!cqe.requester && cqe.qpn == s.end[i].q.qp_num && cqe.tag == round);
	CHECK(cqe.size == size);
	CHECK(is_filled((char *)s.in.host + (size_t)i * SLOT, size, round));
}

static void side(int number, int fd)
{
	set_up(number, fd);
	for (int round = 0; round < rounds; round++) {
		int i = round % qps;

		if (!number)
			send_one(i, 2 * (uint32_t)round);
		receive_one(i, 2 * (uint32_t)round + (number ? 0 : 1));
		if (number)
			send_one(i, 2 * (uint32_t)round + 1);
	}
	meet(fd);
	CHECK(no_event(&s.dev));
	for (int p = 0; p < ports; p++)
		CHECK(!hbldv_destroy_usr_fifo(s.fifo[p].usr));
	for (int i = 0; i < qps; i++)
		CHECK(!ibv_destroy_qp(s.end[i].qp));
	for (int p = 0; p < ports; p++) {
		CHECK(!ibv_destroy_cq(s.req[p].ibv));
		CHECK(!ibv_destroy_cq(s.res[p].ibv));
	}
	mem_free(&s.out);
	mem_free(&s.in);
	dev_close(&s.dev);
}

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	qps = atoi(argv[1]);
	ports = atoi(argv[2]);
	rounds = atoi(argv[3]);
	CHECK(qps > 0 && qps <= MAX_QPS && ports > 0 && ports <= MAX_PORTS && rounds >= qps);
	return run_pair(side);
}
