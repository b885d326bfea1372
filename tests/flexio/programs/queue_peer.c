// SPDX-License-Identifier: MIT
/*
 * A queue pair of device code, and one of a host program in another process: RDMA in both directions, messages that
 * wake an event handler, and a peer that dies.
 */
#include "queue_host.h"
#include "queue_kit.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

extern struct flexio_app *peerdev;
extern flexio_func_t run_work, fill_recv, receive;

enum { LOG = 5, SIZE = PEER_SIZE, MESSAGES = 2000 };

/* ---- the host program ---- */

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

/* Queues, connected, with a handler that is run. Returns where its state is. */
static flexio_uintptr_t open_all(struct ibv_context *ctx, struct flexio_event_handler *handler,
				 int fd)
{
	struct work_handler state;
	struct flexio_qp_attr attr;
	flexio_uintptr_t daddr;
	struct hello self;
	char c;

	mem_make(process, SIZE + (64 << LOG), &mem);
	cq_simple(process, LOG, NULL, &send_cq);
	cq_simple(process, LOG, handler, &recv_cq);
	attr = qp_attr(process, LOG, LOG, send_cq.work.number, recv_cq.work.number);
	qp_make(process, NULL, &attr, &qp);
	work_daddr = dev_alloc(process, sizeof(struct work));
	hear(fd, &other, sizeof(other));
	self = (struct hello){ qp.work.number, mem.key, mem.addr, { { 0 } } };
	CHECK(!ibv_query_gid(ctx, 1, 0, &self.gid));
	tell(fd, &self, sizeof(self));
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
	hear(fd, &c, 1);
	return daddr;
}

static void close_all(void)
{
	OK(flexio_qp_destroy(qp.qp));
	OK(flexio_cq_destroy(send_cq.cq));
	OK(flexio_cq_destroy(recv_cq.cq));
	mem_end(&mem);
}

int main(void)
{
	struct flexio_event_handler_attr handler_attr = { .host_stub_func = receive };
	struct flexio_event_handler *handler;
	struct work_handler state;
	flexio_uintptr_t daddr;
	struct ibv_context *ctx;
	struct work_cqe cqe;
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
	daddr = open_all(ctx, handler, fds[0]);

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
	CHECK(cqe.vendor == 0x81);
	CHECK(flexio_qp_state_get(qp.qp) == FLEXIO_QP_STATE_ERR);

	close_all();
	OK(flexio_event_handler_destroy(handler));
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
	return 0;
}
