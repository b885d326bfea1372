/* SPDX-License-Identifier: MIT */
/*
 * A queue pair of device code, and one of a host program in another process: RDMA in both directions, messages that
 * wake an event handler, and a peer that dies.
 */
#include "queue_kit.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

extern struct flexio_app *peerdev;
extern flexio_func_t run_work, fill_recv, receive;

enum { LOG = 5, SIZE = 8192, MESSAGES = 2000 };

/* What the two tell each other. */
struct hello {
	uint32_t qpn, key;
	uint64_t addr;
	union ibv_gid gid;
};

static void tell(int fd, const void *what, size_t size)
{
	CHECK(write(fd, what, size) == (ssize_t)size);
}

static void hear(int fd, void *what, size_t size)
{
	CHECK(recv(fd, what, size, MSG_WAITALL) == (ssize_t)size);
}

/* ---- the host program ---- */

struct peer {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint64_t *buf;
	struct hello other;
};

static void peer_connect(struct peer *p)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						       IBV_ACCESS_REMOTE_READ |
						       IBV_ACCESS_REMOTE_ATOMIC };

	CHECK(!ibv_modify_qp(p->qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				     .path_mtu = IBV_MTU_1024,
				     .dest_qp_num = p->other.qpn,
				     .rq_psn = 0x123,
				     .max_dest_rd_atomic = 8,
				     .min_rnr_timer = 1,
				     .ah_attr = {
					     .is_global = 1,
					     .port_num = 1,
					     .grh = { .dgid = p->other.gid, .hop_limit = 64 } } };
	CHECK(!ibv_modify_qp(p->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .timeout = 14,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .sq_psn = 0x123,
				     .max_rd_atomic = 8 };
	CHECK(!ibv_modify_qp(p->qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void peer_open(struct peer *p, int fd)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 64,
						  .max_recv_wr = 64,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 } };
	struct hello self;

	p->ctx = open_device();
	p->pd = ibv_alloc_pd(p->ctx);
	p->cq = ibv_create_cq(p->ctx, 128, NULL, NULL, 0);
	init.send_cq = init.recv_cq = p->cq;
	p->qp = ibv_create_qp(p->pd, &init);
	p->buf = aligned_alloc(4096, SIZE);
	memset(p->buf, 0, SIZE);
	p->mr = ibv_reg_mr(p->pd, p->buf, SIZE,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	CHECK(p->pd && p->cq && p->qp && p->mr);
	self = (struct hello){ p->qp->qp_num, p->mr->rkey, (uintptr_t)p->buf, { { 0 } } };
	CHECK(!ibv_query_gid(p->ctx, 1, 0, &self.gid));
	tell(fd, &self, sizeof(self));
	hear(fd, &p->other, sizeof(p->other));
	peer_connect(p);
	tell(fd, "r", 1);
}

static void peer_post(struct peer *p, enum ibv_wr_opcode opcode, uint64_t at, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)p->buf, len, p->mr->lkey };
	struct ibv_send_wr wr = { .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED,
				  .imm_data = htobe32(99),
				  .sg_list = &sge,
				  .num_sge = 1,
				  .wr.rdma = { p->other.addr + at, p->other.key } },
			   *wrong;
	struct ibv_wc wc;

	CHECK(!ibv_post_send(p->qp, &wr, &wrong));
	while (!ibv_poll_cq(p->cq, 1, &wc))
		;
	CHECK(wc.status == IBV_WC_SUCCESS);
}

/* In lock step with main() below. */
static void peer_main(int fd)
{
	struct peer p;
	char c;

	peer_open(&p, fd);
	/* device code wrote, added and swapped: seen without a call from here */
	hear(fd, &c, 1);
	CHECK(p.buf[0] == 0x1122334455667788 && p.buf[512] == 41 && p.buf[513] == 7);
	/* messages, each of which wakes the handler at most once */
	for (uint64_t i = 0; i < MESSAGES; i++) {
		p.buf[0] = i;
		peer_post(&p, IBV_WR_SEND, 0, 64);
	}
	hear(fd, &c, 1);
	/* device memory by its mkey */
	p.buf[0] = 0xfeed;
	peer_post(&p, IBV_WR_RDMA_WRITE, 64, 8);
	p.buf[0] = 0;
	peer_post(&p, IBV_WR_RDMA_READ, 64, 8);
	CHECK(p.buf[0] == 0xfeed);
	tell(fd, "d", 1);
	for (;;)
		pause(); /* until it is killed */
}

/* ---- the program with device code ---- */

static struct flexio_process *process;
static struct kit_cq send_cq, recv_cq;
static struct kit_qp qp;
static struct kit_mem mem;
static struct hello other;
static flexio_uintptr_t work_daddr;

static struct work_cqe one(uint32_t type, uint64_t from, uint64_t to, uint32_t len, uint64_t add,
			   uint64_t compare)
{
	struct work w = { .cq = send_cq.work, .qp = qp.work, .nops = 1, .expect = 1 };

	w.ops[0] = (struct work_op){ .type = type,
				     .ce = CE_ALWAYS,
				     .lkey = mem.key,
				     .rkey = other.key,
				     .laddr = mem.addr + from,
				     .raddr = other.addr + to,
				     .len = len,
				     .swap_add = add,
				     .compare = compare };
	work_run(process, run_work, work_daddr, &w);
	send_cq.work = w.cq;
	qp.work = w.qp;
	return w.cqes[0];
}

static void rdma(void)
{
	uint64_t word = 0x1122334455667788;

	dev_write(process, mem.addr, &word, 8);
	CHECK(one(SEG_WRITE, 0, 0, 4096, 0, 0).opcode == 0);
	CHECK(one(SEG_READ, 4096, 0, 4096, 0, 0).opcode == 0);
	CHECK(dev_read(process, mem.addr + 4096) == word);
	CHECK(one(SEG_FAA, 8, 4096, 8, 41, 0).opcode == 0);
	CHECK(dev_read(process, mem.addr + 8) == 0);
	CHECK(one(SEG_CAS, 8, 4104, 8, 7, 0).opcode == 0);
	CHECK(one(SEG_CAS, 8, 4104, 8, 9, 0).opcode == 0); /* does not compare */
	CHECK(dev_read(process, mem.addr + 8) == 7);
}

int main(void)
{
	struct flexio_event_handler_attr handler_attr = { .host_stub_func = receive };
	struct flexio_event_handler *handler;
	struct flexio_qp_attr attr;
	struct work_handler state;
	flexio_uintptr_t daddr;
	struct ibv_context *ctx;
	struct work_cqe cqe;
	struct hello self;
	int fds[2];
	pid_t pid;
	char c;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	pid = fork();
	if (!pid) {
		close(fds[0]);
		peer_main(fds[1]);
	}
	close(fds[1]);
	ctx = open_device();
	OK(flexio_process_create(ctx, peerdev, NULL, &process));
	OK(flexio_event_handler_create(process, &handler_attr, &handler));
	mem_make(process, SIZE + (64 << LOG), &mem);
	cq_simple(process, LOG, NULL, &send_cq);
	cq_simple(process, LOG, handler, &recv_cq);
	attr = qp_attr(process, LOG, LOG, send_cq.work.number, recv_cq.work.number);
	qp_make(process, NULL, &attr, &qp);
	work_daddr = dev_alloc(process, sizeof(struct work));

	hear(fds[0], &other, sizeof(other));
	self = (struct hello){ qp.work.number, mem.key, mem.addr, { { 0 } } };
	CHECK(!ibv_query_gid(ctx, 1, 0, &self.gid));
	tell(fds[0], &self, sizeof(self));
	attr = qp_link(other.qpn, &other.gid);
	attr.retry_count = 2;
	qp_to_rts(qp.qp, &attr);
	state = (struct work_handler){ .cq = recv_cq.work,
				       .qp = qp.work,
				       .buffers = mem.addr + SIZE,
				       .size = 64,
				       .lkey = mem.key };
	daddr = dev_alloc(process, sizeof(state));
	dev_write(process, daddr, &state, sizeof(state));
	OK(flexio_process_call(process, fill_recv, NULL, daddr));
	OK(flexio_event_handler_run(handler, daddr));
	hear(fds[0], &c, 1);

	rdma();
	tell(fds[0], "g", 1);
	dev_await(process, daddr + offsetof(struct work_handler, handled), MESSAGES);
	dev_get(process, &state, daddr, sizeof(state));
	CHECK(state.handled == MESSAGES && !state.errors);
	CHECK(state.sum == (uint64_t)MESSAGES * (MESSAGES - 1) / 2);
	tell(fds[0], "g", 1);
	hear(fds[0], &c, 1);
	CHECK(dev_read(process, mem.addr + 64) == 0xfeed);

	/* a peer that is gone */
	kill(pid, SIGKILL);
	CHECK(waitpid(pid, NULL, 0) == pid);
	cqe = one(SEG_WRITE, 0, 0, 8, 0, 0);
	CHECK(cqe.opcode == 13 && cqe.syndrome == 0x15); /* transport retries exceeded */
	CHECK(flexio_qp_state_get(qp.qp) == FLEXIO_QP_STATE_ERR);

	OK(flexio_qp_destroy(qp.qp));
	OK(flexio_cq_destroy(send_cq.cq));
	OK(flexio_cq_destroy(recv_cq.cq));
	OK(flexio_event_handler_destroy(handler));
	mem_end(&mem);
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
	return 0;
}
