// SPDX-License-Identifier: MIT
/*
 * The ends of a two-ended test: the requests, where they are executed, and the process that executes them.
 *
 * One request is one datagram with one answer. The pointers inside of a work request are set where it is executed.
 */
#include "end.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/mman.h>

enum op {
	OP_OPEN,
	OP_CLOSE,
	OP_CONNECT,
	OP_SET_ATTR,
	OP_POST_SEND,
	OP_POST_RECV,
	OP_POLL,
	OP_STATE,
	OP_SET_STATE,
	OP_DESTROY_QP,
	OP_EVENT,
	OP_MAP,
	OP_UNMAP,
	OP_MAP_FILE,
	OP_TRUNCATE,
	OP_REG,
	OP_REREG,
	OP_DEREG,
	OP_FILL,
	OP_CHECK,
	OP_READ64,
	OP_WRITE64,
};

struct request {
	enum op op;
	uint64_t arg[6];
	union {
		struct node_attr attr;
		struct address peer;
		struct end_wr wr;
	} u;
};

struct reply {
	int err;
	uint64_t value[2];
	struct ibv_wc wc;
	struct address self;
	uint32_t lkey;
};

enum { MAX_MRS = 64 };

/* What an end has beside its node, reachable from the node's place in this struct. */
struct station {
	struct node node;
	struct ibv_pd *other_pd;
	struct ibv_mr *mrs[MAX_MRS];
	struct ibv_ah *ah; /* UD: of the last destination */
	union ibv_gid ah_gid;
	int file; /* behind end_map_file() */
};

static void do_open(struct station *st, const struct request *rq, struct reply *rp)
{
	node_open(&st->node, &rq->u.attr);
	node_address(&st->node, &rp->self);
	rp->lkey = st->node.mr->lkey;
}

static void do_close(struct station *st)
{
	if (st->ah)
		check_eq(ibv_destroy_ah(st->ah), 0);
	for (int i = 0; i < MAX_MRS; i++) {
		if (st->mrs[i])
			check_eq(ibv_dereg_mr(st->mrs[i]), 0);
	}
	if (st->other_pd)
		check_eq(ibv_dealloc_pd(st->other_pd), 0);
	node_close(&st->node);
}

static void do_connect(struct station *st, const struct request *rq)
{
	struct node *node = &st->node;
	struct ibv_wc wc;

	check_eq(qp_set_state(node->qp, IBV_QPS_RESET), 0);
	while (ibv_poll_cq(node->send_cq, 1, &wc) > 0 || ibv_poll_cq(node->recv_cq, 1, &wc) > 0)
		;
	if (rq->arg[0] >= IBV_QPS_INIT)
		node_to_init(node);
	if (rq->arg[0] >= IBV_QPS_RTR)
		node_to_rtr(node, &rq->u.peer);
	if (rq->arg[0] >= IBV_QPS_RTS)
		node_to_rts(node);
}

static struct ibv_ah *get_ah(struct station *st, const union ibv_gid *gid)
{
	struct ibv_ah_attr attr;

	if (st->ah && !memcmp(&st->ah_gid, gid, sizeof(*gid)))
		return st->ah;
	if (st->ah)
		check_eq(ibv_destroy_ah(st->ah), 0);
	ah_attr_to(&attr, gid);
	st->ah = ibv_create_ah(st->node.pd, &attr);
	check(st->ah, "%s", strerror(errno));
	st->ah_gid = *gid;
	return st->ah;
}

static int do_post_send(struct station *st, const struct end_wr *ew)
{
	struct ibv_sge sge[END_MAX_SGE];
	struct ibv_send_wr *bad = NULL;
	struct ibv_send_wr wr = {
		.wr_id = ew->wr_id,
		.sg_list = sge,
		.num_sge = (int)ew->num_sge,
		.opcode = ew->opcode,
		.send_flags = (unsigned int)ew->flags,
	};
	int err;

	memcpy(sge, ew->sge, sizeof(sge));
	if (ew->opcode == IBV_WR_SEND_WITH_INV || ew->opcode == IBV_WR_LOCAL_INV)
		wr.invalidate_rkey = ew->imm;
	else
		wr.imm_data = ew->imm;
	if (st->node.attr.type == IBV_QPT_UD) {
		wr.wr.ud.ah = get_ah(st, &ew->to.gid);
		wr.wr.ud.remote_qpn = ew->to.qpn;
		wr.wr.ud.remote_qkey = ew->qkey;
	} else if (ew->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		   ew->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = ew->remote;
		wr.wr.atomic.rkey = ew->rkey;
		wr.wr.atomic.compare_add = ew->compare_add;
		wr.wr.atomic.swap = ew->swap;
	} else {
		wr.wr.rdma.remote_addr = ew->remote;
		wr.wr.rdma.rkey = ew->rkey;
	}
	err = ibv_post_send(st->node.qp, &wr, &bad);
	check(!err || bad == &wr, "bad_wr does not name the refused request");
	return err;
}

static int do_post_recv(struct station *st, const struct request *rq)
{
	struct ibv_sge sge = { rq->arg[1], (uint32_t)rq->arg[2], (uint32_t)rq->arg[3] };
	struct ibv_recv_wr wr = { .wr_id = rq->arg[0], .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	if (st->node.srq)
		return ibv_post_srq_recv(st->node.srq, &wr, &bad);
	return ibv_post_recv(st->node.qp, &wr, &bad);
}

static struct ibv_pd *get_pd(struct station *st, bool other)
{
	if (!other)
		return st->node.pd;
	if (!st->other_pd)
		st->other_pd = ibv_alloc_pd(st->node.ctx);
	check(st->other_pd, "%s", strerror(errno));
	return st->other_pd;
}

static struct ibv_mr **find_mr(struct station *st, uint32_t key)
{
	for (int i = 0; i < MAX_MRS; i++) {
		if (key ? st->mrs[i] && st->mrs[i]->lkey == key : !st->mrs[i])
			return &st->mrs[i];
	}
	check(false, "no MR with key %#x", key);
	return NULL;
}

static void do_reg(struct station *st, const struct request *rq, struct reply *rp)
{
	struct ibv_mr **slot = find_mr(st, 0);
	struct ibv_pd *pd = get_pd(st, rq->arg[4] != 0);
	void *addr = (void *)(uintptr_t)rq->arg[0];
	int access = (int)rq->arg[3];
	struct ibv_mr *mr;

	errno = 0;
	if (rq->arg[2] == rq->arg[0])
		mr = ibv_reg_mr(pd, addr, rq->arg[1], access);
	else
		mr = ibv_reg_mr_iova(pd, addr, rq->arg[1], rq->arg[2], access);
	if (!mr) {
		rp->err = errno ? errno : EIO;
		return;
	}
	*slot = mr;
	rp->value[0] = mr->lkey;
	check_eq(mr->lkey, mr->rkey);
}

static void do_rereg(struct station *st, const struct request *rq, struct reply *rp)
{
	struct ibv_mr **slot = find_mr(st, (uint32_t)rq->arg[0]);

	rp->err = ibv_rereg_mr(*slot, (int)rq->arg[1], get_pd(st, rq->arg[5] != 0),
			       (void *)(uintptr_t)rq->arg[2], rq->arg[3], (int)rq->arg[4]);
	rp->value[0] = (*slot)->lkey;
}

static void do_dereg(struct station *st, const struct request *rq, struct reply *rp)
{
	struct ibv_mr **slot = find_mr(st, (uint32_t)rq->arg[0]);

	rp->err = ibv_dereg_mr(*slot);
	if (!rp->err)
		*slot = NULL;
}

/* Requests about memory and regions. */
static void execute_memory(struct station *st, const struct request *rq, struct reply *rp)
{
	void *addr = (void *)(uintptr_t)rq->arg[0];
	uint64_t len = rq->arg[1];

	switch (rq->op) {
	case OP_MAP:
		rp->value[0] = (uintptr_t)kind_map(len, (int)rq->arg[2]);
		break;
	case OP_UNMAP:
		kind_unmap(addr, len);
		/* Nothing is there now; keep the next mmap() of whoever from moving in. */
		if (rq->arg[2])
			mmap(addr, len, PROT_NONE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		break;
	case OP_MAP_FILE:
		st->file = memfd_create("test", MFD_CLOEXEC);
		check_eq(ftruncate(st->file, (off_t)len), 0);
		addr = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, st->file, 0);
		rp->value[0] = addr == MAP_FAILED ? 0 : (uintptr_t)addr;
		break;
	case OP_TRUNCATE:
		rp->err = ftruncate(st->file, 0) ? errno : 0;
		close(st->file);
		break;
	case OP_REG:
		do_reg(st, rq, rp);
		break;
	case OP_REREG:
		do_rereg(st, rq, rp);
		break;
	case OP_DEREG:
		do_dereg(st, rq, rp);
		break;
	case OP_FILL:
		pattern_fill(addr, len, (uint32_t)rq->arg[2]);
		break;
	case OP_CHECK:
		rp->value[0] = pattern_check(addr, len, (uint32_t)rq->arg[2]);
		break;
	case OP_READ64:
		memcpy(&rp->value[0], addr, 8);
		break;
	case OP_WRITE64:
		memcpy(addr, &rq->arg[1], 8);
		break;
	default:
		check(false, "request %d", (int)rq->op);
	}
}

static void execute(struct station *st, const struct request *rq, struct reply *rp)
{
	struct node *node = &st->node;

	memset(rp, 0, sizeof(*rp));
	switch (rq->op) {
	case OP_OPEN:
		do_open(st, rq, rp);
		break;
	case OP_CLOSE:
		do_close(st);
		break;
	case OP_CONNECT:
		do_connect(st, rq);
		break;
	case OP_SET_ATTR:
		node->attr = rq->u.attr;
		break;
	case OP_POST_SEND:
		rp->err = do_post_send(st, &rq->u.wr);
		break;
	case OP_POST_RECV:
		rp->err = do_post_recv(st, rq);
		break;
	case OP_POLL:
		rp->value[0] = cq_wait(rq->arg[0] == SQ ? node->send_cq : node->recv_cq, &rp->wc,
				       (unsigned int)rq->arg[1]);
		break;
	case OP_STATE:
		rp->value[0] = qp_get_state(node->qp);
		break;
	case OP_SET_STATE:
		rp->err = qp_set_state(node->qp, (enum ibv_qp_state)rq->arg[0]);
		break;
	case OP_DESTROY_QP:
		rp->err = ibv_destroy_qp(node->qp);
		node->qp = NULL;
		break;
	case OP_EVENT:
		rp->value[0] = (uint64_t)(int64_t)event_wait(node->ctx, (unsigned int)rq->arg[0]);
		break;
	default:
		execute_memory(st, rq, rp);
	}
}

void end_main(int argc, char **argv)
{
	struct station *station;
	struct request rq;
	struct reply rp;

	if (argc < 2 || strcmp(argv[1], "end"))
		return;
	station = calloc(1, sizeof(*station));
	check(station);
	while (msg_try_recv(ROLE_FD, &rq, sizeof(rq))) {
		execute(station, &rq, &rp);
		msg_send(ROLE_FD, &rp, sizeof(rp));
	}
	free(station);
	role_exit(0);
}

static struct reply ask(struct end *end, const struct request *rq)
{
	struct reply rp;

	memset(&rp, 0, sizeof(rp));
	if (end->place == HERE) {
		execute((struct station *)end->node, rq, &rp);
	} else {
		msg_send(end->fd, rq, sizeof(*rq));
		msg_recv(end->fd, &rp, sizeof(rp));
	}
	return rp;
}

void end_open(struct end *end, enum end_place place, const struct node_attr *attr)
{
	struct request rq = { .op = OP_OPEN };
	struct reply rp;

	memset(end, 0, sizeof(*end));
	end->place = place;
	if (place == HERE)
		end->node = calloc(1, sizeof(struct station));
	else
		end->pid = spawn_self("end", &end->fd);
	rq.u.attr = *attr;
	rp = ask(end, &rq);
	end->self = rp.self;
	end->lkey = rp.lkey;
}

void end_close(struct end *end)
{
	struct request rq = { .op = OP_CLOSE };

	ask(end, &rq);
	if (end->place == HERE) {
		free(end->node);
	} else {
		close(end->fd);
		spawn_wait(end->pid);
	}
	memset(end, 0, sizeof(*end));
}

void end_connect_to(struct end *end, const struct address *peer, enum ibv_qp_state upto)
{
	struct request rq = { .op = OP_CONNECT, .arg = { upto } };

	rq.u.peer = *peer;
	ask(end, &rq);
}

void end_connect(struct end *a, struct end *b)
{
	/* Both leave their old connection before either starts the new one. */
	end_connect_to(a, &b->self, IBV_QPS_RESET);
	end_connect_to(b, &a->self, IBV_QPS_RTS);
	end_connect_to(a, &b->self, IBV_QPS_RTS);
}

void end_pair_open(struct end *a, struct end *b, enum end_place place, struct node_attr attr)
{
	end_open(a, HERE, &attr);
	end_open(b, place, &attr);
	end_connect(a, b);
}

void end_pair_close(struct end *a, struct end *b)
{
	end_close(a);
	end_close(b);
}

void end_set_attr(struct end *end, const struct node_attr *attr)
{
	struct request rq = { .op = OP_SET_ATTR };

	rq.u.attr = *attr;
	ask(end, &rq);
}

int end_post_send(struct end *end, const struct end_wr *wr)
{
	struct request rq = { .op = OP_POST_SEND };

	rq.u.wr = *wr;
	return ask(end, &rq).err;
}

int end_post_recv(struct end *end, uint64_t wr_id, uint64_t addr, uint32_t len, uint32_t lkey)
{
	struct request rq = { .op = OP_POST_RECV, .arg = { wr_id, addr, len, lkey } };

	return ask(end, &rq).err;
}

bool end_poll(struct end *end, enum end_queue queue, struct ibv_wc *wc, unsigned int timeout_ms)
{
	struct request rq = { .op = OP_POLL, .arg = { queue, timeout_ms } };
	struct reply rp = ask(end, &rq);

	*wc = rp.wc;
	return rp.value[0] != 0;
}

void end_expect_at(const char *file, int line, struct end *end, enum end_queue queue,
		   uint64_t wr_id, enum ibv_wc_status status, struct ibv_wc *out)
{
	struct ibv_wc wc;

	if (!end_poll(end, queue, &wc, PATIENCE_MS)) {
		test_failed(file, line, "a completion", " none came for wr_id %llu",
			    (unsigned long long)wr_id);
		return;
	}
	check_status_at(file, line, &wc, status);
	if (wc.wr_id != wr_id)
		test_failed(file, line, "order", " wr_id %llu came, not %llu",
			    (unsigned long long)wc.wr_id, (unsigned long long)wr_id);
	if (out)
		*out = wc;
}

enum ibv_qp_state end_state(struct end *end)
{
	struct request rq = { .op = OP_STATE };

	return (enum ibv_qp_state)ask(end, &rq).value[0];
}

void end_expect_state_at(const char *file, int line, struct end *end, enum ibv_qp_state state)
{
	uint64_t limit = now_us() + PATIENCE_MS * 1000ull;
	enum ibv_qp_state seen;

	do {
		seen = end_state(end);
	} while (seen != state && now_us() < limit);
	if (seen != state)
		test_failed(file, line, "QP state", " %d, not %d", (int)seen, (int)state);
}

int end_set_state(struct end *end, enum ibv_qp_state state)
{
	struct request rq = { .op = OP_SET_STATE, .arg = { state } };

	return ask(end, &rq).err;
}

void end_destroy_qp(struct end *end)
{
	struct request rq = { .op = OP_DESTROY_QP };

	check_eq(ask(end, &rq).err, 0);
}

int end_event(struct end *end, unsigned int timeout_ms)
{
	struct request rq = { .op = OP_EVENT, .arg = { timeout_ms } };

	return (int)(int64_t)ask(end, &rq).value[0];
}

uint64_t end_map(struct end *end, uint64_t len, int prot)
{
	struct request rq = { .op = OP_MAP, .arg = { 0, len, (uint64_t)prot } };

	return ask(end, &rq).value[0];
}

void end_unmap(struct end *end, uint64_t addr, uint64_t len, bool guard)
{
	struct request rq = { .op = OP_UNMAP, .arg = { addr, len, guard } };

	check_eq(ask(end, &rq).err, 0);
}

uint64_t end_map_file(struct end *end, uint64_t len)
{
	struct request rq = { .op = OP_MAP_FILE, .arg = { 0, len } };

	return ask(end, &rq).value[0];
}

void end_truncate(struct end *end)
{
	struct request rq = { .op = OP_TRUNCATE };

	check_eq(ask(end, &rq).err, 0);
}

int end_reg(struct end *end, uint64_t addr, uint64_t len, uint64_t iova, int access, bool other_pd,
	    struct end_mr *mr)
{
	struct request rq = { .op = OP_REG,
			      .arg = { addr, len, iova, (uint64_t)access, other_pd } };
	struct reply rp = ask(end, &rq);

	if (!rp.err) {
		mr->key = (uint32_t)rp.value[0];
		mr->addr = iova;
		mr->len = len;
	}
	return rp.err;
}

int end_rereg(struct end *end, struct end_mr *mr, int flags, uint64_t addr, uint64_t len,
	      int access, bool other_pd)
{
	struct request rq = { .op = OP_REREG,
			      .arg = { mr->key, (uint64_t)flags, addr, len, (uint64_t)access,
				       other_pd } };
	struct reply rp = ask(end, &rq);

	mr->key = (uint32_t)rp.value[0];
	if (!rp.err && (flags & IBV_REREG_MR_CHANGE_TRANSLATION)) {
		mr->addr = addr;
		mr->len = len;
	}
	return rp.err;
}

int end_dereg(struct end *end, const struct end_mr *mr)
{
	struct request rq = { .op = OP_DEREG, .arg = { mr->key } };

	return ask(end, &rq).err;
}

void end_fill(struct end *end, uint64_t addr, uint64_t len, uint32_t seed)
{
	struct request rq = { .op = OP_FILL, .arg = { addr, len, seed } };

	ask(end, &rq);
}

void end_check_at(const char *file, int line, struct end *end, uint64_t addr, uint64_t len,
		  uint32_t seed)
{
	struct request rq = { .op = OP_CHECK, .arg = { addr, len, seed } };
	uint64_t good = ask(end, &rq).value[0];

	if (good != len)
		test_failed(file, line, "message bytes", " byte %llu of %llu is wrong",
			    (unsigned long long)good, (unsigned long long)len);
}

uint64_t end_read64(struct end *end, uint64_t addr)
{
	struct request rq = { .op = OP_READ64, .arg = { addr } };

	return ask(end, &rq).value[0];
}

void end_write64(struct end *end, uint64_t addr, uint64_t value)
{
	struct request rq = { .op = OP_WRITE64, .arg = { addr, value } };

	ask(end, &rq);
}

struct end_wr end_wr_send(const struct end *end, uint64_t wr_id, uint32_t len)
{
	struct end_wr wr = {
		.wr_id = wr_id,
		.opcode = IBV_WR_SEND,
		.flags = IBV_SEND_SIGNALED,
		.num_sge = 1,
		.sge = { { end->self.addr, len, end->lkey } },
		.qkey = TEST_QKEY,
	};

	return wr;
}

struct end_wr end_wr_rdma(const struct end *end, uint64_t wr_id, enum ibv_wr_opcode opcode,
			  uint32_t len, const struct end *peer)
{
	struct end_wr wr = end_wr_send(end, wr_id, len);

	wr.opcode = opcode;
	wr.remote = peer->self.addr;
	wr.rkey = peer->self.rkey;
	return wr;
}
