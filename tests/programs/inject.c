// SPDX-License-Identifier: MIT
/*
 * verbatim inject, as a program sees it: ports, queue pairs, devices and creations that fail because
 * somebody outside of it, or a script, wants them to; and who and what is refused.
 */
#include "end.h"
#include "station.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WR_SEND = 100, WR_RECV = 200, LEN = 4096 };

/* Retries for some seconds: what is sent while the port is down gets through when it is up again. */
static struct node_attr patient(enum ibv_qp_type type)
{
	struct node_attr attr = node_attr(type);

	attr.timeout = 18;
	attr.retry_cnt = 7;
	return attr;
}

static pid_t pid_of(const struct end *end)
{
	return end->place == HERE ? getpid() : end->pid;
}

/* `verbatim inject --pid PID mlx5_0 WORDS`; 0: of all. Its exit code. */
static int inject(pid_t pid, const char *fault)
{
	char command[512], option[32] = "";
	int status;

	if (pid)
		snprintf(option, sizeof(option), "--pid %d ", (int)pid);
	snprintf(command, sizeof(command), "exec %s inject %s%s >/dev/null 2>&1",
		 getenv("VERBATIM_TEST_TOOL"), option, fault);
	status = system(command);
	check(WIFEXITED(status), "%s: status 0x%x", command, status);
	return WEXITSTATUS(status);
}

static const char *card(void)
{
	const char *name = getenv("VERBATIM_TEST_DEVICE");

	return name && *name ? name : "mlx5_0";
}

#define inject_at(end, ...) inject_line(__LINE__, end, __VA_ARGS__)

static void inject_line(int line, const struct end *end, const char *format, uint32_t number)
{
	char what[128], fault[192];

	snprintf(what, sizeof(what), format, number);
	snprintf(fault, sizeof(fault), "%s %s", card(), what);
	check(inject(pid_of(end), fault) == 0, "line %d: %s", line, fault);
}

static enum ibv_port_state port_state(const struct end *end)
{
	struct ibv_port_attr attr;

	check_eq(ibv_query_port(end->node->ctx, 1, &attr), 0);
	return attr.state;
}

/* --- ports --------------------------------------------------------------------------------------- */

static void expect_nothing(struct end *end, enum end_queue queue)
{
	struct ibv_wc wc;

	check(!end_poll(end, queue, &wc, 30), "a completion of wr_id %llu, status %d",
	      (unsigned long long)wc.wr_id, wc.status);
}

/* A SEND waits while the sender's port is down, arrives once when it is up. */
static void port_of_sender(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;

	end_pair_open(&a, &b, place, patient(IBV_QPT_RC));
	check_eq(end_post_recv(&b, WR_RECV, b.self.addr, LEN, b.lkey), 0);
	check_eq(end_post_recv(&b, WR_RECV + 1, b.self.addr, LEN, b.lkey), 0);
	end_fill(&a, a.self.addr, LEN, 7);
	inject_at(&a, "port 1 down", 0);
	check_eq(end_event(&a, PATIENCE_MS), IBV_EVENT_PORT_ERR);
	check_eq(port_state(&a), IBV_PORT_DOWN);
	wr = end_wr_send(&a, WR_SEND, LEN);
	check_eq(end_post_send(&a, &wr), 0);
	expect_nothing(&b, RQ);
	expect_nothing(&a, SQ);
	check_eq(end_state(&a), IBV_QPS_RTS);
	inject_at(&a, "port 1 up", 0);
	check_eq(end_event(&a, PATIENCE_MS), IBV_EVENT_PORT_ACTIVE);
	check_eq(port_state(&a), IBV_PORT_ACTIVE);
	end_expect(&b, RQ, WR_RECV, IBV_WC_SUCCESS);
	end_expect(&a, SQ, WR_SEND, IBV_WC_SUCCESS);
	end_check(&b, b.self.addr, LEN, 7);
	expect_nothing(&b, RQ);
	wr = end_wr_send(&a, WR_SEND + 1, 64);
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&b, RQ, WR_RECV + 1, IBV_WC_SUCCESS);
	end_expect(&a, SQ, WR_SEND + 1, IBV_WC_SUCCESS);
	end_pair_close(&a, &b);
}

/* All the same for who reaches into the memory of a port that is down: WRITE, READ, atomic. */
static void port_of_target(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;

	end_pair_open(&a, &b, place, patient(IBV_QPT_RC));
	end_fill(&a, a.self.addr, LEN, 8);
	end_write64(&b, b.self.addr, 1);
	/* once before, so that the ways are there */
	wr = end_wr_rdma(&a, WR_SEND, IBV_WR_RDMA_READ, 8, &b);
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, WR_SEND, IBV_WC_SUCCESS);
	check_eq(end_read64(&a, a.self.addr), 1);
	inject_at(&b, "port 1 down", 0);
	check_eq(end_event(&b, PATIENCE_MS), IBV_EVENT_PORT_ERR);
	wr = end_wr_rdma(&a, WR_SEND + 1, IBV_WR_RDMA_WRITE, LEN, &b);
	wr.sge[0].addr += 8;
	end_write64(&a, a.self.addr + 8, 2);
	check_eq(end_post_send(&a, &wr), 0);
	wr = end_wr_rdma(&a, WR_SEND + 2, IBV_WR_RDMA_READ, 8, &b);
	check_eq(end_post_send(&a, &wr), 0);
	wr = end_wr_rdma(&a, WR_SEND + 3, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, &b);
	wr.compare_add = 5;
	check_eq(end_post_send(&a, &wr), 0);
	expect_nothing(&a, SQ);
	check_eq(end_read64(&b, b.self.addr), 1);
	inject_at(&b, "port 1 up", 0);
	check_eq(end_event(&b, PATIENCE_MS), IBV_EVENT_PORT_ACTIVE);
	for (uint64_t i = 1; i < 4; i++)
		end_expect(&a, SQ, WR_SEND + i, IBV_WC_SUCCESS);
	check_eq(end_read64(&a, a.self.addr), 2);
	check_eq(end_read64(&b, b.self.addr), 7);
	end_pair_close(&a, &b);
}

/* Too long: the retries are used up. A queue pair made and connected meanwhile does as well. */
static void port_stays_down(enum end_place place)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct end a, b, c, d;
	struct end_wr wr;

	attr.timeout = 10;
	attr.retry_cnt = 2;
	end_pair_open(&a, &b, place, attr);
	check_eq(end_post_recv(&b, WR_RECV, b.self.addr, LEN, b.lkey), 0);
	inject_at(&a, "port 1 down", 0);
	wr = end_wr_send(&a, WR_SEND, 64);
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, WR_SEND, IBV_WC_RETRY_EXC_ERR);
	check_eq(end_state(&a), IBV_QPS_ERR);
	check_eq(end_state(&b), IBV_QPS_RTS);

	end_open(&c, HERE, &attr);
	end_open(&d, HERE, &attr);
	end_connect(&c, &d);
	check_eq(end_post_recv(&d, WR_RECV, d.self.addr, LEN, d.lkey), 0);
	wr = end_wr_send(&c, WR_SEND, 64);
	check_eq(end_post_send(&c, &wr), 0);
	end_expect(&c, SQ, WR_SEND, IBV_WC_RETRY_EXC_ERR);
	inject_at(&a, "port 1 up", 0);
	end_connect(&c, &d);
	check_eq(end_post_recv(&d, WR_RECV, d.self.addr, LEN, d.lkey), 0);
	check_eq(end_post_send(&c, &wr), 0);
	end_expect(&c, SQ, WR_SEND, IBV_WC_SUCCESS);
	end_expect(&d, RQ, WR_RECV, IBV_WC_SUCCESS);
	end_close(&c);
	end_close(&d);
	end_pair_close(&a, &b);
}

/* Datagrams are lost, and nobody is told. */
static void port_of_datagrams(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_UD));
	check_eq(end_post_recv(&b, WR_RECV, b.self.addr, 512, b.lkey), 0);
	for (int i = 0; i < 2; i++) {
		struct end *down = i ? &b : &a;

		inject_at(down, "port 1 down", 0);
		check_eq(end_event(down, PATIENCE_MS), IBV_EVENT_PORT_ERR);
		wr = end_wr_send(&a, WR_SEND, 64);
		wr.to = b.self;
		wr.qkey = TEST_QKEY;
		check_eq(end_post_send(&a, &wr), 0);
		end_expect(&a, SQ, WR_SEND, IBV_WC_SUCCESS);
		expect_nothing(&b, RQ);
		inject_at(down, "port 1 up", 0);
		check_eq(end_event(down, PATIENCE_MS), IBV_EVENT_PORT_ACTIVE);
	}
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, WR_SEND, IBV_WC_SUCCESS);
	end_expect(&b, RQ, WR_RECV, IBV_WC_SUCCESS);
	end_pair_close(&a, &b);
}

/* Frames: what a port that is down sends or should receive is lost. */
static void port_of_frames(enum end_place place)
{
	struct end self = { .place = HERE };
	struct ibv_flow *raw_flow;
	struct station a, b;
	uint8_t frame[64] = { 0 };

	if (place == ELSEWHERE)
		return;
	put_eth(frame, 0, 0xffffffffffff, 0x020000000001, 0x88b5);
	station_open(&a, card());
	station_open(&b, strcmp(card(), "mlx5_1") ? "mlx5_1" : "mlx5_0");
	raw_flow = flow_all(b.qp);
	station_send(&a, frame, sizeof(frame), 0);
	station_expect(&b, frame, sizeof(frame));
	inject_at(&self, "port 1 down", 0);
	station_send(&a, frame, sizeof(frame), 0);
	station_quiet(&b);
	inject_at(&self, "port 1 up", 0);
	station_send(&a, frame, sizeof(frame), 0);
	station_expect(&b, frame, sizeof(frame));
	check_eq(inject(getpid(), "mlx5_1 port 1 down"), 0);
	station_send(&a, frame, sizeof(frame), 0);
	station_quiet(&b);
	check_eq(inject(getpid(), "mlx5_1 port 1 up"), 0);
	check_eq(ibv_destroy_flow(raw_flow), 0);
	station_close(&a);
	station_close(&b);
}

/* A child has none of its parent's faults: its own queue pairs of the port are on the cable. */
static void forked(enum end_place place)
{
	struct end self = { .place = HERE };
	const char *other = strcmp(card(), "mlx5_1") ? "mlx5_1" : "mlx5_0";
	struct station parent, a, b;
	uint8_t frame[64] = { 0 };
	int status;
	pid_t pid;

	if (place == ELSEWHERE)
		return;
#ifdef __SANITIZE_THREAD__
	return; /* it allows no thread in the child of a program with threads */
#endif
	put_eth(frame, 0, 0xffffffffffff, 0x020000000001, 0x88b5);
	station_open(&parent, card());
	inject_at(&self, "port 1 down", 0);
	pid = fork();
	if (!pid) {
		station_open(&a, card());
		station_open(&b, other);
		flow_all(b.qp);
		station_send(&a, frame, sizeof(frame), 0);
		station_expect(&b, frame, sizeof(frame));
		inject_at(&self, "port 1 down", 0);
		station_send(&a, frame, sizeof(frame), 0);
		station_quiet(&b);
		_exit(0);
	}
	check(waitpid(pid, &status, 0) == pid && !status, "status 0x%x", status);
	inject_at(&self, "port 1 up", 0);
	station_close(&parent);
}

/* Without a pid: in all programs that have the card. */
static void all_programs(enum end_place place)
{
	char fault[64];
	struct end a, b;

	end_pair_open(&a, &b, place, patient(IBV_QPT_RC));
	snprintf(fault, sizeof(fault), "%s port 1 down", card());
	check_eq(inject(0, fault), 0);
	check_eq(end_event(&a, PATIENCE_MS), IBV_EVENT_PORT_ERR);
	check_eq(end_event(&b, PATIENCE_MS), IBV_EVENT_PORT_ERR);
	check_eq(inject(0, fault), 0); /* it is already */
	check_eq(end_event(&a, 20), -1);
	snprintf(fault, sizeof(fault), "%s port 1 up", card());
	check_eq(inject(0, fault), 0);
	check_eq(end_event(&a, PATIENCE_MS), IBV_EVENT_PORT_ACTIVE);
	check_eq(end_event(&b, PATIENCE_MS), IBV_EVENT_PORT_ACTIVE);
	end_pair_close(&a, &b);
}

/* --- queue pairs --------------------------------------------------------------------------------- */

static void qp_error(enum end_place place)
{
	struct end a, b;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	for (uint64_t i = 0; i < 3; i++)
		check_eq(end_post_recv(&b, WR_RECV + i, b.self.addr, LEN, b.lkey), 0);
	inject_at(&b, "qp 0x%x error", b.self.qpn);
	check_eq(end_event(&b, PATIENCE_MS), IBV_EVENT_QP_FATAL);
	for (uint64_t i = 0; i < 3; i++)
		end_expect(&b, RQ, WR_RECV + i, IBV_WC_WR_FLUSH_ERR);
	check_eq(end_state(&b), IBV_QPS_ERR);
	check_eq(end_state(&a), IBV_QPS_RTS);
	end_pair_close(&a, &b);
}

/* The first work request has the status, what is behind it is flushed, the queue can be used again. */
static void next_status(enum end_place place)
{
	static const struct {
		const char *words;
		enum ibv_wc_status status;
	} all[] = {
		{ "qp %u next RETRY_EXC_ERR", IBV_WC_RETRY_EXC_ERR },
		{ "qp %u next IBV_WC_RNR_RETRY_EXC_ERR", IBV_WC_RNR_RETRY_EXC_ERR },
		{ "qp %u next rem_access_err", IBV_WC_REM_ACCESS_ERR },
		{ "qp %u next REM_INV_REQ_ERR", IBV_WC_REM_INV_REQ_ERR },
		{ "qp %u next REM_OP_ERR", IBV_WC_REM_OP_ERR },
		{ "qp %u next LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR },
		{ "qp %u next LOC_LEN_ERR", IBV_WC_LOC_LEN_ERR },
		{ "qp %u next LOC_QP_OP_ERR", IBV_WC_LOC_QP_OP_ERR },
		{ "qp %u next BAD_RESP_ERR", IBV_WC_BAD_RESP_ERR },
		{ "qp %u next MW_BIND_ERR", IBV_WC_MW_BIND_ERR },
		{ "qp %u next LOC_ACCESS_ERR", IBV_WC_LOC_ACCESS_ERR },
		{ "qp %u next REM_ABORT_ERR", IBV_WC_REM_ABORT_ERR },
	};
	struct end a, b;
	struct end_wr wr;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		inject_at(&a, all[i].words, a.self.qpn);
		wr = end_wr_rdma(&a, WR_SEND, IBV_WR_RDMA_WRITE, 64, &b);
		check_eq(end_post_send(&a, &wr), 0);
		end_expect(&a, SQ, WR_SEND, all[i].status);
		check_eq(end_state(&a), IBV_QPS_ERR);
		wr.wr_id++;
		check_eq(end_post_send(&a, &wr), 0);
		end_expect(&a, SQ, WR_SEND + 1, IBV_WC_WR_FLUSH_ERR);
		end_connect(&a, &b);
		check_eq(end_post_send(&a, &wr), 0);
		end_expect(&a, SQ, WR_SEND + 1, IBV_WC_SUCCESS);
	}
	end_pair_close(&a, &b);
}

/* The next receive has the status, the sender gets the refusal that belongs to it, the rest is flushed. */
static void next_receive(enum end_place place)
{
	static const struct {
		const char *words;
		enum ibv_wc_status status, sender;
		int event;
	} all[] = {
		{ "qp %u next recv LOC_LEN_ERR", IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR, -1 },
		{ "qp %u next recv LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR, -1 },
		{ "qp %u next recv loc_qp_op_err", IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_OP_ERR, -1 },
		{ "qp %u next recv IBV_WC_REM_INV_REQ_ERR", IBV_WC_REM_INV_REQ_ERR,
		  IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR },
		{ "qp %u next recv REM_ACCESS_ERR", IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR,
		  IBV_EVENT_QP_ACCESS_ERR },
	};
	struct end a, b;
	struct end_wr wr;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		for (uint64_t k = 0; k < 2; k++)
			check_eq(end_post_recv(&b, WR_RECV + k, b.self.addr, LEN, b.lkey), 0);
		inject_at(&b, all[i].words, b.self.qpn);
		/* What takes no receive goes on. */
		wr = end_wr_rdma(&a, WR_SEND, IBV_WR_RDMA_WRITE, 64, &b);
		check_eq(end_post_send(&a, &wr), 0);
		end_expect(&a, SQ, WR_SEND, IBV_WC_SUCCESS);
		wr = end_wr_send(&a, WR_SEND + 1, 64);
		check_eq(end_post_send(&a, &wr), 0);
		end_expect(&b, RQ, WR_RECV, all[i].status);
		end_expect(&b, RQ, WR_RECV + 1, IBV_WC_WR_FLUSH_ERR);
		end_expect(&a, SQ, WR_SEND + 1, all[i].sender);
		check_eq(end_state(&b), IBV_QPS_ERR);
		check_eq(end_event(&b, all[i].event < 0 ? 20 : PATIENCE_MS), all[i].event);
		/* Only that one. */
		end_connect(&a, &b);
		check_eq(end_post_recv(&b, WR_RECV, b.self.addr, LEN, b.lkey), 0);
		check_eq(end_post_send(&a, &wr), 0);
		end_expect(&b, RQ, WR_RECV, IBV_WC_SUCCESS);
		end_expect(&a, SQ, WR_SEND + 1, IBV_WC_SUCCESS);
	}
	end_pair_close(&a, &b);
}

/* A datagram: the sender does not hear of it. */
static void next_receive_of_datagrams(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_UD));
	check_eq(end_post_recv(&b, WR_RECV, b.self.addr, 512, b.lkey), 0);
	check_eq(end_post_recv(&b, WR_RECV + 1, b.self.addr, 512, b.lkey), 0);
	inject_at(&b, "qp %u next recv LOC_PROT_ERR", b.self.qpn);
	wr = end_wr_send(&a, WR_SEND, 64);
	wr.to = b.self;
	wr.qkey = TEST_QKEY;
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, WR_SEND, IBV_WC_SUCCESS);
	end_expect(&b, RQ, WR_RECV, IBV_WC_LOC_PROT_ERR);
	end_expect(&b, RQ, WR_RECV + 1, IBV_WC_WR_FLUSH_ERR);
	check_eq(end_state(&b), IBV_QPS_ERR);
	end_pair_close(&a, &b);
}

/* --- devices and creations ----------------------------------------------------------------------- */

static void device_fatal(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;

	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	check_eq(end_post_recv(&a, WR_RECV, a.self.addr, LEN, a.lkey), 0);
	inject_at(&a, "fatal", 0);
	check_eq(end_event(&a, PATIENCE_MS), IBV_EVENT_DEVICE_FATAL);
	check_eq(end_event(&a, 0), -1);
	end_expect(&a, RQ, WR_RECV, IBV_WC_WR_FLUSH_ERR);
	check_eq(end_state(&a), IBV_QPS_ERR);
	errno = 0;
	check(!ibv_alloc_pd(a.node->ctx) && errno == EIO, "%s", strerror(errno));
	errno = 0;
	check(!ibv_create_cq(a.node->ctx, 16, NULL, NULL, 0) && errno == EIO, "%s",
	      strerror(errno));
	check_eq(end_set_state(&a, IBV_QPS_RESET), 0);
	check_eq(end_set_state(&a, IBV_QPS_INIT), EIO);
	end_pair_close(&a, &b);
	/* The device is like new for who opens it. */
	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	wr = end_wr_rdma(&a, WR_SEND, IBV_WR_RDMA_WRITE, 64, &b);
	check_eq(end_post_send(&a, &wr), 0);
	end_expect(&a, SQ, WR_SEND, IBV_WC_SUCCESS);
	end_pair_close(&a, &b);
}

static void creations(enum end_place place)
{
	struct node node;
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct end self = { .place = HERE };
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	node_open(&node, &attr);
	inject_at(&self, "fail qp 2", 0);
	for (int i = 0; i < 2; i++) {
		errno = 0;
		check(!node_create_qp(&node) && errno == ENOMEM, "%s", strerror(errno));
	}
	qp = node_create_qp(&node);
	check(qp, "%s", strerror(errno));
	inject_at(&self, "fail mr 1", 0);
	check(!ibv_reg_mr(node.pd, node.buf, 64, 0) && errno == ENOMEM, "%s", strerror(errno));
	mr = ibv_reg_mr(node.pd, node.buf, 64, 0);
	inject_at(&self, "fail cq 1", 0);
	check(!ibv_create_cq(node.ctx, 4, NULL, NULL, 0) && errno == ENOMEM, "%s", strerror(errno));
	cq = ibv_create_cq(node.ctx, 4, NULL, NULL, 0);
	inject_at(&self, "fail srq 1", 0);
	check(!ibv_create_srq(node.pd, &srq_attr) && errno == ENOMEM, "%s", strerror(errno));
	srq = ibv_create_srq(node.pd, &srq_attr);
	inject_at(&self, "fail any 1", 0);
	check(!ibv_alloc_pd(node.ctx) && errno == ENOMEM, "%s", strerror(errno));
	inject_at(&self, "fail pd 1000", 0);
	inject_at(&self, "fail pd 0", 0);
	pd = ibv_alloc_pd(node.ctx);
	check(mr && cq && srq && pd, "%s", strerror(errno));
	check_eq(ibv_destroy_qp(qp) | ibv_dereg_mr(mr) | ibv_destroy_cq(cq) | ibv_destroy_srq(srq) |
			 ibv_dealloc_pd(pd),
		 0);
	node_close(&node);
}

/* --- refusals ------------------------------------------------------------------------------------ */

static void refused(enum end_place place)
{
	static const char *const wrong[] = {
		"",
		"mlx5_0",
		"mlx5_0 port",
		"mlx5_0 port 1",
		"mlx5_0 port 1 sideways",
		"mlx5_0 port 0 down",
		"mlx5_0 port -1 down",
		"mlx5_0 port 1 down now",
		"mlx5_0 qp all next SUCCESS",
		"mlx5_0 qp all next",
		"mlx5_0 qp all next recv",
		"mlx5_0 qp all next recv SUCCESS",
		"mlx5_0 qp 0 error",
		"mlx5_0 qp 0x1000000 error",
		"mlx5_0 qp 99999999999999999999999 error",
		"mlx5_0 fail ah 1",
		"mlx5_0 fail qp -1",
		"mlx5_0 eu 4096 stuck",
		"mlx5_0 eu 1 slow 1",
		"at 1ms mlx5_0 port 1 down",
		"--pid 0 mlx5_0 fatal",
	};
	struct end a, b;
	char fault[256];
	pid_t pid;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		check(inject(0, wrong[i]) == 2, "%s", wrong[i]);
	check_eq(inject(0, "mlx5_0 port 1 down"), 1); /* nobody is there */
	check_eq(inject(getpid(), "mlx5_0 port 1 down"), 1);
	end_pair_open(&a, &b, place, node_attr(IBV_QPT_UD));
	snprintf(fault, sizeof(fault), "%s qp %u next RETRY_EXC_ERR", card(), a.self.qpn);
	check_eq(inject(getpid(), fault), 1); /* not of a datagram */
	snprintf(fault, sizeof(fault), "%s qp %u next recv REM_ACCESS_ERR", card(), a.self.qpn);
	check_eq(inject(getpid(), fault), 1);
	snprintf(fault, sizeof(fault), "%s qp all next recv RETRY_EXC_ERR", card());
	check_eq(inject(getpid(), fault), 1); /* only sends have it */
	snprintf(fault, sizeof(fault), "%s port 2 down", card());
	check_eq(inject(getpid(), fault), 1);
	snprintf(fault, sizeof(fault), "%s qp 0xffffff error", card());
	check_eq(inject(getpid(), fault), 1);
	check_eq(inject(getpid(), "hbl_0 port 1 down"), 1);
	check_eq(inject(getpid(), "mlx5_1 fatal"), 1); /* not open here */
	pid = fork();
	if (!pid) {
		pause();
		_exit(0);
	}
	check_eq(inject(pid, "mlx5_0 fatal"), 1); /* a child has nothing open */
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	check_eq(end_event(&a, 20), -1);
	check_eq(port_state(&a), IBV_PORT_ACTIVE);
	end_pair_close(&a, &b);
}

/* The name of the socket at which this process can be asked, after somebody has asked. */
static socklen_t find_socket(struct sockaddr_un *to)
{
	FILE *f = fopen("/proc/net/unix", "r");
	char line[512], of_us[32], *at;
	size_t len = 0;

	check(f, "%s", strerror(errno));
	snprintf(of_us, sizeof(of_us), "/%d/", (int)getpid());
	*to = (struct sockaddr_un){ .sun_family = AF_UNIX };
	while (!len && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		at = strstr(line, "@verbatim/");
		if (!at || !strstr(at, of_us))
			continue;
		len = strlen(at);
		memcpy(to->sun_path + 1, at + 1, len - 1);
	}
	fclose(f);
	check(len, "nobody listens");
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
}

/* As src/control/ask/socket.h has them. */
struct request {
	uint32_t magic;
	char service[16], words[268];
};

struct answer {
	uint32_t magic;
	int32_t status;
	uint32_t count;
	char words[256];
};

/* Ask for what the bytes say; the status of the answer, 1: there was none. */
static int ask_at(const struct sockaddr_un *to, socklen_t size, const void *bytes, size_t len)
{
	struct request request = { .magic = 0x316b7361, .service = "inject" };
	struct answer answer;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), status = 1;

	memcpy(request.words, bytes, len < sizeof(request.words) ? len : sizeof(request.words));
	check(!connect(fd, (const struct sockaddr *)to, size), "%s", strerror(errno));
	if (send(fd, &request, sizeof(request), MSG_NOSIGNAL) < 0)
		check(errno == EPIPE || errno == ECONNRESET, "%s", strerror(errno));
	if (recv(fd, &answer, sizeof(answer), MSG_WAITALL) == sizeof(answer))
		status = answer.status;
	close(fd);
	return status;
}

static int ask(const void *bytes, size_t len)
{
	struct sockaddr_un to;
	socklen_t size = find_socket(&to);

	return ask_at(&to, size, bytes, len);
}

/* Who talks to the socket itself: nonsense has no effect, and another user is refused. */
static void hostile(enum end_place place)
{
	char fault[64], noise[700];
	struct sockaddr_un to;
	uint64_t seed = 1;
	struct end a, b;
	socklen_t size;
	int status;
	pid_t pid;

	if (place == ELSEWHERE)
		return;
	end_pair_open(&a, &b, place, node_attr(IBV_QPT_RC));
	snprintf(fault, sizeof(fault), "%s fail pd 0", card());
	check_eq(inject(getpid(), fault), 0);
	for (int i = 0; i < 50; i++) {
		for (size_t k = 0; k < sizeof(noise); k++)
			noise[k] = (char)next_random(&seed);
		check_eq(ask(noise, 1 + next_random(&seed) % (sizeof(noise) - 1)), -EINVAL);
	}
	check_eq(ask("# nothing", 9), -EINVAL);
	memset(noise, ' ', sizeof(noise));
	check_eq(ask(noise, sizeof(noise)), -EINVAL);
	check_eq(ask("mlx5_0 port 1 down\nmlx5_0 fatal", 31), -EINVAL);
	snprintf(fault, sizeof(fault), "%s fatal", card());
	size = find_socket(&to); /* the child's would be its own */
	pid = fork();
	if (!pid)
		_exit(setuid(65534)                                       ? 77
		      : ask_at(&to, size, fault, strlen(fault)) == -EPERM ? 0
									  : 1);
	check(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "status 0x%x", status);
	check(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77, "another user was heard");
	check_eq(end_event(&a, 20), -1);
	check_eq(end_state(&a), IBV_QPS_RTS);
	check_eq(ask(fault, strlen(fault)), 0);
	check_eq(end_event(&a, PATIENCE_MS), IBV_EVENT_DEVICE_FATAL);
	end_pair_close(&a, &b);
}

/* --- scripts ------------------------------------------------------------------------------------- */

static int scripted(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct ibv_port_attr port;
	struct node node;
	struct ibv_context *ctx = device_open();

	/* What holds from the start is no event. */
	check_eq(ibv_query_port(ctx, 1, &port), 0);
	check_eq(port.state, IBV_PORT_DOWN);
	check(!ibv_alloc_pd(ctx) && errno == ENOMEM, "%s", strerror(errno));
	check_eq(event_wait(ctx, PATIENCE_MS), IBV_EVENT_PORT_ACTIVE);
	check_eq(ibv_query_port(ctx, 1, &port), 0);
	check_eq(port.state, IBV_PORT_ACTIVE);
	check_eq(event_wait(ctx, PATIENCE_MS), IBV_EVENT_DEVICE_FATAL);
	check_eq(ibv_close_device(ctx), 0);
	node_open(&node, &attr);
	node_close(&node);
	return 0;
}

static int run_script(const char *text)
{
	char path[] = "/tmp/verbatim-inject-XXXXXX", command[256];
	int fd = mkstemp(path), status;

	check(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "%s",
	      strerror(errno));
	close(fd);
	snprintf(command, sizeof(command), "exec %s inject --script %s -- /proc/%d/exe scripted",
		 getenv("VERBATIM_TEST_TOOL"), path, (int)getpid());
	status = system(command);
	unlink(path);
	check(WIFEXITED(status), "status 0x%x", status);
	return WEXITSTATUS(status);
}

static void scripts(enum end_place place)
{
	char text[512];

	if (place == ELSEWHERE)
		return;
	snprintf(text, sizeof(text),
		 "# from the start\n%s port 1 down\n\n  %s fail pd 1   # only one\n"
		 "at 400ms %s fatal\nat 200ms %s port 1 up\n",
		 card(), card(), card(), card());
	check_eq(run_script(text), 0);
	/* A script that is wrong starts nothing. */
	check_eq(run_script("at 1ms mlx5_0 port 1 down\nat once mlx5_0 fatal\n"), 125);
}

int main(int argc, char **argv)
{
	static const struct end_case cases[] = {
		{ "port of the sender", port_of_sender },
		{ "port of the target", port_of_target },
		{ "port stays down", port_stays_down },
		{ "port of datagrams", port_of_datagrams },
		{ "port of frames", port_of_frames },
		{ "a forked child", forked },
		{ "all programs", all_programs },
		{ "queue pair to error", qp_error },
		{ "next status", next_status },
		{ "next receive", next_receive },
		{ "next receive of datagrams", next_receive_of_datagrams },
		{ "device fatal", device_fatal },
		{ "creations", creations },
		{ "refused", refused },
		{ "hostile", hostile },
		{ "scripts", scripts },
	};

	end_main(argc, argv);
	if (argc > 1 && !strcmp(argv[1], "scripted"))
		return scripted();
	return end_run_cases("inject", cases, sizeof(cases) / sizeof(cases[0]));
}
