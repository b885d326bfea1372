// SPDX-License-Identifier: MIT
/*
 * A refusal says why: with VERBATIM_LOG=info every call that fails and every error completion leaves one line that
 * names the public function or the request, the object and the reason. The test walks all reasons of base/reasons.h:
 * each is provoked through the API, or stands in the list of those that no program can provoke at will.
 */
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <infiniband/hbldv.h>
#include <infiniband/mlx4dv.h>
#include <infiniband/mlx5dv.h>

#include "base/refusal.h"
#include "card/emulation/emulation.h"
#include "card/hbl/hbl.h"
#include "card/fault/inject.h"

enum { LINE_BYTES = 1024, BURST = 10, DEVX_EQ_IN = 272, DEVX_EQ_OUT = 16 };

static bool seen[VB_REASON_COUNT];

/* What a program cannot bring about: memory that ends, races, and peers that break the protocol. */
static const enum vb_reason not_at_will[] = {
	VB_REASON_memory,     VB_REASON_failed_meanwhile, VB_REASON_wr_answer,
	VB_REASON_in_request, VB_REASON_unexplained,
};

/* --- the log --------------------------------------------------------------------------------------- */

static FILE *log_file;

/* The next line, without its newline; false: there is none. */
static bool next_line(char *line)
{
	clearerr(log_file);
	if (!fgets(line, LINE_BYTES, log_file))
		return false;
	line[strcspn(line, "\n")] = '\0';
	return true;
}

static void expect_lines(const char *file, int number, enum vb_reason reason, const char *begin,
			 const char *words, int count)
{
	char line[LINE_BYTES], all[4 * LINE_BYTES] = "";
	int found = 0, others = 0;

	while (next_line(line)) {
		const char *text = strstr(line, " info: ");

		if (text && !strncmp(text + 7, begin, strlen(begin)) && strstr(text, words))
			found++;
		else
			others++;
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "\n    %s", line);
	}
	if (found != count || (count == 1 && others))
		test_failed(file, number, words, " %d lines, wanted %d that begin with \"%s\":%s",
			    found, count, begin, all);
	seen[reason] = true;
}

/* The call fails and leaves this line, and no other. */
#define REFUSED(reason, begin, words, failed)                                          \
	do {                                                                           \
		check(failed);                                                         \
		expect_lines(__FILE__, __LINE__, VB_REASON_##reason, begin, words, 1); \
	} while (0)
/* The line is among those that came up to now. */
#define LOGGED(reason, begin, words) \
	expect_lines(__FILE__, __LINE__, VB_REASON_##reason, begin, words, 1)

static void drop_lines(void)
{
	char line[LINE_BYTES];

	while (next_line(line))
		;
}

/* Among the lines so far is one that begins and goes on so; the rest does not matter. */
static void find_line(const char *file, int number, enum vb_reason reason, const char *begin,
		      const char *words)
{
	char line[LINE_BYTES], all[6 * LINE_BYTES] = "";
	bool found = false;

	while (next_line(line)) {
		const char *text = strstr(line, " info: ");

		found |= text && !strncmp(text + 7, begin, strlen(begin)) && strstr(text, words);
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "\n    %s", line);
	}
	if (!found)
		test_failed(file, number, words, " no line that begins with \"%s\":%s", begin, all);
	seen[reason] = true;
}
#define FOUND(reason, begin, words) find_line(__FILE__, __LINE__, VB_REASON_##reason, begin, words)

/* --- calls ----------------------------------------------------------------------------------------- */

static void refuse_arguments(struct node *node)
{
	struct ibv_qp_init_attr init = { .send_cq = node->send_cq,
					 .recv_cq = node->recv_cq,
					 .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 1u << 20 } };
	struct ibv_cq_init_attr_ex cq = { .cqe = 4, .comp_mask = 1u << 30 };
	struct ibv_context *other = device_open();
	struct ibv_pd *pd = ibv_alloc_pd(other);

	drop_lines(); /* opening may have told of what other tests left */
	REFUSED(null, "ibv_create_qp: ", "NULL", !ibv_create_qp(node->pd, NULL));
	REFUSED(null, "ibv_destroy_qp: QP", "qp is NULL", ibv_destroy_qp(NULL) == EINVAL);
	REFUSED(range, "ibv_create_qp: ", "max_send_wr is 1048576; allowed: 0 to 32768",
		!ibv_create_qp(node->pd, &init));
	init.cap.max_send_wr = 1;
	REFUSED(other_context, "ibv_create_qp: ", "send_cq, recv_cq or srq",
		!ibv_create_qp(pd, &init));
	init.qp_type = 99;
	REFUSED(value, "ibv_create_qp: ", "qp_type cannot be 99", !ibv_create_qp(node->pd, &init));
	init.qp_type = IBV_QPT_XRC_SEND;
	REFUSED(unsupported, "ibv_create_qp: ", "XRC: not supported (docs/deviations.md",
		!ibv_create_qp(node->pd, &init));
	REFUSED(bits, "ibv_create_cq_ex: ", "unknown bits 0x40000000 in comp_mask",
		!ibv_create_cq_ex(node->ctx, &cq));
	cq = (struct ibv_cq_init_attr_ex){ .cqe = 4, .wc_flags = IBV_WC_EX_WITH_TM_INFO };
	REFUSED(unsupported_value, "ibv_create_cq_ex: ", "wc_flags 0x400",
		!ibv_create_cq_ex(node->ctx, &cq));
	REFUSED(busy, "ibv_destroy_cq: CQ", "still used by queue pairs",
		ibv_destroy_cq(node->send_cq) == EBUSY);
	REFUSED(function, "ibv_alloc_mw: ", "not supported",
		!ibv_alloc_mw(node->pd, IBV_MW_TYPE_1));
	REFUSED(null, "ibv_create_flow: ", "qp or flow_attr is NULL",
		!ibv_create_flow(node->qp, NULL));
	REFUSED(combination, "ibv_create_flow: ", "a RAW_PACKET queue pair that receives",
		!ibv_create_flow(node->qp, &(struct ibv_flow_attr){ .port = 1 }));
	REFUSED(port, "ibv_query_port: ", "port 7, ",
		ibv_query_port(node->ctx, 7, &(struct ibv_port_attr){ 0 }) == EINVAL);
	check_eq(ibv_dealloc_pd(pd), 0);
	check_eq(ibv_close_device(other), 0);
}

static void refuse_memory(struct node *node)
{
	void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	REFUSED(remote_without_local, "ibv_reg_mr: ", "(add IBV_ACCESS_LOCAL_WRITE)",
		!ibv_reg_mr(node->pd, node->buf, 64, IBV_ACCESS_REMOTE_WRITE));
	REFUSED(unmapped, "ibv_reg_mr: ", "not all mapped and readable",
		!ibv_reg_mr(node->pd, page, 4096, 0));
	REFUSED(wraps, "ibv_reg_mr: ", "beyond the address space",
		!ibv_reg_mr(node->pd, node->buf, SIZE_MAX, 0));
	REFUSED(combination, "ibv_reg_mr_iova: ", "differ within the page",
		!ibv_reg_mr_iova(node->pd, node->buf, 64, (uintptr_t)node->buf + 8, 0));
	munmap(page, 4096);
}

static void refuse_transitions(struct node *node, const struct address *peer)
{
	struct ibv_qp *qp = node->qp;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_256,
		.dest_qp_num = peer->qpn,
		.rq_psn = 1,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
	};
	const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	char object[64];

	check_eq(qp_set_state(qp, IBV_QPS_RESET), 0);
	drop_lines();
	REFUSED(transition, "ibv_modify_qp: QP 0x", "no transition from RESET to RTS for a RC",
		ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);
	attr.qp_state = IBV_QPS_INIT;
	REFUSED(attr_missing, "ibv_modify_qp: QP 0x",
		"to INIT: attr_mask lacks IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX, IBV_QP_PORT",
		ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);
	attr.cur_qp_state = IBV_QPS_RTR;
	REFUSED(not_in_state, "ibv_modify_qp: QP 0x",
		"cur_qp_state is RTR, the queue pair is in RESET",
		ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE) == EINVAL);
	node_to_init(node);
	REFUSED(no_grh, "ibv_modify_qp: QP 0x", "to RTR: the address vector has no GRH",
		ibv_modify_qp(qp, &rtr, mask) == EINVAL);
	ah_attr_to(&rtr.ah_attr, &peer->gid);
	rtr.ah_attr.grh.sgid_index = 200;
	REFUSED(sgid_index, "ibv_modify_qp: QP 0x", "sgid_index 200, ",
		ibv_modify_qp(qp, &rtr, mask) == EINVAL);
	ah_attr_to(&rtr.ah_attr, &peer->gid);
	REFUSED(attr_extra, "ibv_modify_qp: QP 0x", "attr_mask has IBV_QP_QKEY, which",
		ibv_modify_qp(qp, &rtr, mask | IBV_QP_QKEY) == EINVAL);
	REFUSED(migration, "ibv_modify_qp: QP 0x", "alternate paths",
		ibv_modify_qp(qp, &rtr, mask | IBV_QP_ALT_PATH) == EINVAL);
	rtr.path_mtu = IBV_MTU_4096;
	rtr.ah_attr.grh.dgid.raw[0] = 0x20; /* of no adapter here */
	snprintf(object, sizeof(object), "ibv_modify_qp: QP 0x%x to RTR: ", qp->qp_num);
	REFUSED(path_mtu, object,
		"path_mtu 4096 to another host, port 1 of small_0 has 1024 (mtu = in the configuration)",
		ibv_modify_qp(qp, &rtr, mask) == EINVAL);
}

static void refuse_posts(struct node *node)
{
	struct ibv_sge sge[3] = { { (uintptr_t)node->buf, 64, node->mr->lkey } };
	struct ibv_send_wr wr = { .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_recv_wr rwr = { .sg_list = sge, .num_sge = 30 }, *bad_recv;
	const char *send = "ibv_post_send: QP 0x";
	int ret = 0;

	check_eq(qp_set_state(node->qp, IBV_QPS_RESET), 0);
	drop_lines();
	REFUSED(post_state, send, "the queue pair is in RESET",
		ibv_post_send(node->qp, &wr, &bad) == EINVAL);
	node_to_init(node);
	REFUSED(post_sge, "ibv_post_recv: QP 0x", "num_sge 30; allowed: 0 to ",
		ibv_post_recv(node->qp, &rwr, &bad_recv) == EINVAL);
	rwr.num_sge = 1;
	while (!ret)
		ret = ibv_post_recv(node->qp, &rwr, &bad_recv);
	REFUSED(post_full, "ibv_post_recv: QP 0x", "the queue is full", ret == ENOMEM);
}

static void refuse_requests(struct node *node)
{
	struct ibv_sge sge = { (uintptr_t)node->buf, 4096, node->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	const char *send = "ibv_post_send: QP 0x";

	wr.send_flags = IBV_SEND_INLINE;
	REFUSED(post_inline, send, "4096 bytes inline; the queue takes ",
		ibv_post_send(node->qp, &wr, &bad) == EINVAL);
	wr.opcode = IBV_WR_RDMA_READ;
	sge.length = 8;
	REFUSED(post_request, send, "opcode 4", ibv_post_send(node->qp, &wr, &bad) == EINVAL);
}

static void refuse_on_datagrams(void)
{
	struct node_attr attr = node_attr(IBV_QPT_UD);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE }, *bad;
	struct ibv_ah_attr ah_attr = { 0 };
	struct address self;
	struct node node;
	struct ibv_sge sge;

	node_open(&node, &attr);
	node_connect(&node, NULL);
	node_address(&node, &self);
	REFUSED(post_opcode, "ibv_post_send: QP 0x", "opcode 0 does not exist for a UD queue pair",
		ibv_post_send(node.qp, &wr, &bad) == EINVAL);
	ah_attr_to(&ah_attr, &self.gid);
	sge = (struct ibv_sge){ (uintptr_t)node.buf, 3000, node.mr->lkey };
	wr = (struct ibv_send_wr){ .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 };
	wr.wr.ud.ah = ibv_create_ah(node.pd, &ah_attr);
	wr.wr.ud.remote_qpn = node.qp->qp_num;
	wr.wr.ud.remote_qkey = TEST_QKEY;
	check_eq(ibv_post_send(node.qp, &wr, &bad), 0);
	cq_expect(node.send_cq, 0, IBV_WC_LOC_LEN_ERR);
	LOGGED(wr_datagram, "SEND: QP 0x", "a datagram of 3000 bytes, small_0 has an MTU of 1024");
	memset(ah_attr.grh.dgid.raw, 0x20, 16);
	ah_attr.port_num = 1;
	REFUSED(no_neighbour, "ibv_resolve_eth_l2_from_gid: ", "neighbour",
		ibv_resolve_eth_l2_from_gid(node.ctx, &ah_attr, (uint8_t[6]){ 0 }, NULL) ==
			EHOSTUNREACH);
	check_eq(ibv_destroy_ah(wr.wr.ud.ah), 0);
	node_close(&node);
}

/* One object more than the configuration allows. */
static void refuse_limit(struct node *node)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srqs[2];

	for (int i = 0; i < 2; i++)
		check(srqs[i] = ibv_create_srq(node->pd, &attr));
	REFUSED(limit, "ibv_create_srq: small_0: ",
		"no more than 2 SRQs (max_qp, max_cq, max_mr, max_srq in the configuration)",
		!ibv_create_srq(node->pd, &attr));
	for (int i = 0; i < 2; i++)
		check_eq(ibv_destroy_srq(srqs[i]), 0);
}

static void refuse_in_child(struct node *node)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(ibv_reg_mr(node->pd, node->buf, 64, 0) ? 1 : 0);
	check(waitpid(pid, &status, 0) == pid && status == 0);
	FOUND(forked, "ibv_reg_mr: ", "opened by the parent process (open the device again");
}

/* --- completions ------------------------------------------------------------------------------------- */

struct pair {
	struct node a, b;
	struct address to_a, to_b;
};

static void pair_open(struct pair *pair, enum ibv_qp_type type)
{
	struct node_attr attr = node_attr(type);

	attr.cap.max_send_sge = 3;
	attr.timeout = 10;
	attr.retry_cnt = 1;
	attr.rnr_retry = 0;
	node_pair(&pair->a, &pair->b, &attr);
	node_address(&pair->a, &pair->to_a);
	node_address(&pair->b, &pair->to_b);
	drop_lines();
}

static void pair_again(struct pair *pair)
{
	check_eq(qp_set_state(pair->a.qp, IBV_QPS_RESET), 0);
	check_eq(qp_set_state(pair->b.qp, IBV_QPS_RESET), 0);
	node_connect(&pair->a, &pair->to_b);
	node_connect(&pair->b, &pair->to_a);
	drop_lines();
}

static void pair_close(struct pair *pair)
{
	node_close(&pair->a);
	node_close(&pair->b);
}

/* A WRITE or READ of a to b's memory, altered by the caller, ends with this status. */
static void rdma(struct pair *pair, enum ibv_wr_opcode opcode, struct address to,
		 enum ibv_wc_status status)
{
	check_eq(node_rdma(&pair->a, 1, opcode, 0, 64, &to, 0), 0);
	cq_expect(pair->a.send_cq, 1, status);
}

static void fail_remote(struct pair *pair)
{
	struct address wrong = pair->to_b;

	wrong.rkey ^= 0xff00;
	rdma(pair, IBV_WR_RDMA_WRITE, wrong, IBV_WC_REM_ACCESS_ERR);
	sleep_ms(20);
	FOUND(in_key, "receive: QP 0x", " does not exist (64 bytes at 0x");
	pair_again(pair);
	wrong = pair->to_b;
	wrong.addr += wrong.size - 32;
	rdma(pair, IBV_WR_RDMA_READ, wrong, IBV_WC_REM_ACCESS_ERR);
	FOUND(wr_peer_key, "RDMA READ: QP 0x", "IBV_WC_REM_ACCESS_ERR: the peer refused rkey 0x");
	pair_again(pair);
	check_eq(node_recv(&pair->b, 2, 0, 16), 0);
	check_eq(node_send(&pair->a, 1, 0, 64, IBV_SEND_SIGNALED), 0);
	cq_expect(pair->a.send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
	FOUND(in_length, "receive: QP 0x", "at least 64 bytes for a receive request of 16");
	pair_again(pair);
	check_eq(node_recv(&pair->b, 2, 0, 16), 0);
	check_eq(node_send(&pair->a, 1, 0, 64, IBV_SEND_SIGNALED), 0);
	cq_expect(pair->a.send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
	FOUND(wr_peer_request, "SEND: QP 0x", "the peer refused the request");
	pair_again(pair);
	check_eq(node_send(&pair->a, 1, 0, 64, IBV_SEND_SIGNALED), 0);
	cq_expect(pair->a.send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	FOUND(wr_rnr, "SEND: QP 0x", "had no receive request posted, 0 retries (rnr_retry");
	pair_again(pair);
}

static void fail_rights(struct pair *pair)
{
	struct ibv_qp_attr attr = { .qp_access_flags = 0 };

	check_eq(ibv_modify_qp(pair->b.qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
	rdma(pair, IBV_WR_RDMA_WRITE, pair->to_b, IBV_WC_REM_INV_REQ_ERR);
	FOUND(in_right, "receive: QP 0x", "what needs IBV_ACCESS_REMOTE_WRITE here");
	pair_again(pair);
}

static void fail_local(struct pair *pair)
{
	struct ibv_sge sge = { (uintptr_t)pair->a.buf, 64, pair->a.mr->lkey ^ 0xff00 };
	struct ibv_send_wr wr = {
		.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND
	};
	struct ibv_recv_wr rwr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr *bad;

	check_eq(ibv_post_send(pair->a.qp, &wr, &bad), 0);
	cq_expect(pair->a.send_cq, 1, IBV_WC_LOC_PROT_ERR);
	FOUND(wr_key, "SEND: QP 0x", "does not exist (64 bytes at 0x");
	pair_again(pair);
	check_eq(ibv_post_recv(pair->b.qp, &rwr, &bad_recv), 0);
	check_eq(node_send(&pair->a, 1, 0, 64, IBV_SEND_SIGNALED), 0);
	cq_expect(pair->a.send_cq, 1, IBV_WC_REM_OP_ERR);
	FOUND(wr_peer_buffer, "SEND: QP 0x", "the peer's receive request is bad");
	pair_again(pair);
	wr = (struct ibv_send_wr){ .wr_id = 1,
				   .opcode = IBV_WR_LOCAL_INV,
				   .invalidate_rkey = 0x777 };
	check_eq(ibv_post_send(pair->a.qp, &wr, &bad), 0);
	cq_expect(pair->a.send_cq, 1, IBV_WC_LOC_QP_OP_ERR);
	FOUND(wr_invalidate, "LOCAL_INV: QP 0x", "key 0x777 cannot be invalidated");
	pair_again(pair);
}

static void fail_lengths(struct pair *pair)
{
	struct ibv_sge sge[3] = { { (uintptr_t)pair->a.buf, 16, pair->a.mr->lkey } };
	struct ibv_send_wr wr = {
		.wr_id = 1, .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD
	};
	struct ibv_send_wr *bad;

	wr.wr.atomic.remote_addr = pair->to_b.addr;
	wr.wr.atomic.rkey = pair->to_b.rkey;
	check_eq(ibv_post_send(pair->a.qp, &wr, &bad), 0);
	cq_expect(pair->a.send_cq, 1, IBV_WC_LOC_LEN_ERR);
	FOUND(wr_atomic_len, "ATOMIC: QP 0x", "an atomic with 16 bytes instead of 8");
	pair_again(pair);
	sge[0].length = 1u << 30;
	sge[2] = sge[1] = sge[0];
	wr = (struct ibv_send_wr){
		.wr_id = 1, .sg_list = sge, .num_sge = 3, .opcode = IBV_WR_SEND
	};
	check_eq(ibv_post_send(pair->a.qp, &wr, &bad), 0);
	cq_expect(pair->a.send_cq, 1, IBV_WC_LOC_LEN_ERR);
	FOUND(wr_long, "SEND: QP 0x", "3221225472 bytes; a message has at most 1073741824");
	pair_again(pair);
}

/* Memory that the program unmaps after it registered it. */
static void fail_unmapped(struct pair *pair)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(pair->a.pd, page, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = { (uintptr_t)page, 64, mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND
	};
	struct ibv_send_wr *bad;

	munmap(page, 4096);
	check_eq(node_recv(&pair->b, 2, 0, 64), 0);
	check_eq(ibv_post_send(pair->a.qp, &wr, &bad), 0);
	cq_expect(pair->a.send_cq, 1, IBV_WC_LOC_PROT_ERR);
	FOUND(wr_gone, "SEND: QP 0x", "local memory was unmapped after it was registered");
	check_eq(ibv_dereg_mr(mr), 0);
	pair_again(pair);
}

static void fail_silent(struct pair *pair)
{
	struct address nobody = pair->to_b;

	check_eq(qp_set_state(pair->b.qp, IBV_QPS_RESET), 0);
	check_eq(node_send(&pair->a, 1, 0, 64, IBV_SEND_SIGNALED), 0);
	cq_expect(pair->a.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	FOUND(wr_no_answer, "SEND: QP 0x", "did not answer, 1 retries (timeout and retry_cnt");
	check_eq(qp_set_state(pair->a.qp, IBV_QPS_RESET), 0);
	memset(nobody.gid.raw, 0x20, 16);
	node_connect(&pair->a, &nobody);
	check_eq(node_send(&pair->a, 1, 0, 64, IBV_SEND_SIGNALED), 0);
	check_eq(node_send(&pair->a, 2, 0, 64, IBV_SEND_SIGNALED), 0);
	cq_expect(pair->a.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	cq_expect(pair->a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	FOUND(wr_no_path, "SEND: QP 0x", "nobody here has GID 2020:2020:");
	pair_again(pair);
	check_eq(node_recv(&pair->a, 2, 0, 64), 0);
	check_eq(qp_set_state(pair->a.qp, IBV_QPS_ERR), 0);
	FOUND(wr_flushed, "work requests: QP 0x", "1 requests of the receive queue flushed");
	pair_again(pair);
}

static void fail_without_rd_atomic(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct pair pair;

	attr.rd_atomic = 0;
	node_pair(&pair.a, &pair.b, &attr);
	node_address(&pair.b, &pair.to_b);
	drop_lines();
	rdma(&pair, IBV_WR_RDMA_READ, pair.to_b, IBV_WC_LOC_QP_OP_ERR);
	FOUND(wr_no_rd_atomic, "RDMA READ: QP 0x", "with max_rd_atomic 0 (max_rd_atomic in");
	pair_close(&pair);
	pair_open(&pair, IBV_QPT_UC);
	rdma(&pair, IBV_WR_RDMA_READ, pair.to_b, IBV_WC_LOC_QP_OP_ERR);
	FOUND(wr_read_on_uc, "RDMA READ: QP 0x", "UC has neither READ");
	pair_close(&pair);
}

/* A copy inside of the card, from 16 bytes to 8. */
static void fail_copy(struct pair *pair, struct mlx5dv_qp *dv)
{
	enum { LOCAL_MMO = 0x32, LDMA = 1 };
	struct mlx5_wqe_ctrl_seg *ctrl = dv->sq.buf;
	struct mlx5_wqe_data_seg *data = (void *)((char *)dv->sq.buf + 32);
	struct ibv_wc wc;

	memset(ctrl, 0, 64);
	mlx5dv_set_ctrl_seg(ctrl, 0, LOCAL_MMO, LDMA, pair->a.qp->qp_num, 8, 4, 0, 0);
	mlx5dv_set_data_seg(&data[0], 16, pair->a.mr->lkey, (uintptr_t)pair->a.buf);
	mlx5dv_set_data_seg(&data[1], 8, pair->a.mr->lkey, (uintptr_t)pair->a.buf + 64);
	dv->dbrec[MLX5_SND_DBR] = htobe32(1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*(volatile __be64 *)dv->bf.reg = *(__be64 *)ctrl;
	check(cq_wait(pair->a.send_cq, &wc, PATIENCE_MS));
	FOUND(wr_local_len, "LDMA: QP 0x", "16 bytes to copy into 8");
	pair_again(pair);
}

/* WQEs and receive WQEs that the program writes itself (mlx5 direct verbs). */
static void fail_direct(struct pair *pair)
{
	struct mlx5dv_qp dv = { 0 };
	struct mlx5dv_obj obj = { .qp = { .in = pair->a.qp, .out = &dv } };
	struct mlx5_wqe_ctrl_seg *ctrl;
	struct ibv_wc wc;

	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), 0);
	fail_copy(pair, &dv);
	ctrl = dv.sq.buf;
	for (int round = 0; round < 2; round++) {
		memset(ctrl, 0, 64);
		mlx5dv_set_ctrl_seg(ctrl, 0, round ? MLX5_OPCODE_SEND : 0x7e, 0, pair->a.qp->qp_num,
				    8, round ? 30 : 1, 0, 0);
		dv.dbrec[MLX5_SND_DBR] = htobe32(1);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		*(volatile __be64 *)dv.bf.reg = *(__be64 *)ctrl;
		check(cq_wait(pair->a.send_cq, &wc, PATIENCE_MS));
		if (round)
			FOUND(wr_doorbell, "", "blocks, the doorbell announced 1");
		else
			FOUND(wr_format, "", "cannot be decoded");
		pair_again(pair);
	}
	obj.qp.in = pair->b.qp;
	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), 0);
	*(struct mlx5_wqe_data_seg *)dv.rq.buf =
		(struct mlx5_wqe_data_seg){ .byte_count = htobe32(MLX5_INLINE_SEG),
					    .lkey = htobe32(1) };
	__atomic_store_n(&dv.dbrec[MLX5_RCV_DBR], htobe32(1), __ATOMIC_RELEASE);
	check_eq(node_send(&pair->a, 1, 0, 64, IBV_SEND_SIGNALED), 0);
	cq_expect(pair->a.send_cq, 1, IBV_WC_REM_OP_ERR);
	FOUND(in_wqe, "receive: QP 0x", "the receive WQE cannot be decoded");
	pair_again(pair);
}

/* --- another process, another adapter ------------------------------------------------------------------- */

static int role_target(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address peer;
	struct node node;
	char never;

	node_open(&node, &attr);
	node_meet(&node, ROLE_FD, &peer);
	msg_send(ROLE_FD, "r", 1);
	msg_try_recv(ROLE_FD, &never, 1);
	return 0;
}

static void fail_dead_peer(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address peer;
	struct node node;
	int fd, status;
	char ready;
	pid_t pid;

	attr.timeout = 20;
	attr.rnr_retry = 7;
	pid = spawn_self("target", &fd);
	node_open(&node, &attr);
	node_meet(&node, fd, &peer);
	msg_recv(fd, &ready, 1);
	drop_lines();
	check_eq(node_send(&node, 1, 0, 64, IBV_SEND_SIGNALED), 0);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	cq_expect(node.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	FOUND(wr_peer_died, "SEND: QP 0x", "the process of queue pair 0x");
	close(fd);
	node_close(&node);
}

static struct ibv_context *open_named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	check(ctx, "no %s", name);
	return ctx;
}

/* Event queues are few. */
static void refuse_numbers(struct node *node)
{
	enum { MOST = 256 };
	uint8_t in[DEVX_EQ_IN] = { 0x03, 0x01 }, out[DEVX_EQ_OUT];
	struct mlx5dv_devx_eq *eqs[MOST + 1];
	int n = 0;

	while (n <= MOST &&
	       (eqs[n] = mlx5dv_devx_create_eq(node->ctx, in, sizeof(in), out, sizeof(out))))
		n++;
	REFUSED(numbers, "mlx5dv_devx_create_eq: small_0: ", "there are no more than", n <= MOST);
	while (n--)
		check_eq(mlx5dv_devx_destroy_eq(eqs[n]), 0);
}

/* Commands of the programmer's reference manual, whose fields are big-endian. */
static void refuse_commands(struct node *node)
{
	enum {
		TIS_DOMAIN = 32 + 0x128 / 8,
		CQ_LOG_SIZE = 16 + 0x60 / 8,
		CQ_UAR = 16 + 0x68 / 8,
		CQ_EQN = 16 + 0xb8 / 8
	};
	uint8_t tis[512] = { 0x09, 0x12 }, cq[512] = { 0x04, 0x00 }, qp[512] = { 0x05, 0x04 },
		out[512];
	struct mlx5dv_devx_uar *uar = mlx5dv_devx_alloc_uar(node->ctx, 0);
	struct ibv_qp *fresh = node_create_qp(node);
	uint32_t eqn;

	check(uar && fresh, "%s", strerror(errno));
	tis[TIS_DOMAIN + 2] = 0xab;
	REFUSED(no_object, "mlx5dv_devx_obj_create: small_0 CREATE_TIS: ", "transport_domain 0xab",
		!mlx5dv_devx_obj_create(node->ctx, tis, sizeof(tis), out, sizeof(out)));
	check_eq(mlx5dv_devx_query_eqn(node->ctx, 0, &eqn), 0);
	cq[CQ_LOG_SIZE] = 4;
	cq[CQ_UAR + 1] = (uint8_t)(uar->page_id >> 8);
	cq[CQ_UAR + 2] = (uint8_t)uar->page_id;
	cq[CQ_EQN] = (uint8_t)eqn;
	REFUSED(no_umem, "mlx5dv_devx_obj_create: small_0 CREATE_CQ: ", "are not in a umem",
		!mlx5dv_devx_obj_create(node->ctx, cq, sizeof(cq), out, sizeof(out)));
	qp[9] = (uint8_t)(fresh->qp_num >> 16);
	qp[10] = (uint8_t)(fresh->qp_num >> 8);
	qp[11] = (uint8_t)fresh->qp_num;
	REFUSED(command_state, "mlx5dv_devx_qp_modify: QP RTR2RTS_QP: ", "no transition from ",
		mlx5dv_devx_qp_modify(fresh, qp, sizeof(qp), out, sizeof(out)));
	check_eq(ibv_destroy_qp(fresh), 0);
	mlx5dv_devx_free_uar(uar);
}

/* Direct verbs of one card on another. */
static void refuse_direct(struct node *node)
{
	struct mlx4dv_context mlx4 = { 0 };
	struct mlx5dv_context mlx5 = { 0 };
	struct ibv_context *ctx = open_named("mlx4_0");

	REFUSED(not_mlx, "mlx4dv_query_device: small_0: ", "no mlx4 device",
		mlx4dv_query_device(node->ctx, &mlx4) == EOPNOTSUPP);
	REFUSED(not_mlx5, "mlx5dv_query_device: mlx4_0: ", "no mlx5 device",
		mlx5dv_query_device(ctx, &mlx5) == EINVAL);
	REFUSED(function, "mlx5dv_dr_action_create_flow_sampler: ", "not supported",
		!mlx5dv_dr_action_create_flow_sampler(NULL));
	check_eq(ibv_close_device(ctx), 0);
}

static void refuse_steering(struct node *node)
{
	struct mlx5dv_flow_match_parameters *value =
		calloc(1, sizeof(*value) + sizeof(uint64_t[8]));
	struct mlx5dv_dr_domain *domain =
		mlx5dv_dr_domain_create(node->ctx, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	struct mlx5dv_dr_table *table = mlx5dv_dr_table_create(domain, 1);
	struct mlx5dv_dr_matcher *matcher = mlx5dv_dr_matcher_create(table, 0, 0, NULL);
	struct mlx5dv_dr_action *drop = mlx5dv_dr_action_create_drop();
	struct mlx5dv_dr_rule *rule;

	value->match_sz = sizeof(uint64_t[8]);
	rule = mlx5dv_dr_rule_create(matcher, value, 1, &drop);
	check(rule);
	drop_lines();
	mlx5dv_dr_domain_allow_duplicate_rules(domain, false);
	REFUSED(exists, "mlx5dv_dr_rule_create: rule", "a rule with this value exists",
		!mlx5dv_dr_rule_create(matcher, value, 1, &drop));
	REFUSED(cannot, "mlx5dv_dr_action_create_dest_vport: action", "vports are for FDB",
		!mlx5dv_dr_action_create_dest_vport(domain, 0));
	REFUSED(busy, "mlx5dv_dr_table_destroy: table", "still used by matchers",
		mlx5dv_dr_table_destroy(table) == EBUSY);
	REFUSED(busy, "mlx5dv_dr_action_destroy: action", "still used by rules",
		mlx5dv_dr_action_destroy(drop) == EBUSY);
	check_eq(mlx5dv_dr_rule_destroy(rule), 0);
	check_eq(mlx5dv_dr_action_destroy(drop), 0);
	check_eq(mlx5dv_dr_matcher_destroy(matcher), 0);
	check_eq(mlx5dv_dr_table_destroy(table), 0);
	check_eq(mlx5dv_dr_domain_destroy(domain), 0);
	free(value);
}

static void refuse_second_pd(void)
{
	struct ibv_context *ctx = open_named("hbl_0");
	struct ibv_pd *pd = ibv_alloc_pd(ctx);

	check(pd);
	drop_lines();
	REFUSED(one_pd, "ibv_alloc_pd: hbl_0: ", "one protection domain", !ibv_alloc_pd(ctx));
	check_eq(ibv_dealloc_pd(pd), 0);
	check_eq(ibv_close_device(ctx), 0);
}

static struct hbldv_port_ex_attr port_attr(uint32_t port)
{
	struct hbldv_port_ex_attr attr = { .port_num = port };
	struct hbldv_wq_array_attr *wqs = &attr.wq_arr_attr[HBLDV_WQ_ARRAY_TYPE_GENERIC];

	wqs->max_num_of_wqs = 16;
	wqs->max_num_of_wqes_in_wq = 256;
	wqs->mem_id = HBLDV_MEM_HOST;
	wqs->swq_granularity = HBLDV_SWQE_GRAN_32B;
	return attr;
}

/* hbl direct verbs: ports, FIFOs, owners, peers. */
static void refuse_hbl(void)
{
	struct hbldv_ucontext_attr open_attr = { .core_fd =
							 open("/dev/null", O_RDONLY | O_CLOEXEC) };
	struct hbldv_usr_fifo_attr fifo = { .port_num = 9,
					    .usr_fifo_type = HBLDV_USR_FIFO_TYPE_DB };
	struct hbldv_port_ex_attr port = port_attr(1);
	struct hbldv_usr_fifo *first;
	struct ibv_context *ctx;
	struct ibv_device *device;

	ctx = open_named("hbl_1");
	device = ctx->device;
	check_eq(ibv_close_device(ctx), 0);
	REFUSED(hbl_fd, "hbldv_open_device: hbl_1: ", "is not of an accelerator",
		!hbldv_open_device(device, &open_attr) && errno == ENODEV);
	close(open_attr.core_fd);
	ctx = hbldv_open_device(device, NULL);
	check(ctx);
	REFUSED(hbl_port, "hbldv_create_usr_fifo: hbl_1: ", "port 9 is not in the context's mask",
		!hbldv_create_usr_fifo(ctx, &fifo));
	REFUSED(hbl_set_up, "hbldv_set_port_ex: hbl_1: ", "port 1 is set up already",
		hbldv_set_port_ex(ctx, &port) == EPERM);
	fifo.port_num = 1;
	fifo.usr_fifo_type = HBLDV_USR_FIFO_TYPE_CC;
	REFUSED(hbl_not_advanced, "hbldv_create_usr_fifo: hbl_1: ", "(HBLDV_PORT_CAP_ADVANCED in",
		!hbldv_create_usr_fifo(ctx, &fifo));
	fifo.usr_fifo_type = HBLDV_USR_FIFO_TYPE_DB;
	fifo.usr_fifo_num_hint = 5;
	check(first = hbldv_create_usr_fifo(ctx, &fifo));
	REFUSED(hbl_used_up,
		"hbldv_create_usr_fifo: hbl_1: ", "no FIFO of this number is free on port 1",
		!hbldv_create_usr_fifo(ctx, &fifo) && errno == EBUSY);
	check_eq(hbldv_destroy_usr_fifo(first), 0);
	check_eq(ibv_close_device(ctx), 0);
}

/* A context on a part of the ports, none of which is set up; and a second owner. */
static void refuse_hbl_ports(void)
{
	struct hbldv_usr_fifo_attr fifo = { .port_num = 1,
					    .usr_fifo_type = HBLDV_USR_FIFO_TYPE_DB };
	struct ibv_context *ctx;
	struct hbldv_ucontext_attr attr = { .ports_mask = 2 };

	ctx = open_named("hbl_1");
	attr.core_fd = vb_hbl_accel_open(0, O_RDWR | O_CLOEXEC);
	if (attr.core_fd < 0)
		test_failed(__FILE__, __LINE__, "accel0", " %s", strerror(-attr.core_fd));
	struct ibv_context *named = open_named("hbl_1"); /* the default context, once more */
	struct ibv_device **list = ibv_get_device_list(NULL), *hbl_0 = NULL;

	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "hbl_0"))
			hbl_0 = list[i];
	check_eq(ibv_close_device(named), 0);
	check_eq(ibv_close_device(ctx), 0);
	ctx = hbldv_open_device(hbl_0, &attr);
	check(ctx, "%s", strerror(errno));
	drop_lines();
	REFUSED(hbl_not_set_up,
		"hbldv_create_usr_fifo: hbl_0: ", "port 1 is not set up (hbldv_set_port_ex)",
		!hbldv_create_usr_fifo(ctx, &fifo));
	REFUSED(hbl_owned,
		"hbldv_open_device: hbl_0: ", "hbl_0 is in use (an hbl device has one owner",
		!hbldv_open_device(hbl_0, &attr));
	ibv_free_device_list(list);
	check_eq(ibv_close_device(ctx), 0);
}

/* A peer that no hbl port has. */
static void refuse_hbl_peer(void)
{
	struct ibv_context *ctx = open_named("hbl_1");
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 16, .max_recv_wr = 16 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct hbldv_qp_attr hbl = { .wq_type = HBLDV_WQ_WRITE,
				     .wq_granularity = HBLDV_SWQE_GRAN_32B };

	check(qp);
	check_eq(hbldv_modify_qp(qp, &attr,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					 IBV_QP_ACCESS_FLAGS,
				 &hbl),
		 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				     .path_mtu = IBV_MTU_1024,
				     .dest_qp_num = 1 };
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	memset(attr.ah_attr.grh.dgid.raw, 0x20, 16);
	drop_lines();
	REFUSED(hbl_unreachable, "hbldv_modify_qp: QP 0x",
		"belongs to no hbl port that this port reaches",
		hbldv_modify_qp(qp, &attr,
				IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					IBV_QP_MIN_RNR_TIMER,
				&hbl) == EHOSTUNREACH);
	check_eq(ibv_destroy_qp(qp), 0);
	check_eq(ibv_destroy_cq(cq), 0);
	check_eq(ibv_dealloc_pd(pd), 0);
	check_eq(ibv_close_device(ctx), 0);
}

/* A frame of nothing on an mlx4 adapter, and a receive WQE that cannot be. */
static void fail_frame(void)
{
	struct ibv_context *ctx = open_named("mlx4_0");
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .qp_type = IBV_QPT_RAW_PACKET,
					 .cap = { .max_send_wr = 4, .max_send_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	static char buf[64];
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof(buf), 0);
	struct ibv_sge sge = { (uintptr_t)buf, 4, mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND
	};
	struct ibv_send_wr *bad;

	check(qp);
	check_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
	check_eq(qp_set_state(qp, IBV_QPS_RTR), 0);
	check_eq(qp_set_state(qp, IBV_QPS_RTS), 0);
	drop_lines();
	check_eq(ibv_post_send(qp, &wr, &bad), 0);
	cq_expect(cq, 1, IBV_WC_LOC_LEN_ERR);
	FOUND(wr_frame, "SEND: QP 0x", "4 bytes do not make a frame");
	check_eq(ibv_destroy_qp(qp), 0);
	check_eq(ibv_destroy_cq(cq), 0);
	check_eq(ibv_dereg_mr(mr), 0);
	check_eq(ibv_dealloc_pd(pd), 0);
	check_eq(ibv_close_device(ctx), 0);
}

/* --- faults on demand ---------------------------------------------------------------------------------- */

static void inject(const char *line)
{
	struct vb_inject fault;
	char words[256];

	check_eq(vb_inject_parse(line, &fault, words, sizeof(words)), 0);
	check(vb_inject_apply(vb_card_program(), &fault, false, words, sizeof(words)) == 0,
	      "%s: %s", line, words);
}

static void fail_on_demand(void)
{
	struct pair pair;

	pair_open(&pair, IBV_QPT_RC);
	inject("small_0 fail pd 1");
	REFUSED(injected, "ibv_alloc_pd: small_0", "it was asked to fail (verbatim inject",
		!ibv_alloc_pd(pair.a.ctx) && errno == ENOMEM);
	inject("small_0 qp all next REM_OP_ERR");
	check_eq(node_send(&pair.a, 1, 0, 64, IBV_SEND_SIGNALED), 0);
	cq_expect(pair.a.send_cq, 1, IBV_WC_REM_OP_ERR);
	FOUND(wr_injected, "SEND: QP 0x", "it was asked to fail");
	pair_again(&pair);
	inject("small_0 port 1 down");
	check_eq(node_send(&pair.a, 1, 0, 64, IBV_SEND_SIGNALED), 0);
	cq_expect(pair.a.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	FOUND(wr_port_down, "SEND: QP 0x", "the port of small_0 is down");
	inject("small_0 port 1 up");
	inject("small_0 fatal");
	drop_lines();
	REFUSED(no_function, "card: ", "0xfff",
		vb_emu_driver_open(vb_card_program(), 0xfff, NULL) == -EINVAL);
	REFUSED(device_fatal, "ibv_alloc_pd: small_0", "small_0 has had a fatal error",
		!ibv_alloc_pd(pair.a.ctx) && errno == EIO);
	pair_close(&pair);
}

/* --- all of them --------------------------------------------------------------------------------------- */

/* Of a reason that comes again and again BURST lines a second go out, and the next one tells how many did not. */
static void limit_rate(void)
{
	char line[LINE_BYTES];
	int lines = 0;

	sleep_ms(1100);
	drop_lines();
	for (int i = 0; i < 1000; i++)
		check_eq(ibv_destroy_qp(NULL), EINVAL);
	while (next_line(line))
		lines++;
	check(lines >= BURST && lines <= 5 * BURST, "%d lines", lines);
	sleep_ms(1100);
	REFUSED(null, "ibv_destroy_qp: QP", "more like this before]",
		ibv_destroy_qp(NULL) == EINVAL);
}

static void check_all_seen(void)
{
	int missing = 0;

	for (size_t i = 0; i < sizeof(not_at_will) / sizeof(not_at_will[0]); i++)
		seen[not_at_will[i]] = true;
	for (int i = 0; i < VB_REASON_COUNT; i++) {
		if (!seen[i])
			fprintf(stderr, "no case provokes the reason %s\n", vb_reason_name(i));
		missing += !seen[i];
	}
	check_eq(missing, 0);
}

/* The log is opened when the library is loaded: begin again with it set. */
static void restart_with_log(char *program)
{
	char config[] = "/tmp/refusals-conf.XXXXXX", log[] = "/tmp/refusals-log.XXXXXX";
	const char text[] =
		"[adapter small_0]\nformat = mlx5\nmtu = 1024\nmax_srq = 2\n"
		"[adapter mlx4_0]\nformat = mlx4\n[adapter hbl_0]\nformat = hbl\n[adapter hbl_1]\n";
	int fd = mkstemp(config);

	check(fd >= 0 && write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1);
	close(fd);
	fd = mkstemp(log);
	check(fd >= 0);
	close(fd);
	setenv("VERBATIM_CONFIG", config, 1);
	setenv("VERBATIM_LOG", "info", 1);
	setenv("VERBATIM_LOG_FILE", log, 1);
	unsetenv("VERBATIM_TEST_DEVICE");
	execl("/proc/self/exe", program, "walk", NULL);
	check(!"execl");
}

static void walk(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address self;
	struct pair pair;
	struct node node;

	log_file = fopen(getenv("VERBATIM_LOG_FILE"), "re");
	check(log_file);
	node_open(&node, &attr);
	node_address(&node, &self);
	refuse_arguments(&node);
	refuse_memory(&node);
	refuse_transitions(&node, &self);
	refuse_posts(&node);
	node_connect(&node, &self);
	refuse_requests(&node);
	refuse_limit(&node);
	refuse_in_child(&node);
	refuse_commands(&node);
	refuse_direct(&node);
	refuse_steering(&node);
	refuse_numbers(&node);
	refuse_on_datagrams();
	node_close(&node);
	pair_open(&pair, IBV_QPT_RC);
	fail_remote(&pair);
	fail_rights(&pair);
	fail_local(&pair);
	fail_lengths(&pair);
	fail_unmapped(&pair);
	fail_silent(&pair);
	fail_direct(&pair);
	pair_close(&pair);
	fail_without_rd_atomic();
	fail_dead_peer();
	refuse_second_pd();
	refuse_hbl();
	refuse_hbl_ports();
	refuse_hbl_peer();
	fail_frame();
	fail_on_demand();
	limit_rate();
	check_all_seen();
	unlink(getenv("VERBATIM_CONFIG"));
	unlink(getenv("VERBATIM_LOG_FILE"));
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "target"))
		return role_target();
	if (argc < 2)
		restart_with_log(argv[0]);
	walk();
	return 0;
}
